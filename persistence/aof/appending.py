"""Appending to a segment: one write per commit, and syncs as `appendfsync` says.

    always     commit: write, fdatasync
    everysec   commit: write                a thread: fdatasync at once, then at most once a second while there is need
    no         commit: write                the system syncs when it likes

A write to a file that is being synced may have to wait until the sync is over.  The reactor must not, so that a second
thread writes what is committed during a sync, unless under `always`, and the commit waits for it for `PATIENCE_S`:
what is written survives the end of the process.  When the system keeps even that thread waiting, commits return at
once, for `BACKLOG_S` at most; from then on they wait as long as it takes.

What is much (`LargeRecord`) is never put together, checked or written on the reactor's thread: the writing thread
does all of it, under `always` as well, where the syncing thread syncs it then; the store asks `has` until it is done.

So a power cut costs what was committed since the last sync began: about a second, when the disk keeps up.  A kill -9
costs nothing, unless a write hangs at that moment.

What a sync has made durable is told with the next write, by a mark (`segments`): after a power cut it tells what was
never written from what was damaged.

A compaction begins another file (`move`).  Nothing is written to that one before all of this one is on the disk, so
that a power cut never leaves a gap; meanwhile commits wait as they do during a sync.

    a write fails    what it left is cut off; all that was committed is kept, in order, and written by a later commit
    a sync fails     what the system did with the data is unknown: no commit to this file succeeds any more

Source: Redis and Disque, src/aof.c (flushAppendOnlyFile), which postpone the write itself for up to 2 s.
"""

from collections.abc import Callable
from threading import Condition, Lock, Thread
from typing import Final

from twisted.internet.interfaces import IReactorTime

from disqued.persistence.aof.segments import HEADER_SIZE, Chunk, mark, number_of, written
from disqued.persistence.disk import Disk, reason, write_all
from disqued.persistence.interface import StoreFailed

ALWAYS: Final = "always"
EVERYSEC: Final = "everysec"
NO: Final = "no"

PERIOD_S = 1.0  #: pause between two syncs, and between two attempts of the thread to write
PATIENCE_S = 0.02  #: how long a commit waits for a write beside a sync
BACKLOG_S = 2.0  #: how long commits return although a write hangs
#: Bytes that are kept while writes fail: acknowledgements of several hundred thousand jobs.
KEPT_BYTES = 64 << 20


