"""What a node counts, writes down and tells of the events that its consumers have, and what may not happen twice."""

from collections.abc import Iterator
from typing import Any

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.groups import Entry, PendingEntry
from disqued.core.model.job import ACTIVE
from disqued.core.model.messages import DELIVERED, FACTS, SETACK
from disqued.core.model.outbox import UNIT_DONE, UNIT_LEASED
from disqued.core.model.queues import Queue
from disqued.core.streams import pending
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import Server
from tests.core_fixtures import check as check_node
from tests.unit.commands.test_streams import Bench, counts
from tests.unit.core.streams.test_readers import add, answer, check, figures, get


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    check_node(made)


def queue_of(server: Server, name: bytes = b"q") -> Queue:
    return server.state.queues.by_name[name]


def unit_of(server: Server, event_id: bytes, group: bytes = b"g") -> PendingEntry:
    """What a group has of an event."""
    event = server.job(event_id)
    assert isinstance(event, Entry)
    assert event.stream is not None
    return event.stream.groups[group].units[event]


def gone(server: Server, client: str, *handed: bytes) -> None:
    """End a connection that has not heard of what was handed to it."""
    server.node.begin()
    server.node.gone(client, list(handed))
    server.settle()


# What is counted.


def test_what_consumers_do_is_counted(bench: Bench) -> None:
    counters = bench.state.counters
    event_id = bench.event("x", "q", 60, "DELAY", 1)
    assert (counters.queued, queue_of(bench).jobs_in) == (0, 0)
    bench.advance(1_700)
    bench.take("g", "EX", 2)
    queue = queue_of(bench)
    assert (counters.queued, queue.jobs_in, queue.jobs_out) == (1, 1, 1)
    # It has waited since its delay was over.
    assert (counters.waiting_ms, counters.waiting_buckets[(700).bit_length()]) == (700, 1)
    assert (counters.redelivered, counters.requeued, queue.requeued) == (0, 0, 0)
    bench.advance(2_001)
    assert (counters.redelivered, counters.requeued, queue.requeued) == (0, 1, 1)
    bench.take("g", "EX", 2)
    assert (counters.redelivered, counters.nacked, queue.jobs_out) == (1, 0, 2)
    assert bench("QGROUP", "RETURN", "q", "g", event_id) == 1
    assert (counters.nacked, counters.requeued, queue.requeued) == (1, 2, 2)
    assert unit_of(bench, event_id).nacks == 1
    bench.take("g", "EX", 2)
    bench.advance(300)
    unit = unit_of(bench, event_id)
    assert bench.ack(event_id) == 1
    assert not unit.awake_at
    assert (counters.flight_ms, counters.flight_buckets[(300).bit_length()], queue.acked) == (300, 1, 1)
    assert counters.redelivered == 2


def test_a_wall_clock_that_goes_back_lets_nothing_have_waited_for_less_than_no_time(bench: Bench) -> None:
    bench.event()
    bench.clock.jump_wall(-5_000)
    bench.take()
    assert bench.state.counters.waiting_ms == 0


def test_a_queue_is_in_use_when_events_come_go_and_come_back(bench: Bench) -> None:
    bench.event("first")
    queue = queue_of(bench)
    bench.advance(1_000)
    bench.event("second")
    assert queue.accessed_at == bench.state.now
    bench.advance(1_000)
    bench.take("g", "EX", 1)
    assert queue.accessed_at == bench.state.now
    bench.advance(1_001)
    assert queue.accessed_at == bench.state.now


# What is written down, and told.


def holder_of(server: Server) -> tuple[Any, ...]:
    """The last record of who has what: scope, deliveries, until when."""
    record = [record for record in server.journal if record[0] == UNIT_LEASED][-1]
    return record[2:]


def test_the_journal_hears_that_nobody_has_an_event_any_more(bench: Bench) -> None:
    event_id = bench.event()
    bench.take()
    bench("QGROUP", "RETURN", "q", "g", event_id)
    assert holder_of(bench) == (b"0:g", 1, b"0")
    bench("WORKER", "START", "ID", "w", client="worker")
    bench("QGET", "q", "g", "EX", 5, "WORKER", "w", client="worker")
    assert holder_of(bench)[1:] == (2, b"%d w" % (bench.clock.wall() + 5_000))
    bench("WORKER", "STOP", "w", client="operator")
    assert holder_of(bench) == (b"0:g", 2, b"0")


