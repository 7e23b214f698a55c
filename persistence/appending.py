"""The file that grows: written once per commit, and forced to the disk as `appendfsync` says.

    always     commit: write, fdatasync
    everysec   commit: write                a thread: fdatasync at once, then at most once a second while there is need
    no         commit: write                the system syncs when it likes

A write to a file that is being synced may wait for the sync, so under `everysec` a commit that finds the thread at
work leaves its records with it: they are written as soon as the sync is over, or after `POSTPONED_S` in any case.
A disk that keeps up loses at most a second to a power cut; a slow one at most what came since its last sync began
and, for those 2 s, to a kill -9 as well.

The first error is the last: what the system did with data that it could not write or sync is unknown, so no commit
succeeds after it.

Source: Redis and Disque, src/aof.c (flushAppendOnlyFile).
"""

from threading import Condition, Lock, Thread
from typing import Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from disqued.persistence.disk import Disk, write_all
from disqued.persistence.interface import StoreFailed

ALWAYS: Final = "always"
EVERYSEC: Final = "everysec"
NO: Final = "no"

POSTPONED_S = 2.0  #: how long records wait for a sync that is late
PERIOD_S = 1.0  #: pause between two syncs of the thread


class Appender:
    """A file open for appending; used on one thread, and shared with the one that it starts."""

    def __init__(self, disk: Disk, fd: int, size: int, fsync: str, reactor: IReactorTime) -> None:
        """Take an open file with its size in bytes; it is closed by `close`."""
        self.size: int = size  #: bytes in the file, as far as writes succeeded
        self.failure: str | None = None  #: why nothing is written any more
        self.late_syncs: int = 0  #: times that a sync took so long that records were written beside it
        self._disk = disk
        self._fd = fd
        self._fsync = fsync
        self._reactor = reactor
        self._late_call: IDelayedCall | None = None
        self._thread: Thread | None = None
        # What follows is shared with the thread: the lock guards it, the condition tells of changes.
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._waiting: list[bytes] = []  #: committed, not written: a sync is running
        self._unsynced = False
        self._syncing = False
        self._syncs = 0  #: syncs begun by the thread
        self._awaited_sync = 0  #: the one that `_late_call` gives its time to
        self._is_late = False  #: the sync that is running was waited for long enough
        self._is_idle = False  #: the thread waits for something to sync
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
            self._waiting += chunks
            if self._syncing and not self._is_late and self._fsync == EVERYSEC:
                self._postpone()
                return
            self._write()
            if self._fsync == ALWAYS:
                self._sync()
            elif self._fsync == EVERYSEC and self._unsynced:
                self._wake_thread()

    def abandon(self) -> None:
        """Close the file as it is: nobody will read it, or nobody may rely on it."""
        self._stop_thread()
        self._disk.close(self._fd)

    def close(self) -> None:
        """Write and sync what there is, and close the file.  Raises StoreFailed."""
        self._stop_thread()
        try:
            with self._lock:
                self._write()
                self._sync()
        finally:
            self._disk.close(self._fd)

    # With the lock held.

    def _write(self) -> None:
        """Write all that waits."""
        self._check()
        if not self._waiting:
            return
        data = b"".join(self._waiting)
        self._waiting = []
        try:
            write_all(self._disk, self._fd, data)
        except OSError as error:
            self._fail(error)
        self.size += len(data)
        self._unsynced = True

    def _sync(self) -> None:
        # An error is told to one caller only: when the thread is at it, wait for what it hears.
        self._changed.wait_for(lambda: not self._syncing)
        self._check()
        if not self._unsynced:
            return
        try:
            self._disk.fdatasync(self._fd)
        except OSError as error:
            self._fail(error)
        self._unsynced = False

    def _check(self) -> None:
        if self.failure is not None:
            self._waiting = []
            raise StoreFailed(self.failure)

    def _fail(self, error: OSError) -> None:
        self.failure = error.strerror or str(error)
        self._waiting = []
        raise StoreFailed(self.failure) from error

    # The late sync.

    def _postpone(self) -> None:
        """Leave what waits to the thread, or to `_write_late`, whichever comes first."""
        if self._waiting and self._late_call is None:
            self._awaited_sync = self._syncs
            self._late_call = self._reactor.callLater(POSTPONED_S, self._write_late)

    def _write_late(self) -> None:
        """Write beside a sync that takes too long; a failure is told by the next commit."""
        self._late_call = None
        with self._lock:
            if not self._syncing:
                return
            if self._syncs != self._awaited_sync:
                self._postpone()  # that one is over, and what waits now waits for another
                return
            self.late_syncs += 1
            self._is_late = True
            self._write_quietly()

    def _write_quietly(self) -> None:
        try:
            self._write()
        except StoreFailed:
            self._changed.notify_all()  # it is kept in `failure`

    # The thread.

    def _wake_thread(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._keep_synced, name="journal-sync", daemon=True)
            self._thread.start()
        elif self._is_idle:
            self._changed.notify()

    def _stop_thread(self) -> None:
        if self._late_call is not None:
            self._late_call.cancel()
            self._late_call = None
        with self._lock:
            self._ending = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _keep_synced(self) -> None:
        """Sync whenever there is something unsynced, with a pause in between."""
        while self._begin_sync():
            error: OSError | None = None
            try:
                self._disk.fdatasync(self._fd)
            except OSError as caught:
                error = caught
            self._end_sync(error)

    def _begin_sync(self) -> bool:
        """Wait until there is something to sync; False when there is nothing more to come."""
        with self._lock:
            self._is_idle = True
            self._changed.wait_for(lambda: self._unsynced or self._ending)
            self._is_idle = False
            if self._ending or self.failure is not None:
                return False
            self._unsynced = False
            self._syncing = True
            self._syncs += 1
            return True

    def _end_sync(self, error: OSError | None) -> None:
        with self._lock:
            self._syncing = self._is_late = False
            if error is not None:
                self.failure = error.strerror or str(error)
            self._write_quietly()
            self._changed.notify_all()
            if self.failure is None:
                self._changed.wait_for(lambda: self._ending, PERIOD_S)
