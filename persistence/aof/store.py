"""The append-only file (AOF): every record in order.

    append --> frames in memory --commit--> last increment (journal_segments.py, appending.py) --> disk
    load   <-- base, increments in turn (reading.py), the torn end of the last one cut off
    compact --> a new base, written while the node goes on (compaction.py); when: compaction_schedule.py
    rewrite --> a new base alone (base.py)

Until the first commit after a rewrite with queues nothing follows the base, and it tells where each job was.  The
commit begins an increment and takes that word back before anybody hears of what it commits, so that whatever
happens then, no queue is restored twice.

    a write fails, or there is no room for a new file    everything is kept; the next commit tries again
    a sync fails, or the files are taken away            final: only a compaction or a rewrite makes the journal sound

Source: Redis and Disque, src/aof.c, for the settings and their effect.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from zope.interface import implementer

from disqued.config.settings import Settings
from disqued.core.model.clock import Clock
from disqued.core.model.outbox import JOB_ADDED, Record
from disqued.persistence.aof.appending import ALWAYS, KEPT_BYTES, Appender
from disqued.persistence.aof.compaction import Compaction
from disqued.persistence.aof.compaction_schedule import CompactionSchedule
from disqued.persistence.aof.journal_segments import JournalSegments
from disqued.persistence.aof.manifest import JournalFiles, journal_path
from disqued.persistence.aof.reading import JournalPeek, JournalReader
from disqued.persistence.aof.segments import Chunk, chunks_of
from disqued.persistence.disk import Disk, reason
from disqued.persistence.interface import IStore, IStoreFactory, StoreError, StoreFailed
from disqued.persistence.rewrite_status import Rewrites
from disqued.wire.fields import Fields
from disqued.wire.jobdump import encode_event, job_text

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
        self._journal = JournalSegments(journal_path(config), disk or Disk(), config.appendfsync, reactor)
        self._reader: JournalReader | None = None
        self._frames: list[Chunk] = []  #: appended since the last commit
        self._is_large = False  #: the next commit is too large for the reactor's thread
        self._look_call: IDelayedCall | None = None  #: after a thread that writes
        self._sequence = 1  #: number of the next record to be appended
        self._committed = 1  #: number of the next record to be committed
        self._failure: str | None = None  #: why commits are refused; final until a rewrite
        self._trouble: str | None = None  #: why no increment could be begun; its records are kept
        self._is_loaded = False
        self._compaction: Compaction | None = None
        self._schedule = CompactionSchedule(config, clock)
        self._rewrites = Rewrites(clock)

    @property
    def bytes_total(self) -> int:
        return self._reader.bytes_total if self._reader else 0

    @property
    def bytes_loaded(self) -> int:
        return self._reader.bytes_loaded if self._reader else 0

    def open(self) -> None:
        self._reader = self._journal.open(
            cut_torn=self._config.aof_load_truncated, pause=lambda: deferLater(self._reactor, 0)
        )
        has_queues = self._journal.manifest.has_queues
        enqueue_once = self._config.aof_enqueue_jobs_once
        self.restores_queues = enqueue_once and has_queues
        if enqueue_once and not has_queues:
            self.log.warn(
                "aof-enqueue-jobs-once: {path} was not written by SHUTDOWN REWRITE-AOF; queues are not restored",
                path=str(self._journal.files.path),
            )

    def load(self) -> "Iterator[Record | Deferred[None]]":
        reader = self._reader
        if reader is None or self._is_loaded:
            raise StoreError("a store is loaded once, after it is opened")
        yield from reader
        self._sequence = self._committed = reader.sequence
        try:
            self._journal.resume(reader)
        except OSError as error:
            raise StoreFailed(reason(error)) from error
        self._begin_to_serve()

    def renew(self) -> None:
        try:
            self._journal.renew()
        except OSError as error:
            raise StoreFailed(reason(error)) from error
        self._begin_to_serve()

    def _begin_to_serve(self) -> None:
        journal = self._journal
        journal.files.remove_leftovers(journal.manifest)
        journal.measure()
        self._schedule.begin_at(journal.size)
        self._is_loaded = True

    @property
    def wants_compaction(self) -> bool:
        """Whether the journal has grown as much as the settings allow."""
        return (
            self._compaction is None
            and self._journal.appender is not None
            and self._failure is None
            and self._schedule.is_due(self._journal.size)
        )

    def append(self, records: list[Fields]) -> None:
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
        appender = self._journal.appender or self._find_increment()
        if appender is not None:
            frames, self._frames = self._frames, []
            try:
                if self._is_large:
                    appender.commit_beside(frames, self._sequence)
                    answer: Deferred[None] = Deferred()
                    self._await_written(self._sequence, answer)
                    return answer
                appender.commit(frames, self._sequence)
                if self._is_always:
                    self._look_for(self._journal.in_use_paths)
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
        appender = self._journal.appender
        try:
            if appender is not None and not appender.has(number):
                self._look_call = self._reactor.callLater(POLL_S, self._await_written, number, answer)
                return
            if appender is not None:
                if self._is_always:
                    self._look_for(self._journal.in_use_paths)
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
        appender = self._journal.appender
        if appender is None or not self._is_loaded:
            raise StoreFailed("the journal is closing, or being rewritten", final=False)
        return appender

    def _check(self) -> None:
        if self._failure is not None:
            raise StoreFailed(self._failure)

    def _fail(self, why: str) -> None:
        self._failure = why
        self._frames = []
        self._committed = self._sequence

    def _find_increment(self) -> Appender | None:
        """Have somewhere to append to, when there is something and no compaction is about to bring it."""
        if not self._frames or self._compaction is not None:
            return None
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
        return self._journal.appender

    def _begin_increment(self) -> None:
        self._journal.begin_increment()
        self._trouble = None

    def _watch_files(self) -> None:
        """Watch what the journal is made of now; what is missing is a failure with the next look."""
        journal = self._journal
        try:
            journal.watch_files(before_in_use=self._compaction is None and self._failure is None)
        except OSError as error:
            path = journal.files.path
            self._fail(f"{path}: a file of the journal was taken away while it was in use: {reason(error)}")

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
        journal = self._journal
        if journal.in_use_paths and journal.appender is not None and journal.appender.moving_to is None:
            journal.watch.keep_size(journal.in_use_paths[0], journal.appender.segment.size)
        journal.watch.look(paths)

    def configure(self, config: Settings) -> None:
        self._config = config
        self._is_always = config.appendfsync == ALWAYS
        self._schedule.configure(config)
        self._journal.set_fsync(config.appendfsync)
        if self._journal.appender is not None:
            self._journal.appender.hold_syncs(config.no_appendfsync_on_rewrite and self._compaction is not None)
        if self._compaction is not None:
            self._compaction.incremental_fsync = config.aof_rewrite_incremental_fsync

    def compact(self, records: Iterator[Record | None]) -> None:
        if not self._is_loaded:
            raise StoreError("a journal is compacted after it is loaded, not before")
        if self._compaction is not None:
            raise StoreError("a compaction of the journal is in progress already")
        repairs = self._failure is not None
        journal = self._journal
        try:
            if repairs:
                self._is_large = False
                journal.drop_appender(self._committed)
                journal.files.lock.take_again()
            elif journal.appender is None:
                self._begin_increment()
            self._compaction = Compaction(
                journal, records, self._compacted, clock=self._clock, reactor=self._reactor, repairs=repairs
            )
        except (OSError, StoreError) as error:
            self._rewrite_failed()
            why = reason(error) if isinstance(error, OSError) else str(error)
            raise StoreError(f"no new part of the journal can be begun: {why}") from error
        self._rewrites.begin()
        self._compaction.incremental_fsync = self._config.aof_rewrite_incremental_fsync
        if journal.appender is not None:
            journal.appender.hold_syncs(self._config.no_appendfsync_on_rewrite)
        self._watch_files()
        self.log.info("Compaction begun of {size} bytes", size=journal.size)

    def _compacted(self, compaction: Compaction) -> None:
        """Take over what a compaction has left."""
        self._compaction = None
        self._journal.compacted(compaction.manifest)
        if compaction.succeeded:
            if compaction.repairs:
                self._failure = None
            self._rewrite_succeeded()
            self.log.info("Compaction ended: {count} records, {size} bytes in all", count=compaction.count,
                          size=self._journal.size)  # fmt: skip
        else:
            if self._failure is not None:
                self._fail(self._failure)
            self._journal.measure()
        if self._failure is None:
            self._watch_files()
        if compaction.is_given_up:
            self._rewrites.give_up()
            self.log.info("Compaction given up, the journal is as it was")
        elif not compaction.succeeded:
            self._rewrite_failed()
            self.log.error("Compaction failed, the journal is as it was: {why}", why=compaction.error)

    def _rewrite_succeeded(self) -> None:
        self._rewrites.end(succeeded=True)
        self._journal.measure()
        self._schedule.succeeded(self._journal.size)

    def _rewrite_failed(self) -> None:
        self._rewrites.give_up()  # the time that INFO shows is of one that succeeded
        self._rewrites.end(succeeded=False)
        self._schedule.failed()

    def _give_up_compaction(self) -> None:
        if self._compaction is not None:
            self._compaction.abandon()

    def rewrite(self, records: Iterable[Record]) -> None:
        if not self._is_loaded:
            raise StoreError("a journal is rewritten after it is loaded, not before")
        self._give_up_compaction()
        self._rewrites.begin()
        try:
            self._sequence = self._journal.replace(records, self._sequence, self._clock)
        except StoreFailed as error:
            self._rewrite_failed()
            if not self._journal.files.lists(self._journal.manifest):
                self._fail(str(error))
            raise
        except BaseException:
            self._rewrites.give_up()
            raise
        # What was appended and not committed is part of what the jobs are now.
        self._frames = []
        self._is_large = False
        self._committed = self._sequence
        self._failure = self._trouble = None
        self._rewrite_succeeded()
        self._watch_files()

    def status(self) -> dict[str, int | str]:
        appender, compaction = self._journal.appender, self._compaction
        failed = self._failure or self._trouble or (appender and (appender.failure or appender.trouble))
        return {
            **self._rewrites.status(writes=not failed),
            "aof_current_size": self._journal.size,
            "aof_base_size": self._schedule.base_size,
            "aof_pending_rewrite": 0,
            "aof_buffer_length": sum(map(len, self._frames)) + (appender.waiting_bytes if appender else 0),
            "aof_rewrite_buffer_length": compaction.waiting_bytes if compaction else 0,
            "aof_pending_bio_fsync": int(appender.segment.syncs > 0) if appender else 0,
            "aof_delayed_fsync": appender.late_syncs if appender else 0,
        }

    def discard(self) -> None:
        self._stop_looking()
        self._give_up_compaction()
        self._frames = []
        self._journal.discard()

    def close(self) -> None:
        self._give_up_compaction()
        try:
            if self._failure is None and self._frames:
                self.commit()
        finally:
            self._stop_looking()
            self._journal.close(is_sound=self._failure is None)


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
