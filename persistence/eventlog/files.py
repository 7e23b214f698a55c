"""The files of the event log: written, published and removed, on a thread of their own.

    <folder>/date=2026-11-22/node=1f0e2d3c/_open-1795330000-0000000000000001.jsonl    lines are appended to it
                                           events-1795330000-0000000000000001.jsonl   published: whole, never changed

A file is published when it is large enough, old enough, of yesterday, or when the log ends: synced, renamed, and its
folder synced.  So what is published is whole after a crash, too.  What a crash leaves open is cut behind its last whole
line and published at the next start.  Readers pass over names that begin with an underscore.

A file that is removed or moved while it is written is noticed with the next lines: they go to another one, and what
was in it is counted as lost.  A write that fails is cut off again and counted; the lines in it are lost, which their
numbers show.  It is tried again with the next ones.

Times are seconds of the wall clock where they name a day, else of the monotonic clock.
"""

import errno
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import attrs

from disqued.persistence.disk import Disk, reason, write_all
from disqued.wire.eventlines import NODE_LENGTH, LinesPart

_NAME: Final = re.compile(r"(?:_open|events)-(\d+)-(\d{16})\.jsonl")
_LAST_LINE: Final = re.compile(rb'(?:\A|\n)\{"v":\d+,"boot":(\d{1,18}),"seq":(\d{1,18}),[^\n]*\}\n\Z')
_LAST_BYTES: Final = 1 << 20  #: of a file that was left open, read at a time to find its last line
DAY_S: Final = 86_400
PRUNE_S: Final = 3_600  #: how often it is looked for files of days that are no longer kept, though none is published


@attrs.frozen
class Limits:
    """How large and old a file becomes, and how much is kept."""

    file_bytes: int
    file_s: int
    keep_days: int  #: 0 = for ever
    keep_bytes: int  #: 0 = without a limit


@attrs.frozen
class EventLogScan:
    """What a boot finds in the folder."""

    boot: int  #: the number that it gets
    ended_well: bool  #: the boot before ended in good order
    last: tuple[int, int] | None  #: boot and number of the last line of this node; None = none can be read


@attrs.define
class Facts:
    """What became of the log so far; written by the thread, read by whoever asks."""

    lines: int = 0  #: written
    lost: int = 0  #: lines that could not be written, or whose file was taken away
    files: int = 0  #: published
    error: str = ""  #: why the last write failed; empty = it did not
    unpublished: str = ""  #: why the last file was not published, or an old one not removed; empty = it was
    unremoved: str = ""  #: why old files were not removed when it was time to; empty = they were
    path: str = ""  #: file that is written now