@pytest.mark.parametrize(
    ("holder", "read"),
    [
        (b"123", (123, b"")), (b"0", (0, b"")), (b"123 a worker", (123, b"a worker")),
        (b"1" * 20, (int("1" * 20), b"")), (b"1" * 21, None), (b"", None), (b"x", None), (b"-1", None), (b" w", None),
    ],
)  # fmt: skip
def test_who_has_a_unit_is_read_as_it_is_written(holder: bytes, read: tuple[int, bytes] | None) -> None:
    assert pending.read_holder(holder) == read


def test_an_event_that_was_never_seen_is_written_down_as_that(bench: Bench) -> None:
    event_id = bench.event()
    bench.take("g", "EX", 5)
    gone(bench, "client", event_id + b":0:g")
    assert holder_of(bench) == (b"0:g", 0, b"0")
    assert counts(bench) == (0, 0, 0, 1)
    assert bench.state.counters.returned == 1


def test_without_a_journal_nothing_is_written_down(bench: Bench) -> None:
    bench.event()
    before = len(bench.journal)
    bench.state.journaling = False
    event_id = bench.event("y")
    bench("QGET", "q", "g", "COUNT", 2, "EX", 5)
    bench("QGROUP", "RETURN", "q", "g", event_id)
    bench.ack(bench.take("g", "EX", 5)[0])  # type: ignore[index]
    bench("QGROUP", "START", "q", "g", "FIRST")
    bench("QFLUSH", "q")
    assert len(bench.journal) == before
    bench.advance(10)
    bench.journal.clear()


def test_other_holders_are_told_for_how_long_a_consumer_has_an_event_and_that_it_has_it_no_more() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a, copies=2)
    get(a, "EX", 30)
    cluster.advance(10_000)
    cluster.cut(a, b)
    cluster.heal(a, b)
    cluster.advance(1)
    ((fact,),) = (flight.message[2] for flight in cluster.sent(FACTS, a))
    assert tuple(fact.leases[0]) == (b"0:g", 20_000, 10_000, 1)
    assert answer(a, "QGROUP", "RETURN", "q", "g", event_id) == 1
    assert [flight.message[1:] for flight in cluster.sent(DELIVERED)] == [
        (event_id, b"0:g", 30_000, 0, 1), (event_id, b"0:g", 0, 0, 1),
    ]  # fmt: skip
    cluster.cut(a, b)
    cluster.flights.clear()
    cluster.heal(a, b)
    cluster.advance(1)
    ((fact,),) = (flight.message[2] for flight in cluster.sent(FACTS, a))
    assert tuple(fact.leases[0]) == (b"0:g", 0, 0, 1)


def test_a_lease_is_told_until_its_last_millisecond_is_over() -> None:
    cluster = Cluster(2)
    a, b = cluster
    add(a, copies=2)
    get(a, "EX", 30)
    cluster.advance(30_000)
    cluster.cut(a, b)
    cluster.heal(a, b)
    cluster.advance(1)
    ((fact,),) = (flight.message[2] for flight in cluster.sent(FACTS, a))
    assert fact.leases[0].left_ms == 1
    # What the other one remembers of it ends a little later.
    cluster.advance(5)
    assert figures(a)[b"redo"] == 1


def test_what_a_worker_gives_back_by_its_end_is_told_to_the_other_holders() -> None:
    cluster = Cluster(2)
    a, b = cluster
    add(a, copies=2)
    a("WORKER", "START", "ID", "w", "TTL", 60_000, client="worker")
    get(a, "EX", 30, "WORKER", "w", client="worker")
    assert figures(b)[b"inprogress"] == 1
    a("WORKER", "STOP", "w", client="operator")
    assert figures(b)[b"redo"] == 1
    check(cluster)


# What ends.


def test_of_a_flushed_log_a_worker_gives_nothing_back(bench: Bench) -> None:
    bench("WORKER", "START", "ID", "w", "TTL", 600_000, client="worker")
    bench.event()
    bench("QGET", "q", "g", "EX", 3_000, "WORKER", "w", client="worker")
    bench("QFLUSH", "q")
    worker = bench.node.workers.by_id[b"w"]
    assert bench("WORKER", "STOP", "w", client="operator") == 0
    assert worker.returned == 0
    bench.advance(10)
    assert bench.take() is None


