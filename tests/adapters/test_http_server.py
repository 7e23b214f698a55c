"""Limits of HTTP: too much, too slow, too many, and clients that go away; on a clock that the test moves."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import pytest_twisted
from twisted.internet.address import IPv4Address, UNIXAddress
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection

from disqued.net.loop import buffers
from disqued.web import channel as module
from disqued.web.api import openapi
from disqued.web.channel import (
    BODY_SLACK,
    CONNECTIONS_MAX,
    IDLE_S,
    SHARE_MAX,
    STRANGERS_BODY_MAX,
    USUAL_BODY_MAX,
    AdminFactory,
)
from disqued.web.http.answers import begin
from disqued.web.http.exchange import Request, Role
from disqued.web.http.head_lines import HEADER_BYTES, HEADERS_MAX
from disqued.web.http.input_timer import HEADER_S, LINGER_S, PROGRESS_BYTES, PROGRESS_S
from disqued.web.http.unread import READ_S
from disqued.web.pages import render
from disqued.web.routes import ROUTES, Route
from disqued.web.server import AdminError, AdminServer
from disqued.web.site import Site
from tests.adapters.http import AdminClient, AtOnce, admin, read_answer
from tests.adapters.inprocess import Running, wait_until

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred
GET = b"GET /api/commands HTTP/1.1\r\nHost: localhost\r\n\r\n"
INFO = b"GET /api/info?section=server HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /logout HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
ADD = POST.replace(b"/logout", b"/api/add")


@attrs.define
class Line:
    """One connection, and the clock of its time-outs."""

    transport: Any
    protocol: Any
    clock: Clock

    def send(self, data: bytes) -> None:
        if self.transport.connected:
            self.protocol.dataReceived(data)

    @property
    def answers(self) -> bytes:
        return bytes(self.transport.value())

    @property
    def is_open(self) -> bool:
        return bool(self.transport.connected) and not self.transport.disconnecting


@attrs.define
class Hall:
    """An admin side whose connections come from memory."""

    factory: AdminFactory
    clock: Clock

    def connect(self, sent: bytes = b"", host: str | None = "127.0.0.1") -> Line:
        """A new connection; `host` None: through a Unix socket."""
        peer = UNIXAddress(None) if host is None else IPv4Address("TCP", host, 50_000)
        transport = StringTransportWithDisconnection(peerAddress=peer)
        protocol: Any = self.factory.buildProtocol(None)
        transport.protocol = protocol
        protocol.makeConnection(transport)
        line = Line(transport, protocol, self.clock)
        line.send(sent)
        return line


@pytest.fixture
def hall(launch: Launch) -> Hall:
    clock = Clock()
    return Hall(AdminFactory(admin(launch()).site, clock, AtOnce()), clock)


@pytest.fixture
def guarded(launch: Launch) -> Hall:
    clock = Clock()
    return Hall(AdminFactory(admin(launch("requirepass secret")).site, clock, AtOnce()), clock)


def problem_of(line: Line) -> tuple[int, str]:
    """Status and detail of the problem that a connection was ended with."""
    answer = read_answer(line.answers, "POST")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["connection"] == "close"
    line.clock.advance(LINGER_S)
    assert not line.transport.connected
    return answer.status, answer.body["detail"]


# Too much.


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"x" * HEADER_BYTES,
        b"GET / HTTP/1.1\r\nX: " + b"x" * HEADER_BYTES,
        b"GET / HTTP/1.1\r\n" + b"".join(b"X-%03d: %b\r\n" % (n, b"x" * 300) for n in range(60)),
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * (HEADERS_MAX + 5) + b"\r\n",
    ],
)
@async_test
async def test_headers_have_a_limit(hall: Hall, sent: bytes) -> None:
    assert problem_of(hall.connect(sent))[0] == 431


@async_test
async def test_a_body_that_is_too_large_is_refused_before_it_comes(hall: Hall) -> None:
    limit = hall.factory.body_limit
    assert problem_of(hall.connect(ADD + b"Content-Length: %d\r\n\r\n" % (limit + 1))) == (
        413, f"the body is longer than {limit} bytes",
    )  # fmt: skip


@async_test
async def test_a_body_in_chunks_is_refused_when_it_has_become_too_large(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BODY_MAX", 3)
    line = hall.connect(ADD + b"Transfer-Encoding: chunked\r\n\r\n")
    chunk = b"%x\r\n%b\r\n" % (BODY_SLACK, b"x" * BODY_SLACK)
    line.send(chunk)
    assert line.is_open
    assert hall.factory.budget.used == BODY_SLACK
    line.send(chunk)
    assert problem_of(line)[0] == 413
    assert hall.factory.budget.used == 0


@pytest.mark.parametrize(
    "target", ["/api/ack", "/api/commands/PING", "/api/bulk/ack", "/no/such", "http://localhost/api/ack"]
)
@async_test
async def test_a_request_that_brings_no_job_is_small(hall: Hall, target: str) -> None:
    post = POST.replace(b"/logout", target.encode())
    assert problem_of(hall.connect(post + b"Content-Length: %d\r\n\r\n" % (USUAL_BODY_MAX + 1)))[0] == 413
    line = hall.connect(post + b"Content-Length: %d\r\n\r\n" % USUAL_BODY_MAX)
    assert line.answers == b""
    assert line.is_open


@pytest.mark.parametrize("target", ["/api/add", "/api/add?", "/api/commands/ADDJOB", "http://localhost/api/add"])
@async_test
async def test_a_request_that_adds_a_job_may_be_as_large_as_one(hall: Hall, target: str) -> None:
    line = hall.connect(
        POST.replace(b"/logout", target.encode()) + b"Content-Length: %d\r\n\r\n" % (10 * USUAL_BODY_MAX)
    )
    assert line.answers == b""
    assert line.is_open


@async_test
async def test_the_limit_follows_the_largest_job(launch: Launch) -> None:
    factory = AdminFactory(admin(launch("proto-max-bulk-len 1mb")).site, Clock(), AtOnce())
    assert 4 * 2**20 // 3 <= factory.body_limit <= 4 * 2**20 // 3 + 2 * BODY_SLACK


@async_test
async def test_strangers_send_little(guarded: Hall) -> None:
    length = b"Content-Length: %d\r\n\r\n" % (STRANGERS_BODY_MAX + 1)
    assert problem_of(guarded.connect(POST + length))[0] == 413
    line = guarded.connect(POST + b"Authorization: Bearer secret\r\n" + length)
    assert line.answers == b""
    assert line.is_open
    for framing in (length, b"Transfer-Encoding: chunked\r\n\r\n"):
        assert problem_of(guarded.connect(POST + b"Authorization: Bearer nonsense\r\n" + framing))[0] == 401


@async_test
async def test_bodies_share_the_budget_of_all_connections(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(buffers, "MINIMUM", 110_000)
    clock = Clock()
    hall = Hall(AdminFactory(admin(launch("maxmemory 100kb")).site, clock, AtOnce()), clock)
    size = b"Content-Length: 200000\r\n\r\n"
    first, second = (hall.connect(ADD + size + b"x" * many) for many in (60_000, 90_000))
    assert hall.factory.budget.used == 150_000
    third = hall.connect(ADD + size + b"x" * 60_000)
    # The one that holds the most ends: the others hold more than the limit without it.
    assert problem_of(second) == (
        503, "all connections together hold too much, and this one most of it: 90000 bytes"
    )  # fmt: skip
    assert first.answers == third.answers == b""
    for line in (first, third):
        line.transport.loseConnection()
    assert hall.factory.budget.used == 0


@async_test
async def test_a_body_is_let_go_with_its_request(hall: Hall) -> None:
    line = hall.connect(POST + b"Content-Length: 4\r\n\r\nnull")
    await wait_until(lambda: b"204" in line.answers)
    assert hall.factory.budget.used == 0


WAITING = (
    b"POST /api/commands/GETJOB HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Content-Length: 17\r\n\r\n{"queues": ["q"]}'
)


def fill(hall: Hall, sent: bytes = b"") -> list[Line]:
    """Take every connection that there is: half from each of two addresses, one after the other."""
    lines = []
    for number in range(CONNECTIONS_MAX):
        lines.append(hall.connect(sent, f"10.0.0.{1 + number // SHARE_MAX}"))
        hall.clock.advance(0.01)
    return lines


@async_test
async def test_when_all_connections_are_taken_the_one_that_is_idle_for_longest_makes_room(hall: Hall) -> None:
    lines = fill(hall)
    lines[0].send(b"\r\n")
    late = hall.connect(INFO, "10.0.0.3")
    await wait_until(lambda: b"200 OK" in late.answers)
    assert late.is_open
    assert [number for number, line in enumerate(lines) if not line.is_open] == [1]
    assert len(hall.factory.channels) == CONNECTIONS_MAX


@async_test
async def test_a_health_check_gets_through_a_crowd_of_idle_connections(hall: Hall) -> None:
    request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    lines = fill(hall, request)
    await wait_until(lambda: all(b"200 OK" in line.answers for line in lines))
    for _ in range(3):
        check = hall.connect(request, "10.0.0.3")
        await wait_until(lambda at=check: b"200 OK" in at.answers)
    assert sum(line.is_open for line in lines) == CONNECTIONS_MAX - 3


@async_test
async def test_one_address_has_half_of_the_connections_and_closes_its_own_for_more(hall: Hall) -> None:
    first = hall.connect(host="10.0.0.2")
    lines = [hall.connect(host="10.0.0.1") for _ in range(SHARE_MAX)]
    lines[0].send(b"G")
    hall.clock.advance(1)
    lines += [hall.connect(host="10.0.0.1") for _ in range(SHARE_MAX)]
    assert first.is_open
    assert sum(line.is_open for line in lines) == SHARE_MAX
    assert all(line.is_open for line in lines[SHARE_MAX:])
    assert len(hall.factory.channels) == SHARE_MAX + 1


@async_test
async def test_who_has_only_busy_connections_is_refused_more(hall: Hall) -> None:
    busy = [hall.connect(WAITING, "10.0.0.1") for _ in range(SHARE_MAX)]
    for _ in range(3):
        refused = hall.connect(host="10.0.0.1")
        answer = read_answer(refused.answers, "POST")
        assert answer.status == 503
        assert answer.body["detail"] == f"{SHARE_MAX} connections from 10.0.0.1 are open already"
        assert len(hall.factory.channels) == SHARE_MAX + 1  # who was refused before has made room
    assert all(line.is_open for line in busy)
    assert hall.connect(host="10.0.0.2").answers == b""
    for line in busy:
        line.transport.loseConnection()


@async_test
async def test_when_all_are_busy_a_new_one_is_refused(hall: Hall) -> None:
    busy = fill(hall, POST + b"Content-Length: 9\r\n\r\nn")
    assert problem_of(hall.connect(host="10.0.0.3")) == (503, f"{CONNECTIONS_MAX} connections are open already")
    assert all(line.is_open for line in busy)


@async_test
async def test_through_a_unix_socket_there_is_no_share(hall: Hall) -> None:
    lines = [hall.connect(host=None) for _ in range(CONNECTIONS_MAX)]
    assert all(line.is_open for line in lines)
    hall.connect(host=None)
    assert sum(line.is_open for line in lines) == CONNECTIONS_MAX - 1


# Too slow.


@async_test
async def test_headers_that_trickle_in_are_cut(hall: Hall) -> None:
    line = hall.connect(b"GET / HTTP/1.1\r\n")
    for _ in range(int(HEADER_S)):
        assert line.is_open
        hall.clock.advance(1)
        line.send(b"X: y\r\n")
    assert problem_of(line) == (408, f"the headers did not come within {HEADER_S:.0f} s")


@async_test
async def test_a_body_that_trickles_in_is_cut_and_one_that_comes_is_not(hall: Hall) -> None:
    line = hall.connect(ADD + b"Content-Length: 1000000\r\n\r\n")
    for _ in range(5):
        line.send(b"x" * PROGRESS_BYTES)
        hall.clock.advance(PROGRESS_S)
        assert line.is_open
    line.send(b"x" * (PROGRESS_BYTES - 1))
    hall.clock.advance(PROGRESS_S)
    assert problem_of(line)[0] == 408


@async_test
async def test_an_idle_connection_is_closed(hall: Hall) -> None:
    fresh, used = hall.connect(), hall.connect(INFO)
    await wait_until(lambda: b"200 OK" in used.answers)
    hall.clock.advance(IDLE_S - 1)
    assert fresh.is_open
    assert used.is_open
    hall.clock.advance(2)
    assert not fresh.is_open
    assert not used.is_open


@async_test
async def test_a_client_that_does_not_read_is_cut_and_one_that_reads_slowly_is_not(hall: Hall) -> None:
    line = hall.connect(INFO)
    await wait_until(lambda: b"200 OK" in line.answers)
    for _ in range(3):
        line.protocol.pauseProducing()
        hall.clock.advance(READ_S - 1)
        line.protocol.resumeProducing()
        line.send(b"")
    assert line.transport.connected
    line.protocol.pauseProducing()
    hall.clock.advance(READ_S + 1)
    assert not line.transport.connected
    assert not hall.clock.getDelayedCalls()


# Pipelines, streams, and clients that go away.


@async_test
async def test_requests_in_one_packet_are_answered_in_turn(hall: Hall) -> None:
    line = hall.connect(INFO + POST + b"Content-Length: 4\r\n\r\nnull" + INFO)
    await wait_until(lambda: line.answers.count(b"HTTP/1.1 ") == 3)
    assert [status[:3] for status in line.answers.split(b"HTTP/1.1 ")[1:]] == [b"200", b"204", b"200"]
    assert line.is_open


@async_test
async def test_a_request_byte_by_byte_is_the_same_request(hall: Hall) -> None:
    line = hall.connect()
    for byte in POST + b"Content-Length: 4\r\n\r\nnull" + INFO:
        line.send(bytes([byte]))
    await wait_until(lambda: line.answers.count(b"HTTP/1.1 ") == 2)


@async_test
async def test_a_client_that_goes_away_waits_for_no_job(launch: Launch) -> None:
    client = admin(launch())
    state = client.running.daemon.node.state
    body = json.dumps({"queues": ["q"]}).encode()
    exchange = client.begin("POST", "/api/commands/GETJOB", body=body, headers={"Content-Type": "application/json"})
    await wait_until(lambda: bool(state.waiting.blocked))
    exchange.hang_up()
    assert not state.waiting.blocked
    assert client.site.audit.recent[-1]["status"] == 499
    added = await client.post("/api/commands/ADDJOB", {"queue": "q", "body": "b", "timeout": 0})
    assert added.status == 200
    assert (await client.post("/api/commands/QLEN", {"queue": "q"})).body == {"reply": 1}


@async_test
async def test_a_stream_that_fails_is_cut_and_never_looks_complete(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(site: Site, asked: Request) -> Any:
        begin(asked.request, "text/plain")
        asked.request.write(b"begun")
        raise ValueError("in the middle")

    monkeypatch.setattr("disqued.web.routes.ROUTES", ROUTES)
    ROUTES.append(Route("GET", "/test/fails", Role.VIEWER, "", act=fail, media="text/plain", listed=False))
    try:
        client = admin(launch())
    finally:
        ROUTES.pop()
    exchange = client.begin("GET", "/test/fails")
    await wait_until(lambda: exchange.ended)
    assert b"begun" in exchange.received
    assert not exchange.received.endswith(b"0\r\n\r\n")
    assert b"problem" not in exchange.received


# Ports.


@async_test
async def test_stopping_ends_every_connection(launch: Launch, tmp_path: Path) -> None:
    client = admin(launch())
    exchange = client.begin("POST", "/api/commands/GETJOB", body=b'{"queues": ["q"]}',
                            headers={"Content-Type": "application/json"})  # fmt: skip
    await wait_until(lambda: bool(client.running.daemon.node.state.waiting.blocked))
    await client.stop()
    assert exchange.ended
    assert not client.factory.channels  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("endpoint", "says"),
    [
        ("nonsense:1", "Unknown endpoint type"),
        ("ssl:0:interface=127.0.0.1:privateKey=/nowhere/key.pem", "No such file"),
        ("tcp:x", "invalid literal"),
        ("unix:/nowhere/at/all.sock", "No such file"),
    ],
)
@async_test
async def test_an_endpoint_that_cannot_be_opened_says_why(
    launch: Launch, tmp_path: Path, endpoint: str, says: str
) -> None:
    (tmp_path / "tokens").write_text("ann viewer 0123456789abcdef")
    (tmp_path / "tokens").chmod(0o600)
    running = launch(f"http-endpoint {endpoint}\nhttp-token-file {tmp_path}/tokens")
    server = AdminServer(running.daemon)
    with pytest.raises(AdminError) as error:
        server.listen()
    assert str(error.value).startswith(f"http-endpoint {endpoint}: ")
    assert says in str(error.value)
    assert "allowed are endpoint strings such as ssl:7780" in str(error.value)
    await server.stop()


@pytest.mark.parametrize("goes", [True, False])
@async_test
async def test_an_endpoint_may_take_its_time(launch: Launch, monkeypatch: pytest.MonkeyPatch, goes: bool) -> None:
    opening: Deferred[Any] = Deferred()

    class Slow:
        def listen(self, factory: Any) -> "Deferred[Any]":
            return opening

    monkeypatch.setattr("disqued.web.server.serverFromString", lambda *_: Slow())
    server = AdminServer(launch().daemon)
    heard: list[str] = []
    monkeypatch.setattr(server._config, "_values", {**server._config._values, "http-endpoint": "slow:1"})
    server.listen(heard.append)
    assert not heard
    if goes:
        opening.callback(_Port())
        assert not heard
        assert server.port == 7
    else:
        opening.errback(OSError("no such device"))
        assert heard[0].startswith("http-endpoint slow:1: OSError: no such device")
    await server.stop()


class _Port:
    def getHost(self) -> IPv4Address:
        return IPv4Address("TCP", "127.0.0.1", 7)

    def stopListening(self) -> None:
        pass


def test_the_clients_of_tests_have_the_same_limits(launch: Launch) -> None:
    client: AdminClient = admin(launch())
    assert isinstance(client.factory, AdminFactory)


@async_test
async def test_templates_and_the_openapi_document_are_made_ready_in_turns_before_anybody_asks(
    launch: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = render.environment.__wrapped__()
    monkeypatch.setattr(render, "environment", lambda: fresh)
    openapi.written.cache_clear()
    server = AdminServer(launch("http-port 0").daemon)
    server.listen()
    await wait_until(lambda: openapi.written.cache_info().currsize == 1)
    assert fresh.cache is not None
    assert len(fresh.cache) == len(fresh.list_templates())
    await server.stop()


# The target of a request.


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://localhost/healthz", 200), ("HTTP://localhost:7780/healthz", 200), ("http://localhost?a=b", 400),
        ("http://evil.example/healthz", 421), ("http:///healthz", 421), ("http://localhost/none?x=http://a/b", 404),
    ],
)  # fmt: skip
@async_test
async def test_a_target_that_names_its_host_is_taken_as_that_host_s(hall: Hall, target: str, status: int) -> None:
    line = hall.connect(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    await wait_until(lambda: b"\r\n\r\n" in line.answers)
    assert read_answer(line.answers).status == status


@async_test
async def test_a_target_with_a_host_does_not_hide_that_there_are_two(hall: Hall) -> None:
    line = hall.connect(b"GET http://localhost/healthz HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
    await wait_until(lambda: b"\r\n\r\n" in line.answers)
    assert read_answer(line.answers).status == 400