class Appender:
    """A file open for appending; used on one thread, and shared with those that it starts."""

    def __init__(self, disk: Disk, fd: int, size: int, fsync: str, reactor: IReactorTime, *, first: int) -> None:
        """Take an open file with its size in bytes and the number of the next record.

        The file is closed by `close` or `abandon`.
        """
        self.size: int = size  #: bytes of the file in use, up to the last record that is whole
        self.failure: str | None = None  #: why writing has stopped; final
        self.trouble: str | None = None  #: why the last write failed; its chunks are kept
        self.late_syncs: int = 0  #: times that commits stopped waiting for a write beside a sync
        #: Number of the first record that was or will be written since the last `move`.
        self.first: int = first
        self._disk = disk
        self._fd = fd
        self._fsync = fsync
        self._reactor = reactor
        self._following = first  #: number of the record after the last that was committed
        self._hanging_since: float | None = None  #: seconds of the reactor; None while writes do not hang
        self._threads: list[Thread] = []
        # What follows is shared with the threads, and guarded by the lock.
        self._lock = Lock()
        self._to_sync = Condition(self._lock)  #: notifies the syncing thread
        self._to_write = Condition(self._lock)  #: notifies the writing thread
        self._settled = Condition(self._lock)  #: both threads notify it when they are done
        self._waiting: list[Chunk] = []  #: committed, not written; begins with a frame
        self._kept_bytes = 0  #: committed since the trouble began
        self._retry = False  #: the writing thread is to try again now
        #: The file may hold bytes that are not durable: its last writer may have been killed.
        self._unsynced = size > HEADER_SIZE
        self._written = first  #: number of the first record that is not written
        #: Every record before this number is durable; 0 = what the file holds may not be.
        self._durable = 0 if self._unsynced else first
        self._wanted = 0  #: a caller waits for the records before this number to be durable
        self._mark = 0  #: every record before this number is durable, which the file does not say yet; 0 = it does
        self._writing = False  #: the writing thread is writing
        self._syncs = 0  #: threads that wait for a sync
        self.moving_to: tuple[int, int] | None = (
            None  #: descriptor and size of the file that `move` named, until it is in use
        )
        self._holds_syncs = False
        self._ending = False

    @property
    def is_syncing(self) -> bool:
        """True while a thread waits for the disk."""
        return self._syncs > 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes committed and not written."""
        with self._lock:
            return sum(map(len, self._waiting))

    def set_fsync(self, fsync: str) -> None:
        """Change the policy, from the next commit on."""
        with self._lock:
            self._fsync = fsync
            self._to_sync.notify()

    def hold_syncs(self, holds: bool) -> None:
        """Let the file go unsynced for a while, or not any more; no promise of `always` is touched."""
        with self._lock:
            self._holds_syncs = holds
            self._to_sync.notify()

    def commit(self, chunks: list[Chunk], following: int) -> None:
        """Append the chunks, as durably as the policy says; `following` is the number of the record after them.

        Raises StoreFailed: when it is not final, all is kept and the next commit tries again.
        """
        with self._lock:
            self._take(chunks, following)
            if self._fsync != ALWAYS:
                self._commit_at_once()
                return
            if self._writing or self._syncs or self.moving_to:
                self._settle()
            self._write()
            self._sync()

    def commit_beside(self, chunks: list[Chunk], following: int) -> None:
        """Have a thread do the same, where it is much; `has` tells when it is done.  Raises StoreFailed."""
        with self._lock:
            self._take(chunks, following)
            self.trouble = None
            self._start_threads()
            self._retry = True
            self._to_write.notify()

    def has(self, number: int) -> bool:
        """Return whether every record before this number is as durable as the policy says.

        Raises StoreFailed, as `commit` does.
        """
        with self._lock:
            self._check()
            if self.trouble is not None:
                raise StoreFailed(self.trouble, final=False)
            if self._fsync != ALWAYS:
                return number <= self._written
        return self.secure(number)

    def secure(self, number: int) -> bool:
        """Return whether every record before this number is durable; if not, a thread sees to it.

        Raises StoreFailed.
        """
        with self._lock:
            self._check()
            if number > self._durable:
                self._wanted = max(self._wanted, number)
                self._start_threads()
                self._to_sync.notify()
            return number <= self._durable

    def sync_ahead(self) -> None:
        """Sync what there is so far, on a thread of the caller's, so that `move` is quick.  Raises StoreFailed."""
        with self._lock:
            self._check()
            if not self._unsynced:
                return
            self._unsynced = False
            self._syncs += 1
            fd, durable = self._fd, self._written
        error = _error_of(self._disk.fdatasync, fd)
        with self._lock:
            self._syncs -= 1
            self._to_sync.notify()
            self._settled.notify()
            if error is not None:
                raise self._fail(error)
            self._mark = self._durable = durable

    def move(self, fd: int, size: int) -> None:
        """Go on in another file, which is ours from now on.  Raises StoreFailed."""
        with self._lock:
            self.moving_to = (fd, size)
            self._check()
            if self._fsync == ALWAYS and not self._writing and not self._syncs:
                self._sync()
            if self._is_ready_to_move():
                self._move()
            else:
                self._start_threads()
                self._to_sync.notify()

    def close(self) -> None:
        """Write and sync what there is, and close the file.  Raises StoreFailed."""
        self._stop_threads()
        try:
            with self._lock:
                self._check()
                if self.moving_to:
                    self._sync()
                    self._move()
                self._write()
                self._sync()
                if self._mark and self._written != self.first:
                    # Should it get lost, nothing is.
                    _error_of(write_all, self._disk, self._fd, mark(self._mark))
        finally:
            self._close()

    def abandon(self) -> None:
        """Close the file as it is: nobody will read it, or nobody may rely on it."""
        self._stop_threads()
        self._close()

    def _close(self) -> None:
        self._disk.close(self._fd)
        if self.moving_to:
            self._disk.close(self.moving_to[0])
            self.moving_to = None

    # With the lock held.

    def _take(self, chunks: list[Chunk], following: int) -> None:
        """Take chunks to be written.  Raises StoreFailed."""
        if self.failure is not None:
            raise StoreFailed(self.failure)
        self._waiting += chunks
        self._following = following
        if self.trouble is not None:
            self._keep(chunks)

    def _keep(self, chunks: list[Chunk]) -> None:
        """Count chunks that cannot be written now, while there is room for them."""
        self._kept_bytes += sum(map(len, chunks))
        if self._kept_bytes > KEPT_BYTES:
            self._waiting = []
            self.failure = f"{self.trouble}, and more than {KEPT_BYTES >> 20} MiB could not be written meanwhile"
            raise StoreFailed(self.failure)

    def _commit_at_once(self) -> None:
        if self._fsync == EVERYSEC:
            self._start_threads()
        if self._syncs or self._writing or self.moving_to:
            self._start_threads()
            self._write_beside()
        else:
            self._write()
            if self._unsynced:
                self._to_sync.notify()

    def _write_beside(self) -> None:
        """Have the writing thread write what waits, and wait for it as long as that is right."""
        if not self._waiting:
            return
        trouble, self.trouble = self.trouble, None
        self._retry = True
        self._to_write.notify()
        limit: float | None = PATIENCE_S
        if self._hanging_since is not None:
            limit = 0 if self._reactor.seconds() - self._hanging_since < BACKLOG_S else None
        if self._settled.wait_for(self._is_tried, limit):
            self._hanging_since = None
            self._check()
            if self.trouble is not None:
                raise StoreFailed(self.trouble, final=False)
        elif trouble is not None:
            self.trouble = trouble
            raise StoreFailed(trouble, final=False)
        elif self._hanging_since is None:
            self._hanging_since = self._reactor.seconds()
            self.late_syncs += 1

    def _is_tried(self) -> bool:
        """Tell whether the writing thread has written what waits, or has failed to."""
        return self.failure is not None or (not self._writing and (not self._waiting or self.trouble is not None))

    def _settle(self) -> None:
        """Wait until no thread is at the file: an error of a sync is told to one caller only, who may be the thread."""
        self._settled.wait_for(
            lambda: (not self._writing and not self._syncs and not self.moving_to) or self.failure is not None
        )
        self._check()

    def _write(self) -> None:
        """Write all that waits."""
        if not self._waiting:
            return
        chunks, self._waiting = self._waiting, []
        error, size = self._write_chunks(chunks, self._mark)
        if error is not None:
            raise self._take_back(error, chunks) from error
        self._note_written(size, self._mark, self._following)

    def _write_chunks(self, chunks: list[Chunk], durable: int) -> tuple[OSError | None, int]:
        """Write chunks, behind the mark; return how the system refused it, and how many bytes were written."""
        size = 0
        try:
            for data in written([mark(durable), *chunks] if durable else chunks):
                write_all(self._disk, self._fd, data)
                size += len(data)
        except OSError as error:
            return error, size
        return None, size

    def _note_written(self, size: int, durable: int, following: int) -> None:
        self.size += size
        if durable and self._mark == durable:
            self._mark = 0
        self.trouble = None
        self._kept_bytes = 0
        self._unsynced = True
        self._written = following

    def _take_back(self, error: OSError, chunks: list[Chunk]) -> StoreFailed:
        """Cut off what a failed write left of the chunks, and keep them."""
        try:
            self._disk.cut(self._fd, self.size)
        except OSError as worse:
            return self._fail(worse)
        self._waiting[:0] = chunks
        self.trouble = reason(error)
        self._to_write.notify()  # it is to try again by itself, should nobody ask for it
        return StoreFailed(self.trouble, final=False)

    def _sync(self) -> None:
        if not self._unsynced:
            return
        try:
            self._disk.fdatasync(self._fd)
        except OSError as error:
            raise self._fail(error) from error
        self._unsynced = False
        self._mark = self._durable = self._written

    def _is_ready_to_move(self) -> bool:
        return not (self._unsynced or self._writing or self._syncs)

    def _move(self) -> None:
        assert self.moving_to is not None
        self._disk.close(self._fd)
        self._fd, self.size = self.moving_to
        self.moving_to = None
        self._mark = 0
        self.first = number_of(self._waiting[0]) if self._waiting else self._following
        self._to_write.notify()
        self._settled.notify()

    def _check(self) -> None:
        if self.failure is not None:
            raise StoreFailed(self.failure)

    def _fail(self, error: OSError) -> StoreFailed:
        if self.failure is None:
            self.failure = reason(error)
        self._waiting = []
        self._to_write.notify()
        self._to_sync.notify()
        self._settled.notify()
        return StoreFailed(self.failure)

    # The threads.

    def _start_threads(self) -> None:
        if not self._threads:
            self._start(self._keep_written, "journal-write")
            self._start(self._keep_synced, "journal-sync")

    def _start(self, run: Callable[[], None], name: str) -> None:
        thread = Thread(target=run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _stop_threads(self) -> None:
        with self._lock:
            self._ending = True
            self._to_write.notify()
            self._to_sync.notify()
        for thread in self._threads:
            thread.join()

    def _keep_written(self) -> None:
        """Write what is committed while a sync runs."""
        while (some := self._next_to_write()) is not None:
            chunks, durable, following = some
            error, size = self._write_chunks(chunks, durable)
            with self._lock:
                self._writing = False
                if error is not None:
                    self._take_back(error, chunks)
                else:
                    self._note_written(size, durable, following)
                self._to_sync.notify()
                self._settled.notify()

    def _next_to_write(self) -> tuple[list[Chunk], int, int] | None:
        """Wait for something to write: chunks, mark, number of the record after them; None when no more is to come."""
        with self._lock:
            while not self._may_write():
                if self._ending or self.failure is not None:
                    return None
                # Nobody may come to ask for another attempt.
                self._retry = not self._to_write.wait(PERIOD_S if self.trouble else None) or self._retry
            self._retry = False
            chunks, self._waiting = self._waiting, []
            self._writing = True
            return chunks, self._mark, self._following

    def _may_write(self) -> bool:
        return (
            bool(self._waiting)
            and not self._ending
            and self.moving_to is None
            and (self.trouble is None or self._retry)
        )

    def _keep_synced(self) -> None:
        """Sync whenever there is something unsynced, with a pause in between."""
        while (durable := self._begin_sync()) is not None:
            error = _error_of(self._disk.fdatasync, self._fd)
            with self._lock:
                self._syncs -= 1
                if error is not None:
                    self._fail(error)
                else:
                    self._mark = self._durable = durable
                    if self.moving_to is not None and self._is_ready_to_move():
                        self._move()
                self._settled.notify()
                self._to_sync.wait_for(
                    lambda: self._ending or self.moving_to is not None or self._wanted > self._durable, PERIOD_S
                )

    def _begin_sync(self) -> int | None:
        """Wait until there is something to sync; None when no more is to come.

        Returns the number of the first record that the sync may miss.
        """
        with self._lock:
            self._to_sync.wait_for(lambda: self._ending or self.failure is not None or self._is_sync_due())
            if self._ending or self.failure is not None:
                return None
            self._unsynced = False
            self._syncs += 1
            return self._written

    def _is_sync_due(self) -> bool:
        if self.moving_to is not None:
            return not self._writing and not self._syncs
        if self._wanted > self._durable:
            return self._unsynced
        return self._unsynced and self._fsync == EVERYSEC and not self._holds_syncs


def _error_of(call: Callable[..., None], *arguments: object) -> OSError | None:
    """Call something; return how the system refused it."""
    try:
        call(*arguments)
    except OSError as error:
        return error
    return None
