"""HTTP connections share the turns of the loop: requests in a turn are counted, and not time."""

import re
from collections import deque
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import attrs
import pytest
import pytest_twisted
from twisted.internet.address import IPv4Address
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransportWithDisconnection

from disqued.net.loop import turns as net_turns
from disqued.net.loop.turns import BusyClients
from disqued.web.channel import WAITING_MAX, AdminFactory
from disqued.web.http.input_timer import HEADER_S
from disqued.web.turns import TurnTaker, next_turn
from tests.adapters.http import LOCAL, admin
from tests.adapters.inprocess import Running

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred

MANY, CROWD = 1_000, 200
GET = b"GET %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n"
POST = b"POST /api/commands/PING HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
#: Requests that are answered within the turn that they have, and how each answer begins.
KINDS: list[tuple[str, bytes, bytes]] = [
    ("page", GET % (b"/schedules", b""), b"HTTP/1.1 200 "),
    ("health", GET % (b"/healthz", b""), b"HTTP/1.1 200 "),
    ("no such path", GET % (b"/nix", b""), b"HTTP/1.1 404 "),
    ("another host", GET.replace(b"localhost", b"example.com") % (b"/", b""), b"HTTP/1.1 421 "),
    ("no such field", POST + b"Content-Length: 7\r\n\r\n{\"a\":1}", b"HTTP/1.1 400 "),
    ("in chunks", POST + b"Transfer-Encoding: chunked\r\n\r\n7\r\n{\"a\":1}\r\n0\r\n\r\n", b"HTTP/1.1 400 "),
]  # fmt: skip
#: What ends its connection before a route is asked.
REFUSED: list[tuple[str, bytes, bytes]] = [
    ("no header", b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", b"HTTP/1.1 400 "),
    ("a large body", POST + b"Content-Length: 1000000000\r\n\r\n", b"HTTP/1.1 413 "),
    ("long headers", b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000, b"HTTP/1.1 431 "),
]


class Loop:
    """A loop whose turns the test counts."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def callLater(self, delay: float, call: Callable[[], None]) -> None:
        """Keep a call for the next turn."""
        self.calls.append(call)

    def turn(self) -> None:
        """Make the calls that were asked for before this turn."""
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class Turns:
    """Gives a turn when the test says so."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[TurnTaker, bool]] = deque()

    def add(self, client: TurnTaker, *, is_short: bool) -> None:
        self.waiting.append((client, is_short))

    def add_piece(self, piece: TurnTaker) -> None:
        self.add(piece, is_short=False)

    def give(self) -> bool:
        """Give one turn; returns whether it was a short one's."""
        worker, is_short = self.waiting.popleft()
        worker.turn()
        return is_short


@attrs.define
class Line:
    """One connection."""

    transport: Any
    protocol: Any

    @property
    def answers(self) -> bytes:
        return bytes(self.transport.value())

    @property
    def count(self) -> int:
        return self.answers.count(b"HTTP/1.1 ")


@attrs.define
class Hall:
    """An admin side whose connections have a turn when the test says so."""

    factory: AdminFactory
    turns: Any
    clock: Clock

    def connect(self, sent: bytes = b"") -> Line:
        address = IPv4Address("TCP", *LOCAL)
        transport: Any = StringTransportWithDisconnection(peerAddress=address)
        protocol: Any = self.factory.buildProtocol(address)
        transport.protocol = protocol
        protocol.makeConnection(transport)
        if sent:
            protocol.dataReceived(sent)
        return Line(transport, protocol)


@pytest.fixture
def hall(launch: Launch) -> Hall:
    clock, turns = Clock(), Turns()
    return Hall(AdminFactory(admin(launch()).site, clock, turns), turns, clock)


@pytest.mark.parametrize(("request_", "begins"), [kind[1:] for kind in KINDS], ids=[kind[0] for kind in KINDS])
@async_test
async def test_a_turn_answers_one_request_of_a_pipeline(hall: Hall, request_: bytes, begins: bytes) -> None:
    many = 20
    line = hall.connect(request_ * many)
    assert line.count == 0
    for answered in range(1, many + 1):
        assert len(hall.turns.waiting) == 1
        hall.turns.give()
        assert line.count == answered
    assert not hall.turns.waiting
    assert line.answers.count(begins) == many


@async_test
async def test_another_client_has_its_turn_between_two_requests_of_a_long_pipeline(hall: Hall) -> None:
    line = hall.connect(GET % (b"/nix", b"") * MANY)
    assert line.transport.producerState == "paused", "what is behind a full buffer is left unread"
    hall.turns.give()
    others = 0
    while hall.turns.waiting:
        before = line.count
        hall.connect(GET % (b"/nix", b""))
        assert not hall.turns.give(), "what is left of a pipeline is long work"
        assert line.count == before + 1
        assert hall.turns.give(), "a single request is short work"
        others += 1
    assert (line.count, others) == (MANY, MANY - 1)
    assert line.transport.producerState == "producing"


@pytest.mark.parametrize(
    ("request_", "begins"), [kind[1:] for kind in KINDS + REFUSED], ids=[kind[0] for kind in KINDS + REFUSED]
)
@async_test
async def test_a_turn_answers_one_of_a_crowd(hall: Hall, request_: bytes, begins: bytes) -> None:
    lines = [hall.connect(request_) for _ in range(CROWD)]
    assert len(hall.turns.waiting) == CROWD
    for answered in range(1, CROWD + 1):
        hall.turns.give()
        assert sum(line.count for line in lines) == answered
        assert lines[answered - 1].answers.startswith(begins), "in the order they came"
    assert not hall.turns.waiting


@async_test
async def test_strangers_who_are_refused_take_turns(launch: Launch) -> None:
    turns = Turns()
    hall = Hall(AdminFactory(admin(launch("requirepass secret")).site, Clock(), turns), turns, Clock())
    lines = [hall.connect(GET % (b"/api/info", b"") * 2) for _ in range(CROWD)]
    for answered in range(1, 2 * CROWD + 1):
        hall.turns.give()
        assert sum(line.count for line in lines) == answered
    assert all(line.answers.count(b"HTTP/1.1 401 ") == 2 for line in lines)


@async_test
async def test_answers_keep_the_order_of_their_requests(hall: Hall) -> None:
    chosen = [KINDS[number * number % 7 % len(KINDS)] for number in range(100)]
    sent = b"".join(request for _, request, _ in chosen)
    line = hall.connect()
    for at in range(0, len(sent), 50):  # requests come in pieces, between turns and behind them
        line.protocol.dataReceived(sent[at : at + 50])
        if at % 300 == 0 and hall.turns.waiting:
            hall.turns.give()
    while hall.turns.waiting:
        hall.turns.give()
    assert re.findall(rb"HTTP/1.1 \d+ ", line.answers) == [begins for _, _, begins in chosen]


@async_test
async def test_a_lost_connection_leaves_nothing_behind(hall: Hall) -> None:
    line = hall.connect(GET % (b"/nix", b"") * MANY)
    hall.turns.give()
    assert hall.factory.budget.used > WAITING_MAX
    line.transport.loseConnection()
    assert hall.factory.budget.used == 0
    assert not line.protocol.clearLineBuffer()
    hall.turns.give()
    assert not hall.turns.waiting
    assert line.count == 1
    assert not hall.factory.channels
    assert not hall.clock.getDelayedCalls()


@async_test
async def test_what_waits_for_its_turn_is_not_too_slow(hall: Hall) -> None:
    line = hall.connect(GET % (b"/nix", b"") * 2)
    hall.clock.advance(HEADER_S + 1)
    hall.turns.give()
    hall.clock.advance(HEADER_S + 1)
    hall.turns.give()
    assert line.answers.count(b"HTTP/1.1 404 ") == line.count == 2


@async_test
async def test_a_pipeline_waits_while_its_answers_are_not_read(hall: Hall) -> None:
    line = hall.connect(GET % (b"/nix", b"") * 10)
    hall.turns.give()
    line.protocol.pauseProducing()
    while hall.turns.waiting:
        hall.turns.give()
    assert line.count == 1
    line.protocol.resumeProducing()
    while hall.turns.waiting:
        hall.turns.give()
    assert line.count == 10


@async_test
async def test_requests_of_all_connections_share_one_slice(launch: Launch, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node's own queue: a request takes a fifth of a slice, so that a turn of the loop answers five and no more."""
    loop, now = Loop(), [0.0]
    monkeypatch.setattr(net_turns, "perf_counter", lambda: now[0])
    hall = Hall(AdminFactory(admin(launch()).site, Clock(), BusyClients(loop)), None, Clock())
    process = hall.factory.resource.render

    def render(request: Any) -> Any:
        now[0] += net_turns.SLICE_S / 5
        return process(request)

    monkeypatch.setattr(hall.factory.resource, "render", render)
    long_ones = [hall.connect(GET % (b"/nix", b"") * 500) for _ in range(2)]
    short_ones = [hall.connect(GET % (b"/nix", b"")) for _ in range(CROWD)]
    lines = long_ones + short_ones
    answered, turns = 0, 0
    while loop.calls:
        loop.turn()
        turns += 1
        count = sum(line.count for line in lines)
        assert count - answered <= 6
        answered = count
    assert answered == 2 * 500 + CROWD
    assert turns >= answered / 6


@async_test
async def test_pieces_of_long_work_pause_while_clients_have_their_turns() -> None:
    """Piece after piece without a pause, a page would hold up each command by some of them."""
    loop, came, served = Clock(), list[float](), list[float]()
    turns = BusyClients(loop)

    async def draw() -> None:
        for _ in range(5):
            await next_turn(turns)
            came.append(loop.seconds())

    class Client:
        def turn(self) -> None:
            served.append(loop.seconds())

    drawn = ensureDeferred(draw())
    while not drawn.called:
        turns.add(Client(), is_short=True)
        loop.advance(net_turns.PAUSE_S / 4)
    pauses = [after - before for before, after in pairwise([0.0, *came])]
    assert min(pauses) >= net_turns.PAUSE_S
    assert len(served) >= 4 * len(came), "clients do not pause"


@async_test
async def test_the_slices_of_answers_share_the_turns_too() -> None:
    turns, came = Turns(), list[int]()
    for number in range(3):
        next_turn(turns).addCallback(lambda _, number=number: came.append(number))
    given_up = next_turn(turns)
    given_up.addErrback(lambda _: came.append(-1))
    given_up.cancel()
    for _ in range(4):
        assert not turns.give()
    assert came == [-1, 0, 1, 2]
