"""Durations, and the moments at which they end: seconds in, milliseconds out.

    2    0.25    @1795305600.5        two seconds, a quarter of one; a moment, in unix seconds

The numbers are those of other spans (`values.read_span`).
"""

from typing import Final, NamedTuple

from disqued.commands.values import SECOND, SECONDS_MAX, Kind, read_span
from disqued.errors import CommandError

#: The schema of what may be a number in JSON.
NUMBER: Final = {"type": "number"}
_MOMENT_MAX = 2 * SECONDS_MAX  #: unix seconds; in the year 2106


class Duration(NamedTuple):
    """A duration, or the moment at which one ends."""

    ms: int
    is_moment: bool = False  #: `ms` is unix milliseconds

    def left_ms(self, wall: int) -> int:
        """What is left of it at a moment, never below 0; `wall` is unix milliseconds."""
        return max(0, self.ms - wall) if self.is_moment else self.ms


def read_duration(text: bytes, name: str, *, zero: bool) -> Duration:
    """Read a duration of this name, or a moment; `zero` says whether 0 is allowed.  Raises CommandError."""
    is_moment = text.startswith(b"@")
    digits = text[1:] if is_moment else text
    try:
        ms = read_span(digits, SECOND) if digits else None
    except ValueError:
        ms = None
    if ms is None:
        raise CommandError(f"{name} must be a number of seconds, or @ and a unix time")
    if ms < (0 if zero else 1):
        raise CommandError(f"{name} must be {'at least' if zero else 'above'} 0 seconds")
    if not is_moment and ms >= SECONDS_MAX * SECOND:
        raise CommandError(f"{name} must be below {SECONDS_MAX} seconds")
    if ms >= _MOMENT_MAX * SECOND:
        raise CommandError(f"{name} must be a unix time in seconds below {_MOMENT_MAX}")
    return Duration(ms, is_moment)


def duration(name: str, *, zero: bool) -> Kind:
    """A kind of duration of this name in error texts; `zero` says whether 0 is allowed."""
    least = "0" if zero else "above 0"

    def read(text: bytes) -> Duration:
        return read_duration(text, name, zero=zero)

    errors = (
        f"ERR {name} must be a number of seconds, or @ and a unix time",
        f"ERR {name} must be {'at least' if zero else 'above'} 0 seconds",
        f"ERR {name} must be below {SECONDS_MAX} seconds",
        f"ERR {name} must be a unix time in seconds below {_MOMENT_MAX}",
    )
    allowed = f"{least} to {SECONDS_MAX - 1} seconds, with fractions; or @ and a unix time in seconds"
    return Kind("double", read, allowed, {"oneOf": [NUMBER, {"type": "string"}]}, errors)
