"""What a store tells, as rows: jobs, and how jobs ended.

A job has the columns that it has in a live queue, and behind them those that only a store tells.  Times are aware, UTC,
microseconds; spans are milliseconds, as in stores.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from disqued.core.model.job import KIND_NAMES, QUEUED, StoredJob
from disqued.pipeline.connector.rows import NS_IN_US, SCHEMA, US_IN_MS, kept_of, text
from disqued.wire import texts

if TYPE_CHECKING:
    # Stores need Twisted, which is not everywhere that queues are read.
    from disqued.persistence.sqlite.ranges import EndedJob

ROWS: Final = 1_000  #: of a batch at most
BYTES: Final = 4 << 20  #: of bodies; then a batch is full
_TEXT, _TIME = StringType(), TimestampType()


def _needed(name: str, kind: DataType) -> StructField:
    return StructField(name, kind, nullable=False)


def _told(name: str, kind: DataType) -> StructField:
    """A column that is null where the store does not tell."""
    return StructField(name, kind, nullable=True)


def _ends(*first: StructField, when: str) -> StructType:
    """Columns of how jobs ended: what is theirs alone stands behind the id."""
    return StructType([_needed("id", _TEXT), *first, _told("queue", _TEXT), _told("ctime", _TIME), _needed(when, _TIME),
                       _needed("store", _TEXT)])  # fmt: skip


JOBS: Final = StructType([
    *SCHEMA.fields, _needed("kind", _TEXT), _told("alias", BinaryType()),
    *(_needed(name, LongType()) for name in ("ttl_ms", "retry_ms", "delay_ms")), _needed("replicate", IntegerType()),
    _needed("expires", _TIME), _needed("store", _TEXT),
])  # fmt: skip
DONE: Final = _ends(_needed("scope", _TEXT), when="done_at")
EVICTIONS: Final = _ends(_needed("reason", _TEXT), when="gone_at")
#: By what is read of a store.
SCHEMAS: Final = {"jobs": JOBS, "added": JOBS, "done": DONE, "evictions": EVICTIONS}
ARROWS: Final = {records: to_arrow_schema(schema, timezone="UTC") for records, schema in SCHEMAS.items()}
_KINDS: Final = {number: name.decode() for number, name in KIND_NAMES.items()}
_BODY: Final = SCHEMA.names.index("body")

Row = tuple[Any, ...]


def state_of(job: StoredJob, now_ms: int, *, told: bool) -> str:
    """Say where a job is: queued, active, dead, expired, or unknown where the store does not tell."""
    if job.expires <= now_ms:
        return "expired"
    if job.fate.is_dead:
        return "dead"
    if not told:
        return "unknown"
    return "queued" if job.state == QUEUED else "active"


def row_of(job: StoredJob, state: str, store: str) -> Row:
    """Make the row of a job; an unknown state is null."""
    return (text(job.id), texts.text(job.queue), job.body, job.ctime // NS_IN_US, job.nacks, job.additional_deliveries,
            None, text(job.id[2:10]), _attempt_of(job), None if state == "unknown" else state,
            *kept_of(job.terms, job.fate), _KINDS[job.kind], job.alias or None,
            job.ttl_ms, job.retry_ms, job.delay_ms, job.replicate, job.expires * US_IN_MS, store)  # fmt: skip


def _attempt_of(job: StoredJob) -> int:
    """Return the number of the delivery of a job, or of the next one while it waits."""
    return 1 + job.nacks + (job.additional_deliveries if job.retry_ms else 0) + job.fate.spent


def fact_row(fact: "EndedJob", store: str) -> Row:
    """Make the row of a job that is over."""
    return (text(fact.id), text(fact.tail), None if fact.queue is None else texts.text(fact.queue),
            None if fact.ctime is None else fact.ctime // NS_IN_US, fact.when * US_IN_MS, store)  # fmt: skip


def batches_of(rows: Iterable[Row], records: str) -> Iterator[pa.RecordBatch]:
    """Put rows into Arrow batches that are bounded in rows and in bytes."""
    schema, has_body = ARROWS[records], SCHEMAS[records] is JOBS
    held: list[Row] = []
    size = 0
    for row in rows:
        held.append(row)
        if has_body:
            size += len(row[_BODY])
        if len(held) >= ROWS or size >= BYTES:
            yield _batch(held, schema)
            held, size = [], 0
    if held:
        yield _batch(held, schema)


def _batch(rows: list[Row], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
