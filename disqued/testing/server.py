"""One simulated node: the real core and the real codecs, between a simulated disk, network and clock.

    client's command, batch of messages, greeting --> a step of the node --> `driver`: timer, turn, commit
                                                                             `links`: messages to other nodes
                                                                             `recipients`: replies to clients

A process ends at any moment, also in the middle of a commit, and starts again from its disk.

Times are integer milliseconds; `boot` counts the processes of a node, so that what was meant for one that is gone is
not taken for news.
"""

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from operator import itemgetter
from typing import Any

from disqued.commands.catalogue import MODULES  # enters the commands into the table
from disqued.commands.dispatch import Dispatch, Outcome
from disqued.commands.latency import LatencyMonitor
from disqued.commands.slowlog import SlowLog
from disqued.commands.table import BLOCKED
from disqued.core.model.messages import Greeting
from disqued.core.model.peers import FAIL, PFAIL, KnownNode
from disqued.core.node import Node
from disqued.core.recovery import Recovery, snapshot
from disqued.cron import CronCalendar
from disqued.testing.clock import WALL_MS, NodeClock
from disqued.testing.deadwatch import DeadWatch
from disqued.testing.disk import SimDisk
from disqued.testing.driver import PowerFailure, SimDriver
from disqued.testing.eventlog import SimEventLog
from disqued.testing.events import EventQueue, generator
from disqued.testing.grouporder import GroupOrderWatch
from disqued.testing.journal import ALWAYS, NONE, SimJournal
from disqued.testing.limits import LimitWatch
from disqued.testing.links import SimLinks
from disqued.testing.network import Dial, SimLink, SimNetwork
from disqued.testing.pausewatch import PauseWatch
from disqued.testing.recipients import AskingNode, SimClient, SimRecipient
from disqued.wire.messages import decode

assert MODULES

PORT = 7711
BUS_PORT = 17711
TOLD_KEPT = 100  #: answers to nodes
BOOT_MS_MAX = 1 << 40  #: what a machine's monotonic clock may have counted when its node starts


def _fail(client: SimRecipient, words: list[bytes]) -> None:
    """Let a bug in a command end the simulation."""
    raise  # noqa: PLE0704 - it is called while the exception is being handled


