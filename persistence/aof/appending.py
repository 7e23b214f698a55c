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

A compaction begins another file (`move`).  Nothing is written to that one before all of this one is on the disk, so
that a power cut never leaves a gap; meanwhile commits wait as they do during a sync.

    a write fails    what it left is cut off; all that was committed is kept, in order, and written by a later commit
    a sync fails     what the system did with the data is unknown: no commit to this file succeeds any more

Source: Redis and Disque, src/aof.c (flushAppendOnlyFile), which postpone the write itself for up to 2 s.
"""

from threading import Condition, Lock, Thread
from typing import Final

from twisted.internet.interfaces import IReactorTime

from disqued.persistence.aof.segments import HEADER_SIZE, Chunk, SegmentWriter, number_of
from disqued.persistence.disk import Disk, reason
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
        self.segment = SegmentWriter(disk, fd, size, first)  #: the file in use
        self.failure: str | None = None  #: why writing has stopped; final
        self.trouble: str | None = None  #: why the last write failed; its chunks are kept
        self.late_syncs: int = 0  #: times that commits stopped waiting for a write beside a sync
        self._disk = disk
        self._fsync = fsync
        self._reactor = reactor
        self._following = first  #: number of the record after the last that was committed
        self._hanging_since: float | None = None  #: seconds of the reactor; None while writes do not hang
        self._threads: list[Thread] = []
        # The segment and what follows are shared with the threads, and guarded by the lock.
        self._lock = Lock()
        self._to_sync = Condition(self._lock)  #: notifies the syncing thread
        self._to_write = Condition(self._lock)  #: notifies the writing thread
        self._settled = Condition(self._lock)  #: both threads notify it when they are done
        self._waiting: list[Chunk] = []  #: committed, not written; begins with a frame
        self._kept_bytes = 0  #: committed since the trouble began
        self._retry = False  #: the writing thread is to try again now
        self._wanted = 0  #: a caller waits for the records before this number to be durable
        self._writing = False  #: the writing thread is writing
        self.moving_to: int | None = None  #: descriptor of the file that `move` named, until it is in use
        self._holds_syncs = False
        self._ending = False

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
            if self._writing or self.segment.syncs or self.moving_to is not None:
                self._settle()
            self._write()
            if (error := self.segment.sync()) is not None:
                raise self._fail(error) from error

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
                return number <= self.segment.written
        return self.secure(number)

    def secure(self, number: int) -> bool:
        """Return whether every record before this number is durable; if not, a thread sees to it.

        Raises StoreFailed.
        """
        with self._lock:
            self._check()
            durable = self.segment.durable
            if number > durable:
                self._wanted = max(self._wanted, number)
                self._start_threads()
                self._to_sync.notify()
            return number <= durable

    def sync_ahead(self) -> None:
        """Sync what there is so far, on a thread of the caller's, so that `move` is quick.  Raises StoreFailed."""
        with self._lock:
            self._check()
            segment = self.segment
            if not segment.is_unsynced:
                return
            durable = segment.begin_sync()
        error = segment.sync_begun()
        with self._lock:
            segment.end_sync(durable, error)
            self._to_sync.notify()
            self._settled.notify()
            if error is not None:
                raise self._fail(error)

    def move(self, fd: int) -> None:
        """Go on in another file, which has nothing but its header and is ours from now on.  Raises StoreFailed."""
        with self._lock:
            self.moving_to = fd
            self._check()
            is_free = not self._writing and not self.segment.syncs
            if self._fsync == ALWAYS and is_free and (error := self.segment.sync()) is not None:
                raise self._fail(error) from error
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
                if self.moving_to is not None:
                    if (error := self.segment.sync()) is not None:
                        raise self._fail(error) from error
                    self._move()
                self._write()
                if (error := self.segment.sync()) is not None:
                    raise self._fail(error) from error
                self.segment.write_last_mark()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the file as it is: nobody will read it, or nobody may rely on it."""
        self._stop_threads()
        self.segment.close()
        if self.moving_to is not None:
            self._disk.close(self.moving_to)
            self.moving_to = None

    # With the lock held.

    def _take(self, chunks: list[Chunk], following: int) -> None:
        """Take chunks to be written.  Raises StoreFailed."""
        if self.failure is not None:
            raise StoreFailed(self.failure)
        self._waiting += chunks
        self._following = following
        if self.trouble is None:
            return
        self._kept_bytes += sum(map(len, chunks))
        if self._kept_bytes > KEPT_BYTES:
            self._waiting = []
            self.failure = f"{self.trouble}, and more than {KEPT_BYTES >> 20} MiB could not be written meanwhile"
            raise StoreFailed(self.failure)

    def _commit_at_once(self) -> None:
        if self._fsync == EVERYSEC:
            self._start_threads()
        if self.segment.syncs or self._writing or self.moving_to is not None:
            self._start_threads()
            self._write_beside()
        else:
            self._write()
            if self.segment.is_unsynced:
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
            lambda: self.failure is not None or not (self._writing or self.segment.syncs or self.moving_to is not None)
        )
        self._check()

    def _write(self) -> None:
        if not self._waiting:
            return
        chunks, self._waiting = self._waiting, []
        segment = self.segment
        error, size = segment.write(chunks, segment.mark)
        if error is not None:
            raise self._take_back(error, chunks) from error
        self.trouble = None
        self._kept_bytes = 0
        segment.note_written(size, segment.mark, self._following)

    def _take_back(self, error: OSError, chunks: list[Chunk]) -> StoreFailed:
        """Cut off what a failed write left of the chunks, and keep them."""
        worse = self.segment.cut_back()
        if worse is not None:
            return self._fail(worse)
        self._waiting[:0] = chunks
        self.trouble = reason(error)
        self._to_write.notify()  # it is to try again by itself, should nobody ask for it
        return StoreFailed(self.trouble, final=False)

    def _is_ready_to_move(self) -> bool:
        return not (self.segment.is_unsynced or self._writing or self.segment.syncs)

    def _move(self) -> None:
        assert self.moving_to is not None
        self.segment.close()
        first = number_of(self._waiting[0]) if self._waiting else self._following
        self.segment = SegmentWriter(self._disk, self.moving_to, HEADER_SIZE, first)
        self.moving_to = None
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
        if self._threads:
            return
        for run, name in ((self._keep_written, "journal-write"), (self._keep_synced, "journal-sync")):
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
            error, size = self.segment.write(chunks, durable)
            with self._lock:
                self._writing = False
                if error is not None:
                    self._take_back(error, chunks)
                else:
                    self.trouble = None
                    self._kept_bytes = 0
                    self.segment.note_written(size, durable, following)
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
            return chunks, self.segment.mark, self._following

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
            error = self.segment.sync_begun()
            with self._lock:
                self.segment.end_sync(durable, error)
                if error is not None:
                    self._fail(error)
                elif self.moving_to is not None and self._is_ready_to_move():
                    self._move()
                self._settled.notify()
                self._to_sync.wait_for(
                    lambda: self._ending or self.moving_to is not None or self._wanted > self.segment.durable, PERIOD_S
                )

    def _begin_sync(self) -> int | None:
        """Wait until there is something to sync; None when no more is to come.

        Returns the number of the first record that the sync may miss.
        """
        with self._lock:
            self._to_sync.wait_for(lambda: self._ending or self.failure is not None or self._is_sync_due())
            if self._ending or self.failure is not None:
                return None
            return self.segment.begin_sync()

    def _is_sync_due(self) -> bool:
        if self.moving_to is not None:
            return not self._writing and not self.segment.syncs
        if self._wanted > self.segment.durable:
            return self.segment.is_unsynced
        return self.segment.is_unsynced and self._fsync == EVERYSEC and not self._holds_syncs
