"""The database against cuts, flipped bits, hands that change it, and files that are something else."""

import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from disqued.core.model.job import KIND_LOG
from disqued.core.model.outbox import (
    GONE_DELETED,
    GROUP,
    JOB_ADDED,
    JOB_GONE,
    POLICY,
    QUEUE_PAUSED,
    UNIT_DONE,
    UNIT_LEASED,
)
from disqued.core.model.policies import PAUSE_FIELD, PauseSetting, Register
from disqued.core.model.queues import PAUSE_IN
from disqued.persistence.interface import StoreDamaged, StoreError, StoreFailed, StoreLocked
from disqued.persistence.sqlite import schema as sqlite_schema
from disqued.persistence.sqlite.reading import peek_database
from disqued.persistence.sqlite.schema import DatabaseDamaged
from tests.databases import NAME, Store, added, bodies, change, job_id, loaded, make_job, opened, replayed, rows
from tests.fates import FATE, TERMS

PAGE = 4_096
HEADER = 100
#: Databases of older versions, as the code of each version wrote it.
VERSION_1 = Path(__file__).with_name("sqlite_version_1.sql")
VERSION_2 = Path(__file__).with_name("sqlite_version_2.sql")
VERSION_3 = Path(__file__).with_name("sqlite_version_3.sql")
VERSION_4 = Path(__file__).with_name("sqlite_version_4.sql")
VERSIONS = [VERSION_1, VERSION_2, VERSION_3, VERSION_4]
NODE_A, NODE_B = b"0123abcd", b"89abcdef"
#: Where groups begin in the small database, and up to where a queue was flushed.
BEGINNINGS = [
    (GROUP, b"queue", b"", ((NODE_A, 1_700_000_000_123_456_789),)),
    (GROUP, b"queue", b"3:group", ((NODE_A, 7), (NODE_B, 1_700_000_000_123_456_790))),
    (GROUP, b"mail \xff", b"12:\xfe", ()),
]


def small_database(directory: Path) -> bytes:
    """Some jobs, some that are over, and a pause; returns the file."""
    store, _ = opened(directory)
    store.put_bodies(*(b"%d " % number + b"x" * (number * 37 % 200) for number in range(40)))
    store.put((UNIT_DONE, job_id(3), b""), (JOB_GONE, job_id(4), GONE_DELETED), (QUEUE_PAUSED, b"queue", PAUSE_IN))
    store.put_all([added(number, b"again %d" % number, **facts_of(number)) for number in range(20)])
    store.put((UNIT_DONE, job_id(5), b""), (QUEUE_PAUSED, b"mail", PAUSE_IN))
    store.put(*((UNIT_LEASED, job_id(number), b"group", number, b"worker") for number in range(5, 9)))
    store.put((GROUP, b"queue", b"2:group", ((NODE_B, 9),)), *BEGINNINGS)
    store.end()
    return (directory / NAME).read_bytes()


def facts_of(number: int) -> dict[str, Any]:
    """A job in three has an alias, and one in three belongs to a log."""
    kinds: list[dict[str, Any]] = [{}, {"alias": b"alias %d" % number}, {"kind": KIND_LOG}]
    return {"holders": frozenset([b"a" * 40]), **kinds[number % 3]}


def begin_anew(directory: Path) -> None:
    shutil.rmtree(directory)
    directory.mkdir()


def use(directory: Path) -> None:
    """Load a file, end every job of it, and load it again: nothing may be wrong that was not told."""
    store, records = opened(directory)
    jobs, pauses = replayed(records)
    assert (len(jobs), pauses) == (19, {b"mail": PAUSE_IN})
    assert jobs == {job_id(number): b"again %d" % number for number in range(20) if number != 5}
    for stored in (record[1] for record in records if record[0] == JOB_ADDED):
        named = facts_of(int(stored.id[2:46]))
        assert (stored.alias, stored.kind) == (named.get("alias", b""), named.get("kind", 0))
    assert [record[1:5] for record in records if record[0] == UNIT_LEASED] == [
        (job_id(number), b"group", number, b"worker") for number in range(6, 9)
    ]
    assert [record[:4] for record in records if record[0] == GROUP] == BEGINNINGS
    try:
        store.put(*((UNIT_DONE, name, b"") for name in jobs))
        store.put((GROUP, b"queue", b"3:group", ((NODE_A, 8),)), (GROUP, b"mail \xff", b"0:\xfe", ()))
        store.end()
    except StoreFailed:
        store.end()
        return
    records = loaded(directory)
    assert replayed(records)[0] == {}
    horizon, begun = BEGINNINGS[0], (*BEGINNINGS[1][:3], ((NODE_A, 8), BEGINNINGS[1][3][1]))
    assert [record[:4] for record in records if record[0] == GROUP] == [horizon, begun]


