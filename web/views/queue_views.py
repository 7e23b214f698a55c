"""What the pages show of queues: a row each, found, sorted and cut into pages without holding up the node.

    10 000 queues --500 a turn of the loop--> rows --filter, sort--> page of 100

Rates are the difference to the walk before, so each walk leaves its counters behind (`Rates`); where nobody has looked
for a while they are those of the last sample that the history took.
Spans are milliseconds.
"""

from collections import deque
from collections.abc import Callable, Iterator
from heapq import merge
from itertools import chain, islice
from typing import Any, Final

import attrs

from disqued.core.model.queues import PAUSE_NAMES, Queue
from disqued.core.view import NodeView
from disqued.web.gateway import SLICE_ROWS, Gateway
from disqued.web.turns import SharedTurns, next_turn
from disqued.web.views import rendering
from disqued.web.views.history import History

PAGE_ROWS: Final = 100  #: queues on a page
LEAST_MS: Final = 500  #: counters that are closer together make no rate
STALE_MS: Final = 120_000  #: counters that are older make none either


@attrs.frozen
class QueueRow:
    """A queue at one moment."""

    name: bytes
    length: int  #: jobs that wait, and events that are kept
    in_rate: float | None  #: jobs queued a second; None = not known yet
    out_rate: float | None  #: jobs handed out a second
    oldest_ms: int | None  #: age of the job that waits first, or of the oldest event; None = there is none
    blocked: int  #: consumers that wait
    sources: tuple[bytes, ...]  #: nodes that sent jobs within the last seconds
    import_rate: int  #: jobs a second from these
    pause: str  #: none, in, out or all: in effect on this node
    pause_note: str = ""  #: where it holds, who said so and why; empty while it is not paused
    pause_reason: str = ""  #: why the whole cluster paused it
    failing: int = 0  #: jobs that are not dead and of which a failure is known
    dead: int = 0
    in_flight: int = 0  #: jobs with consumers of this node
    delayed: int = 0  #: jobs and events that this node queues when their delay is over
    elsewhere: int = 0  #: jobs neither in the queue of this node nor with its consumers: mostly copies
    done: int = 0  #: jobs that are acknowledged and kept


class Rates:
    """Counters of queues and of the node as they were, and what follows for jobs a second."""

    __slots__ = ("_history", "_last", "_node")

    def __init__(self, history: History | None = None) -> None:
        self._history = history
        #: Serial of a queue: (when, in, out, rate in, rate out).
        self._last: dict[int, tuple[int, int, int, float | None, float | None]] = {}
        #: When, counters, rates.
        self._node: tuple[int, tuple[int, ...], dict[str, float | None]] | None = None

    def of_node(self, node: NodeView) -> dict[str, float | None]:
        """Jobs queued, handed out and acknowledged a second, as `in`, `out` and `acked`; None = not known yet."""
        rates = self._measure_node(node)
        if rates["in"] is None and self._history is not None:
            remembered = self._history.last_rates_of_node()
            return rates if remembered is None else dict(zip(rates, remembered, strict=True))
        return rates

    def _measure_node(self, node: NodeView) -> dict[str, float | None]:
        now, counters = node.now(), node.counters
        seen = (counters.queued, counters.given, counters.acked)
        last = self._node
        if last is not None and now - last[0] < LEAST_MS:
            return last[2]
        rates: dict[str, float | None] = dict.fromkeys(("in", "out", "acked"))
        if last is not None and now - last[0] < STALE_MS:
            seconds = (now - last[0]) / 1_000
            changes = zip(rates, last[1], seen, strict=True)
            rates = {name: (after - before) / seconds for name, before, after in changes}
        self._node = (now, seen, rates)
        return rates

    def of(self, queue: Queue, now: int) -> tuple[float | None, float | None]:
        """Jobs in and out a second since the look before, or as they are remembered; None = not known yet."""
        rates = self._measure(queue, now)
        if rates[0] is None and self._history is not None:
            return self._history.last_rates(queue) or rates
        return rates

    def _measure(self, queue: Queue, now: int) -> tuple[float | None, float | None]:
        last = self._last.get(queue.serial)
        if last is not None and now - last[0] < LEAST_MS:
            return last[3], last[4]
        rate_in = rate_out = None
        if last is not None and now - last[0] < STALE_MS:
            seconds = (now - last[0]) / 1_000
            rate_in, rate_out = (queue.jobs_in - last[1]) / seconds, (queue.jobs_out - last[2]) / seconds
        self._last[queue.serial] = (now, queue.jobs_in, queue.jobs_out, rate_in, rate_out)
        return rate_in, rate_out

    def keep(self, serials: set[int]) -> None:
        """Forget queues that are gone."""
        for serial in self._last.keys() - serials:
            del self._last[serial]


