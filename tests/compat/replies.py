"""RESP2 replies as trees, read from raw bytes, recorded ones with masks included.

    b"*2\\r\\n$1\\r\\nq\\r\\n:3\\r\\n"  <-->  Reply("*", items=(Reply("$", b"q", length=1), Reply(":", b"3")))

A recorded reply holds masks (`<id1>`, `<node>`, ...) in place of what no two runs share.  The length that stands
before a masked bulk is that of the unmasked one; it is kept and compared, for a job id of another length is a
difference.  Such a bulk ends at the end of its line, or of the reply when nothing is around it.  A path was masked
together with the header of its bulk.
"""

import re
from collections.abc import Callable, Mapping
from typing import BinaryIO

import attrs

CRLF = b"\r\n"
MASK = re.compile(rb"<(id\d+|node|ns|port|path|varies)>")


@attrs.frozen
class Reply:
    """One reply, or one element of an array."""

    kind: str  #: the byte that it begins with
    text: bytes | None = None  #: of a bulk, or of a line; None for a null and for an array
    items: "tuple[Reply, ...]" = ()
    length: int | None = None  #: declared before a bulk or an array; None: as long as it is

    def __bytes__(self) -> bytes:
        """Write it down as it stood on the wire."""
        head = self.kind.encode()
        if self.length == -1:
            return head + b"-1" + CRLF
        if self.kind == "*":
            return head + b"%d" % len(self.items) + CRLF + b"".join(map(bytes, self.items))
        assert self.text is not None
        if self.kind == "$":
            length = len(self.text) if self.length is None else self.length
            return head + b"%d" % length + CRLF + self.text + CRLF
        return head + self.text + CRLF


def parse(raw: bytes) -> Reply:
    """Read one whole reply."""
    reply, end = _parse(raw, 0, nested=False)
    assert end == len(raw), f"{len(raw) - end} bytes too many in {raw!r}"
    return reply


def _parse(raw: bytes, at: int, *, nested: bool) -> tuple[Reply, int]:
    if MASK.match(raw, at):
        line, at = _line(raw, at)
        return Reply("$", line), at
    kind, (line, at) = chr(raw[at]), _line(raw, at + 1)
    if kind not in "$*":
        return Reply(kind, line), at
    length = int(line)
    if length == -1:
        return Reply(kind, length=-1), at
    if kind == "*":
        items = []
        for _ in range(length):
            item, at = _parse(raw, at, nested=True)
            items.append(item)
        return Reply(kind, items=tuple(items)), at
    end = at + length
    masked_end = raw.index(CRLF, at) if nested else len(raw) - len(CRLF)
    if MASK.search(raw, at, masked_end):
        end = masked_end
    assert raw[end : end + 2] == CRLF, f"the bulk at {at} does not end where it should: {raw!r}"
    return Reply(kind, raw[at:end], length=length), end + 2


def _line(raw: bytes, at: int) -> tuple[bytes, int]:
    end = raw.index(CRLF, at)
    return raw[at:end], end + 2


def read_raw(stream: BinaryIO) -> bytes:
    """Take the bytes of the next reply from a connection, by the lengths that it declares."""
    raw = line = stream.readline()
    assert line.endswith(CRLF), f"the connection ended within a reply: {line!r}"
    if line[:1] == b"$" and (length := int(line[1:])) >= 0:
        raw += stream.read(length + 2)
    elif line[:1] == b"*":
        raw += b"".join(read_raw(stream) for _ in range(int(line[1:])))
    return raw


def bulk(text: bytes) -> Reply:
    """Make a bulk."""
    return Reply("$", text, length=len(text))


def array(*items: Reply) -> Reply:
    """Make an array."""
    return Reply("*", items=items)


def walk(reply: Reply, change: Callable[[Reply], Reply]) -> Reply:
    """Apply a change to every part of a reply, the innermost ones first."""
    if reply.items:
        reply = attrs.evolve(reply, items=tuple(walk(item, change) for item in reply.items))
    return change(reply)


def change_fields(reply: Reply, changes: Mapping[bytes, Callable[[Reply], Reply]]) -> Reply:
    """Apply changes to the values of named fields, in an array of names and values in turn."""
    items = list(reply.items)
    for place in range(0, len(items) - 1, 2):
        name = items[place].text or b""
        if name in changes:
            items[place + 1] = changes[name](items[place + 1])
    return attrs.evolve(reply, items=tuple(items))


def fields(reply: Reply) -> dict[bytes | None, Reply]:
    """Look at an array of names and values in turn as a dictionary."""
    return {name.text: value for name, value in zip(reply.items[::2], reply.items[1::2], strict=False)}
