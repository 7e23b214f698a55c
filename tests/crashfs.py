"""What a power cut may leave of a directory: a model of the file system, fed by a disk that records what is done to it.

    disk = RecordingDisk()                  every create, write, sync, truncation, rename, removal, in order
    disk.note(3)                            ... and what the test says about it, such as "3 is acknowledged"
    for state in crash_states(disk.operations, random): state.write_to(place)

A file has content that is durable and changes that are not; so has a directory, whose entries are separate from the
files that they name.  At a power cut anything may be left of what was not synced:

    of a file        any of the changes up to one, that one in part: a prefix of its bytes; or any of its sectors,
                     the others as zeros
    of a directory   any of the changes (created, renamed, removed), each as a whole, whatever came before it

POSIX promises no more.  Real file systems leave fewer states: ext4 writes the changes of directories in their order.
A rename is one change, since a name that is replaced never names nothing.  Source: POSIX, fsync and rename; the
paper "All File Systems Are Not Created Equal" (OSDI 2014), which searches programs for states they do not survive.
"""

import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import attrs

from disqued.persistence.aof.segments import SECTOR
from disqued.persistence.disk import Disk

Operation = tuple[Any, ...]

#: Sets of changes of a directory that are tried one by one; of more, this many are drawn.
MOST_SETS = 32
#: States of the files that are drawn for each state of the directory, beside "nothing" and "all of it".
DRAWN = 6


class RecordingDisk(Disk):
    """A disk that does what it is told, and knows what that was.  Syncs are noted and not waited for."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._inodes: dict[int, int] = {}  #: by descriptor
        self._by_path: dict[str, int] = {}
        self._last = 0
        self._guard = threading.RLock()

    def note(self, what: Any) -> None:
        """Put a word of the test's own among the operations."""
        with self._guard:
            self.operations.append(("note", what))

    def create(self, path: Path) -> int:
        with self._guard:
            fd = super().create(path)
            if path.name in self._by_path:
                inode = self._by_path[path.name]
                self.operations.append(("cut", inode, 0))
            else:
                self._last = inode = self._last + 1
                self._by_path[path.name] = inode
                self.operations.append(("entry", {path.name: inode}))
            self._inodes[fd] = inode
            return fd

    def append_to(self, path: Path) -> int:
        with self._guard:
            fd = super().append_to(path)
            self._inodes[fd] = self._by_path[path.name]
            return fd

    def write(self, fd: int, data: bytes | memoryview) -> int:
        with self._guard:
            written = super().write(fd, data)
            self.operations.append(("write", self._inodes[fd], bytes(data[:written])))
            return written

    def fdatasync(self, fd: int) -> None:
        with self._guard:
            self.operations.append(("sync", self._inodes[fd]))

    def cut(self, fd: int, size: int) -> None:
        with self._guard:
            super().cut(fd, size)
            self.operations.append(("cut", self._inodes[fd], size))

    def rename(self, old: Path, new: Path) -> None:
        with self._guard:
            super().rename(old, new)
            inode = self._by_path[new.name] = self._by_path.pop(old.name)
            self.operations.append(("entry", {old.name: 0, new.name: inode}))

    def remove(self, path: Path) -> None:
        with self._guard:
            super().remove(path)
            del self._by_path[path.name]
            self.operations.append(("entry", {path.name: 0}))

    def sync_directory(self, path: Path) -> None:
        with self._guard:
            self.operations.append(("sync directory",))

    def adopt(self, directory: Path) -> None:
        """Take what lies in a directory as durable."""
        with self._guard:
            found: dict[int, bytes] = {}
            for path in sorted(directory.iterdir()):
                self._last = inode = self._last + 1
                self._by_path[path.name] = inode
                found[inode] = path.read_bytes()
            self.operations.append(("found", dict(self._by_path), found))