def row_of(node: NodeView, queue: Queue, rates: Rates) -> QueueRow:
    """Describe a queue as it is now."""
    now, wall = node.now(), node.wall()
    rate_in, rate_out = rates.of(queue, now)
    ctime = queue.oldest
    oldest = None if ctime is None else max(0, wall - ctime // 1_000_000)
    sources = tuple(queue.recent_sources(now))
    counts = node.phases.count(queue.name)
    return QueueRow(
        queue.name, queue.length, rate_in, rate_out, oldest, len(queue.waiters), sources,
        queue.import_rate.per_second(now) if sources else 0, PAUSE_NAMES[queue.pause].decode(),
        *_pause_facts(node, queue), len(queue.failing), len(queue.dead),
        counts.in_flight, counts.delayed, counts.elsewhere, counts.done,
    )  # fmt: skip


@attrs.frozen
class PauseInEffect:
    """A pause of a queue: of all nodes, or of this one."""

    what: str  #: what is stopped, as the subject of a sentence
    scope: str
    owner: str = ""  #: empty when not known
    reason: str = ""


_PAUSED: Final = {
    b"in": "Adds are paused", b"out": "Delivery is paused", b"all": "Adds and delivery are paused",
}  # fmt: skip


def pauses_of(node: NodeView, name: bytes) -> list[PauseInEffect]:
    """Return the pauses of a queue that are in effect on this node; the queue need not exist."""
    setting, queue = node.pause_of(name), node.queue(name)
    here = 0 if queue is None else queue.pause_here
    found = []
    if setting.bits:
        what = _PAUSED[PAUSE_NAMES[setting.bits]]
        found.append(PauseInEffect(what, "on all nodes", setting.owner.decode(), setting.reason.decode()))
    if here:
        found.append(PauseInEffect(_PAUSED[PAUSE_NAMES[here]], "on this node"))
    return found


def _pause_facts(node: NodeView, queue: Queue) -> tuple[str, str]:
    """Where a pause holds, who said so and why; and the reason alone."""
    setting = node.pause_of(queue.name)
    if not queue.pause:
        return "", ""
    where = "all nodes" if setting.bits else "this node"
    if setting.bits and queue.pause_here:
        where = f"all nodes, and {PAUSE_NAMES[queue.pause_here].decode()} on this node"
    if not setting.bits:
        return where, ""
    reason, owner = setting.reason.decode(), setting.owner.decode()
    return ": ".join(part for part in (f"{where}, by {owner}" if owner else where, reason) if part), reason


#: What a table can be sorted by: the key, and whether the largest come first.
SORTS: Final[dict[str, tuple[Callable[[QueueRow], Any], bool]]] = {
    "name": (lambda row: row.name, False),
    "length": (lambda row: (row.length, row.name), True),
    "in": (lambda row: (row.in_rate or 0, row.name), True),
    "out": (lambda row: (row.out_rate or 0, row.name), True),
    "oldest": (lambda row: (-1 if row.oldest_ms is None else row.oldest_ms, row.name), True),
    "blocked": (lambda row: (row.blocked, row.name), True),
    "failing": (lambda row: (row.failing, row.name), True),
    "dead": (lambda row: (row.dead, row.name), True),
    "in-flight": (lambda row: (row.in_flight, row.name), True),
    "delayed": (lambda row: (row.delayed, row.name), True),
    "elsewhere": (lambda row: (row.elsewhere, row.name), True),
    "done": (lambda row: (row.done, row.name), True),
    "imported": (lambda row: (row.import_rate, row.name), True),
    "paused": (lambda row: (row.pause != "none", row.name), True),
}


@attrs.frozen
class QueueQuery:
    """Which queues somebody looks at."""

    text: str = ""  #: part of the name or a glob, in any case; empty = all
    sort: str = "name"  #: a key of SORTS
    page: int = 1

    async def cut(self, rows: list[QueueRow], turns: SharedTurns) -> "QueuePage":
        """Find, sort and cut; SLICE_ROWS are looked at in a turn of the loop."""
        key, largest_first = SORTS[self.sort]
        runs: list[list[QueueRow]] = []
        for at in range(0, len(rows), SLICE_ROWS):
            if at:
                await next_turn(turns)
            run = [row for row in rows[at : at + SLICE_ROWS] if self._lets_through(row)]
            run.sort(key=key, reverse=largest_first)
            runs.append(run)
        count = sum(map(len, runs))
        pages = max(1, -(-count // PAGE_ROWS))
        page = min(max(1, self.page), pages)
        in_order = merge(*runs, key=key, reverse=largest_first)
        before = (page - 1) * PAGE_ROWS
        while before:
            if len(runs) > 1:
                await next_turn(turns)
            passed = min(before, SLICE_ROWS)
            deque(islice(in_order, passed), maxlen=0)
            before -= passed
        return QueuePage(list(islice(in_order, PAGE_ROWS)), count, page, pages)

    def _lets_through(self, row: QueueRow) -> bool:
        return not self.text or rendering.is_named(self.text, row.name)


@attrs.frozen
class QueuePage:
    """A page of queues."""

    rows: list[QueueRow]
    found: int  #: queues that the filter lets through
    page: int
    pages: int


async def walk(gateway: Gateway, rates: Rates) -> list[QueueRow]:
    """Describe every queue, SLICE_ROWS in a turn of the loop; one that comes or goes meanwhile may be missed."""
    rows: list[QueueRow] = []
    serials: set[int] = set()
    serial = 0
    while True:
        node = gateway.view
        queues = node.queues_from(serial, SLICE_ROWS)
        rows += (row_of(node, queue, rates) for queue in queues)
        serials.update(queue.serial for queue in queues)
        if len(queues) < SLICE_ROWS:
            rates.keep(serials)
            return rows
        serial = queues[-1].serial + 1
        await next_turn(gateway.turns)


def first_of(node: NodeView, name: bytes, count: int) -> Iterator[Any]:
    """The first jobs of a queue, and events of its log, oldest first; none when there is no such queue."""
    queue = node.queue(name)
    if queue is not None:
        for number, unit in enumerate(chain(queue.units, queue.stream or ())):
            if number == count:
                return
            yield unit.job
