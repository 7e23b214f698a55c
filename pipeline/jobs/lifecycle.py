"""What became of each job: one row of it, and one of what each consumer group did with an event of a log.

    events of a job on all nodes, in any order --> one aggregation by (job_id, scope, queue, group, schedule) --> a row

Every value is a minimum, a maximum or a sum, so that neither the order of events nor the number of runs that they came
in matters, and all of them are numbers while they are computed: Spark then aggregates by hashing alone.  What happened
at one moment is in the order of the numbers of the events, if one node told of it:

    order   = milliseconds since 2020 << 18 | the last 18 bits of `seq`
    ending  = how much it counts << 59 | order          the least one says how the job ended
    last    = order << 4 | kind                         the greatest one says what happened last

Clocks of nodes differ.  A job is created when its `add` says so, and else when the others let it seem so; its row is in
the part of that day.  So a part is computed of the events of jobs that may have been created then, by `SKEW_US` earlier
and later, and what turns out to be of another day is left out.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final

from disqued.pipeline.tables import LIFECYCLE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

HOUR_US: Final = 3_600_000_000
DAY_US: Final = 24 * HOUR_US
SKEW_US: Final = HOUR_US  #: how far the clocks of two nodes may be apart
BEFORE_MS: Final = 1_577_836_800_000  #: 2020-01-01: moments are counted from here, to fit into their bits
SEQ_BITS: Final = 18
KIND_BITS: Final = 4
ORDER_BITS: Final = 59
NODES_PER_MASK: Final = 62

#: Events of jobs, with their numbers.
KINDS: Final = (
    "add", "replicate", "enqueue", "deliver", "working", "nack", "requeue", "ack", "expire", "delete", "evict", "leave",
    "refuse", "dead", "redriven", "cancelled",
)  # fmt: skip
#: How a job may have ended: what counts most first.  `peer` is an ack that only other nodes tell of.
ENDS: Final = ("ack", "cancelled", "peer", "delete", "refuse", "expire", "evict")


def created_us() -> "Column":
    """When the job of an event was created, by the clock of the node that tells of it."""
    from pyspark.sql import functions as f

    return f.col("ts_us") - f.coalesce(f.col("age_us"), f.lit(0))


def of_jobs(events: "DataFrame") -> "DataFrame":
    """Give what is about a job that the node knew: neither events of nodes, nor acks of unknown jobs."""
    return events.where("job_id IS NOT NULL AND queue IS NOT NULL")


def days_of(events: "DataFrame", skew_us: int = SKEW_US) -> "DataFrame":
    """Name the days, column `date`, on which rows of these jobs may be."""
    from pyspark.sql import functions as f

    days = f.array(date_of(created_us() - skew_us), date_of(created_us() + skew_us))
    return of_jobs(events).select(f.explode(days).alias("date")).distinct()


def date_of(moment_us: "Column") -> "Column":
    """Name the day of a moment, UTC."""
    from pyspark.sql import functions as f

    return f.date_from_unix_date(f.floor(moment_us / DAY_US).cast("int")).cast("string")


def lifecycle(
    events: "DataFrame", nodes: Sequence[str], *, days: Collection[str] | None = None,
    flushes: Mapping[str, Iterable[tuple[int, int]]] | None = None, groups: bool = True, skew_us: int = SKEW_US,
) -> "DataFrame":  # fmt: skip
    """Tell what became of each job, as rows of LIFECYCLE.

    `events` are all there are of these jobs, with the column `node`; `nodes` are all values of it.  Of `days` alone
    (all, if None) there are rows.  `flushes` says when each node forgot all that it had, as (ts_us, seq).  Without
    `groups` what consumer groups did is left out, which takes half the time where there is none.
    """
    from pyspark.sql import functions as f

    known = of_jobs(events)
    if days is not None:
        known = known.where(_may_be_of(days, skew_us))
    known = _numbered(known, nodes)
    work = _told(_aggregated(known.where("scope IS NULL")), nodes, flushes or {})
    rows = work.select(*LIFECYCLE.names)
    if groups:
        scoped = _told(_aggregated(known.where("scope IS NOT NULL")), nodes, {})
        rows = rows.union(_of_groups(scoped, work))
    if days is None:
        return rows
    return rows.where(f.col("date").isin(sorted(days)))


def _may_be_of(days: Collection[str], skew_us: int) -> "Column":
    """Tell events of jobs that may have been created on one of these days; days in a row are one span."""
    from pyspark.sql import functions as f

    spans: list[list[int]] = []
    for start in sorted(map(start_us, days)):
        if spans and spans[-1][1] == start:
            spans[-1][1] = start + DAY_US
        else:
            spans.append([start, start + DAY_US])
    told = f.lit(False)
    for start, end in spans:
        told = told | created_us().between(start - skew_us, end + skew_us)
    return told


def start_us(day: str) -> int:
    """When a day begins, in microseconds since 1970."""
    return (date.fromisoformat(day) - date(1970, 1, 1)).days * DAY_US


def day_of(moment_us: int) -> str:
    """Name the day of a moment, UTC."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment_us)).date().isoformat()


