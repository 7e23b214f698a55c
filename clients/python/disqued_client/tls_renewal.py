"""TLS files: checked when a connection is opened, and read again when they have changed.

Certificates are renewed on disk, some of them every day; a client that read them once would keep using the old ones.
Reading those of the system takes tens of milliseconds, so unchanged files are not read again.
"""

import os
from collections.abc import Callable
from typing import Generic, TypeVar

from .errors import NotTrusted
from .tls import Tls

C = TypeVar("C")
#: Of each file: modification time, size, inode.
Stamp = tuple[tuple[int, int, int], ...]


class RenewedContext(Generic[C]):
    """A TLS context that follows changes of its files."""

    def __init__(self, tls: Tls, build: Callable[[Tls], C]) -> None:
        """Read the files.  Raises ValueError when that fails."""
        self._tls = tls
        self._build = build
        try:
            self._built = _stamp(tls), build(tls)  # one assignment, so that threads may call `get` concurrently
        except (OSError, ValueError) as error:
            raise ValueError(f"TLS: {error}") from error

    def get(self) -> C:
        """Return the context, rebuilt if a file has changed.  Raises NotTrusted when that fails."""
        try:
            stamp, built = _stamp(self._tls), self._built
            if stamp != built[0]:
                built = self._built = stamp, self._build(self._tls)
        except (OSError, ValueError) as error:
            raise NotTrusted(f"the files of TLS have changed and cannot be used: {error}") from error
        return built[1]


def _stamp(tls: Tls) -> Stamp:
    found = map(os.stat, tls.files.values())
    return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in found)
