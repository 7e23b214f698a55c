"""redis-cli and redis-benchmark: by argument, by pipe, in RESP3, and lines typed into a bare socket."""

import json
import socket
import subprocess

import pytest

from tests.integration.daemon import HOST, LIMIT, Daemon, wait_until
from tests.programs import Program


def run(daemon: Daemon, *words: str, program: str = "redis-cli", typed: bytes = b"") -> str:
    """Run a program of the redis-tools to its end and return what it printed."""
    argv = [program, "-h", HOST, "-p", str(daemon.port), *words]
    done = subprocess.run(argv, input=typed, capture_output=True, timeout=LIMIT, check=False)
    assert done.returncode == 0, done
    return done.stdout.decode().rstrip("\n")


def test_a_job_is_added_taken_and_acknowledged(daemon: Daemon, queue: str) -> None:
    job = run(daemon, "ADDJOB", queue, "to: ann", "0")
    assert len(job) == 48
    assert run(daemon, "GETJOB", "FROM", queue).splitlines() == [queue, job, "to: ann"]
    assert run(daemon, "ACKJOB", job) == "1"
    assert run(daemon, "--no-raw", "SHOW", job) == "(nil)"


def test_a_tree_of_replies_is_drawn(daemon: Daemon, queue: str) -> None:
    job = run(daemon, "ADDJOB", queue, "body", "0")
    drawn = run(daemon, "--no-raw", "QPEEK", queue, "1")
    assert [line.split(") ")[-1] for line in drawn.splitlines()] == [f'"{queue}"', f'"{job}"', '"body"']
    assert run(daemon, "--no-raw", "QLEN", queue) == "(integer) 1"
    assert '"queued"' in run(daemon, "--no-raw", "SHOW", job)
    assert queue in run(daemon, "QSCAN", "BUSYLOOP")
    assert job in run(daemon, "JSCAN", "QUEUE", queue)