# One aggregation.


def _numbered(events: "DataFrame", nodes: Sequence[str]) -> "DataFrame":
    """Put numbers where there are texts: what happened, in which order, and where."""
    from pyspark.sql import functions as f

    kind = _chosen("event", {name: number for number, name in enumerate(KINDS)}).alias("_kind")
    where = _chosen("node", {name: number for number, name in enumerate(nodes)}).alias("_where")
    masks = [
        _chosen("node", {name: 1 << bit for bit, name in enumerate(some)}).cast("long").alias(f"_mask{number}")
        for number, some in enumerate(_masks(nodes))
    ]
    order = f.shiftleft(f.floor(f.col("ts_us") / 1_000) - BEFORE_MS, SEQ_BITS).bitwiseOR(
        f.col("seq").bitwiseAND((1 << SEQ_BITS) - 1)
    )
    unseen = f.coalesce((f.col("event") == "requeue") & (f.col("reason") == "unseen"), f.lit(False))
    own = (f.col("event") == "ack") & ~f.coalesce(f.col("reason").isin("peer", "unknown", "fast-unknown"), f.lit(False))
    return events.select("job_id", "scope", "queue", "group", "schedule", "ts_us", "age_us", "wait_us", "run_us",
                         "ttl_s", "retry_s", "delay_s", "repl", "size", "max_tries", "result_size",
                         created_us().alias("_created"), kind, where, order.alias("_order"),
                         unseen.alias("_unseen"), own.alias("_own"),
                         f.coalesce(f.col("attempt"), f.lit(1)).alias("_attempt"), *masks)  # fmt: skip


def _masks(nodes: Sequence[str]) -> list[Sequence[str]]:
    """Share nodes out among masks of as many bits as a number has."""
    return [nodes[start : start + NODES_PER_MASK] for start in range(0, len(nodes), NODES_PER_MASK)]


def _chosen(column: str, numbers: Mapping[str, int]) -> "Column":
    """Give the number of a text; null for others."""
    from pyspark.sql import functions as f

    choice = f.lit(None).cast("int")
    for name, number in numbers.items():
        choice = f.when(f.col(column) == name, f.lit(number)).otherwise(choice)
    return choice


