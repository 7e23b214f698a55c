"""Whatever a power cut leaves of the files, a journal says what was acknowledged, and nothing that never was.

The store runs on a disk that records each operation; a model of the file system then names the states that a power
cut after any of them may leave (`tests/crashfs.py`), and a store is started in each.
"""

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from twisted.internet.task import Clock as Reactor

from disqued.core.model.outbox import Record
from disqued.persistence.aof import compaction
from disqued.persistence.aof.segments import HEADER_SIZE, framed, header
from disqued.persistence.aof.store import AofStore
from disqued.persistence.interface import StoreError, StoreFailed
from tests.crashfs import Operation, RecordingDisk, crash_states
from tests.journals import NAME, QuickDisk, added, job_id, make, opened, put, replayed, small_journal

GO_ON = 4  #: the store goes on in every fourth state, and is started once more


class TroubledDisk(RecordingDisk):
    """A recording disk that can be full, and whose syncs can fail."""

    room: int | None = None  #: bytes left; None = plenty
    sync_fails = False

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self.room is None:
            return super().write(fd, data)
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = super().write(fd, data[: self.room])
        self.room -= written
        return written

    def fdatasync(self, fd: int) -> None:
        if self.sync_fails:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().fdatasync(fd)


class Promises:
    """What jobs there are after each step, and which steps are acknowledged when.

    A step changes one job: at a power cut each job may be in any of the states that it had since the last step that was
    acknowledged.
    """

    def __init__(self, disk: TroubledDisk, jobs: dict[bytes, bytes] | None = None) -> None:
        self.disk = disk
        self.history: list[dict[bytes, bytes]] = [dict(jobs or {})]

    @property
    def jobs(self) -> dict[bytes, bytes]:
        return self.history[-1]

    def add(self, number: int, body: bytes) -> Record:
        self._step({**self.jobs, job_id(number): body})
        return added(number, body)

    def _step(self, jobs: dict[bytes, bytes]) -> None:
        self.history.append(jobs)
        self.disk.note(("begun", len(self.history) - 1))

    def acknowledge(self) -> None:
        """All of it, up to now."""
        self.disk.note(("acknowledged", len(self.history) - 1))

    def walk(self) -> Iterator[Record]:
        for number in range(100):
            body = self.jobs.get(job_id(number))
            if body is not None:
                yield added(number, body)

    def legal(self, operations: list[Operation], jobs: dict[bytes, bytes]) -> bool:
        """Tell whether these jobs may be what is left after these operations."""
        notes = [operation[1] for operation in operations if operation[0] == "note"]
        first = max((step for word, step in notes if word == "acknowledged"), default=0)
        last = max((step for word, step in notes if word == "begun"), default=0)
        possible = self.history[first : last + 1]
        every = set(jobs).union(*possible)
        return all(any(jobs.get(job) == state.get(job) for state in possible) for job in every)


class Run:
    """A store under `always` on a recording disk, with the promises that it makes."""

    def __init__(self, directory: Path, disk: TroubledDisk, **options: Any) -> None:
        self.directory = directory
        self.disk = disk
        self.reactor = Reactor()
        self.options: dict[str, Any] = {"fsync": "always", "disk": disk, "reactor": self.reactor, **options}
        self.promises = Promises(disk)
        self.store: AofStore | None = None
        self.number = 0

    def start(self) -> AofStore:
        self.store, records = opened(self.directory, **self.options)
        assert replayed(records) == self.promises.jobs
        return self.store

    def commit(self, *bodies: bytes) -> None:
        """Add jobs one by one, or change those that there are, with one commit for all."""
        assert self.store is not None
        for body in bodies:
            self.number += 1
            self.store.append([self.promises.add(self.number % 7, body)])
        self.store.commit()
        if self.options["fsync"] == "always":
            self.promises.acknowledge()

    def compact(self) -> None:
        """Compact, with a commit after each turn."""
        assert self.store is not None
        self.store.compact(self.promises.walk())
        while self.store.status()["aof_rewrite_in_progress"]:
            if self.number < 18:
                self.commit(b"meanwhile %d" % self.number)
            self.reactor.advance(compaction.POLL_S)
        assert self.store.status()["aof_last_bgrewrite_status"] == "ok"


