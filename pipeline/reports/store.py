"""reports.sqlite: what runs of `disqued-spark` leave for people.

    with closing(Reports("reports.sqlite")) as reports:
        reports.put_queues([{"queue": "mail", "grain": "hour", "at": "2026-11-22T10:00:00Z", "adds": 5, ...}, ...])

`disqued.reports.layout` says which tables and columns there are.  What is put takes the place of what has the same key,
all of it in one transaction, so that a run that is done twice changes nothing but when it was computed, and a reader
sees all of it or nothing.  The daemon reads while this writes (write-ahead log); so may Datasette or any other tool.

Our marks are in the header of the file (`application_id`, `user_version`): what does not carry them is somebody else's,
and is left alone.  A change of the tables is a function more in `STEPS`; the steps that a file lacks are taken in one
transaction when it is opened.  sqlite-utils makes and changes the tables.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Final

from sqlite_utils import Database

from disqued.pipeline.errors import Misused
from disqued.reports.layout import (
    APPLICATION_ID,
    AUDITS,
    FAULTS,
    FAULTS_MAX,
    FINDINGS,
    INDEXES,
    QUEUES,
    RUNS,
    SLO,
    TABLES,
    Table,
    moment,
)

BUSY_S: Final = 30.0  #: how long another run that writes is waited for
#: So many are kept: a check every hour must not fill the disk.
AUDITS_WITH_FAULTS: Final = 100
RUNS_KEPT: Final = 10_000

Row = Mapping[str, Any]


class ReportsError(Misused):
    """The file cannot be written to; the text says why, and what to do about it."""


class Reports:
    """The file, open for writing."""

    def __init__(self, path: str | Path, now: Callable[[], float] = time.time) -> None:
        """Open it, and make or bring up to date what is there.  `now` gives unix seconds.  Raises ReportsError."""
        self._path = Path(path)
        self._now = now
        try:
            # Statements begin no transaction by themselves: each transaction begins with the lock of those who write.
            self._connection = sqlite3.connect(self._path, isolation_level=None, timeout=BUSY_S)
        except sqlite3.Error as error:
            raise ReportsError(f"{path}: {error}; is there such a folder, and may it be written to?") from error
        try:
            self._database = Database(self._connection, execute_plugins=False, strict=True)
            self._make_ready()
        except BaseException as error:
            self._connection.close()
            if isinstance(error, sqlite3.Error):
                raise ReportsError(f"{path}: {error}; name another file, or move this one away") from error
            raise

    def close(self) -> None:
        self._connection.close()

    # Whose file it is.

    def _make_ready(self) -> None:
        if self._version() < len(STEPS):
            with self._transaction():
                for step in STEPS[self._version() :]:
                    step(self._database)
                self._connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                self._connection.execute(f"PRAGMA user_version = {len(STEPS)}")
        self._database.enable_wal()

    def _version(self) -> int:
        """The version of the tables; 0 = there are none yet.  Raises ReportsError."""
        application, version = self._pragma("application_id"), self._pragma("user_version")
        if application == 0 and version == 0 and not self._database.table_names():
            return 0
        if application != APPLICATION_ID:
            raise ReportsError(
                f"{self._path}: a database of another program (application_id {application}), which is left as it is;"
                " name another file for the reports"
            )
        if not 1 <= version <= len(STEPS):
            raise ReportsError(
                f"{self._path}: version {version} of the reports is not known to this version of disqued, which knows"
                f" 1 to {len(STEPS)}; use the newer disqued that wrote it, or name another file"
            )
        return version

    def _pragma(self, name: str) -> int:
        value: int = self._connection.execute(f"PRAGMA {name}").fetchone()[0]
        return value

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise ReportsError(f"{self._path}: {error}; nothing of this was written") from error
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def is_empty(self, table: str) -> bool:
        """Tell whether nothing is in a table: the file is a new one, whatever was put into the one before."""
        return not any(self._database.table(table).rows_where(limit=1))

    # What is put into it.

    def put_queues(self, rows: Iterable[Row]) -> None:
        """Say what queues did in hours and days: rows of the table `queues`, in the place of those with the same key.

        Columns that are left out are not known.  Raises ValueError for a row that is none.
        """
        self._put(QUEUES, rows)

    def put_slo(self, rows: Iterable[Row]) -> None:
        """Hold days of queues against their targets; as `put_queues`."""
        self._put(SLO, rows)

    def put_findings(self, rows: Iterable[Row]) -> None:
        """Say what `doctor` found, in the place of all that it found before.  Raises ValueError."""
        numbered = ({**row, "number": number} for number, row in enumerate(rows, 1))
        with self._transaction():
            self._database.table("findings").delete_where()
            self._insert(FINDINGS, numbered)

    def put_audit(self, summary: Row, faults: Iterable[Row]) -> None:
        """Remember an audit and what it found, the first `FAULTS_MAX`; `counts` of the summary is by kind.

        Raises ValueError.
        """
        said = {**summary, "counts": json.dumps(summary.get("counts", {}))}
        with self._transaction():
            audit = self._insert_one(AUDITS, said)
            first = islice(faults, FAULTS_MAX)
            self._insert(FAULTS, ({**row, "audit": audit, "number": number} for number, row in enumerate(first, 1)))
            self._database.table("faults").delete_where("audit <= ?", [audit - AUDITS_WITH_FAULTS])

    def note_run(self, job: str, *, began: float, ended: float, status: str, rows: int, note: str = "") -> None:
        """Remember a run; times in unix seconds, `status` done or failed."""
        run = {"job": job, "began_at": moment(began), "seconds": round(ended - began, 3), "status": status,
               "rows": rows, "note": note, "computed_at": moment(ended)}  # fmt: skip
        with self._transaction():
            number = self._insert_one(RUNS, run)
            self._database.table("runs").delete_where("id <= ?", [number - RUNS_KEPT])

    def _put(self, table: Table, rows: Iterable[Row]) -> None:
        with self._transaction():
            self._database.table(table.name).upsert_all(self._checked(table, rows), pk=table.key)

    def _insert(self, table: Table, rows: Iterable[Row]) -> None:
        self._database.table(table.name).insert_all(self._checked(table, rows), pk=table.key)

    def _insert_one(self, table: Table, row: Row) -> int:
        """Insert a row that is numbered by SQLite; returns its number."""
        [checked] = self._checked(table, [row])
        return int(self._database.table(table.name).insert(checked).last_rowid or 0)

    def _checked(self, table: Table, rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
        """Rows with every column, as they are written.  Raises ValueError."""
        computed_at = moment(self._now())
        named = set(table.names)
        for row in rows:
            if unknown := set(row) - named:
                raise ValueError(f"{table.name} has no column {', '.join(sorted(unknown))}; there are {sorted(named)}")
            full = {"computed_at": computed_at, **row}
            for column in table.columns:
                if allowed := column.wrong(full.get(column.name)):
                    value = full.get(column.name)
                    raise ValueError(f"{column.name} of {table.name} is {value!r}; it has to be {allowed}")
            yield {name: full.get(name) for name in table.names if not (table.numbered and name == table.key[0])}


def _make_version_1(database: Database) -> None:
    for table in TABLES.values():
        columns = {column.name: column.type for column in table.columns}
        needed = {column.name for column in table.columns if column.needed}
        key = table.key[0] if len(table.key) == 1 else table.key
        database.table(table.name).create(columns, pk=key, not_null=needed, strict=True)
    for name, (owner, indexed) in INDEXES.items():
        database.table(owner).create_index(indexed, index_name=name)


#: What leads from version n to version n + 1, at place n.
STEPS: list[Callable[[Database], None]] = [_make_version_1]
