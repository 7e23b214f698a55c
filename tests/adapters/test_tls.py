"""TLS of clients: who is let in, who is not, what is told of it, and certificates that change."""

import gc
import os
import select
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import pytest_twisted
from OpenSSL import SSL
from twisted.internet import reactor
from twisted.internet.defer import maybeDeferred
from twisted.internet.endpoints import TCP4ClientEndpoint, UNIXClientEndpoint, connectProtocol, wrapClientTLS
from twisted.internet.interfaces import IOpenSSLClientConnectionCreator
from twisted.internet.task import Clock
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from zope.interface import implementer

from disqued.config import Config
from disqued.net.loop import certificates as certificates_module
from disqued.net.loop import tlstransport as tls_module
from disqued.net.loop.certificates import CertificateError, TlsListeners, certificates_of
from disqued.net.loop.endpoints import EndpointError, listen_at
from disqued.net.loop.handles import Handle
from disqued.net.loop.rounds import Rounds
from disqued.net.loop.tlstransport import EagerTls, TlsFactory, reason_of
from disqued.net.loop.transport import EagerPort
from disqued.tls.context import Certificates, ClientCertificates, TlsError, TlsFiles
from tests.adapters.inprocess import RawClient, RecordingStore, Running, wait_until
from tests.certificates import LIFE, Authority

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred

#: Twisted gives pyOpenSSL objects of its own, which that would rather not be given any more.
pytestmark = pytest.mark.filterwarnings("ignore:Passing pyOpenSSL:DeprecationWarning")

PING = b"*1\r\n$4\r\nPING\r\n"


@implementer(IOpenSSLClientConnectionCreator)
@attrs.define
class Shows:
    """The end of a client: the certificate that it shows, if any."""

    own: tuple[Path, Path] | None = None  #: key, certificate

    def clientConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        context = SSL.Context(SSL.TLS_METHOD)
        if self.own is not None:
            context.use_privatekey_file(str(self.own[0]))
            context.use_certificate_file(str(self.own[1]))
        return SSL.Connection(context, None)


class Client(RawClient):
    """A client that notes how it ended."""

    def connectionLost(self, reason: Any = None) -> None:
        self.reason = reason
        super().connectionLost(reason)

    def dataReceived(self, data: bytes) -> None:
        self.received += data
        self._look()

    async def ping(self) -> None:
        """Be answered."""
        before = len(self.received)
        self.transport.write(PING)
        await self.until(lambda: len(self.received) >= before + 7)


@attrs.define
class Served:
    """A daemon in this process with a port for TLS."""

    running: Running
    secured: TlsListeners
    authority: Authority
    folder: Path
    certificates: Certificates
    port: Any

    async def connect(self, own: tuple[Path, Path] | None = None) -> Client:
        """Connect, and go on when the handshake is over on this side."""
        where = TCP4ClientEndpoint(reactor, "127.0.0.1", self.port.getHost().port)
        client: Client = await connectProtocol(wrapClientTLS(Shows(own), where), Client())
        self.running.clients.append(client)
        return client

    async def refused(self, own: tuple[Path, Path] | None = None) -> None:
        """See to it that a client is not let in."""
        failed = self.secured.failed_handshakes
        client = await self.connect(own)
        client.transport.write(PING)
        await wait_until(lambda: client.lost)
        assert client.received == b""
        await wait_until(lambda: self.secured.failed_handshakes == failed + 1)


Serve = Callable[..., Served]


@pytest_twisted.async_yield_fixture
async def serve(launch: Launch, tmp_path: Path) -> AsyncIterator[Serve]:
    ports: list[Any] = []

    def begin(asked: str = "yes", settings: str = "", store: Any = None) -> Served:
        running = launch(settings, store)
        authority = Authority(tmp_path)
        key, certificate = authority.issue("node", "127.0.0.1")
        files = TlsFiles(certificate=certificate, key=key, ca=authority.file, asked=ClientCertificates(asked))
        certificates, secured = Certificates(files.context), running.daemon.tls
        factory = secured.factory("tls-port", certificates, running.daemon.clients)
        port = EagerPort(0, factory, 50, "127.0.0.1", reactor)
        port.startListening()
        ports.append(port)
        return Served(running, secured, authority, tmp_path, certificates, port)

    yield begin
    for port in ports:
        await maybeDeferred(port.stopListening)


