"""No job goes to a client that has closed its connection before it was answered.

    SIGSTOP --> 50 clients: a command that takes a job, then close --> SIGCONT --> all 50 jobs are still in the queue

Nobody else can see the difference between a client that has closed and one that has only closed its sending side, so
neither gets a job; what else a client sent before that is answered.
"""

import json
import os
import signal
import socket
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import attrs
import pytest

from tests.adapters.inprocess import pack
from tests.certificates import Authority
from tests.integration.daemon import HOST, LIMIT, Daemon, free_port, launch, wait_until

COUNT = 50
#: A command for a queue.
Words = Callable[[str], tuple[str | int, ...]]


@attrs.frozen
class Taking:
    """A way in which a client takes what is in a queue."""

    add: Words
    take: Words
    left: Words = lambda queue: ("QLEN", queue)  #: answers with how many there are to be had, or with all of them


WAYS = {
    "GETJOB": Taking(lambda queue: ("ADDJOB", queue, "body", 0), lambda queue: ("GETJOB", "FROM", queue)),
    "at most once": Taking(
        lambda queue: ("ADDJOB", queue, "body", 0, "RETRY", 0), lambda queue: ("GETJOB", "FROM", queue)
    ),
    "COUNT": Taking(
        lambda queue: ("ADDJOB", queue, "body", 0), lambda queue: ("GETJOB", "NOHANG", "COUNT", 10, "FROM", queue)
    ),
    "RQ.POP": Taking(lambda queue: ("RQ.PUSH", queue, "body"), lambda queue: ("RQ.POP", queue)),
    "QRPOP": Taking(lambda queue: ("QLPUSH", queue, os.urandom(8).hex(), "body"), lambda queue: ("QRPOP", queue)),
    "QGET": Taking(
        lambda queue: ("QADD", queue, 60, "body"), lambda queue: ("QGET", queue, "group", "EX", 300),
        lambda queue: ("QGET", queue, "group", "EX", 300, "COUNT", COUNT + 1),
    ),
}  # fmt: skip


@attrs.frozen
class Node:
    """A daemon with a port, one for TLS, and a Unix socket."""

    daemon: Daemon
    tls_port: int
    authority: Authority
    path: Path  #: of the Unix socket
    http_port: int

    def connect(self, kind: str) -> socket.socket:
        """Connect in one of three ways, and be known to the node."""
        if kind == "unix":
            made = socket.socket(socket.AF_UNIX)
            made.settimeout(LIMIT)
            made.connect(str(self.path))
        elif kind == "tls":
            context = ssl.create_default_context(cafile=str(self.authority.file))
            plain = socket.create_connection((HOST, self.tls_port), LIMIT)
            made = context.wrap_socket(plain, server_hostname=HOST)
        else:
            made = socket.create_connection((HOST, self.daemon.port), LIMIT)
        made.sendall(pack("PING"))
        assert made.recv(64) == b"+PONG\r\n"
        return made


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One node for all."""
    folder = tmp_path_factory.mktemp("closed")
    authority = Authority(folder)
    key, certificate = authority.issue("node", HOST)
    tls_port, http_port = free_port(), free_port()
    running = launch(
        folder / "data",
        (
            "--unixsocket", str(folder / "node.sock"), "--http-port", str(http_port),
            "--tls-port", str(tls_port), "--tls-auth-clients", "no",
            "--tls-key-file", str(key), "--tls-cert-file", str(certificate), "--tls-ca-cert-file", str(authority.file),
        ),
    )  # fmt: skip
    yield Node(running, tls_port, authority, folder / "node.sock", http_port)
    running.stop()


@pytest.mark.parametrize("kind", ["tcp", "unix", "tls"])
@pytest.mark.parametrize("way", WAYS)
def test_a_client_that_closed_before_it_was_answered_takes_nothing(node: Node, kind: str, way: str) -> None:
    taking, queue = WAYS[way], f"{kind} {way}"
    with node.daemon.redis() as other:
        for _ in range(COUNT):
            other.execute_command(*taking.add(queue))
        connected = int(other.info("clients")["connected_clients"])
        clients = [node.connect(kind) for _ in range(COUNT)]
        node.daemon.process.send_signal(signal.SIGSTOP)
        try:
            for client in clients:
                client.sendall(pack(*taking.take(queue)))
                client.close()
        finally:
            node.daemon.process.send_signal(signal.SIGCONT)
        wait_until(lambda: other.info("clients")["connected_clients"] == connected, "the node noticed that all closed")
        left = other.execute_command(*taking.left(queue))
        assert (len(left) if isinstance(left, list) else left) == COUNT


@pytest.mark.parametrize("retry", [300, 0])
def test_a_caller_over_http_that_closed_before_it_was_answered_takes_nothing(node: Node, retry: int) -> None:
    queue = f"http-{retry}"
    body = json.dumps({"queues": [queue], "nohang": True}).encode()
    head = (
        f"POST /api/commands/GETJOB HTTP/1.1\r\nHost: {HOST}:{node.http_port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with node.daemon.redis() as other:
        for _ in range(COUNT):
            other.execute_command("ADDJOB", queue, "body", 0, "RETRY", retry)
        callers = [socket.create_connection((HOST, node.http_port), LIMIT) for _ in range(COUNT)]
        node.daemon.process.send_signal(signal.SIGSTOP)
        try:
            for caller in callers:
                caller.sendall(head.encode() + body)
                caller.close()
        finally:
            node.daemon.process.send_signal(signal.SIGCONT)
        wait_until(lambda: other.info("commandstats").get("cmdstat_getjob"), "the node has run the commands")
        calls = other.info("commandstats")["cmdstat_getjob"]["calls"]
        with urllib.request.urlopen(f"http://{HOST}:{node.http_port}/healthz", timeout=LIMIT):
            pass  # what came before has been answered
        assert (calls > 0, other.execute_command("QLEN", queue)) == (True, COUNT)


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_what_was_sent_before_the_sending_side_was_closed_is_answered_but_for_jobs(node: Node, kind: str) -> None:
    with node.daemon.redis() as other, ExitStack() as stack:
        client = stack.enter_context(node.connect(kind))
        queue = f"half {kind}"
        node.daemon.process.send_signal(signal.SIGSTOP)
        try:
            client.sendall(pack("ADDJOB", queue, "body", 0) + pack("GETJOB", "FROM", queue) + pack("QLEN", queue))
            client.shutdown(socket.SHUT_WR)
        finally:
            node.daemon.process.send_signal(signal.SIGCONT)
        heard = b""
        while said := client.recv(65_536):
            heard += said
        added, refused, length = heard.split(b"\r\n")[:3]
        assert added.startswith(b"+DI")
        assert refused == b"-ERR the client has closed its side of the connection, so no job is handed out to it"
        assert length == b":1"
        assert other.execute_command("QLEN", queue) == 1


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_long_pipeline_of_a_client_that_closes_its_sending_side_is_answered_whole(node: Node, kind: str) -> None:
    with node.connect(kind) as client:
        client.sendall(pack("QLEN", "nothing") * 20_000)
        client.shutdown(socket.SHUT_WR)
        heard = 0
        while said := client.recv(65_536):
            heard += said.count(b"\n")
        assert heard == 20_000
