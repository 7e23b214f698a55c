"""Holders of one job keep out of each other's way: who queues it when nobody acknowledged it, and who does not."""

import pytest

from disqued.core.ids import JobIds, comes_first
from disqued.core.job import WORK_SCOPE
from disqued.core.messages import DELIVERED, HOLDERS, QUEUED, REPLJOB, SETACK, WILLQUEUE, WORKING, YOURJOBS
from disqued.core.outbox import JOB_ADDED
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import OLD_ID


def replicated(cluster: Cluster, *options: str | int) -> bytes:
    """A job that the first three nodes hold."""
    a = cluster.members[0]
    a("ADDJOB", "q", "body", 0, *options)
    (job_id,) = a.answers.pop("client")
    cluster.flights.clear()
    return bytes(job_id)


def queued_at(cluster: Cluster, job_id: bytes) -> str:
    """Names of the nodes that have a job in their queue."""
    shown = {member.name: member.show(job_id) for member in cluster}
    return "".join(name for name, job in shown.items() if job is not None and job["state"] == b"queued")


def counters(member: Member, job_id: bytes) -> tuple[int, int]:
    """How often a job was given back, and queued again for another reason, as far as a node knows."""
    job = member.job(job_id)
    return job.nacks, job.additional_deliveries


# Nobody acknowledges.


def test_a_job_that_waits_in_one_queue_is_left_there_by_the_others_for_ever() -> None:
    cluster = Cluster(3)
    job_id = replicated(cluster, "RETRY", 2)
    for _ in range(30):
        cluster.advance(1_000)
        assert queued_at(cluster, job_id) == "a"
    assert counters(cluster.members[1], job_id) == (0, 0)
    # In 30 s each of two copies may ask fifteen times, and most of them are answered before they do.
    assert 10 <= len(cluster.sent(WILLQUEUE)) <= 2 * 2 * 15


def test_one_node_queues_the_job_again_and_says_so_before_and_after() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 5)
    a.get()
    cluster.advance(4_499)
    assert not cluster.sent(WILLQUEUE)
    cluster.advance(1)
    assert len(cluster.sent(WILLQUEUE, a)) == 2
    cluster.advance(499)
    assert queued_at(cluster, job_id) == ""
    cluster.advance(1)
    assert queued_at(cluster, job_id) == "a"
    assert [flight.message[3] for flight in cluster.sent(QUEUED)] == [2, 2]
    assert [counters(member, job_id) for member in (a, b, c)] == [(0, 1)] * 3
    cluster.advance(60_000)
    assert queued_at(cluster, job_id) == "a"


def test_a_consumer_has_the_whole_retry_period_whatever_the_timers_of_the_copies_say() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 5)
    cluster.advance(4_300)
    assert [row[1] for row in a.get()] == [job_id]
    for _ in range(49):
        cluster.advance(100)
        assert queued_at(cluster, job_id) == ""
    assert cluster.sent(WORKING, a)
    cluster.advance(200)
    assert queued_at(cluster, job_id) == "a"
    assert b("QLEN", "q") == c("QLEN", "q") == 0


def test_when_the_node_of_the_consumer_is_away_another_one_queues_the_job() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 5)
    a.get()
    cluster.isolate(a)
    cluster.advance(7_000)
    assert sorted(queued_at(cluster, job_id)) == ["a", queued_at(cluster, job_id).strip("a")]
    assert queued_at(cluster, job_id).strip("a") in ("b", "c")
    assert b.holds(job_id)
    assert c.holds(job_id)


def test_after_a_partition_a_job_that_two_nodes_queued_is_in_one_queue_soon() -> None:
    for seed in range(6):
        cluster = Cluster(3, seed=seed)
        a, b, c = cluster
        job_id = replicated(cluster, "RETRY", 3)
        a.get()
        cluster.isolate(a)
        cluster.advance(5_000)
        assert len(queued_at(cluster, job_id)) == 2
        cluster.heal(a, b)
        cluster.heal(a, c)
        cluster.advance(4_000)
        assert len(queued_at(cluster, job_id)) == 1