@pytest.fixture
def told() -> Iterator[list[str]]:
    """What is logged of TLS."""
    lines: list[str] = []

    def note(event: LogEvent) -> None:
        if event.get("log_namespace", "").startswith("disqued.net.loop.certificates"):
            lines.append(formatEvent(event))

    globalLogPublisher.addObserver(note)
    yield lines
    globalLogPublisher.removeObserver(note)


@async_test
async def test_who_has_a_certificate_of_the_authority_is_a_client_like_any_other(serve: Serve) -> None:
    served = serve()
    client = await served.connect(served.authority.issue("client"))
    await client.ping()
    assert client.received == b"+PONG\r\n"
    (session,) = served.running.daemon.clients.sessions()
    assert session.address.startswith("127.0.0.1:")
    assert session.peer.descriptor > 2
    assert session.output_buffered == 0
    assert not session.is_gone()


@async_test
async def test_client_list_tells_by_whose_certificate_and_where_each_client_came_in(serve: Serve) -> None:
    served = serve("optional")
    own = served.authority.issue("ann 1")
    with_one, without = await served.connect(own), await served.connect()
    for client in (with_one, without):
        await client.ping()
    plain = await served.running.connect()
    listed = (await plain.call("CLIENT", "LIST")).decode().splitlines()
    port, other = served.port.getHost().port, served.running.port.getHost().port
    assert [line.partition(" laddr=")[2] for line in listed] == [
        f"127.0.0.1:{port} tls-cn=ann%201",
        f"127.0.0.1:{port}",
        f"127.0.0.1:{other}",
    ]
    assert await plain.call("CLIENT", "KILL", "LADDR", f"127.0.0.1:{port}", "USER", "default") == 2
    await with_one.closed()
    await without.closed()


@async_test
async def test_who_has_none_or_one_of_another_authority_or_an_old_one_is_no_client_and_the_log_says_why(
    serve: Serve, told: list[str]
) -> None:
    served = serve()
    other = Authority(served.folder, "another authority")
    await served.refused()
    await served.refused(other.issue("stranger"))
    await served.refused(served.authority.issue("former", ends_in=-LIFE))
    begun = "TLS with 127.0.0.1 comes to nothing: "
    assert [line.removeprefix(begun) for line in told if line.startswith(begun)] == [
        "it shows no certificate",
        "its certificate is of another authority",
        "its certificate has expired",
    ]
    await served.refused()
    assert len([line for line in told if line.startswith(begun)]) == 3, "the log hears of each thing once"
    assert served.running.daemon.clients.accepted == 0
    facts = served.running.daemon.facts()["Server"]
    assert facts["tls_failed_handshakes"] == 4
    assert 0 < facts["tls_certificate_expires_in_seconds"] <= LIFE.total_seconds()


@pytest.mark.parametrize("asked", ["no", "optional"])
@async_test
async def test_without_the_duty_to_show_one_whoever_comes_is_let_in(serve: Serve, asked: str) -> None:
    served = serve(asked)
    await (await served.connect()).ping()
    await (await served.connect(served.authority.issue("client"))).ping()
    stranger = Authority(served.folder, "another authority").issue("stranger")
    if asked == "optional":
        await served.refused(stranger)
    else:
        await (await served.connect(stranger)).ping()


@async_test
async def test_who_speaks_no_tls_is_told_by_an_alert_and_ends(serve: Serve, told: list[str]) -> None:
    served = serve()
    client = await connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", served.port.getHost().port), Client())
    client.transport.write(PING)
    await wait_until(lambda: client.lost)
    assert client.received == tls_module.ALERT
    assert told[-1] == "TLS with 127.0.0.1 comes to nothing: it speaks no TLS"
    assert not served.running.daemon.clients.by_id


@async_test
async def test_a_client_of_tls_on_the_port_without_it_ends(serve: Serve) -> None:
    served = serve()
    where = TCP4ClientEndpoint(reactor, "127.0.0.1", served.running.port.getHost().port)
    client: Client = await connectProtocol(wrapClientTLS(Shows(), where), Client())
    served.running.clients.append(client)
    client.transport.write(PING)
    await wait_until(lambda: client.lost)
    assert client.received == b""


