"""Which jobs are to be done again: those that ended otherwise than by being done, with the bodies that a store has."""

from typing import TYPE_CHECKING, Final

from disqued.pipeline.jobs.portable import without_marks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: How jobs end without being done: the word of a store, and that of an event log.
ENDS: Final = {"expired": "expire", "evicted": "evict", "deleted": "delete"}


def ended(gone: "DataFrame", done: "DataFrame", reason: str) -> "DataFrame":
    """Give the ids of jobs that ended for a reason, by what stores tell: those that some node knows as done are not."""
    ids = gone.where(gone.reason == reason).select("id", gone.gone_at.alias("ended")).dropDuplicates(["id"])
    return ids.join(done.where("scope = ''").select("id"), "id", "left_anti")


def ended_by_history(lifecycle: "DataFrame", reason: str) -> "DataFrame":
    """Give the same by the table lifecycle."""
    jobs = lifecycle.where("scope IS NULL").where(lifecycle.end == ENDS[reason])
    return jobs.selectExpr("job_id AS id", "timestamp_micros(ended_us) AS ended").dropDuplicates(["id"])


def replayed(bodies: "DataFrame", ids: "DataFrame", known: "DataFrame | None", queue: str | None) -> "DataFrame":
    """Give id, queue and body of jobs that are to be added again, each once; those that are known were added before.

    Without a queue each goes where it was.
    """
    from pyspark.sql import functions as f

    jobs = without_marks(bodies).where("kind = 'work'").dropDuplicates(["id"]).join(ids.select("id"), "id", "left_semi")
    if known is not None:
        jobs = jobs.join(known.select("id"), "id", "left_anti")
    return jobs.select("id", f.lit(queue).alias("queue") if queue is not None else f.col("queue"), "body")
