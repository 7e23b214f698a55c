"""How well queues are served, day by day: latencies, and how many were over their target; read off sketches.

    measure   from                          is
    wait      `deliver`                     how long a job was in the queue before a consumer had it
    run       `ack`                         how long a consumer had it before its ack
    age       `ack`                         how old a job was when it was done

`redelivery` is the share of deliveries that were not the last: those that a nack or a requeue followed.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

from disqued.pipeline.errors import Misused
from disqued.pipeline.jobs.rollup import QUANTILES, SPANS, TOLD_BY, quantile
from disqued.pipeline.tables import SLO

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

UNITS_US: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
SPAN: Final = re.compile(r"(\d+(?:[.]\d+)?)(us|ms|s|m|h|d)")


@attrs.frozen
class SloTarget:
    """What a measure of a queue is not to be longer than; of every queue that has none of its own, if it names none."""

    measure: str
    span_us: int
    queue: str | None = None


def target_of(word: str) -> SloTarget:
    """Read a target off `wait=1s` or `mail:wait=500ms`.  Raises Misused."""
    left, equals, span = word.rpartition("=")
    queue, colon, measure = left.rpartition(":")
    if not equals or measure not in SPANS or (colon and not queue):
        raise Misused(
            f"--target {word!r} is none: it is written MEASURE=SPAN or QUEUE:MEASURE=SPAN, of {', '.join(SPANS)}"
        )
    return SloTarget(measure, _span_us(word, span), queue if colon else None)


def _span_us(word: str, span: str) -> int:
    found = SPAN.fullmatch(span)
    if found is None:
        raise Misused(f"--target {word!r}: a span is a number and one of {', '.join(UNITS_US)}, such as 500ms or 1.5s")
    return round(float(found[1]) * UNITS_US[found[2]])


def slo(days: "DataFrame", targets: Iterable[SloTarget] = ()) -> "DataFrame":
    """Tell how queues were served, as rows of SLO, from rows of the rollup of grain `day`."""
    from pyspark.sql import functions as f

    wanted = list(targets)

    def of(event: str, column: str) -> "Column":
        return f.when(f.col("event") == event, f.col(column))

    def counted(*events: str) -> "Column":
        return f.coalesce(f.sum(f.when(f.col("event").isin(*events), f.col("count"))), f.lit(0))

    sketches = [f.any_value(of(event, span), f.lit(True)).alias(span) for span, event in TOLD_BY.items()]
    queues = days.groupBy("date", "queue").agg(
        *sketches,
        (counted("deliver") - counted("requeue-unseen")).alias("deliveries"),
        counted("nack", "requeue").alias("redeliveries"),
    )
    measures = f.explode(
        f.array(*(f.struct(f.lit(span).alias("measure"), f.col(span).alias("sketch")) for span in SPANS))
    )
    rows = queues.select("date", "queue", "deliveries", "redeliveries", measures.alias("_")).select("*", "_.*")
    rows = rows.where("sketch IS NOT NULL").withColumn("target_us", _target(wanted))
    share = f.when(f.col("deliveries") > 0, f.col("redeliveries") / f.col("deliveries"))
    quantiles = [quantile("sketch", rank).alias(f"{name}_us") for name, rank in QUANTILES.items()]
    return rows.select("queue", "measure", f.kll_sketch_get_n_bigint("sketch").alias("count"), *quantiles, "target_us",
                       _over(wanted).alias("over"), "deliveries", "redeliveries", share.alias("redelivery"),
                       "date").select(*SLO.names)  # fmt: skip


def _target(targets: list[SloTarget]) -> "Column":
    """Choose the target of a row: that of its queue, or that of all."""
    from pyspark.sql import functions as f

    choice = f.lit(None).cast("bigint")
    for target in sorted(targets, key=lambda target: target.queue is not None):
        hit = f.col("measure") == target.measure
        if target.queue is not None:
            hit = hit & (f.col("queue") == target.queue)
        choice = f.when(hit, f.lit(target.span_us)).otherwise(choice)
    return choice.cast("bigint")


def _over(targets: list[SloTarget]) -> "Column":
    """Tell the share above the target of a row; Spark wants each target by itself."""
    from pyspark.sql import functions as f

    share = f.lit(None).cast("double")
    for span_us in sorted({target.span_us for target in targets}):
        rank = f.kll_sketch_get_rank_bigint("sketch", f.lit(span_us).cast("bigint"))
        share = f.when(f.col("target_us") == span_us, 1 - rank).otherwise(share)
    return share


def texts(targets: Iterable[SloTarget]) -> list[str]:
    """Name targets so that equal ones have equal names, in order."""
    return sorted(f"{target.queue or ''}:{target.measure}={target.span_us}" for target in targets)


def days_to_do(now: Mapping[str, int], then: Mapping[str, int]) -> list[str]:
    """Name the days whose version is another than it was, sorted."""
    return sorted(day for day, version in now.items() if then.get(day) != version)
