"""What the pages show of jobs: what happened to one on this node, why it does not run now, and which there are.

A node keeps no diary of a job.  The moments are worked out from what it must know anyway: when it was added, its
delay, its timer, its flags and counters.  So the newest delivery is known, and of those before how many there were.

Moments are unix milliseconds, spans milliseconds.
"""

from itertools import chain, islice
from typing import Final

import attrs

from disqued.core.model.fate import accepted
from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    DEAD,
    FLAG_CAME_BACK,
    FLAG_DELIVERED,
    FLAG_LEASED,
    FLAG_PUT_OFF,
    FLAG_QUEUED_BEFORE,
    FLAG_WITH_CONSUMER,
    KEYED,
    KIND_LOG,
    QUEUED,
    RETRY_NEVER_MS,
    UNIQUE,
    WAIT_REPL,
    Job,
    NamedJob,
)
from disqued.core.model.phases import PHASES_OF_WORD, READY
from disqued.core.model.queues import PAUSE_OUT, Queue
from disqued.core.model.registry import TABLES
from disqued.core.model.waiters import Consumer
from disqued.core.view import NodeView
from disqued.core.work.queueing import requeue_within
from disqued.web.gateway import BODY_SEARCHED, SLICE_BYTES, SLICE_ROWS, Gateway
from disqued.web.turns import next_turn
from disqued.web.views import rendering

ROWS_MAX: Final = 100  #: jobs on a page
LOOKED_AT_MAX: Final = 20_000  #: jobs that one request looks at
PLACE_MAX: Final = 500  #: places in a queue that are counted


@attrs.frozen
class TimelineEntry:
    """Something that happened to a job, or that will."""

    what: str
    at: int | None  #: None = the node does not know when
    is_ahead: bool = False  #: it is still to come


def timeline(node: NodeView, job: Job) -> list[TimelineEntry]:
    """What happened to a job here, and what is to come; in order."""
    now, wall, options = node.now(), node.wall(), job.options
    created = job.ctime // 1_000_000
    moments = [TimelineEntry("Added", created)]
    if options.delay_ms:
        # A copy is marked as queued from the beginning, as the node that delays the job may have queued it.
        was_here = job.state == QUEUED or job.flags & (FLAG_LEASED | FLAG_DELIVERED)
        ends_at = created + options.delay_ms
        if ends_at > wall and (was_here or job.state == ACKED):
            moments.append(TimelineEntry("Queued for the first time, before its delay was over", None))
        else:
            moments.append(TimelineEntry("Delay ends: queued for the first time", ends_at, is_ahead=ends_at > wall))
    moments += _deliveries(node, job)
    if job.state == ACKED:
        moments.append(TimelineEntry("Acknowledged", None))
    elif _is_to_come_back(job) and (job.flags & FLAG_QUEUED_BEFORE or not options.delay_ms):
        what = "Queued again unless acknowledged"
        if not job.flags & FLAG_WITH_CONSUMER:
            what += " or in the queue of another node"
        moments.append(TimelineEntry(what, wall + requeue_within(job, now), is_ahead=True))
    moments.append(TimelineEntry("Time to live ends: dropped", wall + job.expires_at - now, is_ahead=True))
    return moments


def _is_to_come_back(job: Job) -> bool:
    """Tell whether its timer is to queue a job again: while it is queued already, or past its life, it does not."""
    return job.state == ACTIVE and job.options.retry_ms > 0 and 0 < job.requeue_at < job.expires_at


