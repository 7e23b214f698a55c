"""What a crash left of the write-ahead log, and whether all that was committed is in it.

    header 32 bytes    magic, format, page size, checkpoints so far, two salts, checksum
    frame  24 bytes    page number, pages of the database after a commit (0 = more to come), the salts, checksum
           a page      each checksum covers all the frames before it

SQLite takes the frames up to the first wrong checksum and says nothing about the rest.  But what stands behind that
place with the same salts was written after it, and a mark of a commit there is a transaction that is lost:

    none, or one in the last frame    the end was torn while it was written: nobody had been answered
    more, under `always`              damage: each commit waited for the one before it to be on the disk
    more, otherwise                   damage, or the disk wrote the last second in another order before the power went
    fewer frames than were synced     damage, whatever the policy (`synced`)
    one bit makes the frame good      damage, whatever the policy, where nothing was written down of syncs: a copy
                                      without that file (after a power cut an older page may differ by one bit, too)

A header is written at once, before its frames: a wrong one that has frames is damage.

Numbers are big-endian, those of the index (FILE-shm) in the order of the machine.
Source: https://www.sqlite.org/fileformat2.html, "The Write-Ahead Log"; https://www.sqlite.org/walformat.html.
"""

from pathlib import Path
from struct import Struct
from typing import BinaryIO, Final

import attrs
from twisted.logger import Logger

from disqued.persistence.sqlite.schema import DATABASE_ERRORS, PAGE_SIZE, DatabaseDamaged, connect, failure_of, wal_path
from disqued.persistence.sqlite.synced import FRAME_SIZE, LOG_HEADER_SIZE, Frames, index_path, read_synced, synced_path

_HEADER = Struct(">4I8sII")
_WORDS: Final = {0x377F_0682: Struct("<6I"), 0x377F_0683: Struct(">6I")}  #: by magic: how sums are made
_FRAME = Struct(">II8s8s")
_SUMS_OF_FRAME: Final = Struct(">16xII")
_SUMS_OF_HEADER: Final = Struct(">24xII")
_ONES: Final = 0xFFFF_FFFF
_VALID_FRAMES = Struct("=I")
_VALID_FRAMES_AT: Final = 16  #: byte of the index that tells how many frames SQLite takes

log = Logger()


@attrs.frozen
class Tail:
    """What stands behind the frames that SQLite takes."""

    offset: int  #: its first byte
    transactions: int  #: complete ones that are lost
    frames: int  #: good ones before it
    salts: bytes  #: of the log
    is_flipped: bool  #: one bit of it has changed, and nothing else is wrong with its first frame
    is_torn: bool  #: there is something that was not finished


def check_tail(path: Path, *, synced: bool, cut_torn: bool) -> None:
    """Look at what a crash left of the log of a database, before anybody writes to it.

    `synced` says that commits waited for the disk; `cut_torn` lets others lose their end.  Raises StoreError.
    """
    try:
        known = read_synced(path)
        if not _has_log(path, known):
            return
        tail = _find_tail(path)
    except (*DATABASE_ERRORS, OSError) as error:
        raise failure_of(error, path) from error
    if tail is not None:
        _check_synced(path, tail, known)
    if tail is None or not tail.transactions:
        if tail is not None and tail.is_torn:
            log.warn("{path}: the last transaction was not finished; it is left out", path=str(path))
        return
    place = f"{wal_path(path).name}, byte {tail.offset}: {tail.transactions} transactions stand behind a damaged one"
    if synced or not cut_torn:
        hint = "" if synced else "; `aof-load-truncated yes` starts without them"
        raise DatabaseDamaged(path, f"{place}{hint}; to do without them now: {_without_the_rest(path)}")
    log.warn("{path}: {place}; they are left out", path=str(path), place=place)


def _has_log(path: Path, known: Frames | None) -> bool:
    """Return whether there is a log to look at.  Raises DatabaseDamaged for one that was there and is gone."""
    try:
        size = wal_path(path).stat().st_size
    except FileNotFoundError:
        size = 0
    if size < LOG_HEADER_SIZE and known is not None and known.count:
        raise DatabaseDamaged(
            path,
            f"{wal_path(path).name} is gone or empty, and {known.count} frames of it were on the disk; put it back, or,"
            f" if another program put it into the database, as sqlite3 does when it ends: rm {synced_path(path)}",
        )
    return size > 0


def _without_the_rest(path: Path) -> str:
    """The commands that leave out what stands behind the damage."""
    return f"sqlite3 {path} 'PRAGMA wal_checkpoint(TRUNCATE)' && rm -f {synced_path(path)}"


def _check_synced(path: Path, tail: Tail, known: Frames | None) -> None:
    """Refuse a log that lacks what was on the disk for certain.  Raises DatabaseDamaged."""
    what = ""
    if known is not None and known.salts == tail.salts and known.count > tail.frames:
        what = f"{known.count} frames were on the disk, of which {tail.frames} can be read"
    elif tail.is_flipped and not synced_path(path).exists():
        what = "one bit of a frame has changed"
    if what:
        raise DatabaseDamaged(
            path,
            f"{wal_path(path).name}, byte {tail.offset}: {what}; to do without the transactions from there on:"
            f" {_without_the_rest(path)}",
        )


