"""Which jobs a journal still has: it is read twice, and what is kept in between are ids.

    first    added --> id: number of the record        done, gone, flushed --> forgotten again
    second   a record that is the one its id stands for is a job that is there

So a journal of any length takes as much memory as the ids of the jobs that were there at one time, and their bodies
take none.  Events of a log are there until their time is over, whoever is done with them; a queue of a log that was
flushed takes along what was added until then.
"""

from collections.abc import Iterable, Iterator

import attrs

from disqued.core.model.job import ACKED, KIND_LOG, WORK_SCOPE, StoredJob
from disqued.core.model.outbox import FLUSHED, GROUP, JOB_ADDED, JOB_GONE, UNIT_DONE
from disqued.wire.fields import Fields

NODE: slice = slice(2, 10)  #: where an id has the first 8 hex digits of the node that made it


@attrs.define
class Outstanding:
    """What is left of records that were told in turn."""

    #: How many were told.
    count: int = 0
    #: Ids of jobs that are there, and the number of the record that each is there by; from 0.
    jobs: dict[bytes, int] = attrs.field(factory=dict)
    #: By queue, and node: up to which `ctime` events were flushed.
    flushed: dict[bytes, dict[bytes, int]] = attrs.field(factory=dict)

    def note_all(self, records: Iterable[Fields]) -> None:
        """Take records into account."""
        jobs = self.jobs
        number = self.count
        for number, record in enumerate(records, self.count):
            kind = record[0]
            if kind == JOB_ADDED and record[1].state != ACKED:
                jobs[record[1].id] = number
            elif kind == JOB_ADDED:
                jobs.pop(record[1].id, None)
            elif kind == JOB_GONE or (kind == UNIT_DONE and record[2] == WORK_SCOPE):
                jobs.pop(record[1], None)
            elif kind == FLUSHED:
                jobs.clear()
            elif kind == GROUP and record[2] == WORK_SCOPE:
                self._flush(record[1], record[3])
            self.count = number + 1

    def _flush(self, queue: bytes, floor: tuple[tuple[bytes, int], ...]) -> None:
        known = self.flushed.setdefault(queue, {})
        for node, ctime in floor:
            known[node] = max(ctime, known.get(node, ctime))

    def choose(self, records: Iterable[Fields]) -> Iterator[StoredJob]:
        """Yield the jobs that are there, when the same records are told once more; others may follow them."""
        jobs = self.jobs
        for number, record in zip(range(self.count), records, strict=False):
            if record[0] == JOB_ADDED and jobs.get(record[1].id) == number and not self._is_flushed(record[1]):
                yield record[1]

    def _is_flushed(self, job: StoredJob) -> bool:
        if job.kind != KIND_LOG or job.queue not in self.flushed:
            return False
        return job.ctime <= self.flushed[job.queue].get(job.id[NODE], -1)
