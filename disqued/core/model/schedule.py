"""The one list of deadlines: requeues, expiries, time-outs, idle queues.

A node may hold millions of deadlines, most of which are cancelled or put off before they are due.  They are kept in
buckets of `WIDTH_MS`, in the order in which they came; a bucket is put in order only when its time has begun:

    add ---> front (a heap: exact, for deadlines before `_horizon`)
       \\--> buckets {number: [item, item, ...]}  --- its time begins ---> front --- due ---> the caller

So adding and cancelling cost the same however many deadlines there are, and an entry costs one pointer.  An item
says itself when it is due (`awake_at`); an entry that no longer agrees with its item is stale and is dropped when it
is met.  A bucket that is stale by more than a quarter is written again, and one with nothing else is emptied at once:
what is cancelled is not kept in memory until its time, which may be days away.  A stale entry may be all that keeps a
job that was dropped, and memory does not count it any more: of these there is at most one for every three that wait.
A bucket is written again, too, when the bodies of stale items are more than `HELD_BYTES` for each of its entries.

However much becomes due at once, a call does a bounded part of it, and `next_at` says that there is more.  Buckets
whose time has begun wait for those before them.  One bucket with very many deadlines is put in order piece by piece;
until the last piece is in, what is due is handed out in order within the pieces that are.

Times are integer milliseconds of the monotonic clock, all of them above 0.  Deadlines are handed out by (awake_at,
order of arrival); an item that is moved within its bucket keeps its place in that order.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, TypeVar

from mypy_extensions import mypyc_attr

Entry = TypeVar("Entry")

WIDTH_BITS: Final = 6
WIDTH_MS: Final = 1 << WIDTH_BITS  #: span of a bucket
STALE_MIN: Final = 16  #: buckets with fewer stale entries than this are left alone, unless nothing else is in them
STALE_PART: Final = 4  #: a bucket of which more than this part is stale is written again
SWEEP_MIN: Final = 1_024  #: with fewer buckets than this, empty ones are left alone
HELD_BYTES: Final = 256  #: of large bodies that stale entries hold at most, for each entry of a bucket; fewer are small
FEW: Final = 8  #: entries are put in order one by one when the front has this many times more of them
BEGUN_AT_ONCE: Final = 8_192  #: entries put in order per call, some milliseconds' work


@mypyc_attr(acyclic=True)
class Timed:
    """Something with a deadline; the base of jobs, waiters and queues."""

    __slots__ = ("awake_at",)

    #: When the schedule hands this out; 0 while it is not scheduled.  Set by `Schedule` alone.
    awake_at: int


class _Bucket:
    """The deadlines of one span, unordered."""

    __slots__ = ("held", "items", "stale")

    def __init__(self) -> None:
        self.items: list[Timed] = []
        self.stale = 0
        self.held = 0  #: bytes that stale items hold, or held


class _Rest(Timed):
    """What of a very long bucket is not in the front yet; itself in the front, so that it is not forgotten."""

    __slots__ = ("items", "number")

    def __init__(self, number: int, items: list[Timed]) -> None:
        self.awake_at = 0
        self.number = number
        #: Last come first: pieces are taken off the end.
        self.items = items[::-1]


class Schedule:
    """Deadlines in order; see the module's text."""

    __slots__ = ("_arrivals", "_buckets", "_front", "_horizon", "_numbers", "_rest", "_sweep_above")

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        #: The numbers of `_buckets`, as a heap; the bucket of the first one is never empty.
        self._numbers: list[int] = []
        #: (awake_at, arrival, item) of every deadline before `_horizon`, as a heap.
        self._front: list[tuple[int, int, Timed]] = []
        #: Number of the first bucket that is not yet in the front; above that of an item that is not scheduled.
        self._horizon = 1
        self._arrivals = 0
        self._sweep_above = SWEEP_MIN
        self._rest: _Rest | None = None

    @property
    def entries(self) -> int:
        """Entries that are kept, stale ones included."""
        rest = 0 if self._rest is None else len(self._rest.items)
        return len(self._front) + rest + sum(len(bucket.items) for bucket in self._buckets.values())

    def add(self, item: Timed, at: int) -> None:
        """Schedule an item that is not scheduled."""
        item.awake_at = at
        number = at >> WIDTH_BITS
        if number >= self._horizon:
            bucket = self._buckets.get(number)
            if bucket is None:
                bucket = self._open(number)
            bucket.items.append(item)
        else:
            self._arrivals += 1
            heappush(self._front, (at, self._arrivals, item))

    def cancel(self, item: Timed) -> None:
        """Take an item off the schedule; harmless when it is not on it."""
        number = item.awake_at >> WIDTH_BITS
        item.awake_at = 0
        if number >= self._horizon:
            bucket = self._buckets[number]
            bucket.stale += 1
            if bucket.stale * STALE_PART > len(bucket.items):
                self._tidy(number, bucket)

    def cancel_large(self, item: Timed, size: int) -> None:
        """Take an item off the schedule that holds more than `HELD_BYTES`, which are to be free when it is dropped."""
        number = item.awake_at >> WIDTH_BITS
        self.cancel(item)
        bucket = self._buckets.get(number)
        if bucket is not None and bucket.stale:
            bucket.held += size
            if bucket.held > HELD_BYTES * len(bucket.items):
                self._tidy(number, bucket)

    def move_large(self, item: Timed, at: int, size: int) -> None:
        """Schedule an item for another time as `move` does, one that holds more than `HELD_BYTES`."""
        if item.awake_at and item.awake_at >> WIDTH_BITS != at >> WIDTH_BITS:
            self.cancel_large(item, size)
        self.move(item, at)

    def move(self, item: Timed, at: int) -> None:
        """Schedule an item for another time, whether or not it is scheduled now."""
        if item.awake_at >> WIDTH_BITS == at >> WIDTH_BITS >= self._horizon:
            item.awake_at = at
        else:
            if item.awake_at:
                self.cancel(item)
            self.add(item, at)

    def pop_due(self, now: int, limit: int) -> list[Timed]:
        """Take off and return the items that are due, earliest first, at most `limit` of them."""
        due: list[Timed] = []
        front, rest = self._front, self._rest
        current = now >> WIDTH_BITS
        while True:
            while front and front[0][0] <= now and len(due) < limit:
                at, _, item = heappop(front)
                if item.awake_at == at:
                    item.awake_at = 0
                    if item is not rest:
                        due.append(item)
            if len(due) == limit or self._horizon > current or rest is not None:
                break
            self._advance(current)
            rest = self._rest
        if rest is not None and not rest.awake_at:
            self._enter_piece(rest)
        return due

    def release(self) -> Iterator[int]:
        """Let go of everything, bit by bit; yields how many entries each bit was.  The schedule is not used again."""
        yield from _emptied(self._front)
        if self._rest is not None:
            yield from _emptied(self._rest.items)
        while self._buckets:
            yield from _emptied(self._buckets.popitem()[1].items)

    def next_at(self) -> int | None:
        """Say when to look again: never after the next deadline, and up to `WIDTH_MS` before it."""
        front = self._front
        while front and front[0][2].awake_at != front[0][0]:
            heappop(front)
        if front:
            return front[0][0]
        if self._numbers:
            return self._numbers[0] << WIDTH_BITS
        return None

    def _open(self, number: int) -> _Bucket:
        """Make the bucket of a span that has none."""
        if len(self._numbers) > self._sweep_above:
            self._sweep()
        bucket = self._buckets[number] = _Bucket()
        heappush(self._numbers, number)
        return bucket

    def _tidy(self, number: int, bucket: _Bucket) -> None:
        """Drop the stale entries of a bucket that has many of them, or large ones, if that is worth the work."""
        if bucket.stale == len(bucket.items):
            bucket.items.clear()
            bucket.stale = bucket.held = 0
            self._drop_empty_heads()
        elif bucket.stale > STALE_MIN or bucket.held:
            bucket.items = _live(number, bucket)
            bucket.stale = bucket.held = 0

    def _drop_empty_heads(self) -> None:
        """See to it that nobody is woken for a bucket with nothing in it."""
        numbers, buckets = self._numbers, self._buckets
        while numbers and not buckets[numbers[0]].items:
            del buckets[heappop(numbers)]

    def _sweep(self) -> None:
        """Drop every empty bucket; done again when the number of buckets has doubled."""
        self._buckets = {number: bucket for number, bucket in self._buckets.items() if bucket.items}
        self._numbers = sorted(self._buckets)
        self._sweep_above = max(SWEEP_MIN, 2 * len(self._numbers))

    def _advance(self, current: int) -> None:
        """Put the next buckets in order whose time has begun."""
        numbers = self._numbers
        begun: list[tuple[int, int, Timed]] = []
        horizon = current + 1
        while numbers and numbers[0] <= current:
            if len(begun) >= BEGUN_AT_ONCE:
                horizon = numbers[0]
                break
            number = heappop(numbers)
            bucket = self._buckets.pop(number)
            items = bucket.items
            if len(items) > BEGUN_AT_ONCE:
                self._rest = rest = _Rest(number, items)
                self._push_rest(rest)
                horizon = number + 1
                break
            self._begin(number, _live(number, bucket) if bucket.stale else items, begun)
        if begun:
            self._enter(begun)
        self._drop_empty_heads()
        self._horizon = horizon

    def _begin(self, number: int, items: list[Timed], begun: list[tuple[int, int, Timed]]) -> None:
        """Make entries of the front of those of a bucket that are not stale."""
        for item in items:
            if item.awake_at >> WIDTH_BITS == number:
                self._arrivals += 1
                begun.append((item.awake_at, self._arrivals, item))

    def _enter_piece(self, rest: _Rest) -> None:
        """Put the next piece of a very long bucket in order."""
        items = rest.items
        piece = items[: -BEGUN_AT_ONCE - 1 : -1]
        del items[-BEGUN_AT_ONCE:]
        begun: list[tuple[int, int, Timed]] = []
        self._begin(rest.number, piece, begun)
        self._enter(begun)
        if items:
            self._push_rest(rest)
        else:
            self._rest = None

    def _push_rest(self, rest: _Rest) -> None:
        """Be called again for the next piece, whatever else is due."""
        self._arrivals += 1
        # The first millisecond is 1: at 0 nothing is scheduled.
        rest.awake_at = max(1, rest.number << WIDTH_BITS)
        heappush(self._front, (rest.awake_at, self._arrivals, rest))

    def _enter(self, begun: list[tuple[int, int, Timed]]) -> None:
        """Put entries into the front: a few among many one by one, else all at once."""
        front = self._front
        if len(begun) * FEW < len(front):
            for entry in begun:
                heappush(front, entry)
        else:
            front += begun
            heapify(front)


def _live(number: int, bucket: _Bucket) -> list[Timed]:
    """Return the items of a bucket that are due in its span, each in the place where it came last."""
    live = [item for item in bucket.items if item.awake_at >> WIDTH_BITS == number]
    if len(live) + bucket.stale > len(bucket.items):
        # One that left the bucket and came back has two entries, and both look live.
        live.reverse()
        live = list(dict.fromkeys(live))
        live.reverse()
    return live


def _emptied(entries: list[Entry]) -> Iterator[int]:
    """Empty a list bit by bit; yields how many entries each bit was."""
    while entries:
        before = len(entries)
        del entries[-BEGUN_AT_ONCE // 8 :]
        yield before - len(entries)
