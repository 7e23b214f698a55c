"""What people are shown of reports.sqlite, ready to be put into a page: charts, tables, and when each was computed.

    all_blocks(reader, View(queue=None, grain="hour"))  ->  Blocks
        .flow         jobs over time, of all queues together or of one     table `queues`
        .queues       the busiest queues, each with a small line
        .latencies    percentiles of one queue, or the p99 of the busiest
        .redelivery   how much was delivered again                         table `slo`
        .targets      the last day, held against its targets
        .audits       verdicts, and what was found                         tables `audits`, `faults`
        .findings     what doctor found                                    table `findings`
        .runs         which jobs ran, and how they ended                   table `runs`

What is shown ends where the reports end: an old file shows what was, with its dates.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from disqued.reports import value_formats
from disqued.reports.charts import Chart, ChartLine, Format, Values, spark, time_name
from disqued.reports.layout import MEASURES, moment
from disqued.reports.reading import ReportFilter, ReportReader, ReportRows, Row

DAY_S: Final = 86_400
STEP_S: Final = {"hour": 3_600, "day": DAY_S}
WINDOW_S: Final = {"hour": 7 * DAY_S, "day": 90 * DAY_S}  #: that charts show at most
QUEUES_SHOWN: Final = 25
LINES_MAX: Final = 4  #: of one chart
LABEL_MAX: Final = 60  #: characters of the name of a queue beside its line
AUDITS_SHOWN: Final = 10
FAULTS_SHOWN: Final = 100
RUNS_SHOWN: Final = 20
FINDINGS_SHOWN: Final = 200
TARGETS_SHOWN: Final = 300

DOCTOR: Final = "doctor"  #: the job that looks for what is wrong

TONES: Final = ("one", "two", "three", "four")
WHAT: Final = {"wait": "In the queue", "run": "With the consumer", "age": "From add to ack"}
PERCENTILES: Final = (50, 95, 99)
MANY: Final = "Of the queues with the most deliveries; a queue of its own has all percentiles and its targets."


@attrs.frozen
class ReportQuery:
    """What somebody wants to see."""

    queue: str | None = None  #: None = all
    grain: str = "hour"


@attrs.frozen
class Plot:
    """A chart, and its numbers as a table."""

    title: str
    svg: str
    legend: tuple[tuple[str, str], ...]  #: label and tone of each line
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]  #: the newest first


@attrs.frozen
class QueueRow:
    """One queue in the table of queues."""

    queue: str
    adds: int
    delivers: int
    acks: int
    wait_p99_us: int | None  #: the highest of any hour or day shown
    spark: str


@attrs.frozen
class Block:
    """Something that was computed at some time; what it holds is empty where there is nothing yet."""

    computed_at: str | None
    plots: list[Plot] = attrs.field(factory=list)
    rows: list[Any] = attrs.field(factory=list)
    more: bool = False  #: there is more than is shown
    note: str = ""
    advice: dict[str, str] = attrs.field(factory=dict)  #: what to do about each kind of finding


@attrs.frozen
class Blocks:
    """All of it."""

    view: ReportQuery
    since: str | None  #: what is shown of queues begins with this hour or day
    until: str | None  #: and ends with this one
    flow: Block
    queues: Block
    latencies: Block
    redelivery: Block
    targets: Block
    audits: Block
    findings: Block
    runs: Block

    @property
    def span(self) -> str:
        """From when to when queues are shown, as people read it; empty where there is nothing."""
        if self.since is None or self.until is None:
            return ""
        length = 10 if self.view.grain == "day" else 16
        return f"{value_formats.moment(self.since)[:length]} to {value_formats.moment(self.until)[:length]}"


def all_blocks(reader: ReportReader, view: ReportQuery) -> Blocks:
    """Read and draw everything.  Raises what reading raises."""
    window = _window(reader, view)
    return Blocks(
        view, *window, flow=flow(reader, view, window[0]), queues=queue_table(reader, view, window[0]),
        latencies=latencies(reader, view, window[0]), redelivery=redelivery(reader, view),
        targets=targets(reader, view), audits=_block(reader.audits(ReportFilter(limit=AUDITS_SHOWN), FAULTS_SHOWN)),
        findings=findings(reader, view), runs=_block(reader.runs(ReportFilter(limit=RUNS_SHOWN))))  # fmt: skip


def _window(reader: ReportReader, view: ReportQuery) -> tuple[str | None, str | None]:
    """From when to when queues are shown: as long as charts show, up to the newest hour or day."""
    [row] = reader.select("SELECT max(at) AS newest FROM queues WHERE grain = :grain", {"grain": view.grain})
    newest = None if row["newest"] is None else value_formats.unix_s(row["newest"])
    if newest is None:
        return None, None
    since = moment(max(0, newest - WINDOW_S[view.grain] + STEP_S[view.grain]))
    sql = "SELECT min(at) AS oldest FROM queues WHERE grain = :grain AND at >= :since"
    return reader.select(sql, {"grain": view.grain, "since": since})[0]["oldest"], row["newest"]


# Jobs over time.

_SUMMED: Final = """
    SELECT at, sum(adds) AS adds, sum(delivers) AS delivers, sum(acks) AS acks, sum(nacks) AS nacks,
        sum(requeues) AS requeues, max(computed_at) AS computed_at
    FROM queues WHERE grain = :grain AND at >= :since AND (:queue IS NULL OR queue = :queue) GROUP BY at ORDER BY at
