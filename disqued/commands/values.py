"""Readers of arguments: bytes of a client in, a value out, or the error that the command documents.

Integers are signed 64-bit decimals with an optional sign, as Disque reads them; an empty string counts as 0.
"""

from collections.abc import Callable
from typing import Any

import attrs

from disqued.core.model.glob import PATTERN_MAX
from disqued.core.model.ids import is_job_id
from disqued.core.model.queues import NAME_MAX
from disqued.errors import BadJobId, CommandError, NotAnInteger

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
_DIGITS_MAX = 20

#: Spans in seconds are kept below this, so that every deadline fits the records of Disque.
SECONDS_MAX = 2**31


@attrs.frozen
class Kind:
    """A kind of argument: how it is read, and what the reference says of it."""

    name: str  #: as COMMAND DOCS names the type: string, integer, key, ...
    read: Callable[[bytes], Any] | None = None  #: None: taken as it is
    allowed: str = "any bytes"  #: what is accepted, for the reference
    schema: dict[str, Any] = attrs.field(factory=lambda: {"type": "string"})  #: JSON schema of the value
    errors: tuple[str, ...] = ()  #: lines of the errors that a value may meet
    words: tuple[str, ...] = ()  #: all that is allowed, where that is one of several words
    #: What the value is the name of, as far as users may be held to some names: a queue, a job, a worker that is acted
    #: on, a channel, a pattern of channels; empty for everything else.
    names: str = ""


def read_integer(text: bytes) -> int:
    """Read a signed 64-bit decimal.  Raises NotAnInteger."""
    if text.isdigit() and len(text) < _DIGITS_MAX - 1:
        return int(text)
    if not text:
        return 0
    digits = text[1:] if text[:1] in (b"-", b"+") else text
    if not digits.isdigit() or len(digits) >= _DIGITS_MAX:
        raise NotAnInteger
    value = int(text)
    if not INT64_MIN <= value <= INT64_MAX:
        raise NotAnInteger
    return value


def bounded(minimum: int, maximum: int, error: str) -> Callable[[bytes], int]:
    """Make a reader of integers from `minimum` to `maximum`; everything else is `error`."""

    def read(text: bytes) -> int:
        try:
            value = read_integer(text)
        except NotAnInteger:
            raise CommandError(error) from None
        if not minimum <= value <= maximum:
            raise CommandError(error)
        return value

    return read


def readable(word: bytes) -> str:
    """The beginning of a word that a client sent, for an error text."""
    return word[:128].decode("utf-8", "surrogateescape")


TIMEOUT_MISFIT = "timeout is not an integer or out of range - allowed are whole milliseconds, 0 or more"
COUNT_MISFIT = "COUNT must be a number greater than zero - allowed are whole numbers"


def read_timeout(text: bytes) -> int:
    """Read a time-out in milliseconds; 0 = for ever."""
    if text == b"0":
        return 0
    try:
        value = read_integer(text)
    except NotAnInteger:
        raise CommandError(TIMEOUT_MISFIT) from None
    if value < 0:
        raise CommandError("timeout is negative")
    return value


def read_job_id(text: bytes) -> bytes:
    """Read a job id.  Raises BadJobId (BADID)."""
    if not is_job_id(text):
        raise BadJobId
    return text


def reader_of_ids(read: Callable[[bytes], Any], error: str) -> Callable[[bytes], Any]:
    """Make a reader of job ids, or of what begins with one, whose BADID has this text."""

    def read_job_id(text: bytes) -> bytes:  # without a call within a call: there may be very many
        if not is_job_id(text):
            raise BadJobId(error)
        return text

    def read_other(text: bytes) -> Any:
        try:
            return read(text)
        except BadJobId:
            raise BadJobId(error) from None

    return read_job_id if read is JOB_ID.read else read_other


def read_pattern(text: bytes) -> bytes:
    """Read a glob pattern of names."""
    if len(text) > PATTERN_MAX:
        raise CommandError(_LONG_PATTERN)
    return text


