"""Routes that programs watch the cluster by: what needs attention, metrics for Prometheus, the data of charts."""

import re
from typing import Any, Final

import attrs

from disqued.web.http.exchange import JSON, QueryParameter, Reply, Request, Role, Schema, object_of
from disqued.web.http.problems import Problem
from disqued.web.http.values import BYTES
from disqued.web.routes import route
from disqued.web.site import Site
from disqued.web.turns import next_turn
from disqued.web.views.everywhere import FRESH_S
from disqued.web.views.health_findings import KINDS
from disqued.web.views.history import RANGE_MAX_S, Series, Span, default_step_s, last_of, means_of
from disqued.web.views.metrics import QUEUES_MAX, QUEUES_SHOWN
from disqued.web.views.rings import SECONDS

NUMBERS: Final = 1_000  #: written in one turn of the loop, half a millisecond's work


_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_RATE: Final[Schema] = {"type": ["number", "null"], "minimum": 0, "description": "null = not known of every node yet."}
_ID: Final[Schema] = {"type": "string"}
_FINDING: Final = object_of(
    queue={"anyOf": [BYTES, {"type": "null"}]},
    node={"type": ["string", "null"]},
    text={"type": "string", "description": "What is wrong; of a queue what follows its name."},
)
_GROUP: Final = object_of(
    kind={"enum": list(KINDS)},
    severity={"enum": ["error", "warning"]},
    title={"type": "string"},
    count={**_COUNT, "description": "Nodes or queues of which this is true; the worst ten are in `findings`."},
    path={"type": "string", "description": "The page where one can act."},
    findings={"type": "array", "items": _FINDING},
)
_COPIES: Final = "Copies: each node that holds such a job counts it."
_DISK: Final = object_of(node=_ID, free=_COUNT, size=_COUNT)
_FIGURES: Final = object_of(
    **dict.fromkeys(("queues", "ready", "in_flight"), _COUNT),
    **{name: {**_COUNT, "description": _COPIES} for name in ("delayed", "dead", "failing")},
    **dict.fromkeys(("consumers", "clients"), _COUNT),
    in_rate=_RATE, out_rate=_RATE, memory=_COUNT, memory_limit=_COUNT,
    disk={"anyOf": [_DISK, {"type": "null"}],
          "description": "Bytes where the node with the smallest part free has its data; null = no node tells."},
)  # fmt: skip
_OVERVIEW: Final = object_of(
    nodes={**_COUNT, "description": "Nodes that answered, whose figures are in the sums."},
    missing={"type": "array", "items": object_of(node=_ID, address=_ID, why=_ID), "description": "Nodes that did not."},
    failure={"type": "string", "description": "Why no node can be asked now; empty = they can."},
    age_ms={**_COUNT, "description": "Age of the figures, milliseconds."},
    attention={"type": "array", "items": _GROUP, "description": "What needs attention, worst first; [] = nothing."},
    cluster={"anyOf": [_FIGURES, {"type": "null"}], "description": "Sums; null = no node has answered."},
    oldest={
        "type": "array",
        "items": object_of(queue=BYTES, oldest_ms=_COUNT, ready=_COUNT, consumers=_COUNT),
        "description": "The queues whose oldest ready job is oldest, ten at most.",
    },
)  # fmt: skip


@route("GET", "/api/overview", role=Role.VIEWER, summary="What needs attention in the cluster, and its figures",
       reply=_OVERVIEW, tag="cluster")  # fmt: skip
async def overview(site: Site, asked: Request) -> dict[str, Any]:
    """What the overview shows of all nodes, found by asking each: what is wrong in words, sums, the oldest jobs.

    A kind is true of nodes (`cannot-ask`, `node-missing`, `store`, `this-node`, `disk`, `memory`, `node-loading`,
    `node-leaving`) or of queues (`dead`, `unconsumed`: ready jobs and no consumer on any node, `failing`, `paused`,
    `old`: a ready job that was added 15 minutes ago or earlier).

    In `cluster` the figures `delayed`, `dead` and `failing` count copies: each node that holds such a job counts it.
    The others count each job once.  /api/failing and /api/dead list each job once.
    """
    found = await site.cluster.overview(site.trouble)
    sources = found.sources
    return {
        "nodes": sources.nodes,
        "missing": [{"node": one.id, "address": one.address, "why": one.why} for one in sources.missing],
        "failure": sources.failure,
        "age_ms": sources.age_ms,
        "attention": [
            {"kind": group.kind, "severity": group.severity, "title": group.title, "count": group.count,
             "path": group.path,
             "findings": [{"queue": one.queue, "node": one.node_id, "text": one.text} for one in group.findings]}
            for group in found.groups
        ],
        "cluster": None if found.figures is None else attrs.asdict(found.figures),
        "oldest": [
            {"queue": row.name, "oldest_ms": row.oldest_ms, "ready": row.length, "consumers": row.blocked}
            for row in found.oldest
        ],
    }  # fmt: skip


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


