"""Holders of one job keep out of each other's way: who queues it when nobody acknowledged it, and who does not."""

import pytest

from disqued.core.model.ids import JobIds, comes_first
from disqued.core.model.job import ACKED, FLAG_ASKING, FLAG_ELSEWHERE, WORK_SCOPE
from disqued.core.model.messages import (
    AS_BEFORE,
    CATCH_UP,
    CAUGHT_UP,
    DELIVERED,
    GOTJOB,
    HOLDERS,
    QUEUED,
    REPLJOB,
    SETACK,
    WILLQUEUE,
    WORKING,
    YOURJOBS,
)
from disqued.core.model.outbox import JOB_ADDED
from disqued.core.model.peers import FULL, LEAVING, PATIENCE, TIMEOUT_MS
from disqued.core.work.requeueing import DOUBTED_PER_PART
from disqued.core.work.sharing import DOUBT_MS
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import OLD_ID, UNKNOWN_ID


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
    cluster.advance(4_999)
    assert not cluster.sent(WILLQUEUE)
    for other in (b, c):
        cluster.hold(other, a)
    cluster.advance(1)
    assert len(cluster.sent(WILLQUEUE, a)) == 2
    assert queued_at(cluster, job_id) == ""
    cluster.release(b, a)
    assert queued_at(cluster, job_id) == ""
    cluster.release(c, a)
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
    cluster.advance(14_000)
    # Whoever has a link that is broken may only be restarting, for as long as nobody suspects it.
    assert queued_at(cluster, job_id) == ""
    # Most nodes agree that it failed; it cannot know that they did not.
    cluster.advance(10_000)
    assert queued_at(cluster, job_id) in ("b", "c")
    cluster.advance(PATIENCE * TIMEOUT_MS - 24_000 - 1_500)
    assert "a" not in queued_at(cluster, job_id)
    cluster.advance(3_000)
    assert "a" in queued_at(cluster, job_id)
    assert b.holds(job_id)
    assert c.holds(job_id)


def test_after_a_partition_a_job_that_two_nodes_queued_is_in_one_queue_soon() -> None:
    for seed in range(6):
        cluster = Cluster(3, seed=seed)
        a, b, c = cluster
        job_id = replicated(cluster, "RETRY", 3)
        a.get()
        cluster.isolate(a)
        cluster.advance((PATIENCE + 1) * TIMEOUT_MS)
        assert len(queued_at(cluster, job_id)) == 2
        cluster.heal(a, b)
        cluster.heal(a, c)
        cluster.advance(4_000)
        assert len(queued_at(cluster, job_id)) == 1


# Asking.


def ask(asker: Member, job_id: bytes) -> None:
    """Let the timer of a job end at a node, and the question be on its way."""
    asker.node.begin()
    job = asker.job(job_id)
    job.requeue_at = asker.state.now
    asker.state.schedule.move(job, asker.state.now)
    asker.tick()


def pair(cluster: Cluster, job_id: bytes) -> tuple[Member, Member]:
    """Of the first two nodes the one that goes first with a job, and the other one."""
    a, b, *_ = cluster
    return (a, b) if comes_first(a.id, b.id, job_id) else (b, a)


def test_a_holder_that_says_nothing_keeps_a_job_back_for_some_node_time_outs_and_no_longer() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 5)
    a.get()
    cluster.lose = lambda flight: (
        flight.sender is not a and (flight.kind == WILLQUEUE or (flight.sender is c and flight.kind == HOLDERS))
    )
    cluster.advance(5_000 + PATIENCE * TIMEOUT_MS - 1)
    assert queued_at(cluster, job_id) == ""
    # The word of a node that has answered is asked for again, too: something may have happened to it since.
    assert len(cluster.sent(WILLQUEUE, a, c)) == len(cluster.sent(WILLQUEUE, a, b)) == PATIENCE * TIMEOUT_MS // 1_000
    cluster.advance(1_000)
    assert queued_at(cluster, job_id) == "a"


