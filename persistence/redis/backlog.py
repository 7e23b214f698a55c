"""The backlog: numbered batches of records, kept until the server confirms them.

    append --> open batch --seal--> waiting --send--> on the way --answered--> gone
                                       ^                  |
                                       +-----rewind-------+   the connection was lost

A batch is applied whole or not at all, and its number with it.  So after a loss the server's number tells which batch
is next: nothing is lost and nothing is applied twice.

A batch in the form of the script that applies it: A n (id job)*n | D id scope time | L id scope record | E id |
G id reason time | F time | P queue pause | U queue | B place record | O place |
R place record | X place | W until.  Jobs that are added one after the other
share one A.  L is the last word on a unit: who has it, or that a group is done with it; E ends all that is known of the
units of a job.  B says where a group begins, and O that this means nothing any more.  R is
what the cluster says of a queue, and X that it is forgotten.  W is the watermark.

A server that is out of memory takes no batch, and as long as none is taken no job is removed from it: so the removals
among what waits are sent ahead.  When it is the turn of their batch there is nothing left to remove.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

import attrs

from disqued.core.model.job import ACKED, WORK_SCOPE, Job
from disqued.core.model.outbox import (
    FLUSHED,
    GROUP,
    JOB_ADDED,
    POLICY,
    QUEUE_PAUSED,
    UNIT_DONE,
    UNIT_LEASED,
    WATERMARK,
    is_over,
)
from disqued.wire.fields import Fields
from disqued.wire.jobdump import encode_event, encode_job

RECORDS_PER_BATCH: Final = 500  #: what a server applies in about a millisecond, and its scripts can take at once
BYTES_PER_BATCH: Final = 256 << 10
RECORD_COST: Final = 100  #: bytes of overhead of a record


class BatchBuilder:
    """The arguments of a script, grown record by record."""

    __slots__ = ("_adding", "args", "count", "size")

    def __init__(self) -> None:
        self.args: list[bytes] = []
        self.count: int = 0  #: records
        self.size: int = 0  #: bytes
        self._adding = -1  #: where the number of jobs stands that are being added; -1 = none is

    def add_job(self, job: Job, data: bytes) -> None:
        args = self.args
        if self._adding < 0:
            args += (b"A", b"0")
            self._adding = len(args) - 1
        args += (job.id, data)
        self.count += 1
        self.size += len(data) + RECORD_COST
        if job.state == ACKED:
            self.seal()
            args += (b"E", job.id)

    def add_event(self, record: Fields, wall: int) -> None:
        """What happened to a job, to all of them or to a queue."""
        self.seal()
        kind = record[0]
        if kind == FLUSHED:
            event = [b"F", b"%d" % wall]
        elif kind == UNIT_LEASED:
            event = [b"L", record[1], record[2], encode_event(record, wall)]
        elif kind == QUEUE_PAUSED:
            queue, pause = record[1:3]
            event = [b"P", queue, encode_event(record, wall)] if pause else [b"U", queue]
        elif kind == GROUP:
            place = place_of(record[1], record[2])
            event = [b"O", place] if is_over(record[2], record[3]) else [b"B", place, encode_event(record, wall)]
        elif kind == POLICY:
            place = place_of_policy(record[1], record[2])
            event = [b"R", place, encode_event(record, wall)] if record[3].counter else [b"X", place]
        elif kind == WATERMARK:
            event = [b"W", b"%d" % record[1]]
        else:
            event = [b"D" if kind == UNIT_DONE else b"G", record[1], record[2], b"%d" % wall]
            if kind == UNIT_DONE and record[2] != WORK_SCOPE:
                event += [b"L", record[1], record[2], encode_event(record, wall)]
        self.args += event
        self.count += 1
        self.size += sum(map(len, event)) + RECORD_COST

    def seal(self) -> None:
        """Write down how many jobs are added; what follows begins anew."""
        adding = self._adding
        if adding >= 0:
            self.args[adding] = b"%d" % ((len(self.args) - adding - 1) // 2)
            self._adding = -1

    @property
    def is_full(self) -> bool:
        """True when the next record belongs to another batch."""
        return self.count >= RECORDS_PER_BATCH or self.size >= BYTES_PER_BATCH


def build(records: Iterable[Fields], wall: int, now: int, *, with_state: bool) -> BatchBuilder:
    """Encode records as one batch; `with_state` keeps the word where each job is."""
    builder = BatchBuilder()
    offset = wall - now
    for record in records:
        if record[0] == JOB_ADDED:
            job = record[1]
            data = encode_job(job, offset, job.state) if with_state else encode_job(job, offset)
            builder.add_job(job, data)
        else:
            builder.add_event(record, wall)
    builder.seal()
    return builder


@attrs.frozen
class Batch:
    """What one script applies."""

    number: int
    args: list[bytes]
    count: int  #: records
    size: int  #: bytes


class Backlog:
    """The batches of one store."""

    def __init__(self) -> None:
        self.last: int = 0  #: number of the last batch that was sealed
        self.size: int = 0  #: bytes that the server has not applied, as far as is known
        self.count: int = 0  #: records, likewise
        self._open = BatchBuilder()
        self._batches: deque[Batch] = deque()
        self._sent = 0  #: how many of them are on their way
        self.sent_size: int = 0  #: bytes that are on their way
        self._ahead = 0  #: number of the last batch whose removals were sent ahead

    def begin(self, applied: int) -> None:
        """Go on behind a batch that the server has applied; nothing else is kept."""
        self.last = applied
        self.size = self.count = self._sent = self.sent_size = 0
        self._open = BatchBuilder()
        self._batches.clear()

    @property
    def applied(self) -> int:
        """The number of the last batch of which the server said that it applied it."""
        return self._batches[0].number - 1 if self._batches else self.last

    def append(self, records: list[Fields], wall: int, now: int) -> None:
        """Take records as they are now."""
        offset = wall - now
        builder = self._open
        size = self.size - builder.size
        for record in records:
            if record[0] == JOB_ADDED:
                job = record[1]
                builder.add_job(job, encode_job(job, offset))
            else:
                builder.add_event(record, wall)
            if builder.is_full:
                size += builder.size
                self.seal()
                builder = self._open
        self.size = size + builder.size
        self.count += len(records)

    def seal(self) -> None:
        """Make a batch of what was appended, if anything was."""
        builder = self._open
        if builder.count:
            builder.seal()
            self.last += 1
            self._batches.append(Batch(self.last, builder.args, builder.count, builder.size))
            self._open = BatchBuilder()

    def next_to_send(self) -> Batch | None:
        """The next batch, which is on its way from now on; None when there is none."""
        if self._sent == len(self._batches):
            return None
        batch = self._batches[self._sent]
        self._sent += 1
        self.sent_size += batch.size
        return batch

    def answered(self) -> None:
        """Forget the first batch: it was applied."""
        batch = self._batches.popleft()
        self._sent -= 1
        self.sent_size -= batch.size
        self.size -= batch.size
        self.count -= batch.count

    def rewind(self) -> None:
        """The connection is lost: of what was on its way nothing is known."""
        self._sent = self.sent_size = 0

    def resume(self, applied: int) -> bool:
        """Go on behind the batch that the server applied last; say whether it can be one of ours."""
        if not self.applied <= applied <= self.last:
            return False
        while self.applied < applied:
            batch = self._batches.popleft()
            self.size -= batch.size
            self.count -= batch.count
        return True

    def removals(self) -> list[bytes] | None:
        """What the next batch removes, to be sent ahead, in its own form; None when there is no further batch."""
        for batch in self._batches:
            if batch.number > self._ahead:
                self._ahead = batch.number
                return removals(batch.args)
        return None


def place_of(queue: bytes, scope: bytes) -> bytes:
    """Where it stands where a group begins, whatever its epoch, or up to where a queue was flushed: no scope."""
    return b"%d:%b%b" % (len(queue), queue, scope.lstrip(b"0123456789"))


def place_of_policy(queue: bytes, field: int) -> bytes:
    """Where it stands what the cluster says of a queue."""
    return b"%d:%b" % (field, queue)


def removals(args: list[bytes]) -> list[bytes]:
    """The records of a batch that remove one job each."""
    found: list[bytes] = []
    at = 0
    while at < len(args):
        kind = args[at]
        size = _SIZES.get(kind) or 2 + 2 * int(args[at + 1])
        if kind == b"G" or (kind == b"D" and not args[at + 2]):
            found += args[at : at + size]
        at += size
    return found


#: Arguments of a record, by its kind; A has as many as it says.
_SIZES: Final = {
    b"D": 4,
    b"L": 4,
    b"E": 2,
    b"G": 4,
    b"F": 2,
    b"P": 3,
    b"U": 2,
    b"B": 3,
    b"O": 2,
    b"W": 2,
    b"R": 3,
    b"X": 2,
}
