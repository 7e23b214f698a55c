"""Long answers are made in pieces while the client reads them, and what is not read counts towards one budget."""

import base64
import json
import socket
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import pytest_twisted
from hypothesis import given
from hypothesis import strategies as st
from twisted.internet import reactor
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection

from disqued.net.loop import buffers
from disqued.net.loop.turns import BusyClients
from disqued.web.channel import AdminFactory
from disqued.web.gateway import SLICE_ROWS
from disqued.web.http import bodies
from disqued.web.http.bodies import CHECKED, LONG, PIECE, Body, JSONWriter, KeptBytes, LongValues
from disqued.web.http.unread import QUIET, READ_BYTES_S, READ_S
from disqued.web.http.values import dump
from disqued.web.views import queue_views
from disqued.web.views.queue_views import PAGE_ROWS, QueueQuery, QueueRow
from tests.adapters.http import LOCAL, AdminClient, AtOnce, admin, read_answer
from tests.adapters.inprocess import Running, wait_until

Launch = Callable[..., Running]
Admin = Callable[..., AdminClient]
async_test = pytest_twisted.ensureDeferred

MIB = 1 << 20
TEXT = ('é"\\\n\x01 plain text ' * 40_000)[:700_000].encode()
BINARY = bytes(range(256)) * 4_000


# Bodies.


def pieces(body: Body) -> list[bytes]:
    return list(iter(body.next_piece, b""))


async def written(value: Any, store: LongValues | None = None) -> Body:
    body = Body(LongValues() if store is None else store)
    await JSONWriter(BusyClients(reactor), body).write(value)
    return body


@pytest.mark.parametrize(
    "value",
    [
        TEXT, BINARY, [TEXT, BINARY, TEXT], {"body": TEXT}, {"jobs": [{"id": "a", "body": BINARY}] * 3, "n": 1},
        {"reply": [[b"q", b"id", TEXT]]}, {"a": {"b": {"c": [BINARY]}}}, b"\xf0\x9f\x98\x80" * LONG,
        b"x" * LONG + b"\xc3", b"\xff" + b"x" * LONG, b"\xed\xa0\x80" * LONG, b"x" * LONG, b"x" * (LONG + 1),
        b"\xc3\xa9" * PIECE, b"x" + b"\xc3\xa9" * PIECE, b"\xff" * (PIECE + 1), b"\xff" * (2 * PIECE), b"\0" * CHECKED,
    ],
    ids=lambda value: repr(value)[:20],
)  # fmt: skip
@async_test
async def test_long_values_are_sent_as_any_other_json(value: Any) -> None:
    assert b"".join(pieces(await written(value))) == dump(value)


@given(data=st.binary(max_size=60) | st.text(max_size=30).map(str.encode), piece=st.sampled_from([3, 6, 9]))
def test_pieces_end_between_characters_and_bytes_of_base64(data: bytes, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bodies, "PIECE", piece)
        body = Body(LongValues())
        kept = body.add_long(data)
        try:
            data.decode()
        except UnicodeDecodeError:
            kept.is_text = False
        else:
            kept.is_text = True
        found = pieces(body)
    assert b"".join(found) == dump(data)


