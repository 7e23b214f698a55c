"""The event logs of simulated nodes: what the core tells of jobs, in the very files that daemons write.

    a step --> state.trace.full: lines --FLUSH_MS after the first--> <folder>/date=.../node=.../_open-...jsonl

The trail, the lines and the files are the real ones; the loop and the thread between them are virtual time.  So a
process that is killed loses what was not written yet, one whose power fails also the end of the file that is open,
and clocks that lie do so in the log, too.  A node's log is on a disk of its own, which is never full.

A story is the same with logs as without.  Times are integer milliseconds.
"""

import os
from pathlib import Path
from random import Random
from typing import Final

from disqued.core.model.trace import STOP
from disqued.persistence.disk import Disk
from disqued.persistence.eventlog.files import EventFiles, Facts, Limits
from disqued.testing.network import Station
from disqued.wire.eventlines import EventLines

FLUSH_MS: Final = 200  #: how long a line waits at most before it is written, as in the daemon
LIMITS: Final = Limits(file_bytes=64 << 20, file_s=3_600, keep_days=0, keep_bytes=0)


class _FilesDisk(Disk):
    """Real files of which nobody waits for the disk, and of which a crash leaves one open."""

    def __init__(self) -> None:
        self.opened: int | None = None  #: descriptor of the file that is written

    def create(self, path: Path) -> int:
        self.opened = super().create(path)
        return self.opened

    def close(self, fd: int) -> None:
        super().close(fd)
        if fd == self.opened:
            self.opened = None

    def fdatasync(self, fd: int) -> None:
        """Nothing: what a crash leaves is drawn."""

    def sync_directory(self, path: Path) -> None:
        """Nothing, for the same reason."""


class SimEventLog:
    """The event log of one node, over all its processes."""

    def __init__(self, folder: Path, server: Station, rng: Random, limits: Limits = LIMITS) -> None:
        """Nothing happens before `start`; `rng` draws what is left of an unsynced file when the power fails."""
        self.written: int = 0  #: lines
        self._folder = folder
        self._server = server
        self._rng = rng
        self._limits = limits
        self._boot = 0

    def start(self) -> None:
        """A process begins: publish what was left open, and follow what happens."""
        server = self._server
        state, clock = server.state, server.clock
        self._boot = server.boot
        self._facts = Facts()
        self._disk = _FilesDisk()
        self._files = EventFiles(
            self._folder, server.id, self._limits, self._facts, self._disk,
            wall=lambda: clock.wall() / 1_000, monotonic=lambda: clock.now() / 1_000,
        )  # fmt: skip
        found = self._files.begin()
        self._lines = lines = EventLines(server.id, found.boot, lambda who: "")
        lines.start(clock.wall(), b"clean" if found.ended_well else b"crash", found.last)
        lines.act(clock.wall(), clock.now(), None)
        state.trace.full = state.trace.endings = lines
        self._take()

    def wake(self) -> None:
        """There are lines."""
        if not self._lines.awaited:
            self._lines.awaited = True
            self._server.events.after(FLUSH_MS, self._take_later, self._boot)

    def _take_later(self, boot: int) -> None:
        if boot != self._server.boot or boot != self._boot:
            return
        if self._server.is_paused:
            self._server.events.after(FLUSH_MS, self._take_later, boot)
            return
        self._lines.awaited = False
        self._take()

    def _take(self) -> None:
        for part in self._lines.take():
            self._files.write(part)
            self.written += part.count

    def crash(self, *, power: bool) -> None:
        """The process is gone at once: what was not written is lost, and perhaps what was not synced."""
        path = self._facts.path
        if self._disk.opened is not None:
            self._disk.close(self._disk.opened)
        if power and path:
            os.truncate(path, self._rng.randint(0, Path(path).stat().st_size))
        self._boot = 0

    def stop(self) -> None:
        """The process ends in order."""
        self._server.node.begin()
        self._server.state.note_node(STOP, b"")
        self._take()
        self._files.publish()
        self._server.state.trace.full = self._server.state.trace.endings = None
        self._boot = 0
