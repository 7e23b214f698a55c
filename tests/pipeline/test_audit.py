"""The audit on Spark: it finds what the rules find, in the logs of simulated clusters, and says so with its status."""

import json
import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING

import attrs
import pytest
from click.testing import CliRunner
from pyspark.sql.functions import lit

from disqued.pipeline.audited import Audited, audited
from disqued.pipeline.command import main_group, run
from disqued.pipeline.events import read_events
from disqued.pipeline.jobs.verdicts import FAULT, GAP, LOSS, LOST, NOTE, SEVERITY, AuditTolerance
from disqued.pipeline.tables import AUDIT, EVENTS, Tables
from tests.pipeline.plain_audit import audit, invented, missed, rows_of
from tests.pipeline.planted import PATIENCE_US, Plant, Story, plant, tell
from tests.torture import audits

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COPIES_MAX = 10
KINDS = {kind for kind, severity in SEVERITY.items() if severity != NOTE}
LIMITS = AuditTolerance(patience_us=PATIENCE_US)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return tell("crashes", 11, tmp_path_factory.mktemp("told"), hours=0.01)


@pytest.fixture(scope="module")
def healthy(story: Story, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("healthy")
    story.write(folder)
    return folder


@pytest.fixture(scope="module")
def planted(story: Story, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Plant]]]:
    folder = tmp_path_factory.mktemp("planted")
    plants: list[list[Plant]] = []
    kinds: set[str] = set()
    while not kinds >= KINDS and len(plants) < COPIES_MAX:
        some = plant(story, Random(f"plants {len(plants)}"), 8)
        kinds |= {each.kind for each in some}
        story.write(folder, some, len(plants))
        plants.append(some)
    # Another story may have no room for each of them.
    assert len(kinds) > len(KINDS) / 2
    return folder, plants


@pytest.fixture(scope="module")
def result(spark: "SparkSession", planted: tuple[Path, list[list[Plant]]]) -> Audited:
    return audited(read_events(spark, str(planted[0])), LIMITS)


def test_what_was_planted_is_found_and_nothing_else(
    story: Story, planted: tuple[Path, list[list[Plant]]], result: Audited
) -> None:
    rows = [SimpleNamespace(**row) for row in result.worst(10_000)]
    _, plants = planted
    left = rows
    for copy, some in enumerate(plants):
        assert missed(story, some, rows, copy) == []
        left = invented(story, some, left, copy)
    assert left == []
    assert result.verdict == LOSS


def test_it_finds_what_the_rules_find_on_all_lines_though_it_looks_at_few(
    planted: tuple[Path, list[list[Plant]]], result: Audited
) -> None:
    expected = audit(rows_of(planted[0]), LIMITS)
    found = sorted(tuple(row.values()) for row in map(_texts, result.worst(10_000)))
    assert found == sorted(tuple(row.values()) for row in (_texts(attrs.asdict(finding)) for finding in expected))
    assert 0 < result.suspects < result.jobs / 2


