"""Rows as jobs in two phases, by the writer itself: no JVM, real daemons."""

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructType

from disqued.client.errors import QueuePaused, Unreachable
from disqued.pipeline.connector import commits
from disqued.pipeline.connector.nodes import NodeAt, NodeLink
from disqued.pipeline.connector.options import ConnectorUse, read_options
from disqued.pipeline.connector.source import DisquedDataSource
from disqued.pipeline.connector.write import Prepared, QueuesStreamWriter, QueuesWriter, Sink, batch_name
from tests.integration.daemon import HOST, Daemon, wait_until
from tests.pipeline.trio import Trio, addresses

BODIES = StructType().add("body", BinaryType())


@pytest.fixture(autouse=True)
def quick_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """No task is ended here that would need seconds for it."""
    monkeypatch.setattr(commits, "KILLED_S", 0.0)


def writer_of(daemon: Daemon, schema: StructType = BODIES, **options: str) -> QueuesWriter:
    """Make a writer and send it to another process, as Spark does."""
    given = {"address": f"{HOST}:{daemon.port}", **options}
    return pickle.loads(pickle.dumps(QueuesWriter(Sink(schema, read_options(given, ConnectorUse.WRITE)))))


def batch(**columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def shown(daemon: Daemon, job_id: bytes) -> dict[str, Any] | None:
    reply = daemon.call("SHOW", job_id)
    return reply and dict(zip(reply[::2], reply[1::2], strict=True))


def waiting(daemon: Daemon, queue: str) -> list[str]:
    return sorted(job[2] for job in daemon.call("QPEEK", queue, 1_000))


def jobs(daemon: Daemon, queue: str) -> int:
    return len(daemon.call("JSCAN", 0, "COUNT", 10_000, "QUEUE", queue)[1])


def test_nobody_is_given_a_job_before_the_commit(daemon: Daemon, queue: str) -> None:
    writer = writer_of(daemon, queue=queue, pipeline="2")
    message = writer.write(iter([batch(body=[b"a", b"b"]), batch(body=[b"c"])]))
    assert (daemon.call("QLEN", queue), jobs(daemon, queue)) == (0, 3)
    writer.commit([message, None])
    assert waiting(daemon, queue) == ["a", "b", "c"]


def test_a_write_that_is_aborted_leaves_nothing(daemon: Daemon, queue: str) -> None:
    writer = writer_of(daemon, queue=queue)
    message = writer.write(iter([batch(body=[b"a", b"b"])]))
    writer.abort([message, None])
    assert jobs(daemon, queue) == 0


def test_an_abort_finds_what_a_task_added_that_failed(daemon: Daemon, queue: str) -> None:
    schema = StructType([*BODIES.fields]).add("queue", StringType())
    paused = f"{queue}-paused"
    daemon.call("PAUSE", paused, "in")
    writer = writer_of(daemon, schema)
    with pytest.raises(QueuePaused):
        writer.write(iter([batch(body=[b"a", b"b"], queue=[queue, paused])]))
    # Another task for the same rows may count on it.
    assert jobs(daemon, queue) == 1
    writer.abort([None])
    assert jobs(daemon, queue) == 0


def test_a_task_that_is_run_again_adds_nothing_twice(daemon: Daemon, queue: str) -> None:
    writer = writer_of(daemon, queue=queue)
    first = writer.write(iter([batch(body=[b"a", b"a", b"b"])]))
    again = writer.write(iter([batch(body=[b"b", b"a", b"a"])]))  # in another order
    assert isinstance(first, Prepared)
    assert isinstance(again, Prepared)
    assert (len(set(first.ids)), set(first.ids)) == (3, set(again.ids))
    writer.commit([again])
    assert waiting(daemon, queue) == ["a", "a", "b"]
    other = writer_of(daemon, queue=queue)
    other.commit([other.write(iter([batch(body=[b"a"])]))])
    assert waiting(daemon, queue) == ["a", "a", "a", "b"], "another write is another job"


def test_an_abort_leaves_the_jobs_that_were_there_before(daemon: Daemon, queue: str) -> None:
    schema = StructType([*BODIES.fields]).add("key", StringType())
    before = writer_of(daemon, schema, queue=queue)
    before.commit([before.write(iter([batch(body=[b"old"], key=["k1"])]))])
    writer = writer_of(daemon, schema, queue=queue)
    message = writer.write(iter([batch(body=[b"again", b"new"], key=["k1", "k2"])]))
    assert isinstance(message, Prepared)
    # The one that was there is as old as the second in which the test runs.
    message.since_us = 1 + max(int(shown(daemon, message.ids[0])["ctime"]) // 1_000, message.since_us - 1)
    writer.abort([message])
    assert waiting(daemon, queue) == ["old"]


def test_queues_keys_and_options_come_with_the_rows(daemon: Daemon, queue: str) -> None:
    schema = StructType().add("body", StringType()).add("queue", StringType()).add("key", BinaryType())
    writer = writer_of(daemon, schema, ttl="5000", retry="70", replicate="1", prepareTimeout="600")
    message = writer.write(iter([batch(body=["a", "b"], queue=[queue, f"{queue}-b"], key=[b"mine", None])]))
    assert isinstance(message, Prepared)
    first, second = (shown(daemon, each) for each in message.ids)
    assert first is not None
    assert second is not None
    assert (first["queue"], first["key"], first["ttl"], first["retry"], first["delay"]) == (
        queue,
        "mine",
        5000,
        70,
        600,
    )
    assert second["queue"] == f"{queue}-b"
    writer.commit([message])
    assert (waiting(daemon, queue), waiting(daemon, f"{queue}-b")) == (["a"], ["b"])


def test_one_phase_queues_at_once_and_may_delay(daemon: Daemon, queue: str) -> None:
    writer = writer_of(daemon, queue=queue, twoPhase="false")
    message = writer.write(iter([batch(body=[b"a"])]))
    assert waiting(daemon, queue) == ["a"]
    writer.commit([message])
    later = writer_of(daemon, queue=queue, twoPhase="false", delay="500")
    message = later.write(iter([batch(body=[b"b"])]))
    later.commit([message])
    assert isinstance(message, Prepared)
    assert shown(daemon, message.ids[0])["delay"] == 500
    assert waiting(daemon, queue) == ["a"]


def test_what_was_prepared_on_a_node_that_is_away_is_queued_by_those_with_copies(trio: Trio, queue: str) -> None:
    nodes = addresses(trio.all())
    writer = writer_of(trio[0], queue=queue, replicate="2", address=nodes)
    lost = writer_of(trio[0], queue=queue, replicate="1", address=nodes, replyTimeout="1")
    message = writer.write(iter([batch(body=[b"a", b"b"])]))
    alone = lost.write(iter([batch(body=[b"c"])]))
    assert isinstance(message, Prepared)
    assert message.node.address[1] == trio[0].port
    trio.kill(0)
    writer.commit([message])
    assert sorted(body for node in (trio[1], trio[2]) for body in waiting(node, queue)) == ["a", "b"]
    with pytest.raises(Unreachable, match="1 jobs that were prepared are on no node that is there"):
        lost.commit([alone])


def held(nodes: Sequence[Daemon], queue: str) -> set[str]:
    """Name the jobs of a queue that nodes know, and that are not done."""
    states = ("STATE", "queued", "STATE", "active")
    return {each for node in nodes for each in node.call("JSCAN", 0, "COUNT", 10_000, "QUEUE", queue, *states)[1]}


def stream_of(nodes: Sequence[Daemon], number: int, schema: StructType = BODIES, **options: str) -> QueuesStreamWriter:
    """Make the writer of a batch, as a driver does that begins, or begins again, with it."""
    sink = writer_of(nodes[0], schema, address=addresses(nodes), **options)._sink
    sink._write = batch_name(f"query-{options['queue']}", number)  # as Spark tells the tasks
    return QueuesStreamWriter(sink)


def prepare(writer: QueuesStreamWriter, *bodies: bytes) -> Prepared:
    message = writer.write(iter([batch(body=list(bodies))]))
    assert isinstance(message, Prepared)
    return message


def test_a_batch_that_is_run_again_after_its_commit_adds_nothing_though_consumers_were_quick(
    daemon: Daemon, queue: str
) -> None:
    first = stream_of([daemon], 0, queue=queue)
    message = prepare(first, b"a", b"b", b"c")
    first.commit([message], 0)
    [[_, done, _]] = daemon.call("GETJOB", "FROM", queue)
    [[_, at_work, _]] = daemon.call("GETJOB", "FROM", queue)
    daemon.call("ACKJOB", done)
    # The driver was killed before it noted that the batch is done.
    again = stream_of([daemon], 0, queue=queue)
    repeated = prepare(again, b"a", b"b", b"c")
    assert set(message.ids) - set(repeated.ids) == {done.encode()}, "the row is a job anew, which nobody is given yet"
    again.commit([repeated], 0)
    assert waiting(daemon, queue) == ["c"]
    assert held([daemon], queue) == {at_work, message.ids[2].decode()}


def test_a_batch_that_is_run_again_leaves_the_jobs_of_others_that_have_its_keys(daemon: Daemon, queue: str) -> None:
    schema = StructType([*BODIES.fields]).add("key", StringType())
    rows = batch(body=[b"a", b"b"], key=["k1", "k2"])
    first = stream_of([daemon], 0, schema, queue=queue)
    message = first.write(iter([rows]))
    first.commit([message], 0)
    daemon.call("ACKJOB", *(job[1] for job in daemon.call("GETJOB", "COUNT", 2, "FROM", queue)))
    other = daemon.call("ADDJOB", queue, "of another producer", 0, "KEY", "k1")
    again = stream_of([daemon], 0, schema, queue=queue)
    repeated = again.write(iter([rows]))
    assert isinstance(repeated, Prepared)
    assert repeated.ids[0] == other.encode()
    # They are of the same millisecond, as far as the test is quick.
    repeated.since_us = 1 + max(int(shown(daemon, repeated.ids[0])["ctime"]) // 1_000, repeated.since_us - 1)
    again.commit([repeated], 0)
    assert waiting(daemon, queue) == ["of another producer"]
    assert other in held([daemon], queue)


def test_a_commit_that_was_broken_off_is_done_to_its_end(daemon: Daemon, queue: str, monkeypatch: Any) -> None:
    first = stream_of([daemon], 0, queue=queue, pipeline="1")
    message = prepare(first, b"a", b"b", b"c")
    with monkeypatch.context() as patch:
        patch.setattr(commits, "_enqueue", broken_after(2))
        with pytest.raises(KeyboardInterrupt):
            first.commit([message], 0)
    assert waiting(daemon, queue) == ["a", "b"]
    daemon.call("ACKJOB", *(job[1] for job in daemon.call("GETJOB", "COUNT", 2, "FROM", queue)))
    first.abort([message], 0)  # Spark says so where the driver lives on; it is too late
    again = stream_of([daemon], 0, queue=queue)
    again.commit([prepare(again, b"a", b"b", b"c")], 0)
    assert waiting(daemon, queue) == ["c"]
    assert len(held([daemon], queue)) == 1


def broken_after(count: int) -> commits.Enqueue:
    real, left = commits._enqueue, iter(range(count))

    def enqueue(link: NodeLink, ids: Sequence[bytes]) -> int:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return real(link, ids)

    return enqueue


def test_the_mark_of_a_batch_ends_with_the_next_one_and_that_of_a_table_with_its_write(
    daemon: Daemon, queue: str
) -> None:
    before = held([daemon], commits.COMMITS)
    table = writer_of(daemon, queue=queue)
    table.commit([table.write(iter([batch(body=[b"a"])]))])
    assert held([daemon], commits.COMMITS) == before
    marks = []
    for number in range(4):
        writer = stream_of([daemon], number, queue=queue)
        writer.commit([prepare(writer, b"a") if number != 2 else prepare(writer)], number)
        marks.append(held([daemon], commits.COMMITS) - before)
    assert [len(each) for each in marks] == [1, 1, 0, 1], "one for the last batch that had jobs"
    assert not marks[0] & marks[1]


def test_a_task_goes_on_with_another_node_when_its_own_goes_away(trio: Trio, queue: str) -> None:
    writer = stream_of(trio.all(), 0, queue=queue, replicate="2")

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(body=[b"a", b"b"])
        trio.kill(0)
        yield batch(body=[b"c"])

    message = writer.write(batches())
    assert isinstance(message, Prepared)
    assert message.node.address[1] == trio[1].port
    writer.commit([message], 0)
    assert sorted(body for node in (trio[1], trio[2]) for body in waiting(node, queue)) == ["a", "b", "c"]


def test_a_job_that_is_on_other_nodes_than_that_of_its_task_is_queued(trio: Trio, queue: str) -> None:
    message = prepare(stream_of(trio.all(), 0, queue=queue, replicate="1"), b"a")
    again = stream_of(trio.all(), 0, queue=queue, replicate="1")
    repeated = prepare(again, b"a")
    repeated.node = NodeAt(str(trio[2].call("CLUSTER", "MYID")), (HOST, trio[2].port))
    assert repeated.ids == message.ids
    again.commit([repeated], 0)
    assert waiting(trio[0], queue) == ["a"]


def test_an_abort_reaches_a_node_that_was_away(trio: Trio, queue: str) -> None:
    writer = stream_of(trio.all(), 0, queue=queue, replicate="2")
    message = prepare(writer, b"a")
    trio.kill(0)
    writer.abort([message, None], 0)
    assert not held([trio[1], trio[2]], queue)
    trio.restart(0)
    wait_until(lambda: not held([trio[0]], queue), "the node has heard that the job is no more")
    trio.cluster.wait_joined()
    again = stream_of(trio.all(), 0, queue=queue, replicate="2")
    repeated = prepare(again, b"a")
    assert repeated.ids != message.ids
    again.commit([repeated], 0)
    assert waiting(trio[0], queue) == ["a"]


@pytest.mark.parametrize(
    ("schema", "options", "said"),
    [
        (StructType().add("queue", StringType()), {}, "the column body is missing"),
        (BODIES, {}, "the column queue is missing"),
        (StructType().add("body", IntegerType()), {"queue": "q"}, "the column body is int; allowed: BINARY or STRING"),
        (StructType([*BODIES.fields]).add("id", StringType()), {"queue": "q"}, "the column id is no part of a job"),
        (BODIES, {"queue": "q", "delay": "5"}, "the option delay needs twoPhase = false"),
        (BODIES, {"queue": "q", "ttl": "60"}, "the option prepareTimeout = 3600 is not less than ttl = 60"),
        (BODIES, {"queue": "q", "prepareTimeout": "86400"}, "prepareTimeout = 86400 is not less than a day"),
        (BODIES, {"queue": "q", "twoPhase": "false", "delay": "9", "ttl": "9"}, "delay = 9 is not less than ttl = 9"),
        (BODIES, {"queue": "q", "retry": "0"}, r"the option retry = 0 \(at most once\) needs replicate = 1"),
        (BODIES, {"queue": "q", "queues": "q"}, "not for df.write; options for df.write are"),
    ],
)
def test_what_cannot_be_jobs_is_refused_before_anything_is_sent(
    schema: StructType, options: dict[str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        DisquedDataSource({"address": "127.0.0.1:1", **options}).writer(schema, overwrite=False)


def test_a_queue_cannot_be_overwritten() -> None:
    source = DisquedDataSource({"address": "127.0.0.1:1", "queue": "q"})
    for make in (source.writer, source.streamWriter):
        with pytest.raises(ValueError, match="cannot be overwritten"):
            make(BODIES, True)


def test_groups_come_with_the_rows(daemon: Daemon, queue: str) -> None:
    schema = StructType([*BODIES.fields]).add("group", StringType())
    writer = writer_of(daemon, schema, queue=queue)
    rows = batch(body=[b"a", b"b", b"c", b"d"], group=["acme", None, "", "z\\\\\\xff"])
    writer.commit([writer.write(iter([rows]))])
    with daemon.redis(decode_responses=False) as client:
        told = {job[2]: client.execute_command("SHOW", job[1]) for job in client.execute_command("QPEEK", queue, 9)}
    groups = {body: dict(zip(reply[::2], reply[1::2], strict=True)).get(b"group") for body, reply in told.items()}
    assert groups == {b"a": b"acme", b"b": None, b"c": None, b"d": b"z\\\xff"}
    with pytest.raises(ValueError, match="the column group is binary; allowed: STRING"):
        writer_of(daemon, StructType([*BODIES.fields]).add("group", BinaryType()), queue=queue)
