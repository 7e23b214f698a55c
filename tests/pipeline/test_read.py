"""Live queues as a table, by the reader itself: no JVM, real daemons."""

import datetime as dt
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from disqued.client.errors import AccessDenied, Unreachable
from disqued.pipeline.connector.nodes import NodeAt
from disqued.pipeline.connector.options import ConnectorUse, read_options
from disqued.pipeline.connector.read import QueuesReader, Slice, share_out
from disqued.pipeline.connector.rows import ARROW, SCHEMA
from disqued.pipeline.connector.source import DisquedDataSource
from tests.integration.cluster import wait_reached
from tests.integration.daemon import HOST, Daemon, free_port

Start = Callable[..., Daemon]


def reader_of(daemon: Daemon, **options: str) -> QueuesReader:
    return QueuesReader(read_options({"address": f"{HOST}:{daemon.port}", **options}, ConnectorUse.READ))


def rows_of(reader: QueuesReader) -> list[dict[str, Any]]:
    """Read a table as Spark does: each slice and the reader go to another process."""
    rows = []
    for each in reader.partitions():
        there, slice_ = pickle.loads(pickle.dumps((reader, each)))
        for batch in there.read(slice_):
            assert batch.schema == ARROW
            rows += batch.to_pylist()
    return rows


def bodies_of(reader: QueuesReader) -> list[bytes]:
    return sorted(row["body"] for row in rows_of(reader))


def test_a_job_has_every_column(daemon: Daemon, queue: str) -> None:
    began = dt.datetime.now(dt.UTC)
    job_id = daemon.call("ADDJOB", queue, b"\xff\x00", 0)
    with daemon.redis(decode_responses=False) as client:
        client.execute_command("GETJOB", "FROM", queue)
    daemon.call("NACK", job_id)
    [row] = rows_of(reader_of(daemon, queues=queue))
    [_, own, _] = daemon.call("HELLO")
    ctime = row.pop("ctime")
    assert row == {
        "id": job_id,
        "queue": queue,
        "body": b"\xff\x00",
        "nacks": 1,
        "additional_deliveries": 0,
        "attempt_ts": None,
        "node": own[:8],
        "attempt": 2,
        "state": "queued",
        "headers": [],
        "group": None,
        "max_tries": 0,
        **dict.fromkeys(("backoff_ms", "backoff_most_ms", "keep_dead_ms", "keep_result_ms", "generation"), 0),
        "is_cancelled": False,
        "failures": [],
        "progress": None,
    }
    assert abs(ctime - began) < dt.timedelta(minutes=5)


def test_headers_the_number_of_a_delivery_and_dead_jobs_are_read(daemon: Daemon, queue: str) -> None:
    terms = ("RETRY", 60, "MAXTRIES", 2, "HEADER", "size", b"\xff", "HEADER", "trace", "ab", "GROUP", b"a\xff")
    job_id = daemon.call("ADDJOB", queue, "x", 0, *terms)
    daemon.call("GETJOB", "FROM", queue)
    daemon.call("NACK", job_id, "DEAD")
    assert rows_of(reader_of(daemon, queues=queue)) == []
    [row] = rows_of(reader_of(daemon, queues=queue, states="dead"))
    assert row["group"] == "a\\xff"
    assert (row["headers"], row["attempt"]) == ([("size", b"\xff"), ("trace", b"ab")], 2)
    assert daemon.call("REDRIVE", queue) == 1
    daemon.call("GETJOB", "FROM", queue)
    [row] = rows_of(reader_of(daemon, queues=queue))
    assert (row["nacks"], row["attempt"]) == (0, 2), "no number comes twice"


