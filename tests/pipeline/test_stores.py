"""Stores as tables, by the reader itself: no JVM; journals, databases and exports as nodes and tools leave them."""

import contextlib
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import redis
from hypothesis import example, given, settings
from hypothesis import strategies as st

from disqued.core.model.job import KIND_LOG
from disqued.core.model.outbox import FLUSHED, GONE_DELETED, GONE_EXPIRED, GROUP, JOB_GONE, UNIT_DONE, Record
from disqued.persistence.interface import StoreDamaged, StoreError
from disqued.pipeline.connector.options import ConnectorUse, read_options
from disqued.pipeline.connector.read import QueuesReader
from disqued.pipeline.connector.rows import SCHEMA
from disqued.pipeline.connector.source import DisquedDataSource
from disqued.pipeline.connector.store_rows import ARROWS, SCHEMAS
from disqued.pipeline.connector.stores import StoresReader
from disqued.tools.export import JsonLines, row
from tests import databases, journals
from tests.integration.daemon import HOST, ROOT, Daemon, environment, wait_until

Start = Callable[..., Daemon]
ALL = "queued,active,expired,unknown"


def rows_of(path: object, **options: str) -> list[dict[str, Any]]:
    """Read a store as Spark does: its parts and the reader go to other processes."""
    reader = StoresReader(read_options({"path": str(path), **options}, ConnectorUse.STORE))
    rows = []
    for each in reader.partitions():
        there, part = pickle.loads(pickle.dumps((reader, each)))
        for batch in there.read(part):
            assert batch.schema == ARROWS[options.get("records", "jobs")]
            rows += batch.to_pylist()
    return rows


def bodies(path: object, **options: str) -> list[bytes]:
    return sorted(row["body"] for row in rows_of(path, **options))


def export(folder: Path, form: str, kind: str) -> Path:
    """Export the store of a folder with the tool."""
    output = folder / f"jobs.{form}"
    words = ["export", "--persistence", kind, "--dir", str(folder), "--format", form, "--output", str(output)]
    subprocess.run([sys.executable, "-m", "disqued.cli", *words], env=environment(), cwd=ROOT, check=True)
    return output


def forms_of(folder: Path, kind: str) -> list[Path]:
    """The store of a folder, and what `disqued export` makes of a journal."""
    return [folder, export(folder, "jsonl", kind), export(folder, "parquet", kind)] if kind == "aof" else [folder]


@pytest.mark.parametrize("kind", ["aof", "sqlite"])
def test_the_store_of_a_running_node_has_the_jobs_that_the_node_has(start: Start, tmp_path: Path, kind: str) -> None:
    data = tmp_path / "data"
    node = start("--persistence", kind, "--appendfsync", "always", directory=data)
    for number in range(6):
        node.call("ADDJOB", "mail", f"mail {number}", 0, "RETRY", 60)
    letter_id = node.call("ADDJOB", "letters", b"\xff\x00", 0, "TTL", 500, "DELAY", 400, "RETRY", 30)
    node.call("ACKJOB", *(job[1] for job in node.call("GETJOB", "COUNT", 2, "FROM", "mail")))
    left = sorted([b"\xff\x00", *(b"mail %d" % number for number in range(2, 6))])
    for path in forms_of(data, kind):
        rows = {row["body"]: row for row in rows_of(path)}
        assert sorted(rows) == left
        letter = rows[b"\xff\x00"]
        assert (letter["id"], letter["node"], letter["queue"]) == (letter_id, letter_id[2:10], "letters")
        assert (letter["ttl_ms"], letter["retry_ms"], letter["delay_ms"]) == (500_000, 30_000, 400_000)
        assert (letter["expires"] - letter["ctime"]).total_seconds() == pytest.approx(500, abs=1)
        assert {row["state"] for row in rows.values()} == {None}, "it does not tell where jobs of a running node are"
        assert {row["kind"] for row in rows.values()} == {"work"}
        assert bodies(path, queues="let*") == [b"\xff\x00"]
        assert bodies(path, states="queued,active") == []
    # The node goes on, and so does its store.
    node.call("ADDJOB", "mail", "mail 6", 0)
    assert bodies(data) == sorted([*left, b"mail 6"])
    # One that a node has left in order tells where its jobs are.
    node.ended = True
    with node.redis() as client:
        client.connection_pool.get_connection().send_command("SHUTDOWN", "REWRITE-AOF")
    assert node.wait_end() == 0
    states = {row["body"]: row["state"] for row in rows_of(data)}
    assert states == {b"\xff\x00": "active", **{b"mail %d" % number: "queued" for number in range(2, 7)}}
    assert bodies(data, states="active") == [b"\xff\x00"]


