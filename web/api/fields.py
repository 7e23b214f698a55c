"""Commands by the names of their fields: JSON objects become the words of a command, and the table becomes schemas.

    {"queue": "mail", "body": "hi", "timeout": 0, "delay": 5}
        --words--> ADDJOB mail hi 0 DELAY 5

The words stand in the order of the grammar: values in their places, then options and flags, then the rest.  A value
that a command needs for its place alone, as ADDJOB its time-out, may be left out here (`DEFAULTS`).  The words are
parsed by the command itself, so what a value may be, and the error when it is not, are the same as for a client.  Only
the type of a value in JSON is looked at here: where a whole number stands no text is taken, and no list.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from disqued.commands import catalogue
from disqued.commands.durations import NUMBER
from disqued.commands.scans import CURSOR
from disqued.commands.table import Arg, Command, Field, Flag, manual
from disqued.commands.values import JOB_ID, Kind
from disqued.web.http.exchange import Schema
from disqued.web.http.problems import Problem
from disqued.web.http.values import BYTES, Large, as_bytes

assert catalogue.MODULES  # the table is complete

#: Every command by its name in the manual; `table.is_callable` says whether this node has it under that name.
COMMANDS: Final[Mapping[str, Command]] = {entry.name: entry for entry in manual()}

#: A value that is bytes: text, or what is no text in base64; a number is taken for its digits.
VALUE: Final[dict[str, Any]] = {
    "oneOf": [{"type": "string"}, {"type": "integer"}, BYTES["oneOf"][1]],
    "description": 'A string, a whole number, or {"base64": ...} for bytes that are no UTF-8.',
}
#: A job id as far as its form is looked at.
JOB_IDS: Final[dict[str, Any]] = {"type": "string", "pattern": "^(DI[ -~]{44}SQ|D-[ -~]{8}-[ -~]{24}-[ -~]{4})$"}
_INTEGERS: Final[dict[str, Any]] = {"minimum": -(2**63), "maximum": 2**63 - 1}

#: Values that stand in their places, by command and field, where they are left out: those of the client libraries, and
#: of the routes of their own.
DEFAULTS: Final[Mapping[tuple[str, str], int | str]] = {
    ("ADDJOB", "timeout"): 5_000, ("CONFIG GET", "pattern"): "*", ("QPEEK", "count"): 10, ("WAITJOB", "timeout"): 0,
}  # fmt: skip

#: Error words that any command may answer, and those of its flags.
_ALWAYS: Final = ("ERR", "TRYAGAIN")
_DENY_OOM: Final = ("OOM", "MISCONF")


# The table as schemas.


def names(entry: Command) -> list[str]:
    """Names of the fields of a command in JSON, in their order."""
    return [field.name for field in entry.fields]


def schema(entry: Command, only: Iterable[str] | None = None) -> Schema:
    """Schema of the JSON object that stands for the fields of a command, or for some of them."""
    fields = [field for field in entry.fields if only is None or field.name in set(only)]
    found: dict[str, Any] = {
        "type": "object",
        "properties": {field.name: _property(entry, field) for field in fields},
        "additionalProperties": False,
    }
    required = [field.name for field in fields if _is_required(entry, field)]
    if required:
        found["required"] = required
    if needs := _needs(fields):
        found["dependentRequired"] = needs
    return found


def _needs(fields: Iterable[Field]) -> dict[str, list[str]]:
    """Name the optional fields that stand before others, which are read in their places."""
    optional = [field.name for field in fields if field.arg.style == "optional"]
    return {name: optional[:place] for place, name in enumerate(optional) if place}


def _is_required(entry: Command, field: Field) -> bool:
    arg = field.arg
    is_placed = arg.style == "positional" and (entry.name, field.name) not in DEFAULTS
    return is_placed or (arg.style == "rest" and bool(arg.minimum))


def _property(entry: Command, field: Field) -> dict[str, Any]:
    """Schema of a field, with what it is when it is left out."""
    found, said = _field_schema(field), _description(field)
    default = DEFAULTS.get((entry.name, field.name))
    if default is None:
        return {**found, "description": said}
    meaning, allowed, kinds = said.partition(" Allowed: ")
    return {**found, "default": default, "description": f"{meaning} Unless given: {default}.{allowed}{kinds}"}


def _description(field: Field) -> str:
    arg = field.arg
    word = "" if arg.keyword is None else f" The word {arg.keyword.decode()} of the command."
    allowed = "" if arg.style == "flag" else f" Allowed: {arg.kind.allowed}."
    return f"{arg.doc}{word}{allowed}"


def _field_schema(field: Field) -> dict[str, Any]:
    arg = field.arg
    if arg.style == "flag":
        return {"type": "boolean", "default": False}
    one = value_schema(arg.kind)
    if arg.parts:
        values = {part: value_schema(arg.kind_of(part)) for part in arg.parts}
        one = {"type": "object", "properties": values, "required": list(arg.required), "additionalProperties": False}
    if arg.style == "rest":
        return {"type": "array", "items": one, "minItems": arg.minimum}
    return {"type": "array", "items": one} if arg.repeats else one


def value_schema(kind: Kind) -> dict[str, Any]:
    """Schema of one value."""
    if kind is JOB_ID:
        return JOB_IDS
    if kind.schema == {"type": "string"}:
        return VALUE
    if kind is CURSOR:
        return {"type": "integer", **_INTEGERS}  # a negative one wraps round
    return {**_INTEGERS, **kind.schema} if kind.schema.get("type") == "integer" else dict(kind.schema)


def error_words(entry: Command, only: Iterable[str] | None = None) -> tuple[str, ...]:
    """The words of the errors that a command may answer, each once; those of some fields alone are the usual ones."""
    if only is not None:
        return _ALWAYS
    lines = [line for field in entry.fields for line in field.arg.errors]
    found = [*_ALWAYS, *(line.split(" ", 1)[0] for line in (*lines, *entry.errors))]
    if Flag.DENY_OOM in entry.flags:
        found += _DENY_OOM
    if Flag.LOADING not in entry.flags:
        found.append("LOADING")
    return tuple(dict.fromkeys(found))


def reply_schema(entry: Command) -> Schema:
    """Schema of what a command answers, as far as its shape says."""
    kinds = {
        "integer": {"type": "integer"}, "integer or double": {"type": "number"}, "map": {"type": "object"},
        "status": BYTES, "bulk string": BYTES, "null": {"type": "null"}, "no reply": {"type": "null"},
    }  # fmt: skip
    text = entry.reply.text
    found: list[dict[str, Any]] = []
    for part in text.split("; or "):
        kind = kinds.get(part.partition(":")[0], {"type": "array"})
        if kind not in found:
            found.append(kind)
    return {"anyOf": found, "description": text} if len(found) > 1 else {**found[0], "description": text}


# JSON as words.


def words(entry: Command, given: Any, only: Iterable[str] | None = None) -> list[bytes]:
    """The words of a command whose fields a JSON object gives.

    Raises Problem 400: a field that is not there or that is missing, or a value of the wrong JSON type.
    """
    fields = [field for field in entry.fields if only is None or field.name in set(only)]
    values = read_object(given, [field.name for field in fields])
    for name, before in _needs(fields).items():
        if name in values and not all(each in values for each in before):
            raise Problem(400, f"{name} is given without {_listed(before)}; allowed is {name} together with that")
    found = [word.encode() for word in entry.name.split()]
    for styles in (("positional",), ("optional",), ("option", "flag"), ("rest",)):
        for field in fields:
            if field.arg.style not in styles:
                continue
            value = values.get(field.name, DEFAULTS.get((entry.name, field.name)))
            if field.name in values or value is not None:
                found += _words_of(field, value)
            elif _is_required(entry, field):
                raise Problem(400, f"{entry.name} needs the field {field.name}: {_description(field)}")
    return found


def read_object(given: Any, allowed: Iterable[str], what: str = "the body") -> Mapping[str, Any]:
    """Check that a value is an object with these members alone.  Raises Problem 400."""
    if not isinstance(given, Mapping):
        raise Problem(400, f"{what} is {_kind(given)}; allowed is an object with {_listed(allowed)}")
    for name in given:
        if name not in allowed:
            raise Problem(400, f"there is no field {name[:100]!r} here; allowed: {_listed(allowed)}")
    return given


def _listed(allowed: Iterable[str]) -> str:
    return ", ".join(allowed) or "none"


def _words_of(field: Field, value: Any) -> Iterator[bytes]:
    arg = field.arg
    if arg.style == "flag":
        if not isinstance(value, bool):
            raise _wrong(field.name, value, "true and false")
        if value:
            yield arg.keyword or b""
    elif arg.style == "rest":
        if arg.keyword is not None:
            yield arg.keyword
        yield from (_word(f"{field.name}[{at}]", arg.kind, each) for at, each in enumerate(_list(field, value)))
    elif arg.repeats:
        for place, element in enumerate(_list(field, value)):
            yield arg.keyword or b""
            yield from _value(f"{field.name}[{place}]", arg, element)
    else:
        if arg.keyword is not None:
            yield arg.keyword
        yield from _value(field.name, arg, value)


def _list(field: Field, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _wrong(field.name, value, "lists")
    return value


def _value(name: str, arg: Arg, value: Any) -> list[bytes]:
    """Return one value of a field as words: an object where it is made of parts."""
    if not arg.parts:
        return [_word(name, arg.kind, value)]
    if not isinstance(value, Mapping) or not set(arg.required) <= set(value) <= set(arg.parts):
        spare = "".join(f", and {part} if wanted" for part in arg.parts if part not in arg.required)
        raise _wrong(name, value, f"objects with {' and '.join(arg.required or arg.parts)}{spare}")
    found: list[bytes] = []
    for part, before in zip(arg.parts, arg.words or ("",) * len(arg.parts), strict=True):
        if part in value:
            found += [before.encode()] if before else []
            found.append(_word(f"{name}.{part}", arg.kind_of(part), value[part]))
    return found


def _word(name: str, wanted: Kind, value: Any) -> bytes:
    """One value as a word of the command.  Raises Problem 400 for a type that JSON has and the field has not."""
    kind = wanted.schema.get("type")
    if kind == "integer":
        return b"%d" % whole(name, value)
    if isinstance(value, float) and NUMBER in wanted.schema.get("oneOf", ()):
        return repr(value).encode()
    if kind == "number":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong(name, value, "numbers")
        return repr(value).encode()
    if kind == "boolean":
        if not isinstance(value, bool):
            raise _wrong(name, value, "true and false")
        return b"yes" if value else b"no"
    if wanted.words and not isinstance(value, str):
        raise _wrong(name, value, wanted.allowed)
    return read_bytes(name, value)


def whole(name: str, value: Any) -> int:
    """A whole number in JSON; 5.0 is one, too.  Raises Problem 400."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(name, value, "whole numbers")
    return value


def read_bytes(name: str, value: Any) -> bytes:
    """Bytes in JSON.  Raises Problem 400."""
    try:
        return as_bytes(value)
    except ValueError as error:
        if isinstance(value, Mapping):
            raise Problem(400, f"{name}: {error}") from None
        raise Problem(400, f"{name} is {_kind(value)}; {error}") from None


def _wrong(name: str, value: Any, allowed: str) -> Problem:
    return Problem(400, f"{name} is {_kind(value)}; allowed are {allowed}")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    words = {int: "a whole number", float: "a number", str: "a string", list: "a list", dict: "an object",
             Large: "a long string"}  # fmt: skip
    return words[type(value)]
