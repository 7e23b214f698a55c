"""The daemon as an operator meets it: options, files, signals, crashes, refusals."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import redis

from tests.integration.daemon import DAEMON, HOST, LIMIT, Daemon, environment, free_port, wait_until

Start = Callable[..., Daemon]

#: What the console script `disqued` calls.
CONSOLE_SCRIPT = (sys.executable, "-c", "from disqued.tap import main; main()")
ALWAYS = ("--persistence", "aof", "--appendfsync", "always")


def end(*options: object, program: Sequence[str] = DAEMON, cwd: Path = Path("/")) -> tuple[int, str]:
    """Run a daemon that is expected to end by itself, and return its exit status and all that it said."""
    done = subprocess.run(
        [*program, *map(str, options)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment(),
        cwd=cwd,
        timeout=LIMIT,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def refusal(*options: object) -> str:
    """Start with something wrong, and return the one line that says so."""
    status, said = end(*options)
    assert status not in (0, None), said
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize("program", [DAEMON, CONSOLE_SCRIPT], ids=["twistd disqued", "disqued"])
def test_help_names_every_option(program: Sequence[str]) -> None:
    status, said = end("--help", program=program)
    assert status == 0
    for option in ("--config=", "--port=", "--bind=", "--dir=", "--persistence=", "--maxmemory="):
        assert option in said


def test_the_console_script_is_twistd_disqued(start: Start) -> None:
    daemon = start(program=CONSOLE_SCRIPT)
    assert daemon.call("PING") is True


def test_a_relative_configuration_file_and_folder_are_found(start: Start, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "node.conf").write_text("# ours\nport 1\nslowlog-max-len 77\n")
    daemon = start("--config", "etc/node.conf", cwd=tmp_path)
    assert daemon.call("CONFIG", "GET", "slowlog-max-len") == ["slowlog-max-len", "77"]
    assert daemon.call("CONFIG", "GET", "port") == ["port", str(daemon.port)], "options win over the file"
    assert (tmp_path / "data" / "nodes.conf").exists()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("port 7711\n\ndirr data\n", ("line 3", "dirr", "dir?")),
        ("# a comment\nport banana\n", ("line 2", "banana", "from 0 to 65535")),
        ("appendfsync sometimes\n", ("line 1", "sometimes", "always", "everysec", "no")),
    ],
    ids=["unknown directive", "wrong number", "wrong word"],
)
def test_a_wrong_line_of_the_file_stops_the_start(tmp_path: Path, text: str, expected: Sequence[str]) -> None:
    file = tmp_path / "node.conf"
    file.write_text(text)
    said = refusal("--config", file)
    for words in (str(file), *expected):
        assert words in said


def test_a_wrong_option_stops_the_start(tmp_path: Path) -> None:
    assert "from 0 to 65535" in refusal("--port", "99999", "--dir", tmp_path)
    assert "--nonsense" in refusal("--nonsense", "--dir", tmp_path)
    # Longer ones are shortened.
    assert "/nowhere/at/all" in refusal("--dir", "/nowhere/at/all")
    assert "/nowhere.conf" in refusal("--config", "/nowhere.conf")


def test_a_port_that_is_taken_stops_the_start(start: Start, tmp_path: Path) -> None:
    daemon = start()
    other = tmp_path / "other"
    other.mkdir()
    assert str(daemon.port) in refusal("--port", daemon.port, "--bind", HOST, "--dir", other)


def test_nothing_listens_beyond_loopback_without_a_password(tmp_path: Path) -> None:
    # An address for documentation (RFC 5737), which no machine has: nothing could be opened by mistake.
    assert "requirepass" in refusal("--bind", "192.0.2.1", "--dir", tmp_path)


def test_the_pidfile_is_there_while_the_daemon_serves(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    daemon = start("--pidfile", str(path))
    assert path.read_text() == f"{daemon.process.pid}\n"
    daemon.stop()
    assert not path.exists()


def test_a_signal_ends_the_daemon_and_its_identity_stays(start: Start) -> None:
    first = start()
    node = first.call("HELLO")[1]
    first.stop()
    assert start(directory=first.directory).call("HELLO")[1] == node


def test_shutdown_ends_the_daemon_with_status_0(start: Start) -> None:
    daemon = start()
    with daemon.redis(retry=None) as client, pytest.raises(redis.exceptions.ConnectionError):
        client.execute_command("SHUTDOWN")
    assert daemon.wait_end() == 0


def test_the_log_is_one_json_object_a_line_away_from_a_terminal(start: Start) -> None:
    daemon = start()
    daemon.stop()
    events = [json.loads(line) for line in daemon.log().splitlines()]
    assert {"time", "level", "logger", "message"} <= set(events[0])
    assert any(str(daemon.port) in event["message"] for event in events)


def test_a_unix_socket_serves_as_well(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "socket"
    start("--unixsocket", str(path))
    with redis.Redis(unix_socket_path=str(path)) as client:
        job = client.execute_command("ADDJOB", "q", "body", 0)
        assert client.execute_command("GETJOB", "FROM", "q") == [[b"q", job, b"body"]]


def test_a_job_comes_back_after_its_retry_time_when_the_daemon_was_killed(start: Start) -> None:
    daemon = start(*ALWAYS)
    job = daemon.call("ADDJOB", "q", "body", 0, "RETRY", 1)
    daemon.kill()
    again = start(*ALWAYS, directory=daemon.directory)
    assert again.call("GETJOB", "TIMEOUT", int(LIMIT * 1000), "FROM", "q") == [["q", job, "body"]]


def test_jobs_without_a_retry_are_not_delivered_again_after_kill_9(start: Start) -> None:
    daemon = start(*ALWAYS)
    job = daemon.call("ADDJOB", "q", "at most once", 0, "RETRY", 0)
    daemon.kill()
    again = start(*ALWAYS, directory=daemon.directory)
    assert again.call("QLEN", "q") == 0
    assert again.call("GETJOB", "NOHANG", "FROM", "q") is None
    assert again.call("SHOW", job) is None or "queued" not in again.call("SHOW", job)


def test_commands_can_be_renamed_and_taken_away(start: Start, tmp_path: Path) -> None:
    file = tmp_path / "renamed.conf"
    file.write_text('rename-command DEBUG ""\nrename-command GETJOB fetch\n')
    daemon = start("--config", str(file))
    job_id = daemon.call("ADDJOB", "q", "body", 0)
    assert daemon.call("FETCH", "FROM", "q") == [["q", job_id, "body"]]
    for words in (("DEBUG", "FLUSHALL"), ("GETJOB", "FROM", "q")):
        with pytest.raises(redis.ResponseError, match="unknown command"):
            daemon.call(*words)


def test_weak_settings_are_told_at_the_start(tmp_path: Path) -> None:
    file, log = tmp_path / "weak.conf", tmp_path / "log"
    file.touch(0o600)
    file.write_text(
        f'requirepass sesame\ncluster-secret x\nrename-command ACL ""\nhttp-port 0\nlogfile {log}\ndir {tmp_path}\n'
    )
    argv = [*DAEMON, "--config", str(file), "--port", str(free_port())]
    process = subprocess.Popen(argv, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: log.exists() and "Ready" in log.read_text(), "a node that is ready")
    finally:
        process.terminate()
        process.wait(LIMIT)
    warnings = [line["message"] for line in map(json.loads, log.read_text().splitlines()) if line["level"] == "warn"]
    assert [line[:31] for line in warnings] == ["rename-command takes ACL away: "]


def test_a_pidfile_that_cannot_be_written_stops_the_start_in_one_line(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "pid"
    victim.write_text("as it was")
    link.symlink_to(victim)
    port = str(free_port())
    for path, reason in (
        (link, "this is a symbolic link; allowed is a regular file"),
        (tmp_path / "no/pid", "No such file or directory"),
    ):
        said = refusal("--port", port, "--http-port", 0, "--dir", tmp_path, "--pidfile", path)
        assert f"disqued: pidfile {path}: {reason}" in said
    assert victim.read_text() == "as it was"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("rename-command NOPE x", "rename-command NOPE: no command has this name"),
        ("rename-command PING ADDJOB", "rename-command PING ADDJOB: there is a command ADDJOB already"),
        ("persistence aoff", "persistence: no store is called 'aoff'; installed are aof, none, redis, sqlite"),
    ],
)
def test_a_setting_that_names_what_there_is_not_is_a_misuse(tmp_path: Path, line: str, expected: str) -> None:
    file = tmp_path / "renamed.conf"
    file.write_text(line + "\n")
    argv = [*DAEMON, "--config", str(file), "--dir", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, env=environment(), check=False)
    assert done.returncode == 2
    assert expected in done.stderr
