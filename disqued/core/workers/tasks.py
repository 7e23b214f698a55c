"""Tasks and processes: what Worqr does with a queue.

    task       a work job; its body is the whole of it
    process    a task that somebody has, named ``<job id>:<attempt>``: the attempt tells this delivery from every other

    finish     the attempt that is current ---> done                                                       1
               one that no other node told of -> done: it is current, and the word of it is under way      1
               an older one, nobody has it ---> done                                                       2
               an older one, somebody has it -> done, and that one hears ``cancel``; refused when STRICT   2, or 0
               done before, or not known -----> nothing                                                    0

That the work was done is a fact, whoever did it and however late: it is better not to lose it than to have the work
done again.  A task that is cancelled or whose queue is deleted is done as well, so that neither a return nor a death
brings it back, on no node.

Unique tasks carry an alias made of their body.  It is there as long as their job is, and goes with it in whatever way
that ends.

Source: the Worqr README.
"""

from hashlib import sha256
from json import dumps
from typing import NamedTuple

from disqued.core.cluster.notifications import Notifications
from disqued.core.model import messages
from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_DROPPED,
    FLAG_HELD_ELSEWHERE,
    FLAG_LEASED,
    QUEUED,
    UNIQUE,
    WORK_SCOPE,
    Job,
    NamedJob,
    Unit,
    attempt_of,
    process_of,
)
from disqued.core.model.outbox import CANCEL, DELETE, DONE, RETURNED
from disqued.core.model.state import State
from disqued.core.model.unfinished import Parts
from disqued.core.model.worker import Worker
from disqued.core.work.acks import Acks
from disqued.core.work.requeueing import GIVEN_BACK, Requeueing
from disqued.core.workers.workers import Workers, readable
from disqued.errors import WrongType

RETRY_MS = 300_000  #: when a task comes again whose node is gone, by default

NOTHING_DONE = 0
WAS_CURRENT = 1
WAS_LATE = 2

TOLD_BYTES = 1 << 20  #: a larger body is left out of the event that tells that it is done
LOOKED_AT_ONCE = 5_000  #: tasks compared in one step, some milliseconds' work
CHANGED_AT_ONCE = 500  #: tasks that are done with in one step


class Process(NamedTuple):
    """The id of a process."""

    job_id: bytes
    attempt: int  #: 0 = whichever is the current one


def unique_alias(body: bytes) -> bytes:
    """The alias of a unique task: the same for the same body, and for no other."""
    return UNIQUE + sha256(body).digest()


