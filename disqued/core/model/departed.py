"""Jobs with keys that have left for another node, which has them alone from now on.

For a moment no node has such a job: it is under way.  So the node that it left names it a little longer.

Times are integer milliseconds.
"""

from typing import Final

UNDER_WAY_MS: Final = 100  #: for which a job may not have arrived
KEPT: Final = 1_000
KEPT_BYTES: Final = 1 << 20  #: of the names of their queues and their keys together


class Departed:
    """The last jobs with keys that left, and when."""

    __slots__ = ("_jobs", "_size")

    def __init__(self) -> None:
        self._jobs: dict[tuple[bytes, bytes], tuple[bytes, int]] = {}  #: by queue and alias, oldest first
        self._size: int = 0  #: bytes of their names and keys

    def add(self, queue: bytes, alias: bytes, job_id: bytes, now: int) -> None:
        """Note that a job leaves now."""
        self._forget((queue, alias))
        self._size += len(queue) + len(alias)
        while self._jobs and (len(self._jobs) >= KEPT or self._size > KEPT_BYTES):
            self._forget(next(iter(self._jobs)))
        self._jobs[queue, alias] = (job_id, now)

    def _forget(self, place: tuple[bytes, bytes]) -> None:
        if self._jobs.pop(place, None) is not None:
            self._size -= len(place[0]) + len(place[1])

    def named(self, queue: bytes, alias: bytes, now: int) -> bytes:
        """The id of the job of a key that has just left; empty = none has."""
        job_id, at = self._jobs.get((queue, alias), (b"", 0))
        return job_id if job_id and now - at < UNDER_WAY_MS else b""