def test_a_holder_that_has_been_silent_for_long_keeps_no_further_job_back() -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = replicated(cluster, "RETRY", 5)
    a("GETJOB", "FROM", "q")
    cluster.isolate(b)
    cluster.advance(PATIENCE * TIMEOUT_MS + 6_000)
    assert queued_at(cluster, job_id) == "ab"
    a("GETJOB", "FROM", "q")
    cluster.advance(6_500)
    assert "a" in queued_at(cluster, job_id)


def test_an_ack_that_comes_after_the_word_of_its_node_is_heard_before_a_job_is_queued_again() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 5)
    a.get()
    cluster.hold(c, a)
    cluster.advance(5_000)
    assert a.state.custody.asking[a.job(job_id)] == {c.id}
    cluster.lose = lambda flight: flight.kind == SETACK
    b("ACKJOB", job_id)
    cluster.lose = lambda flight: False
    cluster.flights.clear()
    cluster.advance(1_000)
    assert cluster.sent(SETACK, b, a)
    assert not a.holds(job_id) or a.job(job_id).state == ACKED


def stalled(cluster: Cluster, member: Member, ms: int) -> None:
    """Let a node stand still while time passes for the others."""
    member.clock.advance(ms)
    member.tick()


def test_a_node_that_stood_still_asks_about_its_queue_before_it_hands_jobs_out() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 60)
    a("ADDJOB", "q", "alone", 0, "REPLICATE", 1, "RETRY", 60)
    for other in (b, c):
        cluster.hold(other, a)
    stalled(cluster, a, TIMEOUT_MS)
    cluster.advance(1)
    # What nobody else has is handed out at once.
    assert [row[2] for row in a.get()] == [b"alone"]
    assert not a.get()
    for other in (b, c):
        cluster.release(other, a)
    assert [row[1] for row in a.get()] == [job_id]
    # It is no new delivery: nobody has had it.
    assert [counters(member, job_id) for member in cluster] == [(0, 0)] * 3


def test_what_was_done_while_a_node_stood_still_is_not_handed_out_by_it() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 60)
    cluster.cut(a, b)
    cluster.cut(a, c)
    b("ACKJOB", job_id)
    stalled(cluster, a, TIMEOUT_MS)
    assert not a.get()
    cluster.heal(a, b)
    cluster.advance(1_000)
    assert not a.get()
    assert not a.holds(job_id) or a.job(job_id).state == ACKED


