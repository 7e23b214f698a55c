"""JSON as requests bring it: what is not JSON is refused, and what is long holds nobody up.

Python's parser reads a string of 60 MB in one call, and no other thread has a turn before that is over.  So a large
text is read in another way, which is for a thread of its own: long strings are taken out of it and read in pieces, and
what is left is read by a parser that is written in Python itself.  No call takes longer than some milliseconds.

    {"queue": "q", "body": {"base64": "AAAA...60 MB"}}  --take out-->  {"queue": "q", "body": {"base64": "<mark>"}}
                                             |                                           |  parse
                                     pieces of 256 KiB                                   v
                                             +--put back-->            {"queue": "q", "body": Large(60 MB of bytes)}

Sizes are bytes.
"""

import json
import re
from collections.abc import Callable, Mapping
from math import isinf
from secrets import token_hex
from typing import Any, Final, NoReturn

from disqued.web.http.values import Large, from_base64

STRING_MAX: Final = 16 << 10  #: of a string that is left in a large text
PIECE: Final = 256 << 10  #: that one call reads
REST_MAX: Final = 256 << 10  #: characters that Python's quick parser is given

FIELDS_MAX: Final = 50_000  #: of all objects of a text together

#: The end of a name.  A string that begins with a colon counts, too.
_FIELD: Final = re.compile(rb'(?<!\\)"[ \t\r\n]*:')
_BACKSLASH: Final = ord("\\")
#: Whole characters and escapes; the two halves of a surrogate pair stay together.
_WHOLE: Final = re.compile(
    rb"""(?:
        [^\\]++
      | \\u[dD][89abAB]..(?: \\u[dD][c-fC-F].. | (?=[^\\] | \\[^u] | \\u(?:[^dD]. | [dD][^c-fC-F])) )
      | \\u(?![dD][89abAB])....
      | \\[^u]
    )++""",
    re.DOTALL | re.VERBOSE,
)


class BadJSON(ValueError):
    """The text is not JSON, or holds what programs read differently; `str()` says what."""


def read(raw: bytes) -> Any:
    """Read a text at once.  Raises BadJSON."""
    return _checked(_read, raw)


def _read(raw: bytes) -> Any:
    value = json.loads(_text(raw), parse_constant=_refuse_constant, parse_float=_read_float, object_pairs_hook=_object)
    if b"\\u" in raw:
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # half of a surrogate pair cannot be encoded
    return value


def _checked(reader: Callable[[bytes], Any], raw: bytes) -> Any:
    """Read a text, and say what is wrong with it.  Raises BadJSON."""
    try:
        return reader(raw)
    except BadJSON:
        raise
    except UnicodeEncodeError:
        raise BadJSON("a string holds half of a surrogate pair") from None
    except UnicodeDecodeError as error:
        raise BadJSON(f"byte {error.start} is not UTF-8") from None
    except RecursionError:
        raise BadJSON("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise BadJSON(f"{error.msg} at character {error.pos}") from None
    except ValueError:
        raise BadJSON("an integer has too many digits") from None


def _text(raw: bytes) -> str:
    if raw.startswith(b"\xef\xbb\xbf"):
        raise BadJSON("it begins with a byte order mark")
    return raw.decode("utf-8")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object; a name that is given twice would be read differently by other programs."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise BadJSON(f"the field {twice[:100]!r} is given twice")
    return found


def read_large(raw: bytes) -> Any:
    """Read a text in a thread; a long string, and a base64 object with one, becomes `Large`.  Raises BadJSON."""
    return _checked(_read_large, raw)


def _read_large(raw: bytes) -> Any:
    mark = token_hex(16)
    rest, strings = _take_out(raw, mark)
    _count_fields(rest)
    text = _text(rest)
    parsed = _decoder(len(text)).decode(text)
    if "\\u" in text:
        json.dumps(parsed, ensure_ascii=False).encode("utf-8")  # half of a surrogate pair cannot be encoded
    return _put_back(parsed, {f"{mark}{number}": string for number, string in enumerate(strings)})


def _refuse_constant(word: str) -> NoReturn:
    raise BadJSON(f"{word} is not JSON")


def _read_float(text: str) -> float:
    value = float(text)
    if isinf(value):
        raise BadJSON(f"{text[:100]} is larger than any number that is kept")
    return value


def _decoder(length: int) -> Any:
    """The parser for a text of so many characters."""
    decoder: Any = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_read_float, object_pairs_hook=_object)
    if length > REST_MAX:
        decoder.parse_string = json.decoder.py_scanstring  # type: ignore[attr-defined]  # the stubs leave it out
        decoder.scan_once = json.scanner.py_make_scanner(decoder)  # type: ignore[attr-defined]  # as above
    return decoder


