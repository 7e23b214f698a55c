"""Federation: giving, what must not wander, at most once while jobs move, and pause across nodes."""

from collections import Counter

import pytest

from disqued.core.cluster import federation
from disqued.core.model import demand
from disqued.core.model.job import ACTIVE, QUEUED
from disqued.core.model.memory import OVERDRAFT_PART
from disqued.core.model.messages import GOTACK, JOBS_PER_MESSAGE, NEEDJOBS, SETACK, YOURJOBS
from disqued.core.model.outbox import UNIT_DONE
from disqued.core.work.delivery import FETCHED_BYTES, OVER_AT_ONCE
from tests.cluster_fixtures import Cluster, Flight, Member
from tests.core_fixtures import MEGABYTE, in_journal

SECOND = 1_000
MINUTE = 60 * SECOND


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3)


def add_many(member: Member, count: int, *options: str | int) -> list[bytes]:
    """Jobs on that node alone: their bodies are their numbers."""
    return [member.add("q", number, "REPLICATE", 1, *options) for number in range(count)]


def jobs_of(flight: Flight) -> list[bytes]:
    """Bodies of the jobs of a YOURJOBS."""
    return [stored.body for stored in flight.data[1]]


# Giving.


def test_jobs_of_one_step_go_to_each_node_that_wants_some(cluster: Cluster) -> None:
    a, b, c = cluster
    b.wait("bob")
    c.wait("cat")
    a("WQ.ENQUEUE", "q", "REPLICATE", 1, "TASKS", "x", "y", "z")
    assert sorted(b.answered("bob") + c.answered("cat")) == [b"x", b"y"]
    assert a("QLEN", "q") == 1


def test_a_consumer_that_waits_elsewhere_has_a_new_job_after_one_message(cluster: Cluster) -> None:
    # Defect 11 of Disque 1.0-rc1: up to 30 seconds.
    a, b, _ = cluster
    b.wait("bob")
    cluster.advance(10 * MINUTE)
    cluster.flights.clear()
    a.add("q", "body", "REPLICATE", 1)
    assert b.answered("bob") == [b"body"]
    assert cluster.flights[0].kind == YOURJOBS


def test_a_job_that_is_queued_again_is_brought_as_well(cluster: Cluster) -> None:
    a, b, _ = cluster
    job = a.add("q", "body", "REPLICATE", 1, "RETRY", 60)
    assert a.bodies() == [b"body"]
    b.wait("bob")
    a("NACK", job)
    assert b.answered("bob") == [b"body"]


@pytest.mark.parametrize(
    ("there", "wanted", "given"),
    [(1, 1, 1), (1, 100, 1), (2, 1, 1), (5, 5, 2), (9, 5, 4), (10, 5, 5), (11, 5, 5), (300, 100, 100)],
)
def test_as_many_are_given_as_are_wanted_or_half_of_what_is_there(
    cluster: Cluster, there: int, wanted: int, given: int
) -> None:
    a, b, _ = cluster
    add_many(a, there)
    b.say(a, (NEEDJOBS, b"q", wanted))
    (flight,) = cluster.sent(YOURJOBS, a, b)
    assert jobs_of(flight) == [b"%d" % number for number in range(given)]
    assert a("QLEN", "q") == there - given
    assert b("QLEN", "q") == given


def test_a_node_that_asks_for_more_than_a_message_holds_gets_what_a_message_holds(cluster: Cluster) -> None:
    # Defect 5 of Disque 1.0-rc1: more than 100 ended the process.
    a, b, _ = cluster
    add_many(a, 1_000)
    a.node.begin()
    a.node.message(b.id, (NEEDJOBS, b"q", 1_000_000))
    a.settle()
    cluster.settle()
    assert len(jobs_of(cluster.sent(YOURJOBS)[0])) == JOBS_PER_MESSAGE


