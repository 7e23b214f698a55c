"""Every rule of the audit in SQL, as one would write it who has all events in one table and SQL alone.

    events --STRETCHES--> what there is of the logs: lines without a gap and without a clock that was set
      |                       |
      +-----------JOBS--------+--> a row for each job and scope that something is found of: how often each kind

Lines of a job are put in order by windows, those of one node by (boot, seq), those of all nodes by age.  What the rules
are is told in docs/explanation/audit.md; the limits are those that the verb audit has by itself.  Both statements are
for Spark and for DuckDB, which differ in a few words.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from disqued.pipeline.jobs.verdicts import SEVERITY

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]

#: What the two call by different names.
OF_SPARK: Final = {
    "shuffled": "/*+ REPARTITION(job_id) */",
    "hex": "CAST(conv(substring(job_id, 43, 4), 16, 10) AS BIGINT)",
    "last": "last_value({}) IGNORE NULLS",
}
OF_DUCKDB: Final = {
    "shuffled": "",
    "hex": "TRY_CAST('0x' || substring(job_id, 43, 4) AS BIGINT)",
    "last": "last_value({} IGNORE NULLS)",
}

STRETCHES: Final = """
    WITH walked AS (
        SELECT node, boot, seq, ts_us, event, lag(seq) OVER log AS before, lag(seq, 2) OVER log AS before_that
        FROM events
        WINDOW log AS (PARTITION BY node, boot ORDER BY seq)
    ), parted AS (
        SELECT *,
               sum(CASE WHEN seq > before + 1 THEN 1 ELSE 0 END) OVER log AS part,
               sum(CASE WHEN before IS NULL OR seq > before + 1 OR event = 'clock' AND seq > before THEN 1 ELSE 0 END)
                   OVER log AS stretch
        FROM walked
        WINDOW log AS (PARTITION BY node, boot ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW)
    ), stretches AS (
        SELECT node, boot, part, stretch, min(seq) AS first, max(seq) AS last,
               min_by(ts_us, seq) AS first_us, max_by(ts_us, seq) AS last_us,
               max(CASE WHEN event = 'stop' THEN 1 ELSE 0 END) AS stopped,
               max(CASE WHEN event = 'flush' THEN seq ELSE 0 END) AS flush,
               sum(CASE WHEN seq = before AND (before_that IS NULL OR seq <> before_that) THEN 1 ELSE 0 END) AS doubles
        FROM parted
        GROUP BY node, boot, part, stretch
    )
    SELECT *,
           min(boot) OVER (PARTITION BY node) AS first_boot,
           max(boot) OVER (PARTITION BY node) AS last_boot,
           max(stopped) OVER (PARTITION BY node, boot) AS boot_stopped,
           max(flush) OVER (PARTITION BY node, boot) AS boot_flush,
           last_value(last_us) OVER (PARTITION BY node, boot ORDER BY stretch
                                     ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) AS boot_last_us,
           coalesce(sum(greatest(0, last_us - first_us)) OVER (PARTITION BY node, boot, part ORDER BY stretch
                                     ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING), 0) AS more_us
    FROM stretches
"""

LOGS: Final = """
    WITH boots AS (
        SELECT node, boot, min(first_boot) AS first_boot, max(last) AS last,
               max(part) + max(CASE WHEN stretch = 1 AND first > 1 AND boot > first_boot THEN 1 ELSE 0 END) AS gap,
               sum(doubles) AS `double`,
               sum(CASE WHEN stretch = 1 AND first > 1 AND boot = first_boot THEN 1 ELSE 0 END) AS not_known
        FROM stretches
        GROUP BY node, boot
    ), ends AS (
        SELECT DISTINCT node, after_boot, after_seq FROM events WHERE event = 'start' AND after_boot IS NOT NULL
    ), ended AS (
        SELECT ends.node, ends.after_boot AS boot
        FROM ends
        LEFT JOIN boots ON boots.node = ends.node AND boots.boot = ends.after_boot
        JOIN (SELECT node, min(boot) AS first_boot FROM boots GROUP BY node) oldest ON oldest.node = ends.node
        WHERE boots.last < after_seq OR boots.last IS NULL AND oldest.first_boot < after_boot
    )
    SELECT node, boot, gap, `double`, not_known FROM boots
    UNION ALL
    SELECT node, boot, 1, 0, 0 FROM ended
