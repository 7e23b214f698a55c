"""The database file: made, checked and brought up to date, so that nothing foreign or newer is ever written to.

    version 1    jobs         what is to come back, in the order of `seq`: the number of its record in the journal
                 done         what was acknowledged, and when; `scope` is the consumer group, empty for a work job
                 evictions    what else ended a job: reason and time
                 flushes      when everything was dropped, and how many jobs that were
                 pauses       when a queue was paused and when not any more; the last word on a queue holds
                 meta         words about the file: `queues` = yes after a controlled shutdown, `schema` = its checksum
                 ..._readable views of the first three for people: names of states, times as ISO 8601
    version 2    jobs         has a kind, and an alias where there is one
                 leases       which consumer has a unit: the last word on each unit of a job that is there; and a view
    version 3    groups       where groups of consumers begin, and up to where queues were flushed (the scope is empty):
                              the last word on each, as JSON, {first 8 digits of the id of a node: stamp}; and a view
    version 4    policies     what the cluster says of each queue, a row for each field, its value as JSON; and a view
    version 5    jobs         has terms and a fate where there are any, as `wire.fates` writes them

A new file is made aside, synced and renamed, so that a file that exists is complete and carries our marks in its
header (`application_id`, `user_version`): what does not carry them is somebody else's.

A change of the schema is a function more in `STEPS`; the steps that a file lacks are taken in one transaction when it
is opened.  sqlite-utils makes tables, indexes and views.
"""

import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote
from zlib import crc32

from disqued.persistence.disk import Disk
from disqued.persistence.interface import StoreDamaged, StoreError, StoreFailed
from disqued.persistence.sqlite.rows import word_row

if TYPE_CHECKING:
    from sqlite_utils import Database
    from sqlite_utils.db import Table

APPLICATION_ID: Final = 0x4449_5351  #: "DISQ", at byte 68 of the file
OLDEST_SQLITE: Final = (3, 37, 0)  #: the first with STRICT tables
BUSY_S: Final = 10.0  #: how long another program's write transaction is waited for
PAGE_SIZE: Final = 4_096
CACHE_KIB: Final = 32_768  #: pages kept by the connection that writes
KEPT_LOG_BYTES: Final = 64 << 20  #: length of the log that is kept for what comes, once it begins anew

_MAGIC = b"SQLite format 3\0"
_MARKS = struct.Struct(">I4xI")  #: at byte 60: user_version, four bytes, application_id
_MARKS_AT = 60
_HEADER_SIZE = 100

#: Errors after which a file cannot be trusted; every other leaves the transaction undone and nothing changed.
_FINAL_CODES = (sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_DIR_FSYNC)
_DAMAGE_CODES = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
#: What a connection raises; the last one when the text of an error quotes what is damaged.
DATABASE_ERRORS: Final = (sqlite3.Error, UnicodeDecodeError)
_PRIMARY = 0xFF  #: the low byte of an error code says which kind it is


class DatabaseDamaged(StoreDamaged):
    """The database does not hold what was written to it; the text says what was found."""

    def __init__(self, path: Path | str, what: str, *, row: int = 0) -> None:
        """`row` is the number of the damaged record; 0 = not within one."""
        super().__init__(str(path), 0, row, what)
        self.args = (f"{path}: damaged{f', record {row}' if row else ''}: {what}",)


def failure_of(error: Exception, path: Path) -> StoreError:
    """What one of `DATABASE_ERRORS` or an error of the system means to those who use a store."""
    if isinstance(error, OSError):
        return StoreFailed(f"{path}: {error.strerror or error}")
    if isinstance(error, UnicodeDecodeError):
        return DatabaseDamaged(path, error.object.decode(errors="replace"))
    # Without a code it is the module that speaks: of a TEXT that is none, or of a number that does not fit.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    if code & _PRIMARY in _DAMAGE_CODES:
        return DatabaseDamaged(path, str(error))
    return StoreFailed(f"{path}: {error}", final=code in _FINAL_CODES)


def write_failure_of(error: Exception, path: Path) -> StoreFailed:
    """What an error means to those who wait for a transaction: damage is as final as a failed sync."""
    failure = failure_of(error, path)
    return failure if isinstance(failure, StoreFailed) else StoreFailed(str(failure))


def wal_path(path: Path) -> Path:
    """The write-ahead log of a database: what was committed since the last checkpoint."""
    return path.with_name(path.name + "-wal")


# Opening.


