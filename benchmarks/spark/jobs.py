"""The jobs of disqued-spark, each beside the same question in Spark SQL as one would write it, and in DuckDB.

    files of the event log --ingest--> Parquet --lifecycle, rollup, slo, audit--> computed, and thrown away

What is written by hand answers the plain question: it knows nothing of events that come late, of clocks that differ or
of runs that were killed.  The audit stands beside all of its rules (`audit_sql`), which must find as much in the same
history; and beside four of them, which is what one would ask who is in a hurry.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from benchmarks.figures import Goal, Row, ratios, spread
from benchmarks.spark.audit_sql import counted, found_by_duckdb, found_by_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GOAL: Final = Goal(1.3)
SPARK: Final = "Spark SQL by hand"

# The types are said in both, for neither is to guess.
HIVE: Final = "hive_partitioning = true, hive_types_autocast = false"
JSON_IN_DUCKDB: Final = "read_json('{files}', format = 'newline_delimited', columns = {{{columns}}}, {hive})"
PARQUET_IN_DUCKDB: Final = "read_parquet('{files}', {hive})"

LIFECYCLE: Final = """
    SELECT job_id, scope, queue,
           min(CASE WHEN event = 'add' THEN node END) AS node, max(size) AS size, max(ttl_s) AS ttl_s,
           max(retry_s) AS retry_s, max(delay_s) AS delay_s, max(repl) AS repl,
           coalesce(min(CASE WHEN event = 'add' THEN ts_us END), min(ts_us - coalesce(age_us, 0))) AS created_us,
           min(CASE WHEN event = 'deliver' THEN ts_us END) AS first_deliver_us,
           max(CASE WHEN event = 'deliver' THEN ts_us END) AS last_deliver_us,
           sum(CASE WHEN event = 'deliver' THEN 1 ELSE 0 END) AS deliveries,
           sum(CASE WHEN event = 'nack' THEN 1 ELSE 0 END) AS nacks,
           sum(CASE WHEN event = 'requeue' THEN 1 ELSE 0 END) AS requeues,
           sum(CASE WHEN event = 'ack' AND reason IS NULL THEN 1 ELSE 0 END) AS acks,
           min(CASE WHEN event IN ('ack', 'expire', 'delete', 'evict', 'refuse') THEN event END) AS ending,
           min(CASE WHEN event IN ('ack', 'expire', 'delete', 'evict', 'refuse') THEN ts_us END) AS ended_us,
           {first}(wait_us, CASE WHEN event = 'deliver' THEN ts_us END) AS wait_us,
           max(CASE WHEN event = 'ack' THEN run_us END) AS run_us,
           max(CASE WHEN event = 'ack' THEN age_us END) AS age_us,
           count(DISTINCT node) AS nodes, {last}(event, ts_us) AS last_event, max(ts_us) AS last_us
    FROM events WHERE job_id IS NOT NULL GROUP BY job_id, scope, queue
"""
ROLLUP: Final = """
    SELECT ts_us - ts_us % 60000000 AS minute, queue, event, count(*) AS count, sum(size) AS bytes,
           {quantiles}
    FROM events WHERE queue IS NOT NULL GROUP BY 1, 2, 3
"""
SLO: Final = """
    SELECT ts_us - ts_us % 86400000000 AS day, queue, {quantiles},
           sum(CASE WHEN event = 'deliver' THEN 1 ELSE 0 END) AS deliveries,
           sum(CASE WHEN event = 'deliver' AND attempt > 1 THEN 1 ELSE 0 END) AS redeliveries
    FROM events WHERE queue IS NOT NULL GROUP BY 1, 2
