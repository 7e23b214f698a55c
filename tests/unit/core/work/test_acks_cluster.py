"""Acknowledgement across nodes: what is done is forgotten everywhere, never too early, and for good."""

from itertools import pairwise, permutations

import pytest

from disqued.core.model.endings import Endings
from disqued.core.model.ids import JobIds, comes_first
from disqued.core.model.job import ACKED, FLAG_CAME_BACK, JobOptions, JobState
from disqued.core.model.memory import COUNTS_COST, QUEUE_COST
from disqued.core.model.messages import DELJOB, GOTACK, QUEUED, REPLJOB, SETACK, YOURJOBS
from disqued.core.model.outbox import GONE_DELETED, JOB_ADDED, JOB_GONE, UNIT_DONE
from disqued.core.recovery import Recovery, walk
from disqued.core.work.ackrounds import ANSWER_MS, ASKED_AT_ONCE, RETRY_MAX_MS, STRANGERS_GIVEN_UP
from disqued.core.work.acks import ttl_of
from disqued.wire.jobdump import decode_record, encode_job
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import OLD_ID, UNKNOWN_ID, Server


def replicated(cluster: Cluster, *options: str | int) -> bytes:
    """A job that the first three nodes hold."""
    a = cluster.members[0]
    a("ADDJOB", "q", "body", 0, "REPLICATE", 3, *options)
    (job_id,) = a.answers.pop("client")
    return bytes(job_id)


def claimed(cluster: Cluster, member: Member) -> bytes:
    """A job that three nodes hold, of which one has the best claim to collect its ack."""
    while True:
        job_id = replicated(cluster)
        if all(comes_first(member.id, other.id, job_id) for other in cluster if other is not member):
            return job_id
        member("FASTACK", job_id)


def known(cluster: Cluster, job_id: bytes) -> str:
    """Names of the nodes that know a job, whatever they know of it."""
    return "".join(member.name for member in cluster if member.holds(job_id))


def is_clean(member: Member) -> bool:
    """Tell whether nothing of any job is left on a node."""
    state = member.state
    return (
        not len(state.jobs)
        and not state.custody.acked
        and not state.custody.evictable
        and not member.node.replication.pending
    )


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_ack_on_any_holder_is_collected_everywhere(place: int) -> None:
    cluster = Cluster(3)
    job_id = replicated(cluster)
    assert cluster.members[place]("ACKJOB", job_id) == 1
    assert all(map(is_clean, cluster))
    assert [len(cluster.sent(kind)) for kind in (SETACK, GOTACK, DELJOB)] == [2, 2, 2]
    for member in cluster:
        assert member.journal[-1] == (UNIT_DONE, job_id, b"")
        assert member.state.memory.used == sum(
            QUEUE_COST + COUNTS_COST + len(name) for name in member.state.queues.by_name
        )


def test_an_ack_is_kept_until_the_last_holder_knows() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster)
    cluster.isolate(c)
    a("ACKJOB", job_id)
    assert known(cluster, job_id) == "abc"
    for member in (a, b):
        shown = member.show(job_id)
        assert shown is not None
        assert (shown["state"], shown["body"]) == (b"acked", None)
    assert c.show(job_id)["state"] == b"active"  # type: ignore[index]
    cluster.advance(100_000)
    assert known(cluster, job_id) == "abc"
    cluster.heal(a, c)
    cluster.heal(b, c)
    cluster.advance(1)
    assert all(map(is_clean, cluster))


def test_a_job_that_is_done_but_kept_is_neither_delivered_nor_counted_again() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 1, "TTL", 50)
    cluster.isolate(c)
    assert a("ACKJOB", job_id) == 1
    assert a("ACKJOB", job_id) == 0
    for verb in ("ENQUEUE", "NACK"):
        assert [member(verb, job_id) for member in (a, b)] == [0, 0]
    for _ in range(20):
        cluster.advance(1_000)
        assert a.get() == []
        assert b.get() == []
    assert a.stat()["consumed"] == 1  # type: ignore[index]
    cluster.advance(31_000)
    assert all(map(is_clean, cluster))


