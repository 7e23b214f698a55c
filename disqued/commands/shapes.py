"""Shapes of replies: what a command promises to answer, how it is encoded, and a check of what it did answer.

A command returns plain values: bytes, int, None, list, dict, `Status`.  Its shape says which, so that the reference
can print it, the HTTP API can describe it, and each reply that a test sees can be held against it.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import attrs

from disqued.wire.brief import encode_fetched2, encode_fetched3, encode_integer, encode_status, ids_of_jobs
from disqued.wire.pieces import Text, joined
from disqued.wire.replies import Status, encode, encode_push

Encoder = Callable[[Any], Text]

#: Returned by a command that has no reply at all.
NO_REPLY: Final = object()


def _encode2(value: Any) -> Text:
    return encode(value, 2)


def _encode3(value: Any) -> Text:
    return encode(value, 3)


@attrs.frozen
class Shape:
    """One shape of reply."""

    text: str  #: for the reference
    matches: Callable[[Any], bool]
    encode2: Encoder = _encode2  #: RESP2
    encode3: Encoder = _encode3  #: RESP3
    handed: Callable[[Any], list[bytes]] | None = None  #: ids of the jobs that a value, not empty, hands out
    #: Jobs, and units as ``id:scope``, that a value says are there, or are done; None = those that it tells of plainly.
    promised: Callable[[Any], Iterable[bytes]] | None = None


def _is_bytes(value: Any) -> bool:
    return isinstance(value, bytes) and not isinstance(value, Status)


def status(text: str) -> Shape:
    """A status line."""
    return Shape(f"status: {text}", lambda value: isinstance(value, bytes), encode_status, encode_status)


def integer(text: str) -> Shape:
    """An integer."""
    return Shape(f"integer: {text}", lambda value: type(value) is int, encode_integer, encode_integer)


def seconds(text: str) -> Shape:
    """A span in seconds: an integer, or a double where it is not whole."""
    return Shape(f"integer or double: {text}, in seconds", lambda value: type(value) in {int, float})


def bulk(text: str) -> Shape:
    """A string of bytes."""
    return Shape(f"bulk string: {text}", _is_bytes)


def array(of: Shape, text: str) -> Shape:
    """An array of one shape."""
    return Shape(f"array: {text}", lambda value: isinstance(value, list | tuple) and all(map(of.matches, value)))


def pairs(text: str, *names: str, optional: tuple[str, ...] = ()) -> Shape:
    """A flat array of names and values, the names in this order; those that are `optional` may be left out."""
    expected = [name.encode() for name in names]
    rest = [name.encode() for name in optional]

    def matches(value: Any) -> bool:
        if not isinstance(value, list) or len(value) % 2 or value[: 2 * len(expected) : 2] != expected:
            return False
        found = value[2 * len(expected) :: 2]
        return found == [name for name in rest if name in found]

    return Shape(f"flat array of names and values: {text}", matches)


def mapping(text: str) -> Shape:
    """A map; a flat array of names and values under RESP2."""
    return Shape(f"map: {text}", lambda value: isinstance(value, dict))


def either(*shapes: Shape) -> Shape:
    """One of several shapes."""
    text = "; or ".join(shape.text for shape in shapes)
    return Shape(text, lambda value: any(shape.matches(value) for shape in shapes))


def null_or(shape: Shape) -> Shape:
    """A shape, or null."""
    return Shape(f"{shape.text}; or null", lambda value: value is None or shape.matches(value))


def null_array_or(shape: Shape) -> Shape:
    """A shape, or null where clients expect an array: RESP2 tells the two nulls apart."""
    return Shape(
        f"{shape.text}; or null",
        lambda value: value is None or shape.matches(value),
        lambda value: b"*-1\r\n" if value is None else shape.encode2(value),
        shape.encode3,
    )


def tuple_of(text: str, *of: Shape) -> Shape:
    """An array with one shape for each place."""
    return Shape(
        f"array: {text}",
        lambda value: (
            isinstance(value, list | tuple)
            and len(value) == len(of)
            and all(shape.matches(element) for shape, element in zip(of, value, strict=True))
        ),
    )


def or_silence(shape: Shape) -> Shape:
    """A shape, or no reply at all."""
    return Shape(
        f"{shape.text}; or no reply",
        lambda value: value is NO_REPLY or shape.matches(value),
        lambda value: b"" if value is NO_REPLY else shape.encode2(value),
        lambda value: b"" if value is NO_REPLY else shape.encode3(value),
    )


#: Never answered: the connection, or the daemon, ends.
SILENCE = Shape("no reply", lambda value: value is NO_REPLY, lambda _: b"", lambda _: b"")

OK = Shape("status: OK", lambda value: value == b"OK" and isinstance(value, Status))


def _is_job_rows(value: Any) -> bool:
    return value is None or all(
        len(row) in (3, 7, 11) and all(map(_is_bytes, row[:3])) and all(map(_is_told_with_job, row[4::2]))
        for row in value
    )


def _is_told_with_job(value: Any) -> bool:
    """Return whether a value may stand behind a job: a count, or the words of its headers."""
    return type(value) is int or (isinstance(value, list) and all(map(_is_bytes, value)))


def _handed_ids(rows: Any) -> list[bytes]:
    return [row.job_id for row in rows]


def handing_out(shape: Shape) -> Shape:
    """A shape of rows that are `Handed`: each is a job that its client has from now on."""
    return attrs.evolve(shape, handed=_handed_ids)


def handing_out_one(shape: Shape) -> Shape:
    """A shape of one such row."""
    return attrs.evolve(shape, handed=lambda row: [row.job_id])


#: ``[(queue, id, body), ...]``, or rows of seven with counters; None = nothing came.
JOBS = Shape(
    "array of jobs, each [queue, id, body], with counters also [nacks, n, additional-deliveries, n], with headers also"
    " [headers, [name, value, ...], attempt, n]; or null",
    _is_job_rows, encode_fetched2, encode_fetched3, ids_of_jobs,
)  # fmt: skip

#: ``[(queue, process, task), ...]``; None = nothing came.
PROCESSES = Shape(
    "array of processes, each [queue, process, task]; or null",
    lambda value: value is None or all(len(row) == 3 and all(map(_is_bytes, row)) for row in value), encode_fetched2,
    encode_fetched3, ids_of_jobs,
)  # fmt: skip


def pushes(text: str) -> Shape:
    """Several messages, each an array of its own; push messages under RESP3."""
    return Shape(
        f"for each: {text}",
        lambda value: isinstance(value, list) and all(isinstance(row, tuple) for row in value),
        lambda rows: joined([encode_push(row, 2) for row in rows]),
        lambda rows: joined([encode_push(row, 3) for row in rows]),
    )
