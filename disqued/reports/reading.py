"""Reading reports.sqlite: whoever wrote it, whatever happens to it meanwhile, and never for long.

    ask(path, lambda reports: reports.queues(Wanted(grain="day", limit=30)))  ->  Found(rows, computed_at, more)

The file is opened read-only for each question and closed again, so one that is replaced is read from the next question
on, and nothing is ever changed, made beside it, locked for others, or held open.  An answer is of one moment.  A
question that takes longer than `PATIENCE_S` is given up, and no answer has more than `ROWS_MAX` rows, or texts longer
than `TEXT_MAX`.

Rows are dicts by the names of the columns in `layout`; the newest come first.
"""

import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import attrs

from disqued.reports.layout import (
    APPLICATION_ID,
    AUDITS,
    FAULTS,
    FAULTS_MAX,
    FINDINGS,
    QUEUES,
    RUNS,
    SLO,
    VERSION,
    Table,
)

ROWS_MAX: Final = 5_000
TEXT_MAX: Final = 4_096  #: characters of a text
PATIENCE_S: Final = 5.0  #: for one question, or all of one page
TRIES: Final = 3
BUSY_S: Final = 1.0  #: that somebody who holds the file for himself is waited for
_STEPS: Final = 20_000  #: of SQLite's machine between looks at the clock; some milliseconds
_PRIMARY: Final = 0xFF  #: the low byte of an error code says which kind it is
_DAMAGE: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_LOCKED: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

Row = dict[str, Any]
T = TypeVar("T")


class NoReports(Exception):
    """There are none, or they cannot be read; the text says why, and what to do about it."""


class MissingReports(NoReports):
    """There is no file."""


class ReportsChanged(NoReports):
    """The file was written to, or replaced, while it was read: what was read may be of two moments."""


@attrs.frozen
class ReportFilter:
    """Which rows are asked for; what is None does not matter.  Moments and days are texts as in the tables."""

    queue: str | None = None
    grain: str | None = None
    measure: str | None = None
    job: str | None = None
    since: str | None = None  #: this moment or day, and what is newer
    until: str | None = None  #: what is older than this moment or day
    limit: int = ROWS_MAX


@attrs.frozen
class ReportRows:
    """What there is, the newest first."""

    rows: list[Row]
    computed_at: str | None  #: when the newest of them was computed; None = there are none
    more: bool = False  #: there are older ones, too, that the limit left out


def ask(path: Path | str, question: Callable[["ReportReader"], T], patience_s: float = PATIENCE_S) -> T:
    """Answer a question, once more if the file was changed meanwhile.  Raises NoReports."""
    for _ in range(TRIES - 1):
        try:
            with reading(path, patience_s) as reader:
                return question(reader)
        except ReportsChanged:
            continue
    with reading(path, patience_s) as reader:
        return question(reader)


@contextmanager
def reading(path: Path | str, patience_s: float = PATIENCE_S) -> Iterator["ReportReader"]:
    """Open the file for one question.

    Raises NoReports, also for what goes wrong while it is read; ReportsChanged at the end, where `ask` asks again.
    """
    place = Path(path)
    try:
        with _opened(place) as connection:
            deadline = time.monotonic() + patience_s
            connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
            _check(connection, place)
            yield ReportReader(connection)
    except sqlite3.Error as error:
        raise _failure(error, place) from error
    except OSError as error:
        raise NoReports(f"{place}: {error.strerror or error}") from error


