"""Reading reports.sqlite: of one moment, never for long, and without a right to write anything."""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from disqued.pipeline.reports.store import Reports
from disqued.reports.reading import (
    ROWS_MAX,
    TEXT_MAX,
    MissingReports,
    NoReports,
    ReportFilter,
    ReportReader,
    ReportsChanged,
    ask,
    reading,
)

HOUR = {"queue": "mail", "grain": "hour", "at": "2026-11-22T09:00:00Z", "adds": 5}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "what? 100%#.sqlite"  # as it stands in an address, each of these would be something else
    with closing(Reports(made)) as reports:
        reports.put_queues([HOUR])
    return made


@contextmanager
def somebody_else() -> Iterator[None]:
    """Be a user without rights for a moment, where one is the one with all."""
    if os.geteuid():
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_what_was_put_is_read(path: Path) -> None:
    with reading(path) as reader:
        found = reader.queues(ReportFilter())
    assert [(row["queue"], row["adds"], row["acks"]) for row in found.rows] == [("mail", 5, None)]
    assert found.computed_at == found.rows[0]["computed_at"]


def test_one_reading_is_of_one_moment(path: Path) -> None:
    with closing(Reports(path)) as reports:
        reports.put_queues([{**HOUR, "adds": 6}])
        with reading(path) as reader:
            assert len(reader.queues(ReportFilter()).rows) == 1
            reports.put_queues([{**HOUR, "queue": "letters"}])
            assert len(reader.queues(ReportFilter()).rows) == 1
        with reading(path) as reader:
            assert len(reader.queues(ReportFilter()).rows) == 2


def test_nothing_can_be_written(path: Path) -> None:
    with pytest.raises(NoReports, match="readonly"), reading(path) as reader:
        reader.select("DELETE FROM queues", {})


def test_a_question_that_never_ends_is_given_up(path: Path) -> None:
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    with pytest.raises(NoReports, match="takes too long"), reading(path, patience_s=0.05) as reader:
        reader.select(endless, {})


def test_no_answer_is_longer_than_it_may_be(path: Path) -> None:
    with closing(Reports(path)) as reports:
        reports.put_queues(
            {**HOUR, "queue": f"{number}{'x' * 9_000 * (number == 0)}"} for number in range(ROWS_MAX + 1)
        )
    with reading(path) as reader:
        found = reader.queues(ReportFilter(limit=10**9))
    assert (len(found.rows), found.more) == (ROWS_MAX, True)
    assert max(len(row["queue"]) for row in found.rows) == TEXT_MAX


def test_text_that_is_none_is_read_all_the_same(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE queues SET queue = CAST(x'ff41' AS TEXT), computed_at = 'never'")
        connection.execute("INSERT INTO audits (checked_at, verdict, counts, computed_at) VALUES ('', 'odd', '[1', '')")
    with reading(path) as reader:
        assert reader.queues(ReportFilter()).rows[0]["queue"] == "\\xffA"
        assert reader.audits(ReportFilter()).rows[0]["counts"] == {}


def test_a_nul_ends_no_name(path: Path) -> None:
    names = {"nul", "nul\0x", "nul\0y", "ü" * TEXT_MAX + "\0"}
    with closing(Reports(path)) as reports:
        reports.put_queues({**HOUR, "queue": name} for name in names)
    with reading(path) as reader:
        told = {row["queue"] for row in reader.queues(ReportFilter()).rows}
    assert told >= {name[:TEXT_MAX] for name in names}


def test_nothing_is_left_beside_a_file_that_was_read(path: Path) -> None:
    with reading(path) as reader:
        reader.queues(ReportFilter())
        assert [found.name for found in path.parent.iterdir()] == [path.name]
    assert [found.name for found in path.parent.iterdir()] == [path.name]


def test_a_file_that_changes_while_it_is_read_is_read_once_more(path: Path) -> None:
    def question(reader: ReportReader) -> int:
        nonlocal asked
        asked += 1
        if asked == 1:
            with closing(Reports(path)) as reports:
                reports.put_queues([{**HOUR, "queue": "letters"}])
        return len(reader.queues(ReportFilter()).rows)

    asked = 0
    assert ask(path, question) == 2
    assert asked == 2


def test_a_file_that_never_rests_is_told(path: Path) -> None:
    def question(reader: ReportReader) -> None:
        path.touch()

    with pytest.raises(ReportsChanged, match="changed again and again"):
        ask(path, question)


def test_damage_is_told_from_a_file_that_is_just_replaced(path: Path) -> None:
    whole = path.read_bytes()

    def question(reader: ReportReader) -> int:
        if path.read_bytes() != whole:
            path.write_bytes(whole)
        return len(reader.queues(ReportFilter()).rows)

    path.write_bytes(whole[:4_096] + bytes(len(whole) - 4_096))
    assert ask(path, question) == 1
    path.write_bytes(whole[:4_096] + bytes(len(whole) - 4_096))
    with pytest.raises(NoReports, match="damaged"):
        ask(path, lambda reader: reader.queues(ReportFilter()))


def test_a_file_is_read_where_nothing_may_be_written() -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "shared"
        folder.mkdir()
        path = folder / "reports.sqlite"
        with closing(Reports(path)) as reports:
            reports.put_queues([HOUR])
        Path(place).chmod(0o755)
        path.chmod(0o644)
        folder.chmod(0o555)
        with somebody_else():
            assert not os.access(folder, os.W_OK, effective_ids=True)
            assert ask(path, lambda reader: reader.queues(ReportFilter()).rows[0]["adds"]) == 5
        folder.chmod(0o755)
        path.chmod(0o000)
        with somebody_else(), pytest.raises(NoReports, match="unable to open"), reading(path):
            pass


def test_a_file_that_is_written_is_read_where_nothing_may_be_written() -> None:
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "reports.sqlite"
        with closing(Reports(path)) as reports:
            reports.put_queues([HOUR])
            Path(place).chmod(0o555)
            with somebody_else(), reading(path) as reader:
                assert len(reader.queues(ReportFilter()).rows) == 1
            Path(place).chmod(0o755)


def test_no_file_is_told_from_one_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(MissingReports, match="no such file yet"), reading(tmp_path / "none"):
        pass
    (tmp_path / "file").touch()
    with pytest.raises(NoReports, match="Not a directory"), reading(tmp_path / "file" / "below"):
        pass
    assert not list(tmp_path.glob("none*"))
