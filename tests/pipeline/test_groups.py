"""Logs as a stream for a group, by the reader itself: no JVM, real daemons, and checkpoints as Spark keeps them."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from disqued.client.errors import ServerError
from disqued.pipeline.connector.groups import GroupStreamReader
from disqued.pipeline.connector.options import ConnectorUse, read_options
from disqued.pipeline.connector.rows import SCHEMA
from disqued.pipeline.connector.source import DisquedDataSource
from disqued.pipeline.connector.stream import JobsGone
from tests.integration.daemon import HOST, Daemon, wait_until
from tests.pipeline.readers import next_of, rows_of
from tests.pipeline.trio import Trio, addresses

NONE = {"seq": 0, "ids": {}}
Reader = Callable[..., GroupStreamReader]


@pytest.fixture
def reader_of(daemon: Daemon, queue: str) -> Iterator[Reader]:
    """Make readers of the queue for the group g; what they have is given back at the end."""
    made: list[GroupStreamReader] = []

    def make(**options: str) -> GroupStreamReader:
        given = {"address": f"{HOST}:{daemon.port}", "queues": queue, "group": "g", **options}
        made.append(GroupStreamReader(read_options(given, ConnectorUse.GROUP)))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


def bodies(rows: list[dict[str, Any]]) -> list[str]:
    return [row["body"].decode() for row in rows]


def fill(daemon: Daemon, queue: str, count: int, *, ttl: int = 900) -> list[str]:
    return [daemon.call("QADD", queue, ttl, f"{number:04}") for number in range(count)]


def figures(daemon: Daemon, queue: str, group: str = "g") -> tuple[int, int, int]:
    """Count what consumers of the group have, what is done, and what it can have."""
    [[_, [_, status]]] = daemon.call("QSTATUS", queue, "GROUPS", group)
    named = dict(zip(status[::2], status[1::2], strict=True))
    return named["inprogress"], named["done"], named["available"] + named["redo"]


def test_batches_follow_each_other_and_each_ends_the_one_before(daemon: Daemon, reader_of: Reader, queue: str) -> None:
    ids = fill(daemon, queue, 25)
    reader = reader_of(minPartitions="3")
    start = reader.initialOffset()
    first = next_of(reader, start, 20)
    assert first == {"seq": 1, "ids": {queue: " ".join(ids[:20])}}
    assert len(reader.partitions(start, first)) == 3
    rows = rows_of(reader, start, first)
    assert bodies(rows) == [f"{number:04}" for number in range(20)]
    assert [row["id"] for row in rows] == ids[:20]
    assert all(row["ctime"] <= row["attempt_ts"] and row["additional_deliveries"] == 0 for row in rows)
    assert figures(daemon, queue) == (20, 0, 5), "leased, and not done"
    second = next_of(reader, first)
    assert figures(daemon, queue) == (5, 20, 0)
    assert len(rows_of(reader, first, second)) == 5
    assert next_of(reader, second) == second, "there is nothing more, and the batch is done"
    reader.commit(second)
    assert figures(daemon, queue) == (0, 25, 0)
    assert reader.partitions(second, second) == []


def test_each_group_gets_every_event(daemon: Daemon, reader_of: Reader, queue: str) -> None:
    fill(daemon, queue, 3)
    for group in ("a", "b"):
        reader = reader_of(group=group)
        end = next_of(reader, NONE)
        assert bodies(rows_of(reader, NONE, end)) == ["0000", "0001", "0002"]
        reader.commit(end)
        assert figures(daemon, queue, group) == (0, 3, 0)


def test_a_stop_gives_back_what_is_in_no_batch_and_leaves_the_rest(
    daemon: Daemon, reader_of: Reader, queue: str
) -> None:
    fill(daemon, queue, 5)
    reader = reader_of()
    first = next_of(reader, NONE, 2)
    reader.partitions(NONE, first)
    next_of(reader, {"seq": 0, "ids": {}}, 2)
    reader._batches[3] = reader._batches.pop(1)  # the batch that is under way, beside one that was never written down
    next_of(reader, NONE, 1)
    reader.stop()
    assert figures(daemon, queue) == (2, 0, 3)


def test_a_new_driver_runs_the_same_events_again_and_is_done_with_them(
    daemon: Daemon, reader_of: Reader, queue: str
) -> None:
    fill(daemon, queue, 5)
    old = reader_of()
    end = next_of(old, NONE, 3)
    before = rows_of(old, NONE, end)
    old._batches.clear()  # it was killed
    new = reader_of(minPartitions="2")
    again = rows_of(new, NONE, end)
    assert [{**row, "attempt_ts": None} for row in before] == again
    last = next_of(new, end)
    assert figures(daemon, queue) == (2, 3, 0)
    assert bodies(rows_of(new, end, last)) == ["0003", "0004"]


def test_an_event_whose_lease_ran_out_during_its_batch_is_in_no_second_batch(
    daemon: Daemon, reader_of: Reader, queue: str
) -> None:
    fill(daemon, queue, 3)
    reader = reader_of(leaseTime="1")
    end = next_of(reader, NONE)
    assert len(rows_of(reader, NONE, end)) == 3
    wait_until(lambda: figures(daemon, queue) == (0, 0, 3), "leases that have run out")
    fill(daemon, queue, 1)
    later = next_of(reader, end)
    assert len(rows_of(reader, end, later)) == 1, "those of the batch that is done do not come again"
    assert figures(daemon, queue) == (1, 3, 0)
    assert not reader._overdue


def test_the_same_holds_for_a_driver_that_was_away_for_too_long(daemon: Daemon, reader_of: Reader, queue: str) -> None:
    fill(daemon, queue, 3)
    old = reader_of(leaseTime="1")
    end = next_of(old, NONE)
    rows_of(old, NONE, end)
    old._batches.clear()  # it was killed
    wait_until(lambda: figures(daemon, queue) == (0, 0, 3), "leases that have run out")
    new = reader_of()
    assert len(rows_of(new, NONE, end)) == 3
    assert next_of(new, end) == end
    assert figures(daemon, queue) == (0, 3, 0)


def test_another_consumer_of_the_group_may_have_an_event_whose_lease_ran_out(
    daemon: Daemon, reader_of: Reader, queue: str
) -> None:
    [event] = fill(daemon, queue, 1)
    reader = reader_of(leaseTime="1")
    end = next_of(reader, NONE)
    wait_until(lambda: figures(daemon, queue) == (0, 0, 1), "a lease that has run out")
    assert daemon.call("QGET", queue, "g")[0] == event
    reader.commit(end)
    assert figures(daemon, queue) == (0, 1, 0), "whoever has it now, the work is done"
    assert daemon.call("QACK", queue, "g", event) == 0


class Killed(Exception):
    """The driver was killed."""


def run_until_killed(
    reader: GroupStreamReader, log: list[dict[str, Any]], done: list[list[str]], moment: Callable[[str], None]
) -> None:
    """Run batches as Spark does, from its log of offsets and that of batches that are done, until nothing is left."""
    while True:
        if len(log) == len(done):
            start = log[-1] if log else NONE
            end = next_of(reader, start, 7)
            if end == start:
                return
            moment("leased")
            log.append(end)
            moment("written")
        rows = rows_of(reader, log[-2] if len(log) > 1 else NONE, log[-1])
        moment("run")
        done.append([row["id"] for row in rows])
        moment("done")


@pytest.mark.parametrize("seed", range(5))
def test_drivers_that_are_killed_at_any_moment_have_each_event_in_one_batch(
    daemon: Daemon, reader_of: Reader, queue: str, seed: int
) -> None:
    ids = fill(daemon, queue, 40)
    random = Random(seed)
    log: list[dict[str, Any]] = []
    done: list[list[str]] = []
    killed = Counter[str]()

    def moment(what: str) -> None:
        if random.random() < 0.3:
            killed[what] += 1
            raise Killed(what)

    is_over = False
    while not is_over:
        reader = reader_of(minPartitions="2")
        try:
            run_until_killed(reader, log, done, moment)
            is_over = True
        except Killed:
            written = {each for offset in log for each in offset["ids"][queue].split()}
            leased = {each.decode() for taken in reader._batches.values() for each in taken.named}
            lost = sorted(leased - written)
            reader._batches.clear()
            if lost:  # as when their time was over
                daemon.call("QGROUP", "RETURN", queue, "g", *lost)
    assert sorted(each for batch in done for each in batch) == sorted(ids)
    assert figures(daemon, queue) == (0, 40, 0)
    assert killed.total() >= 3


def test_events_that_are_gone_fail_a_batch_that_is_run_again_or_are_left_out(
    daemon: Daemon, reader_of: Reader, queue: str
) -> None:
    ids = fill(daemon, queue, 2)
    old = reader_of()
    end = next_of(old, NONE)
    old._batches.clear()
    daemon.call("DELJOB", ids[0])
    with pytest.raises(JobsGone, match="1 jobs of a batch that is run again are gone"):
        rows_of(reader_of(), NONE, end)
    assert bodies(rows_of(reader_of(failOnDataLoss="false"), NONE, end)) == ["0001"]


def test_a_group_that_is_new_begins_where_it_shall_and_one_that_is_known_goes_on(
    daemon: Daemon, reader_of: Reader, queue: str
) -> None:
    ids = fill(daemon, queue, 3)
    where = {"all": "earliest", "none": "latest", "one": ids[2]}
    readers = {group: reader_of(group=group, startingPosition=at) for group, at in where.items()}
    assert {reader.initialOffset() == NONE for reader in readers.values()} == {True}
    daemon.call("QADD", queue, 900, "new")
    got = {group: bodies(rows_of(each, NONE, next_of(each, NONE))) for group, each in readers.items()}
    assert got == {"all": ["0000", "0001", "0002", "new"], "none": ["new"], "one": ["0002", "new"]}
    daemon.call("QGET", queue, "known")
    again = reader_of(group="known", startingPosition="latest")
    again.initialOffset()
    assert len(rows_of(again, NONE, next_of(again, NONE))) == 3, "it had one, and goes on from there"
    nobody = "DI" + "0" * 44 + "SQ"
    with pytest.raises(ServerError, match=f"NOJOB .* No node has the event {nobody}"):
        reader_of(group="lost", startingPosition=nobody).initialOffset()


def test_available_now_takes_what_waits_and_no_more(daemon: Daemon, reader_of: Reader, queue: str) -> None:
    fill(daemon, queue, 4)
    reader = reader_of()
    reader.prepareForTriggerAvailableNow()
    first = next_of(reader, NONE, 3)
    fill(daemon, queue, 4)
    second = json.loads(json.dumps(reader.latestOffset(first, ReadAllAvailable())))
    assert len(second["ids"][queue].split()) == 1
    assert next_of(reader, second) == second
    assert figures(daemon, queue) == (0, 4, 4)


def test_a_batch_is_bounded_in_bytes(daemon: Daemon, reader_of: Reader, queue: str) -> None:
    for _ in range(3):
        daemon.call("QADD", queue, 900, "x" * 1_100_000)
    reader = reader_of(maxBytesPerTrigger="1000000")
    assert len(rows_of(reader, NONE, next_of(reader, NONE))) == 1


def test_events_of_all_nodes_come_once_and_are_done_though_a_node_is_away(
    trio: Trio, reader_of: Reader, queue: str
) -> None:
    copied = [trio[0].call("QADD", queue, 900, f"a{number}", "REPLICATE", 3) for number in range(3)]
    alone = trio[1].call("QADD", queue, 900, "b", "REPLICATE", 1)
    reader = reader_of(address=addresses(trio.all()))
    end = next_of(reader, NONE)
    assert sorted(end["ids"][queue].split()) == sorted([*copied, alone])
    rows = rows_of(reader, NONE, end)
    assert sorted(bodies(rows)) == ["a0", "a1", "a2", "b"]
    trio.kill(0)
    assert next_of(reader, end) == end, "there is nothing more, though a node is away"
    done = [figures(node, queue)[1] for node in (trio[1], trio[2])]
    assert done == [4, 3]
    again = reader_of(address=addresses(trio.all()))
    assert len(rows_of(again, NONE, end)) == 4, "a new driver finds them on the nodes that are there"


def test_a_queue_of_work_is_no_log(daemon: Daemon, reader_of: Reader, queue: str) -> None:
    daemon.call("ADDJOB", queue, "work", 0)
    with pytest.raises(ServerError, match="WRONGTYPE"):
        next_of(reader_of(), NONE)


def test_the_source_knows_a_group_by_its_name() -> None:
    given = {"address": "127.0.0.1:7711", "queues": "q", "group": "g"}
    source = DisquedDataSource(given)
    assert source.schema() == SCHEMA
    assert isinstance(source.streamReader(SCHEMA), GroupStreamReader)
    with pytest.raises(ValueError, match=r"the option group is for .* with group, not for spark.read;"):
        source.reader(SCHEMA)
    for more, said in (
        (
            {"leaseRenewInterval": "5"},
            "the option leaseRenewInterval is for spark.readStream, not for spark.readStream with",
        ),
        ({"group": ""}, "the option group cannot be ''; allowed: the name of a group"),
        ({"startingPosition": "now"}, "the option startingPosition cannot be 'now'; allowed: earliest, latest or"),
        ({"queues": "q*"}, "'q.' is a pattern, and a stream needs the names themselves"),
        ({"queues": "a,b", "startingPosition": "DI" + "0" * 44 + "SQ"}, "names an event; queues can then name its"),
    ):
        with pytest.raises(ValueError, match=said):
            DisquedDataSource(given | more).streamReader(SCHEMA)
