"""What the pages show of queues: figures of the whole cluster, found, sorted and cut into pages.

    viewers --QueueTable.all_queues--> one walk, QSCAN REPLY figures on each node --> a row of each queue: sums
            --QueueTable.one---------> QSTAT FULL on every node                --> a row of each node, and their sum
    rows --filter, sort--> page of 100

Each figure is the sum of what the nodes say of themselves; nodes that do not answer are named next to it (`sources`).
The walk is shared by all viewers, and rests for `REST_S` seconds, or `REST_TIMES` what it took if that is longer.

Rates are differences between two answers of the same node, so that a node that comes or goes makes no jump (`Rates`);
where nobody has looked for a while, those of this node are those of the last sample of the history.
Durations are milliseconds, unless the name says otherwise.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from heapq import merge
from itertools import islice
from typing import Any, Final

import attrs

from disqued.core.cluster.questions import ANSWER_MS, OK, SILENT
from disqued.core.model.queues import PAUSE_NAMES
from disqued.core.view import NodeView
from disqued.errors import CommandError
from disqued.web.gateway import SLICE_ROWS, Gateway
from disqued.web.turns import OneAtATime, SharedTurns, next_turn
from disqued.web.views import rendering
from disqued.web.views.cluster_answers import ask_all
from disqued.web.views.everywhere import Everywhere, NodeReply
from disqued.web.views.history import History

PAGE_ROWS: Final = 100  #: queues on a page
WALK_ROWS: Final = 25  #: queues in an answer of a walk: clients of either node wait for less than a millisecond
ADDED_ROWS: Final = 500  #: rows of nodes that are added up in a turn of the loop, half a millisecond's work
REST_S: Final = 2.0  #: from the end of a walk to the next one, at least
REST_TIMES: Final = 10  #: times what the walk took, at least
LEAST_S: Final = 0.5  #: counters that are closer together make no rate
STILL_MS: Final = 5_000  #: since a job was last queued or handed out, for a sum to be one of the same moment
STALE_S: Final = 120.0  #: counters that are older make none either

QueueRates = tuple[float | None, float | None]  #: jobs in and out a second; None = not known yet

_PAUSE_BITS: Final = {name: bits for bits, name in PAUSE_NAMES.items()}


@attrs.define
class QueueRow:
    """A queue at one moment, on one node or on all of them together.

    It adds up in place: a walk over the queues of a large cluster makes thousands of them.
    """

    name: bytes
    length: int = 0  #: jobs that wait, or events of which the node is the owner
    in_flight: int = 0  #: jobs with consumers
    delayed: int = 0
    dead: int = 0
    failing: int = 0  #: jobs that are not dead and of which a failure is known
    in_rate: float | None = None  #: jobs queued a second; None = not known yet
    out_rate: float | None = None  #: jobs handed to consumers a second
    oldest_ms: int | None = None  #: age of the job that waits first, or of the oldest event; None = there is none
    blocked: int = 0  #: consumers that wait
    jobs_in: int = 0  #: jobs queued, all told
    delivered: int = 0  #: jobs handed to consumers
    acked: int = 0
    requeued: int = 0
    idle_ms: int | None = None  #: since it was last used on any node; None = on none, it only has jobs there
    pause: int = 0  #: bits: in effect on any node
    node_pause: int = 0  #: bits: set on single nodes
    paused_on: tuple[bytes, ...] = ()  #: nodes that have a pause of their own
    is_log: bool = False
    delivered_ms: int | None = None  #: since `delivered` was last seen to grow on any node; None = not seen lately
    elsewhere: int = 0  #: copies of jobs which the node takes to be on another one; each holder counts its own
    done: int = 0  #: acknowledged jobs that are kept; likewise
    slots_lost: int = 0  #: slots of nodes that are gone or began anew
    nodes: int = 1  #: that know the queue

    @classmethod
    def told(cls, node_id: bytes, figures: Sequence[Any], rates: "Rates", at: float) -> "QueueRow":
        """Read what QSCAN REPLY figures answered at a moment of the reactor's clock."""
        (name, length, in_flight, delayed, dead, failing, oldest_s, blocked, jobs_in, delivered, requeued, acked,
         idle_s, pause, node_pause, is_log, elsewhere, done, slots_lost) = figures  # fmt: skip
        in_rate, out_rate = rates.of(node_id, name, jobs_in, delivered, at)
        pause_here = _PAUSE_BITS[node_pause]
        return cls(
            name, length, in_flight, delayed, dead, failing, in_rate, out_rate,
            None if oldest_s < 0 else oldest_s * 1_000, blocked, jobs_in, delivered, acked, requeued,
            None if idle_s < 0 else idle_s * 1_000, _PAUSE_BITS[pause], pause_here, (node_id,) if pause_here else (),
            bool(is_log), rates.since_delivery(node_id, name, at), elsewhere, done, slots_lost,
        )  # fmt: skip

    @classmethod
    def of(cls, node_id: bytes, statistics: Sequence[Any], rates: "Rates", at: float) -> "QueueRow":
        """Read what QSTAT FULL answered at a moment of the reactor's clock."""
        facts: dict[bytes, Any] = dict(zip(statistics[::2], statistics[1::2], strict=True))
        owned, jobs_in = facts.get(b"owned"), facts[b"jobs-in"]
        delivered = facts.get(b"delivered", facts[b"jobs-out"])  # an older node does not tell them apart
        figures = (
            facts[b"name"], facts[b"len"] if owned is None else owned, facts.get(b"in-flight", 0),
            facts.get(b"delayed", 0), facts.get(b"dead", 0), facts.get(b"failing", 0), facts.get(b"oldest", -1),
            facts[b"blocked"], jobs_in, delivered, jobs_in - facts.get(b"produced", jobs_in),
            facts.get(b"consumed", 0), facts[b"idle"] if facts.get(b"ctime", 1) else -1, facts[b"pause"],
            facts.get(b"pause-node", b"none"), owned is not None, facts.get(b"elsewhere", 0), facts.get(b"done", 0),
            facts.get(b"slots-lost", 0),
        )  # fmt: skip
        return cls.told(node_id, figures, rates, at)

    def add(self, other: "QueueRow") -> None:
        """Add the figures of another node to those here; a rate that is not known makes the sum unknown."""
        self.length += other.length
        self.in_flight += other.in_flight
        self.delayed += other.delayed
        self.dead += other.dead
        self.failing += other.failing
        self.in_rate = _sum_of(self.in_rate, other.in_rate)
        self.out_rate = _sum_of(self.out_rate, other.out_rate)
        self.oldest_ms = _greatest(self.oldest_ms, other.oldest_ms)
        self.blocked += other.blocked
        self.jobs_in += other.jobs_in
        self.delivered += other.delivered
        self.acked += other.acked
        self.requeued += other.requeued
        self.idle_ms = _least(self.idle_ms, other.idle_ms)
        self.pause |= other.pause
        self.node_pause |= other.node_pause
        self.paused_on += other.paused_on
        self.is_log = self.is_log or other.is_log
        self.delivered_ms = _least(self.delivered_ms, other.delivered_ms)
        self.elsewhere += other.elsewhere
        self.done += other.done
        self.slots_lost += other.slots_lost
        self.nodes += other.nodes

    @property
    def stranded(self) -> int:
        """Copies of jobs that no node has in its queue, with a consumer or delayed: so many at least.

        Of a job that one node has so, each other node that knows the queue has one copy at most.  Nodes say what they
        have at different moments, so that this is 0 while jobs are queued or handed out.
        """
        if self.is_log or (self.idle_ms is not None and self.idle_ms < STILL_MS):
            return 0
        return max(0, self.elsewhere - (self.length + self.in_flight + self.delayed) * (self.nodes - 1))

    @property
    def pause_word(self) -> str:
        """none, in, out or all."""
        return PAUSE_NAMES[self.pause].decode()