def test_a_node_that_was_busy_for_a_moment_does_not_doubt_its_queue() -> None:
    cluster = Cluster(3)
    a, *_ = cluster
    job_id = replicated(cluster, "RETRY", 60)
    cluster.flights.clear()
    stalled(cluster, a, TIMEOUT_MS // 4)
    assert not cluster.sent(WILLQUEUE)
    assert [row[1] for row in a.get()] == [job_id]


def test_very_many_queued_jobs_are_doubted_bit_by_bit_and_come_in_their_order() -> None:
    cluster = Cluster(2)
    a, _ = cluster
    job_ids = [replicated(cluster, "RETRY", 60) for _ in range(DOUBTED_PER_PART + 50)]
    stalled(cluster, a, TIMEOUT_MS)
    cluster.advance(100)
    assert a("QLEN", "q") == len(job_ids)
    assert [a.get()[0][1] for _ in range(20)] == job_ids[:20]


def test_a_paused_queue_is_not_doubted() -> None:
    cluster = Cluster(2)
    a, _ = cluster
    replicated(cluster, "RETRY", 60)
    a("PAUSE", "q", "in", "node")
    stalled(cluster, a, TIMEOUT_MS)
    assert a("QLEN", "q") == 1


def test_a_node_that_was_away_is_asked_again_and_says_what_it_knows() -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = replicated(cluster, "RETRY", 5)
    cluster.advance(3_000)
    a.get()
    cluster.cut(a, b)
    cluster.advance(4_000)
    assert queued_at(cluster, job_id) == ""
    a("ACKJOB", job_id)
    cluster.heal(a, b)
    cluster.advance(1_000)
    assert not a.holds(job_id)
    assert not b.holds(job_id)


def test_of_two_holders_that_ask_at_the_same_time_one_queues_the_job() -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = replicated(cluster, "RETRY", 60)
    first, second = pair(cluster, job_id)
    a.get()
    cluster.hold(a, b)
    cluster.hold(b, a)
    ask(a, job_id)
    ask(b, job_id)
    cluster.release(a, b)
    cluster.release(b, a)
    cluster.settle()
    assert queued_at(cluster, job_id) == first.name
    assert cluster.sent(HOLDERS, second, first)
    assert not cluster.sent(HOLDERS, first, second)


def test_who_lets_another_one_go_first_needs_its_word_once_more() -> None:
    cluster = Cluster(3)
    job_id = replicated(cluster, "RETRY", 60)
    first, second = pair(cluster, job_id)
    third = cluster.members[2]
    cluster.members[0].get()
    cluster.hold(third, first)
    cluster.hold(third, second)
    ask(second, job_id)
    cluster.settle()
    # The second has the word of the first, which only then asks for itself.
    assert second.state.custody.asking[second.job(job_id)] == {third.id}
    ask(first, job_id)
    cluster.settle()
    assert second.state.custody.asking[second.job(job_id)] == {first.id, third.id}
    cluster.release(third, second)
    assert queued_at(cluster, job_id) == ""
    cluster.release(third, first)
    cluster.settle()
    assert queued_at(cluster, job_id) == first.name


def test_a_node_that_does_not_hold_a_job_says_so_at_once() -> None:
    cluster = Cluster(3)
    a, _b, c = cluster
    job_id = replicated(cluster, "RETRY", 5)
    c("DELJOB", job_id)
    a.get()
    cluster.advance(5_000)
    assert queued_at(cluster, job_id) == "a"
    (answer,) = cluster.sent(HOLDERS, c, a)
    assert answer.message[2] == frozenset()


def test_holders_that_only_another_one_knows_are_asked_too() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    a("ADDJOB", "q", "body", 0, "RETRY", 60, "REPLICATE", 3)
    (job_id,) = a.answers.pop("client")
    a.get()
    a.job(job_id).holders = frozenset((a.id, b.id))
    b.job(job_id).holders = frozenset((a.id, b.id, c.id))
    c("NACK", job_id)  # c has it, and a has not heard so
    cluster.flights.clear()
    a.job(job_id).requeue_at = 0
    a.job(job_id).holders = frozenset((a.id, b.id))
    ask(a, job_id)
    cluster.settle()
    assert cluster.sent(WILLQUEUE, a, c)
    assert queued_at(cluster, job_id) == "c"


def test_holders_that_only_another_one_knows_are_waited_for() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 60)
    a.get()
    a.job(job_id).holders = frozenset((a.id, b.id))
    cluster.hold(c, a)
    ask(a, job_id)
    cluster.settle()
    assert cluster.sent(HOLDERS, b, a)
    assert queued_at(cluster, job_id) == ""
    cluster.release(c, a)
    assert queued_at(cluster, job_id) == "a"


def test_a_job_is_left_to_its_producer_while_there_are_not_copies_enough() -> None:
    cluster = Cluster(3)
    a, _b, c = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB and flight.sender is c
    a("ADDJOB", "q", "body", 30_000, "RETRY", 1, "REPLICATE", 3)
    for _ in range(20):
        cluster.advance(500)
        (job,) = a.state.jobs
        assert queued_at(cluster, job.id) == ""
    cluster.lose = lambda flight: False
    cluster.advance(1_500)
    assert a.answers["client"] == [job.id]
    assert queued_at(cluster, job.id) == "a"


