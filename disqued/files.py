"""Private files and atomic replacement: secrets are read, files with jobs are created, settings and users are replaced.

Anyone who can read a secret can act for its owner, and anyone who can write it can become anyone: a file that every
user of the machine may read or write is refused.  A file that is written next to its final place, to be renamed when it
is complete, may be in a folder where other users write, too: it is created afresh, and no link of theirs is followed.
"""

import contextlib
import os
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO, Final

MODE: Final = 0o640  #: of files with jobs, as the stores make them


class PrivateFileError(Exception):
    """The file is not there, or open to others; `str()` begins with its path and says what would do."""


def read_private(path: Path, most: int) -> bytes:
    """Read the first `most` bytes of a file.  Raises PrivateFileError."""
    try:
        # Of a pipe, which would keep us waiting for a writer, no more than its kind is found out.
        with open(path, "rb", opener=_open_at_once) as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(most) if stat.S_ISREG(mode) else b""
    except OSError as error:
        raise PrivateFileError(f"{path}: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise PrivateFileError(f"{path}: this is no regular file; nothing else is allowed")
    for bit, what in ((stat.S_IROTH, "read"), (stat.S_IWOTH, "write")):
        if mode & bit:
            raise PrivateFileError(
                f"{path}: every user of this machine may {what} it (mode {stat.S_IMODE(mode):o}); allowed are modes"
                " such as 600 and 640"
            )
    return data


def create_anew(path: Path, mode: int = MODE) -> BinaryIO:
    """Make a file, whatever had its name, and open it for writing; the umask takes from the mode.  Raises OSError."""
    path.unlink(missing_ok=True)
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb")


def replace_file(path: Path, content: bytes, mode: int | None = None, *, is_private: bool = False) -> None:
    """Put a file in place of another, whole or not at all, with this mode or that of the other. Raises: OSError.

    With `is_private` users who are neither its owner nor of its group may not do with it what they could.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name[:64]}.", dir=path.parent)
    try:
        with open(descriptor, "wb") as file:
            _take_over_permissions(descriptor, path, 0o770 if is_private else 0o777)
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    _sync_folder(path.parent)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _take_over_permissions(descriptor: int, path: Path, mask: int) -> None:
    """Give an open file the owner, as far as that is allowed, and the mode of another, if that exists."""
    with contextlib.suppress(FileNotFoundError):
        status = path.stat()
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, status.st_uid, status.st_gid)
        os.fchmod(descriptor, status.st_mode & mask)


def _sync_folder(path: Path) -> None:
    """Make the new name durable too."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