@pytest.mark.parametrize("kind", ["aof", "sqlite"])
def test_headers_and_the_number_of_a_delivery_are_in_a_store(start: Start, tmp_path: Path, kind: str) -> None:
    data = tmp_path / "data"
    node = start("--persistence", kind, "--appendfsync", "always", directory=data)
    job_id = node.call(
        "ADDJOB", "mail", "x", 0, "RETRY", 60, "HEADER", "size", "32", "HEADER", "trace", "ab", "GROUP", "a\\"
    )
    node.call("GETJOB", "FROM", "mail")
    node.call("NACK", job_id, "REASON", "why")
    for path in forms_of(data, kind):
        [row] = rows_of(path)
        assert (row["headers"], row["attempt"]) == ([("size", b"32"), ("trace", b"ab")], 2)
        assert row["group"] == "a\\\\"


@pytest.mark.parametrize("kind", ["aof", "sqlite"])
def test_a_job_has_the_same_columns_in_a_store_as_on_its_node(start: Start, tmp_path: Path, kind: str) -> None:
    data = tmp_path / "data"
    node = start("--persistence", kind, "--appendfsync", "always", directory=data)
    terms = ("MAXTRIES", 1, "BACKOFF", 2, 60, "KEEPDEAD", 100, "RESULT", 50, "HEADER", "a", b"\xff", "GROUP", "g")
    for body in ("done", "redriven", "dead"):
        job_id = node.call("ADDJOB", "mail", body, 0, "RETRY", 60, *terms)
        node.call("GETJOB", "FROM", "mail")
        node.call("WORKING", job_id, "PROGRESS", b"\\ of it")
        if body == "done":
            node.call("ACKJOB", job_id, "RESULT", "fine")
        else:
            node.call("NACK", job_id, "REASON", b"no\xff")
        if body == "redriven":
            assert node.call("REDRIVE", "mail") == 1
            node.call("GETJOB", "FROM", "mail")
    cancelled = node.call("ADDJOB", "other", "cancelled", 0, "RETRY", 60)
    node.call("GETJOB", "FROM", "other")
    node.call("CANCEL", cancelled)
    options = {"address": f"{HOST}:{node.port}", "states": "queued,active,dead"}
    live = QueuesReader(read_options(options, ConnectorUse.READ))
    batches = [batch for part in live.partitions() for batch in live.read(part)]
    shown = {row["id"]: row for batch in batches for row in batch.to_pylist()}
    assert sorted(row["body"] for row in shown.values()) == [b"cancelled", b"dead", b"redriven"]
    for path in forms_of(data, kind):
        rows = {row["id"]: row for row in rows_of(path, states="dead,unknown")}
        assert {row["body"]: row["state"] for row in rows.values()} == {
            b"cancelled": None, b"redriven": None, b"dead": "dead",
        }  # fmt: skip
        for job_id, kept in rows.items():
            known = {name: kept[name] for name in SCHEMA.names}
            assert known | {"state": ""} == shown[job_id] | {"state": ""}, path


