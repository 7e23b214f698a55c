"""Parquet, for `disqued export`: row groups of bounded size, written as they fill.

Imported only when it is asked for: pyarrow is an extra, `disqued[parquet]`.
"""

from typing import Any, BinaryIO, Final

import pyarrow as pa
from pyarrow import parquet

from disqued.tools.exportcolumns import COLUMNS, Row, Value

ROWS_PER_GROUP = 1 << 16
BYTES_PER_GROUP = 32 << 20  #: of bodies; one body more may come on top

_TYPES: Final = {"text": pa.string(), "integer": pa.int64(), "bytes": pa.binary()}
_ALWAYS: Final = ("event", "at")  #: the columns without nulls
SCHEMA: Final = pa.schema(
    [pa.field(column.name, _TYPES[column.kind], nullable=column.name not in _ALWAYS) for column in COLUMNS]
)
_BODY: Final = [column.name for column in COLUMNS].index("body")


class Parquet:
    """Writes rows as one Parquet file."""

    def __init__(self, file: BinaryIO) -> None:
        self._writer: Any = parquet.ParquetWriter(file, SCHEMA, compression="zstd")
        self._columns: list[list[Value]] = [[] for _ in COLUMNS]
        self._size = 0

    def write(self, row: Row) -> None:
        for values, value in zip(self._columns, row, strict=True):
            values.append(value)
        body = row[_BODY]
        if isinstance(body, bytes):
            self._size += len(body)
        if self._size >= BYTES_PER_GROUP or len(self._columns[0]) >= ROWS_PER_GROUP:
            self._flush()

    def _flush(self) -> None:
        arrays = [pa.array(values, field.type) for values, field in zip(self._columns, SCHEMA, strict=True)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), row_group_size=ROWS_PER_GROUP)
        self._columns = [[] for _ in COLUMNS]
        self._size = 0

    def close(self) -> None:
        if self._columns[0]:
            self._flush()
        self._writer.close()
