"""Files that are not for every user of the machine: those that hold secrets, and what is written of jobs.

Who can read a file with a secret can act for whoever it is meant for, and who can write it makes himself whoever he
likes: one that every user of the machine may read or write is refused.  What is written beside its place, to be renamed
when it is whole, may be in a folder where others write, too: it is made anew, and no link of theirs is followed.
"""

import os
import stat
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


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