def _sum_of(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _greatest(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return one if one > other else other


def _least(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return one if other is None else other
    return one if one < other else other


def pause_scope(node: NodeView, row: QueueRow) -> str:
    """Where a pause holds: on all nodes, on single ones, or both; empty while nothing is paused."""
    if not row.pause:
        return ""
    if not row.paused_on:
        return "all nodes"
    if not node.pause_of(row.name).bits:
        return _paused_nodes(node, row)
    return f"all nodes, and {PAUSE_NAMES[row.node_pause].decode()} on {_paused_nodes(node, row)}"


def _paused_nodes(node: NodeView, row: QueueRow) -> str:
    """Name the node that has a pause of its own, or say how many have one."""
    if len(row.paused_on) > 1:
        return f"{len(row.paused_on)} nodes"
    return "this node" if row.paused_on[0] == node.id else f"node {row.paused_on[0][:8].decode('ascii', 'replace')}"


@attrs.frozen
class PauseInEffect:
    """A pause of a queue: of all nodes, or of some."""

    what: str  #: what is stopped, as the subject of a sentence
    scope: str
    owner: str = ""  #: empty when not known
    reason: str = ""


_PAUSED: Final = {
    b"in": "Adds are paused", b"out": "Delivery is paused", b"all": "Adds and delivery are paused",
}  # fmt: skip


def pauses_of(node: NodeView, name: bytes, row: QueueRow | None = None) -> list[PauseInEffect]:
    """Return the pauses of a queue, which need not exist: those of its sum, or without one those on this node."""
    setting, queue = node.pause_of(name), node.queue(name)
    if row is None and queue is not None:
        row = QueueRow(name, node_pause=queue.pause_here, paused_on=(node.id,))
    found = []
    if setting.bits:
        what = _PAUSED[PAUSE_NAMES[setting.bits]]
        found.append(PauseInEffect(what, "on all nodes", setting.owner.decode(), setting.reason.decode()))
    if row is not None and row.node_pause:
        found.append(PauseInEffect(_PAUSED[PAUSE_NAMES[row.node_pause]], f"on {_paused_nodes(node, row)}"))
    return found


def pause_note(node: NodeView, row: QueueRow) -> str:
    """Where a pause holds, who said so and why."""
    setting, where = node.pause_of(row.name), pause_scope(node, row)
    if not setting.bits:
        return where
    owner = setting.owner.decode()
    parts = (f"{where}, by {owner}" if owner else where, setting.reason.decode())
    return ": ".join(part for part in parts if part)


class Rates:
    """Counters of queues and of the node as they were, and what follows for jobs a second."""

    __slots__ = ("_delivered_at", "_gateway", "_history", "_last", "_node", "_pruned_at")

    def __init__(self, gateway: Gateway, history: History) -> None:
        """`history` knows the rates of this node while nobody has looked yet."""
        self._gateway = gateway
        self._history = history
        #: Node and queue: (when, in, out, rate in, rate out).
        self._last: dict[tuple[bytes, bytes], tuple[float, int, int, float | None, float | None]] = {}
        self._delivered_at: dict[tuple[bytes, bytes], float] = {}  #: when a queue of a node was seen to deliver
        self._pruned_at = 0.0
        #: When, counters, rates.
        self._node: tuple[float, tuple[int, ...], dict[str, float | None]] | None = None

    def of_node(self) -> dict[str, float | None]:
        """Jobs queued, handed out and acknowledged a second, as `in`, `out` and `acked`; None = not known yet."""
        rates = self._measure_node()
        if rates["in"] is None:
            remembered = self._history.last_rates_of_node()
            return rates if remembered is None else dict(zip(rates, remembered, strict=True))
        return rates

    def _measure_node(self) -> dict[str, float | None]:
        now, counters = self._gateway.reactor.seconds(), self._gateway.view.counters
        seen = (counters.queued, counters.delivered, counters.acked)
        last = self._node
        if last is not None and now - last[0] < LEAST_S:
            return last[2]
        rates: dict[str, float | None] = dict.fromkeys(("in", "out", "acked"))
        if last is not None and now - last[0] < STALE_S:
            changes = zip(rates, last[1], seen, strict=True)
            rates = {name: (after - before) / (now - last[0]) for name, before, after in changes}
        self._node = (now, seen, rates)
        return rates

    def of(self, node_id: bytes, name: bytes, jobs_in: int, delivered: int, at: float) -> QueueRates:
        """Jobs in and out a second on a node since its answer before; None = not known yet."""
        rates = self._measure((node_id, name), jobs_in, delivered, at)
        if rates[0] is None and node_id == self._gateway.view.id:
            queue = self._gateway.view.queue(name)
            return rates if queue is None else self._history.last_rates(queue) or rates
        return rates

    def since_delivery(self, node_id: bytes, name: bytes, at: float) -> int | None:
        """Milliseconds since a queue of a node was last seen to hand a job to a consumer; None = not lately."""
        seen_at = self._delivered_at.get((node_id, name))
        return None if seen_at is None or at - seen_at >= STALE_S else round((at - seen_at) * 1_000)

    def _measure(self, key: tuple[bytes, bytes], jobs_in: int, delivered: int, at: float) -> QueueRates:
        last = self._last.get(key)
        if last is not None and at - last[0] < LEAST_S:
            return last[3], last[4]
        rate_in = rate_out = None
        if last is not None and delivered > last[2]:
            self._delivered_at[key] = at
        # Smaller counters are those of a queue that began again, or of a node.
        if last is not None and at - last[0] < STALE_S and jobs_in >= last[1] and delivered >= last[2]:
            seconds = at - last[0]
            rate_in, rate_out = (jobs_in - last[1]) / seconds, (delivered - last[2]) / seconds
        self._last[key] = (at, jobs_in, delivered, rate_in, rate_out)
        return rate_in, rate_out

    def prune(self, now: float) -> None:
        """Forget counters that are too old for a rate, now and then."""
        if now - self._pruned_at >= STALE_S:
            self._pruned_at = now
            self._last = {key: last for key, last in self._last.items() if now - last[0] < STALE_S}
            self._delivered_at = {key: at for key, at in self._delivered_at.items() if now - at < STALE_S}

    def forget(self) -> None:
        """Forget all counters, as if nobody had looked."""
        self._last.clear()
        self._delivered_at.clear()
        self._node = None


@attrs.frozen
class Sources:
    """Where figures come from."""

    asked_at: float  #: seconds of the reactor's clock
    replies: Sequence[NodeReply] = ()  #: of every node that was asked
    failure: str = ""  #: why the nodes cannot be asked now; the figures are those of before, if there are any

    @property
    def missing(self) -> list[NodeReply]:
        """Replies of the nodes whose figures are not known."""
        return [reply for reply in self.replies if reply.status != OK]


@attrs.frozen
class AllQueues:
    """Every queue of any node that answered."""

    sources: Sources
    rows: list[QueueRow] = attrs.Factory(list)
    drawn: dict[object, str] = attrs.Factory(dict)  #: tables of these rows as HTML, by what is shown of them


@attrs.frozen
class QueueOnNodes:
    """One queue on each node that has it."""

    sources: Sources
    on_nodes: Mapping[bytes, QueueRow] = attrs.Factory(dict)

    @property
    def total(self) -> QueueRow | None:
        """The sum; None if no node that answered has the queue."""
        total: QueueRow | None = None
        for row in self.on_nodes.values():
            if total is None:
                total = attrs.evolve(row)
            else:
                total.add(row)
        return total


class QueueTable:
    """Asks all nodes for their queues: all of them for everybody who looks at once, or one."""

    def __init__(self, gateway: Gateway, everywhere: Everywhere, rates: Rates) -> None:
        self._gateway = gateway
        self._everywhere = everywhere
        self._rates = rates
        self._walking = OneAtATime()
        self._last: AllQueues | None = None
        self._ended_at = 0.0  #: when the last walk ended
        self._rested_at = 0.0  #: when the next one may begin at the earliest

    async def all_queues(self, rest_s: float | None = None) -> AllQueues:
        """Describe every queue of any node; those who ask meanwhile, or soon after, share the answer.

        A walk begins `rest_s` seconds after the one before, or `REST_S` of them: 0 for a reader who may have changed
        something.  It rests for `REST_TIMES` what that one took in any case.
        """
        async with self._walking:
            clock = self._gateway.reactor
            rests_until = self._ended_at + (REST_S if rest_s is None else rest_s)
            if self._last is None or clock.seconds() >= max(rests_until, self._rested_at):
                began = clock.seconds()
                last = self._last = await self._walk(began)
                took = clock.seconds() - began
                if any(reply.status == SILENT for reply in last.sources.replies):
                    took -= ANSWER_MS / 1_000  # waiting is no work
                self._ended_at = clock.seconds()
                self._rested_at = self._ended_at + REST_TIMES * took
            return self._last

    async def _walk(self, began: float) -> AllQueues:
        replies: dict[bytes, NodeReply] = {}
        found: dict[bytes, list[QueueRow]] = {}
        clock = self._gateway.reactor
        self._rates.prune(began)
        try:
            async for reply in self._everywhere.pages(b"QSCAN", b"REPLY", b"figures", count=WALK_ROWS, fresh_s=0):
                replies[reply.node_id] = attrs.evolve(reply, value=None if reply.status == OK else reply.value)
                if reply.status != OK:
                    found.pop(reply.node_id, None)  # part of its figures would pass for all of them
                    continue
                at = clock.seconds()
                rows = found.setdefault(reply.node_id, [])
                rows += (QueueRow.told(reply.node_id, each, self._rates, at) for each in reply.value[1])
                if reply.node_id == self._gateway.view.id:  # those of other nodes are waited for
                    await next_turn(self._gateway.turns)
        except CommandError as error:
            before = self._last or AllQueues(Sources(began))
            return attrs.evolve(before, sources=attrs.evolve(before.sources, failure=str(error)))
        totals: dict[bytes, QueueRow] = {}
        for rows in found.values():
            for at_row in range(0, len(rows), ADDED_ROWS):
                for row in rows[at_row : at_row + ADDED_ROWS]:
                    total = totals.setdefault(row.name, row)
                    if total is not row:
                        total.add(row)
                await next_turn(self._gateway.turns)
        return AllQueues(Sources(began, list(replies.values())), list(totals.values()))

    async def one(self, name: bytes, fresh_s: float) -> QueueOnNodes:
        """Describe a queue on every node; an answer that is not older than `fresh_s` is shared."""
        self._rates.prune(self._gateway.reactor.seconds())
        try:
            answer = await self._everywhere.ask(b"QSTAT", name, b"FULL", fresh_s=fresh_s)
        except CommandError as error:
            return QueueOnNodes(Sources(self._gateway.reactor.seconds(), failure=str(error)))
        rows = {
            reply.node_id: QueueRow.of(reply.node_id, reply.value, self._rates, answer.asked_at)
            for reply in answer.answered
            if reply.value is not None
        }
        return QueueOnNodes(Sources(answer.asked_at, answer.replies), rows)


#: What a table can be sorted by: the key, and whether the largest come first.
SORTS: Final[dict[str, tuple[Callable[[QueueRow], Any], bool]]] = {
    "name": (lambda row: row.name, False),
    "length": (lambda row: (row.length, row.name), True),
    "in-flight": (lambda row: (row.in_flight, row.name), True),
    "delayed": (lambda row: (row.delayed, row.name), True),
    "in": (lambda row: (row.in_rate or 0, row.name), True),
    "out": (lambda row: (row.out_rate or 0, row.name), True),
    "oldest": (lambda row: (-1 if row.oldest_ms is None else row.oldest_ms, row.name), True),
    "blocked": (lambda row: (row.blocked, row.name), True),
    "failing": (lambda row: (row.failing, row.name), True),
    "dead": (lambda row: (row.dead, row.name), True),
    "elsewhere": (lambda row: (row.elsewhere, row.name), True),
    "done": (lambda row: (row.done, row.name), True),
    "paused": (lambda row: (bool(row.pause), row.name), True),
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


@attrs.frozen
class PeekedJob:
    """A job that waits in the queue of a node, or an event of a log."""

    id: bytes
    node_id: bytes
    is_here: bool
    head: bytes  #: the first bytes of its body
    size: int  #: of the whole body
    age_ms: int

    @property
    def node(self) -> str:
        """The node, as pages show it."""
        return self.node_id[:8].decode("ascii", "replace")


async def next_jobs(
    everywhere: Everywhere, node: NodeView, name: bytes, *, count: int, head: int, fresh_s: float
) -> list[PeekedJob]:
    """Return the jobs that the nodes hand out next, those first that are older; each once, with `head` of its body."""
    words = (b"QPEEK", name, b"%d" % count, b"BRIEF", b"%d" % head)
    reply = await ask_all(everywhere, node, *words, fresh_s=fresh_s)
    of_nodes = [
        [PeekedJob(bytes(job_id), each.node_id, each.node_id == node.id, bytes(body), size, age_ms)
         for _, job_id, body, _, size, _, age_ms in each.value]
        for each in sorted(reply.answered, key=lambda each: each.node_id != node.id)
    ]  # fmt: skip
    found: dict[bytes, PeekedJob] = {}
    for job in merge(*of_nodes, key=lambda job: -job.age_ms):  # each node in the order in which it hands them out
        found.setdefault(job.id, job)
    return list(islice(found.values(), count))
