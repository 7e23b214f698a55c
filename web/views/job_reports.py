"""What all nodes say of a job: SHOW, put to each of them.

    SHOW id on every node --> JobReport: one node's fields --> ClusterJob: the report that counts, and all of them

Nodes agree on what never changes (body, terms), and tell each other what became of the job.  Where the job is each node
knows for itself: the one that has it in its queue, or with a consumer, knows most, and its report counts.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs

from disqued.core.model.job import RETRY_NEVER_MS
from disqued.core.view import NodeView
from disqued.core.work.requeueing import GIVEN_BACK, WORKER_DIED, WORKER_STOPPED
from disqued.web.views import rendering
from disqued.web.views.cluster_answers import MissingNode, ask_all, missing_nodes
from disqued.web.views.everywhere import FRESH_S, ClusterReply, Everywhere, NodeReply

#: Phases, those first whose node knows most of the job.
_KNOWING: Final = ("in-flight", "ready", "dead", "delayed", "done", "wait-repl", "elsewhere")
_PHASES: Final = {
    "wait-repl": "waits for copies", "ready": "in its queue", "in-flight": "with a consumer", "delayed": "delayed",
    "elsewhere": "a copy", "done": "done", "dead": "dead",
}  # fmt: skip


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
    def phase_in_words(self) -> str:
        return _PHASES.get(self.phase, self.phase)

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
    def why(self) -> str:
        """Say in a sentence where the job is, for a reader on another node."""
        again = "" if self.requeue_ms is None else f" It is queued again within {rendering.span(self.requeue_ms)}."
        if self.phase == "in-flight":
            who = "a consumer" if self.consumer is None else rendering.name(self.consumer, 80)
            had = "" if self.held_ms is None else f" for {rendering.span(self.held_ms)}"
            return f"It is in flight: {who} of node {self.short} has it{had}.{again}"
        if self.phase == "ready":
            blocked = self.fields.get("blocked")
            reason = f", and may not be handed out: {rendering.name(blocked, 400)}" if blocked else ""
            return f"It waits in the queue of node {self.short}{reason}."
        if self.phase == "delayed":
            within = "" if self.requeue_ms is None else f" within {rendering.span(self.requeue_ms)}"
            if self.fields.get("failures"):
                return f"It failed, and node {self.short} queues it again{within}.{self._last_failure}"
            return f"It is delayed: node {self.short} queues it{within}."
        if self.phase == "dead":
            why = "it failed too often, or was buried"
            return f"It is dead: {why}. It is delivered no more before REDRIVE.{self._last_failure}"
        if self.phase == "done":
            return "It is acknowledged: done. It is kept until all nodes that may hold it know, or for its result."
        if self.phase == "wait-repl":
            return f"It waits for copies on node {self.short}. Its producer waits, too."
        return f"No node that answers has it in its queue or with a consumer.{again}"

    @property
    def _last_failure(self) -> str:
        failures = self.fields.get("failures", ())
        return rendering.last_failure(failures[-1][3]) if failures else ""


@attrs.frozen
class ClusterJob:
    """What all nodes say of a job."""

    reports: Sequence[JobReport]  #: by the ids of the nodes
    missing: Sequence[MissingNode]

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


def _place(report: JobReport) -> tuple[bool, int, bool]:
    at = _KNOWING.index(report.phase) if report.phase in _KNOWING else len(_KNOWING)
    return (not report.is_known, at, not report.is_here)


async def job_everywhere(everywhere: Everywhere, node: NodeView, job_id: bytes, fresh_s: float = FRESH_S) -> ClusterJob:
    """Ask all nodes what they know of a job."""
    reply = await ask_all(everywhere, node, b"SHOW", job_id, fresh_s=fresh_s)
    return ClusterJob(list(_reports(node, reply)), missing_nodes(node, reply))


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


def attempts_of(known: ClusterJob, now: int) -> Attempts:
    """Tell the deliveries of a job; `now` is unix milliseconds."""
    best = known.best
    assert best is not None
    rows = [
        Attempt("in flight", None if one.held_ms is None else now - one.held_ms, one.node_id, one.consumer or b"")
        for one in known.reports
        if one.phase == "in-flight"
    ]
    if best.phase == "done" and not best.fields.get("cancelled"):
        rows.append(Attempt("done", None, b"", b""))
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


def headers_of(fields: dict[str, Any]) -> list[tuple[bytes, bytes]]:
    """The headers of a job, of its names and values in turn."""
    words = fields.get("headers", [])
    return list(zip(words[::2], words[1::2], strict=True))


def is_manual(fields: dict[str, Any]) -> bool:
    """Return whether the job is handed out again only when somebody asks for it."""
    return int(fields["retry"]) * 1_000 >= RETRY_NEVER_MS