def test_the_pause_between_two_attempts_doubles_up_to_three_minutes() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a("ADDJOB", "q", "x", 0, "RETRY", 10_000)
    cluster.lose = lambda flight: flight.kind == SETACK
    a("ACKJOB", bytes(a.answers["client"][0]))
    times: list[int] = []
    seen = 0
    for second in range(1_200):
        if len(cluster.lost) > seen:
            times.append(second)
            seen = len(cluster.lost)
        cluster.advance(1_000)
    for time, expected in zip(times, (0, 1, 3, 7, 15, 31, 63, 127, 255), strict=False):
        assert abs(time - expected) <= 2
    assert {later - earlier for earlier, later in pairwise(times[8:])} <= {179, 180, 181}
    assert RETRY_MAX_MS == 180_000
    assert b.state.jobs.get(a.answers["client"][0]) is not None


def test_when_a_link_comes_back_everything_that_waited_is_collected_at_once() -> None:
    cluster = Cluster(2)
    a, b = cluster
    for _ in range(1_500):
        a("ADDJOB", "q", "x", 0)
    cluster.cut(a, b)
    a("ACKJOB", *a.answers["client"])
    cluster.advance(500_000)
    assert len(a.state.custody.acked) == 1_500
    cluster.heal(a, b)
    cluster.advance(10)
    assert all(map(is_clean, cluster))


def behind_a_partition(cluster: Cluster, count: int) -> None:
    """Let the first of two nodes acknowledge jobs that both have, while there is no link between them."""
    a, b = cluster
    for _ in range(count):
        a("ADDJOB", "q", "x", 0)
    cluster.cut(a, b)
    ids = [bytes(job_id) for job_id in a.answers["client"]]
    a("ACKJOB", *ids)
    cluster.advance(10)
    assert len(a.state.custody.acked) == count
    cluster.flights.clear()


