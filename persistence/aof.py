"""The append-only file: every record in the order in which it happened.

    append --> frames in memory --commit--> last increment (appending.py) --> disk
    load   <-- base, increments in turn (reading.py), the torn end of the last one cut off
    rewrite --> a new base alone (base.py)

Until the first commit after a rewrite with queues nothing follows the base, and it tells where each job was.  The
commit begins an increment and takes that word back before anybody hears of what it commits, so that whatever
happens then, no queue is restored twice.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from zope.interface import implementer

from disqued.core.clock import Clock
from disqued.core.outbox import JOB_ADDED, Record
from disqued.persistence.appending import Appender
from disqued.persistence.base import replace_journal
from disqued.persistence.disk import Disk, write_all
from disqued.persistence.interface import IStore, IStoreFactory, StoreError, StoreFailed, StoreSettings
from disqued.persistence.manifest import Increment, JournalFiles, Manifest, journal_path
from disqued.persistence.reading import JournalReader
from disqued.persistence.segments import framed, header
from disqued.wire.jobdump import encode_event, encode_job


@implementer(IStore)
class AofStore:
    """A journal in files beside each other, named after one path."""

    log = Logger()
    records = True
    wants_compaction = False

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock,
        reactor: IReactorTime,
        fsync: str,
        cut_torn: bool = True,
        enqueue_once: bool = False,
        disk: Disk | None = None,
    ) -> None:
        """Take the settings appendfilename, appendfsync, aof-load-truncated and aof-enqueue-jobs-once."""
        self.restores_queues: bool = False
        self._clock = clock
        self._reactor = reactor
        self._fsync = fsync
        self._cut_torn = cut_torn
        self._enqueue_once = enqueue_once
        self._disk = disk or Disk()
        self._files = JournalFiles(path, self._disk)
        self._manifest = Manifest()
        self._reader: JournalReader | None = None
        self._appender: Appender | None = None
        self._frames: list[bytes] = []  #: appended since the last commit
        self._sequence = 1  #: number of the next record to be appended
        self._committed = 1  #: number of the next record to be committed
        self._failure: str | None = None
        self._is_loaded = False
        self._base_size = 0
        self._last_rewrite = "ok"
        self._rewrite_s = -1

    # Coming back.

    @property
    def bytes_total(self) -> int:
        """Bytes to load."""
        return self._reader.bytes_total if self._reader else 0

    @property
    def bytes_loaded(self) -> int:
        """Bytes loaded so far."""
        return self._reader.bytes_loaded if self._reader else 0

    def open(self) -> None:
        self._files.lock()
        try:
            self._manifest = self._files.read_manifest()
            self._reader = JournalReader(self._files, self._manifest, cut_torn=self._cut_torn)
        except StoreError:
            self._files.unlock()
            raise
        self.restores_queues = self._enqueue_once and self._manifest.has_queues
        if self._enqueue_once and not self._manifest.has_queues:
            self.log.warn(
                "aof-enqueue-jobs-once: {path} was not written by SHUTDOWN REWRITE-AOF; queues are not restored",
                path=str(self._files.path),
            )

    def load(self) -> Iterator[Record]:
        reader = self._reader
        if reader is None or self._is_loaded:
            raise StoreError("a store is loaded once, after it is opened")
        yield from reader
        self._sequence = self._committed = reader.sequence
        try:
            self._resume(reader)
        except OSError as error:
            raise StoreFailed(error.strerror or str(error)) from error
        self._files.remove_leftovers(self._manifest)
        self._base_size = reader.bytes_loaded
        self._is_loaded = True

    def renew(self) -> None:
        try:
            self._manifest = Manifest()
            self._files.write_manifest(self._manifest)
            self._begin_increment()
        except OSError as error:
            raise StoreFailed(error.strerror or str(error)) from error
        self._files.remove_leftovers(self._manifest)
        self._is_loaded = True

    def _resume(self, reader: JournalReader) -> None:
        """Go on behind the last record."""
        if not self._manifest.increments:
            self._begin_increment()
            return
        path = self._files.segment(self._manifest.increments[-1])
        if reader.torn:
            self._disk.truncate(path, reader.last_size)
        fd = self._disk.append_to(path)
        if reader.last_size == 0:
            self._write_header(fd)
        self._appender = self._append_to(fd)

    def _begin_increment(self) -> None:
        """Begin a new segment behind those that there are.  Raises OSError."""
        increment = Increment(self._files.free_number(), self._committed)
        fd = self._disk.create(self._files.segment(increment))
        try:
            self._write_header(fd)
            manifest = attrs.evolve(
                self._manifest, increments=(*self._manifest.increments, increment), has_queues=False
            )
            self._files.write_manifest(manifest)
        except BaseException:
            self._disk.close(fd)
            raise
        self._manifest = manifest
        self._appender = self._append_to(fd)

    def _write_header(self, fd: int) -> None:
        write_all(self._disk, fd, header(self._committed))
        self._disk.fdatasync(fd)

    def _size_of_journal(self) -> int:
        return sum(self._files.segment(segment).stat().st_size for segment in self._manifest.segments)

    def _append_to(self, fd: int) -> Appender:
        return Appender(self._disk, fd, self._size_of_journal(), self._fsync, self._reactor)

    # Going on.

    def append(self, records: list[Record]) -> None:
        if self._failure is not None:
            return
        wall = self._clock.wall()
        offset = wall - self._clock.now()
        payloads = [
            encode_job(record[1], offset) if record[0] == JOB_ADDED else encode_event(record, wall)
            for record in records
        ]
        self._frames += framed(payloads, self._sequence)
        self._sequence += len(payloads)

    def commit(self) -> None:
        if self._failure is not None:
            raise StoreFailed(self._failure)
        frames, self._frames = self._frames, []
        try:
            if self._appender is None:
                if not frames:
                    return
                self._begin_increment()
            assert self._appender is not None
            self._appender.commit(frames)
        except StoreFailed as error:
            self._failure = str(error)
            raise
        except OSError as error:
            self._failure = error.strerror or str(error)
            raise StoreFailed(self._failure) from error
        self._committed = self._sequence

    def configure(self, config: StoreSettings) -> None:
        self._fsync = config.appendfsync
        if self._appender is not None:
            self._appender.set_fsync(self._fsync)

    def compact(self, records: Iterator[Record]) -> None:
        """Not yet."""
        raise StoreError("the journal cannot be compacted yet")

    def rewrite(self, records: Iterable[Record]) -> None:
        if not self._is_loaded:
            raise StoreError("a journal is rewritten after it is loaded, not before")
        began = self._clock.now()
        try:
            self._manifest = replace_journal(self._files, records, self._sequence, self._clock)
        except StoreFailed as error:
            self._last_rewrite = "err"
            if not self._is_listed():
                self._failure = str(error)
            raise
        assert self._manifest.base is not None
        # What was appended and not committed is part of what the jobs are now.
        self._frames = []
        self._sequence += self._manifest.base.count
        self._committed = self._sequence
        self._failure = None
        if self._appender is not None:
            self._appender.abandon()
            self._appender = None
        self._base_size = self._size_of_journal()
        self._last_rewrite = "ok"
        self._rewrite_s = (self._clock.now() - began) // 1_000

    def _is_listed(self) -> bool:
        """Tell whether the manifest is ours still; else what is appended to our files may count for nothing."""
        try:
            return self._files.read_manifest() == self._manifest
        except StoreError:
            return False

    def status(self) -> dict[str, int | str]:
        appender = self._appender
        failure = self._failure or (appender and appender.failure)
        return {
            "aof_enabled": 1,
            "aof_state": "on",
            "aof_rewrite_in_progress": 0,
            "aof_rewrite_scheduled": 0,
            "aof_last_rewrite_time_sec": self._rewrite_s,
            "aof_current_rewrite_time_sec": -1,
            "aof_last_bgrewrite_status": self._last_rewrite,
            "aof_last_write_status": "err" if failure else "ok",
            "aof_current_size": appender.size if appender else self._base_size,
            "aof_base_size": self._base_size,
            "aof_pending_rewrite": 0,
            "aof_buffer_length": sum(map(len, self._frames)),
            "aof_rewrite_buffer_length": 0,
            "aof_pending_bio_fsync": int(appender.is_syncing) if appender else 0,
            "aof_delayed_fsync": appender.late_syncs if appender else 0,
        }

    def close(self) -> None:
        appender = self._appender
        try:
            if self._failure is None and self._frames:
                self.commit()
                appender = self._appender
        finally:
            self._appender = None
            try:
                if appender is not None:
                    self._end(appender)
            finally:
                self._files.unlock()

    def _end(self, appender: Appender) -> None:
        if self._failure is None:
            appender.close()
        else:
            appender.abandon()


@implementer(IStoreFactory)
class AofFactory:
    """Makes the store `aof` as the settings say."""

    name = "aof"

    def peek(self, config: StoreSettings) -> Iterator[Record]:
        files = JournalFiles(journal_path(config), Disk())
        return iter(JournalReader(files, files.read_manifest(), cut_torn=True))

    def create(self, config: StoreSettings, reactor: IReactorTime, clock: Clock) -> AofStore:
        return AofStore(
            journal_path(config),
            clock=clock,
            reactor=reactor,
            fsync=config.appendfsync,
            cut_torn=config.aof_load_truncated,
            enqueue_once=config.aof_enqueue_jobs_once,
        )
