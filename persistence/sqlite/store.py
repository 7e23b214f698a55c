"""A database that an operator can read: jobs, and what became of those that are over.

    append --> notes (pending.py) --commit--> writer's thread: one transaction (transaction.py) --> log --> answer
    load   <-- the rows of the jobs (reading.py), while the writer's thread checks the file
    compact    what is over for long enough is deleted, and pages are given back, whenever the writer is idle
    rewrite    one transaction that replaces all jobs, and says that they are where the rows say

What is appended while a transaction is under way waits for the next one.  A transaction that fails changes nothing:
its notes stay in front of the others, in their order, and the next commit takes them all.  Only a sync that failed, or
damage, is final; then all jobs must be written anew, by `rewrite` or by `compact`, and the file is checked after that.

The word that queues are known is taken back before the node serves: at the end of a load, and after a rewrite in the
transaction of the first commit.

Times are integer milliseconds; those that are stored are of the wall clock.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from disqued.config.settings import Settings
from disqued.core.model.clock import Clock
from disqued.core.model.outbox import Record
from disqued.persistence.disk import Disk
from disqued.persistence.interface import IStore, StoreError, StoreFailed
from disqued.persistence.rewrite_status import Rewrites
from disqued.persistence.sqlite.compaction import Compaction, Upkeep
from disqued.persistence.sqlite.database_files import DatabaseFiles
from disqued.persistence.sqlite.log import ALWAYS
from disqued.persistence.sqlite.pending import PendingNotes
from disqued.persistence.sqlite.reading import DatabaseReader, check_database
from disqued.persistence.sqlite.rows import Note
from disqued.persistence.sqlite.schema import prepare
from disqued.persistence.sqlite.writer import NoteSlices, Writer
from disqued.persistence.worker import FromThreads, WorkerThread

RECORDS_PER_SLICE: Final = 500  #: of a replacement

T = TypeVar("T")


@implementer(IStore)
class SqliteStore:
    """One database, for one node."""

    log = Logger()
    records = True

    def __init__(
        self, path: Path, config: Settings, *, clock: Clock, reactor: IReactorTime, disk: Disk | None = None
    ) -> None:
        """Take the settings appendfsync, sqlite-history, aof-load-truncated and aof-enqueue-jobs-once."""
        self.restores_queues: bool = False
        self._clock = clock
        self._reactor = reactor
        self._files = DatabaseFiles(path, disk or Disk())
        self._reader: DatabaseReader | None = None  #: None = there is no database yet
        self._worker: WorkerThread | None = None
        self._writer = Writer(path, self._files.disk)
        self._pending = PendingNotes(clock)
        self._has_queues = False  #: the rows tell where jobs are, until the next commit
        self._failure: str | None = None  #: why nothing is taken any more
        self._last_error: str | None = None  #: why the last commit failed
        self._is_open = False
        self._is_loaded = False
        self._rewrites = Rewrites(clock)
        self._upkeep = Upkeep(self._writer, clock)
        self._renewal: _Renewal | None = None
        self.configure(config)

    @property
    def bytes_total(self) -> int:
        return self._reader.bytes_total if self._reader else 0

    @property
    def bytes_loaded(self) -> int:
        return self._reader.bytes_loaded if self._reader else 0

    def open(self) -> None:
        config = self._config
        self._reader = self._files.open(synced=config.appendfsync == ALWAYS, cut_torn=config.aof_load_truncated)
        self._is_open = True
        self._has_queues = self._reader is not None and self._reader.has_queues
        enqueue_once = config.aof_enqueue_jobs_once
        self.restores_queues = enqueue_once and self._has_queues
        if enqueue_once and not self._has_queues:
            self.log.warn(
                "aof-enqueue-jobs-once: {path} was not written by SHUTDOWN REWRITE-AOF; queues are not restored",
                path=str(self._files.path),
            )

    def load(self) -> "Iterator[Record | Deferred[None]]":
        reader = self._reader
        if not self._is_open or self._worker is not None:
            raise StoreError("a store is loaded once, after it is opened")
        begun = _Outcome(self._begin())
        checked = _Outcome(self._ask(partial(check_database, self._files.path)))
        if reader is not None:
            try:
                yield from reader
            finally:
                reader.close()
            self._pending.begin_at(reader.next_number)
        for outcome in (begun, checked):
            yield outcome.over
            outcome.check()
        if self._has_queues:
            taken_back = _Outcome(self._ask(self._writer.take_back_queues))
            yield taken_back.over
            taken_back.check()
            self._has_queues = False
        self._is_loaded = True

    def renew(self) -> "Deferred[None]":
        if not self._is_open or self._worker is not None:
            raise StoreError("a store is loaded or emptied once, after it is opened")
        if self._reader is not None:
            self._reader.close()
        answer = self._begin()
        answer.addCallback(lambda _: self._ask(self._writer.renew))
        answer.addCallback(self._renewed)
        return answer

    def _renewed(self, _: None) -> None:
        self._has_queues = False
        self._pending.begin_at(1)
        self._is_loaded = True

    def _begin(self) -> "Deferred[None]":
        self._worker = WorkerThread(cast(FromThreads, self._reactor), "sqlite-write")
        return self._ask(partial(self._open_writer, self._config.appendfsync))

    def _open_writer(self, appendfsync: str) -> None:
        """Begin to write, on the writer's thread: to make a database takes long, and a loop may be running."""
        if self._reader is None:
            prepare(self._files.path, self._files.disk)
        self._writer.open(appendfsync)

    def _ask(self, function: Callable[[], T]) -> "Deferred[T]":
        assert self._worker is not None
        return self._worker.call(function)

    def append(self, records: list[Record]) -> None:
        if self._failure is None or self._renewal is not None:
            self._pending.append(records)

    def commit(self) -> "Deferred[None] | None":
        if not self._is_loaded:
            raise StoreError("a database takes records after it is loaded, not before")
        self._check()
        if not self._pending.notes:
            return None
        notes = self._pending.take()
        answer = self._ask(
            partial(self._writer.commit, notes, keeps_history=self._keeps_history, take_back=self._has_queues)
        )
        answer.addCallbacks(self._committed, self._not_committed, errbackArgs=(notes,))
        return answer

    def look(self) -> None:
        if not self._is_loaded or self._renewal is not None:
            return
        try:
            self._check()
            self._files.lock.look()
            self._writer.log.look()
        except StoreFailed as error:
            self._failure = str(error)
            raise

    def _check(self) -> None:
        failure = self._failure or self._writer.log.failure
        if failure is not None:
            raise StoreFailed(failure)

    def secure(self) -> "Deferred[None] | None":
        return None if self._config.appendfsync == ALWAYS else self._ask(self._writer.log.sync)

    def _committed(self, _: None) -> None:
        self._has_queues = False
        self._last_error = None

    def _not_committed(self, failure: Failure, notes: list[Note]) -> Failure:
        self._last_error = str(failure.value)
        if isinstance(failure.value, StoreFailed) and not failure.value.final:
            self._pending.put_back(notes)
        else:
            self._failure = self._last_error
            self._pending.forget()
        return failure

    def configure(self, config: Settings) -> None:
        self._config = config
        self._history_ms = config.sqlite_history * 1_000
        self._keeps_history = config.sqlite_history > 0
        if self._is_loaded:
            self._writer.log.set_fsync(config.appendfsync)

    def rewrite(self, records: Iterable[Record]) -> "Deferred[None]":
        if not self._is_loaded:
            raise StoreError("a database is rewritten after it is loaded, not before")
        if self._renewal is not None:
            self._renewal.stop()
        notes = self._pending.take()
        self._rewrites.begin()
        slices = NoteSlices()
        answer = self._replace(notes, slices, queues=True)
        answer.addCallbacks(self._rewritten, self._not_rewritten, errbackArgs=(notes,))
        rest = iter(records)
        try:
            # All of it at once: nothing may happen between the first job and the last.
            while some := list(islice(rest, RECORDS_PER_SLICE)):
                slices.put(self._pending.number(some, with_state=True))
        except BaseException as error:
            answer.addErrback(lambda _: None)
            slices.end(StoreFailed(f"the jobs could not be told: {error}", final=False))
            raise
        slices.end()
        return answer

    def _replace(self, notes: list[Note], slices: NoteSlices, *, queues: bool) -> "Deferred[None]":
        return self._ask(partial(self._writer.replace, notes, slices, keeps_history=self._keeps_history, queues=queues))

    def _rewritten(self, _: None) -> None:
        self._has_queues = True
        self._failure = self._last_error = None
        self._rewrites.end(succeeded=True)

    def _not_rewritten(self, failure: Failure, notes: list[Note]) -> Failure:
        self._rewrites.end(succeeded=False)
        if self._failure is None:
            self._not_committed(failure, notes)
        return failure

    # Compaction.

    @property
    def wants_compaction(self) -> bool:
        """Whether there is much to be deleted or given back."""
        if not self._is_loaded or self._failure or self._last_error or self._rewrites.under_way:
            return False
        return self._upkeep.is_due(self._history_ms, self._files.size)

    def compact(self, records: Iterator[Record | None]) -> None:
        if not self._is_loaded or self._worker is None:
            raise StoreError("a database is compacted while it is in use")
        if self._rewrites.under_way:
            raise StoreError("the database is being compacted already")
        has_failed = self._failure is not None or self._writer.log.failure is not None
        if has_failed:
            self._writer.check_place()
        self._rewrites.begin()
        self._upkeep.begin(self._history_ms)
        if has_failed:
            self._write_anew(records)
            return
        compaction = Compaction(
            self._writer,
            self._clock.wall() - self._history_ms,
            lambda error: cast(FromThreads, self._reactor).callFromThread(self._compacted, error),
        )
        self._worker.idle(compaction.step)

    def _compacted(self, error: StoreFailed | None) -> None:
        if not self._rewrites.under_way:
            return
        self._rewrites.end(succeeded=error is None)
        if error is not None:
            self.log.error("The database was not compacted: {reason}", reason=str(error))

    def _write_anew(self, records: Iterator[Record | None]) -> None:
        """Make a database that failed good again: all that the node knows replaces what it holds.

        What happens meanwhile is kept, and committed after it.
        """
        self._failure = self._failure or self._writer.log.failure
        self._pending.forget()
        self._files.lock.take_again()
        slices = NoteSlices()
        self._renewal = _Renewal(self._reactor, slices, self._pending.slices(records, RECORDS_PER_SLICE))
        answer = self._replace([], slices, queues=False)
        answer.addCallbacks(self._written_anew, self._not_written_anew)
        self._renewal.go_on()

    def _written_anew(self, _: None) -> None:
        self._renewal = None
        self._has_queues = False
        self._failure = self._last_error = None
        self._rewrites.end(succeeded=True)

    def _not_written_anew(self, failure: Failure) -> None:
        self._renewal = None
        self._pending.forget()
        self.log.error("The database was not written anew: {reason}", reason=str(failure.value))
        self._rewrites.end(succeeded=False)

    def status(self) -> dict[str, int | str]:
        is_open = self._is_loaded and self._worker is not None
        return {
            **self._rewrites.status(writes=not (self._failure or self._last_error)),
            "aof_pending_bio_fsync": int(is_open and self._writer.log.is_syncing),
            "sqlite_file": str(self._files.path),
            "sqlite_size": self._files.size,
            "sqlite_wal_size": self._files.wal_size,
            "sqlite_free_bytes": self._writer.free_bytes,
            "sqlite_oldest_fact": self._writer.oldest_fact or 0,
            "sqlite_records_waiting": len(self._pending.notes),
            "sqlite_queued_transactions": self._worker.waiting if self._worker else 0,
        }

    def discard(self) -> "Deferred[None] | None":
        self._is_loaded = False
        self._pending.forget()
        answer = self.close()
        if answer is None:
            self._files.remove()
            return None
        return answer.addCallback(lambda _: self._files.remove())

    def close(self) -> "Deferred[None] | None":
        if self._reader is not None:
            self._reader.close()
        worker, self._worker = self._worker, None
        if worker is None:
            self._files.lock.release()
            return None
        if self._renewal is not None:
            self._renewal.stop()
        worker.idle(None)
        self._rewrites.give_up()
        answer = worker.call(partial(self._end, self._pending.notes))
        answer.addBoth(self._let_go, worker)
        return answer

    def _end(self, notes: list[Note]) -> None:
        """The last call of the writer's thread."""
        if self._is_loaded and self._failure is None and self._writer.log.failure is None:
            self._writer.close(notes, keeps_history=self._keeps_history, take_back=self._has_queues)
        else:
            self._writer.abandon()

    def _let_go(self, result: Any, worker: WorkerThread) -> Any:
        self._is_loaded = False
        worker.end()
        self._files.lock.release()
        return result