def test_a_node_is_asked_about_a_bounded_number_of_acks_at_a_time() -> None:
    count = 5 * ASKED_AT_ONCE
    cluster = Cluster(2)
    a, b = cluster
    behind_a_partition(cluster, count)
    cluster.advance(2_000)
    cluster.hold(b, a)
    cluster.heal(a, b)
    cluster.advance(ANSWER_MS // 2)
    assert len(cluster.sent(SETACK, a, b)) == ASKED_AT_ONCE
    cluster.repeat(next(flight for flight in cluster.held(b, a) if flight.kind == GOTACK))
    cluster.advance(ANSWER_MS // 2)
    assert len(cluster.sent(SETACK, a, b)) == 2 * ASKED_AT_ONCE


def test_a_round_of_acks_asks_everything_once() -> None:
    count = 5 * ASKED_AT_ONCE
    cluster = Cluster(2)
    behind_a_partition(cluster, count)
    cluster.advance(500_000)
    cluster.flights.clear()
    cluster.heal(*cluster)
    cluster.advance(20)
    assert all(map(is_clean, cluster))
    # The last that hears of it forgets at once: nobody has to tell it.
    assert [len(cluster.sent(kind)) for kind in (SETACK, GOTACK, DELJOB)] == [count, count, 0]


def test_a_round_goes_on_though_no_answer_comes_and_ends_when_the_link_does() -> None:
    cluster = Cluster(2)
    a, b = cluster
    behind_a_partition(cluster, 3 * ASKED_AT_ONCE)
    cluster.lose = lambda flight: flight.kind == GOTACK
    cluster.heal(a, b)
    cluster.advance(20_000)
    assert {flight.message[1] for flight in cluster.sent(SETACK, a, b)} == {job.id for job in a.state.custody.acked}
    cluster.cut(a, b)
    cluster.heal(a, b)
    cluster.cut(a, b)
    cluster.lose = lambda flight: False
    cluster.flights.clear()
    cluster.advance(20_000)
    assert not cluster.flights
    cluster.heal(a, b)
    cluster.advance(20)
    assert all(map(is_clean, cluster))


def test_an_ack_whose_next_attempt_comes_is_left_to_the_round_that_will_come_to_it() -> None:
    cluster = Cluster(2)
    a, b = cluster
    behind_a_partition(cluster, 4 * ASKED_AT_ONCE)
    cluster.hold(b, a)
    cluster.heal(a, b)
    cluster.advance(900)
    asked = len(cluster.sent(SETACK, a, b))
    for job in list(a.state.custody.acked):
        a.state.schedule.move(job, a.state.now + 10)
    cluster.advance(50)
    assert len(cluster.sent(SETACK, a, b)) == asked
    cluster.release(b, a)
    cluster.advance(20)
    assert all(map(is_clean, cluster))


def test_what_could_not_be_answered_is_asked_again_when_the_other_node_opens_its_link() -> None:
    cluster = Cluster(2)
    a, b = cluster
    behind_a_partition(cluster, 10)
    cluster._link(a, b)
    a.settle()
    cluster.advance(60_000)
    assert len(a.state.custody.acked) == 10
    cluster._link(b, a)
    b.settle()
    cluster.advance(10)
    assert all(map(is_clean, cluster))


def test_the_last_that_hears_of_an_ack_keeps_it_when_it_knows_of_another_holder() -> None:
    cluster = Cluster(4)
    a = cluster.members[0]
    job_id = claimed(cluster, a)
    b, c = [member for member in cluster if member is not a and member.holds(job_id)]
    (other,) = [member for member in cluster if not member.holds(job_id)]
    job = c.state.jobs.get(job_id)
    assert job is not None
    c.state.unite_holders(job, frozenset((other.id,)))
    cluster.isolate(other)
    cluster.isolate(c)
    a("ACKJOB", job_id)
    cluster.heal(a, c)
    cluster.advance(10)
    assert cluster.sent(SETACK, a, c)[-1].data[3] is True
    assert all(member.holds(job_id) for member in (a, b, c))
    for member in (a, b, c):
        cluster.heal(other, member)
    cluster.heal(b, c)
    cluster.advance(3_000)
    assert all(map(is_clean, cluster))


def test_of_two_that_tell_each_other_to_be_the_last_one_tells_the_others() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster)
    for member in cluster:
        cluster.isolate(member)
    for member in cluster:
        member("ACKJOB", job_id)
    cluster.heal(a, b)
    cluster.advance(3_000)
    job = c.state.jobs.get(job_id)
    assert job is not None
    job.confirmed = c.state.shared.holders(frozenset((a.id, c.id)))  # it has heard of that from a, some time ago
    cluster.hold(b, c)
    cluster.hold(c, b)
    cluster.heal(b, c)
    cluster.advance(3_000)
    for one, other in ((b, c), (c, b)):
        assert any(flight.data[3] for flight in cluster.held(one, other) if flight.kind == SETACK)
    cluster.release(b, c)
    cluster.release(c, b)
    assert known(cluster, job_id) == ""


def test_of_several_nodes_that_know_an_ack_one_asks_when_a_link_comes_back_and_the_others_wait_for_it() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    ids = [replicated(cluster) for _ in range(40)]
    cluster.isolate(c)
    a("ACKJOB", *ids)
    cluster.advance(100_000)
    cluster.flights.clear()
    cluster.heal(a, c)
    cluster.heal(b, c)
    cluster.advance(1_000)
    asked = [len(cluster.sent(SETACK, member, c)) for member in (a, b)]
    assert sum(asked) == 40
    assert min(asked) > 5
    assert all(map(is_clean, cluster))


def test_an_ack_is_collected_by_another_node_when_the_one_with_the_better_claim_fails_to() -> None:
    for number in range(8):
        cluster = Cluster(3, seed=number)
        a, b, c = cluster
        job_id = replicated(cluster)
        cluster.isolate(c)
        a("ACKJOB", job_id)
        # One of the two does not get through to c, and does not know it.
        cluster.lose = lambda flight, n=number, m=cluster.members: flight.sender is m[n % 2] and flight.receiver is m[2]  # type: ignore[misc]
        cluster.heal(a, c)
        cluster.heal(b, c)
        cluster.advance(10_000)
        assert not c.get()
        assert (b if number % 2 == 0 else a).holds(job_id) is False


def test_an_ack_reaches_holders_that_the_one_who_acknowledges_did_not_know() -> None:
    cluster = Cluster(4)
    a, b, c, d = cluster
    job_id = replicated(cluster)
    holders = [member for member in cluster if member.holds(job_id)]
    (other,) = [member for member in cluster if not member.holds(job_id)]
    one, two, three = holders
    # A copy on a fourth node, of which only one holder knows.
    two.node.begin()
    two.node.replication.copy_to(two.job(job_id), [other.id])
    two.settle()
    cluster.settle()
    assert one.job(job_id).holders == {one.id, two.id, three.id}
    one("ACKJOB", job_id)
    cluster.advance(10_000)
    assert all(map(is_clean, cluster))
    assert (a, b, c, d) == tuple(cluster)


# Acks of jobs that are not known here.


def test_an_ack_on_a_node_without_the_job_finds_its_holders() -> None:
    cluster = Cluster(4)
    job_id = replicated(cluster)
    (other,) = [member for member in cluster if not member.holds(job_id)]
    assert other("ACKJOB", job_id) == 0
    assert all(map(is_clean, cluster))


def test_an_ack_of_a_job_that_is_nowhere_is_forgotten_when_every_node_has_answered() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.cut(a, c)
    assert a("ACKJOB", UNKNOWN_ID) == 0
    shown = a.show(UNKNOWN_ID)
    assert shown is not None
    assert (shown["state"], shown["queue"], shown["body"], shown["nodes-delivered"]) == (b"acked", None, None, [])
    assert a("JSCAN", "BUSYLOOP") == [b"0", []]
    cluster.advance(5_000)
    assert a.show(UNKNOWN_ID) is not None
    cluster.heal(a, c)
    cluster.advance(1)
    assert all(map(is_clean, (a, b, c)))
    assert not any(member.journal for member in cluster)


def test_a_dummy_ack_lives_as_long_as_the_job_may() -> None:
    cluster = Cluster(2)
    a, b = cluster
    cluster.cut(a, b)
    life_ms = 179_999  # an id tells whole minutes
    options = JobOptions(ttl_ms=life_ms, retry_ms=1_000, delay_ms=0, replicate=1)
    job_id = JobIds(b.id, b"seed").next(options.ttl_suffix)
    a("ACKJOB", job_id)
    cluster.advance(life_ms)
    assert a.show(job_id) is not None
    cluster.advance(1)
    assert is_clean(a)


def test_two_dummy_acks_do_not_take_each_other_for_the_job() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster)
    # Two nodes forget the job; the third is away.
    cluster.isolate(c)
    a("DELJOB", job_id)
    b("DELJOB", job_id)
    a("ACKJOB", job_id)
    b("ACKJOB", job_id)
    cluster.advance(60_000)
    assert known(cluster, job_id) == "abc"
    for one, other in ((a, c), (b, c)):
        cluster.heal(one, other)
    cluster.advance(1)
    assert all(map(is_clean, cluster))


