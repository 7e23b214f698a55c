"""Transports that send at once: nothing lost, nothing out of order, and Twisted's flow control as ever.

One suite, on each way to a node: TCP, a Unix socket, TLS of both versions, TLS above a Unix socket.
"""

import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import deferLater
from twisted.logger import globalLogPublisher

from disqued.net.loop.handles import SEND_MAX, Handle
from disqued.net.loop.tlstransport import ENCRYPTED_AT_ONCE, RECORD, EagerTls, TlsFactory
from disqued.net.loop.transport import EagerPort, EagerUnixPort
from disqued.tls.context import Certificates, ClientCertificates, TlsFiles
from tests.adapters.inprocess import wait_until
from tests.certificates import Authority

async_test = pytest_twisted.ensureDeferred
WAYS = ("tcp", "unix", "tls 1.3", "tls 1.2", "tls over unix")


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


class Producer:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def pauseProducing(self) -> None:
        self.calls.append("pause")

    def resumeProducing(self) -> None:
        self.calls.append("resume")

    def stopProducing(self) -> None:
        self.calls.append("stop")


@attrs.define
class Client:
    """The other end, by the plainest means: it never blocks."""

    socket: Any  #: plain, or with TLS
    ended: bool = False
    received: bytearray = attrs.field(factory=bytearray)

    def read(self) -> int:
        """Take what is there; returns how much that was."""
        before = len(self.received)
        try:
            while piece := self.socket.recv(1 << 18):
                self.received += piece
            self.ended = True
        except (BlockingIOError, ssl.SSLWantReadError):
            pass
        except (ConnectionResetError, ssl.SSLError):
            self.ended = True
        return len(self.received) - before

    def half_close(self) -> None:
        """Say that nothing more is to come, and go on listening."""
        if isinstance(self.socket, ssl.SSLSocket):
            with contextlib.suppress(ssl.SSLWantReadError):  # the other end may have said so before
                self.socket.unwrap()
        else:
            self.socket.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        """End the connection as a machine that fails."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()


@attrs.define
class Connection:
    """Both ends of a connection."""

    client: Client
    server: Server


def port_of(way: str, folder: Path, above: Listening) -> tuple[Any, Authority | None]:
    """Listen, and name the authority whose certificate is shown if any is."""
    factory: Any = above
    authority = None
    if way.startswith("tls"):
        authority = Authority(folder)
        key, certificate = authority.issue("node", "127.0.0.1")
        protocols = ("TLSv1.2",) if way == "tls 1.2" else ("TLSv1.2", "TLSv1.3")
        files = TlsFiles(
            certificate=certificate, key=key, ca=authority.file, asked=ClientCertificates.NO, protocols=protocols
        )
        factory = TlsFactory(Certificates(files.context), above, reactor, lambda address, reason: None)
    port: Any
    if "unix" in way:
        port = EagerUnixPort(os.fsencode(folder / "s"), factory, 5, 0o600, reactor)
    else:
        port = EagerPort(0, factory, 5, "127.0.0.1", reactor)
    port.startListening()
    return port, authority


@pytest_twisted.async_yield_fixture(params=WAYS)
async def connection(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Connection]:
    """A connection in each of the ways."""
    above = Listening()
    port, authority = port_of(request.param, tmp_path, above)
    plain: Any
    if "unix" in request.param:
        plain = socket.socket(socket.AF_UNIX)
        plain.connect(os.fspath(tmp_path / "s"))
    else:
        plain = socket.create_connection(("127.0.0.1", port.getHost().port))
    plain.setblocking(False)
    if authority is not None:
        context = ssl.create_default_context(cafile=authority.file)
        plain = context.wrap_socket(plain, server_hostname="127.0.0.1", do_handshake_on_connect=False)
        await wait_until(lambda: shaken(plain))
        assert plain.version() == ("TLSv1.2" if request.param == "tls 1.2" else "TLSv1.3")
    await wait_until(lambda: bool(above.made) and above.made[-1].transport is not None)
    made = Connection(Client(plain), above.made[-1])
    if "unix" not in request.param:
        made.server.transport.setTcpNoDelay(True)  # as for every client and link
    yield made
    plain.close()
    await port.stopListening()
    await wait_until(lambda: made.server.lost)


def shaken(secured: ssl.SSLSocket) -> bool:
    try:
        secured.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


async def until_read(client: Client, enough: Callable[[], bool]) -> None:
    def look() -> bool:
        client.read()
        return enough()

    await wait_until(look)


@async_test
async def test_what_is_written_is_sent_before_the_call_returns(connection: Connection) -> None:
    connection.server.transport.write(b"hello")
    # No turn of the loop has passed, and the bytes are there.
    connection.client.read()
    assert connection.client.received == b"hello"
    assert connection.server.transport.unsent == 0


@async_test
async def test_what_the_socket_does_not_take_follows_in_order(connection: Connection) -> None:
    client, server = connection.client, connection.server
    pieces = [bytes([number]) * 100_000 for number in range(100)]
    for piece in pieces:
        server.transport.write(piece)
    # What the kernel has taken is not ours to count; records of TLS are a little longer than what is in them.
    assert 1_000_000 < server.transport.unsent < 10_100_000
    await until_read(client, lambda: len(client.received) >= 10_000_000)
    assert client.received == b"".join(pieces)
    assert server.transport.unsent == 0


@async_test
async def test_what_comes_behind_what_waits_is_sent_behind_it_though_the_socket_takes_more(
    connection: Connection,
) -> None:
    client, server = connection.client, connection.server
    sent = b""
    while not server.transport.unsent:
        sent += b"x" * 1_000_000
        server.transport.write(b"x" * 1_000_000)
    while client.read():  # no turn of the loop passes meanwhile
        pass
    server.transport.write(b"behind")
    await until_read(client, lambda: len(client.received) >= len(sent) + 6)
    assert client.received == sent + b"behind"
    server.transport.write(b"at once")
    client.read()
    assert client.received[-7:] == b"at once"


@async_test
async def test_what_is_written_to_a_connection_that_is_aborted_goes_nowhere(connection: Connection) -> None:
    client, server = connection.client, connection.server
    server.transport.abortConnection()
    server.transport.write(b"too late")
    await until_read(client, lambda: client.ended)
    assert client.received == b""


@async_test
async def test_what_is_written_to_a_connection_that_has_ended_goes_nowhere(connection: Connection) -> None:
    client, server = connection.client, connection.server
    server.transport.loseConnection()
    await until_read(client, lambda: client.ended)
    await wait_until(lambda: server.lost)
    server.transport.write(b"too late")
    assert server.transport.unsent == 0
    assert client.received == b""


@async_test
async def test_what_comes_is_whole_and_in_order(connection: Connection) -> None:
    sent = 0
    text = bytes(range(256)) * 8_000

    def push() -> bool:
        nonlocal sent
        with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
            sent += connection.client.socket.send(text[sent : sent + 50_000])
        return sent == len(text)

    await wait_until(push)
    await wait_until(lambda: len(connection.server.received) == len(text))
    assert connection.server.received == text


@async_test
async def test_who_does_not_read_is_not_read_from_if_the_protocol_wants_that(connection: Connection) -> None:
    connection.server.transport.pauseProducing()
    connection.client.socket.send(b"wait")
    turns = 0

    def turn() -> bool:
        nonlocal turns
        turns += 1
        return turns > 20

    await wait_until(turn)
    assert connection.server.received == b""
    connection.server.transport.resumeProducing()
    await wait_until(lambda: connection.server.received == b"wait")


@async_test
async def test_a_producer_is_paused_and_resumed(connection: Connection) -> None:
    producer = Producer()
    connection.server.transport.registerProducer(producer, True)
    connection.server.transport.write(b"x" * 20_000_000)
    assert producer.calls == ["pause"]
    await until_read(connection.client, lambda: len(producer.calls) > 1)
    assert producer.calls == ["pause", "resume"]
    connection.server.transport.unregisterProducer()


@async_test
async def test_everything_written_before_a_close_arrives(connection: Connection) -> None:
    connection.server.transport.write(b"x" * 5_000_000)
    connection.server.transport.loseConnection()
    await until_read(connection.client, lambda: connection.client.ended)
    assert connection.client.received == b"x" * 5_000_000
    # It does not wait for a word of the other end.
    await wait_until(lambda: connection.server.lost)


@pytest.mark.parametrize("how", ["close", "half_close", "stay"])
@async_test
async def test_an_end_that_goes_on_reading_loses_nothing_of_what_was_written(connection: Connection, how: str) -> None:
    transport = connection.server.transport
    await until_read(connection.client, lambda: not transport.is_busy())  # the handshake is read
    transport.pauseProducing()
    asked = b"y" * 50_000
    while asked:
        with contextlib.suppress(BlockingIOError, ssl.SSLWantWriteError):
            asked = asked[connection.client.socket.send(asked) :]
    assert transport.is_busy()
    transport.write(b"x" * 5_000_000)
    transport.resumeProducing()
    transport.loseWriteConnection()
    await wait_until(lambda: len(connection.server.received) == 50_000)
    await until_read(connection.client, lambda: connection.client.ended)
    assert connection.client.received == b"x" * 5_000_000
    assert not connection.server.lost
    await wait_until(lambda: not transport.is_busy())
    failed: list[Any] = []
    globalLogPublisher.addObserver(failed.append)
    if how == "stay":
        transport.loseConnection()
    elif how == "close":
        connection.client.socket.close()
    else:
        connection.client.half_close()
    await wait_until(lambda: connection.server.lost)
    await deferLater(reactor, 0)  # what is left of this turn
    globalLogPublisher.removeObserver(failed.append)
    assert [event for event in failed if "log_failure" in event] == []


@async_test
async def test_what_the_other_end_has_not_read_is_under_way_where_the_system_knows_it(connection: Connection) -> None:
    connection.server.transport.write(b"x" * 50_000_000)
    assert connection.server.transport.is_busy()
    connection.server.transport.abortConnection()


@async_test
async def test_a_producer_does_not_keep_a_connection_open_that_is_to_end(connection: Connection) -> None:
    connection.server.transport.registerProducer(Producer(), True)
    connection.server.transport.write(b"goodbye")
    connection.server.transport.loseConnection()
    await until_read(connection.client, lambda: connection.client.ended)
    await wait_until(lambda: connection.server.lost)
    assert connection.client.received == b"goodbye"


@async_test
async def test_a_half_closed_connection_ends_after_what_was_said_before(connection: Connection) -> None:
    connection.client.socket.send(b"last words")
    connection.client.half_close()
    await wait_until(lambda: connection.server.lost)
    assert connection.server.received == b"last words"


@async_test
async def test_an_abort_ends_at_once_and_what_is_written_later_is_nothing(connection: Connection) -> None:
    connection.server.transport.write(b"x" * 50_000_000)
    connection.server.transport.abortConnection()
    await wait_until(lambda: connection.server.lost)
    connection.server.transport.write(b"nobody hears this")
    await until_read(connection.client, lambda: connection.client.ended)
    assert len(connection.client.received) < 50_000_000


@async_test
async def test_a_write_to_a_connection_that_was_reset_ends_it_and_tells_that_it_was_refused(
    connection: Connection,
) -> None:
    connection.client.reset()
    assert not connection.server.transport.refused
    connection.server.transport.write(b"hello")
    assert connection.server.transport.refused
    connection.server.transport.write(b"again")
    await wait_until(lambda: connection.server.lost)


@async_test
async def test_a_long_write_of_which_the_beginning_left_was_not_refused(connection: Connection) -> None:
    connection.server.transport.write(b"x" * 100_000)
    assert not connection.server.transport.refused
    await until_read(connection.client, lambda: len(connection.client.received) == 100_000)


@pytest.mark.parametrize("how", ["close", "half_close", "reset"])
@async_test
async def test_an_end_that_has_gone_is_seen_before_the_loop_tells_of_it(connection: Connection, how: str) -> None:
    assert not connection.server.transport.is_gone()
    if how == "close":
        connection.client.socket.close()
    else:
        getattr(connection.client, how)()
    assert not connection.server.lost
    assert connection.server.transport.is_gone()
    await wait_until(lambda: connection.server.lost)


@async_test
async def test_to_look_for_the_other_end_takes_nothing_from_the_protocol(connection: Connection) -> None:
    connection.client.socket.send(b"one ")
    assert not connection.server.transport.is_gone()
    connection.client.socket.send(b"two ")
    assert not connection.server.transport.is_gone()
    assert connection.server.received == b""
    await wait_until(lambda: connection.server.received == b"one two ")
    connection.client.socket.send(b"three")
    await wait_until(lambda: connection.server.received == b"one two three")


# Large pieces.

LARGE = bytes(range(256)) * (12_000_000 // 256)


def noted_sends(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How much the socket is offered at a time, and OpenSSL is given between two turns of the loop."""
    sizes: list[int] = []
    transport = connection.server.transport
    below = transport if hasattr(transport, "handle") and isinstance(transport.handle, Handle) else transport.transport
    monkeypatch.setattr(below, "socket", Watched(below.socket, sizes))
    below.handle._send = below.socket.send
    return sizes


