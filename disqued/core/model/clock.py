"""The two clocks that the core is given.

Spans are measured on the monotonic clock alone, so that a wall clock that jumps moves no deadline.  The wall clock
is read only for what people and other nodes read: creation times, stored deadlines.

Times are integer milliseconds.
"""

from typing import Protocol


class Clock(Protocol):
    """What the core needs to know of time."""

    def now(self) -> int:
        """Milliseconds on a clock that never goes back; its zero means nothing."""

    def wall(self) -> int:
        """Milliseconds since 1970; may jump either way."""


class Calendar(Protocol):
    """What the core needs to know of calendars and time zones: when cron lines come.

    A line has five fields, or six with seconds first.  A time that a clock change skips comes once, at the change, and
    a time that comes twice comes the first time alone, so that instants rise strictly.  Times are unix milliseconds.
    """

    def misfit(self, line: bytes, zone: bytes) -> str:
        """Say what is wrong with a cron line or a time zone, and what is allowed; empty = they are sound."""

    def after(self, line: bytes, zone: bytes, wall: int, count: int) -> list[int]:
        """Return the first instants after a time, in order; fewer when there are no more."""

    def before(self, line: bytes, zone: bytes, since: int, wall: int, count: int) -> list[int]:
        """Return the last instants after `since` and not after `wall`, in order."""
