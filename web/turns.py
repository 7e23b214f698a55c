"""Long work in slices: after each, everybody else has their turn of the loop.  What has none is done in a thread."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred, DeferredLock
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThreadPool
from twisted.python.failure import Failure

from disqued.web.routes import Reply
from disqued.web.values import dump, key_text

SLICE_BYTES: Final = 1 << 14  #: of JSON written in one turn, and one value more; about a millisecond's work
FEW: Final = 16  #: elements of a list that is written at once


def next_turn(reactor: Any) -> "Deferred[None]":
    """Fires in the next turn of the loop."""
    return deferLater(reactor, 0, lambda: None)


class InThread:
    """Does long work in a thread, one piece of it after the other.

    A piece that nobody waits for any more is not begun; one that has begun is done to its end, and only then the next
    one begins.  So no more is in memory than those who wait have brought, and one piece.
    """

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._lock = DeferredLock()

    async def run(self, work: Callable[..., Any], *given: Any) -> Any:
        """Do it; returns or raises what it does."""
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


async def json_reply(reactor: Any, value: Any) -> Reply:
    """A value as `dump` writes it, written in slices: for answers that may be large."""
    writer = _Writer(reactor)
    await writer.write(value)
    return Reply(b"".join(writer.parts), "application/json")


class _Writer:
    """Writes JSON; only what holds a long list is taken apart."""

    def __init__(self, reactor: Any) -> None:
        self.parts: list[bytes] = []
        self._reactor = reactor
        self._size = 0

    async def write(self, value: Any) -> None:
        """Write a value."""
        if _is_long(value):
            await self._write_each(value)
        elif isinstance(value, Mapping) and any(map(_is_long, value.values())):
            for number, (name, element) in enumerate(value.items()):
                self.parts.append((b"," if number else b"{") + dump(key_text(name)) + b":")
                await self.write(element)
            self.parts.append(b"}")
        elif isinstance(value, list | tuple) and any(map(_is_long, value)):
            await self._write_each(value)
        else:
            await self._write_whole(value)

    async def _write_each(self, values: Any) -> None:
        for number, element in enumerate(values):
            self.parts.append(b"," if number else b"[")
            await self.write(element)
        self.parts.append(b"]")

    async def _write_whole(self, value: Any) -> None:
        text = dump(value)
        self.parts.append(text)
        self._size += len(text)
        if self._size >= SLICE_BYTES:
            self._size = 0
            await next_turn(self._reactor)


def _is_long(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) > FEW
