"""Leaving: what a node holds goes to others, and it says when nothing is lost by stopping it."""

from collections.abc import Iterable
from typing import Self

import pytest

from disqued.core.cluster import leaving
from disqued.core.model.job import ACTIVE, FLAG_QUEUED_BEFORE, QUEUED, StoredJob
from disqued.core.model.messages import ENQUEUE, GOTJOB, REPLJOB, YOURJOBS
from disqued.core.model.outbox import JOB_ADDED, Record
from disqued.core.model.vitals import own_vitals
from disqued.wire.jobdump import decode_record, encode_job
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import in_journal

SECOND = 1_000


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3)


def leave(member: Member, *, leaving: bool = True) -> None:
    """CLUSTER LEAVING yes, or no."""
    member.node.begin()
    member.node.leaving.set(leaving=leaving)
    member.settle()
    member.cluster.settle()


def is_safe(member: Member) -> bool:
    """What the node says."""
    return member.node.leaving.facts()["cluster_safe_to_stop"] == "yes"


def jobs_left(member: Member) -> int:
    """What the node says."""
    return int(member.node.leaving.facts()["cluster_leaving_jobs_left"])


def waits_for(member: Member) -> str:
    """What the node says."""
    return member.node.leaving.facts()["cluster_leaving_waits_for"]


def stop(member: Member) -> None:
    """End a node, and all that it has with it."""
    member.cluster.isolate(member)
    member.cluster.members.remove(member)


def taken_from(*members: Member) -> list[bytes]:
    """Take and acknowledge jobs until none of the nodes has one, asked twice; returns the bodies."""
    taken: list[bytes] = []
    found = True
    while found:
        rows = [(member, row) for member in (*members, *members) for row in member.get(count=100)]
        for member, (_, job_id, body) in rows:
            taken.append(body)
            member("ACKJOB", job_id)
        found = bool(rows)
    return taken


def until_safe(member: Member, limit_ms: int = 10 * SECOND) -> int:
    """Let time pass until the node can be stopped; returns how many milliseconds that took."""
    for ms in range(limit_ms):
        if is_safe(member):
            return ms
        member.cluster.advance(1)
    raise AssertionError(member.node.leaving.facts())


def test_an_empty_node_is_safe_to_stop_at_once(cluster: Cluster) -> None:
    a, _, _ = cluster
    assert a.node.leaving.facts() == {
        "cluster_leaving": "no",
        "cluster_leaving_jobs_left": "0",
        "cluster_leaving_acks_left": "0",
        "cluster_leaving_waits_for": "",
        "cluster_safe_to_stop": "no",
    }
    leave(a)
    assert not is_safe(a)
    until_safe(a)
    assert waits_for(a) == ""
    leave(a, leaving=False)
    assert not is_safe(a)


def test_queued_jobs_go_to_the_other_nodes_in_turn(cluster: Cluster) -> None:
    # Defect 28 of Disque 1.0-rc1: a node that was leaving drained nothing.
    a, b, c = cluster
    jobs = {a.add("q", number, "REPLICATE", 1) for number in range(1_000)}
    leave(a)
    assert jobs_left(a) == 1_000
    assert until_safe(a) < SECOND
    assert a("QLEN", "q") == 0
    assert b("QLEN", "q") == c("QLEN", "q") == 500
    assert not cluster.sent(REPLJOB)
    assert in_journal(b.journal) | in_journal(c.journal) == jobs
    stop(a)
    assert len(taken_from(b, c)) == 1_000


def test_jobs_that_move_are_not_counted_as_deliveries(cluster: Cluster) -> None:
    a, b, c = cluster
    for retry in (0, 60):
        for number in range(10):
            a.add("q", number, "REPLICATE", 1, "RETRY", retry)
    a.get()
    leave(a)
    until_safe(a)
    stat = a.stat("q")
    assert stat is not None
    assert (stat["jobs-out"], stat["delivered"], a.state.counters.exported) == (20, 1, 19)
    assert own_vitals(a.state.memory, 0, a.state.counters).given == 1
    assert len(taken_from(b, c)) == 19
    assert sum(queue.delivered for queue in (b.state.queues.by_name[b"q"], c.state.queues.by_name[b"q"])) == 19


