"""Copies before the reply: who is asked, when the producer hears, and what is left when it does not work out."""

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.job import FLAG_CAME_BACK, FLAG_GIVEN_UP, WORK_SCOPE, JobState
from disqued.core.model.messages import DELJOB, ENQUEUE, GOTJOB, HOLDERS, REPLJOB, SETACK, YOURJOBS
from disqued.core.model.outbox import JOB_ADDED
from disqued.core.model.peers import FULL
from disqued.errors import NotReplicated, QueuePaused
from tests.cluster_fixtures import Cluster, Member

TIMEOUT = "Timeout reached before replicating to the requested number of nodes"
REMOVED = "job removed (expired?) before the requested replication level was achieved"


def answered(member: Member) -> bytes | str:
    """What the producer that was blocked has heard at last."""
    (value,) = member.answers["client"]
    return str(value) if isinstance(value, NotReplicated) else bytes(value)


def keep_copies_back(cluster: Cluster) -> None:
    """Let nobody say that it has a copy."""
    cluster.lose = lambda flight: flight.kind == GOTJOB


# Enough copies.


def test_the_producer_hears_when_so_many_nodes_hold_the_job_as_it_wants() -> None:
    cluster = Cluster(5)
    a = cluster.members[0]
    assert a("ADDJOB", "q", "x", 0, "REPLICATE", 3) is BLOCKED
    job_id = answered(a)
    assert sum(member.holds(job_id) for member in cluster) == 3
    shown = a.show(job_id)
    assert shown is not None
    assert shown["nodes-delivered"] == sorted(member.id for member in cluster if member.holds(job_id))
    assert (shown["state"], shown["nodes-confirmed"]) == (b"queued", [])


def test_each_other_node_is_asked_for_its_share_of_the_copies() -> None:
    cluster = Cluster(5)
    first, *others = cluster
    for number in range(200):
        first("ADDJOB", "q", number, 0, "REPLICATE", 3)
    jobs = list(first.state.jobs)
    held = [sum(member.holds(job.id) for job in jobs) for member in others]
    assert sum(held) == 400
    # The draw comes from a seed: with every node alike it is 100 each.
    assert 75 <= min(held) <= max(held) <= 125


def test_until_then_the_job_waits_and_nobody_gets_it() -> None:
    cluster = Cluster(2)
    a, b = cluster
    cluster.hold(b, a)
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2)
    (job,) = a.state.jobs
    assert (job.state, a.answers["client"], a.get()) == (JobState.WAIT_REPL, [], [])
    assert a.journal == []
    cluster.release(b, a)
    assert answered(a) == job.id
    assert [record[1].id for record in a.journal] == [job.id]
    assert [record[1].id for record in b.journal] == [job.id]
    assert [row[1] for row in a.get()] == [job.id]


def test_every_copy_has_the_job_as_it_was_given() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    a("ADDJOB", "some queue", "\x00\xff", 0, "TTL", 3_000, "RETRY", 7, "DELAY", 9)
    job_id = answered(a)
    for member in (b, c):
        shown = member.show(job_id)
        assert shown is not None
        assert (shown["queue"], shown["body"], shown["repl"]) == (b"some queue", "\x00\xff".encode(), 3)
        assert (shown["ttl"], shown["retry"], shown["delay"], shown["state"]) == (3_000, 7, 9, b"active")
        assert shown["ctime"] == a.show(job_id)["ctime"]  # type: ignore[index]
        assert 16_000 <= shown["next-requeue-within"] < 16_500


def test_a_delayed_job_is_queued_by_the_node_of_its_producer_when_the_delay_is_over() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    a("ADDJOB", "q", "x", 0, "DELAY", 3)
    job_id = answered(a)
    cluster.advance(2_999)
    assert [member("QLEN", "q") for member in (a, b, c)] == [0, 0, 0]
    cluster.advance(1)
    assert [member("QLEN", "q") for member in (a, b, c)] == [1, 0, 0]
    assert [row[1] for row in a.get()] == [job_id]


# More nodes.


def test_every_50_ms_one_more_node_is_asked_and_the_others_hear_of_it() -> None:
    cluster = Cluster(5)
    a = cluster.members[0]
    keep_copies_back(cluster)
    a("ADDJOB", "q", "x", 1_000, "REPLICATE", 2)
    for asked in (1, 2, 3, 4, 4):
        (job,) = a.state.jobs
        copies = {flight.receiver.name for flight in cluster.sent(REPLJOB)}
        assert len(copies) == asked
        assert job.holders is not None
        assert len(job.holders) == 1 + asked
        for member in cluster:
            if member is not a and member.holds(job.id):
                assert member.job(job.id).holders == job.holders
        cluster.advance(50)
    assert len(cluster.sent(HOLDERS)) == 1 + 2 + 3


def test_a_node_that_does_not_answer_is_asked_again_less_and_less_often() -> None:
    cluster = Cluster(2)
    a, _ = cluster
    keep_copies_back(cluster)
    a("ADDJOB", "q", "x", 10_000, "REPLICATE", 2)
    cluster.advance(9_000)
    assert 8 <= len(cluster.sent(REPLJOB)) <= 16
    cluster.lose = lambda flight: False
    cluster.advance(1_000)
    assert isinstance(answered(a), bytes)