def test_a_job_that_is_on_its_way_to_another_node_is_not_queued_by_a_third_one() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 5)
    cluster.hold(a, b)
    a.node.begin()
    (queue,) = a.state.queues.by_name.values()
    jobs = a.node.federation.moves.give_away(queue, 1, b.id)
    a.state.send(b.id, (YOURJOBS, tuple(jobs), True))
    a.settle()
    ask(c, job_id)
    cluster.settle()
    cluster.advance(2_000)
    assert not cluster.sent(HOLDERS, a, c)
    assert queued_at(cluster, job_id) == ""
    cluster.release(a, b)
    cluster.settle()
    assert queued_at(cluster, job_id) == "b"
    # Should it never arrive, the others say that they have nothing.
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 5)
    a.node.begin()
    (queue,) = a.state.queues.by_name.values()
    a.node.federation.moves.give_away(queue, 1, b.id)
    a.settle()
    cluster.advance(7_000)
    assert queued_at(cluster, job_id) != ""


def test_a_gift_that_got_lost_is_queued_as_soon_as_the_others_have_dealt_with_all_before() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 300)
    a.node.begin()
    (queue,) = a.state.queues.by_name.values()
    a.node.federation.moves.give_away(queue, 1, b.id)
    a.settle()
    ask(c, job_id)
    cluster.settle()
    assert cluster.sent(CATCH_UP, a, b)
    assert not cluster.sent(CATCH_UP, a, c)  # what was given to c comes before the answer
    assert not cluster.sent(HOLDERS, a, c)
    assert queued_at(cluster, job_id) == ""
    cluster.advance(3_000)
    assert queued_at(cluster, job_id) == "c"


def test_a_job_that_is_left_to_an_old_word_of_its_way_is_queued_again_at_once() -> None:
    """It went from a to b, to a, and to c; that b had it comes to c last, and c leaves it to b."""
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 300)
    while not comes_first(b.id, c.id, job_id):
        a("DELJOB", job_id)
        job_id = replicated(cluster, "RETRY", 300)
    cluster.hold(b, c)
    move(a, b)
    move(b, a)
    move(a, c)
    assert queued_at(cluster, job_id) == "c"
    cluster.release(b, c)
    assert queued_at(cluster, job_id) == ""
    cluster.advance(DOUBT_MS + 3_000)
    assert queued_at(cluster, job_id) == "c"


def test_a_word_of_another_life_of_a_giver_says_nothing() -> None:
    a, b = Cluster(2)
    b.say(a, (CAUGHT_UP, a.state.now + 1))
    assert a.state.peers.by_id[b.id].caught_up == 0
    b.say(a, (CAUGHT_UP, a.state.now))
    b.say(a, (CAUGHT_UP, a.state.now - 5))
    assert a.state.peers.by_id[b.id].caught_up == a.state.now


def test_a_giver_that_has_heard_of_the_job_since_says_no_more_that_it_is_under_way() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 60)
    move(a, b)
    assert not cluster.sent(QUEUED, b, a)
    assert cluster.sent(QUEUED, b, c)
    b.get()
    assert b("NACK", job_id) == 1
    assert b("DEQUEUE", job_id) == 1
    ask(c, job_id)
    cluster.settle()
    assert not cluster.sent(WORKING)
    assert queued_at(cluster, job_id) == "c"


@pytest.mark.parametrize("flag", [FULL, LEAVING])
def test_a_holder_that_takes_no_copies_is_waited_for(flag: int) -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = replicated(cluster, "RETRY", 60)
    a.get()
    a.state.peers.by_id[b.id].flags = flag
    cluster.hold(b, a)
    ask(a, job_id)
    cluster.settle()
    assert queued_at(cluster, job_id) == ""
    cluster.release(b, a)
    assert queued_at(cluster, job_id) == "a"


