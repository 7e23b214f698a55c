"""A disk in memory: what was written, what of it is safe, and what a crash makes of the rest.

    data    [ synced | written, not synced ]
    crash     kept     any prefix of it kept, the last record torn, zeros where sectors were never written

One file that grows at its end, which is all that a journal needs; `replace` is the file that is written aside, synced
and renamed.  A full disk takes a part of what it is given and raises ENOSPC; one whose sync fails raises EIO and
promises nothing about what was not synced before.
"""

import errno
import os
from random import Random

SECTOR = 512  #: bytes that a disk writes whole or not at all, where it leaves zeros in their place


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


class SimDisk:
    """One append-only file, and the faults of the disk that it is on."""

    __slots__ = ("_rng", "data", "fails_sync", "is_full", "synced")

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.data = bytearray()
        self.synced: int = 0  #: bytes that no crash takes away
        self.is_full: bool = False
        self.fails_sync: bool = False

    @property
    def unsynced(self) -> int:
        """Bytes that a crash may take away."""
        return len(self.data) - self.synced

    def append(self, data: bytes) -> None:
        """Write at the end, all of it or nothing.  Raises OSError."""
        if self.is_full:
            raise _error(errno.ENOSPC)
        self.data += data

    def sync(self) -> None:
        """Make safe what was written.  Raises OSError."""
        if self.fails_sync:
            raise _error(errno.EIO)
        self.synced = len(self.data)

    def truncate(self, size: int) -> None:
        """Cut the end off, and make sure of it."""
        del self.data[size:]
        self.synced = size

    def replace(self, data: bytes) -> None:
        """Put another file in the place of this one, at once and for good.  Raises OSError."""
        if self.is_full:
            raise _error(errno.ENOSPC)
        if self.fails_sync:
            raise _error(errno.EIO)
        self.data = bytearray(data)
        self.synced = len(self.data)

    def lose_power(self) -> bool:
        """Keep what is safe, and what chance keeps of the rest; say whether anything is lost."""
        written = len(self.data)
        kept = self._rng.randint(self.synced, written)
        if self._rng.random() < 0.5:
            # The size of a file may be on the disk before what is in it: the last sectors are zeros then.
            kept = max(self.synced, kept - kept % SECTOR)
            self.data[kept:] = bytes(written - kept) if kept % SECTOR == 0 else b""
        else:
            del self.data[kept:]
        self.synced = len(self.data)
        return kept < written

    def wipe(self) -> None:
        """Lose everything."""
        self.truncate(0)
