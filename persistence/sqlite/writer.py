"""The writer of the database: one connection, and all that is done with it on its thread.

    commit    the notes of some turns of the loop                 as durable as the policy says
    replace   notes, and then all jobs, in slices as they come    durable, whatever the policy says
    renew     nothing, in place of everything                     durable
    trim, give_back, shorten_log                                  a slice of a compaction each

Whatever fails is told as StoreFailed; what it was part of is undone, and nothing has changed.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from threading import BoundedSemaphore
from typing import Final

from disqued.core.model.outbox import JOB_ADDED
from disqued.persistence.disk import Disk
from disqued.persistence.interface import StoreError, StoreFailed
from disqued.persistence.sqlite.log import CUTTING, WriteAheadLog
from disqued.persistence.sqlite.reading import check_database, oldest_fact
from disqued.persistence.sqlite.rows import Note
from disqued.persistence.sqlite.schema import (
    BUSY_S,
    DATABASE_ERRORS,
    NUMBERED,
    connect_writer,
    prepare,
    set_has_queues,
    set_patience,
    set_watermark,
    wal_path,
    write_failure_of,
)
from disqued.persistence.sqlite.synced import index_path, synced_path
from disqued.persistence.sqlite.transaction import Transaction

SLICES_AHEAD: Final = 16  #: slices of a replacement that wait for the writer at most
ROWS_PER_LOOK = 4_096  #: rows written between two looks at how many pages are free


class NoteSlices:
    """Slices of notes on their way to the writer; who gives them waits when the writer is slower."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[list[Note] | BaseException | None] = SimpleQueue()
        self._room = BoundedSemaphore(SLICES_AHEAD)
        self._ended = False

    def put(self, notes: list[Note]) -> None:
        """Give a slice, when there is room."""
        self._room.acquire()
        self._queue.put(notes)

    def put_if_room(self, draw: Iterator[list[Note]]) -> bool:
        """Draw a slice and give it, if there is room; False at the end."""
        if not self._room.acquire(blocking=False):
            return True
        notes = next(draw, None)
        if notes is None:
            self._room.release()
            return False
        self._queue.put(notes)
        return True

    def end(self, error: BaseException | None = None) -> None:
        """That was all; or it is not, and nothing is to be replaced."""
        self._queue.put(error)

    def __iter__(self) -> Iterator[list[Note]]:
        while (item := self._next()) is not None:
            yield item

    def _next(self) -> list[Note] | None:
        if self._ended:
            return None
        item = self._queue.get()
        if isinstance(item, list):
            self._room.release()
            return item
        self._ended = True
        if item is not None:
            raise item
        return None

    def drain(self) -> None:
        """Take what comes and forget it, so that nobody waits for room."""
        with suppress(BaseException):
            for _ in self:
                pass


