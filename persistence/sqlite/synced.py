"""What of the write-ahead log is known to be on the disk: a small file beside the database, FILE-synced.

    commit, sync of the log --> FILE-synced: so many frames, of the log with these salts
    start                   --> fewer good frames than that: damage, and not an end that was torn

SQLite takes the frames of its log up to the first wrong checksum and says nothing about the rest, so that a changed
bit in the last transaction looks like a transaction that was never finished.  This file tells them apart.  It is
written in place after each sync and not synced itself: whatever a power cut leaves of it, a whole one is true, and it
says less than there is at worst.

    "DISQSYNC", salts 8 as they stand in the log, frames 4, sums of the last one 8, CRC-32 of all that 4

SQLite keeps these numbers at the start of its index, FILE-shm, twice, in the order of the machine.
Source: https://www.sqlite.org/walformat.html, "The WAL-Index Header".
"""

import os
from pathlib import Path
from struct import Struct, error
from typing import Final
from zlib import crc32

import attrs

_FILE: Final = Struct("<8s8sIII")
_CRC: Final = Struct("<I")
_MAGIC: Final = b"DISQSYNC"
_INDEX: Final = Struct("=16xI4xII8s")  #: of one of the two: frames, sums of the last one, salts
_INDEX_SIZE: Final = 48
FRAME_SIZE: Final = 24  #: bytes before the page of a frame
LOG_HEADER_SIZE: Final = 32


@attrs.frozen
class Frames:
    """A number of good frames of one log."""

    salts: bytes
    count: int
    sums: tuple[int, int]  #: of the last one

    def log_size(self, page_size: int) -> int:
        """Bytes that the log has at least."""
        return LOG_HEADER_SIZE + self.count * (FRAME_SIZE + page_size) if self.count else 0

    def to_bytes(self) -> bytes:
        data = _FILE.pack(_MAGIC, self.salts, self.count, *self.sums)
        return data + _CRC.pack(crc32(data))


def synced_path(path: Path) -> Path:
    """The file beside a database."""
    return path.with_name(path.name + "-synced")


def forget_synced(path: Path) -> None:
    """Let nothing say, whatever a power cut leaves, that there is a log.  Raises OSError.

    It is called before the last connection closes: that puts the log into the database and removes it.
    """
    try:
        descriptor = os.open(synced_path(path), os.O_WRONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.ftruncate(descriptor, 0)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def index_path(path: Path) -> Path:
    """The index of the log of a database."""
    return path.with_name(path.name + "-shm")


def read_index(descriptor: int) -> Frames | None:
    """Return what the index of the log says; None while it is being changed."""
    data = os.pread(descriptor, 2 * _INDEX_SIZE, 0)
    if len(data) < 2 * _INDEX_SIZE or data[:_INDEX_SIZE] != data[_INDEX_SIZE:]:
        return None
    count, first, second, salts = _INDEX.unpack_from(data)
    return Frames(salts, count, (first, second))


def read_synced(path: Path) -> Frames | None:
    """Return what was on the disk for certain; None where that is not known.  Raises OSError."""
    try:
        data = synced_path(path).read_bytes()
    except FileNotFoundError:
        return None
    try:
        magic, salts, count, first, second = _FILE.unpack_from(data)
        (check,) = _CRC.unpack_from(data, _FILE.size)
    except error:
        return None
    if magic != _MAGIC or check != crc32(data[: _FILE.size]):
        return None
    return Frames(salts, count, (first, second))
