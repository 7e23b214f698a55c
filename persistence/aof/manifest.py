"""The files of a journal: a manifest, the segments that it lists, and a lock.

    disque.aof.manifest    text; replaced as a whole, so that a journal always is what it was or what it is to be
    disque.aof.5.base      all that was known once; absent until a journal is rewritten for the first time
    disque.aof.4.incr      what happened since; the last of them is appended to
    disque.aof.lock        locked by the process that uses the journal

    disqued journal 2
    base 5 1 200000        file number, number of its first record, how many records
    incr 4 731             file number, number of its first record
    incr 6 0               the same; 0 = the one behind the last of the increment before
    queues                 only when the base says the truth about queues: after a controlled shutdown
    check 0a1b2c3d         CRC-32 of the lines above

The numbers of increments follow each other; those of a base are its own.  In form 1, which is read as well, they went
on from the base, and there was no 0.

A file number is never used again, so a file that the manifest does not list is a leftover of a crash.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final
from zlib import crc32

import attrs
from twisted.logger import Logger

from disqued.config.settings import Settings
from disqued.persistence.aof.segments import HEADER_SIZE, header
from disqued.persistence.disk import Disk, reason, write_all
from disqued.persistence.interface import StoreDamaged, StoreError, StoreFailed
from disqued.persistence.lock import FileLock

TITLE: Final = "disqued journal 2"
TITLES: Final = ("disqued journal 1", TITLE)
CHECK_SIZE: Final = len("check 0a1b2c3d\n")
CHECK_LINE: Final = re.compile(rb"check ([0-9a-f]{8})\n\Z")
_LINE = re.compile(
    r"(?:base [1-9]\d{0,18} [1-9]\d{0,18} \d{1,18}|incr [1-9]\d{0,18} (?:0|[1-9]\d{0,18})|queues)", re.ASCII
)


@attrs.frozen
class Base:
    """A segment that holds every job as it was when the segment was written."""

    number: int
    first: int  #: number of its first record
    count: int  #: how many records it has

    suffix = "base"


@attrs.frozen
class Increment:
    """A segment that holds what happened since."""

    number: int
    first: int  #: number of its first record; 0 = the one behind the last of the increment before

    suffix = "incr"


@attrs.frozen
class Manifest:
    """The segments of a journal, in the order in which they are read."""

    base: Base | None = None
    increments: tuple[Increment, ...] = ()
    #: Whether the base holds the state of the queues.
    has_queues: bool = False

    @property
    def segments(self) -> tuple[Base | Increment, ...]:
        """All of them, the base first."""
        return (self.base, *self.increments) if self.base else self.increments

    def to_bytes(self) -> bytes:
        lines = [TITLE]
        if self.base:
            lines.append(f"base {self.base.number} {self.base.first} {self.base.count}")
        lines.extend(f"incr {increment.number} {increment.first}" for increment in self.increments)
        if self.has_queues:
            lines.append("queues")
        text = "".join(line + "\n" for line in lines).encode("ascii")
        return text + b"check %08x\n" % crc32(text)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Manifest":
        """Read the text of the file.  Raises ValueError."""
        start = data.rfind(b"check ")
        if start < 0 or data[start:] != b"check %08x\n" % crc32(data[:start]):
            raise ValueError("the checksum of the manifest is missing or wrong")
        title, *lines = data[:start].decode("ascii").splitlines()
        if title not in TITLES:
            raise ValueError(f"'{title}' is not known to this version, which knows '{TITLE}'")
        manifest = cls()
        increments: list[Increment] = []
        for line in lines:
            if not _LINE.fullmatch(line):
                raise ValueError(f"'{line}' is not known to this version")
            word, *numbers = line.split()
            values = [int(number) for number in numbers]
            if word == "base":
                manifest = attrs.evolve(manifest, base=Base(*values))
            elif word == "incr":
                increments.append(Increment(*values))
            else:
                manifest = attrs.evolve(manifest, has_queues=True)
        if increments and not increments[0].first:
            raise ValueError("nothing tells the number of the first record")
        return attrs.evolve(manifest, increments=tuple(increments))


def journal_path(config: Settings) -> Path:
    """The path that the settings name a journal after.  Raises StoreError."""
    if not config.appendfilename:
        raise StoreError("appendfilename is empty; a journal needs a name, such as disque.aof")
    return Path(config.appendfilename)


class JournalFiles:
    """The files of one journal."""

    log = Logger()

    def __init__(self, path: Path, disk: Disk) -> None:
        """Take the path that they are named after."""
        self.path = path
        self.disk = disk
        self.manifest_path = path.with_name(path.name + ".manifest")
        self.lock = FileLock(path, disk, "journal")

    def segment(self, segment: Base | Increment) -> Path:
        return self.path.with_name(f"{self.path.name}.{segment.number}.{segment.suffix}")

    def read_manifest(self) -> Manifest:
        """The manifest; an empty one where there is no journal yet.  Raises StoreError."""
        path = self.manifest_path
        try:
            if path.exists() and not path.is_file():  # a pipe would be waited for
                raise StoreFailed(f"{path}: this is no regular file; nothing else is allowed")
            data = path.read_bytes()
        except FileNotFoundError:
            self._check_nothing_is_lost()
            return Manifest()
        except OSError as error:
            raise StoreFailed(f"{path}: {error.strerror}") from error
        try:
            return Manifest.from_bytes(data)
        except ValueError as error:
            raise StoreDamaged(str(path), 0, 0, str(error)) from None

    def _check_nothing_is_lost(self) -> None:
        """Refuse to begin anew beside a journal that nobody would see then.

        A segment without records is what a crash at the first start leaves.
        """
        if self.path.exists():
            raise StoreError(
                f"{self.path}: this is a journal of Disque; move it away, or set appendfilename to another name, and"
                " `disqued import` takes its jobs over"
            )
        for found in self.holding():
            raise StoreDamaged(
                str(self.manifest_path), 0, 0, f"the manifest is missing, but {found.name} holds records"
            )

    def holding(self) -> Iterator[Path]:
        """Segments that are there, listed or not, and have more than a header.  Raises StoreFailed."""
        for found in self._found().values():
            if found.stat().st_size > HEADER_SIZE:
                yield found

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest, durably.  The segments that it lists must be durable.  Raises OSError."""
        aside = self.path.with_name(self.path.name + ".manifest.new")
        fd = self.disk.create(aside)
        try:
            write_all(self.disk, fd, manifest.to_bytes())
            self.disk.fdatasync(fd)
        finally:
            self.disk.close(fd)
        # Without this one the disk may know the new manifest before the segments that it lists.
        self.disk.sync_directory(self.path.parent)
        self.disk.rename(aside, self.manifest_path)
        self.disk.sync_directory(self.path.parent)

    def write_header(self, fd: int, first: int) -> None:
        """Begin a segment.  Raises OSError."""
        write_all(self.disk, fd, header(first))

    def begin(self, segment: Base | Increment) -> int:
        """Create a segment with nothing but its header, not durable yet; returns its descriptor.  Raises OSError."""
        path = self.segment(segment)
        fd = self.disk.create(path)
        try:
            self.write_header(fd, segment.first)
        except BaseException:
            self.disk.close(fd)
            self.remove(path)
            raise
        return fd

    def lists(self, manifest: Manifest) -> bool:
        """Tell whether this is what the manifest says now, whatever a write of it was answered."""
        try:
            return self.read_manifest() == manifest
        except StoreError:
            return False

    def size_of(self, segments: Iterable[Base | Increment]) -> int:
        """Bytes in these segments, as far as they are there."""
        paths = map(self.segment, segments)
        return sum(path.stat().st_size for path in paths if path.exists())

    def free_number(self) -> int:
        """A file number that no segment here has or had since the manifest was written."""
        return max(self._found(), default=0) + 1

    def remove_leftovers(self, manifest: Manifest) -> None:
        """Remove the segments that the manifest does not list; a failure costs only room."""
        listed = {segment.number for segment in manifest.segments}
        for number, path in self._found().items():
            if number not in listed:
                self.remove(path)

    def remove(self, path: Path) -> None:
        """Remove a file that is not needed; a failure costs only room."""
        try:
            self.disk.remove(path)
        except OSError as error:
            self.log.warn("{path} is not needed but cannot be removed: {why}", path=str(path), why=reason(error))

    def _found(self) -> dict[int, Path]:
        pattern = re.compile(re.escape(self.path.name) + r"\.([1-9]\d{0,18})\.(?:base|incr)", re.ASCII)
        found: dict[int, Path] = {}
        try:
            for path in sorted(self.path.parent.iterdir()):
                match = pattern.fullmatch(path.name)
                if match:
                    found[int(match[1])] = path
        except OSError as error:
            raise StoreFailed(f"{self.path.parent}: {error.strerror}") from error
        return found
