"""A real daemon with `persistence redis`, and a real Redis server that comes, goes and forgets."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.integration.daemon import HOST, LIMIT, Daemon, free_port, hasty, launch, wait_until
from tests.redis_server import RedisServer

Start = Callable[..., Daemon]

#: A server that keeps what it has acknowledged, whatever happens to it.
DURABLE = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    place = tmp_path / "redis"
    place.mkdir()
    server = RedisServer(place)
    server.start(*DURABLE)
    yield server
    server.kill()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start daemons for one test, whose journal may fail; all have ended, and ended well, when it is over."""
    started: list[Daemon] = []

    def start_one(*options: str, directory: Path = tmp_path / "data", **more: Any) -> Daemon:
        started.append(launch(directory, options, **more))
        return started[-1]

    yield start_one
    for running in started:
        end(running)


def end(daemon: Daemon) -> None:
    """End a daemon that may have told its operator that the journal takes no jobs, and nothing worse."""
    if not daemon.ended:
        daemon.process.terminate()
        assert daemon.wait_end() in (0, -signal.SIGTERM), daemon.log()
    for line in daemon.log().splitlines():
        level, message = facts(line)
        assert level != "critical" or message.startswith(("The journal takes no jobs now: redis", "redis 127")), (
            daemon.log()
        )
        assert "Traceback" not in message, daemon.log()
        assert "Unhandled" not in message, daemon.log()


def facts(line: str) -> tuple[str, str]:
    """The level and the text of a line of the log; what is not the log's own is taken for critical."""
    try:
        event = json.loads(line)
    except ValueError:
        return "critical", line
    return event["level"], event["message"]


def options(server: RedisServer, policy: str = "always") -> tuple[str, ...]:
    return ("--persistence", "redis", "--redis-url", server.url, "--appendfsync", policy)


def kept(server: RedisServer) -> set[str]:
    """The ids of the jobs in the server."""
    return {job.decode() for job in server.call("HKEYS", "{disqued}:jobs")}


def known(daemon: Daemon) -> set[str]:
    """The ids of the jobs of a node, of which one answer holds 2000 at most."""
    found: set[str] = set()
    cursor: Any = 0
    while True:
        cursor, ids = daemon.call("JSCAN", cursor, "COUNT", 2_000)
        found |= set(ids)
        if int(cursor) == 0:
            return found


def takes_jobs(daemon: Daemon) -> str | None:
    """The id of a job that was added; None when it was refused."""
    try:
        return str(daemon.call("ADDJOB", "again", "body", 0))
    except redis.ResponseError as error:
        if str(error).startswith("MISCONF"):
            return None
        raise


class Traffic:
    """Clients that add, take and acknowledge jobs all the time, and keep account of what they were answered."""

    def __init__(self, daemon: Daemon, clients: int = 3) -> None:
        self.added: set[str] = set()
        self.acked: set[str] = set()
        self._daemon = daemon
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        try:
            with self._daemon.redis(retry=None) as client:
                while not self._stop.is_set():
                    self._turn(client)
        except redis.exceptions.ConnectionError:
            pass  # the daemon was killed

    def _turn(self, client: Any) -> None:
        for number in range(4):
            try:
                self.added.add(client.execute_command("ADDJOB", "q", f"body {number}", 0, "RETRY", 3_600))
            except redis.exceptions.ResponseError as error:
                if not str(error).startswith("MISCONF"):
                    raise
        for _, job, _ in client.execute_command("GETJOB", "NOHANG", "COUNT", 2, "FROM", "q") or []:
            self.acked.add(job)
            client.execute_command("ACKJOB", job)

    def stop(self) -> None:
        """Wait until every client has heard its last answer."""
        self._stop.set()
        for thread in self._threads:
            thread.join(LIMIT)


