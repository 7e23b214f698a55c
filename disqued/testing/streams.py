"""Clients of streams in virtual time: producers, and groups of consumers (those that are workers: `streamworkers`).

    producer    QADD, sometimes NOBLOCK or MAXLEN, wait, think, and again; rarely QFLUSH of a queue that is there for
                that
    consumer    sometimes QNOTIFY or QSTATUS, then QGET as one of a group --> work --> QACK, here or elsewhere
                          |--> sometimes QGROUP RETURN, a QACK that comes too late, or death with events in its hands

    mail, bill  groups that acknowledge
    count, pay  groups that take events with EX 0, and with EX 0 STRICT
    again       a group that is started anew, or forgotten, now and then
    crew        a group whose consumers are live workers
    audit       a group that begins when all is well again, and is to get everything that is still alive

What is seen is told to a checker of its own.  Times are integer milliseconds.
"""

from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs

from disqued.core.model.job import RETRY_NEVER_MS
from disqued.errors import CommandError
from disqued.testing.checker import Request, body_of
from disqued.testing.clients import Adder, Connection, Load, Taker, holders_of
from disqued.testing.streamchecker import StreamChecker
from disqued.testing.streamrecords import Ack, Flush, Hold
from disqued.wire.replies import Status

if TYPE_CHECKING:
    from disqued.testing.server import SimServer

SCRATCH: Final = b"scratch"  #: the queue that is flushed
QUEUES: Final = (b"news", b"orders", SCRATCH)
ACKING: Final = (b"mail", b"bill")
ONCE: Final = b"count"
STRICT: Final = b"pay"
AGAIN: Final = b"again"
WORKING: Final = (*ACKING, ONCE, STRICT, AGAIN)
CREW: Final = b"crew"
LATE: Final = b"audit"
GROUPS: Final = (*WORKING, CREW, LATE)
LIFE_MS: Final = 1_200_000  #: of an event as a rule: longer than all that goes wrong, and short enough to be waited for
DRAIN_MS: Final = 300_000  #: in which all groups must be done after that
UNENDING_MS: Final = 600_000  #: a deadline that nobody waits for
LEASE_MS: Final = 30_000  #: where QGET says nothing


@attrs.frozen
class StreamLoad(Load):
    """What clients of streams do, in chances and choices, beside what all clients do."""

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
    caps: float = 0.05  #: says MAXLEN
    lengths: tuple[int, ...] = (1, 20, 60, 150)  #: and which
    crew_leases_ms: tuple[int, ...] = (2_000, 30_000)  #: EX of workers
    rests_ms: int = 15_000  #: between two beginnings of a group, at most


#: Who takes what is left, and is never late.
DILIGENT: Final[dict[str, Any]] = {
    "dies": 0.0, "returns": 0.0, "late": 0.0, "acks_elsewhere": 0.0, "notifies": 0.0, "looks": 0.0, "work_ms": 20,
    "blocks_ms": (0, 500), "counts": (0, 3, 30), "together": 0.8,
}  # fmt: skip


def seconds(ms: int) -> bytes:
    """A duration as streams want it: seconds and their thousandths."""
    return b"%d.%03d" % divmod(ms, 1_000)


class StreamProducer(Adder):
    """Adds some events, one after the other."""

    checker: StreamChecker
    load: StreamLoad

    def __init__(
        self, servers: "list[SimServer]", checker: StreamChecker, load: StreamLoad, name: str, rng: Random, *,
        count: int,
    ) -> None:  # fmt: skip
        super().__init__(servers, checker, load, name, rng, count=count)
        self._flush: Flush | None = None

    def _add(self, connection: Connection) -> None:
        """Add the next event, or flush a queue."""
        if self.rng.random() < self.load.flushes:
            self._flush = self.checker.flushes.begin(SCRATCH, connection.server.number, self.events.now)
            connection.server.command(connection, [b"QFLUSH", SCRATCH])
        else:
            request = self._draw(connection.server)
            words = self._words(request)
            if self.rng.random() < self.load.caps:
                maxlen = self.rng.choice(self.load.lengths)
                self.checker.caps[request.number] = maxlen
                words += [b"MAXLEN", b"%d" % maxlen]
            self._send(connection, [request], words)

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
        words = [b"QADD", request.queue, seconds(request.ttl_ms), request.body]
        if request.replicate:
            words += [b"REPLICATE", b"%d" % request.replicate]
        if request.delay_ms:
            words += [b"DELAY", seconds(request.delay_ms)]
        if self.rng.random() < self.load.noblock:
            words.append(b"NOBLOCK")
        return words

    def heard(self, connection: Connection, value: Any) -> None:
        """Note what became of it, and think."""
        now = self.events.now
        requests, self._requests = self._requests, []
        flush, self._flush = self._flush, None
        if isinstance(value, CommandError):
            for request in requests:
                self.checker.refused(request.number)
                if value.code == "MAXLEN":
                    self.checker.too_long(request, now)
            if value.code != "MAXLEN":
                self.checker.failed(b"QADD" if flush is None else b"QFLUSH", value, now)
        elif flush is not None:
            flush.answered_at = now
        elif not isinstance(value, Status):
            for request in requests:
                self.checker.answered(request.number, value, now, holders_of(connection.server, value))
        self.plan(self.rng.randint(0, self.load.think_ms))

    def disconnected(self, connection: Connection) -> None:
        """Nobody knows whether the event is there, or the queue was flushed."""
        self._flush = None
        super().disconnected(connection)


class StreamConsumer(Taker[bytes]):
    """Takes events as a member of some groups, of one at a time, and acknowledges them."""

    checker: StreamChecker
    load: StreamLoad

    def __init__(
        self, servers: "list[SimServer]", checker: StreamChecker, load: StreamLoad, name: str, rng: Random
    ) -> None:
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
            self._say(connection, b"QNOTIFY", self._group, seconds(rng.choice(load.blocks_ms)), *queues)
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
            words = [rng.choice((b"EX", b"DEADLINE")), seconds(self._lease_ms)]
        if self._group == STRICT:
            words.append(b"STRICT")
        block_ms = rng.choice(load.blocks_ms)
        if block_ms:
            words += [b"BLOCK", seconds(block_ms)]
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
            orphans = {event_id for event_id, _ in connection.server.node.reconciliation.orphans}
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

    def _settle(self, connection: Connection, draw: float) -> None:
        rng, load = self.rng, self.load
        if draw < load.dies + load.returns:
            self._acking, self._held = self._held, []
            self.checker.given_up(self._acking, self._group, self.events.now)
            self._say(connection, b"QGROUP", b"RETURN", self._queue, self._group, *self._acking)
            return
        where = self._elsewhere(connection, self.load.acks_elsewhere)
        if where is None:
            return
        count = len(self._held) if rng.random() < load.together else 1
        self._acking, self._held = self._held[:count], self._held[count:]
        self._acks = self.checker.acking(self._acking, self._group, self.name, self.events.now)
        self._say(where, b"QACK", self._queue, self._group, *self._acking)

    def disconnected(self, connection: Connection) -> None:
        """Its connection is gone; what it had comes to others at its deadline."""
        if connection is self._connection:
            self._held, self._acking, self._acks = [], [], []
            self._said = self._told = b""
        super().disconnected(connection)
