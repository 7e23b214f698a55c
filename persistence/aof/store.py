"""The append-only file (AOF): every record in order.

    append --> frames in memory --commit--> last increment (appending.py) --> disk
    load   <-- base, increments in turn (reading.py), the torn end of the last one cut off
    compact --> a new base, written while the node goes on (compaction.py)
    rewrite --> a new base alone (base.py)

Until the first commit after a rewrite with queues nothing follows the base, and it tells where each job was.  The
commit begins an increment and takes that word back before anybody hears of what it commits, so that whatever
happens then, no queue is restored twice.

    a write fails, or there is no room for a new file    everything is kept; the next commit tries again
    a sync fails, or the files are taken away            final: only a compaction or a rewrite makes the journal sound

Source: Redis and Disque, src/aof.c, for the settings and their effect.
"""

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from disqued.config.settings import Settings
from disqued.core.model.clock import Clock
from disqued.core.model.outbox import JOB_ADDED, Record
from disqued.persistence.aof.appending import ALWAYS, KEPT_BYTES, Appender
from disqued.persistence.aof.base import replace_journal
from disqued.persistence.aof.compaction import Compaction
from disqued.persistence.aof.manifest import Increment, JournalFiles, Manifest, journal_path
from disqued.persistence.aof.reading import JournalPeek, JournalReader
from disqued.persistence.aof.segments import HEADER_SIZE, Chunk, chunks_of
from disqued.persistence.disk import Disk, FileWatch, reason
from disqued.persistence.interface import IStore, IStoreFactory, StoreError, StoreFailed
from disqued.wire.jobdump import encode_event, job_text

#: Pause after a failed automatic compaction; doubled after each failure.
RETRY_MS: Final = 60_000
RETRY_MAX_MS: Final = 3_600_000
#: How often a sync that a caller waits for is checked.
POLL_S: Final = 0.005

#: Bytes that the reactor's thread writes itself, at most, of what has come while a thread was writing.
AT_ONCE_BYTES: Final = 4 << 20


