"""Reading the database: at the start, all of it checked; beside a daemon, a moment of it.

    load    policies, pauses, groups, jobs, units     on the reactor's thread, a slice at a time
    check   every page, and two of the indexes    on the writer's thread meanwhile

Each table is read in the order of its numbers.  Where groups begin comes before the events that this is about, so that
an event that was flushed is never put into a log.

The checks of SQLite and the checksum of each row complement each other: the ones miss a changed letter, the other
one a row that nothing leads to.
"""

import heapq
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

from twisted.logger import Logger

from disqued.core.model.outbox import JOB_GONE, UNIT_DONE, WATERMARK, Record
from disqued.persistence.interface import StoreError
from disqued.persistence.sqlite.rows import (
    JOB_COLUMNS,
    BadRow,
    Row,
    fact_record,
    flush_record,
    group_record,
    job_columns,
    job_records,
    lease_record,
    pause_record,
    policy_record,
)
from disqued.persistence.sqlite.schema import (
    DATABASE_ERRORS,
    GROUP_NAME,
    NUMBERED,
    DatabaseDamaged,
    check_schema,
    connect,
    connect_reader,
    failure_of,
    find_database,
    has_queues,
    version_of,
    wal_path,
    watermark_of,
)
from disqued.persistence.sqlite.transaction import PAUSED_NOW

CHECK_CACHE_KIB = 65_536  #: ids are looked up in no order
ROWS = 500  #: rows asked for at a time

_JOBS = "SELECT {} FROM jobs ORDER BY seq"
_DONE = "SELECT seq, id, scope, queue, ctime, done_at, crc FROM done "
#: What groups have done of jobs that are there still, and have not come again since everything was dropped.
_DONE_IN_GROUPS = (
    _DONE + "WHERE scope <> '' AND EXISTS (SELECT 1 FROM jobs WHERE id = done.id)"  # noqa: S608 - a query of ours
    " AND seq > (SELECT coalesce(max(seq), 0) FROM flushes) ORDER BY seq"
)
_NOT_FOUND = {
    "jobs are not found by their ids; REINDEX jobs_by_id": (
        "SELECT count(*) FROM jobs AS job NOT INDEXED WHERE NOT EXISTS"
        " (SELECT 1 FROM jobs AS entry INDEXED BY jobs_by_id WHERE entry.id = job.id AND entry.seq = job.seq)"
    ),
    "groups are not found by their names; REINDEX groups_by_name": (
        "SELECT count(*) FROM groups AS word NOT INDEXED WHERE NOT EXISTS"  # noqa: S608 - a query of ours
        " (SELECT 1 FROM groups AS entry INDEXED BY groups_by_name WHERE entry.queue = word.queue"
        f" AND {GROUP_NAME.replace('scope', 'entry.scope')} = {GROUP_NAME.replace('scope', 'word.scope')}"
        " AND entry.seq = word.seq)"
    ),
    "policies are not found by their queues; REINDEX policies_by_queue": (
        "SELECT count(*) FROM policies AS word NOT INDEXED WHERE NOT EXISTS"
        " (SELECT 1 FROM policies AS entry INDEXED BY policies_by_queue"
        " WHERE entry.queue = word.queue AND entry.field = word.field AND entry.seq = word.seq)"
    ),
}
_EVICTIONS = "SELECT seq, id, reason, queue, ctime, gone_at, crc FROM evictions "
_FLUSHES = "SELECT seq, flushed_at, jobs, crc FROM flushes "
_PAUSES = "SELECT seq, queue, pause, paused_at, crc FROM pauses "
_LEASES = "SELECT seq, id, scope, deliveries, worker, leased_at, crc FROM leases ORDER BY seq"
_GROUPS = "SELECT seq, queue, scope, floor, began_at, crc FROM groups ORDER BY seq"
_POLICIES = "SELECT seq, queue, field, counter, node, set_at, value, crc FROM policies ORDER BY seq"
_OLDEST = ("SELECT min(done_at) FROM done", "SELECT min(gone_at) FROM evictions")