def test_what_is_judged_in_this_process_is_what_workers_find(
    spark: "SparkSession", planted: tuple[Path, list[list[Plant]]], result: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sum(result.counts.values()) > 0
    monkeypatch.setattr("disqued.pipeline.audited.FEW", 0)
    shared = audited(read_events(spark, str(planted[0])), LIMITS)
    assert shared.counts == result.counts
    assert sorted(map(str, shared.worst(10_000))) == sorted(map(str, result.worst(10_000)))


def _texts(row: dict[str, object]) -> dict[str, str]:
    return {name: str(row[name]) for name in ("kind", "job_id", "scope", "queue", "node", "boot", "seq", "detail")}


def test_a_healthy_cluster_is_clean_and_the_worst_comes_first_otherwise(result: Audited) -> None:
    text = result.told(5)
    assert text.startswith("loss: ")
    severities = [SEVERITY[row["kind"]] for row in result.worst(10_000)]
    assert severities == sorted(severities, key=[LOSS, FAULT, NOTE].index)
    shown = [line for line in text.splitlines() if line.startswith(LOST)]
    assert 0 < len(shown) <= 5


def test_the_verb_ends_with_a_status_and_leaves_a_table_and_a_report(
    spark: "SparkSession", story: Story, healthy: Path, tmp_path: Path
) -> None:
    tables = Tables(spark, str(tmp_path / "tables"))
    tables.replace(EVENTS, read_events(spark, str(healthy)).withColumn("batch", lit("00000001")))
    reports = tmp_path / "reports.sqlite"
    words = ["audit", "--tables", tables.root, "--reports", str(reports)]
    clean = CliRunner().invoke(main_group, words)
    assert (clean.exit_code, clean.stdout.split(":")[0]) == (0, "clean"), clean.output
    broken = tmp_path / "broken"
    gap = next(each for seed in range(99) for each in plant(story, Random(seed), 3) if each.kind == GAP)
    story.write(broken, [gap])
    faults = CliRunner().invoke(main_group, [*words, "--events", str(broken)])
    assert (faults.exit_code, faults.stdout.split(":")[0]) == (1, "faults"), faults.output
    rows = tables.read(AUDIT).where("severity = 'fault'").collect()
    assert [(row.kind, (row.node, row.boot, row.seq)) for row in rows] == [(GAP, gap.place)]
    with closing(sqlite3.connect(reports)) as database:
        said = database.execute(
            "SELECT verdict, nodes, json_extract(counts, '$.gap') FROM audits ORDER BY id"
        ).fetchall()
        kinds = database.execute("SELECT kind, node FROM faults WHERE audit = 2 LIMIT 1").fetchall()
    assert said == [("clean", 3, None), ("faults", 3, 1)]
    assert gap.place is not None
    assert kinds == [(GAP, gap.place[0])]


def test_events_that_are_not_there_are_named(spark: "SparkSession", tmp_path: Path) -> None:
    refused = CliRunner().invoke(main_group, ["audit", "--tables", str(tmp_path)])
    assert "the verb ingest takes them in" in str(refused.exception)


def test_where_there_is_nothing_nothing_is_clean(
    spark: "SparkSession", healthy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables, reports = Tables(spark, str(tmp_path / "tables")), tmp_path / "reports.sqlite"
    empty = tmp_path / "empty"
    empty.mkdir()
    place = ["--tables", tables.root, "--reports", str(reports)]
    for words in (["--events", str(empty)], ["--events", str(healthy), "--since", "2222-01-01"]):
        assert run(["audit", *place, *words]) == 2
        said = capsys.readouterr()
        assert said.out.startswith("nothing: 0 events")
        assert f"no events in {words[1]}" in said.err
    assert not tables.has(AUDIT)
    with closing(sqlite3.connect(reports)) as database:
        assert database.execute("SELECT count(*) FROM audits").fetchall() == [(0,)]
        (told,) = database.execute("SELECT DISTINCT status, substr(note, 1, 36) FROM runs").fetchall()
    assert told == ("failed", "Misused: there is nothing to audit: no "[:36])


def test_lines_that_are_no_events_are_counted_and_not_looked_at(
    spark: "SparkSession", healthy: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(healthy, tmp_path / "events")
    day = next(folder.glob("date=*/node=*"))
    line = {"v": 1, "boot": 99, "seq": 1, "ts_us": 1, "event": "start"}
    wrong: list[object] = [{**line, "v": 2}, {**line, "event": "explode"}, {"seq": 3}, "garbage"]
    text = "".join(json.dumps(each) + "\n" for each in wrong)
    (day / "events-99-0000000000000001.jsonl").write_text(text)
    (folder / "date=garbage" / day.name).mkdir(parents=True)
    (folder / "date=garbage" / day.name / "events-98-0000000000000001.jsonl").write_text(json.dumps(line) + "\n")
    before, result = (audited(read_events(spark, str(place)), LIMITS) for place in (healthy, folder))
    assert (before.none, result.none) == (0, 5)
    assert (result.verdict, result.events, result.counts) == (before.verdict, before.events, before.counts)
    assert "5 lines are none of the event log" in result.told(1)


@pytest.mark.parametrize("verb", ["audit", "doctor"])
def test_two_runs_on_the_same_tables_exclude_each_other(
    spark: "SparkSession", tmp_path: Path, verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = Tables(spark, str(tmp_path))
    with tables.alone(verb):
        assert run([verb, "--tables", tables.root]) == 2
    assert f"another run of {verb} is at work on {tables.root}" in capsys.readouterr().err


def test_the_campaign_of_planted_faults_finds_them_in_what_it_writes(
    spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audits, "PROFILES", ("crashes",))
    assert audits.main(["--events", "30000"]) == 0
    told = capsys.readouterr().out
    assert re.search(r"^found   [1-9]", told, re.MULTILINE), told
    assert "missed  0" in told
