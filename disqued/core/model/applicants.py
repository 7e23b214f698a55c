"""Applicants: jobs of a limited queue that wait for a slot, and which of them is the next.

    waiting     all that may have one, the oldest first
    blocked     those of groups that have no slot or no token: they cost no search

The oldest has the next slot, on whatever node it is.  Times are integer milliseconds of the monotonic clock.
"""

from heapq import heappop, heappush

from disqued.core.model.gates import NO_LIMITS, Limits
from disqued.core.model.messages import SLOTS_MAX, SlotWish
from disqued.core.model.slots import Bucket, Rate, SlotTable

#: Order key and id of a job.
Place = tuple[int, bytes]


class Applicant:
    """A job that waits for a slot, and who asked for it; it does not change."""

    __slots__ = ("boot", "node_id", "wish")

    def __init__(self, node_id: bytes, boot: int, wish: SlotWish) -> None:
        self.node_id: bytes = node_id
        self.boot: int = boot  #: which life of that node
        self.wish: SlotWish = wish


class Applicants:
    """The jobs of one queue that wait for a slot."""

    __slots__ = ("_blocked", "_bucket", "_group_buckets", "_since", "_waiting", "by_id", "held", "limits")

    def __init__(self, now: int) -> None:
        """Begin with empty buckets."""
        self.limits: Limits = NO_LIMITS
        self.by_id: dict[bytes, Applicant] = {}  #: for look-ups; only this class changes it
        self._waiting: list[Place] = []  #: a heap, with entries of those that wait no more
        self._blocked: dict[bytes, list[Place]] = {}  #: by group
        self.held: list[bytes] = []  #: ids of those that were blocked since somebody emptied this
        self._since = now  #: when the buckets of all groups were empty
        self._bucket: Bucket | None = None
        self._group_buckets: dict[bytes, Bucket] = {}  #: of groups whose bucket is not full

    def apply(self, applicant: Applicant) -> None:
        """Let a job wait for a slot; if it does already, for this node from now on."""
        job_id = applicant.wish.job_id
        if job_id not in self.by_id:
            heappush(self._waiting, (applicant.wish.order_key, job_id))
        self.by_id[job_id] = applicant

    def drop(self, job_id: bytes, node_id: bytes) -> None:
        """Let a job of a node wait no more, if it does."""
        applicant = self.by_id.get(job_id)
        if applicant is not None and applicant.node_id == node_id:
            del self.by_id[job_id]

    def drop_others(self, node_id: bytes, named: set[bytes]) -> None:
        """Let no job of a node wait any more but these."""
        for job_id in [job_id for job_id in self.by_id if job_id not in named]:
            self.drop(job_id, node_id)

    def is_held(self, applicant: Applicant) -> bool:
        """Return whether the group of a job lets it wait, so that jobs of other groups may go before it."""
        return applicant.wish.group in self._blocked

    def unblock(self, group: bytes) -> None:
        """Look at the jobs of a group again: a slot of it is free, or a token is there."""
        for place in self._blocked.pop(group, ()):
            heappush(self._waiting, place)

    def follow(self, limits: Limits, now: int) -> None:
        """Follow other limits; the buckets of a rate that is new are empty."""
        if self.limits.group_rate is None:
            self._since = now
        self.limits = limits
        self._bucket = _followed(self._bucket, limits.rate, now)
        if limits.group_rate is None:
            self._group_buckets.clear()
        else:
            for bucket in self._group_buckets.values():
                bucket.change(limits.group_rate, now)
        for group in list(self._blocked):
            self.unblock(group)

    def choose(self, table: SlotTable, now: int) -> Applicant | None:
        """Take the next job that may have a slot, with its tokens; None = there is none now.

        A job that has one already needs no other.
        """
        if self._bucket is not None:
            self._bucket.fill(now)
        while self._waiting:
            place = self._waiting[0]
            job_id = place[1]
            applicant = self.by_id.get(job_id)
            if applicant is None:
                heappop(self._waiting)
                continue
            has_slot = job_id in table.by_id
            if not has_slot and len(table) >= (self.limits.in_flight or SLOTS_MAX):
                return None
            if self._bucket is not None and not self._bucket.has_token:
                return None
            heappop(self._waiting)
            if self._may_group(applicant.wish.group, table, now, has_slot=has_slot):
                del self.by_id[job_id]
                if self._bucket is not None:
                    self._bucket.take()
                return applicant
            self._blocked.setdefault(applicant.wish.group, []).append(place)
            self.held.append(job_id)
        return None

    def _may_group(self, group: bytes, table: SlotTable, now: int, *, has_slot: bool) -> bool:
        """Return whether a group may have one more, and take its token; a rate of groups leaves jobs without alone."""
        most = self.limits.group_in_flight
        if most and not has_slot and table.by_group.get(group, 0) >= most:
            return False
        rate = self.limits.group_rate
        if rate is None or not group:
            return True
        bucket = self._group_buckets.get(group)
        if bucket is None:
            bucket = self._group_buckets[group] = Bucket(rate, self._since, now)
        bucket.fill(now)
        if not bucket.has_token:
            return False
        bucket.take()
        return True

    def give_back(self, group: bytes) -> None:
        """Put the tokens of a job back that was not handed out."""
        of_group = self._group_buckets.get(group)
        for bucket in (self._bucket, of_group):
            if bucket is not None:
                bucket.give_back()

    def next_at(self, table: SlotTable, now: int) -> int:
        """Return when a token comes for which somebody waits; 0 = nobody does."""
        times: list[int] = []
        if self._bucket is not None and self._waiting and not self._bucket.has_token:
            times.append(self._bucket.next_at)
        for group, bucket in list(self._group_buckets.items()):
            bucket.fill(now)
            if group not in self._blocked:
                if bucket.is_full:
                    del self._group_buckets[group]
            elif not bucket.has_token:
                times.append(bucket.next_at)
            elif not self.limits.group_in_flight or table.by_group.get(group, 0) < self.limits.group_in_flight:
                self.unblock(group)
                times.append(now + 1)
        return min(times, default=0)


def _followed(bucket: Bucket | None, rate: Rate | None, now: int) -> Bucket | None:
    if rate is None:
        return None
    if bucket is None:
        return Bucket(rate, now, now)
    if bucket.rate != rate:
        bucket.change(rate, now)
    return bucket
