"""`disqued restart` on real daemons: a node ends and begins again, and all jobs are where they are to be."""

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import pytest
import redis

from disqued.tools.connecting import Failed, Target
from disqued.tools.members import Member
from disqued.tools.restart import RestartPlan
from tests.integration.cluster import QUICK, Cluster, cluster_info, ends_well
from tests.integration.daemon import DAEMON, HOST, LIMIT, Daemon, environment, wait_until
from tests.integration.verbs import at, done, refused, run

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


# All nodes of a cluster.


def restarting_each(nodes: Sequence[Daemon], *options: str, instead: Mapping[int, str] | None = None) -> str:
    """A line that starts whichever node is meant; `instead` has other lines for some, by their number."""
    lines = dict(enumerate(restarting(node, *options) for node in nodes)) | dict(instead or {})
    return "case {port} in " + " ".join(f"{nodes[number].port}) {line} ;;" for number, line in lines.items()) + " esac"


def test_all_nodes_are_restarted_one_after_the_other(cluster: Cluster, again: Callable[[Daemon], None]) -> None:
    first, second, third = cluster.nodes
    for number in range(30):
        second.call("ADDJOB", "mail", f"body {number}", 0, "REPLICATE", 1)
    before = [process_id(node) for node in cluster.nodes]
    line = restarting_each(cluster.nodes, *QUICK)
    *said, last = done("restart", "--all", "--drain", "--command", line, *at(second)).splitlines()
    for node in cluster.nodes:
        wait_exit(node)
        again(node)
    assert not {process_id(node) for node in cluster.nodes} & set(before)
    # The one that was named comes first, and when a node is restarted all the others are there.
    assert said[0].startswith(f"{HOST}:{second.port} was restarted in ")
    assert sorted(text.split()[0] for text in said) == sorted(f"{HOST}:{node.port}" for node in (first, second, third))
    assert all(text.endswith(" sees 2 other nodes") for text in said)
    assert last.startswith("all 3 nodes were restarted in ")
    assert sum(len(node.call("QPEEK", "mail", 99)) for node in cluster.nodes) == 30  # type: ignore[arg-type]
    assert [node.call("CLUSTER", "LEAVING") for node in cluster.nodes] == ["no"] * 3


def test_a_rolling_restart_refuses_no_addition(tmp_path: Path, again: Callable[[Daemon], None]) -> None:
    """Producers on every node want a copy on every node, and have time enough."""
    options = ("--persistence", "aof", "--aof-enqueue-jobs-once", "yes")
    with ends_well(Cluster(tmp_path / "cluster", options)) as cluster:
        (tmp_path / "cluster").mkdir()
        cluster.start(3)
        with Producers(cluster.nodes) as producers:
            producers.wait_for_more()
            line = restarting_each(cluster.nodes, *options)
            done("restart", "--all", "--no-config-rewrite", "--command", line, *at(cluster.nodes[0]))
            for node in cluster.nodes:
                wait_exit(node)
                again(node)
            producers.wait_for_more()
        assert producers.refused == []
        # Each of them waited for a node that was away.
        assert all(wait_s > RESTARTS_S for wait_s in producers.longest)
        # One that was not answered, as its node ended, may be there or not.
        assert min(registered_at_each(cluster)) >= len(producers.added)


RESTARTS_S = 0.1  #: longer than an addition takes while all nodes are there, and shorter than any start of a process


def registered_at_each(cluster: Cluster) -> list[int]:
    """How many jobs each node holds."""
    return [int(str(node.call("INFO", "jobs")["registered_jobs"])) for node in cluster.nodes]  # type: ignore[index,call-overload]


class Producers:
    """Producers that want a copy on each of three nodes, each at one node, until they are told to end."""

    def __init__(self, nodes: Sequence[Daemon]) -> None:
        self.added: list[bytes] = []
        self.refused: list[str] = []
        self.longest = [0.0] * len(nodes)  #: time that an addition took, by node
        self._counts = [0] * len(nodes)
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._add, args=(number, node)) for number, node in enumerate(nodes)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def wait_for_more(self) -> None:
        """Wait until each of them has added some more."""
        before = list(self._counts)
        wait_until(
            lambda: self.refused or all(now >= then + 20 for now, then in zip(self._counts, before, strict=True)),
            "additions on every node",
        )

    def _add(self, number: int, node: Daemon) -> None:
        while not self._over.is_set():
            with contextlib.suppress(redis.ConnectionError), node.redis(retry=None, socket_timeout=LIMIT) as client:
                while not self._over.is_set():
                    began = time.monotonic()
                    try:
                        job_id = client.execute_command("ADDJOB", "mail", "x", 60_000, "REPLICATE", 3, "RETRY", 3_600)
                    except redis.ResponseError as error:
                        self.refused.append(str(error))
                    else:
                        self.added.append(job_id)
                        self._counts[number] += 1
                    self.longest[number] = max(self.longest[number], time.monotonic() - began)
            self._over.wait(0.02)  # its node is being restarted


