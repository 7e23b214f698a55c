"""The messages about questions as bytes; `messages` says how messages are written.

A value is written as a reply of RESP3 is (`replies`), and has one form: statuses and texts are plain bytes.
"""

from struct import Struct
from typing import Any, Final

from disqued.core.model.messages import ASK, TOLD, Message
from disqued.wire.fields import BadMessage, Codec, Fields, cut, ends_at, flag_of, need
from disqued.wire.pieces import whole
from disqued.wire.replies import Verbatim, encode

WORDS_MAX: Final = 1_024  #: of a command that is asked for, its name among them
_ASK = Struct("<BIH")
_LENGTH = Struct("<I")
_TOLD = Struct("<BIB")
DEPTH_MAX: Final = 16  #: arrays within arrays of a value
LINE_MAX: Final = 64  #: bytes of a length, or of a number
_BULK, _INTEGER, _ARRAY, _MAP, _NULL, _BOOLEAN, _DOUBLE = b"$:*%_#,"


def _encode_ask(message: Fields, now: int) -> bytes:
    kind, number, words = message
    parts = [_ASK.pack(kind, number, len(words))]
    for word in words:
        parts += (_LENGTH.pack(len(word)), word)
    return b"".join(parts)


def _decode_ask(data: bytes) -> Message:
    need(data, _ASK.size)
    kind, number, count = _ASK.unpack_from(data)
    if not 0 < count <= WORDS_MAX:
        raise BadMessage(f"ASK: {count} words; allowed are 1 to {WORDS_MAX}")
    at = _ASK.size
    words = []
    for _ in range(count):
        need(data, at + _LENGTH.size)
        (length,) = _LENGTH.unpack_from(data, at)
        word, at = cut(data, at + _LENGTH.size, length, length)
        words.append(word)
    ends_at(data, at)
    return (kind, number, tuple(words))


def _encode_told(message: Fields, now: int) -> bytes:
    kind, number, failed, value = message
    return _TOLD.pack(kind, number, failed) + whole(encode(_plain(value), 3))


def _plain(value: Any) -> Any:
    """Return a value without what only says how a client sees it: statuses and forms of text."""
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, Verbatim):
        return value.text
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, dict):
        return {_plain(name): _plain(part) for name, part in value.items()}
    return value


def _decode_told(data: bytes) -> Message:
    need(data, _TOLD.size)
    kind, number, _ = _TOLD.unpack_from(data)
    return (kind, number, flag_of(data, _TOLD.size - 1), _value_of(data[_TOLD.size :]))


def _value_of(text: bytes) -> Any:
    """Read a value; it takes no more memory than a bound times its bytes, whatever lengths they say."""
    try:
        value, at = _read(text, 0, DEPTH_MAX)
    except (IndexError, ValueError):
        raise BadMessage(f"TOLD: {len(text)} bytes that are no value") from None
    if at != len(text) or whole(encode(value, 3)) != text:
        raise BadMessage(f"TOLD: {len(text)} bytes that are no one value as this node writes it")
    return value


def _read(text: bytes, at: int, depth: int) -> tuple[Any, int]:
    """Read the value that begins here; returns it and where it ends.  Raises ValueError, IndexError."""
    end = text.index(b"\r\n", at + 1, at + LINE_MAX)  # so that no slice ends before it begins
    kind, line, at = text[at], text[at + 1 : end], end + 2
    if kind == _BULK:
        end = at + int(line)
        if not at <= end <= len(text) - 2:
            raise ValueError
        return text[at:end], end + 2
    if kind == _INTEGER:
        return int(line), at
    if kind in (_ARRAY, _MAP):
        count = int(line) * (2 if kind == _MAP else 1)
        if not 0 <= count <= len(text) - at or not depth:
            raise ValueError
        parts: list[Any] = []
        for _ in range(count):
            part, at = _read(text, at, depth - 1)
            parts.append(part)
        return (parts if kind == _ARRAY else _paired(parts)), at
    if kind == _NULL:
        return None, at
    if kind == _BOOLEAN:
        return line == b"t", at
    if kind == _DOUBLE:
        return float(line), at
    raise ValueError


def _paired(parts: list[Any]) -> dict[bytes, Any]:
    names = parts[::2]
    if not all(isinstance(name, bytes) for name in names):
        raise ValueError
    return dict(zip(names, parts[1::2], strict=True))


CODECS: Final[dict[int, Codec]] = {
    ASK: Codec("number 4, words 2; for each: length 4, word", _encode_ask, _decode_ask),
    TOLD: Codec("number 4, failed 1, a reply as in `replies`", _encode_told, _decode_told),
}
