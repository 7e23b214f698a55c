"""Page of a job: what all nodes know of it, and what can be done with it."""

from functools import partial
from typing import Any, Final

from disqued.commands.jobs import SHOWN_TOO
from disqued.core.model.fate import FAILURES_KEPT
from disqued.core.model.ids import is_job_id
from disqued.core.model.job import KIND_WORK
from disqued.errors import CommandError
from disqued.web.http.exchange import Request, Visitor
from disqued.web.http.problems import Problem
from disqued.web.pages import actions
from disqued.web.pages.lines import redis_line
from disqued.web.pages.render import MissingProblem, Values, page
from disqued.web.site import Site
from disqued.web.views import group_views, job_reports, job_views, queue_views, rendering
from disqued.web.views.consumer_views import consumers_of
from disqued.web.views.everywhere import FRESH_S
from disqued.web.views.job_reports import Around, Attempts, ClusterJob, JobReport, Waiters

BODY_BYTES: Final = 65_536  #: of the body
SAID_BYTES: Final = 4_096  #: of a progress, a result or a header
_ABSENT: Final = dict.fromkeys(SHOWN_TOO)  #: what SHOW says of some jobs alone
#: What changes by itself: ids of elements, and their templates.
PARTS: Final = {
    "job-state": "_job_state.html", "paused": "_pauses.html", "why": "_job_why.html", "job-nodes": "_job_nodes.html",
    "job-facts": "_job_facts.html", "job-timeline": "_job_timeline.html", "job-attempts": "_job_attempts.html",
    "job-said": "_job_said.html", "job-groups": "_job_groups.html",
}  # fmt: skip
#: What does something to a job on a node that has it alone, by where the job is there.
_LOCAL: Final = {"ready": b"DEQUEUE", "in-flight": b"NACK"}
REMEMBERED_MS: Final = 1_000  #: how long nodes are asked how a job ended
AT_ONCE: Final = 2 << 10  #: bytes of a body that are indented in the turn of the loop: some milliseconds' work


@page("/jobs/<job>", "queues", "Page: a job")
async def job(site: Site, asked: Request) -> tuple[str, Values]:
    """Everything that the nodes of the cluster know of a job."""
    job_id = asked.path["job"]
    if not is_job_id(job_id):
        shown = rendering.name(job_id, 60)
        raise MissingProblem(f"there is no job {shown}: ids are 48 bytes, DI…SQ, or 40 of Disque 1.0, D-…", "NOJOB")
    known = await job_reports.job_everywhere(site.everywhere, site.gateway.view, job_id, fresh_s=0)
    best = known.best
    if best is None:
        raise _missing(site, job_id, known, await _end(site, job_id, asked.visitor))
    raw = best.fields["body"]
    body = await _body(site, raw) if asked.visitor.sees_bodies and best.is_known and raw is not None else None
    ways, others = _ways(site, job_id, known)
    values = _values(site, job_id, known, await _around(site, best, fresh_s=0), asked.visitor)
    return "job.html", {**values, "body": body, "ways": ways, "others": others}


async def job_news(site: Site, job_id: bytes, visitor: Visitor) -> tuple[Values | None, dict[str, str]]:
    """What changes by itself on the page of a job; while no node that answers knows it, None and what is said then."""
    if not is_job_id(job_id):
        return None, {}
    known = await job_reports.job_everywhere(site.everywhere, site.gateway.view, job_id)
    if known.best is None:
        return None, _gone(known)
    return _values(site, job_id, known, await _around(site, known.best, fresh_s=FRESH_S), visitor), {}


def _gone(known: ClusterJob) -> dict[str, str]:
    """Parts of the page of a job that no node knows any more; one that does not answer may have it."""
    state, end, why = "ended", "Ended", "No node knows this job any more: it has ended."
    if known.missing:
        state, end = "not found", "On no node that answers"
        why = "No node that answers knows this job any more. It has ended, or a node that does not answer has it: "
        why += ", ".join(one.short for one in known.missing) + "."
    return {
        "job-state": f'<span class="badge mute">{state}</span>', "paused": "", "why": why, "job-acts": "",
        "job-nodes": '<tr><td colspan="7" class="none">No node that answers has the job.</td></tr>',
        "job-timeline": f'<li><span class="what">{end}</span></li>',
    }  # fmt: skip


async def _around(site: Site, best: JobReport, fresh_s: float) -> Around:
    """Ask all nodes who waits for the queue of a job that is in it, or who the client is that has it."""
    queue = best.fields["queue"]
    if best.phase == "ready" and not best.fields.get("blocked") and "groups" not in best.fields:
        on_nodes = await site.queues.one(queue, fresh_s)
        if not on_nodes.sources.failure:
            blocked = 0 if on_nodes.total is None else on_nodes.total.blocked
            return Around(Waiters(blocked, bool(on_nodes.sources.missing)))
    elif best.phase == "in-flight" and best.consumer is not None and best.worker is None:
        found = await consumers_of(site.everywhere, site.gateway.view, queue, fresh_s)
        alike = [one for one in found.rows if (one.node_id, one.consumer) == (best.node_id, best.consumer) and one.jobs]
        return Around(holder=alike[0] if len(alike) == 1 else None)
    return Around()