@contextmanager
def _opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that reads, of one moment."""
    try:
        file = path.stat()
    except FileNotFoundError:
        text = f"{path}: there is no such file yet; `disqued-spark VERB --reports {path}` makes it"
        raise MissingReports(text) from None
    if not file.st_size:
        raise MissingReports(f"{path}: the file is empty; `disqued-spark VERB --reports {path}` fills it")
    # Where nobody writes, the file is complete by itself.  Without the word immutable SQLite would make a log and its
    # index beside it, which would then belong to us, and whoever writes might not be allowed to use them.
    before = _state(path) if _is_quiet(path) else None
    with closing(_connect(path, "mode=ro" if before is None else "mode=ro&immutable=1")) as connection:
        try:
            _begin(connection)
            yield connection
        except sqlite3.Error as error:
            _check_same(path, before, error)
            raise
        _check_same(path, before)


def _is_quiet(path: Path) -> bool:
    """Tell whether no transaction is kept beside the file."""
    logs = (path.with_name(path.name + ending) for ending in ("-wal", "-journal"))
    return not any(log.exists() and log.stat().st_size for log in logs)


def _state(path: Path) -> tuple[int, ...]:
    """What changes when somebody writes to the file itself, or puts another one into its place."""
    file = path.stat()
    return (file.st_ino, file.st_mtime_ns, file.st_size)


def _check_same(path: Path, before: tuple[int, ...] | None, error: Exception | None = None) -> None:
    if before is not None and _state(path) != before:
        raise ReportsChanged(f"{path}: the file is changed again and again while it is read; ask again") from error


def _connect(path: Path, how: str) -> sqlite3.Connection:
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, isolation_level=None, timeout=BUSY_S)
    connection.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
    connection.row_factory = sqlite3.Row
    return connection


def _begin(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()


def _check(connection: sqlite3.Connection, path: Path) -> None:
    application, version = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _MARKS)
    if application != APPLICATION_ID:
        raise NoReports(
            f"{path}: this is no file of reports, but a database of another program (application_id {application})"
        )
    if version > VERSION:
        raise NoReports(f"{path}: version {version} of the reports is newer than this disqued, which reads {VERSION}")
    if version < VERSION:
        raise NoReports(
            f"{path}: version {version} of the reports is older than this disqued, which reads {VERSION};"
            " the next run of disqued-spark brings the file up to date"
        )


_MARKS: Final = ("application_id", "user_version")


def _kind_of(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & _PRIMARY


def _failure(error: sqlite3.Error, path: Path) -> NoReports:
    kind = _kind_of(error)
    if kind == sqlite3.SQLITE_INTERRUPT:
        return NoReports(f"{path}: the answer takes too long; ask for one queue, or for a shorter time")
    if kind in _LOCKED:
        return NoReports(f"{path}: another program keeps the file for itself just now; ask again")
    if kind in _DAMAGE:
        return NoReports(
            f"{path}: the file is damaged, or no database at all: {error}; move it away, and run the jobs again"
        )
    return NoReports(f"{path}: {error}")


class ReportReader:
    """The tables, at one moment."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def queues(self, wanted: ReportFilter) -> ReportRows:
        """Hours or days of queues; of one moment in the order of their names."""
        return self._found(
            QUEUES, wanted, "at", {"queue": wanted.queue, "grain": wanted.grain}, "at DESC, queue, grain"
        )

    def slo(self, wanted: ReportFilter) -> ReportRows:
        """Days of queues, held against their targets; of one day in the order of names."""
        equal = {"queue": wanted.queue, "measure": wanted.measure}
        return self._found(SLO, wanted, "date", equal, "date DESC, queue, measure")

    def audits(self, wanted: ReportFilter, faults: int = 0) -> ReportRows:
        """Audits, each with the first of its `faults`; `counts` is a dict."""
        found = self._found(AUDITS, wanted, "checked_at", {}, "id DESC")
        left = ROWS_MAX
        for row in found.rows:
            row["counts"] = _counts(row["counts"])
            row["faults"] = self._faults(row["id"], min(faults, FAULTS_MAX, left))
            left -= len(row["faults"])
        return found

    def findings(self, wanted: ReportFilter) -> ReportRows:
        """What doctor found, the first of it."""
        return self._found(FINDINGS, wanted, "date", {"queue": wanted.queue}, "number")

    def runs(self, wanted: ReportFilter) -> ReportRows:
        return self._found(RUNS, wanted, "began_at", {"job": wanted.job}, "id DESC")

    def last_runs(self, status: str) -> list[Row]:
        """The last run of each job that ended so."""
        sql = "SELECT max(id) FROM runs WHERE status = :status GROUP BY job"
        return self.select(f"SELECT {_names(RUNS)} FROM runs WHERE id IN ({sql})", {"status": status})  # noqa: S608 - names of ours

    def select(self, sql: str, given: Mapping[str, Any]) -> list[Row]:
        """Rows of a statement that sums up, `ROWS_MAX` at most."""
        return [_read(row) for row in self._connection.execute(sql, given).fetchmany(ROWS_MAX)]

    def _faults(self, audit: int, most: int) -> list[Row]:
        sql = f"SELECT {_names(FAULTS)} FROM faults WHERE audit = ? ORDER BY number LIMIT ?"  # noqa: S608 - names of ours
        return [_read(row) for row in self._connection.execute(sql, (audit, most))]

    def _found(
        self, table: Table, wanted: ReportFilter, time: str, equal: Mapping[str, str | None], order: str
    ) -> ReportRows:
        is_date = next(column.form for column in table.columns if column.name == time) == "date"
        terms = [f"{name} = :{name}" for name, value in equal.items() if value is not None]
        if wanted.since is not None:
            terms.append(f"{time} >= :since")
        if wanted.until is not None:
            terms.append(f"{time} < :until")
        limit = max(0, min(wanted.limit, ROWS_MAX))
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        sql = f"SELECT {_names(table)} FROM {table.name}{where} ORDER BY {order} LIMIT :limit"  # noqa: S608 - names of ours
        given = {**equal, "since": _bound(wanted.since, is_date=is_date),
                 "until": _bound(wanted.until, is_date=is_date), "limit": limit + 1}  # fmt: skip
        rows = [_read(row) for row in self._connection.execute(sql, given)]
        shown = rows[:limit]
        return ReportRows(shown, max((row["computed_at"] for row in shown), default=None), len(rows) > limit)


def _names(table: Table) -> str:
    """The columns as they are selected: in brackets, since a name in quotes that is none would be a text of its own."""
    is_free = {column.name for column in table.columns if column.kind == "TEXT" and not column.form}
    # As bytes, since what is cut off a text ends at a NUL in it.
    first = f"substr(CAST([{{name}}] AS BLOB), 1, {4 * TEXT_MAX}) AS [{{name}}]"
    return ", ".join((first if name in is_free else "[{name}]").format(name=name) for name in table.names)


def _read(row: sqlite3.Row) -> dict[str, Any]:
    """A row by names; texts that may be long were selected as the first of their bytes."""
    return {
        name: value.decode(errors="backslashreplace")[:TEXT_MAX] if isinstance(value, bytes) else value
        for name, value in zip(row.keys(), row, strict=True)
    }


def _bound(bound: str | None, *, is_date: bool) -> str | None:
    """A bound as it is held against a column: the first moment of a day is that day."""
    return bound.removesuffix("T00:00:00Z") if bound is not None and is_date else bound


def _counts(text: str) -> dict[str, int]:
    try:
        counts = json.loads(text)
    except ValueError:
        return {}
    if not isinstance(counts, dict):
        return {}
    return {str(kind): count for kind, count in counts.items() if isinstance(count, int)}
