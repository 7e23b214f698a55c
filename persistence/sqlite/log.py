"""The write-ahead log of the database: forced to the disk, and moved into the database when it has grown.

    COMMIT      appends pages to FILE-wal: from then on they survive the end of the process
    always      the writer syncs the log before it answers
    everysec    a thread of its own syncs it, at once and then at most once a second while there is need
    no          the system does, when it likes

    FILE-wal --checkpoint--> FILE     in that thread, too, beside the commits; from the start of the log again when
                                      nobody reads in it

A checkpoint syncs the log before and the database after, whatever the policy: a power cut costs transactions from the
end, never the sense of the rest.  A commit that comes while a checkpoint runs makes the log longer; when it does
not end because commits never pause, the writer does the last piece itself, between two of them.  Somebody who reads
for long keeps the log from beginning anew; commits go on, and the log grows.

The first sync that fails is the last: what the system did with the data is unknown.

Source: https://www.sqlite.org/wal.html, "Checkpointing", "Avoiding Excessively Large WAL Files".
"""

import os
import sqlite3
from pathlib import Path
from threading import Condition, Thread
from typing import Final

from twisted.logger import Logger

from disqued.persistence.disk import Disk
from disqued.persistence.interface import StoreFailed
from disqued.persistence.sqlite.schema import DATABASE_ERRORS, connect, wal_path, write_failure_of

ALWAYS: Final = "always"
EVERYSEC: Final = "everysec"

PERIOD_S = 1.0  #: pause between two syncs
CHECKPOINT_BYTES = 32 << 20  #: what is written between two checkpoints, as far as one can tell beforehand
LONG_LOG_BYTES = 128 << 20  #: a log so long has not begun anew for a while
BYTES_PER_ROW = 4_096  #: a row changes about one page of its own: that of its id, which is nowhere near the others


class Log:
    """The log of one database; used by its writer, and by the thread that it starts."""

    log = Logger()

    def __init__(self, path: Path, disk: Disk, fsync: str) -> None:
        """Take the path of a database that a connection is open to."""
        self.failure: str | None = None  #: why nothing is durable any more
        self._path = path
        self._disk = disk
        self._fsync = fsync
        self._fd = disk.append_to(wal_path(path))
        self._thread = Thread(target=self._keep, name="sqlite-sync", daemon=True)
        self._lock = Condition()
        # What follows is guarded by the lock.
        self._unsynced = False
        self._syncing = False
        self._written = 0  #: bytes since the last checkpoint, estimated
        self._is_long = False  #: checkpoints do not get to the end
        self._moving = False  #: the thread is within a checkpoint
        self._ending = False
        self._thread.start()

    @property
    def is_syncing(self) -> bool:
        """True while the thread waits for the disk."""
        return self._syncing

    @property
    def size(self) -> int:
        """Bytes of the file, used or not."""
        return os.fstat(self._fd).st_size

    def set_fsync(self, fsync: str) -> None:
        """Change the policy, from the next commit on."""
        with self._lock:
            self._fsync = fsync
            self._lock.notify_all()

    def check(self) -> None:
        """Raise StoreFailed when a sync has failed."""
        if self.failure is not None:
            raise StoreFailed(self.failure)

    def committed(self, rows: int, size: int) -> None:
        """Give a transaction that has just been committed the durability of the policy.  Raises StoreFailed."""
        self.has_grown(rows, size)
        if self._fsync == ALWAYS:
            self.sync()

    def has_grown(self, rows: int, size: int = 0) -> None:
        """Take notice of a transaction that changed so many rows, with bodies of so many bytes."""
        with self._lock:
            self._written += rows * BYTES_PER_ROW + size
            self._unsynced = True
            self._lock.notify_all()

    def sync(self) -> None:
        """Wait until all that was committed is on the disk.  Raises StoreFailed."""
        self.check()
        try:
            self._disk.fdatasync(self._fd)
        except OSError as error:
            raise self.fail(write_failure_of(error, self._path)) from error
        # The error of a sync is told to one caller only, who may have been the thread.
        self.check()

    def wants_last_piece(self) -> bool:
        """Tell, once, that the writer is to do a checkpoint itself."""
        with self._lock:
            is_long, self._is_long = self._is_long, False
        return is_long

    def wait_for_checkpoint(self, seconds: float) -> bool:
        """Wait for the thread to end a checkpoint, for so long at most; False when it has not."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._moving, seconds)

    def checkpoint(self, connection: sqlite3.Connection, mode: str = "PASSIVE") -> None:
        """Move the log into the database, as far as readers allow; the connection is the caller's.

        Raises StoreFailed when nothing can be trusted after it; a disk that is full only leaves the log long.
        """
        with self._lock:
            self._written = 0
        try:
            _, pages, _ = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
            (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        except DATABASE_ERRORS as error:
            failure = write_failure_of(error, self._path)
            if failure.final:
                raise self.fail(failure) from error
            self.log.warn("The log of the database stays long: {why}", why=str(failure))
            return
        with self._lock:
            # What was committed meanwhile is not counted: only a writer that pauses gets to the end.
            self._is_long = pages * page_size > LONG_LOG_BYTES

    def end(self) -> None:
        """Stop the thread and let go of the file."""
        with self._lock:
            self._ending = True
            self._lock.notify_all()
        self._thread.join()
        self._disk.close(self._fd)

    def forgive(self) -> None:
        """Forget a failure: everything has been written anew."""
        self.failure = None

    def fail(self, failure: StoreFailed) -> StoreFailed:
        """Let nothing be durable any more; returns why, for the first failure is the reason of all the others."""
        if self.failure is None:
            self.failure = str(failure)
        return StoreFailed(self.failure)

    # The thread.

    def _keep(self) -> None:
        try:
            connection = connect(self._path, busy_s=0)
        except DATABASE_ERRORS as error:
            self.fail(write_failure_of(error, self._path))
            return
        try:
            while self._wait():
                if self._syncing:
                    self._sync_beside()
                if self._written >= CHECKPOINT_BYTES and self.failure is None:
                    self._checkpoint_beside(connection)
                with self._lock:
                    self._lock.wait_for(lambda: self._ending, PERIOD_S)
        finally:
            connection.close()

    def _wait(self) -> bool:
        """Wait for something to do; False when there is nothing more to come."""
        with self._lock:
            self._lock.wait_for(
                lambda: self._ending or (self.failure is None and (self._must_sync() or self._must_move()))
            )
            self._syncing = not self._ending and self._must_sync()
            if self._syncing:
                self._unsynced = False
            return not self._ending

    def _must_sync(self) -> bool:
        return self._unsynced and self._fsync == EVERYSEC

    def _must_move(self) -> bool:
        return self._written >= CHECKPOINT_BYTES

    def _sync_beside(self) -> None:
        try:
            self._disk.fdatasync(self._fd)
        except OSError as error:
            self.fail(write_failure_of(error, self._path))
        self._syncing = False

    def _checkpoint_beside(self, connection: sqlite3.Connection) -> None:
        with self._lock:
            self._moving = True
        try:
            self.checkpoint(connection)
        except StoreFailed as error:
            self.log.error("Moving the log into the database failed: {why}", why=str(error))
        with self._lock:
            self._moving = False
            self._lock.notify_all()
