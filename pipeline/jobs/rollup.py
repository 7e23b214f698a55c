"""How much happened, and how long it took: counts and sketches by minute, queue and event, and by hour and day.

    events --> minutes --merge--> hours --merge--> days

A sketch (KLL) holds how many spans are distributed in some kilobytes; of up to SKETCH_K it knows each.  Sketches are
merged as counts are added, so that hours and days are made without the events.  The rank of what is read off one is
right to 0.7 % (a p99 lies between p98.3 and p99.7), 99 times of 100.

An event that is no news of its own has a name of its own here: `ack-peer`, `dead-peer` and the like, of which another
node tells; `requeue-unseen`, which takes back a delivery that nobody saw; `expire-copy` and the like, the end of a
copy, which each node tells that has one: of a job that ended the node tells that added it.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from disqued.pipeline.jobs.lifecycle import DAY_US, date_of, start_us
from disqued.pipeline.tables import ROLLUP

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MINUTE_US: Final = 60_000_000
GRAINS: Final = ("minute", "hour", "day")
SKETCH_K: Final = 400
SPANS: Final = ("wait", "run", "age")
#: Events that end a job: their age is how old jobs become.
ENDINGS: Final = ("ack", "expire", "delete", "evict")
#: Of these reasons an event has a name of its own.
APART: Final = {
    **{(event, "peer"): f"{event}-peer" for event in ("ack", "dead", "redriven", "cancelled")},
    ("requeue", "unseen"): "requeue-unseen",
}
#: Of these each node tells that holds the job.
OF_COPIES: Final = ("expire", "delete", "evict")


def of_queues(events: "DataFrame") -> "DataFrame":
    """Give what is about a queue: neither events of nodes, nor acks of jobs that a node did not know."""
    return events.where("queue IS NOT NULL")


def days_told(events: "DataFrame") -> "DataFrame":
    """Name the days, column `date`, on which these happened."""
    from pyspark.sql import functions as f

    return of_queues(events).select(date_of(f.col("ts_us")).alias("date")).distinct()


def minutes(events: "DataFrame", days: Collection[str] | None = None) -> "DataFrame":
    """Count events by minute, queue and event, as rows of ROLLUP; of these days (all, if None)."""
    from pyspark.sql import functions as f

    at, event = f.col("ts_us"), f.col("event")
    told = of_queues(events)
    if days is not None:
        told = told.where(_on(days))
    ends = event.isin(*ENDINGS)
    # A sketch costs as much as all else of a row.  What ends a job never waits, so that two of them do for three spans.
    rows = told.withColumn("event", _event()).select(
        (at - f.pmod(at, f.lit(MINUTE_US))).alias("_at"), "queue", "event", "size",
        f.when(event.isin(*ENDINGS), f.col("age_us")).otherwise(f.col("wait_us")).alias("_age_or_wait"),
        f.when(event == "ack", f.col("run_us")).alias("_run"))  # fmt: skip
    counted = rows.groupBy("_at", "queue", "event").agg(
        f.count("*").alias("count"), f.coalesce(f.sum("size"), f.lit(0)).alias("bytes"), _sketch("_age_or_wait"),
        _sketch("_run").alias("run"))  # fmt: skip
    return counted.select(f.timestamp_micros("_at").alias("at"), "queue", "event", "count", "bytes",
                          f.when(~ends, f.col("_age_or_wait")).alias("wait"), "run",
                          f.when(ends, f.col("_age_or_wait")).alias("age"), f.lit("minute").alias("grain"),
                          date_of(f.col("_at")).alias("date")).select(*ROLLUP.names)  # fmt: skip


def _event() -> "Column":
    from pyspark.sql import functions as f

    name = f.col("event")
    for (event, reason), apart in APART.items():
        name = f.when((f.col("event") == event) & (f.col("reason") == reason), f.lit(apart)).otherwise(name)
    # An id says which node added the job; those of Disque 1.0, that somebody did long ago.
    is_own = ~f.col("job_id").startswith("DI") | (f.substring("job_id", 3, 8) == f.col("node"))
    is_copy = f.col("event").isin(*OF_COPIES) & ~is_own
    return f.when(is_copy, f.concat("event", f.lit("-copy"))).otherwise(name)


def _on(days: Collection[str]) -> "Column":
    """Tell what happened on one of these days."""
    from pyspark.sql import functions as f

    told = f.lit(False)
    for start in sorted(map(start_us, days)):
        told = told | ((f.col("ts_us") >= start) & (f.col("ts_us") < start + DAY_US))
    return told


def _sketch(span: str) -> "Column":
    """Sketch the values of a column; null where there are none."""
    from pyspark.sql import functions as f

    return f.when(f.count(span) > 0, f.kll_sketch_agg_bigint(span, SKETCH_K)).alias(span)


def merged(rows: "DataFrame", grain: str) -> "DataFrame":
    """Merge rows of a finer grain to hours or days."""
    from pyspark.sql import functions as f

    sums = [f.sum(name).alias(name) for name in ("count", "bytes")]
    sketches = [f.when(f.count(name) > 0, f.kll_merge_agg_bigint(name)).alias(name) for name in SPANS]
    parts = rows.groupBy(f.date_trunc(grain, "at").alias("at"), "queue", "event", "date").agg(*sums, *sketches)
    return parts.withColumn("grain", f.lit(grain)).select(*ROLLUP.names)


#: Columns of the reports, and the events that they count.
COUNTED: Final = {
    "adds": "add", "delivers": "deliver", "acks": "ack", "nacks": "nack", "requeues": "requeue", "expires": "expire",
    "deletes": "delete", "evicts": "evict",
}  # fmt: skip
#: The event whose spans are those of a queue.
TOLD_BY: Final = {"wait": "deliver", "run": "ack", "age": "ack"}
QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def by_queue(rows: "DataFrame") -> "DataFrame":
    """Put what a queue has in an hour or a day into one row, as the reports have it; times as ISO 8601."""
    from pyspark.sql import functions as f

    def of(event: str, column: str) -> "Column":
        return f.when(f.col("event") == event, f.col(column))

    counts = [f.coalesce(f.sum(of(event, "count")), f.lit(0)).alias(name) for name, event in COUNTED.items()]
    sketches = [f.any_value(of(event, span), f.lit(True)).alias(span) for span, event in TOLD_BY.items()]
    size = f.coalesce(f.sum(of("add", "bytes")), f.lit(0)).alias("bytes")
    wide = rows.groupBy("queue", "grain", "at").agg(*counts, size, *sketches)
    quantiles = [quantile(span, rank).alias(f"{span}_{name}_us") for span in SPANS for name, rank in QUANTILES.items()]
    at = f.date_format("at", "yyyy-MM-dd'T'HH:mm:ss'Z'").alias("at")
    return wide.select("queue", "grain", at, *COUNTED, "bytes", *quantiles)


def quantile(sketch: str, rank: float) -> "Column":
    """Read a quantile off a sketch; null of none."""
    from pyspark.sql import functions as f

    return f.when(f.col(sketch).isNotNull(), f.kll_sketch_get_quantile_bigint(sketch, f.lit(rank)))
