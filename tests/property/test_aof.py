"""The journal against cuts, flipped bits, failing disks and killed processes."""

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock as Reactor

from disqued.core.model.outbox import FLUSHED, GONE_DELETED, JOB_ADDED, JOB_GONE, UNIT_DONE
from disqued.persistence.aof import segments
from disqued.persistence.aof.compaction import POLL_S
from disqued.persistence.aof.manifest import Manifest
from disqued.persistence.aof.store import AofStore
from disqued.persistence.disk import Disk
from disqued.persistence.interface import StoreDamaged, StoreError, StoreFailed, StoreLocked
from disqued.wire.jobdump import encode_event
from tests.journals import (
    NAME,
    POLICIES,
    FaultyDisk,
    added,
    bodies,
    files,
    flipped,
    frame_ends,
    job_id,
    loaded,
    make,
    opened,
    put,
    record_ends,
    replayed,
    settle,
    small_journal,
    until_no_fault,
)
from tests.programs import Program

# Cuts.


def test_an_increment_cut_at_any_byte_loses_no_complete_record(tmp_path: Path) -> None:
    small_journal(tmp_path)
    increment = files(tmp_path)["incr"]
    data = increment.read_bytes()
    ends = record_ends(data)
    whole = loaded(tmp_path)
    for length in range(len(data)):
        increment.write_bytes(data[:length])
        complete = sum(end <= length for end in ends[1:])
        store, records = opened(tmp_path)
        assert records == whole[: 3 + complete]
        # The torn end is gone, and what is written now stands behind the complete records.
        put(store, b"new")
        store.close()
        assert [record[0] for record in loaded(tmp_path)] == [record[0] for record in records] + [JOB_ADDED]


def test_a_torn_end_stops_the_start_when_the_operator_wants_so(tmp_path: Path) -> None:
    small_journal(tmp_path)
    increment = files(tmp_path)["incr"]
    data = increment.read_bytes()
    ends = frame_ends(data)
    for length in range(len(data) + 1):
        increment.write_bytes(data[:length])
        if length in ends:
            loaded(tmp_path, aof_load_truncated=False)
        else:
            with pytest.raises(StoreDamaged, match="aof-load-truncated yes"):
                loaded(tmp_path, aof_load_truncated=False)
            assert increment.stat().st_size == length


@pytest.mark.parametrize("cuts", [True, False])
def test_what_there_is_to_load_is_known_before_it_is_loaded(tmp_path: Path, cuts: bool) -> None:
    small_journal(tmp_path)
    size = sum(files(tmp_path)[name].stat().st_size for name in ("base", "incr"))
    store = make(tmp_path, aof_load_truncated=cuts)
    assert (store.status()["aof_current_size"], store.status()["aof_base_size"]) == (0, 0)
    store.open()
    assert store.bytes_total == size
    list(store.load())
    assert store.status()["aof_current_size"] == size
    store.close()


@pytest.mark.parametrize("kind", ["base", "manifest"])
def test_what_was_complete_when_it_was_named_may_not_be_cut(tmp_path: Path, kind: str) -> None:
    small_journal(tmp_path)
    path = files(tmp_path)[kind]
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(StoreDamaged):
            loaded(tmp_path)


def test_only_the_last_segment_may_be_torn(tmp_path: Path) -> None:
    small_journal(tmp_path)
    (increment,) = tmp_path.glob("*.incr")
    store, _ = opened(tmp_path)
    store._journal.drop_appender(store._committed)
    store._journal.begin_increment()
    put(store, b"second")
    store.close()
    assert len(loaded(tmp_path)) == 7
    increment.write_bytes(increment.read_bytes()[: -segments.FRAME_SIZE - 1])
    with pytest.raises(StoreDamaged, match="record 6"):
        loaded(tmp_path)


