"""Producers who wait for results, consumers who give them, and what must be so of both.

    producer    ADDJOB RESULT --> WAITJOB on any node, again when the connection breaks or the job is unknown there
                         |------> now and then CANCEL, on any node, and WAITJOB
    consumer    GETJOB --> now and then WORKING PROGRESS --> ACKJOB id RESULT value, a value of its own

    one result    what WAITJOB answers is what a consumer gave for that job; after the heal all nodes have the same
    cancelled     no node that knows that a job is cancelled has it in a queue, or hands it out

Times are integer milliseconds.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from disqued.core.model.fate import accepted
from disqued.core.model.job import ACKED, FLAG_LEASED, QUEUED
from disqued.errors import CommandError
from disqued.testing.checker import Checker, Request
from disqued.testing.clients import RECONNECT_MS, Connection, Consumer, Producer, holders_of
from disqued.testing.pausewatch import PauseWatch

if TYPE_CHECKING:
    from disqued.testing.server import SimServer

KEPT_S: Final = 600  #: time that results are kept: longer than a producer may be without a node that knows
AGREE_MS: Final = 60_000  #: after the heal, in which all nodes have the same results
AGAIN_MS: Final = 2_000
CANCELS: Final = 0.15
OVER: Final = (b"acked", b"cancelled")


class CancelWatch(PauseWatch):
    """What one process has in its queues, and hands out, of jobs that it knows to be cancelled."""

    def over(self, step: Callable[[], None]) -> None:
        """Carry out a step, and look at the jobs that were cancelled before it."""
        state = self._state
        before = [job for job in state.jobs if job.options.fate.is_cancelled and not job.flags & FLAG_LEASED]
        super().over(step)
        for job in before:
            if state.jobs.get(job.id) is job and (job.state == QUEUED or job.flags & FLAG_LEASED):
                self.broken.append(b"%b, cancelled" % job.queue)


class ResultProducer(Producer):
    """Adds jobs one after the other, and waits for the result of each."""

    checker: Checker
    _job_id: bytes | None = None  #: what it waits for
    _cancels = False  #: it has sent CANCEL, and has no answer

    def _words(self, request: Request) -> list[bytes]:
        return [*super()._words(request), b"RESULT", b"%d" % KEPT_S]

    def go_on(self) -> None:
        """Wait for the last job, or add the next one."""
        connection = self.connect()
        if self._job_id is None or connection is None:
            super().go_on()
        else:
            timeout_ms = self.rng.choice((0, 0, 1_000, 5_000))
            connection.server.command(connection, [b"WAITJOB", b"%d" % timeout_ms, self._job_id])

    def _cancel(self, connection: Connection, job_id: bytes) -> None:
        self._cancels = True
        self.checker.ack_sent(job_id)
        connection.server.command(connection, [b"CANCEL", job_id])

    def heard(self, connection: Connection, value: Any) -> None:
        """Note what became of the job, and go on."""
        if self._requests:
            (request,) = self._requests
            self._requests = []
            if isinstance(value, CommandError):
                self.checker.refused(request.number)
            else:
                self._added(connection, request, value)
                return
        elif self._cancels:
            self._cancels = False
            self._cancelled(value)
        elif self._job_id is not None and not isinstance(value, CommandError):
            self._answered(value[0])
        self.plan(self.rng.randint(0, self.load.think_ms))

    def _added(self, connection: Connection, request: Request, job_id: bytes) -> None:
        self.checker.answered(request.number, job_id, self.events.now, holders_of(connection.server, job_id))
        self._job_id = job_id
        if self.rng.random() < 0.5:
            # What waits for it need not be the node that was asked to add it.
            connection.close()
        other = self.connect()
        if other is not None and self.rng.random() < CANCELS:
            self._cancel(other, job_id)
        else:
            self.plan(self.rng.randint(0, self.load.think_ms))

    def _cancelled(self, value: Any) -> None:
        assert self._job_id is not None
        if isinstance(value, CommandError):
            return
        self.events.note(value[0])
        if value[0] != b"unknown":
            self.checker.cancelled.add(self._job_id)
            self.checker.acked(self._job_id, self.events.now, known=False)

    def _answered(self, row: list[Any]) -> None:
        """Take the result; where the job is unknown, another node may know it, now or later."""
        job_id, state, result, _, _ = row
        self.events.note(state)
        assert job_id == self._job_id
        if state not in OVER:
            if self._connection is not None:
                self._connection.close()
            if state not in (b"unknown", b"pending"):
                self.checker.blame(f"one result: {job_id!r} is {state!r}, and nothing ended it so")
            self.plan(AGAIN_MS)
            return
        self._job_id = None
        if state == b"acked" and result not in self.checker.given.get(job_id, ()):
            self.checker.blame(f"one result: of {job_id!r} WAITJOB says {result!r}, which no consumer gave")
        if state == b"cancelled" and job_id not in self.checker.cancelled and not self._may_be_cancelled(job_id):
            self.checker.blame(f"cancelled: {job_id!r} is, and nobody said so")

    def _may_be_cancelled(self, job_id: bytes) -> bool:
        """Return whether CANCEL was sent, and perhaps never answered."""
        request = self.checker.known(job_id)
        return request is not None and request.ack_sent

    def disconnected(self, connection: Connection) -> None:
        """Ask again, elsewhere perhaps."""
        self._cancels = False
        if connection is self._connection:
            self._requests = []
            self.plan(RECONNECT_MS)


class ResultConsumer(Consumer):
    """Takes jobs, and gives each a result of its own."""

    def _settle(self, connection: Connection, draw: float) -> None:
        draw -= self.load.dies
        if draw < self.load.nacks + self.load.works_on:
            if draw < self.load.nacks:
                held, self._held = self._held, []
                connection.server.command(connection, [b"NACK", *held])
            else:
                connection.server.command(connection, [b"WORKING", self._held[0], b"PROGRESS", b"%f" % draw])
            return
        where = self._elsewhere(connection, self.load.acks_elsewhere)
        if where is None:
            return
        job_id = self._held.pop()
        self._acking = [job_id]
        result = b"%b at %d" % (self.name.encode(), self.events.now)
        self.checker.given.setdefault(job_id, set()).add(result)
        self.checker.ack_sent(job_id)
        where.server.command(where, [b"ACKJOB", job_id, b"RESULT", result])


def disagreements(servers: "list[SimServer]") -> list[str]:
    """Jobs of which nodes keep different results."""
    found: dict[bytes, set[tuple[bool, bytes | None]]] = {}
    for server in servers:
        for job in server.state.jobs:
            if job.state == ACKED and not job.is_dummy:
                result = accepted(job.options.fate)
                value = None if result is None else result.value
                found.setdefault(job.id, set()).add((job.options.fate.is_cancelled, value))
    return [
        f"one result: nodes keep {sorted(values, key=repr)} of {job_id!r}"
        for job_id, values in found.items()
        if len(values) > 1
    ]
