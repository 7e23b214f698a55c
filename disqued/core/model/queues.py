"""Queues: jobs in order, the consumers that wait for them, and pause.

A queue holds the units that wait on this node, ordered by (order_key, id): oldest first (`ordered`).  Consumers wait
for them in the order in which they came (`waiters`).

A queue is paused by the word of the cluster (`policies`), or by one for this node alone; a queue that is paused is
there.  What limits a queue otherwise, or sorts its units into groups, is its gate (`gates`, `grouped`).

Times are integer milliseconds of the monotonic clock.  Source: Disque, src/queue.c.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from math import ceil
from operator import attrgetter
from typing import ClassVar, Final

from disqued.core.model.gates import Gate
from disqued.core.model.grouped import NOTHING_GIVEN, GivenUnits, GroupedUnits
from disqued.core.model.groups import Stream
from disqued.core.model.job import KIND_LOG, KIND_WORK, Unit
from disqued.core.model.memory import COUNTS_COST, QUEUE_COST, Memory
from disqued.core.model.ordered import OrderedUnits
from disqued.core.model.policies import PolicyTable
from disqued.core.model.waiters import Awaited, Consumer, Lease
from disqued.errors import NameTooLong, QueuePaused, WrongType

NAME_MAX: Final = 65_000  #: bytes of a queue name that a client may create
BLOCK: Final = 256  #: names whose counts are walked over together

PAUSE_IN: Final = 1  #: takes no new jobs
PAUSE_OUT: Final = 2  #: hands out no jobs
THROTTLED: Final = 4  #: hands out no jobs for a while
GROUPED: Final = 8  #: hands out jobs of ready groups alone
LIMITED: Final = 16  #: hands out jobs alone that its steward has given a slot
HOLDS_ALL: Final = PAUSE_OUT | THROTTLED  #: each of these: hands out no jobs
HOLDS: Final = HOLDS_ALL | GROUPED | LIMITED  #: each of these: whoever takes a job looks closer
PAUSE_NAMES = {0: b"none", PAUSE_IN: b"in", PAUSE_OUT: b"out", PAUSE_IN | PAUSE_OUT: b"all"}

ANYBODY: Final = b"default"  #: owner that older versions have noted for clients that did not say who they are
ADDRESS: Final = b"address "  #: in front of an owner that is the address of such a client

_serial = attrgetter("serial")


def check_name(name: bytes) -> None:
    """Check the length of the name of a queue that is not there.  Raises NameTooLong (ERR)."""
    if len(name) > NAME_MAX:
        raise NameTooLong


def handed_out(entry: tuple[Unit, int]) -> tuple[int, int, bytes]:
    """The place of a unit among those that consumers have, and since when they have it."""
    unit, since = entry
    return (since, unit.order_key, unit.id)


def _leased_first(entry: tuple[Unit, Lease]) -> tuple[int, int, bytes]:
    unit, (since, _) = entry
    return handed_out((unit, since))


class ImportRate:
    """Jobs a second that come in from other nodes, over the last few seconds.  Source: Disque, src/queue.c."""

    __slots__ = ("_count", "_last_count", "_last_start", "_start")

    WINDOW_MS: ClassVar[int] = 1_000
    MEMORY_MS: ClassVar[int] = 5_000

    def __init__(self, now: int) -> None:
        self._start = self._last_start = now
        self._count = self._last_count = 0

    def note(self, now: int) -> None:
        """Count one job that came from another node."""
        if now - self._start > self.WINDOW_MS:
            self._last_start, self._last_count = self._start, self._count
            self._start, self._count = now, 0
        self._count += 1

    def per_second(self, now: int) -> int:
        """Rate now, rounded up; 0 when nothing came for five seconds."""
        if now - self._start > self.MEMORY_MS:
            return 0
        return ceil((self._last_count + self._count) * 1_000 / max(50, now - self._last_start))


class JobCounts:
    """How many jobs of one queue this node knows, whether the queue is there or not."""

    __slots__ = ("delayed", "done", "known", "once", "serial", "waiting")

    def __init__(self, serial: int) -> None:
        self.serial: int = serial  #: number in the order in which the names came; the order of a walk over names
        self.known: int = 0  #: in any state
        self.waiting: int = 0  #: of these: that wait for their copies
        self.delayed: int = 0  #: of these: that are in `Queues.delayed`
        self.once: int = 0  #: of these: that consumers of this node have, and that are never delivered again
        self.done: int = 0  #: of these: acknowledged


class Queue(Awaited):
    """One named queue on this node."""

    __slots__ = (
        "accessed_at",
        "acked",
        "created_at",
        "created_wall",
        "dead",
        "elsewhere",
        "exported",
        "failing",
        "gate",
        "given",
        "grouped",
        "holds",
        "import_rate",
        "jobs_in",
        "jobs_out",
        "leased",
        "pause",
        "pause_here",
        "requeued",
        "serial",
        "sources",
        "stream",
        "tangled",
        "units",
    )  # fmt: skip

    def __init__(self, name: bytes, serial: int, now: int, wall: int) -> None:
        super().__init__(name)
        self.serial: int = serial  #: number in order of creation; the order of a scan
        self.created_at: int = now
        self.created_wall: int = wall  #: unix milliseconds
        self.accessed_at: int = now  #: when a job was last queued or fetched
        self.units: OrderedUnits = OrderedUnits()
        #: Leased units that may be delivered again, by the start of the lease, oldest first, and who has them.
        self.leased: dict[Unit, Lease] = {}
        self.tangled: bool = False  #: `leased` is out of order
        #: Units of which this node has a copy and that consumers have from other nodes, as far as is known: since when,
        #: and from which node.  Only of those that no timer queues again.
        self.elsewhere: dict[Unit, tuple[int, bytes]] = {}
        self.dead: dict[Unit, None] = {}  #: jobs that are never delivered again before REDRIVE
        self.failing: dict[Unit, None] = {}  #: other jobs of which failures are known
        self.stream: Stream | None = None  #: its entries and consumer groups; None = it never had any
        self.pause: int = 0  #: PAUSE_... bits in effect: of the cluster and of this node; set by `set_pause`
        self.holds: int = 0  #: these bits, THROTTLED, GROUPED and LIMITED
        self.gate: Gate | None = None  #: what limits it; set by `follow`
        self.given: GivenUnits = NOTHING_GIVEN  #: if it is LIMITED: units that have a slot, to be handed out now
        self.grouped: GroupedUnits | None = None  #: `units`, if they are sorted into groups
        self.pause_here: int = 0  #: PAUSE_... bits of this node alone
        self.jobs_in: int = 0  #: times that a job was queued
        self.requeued: int = 0  #: how many of these were requeues
        self.jobs_out: int = 0  #: times that a job was fetched by a consumer, or taken out for another node
        self.exported: int = 0  #: of these: taken out for another node
        self.acked: int = 0  #: jobs of this queue that were acknowledged here
        self.sources: dict[bytes, int] = {}  #: when each node last sent jobs for this queue, by node id
        self.import_rate: ImportRate = ImportRate(now)

    @property
    def is_idle(self) -> bool:
        """True when the queue can be forgotten without anybody noticing."""
        if self.stream is not None and not self.stream.is_idle:
            return False
        if self.dead or self.failing:
            return False
        return not (len(self.units) or self.waiters or self.watchers or self.leased or self.elsewhere or self.pause)

    @property
    def delivered(self) -> int:
        """Times that a job was handed to a consumer."""
        return self.jobs_out - self.exported

    def set_pause(self, pause: int) -> None:
        """Set the PAUSE_... bits in effect."""
        self.holds = self.holds & ~self.pause | pause
        self.pause = pause

    def follow(self, gate: Gate | None, memory: Memory) -> GroupedUnits | None:
        """Be limited as a gate says, or by none; returns groups that are to be let go of bit by bit.

        Units that are to be in groups are sorted by `GroupedUnits.go_on`.
        """
        self.gate = gate
        self.holds &= ~(THROTTLED | GROUPED | LIMITED)
        if gate is not None and gate.until:
            self.holds |= THROTTLED
        old = self.grouped
        if gate is not None and gate.is_limited:
            self.holds |= LIMITED
        if gate is None or not gate.needs_groups:
            if old is not None:
                self.units, self.grouped = OrderedUnits(old), None
        else:
            self.holds |= GROUPED
            if old is not None and old.is_fair == gate.is_fair:
                return None
            self.units = self.grouped = GroupedUnits(self.units, memory, is_fair=gate.is_fair, blocked=gate.groups)
        self.given = NOTHING_GIVEN if self.grouped is None else GivenUnits(self.grouped)
        if old is not None:
            memory.used -= old.cost
        return old

    def note_lease(self, unit: Unit, since: int, consumer: Consumer | None) -> None:
        """Enter a unit among those that consumers have, since that time."""
        lease = (since, consumer)
        if self.held_since(unit) != since:  # else it is in its place
            self.leased.pop(unit, None)
            last, _ = next(reversed(self.leased.values()), lease)
            if since < last:
                self.tangled = True
        self.leased[unit] = lease

    def held_since(self, unit: Unit) -> int | None:
        """Return since when a consumer of this node has a unit; None = none has it."""
        lease = self.leased.get(unit)
        return None if lease is None else lease[0]

    def longest_held(self) -> dict[Unit, Lease]:
        """What consumers have from this node, since when, and who: what was handed out first is first."""
        if self.tangled:
            self.leased = dict(sorted(self.leased.items(), key=_leased_first))
            self.tangled = False
        return self.leased

    @property
    def length(self) -> int:
        """Jobs that wait, and events that are kept."""
        return len(self.units) + (len(self.stream) if self.stream is not None else 0)

    @property
    def oldest(self) -> int | None:
        """`ctime` of the job that waits first, or of the oldest event, if that is older; None = it is empty."""
        kept = [self.units] if self.stream is None else [self.units, self.stream.entries]
        return min([units.first.job.ctime for units in kept if len(units)], default=None)

    def recent_sources(self, now: int) -> list[bytes]:
        """Return ids of the nodes that sent jobs within the memory of `import_rate`."""
        since = now - ImportRate.MEMORY_MS
        return [node_id for node_id, seen_at in self.sources.items() if seen_at >= since]

    @property
    def kind(self) -> int | None:
        """The KIND_... of what is in it; None when that is nothing, or, after a partition, both."""
        has_work = len(self.units) > 0 or len(self.leased) > 0
        has_log = self.stream is not None and self.stream.has_content
        if has_work == has_log:
            return None
        return KIND_LOG if has_log else KIND_WORK

    def check_kind(self, kind: int) -> None:
        """See to it that commands of a kind may use the queue.  Raises WrongType (WRONGTYPE)."""
        if self.kind == 1 - kind:
            raise WrongType


class Queues:
    """Every queue of the node, by name, and in the order in which they were created; and what is said of them."""

    __slots__ = (
        "_blocks", "_memory", "_order", "_serials", "_started", "by_name", "counts", "dead", "delayed", "failing",
        "policies",
    )  # fmt: skip

    def __init__(self, policies: PolicyTable, memory: Memory) -> None:
        self._memory = memory
        self.policies: PolicyTable = policies  #: of queues that are there, and of others
        self.by_name: dict[bytes, Queue] = {}  #: for look-ups; only this class changes it
        self.dead: int = 0  #: dead jobs of all queues
        self.failing: int = 0  #: jobs that failed and are not dead, of all queues
        #: Jobs that wait for the end of a delay, whether their queue is there or not; only this class changes it.
        self.delayed: dict[Unit, None] = {}
        #: For each queue that exists, or has jobs that are known here; mostly changed by `State`.
        self.counts: dict[bytes, JobCounts] = {}
        self._blocks: dict[int, dict[bytes, JobCounts]] = {}  #: the same by serial // BLOCK, in the order of serials
        self._started = 0  #: serial of the counts begun last
        self._order: list[Queue] = []
        self._serials = 0

    def __len__(self) -> int:
        return len(self.by_name)

    def create(self, name: bytes, now: int, wall: int) -> Queue:
        """Make a queue of a name that has none."""
        self._serials += 1
        queue = self.by_name[name] = Queue(name, self._serials, now, wall)
        self._order.append(queue)
        if name not in self.counts:
            self.count(name)
        if self.policies.registers:
            queue.set_pause(self.policies.pause_of(name).bits)
            gate = self.policies.gates.get(name)
            if gate is not None:
                queue.follow(gate, self._memory)
        return queue

    def count(self, name: bytes) -> JobCounts:
        """Begin to count the jobs of a queue that are known."""
        self._started = serial = self._started + 1
        counts = self.counts[name] = JobCounts(serial)
        self._blocks.setdefault(serial // BLOCK, {})[name] = counts
        self._memory.used += COUNTS_COST
        return counts

    def stop_counting(self, name: bytes) -> None:
        """Forget the counts of a queue without known jobs, unless the queue exists."""
        if name not in self.by_name:
            number = self.counts.pop(name).serial // BLOCK
            del self._blocks[number][name]
            if not self._blocks[number]:
                del self._blocks[number]
            self._memory.used -= COUNTS_COST

    def note_delay(self, unit: Unit) -> None:
        """Enter a job among those that wait for the end of a delay."""
        if unit not in self.delayed:
            self.delayed[unit] = None
            self.counts[unit.queue].delayed += 1

    def end_delay(self, unit: Unit) -> None:
        """Take a job from those that wait for the end of a delay, if it is among them."""
        if unit in self.delayed:
            del self.delayed[unit]
            self.counts[unit.queue].delayed -= 1

    def delayed_in(self, name: bytes) -> int:
        """Count the jobs, and events, of a queue that wait for the end of a delay."""
        queue = self.by_name.get(name)
        events = 0 if queue is None or queue.stream is None else len(queue.stream.delayed)
        return events + (self.counts[name].delayed if name in self.counts else 0)

    def cost_of_new(self, names: Iterable[bytes]) -> int:
        """Return the bytes that the queues of these names take which are not there.  Raises NameTooLong (ERR)."""
        new = [name for name in names if name not in self.by_name]
        for name in new:
            check_name(name)
        return sum([QUEUE_COST + len(name) for name in new])

    def refusal(self, name: bytes, by: frozenset[bytes] = frozenset()) -> QueuePaused:
        """Return the error for a producer of a queue that is paused: with reason and owner, where they are known.

        `by` are the ids of nodes that refused a copy, which may be paused for themselves alone.
        """
        setting = self.policies.pause_of(name)
        if not setting.bits & PAUSE_IN:
            nodes = ", ".join([node_id.decode() for node_id in sorted(by)])
            return QueuePaused(f"on node {nodes}" if nodes else "")
        # The default user is nobody; without a reason an address says too little to change the text.
        is_nobody = setting.owner == ANYBODY or (not setting.reason and setting.owner.startswith(ADDRESS))
        owner = b"" if is_nobody else setting.owner
        return QueuePaused(setting.reason.decode(), owner.decode())

    def remove(self, queue: Queue) -> None:
        """Forget a queue."""
        del self.by_name[queue.name]
        del self._order[bisect_left(self._order, queue.serial, key=_serial)]
        if not self.counts[queue.name].known:
            self.stop_counting(queue.name)

    def release(self) -> Iterator[int]:
        """Let go of all queues and their units, bit by bit; yields how many each bit was.  Not to be used again."""
        while self._order:
            queue = self._order.pop()
            del self.by_name[queue.name]
            yield 1
            yield from queue.units.release()

    def from_serial(self, serial: int, count: int) -> list[Queue]:
        """The first `count` queues whose serial is not below the given one, in the order of their creation."""
        start = bisect_left(self._order, serial, key=_serial)
        return self._order[start : start + count]

    def has_jobs(self, name: bytes) -> bool:
        """Return whether this node knows jobs of a queue, which need not be there: delayed ones, copies and others.

        Acknowledgements of unknown jobs are counted as done under the empty name.
        """
        counts = self.counts.get(name)
        return counts is not None and counts.known > (0 if name else counts.done)

    def names_from(self, serial: int, count: int) -> list[tuple[bytes, int]]:
        """The first `count` names of `counts` whose serial is not below the given one, each with it, in their order."""
        found: list[tuple[bytes, int]] = []
        for number, block in self._blocks.items():
            if number < serial // BLOCK:
                continue
            for name, counts in block.items():
                if counts.serial >= serial:
                    found.append((name, counts.serial))
                    if len(found) >= count:
                        return found
        return found
