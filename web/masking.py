"""What of a request may be written down: the values of fields that its route knows, and never a secret among them.

    {"queue": "q", "body": "hello", "timeout": 0}  ->  {"queue": "q", "body": {"length": 5}, "timeout": 0}
    {"name": "requirepass", "value": "s3cret"}     ->  {"name": "requirepass", "value": "***"}
    {"name": "s3cret", "value": 7}                 ->  {"name": "string of 6 characters", "value": "whole number"}
    {"data": "hello"}                              ->  {"unknown": ["string of 5 characters"]}
    ["q", "hello", 0]                              ->  "list of 3 elements"

A slip may put a body or a password anywhere, so it is said what may be seen, not what may not: of a field that the
schema of the route does not have, and of text in a request that was refused, type and length alone.  The value of a
setting is seen when its name is exactly that of a setting, and of none that holds a secret.  What is very long is cut,
and says how much is left out.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any, Final

from disqued.config import SECRETS, SETTINGS
from disqued.web.http.exchange import Schema
from disqued.web.http.values import Large, as_bytes

MASK: Final = "***"
TEXT_MAX: Final = 256  #: characters that are shown of a string
ITEMS_MAX: Final = 20  #: elements that are shown of a list, and of the fields that nobody knows

#: Fields that hold bodies of jobs, or text to look for in them.
BODIES: Final = frozenset({
    "body", "bodies", "body_contains", "contains", "contents", "elements", "headers", "record", "result", "task",
    "tasks", "text",
})  # fmt: skip
#: Fields that hold what proves who somebody is, or what was seen before.
PROOFS: Final = frozenset({"token", "password", "password_or_user", "auth", "secret"})
#: Settings whose value is a secret; redis-url may hold a password.
SECRET_SETTINGS: Final = frozenset(SECRETS)
#: Statuses of requests that were understood, though not all of them could be followed; 499: its client went away.
UNDERSTOOD: Final = frozenset({404, 409, 499, 503, 507})


def is_understood(status: int) -> bool:
    """Tell from the status of its answer whether the fields of a request held what belongs into them."""
    return status < 400 or status in UNDERSTOOD


def masked(value: Any, schema: Schema | None, *, understood: bool) -> Any:
    """What may be written of the JSON value that was sent to a route, whose body has this schema."""
    if value is None:
        return None
    schema = schema or {}
    if isinstance(value, Mapping) and "properties" in schema:
        return _fields(value, schema["properties"], understood=understood)
    if isinstance(value, list) and "items" in schema:
        return _elements(value, schema["items"], understood=understood)
    return _cut(value) if _may_be_seen(value, schema, understood=understood) else _described(value)


def _may_be_seen(value: Any, schema: Schema, *, understood: bool) -> bool:
    """Tell whether a value is a word or a number that its field knows, or text of a request that was understood."""
    kind, words = schema.get("type"), schema.get("enum")
    if words is not None:
        return isinstance(value, str) and value in words
    if isinstance(value, bool):
        return kind == "boolean"
    if isinstance(value, int | float) and kind in ("integer", "number"):
        return bool(schema.get("minimum", value) <= value <= schema.get("maximum", value))
    return understood and ("oneOf" in schema or (kind == "string" and isinstance(value, str)))


def _fields(given: Mapping[str, Any], known: Mapping[str, Schema], *, understood: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name in known:
        if name not in given:
            continue
        if name in BODIES:
            shown[name] = _length(given[name])
        elif name in PROOFS:
            shown[name] = MASK
        elif {"name", "value"} <= set(known):
            shown[name] = _of_setting(given, name, understood=understood)
        else:
            shown[name] = masked(given[name], known[name], understood=understood)
    others = islice((element for name, element in given.items() if name not in known), ITEMS_MAX)
    unknown = [_described(element) for element in others]
    left_out = len(given) - len(shown) - len(unknown)
    return {**shown, **({"unknown": unknown} if unknown else {}), **({"left_out": left_out} if left_out else {})}


def _of_setting(given: Mapping[str, Any], field: str, *, understood: bool) -> Any:
    """The field `name` or `value` of a setting that is to be changed."""
    setting = _word(given.get("name"))
    if field == "name":
        return given["name"] if setting in SETTINGS else _described(given["name"])
    if setting in SECRET_SETTINGS:
        return MASK
    is_plain = understood and setting in SETTINGS and not isinstance(given[field], list)
    return _cut(given[field]) if is_plain else _described(given[field])


def _elements(given: list[Any], schema: Schema, *, understood: bool) -> list[Any]:
    shown = [masked(element, schema, understood=understood) for element in given[:ITEMS_MAX]]
    left_out = len(given) - len(shown)
    return [*shown, {"left_out": left_out}] if left_out else shown


def _word(value: Any) -> str:
    """A string, or the bytes of a base64 object, as a lower-case word; "" for what is neither."""
    try:
        return "" if isinstance(value, int) else as_bytes(value).decode("utf-8").lower()
    except ValueError:
        return ""


def _length(value: Any) -> Any:
    """How long a body is, in bytes; of several, how many there are."""
    if isinstance(value, list):
        return {"count": len(value)}
    try:
        return {"length": len(as_bytes(value))}
    except ValueError:
        return _described(value)


def _described(value: Any) -> str | None:
    """Type and length of a JSON value."""
    if value is None:
        return None
    if isinstance(value, str):
        return f"string of {_counted(len(value), 'character')}"
    if isinstance(value, Large):
        return f"string of {_counted(len(value.data), 'byte')}"
    if isinstance(value, list):
        return f"list of {_counted(len(value), 'element')}"
    if isinstance(value, Mapping):
        return f"object with {_counted(len(value), 'field')}"
    if isinstance(value, bool):
        return "true or false"
    return "whole number" if isinstance(value, int) else "number"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _cut(value: Any) -> Any:
    """A number as it is; text, or bytes in base64, up to a limit."""
    if isinstance(value, int | float):
        return value
    text = value if isinstance(value, str) else value.get("base64") if isinstance(value, Mapping) else None
    if not isinstance(text, str):
        return _described(value)
    if len(text) > TEXT_MAX:
        text = f"{text[:TEXT_MAX]}... ({len(text) - TEXT_MAX} more)"
    return text if isinstance(value, str) else {"base64": text}