@implementer(IStore)
class AofStore:
    """A journal in files beside each other, named after one path."""

    log = Logger()
    records = True

    def __init__(self, config: Settings, *, clock: Clock, reactor: IReactorTime, disk: Disk | None = None) -> None:
        """Take the settings whose names have to do with appending and rewriting.  Raises StoreError."""
        self.restores_queues: bool = False
        self._config = config
        self._is_always = config.appendfsync == ALWAYS  #: asked for each command; settings are slow to read
        self._clock = clock
        self._reactor = reactor
        self._disk = disk or Disk()
        self._files = JournalFiles(journal_path(config), self._disk)
        self._manifest = Manifest()
        self._reader: JournalReader | None = None
        self._appender: Appender | None = None
        self._in_use: Increment | None = None  #: where the appender appends, or will when it has moved
        self._in_use_paths: tuple[Path, ...] = ()  #: its file and the manifest
        self._watch = FileWatch(self._disk)
        self._frames: list[Chunk] = []  #: appended since the last commit
        self._is_large = False  #: the next commit is too large for the reactor's thread
        self._look_call: IDelayedCall | None = None  #: after a thread that writes
        self._sequence = 1  #: number of the next record to be appended
        self._committed = 1  #: number of the next record to be committed
        self._failure: str | None = None  #: why commits are refused; final until a rewrite
        self._trouble: str | None = None  #: why no increment could be begun; its records are kept
        self._is_loaded = False
        self._compaction: Compaction | None = None
        self._size_before = 0  #: bytes in the segments before the one in use
        self._base_size = 0  #: bytes in the journal when it was loaded or last made smaller
        self._threshold = sys.maxsize  #: bytes in the journal from which on it is to be made smaller
        self._not_before = 0  #: when a compaction may be wanted again
        self._failures = 0  #: compactions that failed since the last that did not
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
        self._files.lock.take()
        try:
            self._manifest = self._files.read_manifest()
            self._reader = JournalReader(
                self._files, self._manifest, cut_torn=self._config.aof_load_truncated, pause=self._next_turn
            )
        except StoreError:
            self._files.lock.release()
            raise
        enqueue_once = self._config.aof_enqueue_jobs_once
        self.restores_queues = enqueue_once and self._manifest.has_queues
        if enqueue_once and not self._manifest.has_queues:
            self.log.warn(
                "aof-enqueue-jobs-once: {path} was not written by SHUTDOWN REWRITE-AOF; queues are not restored",
                path=str(self._files.path),
            )

    def _next_turn(self) -> "Deferred[None]":
        """Fire when others have had their turn."""
        return deferLater(self._reactor, 0)

    def load(self) -> "Iterator[Record | Deferred[None]]":
        reader = self._reader
        if reader is None or self._is_loaded:
            raise StoreError("a store is loaded once, after it is opened")
        yield from reader
        self._sequence = self._committed = reader.sequence
        try:
            self._resume(reader)
        except OSError as error:
            raise StoreFailed(reason(error)) from error
        self._begin_to_serve()

    def renew(self) -> None:
        try:
            self._manifest = Manifest()
            self._begin_increment()
        except OSError as error:
            raise StoreFailed(reason(error)) from error
        self._begin_to_serve()

    def _begin_to_serve(self) -> None:
        self._files.remove_leftovers(self._manifest)
        self._measure()
        self._is_loaded = True

    def _resume(self, reader: JournalReader) -> None:
        """Go on behind the last record.  Raises OSError."""
        if not self._manifest.increments:
            self._begin_increment()
            return
        if reader.torn is not None:
            path = self._files.segment(reader.torn)
            self._disk.truncate(path, reader.good_size)
            self.log.warn(
                "{path}: {why}; cut off at byte {size}", path=str(path), why=reader.torn_why, size=reader.good_size
            )
        *before, increment = self._manifest.increments
        for other in before:
            self._sync_again(other)
        fd = self._disk.append_to(self._files.segment(increment))
        size = reader.last_size
        if not size:
            size = HEADER_SIZE
            self._files.write_header(fd, increment.first)
            self._disk.fdatasync(fd)
        self._use(increment, fd, size)

    def _sync_again(self, increment: Increment) -> None:
        """Make durable what a killed process has written, before anything is written behind it.  Raises OSError."""
        fd = self._disk.append_to(self._files.segment(increment))
        try:
            self._disk.fdatasync(fd)
        finally:
            self._disk.close(fd)

    def _begin_increment(self) -> None:
        """Begin a new segment behind those that there are.  Raises OSError."""
        increment = Increment(self._files.free_number(), self._committed)
        fd = self._files.begin(increment)
        increments = (*self._manifest.increments, increment)
        manifest = attrs.evolve(self._manifest, increments=increments, has_queues=False)
        try:
            self._disk.fdatasync(fd)
            self._files.write_manifest(manifest)
        except BaseException:
            self._disk.close(fd)
            if not self._files.lists(manifest):
                self._files.remove(self._files.segment(increment))
            raise
        self._manifest = manifest
        self._use(increment, fd, HEADER_SIZE)
        self._trouble = None

    def _use(self, increment: Increment, fd: int, size: int) -> None:
        if self._appender is None:
            self._appender = Appender(
                self._disk, fd, size, self._config.appendfsync, self._reactor, first=self._committed
            )
        else:
            self._appender.move(fd, size)
        self._in_use = increment
        self._in_use_paths = (self._files.segment(increment), self._files.manifest_path)
        self._keep_files()

    # Sizes.

    def _measure(self) -> None:
        """Find out how large the journal is, and from which size on it is to be made smaller."""
        self._measure_before()
        self._base_size = self._size
        self._set_threshold()

    def _measure_before(self) -> None:
        in_use = self._in_use and self._in_use.number
        self._size_before = self._files.size_of(
            segment for segment in self._manifest.segments if segment.number != in_use
        )

    @property
    def _size(self) -> int:
        return self._size_before + (self._appender.size if self._appender else 0)

    def _set_threshold(self) -> None:
        percent = self._config.auto_aof_rewrite_percentage
        grown = self._base_size + self._base_size * percent // 100
        self._threshold = max(self._config.auto_aof_rewrite_min_size, grown) if percent else sys.maxsize

    @property
    def wants_compaction(self) -> bool:
        """Whether the journal has grown as much as the settings allow."""
        return (
            self._size > self._threshold
            and self._compaction is None
            and self._appender is not None
            and self._failure is None
            and self._clock.now() >= self._not_before
        )

    # Going on.

    def append(self, records: list[Record]) -> None:
        if self._failure is not None and self._compaction is None:
            return
        wall = self._clock.wall()
        offset = wall - self._clock.now()
        payloads = [
            job_text(record[1], offset) if record[0] == JOB_ADDED else encode_event(record, wall) for record in records
        ]
        frames, is_large = chunks_of(payloads, self._sequence)
        self._frames += frames
        if is_large:
            self._is_large = True
        self._sequence += len(payloads)

    def commit(self) -> "Deferred[None] | None":
        if self._failure is not None and self._compaction is None:
            raise StoreFailed(self._failure)
        if self._appender is None:
            self._find_increment()
        if self._appender is not None:
            frames, self._frames = self._frames, []
            try:
                if self._is_large:
                    self._appender.commit_beside(frames, self._sequence)
                    answer: Deferred[None] = Deferred()
                    self._await_written(self._sequence, answer)
                    return answer
                self._appender.commit(frames, self._sequence)
                if self._is_always:
                    self._look_for(self._in_use_paths)
            except StoreFailed as error:
                if error.final:
                    self._fail(str(error))
                raise
            self._committed = self._sequence
        if self._failure is not None:
            raise self._is_being_repaired()
        return None

    def _is_being_repaired(self) -> StoreFailed:
        return StoreFailed(f"{self._failure}; the journal is being written anew", final=False)

    def _await_written(self, number: int, answer: "Deferred[None]") -> None:
        """Look again and again whether a thread has committed every record before this number."""
        self._look_call = None
        appender = self._appender
        try:
            if appender is not None and not appender.has(number):
                self._look_call = self._reactor.callLater(POLL_S, self._await_written, number, answer)
                return
            if appender is not None:
                if self._is_always:
                    self._look_for(self._in_use_paths)
                self._committed = number
                # What came meanwhile may be much as well, however short each record is.
                self._is_large = sum(map(len, self._frames)) > AT_ONCE_BYTES
            elif number > self._committed:
                self._open_appender()
            if self._failure is not None:
                raise self._is_being_repaired()
        except StoreFailed as error:
            if error.final:
                self._fail(str(error))
            answer.errback(error)
        else:
            answer.callback(None)

    def _stop_looking(self) -> None:
        if self._look_call is not None:
            self._look_call.cancel()
            self._look_call = None

    def secure(self) -> "Deferred[None] | None":
        if self._is_always:
            return None
        answer: Deferred[None] = Deferred()
        self._await_disk(self._committed, answer)
        return answer

    def _await_disk(self, number: int, answer: "Deferred[None]") -> None:
        """Look again and again whether every record before this number is on the disk."""
        try:
            is_safe = self._open_appender().secure(number)
        except StoreFailed as error:
            answer.errback(error)
            return
        if is_safe:
            answer.callback(None)
        else:
            self._reactor.callLater(POLL_S, self._await_disk, number, answer)

    def _open_appender(self) -> Appender:
        """The appender of a journal that can be written.  Raises StoreFailed."""
        self._check()
        if self._appender is None or not self._is_loaded:
            raise StoreFailed("the journal is closing, or being rewritten", final=False)
        return self._appender

    def _check(self) -> None:
        if self._failure is not None:
            raise StoreFailed(self._failure)

    def _fail(self, why: str) -> None:
        self._failure = why
        self._frames = []
        self._committed = self._sequence

    def _find_increment(self) -> None:
        """Have somewhere to append to, when there is something and no compaction is about to bring it."""
        if not self._frames or self._compaction is not None:
            return
        try:
            self._begin_increment()
        except OSError as error:
            self._trouble = reason(error)
            if sum(map(len, self._frames)) > KEPT_BYTES:
                self._fail(self._trouble)
            raise StoreFailed(self._trouble, final=self._failure is not None) from error
        except StoreFailed as error:
            self._fail(str(error))
            raise

    def _keep_files(self) -> None:
        """Watch the files that make up the journal now.  Raises OSError.

        A compaction replaces the manifest and the segments before the one in use: meanwhile these are not watched.
        """
        watch, in_use = self._watch, self._in_use
        watch.forget()
        watch.keep(self._files.lock.path)
        if in_use is not None:
            watch.keep(self._files.segment(in_use))
        if self._compaction is None and self._failure is None:
            watch.keep(self._files.manifest_path)
            for segment in self._manifest.segments:
                if segment != in_use:
                    path = self._files.segment(segment)
                    watch.keep(path, self._disk.size(path))

    def _keep_files_that_are_there(self) -> None:
        """The same; what is missing is a failure with the next look."""
        try:
            self._keep_files()
        except OSError as error:
            self._fail(f"{self._files.path}: a file of the journal was taken away while it was in use: {reason(error)}")

    def look(self) -> None:
        if not self._is_loaded:
            return
        self._check()
        try:
            self._look_for(None)
        except StoreFailed as error:
            self._fail(str(error))
            raise

    def _look_for(self, paths: Iterable[Path] | None) -> None:
        """Fail when one of these files, or of all, was taken away: what is written then ends with this process."""
        if self._in_use_paths and self._appender is not None and self._appender.moving_to is None:
            self._watch.keep_size(self._in_use_paths[0], self._appender.size)
        self._watch.look(paths)

    def configure(self, config: Settings) -> None:
        self._config = config
        self._is_always = config.appendfsync == ALWAYS
        self._set_threshold()
        if self._appender is not None:
            self._appender.set_fsync(self._config.appendfsync)
            self._appender.hold_syncs(self._config.no_appendfsync_on_rewrite and self._compaction is not None)
        if self._compaction is not None:
            self._compaction.incremental_fsync = self._config.aof_rewrite_incremental_fsync

    # Getting smaller.

    def compact(self, records: Iterator[Record | None]) -> None:
        if not self._is_loaded:
            raise StoreError("a journal is compacted after it is loaded, not before")
        if self._compaction is not None:
            raise StoreError("a compaction of the journal is in progress already")
        repairs = self._failure is not None
        try:
            if repairs:
                self._drop_appender()
                self._files.lock.take_again()
            elif self._appender is None:
                self._begin_increment()
            self._compaction = Compaction(
                self._files, self._manifest, records, self, clock=self._clock, reactor=self._reactor, repairs=repairs
            )
        except (OSError, StoreError) as error:
            self._note_failure()
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise StoreError(f"no new part of the journal can be begun: {why}") from error
        self._compaction.incremental_fsync = self._config.aof_rewrite_incremental_fsync
        if self._appender is not None:
            self._appender.hold_syncs(self._config.no_appendfsync_on_rewrite)
        self._keep_files_that_are_there()
        self.log.info("Compaction begun of {size} bytes", size=self._size)

    def _drop_appender(self) -> None:
        """Be done with a file that cannot be trusted."""
        self._is_large = False
        if self._appender is not None:
            self._appender.abandon()
            self._appender = None

    # What a compaction asks for (compaction.Journal).

    def sync_ahead(self) -> None:
        """Sync the increment in use; on the thread.  Raises StoreFailed."""
        assert self._appender is not None
        self._appender.sync_ahead()

    def move(self, manifest: Manifest, increment: Increment, fd: int) -> None:
        """Go on in this increment.  Raises StoreFailed."""
        self._manifest = manifest
        self._use(increment, fd, HEADER_SIZE)
        self._measure_before()

    def moved_at(self) -> int | None:
        """Number of the first record that goes there; None while the one before is not synced.  Raises StoreFailed."""
        appender = self._appender
        assert appender is not None
        if appender.failure is not None:
            raise StoreFailed(appender.failure)
        return None if appender.moving_to else appender.first

    def compacted(self, compaction: Compaction) -> None:
        """Take over what a compaction has left."""
        self._compaction = None
        self._manifest = compaction.manifest
        if self._appender is not None:
            self._appender.hold_syncs(False)
        if compaction.succeeded:
            if compaction.repairs:
                self._failure = None
            self._note_success(compaction.began_at)
            self.log.info(
                "Compaction ended: {count} records, {size} bytes in all", count=compaction.count, size=self._size
            )
        else:
            if self._failure is not None:
                self._fail(self._failure)
            self._measure_before()
        if self._failure is None:
            self._keep_files_that_are_there()
        if not compaction.succeeded:
            if compaction.is_given_up:
                self.log.info("Compaction given up, the journal is as it was")
            else:
                self._note_failure()
                self.log.error("Compaction failed, the journal is as it was: {why}", why=compaction.error)

    def _note_success(self, began_at: int) -> None:
        self._last_rewrite = "ok"
        self._rewrite_s = (self._clock.now() - began_at) // 1_000
        self._failures = 0
        self._not_before = 0
        self._measure()

    def _note_failure(self) -> None:
        self._last_rewrite = "err"
        self._not_before = self._clock.now() + min(RETRY_MS << self._failures, RETRY_MAX_MS)
        self._failures = min(self._failures + 1, 10)

    def _give_up_compaction(self) -> None:
        if self._compaction is not None:
            self._compaction.abandon()

    # The last word.

    def rewrite(self, records: Iterable[Record]) -> None:
        if not self._is_loaded:
            raise StoreError("a journal is rewritten after it is loaded, not before")
        self._give_up_compaction()
        began = self._clock.now()
        try:
            self._manifest = replace_journal(self._files, records, self._sequence, self._clock)
        except StoreFailed as error:
            self._note_failure()
            if not self._files.lists(self._manifest):
                self._fail(str(error))
            raise
        assert self._manifest.base is not None
        # What was appended and not committed is part of what the jobs are now.
        self._frames = []
        self._sequence += self._manifest.base.count
        self._committed = self._sequence
        self._failure = self._trouble = None
        self._drop_appender()
        self._in_use, self._in_use_paths = None, ()
        self._note_success(began)
        self._keep_files_that_are_there()

    def status(self) -> dict[str, int | str]:
        appender, compaction = self._appender, self._compaction
        failed = self._failure or self._trouble or (appender and (appender.failure or appender.trouble))
        return {
            "aof_enabled": 1,
            "aof_state": "on",
            "aof_rewrite_in_progress": int(compaction is not None),
            "aof_rewrite_scheduled": 0,
            "aof_last_rewrite_time_sec": self._rewrite_s,
            "aof_current_rewrite_time_sec": (self._clock.now() - compaction.began_at) // 1_000 if compaction else -1,
            "aof_last_bgrewrite_status": self._last_rewrite,
            "aof_last_write_status": "err" if failed else "ok",
            "aof_current_size": self._size,
            "aof_base_size": self._base_size,
            "aof_pending_rewrite": 0,
            "aof_buffer_length": sum(map(len, self._frames)) + (appender.waiting_bytes if appender else 0),
            "aof_rewrite_buffer_length": compaction.waiting_bytes if compaction else 0,
            "aof_pending_bio_fsync": int(appender.is_syncing) if appender else 0,
            "aof_delayed_fsync": appender.late_syncs if appender else 0,
        }

    def discard(self) -> None:
        self._stop_looking()
        self._give_up_compaction()
        self._drop_appender()
        self._in_use, self._in_use_paths = None, ()
        self._frames = []
        try:
            self._manifest = Manifest()
            self._files.write_manifest(self._manifest)
            self._files.remove_leftovers(self._manifest)
        except OSError as error:
            self.log.warn("{path} cannot be emptied: {why}", path=str(self._files.path), why=reason(error))
        self._files.lock.release()

    def close(self) -> None:
        self._give_up_compaction()
        try:
            if self._failure is None and self._frames:
                self.commit()
        finally:
            self._stop_looking()
            appender, self._appender = self._appender, None
            try:
                if appender is not None:
                    self._end(appender)
            finally:
                self._files.lock.release()

    def _end(self, appender: Appender) -> None:
        if self._failure is None:
            appender.close()
        else:
            appender.abandon()


@implementer(IStoreFactory)
class AofFactory:
    """Makes the store `aof` as the settings say."""

    name = "aof"

    def holds(self, config: Settings) -> bool:
        return JournalFiles(journal_path(config), Disk()).manifest_path.exists()

    def peek(self, config: Settings) -> Iterator[Record]:
        with JournalPeek(journal_path(config)) as journal:
            yield from journal.read()

    def create(self, config: Settings, reactor: IReactorTime, clock: Clock) -> AofStore:
        return AofStore(config, clock=clock, reactor=reactor)
