"""What of a request may be written down: never a body of a job, a token or a password.

    {"queue": "q", "body": "hello"}                         ->  {"queue": "q", "body": {"length": 5}}
    {"name": "requirepass", "value": "s3cret"}              ->  {"name": "requirepass", "value": "***"}
    ["CONFIG", "SET", "requirepass", "s3cret"]              ->  ["CONFIG", "SET", "requirepass", "***"]

What is very long is cut, and says how much is left out.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final
from urllib.parse import unquote

from disqued.web.values import as_bytes

MASK: Final = "***"
TEXT_MAX = 256  #: characters that are shown of a string
ITEMS_MAX = 20  #: elements that are shown of a list, and fields of an object
DEPTH_MAX = 8  #: levels that are shown
LOOKED_AT = 1_000  #: fields of an object that are searched for the name of a secret

#: Fields that hold bodies of jobs, or text to look for in them.
BODIES: Final = frozenset({"body", "bodies", "body_contains", "contains", "record", "text"})
#: Fields that hold what proves who somebody is.
PROOFS: Final = frozenset({"token", "password", "password_or_user", "password-or-user", "auth", "secret"})
#: Settings whose value is a secret; redis-url may hold a password.
SECRET_SETTINGS: Final = frozenset({"requirepass", "cluster-secret", "redis-url"})
_PROVING_COMMANDS: Final = frozenset({"auth", "hello"})


def masked(value: Any, path: str = "") -> Any:
    """What may be written of the JSON value that was sent to a path."""
    segments = {unquote(segment).lower() for segment in path.split("/")}
    return _masked(value, hides=bool(segments & SECRET_SETTINGS), depth=0)


def _masked(value: Any, *, hides: bool, depth: int) -> Any:
    """`hides`: nothing but names of fields and settings may be seen."""
    if depth > DEPTH_MAX:
        return MASK
    if _is_bytes(value):
        return MASK if hides and _word(value) not in SECRET_SETTINGS else _cut(value)
    if isinstance(value, Mapping):
        return _masked_fields(value, hides=hides, depth=depth)
    if isinstance(value, list):
        return _masked_list(value, hides=hides, depth=depth)
    return MASK if hides else value


def _masked_fields(value: Mapping[str, Any], *, hides: bool, depth: int) -> dict[str, Any]:
    hides = hides or any(_word(element) in SECRET_SETTINGS for element in islice(value.values(), LOOKED_AT))
    shown: dict[str, Any] = {}
    for name, element in islice(value.items(), ITEMS_MAX):
        word = name.lower()
        if word in BODIES:
            shown[_cut(name)] = _length(element)
        elif word in PROOFS or word.replace("_", "-") in SECRET_SETTINGS:
            shown[_cut(name)] = MASK
        else:
            shown[_cut(name)] = _masked(element, hides=hides, depth=depth + 1)
    return _noted(shown, len(value) - ITEMS_MAX)


def _masked_list(value: list[Any], *, hides: bool, depth: int) -> list[Any]:
    words = [_word(element) for element in value[:ITEMS_MAX]]
    if words[:1] and words[0] in _PROVING_COMMANDS:
        hides_from = 1
    elif words[:1] == ["addjob"]:
        return [*value[:1], *([_masked(value[1], hides=hides, depth=depth + 1)] if value[1:] else []), MASK]
    else:
        hides_from = next((at + 1 for at, word in enumerate(words) if word in SECRET_SETTINGS), len(value))
    shown = [
        _masked(element, hides=hides or at >= hides_from, depth=depth + 1)
        for at, element in enumerate(value[:ITEMS_MAX])
    ]
    left_out = len(value) - len(shown)
    return [*shown, {"left_out": left_out}] if left_out else shown


def _noted(shown: dict[str, Any], left_out: int) -> dict[str, Any]:
    return {**shown, "left_out": left_out} if left_out > 0 else shown


def _is_bytes(value: Any) -> bool:
    return isinstance(value, str) or (isinstance(value, Mapping) and set(value) == {"base64"})


def _word(value: Any) -> str:
    """A string, or the bytes of a base64 object, as a lower-case word; "" for what is neither."""
    if not _is_bytes(value):
        return ""
    try:
        return as_bytes(value)[:64].decode("utf-8", "replace").lower()
    except ValueError:
        return ""


def _length(value: Any) -> Any:
    """How long a body is, in bytes; of several, how many there are."""
    if isinstance(value, list):
        return {"count": len(value)}
    try:
        return {"length": len(as_bytes(value))}
    except ValueError:
        return MASK


def _cut(value: Any) -> Any:
    text = value if isinstance(value, str) else value["base64"]
    if not isinstance(text, str):
        return MASK
    if len(text) > TEXT_MAX:
        text = f"{text[:TEXT_MAX]}... ({len(text) - TEXT_MAX} more)"
    return text if isinstance(value, str) else {"base64": text}
