"""What a queue, or the node, was like: a ring of an hour in seconds and one of a week in minutes.

Each slot has a length, rates in, out and acked, and the age of the oldest job.  Only what changes is written down: a
quiet stretch is filled in when something happens again, or when somebody reads.

    slot 0 .... 3599    a second each, 20 bytes: 72 000 bytes when the hour is full
    slot 0 ... 10079    a minute each, 20 bytes: 201 600 bytes when the week is full

Rings grow as time passes, so that a queue takes what it has lived through since its first sample, 273 600 bytes at
most.
"""

from array import array
from collections.abc import Callable
from typing import Any, Final, NamedTuple

SECONDS: Final = 3_600  #: slots of the hour
MINUTES: Final = 10_080  #: slots of the week
BYTES_MAX: Final = 20 * (SECONDS + MINUTES)
_CODES: Final = "Iffff"


class Slot(NamedTuple):
    """One slot."""

    length: int  #: jobs
    in_rate: float  #: jobs queued a second
    out_rate: float  #: jobs handed out a second
    acked_rate: float  #: jobs acknowledged a second
    oldest_s: float  #: age of the job that waits first, seconds; 0 = none waits


class Ring:
    """Slots without gaps, the newest of them known by its number; the oldest make room."""

    __slots__ = ("_at", "_columns", "_size", "_step_s", "newest")

    def __init__(self, size: int, step_s: int, newest: int) -> None:
        """`newest` is the number of the slot before the first one that will be written."""
        self.newest: int = newest
        self._size = size
        self._step_s = step_s
        self._at = 0  #: where the oldest slot is, once all are in use
        self._columns: list[array[Any]] = [array(code) for code in _CODES]

    def __len__(self) -> int:
        return len(self._columns[0])

    def columns(self) -> "list[array[Any]]":
        """Every column, oldest slot first."""
        return [column[self._at :] + column[: self._at] for column in self._columns]

    def put(self, sample: Slot, until: int) -> None:
        """Write the same into all slots up to a number."""
        self._extend(until, lambda count: [array(code, [value]) * count for code, value in zip(_CODES, sample)])  # noqa: B905

    def rest(self, length: int, oldest_s: float, until: int) -> None:
        """Write into all slots up to a number that nothing happened, but that what waits grew older."""

        def quiet(count: int) -> "list[array[Any]]":
            zeros = array("f", bytes(4 * count))
            skipped = until - self.newest - count
            ages = range(skipped + 1, skipped + count + 1)
            ageing = array("f", [oldest_s + number * self._step_s for number in ages]) if length else zeros
            return [array("I", [length]) * count, zeros, zeros, zeros, ageing]

        self._extend(until, quiet)

    def _extend(self, until: int, make: "Callable[[int], list[array[Any]]]") -> None:
        missing = until - self.newest
        if missing <= 0:
            return
        count = min(missing, self._size)
        if missing > self._size:
            self._at, self._columns = 0, [array(code) for code in _CODES]
        before = len(self)
        for column, new in zip(self._columns, make(count), strict=True):
            grown = min(count, self._size - before)
            column.extend(new[:grown])
            _write_round(column, self._at, new[grown:])
        self._at = (self._at + max(0, count - (self._size - before))) % self._size
        self.newest = until


def _write_round(column: "array[Any]", at: int, new: "array[Any]") -> None:
    """Write into a full column from a place on, and go on at its front."""
    first = new[: len(column) - at]
    column[at : at + len(first)] = first
    rest = new[len(first) :]
    column[: len(rest)] = rest


class Track:
    """What there is to remember of one queue, or of the node."""

    __slots__ = ("_counts", "_minute", "changed_at", "hour", "identity", "known_from", "last", "seen", "week")

    def __init__(self, slot: int) -> None:
        """Begin after a second."""
        self.hour = Ring(SECONDS, 1, slot)
        self.week = Ring(MINUTES, 60, slot // 60 - 1)
        self.last = Slot(0, 0.0, 0.0, 0.0, 0.0)
        self.identity: tuple[int, int] = (0, 0)  #: of the queue: a name may come again
        self.seen: tuple[int, ...] = ()  #: counters in, out and acked, and the length, as they were last
        self.changed_at: int = slot  #: when something happened last
        self.known_from: int = slot  #: rates are true after this second; before, nobody had looked at the counters
        self._minute = slot // 60
        self._counts = [0, 0, 0]

    def note(self, slot: int, span: int, counts: tuple[int, int, int], length: int, oldest_s: float) -> None:
        """Write down what came, left and was acked within the `span` seconds that end with this slot."""
        self.rest(slot - span)
        self.changed_at = slot
        span = max(1, slot - self.hour.newest)
        in_rate, out_rate, acked_rate = (count / span for count in counts)
        self.last = Slot(length, in_rate, out_rate, acked_rate, oldest_s)
        self.hour.put(self.last, slot)
        self._end_minute(slot // 60)
        self._counts = [before + count for before, count in zip(self._counts, counts, strict=True)]

    def rest(self, slot: int) -> None:
        """Write down that nothing happened until then."""
        quiet_s = slot - self.hour.newest
        if quiet_s <= 0:
            return
        self.hour.rest(self.last.length, self.last.oldest_s, slot)
        oldest_s = self.last.oldest_s + quiet_s if self.last.length else 0.0
        self.last = Slot(self.last.length, 0.0, 0.0, 0.0, oldest_s)
        self._end_minute(slot // 60)

    def _end_minute(self, minute: int) -> None:
        """Write down the minute that was under way, and those in which nothing happened, if they are over."""
        if minute <= self._minute:
            return
        in_rate, out_rate, acked_rate = (count / 60 for count in self._counts)
        length, oldest_s = self.last.length, self.last.oldest_s
        quiet_s = 60 * (minute - 1 - self._minute)
        began_s = max(0.0, oldest_s - quiet_s) if length else 0.0
        self.week.put(Slot(length, in_rate, out_rate, acked_rate, began_s), self._minute)
        self.week.rest(length, began_s, minute - 1)
        self._minute = minute
        self._counts = [0, 0, 0]
