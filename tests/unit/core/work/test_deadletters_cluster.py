"""Retry policy in a cluster: what holders of a job tell each other of tries, delays and dead jobs."""

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.job import ACKED, ACTIVE, DEAD, FLAG_ASKING, FLAG_PUT_OFF
from disqued.core.model.job import QUEUED as QUEUED_STATE
from disqued.core.model.messages import FATE, QUEUED, REDRIVE, WILLQUEUE, WORKING
from disqued.core.model.outbox import JOB_ADDED, UNIT_LEASED
from disqued.core.recovery import AT_END, Recovery
from disqued.core.work import deadletters
from disqued.core.work.copies import SPREAD_MS
from disqued.core.work.requeueing import LATE
from disqued.wire.jobdump import decode_record, encode_event, encode_job
from tests.cluster_fixtures import Cluster, Flight, Member
from tests.core_fixtures import Word


def added(cluster: Cluster, *options: Word) -> bytes:
    """A job that three nodes hold and that a consumer of the first one has."""
    a = cluster.members[0]
    a("ADDJOB", "q", "body", 0, "REPLICATE", 3, *options)
    (job_id,) = a.answers.pop("client")
    assert [row[1] for row in a.get()] == [job_id]
    cluster.flights.clear()
    return bytes(job_id)


def states(cluster: Cluster, job_id: bytes) -> list[bytes]:
    return [bytes((member.show(job_id) or {"state": b"gone"})["state"]) for member in cluster]


def tries(member: Member, job_id: bytes) -> tuple[int, int]:
    job = member.job(job_id)
    return job.nacks, job.additional_deliveries


def test_all_holders_count_the_same_tries_and_bury_the_job_together() -> None:
    cluster = Cluster(3)
    a = cluster.members[0]
    job_id = added(cluster, "MAXTRIES", 3, "RETRY", 5)
    a("NACK", job_id)
    assert [tries(member, job_id) for member in cluster] == [(1, 0)] * 3
    a.get()
    cluster.advance(5_000)
    assert [tries(member, job_id) for member in cluster] == [(1, 1)] * 3
    holder = next(member for member in cluster if member.show(job_id)["state"] == b"queued")
    holder.get()
    holder("NACK", job_id, "REASON", "last")
    assert states(cluster, job_id) == [b"dead"] * 3
    assert len({member.job(job_id).options.fate for member in cluster}) == 1
    assert [failure.reason for failure in a.job(job_id).options.fate.failures] == [
        b"", b"neither acknowledged nor heard of within 5 s", b"last",
    ]  # fmt: skip
    cluster.advance(60_000)
    assert not any(member.get() for member in cluster)


def test_reasons_of_a_job_without_terms_do_not_count_twice() -> None:
    cluster = Cluster(3)
    a = cluster.members[0]
    job_id = added(cluster, "RETRY", 5)
    a("NACK", job_id, "REASON", "why")
    assert [tries(member, job_id) for member in cluster] == [(1, 0)] * 3


def test_a_count_reaches_the_journal_of_each_holder() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    job_id = added(cluster, "MAXTRIES", 3, "RETRY", 5)
    b.journal.clear()
    a("ENQUEUE", job_id)
    assert [record[1].id for record in b.journal if record[0] == JOB_ADDED] == [job_id]
    assert tries(b, job_id) == (0, 1)