def test_a_node_that_is_killed_while_it_commits_has_lost_nothing_that_it_acknowledged(
    start: Start, server: RedisServer
) -> None:
    daemon = start(*options(server))
    traffic = Traffic(daemon)
    wait_until(lambda: len(traffic.added) > 500, "500 jobs")
    daemon.kill()
    traffic.stop()
    # What an ACKJOB did whose answer was not heard is not known.
    wanted = traffic.added - traffic.acked
    assert wanted <= kept(server)
    again = start(*options(server), directory=daemon.directory)
    assert wanted <= known(again)
    assert "holds the lease, for another" in again.log()
    ended = [entry[b"id"] for _, entry in server.call("XRANGE", "{disqued}:done", "-", "+")]
    assert len(ended) == len(set(ended))


@pytest.mark.parametrize("policy", ["always", "everysec", "no"])
def test_a_server_that_is_killed_in_the_middle_of_traffic_costs_nothing(
    start: Start, server: RedisServer, policy: str
) -> None:
    daemon = start(*options(server, policy))
    traffic = Traffic(daemon)
    for turn in range(1, 4):
        target = len(traffic.added) + 200
        wait_until(lambda target=target: len(traffic.added) > target, "200 jobs more")
        server.kill()
        if policy == "always":
            wait_until(lambda: takes_jobs(daemon) is None, "jobs are refused")
        server.start(*DURABLE)
        wait_until(lambda turn=turn: daemon.log().count("connected again") == turn, "the node is back")
        if policy == "always":
            wait_until(lambda: takes_jobs(daemon), "jobs are taken again")
    traffic.stop()
    wait_until(lambda: daemon.call("INFO", "persistence")["redis_backlog_records"] == 0, "nothing waits")
    there = known(daemon)
    assert traffic.added - traffic.acked <= there
    assert kept(server) == there
    ended = [entry[b"id"] for _, entry in server.call("XRANGE", "{disqued}:done", "-", "+")]
    assert len(ended) == len(set(ended))
    assert daemon.log().count("it is tried again") == 3


def test_only_additions_are_refused_while_the_server_is_away(start: Start, server: RedisServer) -> None:
    daemon = start(*options(server))
    first, second = (daemon.call("ADDJOB", "q", f"body {number}", 0) for number in range(2))
    server.kill()
    with pytest.raises(redis.ResponseError, match=rf"MISCONF .*redis {server.name}: .* records wait"):
        daemon.call("ADDJOB", "q", "refused", 0)
    assert daemon.call("GETJOB", "FROM", "q") == [["q", first, "body 0"]]
    assert daemon.call("ACKJOB", first) == 1
    facts = daemon.call("INFO", "persistence")
    assert (facts["redis_connected"], facts["aof_last_write_status"]) == (0, "err")
    server.start(*DURABLE)
    third = wait_until(lambda: takes_jobs(daemon), "jobs are taken again")
    assert kept(server) == {second, third}
    assert [entry[b"id"].decode() for _, entry in server.call("XRANGE", "{disqued}:done", "-", "+")] == [first]
    assert daemon.call("INFO", "persistence")["aof_last_write_status"] == "ok"


@pytest.mark.parametrize("loss", ["flushed", "started again empty"])
def test_a_server_that_lost_its_data_is_given_all_jobs_again(start: Start, server: RedisServer, loss: str) -> None:
    server.kill()
    server.start("--appendonly", "no")
    daemon = start(*options(server))
    jobs = {daemon.call("ADDJOB", "q", f"body {number}", 0) for number in range(700)}
    if loss == "flushed":
        server.call("FLUSHALL")
    else:
        server.restart()
    wait_until(lambda: takes_jobs(daemon) is None, "jobs are refused")
    wait_until(lambda: "it has lost its data" in daemon.log(), "a word in the log")
    jobs.add(wait_until(lambda: takes_jobs(daemon), "jobs are taken again"))
    there = known(daemon)
    assert jobs <= there
    assert kept(server) == there
    end(daemon)
    assert known(start(*options(server), directory=daemon.directory)) == there


