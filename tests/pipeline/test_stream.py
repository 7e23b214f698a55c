"""Live queues as a stream, by the reader itself: no JVM, real daemons, and checkpoints as Spark keeps them."""

import json
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Self, cast

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from disqued.client.errors import Unreachable
from disqued.pipeline.connector import nodes as connector_nodes
from disqued.pipeline.connector import stream as connector_stream
from disqued.pipeline.connector.nodes import NodeAt
from disqued.pipeline.connector.options import ConnectorUse, read_options
from disqued.pipeline.connector.source import DisquedDataSource
from disqued.pipeline.connector.stream import BatchLease, JobsGone, QueuesStreamReader
from tests.integration.daemon import HOST, Daemon, wait_until
from tests.limits import LIMIT
from tests.pipeline.readers import next_of, rows_of
from tests.pipeline.trio import Trio, addresses


@pytest.fixture
def readers() -> Iterator[list[QueuesStreamReader]]:
    """Readers that a test has made; their threads end with it."""
    made: list[QueuesStreamReader] = []
    yield made
    for reader in made:
        reader.stop()


def reader_of(daemon: Daemon, readers: list[QueuesStreamReader], queue: str, **options: str) -> QueuesStreamReader:
    given = {"address": f"{HOST}:{daemon.port}", "queues": queue, **options}
    readers.append(QueuesStreamReader(read_options(given, ConnectorUse.STREAM)))
    return readers[-1]


def kill(reader: QueuesStreamReader) -> None:
    """End a driver as kill -9 does, as far as daemons notice: nothing is said any more."""
    if reader._heart is not None:
        reader._heart.stop()
    reader._leases.clear()


def fill(daemon: Daemon, queue: str, count: int, *options: object) -> list[str]:
    return [daemon.call("ADDJOB", queue, f"{number:04}", 0, *options) for number in range(count)]


def state(daemon: Daemon, job_id: str) -> str | None:
    reply = daemon.call("SHOW", job_id)
    return reply and dict(zip(reply[::2], reply[1::2], strict=True))["state"]


def test_a_queue_whose_name_has_commas_is_a_stream_by_a_json_array(
    daemon: Daemon, readers: list[QueuesStreamReader], queue: str
) -> None:
    names = [f"{queue}, b", f"{queue},c"]
    ids = [daemon.call("ADDJOB", name, name, 0) for name in names]
    reader = reader_of(daemon, readers, json.dumps(names))
    start = reader.initialOffset()
    first = next_of(reader, start)
    assert sorted(row["queue"] for row in rows_of(reader, start, first)) == names
    assert next_of(reader, first) == first
    assert all(state(daemon, each) in (None, "acked") for each in ids)


def test_batches_follow_each_other_and_each_ends_the_one_before(
    daemon: Daemon, readers: list[QueuesStreamReader], queue: str
) -> None:
    ids = fill(daemon, queue, 25)
    reader = reader_of(daemon, readers, queue, minPartitions="3")
    start = reader.initialOffset()
    first = next_of(reader, start, 20)
    assert (first["seq"], first["ids"]) == (1, " ".join(ids[:20]))
    assert len(reader.partitions(start, first)) == 3
    rows = rows_of(reader, start, first)
    assert [row["body"] for row in rows] == [b"%04d" % number for number in range(20)]
    assert all(row["ctime"] and row["attempt_ts"] and row["ctime"] <= row["attempt_ts"] for row in rows)
    assert {state(daemon, each) for each in ids[:20]} == {"active"}, "leased, and not done"
    second = next_of(reader, first)
    assert (second["seq"], second["ids"]) == (2, " ".join(ids[20:]))
    assert all(state(daemon, each) in (None, "acked") for each in ids[:20])
    assert len(rows_of(reader, first, second)) == 5
    assert next_of(reader, second) == second, "there is nothing more, and the batch is done"
    assert all(state(daemon, each) in (None, "acked") for each in ids)
    assert reader.partitions(second, second) == []


def test_rows_have_the_headers_of_a_job_and_the_number_of_its_delivery(
    daemon: Daemon, readers: list[QueuesStreamReader], queue: str
) -> None:
    words = ("HEADER", "trace", "ab", "HEADER", "size", "32", "GROUP", "acme")
    again = daemon.call("ADDJOB", queue, "again", 0, "RETRY", 60, *words)
    daemon.call("GETJOB", "FROM", queue)
    daemon.call("NACK", again, "REASON", "why")
    daemon.call("ADDJOB", queue, "once", 0, "RETRY", 0, *words)
    daemon.call("ADDJOB", queue, "plain", 0, "RETRY", 60)
    reader = reader_of(daemon, readers, queue)
    start = reader.initialOffset()
    end = next_of(reader, start)
    headers = [("trace", b"ab"), ("size", b"32")]
    found = {row["body"]: (row["headers"], row["attempt"], row["group"]) for row in rows_of(reader, start, end)}
    assert found == {b"again": (headers, 2, "acme"), b"once": (headers, 1, "acme"), b"plain": ([], 1, None)}