@async_test
async def test_one_client_too_many_is_told_so(serve: Serve) -> None:
    served = serve(settings="maxclients 1")
    own = served.authority.issue("client")
    await (await served.connect(own)).ping()
    client = await served.connect(own)
    await wait_until(lambda: client.lost)
    assert client.received == b"-ERR max number of clients reached\r\n"


@async_test
async def test_renewed_files_are_for_new_connections_and_open_ones_go_on(serve: Serve, told: list[str]) -> None:
    served = serve()
    before = served.authority.issue("client")
    open_one = await served.connect(before)
    await open_one.ping()
    again = Authority(served.folder)  # of the same name, with another key
    after = again.issue("client-of-now")
    again.issue("node", "127.0.0.1")
    await served.refused(after)
    served.secured.renew()
    assert told[-2] == "SIGHUP: the certificate of tls-port was read anew, for connections from now on"
    await (await served.connect(after)).ping()
    await served.refused(before)
    await open_one.ping()
    assert not open_one.lost


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("node.pem", "half of it", "tls-cert-file .*node.pem: .*; certificates in the form PEM are needed"),
        (
            "node.key",
            "half of it",
            "tls-key-file .*node.key: no key in the form PEM that can be read without a password",
        ),
        ("authority-under-test.pem", "", "tls-ca-cert-file .*authority-under-test.pem: .* in the form PEM are needed"),
    ],
)
@async_test
async def test_files_that_are_no_good_are_told_and_what_was_in_force_stays(
    serve: Serve, told: list[str], file: str, text: str, said: str
) -> None:
    served = serve()
    own = served.authority.issue("client")
    (served.folder / file).write_text(text)
    served.secured.renew()
    assert told[-1].startswith("SIGHUP: tls-port keeps its certificate: ")
    with pytest.raises(TlsError, match=said):
        served.certificates.renew()
    await (await served.connect(own)).ping()


def put_pipe(path: Path) -> None:
    """Put a pipe that nobody writes to in the place of a file."""
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: (folder / "node.key").unlink(), "tls-key-file .*node.key: No such file"),
        (lambda folder: (folder / "node.pem").unlink(), "tls-cert-file .*node.pem: No such file"),
        (lambda folder: (folder / "authority-under-test.pem").unlink(), "tls-ca-cert-file .*: No such file"),
        (lambda folder: put_pipe(folder / "node.pem"), "tls-cert-file .*node.pem: this is a pipe; a file with certif"),
        (lambda folder: put_pipe(folder / "authority-under-test.pem"), "tls-ca-cert-file .*: this is a pipe; a file"),
        (lambda folder: put_pipe(folder / "node.key"), "tls-key-file .*node.key: this is no regular file"),
        (lambda folder: (folder / "node.key").chmod(0o644), "tls-key-file .*: every user of this machine may read it"),
        (
            lambda folder: Authority(folder, "x").issue("y")[0].rename(folder / "node.key"),
            "tls-key-file .*: this is the key of another certificate than that of tls-cert-file",
        ),
        (
            lambda folder: Authority(folder).issue("node", password=b"secret"),
            "tls-key-file .*: no key in the form PEM that can be read without a password",
        ),
    ],
    ids=[
        "no key",
        "no certificate",
        "no authority",
        "pipe of a certificate",
        "pipe of an authority",
        "pipe of a key",
        "key of everybody",
        "key of another",
        "encrypted key",
    ],
)
def test_files_that_cannot_be_used_stop_the_start_with_what_is_wrong(
    tmp_path: Path, spoil: Callable[[Path], object], said: str
) -> None:
    authority = Authority(tmp_path)
    key, certificate = authority.issue("node", "127.0.0.1")
    spoil(tmp_path)
    config = Config.from_text(
        f"tls-port 1\ntls-cert-file {certificate}\ntls-key-file {key}\ntls-ca-cert-file {authority.file}"
    )
    with pytest.raises(CertificateError, match=said):
        certificates_of(config, "yes")


