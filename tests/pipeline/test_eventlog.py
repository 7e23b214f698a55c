"""The event log as a stream, by the reader itself: no JVM; files as nodes write, publish, cut and remove them."""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from disqued.pipeline.connector.eventlog import ARROW, SCHEMA, EventLogFolder, EventsGone, EventsStreamReader
from disqued.pipeline.connector.options import ConnectorUse, read_options
from disqued.pipeline.connector.source import DisquedDataSource
from disqued.pipeline.events import SCHEMA as WORDS
from tests.integration.daemon import Daemon, wait_until
from tests.pipeline import readers

NONE: dict[str, Any] = {"nodes": {}}
DAY, NODE, BOOT = "2026-11-22", "12e45678", 1_795_330_562

next_of = partial(readers.next_of, most=None)
rows_of = partial(readers.rows_of, schema=ARROW)


def lines(first: int, count: int, **more: Any) -> str:
    """Make lines of the log, as a node writes them."""
    rows = (
        {"v": 1, "boot": BOOT, "seq": seq, "ts_us": 5, "event": "add", **more} for seq in range(first, first + count)
    )
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)


def file_of(
    root: Path, first: int, *, boot: int = BOOT, opened: bool = False, day: str = DAY, node: str = NODE
) -> Path:
    folder = root / f"date={day}" / f"node={node}"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{'_open' if opened else 'events'}-{boot}-{first:016}.jsonl"


def reader_of(root: Path, **options: str) -> EventsStreamReader:
    return EventsStreamReader(read_options({"events": str(root), **options}, ConnectorUse.EVENTS))


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [row["seq"] for row in rows]


def test_open_files_are_read_up_to_their_last_whole_line_and_go_on_when_they_are_published(tmp_path: Path) -> None:
    file_of(tmp_path, 1).write_text(lines(1, 3))
    log = file_of(tmp_path, 4, opened=True)
    log.write_text(lines(4, 2) + '{"v":1,"bo')
    reader = reader_of(tmp_path)
    first = next_of(reader, reader.initialOffset())
    rows = rows_of(reader, NONE, first)
    assert numbers(rows) == [1, 2, 3, 4, 5]
    assert {(row["date"], row["node"], row["event"], row["queue"]) for row in rows} == {(DAY, NODE, "add", None)}
    assert next_of(reader, first) == first
    log.write_text(lines(4, 2) + lines(6, 2, queue="mail", ttl_s=5, size=3, reason="ü"))
    log.rename(file_of(tmp_path, 4))
    file_of(tmp_path, 8, opened=True).write_text(lines(8, 1))
    second = next_of(reader, first)
    rows = rows_of(reader, first, second)
    assert numbers(rows) == [6, 7, 8]
    assert (rows[0]["queue"], rows[0]["ttl_s"], rows[0]["size"], rows[0]["reason"]) == ("mail", 5.0, 3, "ü")
    assert rows_of(reader_of(tmp_path), first, second) == rows, "a new driver reads the same"
    assert numbers(rows_of(reader_of(tmp_path), NONE, first)) == [1, 2, 3, 4, 5]


def test_folders_that_have_not_changed_for_long_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = file_of(tmp_path, 1)
    log.write_text(lines(1, 1))
    folder = EventLogFolder(tmp_path)
    read = []
    monkeypatch.setattr(Path, "iterdir", lambda path, iterdir=Path.iterdir: (read.append(path), iterdir(path))[1])
    for _ in range(2):
        assert [file.path for file in folder.files()[NODE]] == [log]
    assert len(read) == 2, "it has changed just now, and may have once more"
    os.utime(log.parent, (1, 1))
    for _ in range(3):
        folder.files()
    assert len(read) == 3
    file_of(tmp_path, 2).write_text(lines(2, 1))
    assert len(folder.files()[NODE]) == 2