"""

JOBS: Final = """
    WITH copies AS (
        SELECT {shuffled} job_id, scope, node, boot, seq, ts_us, event, reason, retry_s, ttl_s, max_tries, keep_dead_s,
               CASE WHEN event = 'add' THEN 0 ELSE age_us END AS age_us,
               event = 'cancelled' OR event = 'ack' AND (reason IS NULL OR reason IN ('fast', 'peer')) AS is_ack
        FROM events
        WHERE job_id IS NOT NULL
    ), once AS (
        SELECT *, row_number() OVER (PARTITION BY job_id, scope, node, boot, seq ORDER BY ts_us) AS copy FROM copies
    ), told AS (
        SELECT *,
               max(CASE WHEN reason = 'once' OR event = 'add' AND retry_s = 0 THEN 1 ELSE 0 END) OVER job AS is_once,
               max(CASE WHEN event IN ('add', 'deliver') THEN 1 ELSE 0 END) OVER job AS is_told,
               max(ttl_s) OVER job AS job_ttl_s,
               max(retry_s) OVER job AS job_retry_s,
               max(max_tries) OVER job AS job_max_tries,
               coalesce(max(keep_dead_s) OVER job, 0) AS stay_s,
               max(CASE WHEN event IN ('dead', 'redriven', 'replicate') THEN 1 ELSE 0 END)
                   OVER (PARTITION BY job_id, scope, node) AS may_be_dead,
               min(CASE WHEN event = 'ack' AND reason IS NULL THEN age_us END) OVER job AS ack_us,
               min_by(node, CASE WHEN event = 'ack' AND reason IS NULL THEN age_us END) OVER job AS ack_node
        FROM once
        WHERE copy = 1
        WINDOW job AS (PARTITION BY job_id, scope)
    ), sorted AS (
        SELECT *,
               is_ack OR event IN ('expire', 'delete', 'evict', 'refuse') OR event = 'leave' AND is_once = 1 AS is_end,
               event = 'leave' AND is_told = 0 AS may_end,
               event IN ('replicate', 'enqueue', 'deliver', 'working', 'nack', 'requeue', 'leave', 'dead', 'redriven')
                   OR event = 'add' AND coalesce(reason, '') <> 'elsewhere' AS is_hold
        FROM told
    ), ordered AS (
        SELECT *,
               {closed_event} OVER before AS closed_event,
               {closed_boot} OVER before AS closed_boot,
               {closed_seq} OVER before AS closed_seq,
               {come_boot} OVER before AS come_boot,
               {come_seq} OVER before AS come_seq,
               {life_event} OVER before AS life_event,
               {life_boot} OVER before AS life_boot,
               sum(CASE WHEN is_end OR event IN ('add', 'replicate', 'redriven', 'leave') THEN 1 ELSE 0 END)
                   OVER until AS generation,
               max(CASE WHEN is_ack THEN 1 ELSE 0 END) OVER before AS has_heard,
               max(CASE WHEN is_end OR is_hold OR event = 'add' THEN 1 ELSE 0 END) OVER behind AS has_more,
               sum(CASE WHEN event = 'deliver' THEN 1 WHEN event = 'requeue' AND reason = 'unseen' THEN -1 ELSE 0 END)
                   OVER until AS depth
        FROM sorted
        WINDOW before AS (PARTITION BY job_id, scope, node ORDER BY boot, seq
                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
               until AS (PARTITION BY job_id, scope, node ORDER BY boot, seq
                         ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
               behind AS (PARTITION BY job_id, scope, node ORDER BY boot, seq
                          ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING)
    ), deep AS (
        SELECT *,
               sum(CASE WHEN event = 'deliver' THEN 1 WHEN event = 'requeue' AND reason = 'unseen' THEN -1 ELSE 0 END)
                   OVER (PARTITION BY job_id, scope, node, boot, generation ORDER BY seq
                         ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS tries,
               min(depth) OVER (PARTITION BY job_id, scope, node ORDER BY boot, seq
                                ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS least_depth
        FROM ordered
    ), aged AS (
        SELECT *,
               {had_event} OVER younger AS had_event,
               {had_node} OVER younger AS had_node,
               {had_us} OVER younger AS had_us
        FROM deep
        WINDOW younger AS (PARTITION BY job_id, scope ORDER BY age_us, node, boot, seq
                           ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    ), judged AS (
        SELECT aged.*,
               closed_event IN ('ack', 'cancelled') AND closed_boot = aged.boot AND NOT coalesce(
                   (come_boot > closed_boot OR come_boot = closed_boot AND come_seq > closed_seq)
                   AND (come_seq - closed_seq > 20000 OR is_once = 1 OR is_told = 0), false) AS is_known,
               coalesce(nullif(CAST(job_ttl_s * 1000000 AS BIGINT), 0),
                        CASE WHEN job_id LIKE 'DI%' AND substring(job_id, 43, 4) <> 'ffff'
                             THEN ({hex} + 1) * 60000000 END, 0) AS ttl_us,
               CAST(stay_s * may_be_dead * 1000000 AS BIGINT) AS stay_us,
               coalesce(event = 'deliver' AND life_event = 'dead' AND life_boot = aged.boot, false) AS is_dead,
               greatest(0, logs.last_us - ts_us) + logs.more_us AS passed_us,
               logs.boot_flush > aged.seq AS is_flushed, logs.last_boot > aged.boot AS has_next,
               logs.boot_stopped = 0 AND logs.boot_last_us - ts_us <= 2000000 AS is_unsaid
        FROM aged
        JOIN stretches logs
          ON logs.node = aged.node AND logs.boot = aged.boot AND aged.seq BETWEEN logs.first AND logs.last
    ), proven AS (
        SELECT *,
               (is_hold OR event = 'add') AND NOT is_end AND NOT may_end AND has_more IS DISTINCT FROM 1 AS is_open,
               ttl_us > 0 AND NOT is_flushed
                   AND passed_us >= greatest(0, ttl_us + stay_us - coalesce(age_us, 0)) + 60000000 AS says_no_more,
               ttl_us > 0 AND NOT is_flushed
                   AND (has_next OR passed_us >= greatest(0, ttl_us + stay_us - coalesce(age_us, 0)) + 60000000)
                   AS is_past,
               event IN ('deliver', 'expire') AND node <> ack_node AND coalesce(has_heard, 0) = 0
                   AND coalesce(age_us, 0) > ack_us + 5000000 AS is_late,
               event = 'deliver' AND depth = least_depth AS is_heard
        FROM judged
    ), by_node AS (
        SELECT job_id, scope, node, min(boot) = max(boot) AS is_steady, max(is_once) AS is_once, max(ack_us) AS ack_us,
               max(CASE WHEN is_end THEN 1 ELSE 0 END) AS ended,
               max(CASE WHEN event = 'refuse' THEN 1 ELSE 0 END) AS refused,
               max(CASE WHEN event = 'add' THEN 1 ELSE 0 END) AS added,
               max(CASE WHEN event = 'ack' AND coalesce(reason, 'fast') = 'fast' AND age_us IS NOT NULL
                        THEN 1 ELSE 0 END) AS own_acks,
               sum(CASE WHEN is_ack AND is_known THEN 1 ELSE 0 END) AS acked_twice,
               sum(CASE WHEN event = 'deliver' AND is_known THEN 1 ELSE 0 END) AS after_ack,
               sum(CASE WHEN is_dead THEN 1 ELSE 0 END) AS delivered_dead,
               sum(CASE WHEN event = 'deliver' AND NOT is_dead AND job_max_tries > 0 AND tries = job_max_tries + 1
                        THEN 1 ELSE 0 END) AS tried_too_often,
               sum(CASE WHEN event = 'deliver' AND closed_event IN ('ack', 'cancelled') AND NOT is_known
                        THEN 1 ELSE 0 END) AS again,
               max_by(CASE WHEN is_late THEN coalesce(age_us, 0) END, CASE WHEN is_late THEN seq END) AS late_us,
               max(CASE WHEN is_late AND event = 'deliver' THEN 1 ELSE 0 END) AS late_deliver,
               sum(CASE WHEN is_heard THEN 1 ELSE 0 END) AS heard,
               sum(CASE WHEN is_heard AND NOT is_unsaid THEN 1 ELSE 0 END) AS firm,
               max(CASE WHEN is_open THEN 1 ELSE 0 END) AS opened,
               max(CASE WHEN is_open AND says_no_more AND is_hold THEN 1 ELSE 0 END) AS proven_hold,
               max(CASE WHEN is_open AND is_past THEN 1 ELSE 0 END) AS past,
               max(CASE WHEN event = 'deliver' AND age_us IS NOT NULL AND had_event = 'deliver' AND had_node <> node
                             AND coalesce(job_retry_s, 0) * 1000000 > age_us - had_us THEN 1 ELSE 0 END) AS at_once
        FROM proven
        GROUP BY job_id, scope, node
    ), by_job AS (
        SELECT job_id, scope, min(CASE WHEN is_steady THEN 1 ELSE 0 END) = 1 AS is_steady,
               max(is_once) = 1 AND scope IS NULL AS is_once, max(ended) = 1 AS has_ended, max(added) = 1 AS was_added,
               scope IS NULL AND max(refused) = 0 AS may_be_left, sum(own_acks) AS own_acks,
               sum(delivered_dead) AS delivered_dead, sum(tried_too_often) AS tried_too_often,
               sum(acked_twice) AS acked_twice, sum(after_ack) AS delivered_after_ack, sum(again) AS again,
               sum(CASE WHEN late_us - ack_us > 900000000 THEN 1 ELSE 0 END) AS left_late,
               sum(CASE WHEN late_us - ack_us > 900000000 THEN 0 ELSE late_deliver END) AS heard_late,
               sum(late_deliver) AS delivered_late, sum(heard) AS heard, sum(firm) AS firm, sum(opened) AS opened,
               sum(proven_hold) AS proven_hold, sum(past) AS past, max(at_once) AS at_once
        FROM by_node
        GROUP BY job_id, scope
    ), found AS (
        SELECT job_id, scope,
               CASE WHEN may_be_left AND NOT has_ended AND was_added AND proven_hold > 0 THEN 1 ELSE 0 END AS lost,
               CASE WHEN is_once AND heard > 1 AND firm > 1 THEN 1 ELSE 0 END AS once_delivered_twice,
               delivered_after_ack, acked_twice, delivered_dead, tried_too_often,
               CASE WHEN may_be_left AND has_ended THEN proven_hold ELSE 0 END
                   + CASE WHEN is_steady THEN left_late ELSE 0 END AS orphaned,
               again + CASE WHEN is_steady THEN heard_late ELSE delivered_late END AS redelivered_after_ack,
               CASE WHEN own_acks > 1 THEN 1 ELSE 0 END AS acked_apart,
               at_once AS delivered_apart,
               CASE WHEN is_once AND heard > 1 AND firm < 2 THEN 1 ELSE 0 END
                   + CASE WHEN may_be_left AND NOT has_ended AND was_added AND opened > 0 AND past = opened
                               AND proven_hold = 0 THEN 1 ELSE 0 END
                   AS not_known
        FROM by_job
    )
    SELECT * FROM found
    WHERE lost + once_delivered_twice + delivered_after_ack + acked_twice + orphaned + redelivered_after_ack
          + acked_apart + delivered_apart + not_known + delivered_dead + tried_too_often > 0
"""

_LIVES: Final = "is_end OR event IN ('add', 'replicate', 'leave', 'dead', 'redriven')"
_LASTS: Final = {
    "closed_event": "CASE WHEN is_ack OR event = 'evict' THEN event END",
    "life_event": f"CASE WHEN {_LIVES} THEN event END",
    "life_boot": f"CASE WHEN {_LIVES} THEN boot END",
    "closed_boot": "CASE WHEN is_ack OR event = 'evict' THEN boot END",
    "closed_seq": "CASE WHEN is_ack OR event = 'evict' THEN seq END",
    "come_boot": "CASE WHEN event IN ('add', 'replicate') THEN boot END",
    "come_seq": "CASE WHEN event IN ('add', 'replicate') THEN seq END",
    **{
        name: "CASE WHEN age_us IS NOT NULL AND (is_ack OR event IN ('deliver', 'nack', 'requeue', 'leave')) "
        f"THEN {column} END"
        for name, column in (("had_event", "event"), ("had_node", "node"), ("had_us", "age_us"))
    },
}


def _jobs(words: Mapping[str, str]) -> str:
    lasts = {name: words["last"].format(what) for name, what in _LASTS.items()}
    return JOBS.format(shuffled=words["shuffled"], hex=words["hex"], **lasts)


def found_by_spark(spark: "SparkSession", events: "DataFrame") -> tuple["DataFrame", "DataFrame"]:
    """Give what is found of the logs, and of the jobs."""
    events.createOrReplaceTempView("events")
    spark.sql(STRETCHES).persist().createOrReplaceTempView("stretches")
    return spark.sql(LOGS), spark.sql(_jobs(OF_SPARK))


def found_by_duckdb(database: "DuckDBPyConnection") -> tuple[list[Row], list[Row]]:
    """Make tables of what is found in `events` of the logs, and of the jobs; give them."""
    logs = LOGS.replace("`", '"')
    for name, question in (("stretches", STRETCHES), ("logs", logs), ("jobs", _jobs(OF_DUCKDB))):
        database.execute(f"CREATE TABLE {name} AS {question}")
    return _rows(database, "logs"), _rows(database, "jobs")


def _rows(database: "DuckDBPyConnection", table: str) -> list[Row]:
    answer = database.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in answer.description or ()]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def counted(*tables: Iterable[Row]) -> dict[str, int]:
    """Count what is found, by kind, as an audit does."""
    counts: Counter[str] = Counter()
    for rows in tables:
        for row in rows:
            counts.update({kind: int(row[kind]) for kind in SEVERITY if kind in row})
    return {kind: counts[kind] for kind in SEVERITY if counts[kind]}