def test_a_dead_job_says_why_it_died(daemon: Daemon, queue: str) -> None:
    began = dt.datetime.now(dt.UTC)
    terms = ("RETRY", 60, "MAXTRIES", 2, "BACKOFF", 1, 9, "KEEPDEAD", 100, "RESULT", 50)
    dead = daemon.call("ADDJOB", queue, "dead", 0, *terms)
    daemon.call("GETJOB", "FROM", queue)
    daemon.call("NACK", dead, "DELAY", 0, "REASON", "first")
    daemon.call("GETJOB", "TIMEOUT", 5_000, "FROM", queue)
    daemon.call("WORKING", dead, "PROGRESS", b"50 %")
    daemon.call("NACK", dead, "REASON", b"second \\")
    waits = daemon.call("ADDJOB", queue, "waits", 0)
    runs = daemon.call("ADDJOB", f"{queue}.active", "runs", 0, "RETRY", 60)
    daemon.call("GETJOB", "FROM", f"{queue}.active")
    assert daemon.call("CANCEL", runs) == ["cancelling"]
    rows = {row["id"]: row for row in rows_of(reader_of(daemon, queues=f"{queue}*", states="queued,active,dead"))}
    assert {each: row["state"] for each, row in rows.items()} == {dead: "dead", waits: "queued", runs: "active"}
    assert {each: row["is_cancelled"] for each, row in rows.items()} == {dead: False, waits: False, runs: True}
    row = rows[dead]
    assert (row["max_tries"], row["backoff_ms"], row["backoff_most_ms"]) == (2, 1_000, 9_000)
    assert (row["keep_dead_ms"], row["keep_result_ms"], row["generation"]) == (100_000, 50_000, 0)
    assert [one["reason"] for one in row["failures"]] == ["first", "second \\\\"]
    assert {one["node"] for one in row["failures"]} == {row["node"]}
    assert all(abs(one["at"] - began) < dt.timedelta(minutes=5) and one["who"] for one in row["failures"])
    assert row["progress"] == "50 %"
    daemon.call("REDRIVE", queue)
    [row] = [row for row in rows_of(reader_of(daemon, queues=queue)) if row["id"] == dead]
    assert (row["state"], row["generation"], len(row["failures"])) == ("queued", 1, 2)


def test_more_jobs_than_one_call_or_one_pipeline_answers_are_all_read(daemon: Daemon, queue: str) -> None:
    with daemon.redis() as client, client.pipeline(transaction=False) as pipe:
        for number in range(5_000):
            pipe.execute_command("ADDJOB", queue, f"{number:05}", 0)
        pipe.execute()
    reader = reader_of(daemon, queues=queue, pipeline="300", minPartitions="4")
    assert len(reader.partitions()) == 4
    assert bodies_of(reader) == [b"%05d" % number for number in range(5_000)]


def test_queues_are_chosen_by_names_and_patterns(daemon: Daemon, queue: str) -> None:
    for name in ("a", "b", "c1", "c2"):
        daemon.call("ADDJOB", f"{queue}.{name}", name, 0)
    assert bodies_of(reader_of(daemon, queues=f"{queue}.a,{queue}.c*")) == [b"a", b"c1", b"c2"]
    assert bodies_of(reader_of(daemon, queues=f"{queue}.c[2-9]")) == [b"c2"]
    assert bodies_of(reader_of(daemon, queues=f"{queue}.b")) == [b"b"]


def test_states_are_chosen_and_jobs_that_are_done_are_no_rows(daemon: Daemon, queue: str) -> None:
    daemon.call("ADDJOB", queue, "waits", 0)
    daemon.call("ADDJOB", queue, "later", 0, "DELAY", 1_000)
    done = daemon.call("ADDJOB", queue, "done", 0)
    daemon.call("ACKJOB", done)
    assert bodies_of(reader_of(daemon, queues=queue)) == [b"later", b"waits"]
    assert bodies_of(reader_of(daemon, queues=queue, states="queued")) == [b"waits"]
    assert bodies_of(reader_of(daemon, queues=queue, states="active")) == [b"later"]


def test_a_job_that_ends_after_it_was_met_is_left_out(daemon: Daemon, queue: str) -> None:
    first, second = (daemon.call("ADDJOB", queue, body, 0) for body in ("one", "two"))
    reader = reader_of(daemon, queues=queue)
    slices = reader.partitions()
    daemon.call("ACKJOB", first)
    rows = [row for each in slices for batch in reader.read(each) for row in batch.to_pylist()]
    assert [row["id"] for row in rows] == [second]


