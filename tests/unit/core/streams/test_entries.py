"""What comes into a log, and which node hands it out."""

from collections.abc import Iterator

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.job import QUEUED
from disqued.core.model.messages import FACTS, REPLJOB
from tests.cluster_fixtures import Cluster
from tests.core_fixtures import check as check_node
from tests.unit.commands.test_streams import Bench
from tests.unit.core.streams.test_pending import queue_of, unit_of
from tests.unit.core.streams.test_readers import ack, add, check, figures, get, healed, isolated


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    check_node(made)


# What comes.


def test_copies_are_counted_where_they_are_handed_out() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a, copies=2)
    assert [(queue_of(member).jobs_in, member.state.counters.queued) for member in cluster] == [(1, 1), (0, 0)]
    get(a, "EX", 5)
    cluster.advance(5_001)
    assert [figures(member)[b"redo"] for member in cluster] == [1, 1]
    assert [member.state.counters.requeued for member in cluster] == [1, 0]
    assert unit_of(b, event_id).state == QUEUED


def test_an_event_whose_delay_is_over_is_not_to_be_queued_again(bench: Bench) -> None:
    event_id = bench.event("x", "q", 60, "DELAY", 1)
    bench.advance(1_000)
    assert bench.job(event_id).requeue_at == 0


def test_a_log_of_a_queue_that_had_work_has_a_length_limit_too(bench: Bench) -> None:
    bench("ACKJOB", bench.add("q"))
    bench.event("x", "q", 60, "MAXLEN", 1)
    assert bench.refusal("QADD", "q", 60, "x", "MAXLEN", 1).startswith("MAXLEN ")


def test_an_event_whose_copies_come_when_its_queue_was_flushed_is_gone() -> None:
    cluster = Cluster(2)
    a, b = cluster
    add(a)
    cluster.lose = lambda flight: flight.kind == REPLJOB
    assert a("QADD", "q", 600, "x", "REPLICATE", 2, client="producer") is BLOCKED
    a("QFLUSH", "q")
    cluster.lose = lambda flight: False
    cluster.advance(5_000)
    assert len(a.answers["producer"]) == 1
    assert [len(member.state.jobs) for member in cluster] == [0, 0]
    assert get(a) is get(b) is None
    check(cluster)


def test_events_whose_delay_is_not_over_are_flushed_with_the_others(bench: Bench) -> None:
    bench.event("x", "q", 60, "DELAY", 5)
    assert bench.refusal("ADDJOB", "q", "x", 0).startswith("WRONGTYPE ")
    bench("QFLUSH", "q")
    bench.advance(10)
    assert not len(bench.state.jobs)


def test_a_copy_whose_delay_is_not_over_is_no_event_yet_and_is_flushed_without_its_maker() -> None:
    cluster = Cluster(2)
    a, b = cluster
    add(a, "DELAY", 5, copies=2)
    event_id = add(a, "DELAY", 60, copies=2)
    assert [figures(member)[b"total"] for member in cluster] == [0, 0]
    cluster.advance(5_000)
    assert [figures(member)[b"total"] for member in cluster] == [1, 1]
    isolated(cluster, a)
    b("QFLUSH", "q")
    cluster.advance(10)
    assert not b.holds(event_id)


# Who hands out.


def test_what_has_come_back_is_handed_out_once_however_often_nodes_come_and_go() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a, copies=2)
    other = add(b, copies=2)
    get(a, "EX", 5)
    cluster.advance(5_001)
    for _ in range(3):
        a.node.acksets.standing_changed()
        cluster.advance(1)
    check(cluster)
    isolated(cluster, a)
    assert get(b, "EX", 5) is not None
    cluster.advance(5_001)
    healed(cluster, a)
    check(cluster)
    rows = [get(a, "EX", 600), get(a, "EX", 600)]
    assert {row[0] for row in rows} == {event_id, other}
    assert get(a) is get(b) is None


def test_who_hands_an_event_out_again_is_the_one_to_decide_of_it() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a, copies=2)
    isolated(cluster, a)
    get(b, "EX", 30)
    healed(cluster, a)
    assert unit_of(a, event_id).granter == b.id
    cluster.advance(30_001)
    assert get(a) == [event_id, b"x"]
    assert unit_of(a, event_id).granter == b""
    assert ack(a, event_id) == 1


def test_the_maker_of_an_event_is_not_asked_whether_it_hands_it_out_whenever_nodes_come_and_go() -> None:
    cluster = Cluster(2)
    a, b = cluster
    add(a, copies=2)
    cluster.flights.clear()
    b.node.acksets.standing_changed()
    cluster.advance(10)
    assert not cluster.sent(FACTS)


def test_a_holder_that_is_only_supposed_to_hand_out_is_asked_and_the_next_one_does_if_it_has_nothing() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    ids = [add(a, copies=3) for _ in range(8)]
    for event_id in ids:
        b.state.drop(b.job(event_id))
    isolated(cluster, a)
    cluster.advance(10)
    assert [get(c, "EX", 600)[0] for _ in ids] == ids