def test_nodes_boots_and_days_are_kept_apart(tmp_path: Path) -> None:
    file_of(tmp_path, 1).write_text(lines(1, 2))
    file_of(tmp_path, 1, boot=BOOT + 1, day="2026-11-23").write_text(lines(1, 3).replace(str(BOOT), str(BOOT + 1)))
    file_of(tmp_path, 1, node="ffffffff", opened=True).write_text(lines(1, 1))
    (tmp_path / f"date={DAY}" / f"node={NODE}" / "_ship-7-events-1-0000000000000001.jsonl").write_text("x")
    (tmp_path / "else").write_text("x")
    reader = reader_of(tmp_path)
    end = next_of(reader, NONE)
    rows = rows_of(reader, NONE, end)
    assert sorted((row["node"], row["date"], row["boot"] - BOOT, row["seq"]) for row in rows) == [
        (NODE, DAY, 0, 1), (NODE, DAY, 0, 2),
        *((NODE, "2026-11-23", 1, seq) for seq in (1, 2, 3)),
        ("ffffffff", DAY, 0, 1),
    ]  # fmt: skip
    assert set(end["nodes"]) == {NODE, "ffffffff"}


def test_a_stream_may_begin_behind_what_is_there(tmp_path: Path) -> None:
    log = file_of(tmp_path, 1, opened=True)
    log.write_text(lines(1, 5))
    reader = reader_of(tmp_path, startingPosition="latest")
    start = json.loads(json.dumps(reader.initialOffset()))
    assert next_of(reader, start) == start
    log.write_text(lines(1, 7))
    file_of(tmp_path, 1, node="aaaaaaaa").write_text(lines(1, 1))
    rows = rows_of(reader, start, next_of(reader, start))
    assert sorted((row["node"], row["seq"]) for row in rows) == [(NODE, 6), (NODE, 7), ("aaaaaaaa", 1)]


def test_a_batch_is_bounded_in_bytes_and_ends_with_a_line(tmp_path: Path) -> None:
    for first in (1, 21):
        file_of(tmp_path, first).write_text(lines(first, 20))
    size = len(lines(1, 1))
    reader = reader_of(tmp_path, maxBytesPerTrigger=str(size * 7))
    at, batches = NONE, []
    while (end := next_of(reader, at)) != at:
        batches.append(numbers(rows_of(reader, at, end)))
        at = end
    assert [seq for batch in batches for seq in batch] == list(range(1, 41))
    assert max(map(len, batches)) <= 7
    assert len(batches) <= 8, "they are as large as they may be, whichever files that takes"
    at = next_of(reader_of(tmp_path, maxBytesPerTrigger="1"), NONE)
    assert numbers(rows_of(reader, NONE, at)) == [1], "one line is read, however long it is"


def test_available_now_reads_what_is_there_and_no_more(tmp_path: Path) -> None:
    log = file_of(tmp_path, 1, opened=True)
    log.write_text(lines(1, 5))
    reader = reader_of(tmp_path)
    reader.prepareForTriggerAvailableNow()
    log.write_text(lines(1, 9))
    file_of(tmp_path, 1, node="aaaaaaaa").write_text(lines(1, 1))
    end = next_of(reader, NONE)
    assert numbers(rows_of(reader, NONE, end)) == [1, 2, 3, 4, 5]
    assert next_of(reader, end) == end


def test_lines_that_were_cut_off_again_are_no_loss_of_what_follows(tmp_path: Path) -> None:
    log = file_of(tmp_path, 1, opened=True)
    log.write_text(lines(1, 5))
    reader = reader_of(tmp_path)
    first = next_of(reader, NONE)
    # 4 and 5 could not be written as a whole; the node goes on with 6.
    log.write_text(lines(1, 3))
    assert rows_of(reader, first, next_of(reader, first)) == []
    log.write_text(lines(1, 3) + lines(6, 2, queue="a queue that makes the line longer"))
    assert numbers(rows_of(reader, first, next_of(reader, first))) == [6, 7]


def test_events_that_were_removed_before_they_were_read_are_an_error_or_are_left_out(tmp_path: Path) -> None:
    old = file_of(tmp_path, 1)
    old.write_text(lines(1, 5))
    reader = reader_of(tmp_path)
    first = next_of(reader, NONE)
    file_of(tmp_path, 9).write_text(lines(9, 1))
    old.unlink()
    with pytest.raises(EventsGone, match=f"events 6 to 8 of boot {BOOT} of the node {NODE} are in no file any more"):
        next_of(reader, first)
    lenient = reader_of(tmp_path, failOnDataLoss="false")
    assert numbers(rows_of(lenient, first, next_of(lenient, first))) == [9]
    file_of(tmp_path, 6).write_text(lines(6, 3))
    assert numbers(rows_of(reader, first, next_of(reader, first))) == [6, 7, 8, 9], "nothing is missing"


