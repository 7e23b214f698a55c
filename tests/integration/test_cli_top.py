"""`disqued top` on real daemons: what it shows, and what it does when a node goes away."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest

from tests.integration.cluster import QUICK, Cluster, ends_well
from tests.integration.daemon import LIMIT, Daemon, environment, wait_until
from tests.integration.verbs import address, at, done, refused, run, told
from tests.programs import Program

Start = Callable[..., Daemon]
PROGRAM = (sys.executable, "-m", "disqued.cli", "top")
QUICKLY = ("--interval", 0.2)
#: What a terminal is told beside text.
CONTROL = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes that know each other."""
    with ends_well(Cluster(tmp_path, QUICK)) as nodes:
        nodes.start(3)
        yield nodes


def test_all_nodes_and_queues_are_found_through_one(cluster: Cluster) -> None:
    for number, node in enumerate(cluster.nodes):
        for _ in range(number + 1):
            node.call("ADDJOB", "mail", "body", 0, "REPLICATE", 1)
    cluster.nodes[1].call("ADDJOB", "alone", "body", 0, "REPLICATE", 1)
    cluster.nodes[0].call("PAUSE", "mail", "out", "node")
    shown = told("top", "--once", "--json", *QUICKLY, *at(cluster.nodes[1]))
    assert {node["id"]: node["address"] for node in shown["nodes"]} == dict(
        zip(cluster.ids, map(address, cluster.nodes), strict=True)
    )
    for node in shown["nodes"]:
        assert (node["state"], node["sees"], node["known"]) == ("ok", 2, 2)
        assert node["commands_s"] > 0
        assert 0 < node["memory"] < node["memory_limit"]
    mail, alone = shown["queues"]
    assert (mail["name"], mail["length"], mail["nodes"], mail["pause"]) == ("mail", 6, 3, "in part")
    parts = told("top", "--once", "--json", "--by-node", "--queue", "mail", *QUICKLY, *at(cluster.nodes[1]))["queues"]
    assert {part["node"]: (part["length"], part["pause"]) for part in parts} == {
        address(node): (number + 1, "none" if number else "out") for number, node in enumerate(cluster.nodes)
    }
    assert 0 <= mail["oldest_s"] < LIMIT
    assert (alone["name"], alone["length"], alone["nodes"], alone["pause"]) == ("alone", 1, 1, "none")


def test_an_event_of_a_stream_is_counted_once_however_many_copies_there_are(cluster: Cluster) -> None:
    for number, node in enumerate(cluster.nodes):
        for _ in range(number + 1):
            node.call("QADD", "events", 3_600, "body", "REPLICATE", 3)
    cluster.nodes[1].call("QADD", "alone", 3_600, "body", "REPLICATE", 1)
    for node in cluster.nodes:
        assert node.call("QLEN", "events") == 6

    def lengths() -> dict[str, int]:
        shown = told("top", "--once", "--json", *QUICKLY, *at(cluster.nodes[1]))
        return {queue["name"]: queue["length"] for queue in shown["queues"]}

    assert lengths() == {"events": 6, "alone": 1}
    # Those of a node that is gone are handed out by another one.
    cluster.kill(2)
    wait_until(lambda: lengths() == {"events": 6, "alone": 1}, "each event counted once, without the node that is away")


def test_rates_and_those_who_wait_are_told(start: Start) -> None:
    node = start()
    consumer = subprocess.Popen(["redis-cli", "-p", str(node.port), "GETJOB", "FROM", "idle"], stdout=subprocess.PIPE)
    try:
        node.wait_blocked()
        node.call("ADDJOB", "mail", "body", 0)
        argv = [*PROGRAM, *at(node), "--json", "--interval", "0.3", "--sort", "waiting"]
        with Program(argv, stdout=subprocess.PIPE, text=True, env=environment()) as top:
            assert top.stdout is not None
            first = json.loads(top.stdout.readline())
            for _ in range(30):
                node.call("ADDJOB", "mail", "body", 0)
            node.call("GETJOB", "FROM", "mail")
            mail: list[dict[str, float]] = []
            while not (mail and mail[-1]["length"] == 30):
                look = json.loads(top.stdout.readline())
                mail += [queue for queue in look["queues"] if queue["name"] == "mail"]
            top.send_signal(signal.SIGINT)
            assert top.wait(LIMIT) == 0
    finally:
        node.call("ADDJOB", "idle", "body", 0)
        consumer.communicate(timeout=LIMIT)
    assert first["queues"][0]["name"] == "idle"
    assert first["queues"][0]["blocked"] == 1
    # What came and went between two looks, whichever.
    assert 0 < sum(queue["in_s"] for queue in mail) <= 31 / 0.3
    assert 0 < sum(queue["out_s"] for queue in mail) <= 1 / 0.3


def test_queues_are_chosen_and_limited(start: Start) -> None:
    node = start()
    for number in range(4):
        for _ in range(number + 1):
            node.call("ADDJOB", f"mail-{number}", "body", 0)
    node.call("ADDJOB", "other", "body", 0)
    words = (*QUICKLY, *at(node), "--once", "--json", "--queue", "mail-*")
    assert [queue["name"] for queue in told("top", *words, "--limit", 2)["queues"]] == ["mail-3", "mail-2"]
    names = [queue["name"] for queue in told("top", *words, "--sort", "name", "--reverse")["queues"]]
    assert names == ["mail-3", "mail-2", "mail-1", "mail-0"]
    printed = done("top", *QUICKLY, *at(node), "--once", "--limit", 1)
    assert re.search(r"^mail-3 +4 ", printed, re.MULTILINE)
    assert "queues 1-1 of 5" in printed
    assert f"{address(node)}  1 of 1 nodes, 5 queues, 11 copies of jobs" in printed