"""
_FLOW: Final = (("adds", "added"), ("delivers", "delivered"), ("acks", "acknowledged"))
_BACK: Final = (("nacks", "given back (NACK)"), ("requeues", "not acknowledged in time"))


def flow(reader: ReportReader, view: ReportQuery, since: str | None) -> Block:
    """Jobs added, delivered and acknowledged; an hour without any event has zeros."""
    rows = reader.select(_SUMMED, {"grain": view.grain, "since": since or "", "queue": view.queue})
    if not rows:
        return Block(None)
    step_s = STEP_S[view.grain]
    times, by_time = _filled(rows, step_s)
    plots = [
        _counts_plot(f"{title} per {view.grain}", columns, times, by_time, step_s)
        for title, columns in (("Jobs", _FLOW), ("Jobs queued again", _BACK))
    ]
    return Block(_newest(rows), plots)


def _counts_plot(
    title: str, columns: Sequence[tuple[str, str]], times: list[int], by_time: Mapping[int, Row], step_s: int
) -> Plot:
    lines = [
        ChartLine(label, tone, _counts(times, by_time, name))
        for tone, (name, label) in zip(TONES, columns, strict=False)
    ]
    return _plot(Chart(title, times, lines, value_formats.count, step_s, axis=value_formats.short))


def _filled(rows: Sequence[Row], step_s: int) -> tuple[list[int], dict[int, Row]]:
    """Every time from the first to the last, and the rows by their times."""
    by_time = {at: row for row in rows if (at := value_formats.unix_s(row["at"])) is not None}
    if not by_time:
        return [], {}
    return list(range(min(by_time), max(by_time) + 1, step_s)), by_time


def _plot(chart: Chart) -> Plot:
    head = ("Time (UTC)", *(line.label for line in chart.lines))
    rows = [
        (time_name(at, chart.step_s), *(value_formats.NONE if value is None else chart.form(value) for value in values))
        for at, *values in zip(chart.times, *(line.values for line in chart.lines), strict=True)
        if any(value is not None for value in values)
    ]
    legend = tuple((line.label, line.tone) for line in chart.lines)
    return Plot(chart.title, chart.svg, legend, head, rows[::-1])


# Queues.

_BUSIEST: Final = """
    SELECT queue, sum(adds) AS adds, sum(delivers) AS delivers, sum(acks) AS acks, max(wait_p99_us) AS wait_p99_us,
        max(computed_at) AS computed_at
    FROM queues WHERE grain = :grain AND at >= :since GROUP BY queue
    ORDER BY sum(delivers) DESC, sum(adds) DESC, queue LIMIT :limit
"""
_ONE_QUEUE: Final = """
    SELECT at, adds, delivers, acks, wait_p99_us, age_p99_us FROM queues
    WHERE queue = :queue AND grain = :grain AND at >= :since ORDER BY at
