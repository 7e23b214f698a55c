"""The event log as a table and as a stream.

    <dir>/date=2026-11-22/node=1f0e2d3c/events-1795330562-0000000000000001.jsonl
               |               |
               +---------------+----> columns `date` and `node`, texts; the members of each line are the others

Spark reads the files itself, on any file system that it knows.  The types are given, never guessed: a member that no
line of a file has would not be there at all, and a node named 12e45678 would be a number.  Files whose names begin
with _ are being written, and Spark passes over them.
"""

from typing import TYPE_CHECKING, Final

from disqued.core.model.trace import NAMES
from disqued.pipeline.days import has_day
from disqued.wire.eventlines import COLUMNS, VERSION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Columns of a line, and those that the folders tell.
SCHEMA: Final = ", ".join(f"{name} {kind}" for name, kind in (*COLUMNS, ("date", "STRING"), ("node", "STRING")))
#: A file that is older than others is as new to us as any: nodes may have been away for long.
EVER: Final = "36500d"
BATCH_BYTES: Final = 1 << 30
NAMED: Final = "--events names the one with date=... in it"
IS_EVENT: Final = "is_event"  #: the column of `marked`
FILES: Final = "events-*"  #: published ones; compressed ones, too


def read_events(spark: "SparkSession", folder: str) -> "DataFrame":
    """Read the published events below a folder; a line that is none is a row of nulls but for `date` and `node`."""
    return spark.read.schema(SCHEMA).option("pathGlobFilter", FILES).option("basePath", folder).json(folder)


def stream_events(spark: "SparkSession", folder: str, *, batch_bytes: int = BATCH_BYTES) -> "DataFrame":
    """Read the published events below a folder as they come, the oldest files first; about so many bytes in a batch."""
    reader = spark.readStream.schema(SCHEMA).option("maxBytesPerTrigger", batch_bytes).option("maxFileAge", EVER)
    return reader.option("pathGlobFilter", FILES).json(folder)


def is_event() -> "Column":
    """Tell events from lines that are none: of another version, with a word that is none, in a folder of no day.

    Blank lines are no rows at all.
    """
    from pyspark.sql import functions as f

    words = [name.decode("ascii") for name in NAMES]
    whole = f.col("boot").isNotNull() & f.col("seq").isNotNull() & f.col("ts_us").isNotNull()
    known = (f.col("v") == VERSION) & f.col("event").isin(words)
    return whole & f.coalesce(known, f.lit(False)) & has_day()


def marked(lines: "DataFrame") -> "DataFrame":
    """Tell events from lines that are none by a column: it is asked for more than once, and looked for once."""
    return lines.withColumn(IS_EVENT, is_event())
