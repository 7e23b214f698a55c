"""Commands whose work grows with what they answer or look at: how they are run bit by bit.

Each yields after some milliseconds' work.  One that needs no more than that is answered at once.
"""

from collections.abc import Generator, Iterable, Iterator
from heapq import merge
from itertools import islice
from typing import Any, TypeVar

from disqued.commands.table import BLOCKED
from disqued.core.model.outbox import Client
from disqued.core.model.unfinished import Parts
from disqued.core.node import Node
from disqued.wire.replies import EncodedList

T = TypeVar("T")

LOOKED_AT_PER_PART = 2_500  #: names or objects looked at
SORTED_AT_ONCE = 10_000  #: names put in order
SPELT_PER_PART = 250  #: rows made and spelt

#: Work in parts, and what comes of it.
Making = Generator[None, None, T]


def in_parts(node: Node, client: Client, parts: Parts) -> Any:
    """Do the first part of a piece of work; returns its outcome if that was all, else the client is blocked."""
    try:
        next(parts)
    except StopIteration as end:
        return end.value
    node.in_parts(client, parts)
    return BLOCKED


def picked(values: Iterable[T | None], most: int | None = None) -> Making[list[T]]:
    """List what is not None, so many looked at a part; ends when there is more than `most`."""
    found: list[T] = []
    for seen, value in enumerate(values, 1):
        if value is not None:
            found.append(value)
            if most is not None and len(found) > most:
                break
        if seen % LOOKED_AT_PER_PART == 0:
            yield
    return found


def in_order(values: list[Any], *, key: Any = None, most: int | None = None) -> Making[list[Any]]:
    """List values in order, the first `most` of them at least."""
    if len(values) <= SORTED_AT_ONCE:
        return sorted(values, key=key)
    pieces: list[list[Any]] = []
    for at in range(0, len(values), SORTED_AT_ONCE):
        pieces.append(sorted(values[at : at + SORTED_AT_ONCE], key=key))
        yield
    return (yield from listed(islice(merge(*pieces, key=key), most)))


def listed(values: Iterator[T]) -> Making[list[T]]:
    """List values, so many a part."""
    found: list[T] = []
    while piece := list(islice(values, LOOKED_AT_PER_PART)):
        found += piece
        if len(piece) < LOOKED_AT_PER_PART:
            break
        yield
    return found


def spelt(rows: Iterator[Any], per_part: int = SPELT_PER_PART) -> Making[list[Any]]:
    """Make an array of rows, and spell it, so many rows a part; a short one is left to be spelt as others are."""
    first = list(islice(rows, per_part))
    if len(first) < per_part:
        return first
    reply = EncodedList()
    reply.add(first)
    yield
    while piece := list(islice(rows, per_part)):
        reply.add(piece)
        yield
    return reply
