"""Verbs by TLS: a front as a user puts before a node, and every way in which certificates can be wrong."""

import contextlib
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.certificates import Authority
from tests.integration.daemon import HOST, LIMIT, Daemon, environment

SCRIPT = (sys.executable, "-m", "disqued.cli")


class Front:
    """A port with TLS, whose connections lead to a daemon; clients need a certificate of the authority."""

    def __init__(self, daemon: Daemon, authority: Authority) -> None:
        key, certificate = authority.issue("front", HOST)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._context.load_verify_locations(authority.file)
        self._context.verify_mode = ssl.CERT_REQUIRED
        self._daemon = daemon
        self._listening = socket.create_server((HOST, 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Carry commands there and replies back, in turn: who asks waits for the answer."""
        client = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        try:
            client.do_handshake()
        except OSError:
            # What was sent is read, so that the refusal arrives before the end.
            with contextlib.suppress(OSError), socket.socket(fileno=client.detach()) as refused:
                refused.shutdown(socket.SHUT_WR)
                while refused.recv(1 << 16):
                    pass
            return
        try:
            with client, socket.create_connection((HOST, self._daemon.port)) as node:
                while data := client.recv(1 << 16):
                    node.sendall(data)
                    client.sendall(node.recv(1 << 16))
        except OSError:
            pass

    def close(self) -> None:
        self._listening.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> tuple[Path, Path]:
    """The key and the certificate of a client."""
    return authority.issue("client")


@pytest.fixture(scope="module")
def front(daemon: Daemon, authority: Authority) -> Iterator[Front]:
    made = Front(daemon, authority)
    yield made
    made.close()


def run(front: Front, *words: object) -> "subprocess.CompletedProcess[str]":
    """Run a verb by TLS, to its end."""
    verb, *more = words
    command = [*SCRIPT, *str(verb).split(), "-h", HOST, "-p", str(front.port), "--tls", *map(str, more)]
    return subprocess.run(
        command, env=environment(), cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT,
        check=False,
    )  # fmt: skip


def test_verbs_reach_a_node_by_tls(front: Front, authority: Authority, own: tuple[Path, Path]) -> None:
    key, certificate = own
    known = ("--cacert", authority.file, "--cert", certificate, "--key", key)
    assert run(front, "cli", *known, "PING", "by TLS").stdout == "by TLS\n"
    checked = run(front, "check cluster", *known)
    assert (checked.returncode, checked.stdout.partition(" - ")[0]) == (0, "CLUSTER OK")


@pytest.mark.parametrize(("verb", "status"), [("cli", 1), ("check node", 3)])
def test_what_is_wrong_with_certificates_is_told_in_a_line(
    front: Front, authority: Authority, own: tuple[Path, Path], tmp_path: Path, verb: str, status: int
) -> None:
    words = ("PING",) if verb == "cli" else ()
    other = Authority(tmp_path, "another authority")
    for options, said in (
        (("--cacert", other.file, "--cert", own[1], "--key", own[0]), "the certificate of the node is not trusted"),
        (("--cacert", authority.file), "the node refuses our certificate"),
    ):
        process = run(front, verb, *options, *words)
        assert process.returncode == status
        assert said in process.stdout + process.stderr
        assert (process.stdout + process.stderr).count("\n") == 1


def test_a_node_without_tls_is_told_in_a_line(daemon: Daemon, front: Front, authority: Authority) -> None:
    process = run(front, "cli", "-p", daemon.port, "--cacert", authority.file, "PING")
    assert process.returncode == 1
    assert process.stderr.startswith("disqued cli: ")
    assert process.stderr.count("\n") == 1