@pytest.mark.parametrize("zeros", [1, 19, 20, 24, 600, 5_000])
def test_room_that_was_reserved_and_never_written_is_cut_off(tmp_path: Path, zeros: int) -> None:
    small_journal(tmp_path)
    with files(tmp_path)["incr"].open("ab") as file:
        file.write(bytes(zeros))
    assert len(loaded(tmp_path)) == 6


def test_a_record_whose_last_sectors_were_never_written_is_cut_off(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    put(store, b"first", b"x" * 5_000)
    store.close()
    increment = files(tmp_path)["incr"]
    data = increment.read_bytes()
    for kept in (segments.SECTOR, 4_096):
        increment.write_bytes(data[:kept] + bytes(len(data) - kept))
        assert bodies(tmp_path) == [b"first"]


def test_a_segment_of_zeros_alone_is_an_empty_one(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.close()
    files(tmp_path)["incr"].write_bytes(bytes(4_096))
    store, records = opened(tmp_path)
    assert records == []
    put(store, b"new")
    store.close()
    assert bodies(tmp_path) == [b"new"]


# Damage.


@pytest.mark.parametrize("kind", ["base", "incr", "manifest"])
def test_one_flipped_bit_anywhere_is_told(tmp_path: Path, kind: str) -> None:
    small_journal(tmp_path)
    path = files(tmp_path)[kind]
    data = path.read_bytes()
    for bit in range(len(data) * 8):
        path.write_bytes(flipped(data, bit))
        with pytest.raises(StoreDamaged) as caught:
            loaded(tmp_path)
        assert caught.value.path == str(path)
        assert caught.value.offset <= bit // 8
    path.write_bytes(data)
    assert len(loaded(tmp_path)) == 6


@given(st.data())
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_in_a_long_journal_is_told_with_its_place(tmp_path: Path, data: st.DataObject) -> None:
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    store, _ = opened(tmp_path)
    put(store, *(b"x" * (number * 37 % 900) for number in range(200)))
    store.close()
    path = files(tmp_path)["incr"]
    good = path.read_bytes()
    bit = data.draw(st.integers(0, len(good) * 8 - 1))
    path.write_bytes(flipped(good, bit))
    ends = record_ends(good)
    sequence = sum(end <= bit // 8 for end in ends)
    with pytest.raises(StoreDamaged) as caught:
        loaded(tmp_path)
    assert (caught.value.sequence, caught.value.offset) == (sequence, ends[sequence - 1] if sequence else 0)


def test_a_journal_of_disque_is_not_overlooked(tmp_path: Path) -> None:
    (tmp_path / "disque.aof").write_bytes(b"*2\r\n$7\r\nLOADJOB\r\n")
    store = make(tmp_path)
    with pytest.raises(StoreError, match="a journal of Disque; move it away"):
        store.open()
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == ["disque.aof"]


def test_a_missing_segment_or_manifest_is_told(tmp_path: Path) -> None:
    small_journal(tmp_path)
    for kind, path in files(tmp_path).items():
        if kind == "lock":
            continue
        data = path.read_bytes()
        path.unlink()
        with pytest.raises(StoreDamaged, match="missing"):
            loaded(tmp_path)
        path.write_bytes(data)
    assert len(loaded(tmp_path)) == 6


def test_a_file_of_another_program_or_version_is_told(tmp_path: Path) -> None:
    small_journal(tmp_path)
    path = files(tmp_path)["incr"]
    good = path.read_bytes()
    for head, text in ((b"REDIS0009", "no journal of disqued"), (b"DISQUEDJ\x03", "version 3")):
        start = head + good[len(head) : 20]
        path.write_bytes(start + crc32(start).to_bytes(4, "little") + good[24:])
        with pytest.raises(StoreDamaged, match=text):
            loaded(tmp_path)


def test_a_segment_in_the_place_of_another_is_told(tmp_path: Path) -> None:
    small_journal(tmp_path)
    found = files(tmp_path)
    found["incr"].write_bytes(found["base"].read_bytes())
    with pytest.raises(StoreDamaged, match="the first record has number 1, expected is 4"):
        loaded(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        b"disqued journal 3\n",
        b"disqued journal 2\nincr 1 0\n",
        b"disqued journal 1\nbase 1 1\n",
        b"disqued journal 1\nincr -1 1\n",
        b"\xff\n",
    ],
)
def test_a_manifest_of_another_form_is_told(tmp_path: Path, text: bytes) -> None:
    (tmp_path / f"{NAME}.manifest").write_bytes(text + b"check %08x\n" % crc32(text))
    with pytest.raises(StoreDamaged):
        loaded(tmp_path)


@given(st.integers(1, 64))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_journal_reads_the_same_in_pieces_of_any_size(tmp_path: Path, chunk: int) -> None:
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    store, _ = opened(tmp_path)
    names = [b"x" * (number * 37 % 400) for number in range(40)]
    put(store, *names)
    store.close()
    whole = segments.CHUNK
    segments.CHUNK = chunk
    try:
        assert bodies(tmp_path) == names
    finally:
        segments.CHUNK = whole


def test_numbers_of_records_go_on_beyond_32_bits(tmp_path: Path) -> None:
    first = 2**32 - 1
    payload = encode_event((FLUSHED,), 5)
    path = tmp_path / "segment"
    path.write_bytes(segments.header(first) + b"".join(segments.framed([payload] * 3, first)))
    with path.open("rb") as file:
        reader = segments.SegmentReader(path, file, first, first)
        assert list(reader) == [(FLUSHED, 5)] * 3
    assert reader.sequence == first + 3


# A model.

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 9), st.binary(max_size=20)),
        st.tuples(st.just("done"), st.integers(0, 9)),
        st.tuples(st.just("gone"), st.integers(0, 9)),
        st.tuples(st.sampled_from(["flush", "commit", "restart", "rewrite", "last word"])),
    ),
    max_size=40,
)


