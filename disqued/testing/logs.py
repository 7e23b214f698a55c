"""Logs in virtual time: those who add events, groups of consumers, and what they were promised.

    producer    QADD, sometimes NOBLOCK, wait, think, and again; rarely QFLUSH of a queue that is there for that
    consumer    sometimes QNOTIFY or QSTATUS, then QGET as one of a group --> work --> QACK, here or elsewhere
                          |--> sometimes QGROUP RETURN, a QACK that comes too late, or death with events in its hands

    mail, bill  groups that acknowledge
    count, pay  groups that take events with EX 0, and with EX 0 STRICT
    audit       a group that begins when all is well again, and is to get everything that is still alive

After the heal each group has a consumer on every node, until every node counts nothing but events that are done.  What
is seen is told to a checker of its own.  Times are integer milliseconds.
"""

from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs

from disqued.core.job import RETRY_NEVER_MS
from disqued.errors import CommandError
from disqued.testing.checker import Request, body_of
from disqued.testing.clients import RECONNECT_MS, Actor, Connection, Load, Taker, holders_of
from disqued.testing.events import generator
from disqued.testing.faults import Operator
from disqued.testing.logchecker import Ack, Flush, Hold, LogChecker, LogRules
from disqued.wire.replies import Status

if TYPE_CHECKING:
    from disqued.testing.server import SimServer

SCRATCH: Final = b"scratch"  #: the queue that is flushed
QUEUES: Final = (b"news", b"orders", SCRATCH)
ACKING: Final = (b"mail", b"bill")
ONCE: Final = b"count"
STRICT: Final = b"pay"
WORKING: Final = (*ACKING, ONCE, STRICT)
LATE: Final = b"audit"
GROUPS: Final = (*WORKING, LATE)
LIFE_MS: Final = 1_200_000  #: of an event as a rule: longer than all that goes wrong, and short enough to be waited for
DRAIN_MS: Final = 300_000  #: in which every group must be done with every event after the heal
LEASE_MS: Final = 30_000  #: where QGET says nothing


@attrs.frozen
class LogLoad(Load):
    """What clients of logs do, in chances and choices, beside what all clients do."""

    lives_ms: tuple[int, ...] = (LIFE_MS, LIFE_MS, LIFE_MS, LIFE_MS, 300_000, 20_000, 5_000)
    waits_ms: tuple[int, ...] = (0, 0, 0, 0, 500, 4_000)  #: before an event can be had
    leases_ms: tuple[int, ...] = (2_000, 5_000, 15_000, 30_000)
    blocks_ms: tuple[int, ...] = (0, 0, 500, 3_000, 8_000)
    counts: tuple[int, ...] = (0, 0, 0, 0, 0, 1, 3, 10)  #: COUNT; 0 = not said
    together: float = 0.3  #: acknowledges all that it has in one QACK
    noblock: float = 0.05
    flushes: float = 0.01
    returns: float = 0.06
    late: float = 0.06  #: a consumer acknowledges after its deadline
    notifies: float = 0.1
    looks: float = 0.05


#: Who takes what is left, and is never late.
_DILIGENT: Final[dict[str, Any]] = {
    "dies": 0.0, "returns": 0.0, "late": 0.0, "acks_elsewhere": 0.0, "notifies": 0.0, "looks": 0.0, "work_ms": 20,
    "blocks_ms": (0, 500), "counts": (0, 3, 30), "together": 0.8,
}  # fmt: skip


def _seconds(ms: int) -> bytes:
    return b"%d.%03d" % divmod(ms, 1_000)


