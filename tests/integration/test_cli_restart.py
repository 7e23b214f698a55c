"""`disqued restart` on real daemons: a node ends and begins again, and all jobs are where they are to be."""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import QUICK, Cluster, cluster_info, ends_well
from tests.integration.daemon import DAEMON, HOST, Daemon, environment, wait_until
from tests.integration.verbs import at, done, refused

Start = Callable[..., Daemon]


@pytest.fixture(autouse=True)
def _sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let commands find disqued as the tests do."""
    for name, value in environment().items():
        monkeypatch.setenv(name, value)


def restarting(node: Daemon, *options: str) -> str:
    """A line that starts the node again, as its test did."""
    words = [
        *DAEMON, "--port", str(node.port), "--bind", HOST, "--http-port", "0", "--dir", str(node.directory), *options
    ]  # fmt: skip
    return f"cd / && {shlex.join(words)} >> {shlex.quote(str(node.log_file))} 2>&1 &"


def process_id(node: Daemon) -> int:
    with node.redis() as client:
        return int(client.info("server")["process_id"])


@pytest.fixture
def again() -> Iterator[Callable[[Daemon], None]]:
    """Note that the process of a node is another one now, which is ended after the test."""
    noted: list[tuple[Daemon, int]] = []

    def note(node: Daemon) -> None:
        noted.append((node, process_id(node)))

    yield note
    for _, number in noted:
        os.kill(number, signal.SIGTERM)
    for node, number in noted:
        wait_until(lambda number=number: not Path(f"/proc/{number}").exists(), "the end of a process")
        assert "Traceback" not in node.log()


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A configuration file that the node may write to."""
    path = tmp_path / "disqued.conf"
    path.write_text("# settings of a test\n")
    return path


def wait_exit(node: Daemon) -> None:
    """The process that the test has started is over."""
    assert node.wait_end() in (0, -signal.SIGTERM)


@pytest.mark.parametrize("store", ["none", "aof", "sqlite"])
def test_jobs_come_back_with_their_places_in_the_queues(
    start: Start, config: Path, again: Callable[[Daemon], None], store: str
) -> None:
    options = ("--config", str(config), "--persistence", store)
    node = start(*options)
    for number in range(5):
        node.call("ADDJOB", "mail", f"body {number}", 0)
    node.call("ADDJOB", "mail", "once", 0, "RETRY", 0)
    ((_, taken, _),) = node.call("GETJOB", "FROM", "mail")
    first = process_id(node)
    said = done("restart", "--command", restarting(node, *options), *at(node))
    assert said.startswith(f"{HOST}:{node.port} was restarted in ")
    assert said.endswith("; it holds 6 jobs and sees 0 other nodes\n")
    wait_exit(node)
    again(node)
    assert process_id(node) != first
    assert [body for _, _, body in node.call("QPEEK", "mail", 10)] == [*(f"body {n}" for n in range(1, 5)), "once"]
    assert node.call("ACKJOB", taken) == 1
    assert node.call("CONFIG", "GET", "aof-enqueue-jobs-once") == ["aof-enqueue-jobs-once", "no"]


def test_a_node_without_a_configuration_file_is_not_ended(start: Start) -> None:
    node = start("--persistence", "aof")
    node.call("ADDJOB", "mail", "body", 0)
    said = refused("restart", "--command", "false", *at(node))
    assert "ERR The server is running without a config file; start it with a configuration file" in said
    assert "--no-config-rewrite" in said
    assert node.call("QLEN", "mail") == 1
    assert node.call("CONFIG", "GET", "aof-enqueue-jobs-once") == ["aof-enqueue-jobs-once", "no"]


def test_a_command_may_give_the_option_itself(start: Start, again: Callable[[Daemon], None]) -> None:
    node = start("--persistence", "aof")
    node.call("ADDJOB", "mail", "once", 0, "RETRY", 0)
    line = restarting(node, "--persistence", "aof", "--aof-enqueue-jobs-once", "yes")
    done("restart", "--no-config-rewrite", "--command", line, *at(node))
    wait_exit(node)
    again(node)
    assert node.call("QLEN", "mail") == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("exit 3", "`exit 3` has ended with status 3"),
        (
            "exec sleep 30",
            "`exec sleep 30` has not come back after 2 s (--wait), and was ended; a node in the foreground",
        ),
        ("true", "serves again: not so after 2 s (--wait): no node answers"),
    ],
)
def test_a_command_that_does_not_start_it_is_told(start: Start, config: Path, line: str, said: str) -> None:
    node = start("--config", str(config), "--persistence", "aof")
    node.call("ADDJOB", "mail", "once", 0, "RETRY", 0)
    assert said in refused("restart", "--wait", 2, "--command", line, *at(node))
    wait_exit(node)
    # It has all that it had when it is started.
    back = start("--config", str(config), "--persistence", "aof", port=node.port)
    assert back.call("QLEN", "mail") == 1


