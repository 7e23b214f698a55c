"""Queues: jobs in order, the consumers that wait for them, and pause.

A queue holds the units that wait on this node, ordered by (order_key, id): oldest first.  Nearly all of them arrive
at the end and leave at the front; a unit that is queued again goes back to its age, so it may land anywhere.
`OrderedUnits` keeps them in sorted blocks of bounded length: both ends cost the same however long the queue is, the
middle costs a search over the blocks.

Consumers that wait (`Waiter`) are served in the order in which they came, each as its command says (`Form`): those of
GETJOB get one job.

Times are integer milliseconds of the monotonic clock.  Source: Disque, src/queue.c.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator
from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final

from mypy_extensions import mypyc_attr

from disqued.core.model.job import KIND_LOG, KIND_WORK, Unit
from disqued.core.model.schedule import Timed
from disqued.errors import NameTooLong, WrongType

if TYPE_CHECKING:
    from disqued.core.model.groups import Log
    from disqued.core.model.worker import Worker

BLOCK: Final = 512  #: units in a block at most
NAME_MAX: Final = 65_000  #: bytes of the name of a queue that clients may bring into being

PAUSE_IN: Final = 1  #: takes no new jobs
PAUSE_OUT: Final = 2  #: hands out no jobs
PAUSE_NAMES = {0: b"none", PAUSE_IN: b"in", PAUSE_OUT: b"out", PAUSE_IN | PAUSE_OUT: b"all"}

#: Who is to be answered; only ever compared and handed back.
Client = Hashable

_place = attrgetter("order_key", "id")
_serial = attrgetter("serial")


def check_name(name: bytes) -> None:
    """Check the length of the name of a queue that is not there.  Raises NameTooLong (ERR)."""
    if len(name) > NAME_MAX:
        raise NameTooLong


def handed_out(entry: tuple[Unit, int]) -> tuple[int, int, bytes]:
    """The place of a unit among those that consumers have, and since when they have it."""
    unit, since = entry
    return (since, unit.order_key, unit.id)


class OrderedUnits:
    """Units sorted by (order_key, id), no two the same."""

    __slots__ = ("_blocks", "_length")

    def __init__(self) -> None:
        #: Sorted lists; none is empty, and all of one comes before all of the next.
        self._blocks: list[list[Unit]] = []
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Unit]:
        for block in self._blocks:
            yield from block

    def __reversed__(self) -> Iterator[Unit]:
        for block in reversed(self._blocks):
            yield from reversed(block)

    def listed(self) -> list[Unit]:
        """All units in order, as they are now."""
        units: list[Unit] = []
        for block in self._blocks:
            units += block
        return units

    def slice(self, start: int, end: int) -> list[Unit]:
        """The units from one place in the order to another: O(blocks), and what is answered."""
        units: list[Unit] = []
        for block in self._blocks:
            if end <= 0:
                break
            if start < len(block):
                units += block[max(0, start) : end]
            start -= len(block)
            end -= len(block)
        return units

    def push(self, unit: Unit) -> None:
        """Put a unit in its place."""
        blocks = self._blocks
        if not blocks:
            blocks.append([unit])
        else:
            last = blocks[-1]
            if unit.order_key > last[-1].order_key:
                if len(last) < BLOCK:
                    last.append(unit)
                else:
                    blocks.append([unit])
            else:
                self._insert(unit)
        self._length += 1

    def pop_first(self) -> Unit:
        """Take the oldest unit; the queue must not be empty."""
        first = self._blocks[0]
        unit = first.pop(0)
        if not first:
            del self._blocks[0]
        self._length -= 1
        return unit

    @property
    def first(self) -> Unit:
        """The oldest unit; the queue must not be empty."""
        return self._blocks[0][0]

    def after(self, place: tuple[int, bytes]) -> Iterator[Unit]:
        """The units behind a place, in order; not to be gone on with once a unit has come or gone."""
        blocks = self._blocks
        if not blocks:
            return
        number = self._block_of(place)
        block = blocks[number]
        for at in range(bisect_right(block, place, key=_place), len(block)):
            yield block[at]
        for later in range(number + 1, len(blocks)):
            yield from blocks[later]

    def count_before(self, place: tuple[int, bytes]) -> int:
        """Count the units in front of a place: O(blocks)."""
        if not self._blocks:
            return 0
        number = self._block_of(place)
        return sum(map(len, self._blocks[:number])) + bisect_left(self._blocks[number], place, key=_place)

    def release(self) -> Iterator[int]:
        """Let go of all units, bit by bit; yields how many each bit was.  Not to be used again."""
        while self._blocks:
            yield len(self._blocks.pop())

    def remove(self, unit: Unit) -> None:
        """Take out a unit.  Raises KeyError when it is not in here."""
        if not self._blocks:
            raise KeyError(unit.id)
        place = _place(unit)
        number = self._block_of(place)
        block = self._blocks[number]
        index = bisect_left(block, place, key=_place)
        if index == len(block) or block[index] is not unit:
            raise KeyError(unit.id)
        del block[index]
        if not block:
            del self._blocks[number]
        self._length -= 1

    def _block_of(self, place: tuple[int, bytes]) -> int:
        """Find the first block whose last unit does not come before the place, or the last block."""
        number = bisect_left(self._blocks, place, key=lambda block: _place(block[-1]))
        return min(number, len(self._blocks) - 1)

    def _insert(self, unit: Unit) -> None:
        place = _place(unit)
        number = self._block_of(place)
        block = self._blocks[number]
        block.insert(bisect_left(block, place, key=_place), unit)
        if len(block) > BLOCK:
            self._blocks.insert(number + 1, block[BLOCK // 2 :])
            del block[BLOCK // 2 :]


@mypyc_attr(allow_interpreted_subclasses=True)
class Form(ABC):
    """How a consumer takes units, and what it is answered; the commands that fetch say so, each family its own way."""

    __slots__ = ("count", "worker")

    def __init__(self, count: int = 1, worker: "Worker | None" = None) -> None:
        self.count: int = count  #: units that one who had to wait gets at most, all of one queue
        #: Who takes them, and gives them back by its death; None = nobody in particular.
        self.worker: Worker | None = worker

    @property
    def nothing(self) -> object:
        """What one is answered who does not wait, when it has turned out that there is nothing."""
        return None

    @abstractmethod
    def row(self, unit: Unit) -> object:
        """What is answered for one unit, which has just been taken; what else is to be done with it is done here."""


class Waiter(Timed):
    """A consumer blocked in GETJOB or another command that fetches."""

    __slots__ = ("client", "form", "nohang", "queues")

    def __init__(self, client: Client, queues: "list[Queue]", form: Form, *, nohang: bool = False) -> None:
        self.awake_at = 0
        self.client: Client = client
        self.queues: list[Queue] = queues  #: each once, in the order named
        self.form: Form = form
        self.nohang: bool = nohang  #: waits only until it is known that there is no job

    def enter(self) -> None:
        """Begin to wait."""
        for queue in self.queues:
            queue.waiters[self] = None

    def leave(self) -> None:
        """Wait no more."""
        for queue in self.queues:
            queue.waiters.pop(self, None)


class Watcher(Waiter):
    """A client that waits to hear which queue has a unit, and takes none: nothing is kept for it."""

    __slots__ = ()

    def enter(self) -> None:
        """Begin to wait."""
        for queue in self.queues:
            queue.watchers[self] = None

    def leave(self) -> None:
        """Wait no more."""
        for queue in self.queues:
            queue.watchers.pop(self, None)


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


class Queue(Timed):
    """One named queue on this node."""

    __slots__ = (
        "accessed_at", "acked", "created_at", "created_wall", "elsewhere", "import_rate", "jobs_in", "jobs_out",
        "leased", "log", "name", "pause", "requeued", "serial", "sources", "tangled", "units", "waiters", "watchers",
    )  # fmt: skip

    def __init__(self, name: bytes, serial: int, now: int, wall: int) -> None:
        self.awake_at = 0
        self.name: bytes = name
        self.serial: int = serial  #: counts up over all queues of the node; the order of a scan
        self.created_at: int = now
        self.created_wall: int = wall  #: unix milliseconds
        self.accessed_at: int = now  #: last time that a job was queued or fetched
        self.units: OrderedUnits = OrderedUnits()
        #: Units that consumers have from this node and that may be given again, and since when; the last one is last.
        self.leased: dict[Unit, int] = {}
        self.tangled: bool = False  #: `leased` is not in that order now
        #: Units of which this node has a copy and that consumers have from other nodes, as far as is known: since when,
        #: and from which node.  Only of those that no timer queues again.
        self.elsewhere: dict[Unit, tuple[int, bytes]] = {}
        self.log: Log | None = None  #: its events, and the groups of consumers; None = it never had any
        self.waiters: dict[Waiter, None] = {}  #: first come first
        self.watchers: dict[Waiter, None] = {}  #: those who only want to hear of units
        self.pause: int = 0  #: PAUSE_... bits
        self.jobs_in: int = 0  #: times that a job was queued
        self.requeued: int = 0  #: how many of these were not the first of their job
        self.jobs_out: int = 0  #: times that a job was fetched
        self.acked: int = 0  #: jobs of this queue that were acknowledged here
        self.sources: dict[bytes, int] = {}  #: node id: when it last sent jobs for this queue
        self.import_rate: ImportRate = ImportRate(now)

    @property
    def is_idle(self) -> bool:
        """True when the queue can be forgotten without anybody noticing."""
        if self.log is not None and not self.log.is_idle:
            return False
        return not (len(self.units) or self.waiters or self.watchers or self.leased or self.elsewhere or self.pause)

    @property
    def is_awaited(self) -> bool:
        """True while somebody waits for its units, be it to take one or to hear of one."""
        return bool(self.waiters or self.watchers)

    def note_lease(self, unit: Unit, since: int) -> None:
        """Enter a unit among those that consumers have, since that time."""
        if self.leased.get(unit) == since:
            return  # it is in its place
        self.leased.pop(unit, None)
        last = next(reversed(self.leased.values()), since)
        self.leased[unit] = since
        if since < last:
            self.tangled = True

    def longest_held(self) -> dict[Unit, int]:
        """What consumers have from this node, and since when: what was handed out first is first."""
        if self.tangled:
            self.leased = dict(sorted(self.leased.items(), key=handed_out))
            self.tangled = False
        return self.leased

    @property
    def length(self) -> int:
        """Jobs that wait, and events that are kept."""
        return len(self.units) + (len(self.log) if self.log is not None else 0)

    def recent_sources(self, now: int) -> list[bytes]:
        """Return ids of the nodes that sent jobs within the memory of `import_rate`."""
        since = now - ImportRate.MEMORY_MS
        return [node_id for node_id, seen_at in self.sources.items() if seen_at >= since]

    @property
    def kind(self) -> int | None:
        """The KIND_... of what is in it; None when that is nothing, or, after a partition, both."""
        has_work = len(self.units) > 0 or len(self.leased) > 0
        has_log = self.log is not None and self.log.has_content
        if has_work == has_log:
            return None
        return KIND_LOG if has_log else KIND_WORK

    def check_kind(self, kind: int) -> None:
        """See to it that commands of a kind may use the queue.  Raises WrongType (WRONGTYPE)."""
        if self.kind == 1 - kind:
            raise WrongType


class Queues:
    """Every queue of the node, by name, and in the order in which they were created."""

    __slots__ = ("_order", "_serials", "by_name")

    def __init__(self) -> None:
        self.by_name: dict[bytes, Queue] = {}  #: for look-ups; changed here alone
        self._order: list[Queue] = []
        self._serials = 0

    def __len__(self) -> int:
        return len(self.by_name)

    def create(self, name: bytes, now: int, wall: int) -> Queue:
        """Make a queue of a name that has none."""
        self._serials += 1
        queue = self.by_name[name] = Queue(name, self._serials, now, wall)
        self._order.append(queue)
        return queue

    def remove(self, queue: Queue) -> None:
        """Forget a queue."""
        del self.by_name[queue.name]
        del self._order[bisect_left(self._order, queue.serial, key=_serial)]

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
