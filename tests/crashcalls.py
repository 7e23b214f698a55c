"""What a power cut may leave of files that a library writes: the calls of a whole process, recorded and replayed.

SQLite makes its own system calls, which no `Disk` sees.  So a process is run with a small library in front of the C
library (`crashcalls.c`), which logs each write, truncation, sync, creation, renaming and removal in one folder:

    calls = record(folder, program, ...)       run a program of Python there; its words are writes to a file `note`
    for state in states(calls, random): ...    what may lie in the folder after a power cut, and the words until then

At a power cut anything may be left of what was not synced: of a file any of the sectors that were written, in any
order, and any of the truncations; of the folder any of its changes.  An index that is mapped into memory is not seen:
it is left out, for SQLite makes it anew.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from struct import Struct
from tempfile import mkdtemp

import attrs
import pytest

from disqued.persistence.aof.segments import SECTOR

NOTE = "note"
_ENTRY = Struct("<sQQI")
_FOLDER = 1
LIMIT_S = 300


@attrs.frozen
class Call:
    """One call."""

    kind: str  #: c created, w written, t truncated, s synced, u removed, r renamed
    inode: int
    offset: int
    data: bytes


@cache
def _library() -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler: the calls of SQLite are recorded by a library")
    path = Path(mkdtemp(prefix="disqued-calls-")) / "crashcalls.so"
    source = Path(__file__).with_name("crashcalls.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-O1", "-o", path, source, "-ldl", "-lpthread"], check=True)
    return path


def record(folder: Path, program: str, *arguments: str) -> list[Call]:
    """Run a program of Python, and return the calls of it that have to do with a folder."""
    log = folder.with_name(folder.name + ".calls")
    root = Path(__file__).parents[1]
    environment = os.environ | {
        "LD_PRELOAD": str(_library()), "CRASH_LOG": str(log), "CRASH_FOLDER": str(folder), "PYTHONPATH": str(root),
    }  # fmt: skip
    subprocess.run(
        [sys.executable, "-c", program, str(folder), *arguments], check=True, env=environment, timeout=LIMIT_S
    )
    data = log.read_bytes()
    calls: list[Call] = []
    at = 0
    while at < len(data):
        kind, inode, offset, length = _ENTRY.unpack_from(data, at)
        at += _ENTRY.size
        calls.append(Call(kind.decode(), inode, offset, data[at : at + length]))
        at += length
    return calls


class _File:
    def __init__(self) -> None:
        self.durable = b""
        self.changes: list[Call] = []

    def left(self, random: Random | None) -> bytes:
        """What a power cut leaves; all of it without a chance."""
        data = bytearray(self.durable)
        for change in self.changes:
            if change.kind == "t":
                if random is None or random.random() < 0.5:
                    del data[change.offset :]
                    data += bytes(change.offset - len(data))
                continue
            for start, end in _sectors(change.offset, len(change.data)):
                if random is None or random.random() < 0.5:
                    data += bytes(max(0, end - len(data)))
                    data[start:end] = change.data[start - change.offset : end - change.offset]
        return bytes(data)


def _sectors(offset: int, length: int) -> Iterator[tuple[int, int]]:
    at = offset
    while at < offset + length:
        end = min(offset + length, (at // SECTOR + 1) * SECTOR)
        yield at, end
        at = end


@attrs.frozen
class State:
    """What lies in the folder, and the words that were said until then."""

    at: int
    files: dict[str, bytes]
    words: list[str]

    def write_to(self, folder: Path) -> None:
        """Make it so."""
        folder.mkdir()
        for name, data in self.files.items():
            (folder / name).write_bytes(data)


class _Model:
    def __init__(self) -> None:
        self.files: dict[int, _File] = {}
        self.names: dict[str, int] = {}  #: while the power is on
        self.durable: dict[str, int] = {}
        self.changes: list[dict[str, int]] = []  #: of the folder, since its last sync; 0 = no such entry
        self.words: list[str] = []

    def do(self, call: Call) -> None:
        if call.kind == "c":
            self.files[call.inode] = _File()
            self._enter({call.data.decode(): call.inode})
        elif call.kind == "u":
            self._enter({call.data.decode(): 0})
        elif call.kind == "r":
            old, _, new = call.data.decode().partition("/")
            self._enter({old: 0, new: self.names[old]})
        elif call.kind == "s" and call.inode == _FOLDER:
            self.durable, self.changes = dict(self.names), []
        elif call.kind == "s":
            file = self.files[call.inode]
            file.durable, file.changes = file.left(None), []
        elif call.inode == self.names.get(NOTE):
            self.words.append(call.data.decode())
        else:
            self.files[call.inode].changes.append(call)

    def _enter(self, change: dict[str, int]) -> None:
        self.changes.append(change)
        self.names |= change
        self.names = {name: inode for name, inode in self.names.items() if inode}

    def state(self, at: int, random: Random | None, *, entries: bool) -> State:
        names = dict(self.durable)
        for change in self.changes:
            if entries or (random is not None and random.random() < 0.5):
                names |= change
        files = {
            name: self.files[inode].left(random)
            for name, inode in names.items()
            if inode and name != NOTE and not name.endswith(("-shm", ".lock"))
        }
        return State(at, files, list(self.words))


def states(calls: list[Call], random: Random, most: int) -> Iterator[State]:
    """Draw states after calls all over the recording, `most` of them at most."""
    model = _Model()
    chance = min(1.0, most / (3 * len(calls)))
    for at, call in enumerate(calls):
        model.do(call)
        if random.random() < chance:
            yield model.state(at, random, entries=False)
            yield model.state(at, random, entries=True)
            yield model.state(at, None, entries=True)
