"""Failing and dead jobs of the whole cluster, each once, though several nodes hold it.

    queues with such jobs (QueueTable) --JSCAN REPLY ALL on every node--> reports of each job --> FailedJob
    FailedJobs.find --filter by queue and reason, newest failure first--> page of 100

A failing job is not dead, and some node knows a failure of it; a dead one is in the state dead.  JSCAN has no word for
failing: nodes are asked for the jobs of queues that count failing ones, first for those that wait for a delay or are
with a consumer, then for the others.  The walk ends once it has met as many reports as the nodes count, after
`CALLS_MAX` calls on a node, or at `FOUND_MAX` jobs; what is left out then is told (`FoundJobs.is_partial`).

A page that is open shows what the last walk has found (`FailedJobs.watch`).  All lists that are open share the time:
walks take a part in `REST_TIMES` of it at most, however many there are.

Moments are unix milliseconds, spans milliseconds.
"""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Final

import attrs
from twisted.internet.defer import ensureDeferred
from twisted.logger import Logger

from disqued.core.cluster.questions import OK
from disqued.core.model.glob import matches
from disqued.errors import CommandError
from disqued.web.gateway import Gateway
from disqued.web.http.exchange import QueryParameter, Request
from disqued.web.http.problems import Problem
from disqued.web.turns import OneAtATime, next_turn
from disqued.web.views import rendering
from disqued.web.views.cluster_answers import MissingNode, missing_nodes
from disqued.web.views.everywhere import ClusterReply, Everywhere, NodeReply
from disqued.web.views.job_reports import ClusterJob, JobReport
from disqued.web.views.queue_views import REST_S, REST_TIMES, QueueRow, QueueTable

log = Logger()

PAGE_ROWS: Final = 100  #: jobs on a page
FOUND_MAX: Final = 5_000  #: jobs of which one look makes a list
QUEUES_APART: Final = 4  #: queues that are walked one by one; of more, all jobs of the nodes are
CALLS_MAX: Final = 100  #: of one walk on a node; each looks at 10 000 jobs, or describes 250
LONG_CALLS_MAX: Final = 20  #: of a walk that meets jobs which never failed, too
BODIES_MAX: Final = 64 << 20  #: bytes of bodies of one list that has them
AT_ONCE: Final = -1  #: COUNT of JSCAN: as much as a call may do
UNWATCHED_S: Final = 30.0  #: how long a list is kept that no page asks for

FAILING: Final = "failing"
DEAD: Final = "dead"
#: Walks that find the jobs of a list: states that JSCAN is asked for, and calls on each node at most.
_WALKS: Final[Mapping[str, Sequence[tuple[tuple[bytes, ...], int]]]] = {
    DEAD: (((b"dead",), CALLS_MAX),),
    FAILING: (((b"delayed", b"in-flight"), CALLS_MAX), ((b"ready", b"elsewhere"), LONG_CALLS_MAX)),
}
#: What SHOW tells of a job that a list has no use for, and that may be long.
_LONG: Final = ("body", "headers", "progress", "result")


FILTERS: Final = (
    QueryParameter("queue", "The queue, or a glob; all unless given.", {"type": "string", "format": "bytes"}),
    QueryParameter("reason", "Part of the reason of the last failure, in any case."),
    QueryParameter("since", "Jobs that failed then or later; a moment in UTC, such as 2026-11-28T12:00."),
)
PAGE: Final = QueryParameter("page", "Which page of a hundred; 1 unless given.", {"type": "integer", "minimum": 1})


def read_since(text: str) -> int:
    """Read a moment in UTC, as a field of a form sends it; empty is 0.  Raises Problem 400."""
    if not text:
        return 0
    try:
        moment = datetime.fromisoformat(text)
        return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() * 1_000)
    except (ValueError, OverflowError):
        raise Problem(400, f"since={text[:100]}: expected a moment in UTC, such as 2026-11-28T12:00") from None


