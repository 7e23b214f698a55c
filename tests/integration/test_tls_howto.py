"""The page on TLS goes as it is written: certificates are made, daemons started, and clients let in."""

import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.integration.cluster import wait_reached
from tests.integration.daemon import HOST, LIMIT, ROOT, Daemon, environment, free_port
from tests.pages import following

NAME = "docs/how-to/tls.md"
PAGE = (ROOT / NAME).read_text()
#: What is typed, and what is printed if the page shows it.
TYPED = re.findall(r"^    \$ (.*)\n((?:    (?!\$ ).+\n)*)", PAGE, re.MULTILINE)
PROGRAMS = re.findall(r"```python\n(.*?)```\n\nprints:\n\n```\n(.*?)```", PAGE, re.DOTALL)

Start = Callable[..., Daemon]


def run(line: str, folder: Path) -> str:
    done = subprocess.run(["sh", "-c", line], cwd=folder, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout


def options(line: str, folder: Path) -> list[str]:
    """The options of a daemon of the page but its ports, with whole paths."""
    words = shlex.split(line.removesuffix("&"))[1:]
    pairs = zip(words[::2], words[1::2], strict=True)
    told = [(name, text) for name, text in pairs if name not in ("--port", "--tls-port", "--http-port")]
    return [word for name, text in told for word in (name, str(folder / text) if "." in text else text)]


def test_the_page_on_tls_goes_as_it_is_written(start: Start, tmp_path: Path) -> None:
    made = [line for line, _ in TYPED if line.startswith(("openssl", "printf"))]
    assert len(made) == 7
    for line in made:
        run(line, tmp_path)
    started = [line for line, _ in TYPED if line.startswith("disqued ")]
    for_clients, for_nodes = (options(line, tmp_path) for line in started)

    port = free_port()
    daemon = start(*for_clients, "--tls-port", str(port), "--cluster-announce-port", str(port))
    typed = [(line, shown) for line, shown in TYPED if line.startswith("redis-cli")]
    assert len(typed) == 3
    for line, shown in typed[:2]:
        printed = run(line.replace("7713", str(port)), tmp_path)
        assert not shown or printed.split() == shown.split()
    assert len(PROGRAMS) == 2
    for program, printed in PROGRAMS:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program.replace("7713", str(port))],
            cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, env=environment(), check=False,
        )  # fmt: skip
        assert (done.stdout, done.stderr) == (printed, "")
    assert daemon.call("JSCAN") == ["0", []], "no job is left"
    facts = run(typed[2][0].replace("7713", str(port)), tmp_path)
    assert re.findall(r"^(tls_\w+):", facts, re.MULTILINE) == [
        "tls_certificate_expires_in_seconds",
        "tls_certificate_expires_first",
        "tls_failed_handshakes",
    ]

    nodes = [start(*for_nodes, directory=tmp_path / f"node-{number}") for number in range(2)]
    assert nodes[0].call("CLUSTER", "MEET", HOST, nodes[1].port) == "OK"
    for node in nodes:
        wait_reached(node, 1)
    with following(NAME) as lines:
        lines.ran(*made, *started, *(line for line, _ in typed), *(program for program, _ in PROGRAMS))
