"""Rate limit for log lines that unauthenticated clients cause: each thing once an hour, and so many lines at most.

Whoever can connect could fill the disk otherwise.  Times are seconds.
"""

from collections.abc import Callable
from typing import Final

EVENTS_MAX: Final = 1_000  #: lines in an hour
PERIOD_S: Final = 3_600.0


class LogRate:
    """Remembers what was told."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        """`seconds` reads a clock that never goes back."""
        self._seconds = seconds
        self._since = seconds()
        self._told: set[str] = set()

    def is_new(self, event: str) -> bool:
        """Tell whether the log is to hear of this, and remember that it has."""
        now = self._seconds()
        if now - self._since >= PERIOD_S:
            self._told.clear()
            self._since = now
        if event in self._told or len(self._told) >= EVENTS_MAX:
            return False
        self._told.add(event)
        return True
