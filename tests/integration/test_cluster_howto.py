"""The page for operators of a cluster goes as it is written: its daemons are started, and its sessions typed."""

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.integration.daemon import HOST, LIMIT, ROOT, Daemon, wait_until
from tests.integration.test_docs import JOB_ID, contains_in_order, run
from tests.pages import following

NAME = "docs/how-to/cluster.md"
PAGE = (ROOT / NAME).read_text()
PROMPT = re.compile(rf"{re.escape(HOST)}:(\d+)> (.*)")
NODE_ID = re.compile(r"\b[0-9a-f]{40}\b")
#: Lines that start a daemon.
STARTED = re.findall(r"^    \$ (disqued .* &)$", PAGE, re.MULTILINE)
#: Of the node that a line of CLUSTER NODES is about.
ADDRESS = re.compile(rf"(?<=^[0-9a-f]{{40}} ){re.escape(HOST)}:\d+", re.MULTILINE)
#: Instants in CLUSTER NODES, in unix milliseconds.
INSTANT = re.compile(r"\b\d{13}\b")
#: What other nodes bring about may take a moment.
TOLD_BY_OTHERS = ("CLUSTER NODES", "CLUSTER INFO", "INFO", "SHOW")

Start = Callable[..., Daemon]


def test_the_page_for_operators_of_a_cluster_goes_as_it_is_written(start: Start, tmp_path: Path) -> None:
    [folders] = re.findall(r"^    \$ (mkdir .*)$", PAGE, re.MULTILINE)
    subprocess.run(shlex.split(folders), cwd=tmp_path, check=True)
    assert all((tmp_path / folder).is_dir() for _, folder, _ in daemons()), "a node makes no folder"
    nodes = {
        port: start(*options, "--cluster-node-timeout", "2000", directory=tmp_path / folder)
        for port, folder, options in daemons()
    }
    assert list(nodes) == ["7711", "7712", "7713"]
    real = Real(nodes)
    steps = list(sessions())
    assert len(steps) > 10
    with following(NAME) as lines:
        lines.ran(folders, *STARTED)
        for port, command, shown in steps:
            real.check(nodes[port], command, shown)
            lines.ran(command)


def test_the_secret_of_the_page_is_one_that_nodes_take(start: Start, tmp_path: Path) -> None:
    (line,) = re.findall(r"^ +\$ (\(umask.*)$", PAGE, re.MULTILINE)
    subprocess.run(["sh", "-c", line], cwd=tmp_path, check=True)
    start("--cluster-secret-file", str(tmp_path / "cluster.secret"))
    assert len((tmp_path / "cluster.secret").read_text().strip()) >= 32
    with following(NAME) as lines:
        lines.ran(line)


def daemons() -> Iterator[tuple[str, str, list[str]]]:
    """The daemons that the page starts: port, folder and other options."""
    for line in STARTED:
        words = shlex.split(line)[1:-1]
        options = dict(zip(words[::2], words[1::2], strict=True))
        port, folder = options.pop("--port"), options.pop("--dir")
        yield port, folder, [word for pair in options.items() for word in pair]


def sessions() -> Iterator[tuple[str, str, list[str]]]:
    """The commands of the page: port, words, and the lines of the reply."""
    step: tuple[str, str, list[str]] | None = None
    for line in [*PAGE.splitlines(), ""]:
        typed = PROMPT.fullmatch(line.strip())
        if step and (typed or not line.startswith("    ")):
            yield step
            step = None
        if typed:
            step = (typed[1], typed[2], [])
        elif step:
            step[2].append(line.strip())


class Real:
    """What stands in the page, and what it is in this run: ports, nodes and jobs."""

    def __init__(self, nodes: dict[str, Daemon]) -> None:
        self._words = {port: str(daemon.port) for port, daemon in nodes.items()}

    def check(self, daemon: Daemon, command: str, shown: list[str]) -> None:
        """Type a command, and compare what is printed with what is shown."""
        typed = _translated(command, self._words)
        if not command.startswith(TOLD_BY_OTHERS):
            printed = run(daemon, typed)
            assert self._matches(printed, shown), (command, printed, shown)
        else:
            wait_until(lambda: self._matches(run(daemon, typed), shown), f"{command} answers {shown}", LIMIT)

    def _matches(self, printed: list[str], shown: list[str]) -> bool:
        if "..." not in shown and len(printed) != len(shown):
            return False
        # Nodes stand in the order in which they came, which is not that in which they were called.
        places = {at: place for place, at in enumerate(ADDRESS.findall(_translated("\n".join(shown), self._words)))}
        if len(places) == len(shown):
            printed = sorted(printed, key=lambda line: [places.get(at, len(places)) for at in ADDRESS.findall(line)])
        learnt = dict(_pairs(shown, printed)) | self._words  # what is known already stays
        wanted = [INSTANT.sub("<at>", _translated(line, learnt)) for line in shown]
        if not contains_in_order([INSTANT.sub("<at>", line) for line in printed], wanted):
            return False
        self._words = learnt
        return True


def _pairs(shown: list[str], printed: list[str]) -> Iterator[tuple[str, str]]:
    """Pair the ids of a page with those of a run."""
    for pattern in (JOB_ID, NODE_ID):
        ours, theirs = (pattern.findall("\n".join(lines)) for lines in (shown, printed))
        if len(ours) == len(theirs):
            yield from zip(ours, theirs, strict=True)


def _translated(text: str, words: dict[str, str]) -> str:
    for shown, real in words.items():
        text = text.replace(shown, real)
    return text