def test_only_nodes_that_have_said_nothing_are_asked_again() -> None:
    cluster = Cluster(4)
    a, b, c, d = cluster
    d("PAUSE", "q", "in", "node")
    cluster.lose = lambda flight: flight.kind == GOTJOB and flight.sender is c
    a("ADDJOB", "q", "x", 0, "REPLICATE", 3)
    cluster.advance(2_000)
    assert not a.answers["client"]
    assert [len(cluster.sent(REPLJOB, a, member)) for member in (b, d)] == [1, 1]
    assert len(cluster.sent(REPLJOB, a, c)) > 2
    cluster.lose = lambda flight: False
    cluster.advance(1_000)
    assert c.holds(bytes(answered(a)))  # type: ignore[arg-type]


def test_a_node_that_comes_later_is_asked_then() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.cut(a, c)
    cluster.lose = lambda flight: flight.kind == GOTJOB and flight.sender is b
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2)
    cluster.heal(a, c)
    cluster.advance(1_000)
    assert c.holds(bytes(answered(a)))  # type: ignore[arg-type]


# Not enough.


def test_when_time_is_up_the_producer_hears_noreplication_and_no_copy_is_left() -> None:
    cluster = Cluster(4)
    a = cluster.members[0]
    keep_copies_back(cluster)
    a("ADDJOB", "q", "x", 300, "REPLICATE", 3)
    cluster.advance(299)
    assert a.answers["client"] == []
    cluster.advance(1)
    assert answered(a) == TIMEOUT
    assert not any(len(member.state.jobs) for member in cluster)
    assert not a.node.replication.pending
    assert a.state.counters.refused == 1


def test_a_copy_that_turns_up_after_that_is_cleaned_up_too() -> None:
    cluster = Cluster(2)
    a, b = cluster
    cluster.hold(a, b)
    a("ADDJOB", "q", "x", 100, "REPLICATE", 2)
    cluster.advance(100)
    assert answered(a) == TIMEOUT
    cluster.release(a, b, order=lambda flights: [flight for flight in flights if flight.kind == REPLJOB])
    assert cluster.sent(DELJOB, a, b)
    assert not len(b.state.jobs)


def test_a_producer_that_leaves_takes_its_job_with_it() -> None:
    cluster = Cluster(2)
    a, b = cluster
    keep_copies_back(cluster)
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2)
    assert len(b.state.jobs) == 1
    a.gone("client")
    cluster.settle()
    assert not len(a.state.jobs)
    assert not len(b.state.jobs)
    assert a.answers["client"] == []


@pytest.mark.parametrize("verb", ["DELJOB", "FASTACK"])
def test_a_job_that_is_removed_meanwhile_is_answered_so(verb: str) -> None:
    cluster = Cluster(2)
    a, b = cluster
    keep_copies_back(cluster)
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2)
    (job,) = a.state.jobs
    assert a(verb, job.id, client="somebody else") == 1
    assert answered(a) == REMOVED
    assert not len(b.state.jobs)


def test_a_job_whose_time_ends_meanwhile_is_answered_so() -> None:
    cluster = Cluster(2)
    a, b = cluster
    keep_copies_back(cluster)
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2, "TTL", 2)
    cluster.advance(2_000)
    assert answered(a) == REMOVED
    cluster.advance(500)
    assert not len(b.state.jobs)


@pytest.mark.parametrize("ttl", [1, 2, 3])
def test_a_node_that_wakes_late_meets_several_deadlines_of_one_job_at_once(ttl: int) -> None:
    cluster = Cluster(2)
    a, _ = cluster
    keep_copies_back(cluster)
    a("ADDJOB", "q", "x", 2_000, "REPLICATE", 2, "TTL", ttl, "RETRY", 1)
    a.clock.advance(10_000)
    a.tick()
    assert answered(a) in (TIMEOUT, REMOVED)
    assert (len(a.state.jobs), a.node.replication.pending) == (0, {})
    a.advance(100_000)


def test_a_flush_answers_the_producers_that_wait() -> None:
    cluster = Cluster(2)
    a, b = cluster
    keep_copies_back(cluster)
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2)
    a.node.flush()
    a.settle()
    cluster.settle()
    assert answered(a) == REMOVED
    assert not len(b.state.jobs)


# Asynchronously.


def test_an_asynchronous_job_is_answered_at_once_and_copied_all_the_same() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = a.add("q", "x", "REPLICATE", 3, "ASYNC")
    assert all(member.holds(job_id) for member in cluster)
    assert not cluster.sent(GOTJOB)
    assert a.journal[0] == (JOB_ADDED, a.job(job_id))
    assert a.job(job_id).holders == {a.id, b.id, c.id}


# External: this node keeps no copy.


def leaving(cluster: Cluster) -> Member:
    """The first node, which is leaving; the others know."""
    member = cluster.members[0]
    member.node.begin()
    member.state.leaving = True
    for other in cluster.members[1:]:
        reachable = other.state.peers.reachable
        other.state.peers.reachable = tuple(node_id for node_id in reachable if node_id != member.id)
    return member


@pytest.mark.parametrize("options", [(), ("ASYNC",)])
@pytest.mark.parametrize("retry", [0, 5])
def test_a_node_that_keeps_no_copy_lets_another_one_queue_the_job(options: tuple[str, ...], retry: int) -> None:
    cluster = Cluster(3)
    a = leaving(cluster)
    a("ADDJOB", "q", "x", 1_000, "REPLICATE", 1, "RETRY", retry, *options)
    assert not len(a.state.jobs)
    assert a.journal == []
    assert len(cluster.sent(ENQUEUE)) == 1
    (holder,) = [member for member in cluster if len(member.state.jobs)]
    assert holder.bodies() == [b"x"]