class DatabaseReader:
    """What is stored, as it was when this was made; for one thread."""

    log = Logger()

    def __init__(self, path: Path) -> None:
        """Open a database that is up to date.  Raises StoreError."""
        self.bytes_loaded: int = 0
        self._path = path
        try:
            self._connection = connect_reader(path)
        except DATABASE_ERRORS as error:
            raise failure_of(error, path) from error
        try:
            self.bytes_total: int = path.stat().st_size + (
                wal_path(path).stat().st_size if wal_path(path).exists() else 0
            )
            self._connection.execute("BEGIN")
            self.has_queues: bool = has_queues(self._connection, path)
            self._jobs: int = self._connection.execute("SELECT count(*) FROM jobs").fetchone()[0]
            #: Number of the next record.
            self.next_number: int = 1 + max(self._greatest(table) for table in NUMBERED)
            #: Time of the first job that is over; None = there is none.
            self.oldest_fact: int | None = oldest_fact(self._connection)
        except (*DATABASE_ERRORS, OSError) as error:
            self.close()
            raise failure_of(error, path) from error
        except StoreError:
            self.close()
            raise

    def _greatest(self, table: str) -> int:
        number: int = self._connection.execute(f"SELECT coalesce(max(seq), 0) FROM {table}").fetchone()[0]  # noqa: S608 - a name of ours
        return number

    def close(self) -> None:
        self._connection.close()

    def __iter__(self) -> Iterator[Record]:
        """Yield the records.  Raises StoreError."""
        try:
            until = watermark_of(self._connection, self._path)
            if until:
                yield (WATERMARK, until)
            for row in self._connection.execute(_POLICIES):
                yield self._checked(policy_record, row)
            for row in self._connection.execute(PAUSED_NOW):
                yield self._checked(pause_record, row)
            for row in self._connection.execute(_GROUPS):
                yield self._checked(group_record, row)
            yield from self._read_jobs()
            for row in self._connection.execute(_DONE_IN_GROUPS):
                yield self._checked(_done_record, row)
            for row in self._connection.execute(_LEASES):
                yield self._checked(lease_record, row)
        except DATABASE_ERRORS as error:
            raise failure_of(error, self._path) from error
        self.bytes_loaded = self.bytes_total
        self.log.info("Database read: {jobs} jobs from {path}", jobs=self._jobs, path=str(self._path))

    def _read_jobs(self) -> Iterator[Record]:
        cursor = self._connection.execute(_JOBS.format(", ".join(JOB_COLUMNS)))
        read, total, jobs = 0, self.bytes_total, self._jobs
        while rows := cursor.fetchmany(ROWS):
            try:
                records = job_records(rows)
            except BadRow as error:
                raise self._damage(error) from None
            yield from records
            read += len(rows)
            self.bytes_loaded = total * read // (jobs + 1)
        if read != jobs:
            raise DatabaseDamaged(self._path, f"the table jobs has {jobs} rows, of which {read} can be read")

    def _checked(self, record_of: Callable[[Row], Record], row: Row) -> Record:
        try:
            return record_of(row)
        except BadRow as error:
            raise self._damage(error) from None

    def _damage(self, error: BadRow) -> DatabaseDamaged:
        return DatabaseDamaged(self._path, str(error), row=error.number)


def _done_record(row: Row) -> Record:
    return fact_record(UNIT_DONE, row)


def _gone_record(row: Row) -> Record:
    return fact_record(JOB_GONE, row)


def _job_record(row: Row) -> Record:
    return job_records([row])[0]


def oldest_fact(connection: sqlite3.Connection) -> int | None:
    """Time of the first job that is over, in unix milliseconds; None when there is none."""
    times = [connection.execute(query).fetchone()[0] for query in _OLDEST]
    return min((when for when in times if when is not None), default=None)


def check_database(path: Path) -> None:
    """Look at every page of the file, and whether each job is found by its id, and each group by its name.

    What is not found could not be taken out.  The other indexes are for people who look for something, and SQLite
    notices by itself when one of them does not know a row that is to go.  Raises DatabaseDamaged, StoreFailed.
    """
    try:
        connection = connect(path)
        try:
            connection.execute(f"PRAGMA cache_size = -{CHECK_CACHE_KIB}")
            ((found,), *_) = connection.execute("PRAGMA quick_check(1)").fetchall()
            if found != "ok":
                raise DatabaseDamaged(path, f"quick_check says: {found}")
            for what, query in _NOT_FOUND.items():
                (lost,) = connection.execute(query).fetchone()
                if lost:
                    raise DatabaseDamaged(path, f"{lost} {what} repairs that")
        finally:
            connection.close()
    except DATABASE_ERRORS as error:
        raise failure_of(error, path) from error


# Beside a daemon.


def peek_database(path: Path) -> Iterator[Record]:
    """Yield what there was and is, in the order of its numbers; nothing is changed.  Raises StoreError."""
    if not find_database(path):
        return
    with moment_of(path) as (connection, version):
        yield from _history(connection, path, version)


@contextmanager
def moment_of(path: Path) -> Iterator[tuple[sqlite3.Connection, int]]:
    """Read a database as it is now, beside its daemon; yields the version of its schema, too.  Raises StoreError."""
    try:
        connection = connect_reader(path, mode="ro")
        try:
            connection.execute("BEGIN")
            version = version_of(connection)
            check_schema(connection, path, version)
            yield connection, version
        finally:
            connection.close()
    except DATABASE_ERRORS as error:
        raise failure_of(error, path) from error


def _history(connection: sqlite3.Connection, path: Path, version: int) -> Iterator[Record]:
    sources: list[tuple[str, Callable[[Row], Record]]] = [
        (_JOBS.format(job_columns(version)), _job_record),
        (_DONE + "ORDER BY seq", _done_record),
        (_EVICTIONS + "ORDER BY seq", _gone_record),
        (_FLUSHES + "ORDER BY seq", flush_record),
        (_PAUSES + "ORDER BY seq", pause_record),
    ]
    if version > 1:
        sources.append((_LEASES, lease_record))
    if version > 2:
        sources.append((_GROUPS, group_record))
    if version > 3:
        sources.append((_POLICIES, policy_record))
    streams = [_numbered(connection, query, record_of) for query, record_of in sources]
    for _, record_of, row in heapq.merge(*streams, key=itemgetter(0)):
        try:
            yield record_of(row)
        except BadRow as error:
            raise DatabaseDamaged(path, str(error), row=error.number) from None


def _numbered(
    connection: sqlite3.Connection, query: str, record_of: Callable[[Row], Record]
) -> Iterator[tuple[int, Callable[[Row], Record], tuple[Any, ...]]]:
    for row in connection.execute(query):
        yield row[0], record_of, row