@given(steps)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_loaded_is_what_a_dictionary_would_hold(tmp_path: Path, steps: list[Any]) -> None:
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    store, _ = opened(tmp_path)
    model: dict[bytes, bytes] = {}
    for word, *rest in steps:
        if word == "add":
            model[job_id(rest[0])] = rest[1]
            store.append([added(*rest)])
        elif word == "done":
            model.pop(job_id(rest[0]), None)
            store.append([(UNIT_DONE, job_id(rest[0]), b"")])
        elif word == "gone":
            model.pop(job_id(rest[0]), None)
            store.append([(JOB_GONE, job_id(rest[0]), GONE_DELETED)])
        elif word == "flush":
            model.clear()
            store.append([(FLUSHED,)])
        elif word == "commit":
            store.commit()
        elif word == "restart":
            store.close()
            store, records = opened(tmp_path)
            assert replayed(records) == model
        else:
            store.rewrite([added(int(name[2:46]), body) for name, body in model.items()])
    store.close()
    assert replayed(loaded(tmp_path)) == model


# Failing disks.


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_whatever_fails_nothing_is_acknowledged_that_a_power_cut_would_take(tmp_path: Path, error: int) -> None:
    def run(disk: FaultyDisk, place: Path) -> None:
        acknowledged = commit_ten(disk, place, "always")
        disk.cut_power()
        survived = bodies(place)
        assert survived[: len(acknowledged)] == acknowledged
        assert survived == [b"%d" % number for number in range(len(survived))]

    assert until_no_fault(run, tmp_path, error=error) > 20


@pytest.mark.parametrize("policy", POLICIES)
def test_whatever_write_fails_nothing_is_acknowledged_that_is_not_in_the_file(tmp_path: Path, policy: str) -> None:
    def run(disk: FaultyDisk, place: Path) -> None:
        acknowledged = commit_ten(disk, place, policy)
        assert bodies(place)[: len(acknowledged)] == acknowledged

    assert until_no_fault(run, tmp_path, error=errno.ENOSPC, only="write") >= 10