"""
FOUR_RULES: Final = """
    SELECT job_id, sum(CASE WHEN event = 'ack' AND reason IS NULL THEN 1 ELSE 0 END) AS acks,
           max(CASE WHEN event IN ('ack', 'expire', 'delete', 'evict', 'refuse') THEN 1 ELSE 0 END) AS ended,
           max(CASE WHEN event = 'deliver' THEN ts_us END) AS delivered_us,
           min(CASE WHEN event = 'ack' THEN ts_us END) AS acked_us,
           min(ts_us - coalesce(age_us, 0)) + max(ttl_s) * 1000000 AS over_us
    FROM events WHERE job_id IS NOT NULL GROUP BY job_id
    HAVING sum(CASE WHEN event = 'ack' AND reason IS NULL THEN 1 ELSE 0 END) > 1
        OR max(CASE WHEN event IN ('ack', 'expire', 'delete', 'evict', 'refuse') THEN 1 ELSE 0 END) = 0
        OR max(CASE WHEN event = 'deliver' THEN ts_us END) > min(CASE WHEN event = 'ack' THEN ts_us END)
    UNION ALL
    SELECT concat(node, ' ', boot), count(DISTINCT seq), max(seq), min(seq), count(*), NULL
    FROM events GROUP BY node, boot HAVING count(DISTINCT seq) <> max(seq)