class SimServer:
    """A node with its process, disk and clocks; what is not running keeps its disk."""

    # Of the process that runs, or ran last.
    node: Node
    journal: SimJournal
    links: SimLinks
    driver: SimDriver
    pause_watch: PauseWatch
    dead_watch: DeadWatch

    def __init__(
        self, events: EventQueue, network: SimNetwork, number: int, seed: str, *,
        policy: str, commit_ms: int, maxmemory: int, timeout_ms: int, asked_at_once: int,
        on_life: "Callable[[SimServer, bool], None]", on_loss: "Callable[[SimServer], None]", watch: type[PauseWatch],
    ) -> None:  # fmt: skip
        """Make a node that is not started; `watch` looks at each step of it.

        A commit takes up to `commit_ms`; 0 = it is done when it returns.  `on_life` hears that a process serves or
        has ended, `on_loss` that a crash took something acknowledged.
        """
        self.events = events
        self.network = network
        self.number = number
        self.rng = generator(f"{seed} node {number}")
        self.id: bytes = b"%040x" % self.rng.getrandbits(160)
        self.host = f"127.0.1.{number + 1}"
        self.bus_port = BUS_PORT
        self.clock = NodeClock(events, 0)
        self.limit_watch: LimitWatch | None = None  #: None = no queue is limited
        self.order_watch: GroupOrderWatch | None = None  #: likewise
        self.known_dead: dict[bytes, int] = {}  #: generations in which it knew jobs to be dead
        self.disk = SimDisk(generator(f"{seed} disk {number}"))
        self.power_failure = PowerFailure()
        self.policy = policy
        self.commit_ms = commit_ms
        self.maxmemory = maxmemory
        self.timeout_ms = timeout_ms
        self.asked_at_once = asked_at_once
        self.boot: int = 0
        self.is_up: bool = False
        self.is_paused: bool = False
        self.suspected: set[int] = set()  #: numbers of nodes that it took for failed at some time
        self.event_log: SimEventLog | None = None  #: None = nobody wants it
        self._on_life = on_life
        self._on_loss = on_loss
        self._watch = watch
        self.numbers: dict[bytes, int] = {}  #: of every node, by id
        #: What it has answered nodes lately: when, words, value.
        self._told: deque[tuple[int, tuple[bytes, ...], object]] = deque(maxlen=TOLD_KEPT)
        self._members: list[KnownNode] = []  #: nodes.conf
        #: What came while the process is paused: (is no timer, call, its arguments).
        self._backlog: list[tuple[bool, Callable[..., None], tuple[Any, ...]]] = []

    def __repr__(self) -> str:
        return f"node {self.number}"

    # The process.

    def start(self, *, restores_queues: bool = False) -> None:
        """Start a process on what the disk has."""
        self.boot += 1
        self.clock.offset_ms = self.rng.randrange(1, BOOT_MS_MAX)
        self.node = node = Node(
            self.id, self.clock, generator(f"{self.id!r} {self.rng.getrandbits(64)}"), maxmemory=self.maxmemory,
            calendar=CronCalendar(),
        )  # fmt: skip
        self.outbox = node.outbox
        self.state = node.state
        self.journal = SimJournal(self.disk, self.policy, self.clock, restores_queues=restores_queues)
        node.state.peers.timeout_ms = self.timeout_ms
        node.acks.rounds.asked_at_once = self.asked_at_once
        node.membership.own_address.announce(self.host, PORT, self.bus_port)
        node.membership.restore(self._members)
        self.pause_watch = self._watch(node.state)
        self.dead_watch = DeadWatch(node.state, self.known_dead)
        recovery = Recovery(self.state, restores_queues=restores_queues)
        for record in self.journal.load():
            recovery.apply(record)
        self.links = SimLinks(node, self.clock, partial(self.network.dial, self), self._link_closed)
        self.driver = driver = SimDriver(
            node, self.journal, self.events, self.clock,
            power_failure=self.power_failure, commit_ms=self.commit_ms, rng=self.rng, takes=self._takes,
            watch=self._watched, begin_commit=self._begin_commit, committed=self._committed,
            send=self.links.send, follow_members=self._follow_members, follow_trail=self._follow_trail,
            run=self._run_for_node,
        )  # fmt: skip
        self._dispatch = Dispatch(
            node, seconds=lambda: 0.0, microseconds=lambda: self.clock.wall() * 1_000, on_crash=_fail,
            failure=lambda: driver.turn.failure, slowlog=SlowLog(-1, 0), latency=LatencyMonitor(0),
        )  # fmt: skip
        driver.turn.give_to(self.journal)
        self.state.journaling = self.journal.records
        node.note_expired(recovery.expired)
        self.is_up = True
        if self.event_log is not None:
            self.event_log.start()
        node.begin()
        recovery.finish()
        if self.journal.records and not self.state.durability.watermark.until:
            self.outbox.journal.append(self.state.begin_watermark())
        node.workers.recover(recovery.held)
        node.gates.resume()
        node.acksets.resume()
        # A flush in the journal took their deadlines along.
        node.membership.detector.plan()
        node.leaving.wake()
        node.policies.resume()
        node.idleness.resume()
        node.admission.start()
        node.schedules.start()
        node.tick()
        self.outbox.members_changed = True
        if self.limit_watch is not None:
            self.limit_watch.begins(self)
        self.driver.finish_step()
        self._on_life(self, True)

    def remember(self, members: "Iterable[SimServer]") -> None:
        """Let its nodes.conf name these nodes, all of which it has heard of: a process that starts links to them."""
        self._members = [
            KnownNode(member.id, member.host, PORT, member.bus_port, pong_at=WALL_MS, myself=member is self)
            for member in members
        ]

    def kill(self, *, power: bool) -> None:
        """End the process at once: kill -9, which leaves what was written, or the power, which leaves what was synced.

        Nobody notices that a machine has lost its power but by its silence.
        """
        lost = self.disk.lose_power() if power and self.journal.records else False
        if self.policy == NONE or (lost and self.policy != ALWAYS):
            self.known_dead.clear()
            self._on_loss(self)
        if self.event_log is not None:
            self.event_log.crash(power=power)
        self._end()
        if not power:
            self._break_connections()

    def restart(self) -> None:
        """Shut down in order and start again, with queues and deliveries as they were.  Raises StoreFailed."""
        self.driver.end_turn()
        self.journal.rewrite(snapshot(self.state), with_queues=True)
        self.stop()
        self.start(restores_queues=True)

    def stop(self) -> None:
        """End the process as a service manager does."""
        if self.event_log is not None:
            self.event_log.stop()
        self._end()
        self._break_connections()

    def _end(self) -> None:
        if self.limit_watch is not None:
            self.limit_watch.ends(self)
        self.is_up = False
        self.is_paused = False
        self.power_failure.cancel()
        self._on_life(self, False)
        self.boot += 1
        self._backlog.clear()
        self.links.close()
        self.driver.end()

    def _break_connections(self) -> None:
        """The system closes the connections of a process that ended."""
        for path in self.network.paths:
            if path.target is self and path.link is not None and not path.blocks:
                self.events.after(path.delay_ms, path.link.break_off)

    def pause(self) -> None:
        """Stop the process, as SIGSTOP does: everything waits for it."""
        self.is_paused = True

    def resume(self) -> None:
        """Let it go on, with all that has come meanwhile: timers first, as the loop takes them."""
        self.is_paused = False
        backlog, self._backlog = sorted(self._backlog, key=itemgetter(0)), []
        for _, call, arguments in backlog:
            if self.is_up:
                call(*arguments)

    def _takes(self, call: Callable[..., None], *arguments: object, is_timer: bool = False) -> bool:
        """Return whether an input can be taken now; a paused process takes it when it goes on, timers first."""
        if self.is_paused:
            self._backlog.append((not is_timer, call, arguments))
        return self.is_up and not self.is_paused

    # Inputs.

    def command(self, client: SimClient, words: list[bytes]) -> None:
        """Run a command; the client hears at the end of a turn."""
        clients = self.driver.clients
        clients.wait(client)
        if not self._takes(self.command, client, words) or client.is_gone:
            return
        recipient = clients.recipient(client)
        self.node.begin()
        outcome = Outcome()
        self._watched(lambda: self._run(recipient, words, outcome))
        if outcome.value is BLOCKED:
            recipient.blocked = outcome
            self.driver.finish_step()
        else:
            recipient.due.append(outcome)
            self.driver.finish_step(recipient)

    def _watched(self, step: Callable[[], None]) -> None:
        """Carry out a step, and look at what it hands out."""
        looked_at = partial(self.dead_watch.over, step)
        if self.limit_watch is not None:
            looked_at = partial(self.limit_watch.over, self, looked_at)
        if self.order_watch is not None:
            looked_at = partial(self.order_watch.over, self, looked_at)
        self.pause_watch.over(looked_at)

    def _run_for_node(self, words: tuple[bytes, ...], tell: Callable[[object], None]) -> None:
        """Run a command that a node has asked for; it is over at once."""

        def heard(value: object) -> None:
            self._told.append((self.events.now, words, value))
            tell(value)

        self.command(AskingNode(heard, self.driver.clients.remove), list(words))

    def told_since(self, at: int) -> list[tuple[tuple[bytes, ...], object]]:
        """What it has answered nodes since then: words, and the value."""
        return [(words, value) for told_at, words, value in self._told if told_at >= at]

    def _run(self, recipient: SimRecipient, words: list[bytes], outcome: Outcome) -> None:
        self._dispatch.execute(recipient, words, outcome)

    def leave(self, client: SimClient) -> None:
        """A client has broken its connection."""
        clients = self.driver.clients
        clients.stop_waiting(client)
        if not self._takes(self.leave, client):
            return
        recipient = clients.remove(client)
        if recipient is not None:
            handed = recipient.drop()
            self.node.begin()
            self.node.gone(recipient, handed)
            self.driver.finish_step()

    def hear(self, sender: bytes, batch: list[bytes]) -> None:
        if not self._takes(self.hear, sender, batch):
            return
        node, note, watch = self.node, self.events.note, self.network.watch
        node.begin()
        for data in batch:
            note(data)
            message = decode(data)
            if watch is not None:
                watch(self, sender, message)
            self._watched(partial(node.message, sender, message))
        self.driver.finish_step()

    def hear_greeting(self, greeting: Greeting, host: str) -> None:
        if self._takes(self.hear_greeting, greeting, host):
            self.node.begin()
            self.node.greeted(greeting, host, self.host)
            self.driver.finish_step()

    def open_link(self, dial: Dial, link: SimLink, greeting: Greeting) -> bool:
        self.node.begin()
        if self.node.link_opened(dial.target, greeting, self.host):
            self.links.opened(dial, link)
        else:
            self.outbox.members_changed = True
        self.driver.finish_step()
        return dial.is_over

    def lose_link(self, link: SimLink) -> None:
        self.links.lose(link)

    def _link_closed(self, peer_id: bytes) -> None:
        if self._takes(self._link_closed, peer_id):
            self.node.begin()
            self.node.link_closed(peer_id)
            self.outbox.members_changed = True
            self.driver.finish_step()

    def _begin_commit(self) -> None:
        self.dead_watch.begin_commit()
        if self.limit_watch is not None:
            self.limit_watch.begin_commit(self)

    def _committed(self) -> None:
        self.dead_watch.committed()
        if self.limit_watch is not None:
            self.limit_watch.committed(self)

    # What follows a step.

    def _follow_members(self) -> None:
        """Let links and nodes.conf follow what is known of the other nodes."""
        self.suspected |= {
            self.numbers[peer_id]
            for peer_id, peer in self.state.peers.by_id.items()
            if peer.flags & (PFAIL | FAIL) and peer_id in self.numbers
        }
        self._members = self.node.membership.lines()
        self.links.follow()

    def _follow_trail(self) -> None:
        """Let the event log take what the trail has."""
        if self.event_log is not None:
            self.event_log.wake()
