"""A journal in trouble: disks that are full, syncs that fail, files that are taken away."""

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
from twisted.internet.task import Clock as Reactor
from twisted.python.failure import Failure

from disqued.core.model.outbox import UNIT_DONE, Record
from disqued.persistence.aof import appending, compaction
from disqued.persistence.aof.compaction_schedule import RETRY_MS
from disqued.persistence.aof.store import POLL_S, AofFactory, AofStore
from disqued.persistence.disk import Disk
from disqued.persistence.interface import StoreDamaged, StoreError, StoreFailed
from tests.journals import (
    NAME,
    POLICIES,
    FaultyDisk,
    added,
    bodies,
    files,
    flipped,
    job_id,
    loaded,
    make,
    opened,
    put,
    settle,
    until_no_fault,
)


class FullDisk(Disk):
    """Has room for so many bytes; its syncs can fail, or wait for the test."""

    def __init__(self) -> None:
        self.room: int | None = None  #: None = plenty
        self.error: int = errno.ENOSPC
        self.cut_fails = False
        self.sync_fails = False
        self.gate: threading.Event | None = None
        self.syncs: list[str] = []

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self.room is None:
            return super().write(fd, data)
        if not self.room:
            raise OSError(self.error, os.strerror(self.error))
        written = super().write(fd, data[: self.room])
        self.room -= written
        return written

    def cut(self, fd: int, size: int) -> None:
        if self.cut_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().cut(fd, size)

    def fdatasync(self, fd: int) -> None:
        if self.gate is not None and not os.readlink(f"/proc/self/fd/{fd}").endswith("base"):
            assert self.gate.wait(60)
        if self.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.syncs.append(os.readlink(f"/proc/self/fd/{fd}").rpartition(".")[2])
        super().fdatasync(fd)


def commit_for_ever(store: AofStore) -> None:
    """A commit that the machine was too slow for returns, and the next one is told."""
    while True:
        store.commit()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_what_did_not_fit_is_written_in_its_order_when_there_is_room_again(
    tmp_path: Path, policy: str, error: int
) -> None:
    disk = FullDisk()
    disk.error = error
    store, _ = opened(tmp_path, fsync=policy, disk=disk)
    put(store, b"before")
    size = files(tmp_path)["incr"].stat().st_size
    disk.room = 70
    for name in (b"first", b"second", b"third"):
        store.append([added(1, name)])
        with pytest.raises(StoreFailed, match=os.strerror(error)) as caught:
            store.commit()
        assert not caught.value.final
        # Nothing of it stands in the file, which is whole.
        assert files(tmp_path)["incr"].stat().st_size == size
        assert store.status()["aof_last_write_status"] == "err"
    disk.room = None
    store.commit()
    assert store.status()["aof_last_write_status"] == "ok"
    put(store, b"after")
    store.close()
    assert bodies(tmp_path) == [b"before", b"first", b"second", b"third", b"after"]


def test_what_the_thread_could_not_write_is_written_without_another_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "PERIOD_S", 0.01)
    disk = FullDisk()
    store, _ = opened(tmp_path, fsync="everysec", disk=disk)
    gate = disk.gate = threading.Event()
    put(store, b"before")
    disk.room = 0
    store.append([added(1, b"late")])
    with pytest.raises(StoreFailed, match="No space left") as caught:
        commit_for_ever(store)
    assert not caught.value.final
    disk.room = None
    while b"late" not in files(tmp_path)["incr"].read_bytes():
        pass
    gate.set()
    store.close()
    assert bodies(tmp_path) == [b"before", b"late"]


def test_what_cannot_be_cut_off_is_final(tmp_path: Path) -> None:
    disk = FullDisk()
    store, _ = opened(tmp_path, fsync="no", disk=disk)
    disk.room, disk.cut_fails = 30, True
    with pytest.raises(StoreFailed, match="Input/output error") as caught:
        put(store, b"job")
    assert caught.value.final
    store.close()
    assert bodies(tmp_path) == []


