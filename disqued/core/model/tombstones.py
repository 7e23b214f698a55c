"""Jobs that have ended, remembered for a while: a message that was late must not bring one back.

A copy may still be under way, on a slow link or said twice, when all that know of the job have agreed that it is done
and have forgotten it.  Whoever takes that copy would deliver the job again, a retry period later.  So a node remembers
the ids of jobs that ended here and that others held or had brought, and of those whose end it heard of before its copy
had come.
There is room for the last `KEPT` of them at least, twice as many at most.  Whoever has such a job all the same, and
says so, hears that it is done.

Jobs that are delivered at most once are not among them: they move from node to node, and may come again.
"""

KEPT = 20_000  #: ids, some megabytes


class Tombstones:
    """The ids of jobs that ended here lately."""

    __slots__ = ("_before", "_lately")

    def __init__(self) -> None:
        self._lately: set[bytes] = set()
        self._before: set[bytes] = set()

    def __contains__(self, job_id: bytes) -> bool:
        return job_id in self._lately or job_id in self._before

    def add(self, job_id: bytes) -> None:
        """Remember one."""
        lately = self._lately
        lately.add(job_id)
        if len(lately) >= KEPT:
            self._before = lately
            self._lately = set()
