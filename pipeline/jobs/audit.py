"""The audit: the event logs of all nodes, held together, job by job.

    events --pages, marks-------------------> what there is of each log: gaps, boots, flushes   (`verdicts.EventLogs`)
      |                                                          |
      +--summaries--> one row a job --suspects--> few rows       |
      |                                             |            |
      +----------------lines of these--------------+--judged-----+--> findings

Nearly all jobs are added, delivered and acknowledged, and nothing else.  One aggregation of numbers, which Spark does
before the shuffle, tells these from all that could be against a rule; it may suspect too many and never too few.  The
rules themselves (`verdicts`) look at the lines of the suspects alone.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from disqued.pipeline.events import IS_EVENT
from disqued.pipeline.jobs.verdicts import (
    DOUBLE,
    GAP,
    NOT_KNOWN,
    SECOND_US,
    SETTLE_US,
    AuditTolerance,
    BootLog,
    EventLine,
    EventLogs,
    Finding,
    Stretch,
    finding_of_log,
    judge,
    line_of,
    missing,
)
from disqued.pipeline.tables import AUDIT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

TURNS: Final = (1, 2)  #: seeds of the two hashes that make a node a bit
PAGE: Final = 1_000  #: lines of which the numbers are checked together

#: Columns of what is found, as Spark writes them.
FINDING: Final = AUDIT.columns
_OF_A_LINE: Final = (
    "node", "boot", "seq", "ts_us", "event", "age_us", "ttl_s", "retry_s", "peer", "reason", "queue",
    "max_tries", "keep_dead_s",
)  # fmt: skip


# What there is of the logs.


def pages(lines: "DataFrame") -> "DataFrame":
    """Give each page of each boot: how many lines it has, their first and last numbers and times.

    Lines are `marked`; those that are no events are all of one page, of no boot.

    `total` and `squares` are the sums of the numbers within the page and of their squares: lines that are missing and
    lines that are there twice do not make up for each other in both.
    """
    from pyspark.sql import functions as f

    page = f.floor((f.col("seq") - 1) / PAGE)
    offset = f.col("seq") - page * PAGE
    keys = {"node": f.col("node"), "boot": f.col("boot"), "page": page}
    return lines.groupBy(IS_EVENT, *(f.when(f.col(IS_EVENT), key).alias(name) for name, key in keys.items())).agg(
        f.count(f.lit(1)).alias("lines"),
        f.min("seq").alias("first"),
        f.max("seq").alias("last"),
        f.sum(offset).alias("total"),
        f.sum(offset * offset).alias("squares"),
        f.min_by("ts_us", "seq").alias("first_us"),
        f.max_by("ts_us", "seq").alias("last_us"),
    )


def marks(events: "DataFrame") -> "DataFrame":
    """Give the events of the nodes themselves."""
    return events.where("event IN ('start', 'stop', 'clock', 'flush')").select(
        "node", "boot", "seq", "ts_us", "event", "after_boot", "after_seq"
    )


def lines_of_pages(events: "DataFrame", wanted: "DataFrame") -> "DataFrame":
    """Give the lines of some pages (node, boot, page): their numbers, how often each is there, and when they were."""
    from pyspark.sql import functions as f

    page = f.floor((f.col("seq") - 1) / PAGE)
    known = events.withColumn("page", page).join(f.broadcast(wanted), ["node", "boot", "page"], "left_semi")
    return known.groupBy("node", "boot", "page", "seq").agg(
        f.count(f.lit(1)).alias("lines"), f.min("ts_us").alias("ts_us")
    )


def times_of(events: "DataFrame", wanted: "DataFrame") -> "DataFrame":
    """Give the times of some lines (node, boot, seq)."""
    from pyspark.sql import functions as f

    return events.join(f.broadcast(wanted), ["node", "boot", "seq"], "left_semi").select("node", "boot", "seq", "ts_us")


def is_whole(page: Any) -> bool:
    """Tell whether a page has each of its lines once, but perhaps for some before its first or behind its last."""
    first, last = page.first - page.page * PAGE, page.last - page.page * PAGE
    if page.lines != last - first + 1:
        return False
    return bool(page.total == _sum(last) - _sum(first - 1) and page.squares == _squares(last) - _squares(first - 1))


def _sum(count: int) -> int:
    return count * (count + 1) // 2


def _squares(count: int) -> int:
    return count * (count + 1) * (2 * count + 1) // 6


def to_open(page_rows: Iterable[Any]) -> list[tuple[str, int, int]]:
    """Name the pages whose lines are looked at one by one, as some are missing or there twice: (node, boot, page)."""
    return sorted((page.node, page.boot, page.page) for page in page_rows if not is_whole(page))


def to_time(mark_rows: Iterable[Any]) -> list[tuple[str, int, int]]:
    """Name the lines of which it matters when they were, as the clock was set behind them: (node, boot, seq)."""
    return sorted((mark.node, mark.boot, mark.seq - 1) for mark in mark_rows if mark.event == "clock")


def logs_of(
    page_rows: Sequence[Any], mark_rows: Sequence[Any], opened: Sequence[Any] = (), timed: Sequence[Any] = ()
) -> tuple[EventLogs, list[Finding]]:
    """Put together what there is of the logs, and what is wrong with them: gaps, and lines that are there twice.

    `opened`: the lines of the pages that `to_open` names; `timed`: the lines that `to_time` names.
    """
    times = {(row.node, row.boot, row.seq): int(row.ts_us) for row in timed}
    lines: dict[tuple[str, int, int], list[Any]] = {}
    for row in opened:
        lines.setdefault((row.node, row.boot, row.page), []).append(row)
    by_boot: dict[tuple[str, int], list[Any]] = {}
    for page in page_rows:
        by_boot.setdefault((page.node, page.boot), []).append(page)
    marks_of: dict[tuple[str, int], list[Any]] = {}
    for mark in mark_rows:
        marks_of.setdefault((mark.node, mark.boot), []).append(mark)
    first_boot: dict[str, int] = {}
    last_boot: dict[str, int] = {}
    for node, boot in by_boot:
        first_boot[node] = min(boot, first_boot.get(node, boot))
        last_boot[node] = max(boot, last_boot.get(node, boot))
    found: list[Finding] = []
    boots: dict[tuple[str, int], BootLog] = {}
    for (node, boot), its_pages in sorted(by_boot.items()):
        its_marks = marks_of.get((node, boot), [])
        clocks = {
            mark.seq: (times.get((node, boot, mark.seq - 1), mark.ts_us), mark.ts_us)
            for mark in its_marks
            if mark.event == "clock"
        }
        runs: list[_Run] = []
        for page in sorted(its_pages, key=lambda page: int(page.page)):
            runs += _runs_of(page, lines.get((node, boot, page.page)), clocks, found)
        found += _beginning(node, boot, runs[0], is_first=boot == first_boot[node])
        boots[node, boot] = BootLog(
            tuple(_stretches(node, boot, runs, clocks, found)),
            stopped=any(mark.event == "stop" for mark in its_marks),
            has_next=boot < last_boot[node],
            flushes=tuple(sorted(mark.seq for mark in its_marks if mark.event == "flush")),
        )
    return EventLogs(boots), [*found, *_ends_missing(boots, mark_rows, first_boot)]


def _ends_missing(
    boots: dict[tuple[str, int], BootLog], mark_rows: Iterable[Any], first_boot: dict[str, int]
) -> Iterator[Finding]:
    """Find what a boot saw in the folder when it began, and what is not there: the last lines of a boot, or all of it.

    What is before all that there is of a node was removed, as logs are not kept for ever.
    """
    named = {
        (mark.node, mark.after_boot): (mark.after_seq, mark.ts_us)
        for mark in mark_rows
        if mark.event == "start" and mark.after_boot is not None
    }
    for (node, boot), (seq, at_us) in sorted(named.items()):
        log = boots.get((node, boot))
        if log is not None:
            last = log.stretches[-1].last
            if last < seq:
                yield finding_of_log(GAP, (node, boot, last + 1), at_us, f"{_absent(last + 1, seq)}: the last ones")
        elif first_boot[node] < boot:
            yield finding_of_log(GAP, (node, boot, 1), at_us, f"{_absent(1, seq)}: the whole boot")


#: Lines without a gap and without a clock that is set: first and last number, first and last time.
_Run = tuple[int, int, int, int]


#: Lines that say that the clock was set: when the line before one was, and when it was.
_Clocks = dict[int, tuple[int, int]]


def _runs_of(page: Any, lines: list[Any] | None, clocks: _Clocks, found: list[Finding]) -> list[_Run]:
    """Split a page into runs; note lines that are there twice."""
    if lines is None:
        return list(_split(page, clocks))
    runs: list[_Run] = []
    for line in sorted(lines, key=lambda line: int(line.seq)):
        if line.lines > 1:
            detail = f"this line is there {line.lines} times"
            found.append(finding_of_log(DOUBLE, (page.node, page.boot, line.seq), line.ts_us, detail))
        if runs and runs[-1][1] == line.seq - 1 and line.seq not in clocks:
            first, _, first_us, _ = runs[-1]
            runs[-1] = (first, line.seq, first_us, line.ts_us)
        else:
            runs.append((line.seq, line.seq, line.ts_us, line.ts_us))
    return runs


def _split(page: Any, clocks: _Clocks) -> Iterator[_Run]:
    """Split a page that is whole where the clock was set."""
    first, first_us = page.first, page.first_us
    for seq in sorted(clock for clock in clocks if page.first < clock <= page.last):
        before_us, at_us = clocks[seq]
        yield first, seq - 1, first_us, before_us
        first, first_us = seq, at_us
    yield first, page.last, first_us, page.last_us


def _beginning(node: str, boot: int, run: _Run, *, is_first: bool) -> list[Finding]:
    """Say that a boot begins late: with the oldest one that is how logs begin that are not kept for ever."""
    first, _, first_us, _ = run
    if first == 1:
        return []
    kind = NOT_KNOWN if is_first else GAP
    return [finding_of_log(kind, (node, boot, 1), first_us, f"lines 1 to {first - 1} are not there")]


def _stretches(node: str, boot: int, runs: list[_Run], clocks: _Clocks, found: list[Finding]) -> Iterator[Stretch]:
    """Join runs that follow each other; note what is missing between those that do not."""
    first, last, first_us, last_us = runs[0]
    for run in runs[1:]:
        if run[0] == last + 1 and run[0] not in clocks:
            last, last_us = run[1], run[3]
            continue
        for low, high in missing(last + 1, run[0] - 1, ()):
            found.append(finding_of_log(GAP, (node, boot, low), last_us, _absent(low, high)))
        yield Stretch(first, last, first_us, last_us, goes_on=run[0] == last + 1)
        first, last, first_us, last_us = run
    yield Stretch(first, last, first_us, last_us, goes_on=False)


def _absent(low: int, high: int) -> str:
    count = high - low + 1
    return f"{count} lines are missing, {low} to {high}" if count > 1 else f"line {low} is missing"


def summaries(events: "DataFrame") -> "DataFrame":
    """Give one row of numbers for each job and scope.

    `came` and `ended` are the hashes of the nodes that came to have a job, and of those that told of its end, each
    XORed with the others: where each node that came to have it tells of one end, and no other does, they are the same.
    A crash may have taken the line of a node that came to have it; `holders_...` and `enders_...` are sets of nodes,
    each of which is a bit, by two hashes, so that two of them that share one bit do not share the other.
    """
    from pyspark.sql import functions as f

    event, reason, age = f.col("event"), f.col("reason"), f.col("age_us")
    ack = (event == "cancelled") | ((event == "ack") & (reason.isNull() | reason.isin("fast", "peer")))
    own = (event == "ack") & (reason.isNull() | (reason == "fast"))
    deliver, leave, come = event == "deliver", event == "leave", event.isin("add", "replicate")
    end = ack | event.isin("expire", "delete", "evict", "refuse")
    hold = event.isin("replicate", "enqueue", "deliver", "working", "nack", "requeue", "leave", "dead", "redriven")
    node = f.xxhash64("node")

    def count(what: "Column") -> "Column":
        return f.count(f.when(what, 1))

    def bits(what: "Column", turn: int) -> "Column":
        bit = f.expr(f"shiftleft(1L, CAST(pmod(xxhash64(node, {turn}), 62) AS INT))")
        return f.coalesce(f.bit_or(f.when(what, bit)), f.lit(0).cast("bigint"))

    def nodes(what: "Column") -> "Column":
        return f.coalesce(f.bit_xor(f.when(what, node)), f.lit(0).cast("bigint"))

    return (
        events.where("job_id IS NOT NULL")
        .groupBy("job_id", "scope")
        .agg(
            f.count(f.lit(1)).alias("lines"),
            count(come).alias("comes"),
            count(end).alias("ends"),
            count(leave).alias("leaves"),
            nodes(come).alias("came"),
            nodes(end).alias("ended"),
            nodes(leave).alias("left"),
            *(bits(hold, turn).alias(f"holders_{turn}") for turn in TURNS),
            *(bits(end, turn).alias(f"enders_{turn}") for turn in TURNS),
            *(bits(leave, turn).alias(f"leavers_{turn}") for turn in TURNS),
            count(own).alias("own_acks"),
            count(ack).alias("acks"),
            count(deliver).alias("delivers"),
            count(event == "expire").alias("expires"),
            count(event == "dead").alias("deads"),
            f.max("max_tries").alias("max_tries"),
            count((reason == "once") | ((event == "add") & (f.col("retry_s") == 0))).alias("once"),
            f.min(f.when(deliver, node)).alias("one_node"),
            f.max(f.when(deliver, node)).alias("other_node"),
            f.min(f.when(ack, age)).alias("ack_age"),
            f.max(f.when(deliver, age)).alias("deliver_age"),
            f.min(f.when(ack, f.col("seq"))).alias("ack_seq"),
            f.max(f.when(deliver, f.col("seq"))).alias("deliver_seq"),
            f.min(f.col("ts_us") - f.coalesce(age, f.lit(0))).alias("created_us"),
            f.max("ttl_s").alias("ttl_s"),
        )
    )


def suspects(summed: "DataFrame", until_us: int) -> "DataFrame":
    """Give the jobs (job_id, scope, lines) that could be against a rule; `until_us`: the last time in any log."""
    from pyspark.sql import functions as f

    ttl_us = f.coalesce(f.col("ttl_s") * SECOND_US, f.lit(0.0))
    is_over = f.col("created_us") + ttl_us + SETTLE_US <= until_us
    # What is delivered at most once is gone from a node that it leaves.
    is_once = f.col("once") > 0
    ends = f.col("ends") + f.when(is_once, f.col("leaves")).otherwise(0)
    ended = f.col("ended").bitwiseXOR(f.when(is_once, f.col("left")).otherwise(0))
    is_uneven = (f.col("comes") != ends) | (f.col("came") != ended)
    for turn in TURNS:
        left = f.when(is_once, f.col(f"leavers_{turn}")).otherwise(0)
        known = f.col(f"enders_{turn}").bitwiseOR(left)
        is_uneven |= f.col(f"holders_{turn}").bitwiseAND(f.bitwise_not(known)) != 0
    is_twice = (f.col("own_acks") > 1) | (is_uneven & (f.col("acks") > 1))
    at_the_same_time = (f.col("delivers") > 1) | (f.col("acks") > 1) | (f.col("deliver_seq") > f.col("ack_seq"))
    after_ack = (f.col("deliver_age") > f.col("ack_age")) | (
        (f.col("deliver_age") == f.col("ack_age")) & at_the_same_time
    )
    doubtful = (
        f.coalesce(after_ack, f.lit(False))
        | (f.col("own_acks") > 1)
        | (f.col("scope").isNull() & is_uneven & (is_over | is_twice))
        | (is_once & (f.col("delivers") > 1))
        | f.coalesce(f.col("one_node") != f.col("other_node"), f.lit(False))
        | ((f.col("expires") > 0) & (f.col("own_acks") > 0))
        | ((f.col("deads") > 0) & (f.col("delivers") > 0))
        | f.coalesce(f.col("delivers") > f.col("max_tries"), f.lit(False))
    )
    return summed.where(doubtful).select("job_id", "scope", "lines")


def _lines_of(events: "DataFrame", doubtful: "DataFrame") -> "DataFrame":
    from pyspark.sql import functions as f

    wanted = doubtful.select(f.col("job_id").alias("id"), f.col("scope").alias("of"))
    same = (f.col("job_id") == f.col("id")) & f.col("scope").eqNullSafe(f.col("of"))
    return events.join(wanted, same, "left_semi")


def judged(events: "DataFrame", doubtful: "DataFrame", logs: EventLogs, limits: AuditTolerance) -> "DataFrame":
    """Give what is found in the lines of these jobs (job_id, scope), as rows of `FINDING`."""
    from pyspark.sql import functions as f

    line = f.struct(*(f.col(name) for name in _OF_A_LINE))
    lines = _lines_of(events, doubtful).groupBy("job_id", "scope")
    cases = lines.agg(f.to_json(f.collect_list(line)).alias("lines"))

    def judge_all(batches: "Iterator[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        return (_judge_batch(batch, logs, limits) for batch in batches)

    return cases.mapInArrow(judge_all, FINDING)


def judged_here(events: "DataFrame", doubtful: "DataFrame", logs: EventLogs, limits: AuditTolerance) -> list[Finding]:
    """Find the same in this process, which has room for so many lines."""
    cases: dict[tuple[str, str], list[EventLine]] = {}
    for row in _lines_of(events, doubtful).select("job_id", "scope", *_OF_A_LINE).toArrow().to_pylist():
        cases.setdefault((row["job_id"], row["scope"] or ""), []).append(line_of(row))
    return [
        finding for (job_id, scope), lines in cases.items() for finding in judge(job_id, scope, lines, logs, limits)
    ]


def _judge_batch(batch: "pa.RecordBatch", logs: EventLogs, limits: AuditTolerance) -> "pa.RecordBatch":
    found: list[Finding] = []
    for job_id, scope, text in zip(*(batch.column(at).to_pylist() for at in range(3)), strict=True):
        found += judge(job_id, scope or "", map(line_of, json.loads(text)), logs, limits)
    return batch_of(found)


def batch_of(found: Sequence[Finding]) -> "pa.RecordBatch":
    """What was found, as Arrow has it."""
    import pyarrow as pa

    types = {"BIGINT": pa.int64(), "STRING": pa.string()}
    names = [field.split() for field in FINDING.split(", ")]
    columns = [pa.array([getattr(finding, name) for finding in found], types[kind]) for name, kind in names]
    return pa.RecordBatch.from_arrays(columns, [name for name, _ in names])