@async_test
async def test_no_piece_encodes_much_and_no_turn_checks_much(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = [0]

    def turn(loop: Any) -> Any:
        turns[0] += 1
        return next_turn(loop)

    next_turn = bodies.next_turn
    monkeypatch.setattr(bodies, "next_turn", turn)
    body = await written({"body": b"\x01" * (5 * MIB)})
    assert turns == [4]
    sizes = [len(piece) for piece in pieces(body)]
    assert max(sizes) == 6 * PIECE  # \\u0001
    assert len(sizes) > 5 * MIB // PIECE
    body = await written({"body": b"\xff" * (5 * MIB)})
    assert max(len(piece) for piece in pieces(body)) == PIECE // 3 * 4


@async_test
async def test_a_body_of_a_job_counts_once_it_is_nobody_elses_and_for_one_answer() -> None:
    store = LongValues()
    job = [bytes(bytearray(MIB))]
    first, second = await written({"body": job[0]}, store), await written([job[0], job[0]], store)
    assert len(store) == 1
    assert first.size + second.size < 100
    job.clear()
    assert first.size > MIB
    assert second.size < 100
    first.close()
    assert first.size == 0
    assert second.size > MIB
    pieces(second)
    assert second.size == 0
    assert len(store) == 0


def test_what_refers_to_bytes_is_known_from_their_count() -> None:
    kept = KeptBytes(bytes(bytearray(LONG)))
    assert kept.is_alone
    other = kept.data
    assert not kept.is_alone
    del other
    assert kept.is_alone


# Serving.


class Reader(StringTransportWithDisconnection):
    """A transport that takes QUIET bytes, then pauses its producer until the test reads."""

    reads = True

    def write(self, data: bytes) -> None:
        super().write(data)
        self._look()

    def writeSequence(self, data: Any) -> None:
        self.write(b"".join(data))

    def _look(self) -> None:
        if not self.reads and len(self.value()) - self.taken > QUIET and self.producer is not None:
            self.producer.pauseProducing()

    taken = 0

    def read(self) -> None:
        """Read what is there, as a slow client does."""
        self.taken = len(self.value())
        if self.producer is not None:
            self.producer.resumeProducing()


@attrs.define
class Asked:
    """A request whose answer is read slowly."""

    transport: Any
    protocol: Any

    @property
    def received(self) -> bytes:
        return bytes(self.transport.value())

    @property
    def unread(self) -> int:
        return len(self.received) - self.transport.taken


@attrs.define
class Hall:
    """An admin side whose clients do not read by themselves."""

    client: AdminClient
    factory: AdminFactory
    clock: Clock

    @property
    def running(self) -> Running:
        return self.client.running

    def ask(self, target: str, method: str = "GET", body: bytes = b"", version: str = "1.1") -> Asked:
        transport = Reader(peerAddress=IPv4Address("TCP", *LOCAL))
        transport.reads = False
        protocol: Any = self.factory.buildProtocol(None)
        transport.protocol = protocol
        protocol.makeConnection(transport)
        lines = [f"{method} {target} HTTP/{version}", "Host: localhost", "Content-Type: application/json"]
        lines += [f"Content-Length: {len(body)}"] if body else []
        protocol.dataReceived("\r\n".join([*lines, "", ""]).encode() + body)
        return Asked(transport, protocol)

    async def add(self, body: bytes, queue: str = "q") -> bytes:
        # Its deadline is not that of its queue: the schedule drops entries of two items together.
        words = [b"ADDJOB", queue.encode(), body, b"0", b"RETRY", b"50"]
        job_id: bytes = await self.running.daemon.clients.call(words, address="test")
        return job_id


@pytest.fixture
def hall(launch: Launch) -> Hall:
    clock = Clock()
    client = admin(launch("maxmemory 1gb"))
    return Hall(client, AdminFactory(client.site, clock, AtOnce()), clock)


ROUTES = (
    "/api/show/{id}", "/api/qpeek/q", "/api/scan/jobs?reply=all", "POST /api/commands/SHOW", "POST /api/commands/QPEEK",
    "POST /api/commands/JSCAN", "POST /api/commands/GETJOB",
)  # fmt: skip


@pytest.mark.parametrize("route", ROUTES)
@async_test
async def test_a_client_that_does_not_read_holds_a_piece_and_not_the_job(hall: Hall, route: str) -> None:
    times = MIB // 64  # 4 MiB
    job_id = (await hall.add(bytes(range(256)) * times)).decode()
    method, _, target = route.rpartition(" ")
    given = {
        "SHOW": {"id": job_id}, "QPEEK": {"queue": "q", "count": 1}, "JSCAN": {"cursor": 0, "full": "all"},
        "GETJOB": {"queues": ["q"]},
    }.get(target.rpartition("/")[2], {})  # fmt: skip
    asked = hall.ask(target.format(id=job_id), method or "GET", json.dumps(given).encode() if given else b"")
    await wait_until(lambda: asked.unread > QUIET)
    used = hall.factory.budget.used
    assert QUIET < used < QUIET + 2 * PIECE
    await hall.running.daemon.clients.call([b"DELJOB", job_id.encode()], address="test")
    hall.clock.advance(1)
    assert hall.factory.budget.used >= 4 * MIB, "the job has gone, and its body is here for the answer alone"
    while not asked.received.endswith(b"0\r\n\r\n"):
        asked.transport.read()
        before = len(asked.received)
        await wait_until(lambda before=before: len(asked.received) > before)  # type: ignore[misc]
    asked.transport.read()
    assert base64.b64encode(bytes(range(256)) * times).decode() in json.dumps(read_answer(asked.received).body)
    assert hall.factory.budget.used == 0
    assert len(hall.client.site.kept) == 0


@async_test
async def test_many_answers_with_one_body_hold_it_once(hall: Hall) -> None:
    body = bytes(bytearray(MIB))
    job_id = await hall.add(body)
    del body
    asked = [hall.ask(f"/api/show/{job_id.decode()}") for _ in range(20)]
    await wait_until(lambda: all(one.unread > QUIET for one in asked))
    assert hall.factory.budget.used < 20 * (QUIET + 7 * PIECE)
    before = hall.factory.budget.used
    await hall.running.daemon.clients.call([b"DELJOB", job_id], address="test")
    hall.clock.advance(1)
    assert MIB / 2 < hall.factory.budget.used - before <= MIB
    for one in asked:
        one.transport.loseConnection()
    assert hall.factory.budget.used == 0
    assert len(hall.client.site.kept) == 0


@async_test
async def test_answers_that_nobody_reads_end_where_they_hold_too_much(
    hall: Hall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffers, "MINIMUM", 3 * MIB)
    await hall.running.daemon.clients.call([b"CONFIG", b"SET", b"maxmemory", b"12mb"], address="test")
    asked = []
    for number in range(6):
        job_id = await hall.add(bytes(bytearray(MIB)), f"q{number}")
        asked.append(hall.ask(f"/api/show/{job_id.decode()}"))
        await wait_until(lambda: asked[-1].unread > QUIET)
        await hall.running.daemon.clients.call([b"DELJOB", job_id], address="test")
    hall.clock.advance(1)
    ended = [one for one in asked if not one.transport.connected]
    assert 1 <= len(ended) < len(asked)
    assert hall.factory.budget.used <= 3 * MIB + 2 * MIB  # the limit, and the largest


@pytest.mark.parametrize(
    "target", ["/api/openapi.json", "/settings", "/metrics", "/static/x/uPlot.esm.js", "/api/info?section=all"]
)
@async_test
async def test_pages_and_files_are_sent_whole_with_their_length(hall: Hall, target: str) -> None:
    asked = hall.ask(target)
    await wait_until(lambda: b"\r\n\r\n" in asked.received)
    while not _is_whole(asked.received):
        assert hall.factory.budget.used <= len(asked.received) + QUIET + 2 * PIECE + MIB
        asked.transport.read()
        await bodies.next_turn(BusyClients(reactor))
    assert read_answer(asked.received).status == (404 if "static" in target else 200)


def _is_whole(received: bytes) -> bool:
    head, _, body = received.partition(b"\r\n\r\n")
    lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return len(body) >= int(lengths[0].split(b":")[1])


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@async_test
async def test_a_head_has_no_body_and_http_1_0_no_chunks(hall: Hall, version: str) -> None:
    job_id = (await hall.add(BINARY)).decode()
    asked = hall.ask(f"/api/show/{job_id}", "HEAD", version=version)
    await wait_until(lambda: b"\r\n\r\n" in asked.received)
    await bodies.next_turn(BusyClients(reactor))
    assert asked.received.endswith(b"\r\n\r\n")
    asked = hall.ask(f"/api/show/{job_id}", version="1.0")
    asked.transport.reads = True
    await wait_until(lambda: not asked.transport.connected)
    assert b"chunked" not in asked.received
    assert base64.b64decode(json.loads(asked.received.partition(b"\r\n\r\n")[2])["body"]["base64"]) == BINARY
    assert len(hall.client.site.kept) == 0


@async_test
async def test_who_reads_slowly_is_served_and_who_reads_nothing_is_cut(hall: Hall) -> None:
    job_id = (await hall.add(bytes(bytearray(MIB)))).decode()
    slow, deaf = hall.ask(f"/api/show/{job_id}"), hall.ask(f"/api/show/{job_id}")
    await wait_until(lambda: slow.unread > QUIET and deaf.unread > QUIET)
    patience = READ_S + deaf.unread / READ_BYTES_S
    passed = 0.0
    while not slow.received.endswith(b"0\r\n\r\n"):
        # At the least rate that is allowed: what is unread is gone after that many seconds.
        seconds = slow.unread / READ_BYTES_S
        hall.clock.advance(seconds)
        passed += seconds
        slow.transport.read()
        assert deaf.transport.connected is (passed <= patience) or passed <= patience + 2
        before = len(slow.received)
        await wait_until(lambda before=before: len(slow.received) > before)  # type: ignore[misc]
    assert passed > 2 * patience
    assert slow.transport.connected
    assert not deaf.transport.connected


@async_test
async def test_what_the_kernel_may_keep_counts_as_unread(hall: Hall) -> None:
    """A client that reads from the kernel's buffer shows no progress while there is something in it."""

    class Kernel:
        def getsockopt(self, level: int, option: int) -> int:
            assert (level, option) == (socket.SOL_SOCKET, socket.SO_SNDBUF)
            return 4 * MIB

    job_id = (await hall.add(bytes(bytearray(MIB)))).decode()
    asked = hall.ask("/healthz")
    asked.transport.socket = Kernel()
    asked.protocol.dataReceived(f"GET /api/show/{job_id} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    await wait_until(lambda: asked.unread > QUIET)
    hall.clock.advance(READ_S + 4 * MIB / READ_BYTES_S)
    assert asked.transport.connected
    hall.clock.advance(QUIET * 8 / READ_BYTES_S)
    assert not asked.transport.connected


@async_test
async def test_a_piece_that_fails_ends_the_connection(hall: Hall, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = (await hall.add(BINARY)).decode()
    asked = hall.ask(f"/api/show/{job_id}")
    await wait_until(lambda: asked.unread > QUIET)

    def fail(body: Body) -> bytes:
        raise ValueError("a bug")

    monkeypatch.setattr(Body, "next_piece", fail)
    asked.transport.read()
    await wait_until(lambda: not asked.transport.connected)
    assert not asked.received.endswith(b"0\r\n\r\n")
    assert hall.factory.budget.used == 0
    assert len(hall.client.site.kept) == 0


@async_test
async def test_requests_that_wait_behind_an_answer_count(hall: Hall) -> None:
    job_id = (await hall.add(bytes(bytearray(MIB)))).decode()
    asked = hall.ask(f"/api/show/{job_id}")
    await wait_until(lambda: asked.unread > QUIET)
    before = hall.factory.budget.used
    asked.protocol.dataReceived(b"x" * 20_000)
    assert hall.factory.budget.used == before + 20_000


# Pages with very many rows.


@pytest.mark.parametrize("sort", ["name", "length"])
@async_test
async def test_a_page_of_very_many_queues_is_cut_in_slices(monkeypatch: pytest.MonkeyPatch, sort: str) -> None:
    rows = [QueueRow(b"%06d" % (number * 7_919 % 20_011), number % 97) for number in range(20_000)]
    looked_at = [0]
    key, largest_first = queue_views.SORTS[sort]

    def counting(row: QueueRow) -> Any:
        looked_at[-1] += 1
        return key(row)

    def turn(loop: Any) -> Any:
        looked_at.append(0)
        return bodies.next_turn(loop)

    monkeypatch.setitem(queue_views.SORTS, sort, (counting, largest_first))
    monkeypatch.setattr(queue_views, "next_turn", turn)
    ordered = sorted(rows, key=key, reverse=largest_first)
    for page in (1, 2, 77, 200, 300):
        looked_at.append(0)
        cut = await QueueQuery("", sort, page).cut(rows, BusyClients(reactor))
        shown = min(page, 200)
        assert cut.rows == ordered[(shown - 1) * PAGE_ROWS : shown * PAGE_ROWS]
        assert (cut.found, cut.page, cut.pages) == (20_000, shown, 200)
    assert max(looked_at) <= SLICE_ROWS + PAGE_ROWS + len(rows) // SLICE_ROWS


@async_test
async def test_what_gathers_many_rows_is_done_for_one_request_at_a_time(hall: Hall) -> None:
    await hall.add(b"x")
    async with hall.client.site.large_walk:
        asked = [hall.ask(target) for target in ("/schedules", "/schedules", "/metrics/per-queue", "/schedules")]
        for _ in range(20):
            await bodies.next_turn(BusyClients(reactor))
        assert [one.received for one in asked] == [b""] * 4
        asked[0].transport.loseConnection()
    for one in asked[1:]:
        await wait_until(lambda one=one: one.received.startswith(b"HTTP/1.1 200 OK"))  # type: ignore[misc]
    assert not asked[0].received