@pytest.mark.parametrize(
    ("ends_in", "said"),
    [(-LIFE, "has expired, "), (LIFE, "expires soon, "), (29 * LIFE, "expires soon, "), (31 * LIFE, "")],
    ids=["past", "soon", "within the month", "later"],
)
def test_a_certificate_that_ends_is_warned_of_when_it_is_read_and_each_day(
    tmp_path: Path, told: list[str], ends_in: Any, said: str
) -> None:
    key, certificate = Authority(tmp_path).issue("node", ends_in=ends_in)
    clock = Clock()
    secured = TlsListeners(clock)
    assert secured.facts() == {}, "nothing is told where there is no TLS"
    secured.take("tls-port", Certificates(TlsFiles(certificate=certificate, key=key, ca=None).context))
    assert len(told) == bool(said)
    clock.advance(certificates_module.DAY_S)
    clock.advance(certificates_module.DAY_S)
    assert len(told) == 3 * bool(said)
    assert all(said in line for line in told)
    assert (secured.facts()["tls_certificate_expires_in_seconds"] < 0) == (said == "has expired, ")
    secured.stop()
    assert not clock.getDelayedCalls()


def test_the_end_of_each_certificate_is_known_by_where_it_is_shown_and_the_first_is_told(
    tmp_path: Path, told: list[str]
) -> None:
    authority, clock = Authority(tmp_path), Clock()

    def issued(name: str, days: int) -> Certificates:
        key, certificate = authority.issue(name, ends_in=days * LIFE)
        return Certificates(TlsFiles(certificate=certificate, key=key, ca=None).context)

    secured = TlsListeners(clock)
    assert secured.ends == {}
    bus, page = issued("bus", 50), issued("page", 40)
    for _ in range(2):  # one port of the bus for each address, and one certificate
        secured.take("tls-cluster", bus)
    secured.take("http-endpoint", page, renews=False)
    assert told == []
    for text, days in (("endpoint ssl:7713:privateKey=a", 60), ("endpoint ssl:7713:privateKey=b", 45)):
        secured.take(text, issued("client", days), label="endpoint *:7713")
    assert list(secured.ends) == ["http-endpoint", "endpoint *:7713", "tls-cluster"]
    assert secured.ends["endpoint *:7713"] < secured.ends["tls-cluster"] == bus.ends_at
    assert secured.facts()["tls_certificate_expires_first"] == "http-endpoint"
    authority.issue("page", ends_in=2 * LIFE)
    page.renew()
    secured.look("http-endpoint")
    assert len(told) == 1, "who renews it has it looked at"
    assert "The certificate of http-endpoint expires soon" in told[0]
    authority.issue("bus", ends_in=LIFE)
    secured.renew()
    assert len([line for line in told if "tls-cluster expires soon" in line]) == 1
    assert secured.facts()["tls_certificate_expires_first"] == "tls-cluster"
    secured.stop()


# Handshakes that come to no end.


class Wire:
    """A transport that takes everything."""

    disconnecting = False

    def __init__(self) -> None:
        self.ended = ""

    def write(self, data: bytes) -> None:
        """Take it."""

    def loseConnection(self) -> None:
        self.ended = self.ended or "lost"

    def abortConnection(self) -> None:
        self.ended = "aborted"


@attrs.define
class Shaking:
    """A factory on a clock of ours, and what it was told of failed handshakes."""

    factory: TlsFactory
    clock: Clock
    failed: list[str]

    def begin(self) -> tuple[EagerTls, Wire]:
        connection, wire = self.factory.buildProtocol(None), Wire()
        connection.makeConnection(wire)
        return connection, wire


@pytest.fixture
def shaking(tmp_path: Path) -> Shaking:
    key, certificate = Authority(tmp_path).issue("node")
    clock, failed = Clock(), []
    certificates = Certificates(TlsFiles(certificate=certificate, key=key, ca=None).context)
    return Shaking(TlsFactory(certificates, None, clock, lambda address, reason: failed.append(reason)), clock, failed)


