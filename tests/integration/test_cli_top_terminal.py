"""`disqued top` at a terminal: its keys, its size, and how it leaves the terminal."""

import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import QUICK, Cluster, ends_well
from tests.integration.daemon import LIMIT, Daemon, wait_until
from tests.integration.terminal import Terminal
from tests.integration.verbs import at

TOP = (sys.executable, "-m", "disqued.cli", "top", "--interval", "0.3")
#: A program whose second look has a bug.
BROKEN = """
from disqued.tools import program
from disqued.tools.top.node_views import ClusterWatch
look, looks = ClusterWatch.look, []
def broken(watch, wait_s=None):
    looks.append(1)
    if len(looks) > 1:
        raise RuntimeError("a bug in the second look")
    return look(watch, wait_s)
ClusterWatch.look = broken
program.run(["top", "--interval", "0.1", "-p", {port!r}])
"""
HOME, ALTERNATE, NORMAL, CLEAR = "\x1b[H", "\x1b[?1049h", "\x1b[?1049l", "\x1b[2J"
SHOW_CURSOR = "\x1b[?25h"
QUEUES = 40


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A node with many queues, of which each has one job more than the one before, up to ten."""
    with ends_well(Cluster(tmp_path_factory.mktemp("top"), QUICK)) as nodes:
        nodes.start(1)
        with nodes.nodes[0].redis() as client:
            for number in range(QUEUES):
                for _ in range(1 + number % 10):
                    client.execute_command("ADDJOB", f"mail-{number:02}", "x", 0)
            client.execute_command("ADDJOB", "post", "x", 0)
        yield nodes.nodes[0]


@pytest.fixture
def top(node: Daemon) -> Iterator[Terminal]:
    """`disqued top` on a screen of 24 lines of 80 characters, sorted by name."""
    with Terminal([*TOP, "--sort", "queue", *at(node)], size=(24, 80)) as terminal:
        terminal.expect("1 of 1 nodes")
        yield terminal


def last_frame(terminal: Terminal) -> list[str]:
    """The lines of the last screen that was drawn to its end."""
    drawn = terminal.raw.rsplit(HOME, 2)
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", drawn[-2] if len(drawn) > 2 else "").split("\n")


def wait_for(terminal: Terminal, pattern: str) -> list[str]:
    """Wait until the whole screen is as a pattern says, and return its lines."""

    def is_so() -> list[str]:
        terminal.catch_up()
        frame = last_frame(terminal)
        return frame if re.search(pattern, "\n".join(frame), re.DOTALL) else []

    try:
        return wait_until(is_so, f"a screen with {pattern!r}")
    except AssertionError as error:
        raise AssertionError(f"{error}; the last is {last_frame(terminal)}") from None


def names(frame: list[str]) -> list[str]:
    """The queues of a screen."""
    return [line.split()[0] for line in frame if re.match(r"mail-|post ", line)]


def test_all_of_it_has_room_on_80_columns_and_24_lines_and_is_drawn_over_itself(top: Terminal) -> None:
    frame = wait_for(top, "queues 1-16 of 41")
    assert len(frame) == 24
    assert max(map(len, frame)) <= 80
    assert names(frame) == [f"mail-{number:02}" for number in range(16)]
    heading = next(line for line in frame if line.startswith("queue "))
    assert heading.split() == "queue ready in-flight delayed dead oldest in/s out/s waiting paused".split()
    assert frame[-1].startswith("q quit  h help")
    wait_for(top, "queues 1-16 of 41")
    assert CLEAR not in top.raw.split(ALTERNATE, 1)[1], "nothing is cleared between two screens"


def test_keys_scroll_sort_filter_and_show_help(top: Terminal) -> None:
    wait_for(top, "queues 1-16 of 41")
    for keys, first in (("\x1b[B", 2), ("\x1b[6~", 18), ("\x1bOF", 26), ("\x1b[A", 25), ("\x1b[5~", 9), ("\x1b[H", 1)):
        top.type(keys)
        frame = wait_for(top, f"queues {first}-{first + 15} of 41")
        assert names(frame)[0] == f"mail-{first - 1:02}"
    top.type("s")
    assert names(wait_for(top, "sort: ready first"))[:2] == ["mail-09", "mail-19"]
    top.type("<")
    wait_for(top, "sort: queue first")
    top.type("r")
    assert names(wait_for(top, "sort: queue reversed"))[0] == "post"
    top.type("/mail-1?")
    wait_for(top, r"queues that match .*: mail-1\?_")
    top.type("\r")
    frame = wait_for(top, r"queues 10 that match mail-1\?")
    assert names(frame) == [f"mail-{number}" for number in range(19, 9, -1)]
    top.type("/\x15\r")
    wait_for(top, "queues 1-16 of 41")
    for key in "h?":
        top.type(key)
        assert "sort by dead" in "\n".join(wait_for(top, "disqued top: keys.*PgUp"))
        top.type("x")
        wait_for(top, "queues 1-16 of 41")
    top.type("q")
    assert top.wait_end() == 0


def test_a_resized_terminal_is_filled_again(top: Terminal) -> None:
    wait_for(top, "queues 1-16 of 41")
    top.resize(34, 120)
    frame = wait_for(top, "queues 1-26 of 41")
    assert len(frame) == 34
    assert "failing" in "".join(frame)
    top.type("\x1b[F")
    wait_for(top, "queues 16-41 of 41")
    top.resize(24, 80)
    frame = wait_for(top, "queues 26-41 of 41")
    assert max(map(len, frame)) <= 80


@pytest.mark.parametrize("during", ["", "\x1b[F"], ids=["pressed before", "pressed meanwhile"])
def test_the_place_in_the_list_stays_while_the_node_does_not_answer(top: Terminal, node: Daemon, during: str) -> None:
    wait_for(top, "queues 1-16 of 41")
    if not during:
        top.type("\x1b[F")
        wait_for(top, "queues 26-41 of 41")
    node.process.send_signal(signal.SIGSTOP)
    try:
        wait_for(top, "0 of 1 nodes.*no queues")
        top.type(during + "\x1b[B")  # and down, where nothing is to scroll
        top.type("h")
        wait_for(top, "disqued top: keys")
        top.type("x")
    finally:
        node.process.send_signal(signal.SIGCONT)
    wait_for(top, "queues 26-41 of 41")


def assert_restored(terminal: Terminal) -> None:
    """Check that the terminal is as it was before."""
    assert terminal.echoes
    assert terminal.raw.count(ALTERNATE) == terminal.raw.count(NORMAL) == 1
    assert SHOW_CURSOR in terminal.raw[terminal.raw.index(ALTERNATE) :]


@pytest.mark.parametrize(("keys", "status"), [("q", 0), ("\x03", 0), ("", 128 + signal.SIGTERM)])
def test_the_terminal_is_as_before_whatever_ends_it(top: Terminal, keys: str, status: int) -> None:
    wait_for(top, "queues 1-16 of 41")
    assert not top.echoes
    if keys:
        top.type(keys)
    else:
        top.process.send_signal(signal.SIGTERM)
    assert top.wait_end() == status
    assert_restored(top)
    assert "Traceback" not in top.raw


def test_the_terminal_is_as_before_when_a_bug_ends_it_and_the_bug_is_seen(node: Daemon) -> None:
    with Terminal([sys.executable, "-c", BROKEN.format(port=str(node.port))], size=(24, 80)) as terminal:
        assert terminal.wait_end() == 1
        assert_restored(terminal)
    assert "RuntimeError: a bug in the second look" in terminal.raw.split(NORMAL)[1]


def test_keys_are_heard_while_a_node_does_not_answer(tmp_path: Path) -> None:
    with ends_well(Cluster(tmp_path, QUICK)) as nodes:
        nodes.start(2)
        nodes.nodes[0].call("ADDJOB", "mail-1", "x", 0, "REPLICATE", 1)
        nodes.freeze(1)
        with Terminal([*TOP, "--timeout", str(LIMIT), *at(nodes.nodes[0])], size=(24, 80)) as terminal:
            wait_for(terminal, "mail-1")
            terminal.type("h")
            wait_for(terminal, "disqued top: keys")
            terminal.type("q")
            assert terminal.wait_end() == 0
        nodes.thaw(1)