@pytest.mark.parametrize("policy", POLICIES)
def test_a_disk_that_stays_full_costs_memory_only_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    monkeypatch.setattr(appending, "KEPT_BYTES", 1_000)
    disk = FullDisk()
    store, _ = opened(tmp_path, fsync=policy, disk=disk)
    disk.room = 0
    final = []
    for number in range(30):
        store.append([(UNIT_DONE, job_id(number), b"")])
        with pytest.raises(StoreFailed) as caught:
            store.commit()
        final.append(caught.value.final)
    assert final == sorted(final)
    assert 5 < final.index(True) < 20
    assert store.status()["aof_buffer_length"] == 0
    store.close()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_store_without_an_increment_waits_for_room_for_one(tmp_path: Path, policy: str) -> None:
    disk = FullDisk()
    store, _ = opened(tmp_path, fsync=policy, disk=disk)
    store.rewrite([added(1, b"base")])
    before = sorted(path.name for path in tmp_path.iterdir())
    for room in (0, 10, 30):
        disk.room = room
        store.append([added(room, b"%d" % room)])
        with pytest.raises(StoreFailed, match="No space left") as caught:
            store.commit()
        assert not caught.value.final
        assert store.status()["aof_last_write_status"] == "err"
        assert {*before, f"{NAME}.manifest.new"} >= {path.name for path in tmp_path.iterdir()}
    disk.room = None
    store.commit()
    store.close()
    assert bodies(tmp_path) == [b"base", b"0", b"10", b"30"]


# Compaction on failing disks.


def run_compaction(disk: FaultyDisk, place: Path) -> list[bytes]:
    """Commit, compact and commit meanwhile; returns what was acknowledged."""
    acknowledged: list[bytes] = []
    known: list[bytes] = []

    def commit(name: bytes) -> None:
        known.append(name)
        store.append([added(len(known), name)])
        store.commit()
        acknowledged.append(name)

    def walk() -> Iterator[Record]:
        for number in range(10):
            if number < len(known):
                yield added(number + 1, known[number])

    reactor = Reactor()
    store = make(place, fsync="always", disk=disk, reactor=reactor)
    try:
        store.open()
        list(store.load())
        for number in range(3):
            commit(b"before %d" % number)
        store.compact(walk())
        for number in range(3):
            commit(b"meanwhile %d" % number)
            reactor.advance(compaction.POLL_S)
        settle(store, reactor)
        for number in range(3):
            commit(b"after %d" % number)
    except StoreError:
        settle(store, reactor)
    try:
        store.close()
    except StoreFailed:
        assert disk.has_failed
    return acknowledged


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_whatever_fails_during_a_compaction_nothing_acknowledged_is_lost(tmp_path: Path, error: int) -> None:
    def run(disk: FaultyDisk, place: Path) -> None:
        acknowledged = run_compaction(disk, place)
        disk.cut_power()
        store, records = opened(place)
        assert {record[1].body for record in records} >= set(acknowledged)
        assert len({record[1].id for record in records}) <= len(acknowledged) + 1
        store.close()
        listed = {path.name for path in place.iterdir()}
        assert len(listed) <= 7

    assert until_no_fault(run, tmp_path, error=error) > 30


@pytest.mark.parametrize("kind", ["fdatasync", "write", "create", "sync_directory", "rename"])
def test_a_compaction_that_fails_says_so_and_the_journal_goes_on(tmp_path: Path, kind: str) -> None:
    """Whichever call of this kind it is, within the compaction."""

    def run(disk: FaultyDisk, place: Path) -> None:
        reactor = Reactor()
        store, _ = opened(place, reactor=reactor, auto_aof_rewrite_percentage=1)
        put(store, *(b"%d" % number for number in range(10)))
        assert store.wants_compaction
        store._journal.files.disk = disk
        clock = store._clock
        with suppress(StoreError):
            store.compact(added(number, b"%d" % number) for number in range(10))
        settle(store, reactor)
        if disk.has_failed:
            assert store.status()["aof_last_bgrewrite_status"] == "err"
            assert not store.wants_compaction
            clock.advance(RETRY_MS)  # type: ignore[attr-defined]
            assert store.wants_compaction
        else:
            assert store.status()["aof_last_bgrewrite_status"] == "ok"
        disk.stop_failing()
        put(store, b"after")
        store.close()
        assert bodies(place) == [*(b"%d" % number for number in range(10)), b"after"]
        assert not list(place.glob("*.damaged"))

    assert until_no_fault(run, tmp_path, only=kind) >= {"create": 3, "rename": 2}.get(kind, 4)