@pytest.mark.parametrize("fast", [False, True])
def test_a_copy_that_comes_when_everybody_has_forgotten_the_job_is_not_taken(fast: bool) -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster)
    copy = cluster.sent(REPLJOB, a, c)[0]
    b("FASTACK" if fast else "ACKJOB", job_id)
    assert known(cluster, job_id) == ""
    cluster.repeat(copy)
    assert known(cluster, job_id) == ""
    assert all(map(is_clean, cluster))


def test_a_copy_that_comes_after_its_node_has_heard_of_the_ack_is_not_taken() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.hold(a, c)
    a("ADDJOB", "q", "body", 0, "REPLICATE", 3, "RETRY", 5)
    job_id = next(iter(a.state.jobs)).id
    b("ACKJOB", job_id)
    cluster.release(a, c, order=lambda flights: sorted(flights, key=lambda flight: flight.kind != SETACK))
    assert known(cluster, job_id) == ""
    cluster.advance(20_000)
    assert c.get() == []


def test_who_still_has_a_job_that_has_ended_elsewhere_hears_so_when_it_speaks_of_it() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster, "RETRY", 5)
    copy = cluster.sent(REPLJOB, a, c)[0]
    b("ACKJOB", job_id)
    c.state.custody.ended = Endings()
    cluster.repeat(copy)
    assert known(cluster, job_id) == "c"
    cluster.advance(20_000)
    assert c.get() == []
    assert all(map(is_clean, cluster))


