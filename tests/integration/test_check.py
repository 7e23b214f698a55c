"""`disqued check` with real nodes, as a monitoring system runs it: the line and the exit status."""

import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from disqued.tools import program
from tests.integration.cluster import Cluster, ends_well, flags
from tests.integration.daemon import Daemon, free_port, wait_until
from tests.redis_server import RedisServer

Start = Callable[..., Daemon]
Check = Callable[..., tuple[int, str]]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Check:
    """Run checks on nodes, by their ports; what comes back is the exit status, and the line."""

    def run(port: int, name: str, *words: str) -> tuple[int, str]:
        status = program.run(["check", name, "-p", str(port), *words])
        said = capsys.readouterr()
        assert said.err == ""
        assert said.out.count("\n") == 1
        return status, said.out.rstrip("\n")

    return run


def test_a_node_is_looked_at(daemon: Daemon, check: Check) -> None:
    status, line = check(daemon.port, "node")
    assert status == 0
    assert re.fullmatch(
        rf"NODE OK - 127\.0\.0\.1:{daemon.port} has \d+ jobs, 0\.0 % of the memory in use \| memory=[\d.]+%;75;95;0;100"
        r" jobs=\d+;;;0 queues=\d+;;;0 clients=\d+;;;0 uptime=\d+s;;;0",
        line,
    )
    assert check(daemon.port, "node", "-c", "50:")[0] == 2


def test_a_queue_is_as_old_as_the_oldest_job_that_waits(daemon: Daemon, queue: str, check: Check) -> None:
    assert check(daemon.port, "queue", queue, "-w", "60", "-c", "300") == (
        0, f"QUEUE OK - {queue}: 0 jobs wait, the oldest for 0 s | age=0s;60;300;0 length=0;;;0",
    )  # fmt: skip
    job = daemon.call("ADDJOB", queue, "body", 0)
    daemon.call("ADDJOB", queue, "later", 0)
    wait_until(lambda: check(daemon.port, "queue", queue, "-w", "0")[0] == 1, "a job that is older than nothing")
    status, line = check(daemon.port, "queue", queue, "-w", "@0:1000000", "-c", "1000000")
    assert status == 1
    assert line.startswith(f"QUEUE WARNING - {queue}: the oldest job is ")
    assert re.search(r"age=\d+(\.\d+)?s;@0:1000000;1000000;0 length=2;;;0$", line)
    status, line = check(daemon.port, "queue", queue, "--warning-length", "1", "--critical-length", "5")
    assert (status, line.partition(" | ")[0]) == (1, f"QUEUE WARNING - {queue}: 2 jobs wait (allowed: 1)")
    assert check(daemon.port, "queue", queue, "--critical-length", "1")[0] == 2
    daemon.call("ACKJOB", job)
    assert "length=1;" in check(daemon.port, "queue", queue)[1]


def test_the_age_of_a_queue_is_that_of_its_jobs(start: Start, tmp_path: Path, check: Check) -> None:
    node = start("--persistence", "aof")
    job = str(node.call("ADDJOB", "mail", "body", 0))
    with node.redis(encoding="latin-1") as client:
        shown = client.execute_command("SHOW", job)
        facts = dict(zip(shown[::2], shown[1::2], strict=True))
        now = int(client.execute_command("TIME")[0])
    age = float(re.search(r"age=([\d.]+)s", check(node.port, "queue", "mail")[1])[1])
    assert now - int(facts["ctime"]) / 1e9 - 1 <= age <= 60


def test_the_journal_is_looked_at(daemon: Daemon, start: Start, check: Check) -> None:
    node = start("--persistence", "aof")
    status, line = check(node.port, "aof")
    assert status == 0
    assert re.fullmatch(
        r"AOF OK - the last write and the last rewrite are in order, \d+ bytes \| rewrite=0s;;;0 last_rewrite=0s;;;0"
        r" size=\d+B;;;0 buffer=\d+B;;;0 late_fsyncs=0c;;;0",
        line,
    )
    assert check(daemon.port, "aof") == (
        3, f"AOF UNKNOWN - 127.0.0.1:{daemon.port} keeps no append-only file: `persistence` is none",
    )  # fmt: skip


