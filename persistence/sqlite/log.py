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

Behind each sync it is written down how much of the log is on the disk (`synced`).  The database and its log are looked
for with each commit under `always`, and all files every second: what is written to one that was taken away is lost with
the process.

The first sync that fails is the last: what the system did with the data is unknown.

Source: https://www.sqlite.org/wal.html, "Checkpointing", "Avoiding Excessively Large WAL Files".
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Condition, Thread
from typing import Final

from twisted.logger import Logger

from disqued.persistence.disk import Disk, FileWatch
from disqued.persistence.interface import StoreFailed
from disqued.persistence.sqlite.schema import DATABASE_ERRORS, PAGE_SIZE, connect, wal_path, write_failure_of
from disqued.persistence.sqlite.synced import Frames, forget_synced, index_path, read_index, synced_path

ALWAYS: Final = "always"
EVERYSEC: Final = "everysec"
CUTTING: Final = "TRUNCATE"  #: the kind of checkpoint that cuts the log off

PERIOD_S = 1.0  #: pause between two syncs
CHECKPOINT_BYTES = 32 << 20  #: what is written between two checkpoints, as far as one can tell beforehand
LONG_LOG_BYTES = 128 << 20  #: a log so long has not begun anew for a while
BYTES_PER_ROW = 4_096  #: a row changes about one page of its own: that of its id, which is nowhere near the others


