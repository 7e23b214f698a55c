"""How long requests took: every one is counted, so that a percentile is a request that there was, and no estimate.

Kept are whole microseconds, and how many requests took so many: what is kept grows with how different they are, not
with how many they are, and what several processes have counted adds up.
"""

from collections import Counter
from typing import Final, Self

#: Requests that are gathered before they are counted: counting many at a time costs a fifth of counting each.
GATHERED: Final = 4_096
US: Final = 1_000_000  #: in a second


class Latencies:
    """How many requests took how long."""

    __slots__ = ("_counts", "_gathered")

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()
        self._gathered: list[int] = []

    def add(self, us: int) -> None:
        """Count a request that took so many microseconds."""
        self._gathered.append(us)
        if len(self._gathered) >= GATHERED:
            self._count()

    def _count(self) -> None:
        self._counts.update(self._gathered)
        self._gathered.clear()

    @property
    def counts(self) -> Counter[int]:
        """How many requests took so many microseconds."""
        self._count()
        return self._counts

    def merge(self, counts: Counter[int]) -> Self:
        self._counts.update(counts)
        return self

    def __len__(self) -> int:
        return self.counts.total()

    def percentiles(self, *wanted: float) -> list[float]:
        """Say, in milliseconds, how long so many per cent of the requests took at most; 100 is the longest.

        `wanted` rises.  All are 0 when there was no request.
        """
        total = len(self)
        # In thousandths, which are whole: 99.9 / 100 is none that a float has.
        ranks = [max(1, -(-total * round(each * 1_000) // 100_000)) for each in wanted]
        found: list[float] = []
        passed = 0
        for us, count in sorted(self._counts.items()):
            passed += count
            while len(found) < len(ranks) and passed >= ranks[len(found)]:
                found.append(us / 1_000)
        return found or [0.0] * len(wanted)

    @property
    def mean_ms(self) -> float:
        total = len(self)
        return sum(us * count for us, count in self._counts.items()) / total / 1_000 if total else 0.0