def test_a_holder_that_most_nodes_find_failed_is_not_waited_for() -> None:
    cluster = Cluster(3)
    a, _b, c = cluster
    job_id = replicated(cluster, "RETRY", 120)
    a.get()
    cluster.isolate(c)
    cluster.advance(40_000)
    ask(a, job_id)
    cluster.settle()
    assert queued_at(cluster, job_id) == "a"


def test_a_node_that_is_cut_off_waits_for_a_holder_that_had_failed_before() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 120)
    a.get()
    cluster.isolate(c)
    cluster.advance(40_000)
    cluster.cut(a, b)
    cluster.advance(40_000)
    assert not a.state.peers.has_quorum
    ask(a, job_id)
    cluster.settle()
    assert queued_at(cluster, job_id) == ""
    cluster.advance(PATIENCE * TIMEOUT_MS - 40_000 - 1_500)
    assert "a" not in queued_at(cluster, job_id)
    cluster.advance(3_000)
    assert "a" in queued_at(cluster, job_id)


def test_a_holder_that_was_leaving_and_is_gone_is_not_waited_for() -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = replicated(cluster, "RETRY", 60)
    a.get()
    b("CLUSTER", "LEAVING", "yes")
    cluster.cut(a, b)
    cluster.advance(20_000)
    ask(a, job_id)
    cluster.settle()
    assert queued_at(cluster, job_id) == "a"


def test_a_word_that_lasts_no_longer_than_the_lease_of_this_node_does_not_end_it() -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = replicated(cluster, "RETRY", 5)
    a.get()
    cluster.advance(1_000)
    b.say(a, (WORKING, job_id, b"", 4_000))
    assert a.node.queueing.is_leased(a.job(job_id))
    b.say(a, (WORKING, job_id, b"", 4_500))
    assert not a.node.queueing.is_leased(a.job(job_id))


def test_a_node_that_was_held_up_hears_others_before_it_queues_a_job_again() -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = a.add("q", "x", "REPLICATE", 1, "RETRY", 1)
    a.get()
    cluster.hold(b, a)
    assert b("ACKJOB", job_id) == 0
    a.clock.advance(1_300)
    a.tick()
    assert queued_at(cluster, job_id) == ""
    cluster.release(b, a)
    cluster.advance(1_000)
    assert not a.holds(job_id)
    # One that has nothing to hear goes on at once.
    job_id = a.add("q", "y", "REPLICATE", 1, "RETRY", 1)
    a.get()
    a.clock.advance(1_300)
    a.tick()
    a.clock.advance(1)
    a.tick()
    assert queued_at(cluster, job_id) == "a"


def test_a_holder_is_waited_for_from_the_first_question_on_however_late_that_is() -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = replicated(cluster, "RETRY", 5)
    a.get()
    cluster.hold(b, a)
    a.clock.advance(25_000)  # the node is stopped for so long, and suspects nobody for that
    a.tick()
    cluster.advance(1_000)
    assert queued_at(cluster, job_id) == ""
    cluster.release(b, a)
    assert queued_at(cluster, job_id) == "a"


def test_an_answer_to_a_question_that_was_given_up_does_not_count_for_the_next_one() -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = replicated(cluster, "RETRY", 60)
    a.get()
    cluster.hold(b, a)
    ask(a, job_id)
    cluster.settle()
    # b has said that it does not have the job; then it gets it, and says so in another way.
    a.node.begin()
    a.node.queueing.put_off(a.job(job_id), a.state.now + 1)
    assert b("NACK", job_id) == 1
    b.get()
    ask(a, job_id)
    (stale, *_) = cluster.held(b, a)
    assert stale.kind == HOLDERS
    cluster.release(b, a, order=lambda flights: flights[:1])
    assert queued_at(cluster, job_id) == ""
    assert len(cluster.sent(WILLQUEUE, a, b)) == 3
    a("DELJOB", job_id)
    assert not a.state.custody.owed


