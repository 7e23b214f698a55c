"""What every measure is given: how often, how much, where, and how much time is left."""

import time
from collections.abc import Callable

import attrs

from benchmarks.figures import Row
from benchmarks.machine import Processors

DEFAULT_ROUNDS, QUICK_ROUNDS = 5, 3
DEFAULT_LIMIT_S, QUICK_LIMIT_S = 600.0, 90.0
SEED = 7711


class OutOfTime(Exception):
    """The run has used up its time."""


@attrs.define
class Bench:
    """A run."""

    processors: Processors
    quick: bool = False
    rounds: int = DEFAULT_ROUNDS
    seed: int = SEED
    #: Monotonic seconds at which the run must be over.
    until: float = attrs.field(factory=lambda: time.monotonic() + DEFAULT_LIMIT_S)

    def size(self, default: int, quick: int) -> int:
        """One of two sizes."""
        return quick if self.quick else default

    @property
    def round_s(self) -> float:
        """How long one round of one server shall take."""
        return 0.3 if self.quick else 1.5

    def left_s(self) -> float:
        """Seconds that are left.  Raises OutOfTime."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise OutOfTime("the time for the whole run is over; --only measures this alone")
        return left


@attrs.frozen
class Measure:
    """One measure: its name, and the function that takes it."""

    name: str
    title: str
    take: Callable[[Bench, str, str], Row]  #: (run, name, title)
    optional: bool = False  #: it needs a program that may be missing