@attrs.frozen
class FailedQuery:
    """Which failing or dead jobs are meant."""

    kind: str  #: FAILING or DEAD
    queue: bytes = b""  #: a name, or a glob; empty = all
    reason: str = ""  #: part of the reason of the last failure, in any case
    since: int = 0  #: jobs whose last failure was then or later; 0 = all
    ids: frozenset[bytes] | None = None  #: these alone; None = all

    @classmethod
    def of(cls, asked: Request, kind: str) -> "FailedQuery":
        """The jobs that a query string means.  Raises Problem 400."""
        query = asked.query
        return cls(kind, query.get("queue", b""), query.get("reason", ""), read_since(query.get("since", "")))

    def is_in(self, queue: bytes) -> bool:
        """Return whether jobs of a queue are meant."""
        return not self.queue or queue == self.queue or (self.is_glob and matches(self.queue, queue))

    @property
    def is_glob(self) -> bool:
        """Return whether the name stands for other names, too."""
        return any(mark in self.queue for mark in b"*?[")

    def lets_through(self, job: "FailedJob") -> bool:
        """Return whether a job of one of the queues is meant."""
        is_named = self.ids is None or job.id in self.ids
        return (
            is_named
            and job.failed_at >= self.since
            and self.reason.casefold() in job.reason.decode("utf-8", "backslashreplace").casefold()
        )


@attrs.frozen
class FailedJob:
    """A failing or dead job, as all nodes that answer know it."""

    id: bytes
    queue: bytes
    phase: str  #: where it is, on the node that knows most of it
    node_id: bytes  #: that node
    holders: Sequence[bytes]  #: nodes that told of it
    tries: int  #: that have failed since it was added, or redriven
    max_tries: int  #: 0 = no limit
    failed_at: int  #: the last failure that is known; 0 = none is
    who: bytes  #: that said so; empty = the node noticed it
    reason: bytes
    next_ms: int | None  #: until it is queued again; None = it is queued, with a consumer, or no timer runs
    kept_ms: int  #: until it is dropped
    ctime: int

    @property
    def node(self) -> str:
        """The node that knows most of it, as pages show it."""
        return self.node_id[:8].decode("ascii", "replace")


@attrs.frozen
class FoundJobs:
    """The jobs that a query means."""

    jobs: Sequence[FailedJob]  #: the newest failure first
    missing: Sequence[MissingNode]
    is_partial: bool  #: there may be more on the nodes that answer
    at: int  #: when the nodes were asked
    failure: str = ""  #: why no node can be asked

    @property
    def gaps(self) -> list[str]:
        """Say in sentences why jobs may be left out; empty if none are."""
        sentences = [f"{one.sentence} Jobs that it alone holds are missing." for one in self.missing]
        if self.failure:
            sentences.append(rendering.sentence(f"The nodes cannot be asked now: {self.failure}"))
        if self.is_partial:
            sentences.append("There are more jobs than one look goes through: name a queue to see more of it.")
        return sentences


def merged(reports: Sequence[JobReport]) -> FailedJob:
    """Make one job of what nodes tell of it: the latest redrive counts, then the node that knows most."""
    newest = max(_generation(report) for report in reports)
    current = [report for report in reports if _generation(report) == newest]
    best = ClusterJob(current, ()).best
    assert best is not None
    fields = best.fields
    failures = sorted((*failure,) for report in reports for failure in report.fields.get("failures", ()))
    at, _, who, reason = failures[-1] if failures else (0, b"", b"", b"")
    waits = [report.requeue_ms for report in current if report.requeue_ms is not None]
    is_moving = best.phase in ("ready", "in-flight", DEAD)
    return FailedJob(
        fields["id"], fields["queue"], best.phase, best.node_id, [report.node_id for report in reports],
        max(map(tries_counted, current)), fields.get("max-tries", 0),
        at, who, reason, None if is_moving else min(waits, default=None),
        1_000 * max(report.fields["ttl"] for report in current), fields["ctime"],
    )  # fmt: skip


def _generation(report: JobReport) -> int:
    return int(report.fields.get("generation", 0))


def tries_counted(report: JobReport) -> int:
    """Return the tries that a node has counted since a job was added, or redriven, without one that goes on."""
    return int(report.fields["nacks"]) + int(report.fields["additional-deliveries"])