def violations(run: Run, place: Path, seed: int = 1) -> Iterator[str]:
    """Start a store in every state that a power cut may leave; say what is wrong with what it finds."""
    operations = run.disk.operations
    for number, state in enumerate(crash_states(operations, Random(seed))):
        directory = place / str(number)
        state.write_to(directory)
        when = f"after {operations[state.at - 1]!r:.80}"
        try:
            store, records = opened(directory, disk=QuickDisk())
            if number % GO_ON == 0:
                put(store, b"next")
                store.close()
                store, more = opened(directory, disk=QuickDisk())
                assert len(more) == len(records) + 1
            store.close()
        except StoreError as error:
            yield f"{when}: {error}"
        else:
            if not run.promises.legal(operations[: state.at], replayed(records)):
                yield f"{when}: {sorted(replayed(records).values())}"
        shutil.rmtree(directory)
    assert number > 30


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(compaction, "SLICE_RECORDS", 2)
    monkeypatch.setattr(compaction, "RECORDS_PER_LOOK", 1)
    return make_run(tmp_path, TroubledDisk())


def make_run(tmp_path: Path, disk: TroubledDisk, **options: Any) -> Run:
    (tmp_path / "data").mkdir()
    (tmp_path / "states").mkdir()
    return Run(tmp_path / "data", disk, **options)


LONG = b"x" * 1_500  #: a job over several sectors


def first_start(run: Run) -> None:
    run.start()
    run.commit(b"one", b"two")
    run.commit(LONG)
    run.commit(b"three", LONG, b"four", LONG)


def starts(run: Run) -> None:
    for _ in range(3):
        store = run.start()
        run.commit(b"job", LONG)
        store.close()


def compactions(run: Run) -> None:
    run.start()
    run.commit(b"one", b"two", LONG)
    run.compact()
    run.commit(b"between")
    run.compact()
    run.commit(b"after", LONG)


def compaction_given_up(run: Run) -> None:
    store = run.start()
    run.commit(b"one", b"two", b"three")
    for turns in range(3):
        store.compact(run.promises.walk())
        for _ in range(turns):
            run.reactor.advance(compaction.POLL_S)
            run.commit(b"meanwhile")
        store.close()
        store = run.start()
        run.commit(b"more", LONG)


def last_word(run: Run) -> None:
    store = run.start()
    run.commit(b"one", b"two", LONG)
    store.rewrite(run.promises.walk())
    run.commit(b"after")
    store.rewrite(run.promises.walk())
    store.close()
    run.start()
    run.commit(b"started")


def full_disk(run: Run) -> None:
    store = run.start()
    run.commit(b"one")
    for part in (0, 10, 700):
        run.disk.room = part
        with pytest.raises(StoreFailed, match="No space left") as caught:
            run.commit(b"two", LONG)
        assert not caught.value.final
        run.disk.room = None
        store.commit()
        run.promises.acknowledge()
        run.commit(b"three")


def anew(run: Run) -> None:
    """What was there goes at one moment."""
    small_journal(run.directory)
    (run.directory / f"{NAME}.lock").unlink()
    run.disk.adopt(run.directory)
    run.promises.history[0] = {job_id(2): b"base", job_id(7): b"incr"}
    store = make(run.directory, reactor=run.reactor, fsync="always", disk=run.disk)
    store.open()
    run.promises._step({})
    store.renew()
    run.promises.acknowledge()
    run.store = store
    run.commit(b"new")


def repair(run: Run) -> None:
    """A sync fails, and a compaction makes the journal sound again."""
    store = run.start()
    run.commit(b"one", b"two")
    run.disk.sync_fails = True
    with pytest.raises(StoreFailed):
        run.commit(b"three")
    run.disk.sync_fails = False
    store.compact(run.promises.walk())
    while store.status()["aof_rewrite_in_progress"]:
        if run.number < 10:
            with pytest.raises(StoreFailed):
                run.commit(b"meanwhile", LONG)
        run.reactor.advance(compaction.POLL_S)
    store.commit()
    run.promises.acknowledge()
    run.commit(b"four")