class LogProducer(Actor):
    """Adds some events, one after the other."""

    checker: LogChecker
    load: LogLoad

    def __init__(
        self, servers: "list[SimServer]", checker: LogChecker, load: LogLoad, name: str, rng: Random, *, count: int
    ) -> None:
        super().__init__(servers, checker, load, name, rng)
        self._left = count
        self._request: Request | None = None
        self._flush: Flush | None = None

    def go_on(self) -> None:
        """Add the next event."""
        connection = self.connect()
        if connection is None:
            self.plan(RECONNECT_MS)
        elif not self._left:
            self.end()
        elif self.rng.random() < self.load.flushes:
            self._flush = self.checker.flushing(SCRATCH, connection.server.number, self.events.now)
            connection.server.command(connection, [b"QFLUSH", SCRATCH])
        else:
            self._left -= 1
            self._request = request = self._draw(connection.server)
            self.checker.asked(request)
            connection.server.command(connection, self._words(request))

    def _draw(self, server: "SimServer") -> Request:
        rng, load = self.rng, self.load
        number = self.checker.next_number()
        life_ms = rng.choice(load.lives_ms)
        replicate = 0 if rng.random() < load.by_default else min(rng.choice(load.replicate), len(self.servers))
        return Request(
            number, rng.choice(QUEUES), body_of(number, rng.choice(load.sizes)), replicate, RETRY_NEVER_MS, life_ms,
            rng.choice(load.waits_ms), server.number, self.name, self.events.now,
        )  # fmt: skip

    def _words(self, request: Request) -> list[bytes]:
        words = [b"QADD", request.queue, _seconds(request.ttl_ms), request.body]
        if request.replicate:
            words += [b"REPLICATE", b"%d" % request.replicate]
        if request.delay_ms:
            words += [b"DELAY", _seconds(request.delay_ms)]
        if self.rng.random() < self.load.noblock:
            words.append(b"NOBLOCK")
        return words

    def heard(self, connection: Connection, value: Any) -> None:
        """Note what became of it, and think."""
        now = self.events.now
        request, self._request = self._request, None
        flush, self._flush = self._flush, None
        if isinstance(value, CommandError):
            self.checker.failed(b"QADD" if flush is None else b"QFLUSH", value, now)
            if request is not None:
                self.checker.refused(request.number)
        elif flush is not None:
            self.checker.flushed(flush, now)
        elif request is not None and not isinstance(value, Status):
            self.checker.answered(request.number, value, now, holders_of(connection.server, value))
        self.plan(self.rng.randint(0, self.load.think_ms))

    def disconnected(self, connection: Connection) -> None:
        """Nobody knows whether the event is there."""
        self._request = self._flush = None
        super().disconnected(connection)