def _aggregated(events: "DataFrame") -> "DataFrame":
    """Aggregate numbered events by job: sums, minima and maxima of numbers."""
    from pyspark.sql import functions as f

    def is_(name: str) -> "Column":
        return f.col("_kind") == KINDS.index(name)

    deliver, order = is_("deliver"), f.col("_order")
    first, unseen_first = deliver & (f.col("_attempt") <= 1), f.col("_unseen") & (f.col("_attempt") <= 1)
    ends = f.when(f.col("_own"), 0).when(is_("ack"), ENDS.index("peer"))
    for name in set(ENDS) - {"ack", "peer"}:
        ends = ends.when(is_(name), ENDS.index(name))
    ending = f.shiftleft(ends.cast("long"), ORDER_BITS).bitwiseOR(order)
    # Every event of a job has its group and schedule: a maximum of texts would be an aggregation by sorting.
    return events.groupBy("job_id", "scope", "queue", "group", "schedule").agg(
        f.max("size").alias("size"), f.max("ttl_s").alias("ttl_s"), f.max("retry_s").alias("retry_s"),
        f.max("delay_s").alias("delay_s"), f.max("repl").alias("repl"),
        f.min(f.when(is_("add"), f.col("_where"))).alias("_added_by"),
        f.min(f.when(is_("add"), f.col("ts_us"))).alias("_added_us"), f.min("_created").alias("_created"),
        f.count_if(deliver).alias("_delivers"), f.count_if(f.col("_unseen")).alias("_unseen"),
        f.count_if(first).alias("_firsts"), f.count_if(unseen_first).alias("_unseen_firsts"),
        f.min(f.when(deliver, order)).alias("_first"), f.min_by("wait_us", f.when(deliver, order)).alias("_wait"),
        f.max(f.when(first, order)).alias("_again"), f.max_by("wait_us", f.when(first, order)).alias("_again_wait"),
        f.min(f.when(deliver & ~first, order)).alias("_later"),
        f.min_by("wait_us", f.when(deliver & ~first, order)).alias("_later_wait"),
        f.max(f.when(deliver, f.col("ts_us"))).alias("_last_deliver"), f.count_if(is_("nack")).alias("nacks"),
        f.count_if(is_("requeue")).alias("_requeues"), f.count_if(f.col("_own")).alias("acks"),
        f.min(ending).alias("_ending"), f.min_by("ts_us", ending).alias("_ended"),
        f.min_by("age_us", ending).alias("_age"), f.min_by("run_us", f.when(f.col("_own"), order)).alias("run_us"),
        f.max(f.shiftleft(order, KIND_BITS).bitwiseOR(f.col("_kind").cast("long"))).alias("_last"),
        f.max("ts_us").alias("last_us"), f.max("max_tries").alias("max_tries"),
        f.max("result_size").alias("result_size"), f.max(f.when(is_("dead"), f.col("ts_us"))).alias("dead_us"),
        f.max(f.when(is_("redriven"), f.col("ts_us"))).alias("redriven_us"),
        *(f.bit_or(name).alias(name) for name in events.columns if name.startswith("_mask")))  # fmt: skip


# From numbers to what they mean.


def _told(rows: "DataFrame", nodes: Sequence[str], flushes: Mapping[str, Iterable[tuple[int, int]]]) -> "DataFrame":
    """Give the columns of LIFECYCLE."""
    from pyspark.sql import functions as f

    masks = [name for name in rows.columns if name.startswith("_mask")]
    bits = [f.bit_count(f.coalesce(f.col(name), f.lit(0).cast("long"))) for name in masks]
    created = f.coalesce("_added_us", "_created")
    deliveries = f.greatest(f.col("_delivers") - f.col("_unseen"), f.lit(0))
    rows = rows.withColumns(
        {
            "node": _names(nodes, f.col("_added_by")),
            "created_us": created,
            "date": date_of(created),
            "deliveries": deliveries.cast("int"),
            "first_deliver_us": _when_ms(_seen(f.col("_first"), f.col("_again"), f.col("_later"))),
            "wait_us": _seen(f.col("_wait"), f.col("_again_wait"), f.col("_later_wait")),
            "last_deliver_us": f.when(deliveries > 0, f.col("_last_deliver")),
            "nacks": f.col("nacks").cast("int"),
            "requeues": (f.col("_requeues") - f.col("_unseen")).cast("int"),
            "acks": f.col("acks").cast("int"),
            "end": _names([{"peer": "ack"}.get(name, name) for name in ENDS], f.shiftright("_ending", ORDER_BITS)),
            "ended_us": f.col("_ended"),
            "age_us": f.col("_age"),
            "nodes": sum(bits, f.lit(0)).cast("int"),
            "last_event": _names(KINDS, f.col("_last").bitwiseAND((1 << KIND_BITS) - 1)),
        }
    )
    return _flushed(rows, nodes, flushes)


