"""The journal on disk: the segments that make it up, and the one that is appended to.

    open ------------------> a reader of what the manifest lists (reading.py)
    resume ----------------> the last increment is appended to (appending.py), its torn end cut off
    begin_increment, move -> another increment is appended to
    replace ---------------> a new base alone (base.py), and no increment behind it

While there is no increment nothing can be appended.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from disqued.core.model.clock import Clock
from disqued.core.model.outbox import Record
from disqued.persistence.aof.appending import Appender
from disqued.persistence.aof.base import replace_journal
from disqued.persistence.aof.manifest import Increment, JournalFiles, Manifest
from disqued.persistence.aof.reading import JournalReader
from disqued.persistence.aof.segments import HEADER_SIZE
from disqued.persistence.disk import Disk, FileWatch, reason
from disqued.persistence.interface import StoreError, StoreFailed


class JournalSegments:
    """The segments of one journal, and the appender of the last one."""

    log = Logger()

    def __init__(self, path: Path, disk: Disk, fsync: str, reactor: IReactorTime) -> None:
        """Take the path that the files are named after, and `appendfsync`."""
        self.files = JournalFiles(path, disk)
        self.manifest: Manifest = Manifest()
        self.appender: Appender | None = None  #: None while no increment can be appended to
        self.in_use: Increment | None = None  #: where the appender appends, or will when it has moved
        self.in_use_paths: tuple[Path, ...] = ()  #: its file and the manifest
        self.watch = FileWatch(disk)  #: fails when a file was taken away
        self._size_before = 0  #: bytes in the segments before the one in use
        self._first = 1  #: number of the first record of the next appender
        self._fsync = fsync
        self._reactor = reactor

    def open(self, *, cut_torn: bool, pause: Callable[[], Any]) -> JournalReader:
        """Lock the journal and return its reader; the arguments are those of the reader.  Raises StoreError."""
        self.files.lock.take()
        try:
            self.manifest = self.files.read_manifest()
            return JournalReader(self.files, self.manifest, cut_torn=cut_torn, pause=pause)
        except StoreError:
            self.files.lock.release()
            raise

    def resume(self, reader: JournalReader) -> None:
        """Go on behind the last record.  Raises OSError."""
        self._first = reader.sequence
        if not self.manifest.increments:
            self.begin_increment()
            return
        disk = self.files.disk
        if reader.torn is not None:
            path = self.files.segment(reader.torn)
            disk.truncate(path, reader.good_size)
            self.log.warn(
                "{path}: {why}; cut off at byte {size}", path=str(path), why=reader.torn_why, size=reader.good_size
            )
        *before, increment = self.manifest.increments
        for other in before:
            self._sync_again(other)
        fd = disk.append_to(self.files.segment(increment))
        size = reader.last_size
        if not size:
            size = HEADER_SIZE
            self.files.write_header(fd, increment.first)
            disk.fdatasync(fd)
        self._use(increment, fd, size)
        self.watch_files(before_in_use=True)

    def _sync_again(self, increment: Increment) -> None:
        """Make durable what a killed process has written, before anything is written behind it.  Raises OSError."""
        disk = self.files.disk
        fd = disk.append_to(self.files.segment(increment))
        try:
            disk.fdatasync(fd)
        finally:
            disk.close(fd)

    def renew(self) -> None:
        """Begin anew with an empty increment; what there is becomes a leftover.  Raises OSError."""
        self.manifest = Manifest()
        self.begin_increment()

    def begin_increment(self) -> None:
        """Begin a new segment behind those that there are, when there is no appender.  Raises OSError."""
        increment = Increment(self.files.free_number(), self._first)
        fd = self.files.begin(increment)
        increments = (*self.manifest.increments, increment)
        manifest = attrs.evolve(self.manifest, increments=increments, has_queues=False)
        try:
            self.files.disk.fdatasync(fd)
            self.files.write_manifest(manifest)
        except BaseException:
            self.files.disk.close(fd)
            if not self.files.lists(manifest):
                self.files.remove(self.files.segment(increment))
            raise
        self.manifest = manifest
        self._use(increment, fd, HEADER_SIZE)
        self.watch_files(before_in_use=True)

    def _use(self, increment: Increment, fd: int, size: int) -> None:
        if self.appender is None:
            self.appender = Appender(self.files.disk, fd, size, self._fsync, self._reactor, first=self._first)
        else:
            self.appender.move(fd)
        self.in_use = increment
        self.in_use_paths = (self.files.segment(increment), self.files.manifest_path)

    def drop_appender(self, first: int) -> None:
        """Be done with a file that cannot be trusted; the next appender begins with the record of this number."""
        self._first = first
        if self.appender is not None:
            self.appender.abandon()
            self.appender = None

    def replace(self, records: Iterable[Record], first: int, clock: Clock) -> int:
        """Make a base of these records the whole journal; return the number of the record after them.

        Raises StoreFailed.
        """
        self.manifest = replace_journal(self.files, records, first, clock)
        assert self.manifest.base is not None
        following = first + self.manifest.base.count
        self.drop_appender(following)
        self.in_use, self.in_use_paths = None, ()
        return following

    def set_fsync(self, fsync: str) -> None:
        """Change the policy, from the next commit on."""
        self._fsync = fsync
        if self.appender is not None:
            self.appender.set_fsync(fsync)

    # For a compaction.

    def move(self, manifest: Manifest, increment: Increment, fd: int) -> None:
        """Go on in this increment, whose file is ours from now on; the manifest is what it is now.

        Raises StoreFailed.
        """
        self.manifest = manifest
        self._use(increment, fd, HEADER_SIZE)
        self.watch_files(before_in_use=False)
        self.measure()

    def moved_at(self) -> int | None:
        """Number of the first record that goes there; None while the one before is not synced.  Raises StoreFailed."""
        appender = self.appender
        assert appender is not None
        if appender.failure is not None:
            raise StoreFailed(appender.failure)
        return appender.segment.first if appender.moving_to is None else None

    def compacted(self, manifest: Manifest) -> None:
        """Take over what a compaction has left."""
        self.manifest = manifest
        if self.appender is not None:
            self.appender.hold_syncs(False)

    # Sizes and files.

    @property
    def size(self) -> int:
        """Bytes in all segments."""
        return self._size_before + (self.appender.segment.size if self.appender else 0)

    def measure(self) -> None:
        """Find out how large the segments before the one in use are."""
        in_use = self.in_use and self.in_use.number
        self._size_before = self.files.size_of(
            segment for segment in self.manifest.segments if segment.number != in_use
        )

    def watch_files(self, *, before_in_use: bool) -> None:
        """Watch the files that make up the journal now.  Raises OSError.

        A compaction replaces the manifest and the segments before the one in use: meanwhile these are not watched.
        """
        watch, in_use = self.watch, self.in_use
        watch.forget()
        watch.keep(self.files.lock.path)
        if in_use is not None:
            watch.keep(self.files.segment(in_use))
        if before_in_use:
            watch.keep(self.files.manifest_path)
            for segment in self.manifest.segments:
                if segment != in_use:
                    path = self.files.segment(segment)
                    watch.keep(path, self.files.disk.size(path))

    def close(self, *, is_sound: bool) -> None:
        """Write and sync what there is, where that is sound, and let go of the journal.  Raises StoreFailed."""
        appender, self.appender = self.appender, None
        try:
            if appender is not None and is_sound:
                appender.close()
            elif appender is not None:
                appender.abandon()
        finally:
            self.files.lock.release()

    def discard(self) -> None:
        """Let go of the journal and leave it empty."""
        self.drop_appender(1)
        self.in_use, self.in_use_paths = None, ()
        self.manifest = Manifest()
        try:
            self.files.write_manifest(self.manifest)
            self.files.remove_leftovers(self.manifest)
        except OSError as error:
            self.log.warn("{path} cannot be emptied: {why}", path=str(self.files.path), why=reason(error))
        self.files.lock.release()