class LogConsumer(Taker[bytes]):
    """Takes events as a member of some groups, of one at a time, and acknowledges them."""

    checker: LogChecker
    load: LogLoad

    def __init__(self, servers: "list[SimServer]", checker: LogChecker, load: LogLoad, name: str, rng: Random) -> None:
        super().__init__(servers, checker, load, name, rng)
        self.groups: tuple[bytes, ...] = WORKING
        self._said = b""  #: the command that it waits for the answer to
        self._asked_at = 0
        self._told = b""  #: a queue that has something, as QNOTIFY said
        self._queue = QUEUES[0]  #: that it took from last
        self._group = b""  #: for which it did
        self._lease_ms = 0
        self._acks: list[Ack] = []

    def retire(self) -> None:
        """Take no more, and end when what it asked for has come and is done."""
        self._retires = True
        if not self._said and not self._is_busy:
            self.end()

    def _say(self, connection: Connection, *words: bytes) -> None:
        self._said = words[0]
        self._asked_at = self.events.now
        connection.server.command(connection, list(words))

    # Taking.

    def _ask(self, connection: Connection) -> None:
        rng, load = self.rng, self.load
        if self._told:
            self._queue, self._told = self._told, b""
            self._get(connection)
            return
        self._group = rng.choice(self.groups)
        draw = rng.random()
        if draw < load.looks:
            self._say(connection, b"QSTATUS")
        elif draw < load.looks + load.notifies:
            queues = rng.sample(QUEUES, rng.randint(1, len(QUEUES)))
            self._say(connection, b"QNOTIFY", self._group, _seconds(rng.choice(load.blocks_ms)), *queues)
        else:
            self._queue = rng.choice(QUEUES)
            self._get(connection)

    def _get(self, connection: Connection) -> None:
        rng, load = self.rng, self.load
        words: list[bytes] = []
        if self._group in (ONCE, STRICT):
            self._lease_ms = 0
            words = [rng.choice((b"EX", b"DEADLINE")), b"0"]
        elif rng.random() < 0.15:
            self._lease_ms = LEASE_MS
        else:
            self._lease_ms = rng.choice(load.leases_ms)
            words = [rng.choice((b"EX", b"DEADLINE")), _seconds(self._lease_ms)]
        if self._group == STRICT:
            words.append(b"STRICT")
        block_ms = rng.choice(load.blocks_ms)
        if block_ms:
            words += [b"BLOCK", _seconds(block_ms)]
        count = rng.choice(load.counts)
        if count:
            words += [b"COUNT", b"%d" % count]
        self._say(connection, b"QGET", self._queue, self._group, *words)

    # Hearing.

    def heard(self, connection: Connection, value: Any) -> None:
        """Work on what came, or note that it is done."""
        said, self._said = self._said, b""
        acks, self._acks = self._acks, []
        done, self._acking = self._acking, []
        now = self.events.now
        if isinstance(value, CommandError):
            self.checker.failed(said, value, now)
            if self.home is None:
                connection.close()
        elif said == b"QACK":
            orphans = {event_id for event_id, _ in connection.server.node.settling.orphans}
            self.checker.acked(done, self._group, acks, value, now, orphans=orphans)
        elif said == b"QGROUP":
            if value == len(done):
                self.checker.given_back(done, self._group, now)
        elif said == b"QSTATUS":
            self._count(connection, value)
        elif said == b"QNOTIFY":
            self._told = value or b""
        elif said == b"QGET":
            self._take(connection, value)
            return
        self.plan(self.rng.randint(0, 50))

    def _count(self, connection: Connection, rows: list[Any]) -> None:
        for queue, groups in rows:
            if queue in QUEUES:
                for group, figures in zip(groups[::2], groups[1::2], strict=True):
                    values = dict(zip(figures[::2], figures[1::2], strict=True))
                    self.checker.figures(connection.server.number, queue, group, values, self.events.now)

    def _take(self, connection: Connection, value: Any) -> None:
        rng, load, now = self.rng, self.load, self.events.now
        if not value:
            waited = now > self._asked_at + 100
            self.checker.nothing(self._queue, self._group, self._asked_at, now, waited=waited)
            if self.home is None and rng.random() < 0.3:
                connection.close()
            self.plan(rng.randint(50, 500))
            return
        for event_id, body in [value] if isinstance(value[0], bytes) else value:
            self.events.note(event_id)
            hold = Hold(self._group, self.name, connection.server.number, now, self._lease_ms)
            self.checker.delivered(event_id, self._queue, body, hold)
            if self._lease_ms:
                self._held.append(event_id)
        is_late = self._lease_ms <= 5_000 and rng.random() < load.late
        self.plan(self._lease_ms + rng.randint(1, 3_000) if is_late else rng.randint(0, load.work_ms))

    def _finish(self, connection: Connection) -> None:
        """Say what became of what is in its hands."""
        rng, load = self.rng, self.load
        draw = rng.random()
        if draw < load.dies:
            self._held.clear()
            connection.close()
            self.plan(rng.randint(100, 5_000))
            return
        if draw < load.dies + load.returns:
            self._acking, self._held = self._held, []
            self.checker.given_up(self._acking, self._group, self.events.now)
            self._say(connection, b"QGROUP", b"RETURN", self._queue, self._group, *self._acking)
            return
        if self.home is None and rng.random() < load.acks_elsewhere:
            connection.close()
            other = self.connect()
            if other is None:
                self.plan(RECONNECT_MS)
                return
            connection = other
        count = len(self._held) if rng.random() < load.together else 1
        self._acking, self._held = self._held[:count], self._held[count:]
        self._acks = self.checker.acking(self._acking, self._group, self.name, self.events.now)
        self._say(connection, b"QACK", self._queue, self._group, *self._acking)

    def disconnected(self, connection: Connection) -> None:
        """Its connection is gone; what it had comes to others at its deadline."""
        if connection is self._connection:
            self._held, self._acking, self._acks = [], [], []
            self._said = self._told = b""
        super().disconnected(connection)