class Writer:
    """Used on one thread, but for what is said to be read by others."""

    log: WriteAheadLog

    def __init__(self, path: Path, disk: Disk) -> None:
        """Take the path of a database that is up to date."""
        self.oldest_fact: int | None = None  #: time of the first job that is over; read by others
        self.free_bytes: int = 0  #: pages of the file that hold nothing; read by others
        self._path = path
        self._disk = disk
        self._connection: sqlite3.Connection
        self._rows_unseen = 0
        self._is_open = False

    def open(self, fsync: str) -> None:
        """Begin.  Raises StoreFailed."""
        try:
            self._connection = connect_writer(self._path)
            try:
                # The log is there once somebody has read.
                self.oldest_fact = oldest_fact(self._connection)
                self._look()
                self.log = WriteAheadLog(self._path, self._disk, fsync)
                try:
                    self._disk.sync_directory(self._path.parent)
                except BaseException:
                    self.log.end()
                    self._connection.close()
                    self.log.let_go()
                    raise
                self._is_open = True
            except BaseException:
                self._connection.close()
                raise
        except (*DATABASE_ERRORS, OSError) as error:
            raise write_failure_of(error, self._path) from error

    def close(self, notes: list[Note], *, keeps_history: bool, take_back: bool) -> None:
        """Write what is left, make everything durable, and end.  Raises StoreFailed."""
        try:
            if notes:
                self.commit(notes, keeps_history=keeps_history, take_back=take_back)
            self.log.sync()
            self.log.checkpoint(self._connection)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """End, as things are."""
        if self._is_open:
            self._is_open = False
            self.log.end()
            self._connection.close()
            self.log.let_go()
            with suppress(OSError):
                if not wal_path(self._path).exists():
                    synced_path(self._path).unlink()

    # Transactions.

    @contextmanager
    def _transaction(self, *, keeps_history: bool = True) -> Iterator[Transaction]:
        """Begin a transaction, and commit it; after an error nothing has changed.  Raises StoreFailed."""
        execute = self._connection.execute
        try:
            execute("BEGIN IMMEDIATE")
            try:
                transaction = Transaction(self._connection, keeps_history=keeps_history)
                yield transaction
                execute("COMMIT")
            except BaseException:
                # SQLite may have rolled back itself.
                with suppress(sqlite3.Error):
                    execute("ROLLBACK")
                raise
        except DATABASE_ERRORS as error:
            raise self._told(write_failure_of(error, self._path)) from error
        if transaction.oldest_fact is not None and self.oldest_fact is None:
            self.oldest_fact = transaction.oldest_fact

    def _told(self, failure: StoreFailed) -> StoreFailed:
        return self.log.fail(failure) if failure.final else failure

    def commit(self, notes: list[Note], *, keeps_history: bool, take_back: bool) -> None:
        """Write notes in one transaction; `take_back` says that queues are not known any more.  Raises StoreFailed."""
        self.log.begin()
        try:
            with self._transaction(keeps_history=keeps_history) as transaction:
                transaction.write(notes)
                if take_back:
                    set_has_queues(self._connection, value=False)
        except StoreFailed as error:
            if not error.final:
                # What the log has given to the database is room for the next attempt.
                self.log.checkpoint(self._connection)
            raise
        self.log.committed(len(notes), sum(len(note[4]) for note in notes if note[0] == JOB_ADDED))
        if self.log.wants_last_piece():
            self.log.checkpoint(self._connection)
        self._rows_unseen += len(notes)
        if self._rows_unseen >= ROWS_PER_LOOK:
            self._look()

    def take_back_queues(self) -> None:
        """Queues are not known any more.  Raises StoreFailed."""
        with self._transaction():
            set_has_queues(self._connection, value=False)
        self.log.sync()

    def renew(self) -> None:
        """Delete everything.  Raises StoreFailed."""
        with self._transaction():
            for table in NUMBERED:
                self._connection.execute(f"DELETE FROM {table}")  # noqa: S608 - a name of ours
            set_has_queues(self._connection, value=False)
            set_watermark(self._connection, 0)
        self.oldest_fact = None
        self.log.sync()
        self._look()

    def replace(self, notes: list[Note], slices: NoteSlices, *, keeps_history: bool, queues: bool) -> None:
        """Write notes, and then let the slices be all jobs and pauses; `queues` says whether they tell the places.

        After a failure that was final the file is checked, too: only then can it be trusted again.
        Raises StoreError; then everything is what it was.
        """
        failed = self.log.failure is not None
        try:
            if failed and not self.log.has_all_files:
                self._begin_again()
            with self._transaction(keeps_history=keeps_history) as transaction:
                transaction.write(notes)
                transaction.replace(slices)
                set_has_queues(self._connection, value=queues)
        finally:
            slices.drain()
        try:
            self._make_durable(check=failed)
        except StoreFailed:
            # The node goes on, so that the places will not be true for long.
            with suppress(StoreFailed), self._transaction():
                set_has_queues(self._connection, value=False)
            raise
        self._look()

    def check_place(self) -> None:
        """Raise StoreFailed where another file lies in place of the database, which a new one must not overwrite."""
        path = self._path
        if path.exists() and not self.log.is_own(path):
            raise StoreFailed(f"{path} is not the file that was in use, or was cut off: move it away first")

    def _begin_again(self) -> None:
        """Make a new database where files of this one were taken away.  Raises StoreFailed."""
        self.check_place()
        path = self._path
        fsync, why = self.log.fsync, self.log.failure
        self.abandon()
        try:
            for each in (path, wal_path(path), index_path(path), synced_path(path)):
                each.unlink(missing_ok=True)
            prepare(path, self._disk)
        except OSError as error:
            raise StoreFailed(f"{path}: {error.strerror}") from error
        except StoreError as error:
            raise StoreFailed(str(error)) from error
        self.open(fsync)
        self.log.fail(StoreFailed(why or ""))

    def _make_durable(self, *, check: bool) -> None:
        """Get the last transaction into the database itself.  Raises StoreFailed."""
        if check:
            self.log.forgive()
        self.log.sync()
        self.log.checkpoint(self._connection)
        if check:
            try:
                check_database(self._path)
            except StoreError as error:
                raise self.log.fail(StoreFailed(str(error))) from error

    # Compaction.

    def trim(self, statement: str, before: int) -> int:
        """Execute a statement that deletes some of what is over and older; returns how much.  Raises StoreFailed."""
        with self._transaction():
            deleted = self._connection.execute(statement, {"before": before}).rowcount
        self.log.has_grown(deleted)
        return deleted

    def give_back(self, pages: int) -> bool:
        """Give some free pages back to the system; False when there is none left.  Raises StoreFailed."""
        try:
            self._look()
            before = self.free_bytes
            # It stops after one page for those who do not ask to the end.
            self._connection.execute(f"PRAGMA incremental_vacuum({pages:d})").fetchall()
            self._look()
        except DATABASE_ERRORS as error:
            raise self._told(write_failure_of(error, self._path)) from error
        self.log.has_grown(pages)
        return 0 < self.free_bytes < before

    def shorten_log(self) -> None:
        """Cut the log off, if nobody reads in it; find out what is over.  Raises StoreFailed."""
        set_patience(self._connection, 0)
        try:
            self.log.checkpoint(self._connection, CUTTING)
            self.oldest_fact = oldest_fact(self._connection)
        except DATABASE_ERRORS as error:
            raise self._told(write_failure_of(error, self._path)) from error
        finally:
            set_patience(self._connection, BUSY_S)

    def _look(self) -> None:
        """Find out how much of the file is free; what cannot be told now is told the next time."""
        with suppress(*DATABASE_ERRORS):
            (free,) = self._connection.execute("PRAGMA freelist_count").fetchone()
            (page_size,) = self._connection.execute("PRAGMA page_size").fetchone()
            self.free_bytes = free * page_size
        self._rows_unseen = 0
