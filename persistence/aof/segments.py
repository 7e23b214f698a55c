"""Segments, the files of a journal: frames, and how a reader distinguishes a torn end from damage.

    header   24 bytes   "DISQUEDJ", version 4, number of the first record 8 (0: the one behind the last
                        of the segment before), CRC-32 of these 20 bytes 4
    frame    20 bytes   length 4, length with every bit turned 4, number of the record 8, CRC-32 4
             payload    a record (`wire.jobdump`)
    mark     20 bytes   a frame of length 0: every record before this number was on the disk when it was written;
                        CRC-32 of the number
    frame ...

Integers are little-endian.  The records of a base are numbered, and those of all increments are, through all of them;
the CRC is that of the payload, begun with the record's number.  The second length tells a frame whose length was
damaged from one that was cut: only a sound frame can say how much is missing.

A torn end is what a crash leaves of what was written and not synced: the last frame is shorter than it says, or
sectors were never written, which read as zeros; the system may write later ones first, so that whole records can
follow.  Hence the marks: what stands before one was synced, and is damaged when sectors of it are missing.
Everything else that does not fit is damage, too.

Version 1 had no marks.
"""

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from mmap import mmap
from pathlib import Path
from struct import Struct
from typing import Any, BinaryIO, Final
from zlib import crc32

from disqued.core.model.outbox import Record
from disqued.persistence.disk import Disk, write_all
from disqued.persistence.interface import StoreDamaged
from disqued.wire.fields import BadRecord
from disqued.wire.jobdump import decode_record, decode_text, place_in_copy
from disqued.wire.pieces import LARGE, IncomingText, Pieces, Text, grouped, whole

MAGIC: Final = b"DISQUEDJ"
VERSION: Final = 2
VERSIONS: Final = (1, VERSION)
CHUNK = 1 << 20  #: bytes read at a time
SECTOR = 512  #: what a disk writes whole or not at all
#: Bytes at the start of a frame that cannot all be zeros because of one flipped bit: a length, and more of it turned.
ZEROS: Final = 5

_PREAMBLE = Struct("<8sIQ")
_CHECK = Struct("<I")
_FRAME = Struct("<IIQI")
_LENGTHS = Struct("<II")
_NUMBER = Struct("<Q")
_ONES = b"\xff" * 4
_MARK_START = bytes(4) + b"\xff" * 4
_pack_frame = _FRAME.pack
_unpack_frame = _FRAME.unpack_from
HEADER_SIZE: Final = _PREAMBLE.size + _CHECK.size
FRAME_SIZE: Final = _FRAME.size
_TURNED: Final = 0xFFFF_FFFF


def header(first: int) -> bytes:
    """The header of a segment whose first record has this number."""
    preamble = _PREAMBLE.pack(MAGIC, VERSION, first)
    return preamble + _CHECK.pack(crc32(preamble))


class LargeRecord:
    """A record that is framed by the thread that writes it: its checksum takes long."""

    __slots__ = ("payload", "sequence")

    def __init__(self, payload: Pieces, sequence: int) -> None:
        self.payload = payload
        self.sequence = sequence

    def __len__(self) -> int:
        return FRAME_SIZE + len(self.payload)

    def framed(self) -> list[bytes]:
        """The frame, and the pieces of the record."""
        check = self.sequence
        for part in self.payload.parts:
            check = crc32(part, check)
        length = len(self.payload)
        return [_pack_frame(length, length ^ _TURNED, self.sequence, check), *self.payload.parts]


Chunk = bytes | LargeRecord


def framed(payloads: Sequence[bytes], sequence: int) -> list[bytes]:
    """Payloads, each behind its frame; `sequence` is the number of the first."""
    chunks: list[Any] = chunks_of(payloads, sequence)[0]
    return chunks


def chunks_of(payloads: Sequence[Text], sequence: int) -> tuple[list[Chunk], bool]:
    """The same of payloads that may be large; returns chunks, and whether a `LargeRecord` is among them."""
    chunks: list[Chunk] = []
    is_large = False
    for payload in payloads:
        length = len(payload)
        if length > LARGE and isinstance(payload, Pieces):
            chunks.append(LargeRecord(payload, sequence))
            is_large = True
        else:
            # The checksum takes the low 32 bits of the number.
            chunks += (_pack_frame(length, length ^ _TURNED, sequence, crc32(payload, sequence)), payload)  # type: ignore[arg-type]
        sequence += 1
    return chunks, is_large


def written(chunks: Sequence[Chunk]) -> list[bytes]:
    """What is written for chunks: all of it together where no record is large."""
    try:
        return [b"".join(chunks)]  # type: ignore[arg-type]
    except TypeError:  # not all of them are bytes
        pass
    parts: list[bytes] = []
    for chunk in chunks:
        if isinstance(chunk, LargeRecord):
            parts += chunk.framed()
        else:
            parts.append(chunk)
    return grouped(parts)


