"""The page on tracing: its program prints what it says, and its trace is found in the event log."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.integration.daemon import LIMIT, ROOT, Daemon, environment
from tests.integration.howto import Terminal, steps
from tests.integration.test_client_howto import PROGRAM
from tests.pages import following

NAME = "docs/how-to/trace.md"
[(TRACED, PRINTED)] = PROGRAM.findall((ROOT / NAME).read_text())

Start = Callable[..., Daemon]


def test_the_program_prints_what_the_page_says(start: Start) -> None:
    daemon = start()
    assert "127.0.0.1:7711" in TRACED
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", TRACED.replace("127.0.0.1:7711", f"127.0.0.1:{daemon.port}")],
        capture_output=True, text=True, timeout=LIMIT, check=True, env=environment(),
    )  # fmt: skip
    assert done.stdout == PRINTED
    with following(NAME) as lines:
        lines.ran(TRACED)


def test_the_event_log_leads_from_a_trace_to_its_jobs(start: Start, tmp_path: Path) -> None:
    terminal = Terminal(start, tmp_path)
    terminal.begin("--port 7711 --dir data --events all")
    with following(NAME) as lines:
        terminal.lines = lines
        for step in steps(NAME):
            if not step.typed.startswith("pip "):
                terminal.check(step)
