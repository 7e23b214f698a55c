"""What moves on the pages: parts of them, sent again while somebody looks (server-sent events).

    listeners --which view--> Live: one timer, once a second, while anybody listens
                                |  each view is drawn once, however many look at it; long ones (`TABLES`) every
                                |  other second
                                v
    event: {"html": {id of an element: its new content}, "point": [unix seconds, ...] for the chart}

Views that wait for other nodes are drawn at the same time, so that a silent node delays all of them once.  What has not
changed since the event before is left out; an event with nothing in it is a comment, which keeps the connection alive.
A listener that does not read is passed over until it does: the next event it gets is the newest; one that has not read
for `PATIENCE_S` is dropped.  A listener whose token was taken away, or has other rights now, is ended before it hears
any more.  All end with the daemon.
"""

import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
from twisted.internet.defer import CancelledError, Deferred, DeferredList, ensureDeferred
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.web.gateway import Gateway
from disqued.web.http.exchange import Role
from disqued.web.http.problems import Problem
from disqued.web.turns import next_turn
from disqued.web.views.queue_views import QueueQuery

log = Logger()

LISTENERS_MAX: Final = 100
PERIOD_S: Final = 1.0
TABLES: Final = frozenset({"queues", "failing", "dead"})
TABLE_EVERY: Final = 2  #: periods from one event of these to the next
PATIENCE_S: Final = 30.0
RETRY: Final = {"Retry-After": "30"}


@attrs.frozen
class Subscription:
    """What a listener looks at; listeners with the same share what is drawn."""

    page: str  #: one of `pages.updates.PAGES`
    queue: bytes
    view: QueueQuery
    sees_bodies: bool
    role: Role
    worker: bytes = b""
    schedule: bytes = b""
    job: bytes = b""
    node: bytes = b""
    since: int = 0  #: of a list of failing or dead jobs; its part of the reason is the text of the view


#: Draws a view: {"html": {id: text}, "point": [...]}.
Draw = Callable[[Subscription], Awaitable[dict[str, Any]]]


class Listener:
    """One open connection; the producer that its transport pauses when the other end does not read."""

    def __init__(
        self, request: Any, watched: Subscription, draw: Draw, may_stay: Callable[[], bool],
        seconds: Callable[[], float],
    ) -> None:  # fmt: skip
        """`may_stay` tells whether its rights are what they were; `seconds` is the clock that measures its silence."""
        self.watched = watched
        self.draw = draw
        self.may_stay = may_stay
        self.ended: Deferred[None] = Deferred()
        self.silent_since: float | None = None  #: the other end does not read; None = it does
        self.shown: dict[str, str] = {}  #: what it has, by the id of the element
        self._request = request
        self._seconds = seconds

    def send(self, event: dict[str, Any]) -> None:
        """Send what is new of an event."""
        html = {key: text for key, text in event["html"].items() if self.shown.get(key) != text}
        self.shown.update(html)
        news: dict[str, Any] = {"html": html} if html else {}
        if event.get("point"):
            news["point"] = event["point"]
        line = f"data: {json.dumps(news)}\n\n" if news else ": nothing new\n\n"
        self._request.write(line.encode())

    def end(self) -> None:
        if not self.ended.called:
            self.ended.callback(None)

    def drop(self) -> None:
        """Close the connection: what was sent is not read."""
        self._request.transport.abortConnection()
        self.end()

    # What a transport asks of a producer.

    def pauseProducing(self) -> None:
        if self.silent_since is None:
            self.silent_since = self._seconds()

    def resumeProducing(self) -> None:
        self.silent_since = None

    def stopProducing(self) -> None:
        self.end()


class Live:
    """Everybody who listens, and the one timer."""

    def __init__(self, gateway: Gateway) -> None:
        self.listeners: list[Listener] = []
        self._gateway = gateway
        self._periods = 0  #: since the first of these listeners came
        self._timer: LoopingCall | None = None

    async def listen(self, request: Any, watched: Subscription, draw: Draw, may_stay: Callable[[], bool]) -> None:
        """Send events until either end has had enough, or `may_stay` says no, which is asked before each event.

        Raises Problem 503 when there are too many.
        """
        if len(self.listeners) >= LISTENERS_MAX:
            raise Problem(503, f"{LISTENERS_MAX} pages are watched already; reload instead", headers=RETRY)
        listener = Listener(request, watched, draw, may_stay, self._gateway.reactor.seconds)
        request.registerProducer(listener, True)
        request.write(b"retry: 2000\n\n")
        self.listeners.append(listener)
        self._start()
        try:
            await listener.ended
        except CancelledError:
            pass  # the other end has gone, and with it what there was to write to
        else:
            request.unregisterProducer()
        finally:
            self._remove(listener)

    def _start(self) -> None:
        if self._timer is not None:
            return
        self._periods = 0
        # A new one each time: one that is stopped while it waits for a walk, and started again, would beat twice.
        self._timer = LoopingCall(lambda: ensureDeferred(self._tell()))
        self._timer.clock = self._gateway.reactor
        self._timer.start(PERIOD_S).addErrback(self._failed)

    def _failed(self, failure: Failure) -> None:
        """Meet a bug of ours: who listens asks again."""
        log.failure("Internal error in what moves on the pages", failure)
        self._timer = None
        self.stop()

    def _remove(self, listener: Listener) -> None:
        self.listeners.remove(listener)
        if not self.listeners:
            self._rest()

    def _rest(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None:
            timer.stop()

    def stop(self) -> None:
        self._rest()
        for listener in list(self.listeners):
            listener.end()

    async def _tell(self) -> None:
        """Tell everybody who reads what there is to see."""
        self._end_those_who_may_not_stay()
        self._drop_silent()
        views: dict[Subscription, list[Listener]] = {}
        for listener in self._due():
            views.setdefault(listener.watched, []).append(listener)
        drawn = [ensureDeferred(self._show(listeners, first=not at)) for at, listeners in enumerate(views.values())]
        outcomes: list[tuple[bool, Any]] = await DeferredList(drawn, consumeErrors=True)
        for succeeded, outcome in outcomes:
            if not succeeded:
                outcome.raiseException()

    async def _show(self, listeners: list[Listener], *, first: bool) -> None:
        """Draw a view, and send it to those who look at it."""
        if not first:
            await next_turn(self._gateway.turns)
        event = await listeners[0].draw(listeners[0].watched)
        for listener in listeners:
            if not listener.ended.called:
                listener.send(event)

    def _end_those_who_may_not_stay(self) -> None:
        for listener in list(self.listeners):
            if not listener.may_stay():
                listener.end()

    def _drop_silent(self) -> None:
        now = self._gateway.reactor.seconds()
        for listener in list(self.listeners):
            if listener.silent_since is not None and now - listener.silent_since > PATIENCE_S:
                listener.drop()

    def _due(self) -> list[Listener]:
        """Those who read and are to hear something in this period."""
        has_table = self._periods % TABLE_EVERY == 0
        self._periods += 1
        return [
            listener
            for listener in self.listeners
            if not listener.ended.called
            and listener.silent_since is None
            and (has_table or listener.watched.page not in TABLES)
        ]
