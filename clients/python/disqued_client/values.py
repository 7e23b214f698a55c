"""Arguments of callers as words of a command; invalid values are refused before anything is sent.

Durations are seconds, as numbers or as `timedelta`.
"""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from math import isfinite
from typing import Final, TypeAlias

Word: TypeAlias = bytes | str | int
#: Seconds.
Span: TypeAlias = int | float | timedelta
#: Names and values of a job's headers.
Headers: TypeAlias = tuple[tuple[bytes, bytes], ...]

MOST_SECONDS: Final = 2**31 - 1
ABOVE_0: Final = 0.001  #: the shortest span that is not 0, in seconds
HEADERS_MAX: Final = 16
HEADER_NAME_MAX: Final = 255  #: bytes
HEADERS_BYTES_MAX: Final = 8_192  #: of all names and values together


def encode(value: Word, name: str = "a word") -> bytes:
    """Encode text as UTF-8 and numbers as decimals.  Raises ValueError."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if not _is_whole(value):
        raise ValueError(f"{name} is {value!r}; bytes, text and whole numbers can be sent")
    return b"%d" % value


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def encode_data(value: bytes | str, name: str) -> bytes:
    """Encode a name or a body.  Raises ValueError, also for a number, which is a mistake as a name."""
    if not isinstance(value, bytes | str):
        raise ValueError(f"{name} is {value!r}, and has to be bytes or text")  # noqa: TRY004 - one error for all
    return encode(value)


def encode_queues(queues: bytes | str | Iterable[bytes | str]) -> tuple[bytes, ...]:
    """Encode the names of one or more queues; a single name is one queue.  Raises ValueError."""
    if isinstance(queues, bytes | str):
        queues = (queues,)
    found = tuple(encode_data(queue, "a queue") for queue in queues)
    if not found:
        raise ValueError("no queue is named; at least one is needed")
    return found


def to_seconds(span: Span, name: str) -> float:
    """Convert a duration to seconds.  Raises ValueError."""
    if isinstance(span, timedelta):
        return span.total_seconds()
    if not (_is_whole(span) or isinstance(span, float)) or not isfinite(span):
        raise ValueError(f"{name} is {span!r}, and has to be a number of seconds or a timedelta")
    return float(span)


def encode_span(span: Span, name: str, least: float = 0, most: int = MOST_SECONDS) -> bytes:
    """Encode a duration for an option in seconds, to the millisecond; one above 0 is never 0.  Raises ValueError."""
    seconds = to_seconds(span, name)
    ms = max(round(seconds * 1_000), 1 if seconds > 0 else 0)
    if seconds < 0 or not least * 1_000 <= ms <= most * 1_000:
        raise ValueError(f"{name} is {seconds:.15g} seconds; {least} to {most} are allowed")
    whole, rest = divmod(ms, 1_000)
    return (b"%d.%03d" % (whole, rest)).rstrip(b"0") if rest else b"%d" % whole


def waiting_seconds(span: Span, name: str, most: int = MOST_SECONDS) -> float:
    """Convert a time to wait to seconds.  Raises ValueError when it is not positive, or too long."""
    seconds = to_seconds(span, name)
    if not 0 < seconds <= most:
        raise ValueError(f"{name} is {seconds:g} seconds; more than 0, and at most {most}, are allowed")
    return seconds


def milliseconds(seconds: float) -> bytes:
    """Encode a time to wait, never as 0, which means no limit to a node."""
    return b"%d" % max(1, round(seconds * 1_000))


def whole_number(value: int, name: str, least: int = 1, most: int = 2**63 - 1) -> bytes:
    """Encode a count.  Raises ValueError."""
    if not _is_whole(value) or not least <= value <= most:
        raise ValueError(f"{name} is {value!r}; a whole number from {least} to {most} is allowed")
    return b"%d" % value


def short_text(value: bytes | str, name: str, most: int) -> bytes:
    """Encode text of at most `most` bytes.  Raises ValueError."""
    data = encode_data(value, name)
    if len(data) > most:
        raise ValueError(f"{name} has {len(data)} bytes; at most {most} are allowed")
    return data


def encode_headers(headers: Mapping[str, bytes | str]) -> Headers:
    """Encode the headers of a job.  Raises ValueError."""
    if not isinstance(headers, Mapping):
        raise ValueError(f"headers are {headers!r:.100}; a mapping of names to values is allowed")  # noqa: TRY004
    found = tuple(
        (encode_data(name, "a header name"), encode_data(value, "a header")) for name, value in headers.items()
    )
    if len(found) > HEADERS_MAX:
        raise ValueError(f"{len(found)} headers; at most {HEADERS_MAX} are allowed")
    if (size := sum(len(name) + len(value) for name, value in found)) > HEADERS_BYTES_MAX:
        raise ValueError(f"headers of {size} bytes; at most {HEADERS_BYTES_MAX} are allowed")
    for name, _ in found:
        if not 0 < len(name) <= HEADER_NAME_MAX or not name.isascii() or not name.decode().isprintable():
            raise ValueError(
                f"header name {name[:40]!r}; 1 to {HEADER_NAME_MAX} printable ASCII characters are allowed"
            )
    if len(dict(found)) < len(found):
        raise ValueError("a header is named as bytes and as text; one of them is allowed")
    return found
