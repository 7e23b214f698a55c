"""The first blocks that a newcomer types, as they stand: their own ports, in a network that nothing else is in.

What is waited for in between is what a person waits for: the node answers.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.daemon import LIMIT, ROOT, environment
from tests.network import PATH
from tests.pages import PAGES, REMARK, following
from tests.programs import Program

BIN = Path(sys.executable).parent
STARTED = re.compile(r"[^ ]*disqued --(?:port (\d+) )?")
#: A node starts in the background, and the next line waits until it answers.
AWAIT = 'until [ "$(redis-cli -p {port} PING 2>/dev/null)" = PONG ]; do sleep 0.05; done'


def block(page: str, heading: str) -> list[str]:
    """The lines of the first block below a heading."""
    text = (ROOT / page).read_text().partition(f"\n{heading}\n")[2]
    found = re.search(r"(?m)^(?:    \S.*\n)+", text)
    assert found, heading
    return [REMARK.sub("", line.strip()) for line in found[0].splitlines()]


def script(lines: list[str]) -> str:
    """Type the lines one after the other."""
    typed = ["set -e"]
    for line in lines:
        started = STARTED.match(line)
        typed.append(f"{line.removesuffix('&')} >>said 2>&1 &" if started else line)
        if started:
            typed.append(AWAIT.format(port=started[1] or 7711))
    return "\n".join(typed)


def alone(text: str, folder: Path, path: str) -> str:
    """Run a script in a network of its own, all of whose programs end with it; returns what it printed."""
    unshare = shutil.which("unshare", path=PATH)
    assert unshare, "this test needs the program unshare (Debian: util-linux)"
    argv = [unshare, "--net", "--pid", "--fork", "--kill-child", "sh", "-c", f"ip link set lo up\n{text}"]
    with Program(
        argv, cwd=folder, env={**environment(), "PATH": path}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    ) as program:  # fmt: skip
        printed, _ = program.communicate(timeout=2 * LIMIT)
    log = folder / "said"
    assert program.returncode == 0, f"{printed}\n{log.read_text() if log.exists() else ''}"
    return printed


@pytest.fixture
def path(tmp_path: Path) -> str:
    """The programs that a newcomer has; `disqued` only where it was installed."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "disqued").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m disqued.cli "$@"\n')
    (programs / "disqued").chmod(0o755)
    return os.pathsep.join((str(programs), PATH))


def test_the_several_nodes_of_the_readme_have_a_page_each_and_know_each_other(path: str, tmp_path: Path) -> None:
    lines = block("README.md", "## Several nodes")
    pages = [line.partition("--http-port ")[2].split()[0] for line in lines if "--http-port" in line]
    assert len(pages) == 3
    look = [f"curl --fail --silent --output /dev/null http://127.0.0.1:{page}/" for page in pages]
    known = 'until [ "$(redis-cli -p 7711 CLUSTER NODES | grep -c connected)" = 3 ]; do sleep 0.05; done'
    assert alone("\n".join([script(lines), *look, known]), tmp_path, path).splitlines() == ["OK", "OK"]
    with following("README.md") as readme:
        readme.ran(*lines)


def test_the_last_step_of_the_tutorial_works_behind_make_run(path: str, tmp_path: Path) -> None:
    lines = block("docs/tutorial.md", "## 7. Keep jobs on disk")
    # What `make run` has left in the checkout, whose node was ended; nothing is installed anywhere else.
    (tmp_path / "data").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / "programs" / "disqued").rename(tmp_path / ".venv" / "bin" / "disqued")
    look = "curl --fail --silent --output /dev/null http://127.0.0.1:7780/\nredis-cli -p 7711 INFO persistence"
    printed = alone(f"{script(lines)}\n{look}", tmp_path, path)
    assert "aof_enabled:1" in printed
    with following("docs/tutorial.md") as tutorial:
        tutorial.ran(*lines)


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_nodes_that_a_page_starts_together_have_an_http_port_each(page: Path) -> None:
    ports: dict[str, set[str]] = {}
    for options in re.findall(r"disqued (--port \d+ .*?) &$", page.read_text(), re.MULTILINE):
        port = options.split()[1]
        http = re.search(r"--http-port (\d+)", options)
        ports.setdefault(http[1] if http else "7780", set()).add(port)
    ports.pop("0", None)
    assert all(len(nodes) == 1 for nodes in ports.values()), ports