@attrs.define
class File:
    """A file as the disk may have it."""

    durable: bytes = b""
    changes: list[Operation] = attrs.field(factory=list)  #: since the last sync, in order

    @property
    def content(self) -> bytes:
        """As it is while the power is on."""
        return self._after(self.changes)

    def _after(self, changes: list[Operation]) -> bytes:
        data = self.durable
        for kind, _, value in changes:
            data = data + value if kind == "write" else data[:value]
        return data

    def draw(self, random: Random) -> bytes:
        """One of the states that a power cut may leave."""
        count = random.randrange(len(self.changes) + 1)
        before = self._after(self.changes[:count])
        if count == len(self.changes) or self.changes[count][0] != "write":
            return before
        after = before + self.changes[count][2]
        if random.random() < 0.5:
            return after[: random.randrange(len(before), len(after) + 1)]
        return self._with_holes(len(self._after(self.changes)), after, random)

    def _with_holes(self, size: int, data: bytes, random: Random) -> bytes:
        """The length is known to the disk, and of what is not durable only some sectors."""
        whole = bytearray(data[:size].ljust(max(size, len(data)), b"\0"))
        start = len(self.durable)
        for sector in range(start // SECTOR, -(-len(whole) // SECTOR)):
            if random.random() < 0.5:
                begin, end = max(sector * SECTOR, start), (sector + 1) * SECTOR
                whole[begin:end] = bytes(len(whole[begin:end]))
        return bytes(whole)


@attrs.frozen
class CrashState:
    """What lies in the directory after a power cut."""

    at: int  #: operations that were done
    files: dict[str, bytes]

    def write_to(self, directory: Path) -> None:
        """Make it so."""
        directory.mkdir()
        for name, data in self.files.items():
            (directory / name).write_bytes(data)


class Model:
    """The directory and its files, one operation after the other."""

    def __init__(self) -> None:
        self.files: dict[int, File] = {}
        self.durable: dict[str, int] = {}
        self.changes: list[dict[str, int]] = []  #: of the directory, since its last sync; 0 = no such entry

    def do(self, operation: Operation) -> None:
        """Carry one out."""
        kind, *rest = operation
        if kind == "entry":
            self.changes.append(rest[0])
            for inode in rest[0].values():
                self.files.setdefault(inode, File())
        elif kind == "found":
            self.durable, contents = rest
            self.files = {inode: File(data) for inode, data in contents.items()}
        elif kind in ("write", "cut"):
            self.files[rest[0]].changes.append(operation)
        elif kind == "sync":
            file = self.files[rest[0]]
            file.durable, file.changes = file.content, []
        elif kind == "sync directory":
            self.durable, self.changes = self._entries(self.changes), []

    def _entries(self, changes: list[dict[str, int]]) -> dict[str, int]:
        entries = dict(self.durable)
        for change in changes:
            entries |= change
        return {name: inode for name, inode in entries.items() if inode}

    def _directories(self, random: Random) -> Iterator[dict[str, int]]:
        count = len(self.changes)
        if 1 << count <= MOST_SETS:
            choices = list(product((False, True), repeat=count))
        else:
            choices = [(False,) * count, (True,) * count]
            choices += [tuple(random.random() < 0.5 for _ in range(count)) for _ in range(MOST_SETS - 2)]
        for choice in choices:
            yield self._entries([change for change, kept in zip(self.changes, choice, strict=True) if kept])

    def states(self, random: Random) -> Iterator[dict[str, bytes]]:
        """What a power cut may leave now: directories one by one, and of the files the extremes and some in between."""
        for entries in self._directories(random):
            yield {name: self.files[inode].durable for name, inode in entries.items()}
            if any(self.files[inode].changes for inode in entries.values()):
                yield {name: self.files[inode].content for name, inode in entries.items()}
                for _ in range(DRAWN):
                    yield {name: self.files[inode].draw(random) for name, inode in entries.items()}


def crash_states(operations: list[Operation], random: Random) -> Iterator[CrashState]:
    """Every state that differs, for a power cut after each operation."""
    model = Model()
    seen: set[tuple[int, frozenset[tuple[str, bytes]]]] = set()
    notes = 0
    for at, operation in enumerate(operations, 1):
        model.do(operation)
        notes += operation[0] == "note"
        for files in model.states(random):
            # The same files mean another thing after another word of the test's.
            key = (notes, frozenset(files.items()))
            if key not in seen:
                seen.add(key)
                yield CrashState(at, files)
