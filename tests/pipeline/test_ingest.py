"""Events are taken in once, whatever ends the run, and batches that are put together are never seen twice."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset
import pytest

from disqued.pipeline.command import run
from disqued.pipeline.compact import Compaction
from disqued.pipeline.errors import Misused
from disqued.pipeline.files import FileSystems, locked
from disqued.pipeline.history import NOTHING, news
from disqued.pipeline.jobs.ingest import batch_name
from disqued.pipeline.run import PipelineRun, RunLocation
from disqued.pipeline.tables import EVENTS, Tables
from tests.pipeline.histories import Line, as_rows, history, write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINES = history(11, 30)

Event = tuple[str, int, int]


def seen(root: Path) -> list[Event]:
    """What a reader finds that knows nothing of us: node, boot and number of each event, sorted."""
    columns = ["node", "boot", "seq"]
    node = pyarrow.dataset.partitioning(
        pyarrow.schema([(name, pyarrow.string()) for name in EVENTS.parts]), flavor="hive"
    )  # fmt: skip
    found = pyarrow.dataset.dataset(root / "events", partitioning=node)
    return sorted(tuple(row[name] for name in columns) for row in found.to_table(columns=columns).to_pylist())


def of_lines(lines: list[Line]) -> list[Event]:
    return sorted((line["node"], line["boot"], line["seq"]) for line in lines)


class Killed(Exception):
    """The process ends here."""


def kill_at(patch: pytest.MonkeyPatch, owner: type, name: str, count: int = 1, *, done: bool = False) -> None:
    """End the process at the `count`th call of a function: before it does anything, or when it is done."""
    true = getattr(owner, name)
    calls = 0

    def last(*args: Any, **more: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != count:
            return true(*args, **more)
        if done:
            true(*args, **more)
        raise Killed

    patch.setattr(owner, name, last)


@pytest.fixture
def words(spark: "SparkSession", tmp_path: Path) -> list[str]:
    """How events are taken in."""
    (tmp_path / "events").mkdir()
    return ["ingest", "--events", str(tmp_path / "events"), "--tables", str(tmp_path / "tables")]


def test_each_event_is_there_once_and_a_line_that_is_none_is_counted(
    spark: "SparkSession",
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events, tables, reports = (tmp_path / name for name in ("events", "tables", "reports.sqlite"))
    write(events, LINES[:40])
    torn = next(events.rglob("*.jsonl"))
    whole = {"boot": 7, "seq": 9_999, "ts_us": LINES[0]["ts_us"]}
    strange = [{"v": 2, "event": "add", **whole}, {"v": 1, "event": "bogus", **whole}]
    torn.write_text(torn.read_text() + 'no event\n\n{"v": 1}\n' + "".join(json.dumps(line) + "\n" for line in strange))
    (torn.parent / "_open-7-0000000000009999.jsonl").write_text(json.dumps(LINES[50]) + "\n")
    assert run([*words, "--reports", str(reports)]) == 0
    assert seen(tables) == of_lines(LINES[:40])
    assert "4 lines were no events" in capsys.readouterr().err
    with closing(sqlite3.connect(reports)) as database:
        [row] = database.execute("SELECT job, status, rows, note FROM runs")
    assert row == ("ingest", "done", 40, "4 lines were no events")

    # Killed when the rows are there, and before the note; and behind the note, before the checkpoint.
    for done, lines in ((False, LINES[40:60]), (True, LINES[60:])):
        write(events, lines)
        with monkeypatch.context() as patch:
            kill_at(patch, Tables, "note", done=done)
            assert run(words) == 2
        assert run(words) == 0
    assert seen(tables) == of_lines(LINES)

    # What would be there twice, or not at all, is refused.
    shutil.move(tables / "_checkpoints", tmp_path / "aside")
    assert run(words) == 2
    assert "they would be taken a second time" in capsys.readouterr().err
    shutil.move(tmp_path / "aside", tables / "_checkpoints")
    shutil.rmtree(tables / "events")
    assert run(words) == 2
    assert "events is gone" in capsys.readouterr().err
    run_of_another = PipelineRun("lifecycle", spark, RunLocation(str(tables)))
    run_of_another.tables.note("lifecycle", {**news(run_of_another).note(), "batch": 2})
    shutil.rmtree(tables / "_checkpoints")
    assert run(words) == 0
    assert seen(tables) == of_lines(LINES)
    assert news(run_of_another).known == NOTHING
    assert run([*words[:2], str(tmp_path / "elsewhere"), *words[3:]]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_lines_that_are_no_events_are_counted_over_all_batches_of_a_run(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path / "events", LINES)
    files = sorted((tmp_path / "events").rglob("*.jsonl"))
    for file in files:
        file.write_text("no event\n" + file.read_text() + '{"v": 2}\n')
    assert run([*words, "--batch-bytes", "1"]) == 0
    assert seen(tmp_path / "tables") == of_lines(LINES)
    assert f"{2 * len(files)} lines were no events" in capsys.readouterr().err
    state = json.loads((tmp_path / "tables" / "_state" / "ingest.json").read_text())
    assert (state["rows"], state["left"], state["batch"]) == (len(LINES), 2 * len(files), len(files) - 1)


# Batches that are put together.


@pytest.fixture
def tables(spark: "SparkSession", tmp_path: Path) -> Tables:
    """Events in four batches."""
    tables = Tables(spark, str(tmp_path / "tables"))
    rows = [row for number in range(4) for row in as_rows(LINES[number::4], batch_name(number))]
    tables.replace(EVENTS, spark.createDataFrame(rows, EVENTS.schema).coalesce(1))
    return tables


def quietly(text: str) -> None:
    """Say nothing."""


def test_batches_that_are_put_together_are_never_seen_twice_wherever_it_is_killed(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    root, kept = Path(tables.root), tmp_path / "kept"
    compaction = Compaction(tables, quietly)
    with monkeypatch.context() as patch:
        kill_at(patch, Tables, "note")
        with pytest.raises(Killed):
            compaction.compact(2)
    # Nothing has happened yet, and nothing is left to be done.
    compaction.finish()
    assert seen(root) == of_lines(LINES)
    assert len(tables.parts(EVENTS)) > 8

    with monkeypatch.context() as patch:
        kill_at(patch, Tables, "note", done=True)
        with pytest.raises(Killed):
            compaction.compact(2)
    shutil.copytree(root, kept)
    points = 0
    for name, done in (("rename", False), ("rename", True), ("remove", False), ("remove", True)):
        for count in range(1, 1_000):
            shutil.rmtree(root)
            shutil.copytree(kept, root)
            with monkeypatch.context() as patch:
                kill_at(patch, FileSystems, name, count, done=done)
                try:
                    compaction.finish()
                except Killed:
                    points += 1
                else:
                    break
            found = seen(root)
            assert len(found) == len(set(found)), "an event is there twice"
            assert set(found) <= set(of_lines(LINES))
            compaction.finish()
            assert seen(root) == of_lines(LINES)
            assert not (root / "_merging").exists()
            assert not (root / "_replaced").exists()
    assert points >= 24
    assert max(batch for _, _, batch in tables.parts(EVENTS)) == "00000003c"
    assert tables.read(EVENTS).count() == len(LINES)


def test_readers_wait_while_batches_are_put_together_and_say_so_in_the_end(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disqued.pipeline.tables.SETTLED_S", 0.3)
    tables.note("compact", {"number": 1, "merging": []})
    assert tables.read(EVENTS).count() == len(LINES)
    tables.note("compact", {"number": 2, "merging": [{"date": "2026-11-20"}]})
    with pytest.raises(Misused, match="was broken off"):
        tables.read(EVENTS)


def test_only_days_that_are_over_and_came_in_many_batches_are_put_together(tables: Tables) -> None:
    before = tables.parts(EVENTS)
    assert Compaction(tables, quietly).compact(9) == 0
    assert tables.parts(EVENTS) == before
    days = sorted({date for date, _, _ in before})
    Compaction(tables, quietly).compact(2, before=days[1])
    after = tables.parts(EVENTS)
    assert [part for part in after if part[0] > days[0]] == [part for part in before if part[0] > days[0]]
    nodes = [node for date, node, _ in after if date == days[0]]
    assert len(nodes) == len(set(nodes))


def test_only_one_run_of_a_job_is_at_work(tables: Tables) -> None:
    with tables.alone("ingest"), pytest.raises(Misused, match="one at a time"), tables.alone("ingest"):
        raise AssertionError
    with tables.alone("ingest"):
        pass


# Folders of event logs.


def test_logs_are_the_same_however_their_folder_is_called_and_others_are_refused(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events, tables, link = (tmp_path / name for name in ("events", "tables", "link"))
    link.symlink_to(events)
    write(events, LINES[:40])
    for name in (link, events, f"{events}/", f"file://{events}", f"file:{link}/"):
        assert run([*words[:2], str(name), *words[3:]]) == 0
        assert seen(tables) == of_lines(LINES[:40])
    shutil.copytree(events, tmp_path / "copy")
    assert run([*words[:2], str(tmp_path / "copy"), *words[3:]]) == 2
    assert f"was filled from file:{events}, and file:{tmp_path}/copy is another folder" in capsys.readouterr().err
    # It moves, and leaves its name as a link.
    events.rename(tmp_path / "moved")
    events.symlink_to(tmp_path / "moved")
    write(tmp_path / "moved", LINES[40:])
    for name in (events, tmp_path / "moved"):
        assert run([*words[:2], str(name), *words[3:]]) == 0
        assert seen(tables) == of_lines(LINES)


def test_what_an_earlier_version_has_taken_is_known_by_the_name_that_it_had(words: list[str], tmp_path: Path) -> None:
    write(tmp_path / "events", LINES[:40])
    assert run(words) == 0
    note = tmp_path / "tables" / "_state" / "ingest.json"
    note.write_text(
        json.dumps({name: value for name, value in json.loads(note.read_text()).items() if name != "events"})
    )
    (note.parent / ".ingest.json.crc").unlink(missing_ok=True)
    for name in ("events", "events/", "events/../events"):
        assert run([*words[:2], str(tmp_path / name), *words[3:]]) == 0
    assert seen(tmp_path / "tables") == of_lines(LINES[:40])


def test_tables_that_nobody_has_filled_are_refused_and_nothing_is_made(
    spark: "SparkSession", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for verb, table in (("rollup", "events"), ("lifecycle", "events"), ("slo", "rollup")):
        assert run([verb, "--tables", str(tmp_path / "tabels")]) == 2
        assert f"there is no table {table} in {tmp_path}/tabels" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    assert run(["ingest", "--events", str(tmp_path), "--tables", str(tmp_path / "file")]) == 2
    assert f"{tmp_path}/file is a file: --tables names the folder of the tables" in capsys.readouterr().err
    assert run(["ingest", "--events", str(tmp_path / "file"), "--tables", str(tmp_path / "tables")]) == 2
    assert "file is a file: --events names the one" in capsys.readouterr().err


def test_what_a_run_that_is_at_work_writes_is_not_removed(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    staging = Path(tables.root, "events", ".spark-staging-1")
    staging.mkdir()
    monkeypatch.setattr(FileSystems, "is_local", lambda files, path: False)
    rows = tables.read(EVENTS).limit(0)
    tables.replace(EVENTS, rows)
    assert staging.exists(), "nobody knows whether it is at work"
    monkeypatch.undo()
    tables.replace(EVENTS, rows)
    assert not staging.exists(), "who writes on this machine has the lock"
    monkeypatch.setattr("disqued.pipeline.tables.locked", lambda path, wait: locked(path))
    with locked(Path(tables.root, "_state", "events.writing")), pytest.raises(BlockingIOError):
        tables.replace(EVENTS, rows)
