"""Large records of a journal: a thread checks and writes them, in pieces, and nothing that is promised changes."""

import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock as Reactor

from disqued.core.model.outbox import JOB_ADDED
from disqued.persistence.aof import segments
from disqued.persistence.aof.segments import CHUNK
from disqued.persistence.aof.store import AT_ONCE_BYTES, AofStore
from disqued.persistence.disk import Disk
from disqued.persistence.interface import StoreDamaged, StoreFailed
from disqued.wire.pieces import LARGE
from tests.journals import POLICIES, added, bodies, make, opened, put, settle
from tests.limits import LIMIT

BODY = bytes(range(256)) * (5 * CHUNK // 256)
HERE = threading.get_ident()


class LookedAtDisk(Disk):
    """Notes which thread writes how much, and what is synced; a write can fail once, and wait for the test.

    The thread waits that comes first to the gate, and no other one.
    """

    def __init__(self) -> None:
        self.here: list[int] = []  #: bytes of writes on the reactor's thread
        self.beside: list[int] = []
        self.calls: list[str] = []
        self.fails = False
        self.gate: threading.Event | None = None
        self.waits: int | None = None  #: the thread that waits at the gate, or has

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if len(data) > LARGE and self.gate is not None:
            self.waits = self.waits or threading.get_ident()
            if self.waits == threading.get_ident():
                assert self.gate.wait(LIMIT)
        if len(data) > LARGE and self.fails:
            self.fails = False
            super().write(fd, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        (self.here if threading.get_ident() == HERE else self.beside).append(len(data))
        self.calls.append("write")
        return super().write(fd, data)

    def fdatasync(self, fd: int) -> None:
        self.calls.append("sync")
        super().fdatasync(fd)


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes that the reactor's thread takes the checksum of at a time."""
    sizes: list[int] = []
    crc32 = segments.crc32

    def noting(data: Any, value: int = 0) -> int:
        if threading.get_ident() == HERE:
            sizes.append(len(data))
        return crc32(data, value)

    monkeypatch.setattr(segments, "crc32", noting)
    return sizes


def over(answer: "Deferred[None] | None", reactor: Reactor) -> Any:
    """Let a commit come to its end; returns None, or its failure."""
    assert answer is not None
    outcome: list[Any] = []
    answer.addBoth(outcome.append)
    turn_until(lambda: bool(outcome), reactor)
    return outcome[0]


def turn_until(done: Callable[[], bool], reactor: Reactor) -> None:
    """Let the loop turn beside the threads until something is so."""
    ends = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < ends
        reactor.advance(0.01)
        os.sched_yield()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_thread_checks_and_writes_a_large_record(policy: str, tmp_path: Path, checked: list[int]) -> None:
    disk, reactor = LookedAtDisk(), Reactor()
    store, _ = opened(tmp_path, fsync=policy, disk=disk, reactor=reactor)
    put(store, b"small")
    disk.here.clear()
    disk.calls.clear()
    store.append([added(1, BODY), added(2, b"behind")])
    assert over(store.commit(), reactor) is None
    assert sum(disk.beside) > len(BODY)
    assert sum(disk.here) == 0
    assert max(checked) < LARGE
    if policy == "always":
        assert disk.calls[-1] == "sync"
    put(store, b"after")
    store.close()
    assert bodies(tmp_path) == [b"small", BODY, b"behind", b"after"]


def test_no_commit_of_a_large_record_is_over_before_its_sync(tmp_path: Path) -> None:
    disk, reactor = LookedAtDisk(), Reactor()
    store, _ = opened(tmp_path, fsync="always", disk=disk, reactor=reactor)
    disk.gate = threading.Event()
    store.append([added(1, BODY)])
    answer = store.commit()
    ended: list[Any] = []
    assert answer is not None
    answer.addBoth(ended.append)
    reactor.pump([0.01] * 50)
    assert not ended
    assert store.status()["aof_buffer_length"] >= 0  # whoever looks does not wait for the thread
    disk.gate.set()
    assert over(answer, reactor) is None
    store.close()


def test_what_comes_meanwhile_is_written_beside_when_it_is_much(tmp_path: Path) -> None:
    disk, reactor = LookedAtDisk(), Reactor()
    store, _ = opened(tmp_path, fsync="no", disk=disk, reactor=reactor)
    disk.gate = threading.Event()  # or a quick thread is done before anything comes
    store.append([added(1, BODY)])
    answer = store.commit()
    few = [bytes([number]) * (LARGE // 2) for number in range(2 * AT_ONCE_BYTES // LARGE + 1)]
    store.append([added(2 + number, body) for number, body in enumerate(few)])
    disk.gate.set()
    assert over(answer, reactor) is None
    later = store.commit()  # done when it returns, where the thread was quick
    assert later is None or over(later, reactor) is None
    assert sum(disk.here) < LARGE
    put(store, b"few")  # and at once when it is not
    store.close()
    assert bodies(tmp_path) == [BODY, *few, b"few"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_large_record_that_cannot_be_written_is_kept_and_written_later(policy: str, tmp_path: Path) -> None:
    disk, reactor = LookedAtDisk(), Reactor()
    store, _ = opened(tmp_path, fsync=policy, disk=disk, reactor=reactor)
    disk.fails = True
    store.append([added(1, BODY)])
    failure = over(store.commit(), reactor)
    assert isinstance(failure.value, StoreFailed)
    assert not failure.value.final
    assert "No space left" in str(failure.value)
    assert over(store.commit(), reactor) is None
    assert sum(disk.here) < LARGE
    store.close()
    assert bodies(tmp_path) == [BODY]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_journal_that_closes_has_all_that_was_appended(policy: str, tmp_path: Path) -> None:
    reactor = Reactor()
    store, _ = opened(tmp_path, fsync=policy, reactor=reactor)
    store.append([added(1, BODY)])
    store.close()
    assert not reactor.getDelayedCalls()
    assert bodies(tmp_path) == [BODY]


def test_a_compaction_leaves_large_records_to_its_thread(tmp_path: Path, checked: list[int]) -> None:
    disk, reactor = LookedAtDisk(), Reactor()
    store, _ = opened(tmp_path, disk=disk, reactor=reactor)
    job = added(1, BODY)
    store.append([job])
    assert over(store.commit(), reactor) is None
    disk.here.clear()
    store.compact(iter([job]))
    settle(store, reactor)
    store.close()
    assert sum(disk.here) < LARGE
    assert max(checked) < LARGE
    assert bodies(tmp_path) == [BODY]


def records_of(store: AofStore, reactor: Reactor) -> Iterator[Any]:
    """What a load yields, pauses included, each of which ends with the next turn."""
    for record in store.load():
        if isinstance(record, Deferred):
            assert not record.called
            reactor.advance(0)
            assert record.called
        yield record


def test_a_large_record_is_read_and_checked_bit_by_bit(tmp_path: Path, checked: list[int]) -> None:
    store, _ = opened(tmp_path)
    store.append([added(1, b"one"), added(2, BODY), added(3, b"three")])
    store.close()
    checked.clear()
    reactor = Reactor()
    store = make(tmp_path, reactor=reactor)
    store.open()
    found = list(records_of(store, reactor))
    store.close()
    assert [record[1].body for record in found if isinstance(record, tuple)] == [b"one", BODY, b"three"]
    assert sum(isinstance(record, Deferred) for record in found) >= len(BODY) // CHUNK
    assert max(checked) <= CHUNK
    assert all(isinstance(record, Deferred) or record[0] == JOB_ADDED for record in found)


@pytest.mark.parametrize("at", [100, len(BODY) // 2, len(BODY)])
def test_a_large_record_that_is_damaged_is_told(at: int, tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.append([added(1, b"one"), added(2, BODY), added(3, b"three")])
    store.close()
    [path] = [path for path in tmp_path.iterdir() if path.stat().st_size > len(BODY)]
    data = bytearray(path.read_bytes())
    place = data.index(BODY[:512]) + at - 20
    data[place] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreDamaged, match="the checksum is wrong"):
        bodies(tmp_path)


def test_a_large_record_that_is_cut_off_ends_the_journal(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.append([added(1, b"one"), added(2, BODY)])
    store.close()
    [path] = [path for path in tmp_path.iterdir() if path.stat().st_size > len(BODY)]
    path.write_bytes(path.read_bytes()[: -len(BODY) // 2])
    assert bodies(tmp_path) == [b"one"]


def test_the_move_of_a_compaction_waits_for_no_thread(tmp_path: Path) -> None:
    """Under `always`, too: a large record that is being written is no reason to hold the loop."""
    disk, reactor = LookedAtDisk(), Reactor()
    store, _ = opened(tmp_path, fsync="always", disk=disk, reactor=reactor)
    put(store, b"one")
    disk.gate = threading.Event()
    store.append([added(2, BODY)])
    answer = store.commit()
    turn_until(lambda: disk.waits is not None, reactor)
    store.compact(iter([added(1, b"one"), added(2, BODY)]))
    turn_until(lambda: store._journal.appender is not None and store._journal.appender.moving_to is not None, reactor)
    disk.gate.set()
    assert over(answer, reactor) is None
    settle(store, reactor)
    store.close()
    assert BODY in bodies(tmp_path)