def test_a_delay_goes_with_a_job_that_is_kept_elsewhere() -> None:
    cluster = Cluster(2)
    a = leaving(cluster)
    b = cluster.members[1]
    a("ADDJOB", "q", "x", 1_000, "REPLICATE", 1, "RETRY", 0, "DELAY", 4)
    cluster.advance(3_999)
    assert b.bodies() == []
    cluster.advance(1)
    assert b.bodies() == [b"x"]


@pytest.mark.parametrize(("waited", "left"), [(3_000, 1_000), (3_999, 1), (4_000, 1), (4_500, 1)])
def test_what_is_left_of_a_delay_is_handed_over_and_a_job_that_waited_longer_is_due_at_once(
    waited: int, left: int
) -> None:
    cluster = Cluster(2)
    a = leaving(cluster)
    b = cluster.members[1]
    cluster.hold(b, a)
    a("ADDJOB", "q", "x", 10_000, "REPLICATE", 1, "RETRY", 0, "DELAY", 4)
    cluster.advance(waited)
    cluster.release(b, a)
    assert [flight.message[3] for flight in cluster.sent(ENQUEUE)] == [left]
    cluster.advance(left)
    assert b.bodies() == [b"x"]


def test_a_job_without_a_delay_is_handed_over_as_one() -> None:
    cluster = Cluster(2)
    leaving(cluster)("ADDJOB", "q", "x", 1_000, "REPLICATE", 1, "RETRY", 5)
    assert [flight.message[3] for flight in cluster.sent(ENQUEUE)] == [0]


def test_a_node_queues_a_job_of_another_one_no_later_than_its_delay_allows() -> None:
    cluster = Cluster(2)
    a, b = cluster
    job = a.job(a.add("q", "x", "REPLICATE", 1, "DELAY", 4))
    a.say(b, (REPLJOB, job, False))
    a.say(b, (ENQUEUE, job.id, WORK_SCOPE, 1 << 40))
    cluster.advance(3_999)
    assert b("QLEN", "q") == 0
    cluster.advance(1)
    assert b("QLEN", "q") == 1


def test_the_first_queueing_of_a_job_that_is_kept_elsewhere_is_no_redelivery() -> None:
    cluster = Cluster(2)
    a = leaving(cluster)
    a("ADDJOB", "q", "x", 1_000, "REPLICATE", 1, "RETRY", 60)
    ((_, _, _, _, nacks, _, additional),) = cluster.members[1]("GETJOB", "WITHCOUNTERS", "FROM", "q")
    assert (nacks, additional) == (0, 0)


def test_a_node_without_links_that_keeps_no_copy_does_not_call_none_enough() -> None:
    cluster = Cluster(2)
    a = leaving(cluster)
    b = cluster.members[1]
    keep_copies_back(cluster)
    a("ADDJOB", "q", "x", 10_000)
    cluster.cut(a, b)
    assert a.answers["client"] == []
    cluster.lose = lambda flight: False
    cluster.heal(a, b)
    cluster.advance(2_000)
    assert b.holds(bytes(answered(a)))  # type: ignore[arg-type]


def test_the_copies_are_all_on_other_nodes() -> None:
    cluster = Cluster(4)
    a = leaving(cluster)
    a("ADDJOB", "q", "x", 0, "REPLICATE", 3)
    job_id = bytes(answered(a))  # type: ignore[arg-type]
    holders = {member.id for member in cluster if member.holds(job_id)}
    assert len(holders) == 3
    assert a.id not in holders
    assert all(member.job(job_id).holders == holders for member in cluster if member is not a)


# Whoever is asked.


@pytest.mark.parametrize("reason", ["leaving", "memory", "journal", "paused"])
def test_a_node_that_can_keep_no_copy_says_so_and_the_producer_hears_why(reason: str) -> None:
    cluster = Cluster(2)
    a, b = cluster
    if reason == "leaving":
        b.state.leaving = True
    elif reason == "memory":
        b.state.memory.set_limit(1)
        b.state.memory.used = 10
    elif reason == "journal":
        b.state.durability.read_only = True
    else:
        b("PAUSE", "q", "in", "node")
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2)
    assert cluster.sent(REPLJOB, a, b)
    assert not cluster.sent(GOTJOB)
    (error,) = a.answers["client"]
    assert isinstance(error, QueuePaused if reason == "paused" else NotReplicated)
    if reason != "paused":
        because = (
            "is leaving the cluster" if reason == "leaving" else "its memory is low, or it cannot write its journal"
        )
        assert f"node bbbbbbbb {'' if reason == 'leaving' else 'takes no copies now: '}{because}" in str(error)
    assert not any(len(member.state.jobs) for member in cluster)


def test_a_copy_that_comes_twice_is_one_copy_and_is_confirmed_twice() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2)
    (flight,) = cluster.sent(REPLJOB)
    cluster.repeat(flight)
    assert len(b.state.jobs) == 1
    assert len(cluster.sent(GOTJOB)) == 2
    assert len(b.journal) == 1
    assert b.state.counters.copies == 1