def test_an_event_whose_time_is_over_cannot_be_acknowledged_in_the_same_millisecond(bench: Bench) -> None:
    event_id = bench.event("x", "q", 5)
    bench.take("g", "EX", 60)
    bench.clock.advance(5_000)
    assert bench.ack(event_id) == 0


def test_an_event_of_another_queue_is_not_acknowledged_on_one_that_had_work_alone(bench: Bench) -> None:
    bench("ACKJOB", bench.add("work"))
    event_id = bench.event()
    bench.take()
    assert bench.ack(event_id, queue="work") == 0
    assert bench.ack(event_id) == 1


# What other nodes say, in whatever order.


class Pair:
    """Two nodes that hold an event, of which the second hears what the test says."""

    def __init__(self, *words: str, copies: int = 2, size: int = 2) -> None:
        self.cluster = Cluster(size)
        self.a, self.b, *_ = self.cluster
        self.event_id = add(self.a, *words, copies=copies)
        self.cluster.flights.clear()

    @property
    def event(self) -> Entry:
        event = self.b.job(self.event_id)
        assert isinstance(event, Entry)
        return event

    def say_done(self, sender: Member, *holders: Member, scope: bytes = b"0:g") -> None:
        ids = frozenset(holder.id for holder in holders)
        sender.say(self.b, (SETACK, self.event_id, scope, False, ids))

    def say_lease(self, left_ms: int, deliveries: int, scope: bytes = b"0:g", *, elapsed_ms: int = 0) -> None:
        self.a.say(self.b, (DELIVERED, self.event_id, scope, left_ms, elapsed_ms, deliveries))

    @property
    def facts_written(self) -> list[bytes]:
        """Scopes that the journal of the second heard to be done."""
        return [record[2] for record in self.b.journal if record[0] == UNIT_DONE]

    def lease(self) -> tuple[int, bool, int]:
        """Deliveries, whether somebody has it, and for how long."""
        unit = unit_of(self.b, self.event_id)
        left_ms = unit.requeue_at - self.b.state.now if unit.requeue_at else 0
        assert bool(unit.requeue_at) == bool(unit.awake_at) == (unit.state == ACTIVE)
        check(self.cluster)
        return unit.deliveries, unit.state == ACTIVE, left_ms


def test_a_fact_that_is_heard_twice_is_written_and_passed_on_once() -> None:
    """Holders that the one who says so does not know hear it from this node."""
    pair = Pair(copies=4, size=4)
    a, b, c, d = pair.cluster
    for _ in range(2):
        pair.say_done(c, b, c)
    assert pair.facts_written == [b"0:g"]
    passed = pair.cluster.sent(SETACK, b)
    assert [flight.receiver for flight in passed] == [a, d]
    assert {flight.message[4] for flight in passed} == {frozenset({a.id, b.id, c.id, d.id})}
    assert figures(a)[b"done"] == figures(d)[b"done"] == 1


def test_a_fact_is_not_passed_back_to_the_one_who_told_it() -> None:
    pair = Pair(copies=3, size=3)
    a, b, c = pair.cluster
    pair.say_done(c, b)
    assert [flight.receiver for flight in pair.cluster.sent(SETACK, b)] == [a]


def test_a_fact_that_all_holders_know_is_passed_on_to_nobody() -> None:
    pair = Pair(copies=3, size=3)
    a, b, c = pair.cluster
    pair.say_done(a, a, b, c)
    assert pair.event.done == [b"0:g"]
    assert not pair.cluster.sent(SETACK, b)


@pytest.mark.parametrize("scope", [b"nonsense", b"01:g"])
def test_facts_and_leases_of_what_is_no_group_change_nothing(scope: bytes) -> None:
    pair = Pair()
    pair.say_done(pair.a, scope=scope)
    pair.say_lease(1_000, 1, scope)
    assert not pair.event.done
    assert pair.event.stream is not None
    assert not pair.event.stream.groups


