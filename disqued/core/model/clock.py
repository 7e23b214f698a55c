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