def test_a_handshake_has_ten_seconds(shaking: Shaking) -> None:
    connection, wire = shaking.begin()
    shaking.clock.advance(tls_module.HANDSHAKE_S - 0.1)
    assert not wire.ended
    shaking.clock.advance(0.2)
    assert wire.ended == "aborted"
    connection.connectionLost(Failure(ConnectionError()))
    assert shaking.failed == ["the handshake took longer than 10 s"]
    assert not shaking.clock.getDelayedCalls()


def test_of_too_many_handshakes_the_first_has_had_its_chance(shaking: Shaking) -> None:
    begun = [shaking.begin() for _ in range(tls_module.SHAKING_MAX)]
    assert not any(wire.ended for _, wire in begun)
    shaking.begin()
    assert [wire.ended for _, wire in begun] == ["aborted"] + [""] * (tls_module.SHAKING_MAX - 1)
    shaking.begin()
    assert [wire.ended for _, wire in begun[:3]] == ["aborted", "aborted", ""]
    begun[0][0].connectionLost(Failure(ConnectionError()))
    assert shaking.failed == ["too many others are in their handshakes"]


def test_handshakes_end_when_nobody_listens_any_more(shaking: Shaking) -> None:
    begun = [shaking.begin() for _ in range(3)]
    shaking.factory.stopFactory()
    assert [wire.ended for _, wire in begun] == ["aborted"] * 3


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SSL.Error([("SSL routines", "", "wrong version number")]), "it speaks no TLS"),
        (SSL.Error([("SSL routines", "", "http request")]), "it speaks no TLS"),
        (SSL.Error([("SSL routines", "", "tlsv1 alert unknown ca")]), "it refuses us: tlsv1 alert unknown ca"),
        (SSL.Error([("SSL routines", "", "no shared cipher")]), "no shared cipher"),
        (SSL.Error([]), "TLS has failed"),
        (ConnectionResetError("reset"), "reset"),
    ],
)
def test_why_a_connection_has_ended_is_said_in_words(error: Exception, said: str) -> None:
    assert reason_of(Failure(error)) == said


# Endpoint strings.


@async_test
async def test_clients_come_through_every_kind_of_endpoint(launch: Launch, tmp_path: Path) -> None:
    running = launch()
    daemon = running.daemon
    authority = Authority(tmp_path)
    key, certificate = authority.issue("node", "127.0.0.1")
    texts = [
        "tcp:0:interface=127.0.0.1",
        f"unix:{tmp_path / 'queue.sock'}",
        f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}:caCerts={authority.file}",
    ]
    ports = [listen_at(text, daemon.clients, reactor, daemon.tls) for text in texts]
    tcp, tls = (TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port) for port in (ports[0], ports[2]))
    ways = [
        tcp,
        UNIXClientEndpoint(reactor, os.fspath(tmp_path / "queue.sock")),
        wrapClientTLS(Shows(authority.issue("client")), tls),
    ]
    for way in ways:
        client = await connectProtocol(way, Client())
        running.clients.append(client)
        await client.ping()
        assert client.received == b"+PONG\r\n"
    stranger = await connectProtocol(wrapClientTLS(Shows(), tls), Client())
    await wait_until(lambda: stranger.lost)
    assert stranger.received == b""
    assert len(daemon.clients.by_id) == 3
    assert [session.address for session in daemon.clients.sessions()][1] == f"{tmp_path / 'queue.sock'}:0"
    assert [session.peer.local_address for session in daemon.clients.sessions()] == [
        f"127.0.0.1:{ports[0].getHost().port}",
        f"{tmp_path / 'queue.sock'}:0",
        f"127.0.0.1:{ports[2].getHost().port}",
    ]
    assert [session.peer.certificate_name for session in daemon.clients.sessions()] == ["", "", "client"]
    assert list(daemon.tls.ends) == ["endpoint 127.0.0.1:0"], "no path of a key is shown"
    for session in daemon.clients.sessions():
        assert session.output_buffered == 0
        assert not session.is_gone()
    for port in ports:
        await maybeDeferred(port.stopListening)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tcp:x:interface=127.0.0.1", "endpoint tcp:x:interface=127.0.0.1: .*; allowed are endpoint strings such as"),
        ("nonsense:1", "no endpoint for clients is of the kind 'nonsense'"),
        ("ssl:0:privateKey={key}:certKey={key}.missing", "No such file"),
        ("ssl:0:privateKey={key}:certKey={certificate}:caCerts={key}", "caCerts .*: .*certificates in the form PEM"),
        ("ssl:0:privateKey={key}:certKey={certificate}:clientAuth=yes", "clientAuth=yes: without caCerts"),
        ("ssl:0:privateKey={key}:certKey={certificate}:caCerts={ca}:clientAuth=no", "clientAuth=no: allowed are yes"),
        ("unix:/nowhere/at/all", "there is no such folder"),
    ],
)
@async_test
async def test_an_endpoint_that_cannot_be_listened_at_is_told(
    launch: Launch, tmp_path: Path, text: str, said: str
) -> None:
    daemon = launch().daemon
    authority = Authority(tmp_path)
    key, certificate = authority.issue("node", "127.0.0.1")
    written = text.format(key=key, certificate=certificate, ca=authority.file)
    with pytest.raises(EndpointError, match=said):
        listen_at(written, daemon.clients, reactor, daemon.tls)


