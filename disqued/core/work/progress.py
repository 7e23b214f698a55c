"""Progress of jobs: what their consumers say of it, told to the other holders at most once a second for each job.

    WORKING PROGRESS --> the fate of the job here; FATE to the other holders, unless that was less than a second ago
    ... and again    --> the fate alone; when the second is over, FATE with the latest value

The latest value counts (`fate.merge`).  The journal has it with the next record of the job, or when the node stops in
order.  A node whose link opens receives it from the node whose consumer has the job (`deadletters`).
"""

from typing import Final

from disqued.core.model.fate import Word
from disqued.core.model.job import ACTIVE, QUEUED, Job
from disqued.core.model.machine import Acts, Machine, on
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.work.fates import Fates

TOLD_EVERY_MS: Final = 1_000


class _Pace(Timed):
    """When the next progress may be told."""

    __slots__ = ()

    def __init__(self) -> None:
        self.awake_at = 0


class Progress(Machine):
    """The machine behind WORKING PROGRESS."""

    __slots__ = ("_fates", "_pace", "_state", "_told")

    def __init__(self, state: State, fates: Fates) -> None:
        self._state = state
        self._fates = fates
        self._pace = _Pace()
        #: Jobs whose progress was told within the last second, oldest first: (when, whether there is a later one).
        self._told: dict[bytes, tuple[int, bool]] = {}

    def due_table(self) -> Acts:
        return on(_Pace, self.due)

    def note(self, job_id: bytes, value: bytes) -> None:
        """Note the progress of a job that is active or queued here; nothing happens otherwise."""
        state = self._state
        job = state.jobs.get(job_id)
        if job is None or job.options.kind or job.state not in (ACTIVE, QUEUED):
            return
        known = job.options.fate.progress
        # Later than what is known, though the clock of another node may be ahead.
        at = state.wall if known is None else max(state.wall, known.at + 1)
        self._fates.note_progress(job, Word(at, state.node_id, value))
        if job_id in self._told:
            self._told[job_id] = (self._told[job_id][0], True)
        else:
            self._tell(job)

    def _tell(self, job: Job) -> None:
        state = self._state
        state.tell_fate(job)
        self._told[job.id] = (state.now, False)
        if not self._pace.awake_at:
            state.schedule.add(self._pace, state.now + TOLD_EVERY_MS)

    def due(self, pace: _Pace) -> None:
        """Tell what came within a second that is over now."""
        state = self._state
        while self._told:
            job_id, (at, has_later) = next(iter(self._told.items()))
            if at + TOLD_EVERY_MS > state.now:
                state.schedule.add(pace, at + TOLD_EVERY_MS)
                return
            del self._told[job_id]
            job = state.jobs.get(job_id)
            if has_later and job is not None and job.state in (ACTIVE, QUEUED):
                self._tell(job)

    def flushing(self) -> None:
        """Everything is dropped."""
        self._told.clear()

    def flushed(self) -> None:
        """The schedule is empty."""
        self._pace.awake_at = 0
