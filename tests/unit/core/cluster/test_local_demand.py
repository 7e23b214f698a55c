"""Asking other nodes for jobs: whom, when, for how many, and until when."""

from collections import Counter
from itertools import pairwise

import pytest

from disqued.core.cluster import local_demand
from disqued.core.model.messages import JOBS_PER_MESSAGE, NEEDJOBS, POLLJOBS
from tests.cluster_fixtures import Cluster, Member

SECOND = 1_000
MINUTE = 60 * SECOND


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3)


def asked_at(cluster: Cluster, sender: Member, receiver: Member, until: int) -> list[int]:
    """Seconds after which a NEEDJOBS left, from now on."""
    times = []
    for second in range(until + 1):
        times += [second] * len(cluster.sent(NEEDJOBS, sender, receiver))
        cluster.flights.clear()
        cluster.advance(SECOND)
    return times


def test_a_consumer_that_finds_nothing_asks_every_node(cluster: Cluster) -> None:
    a, b, c = cluster
    b.wait("bob")
    assert [(flight.receiver, flight.message) for flight in cluster.flights] == [
        (a, (NEEDJOBS, b"q", 1)),
        (c, (NEEDJOBS, b"q", 1)),
    ]


@pytest.mark.parametrize(
    ("add", "take"),
    [
        (("ADDJOB", "q", "x", 0, "REPLICATE", 1), ("GETJOB", "NOHANG", "FROM", "q")),
        (("WQ.ENQUEUE", "q", "REPLICATE", 1, "TASKS", "x"), ("WQ.DEQUEUE", "q")),
        (("RQ.PUSH", "q", "x"), ("RQ.POP", "q")),
        (("QLPUSH", "q", "one", "x"), ("QRPOP", "q")),
    ],
)
def test_who_takes_the_last_job_asks_those_that_gave_before(
    cluster: Cluster, add: tuple[str, ...], take: tuple[str, ...]
) -> None:
    a, b, _ = cluster
    b("WORKER", "START", "ID", "w")
    b("WQ.WORK", "q")
    a(*add)
    assert not b(*take)
    cluster.advance(100)
    assert b("QLEN", "q") == 1
    cluster.flights.clear()
    assert b(*take)
    assert cluster.sent(NEEDJOBS, b, a) or cluster.sent(POLLJOBS, b, a)


@pytest.mark.parametrize("why", ["nothing came from elsewhere", "it came long ago", "this node is leaving"])
def test_who_takes_the_last_job_asks_nobody_without_a_reason(cluster: Cluster, why: str) -> None:
    a, b, _ = cluster
    if why == "nothing came from elsewhere":
        b("ADDJOB", "q", "x", 0, "REPLICATE", 1)
    else:
        a("ADDJOB", "q", "x", 0, "REPLICATE", 1)
        assert not b("GETJOB", "NOHANG", "FROM", "q")
        cluster.advance(100)
        assert b("QLEN", "q") == 1
        if why == "it came long ago":
            cluster.advance(60_000)
            b("ADDJOB", "q", "y", 0, "REPLICATE", 1)
        else:
            b.state.leaving = True
    cluster.flights.clear()
    while b("QLEN", "q"):
        b.node.delivery.fetch(list(b.state.queues.by_name.values()), 1)
        b.node.federation.local_demand.emptied(b.state.queues.by_name[b"q"])
    b.settle()
    assert not cluster.sent(NEEDJOBS, b)
    assert not cluster.sent(POLLJOBS, b)


def test_one_that_does_not_wait_asks_as_well_and_finds_the_job_when_it_comes_again(cluster: Cluster) -> None:
    a, b, _ = cluster
    a.add("q", "body", "REPLICATE", 1)
    assert b.bodies() == []
    assert b.bodies() == [b"body"]


def test_while_it_waits_all_are_asked_again_after_2_4_8_and_at_most_30_seconds(cluster: Cluster) -> None:
    a, b, _ = cluster
    b.wait("bob")
    assert asked_at(cluster, b, a, 125) == [0, 2, 6, 14, 30, 60, 90, 120]


