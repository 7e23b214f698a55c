"""A database under test: a reactor that runs when it is told to, stores on it, and what is in them."""

import os
import sqlite3
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock as Reactor
from twisted.python.failure import Failure

from disqued.core.model.fate import NO_FATE, Fate
from disqued.core.model.groups import new_job
from disqued.core.model.job import KIND_WORK, Job, JobOptions
from disqued.core.model.outbox import FLUSHED, JOB_ADDED, JOB_GONE, QUEUE_PAUSED, UNIT_DONE, UNIT_LEASED, Record
from disqued.core.model.terms import NO_TERMS, Terms
from disqued.persistence.disk import Disk
from disqued.persistence.interface import StoreError
from disqued.persistence.sqlite.store import SqliteStore
from disqued.testing.clock import Clock
from tests.limits import LIMIT

NAME = "disque.sqlite"
POLICIES = ["always", "everysec", "no"]
WEEK_S = 7 * 86_400


class Loop(Reactor):
    """A reactor for one thread that waits, and others that call."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: SimpleQueue[Callable[[], Any]] = SimpleQueue()

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:  # noqa: A002
        self._calls.put(lambda: callable(*args, **kwargs))

    def wait(self, answer: "Deferred[Any] | None") -> None:
        """Run until the answer is there; raises what it fails with."""
        if answer is None:
            return
        outcome: list[Any] = []
        answer.addBoth(outcome.append)
        self.run_until(lambda: bool(outcome))
        if isinstance(outcome[0], Failure):
            outcome[0].raiseException()

    def run_until(self, is_over: Callable[[], bool]) -> None:
        """Run calls of other threads, and let time pass when there is none."""
        while not is_over():
            if self._calls.empty() and self.getDelayedCalls():
                self.advance(0.01)
                continue
            self._calls.get(timeout=LIMIT)()

    def settle(self) -> None:
        """Run the calls that are there."""
        while not self._calls.empty():
            self._calls.get()()


def job_id(number: int) -> bytes:
    return b"DI%044dSQ" % number


def make_job(
    number: int, body: bytes = b"body", *, queue: bytes = b"queue", alias: bytes = b"", kind: int = KIND_WORK,
    terms: Terms = NO_TERMS, fate: Fate = NO_FATE, **facts: Any,
) -> Job:  # fmt: skip
    options = JobOptions(ttl_ms=600_000, retry_ms=60_000, delay_ms=0, replicate=1, kind=kind, terms=terms, fate=fate)
    options.stamp(1_000)
    job = new_job(job_id(number), queue, body, 1_700_000_000_000_000_000 + number, options, alias=alias)
    for name, value in facts.items():
        setattr(job, name, value)
    return job


def added(number: int, body: bytes = b"body", **facts: Any) -> Record:
    return (JOB_ADDED, make_job(number, body, **facts))


@attrs.define
class Settings:
    """Settings of a database."""

    appendfsync: str
    sqlite_history: int = WEEK_S
    aof_load_truncated: bool = True
    aof_enqueue_jobs_once: bool = False


class Store(SqliteStore):
    """A store that the test waits for."""

    def __init__(self, directory: Path, *, fsync: str = "no", clock: Clock | None = None, **options: Any) -> None:
        self.loop = Loop()
        self.clock = clock or Clock()
        disk = options.pop("disk", None)
        settings: Any = Settings(fsync, **options)
        super().__init__(directory / NAME, settings, clock=self.clock, reactor=self.loop, disk=disk)

    def loaded(self) -> list[Record]:
        records: list[Record] = []
        for record in self.load():
            if isinstance(record, Deferred):
                self.loop.wait(record)
            else:
                records.append(record)
        return records

    def put(self, *records: Record) -> None:
        self.append(list(records))
        self.loop.wait(self.commit())

    def put_bodies(self, *bodies: bytes) -> None:
        self.put(*(added(number, body) for number, body in enumerate(bodies)))

    def put_all(self, records: Iterable[Record]) -> None:
        self.loop.wait(self.rewrite(records))

    def compact_now(self, records: Iterable[Record] = ()) -> None:
        self.compact(iter(records))
        self.loop.run_until(lambda: not self.status()["aof_rewrite_in_progress"])

    def end(self) -> None:
        self.loop.wait(self.close())


def opened(directory: Path, **options: Any) -> tuple[Store, list[Record]]:
    """Start a store and load it; it is closed again when that fails."""
    store = Store(directory, **options)
    try:
        store.open()
        return store, store.loaded()
    except StoreError:
        store.end()
        raise


def loaded(directory: Path, **options: Any) -> list[Record]:
    store, records = opened(directory, **options)
    store.end()
    return records


def bodies(directory: Path, **options: Any) -> list[bytes]:
    """Bodies of the jobs that come back, in order."""
    return [record[1].body for record in loaded(directory, **options) if record[0] == JOB_ADDED]


def rows(directory: Path, query: str) -> list[tuple[Any, ...]]:
    """What somebody else sees."""
    connection = sqlite3.connect(f"file:{directory / NAME}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def change(directory: Path, statement: str) -> None:
    """Do what nobody should do."""
    connection = sqlite3.connect(directory / NAME)
    connection.executescript(statement)
    connection.close()


def replayed(records: Iterable[Record]) -> tuple[dict[bytes, bytes], dict[bytes, int]]:
    """Body by job id, and pause by queue, after these records."""
    jobs: dict[bytes, bytes] = {}
    pauses: dict[bytes, int] = {}
    for record in records:
        kind = record[0]
        if kind == JOB_ADDED:
            # The later one stands at the end.
            jobs.pop(record[1].id, None)
            jobs[record[1].id] = record[1].body
        elif kind == FLUSHED:
            jobs.clear()
            pauses.clear()
        elif kind == QUEUE_PAUSED:
            pauses[record[1]] = record[2]
        elif kind != UNIT_LEASED and (kind != UNIT_DONE or record[2] == b""):
            jobs.pop(record[1], None)
    return jobs, {queue: pause for queue, pause in pauses.items() if pause}


def units(records: Iterable[Record]) -> dict[tuple[bytes, bytes], Record]:
    """The last word on each unit that somebody has, or that a group is done with, by job id and scope."""
    found: dict[tuple[bytes, bytes], Record] = {}
    for record in records:
        kind = record[0]
        if kind == FLUSHED:
            found.clear()
        elif kind == UNIT_LEASED or (kind == UNIT_DONE and record[2]):
            found[record[1], record[2]] = record
        elif kind in (UNIT_DONE, JOB_GONE):
            found = {name: word for name, word in found.items() if name[0] != record[1]}
    return found


class Gate:
    """Lets calls through one by one, and tells when one has come."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self.open = threading.Event()

    def pass_through(self) -> None:
        self.came.set()
        assert self.open.wait(60)


class WatchedDisk(Disk):
    """A disk whose syncs are counted, wait for the test, or fail."""

    def __init__(self) -> None:
        self.syncs = 0
        self.gate: Gate | None = None
        self.error: OSError | None = None

    def fdatasync(self, fd: int) -> None:
        self.syncs += 1
        if self.gate:
            self.gate.pass_through()
        if self.error:
            raise self.error
        super().fdatasync(fd)


def produce(directory: Path, policy: str) -> Iterator[int]:
    """Commit one job after the other, for ever; yields the number of each that was acknowledged."""
    store, records = opened(directory, fsync=policy)
    number = len(records)
    while True:
        number += 1
        store.put(added(number, b"%d" % number))
        yield number


if __name__ == "__main__":
    for acknowledged in produce(Path(sys.argv[1]), sys.argv[2]):
        os.write(1, b"%d\n" % acknowledged)
