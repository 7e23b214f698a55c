"""The network between simulated nodes: links that are proven, ordered and, until they break, without loss.

    dial --a round trip--> greetings exchanged --> link open --> batches of messages, each after a delay of its own,
                                                               first in, first out
    blocked     what is under way waits at the far end, what is sent waits at the near one, unwritten
    cut         the link breaks, what was under way is lost, and both ends may dial again
    mess        single messages are lost, doubled or put behind others: no TCP does that, and yet no promise breaks

Each ordered pair of nodes has one `Path`, which has the weather, and at most one `SimLink` on it, which has the
messages.  A message is written down when it leaves and read when it arrives, by the codec of the bus.

Times are integer milliseconds.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import Protocol

import attrs

from disqued.core.model.messages import Greeting, Message, Target
from disqued.core.model.state import State
from disqued.core.node import Node
from disqued.testing.clock import NodeClock
from disqued.testing.events import EventQueue
from disqued.wire.messages import encode
from disqued.wire.pieces import whole

HELD_MAX = 20_000  #: messages that wait for a blocked link at most; the newest are dropped
DIAL_TIMEOUT_MS = 2_000
REDIAL_MIN_MS = 100
REDIAL_MAX_MS = 1_000
# What becomes of a message in a mess, by a draw between 0 and 1: lost, put off, or there in time and once more.
LOST_BELOW = 0.3
PUT_OFF_BELOW = 0.7
LATE_MS_MAX = 1_500


class Station(Protocol):
    """A node as its network and its event log see it."""

    id: bytes
    number: int
    host: str
    bus_port: int
    boot: int  #: number of its process
    is_up: bool
    is_paused: bool
    clock: NodeClock
    events: EventQueue
    node: Node
    state: State

    def hear(self, sender: bytes, batch: list[bytes]) -> None:
        """Take messages of another node."""

    def hear_greeting(self, greeting: Greeting, host: str) -> None:
        """Another node has opened its link to this one."""

    def open_link(self, dial: "Dial", link: "SimLink", greeting: Greeting) -> bool:
        """Our link to a target is proven; say whether the attempt is over."""

    def lose_link(self, link: "SimLink") -> None:
        """A link has broken."""


class Path:
    """The way from one node to another, and its weather."""

    __slots__ = ("blocks", "delay_ms", "jitter_ms", "link", "mess", "source", "target", "usual_jitter_ms")

    def __init__(self, source: Station, target: Station) -> None:
        self.source = source
        self.target = target
        self.blocks: int = 0  #: faults that let nothing through now
        self.delay_ms: int = 1
        self.usual_jitter_ms: int = 1  #: when nothing is slow
        self.jitter_ms: int = 1  #: added to the delay of each batch, at most
        self.mess: float = 0.0  #: part of the messages that is lost, doubled or delayed
        self.link: SimLink | None = None

    @property
    def is_well(self) -> bool:
        """Whether nothing is kept, lost, doubled or delayed on it."""
        return not (self.blocks or self.mess) and self.delay_ms == 1 and self.jitter_ms == self.usual_jitter_ms

    @property
    def reaches(self) -> bool:
        """Whether an open link leads to the process that runs there now: one to a former process may stay open."""
        return self.link is not None and self.link.boot == self.target.boot

    def block(self) -> None:
        """Let nothing through, until `unblock` is called as often."""
        self.blocks += 1

    def unblock(self) -> None:
        """Take one block away; with the last of them, what waited goes on."""
        self.blocks -= 1
        if not self.blocks and self.link is not None:
            self.link.release()


class SimLink:
    """An open link from one process to another."""

    __slots__ = ("_held", "_last_at", "_network", "_path", "_stuck", "boot", "is_lost", "is_open", "peer_id", "where")

    def __init__(self, network: "SimNetwork", path: Path, peer_id: bytes, target: Target, ready_at: int) -> None:
        self._network = network
        self._path = path
        self.boot = path.target.boot  #: of the process that it leads to
        self._last_at = ready_at  #: when the last batch arrives
        self._stuck: list[list[bytes]] = []  #: batches that have arrived but for the block
        self._held: list[Message] = []  #: not written down yet
        self.peer_id = peer_id
        self.where = (target.host, target.bus_port)
        self.is_open: bool = True
        self.is_lost: bool = False

    def open(self) -> None:
        """Take the place of the link that was on this path before."""
        before, self._path.link = self._path.link, self
        if before is not None:
            before.close(loses=False)

    @property
    def target(self) -> Station:
        """The node that it leads to."""
        return self._path.target

    def send(self, messages: list[Message]) -> None:
        """Take messages on their way."""
        network = self._network
        if self._path.blocks:
            room = HELD_MAX - len(self._held)
            self._held += messages[:room]
            network.dropped += max(0, len(messages) - room)
            return
        now = self._path.source.node.state.now
        self._launch([whole(encode(message, now)) for message in messages])

    def _launch(self, batch: list[bytes]) -> None:
        network, path = self._network, self._path
        if path.mess:
            batch = self._meddle(batch)
            if not batch:
                return
        events = network.events
        delay_ms = path.delay_ms
        if path.jitter_ms:
            delay_ms += int(network.rng.random() * (path.jitter_ms + 1))
        at = events.now + delay_ms
        self._last_at = at = max(at, self._last_at)
        events.at(at, self._arrive, batch)

    def _meddle(self, batch: list[bytes]) -> list[bytes]:
        """Lose, double and put off single messages; the double of one may come much later."""
        network, mess = self._network, self._path.mess
        kept: list[bytes] = []
        for data in batch:
            draw = network.rng.random() / mess
            if draw < LOST_BELOW:
                network.dropped += 1
                continue
            if draw >= PUT_OFF_BELOW:
                kept.append(data)
            if draw < 1:
                network.events.after(network.rng.randint(1, LATE_MS_MAX), self._arrive, [data])
        return kept

    def _arrive(self, batch: list[bytes]) -> None:
        if self.is_lost:
            return
        path = self._path
        if path.blocks or self._stuck:
            self._stuck.append(batch)
            return
        target = path.target
        if target.boot != self.boot:
            # Another process answers there, if one does at all, and knows nothing of this connection.
            if target.is_up:
                self._network.events.after(path.delay_ms, self.break_off)
            return
        self._network.carried += len(batch)
        target.hear(path.source.id, batch)

    def release(self) -> None:
        """Go on with what waited."""
        stuck, self._stuck = self._stuck, []
        for batch in stuck:
            self._arrive(batch)
        held, self._held = self._held, []
        if held and self.is_open and self._path.source.is_up:
            now = self._path.source.clock.now()
            self._launch([whole(encode(message, now)) for message in held])

    def close(self, *, loses: bool) -> None:
        """End the link; what is under way arrives still, or is lost."""
        self.is_open = False
        self._held = []
        if loses:
            self.is_lost = True
        if self._path.link is self:
            self._path.link = None

    def break_off(self, _: None = None) -> None:
        """Break, so that its node notices."""
        if self.is_open:
            self._path.source.lose_link(self)


@attrs.define
class Dial:
    """An attempt to open a link, repeated until it succeeds or nobody wants it any more."""

    target: Target
    boot: int  #: of the process that dials
    pause_ms: int = REDIAL_MIN_MS
    is_over: bool = False


class SimNetwork:
    """Every path between the nodes, and the dialing."""

    def __init__(self, events: EventQueue, rng: Random) -> None:
        self.events = events
        self.rng = rng
        self.carried: int = 0  #: messages that arrived
        self.dropped: int = 0  #: messages that were lost on a link, or had no room before it
        #: Is shown each message that arrives: (receiver, id of the sender, message).
        self.watch: Callable[[Station, bytes, Message], None] | None = None
        self.by_address: dict[tuple[str, int], Station] = {}
        self._paths: dict[tuple[int, int], Path] = {}

    def join(self, servers: Iterable[Station], jitter_ms: int = 1) -> None:
        """Lay the paths between these nodes."""
        for source in servers:
            self.by_address[source.host, source.bus_port] = source
            for target in servers:
                if source is not target:
                    path = self._paths[source.number, target.number] = Path(source, target)
                    path.jitter_ms = path.usual_jitter_ms = jitter_ms

    def path(self, source: Station, target: Station) -> Path:
        """The way from one node to another."""
        return self._paths[source.number, target.number]

    @property
    def paths(self) -> list[Path]:
        """All of them, in a fixed order."""
        return list(self._paths.values())

    # Dialing.

    def dial(self, source: Station, target: Target) -> Dial:
        """Begin to open a link."""
        dial = Dial(target, source.boot)
        self.events.after(1, self._attempt, (source, dial))
        return dial

    def _attempt(self, attempt: tuple[Station, Dial]) -> None:
        source, dial = attempt
        if dial.is_over or dial.boot != source.boot:
            return
        where = self.by_address.get((dial.target.host, dial.target.bus_port))
        if where is None or where is source or source.is_paused or not where.is_up:
            self._again(source, dial, 1)
            return
        there, back = self.path(source, where), self.path(where, source)
        if there.blocks or back.blocks or where.is_paused:
            self._again(source, dial, DIAL_TIMEOUT_MS)
            return
        self.events.after(there.delay_ms + back.delay_ms, self._greet, (source, dial, where, where.boot))

    def _again(self, source: Station, dial: Dial, ms: int) -> None:
        self.events.after(ms + dial.pause_ms, self._attempt, (source, dial))
        dial.pause_ms = min(2 * dial.pause_ms, REDIAL_MAX_MS)

    def _greet(self, proof: tuple[Station, Dial, Station, int]) -> None:
        """Both sides know by now who the other one is."""
        source, dial, where, boot = proof
        if dial.is_over or dial.boot != source.boot:
            return
        there = self.path(source, where)
        if where.boot != boot or there.blocks or source.is_paused or where.is_paused:
            self._again(source, dial, 1)
            return
        ours = source.node.membership.own_address.greeting(dial.target.meets)
        theirs = where.node.membership.own_address.greeting(False)
        # What they hear first is the greeting.
        at = self.events.now + there.delay_ms
        self.events.at(at, self._greeted, (where, boot, ours, source.host))
        if not source.open_link(dial, SimLink(self, there, theirs.id, dial.target, at), theirs):
            self._again(source, dial, 1)

    @staticmethod
    def _greeted(news: tuple[Station, int, Greeting, str]) -> None:
        where, boot, greeting, host = news
        if where.boot == boot:
            where.hear_greeting(greeting, host)