def kill(run: Run) -> None:
    """End the process as kill -9 does: what was written stays with the system, and nothing more is synced."""
    assert run.store is not None
    run.store._journal.files.lock.release()
    run.store = None
    # Its reactor and what it was about to do are gone.
    run.reactor = run.options["reactor"] = Reactor()


def killed(run: Run) -> None:
    """Between two commits, and in each part of a compaction; the next process goes on where it ended."""
    for turns in range(6):
        run.options["fsync"] = "no"
        store = run.start()
        run.commit(b"not synced", LONG)
        store.compact(run.promises.walk())
        for _ in range(turns):
            while not store._compaction._worker.is_idle:  # type: ignore[union-attr]
                pass
            run.reactor.advance(1)
            run.commit(b"meanwhile", LONG)
            if store._compaction is None:
                break
        if store._compaction is not None:
            # The thread dies with the process.
            store._compaction._worker.end()
        kill(run)
        run.options["fsync"] = "always"
        store = run.start()
        run.commit(b"acknowledged", LONG)
        kill(run)
    run.start()
    run.commit(b"at last")


def killed_between_commits(run: Run) -> None:
    run.options["fsync"] = "no"
    run.start()
    for _ in range(3):
        run.commit(LONG, b"not synced", LONG)
        kill(run)
        run.start()
    kill(run)
    run.options["fsync"] = "always"
    run.start()
    run.commit(b"acknowledged")


def killed_and_compacted(run: Run) -> None:
    """What the killed process wrote is on the disk before anything is written to the increment behind it."""
    run.options["fsync"] = "no"
    run.start()
    run.commit(LONG, b"not synced", LONG)
    kill(run)
    run.options["fsync"] = "always"
    run.start()
    compact_at_once(run)


def compact_at_once(run: Run) -> None:
    """Compact before anything is committed, and commit to the new increment while the old one still counts."""
    store = run.store
    assert store is not None
    in_use = store._journal.in_use
    store.compact(run.promises.walk())
    while store._journal.in_use is in_use:
        run.reactor.advance(compaction.POLL_S)
    run.commit(b"in the new increment", LONG)
    while store.status()["aof_rewrite_in_progress"]:
        run.reactor.advance(compaction.POLL_S)


SCENARIOS = [
    first_start, starts, compactions, compaction_given_up, last_word, full_disk, anew, repair, killed,
    killed_between_commits, killed_and_compacted,
]  # fmt: skip


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_no_power_cut_takes_what_was_acknowledged(run: Run, tmp_path: Path, scenario: Callable[[Run], None]) -> None:
    scenario(run)
    assert list(violations(run, tmp_path / "states")) == []
    assert run.store is not None
    try:
        run.store.close()
    except StoreFailed:
        assert scenario is full_disk


@pytest.mark.parametrize("part", [0, 10, HEADER_SIZE + 30])
def test_an_end_that_was_cut_off_does_not_come_back(run: Run, tmp_path: Path, part: int) -> None:
    """A journal that ends within its header, or its first record, is compacted before anything else is written."""
    store, _ = opened(run.directory)
    store.close()
    (path,) = run.directory.glob("*.incr")
    path.write_bytes((header(1) + b"".join(framed([bytes(100)], 1)))[:part])
    (run.directory / f"{NAME}.lock").unlink()
    run.disk.adopt(run.directory)
    run.start()
    compact_at_once(run)
    assert list(violations(run, tmp_path / "states")) == []
    kill(run)


@pytest.mark.parametrize("policy", ["everysec", "no"])
@pytest.mark.parametrize("scenario", [first_start, starts, compactions, compaction_given_up, last_word])
def test_a_power_cut_leaves_a_journal_that_is_whole_under_every_policy(
    run: Run, tmp_path: Path, scenario: Callable[[Run], None], policy: str
) -> None:
    run.options["fsync"] = policy
    scenario(run)
    assert run.store is not None
    run.store.close()
    assert list(violations(run, tmp_path / "states")) == []