def flipped(data: bytes, bit: int) -> bytes:
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def test_one_flipped_bit_in_the_header_is_told_or_changes_nothing(tmp_path: Path) -> None:
    data = small_database(tmp_path)
    told = 0
    for bit in range(0, HEADER * 8, 3):
        begin_anew(tmp_path)
        (tmp_path / NAME).write_bytes(flipped(data, bit))
        try:
            use(tmp_path)
        except StoreError:
            told += 1
    assert told > 80


@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_flipped_bit_anywhere_is_told_or_changes_nothing(tmp_path: Path, data: st.DataObject) -> None:
    begin_anew(tmp_path)
    good = small_database(tmp_path)
    bit = data.draw(st.integers(HEADER * 8, len(good) * 8 - 1))
    begin_anew(tmp_path)
    (tmp_path / NAME).write_bytes(flipped(good, bit))
    with contextlib.suppress(StoreError):
        use(tmp_path)


def test_one_flipped_bit_in_a_body_is_told_with_its_record(tmp_path: Path) -> None:
    data = small_database(tmp_path)
    at = data.index(b"again 7")
    # A page may hold an older copy in room that it does not use any more.
    told = 0
    while at >= 0:
        (tmp_path / NAME).write_bytes(flipped(data, at * 8))
        try:
            assert b"again 7" in bodies(tmp_path)
        except StoreDamaged as error:
            told += "the checksum is wrong" in str(error) and error.sequence > 0
        at = data.find(b"again 7", at + 1)
    assert told == 1


@pytest.mark.parametrize("word", [b"INTEGER NOT NULL", b"CREATE INDEX", b"jobs_by_id", b"THEN", b"queues"])
def test_a_flipped_letter_in_the_schema_or_in_a_word_about_the_file_is_told(tmp_path: Path, word: bytes) -> None:
    data = small_database(tmp_path)
    told = 0
    at = data.index(word)
    while at >= 0:
        for bit in (0, 7):
            begin_anew(tmp_path)
            (tmp_path / NAME).write_bytes(flipped(data, at * 8 + bit))
            # Room that is not used any more may hold the same word.
            try:
                use(tmp_path)
            except StoreDamaged:
                told += 1
        at = data.find(word, at + 400)
    assert told >= 2


def test_a_file_cut_anywhere_is_told_unless_nothing_stood_there(tmp_path: Path) -> None:
    data = small_database(tmp_path)
    lengths = [*range(0, len(data), 512), *range(PAGE - 1, len(data), PAGE), 1, 99, 101, len(data) - 1]
    for length in lengths:
        begin_anew(tmp_path)
        (tmp_path / NAME).write_bytes(data[:length])
        if length <= len(data) - PAGE:
            with pytest.raises(StoreDamaged):
                loaded(tmp_path)
        else:
            use(tmp_path)


