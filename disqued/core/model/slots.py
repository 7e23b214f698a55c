"""Slots and tokens: what the steward of a limited queue counts, and what witnesses remember of it.

    SlotTable   job id -> Slot       jobs of one queue that are with consumers, in the whole cluster, and of each group
    Bucket      tokens               how many deliveries a rate allows now

A slot is bound to a job on a node, and to the life of that node's process (`boot`): a node that starts anew knows
nothing of the slots that it had.  A slot ends with the delivery, and at the latest at `until`, when the job may be
delivered again.

A bucket counts in parts of a token: `tokens` in `per_ms` milliseconds are `tokens` parts each millisecond, and a
token is `per_ms` parts.  So there are no fractions.

Times are integer milliseconds of the monotonic clock of this node.
"""

from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

from disqued.core.model.memory import Memory

SLOT_COST: Final = 420  #: bytes of a slot without its group and client
STALE_MAX: Final = 64  #: entries of slots that ended, beyond as many as there are slots


class Slot:
    """A job that is with a consumer, or is about to be; it does not change."""

    __slots__ = ("boot", "client", "group", "job_id", "node_id", "until")

    def __init__(  # noqa: PLR0917 - the fields
        self, job_id: bytes, group: bytes, node_id: bytes, boot: int, until: int, client: bytes
    ) -> None:
        self.job_id: bytes = job_id
        self.group: bytes = group
        self.node_id: bytes = node_id  #: of the node that hands it out
        self.boot: int = boot  #: which life of that node
        self.until: int = until
        self.client: bytes = client  #: who has the job, as that node says: `SlotSpan`

    def ending_at(self, until: int) -> "Slot":
        """Return the same slot with another end."""
        return Slot(self.job_id, self.group, self.node_id, self.boot, until, self.client)


class SlotTable:
    """The slots of one queue."""

    __slots__ = ("_ends", "_memory", "by_group", "by_id")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self.by_id: dict[bytes, Slot] = {}  #: for look-ups; only this class changes it
        self.by_group: dict[bytes, int] = {}  #: slots of each group that has some; likewise
        self._ends: list[tuple[int, bytes]] = []  #: a heap, with entries of slots that ended before

    def __len__(self) -> int:
        return len(self.by_id)

    def put(self, slot: Slot) -> None:
        """Enter a slot, in the place of one of the same job."""
        known = self.end(slot.job_id)
        self._memory.hold(SLOT_COST + len(slot.group) + len(slot.client))
        self.by_id[slot.job_id] = slot
        self.by_group[slot.group] = self.by_group.get(slot.group, 0) + 1
        if known is None or known.until != slot.until:
            heappush(self._ends, (slot.until, slot.job_id))
            if len(self._ends) > 2 * len(self.by_id) + STALE_MAX:
                self._ends = [(each.until, each.job_id) for each in self.by_id.values()]
                heapify(self._ends)

    def end(self, job_id: bytes) -> Slot | None:
        """Take a slot out; return it, or None if there is none."""
        slot = self.by_id.pop(job_id, None)
        if slot is not None:
            self._memory.hold(-SLOT_COST - len(slot.group) - len(slot.client))
            left = self.by_group[slot.group] - 1
            if left:
                self.by_group[slot.group] = left
            else:
                del self.by_group[slot.group]
        return slot

    def clear(self) -> None:
        """Forget all slots."""
        for job_id in list(self.by_id):
            self.end(job_id)
        self._ends.clear()

    def over(self, now: int) -> list[bytes]:
        """Return the ids of the jobs whose time is over, each once."""
        ids: list[bytes] = []
        while self._ends and self._ends[0][0] <= now:
            until, job_id = heappop(self._ends)
            slot = self.by_id.get(job_id)
            if slot is not None and slot.until == until:
                ids.append(job_id)
        return ids

    @property
    def next_end(self) -> int:
        """When the first slot ends by itself, or a moment before that; 0 = there is none."""
        return self._ends[0][0] if self._ends else 0


class Rate(NamedTuple):
    """How many deliveries there are at most."""

    tokens: int
    per_ms: int
    burst: int  #: deliveries at once, after a time of few


class Bucket:
    """The tokens of one rate."""

    __slots__ = ("_at", "_level", "rate")

    def __init__(self, rate: Rate, since: int, now: int) -> None:
        """Make a bucket that was empty at `since`."""
        self.rate: Rate = rate
        self._level = 0
        self._at = since
        self.fill(now)

    def fill(self, now: int) -> None:
        """Add what has come until now."""
        full = self.rate.burst * self.rate.per_ms
        self._level = min(full, self._level + (now - self._at) * self.rate.tokens)
        self._at = now

    @property
    def has_token(self) -> bool:
        """Return whether there is a token, as of the last `fill`."""
        return self._level >= self.rate.per_ms

    @property
    def is_full(self) -> bool:
        """Return whether nothing is missing, as of the last `fill`: it is as one that begins long ago."""
        return self._level >= self.rate.burst * self.rate.per_ms

    def take(self) -> None:
        """Take a token, of which there is one."""
        self._level -= self.rate.per_ms

    def give_back(self) -> None:
        """Put a token back that was not used."""
        self._level = min(self.rate.burst * self.rate.per_ms, self._level + self.rate.per_ms)

    @property
    def next_at(self) -> int:
        """When there is a token."""
        missing = self.rate.per_ms - self._level
        return self._at + max(0, -(-missing // self.rate.tokens))

    def change(self, rate: Rate, now: int) -> None:
        """Follow another rate; what is in it does not grow by that."""
        self.fill(now)
        tokens = self._level // self.rate.per_ms
        self.rate = rate
        self._level = min(tokens, rate.burst) * rate.per_ms