def _values(site: Site, job_id: bytes, known: ClusterJob, around: Around, visitor: Visitor) -> Values:
    node, best = site.gateway.view, known.best
    assert best is not None
    here, told_at = node.job(job_id), node.wall() - known.age_ms
    fields = best.fields
    said = {name: None if fields.get(name) is None else rendering.body(fields[name], SAID_BYTES, indents=True)
            for name in ("progress", "result")}  # fmt: skip
    is_event = "groups" in fields
    attempts = Attempts([], 0) if is_event else job_reports.attempts_of(known, told_at)
    return {
        "job_id": job_id, "job": {**_ABSENT, **fields}, "best": best, "known": known, "missing": known.missing,
        "state": fields["state"].decode(), "why": job_reports.why_of(known, around, told_at),
        "paused": [] if fields["queue"] is None else queue_views.pauses_of(node, fields["queue"]),
        "queue": fields["queue"], "kind": "log" if is_event else "work",
        "is_manual": job_reports.is_manual(fields), "headers": list(map(_header, job_reports.headers_of(fields))),
        "attempts": None if is_event else attempts, **said,
        "alias": _alias(here, fields), "groups": _groups(site, best),
        "timeline": job_reports.timeline_of(known, attempts, told_at),
        "now": node.wall(), "visitor": visitor, "failures_kept": FAILURES_KEPT,
    }  # fmt: skip


def _alias(here: Any, fields: dict[str, Any]) -> tuple[str, bytes] | None:
    """Whose name the job has, and the name; None = it has none, as far as is known."""
    if here is not None:
        return job_views.name_of(here)
    return (job_views.KEY_IN_WORDS, fields["key"]) if "key" in fields else None


def _groups(site: Site, best: JobReport) -> list[Values]:
    """What each group made of an event, on the node whose report counts."""
    node = site.gateway.view
    here = node.job(best.fields["id"]) if best.is_here else None
    if here is not None:
        return group_views.of_event(node, here)
    return [{"group": group, "state": state.decode(), "left_ms": left_ms or None, "deliveries": deliveries}
            for group, state, deliveries, left_ms in best.fields.get("groups", [])]  # fmt: skip


def _ways(site: Site, job_id: bytes, known: ClusterJob) -> tuple[list[Any], list[tuple[JobReport, str]]]:
    """What can be done here, and lines that do elsewhere what only a node that has the job can do."""
    here, best = site.gateway.view.job(job_id), known.best
    assert best is not None
    if best.fields.get("groups") is not None:
        return (actions.on_event(best.fields["queue"], job_id), [])
    if here is not None and here.options.kind == KIND_WORK and not here.is_dummy:
        return actions.on_job(here, best), []
    lines = []
    for each in site.gateway.view.known_nodes():
        report = next((one for one in known.reports if one.node_id == each.id and one.is_known), None)
        if report is not None and report.phase in _LOCAL and each.host and not each.myself:
            lines.append((report, redis_line([_LOCAL[report.phase], job_id], each.port, each.host)))
    return actions.on_job_elsewhere(job_id, best), lines


async def _body(site: Site, raw: bytes) -> dict[str, Any]:
    """The body as it is shown; JSON that takes long to indent is done in a thread."""
    show = partial(rendering.body, raw, BODY_BYTES, indents=True)
    shown: dict[str, Any] = await site.in_thread.run(show) if AT_ONCE < len(raw) <= BODY_BYTES else show()
    return shown


def _header(pair: tuple[bytes, bytes]) -> tuple[bytes, bytes, str]:
    """A header, and its value over several lines where it is JSON, else ""."""
    shown = rendering.body(pair[1], SAID_BYTES, indents=True)
    return (*pair, shown["text"] if shown["kind"] == "json" else "")


async def _end(site: Site, job_id: bytes, visitor: Visitor) -> tuple[str, str]:
    """Tell how a job ended that no node has any more, as far as nodes remember that: state and reason of WAITJOB."""
    try:
        ((_, state, _, _, reason),) = await site.call(visitor, "WAITJOB", REMEMBERED_MS, job_id)
    except (CommandError, Problem):  # this node cannot ask now, or WAITJOB was renamed
        return "", ""
    return bytes(state).decode("ascii"), rendering.name(bytes(reason), SAID_BYTES) if reason else ""


#: How a job ended, by the state of WAITJOB, or by its reason where nodes only know that it has ended.
_ENDS: Final = {
    "acked": "it was acknowledged", "cancelled": "it was cancelled", "expired": "its time to live was over",
    "its result was not kept": "it was acknowledged, or dropped for want of memory; no result was kept",
}  # fmt: skip
_HAS_ENDED: Final = "it has ended"  #: begins the reason of a job whose state is not known


def _missing(site: Site, job_id: bytes, known: ClusterJob, end: tuple[str, str]) -> Problem:
    """Say how a job ended that no node that answers knows, and where to look for it."""
    node, shown = site.gateway.view, rendering.name(job_id, 60)
    if any(one.id == node.id for one in known.missing):
        return Problem(503, f"this node cannot ask for the job now: {known.missing[0].why}", code="TRYAGAIN")
    state, reason = end
    how = _ENDS.get(state, "")
    if reason.startswith(_HAS_ENDED):
        how = reason.removeprefix(_HAS_ENDED).removeprefix(":").removeprefix(", and").strip()
        how = _ENDS.get(how, how)
    if how:
        return MissingProblem(f"job {shown} has ended: {how}", "NOJOB", heading="The job has ended")
    hints = []
    unheard = {one.id for one in known.missing}
    for each in node.known_nodes():
        if each.id[:8] == job_id[2:10] and each.id in unheard and each.host:
            line = redis_line([b"SHOW", job_id], each.port, each.host)
            hints.append(("Its id says that this node added it, which does not answer and may have it:", line))
    hints += [(f"{one.sentence} It may have the job.", "") for one in known.missing]
    if known.missing:
        detail = f"no node that answers has job {shown}: it has ended, or a node that does not answer has it"
    elif state == "unknown" and reason.endswith("any more"):
        detail = f"job {shown} is on no node any more, and none remembers how it ended"
    else:
        detail = f"there is no job {shown} on any node: "
        detail += "it was acknowledged or dropped, was lost with the only node that had it, or never was"
    return MissingProblem(detail, "NOJOB", hints=hints)