def test_nothing_is_left_of_questions_that_are_over() -> None:
    for end in ("ACKJOB", "DELJOB", "NACK", "WORKING"):
        cluster = Cluster(2)
        a, _ = cluster
        job_id = replicated(cluster, "RETRY", 5)
        a.get()
        cluster.lose = lambda flight: flight.kind == HOLDERS
        cluster.advance(5_000)
        assert a.state.custody.asking
        a(end, job_id)
        assert not a.state.custody.asking


def test_of_two_holders_that_owe_an_answer_each_gives_its_own() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 60)
    a.get()
    job = a.job(job_id)
    for other in (b, c):
        cluster.hold(other, a)
    ask(a, job_id)
    cluster.settle()
    a.node.begin()
    a.node.queueing.put_off(job, a.state.now + 1)
    assert a.state.custody.owed == {job: {b.id, c.id}}
    ask(a, job_id)
    cluster.settle()
    assert a.state.custody.asking[job] == {b.id, c.id}
    cluster.release(b, a, order=lambda flights: flights[:1])
    assert a.state.custody.owed == {job: {c.id}}
    # The stale answer made a ask once more, and the next one counts.
    assert a.state.custody.asking[job] == {c.id}
    assert len(cluster.sent(WILLQUEUE, a, b)) == 3
    assert queued_at(cluster, job_id) == ""
    cluster.release(c, a, order=lambda flights: flights[:1])
    assert not a.state.custody.owed
    assert len(cluster.sent(WILLQUEUE, a, c)) == 3
    assert queued_at(cluster, job_id) == "a"


def test_a_question_is_given_up_while_the_queue_takes_nothing_and_all_are_asked_afterwards() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 60)
    a.get()
    job = a.job(job_id)
    cluster.hold(c, a)
    ask(a, job_id)
    cluster.settle()
    assert a.state.custody.asking[job] == {c.id}
    a("PAUSE", "q", "in", "node")
    cluster.advance(1_000)
    assert not job.flags & FLAG_ASKING
    a("PAUSE", "q", "none", "node")
    cluster.flights.clear()
    ask(a, job_id)
    cluster.settle()
    assert cluster.sent(WILLQUEUE, a, b)
    assert cluster.sent(WILLQUEUE, a, c)
    assert queued_at(cluster, job_id) == ""
    cluster.release(c, a)
    assert queued_at(cluster, job_id) == "a"


@pytest.mark.parametrize(("linked", "left", "word"), [(True, 30_000, HOLDERS), (False, 30_000, WORKING),
                                                      (False, 1, WORKING), (False, 0, HOLDERS)])  # fmt: skip
def test_a_node_speaks_for_a_consumer_of_a_third_one_that_it_cannot_reach(linked: bool, left: int, word: int) -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 60)
    a("DEQUEUE", job_id)
    b.say(c, (DELIVERED, job_id, WORK_SCOPE, 30_000, 0, 1))
    assert c.job(job_id).flags & FLAG_ELSEWHERE
    c.job(job_id).requeue_at = c.state.now + left
    if not linked:
        cluster.cut(b, c)
    cluster.flights.clear()
    a.say(c, (WILLQUEUE, job_id, WORK_SCOPE))
    (answer,) = [flight for flight in cluster.flights if flight.sender is c and flight.receiver is a]
    assert answer.kind == word
    if word == WORKING:
        assert answer.message[3] == left
    # Of a job that nobody has it says so, though it knows of the link.
    c("NACK", job_id)
    c("DEQUEUE", job_id)
    assert not c.job(job_id).flags & FLAG_ELSEWHERE


def test_a_node_that_speaks_for_a_consumer_of_a_third_one_says_how_long_it_has_had_the_job() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    a("RQ.PUSH", "q", "x")
    [job_id] = [job.id for job in a.state.jobs]
    a("RQ.POP", "q")
    cluster.advance(20_000)
    cluster.cut(a, c)
    b.say(c, (WILLQUEUE, job_id, WORK_SCOPE))
    [answer] = cluster.sent(DELIVERED, c, b)
    _, _, _, left_ms, elapsed_ms, deliveries = answer.message
    assert (elapsed_ms, deliveries) == (20_000, 1)
    assert left_ms > 0