@pytest.mark.parametrize("end", ["ACKJOB", "FASTACK"])
@pytest.mark.parametrize("meanwhile", ["nothing", "nack", "start"])
def test_the_only_copy_of_a_job_is_not_brought_back_after_its_end(end: str, meanwhile: str) -> None:
    cluster = Cluster(2)
    a, b = cluster
    fill(a)
    a("ADDJOB", "q", "x", 0)
    (flight,) = cluster.sent(REPLJOB)
    job_id = answered(a)
    assert b.job(job_id).holders is None, "nobody else has it"
    if meanwhile == "nack":
        b("GETJOB", "FROM", "q")
        b("NACK", job_id)
    elif meanwhile == "start":
        b.job(job_id).flags = FLAG_CAME_BACK  # as one that is loaded has
    b(end, job_id)
    assert not b.holds(job_id)
    cluster.repeat(flight)
    assert not b.holds(job_id)
    assert job_id in b.state.custody.ended


def test_a_copy_of_a_job_that_is_done_is_answered_with_its_ack() -> None:
    cluster = Cluster(2)
    a, b = cluster
    cluster.hold(a, b)
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2)
    (job,) = a.state.jobs
    a.journal.clear()
    # Its consumer came by another way, and was faster.
    b("ACKJOB", job.id)
    cluster.release(a, b)
    assert answered(a) == job.id
    # The job and then its end: a crash between the two leaves a job that is known to be held elsewhere.
    written = [record for record in a.journal if record[1] in (job, job.id)]
    assert written[0] == (JOB_ADDED, job)
    assert a.node.replication.pending.get(job.id) is None
    cluster.advance(5_000)
    assert not len(a.state.jobs)
    assert not len(b.state.jobs)


def test_an_early_ack_reaches_the_holders_as_soon_as_its_node_learns_who_they_are() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.hold(a, b)
    a("ADDJOB", "q", "x", 0, "REPLICATE", 3)
    (job,) = a.state.jobs
    cluster.lose = lambda flight: flight.kind == SETACK
    b("ACKJOB", job.id)
    cluster.release(a, b)
    assert c.holds(job.id)
    cluster.lose = lambda flight: False
    cluster.advance(10)  # not the pause between two attempts
    assert answered(a) == job.id
    assert not any(member.holds(job.id) for member in cluster)


def test_an_early_ack_is_over_when_its_node_learns_that_it_is_the_only_holder() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job = a.job(a.add("q", "x", "REPLICATE", 1))
    cluster.cut(b, c)
    cluster.lose = lambda flight: flight.kind == SETACK
    b("ACKJOB", job.id)
    a("DELJOB", job.id)
    cluster.lose = lambda flight: False
    a.say(b, (REPLJOB, job, False))
    cluster.advance(10)
    assert not b.holds(job.id)


def test_a_node_that_wanted_copies_elsewhere_holds_the_ack_of_its_job_like_the_others() -> None:
    cluster = Cluster(3)
    a = leaving(cluster)
    b, c = cluster.members[1:]
    keep_copies_back(cluster)
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2)
    (job,) = a.state.jobs
    cluster.hold(a, c)
    assert a("ACKJOB", job.id, client="consumer") == 1
    assert answered(a) == job.id
    shown = a.show(job.id)
    assert shown is not None
    assert (shown["state"], shown["nodes-delivered"]) == (b"acked", [a.id, b.id, c.id])
    cluster.release(a, c)
    cluster.advance(3_000)
    assert not any(member.holds(job.id) for member in cluster)


def test_a_job_of_a_batch_that_is_done_meanwhile_counts_as_added() -> None:
    cluster = Cluster(2)
    a, b = cluster
    cluster.hold(b, a)
    assert a("RQ.PUSH", "q", "first", "second") is BLOCKED
    first, second = [job.id for job in a.state.jobs]
    assert a("ACKJOB", first, client="consumer") == 1
    assert a.answers["client"] == []
    cluster.release(b, a, order=lambda flights: [flight for flight in flights if flight.message[1] == second])
    (names,) = a.answers["client"]
    assert len(names) == 2
    assert [row[1] for row in a.get()] == [second]


@pytest.mark.parametrize(
    "other",
    [("RETRY", 7), ("DELAY", 9), ("TTL", 900), ("REPLICATE", 3)],
    ids=lambda words: " ".join(map(str, words)),
)
def test_each_copy_has_the_options_of_its_own_job_whatever_came_before(other: tuple[str | int, ...]) -> None:
    cluster = Cluster(3)
    a = cluster.members[0]
    usual = {"RETRY": 5, "DELAY": 0, "TTL": 600, "REPLICATE": 2}
    for _ in range(2):
        for words in ((), other):
            wanted = usual | dict(zip(words[::2], words[1::2], strict=True))
            a("ADDJOB", "q", "x", 0, *(word for pair in wanted.items() for word in pair if pair != ("DELAY", 0)))
            job_id = bytes(answered(a))  # type: ignore[arg-type]
            a.answers.clear()
            for member in cluster:
                if member.holds(job_id):
                    options = member.job(job_id).options
                    assert (options.ttl_ms, options.retry_ms, options.delay_ms, options.replicate) == (
                        1_000 * wanted["TTL"], 1_000 * wanted["RETRY"], 1_000 * wanted["DELAY"], wanted["REPLICATE"],
                    )  # fmt: skip


