"""What a crash leaves of the write-ahead log: torn ends, and damage with transactions behind it."""

import contextlib
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest

from disqued.persistence.interface import StoreDamaged
from tests.databases import NAME, added, bodies, opened

HEADER, FRAME = 32, 24 + 4_096


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """A folder as a crash leaves it after five commits of one job each."""
    place = tmp_path / "crashed"
    running = tmp_path / "running"
    running.mkdir()
    store, _ = opened(running)
    for number in range(5):
        store.put(added(number, b"%d" % number))
    shutil.copytree(running, place)
    store.end()
    (place / f"{NAME}.lock").unlink()
    # Nothing is known of what was on the disk.
    (place / f"{NAME}-synced").unlink()
    return place


@pytest.fixture
def synced(tmp_path: Path) -> Path:
    """A folder as kill -9 leaves it after five commits of one job each, all of which were acknowledged."""
    place = tmp_path / "synced"
    running = tmp_path / "running"
    running.mkdir()
    store, _ = opened(running, fsync="always")
    for number in range(5):
        store.put(added(number, b"%d" % number))
    shutil.copytree(running, place)
    store.end()
    (place / f"{NAME}.lock").unlink()
    return place


def log_of(place: Path) -> Path:
    return place / f"{NAME}-wal"


def flip(path: Path, at: int) -> None:
    """Change more than one bit: a single one is damage, whatever stands behind it."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(data)


def commits(place: Path) -> list[int]:
    """Where the frames begin that end a transaction."""
    data = log_of(place).read_bytes()
    return [at for at in range(HEADER, len(data), FRAME) if any(data[at + 4 : at + 8])]


@pytest.mark.parametrize("policy", ["always", "everysec"])
def test_what_a_crash_leaves_is_complete(crashed: Path, policy: str) -> None:
    assert bodies(crashed, fsync=policy) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_log_cut_at_any_place_loses_no_complete_transaction(crashed: Path) -> None:
    data = log_of(crashed).read_bytes()
    ends = [at + FRAME for at in commits(crashed)]
    for length in sorted({*range(0, len(data), 997), *ends, *(end - 1 for end in ends)}):
        place = crashed.with_name("copy")
        shutil.copytree(crashed, place)
        log_of(place).write_bytes(data[:length])
        complete = sum(end <= length for end in ends)
        assert bodies(place, fsync="always") == [b"%d" % number for number in range(complete)]
        shutil.rmtree(place)


def test_damage_with_transactions_behind_it_stops_a_start_under_always(crashed: Path) -> None:
    lost = commits(crashed)[2]
    flip(log_of(crashed), lost + 2_000)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match=r"disque\.sqlite-wal, byte \d+: 2 transactions stand behind a damaged"):
            bodies(crashed, fsync="always")


@pytest.mark.parametrize("policy", ["everysec", "no"])
def test_other_policies_leave_it_to_the_operator(crashed: Path, policy: str) -> None:
    flip(log_of(crashed), commits(crashed)[2] + 2_000)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="`aof-load-truncated yes` starts without them"):
            bodies(crashed, fsync=policy, aof_load_truncated=False)
    assert bodies(crashed, fsync=policy) == [b"0", b"1"]


def test_a_flipped_bit_in_the_header_of_the_log_is_told(crashed: Path) -> None:
    data = log_of(crashed).read_bytes()
    for bit in range(HEADER * 8):
        place = crashed.with_name("copy")
        shutil.copytree(crashed, place)
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        log_of(place).write_bytes(changed)
        with pytest.raises(StoreDamaged, match="byte 32: 5 transactions stand behind a damaged one"):
            bodies(place, fsync="always")
        shutil.rmtree(place)


def test_a_log_that_has_begun_anew_holds_older_frames_and_that_is_no_damage(tmp_path: Path) -> None:
    running, place = tmp_path / "running", tmp_path / "crashed"
    running.mkdir()
    store, _ = opened(running)
    for number in range(5):
        store.put(added(number, b"%d" % number))
    store.loop.wait(store._ask(lambda: store._writer.log.checkpoint(store._writer._connection)))
    store.put(added(5, b"5"))
    shutil.copytree(running, place)
    store.end()
    assert len(commits(place)) == 5
    assert bodies(place, fsync="always", aof_load_truncated=False) == [b"0", b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.parametrize("place", [0, 6, 12, 20, 24, 4_000])
def test_a_torn_last_frame_was_never_promised(crashed: Path, place: int) -> None:
    flip(log_of(crashed), commits(crashed)[-1] + place)
    assert bodies(crashed, fsync="always", aof_load_truncated=False) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:20]),
        lambda path: path.unlink(),
    ],
)
def test_a_log_that_is_gone_and_of_which_nothing_is_known_takes_what_it_held(
    crashed: Path, harm: Callable[[Path], None]
) -> None:
    harm(log_of(crashed))
    assert bodies(crashed) == []


@pytest.mark.parametrize("harm", [lambda path: path.write_bytes(b""), lambda path: path.unlink()])
@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_a_log_that_is_gone_though_it_was_on_the_disk_stops_the_start(
    synced: Path, policy: str, harm: Callable[[Path], None]
) -> None:
    harm(log_of(synced))
    with pytest.raises(StoreDamaged, match=rf"{NAME}-wal is gone or empty, and \d+ frames of it were on the disk"):
        bodies(synced, fsync=policy)
    (synced / f"{NAME}-synced").unlink()
    assert bodies(synced, fsync=policy) == []


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_a_kill_right_after_a_compaction_has_cut_the_log_off_is_no_damage(tmp_path: Path, policy: str) -> None:
    place, copy = tmp_path / "place", tmp_path / "copy"
    place.mkdir()
    store, _ = opened(place, fsync=policy)
    for number in range(5):
        store.put(added(number, b"%d" % number))
    store.compact_now()
    shutil.copytree(place, copy)
    assert log_of(copy).stat().st_size == 0, "the log was cut off"
    store.end()
    assert bodies(copy, fsync=policy) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_log_that_another_program_put_into_the_database_is_not_missed_once_that_is_said(synced: Path) -> None:
    with contextlib.closing(sqlite3.connect(synced / NAME)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert not log_of(synced).exists()
    with pytest.raises(StoreDamaged, match=r"as sqlite3 does when it ends: rm .*-synced"):
        bodies(synced)
    (synced / f"{NAME}-synced").unlink()
    assert bodies(synced) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_the_end_of_what_was_acknowledged_is_told_as_damage_whatever_has_become_of_it(
    synced: Path, policy: str
) -> None:
    good = log_of(synced).read_bytes()
    last = commits(synced)[-1]
    for data in (
        good[:last],
        good[:-1],
        good[: last + 700] + b"\xff" * 512 + good[last + 1_212 :],
        good[: last + 8] + bytes(8) + good[last + 16 :],
    ):
        place = synced.with_name("copy")
        shutil.copytree(synced, place)
        log_of(place).write_bytes(data)
        with pytest.raises(StoreDamaged, match=r"frames were on the disk, of which .* can be read"):
            bodies(place, fsync=policy)
        shutil.rmtree(place)
    assert bodies(synced, fsync=policy) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_transaction_that_nobody_was_answered_for_is_left_out(synced: Path) -> None:
    known = (synced / f"{NAME}-synced").read_bytes()
    store, _ = opened(synced, fsync="always")
    store.put(added(5, b"5"))
    place = synced.with_name("copy")
    shutil.copytree(synced, place)
    store.end()
    # The power was cut before the sync.
    (place / f"{NAME}.lock").unlink()
    (place / f"{NAME}-synced").write_bytes(known)
    data = log_of(place).read_bytes()
    log_of(place).write_bytes(data[: commits(place)[-1] + 700])
    assert bodies(place, fsync="always") == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("what", ["older", "of another log", "empty", "nonsense", "missing"])
def test_what_says_nothing_of_this_log_is_ignored(synced: Path, what: str) -> None:
    path = synced / f"{NAME}-synced"
    good = path.read_bytes()
    if what == "missing":
        path.unlink()
    elif what == "of another log":
        data = good[:8] + b"12345678" + good[16:-4]
        path.write_bytes(data + crc32(data).to_bytes(4, "little"))
    else:
        path.write_bytes({"older": good[:16] + b"\1" + good[17:], "empty": b"", "nonsense": bytes(32)}[what])
    assert bodies(synced, fsync="always") == [b"0", b"1", b"2", b"3", b"4"]


def test_any_bit_of_the_last_transaction_is_told_though_nothing_is_known_of_the_disk(crashed: Path) -> None:
    """Nothing but the log itself says so."""
    good = log_of(crashed).read_bytes()
    last, end = commits(crashed)[-2] + FRAME, commits(crashed)[-1] + FRAME
    for bit in {*range(last * 8, (last + 24) * 8), *range(last * 8, end * 8, 1_009)}:
        place = crashed.with_name("copy")
        shutil.copytree(crashed, place)
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        log_of(place).write_bytes(data)
        with contextlib.suppress(StoreDamaged):
            assert bodies(place, fsync="everysec") == [b"0", b"1", b"2", b"3", b"4"]
        shutil.rmtree(place)
