"""Every store under a real daemon: crashes, controlled restarts, and one store changed for another."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.integration.daemon import DAEMON, LIMIT, Daemon, environment, hasty, wait_until
from tests.redis_server import RedisServer

Start = Callable[..., Daemon]

SOON_FREE = hasty("disqued.persistence.redis.server", LEASE_MS=1_000, BEAT_S=0.2, LOOK_S=0.1)


@pytest.fixture
def start(start: Start) -> Start:
    """Start daemons whose lease of a Redis server ends soon after they are killed."""
    return partial(start, program=SOON_FREE)


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A Redis server of this test's own."""
    place = tmp_path / "redis"
    place.mkdir()
    server = RedisServer(place)
    server.start()
    yield server
    server.kill()


@pytest.fixture(params=["none", "aof", "sqlite", "redis"])
def store(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The options of each store in turn."""
    options = ("--persistence", request.param, "--appendfsync", "always")
    if request.param == "redis":
        options += ("--redis-url", request.getfixturevalue("redis_server").url)
    return options


@pytest.fixture(params=["aof", "sqlite", "redis"])
def journal(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """The options of each store that keeps a journal."""
    options = ("--persistence", request.param, "--appendfsync", "always")
    if request.param == "redis":
        options += ("--redis-url", request.getfixturevalue("redis_server").url)
    return options


def shown(daemon: Daemon, job: str) -> dict[str, Any]:
    """What SHOW says of a job."""
    pairs = daemon.call("SHOW", job)
    assert isinstance(pairs, list), f"{job} is not known"
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def shut_down_for_restart(daemon: Daemon) -> None:
    """End the daemon as an operator does who wants everything back."""
    daemon.call("CONFIG", "SET", "aof-enqueue-jobs-once", "yes")
    daemon.call("CONFIG", "REWRITE")
    with daemon.redis(retry=None) as client, pytest.raises(redis.exceptions.ConnectionError):
        client.execute_command("SHUTDOWN", "REWRITE-AOF")
    assert daemon.wait_end() == 0


def test_a_controlled_restart_brings_everything_back_as_it_was(
    start: Start, tmp_path: Path, store: Sequence[str]
) -> None:
    file = tmp_path / "node.conf"
    file.write_text("")
    first = start("--config", str(file), *store)
    jobs = [first.call("ADDJOB", "q", f"body {n}", 0, "RETRY", 60 * (n % 2)) for n in range(20)]
    given_back = first.call("ADDJOB", "back", "nacked twice", 0)
    for _ in range(2):
        first.call("GETJOB", "FROM", "back")
        first.call("NACK", given_back)
    delayed = first.call("ADDJOB", "q", "delayed", 0, "DELAY", 900, "RETRY", 0)
    leased = first.call("ADDJOB", "leased", "at work", 0, "RETRY", 500)
    first.call("GETJOB", "FROM", "leased")
    keyed = first.call("ADDJOB", "keyed", "once", 0, "KEY", "k")
    done = first.call("ADDJOB", "q", "done", 0)
    first.call("ACKJOB", done)
    first.call("PAUSE", "stopped", "in")
    before = {job: shown(first, job) for job in (*jobs, given_back, delayed, leased, keyed)}
    shut_down_for_restart(first)

    again = start("--config", str(file), *store, directory=first.directory)
    for job, was in before.items():
        now = shown(again, job)
        for name in ("ttl", "next-requeue-within", "next-awake-within"):
            earlier, later = was.pop(name), now.pop(name)
            assert (earlier is None) is (later is None)
            # Time went on, and was not given anew.
            assert earlier is None or later <= earlier
        # That a consumer has a job, and which, the store is not told.
        for name in ("phase", "consumer", "in-flight-for", "place"):
            was.pop(name, None)
            now.pop(name, None)
        assert now == was
    assert again.call("SHOW", done) is None
    assert again.call("ADDJOB", "keyed", "again", 0, "KEY", "k") == keyed
    assert again.call("PAUSE", "stopped", "state") == "in"
    assert again.call("CONFIG", "GET", "aof-enqueue-jobs-once") == ["aof-enqueue-jobs-once", "no"]
    assert "aof-enqueue-jobs-once yes" not in file.read_text()
    taken = again.call("GETJOB", "COUNT", 100, "FROM", "q")
    assert [(job, body) for _, job, body in taken] == [(job, f"body {n}") for n, job in enumerate(jobs)]
    assert again.call("GETJOB", "WITHCOUNTERS", "FROM", "back")[0][3:] == ["nacks", 2, "additional-deliveries", 0]

    # What was delivered at most once is not delivered again, whatever the option says.
    again.kill()
    last = start("--config", str(file), *store, "--aof-enqueue-jobs-once", "yes", directory=first.directory)
    assert last.call("QLEN", "q") == 0
    assert (last.call("ADDJOB", "keyed", "again", 0, "KEY", "k") == keyed) is ("none" not in store)


def test_a_stop_in_order_keeps_the_progress_of_jobs(start: Start, tmp_path: Path, journal: Sequence[str]) -> None:
    file = tmp_path / "node.conf"
    file.write_text("")
    options = ("--config", str(file), *journal)
    first = start(*options)
    runs = first.call("ADDJOB", "q", "runs", 0, "RETRY", 500, "MAXTRIES", 9)
    plain = first.call("ADDJOB", "q", "plain", 0)
    once = first.call("ADDJOB", "q", "once", 0, "RETRY", 0)
    done = first.call("ADDJOB", "q", "done", 0)
    assert len(first.call("GETJOB", "COUNT", 4, "FROM", "q")) == 4
    for job in (runs, plain, once, done):
        first.call("WORKING", job, "PROGRESS", f"77 % of {job}")
    first.call("ACKJOB", done)
    first.stop()

    again = start(*options, directory=first.directory)
    for job, body in ((runs, "runs"), (plain, "plain")):
        now = shown(again, job)
        assert (now["progress"], now["body"], now["state"]) == (f"77 % of {job}", body, "active")
    assert [again.call("SHOW", job) for job in (done, once)] == [None, None]
    # A snapshot with the queues has it, too, and is the last word.
    again.call("NACK", plain)
    again.call("WORKING", runs, "PROGRESS", "78 %")
    shut_down_for_restart(again)

    last = start(*options, directory=first.directory)
    assert (shown(last, runs)["progress"], shown(last, runs)["state"]) == ("78 %", "active")
    assert (shown(last, plain)["progress"], shown(last, plain)["state"]) == (f"77 % of {plain}", "queued")
    last.stop()  # before its Redis


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_a_delayed_job_whose_time_comes_while_its_node_is_down_is_delivered_at_once(
    start: Start, journal: Sequence[str], policy: str
) -> None:
    options = (*journal[:2], "--appendfsync", policy, *journal[4:])
    first = start(*options)
    for retry in (0, 3_600):
        # The one is delivered before the crash.
        first.call("ADDJOB", f"q{retry}", "early", 0, "DELAY", 1, "RETRY", retry)
        assert [body for _, _, body in first.call("GETJOB", "FROM", f"q{retry}")] == ["early"]
        first.call("ADDJOB", f"q{retry}", "late", 0, "DELAY", 2, "RETRY", retry)
    due = time.time() + 2
    if "redis" in journal:
        # Unless under `always`, nobody waits for the server.
        wait_until(lambda: first.call("INFO", "persistence")["redis_backlog_records"] == 0, "an empty backlog")
    first.kill()
    wait_until(lambda: time.time() > due, "the time of the jobs")

    again = start(*options, directory=first.directory)
    for retry in (0, 3_600):
        assert [body for _, _, body in again.call("GETJOB", "FROM", f"q{retry}")] == ["late"]
    again.kill()
    last = start(*options, directory=first.directory)
    for retry in (0, 3_600):
        assert last.call("GETJOB", "NOHANG", "FROM", f"q{retry}") is None


def test_what_was_acknowledged_outlives_kill_9_under_load(start: Start, journal: Sequence[str]) -> None:
    daemon = start(*journal)
    added: list[str] = []
    acknowledging: list[str] = []  #: asked for; the answer may be lost with the daemon
    done: list[str] = []
    enough = threading.Event()

    def produce() -> None:
        with daemon.redis(retry=None) as client:
            try:
                while True:
                    job = client.execute_command("ADDJOB", "q", f"body {len(added)}", 0, "RETRY", 300)
                    added.append(job)
                    if len(added) % 5 == 0:
                        acknowledging.append(job)
                        client.execute_command("ACKJOB", job)
                        done.append(job)
                    if len(added) >= 500:
                        enough.set()
            except redis.exceptions.ConnectionError:
                return

    producers = [threading.Thread(target=produce) for _ in range(4)]
    for producer in producers:
        producer.start()
    assert enough.wait(LIMIT)
    daemon.kill()
    for producer in producers:
        producer.join(LIMIT)

    again = start(*journal, directory=daemon.directory)
    found = set(again.call("JSCAN", "BUSYLOOP")[1])
    lost = set(added) - set(acknowledging) - found
    assert not lost, f"{len(lost)} of {len(added)} jobs that ADDJOB answered are gone"
    assert not found & set(done), "a job whose ACKJOB was answered is back"
    # Who has a job now is not known after a crash, so each comes back when its retry time is over.
    assert set(again.call("JSCAN", "BUSYLOOP", "STATE", "active")[1]) == found


def test_a_node_goes_round_all_stores_under_load_and_loses_nothing(start: Start, redis_server: RedisServer) -> None:
    options = ("--appendfsync", "always", "--redis-url", redis_server.url)
    daemon = start(*options)
    with daemon.redis() as client:
        jobs: set[str] = {client.execute_command("ADDJOB", "q", f"{n}", 0) for n in range(300)}
    daemon.call("PAUSE", "stopped", "out")
    gone: set[str] = set()
    stop = threading.Event()

    def produce() -> None:
        with daemon.redis(retry=None) as client:
            while not stop.is_set():
                jobs.add(client.execute_command("ADDJOB", "q", "more", 0))
                [[_, job, _]] = client.execute_command("GETJOB", "FROM", "q")
                client.execute_command("ACKJOB", job)
                gone.add(job)

    producer = threading.Thread(target=produce)
    producer.start()
    try:
        for name in ("aof", "sqlite", "redis", "aof", "none", "sqlite"):
            daemon.call("CONFIG", "SET", "persistence", name)
            wait_until(
                lambda name=name: daemon.call("INFO", "persistence")["persistence"] == name, f"the store is {name}"
            )
    finally:
        stop.set()
        producer.join(LIMIT)
    daemon.kill()
    again = start(*options, "--persistence", "sqlite", directory=daemon.directory)
    assert set(again.call("JSCAN", "BUSYLOOP")[1]) == jobs - gone
    assert again.call("PAUSE", "stopped", "state") == "out"


def test_a_changed_configuration_moves_the_jobs_at_the_next_start(start: Start, redis_server: RedisServer) -> None:
    options = ("--redis-url", redis_server.url)
    daemon = start(*options, "--persistence", "aof")
    jobs = {daemon.call("ADDJOB", "q", f"{n}", 0) for n in range(50)}
    for name in ("sqlite", "redis", "aof"):
        daemon.stop()
        daemon = start(*options, "--persistence", name, directory=daemon.directory)
        wait_until(
            lambda daemon=daemon, name=name: daemon.call("INFO", "persistence")["persistence"] == name,
            f"the store is {name}",
        )
        daemon.call("ACKJOB", jobs.pop())
        assert set(daemon.call("JSCAN", "BUSYLOOP")[1]) == jobs


def test_where_groups_begin_and_what_was_flushed_outlives_kill_9_a_restart_and_a_change_of_the_store(
    start: Start, tmp_path: Path, journal: Sequence[str], redis_server: RedisServer
) -> None:
    file = tmp_path / "node.conf"
    file.write_text(f"redis-url {redis_server.url}\n")
    options = ("--config", str(file))
    daemon = start(*options, *journal)
    for body in "abc":
        daemon.call("QADD", "mail", 3_600, body)
    for group in ("forgotten", "goes on", "in redo"):
        daemon.call("QGET", "mail", group, "EX", 0)
    daemon.call("QGET", "mail", "goes on", "EX", 1_000)
    taken = daemon.call("QGET", "mail", "in redo", "EX", 1_000)
    assert daemon.call("QGROUP", "RETURN", "mail", "in redo", taken[0]) == 1
    assert daemon.call("QGROUP", "FORGET", "mail", "forgotten") == 1
    daemon.call("QGROUP", "START", "mail", "from now", "NOW")
    daemon.call("QGROUP", "START", "mail", b"first \xff", "FIRST")
    daemon.call("QADD", "mail", 3_600, "d")
    with daemon.redis() as client, client.pipeline(transaction=False) as at_once:
        for number in range(1_500):
            at_once.execute_command("QADD", "flushed", 3_600, number)
        at_once.execute()
    daemon.call("QFLUSH", "flushed")
    daemon.call("QADD", "flushed", 3_600, "after")

    def figures(running: Daemon) -> object:
        with running.redis(decode_responses=False) as client:
            return client.execute_command("QINFO"), client.execute_command("QGROUP", "LIST", "mail")

    before = figures(daemon)
    daemon.kill()
    daemon = start(*options, *journal, directory=daemon.directory)
    assert figures(daemon) == before
    shut_down_for_restart(daemon)
    daemon = start(*options, *journal, directory=daemon.directory)
    assert figures(daemon) == before
    scopes = [row["scope"] for row in exported(daemon, file) if row["event"] == "begun"]
    assert sorted(scopes) == ["", "1:first \\xff", "1:forgotten", "1:from now"]
    for name in {"aof", "sqlite", "redis"} - {journal[1]}:
        daemon.call("CONFIG", "SET", "persistence", name)
        wait_until(
            lambda daemon=daemon, name=name: daemon.call("INFO", "persistence")["persistence"] == name,
            f"the store is {name}",
        )
        daemon.kill()
        daemon = start(*options, "--persistence", name, "--appendfsync", "always", directory=daemon.directory)
        assert figures(daemon) == before
    bodies = {
        group: daemon.call("QGET", "mail", group, "EX", 1_000)[1] for group in ("forgotten", "from now", "goes on")
    }
    assert bodies == {"forgotten": "a", "from now": "d", "goes on": "c"}
    assert daemon.call("QGET", "flushed", "any", "EX", 0)[1] == "after"
    assert daemon.call("QGET", "flushed", "any", "EX", 0) is None


def exported(daemon: Daemon, file: Path) -> list[dict[str, Any]]:
    """What `disqued export` writes beside a daemon."""
    command = [sys.executable, "-m", "disqued.cli", "export", "--config", str(file), "--dir", str(daemon.directory)]
    done = subprocess.run(command, capture_output=True, check=True, env=environment(), timeout=LIMIT)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_change_that_is_not_possible_is_told_and_changes_nothing(start: Start) -> None:
    daemon = start("--persistence", "aof", "--redis-url", "redis://127.0.0.1:1/0")
    job = daemon.call("ADDJOB", "q", "body", 0)
    with pytest.raises(redis.ResponseError, match="no store is called 'tape'; installed are aof, none, redis, sqlite"):
        daemon.call("CONFIG", "SET", "persistence", "tape")
    assert daemon.call("CONFIG", "GET", "persistence") == ["persistence", "aof"]
    daemon.kill()
    assert shown(start("--persistence", "aof", directory=daemon.directory), job)["state"] == "active"


def test_a_store_that_the_folder_names_and_that_is_gone_stops_the_start(start: Start) -> None:
    daemon = start("--persistence", "aof")
    job = daemon.call("ADDJOB", "q", "body", 0)
    daemon.stop()
    word = daemon.directory / "store.conf"
    word.write_text("persistence sqlite\n")
    options = ("--persistence", "aof", "--dir", str(daemon.directory), "--port", str(daemon.port))
    done = subprocess.run(
        [*DAEMON, *options], capture_output=True, text=True, check=False, cwd="/", env=environment(), timeout=LIMIT
    )
    assert done.returncode != 0
    assert "store.conf says that the jobs are in the store sqlite, and there is none" in done.stdout + done.stderr
    word.unlink()
    assert shown(start("--persistence", "aof", directory=daemon.directory), job)["state"] == "active"


def test_damage_stops_the_start_in_one_line(start: Start) -> None:
    daemon = start("--persistence", "aof")
    for _ in range(20):
        daemon.call("ADDJOB", "q", "body", 0)
    daemon.stop()
    [segment] = daemon.directory.glob("*.incr")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    options = ("--persistence", "aof", "--dir", str(daemon.directory), "--port", str(daemon.port))
    done = subprocess.run(
        [*DAEMON, *options], capture_output=True, text=True, check=False, cwd="/", env=environment(), timeout=LIMIT
    )
    told = done.stdout + done.stderr
    assert done.returncode == 1
    assert "damaged at byte" in told
    assert "Traceback" not in told