@pytest.mark.parametrize("store", ["none", "aof", "sqlite", "redis"])
def test_every_check_says_what_is_true_whatever_the_store(
    store: str, start: Start, check: Check, tmp_path: Path
) -> None:
    server = RedisServer(tmp_path)
    where: tuple[str, ...] = ()
    if store == "redis":
        server.start()
        where = ("--redis-url", server.url)
    try:
        node = start("--persistence", store, *where)
        assert check(node.port, "node")[0] == 0
        assert check(node.port, "cluster")[0] == 0
        assert check(node.port, "queue", "mail")[0] == 0
        status, line = check(node.port, "aof")
        assert (status == 0) is (store == "aof")
        if status:
            assert line.startswith(
                f"AOF UNKNOWN - 127.0.0.1:{node.port} keeps no append-only file: `persistence` is {store}"
            )
        node.stop()
    finally:
        server.kill()


def test_nodes_that_are_missed_are_told(tmp_path: Path, check: Check) -> None:
    with ends_well(Cluster(tmp_path)) as cluster:
        cluster.start(3)
        port = cluster.nodes[0].port
        assert check(port, "cluster", "--nodes", "3") == (
            0, "CLUSTER OK - 3 nodes are there | nodes=3;;;0 failed=0;;;0 suspected=0;;;0",
        )  # fmt: skip
        assert check(port, "cluster", "--nodes", "4")[0] == 2
        lost = cluster.nodes[2].port
        cluster.kill(2)
        wait_until(lambda: "fail" in flags(cluster.nodes[0], cluster.ids[2]), "a node that has failed")
        status, line = check(port, "cluster")
        assert (status, line) == (
            2, f"CLUSTER CRITICAL - failed: 127.0.0.1:{lost} | nodes=2;;;0 failed=1;;;0 suspected=0;;;0",
        )  # fmt: skip


def test_a_node_alone_is_one_node(daemon: Daemon, check: Check) -> None:
    assert check(daemon.port, "cluster")[1].startswith("CLUSTER OK - 1 node is there | nodes=1;")


def test_a_node_that_is_suspected_is_a_warning(tmp_path: Path, check: Check) -> None:
    with ends_well(Cluster(tmp_path)) as cluster:
        cluster.start(2)
        lost = cluster.nodes[1].port
        cluster.kill(1)
        wait_until(lambda: "fail?" in flags(cluster.nodes[0], cluster.ids[1]), "a node that is suspected")
        status, line = check(cluster.nodes[0].port, "cluster")
        assert (status, line.partition(" | ")[0]) == (
            1, f"CLUSTER WARNING - suspected to have failed: 127.0.0.1:{lost}",
        )  # fmt: skip


def test_a_node_that_is_down_or_hangs_is_critical(check: Check) -> None:
    port = free_port()
    for name in ("node", "cluster", "aof"):
        assert check(port, name) == (2, f"CHECK CRITICAL - no node answers at 127.0.0.1:{port}: connection refused")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        said = f"CHECK CRITICAL - 127.0.0.1:{port} was asked and did not reply: nothing came within 0.1 s (--timeout)"
        assert check(port, "node", "--timeout", "0.1") == (2, said)


def test_a_node_that_refuses_to_tell_is_unknown(start: Start, check: Check) -> None:
    node = start()
    node.call("CONFIG", "SET", "requirepass", "secret")
    status, line = check(node.port, "queue", "mail")
    assert (status, line[:22]) == (3, "CHECK UNKNOWN - NOAUTH")
    assert check(node.port, "queue", "mail", "-a", "secret")[0] == 0
