"""The lock of a store's files: one process uses them, and notices when somebody takes the lock away."""

import contextlib
from pathlib import Path

from disqued.persistence.disk import Disk, FileWatch
from disqued.persistence.interface import StoreFailed, StoreLocked


class FileLock:
    """A file beside those of a store, locked while the store is open."""

    def __init__(self, store: Path, disk: Disk, what: str) -> None:
        """Name the lock after the path of a store; `what` says in errors what the store is."""
        self.path = store.with_name(store.name + ".lock")
        self._disk = disk
        self._what = what
        self._watch = FileWatch(disk)
        self._fd: int | None = None
        self._is_new = False  #: this object created the file

    def take(self) -> None:
        """Keep every other process off the files.  Raises StoreLocked, StoreFailed."""
        try:
            self._is_new = not self.path.exists()
            self._fd = self._disk.lock(self.path)
            if self._fd is not None:
                self._watch.keep(self.path)
        except OSError as error:
            raise StoreFailed(f"{self.path}: {error.strerror}") from error
        if self._fd is None:
            raise StoreLocked(
                f"{self.path}: another process uses this {self._what}; end it, or give this one another `dir`"
            )

    def take_again(self) -> None:
        """Lock the files again if the lock was taken away.  Raises StoreLocked, StoreFailed, OSError."""
        if self._fd is None or not self._disk.has_name(self._fd, self.path):
            self.release()
            self.take()

    def look(self) -> None:
        """Raise StoreFailed if the lock was taken away or replaced."""
        self._watch.look()

    def release(self, *, tidy: bool = False) -> None:
        """Let other processes use the files; with `tidy` the lock is there afterwards only if it was before."""
        if self._fd is not None:
            if tidy and self._is_new:
                with contextlib.suppress(OSError):
                    self.path.unlink()
            self._disk.close(self._fd)
            self._fd = None
