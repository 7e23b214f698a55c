"""Clients of reliable lists and of okq in virtual time.

    producer    RQ.PUSH of a few, RQ.PUSHX, QLPUSH, QRPUSH, wait, think, and again
    consumer    RQ.POP, sometimes RQ.RECOVER or QRPOP --> work --> RQ.ACK or QACK --> again
                                                             |--> sometimes NACK, or death with elements in its hands

What nobody acknowledges is found by somebody's RQ.RECOVER, or it is an event whose time was set: nothing else brings it
back.  An element is never twice in one reply.  Times are integer milliseconds.
"""

from random import Random
from typing import TYPE_CHECKING, Any

from disqued.core.model.ids import is_job_id
from disqued.core.model.job import RETRY_NEVER_MS
from disqued.errors import CommandError
from disqued.testing.checker import Checker, Request, body_of
from disqued.testing.clients import LONG_TTL_S, Adder, Connection, Load, Taker, holders_of

if TYPE_CHECKING:
    from disqued.testing.server import SimServer

ELAPSED_MS = 20_000  #: after which a consumer is taken for dead
HELD_S = 15  #: time of a fetch of okq
Held = tuple[bytes, bytes, bytes]  #: queue, name, job id; the last is empty where it is not known


class ListProducer(Adder):
    """Pushes some elements, a few at a time."""

    def _add(self, connection: Connection) -> None:
        rng, load = self.rng, self.load
        queue = rng.choice(load.queues)
        is_event = rng.random() < 0.4
        count = 1 if is_event else rng.choice((1, 1, 2, 4))
        replicate = min(rng.choice(load.replicate), len(self.servers)) if rng.random() < 0.6 else 0
        retry_ms = RETRY_NEVER_MS if is_event or rng.random() < 0.8 else 5_000
        requests = [self._drawn(queue, replicate, retry_ms, connection.server.number) for _ in range(count)]
        bodies = [request.body for request in requests]
        options = [b"REPLICATE", b"%d" % replicate] if replicate else []
        if is_event:
            words = [rng.choice((b"QLPUSH", b"QRPUSH")), queue, b"%d" % requests[0].number, *bodies, *options]
        elif retry_ms < RETRY_NEVER_MS:
            words = [b"RQ.PUSHX", queue, *options, b"RETRY", b"%d" % retry_ms, b"ELEMS", *bodies]
        else:
            words = [b"RQ.PUSHX", queue, *options, b"ELEMS", *bodies] if options else [b"RQ.PUSH", queue, *bodies]
        self._send(connection, requests, words)

    def _drawn(self, queue: bytes, replicate: int, retry_ms: int, node: int) -> Request:
        number = self.checker.next_number()
        return Request(
            number, queue, body_of(number, self.rng.choice(self.load.sizes)), replicate, retry_ms, LONG_TTL_S * 1_000,
            0, node, self.name, self.events.now,
        )  # fmt: skip

    def heard(self, connection: Connection, value: Any) -> None:
        """Note what became of them, and think."""
        requests, self._requests = self._requests, []
        if isinstance(value, CommandError):
            for request in requests:
                self.checker.refused(request.number)
        else:
            for request, job_id in zip(requests, value.job_ids, strict=True):
                self.checker.answered(request.number, job_id, self.events.now, holders_of(connection.server, job_id))
        self.plan(self.rng.randint(0, self.load.think_ms))