def test_what_a_node_that_is_leaving_had_asked_for_is_not_brought(cluster: Cluster) -> None:
    a, b, _ = cluster
    a.wait("anna")
    assert b"q" in b.state.demand.jobs
    leave(a)
    assert not b.state.demand.jobs
    b.add("q", "body", "REPLICATE", 1)
    assert b("QLEN", "q") == 1


def test_each_job_that_is_moved_is_delivered_once(cluster: Cluster) -> None:
    a, b, c = cluster
    for number in range(100):
        a.add("q", number, "REPLICATE", 1, "RETRY", number % 2 * 60)
    leave(a)
    until_safe(a)
    stop(a)
    taken = taken_from(b, c)
    cluster.advance(10 * 60 * SECOND)
    taken += taken_from(b, c)
    assert sorted(taken) == sorted(b"%d" % number for number in range(100))


def test_a_delivered_job_is_copied_before_the_node_is_safe_to_stop(cluster: Cluster) -> None:
    a, b, c = cluster
    job = a.add("q", "body", "REPLICATE", 1, "RETRY", 30)
    assert a.bodies() == [b"body"]
    leave(a)
    until_safe(a)
    holder = b if b.holds(job) else c
    assert cluster.sent(GOTJOB, holder, a)
    stop(a)
    holder.wait("bob")
    cluster.advance(29 * SECOND)
    assert holder.answered("bob") == []
    cluster.advance(3 * SECOND)
    assert holder.answered("bob") == [b"body"]


@pytest.mark.parametrize("retry", [0, 60])
def test_a_delayed_job_is_due_elsewhere_when_its_delay_is_over(cluster: Cluster, retry: int) -> None:
    a, b, c = cluster
    job = a.add("q", "body", "REPLICATE", 1, "DELAY", 100, "RETRY", retry)
    cluster.advance(40 * SECOND)
    leave(a)
    until_safe(a)
    assert a.holds(job) == bool(retry)
    stop(a)
    b.wait("bob")
    c.wait("carl")
    cluster.advance(59 * SECOND)
    assert b.answered("bob") + c.answered("carl") == []
    cluster.advance(2 * SECOND)
    assert b.answered("bob") + c.answered("carl") == [b"body"]


class Written(list[Record]):
    """A journal that writes each job down when it is told of it."""

    def __init__(self, member: Member) -> None:
        super().__init__()
        self.member = member
        self.timers: list[tuple[int, int]] = []  #: milliseconds left, and whether the job was queued before

    def __iadd__(self, records: Iterable[Record]) -> Self:
        for record in records:
            if record[0] == JOB_ADDED:
                wall = self.member.clock.wall()
                _, stored = decode_record(encode_job(record[1], wall - self.member.clock.now(), record[1].state))
                assert isinstance(stored, StoredJob)
                self.timers.append((stored.requeue - wall, stored.flags & FLAG_QUEUED_BEFORE))
            self.append(record)
        return self


@pytest.mark.parametrize("retry", [0, 60])
def test_the_journal_of_the_other_node_has_the_delay_as_it_was(cluster: Cluster, retry: int) -> None:
    a, b, c = cluster
    for member in (b, c):
        member.journal = Written(member)
    job = a.add("q", "body", "REPLICATE", 1, "DELAY", 100, "RETRY", retry)
    leave(a)
    until_safe(a)
    (holder,) = [member for member in (b, c) if member.holds(job)]
    assert isinstance(holder.journal, Written)
    left_ms, was_queued = holder.journal.timers[-1]
    assert 80_000 < left_ms <= 100_000
    assert not was_queued


