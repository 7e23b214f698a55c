"""Pieces: bytes that are too many to be copied stay the objects that they are.

    few bytes     b"..."                                       one object, as ever
    many bytes    Pieces: header, body, line end, header ...   the body is the object that the job has

A copy of 200 MB takes 40 to 60 ms, and no other client is served meanwhile.  So whatever writes bodies (replies,
records of the journal, messages to other nodes) makes a `Text`, and whatever sends or stores a `Text` takes pieces one
after the other, a bounded part of them at a time: the transport (`net/loop/transport.py`), TLS
(`net/loop/tlstransport.py`), the journal (`persistence/aof/segments.py`), frames (`wire/frames.py`).  A large body
that comes from another node or from the journal is read into an object of its own, too.

What is short is put together, so that a piece is worth a system call.  `len` of either kind of text is its bytes.
"""

from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import Final

LARGE: Final = 256 * 1024  #: bytes; a text of more is in pieces
APART: Final = 16 * 1024  #: bytes from which on a piece is not put together with others
TOGETHER: Final = 64 * 1024  #: bytes that are put together at most
COPIED: Final = 1 << 20  #: bytes of short parts that are put together at once, less than a millisecond's work
LOOKED_AT: Final = 4 << 20  #: bytes of a text in which its large body begins, if it has one


class Pieces:
    """Many bytes, in order; at least one piece, none of them empty, and the first one is short."""

    __slots__ = ("parts", "size")

    def __init__(self, parts: list[bytes]) -> None:
        self.parts: list[bytes] = parts
        self.size: int = sum([len(part) for part in parts])

    def __len__(self) -> int:
        return self.size


Text = bytes | Pieces


def text_of(parts: list[bytes]) -> Text:
    """Put parts together, or leave those as they are that are many bytes."""
    if sum(map(len, parts)) <= LARGE:
        return b"".join(parts)
    return Pieces(grouped(parts))


def joined(texts: Sequence[Text]) -> Text:
    """Put texts together; what is in pieces stays so."""
    try:
        return b"".join(texts)  # type: ignore[arg-type]
    except TypeError:  # not all of them are bytes
        return Pieces(grouped(parts_of(texts)))


def parts_of(texts: Sequence[Text]) -> list[bytes]:
    """List what texts are made of."""
    parts: list[bytes] = []
    for text in texts:
        if isinstance(text, Pieces):
            parts += text.parts
        else:
            parts.append(text)
    return parts


def whole(text: Text) -> bytes:
    """Copy a text into one object, for what can take nothing else."""
    return b"".join(text.parts) if isinstance(text, Pieces) else text


def grouped(parts: Sequence[bytes]) -> list[bytes]:
    """Put neighbors together that are short; the others stay the objects that they are."""
    if parts and max(map(len, parts)) < APART and sum(map(len, parts)) <= COPIED:
        text = b"".join(parts)
        return [text] if text else []
    groups: list[bytes] = []
    short: list[bytes] = []
    size = 0
    for part in parts:
        length = len(part)
        if short and (length >= APART or size + length > TOGETHER):
            groups.append(short[0] if len(short) == 1 else b"".join(short))
            short, size = [], 0
        if length >= APART:
            groups.append(part)
        elif length:
            short.append(part)
            size += length
    if short:
        groups.append(b"".join(short))
    return groups


def slices(text: Text, most: int) -> Iterator[bytes | memoryview]:
    """Cut a text into parts of so many bytes, the last one of fewer; nothing is copied but what joins two pieces."""
    rest: list[memoryview] = []  # together fewer than `most`
    size = 0
    for part in text.parts if isinstance(text, Pieces) else [text]:
        view = memoryview(part)
        at = 0
        while size + len(view) - at >= most:
            end = at + most - size
            rest.append(view[at:end])
            yield rest[0] if len(rest) == 1 else b"".join(rest)
            rest, size, at = [], 0, end
        if at < len(view):
            rest.append(view[at:])
            size += len(view) - at
    if rest:
        yield rest[0] if len(rest) == 1 else b"".join(rest)


class IncomingText:
    """A text that comes in parts: what is before a large body, the body, and what is behind it become an object each.

    A `BytesIO` grows in place, and hands out what it holds without a copy.
    """

    __slots__ = ("_buffers", "_ends", "_find_body", "got", "size")

    def __init__(self, size: int, find_body: Callable[[bytes], tuple[int, int] | None]) -> None:
        """Take how many bytes will come, and what finds where the body begins and ends, given how a text begins.

        It finds the body at the latest when the first byte of it comes.
        """
        self.size: int = size
        self.got: int = 0  #: bytes that have come
        self._find_body: Callable[[bytes], tuple[int, int] | None] = find_body
        self._buffers: list[BytesIO] = [BytesIO()]
        self._ends: list[int] = [size]  #: where each buffer ends in the text

    def add(self, data: bytes | memoryview) -> None:
        """Take the next part."""
        if len(self._ends) == 1 and self.got < LOOKED_AT:
            self._look_for_body(data)
        left = memoryview(data)
        while left:
            at = len(self._buffers) - 1
            some = left[: self._ends[at] - self.got]
            self._buffers[at].write(some)
            self.got += len(some)
            left = left[len(some) :]
            if self.got == self._ends[at] and self.got < self.size:
                self._buffers.append(BytesIO())

    def _look_for_body(self, data: bytes | memoryview) -> None:
        place = self._find_body(self._buffers[0].getvalue() + bytes(data))
        if place is not None and self.got <= place[0] and place[1] <= self.size:
            self._ends = [place[0], place[1], self.size]

    def text(self) -> Text:
        """All of it, once it has come: as one object, or what is before the body, the body, and what is behind it."""
        parts = [buffer.getvalue() for buffer in self._buffers]
        return parts[0] if len(parts) == 1 else Pieces(parts)
