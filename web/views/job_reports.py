"""What all nodes say of a job: SHOW, put to each of them.

    SHOW id on every node --> JobReport: one node's fields --> ClusterJob: the report that counts, and all of them

Nodes agree on what never changes (body, terms), and tell each other what became of the job.  Where the job is each node
knows for itself: the one that has it in its queue, or with a consumer, knows most, and its report counts.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

import attrs

from disqued.core.model.job import RETRY_NEVER_MS
from disqued.core.view import NodeView
from disqued.core.work.requeueing import GIVEN_BACK, WORKER_DIED, WORKER_STOPPED
from disqued.web.views import rendering
from disqued.web.views.cluster_answers import MissingNode, ask_all, missing_nodes
from disqued.web.views.consumer_views import ConsumerRow
from disqued.web.views.everywhere import FRESH_S, ClusterReply, Everywhere, NodeReply

#: Phases, those first whose node knows most of the job.
_KNOWING: Final = ("in-flight", "ready", "dead", "delayed", "done", "wait-repl", "elsewhere")


@attrs.frozen
class JobReport:
    """What one node says of a job."""

    node_id: bytes
    is_here: bool
    fields: dict[str, Any]  #: of SHOW
    worker: bytes | None  #: the live worker that is known to have it

    @property
    def phase(self) -> str:
        return str(bytes(self.fields.get("phase", b"elsewhere")).decode("ascii", "replace"))

    @property
    def short(self) -> str:
        """The node, as pages show it."""
        return self.node_id[:8].decode("ascii", "replace")

    @property
    def consumer(self) -> bytes | None:
        """Worker, name or address of the client that has it; None where nobody has, or that is not known."""
        return self.worker if self.worker is not None else self.fields.get("consumer")

    @property
    def held_ms(self) -> int | None:
        """For how long a consumer of this node has it."""
        return self.fields.get("in-flight-for")

    @property
    def requeue_ms(self) -> int | None:
        """In how many milliseconds it is queued again on this node, unless something happens."""
        return self.fields.get("next-requeue-within")

    @property
    def is_known(self) -> bool:
        """False: the node never had it, and keeps the word that it is acknowledged."""
        return self.fields.get("queue") is not None

    @property
    def queued_in_ms(self) -> int | None:
        """In how many milliseconds this node queues it by itself; None where its time is over before, or no timer runs.

        A node answers the rest of its time in seconds, rounded up.
        """
        within, ttl_s = self.requeue_ms, self.fields.get("ttl")
        if within is None or within > self.fields.get("next-awake-within", within):
            return None
        return None if ttl_s is not None and within >= ttl_s * 1_000 else within

    @property
    def is_once(self) -> bool:
        """Return whether it is delivered at most once."""
        return self.fields.get("retry") == 0

    @property
    def has_failed(self) -> bool:
        """Return whether consumers have given it back, or nobody acknowledged it in time."""
        return bool(self.fields.get("failures") or _deliveries_before(self))


@attrs.frozen
class ClusterJob:
    """What all nodes say of a job."""

    reports: Sequence[JobReport]  #: by the ids of the nodes
    missing: Sequence[MissingNode]
    age_ms: int = 0  #: since they were asked
    #: A node that has not answered and whose consumer has the job, as this node knows, and for how many milliseconds.
    away: tuple[bytes, int] | None = None

    @property
    def best(self) -> JobReport | None:
        """The report of the node that knows most, this one if it knows as much; None = no node knows the job."""
        return min(self.reports, key=_place, default=None)

    @property
    def here(self) -> JobReport | None:
        """What this node says."""
        return next((report for report in self.reports if report.is_here), None)

    @property
    def lost(self) -> list[MissingNode]:
        """Nodes that may hold it, as the others say, and that do not answer."""
        holders = {holder for report in self.reports for holder in report.fields.get("nodes-delivered", ())}
        return [one for one in self.missing if one.id in holders]

    @property
    def accepted(self) -> tuple[int, bytes] | None:
        """When it was acknowledged, and the node that accepted that; None where no node that answers knows."""
        return min(((*one.fields["result-from"],) for one in self.reports if "result-from" in one.fields), default=None)

    @property
    def was_cancelled(self) -> bool:
        """Return whether it ended, or is to end, since it was cancelled."""
        return self.accepted is None and any(one.fields.get("cancelled") for one in self.reports)


def _place(report: JobReport) -> tuple[bool, int, bool]:
    at = _KNOWING.index(report.phase) if report.phase in _KNOWING else len(_KNOWING)
    return (not report.is_known, at, not report.is_here)


async def job_everywhere(everywhere: Everywhere, node: NodeView, job_id: bytes, fresh_s: float = FRESH_S) -> ClusterJob:
    """Ask all nodes what they know of a job."""
    reply = await ask_all(everywhere, node, b"SHOW", job_id, fresh_s=fresh_s)
    reports = list(_reports(node, reply))
    away = _away(node, job_id, {each.node_id for each in reports})
    return ClusterJob(reports, missing_nodes(node, reply), everywhere.age_ms(reply), away)


def _away(node: NodeView, job_id: bytes, answered: Collection[bytes]) -> tuple[bytes, int] | None:
    """Return which other node has handed a job out, and how long ago, where that node does not say so itself.

    Nodes know so of jobs that no timer queues again.
    """
    job = node.job(job_id)
    queue = None if job is None else node.queue(job.queue)
    known = None if queue is None or job is None else queue.elsewhere.get(job)
    return None if known is None or known[1] in answered else (known[1], max(0, node.now() - known[0]))


def _reports(node: NodeView, reply: ClusterReply) -> Iterator[JobReport]:
    for each in reply.answered:
        if each.fields:
            yield JobReport(each.node_id, each.node_id == node.id, each.fields, _worker(node, each))


def _worker(node: NodeView, reply: NodeReply) -> bytes | None:
    """The live worker of a node that has the job, as far as this node or that one knows."""
    consumer = reply.fields.get("consumer")
    if consumer and node.worker(consumer) is not None:
        return bytes(consumer)
    job = node.job(reply.fields["id"])
    if job is None:
        return None
    if reply.node_id == node.id:
        holder = node.holder_of(job)
        return None if holder is None else holder.id
    home = node.home_of(job)
    return home.worker_id if home is not None and home.node_id == reply.node_id else None


@attrs.frozen
class Attempt:
    """A delivery of a job, and what came of it.  Moments are unix milliseconds."""

    outcome: str  #: in flight, done, failed, returned, time over, worker died or worker stopped
    at: int | None  #: when it ended, or of one in flight when it began; None = not known
    node_id: bytes  #: that told of it; empty = not known
    who: bytes  #: worker, name or address of the client; empty = not known
    reason: bytes = b""

    @property
    def node(self) -> str:
        """The node, as pages show it."""
        return self.node_id[:8].decode("ascii", "replace")


@attrs.frozen
class Attempts:
    """The deliveries of a job that nodes know singly, and how many others they have counted."""

    rows: Sequence[Attempt]  #: the newest first
    only_counted: int  #: earlier ones, of which nothing but the number is kept


_OUTCOMES: Final = {GIVEN_BACK: "returned", WORKER_DIED: "worker died", WORKER_STOPPED: "worker stopped"}


def _about(moment: int) -> int:
    """Round a moment that is reckoned from a span: an answer takes some milliseconds, each time others."""
    return round(moment, -2)


def attempts_of(known: ClusterJob, now: int) -> Attempts:
    """Tell the deliveries of a job; `now` is when the nodes were asked, in unix milliseconds."""
    best = known.best
    assert best is not None
    rows = [
        Attempt(
            "in flight", None if one.held_ms is None else _about(now - one.held_ms), one.node_id, one.consumer or b""
        )
        for one in known.reports
        if one.phase == "in-flight"
    ]
    if known.away is not None and best.phase == "elsewhere":
        rows.append(Attempt("in flight", _about(now - known.away[1]), known.away[0], b""))
    if best.phase == "done" and not known.was_cancelled:
        at, node_id = known.accepted or (None, b"")
        rows.append(Attempt("done", at, node_id, b""))
    failures = {(*failure,) for one in known.reports for failure in one.fields.get("failures", ())}
    rows += [
        Attempt(_outcome(who, reason), at, node_id, who, reason)
        for at, node_id, who, reason in sorted(failures, reverse=True)
    ]
    counted = max(map(_deliveries_before, known.reports))
    return Attempts(rows, max(0, counted - len(failures)))


def _outcome(who: bytes, reason: bytes) -> str:
    """What came of a try that failed; nobody says so of one that the node noticed."""
    return _OUTCOMES.get(reason, "failed") if who else "time over"


def _deliveries_before(report: JobReport) -> int:
    """Deliveries that a node has counted before the one that goes on, or comes next."""
    fields = report.fields
    counted = int(fields.get("nacks", 0)) + int(fields.get("additional-deliveries", 0))
    return max(counted, int(fields.get("attempt", 1)) - 1)


@attrs.frozen
class TimelineEntry:
    """Something that happened to a job, or that will."""

    what: str
    at: int | None = None  #: None = no node knows when
    is_ahead: bool = False  #: it is still to come


def timeline_of(known: ClusterJob, attempts: Attempts, now: int) -> list[TimelineEntry]:
    """Tell what happened to a job in the cluster, where it is, and what is to come; `now` as for `attempts_of`."""
    best = known.best
    assert best is not None
    fields = best.fields
    created = fields["ctime"] // 1_000_000
    entries = [TimelineEntry(f"Added to node {fields['id'][2:10].decode('ascii', 'replace')}", created or None)]
    entries += _end_of_delay(known, attempts, created + round(fields["delay"] * 1_000), now) if fields["delay"] else []
    if attempts.only_counted:
        entries.append(TimelineEntry(f"{_counted(attempts.only_counted, 'earlier attempt')}, only counted"))
    entries += [TimelineEntry(_told(one), one.at) for one in reversed(attempts.rows) if one.outcome not in _IN_PLACE]
    if fields.get("generation"):
        entries.append(TimelineEntry(f"Redriven {_times(fields['generation'])}"))
    return [*entries, *_place_of(known, attempts), *_to_come(known, now)]


#: Outcomes of the attempt that goes on, or that was the last: they say where the job is.
_IN_PLACE: Final = ("in flight", "done")


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _end_of_delay(known: ClusterJob, attempts: Attempts, ends_at: int, now: int) -> Iterator[TimelineEntry]:
    phases = {one.phase for one in known.reports}
    was_tried = any(map(_deliveries_before, known.reports))
    begun = was_tried or not phases.isdisjoint(("ready", "in-flight"))
    if begun and (ends_at > now or any(one.at is not None and one.at < ends_at for one in attempts.rows)):
        yield TimelineEntry("Queued before its delay was over")
    elif ends_at <= now:
        yield TimelineEntry("Its delay is over", ends_at)
    elif "done" in phases or "dead" in phases:
        yield TimelineEntry("Ended before its delay was over")
    else:
        yield TimelineEntry("Its delay ends: queued for the first time", ends_at, is_ahead=True)


def _told(attempt: Attempt) -> str:
    """Tell in words how an attempt ended; why is for the table of attempts to say."""
    who = f", {rendering.name(attempt.who, 80)}" if attempt.who else ""
    return f"{attempt.outcome.capitalize()} on node {attempt.node}{who}"


def _place_of(known: ClusterJob, attempts: Attempts) -> Iterator[TimelineEntry]:
    """Tell where a job is, or how it ended."""
    best = known.best
    assert best is not None
    if "groups" in best.fields:
        if best.phase == "ready":
            yield TimelineEntry("In its log")
        return
    for one in known.reports:
        if one.phase == "ready":
            yield TimelineEntry(f"In the queue of node {one.short}")
        elif one.phase == "wait-repl":
            yield TimelineEntry(f"Waits for copies on node {one.short}")
    for attempt in attempts.rows:
        if attempt.outcome == "in flight":
            who = rendering.name(attempt.who, 80) if attempt.who else "a consumer"
            yield TimelineEntry(f"Delivered to {who} by node {attempt.node}", attempt.at)
        elif attempt.outcome == "done":
            yield TimelineEntry("Acknowledged" + (f" on node {attempt.node}" if attempt.node_id else ""), attempt.at)
    if known.was_cancelled:
        yield TimelineEntry("Cancelled")
    elif best.phase == "dead":
        yield TimelineEntry("Dead", max((failure[0] for failure in best.fields.get("failures", ())), default=None))


def _queued(best: JobReport, now: int) -> str:
    """Say what happens to a copy when its timer ends: one whose delay is not over may not have been queued yet."""
    fields = best.fields
    is_delayed = fields.get("delay") and fields["ctime"] // 1_000_000 + fields["delay"] * 1_000 > now
    return "Queued" if is_delayed and not best.has_failed else "Queued again"


def _to_come(known: ClusterJob, now: int) -> Iterator[TimelineEntry]:
    """Tell when a job is queued again by itself, if it is."""
    best = known.best
    assert best is not None
    if best.phase == "elsewhere":
        due = [one.queued_in_ms for one in known.reports if one.queued_in_ms is not None]
        if due and best.fields.get("groups") is None:
            what = _queued(best, now) + (" without news" if known.missing else "")
            yield TimelineEntry(what, _about(now + min(due)), is_ahead=True)
    elif best.phase == "in-flight" and best.worker is not None:
        what = "Ends" if known.was_cancelled else "Queued again"
        yield TimelineEntry(f"{what} once its worker is dead", is_ahead=True)
    elif best.queued_in_ms is None:
        return
    elif best.phase == "in-flight":
        what = "Ends unless acknowledged" if known.was_cancelled else "Queued again unless acknowledged"
        yield TimelineEntry(what, _about(now + best.queued_in_ms), is_ahead=True)
    elif best.phase == "delayed" and best.has_failed:
        yield TimelineEntry("Tried again", _about(now + best.queued_in_ms), is_ahead=True)


@attrs.frozen
class Waiters:
    """Consumers that wait for jobs of a queue."""

    count: int  #: on the nodes that answer
    is_partial: bool  #: some do not answer


@attrs.frozen
class Around:
    """What is known of those who may get a job, or have it; None = not known."""

    waiters: Waiters | None = None  #: for jobs of its queue
    holder: ConsumerRow | None = None


def why_of(known: ClusterJob, around: Around, now: int) -> tuple[str, str]:
    """Say where a job is and why it does not run now, the same on every node: what the sentence is, and the sentence.

    `now` as for `attempts_of`.
    """
    best = known.best
    assert best is not None
    if best.phase == "done":
        return "What became of it", _end_of(known, best)
    if best.phase == "in-flight":
        return "Now", _why_in_flight(known, best, around.holder, now)
    if "groups" in best.fields and best.phase == "ready":
        return "Now", "It is an event: each group of consumers is given it, until its time is over."
    if best.phase == "ready":
        return _NOT_RUNNING, _why_ready(best, around.waiters)
    if best.phase == "delayed":
        when = _when(best.requeue_ms, now)
        if not best.has_failed:
            return _NOT_RUNNING, f"It is delayed{when.replace(' at ', ' until ', 1)}: node {best.short} queues it then."
        if best.queued_in_ms is None:
            return _NOT_RUNNING, f"It failed, and its time to live ends before it is tried again.{_last_failure(best)}"
        return _NOT_RUNNING, f"It failed, and node {best.short} queues it again{when}.{_last_failure(best)}"
    if best.phase == "dead":
        dead = "It is dead: it failed too often, or was buried. It is delivered no more before REDRIVE."
        return _NOT_RUNNING, dead + _last_failure(best)
    if best.phase == "wait-repl":
        have = f"{len(best.fields.get('nodes-confirmed', ())) + 1} of {best.fields['repl']} nodes have one"
        return _NOT_RUNNING, f"It waits for copies on node {best.short}: {have}. Its producer waits, too."
    if known.away is not None:
        return "Now", _why_away(known.away, best)
    return _NOT_RUNNING, _why_elsewhere(known, best, now)


_NOT_RUNNING: Final = "Why it is not running"
_RECOVER: Final = "Should that not be done with it, RQ.RECOVER hands it to another one."


def _when(within_ms: int | None, now: int) -> str:
    if within_ms is None:
        return ""
    return f" at {rendering.moment(_about(now + within_ms))} UTC ({rendering.span(within_ms)} from now)"


def _last_failure(report: JobReport) -> str:
    failures = report.fields.get("failures", ())
    return rendering.last_failure(failures[-1][3]) if failures else ""


def _end_of(known: ClusterJob, best: JobReport) -> str:
    if known.was_cancelled:
        return "It was cancelled, and has ended."
    if not best.is_known:
        return f"It is acknowledged. Node {best.short} never had it, and keeps the word until all nodes know."
    if known.accepted is not None or best.fields.get("keep-result"):
        return "It is acknowledged: done. Its result is kept for its time."
    holders, told = len(best.fields.get("nodes-delivered", ())), len(best.fields.get("nodes-confirmed", ()))
    return f"It is acknowledged: done. It is kept until all nodes that may hold it know; {told} of {holders} do."


def _why_in_flight(known: ClusterJob, best: JobReport, holder: ConsumerRow | None, now: int) -> str:
    had = "" if best.held_ms is None else f", for {rendering.span(best.held_ms)} so far"
    who = "a consumer" if best.consumer is None else rendering.name(best.consumer, 80)
    if holder is not None:
        who += f" ({rendering.name(holder.address, 80)})" if holder.address not in {b"", holder.consumer} else ""
        who += "" if holder.is_connected else ", whose connection has ended,"
    said = f"It is in flight: {who} of node {best.short} has it{had}."
    if known.was_cancelled:
        return f"{said} It is cancelled: it ends with this attempt."
    if best.worker is not None:
        return f"{said} A worker keeps it as long as it lives."
    if best.is_once:
        return f"{said} It was delivered at most once, as asked (retry 0): it is never queued again."
    if best.queued_in_ms is not None:
        return f"{said} Unless acknowledged it is queued again{_when(best.queued_in_ms, now)}."
    if is_manual(best.fields):
        return f"{said} {_RECOVER}"
    return f"{said} It is not queued again: its time to live ends before."


def _why_away(away: tuple[bytes, int], best: JobReport) -> str:
    node_id, held_ms = away
    short = node_id[:8].decode("ascii", "replace")
    said = f"As far as this node knows, a consumer of node {short} has had it for {rendering.span(held_ms)}."
    return f"{said} That node does not say so now.{' ' + _RECOVER if is_manual(best.fields) else ''}"


def _why_ready(best: JobReport, waiters: Waiters | None) -> str:
    place = best.fields.get("place")
    where = "behind more than 500 others" if place is None else f"at about place {place}"
    said = f"It waits in the queue of node {best.short}, {where}"
    if best.fields.get("blocked"):
        return f"{said}, and may not be handed out: {rendering.name(best.fields['blocked'], 400)}."
    if waiters is None:
        return f"{said}."
    if waiters.count:
        return f"{said}; a consumer gets it in turn."
    nodes = "any node that answers" if waiters.is_partial else "any node"
    return f"{said}; no consumer on {nodes} waits for jobs of this queue."


def _why_elsewhere(known: ClusterJob, best: JobReport, now: int) -> str:
    said = "No node that answers has it in its queue or with a consumer."
    if known.lost:
        said += f" It may be on a node that does not answer: {', '.join(one.short for one in known.lost)}."
    elif not known.missing:
        said += (
            " The node that had it began anew without it, a consumer had it before a restart, or DEQUEUE took it out."
        )
    if best.is_once:
        return f"{said} It is delivered at most once, as asked (retry 0), so it is never queued again."
    due = [one.queued_in_ms for one in known.reports if one.queued_in_ms is not None]
    if due:
        return f"{said} Without news it is {_queued(best, now).lower()}{_when(min(due), now)}."
    if any(one.requeue_ms is not None for one in known.reports):
        return f"{said} It is not queued again by itself: its time to live ends before."
    return f"{said} No timer is set: ENQUEUE queues it."


def headers_of(fields: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    """The headers of a job, of its names and values in turn."""
    words = fields.get("headers", [])
    return list(zip(words[::2], words[1::2], strict=True))


def is_manual(fields: dict[str, Any]) -> bool:
    """Return whether the job is handed out again only when somebody asks for it."""
    return int(fields["retry"]) * 1_000 >= RETRY_NEVER_MS
