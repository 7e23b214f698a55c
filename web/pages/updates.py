"""GET /api/events: what changes on a page, drawn with the templates of the page itself."""

from typing import Any, Final

from disqued.web.http import answers
from disqued.web.http.exchange import STREAM, QueryParameter, Reply, Request, Role, Visitor
from disqued.web.http.problems import Problem
from disqued.web.pages import (
    failed_pages,
    job_pages,
    node_pages,
    overview,
    queue_pages,
    render,
    schedule_pages,
    worker_pages,
)
from disqued.web.routes import route
from disqued.web.site import Site
from disqued.web.turns import next_turn
from disqued.web.views.everywhere import FRESH_S
from disqued.web.views.failed_jobs import DEAD, FAILING, FailedQuery, read_since
from disqued.web.views.live import Subscription
from disqued.web.views.queue_views import SORTS, QueueQuery
from disqued.web.views.schedule_views import ScheduleQuery
from disqued.web.views.worker_views import WorkerQuery

OVERVIEW_REST_S: Final = 8.0  #: from one walk over all queues to the next, for an overview that is open
PAGES: Final = (
    "overview",
    "queues",
    "queue",
    "job",
    "workers",
    "worker",
    "schedules",
    "schedule",
    "node",
    FAILING,
    DEAD,
)


@route(
    "GET", "/api/events", role=Role.VIEWER, summary="What changes on a page, as server-sent events", media=STREAM,
    listed=False,
    query=(
        QueryParameter(
            "page",
            "Which page",
            {"type": "string", "enum": list(PAGES)},
        ),
        QueryParameter("queue", "Which queue; of lists of jobs or a glob", {"type": "string", "format": "bytes"}),
        QueryParameter("job", "Which job", {"type": "string", "format": "bytes"}),
        QueryParameter("worker", "Which worker", {"type": "string", "format": "bytes"}),
        QueryParameter("schedule", "Which schedule", {"type": "string", "format": "bytes"}),
        QueryParameter("node", "Which node", {"type": "string", "format": "bytes"}),
        QueryParameter("q", "Part of the names of queues, workers or schedules, or a glob; part of the last reason"),
        QueryParameter("since", "Failing and dead jobs: those that failed then or later"),
        QueryParameter("sort", "Column of the table of queues"),
        QueryParameter("n", "Page of a table", {"type": "integer", "minimum": 1}),
    ),
)  # fmt: skip
async def events(site: Site, asked: Request) -> Reply:
    """Keep sending until either end has had enough."""
    query, visitor = asked.query, asked.visitor
    sort = query.get("sort", "name")
    if sort not in SORTS:
        raise Problem(400, f"sort={sort[:100]}: allowed are {', '.join(SORTS)}")
    watched = Subscription(query.get("page", "overview"), query.get("queue", b""),
                           QueueQuery(query.get("q", ""), sort, query.get("n", 1)), visitor.sees_bodies, visitor.role,
                           query.get("worker", b""), query.get("schedule", b""), query.get("job", b""),
                           query.get("node", b""), read_since(query.get("since", "")))  # fmt: skip
    answers.begin(asked.request, STREAM)
    await site.live.listen(asked.request, watched, lambda one: draw(site, one),
                           lambda: site.access.still_holds(asked.request, visitor))  # fmt: skip
    return Reply(b"", STREAM)


async def draw(site: Site, watched: Subscription) -> dict[str, Any]:
    """What of a page changes, as it is now."""
    reader = Visitor("", watched.role, watched.sees_bodies, "")
    shared = {"visitor": reader, "may_act": watched.role >= Role.OPERATOR}
    at = site.gateway.view.wall() / 1_000
    point: list[Any] = []
    values: render.Values | None
    gone: dict[str, str] = {}  #: what is said once there is nothing to show
    html: dict[str, str] = {}
    if watched.page == "queues":
        values = await queue_pages.queues_values(site, watched.view)
        html["queue-rows"] = await queue_pages.drawn_rows(site, values)
        parts = {"sources": "_sources.html"}
    elif watched.page == "queue":
        values = await queue_pages.queue_values(site, watched.queue, reader, fresh_s=FRESH_S)
        row, acked = values["own"], site.history.acked_rate(watched.queue)
        point = [at, 0, 0, 0, 0] if row is None else [at, row.length, row.in_rate, row.out_rate, acked]
        parts = {
            "sources": "_sources.html",
            "paused": "_pauses.html",
            "queue-nodes": "_queue_nodes.html",
            "queue-facts": "_queue_facts.html",
            "peeked": "_peeked.html",
            "consumers": "_consumers.html",
            "held": "_held.html",
            "held-more": "_held_more.html",
            "held-missing": "_held_missing.html",
            "slots": "_slots.html",
            "throttles": "_throttles.html",
            "groups": "_groups.html",
        }
    elif watched.page == "job":
        values, gone = await job_pages.job_news(site, watched.job, reader)
        parts = dict(job_pages.PARTS)
    elif watched.page in {FAILING, DEAD}:
        wanted = FailedQuery(watched.page, watched.queue, watched.view.text, watched.since)
        shown = site.failed.watch(wanted, watched.view.page)
        values = None if shown is None else failed_pages.live_values(site, wanted, shown)
        parts = dict(failed_pages.PARTS)
    elif watched.page == "node":
        values = await node_pages.node_values(site, watched.node)
        parts, gone = {"node": "_node.html"}, {"node": "This node no longer knows the node: it was forgotten."}
    elif watched.page == "workers":
        view = WorkerQuery(watched.view.text, watched.view.page)
        values = await worker_pages.workers_values(site, view)
        parts = {"worker-facts": "_worker_facts.html", "worker-rows": "_worker_rows.html"}
    elif watched.page == "worker":
        values = await worker_pages.worker_values(site, watched.worker, reader)
        parts = {"worker": "_worker.html", "tasks": "_tasks.html"}
    elif watched.page == "schedules":
        chosen = ScheduleQuery(watched.view.text, watched.view.page)
        values = schedule_pages.schedules_values(site, chosen, await chosen.cut(site.gateway))
        parts = {"schedule-facts": "_schedule_facts.html", "schedule-rows": "_schedule_rows.html"}
    elif watched.page == "schedule":
        values = schedule_pages.schedule_values(site, watched.schedule, reader)
        parts = {"schedule-now": "_schedule.html", "runs": "_runs.html", "coming": "_coming.html"}
    else:
        values = await overview.overview_values(site, fresh_s=FRESH_S, rest_s=OVERVIEW_REST_S)
        rates = values["rates"]
        point = [at, site.history.backlog, rates["in"], rates["out"], rates["acked"]]
        parts = dict(overview.PARTS)
    if values is None:
        return {"html": gone, "point": []}
    for key, name in parts.items():
        await next_turn(site.gateway.turns)  # which short parts share
        html[key] = render.fragment(name, {**values, **shared})
    return {"html": html, "point": point}