@attrs.define
class _Walk:
    """What one look has met so far."""

    wanted: FailedQuery
    node_id: bytes  #: this node
    keeps_bodies: bool
    rests: bool = False  #: figures of queues may be those of the last walk
    replies: dict[bytes, NodeReply] = attrs.field(factory=dict)
    reports: dict[bytes, dict[bytes, JobReport]] = attrs.field(factory=dict)  #: by job and node
    long: dict[bytes, dict[str, Any]] = attrs.field(factory=dict)  #: fields of `_LONG` that are kept, by job
    size: int = 0  #: bytes of the bodies among these
    is_partial: bool = False

    @property
    def is_full(self) -> bool:
        """Return whether a list holds no more."""
        return len(self.reports) >= FOUND_MAX or self.size >= BODIES_MAX

    def take(self, reply: NodeReply, queues: set[bytes]) -> None:
        """Note what a node has answered."""
        known = self.replies.get(reply.node_id)
        if known is None or known.status == OK:
            self.replies[reply.node_id] = attrs.evolve(reply, value=None if reply.status == OK else reply.value)
        for told in reply.value[1] if reply.status == OK else ():
            report = JobReport(reply.node_id, reply.node_id == self.node_id, _fields(told), None)
            if report.fields["queue"] in queues and (report.phase == DEAD or report.fields.get("failures")):
                self._add(report)

    def _add(self, report: JobReport) -> None:
        fields = report.fields
        job_id: bytes = fields["id"]
        long: dict[str, Any] = {name: fields.pop(name) for name in _LONG if name in fields}
        if self.keeps_bodies and job_id not in self.long:
            self.long[job_id] = long
            self.size += len(long.get("body") or b"")
        self.reports.setdefault(job_id, {})[report.node_id] = report

    def met_in(self, queues: set[bytes]) -> int:
        """Return how many reports of jobs of some queues there are, each node's for itself."""
        return sum(len(by_node) for by_node in self.reports.values() if _queue_of(by_node) in queues)


def _fields(told: Sequence[Any]) -> dict[str, Any]:
    return dict(zip((name.decode("ascii") for name in told[::2]), told[1::2], strict=True))


def _queue_of(by_node: Mapping[bytes, JobReport]) -> bytes:
    queue: bytes = next(iter(by_node.values())).fields["queue"]
    return queue