def test_it_needs_a_node_and_a_terminal(start: Start) -> None:
    assert refused("top", "--once", "-p", 1) == "disqued top: no node answers at 127.0.0.1:1: connection refused"
    said = refused("top", *at(start()), status=2)
    assert "standard output is no terminal to draw on; --once and --json write to anything" in said


@attrs.define
class Screen:
    """A terminal that a program draws on, and a keyboard."""

    process: subprocess.Popen[bytes]
    descriptor: int
    text: str = ""  #: all that was drawn, since the last look

    def wait_for(self, pattern: str) -> None:
        """Wait until something is drawn, after what was waited for before."""
        end = time.monotonic() + LIMIT
        while not (found := re.search(pattern, plain := CONTROL.sub("", self.text))):
            assert time.monotonic() < end, f"{pattern} is not drawn:\n{self.text}"
            readable, _, _ = select.select([self.descriptor], [], [], 1.0)
            if readable:
                self.text += os.read(self.descriptor, 65_536).decode(errors="replace")
        self.text = plain[found.end() :]

    def press(self, key: str) -> None:
        os.write(self.descriptor, key.encode())

    def wait_end(self) -> int:
        """Wait for the end of the program, whatever it draws until then."""
        wait_until(self._is_over, "the end")
        return self.process.wait(LIMIT)

    def _is_over(self) -> bool:
        readable, _, _ = select.select([self.descriptor], [], [], 0)
        if readable:
            with contextlib.suppress(OSError):  # nobody draws any more
                os.read(self.descriptor, 65_536)
        return self.process.poll() is not None


@pytest.fixture
def screen() -> Iterator[Callable[..., Screen]]:
    """Start `disqued top` on a terminal."""
    screens: list[Screen] = []

    def begin(*words: object) -> Screen:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*PROGRAM, *map(str, words)], stdin=theirs, stdout=theirs, stderr=theirs,
            env={**environment(), "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
        )  # fmt: skip
        os.close(theirs)
        screens.append(Screen(process, ours))
        return screens[-1]

    yield begin
    for each in screens:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait(LIMIT)
        os.close(each.descriptor)


def test_keys_sort_and_end_it(start: Start, screen: Callable[..., Screen]) -> None:
    node = start()
    for name, count in (("aaa", 1), ("bbb", 2)):
        for _ in range(count):
            node.call("ADDJOB", name, "body", 0)
    top = screen(*at(node), *QUICKLY)
    top.wait_for(r"(?s)bbb +2.*aaa +1")
    top.press("n")
    top.wait_for(r"(?s)aaa +1.*bbb +2.*sort: queue")
    top.press("r")
    top.wait_for(r"(?s)bbb +2.*aaa +1.*sort: queue reversed")
    node.call("ADDJOB", "ccc", "body", 0)
    top.wait_for(r"ccc +1")
    top.press("q")
    assert top.wait_end() == 0


def test_an_interrupt_ends_it_as_well(start: Start, screen: Callable[..., Screen]) -> None:
    top = screen(*at(start()), *QUICKLY)
    top.wait_for("1 of 1 nodes")
    top.process.send_signal(signal.SIGINT)
    assert top.wait_end() == 0


def test_it_goes_on_when_nodes_go_away_and_come_back(cluster: Cluster, screen: Callable[..., Screen]) -> None:
    first, second, _ = cluster.nodes
    second.call("ADDJOB", "mail", "body", 0, "REPLICATE", 1)
    top = screen(*at(first), *QUICKLY, "--timeout", 1)
    top.wait_for("3 of 3 nodes")
    # The one that it was told of, and one that stands still.
    cluster.kill(0)
    top.wait_for(r"2 of 3 nodes")
    top.wait_for(rf"{address(first)} +{cluster.ids[0][:8]} +away")
    cluster.freeze(2)
    top.wait_for(r"1 of 3 nodes")
    top.wait_for(r"mail +1 ")
    cluster.thaw(2)
    top.wait_for(r"2 of 3 nodes")
    cluster.restart(0)
    top.wait_for(r"3 of 3 nodes")
    top.press("q")
    assert top.wait_end() == 0


def test_a_node_that_refuses_to_tell_is_there(start: Start) -> None:
    node = start()
    node.call("ACL", "SETUSER", "ann", "on", "nopass", "~*", "+@all", "-info", "-cluster")
    asked = ("--user", "ann", "-a", "any", *at(node))
    told_of_it = told("top", "--once", "--json", *QUICKLY, *asked)["nodes"][0]
    assert told_of_it["state"] == "refuses"
    assert told_of_it["error"].startswith("NOPERM ")
    printed = done("top", "--once", *QUICKLY, *asked)
    assert re.search(rf"{address(node)} +\w+ +refuses", printed)
    assert f"{address(node)}: NOPERM " in printed
    status = run("cluster", "status", *asked)
    assert status.exit_code == 1
    assert re.search(rf"{address(node)} +\w+ +refuses", status.stdout)
    assert "NOPERM" in status.stdout