"""


def _quantiles(function: str) -> str:
    return ", ".join(f"{function.format(f'{span}_us')} AS {span}" for span in ("wait", "run", "age"))


OF_SPARK: Final = {
    "first": "min_by", "last": "max_by", "quantiles": _quantiles("percentile_approx({}, array(0.5, 0.95, 0.99))"),
}  # fmt: skip
OF_DUCKDB: Final = {
    "first": "arg_min", "last": "arg_max", "quantiles": _quantiles("approx_quantile({}, [0.5, 0.95, 0.99])"),
}  # fmt: skip


@attrs.define
class Place:
    """What the jobs are given."""

    spark: "SparkSession"
    logs: Path  #: published files
    work: Path  #: where is room
    events: int
    rounds: int

    @property
    def parquet(self) -> Path:
        """The events as a table, made by `ingest`."""
        return self.work / "tables" / "events"

    def table(self) -> "DataFrame":
        """Read it."""
        from disqued.pipeline.tables import EVENTS

        return self.spark.read.schema(EVENTS.schema).parquet(str(self.parquet))


@attrs.frozen
class Job:
    """A job, and the same by hand: each a function that does it once."""

    name: str
    title: str
    ours: Callable[[Place], None]
    by_hand: Callable[[Place], None]
    in_duckdb: Callable[[Place], Any]
    goal: Goal | None = GOAL

    def take(self, place: Place) -> Row:
        """Measure it in turns: seconds as events per second."""
        ways = (self.ours, self.by_hand, self.in_duckdb)
        for way in ways:
            way(place)  # classes are loaded, code is compiled, files are in memory
        rates: list[list[float]] = [[], [], []]
        for turn in range(place.rounds):
            # None of them always comes behind the same other one, of which caches and collectors may still be full.
            for at in (turn % 3, (turn + 1) % 3, (turn + 2) % 3):
                began = time.perf_counter()
                ways[at](place)
                rates[at].append(place.events / (time.perf_counter() - began))
        ours, theirs, others = rates
        name = f"{self.name}-{round(place.events / 1_000_000)}m"
        return Row(
            name, self.title, "events/s", spread(ours), SPARK, spread(theirs), ratios(theirs, ours), self.goal,
            place.rounds, note="the ratio is that of the times", beside="DuckDB", others=spread(others),
        )  # fmt: skip


def _thrown_away(rows: "DataFrame") -> None:
    rows.write.format("noop").mode("overwrite").save()


def _asked(place: Place, question: str) -> None:
    place.table().createOrReplaceTempView("events")
    _thrown_away(place.spark.sql(question.format(**OF_SPARK)))


def _asked_duckdb(place: Place, question: str) -> None:
    import duckdb

    with duckdb.connect() as database:
        source = PARQUET_IN_DUCKDB.format(files=f"{place.parquet}/**/*.parquet", hive=HIVE)
        database.execute(f"CREATE VIEW events AS SELECT * FROM {source}")
        database.execute(f"CREATE TABLE answer AS {question.format(**OF_DUCKDB)}")


def _empty(place: Place, name: str) -> Path:
    path = place.work / name
    shutil.rmtree(path, ignore_errors=True)
    return path


def _ingest(place: Place) -> None:
    from click.testing import CliRunner

    from disqued.pipeline.commands.ingest import command

    tables = _empty(place, "tables")
    words = ["--events", str(place.logs), "--tables", str(tables), "--quiet"]
    done = CliRunner().invoke(command, words, catch_exceptions=False)
    if done.exit_code:
        raise RuntimeError(done.output)


def _ingest_by_hand(place: Place) -> None:
    from disqued.pipeline.events import SCHEMA

    path = _empty(place, "by-hand")
    rows = place.spark.read.schema(SCHEMA).json(str(place.logs))
    rows.write.partitionBy("date", "node").parquet(str(path))


def _ingest_duckdb(place: Place) -> None:
    import duckdb

    from disqued.wire.eventlines import COLUMNS

    path = _empty(place, "duckdb")
    path.mkdir()
    columns = ", ".join(f"'{name}': '{kind.replace('STRING', 'VARCHAR')}'" for name, kind in COLUMNS)
    source = JSON_IN_DUCKDB.format(files=f"{place.logs}/*/*/*.jsonl", columns=columns, hive=HIVE)
    with duckdb.connect() as database:
        database.execute(f"COPY (SELECT * FROM {source}) TO '{path}' (FORMAT parquet, PARTITION_BY (date, node))")


def _lifecycle(place: Place) -> None:
    from benchmarks.spark.events import NODES
    from disqued.pipeline.jobs.lifecycle import lifecycle

    _thrown_away(lifecycle(place.table(), NODES, groups=False))


def _rollup(place: Place) -> None:
    from disqued.pipeline.jobs.rollup import minutes

    _thrown_away(minutes(place.table()))


def _slo(place: Place) -> None:
    from disqued.pipeline.jobs.rollup import merged, minutes
    from disqued.pipeline.jobs.slo import slo

    kept = place.work / "minutes"
    if not kept.exists():
        minutes(place.table()).write.parquet(str(kept))
    _thrown_away(slo(merged(place.spark.read.parquet(str(kept)), "day")))


def _audit(place: Place) -> None:
    from disqued.pipeline.audited import audited

    _thrown_away(audited(place.table()).findings)


def _audit_by_hand(place: Place) -> None:
    for found in found_by_spark(place.spark, place.table()):
        _thrown_away(found)
    place.spark.table("stretches").unpersist()


def _audit_duckdb(place: Place) -> dict[str, int]:
    import duckdb

    with duckdb.connect() as database:
        source = PARQUET_IN_DUCKDB.format(files=f"{place.parquet}/**/*.parquet", hive=HIVE)
        database.execute(f"CREATE VIEW events AS SELECT * FROM {source}")
        return counted(*found_by_duckdb(database))


def check_audits(place: Place) -> dict[str, int]:
    """Count what an audit finds, by kind; all three must come to the same.  Raises RuntimeError."""
    from disqued.pipeline.audited import audited

    ours = audited(place.table()).counts
    rows = found_by_spark(place.spark, place.table())
    by_hand = counted(*([row.asDict() for row in found.collect()] for found in rows))
    place.spark.table("stretches").unpersist()
    in_duckdb = _audit_duckdb(place)
    if not ours == by_hand == in_duckdb:
        raise RuntimeError(f"audits differ: {ours}, by hand {by_hand}, in DuckDB {in_duckdb}")
    return ours


def _by_hand(question: str) -> tuple[Callable[[Place], None], Callable[[Place], None]]:
    return (lambda place: _asked(place, question), lambda place: _asked_duckdb(place, question))


JOBS: Final[Sequence[Job]] = (
    Job("ingest", "event logs into Parquet", _ingest, _ingest_by_hand, _ingest_duckdb),
    Job("lifecycle", "one row per job", _lifecycle, *_by_hand(LIFECYCLE)),
    Job("rollup", "minutes, with what percentiles are read off", _rollup, *_by_hand(ROLLUP)),
    Job("slo", "percentiles of a day: of the minutes that rollup keeps; by hand of events", _slo, *_by_hand(SLO)),
    Job("audit", "every rule of the audit", _audit, _audit_by_hand, _audit_duckdb),
    Job("audit-four", "every rule of the audit; by hand four of them", _audit, *_by_hand(FOUR_RULES), goal=None),
)
NAMES: Final = [job.name for job in JOBS]


def measure(place: Place, names: Sequence[str], tell: Callable[[Row], Any]) -> None:
    """Take these measures; `ingest` is run in any case, for the others stand on it."""
    if "ingest" not in names:
        _ingest(place)
    for job in JOBS:
        if job.name in names:
            if job.name == "audit":
                check_audits(place)
            tell(job.take(place))
