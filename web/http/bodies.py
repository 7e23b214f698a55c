"""Bodies of long answers, made in pieces while the client reads them.

    value of a command --JSONWriter, some in each turn--> Body: text | Long | text | Long | ...
                                                            |
           transport has room --resumeProducing--> next_piece(): PIECE bytes of text, or of a long value, encoded now

A long value (the body of a job, most of all) is not copied: the answer keeps the very bytes of the job, and encodes a
piece of them whenever the client has read the piece before.  While the job is there, that costs nothing; when it has
gone, the bytes live on for the answer alone, and `Body.size` counts them.  They count once, however many answers keep
them: for the first of these.

Sizes are bytes.
"""

import base64
import codecs
import json
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Final

from disqued.web.http.compression import PACKER_BYTES, Packer
from disqued.web.http.values import dump, key_text
from disqued.web.turns import SharedTurns, next_turn

PIECE: Final = 48 << 10  #: of a long value that is encoded at once, below a millisecond; divisible by 3
LONG: Final = 16 << 10  #: a value with more is kept as it is until it is sent
SLICE_BYTES: Final = 1 << 14  #: of JSON written in one turn, and one value more; about a millisecond's work
CHECKED: Final = 1 << 20  #: of a long value that is checked for UTF-8 in one turn
FEW: Final = 16  #: elements of a list that is written at once