def commit_ten(disk: FaultyDisk, place: Path, policy: str) -> list[bytes]:
    """Commit ten jobs one by one; returns the bodies of those that were acknowledged."""
    acknowledged: list[bytes] = []
    store = make(place, fsync=policy, disk=disk)
    try:
        store.open()
        list(store.load())
        for number in range(10):
            store.append([added(number, b"%d" % number)])
            store.commit()
            acknowledged.append(b"%d" % number)
    except StoreFailed as error:
        reason = str(error)
        assert os.strerror(disk._error) in reason
    try:
        store.close()
    except StoreFailed:
        assert policy != "always"
    return acknowledged


def commit_for_ever(store: AofStore) -> None:
    while True:
        put(store, b"job")


def test_a_sync_that_fails_is_final_until_the_journal_is_rewritten(tmp_path: Path) -> None:
    disk = FaultyDisk(5, errno.EIO, only="fdatasync")
    store, _ = opened(tmp_path, fsync="always", disk=disk)
    with pytest.raises(StoreFailed) as caught:
        commit_for_ever(store)
    assert caught.value.final
    for _ in range(3):
        store.append([added(99)])
        with pytest.raises(StoreFailed, match="Input/output error"):
            store.commit()
    assert store.status()["aof_last_write_status"] == "err"
    assert store.status()["aof_buffer_length"] == 0
    store.rewrite([added(1, b"all")])
    assert store.status()["aof_last_write_status"] == "ok"
    store.append([added(2, b"new")])
    store.commit()
    store.close()
    assert bodies(tmp_path) == [b"all", b"new"]


def test_a_rewrite_that_fails_anywhere_loses_nothing(tmp_path: Path) -> None:
    def run(disk: FaultyDisk, place: Path) -> None:
        acknowledged = [b"old"]
        store, _ = opened(place)
        put(store, b"old")
        store._journal.files.disk = disk
        try:
            store.rewrite([added(0, b"old")])
        except StoreFailed:
            assert store.status()["aof_last_bgrewrite_status"] == "err"
        try:
            store.append([added(1, b"new")])
            store.commit()
            acknowledged.append(b"new")
            store.close()
        except StoreFailed:
            store.close()
        assert bodies(place)[: len(acknowledged)] == acknowledged

    assert until_no_fault(run, tmp_path) > 10


def test_a_start_that_fails_anywhere_loses_nothing(tmp_path: Path) -> None:
    def run(disk: FaultyDisk, place: Path) -> None:
        small_journal(place)
        increment = files(place)["incr"]
        increment.write_bytes(increment.read_bytes()[: -segments.FRAME_SIZE - 1])
        (place / f"{NAME}.9.base").write_bytes(b"left over")
        try:
            store, records = opened(place, disk=disk)
            assert len(records) == 5
            store.close()
        except StoreFailed:
            pass
        assert len(loaded(place)) == 5
        assert not (place / f"{NAME}.9.base").exists()

    assert until_no_fault(run, tmp_path) >= 3


def test_a_first_start_that_fails_anywhere_is_followed_by_a_good_one(tmp_path: Path) -> None:
    def run(disk: FaultyDisk, place: Path) -> None:
        try:
            store, _ = opened(place, disk=disk)
            store.close()
        except StoreFailed:
            pass
        store, records = opened(place)
        assert records == []
        put(store, b"job")
        store.close()
        assert bodies(place) == [b"job"]

    assert until_no_fault(run, tmp_path) >= 8


# The threads of everysec.


class Gate:
    """Lets calls through one by one, and tells when one has come."""

    def __init__(self) -> None:
        self.came = threading.Event()
        self.open = threading.Event()

    def pass_through(self) -> None:
        self.came.set()
        assert self.open.wait(60)