def test_a_commit_ends_a_batch_and_may_be_said_twice(
    daemon: Daemon, readers: list[QueuesStreamReader], queue: str
) -> None:
    [job_id] = fill(daemon, queue, 1)
    reader = reader_of(daemon, readers, queue)
    end = next_of(reader, reader.initialOffset())
    reader.partitions(reader.initialOffset(), end)
    reader.commit(end)
    reader.commit(end)
    assert state(daemon, job_id) in (None, "acked")


def test_a_stop_gives_back_what_is_in_no_batch(daemon: Daemon, readers: list[QueuesStreamReader], queue: str) -> None:
    fill(daemon, queue, 3)
    reader = reader_of(daemon, readers, queue)
    next_of(reader, reader.initialOffset())
    assert daemon.call("QLEN", queue) == 0
    reader.stop()
    assert daemon.call("QLEN", queue) == 3


def test_a_stop_leaves_the_jobs_of_a_batch_that_will_be_run_again(
    daemon: Daemon, readers: list[QueuesStreamReader], queue: str
) -> None:
    fill(daemon, queue, 3)
    reader = reader_of(daemon, readers, queue)
    end = next_of(reader, reader.initialOffset())
    reader.partitions(reader.initialOffset(), end)
    reader.stop()
    assert daemon.call("QLEN", queue) == 0


def test_a_new_driver_runs_the_same_jobs_again_though_they_are_queued_anew(
    daemon: Daemon, readers: list[QueuesStreamReader], queue: str
) -> None:
    fill(daemon, queue, 5, "RETRY", 3)
    old = reader_of(daemon, readers, queue)
    start = old.initialOffset()
    end = next_of(old, start)
    before = rows_of(old, start, end)
    kill(old)
    wait_until(lambda: daemon.call("QLEN", queue) == 5, "leases that have run out")
    fill(daemon, queue, 2)
    new = reader_of(daemon, readers, queue, minPartitions="2")
    again = rows_of(new, start, end)
    assert [(row["id"], row["body"], row["ctime"]) for row in again] == [
        (row["id"], row["body"], row["ctime"]) for row in before
    ]
    assert daemon.call("QLEN", queue) == 2, "the jobs of the batch are leased again"
    following = next_of(new, end)
    assert len(following["ids"].split()) == 2, "none of them is in the next batch, too"
    assert not set(following["ids"].split()) & set(end["ids"].split())


def test_a_job_of_a_checkpoint_that_is_gone_is_an_error_or_left_out(
    daemon: Daemon, readers: list[QueuesStreamReader], queue: str
) -> None:
    ids = fill(daemon, queue, 3)
    old = reader_of(daemon, readers, queue)
    start = old.initialOffset()
    end = next_of(old, start)
    kill(old)
    daemon.call("ACKJOB", ids[1])
    with pytest.raises(JobsGone, match=f"1 jobs of a batch .* the first is {ids[1]}.*failOnDataLoss = false"):
        rows_of(reader_of(daemon, readers, queue), start, end)
    lenient = reader_of(daemon, readers, queue, failOnDataLoss="false")
    assert [row["id"] for row in rows_of(lenient, start, end)] == [ids[0], ids[2]]


def test_a_lease_is_renewed_for_as_long_as_the_batch_takes(
    daemon: Daemon, readers: list[QueuesStreamReader], queue: str
) -> None:
    [job_id] = fill(daemon, queue, 1, "RETRY", 3)
    [other] = fill(daemon, f"{queue}-other", 1, "RETRY", 3)
    daemon.call("GETJOB", "FROM", f"{queue}-other")
    reader = reader_of(daemon, readers, queue)
    end = next_of(reader, reader.initialOffset())
    # Twice the time after which a job comes back that nobody says anything about.
    for _ in range(2):
        wait_until(lambda: state(daemon, other) == "queued", "a lease that nobody renews runs out")
        daemon.call("GETJOB", "FROM", f"{queue}-other")
    [row] = rows_of(reader, reader.initialOffset(), end)
    assert row["id"] == job_id
    shown = daemon.call("SHOW", job_id)
    assert (shown[shown.index("state") + 1], shown[shown.index("additional-deliveries") + 1]) == ("active", 0)