def test_jobs_that_are_added_together_are_answered_once_although_enough_copies_may_become_fewer() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    for other in (b, c):
        cluster.hold(other, a)
    assert a("RQ.PUSH", "q", "first", "second") is BLOCKED
    first, second = [job.id for job in a.state.jobs]
    # The second has all its copies, the first lacks the one of a node that takes none from now on.
    cluster.release(c, a)
    cluster.release(b, a, order=lambda flights: [flight for flight in flights if flight.message[1] == second])
    assert a.answers["client"] == []
    a.state.peers.linked[b.id].flags |= FULL
    a.node.begin()
    a.node.replication.reachable_changed()
    a.settle()
    (names,) = a.answers["client"]
    assert len(names) == 2
    assert {first, second} == {job.id for job in a.state.jobs}
    assert not a.node.replication.pending


def test_a_job_that_is_handed_over_to_a_paused_queue_waits_for_a_retry_period() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a.add("q", "x", "RETRY", 5, "REPLICATE", 1)
    (job,) = a.state.jobs
    a.say(b, (REPLJOB, job, False))
    b("PAUSE", "q", "in", "node")
    a.say(b, (ENQUEUE, job.id, WORK_SCOPE, 0))
    assert b.job(job.id).requeue_at == b.state.now + 5_000
    assert b("QLEN", "q") == 0
    b("PAUSE", "q", "none", "node")
    a.say(b, (ENQUEUE, job.id, WORK_SCOPE, 0))
    assert b("QLEN", "q") == 1


def test_an_at_most_once_job_that_is_handed_over_to_a_paused_queue_is_queued() -> None:
    cluster = Cluster(2)
    a = leaving(cluster)
    b = cluster.members[1]
    cluster.lose = lambda flight: flight.kind == ENQUEUE
    a("ADDJOB", "q", "x", 1_000, "REPLICATE", 1, "RETRY", 0)
    b("PAUSE", "q", "in", "node")
    cluster.repeat(cluster.lost[0])
    assert b("QLEN", "q") == 1


@pytest.mark.parametrize("left", [0, 1])
def test_a_job_whose_delay_is_over_when_it_comes_is_queued_at_once(left: int) -> None:
    cluster = Cluster(2)
    a, b = cluster
    a.add("q", "x", "RETRY", 0, "DELAY", 5, "REPLICATE", 1)
    (job,) = a.state.jobs
    job.requeue_at = a.state.now + left
    a.say(b, (YOURJOBS, (job,), False))
    assert b.job(job.id).requeue_at == b.state.now + 1


def delayed_once(cluster: Cluster) -> Member:
    """Add a delayed at-most-once job at a node that keeps no copy and hears of none, so that it asks several."""
    a = leaving(cluster)
    cluster.lose = lambda flight: flight.kind in (GOTJOB, DELJOB)
    a("ADDJOB", "q", "x", 1_000, "REPLICATE", 1, "RETRY", 0, "DELAY", 4)
    cluster.advance(500)
    assert all(len(member.state.jobs) == 1 for member in cluster)
    return a


def all_bodies(*members: Member) -> list[bytes]:
    """What these nodes have in the queue; who asks may be given what is next elsewhere."""
    return [body for _ in range(3) for member in members for body in member.bodies()]


def test_an_at_most_once_job_that_was_given_up_is_delivered_by_none_of_those_that_have_copies() -> None:
    cluster = Cluster(3)
    a = delayed_once(cluster)
    cluster.advance(1_000)
    assert answered(a) == TIMEOUT
    _, b, c = cluster
    assert len(b.state.jobs) == len(c.state.jobs) == 1
    cluster.advance(10_000)
    assert all_bodies(b, c) == []


def test_an_at_most_once_job_whose_producer_has_gone_with_its_node_is_delivered_by_nobody() -> None:
    cluster = Cluster(3)
    a = delayed_once(cluster)
    _, b, c = cluster
    cluster.isolate(a)
    cluster.advance(10_000)
    assert all_bodies(b, c) == []


def test_an_at_most_once_job_is_delivered_by_the_node_that_was_chosen_alone() -> None:
    cluster = Cluster(3)
    delayed_once(cluster)
    _, b, c = cluster
    cluster.lose = lambda flight: flight.kind == DELJOB
    cluster.advance(1_000)
    assert len(cluster.sent(ENQUEUE)) == 1
    assert len(b.state.jobs) == len(c.state.jobs) == 1
    cluster.advance(2_000)
    assert b("QLEN", "q") == c("QLEN", "q") == 0
    cluster.advance(10_000)
    assert all_bodies(b, c) == [b"x"]


@pytest.mark.parametrize("delay", [0, 4])
def test_no_client_queues_the_copy_of_an_at_most_once_job_that_another_node_has(delay: int) -> None:
    cluster = Cluster(2)
    a, b = cluster
    job = a.job(a.add("q", "x", "REPLICATE", 1, "RETRY", 0, "DELAY", delay))
    a.say(b, (REPLJOB, job, False))
    assert b("ENQUEUE", job.id) == 0
    assert b("NACK", job.id) == 0
    b("WORKING", job.id)
    b("ENQUEUE", job.id)
    cluster.advance(5_000)
    assert (a.bodies(), b.bodies()) == ([b"x"], [])


@pytest.mark.parametrize("leaves", ["the chosen one", "the other one"])
def test_a_copy_that_nobody_was_told_to_queue_harms_no_at_most_once_job_that_moves(leaves: str) -> None:
    cluster = Cluster(3)
    delayed_once(cluster)
    cluster.lose = lambda flight: flight.kind == DELJOB
    cluster.advance(1_000)
    chosen = cluster.sent(ENQUEUE)[0].receiver
    other = next(member for member in cluster.members[1:] if member is not chosen)
    leaver, stayer = (chosen, other) if leaves == "the chosen one" else (other, chosen)
    cluster.cut(cluster.members[0], leaver)
    leaver("CLUSTER", "LEAVING", "yes")
    cluster.advance(1_000)
    assert leaver("QLEN", "q") == 0
    cluster.cut(leaver, stayer)
    cluster.advance(10_000)
    assert all_bodies(leaver, stayer) == [b"x"]
    assert not len(leaver.state.jobs)


