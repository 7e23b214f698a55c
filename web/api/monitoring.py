"""Routes that programs watch the node by: metrics for Prometheus, and the history that charts are drawn from."""

from typing import Final

from disqued.web.api.reads import queue_of, queue_route
from disqued.web.http.exchange import QueryParameter, Reply, Request, Role
from disqued.web.http.problems import Problem
from disqued.web.routes import route
from disqued.web.site import Site
from disqued.web.turns import next_turn
from disqued.web.views.history import Series
from disqued.web.views.metrics import QUEUES_MAX, QUEUES_SHOWN

NUMBERS: Final = 1_000  #: written in one turn of the loop, half a millisecond's work
_WHOLE: Final = 2  #: the first columns of a history are whole numbers


@route("GET", "/metrics", role=Role.VIEWER, summary="Metrics of this node, for Prometheus", reply={"type": "string"},
       media="text/plain", tag="metrics")  # fmt: skip
async def metrics(site: Site, asked: Request) -> Reply:
    """Text, or OpenMetrics where the header Accept asks for it; all queues of the node together."""
    body, media = await site.metrics.of_node(asked.headers.get("accept", ""))
    return Reply(body, media)


@route(
    "GET", "/metrics/per-queue", role=Role.VIEWER, summary="Metrics of each queue, for Prometheus",
    query=(
        QueryParameter(
            "limit", f"Queues to tell of at most ({QUEUES_SHOWN}); how many more there are is a metric.",
            {"type": "integer", "minimum": 1, "maximum": QUEUES_MAX},
        ),
        QueryParameter("match", "Glob pattern of names, as `mail-*`.", {"type": "string", "format": "bytes"}),
    ),
    reply={"type": "string"}, media="text/plain", tag="metrics", at="/metrics/per-queue?match=mail*&limit=100",
)  # fmt: skip
async def per_queue(site: Site, asked: Request) -> Reply:
    """Queues in the order in which they came into being; names that are no UTF-8 have backslashes in them."""
    limit, match = asked.query.get("limit", QUEUES_SHOWN), asked.query.get("match")
    async with site.large_walk:
        body, media = await site.metrics.of_queues(asked.headers.get("accept", ""), limit=limit, match=match)
    return Reply(body, media)


_SPAN = QueryParameter(
    "span", "hour: a point each second; week: a point each minute.", {"type": "string", "enum": ["hour", "week"]}
)
_COLUMNS: Final = {
    "type": "array",
    "description": "Six arrays of the same length: unix seconds, jobs waiting (of a queue also events that are kept), "
    "jobs queued a second, jobs handed out a second, jobs acknowledged a second, age of the oldest in seconds.",
    "items": {"type": "array", "items": {"type": "number"}},
    "minItems": 6,
    "maxItems": 6,
}


@route("GET", "/api/history/node", role=Role.VIEWER, summary="What the node was like, over time", query=(_SPAN,),
       reply=_COLUMNS, tag="history", at="/api/history/node?span=hour")  # fmt: skip
async def node_history(site: Site, asked: Request) -> Reply:
    """Columns for a chart, all queues of the node together."""
    return await _written(site, site.history.node(asked.query.get("span", "hour")))


@queue_route("/api/history/queue", role=Role.VIEWER, summary="What a queue was like, over time", query=(_SPAN,),
             reply=_COLUMNS, tag="history", at="?span=week")  # fmt: skip
async def queue_history(site: Site, asked: Request) -> Reply:
    """Columns for a chart; empty ones for a queue in which nothing happened since the daemon started."""
    name = queue_of(asked)
    series = site.history.queue(name, asked.query.get("span", "hour"))
    if series is None and site.gateway.view.queue(name) is None:
        raise Problem(404, "there is no such queue on this node, and nothing is remembered of one")
    return await _written(site, series or Series(1, [], [], [], [], [], []))


async def _written(site: Site, series: Series) -> Reply:
    """The columns as JSON, some numbers in each turn of the loop."""
    columns: list[bytes] = []
    for number, column in enumerate(series.columns):
        texts: list[str] = []
        for at in range(0, len(column), NUMBERS):
            part = column[at : at + NUMBERS]
            texts.append(",".join(map(str, part) if number < _WHOLE else [f"{value:.6g}" for value in part]))
            await next_turn(site.gateway.turns)
        columns.append(f"[{','.join(texts)}]".encode("ascii"))
    return Reply(b"[" + b",".join(columns) + b"]", "application/json")
