"""How much memory the node's data takes, and what follows from it.

Counted, not measured: each job and each queue costs a fixed sum plus its bytes.  The sums are those of CPython 3.11,
where a job takes 413 bytes beside its body when many are added within a millisecond and so share their times, and 475
when none does.  What the interpreter and the connections take comes on top.

A job may be the only holder of the name of its queue: while it is delayed, as a copy, or when the queue is forgotten.
So the bytes of a long name count with each job, beyond `NAME_FREE`.  What has a fixed limit of its own is not counted:
names of registrations (`consumers`, `members`), wants of other nodes (`demand`), and ids of ended jobs (`endings`).

    used > 75 % of maxmemory   level 1   new jobs get no copy on this node
    used > 95 %                level 2   acked jobs, delivered at-most-once jobs and idle queues are evicted
    used > 100 %               level 3   commands that could add data, or names, are refused
    used > 110 %                         no other node is asked for jobs, though consumers wait

Source: the Disque README, "What happens when a node runs out of memory?".
"""

from typing import Final

from disqued.core.model.fate import cost_of_fate
from disqued.core.model.job import Job, NamedJob, StoredJob
from disqued.core.model.terms import cost_of_terms

JOB_COST: Final = 480  #: bytes of a job without its body: object, id, places in registry, queue and schedule
NAME_FREE: Final = 100  #: bytes of the name of its queue that a job does not count, as most share it with the queue
EVENT_COST: Final = 260  #: bytes that an event takes more than another job: the object, its place in the log
BOUND_COST: Final = 110  #: bytes of a job that a worker has: its places with the worker and in the table of all
NAME_COST: Final = 280  #: bytes of an alias without its text: the object, its key, its place in the table
OVERDRAFT_PART: Final = 10  #: the part of the limit by which names, and jobs that consumers wait for, may exceed it
PENDING_COST: Final = 600  #: bytes of a job that waits for copies, without the job
QUEUE_COST: Final = 900  #: bytes of a queue without its name
COUNTS_COST: Final = 240  #: bytes of the counts of the jobs of a queue, which may not be there
WORKER_COST: Final = 1_100  #: bytes of a worker without its id, its name and its queues
HOME_COST: Final = 400  #: bytes of what is known of a worker of another node, without its id
WORK_COST: Final = 130  #: bytes of a queue that a worker works on, without its name


def cost_of_job(job: Job | StoredJob) -> int:
    """Return the bytes that a job takes: what `State` adds up, without a call for each, as jobs come and go."""
    size = JOB_COST + len(job.body) + max(0, len(job.queue) - NAME_FREE)
    if isinstance(job, NamedJob | StoredJob) and job.alias:
        size += NAME_COST + len(job.alias)
    if isinstance(job, StoredJob):
        size += cost_of_terms(job.terms) + cost_of_fate(job.fate)
        return size + EVENT_COST if job.kind else size
    size += job.options.cost
    return size + EVENT_COST if job.options.kind else size


class Memory:
    """Bytes in use against the limit."""

    __slots__ = ("_evict_above", "_lasting", "_limit", "evicts", "low_mark", "peak", "used")

    def __init__(self, limit: int, *, evicts: bool) -> None:
        self.used: int = 0
        self._lasting: int = 0  #: of these: what a flush leaves
        self.peak: int = 0  #: most that was ever in use, as far as `level` was asked
        self.evicts: bool = evicts  #: False: nothing is evicted (policy noeviction)
        self.set_limit(limit)

    @property
    def limit(self) -> int:
        """`maxmemory`, in bytes."""
        return self._limit

    def set_limit(self, limit: int) -> None:
        """Change `maxmemory`; takes effect at once."""
        self._limit: int = limit
        self.low_mark: int = limit * 75 // 100  #: level 0 ends here
        self._evict_above: int = limit * 95 // 100

    def hold(self, size: int) -> None:
        """Count bytes, or fewer, of what a flush leaves: workers."""
        self.used += size
        self._lasting += size

    def flush(self) -> None:
        """Count that jobs and queues are gone."""
        self.used = self._lasting

    def has_room(self, size: int) -> bool:
        """Return whether names of so many bytes may be kept: a tenth over the limit at most, and not from there on."""
        return self.used <= self._limit and self.can_take(size)

    def can_take(self, size: int) -> bool:
        """Return whether so many bytes more are no more than a tenth over the limit."""
        return self.used + size <= self._limit + self._limit // OVERDRAFT_PART

    @property
    def is_overdrawn(self) -> bool:
        """True when so much more than the limit is in use that this node asks no other one for jobs."""
        return self.used > self._limit + self._limit // OVERDRAFT_PART

    @property
    def is_low(self) -> bool:
        """True from level 1 on."""
        return self.used > self.low_mark

    @property
    def level(self) -> int:
        """The rung of the ladder, 0 .. 3."""
        used = self.used
        if used > self.peak:
            self.peak = used
        if used <= self.low_mark:
            return 0
        if used <= self._evict_above:
            return 1
        return 2 if used <= self._limit else 3