class GatedDisk(Disk):
    """A disk whose syncs, and whose writes meanwhile, wait for the test."""

    def __init__(self) -> None:
        self.sync_gate: Gate | None = None
        self.write_gate: Gate | None = None
        self.sync_error: OSError | None = None

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self.write_gate and threading.current_thread() is not threading.main_thread():
            self.write_gate.pass_through()
        return super().write(fd, data)

    def fdatasync(self, fd: int) -> None:
        if self.sync_gate:
            self.sync_gate.pass_through()
        if self.sync_error:
            raise self.sync_error
        super().fdatasync(fd)


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[tuple[AofStore, GatedDisk, Reactor]]:
    """A store under everysec whose thread is within a sync."""
    disk, reactor = GatedDisk(), Reactor()
    store = make(tmp_path, reactor=reactor, fsync="everysec", disk=disk)
    store.open()
    list(store.load())
    gate = disk.sync_gate = Gate()
    put(store, b"first")
    assert gate.came.wait(60)
    yield store, disk, reactor
    gate.open.set()
    if disk.write_gate:
        disk.write_gate.open.set()
    store.close()


def on_disk(directory: Path) -> bytes:
    return files(directory)["incr"].read_bytes()


def test_what_is_committed_during_a_sync_is_written_before_the_commit_returns(
    gated: tuple[AofStore, GatedDisk, Reactor], tmp_path: Path
) -> None:
    store, _, _ = gated
    for name in (b"second", b"third"):
        put(store, name)
        if not store.status()["aof_delayed_fsync"]:  # the machine was not too slow to wait for
            assert name in on_disk(tmp_path)
    assert store.status()["aof_pending_bio_fsync"] == 1


def test_commits_return_while_a_write_hangs_and_nothing_is_lost_or_reordered(
    gated: tuple[AofStore, GatedDisk, Reactor], tmp_path: Path
) -> None:
    store, disk, _ = gated
    disk.write_gate = Gate()
    for name in (b"second", b"third", b"fourth"):
        put(store, name)
    assert b"second" not in on_disk(tmp_path)
    assert store.status()["aof_delayed_fsync"] == 1
    disk.write_gate.open.set()
    disk.sync_gate.open.set()  # type: ignore[union-attr]
    put(store, b"fifth")
    store.close()
    assert bodies(tmp_path) == [b"first", b"second", b"third", b"fourth", b"fifth"]


def test_commits_wait_for_a_write_that_has_hung_for_two_seconds(
    gated: tuple[AofStore, GatedDisk, Reactor], tmp_path: Path
) -> None:
    store, disk, reactor = gated
    gate = disk.write_gate = Gate()
    put(store, b"second")
    reactor.advance(2)
    threading.Timer(0.05, gate.open.set).start()
    put(store, b"third")
    assert gate.open.is_set()
    assert b"third" in on_disk(tmp_path)


def test_a_sync_that_fails_in_its_thread_fails_the_commits_that_follow(
    gated: tuple[AofStore, GatedDisk, Reactor],
) -> None:
    store, disk, _ = gated
    disk.sync_error = OSError(errno.EIO, os.strerror(errno.EIO))
    disk.sync_gate.open.set()  # type: ignore[union-attr]
    with pytest.raises(StoreFailed, match="Input/output error"):
        commit_for_ever(store)
    assert store.status()["aof_last_write_status"] == "err"


def test_a_change_to_always_waits_for_the_sync_that_runs_and_hears_its_error(
    gated: tuple[AofStore, GatedDisk, Reactor],
) -> None:
    store, disk, _ = gated
    disk.sync_error = OSError(errno.EIO, os.strerror(errno.EIO))
    store._journal.appender.set_fsync("always")  # type: ignore[union-attr]
    threading.Timer(0.05, disk.sync_gate.open.set).start()  # type: ignore[union-attr]
    with pytest.raises(StoreFailed, match="Input/output error"):
        put(store, b"second")