def _seen(first: "Column", again: "Column", later: "Column") -> "Column":
    """Choose what is of the first delivery that its consumer saw: the first, or the last of those that were tried."""
    from pyspark.sql import functions as f

    tried = f.when(f.col("_firsts") > f.col("_unseen_firsts"), again).otherwise(later)
    return f.when(f.col("_delivers") > f.col("_unseen"), f.when(f.col("_unseen_firsts") == 0, first).otherwise(tried))


def _order_of(ts_us: int, seq: int) -> int:
    """The order of one event."""
    return (ts_us // 1_000 - BEFORE_MS) << SEQ_BITS | seq & ((1 << SEQ_BITS) - 1)


def _when_ms(order: "Column") -> "Column":
    """The moment of an order, in microseconds."""
    from pyspark.sql import functions as f

    return (f.shiftright(order, SEQ_BITS) + BEFORE_MS) * 1_000


def _names(names: Sequence[str], number: "Column") -> "Column":
    from pyspark.sql import functions as f

    if not names:
        return f.lit(None).cast("string")
    return f.when(number.isNotNull() & (number >= 0), f.get(f.array(*map(f.lit, names)), number.cast("int")))


def _flushed(rows: "DataFrame", nodes: Sequence[str], flushes: Mapping[str, Iterable[tuple[int, int]]]) -> "DataFrame":
    """End jobs that are open and whose nodes have all forgotten what they had, after somebody last told of them."""
    from pyspark.sql import functions as f

    whole, when, last = f.lit(True), f.lit(None).cast("bigint"), f.shiftright("_last", KIND_BITS)
    for number, node in enumerate(nodes):
        mask, bit = divmod(number, NODES_PER_MASK)
        told = f.coalesce(f.col(f"_mask{mask}"), f.lit(0)).bitwiseAND(1 << bit) != 0
        moment = f.lit(None).cast("bigint")
        for ts_us, seq in sorted(flushes.get(node, ()), reverse=True):
            moment = f.when(last <= _order_of(ts_us, seq), f.lit(ts_us)).otherwise(moment)
        whole, when = whole & (~told | moment.isNotNull()), f.greatest(when, f.when(told, moment))
    if not any(flushes.get(node) for node in nodes):
        return rows
    gone = f.col("end").isNull() & whole
    return rows.withColumns(
        {
            "age_us": f.when(gone, when - f.col("created_us")).otherwise(f.col("age_us")),
            "ended_us": f.when(gone, when).otherwise(f.col("ended_us")),
            "end": f.when(gone, f.lit("flush")).otherwise(f.col("end")),
        }
    )


def _of_groups(scoped: "DataFrame", work: "DataFrame") -> "DataFrame":
    """Give rows of groups what they share with the event: how it was added, its day, and its end if theirs is open."""
    from pyspark.sql import functions as f

    shared = ("node", "size", "ttl_s", "retry_s", "delay_s", "repl", "created_us", "date")
    ends = ("end", "ended_us", "age_us")
    heads = work.select(f.col("job_id").alias("_job"), *(f.col(name).alias(f"_head_{name}") for name in shared + ends))
    is_open = f.col("end").isNull()
    columns = {name: f.col(name) for name in LIFECYCLE.names}
    columns |= {name: f.coalesce(f.col(f"_head_{name}"), f.col(name)) for name in shared}
    columns |= {name: f.when(is_open, f.col(f"_head_{name}")).otherwise(f.col(name)) for name in ends}
    joined = scoped.join(heads, f.col("job_id") == f.col("_job"), "left")
    return joined.select(*(column.alias(name) for name, column in columns.items()))
