"""Readers of arguments: bytes of a client in, a value out, or the error that the command documents.

Integers are signed 64-bit decimals with an optional sign, as Disque reads them; an empty string counts as 0.

Spans are integer milliseconds here, whichever unit a client writes them in:

    2    0.25    .5    1e-3    4.998765432101234        what Python, JSON and C print, rounded to the millisecond

A span above 0 is never rounded to 0, which means something else to most commands.
"""

import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final

import attrs

from disqued.core.model.glob import PATTERN_MAX
from disqued.core.model.ids import is_job_id
from disqued.core.model.queues import NAME_MAX
from disqued.errors import BadJobId, CommandError, NotAnInteger

INT64_MAX = 2**63 - 1
INT64_MIN = -(2**63)
_DIGITS_MAX = 20
_LONGEST: Final = 4_096  #: bytes of a span; no double has more, all its digits written out
_SHORT: Final = 16  #: digits of a number of seconds whose milliseconds have 64 bits at most

#: Spans in seconds are kept below this, so that every deadline fits the records of Disque.
SECONDS_MAX = 2**31

# Units of spans, in milliseconds.
MILLISECOND: Final = 1
SECOND: Final = 1_000

_SPAN = re.compile(rb"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:[eE]([+-]?\d{1,6}))?")
_SHIFTS: Final = {MILLISECOND: 0, SECOND: 3}  #: how far the decimal point moves


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


def read_span(text: bytes, unit: int) -> int:
    """Read a span in this unit; returns milliseconds, rounded to the nearest, and never 0 for a value that is not 0.

    An empty string is 0.  What has more than 64 bits is one more than 64 bits hold, and so beyond every range.

    Raises ValueError for a text that is no decimal number.
    """
    if text.isdigit() and len(text) < _SHORT:
        return int(text) * unit
    if not text:
        return 0
    found = _SPAN.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise ValueError(text[:40])
    # Exact, whatever the digits are: a context would round to 28 of them first.
    value = Decimal(f"{found[1].decode()}e{int(found[2] or 0) + _SHIFTS[unit]}")
    if not value:
        return 0
    if value.adjusted() >= _DIGITS_MAX:
        return INT64_MIN - 1 if value < 0 else INT64_MAX + 1
    ms = int(value.to_integral_value(ROUND_HALF_UP)) or (-1 if value < 0 else 1)
    return max(INT64_MIN - 1, min(ms, INT64_MAX + 1))


def in_seconds(ms: int) -> int | float:
    """Return a span as replies tell it: whole seconds as an integer, as Disque does, another one with a fraction."""
    return ms / SECOND if ms % SECOND else ms // SECOND


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


TIMEOUT_MISFIT = "timeout is not an integer or out of range - allowed are milliseconds, 0 or more"
COUNT_MISFIT = "COUNT must be a number greater than zero - allowed are whole numbers"


def read_timeout(text: bytes) -> int:
    """Read a time-out in milliseconds; 0 = for ever."""
    if text == b"0":
        return 0
    if text.isdigit() and len(text) < _SHORT:
        return int(text)
    try:
        value = read_span(text, MILLISECOND)
    except ValueError:
        raise CommandError(TIMEOUT_MISFIT) from None
    if value < 0:
        raise CommandError("timeout is negative")
    if value > INT64_MAX:
        raise CommandError(TIMEOUT_MISFIT)
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
    "double", read_timeout, "milliseconds; 0 = wait for ever", {"type": "number", "minimum": 0, "maximum": INT64_MAX},
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


def seconds(name: str, error: str, *, zero: bool = False) -> Kind:
    """A kind of span in seconds, read as milliseconds; `zero` says whether 0 is allowed, too.

    One that no record could hold is refused with the limit.
    """
    too_long = f"{name} must be below {SECONDS_MAX} seconds"
    least, end = (0 if zero else 1), SECONDS_MAX * SECOND

    def read(text: bytes) -> int:
        try:
            ms = read_span(text, SECOND)
        except ValueError:
            raise CommandError(error) from None
        if least <= ms < end:
            return ms
        raise CommandError(error if ms < least else too_long)

    schema = {"type": "number", "minimum": least / SECOND, "maximum": SECONDS_MAX - 1}
    allowed = f"{'' if zero else 'above '}0 to {SECONDS_MAX - 1} seconds, with fractions"
    return Kind("double", read, allowed, schema, (f"ERR {error}", f"ERR {too_long}"))


def span(unit: int, least: int, most: int, error: str, allowed: str) -> Kind:
    """A kind of span in a unit, from `least` to `most` milliseconds, with an error text of its own."""

    def read(text: bytes) -> int:
        try:
            ms = read_span(text, unit)
        except ValueError:
            raise CommandError(error) from None
        if not least <= ms <= most:
            raise CommandError(error)
        return ms

    schema = {"type": "number", "minimum": least / unit, "maximum": most // unit}
    return Kind("double", read, allowed, schema, (f"ERR {error}",))


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