def test_an_answer_that_the_walk_does_not_wait_for_hands_no_delay_over(cluster: Cluster) -> None:
    a, b, c = cluster
    late, job = (a.add("q", body, "REPLICATE", 1, "DELAY", 100, "RETRY", 60) for body in ("late", "in time"))
    for other in (b, c):
        cluster.hold(other, a)
    leave(a)
    cluster.advance(SECOND)
    assert {flight.message[1].id for flight in cluster.sent(REPLJOB, a)} == {late, job}
    assert a.node.leaving._arrived(late)
    for job_id, expected in ((late, []), (job, [job])):
        a.node.begin()
        a.node.leaving.on_gotjob(b.id, job_id)
        a.settle()
        cluster.settle()
        assert [flight.message[1] for flight in cluster.sent(ENQUEUE, a, b)] == expected


def test_a_job_that_was_delivered_and_is_never_to_be_again_keeps_no_node(cluster: Cluster) -> None:
    a, _, _ = cluster
    a.add("q", "body", "REPLICATE", 1, "RETRY", 0)
    assert a.bodies() == [b"body"]
    leave(a)
    until_safe(a)
    assert not cluster.sent(YOURJOBS)
    assert not cluster.sent(REPLJOB)


def test_as_many_other_nodes_hold_a_job_as_its_producer_wanted(cluster: Cluster) -> None:
    a, b, c = cluster
    assert a("ADDJOB", "q", "body", 0, "REPLICATE", 2, client="anna")
    (job,) = a.answers["anna"]
    leave(a)
    until_safe(a)
    assert b.holds(job)
    assert c.holds(job)