_NUMBERS: Final[Schema] = {"type": "array", "items": {"type": "number"}}
_HISTORY: Final = object_of(
    range_s={"type": "integer", "minimum": 1},
    step_s={"type": "integer", "minimum": 1},
    time={**_NUMBERS, "description": "Unix seconds at which each step begins; all arrays have one length."},
    backlog={**_NUMBERS, "description": "Jobs waiting at the end of the step; of a queue also events that are kept."},
    **{name: {**_NUMBERS, "description": f"Jobs {word} a second, the mean of the step."}
       for name, word in (("in", "queued"), ("out", "handed to consumers"), ("acked", "acknowledged"))},
    oldest={**_NUMBERS, "description": "Age of the oldest at the end of the step, seconds; 0 = none waits."},
)  # fmt: skip
_DURATION: Final = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION_SCHEMA: Final[Schema] = {"type": "string", "pattern": f"^{_DURATION.pattern}$"}


@route(
    "GET", "/api/history", role=Role.VIEWER, summary="What a queue or the node was like, over time",
    query=(
        QueryParameter("queue", "The queue, its bytes quoted with %; all queues of the node together without it.",
                       {"type": "string", "format": "bytes"}),
        QueryParameter("range", "How far back, as 15m, 6h or 7d; an hour unless given, 7d at most.", _DURATION_SCHEMA),
        QueryParameter("step", "Time between two points, as 1s or 5m; whole minutes where the range is above 1h.",
                       _DURATION_SCHEMA),
    ),
    reply=_HISTORY, tag="history", at="/api/history?queue=mail&range=6h&step=5m",
)  # fmt: skip
async def history(site: Site, asked: Request) -> Reply:
    """Columns for a chart; empty ones for a queue in which nothing happened on this node since the daemon started.

    A node remembers each second of the last hour and each minute of the last week, of itself and of 200 queues.
    Without `step` there are 1500 points at most.
    """
    name, range_s = asked.query.get("queue"), _seconds(asked, "range", 3_600)
    step_s = _seconds(asked, "step", 0) or default_step_s(min(range_s, RANGE_MAX_S))
    if range_s > RANGE_MAX_S:
        raise Problem(400, f"range={asked.query['range']}: 7d at most is remembered")
    if step_s > range_s:
        raise Problem(400, f"step={asked.query['step']}: allowed are steps up to the range, {range_s}s")
    if range_s > SECONDS and step_s % 60:
        raise Problem(400, f"step={asked.query['step']}: allowed are whole minutes, since the range is above 1h")
    span: Span = "hour" if range_s <= SECONDS else "week"
    series = site.history.node(span) if name is None else site.history.queue(name, span)
    is_here = series is not None or name is None or site.gateway.view.queue(name) is not None
    if not is_here and (await site.queues.one(name or b"", FRESH_S)).total is None:
        raise Problem(404, "no node that answers has this queue, and nothing is remembered of one", code="NOQUEUE")
    return await _written(site, series or Series(1, [], [], [], [], [], []), range_s, step_s)


def _seconds(asked: Request, name: str, default: int) -> int:
    """The seconds of a duration in the query.  Raises Problem 400."""
    text = asked.query.get(name)
    if text is None:
        return default
    match = _DURATION.fullmatch(text)
    if match is None:
        raise Problem(400, f"{name}={text[:100]}: allowed are a whole number and s, m, h or d, such as 15m")
    return int(match[1]) * _UNITS_S[match[2]]


async def _written(site: Site, series: Series, range_s: int, step_s: int) -> Reply:
    """The columns as JSON, some numbers in each turn of the loop."""
    series = series.last(range_s)
    starts = series.starts(step_s)
    times = series.times if step_s <= series.step_s else [series.times[at] // step_s * step_s for at in starts[:-1]]
    found = [f'{{"range_s":{range_s},"step_s":{step_s}', f'"time":{await _numbers(site, times)}']
    for name, column, fold in (
        ("backlog", series.length, last_of), ("in", series.in_rate, means_of), ("out", series.out_rate, means_of),
        ("acked", series.acked_rate, means_of), ("oldest", series.oldest_s, last_of),
    ):  # fmt: skip
        await next_turn(site.gateway.turns)
        found.append(f'"{name}":{await _numbers(site, fold(column, starts))}')
    return Reply(f"{','.join(found)}}}".encode("ascii"), JSON)


async def _numbers(site: Site, values: list[Any]) -> str:
    """A list of numbers as JSON."""
    texts: list[str] = []
    for at in range(0, len(values), NUMBERS):
        part = values[at : at + NUMBERS]
        texts += [f"{value:.6g}" if isinstance(value, float) else str(value) for value in part]
        await next_turn(site.gateway.turns)
    return f"[{','.join(texts)}]"
