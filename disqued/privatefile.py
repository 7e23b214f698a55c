"""Files that hold secrets: of tokens, of the cluster's secret.

Who can read such a file can act for whoever it is meant for, and who can write it makes himself whoever he likes: one
that every user of the machine may read or write is refused.
"""

import os
import stat
from pathlib import Path


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


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)
