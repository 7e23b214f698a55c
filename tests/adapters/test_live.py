"""What moves on the pages: who listens hears what is new, as long as they read and may."""

from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.task import Clock

from disqued.core.view import NodeView
from disqued.net.loop.turns import PAUSE_S, BusyClients
from disqued.web.http.exchange import Role
from disqued.web.http.problems import Problem
from disqued.web.views import live
from disqued.web.views.live import Draw, Listener, Live, Subscription
from disqued.web.views.queue_views import QueueQuery
from tests.adapters.inprocess import wait_until
from tests.adapters.test_pages import Admin, add, async_test


class _Request:
    """What a listener writes to."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.transport = self
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def registerProducer(self, producer: Listener, streaming: bool) -> None:
        self.producer = producer

    def unregisterProducer(self) -> None:
        self.producer = None  # type: ignore[assignment]

    def abortConnection(self) -> None:
        self.aborted = True


class _Gateway:
    """A node without queues, on a clock of the test's."""

    def __init__(self) -> None:
        self.reactor = Clock()
        self.turns = BusyClients(self.reactor)
        self.view: NodeView


WATCHED = Subscription("overview", b"", QueueQuery(), True, Role.ADMIN)


def stays() -> bool:
    """Nobody loses a right."""
    return True


def draws(what: dict[str, Any]) -> Draw:
    """Draw always the same."""

    async def draw(_: Subscription) -> dict[str, Any]:
        return what

    return draw


def listening(watched: Subscription = WATCHED) -> tuple[Live, _Request, Clock, Any]:
    """Somebody who listens: what they look at is a number that grows each time that it is drawn."""
    gateway, request, drawn = _Gateway(), _Request(), []

    async def draw(_: Subscription) -> dict[str, Any]:
        drawn.append(1)
        return {"html": {"same": "x", "number": str(len(drawn))}, "point": [len(drawn)]}

    table: Any = Live(gateway)  # type: ignore[arg-type]
    return table, request, gateway.reactor, ensureDeferred(table.listen(request, watched, draw, stays))


def test_a_listener_hears_only_what_is_new() -> None:
    table, request, clock, waiting = listening()
    clock.advance(1)
    assert request.written[-2:] == [
        b'data: {"html": {"same": "x", "number": "1"}, "point": [1]}\n\n',
        b'data: {"html": {"number": "2"}, "point": [2]}\n\n',
    ]
    table.stop()
    assert waiting.called
    assert clock.getDelayedCalls() == []


def test_who_does_not_read_is_passed_over_then_dropped() -> None:
    table, request, clock, waiting = listening()
    request.producer.pauseProducing()
    heard = len(request.written)
    clock.pump([1] * 5)
    assert len(request.written) == heard
    request.producer.resumeProducing()
    clock.advance(1)
    assert len(request.written) == heard + 1
    request.producer.pauseProducing()
    clock.pump([1] * (int(live.PATIENCE_S) + 2))
    assert request.aborted
    assert waiting.called
    assert table.listeners == []
    assert clock.getDelayedCalls() == [], "the timer rests while nobody listens"


def test_who_has_lost_a_right_hears_no_more() -> None:
    gateway, request, answers = _Gateway(), _Request(), [True, False]
    table: Any = Live(gateway)  # type: ignore[arg-type]
    drawn = {"html": {"a": "b"}}
    waiting = ensureDeferred(table.listen(request, WATCHED, draws(drawn), lambda: answers.pop(0)))
    heard = len(request.written)
    gateway.reactor.advance(1)
    assert len(request.written) == heard
    assert waiting.called
    assert table.listeners == []


def test_nothing_is_asked_of_a_connection_that_is_gone() -> None:
    table, request, _, waiting = listening()
    request.unregisterProducer = lambda: 1 / 0  # type: ignore[method-assign, assignment]
    waiting.cancel()
    assert (waiting.result, table.listeners) == (None, [])