@pytest.mark.parametrize("kind", ["aof", "sqlite"])
def test_who_is_done_and_what_else_ended_jobs_can_be_read(start: Start, tmp_path: Path, kind: str) -> None:
    data = tmp_path / "data"
    node = start("--persistence", kind, "--appendfsync", "always", directory=data)
    done, deleted = (node.call("ADDJOB", "mail", name, 0) for name in ("one", "two"))
    event = node.call("QADD", "log", 500, "three")
    node.call("ACKJOB", node.call("GETJOB", "FROM", "mail")[0][1])
    node.call("DELJOB", deleted)
    node.call("QACK", "log", "readers", node.call("QGET", "log", "readers")[0])
    for path in forms_of(data, kind):
        facts = {row["id"]: row for row in rows_of(path, records="done")}
        assert {each: (row["scope"], row["queue"]) for each, row in facts.items()} == {
            done: ("", "mail"), event: ("0:readers", "log"),
        }  # fmt: skip
        assert all(row["ctime"] <= row["done_at"] for row in facts.values())
        [gone] = rows_of(path, records="evictions")
        assert (gone["id"], gone["reason"], gone["queue"]) == (deleted, "deleted", "mail")
        assert [row["id"] for row in rows_of(path, records="done", queues="mail")] == [done]
        assert {row["id"] for row in rows_of(path)} == {event}, "an event is there, whoever is done with it"
        left = {b"three"} if kind == "sqlite" else {b"one", b"two", b"three"}
        assert set(bodies(path, records="added")) == left, "a database has no bodies of what is over"


def test_records_later_in_a_journal_take_jobs_back(tmp_path: Path) -> None:
    journals.small_journal(tmp_path)
    assert bodies(tmp_path, states=ALL) == [b"base", b"incr"]
    assert bodies(tmp_path) == [], "their time is over"
    assert {row["state"] for row in rows_of(tmp_path, states="expired")} == {"expired"}
    store, _ = journals.opened(tmp_path)
    journals.put(store, b"again")
    assert bodies(tmp_path, states=ALL) == [b"again", b"base", b"incr"], "what was done is there again"
    store.append([(FLUSHED,)])
    store.commit()
    assert bodies(tmp_path, states=ALL) == []
    store.close()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 2), st.binary(max_size=3)),
        st.tuples(st.just("done"), st.integers(0, 2), st.sampled_from([b"", b"0:group"])),
        st.tuples(st.just("gone"), st.integers(0, 2), st.just(GONE_EXPIRED)),
        st.tuples(st.just("flush"), st.just(0), st.just(b"")),
    ),
    max_size=30,
)


@settings(max_examples=60)
@example([("add", 0, b"x"), ("done", 0, b"0:group")])
@example([("add", 0, b"x"), ("done", 0, b""), ("add", 0, b"y")])
@given(STEPS)
def test_whatever_happened_the_jobs_are_those_that_a_node_would_load(steps: list[tuple[str, int, bytes]]) -> None:
    kinds = {"done": UNIT_DONE, "gone": JOB_GONE}
    records: list[Record] = []
    for what, number, word in steps:
        if what == "add":
            records.append(journals.added(number, word))
        else:
            records.append((FLUSHED,) if what == "flush" else (kinds[what], journals.job_id(number), word))
    with TemporaryDirectory() as folder:
        store, _ = journals.opened(Path(folder), disk=journals.QuickDisk())
        store.append(records)
        store.commit()
        store.close()
        found = sorted((each["id"].encode(), each["body"]) for each in rows_of(folder, states=ALL))
        lines = Path(folder) / "export.jsonl"
        with lines.open("wb") as file:
            writer = JsonLines(file)
            for record in journals.loaded(Path(folder)):
                writer.write(row(record))
            writer.close()
        exported = sorted((each["id"].encode(), each["body"]) for each in rows_of(lines, states=ALL))
    expected: dict[bytes, bytes] = {}
    for what, number, word in steps:
        if what == "add":
            expected[journals.job_id(number)] = word
        elif what == "flush":
            expected.clear()
        elif word != b"0:group":
            expected.pop(journals.job_id(number), None)
    assert found == exported == sorted(expected.items())


