"""Events as they are kept: lines of the event log, with the batch in which they came.

Batches are numbered, and named so that names are in the order of numbers:

    00000007       as it came
    00000007c      that one and those before it, of one day and node, put together

What came after batch 7 is `batch >= '00000008'`, whatever was put together meanwhile.
"""

from typing import TYPE_CHECKING, Final

from disqued.pipeline.events import is_event

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MERGED: Final = "c"


def batch_name(number: int) -> str:
    """Name a batch: texts that are in the order of their numbers."""
    return f"{number:08d}"


def batch_number(name: str) -> int:
    """Read the number of a batch off its name, or of the last one that was put together in it."""
    return int(name.removesuffix(MERGED))


def taken_in(lines: "DataFrame", batch: str) -> "DataFrame":
    """Give the rows that a batch adds: what was no line of the event log is left out."""
    from pyspark.sql import functions as f

    return lines.where(is_event()).withColumn("batch", f.lit(batch))


def came_after(events: "DataFrame", number: int) -> "DataFrame":
    """Give the events of the batches behind one."""
    from pyspark.sql import functions as f

    return events.where(f.col("batch") >= batch_name(number + 1))


def came_until(events: "DataFrame", number: int) -> "DataFrame":
    """Give the events of the batches up to one, that included."""
    from pyspark.sql import functions as f

    return events.where(f.col("batch") < batch_name(number + 1))