def test_a_job_that_was_only_deleted_here_may_come_again() -> None:
    cluster = Cluster(3)
    a, _, c = cluster
    job_id = replicated(cluster)
    copy = cluster.sent(REPLJOB, a, c)[0]
    c("DELJOB", job_id)
    cluster.repeat(copy)
    assert c.holds(job_id)
    recovery = Recovery(c.state, restores_queues=False)
    recovery.apply((JOB_GONE, job_id, GONE_DELETED))
    assert not c.holds(job_id)
    cluster.repeat(copy)
    assert c.holds(job_id)


def test_ids_of_jobs_that_have_ended_are_kept_in_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disqued.core.model.endings.KEPT", 10)
    cluster = Cluster(3)
    a, _, c = cluster
    ids = [replicated(cluster) for _ in range(35)]
    a("ACKJOB", *ids)
    remembered = [job_id in c.state.custody.ended for job_id in ids]
    assert remembered == [False] * 20 + [True] * 15
    a.node.flush()
    assert ids[-1] not in a.state.custody.ended


def test_a_job_that_comes_after_its_ack_is_not_delivered() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.hold(a, b)
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2)
    job_id = next(iter(a.state.jobs)).id
    cluster.lose = lambda flight: flight.kind in (SETACK, GOTACK) and a in flight[:2]
    b("ACKJOB", job_id)
    cluster.release(a, b)
    cluster.lose = lambda flight: False
    cluster.advance(400_000)
    assert not any(member.get() for member in cluster)
    assert all(map(is_clean, cluster))
    assert c.state is not None


@pytest.mark.parametrize("job_id", [OLD_ID.replace(b"003d", b"003c"), OLD_ID.replace(b"003d", b"zzzz")])
def test_no_dummy_ack_is_made_for_jobs_that_are_delivered_at_most_once(job_id: bytes) -> None:
    cluster = Cluster(2)
    cluster.members[0]("ACKJOB", job_id)
    assert all(map(is_clean, cluster))
    assert not cluster.flights


def test_a_lone_node_keeps_no_dummy_ack() -> None:
    server = Server()
    server("ACKJOB", UNKNOWN_ID)
    assert not len(server.state.jobs)


@pytest.mark.parametrize(
    ("job_id", "minutes"), [(UNKNOWN_ID, 0x5A1), (OLD_ID, 0x3E), (b"DI" + b"0" * 40 + b"0000SQ", 1)]
)
def test_the_id_tells_how_long_a_job_may_live(job_id: bytes, minutes: int) -> None:
    assert ttl_of(job_id) == minutes * 60_000


# Messages that come late, twice, or never.


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_acks_on_several_nodes_at_once_end_in_nothing(order: tuple[int, ...]) -> None:
    cluster = Cluster(3)
    members = cluster.members
    job_id = replicated(cluster)
    for one, other in permutations(members, 2):
        cluster.hold(one, other)
    for place in order:
        members[place]("ACKJOB", job_id)
    for place in order:
        for other in members:
            cluster.release(members[place], other, order=lambda flights: [*flights, *flights][::-1])
    cluster.advance(10_000)
    assert all(map(is_clean, cluster))


