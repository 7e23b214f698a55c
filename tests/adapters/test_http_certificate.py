"""A certificate that has been renewed is taken up while the daemon runs; who is connected notices nothing."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import pytest_twisted
from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol, wrapClientTLS
from twisted.internet.ssl import CertificateOptions
from twisted.logger import LogEvent, LogLevel, globalLogPublisher

from disqued.web.server import AdminError, AdminServer
from tests.adapters.inprocess import RawClient, Running
from tests.adapters.test_tls import Shows
from tests.certificates import Authority, make_certificate

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred

#: Twisted gives pyOpenSSL objects of its own, which that would rather not be given any more.
pytestmark = pytest.mark.filterwarnings("ignore:Passing pyOpenSSL:DeprecationWarning")

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


class Browser(RawClient):
    """A connection that stays open from one request to the next."""

    async def ask(self) -> int:
        """Ask for something; returns the serial number of the certificate that the server has shown."""
        self.received.clear()
        self.transport.write(REQUEST)
        await self.until(lambda: self.received.endswith(b"}"))
        assert self.received.startswith(b"HTTP/1.1 200 OK\r\n")
        return int(self.transport.getPeerCertificate().get_serial_number())

    def dataReceived(self, data: bytes) -> None:
        """Keep what comes."""
        self.received += data
        self._look()


@attrs.define
class Served:
    """An admin side with TLS, and where its key and certificate lie."""

    server: AdminServer
    key: Path
    certificate: Path
    serial: int  #: of the certificate that it began with
    browsers: list[Browser] = attrs.field(factory=list)

    async def connect(self) -> Browser:
        """Connect one more browser."""
        where = TCP4ClientEndpoint(reactor, "127.0.0.1", self.server.port)
        browser = await connectProtocol(wrapClientTLS(CertificateOptions(verify=False), where), Browser())
        self.browsers.append(browser)
        return browser


@pytest_twisted.async_yield_fixture
async def served(launch: Launch, tmp_path: Path) -> AsyncIterator[Served]:
    key, certificate = tmp_path / "node.key", tmp_path / "node.pem"
    serial = make_certificate(key, certificate)
    (tmp_path / "tokens").write_text("ann viewer 0123456789abcdef")
    (tmp_path / "tokens").chmod(0o600)
    endpoint = f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}"
    running = launch(f"http-endpoint {endpoint}\nhttp-token-file {tmp_path}/tokens")
    found = Served(AdminServer(running.daemon), key, certificate, serial)
    found.server.listen()
    yield found
    for browser in found.browsers:
        if not browser.lost:
            browser.transport.abortConnection()
            await browser.closed()
    await found.server.stop()


@pytest.fixture
def told() -> Iterator[list[LogEvent]]:
    """What is logged."""
    events: list[LogEvent] = []
    globalLogPublisher.addObserver(events.append)
    yield events
    globalLogPublisher.removeObserver(events.append)


def levels(events: list[LogEvent]) -> list[Any]:
    return [event["log_level"] for event in events if event.get("log_format", "").startswith("SIGHUP")]


@async_test
async def test_a_renewed_certificate_is_shown_to_new_connections_and_open_ones_go_on(
    served: Served, told: list[LogEvent]
) -> None:
    before = await served.connect()
    assert await before.ask() == served.serial
    renewed = make_certificate(served.key, served.certificate)
    assert await (await served.connect()).ask() == served.serial, "nobody has said so yet"
    served.server.renew()
    assert await (await served.connect()).ask() == renewed
    assert await before.ask() == served.serial
    assert not before.lost
    again = make_certificate(served.key, served.certificate)
    served.server.renew()
    assert await (await served.connect()).ask() == again
    assert levels(told) == [LogLevel.info] * 2


def _mismatched(served: Served) -> None:
    make_certificate(served.key.with_name("other.key"), served.certificate)


@pytest.mark.parametrize(
    "spoil",
    [
        _mismatched,
        lambda served: served.certificate.write_text("half of it"),
        lambda served: served.key.unlink(),
    ],
    ids=["key of another certificate", "no certificate", "no key"],
)
@async_test
async def test_a_certificate_that_is_no_good_is_told_and_the_old_one_stays(
    served: Served, told: list[LogEvent], spoil: Callable[[Served], None]
) -> None:
    spoil(served)
    served.server.renew()
    assert await (await served.connect()).ask() == served.serial
    assert levels(told) == [LogLevel.error]
    renewed = make_certificate(served.key, served.certificate)
    served.server.renew()
    assert await (await served.connect()).ask() == renewed


@async_test
async def test_a_key_of_another_certificate_stops_the_start(launch: Launch, tmp_path: Path) -> None:
    key, certificate = tmp_path / "node.key", tmp_path / "node.pem"
    make_certificate(tmp_path / "other.key", certificate)
    make_certificate(key, tmp_path / "other.pem")
    (tmp_path / "tokens").write_text("ann viewer 0123456789abcdef")
    (tmp_path / "tokens").chmod(0o600)
    endpoint = f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}"
    server = AdminServer(launch(f"http-endpoint {endpoint}\nhttp-token-file {tmp_path}/tokens").daemon)
    with pytest.raises(AdminError, match=r"http-endpoint ssl:0.* do not match"):
        server.listen()
    await server.stop()


@async_test
async def test_with_an_authority_nobody_reaches_the_page_who_has_no_certificate_of_it(
    launch: Launch, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    key, certificate = authority.issue("node", "127.0.0.1")
    (tmp_path / "tokens").write_text("ann viewer 0123456789abcdef")
    (tmp_path / "tokens").chmod(0o600)
    endpoint = f"ssl:0:interface=127.0.0.1:privateKey={key}:certKey={certificate}:caCerts={authority.file}"
    running = launch(f"http-endpoint {endpoint}\nhttp-token-file {tmp_path}/tokens")
    server = AdminServer(running.daemon)
    server.listen()
    where = TCP4ClientEndpoint(reactor, "127.0.0.1", server.port)
    browser = await connectProtocol(wrapClientTLS(Shows(authority.issue("ann")), where), Browser())
    await browser.ask()
    browser.transport.abortConnection()
    await browser.closed()
    for own in (None, Authority(tmp_path, "another authority").issue("eve")):
        refused = await connectProtocol(wrapClientTLS(Shows(own), where), Browser())
        refused.transport.write(REQUEST)
        await refused.closed()
        assert refused.received == b""
    await server.stop()


@async_test
async def test_without_tls_there_is_nothing_to_renew(launch: Launch, told: list[LogEvent]) -> None:
    server = AdminServer(launch("http-port 0").daemon)
    server.listen()
    server.renew()
    assert levels(told) == []
    await server.stop()