def test_an_empty_queue_is_a_table_without_rows(daemon: Daemon, queue: str) -> None:
    reader = reader_of(daemon, queues=queue)
    assert reader.partitions() == []
    assert list(reader.read(None)) == []


def test_jobs_on_several_nodes_are_read_once(start: Start, queue: str, tmp_path: Path) -> None:
    first, second = (start(directory=tmp_path / name) for name in ("a", "b"))
    first.call("CLUSTER", "MEET", HOST, second.port)
    wait_reached(first, 1)
    wait_reached(second, 1)
    ids = {daemon.call("ADDJOB", queue, body, 0, "REPLICATE", 2) for daemon in (first, second) for body in range(100)}
    reader = reader_of(second, queues=queue)
    assert {each.node.address[1] for each in reader.partitions()} == {first.port, second.port}
    rows = rows_of(reader)
    assert len(rows) == 200
    assert {row["id"] for row in rows} == ids
    assert all(row["node"] == row["id"][2:10] for row in rows), "each from the node that it was added on"


def test_an_id_goes_to_its_origin_or_to_the_first_that_has_it() -> None:
    nodes = {short: NodeAt(short * 5, (HOST, 1)) for short in ("aaaaaaaa", "bbbbbbbb")}
    a, b = nodes.values()
    ids = [b"DI" + short.encode() + b"0" * 38 for short in ("aaaaaaaa", "bbbbbbbb", "cccccccc")]
    chosen = share_out({a: ids, b: [*ids, b"only-b"]})
    assert chosen == {a: [ids[0], ids[2]], b: [ids[1], b"only-b"]}


def test_a_password_is_said_to_the_node(start: Start, queue: str) -> None:
    daemon = start()
    daemon.call("CONFIG", "SET", "requirepass", "hush")
    with pytest.raises(AccessDenied):
        reader_of(daemon).partitions()
    assert rows_of(reader_of(daemon, password="hush")) == []


def test_a_node_that_is_away_is_named(daemon: Daemon, queue: str) -> None:
    away = free_port()
    options = {"address": f"{HOST}:{away}", "queues": queue}
    with pytest.raises(Unreachable, match=f"option address.*{HOST}:{away} does not answer"):
        QueuesReader(read_options(options, ConnectorUse.READ)).partitions()
    daemon.call("ADDJOB", queue, "x", 0)
    options["address"] += f",{HOST}:{daemon.port}"
    assert len(rows_of(QueuesReader(read_options(options, ConnectorUse.READ)))) == 1, "one that answers is enough"


def test_a_node_that_goes_away_while_it_is_read_is_an_error(start: Start, queue: str) -> None:
    daemon = start()
    daemon.call("ADDJOB", queue, "x", 0)
    reader = reader_of(daemon, queues=queue)
    [only] = reader.partitions()
    assert isinstance(only, Slice)
    daemon.stop()
    with pytest.raises(Unreachable, match="does not answer"):
        list(reader.read(only))


def test_columns_cannot_be_chosen() -> None:
    source = DisquedDataSource({"address": HOST})
    with pytest.raises(ValueError, match="the columns of disqued cannot be chosen: they are struct<id:string"):
        source.reader(schema=type(SCHEMA)(SCHEMA.fields[:2]))


def test_a_queue_whose_name_has_commas_is_read_by_a_json_array(daemon: Daemon, queue: str) -> None:
    for name in (f"{queue},", f"{queue}, b", queue):
        daemon.call("ADDJOB", name, name, 0)
    assert bodies_of(reader_of(daemon, queues=json.dumps([f"{queue},"]))) == [f"{queue},".encode()]
    both = json.dumps([f"{queue}, b", queue])
    assert bodies_of(reader_of(daemon, queues=both)) == [queue.encode(), f"{queue}, b".encode()]
    assert bodies_of(reader_of(daemon, queues=f"{queue}, b")) == [queue.encode()], "these are two names"
