"""A real daemon on a real disk that is full: producers hear why, nobody else notices, and it ends by itself."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.integration.daemon import Daemon, hasty, wait_until
from tests.small_disk import SmallDisk, small_disk

Start = Callable[..., Daemon]
BODY = "x" * 4_000


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """A disk of 4 MiB."""
    with small_disk(tmp_path / "disk", 4 << 20) as disk:
        yield disk


def add(daemon: Daemon, body: str) -> str:
    return str(daemon.call("ADDJOB", "q", body, 0, "RETRY", 1))


def add_many(daemon: Daemon, told: set[str], count: int) -> None:
    """Add jobs, and note each that was told."""
    with daemon.redis() as client:
        for _ in range(count):
            told.add(str(client.execute_command("ADDJOB", "q", BODY, 0, "RETRY", 1)))


def add_until_refused(daemon: Daemon, told: set[str]) -> None:
    """Add more than any room that is left holds."""
    add_many(daemon, told, 5_000)


def is_taken(daemon: Daemon) -> bool:
    try:
        add(daemon, "again")
    except redis.ResponseError:
        return False
    return True


@pytest.mark.parametrize("policy", ["always", "everysec"])
@pytest.mark.parametrize("store", ["aof", "sqlite"])
def test_producers_hear_of_a_full_disk_and_the_rest_goes_on(
    disk: SmallDisk, start: Start, store: str, policy: str
) -> None:
    options = ("--persistence", store, "--appendfsync", policy)
    daemon = start(*options, directory=disk.path / "data")
    told: set[str] = set()
    add_many(daemon, told, 20)
    disk.fill()
    with pytest.raises(redis.ResponseError, match=r"MISCONF Errors writing to the AOF file: .*(No space left|full)"):
        add_until_refused(daemon, told)
    facts = daemon.call("INFO", "persistence")
    assert facts["aof_last_write_status"] == "err"
    assert "persistence_failure" in facts

    # What is there is delivered and acknowledged all the same.
    [[_, taken, _]] = daemon.call("GETJOB", "FROM", "q")
    assert daemon.call("ACKJOB", taken) == 1
    assert taken in told
    with pytest.raises(redis.ResponseError, match="MISCONF"):
        daemon.call("PING")

    disk.relieve()
    wait_until(lambda: is_taken(daemon), "additions resume by themselves")
    assert daemon.call("INFO", "persistence")["aof_last_write_status"] == "ok"
    told.add(add(daemon, "after"))
    daemon.kill()

    again = start(*options, directory=daemon.directory)
    found = set(again.call("JSCAN", "BUSYLOOP")[1])
    assert told - {taken} <= found, "a job whose id was told is gone"
    assert taken not in found, "a job that was acknowledged while the disk was full is back"


def test_a_node_on_a_full_disk_can_be_moved_off_it(disk: SmallDisk, start: Start) -> None:
    daemon = start("--persistence", "aof", "--appendfsync", "always", directory=disk.path / "data")
    told: set[str] = set()
    add_many(daemon, told, 20)
    disk.fill()
    with pytest.raises(redis.ResponseError, match="MISCONF"):
        add_until_refused(daemon, told)
    daemon.call("CONFIG", "SET", "persistence", "none")
    wait_until(lambda: is_taken(daemon), "a node without a journal takes jobs")
    assert told <= set(daemon.call("JSCAN", "BUSYLOOP")[1])
    disk.relieve()
    daemon.call("CONFIG", "SET", "persistence", "aof")
    wait_until(lambda: daemon.call("INFO", "persistence")["persistence"] == "aof", "the journal is back")
    daemon.kill()
    again = start("--persistence", "aof", directory=daemon.directory)
    assert told <= set(again.call("JSCAN", "BUSYLOOP")[1])


def test_a_change_of_the_store_that_finds_no_room_leaves_none_of_it_taken(disk: SmallDisk, start: Start) -> None:
    options = ("--persistence", "aof", "--appendfsync", "always")
    program = hasty("disqued.net.process.switching", RETRY_S=0.01)
    daemon = start(*options, directory=disk.path / "data", program=program)
    told: set[str] = set()
    add_many(daemon, told, 600)
    assert daemon.call("CONFIG", "SET", "persistence", "sqlite") == "OK"
    wait_until(lambda: "persistence_change_failed" in daemon.call("INFO", "persistence"), "the change is given up")
    assert daemon.call("CONFIG", "GET", "persistence") == ["persistence", "aof"]
    wait_until(lambda: not list(daemon.directory.glob("disque.sqlite*[!k]")), "what it had taken is given back")
    wait_until(lambda: is_taken(daemon), "additions resume by themselves")
    assert told <= set(daemon.call("JSCAN", "BUSYLOOP")[1])