# The tie.


def test_exactly_one_of_two_nodes_comes_first_and_jobs_favour_different_ones() -> None:
    one, other = b"a" * 40, b"b" * 40
    ids = JobIds(one, b"seed")
    firsts = [comes_first(one, other, ids.next(b"05a0SQ")) for _ in range(200)]
    assert 60 < sum(firsts) < 140
    for job_id in (ids.next(b"05a0SQ"), OLD_ID):
        assert comes_first(one, other, job_id) is not comes_first(other, one, job_id)
        assert not comes_first(one, one, job_id)


@pytest.mark.parametrize("lost", [None, "winner's", "loser's"])
def test_of_two_nodes_that_queued_a_job_the_same_one_keeps_it_whichever_message_arrives(lost: str | None) -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = replicated(cluster, "RETRY", 60)
    winner, loser = (a, b) if comes_first(a.id, b.id, job_id) else (b, a)
    a.get()
    cluster.hold(a, b)
    cluster.hold(b, a)
    a("ENQUEUE", job_id)
    b("ENQUEUE", job_id)
    assert queued_at(cluster, job_id) == "ab"
    for sender, receiver, name in ((winner, loser, "winner's"), (loser, winner, "loser's")):
        if name == lost:
            cluster.release(sender, receiver, order=lambda flights: [])
        else:
            cluster.release(sender, receiver)
    assert queued_at(cluster, job_id) == winner.name


# What consumers and operators say on another node.


def test_a_nack_on_another_node_queues_the_job_there_and_ends_the_lease_here() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 5)
    a.get()
    assert b("NACK", job_id) == 1
    assert queued_at(cluster, job_id) == "b"
    cluster.advance(30_000)
    assert queued_at(cluster, job_id) == "b"
    assert [counters(member, job_id) for member in (a, b, c)] == [(1, 0)] * 3


def test_working_on_another_node_puts_off_every_timer() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    job_id = replicated(cluster, "RETRY", 5, "TTL", 1_000)
    a.get()
    for _ in range(20):
        cluster.advance(3_000)
        assert b("WORKING", job_id) == 5
        assert queued_at(cluster, job_id) == ""
    cluster.advance(5_000)
    assert queued_at(cluster, job_id) == "b"


def test_enqueue_on_another_node_queues_a_job_though_a_consumer_has_it() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    job_id = replicated(cluster, "RETRY", 60)
    a.get()
    assert b("ENQUEUE", job_id) == 1
    assert queued_at(cluster, job_id) == "b"
    assert [row[1] for row in b.get()] == [job_id]


def test_a_job_that_a_consumer_has_is_kept_back_from_a_node_that_queued_it_by_mistake() -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = replicated(cluster, "RETRY", 5)
    cluster.advance(4_000)
    a.get()
    # b hears nothing for the moment in which it asks.
    cluster.lose = lambda flight: flight.kind == WILLQUEUE
    cluster.advance(1_400)
    cluster.lose = lambda flight: False
    cluster.advance(200)
    assert cluster.sent(QUEUED, b, a)
    assert queued_at(cluster, job_id) == ""
    cluster.advance(3_500)
    assert queued_at(cluster, job_id) == "a"


def test_who_asks_about_a_job_that_is_done_hears_so() -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = replicated(cluster, "RETRY", 5)
    a.get()
    cluster.lose = lambda flight: flight.kind == SETACK and flight.receiver is b
    a("ACKJOB", job_id)
    cluster.advance(3_700)
    cluster.lose = lambda flight: False
    cluster.flights.clear()
    cluster.advance(1_500)
    assert cluster.sent(WILLQUEUE, b, a)
    assert not a.holds(job_id)
    assert not b.holds(job_id)


