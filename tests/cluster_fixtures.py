"""Several nodes of the kind of `core_fixtures`, joined in memory.

    cluster = Cluster(3)                            nodes a, b, c; each linked to each
    a, b, c = cluster
    job = a.add("q", "body")                        a command is a step; then messages go to and fro until all is quiet
    cluster.advance(1_000)                          time passes for every node alike

    cluster.hold(a, b)                              what a sends to b stays under way
    cluster.release(a, b)                           it arrives, in order; `order=` says another one
    cluster.cut(a, b)                               no link between them; what was under way is lost
    cluster.heal(a, b)
    cluster.lose = lambda flight: flight.kind == SETACK
    cluster.sent(NEEDJOBS)                          what left, in order: `Flight`s

Each node has clocks of its own that show other times than those of the others.  A message is written down when it
leaves and read when it arrives, so that nothing but its bytes is shared.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import permutations
from random import Random
from typing import Any, NamedTuple

from disqued.commands.table import BLOCKED
from disqued.core.model.messages import NAMES, URGENT, VITALS, Greeting, Message, Target
from disqued.core.model.outbox import Client
from disqued.core.node import Node
from disqued.cron import CronCalendar
from disqued.testing.clock import WALL_MS, Clock
from disqued.wire.messages import decode, encode
from tests.core_fixtures import Server, Word

LETTERS = "abcdef0123456789"  #: of the node ids: 40 times the same
APART_MS = 7_777_777  #: by how much the clocks of two nodes differ
GOSSIP = URGENT | {VITALS}  #: what nodes say whether or not anything happens
QUIET_AFTER = 100_000  #: messages of one step after which the nodes will never be quiet


class Flight(NamedTuple):
    """A message under way."""

    sender: "Member"
    receiver: "Member"
    message: Message  #: as the sender wrote it; a `Job` in it may have changed since
    data: Message  #: as the receiver reads it

    @property
    def kind(self) -> int:
        """The kind of the message."""
        return int(self.message[0])

    def __repr__(self) -> str:
        return f"{self.sender.name}->{self.receiver.name} {NAMES[self.kind]}"


class Member(Server):
    """A node of a cluster."""

    is_alone = False

    def __init__(self, cluster: "Cluster", number: int, seed: int, maxmemory: int) -> None:
        """Make the node of that number; 0 is a."""
        apart = number * APART_MS
        super().__init__(clock=Clock(now=1_000 + apart, wall=WALL_MS - 3 * apart))
        self.cluster = cluster
        self.name = LETTERS[number]
        self.id = self.name.encode() * 40
        self._number, self._seed, self._maxmemory = number, seed, maxmemory
        self.begin_anew()

    def begin_anew(self) -> None:
        """Start with nothing but the id."""
        self.node = Node(
            self.id, self.clock, Random(f"{self._seed} {self.name}"), maxmemory=self._maxmemory,
            calendar=CronCalendar(),
        )  # fmt: skip
        self.state = self.node.state
        self.state.journaling = True
        self.node.membership.own_address.announce(f"127.0.0.{self._number + 1}", 7711, 17711)
        self.settle()

    def __repr__(self) -> str:
        return self.name

    @property
    def greeting(self) -> Greeting:
        """What it says of itself when a link opens."""
        return self.node.membership.own_address.greeting(meets=True)

    def run(self, *args: Word, client: Client = "client") -> Any:
        """Run a command within the step that has begun; then all messages arrive.  Raises CommandError."""
        try:
            return super().run(*args, client=client)
        finally:
            self.settle()
            self.cluster.settle()

    def say(self, receiver: "Member", message: Message) -> None:
        """Send a message of the test's own."""
        self.node.begin()
        assert self.state.send(receiver.id, message), f"{self} has no link to {receiver}"
        self.settle()
        self.cluster.settle()

    def hear(self, flight: Flight) -> None:
        """Take a message that arrives."""
        self.node.begin()
        self.node.message(flight.sender.id, flight.data)
        self.settle()

    def settle(self) -> None:
        """Take what is in the outbox: records, then messages, then replies."""
        outbox = self.node.outbox
        while outbox.journal or outbox.messages or outbox.replies or outbox.events or outbox.asked:
            if outbox.events:
                self.node.notifications.collect()
            self.journal += outbox.journal
            outbox.journal.clear()
            sent, outbox.messages = outbox.messages, []
            for receiver_id, message in sent:
                if receiver_id == self.id:
                    self.events.append(message[1:])
                    continue
                self.cluster.carry(self, receiver_id, message)
            super().settle()

    def holds(self, job_id: bytes) -> bool:
        """Tell whether the node knows a job."""
        return self.state.jobs.get(job_id) is not None

    def wait(self, client: Client, *queues: Word, timeout: int = 0) -> None:
        """Block a client in GETJOB; what it is answered comes into `answers`."""
        assert self("GETJOB", "TIMEOUT", timeout, "FROM", *(queues or ("q",)), client=client) is BLOCKED

    def answered(self, client: Client) -> list[bytes]:
        """Bodies of the jobs that a client got while it was blocked."""
        return [body for rows in self.answers[client] if rows for _, _, body in rows]