def test_another_node_in_its_place_is_told(
    start: Start, config: Path, again: Callable[[Daemon], None], tmp_path: Path
) -> None:
    node = start("--config", str(config))
    line = restarting(node).replace(str(node.directory), str(tmp_path / "elsewhere"), 1)
    (tmp_path / "elsewhere").mkdir()
    assert "another node answers at" in refused("restart", "--command", line, *at(node))
    wait_exit(node)
    again(node)


def test_what_is_missing_or_too_much_is_a_misuse() -> None:
    for words in ((), ("--command", "true", "--unit", "disqued")):
        assert "given by --command or by --unit, one of them" in refused("restart", *words, status=2)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that know each other, and keep nothing."""
    with ends_well(Cluster(tmp_path, QUICK)) as nodes:
        nodes.start(3)
        yield nodes


def test_a_drained_node_has_handed_all_on_when_it_ends(cluster: Cluster, again: Callable[[Daemon], None]) -> None:
    node = cluster.nodes[1]
    for number in range(30):
        node.call("ADDJOB", "mail", f"body {number}", 0, "REPLICATE", 1)
    node.call("ADDJOB", "mail", "once", 0, "RETRY", 0, "REPLICATE", 1)
    said = done("restart", "--drain", "--command", restarting(node, *QUICK), *at(node))
    wait_exit(node)
    again(node)
    assert said.endswith("sees 2 other nodes\n")
    assert node.call("CLUSTER", "LEAVING") == "no"
    assert [cluster_info(each)["cluster_reachable_nodes"] for each in cluster.nodes] == ["2", "2", "2"]
    found: list[str] = []

    def all_there() -> bool:
        for each in cluster.nodes:
            for _, job_id, body in each.call("GETJOB", "NOHANG", "COUNT", 50, "FROM", "mail") or []:
                found.append(body)
                each.call("ACKJOB", job_id)
        return len(found) >= 31

    wait_until(all_there, "all jobs")
    assert sorted(found) == sorted([*(f"body {number}" for number in range(30)), "once"])


def test_a_node_that_was_leaving_is_leaving_afterwards(cluster: Cluster, again: Callable[[Daemon], None]) -> None:
    node = cluster.nodes[2]
    node.call("CLUSTER", "LEAVING", "yes")
    done("restart", "--drain", "--command", restarting(node, *QUICK), *at(node))
    wait_exit(node)
    again(node)
    assert node.call("CLUSTER", "LEAVING") == "yes"


def test_a_drain_that_does_not_come_to_its_end_is_taken_back(cluster: Cluster) -> None:
    node = cluster.nodes[0]
    node.call("ADDJOB", "mail", "once", 0, "RETRY", 0, "REPLICATE", 1)
    node.call("PAUSE", "mail", "out")
    said = refused("restart", "--drain", "--wait", 2, "--command", "true", *at(node))
    assert "has handed on all that it held: not so after 2 s (--wait)" in said
    assert node.call("CLUSTER", "LEAVING") == "no"
    assert node.call("QLEN", "mail") == 1


def test_a_node_that_stands_alone_cannot_be_drained(start: Start) -> None:
    node = start()
    assert "has no other node that could take its jobs" in refused("restart", "--drain", "--unit", "x", *at(node))
    assert node.call("CLUSTER", "LEAVING") == "no"


def test_a_unit_is_started_by_systemctl(
    start: Start, config: Path, again: Callable[[Daemon], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start("--config", str(config))
    (tmp_path / "bin").mkdir()
    told = tmp_path / "told"
    line = restarting(node, "--config", str(config))
    program = f'#!{sys.executable}\nimport subprocess, sys\nopen({str(told)!r}, "w").write(" ".join(sys.argv[1:]))\n'
    program += f'subprocess.run(["sh", "-c", {line!r}], check=True)\n'
    (tmp_path / "bin" / "systemctl").write_text(program)
    (tmp_path / "bin" / "systemctl").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    done("restart", "--unit", "disqued@7711", *at(node))
    wait_exit(node)
    again(node)
    assert told.read_text() == "start disqued@7711"