def test_what_others_may_hold_counts_when_they_have_said_so(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == REPLJOB
    job = a("ADDJOB", "q", "body", 0, "REPLICATE", 3, "ASYNC")
    assert a.bodies() == [b"body"]
    leave(a)
    cluster.advance(10 * SECOND)
    assert not is_safe(a)
    assert jobs_left(a) == 1
    assert waits_for(a) == leaving.UNDER_WAY
    cluster.lose = lambda flight: False
    until_safe(a)
    assert b.holds(job)
    assert c.holds(job)


def test_a_message_that_is_lost_is_made_up_for(cluster: Cluster) -> None:
    a, b, c = cluster
    for number in range(300):
        a.add("q", number, "REPLICATE", 1)
    cluster.lose = lambda flight: flight.kind in (YOURJOBS, GOTJOB) and cluster.rng.random() < 0.5
    leave(a)
    until_safe(a, 60 * SECOND)
    cluster.lose = lambda flight: False
    stop(a)
    assert len(b.state.jobs) + len(c.state.jobs) >= 300


def test_a_node_that_takes_no_copies_is_passed_over(cluster: Cluster) -> None:
    a, b, c = cluster
    job = a.add("q", "body", "REPLICATE", 1)
    assert a.bodies() == [b"body"]
    b.state.memory.set_limit(1)
    leave(a)
    until_safe(a, 20 * SECOND)
    assert c.holds(job)


def test_with_no_node_to_go_to_it_stays_unsafe_and_says_why(cluster: Cluster) -> None:
    a, b, _ = cluster
    once = a.add("q", "once", "REPLICATE", 1, "RETRY", 0)
    cluster.isolate(a)
    leave(a)
    cluster.advance(20 * SECOND)
    assert not is_safe(a)
    assert jobs_left(a) == 1
    assert waits_for(a) == leaving.NO_NODE
    assert a.holds(once)
    cluster.heal(a, b)
    until_safe(a)
    assert b.bodies() == [b"once"]


def test_a_node_that_is_leaving_itself_takes_nothing(cluster: Cluster) -> None:
    a, b, c = cluster
    a.add("q", "body", "REPLICATE", 1)
    leave(b)
    leave(a)
    until_safe(a)
    assert c("QLEN", "q") == 1


def test_stopping_to_leave_ends_it(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.lose = lambda flight: flight.kind == YOURJOBS
    leave(a)
    leave(a, leaving=False)
    assert not a.state.leaving
    a.add("q", "body", "REPLICATE", 1)
    cluster.lose = lambda flight: False
    cluster.advance(10 * SECOND)
    assert a("QLEN", "q") == 1
    assert not cluster.sent(YOURJOBS)
    assert a.id in b.state.peers.reachable


def test_jobs_of_a_queue_that_is_paused_out_are_copied_and_not_handed_out_elsewhere(cluster: Cluster) -> None:
    a, b, c = cluster
    job = a.add("q", "body", "REPLICATE", 1)
    a("PAUSE", "q", "out", "node")
    leave(a)
    until_safe(a)
    assert (a.job(job).state, b("QLEN", "q"), c("QLEN", "q")) == (QUEUED, 0, 0)
    assert (b if b.holds(job) else c).job(job).state == ACTIVE


def test_an_at_most_once_job_of_a_queue_that_is_paused_out_waits_for_the_end_of_the_pause(cluster: Cluster) -> None:
    a, b, c = cluster
    a.add("q", "once", "REPLICATE", 1, "RETRY", 0)
    a("PAUSE", "q", "out", "node")
    leave(a)
    cluster.advance(5 * SECOND)
    assert not is_safe(a)
    assert waits_for(a) == leaving.PAUSED
    a("PAUSE", "q", "none", "node")
    until_safe(a)
    assert taken_from(b, c) == [b"once"]


def test_an_ack_that_others_have_yet_to_hear_keeps_the_node(cluster: Cluster) -> None:
    a, b, _ = cluster
    a("ADDJOB", "q", "body", 0, "REPLICATE", 2, client="anna")
    (job,) = a.answers["anna"]
    cluster.hold(a, b)
    cluster.hold(a, cluster.members[2])
    a("ACKJOB", job)
    leave(a)
    cluster.advance(100)
    facts = a.node.leaving.facts()
    assert (facts["cluster_leaving_jobs_left"], facts["cluster_leaving_acks_left"]) == ("0", "1")
    assert facts["cluster_safe_to_stop"] == "no"
    assert facts["cluster_leaving_waits_for"] == leaving.ACKS
    cluster.release(a, b)
    cluster.release(a, cluster.members[2])
    until_safe(a)
    assert not b.holds(job)


def outcome_of(member: Member) -> bytes:
    """A job whose result all three nodes keep, and know that."""
    member("ADDJOB", "q", "body", 0, "REPLICATE", 3, "RETRY", 60, "RESULT", 1_000, client="anna")
    [job_id] = member.answers.pop("anna")
    member("ACKJOB", job_id, "RESULT", "42")
    member.cluster.advance(2 * SECOND)
    assert job_id in [job.id for job in member.state.custody.settled]
    return bytes(job_id)


def test_a_result_that_is_kept_is_no_job_and_no_ack_that_is_left(cluster: Cluster) -> None:
    a = cluster.members[0]
    outcome_of(a)
    leave(a)
    facts = a.node.leaving.facts()
    assert (facts["cluster_leaving_jobs_left"], facts["cluster_leaving_acks_left"]) == ("0", "0")
    until_safe(a)
    assert [len(member.state.jobs) for member in cluster] == [1, 1, 1]


def test_a_result_that_a_node_may_have_lost_since_it_said_so_is_asked_for_again(cluster: Cluster) -> None:
    a, b, c = cluster
    job_id = outcome_of(a)
    for member in (b, c):
        # It comes back, and has lost everything.
        cluster.cut(a, member)
        member("DELJOB", job_id)
        cluster.heal(a, member)
    leave(a)
    assert not is_safe(a)
    until_safe(a)
    kept = [member.show(job_id) for member in (b, c) if member.holds(job_id)]
    assert kept
    assert all(shown is not None and shown["result"] == b"42" for shown in kept)


def test_a_node_that_has_heard_of_the_end_of_a_job_takes_its_result(cluster: Cluster) -> None:
    a, b, c = cluster
    job_id = outcome_of(a)
    stop(c)
    b("DELJOB", job_id)
    b.state.custody.ended.add(job_id)
    leave(a)
    until_safe(a)
    shown = b.show(job_id)
    assert shown is not None
    assert (shown["state"], shown["result"]) == (b"acked", b"42")


def test_an_ack_that_only_a_node_waits_for_that_cannot_be_reached_does_not_keep_the_node(cluster: Cluster) -> None:
    a, b, c = cluster
    a("ADDJOB", "q", "body", 0, "REPLICATE", 3, client="anna")
    (job,) = a.answers["anna"]
    cluster.isolate(c)
    a("ACKJOB", job)
    leave(a)
    until_safe(a)
    assert a.node.leaving.facts()["cluster_leaving_acks_left"] == "1"
    stop(a)
    cluster.heal(b, c)
    cluster.advance(SECOND)
    assert taken_from(b, c) == []


def test_a_producer_that_waits_keeps_the_node(cluster: Cluster) -> None:
    a, _, _ = cluster
    leave(a)
    until_safe(a)
    cluster.lose = lambda flight: flight.kind == GOTJOB
    a("ADDJOB", "q", "body", 0, "REPLICATE", 2, client="anna")
    assert not is_safe(a)
    cluster.lose = lambda flight: False
    cluster.advance(SECOND)
    assert a.answers["anna"]
    until_safe(a)


def test_a_job_that_is_brought_after_all_is_moved_before_it_is_safe_to_stop(cluster: Cluster) -> None:
    a, b, c = cluster
    leave(a)
    until_safe(a)
    job = b.add("q", "body", "REPLICATE", 1, "RETRY", 0)
    jobs = b.node.federation.moves.give_away(b.state.queues.by_name[b"q"], 1, a.id)
    b.say(a, (YOURJOBS, tuple(jobs), True))
    assert a.holds(job)
    assert not is_safe(a)
    until_safe(a)
    assert not a.holds(job)
    assert taken_from(b, c) == [b"body"]


def test_a_node_that_was_leaving_when_it_stopped_goes_on_after_a_start(cluster: Cluster) -> None:
    a, b, _ = cluster
    a.add("q", "body", "REPLICATE", 1)
    cluster.isolate(a)
    a.state.leaving = True
    cluster.heal(a, b)
    until_safe(a)
    assert b("QLEN", "q") == 1


def test_a_flush_leaves_nothing_to_be_moved(cluster: Cluster) -> None:
    a, _, _ = cluster
    for number in range(10):
        a.add("q", number, "REPLICATE", 1)
    a("PAUSE", "q", "out", "node")
    leave(a)
    a.node.begin()
    a.node.flush()
    a.settle()
    assert not is_safe(a)
    assert until_safe(a) < SECOND


def test_who_has_to_be_told_hears_when_it_becomes_safe(cluster: Cluster) -> None:
    a, _, _ = cluster
    a.add("q", "body", "REPLICATE", 1)
    leave(a)
    a.node.outbox.members_changed = False
    assert waits_for(a) == leaving.UNDER_WAY
    until_safe(a)
    assert a.node.outbox.members_changed
    assert waits_for(a) == ""


def test_much_is_moved_piece_by_piece(cluster: Cluster) -> None:
    a, b, c = cluster
    for _ in range(60):
        a.add("q", "x" * 500_000, "REPLICATE", 1)
    cluster.hold(a, b)
    cluster.hold(a, c)
    leave(a)
    cluster.advance(SECOND)
    under_way = sum(
        len(stored.body)
        for other in (b, c)
        for flight in cluster.held(a, other)
        if flight.kind == YOURJOBS
        for stored in flight.data[1]
    )
    assert under_way <= leaving.BYTES_ON_THEIR_WAY_MAX + (2 << 20)
    cluster.release(a, b)
    cluster.release(a, c)
    until_safe(a)
    assert b("QLEN", "q") + c("QLEN", "q") == 60


@pytest.mark.parametrize("when", ["between two leavings", "while it leaves"])
def test_a_copy_that_a_node_may_have_lost_since_it_said_so_does_not_count(cluster: Cluster, when: str) -> None:
    a, b, c = cluster
    job_id = a.add("q", "x", "RETRY", 500, "REPLICATE", 1)
    a.get()
    leave(a)
    until_safe(a)
    if when == "between two leavings":
        leave(a, leaving=False)
    for member in (b, c):
        # It comes back, and has lost everything.
        cluster.cut(a, member)
        member("DELJOB", job_id)
        cluster.heal(a, member)
    leave(a)
    assert not is_safe(a)
    until_safe(a)
    assert b.holds(job_id) or c.holds(job_id)