def test_a_job_that_moved_is_left_alone_by_holders_that_had_no_part_in_the_move() -> None:
    cluster = Cluster(4)
    a, _, _, _ = cluster
    job_id = replicated(cluster, "RETRY", 5)
    holders = [member for member in cluster if member.holds(job_id)]
    (other,) = [member for member in cluster if not member.holds(job_id)]
    a.node.begin()
    (queue,) = a.state.queues.by_name.values()
    jobs = a.node.federation.moves.give_away(queue, 1, other.id)
    a.state.send(other.id, (YOURJOBS, tuple(jobs), True))
    a.settle()
    cluster.settle()
    for _ in range(30):
        cluster.advance(1_000)
        assert queued_at(cluster, job_id) == other.name
    assert all(member.job(job_id).holders == {each.id for each in cluster} for member in holders)
    other("ACKJOB", job_id)
    assert not any(member.holds(job_id) for member in cluster)


def test_a_job_whose_holders_are_all_here_asks_nobody() -> None:
    cluster = Cluster(2)
    a, _ = cluster
    a.add("q", "x", "REPLICATE", 1, "RETRY", 1)
    a.get()
    cluster.flights.clear()
    cluster.advance(10_000)
    assert not cluster.sent(WILLQUEUE)
    assert len(a.get()) == 1


# At most once.


def move(giver: Member, taker: Member) -> None:
    """Let a node give the first job of the queue to another one."""
    giver.node.begin()
    (queue,) = giver.state.queues.by_name.values()
    jobs = giver.node.federation.moves.give_away(queue, 1, taker.id)
    giver.state.send(taker.id, (YOURJOBS, tuple(jobs), True))
    giver.settle()
    giver.cluster.settle()


def test_an_at_most_once_job_may_come_back_and_its_messages_may_not() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a.add("q", "x", "RETRY", 0, "REPLICATE", 1)
    for _ in range(3):
        move(a, b)
        assert [member("QLEN", "q") for member in (a, b)] == [0, 1]
        move(b, a)
        assert [member("QLEN", "q") for member in (a, b)] == [1, 0]
    moves = cluster.sent(YOURJOBS)
    assert len(moves) == 6
    for flight in moves:
        cluster.repeat(flight)
    assert [member("QLEN", "q") for member in (a, b)] == [1, 0]
    (row,) = a("GETJOB", "NOHANG", "WITHCOUNTERS", "FROM", "q")
    assert row[3:] == (b"nacks", 0, b"additional-deliveries", 0)
    for flight in moves:
        cluster.repeat(flight)
    assert [member("QLEN", "q") for member in (a, b)] == [0, 0]


# A delay that ends before its time.


def test_a_job_that_is_queued_before_its_delay_is_over_is_known_as_queued_by_all_its_holders() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 5, "DELAY", 600)
    assert a("ENQUEUE", job_id) == 1
    assert [counters(member, job_id) for member in (a, b, c)] == [(0, 0)] * 3
    # Its node is away: another one queues it after a retry period, and not after the delay.
    cluster.cut(a, b)
    cluster.cut(a, c)
    cluster.advance(7_000)
    assert queued_at(cluster, job_id).removeprefix("a") in ("b", "c")


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_job_that_is_queued_before_its_delay_is_over_is_queued_by_nobody_else(number: int) -> None:
    cluster = Cluster(3)
    job_id = replicated(cluster, "RETRY", 5, "DELAY", 600)
    holder = cluster.members[number]
    assert holder("ENQUEUE", job_id) == 1
    for _ in range(60):
        cluster.advance(1_000)
        assert queued_at(cluster, job_id) == holder.name


