"""Which files make up a journal: a manifest, the segments that it lists, and a lock.

    disque.aof.manifest    text; replaced as a whole, so that a journal always is what it was or what it is to be
    disque.aof.3.base      every job at one moment; absent until a journal is rewritten for the first time
    disque.aof.4.incr      what happened since; the last of them is appended to
    disque.aof.lock        locked by the process that uses the journal

    disqued journal 1
    base 3 1 200000        file number, number of its first record, how many records
    incr 4 200001          file number, number of its first record
    queues                 only when the base says the truth about queues: after a controlled shutdown
    check 0a1b2c3d         CRC-32 of the lines above

A file number is never used again, so a file that the manifest does not list is a leftover of a crash.
"""

import re
from pathlib import Path
from typing import Final
from zlib import crc32

import attrs
from twisted.logger import Logger

from disqued.persistence.disk import Disk, write_all
from disqued.persistence.interface import StoreDamaged, StoreError, StoreFailed, StoreLocked, StoreSettings
from disqued.persistence.segments import HEADER_SIZE

TITLE: Final = "disqued journal 1"
_LINE = re.compile(r"(?:base [1-9]\d{0,18} [1-9]\d{0,18} \d{1,18}|incr [1-9]\d{0,18} [1-9]\d{0,18}|queues)", re.ASCII)


@attrs.frozen
class Base:
    """A segment that holds every job at one moment."""

    number: int
    first: int  #: number of its first record
    count: int  #: how many records it has

    suffix = "base"


@attrs.frozen
class Increment:
    """A segment that holds what happened since."""

    number: int
    first: int  #: number of its first record

    suffix = "incr"


@attrs.frozen
class Manifest:
    """The segments of a journal, in the order in which they are read."""

    base: Base | None = None
    increments: tuple[Increment, ...] = ()
    #: Whether the base says the truth about queues.
    has_queues: bool = False

    @property
    def segments(self) -> tuple[Base | Increment, ...]:
        """All of them, the base first."""
        return (self.base, *self.increments) if self.base else self.increments

    def to_bytes(self) -> bytes:
        """The text of the file."""
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
        if title != TITLE:
            raise ValueError(f"'{title}' is not known to this version, which knows '{TITLE}'")
        manifest = cls()
        for line in lines:
            if not _LINE.fullmatch(line):
                raise ValueError(f"'{line}' is not known to this version")
            word, *numbers = line.split()
            values = [int(number) for number in numbers]
            if word == "base":
                manifest = attrs.evolve(manifest, base=Base(*values))
            elif word == "incr":
                manifest = attrs.evolve(manifest, increments=(*manifest.increments, Increment(*values)))
            else:
                manifest = attrs.evolve(manifest, has_queues=True)
        return manifest


def journal_path(config: StoreSettings) -> Path:
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
        self._lock: int | None = None

    def segment(self, segment: Base | Increment) -> Path:
        """Path of a segment."""
        return self.path.with_name(f"{self.path.name}.{segment.number}.{segment.suffix}")

    @property
    def manifest_path(self) -> Path:
        """Path of the manifest."""
        return self.path.with_name(self.path.name + ".manifest")

    def lock(self) -> None:
        """Keep every other process off these files.  Raises StoreLocked, StoreFailed."""
        path = self.path.with_name(self.path.name + ".lock")
        try:
            self._lock = self.disk.lock(path)
        except OSError as error:
            raise StoreFailed(f"{path}: {error.strerror}") from error
        if self._lock is None:
            raise StoreLocked(f"{path}: another process uses this journal; end it, or give this one another `dir`")

    def unlock(self) -> None:
        """Let other processes use these files."""
        if self._lock is not None:
            self.disk.close(self._lock)
            self._lock = None

    def read_manifest(self) -> Manifest:
        """The manifest; an empty one where there is no journal yet.  Raises StoreError."""
        path = self.manifest_path
        try:
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
                f"{self.path}: this is a journal of Disque, which this version cannot read; move it away, or set"
                " appendfilename to another name"
            )
        for found in self._found().values():
            if found.stat().st_size > HEADER_SIZE:
                raise StoreDamaged(
                    str(self.manifest_path), 0, 0, f"the manifest is missing, but {found.name} holds records"
                )

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

    def free_number(self) -> int:
        """A file number that no segment here has or had since the manifest was written."""
        return max(self._found(), default=0) + 1

    def remove_leftovers(self, manifest: Manifest) -> None:
        """Remove the segments that the manifest does not list; a failure costs only room."""
        listed = {segment.number for segment in manifest.segments}
        for number, path in self._found().items():
            if number not in listed:
                try:
                    self.disk.remove(path)
                except OSError as error:
                    self.log.warn(
                        "{path} is not needed but cannot be removed: {why}", path=str(path), why=error.strerror
                    )

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
