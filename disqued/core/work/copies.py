"""A job that comes from another node, made one of this node's.

What came is a `StoredJob` whose deadlines are what was left of them.  What remains is never less than zero nor more
than the job was given, so that a node that is wrong moves a deadline, but keeps no job for ever.

An at-most-once job moves from node to node and exists on one at a time.  A message that brings it may come twice; the
second must not bring it back, though the job itself may: it counts its moves, and how far it had come when it was here
is remembered for a while.

Times are integer milliseconds.  Source: Disque, src/job.c (deserialization), src/cluster.c.
"""

from disqued.core.model.groups import new_job
from disqued.core.model.job import (
    DEAD,
    FLAG_COPY,
    FLAG_DROPPED,
    FLAG_PUT_OFF,
    FLAG_QUEUED_BEFORE,
    INTO_DEAD,
    ORPHAN_MS,
    RETRY_NEVER_MS,
    Job,
    JobOptions,
    StoredJob,
    forbidden,
)
from disqued.core.model.state import State
from disqued.core.model.terms import NO_TERMS

SPREAD_MS = 500  #: holders of a job do not all do a thing at the same time: each waits for up to so long
ONCE_KEPT = 10_000  #: ids of at-most-once jobs that are remembered after they came


def delay_left(left_ms: int, flags: int, delay_ms: int, retry_ms: int) -> int:
    """Tell how much of a delay is left when so much is left of a timer, in milliseconds; 0 = it is over.

    A job that was queued before has a timer for its retry period, and some more.  Only that of a copy which waits for
    the delay as well, so that it is the last to queue the job, has more left than that.
    """
    if not delay_ms or left_ms <= 0:
        return 0
    if not flags & FLAG_QUEUED_BEFORE:
        return min(left_ms, delay_ms)
    if 0 < retry_ms < RETRY_NEVER_MS and left_ms > retry_ms + SPREAD_MS:
        return min(left_ms - retry_ms, delay_ms)
    return 0


class Copies:
    """Makes the jobs of other nodes ours."""

    __slots__ = ("_once", "_options", "_state")

    def __init__(self, state: State) -> None:
        self._state = state
        #: At-most-once jobs that came, and how often each had moved by then; who came last is last.
        self._once: dict[bytes, int] = {}
        self._options: JobOptions | None = None  #: of the last job; the next one's are the same, nearly always

    def make(self, stored: StoredJob) -> Job | None:
        """Make a job that is not known here: active, not registered, to be queued by nobody but its timer.

        None when its time is over, when it has ended here, or when it is an at-most-once job that was here before.  A
        result is taken all the same: no consumer can get it.
        """
        state = self._state
        longest_ms = stored.ttl_ms if stored.terms is NO_TERMS else stored.ttl_ms + stored.terms.stay_ms
        left_ms = min(stored.expires, longest_ms)
        if (left_ms <= 0 or (stored.id in state.custody.ended if stored.retry_ms else self.came_before(stored))) and (
            left_ms <= 0 or stored.fate.result is None
        ):
            return None
        state.numbers.stamp_behind(stored.ctime, state.wall)
        options = self._options_of(stored)
        queue = state.queues.by_name.get(stored.queue)
        name = stored.queue if queue is None else queue.name
        job = new_job(stored.id, name, stored.body, stored.ctime, options, alias=stored.alias)
        job.expires_at = state.now + left_ms
        job.order_key = stored.order_key
        job.nacks = stored.nacks
        job.additional_deliveries = stored.additional_deliveries
        job.flags = stored.flags & FLAG_QUEUED_BEFORE | FLAG_COPY
        if stored.fate.is_cancelled:
            job.flags |= FLAG_DROPPED
        job.requeue_at = self._requeue_at(stored, job)
        return job

    def _options_of(self, stored: StoredJob) -> JobOptions:
        """The shared options object for a job."""
        last = self._options
        if (
            last is not None
            and last.ttl_ms == stored.ttl_ms and last.retry_ms == stored.retry_ms and last.delay_ms == stored.delay_ms
            and last.replicate == stored.replicate and last.kind == stored.kind
            and last.terms == stored.terms and last.fate is stored.fate
        ):  # fmt: skip
            return last
        last = self._options = self._state.shared.options(
            stored.ttl_ms, stored.retry_ms, stored.delay_ms, stored.replicate, stored.kind,
            terms=stored.terms, fate=stored.fate,
        )  # fmt: skip
        return last

    def _requeue_at(self, stored: StoredJob, job: Job) -> int:
        """When a copy is queued that nobody queues before: a retry period after the first queueing, at the earliest.

        Returns 0 for one that is delivered at most once: its origin tells one of the nodes with a copy to queue it.
        """
        state = self._state
        delay_ms = delay_left(max(stored.requeue, 1), stored.flags, stored.delay_ms, stored.retry_ms)
        if job.options.is_rare:
            if stored.kind:
                return state.now + delay_ms if delay_ms else 0
            if stored.fate.is_dead:
                assert INTO_DEAD[job.state], forbidden(job.state, DEAD)
                job.state = DEAD
                return 0
            if stored.flags & FLAG_PUT_OFF:
                job.flags |= FLAG_PUT_OFF
                return min(state.now + stored.requeue + state.numbers.spread(SPREAD_MS), job.expires_at)
        if stored.retry_ms:
            probe_ms = ORPHAN_MS if stored.retry_ms == RETRY_NEVER_MS else stored.retry_ms
            return state.now + delay_ms + probe_ms + state.numbers.spread(SPREAD_MS)
        return 0

    def came_before(self, stored: StoredJob) -> bool:
        """Tell whether an at-most-once job came with this move, or a later one, before; it has come now."""
        once = self._once
        if stored.additional_deliveries <= once.get(stored.id, -1):
            return True
        once.pop(stored.id, None)
        if len(once) >= ONCE_KEPT:
            del once[next(iter(once))]
        once[stored.id] = stored.additional_deliveries
        return False

    def forget(self) -> None:
        """Everything is flushed: what comes now is new."""
        self._once.clear()