def test_a_page_of_zeros_anywhere_is_told_or_changes_nothing(tmp_path: Path) -> None:
    data = small_database(tmp_path)
    told = 0
    for start in range(0, len(data), PAGE):
        begin_anew(tmp_path)
        (tmp_path / NAME).write_bytes(data[:start] + bytes(PAGE) + data[start + PAGE :])
        try:
            use(tmp_path)
        except StoreError:
            told += 1
    assert told > 10


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("UPDATE jobs SET body = 'other' WHERE id LIKE '%7SQ'", "the checksum is wrong"),
        ("UPDATE jobs SET ttl_ms = ttl_ms + 1 WHERE seq = (SELECT max(seq) FROM jobs)", "the checksum is wrong"),
        ("UPDATE jobs SET holders = NULL WHERE seq = (SELECT max(seq) FROM jobs)", "the checksum is wrong"),
        ("UPDATE jobs SET retry_ms = -1 WHERE seq = (SELECT max(seq) FROM jobs)", "the row makes no sense"),
        ("UPDATE pauses SET pause = 2", "the checksum is wrong"),
        ("UPDATE jobs SET alias = 'other' WHERE alias = 'alias 7'", "the checksum is wrong"),
        ("UPDATE jobs SET alias = NULL WHERE alias = 'alias 7'", "the checksum is wrong"),
        ("UPDATE jobs SET kind = 0 WHERE kind = 1", "the checksum is wrong"),
        ("UPDATE jobs SET kind = 1 WHERE alias = 'alias 7'", "the checksum is wrong"),
        ("UPDATE jobs SET kind = -1 WHERE alias IS NULL", "the row makes no sense"),
        ("UPDATE leases SET worker = 'thief'", "the checksum is wrong"),
        ("UPDATE leases SET deliveries = 0", "the checksum is wrong"),
        ("UPDATE leases SET deliveries = -1", "the row makes no sense"),
        ("DROP TABLE leases", "they must not be changed"),
        ("UPDATE groups SET floor = '{}' WHERE scope = ''", "the checksum is wrong"),
        ("UPDATE groups SET floor = replace(floor, '7', '8')", "the checksum is wrong"),
        ("UPDATE groups SET scope = '4:group' WHERE scope = '3:group'", "the checksum is wrong"),
        ("UPDATE groups SET began_at = began_at + 1", "the checksum is wrong"),
        ("UPDATE groups SET scope = 5 WHERE scope = ''", "the row makes no sense"),
        ("DROP TABLE groups", "they must not be changed"),
        ("DROP INDEX groups_by_name", "they must not be changed"),
        ("UPDATE meta SET value = 'yes' WHERE name = 'queues'", "the word `queues` in the table meta is wrong"),
        ("DELETE FROM meta WHERE name = 'queues'", "the word `queues` is missing"),
        ("DROP INDEX jobs_by_queue", "they must not be changed"),
        ("DROP VIEW jobs_readable", "they must not be changed"),
        ("ALTER TABLE jobs ADD COLUMN note TEXT", "they must not be changed"),
    ],
)
def test_what_people_change_is_told(tmp_path: Path, statement: str, text: str) -> None:
    small_database(tmp_path)
    change(tmp_path, statement)
    with pytest.raises(StoreDamaged, match=text):
        loaded(tmp_path)


def test_an_index_and_a_view_of_the_operator_are_welcome(tmp_path: Path) -> None:
    small_database(tmp_path)
    change(tmp_path, "CREATE INDEX mine ON jobs (body); CREATE VIEW bodies AS SELECT body FROM jobs")
    use(tmp_path)


def test_damage_in_what_is_over_is_told_by_those_who_read_it(tmp_path: Path) -> None:
    small_database(tmp_path)
    for statement in (
        "UPDATE done SET done_at = done_at + 1",
        "UPDATE evictions SET reason = 'expired'",
        "UPDATE evictions SET queue = NULL",
        "UPDATE done SET ctime = ctime + 1",
    ):
        data = (tmp_path / NAME).read_bytes()
        change(tmp_path, statement)
        with pytest.raises(StoreDamaged, match="the checksum is wrong"):
            list(peek_database(tmp_path / NAME))
        (tmp_path / NAME).write_bytes(data)
    assert len(list(peek_database(tmp_path / NAME))) == 19 + 2 + 1 + 1 + 3 + len(BEGINNINGS)


# Other files.


@pytest.mark.parametrize("data", [b"", b"*2\r\n$7\r\nLOADJOB\r\n" * 50, b"SQLite format 3\0", bytes(5_000)])
def test_a_file_that_is_no_database_is_refused_and_stays(tmp_path: Path, data: bytes) -> None:
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(StoreDamaged, match="this is no SQLite database; move it away"):
        loaded(tmp_path)
    with pytest.raises(StoreDamaged, match="this is no SQLite database"):
        list(peek_database(tmp_path / NAME))
    assert (tmp_path / NAME).read_bytes() == data


def test_a_start_that_is_refused_leaves_no_lock(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"")
    refused = Store(tmp_path)
    with pytest.raises(StoreDamaged):
        refused.open()
    (tmp_path / NAME).unlink()
    assert loaded(tmp_path) == []


def test_a_database_of_another_program_is_refused_and_stays(tmp_path: Path) -> None:
    change(tmp_path, "PRAGMA application_id = 7; CREATE TABLE jobs (a)")
    data = (tmp_path / NAME).read_bytes()
    with pytest.raises(StoreError, match=r"a database of another program \(application_id 7\); set sqlite-file"):
        loaded(tmp_path)
    assert (tmp_path / NAME).read_bytes() == data