@attrs.frozen
class FailedPage:
    """A page of failing or dead jobs."""

    rows: Sequence[FailedJob]
    count: int
    page: int
    pages: int

    @classmethod
    def of(cls, jobs: Sequence[FailedJob], page: int) -> "FailedPage":
        """Cut a page of a list; beyond the last one there is the last one."""
        pages = max(1, -(-len(jobs) // PAGE_ROWS))
        page = min(max(1, page), pages)
        return cls(jobs[(page - 1) * PAGE_ROWS : page * PAGE_ROWS], len(jobs), page, pages)


@attrs.frozen
class ShownJobs:
    """What a page of a list shows."""

    found: FoundJobs  #: without the jobs
    cut: FailedPage


@attrs.define
class _Watched:
    """A page of a list that is open somewhere, or was a moment ago."""

    asked_at: float  #: seconds of the reactor's clock
    shown: ShownJobs | None = None
    due_at: float = 0.0  #: when the next walk may begin
    is_walking: bool = False


class FailedJobs:
    """Asks all nodes for their failing and dead jobs, one walk at a time."""

    def __init__(self, gateway: Gateway, everywhere: Everywhere, queues: QueueTable, alone: OneAtATime) -> None:
        """`alone` is for all that gather many rows."""
        self._gateway = gateway
        self._everywhere = everywhere
        self._queues = queues
        self._alone = alone
        self._watched: dict[tuple[FailedQuery, int], _Watched] = {}

    async def open(self, wanted: FailedQuery, page: int) -> ShownJobs:
        """Find the jobs of a page that is opened, and keep them for `watch`."""
        return await self._look(wanted, page, self._entry(wanted, page), rests=False)

    def watch(self, wanted: FailedQuery, page: int) -> ShownJobs | None:
        """Return what a page that is open shows: what was found last; None = the first walk is under way.

        It waits for no walk, so that a long one does not hold up other pages; one that is due goes on by itself.
        """
        watched = self._entry(wanted, page)
        if watched.asked_at >= watched.due_at and not watched.is_walking:
            ensureDeferred(self._look(wanted, page, watched, rests=True)).addErrback(
                lambda failure: log.failure("Internal error in a walk over failed jobs", failure)
            )
        return watched.shown

    def _entry(self, wanted: FailedQuery, page: int) -> _Watched:
        """Note that a page is asked for, and forget those that no page has asked for lately."""
        now = self._gateway.reactor.seconds()
        self._watched = {
            key: each for key, each in self._watched.items() if each.is_walking or now - each.asked_at <= UNWATCHED_S
        }
        watched = self._watched.setdefault((wanted, page), _Watched(now))
        watched.asked_at = now
        return watched

    async def _look(self, wanted: FailedQuery, page: int, watched: _Watched, *, rests: bool) -> ShownJobs:
        watched.is_walking = True
        clock = self._gateway.reactor
        took = 0.0
        try:
            async with self._alone:
                began = clock.seconds()
                found, _ = await self._find(_Walk(wanted, self._gateway.view.id, keeps_bodies=False, rests=rests))
                took = clock.seconds() - began
            cut = FailedPage.of(found.jobs, page)
            watched.shown = ShownJobs(attrs.evolve(found, jobs=()), cut)
            return watched.shown
        finally:
            watched.is_walking = False
            watched.due_at = clock.seconds() + max(REST_S, REST_TIMES * took * len(self._watched))

    async def find(self, wanted: FailedQuery) -> FoundJobs:
        """Find the jobs that a query means."""
        async with self._alone:
            found, _ = await self._find(_Walk(wanted, self._gateway.view.id, keeps_bodies=False))
        return found

    async def describe(self, wanted: FailedQuery) -> tuple[FoundJobs, list[dict[str, Any]]]:
        """Find the jobs that a query means; returns what SHOW tells of each, too, as the node that knows most does."""
        async with self._alone:
            return await self._find(_Walk(wanted, self._gateway.view.id, keeps_bodies=True))

    async def _find(self, walk: _Walk) -> tuple[FoundJobs, list[dict[str, Any]]]:
        found = await self._walk(walk)
        rows: list[tuple[FailedJob, dict[str, Any]]] = []
        for number, by_node in enumerate(walk.reports.values(), 1):
            job = merged(list(by_node.values()))
            if walk.wanted.lets_through(job):
                rows.append((job, {**by_node[job.node_id].fields, **walk.long.get(job.id, {})}))
            if number % PAGE_ROWS == 0:
                await next_turn(self._gateway.turns)
        rows.sort(key=lambda row: (-row[0].failed_at, row[0].id))
        return attrs.evolve(found, jobs=[job for job, _ in rows]), [fields for _, fields in rows]

    async def _walk(self, walk: _Walk) -> FoundJobs:
        node = self._gateway.view
        at = node.wall()
        try:
            rows, replies = await self._rows(walk.wanted, rests=walk.rests)
            walk.replies.update((reply.node_id, reply) for reply in replies)
            for some in [[row] for row in rows] if len(rows) <= QUEUES_APART else [rows]:
                await self._walk_in(walk, some)
        except CommandError as error:
            return FoundJobs([], [], is_partial=False, at=at, failure=str(error))
        missing = missing_nodes(node, ClusterReply(0.0, list(walk.replies.values())))
        return FoundJobs([], missing, walk.is_partial, at)

    async def _rows(self, wanted: FailedQuery, *, rests: bool) -> tuple[list[QueueRow], Sequence[NodeReply]]:
        """The queues that a query means and that have such jobs, on any node."""
        if wanted.queue and not wanted.is_glob:
            one = await self._queues.one(wanted.queue, 0)
            sources, rows = one.sources, [] if one.total is None else [one.total]
        else:
            every = await self._queues.all_queues(None if rests else 0)
            sources, rows = every.sources, every.rows
        if sources.failure:
            raise CommandError(sources.failure)
        found = [row for row in rows if _count(wanted, row) and wanted.is_in(row.name)]
        return sorted(found, key=lambda row: (-_count(wanted, row), row.name)), sources.missing

    async def _walk_in(self, walk: _Walk, rows: Sequence[QueueRow]) -> None:
        """Walk over the jobs of some queues until all that the nodes count are met."""
        expected = sum(_count(walk.wanted, row) for row in rows)
        queues = {row.name for row in rows}
        words = (b"QUEUE", rows[0].name) if len(rows) == 1 else ()
        is_cut = False
        for states, most in _WALKS[walk.wanted.kind]:
            of_states = chain.from_iterable((b"STATE", state) for state in states)
            asked = (b"JSCAN", *words, *of_states, b"REPLY", b"ALL")
            calls: dict[bytes, int] = {}
            async with aclosing(self._everywhere.pages(*asked, count=AT_ONCE, fresh_s=0, most=most)) as pages:
                async for reply in pages:
                    walk.take(reply, queues)
                    if walk.is_full:
                        walk.is_partial = True
                        return
                    calls[reply.node_id] = calls.get(reply.node_id, 0) + 1
                    is_cut |= calls[reply.node_id] == most and reply.status == OK and reply.value[0] != b"0"
                    await next_turn(self._gateway.turns)
            if walk.met_in(queues) >= expected:
                return
        walk.is_partial |= is_cut


def _count(wanted: FailedQuery, row: QueueRow) -> int:
    """Jobs of a queue that the nodes count, each node for itself."""
    return row.dead if wanted.kind == DEAD else row.failing