def test_available_now_takes_what_waits_and_no_more(
    daemon: Daemon, readers: list[QueuesStreamReader], queue: str
) -> None:
    fill(daemon, queue, 5)
    reader = reader_of(daemon, readers, queue)
    reader.prepareForTriggerAvailableNow()
    fill(daemon, queue, 4)
    first = next_of(reader, reader.initialOffset(), 3)
    second = next_of(reader, first, 3)
    assert (len(first["ids"].split()), len(second["ids"].split())) == (3, 2)
    assert next_of(reader, second, 3) == second
    assert daemon.call("QLEN", queue) == 4


def test_available_now_waits_for_a_job_that_is_on_its_way_to_another_node(
    daemon: Daemon, readers: list[QueuesStreamReader], queue: str
) -> None:
    ids = fill(daemon, queue, 3)
    reader = reader_of(daemon, readers, queue)
    reader.prepareForTriggerAvailableNow()
    daemon.call("DEQUEUE", ids[1])
    first = next_of(reader, reader.initialOffset())
    assert first["ids"].split() == [ids[0], ids[2]]
    arrival = threading.Timer(0.2, daemon.call, ("ENQUEUE", ids[1]))
    arrival.start()
    second = next_of(reader, first)
    arrival.join(LIMIT)
    assert second["ids"] == ids[1]


def test_all_available_is_what_waits_whatever_the_limit(
    daemon: Daemon, readers: list[QueuesStreamReader], queue: str
) -> None:
    fill(daemon, queue, 12)
    reader = reader_of(daemon, readers, queue, maxJobsPerTrigger="5")
    assert reader.getDefaultReadLimit() == ReadMaxRows(5)
    assert len(reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["ids"].split()) == 12


def test_bytes_are_a_limit_too(daemon: Daemon, readers: list[QueuesStreamReader], queue: str) -> None:
    for _ in range(6):
        daemon.call("ADDJOB", queue, "x" * 600_000, 0)
    reader = reader_of(daemon, readers, queue, maxBytesPerTrigger="1000000")
    taken = len(next_of(reader, reader.initialOffset())["ids"].split())
    assert 2 <= taken < 6


def test_a_job_that_is_delivered_at_most_once_is_in_its_batch(
    daemon: Daemon, readers: list[QueuesStreamReader], queue: str
) -> None:
    fill(daemon, queue, 1, "RETRY", 0, "REPLICATE", 1)
    reader = reader_of(daemon, readers, queue)
    end = next_of(reader, reader.initialOffset())
    [row] = rows_of(reader, reader.initialOffset(), end)
    assert (row["body"], row["id"]) == (b"0000", end["ids"])


def test_the_other_nodes_renew_and_end_what_one_had_leased_that_is_away(
    trio: Trio, readers: list[QueuesStreamReader], queue: str
) -> None:
    ids = [str(trio[0].call("ADDJOB", queue, number, 5_000, "REPLICATE", 2, "RETRY", 3)) for number in range(3)]
    reader = reader_of(trio[0], readers, queue, address=addresses(trio.all()))
    start = reader.initialOffset()
    end = next_of(reader, start)
    [lease] = reader._leases.values()
    assert [node.address[1] for node in lease.ids] == [trio[0].port]
    reader.partitions(start, end)
    trio.kill(0)
    # Nobody else renews this one, which comes back after as long as the others would.
    other = str(trio[1].call("ADDJOB", f"{queue}-other", "x", 5_000, "REPLICATE", 1, "RETRY", 3))
    for _ in range(2):
        assert trio[1].call("GETJOB", "TIMEOUT", 60_000, "FROM", f"{queue}-other")[0][1] == other
    assert [node.call("QLEN", queue) for node in (trio[1], trio[2])] == [0, 0]
    assert next_of(reader, end) == end, "there is nothing more, though a node is away"
    states = {state(node, each) for node in (trio[1], trio[2]) for each in ids}
    assert states <= {None, "acked"}
    trio.restart(0)
    wait_until(lambda: {state(trio[0], each) for each in ids} <= {None, "acked"}, "it has heard what is done")