def test_events_of_a_log_that_was_flushed_are_gone_and_later_ones_are_not(tmp_path: Path) -> None:
    store, _ = journals.opened(tmp_path)
    first, second = (databases.added(number, b"%d" % number, kind=KIND_LOG) for number in (1, 2))
    node = first[1].id[2:10]
    store.append([first, second, (GROUP, b"queue", b"", ((node, first[1].ctime),), 1)])
    store.commit()
    store.close()
    assert bodies(tmp_path, states=ALL) == [b"2"]


def test_a_journal_may_be_compacted_while_it_is_read(tmp_path: Path) -> None:
    reactor = journals.Reactor()
    store, _ = journals.opened(tmp_path, reactor=reactor)
    store.append([journals.added(number, b"%04d" % number) for number in range(3_000)])
    store.commit()
    reader = StoresReader(read_options({"path": str(tmp_path), "states": ALL}, ConnectorUse.STORE))
    [part] = reader.partitions()
    batches = reader.read(part)
    rows = next(batches).to_pylist()
    store.compact(iter([journals.added(number, b"kept") for number in range(2)]))
    journals.settle(store, reactor)
    store.append([(UNIT_DONE, journals.job_id(number), b"") for number in range(3_000)])
    store.commit()
    rows += [row for batch in batches for row in batch.to_pylist()]
    store.close()
    assert [row["body"] for row in rows] == [b"%04d" % number for number in range(3_000)], "as it was at the beginning"


def test_a_torn_end_is_passed_over_and_damage_is_told_in_the_words_of_check_aof(tmp_path: Path) -> None:
    store, _ = journals.opened(tmp_path)
    journals.put(store, b"one", b"two", b"three")
    store.close()
    segment = journals.files(tmp_path)["incr"]
    data = segment.read_bytes()
    ends = journals.record_ends(data)
    segment.write_bytes(data[: ends[3] - 5])
    assert bodies(tmp_path, states=ALL) == [b"one", b"two"]
    segment.write_bytes(journals.flipped(data, (ends[1] + 60) * 8))
    with pytest.raises(StoreDamaged, match=rf"{segment.name}: damaged at byte {ends[1]}, record 2: the checksum is"):
        rows_of(tmp_path)
    segment.unlink()
    with pytest.raises(StoreDamaged, match="the manifest lists this file, and it is missing"):
        rows_of(tmp_path)


def test_a_database_is_shared_out_by_its_numbers_and_each_row_is_read_once(tmp_path: Path) -> None:
    store, _ = databases.opened(tmp_path)
    store.put_bodies(*(b"%03d" % number for number in range(100)))
    store.put(
        *((UNIT_DONE, databases.job_id(number), b"") for number in range(40)),
        (JOB_GONE, databases.job_id(40), GONE_EXPIRED), (JOB_GONE, databases.job_id(41), GONE_DELETED),
    )  # fmt: skip
    options = {"path": str(tmp_path), "states": ALL}
    assert len(StoresReader(read_options({**options, "minPartitions": "5"}, ConnectorUse.STORE)).partitions()) == 5
    there = [b"%03d" % number for number in range(42, 100)]
    assert bodies(**options, minPartitions="5") == bodies(**options) == there
    assert len(rows_of(tmp_path, records="done", minPartitions="7")) == 40
    assert sorted(row["reason"] for row in rows_of(tmp_path, records="evictions")) == ["deleted", "expired"]
    store.end()


def test_a_changed_letter_in_a_database_is_damage(tmp_path: Path) -> None:
    store, _ = databases.opened(tmp_path)
    store.put_bodies(b"one", b"two")
    store.end()
    path = tmp_path / databases.NAME
    databases.change(tmp_path, "UPDATE jobs SET body = 'owe' WHERE body = 'one'")
    with pytest.raises(StoreDamaged, match=rf"{path.name}: damaged, record 1: the checksum is wrong"):
        rows_of(tmp_path)


