"""Reading rows of one table beside a daemon, a range of its numbers at a time, so that several readers share it.

    numbers_of   the first and the last number of a table
    read_jobs    rows of `jobs` with numbers in a range         each in a transaction of its own: what is committed
    read_facts   rows of `done` or `evictions` in a range       when it begins is what it reads

Nothing is changed, and each row is checked as a start of the node checks it.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

from disqued.core.model.job import StoredJob
from disqued.core.model.outbox import UNIT_DONE
from disqued.persistence.interface import StoreFailed
from disqued.persistence.sqlite.reading import moment_of
from disqued.persistence.sqlite.rows import BadRow, Row, fact_record, id_bytes, job_columns, job_records
from disqued.persistence.sqlite.schema import (
    DatabaseDamaged,
    find_database,
    has_queues,
    version_of,
)

ROWS: Final = 500  #: rows asked for at a time
#: What tells how a job ended, by table: the scope that is done with it, or the reason; and when.
FACTS: Final = {"done": "scope, queue, ctime, done_at", "evictions": "reason, queue, ctime, gone_at"}


@attrs.frozen
class EndedJob:
    """That a job is over."""

    id: bytes
    #: Of `done`, the consumer group that is done with it, empty for a work job; of `evictions` the reason.
    tail: bytes
    #: None = the database did not know the job.
    queue: bytes | None
    #: As that of a job; None = the database did not know the job.
    ctime: int | None
    #: When, in unix milliseconds.
    when: int


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    if not find_database(path):
        raise StoreFailed(f"{path}: there is no database of this name")
    with moment_of(path) as (connection, _):
        yield connection


def numbers_of(path: Path, table: str) -> range:
    """Give the numbers that rows of a table may have; empty where it has none.  Raises StoreError."""
    with _reading(path) as connection:
        first, last = connection.execute(f"SELECT min(seq), max(seq) FROM {table}").fetchone()  # noqa: S608 - a name of ours
    return range(0) if first is None else range(first, last + 1)


def read_jobs(path: Path, numbers: range | None = None) -> Iterator[tuple[StoredJob, bool]]:
    """Yield the jobs with numbers in a range, or all, and whether their states are known.  Raises StoreError."""
    with _reading(path) as connection:
        columns = job_columns(version_of(connection))
        told = has_queues(connection, path)
        for rows in _slices(connection, columns, "jobs", numbers):
            try:
                records = job_records(rows)
            except BadRow as error:
                raise DatabaseDamaged(path, str(error), row=error.number) from None
            for _, job in records:
                yield job, told


def read_facts(path: Path, table: str, numbers: range | None = None) -> Iterator[EndedJob]:
    """Yield what one of `FACTS` tells, with numbers in a range, or all.  Raises StoreError."""
    with _reading(path) as connection:
        for rows in _slices(connection, f"seq, id, {FACTS[table]}, crc", table, numbers):
            for row in rows:
                try:
                    fact_record(UNIT_DONE, row)
                except BadRow as error:
                    raise DatabaseDamaged(path, str(error), row=error.number) from None
                _, job_id, tail, queue, ctime, when, _ = row
                yield EndedJob(id_bytes(job_id), tail, queue, ctime, when)


def _slices(connection: sqlite3.Connection, columns: str, table: str, numbers: range | None) -> Iterator[list[Row]]:
    query = f"SELECT {columns} FROM {table} WHERE seq BETWEEN ? AND ? ORDER BY seq"  # noqa: S608 - names of ours
    first, last = (0, 2**63 - 1) if numbers is None else (numbers.start, numbers.stop - 1)
    cursor = connection.execute(query, (first, last))
    while rows := cursor.fetchmany(ROWS):
        yield rows