class LogLife:
    """Those who use logs during one age of a story, and what they saw."""

    def __init__(
        self, servers: "list[SimServer]", load: LogLoad, rules: LogRules, seed: int, name: Callable[[str], str]
    ) -> None:
        """Take the nodes, what clients do, what must be so, the seed, and what gives names to clients."""
        self.checker = LogChecker(rules, acking=(*ACKING, LATE), once=(ONCE, STRICT), strict=STRICT)
        self._servers = servers
        self._load = load
        self._seed = seed
        self._name = name
        self._producers: list[LogProducer] = []
        self._consumers: list[LogConsumer] = []
        #: What each node counts that is not done: {node: {queue and group: events}}.
        self._undone: dict[int, dict[str, int]] = {}
        self._answers: dict[int, dict[str, int]] = {}  #: the same, as it comes in

    @property
    def answered(self) -> int:
        """Events that were promised."""
        return sum(request.is_promised for request in self.checker.requests.values())

    # Phases.

    def engage(self, count: int) -> None:
        """Let consumers begin who do all that consumers do."""
        for _ in range(count):
            self._engage(self._load, (), None)

    def _engage(self, load: LogLoad, groups: tuple[bytes, ...], home: "SimServer | None") -> None:
        name = self._name("log consumer")
        rng = generator(f"{self._seed} {name}")
        consumer = LogConsumer(self._servers, self.checker, load, name, rng)
        consumer.groups = groups or tuple(rng.sample(WORKING, rng.randint(1, 3)))
        consumer.home = home
        self._consumers.append(consumer)
        consumer.plan(rng.randint(1, 2_000))

    def add(self, producers: int, jobs: int) -> None:
        """Let some producers begin, each of which adds so many events on average."""
        for _ in range(producers):
            name = self._name("log producer")
            rng = generator(f"{self._seed} {name}")
            count = rng.randint(1, 2 * jobs)
            producer = LogProducer(self._servers, self.checker, self._load, name, rng, count=count)
            self._producers.append(producer)
            producer.plan(rng.randint(1, 3_000))

    def drain(self, at: int) -> None:
        """After the heal: let those who are there go home, and each group have a consumer on every node."""
        self.checker.healed(at)
        for consumer in self._consumers:
            consumer.retire()
        diligent = attrs.evolve(self._load, **_DILIGENT)
        for server in self._servers:
            for group in GROUPS:
                self._engage(diligent, (group,), server)

    def is_drained(self) -> bool:
        """Tell whether every group is done with every event; nodes are asked, and answer by the next time.

        What its producer was refused, or never heard of, may be on some node all the same, and is not waited for.
        """
        undone, self._undone, self._answers = self._answers, self._answers, {}
        for server in self._servers:
            asker = Operator(lambda rows, node=server.number: self._note_figures(node, rows))  # type: ignore[misc]
            server.command(asker, [b"QSTATUS", *QUEUES, b"GROUPS", *GROUPS])
        return (
            all(producer.is_over for producer in self._producers)
            and len(undone) == len(self._servers)
            and not any(undone.values())
            and not self.checker.missing()
        )

    def _note_figures(self, node: int, rows: list[Any]) -> None:
        undone: dict[str, int] = {}
        for queue, groups in rows:
            for group, figures in zip(groups[::2], groups[1::2], strict=True):
                values = dict(zip(figures[::2], figures[1::2], strict=True))
                count = values[b"total"] - values[b"done"]
                if count > self.checker.unpromised(queue):
                    undone[f"{queue.decode()} {group.decode()}"] = count
        self._answers[node] = undone

    def end(self) -> None:
        """Let everybody go home."""
        actors: Iterable[Actor] = (*self._producers, *self._consumers)
        for actor in actors:
            actor.end()

    def wrong(self) -> list[str]:
        """What is wrong so far."""
        late = [f"{producer.name} never ended" for producer in self._producers if not producer.is_over]
        undone = [f"node {node} counts as not done: {counts}" for node, counts in self._undone.items() if counts]
        return [*self.checker.verdict(), *late, *undone]