class WriteAheadLog:
    """The log of one database; used by its writer, and by the thread that it starts."""

    log = Logger()

    def __init__(self, path: Path, disk: Disk, fsync: str) -> None:
        """Take the path of a database that a connection is open to."""
        self.failure: str | None = None  #: why nothing is durable any more
        self._path = path
        self._disk = disk
        self.fsync: str = fsync  #: the policy
        self._fd = disk.append_to(wal_path(path))
        self._index_fd = os.open(index_path(path), os.O_RDONLY | os.O_CLOEXEC)
        self._synced_fd = os.open(synced_path(path), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._watch = FileWatch(disk)
        for each in (path, wal_path(path), index_path(path)):
            self._watch.keep(each)
        self._watch.keep_size(path, disk.size(path))
        self._thread = Thread(target=self._keep, name="sqlite-sync", daemon=True)
        self._lock = Condition()
        # What follows is guarded by the lock.
        self._unsynced = False
        self.is_syncing = False  #: the thread waits for the disk
        self._written = 0  #: bytes since the last checkpoint, estimated
        self._is_long = False  #: checkpoints do not get to the end
        self._moving = False  #: the thread is within a checkpoint
        self._least_size = 0  #: of the log
        self._checkpoints = 0  #: under way, in whatever thread
        self._cuts = 0  #: times that the log began or ended to be cut off: odd while it is
        self._ending = False
        self._thread.start()

    @property
    def size(self) -> int:
        """Bytes of the file, used or not."""
        return os.fstat(self._fd).st_size

    def set_fsync(self, fsync: str) -> None:
        """Change the policy, from the next commit on."""
        with self._lock:
            self.fsync = fsync
            self._lock.notify_all()

    def check(self) -> None:
        """Raise StoreFailed when a sync has failed."""
        if self.failure is not None:
            raise StoreFailed(self.failure)

    def begin(self) -> None:
        """See whether a transaction can be made durable, before it begins.  Raises StoreFailed.

        What is written hides that a file was cut off.
        """
        self.check()
        if self.fsync == ALWAYS:
            self._look_at_log()

    def committed(self, rows: int, size: int) -> None:
        """Give a transaction that has just been committed the durability of the policy.  Raises StoreFailed."""
        self.has_grown(rows, size)
        if self.fsync == ALWAYS:
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
        cuts, frames = self._cuts, read_index(self._index_fd)
        try:
            self._disk.fdatasync(self._fd)
            self._note_synced(frames, cuts)
        except OSError as error:
            raise self.fail(write_failure_of(error, self._path)) from error
        # The error of a sync is told to one caller only, who may have been the thread.
        self.check()
        self._least_size = 0 if frames is None else frames.log_size(PAGE_SIZE)
        self._look_at_log()

    def _look_at_log(self) -> None:
        """See whether the log is there, and the database; cheap enough for each commit.  Raises StoreFailed."""
        status, least = os.fstat(self._fd), self._least_size
        path = wal_path(self._path)
        if not status.st_nlink:
            raise self.fail(StoreFailed(f"{path} was taken away or replaced while it was in use"))
        if status.st_size < least:
            what = f"it has {status.st_size} bytes of {least}"
            raise self.fail(StoreFailed(f"{path} was cut off while it was in use: {what}"))
        try:
            self._watch.look((self._path,))
        except StoreFailed as error:
            raise self.fail(error) from error

    def _note_synced(self, frames: Frames | None, cuts: int) -> None:
        """Write down what is on the disk now, unless the log was cut off since the frames were counted.

        Raises OSError.
        """
        with self._lock:
            if frames is not None and cuts == self._cuts and not cuts % 2:
                os.pwrite(self._synced_fd, frames.to_bytes(), 0)

    @contextmanager
    def _forgotten(self) -> Iterator[None]:
        """Let nothing say how long the log is while it is cut off: a crash would be taken for damage.

        Raises StoreFailed.
        """
        with self._lock:
            self._cuts += 1
            try:
                forget_synced(self._path)
            except OSError as error:
                raise self.fail(write_failure_of(error, self._path)) from error
        try:
            yield
        finally:
            with self._lock:
                self._cuts += 1

    def look(self) -> None:
        """See whether the files are there.  Raises StoreFailed."""
        try:
            self._look()
        except StoreFailed:
            # The log may have begun anew while we looked.
            try:
                self._look()
            except StoreFailed as error:
                raise self.fail(error) from error

    def _look(self) -> None:
        frames = read_index(self._index_fd)
        if frames is not None:
            self._watch.keep_size(wal_path(self._path), frames.log_size(PAGE_SIZE))
        self._watch.look()

    @property
    def has_all_files(self) -> bool:
        """Whether the files are those that it was made for."""
        return self._is_sound(None)

    def _is_sound(self, paths: tuple[Path, ...] | None) -> bool:
        try:
            self._watch.look(paths)
        except StoreFailed:
            return False
        return True

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
            self._least_size = 0
            self._checkpoints += 1
            self._watch.keep_size(self._path, 0)
        try:
            with self._forgotten() if mode == CUTTING else nullcontext():
                self._checkpoint(connection, mode)
        finally:
            with self._lock:
                self._checkpoints -= 1
                if not self._checkpoints:
                    # Nothing else changes the length of the database.
                    with suppress(OSError):
                        self._watch.keep_size(self._path, self._disk.size(self._path))

    def _checkpoint(self, connection: sqlite3.Connection, mode: str) -> None:
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
        """Stop the thread and let go of the files, but for the index: `let_go` is to follow."""
        with self._lock:
            self._ending = True
            self._lock.notify_all()
        self._thread.join()
        if self.failure is None:
            with suppress(OSError):
                forget_synced(self._path)
        self._disk.close(self._fd)
        os.close(self._synced_fd)

    def let_go(self) -> None:
        """Close the index, after every connection: that ends the locks which this process has on it."""
        os.close(self._index_fd)

    def is_own(self, path: Path) -> bool:
        """Return whether a file that was there from the start is the one that has this name now."""
        return self._is_sound((path,))

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
                if self.is_syncing:
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
            self.is_syncing = not self._ending and self._must_sync()
            if self.is_syncing:
                self._unsynced = False
            return not self._ending

    def _must_sync(self) -> bool:
        return self._unsynced and self.fsync == EVERYSEC

    def _must_move(self) -> bool:
        return self._written >= CHECKPOINT_BYTES

    def _sync_beside(self) -> None:
        cuts, frames = self._cuts, read_index(self._index_fd)
        try:
            self._disk.fdatasync(self._fd)
            self._note_synced(frames, cuts)
        except OSError as error:
            self.fail(write_failure_of(error, self._path))
        self.is_syncing = False

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