def test_what_is_committed_while_the_next_increment_waits_for_a_sync_is_written_there(
    gated: tuple[AofStore, GatedDisk, Reactor], tmp_path: Path
) -> None:
    store, disk, reactor = gated
    old, gate = files(tmp_path)["incr"], disk.sync_gate
    disk.sync_gate = None  # but for the sync that has begun
    store.compact(iter([added(0, b"first")]))
    while store._journal.appender.moving_to is None:  # type: ignore[union-attr]
        reactor.advance(POLL_S)
    put(store, b"second")
    assert b"second" not in old.read_bytes()
    assert gate is not None
    gate.open.set()
    put(store, b"third")
    settle(store, reactor)
    store.close()
    assert bodies(tmp_path) == [b"first", b"second", b"third"]


def test_an_unwatched_sync_happens_without_another_commit(tmp_path: Path) -> None:
    disk = GatedDisk()
    store, _ = opened(tmp_path, fsync="everysec", disk=disk)
    first = disk.sync_gate = Gate()
    put(store, b"first")
    assert first.came.wait(60)
    put(store, b"second")
    second = disk.sync_gate = Gate()
    first.open.set()
    assert second.came.wait(60)
    second.open.set()
    store.close()


# Other processes.


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    with pytest.raises(StoreLocked, match="another process uses this journal"):
        opened(tmp_path)
    store.close()
    assert loaded(tmp_path) == []


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="No such file or directory"):
        opened(tmp_path / "missing")


def test_a_store_is_loaded_once_and_rewritten_after_that(tmp_path: Path) -> None:
    store = make(tmp_path)
    with pytest.raises(StoreError, match="after it is opened"):
        list(store.load())
    store.open()
    with pytest.raises(StoreError, match="after it is loaded"):
        store.rewrite([])
    assert list(store.load()) == []
    with pytest.raises(StoreError, match="loaded once"):
        list(store.load())
    store.close()


def test_a_manifest_reads_as_it_was_written(tmp_path: Path) -> None:
    assert Manifest.from_bytes(Manifest().to_bytes()) == Manifest()


PRODUCER = """
import os
import sys
from pathlib import Path
from tests.journals import added, opened
store, _ = opened(Path(sys.argv[1]), fsync=sys.argv[2])
number = 0
while True:
    number += 1
    store.append([added(number, b"%d" % number)])
    store.commit()
    os.write(1, b"%d %d\\n" % (number, store.status()["aof_delayed_fsync"]))
"""


@pytest.mark.parametrize("policy", POLICIES)
def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path, policy: str) -> None:
    """Unless a write hung beside a sync, which the producer tells with each number."""
    before = 0
    for _ in range(3):
        command = [sys.executable, "-c", PRODUCER, str(tmp_path), policy]
        with Program(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]) as process:
            assert process.stdout is not None
            told = b"".join(process.stdout.readline() for _ in range(200))
            process.kill()
            told += process.stdout.read()
        number, hung = told[: told.rindex(b"\n")].splitlines()[-1].split()
        after = len(loaded(tmp_path))
        assert after - before >= int(number) >= 200 or int(hung)
        before = after


# Checksums are of all that is written.


@pytest.mark.parametrize("compacted", [False, True])
def test_a_flipped_bit_far_behind_the_start_of_a_record_is_damage(tmp_path: Path, compacted: bool) -> None:
    reactor = Reactor()
    store, _ = opened(tmp_path, reactor=reactor)
    body = bytes(range(256)) * 1_024
    put(store, body)
    if compacted:
        store.compact(iter([added(0, body)]))
        settle(store, reactor)
    store.close()
    (path,) = [path for path in tmp_path.iterdir() if path.stat().st_size > len(body)]
    good = path.read_bytes()
    for at in (len(good) - 1, 70_000, 65_536 + 200, len(good) // 2):
        data = bytearray(good)
        data[at] ^= 1
        path.write_bytes(bytes(data))
        with pytest.raises(StoreDamaged, match="the checksum is wrong"):
            loaded(tmp_path)


def test_every_bit_of_a_manifest_counts(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    put(store, b"one")
    store.close()
    path = tmp_path / f"{NAME}.manifest"
    good = path.read_bytes()
    for bit in range(len(good) * 8):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(bytes(data))
        with pytest.raises(StoreDamaged):
            loaded(tmp_path)
