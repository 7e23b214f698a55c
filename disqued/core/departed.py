"""Jobs with keys that have left for another node, which has them alone from now on.

For a moment no node has such a job: it is under way.  So the node that it left names it a little longer.

Times are integer milliseconds.
"""

from typing import Final

UNDER_WAY_MS: Final = 100  #: for which a job may not have arrived
KEPT: Final = 1_000


class Departed:
    """The last jobs with keys that left, and when."""

    __slots__ = ("_jobs",)

    def __init__(self) -> None:
        self._jobs: dict[tuple[bytes, bytes], tuple[bytes, int]] = {}  #: by queue and alias, oldest first

    def add(self, queue: bytes, alias: bytes, job_id: bytes, now: int) -> None:
        """Note that a job leaves now."""
        self._jobs.pop((queue, alias), None)
        if len(self._jobs) >= KEPT:
            del self._jobs[next(iter(self._jobs))]
        self._jobs[queue, alias] = (job_id, now)

    def named(self, queue: bytes, alias: bytes, now: int) -> bytes:
        """The id of the job of a key that has just left; empty = none has."""
        job_id, at = self._jobs.get((queue, alias), (b"", 0))
        return job_id if job_id and now - at < UNDER_WAY_MS else b""
