"""The client that is made of the options of a verb, with real nodes: what it brings, and what it says goes wrong."""

import socket
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from disqued.client.addresses import Socket
from disqued.client.errors import AccessDenied, ServerError, Uncertain, Unreachable
from disqued.tools.connecting import Target, node_options
from tests.integration.daemon import HOST, LIMIT, Daemon, free_port

Start = Callable[..., Daemon]


def target(daemon: Daemon, **more: object) -> Target:
    return Target((HOST, daemon.port), timeout=LIMIT, **more)


@click.command("ping")
@node_options
def ping(target: Target) -> None:
    """Ask one thing."""
    with target.node() as node:
        click.echo(node.call("PING"))


def failing(*words: str) -> str:
    """Run a verb that is to fail; returns the line that it says."""
    result = CliRunner().invoke(ping, words)
    assert result.exit_code == 1, result.output
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_a_node_is_asked_one_thing_after_the_other(daemon: Daemon, queue: str) -> None:
    with target(daemon).node() as node:
        assert node.call("PING") == b"PONG"
        job = node.call("ADDJOB", queue, b"\x00\xff", 0)
        assert node.call("GETJOB", "FROM", queue) == [[queue.encode(), job, b"\x00\xff"]]
        with pytest.raises(ServerError, match="BADID"):
            node.call("ACKJOB", "nonsense")
        assert node.call("ACKJOB", job) == 1
        assert str(node) == f"{HOST}:{daemon.port}"


def test_what_blocks_may_take_longer_than_the_timeout(daemon: Daemon, queue: str) -> None:
    with Target((HOST, daemon.port), timeout=0.2).node() as node:
        assert node.call("GETJOB", "TIMEOUT", 500, "FROM", queue, waits=LIMIT) is None


def test_the_cluster_and_a_bare_connection_are_reached_as_well(daemon: Daemon, queue: str) -> None:
    with target(daemon).client() as client:
        job = client.add(queue, "body")
    connection = target(daemon).connection()
    connection.send_command("DELJOB", job)
    assert connection.read_response(disable_decoding=True) == 1
    connection.disconnect()


def test_a_unix_socket_and_a_password_lead_to_the_node(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "d.sock"
    node = start("--unixsocket", str(path))
    words = ("-s", str(path))
    assert CliRunner().invoke(ping, words).stdout == "PONG\n"
    with node.redis() as client:
        client.execute_command("CONFIG", "SET", "requirepass", "secret")
    assert "NOAUTH" in (said := failing(*words))
    assert said.endswith("; -a, --password-file, --askpass or DISQUED_AUTH give the password\n")
    assert "invalid password; -a" in failing(*words, "-a", "wrong")
    assert CliRunner().invoke(ping, words, env={"DISQUED_AUTH": "secret"}).stdout == "PONG\n"
    with pytest.raises(AccessDenied), Target(Socket(str(path)), timeout=LIMIT).node() as denied:
        denied.call("PING")
    with Target(Socket(str(path)), password=b"secret", timeout=LIMIT).client() as client:
        assert client.qlen("nothing") == 0


def test_a_node_that_is_not_there_is_named(tmp_path: Path) -> None:
    port = free_port()
    assert failing("-p", str(port)) == f"ping: no node answers at 127.0.0.1:{port}: connection refused\n"
    path = tmp_path / "d.sock"
    assert failing("-s", str(path)) == f"ping: no node answers at unix://{path}: no such file or directory\n"
    with pytest.raises(Unreachable):
        Target((HOST, port)).connection()


def test_a_node_that_says_nothing_is_given_up() -> None:
    with socket.create_server((HOST, 0)) as silent:
        port = silent.getsockname()[1]
        said = failing("-p", str(port), "--timeout", "0.2")
        assert said == f"ping: 127.0.0.1:{port} was asked and did not reply: nothing came within 0.2 s (--timeout)\n"
        with pytest.raises(Uncertain), Target((HOST, port), timeout=0.2).node() as node:
            node.call("PING")


def test_a_node_without_tls_is_told_as_such(daemon: Daemon) -> None:
    assert failing("-p", str(daemon.port), "--tls").startswith("ping: ")
