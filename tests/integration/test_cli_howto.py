"""What the pages say of the verbs happens: their command lines are run as they stand there, on real daemons.

A shell runs each line where `disqued` is that of this checkout; ports and addresses are those of the test, and a load
is a small one.  What a page shows is compared, but for numbers, ids and names of nodes.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cluster import wait_reached
from tests.integration.daemon import HOST, LIMIT, ROOT, Daemon, environment, wait_until
from tests.integration.test_cluster_howto import daemons
from tests.pages import following

Start = Callable[..., Daemon]
NUMBER = re.compile(r"\d[\d,.]*")
NODE = re.compile(r"\b[0-9a-f]{8}\b")
VERBS = "bench|cluster|move|restart|top"


def steps(page: str) -> Iterator[tuple[str, list[str]]]:
    """The command lines of a page, each with what is printed for it."""
    line, shown = "", []
    for text in [*(ROOT / page).read_text().splitlines(), "end"]:
        if line and text and not text.startswith("    "):
            yield line, [each for each in shown if each]
            line, shown = "", []
        typed = re.fullmatch(rf"    \$ (disqued (?:{VERBS})\b.*)", text)
        if typed or text.startswith("    $ "):
            if line:
                yield line, [each for each in shown if each]
            line, shown = typed[1] if typed else "", []
        elif line:
            shown.append(text.removeprefix("    ").rstrip())


@pytest.fixture
def shell(tmp_path: Path) -> Callable[..., str]:
    """Run a line in the folder of the test; returns what it prints."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "disqued"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m disqued.cli "$@"\n')
    program.chmod(0o700)
    variables = {**environment(), "PATH": f"{program.parent}:{os.environ['PATH']}"}

    def run(line: str) -> str:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line], cwd=tmp_path, env=variables, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), (line, done.stderr)
        return done.stdout

    return run


def masked(line: str) -> str:
    """A line without what is another one each time: numbers, ids, and blanks."""
    return " ".join(NUMBER.sub("0", NODE.sub("<id>", line)).split())


def agree(printed: str, shown: list[str]) -> bool:
    """Say whether what is shown is what is printed; "..." stands for the rest."""
    ours = [masked(line) for line in printed.splitlines() if line]
    theirs = [masked(line) for line in shown]
    if "..." in theirs:
        theirs = theirs[: theirs.index("...")]
        ours = ours[: len(theirs)]
    return sorted(ours) == sorted(theirs)


def small(line: str, node: Daemon) -> str:
    """The same load on the node of the test, with fewer requests."""
    line = re.sub(r"-n \d+", "-n 400", re.sub(r"--seconds \d+", "--seconds 1", line))
    line = line if "-n " in line or "--seconds" in line else line.replace("bench", "bench -n 400")
    return line.replace("disqued bench", f"disqued bench -p {node.port}")


def test_the_loads_of_the_page_are_loads(start: Start, shell: Callable[..., str], tmp_path: Path) -> None:
    node = start()
    lines = list(steps("docs/how-to/benchmark.md"))
    assert len(lines) == 10
    with following("docs/how-to/benchmark.md") as page:
        for line, shown in lines:
            printed = shell(small(line, node))
            if shown:
                said = [masked(each) for each in printed.splitlines() if each]
                assert [masked(each) for each in shown[:-1]] == said[: len(shown) - 1]
            elif ">" in line:
                assert (tmp_path / line.split()[-1]).stat().st_size
            else:
                assert printed
            assert node.call("QLEN", "bench") == 0
            page.ran(line)


def test_the_verbs_of_the_page_on_clusters_do_what_it_says(
    start: Start, shell: Callable[..., str], tmp_path: Path
) -> None:
    quick = ("--cluster-node-timeout", "2000")
    nodes = {port: start(*options, *quick, directory=tmp_path / folder) for port, folder, options in daemons()}
    lines = list(steps("docs/how-to/cluster.md"))
    assert [line.split()[1] for line, _ in lines] == ["cluster", "cluster", "top", "cluster", "cluster", "restart"]
    restarted = nodes["7713"]
    for line, shown in lines:
        real = line
        for port, node in nodes.items():
            real = real.replace(port, str(node.port))
        if " -p " not in real:
            real = re.sub(r"(disqued (?:cluster \w+|top))", rf"\1 -p {nodes['7711'].port}", real)
        real = real.replace("'disqued --port", f"'disqued --http-port 0 {' '.join(quick)} --port")
        assert agree(shell(real), shown), (line, shell(real) if "restart" not in line else "")
        if "restart" in line:
            assert restarted.wait_end() in (0, -signal.SIGTERM)
            with restarted.redis() as client:
                process_id = int(client.info("server")["process_id"])
            for node in nodes.values():
                wait_reached(node, 2)
            os.kill(process_id, signal.SIGTERM)
            wait_until(lambda number=process_id: not Path(f"/proc/{number}").exists(), "the end of the new process")
    assert restarted.ended
    with following("docs/how-to/cluster.md") as page:
        page.ran(*(line for line, _ in lines))


def test_jobs_are_moved_as_the_page_says(start: Start, shell: Callable[..., str], tmp_path: Path) -> None:
    here, there = start(directory=tmp_path / "here"), start(directory=tmp_path / "there")
    for number in range(3):
        here.call("ADDJOB", "mail-dead", f"body {number}", 0)
    shown = [line for line, _ in steps("docs/how-to/move-jobs.md")]
    lines = [
        line.replace("disqued move", f"disqued move -p {here.port}").replace("10.1.0.1:7711", f"{HOST}:{there.port}")
        for line in shown
    ]
    assert len(lines) == 3
    assert shell(lines[0]).startswith("3 jobs would be moved from mail-dead to mail\n")
    assert here.call("QLEN", "mail-dead") == 3
    assert shell(lines[1]) == "3 jobs were moved from mail-dead to mail\n"
    assert here.call("QLEN", "mail") == 3
    assert shell(lines[2]) == f"3 jobs were moved from mail to mail of {HOST}:{there.port}\n"
    assert there.call("QLEN", "mail") == 3
    with following("docs/how-to/move-jobs.md") as page:
        page.ran(*shown)