class Watched:
    """A socket that notes how much it is offered."""

    def __init__(self, real: Any, sizes: list[int]) -> None:
        self._real, self._sizes = real, sizes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def send(self, data: Any) -> int:
        self._sizes.append(len(data))
        return int(self._real.send(data))


@async_test
async def test_pieces_are_sent_in_order_a_bounded_part_at_a_time(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, server = connection.client, connection.server
    sizes = noted_sends(connection, monkeypatch)
    pieces = [b"header", LARGE, b"\r\n", b"s" * 100, b"", LARGE[:-7], b"end"]
    server.transport.writeSequence(pieces)
    server.transport.write(b"behind")
    assert len(LARGE) < server.transport.unsent <= 2 * len(LARGE) + 200
    whole = b"".join(pieces) + b"behind"
    await until_read(client, lambda: len(client.received) >= len(whole))
    assert client.received == whole
    assert server.transport.unsent == 0
    assert max(sizes) <= SEND_MAX


@async_test
async def test_a_long_piece_that_waits_is_the_one_that_was_written(connection: Connection) -> None:
    server = connection.server
    server.transport.writeSequence([b"header", LARGE])
    transport = server.transport
    if isinstance(transport, EagerTls):
        waiting = [memoryview(piece).obj for piece in transport._appSendBuffer]
    else:
        waiting = [transport.dataBuffer, *transport._tempDataBuffer]
    assert any(piece is LARGE for piece in waiting)


@async_test
async def test_little_is_encrypted_in_a_turn_and_the_producer_waits_for_the_rest(connection: Connection) -> None:
    client, server = connection.client, connection.server
    transport, producer = server.transport, Producer()
    if not isinstance(transport, EagerTls):
        return  # there is nothing to encrypt
    transport.registerProducer(producer, streaming=True)
    transport.writeSequence([LARGE])
    assert sum(map(len, transport._appSendBuffer)) >= len(LARGE) - ENCRYPTED_AT_ONCE - RECORD
    assert producer.calls == ["pause"]
    left = sum(map(len, transport._appSendBuffer))
    while left:
        client.read()
        await deferLater(reactor, 0)
        now = sum(map(len, transport._appSendBuffer))
        assert left - now <= 4 * (ENCRYPTED_AT_ONCE + RECORD)  # in the turns that the two of us took
        left = now
        assert producer.calls == ["pause"] or not left
    await until_read(client, lambda: len(client.received) == len(LARGE))
    await wait_until(lambda: producer.calls == ["pause", "resume"])
    assert client.received == LARGE
    transport.unregisterProducer()


@async_test
async def test_a_close_waits_for_large_pieces(connection: Connection) -> None:
    client, server = connection.client, connection.server
    server.transport.registerProducer(Producer(), streaming=True)
    server.transport.writeSequence([b"header", LARGE])
    server.transport.unregisterProducer()
    server.transport.loseConnection()
    await until_read(client, lambda: client.ended)
    assert client.received == b"header" + LARGE


@async_test
async def test_an_abort_drops_large_pieces_at_once(connection: Connection) -> None:
    client, server = connection.client, connection.server
    server.transport.writeSequence([b"header", LARGE])
    server.transport.abortConnection()
    assert server.transport.unsent == 0
    await until_read(client, lambda: client.ended)
    assert len(client.received) < len(LARGE)


@async_test
async def test_no_pieces_are_nothing(connection: Connection) -> None:
    connection.server.transport.writeSequence([])
    connection.server.transport.write(b"hello")
    await until_read(connection.client, lambda: connection.client.received == b"hello")