def test_after_a_failed_sync_a_compaction_makes_the_journal_sound(tmp_path: Path) -> None:
    disk, reactor = FullDisk(), Reactor()
    store, _ = opened(tmp_path, fsync="always", disk=disk, reactor=reactor)
    put(store, b"one")
    disk.sync_fails = True
    with pytest.raises(StoreFailed):
        put(store, b"two")
    disk.sync_fails = False
    assert not store.wants_compaction
    gate = disk.gate = threading.Event()
    store.compact(iter([added(1, b"one"), added(2, b"two")]))
    # What happens meanwhile is taken, and not promised.
    store.append([added(3, b"three")])
    with pytest.raises(StoreFailed, match="Input/output error; the journal is being written anew") as caught:
        store.commit()
    assert not caught.value.final
    gate.set()
    settle(store, reactor)
    store.commit()
    assert store.status()["aof_last_write_status"] == "ok"
    put(store, b"four")
    store.close()
    assert bodies(tmp_path) == [b"one", b"two", b"three", b"four"]


def test_a_repair_that_fails_anywhere_leaves_what_there_was(tmp_path: Path) -> None:
    def run(disk: FaultyDisk, place: Path) -> None:
        reactor, broken = Reactor(), FullDisk()
        store, _ = opened(place, fsync="always", disk=broken, reactor=reactor)
        put(store, b"one")
        broken.sync_fails = True
        with pytest.raises(StoreFailed):
            put(store, b"two")
        store._journal.files.disk = disk
        for _ in range(2):
            try:
                store.compact(iter([added(1, b"one"), added(2, b"two")]))
            except StoreError:
                continue
            settle(store, reactor)
            if store.status()["aof_last_bgrewrite_status"] == "ok":
                break
            with pytest.raises(StoreFailed) as caught:
                put(store, b"not taken")
            assert caught.value.final
        disk.stop_failing()
        put(store, b"three")
        store.close()
        assert bodies(place) == [b"one", b"two", b"three"]

    assert until_no_fault(run, tmp_path) > 10


def test_a_repair_needs_room_for_a_file(tmp_path: Path) -> None:
    disk = FullDisk()
    store, _ = opened(tmp_path, fsync="always", disk=disk)
    disk.sync_fails = True
    with pytest.raises(StoreFailed):
        put(store, b"one")
    disk.room = 0
    with pytest.raises(StoreError, match="no new part of the journal can be begun: No space left"):
        store.compact(iter([]))
    assert store.status()["aof_last_bgrewrite_status"] == "err"
    store.close()


def test_a_walk_that_breaks_leaves_the_journal_as_it_was(tmp_path: Path) -> None:
    def walk() -> Iterator[Record]:
        yield added(1, b"one")
        raise KeyError("a bug")

    reactor = Reactor()
    store, _ = opened(tmp_path, reactor=reactor)
    put(store, b"one")
    store.compact(walk())
    settle(store, reactor)
    assert store.status()["aof_last_bgrewrite_status"] == "err"
    put(store, b"two")
    store.close()
    assert bodies(tmp_path) == [b"one", b"two"]


# When.


def test_a_journal_wants_to_be_compacted_when_it_has_grown(tmp_path: Path) -> None:
    reactor = Reactor()
    store, _ = opened(tmp_path, reactor=reactor, auto_aof_rewrite_percentage=100, auto_aof_rewrite_min_size=3_000)
    while not store.wants_compaction:
        put(store, b"x" * 100)
    assert 3_000 < store.status()["aof_current_size"] < 3_500
    store.compact(added(number, b"y" * 400) for number in range(10))
    assert not store.wants_compaction
    with pytest.raises(StoreError, match="in progress already"):
        store.compact(iter([]))
    settle(store, reactor)
    size = store.status()["aof_current_size"]
    assert size > 4_000
    while not store.wants_compaction:
        put(store, b"x" * 100)
    assert 2 * size < store.status()["aof_current_size"] < 2 * size + 500
    store.close()
    # What has grown before a start does not count.
    store, _ = opened(tmp_path, auto_aof_rewrite_percentage=100)
    assert not store.wants_compaction
    store.configure(Settings(tmp_path / NAME, auto_aof_rewrite_percentage=0))
    put(store, *[b"x" * 100] * 200)
    assert not store.wants_compaction
    store.configure(Settings(tmp_path / NAME))
    assert store.wants_compaction
    store.close()


