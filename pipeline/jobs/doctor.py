"""The doctor: what goes wrong with queues, read off what became of their jobs, and what to do about it.

    lifecycle --jobs that fit a kind--> by kind and queue: how many, since when, the worst of them

    stuck          delivered, and neither done nor given up for long
    hot            delivered again and again, since nobody acknowledged it in time
    poison         given back again and again (NACK)
    no_consumers   jobs wait, and nobody has taken any from their queue for long
    unseen         expired, and nobody ever had them

A job may be of several kinds.  What a group did with an event is judged as a job is; the event itself is not, for
nobody takes it out of its queue.  Times are microseconds.
"""

from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SECOND_US: Final = 1_000_000

STUCK: Final = "stuck"
HOT: Final = "hot"
POISON: Final = "poison"
NO_CONSUMERS: Final = "no_consumers"
UNSEEN: Final = "unseen"

#: What each kind means, and what to do, in the order in which they are told.
ADVICE: Final = {
    POISON: (
        "Consumers give these jobs back (NACK). Look at the body of one (SHOW, or the page) and at the log of the "
        "consumer: what is wrong with the body is wrong each time. Let consumers move a job to a queue for the dead "
        "when its count of nacks is too high (GETJOB WITHCOUNTERS), or delete it (DELJOB)."
    ),
    HOT: (
        "Nobody acknowledges these jobs before their RETRY is over, so that they are delivered again. Either "
        "consumers die over them, or they take longer than RETRY: add jobs with a longer one, or let consumers say "
        "WORKING now and then. See that consumers say ACKJOB at all."
    ),
    STUCK: (
        "These jobs were delivered and are neither done nor given up. Where RETRY is long a consumer that died keeps "
        "a job for as long: NACK or ENQUEUE brings it back at once. Where consumers are at work on them, they are "
        "slow, or too few."
    ),
    NO_CONSUMERS: (
        "Jobs wait and nobody takes them. See whether consumers of this queue run, whether they ask for it by this "
        "very name, and whether it is paused (PAUSE queue state). QSTAT queue says how many wait on a node."
    ),
    UNSEEN: (
        "The TTL of these jobs ended before anybody had them. There were too few consumers, or none, or a delay "
        "longer than the TTL; where such jobs matter, give them a longer TTL and watch how long jobs wait."
    ),
}  # fmt: skip


@attrs.frozen
class DoctorThresholds:
    """From when on something is worth telling."""

    stuck_us: int = 3_600 * SECOND_US  #: after the delivery
    idle_us: int = 600 * SECOND_US  #: without a delivery, while jobs wait
    hot: int = 10  #: times that a job was queued again
    poison: int = 5  #: times that a job was given back


def until(lifecycle: "DataFrame") -> int:
    """The time of the last event, which is what long ago is counted from; 0 where there are no jobs."""
    from pyspark.sql import functions as f

    return int(lifecycle.agg(f.max("last_us")).first()[0] or 0)  # type: ignore[index]


def diagnosed(lifecycle: "DataFrame", until_us: int, limits: DoctorThresholds | None = None) -> "DataFrame":
    """Give what is wrong, as rows of `tables.FINDINGS` without their date: one for each kind and queue."""
    from pyspark.sql import functions as f

    limits = limits or DoctorThresholds()
    jobs = _units(lifecycle)
    rows = _by_queue(jobs.where(f.col("nacks") >= limits.poison), POISON, f.col("nacks"), "given back {} times")
    rows = rows.unionAll(
        _by_queue(jobs.where(f.col("requeues") >= limits.hot), HOT, f.col("requeues"), "queued again {} times")
    )
    open_ = jobs.where(f.col("end").isNull())
    # Nobody has to acknowledge what is delivered at most once.
    is_once = f.coalesce(f.col("retry_s") == 0, f.lit(False))
    is_stuck = (f.col("last_deliver_us") < until_us - limits.stuck_us) & ~is_once
    since = f.round((until_us - f.col("last_deliver_us")) / SECOND_US).cast("bigint")
    rows = rows.unionAll(_by_queue(open_.where(is_stuck), STUCK, since, "delivered {} s ago"))
    rows = rows.unionAll(_unserved(jobs, until_us, limits))
    is_unseen = (f.col("end") == "expire") & (f.col("deliveries") == 0)
    ttl = f.greatest(f.lit(1), f.round(f.coalesce(f.col("ttl_s"), f.col("age_us") / SECOND_US)).cast("bigint"))
    return rows.unionAll(_by_queue(jobs.where(is_unseen), UNSEEN, ttl, "expired after {} s"))


def _units(lifecycle: "DataFrame") -> "DataFrame":
    """Leave out events of logs themselves: what counts is what groups do with them."""
    from pyspark.sql import functions as f

    logs = lifecycle.where("scope IS NOT NULL AND scope <> ''").select(f.col("job_id").alias("event")).distinct()
    is_event = (f.col("job_id") == f.col("event")) & f.coalesce(f.col("scope") == "", f.lit(True))
    counted = f.coalesce(f.col("nacks"), f.lit(0)), f.coalesce(f.col("requeues"), f.lit(0))
    units = (
        lifecycle.join(logs, is_event, "left_anti").withColumn("nacks", counted[0]).withColumn("requeues", counted[1])
    )
    return units.withColumn("deliveries", f.coalesce(f.col("deliveries"), f.lit(0)))


def _by_queue(jobs: "DataFrame", kind: str, measure: "Column", said: str) -> "DataFrame":
    """Give one row for each queue: how many jobs, since when, and the one for which the measure is highest."""
    from pyspark.sql import functions as f

    before, _, after = said.partition("{}")
    count, most = f.count(f.lit(1)), f.max(measure)
    # Of several that are alike always the same one.
    worst = f.max_by("job_id", f.struct(measure.alias("measure"), f.col("job_id")))
    detail = f.concat(f.lit(before), most.cast("string"), f.lit(f"{after}, at most"))
    return (
        jobs.groupBy("queue")
        .agg(worst.alias("job_id"), count.alias("count"), f.min("created_us").alias("since_us"), detail.alias("detail"))
        .select(f.lit(kind).alias("kind"), "queue", "job_id", "count", "since_us", "detail")
    )


def _unserved(jobs: "DataFrame", until_us: int, limits: DoctorThresholds) -> "DataFrame":
    """Find queues from which nobody has taken anything for long, though jobs wait there."""
    from pyspark.sql import functions as f

    due_us = f.col("created_us") + f.coalesce(f.col("delay_s"), f.lit(0.0)) * SECOND_US
    waits = f.col("end").isNull() & (f.col("deliveries") == 0) & (due_us < until_us - limits.idle_us)
    first = f.struct(f.col("created_us"), f.col("job_id"))
    queues = jobs.groupBy("queue").agg(
        f.count(f.when(waits, 1)).alias("count"),
        f.min(f.when(waits, f.col("created_us"))).alias("since_us"),
        f.min_by("job_id", f.when(waits, first)).alias("job_id"),
        f.max("last_deliver_us").alias("served_us"),
    )
    idle_s = f.round((until_us - f.col("served_us")) / SECOND_US).cast("bigint").cast("string")
    ago = f.concat(f.lit("the last delivery was "), idle_s, f.lit(" s ago"))
    is_idle = f.coalesce(f.col("served_us") < until_us - limits.idle_us, f.lit(True))
    detail = f.coalesce(ago, f.lit("nobody has had a job of it"))
    return queues.where((f.col("count") > 0) & is_idle).select(
        f.lit(NO_CONSUMERS).alias("kind"), "queue", "job_id", "count", "since_us", detail.alias("detail")
    )
