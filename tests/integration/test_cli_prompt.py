"""`disqued cli` with real nodes: at a terminal, and what it does with a pipe, repetitions and errors."""

import json
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.daemon import HOST, LIMIT, ROOT, Daemon, environment, free_port, wait_until
from tests.integration.terminal import Terminal
from tests.programs import Program

CLI = (sys.executable, "-m", "disqued.cli", "cli")
#: What prompt_toolkit would ask the terminal, which is none that answers.
VARIABLES = {"PROMPT_TOOLKIT_NO_CPR": "1"}

Start = Callable[..., Daemon]


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Where the prompt keeps what was typed."""
    return tmp_path / "history"


@pytest.fixture
def prompt(history: Path) -> Iterator[Callable[[int], Terminal]]:
    """Open prompts to nodes, by their ports."""
    opened: list[Terminal] = []

    def open_one(port: int, *words: str) -> Terminal:
        variables = {**VARIABLES, "DISQUED_CLI_HISTORY": str(history)}
        opened.append(Terminal([*CLI, "-p", port, *words], variables).__enter__())
        return opened[-1]

    yield open_one
    for terminal in opened:
        terminal.__exit__(None, None, None)


def run(port: int, *words: object, typed: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    """Run it without a terminal, to its end."""
    return subprocess.run(
        [*CLI, "-p", str(port), *map(str, words)], input=typed, env=environment(), cwd="/", capture_output=True,
        timeout=LIMIT, check=False,
    )  # fmt: skip


# At a terminal.


def say(terminal: Terminal, line: str, prompt: str = ">") -> None:
    """Type a line once it is asked for."""
    terminal.expect(prompt)
    terminal.type(f"{line}\r")


def leave(terminal: Terminal) -> None:
    """End the session."""
    terminal.expect(">")
    terminal.type("\x04")
    assert terminal.wait_end() == 0


def test_a_session_adds_looks_and_ends(daemon: Daemon, queue: str, prompt: Callable[..., Terminal]) -> None:
    terminal = prompt(daemon.port)
    terminal.expect(f"{HOST}:{daemon.port}>")
    terminal.type(f'ADDJOB {queue} "two words" 0')
    terminal.expect(r"\[REPLICATE replicate\].*\[MAXLEN maxlen\]")
    terminal.type("\r")
    assert "REPLICATE" not in terminal.expect(r"\nDI\w+")  # the hint goes when the line is entered
    say(terminal, f"QLEN {queue}")
    terminal.expect(r"\n\(integer\) 1\r")
    say(terminal, f"QPEEK {queue} 1")
    terminal.expect(rf'\n1\) 1\) "{queue}"\r\n   2\) "DI\w+"\r\n   3\) "two words"')
    say(terminal, "ACKJOB nonsense")
    terminal.expect(r"\n\(error\) BADID")
    say(terminal, 'QLEN "open')
    terminal.expect(r'Invalid argument\(s\): a " is not closed')
    say(terminal, f"2 QLEN {queue}")
    terminal.expect(r"\n\(integer\) 1\r\n\(integer\) 1\r")
    say(terminal, "quit")
    assert terminal.wait_end() == 0


def test_commands_are_completed_hinted_and_explained(daemon: Daemon, prompt: Callable[..., Terminal]) -> None:
    terminal = prompt(daemon.port)
    terminal.expect(">")
    terminal.type("ADDJ\t")
    terminal.expect(r"ADDJOB queue body timeout \[REPLICATE replicate\]")
    terminal.type(" q b 0 RETR\t")
    terminal.expect(r"RETRY? retry \[REPLICATE replicate\]|Y retry")
    terminal.type("\x15help addjob\r")
    terminal.expect("summary: Add a job to a queue.")
    terminal.expect(">")
    terminal.type("CONFIG REW\t")
    terminal.expect("REWRITE|RITE")
    terminal.type("\x15\x04")
    assert terminal.wait_end() == 0


def test_what_was_typed_is_remembered_but_for_passwords(
    daemon: Daemon, queue: str, prompt: Callable[..., Terminal], history: Path
) -> None:
    terminal = prompt(daemon.port)
    for line, said in (
        (f"QLEN {queue}", r"\n\(integer\) 0"), ("AUTH hush", r"\n\(error\)"), ("CONFIG SET requirepass ''", r"\nOK"),
        (" PING hidden", r'\n"hidden"'), ("PING shown", r'\n"shown"'),
    ):  # fmt: skip
        say(terminal, line)
        terminal.expect(said)
    leave(terminal)
    kept = [line[1:] for line in history.read_text().splitlines() if line.startswith("+")]
    assert kept == [f"QLEN {queue}", "PING shown"]
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    later = prompt(daemon.port)
    later.expect(">")
    later.type("\x1b[A\x1b[A")
    later.expect(f"QLEN {queue}")


def test_a_lost_connection_is_told_by_the_prompt_and_opened_anew(
    start: Start, prompt: Callable[..., Terminal], tmp_path: Path
) -> None:
    first = start()
    terminal = prompt(first.port)
    terminal.expect(f"{HOST}:{first.port}>")
    first.kill()
    terminal.type("PING\r")
    terminal.expect("no node answers at .*: connection refused")
    terminal.expect("not connected>")
    start(port=first.port)
    terminal.type("PING\r")
    terminal.expect(r"PONG\r")
    terminal.expect(f"{HOST}:{first.port}>")


def test_a_password_typed_once_is_used_again(start: Start, prompt: Callable[..., Terminal]) -> None:
    node = start()
    node.call("CONFIG", "SET", "requirepass", "secret")
    terminal = prompt(node.port)
    say(terminal, "QLEN q")
    terminal.expect(r"\(error\) NOAUTH")
    say(terminal, "AUTH secret")
    terminal.expect(r"\nOK\r")
    with node.redis(password="secret") as client:
        [other] = [each for each in client.client_list() if each["id"] != str(client.client_id())]
        client.client_kill(other["addr"])
    say(terminal, "QLEN q")
    terminal.expect(r"\(integer\) 0")


@pytest.mark.parametrize(("command", "said"), [("MONITOR", '"PING" "seen"'), ("SUBSCRIBE news", r"\(integer\) 1")])
def test_what_happens_elsewhere_is_shown_until_ctrl_c(
    daemon: Daemon, prompt: Callable[..., Terminal], command: str, said: str
) -> None:
    terminal = prompt(daemon.port)
    say(terminal, command)
    terminal.expect(r"Reading messages... \(press Ctrl-C to quit\)")
    terminal.expect("OK|subscribe")
    daemon.call("PING", "seen")
    terminal.expect(said)
    terminal.type("\x03")
    say(terminal, "PING", "not connected>")
    terminal.expect("PONG")
    leave(terminal)


def test_ctrl_c_ends_a_command_that_waits_and_clears_a_line(
    daemon: Daemon, queue: str, prompt: Callable[..., Terminal]
) -> None:
    terminal = prompt(daemon.port)
    say(terminal, f"GETJOB FROM {queue}")
    daemon.wait_blocked()
    terminal.type("\x03")
    wait_until(lambda: daemon.blocked() == 0, "nobody waits")
    terminal.expect("not connected>")
    terminal.type("nonsense")
    terminal.expect("nonsense")
    terminal.type("\x03")
    say(terminal, "PING", "not connected>")
    terminal.expect("PONG")
    leave(terminal)


# Without a terminal.


def test_an_error_is_the_exit_status(daemon: Daemon, queue: str) -> None:
    assert run(daemon.port, "QLEN", queue).returncode == 0
    assert run(daemon.port, "ACKJOB", "nonsense").returncode == 1
    assert run(daemon.port, typed=b"PING\nNOSUCH\nPING\n").returncode == 1
    broken = run(daemon.port, typed=b'PING "open\nPING\n')
    assert (broken.returncode, broken.stdout) == (1, b"PONG\n")
    assert broken.stderr == b'disqued cli: PING "open: a " is not closed\n'
    assert run(daemon.port, typed=b"PING one\nQUIT\nPING two\n").stdout == b"one\n"


def test_a_node_that_is_not_there_is_told_in_one_line() -> None:
    port = free_port()
    process = run(port, "PING")
    assert (process.returncode, process.stdout) == (1, b"")
    assert process.stderr.decode() == f"disqued cli: no node answers at {HOST}:{port}: connection refused\n"


def test_a_node_that_says_nothing_at_the_login_is_given_up() -> None:
    with socket.create_server((HOST, 0)) as silent:
        port = silent.getsockname()[1]
        process = run(port, "-a", "x", "--timeout", "0.2", "PING")
    assert process.returncode == 1
    assert process.stderr.decode() == (
        f"disqued cli: no node answers at {HOST}:{port}: nothing came within 0.2 s (--timeout)\n"
    )


def test_what_is_no_node_is_told_as_such() -> None:
    with socket.create_server((HOST, 0)) as other:
        port = other.getsockname()[1]
        with Program([*CLI, "-p", str(port), "PING"], env=environment(), stderr=subprocess.PIPE) as process:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                _, said = process.communicate(timeout=LIMIT)
    assert process.returncode == 1
    assert b"what answers there may be another server" in said
    assert said.count(b"\n") == 1


def test_a_command_is_repeated(daemon: Daemon, queue: str) -> None:
    done = run(daemon.port, "-r", 3, "-i", 0.001, "ADDJOB", queue, "body", 0)
    assert len(done.stdout.split()) == 3
    assert daemon.call("QLEN", queue) == 3
    assert run(daemon.port, "-r", 2, typed=b"2 PING\n").stdout == b"PONG\n" * 4


def test_a_command_is_repeated_until_it_is_stopped(daemon: Daemon) -> None:
    with Program(
        [*CLI, "-p", str(daemon.port), "-r", "-1", "PING"], env=environment(), stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(100)] == [b"PONG\n"] * 100
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        assert process.wait(LIMIT) == 130


def test_json_is_read_by_programs(daemon: Daemon, queue: str) -> None:
    job = run(daemon.port, "ADDJOB", queue, "body", 0).stdout.decode().strip()
    assert json.loads(run(daemon.port, "--json", "QPEEK", queue, 1).stdout) == [[queue, job, "body"]]
    assert set(json.loads(run(daemon.port, "--json", "COMMAND", "DOCS", "QLEN").stdout)) == {"qlen"}
    assert json.loads(run(daemon.port, "-2", "--json", "COMMAND", "DOCS", "QLEN").stdout)[0] == "qlen"


def test_a_monitor_is_read_line_by_line(daemon: Daemon, queue: str) -> None:
    with Program([*CLI, "-p", str(daemon.port), "MONITOR"], env=environment(), stdout=subprocess.PIPE) as monitor:
        assert monitor.stdout is not None
        assert monitor.stdout.readline() == b"OK\n"
        daemon.call("ADDJOB", queue, "seen", 0)
        assert f'"{queue}" "seen" "0"'.encode() in monitor.stdout.readline()
        monitor.send_signal(signal.SIGINT)
        assert monitor.wait(LIMIT) == 130


def test_a_node_that_was_told_to_end_is_no_error(start: Start) -> None:
    node = start()
    done = run(node.port, "SHUTDOWN")
    assert (done.returncode, done.stderr) == (0, b"")
    assert node.wait_end() == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["-x"], "-x is for the last argument of a command, and no command is given"),
        (["--json", "--csv", "PING"], "--raw, --no-raw, --csv and --json exclude each other: one of them is allowed"),
        (["--raw", "--no-raw", "PING"], "--raw, --no-raw, --csv and --json exclude each other: one of them is allowed"),
        (["-2", "-3", "PING"], "-2 and -3 exclude each other: one of them is allowed"),
        (["-s", "/run/d.sock", "PING"], "-s names a Unix socket, and -h and -p a host and its port: they exclude"),
        (["-r", "x", "PING"], "'x' is not a whole number"),
        (["-i", "-1", "PING"], "'-1' is no number of seconds; allowed are 0 up to"),
        (["--nosuch"], "there is no option '--nosuch'"),
    ],
)
def test_misuse_is_told_with_what_is_allowed(words: list[str], said: str) -> None:
    process = run(free_port(), *words)
    assert process.returncode == 2
    assert re.match(
        rf"disqued cli: .*{re.escape(said)}.*; disqued cli --help names all options", process.stderr.decode()
    )
    assert process.stderr.count(b"\n") == 1


def test_without_its_packages_it_says_what_to_install(tmp_path: Path) -> None:
    program = "import sys; sys.modules['prompt_toolkit'] = None; from disqued.cli import main; main()"
    variables = {"PYTHONPATH": str(ROOT), **VARIABLES}
    with Terminal([sys.executable, "-c", program, "cli"], variables) as terminal:
        assert terminal.wait_end() == 1
    assert terminal.text.strip() == (
        'disqued cli: prompt_toolkit is not installed, which this verb needs: pip install "disqued[cli]"'
    )
