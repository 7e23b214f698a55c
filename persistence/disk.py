"""The file system as the stores use it: a method for each step, so that a test can make any of them fail."""

import errno
import fcntl
import os
from collections.abc import Iterable
from pathlib import Path

from disqued.persistence.interface import StoreFailed


class Disk:
    """Calls the operating system; raises OSError as it does."""

    def create(self, path: Path) -> int:
        """Open a new file for appending; what stood under that name is gone."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o640)

    def append_to(self, path: Path) -> int:
        """Open a file that exists for appending."""
        return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Write some of the data; return how much."""
        return os.write(fd, data)

    def fdatasync(self, fd: int) -> None:
        """Wait until what was written to a file, and its length, are on the disk."""
        os.fdatasync(fd)

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file, durably."""
        fd = self.append_to(path)
        try:
            self.cut(fd, size)
            self.fdatasync(fd)
        finally:
            self.close(fd)

    def cut(self, fd: int, size: int) -> None:
        """Cut an open file; durable with its next sync."""
        os.ftruncate(fd, size)

    def identity(self, path: Path) -> tuple[int, int]:
        """What tells the file that has this name from every other that had it."""
        return self.identity_and_size(path)[0]

    def identity_and_size(self, path: Path) -> tuple[tuple[int, int], int]:
        """The same, and how many bytes the file has."""
        status = os.stat(path)
        return (status.st_dev, status.st_ino), status.st_size

    def size(self, path: Path) -> int:
        """Bytes of a file."""
        return self.identity_and_size(path)[1]

    def rename(self, old: Path, new: Path) -> None:
        """Give a file another name, in place of whatever has it."""
        os.replace(old, new)

    def sync_directory(self, path: Path) -> None:
        """Wait until the names in a directory are on the disk."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def remove(self, path: Path) -> None:
        path.unlink()

    def close(self, fd: int) -> None:
        os.close(fd)

    def has_name(self, fd: int, path: Path) -> bool:
        """Return whether an open file is the one that has this name."""
        try:
            return os.path.samestat(os.fstat(fd), path.stat())
        except FileNotFoundError:
            return False

    def lock(self, path: Path) -> int | None:
        """Lock a file for this process alone; None when another has it.  The lock ends with the descriptor."""
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if self.has_name(fd, path):
                    return fd
            except OSError as error:
                os.close(fd)
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    return None
                raise
            # Who had it has removed it meanwhile: it keeps nobody out any more.
            os.close(fd)


class FileWatch:
    """Watches the files of a running store: none may be replaced or become shorter.

    What is written to a file that was removed or replaced is lost with the process, and no write says so.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._identities: dict[Path, tuple[int, int]] = {}
        self._sizes: dict[Path, int] = {}  #: bytes that each has at least

    def keep(self, path: Path, size: int = 0) -> None:
        """Watch the file that has this name now.  Raises OSError."""
        self._identities[path] = self._disk.identity(path)
        self._sizes[path] = size

    def keep_size(self, path: Path, size: int) -> None:
        """Let a file have so many bytes at least from now on; harmless where it is not watched."""
        if path in self._sizes:
            self._sizes[path] = size

    def forget(self) -> None:
        self._identities.clear()
        self._sizes.clear()

    def look(self, paths: Iterable[Path] | None = None) -> None:
        """Look at these files, or all.  Raises StoreFailed."""
        for path in list(self._identities) if paths is None else paths:
            self._look_at(path)

    def _look_at(self, path: Path) -> None:
        known, least = self._identities.get(path), self._sizes.get(path, 0)
        if known is None:
            return
        try:
            identity, size = self._disk.identity_and_size(path)
        except OSError as error:
            raise StoreFailed(f"{path} was taken away while it was in use: {reason(error)}") from error
        if identity != known:
            raise StoreFailed(f"{path} was replaced while it was in use")
        if size < least:
            raise StoreFailed(f"{path} was cut off while it was in use: it has {size} bytes of {least}")


def reason(error: OSError) -> str:
    """The system's word for what went wrong."""
    return error.strerror or str(error)


def write_all(disk: Disk, fd: int, data: bytes) -> None:
    """Write all of the data, in as many writes as the system wants.  Raises OSError."""
    rest: bytes | memoryview = data
    while True:
        written = disk.write(fd, rest)
        if written == len(rest):
            return
        if written <= 0:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rest = memoryview(rest)[written:]