def test_a_fact_of_an_event_whose_delay_is_not_over_holds_when_it_is_and_a_lease_is_nothing() -> None:
    pair = Pair("DELAY", "5")
    pair.say_lease(1_000, 1)
    pair.say_done(pair.a, pair.a, pair.b)
    assert pair.facts_written == [b"0:g"]
    pair.cluster.advance(5_000)
    assert figures(pair.b)[b"done"] == 1
    check(pair.cluster)


def test_what_the_group_of_an_older_epoch_has_or_did_is_nothing_to_the_new_one() -> None:
    pair = Pair()
    pair.b("QGROUP", "FORGET", "q", "g")
    pair.say_lease(1_000, 1)
    pair.say_done(pair.a, pair.a, pair.b)
    assert pair.event.done == [b"0:g"]
    assert pair.facts_written == [b"0:g"]
    assert figures(pair.b)[b"available"] == 1
    check(pair.cluster)


def test_of_what_is_said_of_a_lease_the_last_delivery_counts_then_its_end_then_the_longest_time() -> None:
    pair = Pair()
    pair.say_lease(5_000, 2)
    assert pair.lease() == (2, True, 5_000)
    for left_ms, deliveries in ((9_000, 1), (0, 1), (4_000, 2), (5_000, 2)):
        pair.say_lease(left_ms, deliveries)
        assert pair.lease() == (2, True, 5_000)
    pair.say_lease(6_000, 2)
    assert pair.lease() == (2, True, 6_000)
    pair.say_lease(0, 2)
    assert pair.lease() == (2, False, 0)
    pair.say_lease(9_000, 2)
    assert pair.lease() == (2, False, 0)
    for deliveries in (3, 4):
        pair.say_lease(1_000, deliveries)
        assert pair.lease() == (deliveries, True, 1_000)


def test_a_lease_of_another_node_is_written_down_with_all_of_its_time() -> None:
    pair = Pair()
    pair.say_lease(5_000, 3, elapsed_ms=2_000)
    assert holder_of(pair.b) == (b"0:g", 3, b"%d" % (pair.b.state.wall + 5_000))
    assert unit_of(pair.b, pair.event_id).lease_ms == 7_000
    assert unit_of(pair.b, pair.event_id).granter == pair.a.id
    # The same as another one remembers it.
    pair.say_lease(5_010, 3, elapsed_ms=2_000)
    assert unit_of(pair.b, pair.event_id).lease_ms == 7_010
    pair.say_lease(0, 3)
    assert holder_of(pair.b) == (b"0:g", 3, b"0")


def test_a_group_is_in_the_epoch_in_which_others_say_that_it_has_something() -> None:
    pair = Pair()
    get(pair.b, "EX", 600)
    pair.say_lease(5_000, 1, b"2:g")
    assert unit_of(pair.b, pair.event_id).scope == b"2:g"
    assert figures(pair.b)[b"inprogress"] == 1
    pair.say_lease(5_000, 1, b"1:g")
    assert unit_of(pair.b, pair.event_id).scope == b"2:g"


def test_who_waits_gets_at_once_what_was_given_back_by_the_word_of_another_node() -> None:
    pair = Pair()
    a, b = pair.cluster
    get(a, "EX", 600)
    assert a("QGET", "q", "g", "BLOCK", 600, client="anna") is BLOCKED
    b.say(a, (DELIVERED, pair.event_id, b"0:g", 0, 0, 1))
    assert a.answers["anna"] == [[pair.event_id, b"x"]]
    assert "anna" not in b.answers


def test_who_says_that_somebody_has_what_is_done_hears_so() -> None:
    pair = Pair(copies=3, size=3)
    a, b, c = pair.cluster
    pair.say_done(c, a, b, c)
    pair.cluster.flights.clear()
    pair.say_lease(5_000, 1)
    assert [flight.message for flight in pair.cluster.sent(SETACK, b, a)] == [
        (SETACK, pair.event_id, b"0:g", False, frozenset({a.id, b.id, c.id}))
    ]
    assert figures(b)[b"inprogress"] == 0


def test_who_says_that_somebody_has_what_the_group_began_behind_hears_nothing() -> None:
    pair = Pair()
    pair.b("QGROUP", "START", "q", "g", "NOW")
    pair.cluster.flights.clear()
    pair.say_lease(5_000, 1, b"1:g")
    assert not pair.cluster.sent(SETACK, pair.b)
    assert figures(pair.b)[b"done"] == 1