@attrs.define
class Settings:
    appendfilename: Path
    appendfsync: str = "everysec"
    aof_load_truncated: bool = True
    aof_enqueue_jobs_once: bool = False
    auto_aof_rewrite_percentage: int = 100
    auto_aof_rewrite_min_size: int = 0
    aof_rewrite_incremental_fsync: bool = True
    no_appendfsync_on_rewrite: bool = False


@pytest.mark.parametrize("incremental", [True, False])
def test_a_base_is_synced_as_it_grows_when_the_operator_wants_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, incremental: bool
) -> None:
    monkeypatch.setattr(compaction, "SYNC_BYTES", 10_000)
    monkeypatch.setattr(compaction, "SLICE_RECORDS", 16)
    disk, reactor = FullDisk(), Reactor()
    store, _ = opened(tmp_path, disk=disk, reactor=reactor, aof_rewrite_incremental_fsync=incremental)
    store.compact(added(number, b"x" * 500) for number in range(200))
    settle(store, reactor)
    store.close()
    assert disk.syncs.count("base") == (13 if incremental else 1)
    assert len(loaded(tmp_path)) == 200


def test_the_journal_goes_unsynced_during_a_compaction_when_the_operator_wants_so(tmp_path: Path) -> None:
    disk, reactor = FullDisk(), Reactor()
    store, _ = opened(tmp_path, fsync="everysec", disk=disk, reactor=reactor, no_appendfsync_on_rewrite=True)
    turn = threading.Event()

    def walk() -> Iterator[Record]:
        turn.set()
        yield added(1, b"one")
        while len(drawn) < 5:
            drawn.append(1)
            yield added(2, b"two")

    drawn: list[int] = []
    store.compact(walk())
    while not turn.is_set():
        reactor.advance(compaction.POLL_S)
    while store._journal.moved_at() is None:
        pass
    disk.syncs.clear()
    put(store, b"meanwhile")
    settle(store, reactor)
    while "incr" not in disk.syncs:
        pass
    assert disk.syncs.index("incr") > disk.syncs.index("base")
    store.close()


# Files that go.


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("kind", ["incr", "manifest", "folder", "replaced"])
def test_files_that_are_taken_away_are_missed(tmp_path: Path, policy: str, kind: str) -> None:
    place = tmp_path / "data"
    place.mkdir()
    store, _ = opened(place, fsync=policy)
    put(store, b"one")
    if kind == "folder":
        shutil.move(place, tmp_path / "elsewhere")
    elif kind == "replaced":
        path = files(place)["incr"]
        shutil.copy(path, tmp_path / "copy")
        (tmp_path / "copy").replace(path)
    else:
        files(place)[kind].unlink()
    if policy == "always":
        find = partial(put, store, b"two")
    else:
        put(store, b"two")
        find = store.look  # as the driver does every second
    with pytest.raises(StoreFailed, match=r"disque\.aof\..* was (taken away|replaced) while it was in use") as caught:
        find()
    assert caught.value.final
    with pytest.raises(StoreFailed):
        put(store, b"three")
    store.close()


def test_a_compaction_makes_a_journal_sound_whose_segment_was_taken_away(tmp_path: Path) -> None:
    reactor = Reactor()
    store, _ = opened(tmp_path, fsync="always", reactor=reactor)
    put(store, b"one")
    files(tmp_path)["incr"].unlink()
    with pytest.raises(StoreFailed):
        put(store, b"two")
    store.compact(iter([added(1, b"one"), added(2, b"two")]))
    settle(store, reactor)
    put(store, b"three")
    store.close()
    assert bodies(tmp_path) == [b"one", b"two", b"three"]


# Reading beside.


def test_a_journal_is_read_whole_though_it_is_compacted_meanwhile(tmp_path: Path) -> None:
    reactor = Reactor()
    store, _ = opened(tmp_path, reactor=reactor)
    put(store, *(b"%d" % number for number in range(10)))
    reading = AofFactory().peek(Settings(tmp_path / NAME))
    first = next(reading)
    for _ in range(2):
        store.compact(added(number, b"%d" % number) for number in range(5))
        settle(store, reactor)
    assert [record[1].body for record in (first, *reading)] == [b"%d" % number for number in range(10)]
    assert [record[1].body for record in AofFactory().peek(Settings(tmp_path / NAME))] == [b"0", b"1", b"2", b"3", b"4"]
    store.close()


