"""Rows of a database read by ranges of their numbers, while the node goes on writing."""

from contextlib import suppress
from pathlib import Path

import pytest
from twisted.logger import capturedLogs

from disqued.core.model.outbox import GONE_DELETED, GONE_EVICTED, JOB_GONE, UNIT_DONE
from disqued.persistence.interface import StoreDamaged, StoreFailed
from disqued.persistence.sqlite import ranges
from disqued.persistence.sqlite.ranges import EndedJob, numbers_of, read_facts, read_jobs
from tests.databases import NAME, Store, added, change, job_id, opened

CTIME = 1_700_000_000_000_000_000  #: of job 0 of `tests.databases`


def filled(tmp_path: Path) -> int:
    """Make a database of seven jobs, of which some are over; returns the time of all that happened."""
    store, _ = opened(tmp_path)
    store.put(*(added(number, b"%d" % number) for number in range(1, 8)))
    store.put((UNIT_DONE, job_id(1), b""), (UNIT_DONE, job_id(2), b"0:group"), (UNIT_DONE, job_id(99), b""))
    store.put((JOB_GONE, job_id(3), GONE_DELETED), (JOB_GONE, job_id(98), GONE_EVICTED))
    wall = store.clock.wall()
    store.end()
    return wall


def test_jobs_are_read_in_any_range_of_their_numbers(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / NAME
    numbers = numbers_of(path, "jobs")
    jobs = [(job.id, job.body) for job, _ in read_jobs(path)]
    assert jobs == [(job_id(number), b"%d" % number) for number in (2, 4, 5, 6, 7)]
    assert [(job.id, job.body) for job, _ in read_jobs(path, numbers)] == jobs
    parts = [range(at, at + 1) for at in numbers]
    assert [[(job.id, job.body) for job, _ in read_jobs(path, part)] for part in parts if part] == [
        [pair] if pair else [] for pair in [jobs[0], None, *jobs[1:]]
    ]  # fmt: skip
    assert list(read_jobs(path, range(numbers.stop, numbers.stop + 9))) == []
    assert list(read_jobs(path, range(numbers.start))) == []


def test_what_is_over_is_read_with_what_is_known_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wall = filled(tmp_path)
    path = tmp_path / NAME
    done = [
        EndedJob(job_id(1), b"", b"queue", CTIME + 1, wall),
        EndedJob(job_id(2), b"0:group", b"queue", CTIME + 2, wall),
        EndedJob(job_id(99), b"", None, None, wall),
    ]
    gone = [
        EndedJob(job_id(3), GONE_DELETED, b"queue", CTIME + 3, wall),
        EndedJob(job_id(98), GONE_EVICTED, None, None, wall),
    ]
    for rows in (ranges.ROWS, 1, 2):
        monkeypatch.setattr(ranges, "ROWS", rows)
        for table, facts in (("done", done), ("evictions", gone)):
            key = sorted(facts, key=lambda fact: fact.id)
            assert sorted(read_facts(path, table), key=lambda fact: fact.id) == key
            halves = numbers_of(path, table)
            middle = halves.start + 1
            found = [
                *read_facts(path, table, range(halves.start, middle)),
                *read_facts(path, table, range(middle, halves.stop)),
            ]
            assert sorted(found, key=lambda fact: fact.id) == key


def test_a_table_without_rows_has_no_numbers_and_a_missing_database_is_named(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.end()
    assert numbers_of(tmp_path / NAME, "jobs") == range(0)
    with pytest.raises(StoreFailed, match="there is no database of this name"):
        numbers_of(tmp_path / "another.sqlite", "jobs")


def test_a_row_that_was_changed_is_told_with_its_number(tmp_path: Path) -> None:
    filled(tmp_path)
    change(tmp_path, "UPDATE jobs SET body = 'other' WHERE body = '5'")
    change(tmp_path, "UPDATE done SET done_at = done_at + 1")
    with pytest.raises(StoreDamaged, match="record 5: the checksum is wrong"):
        list(read_jobs(tmp_path / NAME))
    with pytest.raises(StoreDamaged, match="the checksum is wrong"):
        list(read_facts(tmp_path / NAME, "done"))


def test_a_file_that_cannot_be_removed_is_told_and_the_others_are_removed(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.put(added(1))
    path = tmp_path / NAME
    others = {each.name for each in tmp_path.iterdir()} - {NAME}
    path_unlink = Path.unlink

    def unlink(self: Path, missing_ok: bool = False) -> None:
        if self == path:
            raise OSError(1, "Operation not permitted")
        path_unlink(self, missing_ok=missing_ok)

    with pytest.MonkeyPatch.context() as patch, capturedLogs() as events:
        patch.setattr(Path, "unlink", unlink)
        store.loop.wait(store.discard())
    assert [event["why"] for event in events if event.get("path") == str(path)] == ["Operation not permitted"]
    assert path.exists()
    assert others
    assert not {f"{NAME}-wal"} & {each.name for each in tmp_path.iterdir()}


def open_below(folder: Path) -> int:
    """Count the files of a folder that this process has open."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the one that lists them
            count += link.readlink().is_relative_to(folder)
    return count


@pytest.mark.parametrize("begins", [False, True])
def test_a_store_that_has_begun_reads_its_database_no_more(tmp_path: Path, begins: bool) -> None:
    filled(tmp_path)
    before = open_below(tmp_path)
    store = Store(tmp_path)
    store.open()
    reader = store._reader
    assert reader is not None
    if begins:
        store.loop.wait(store.renew())
    else:
        assert store.loaded()
    reader.close = lambda: None  # type: ignore[method-assign]
    store.put(added(9))
    store.end()
    assert open_below(tmp_path) == before
