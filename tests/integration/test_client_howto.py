"""The page on the Python clients: its programs run as they stand there, and print what it says."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.integration.daemon import HOST, LIMIT, ROOT, Daemon, environment, free_port, wait_until
from tests.pages import following, shared_out

NAME = "docs/how-to/python-clients.md"
PAGE = (ROOT / NAME).read_text()
PROGRAM = re.compile(r"```python\n(.*?)```(?:\n\n[^\n]*prints:\n\n```\n(.*?)```)?", re.DOTALL)
PROGRAMS = PROGRAM.findall(PAGE)
SHORT = [pair for pair in PROGRAMS if pair[1]]
#: A worker in one line, which is another one for the first program.
LIVE = next(program for program, _ in PROGRAMS if program.startswith("worker ="))
WORKERS = [program for program, _ in PROGRAMS if "Worker(" in program and program != LIVE]
WITH_TLS = next(program for program, _ in PROGRAMS if "Tls(" in program)
WORKER = re.compile(r"^worker = Worker\(.*?^\)\n", re.MULTILINE | re.DOTALL)
RUNNING = [
    *((program, program) for program in WORKERS), (LIVE, WORKER.sub(lambda _: LIVE, WORKERS[0])),
]  # fmt: skip

Start = Callable[..., Daemon]


def argv(program: str, daemon: Daemon) -> list[str]:
    assert "127.0.0.1:7711" in program
    return [sys.executable, "-W", "error", "-c", program.replace("127.0.0.1:7711", f"127.0.0.1:{daemon.port}")]


def test_every_program_of_the_page_is_run() -> None:
    short, long = test_a_program_prints_what_the_page_says, test_a_worker_works_until_it_is_told_to_stop
    shared_out(NAME, f"tests/integration/test_client_howto.py::{short.__name__}", [program for program, _ in SHORT])
    shared_out(NAME, f"tests/integration/test_client_howto.py::{long.__name__}", [shown for shown, _ in RUNNING])


@pytest.mark.parametrize(("program", "printed"), SHORT)
def test_a_program_prints_what_the_page_says(start: Start, program: str, printed: str) -> None:
    daemon = start()
    done = subprocess.run(
        argv(program, daemon), capture_output=True, text=True, timeout=LIMIT, env=environment(), check=True
    )
    assert done.stdout == printed
    assert daemon.call("JSCAN", "STATE", "queued", "STATE", "active") == ["0", []], "no job is left, other than results"
    with following(NAME, [program]) as lines:
        lines.ran(program)


@pytest.mark.parametrize(("shown", "program"), RUNNING, ids=["blocking", "aio", "deferred", "live"])
def test_a_worker_works_until_it_is_told_to_stop(start: Start, shown: str, program: str) -> None:
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
        worker.wait(LIMIT)
    with following(NAME, [shown]) as lines:
        lines.ran(shown)


def test_a_client_is_made_with_what_the_page_says_of_tls(start: Start, tmp_path: Path) -> None:
    authority, port = Authority(tmp_path), free_port()
    key, certificate = authority.issue("node", HOST)
    authority.issue("ann")
    start(
        "--tls-port", str(port), "--tls-cert-file", str(certificate), "--tls-key-file", str(key),
        "--tls-ca-cert-file", str(authority.file), "--cluster-announce-port", str(port),
    )  # fmt: skip
    here = WITH_TLS.replace("/etc/disqued/ca.pem", str(authority.file)).replace("/etc/disqued", str(tmp_path))
    here = here.replace("10.0.0.1", f"{HOST}:{port}").replace("10.0.0.2", f"{HOST}:{free_port()}")
    program = f"{here}\nprint(client.call('PING'))\nclient.close()\n"
    argv = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, env=environment(), check=True)
    assert done.stdout == "b'PONG'\n"
    with following(NAME) as lines:
        lines.ran(WITH_TLS)


def test_a_queue_is_throttled_as_the_page_says(start: Start) -> None:
    page = "docs/how-to/throttle-after-429.md"
    [(program, printed)] = PROGRAM.findall((ROOT / page).read_text())
    daemon = start()
    done = subprocess.run(
        argv(program, daemon), capture_output=True, text=True, timeout=LIMIT, env=environment(), check=True
    )
    assert done.stdout == printed
    assert daemon.call("QLEN", "calls") == 1
    with following(page, [program]) as lines:
        lines.ran(program)


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
        worker.wait(LIMIT)