def test_every_single_loss_of_an_ack_message_is_made_up_for() -> None:
    for lost in range(6):
        cluster = Cluster(3)
        a = cluster.members[0]
        job_id = replicated(cluster)
        cluster.flights.clear()
        cluster.lose = lambda flight, n=lost, c=cluster: len(c.flights) + len(c.lost) == n  # type: ignore[misc]
        a("ACKJOB", job_id)
        cluster.advance(30_000)
        assert all(map(is_clean, cluster)), lost


@pytest.mark.parametrize("seed", range(4))
def test_the_node_that_collects_may_die_another_one_goes_on(seed: int) -> None:
    cluster = Cluster(3, seed=seed)
    a, b, c = cluster
    job_id = replicated(cluster)
    cluster.lose = lambda flight: flight.kind == GOTACK
    a("ACKJOB", job_id)
    cluster.lose = lambda flight: False
    cluster.isolate(a)
    cluster.advance(30_000)
    assert known(cluster, job_id) == "a"
    cluster.heal(a, b)
    cluster.heal(a, c)
    cluster.advance(3_000)
    assert all(map(is_clean, cluster))


def test_fastack_is_told_once_and_leaves_nothing_to_collect() -> None:
    cluster = Cluster(3)
    a = cluster.members[0]
    job_id = replicated(cluster)
    assert a("FASTACK", job_id) == 1
    assert all(map(is_clean, cluster))
    assert len(cluster.sent(DELJOB)) == 2
    assert not cluster.sent(SETACK)


def test_fastack_of_a_job_that_is_not_known_here_is_told_to_everybody() -> None:
    cluster = Cluster(4)
    job_id = replicated(cluster)
    (other,) = [member for member in cluster if not member.holds(job_id)]
    assert other("FASTACK", job_id) == 0
    assert all(map(is_clean, cluster))


# Nodes that are gone for good.


def test_a_holder_that_was_forgotten_is_not_waited_for() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster)
    cluster.isolate(c)
    a("ACKJOB", job_id)
    for member in (a, b):
        del member.state.peers.by_id[c.id]
        member.state.peers.forgotten.add(c.id)
    cluster.advance(10_000)
    assert is_clean(a)
    assert is_clean(b)


def test_a_holder_that_nobody_here_has_met_is_given_up_after_a_while() -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = replicated(Cluster(3))
    a("ADDJOB", "q", "x", 0)
    job_id = bytes(a.answers["client"][0])
    for member in (a, b):
        member.state.unite_holders(member.job(job_id), frozenset((b"9" * 40,)))
    a("ACKJOB", job_id)
    cluster.advance(5_000)
    assert known(cluster, job_id) == "ab"
    cluster.advance(1_000 * 2 ** (STRANGERS_GIVEN_UP + 1))
    assert all(map(is_clean, cluster))


# After a restart.


def test_an_ack_that_not_everybody_knows_outlives_a_crash() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster)
    cluster.isolate(a)
    a("ACKJOB", job_id)
    for journal in (a.journal, list(walk(a.state))):
        server = Server()
        server.state.journaling = False
        recovery = Recovery(server.state, restores_queues=False)
        for record in journal:
            assert record is not None
            assert record[0] == JOB_ADDED
            data = encode_job(record[1], a.clock.wall() - a.clock.now())
            recovery.apply(decode_record(data))
        job = server.job(job_id)
        assert (job.state, job.body, job.holders) == (3, b"", frozenset(member.id for member in cluster))
        assert list(server.state.custody.acked) == [job]
        server.advance(5_000)
        assert server.get() == []
    assert (b, c) == tuple(cluster.members[1:])


def test_what_has_no_copy_left_to_be_sent_does_not_lose_its_body_with_its_ack() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a.node.begin()
    job_id = a("ADDJOB", "q", "the body", 0, "REPLICATE", 2, "ASYNC")
    (flight,) = cluster.sent(REPLJOB)
    a("ACKJOB", job_id)
    assert flight.message[1].body == b"the body"
    assert is_clean(b)


