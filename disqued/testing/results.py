"""Producers who wait for results, consumers who give them, and what must be so of both.

    producer    ADDJOB RESULT --> WAITJOB on any node, again when the connection breaks or the job is unknown there
                         |------> now and then CANCEL or ACKJOB id RESULT value, on any node, and WAITJOB
    consumer    GETJOB --> now and then WORKING PROGRESS --> ACKJOB id RESULT value, a value of its own

    one result    what WAITJOB answers is what a consumer gave for that job; after the heal all nodes have the same
    tries         after the heal all nodes say the same tries, and as many as the checker allows (`Checker.over`);
                  WAITJOB says no fewer than the node that answers has delivered
    cancelled     no node that knows that a job is cancelled has it in a queue, or hands it out

Times are integer milliseconds.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from disqued.core.model.fate import accepted, is_undone
from disqued.core.model.job import ACKED, FLAG_LEASED, QUEUED
from disqued.core.work.standings import tries_told
from disqued.errors import CommandError
from disqued.testing.checker import Checker, Request
from disqued.testing.clients import RECONNECT_MS, Connection, Consumer, Operator, Producer, holders_of
from disqued.testing.pausewatch import PauseWatch

if TYPE_CHECKING:
    from disqued.testing.server import SimServer

KEPT_S: Final = 600  #: time that results are kept: longer than a producer may be without a node that knows
AGREE_MS: Final = 60_000  #: after the heal, in which all nodes have the same results
Ending = tuple[bytes, bytes | None, int]  #: what WAITJOB says of a job: state, result, tries
AGAIN_MS: Final = 2_000
CANCELS: Final = 0.15
ASKED_AT_ONCE: Final = 100
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
    _ends = False  #: it has sent CANCEL or ACKJOB, and has no answer

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

    def _end(self, connection: Connection, words: list[bytes]) -> None:
        """End the job, which perhaps nobody has had."""
        assert self._job_id is not None
        self._ends = True
        self.checker.ack_sent(self._job_id)
        connection.server.command(connection, words)

    def _acknowledge(self, connection: Connection, job_id: bytes) -> None:
        result = b"%b itself" % self.name.encode()
        self.checker.given.setdefault(job_id, set()).add(result)
        self._end(connection, [b"ACKJOB", job_id, b"RESULT", result])

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
        elif self._ends:
            self._ends = False
            self._ended(value)
        elif self._job_id is not None and not isinstance(value, CommandError):
            self._answered(connection, value[0])
        self.plan(self.rng.randint(0, self.load.think_ms))

    def _added(self, connection: Connection, request: Request, job_id: bytes) -> None:
        self.checker.answered(request.number, job_id, self.events.now, holders_of(connection.server, job_id))
        self._job_id = job_id
        if self.rng.random() < 0.5:
            # What waits for it need not be the node that was asked to add it.
            connection.close()
        other = self.connect()
        if other is not None and self.rng.random() < CANCELS:
            self._end(other, [b"CANCEL", job_id])
        elif other is not None and self.load.cancels and self.rng.random() < self.load.cancels:
            self._acknowledge(other, job_id)
        else:
            self.plan(self.rng.randint(0, self.load.think_ms))

    def _ended(self, value: Any) -> None:
        """Note what the node says to CANCEL, a word, or to ACKJOB, a number."""
        assert self._job_id is not None
        if isinstance(value, CommandError):
            return
        if isinstance(value, int):
            self.checker.acked(self._job_id, self.events.now, known=value == 1)
            return
        self.events.note(value[0])
        if value[0] != b"unknown":
            self.checker.cancelled.add(self._job_id)
            self.checker.acked(self._job_id, self.events.now, known=False)

    def _answered(self, connection: Connection, row: list[Any]) -> None:
        """Take the result; where the job is unknown, another node may know it, now or later."""
        job_id, state, result, tries, _ = row
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
        self.checker.over(job_id, tries, [connection.server.number])
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
        self._ends = False
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


class Outcomes:
    """How jobs ended whose outcomes nodes keep: what every node answers, held against the others and the checker."""

    def __init__(self, servers: "list[SimServer]", checker: Checker, *, fails: bool) -> None:
        """Hold nodes to each other; `fails`: messages may be lost, and with one the last try of a cancelled job."""
        self._servers = servers
        self._checker = checker
        self._fails = fails
        self._answers: dict[bytes, list[Ending]] = {}

    def ask(self) -> None:
        """Ask every node for all jobs whose outcomes are kept."""
        kept = {
            job.id for server in self._servers for job in server.state.jobs if job.state == ACKED and not job.is_dummy
        }
        job_ids = sorted(kept)
        for server in self._servers:
            for at in range(0, len(job_ids), ASKED_AT_ONCE):
                server.command(Operator(self._heard), [b"WAITJOB", b"%d" % AGAIN_MS, *job_ids[at : at + ASKED_AT_ONCE]])

    def _heard(self, rows: Any) -> None:
        for job_id, state, result, tries, _ in rows:
            self._answers.setdefault(job_id, []).append((state, result, tries))

    def wrong(self) -> list[str]:
        """List the jobs whose ends differ between nodes, kept or answered, once all have answered."""
        found = disagreements(self._servers, fails=self._fails)
        nodes = [server.number for server in self._servers]
        for job_id, answers in self._answers.items():
            ends = {(state, result, 0 if self._fails and state == b"cancelled" else tries)
                    for state, result, tries in answers}  # fmt: skip
            if len(ends) > 1 or len(answers) < len(nodes):
                found.append(f"one result: nodes answer {sorted(set(answers), key=repr)} of {job_id!r}")
            if not (self._fails and any(state == b"cancelled" for state, _, _ in answers)):
                self._checker.over(job_id, max(tries for _, _, tries in answers), nodes)
        return found


def disagreements(servers: "list[SimServer]", *, fails: bool) -> list[str]:
    """List the jobs whose results or tries differ between nodes; tries of cancelled ones only where nothing fails."""
    found: dict[bytes, set[tuple[bool, bytes | None, int]]] = {}
    for server in servers:
        for job in server.state.jobs:
            if job.state == ACKED and not job.is_dummy:
                result = accepted(job.options.fate)
                value = None if result is None else result.value
                tries = 0 if fails and is_undone(job.options.fate) else tries_told(job)
                found.setdefault(job.id, set()).add((job.options.fate.is_cancelled, value, tries))
    return [
        f"one result: nodes keep {sorted(values, key=repr)} of {job_id!r}"
        for job_id, values in found.items()
        if len(values) > 1
    ]
