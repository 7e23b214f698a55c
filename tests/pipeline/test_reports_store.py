"""What runs leave for people: tables of SQLite that anybody can read, and a file of somebody else left alone."""

import json
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from disqued.pipeline.reports import store
from disqued.pipeline.reports.store import Reports, ReportsError
from disqued.reports.layout import APPLICATION_ID, FAULTS_MAX, QUEUES, TABLES, VERSION

NOW = 1_795_341_600  # 2026-11-22T10:00:00Z
HOUR = {"queue": "mail", "grain": "hour", "at": "2026-11-22T09:00:00Z", "adds": 5, "acks": 4, "wait_p99_us": 1_500}
DAY = {"date": "2026-11-21", "queue": "mail", "measure": "wait", "count": 9, "p99_us": 800, "over": 0.25}
AUDIT: dict[str, Any] = {
    "checked_at": "2026-11-22T09:30:00Z", "since": "2026-11-21T00:00:00Z", "until": "2026-11-22T00:00:00Z",
    "nodes": 3, "events": 1_000, "verdict": "loss", "counts": {"lost": 2, "gap": 1},
}  # fmt: skip
FAULT = {"kind": "lost", "job_id": "D-1", "queue": "mail", "node": "1f0e2d3c", "boot": 7, "seq": 12, "detail": "gone"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reports.sqlite"


@pytest.fixture
def reports(path: Path) -> Iterator[Reports]:
    with closing(Reports(path, lambda: NOW)) as opened:
        yield opened


def rows(path: Path, table: str) -> list[dict[str, Any]]:
    """Every row of a table, as another program reads it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY rowid")]


def refused(path: Path, text: str) -> None:
    before = path.read_bytes()
    with pytest.raises(ReportsError, match=text):
        Reports(path)
    assert path.read_bytes() == before


def test_tables_are_strict_and_carry_our_marks(reports: Reports, path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        listed = connection.execute("PRAGMA table_list").fetchall()
        found = {name: strict for _, name, _, _, _, strict in listed if not name.startswith("sqlite_")}
        assert found == dict.fromkeys(TABLES, 1)
        assert connection.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert connection.execute("PRAGMA user_version").fetchone() == (VERSION,) == (len(store.STEPS),)
        for table in TABLES.values():
            columns = connection.execute(f"PRAGMA table_info({table.name})").fetchall()
            assert [(name, kind) for _, name, kind, *_ in columns] == [(each.name, each.kind) for each in table.columns]
            assert [name for _, name, *_, key in sorted(columns, key=lambda each: each[-1]) if key] == list(table.key)


def test_what_is_put_again_takes_the_place_of_what_was_there(reports: Reports, path: Path) -> None:
    reports.put_queues([HOUR, {**HOUR, "grain": "day"}])
    reports.put_queues(iter([{**HOUR, "adds": 6, "acks": None}]))
    hour, day = sorted(rows(path, "queues"), key=lambda row: str(row["grain"]), reverse=True)
    assert (hour["adds"], hour["acks"], day["adds"], day["acks"]) == (6, None, 5, 4)
    assert hour["computed_at"] == "2026-11-22T10:00:00Z"
    assert hour["run_p50_us"] is None


def test_a_file_knows_whether_it_is_a_new_one(reports: Reports) -> None:
    assert reports.is_empty("queues")
    assert reports.is_empty("slo")
    reports.put_queues([HOUR])
    assert not reports.is_empty("queues")
    assert reports.is_empty("slo")


def test_days_are_put_by_queue_and_measure(reports: Reports, path: Path) -> None:
    reports.put_slo([DAY, {**DAY, "measure": "run"}])
    reports.put_slo([{**DAY, "over": 1}])
    assert {(row["measure"], row["over"], row["p99_us"]) for row in rows(path, "slo")} == {
        ("wait", 1.0, 800), ("run", 0.25, 800),
    }  # fmt: skip


def test_each_audit_is_a_row_and_keeps_the_first_of_its_faults(reports: Reports, path: Path) -> None:
    reports.put_audit(AUDIT, ({**FAULT, "seq": number} for number in range(FAULTS_MAX + 5)))
    reports.put_audit({**AUDIT, "verdict": "clean", "counts": {}}, [])
    first, second = rows(path, "audits")
    assert list(json.loads(first["counts"]).items()) == [("lost", 2), ("gap", 1)], "the worst stays the first"
    assert (second["verdict"], json.loads(second["counts"])) == ("clean", {})
    faults = rows(path, "faults")
    assert [(row["audit"], row["number"], row["seq"]) for row in faults[:2]] == [
        (first["id"], 1, 0),
        (first["id"], 2, 1),
    ]
    assert len(faults) == FAULTS_MAX


def test_what_was_found_long_ago_makes_room(reports: Reports, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "AUDITS_WITH_FAULTS", 2)
    monkeypatch.setattr(store, "RUNS_KEPT", 2)
    for number in range(4):
        reports.put_audit(AUDIT, [FAULT])
        reports.note_run(f"job{number}", began=NOW, ended=NOW, status="done", rows=0)
    assert [row["audit"] for row in rows(path, "faults")] == [3, 4]
    assert len(rows(path, "audits")) == 4
    assert [row["job"] for row in rows(path, "runs")] == ["job2", "job3"]


def test_findings_are_those_of_the_last_check(reports: Reports, path: Path) -> None:
    finding = {"date": "2026-11-22", "kind": "stuck", "queue": "mail", "count": 3, "detail": "nobody takes them"}
    reports.put_findings([finding, {**finding, "queue": "letters"}])
    reports.put_findings([{**finding, "count": 4}])
    assert [(row["number"], row["queue"], row["count"]) for row in rows(path, "findings")] == [(1, "mail", 4)]
    reports.put_findings([])
    assert rows(path, "findings") == []


def test_runs_say_how_they_ended(reports: Reports, path: Path) -> None:
    reports.note_run("rollup", began=NOW - 2.5, ended=NOW, status="done", rows=12)
    reports.note_run("audit", began=NOW, ended=NOW, status="failed", rows=0, note="Misused: no")
    first, second = rows(path, "runs")
    assert (first["began_at"], first["computed_at"]) == ("2026-11-22T09:59:57Z", "2026-11-22T10:00:00Z")
    assert (first["seconds"], first["rows"], first["note"]) == (2.5, 12, "")
    assert (second["status"], second["note"]) == ("failed", "Misused: no")


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({**HOUR, "jobs": 1}, "queues has no column jobs"),
        ({**HOUR, "queue": None}, "queue of queues is None; it has to be something"),
        ({**HOUR, "grain": "week"}, "'week'; it has to be one of hour, day"),
        ({**HOUR, "at": "2026-11-22 09:00:00"}, "has to be a moment as 2026-11-22T10:00:00Z"),
        ({**HOUR, "adds": 1.5}, "adds of queues is 1.5; it has to be a whole number"),
        ({**HOUR, "adds": 2**63}, "has to be a whole number of 64 bits"),
        ({**HOUR, "queue": 7}, "has to be a text"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_and_nothing_of_the_others_stays(
    reports: Reports, path: Path, row: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        reports.put_queues([HOUR, row])
    assert rows(path, "queues") == []
    reports.put_queues([HOUR])
    assert len(rows(path, "queues")) == 1


def test_what_stops_in_the_middle_leaves_what_was_there(reports: Reports, path: Path) -> None:
    def half() -> Iterator[dict[str, Any]]:
        for number in range(500):
            yield {"date": "2026-11-22", "kind": "stuck", "count": number}
        raise RuntimeError("the executor is lost")

    reports.put_findings([{"date": "2026-11-21", "kind": "poison"}])
    with pytest.raises(RuntimeError, match="the executor is lost"):
        reports.put_findings(half())
    assert [row["kind"] for row in rows(path, "findings")] == ["poison"]


def test_it_is_read_while_it_is_written(reports: Reports, path: Path) -> None:
    def watched() -> Iterator[dict[str, Any]]:
        yield HOUR
        assert rows(path, "queues") == []
        yield {**HOUR, "queue": "letters"}

    reports.put_queues(watched())
    assert len(rows(path, "queues")) == 2


def test_two_runs_write_one_file(reports: Reports, path: Path) -> None:
    with closing(Reports(path, lambda: NOW + 60)) as other:
        other.put_queues([HOUR])
        reports.put_queues([{**HOUR, "queue": "letters"}])
        other.note_run("rollup", began=NOW, ended=NOW, status="done", rows=1)
    assert {row["computed_at"] for row in rows(path, "queues")} == {"2026-11-22T10:00:00Z", "2026-11-22T10:01:00Z"}


def test_a_file_that_was_there_is_gone_on_with(path: Path) -> None:
    for _ in range(2):
        with closing(Reports(path)) as reports:
            reports.note_run("rollup", began=NOW, ended=NOW, status="done", rows=1)
    assert len(rows(path, "runs")) == 2
    path.unlink()
    path.touch()  # an empty one is a new one
    Reports(path).close()
    assert rows(path, "runs") == []


def test_a_file_of_somebody_else_is_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"dear diary" * 500)
    refused(path, "not a database; name another file")
    path.unlink()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE diary (day TEXT)")
    refused(path, "a database of another program")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 1145656145")
    refused(path, "a database of another program")


@pytest.mark.parametrize("version", [0, VERSION + 1])
def test_a_file_of_another_version_is_left_as_it_is(path: Path, version: int) -> None:
    Reports(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    refused(path, f"version {version} of the reports is not known to this version of disqued, which knows 1 to 1")


def test_a_place_where_no_file_can_be_is_told(tmp_path: Path) -> None:
    with pytest.raises(ReportsError, match="is there such a folder"):
        Reports(tmp_path / "nowhere" / "reports.sqlite")


def test_what_a_file_lacks_is_added_when_it_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Reports(path)) as reports:
        reports.put_queues([HOUR])
    steps = [*store.STEPS, lambda database: database.table("queues").add_column("worst_us", int)]
    monkeypatch.setattr(store, "STEPS", steps)
    Reports(path).close()
    [row] = rows(path, "queues")
    assert (row["adds"], row["worst_us"]) == (5, None)


def test_a_step_that_fails_leaves_the_file_as_it_was(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(database: Any) -> None:
        database.table("queues").add_column("worst_us", int)
        raise RuntimeError("out of power")

    Reports(path).close()
    monkeypatch.setattr(store, "STEPS", [*store.STEPS, fails])
    with pytest.raises(RuntimeError, match="out of power"):
        Reports(path)
    monkeypatch.undo()
    with closing(Reports(path)) as reports:
        reports.put_queues([HOUR])
    assert set(rows(path, "queues")[0]) == set(QUEUES.names)


def test_whoever_writes_reports_loads_no_spark() -> None:
    code = "import sys, disqued.pipeline.reports.store; assert not {'pyspark', 'twisted'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
