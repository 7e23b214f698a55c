"""Numbers that a node draws or counts: job ids, creation stamps, numbers of questions, random shifts."""

from random import Random
from typing import Final

from mypy_extensions import i64

from disqued.core.model.ids import JobIds

AHEAD_NS = 86_400_000 * 1_000_000  #: how far ahead the stamp of another node may be and still move our stamps
QUESTIONS: Final = (1 << 32) - 1  #: the numbers of questions start again after this one


class Numbers:
    """The generators of one node."""

    __slots__ = ("ids", "last_ctime", "questions", "rng")

    def __init__(self, ids: JobIds, rng: Random) -> None:
        self.ids: JobIds = ids
        self.rng: Random = rng  #: draws nodes and shifts times
        self.last_ctime: int = 0  #: the highest stamp that was given or seen
        self.questions: int = 0  #: the number of the last question to other nodes

    def next_ctime(self, wall: int) -> int:
        """Stamp a job that is created now: unix nanoseconds, counted up within a millisecond, never going back."""
        # With a number of the machine: one of Python's costs ten times as much, above 2 ** 31.
        ctime = i64(wall) * 1_000_000
        if ctime <= self.last_ctime:
            ctime = i64(self.last_ctime) + 1
        self.last_ctime = ctime
        return ctime

    def next_front(self, wall: int) -> int:
        """Return the order key of a unit that is put in front of all others now."""
        return -self.next_ctime(wall)

    def stamp_behind(self, ctime: int, wall: int) -> None:
        """Stamp later jobs behind what another node knows, unless that is too far ahead."""
        if self.last_ctime < ctime < i64(wall) * 1_000_000 + AHEAD_NS:
            self.last_ctime = ctime

    def next_number(self) -> int:
        """Number a question to other nodes, which its answer repeats; never 0, and of 32 bits."""
        self.questions = self.questions % QUESTIONS + 1
        return self.questions

    def spread(self, span_ms: int) -> int:
        """Draw a shift within a span, to keep the timers of several nodes out of step."""
        return int(self.rng.random() * span_ms)
