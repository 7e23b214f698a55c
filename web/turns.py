"""Long work in slices, which take turns with the clients of the node.  What has no slices is done in a thread."""

from collections.abc import Callable
from typing import Any, Protocol

from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure


class TurnTaker(Protocol):
    """Has something to do in a turn of the loop that others share."""

    def turn(self) -> None:
        """Do a bounded piece of it."""


class SharedTurns(Protocol):
    """What shares a slice of each turn of the loop: clients of the node, HTTP connections."""

    def add(self, client: TurnTaker, *, is_short: bool) -> None:
        """Give a turn, behind those that wait already; long work does not hold up short work."""

    def add_piece(self, piece: TurnTaker) -> None:
        """Give a turn to a piece of work that no client's next command waits for, after a pause."""


class _Next:
    """A coroutine that waits for its turn."""

    def __init__(self) -> None:
        self.came: Deferred[None] = Deferred()

    def turn(self) -> None:
        """Let it go on, unless it was cancelled."""
        if not self.came.called:
            self.came.callback(None)


def next_turn(turns: SharedTurns) -> "Deferred[None]":
    """Fires when it is its turn among all that share a slice of the loop, after a pause."""
    waiting = _Next()
    turns.add_piece(waiting)
    return waiting.came


class OneAtATime:
    """Lets one piece of work go on at a time: what it gathers is in memory once, however many wait for their turn.

    async with one_at_a_time: ...
    """

    def __init__(self) -> None:
        self._lock = DeferredLock()

    async def __aenter__(self) -> None:
        await self._lock.acquire()

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()


class InThread:
    """Does long work in a thread, one piece of it after the other.

    A piece that nobody waits for any more is not begun; one that has begun is done to its end, and only then the next
    one begins.  So no more is in memory than those who wait have brought, and one piece.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._lock = DeferredLock()

    async def run(self, work: Callable[..., Any], *given: Any) -> Any:
        await self._lock.acquire()
        outcome: Deferred[Any] = Deferred()
        done = deferToThreadPool(self._reactor, self._reactor.getThreadPool(), work, *given)
        done.addBoth(self._over, outcome)
        return await outcome

    def _over(self, result: Any, outcome: "Deferred[Any]") -> None:
        self._lock.release()
        # One that was given up takes no notice.
        if isinstance(result, Failure):
            outcome.errback(result)
        else:
            outcome.callback(result)
