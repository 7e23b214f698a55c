"""The one list of deadlines: requeues, expiries, time-outs, idle queues.

A node may hold millions of deadlines, most of which are cancelled or put off before they are due.  They are kept in
buckets of `WIDTH_MS`, in the order in which they came; a bucket is put in order only when its time has begun:

    add ---> front (a heap: exact, for deadlines before `_horizon`)
       \\--> buckets {number: [item, item, ...]}  --- its time begins ---> front --- due ---> the caller

So adding and cancelling cost the same however many deadlines there are, and an entry costs one pointer.  An item
says itself when it is due (`awake_at`); an entry that no longer agrees with its item is stale and is dropped when it
is met.  A bucket of which more than half is stale is written anew, so that stale entries never outnumber live ones
by much.

Times are integer milliseconds of the monotonic clock.  Deadlines are handed out by (awake_at, order of arrival).
"""

from heapq import heapify, heappop, heappush

WIDTH_BITS = 6
WIDTH_MS = 1 << WIDTH_BITS  #: span of a bucket
STALE_MIN = 32  #: buckets with fewer stale entries than this are left alone


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

    __slots__ = ("_arrivals", "_buckets", "_front", "_horizon", "_numbers")

    def __init__(self) -> None:
        self._buckets: dict[int, _Bucket] = {}
        #: The numbers of `_buckets`, as a heap.
        self._numbers: list[int] = []
        #: (awake_at, arrival, item) of every deadline before `_horizon`, as a heap.
        self._front: list[tuple[int, int, Timed]] = []
        #: Number of the first bucket that is not yet in the front.
        self._horizon = 0
        self._arrivals = 0

    def add(self, item: Timed, at: int) -> None:
        """Schedule an item that is not scheduled."""
        item.awake_at = at
        number = at >> WIDTH_BITS
        if number >= self._horizon:
            bucket = self._buckets.get(number)
            if bucket is None:
                bucket = self._buckets[number] = _Bucket()
                heappush(self._numbers, number)
            bucket.items.append(item)
        else:
            self._arrivals += 1
            heappush(self._front, (at, self._arrivals, item))

    def cancel(self, item: Timed) -> None:
        """Take an item off the schedule; harmless when it is not on it."""
        number = item.awake_at >> WIDTH_BITS
        item.awake_at = 0
        if number >= self._horizon:
            bucket = self._buckets.get(number)
            if bucket is not None:
                bucket.stale += 1
                if bucket.stale > STALE_MIN and bucket.stale * 2 > len(bucket.items):
                    bucket.items = [kept for kept in bucket.items if kept.awake_at >> WIDTH_BITS == number]
                    bucket.stale = 0

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

    def _advance(self, now: int) -> None:
        """Put every bucket whose time has begun in order."""
        current = now >> WIDTH_BITS
        numbers = self._numbers
        front = self._front
        while numbers and numbers[0] <= current:
            number = heappop(numbers)
            bucket = self._buckets.pop(number)
            for item in bucket.items:
                if item.awake_at >> WIDTH_BITS == number:
                    self._arrivals += 1
                    front.append((item.awake_at, self._arrivals, item))
            heapify(front)
        if current >= self._horizon:
            self._horizon = current + 1
