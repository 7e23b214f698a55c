"""The policy of a queue: its fields, as `set_policy` takes them and as `policy` returns them."""

import re
from typing import Final

import attrs

from .errors import BadReply
from .replies import read_list

#: Fields by the names that the arguments of `add` have, and as nodes call them.
_FIELDS: Final = {
    "replicate": "replicate", "retry": "retry", "ttl": "ttl", "maxlen": "maxlen", "max_tries": "maxtries",
    "backoff": "backoff", "keep_dead": "keepdead", "result_ttl": "result", "fair": "fair",
    "in_flight": "inflight", "group_in_flight": "groupinflight", "rate": "rate", "group_rate": "grouprate",
    "partition": "partition", "idle": "idle",
}  # fmt: skip
_NUMBER: Final = re.compile(r"[0-9]+(\.[0-9]+)?")
_RATES: Final = ("rate", "group_rate")
_NAMES: Final = {field: name for name, field in _FIELDS.items()}


@attrs.frozen
class Setting:
    """A field of a policy."""

    #: A number; of `backoff` the first delay and perhaps the longest; of rates jobs, seconds and perhaps the burst; of
    #: `pause` in, out or all; of `partition` strict or available.
    value: float | tuple[float, ...] | str
    #: Id of the node on which it was set.
    node: bytes
    #: When it was set, in unix seconds.
    set_at: int


@attrs.frozen
class Slot:
    """A job of a queue with limits that is with a consumer."""

    job_id: bytes
    #: Empty for none.
    group: bytes
    #: Id of the node that handed it out.
    node: bytes
    #: Until the slot ends by itself; -1 = the node knows no end before the job is acknowledged or given back.
    seconds_left: int
    #: Id of the worker that has the job, or the name or address of the client; None = the node that was asked does not
    #: know.
    client: bytes | None


def encode_field(name: str) -> bytes:
    """Return what nodes call a field.  Raises ValueError."""
    if name not in _FIELDS:
        raise ValueError(f"a field of {name!r}; {', '.join(_FIELDS)} are allowed")
    return _FIELDS[name].encode()


def read_policy(reply: object, node: bytes) -> dict[str, Setting]:
    """Read `[field, value, node, set at]` of each field.  Raises BadReply."""
    found = {}
    for row in map(read_list, read_list(reply)):
        match row:
            case [bytes() as field, bytes() as value, bytes() as set_on, int() as set_at]:
                name = _NAMES.get(field.decode(), field.decode())
                found[name] = Setting(_value_of(name, value.decode()), set_on, set_at)
            case _:
                raise BadReply(f"{row!r} is no field of a policy")
    return found


def read_slots(reply: object, node: bytes) -> list[Slot]:
    """Read `[job id, group, node, seconds left, client]` of each slot.  Raises BadReply."""
    found = []
    for row in map(read_list, read_list(reply)):
        match row:
            case [
                bytes() as job_id,
                bytes() as group,
                bytes() as taken_from,
                int() as seconds,
                bytes() | None as client,
            ]:
                found.append(Slot(job_id, group, taken_from, seconds, client))
            case _:
                raise BadReply(f"{row!r} is no slot")
    return found


def _value_of(name: str, text: str) -> float | tuple[float, ...] | str:
    """Read a value; what is no number is text, and a whole number is an int."""
    words = text.split()
    numbers = tuple(_number(word) for word in words if _NUMBER.fullmatch(word))
    if name in _RATES:
        return numbers
    if not numbers or len(numbers) < len(words):
        return text
    return numbers if name == "backoff" else numbers[0]


def _number(word: str) -> float:
    return float(word) if "." in word else int(word)