def mark(number: int) -> bytes:
    """The word that every record before this number is on the disk."""
    return _pack_frame(0, _TURNED, number, crc32(_NUMBER.pack(number)))


def number_of(chunk: Chunk) -> int:
    """The number of the record behind a frame, or of a large one."""
    number: int = chunk.sequence if isinstance(chunk, LargeRecord) else _unpack_frame(chunk)[2]
    return number


def _what_is_wrong(number: int, expected: int) -> str:
    return f"the record calls itself {number}" if number != expected else "the checksum is wrong"


class SegmentWriter:
    """An open segment: what is written to it, and how much of that is durable.

    write    chunks, behind the mark         note_written, or cut_back where it failed
    sync     what is written, at once        or begin_sync, sync_begun, end_sync

    What a sync has made durable is told with the next write, by a mark.  How the system refuses something is returned
    as its error.  The user has a lock; only `write` and `sync_begun` do without.
    """

    def __init__(self, disk: Disk, fd: int, size: int, first: int) -> None:
        """Take an open file with its size in bytes and the number of the next record."""
        self.size: int = size  #: bytes of the file, up to the last record that is whole
        self.first: int = first  #: number of the first record that was or will be written by us
        self.written: int = first  #: number of the first record that is not written
        #: The file may hold bytes that are not durable: its last writer may have been killed.
        self.is_unsynced: bool = size > HEADER_SIZE
        #: Every record before this number is durable; 0 = what the file holds may not be.
        self.durable: int = 0 if self.is_unsynced else first
        self.mark: int = 0  #: every record before this number is durable, which the file does not say yet; 0 = it does
        self.syncs: int = 0  #: threads that wait for a sync
        self._disk = disk
        self._fd = fd

    def write(self, chunks: list[Chunk], durable: int) -> tuple[OSError | None, int]:
        """Write chunks, behind the mark; return how the system refused it, and how many bytes were written."""
        size = 0
        try:
            for data in written([mark(durable), *chunks] if durable else chunks):
                write_all(self._disk, self._fd, data)
                size += len(data)
        except OSError as error:
            return error, size
        return None, size

    def note_written(self, size: int, durable: int, following: int) -> None:
        """A write with this mark has succeeded; `following` is the number of the record after it."""
        self.size += size
        if durable and self.mark == durable:
            self.mark = 0
        self.is_unsynced = True
        self.written = following

    def cut_back(self) -> OSError | None:
        """Cut off what a failed write has left."""
        try:
            self._disk.cut(self._fd, self.size)
        except OSError as error:
            return error
        return None

    def sync(self) -> OSError | None:
        """Make durable what is written."""
        if not self.is_unsynced:
            return None
        try:
            self._disk.fdatasync(self._fd)
        except OSError as error:
            return error
        self.is_unsynced = False
        self.mark = self.durable = self.written
        return None

    def begin_sync(self) -> int:
        """Begin a sync on a thread; return the number of the first record that it may miss."""
        self.is_unsynced = False
        self.syncs += 1
        return self.written

    def sync_begun(self) -> OSError | None:
        """Sync the file, on the thread."""
        try:
            self._disk.fdatasync(self._fd)
        except OSError as error:
            return error
        return None

    def end_sync(self, durable: int, error: OSError | None) -> None:
        """End what `begin_sync` began, with its number and the outcome."""
        self.syncs -= 1
        if error is None:
            self.mark = self.durable = durable

    def write_last_mark(self) -> None:
        """Say in the file what is durable; should that get lost, nothing is."""
        if self.mark and self.written != self.first:
            with suppress(OSError):
                write_all(self._disk, self._fd, mark(self.mark))

    def close(self) -> None:
        self._disk.close(self._fd)