_LONG_PATTERN = f"a pattern has up to {PATTERN_MAX} bytes"

BYTES = Kind("string")
QUEUE = Kind("string", None, f"any bytes, or none; {NAME_MAX} at most of a new queue", names="queue")
#: What something is called, which is no body.
NAME = Kind("string", None, "any bytes, or none")
TIMEOUT = Kind(
    "integer", read_timeout, "milliseconds; 0 = wait for ever", {"type": "integer", "minimum": 0, "maximum": INT64_MAX},
    (f"ERR {TIMEOUT_MISFIT}", "ERR timeout is negative"),
)  # fmt: skip
JOB_ID = Kind(
    "string", read_job_id, "48 bytes DI…SQ, or 40 bytes D-… of Disque 1.0",
    errors=(f"{BadJobId.code} {BadJobId.__doc__}",), names="job",
)  # fmt: skip
#: The worker that is to have what is handed out.
TAKER = Kind("string", names="worker")
CHANNEL = Kind("string", names="channel")
CHANNEL_PATTERN = Kind("string", names="pattern")
PATTERN = Kind("string", read_pattern, f"up to {PATTERN_MAX} bytes", errors=(f"ERR {_LONG_PATTERN}",))


def whole(name: str) -> Kind:
    """A kind of integer of any size, named in the error."""
    error = f"{NotAnInteger.__doc__} - {name} takes whole numbers of 64 bits"
    read = bounded(INT64_MIN, INT64_MAX, error)
    return Kind("integer", read, "whole numbers of 64 bits", {"type": "integer"}, (f"ERR {error}",))


def integer(minimum: int, maximum: int, error: str, allowed: str) -> Kind:
    """A kind of integer with limits and an error text of its own."""
    schema = {"type": "integer", "minimum": minimum, "maximum": maximum}
    return Kind("integer", bounded(minimum, maximum, error), allowed, schema, (f"ERR {error}",))


def never_empty(kind: Kind, error: str) -> Kind:
    """The same kind, but `error` for an empty text, which others read as 0: a shell variable that is not set."""
    read_text: Callable[[bytes], Any] = kind.read or bytes

    def read(text: bytes) -> Any:
        if not text:
            raise CommandError(error)
        return read_text(text)

    return attrs.evolve(kind, read=read, allowed=f"{kind.allowed}; not empty")


def count(minimum: int, most: int, error: str) -> Kind:
    """A kind of number from `minimum`; more than `most` is as many as that."""
    read = bounded(minimum, INT64_MAX, error)
    kind = integer(minimum, INT64_MAX, error, f"{minimum} or more; more than {most} is {most}")
    return attrs.evolve(kind, read=lambda text: min(read(text), most))


def seconds(name: str, minimum: int, error: str) -> Kind:
    """A kind of span in seconds, from `minimum`; one that no record could hold is refused with the limit."""
    too_long = f"{name} must be below {SECONDS_MAX} seconds"
    in_range = bounded(minimum, INT64_MAX, error)

    def read(text: bytes) -> int:
        value = in_range(text)
        if value >= SECONDS_MAX:
            raise CommandError(too_long)
        return value

    schema = {"type": "integer", "minimum": minimum, "maximum": SECONDS_MAX - 1}
    allowed = f"{minimum} to {SECONDS_MAX - 1} seconds"
    return Kind("integer", read, allowed, schema, (f"ERR {error}", f"ERR {too_long}"))


def one_of(words: dict[bytes, Any], error: str) -> Kind:
    """A kind that is one of several words, in any case; everything else is `error`.

    `{word}` in the error is the word that was given.
    """

    def read(text: bytes) -> Any:
        try:
            return words[text[:32].upper()]
        except KeyError:
            raise CommandError(error.replace("{word}", repr(readable(text)))) from None

    names = [word.decode().lower() for word in words]
    line = f"ERR {error.replace('{word}', '<word>')}"
    schema = {"type": "string", "enum": names}
    return Kind("oneof", read, " | ".join(names), schema, (line,), tuple(names))