def test_a_line_that_is_none_is_a_row_of_nulls_as_sparks_own_reader_makes_it(tmp_path: Path) -> None:
    file_of(tmp_path, 1).write_text(lines(1, 1) + "no json\n" + lines(2, 1) + '{"seq":"x"}\n')
    reader = reader_of(tmp_path)
    rows = rows_of(reader, NONE, next_of(reader, NONE))
    assert numbers(rows) == [1, None, 2, None]
    assert {row["node"] for row in rows} == {NODE}


def test_the_source_knows_an_event_log_and_its_columns_are_those_of_the_table(tmp_path: Path) -> None:
    source = DisquedDataSource({"events": str(tmp_path)})
    assert source.schema() == SCHEMA
    assert isinstance(source.streamReader(SCHEMA), EventsStreamReader)
    named = {"INT": "int", "BIGINT": "bigint", "DOUBLE": "double", "STRING": "string"}
    columns = [column.split() for column in WORDS.split(", ")]
    assert [(field.name, field.dataType.simpleString()) for field in SCHEMA] == [
        (name, named[kind]) for name, kind in columns
    ]
    with pytest.raises(ValueError, match=r"the option events is for .* with events, not for spark.read;"):
        source.reader(SCHEMA)
    with pytest.raises(ValueError, match=r"the option address is for .*, not for spark.readStream with events;"):
        DisquedDataSource({"events": "x", "address": "127.0.0.1:7711"}).streamReader(SCHEMA)
    with pytest.raises(ValueError, match="'/no/such' is no folder; the setting events-dir of a node names it"):
        reader_of(Path("/no/such")).initialOffset()


def test_events_of_a_running_node_are_there_before_it_publishes_them(
    start: Callable[..., Daemon], tmp_path: Path
) -> None:
    node = start("--events", "all", directory=tmp_path / "data")
    reader = reader_of(tmp_path / "data" / "events", startingPosition="latest")
    wait_until((tmp_path / "data" / "events").is_dir, "an event log")
    begun = reader.initialOffset()
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    job = node.call("ADDJOB", "mail", "hello", 0, "HEADER", "traceparent", f"00-{trace_id}-00f067aa0ba902b7-01",
                    "GROUP", "acme", "HEADER", "schedule-name", "nightly")  # fmt: skip
    other = node.call("ADDJOB", "letters", "hello", 0)
    node.call("GETJOB", "FROM", "mail")
    node.call("ACKJOB", job)

    def seen(job: object) -> list[tuple[str | None, ...]]:
        rows = rows_of(reader, begun, next_of(reader, begun))
        names = ("event", "trace_id", "group", "schedule")
        return [tuple(row[name] for name in names) for row in rows if row["job_id"] == job]

    wait_until(
        lambda: seen(job) == [(event, trace_id, "acme", "nightly") for event in ("add", "deliver", "ack")],
        "what happened to the job",
    )
    assert seen(other) == [("add", None, None, None)]
    assert not list((tmp_path / "data").rglob("events-*.jsonl")), "nothing is published yet"


def test_lines_that_are_no_events_are_rows_of_nulls(tmp_path: Path) -> None:
    wrong = [
        b'{"v":1,"boot":7,"seq":2,"ts_us":5,"event":"add","queue":"\xff"}\n',
        b"\xff\xfe\n",
        lines(4, 1).replace('"v":1', '"v":2').encode(),
        lines(5, 1).replace('"add"', '"explode"').encode(),
    ]
    for text in (b"".join(wrong), *wrong):
        root = tmp_path / str(len(text))
        file_of(root, 1).write_bytes(lines(1, 1, queue="ü").encode() + text + lines(6, 1).encode())
        file_of(root, 1, day="garbage").write_text(lines(1, 9))
        reader = reader_of(root)
        rows = rows_of(reader, NONE, next_of(reader, NONE))
        assert [row["seq"] for row in rows if row["boot"] is not None] == [1, 6]
        nulls = [row for row in rows if row["boot"] is None]
        assert len(nulls) == text.count(b"\n")
        assert {tuple(name for name, value in row.items() if value is not None) for row in nulls} == {("date", "node")}