class SegmentReader:
    """Reads one segment from its start to its end, once."""

    __slots__ = ("_decode", "_file", "_first", "_path", "_pause", "_start", "_version", "good_size", "sequence", "size",
                 "torn")  # fmt: skip

    def __init__(
        self, path: Path, file: BinaryIO, first: int, sequence: int, *, start: int = 0,
        decode: Callable[[bytes], Any] = decode_record, pause: Callable[[], Any] | None = None,
    ) -> None:  # fmt: skip
        """Take an open file, the number that its header may tell and that of its first record.

        With `start` it is read from that byte on, where a frame must begin.  What `decode` makes of a payload is
        yielded; it raises BadRecord.  What `pause` returns is
        yielded, too, after each `CHUNK` that is not the last.
        """
        self._path = path
        self._file = file
        self._first = first
        self._start = start
        self._decode = decode
        self._pause = pause
        self._version = VERSION
        self.size: int = os.fstat(file.fileno()).st_size  #: bytes in the file
        self.good_size: int = start  #: bytes up to the end of the last good record, as of the last `CHUNK`
        self.sequence: int = sequence  #: number of the next record; as of then, too
        self.torn: str = ""  #: how the file is torn behind `good_size`; empty when it is whole

    def __iter__(self) -> Iterator[Record]:
        """The records; a torn end ends them, and `torn` tells it.  Raises StoreDamaged, as what is returned does."""
        self._file.seek(self._start)
        return self._read_records() if self._start or self._read_header() else iter(())

    def _read_header(self) -> bool:
        data = self._file.read(HEADER_SIZE)
        if len(data) < HEADER_SIZE:
            self.torn = f"the header has {len(data)} bytes of {HEADER_SIZE}"
            return False
        magic, version, first = _PREAMBLE.unpack_from(data)
        if _CHECK.unpack_from(data, _PREAMBLE.size)[0] != crc32(data[: _PREAMBLE.size]):
            if self._never_written(0, 0):
                self.torn = "the header was not written"
                return False
            raise self._damage("the checksum of the header is wrong")
        if magic != MAGIC:
            raise self._damage("this is no journal of disqued")
        if version not in VERSIONS:
            raise self._damage(f"version {version} of the format is not known to this version, which knows {VERSION}")
        if first not in (0, self._first):
            raise self._damage(f"the first record has number {first}, expected is {self._first}")
        self._version = version
        self.good_size = HEADER_SIZE
        return True

    def _read_records(self) -> Iterator[Record]:
        # This loop runs once per record of a journal: what it needs is local.
        data, at, sequence = b"", 0, self.sequence
        before = self.good_size  # bytes of the file before `data`
        decode = self._decode
        while True:
            size = len(data)
            last = size - FRAME_SIZE
            while at <= last:
                length, turned, number, check = _unpack_frame(data, at)
                start = at + FRAME_SIZE
                end = start + length
                if length ^ turned != _TURNED:
                    return self._end(before + at, sequence, 0, "the length is damaged")
                if end > size:
                    break
                payload = data[start:end]
                if number != sequence or check != crc32(payload, sequence):
                    if not length and number <= sequence and data.startswith(mark(number), at):
                        at = end
                        continue
                    return self._end(before + at, sequence, length, _what_is_wrong(number, sequence))
                try:
                    record = decode(payload)
                except BadRecord as error:
                    self._stand(before + at, sequence)
                    raise self._damage(str(error)) from None
                at = end
                sequence += 1
                yield record
            self._stand(before + at, sequence)
            if self._is_large(data, at):
                record = yield from self._read_large(data, at)
                if record is None:
                    return
                sequence += 1
                yield record
                data, before, at = b"", self._file.tell(), 0
                continue
            more = self._read_on(data, at)
            if not more:
                return
            data, before, at = data[at:] + more, before + at, 0
            if self._pause is not None and len(more) >= CHUNK:
                yield self._pause()

    def _read_on(self, data: bytes, at: int) -> bytes:
        """Read more of the file; nothing is its end, which may be within the frame at hand."""
        more = self._file.read(max(CHUNK, self._missing(data, at)))
        if not more and at < len(data):
            self.torn = f"record {self.sequence} is cut off"
        return more

    def _is_large(self, data: bytes, at: int) -> bool:
        """Tell whether a frame begins there of a record that is large, and all of it is in the file."""
        if len(data) - at < FRAME_SIZE:
            return False
        length: int = _unpack_frame(data, at)[0]
        return LARGE < length <= self.size - self.good_size - FRAME_SIZE

    def _read_large(self, data: bytes, at: int) -> Generator[Any, None, Any]:
        """Read the record whose frame begins there, part by part; returns it, None where it is torn."""
        length, _, number, check = _unpack_frame(data, at)
        arriving = IncomingText(length, place_in_copy)
        found = self.sequence
        part = data[at + FRAME_SIZE :]
        while True:
            found = crc32(part, found)
            arriving.add(part)
            if arriving.got == length:
                break
            part = self._file.read(min(CHUNK, length - arriving.got))
            if not part:
                self.torn = f"record {self.sequence} is cut off"
                return None
            if self._pause is not None:
                yield self._pause()
        if number != self.sequence or check != found:
            return self._end(self.good_size, self.sequence, length, _what_is_wrong(number, self.sequence))
        text = arriving.text()
        try:
            return decode_text(text) if self._decode is decode_record else self._decode(whole(text))
        except BadRecord as error:
            raise self._damage(str(error)) from None

    def _end(self, good_size: int, sequence: int, length: int, why: str) -> None:
        """End at a frame, whose record has this length, since it is torn.  Raises StoreDamaged if it is not."""
        self._stand(good_size, sequence)
        if not self._torn_by_zeros(FRAME_SIZE + length):
            raise self._damage(why)

    def _stand(self, good_size: int, sequence: int) -> None:
        """Note how far we are."""
        self.good_size = good_size
        self.sequence = sequence

    def _missing(self, data: bytes, at: int) -> int:
        """Bytes to read until the frame at hand is whole: never more than the file has."""
        if len(data) - at < FRAME_SIZE:
            return 0
        length: int = _unpack_frame(data, at)[0]
        return max(0, min(length, self.size - self.good_size))

    def _torn_by_zeros(self, length: int) -> bool:
        if self._never_written(self.good_size, length) or self._is_hole(self.good_size, length):
            self.torn = f"record {self.sequence} was not written to its end"
            return True
        return False

    def _never_written(self, start: int, length: int) -> bool:
        """Tell whether the file ends in sectors never written, from within the `length` bytes at `start` on."""
        last = start - 1
        self._file.seek(start)
        offset = start
        while chunk := self._file.read(CHUNK):
            kept = len(chunk.rstrip(b"\0"))
            if kept:
                last = offset + kept - 1
            offset += len(chunk)
        zeros = last + 1
        if zeros <= start:
            return True
        end = start + length
        sector = -(-zeros // SECTOR) * SECTOR
        # A sector may be as it was after a write that failed in the middle of a frame: nothing is behind that one.
        return (sector < self.size and sector < end) or zeros < end <= self.size - FRAME_SIZE

    def _is_hole(self, start: int, length: int) -> bool:
        """Tell whether a sector of the `length` bytes at `start` was never written, nor any of it synced."""
        if self._version == 1 or not self._misses_sector(start, start + length):
            return False
        self._file.seek(start)
        data = b""
        while more := self._file.read(CHUNK):
            data += more
            at = data.find(_MARK_START)
            while 0 <= at <= len(data) - FRAME_SIZE:
                number = number_of(data[at : at + FRAME_SIZE])
                if number > self.sequence and data.startswith(mark(number), at):
                    return False
                at = data.find(_MARK_START, at + 1)
            data = data[-FRAME_SIZE:]
        return True

    def _misses_sector(self, start: int, end: int) -> bool:
        """Tell whether one of the sectors that a frame lies in has nothing but zeros from its start on."""
        at = start
        self._file.seek(at)
        while at < min(end, self.size):
            sector = self._file.read(SECTOR - at % SECTOR)
            if not sector.strip(b"\0") and (len(sector) >= ZEROS or at > start or self._has_lost_bits(start)):
                return True
            at += len(sector)
        return False

    def _has_lost_bits(self, start: int) -> bool:
        """Tell whether a length of zeros, in whole or in part, had more than one bit."""
        length, turned = _LENGTHS.unpack(os.pread(self._file.fileno(), _LENGTHS.size, start))
        lost: int = length ^ turned ^ _TURNED
        return lost.bit_count() > 1

    def _damage(self, what: str) -> StoreDamaged:
        return StoreDamaged(str(self._path), self.good_size, self.sequence if self.good_size else 0, what)


def is_record(data: bytes | mmap, at: int, first: int, last: int) -> bool:
    """Tell whether a whole record with a number in this range begins here."""
    if not 0 <= at <= len(data) - FRAME_SIZE:
        return False
    length, turned, number, check = _unpack_frame(data, at)
    if length ^ turned != _TURNED or not 0 < length <= len(data) - at - FRAME_SIZE or not first <= number <= last:
        return False
    expected: int = check
    return crc32(data[at + FRAME_SIZE : at + FRAME_SIZE + length], number) == expected


def next_record(data: bytes | mmap, start: int, first: int, last: int) -> int:
    """Where the next whole record with a number in this range begins, at byte `start` or later; -1 = nowhere."""
    for window in range(start, len(data), CHUNK):
        # Where a length and the same turned follow each other, their difference is all ones.
        part = data[window : window + CHUNK + _LENGTHS.size]
        number = int.from_bytes(part, "little")
        ones = (number ^ (number >> 32)).to_bytes(len(part), "little")
        at = ones.find(_ONES)
        while at >= 0:
            if is_record(data, window + at, first, last):
                return window + at
            at = ones.find(_ONES, at + 1)
    return -1


def record_end(data: bytes | mmap, at: int) -> int:
    """Where a record ends by what its frame says; -1 where that makes no sense."""
    if at > len(data) - FRAME_SIZE:
        return -1
    length, turned, _, _ = _unpack_frame(data, at)
    return at + FRAME_SIZE + int(length) if length ^ turned == _TURNED else -1