def test_a_view_that_waits_for_other_nodes_does_not_hold_up_the_others() -> None:
    table, _, clock, waiting = listening()
    request, slow = _Request(), _Request()
    answer: Deferred[dict[str, Any]] = Deferred()

    async def waits(_: Subscription) -> dict[str, Any]:
        return await answer

    others = [
        ensureDeferred(table.listen(slow, attrs.evolve(WATCHED, page="queue"), waits, stays)),  # type: ignore[arg-type]
        ensureDeferred(
            table.listen(request, attrs.evolve(WATCHED, page="workers"), draws({"html": {"a": "b"}}), stays)
        ),  # type: ignore[arg-type]
    ]
    clock.pump([1, PAUSE_S, 0])
    assert request.written[-1] == b'data: {"html": {"a": "b"}}\n\n'
    assert len(slow.written) == 1
    answer.callback({"html": {"late": "x"}})
    assert slow.written[-1] == b'data: {"html": {"late": "x"}}\n\n'
    table.stop()
    assert all(each.called for each in (waiting, *others))


def test_too_many_listeners_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "LISTENERS_MAX", 1)
    table, _, _, _ = listening()
    refused = ensureDeferred(table.listen(_Request(), WATCHED, draws({"html": {}}), stays))  # type: ignore[arg-type]
    refused.addErrback(lambda failure: failure.trap(Problem))
    assert refused.called
    table.stop()


@async_test
async def test_events_bring_the_parts_of_the_page(admin: Admin) -> None:
    client = admin()
    await add(client, "a/b", "x")
    for terms, part in (
        ("page=queue&queue=a%2Fb", b"queue-facts"), ("page=queues&q=a", b"queue-rows"), ("page=overview", b"nodes"),
    ):  # fmt: skip
        exchange = client.begin("GET", f"/api/events?{terms}")
        await wait_until(lambda: part in exchange.received)  # noqa: B023
        assert b"text/event-stream" in exchange.received
        exchange.hang_up()
    await wait_until(lambda: client.site.live.listeners == [])


@async_test
async def test_events_end_with_the_admin_side(admin: Admin) -> None:
    client = admin()
    exchange = client.begin("GET", "/api/events")
    await wait_until(lambda: b"nodes" in exchange.received)
    client.site.live.stop()
    await wait_until(lambda: exchange.ended)


@async_test
async def test_a_bug_in_drawing_ends_the_listeners_and_the_next_one_is_heard(admin: Admin) -> None:
    gateway: Any = admin().site.gateway
    table = Live(gateway)

    async def fail(_: Subscription) -> dict[str, Any]:
        raise ZeroDivisionError

    await table.listen(_Request(), WATCHED, fail, stays)
    assert table.listeners == []
    request = _Request()
    waiting = ensureDeferred(table.listen(request, WATCHED, draws({"html": {"a": "b"}}), stays))
    await wait_until(lambda: len(request.written) > 1)
    table.stop()
    await waiting


@async_test
async def test_who_was_let_in_by_an_open_node_is_ended_when_it_closes_and_the_others_stay(admin: Admin) -> None:
    client = admin()
    config = client.running.daemon.config
    # A proxy may send what the open node never looked at.
    known = {"Authorization": "Bearer pw123456789"}
    odd, let_in = (
        client.begin("GET", "/api/events", headers=each) for each in ({"Authorization": "Basic eDp5"}, known)
    )
    await wait_until(lambda: b"nodes" in odd.received and b"nodes" in let_in.received)
    config.set("requirepass", "pw123456789")
    stays_on = client.begin("GET", "/api/events", headers=known)
    await wait_until(lambda: odd.ended and b"nodes" in stays_on.received)
    heard = len(stays_on.received)
    await wait_until(lambda: len(stays_on.received) > heard)
    assert not stays_on.ended
    stays_on.hang_up()
    let_in.hang_up()
