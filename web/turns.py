"""Long work in slices: after each, everybody else has their turn of the loop."""

from collections.abc import Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater

from disqued.web.routes import Reply
from disqued.web.values import dump, key_text

SLICE_BYTES: Final = 1 << 14  #: of JSON written in one turn, and one value more; about a millisecond's work
FEW: Final = 16  #: elements of a list that is written at once


def next_turn(reactor: Any) -> "Deferred[None]":
    """Fires in the next turn of the loop."""
    return deferLater(reactor, 0, lambda: None)


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
