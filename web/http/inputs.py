"""What a request brings: its query string and its body, read as the route declares them.

A parameter that the route does not know is refused, so that a misspelt one never does something else than was meant.
"""

from typing import Any, Final
from urllib.parse import parse_qsl

from disqued.web.http.exchange import Operation, QueryParameter
from disqued.web.http.jsontext import BadJSON, read, read_large
from disqued.web.http.origins import FORM, media_of
from disqued.web.http.problems import Problem
from disqued.web.turns import InThread

AT_ONCE_MAX: Final = 256 << 10  #: bytes of a body that is read in the turn in which it is there, in some milliseconds
FIELDS_MAX: Final = 20  #: of a form
DIGITS_MAX: Final = 20  #: of a whole number of 64 bits, and one more


def read_query(operation: Operation, request: Any) -> dict[str, Any]:
    """Read the query string: by name the value, or the list of all where there may be several.  Raises Problem 400."""
    known = {param.name: param for param in operation.query}
    found: dict[str, Any] = {}
    for raw_name, values in request.args.items():
        name = raw_name.decode("utf-8", "backslashreplace")
        param = known.get(name)
        if param is None:
            allowed = ", ".join(known) or "none"
            raise Problem(400, f"there is no parameter {name[:100]!r} here; allowed: {allowed}")
        if len(values) > 1 and not param.repeats:
            raise Problem(400, f"{name} is given {len(values)} times; once is allowed")
        read = [_read_param(param, value) for value in values]
        found[name] = read if param.repeats else read[0]
    return found


def _read_param(param: QueryParameter, raw: bytes) -> Any:
    kind, allowed = param.schema.get("type"), param.schema.get("enum")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        if param.schema.get("format") == "bytes":
            return raw
        raise Problem(400, f"{param.name}: this is no UTF-8") from None
    if param.schema.get("format") == "bytes":
        return raw
    if kind == "integer":
        low, high = param.schema["minimum"], param.schema["maximum"]
        if not _is_whole(text) or not low <= int(text) <= high:
            raise Problem(400, f"{param.name}={text[:100]}: allowed are whole numbers from {low} to {high}")
        return int(text)
    if kind == "boolean":
        if text not in ("true", "false"):
            raise Problem(400, f"{param.name}={text[:100]}: allowed are true and false")
        return text == "true"
    if allowed is not None and text not in allowed:
        raise Problem(400, f"{param.name}={text[:100]}: allowed are {', '.join(allowed)}")
    return text


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and len(digits) <= DIGITS_MAX


async def read_body(operation: Operation, request: Any, in_thread: InThread) -> Any:
    """Read the JSON body, or the form where the route takes one; None where it takes none.  Raises Problem 400.

    A large one is read in a thread.
    """
    if operation.body is None:
        return None
    raw: bytes = request.take_body()
    if operation.takes_form and media_of(request)[0] == FORM:
        return _read_form(raw)
    try:
        return await in_thread.run(read_large, raw) if len(raw) > AT_ONCE_MAX else read(raw)
    except BadJSON as error:
        raise Problem(400, f"the body is no JSON text in UTF-8: {error}") from None


def _read_form(raw: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(raw.decode("utf-8"), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
    except ValueError:
        raise Problem(400, f"the form cannot be read; allowed are {FIELDS_MAX} fields in UTF-8") from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise Problem(400, "a field of the form is given twice; once is allowed")
    return fields
