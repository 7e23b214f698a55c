"""Columns of an export, the same as JSON lines and as Parquet."""

from typing import Final, Literal

import attrs

Value = str | int | bytes | None
Row = tuple[Value, ...]


@attrs.frozen
class Column:
    """One column."""

    name: str
    kind: Literal["text", "integer", "bytes"]


#: The schema of both formats, in this order.
COLUMNS: Final = (
    Column("event", "text"),
    Column("at", "integer"),
    Column("id", "text"),
    Column("queue", "text"),
    Column("scope", "text"),
    Column("reason", "text"),
    Column("body", "bytes"),
    Column("ctime", "integer"),
    Column("ttl_ms", "integer"),
    Column("retry_ms", "integer"),
    Column("delay_ms", "integer"),
    Column("replicate", "integer"),
    Column("nacks", "integer"),
    Column("additional_deliveries", "integer"),
    Column("expires", "integer"),
    Column("pause", "text"),
    Column("kind", "text"),
    Column("alias", "text"),
    Column("worker", "text"),
    Column("deliveries", "integer"),
    Column("floor", "text"),
    Column("terms", "text"),
    Column("fate", "text"),
)