def test_who_lets_a_node_go_ahead_names_the_other_holders_and_neither_itself_nor_that_one() -> None:
    cluster = Cluster(4)
    a, b, c, d = cluster
    a("ADDJOB", "q", "body", 0, "RETRY", 60, "REPLICATE", 4)
    (job_id,) = a.answers.pop("client")
    a.get()
    cluster.flights.clear()
    b.say(c, (WILLQUEUE, job_id, WORK_SCOPE))
    (answer,) = cluster.sent(HOLDERS, c, b)
    assert answer.message == (HOLDERS, job_id, frozenset((a.id, d.id)))


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


def test_a_word_that_was_overtaken_by_the_job_itself_keeps_it_back_for_a_moment_only() -> None:
    cluster = Cluster(3)
    job_id = replicated(cluster, "RETRY", 300)
    [holder] = [member for member in cluster if member.name == queued_at(cluster, job_id)]
    winner = next(
        (other for other in cluster if other is not holder and comes_first(other.id, holder.id, job_id)), None
    )
    if winner is None:
        holder("DEQUEUE", job_id)
        [winner, holder] = [holder, next(member for member in cluster if member is not holder)]
        holder("ENQUEUE", job_id)
    winner.say(holder, (QUEUED, job_id, b"", AS_BEFORE))
    assert queued_at(cluster, job_id) == ""
    cluster.advance(DOUBT_MS + 2_000)
    assert len(queued_at(cluster, job_id)) == 1


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
    b.node.begin()
    assert b.node.requeueing.enqueue(b.job(job_id))
    b.settle()
    cluster.settle()
    assert cluster.sent(QUEUED, b, a)
    assert queued_at(cluster, job_id) == ""
    cluster.advance(5_000)
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
    cluster.advance(2_000)
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
    cluster.advance(25_000)
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


def test_a_job_without_copies_learns_of_holders_and_an_ack_without_a_job_does_not() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = a.add("q", "x", "REPLICATE", 1)
    assert a.job(job_id).holders is None
    b.say(a, (HOLDERS, job_id, frozenset((a.id, c.id))))
    assert a.job(job_id).holders == {a.id, c.id}
    cluster.lose = lambda flight: True
    a.node.begin()
    assert a("ACKJOB", UNKNOWN_ID) == 0
    ack = a.job(UNKNOWN_ID)
    assert (ack.state, ack.holders) == (ACKED, frozenset())
    cluster.lose = lambda flight: False
    b.say(a, (HOLDERS, UNKNOWN_ID, frozenset((a.id, c.id))))
    assert ack.holders == frozenset()


@pytest.mark.parametrize("kind", [QUEUED, DELIVERED])
def test_a_node_that_says_that_it_has_a_job_hears_of_its_ack(kind: int) -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2)
    (job_id,) = a.answers.pop("client")
    other = c if b.holds(job_id) else b
    other.say(a, (QUEUED, job_id, WORK_SCOPE, AS_BEFORE) if kind == QUEUED else (kind, job_id, WORK_SCOPE, 5_000, 0, 1))
    a("ACKJOB", job_id)
    assert cluster.sent(SETACK, a, other)


@pytest.mark.parametrize("kind", [QUEUED, DELIVERED])
def test_a_node_that_says_that_it_has_a_job_hears_that_it_has_ended_here(kind: int) -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = replicated(cluster, "RETRY", 60)
    a("ACKJOB", job_id)
    cluster.settle()
    assert not a.holds(job_id)
    cluster.flights.clear()
    b.say(a, (QUEUED, job_id, WORK_SCOPE, AS_BEFORE) if kind == QUEUED else (kind, job_id, WORK_SCOPE, 5_000, 0, 1))
    assert [flight.message[1] for flight in cluster.sent(SETACK, a, b)] == [job_id]


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