@pytest.mark.parametrize("latency", [100, 1_100])
def test_holders_whose_put_off_has_ended_do_not_put_each_other_off_for_ever(latency: int) -> None:
    cluster = Cluster(2)
    a, b = cluster
    a("ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 5, "MAXTRIES", 2)
    (job_id,) = a.answers.pop("client")
    a.get()
    a("NACK", job_id, "DELAY", 60)
    for _ in range(100_000 // latency):
        cluster.hold(a, b)
        cluster.hold(b, a)
        cluster.advance(latency)
        cluster.release(a, b)
        cluster.release(b, a)
    assert sorted(states(cluster, job_id)) == [b"active", b"queued"]
    assert [tries(member, job_id) for member in cluster] == [(1, 0)] * 2


def test_a_late_word_of_a_put_off_that_has_ended_moves_no_timer() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a("ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 50)
    (job_id,) = a.answers.pop("client")
    a.get()
    a("NACK", job_id, "DELAY", 60)
    cluster.advance(60_000)
    assert len(a.get()) == 1
    before = b.job(job_id).requeue_at
    a.say(b, (FATE, job_id, 1, 1, 0, a.job(job_id).options.fate))
    assert b.job(job_id).requeue_at == before
    assert not b.job(job_id).flags & FLAG_PUT_OFF


def test_a_word_of_more_tries_ends_a_put_off_of_which_the_end_was_not_heard() -> None:
    """The job was queued, given back and delivered elsewhere meanwhile: that it is queued again counts a try."""
    cluster = Cluster(3)
    a, b, _ = cluster
    a("ADDJOB", "q", "body", 0, "REPLICATE", 3, "RETRY", 50, "MAXTRIES", 3)
    (job_id,) = a.answers.pop("client")
    a.get()
    a("NACK", job_id, "DELAY", 60)
    cluster.advance(1_000)
    assert b.job(job_id).flags & FLAG_PUT_OFF
    a.say(b, (FATE, job_id, 0, 2, 0, a.job(job_id).options.fate))
    assert b.job(job_id).nacks == 2
    assert not b.job(job_id).flags & FLAG_PUT_OFF
    b.node.begin()
    assert not b.node.requeueing.enqueue(b.job(job_id), why=LATE)
    assert b.show(job_id)["state"] == b"dead"


def test_an_old_word_of_a_put_off_hides_no_try_that_came_after_it() -> None:
    """A node that was away takes the job to be put off yet; the one that asks has delivered it since."""
    cluster = Cluster(2)
    a, b = cluster
    a("ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 50, "MAXTRIES", 2)
    (job_id,) = a.answers.pop("client")
    a.get()
    a("NACK", job_id, "DELAY", 60)
    word = (FATE, job_id, 1, 1, 0, b.job(job_id).options.fate)
    cluster.advance(60_000)
    assert len(a.get()) == 1
    cluster.cut(a, b)
    cluster.advance(50_000)
    job = a.job(job_id)
    assert job.flags & FLAG_ASKING
    a.hear(Flight(b, a, word, word))
    assert not job.flags & FLAG_PUT_OFF


def test_a_holder_heeds_the_word_that_a_consumer_has_a_job_that_it_takes_to_be_put_off() -> None:
    """Else it would queue the job at the end of the put-off, and count no try."""
    cluster = Cluster(2)
    a, b = cluster
    a("ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 50, "MAXTRIES", 2)
    (job_id,) = a.answers.pop("client")
    a.get()
    a("NACK", job_id, "DELAY", 60)
    assert b.job(job_id).flags & FLAG_PUT_OFF
    a.say(b, (WORKING, job_id, b"", 50_000))
    assert not b.job(job_id).flags & FLAG_PUT_OFF
    assert b.job(job_id).requeue_at >= b.state.now + 50_000


def test_a_put_off_holds_on_all_nodes_and_ends_on_the_one_that_was_told() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = added(cluster, "RETRY", 5, "MAXTRIES", 9)
    a("NACK", job_id, "DELAY", 60)
    for other in (b, c):
        assert other.job(job_id).flags & FLAG_PUT_OFF
        assert 60_000 <= other.job(job_id).requeue_at - other.state.now <= 60_000 + SPREAD_MS
    cluster.advance(59_000)
    assert not cluster.sent(WILLQUEUE)
    assert states(cluster, job_id) == [b"active"] * 3
    cluster.advance(2_000)
    assert states(cluster, job_id) == [b"queued", b"active", b"active"]
    assert [tries(member, job_id) for member in cluster] == [(1, 0)] * 3
    assert not any(member.job(job_id).flags & FLAG_PUT_OFF for member in cluster)


def test_a_job_that_is_put_off_through_another_holder_is_with_no_consumer() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    job_id = added(cluster, "RETRY", 60, "MAXTRIES", 2, "RESULT", 300)
    assert b("NACK", job_id, "DELAY", 40, "REASON", "later") == 1
    assert [member("NACK", job_id, "DELAY", 40) for member in cluster] == [0] * 3, "nobody has it"
    assert states(cluster, job_id) == [b"active"] * 3
    assert a("CANCEL", job_id) == [b"cancelled"]
    cluster.advance(1_000)
    for member in cluster:
        ((_, state, _, count, _),) = member("WAITJOB", 1, job_id)
        assert (state, count) == (b"cancelled", 1)


@pytest.mark.parametrize("terms", [(), ("MAXTRIES", 1)])
def test_a_job_that_is_returned_untried_through_another_holder_waits_there_and_counts_nothing(
    terms: tuple[Word, ...],
) -> None:
    cluster = Cluster(3)
    _, b, _ = cluster
    job_id = added(cluster, "RETRY", 60, *terms)
    assert b("NACK", job_id, "UNTRIED") == 1
    cluster.advance(1_000)
    assert states(cluster, job_id) == [b"active", b"queued", b"active"]
    assert [tries(member, job_id) for member in cluster] == [(0, 0)] * 3
    assert [row[1] for row in b.get()] == [job_id]
    assert b("ACKJOB", job_id) == 1


def test_when_the_holder_of_a_put_off_is_gone_another_one_queues_the_job_and_counts_no_try() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = added(cluster, "RETRY", 5, "MAXTRIES", 2)
    a("NACK", job_id, "DELAY", 60)
    cluster.isolate(a)
    cluster.advance(200_000)
    assert {b"queued"} <= set(states(cluster, job_id)[1:])
    assert [tries(member, job_id) for member in (b, c)] == [(1, 0)] * 2


Written = dict[str, list[bytes]]


def write(cluster: Cluster, job_id: bytes, written: Written) -> None:
    """Write down what each journal has heard of a job since the last call."""
    for member in cluster:
        offset = member.clock.wall() - member.clock.now()
        for record in member.journal:
            if record[0] == JOB_ADDED and record[1].id == job_id:
                written[member.name] = [encode_job(member.job(job_id), offset, ACTIVE)]
            elif record[0] == UNIT_LEASED:
                written[member.name].append(encode_event(record, member.clock.wall()))
        member.journal.clear()


def restart(member: Member, written: Written) -> None:
    """Let a node have nothing but what its journal has."""
    member.node.flush()
    member.state.journaling = False
    recovery = Recovery(member.state, restores_queues=False)
    lines = written[member.name]
    assert recovery.apply_some(map(decode_record, lines), len(lines) + 1) is AT_END
    member.node.begin()
    recovery.finish()
    member.state.journaling = True


def test_a_crash_of_all_holders_gives_a_job_that_was_put_off_no_more_tries() -> None:
    cluster = Cluster(2)
    a, _ = cluster
    a("ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 5, "MAXTRIES", 2)
    (job_id,) = a.answers.pop("client")
    a.get()
    a("NACK", job_id, "DELAY", 2)
    written: Written = {}
    write(cluster, job_id, written)
    cluster.advance(3_000)
    write(cluster, job_id, written)
    assert len(a.get()) == 1  # the last try
    write(cluster, job_id, written)
    for member in cluster:
        restart(member, written)
    for _ in range(20):
        cluster.advance(1_000)
        assert not [member for member in cluster if member.get()]
    assert states(cluster, job_id) == [b"dead"] * 2


@pytest.mark.parametrize("asks_first", ["a", "b"])
def test_a_node_that_crashes_tells_the_other_holders_that_nobody_had_a_job(asks_first: str) -> None:
    cluster = Cluster(3)
    a = cluster.members[0]
    a("ADDJOB", "q", "body", 0, "REPLICATE", 3, "RETRY", 5, "MAXTRIES", 1)
    (job_id,) = a.answers.pop("client")
    assert states(cluster, job_id) == [b"queued", b"active", b"active"]
    written: Written = {}
    write(cluster, job_id, written)
    cluster.advance(4_000 if asks_first == "b" else 0)
    restart(a, written)
    cluster.advance(12_000)
    assert sorted(states(cluster, job_id)) == [b"active", b"active", b"queued"]
    assert [tries(member, job_id) for member in cluster] == [(0, 0)] * 3
    write(cluster, job_id, written)
    # Whoever has it now crashes, too, once with it waiting there and once with it delivered.
    (holder,) = [member for member in cluster if member.job(job_id).state == QUEUED_STATE]
    restart(holder, written)
    cluster.advance(12_000)
    assert [tries(member, job_id) for member in cluster] == [(0, 0)] * 3
    (holder,) = [member for member in cluster if member.job(job_id).state == QUEUED_STATE]
    assert len(holder.get()) == 1
    write(cluster, job_id, written)
    restart(holder, written)
    cluster.advance(20_000)
    assert states(cluster, job_id) == [b"dead"] * 3


def test_a_holder_that_counted_a_try_is_not_told_that_nobody_had_it() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a("ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 5, "MAXTRIES", 2)
    (job_id,) = a.answers.pop("client")
    written: Written = {}
    write(cluster, job_id, written)
    cluster.cut(a, b)
    b("ENQUEUE", job_id)
    assert tries(b, job_id) == (0, 1)
    assert len(b.get()) == 1
    restart(a, written)
    cluster.heal(a, b)
    cluster.advance(20_000)
    assert states(cluster, job_id) == [b"dead"] * 2
    assert not [member for member in cluster if member.get()]


def test_a_holder_that_missed_the_put_off_hears_of_it_when_it_asks() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a("ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 5)
    (job_id,) = a.answers.pop("client")
    a.get()
    cluster.lose = lambda flight: flight.kind == FATE
    a("NACK", job_id, "DELAY", 60)
    assert not b.job(job_id).flags & FLAG_PUT_OFF
    cluster.lose = lambda flight: False
    cluster.advance(7_000)
    assert b.job(job_id).flags & FLAG_PUT_OFF
    cluster.advance(51_000)
    assert states(cluster, job_id) == [b"active"] * 2
    cluster.advance(5_000)
    assert b"queued" in states(cluster, job_id)
    assert [tries(member, job_id) for member in cluster] == [(1, 0)] * 2


def test_a_holder_with_a_consumer_lets_the_job_go_and_its_ack_still_counts() -> None:
    cluster = Cluster(3)
    a, b, _c = cluster
    job_id = added(cluster, "RETRY", 50)
    b("ENQUEUE", job_id)
    assert [row[1] for row in b.get()] == [job_id]
    a("NACK", job_id, "DEAD")
    assert states(cluster, job_id) == [b"dead"] * 3
    assert b("ACKJOB", job_id) == 1
    cluster.advance(5_000)
    assert states(cluster, job_id) == [b"gone"] * 3


def test_a_copy_that_is_done_stays_done() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = added(cluster, "RETRY", 50)
    cluster.cut(a, b)
    cluster.cut(a, c)
    b("ACKJOB", job_id)
    assert b.job(job_id).state == ACKED
    a("NACK", job_id, "DEAD")
    cluster.heal(a, b)
    cluster.heal(a, c)
    cluster.advance(10_000)
    assert states(cluster, job_id) == [b"gone"] * 3


def test_a_holder_that_missed_the_death_hears_of_it_when_it_asks_or_queues() -> None:
    for word in ("", "ENQUEUE"):
        cluster = Cluster(3)
        a, b, _c = cluster
        job_id = added(cluster, "RETRY", 5, "MAXTRIES", 1)
        cluster.lose = lambda flight: flight.kind == FATE
        a("NACK", job_id)
        assert states(cluster, job_id) == [b"dead", b"active", b"active"]
        cluster.lose = lambda flight: False
        if word:
            b("ENQUEUE", job_id)
        cluster.advance(10_000)
        assert not b.get()
        assert states(cluster, job_id) == [b"dead"] * 3


def test_sides_that_shared_the_tries_agree_that_the_job_is_dead() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a("ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 5, "MAXTRIES", 3)
    (job_id,) = a.answers.pop("client")
    a.get()
    cluster.cut(a, b)
    for _ in range(2):
        a("NACK", job_id)
        a.get()
    b("ENQUEUE", job_id)
    b.get()
    assert [tries(member, job_id) for member in cluster] == [(2, 0), (0, 1)]
    cluster.heal(a, b)
    b("ENQUEUE", job_id)
    cluster.advance(30_000)
    assert states(cluster, job_id) == [b"dead"] * 2


def test_a_dead_job_moves_with_a_node_that_leaves() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = a.add("q", "body", "REPLICATE", 1, "RETRY", 5, "MAXTRIES", 1)
    a.get()
    a("NACK", job_id, "REASON", "why")
    put_off = a.add("q", "later", "REPLICATE", 1, "RETRY", 5)
    a.get()
    a("NACK", put_off, "DELAY", 100)
    a("CLUSTER", "LEAVING", "yes")
    cluster.advance(20_000)
    cluster.isolate(a)
    holders = [member for member in (b, c) if member.holds(job_id)]
    assert holders
    for member in holders:
        assert member.job(job_id).state == DEAD
        assert [failure.reason for failure in member.job(job_id).options.fate.failures] == [b"why"]
        assert not member.get()
    keeper = next(member for member in (b, c) if member.holds(put_off))
    assert keeper.job(put_off).state == ACTIVE
    cluster.advance(70_000)
    assert not any(member.get() for member in (b, c))
    cluster.advance(120_000)
    assert keeper.show(put_off)["state"] == b"queued"
    assert tries(keeper, put_off) == (1, 0)


def test_a_job_moves_with_its_tries_to_where_a_consumer_waits() -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = a.add("q", "body", "REPLICATE", 1, "RETRY", 500, "MAXTRIES", 2)
    a.get()
    a("NACK", job_id)
    b.wait("anna")
    assert b.answered("anna") == [b"body"]
    b("NACK", job_id)
    assert states(cluster, job_id) == [b"dead"] * 2


def test_fate_comes_before_queued() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    job_id = added(cluster, "RETRY", 5, "MAXTRIES", 5)
    a("NACK", job_id)
    assert [flight.kind for flight in cluster.flights if flight.receiver is b] == [FATE, QUEUED]


def redrive(cluster: Cluster, member: Member, *words: Word) -> int:
    assert member("REDRIVE", "q", *words, client="ops") is BLOCKED
    cluster.advance(1_000)
    (count,) = member.answers.pop("ops")
    assert isinstance(count, int)
    return count


def dead_jobs(cluster: Cluster, count: int) -> list[bytes]:
    """Jobs that all nodes hold, added here and there, and that are dead."""
    ids: list[bytes] = []
    for number in range(count):
        member = cluster.members[number % len(cluster.members)]
        member("ADDJOB", "q", number, 0, "REPLICATE", len(cluster.members), "RETRY", 50, "MAXTRIES", 1)
        (job_id,) = member.answers.pop("client")
        member.get()
        member("NACK", job_id)
        ids.append(job_id)
    assert all(set(states(cluster, job_id)) == {b"dead"} for job_id in ids)
    return ids


def test_a_redrive_counts_each_job_of_the_cluster_once() -> None:
    cluster = Cluster(3)
    ids = dead_jobs(cluster, 30)
    assert redrive(cluster, cluster.members[1]) == 30
    for job_id in ids:
        assert sorted(states(cluster, job_id)) == [b"active", b"active", b"queued"]
        assert {member.job(job_id).options.fate.generation for member in cluster} == {1}
        assert [tries(member, job_id) for member in cluster] == [(0, 0)] * 3
    assert redrive(cluster, cluster.members[2]) == 0
    assert sum(len(member.get(count=100)) for member in cluster) == 30


def test_a_count_is_one_for_the_whole_cluster() -> None:
    cluster = Cluster(3)
    ids = dead_jobs(cluster, 30)
    assert redrive(cluster, cluster.members[0], "COUNT", 17) == 17
    assert sum(states(cluster, job_id) == [b"dead"] * 3 for job_id in ids) == 13
    assert redrive(cluster, cluster.members[0], "ID", *ids, "RATE", 100) == 13


def test_what_its_first_holder_does_not_have_is_redriven_by_another_one() -> None:
    cluster = Cluster(3)
    ids = dead_jobs(cluster, 30)
    for job_id in ids:
        cluster.members[0].node.begin()
        cluster.members[0]("DELJOB", job_id)
    assert redrive(cluster, cluster.members[1]) == 30


def test_a_node_that_is_away_hears_of_the_redrive_later_and_one_that_is_silent_is_not_waited_for() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    (job_id,) = dead_jobs(cluster, 1)
    cluster.isolate(c)
    assert redrive(cluster, a) == 1
    assert c.job(job_id).state == DEAD
    for other in (a, b):
        cluster.heal(other, c)
    cluster.advance(2_000)
    queued = a if a.job(job_id).state == QUEUED_STATE else b
    assert queued.get()
    cluster.advance(60_000)
    assert c.job(job_id).options.fate.generation == 1
    cluster.lose = lambda flight: flight.kind == REDRIVE
    assert a("REDRIVE", "q", client="ops") is BLOCKED
    cluster.advance(10_000)
    assert len(a.answers["ops"]) == 1


def delivered(cluster: Cluster, count: int) -> list[bytes]:
    """Ids of the jobs that clients got which wait on each node, so many of them."""
    return sorted(
        row[1]
        for member in cluster
        for number in range(count)
        for rows in member.answers[f"waiter {number}"]
        for row in rows
    )


def wait_everywhere(cluster: Cluster, count: int) -> None:
    for member in cluster:
        for number in range(count):
            member.wait(f"waiter {number}")


def test_a_redriven_job_is_delivered_once_though_its_holders_do_not_agree_who_they_are() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    ids = dead_jobs(cluster, 9)
    for job_id in ids:
        for member, other in ((a, c), (b, a), (c, b)):
            member.job(job_id).holders = frozenset((member.id, other.id))
    wait_everywhere(cluster, len(ids))
    assert redrive(cluster, a) >= len(ids)
    cluster.advance(10_000)
    assert delivered(cluster, len(ids)) == sorted(ids)


def test_a_redriven_job_is_delivered_once_though_the_word_of_it_comes_late() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    ids = dead_jobs(cluster, 9)
    cluster.hold(a, b)
    cluster.hold(b, a)
    wait_everywhere(cluster, len(ids))
    redrive(cluster, c)
    cluster.release(a, b)
    cluster.release(b, a)
    cluster.advance(10_000)
    assert delivered(cluster, len(ids)) == sorted(ids)
    for job_id in ids:
        assert {member.job(job_id).options.fate.generation for member in cluster} == {1}


def test_a_redriven_job_waits_for_a_silent_holder_no_longer_than_any_other_job() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    (job_id,) = dead_jobs(cluster, 1)
    cluster.isolate(c)
    assert redrive(cluster, a) == 1
    assert b"queued" not in states(cluster, job_id)
    cluster.advance(30_000)
    assert b"queued" in states(cluster, job_id)[:2]
    assert [tries(member, job_id) for member in (a, b)] == [(0, 0)] * 2


def test_a_queue_that_is_paused_takes_what_is_redriven_at_once() -> None:
    cluster = Cluster(3)
    (job_id,) = dead_jobs(cluster, 1)
    cluster.members[0]("PAUSE", "q", "in")
    assert redrive(cluster, cluster.members[0]) == 1
    assert b"queued" in states(cluster, job_id)


def test_a_crash_before_the_other_holders_have_answered_takes_no_try_of_a_redriven_job() -> None:
    cluster = Cluster(2)
    a, b = cluster
    (job_id,) = dead_jobs(cluster, 1)
    cluster.cut(a, b)
    written: Written = {}
    write(cluster, job_id, written)
    assert redrive(cluster, a) == 1
    assert a.job(job_id).state == ACTIVE
    write(cluster, job_id, written)
    restart(a, written)
    cluster.heal(a, b)
    cluster.advance(10_000)
    assert sum(len(member.get()) for member in cluster) == 1
    assert [tries(member, job_id) for member in cluster] == [(0, 0)] * 2


def test_two_sides_that_both_redrive_have_one_job_afterwards() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    (job_id,) = dead_jobs(cluster, 1)
    cluster.cut(a, b)
    cluster.cut(a, c)
    assert redrive(cluster, a) == redrive(cluster, b) == 1
    cluster.heal(a, b)
    cluster.heal(a, c)
    cluster.advance(60_000)
    assert sorted(states(cluster, job_id)) == [b"active", b"active", b"queued"]


def test_a_holder_that_was_away_hears_of_the_death_as_soon_as_it_is_back() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    a("ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 60, "MAXTRIES", 2)
    (job_id,) = a.answers.pop("client")
    other = next(m for m in (b, c) if m.holds(job_id))
    third = c if other is b else b
    assert a.get()
    cluster.isolate(a)
    other("NACK", job_id, "DEAD")
    cluster.heal(a, other)
    cluster.heal(a, third)
    cluster.advance(1_000)
    assert a.job(job_id).state == DEAD


def test_a_holder_that_was_away_hears_of_deaths_bit_by_bit() -> None:
    a, b = cluster = Cluster(2)
    a.node.letters.told_at_once = 2
    for _ in range(5):
        a("ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 60)
    job_ids = [job.id for job in a.state.jobs]
    assert len(job_ids) == 5
    cluster.isolate(b)
    for job_id in job_ids:
        a("DEQUEUE", job_id)
        a("NACK", job_id, "DEAD")
    cluster.heal(a, b)
    counts = []
    for _ in range(4):
        counts.append(sum(b.job(job_id).state == DEAD for job_id in job_ids))
        cluster.advance(deadletters.TOLD_AGAIN_MS)
    assert counts[0] < 5 == counts[-1]
    assert counts == sorted(counts)


def test_a_node_that_leaves_hands_over_dead_jobs_that_were_delivered_once() -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = a.add("q", "body", "RETRY", 0, "REPLICATE", 1)
    a.get("q")
    assert a("NACK", job_id, "DEAD") == 1
    a("CLUSTER", "LEAVING", "yes")
    cluster.advance(5_000)
    assert a.node.leaving.is_safe
    shown = b.show(job_id)
    assert shown is not None
    assert shown["state"] == b"dead"
