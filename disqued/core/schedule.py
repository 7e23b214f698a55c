"""The one list of deadlines: requeues, expiries, time-outs, idle queues.

A node may hold millions of deadlines, most of which are cancelled or put off before they are due.  They are kept in
buckets of `WIDTH_MS`, in the order in which they came; a bucket is put in order only when its time has begun:

    add ---> front (a heap: exact, for deadlines before `_horizon`)
       \\--> buckets {number: [item, item, ...]}  --- its time begins ---> front --- due ---> the caller

So adding and cancelling cost the same however many deadlines there are, and an entry costs one pointer.  An item
says itself when it is due (`awake_at`); an entry that no longer agrees with its item is stale and is dropped when it
is met.  A bucket of which more than half is stale is written anew, and one with nothing else is emptied at once: what
is cancelled is not kept in memory until its time, which may be days away.

Times are integer milliseconds of the monotonic clock, all of them above 0.  Deadlines are handed out by (awake_at,
order of arrival); an item that is moved within its bucket keeps its place in that order.
"""

from heapq import heapify, heappop, heappush

WIDTH_BITS = 6
WIDTH_MS = 1 << WIDTH_BITS  #: span of a bucket
STALE_MIN = 16  #: buckets with fewer stale entries than this are left alone, unless nothing else is in them
SWEEP_MIN = 1_024  #: with fewer buckets than this, empty ones are left alone
FEW = 8  #: entries are put in order one by one when the front has this many times more of them


class Timed:
    """Something with a deadline; the base of jobs, waiters and queues."""

    __slots__ = ("awake_at",)

    #: When the schedule hands this out; 0 while it is not scheduled.  Set by `Schedule` alone.
    awake_at: int


class _Bucket:
    """The deadlines of one span, unordered."""

    __slots__ = ("items", "stale")

    def __init__(self) -> None:
        self.items: list[Timed] = []
        self.stale = 0


class Schedule:
    """Deadlines in order; see the module's text."""

    __slots__ = ("_arrivals", "_buckets", "_front", "_horizon", "_numbers", "_sweep_above")

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

    @property
    def entries(self) -> int:
        """Entries that are kept, stale ones included."""
        return len(self._front) + sum(len(bucket.items) for bucket in self._buckets.values())

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
            if bucket.stale * 2 > len(bucket.items):
                self._tidy(number, bucket)

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
        self._advance(now)
        due: list[Timed] = []
        front = self._front
        while front and front[0][0] <= now and len(due) < limit:
            at, _, item = heappop(front)
            if item.awake_at == at:
                item.awake_at = 0
                due.append(item)
        return due

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
        """Drop the stale entries of a bucket that has more of them than live ones, if that is worth the work."""
        if bucket.stale == len(bucket.items):
            bucket.items.clear()
            bucket.stale = 0
            self._drop_empty_heads()
        elif bucket.stale > STALE_MIN:
            # An item that left the bucket and came back has two entries that look live.
            bucket.items = list(dict.fromkeys(kept for kept in bucket.items if kept.awake_at >> WIDTH_BITS == number))
            bucket.stale = 0

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

    def _advance(self, now: int) -> None:
        """Put every bucket whose time has begun in order."""
        current = now >> WIDTH_BITS
        numbers = self._numbers
        begun: list[tuple[int, int, Timed]] = []
        while numbers and numbers[0] <= current:
            number = heappop(numbers)
            for item in self._buckets.pop(number).items:
                if item.awake_at >> WIDTH_BITS == number:
                    self._arrivals += 1
                    begun.append((item.awake_at, self._arrivals, item))
        if begun:
            self._enter(begun)
            self._drop_empty_heads()
        if current >= self._horizon:
            self._horizon = current + 1

    def _enter(self, begun: list[tuple[int, int, Timed]]) -> None:
        """Put entries into the front: a few among many one by one, else all at once."""
        front = self._front
        if len(begun) * FEW < len(front):
            for entry in begun:
                heappush(front, entry)
        else:
            front += begun
            heapify(front)
