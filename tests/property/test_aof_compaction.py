"""Compaction: whatever happens meanwhile, the journal says what is true, and a failure leaves it as it was."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock as Reactor
from twisted.logger import LogEvent, formatEvent, globalLogPublisher

from disqued.core.model.outbox import FLUSHED, QUEUE_PAUSED, UNIT_DONE, UNIT_LEASED, Record
from disqued.persistence.aof import compaction
from disqued.persistence.disk import Disk
from tests.databases import units
from tests.journals import POLICIES, added, bodies, job_id, loaded, opened, put, replayed, settle


def names(directory: Path) -> list[str]:
    """The segments that there are, oldest first."""
    return sorted(path.name.split(".", 2)[2] for path in directory.iterdir() if path.suffix in (".base", ".incr"))


@pytest.mark.parametrize("policy", POLICIES)
def test_a_compaction_leaves_what_is_true_and_goes_on_behind_it(tmp_path: Path, policy: str) -> None:
    reactor = Reactor()
    store, _ = opened(tmp_path, fsync=policy, reactor=reactor)
    for _ in range(10):
        put(store, *(b"%d" % number for number in range(100)))
    before = store.status()["aof_current_size"]
    store.compact(iter([added(1, b"one"), added(2, b"two")]))
    assert store.status()["aof_rewrite_in_progress"] == 1
    settle(store, reactor)
    status = store.status()
    assert (status["aof_last_bgrewrite_status"], status["aof_last_rewrite_time_sec"]) == ("ok", 0)
    assert status["aof_current_size"] == status["aof_base_size"] < before
    put(store, b"later")
    store.close()
    assert names(tmp_path) == ["2.incr", "3.base"]
    assert bodies(tmp_path) == [b"one", b"two", b"later"]
    # And once more, with what the last one has left.
    store, records = opened(tmp_path, fsync=policy, reactor=reactor)
    assert store.status()["aof_current_size"] == sum(path.stat().st_size for path in tmp_path.glob("*.[bi]*[er]"))
    store.compact(iter([added(3, b"three")]))
    settle(store, reactor)
    store.close()
    assert names(tmp_path) == ["4.incr", "5.base"]
    assert bodies(tmp_path) == [b"three"]
    assert len(records) == 3


def test_a_compaction_that_ends_before_it_is_complete_is_a_failure(tmp_path: Path) -> None:
    reactor = Reactor()
    store, _ = opened(tmp_path, fsync="no", reactor=reactor)
    put(store, b"kept")
    store.compact(iter([added(1, b"one")]))
    assert store._compaction is not None
    store._compaction._end("the thread ended early")
    assert store.status()["aof_last_bgrewrite_status"] == "err"
    store.close()
    assert bodies(tmp_path) == [b"kept"]


def test_a_compaction_that_a_stop_gives_up_is_no_failure(tmp_path: Path) -> None:
    noted: list[LogEvent] = []
    globalLogPublisher.addObserver(noted.append)
    reactor = Reactor()
    descriptors = len(os.listdir("/proc/self/fd"))
    try:
        for fails in (False, True):
            store, _ = opened(tmp_path, fsync="no", reactor=reactor)
            put(store, b"kept")
            store.compact(iter([added(1, b"one")]))
            if fails:
                assert store._compaction is not None
                store._compaction._worker.error = "No space left on device"
            store.close()
            assert reactor.getDelayedCalls() == []
            assert len(os.listdir("/proc/self/fd")) == descriptors
    finally:
        globalLogPublisher.removeObserver(noted.append)
    told = [(event["log_level"].name, formatEvent(event)) for event in noted]
    assert [each for each in told if "given up" in each[1] or "failed," in each[1]] == [
        ("info", "Compaction given up, the journal is as it was"),
        ("error", "Compaction failed, the journal is as it was: No space left on device"),
    ]
    assert set(bodies(tmp_path)) == {b"kept"}


class Watched(Reactor):
    """A reactor whose clock is looked at: each look takes `cost_s`."""

    cost_s = 0.0
    looks = 0

    def seconds(self) -> float:
        self.looks += 1
        self.rightNow += self.cost_s
        return super().seconds()


class Sizes(Disk):
    """Notes how much is written at a time."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self.sizes.append(len(data))
        return super().write(fd, data)


