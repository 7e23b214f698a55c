"""Journals for tests: small ones, broken ones, and disks that fail.

store, records = opened(directory)      a store that has loaded what is there
put(store, b"one", b"two")              jobs with these bodies, committed
bodies(directory)                       what a store would load now
"""

import errno
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import attrs
from twisted.internet.task import Clock as Reactor

from disqued.core.model.job import Job, JobOptions
from disqued.core.model.outbox import (
    FLUSHED,
    GONE_DELETED,
    JOB_ADDED,
    JOB_GONE,
    QUEUE_PAUSED,
    UNIT_DONE,
    UNIT_LEASED,
    Record,
)
from disqued.persistence.aof import segments
from disqued.persistence.aof.compaction import POLL_S
from disqued.persistence.aof.store import AofStore
from disqued.persistence.disk import Disk
from disqued.persistence.interface import StoreError
from disqued.testing.clock import Clock

NAME = "disque.aof"
POLICIES = ["always", "everysec", "no"]


def job_id(number: int) -> bytes:
    return b"DI%044dSQ" % number


def added(number: int, body: bytes = b"body") -> Record:
    options = JobOptions(ttl_ms=600_000, retry_ms=60_000, delay_ms=0, replicate=1)
    options.stamp(1_000)
    return (JOB_ADDED, Job(job_id(number), b"queue", body, 1_700_000_000_000_000_000 + number, options))


@attrs.define
class Settings:
    """Settings of a journal that is not compacted by itself."""

    appendfilename: Path
    appendfsync: str = "no"
    aof_load_truncated: bool = True
    aof_enqueue_jobs_once: bool = False
    auto_aof_rewrite_percentage: int = 0
    auto_aof_rewrite_min_size: int = 0
    aof_rewrite_incremental_fsync: bool = True
    no_appendfsync_on_rewrite: bool = False


def make(
    directory: Path, *, fsync: str = "no", disk: Disk | None = None, reactor: Reactor | None = None, **options: Any
) -> AofStore:
    settings: Any = Settings(directory / NAME, fsync, **options)
    return AofStore(settings, clock=Clock(), reactor=reactor or Reactor(), disk=disk)


def opened(directory: Path, **options: Any) -> tuple[AofStore, list[Record]]:
    """Start a store and load it; it is closed again when that fails."""
    store = make(directory, **options)
    try:
        store.open()
        return store, [record for record in store.load() if isinstance(record, tuple)]  # and no pauses
    except StoreError:
        store.close()
        raise


def loaded(directory: Path, **options: Any) -> list[Record]:
    store, records = opened(directory, **options)
    store.close()
    return records


def bodies(directory: Path, **options: Any) -> list[bytes]:
    """Bodies of the added records, in order."""
    return [record[1].body for record in loaded(directory, **options)]


def put(store: AofStore, *names: bytes) -> None:
    store.append([added(number, name) for number, name in enumerate(names)])
    store.commit()


def settle(store: AofStore, reactor: Reactor) -> None:
    """Let a compaction run to its end."""
    while store.status()["aof_rewrite_in_progress"]:
        reactor.advance(POLL_S)


def files(directory: Path) -> dict[str, Path]:
    """The files of a journal by the end of their names."""
    return {path.name.rpartition(".")[2]: path for path in directory.iterdir()}


def small_journal(directory: Path) -> None:
    """A base of three jobs and an increment of three records."""
    store, _ = opened(directory)
    store.rewrite(added(number, b"base") for number in range(3))
    store.append([added(7, b"incr"), (UNIT_DONE, job_id(0), b""), (JOB_GONE, job_id(1), GONE_DELETED)])
    store.commit()
    store.close()


def frame_ends(data: bytes) -> list[int]:
    """Where the header and each frame of a segment end, marks included."""
    ends = [segments.HEADER_SIZE]
    while ends[-1] < len(data):
        ends.append(ends[-1] + segments.FRAME_SIZE + int.from_bytes(data[ends[-1] : ends[-1] + 4], "little"))
    return ends


