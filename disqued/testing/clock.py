"""Clocks that move only when they are told to.

`Clock` is both clocks of the core in one: `advance` moves them together, `jump_wall` moves the wall clock alone, as
an operator or a time server does.  `NodeClock` is the same for a node among others in virtual time: all of them go at
one rate, each has begun at another moment, and the wall clocks agree as little as they are made to.

Times are integer milliseconds.
"""

from disqued.testing.events import EventQueue

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


class NodeClock:
    """The clocks of one node in virtual time."""

    __slots__ = ("_drift_ms", "_events", "_latest", "off_ms", "offset_ms")

    def __init__(self, events: EventQueue, offset_ms: int) -> None:
        """Take the virtual time, and what the monotonic clock is ahead of it; a machine that boots has another."""
        self._events = events
        self.offset_ms: int = offset_ms
        self.off_ms: int = 0  #: how far the wall clock is from the truth for all its life
        self._drift_ms: int = 0
        self._latest: int = 0

    def now(self) -> int:
        """Milliseconds on the monotonic clock."""
        return self._events.now + self.offset_ms

    def wall(self) -> int:
        """Milliseconds since 1970, as far as this node knows."""
        return WALL_MS + self._events.now + self.off_ms + self._drift_ms

    @property
    def drift_ms(self) -> int:
        """How much further the wall clock is from the truth, since it was set."""
        return self._drift_ms

    @drift_ms.setter
    def drift_ms(self, ms: int) -> None:
        self._latest = self.latest
        self._drift_ms = ms

    @property
    def latest(self) -> int:
        """The latest time that the wall clock has shown."""
        return max(self._latest, self.wall())