def test_the_pause_between_two_broadcasts_stays_the_same_however_long_somebody_waits(cluster: Cluster) -> None:
    # Defect 10 of Disque 1.0-rc1: after nine minutes its back-off overflowed, and all were asked ten times a second.
    a, b, _ = cluster
    b.wait("bob")
    cluster.advance(20 * MINUTE)
    cluster.flights.clear()
    cluster.advance(10 * MINUTE)
    assert len(cluster.sent(NEEDJOBS, b, a)) == 20


def test_who_polls_all_the_time_asks_no_more_often_than_who_waits(cluster: Cluster) -> None:
    a, b, _ = cluster
    for _ in range(300):
        assert b.bodies() == []
        cluster.advance(100)
    assert len(cluster.sent(POLLJOBS, b, a)) == 4


def test_who_waits_comes_before_who_only_looks_and_may_come_again(cluster: Cluster) -> None:
    a, b, c = cluster
    assert b.bodies() == []
    c.wait("carl")
    a.add("q", "body", "REPLICATE", 1)
    assert c.answered("carl") == [b"body"]
    a.add("q", "another", "REPLICATE", 1)
    assert b("QLEN", "q") == 1


def test_who_looked_and_waits_now_is_heard_at_once(cluster: Cluster) -> None:
    a, b, c = cluster
    assert b.bodies() == c.bodies() == []
    c.wait("carl")
    assert cluster.sent(NEEDJOBS, c, a)
    a.add("q", "body", "REPLICATE", 1)
    assert c.answered("carl") == [b"body"]


def test_who_brought_jobs_is_asked_again_less_and_less_often_while_nothing_comes(cluster: Cluster) -> None:
    a, b, _ = cluster
    b.wait("bob")
    a.add("q", "body", "REPLICATE", 1)
    cluster.flights.clear()
    b.wait("bob")
    times = []
    for now in range(1, 1_500):
        cluster.advance(1)
        times += [now] * len(cluster.sent(NEEDJOBS, b, a))
        cluster.flights.clear()
    pauses = [later - earlier for earlier, later in pairwise(times)]
    assert pauses[-4:] == [50, 100, 200, 400]


def test_every_doubling_of_the_consumers_that_wait_is_told_at_once(cluster: Cluster) -> None:
    a, b, _ = cluster
    for number in range(150):
        b.wait(number)
    counts = [flight.message[2] for flight in cluster.sent(NEEDJOBS, b, a)]
    assert counts == [1, 2, 4, 8, 16, 32, 64]
    cluster.advance(2 * SECOND)
    assert cluster.sent(NEEDJOBS, b, a)[-1].message[2] == JOBS_PER_MESSAGE


@pytest.mark.parametrize("how", ["timeout", "disconnect"])
def test_when_the_last_consumer_has_gone_all_hear_so(cluster: Cluster, how: str) -> None:
    a, b, c = cluster
    b.wait("bob", timeout=5 * SECOND if how == "timeout" else 0)
    cluster.advance(4 * SECOND)
    cluster.flights.clear()
    if how == "timeout":
        cluster.advance(SECOND + 1)
    else:
        b.gone("bob")
        cluster.advance(1)
    assert [(flight.receiver, flight.message) for flight in cluster.flights] == [
        (a, (NEEDJOBS, b"q", 0)),
        (c, (NEEDJOBS, b"q", 0)),
    ]
    assert not a.state.demand.jobs


def test_two_seconds_after_somebody_asked_who_did_not_wait_all_hear_that_nothing_is_wanted(cluster: Cluster) -> None:
    a, b, _ = cluster
    assert b.bodies() == []
    cluster.advance(local_demand.LINGER_MS - 1)
    assert b"q" in a.state.demand.jobs
    cluster.advance(1)
    assert cluster.sent(NEEDJOBS, b, a)[-1].message[2] == 0
    assert not a.state.demand.jobs


def test_when_nobody_waits_nobody_is_asked_and_no_timer_is_left(cluster: Cluster) -> None:
    a, b, c = cluster
    for number in range(10):
        a.add("q", number, "REPLICATE", 1)
    b.wait("bob")
    assert c.bodies() == []
    b.gone("bob")
    cluster.advance(6 * SECOND)
    cluster.flights.clear()
    for member in cluster:
        for queue in member.state.queues.by_name.values():
            member.state.schedule.cancel(queue)
        for job in member.state.jobs:
            member.state.schedule.cancel(job)
        member.state.schedule.cancel(member.node.membership.detector)
    assert [member.node.deadline() for member in cluster] == [None, None, None]
    assert not cluster.flights