@async_test
async def test_a_reply_that_waits_for_a_commit_leaves_though_its_request_came_with_a_farewell(serve: Serve) -> None:
    served = serve("optional", store=RecordingStore())
    client = await served.connect()
    await client.ping()
    client.transport.write(PING)
    client.transport.loseConnection()
    await client.closed()
    assert client.received == b"+PONG\r\n" * 2


@async_test
async def test_a_connection_that_has_ended_is_kept_by_nobody(serve: Serve) -> None:
    served = serve("optional")
    client = await served.connect()
    await client.ping()
    [connection] = served.running.daemon.clients.by_id.values()
    connection.dataReceived(b"*1\r\n$9000\r\nhalf")
    transport, parser = weakref.ref(connection.transport), connection._input.parser
    assert parser.held
    gc.collect()
    gc.disable()
    try:
        client.transport.loseConnection()
        await wait_until(lambda: not served.running.daemon.clients.by_id)
        assert connection._input.parser is not parser
        del connection
        await wait_until(lambda: transport() is None)
    finally:
        gc.enable()


@async_test
async def test_what_was_written_after_the_end_is_refused(serve: Serve) -> None:
    served = serve("optional")
    client = await served.connect()
    await client.ping()
    [connection] = served.running.daemon.clients.by_id.values()
    connection.transport.abortConnection()
    connection.transport.write(b"too late")
    assert connection.transport.refused
    assert connection.transport.is_gone()
    await client.closed()


@async_test
async def test_what_a_round_has_read_is_not_overtaken_when_somebody_asks_whether_the_other_end_is_there(
    serve: Serve,
) -> None:
    served = serve("optional")
    client = await served.connect()
    await client.ping()
    [connection] = served.running.daemon.clients.by_id.values()
    below = connection.transport.transport
    looks: list[int] = []

    class Looked:
        """The socket, and how often it was read beside the loop."""

        def __init__(self, real: Any) -> None:
            self._real = real

        def recv(self, size: int, flags: int = 0) -> bytes:
            if flags:
                looks.append(size)
            return bytes(self._real.recv(size, flags))

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

    below.socket = Looked(below.socket)
    rounds: Any = reactor.rounds  # type: ignore[attr-defined]
    rounds._delivered = [(below.handle, b"of this round")]
    assert not connection.session.is_gone()
    assert looks == []
    rounds._delivered = []
    assert not connection.session.is_gone()
    assert len(looks) == 1
    await client.ping()


def test_a_round_holds_what_it_has_read_whether_replies_are_kept_back_or_not() -> None:
    held: list[bool] = []

    class Here:
        def __init__(self) -> None:
            self.protocol = self
            self.handle = Handle(self)
            self.handle.recv = self.recv

        def recv(self, size: int) -> bytes:
            return b"data"

        def dataReceived(self, data: bytes) -> None:
            held.append(rounds.holds(self))

    here = Here()
    rounds = Rounds({5: here}, lambda *_: None, lambda *_: None, lambda: 0.0)
    rounds.run([(5, select.EPOLLIN)])
    assert held == [True]
    assert not rounds.holds(here)
