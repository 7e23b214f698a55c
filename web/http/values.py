"""Bytes in JSON: names and bodies may be any bytes, and JSON knows only text.

Bytes that are UTF-8 are a string; all others are an object that says so, in both directions:

    b"caf\\xc3\\xa9"  <->  "café"
    b"\\xff\\x00"     <->  {"base64": "/wA="}
"""

import base64
import json
from binascii import a2b_base64
from collections.abc import Mapping
from typing import Any, Final

import attrs

_BASE64: Final = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
PIECE: Final = 256 << 10  #: bytes of base64 that one call decodes; divisible by 4
_NO_BASE64: Final = "base64 is not valid"
#: Schema of bytes.
BYTES: Final[dict[str, Any]] = {
    "oneOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"base64": {"type": "string", "contentEncoding": "base64", "pattern": _BASE64}},
            "required": ["base64"],
            "additionalProperties": False,
        },
    ],
    "description": 'A string where the bytes are UTF-8, else {"base64": ...}.',
}


@attrs.frozen
class Large:
    """A long string of a request's JSON, or a base64 object with one, as the bytes that it stands for."""

    data: bytes = attrs.field(repr=False)


def as_json(value: Any) -> Any:
    """What a command answered, in terms of JSON; bytes become strings or base64 objects."""
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(value).decode("ascii")}
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, list | tuple):
        return [as_json(element) for element in value]
    if isinstance(value, Mapping):
        return {key_text(key): as_json(element) for key, element in value.items()}
    return value


def key_text(key: Any) -> str:
    """The key of an object: bytes that are no UTF-8 are shown as ``\\xff``."""
    return key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else str(key)


def as_bytes(value: Any) -> bytes:
    """Bytes of a JSON value: a string, a base64 object, either of them as `Large`, or a whole number.

    Raises ValueError, which says what is allowed.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, int) and not isinstance(value, bool):
        return b"%d" % value
    if isinstance(value, float) and value.is_integer():  # 5.0 is the whole number 5 in JSON
        return b"%d" % int(value)
    if isinstance(value, Large):
        return value.data
    if isinstance(value, Mapping) and set(value) == {"base64"} and isinstance(value["base64"], str | Large):
        if isinstance(value["base64"], Large):
            raise ValueError(_NO_BASE64)  # it was looked at when it came
        try:
            return from_base64(value["base64"].encode("ascii"))
        except ValueError:
            raise ValueError(_NO_BASE64) from None
    raise ValueError('allowed are a string, a whole number, or {"base64": ...}')


def from_base64(text: bytes) -> bytes:
    """The bytes that base64 stands for, decoded piece by piece.  Raises ValueError.

    Padding is looked at here: how much of it may stand at the end differs from one Python to the next.
    """
    if len(text) % 4 or text.find(b"=", 0, max(0, len(text) - 2)) >= 0:
        raise ValueError(_NO_BASE64)
    pieces = range(0, len(text), PIECE)
    return b"".join(a2b_base64(text[at : at + PIECE], strict_mode=True) for at in pieces)


def dump(value: Any) -> bytes:
    """JSON text of what a route returns."""
    return json.dumps(as_json(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
