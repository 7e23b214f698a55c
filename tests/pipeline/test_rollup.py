"""What is counted, case by case; tests/pipeline/test_history.py holds whole histories against plain Python."""

from typing import TYPE_CHECKING

from disqued.pipeline.jobs.lifecycle import HOUR_US, start_us
from disqued.pipeline.jobs.rollup import by_queue, merged, minutes
from disqued.pipeline.tables import EVENTS
from tests.pipeline.histories import History, as_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOME, OTHER = "12e45678", "aaaaaaaa"
NOON_US = start_us("2026-11-20") + 12 * HOUR_US


def test_of_a_job_that_ends_on_each_node_with_a_copy_one_end_is_counted(spark: "SparkSession") -> None:
    made = History(1)
    for number, (event, old) in enumerate([("expire", False), ("delete", False), ("evict", False), ("expire", True)]):
        # An id of Disque 1.0 does not say which node of ours the job belongs to.
        name = f"D-{OTHER}-{number}" if old else f"DI{HOME}{number:032}05a0SQ"
        for node in (HOME,) if old else (HOME, OTHER):
            made.tell(node, NOON_US, event, job_id=name, queue="q", age_us=5)
    counted = minutes(spark.createDataFrame(as_rows(made.numbered()), EVENTS.schema))
    told = {row.event: (row["count"], row.age is not None) for row in counted.collect()}
    once = {"expire": (2, True), "delete": (1, True), "evict": (1, True)}
    assert told == {**once, **{f"{event}-copy": (1, False) for event in once}}
    [row] = by_queue(merged(counted, "day")).collect()
    assert (row.expires, row.deletes, row.evicts) == (2, 1, 1)
