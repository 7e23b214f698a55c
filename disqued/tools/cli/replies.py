r"""Replies as they came: RESP2 and RESP3, each with the type that it was sent as.

    b"+OK\r\n"          --> Reply(STATUS, b"OK")             libraries make bytes of both,
    b"$2\r\nOK\r\n"     --> Reply(STRING, b"OK")             and redis-cli prints them differently
    b"%1\r\n+a\r\n:5\r\n" --> Reply(MAP, items=[a, 5])       keys and values in turn

Numbers stay as they were spelt.  Source: the RESP2 and RESP3 specifications of Redis.
"""

from enum import Enum
from typing import Final, Protocol

import attrs


class ReplyKind(Enum):
    """What a reply is."""

    STATUS = b"+"
    ERROR = b"-"
    INTEGER = b":"
    STRING = b"$"
    ARRAY = b"*"
    NIL = b"_"
    BOOLEAN = b"#"
    DOUBLE = b","
    BIG_NUMBER = b"("
    VERBATIM = b"="
    MAP = b"%"
    SET = b"~"
    PUSH = b">"


@attrs.frozen
class Reply:
    """One reply, with those that are in it."""

    kind: ReplyKind
    #: Of what is no aggregate; a boolean is b"t" or b"f".
    text: bytes = b""
    #: Of an aggregate; of a map keys and values in turn.
    items: "list[Reply]" = attrs.Factory(list)


class BadProtocol(Exception):
    """What came is no RESP."""


class Closed(Exception):
    """The other side has closed the connection."""


class ReplySource(Protocol):
    """Where replies are read from: a buffered binary file."""

    def readline(self, size: int = ..., /) -> bytes: ...

    def read(self, size: int = ..., /) -> bytes: ...


NIL: Final = Reply(ReplyKind.NIL)
_KINDS: Final = {kind.value: kind for kind in ReplyKind}
_LINES: Final = {ReplyKind.STATUS, ReplyKind.ERROR, ReplyKind.INTEGER, ReplyKind.BOOLEAN, ReplyKind.DOUBLE,
                 ReplyKind.BIG_NUMBER}  # fmt: skip
_ATTRIBUTES: Final = b"|"
_BULK_ERROR: Final = b"!"
#: Of a header; longer ones are none, and lines of statuses and errors have no limit.
_DEEPEST: Final = 128


def read_reply(source: ReplySource, depth: int = 0) -> Reply:
    """Read the next reply, and wait for all of it.  Raises Closed, BadProtocol, OSError."""
    line = _line(source)
    sign, rest = line[:1], line[1:]
    if sign == _ATTRIBUTES:  # about the reply that follows, and not shown
        _items(source, _count(rest) * 2, depth)
        return read_reply(source, depth)
    if sign == _BULK_ERROR:
        return Reply(ReplyKind.ERROR, _bulk(source, _count(rest)))
    kind = _KINDS.get(sign)
    if kind is None:
        raise BadProtocol(f"{line[:40]!r} is no reply of RESP: what answers there may be another server")
    if kind in _LINES:
        return Reply(kind, rest)
    if kind is ReplyKind.NIL or rest == b"-1":
        return NIL
    if kind is ReplyKind.STRING:
        return Reply(kind, _bulk(source, _count(rest)))
    if kind is ReplyKind.VERBATIM:
        return Reply(kind, _bulk(source, _count(rest))[4:])  # behind its format
    count = _count(rest)
    return Reply(kind, items=_items(source, count * 2 if kind is ReplyKind.MAP else count, depth))


def _items(source: ReplySource, count: int, depth: int) -> list[Reply]:
    if depth >= _DEEPEST:
        raise BadProtocol(f"replies within replies, more than {_DEEPEST} deep")
    return [read_reply(source, depth + 1) for _ in range(count)]


def _line(source: ReplySource) -> bytes:
    line = source.readline()
    if not line.endswith(b"\n"):
        raise Closed("the connection was closed")
    return line.removesuffix(b"\n").removesuffix(b"\r")


def _count(text: bytes) -> int:
    if not text.isdigit():
        raise BadProtocol(f"{text[:40]!r} is no length")
    return int(text)


def _bulk(source: ReplySource, size: int) -> bytes:
    data = source.read(size + 2)
    if len(data) < size + 2:
        raise Closed("the connection was closed within a reply")
    return data[:-2]