def test_the_journal_of_the_chosen_node_knows_when_an_at_most_once_job_is_due() -> None:
    cluster = Cluster(2)
    a = leaving(cluster)
    b = cluster.members[1]
    a("ADDJOB", "q", "x", 1_000, "REPLICATE", 1, "RETRY", 0, "DELAY", 4)
    (job,) = b.state.jobs
    assert job.requeue_at == b.state.now + 4_000
    assert b.journal.count((JOB_ADDED, job)) == 2
    assert [flight.kind for flight in cluster.flights] == [REPLJOB, GOTJOB, ENQUEUE]


def test_messages_about_copies_do_not_move_a_job_that_waits_for_copies() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    keep_copies_back(cluster)
    a("ADDJOB", "q", "x", 0, "REPLICATE", 3, "RETRY", 1)
    (job,) = a.state.jobs
    b("ENQUEUE", job.id)
    c("NACK", job.id)
    c("WORKING", job.id)
    b.job(job.id).holders = frozenset((a.id, b.id, c.id, b"d" * 40))
    b.say(a, (REPLJOB, b.job(job.id), False))
    assert (job.state, job.holders) == (JobState.WAIT_REPL, frozenset((a.id, b.id, c.id)))
    assert (a.get(), a.journal) == ([], [])


def test_wishes_that_nobody_could_fulfil_are_checked_before_anything_is_sent() -> None:
    cluster = Cluster(2)
    a, _ = cluster
    assert a.refusal("ADDJOB", "q", "x", 0, "REPLICATE", 3).startswith("NOREPL Not enough reachable nodes")
    a("PAUSE", "q", "in", "node")
    assert a.refusal("ADDJOB", "q", "x", 0, "REPLICATE", 2).startswith("PAUSED")
    assert cluster.flights == []


def test_large_numbers_of_refused_jobs_are_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disqued.core.work.replication.REFUSED_KEPT", 3)
    cluster = Cluster(2)
    a, _ = cluster
    cluster.lose = lambda flight: flight.kind == REPLJOB
    for _ in range(5):
        a("ADDJOB", "q", "x", 1, "REPLICATE", 2)
        cluster.advance(1)
    cluster.lose = lambda flight: False
    cluster.flights.clear()
    for flight in cluster.lost:
        cluster.repeat(flight)
    assert len(cluster.sent(GOTJOB)) == 5
    assert len(cluster.sent(DELJOB)) == 3


def test_of_an_at_most_once_job_that_two_nodes_got_one_keeps_it() -> None:
    cluster = Cluster(3)
    a = leaving(cluster)
    b, c = cluster.members[1:]
    cluster.hold(b, a)
    cluster.hold(c, a)
    a("ADDJOB", "q", "x", 1_000, "REPLICATE", 1, "RETRY", 0)
    cluster.advance(100)
    assert len(b.state.jobs) == len(c.state.jobs) == 1
    cluster.release(b, a)
    assert isinstance(answered(a), bytes)
    cluster.release(c, a)
    assert (len(b.state.jobs), len(c.state.jobs)) == (1, 0)
    for flight in cluster.sent(GOTJOB):
        cluster.repeat(flight)
    assert (len(b.state.jobs), len(c.state.jobs)) == (1, 0)
    assert b.bodies() == [b"x"]


def test_a_copy_of_an_at_most_once_job_that_nobody_was_told_to_queue_is_no_obstacle_to_the_job() -> None:
    cluster = Cluster(3)
    a = leaving(cluster)
    b, c = cluster.members[1:]
    # The node that is not to keep the job does not hear so.
    cluster.lose = lambda flight: flight.kind == DELJOB
    cluster.hold(b, a)
    cluster.hold(c, a)
    a("ADDJOB", "q", "x", 1_000, "REPLICATE", 1, "RETRY", 0)
    cluster.advance(100)
    cluster.release(b, a)
    assert (b("QLEN", "q"), c("QLEN", "q")) == (1, 0)
    c("GETJOB", "FROM", "q", client="consumer")
    assert [row[2] for row in c.answers["consumer"][0]] == [b"x"]
    for flight in cluster.sent(YOURJOBS):
        cluster.repeat(flight)
    assert (b("QLEN", "q"), c("QLEN", "q")) == (0, 0)


def test_a_large_body_is_given_the_time_that_its_transfer_takes() -> None:
    for size, most in ((10, 30), (8_000_000, 4)):
        cluster = Cluster(4)
        a = cluster.members[0]
        keep_copies_back(cluster)
        a("ADDJOB", "q", "x" * size, 5_000, "REPLICATE", 2)
        cluster.advance(4_000)
        assert 2 <= len(cluster.sent(REPLJOB)) <= most


def test_a_job_that_was_given_up_is_marked_so_that_copies_under_way_need_not_leave() -> None:
    cluster = Cluster(2)
    a, _ = cluster
    keep_copies_back(cluster)
    a("ADDJOB", "q", "x", 100, "REPLICATE", 2)
    (flight,) = cluster.sent(REPLJOB)
    assert not flight.message[1].flags & FLAG_GIVEN_UP
    cluster.advance(100)
    assert flight.message[1].flags & FLAG_GIVEN_UP


