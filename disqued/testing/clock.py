"""A clock that moves only when it is told to.

Both clocks of the core in one: `advance` moves them together, `jump_wall` moves the wall clock alone, as an operator
or a time server does.  Times are integer milliseconds.
"""

WALL_MS = 1_700_000_000_000  #: where the wall clock begins unless told otherwise: 14 November 2023, 22:13:20 UTC


class Clock:
    """A monotonic and a wall clock under the control of a test."""

    def __init__(self, now: int = 0, wall: int = WALL_MS) -> None:
        self._now = now
        self._wall = wall

    def now(self) -> int:
        """Milliseconds on the monotonic clock."""
        return self._now

    def wall(self) -> int:
        """Milliseconds since 1970."""
        return self._wall

    def advance(self, ms: int) -> None:
        """Let time pass on both clocks; it never goes back."""
        if ms < 0:
            raise ValueError(f"cannot advance by {ms} ms: time passes forwards; jump_wall moves the wall clock back")
        self._now += ms
        self._wall += ms

    def jump_wall(self, ms: int) -> None:
        """Set the wall clock forwards or back; the monotonic clock does not notice."""
        self._wall += ms
