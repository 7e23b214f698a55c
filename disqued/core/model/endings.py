"""Endings: what a node remembers of jobs that it does not hold any more, by id.

    done, or given up       `add`     others held or brought it, or may: a late message must not bring it back
    ended some other way    `note`    expired, dead until its time was over, cancelled, deleted from this node, evicted
    has just left           `leave`   another node has it alone from now on, and it may not have arrived

`of` says how a job ended, on the scale of standings (`messages`); ``in`` whether a copy of it is refused.

A copy may still be under way, on a slow link or said twice, when all nodes that know of the job have agreed that it is
done, and have forgotten it.  A node that took that copy would deliver the job again, a retry period later.  A node that
has such a job all the same, and says so, learns that it is done.  Jobs that are delivered at most once are never
refused: they move from node to node, and may come again.

There is room for the last `KEPT` ids of a kind at least, twice as many at most.  The kinds are kept apart, so that the
end of a million times to live does not drive out the ids that keep copies away; and in the first, into which nearly
every acknowledgement of a job with copies goes, an id costs one entry of a set.

Times are integer milliseconds.
"""

from typing import Final

from disqued.core.model.job import ACKED, DEAD, KEYED, Job, NamedJob
from disqued.core.model.messages import ENDED, ENDED_DEAD, ENDED_EXPIRED, GONE, NOT_KNOWN, UNDER_WAY
from disqued.core.model.outbox import GONE_DELETED, GONE_EVICTED, GONE_EXPIRED, GONE_REFUSED

KEPT = 20_000  #: ids of a kind, some megabytes
UNDER_WAY_MS: Final = 100  #: for which a job that left may not have arrived
LEFT_KEPT: Final = 1_000
LEFT_BYTES: Final = 1 << 20  #: of the names of their queues and their keys together

HOW_BITS: Final = 4  #: of a number that says how a job ended, with its tries above: one of up to 15 takes no bytes
_HOW: Final = (1 << HOW_BITS) - 1
_NO_PLACE: Final = (b"", b"")
_OF_REASON: Final = {GONE_EXPIRED: ENDED_EXPIRED, GONE_DELETED: GONE, GONE_EVICTED: ENDED, GONE_REFUSED: GONE}


def ending_of(job: Job, reason: bytes) -> int:
    """Return how a job ends that is dropped for a reason that is not its acknowledgement (GONE_...)."""
    if job.state == ACKED:
        return ENDED
    return ENDED_DEAD if job.state == DEAD and reason == GONE_EXPIRED else _OF_REASON[reason]


class Endings:
    """How jobs ended here lately, and which have just left."""

    __slots__ = ("_before", "_ends", "_ends_before", "_lately", "_left", "_names", "_size")

    def __init__(self) -> None:
        self._lately: set[bytes] = set()
        self._before: set[bytes] = set()
        self._ends: dict[bytes, int] = {}
        self._ends_before: dict[bytes, int] = {}
        #: When a job left, and its queue and its key if it has one; oldest first.
        self._left: dict[bytes, tuple[int, tuple[bytes, bytes]]] = {}
        self._names: dict[tuple[bytes, bytes], bytes] = {}  #: ids of these, by queue and key
        self._size: int = 0  #: bytes of these names and keys

    def __contains__(self, job_id: bytes) -> bool:
        """Return whether a job is done, or was given up: it must not come back."""
        return job_id in self._lately or job_id in self._before

    def add(self, job_id: bytes) -> None:
        """Remember that a job is done, or was given up."""
        lately = self._lately
        lately.add(job_id)
        if len(lately) >= KEPT:
            self._before = lately
            self._lately = set()

    def note(self, job_id: bytes, how: int, tries: int) -> None:
        """Remember how a job ended here, on the scale of standings, and after so many tries."""
        ends = self._ends
        ends[job_id] = tries << HOW_BITS | how
        if len(ends) >= KEPT:
            self._ends_before = ends
            self._ends = {}

    def of(self, job_id: bytes, now: int) -> int:
        """Return what is remembered of a job that is not here, on the scale of standings; NOT_KNOWN = nothing."""
        known = self._noted(job_id) & _HOW
        if job_id in self:
            return max(known, ENDED)
        since, _ = self._left.get(job_id, (now - UNDER_WAY_MS, _NO_PLACE))
        return max(known, UNDER_WAY) if now - since < UNDER_WAY_MS else known

    def tries_of(self, job_id: bytes) -> int:
        """Return after how many tries a job ended that did not end by an acknowledgement; 0 = none, or not known."""
        return self._noted(job_id) >> HOW_BITS

    def _noted(self, job_id: bytes) -> int:
        return self._ends.get(job_id) or self._ends_before.get(job_id, NOT_KNOWN)

    # Jobs that have just left.

    def leave(self, job: Job, now: int) -> None:
        """Note that a job leaves now."""
        place = (job.queue, job.alias) if isinstance(job, NamedJob) and job.alias[:1] == KEYED else _NO_PLACE
        self._arrived(job.id)
        self._size += len(place[0]) + len(place[1])
        while self._left and (len(self._left) >= LEFT_KEPT or self._size > LEFT_BYTES):
            self._arrived(next(iter(self._left)))
        self._left[job.id] = (now, place)
        if place[1]:
            self._names[place] = job.id

    def _arrived(self, job_id: bytes) -> None:
        """Forget that a job left."""
        _, place = self._left.pop(job_id, (0, _NO_PLACE))
        self._size -= len(place[0]) + len(place[1])
        if self._names.get(place) == job_id:
            del self._names[place]

    def under_way(self, queue: bytes, alias: bytes, now: int) -> bytes:
        """Return the id of the job of a key that has just left; empty = none has."""
        job_id = self._names.get((queue, alias), b"")
        return job_id if job_id and self.of(job_id, now) == UNDER_WAY else b""