def test_a_flush_ends_what_was_asked_for(cluster: Cluster) -> None:
    a, b, _ = cluster
    b.wait("bob")
    b.node.begin()
    b.node.flush()
    b.settle()
    assert b.answers["bob"] == [None]
    cluster.flights.clear()
    b.wait("bob")
    assert asked_at(cluster, b, a, 7) == [0, 2, 6]


def test_a_node_whose_link_opens_is_asked_at_once(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.cut(a, b)
    a.add("q", "body", "REPLICATE", 1)
    b.wait("bob")
    cluster.advance(MINUTE)
    assert b.answered("bob") == []
    cluster.heal(a, b)
    cluster.advance(1)
    assert b.answered("bob") == [b"body"]


def test_a_node_alone_asks_nobody_and_keeps_no_timer() -> None:
    (a,) = Cluster(1)
    a.wait("anna")
    assert not a.node.federation.wants.size
    a.gone("anna")
    a.state.schedule.cancel(a.state.queues.by_name[b"q"])
    assert a.node.deadline() is None


def fed_by_all(size: int) -> tuple[Cluster, Member, list[Member]]:
    """A consumer that waits on the first node, and has got a job from each of the others."""
    cluster = Cluster(size)
    taker, *givers = cluster
    for giver in givers:
        taker.wait("tom")
        giver.add("q", giver.name, "REPLICATE", 1)
    assert taker.answered("tom") == [giver.name.encode() for giver in givers]
    return cluster, taker, givers


def test_a_consumer_that_many_nodes_feed_asks_few_of_them_for_each_job() -> None:
    cluster, taker, givers = fed_by_all(13)
    taker.wait("tom")
    for turn in range(60):
        cluster.flights.clear()
        givers[turn % len(givers)].add("q", turn, "REPLICATE", 1)
        taker.wait("tom")
        # Who has brought it, as it has been brought what it asked for; and some of those that remember.
        asked = [flight.receiver for flight in cluster.sent(NEEDJOBS, taker)]
        assert len(asked) <= 2 * (1 + local_demand.ASKED_AGAIN)
        assert givers[turn % len(givers)] in asked
        cluster.advance(1)


def test_all_that_bring_jobs_are_asked_in_turn_while_none_come() -> None:
    cluster, taker, givers = fed_by_all(13)
    taker.wait("tom")
    cluster.flights.clear()
    for _ in range(6):  # asked again after 25, 50, 100, 200, 400 and 800 ms
        cluster.advance(800)
    counts = Counter(flight.receiver.name for flight in cluster.sent(NEEDJOBS, taker))
    assert set(counts) == {giver.name for giver in givers}


def test_a_node_that_has_brought_a_job_brings_the_next_one_without_being_asked_by_a_broadcast() -> None:
    cluster, taker, givers = fed_by_all(13)
    cluster.advance(SECOND)
    for giver in givers:
        taker.wait("tom")
        giver.add("q", f"{giver.name} again", "REPLICATE", 1)
        assert taker.answered("tom")[-1] == f"{giver.name} again".encode()


def test_who_takes_the_last_job_asks_nobody_while_its_node_is_leaving(cluster: Cluster) -> None:
    a, b, _ = cluster
    a.add("q", 0, "REPLICATE", 1)
    b.wait("bob")
    cluster.advance(100)
    assert b.answered("bob") == [b"0"]
    b.add("q", "own", "REPLICATE", 1)
    b.state.leaving = True
    cluster.flights.clear()
    assert b.bodies() == [b"own"]
    assert not cluster.sent(NEEDJOBS, b) + cluster.sent(POLLJOBS, b)


def test_a_queue_to_which_nobody_brought_jobs_is_not_come_back_to_when_it_is_empty(cluster: Cluster) -> None:
    a, _, _ = cluster
    a.add("q", "x", "REPLICATE", 1, "RETRY", 60)
    assert a.bodies() == [b"x"]
    assert not a.node.federation.local_demand._demands
