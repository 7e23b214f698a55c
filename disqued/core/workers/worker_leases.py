"""The leases of workers: what a worker takes, and what comes back from it.

What a worker takes is a lease as any other (`queue.leased`), which ends in any of the ways in which leases end:
`state.end_lease` takes it off its worker.  But it does not end by its retry period while the worker lives: at most
every third of the shortest retry period among them all its leases are renewed at once, and other nodes that hold these
jobs hear so in as few messages as possible.  So a task may take as long as it likes, and one whose whole node
disappears comes again after a retry period at the latest.

    worker.leases     {unit: since}                 what comes back with it
    custody.bound     {job: worker}                 the same the other way round; an event of a group knows it itself

What comes back together keeps its order, and all of it is served before what waits: it is queued from the last to the
first, each in front of all.  A worker that has very much is dealt with bit by bit.

What was taken for a time of the fetch's own (QRPOP EX, QGET EX) comes back at the end of that, too, if it is the first.

Units that nobody gets a second time (retry 0) are not bound to anybody.

Times are integer milliseconds.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TypeVar

from disqued.core.cluster.notifications import Notifications
from disqued.core.model.groups import EntryUnit
from disqued.core.model.job import ACTIVE, FLAG_LEASED, RETRY_NEVER_MS, WORK_SCOPE, Job, Unit, attempt_of
from disqued.core.model.memory import BOUND_COST
from disqued.core.model.outbox import RETURNED, UNIT_LEASED
from disqued.core.model.state import State
from disqued.core.model.unfinished import Parts, QuietParts
from disqued.core.model.worker import Worker
from disqued.core.work.requeueing import Requeueing
from disqued.core.workers.announcements import tell_leases

LEASES_AT_ONCE = 500  #: units that come back, or are renewed, in one step: some milliseconds' work

AnyUnit = TypeVar("AnyUnit", bound=Unit)
_place = attrgetter("order_key", "id")


class WorkerLeases:
    """What the workers of this node have."""

    __slots__ = ("_events", "_requeueing", "_return_entry", "_state")

    def __init__(
        self, state: State, requeueing: Requeueing, events: Notifications, return_entry: Callable[[EntryUnit], bool]
    ) -> None:
        """`return_entry` returns what a worker has of a stream to its group, and says whether that was possible."""
        self._state = state
        self._requeueing = requeueing
        self._events = events
        self._return_entry = return_entry

    def holder_of(self, unit: Unit) -> Worker | None:
        """Return the worker of this node that holds a unit; None when none does."""
        return unit.worker if isinstance(unit, EntryUnit) else self._state.custody.bound.get(unit)

    def bind(self, worker: Worker, units: Iterable[Unit]) -> None:
        """Let jobs come back when a worker dies that has just taken them; `entrydelivery` binds entries."""
        taken: list[Job] = []
        for unit in units:
            worker.started += 1
            if isinstance(unit, Job) and unit.options.retry_ms:
                self.hold(worker, unit, self._state.now)
                taken.append(unit)
        if taken:
            wake(self._state, worker)
            tell_leases(self._state, worker, taken)

    def hold(self, worker: Worker, job: Job, since: int) -> None:
        """Enter a job that a worker has, and that is leased, and write it down."""
        state = self._state
        self._keep(worker, job, since)
        # What was taken for a time of the fetch's own is queued at once after a crash.
        if state.journaling and job not in state.custody.spans:
            state.outbox.journal.append((UNIT_LEASED, job.id, WORK_SCOPE, attempt_of(job), worker.id))

    def restore(self, worker: Worker, job: Job) -> None:
        """Give a worker again what it had before the node was started again."""
        # First whose it is, which the record of the lease says, too.
        self._keep(worker, job, self._state.now)
        if not job.flags & FLAG_LEASED:
            self._requeueing.queueing.leases.begin(job, self._state.now)
        wake(self._state, worker)

    def _keep(self, worker: Worker, job: Job, since: int) -> None:
        """Enter a job that a worker has, and that is leased."""
        if job not in self._state.custody.bound:
            self._state.memory.used += BOUND_COST
        self._state.custody.bound[job] = worker
        worker.leases[job] = since
        retry_ms = job.options.retry_ms
        if retry_ms < RETRY_NEVER_MS and job not in self._state.custody.spans:
            renew_ms = max(1, retry_ms // 3)
            if not worker.renew_at or renew_ms < worker.renew_ms:
                worker.renew_ms = renew_ms
                worker.renew_at = self._state.now + renew_ms

    def renew(self, worker: Worker) -> None:
        """Put off the retry timers of all that a worker has."""
        if not worker.leases:
            worker.renew_at = worker.renew_ms = 0
            return
        worker.renew_at = self._state.now + worker.renew_ms
        self._state.begin_work(self._renew_parts(worker, jobs_of(worker.leases)))

    def _renew_parts(self, worker: Worker, jobs: list[Job]) -> QuietParts:
        state = self._state
        for at in range(0, len(jobs), LEASES_AT_ONCE):
            if at:
                yield
            kept = [job for job in jobs[at : at + LEASES_AT_ONCE] if state.custody.bound.get(job) is worker]
            for job in kept:
                retry_ms = job.options.retry_ms
                if retry_ms < RETRY_NEVER_MS and job not in state.custody.spans:
                    job.requeue_at = state.now + retry_ms
            tell_leases(self._state, worker, kept)

    # The way back.

    def return_all(self, worker: Worker, units: list[Unit], why: bytes) -> Parts:
        """Queue units again that a worker has, in front of all and in their order; returns how many."""
        units = last_first(units)
        returned = 0
        for at in range(0, len(units), LEASES_AT_ONCE):
            if at:
                yield
            some = [unit for unit in units[at : at + LEASES_AT_ONCE] if unit in worker.leases]
            returned += self.give_back(some, why)
        return returned

    def give_back(self, units: Iterable[Unit], why: bytes, *, asked: bool = False) -> int:
        """Queue units again that consumers have, each in front of the one before; returns how many were queued.

        `why`: how their tries failed.  `asked`: somebody gives them back, so that another node whose worker has them
        does not keep them.
        """
        state = self._state
        counts: dict[bytes, int] = {}
        for unit in units:
            worker = self.holder_of(unit)
            if self._put_in_front(unit, why, asked=asked and not unit.flags & FLAG_LEASED):
                counts[unit.queue] = counts.get(unit.queue, 0) + 1
                if worker is not None:
                    worker.returned += 1
        for queue, count in counts.items():
            self._events.tell(queue, RETURNED, count)
        returned = sum(counts.values())
        state.counters.tasks_given_back += returned
        return returned

    def _put_in_front(self, unit: Unit, why: bytes, *, asked: bool) -> bool:
        if isinstance(unit, EntryUnit):
            return self._return_entry(unit)
        if not isinstance(unit, Job) or unit.state != ACTIVE:
            return False
        return self._requeueing.enqueue(unit, asked=asked, front=True, why=why)


def wake(state: State, worker: Worker) -> None:
    """Look at a worker when its life may be over, or its leases are to be renewed."""
    at = worker.alive_at + worker.ttl_ms if worker.ttl_ms else 0
    if worker.renew_at and (not at or worker.renew_at < at):
        at = worker.renew_at
    if at and not 0 < worker.awake_at <= at:
        state.schedule.move(worker, max(at, state.now + 1))


def jobs_of(units: Iterable[Unit]) -> list[Job]:
    """The jobs among units."""
    return [unit for unit in units if isinstance(unit, Job)]


def last_first(units: Iterable[AnyUnit]) -> list[AnyUnit]:
    """The order in which units are put in front of each other so that the oldest is served first."""
    return sorted(units, key=_place, reverse=True)