def _find_tail(path: Path) -> Tail | None:
    # Who only reads changes neither of the files, and lets SQLite find the last good frame.
    connection = connect(path, mode="ro")
    try:
        connection.execute("BEGIN")
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        with index_path(path).open("rb") as index:
            index.seek(_VALID_FRAMES_AT)
            (valid,) = _VALID_FRAMES.unpack(index.read(_VALID_FRAMES.size))
        with wal_path(path).open("rb") as file:
            return _read_tail(file, valid)
    finally:
        connection.close()


def _read_tail(file: BinaryIO, valid: int) -> Tail | None:
    header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        return None
    magic, _, page_size, _, salts, *sums = _HEADER.unpack(header)
    is_whole = magic in _WORDS and sums == _sums(_WORDS[magic].unpack_from(header))
    if not is_whole:
        # The frames themselves must tell which belong together.
        valid, page_size, salts = 0, PAGE_SIZE, _salts(_read_frame(file, _HEADER.size))
    last = offset = _HEADER.size + valid * (_FRAME.size + page_size)
    commits: list[int] = []
    at = offset
    while frame := _read_frame(file, at):
        if _salts(frame) == salts:
            last = at
            if _FRAME.unpack(frame)[1]:
                commits.append(at)
        at += _FRAME.size + page_size
    # The last frame may have been on its way to the disk.
    lost = sum(commit < last or not is_whole for commit in commits)
    is_flipped = is_whole and _is_flipped(
        file, Struct(f"{'>' if magic & 1 else '<'}{2 + page_size // 4}I"), valid, salts
    )
    return Tail(offset, lost, frames=valid, salts=salts, is_flipped=is_flipped, is_torn=last > offset or bool(commits))


def _is_flipped(file: BinaryIO, text_of: Struct, valid: int, salts: bytes) -> bool:
    """Return whether the first bad frame behind the good transactions would be good but for one bit of it.

    `text_of` has the words of a frame that its sums are made of: the first two, and its page.
    """
    page_size = text_of.size - 8
    offset = LOG_HEADER_SIZE + valid * (FRAME_SIZE + page_size)
    if valid:
        file.seek(offset - page_size - FRAME_SIZE)
        before = _SUMS_OF_FRAME.unpack(file.read(FRAME_SIZE))
    else:
        file.seek(0)
        before = _SUMS_OF_HEADER.unpack(file.read(LOG_HEADER_SIZE))
    file.seek(offset)
    while len(frame := file.read(FRAME_SIZE + page_size)) == FRAME_SIZE + page_size:
        words = text_of.unpack(frame[:8] + frame[FRAME_SIZE:])
        sums = _sums(words, before)
        stored = _SUMS_OF_FRAME.unpack_from(frame)
        wrong_salts = int.from_bytes(frame[8:16], "big") ^ int.from_bytes(salts, "big")
        wrong_sums = (sums[0] ^ stored[0]) << 32 | (sums[1] ^ stored[1])
        if wrong_salts or wrong_sums:
            if wrong_salts:
                return wrong_salts.bit_count() == 1 and not wrong_sums
            return wrong_sums.bit_count() == 1 or _bit_explains(words, (stored[0] - sums[0], stored[1] - sums[1]))
        before = stored
    return False


def _bit_explains(words: tuple[int, ...], difference: tuple[int, int]) -> bool:
    """Return whether one other bit in these words makes this difference of their sums, which are linear in them."""
    wanted = (difference[0] & _ONES, difference[1] & _ONES)
    # What one more in a word adds to both sums: later words add less and less of the Fibonacci numbers.
    first, second = 0, 1
    for at in range(len(words) - 1, -1, -1):
        # The last word adds (0, 1), the one before it (1, 1), then (1, 2), (2, 3), ...
        for bit in range(32):
            change = -(1 << bit) if words[at] >> bit & 1 else 1 << bit
            if (change * first & _ONES, change * second & _ONES) == wanted:
                return True
        first, second = second, (first + second) & _ONES
    return False


def _read_frame(file: BinaryIO, at: int) -> bytes:
    """What stands before the page of a frame; nothing at the end of the file."""
    file.seek(at)
    frame = file.read(_FRAME.size)
    return frame if len(frame) == _FRAME.size else b""


def _salts(frame: bytes) -> bytes:
    salts: bytes = _FRAME.unpack(frame)[2] if frame else b""
    return salts


def _sums(words: tuple[int, ...], before: tuple[int, int] = (0, 0)) -> list[int]:
    """The checksum of the log, which goes on through its frames, over words two by two."""
    first, second = before
    for one, two in zip(words[::2], words[1::2], strict=True):
        first = (first + one + second) & 0xFFFF_FFFF
        second = (second + two + first) & 0xFFFF_FFFF
    return [first, second]
