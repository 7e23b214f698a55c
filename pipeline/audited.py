"""One audit, from events to a verdict: the queries of `jobs.audit` in their order, and what people are told of it."""

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import attrs

from disqued.pipeline.events import IS_EVENT, is_event, marked
from disqued.pipeline.jobs.audit import (
    FINDING,
    batch_of,
    judged,
    judged_here,
    lines_of_pages,
    logs_of,
    marks,
    pages,
    summaries,
    suspects,
    times_of,
    to_open,
    to_time,
)
from disqued.pipeline.jobs.verdicts import FAULT, LOSS, SECOND_US, SEVERITY, AuditTolerance, EventLogs, Finding
from disqued.wire.texts import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NOTHING: Final = "nothing"
CLEAN: Final = "clean"
FAULTS: Final = "faults"
KINDS: Final = list(SEVERITY)
#: So many lines of suspects are judged in this process: to start others, and to share the work, takes longer.
FEW: Final = 50_000


@attrs.frozen
class Audited:
    """What came of an audit."""

    findings: "DataFrame"  #: rows of `jobs.audit.FINDING`; kept in memory until the session ends
    events: int
    jobs: int
    suspects: int
    nodes: int
    since_us: int
    until_us: int
    counts: dict[str, int]  #: of findings, by kind, the worst first
    none: int = 0  #: lines that are no events, which nothing is told of

    @property
    def verdict(self) -> str:
        """LOSS, FAULTS or CLEAN; NOTHING = there was nothing to look at."""
        if not self.events:
            return NOTHING
        severities = {SEVERITY[kind] for kind in self.counts}
        return LOSS if LOSS in severities else FAULTS if FAULT in severities else CLEAN

    def summary(self) -> dict[str, Any]:
        """What the reports have of it, but for when it was made."""
        return {"since": _iso(self.since_us), "until": _iso(self.until_us), "nodes": self.nodes, "events": self.events,
                "verdict": self.verdict, "counts": self.counts}  # fmt: skip

    def worst(self, count: int, *, notes: bool = True) -> list[dict[str, Any]]:
        """The first findings, the worst first: columns of the reports."""
        from pyspark.sql import functions as f

        kinds = f.array(*map(f.lit, KINDS))
        rows = self.findings if notes else self.findings.where("severity <> 'note'")
        rows = rows.orderBy(f.array_position(kinds, f.col("kind")), "at_us", "node", "seq", "job_id").limit(count)
        return [row.asDict() for row in rows.drop("severity").collect()]

    def told(self, count: int, *, notes: bool = False) -> str:
        """The verdict, as text: what was found of each kind, and the worst of it."""
        spans = f", {_iso(self.since_us)} to {_iso(self.until_us)}" if self.events else ""
        text = [f"{self.verdict}: {self.events} events of {self.jobs} jobs on {self.nodes} nodes{spans}"]
        text += [f"  {self.none} lines are none of the event log, or of another version of it"] if self.none else []
        text += [f"  {SEVERITY[kind]:5}  {kind:22} {number:8}" for kind, number in self.counts.items()]
        worst = self.worst(count, notes=notes)
        for row in worst:
            what = f"job {row['job_id']}" + (f" of {row['scope']}" if row["scope"] else "") if row["job_id"] else "log"
            place = f", {row['node']} boot {row['boot']} seq {row['seq']}" if row["node"] else ""
            text.append(f"{row['kind']}: {what}{place}: {row['detail']}")
        left = sum(n for kind, n in self.counts.items() if notes or SEVERITY[kind] != "note") - len(worst)
        return "\n".join([*map(shown, text), *([f"... and {left} more in the table audit"] if left > 0 else [])])


def _iso(us: int) -> str:
    return datetime.fromtimestamp(us / SECOND_US, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def audited(
    lines: "DataFrame", limits: AuditTolerance | None = None, say: Callable[[str], None] = lambda text: None
) -> Audited:
    """Audit the lines of all nodes that are events; `say` is told what is done meanwhile."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    found_pages = pages(marked(lines)).collect()
    page_rows = [page for page in found_pages if page[IS_EVENT]]
    none = sum(page.lines for page in found_pages if not page[IS_EVENT])
    events = lines.where(is_event())
    logs, found = _logs(events, page_rows)
    nodes = sorted({node for node, _ in logs.boots})
    count = sum(page.lines for page in page_rows)
    since_us = min((page.first_us for page in page_rows), default=0)
    until_us = max((page.last_us for page in page_rows), default=0)
    say(f"{count} events of {len(nodes)} nodes in {len(logs.boots)} boots")
    seen = Observation("jobs")
    summed = summaries(events).observe(seen, f.count(f.lit(1)).alias("jobs"))
    doubtful = suspects(summed, until_us).persist()
    number, told = doubtful.select(f.count(f.lit(1)), f.coalesce(f.sum("lines"), f.lit(0))).collect()[0]
    jobs = int(seen.get["jobs"])
    say(f"{jobs} jobs, {number} of them to be looked at closely")
    limits = limits or AuditTolerance()
    if told <= FEW:
        if number:
            found += judged_here(events, doubtful, logs, limits)
        rows, counts = _table(events, found), Counter(finding.kind for finding in found)
    else:
        rows = _table(events, found).unionAll(judged(events, doubtful, logs, limits)).persist()
        counts = Counter({row.kind: row["count"] for row in rows.groupBy("kind").count().collect()})
    doubtful.unpersist()
    in_order = {kind: counts[kind] for kind in KINDS if counts[kind]}
    return Audited(rows, count, jobs, number, len(nodes), since_us, until_us, in_order, none)


def _logs(events: "DataFrame", page_rows: Sequence[Any]) -> tuple[EventLogs, list[Finding]]:
    """Find out what there is of the logs."""
    mark_rows = marks(events).collect()
    opened: list[Any] = []
    timed: list[Any] = []
    if ragged := to_open(page_rows):
        opened = lines_of_pages(events, _named(events, ragged, "page")).collect()
    if lines := to_time(mark_rows):
        timed = times_of(events, _named(events, lines, "seq")).collect()
    return logs_of(page_rows, mark_rows, opened, timed)


def _named(events: "DataFrame", places: Sequence[tuple[str, int, int]], number: str) -> "DataFrame":
    """Make rows of places (node, boot, number).  They come as Arrow: for tuples Spark starts processes of Python."""
    import pyarrow as pa

    types = {"node": pa.string(), "boot": pa.int64(), number: pa.int64()}
    columns = [pa.array(some, kind) for some, kind in zip(zip(*places, strict=True), types.values(), strict=True)]
    return events.sparkSession.createDataFrame(pa.table(columns, names=list(types)))


def _table(events: "DataFrame", found: Sequence[Finding]) -> "DataFrame":
    import pyarrow as pa

    return events.sparkSession.createDataFrame(pa.Table.from_batches([batch_of(found)]), FINDING)
