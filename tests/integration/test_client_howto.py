"""The page on the Python clients: its programs run as they stand there, and print what it says."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.integration.daemon import LIMIT, ROOT, Daemon, environment, wait_until

PAGE = (ROOT / "docs/how-to/python-clients.md").read_text()
PROGRAM = re.compile(r"```python\n(.*?)```(?:\n\n[^\n]*prints:\n\n```\n(.*?)```)?", re.DOTALL)
PROGRAMS = PROGRAM.findall(PAGE)
SHORT = [pair for pair in PROGRAMS if pair[1]]
WORKERS = [program for program, _ in PROGRAMS if "Worker(" in program]

Start = Callable[..., Daemon]


def argv(program: str, daemon: Daemon) -> list[str]:
    assert "127.0.0.1:7711" in program
    return [sys.executable, "-W", "error", "-c", program.replace("127.0.0.1:7711", f"127.0.0.1:{daemon.port}")]


def test_every_program_of_the_page_is_run() -> None:
    assert (len(SHORT), len(WORKERS), len(PROGRAMS)) == (3, 2, 5)


@pytest.mark.parametrize(("program", "printed"), SHORT)
def test_a_program_prints_what_the_page_says(start: Start, program: str, printed: str) -> None:
    daemon = start()
    done = subprocess.run(
        argv(program, daemon), capture_output=True, text=True, timeout=LIMIT, env=environment(), check=True
    )
    assert done.stdout == printed
    assert daemon.call("JSCAN") == ["0", []], "no job is left"


@pytest.mark.parametrize("program", WORKERS, ids=["blocking", "deferred"])
def test_a_worker_works_until_it_is_told_to_stop(start: Start, program: str) -> None:
    daemon = start()
    daemon.call("ADDJOB", "mail", "ann@example.org", 0)
    worker = subprocess.Popen(
        argv(program, daemon), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment()
    )
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "sending ann@example.org\n"
        wait_until(lambda: daemon.call("JSCAN") == ["0", []], "the job done")
        worker.send_signal(signal.SIGTERM)
        said, _ = worker.communicate(timeout=LIMIT)
        # A reactor ends by the signal that it was sent, once everything has been put away.
        assert (said, worker.returncode in (0, -signal.SIGTERM)) == ("1 sent\n", True)
    finally:
        worker.kill()
        worker.wait()


def test_a_mail_without_an_address_ends_among_the_dead_letters(start: Start) -> None:
    daemon = start()
    daemon.call("ADDJOB", "newsletter", "nonsense", 0)
    worker = subprocess.Popen(
        argv(WORKERS[0], daemon), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment()
    )
    try:
        wait_until(lambda: daemon.call("QLEN", "mail.dead") == 1, "a dead letter")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(LIMIT) == 0
    finally:
        worker.kill()
        worker.wait()
