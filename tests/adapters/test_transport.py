"""The transport that sends at once: nothing lost, nothing out of order, and Twisted's flow control as ever."""

import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest_twisted
from twisted.internet import reactor
from twisted.internet.protocol import Factory, Protocol

from disqued.net.transport import EagerPort, EagerUnixPort
from tests.adapters.inprocess import wait_until

async_test = pytest_twisted.ensureDeferred


class Server(Protocol):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.lost = False
        self.received = bytearray()

    def dataReceived(self, data: bytes) -> None:
        self.received += data

    def connectionLost(self, reason: object = None) -> None:
        self.lost = True


class Listening(Factory):
    """Keeps the connections that it made."""

    noisy = False

    def __init__(self) -> None:
        self.made: list[Server] = []

    def buildProtocol(self, addr: object) -> Server:
        self.made.append(Server())
        return self.made[-1]


async def connect(factory: Listening, port: EagerPort) -> tuple[socket.socket, Server]:
    """Connect a plain socket and wait for the server's end of it."""
    client = socket.create_connection(("127.0.0.1", port.getHost().port))
    await wait_until(lambda: bool(factory.made) and factory.made[-1].transport is not None)
    return client, factory.made[-1]


async def with_connection(test: Callable[..., object]) -> None:
    """Run a test on one connection and end it."""
    factory = Listening()
    port = EagerPort(0, factory, 5, "127.0.0.1", reactor)
    port.startListening()
    client, server = await connect(factory, port)
    try:
        result = test(client, server)
        if hasattr(result, "__await__"):
            await result
    finally:
        client.close()
        await port.stopListening()
        await wait_until(lambda: server.lost)


@async_test
async def test_what_is_written_is_sent_before_the_call_returns() -> None:
    def check(client: socket.socket, server: Server) -> None:
        server.transport.write(b"hello")
        # No turn of the loop has passed, and the bytes are there.
        assert client.recv(100) == b"hello"

    await with_connection(check)


@async_test
async def test_what_the_socket_does_not_take_follows_in_order() -> None:
    async def check(client: socket.socket, server: Server) -> None:
        client.setblocking(False)
        pieces = [bytes([number]) * 100_000 for number in range(100)]
        for piece in pieces:
            server.transport.write(piece)
        received = bytearray()

        def read() -> bool:
            with contextlib.suppress(BlockingIOError):
                received.extend(client.recv(1 << 20))
            return len(received) >= 10_000_000

        await wait_until(read)
        assert received == b"".join(pieces)

    await with_connection(check)


@async_test
async def test_a_producer_is_paused_and_resumed() -> None:
    calls: list[str] = []

    class Producer:
        def pauseProducing(self) -> None:
            calls.append("pause")

        def resumeProducing(self) -> None:
            calls.append("resume")

        def stopProducing(self) -> None:
            calls.append("stop")

    async def check(client: socket.socket, server: Server) -> None:
        server.transport.registerProducer(Producer(), True)
        server.transport.write(b"x" * 20_000_000)
        assert calls == ["pause"]
        client.setblocking(False)

        def read() -> bool:
            with contextlib.suppress(BlockingIOError):
                client.recv(1 << 20)
            return len(calls) > 1

        await wait_until(read)
        assert calls == ["pause", "resume"]
        server.transport.unregisterProducer()

    await with_connection(check)


@async_test
async def test_everything_written_before_a_close_arrives() -> None:
    async def check(client: socket.socket, server: Server) -> None:
        client.setblocking(False)
        server.transport.write(b"x" * 5_000_000)
        server.transport.loseConnection()
        received = bytearray()
        ended: list[bool] = []

        def read() -> bool:
            try:
                piece = client.recv(1 << 20)
            except BlockingIOError:
                return False
            received.extend(piece)
            if not piece:
                ended.append(True)
            return bool(ended)

        await wait_until(read)
        assert received == b"x" * 5_000_000

    await with_connection(check)


@async_test
async def test_a_half_closed_connection_ends_and_an_abort_ends_at_once() -> None:
    async def half(client: socket.socket, server: Server) -> None:
        client.sendall(b"last words")
        client.shutdown(socket.SHUT_WR)
        await wait_until(lambda: server.lost)
        assert server.received == b"last words"

    async def abort(client: socket.socket, server: Server) -> None:
        client.setblocking(True)
        server.transport.write(b"x" * 50_000_000)
        server.transport.abortConnection()
        await wait_until(lambda: server.lost)
        server.transport.write(b"nobody hears this")

    await with_connection(half)
    await with_connection(abort)


@async_test
async def test_a_write_to_a_connection_that_was_reset_ends_it() -> None:
    async def check(client: socket.socket, server: Server) -> None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
        server.transport.write(b"hello")
        server.transport.write(b"again")
        await wait_until(lambda: server.lost)

    await with_connection(check)


@async_test
async def test_a_unix_socket_sends_at_once_too(tmp_path: Path) -> None:
    factory = Listening()
    path = os.fsencode(tmp_path / "s")
    port = EagerUnixPort(path, factory, 5, 0o600, reactor)
    port.startListening()
    client = socket.socket(socket.AF_UNIX)
    client.connect(path)
    await wait_until(lambda: bool(factory.made) and factory.made[-1].transport is not None)
    factory.made[-1].transport.write(b"hello")
    assert client.recv(100) == b"hello"
    client.close()
    await port.stopListening()
    await wait_until(lambda: factory.made[-1].lost)
