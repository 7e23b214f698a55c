"""The file that grows: written once per commit, and forced to the disk as `appendfsync` says.

    always     commit: write, fdatasync
    everysec   commit: write                a thread: fdatasync at once, then at most once a second while there is need
    no         commit: write                the system syncs when it likes

A write to a file that is being synced may have to wait until the sync is over.  The reactor must not, so that under
`everysec` a second thread writes what is committed during a sync, and the commit waits for it for `PATIENCE_S`: what
is written survives the end of the process.  When the system keeps even that thread waiting, commits return at once,
for `BACKLOG_S` at most; from then on they wait as long as it takes.

So a power cut costs what was committed since the last sync began: about a second, when the disk keeps up.  A kill -9
costs nothing, unless a write hangs at that moment.

The first error is the last: what the system did with data that it could not write or sync is unknown, so that no
commit succeeds after it.

Source: Redis and Disque, src/aof.c (flushAppendOnlyFile), which postpone the write itself for up to 2 s.
"""

from collections.abc import Callable
from threading import Condition, Lock, Thread
from typing import Final

from twisted.internet.interfaces import IReactorTime

from disqued.persistence.disk import Disk, write_all
from disqued.persistence.interface import StoreFailed

ALWAYS: Final = "always"
EVERYSEC: Final = "everysec"
NO: Final = "no"

PERIOD_S = 1.0  #: pause between two syncs
PATIENCE_S = 0.02  #: how long a commit waits for a write beside a sync
BACKLOG_S = 2.0  #: how long commits return although a write hangs


class Appender:
    """A file open for appending; used on one thread, and shared with those that it starts."""

    def __init__(self, disk: Disk, fd: int, size: int, fsync: str, reactor: IReactorTime) -> None:
        """Take an open file with its size in bytes; it is closed by `close` or `abandon`."""
        self.size: int = size  #: bytes in the file, as far as writes succeeded
        self.failure: str | None = None  #: why nothing is written any more
        self.late_syncs: int = 0  #: times that commits stopped waiting for a write beside a sync
        self._disk = disk
        self._fd = fd
        self._fsync = fsync
        self._reactor = reactor
        self._hanging_since: float | None = None  #: seconds of the reactor; None while writes do not hang
        self._threads: list[Thread] = []
        # What follows is shared with the threads, and guarded by the lock.
        self._lock = Lock()
        self._to_sync = Condition(self._lock)  #: told to the syncing thread
        self._to_write = Condition(self._lock)  #: told to the writing thread
        self._settled = Condition(self._lock)  #: told by both when they are done
        self._waiting: list[bytes] = []  #: committed, not written
        self._unsynced = False
        self._writing = False  #: the writing thread is at it
        self._syncing = False  #: the syncing thread is at it
        self._sync_wanted = False  #: the syncing thread waits for something to sync
        self._ending = False

    @property
    def is_syncing(self) -> bool:
        """True while the thread waits for the disk."""
        return self._syncing

    def set_fsync(self, fsync: str) -> None:
        """Change the policy, from the next commit on."""
        self._fsync = fsync

    def commit(self, chunks: list[bytes]) -> None:
        """Append the chunks, as durably as the policy says.  Raises StoreFailed."""
        with self._lock:
            self._check()
            self._waiting += chunks
            if self._fsync == EVERYSEC:
                self._commit_everysec()
                return
            self._settle()
            self._write()
            if self._fsync == ALWAYS:
                self._sync()

    def close(self) -> None:
        """Write and sync what there is, and close the file.  Raises StoreFailed."""
        self._stop_threads()
        try:
            with self._lock:
                self._check()
                self._write()
                self._sync()
        finally:
            self._disk.close(self._fd)

    def abandon(self) -> None:
        """Close the file as it is: nobody will read it, or nobody may rely on it."""
        self._stop_threads()
        self._disk.close(self._fd)

    # With the lock held.

    def _commit_everysec(self) -> None:
        if not self._threads:
            self._start(self._keep_written, "journal-write")
            self._start(self._keep_synced, "journal-sync")
        if self._syncing or self._writing:
            self._write_beside()
        else:
            self._write()
            if self._sync_wanted and self._unsynced:
                self._to_sync.notify()

    def _write_beside(self) -> None:
        """Have the writing thread write what waits, and wait for it as long as that is right."""
        if not self._waiting:
            return
        self._to_write.notify()
        limit: float | None = PATIENCE_S
        if self._hanging_since is not None:
            limit = 0 if self._reactor.seconds() - self._hanging_since < BACKLOG_S else None
        if self._settled.wait_for(self._is_written, limit):
            self._hanging_since = None
            self._check()
        elif self._hanging_since is None:
            self._hanging_since = self._reactor.seconds()
            self.late_syncs += 1

    def _is_written(self) -> bool:
        return not self._writing and not self._waiting

    def _settle(self) -> None:
        """Wait until no thread is at the file: an error of a sync is told to one caller only, who may be the thread."""
        if self._threads:
            self._settled.wait_for(lambda: not self._writing and not self._syncing)
            self._check()

    def _write(self) -> None:
        """Write all that waits."""
        if not self._waiting:
            return
        data = b"".join(self._waiting)
        self._waiting = []
        try:
            write_all(self._disk, self._fd, data)
        except OSError as error:
            raise self._fail(error) from error
        self.size += len(data)
        self._unsynced = True

    def _sync(self) -> None:
        if not self._unsynced:
            return
        try:
            self._disk.fdatasync(self._fd)
        except OSError as error:
            raise self._fail(error) from error
        self._unsynced = False

    def _check(self) -> None:
        if self.failure is not None:
            raise StoreFailed(self.failure)

    def _fail(self, error: OSError) -> StoreFailed:
        if self.failure is None:
            self.failure = error.strerror or str(error)
        self._waiting = []
        return StoreFailed(self.failure)

    # The threads.

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
        while data := self._next_to_write():
            error = _error_of(write_all, self._disk, self._fd, data)
            with self._lock:
                self._writing = False
                if error is not None:
                    self._fail(error)
                else:
                    self.size += len(data)
                    self._unsynced = True
                    self._to_sync.notify()
                self._settled.notify()

    def _next_to_write(self) -> bytes:
        """Wait for something to write; nothing when there is nothing more to come."""
        with self._lock:
            self._to_write.wait_for(lambda: self._waiting or self._ending)
            if self._ending:
                return b""
            data = b"".join(self._waiting)
            self._waiting = []
            self._writing = True
            return data

    def _keep_synced(self) -> None:
        """Sync whenever there is something unsynced, with a pause in between."""
        while self._begin_sync():
            error = _error_of(self._disk.fdatasync, self._fd)
            with self._lock:
                self._syncing = False
                if error is not None:
                    self._fail(error)
                self._settled.notify()
                self._to_sync.wait_for(lambda: self._ending, PERIOD_S)

    def _begin_sync(self) -> bool:
        """Wait until there is something to sync; False when there is nothing more to come."""
        with self._lock:
            self._sync_wanted = True
            self._to_sync.wait_for(lambda: self._unsynced or self._ending)
            self._sync_wanted = False
            if self._ending or self.failure is not None:
                return False
            self._unsynced = False
            self._syncing = True
            return True


def _error_of(call: Callable[..., None], *arguments: object) -> OSError | None:
    """Call something; return how the system refused it."""
    try:
        call(*arguments)
    except OSError as error:
        return error
    return None
