"""The API of reports: what `disqued-spark` has computed of the event logs of all nodes, as reports.sqlite holds it.

Rows have the columns of `disqued.reports.layout`, the newest first, and every answer says when it was computed.
"""

import re
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Final

from disqued.reports.layout import (
    AUDITS,
    FAULTS,
    FAULTS_MAX,
    FINDINGS,
    GRAINS,
    MEASURES,
    QUEUES,
    RUNS,
    SLO,
    Column,
    Table,
)
from disqued.reports.reading import ROWS_MAX, ReportFilter, ReportReader, ReportRows
from disqued.web.http.exchange import QueryParameter, Reply, Request, Role, Schema, object_of
from disqued.web.http.problems import Problem
from disqued.web.http.values import BYTES
from disqued.web.routes import Act, route
from disqued.web.site import Site
from disqued.web.views.reports_file import MISSING, UNREADABLE
from disqued.wire.texts import raw, text

LIMIT: Final = 500  #: rows, unless somebody asks for more or less
AUDITS_MAX: Final = 100
AUDITS_SHOWN: Final = 10
FAULTS_SHOWN: Final = 100

_MOMENT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2}:[0-9]{2}Z)?")
_MOMENT_SCHEMA: Final[Schema] = {"type": "string", "pattern": f"^{_MOMENT.pattern}$"}
_QUEUE: Final = QueryParameter(
    "queue", "Only this queue; its bytes quoted with %.", {"type": "string", "format": "bytes"}
)
_SINCE: Final = QueryParameter(
    "since", "Only this day or moment, and what is newer: 2026-11-22, or 2026-11-22T10:00:00Z.", _MOMENT_SCHEMA
)
_UNTIL: Final = QueryParameter("until", "Only what is older than this day or moment.", _MOMENT_SCHEMA)
_MEASURE: Final = QueryParameter("measure", "Only this measure.", {"type": "string", "enum": list(MEASURES)})
_JOB: Final = QueryParameter("job", "Only runs of this verb of disqued-spark.")


def _limit(default: int, most: int) -> QueryParameter:
    return QueryParameter("limit", "Rows at most; `more` says whether there are others.",
                          {"type": "integer", "minimum": 1, "maximum": most, "default": default})  # fmt: skip


_NONE_OR: Final = {"INTEGER": "integer", "REAL": "number", "TEXT": "string"}


def _column_schema(column: Column) -> Schema:
    if column.name == "queue":
        return BYTES if column.needed else {"anyOf": [BYTES, {"type": "null"}], "description": column.doc}
    kind = _NONE_OR[column.kind]
    return {"type": kind if column.needed else [kind, "null"], "description": column.doc}


def _row_schema(table: Table, **more: Schema) -> Schema:
    return object_of(**{column.name: _column_schema(column) for column in table.columns}, **more)


def _reply(row: Schema) -> Schema:
    return object_of(
        computed_at={"type": ["string", "null"], "description": "When the newest of the rows was computed, UTC."},
        more={"type": "boolean", "description": "There are older rows, which the limit left out."},
        rows={"type": "array", "items": row},
    )


def report_route(
    name: str, summary: str, row: Schema, query: tuple[QueryParameter, ...], at: str
) -> Callable[[Act], Act]:
    """Enter a route on the reports."""
    return route("GET", f"/api/reports/{name}", role=Role.VIEWER, summary=summary, query=query, reply=_reply(row),
                 tag="reports", errors=(MISSING, UNREADABLE), at=f"/api/reports/{name}{at}")  # fmt: skip


@report_route(
    "queues", "What queues did, by hour or day", _row_schema(QUEUES),
    (
        _QUEUE, QueryParameter("grain", "hour or day.", {"type": "string", "enum": list(GRAINS), "default": "hour"}),
        _SINCE, _UNTIL, _limit(LIMIT, ROWS_MAX),
    ),
    "?queue=mail&grain=day&since=2026-11-01",
)  # fmt: skip
async def report_queues(site: Site, asked: Request) -> Reply:
    """Rows of `disqued-spark rollup`: how many jobs came and went, and how long half, 95 % and 99 % of them took."""
    return await _answer(site, _wanted(asked, grain=asked.query.get("grain", "hour")), ReportReader.queues)


