"""Glob patterns as Redis clients know them, over bytes.

    *       any bytes, none as well          [abc]    one of these
    ?       exactly one byte                 [^abc]   one other than these
    \\x      the byte x itself                [a-z]    a range, ends in either order

A `[` that is never closed reaches to the end of the pattern; a backslash at the end stands for itself.  No pattern is
an error.

Clients choose both sides, so that a match is bounded.  Stars cut a pattern into pieces, each of which is looked for
once, from where the last one ended:

    wq:*mail[0-9]*:work    wq: begins the text    mail[0-9] comes first after it    :work ends the text

A piece without `?` and `[...]` is found by `bytes.find`.  For one with them every byte of the text is looked at once,
however long the piece is: bit n of a number tells whether the bytes up to here fit its first n places (shift-and).  As
that is slower, a text of more than TEXT_MAX bytes is covered by no pattern with `?` or `[...]`.

Source: the KEYS and CONFIG GET pages of the Redis manual; Baeza-Yates and Gonnet, "A new approach to text searching".
"""

from functools import lru_cache
from typing import Final

PATTERN_MAX: Final = 256  #: bytes of a pattern that is taken from a client
TEXT_MAX: Final = 4_096  #: bytes of a text that a pattern with `?` or `[...]` may cover
BYTES_PER_UNIT: Final = 2  #: of a text that is looked at byte by byte
REMEMBERED: Final = 512  #: patterns that are kept as they were read; longer ones than PATTERN_MAX are not

_ANY_BYTE: Final = frozenset(range(256))
_STAR, _QUESTION, _OPEN, _CLOSE, _BACKSLASH = b"*?[]\\"


class GlobSegment:
    """What stands between two stars: so many places, each with the bytes that it allows."""

    def __init__(self, places: list[frozenset[int]]) -> None:
        self.length = len(places)
        #: The bytes themselves, if there is one for each place.
        self.plain: bytes | None = None
        self.masks: dict[int, int] = {}  #: bit n of the mask of a byte: it may stand at place n
        self.anywhere = 0  #: the mask of all other bytes
        if all(len(allowed) == 1 for allowed in places):
            self.plain = bytes(next(iter(allowed)) for allowed in places)
            return
        anywhere = sum(1 << place for place, allowed in enumerate(places) if len(allowed) > len(_ANY_BYTE) // 2)
        masks: dict[int, int] = {}
        for place, allowed in enumerate(places):
            is_wide = len(allowed) > len(_ANY_BYTE) // 2
            for byte in _ANY_BYTE - allowed if is_wide else allowed:
                masks[byte] = masks.get(byte, anywhere) ^ (1 << place)
        self.masks, self.anywhere = masks, anywhere

    def find(self, text: bytes, start: int, end: int) -> int:
        """Where it ends for the first time in this part of a text; -1 = it is not there."""
        if self.plain is not None:
            found = text.find(self.plain, start, end)
            return -1 if found < 0 else found + self.length
        state, whole = 0, 1 << (self.length - 1)
        masks, anywhere = self.masks, self.anywhere
        for position in range(start, end):
            state = (state << 1 | 1) & masks.get(text[position], anywhere)
            if state & whole:
                return position + 1
        return -1

    def stands_at(self, text: bytes, start: int) -> bool:
        """Tell whether it stands at this place of a text, which goes on that far."""
        if self.plain is not None:
            return text.startswith(self.plain, start)
        return self.find(text, start, start + self.length) >= 0


class Glob:
    """A pattern that was read."""

    def __init__(self, pattern: bytes) -> None:
        self._pieces = [GlobSegment(places) for places in _read(pattern)]
        self._is_plain = all(piece.plain is not None for piece in self._pieces)

    def matches(self, text: bytes) -> bool:
        """Say whether it covers the whole of a text."""
        if not self._is_plain and len(text) > TEXT_MAX:
            return False
        pieces = self._pieces
        first, last = pieces[0], pieces[-1]
        if len(pieces) == 1:
            return len(text) == first.length and first.stands_at(text, 0)
        position, end = first.length, len(text) - last.length
        if position > end or not first.stands_at(text, 0) or not last.stands_at(text, end):
            return False
        for piece in pieces[1:-1]:
            position = piece.find(text, position, end)
            if position < 0:
                return False
        return True


def matches(pattern: bytes, text: bytes, *, ignore_case: bool = False) -> bool:
    """Say whether `pattern` covers the whole of `text`; case is that of ASCII."""
    if ignore_case:
        pattern, text = pattern.lower(), text.lower()
    glob: Glob = _remembered(pattern) if len(pattern) <= PATTERN_MAX else Glob(pattern)
    return glob.matches(text)


def cost(pattern: bytes, text: bytes) -> int:
    """How much work a match is at most, in units of about a microsecond of the core that is not compiled."""
    looks_at_each = (b"?" in pattern or b"[" in pattern) and len(text) <= TEXT_MAX
    return 1 + len(pattern) + (len(text) // BYTES_PER_UNIT if looks_at_each else 0)


@lru_cache(maxsize=REMEMBERED)
def _remembered(pattern: bytes) -> Glob:
    return Glob(pattern)


def _read(pattern: bytes) -> list[list[frozenset[int]]]:
    """Turn a pattern into its pieces: the bytes that each place allows; the first and the last may have no place."""
    places: list[frozenset[int]] = []
    pieces = [places]
    position = 0
    while position < len(pattern):
        byte = pattern[position]
        position += 1
        if byte == _STAR:
            # Of stars in a row, or with nothing but stars between, one is enough.
            if places or len(pieces) == 1:
                places = []
                pieces.append(places)
        elif byte == _QUESTION:
            places.append(_ANY_BYTE)
        elif byte == _OPEN:
            allowed, position = _byte_class(pattern, position)
            places.append(allowed)
        elif byte == _BACKSLASH and position < len(pattern):
            places.append(_ONE_BYTE[pattern[position]])
            position += 1
        else:
            places.append(_ONE_BYTE[byte])
    return pieces


_ONE_BYTE: Final = [frozenset((byte,)) for byte in range(256)]


def _byte_class(pattern: bytes, position: int) -> tuple[frozenset[int], int]:
    """Read what follows a `[`: the bytes it allows, and the position after its `]`."""
    negated = pattern[position : position + 1] == b"^"
    position += negated
    allowed: set[int] = set()
    while position < len(pattern) and pattern[position] != _CLOSE:
        if pattern[position] == _BACKSLASH and position + 1 < len(pattern):
            allowed.add(pattern[position + 1])
            position += 2
        elif pattern[position + 1 : position + 2] == b"-" and position + 2 < len(pattern):
            low, high = sorted((pattern[position], pattern[position + 2]))
            allowed.update(range(low, high + 1))
            position += 3
        else:
            allowed.add(pattern[position])
            position += 1
    return (_ANY_BYTE - allowed if negated else frozenset(allowed)), position + 1