# Nodes that take no copies, and producers who do not say how many they want.


def fill(member: Member) -> None:
    """Let a node have little memory left."""
    member.state.memory.set_limit(1_000_000)
    member.state.memory.used = 900_000


@pytest.mark.parametrize("options", [(), ("ASYNC",)])
@pytest.mark.parametrize("reason", ["leaving", "memory"])
def test_by_default_a_node_that_takes_no_copy_wants_as_many_as_the_others_can_make(
    reason: str, options: tuple[str, ...]
) -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    before = a.add("q", "before", "ASYNC")
    if reason == "memory":
        fill(a)
    else:
        leaving(cluster)
    a("ADDJOB", "q", "x", 1_000, *options)
    assert sorted((len(b.state.jobs), len(c.state.jobs))) == [2, 2]
    assert a.refusal("ADDJOB", "q", "x", 1_000, "REPLICATE", 3).startswith("NOREPL")
    # When it takes copies again, so does the default.
    a.state.leaving = False
    a.state.memory.set_limit(1 << 30)
    assert a.job(a.add("q", "after", "ASYNC")).options.replicate == 3
    assert a.holds(before)


@pytest.mark.parametrize("reason", ["memory", "journal"])
def test_a_node_that_is_full_says_so_and_does_not_keep_producers_of_others_waiting(reason: str) -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    if reason == "memory":
        fill(c)
    else:
        c.state.durability.read_only = True
    # The first one finds out, and is answered all the same.
    a("ADDJOB", "q", "x", 0)
    assert isinstance(answered(a), bytes)
    assert a.state.peers.by_id[c.id].flags == FULL
    assert c.id not in a.state.peers.reachable
    assert a.answers.pop("client")
    cluster.flights.clear()
    a("ADDJOB", "q", "y", 0)
    assert isinstance(answered(a), bytes)
    assert not cluster.sent(REPLJOB, a, c)
    assert a.refusal("ADDJOB", "q", "x", 1_000, "REPLICATE", 3).startswith("NOREPL")
    # Everybody hears when it is over.
    c.state.durability.read_only = False
    c.state.memory.set_limit(1 << 30)
    cluster.advance(1_000)
    assert c.id in a.state.peers.reachable
    assert c.id in b.state.peers.reachable


def test_a_producer_that_said_how_many_copies_it_wants_gets_no_fewer() -> None:
    cluster = Cluster(3)
    a, _, c = cluster
    fill(c)
    a("ADDJOB", "q", "x", 200, "REPLICATE", 3)
    assert str(answered(a)).startswith("Not enough reachable nodes")


def test_a_node_that_does_not_answer_is_no_node_that_takes_no_copies() -> None:
    cluster = Cluster(3)
    a, _, c = cluster
    cluster.lose = lambda flight: flight.sender is c
    a("ADDJOB", "q", "x", 200)
    cluster.advance(200)
    assert answered(a) == TIMEOUT


# Nodes that are only away for a moment.


def test_an_addition_waits_for_a_node_that_is_being_restarted() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.cut(a, c)
    assert a("ADDJOB", "q", "x", 30_000, "REPLICATE", 3) is BLOCKED
    cluster.advance(2_000)
    assert not a.answers["client"]
    cluster.cut(a, b)
    cluster.heal(a, b)
    assert len(cluster.sent(REPLJOB, a, b)) == 1
    cluster.heal(a, c)
    cluster.advance(10)  # not one of the pauses between two attempts: the link is the sign
    assert c.holds(bytes(answered(a)))  # type: ignore[arg-type]


def test_a_node_that_has_a_copy_counts_though_it_takes_none_any_more() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB and flight.sender is c
    a("ADDJOB", "q", "x", 30_000, "REPLICATE", 3)
    a.state.peers.linked[b.id].flags |= FULL
    a.node.begin()
    a.node.replication.reachable_changed()
    a.settle()
    assert not a.answers["client"]
    cluster.lose = lambda flight: False
    cluster.advance(2_000)
    assert isinstance(answered(a), bytes)


def test_an_addition_waits_for_a_node_that_goes_away_meanwhile() -> None:
    cluster = Cluster(3)
    a, _b, c = cluster
    cluster.lose = lambda flight: flight.kind == REPLJOB and flight.receiver is c
    a("ADDJOB", "q", "x", 30_000, "REPLICATE", 3)
    cluster.cut(a, c)
    cluster.lose = lambda flight: False
    cluster.advance(20_000)
    assert a.state.peers.by_id[c.id].flags
    cluster.heal(a, c)
    cluster.advance(1_000)
    assert isinstance(answered(a), bytes)


def test_a_node_that_is_suspected_is_not_waited_for() -> None:
    cluster = Cluster(3)
    a, _, c = cluster
    cluster.isolate(c)
    cluster.advance(20_000)
    assert a.refusal("ADDJOB", "q", "x", 30_000, "REPLICATE", 3).startswith("NOREPL Not enough reachable nodes")
    # Who cannot wait hears at once, as nobody would send the copy later.
    cluster = Cluster(3)
    a, _, c = cluster
    cluster.cut(a, c)
    assert a.refusal("ADDJOB", "q", "x", 0, "REPLICATE", 3, "ASYNC").startswith("NOREPL")