class SlowDisk(TroubledDisk):
    """A disk whose syncs take as long as the test wants: they make durable what was written before."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = threading.Event()
        self.may_end.set()
        self.syncs = 0

    def fdatasync(self, fd: int) -> None:
        super().fdatasync(fd)
        self.syncs += 1
        assert self.may_end.wait(60)


def test_what_is_written_during_a_sync_is_not_taken_for_durable(tmp_path: Path) -> None:
    disk = SlowDisk()
    run = make_run(tmp_path, disk, fsync="everysec")
    store = run.start()
    for _ in range(3):
        disk.may_end.clear()
        begun = disk.syncs
        run.commit(b"before the sync", LONG)
        while disk.syncs == begun:
            pass
        # The disk has taken what it was asked for, and has not said so yet.
        run.commit(LONG, LONG)
        while store.status()["aof_buffer_length"]:
            pass
        disk.may_end.set()
        while store.status()["aof_pending_bio_fsync"]:
            pass
        # The mark of that sync is written with these.
        run.commit(LONG)
    for seed in range(4):
        place = tmp_path / f"states {seed}"
        place.mkdir()
        assert list(violations(run, place, seed)) == []
    store.close()


def test_what_is_secured_outlives_a_power_cut_under_every_policy(tmp_path: Path) -> None:
    for policy in ("everysec", "no"):
        place = tmp_path / policy
        place.mkdir()
        disk = TroubledDisk()
        run = make_run(place, disk, fsync=policy)
        store = run.start()
        for _ in range(4):
            run.commit(b"one", LONG)
            answer = store.secure()
            assert answer is not None
            safe: list[None] = []
            answer.addCallback(safe.append)
            while not safe:
                run.reactor.advance(1)
            run.promises.acknowledge()
            run.commit(b"not secured")
        assert list(violations(run, place / "states")) == []
        store.close()


# The model finds what is wrong.


class ForgetfulDisk(TroubledDisk):
    """A disk under a store that forgets something."""

    def __init__(self, forgets: str) -> None:
        super().__init__()
        self.forgets = forgets

    def sync_directory(self, path: Path) -> None:
        if self.forgets != "directories":
            super().sync_directory(path)

    def fdatasync(self, fd: int) -> None:
        if self.forgets not in (self._name(fd).rpartition(".")[2], "syncs"):
            super().fdatasync(fd)

    def _name(self, fd: int) -> str:
        inode = self._inodes[fd]
        return next(name for name, number in self._by_path.items() if number == inode)


@pytest.mark.parametrize(
    ("forgets", "scenario"),
    [
        ("directories", first_start),
        ("directories", compactions),
        ("base", compactions),
        ("base", last_word),
        ("incr", first_start),
        ("incr", compactions),
        ("new", first_start),  # the manifest is renamed before it is synced
        ("new", compactions),
        ("syncs", starts),
    ],
)
def test_the_model_catches_what_is_forgotten(
    run: Run, tmp_path: Path, forgets: str, scenario: Callable[[Run], None]
) -> None:
    run.disk = run.promises.disk = run.options["disk"] = ForgetfulDisk(forgets)
    scenario(run)
    assert run.store is not None
    run.store.close()
    assert next(violations(run, tmp_path / "states"), None)


def test_the_model_leaves_of_a_file_what_its_syncs_allow(tmp_path: Path) -> None:
    disk = RecordingDisk()
    fd = disk.create(tmp_path / "file")
    disk.write(fd, b"a" * 512)
    disk.fdatasync(fd)
    disk.sync_directory(tmp_path)
    before = len(disk.operations)
    disk.write(fd, b"b" * 1_024)
    disk.close(fd)
    disk.rename(tmp_path / "file", tmp_path / "other")
    states = [state for seed in range(50) for state in crash_states(disk.operations, Random(seed)) if state.at > before]
    assert {frozenset(state.files) for state in states} == {frozenset({"file"}), frozenset({"other"})}
    contents = {data for state in states for data in state.files.values()}
    assert all(data[:512] == b"a" * 512 and not data[512:].strip(b"b\0") for data in contents)
    assert {b"a" * 512, b"a" * 512 + b"b" * 1_024, b"a" * 512 + bytes(512) + b"b" * 512} <= contents