def test_a_start_waits_for_the_server_and_answers_loading_meanwhile(
    start: Start, server: RedisServer, tmp_path: Path
) -> None:
    server.kill()
    port = free_port()
    started: list[Daemon] = []
    thread = threading.Thread(target=lambda: started.append(start(*options(server), port=port)))
    thread.start()

    def refusal() -> str | None:
        try:
            with redis.Redis(HOST, port, retry=None) as client:
                client.execute_command("ADDJOB", "q", "body", 0)
        except redis.exceptions.BusyLoadingError as error:
            return str(error)
        except redis.exceptions.ConnectionError:
            return None
        raise AssertionError("a job was taken")

    assert "loading" in wait_until(refusal, "the daemon listens")
    [log] = tmp_path.glob("*.log")
    wait_until(lambda: f"redis {server.name}: connection refused" in log.read_text(), "the reason in the log")
    server.start(*DURABLE)
    thread.join(LIMIT)
    assert takes_jobs(started[0])


def test_a_wrong_password_ends_the_start(start: Start, server: RedisServer) -> None:
    server.kill()
    server.start("--requirepass", "secret")
    with pytest.raises(AssertionError, match="WRONGPASS"):
        start("--persistence", "redis", "--redis-url", server.url.replace("//", "//:wrong@"))


def test_a_second_node_with_the_same_prefix_ends_and_the_first_goes_on(
    start: Start, server: RedisServer, tmp_path: Path
) -> None:
    first = start(*options(server))
    with pytest.raises(AssertionError, match=rf"belong to .* pid {first.process.pid} run"):
        start(*options(server), directory=tmp_path / "second")
    assert takes_jobs(first)
    third = start(*options(server), "--redis-prefix", "third", directory=tmp_path / "third")
    assert third.call("JSCAN", "COUNT", 1_000)[1] == []
    assert takes_jobs(third)  # with a job the server gets the first record of the journal, too


def test_a_prefix_is_free_at_once_when_its_node_has_stopped(start: Start, server: RedisServer, tmp_path: Path) -> None:
    first = start(*options(server))
    job = takes_jobs(first)
    end(first)
    second = start(*options(server), directory=tmp_path / "second")
    assert second.call("JSCAN", "COUNT", 1_000)[1] == [job]
    assert "holds the lease" not in second.log()


def test_a_node_that_hung_until_another_took_its_keys_mixes_nothing_and_can_move_to_another_store(
    start: Start, server: RedisServer, tmp_path: Path
) -> None:
    soon_free = hasty("disqued.persistence.redis.server", LEASE_MS=1_000, BEAT_S=0.2, LOOK_S=0.1)
    hung = start(*options(server), program=soon_free)
    jobs = {hung.call("ADDJOB", "q", f"body {number}", 0) for number in range(20)}
    hung.process.send_signal(signal.SIGSTOP)
    try:
        second = start(*options(server), directory=tmp_path / "second")
    finally:
        hung.process.send_signal(signal.SIGCONT)
    wait_until(lambda: takes_jobs(hung) is None, "jobs are refused")
    own = second.call("ADDJOB", "q", "another", 0)
    with pytest.raises(redis.ResponseError, match=rf"its keys were taken by .* pid {second.process.pid} run"):
        hung.call("ADDJOB", "q", "refused", 0)
    assert kept(server) == jobs | {own}
    hung.call("CONFIG", "SET", "persistence", "aof")
    moved = wait_until(lambda: takes_jobs(hung), "jobs are taken again")
    hung.kill()
    found = set(start("--persistence", "aof", directory=hung.directory).call("JSCAN", "COUNT", 1_000)[1])
    assert jobs | {moved} <= found
    assert own not in found


def test_there_is_no_journal_to_rewrite(start: Start, server: RedisServer) -> None:
    daemon = start(*options(server))
    with pytest.raises(redis.ResponseError, match="there is no journal to rewrite: the Redis server keeps the jobs"):
        daemon.call("BGREWRITEAOF")
    assert takes_jobs(daemon)