def _count_fields(rest: bytes) -> None:
    """Refuse more fields than anybody needs, as Python looks at each of them again and again.  Raises BadJSON."""
    found = 0
    for at in range(0, len(rest), PIECE):
        found += len(_FIELD.findall(rest, at, at + PIECE))
        if found > FIELDS_MAX:
            raise BadJSON(f"it has too many fields; {FIELDS_MAX} are allowed in all of its objects together")


# Long strings.


def _take_out(raw: bytes, mark: str) -> tuple[bytes, list[bytes]]:
    """Put marks, with numbers, in the place of long strings; returns the text, and the bytes of each string."""
    parts: list[bytes] = []
    strings: list[bytes] = []
    kept = at = 0
    while (start := raw.find(b'"', at)) >= 0:
        end = _end_of(raw, start + 1)
        if end - start > STRING_MAX:
            parts += (raw[kept : start + 1], f"{mark}{len(strings)}".encode())
            strings.append(_string(raw, start + 1, end))
            kept = end
        at = end + 1
    return b"".join((*parts, raw[kept:])), strings


def _end_of(raw: bytes, at: int) -> int:
    """Where the string ends that begins there: at the first quote with an even number of backslashes before it."""
    while (end := raw.find(b'"', at)) >= 0:
        before = end - 1
        while raw[before] == _BACKSLASH:
            before -= 1
        if (end - before) % 2:
            return end
        at = end + 1
    raise BadJSON("a string has no end")


def _string(raw: bytes, at: int, end: int) -> bytes:
    """The bytes that a string stands for, read piece by piece."""
    pieces: list[bytes] = []
    while at < end:
        stop = end if end - at <= PIECE else _piece_end(raw, at)
        text: str = json.loads(f'"{raw[at:stop].decode("utf-8")}"')
        pieces.append(text.encode("utf-8"))
        at = stop
    return b"".join(pieces)


def _piece_end(raw: bytes, at: int) -> int:
    """Where a piece may end that begins there: between two characters."""
    found = _WHOLE.match(raw, at, at + PIECE)
    stop = at if found is None else found.end()
    while stop > at and raw[stop] & 0xC0 == 0x80:
        stop -= 1
    if stop == at:
        raise BadJSON("a string has an escape that is none, or is no UTF-8")
    return stop


def _put_back(value: Any, strings: Mapping[str, bytes]) -> Any:
    """Put what was taken out in the places of its marks."""
    if isinstance(value, str):
        return Large(strings[value]) if value in strings else value
    if isinstance(value, list):
        return [_put_back(element, strings) for element in value]
    if not isinstance(value, dict):
        return value
    found = _object([(_key(name, strings), _put_back(element, strings)) for name, element in value.items()])
    long = found.get("base64")
    return _from_base64(long, found) if len(found) == 1 and isinstance(long, Large) else found


def _key(name: str, strings: Mapping[str, bytes]) -> str:
    return strings[name].decode("utf-8") if name in strings else name


def _from_base64(long: Large, otherwise: Any) -> Any:
    """The bytes that base64 stands for; `otherwise` where it is none, which whoever wants the bytes will say."""
    try:
        return Large(from_base64(long.data))
    except ValueError:
        return otherwise
