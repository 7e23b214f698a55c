"""A node and its journal: killed at any moment, on a disk that is full, compacted while clients are at work."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
import redis

from tests.integration.daemon import Daemon, launch, wait_until
from tests.small_disk import SmallDisk, small_disk
from tests.torture.kills import Campaign

AOF = ("--persistence", "aof", "--appendfsync", "always")


@pytest.mark.parametrize("compacts", [False, True])
def test_kills_under_load_take_nothing_that_was_acknowledged(tmp_path: Path, compacts: bool) -> None:
    """A short campaign; `python -m tests.torture` is a long one."""
    campaign = Campaign(tmp_path / "data", "always", Random(7))
    for number in range(3):
        campaign.round(load_s=0.5, compacts=compacts, kills_loading=number > 0)
    campaign.finish()
    tally = campaign.tally
    assert (tally.lost, tally.risen) == ([], [])
    assert tally.added > 100
    assert tally.ended > 10
    assert (tally.compactions > 3) == compacts


def field(daemon: Daemon, name: str) -> object:
    with daemon.redis() as client:
        return client.info("persistence")[name]


def add(client: redis.Redis, size: int = 1_000) -> str:
    """Add a job that no start puts back into its queue for an hour."""
    return str(client.execute_command("ADDJOB", "queue", b"x" * size, 0, "RETRY", 3_600))


def add_until_refused(client: redis.Redis, kept: list[str]) -> None:
    """Add jobs for as long as they are taken."""
    while True:
        kept.append(add(client))


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "data", 4 << 20) as mounted:
        yield mounted


@pytest.fixture
def full(disk: SmallDisk) -> Iterator[Daemon]:
    """A daemon on a small disk; what it says about that disk is no failure of the test."""
    daemon = launch(disk.path, AOF)
    yield daemon
    if not daemon.ended:
        daemon.kill()


def survivors(directory: Path, jobs: list[str]) -> list[str]:
    """Start once more, and say which of these jobs are there."""
    again = launch(directory, AOF)
    with again.redis() as client:
        found = [job for job in jobs if client.execute_command("SHOW", job) is not None]
    again.stop()
    return found


def test_a_full_disk_is_told_to_producers_and_adding_resumes_when_there_is_room(disk: SmallDisk, full: Daemon) -> None:
    with full.redis() as client:
        kept = [add(client) for _ in range(20)]
        disk.fill()
        with pytest.raises(redis.exceptions.ResponseError, match=r"MISCONF.*No space left on device"):
            add_until_refused(client, kept)
        # Consumers go on, and what they end is kept for later.
        _, taken, _ = client.execute_command("GETJOB", "FROM", "queue")[0]
        assert client.execute_command("ACKJOB", taken) == 1
        assert field(full, "aof_last_write_status") == "err"
        disk.relieve()
        began = time.monotonic()
        wait_until(lambda: field(full, "aof_last_write_status") == "ok", "room again")
        kept.append(add(client))
        # Two seconds are promised; a busy machine has some more.
        assert time.monotonic() - began < 10
    full.kill()
    assert survivors(disk.path, kept) == [job for job in kept if job != taken]


def test_a_compaction_on_a_full_disk_fails_and_leaves_the_journal_as_it_was(disk: SmallDisk, full: Daemon) -> None:
    with full.redis() as client:
        kept = [add(client) for _ in range(200)]
        disk.fill()
        with suppress(redis.exceptions.ResponseError):  # there may be no room for a first file
            client.execute_command("BGREWRITEAOF")
        wait_until(lambda: not field(full, "aof_rewrite_in_progress"), "the end of a compaction")
        assert field(full, "aof_last_bgrewrite_status") == "err"
        with pytest.raises(redis.exceptions.ResponseError, match="No space left on device"):
            add_until_refused(client, kept)
        disk.relieve()
        wait_until(lambda: field(full, "aof_last_write_status") == "ok", "room again")
        client.execute_command("BGREWRITEAOF")
        wait_until(lambda: field(full, "aof_last_bgrewrite_status") == "ok", "the end of a compaction")
        assert len(list(disk.path.glob("*.incr"))) == 1
    full.kill()
    assert survivors(disk.path, kept) == kept


def test_a_journal_that_grows_is_compacted_while_clients_are_at_work(
    tmp_path: Path, start: Callable[..., Daemon]
) -> None:
    daemon = start(*AOF, "--auto-aof-rewrite-min-size", "100kb")
    with daemon.redis() as client:
        for _ in range(500):
            job = client.execute_command("ADDJOB", "queue", b"x" * 1_000, 0)
            client.execute_command("ACKJOB", job)
        wait_until(lambda: field(daemon, "aof_last_rewrite_time_sec") != -1, "a compaction")
        # Where the machine is busy the first one may leave much that came meanwhile, and another one follows.
        wait_until(lambda: client.info("persistence")["aof_current_size"] < 300_000, "a journal that is small again")
