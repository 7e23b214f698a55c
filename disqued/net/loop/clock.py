"""The clocks of this machine."""

import time
from typing import Any


class SystemClock:
    """Milliseconds of the monotonic and of the wall clock."""

    def now(self) -> int:
        """Milliseconds since some moment before the start of the process."""
        return time.monotonic_ns() // 1_000_000

    def wall(self) -> int:
        """Unix milliseconds."""
        return time.time_ns() // 1_000_000


def use_monotonic_time(reactor: Any) -> None:
    """Let a Twisted reactor keep its delayed calls by the monotonic clock.

    By default it keeps them by the wall clock: set back by an hour, that would stop every timer for an hour.  To be
    called before anything is scheduled.
    """
    reactor.seconds = time.monotonic
