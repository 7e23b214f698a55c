"""The file that holds the process id while the daemon serves, for scripts that want to send it a signal.

It is a regular file or not there yet: a symbolic link would have its target overwritten, and a pipe would be waited
for.  What stands in the file at the end is looked at before it is removed: another node may have taken it since.
"""

import os
import stat
from pathlib import Path

from twisted.logger import Logger

MODE = 0o644
_ALLOWED = "allowed is a regular file, or none yet, in a folder that the node may write"


class PidFileError(Exception):
    """The file cannot be written; `str()` begins with its path and says what would do."""


class PidFile:
    """One such file."""

    log = Logger()

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = b"%d\n" % os.getpid()

    def write(self) -> None:
        """Put the id of this process there.  Raises PidFileError."""
        try:
            # Truncated only once it is known to be a file.
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, MODE)
            with open(descriptor, "wb", buffering=0) as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise PidFileError(f"pidfile {self._path}: this is no regular file; {_ALLOWED}")
                file.truncate()
                file.write(self._text)
        except OSError as error:
            reason = "this is a symbolic link" if self._path.is_symlink() else error.strerror
            raise PidFileError(f"pidfile {self._path}: {reason}; {_ALLOWED}") from None

    def remove(self) -> None:
        """Remove it, if it is still ours."""
        try:
            if self._path.is_file() and self._path.read_bytes() == self._text:
                self._path.unlink()
        except OSError as error:
            self.log.warn("pidfile {path} stays: {reason}", path=str(self._path), reason=error.strerror)