def test_of_large_jobs_fewer_go_at_a_time(cluster: Cluster) -> None:
    a, b, _ = cluster
    for _ in range(10):
        a.add("q", "x" * (FETCHED_BYTES // 2), "REPLICATE", 1)
    b.say(a, (NEEDJOBS, b"q", 5))
    assert len(jobs_of(cluster.sent(YOURJOBS)[0])) == 2


@pytest.mark.parametrize(("short", "jobs"), [(1, 2), (0, 1)])
def test_jobs_go_in_one_message_until_it_is_large(cluster: Cluster, short: int, jobs: int) -> None:
    a, b, _ = cluster
    for size in (FETCHED_BYTES - short, 1, 1, 1):
        a.add("q", "x" * size, "REPLICATE", 1)
    b.say(a, (NEEDJOBS, b"q", 2))
    assert len(jobs_of(cluster.sent(YOURJOBS)[0])) == jobs


def test_jobs_whose_time_is_over_are_dropped_and_not_given(cluster: Cluster) -> None:
    a, b, _ = cluster
    over = a.add("q", "over", "REPLICATE", 1, "TTL", 1)
    a.add("q", "good", "REPLICATE", 1)
    a.clock.advance(SECOND)  # and no tick
    b.say(a, (NEEDJOBS, b"q", 5))
    assert [jobs_of(flight) for flight in cluster.sent(YOURJOBS)] == [[b"good"]]
    assert not a.holds(over)
    assert over not in in_journal(a.journal)


def test_so_many_jobs_whose_time_is_over_are_dropped_before_others_have_their_turn(cluster: Cluster) -> None:
    a, b, _ = cluster
    add_many(a, OVER_AT_ONCE + 1, "TTL", 1)
    a.add("q", "good", "REPLICATE", 1)
    a.clock.advance(SECOND)
    b.say(a, (NEEDJOBS, b"q", 5))
    assert (a("QLEN", "q"), len(cluster.sent(YOURJOBS))) == (2, 0)
    cluster.advance(10)
    b.wait("bob")
    assert b.answered("bob") == [b"good"]


def test_consumers_of_the_node_itself_come_first(cluster: Cluster) -> None:
    a, b, _ = cluster
    b.wait("bob")
    a.wait("anna")
    a.add("q", "first", "REPLICATE", 1)
    a.add("q", "second", "REPLICATE", 1)
    assert (a.answered("anna"), b.answered("bob")) == ([b"first"], [b"second"])


def test_nodes_that_want_jobs_take_turns_and_who_asked_first_is_first(cluster: Cluster) -> None:
    a, b, c = cluster
    # Nobody waits there, so that they would say so as soon as something comes.
    cluster.lose = lambda flight: flight.receiver is a
    a.node.begin()
    for member in (c, b, c):
        a.node.message(member.id, (NEEDJOBS, b"q", 3))
    add_many(a, 7)
    assert [flight.receiver for flight in cluster.sent(YOURJOBS, a)] == [c, b, c, b, c, b]
    assert a("QLEN", "q") == 1


def test_what_nobody_said_again_is_not_wanted_after_a_while(cluster: Cluster) -> None:
    a, b, _ = cluster
    b.say(a, (NEEDJOBS, b"q", 1))
    cluster.advance(demand.LIVES_MS)
    a.add("q", "body", "REPLICATE", 1)
    assert not cluster.sent(YOURJOBS)
    assert not a.node.federation.wants.size


def test_nothing_leaves_a_queue_for_a_node_that_cannot_be_reached(cluster: Cluster) -> None:
    # Defect 23 of Disque 1.0-rc1: jobs left the queue, and those with RETRY 0 were lost.
    a, b, _ = cluster
    b.wait("bob")
    cluster.cut(a, b)
    once = a.add("q", "once", "REPLICATE", 1, "RETRY", 0)
    job = a.add("q", "again", "REPLICATE", 1)
    assert a("QLEN", "q") == 2
    assert a.holds(once)
    assert in_journal(a.journal) == {once, job}
    cluster.heal(a, b)
    assert b.answered("bob") == [b"once"]


def test_a_node_that_is_leaving_gives_but_does_not_ask(cluster: Cluster) -> None:
    a, b, _ = cluster
    add_many(a, 4)
    a.state.leaving = True
    assert a.get("other") == []
    assert not cluster.sent(NEEDJOBS, a)
    b.say(a, (NEEDJOBS, b"q", 2))
    assert cluster.sent(YOURJOBS, a)


def test_a_queue_that_is_paused_out_neither_asks_nor_gives_until_it_is_not(cluster: Cluster) -> None:
    a, b, c = cluster
    add_many(a, 2)
    a("PAUSE", "q", "out", "node")
    c("PAUSE", "q", "out", "node")
    c.wait("carl")
    b.wait("bob")
    assert {flight.sender for flight in cluster.sent(NEEDJOBS)} == {b}
    assert not cluster.sent(YOURJOBS)
    a("PAUSE", "q", "none", "node")
    assert b.answered("bob") == [b"0"]
    c("PAUSE", "q", "none", "node")
    assert c.answered("carl") == [b"1"]


def test_pausing_a_queue_out_takes_back_what_was_asked_for(cluster: Cluster) -> None:
    a, b, _ = cluster
    b.wait("bob")
    b("PAUSE", "q", "out", "node")
    assert not a.state.demand.jobs
    a.add("q", "body", "REPLICATE", 1)
    assert a("QLEN", "q") == 1


def test_a_queue_that_is_paused_in_takes_what_its_consumers_asked_for(cluster: Cluster) -> None:
    # Row 22 of the defects of Disque 1.0-rc1 leaves open whether it should.
    a, b, _ = cluster
    b("PAUSE", "q", "in", "node")
    b.wait("bob")
    a.add("q", "body", "REPLICATE", 1)
    assert b.answered("bob") == [b"body"]


# Moving a job.


def test_an_ack_where_a_job_was_brought_to_reaches_the_node_that_it_came_from(cluster: Cluster) -> None:
    # Defect 1 of Disque 1.0-rc1: it did not, and the job was delivered again.
    a, b, _ = cluster
    b.wait("bob")
    job = a.add("q", "body", "REPLICATE", 1, "RETRY", 5)
    assert a.job(job).holders == b.job(job).holders == frozenset((a.id, b.id))
    assert b("ACKJOB", job) == 1
    assert not a.holds(job)
    assert not b.holds(job)
    assert len(cluster.sent(SETACK)) == len(cluster.sent(GOTACK)) == 1
    cluster.advance(10 * MINUTE)
    assert a.bodies() == b.bodies() == []


def test_who_gave_a_job_delivers_it_when_the_message_is_lost(cluster: Cluster) -> None:
    a, b, _ = cluster
    b.wait("bob")
    cluster.lose = lambda flight: flight.kind == YOURJOBS
    job = a.add("q", "body", "REPLICATE", 1, "RETRY", 5)
    assert b.answered("bob") == []
    assert a.job(job).state == ACTIVE
    cluster.lose = lambda flight: False
    cluster.advance(6 * SECOND)
    assert b.answered("bob") == [b"body"]


def test_what_is_brought_is_in_the_journal_of_the_node_that_it_is_brought_to(cluster: Cluster) -> None:
    # Defect 17 of Disque 1.0-rc1: it was in none.
    a, b, _ = cluster
    again = a.add("q", "again", "REPLICATE", 1)
    once = a.add("q", "once", "REPLICATE", 1, "RETRY", 0)
    b.say(a, (NEEDJOBS, b"q", 1))
    b.say(a, (NEEDJOBS, b"q", 1))
    assert b("QLEN", "q") == 2
    assert in_journal(b.journal) == {again, once}
    assert in_journal(a.journal) == {again}


def test_a_job_that_is_delivered_at_most_once_is_on_one_node_at_a_time(cluster: Cluster) -> None:
    a, b, _ = cluster
    job = a.add("q", "body", "REPLICATE", 1, "RETRY", 0)
    cluster.hold(a, b)
    b.wait("bob")
    assert not a.holds(job)
    assert (UNIT_DONE, job, b"") in a.journal
    assert cluster.held(a, b)[0].kind == YOURJOBS
    cluster.release(a, b)
    assert b.answered("bob") == [b"body"]


def test_a_message_that_comes_twice_brings_no_job_twice(cluster: Cluster) -> None:
    a, b, _ = cluster
    a.add("q", "again", "REPLICATE", 1)
    a.add("q", "once", "REPLICATE", 1, "RETRY", 0)
    b.say(a, (NEEDJOBS, b"q", 1))
    b.say(a, (NEEDJOBS, b"q", 1))
    flights = cluster.sent(YOURJOBS)
    assert b.bodies() == [b"again", b"once"]
    for flight in flights:
        cluster.repeat(flight)
    assert b.bodies() == []


# Steady flow.


def consume(cluster: Cluster, member: Member, count: int, *, rest_ms: int = 1) -> list[bytes]:
    """Let a consumer take and acknowledge jobs one by one, until so many came or nothing comes for a second."""
    taken: list[bytes] = []
    idle_ms = 0
    while len(taken) < count and idle_ms < SECOND:
        rows = member.get()
        if not rows:
            idle_ms += rest_ms
        for _, job_id, body in rows:
            idle_ms = 0
            taken.append(body)
            member("ACKJOB", job_id)
        cluster.advance(rest_ms)
    return taken


def test_a_consumer_drains_a_queue_that_was_filled_elsewhere_without_ever_waiting(cluster: Cluster) -> None:
    a, b, c = cluster
    add_many(a, 500)
    add_many(c, 500)
    began = b.clock.now()
    taken = consume(cluster, b, 1_000)
    assert len(taken) == 1_000
    # A job a millisecond, but for the first, which had to be asked for, and at most one time more at the end.
    assert b.clock.now() - began <= 1_002
    asked, brought = len(cluster.sent(NEEDJOBS, b)), len(cluster.sent(YOURJOBS))
    assert asked < 100
    assert brought < 100
    assert not len(a.state.jobs) + len(b.state.jobs) + len(c.state.jobs)


def test_what_is_added_on_one_node_as_fast_as_it_is_taken_on_another_never_piles_up(cluster: Cluster) -> None:
    a, b, _ = cluster
    b.wait("bob")
    for number in range(300):
        a.add("q", number, "REPLICATE", 1)
        assert b.answered("bob") == [b"%d" % done for done in range(number + 1)]
        b.wait("bob")
        cluster.advance(1)


def test_no_job_wanders_between_nodes_whose_consumers_want_it(cluster: Cluster) -> None:
    a, b, c = cluster
    add_many(a, 200, "RETRY", 3_600)
    taken: list[bytes] = []
    members = [a, b, c]
    for turn in range(2_000):
        rows = members[turn % 3].get()
        taken += [body for _, _, body in rows]
        cluster.advance(7)
    assert sorted(taken) == sorted(b"%d" % number for number in range(200))
    moves = Counter(body for flight in cluster.sent(YOURJOBS) for body in jobs_of(flight))
    assert max(moves.values()) == 1


def fetch_some(member: Member) -> None:
    """Let a consumer take a job that has to come from elsewhere, and ask for more, which nobody takes."""
    assert member.bodies(count=1) == []
    assert len(member.bodies(count=1)) == 1
    assert member("QLEN", "q") > 0


def test_what_came_from_elsewhere_is_not_given_on_while_consumers_here_may_take_it(cluster: Cluster) -> None:
    a, b, c = cluster
    add_many(a, 10)
    fetch_some(b)
    cluster.cut(a, c)
    cluster.advance(500)
    assert c.bodies() == []
    cluster.advance(federation.KEPT_MS - 501)
    assert not cluster.sent(YOURJOBS, b)
    cluster.advance(1)
    assert c.bodies() == [b"1"]


def test_what_came_from_elsewhere_and_is_not_taken_at_once_goes_to_a_consumer_that_waits(cluster: Cluster) -> None:
    a, b, c = cluster
    add_many(a, 10)
    fetch_some(b)
    cluster.cut(a, c)
    kept = b("QLEN", "q")
    c.wait("carl")
    assert len(c.answered("carl")) == 1
    assert b("QLEN", "q") == kept - 1


def test_what_came_though_nobody_wanted_it_goes_at_once_to_where_it_is_wanted(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.cut(a, c)
    c.wait("carl")
    job = a.add("q", "body", "REPLICATE", 1)
    a.say(b, (YOURJOBS, (a.job(job),), True))
    assert c.answered("carl") == [b"body"]


def test_what_two_nodes_bring_for_one_consumer_goes_on_at_once_to_another_one_that_waits(cluster: Cluster) -> None:
    a, b, c = cluster
    b.wait("bob")
    cluster.hold(a, b)
    cluster.hold(c, b)
    a.add("q", "from a", "REPLICATE", 1)
    c.add("q", "from c", "REPLICATE", 1)
    c.wait("carl")
    cluster.release(a, b)
    assert b.answered("bob") == [b"from a"]
    cluster.release(c, b)
    assert c.answered("carl") == [b"from c"]


def test_a_consumer_that_is_slow_keeps_no_jobs_from_others(cluster: Cluster) -> None:
    a, b, _ = cluster
    add_many(a, 50)
    for _ in range(10):
        b.get()
        cluster.advance(SECOND)
        assert b("QLEN", "q") <= 2


def test_in_place_of_what_came_from_elsewhere_a_job_that_was_added_here_is_given_at_once(cluster: Cluster) -> None:
    a, b, c = cluster
    add_many(a, 10)
    fetch_some(b)
    there = b("QLEN", "q")
    cluster.cut(a, c)
    assert c.bodies() == []
    b.add("q", "own", "REPLICATE", 1)
    assert c("QLEN", "q") == 1
    assert b("QLEN", "q") == there


def test_jobs_that_nobody_waits_for_are_not_asked_for_any_more(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.lose = lambda flight: flight.kind == NEEDJOBS and flight.message[2] == 0
    b.wait("bob")
    b.gone("bob")
    cluster.advance(3 * SECOND)
    cluster.lose = lambda flight: False
    a.add("q", "first", "REPLICATE", 1)
    assert cluster.flights[-1].message == (NEEDJOBS, b"q", 0)
    assert not a.state.demand.jobs


# Bounds.


def test_what_one_node_wants_costs_bounded_memory(cluster: Cluster) -> None:
    a, b, c = cluster
    c.say(a, (NEEDJOBS, b"queue", 1))
    for number in range(5_000):
        b.say(a, (NEEDJOBS, b"queue %d" % number, 1))
    assert a.node.federation.wants.size <= demand.NODE_BYTES_MAX + demand.WANT_COST + 5
    # The oldest of that node are forgotten, and nothing of others.
    assert b"queue 4999" in a.state.demand.jobs
    assert b"queue 0" not in a.state.demand.jobs
    assert b"queue" in a.state.demand.jobs
    b.say(a, (NEEDJOBS, b"x" * MEGABYTE, 1))
    assert b"queue 4999" in a.state.demand.jobs
    assert b"x" * MEGABYTE not in a.state.demand.jobs


def test_what_all_nodes_want_costs_bounded_memory() -> None:
    table: dict[bytes, dict[bytes, demand.JobDemand]] = {}
    remembered = demand.DemandTable(table)
    for node in range(100):
        for number in range(2_000):
            remembered.note(b"queue %d" % number, b"%040x" % node, 1, now=1, waits=True)
    assert demand.BYTES_MAX - 2 * demand.WANT_COST < remembered.size <= demand.BYTES_MAX
    assert len(remembered) == sum(map(len, table.values()))
    remembered.of_queue(b"queue 0", now=1 + demand.LIVES_MS)
    assert (len(remembered), remembered.size, table) == (0, 0, {})


def test_a_node_that_is_full_takes_what_it_asked_for_and_what_would_be_lost(cluster: Cluster) -> None:
    a, b, _ = cluster
    b.add("ballast", "x" * 20_000, "REPLICATE", 1)
    b.wait("bob", "wanted")
    b.state.memory.set_limit(b.state.memory.used - 1)
    unwanted = a.add("unwanted", "body", "REPLICATE", 1)
    a.say(b, (YOURJOBS, (a.job(unwanted),), True))
    assert not b.holds(unwanted)
    # What is delivered at most once is nowhere else by then.
    once = a.add("once", "body", "REPLICATE", 1, "RETRY", 0)
    a.say(b, (YOURJOBS, (a.job(once),), True))
    assert b.holds(once)
    a.add("wanted", "body", "REPLICATE", 1)
    assert b.answered("bob") == [b"body"]


def most(member: Member) -> int:
    """Bytes that a node may count: its limit and a tenth."""
    limit = member.state.memory.limit
    return limit + limit // OVERDRAFT_PART


def test_what_a_node_brings_does_not_exceed_the_limit_by_more_than_a_tenth(cluster: Cluster) -> None:
    a, b, _ = cluster
    b.wait("bob", "wanted")
    b.state.memory.set_limit(b.state.memory.used + 100_000)
    jobs = [a.add("wanted" if at % 2 else "other", "x" * 20_000, "REPLICATE", 1, "DELAY", 60) for at in range(40)]
    a.say(b, (YOURJOBS, tuple(map(a.job, jobs)), True))
    assert b.state.memory.limit < b.state.memory.used <= most(b)
    assert all(map(a.holds, jobs))
    assert not all(map(b.holds, jobs))


@pytest.mark.parametrize("size", [100, 20_000, 500_000])
def test_jobs_for_which_another_node_has_no_room_stay_where_they_are(cluster: Cluster, size: int) -> None:
    a, b, c = cluster
    b.state.memory.evicts = False
    b.wait("first", "q")
    b.state.memory.set_limit(b.state.memory.used + 100_000)
    cluster.advance(10 * SECOND)  # it has told how much room it has
    jobs: dict[bytes, Member] = {}
    for number in range(400 if size == 100 else 40):
        giver = (a, c)[number % 2]
        jobs[giver.add("q", f"{number} ".ljust(size, "x"), "REPLICATE", 1, "RETRY", 0)] = giver
        if not number % 4:
            cluster.advance(100)
        if b.answers["first"]:
            b.answers["first"].clear()
            b.wait("first", "q")
        assert b.state.memory.used <= most(b)
    taken = [job_id for job_id in jobs if b.holds(job_id)]
    kept = [job_id for job_id, giver in jobs.items() if giver.holds(job_id)]
    assert sorted(taken + kept) == sorted(jobs)
    assert kept
    assert bool(taken) == (size < 100_000)
    assert all(giver.job(job_id).state == QUEUED for job_id, giver in jobs.items() if giver.holds(job_id))