@report_route("slo", "Days of queues, held against their targets", _row_schema(SLO),
              (_QUEUE, _MEASURE, _SINCE, _UNTIL, _limit(LIMIT, ROWS_MAX)), "?queue=mail&measure=wait")  # fmt: skip
async def report_slo(site: Site, asked: Request) -> Reply:
    """Rows of `disqued-spark slo`; `over` is the share of jobs that took longer than the target."""
    return await _answer(site, _wanted(asked), ReportReader.slo)


_FAULT_ROW: Final = _row_schema(FAULTS)
_AUDIT_ROW: Final = object_of(
    **{
        **_row_schema(AUDITS)["properties"],
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "faults": {"type": "array", "items": _FAULT_ROW},
    }
)


@report_route(
    "audit", "Audits: whether a job was lost, and what else is wrong", _AUDIT_ROW,
    (
        _SINCE, _UNTIL, _limit(AUDITS_SHOWN, AUDITS_MAX),
        QueryParameter(
            "faults", f"Faults of each audit that are listed; of one audit at most {FAULTS_MAX} are kept.",
            {"type": "integer", "minimum": 0, "maximum": FAULTS_MAX, "default": FAULTS_SHOWN},
        ),
    ),
    "?limit=1&faults=20",
)  # fmt: skip
async def report_audit(site: Site, asked: Request) -> Reply:
    """Verdicts of `disqued-spark audit`, how often each kind of fault was found, and the first of the faults.

    An answer has 5000 faults at most: those of the newest audits.
    """
    read = partial(ReportReader.audits, faults=asked.query.get("faults", FAULTS_SHOWN))
    return await _answer(site, _wanted(asked, limit=AUDITS_SHOWN), read)


@report_route("findings", "What is wrong with queues and jobs, and what to do about it", _row_schema(FINDINGS),
              (_QUEUE, _limit(LIMIT, ROWS_MAX)), "?queue=mail")  # fmt: skip
async def report_findings(site: Site, asked: Request) -> Reply:
    """What `disqued-spark doctor` found when it ran last."""
    return await _answer(site, _wanted(asked), ReportReader.findings)


@report_route("runs", "Runs of the jobs that made the reports", _row_schema(RUNS),
              (_JOB, _SINCE, _UNTIL, _limit(LIMIT, ROWS_MAX)), "?job=rollup&limit=10")  # fmt: skip
async def report_runs(site: Site, asked: Request) -> Reply:
    """When each run of `disqued-spark` began, how long it took, and how it ended; of one that failed, why."""
    return await _answer(site, _wanted(asked), ReportReader.runs)


def _is_moment(word: str) -> bool:
    """Tell whether a word names a day or a moment that there is."""
    try:
        datetime.fromisoformat(word)
    except ValueError:
        return False
    return _MOMENT.fullmatch(word) is not None


def _wanted(asked: Request, *, grain: str | None = None, limit: int = LIMIT) -> ReportFilter:
    """Which rows a request asks for.  Raises Problem 400."""
    query = asked.query
    for name in ("since", "until"):
        if name in query and not _is_moment(query[name]):
            raise Problem(
                400, f"{name}={query[name][:100]}: allowed are days as 2026-11-22 and moments as 2026-11-22T10:00:00Z"
            )
    return ReportFilter(queue=text(query["queue"]) if "queue" in query else None, grain=grain,
                        measure=query.get("measure"), job=query.get("job"), since=query.get("since"),
                        until=query.get("until"), limit=query.get("limit", limit))  # fmt: skip


async def _answer(site: Site, wanted: ReportFilter, read: Callable[[ReportReader, ReportFilter], ReportRows]) -> Reply:
    found = await site.reports.ask(lambda reader: read(reader, wanted))
    for row in found.rows:
        _name_queue(row)
        for fault in row.get("faults", ()):
            _name_queue(fault)
    return await site.json({"computed_at": found.computed_at, "more": found.more, "rows": found.rows})


def _name_queue(row: dict[str, Any]) -> None:
    """Write the queue of a row as everywhere else in the API: its bytes."""
    if row.get("queue") is not None:
        row["queue"] = raw(row["queue"])