class Cluster:
    """Nodes, and the messages between them."""

    def __init__(self, size: int = 3, *, seed: int = 1, maxmemory: int = 1 << 40, linked: bool = True) -> None:
        self.rng = Random(seed)
        #: What left and was not lost, in order; not that nodes are there, which they tell each other all the time.
        self.flights: list[Flight] = []
        self.lost: list[Flight] = []
        #: Tells which messages are lost.
        self.lose: Callable[[Flight], bool] = lambda flight: False
        self._under_way: deque[Flight] = deque()
        self._held: dict[tuple[Member, Member], list[Flight]] = {}
        self._settling = False
        self.members = [Member(self, number, seed, maxmemory) for number in range(size)]
        self.by_id = {member.id: member for member in self.members}
        if linked:
            for sender, receiver in permutations(self.members, 2):
                self._link(sender, receiver)
            self.settle()
            self.flights.clear()

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members)

    # Links.

    def cut(self, one: Member, other: Member) -> None:
        """Break both links between two nodes; what was under way is lost."""
        self._lose_under_way(one, other)
        self._lose_under_way(other, one)
        for sender, receiver in ((one, other), (other, one)):
            self._close(sender, receiver)
        self.settle()

    def heal(self, one: Member, other: Member) -> None:
        """Link two nodes again."""
        self._link(one, other)
        self._link(other, one)
        self.settle()

    def cut_one_way(self, sender: Member, receiver: Member) -> None:
        """Break the link of one node to another; what is under way on it is lost."""
        self._lose_under_way(sender, receiver)
        self._close(sender, receiver)
        self.settle()

    def greet(self, sender: Member, receiver: Member) -> None:
        """Let a link be proven at the end that is dialed; who dials does not know yet."""
        self._greet(sender, receiver)
        self.settle()

    def heal_one_way(self, sender: Member, receiver: Member) -> None:
        """Link one node to another again."""
        self._link(sender, receiver)
        self.settle()

    def isolate(self, member: Member) -> None:
        """Cut a node off from all others."""
        for other in self.members:
            if other is not member:
                self.cut(member, other)

    def restart(self, member: Member, *, away_ms: int = 1_000) -> None:
        """End a node that has no store, and start it again: it knows nothing but its id, and links are new."""
        self.isolate(member)
        self.advance(away_ms)
        member.begin_anew()
        for other in self.members:
            if other is not member:
                self.heal(member, other)

    def _lose_under_way(self, sender: Member, receiver: Member) -> None:
        self._under_way = deque(
            flight for flight in self._under_way if (flight.sender, flight.receiver) != (sender, receiver)
        )
        self._held.pop((sender, receiver), None)

    def _close(self, sender: Member, receiver: Member) -> None:
        sender.node.begin()
        sender.node.link_closed(receiver.id)
        sender.settle()

    def _greet(self, sender: Member, receiver: Member) -> None:
        receiver.node.begin()
        receiver.node.greeted(sender.greeting, sender.greeting.host, receiver.greeting.host)
        receiver.settle()

    def _link(self, sender: Member, receiver: Member) -> None:
        greeting = receiver.greeting
        target = Target(greeting.host, greeting.bus_port, greeting.id, meets=True)
        self._greet(sender, receiver)
        sender.node.begin()
        assert sender.node.link_opened(target, greeting, sender.greeting.host), f"{sender} wants no link to {receiver}"
        sender.settle()

    # Messages.

    def carry(self, sender: Member, receiver_id: bytes, message: Message) -> None:
        """Take a message on its way."""
        receiver = self.by_id[receiver_id]
        assert receiver_id in sender.state.peers.linked, f"{sender} has no link to {receiver}"
        flight = Flight(sender, receiver, message, decode(encode(message, sender.state.now)))
        if self.lose(flight):
            self.lost.append(flight)
            return
        if flight.kind not in GOSSIP:
            self.flights.append(flight)
        held = self._held.get((sender, receiver))
        if held is None:
            self._under_way.append(flight)
        else:
            held.append(flight)

    def settle(self) -> None:
        """Let everything arrive that is not held, and what comes of it, until nobody has anything to say."""
        if self._settling:
            return
        self._settling = True
        try:
            for _ in range(QUIET_AFTER):
                if not self._under_way:
                    return
                flight = self._under_way.popleft()
                flight.receiver.hear(flight)
            raise AssertionError(f"never quiet: {Counter(map(repr, self.flights[-1_000:]))}")
        finally:
            self._settling = False

    def hold(self, sender: Member, receiver: Member) -> None:
        """Keep what the one sends to the other from arriving."""
        self._held.setdefault((sender, receiver), [])

    def held(self, sender: Member, receiver: Member) -> list[Flight]:
        """What is kept from arriving."""
        return list(self._held.get((sender, receiver), ()))

    def release(
        self, sender: Member, receiver: Member, *, order: Callable[[list[Flight]], Iterable[Flight]] | None = None
    ) -> None:
        """Let it arrive, in the order in which it left, or in another; `order` may repeat and leave out, too."""
        flights = self._held.pop((sender, receiver), [])
        self._under_way.extend(flights if order is None else order(flights))
        self.settle()

    def repeat(self, flight: Flight) -> None:
        """Let a message arrive once more."""
        self._under_way.append(flight)
        self.settle()

    def sent(self, kind: int, sender: Member | None = None, receiver: Member | None = None) -> list[Flight]:
        """Messages of a kind that left, in order; lost ones are not among them."""
        return [
            flight
            for flight in self.flights
            if flight.kind == kind and sender in (None, flight.sender) and receiver in (None, flight.receiver)
        ]

    # Time.

    def advance(self, ms: int) -> None:
        """Let time pass for all nodes; each is looked at when it asked for it, and messages take no time."""
        while ms > 0:
            step = min([ms, *(left for member in self.members if (left := _until_tick(member)) is not None)])
            for member in self.members:
                member.clock.advance(step)
            ms -= step
            for member in self.members:
                if _until_tick(member) == 0:
                    member.tick()
            self.settle()
        for member in self.members:
            member.node.begin()


def _until_tick(member: Member) -> int | None:
    at = member.node.deadline()
    return None if at is None else max(0, at - member.clock.now())