def test_a_blocked_consumer_prints_the_job_when_it_comes(daemon: Daemon, queue: str) -> None:
    argv = ["redis-cli", "-h", HOST, "-p", str(daemon.port), "GETJOB", "FROM", queue]
    with Program(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as consumer:
        daemon.wait_blocked()
        job = run(daemon, "ADDJOB", queue, "at last", "0")
        printed, _ = consumer.communicate(timeout=LIMIT)
    assert printed.decode().splitlines() == [queue, job, "at last"]


def test_resp3_is_spoken_on_request(daemon: Daemon, queue: str) -> None:
    job = run(daemon, "-3", "ADDJOB", queue, "body", "0")
    assert run(daemon, "-3", "--no-raw", "GETJOB", "NOHANG", "FROM", "nobody's") == "(nil)"
    assert run(daemon, "-3", "NACK", job) == "0"
    assert json.loads(run(daemon, "--json", "QPEEK", queue, "1")) == [[queue, job, "body"]]


def test_the_help_of_redis_cli_is_fed_by_command_docs(daemon: Daemon) -> None:
    docs = json.loads(run(daemon, "--json", "COMMAND", "DOCS", "ADDJOB"))
    assert docs["addjob"]["summary"]
    assert "replicate" in json.dumps(docs["addjob"]["arguments"]).lower()


def test_information_and_topology_are_printed(daemon: Daemon) -> None:
    assert f"process_id:{daemon.process.pid}" in run(daemon, "INFO", "server")
    assert run(daemon, "HELLO").splitlines()[0] == "1"
    assert run(daemon, "PING", "hello there") == "hello there"


def test_an_error_is_printed_with_its_word(daemon: Daemon) -> None:
    assert (
        run(daemon, "ACKJOB", "nonsense") == "BADID Invalid Job ID format. - allowed are job ids, and the option RESULT"
    )
    assert run(daemon, "--no-raw", "ADDJOB", "q").startswith("(error) ERR wrong number of arguments for 'addjob'")


def test_commands_are_read_from_standard_input(daemon: Daemon, queue: str) -> None:
    typed = "".join(f"ADDJOB {queue} {body} 0\n" for body in ("one", "two", '"three words here"'))
    jobs = run(daemon, typed=typed.encode()).splitlines()
    taken = run(daemon, "GETJOB", "COUNT", "3", "FROM", queue).splitlines()
    assert taken[1::3] == jobs
    assert taken[2::3] == ["one", "two", "three words here"]


def test_jobs_are_loaded_in_bulk_by_pipe(daemon: Daemon, queue: str) -> None:
    typed = b"".join(
        b"*4\r\n$6\r\nADDJOB\r\n$%d\r\n%b\r\n$4\r\nbody\r\n$1\r\n0\r\n" % (len(queue), queue.encode())
        for _ in range(5000)
    )
    assert "errors: 0, replies: 5000" in run(daemon, "--pipe", typed=typed)
    assert run(daemon, "QLEN", queue) == "5000"


def test_a_monitor_sees_the_commands_of_others(daemon: Daemon, queue: str) -> None:
    argv = ["redis-cli", "-h", HOST, "-p", str(daemon.port), "MONITOR"]
    with Program(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as monitor:
        assert monitor.stdout is not None
        assert monitor.stdout.readline() == b"OK\n"
        run(daemon, "ADDJOB", queue, "seen by others", "0")
        line = monitor.stdout.readline().decode()
        monitor.terminate()
    assert f'"{queue}" "seen by others" "0"' in line


def test_redis_benchmark_measures_addjob(daemon: Daemon, queue: str) -> None:
    words = ("-n", "1000", "-c", "10", "-P", "8", "--csv", "ADDJOB", queue, "body", "0")
    assert "ADDJOB" in run(daemon, *words, program="redis-benchmark")
    assert run(daemon, "QLEN", queue) == "1000"


def test_lines_typed_into_a_socket_are_commands(daemon: Daemon, queue: str) -> None:
    with socket.create_connection((HOST, daemon.port), timeout=LIMIT) as line:
        answers = line.makefile("rb")
        line.sendall(f'PING\r\naddjob {queue} "a b\\x21" 0\r\n\r\nqlen {queue}\nQUIT\r\n'.encode())
        assert answers.readline() == b"+PONG\r\n"
        assert answers.readline().startswith(b"+DI")
        assert answers.readline() == b":1\r\n"
        assert answers.read() == b"+OK\r\n"
    assert run(daemon, "GETJOB", "FROM", queue).splitlines()[2] == "a b!"


@pytest.mark.parametrize("request_line", ["GET / HTTP/1.1", "POST /v1/commands/ADDJOB HTTP/1.1", "Host: localhost"])
def test_a_browser_is_shown_the_door(daemon: Daemon, queue: str, request_line: str) -> None:
    with socket.create_connection((HOST, daemon.port), timeout=LIMIT) as browser:
        browser.sendall(f"{request_line}\r\nADDJOB {queue} forged 0\r\n\r\n".encode())
        answer = b"".join(iter(lambda: _receive(browser), b""))
    assert b"+DI" not in answer
    assert run(daemon, "QLEN", queue) == "0"


def _receive(connection: socket.socket) -> bytes:
    """Read what comes; a reset is an end as well."""
    try:
        return connection.recv(4096)
    except ConnectionResetError:
        return b""


def test_a_consumer_that_went_away_takes_no_job(daemon: Daemon, queue: str) -> None:
    with socket.create_connection((HOST, daemon.port), timeout=LIMIT) as consumer:
        consumer.sendall(f"GETJOB FROM {queue}\r\n".encode())
        daemon.wait_blocked()
    wait_until(lambda: daemon.blocked() == 0, "nobody waits")
    run(daemon, "ADDJOB", queue, "body", "0")
    assert run(daemon, "QLEN", queue) == "1"