"""


def queue_table(reader: ReportReader, view: ReportQuery, since: str | None) -> Block:
    """The queues with the most deliveries, each with a small line of these; the first few side by side."""
    given = {"grain": view.grain, "since": since or "", "limit": QUEUES_SHOWN + 1}
    rows = reader.select(_BUSIEST, given)
    busiest = rows[:QUEUES_SHOWN]
    points = {row["queue"]: reader.select(_ONE_QUEUE, {**given, "queue": row["queue"]}) for row in busiest}
    found = [_queue_row(row, points[row["queue"]], view.grain) for row in busiest]
    first = {queue: points[queue] for queue in list(points)[:LINES_MAX]}
    plots = [
        _side_by_side(f"{title} per {view.grain}, by queue", name, first, STEP_S[view.grain])
        for title, name in (("Delivered", "delivers"), ("Acknowledged", "acks"))
        if any(first.values())
    ]
    return Block(_newest(rows), plots, found, more=len(rows) > QUEUES_SHOWN)


def _queue_row(row: Row, points: Sequence[Row], grain: str) -> QueueRow:
    times, by_time = _filled(points, STEP_S[grain])
    line = spark(_counts(times, by_time, "delivers"), f"Deliveries per {grain}")
    return QueueRow(row["queue"], row["adds"] or 0, row["delivers"] or 0, row["acks"] or 0, row["wait_p99_us"], line)


def _side_by_side(title: str, name: str, points: Mapping[str, Sequence[Row]], step_s: int) -> Plot:
    """One column of several queues."""
    times, _ = _filled([row for rows in points.values() for row in rows], step_s)
    lines = [
        ChartLine(value_formats.text(queue, LABEL_MAX), tone, _counts(times, _filled(rows, step_s)[1], name))
        for tone, (queue, rows) in zip(TONES, points.items(), strict=False)
    ]
    return _plot(Chart(title, times, lines, value_formats.count, step_s, axis=value_formats.short))


def _counts(times: Sequence[int], by_time: Mapping[int, Row], name: str) -> Values:
    """One column, with zeros where there is no row."""
    return [float((by_time.get(at) or {}).get(name) or 0) for at in times]


# How long it took.

_PERCENTILES: Final = """
    SELECT * FROM queues WHERE queue = :queue AND grain = :grain AND at >= :since ORDER BY at
"""


def latencies(reader: ReportReader, view: ReportQuery, since: str | None) -> Block:
    """Percentiles of one queue; of all queues the highest of the busiest, since percentiles cannot be added up."""
    if view.queue is not None:
        return _of_queue(reader, view, view.queue, since)
    given = {"grain": view.grain, "since": since or "", "limit": LINES_MAX}
    busiest = reader.select(_BUSIEST, given)
    points = {row["queue"]: reader.select(_ONE_QUEUE, {**given, "queue": row["queue"]}) for row in busiest}
    plots = []
    for measure in ("wait", "age"):
        columns = [
            (value_formats.text(queue, LABEL_MAX), _by_time(rows, f"{measure}_p99_us"))
            for queue, rows in points.items()
        ]
        plot = _spans_plot(f"{WHAT[measure]}: 99 % at most", columns, view.grain)
        plots += [plot] if plot else []
    return Block(_newest(busiest), plots, note=MANY if plots else "")


def _of_queue(reader: ReportReader, view: ReportQuery, queue: str, since: str | None) -> Block:
    rows = reader.select(_PERCENTILES, {"grain": view.grain, "since": since or "", "queue": queue})
    limits = _targets_of(reader, queue)
    plots = []
    for measure in MEASURES:
        columns = [(f"p{part}", _by_time(rows, f"{measure}_p{part}_us")) for part in PERCENTILES]
        plot = _spans_plot(WHAT[measure], columns, view.grain, limits.get(measure))
        plots += [plot] if plot else []
    return Block(_newest(rows), plots)


def _by_time(rows: Sequence[Row], name: str) -> dict[int, float]:
    """What is known of one column, by unix seconds."""
    found = ((value_formats.unix_s(row["at"]), row[name]) for row in rows)
    return {at: float(value) for at, value in found if at is not None and value is not None}


def _spans_plot(
    title: str, columns: Sequence[tuple[str, Mapping[int, float]]], grain: str, limit: int | None = None
) -> Plot | None:
    """Spans over time, by the labels of their lines; None where none is known.  What is not known is a gap."""
    known = [at for _, column in columns for at in column]
    if not known:
        return None
    step_s = STEP_S[grain]
    times = list(range(min(known), max(known) + 1, step_s))
    lines = [
        ChartLine(label, tone, [column.get(at) for at in times])
        for tone, (label, column) in zip(TONES, columns, strict=False)
    ]
    title = f"{title}, per {grain}"
    return _plot(Chart(title, times, lines, value_formats.span, step_s, limit=limit, steps=value_formats.SPAN_STEPS))


def _targets_of(reader: ReportReader, queue: str) -> dict[str, int]:
    """The newest target of each measure of a queue."""
    rows = reader.slo(ReportFilter(queue=queue, limit=3 * len(MEASURES))).rows
    return {row["measure"]: row["target_us"] for row in reversed(rows) if row["target_us"] is not None}


# Targets.

_REDELIVERED: Final = """
    SELECT date, sum(again) AS again, sum(deliveries) AS deliveries, max(computed_at) AS computed_at FROM (
        SELECT date, queue, max(redeliveries) AS again, max(deliveries) AS deliveries, max(computed_at) AS computed_at
        FROM slo WHERE date >= :since AND (:queue IS NULL OR queue = :queue) GROUP BY date, queue
    ) GROUP BY date ORDER BY date
