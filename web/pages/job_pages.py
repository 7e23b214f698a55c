"""Page of a job: everything that this node knows of it, and what can be done with it."""

from functools import partial
from typing import Any, Final

from disqued.core.model.fate import accepted
from disqued.core.model.ids import is_job_id
from disqued.core.model.job import KIND_NAMES, KIND_WORK, RETRY_NEVER_MS, STATE_NAMES, Job, attempt_of
from disqued.web.http.exchange import Request
from disqued.web.pages import actions
from disqued.web.pages.lines import redis_line
from disqued.web.pages.render import MissingProblem, Values, page
from disqued.web.site import Site
from disqued.web.views import group_views, job_views, queue_views, rendering

BODY_BYTES: Final = 65_536  #: of the body
SAID_BYTES: Final = 4_096  #: of a progress, a result or a header
AT_ONCE: Final = 2 << 10  #: bytes of a body that are indented in the turn of the loop: some milliseconds' work


@page("/jobs/<job>", "queues", "Page: a job")
async def job(site: Site, asked: Request) -> tuple[str, Values]:
    """Everything that this node knows of a job."""
    job_id, node = asked.path["job"], site.gateway.view
    found = node.job(job_id)
    if found is None:
        raise _missing(site, job_id)
    is_known = not found.is_dummy
    holders = sorted(found.holders) if found.holders is not None else [node.id]
    body = await _body(site, found.body) if asked.visitor.sees_bodies and is_known else None
    return "job.html", {
        "job": found, "job_id": job_id, "is_known": is_known, "state": STATE_NAMES[found.state].decode(), "body": body,
        "holders": holders, "confirmed": sorted(found.confirmed or ()), "origin": job_id[2:10].decode("latin-1"),
        "kind": KIND_NAMES[found.options.kind].decode(), "worker": job_views.worker_of(node, found),
        "alias": job_views.name_of(found), "groups": group_views.of_event(node, found),
        "why": job_views.why_not_running(node, found), "timeline": job_views.timeline(node, found),
        "ways": actions.on_job(found) if found.options.kind == KIND_WORK else actions.on_event(found.queue, job_id),
        **_fate_of(found),
        "paused": queue_views.pauses_of(node, found.queue) if is_known else [],
        "now": node.wall(), "is_manual": found.options.retry_ms >= RETRY_NEVER_MS}  # fmt: skip


async def _body(site: Site, raw: bytes) -> dict[str, Any]:
    """The body as it is shown; JSON that takes long to indent is done in a thread."""
    show = partial(rendering.body, raw, BODY_BYTES, indents=True)
    shown: dict[str, Any] = await site.in_thread.run(show) if AT_ONCE < len(raw) <= BODY_BYTES else show()
    return shown


def _header(pair: tuple[bytes, bytes]) -> tuple[bytes, bytes, str]:
    """A header, and its value over several lines where it is JSON, else ""."""
    shown = rendering.body(pair[1], SAID_BYTES, indents=True)
    return (*pair, shown["text"] if shown["kind"] == "json" else "")


def _missing(site: Site, job_id: bytes) -> MissingProblem:
    """Say where to look for a job that is not here."""
    shown = rendering.name(job_id, 60)
    if not is_job_id(job_id):
        return MissingProblem(f"there is no job {shown}: ids are 48 bytes, DI…SQ, or 40 of Disque 1.0, D-…", "NOJOB")
    port = site.gateway.config.port
    hints = [("While nodes remember it, each tells how it ended:", redis_line([b"WAITJOB", b"1000", job_id], port))]
    for known in site.gateway.view.known_nodes():
        if known.id[:8] == job_id[2:10] and not known.myself and known.host:
            line = redis_line([b"SHOW", job_id], known.port, known.host)
            hints.append(("Its id says that another node added it, which may have it:", line))
    detail = f"there is no job {shown} on this node: it is done, dropped, held by other nodes alone, or never was"
    return MissingProblem(detail, "NOJOB", hints=hints)


def _fate_of(job: Job) -> Values:
    """The terms of a job, and what became of it."""
    fate = job.options.fate
    result = accepted(fate)
    said = {"progress": fate.progress, "result": result}
    return {
        "terms": job.options.terms, "headers": list(map(_header, job.options.terms.headers)),
        "fate": fate, "failures": fate.failures[::-1], "attempt": attempt_of(job),
        **{name: None if word is None else rendering.body(word.value, SAID_BYTES, indents=True)
           for name, word in said.items()},
    }  # fmt: skip
