"""The files of TLS, read when a connection is opened, and read again when they have changed.

Certificates are renewed on the disk, some of them every day; a client that read them once would use the old ones to its
end.  Reading those that the system trusts takes tens of milliseconds, so nothing is read again that is the same.
"""

import os
from collections.abc import Callable
from typing import Generic, TypeVar

from disqued.client.errors import NotTrusted
from disqued.client.tls import Tls

C = TypeVar("C")
#: Of each file: when it was changed, its size, its number on the disk.
Stamp = tuple[tuple[int, int, int], ...]


class RenewedContext(Generic[C]):
    """What a library makes of the files, up to date."""

    def __init__(self, tls: Tls, build: Callable[[Tls], C]) -> None:
        """Read the files.  Raises ValueError when that is not possible."""
        self._tls = tls
        self._build = build
        try:
            self._built = _stamp(tls), build(tls)  # in one, so that threads may ask at the same time
        except (OSError, ValueError) as error:
            raise ValueError(f"TLS: {error}") from error

    def get(self) -> C:
        """Give it, made anew if a file has changed.  Raises NotTrusted when that is not possible."""
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