def test_a_reader_that_finds_a_file_gone_reads_the_journal_that_took_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reactor = Reactor()
    store, _ = opened(tmp_path, reactor=reactor)
    put(store, b"old")
    whole = Path.open

    def open_late(path: Path, *arguments: str, **options: str) -> object:
        if path.suffix == ".incr" and store.status()["aof_last_rewrite_time_sec"] == -1:
            store.compact(iter([added(1, b"new")]))
            settle(store, reactor)
        return whole(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", open_late)
    assert [record[1].body for record in AofFactory().peek(Settings(tmp_path / NAME))] == [b"new"]
    monkeypatch.undo()
    store.close()
    files(tmp_path)["base"].unlink()
    with pytest.raises(StoreError, match="it is missing"):
        next(AofFactory().peek(Settings(tmp_path / NAME)))


def open_below(folder: Path) -> int:
    """Count the files below a folder that this process has open."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists them
            count += link.readlink().is_relative_to(folder)
    return count


def test_a_reader_that_stops_early_leaves_no_file_open(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    put(store, b"one", b"two")
    before = open_below(tmp_path)
    reading = AofFactory().peek(Settings(tmp_path / NAME))
    next(reading)
    assert open_below(tmp_path) > before
    reading.close()  # type: ignore[attr-defined]
    assert open_below(tmp_path) == before
    store.close()


@pytest.mark.parametrize("fails", [False, True])
def test_a_store_that_ends_leaves_no_file_open_though_a_sync_failed(tmp_path: Path, fails: bool) -> None:
    before = open_below(tmp_path)
    store, _ = opened(tmp_path, fsync="always", disk=FaultyDisk(5 if fails else 0, errno.EIO, only="fdatasync"))
    with suppress(StoreFailed):
        for _ in range(9):
            put(store, b"one")
    assert (store.status()["aof_last_write_status"] == "err") is fails
    assert open_below(tmp_path) > before
    with suppress(StoreFailed):
        store.close()
    assert open_below(tmp_path) == before


def test_a_bit_flipped_in_what_a_compaction_left_is_told(tmp_path: Path) -> None:
    from tests.property.test_aof_check import compacted_journal

    compacted_journal(tmp_path)
    for kind in ("base", "incr"):
        path = files(tmp_path)[kind]
        data = path.read_bytes()
        for bit in range(len(data) * 8):
            path.write_bytes(flipped(data, bit))
            with pytest.raises(StoreError):
                loaded(tmp_path)
        path.write_bytes(data)
    assert len(loaded(tmp_path)) == 4


# Two threads at one file.


class GatedDisk(Disk):
    """A disk whose writes and syncs wait for the test; a write may fail."""

    def __init__(self) -> None:
        self.may_write, self.may_sync = threading.Event(), threading.Event()
        self.may_write.set()
        self.may_sync.set()
        self.waiting: list[str] = []
        self.is_full = False

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self.waiting.append("write")
        assert self.may_write.wait(60)
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(fd, data)

    def fdatasync(self, fd: int) -> None:
        self.waiting.append("sync")
        assert self.may_sync.wait(60)
        super().fdatasync(fd)

    def wait_for(self, what: str) -> None:
        """Until somebody waits here, or has."""
        while what not in self.waiting:
            pass


def with_a_write_that_hangs(tmp_path: Path) -> tuple[AofStore, GatedDisk]:
    """A store with a record on its way to the disk while a sync runs, and one more that waits behind it."""
    disk = GatedDisk()
    store, _ = opened(tmp_path, fsync="everysec", disk=disk)
    disk.may_sync.clear()
    disk.waiting.clear()
    put_numbered(store, 1)
    disk.wait_for("sync")
    disk.may_write.clear()
    disk.waiting.clear()
    put_numbered(store, 2)
    disk.wait_for("write")
    put_numbered(store, 3)
    return store, disk


def put_numbered(store: AofStore, number: int) -> None:
    store.append([added(number, b"%d" % number)])
    store.commit()


def test_what_fails_beside_a_sync_stays_in_front_of_what_came_since(tmp_path: Path) -> None:
    store, disk = with_a_write_that_hangs(tmp_path)
    disk.is_full = True
    disk.may_write.set()
    while store.status()["aof_last_write_status"] == "ok":
        pass
    disk.is_full = False
    disk.may_sync.set()
    with suppress(StoreFailed):
        store.commit()
    store.close()
    assert bodies(tmp_path) == [b"1", b"2", b"3"]


def test_a_sync_ahead_says_nothing_of_what_waits_to_be_written(tmp_path: Path) -> None:
    store, disk = with_a_write_that_hangs(tmp_path)
    appender = store._journal.appender
    assert appender is not None
    written = appender.segment.written
    appender.segment.is_unsynced = True
    ahead = threading.Thread(target=appender.sync_ahead)
    ahead.start()
    disk.may_sync.set()
    ahead.join()
    assert 0 < appender.segment.mark <= written
    disk.may_write.set()
    store.close()
    assert bodies(tmp_path) == [b"1", b"2", b"3"]


def test_a_disk_that_is_full_again_and_again_is_forgiven_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appending, "KEPT_BYTES", 2_000)
    disk = GatedDisk()
    store, _ = opened(tmp_path, fsync="always", disk=disk)
    for number in range(0, 20, 2):
        disk.is_full = True
        for each in (number, number + 1):
            store.append([added(each, b"x" * 500)])
            with pytest.raises(StoreFailed, match="No space left") as caught:
                store.commit()
            assert not caught.value.final
        disk.is_full = False
        store.commit()
    store.close()
    assert len(bodies(tmp_path)) == 20


def test_a_sector_that_is_missing_before_a_mark_is_damage(tmp_path: Path) -> None:
    store, _ = opened(tmp_path, fsync="always")
    for number in range(4):
        put_numbered(store, number)
        store.append([added(10 + number, b"x" * 2_000)])
        store.commit()
    store.close()
    (path,) = tmp_path.glob("*.incr")
    data = bytearray(path.read_bytes())
    data[2_560:3_072] = bytes(512)
    path.write_bytes(bytes(data))
    with pytest.raises(StoreDamaged):
        loaded(tmp_path)


# What INFO says, and when a compaction is tried again.


def test_the_status_tells_sizes_times_and_what_waits(tmp_path: Path) -> None:
    reactor = Reactor()
    store, _ = opened(tmp_path, reactor=reactor)
    clock: Any = store._clock

    def size() -> int:
        return sum(path.stat().st_size for path in tmp_path.iterdir() if path.suffix in {".incr", ".base"})

    status = store.status()
    assert (status["aof_enabled"], status["aof_state"]) == (1, "on")
    assert (status["aof_current_size"], status["aof_base_size"]) == (size(), size())
    assert (status["aof_last_rewrite_time_sec"], status["aof_current_rewrite_time_sec"]) == (-1, -1)
    assert (status["aof_rewrite_in_progress"], status["aof_buffer_length"]) == (0, 0)
    before = size()
    store.append([added(1, b"x" * 100)])
    assert store.status()["aof_buffer_length"] > 100
    waiting = store.status()["aof_buffer_length"]
    store.commit()
    status = store.status()
    assert status["aof_buffer_length"] == 0
    assert (status["aof_current_size"], status["aof_base_size"]) == (size(), before)
    assert size() == before + waiting
    store.compact(added(number, b"y" * 100) for number in range(20))
    clock.advance(2_999)
    status = store.status()
    assert (status["aof_rewrite_in_progress"], status["aof_current_rewrite_time_sec"]) == (1, 2)
    assert status["aof_last_rewrite_time_sec"] == -1
    settle(store, reactor)
    clock.advance(5_000)
    status = store.status()
    assert (status["aof_last_rewrite_time_sec"], status["aof_current_rewrite_time_sec"]) == (2, -1)
    assert status["aof_current_size"] == status["aof_base_size"] == size()
    assert (status["aof_last_bgrewrite_status"], status["aof_last_write_status"]) == ("ok", "ok")
    store.close()
    # A start measures again, all files together.
    store, _ = opened(tmp_path)
    assert store.status()["aof_current_size"] == store.status()["aof_base_size"] == size()
    store.rewrite(added(number) for number in range(3))
    assert store.status()["aof_current_size"] == store.status()["aof_base_size"] == size()
    store.close()


def test_a_journal_that_cannot_be_compacted_is_left_alone_for_longer_each_time(tmp_path: Path) -> None:
    reactor = Reactor()
    store, _ = opened(tmp_path, reactor=reactor, auto_aof_rewrite_percentage=1)
    clock: Any = store._clock
    put(store, *[b"x" * 100] * 10)

    def walk() -> Iterator[Record]:
        yield added(1)
        raise ZeroDivisionError

    def attempt(records: Iterator[Record]) -> str:
        store.compact(records)
        settle(store, reactor)
        return str(store.status()["aof_last_bgrewrite_status"])

    pauses = []
    for _ in range(9):
        assert store.wants_compaction
        assert attempt(walk()) == "err"
        began = clock.now()
        while not store.wants_compaction:
            clock.advance(RETRY_MS // 2)
        pauses.append((clock.now() - began) / RETRY_MS)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert attempt(iter([added(1)])) == "ok"
    put(store, *[b"x" * 100] * 10)
    assert store.wants_compaction
    assert attempt(walk()) == "err"
    clock.advance(RETRY_MS - 1)
    assert not store.wants_compaction
    clock.advance(1)
    assert store.wants_compaction
    store.close()


def test_a_full_disk_shows_in_the_status_until_there_is_room(tmp_path: Path) -> None:
    disk = FullDisk()
    store, _ = opened(tmp_path, disk=disk)
    disk.room = 0
    with pytest.raises(StoreFailed):
        put(store, b"one")
    status = store.status()
    assert status["aof_last_write_status"] == "err"
    assert status["aof_buffer_length"] > 0
    disk.room = None
    store.commit()
    status = store.status()
    assert (status["aof_last_write_status"], status["aof_buffer_length"]) == ("ok", 0)
    store.close()


def test_a_compaction_that_finds_room_ends_the_trouble_of_a_store_without_an_increment(tmp_path: Path) -> None:
    disk, reactor = FullDisk(), Reactor()
    store, _ = opened(tmp_path, disk=disk, reactor=reactor)
    store.rewrite([added(1, b"base")])
    disk.room = 0
    with pytest.raises(StoreFailed, match="No space left"):
        put(store, b"more")
    assert store.status()["aof_last_write_status"] == "err"
    disk.room = None
    store.compact(iter([added(1, b"base"), added(0, b"more")]))
    store.commit()
    assert store.status()["aof_last_write_status"] == "ok"
    settle(store, reactor)
    store.close()
    assert set(bodies(tmp_path)) == {b"base", b"more"}


def test_the_first_reason_of_a_failure_stays_though_a_compaction_is_given_up(tmp_path: Path) -> None:
    reactor = Reactor()
    store, _ = opened(tmp_path, reactor=reactor)
    put(store, b"one")
    (segment,) = tmp_path.glob("*.incr")
    segment.unlink()
    with pytest.raises(StoreFailed, match=r"incr was taken away") as caught:
        store.look()

    def walk() -> Iterator[Record]:
        yield added(1)
        raise ZeroDivisionError

    store.compact(walk())
    settle(store, reactor)
    with pytest.raises(StoreFailed) as again:
        store.look()
    assert str(again.value) == str(caught.value)
    store.close()


def test_what_is_secured_is_looked_after_until_it_is_on_the_disk(tmp_path: Path) -> None:
    disk, reactor = FullDisk(), Reactor()
    store, _ = opened(tmp_path, disk=disk, reactor=reactor)
    put(store, b"one")
    disk.gate = threading.Event()
    answers: list[object] = []
    answer = store.secure()
    assert answer is not None
    answer.addCallback(answers.append)
    for _ in range(5):
        reactor.advance(1)
    assert answers == []
    disk.gate.set()
    while not answers:
        reactor.advance(POLL_S)
    assert answers == [None]
    assert reactor.getDelayedCalls() == []
    again = store.secure()
    assert again is not None
    assert again.called, "it is on the disk"
    store.configure(Settings(tmp_path / NAME, appendfsync="always"))
    assert store.secure() is None
    store.close()
    closed = make(tmp_path, fsync="no", reactor=reactor).secure()
    assert closed is not None
    errors: list[Failure] = []
    closed.addErrback(errors.append)
    assert "the journal is closing, or being rewritten" in errors[0].getErrorMessage()