class Tasks:
    """The machine behind WQ.FINISH, WQ.RETURN, WQ.CANCEL and WQ.DELETE."""

    __slots__ = ("_acks", "_events", "_queueing", "_requeueing", "_state", "_workers", "retry_ms", "unique_anywhere")

    def __init__(
        self, state: State, requeueing: Requeueing, acks: Acks, workers: Workers, events: Notifications
    ) -> None:
        self._state = state
        self._queueing = requeueing.queueing
        self._requeueing = requeueing
        self._acks = acks
        self._workers = workers
        self._events = events
        self.retry_ms: int = RETRY_MS  #: wq-retry
        self.unique_anywhere: bool = False  #: wq-unique-scope is global

    # Processes.

    def current(self, process: Process) -> Job | None:
        """The job of a process that somebody has now; None when it is over."""
        job = self._state.jobs.get(process.job_id)
        if job is None or job.state != ACTIVE or not job.flags & (FLAG_LEASED | FLAG_HELD_ELSEWHERE):
            return None
        return job if process.attempt in (0, attempt_of(job)) else None

    def finish(self, process: Process, result: bytes | None, by: Worker | None, *, strict: bool = False) -> int:
        """Note that a process is done; returns one of NOTHING_DONE, WAS_CURRENT, WAS_LATE.

        `by`: who says so.  What this node does not know is passed on as ACKJOB passes it on.
        Raises WrongType (WRONGTYPE) for an event.
        """
        state = self._state
        job = state.jobs.get(process.job_id)
        if job is None or job.state == ACKED:
            if job is None and process.job_id not in state.custody.ended:
                self._acks.acknowledge(process.job_id)
            return NOTHING_DONE
        if job.options.kind:
            raise WrongType
        somebody_has_it = job.state == ACTIVE and job.flags & (FLAG_LEASED | FLAG_HELD_ELSEWHERE)
        is_current = self.current(process) is not None or (not somebody_has_it and self._is_news(job, process.attempt))
        outcome = WAS_CURRENT if is_current else WAS_LATE
        if outcome == WAS_LATE and somebody_has_it:
            if strict:
                return NOTHING_DONE
            self._events.tell(job.queue, CANCEL, process_of(job))
        worker = by or state.custody.bound.get(job)
        self._tell_done(job, b"" if worker is None else worker.id, result)
        self._acks.acknowledge(job.id)
        return outcome

    @staticmethod
    def _is_news(job: Job, attempt: int) -> bool:
        """Tell whether an attempt is another node's, which has not been heard to have given the job to anybody.

        What is queued again is announced, and counted here: an attempt that is not older than what is known is no
        late one.  Of what this node gave out itself it knows that it came back.
        """
        known = attempt_of(job)
        return job.state == ACTIVE and (attempt > known or (attempt == known and not job.flags & FLAG_DELIVERED))

    def _tell_done(self, job: Job, worker_id: bytes, result: bytes | None) -> None:
        if not self._state.demand.listeners:
            return
        content = {
            "workerId": readable(worker_id),
            "process": process_of(job).decode("ascii"),
            "task": readable(job.body) if len(job.body) <= TOLD_BYTES else None,
        }
        if result is not None:
            content["result"] = readable(result)
        self._events.tell(job.queue, DONE, dumps(content).encode("ascii"))

    def return_some(self, processes: list[Process], *, back: bool, delay_ms: int) -> int:
        """Queue the tasks of processes again, in their order; returns how many of them were current."""
        units: list[Unit] = [job for process in dict.fromkeys(processes) if (job := self.current(process)) is not None]
        units = sorted(dict.fromkeys(units), key=_place, reverse=not back)
        if not back and not delay_ms:
            return self._workers.leases.give_back(units, GIVEN_BACK, asked=True)
        for unit in units:
            self._put_elsewhere(unit.job, back=back, delay_ms=delay_ms)
        return len(units)

    def _put_elsewhere(self, job: Job, *, back: bool, delay_ms: int) -> None:
        """Give a task that somebody has another place in its queue, now or in a while."""
        state = self._state
        worker = state.custody.bound.get(job)
        if worker is not None:
            worker.returned += 1
        if job.flags & FLAG_DROPPED:
            self._acks.end_undone(job)
            return
        state.counters.tasks_given_back += 1
        job.order_key = state.numbers.next_ctime(state.wall) if back else state.numbers.next_front(state.wall)
        is_elsewhere = not job.flags & FLAG_LEASED
        if not delay_ms:
            self._requeueing.enqueue(job, asked=is_elsewhere)
            self._events.tell(job.queue, RETURNED, 1)
            return
        self._queueing.put_off(job, state.now + delay_ms)
        if is_elsewhere:
            # The home of the worker that has it lets go, and leaves it to this node for the time.
            job.additional_deliveries += 1
            state.tell(job, (messages.QUEUED, job.id, WORK_SCOPE, messages.ASKED))
            state.tell(job, (messages.WORKING, job.id, WORK_SCOPE, delay_ms))

    # Queues.

    def cancel(self, queue_name: bytes, body: bytes, *, kill: bool) -> Parts:
        """End all tasks of a queue with this body that wait; the parts return [how many, ids of processes with it].

        `kill`: those are done as well.
        """
        state = self._state
        queue = state.queues.by_name.get(queue_name)
        waiting: list[Unit] = [] if queue is None else queue.units.listed()
        having = [] if queue is None else list(queue.leased)
        cancelled = 0
        for at in range(0, len(waiting), LOOKED_AT_ONCE):
            if at:
                yield
            for unit in waiting[at : at + LOOKED_AT_ONCE]:
                if unit.body == body and unit.state == QUEUED and self._is_known(unit):
                    cancelled += self._acks.acknowledge(unit.id)
        processes: list[bytes] = []
        for at in range(0, len(having), LOOKED_AT_ONCE):
            if at or len(waiting) > LOOKED_AT_ONCE:
                yield
            for unit in having[at : at + LOOKED_AT_ONCE]:
                if unit.body == body and unit.flags & FLAG_LEASED and self._is_known(unit):
                    processes.append(process_of(unit))
                    if kill:
                        self._acks.acknowledge(unit.id)
        self._events.tell(queue_name, CANCEL, body)
        return [cancelled, *processes]

    def _is_known(self, unit: Unit) -> bool:
        return self._state.jobs.get(unit.id) is unit.job

    def delete(self, queue_name: bytes, *, keep: bool) -> Parts:
        """End all tasks of a queue that wait; the parts return how many.

        What somebody has is done when it would come back, unless it is to be kept.
        """
        state = self._state
        queue = state.queues.by_name.get(queue_name)
        if queue is not None and not keep:
            for unit in queue.leased:
                unit.flags |= FLAG_DROPPED
        waiting: list[Unit] = [] if queue is None else queue.units.listed()
        deleted = 0
        for at in range(0, len(waiting), CHANGED_AT_ONCE):
            if at:
                yield
            for unit in waiting[at : at + CHANGED_AT_ONCE]:
                if unit.state == QUEUED and self._is_known(unit):
                    deleted += self._acks.end_undone(unit.job)
                elif unit.flags & FLAG_LEASED and not keep:
                    # Somebody was faster.
                    unit.flags |= FLAG_DROPPED
        self._events.tell(queue_name, DELETE, b"")
        return deleted

    def first_unique(self, queue_name: bytes, alias: bytes, *, anywhere: bool) -> Job | None:
        """The unique task of this `unique_alias`, in its queue or anywhere; None when there is none."""
        state = self._state
        found: tuple[NamedJob, ...] = (
            state.aliases.unique.get(alias, ()) if anywhere else state.aliases.by_name(queue_name, alias)
        )
        return found[0] if found else None


def _place(unit: Unit) -> tuple[int, bytes]:
    return (unit.order_key, unit.id)