def test_exports_that_are_none_are_told_with_the_place(tmp_path: Path) -> None:
    row = {"event": "done", "at": 1, "id": "DI", "scope": ""}
    lines = tmp_path / "a.jsonl"
    for text, said in (
        (json.dumps(row), "damaged at byte 0, record 1: torn: the line is cut off"),
        (json.dumps(row) + "\n{}\n", "damaged at byte .*, record 2: the row has no event; it is none of an export"),
        ('{"event":"new"}\n', "damaged at byte 0, record 1: the row is none of an export: 'new' is no event"),
        ("{a}\n", "damaged at byte 0, record 1: the row is none of an export: Expecting property name"),
    ):
        lines.write_text(text)
        with pytest.raises(StoreDamaged, match=said):
            rows_of(lines)
    table = tmp_path / "b.parquet"
    table.write_bytes(b"PAR1 and nothing more")
    with pytest.raises(StoreDamaged, match=r"b.parquet: damaged at byte 0, record 1: this is no whole file of Parquet"):
        rows_of(table)


def test_names_of_exports_are_the_bytes_that_they_were() -> None:
    from disqued.pipeline.connector.exports import bytes_of
    from disqued.wire.texts import text

    for name in (b"mail", b"\xff\x00a", b"a\\b", b"\\xff", "\N{SNOWMAN}".encode(), b"\\\\x41"):
        assert bytes_of(text(name)) == name


def test_several_stores_are_read_at_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        store, _ = journals.opened(tmp_path / name)
        journals.put(store, name.encode())
        store.close()
    rows = rows_of(tmp_path / "*", states=ALL)
    assert [(row["body"], row["store"]) for row in rows] == [
        (name.encode(), str(tmp_path / name / journals.NAME)) for name in ("a", "b")
    ]
    both = f"file://{tmp_path}/a/{journals.NAME}, {tmp_path}/b/{journals.NAME}.manifest"
    assert bodies(both, states=ALL) == [b"a", b"b"]
    assert bodies(f"{tmp_path}/a/*", states=ALL) == [b"a"], "files of one journal are one store"


def test_what_is_no_store_is_told(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("hello")
    (tmp_path / "redis").mkdir()
    (tmp_path / "redis" / "store.conf").write_text("persistence redis\n")
    for path, said in (
        ("empty", "'.*empty' has no store, and no export in it"),
        ("text", "'.*text' is no journal, no database, and no export"),
        ("none", "'.*none' is not there, nor is a journal of that name"),
        ("n*e", "nothing is called '.*n.e'"),
        ("redis", "are in the store redis .*`disqued export` makes one"),
    ):
        with pytest.raises(ValueError, match=said):
            rows_of(tmp_path / path)
    with pytest.raises(StoreError, match="this is no SQLite database"):
        rows_of(tmp_path / "text", store="sqlite")


def test_the_source_knows_a_store_by_its_path() -> None:
    for records, schema in SCHEMAS.items():
        source = DisquedDataSource({"path": "/data", "records": records})
        assert source.schema() == schema
        assert isinstance(source.reader(schema), StoresReader)
    with pytest.raises(ValueError, match=r"the option path is for .* with path, not for spark.readStream;"):
        DisquedDataSource({"path": "/data"}).streamReader(SCHEMAS["jobs"])
    with pytest.raises(
        ValueError,
        match=r"the option ttl is for df.write .* queue to queue, not for spark.read with path or spark.readS",
    ):
        DisquedDataSource({"path": "/data", "ttl": "5"}).schema()
    with pytest.raises(ValueError, match="the columns of disqued cannot be chosen"):
        DisquedDataSource({"path": "/data"}).reader(SCHEMAS["done"])


def test_a_node_may_compact_and_add_while_its_journal_is_read_again_and_again(start: Start, tmp_path: Path) -> None:
    node = start("--persistence", "aof", directory=tmp_path / "data")
    for number in range(200):
        node.call("ADDJOB", "kept", str(number), 0)
    kept = {b"%d" % number for number in range(200)}
    for number in range(10):
        node.call("ADDJOB", "more", f"more {number}", 0)
        with contextlib.suppress(redis.exceptions.ResponseError):  # one may be under way
            node.call("BGREWRITEAOF")
        assert kept <= set(bodies(tmp_path / "data"))
    wait_until(lambda: len(bodies(tmp_path / "data")) == 210, "what was added last is in the journal, too")
