"""The journal of a simulated node: the real frames, records and reader, on a disk in memory.

It keeps the promises of the AOF store in virtual time: a commit writes what was appended and, under `always`, syncs
it; under `everysec` the server asks for a sync each second; under `no` nobody does.  A write that fails is tried
again with all that was kept; after a sync that failed the file is not trusted any more, until it is written anew.

With the policy `none` nothing is written at all.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile

from disqued.core.model.clock import Clock
from disqued.core.model.outbox import JOB_ADDED, Record
from disqued.persistence.aof.segments import HEADER_SIZE, SegmentReader, framed, header, mark
from disqued.persistence.interface import StoreFailed
from disqued.testing.disk import SimDisk
from disqued.wire.fields import Fields
from disqued.wire.jobdump import encode_event, encode_job

ALWAYS = "always"
EVERYSEC = "everysec"
NO = "no"
NONE = "none"
POLICIES = (ALWAYS, EVERYSEC, NO, NONE)


class SimJournal:
    """One life of a journal: from a start of its node to the end of that process."""

    def __init__(self, disk: SimDisk, policy: str, clock: Clock, *, restores_queues: bool) -> None:
        self.disk = disk
        self.policy = policy
        self.restores_queues = restores_queues  #: what is stored says the truth about queues
        self.is_bad: bool = False  #: a sync failed: only what is written anew is safe again
        self._clock = clock
        self._sequence = 1
        self._frames: list[bytes] = []

    @property
    def records(self) -> bool:
        """Whether it wants the journal."""
        return self.policy != NONE

    @property
    def is_clean(self) -> bool:
        """True when everything that was appended is safe."""
        return not self._frames and not self.disk.unsynced

    def load(self) -> Iterator[Record]:
        """What is stored, read as a real node reads it; a torn end is cut off."""
        if not self.records or not self.disk.data:
            self._begin()
            return
        with TemporaryFile() as file:
            file.write(self.disk.data)
            file.flush()
            reader = SegmentReader(Path("simulated"), file, 1, 1)
            yield from reader
        self._sequence = reader.sequence
        self.disk.truncate(reader.good_size)
        if reader.good_size < HEADER_SIZE:
            self._begin()

    def _begin(self) -> None:
        self.disk.wipe()
        self.disk.data += header(1)
        self.disk.synced = len(self.disk.data)

    def append(self, records: list[Record]) -> None:
        """Take records as they are now."""
        if not self.is_bad:
            self._frames += self._framed(records)

    def _framed(self, records: Iterable[Fields]) -> list[bytes]:
        wall = self._clock.wall()
        offset = wall - self._clock.now()
        payloads = [
            encode_job(record[1], offset) if record[0] == JOB_ADDED else encode_event(record, wall)
            for record in records
        ]
        frames = framed(payloads, self._sequence)
        self._sequence += len(payloads)
        return frames

    def commit(self) -> None:
        """Make what was appended as durable as the policy promises.  Raises StoreFailed."""
        if self.is_bad:
            raise StoreFailed("a sync of the journal failed")
        self.write()
        if self.policy == ALWAYS:
            self.sync()

    def write(self) -> None:
        """Hand what was appended to the system, which may lose it with the power.  Raises StoreFailed."""
        frames = self._frames
        if not frames:
            return
        if not self.disk.unsynced:
            frames = [mark(self._sequence - len(frames) // 2), *frames]
        try:
            self.disk.append(b"".join(frames))
        except OSError as error:
            raise StoreFailed(str(error), final=False) from error
        self._frames = []

    def sync(self) -> None:
        """Make safe what was written.  Raises StoreFailed."""
        try:
            self.disk.sync()
        except OSError as error:
            self.is_bad = True
            self._frames = []
            raise StoreFailed(str(error)) from error

    def rewrite(self, records: Iterable[Fields | None], *, with_queues: bool = False) -> None:
        """Write the journal anew, as a compaction or a controlled shutdown does.  Raises StoreFailed."""
        before, self._sequence = self._sequence, 1
        wall = self._clock.wall()
        offset = wall - self._clock.now()
        payloads = [
            encode_event(record, wall)
            if record[0] != JOB_ADDED
            else encode_job(record[1], offset, record[1].state)
            if with_queues
            else encode_job(record[1], offset)
            for record in records
            if record is not None
        ]
        frames = framed(payloads, 1)
        try:
            self.disk.replace(b"".join((header(1), *frames)))
        except OSError as error:
            self._sequence = before
            raise StoreFailed(str(error), final=False) from error
        self._sequence = len(payloads) + 1
        self._frames = []
        self.is_bad = False