def test_a_log_without_its_database_is_told(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    store.put_bodies(b"one")
    log = (tmp_path / f"{NAME}-wal").read_bytes()
    store.end()
    begin_anew(tmp_path)
    (tmp_path / f"{NAME}-wal").write_bytes(log)
    with pytest.raises(StoreDamaged, match="the database is missing, but disque"):
        loaded(tmp_path)


def test_what_a_crash_left_of_a_new_database_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / f"{NAME}.new").write_bytes(b"half a database")
    assert loaded(tmp_path) == []
    assert not (tmp_path / f"{NAME}.new").exists()
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o640


def test_a_folder_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="No such file or directory"):
        loaded(tmp_path / "missing")


def test_a_second_process_is_refused(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    with pytest.raises(StoreLocked, match="another process uses this database"):
        opened(tmp_path)
    store.end()
    assert loaded(tmp_path) == []


# Versions.


def test_a_database_of_a_newer_version_is_refused_and_stays(tmp_path: Path) -> None:
    small_database(tmp_path)
    change(tmp_path, "PRAGMA user_version = 6")
    data = (tmp_path / NAME).read_bytes()
    with pytest.raises(StoreError, match="version 6 of the schema is not known to this version of disqued, which know"):
        loaded(tmp_path)
    assert (tmp_path / NAME).read_bytes() == data


def test_a_database_of_version_1_is_brought_up_to_date_with_all_that_it_holds(tmp_path: Path) -> None:
    change(tmp_path, VERSION_1.read_text())
    data = (tmp_path / NAME).read_bytes()
    jobs = [
        make_job(1, b"one"), make_job(2, b"\xff\x00", queue=b"mail \xff"),
        make_job(
            3, b"three", holders=frozenset([b"a" * 40, b"b" * 40]), flags=1, nacks=2, additional_deliveries=3,
            order_key=-5, requeue_at=70_000,
        ),
    ]  # fmt: skip
    when = 1_700_000_000_007
    groups = [(UNIT_DONE, job_id(1), b"group", when), (UNIT_DONE, job_id(3), b"\xfe", when)]
    # Whoever only looks changes nothing.
    history = list(peek_database(tmp_path / NAME))
    assert (tmp_path / NAME).read_bytes() == data
    # And now it is brought up to date.
    records = loaded(tmp_path)
    assert [record for record in records if record[0] != JOB_ADDED] == [(QUEUE_PAUSED, b"queue", 1, when), *groups]
    stored = [record[1] for record in records if record[0] == JOB_ADDED]
    assert [(job.id, job.queue, job.body, job.ctime, job.holders, job.order_key) for job in stored] == [
        (job.id, job.queue, job.body, job.ctime, job.holders, job.order_key) for job in jobs
    ]
    assert [(job.flags, job.nacks, job.additional_deliveries, job.kind, job.alias) for job in stored] == [
        (job.flags, job.nacks, job.additional_deliveries, 0, b"") for job in jobs
    ]
    assert list(peek_database(tmp_path / NAME)) == history
    assert rows(tmp_path, "PRAGMA user_version") == [(5,)]
    # It goes on as one that was new with this version.
    store, _ = opened(tmp_path)
    store.put(added(6, alias=b"six"), added(7, kind=KIND_LOG), (UNIT_LEASED, job_id(3), b"", 4, b"worker"))
    now = store.clock.wall()
    store.end()
    *records, leased = loaded(tmp_path)
    assert leased == (UNIT_LEASED, job_id(3), b"", 4, b"worker", now)
    kinds = [(record[1].alias, record[1].kind) for record in records if record[0] == JOB_ADDED]
    assert kinds == [(b"", 0), (b"", 0), (b"", 0), (b"six", 0), (b"", KIND_LOG)]


def test_a_database_of_version_2_is_brought_up_to_date_with_all_that_it_holds(tmp_path: Path) -> None:
    change(tmp_path, VERSION_2.read_text())
    data = (tmp_path / NAME).read_bytes()
    when = 1_700_000_000_007
    rest = [
        (UNIT_DONE, job_id(4), b"0:group", when),
        (UNIT_DONE, job_id(4), b"2:\xfe", when),
        (UNIT_LEASED, job_id(1), b"", 4, b"worker \xff", when),
        (UNIT_LEASED, job_id(4), b"1:other", 1, b"1700000090000", when),
    ]
    history = list(peek_database(tmp_path / NAME))
    assert [record for record in history if record[0] in (UNIT_DONE, UNIT_LEASED)] == [
        (UNIT_DONE, job_id(5), b"", when), *rest,
    ]  # fmt: skip
    assert (tmp_path / NAME).read_bytes() == data
    pause, *jobs, done, other, manual, leased = loaded(tmp_path)
    assert (pause, [done, other, manual, leased]) == ((QUEUE_PAUSED, b"queue", 1, when), rest)
    assert [(job.id, job.queue, job.body, job.alias, job.kind) for _, job in jobs] == [
        (job_id(1), b"queue", b"one", b"", 0), (job_id(2), b"mail \xff", b"\xff\x00", b"two \xff", 0),
        (job_id(3), b"queue", b"three", b"three", 0), (job_id(4), b"log", b"an event", b"", KIND_LOG),
    ]  # fmt: skip
    assert jobs[2][1].holders == frozenset([b"a" * 40, b"b" * 40])
    assert list(peek_database(tmp_path / NAME)) == history
    assert rows(tmp_path, "PRAGMA user_version") == [(5,)]
    # It goes on as one that was new with this version.
    store, _ = opened(tmp_path)
    store.put(*BEGINNINGS, (UNIT_DONE, job_id(4), b"3:group"))
    now = store.clock.wall()
    store.end()
    records = loaded(tmp_path)
    assert records[1:4] == [(*record, now) for record in BEGINNINGS]
    assert list(peek_database(tmp_path / NAME))[-4:-1] == records[1:4]


def test_a_database_of_version_3_is_brought_up_to_date_with_all_that_it_holds(tmp_path: Path) -> None:
    change(tmp_path, VERSION_3.read_text())
    data = (tmp_path / NAME).read_bytes()
    when = 1_700_000_000_007
    groups = [
        (GROUP, b"log", b"0:group", ((b"01234567", 1_700_000_000_000_000_004),), when),
        (GROUP, b"log \xff", b"", ((b"89abcdef", 5),), when),
    ]
    history = list(peek_database(tmp_path / NAME))
    assert (tmp_path / NAME).read_bytes() == data
    records = loaded(tmp_path)
    assert records[:3] == [(QUEUE_PAUSED, b"queue", 1, when), *groups]
    assert list(peek_database(tmp_path / NAME)) == history
    assert rows(tmp_path, "PRAGMA user_version") == [(5,)]
    # It goes on as one that was new with this version.
    store, _ = opened(tmp_path)
    deploy = (POLICY, b"queue \xff", PAUSE_FIELD, Register(3, b"a" * 40, when, PauseSetting(1, b"deploy", b"ops")))
    store.put(deploy)
    store.end()
    assert loaded(tmp_path)[0] == deploy
    assert list(peek_database(tmp_path / NAME)) == [*history, deploy]


def test_a_database_of_version_4_is_brought_up_to_date_with_all_that_it_holds(tmp_path: Path) -> None:
    change(tmp_path, VERSION_4.read_text())
    data = (tmp_path / NAME).read_bytes()
    history = list(peek_database(tmp_path / NAME))
    assert (tmp_path / NAME).read_bytes() == data
    before = loaded(tmp_path)
    deploy = Register(3, b"a" * 40, 1_700_000_000_007, PauseSetting(1, b"deploy", b"ops"))
    assert before[0] == (POLICY, b"queue \xff", PAUSE_FIELD, deploy)
    assert list(peek_database(tmp_path / NAME)) == history
    assert rows(tmp_path, "PRAGMA user_version") == [(5,)]
    # It goes on as one that was new with this version.
    store, _ = opened(tmp_path)
    store.put((JOB_ADDED, make_job(9, b"nine", terms=TERMS, fate=FATE)))
    store.end()
    (last,) = (job for kind, *rest in loaded(tmp_path) if kind == JOB_ADDED for job in rest if job.id == job_id(9))
    assert (last.terms, last.fate) == (TERMS, FATE)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_database_that_was_brought_up_to_date_has_what_a_new_one_has(tmp_path: Path, version: Path) -> None:
    schema = "SELECT name, tbl_name, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite%' ORDER BY name"
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    change(tmp_path / "old", version.read_text())
    loaded(tmp_path / "old")
    loaded(tmp_path / "new")
    assert rows(tmp_path / "old", schema) == rows(tmp_path / "new", schema)
    crc = "SELECT value FROM meta WHERE name = 'schema'"
    assert rows(tmp_path / "old", crc) == rows(tmp_path / "new", crc)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_database_of_an_old_version_that_was_changed_is_not_brought_up_to_date(tmp_path: Path, version: Path) -> None:
    for statement, text in (
        ("DROP INDEX jobs_by_queue", "they must not be changed"),
        ("UPDATE jobs SET body = 'two' WHERE seq = 1", "record 1: the checksum is wrong"),
    ):
        begin_anew(tmp_path)
        change(tmp_path, version.read_text() + statement)
        with pytest.raises(StoreDamaged, match=text):
            loaded(tmp_path)


def test_a_database_of_this_version_is_brought_up_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_database(tmp_path)
    before = loaded(tmp_path)

    def add_notes(database: object) -> None:
        database.create_table("notes", {"name": str}, pk="name", strict=True)  # type: ignore[attr-defined]

    monkeypatch.setattr(sqlite_schema, "STEPS", [*sqlite_schema.STEPS, add_notes])
    assert loaded(tmp_path) == before
    assert rows(tmp_path, "PRAGMA user_version") == [(6,)]
    assert rows(tmp_path, "SELECT count(*) FROM notes") == [(0,)]
    assert loaded(tmp_path) == before
    monkeypatch.undo()
    with pytest.raises(StoreError, match="version 6 of the schema"):
        loaded(tmp_path)


def test_a_step_that_fails_leaves_the_old_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_database(tmp_path)

    def stumble(database: object) -> None:
        database.create_table("notes", {"name": str}, pk="name", strict=True)  # type: ignore[attr-defined]
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(sqlite_schema, "STEPS", [*sqlite_schema.STEPS, stumble])
    with pytest.raises(StoreError, match="disk is full"):
        loaded(tmp_path)
    monkeypatch.undo()
    assert rows(tmp_path, "SELECT count(*) FROM sqlite_schema WHERE name = 'notes'") == [(0,)]
    use(tmp_path)


def test_a_changed_database_is_not_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small_database(tmp_path)
    change(tmp_path, "DROP INDEX jobs_by_queue")
    monkeypatch.setattr(sqlite_schema, "STEPS", [*sqlite_schema.STEPS, lambda database: None])
    with pytest.raises(StoreDamaged, match="they must not be changed"):
        loaded(tmp_path)
    assert rows(tmp_path, "PRAGMA user_version") == [(5,)]


def test_an_sqlite_that_is_too_old_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 36, 0))
    with pytest.raises(StoreError, match=r"is too old for `persistence sqlite`: needed is 3\.37\.0"):
        loaded(tmp_path)


