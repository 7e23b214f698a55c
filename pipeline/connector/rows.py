"""A job as a row: the columns, and what a daemon tells of a job put into them.

    SHOW id --> [name, value, name, value ...] --> one tuple --> an Arrow batch of 8 columns

A daemon does not say when a job was handed out: `attempt_ts` is null in a table, and in a stream it is the moment at
which the reader was given the job.  Times are aware, UTC, microseconds.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from disqued.wire import texts

SCHEMA: Final = StructType(
    [
        StructField("id", StringType(), nullable=False),
        StructField("queue", StringType(), nullable=False),
        StructField("body", BinaryType(), nullable=False),
        StructField("ctime", TimestampType(), nullable=True),
        StructField("nacks", IntegerType(), nullable=False),
        StructField("additional_deliveries", IntegerType(), nullable=False),
        StructField("attempt_ts", TimestampType(), nullable=True),
        StructField("node", StringType(), nullable=False),
    ]
)
#: Spark takes no batch that differs in the least from this.
ARROW: Final = to_arrow_schema(SCHEMA, timezone="UTC")
NS_IN_US: Final = 1_000

#: The columns of one job; times in microseconds since 1970.
Row = tuple[str, str, bytes, int | None, int, int, int | None, str]


def told(reply: Sequence[Any]) -> dict[bytes, Any]:
    """Read names and values of SHOW."""
    return dict(zip(reply[::2], reply[1::2], strict=True))


def text(name: bytes) -> str:
    """Write the name of a queue as whoever names it, or a pattern of it, does; `\\xNN` for what is not UTF-8.

    In columns names are as `wire.texts.text` writes them, which can be turned back.
    """
    return name.decode("utf-8", "backslashreplace")


def row_of(shown: Mapping[bytes, Any], node: str, attempt_us: int | None = None) -> Row:
    """Make the row of a job that a node (8 hex digits) has told of."""
    return (
        shown[b"id"].decode(),
        texts.text(shown[b"queue"]),
        shown[b"body"],
        shown[b"ctime"] // NS_IN_US,
        shown[b"nacks"],
        shown[b"additional-deliveries"],
        attempt_us,
        node,
    )


def batch_of(rows: Sequence[Row]) -> pa.RecordBatch:
    """Put rows into an Arrow batch."""
    columns = zip(*rows, strict=True) if rows else [()] * len(ARROW)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW)
