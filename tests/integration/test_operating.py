"""What an operator does to a running daemon: logrotate, restarts, a look at who it is."""

import json
import os
import signal
import ssl
import sys
from collections.abc import Callable
from pathlib import Path

import redis

from tests.builds import COMPILED
from tests.certificates import make_certificate
from tests.integration.daemon import HOST, LIMIT, TWISTD, Daemon, free_port, wait_until
from tests.integration.test_daemon import CONSOLE_SCRIPT, refusal

Start = Callable[..., Daemon]


def messages(text: str) -> list[str]:
    return [json.loads(line)["message"] for line in text.splitlines()]


def test_logrotate_moves_the_log_away_and_the_daemon_goes_on_in_a_new_one(start: Start) -> None:
    daemon = start("--logfile", "log")
    log = daemon.directory / "log"
    log.rename(daemon.directory / "log.1")
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(log.exists, "a new log")
    assert daemon.call("PING") is True
    daemon.stop()
    assert messages(log.read_text())[0] == f"SIGHUP: the log file {log} was opened anew"
    assert messages(log.read_text())[-1] == "Stopped"
    assert not any("SIGHUP" in message for message in messages((daemon.directory / "log.1").read_text()))


def test_sighup_without_a_log_file_ends_nothing(start: Start) -> None:
    daemon = start()
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "SIGHUP: the log goes to standard output" in daemon.log(), "a line of the log about it")
    assert daemon.call("PING") is True


def test_sighup_takes_up_a_certificate_that_has_been_renewed(start: Start, tmp_path: Path) -> None:
    key, certificate, tokens = (tmp_path / name for name in ("node.key", "node.pem", "tokens"))
    make_certificate(key, certificate)
    tokens.write_text("ann viewer 0123456789abcdef")
    tokens.chmod(0o600)
    port = free_port()
    endpoint = f"ssl:{port}:interface={HOST}:privateKey={key}:certKey={certificate}"
    daemon = start("--http-endpoint", endpoint, "--http-token-file", str(tokens))

    def shown() -> str:
        return ssl.get_server_certificate((HOST, port), timeout=LIMIT)

    assert shown() == certificate.read_text()
    make_certificate(key, certificate)
    daemon.process.send_signal(signal.SIGHUP)
    wait_until(lambda: "certificate of the admin page was read anew" in daemon.log(), "a line of the log about it")
    assert shown() == certificate.read_text()
    assert daemon.call("PING") is True


def test_the_log_tells_of_disqued_and_not_of_the_libraries(start: Start) -> None:
    daemon = start()
    daemon.stop()
    loggers = {json.loads(line)["logger"].partition(".")[0] for line in daemon.log().splitlines()}
    assert loggers == {"disqued"}
    assert messages(daemon.log())[-2:] == ["Stopping, asked by a signal", "Stopped"]


def test_the_unix_socket_goes_with_the_daemon_and_its_leftover_stops_nobody(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    option = ("--unixsocket", str(path))
    first = start(*option)
    taken = tmp_path / "other"
    taken.mkdir()
    assert "another process listens on it" in refusal(*option, "--port", 0, "--dir", taken)
    first.kill()
    assert path.is_socket()
    second = start(*option, directory=first.directory)
    with redis.Redis(unix_socket_path=str(path)) as client:
        assert client.ping() is True
    second.stop()
    assert not path.exists()


def test_info_tells_which_build_of_the_core_runs(start: Start) -> None:
    with start().redis() as client:
        assert client.info("server")["core_build"] == ("compiled" if COMPILED else "source")


def test_info_names_the_program_that_runs(start: Start, tmp_path: Path) -> None:
    with start().redis() as client:
        assert client.info("server")["executable"] == os.path.realpath(TWISTD)
    with start(program=CONSOLE_SCRIPT, directory=tmp_path / "other").redis() as client:
        assert client.info("server")["executable"] == sys.executable
