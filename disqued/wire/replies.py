r"""Replies: Python values become the bytes that a client reads, in RESP2 or RESP3.

    value                 RESP2                RESP3
    Status(b"OK")         +OK                  +OK
    Error(b"ERR why")     -ERR why             -ERR why
    5                     :5                   :5
    b"body", "body"       $4 body              $4 body
    Verbatim(b"text")     $4 text              =8 txt:text
    None                  $-1                  _
    [1, b"a"], (1, b"a")  *2 ...               *2 ...
    SpeltList()           *0 ...               *0 ...
    {b"a": 1}             *2 a 1               %1 a 1
    True                  :1                   #t
    1.5                   $3 1.5               ,1.5
    2**64                 $20 1844...          (1844...

A value says what it is; the protocol of the connection says how it is spelt.
`encode` takes any nesting of these.  The replies that a busy node writes most
have a function each that spells them in one step (`wire/brief.py`).

Status and error lines end at the first CR or LF that a client sees, and parts of
them come from other clients, so both bytes become blanks.

Source: the RESP2 and RESP3 specifications of Redis; the shapes are Disque's.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Self

import attrs

from disqued.wire.brief import INT64_MAX, INT64_MIN, append_plain, encode_error, encode_integer, encode_status
from disqued.wire.pieces import Pieces, Text, grouped, text_of


class Status(bytes):
    """A short fact, such as OK, a job id or a state; never arbitrary data."""

    __slots__ = ()


class AddedList(list[Any]):
    """What is answered for jobs that were added, in words that are not their ids."""

    __slots__ = ("job_ids",)

    def __init__(self, values: Iterable[Any], job_ids: Iterable[bytes]) -> None:
        super().__init__(values)
        self.job_ids: tuple[bytes, ...] = tuple(job_ids)


class AddedStatus(Status):
    """The same, in one line."""

    job_ids: tuple[bytes, ...]

    def __new__(cls, text: bytes, job_ids: Iterable[bytes]) -> Self:
        """Take the line, and the ids of the jobs that it is about."""
        made = super().__new__(cls, text)
        made.job_ids = tuple(job_ids)
        return made


class Handed(list[Any]):
    """What a consumer is told of a job that it has from now on, where that does not tell the job's id."""

    __slots__ = ("job_id",)

    def __init__(self, values: Iterable[Any], job_id: bytes) -> None:
        super().__init__(values)
        self.job_id: bytes = job_id


class EncodedList(list[Any]):
    """A long array that was spelt piece by piece while it was made; of bytes, integers and arrays of these."""

    __slots__ = ("texts",)

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[bytes] = []

    def add(self, values: list[Any]) -> None:
        """Append some elements, and spell them."""
        self.extend(values)
        parts: list[bytes] = []
        for value in values:
            _append(value, False, parts)
        self.texts += grouped(parts)


class Error(bytes):
    """An error line: a word in capitals that programs read, then a text for people."""

    __slots__ = ()


@attrs.frozen
class Verbatim:
    """A text that a client shows as it is, with its form: b"txt" or b"mkd"."""

    text: bytes
    form: bytes = attrs.field(default=b"txt", validator=attrs.validators.in_((b"txt", b"mkd")))


OK: Final = b"+OK\r\n"


def encode(value: Any, protocol: int = 2) -> Text:
    """Spell any value in RESP2 or RESP3, in pieces where it is large.

    Raises:
        TypeError: the value, or something in it, has no spelling.
    """
    parts: list[bytes] = []
    _append(value, protocol >= 3, parts)
    return text_of(parts)


def encode_push(parts: Sequence[Any], protocol: int) -> Text:
    """Spell a message that no command asked for: an array under RESP2, of a kind of its own under RESP3."""
    text = encode(parts, protocol)
    if protocol == 2:
        return text
    if isinstance(text, Pieces):
        text.parts[0] = b">" + text.parts[0][1:]
        return text
    return b">" + text[1:]


def _append(value: Any, resp3: bool, parts: list[bytes]) -> None:
    """Append the pieces that spell `value`."""
    append_plain(value, resp3, parts, _append_other)


def _append_other(value: Any, resp3: bool, parts: list[bytes]) -> None:
    """Append those of what is no plain value."""
    spell = _SPELLINGS.get(type(value)) or _inherited_spelling(type(value))
    spell(value, resp3, parts)


def _append_status(value: Status, resp3: bool, parts: list[bytes]) -> None:
    parts.append(encode_status(value))


def _append_error(value: Error, resp3: bool, parts: list[bytes]) -> None:
    parts.append(encode_error(value))


def _append_integer(value: int, resp3: bool, parts: list[bytes]) -> None:
    if INT64_MIN <= value <= INT64_MAX:
        parts.append(encode_integer(value))
    elif resp3:
        parts.append(b"(%d\r\n" % value)
    else:
        _append_bulk(b"%d" % value, resp3, parts)


def _append_bulk(value: bytes, resp3: bool, parts: list[bytes]) -> None:
    append_plain(bytes(value), resp3, parts, _append_other)


def _append_text(value: str, resp3: bool, parts: list[bytes]) -> None:
    _append_bulk(value.encode("utf-8"), resp3, parts)


def _append_verbatim(value: Verbatim, resp3: bool, parts: list[bytes]) -> None:
    if resp3:
        parts += (b"=%d\r\n%b:" % (len(value.text) + 4, value.form), value.text, b"\r\n")
    else:
        _append_bulk(value.text, resp3, parts)


def _append_boolean(value: bool, resp3: bool, parts: list[bytes]) -> None:
    if resp3:
        parts.append(b"#t\r\n" if value else b"#f\r\n")
    else:
        parts.append(encode_integer(int(value)))


def _append_double(value: float, resp3: bool, parts: list[bytes]) -> None:
    """Append the shortest decimal that reads back as the same number."""
    text = repr(value).removesuffix(".0").encode("ascii")
    if resp3:
        parts.append(b",%b\r\n" % text)
    else:
        _append_bulk(text, resp3, parts)


def _append_array(value: Sequence[Any], resp3: bool, parts: list[bytes]) -> None:
    append_plain([*value], resp3, parts, _append_other)


def _append_spelt(value: EncodedList, resp3: bool, parts: list[bytes]) -> None:
    parts.append(b"*%d\r\n" % len(value))
    parts += value.texts


def _append_map(value: dict[Any, Any], resp3: bool, parts: list[bytes]) -> None:
    parts.append(b"%%%d\r\n" % len(value) if resp3 else b"*%d\r\n" % (2 * len(value)))
    for key, element in value.items():
        _append(key, resp3, parts)
        _append(element, resp3, parts)


#: Of what is no plain value, or inherits from one.
_SPELLINGS: Final[dict[type, Callable[[Any, bool, list[bytes]], None]]] = {
    Status: _append_status,
    Error: _append_error,
    int: _append_integer,
    bytes: _append_bulk,
    str: _append_text,
    Verbatim: _append_verbatim,
    bool: _append_boolean,
    float: _append_double,
    EncodedList: _append_spelt,
    list: _append_array,
    tuple: _append_array,
    dict: _append_map,
}


def _inherited_spelling(kind: type) -> Callable[[Any, bool, list[bytes]], None]:
    """Find how the nearest base of an unlisted class, such as an IntEnum, is spelt."""
    for base in kind.__mro__:
        if base in _SPELLINGS:
            return _SPELLINGS[base]
    names = ", ".join([*(listed.__name__ for listed in _SPELLINGS), "None"])
    raise TypeError(f"a reply cannot hold a {kind.__name__}; it can hold {names}")