def test_the_clock_is_looked_at_after_some_small_records_and_after_each_large_one(tmp_path: Path) -> None:
    reactor, disk = Watched(), Sizes()
    store, _ = opened(tmp_path, reactor=reactor, disk=disk)
    looks: list[int] = []

    def small() -> Iterator[Record]:
        for number in range(compaction.SLICE_RECORDS):
            looks.append(reactor.looks)
            yield added(number, b"small")

    store.compact(small())
    settle(store, reactor)
    after_the_first, later = 1, (compaction.SLICE_RECORDS - 1) // compaction.RECORDS_PER_LOOK
    assert looks[-1] - looks[0] == after_the_first + later
    body = b"x" * compaction.BYTES_PER_LOOK
    store.compact(added(number, body) for number in range(12))
    disk.sizes.clear()
    reactor.cost_s = compaction.SLICE_S * 0.4
    settle(store, reactor)
    slices = [size // len(body) for size in disk.sizes if size > len(body)]
    assert slices == [3] * 4, "time is up after the third record"
    store.close()


class Node:
    """Jobs, leases and a pause in dictionaries, and the records of what happens to them."""

    def __init__(self) -> None:
        self.jobs: dict[bytes, bytes] = {}
        self.leases: dict[bytes, bytes] = {}  #: worker by job id
        self.paused = 0
        self.jobs_of_walk: list[bytes] = []

    def change(self, word: str, *rest: Any) -> Record:
        """Let something happen."""
        if word == "add":
            self.jobs[job_id(rest[0])] = rest[1]
            return added(*rest)
        if word == "lease" and job_id(rest[0]) in self.jobs:
            self.leases[job_id(rest[0])] = rest[1]
            return lease(*rest)
        if word in ("done", "lease"):
            self.jobs.pop(job_id(rest[0]), None)
            self.leases.pop(job_id(rest[0]), None)
            return (UNIT_DONE, job_id(rest[0]), b"")
        if word == "pause":
            self.paused = rest[0]
            return (QUEUE_PAUSED, b"queue", rest[0])
        self.jobs.clear()
        self.leases.clear()
        self.paused = 0
        return (FLUSHED,)

    def walk(self) -> Iterator[Record]:
        """As `recovery.walk` does it: what is met is true at that moment, in an order that nothing else follows."""
        if self.paused:
            yield (QUEUE_PAUSED, b"queue", self.paused)
        for number in (3, 1, 4, 0, 5, 9, 2, 6, 8, 7):
            body = self.jobs.get(job_id(number))
            if body is not None:
                yield added(number, body)
            worker = self.leases.get(job_id(number))
            if worker is not None:
                yield lease(number, worker)

    def check(self, records: list[Record]) -> None:
        """See whether records say what is so."""
        assert (replayed(records), pause_after(records)) == (self.jobs, self.paused)
        assert {job: word[4] for (job, _), word in units(records).items()} == self.leases


def lease(number: int, worker: bytes) -> Record:
    return (UNIT_LEASED, job_id(number), b"", 1, worker)


def pause_after(records: list[Record]) -> int:
    paused = 0
    for record in records:
        if record[0] == QUEUE_PAUSED:
            paused = record[2]
        elif record[0] == FLUSHED:
            paused = 0
    return paused


changes = st.one_of(
    st.tuples(st.just("add"), st.integers(0, 9), st.binary(max_size=20)),
    st.tuples(st.just("lease"), st.integers(0, 9), st.sampled_from([b"", b"anna", b"bob"])),
    st.tuples(st.just("done"), st.integers(0, 9)),
    st.tuples(st.just("pause"), st.integers(0, 3)),
    st.tuples(st.just("flush")),
)


@given(
    st.sampled_from(["always", "everysec"]),
    st.lists(st.one_of(changes, st.tuples(st.sampled_from(["commit", "turn", "turn", "compact", "restart"])))),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_changes_between_the_slices_of_a_compaction_are_never_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str, steps: list[Any]
) -> None:
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    monkeypatch.setattr(compaction, "SLICE_RECORDS", 1)
    monkeypatch.setattr(compaction, "RECORDS_PER_LOOK", 1)
    reactor, node = Reactor(), Node()
    store, _ = opened(tmp_path, reactor=reactor, fsync=policy)
    for word, *rest in steps:
        if word == "commit":
            store.commit()
        elif word == "turn":
            reactor.advance(compaction.POLL_S)
        elif word == "compact":
            if not store.status()["aof_rewrite_in_progress"]:
                store.compact(node.walk())
        elif word == "restart":
            store.close()
            store, records = opened(tmp_path, reactor=reactor, fsync=policy)
            node.check(records)
        else:
            store.append([node.change(word, *rest)])
    store.commit()
    settle(store, reactor)
    assert store.status()["aof_last_bgrewrite_status"] == "ok"
    store.close()
    node.check(loaded(tmp_path))
