"""`disqued check-aof`: whatever is wrong with a journal, it says so exactly, and keeps every record that is whole."""

import fcntl
import gzip
import os
from io import StringIO
from itertools import pairwise
from pathlib import Path

import pytest
from twisted.internet.task import Clock as Reactor

from disqued.core.model.fate import Fate, Word
from disqued.core.model.job import ACKED, ACTIVE, JobOptions
from disqued.core.model.outbox import FLUSHED, GONE_DELETED, JOB_GONE, QUEUE_PAUSED, UNIT_DONE, UNIT_LEASED, Record
from disqued.persistence.aof import segments
from disqued.persistence.aof.manifest import CHECK_SIZE, Increment, JournalFiles, Manifest
from disqued.persistence.check import DAMAGED, WHOLE, check, read_manifest
from disqued.persistence.interface import StoreDamaged, StoreFailed
from disqued.tools.program import MISUSED, run
from tests.journals import (
    NAME,
    QuickDisk,
    added,
    files,
    flipped,
    job_id,
    loaded,
    opened,
    put,
    record_ends,
    settle,
    small_journal,
)


def checked(directory: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """Exit status and report."""
    status = run(["check-aof", str(directory / NAME), *options])
    return status, capsys.readouterr().out


def compacted_journal(directory: Path) -> None:
    """A fuzzy base of three jobs, and an increment of two records."""
    reactor = Reactor()
    store, _ = opened(directory, reactor=reactor)
    put(store, b"old", b"older")
    store.compact(iter(added(number, b"") for number in range(2)))
    settle(store, reactor)
    store.append([added(2, b""), (UNIT_DONE, job_id(0), b"")])
    store.commit()
    store.close()


def test_a_whole_journal_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_journal(tmp_path)
    store, _ = opened(tmp_path)
    store.append([(QUEUE_PAUSED, b"queue", 1)])
    store.commit()
    store.close()
    status, report = checked(tmp_path, capsys)
    assert status == WHOLE
    lines = report.splitlines()
    sizes = {path.name: path.stat().st_size for path in tmp_path.iterdir()}
    assert lines == [
        f"disque.aof.2.base: 3 records, {sizes['disque.aof.2.base']} bytes",
        f"disque.aof.3.incr: 4 records, {sizes['disque.aof.3.incr']} bytes",
        "records: 4 added, 0 leased, 1 done, 1 gone, 0 flushed, 1 paused, 0 policies, 0 begun, 0 watermarks",
        "jobs: 2 alive; units leased: 0; queues paused: 1",
        "of these jobs: 0 dead, 0 done with a result, 0 cancelled",
        "The journal is whole.",
    ]
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert checked(tmp_path, capsys, "--repair")[0] == WHOLE
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_the_units_that_somebody_has_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, _ = opened(tmp_path)
    store.append([added(number) for number in range(5)])
    store.append([(UNIT_LEASED, job_id(number), b"", 1, b"") for number in (0, 0, 1, 2, 3, 4, 7)])
    store.append([(UNIT_LEASED, job_id(4), b"group", 1, b"anna"), (UNIT_LEASED, job_id(4), b"other", 1, b"")])
    store.append([(UNIT_DONE, job_id(1), b""), (JOB_GONE, job_id(2), GONE_DELETED), (UNIT_DONE, job_id(4), b"group")])
    done = added(3)
    done[1].state = ACKED
    store.append([done])
    store.commit()
    status, report = checked(tmp_path, capsys)
    assert status == WHOLE
    assert report.splitlines()[1:] == [
        "records: 6 added, 9 leased, 2 done, 1 gone, 0 flushed, 0 paused, 0 policies, 0 begun, 0 watermarks",
        "jobs: 3 alive; units leased: 3; queues paused: 0",
        "of these jobs: 0 dead, 0 done with a result, 0 cancelled",
        "The journal is whole.",
    ]
    store.append([(FLUSHED,), (UNIT_LEASED, job_id(0), b"", 1, b"")])
    store.commit()
    store.close()
    assert "jobs: 0 alive; units leased: 0; queues paused: 0" in checked(tmp_path, capsys)[1]


def test_dead_and_cancelled_jobs_and_results_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def word_of(number: int, fate: Fate, state: int = ACTIVE) -> Record:
        kind, job = added(number)
        options = job.options
        job.options = JobOptions(
            ttl_ms=options.ttl_ms, retry_ms=options.retry_ms, delay_ms=0, replicate=1, fate=fate
        )  # fmt: skip
        job.state = state
        return (kind, job)

    dead, result = Fate(is_dead=True), Fate(result=Word(7, b"a" * 40, b"sent"))
    store, _ = opened(tmp_path)
    store.append([word_of(number, dead) for number in range(5)])
    store.append([word_of(0, Fate(generation=1)), (JOB_GONE, job_id(1), GONE_DELETED)])
    store.append([word_of(5, result, ACKED), word_of(2, result._replace(is_dead=True), ACKED)])
    store.append([word_of(6, Fate(is_cancelled=True)), word_of(7, Fate(is_cancelled=True), ACKED)])
    store.append([added(8)])
    store.commit()
    assert checked(tmp_path, capsys)[1].splitlines()[2:4] == [
        "jobs: 8 alive; units leased: 0; queues paused: 0",
        "of these jobs: 2 dead, 2 done with a result, 2 cancelled",
    ]
    store.append([(FLUSHED,), word_of(9, dead)])
    store.commit()
    store.close()
    assert "of these jobs: 1 dead, 0 done with a result, 0 cancelled" in checked(tmp_path, capsys)[1]


def test_a_torn_end_is_told_by_its_bytes_and_cut_off_by_a_repair(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_journal(tmp_path)
    path = files(tmp_path)["incr"]
    data = path.read_bytes()
    end = record_ends(data)[-2]
    path.write_bytes(data[: end + 9])
    status, report = checked(tmp_path, capsys)
    assert status == DAMAGED
    assert f"torn: {path.name}: 9 bytes from byte {end} on: record 6 is cut off" in report
    status, report = checked(tmp_path, capsys, "--repair")
    assert (status, len(loaded(tmp_path))) == (WHOLE, 5)
    assert checked(tmp_path, capsys)[0] == WHOLE


@pytest.mark.parametrize("kind", ["base", "incr", "manifest"])
def test_a_repair_loses_nothing_but_the_record_that_a_flipped_bit_hit(tmp_path: Path, kind: str) -> None:
    compacted_journal(tmp_path)
    whole = loaded(tmp_path)
    good = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    path = files(tmp_path)[kind]
    data = good[path.name]
    ends = record_ends(data) if kind != "manifest" else []
    before = len(whole) - 2 if kind == "incr" else 0
    for bit in range(len(data) * 8):
        path.write_bytes(flipped(data, bit))
        out = StringIO()
        assert check(tmp_path / NAME, out, repair=True, disk=QuickDisk()) == WHOLE
        assert path.name in out.getvalue()
        # The header, a mark and a manifest that can be put right cost no record.
        hit = [number for number, (start, end) in enumerate(pairwise(ends)) if start <= bit // 8 < end]
        if kind != "manifest":
            told = f"record {(3 if kind == 'incr' else 1) + hit[0]}:" if hit else "no record:"
            assert told in out.getvalue()
        assert loaded(tmp_path, disk=QuickDisk()) == [
            record for at, record in enumerate(whole) if at - before not in hit
        ]
        assert path.with_name(path.name + ".damaged").read_bytes() == flipped(data, bit)
        for found in tmp_path.iterdir():
            found.unlink()
        for name, content in good.items():
            (tmp_path / name).write_bytes(content)


@pytest.mark.parametrize("bit", [0, 12_345, 8 * 300_000, -3, -8 * 10])
def test_a_flipped_bit_of_a_long_manifest_is_found_in_few_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bit: int
) -> None:
    whole = Manifest(increments=tuple(Increment(number, number) for number in range(1, 20_001)))
    data = whole.to_bytes()
    bit %= len(data) * 8
    manifest = tmp_path / f"{NAME}.manifest"
    manifest.write_bytes(flipped(data, bit))
    attempts: list[bytes] = []
    read = Manifest.from_bytes
    monkeypatch.setattr(Manifest, "from_bytes", lambda text: attempts.append(text) or read(text))
    journal = JournalFiles(tmp_path / NAME, QuickDisk())
    assert read_manifest(journal) == (whole, f"{manifest.name}: one bit of byte {bit // 8} is wrong")
    manifest.write_bytes(flipped(flipped(data, bit), 9_999))
    with pytest.raises(StoreDamaged):
        read_manifest(journal)
    assert len(attempts) <= 2 * (2 + 8 * CHECK_SIZE)


def test_a_pipe_in_the_place_of_the_manifest_is_not_waited_for(tmp_path: Path) -> None:
    manifest, out = tmp_path / f"{NAME}.manifest", StringIO()
    os.mkfifo(manifest)
    said = f"{manifest}: this is no regular file; nothing else is allowed"
    assert check(tmp_path / NAME, out, repair=False, disk=QuickDisk()) == DAMAGED
    assert said in out.getvalue()
    with pytest.raises(StoreFailed, match=said):
        opened(tmp_path)


def test_what_is_lost_is_told_record_by_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, _ = opened(tmp_path)
    put(store, *(b"%d" % number for number in range(50)))
    store.close()
    path = files(tmp_path)["incr"]
    data = bytearray(path.read_bytes())
    ends = record_ends(bytes(data))
    # Records 5 to 7 as wholes, one byte of record 20, and a part of the last.
    data[ends[4] : ends[7]] = b"\xa5" * (ends[7] - ends[4])
    data[ends[20] - 1] ^= 1
    path.write_bytes(data[: ends[50] - 3])
    status, report = checked(tmp_path, capsys)
    assert status == DAMAGED
    assert f"bytes {ends[4]} to {ends[7] - 1}, records 5 to 7: the length is damaged; 41 whole records follow" in report
    assert f"bytes {ends[19]} to {ends[20] - 1}, record 20: the checksum is wrong; 29 whole records follow" in report
    assert f"torn: {path.name}: {ends[50] - 3 - ends[49]} bytes from byte {ends[49]} on" in report
    assert "jobs: 45 alive" in report
    status, report = checked(tmp_path, capsys, "--repair")
    assert "the journal holds 45 records" in report
    assert [record[1].body for record in loaded(tmp_path)] == [
        b"%d" % number for number in range(49) if number not in (4, 5, 6, 19)
    ]


def test_a_file_that_is_missing_or_short_is_told_with_the_numbers_of_its_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small_journal(tmp_path)
    path = files(tmp_path)["base"]
    data = path.read_bytes()
    path.write_bytes(data[: record_ends(data)[1]])
    assert "records 2 to 3" in checked(tmp_path, capsys)[1]
    path.unlink()
    report = checked(tmp_path, capsys)[1]
    assert "records 1 to 3: the manifest lists this file, and it is missing" in report
    assert checked(tmp_path, capsys, "--repair")[0] == WHOLE
    assert len(loaded(tmp_path)) == 3


def test_the_end_of_an_increment_that_another_one_follows_is_not_torn_but_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, _ = opened(tmp_path)
    put(store, b"one", b"two", b"three")
    (path,) = tmp_path.glob("*.incr")
    store._journal.drop_appender(store._committed)
    store._journal.begin_increment()
    put(store, b"four")
    store.close()
    data = path.read_bytes()
    path.write_bytes(data[: record_ends(data)[1] + 5])
    assert "records 2 to 3: record 2 is cut off" in checked(tmp_path, capsys)[1]
    path.write_bytes(data[: record_ends(data)[1]])
    assert "records 2 to 3: the file ends early" in checked(tmp_path, capsys)[1]
    assert checked(tmp_path, capsys, "--repair")[0] == WHOLE
    assert [record[1].body for record in loaded(tmp_path)] == [b"one", b"four"]


def test_a_body_that_looks_like_a_record_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, _ = opened(tmp_path)
    put(store, b"one")
    inner = files(tmp_path)["incr"].read_bytes()[segments.HEADER_SIZE :]
    again = b"".join(segments.framed([inner[segments.FRAME_SIZE :]], 4))
    put(store, again + b"x", b"three", b"four")
    store.close()
    path = files(tmp_path)["incr"]
    data = path.read_bytes()
    ends = record_ends(data)
    path.write_bytes(flipped(data, (ends[2] - 1) * 8))
    assert "record 2: the checksum is wrong; 2 whole records follow" in checked(tmp_path, capsys)[1]


def test_a_repair_is_refused_while_a_node_uses_the_journal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, _ = opened(tmp_path)
    put(store, b"one")
    assert checked(tmp_path, capsys)[0] == WHOLE
    status, report = checked(tmp_path, capsys, "--repair")
    assert status == DAMAGED
    assert "another process uses this journal" in report
    store.close()


def test_damaged_files_of_several_repairs_are_all_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for ending in ("", ".2", ".3"):
        small_journal(tmp_path)
        path = files(tmp_path)["manifest"]
        path.write_bytes(flipped(path.read_bytes(), 3))
        with pytest.raises(StoreDamaged):
            loaded(tmp_path)
        status, report = checked(tmp_path, capsys, "--repair")
        assert status == WHOLE
        assert f"What it was is kept:\n  {path}.damaged{ending}\n" in report
    assert sorted(name.name for name in tmp_path.glob("*manifest.damaged*")) == [
        f"{NAME}.manifest.damaged",
        f"{NAME}.manifest.damaged.2",
        f"{NAME}.manifest.damaged.3",
    ]


def test_words_that_make_no_sense_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check-aof", "--nonsense"]) == MISUSED
    assert run(["check-aof", "one", "--dir", "two"]) == MISUSED
    assert run(["check-aof", "--help"]) == WHOLE
    assert run(["check-aof", "--dir", str(tmp_path)]) == MISUSED
    assert "there is no journal of this name" in capsys.readouterr().err
    assert run(["check-aof", str(tmp_path / "missing" / NAME)]) == MISUSED
    assert "/missing: there is no such folder" in capsys.readouterr().err
    small_journal(tmp_path)
    for word in (tmp_path, tmp_path / NAME, tmp_path / f"{NAME}.manifest"):
        assert run(["check-aof", os.fspath(word)]) == WHOLE
    assert run(["check-aof", "--dir", str(tmp_path)]) == WHOLE


# What is no journal.

OTHERS = {
    "empty": (b"", "empty"),
    "random": (bytes(range(255, 0, -1)) * 20, "of a kind that is not known here"),
    "text": (b"Dear all,\n", "of a kind that is not known here"),
    "disque": (
        b"*2\r\n$7\r\nLOADJOB\r\n$129\r\n",
        "an append-only file of Disque; `disqued import` takes its jobs over",
    ),
    "redis aof": (b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n", "an append-only file of Redis"),
    "redis manifest": (
        b"file appendonly.aof.1.base.rdb seq 1 type b\n",
        "the manifest of an append-only file of Redis",
    ),
    "rdb": (b"REDIS0011\xfa\x09redis-ver", "an RDB file of Redis"),
    "gzip": (gzip.compress(b"disqued journal 2\n" * 100, mtime=0), "compressed by gzip; unpack it first"),
    "sqlite": (b"SQLite format 3\0\x10\0", "a database of SQLite;"),
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("options", [(), ("--repair",)])
@pytest.mark.parametrize("name", [NAME, f"{NAME}.manifest", "backup"])
def test_a_file_of_another_kind_is_called_what_it_is_and_is_not_touched(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, name: str, options: tuple[str, ...]
) -> None:
    data, said = OTHERS[kind]
    path = tmp_path / name
    path.write_bytes(data)
    before = path.stat()
    assert run(["check-aof", str(path), *options]) == MISUSED
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith(f"disqued check-aof: {path} is no journal of disqued, but {said}")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (data, before.st_mtime_ns)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("options", [(), ("--repair",)])
def test_a_folder_without_a_journal_stays_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    for words in ((str(tmp_path),), ("--dir", str(tmp_path)), (str(tmp_path / "other.aof"),)):
        assert run(["check-aof", *words, *options]) == MISUSED
        assert "there is no journal of this name" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / NAME).write_bytes(OTHERS["disque"][0])
    for words in ((str(tmp_path),), ("--dir", str(tmp_path))):
        assert run(["check-aof", *words, *options]) == MISUSED
        assert f"{NAME} is no journal of disqued, but an append-only file of Disque" in capsys.readouterr().err
    assert run(["check-aof", "--dir", str(tmp_path / NAME), *options]) == MISUSED
    assert f"'{tmp_path / NAME}' is a file" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_a_pipe_and_a_folder_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert run(["check-aof", str(tmp_path / "pipe")]) == MISUSED
    assert "pipe is no journal of disqued, but a device, a pipe or a socket" in capsys.readouterr().err
    (tmp_path / f"{NAME}.manifest").mkdir()
    assert run(["check-aof", str(tmp_path)]) == MISUSED
    assert "manifest is no journal of disqued, but a folder" in capsys.readouterr().err


def test_one_file_of_a_journal_is_called_that(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_journal(tmp_path)
    assert run(["check-aof", str(files(tmp_path)["incr"]), "--repair"]) == MISUSED
    said = capsys.readouterr().err
    assert f"is one of the files of a journal of disqued; give the name that all of them begin with: {tmp_path}" in said
    assert said.endswith(f"/{NAME}\n")


@pytest.mark.parametrize("data", [b"", b"REDIS0011", None])
def test_what_is_left_of_a_journal_is_no_other_kind_of_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes | None
) -> None:
    small_journal(tmp_path)
    manifest = files(tmp_path)["manifest"]
    manifest.unlink()
    if data is not None:
        manifest.write_bytes(data)
    status, report = checked(tmp_path, capsys)
    assert status == DAMAGED
    assert "manifest" in report


def test_a_repair_leaves_no_lock_that_was_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small_journal(tmp_path)
    lock = tmp_path / f"{NAME}.lock"
    assert checked(tmp_path, capsys, "--repair")[0] == WHOLE
    assert lock.exists()
    lock.unlink()
    assert checked(tmp_path, capsys, "--repair")[0] == WHOLE
    assert not lock.exists()
    path = files(tmp_path)["manifest"]
    path.write_bytes(flipped(path.read_bytes(), 3))
    assert "Repaired: " in checked(tmp_path, capsys, "--repair")[1]
    assert not lock.exists()


def test_a_lock_that_was_removed_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, disk = tmp_path / "lock", QuickDisk()
    locks: list[int] = []

    def flock(fd: int, how: int) -> None:
        locks.append(fd)
        if len(locks) == 1:  # who had it removes it just now
            path.unlink()

    monkeypatch.setattr(fcntl, "flock", flock)
    found = disk.lock(path)
    assert found is not None
    assert len(locks) == 2
    assert os.path.samestat(os.fstat(found), path.stat())
    os.close(found)
