"""Files that hold secrets: of tokens, of the cluster's secret.

Who can read such a file can act for whoever it is meant for, so one that every user of the machine may read is refused.
"""

import os
import stat
from pathlib import Path


class PrivateFileError(Exception):
    """The file is not there, or open to others; `str()` begins with its path and says what would do."""


def read_private(path: Path, most: int) -> bytes:
    """Read the first `most` bytes of a file.  Raises PrivateFileError."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(most)
    except OSError as error:
        raise PrivateFileError(f"{path}: {error.strerror}") from None
    if mode & stat.S_IROTH:
        raise PrivateFileError(
            f"{path}: every user of this machine may read it (mode {stat.S_IMODE(mode):o}); allowed are modes such as"
            " 600 and 640"
        )
    return data
