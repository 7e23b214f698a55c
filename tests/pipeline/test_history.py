"""From event logs to tables: in one go or in several, once or again, in order or late, and with a kill at any point."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from disqued.pipeline.command import run
from disqued.pipeline.jobs.lifecycle import DAY_US, day_of
from disqued.pipeline.jobs.rollup import SPANS
from disqued.pipeline.tables import EVENTS, LIFECYCLE, ROLLUP, SLO, LakeTable, Tables
from tests.pipeline.histories import Line, became, history, key, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = history(7, 150)
VERBS = ("ingest", "lifecycle", "rollup", "slo")


class Place:
    """Event logs, and tables that are made of them."""

    def __init__(self, spark: "SparkSession", folder: Path) -> None:
        """Nothing is there yet."""
        self.events = folder / "events"
        self.root = folder / "tables"
        self.tables = Tables(spark, str(self.root))
        self.events.mkdir(parents=True)

    def do(self, verb: str, *words: str) -> int:
        """Run a verb."""
        more = ("--events", str(self.events)) if verb == "ingest" else ()
        return run([verb, "--tables", str(self.root), "--quiet", *more, *words])

    def do_all(self) -> None:
        """Run every verb."""
        for verb in VERBS:
            assert self.do(verb) == 0

    def rows(self, table: LakeTable) -> list[tuple[Any, ...]]:
        """All rows of a table but for what says in which batch they came; sketches as what is read off them."""
        rows = self.tables.read(table).drop("batch")
        for span in SPANS if table == ROLLUP else ():
            quantiles = "array(0.0D, 0.01D, 0.25D, 0.5D, 0.75D, 0.9D, 0.99D, 1.0D)"
            read = f"kll_sketch_get_n_bigint({span}), kll_sketch_get_quantile_bigint({span}, {quantiles})"
            rows = rows.selectExpr("*", f"to_json(struct({read})) AS of_{span}").drop(span)
        return sorted(map(tuple, rows.collect()), key=repr)

    def all_rows(self) -> dict[str, list[tuple[Any, ...]]]:
        return {table.name: self.rows(table) for table in (EVENTS, LIFECYCLE, ROLLUP, SLO)}

    def files(self) -> set[str]:
        """The data files of all tables."""
        return {str(path) for path in self.root.glob("[!_]*/**/part-*.parquet")}


@pytest.fixture(scope="module")
def whole(spark: "SparkSession", tmp_path_factory: pytest.TempPathFactory) -> Place:
    """Everything in one go."""
    place = Place(spark, tmp_path_factory.mktemp("whole"))
    write(place.events, LINES)
    place.do_all()
    return place


@pytest.fixture
def place(spark: "SparkSession", tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


def test_a_folder_that_is_named_after_no_day_has_no_events(whole: Place, spark: "SparkSession", tmp_path: Path) -> None:
    place = Place(spark, tmp_path)
    shutil.copytree(whole.root, place.root, dirs_exist_ok=True)
    day = min((place.root / "events").glob("date=*"))
    shutil.copytree(day, day.with_name("date=garbage"))
    assert place.do("lifecycle", "--again", "2000-01-01") == 0
    assert place.rows(LIFECYCLE) == whole.rows(LIFECYCLE)


def test_the_tables_are_what_plain_python_tells(whole: Place) -> None:
    assert len(whole.rows(EVENTS)) == len(LINES)
    rows = whole.tables.read(LIFECYCLE).collect()
    assert sorted((row.asDict() for row in rows), key=key) == became(LINES)
    counts: dict[tuple[str, str], int] = {}
    for line in LINES:
        if line.get("queue"):
            reason = line.get("reason")
            name = f"{line['event']}-{reason}" if reason in ("peer", "unseen") else line["event"]
            counts[line["queue"], name] = counts.get((line["queue"], name), 0) + 1
    for grain in ("minute", "hour", "day"):
        told: dict[tuple[str, str], int] = {}
        for row in whole.tables.read(ROLLUP).where(f"grain = '{grain}'").collect():
            told[row.queue, row.event] = told.get((row.queue, row.event), 0) + row["count"]
        assert told == counts


def test_again_changes_nothing(whole: Place) -> None:
    files = whole.files()
    whole.do_all()
    assert whole.files() == files


def test_in_several_goes_late_out_of_order_and_with_kills_it_comes_out_the_same(
    place: Place, whole: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is late comes first; what one node tells, which was away all the time, comes last.
    parts: list[list[Line]] = [[] for _ in range(5)]
    for number, line in enumerate(LINES):
        parts[4 if line["node"].startswith("aaaa") else 3 - 4 * number // len(LINES)].append(line)
    for number, part in enumerate(parts):
        write(place.events, part)
        assert place.do("ingest") == 0
        if number in (1, 4):
            for verb in VERBS[1:]:
                if (verb == "lifecycle") == (number == 4):
                    kill_before_note(place, verb, monkeypatch)
                assert place.do(verb) == 0
    assert place.all_rows() == whole.all_rows()


class Killed(BaseException):
    """The process ends here."""


def kill_before_note(place: Place, verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a verb that ends when it has written its rows, and has not noted that yet."""

    def note(*args: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Tables, "note", note)
        with pytest.raises(Killed):
            place.do(verb)


def test_days_whose_events_were_removed_keep_their_rows(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    early, late = (
        [
            {**line, "ts_us": line["ts_us"] + days * DAY_US, "date": day_of(line["ts_us"] + days * DAY_US)}
            for line in one
        ]
        for one, days in ((LINES[:60], 0), (LINES[60:90], 10))
    )
    write(place.events, early)
    assert place.do("ingest") == place.do("lifecycle") == 0
    before = place.rows(LIFECYCLE)
    for folder in (place.root / "events").glob("date=*"):
        shutil.rmtree(folder)
    # Some of it is news of jobs of old; some is of days of its own.
    [old] = [line for line in LINES if line["event"] == "ack" and line.get("queue")][:1]
    news = [{**old, "seq": 999_999, "age_us": 9 * DAY_US + old["age_us"]}]
    news[0] |= {"ts_us": old["ts_us"] + 9 * DAY_US, "date": day_of(old["ts_us"] + 9 * DAY_US)}
    # And a node that was away tells of the days of old, in files of its own.
    away = [{**line, "node": "dddddddd"} for line in early[:20]]
    write(place.events, [*late, *news, *away])
    assert place.do("ingest") == 0
    assert run(["lifecycle", "--tables", str(place.root)]) == 0
    assert "are no longer there" in capsys.readouterr().err
    assert set(before) < set(place.rows(LIFECYCLE))