class ListConsumer(Taker[Held]):
    """Pops, recovers and acknowledges, until it is told to end."""

    checker: Checker

    def __init__(self, servers: "list[SimServer]", checker: Checker, load: Load, name: str, rng: Random) -> None:
        super().__init__(servers, checker, load, name, rng)
        self._asked = ""  #: what it waits for the answer to
        self._queue = load.queues[0]  #: that it asked for last

    def retire(self) -> None:
        """Take no more, and end when what it has is done."""
        self._retires = True
        if not self._is_busy:
            self.end()

    def _say(self, connection: Connection, what: str, *words: bytes) -> None:
        self._asked = what
        connection.server.command(connection, list(words))

    def _ask(self, connection: Connection) -> None:
        rng = self.rng
        queues = rng.sample(self.load.queues, len(self.load.queues))
        self._queue = queues[0]
        count = b"%d" % rng.choice((1, 1, 3, 10))
        draw = rng.random()
        if draw < 0.35:
            words = [b"RQ.RECOVER", self._queue, count, b"%d" % rng.choice((ELAPSED_MS, ELAPSED_MS, 0))]
            self._say(connection, "recover", *words)
        elif draw < 0.5:
            self._say(connection, "event", b"QRPOP", self._queue, b"EX", b"%d" % HELD_S)
        else:
            block = b"%d" % rng.choice((0, 500, 3_000))
            self._say(connection, "pop", b"RQ.POP", b"COUNT", count, b"BLOCK", block, *queues)

    def heard(self, connection: Connection, value: Any) -> None:
        """Work on what came, or note that it is done."""
        asked, self._asked = self._asked, ""
        if asked in ("pop", "recover", "event"):
            self._take(connection, asked, value)
            self.plan(self.rng.randint(0, self.load.work_ms) if self._held else self.rng.randint(50, 500))
            return
        done, self._acking = self._acking, []
        if not isinstance(value, CommandError) and value:
            for _, name, job_id in done:
                if job_id and (value == 1 or name in value):
                    self.checker.acked(job_id, self.events.now, known=True)
        self.plan(self.rng.randint(0, 50))

    def _take(self, connection: Connection, asked: str, value: Any) -> None:
        if isinstance(value, CommandError) or not value:
            if self.home is None and self.rng.random() < 0.3:
                connection.close()
            return
        if asked == "pop":
            rows = [(row[0], row[1], row[2], row.job_id) for row in value]
        elif asked == "event":
            rows = [(self._queue, value[0], value[1], value.job_id)]
        else:
            rows = [(self._queue, name, body, self._id_of(name)) for name, body in value]
        if len({name for _, name, _, _ in rows}) < len(rows):
            self.checker.violations.append(f"an element twice in one reply: {rows!r}")
        for queue, name, body, job_id in rows:
            self.events.note(name)
            if job_id:
                self.checker.delivered(job_id, queue, body, self.events.now, connection.server.number)
            self._held.append((queue, name, job_id))

    def _id_of(self, name: bytes) -> bytes:
        """The id of the job that a list calls so, as far as a node knows it."""
        if is_job_id(name):
            return name
        known = [server.state.aliases.by_name(self._queue, b"r" + name) for server in self.servers if server.is_up]
        ids = {job.id for jobs in known for job in jobs}
        return ids.pop() if len(ids) == 1 else b""

    def _settle(self, connection: Connection, draw: float) -> None:
        load = self.load
        held, self._held = self._held, []
        ids = [job_id for _, _, job_id in held if job_id]
        if draw < load.dies + load.nacks and ids:
            self._say(connection, "nack", b"NACK", *ids)
            return
        where = self._elsewhere(connection, self.load.acks_elsewhere)
        if where is None:
            return
        queue = held[0][0]
        self._acking = [one for one in held if one[0] == queue]
        self._held = [one for one in held if one[0] != queue]
        for _, _, job_id in self._acking:
            if job_id:
                self.checker.ack_sent(job_id)
        names = [name for _, name, _ in self._acking]
        if len(names) == 1 and self.rng.random() < 0.3 and self._acking[0][2]:
            self._say(where, "ack", b"QACK", queue, self._acking[0][2])
        else:
            self._say(where, "ack", b"RQ.ACK", queue, *names)

    def disconnected(self, connection: Connection) -> None:
        """What it had in its hands is found by whoever recovers."""
        self._held, self._acking = [], []
        self._asked = ""
        super().disconnected(connection)
