"""Additions that no client waits for itself: who hears of their end in its place.

Of those whose producers do not wait (NOBLOCK) it is known how many are under way, and how many came to nothing.

Nobody hears of the end of such an addition, so a node takes a bounded number of them at a time and counts those that
fail.  One that is there at once, since this node alone is to hold it, is never under way.
"""

from mypy_extensions import trait

from disqued.errors import CommandError

POOL_SIZE = 128  #: additions at a time


@trait
class BackgroundClient:
    """Stands in the place of the client of an addition, and hears how it ends."""

    __slots__ = ()

    # Not an abstract class, as `Unit` is none: isinstance is asked of the client of each job that waited for copies.

    def ended(self, value: object) -> None:
        """An addition came to an end: with an id, or with an error; each kind does with it what it likes."""
        raise NotImplementedError

    @property
    def takes_fewer(self) -> bool:
        """Whether the job is added with the copies that there are, when there are not enough in time."""
        return False


class Background(BackgroundClient):
    """Stands in the place of the client of additions that nobody waits for."""

    __slots__ = ("failed", "limit", "running")

    def __init__(self) -> None:
        self.limit: int = POOL_SIZE
        self.running: int = 0  #: additions that wait for copies
        self.failed: int = 0  #: additions that were given up, since the node started

    @property
    def is_full(self) -> bool:
        """Tell whether no more can be taken now."""
        return self.running >= self.limit

    def ended(self, value: object) -> None:
        """Count it."""
        self.running -= 1
        self.failed += isinstance(value, CommandError)