class EventFiles:
    """The files of one node, as its thread sees them."""

    def __init__(
        self, folder: Path, node_id: bytes, limits: Limits, facts: Facts, disk: Disk | None = None, *,
        wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        """`node_id` is that of the first lines, `facts` go on; nothing is touched before `begin`."""
        self.limits = limits
        self.facts = facts
        self._folder = folder
        self._node = _name(node_id)
        self._disk = disk or Disk()
        self._wall = wall
        self._monotonic = monotonic
        self._fd = -1
        self._path = Path()
        self._size = 0
        self._day = ""
        self._began_s = 0.0
        self._identity = (0, 0)  #: of the file that is open
        self._lines = 0  #: in it
        self._boot = 0  #: of which these are
        self._kept: tuple[int, int] | None = None  #: days and bytes when old files were last removed; None = never
        self._pruned_s = 0.0

    def begin(self) -> EventLogScan:
        """Publish what was left open, and find out where this boot goes on.  Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        left = [path for path in self._own("_open-*.jsonl") if self._heal(path)]
        files = [
            (int(found[1]), int(found[2]), path)
            for path in self._own("*.jsonl")
            if (found := _NAME.fullmatch(path.name))
        ]
        boot = max([int(self._wall()), *(number + 1 for number, _, _ in files)])
        seqs = ((number, _last_line(path, number)) for number, _, path in sorted(files, reverse=True))
        return EventLogScan(boot, not left, next(((number, seq) for number, seq in seqs if seq), None))

    def _own(self, pattern: str) -> Iterator[Path]:
        return self._folder.glob(f"date=*/node={self._node}/{pattern}")

    def _heal(self, path: Path) -> bool:
        """Publish a file that was left open, up to its last whole line; say whether there was one."""
        size = _whole_lines(path)
        if size < path.stat().st_size:
            self._disk.truncate(path, size)
        if not size:
            self._disk.remove(path)
            return True
        fd = self._disk.append_to(path)
        try:
            self._disk.fdatasync(fd)
        finally:
            self._disk.close(fd)
        self._publish(path)
        return True

    def write(self, part: LinesPart) -> None:
        """Append lines; those that cannot be written are counted."""
        try:
            self._append(part)
        except OSError as error:
            self.facts.error = f"{self._path}: {reason(error)}"
            self.facts.lost += part.count
            self._cut()
        else:
            self.facts.error = ""
            self.facts.lines += part.count
            self._lines += part.count

    def _append(self, part: LinesPart) -> None:
        day = datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%d")
        if self._fd >= 0 and (part.boot != self._boot or self._is_over(day) or self._is_gone()):
            # What cannot be published now is by the next start; lines go on in another file.
            self._try_to_publish()
        if self._fd < 0:
            self._open(day, part)
        for piece in part.pieces:
            write_all(self._disk, self._fd, piece)
        self._size += part.size

    def _is_over(self, day: str) -> bool:
        return self._size >= self.limits.file_bytes or self._left_s() <= 0 or day != self._day

    def _left_s(self) -> float:
        return self._began_s + self.limits.file_s - self._monotonic()

    def _is_gone(self) -> bool:
        """Tell whether the file that is open was removed or moved, so that nobody will see what is written to it."""
        try:
            return self._disk.identity(self._path) != self._identity
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:  # writing will tell
            return False

    def _open(self, day: str, part: LinesPart) -> None:
        self._node = _name(part.node_id)
        folder = self._folder / f"date={day}" / f"node={self._node}"
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"_open-{part.boot}-{part.first:016}.jsonl"
        self._fd = self._disk.create(self._path)
        self._size, self._day, self._lines, self._boot = 0, day, 0, part.boot
        self._began_s = self._monotonic()
        self._identity = self._disk.identity(self._path)
        self.facts.path = str(self._path)

    def _cut(self) -> None:
        """Take back what a write that failed has left behind, or leave the file to the next start."""
        if self._fd < 0:
            return
        try:
            self._disk.cut(self._fd, self._size)
        except OSError:
            self._close()

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        self.facts.path = ""
        self._disk.close(fd)

    def look(self) -> float:
        """Publish a file whose time is over, and remove old ones, though nothing is written.

        Returns after how many seconds that is to be done again; 0 = not before something is written.
        """
        left_s = self._left_s()  # once: while old files are removed its end may come
        if self._fd >= 0 and (left_s <= 0 or self._is_gone()):
            self._try_to_publish()
        limits = self.limits
        until_s = self._pruned_s + PRUNE_S - self._monotonic()
        if self._kept != (limits.keep_days, limits.keep_bytes) or (limits.keep_days and until_s <= 0):
            self._try_to_prune()
            until_s = PRUNE_S
        waits = [left_s] if self._fd >= 0 else []
        return max(0.0, min([*waits, until_s] if limits.keep_days else waits, default=0.0))

    def _try_to_publish(self) -> None:
        """The same as `publish`; what keeps it from that is a fact."""
        try:
            self.publish()
        except OSError as error:
            self.facts.unpublished = f"{self._path}: {reason(error)}"
        else:
            self.facts.unpublished = ""

    def publish(self) -> None:
        """End the file that is open, and let readers see it.  Raises OSError; the file is left to the next start."""
        if self._fd < 0:
            return
        is_gone = self._is_gone()
        try:
            if self._size and not is_gone:
                self._disk.fdatasync(self._fd)
        finally:
            self._close()
        if is_gone:
            self.facts.lost += self._lines
            text = f"it was removed or moved while it was written and {self._lines} events with it"
            raise OSError(errno.ENOENT, text)
        if not self._size:
            self._disk.remove(self._path)
            return
        self._publish(self._path)
        self.prune()

    def _publish(self, path: Path) -> None:
        self._disk.rename(path, path.with_name("events" + path.name.removeprefix("_open")))
        self._disk.sync_directory(path.parent)
        self.facts.files += 1

    def _try_to_prune(self) -> None:
        try:
            self.prune()
        except OSError as error:
            self.facts.unremoved = f"{self._folder}: {reason(error)}"

    def prune(self) -> None:
        """Remove the oldest published files, as far as more is kept than is to be.  Raises OSError."""
        limits = self.limits
        self._kept, self._pruned_s = (limits.keep_days, limits.keep_bytes), self._monotonic()
        files = sorted(self._own("events-*.jsonl"), key=_age)
        oldest = datetime.fromtimestamp(self._wall() - limits.keep_days * DAY_S, UTC).strftime("%Y-%m-%d")
        sizes = [path.stat().st_size for path in files]
        total = sum(sizes)
        for path, size in zip(files, sizes, strict=True):
            is_old = limits.keep_days and _day_of(path) < oldest
            if not is_old and not (limits.keep_bytes and total > limits.keep_bytes):
                break
            self._disk.remove(path)
            total -= size
            for folder in (path.parent, path.parent.parent):
                if not any(folder.iterdir()):
                    folder.rmdir()
        self.facts.unremoved = ""


def _name(node_id: bytes) -> str:
    return node_id[:NODE_LENGTH].decode("ascii")


def _day_of(path: Path) -> str:
    return path.parent.parent.name.removeprefix("date=")


def _age(path: Path) -> tuple[str, int, str]:
    found = _NAME.fullmatch(path.name)
    return (_day_of(path), int(found[1]) if found else 0, path.name)


def _last_line(path: Path, boot: int) -> int:
    """Number of the last line of a file of this boot; 0 = it has none that can be read: others may lie there, too."""
    try:
        if not path.is_file():
            return 0
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LAST_BYTES))
            found = _LAST_LINE.search(file.read())
    except OSError:
        return 0
    return int(found[2]) if found and int(found[1]) == boot else 0


def _whole_lines(path: Path) -> int:
    """Bytes of a file up to the end of its last whole line."""
    size = path.stat().st_size
    with path.open("rb") as file:
        end = size
        while end:
            start = max(0, end - _LAST_BYTES)
            file.seek(start)
            at = file.read(end - start).rfind(b"\n")
            if at >= 0:
                return start + at + 1
            end = start
    return 0