def _deliveries(node: NodeView, job: Job) -> list[TimelineEntry]:
    now, wall = node.now(), node.wall()
    moments: list[TimelineEntry] = []
    if job.redeliveries:
        moments.append(TimelineEntry(f"Queued again {_times(job.redeliveries)} without an acknowledgement", None))
    if job.nacks:
        moments.append(TimelineEntry(f"Given back by a consumer (NACK) {_times(job.nacks)}", None))
    # The timer begins with a queueing.
    retry_ms = job.options.retry_ms
    began = None
    if retry_ms and job.requeue_at:
        # The two clocks are read one after the other: nothing may seem to come before the job.
        began = max(job.ctime // 1_000_000, wall + job.requeue_at - now - retry_ms)
    if job.flags & FLAG_LEASED and job.state == ACTIVE:
        queue = node.queue(job.queue)
        since = None if queue is None else queue.held_since(job)
        delivered = None if since is None else max(job.ctime // 1_000_000, wall + since - now)
        moments.append(TimelineEntry("Delivered to a consumer by this node", delivered))
    elif job.state == QUEUED:
        # A store keeps how long a timer runs at most, not when it began.
        moments.append(TimelineEntry("In the queue of this node", None if job.flags & FLAG_CAME_BACK else began))
    elif (away := _elsewhere(node, job)) is not None:
        where = away[1][:8].decode("ascii", "replace")
        moments.append(TimelineEntry(f"Delivered to a consumer by node {where}", wall + away[0] - now))
    elif job.flags & FLAG_DELIVERED:
        moments.append(TimelineEntry("Delivered to a consumer by this node", None))
    return moments


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def why_not_running(node: NodeView, job: Job) -> str:
    """Say in a sentence why no consumer works on a job just now, or that one does."""
    if job.state == WAIT_REPL:
        have = len(job.confirmed or ()) + 1
        return f"It waits for copies: {have} of {job.options.replicate} nodes have one. Its producer waits, too."
    if job.state == ACKED:
        return _why_acked(job)
    if job.state == DEAD:
        return _why_dead(job)
    if job.options.kind == KIND_LOG and job.state == QUEUED:
        return "It is an event: each group of consumers is given it, until its time is over."
    return _why_queued(node, job) if job.state == QUEUED else _why_active(node, job)


def _why_acked(job: Job) -> str:
    holders, known = len(job.holders or ()), len(job.confirmed or ())
    fate = job.options.fate
    if fate.is_cancelled and accepted(fate) is None:
        return "It was cancelled, and has ended."
    if job.requeue_at:
        return "It is acknowledged: done. Its result is kept for its time."
    if not holders:
        return "It is acknowledged; this node never had it, and keeps the word until all nodes know."
    return f"It is acknowledged: done. It is kept until all nodes that may hold it know; {known} of {holders} do."


def _why_dead(job: Job) -> str:
    why = "it failed too often, or was buried"
    return f"It is dead: {why}. It is delivered no more before REDRIVE.{_last_failure(job)}"


def _last_failure(job: Job) -> str:
    failures = job.options.fate.failures
    return rendering.last_failure(failures[-1].reason) if failures else ""


def _why_queued(node: NodeView, job: Job) -> str:
    queue = node.queue(job.queue)
    if queue is None:
        return "It waits in a queue that is just being removed."
    place = next((at for at, unit in enumerate(islice(queue.units, PLACE_MAX), 1) if unit is job), 0)
    where = f"at about place {place}" if place else f"behind more than {PLACE_MAX} others"
    if queue.pause & PAUSE_OUT:
        return f"It waits {where}, and the queue is paused: it hands out no jobs."
    throttled = _throttled(queue, job, node.wall())
    if throttled:
        return f"It waits {where}, and {throttled}."
    blocked = node.limits.hindrance(queue, job)
    if blocked:
        return f"It waits {where}, and may not be handed out: {rendering.name(blocked, 400)}."
    if not queue.waiters:
        return f"It waits in the queue {where}; no consumer is waiting for jobs of this queue here."
    return f"It waits in the queue {where}; a consumer gets it in turn."


def _throttled(queue: Queue, job: Job, wall: int) -> str:
    """Say for how long its queue or its group is throttled; empty = neither is."""
    gate, group = queue.gate, job.options.terms.group
    if gate is None:
        return ""
    if gate.until:
        return f"the queue is throttled for {rendering.span(max(0, gate.until - wall))}"
    until = gate.groups.get(group, 0)
    if not until:
        return ""
    return f"its group {rendering.name(group, 80)} is throttled for {rendering.span(max(0, until - wall))}"


def _why_active(node: NodeView, job: Job) -> str:
    now, wall = node.now(), node.wall()
    until = rendering.moment(wall + max(0, job.requeue_at - now)) + " UTC"
    left = rendering.span(max(0, job.requeue_at - now))
    if job.options.delay_ms and not job.flags & FLAG_QUEUED_BEFORE and not job.flags & FLAG_DELIVERED:
        return f"It is delayed until {until} ({left} from now)."
    if not job.options.retry_ms:
        return _why_once(job)
    if job.flags & FLAG_PUT_OFF:
        return f"It failed, and is tried again at {until} ({left} from now).{_last_failure(job)}"
    holder = worker_of(node, job)
    if holder is not None:
        worker_id, home = holder
        where = "" if home == node.id else f" on node {home[:8].decode('ascii', 'replace')}"
        return (
            f"It is in flight: worker {rendering.name(worker_id, 60)}{where} has it, and keeps it as long as it lives."
        )
    away = _elsewhere(node, job)
    if away is not None:
        since, node_id = away
        where = node_id[:8].decode("ascii", "replace")
        had = rendering.span(max(0, now - since))
        return f"It is in flight: a consumer of node {where} has had it for {had}. {_RECOVER}"
    if job.flags & FLAG_LEASED:
        if not _is_to_come_back(job):
            is_manual = job.options.retry_ms >= RETRY_NEVER_MS
            never = _RECOVER if is_manual else "It is not queued again: its time to live ends before."
            return f"It is in flight: {_who(node, job)} has it. {never}"
        return f"It is in flight: {_who(node, job)} has it until {until} ({left} from now), then it is queued again."
    gone = "It is not in the queue of this node: it was taken out, or another node has it."
    if _is_to_come_back(job):
        return f"{gone} Without news it is queued here at {until} ({left} from now)."
    if job.requeue_at:
        return f"{gone} It is not queued here by itself: its time to live ends before."
    return "It is not in the queue of this node, and no timer is set: ENQUEUE queues it."


def consumer_of(node: NodeView, job: Job) -> Consumer | None:
    """The client that has a job from this node; None where none has it, or it is not known, as after a restart."""
    lease = node.phases.lease_of(job)
    return None if lease is None else lease[1]


def name_of_consumer(consumer: Consumer) -> str:
    """The name of a client and its address, as far as it has them."""
    address = rendering.name(consumer.address, 80) if consumer.address else "no address"
    return f"{rendering.name(consumer.name, 60)} ({address})" if consumer.name else address


def _who(node: NodeView, job: Job) -> str:
    """Who has a job that no worker has, in a sentence."""
    consumer = consumer_of(node, job)
    if consumer is None or not consumer.word:
        return "a consumer"
    gone = ", whose connection has ended," if consumer.is_gone else ""
    return f"the client {name_of_consumer(consumer)}{gone}"


_RECOVER: Final = "Should that not be done with it, RQ.RECOVER hands it to another one."


def _elsewhere(node: NodeView, job: Job) -> tuple[int, bytes] | None:
    """Since when a consumer of another node has a job, and of which; None when none is known to."""
    queue = node.queue(job.queue)
    return None if queue is None else queue.elsewhere.get(job)


def worker_of(node: NodeView, job: Job) -> tuple[bytes, bytes] | None:
    """The worker that has a job, and the id of the node that it lives on; None when none is known to have it."""
    worker = node.holder_of(job)
    if worker is not None:
        return worker.id, node.id
    home = node.home_of(job)
    return None if home is None else (home.worker_id, home.node_id)


KEY_IN_WORDS: Final = "key that its producer gave it"
#: First byte of an alias: whose name it is, for people.
_FAMILIES: Final = {
    b"u": "unique task", b"r": "element of a list", b"e": "event of a producer", KEYED: KEY_IN_WORDS,
}  # fmt: skip


def name_of(job: Job) -> tuple[str, bytes] | None:
    """The name that a job has in its queue, and whose it is; empty where its body is the name.  None = it has none."""
    if not isinstance(job, NamedJob):
        return None
    family = job.alias[:1]
    return _FAMILIES.get(family, "name"), b"" if family == UNIQUE else job.alias[1:]


def _why_once(job: Job) -> str:
    """Of a job that is delivered at most once, and that neither waits in a queue nor for the end of its delay."""
    if job.flags & FLAG_DELIVERED:
        return "It was delivered, at most once as asked (retry 0): it is never queued again."
    never = ", so it is never queued again" if job.flags & FLAG_QUEUED_BEFORE else ""
    return (
        "It is not in the queue of this node: it was taken out, another node has it, or a consumer had it before a "
        f"restart. It is delivered at most once, as asked (retry 0){never}."
    )


# Jobs of a queue.


@attrs.frozen
class JobSearch:
    """Which jobs of a queue somebody looks for."""

    queue: bytes
    state: str = "ready"  #: a word that STATE of JSCAN takes, or any
    text: bytes = b""  #: part of the body
    older_ms: int = 0  #: added at least so long ago
    #: Where to go on: a place in the queue, or a table of jobs and, times TABLES, a place in it.
    cursor: int = 0

    @property
    def is_in_queue(self) -> bool:
        """True when jobs are meant that wait in the queue alone."""
        return self.state != "any" and PHASES_OF_WORD[self.state.encode()] == 1 << READY

    def lets_through(self, job: Job, node: NodeView) -> bool:
        """Tell whether a job is one of those, its body aside."""
        return (
            job.queue == self.queue
            and not job.is_dummy
            and (self.state == "any" or PHASES_OF_WORD[self.state.encode()] >> node.phases.of(job) & 1 != 0)
            and node.wall() - job.ctime // 1_000_000 >= self.older_ms
            and not (self.text and job.state == ACKED)
        )

    def is_in(self, body: bytes) -> bool:
        return not self.text or body.find(self.text, 0, BODY_SEARCHED) >= 0


@attrs.frozen
class SearchResult:
    """What a search has found so far."""

    jobs: list[Job]
    looked_at: int
    cursor: int  #: where to go on; 0 = there is no more


async def search(gateway: Gateway, wanted: JobSearch) -> SearchResult:
    """Look for jobs, SLICE_ROWS in a turn of the loop, and at LOOKED_AT_MAX altogether."""
    return await (_in_queue if wanted.is_in_queue else _in_registry)(gateway, wanted)


async def _in_queue(gateway: Gateway, wanted: JobSearch) -> SearchResult:
    """Look through a queue from its front; what moves meanwhile may be met twice or not at all."""
    found: dict[bytes, Job] = {}
    at = wanted.cursor
    while at - wanted.cursor < LOOKED_AT_MAX and len(found) < ROWS_MAX:
        queue = gateway.view.queue(wanted.queue)
        units = [] if queue is None else list(islice(chain(queue.units, queue.stream or ()), at, at + SLICE_ROWS))
        passed = _pick([unit.job for unit in units], wanted, gateway.view, found)
        at += passed
        if passed == len(units) < SLICE_ROWS:
            return SearchResult(list(found.values()), at - wanted.cursor, 0)
        await next_turn(gateway.turns)
    return SearchResult(list(found.values()), at - wanted.cursor, at)


async def _in_registry(gateway: Gateway, wanted: JobSearch) -> SearchResult:
    """Look through all jobs, table by table; what comes or goes meanwhile may be met twice or not at all."""
    found: dict[bytes, Job] = {}
    looked_at = since = 0
    place, number = divmod(wanted.cursor, TABLES)
    while number < TABLES and looked_at < LOOKED_AT_MAX and len(found) < ROWS_MAX:
        jobs = gateway.view.jobs_of_table(number, place, SLICE_ROWS)
        passed = _pick(jobs, wanted, gateway.view, found)
        looked_at += passed
        since += passed + 1
        place += passed
        is_through = passed == len(jobs) < SLICE_ROWS
        if is_through:
            place, number = 0, number + 1
        if wanted.text or since >= SLICE_ROWS or not is_through:
            since = 0
            await next_turn(gateway.turns)
    return SearchResult(list(found.values()), looked_at, place * TABLES + number if number < TABLES else 0)


def _pick(jobs: list[Job], wanted: JobSearch, node: NodeView, found: dict[bytes, Job]) -> int:
    """Add the jobs that are looked for to those found, as far as one turn may look; returns how many were looked at."""
    searched = 0
    for passed, job in enumerate(jobs, 1):
        if wanted.lets_through(job, node):
            searched += min(len(job.body), BODY_SEARCHED) if wanted.text else 0
            if wanted.is_in(job.body):
                found[job.id] = job
        if len(found) == ROWS_MAX or searched >= SLICE_BYTES:
            return passed
    return len(jobs)