def test_the_first_node_that_does_not_come_back_is_the_last(cluster: Cluster, again: Callable[[Daemon], None]) -> None:
    first, *others = cluster.nodes
    untouched, fails = sorted(others, key=lambda node: order(first).index(node.port))[::-1]
    instead = {cluster.nodes.index(fails): "echo nothing >&2; exit 3"}
    before = process_id(untouched)
    line = restarting_each(cluster.nodes, *QUICK, "--aof-enqueue-jobs-once", "yes", instead=instead)
    result = run("restart", "--all", "--no-config-rewrite", "--command", line, *at(first))
    assert result.exit_code == 1
    assert result.stdout.startswith(f"{HOST}:{first.port} was restarted in ")
    assert result.stdout.count("\n") == 1
    (said,) = result.stderr.splitlines()
    assert "has ended with status 3" in said
    assert f"{HOST}:{fails.port} is down, and has all that it had when it is started" in said
    assert said.endswith(f"restarted: {HOST}:{first.port}; not touched: {HOST}:{untouched.port}")
    wait_exit(first)
    again(first)
    wait_exit(fails)
    assert process_id(untouched) == before
    # Called again it sees that a node is missing, and takes none of the others.
    now = process_id(first)
    said = refused("restart", "--all", "--no-config-rewrite", "--command", line, *at(first))
    assert "the cluster is not whole, and no other node may go: " in said
    assert f"no node answers at {HOST}:{fails.port}" in said
    assert "restarted: none; not touched: " in said
    assert (process_id(first), process_id(untouched)) == (now, before)


def order(node: Daemon) -> list[int]:
    """Ports of the nodes, in the order in which a node tells of them."""
    told = node.call("HELLO")
    return [int(port) for _, _, port, _ in told[2:]]  # type: ignore[index]


def test_an_interrupt_says_how_far_it_got(cluster: Cluster, again: Callable[[Daemon], None]) -> None:
    first, *others = cluster.nodes
    lost, untouched = sorted(others, key=lambda node: order(first).index(node.port))
    before = process_id(untouched)
    line = restarting_each(
        cluster.nodes, *QUICK, instead={cluster.nodes.index(lost): "kill -INT $PPID; exec sleep 30 > /dev/null 2>&1"}
    )
    words = [sys.executable, "-m", "disqued.cli", "restart", "--all", "--drain", "--command", line, *at(first)]
    result = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert result.returncode == 130, result.stderr
    assert result.stderr == (
        f"disqued restart: interrupted: {HOST}:{lost.port} is down, its jobs are on the others; CLUSTER LEAVING no when"
        f" it is started; restarted: {HOST}:{first.port}; not touched: {HOST}:{untouched.port}\n"
    )
    wait_exit(first)
    again(first)
    wait_exit(lost)
    assert process_id(untouched) == before


def test_a_unit_may_be_called_after_its_node(
    start: Start, again: Callable[[Daemon], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = start("--persistence", "aof")
    told = tmp_path / "told"
    line = restarting(node, "--persistence", "aof", "--aof-enqueue-jobs-once", "yes")
    (tmp_path / "systemctl").write_text(f'#!/bin/sh\necho "$@" > {shlex.quote(str(told))}\n{line}\n')
    (tmp_path / "systemctl").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    identity = node.call("CLUSTER", "MYID")
    done("restart", "--all", "--no-config-rewrite", "--unit", "disqued@{host}-{port}-{id}-{other}", *at(node))
    wait_exit(node)
    again(node)
    assert told.read_text() == f"start disqued@{HOST}-{node.port}-{identity}-{{other}}\n"


def test_a_socket_has_no_port_to_name(start: Start, tmp_path: Path) -> None:
    node = start("--unixsocket", str(tmp_path / "socket"))
    said = refused("restart", "--unit", "disqued@{port}", "-s", tmp_path / "socket", status=2)
    assert "a Unix socket (-s) has none" in said
    assert node.call("PING")


@pytest.mark.parametrize("host", ["a;reboot", "$(reboot)", "-oProxyCommand=reboot", "a b", "\n", ""])
def test_what_a_node_is_called_is_no_part_of_a_program(host: str) -> None:
    plan = RestartPlan("ssh {host} start", None, drains=True, rewrites_config=False, wait_s=1)
    with pytest.raises(Failed, match="is not put into a command as"):
        plan.words(Member("1c6ceba3", Target((host, 7711))))
    for harmless in ("10.0.0.1", "fe80::1%eth0", "node-1.example.org"):
        assert plan.words(Member("1c6ceba3", Target((harmless, 7711))))[2] == f"ssh {harmless} start"
