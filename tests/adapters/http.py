"""The admin side of a daemon in the process of the test, asked over HTTP that never leaves memory.

    client.get("/api/info") --bytes of HTTP/1.1--> Twisted's channel --> app.Root --> a real daemon
                            <-- Answer(status, headers, body)

The daemon is the one of `inprocess`, with a port for RESP clients, too; the HTTP side has none: requests are fed to
Twisted's channel as if they had come from an address that the test chooses.
"""

import gzip
import io
import json
from collections import deque
from http.client import HTTPResponse
from typing import Any, NamedTuple, cast

import attrs
from twisted.internet.address import IPv4Address
from twisted.internet.testing import StringTransportWithDisconnection
from twisted.web.server import Site as HttpSite

from disqued.web.server import AdminServer
from disqued.web.site import Site
from disqued.web.turns import TurnTaker
from tests.adapters.inprocess import Running, wait_until

LOCAL = ("127.0.0.1", 50_000)  #: who asks, unless a test says so
HOST = "127.0.0.1:7780"


class AtOnce:
    """Gives every connection its turn at once, in the order they came: nothing is left to a later turn of the loop."""

    def __init__(self) -> None:
        self._waiting: deque[TurnTaker] = deque()
        self._is_at_work = False

    def add(self, client: TurnTaker, *, is_short: bool) -> None:
        """Let it have its turn, behind those that wait already."""
        self.add_piece(client)

    def add_piece(self, piece: TurnTaker) -> None:
        """The same for a piece of long work."""
        self._waiting.append(piece)
        if self._is_at_work:
            return
        self._is_at_work = True
        try:
            while self._waiting:
                self._waiting.popleft().turn()
        finally:
            self._is_at_work = False


class Answer(NamedTuple):
    """What came back."""

    status: int
    headers: dict[str, str]  #: by lower-case name
    body: Any  #: JSON where the media type says so, else bytes; unpacked where it came in gzip


class _Received:
    """Bytes that `HTTPResponse` takes for a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_: Any) -> io.BytesIO:
        return io.BytesIO(self._data)


@attrs.define
class Exchange:
    """One request under way; `received` grows while an answer streams."""

    transport: Any
    protocol: Any
    method: str

    @property
    def received(self) -> bytes:
        """Every byte that came back so far, status line and headers included."""
        return bytes(self.transport.value())

    @property
    def ended(self) -> bool:
        """True once the server has closed the connection, which it does after one answer."""
        return not self.transport.connected

    def send(self, data: bytes) -> None:
        """Send more of the request."""
        self.protocol.dataReceived(data)

    def hang_up(self) -> None:
        """Close the connection from this end."""
        if not self.ended:
            self.transport.loseConnection()

    async def answer(self) -> Answer:
        """Wait for the whole answer."""
        await wait_until(lambda: self.ended)
        return read_answer(self.received, self.method)


def read_answer(received: bytes, method: str = "GET") -> Answer:
    """Take an answer apart."""
    response = HTTPResponse(cast(Any, _Received(received)), method=method)
    response.begin()
    body: Any = response.read()
    headers = {name.lower(): value for name, value in response.getheaders()}
    if body and headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    if body and "json" in headers.get("content-type", "").replace("x-ndjson", "lines"):
        body = json.loads(body)
    return Answer(response.status, headers, body)


@attrs.define
class AdminClient:
    """Asks the admin side of one daemon."""

    running: Running
    server: AdminServer
    factory: HttpSite
    #: On every request, below those that it is given itself.
    headers: dict[str, str] = attrs.field(factory=dict)

    @property
    def site(self) -> Site:
        """What routes get."""
        return self.server.site

    def begin(
        self, method: str, path: str, *, body: bytes = b"", headers: dict[str, str] | None = None,
        address: tuple[str, int] = LOCAL,
    ) -> Exchange:  # fmt: skip
        """Send a request and do not wait; the path goes out as it is written here."""
        transport = StringTransportWithDisconnection(peerAddress=IPv4Address("TCP", *address))
        protocol = self.factory.buildProtocol(IPv4Address("TCP", *address))
        transport.protocol = protocol
        protocol.makeConnection(transport)
        fields = {"Host": HOST, "Connection": "close", **self.headers, **(headers or {})}
        if body or method == "POST":
            fields.setdefault("Content-Length", str(len(body)))
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        exchange = Exchange(transport, protocol, method)
        exchange.send("\r\n".join(lines).encode("latin-1") + body)
        return exchange

    async def request(self, method: str, path: str, **how: Any) -> Answer:
        """Send a request and wait for its answer; `how` is as in `begin`."""
        return await self.begin(method, path, **how).answer()

    async def get(self, path: str, **how: Any) -> Answer:
        """GET."""
        return await self.request("GET", path, **how)

    async def post(self, path: str, value: Any = None, *, headers: dict[str, str] | None = None, **how: Any) -> Answer:
        """POST a JSON value."""
        fields = {"Content-Type": "application/json", **(headers or {})}
        return await self.request("POST", path, body=json.dumps(value).encode(), headers=fields, **how)

    async def stop(self) -> None:
        """Let go of what the admin side holds; the daemon goes on."""
        await self.server.stop()


def admin(running: Running) -> AdminClient:
    """The admin side of a daemon that runs; to be stopped before the daemon is."""
    server = AdminServer(running.daemon)
    return AdminClient(running, server, server.factory)