@pytest.mark.parametrize(
    ("key", "letter", "text"),
    [
        (job_id(7), 45, "1 jobs are not found by their ids; REINDEX jobs_by_id repairs that"),
        (b"queue:group", 8, "1 groups are not found by their names; REINDEX groups_by_name repairs that"),
    ],
)
def test_an_index_that_does_not_know_a_row_is_told(tmp_path: Path, key: bytes, letter: int, text: str) -> None:
    data = small_database(tmp_path)
    told = 0
    at = data.index(key)
    while at >= 0:
        begin_anew(tmp_path)
        (tmp_path / NAME).write_bytes(flipped(data, (at + letter) * 8))
        try:
            use(tmp_path)
        except StoreDamaged as error:
            told += text in str(error)
        at = data.find(key, at + 1)
    assert told == 1


@pytest.mark.parametrize("where", [-1, 70_000, 65_536, 200_000])
def test_a_flipped_bit_far_behind_the_start_of_a_body_is_told(tmp_path: Path, where: int) -> None:
    store, _ = opened(tmp_path)
    store.put_bodies(bytes(range(97, 123)) * 10_000)
    store.end()
    # By the hand of SQLite, so that its own checks find nothing.
    at = where % 260_000
    change(tmp_path, f"UPDATE jobs SET body = substr(body, 1, {at}) || '!' || substr(body, {at} + 2)")
    with pytest.raises(StoreDamaged, match="the checksum is wrong"):
        loaded(tmp_path)


def test_damage_is_told_with_its_record_where_it_is_in_one() -> None:
    anywhere, within = DatabaseDamaged("jobs.db", "a page is missing"), DatabaseDamaged("jobs.db", "bad", row=1)
    assert str(anywhere) == "jobs.db: damaged: a page is missing"
    assert str(within) == "jobs.db: damaged, record 1: bad"
    assert [(each.path, each.offset, each.sequence) for each in (anywhere, within)] == [
        ("jobs.db", 0, 0),
        ("jobs.db", 0, 1),
    ]