class KeptBytes:
    """Bytes that answers keep until they are sent; those of a job belong to the job, too."""

    __slots__ = ("bodies", "data", "is_text")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.bodies: dict[Body, None] = {}  #: who keeps them; the first one counts them
        self.is_text: bool | None = None  #: None = nobody has looked yet

    @property
    def is_alone(self) -> bool:
        """True when nothing but answers refers to the bytes any more: the job has gone."""
        return sys.getrefcount(self.data) <= _REFERENCES

    async def look(self, turns: SharedTurns) -> None:
        """Find out whether the bytes are UTF-8, some of them in each turn."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for at in range(0, len(self.data), CHECKED):
                if at:
                    await next_turn(turns)
                decoder.decode(self.data[at : at + CHECKED])
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            self.is_text = False
        else:
            self.is_text = True


class LongValues:
    """The long values that the answers of one site keep, each of them once."""

    def __init__(self) -> None:
        self._kept: dict[int, KeptBytes] = {}

    def keep(self, data: bytes, body: "Body") -> KeptBytes:
        kept = self._kept.get(id(data))
        if kept is None:
            kept = self._kept[id(data)] = KeptBytes(data)
        kept.bodies[body] = None
        return kept

    def drop(self, kept: KeptBytes, body: "Body") -> None:
        """Forget that an answer keeps bytes."""
        kept.bodies.pop(body, None)
        if not kept.bodies:
            self._kept.pop(id(kept.data), None)

    def __len__(self) -> int:
        return len(self._kept)


class Body:
    """The body of one answer."""

    def __init__(self, store: LongValues, whole: bytes = b"") -> None:
        """`whole`: what the body begins with."""
        self._store = store
        self._parts: deque[bytes | tuple[KeptBytes, str]] = deque()
        self._text = 0  #: of the parts that are ready to be sent
        self._long: Iterator[bytes] | None = None  #: pieces of the value that is being sent
        self._users: dict[KeptBytes, int] = {}  #: long values, and in how many places each of them stands
        self._packer: Packer | None = None  #: None = it is sent as it is
        if len(whole) > LONG:
            self.add_long(whole, "raw")
        elif whole:
            self.add(whole)

    def add(self, text: bytes) -> None:
        """Add bytes that are sent as they are."""
        self._parts.append(text)
        self._text += len(text)

    def add_long(self, data: bytes, form: str = "") -> KeptBytes:
        """Add a long value, in one of the forms raw, text or base64; where it is empty `KeptBytes.is_text` decides."""
        kept = self._store.keep(data, self)
        self._users[kept] = self._users.get(kept, 0) + 1
        self._parts.append((kept, form))
        return kept

    def pack(self) -> None:
        """Have all of it sent in gzip."""
        self._packer = Packer()

    @property
    def is_short(self) -> bool:
        """True when all of it is one piece, and ready."""
        return not self._users and self._text <= LONG

    @property
    def length(self) -> int | None:
        """Bytes of the whole body; None while that depends on how it is compressed, or long values are written."""
        if self._packer is not None or any(isinstance(part, tuple) and part[1] != "raw" for part in self._parts):
            return None
        return sum(len(part) if isinstance(part, bytes) else len(part[0].data) for part in self._parts)

    @property
    def size(self) -> int:
        """Bytes of memory that would be free without this answer."""
        alone = (kept for kept in self._users if kept.is_alone and next(iter(kept.bodies)) is self)
        compressor = 0 if self._packer is None else PACKER_BYTES
        return self._text + sum(len(kept.data) for kept in alone) + compressor

    def next_piece(self) -> bytes:
        """Return what is to be sent next, and forget it; b"" when there is no more."""
        piece = self._next_plain()
        if self._packer is None:
            return piece
        return self._packer.add(piece) if piece else self._packer.end()

    def _next_plain(self) -> bytes:
        if self._long is None:
            texts: list[bytes] = []
            size = 0
            while self._parts and isinstance(self._parts[0], bytes) and size < PIECE:
                text = self._parts.popleft()
                assert isinstance(text, bytes)
                size += len(text)
                texts.append(text)
            self._text -= size
            if texts or not self._parts:
                return b"".join(texts)
            part = self._parts.popleft()
            assert isinstance(part, tuple)
            self._long = self._pieces(*part)
        piece = next(self._long, None)
        if piece is None:
            self._long = None
            return self._next_plain()
        return piece

    def _pieces(self, kept: KeptBytes, form: str) -> Iterator[bytes]:
        form = form or ("text" if kept.is_text else "base64")
        if form == "raw":
            for at in range(0, len(kept.data), PIECE):
                yield kept.data[at : at + PIECE]
        elif form == "base64":
            yield b'{"base64":"'
            for at in range(0, len(kept.data), PIECE):
                yield base64.b64encode(kept.data[at : at + PIECE])
            yield b'"}'
        else:
            decoder = codecs.getincrementaldecoder("utf-8")()
            yield b'"'
            for at in range(0, len(kept.data), PIECE):
                if text := decoder.decode(kept.data[at : at + PIECE]):
                    yield json.dumps(text, ensure_ascii=False)[1:-1].encode("utf-8")
            yield b'"'
        self._leave(kept)

    def _leave(self, kept: KeptBytes) -> None:
        left = self._users[kept] - 1
        if left:
            self._users[kept] = left
        else:
            del self._users[kept]
            self._store.drop(kept, self)

    def close(self) -> None:
        """Forget what has not been sent."""
        for kept in self._users:
            self._store.drop(kept, self)
        self._users.clear()
        self._parts.clear()
        self._long, self._text, self._packer = None, 0, None


class JSONWriter:
    """Writes a value as JSON into a body, some of it in each turn of the loop; what is short is written at once."""

    def __init__(self, turns: SharedTurns, body: Body) -> None:
        self._turns = turns
        self._body = body
        self._texts: list[bytes] = []
        self._size = 0

    async def write(self, value: Any) -> None:
        """Write a value, which is the whole body."""
        await self._write(value)
        self._flush()

    async def _write(self, value: Any) -> None:
        if isinstance(value, bytes) and len(value) > LONG:
            self._flush()
            kept = self._body.add_long(value)
            if kept.is_text is None:
                await kept.look(self._turns)
        elif isinstance(value, Mapping) and _is_large(value):
            for number, (name, element) in enumerate(value.items()):
                self._texts.append((b"," if number else b"{") + dump(key_text(name)) + b":")
                await self._write(element)
            self._texts.append(b"}")
        elif isinstance(value, list | tuple) and _is_large(value):
            for number, element in enumerate(value):
                self._texts.append(b"," if number else b"[")
                await self._write(element)
            self._texts.append(b"]")
        else:
            await self._write_small(value)

    async def _write_small(self, value: Any) -> None:
        text = dump(value)
        self._texts.append(text)
        self._size += len(text)
        if self._size >= SLICE_BYTES:
            self._flush()
            await next_turn(self._turns)

    def _flush(self) -> None:
        if self._texts:
            self._body.add(b"".join(self._texts))
            self._texts, self._size = [], 0


def _is_large(value: Any) -> bool:
    """Return whether a value is a long list, a long string, or holds one."""
    if isinstance(value, bytes):
        return len(value) > LONG
    if isinstance(value, Mapping):
        return any(map(_is_large, value.values()))
    if isinstance(value, list | tuple):
        return len(value) > FEW or any(map(_is_large, value))
    return False


def _measured() -> int:
    """Count the references to bytes that only a `KeptBytes` refers to."""
    kept = KeptBytes(bytes(bytearray(LONG)))
    return sys.getrefcount(kept.data)


_REFERENCES: Final = _measured()