def find_database(path: Path) -> bool:
    """Tell whether there is a database of ours to open; looks without touching anything.

    Raises StoreError when there is something else, or what a newer version wrote.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        wanted = ".".join(map(str, OLDEST_SQLITE))
        raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old for `persistence sqlite`: needed is {wanted}")
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_SIZE)
    except FileNotFoundError:
        _check_nothing_is_lost(path)
        return False
    except OSError as error:
        raise StoreFailed(f"{path}: {error.strerror}") from error
    _check_header(path, header)
    return True


def _check_nothing_is_lost(path: Path) -> None:
    """Refuse to begin anew beside the log of a database that is gone: its pages would get into the new one."""
    log = wal_path(path)
    if log.exists() and log.stat().st_size:
        raise DatabaseDamaged(path, f"the database is missing, but {log.name} holds transactions of it")


def _check_header(path: Path, header: bytes) -> None:
    if len(header) < _HEADER_SIZE or not header.startswith(_MAGIC):
        raise DatabaseDamaged(path, "this is no SQLite database; move it away, or set sqlite-file to another name")
    version, application = _MARKS.unpack_from(header, _MARKS_AT)
    if application != APPLICATION_ID:
        raise StoreError(
            f"{path}: a database of another program (application_id {application}); set sqlite-file to another name"
        )
    if version > len(STEPS):
        raise StoreError(
            f"{path}: version {version} of the schema is not known to this version of disqued, which knows 1 to"
            f" {len(STEPS)}; start the newer disqued that wrote it"
        )
    if version < 1:
        raise DatabaseDamaged(path, f"version {version} of the schema never was; known are 1 to {len(STEPS)}")


def connect(path: Path, *, mode: str = "rw", busy_s: float = BUSY_S) -> sqlite3.Connection:
    """A connection to a file that exists, for the thread that asks; statements begin no transaction by themselves."""
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    return sqlite3.connect(uri, uri=True, isolation_level=None, timeout=busy_s, cached_statements=256)


def connect_writer(path: Path) -> sqlite3.Connection:
    """The connection that writes.

    The log is forced to the disk by its owner (`log`), and moved into the database by it, too: within a COMMIT
    SQLite would keep an error of either to itself.
    """
    connection = connect(path)
    for pragma in ("synchronous = NORMAL", "wal_autocheckpoint = 0", f"journal_size_limit = {KEPT_LOG_BYTES}",
                   "secure_delete = OFF", f"cache_size = -{CACHE_KIB}"):  # fmt: skip
        connection.execute(f"PRAGMA {pragma}").fetchall()
    return connection


def set_patience(connection: sqlite3.Connection, seconds: float) -> None:
    """Wait so long for other programs, from now on."""
    connection.execute(f"PRAGMA busy_timeout = {int(seconds * 1_000)}").fetchall()


def connect_reader(path: Path, *, mode: str = "rw") -> sqlite3.Connection:
    """A connection that reads TEXT as the bytes that it is made of."""
    connection = connect(path, mode=mode)
    connection.text_factory = bytes
    return connection


def prepare(path: Path, disk: Disk) -> None:
    """Make a database, or bring the one that is there up to date.  Raises StoreError."""
    aside = path.with_name(path.name + ".new")
    try:
        if find_database(path):
            _migrate(path)
            return
        for leftover in ("", "-journal", "-wal", "-shm"):
            aside.with_name(aside.name + leftover).unlink(missing_ok=True)
        descriptor = disk.create(aside)
        try:
            _create(aside)
            disk.fdatasync(descriptor)
        finally:
            disk.close(descriptor)
        disk.sync_directory(path.parent)
        disk.rename(aside, path)
        disk.sync_directory(path.parent)
    except (*DATABASE_ERRORS, OSError) as error:
        raise failure_of(error, path) from error


def _create(path: Path) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        # Before the first table: pages can be given back one by one only to those who keep account from the start.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        _take_steps(connection, 0)
        connection.execute("PRAGMA journal_mode = WAL").fetchall()
    finally:
        connection.close()


def _migrate(path: Path) -> None:
    connection = connect(path)
    try:
        version = version_of(connection)
        if version < len(STEPS):
            check_schema(connection, path, version)
            _take_steps(connection, version)
            # The header itself is to say so from now on: it is what `find_database` reads.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        check_schema(connection, path, len(STEPS))
    finally:
        connection.close()


def _take_steps(connection: sqlite3.Connection, version: int) -> None:
    from sqlite_utils import Database  # only those who have this store need it

    connection.execute("BEGIN IMMEDIATE")
    try:
        database = Database(connection, execute_plugins=False, strict=True)
        for step in STEPS[version:]:
            step(database)
        connection.execute(f"PRAGMA user_version = {len(STEPS)}")
        _set_word(connection, "schema", f"{_schema_crc(connection, len(STEPS)):08x}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


# Words about the file.


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the schema that a database has."""
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def check_schema(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Check that tables, indexes and views are what that version made.  Raises DatabaseDamaged."""
    if read_word(connection, path, "schema") != f"{_schema_crc(connection, version):08x}":
        raise DatabaseDamaged(path, "tables, indexes or views are not what disqued made them; they must not be changed")


def _schema_crc(connection: sqlite3.Connection, version: int) -> int:
    """Checksum of what we made up to a version; what people add for themselves does not count."""
    names = sorted(name for name in (*_TABLES, *_INDEXES, *_VIEWS) if _SINCE.get(name, 1) <= version)
    found = {
        _text(name): [_text(value) for value in rest]
        for name, *rest in connection.execute("SELECT name, type, tbl_name, coalesce(sql, '') FROM sqlite_schema")
    }
    return crc32(repr([(name, found.get(name)) for name in names]).encode())


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


def read_word(connection: sqlite3.Connection, path: Path, name: str) -> str | None:
    """A word about the file; None when there is none of that name.  Raises DatabaseDamaged."""
    row = connection.execute("SELECT name, value, crc FROM meta WHERE name = ?", (name,)).fetchone()
    if row is None:
        return None
    value = _text(row[1])
    if row[2] != word_row(name, value)[2]:
        raise DatabaseDamaged(path, f"the checksum of the word `{name}` in the table meta is wrong")
    return value


def _set_word(connection: sqlite3.Connection, name: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO meta (name, value, crc) VALUES (?, ?, ?)", word_row(name, value))


def has_queues(connection: sqlite3.Connection, path: Path) -> bool:
    """Tell whether the rows say the truth about queues.  Raises DatabaseDamaged."""
    value = read_word(connection, path, "queues")
    if value is None:
        raise DatabaseDamaged(path, "the word `queues` is missing in the table meta")
    return value == "yes"


def set_has_queues(connection: sqlite3.Connection, *, value: bool) -> None:
    """Write down whether the rows say the truth about queues; part of a transaction."""
    _set_word(connection, "queues", "yes" if value else "no")


def watermark_of(connection: sqlite3.Connection, path: Path) -> int:
    """Up to when delayed jobs have been queued, in unix milliseconds; 0 = nothing says so.  Raises DatabaseDamaged."""
    value = read_word(connection, path, "watermark")
    return 0 if value is None else int(value)


def set_watermark(connection: sqlite3.Connection, until: int) -> None:
    """Write down up to when delayed jobs have been queued, 0 = nowhere; part of a transaction."""
    if until:
        _set_word(connection, "watermark", str(until))
    else:
        connection.execute("DELETE FROM meta WHERE name = 'watermark'")


#: Tables of records, each with its number.
NUMBERED: Final = ("jobs", "done", "evictions", "flushes", "pauses", "leases", "groups", "policies")
_TABLES: Final = (*NUMBERED, "meta")
#: A group without its epoch, as `rows.name_in` makes it.
GROUP_NAME: Final = "coalesce(substr(CAST(scope AS BLOB), instr(CAST(scope AS BLOB), x'3A')), x'')"
#: Table and columns of each index.  What belongs to the jobs is made anew by those who replace them all.
_INDEXES: Final = {
    "jobs_by_id": ("jobs", ["id"]),
    "jobs_by_queue": ("jobs", ["queue", "ctime"]),
    "jobs_by_ctime": ("jobs", ["ctime"]),
    "jobs_by_state": ("jobs", ["state", "expires_at"]),
    "done_by_time": ("done", ["done_at"]),
    "done_by_queue": ("done", ["queue", "done_at"]),
    "done_of_groups": ("done", ["id"]),
    "evictions_by_time": ("evictions", ["gone_at"]),
    "evictions_by_queue": ("evictions", ["queue", "gone_at"]),
    "pauses_by_queue": ("pauses", ["queue"]),
    "jobs_by_alias": ("jobs", ["queue", "alias"]),
    "leases_by_id": ("leases", ["id", "scope"]),
    "groups_by_name": ("groups", ["queue", GROUP_NAME]),
    "policies_by_queue": ("policies", ["queue", "field"]),
}
_UNIQUE: Final = ("jobs_by_id", "leases_by_id", "groups_by_name", "policies_by_queue")
#: Which rows an index knows, where it does not know all of them.
_PARTIAL: Final = {
    # A work job is done once and for all; what a group has done is asked for while the job lives.
    "done_of_groups": "scope <> ''",
    "jobs_by_alias": "alias IS NOT NULL",
}
#: The version that something came with; all else with the first.
_SINCE: Final = {
    **dict.fromkeys(("jobs_by_alias", "leases", "leases_by_id", "leases_readable"), 2),
    **dict.fromkeys(("groups", "groups_by_name", "groups_readable"), 3),
    **dict.fromkeys(("policies", "policies_by_queue", "policies_readable"), 4),
}

#: Where a job was; nothing while nobody can know.
_STATE = (
    "CASE (SELECT value FROM meta WHERE name = 'queues') WHEN 'yes' THEN"
    " CASE state WHEN 0 THEN 'wait-repl' WHEN 1 THEN 'active' WHEN 2 THEN 'queued' WHEN 3 THEN 'acked' WHEN 4 THEN"
    " 'dead' END END"
)


def _shown(column: str) -> str:
    return f"CASE typeof({column}) WHEN 'blob' THEN 'x''' || hex({column}) || '''' ELSE {column} END AS {column}"


#: Milliseconds as ISO 8601.
_TIME: Final = "strftime('%Y-%m-%dT%H:%M:%fZ', {} / 1000.0, 'unixepoch')"


def _iso(milliseconds: str, name: str) -> str:
    return f"{_TIME.format(milliseconds)} AS {name}"


_CREATED = _iso("(ctime / 1000000)", "created")
#: Columns of the view of the jobs, as in version 1.
_JOBS_SHOWN: Final = (
    "seq",
    "id",
    _shown("queue"),
    _shown("body"),
    f"{_STATE} AS state",
    _CREATED,
    _iso("expires_at", "expires"),
    _iso("nullif(requeue_at, 0)", "requeue"),
    "ttl_ms / 1000.0 AS ttl_s",
    "retry_ms / 1000.0 AS retry_s",
    "delay_ms / 1000.0 AS delay_s",
    "replicate",
    "nacks",
    "additional_deliveries",
    "holders",
)
_KIND: Final = "CASE kind WHEN 0 THEN 'work' WHEN 1 THEN 'log' END AS kind"
#: Up to when the events of each node are meant.
_FLOOR_SHOWN: Final = (
    f"(SELECT json_group_object(key, {_TIME.format('value / 1000000')}) FROM json_each(floor)) AS floor"  # noqa: S608 - names of ours
)
#: Columns and table of each view.
_VIEWS: Final = {
    "jobs_readable": ((*_JOBS_SHOWN, _KIND, _shown("alias"), "hex(terms) AS terms", "hex(fate) AS fate"), "jobs"),
    "done_readable": (("seq", "id", _shown("scope"), _shown("queue"), _CREATED, _iso("done_at", "done")), "done"),
    "evictions_readable": (
        ("seq", "id", _shown("reason"), _shown("queue"), _CREATED, _iso("gone_at", "gone")), "evictions",
    ),
    "leases_readable": (
        ("seq", "id", _shown("scope"), "deliveries", _shown("worker"), _iso("leased_at", "leased")), "leases",
    ),
    "groups_readable": (
        (
            "seq", _shown("queue"), _shown("scope"), "CASE scope WHEN '' THEN 'flushed' ELSE 'begun' END AS event",
            _FLOOR_SHOWN,
            _iso("began_at", "began"),
        ), "groups",
    ),
    "policies_readable": (
        ("seq", _shown("queue"), "field", "value", "counter", "node", _iso("set_at", "set_time")), "policies",
    ),
}  # fmt: skip


# Version 1.


def _make_version_1(database: "Database") -> None:
    _make_tables(database)
    for name in _INDEXES:
        if name not in _SINCE:
            _make_index(database.conn, name)
    _make_view(database, "jobs_readable", _JOBS_SHOWN, "jobs")
    for name in ("done_readable", "evictions_readable"):
        _make_view(database, name, *_VIEWS[name])
    set_has_queues(database.conn, value=False)


def _make_view(database: "Database", name: str, columns: tuple[str, ...], table: str) -> None:
    database.create_view(name, f"SELECT {', '.join(columns)} FROM {table}")  # noqa: S608 - names of ours


def _make_tables(database: "Database") -> None:
    number, text, anything = int, str, "ANY"
    _make_table(database, "jobs", seq=number, id=text, queue=anything, body=anything, state=number, ctime=number,
                expires_at=number, requeue_at=number, ttl_ms=number, retry_ms=number, delay_ms=number, replicate=number,
                flags=number, nacks=number, additional_deliveries=number, order_key=number, holders=text,
                fact_crc=number, crc=number)  # fmt: skip
    for table, column, tail in (("done", "done_at", "scope"), ("evictions", "gone_at", "reason")):
        columns = {"id": text, tail: anything, "queue": anything, "ctime": number, column: number, "crc": number}
        _make_table(database, table, seq=number, **columns)
    _make_table(database, "flushes", seq=number, flushed_at=number, jobs=number, crc=number)
    _make_table(database, "pauses", seq=number, queue=anything, pause=number, paused_at=number, crc=number)
    _make_table(database, "meta", name=text, value=text, crc=number)


def _make_table(database: "Database", table: str, **columns: object) -> "Table":
    """Make a STRICT table whose first column is its key; only what may be unknown may be NULL."""
    key = next(iter(columns))
    may_be_null = {"holders"} if table == "jobs" else {"queue", "ctime"} if table in ("done", "evictions") else set()
    required = set(columns) - may_be_null - {key}
    return database.create_table(table, columns, pk=key, not_null=required, strict=True)


def make_indexes(connection: sqlite3.Connection, table: str) -> None:
    """Make the indexes of one table."""
    for name, (owner, _) in _INDEXES.items():
        if owner == table:
            _make_index(connection, name)


def _make_index(connection: sqlite3.Connection, name: str) -> None:
    table, columns = _INDEXES[name]
    unique = "UNIQUE " if name in _UNIQUE else ""
    only = f" WHERE {_PARTIAL[name]}" if name in _PARTIAL else ""
    connection.execute(f"CREATE {unique}INDEX {name} ON {table} ({', '.join(columns)}){only}")


def drop_indexes(connection: sqlite3.Connection, table: str) -> None:
    """Drop the indexes of one table: a big load is faster without them."""
    for name, (owner, _) in _INDEXES.items():
        if owner == table:
            connection.execute(f"DROP INDEX {name}")


# Version 2.


def _make_version_2(database: "Database") -> None:
    # A row of version 1 is one of a work job without an alias, and takes up no more room than it did.
    database.conn.execute("ALTER TABLE jobs ADD COLUMN kind INTEGER NOT NULL DEFAULT 0")
    database.conn.execute("ALTER TABLE jobs ADD COLUMN alias ANY")
    number = int
    _make_table(database, "leases", seq=number, id=str, scope="ANY", deliveries=number, worker="ANY", leased_at=number,
                crc=number)  # fmt: skip
    for name in ("jobs_by_alias", "leases_by_id"):
        _make_index(database.conn, name)
    database.conn.execute("DROP VIEW jobs_readable")
    _make_view(database, "jobs_readable", (*_JOBS_SHOWN, _KIND, _shown("alias")), "jobs")
    _make_view(database, "leases_readable", *_VIEWS["leases_readable"])


# Version 3.


def _make_version_3(database: "Database") -> None:
    number = int
    _make_table(database, "groups", seq=number, queue="ANY", scope="ANY", floor=str, began_at=number, crc=number)
    _make_index(database.conn, "groups_by_name")
    _make_view(database, "groups_readable", *_VIEWS["groups_readable"])


# Version 4.


def _make_version_4(database: "Database") -> None:
    number = int
    _make_table(
        database, "policies",
        seq=number, queue="ANY", field=str, counter=number, node=str, set_at=number, value=str, crc=number,
    )  # fmt: skip
    _make_index(database.conn, "policies_by_queue")
    _make_view(database, "policies_readable", *_VIEWS["policies_readable"])


# Version 5.


def _make_version_5(database: "Database") -> None:
    for column in ("terms", "fate"):
        database.conn.execute(f"ALTER TABLE jobs ADD COLUMN {column} BLOB")
    database.conn.execute("DROP VIEW jobs_readable")
    _make_view(database, "jobs_readable", *_VIEWS["jobs_readable"])


#: What leads from version n to version n + 1, at place n.
STEPS: list[Callable[["Database"], None]] = [
    _make_version_1, _make_version_2, _make_version_3, _make_version_4, _make_version_5,
]  # fmt: skip