class Told:
    """A connection to a node that says what a test wants of jobs, and notes what it is told."""

    def __init__(self, **states: str) -> None:
        self.states = {id_.encode(): word.encode() for id_, word in states.items()}
        self.acknowledged: list[bytes] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def ask_all(self, commands: Sequence[Any]) -> list[Any]:
        return [self.shown(id_) for _, id_ in commands]

    def ask(self, words: Sequence[bytes]) -> None:
        assert words[0] == b"ACKJOB"
        self.acknowledged += words[1:]

    def tell(self, command: bytes, ids: Sequence[bytes]) -> None:
        self.ask([command, *ids])

    def shown(self, id_: bytes) -> list[Any] | None:
        if id_ not in self.states:
            return None
        names = {"id": id_, "queue": b"q", "state": self.states[id_], "body": b"body", "ctime": 1_000, "retry": 10}
        names |= {"nacks": 0, "additional-deliveries": 1}
        return [word for name, value in names.items() for word in (name.encode(), value)]


def given(*ids: str) -> list[list[Any]]:
    """What GETJOB answers of jobs that were queued twice."""
    more = [b"nacks", 0, b"additional-deliveries", 1, b"headers", [], b"attempt", 2]
    return [[b"q", id_.encode(), b"body", *more] for id_ in ids]


def nodes_that_tell(monkeypatch: pytest.MonkeyPatch, *links: Told) -> list[NodeAt]:
    places = {("node", number): link for number, link in enumerate(links)}
    for module in (connector_nodes, connector_stream):
        monkeypatch.setattr(module, "NodeLink", lambda address, _: places[address])
    return [NodeAt(str(number) * 40, address) for number, address in enumerate(places)]


def test_a_job_that_two_nodes_hand_out_is_one_row_and_leased_on_both() -> None:
    reader, lease = (
        QueuesStreamReader(read_options({"address": HOST, "queues": "q"}, ConnectorUse.STREAM)),
        BatchLease(),
    )
    first, second = NodeAt("1" * 40, (HOST, 1)), NodeAt("2" * 40, (HOST, 2))
    reader._take(first, reader._look_at(cast(Any, Told(a="active", b="active")), given("a", "b")), lease)
    reader._take(second, reader._look_at(cast(Any, Told(b="active", c="active")), given("b", "c")), lease)
    assert lease.order == [b"a", b"b", b"c"]
    assert lease.ids == {first: [b"a", b"b"], second: [b"b", b"c"]}


def test_a_job_that_was_done_is_in_no_second_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, lease = (
        QueuesStreamReader(read_options({"address": HOST, "queues": "q"}, ConnectorUse.STREAM)),
        BatchLease(),
    )
    # Of `a` this driver knows, of `b` the other node, of `c` the same one, and `d` is gone; `e` is to be done.
    here, there = Told(a="active", b="active", c="acked", e="active"), Told(b="acked", e="active")
    nodes = nodes_that_tell(monkeypatch, here, there)
    reader._note_done([b"a"])
    reader._take(nodes[0], reader._look_at(cast(Any, here), given("a", "b", "c", "d", "e")), lease)
    reader._leave_out(lease, nodes)
    assert lease.order == [b"e"]
    assert lease.ids == {nodes[0]: [b"e"]}
    assert here.acknowledged == [b"a", b"b"]


def test_the_last_jobs_that_are_done_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector_stream, "DONE_KEPT", 3)
    reader = QueuesStreamReader(read_options({"address": HOST, "queues": "q"}, ConnectorUse.STREAM))
    reader._note_done([b"1", b"2"])
    reader._note_done([b"3", b"4"])
    assert list(reader._done) == [b"2", b"3", b"4"]


def test_a_batch_that_is_run_again_waits_for_a_node_that_has_its_jobs(
    trio: Trio, readers: list[QueuesStreamReader], queue: str
) -> None:
    trio[0].call("ADDJOB", queue, "x", 0, "REPLICATE", 1)
    options = {"address": addresses(trio.all()), "failOnDataLoss": "false", "connectTimeout": "1"}
    old = reader_of(trio[0], readers, queue, **options)
    start = old.initialOffset()
    end = next_of(old, start)
    kill(old)
    new = reader_of(trio[0], readers, queue, **options)
    parts = new.partitions(start, end)
    trio.kill(0)
    with pytest.raises(Unreachable, match="1 jobs of a batch that is run again are on no node that answers"):
        list(new.read(parts[0]))
    trio.restart(0)
    assert [row["body"] for part in parts for batch in new.read(part) for row in batch.to_pylist()] == [b"x"]


@pytest.mark.parametrize("queues", ["mail-*", "a,b?"])
def test_a_stream_has_no_patterns(queues: str) -> None:
    source = DisquedDataSource({"address": HOST, "queues": queues})
    with pytest.raises(ValueError, match="is a pattern"):
        source.streamReader(schema=source.schema())