def test_by_default_a_link_that_breaks_keeps_nobody_waiting() -> None:
    cluster = Cluster(3)
    a, _, c = cluster
    cluster.lose = lambda flight: flight.sender is c
    a("ADDJOB", "q", "x", 0)
    assert not a.answers["client"]
    cluster.cut(a, c)
    assert isinstance(answered(a), bytes)


def test_by_default_a_node_that_is_forgotten_meanwhile_keeps_nobody_waiting() -> None:
    cluster = Cluster(3)
    a, _, c = cluster
    cluster.lose = lambda flight: flight.sender is c
    a("ADDJOB", "q", "x", 0)
    assert not a.answers["client"]
    a("CLUSTER", "FORGET", c.id, client="operator")
    assert isinstance(answered(a), bytes)


def test_a_node_that_has_just_been_started_waits_for_its_links() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.isolate(a)
    assert a("ADDJOB", "q", "x", 30_000, "REPLICATE", 3) is BLOCKED
    cluster.heal(a, b)
    cluster.heal(a, c)
    cluster.advance(200)
    job_id = bytes(answered(a))  # type: ignore[arg-type]
    assert b.holds(job_id)
    assert c.holds(job_id)


# A queue that is paused elsewhere.


@pytest.mark.parametrize("options", [(), ("REPLICATE", 3)])
def test_a_queue_that_is_paused_on_a_node_that_is_needed_is_answered_so_at_once(options: tuple[str | int, ...]) -> None:
    cluster = Cluster(3)
    a, _, c = cluster
    c("PAUSE", "q", "in", "node")
    a("ADDJOB", "q", "x", 0, *options)
    (error,) = a.answers["client"]
    assert isinstance(error, QueuePaused)
    assert error.text == f"Queue paused in input, try later (on node {c.id.decode()})"
    assert not any(len(member.state.jobs) for member in cluster)


def test_another_node_is_asked_at_once_when_the_queue_is_paused_on_one() -> None:
    cluster = Cluster(4)
    a, *others = cluster
    for member in others[:2]:
        member("PAUSE", "q", "in", "node")
    for _ in range(10):
        a("ADDJOB", "q", "x", 0, "REPLICATE", 2)
        cluster.advance(1)
        assert others[2].holds(bytes(answered(a)))  # type: ignore[arg-type]
        a.answers.clear()


def test_by_default_a_paused_queue_is_no_reason_for_fewer_copies() -> None:
    cluster = Cluster(4)
    a, b, c, d = cluster
    c("PAUSE", "q", "in", "node")
    cluster.lose = lambda flight: flight.sender is d
    a("ADDJOB", "q", "x", 0)
    cluster.advance(200)
    cluster.cut(a, c)
    cluster.cut(a, d)
    (job,) = a.state.jobs
    assert (job.confirmed, a.answers["client"]) == (frozenset((a.id, b.id)), [])
    cluster.lose = lambda flight: False
    cluster.heal(a, c)
    assert len(cluster.sent(REPLJOB, a, c)) == 1
    cluster.heal(a, d)
    cluster.advance(1_000)
    assert d.holds(bytes(answered(a)))  # type: ignore[arg-type]


def test_a_batch_is_refused_as_a_whole_when_the_queue_is_paused_elsewhere() -> None:
    cluster = Cluster(3)
    a, _, c = cluster
    c("PAUSE", "l", "in", "node")
    a("QLPUSH", "l", "x", "y")
    (error,) = a.answers["client"]
    assert isinstance(error, QueuePaused)
    assert not any(len(member.state.jobs) for member in cluster)


# What single messages may not do.


def test_nobody_hears_of_a_pause_who_does_not_wait_for_the_copy() -> None:
    cluster = Cluster(2)
    a, b = cluster
    b("PAUSE", "q", "in", "node")
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2, "ASYNC")
    assert cluster.sent(REPLJOB, a, b)
    assert not cluster.sent(HOLDERS)


def test_a_node_that_has_said_that_it_has_a_copy_cannot_take_that_back() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB and flight.sender is b
    a("ADDJOB", "q", "x", 0, "REPLICATE", 3)
    (job,) = a.state.jobs
    c.say(a, (HOLDERS, job.id, frozenset()))
    cluster.settle()
    assert not a.answers["client"]
    b.say(a, (HOLDERS, job.id, frozenset()))
    cluster.settle()
    assert isinstance(a.answers["client"][0], QueuePaused)


def test_a_job_that_a_node_has_handed_out_is_not_queued_by_a_late_word_of_its_maker() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a.state.leaving = True
    a("ADDJOB", "q", "x", 0, "REPLICATE", 1, "RETRY", 60)
    (flight,) = cluster.sent(ENQUEUE)
    assert len(b.get()) == 1
    cluster.repeat(flight)
    assert b("QLEN", "q") == 0


def test_a_job_that_came_back_to_its_queue_and_was_taken_out_is_not_queued_by_a_late_word_either() -> None:
    for retry, before in ((60, "NACK"), (0, "")):
        cluster = Cluster(2)
        a, b = cluster
        a.state.leaving = True
        a("ADDJOB", "q", "x", 0, "REPLICATE", 1, "RETRY", retry)
        (flight,) = cluster.sent(ENQUEUE)
        job_id = flight.message[1]
        if before:
            b.get()
            assert b(before, job_id) == 1
        assert b("DEQUEUE", job_id) == 1
        cluster.repeat(flight)
        assert b("QLEN", "q") == 0