def record_ends(data: bytes) -> list[int]:
    """Where the header and each record of a segment end."""
    ends = frame_ends(data)
    return ends[:1] + [end for start, end in pairwise(ends) if end - start > segments.FRAME_SIZE]


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def replayed(records: list[Record]) -> dict[bytes, bytes]:
    """Body by job id after these records."""
    jobs: dict[bytes, bytes] = {}
    for record in records:
        if record[0] == JOB_ADDED:
            jobs[record[1].id] = record[1].body
        elif record[0] == FLUSHED:
            jobs.clear()
        elif record[0] not in (QUEUE_PAUSED, UNIT_LEASED):
            jobs.pop(record[1], None)
    return jobs


class QuickDisk(Disk):
    """A disk for looking at the outcome: nobody pulls its plug."""

    def fdatasync(self, fd: int) -> None:
        """Nothing to wait for."""

    def sync_directory(self, path: Path) -> None:
        """Nothing to wait for."""


class FaultyDisk(Disk):
    """Fails at one call, counted over all that change the disk; knows what a power cut would leave."""

    CALLS = ("create", "append_to", "write", "fdatasync", "truncate", "rename", "sync_directory", "remove", "cut")

    def __init__(self, fail_at: int, error: int = errno.EIO, *, only: str = "") -> None:
        self.calls = 0
        self.has_failed = False
        self._fail_at = fail_at
        self._error = error
        self._only = only
        self._paths: dict[int, Path] = {}
        self._written: dict[Path, int] = {}
        self.synced: dict[Path, int] = {}

    def stop_failing(self) -> None:
        """No call fails from now on."""
        self._fail_at = 0

    def _count(self, name: str) -> None:
        if self._only in ("", name):
            self.calls += 1
            if self.calls == self._fail_at:
                self.has_failed = True
                raise OSError(self._error, os.strerror(self._error))

    def create(self, path: Path) -> int:
        self._count("create")
        fd = super().create(path)
        self._paths[fd] = path
        self._written[path] = self.synced[path] = 0
        return fd

    def append_to(self, path: Path) -> int:
        self._count("append_to")
        fd = super().append_to(path)
        self._paths[fd] = path
        self._written[path] = self.synced[path] = path.stat().st_size
        return fd

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self.calls += self._only in ("", "write")
        if self.calls == self._fail_at and self._only in ("", "write") and not self.has_failed:
            # A full disk takes a part first.
            self.has_failed = True
            self._written[self._paths[fd]] += super().write(fd, data[: len(data) // 2])
            raise OSError(self._error, os.strerror(self._error))
        written = super().write(fd, data[:-7] if len(data) > 7 else data)
        self._written[self._paths[fd]] += written
        return written

    def fdatasync(self, fd: int) -> None:
        self._count("fdatasync")
        self.synced[self._paths[fd]] = self._written[self._paths[fd]]

    def truncate(self, path: Path, size: int) -> None:
        self._count("truncate")
        fd = os.open(path, os.O_WRONLY)
        os.ftruncate(fd, size)
        os.close(fd)

    def cut(self, fd: int, size: int) -> None:
        self._count("cut")
        super().cut(fd, size)
        self._written[self._paths[fd]] = size

    def rename(self, old: Path, new: Path) -> None:
        self._count("rename")
        super().rename(old, new)

    def sync_directory(self, path: Path) -> None:
        self._count("sync_directory")

    def remove(self, path: Path) -> None:
        self._count("remove")
        super().remove(path)

    def cut_power(self) -> None:
        """Lose what was not synced."""
        for path, size in self.synced.items():
            if path.exists() and not path.name.endswith((".manifest", ".manifest.new")):
                os.truncate(path, min(size, path.stat().st_size))


def until_no_fault(run: Callable[[FaultyDisk, Path], None], directory: Path, **options: Any) -> int:
    """Run with the first call failing, then the second, until none is left; returns how many there are."""
    for fail_at in range(1, 500):
        place = directory / str(fail_at)
        place.mkdir()
        disk = FaultyDisk(fail_at, **options)
        run(disk, place)
        if not disk.has_failed:
            return fail_at - 1
    raise AssertionError("the run never ends without a fault")