class _Outcome:
    """How something in the background ended, kept until somebody looks."""

    def __init__(self, answer: "Deferred[None]") -> None:
        self._failure: Failure | None = None
        #: Fires when it is over, well or not.
        self.over: Deferred[None] = answer.addErrback(self._keep)

    def _keep(self, failure: Failure) -> None:
        self._failure = failure

    def check(self) -> None:
        if self._failure is not None:
            self._failure.raiseException()


class _Renewal:
    """Gives the writer all that a node knows, slice by slice, between the turns of the loop."""

    PAUSE_S = 0.01  #: while the writer has enough to do

    def __init__(self, reactor: IReactorTime, slices: NoteSlices, draw: Iterator[list[Note]]) -> None:
        self._reactor = reactor
        self._slices = slices
        self._draw = draw
        self._call: IDelayedCall | None = None

    def go_on(self) -> None:
        """Give a slice, and come back."""
        try:
            more = self._slices.put_if_room(self._draw)
        except Exception as error:
            self._slices.end(error)
            return
        if more:
            self._call = self._reactor.callLater(self.PAUSE_S, self.go_on)
        else:
            self._call = None
            self._slices.end()

    def stop(self) -> None:
        """Give no more: what is there stays as it is."""
        if self._call is not None and self._call.active():
            self._call.cancel()
            self._slices.end(StoreFailed("the database was closed before it was written anew"))
