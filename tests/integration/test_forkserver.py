"""Daemons that are forked are as those that begin from nothing, and their processes as those of `subprocess`."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.daemon import DAEMON, LIMIT, Daemon

Start = Callable[..., Daemon]

#: What is not the same of two daemons that are the same: ports, folders, ids, times.
OWN = {"tcp_port", "process_id", "run_id", "node_id", "uptime_in_seconds", "uptime_in_days", "server_time_usec"}


def server(daemon: Daemon) -> dict[str, object]:
    with daemon.redis() as client:
        return {name: value for name, value in client.info("server").items() if name not in OWN}


def settings(daemon: Daemon) -> dict[str, str]:
    answer = iter(daemon.call("CONFIG", "GET", "*"))
    own = (str(daemon.port), str(daemon.directory), daemon.directory.name)
    return {name: value for name, value in zip(answer, answer, strict=True) if value not in own}


def test_it_is_as_one_that_begins_from_nothing(start: Start, tmp_path: Path) -> None:
    forked, begun = start(), start(program=DAEMON, directory=tmp_path / "other")
    assert isinstance(begun.process, subprocess.Popen)
    assert not isinstance(forked.process, subprocess.Popen)
    assert server(forked) == server(begun)
    assert settings(forked) == settings(begun)


def test_two_of_them_draw_different_numbers(start: Start, tmp_path: Path) -> None:
    first, second = (start(directory=tmp_path / name) for name in ("one", "two"))
    assert first.call("HELLO")[1] != second.call("HELLO")[1]
    assert first.call("ADDJOB", "q", "body", 0) != second.call("ADDJOB", "q", "body", 0)


def test_its_end_is_told_as_subprocess_tells_it(start: Start) -> None:
    daemon = start()
    process, daemon.ended = daemon.process, True
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.001)
    process.send_signal(signal.SIGSTOP)
    process.kill()
    assert process.wait(LIMIT) == process.poll() == process.returncode == -signal.SIGKILL
    process.terminate()  # nobody


def test_one_that_does_not_start_says_why(start: Start) -> None:
    with pytest.raises(AssertionError, match=r"the daemon ended with 2:\n(.*\n)*.*--nonsense"):
        start("--nonsense")