"""


def redelivery(reader: ReportReader, view: ReportQuery) -> Block:
    """The share of deliveries that were not the first of their job, day by day."""
    newest = reader.slo(ReportFilter(limit=1)).rows
    last = value_formats.unix_s(newest[0]["date"]) if newest else None
    if last is None:
        return Block(None)
    since = moment(last - WINDOW_S["day"])[:10]
    rows = reader.select(_REDELIVERED, {"since": since, "queue": view.queue})
    shares = {
        at: row["again"] / row["deliveries"]
        for row in rows
        if row["deliveries"] and row["again"] is not None and (at := value_formats.unix_s(row["date"])) is not None
    }
    if not shares:
        return Block(_newest(rows))
    times = list(range(min(shares), max(shares) + 1, DAY_S))
    line = ChartLine("delivered again", "three", [shares.get(at) for at in times])
    form: Format = value_formats.share
    return Block(_newest(rows), [_plot(Chart("Redelivery per day", times, [line], form, DAY_S))])


def targets(reader: ReportReader, view: ReportQuery) -> Block:
    """The newest day of each queue and measure that was held against its target, those that miss it first."""
    newest = reader.slo(ReportFilter(limit=1)).rows
    if not newest:
        return Block(None)
    day = newest[0]["date"]
    found = reader.slo(ReportFilter(queue=view.queue, since=day, limit=TARGETS_SHOWN))
    return Block(found.computed_at, rows=sorted(found.rows, key=_missed), more=found.more, note=day)


def _missed(row: Row) -> tuple[bool, float, str, str]:
    return (not is_over(row), -(row["over"] or 0.0), row["queue"], row["measure"])


def is_over(row: Row) -> bool:
    """True where the 99th percentile of a row of `slo` is beyond its target."""
    return row["target_us"] is not None and row["p99_us"] is not None and row["p99_us"] > row["target_us"]


# What was checked, found and run.


def findings(reader: ReportReader, view: ReportQuery) -> Block:
    """What doctor found when it ran last, which may be nothing."""
    found = reader.findings(ReportFilter(queue=view.queue, limit=FINDINGS_SHOWN))
    looked = [row for row in reader.last_runs("done") if row["job"] == DOCTOR]
    advice = {row["kind"]: row["advice"] for row in found.rows if row["advice"]}
    return attrs.evolve(_block(found), computed_at=found.computed_at or _newest(looked), advice=advice)


def _block(found: ReportRows) -> Block:
    return Block(found.computed_at, rows=found.rows, more=found.more)


def _newest(rows: Sequence[Row]) -> str | None:
    return max((row["computed_at"] for row in rows if row["computed_at"]), default=None)


#: Which command fills each block, after `disqued-spark`.
COMMANDS: Final[Mapping[str, str]] = {
    "queues": "rollup --tables DIR",
    "slo": "slo --tables DIR --target wait=1s",
    "audit": "audit --tables DIR",
    "findings": "doctor --tables DIR",
    "runs": "VERB --tables DIR",
}


def command_line(block: str, path: str) -> str:
    """The command that makes what a block shows."""
    return f"disqued-spark {COMMANDS[block]} --reports {path}"