def test_an_ack_is_not_collected_by_a_node_that_cannot_write_it_down() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = replicated(cluster)
    a.state.durability.read_only = True
    a("ACKJOB", job_id)
    cluster.advance(500)
    assert known(cluster, job_id) == "abc"
    assert [member.job(job_id).state for member in cluster] == [ACKED] * 3
    assert not cluster.sent(DELJOB, a)
    a.state.durability.read_only = False
    cluster.advance(10_000)
    assert all(map(is_clean, (a, b, c)))


def test_an_ack_of_a_job_that_came_back_from_a_store_reaches_nodes_that_the_store_does_not_know() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    job_id = a.add("q", "x", "REPLICATE", 1)
    offset = a.clock.wall() - a.clock.now()
    written = [encode_job(record[1], offset) for record in walk(a.state) if record is not None]
    # It moves, which nobody writes down; then the node comes back from its journal.
    b.wait("bob")
    assert b.answered("bob") == [b"x"]
    a.node.flush()
    a.state.journaling = False
    recovery = Recovery(a.state, restores_queues=False)
    for data in written:
        recovery.apply(decode_record(data))
    a.state.journaling = True
    assert a.job(job_id).holders is None
    a("ACKJOB", job_id)
    cluster.advance(1)
    assert all(map(is_clean, cluster))


def test_a_holder_that_hears_last_of_an_ack_has_nothing_to_keep() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a("ADDJOB", "q", "x", 0)
    job_id = bytes(a.answers["client"][0])
    cluster.lose = lambda flight: flight.kind in (GOTACK, DELJOB)
    a("ACKJOB", job_id)
    assert is_clean(b)
    cluster.lose = lambda flight: False
    cluster.advance(2_000)
    assert is_clean(a)


# Acks that a node does not keep, and jobs that it knows too little of.


@pytest.mark.parametrize("reason", ["leaving", "memory"])
def test_a_node_that_keeps_no_ack_of_an_unknown_job_tells_the_cluster_once(reason: str) -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = a.add("q", "x", "REPLICATE", 1, "RETRY", 5)
    a.get()
    if reason == "leaving":
        c("CLUSTER", "LEAVING", "yes")
    else:
        c.state.memory.set_limit(1_000_000)
        c.state.memory.used = 900_000
    for other in (a, b):
        cluster.hold(other, c)  # so that no answer ends what it would keep
    assert c("ACKJOB", job_id) == 0
    assert not any(member.holds(job_id) for member in cluster)
    assert not c.state.custody.acked
    assert len(cluster.sent(SETACK, c)) == 2
    assert not b.state.custody.acked


@pytest.mark.parametrize("way", ["timer", "NACK", "ENQUEUE"])
def test_the_ack_of_a_job_that_came_back_goes_to_all_though_it_was_queued_again_since(way: str) -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    job_id = a.add("q", "x", "REPLICATE", 1, "RETRY", 5)
    a.node.begin()
    (queue,) = a.state.queues.by_name.values()
    jobs = a.node.federation.moves.give_away(queue, 1, b.id)
    a.state.send(b.id, (YOURJOBS, tuple(jobs), True))
    a.settle()
    cluster.settle()
    # a comes back from its journal, which does not know of the move.
    job = a.job(job_id)
    job.holders = None
    job.flags |= FLAG_CAME_BACK
    if way == "timer":
        job.requeue_at = a.state.now + 100
        a.state.schedule.move(job, job.requeue_at)
        cluster.advance(100)
    else:
        a(way, job_id)
    cluster.lose = lambda flight: flight.kind == QUEUED
    assert a.job(job_id).state == JobState.QUEUED
    assert b.job(job_id).state == JobState.QUEUED
    assert [row[1] for row in a.get()] == [job_id]
    assert a("ACKJOB", job_id) == 1
    assert not any(member.holds(job_id) for member in cluster)