def test_every_holder_notes_that_a_delay_has_ended_before_its_time() -> None:
    cluster = Cluster(3)
    job_id = replicated(cluster, "RETRY", 5, "DELAY", 600)
    for member in cluster:
        member.journal.clear()
    cluster.members[1]("ENQUEUE", job_id)
    for member in cluster:
        assert [record[1].id for record in member.journal if record[0] == JOB_ADDED] == [job_id]
        member.journal.clear()
    # One that is queued for another reason is in the journal already.
    cluster.members[1].get()
    cluster.members[1]("NACK", job_id)
    cluster.advance(60_000)
    assert not [record for member in cluster for record in member.journal if record[0] == JOB_ADDED]


# Who else holds a job is in the journal.


def holders_written(member: Member, job_id: bytes) -> list[set[str]]:
    """The holders in each record about a job that a node has written since the last call."""
    found = [
        {holder.decode()[0] for holder in record[1].holders or ()}
        for record in member.journal
        if record[0] == JOB_ADDED and record[1].id == job_id
    ]
    member.journal.clear()
    return found


def test_a_holder_that_speaks_up_is_noted_in_the_journal_once() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2, "RETRY", 5)
    (job_id,) = a.answers.pop("client")
    holder, other = (b, c) if b.holds(job_id) else (c, b)
    for member in (a, holder):
        member.journal.clear()
    other.say(a, (WILLQUEUE, job_id, WORK_SCOPE))
    other.say(a, (WILLQUEUE, job_id, WORK_SCOPE))
    assert holders_written(a, job_id) == [{"a", "b", "c"}]
    other.say(holder, (HOLDERS, job_id, frozenset((other.id, holder.id))))
    other.say(holder, (HOLDERS, job_id, frozenset((other.id, holder.id))))
    assert holders_written(holder, job_id) == [{"a", "b", "c"}]
    assert a.job(job_id).holders == holder.job(job_id).holders == frozenset((a.id, b.id, c.id))


def test_a_copy_that_comes_again_with_more_holders_is_noted_in_the_journal() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2, "RETRY", 5)
    (job_id,) = a.answers.pop("client")
    holder, other = (b, c) if b.holds(job_id) else (c, b)
    (flight,) = cluster.sent(REPLJOB)
    holder.journal.clear()
    cluster.repeat(flight)
    assert holders_written(holder, job_id) == []
    a.job(job_id).holders = frozenset((a.id, b.id, c.id))
    a.say(holder, (REPLJOB, a.job(job_id), False))
    assert holders_written(holder, job_id) == [{"a", "b", "c"}]
    assert other.id in holder.job(job_id).holders


def test_a_node_without_a_journal_writes_nothing_of_what_others_say() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    for member in cluster:
        member.state.journaling = False
        member.journal.clear()
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2, "RETRY", 5)
    (job_id,) = a.answers.pop("client")
    holder, other = (b, c) if b.holds(job_id) else (c, b)
    other.say(a, (WILLQUEUE, job_id, WORK_SCOPE))
    other.say(holder, (HOLDERS, job_id, frozenset((other.id, holder.id))))
    cluster.repeat(cluster.sent(REPLJOB)[0])
    delayed = replicated(cluster, "RETRY", 5, "DELAY", 600)
    b("ENQUEUE", delayed)
    a.get()
    cluster.advance(20_000)
    b("ACKJOB", job_id)
    b("ACKJOB", delayed)
    cluster.advance(5_000)
    assert not any(len(member.state.jobs) for member in cluster)
    assert [member.journal for member in cluster] == [[], [], []]


# At most once.


def test_nobody_takes_an_at_most_once_job_out_of_a_queue_by_saying_that_a_consumer_has_it() -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = a.add("q", "x", "RETRY", 0, "REPLICATE", 1)
    b.say(a, (WORKING, job_id, WORK_SCOPE, 5_000))
    b.say(a, (DELIVERED, job_id, WORK_SCOPE, 5_000, 0, 1))
    assert queued_at(cluster, job_id) == "a"
    assert [row[1] for row in a.get()] == [job_id]
    cluster.advance(60_000)
    assert a.get() == []
