"""Readers of streams, asked as Spark asks them: offsets travel as JSON, parts and the reader to other processes."""

import json
import pickle
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from disqued.pipeline.connector.rows import ARROW

Offset = dict[str, Any]


def next_of(reader: Any, start: Offset, most: int | None = 1_000) -> Offset:
    """Ask for the next offset, with so many rows at most; None = with all there are."""
    limit: ReadLimit = ReadAllAvailable() if most is None else ReadMaxRows(most)
    offset: Offset = json.loads(json.dumps(reader.latestOffset(start, limit)))
    return offset


def rows_of(reader: Any, start: Offset, end: Offset, schema: pa.Schema = ARROW) -> list[dict[str, Any]]:
    """Run a batch: the rows of its parts, in their order."""
    rows = []
    for each in reader.partitions(start, end):
        there, part = pickle.loads(pickle.dumps((reader, each)))
        for batch in there.read(part):
            assert batch.schema == schema
            rows += batch.to_pylist()
    return rows
