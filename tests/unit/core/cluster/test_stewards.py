"""Limits of the whole cluster: stewards give slots, and nodes hand out what has one."""

import pytest

from disqued.core.cluster.admission import AHEAD_MS, AHEAD_PART, GIVEN_MS
from disqued.core.cluster.witnesses import TOGETHER_MS
from disqued.core.model.job import FLAG_ASKING
from disqued.core.model.messages import (
    SLOTS_CLAIM,
    SLOTS_CLAIMED,
    SLOTS_GIVEN,
    SLOTS_KEEP,
    SLOTS_KEPT,
    SLOTS_WANTED,
    WILLQUEUE,
    SlotsKnown,
    SlotSpan,
)
from disqued.core.model.policies import (
    AVAILABLE,
    GROUPINFLIGHT_FIELD,
    GROUPRATE_FIELD,
    INFLIGHT_FIELD,
    PARTITION_FIELD,
    RATE_FIELD,
)
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import BLOCKED, Server, check


@pytest.fixture
def server() -> Server:
    return Server()


def limit(server: Server, field: int, *numbers: int, queue: bytes = b"q") -> None:
    server.node.begin()
    server.node.policies.set(queue, {field: numbers})


def test_a_limit_lets_so_many_jobs_be_with_consumers(server: Server) -> None:
    limit(server, INFLIGHT_FIELD, 2)
    jobs = [server("ADDJOB", "q", f"{number}", 0) for number in range(5)]
    for name in "abcd":
        server("GETJOB", "FROM", "q", client=name)
    server.advance(10)
    assert set(server.answers) == {"a", "b"}
    assert server("ACKJOB", jobs[0]) == 1
    server.advance(10)
    assert set(server.answers) == {"a", "b", "c"}
    assert server("NACK", jobs[1]) == 1
    server.advance(10)
    assert set(server.answers) == {"a", "b", "c", "d"}
    check(server)


def test_who_would_not_wait_hears_that_there_is_nothing(server: Server) -> None:
    limit(server, INFLIGHT_FIELD, 1)
    server("ADDJOB", "q", "0", 0)
    server("ADDJOB", "q", "1", 0)
    for name in "ab":
        server("GETJOB", "NOHANG", "FROM", "q", client=name)
    server.advance(10)
    assert [len(server.answers[name][0] or []) for name in "ab"] == [1, 0]


def test_a_group_has_so_many_jobs_with_consumers_and_others_go_on(server: Server) -> None:
    limit(server, GROUPINFLIGHT_FIELD, 1)
    jobs = [server("ADDJOB", "q", f"{group}{number}", 0, "GROUP", group) for number in range(3) for group in "xy"]
    for name in "abcd":
        server("GETJOB", "FROM", "q", client=name)
    server.advance(10)
    assert [server.answers[name][0][0][2] for name in "ab"] == [b"x0", b"y0"]
    assert server("ACKJOB", jobs[1]) == 1
    server.advance(10)
    assert server.answers["c"][0][0][2] == b"y1"
    assert "d" not in server.answers


def test_a_rate_gives_what_the_bucket_has(server: Server) -> None:
    limit(server, RATE_FIELD, 10, 1_000, 2)
    for number in range(50):
        server("ADDJOB", "q", f"{number}", 0)
    for name in range(50):
        server("GETJOB", "FROM", "q", client=name)
    server.advance(1_000)
    assert len(server.answers) == 10
    server.advance(1_000)
    assert len(server.answers) == 20


def test_a_rate_may_be_slow(server: Server) -> None:
    limit(server, RATE_FIELD, 1, 10_000, 1)
    for number in range(9):
        server("ADDJOB", "q", f"{number}", 0)
        server("GETJOB", "FROM", "q", client=number)
    server.advance(41_000)
    assert len(server.answers) == 4


def test_a_rate_of_groups(server: Server) -> None:
    limit(server, GROUPRATE_FIELD, 1, 1_000, 1)
    for number in range(10):
        for group in "xyz":
            server("ADDJOB", "q", f"{group}{number}", 0, "GROUP", group)
    for name in range(20):
        server("GETJOB", "FROM", "q", client=name)
    server.advance(3_500)
    taken = [answer[0][0][2] for answer in server.answers.values()]
    assert sorted(taken) == [b"%b%d" % (group, number) for group in (b"x", b"y", b"z") for number in range(3)]


def test_a_rate_of_groups_leaves_jobs_without_a_group_alone(server: Server) -> None:
    limit(server, GROUPRATE_FIELD, 1, 60_000, 1)
    server("ADDJOB", "q", "x", 0, "GROUP", "x")
    for number in range(5):
        server("ADDJOB", "q", f"{number}", 0)
    for name in range(6):
        server("GETJOB", "FROM", "q", client=name)
    server.advance(1_000)
    assert sorted(answer[0][0][2] for answer in server.answers.values()) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("field", [RATE_FIELD, GROUPRATE_FIELD])
def test_the_bucket_of_a_rate_that_was_just_set_is_empty(server: Server, field: int) -> None:
    limit(server, INFLIGHT_FIELD, 9)
    for number in range(5):
        server("ADDJOB", "q", f"{number}", 0, "GROUP", "x")
    server("GETJOB", "FROM", "q", client=0)
    server.advance(60_000)
    limit(server, field, 3, 10_000, 3)
    for name in range(1, 5):
        server("GETJOB", "FROM", "q", client=name)
    server.advance(3_000)
    assert len(server.answers) == 1
    server.advance(1_000)
    assert len(server.answers) == 2


def cluster_with(values: dict[int, tuple[int, ...]], size: int = 3) -> Cluster:
    cluster = Cluster(size)
    for member in cluster.members[1:]:
        member.clock.jump_wall(cluster.members[0].clock.wall() - member.clock.wall())
        member.node.begin()
        member.node.witnesses.start()
    cluster.advance(10_000)
    for field, numbers in values.items():
        limit(cluster.members[0], field, *numbers)
    cluster.advance(1_000)
    return cluster


def steward(cluster: Cluster) -> Member:
    return cluster.by_id[cluster.members[0].node.witnesses.steward_of(b"q")]


class Crowd:
    """Consumers of a cluster, and what they have."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.count = 0
        self.seen = 0
        self.running: dict[bytes, tuple[Member, bytes]] = {}

    def wait(self, count: int, *members: Member) -> None:
        """Let so many consumers wait on each of these nodes, or on each."""
        for member in members or self.cluster.members:
            for _ in range(count):
                self.count += 1
                member.wait(f"consumer {self.count}", "q")

    def take(self) -> list[bytes]:
        """Look who was given something; returns the bodies."""
        taken = []
        for member in self.cluster:
            for client, rows in list(member.answers.items()):
                if client == "client":
                    continue
                for _, job_id, body in rows[0] or ():
                    self.running[job_id] = (member, body)
                    taken.append(body)
                del member.answers[client]
        return sorted(taken)

    def done(self, count: int = 1) -> None:
        """Let so many consumers acknowledge what they have."""
        for job_id in list(self.running)[:count]:
            member, _ = self.running.pop(job_id)
            assert member("ACKJOB", job_id) == 1


def fill(cluster: Cluster, count: int, *members: Member) -> None:
    """Add so many jobs on each of these nodes, or on each."""
    for number in range(count):
        for member in members or cluster.members:
            member("ADDJOB", "q", f"{member.name}{number}", 0, "REPLICATE", 1)


def test_a_limit_holds_over_all_nodes() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (3,)})
    crowd = Crowd(cluster)
    fill(cluster, 4)
    crowd.wait(4)
    cluster.advance(100)
    taken = crowd.take()
    for _ in range(11):
        assert len(crowd.running) <= 3
        crowd.done()
        cluster.advance(100)
        taken += crowd.take()
    assert len(set(taken)) == 12


def test_when_the_steward_is_gone_another_one_knows_who_has_what() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (2,)})
    crowd = Crowd(cluster)
    first = steward(cluster)
    others = [member for member in cluster if member is not first]
    fill(cluster, 4)
    crowd.wait(3, *others)
    cluster.advance(100)
    assert len(crowd.take()) == 2
    cluster.isolate(first)
    cluster.advance(100)
    crowd.take()
    assert len(crowd.running) == 2
    crowd.done()
    cluster.advance(100)
    assert len(crowd.take()) == 1


def test_without_a_majority_nothing_is_given() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (2,)})
    crowd = Crowd(cluster)
    fill(cluster, 4)
    for member in cluster:
        cluster.isolate(member)
    crowd.wait(1)
    cluster.advance(60_000)
    assert crowd.take() == []
    a, b, c = cluster
    cluster.heal(a, b)
    cluster.advance(60_000)
    assert len(crowd.take()) == 2
    cluster.heal(a, c)
    cluster.heal(b, c)
    cluster.advance(10_000)
    assert crowd.take() == []
    crowd.done()
    cluster.advance(10_000)
    assert len(crowd.take()) == 1


def test_with_partition_available_each_side_gives_as_many() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,), PARTITION_FIELD: (AVAILABLE,)})
    crowd = Crowd(cluster)
    fill(cluster, 4)
    crowd.wait(2)
    cluster.advance(1_000)
    assert len(crowd.take()) == 1
    a, b, c = cluster
    cluster.isolate(a)
    cluster.advance(60_000)
    crowd.take()
    assert len(crowd.running) == 2
    cluster.heal(a, b)
    cluster.heal(a, c)
    cluster.advance(60_000)
    crowd.done()
    cluster.advance(10_000)
    assert crowd.take() == []
    crowd.done()
    cluster.advance(10_000)
    assert len(crowd.take()) == 1


def test_with_partition_available_a_node_that_the_steward_does_not_reach_is_given_nothing() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,), PARTITION_FIELD: (AVAILABLE,)})
    crowd = Crowd(cluster)
    first = steward(cluster)
    other = next(member for member in cluster if member is not first)
    fill(cluster, 1, other)
    reachable = first.state.peers.reachable
    first.state.peers.reachable = tuple(node_id for node_id in reachable if node_id != other.id)
    crowd.wait(1, other)
    cluster.advance(100)
    assert crowd.take() == []
    first.state.peers.reachable = reachable
    cluster.advance(3_000)
    assert len(crowd.take()) == 1


@pytest.mark.parametrize("kind", [SLOTS_WANTED, SLOTS_GIVEN, SLOTS_KEEP, SLOTS_KEPT, SLOTS_CLAIM, SLOTS_CLAIMED])
def test_a_lost_message_holds_nothing_up_for_long(kind: int) -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (2,)})
    crowd = Crowd(cluster)
    left = [1, 1, 1]
    cluster.lose = lambda flight: flight.kind == kind and bool(left) and bool(left.pop())
    fill(cluster, 3)
    crowd.wait(3)
    taken: list[bytes] = []
    for _ in range(9):
        cluster.advance(10_000)
        taken += crowd.take()
        assert len(crowd.running) == min(2, 9 - len(taken) + len(crowd.running))
        crowd.done()
    assert len(set(taken)) == 9


def test_the_oldest_goes_first_wherever_it_is() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    crowd = Crowd(cluster)
    crowd.wait(4)
    for number in range(4):
        for member in cluster:
            member("ADDJOB", "q", f"{number}{member.name}", 0, "REPLICATE", 1)
            cluster.advance(10)
    taken = []
    for _ in range(12):
        cluster.advance(1_000)
        taken += crowd.take()
        crowd.done()
    assert taken == sorted(taken)
    assert len(taken) == 12


def test_a_job_that_nobody_acknowledges_has_its_slot_until_it_may_come_again() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    crowd = Crowd(cluster)
    a, b, _ = cluster
    a("ADDJOB", "q", "first", 0, "RETRY", 60)
    crowd.wait(1, a)
    cluster.advance(100)
    assert crowd.take() == [b"first"]
    b("ADDJOB", "q", "second", 0)
    crowd.wait(1, b)
    cluster.advance(59_000)
    assert crowd.take() == []
    cluster.advance(5_000)
    assert len(crowd.take()) == 1


def test_a_job_whose_time_is_over_keeps_no_slot_while_its_holders_are_asked() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    a = steward(cluster)
    b, _ = (member for member in cluster if member is not a)
    b("ADDJOB", "q", "first", 0, "RETRY", 10, "REPLICATE", 3)
    cluster.advance(100)
    crowd = Crowd(cluster)
    crowd.wait(1, b)
    cluster.advance(100)
    assert crowd.take() == [b"first"]
    a("ADDJOB", "q", "second", 0, "REPLICATE", 1)
    crowd.wait(1, a)
    cluster.lose = lambda flight: flight.kind == WILLQUEUE
    cluster.advance(14_000)
    assert b.job(next(iter(crowd.running))).flags & FLAG_ASKING
    assert crowd.take() == []
    cluster.advance(2_500)
    assert crowd.take() == [b"second"]


NO_SLOT = (
    "TOOLATE No consumer of this node has a slot for the job: its retry time is over, or another node handed it out."
)


def test_working_does_not_take_a_job_back_whose_slot_is_over(server: Server) -> None:
    limit(server, INFLIGHT_FIELD, 1)
    first, _ = (server("ADDJOB", "q", f"{number}", 0, "RETRY", 10) for number in range(2))
    server("GETJOB", "FROM", "q", client="a")
    server.advance(9_000)
    assert server("WORKING", first) == 10
    server.advance(9_000)
    assert server("WORKING", first) == 10, "its slot is that of the lease that began again"
    server.advance(11_000)
    assert server.refusal("WORKING", first) == NO_SLOT
    assert server("QLEN", "q") == 2, "it stays where it is"
    server("GETJOB", "FROM", "q", client="b")
    server.advance(10)
    assert server.job(first).additional_deliveries == 1
    server("QPOLICY", "q", "UNSET", "INFLIGHT")
    server.advance(11_000)
    assert server("WORKING", first) == 10, "a queue without limits has no slots"


def test_working_is_said_to_the_node_that_handed_the_job_out() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    a, b, _ = cluster
    a("ADDJOB", "q", "body", 0, "RETRY", 60, "REPLICATE", 3)
    cluster.advance(100)
    crowd = Crowd(cluster)
    crowd.wait(1, a)
    cluster.advance(100)
    assert crowd.take() == [b"body"]
    (job_id,) = crowd.running
    assert b.refusal("WORKING", job_id) == NO_SLOT
    assert a("WORKING", job_id) == 60


def test_a_queue_that_is_not_limited_any_more_gives_everything() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    crowd = Crowd(cluster)
    fill(cluster, 2)
    crowd.wait(2)
    cluster.advance(1_000)
    crowd.take()
    limit(cluster.members[0], INFLIGHT_FIELD)
    cluster.advance(1_000)
    crowd.take()
    assert len(crowd.running) == 6


def test_an_answer_that_comes_late_gives_nothing() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    crowd = Crowd(cluster)
    first = steward(cluster)
    other = next(member for member in cluster if member is not first)
    cluster.lose = lambda flight: flight.kind == SLOTS_WANTED and bool(cluster.held(first, other))
    cluster.hold(first, other)
    other("ADDJOB", "q", "late", 0, "REPLICATE", 1)
    crowd.wait(1, other)
    cluster.advance(GIVEN_MS + 2_000)
    assert any(flight.kind == SLOTS_GIVEN for flight in cluster.held(first, other))
    cluster.release(first, other)
    assert crowd.take() == []
    cluster.lose = lambda flight: False
    cluster.advance(10_000)
    assert crowd.take() == [b"late"]


def test_a_node_that_follows_a_later_steward_remembers_nothing_for_one_before_it() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    witness, earlier, later = cluster
    first = witness.node.witnesses.of(b"q").promised[0] + 1_000_000_000_000_000
    later.say(witness, (SLOTS_CLAIM, b"q", first + 1))
    earlier.say(witness, (SLOTS_CLAIM, b"q", first))
    earlier.say(witness, (SLOTS_KEEP, b"q", first, 0, 1, (), ()))
    cluster.advance(10)
    kept = [flight.message for flight in cluster.sent(SLOTS_KEPT) if flight.receiver is earlier]
    assert kept == [(SLOTS_KEPT, b"q", first + 1, later.id, 0)]
    later.say(witness, (SLOTS_KEEP, b"q", first + 1, 0, 1, (), ()))
    cluster.advance(10)
    kept = [flight.message for flight in cluster.sent(SLOTS_KEPT) if flight.receiver is later]
    assert kept == [(SLOTS_KEPT, b"q", first + 1, later.id, 1)]


def test_a_node_that_began_anew_is_asked_in_vain_until_a_steward_has_told_it_all() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    a, b, c = cluster
    assert [member.node.witnesses.of(b"q").is_complete for member in cluster] == [True] * 3
    crowd = Crowd(cluster)
    for member in (a, b):
        member.node.witnesses.forget(b"q")
        member.node.witnesses.start()
    cluster.isolate(c)
    fill(cluster, 1)
    crowd.wait(1, a, b)
    cluster.advance(10_000)
    assert crowd.take() == []
    cluster.heal(a, c)
    cluster.heal(b, c)
    cluster.advance(10_000)
    assert len(crowd.take()) == 1
    assert [member.node.witnesses.of(b"q").is_complete for member in cluster] == [True] * 3


def taken_in_turn(server: Server, count: int, pause_ms: int) -> int:
    """Let one consumer take and acknowledge jobs, with a pause behind each; count those that it got at once."""
    at_once = 0
    for _ in range(count):
        rows = server("GETJOB", "FROM", "q", client="fast")
        if rows is BLOCKED:
            server.advance(3)
            ((rows,),) = [server.answers.pop("fast")]
        else:
            at_once += 1
        server("ACKJOB", rows[0][1])
        server.advance(pause_ms)
    return at_once


def ahead_with(server: Server, field: int, *numbers: int) -> None:
    limit(server, field, *numbers)
    for number in range(200):
        server("ADDJOB", "q", f"{number}", 0)


def test_a_fast_consumer_does_not_wait_for_each_slot(server: Server) -> None:
    ahead_with(server, INFLIGHT_FIELD, 500)
    assert taken_in_turn(server, 100, 1) > 80
    server.advance(AHEAD_MS + 5)
    assert server("SLOTS", "q") == []
    assert server("QLEN", "q") == 100
    check(server)


@pytest.mark.parametrize(
    ("field", "numbers", "pause_ms"),
    [(INFLIGHT_FIELD, (500,), AHEAD_MS + 10), (INFLIGHT_FIELD, (1,), 1), (RATE_FIELD, (1_000, 1_000, 200), 1)],
    ids=["a slow consumer", "a small limit", "a rate"],
)
def test_nothing_is_asked_for_ahead_of(field: int, numbers: tuple[int, ...], pause_ms: int) -> None:
    server = Server()
    ahead_with(server, field, *numbers)
    assert taken_in_turn(server, 30, pause_ms) == 0


def test_what_was_asked_for_ahead_is_half_of_the_limit_at_most(server: Server) -> None:
    ahead_with(server, INFLIGHT_FIELD, 40)
    for _ in range(50):
        taken_in_turn(server, 1, 1)
        assert len(server("SLOTS", "q")) <= 40 // AHEAD_PART + 1


def test_what_nobody_took_goes_to_consumers_of_other_nodes() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (500,)})
    a, b, _ = cluster
    for number in range(20):
        a("ADDJOB", "q", f"{number}", 0)
    for _ in range(5):
        a("GETJOB", "FROM", "q", client="fast")
        cluster.advance(3)
    for number in range(15):
        b.wait(number)
    cluster.advance(AHEAD_MS + 3_000)
    assert sum(len(b.answered(number)) for number in range(15)) == 15


def test_what_was_given_before_a_stall_of_the_node_is_asked_for_again(server: Server) -> None:
    """The steward counts its slots from before the stall: they would end before the leases do."""
    ahead_with(server, INFLIGHT_FIELD, 500)
    assert taken_in_turn(server, 20, 1) > 10
    while not server.state.queues.by_name[b"q"].grouped.given:
        taken_in_turn(server, 1, 1)
    server.clock.advance(GIVEN_MS)
    assert server("GETJOB", "FROM", "q", client="late") is BLOCKED
    server.advance(5)
    assert len(server.answers["late"][0]) == 1
    check(server)


def test_a_new_steward_does_not_believe_who_stood_still_that_its_lease_goes_on() -> None:
    """The job is with another node meanwhile; when the first one says that its lease is over, that slot stays."""
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    s = steward(cluster)
    stood_still, holder = [member for member in cluster if member is not s]
    holder("ADDJOB", "q", "0", 0)
    holder("ADDJOB", "q", "1", 0)
    holder.wait("has it")
    cluster.advance(500)
    ((((_, job_id, _),),),) = [holder.answers["has it"]]
    boot = stood_still.node.witnesses.boot
    for other in (stood_still, holder):
        cluster.hold(s, other)
    stood_still.say(s, (SLOTS_CLAIM, b"q", s.state.wall + 60_000))
    cluster.advance(3_000)
    this = s.node.stewards.of(b"q")
    assert this is not None
    assert not this.is_active
    known = SlotsKnown(True, 0, b"", 0, ())
    late = (SlotSpan(job_id, b"", stood_still.id, boot, 3_000, b""),)
    stood_still.say(s, (SLOTS_CLAIMED, b"q", this.counter, s.id, known, late))
    cluster.advance(50)
    assert this.is_active
    assert this.table.by_id[job_id].node_id == holder.id
    stood_still.say(s, (SLOTS_WANTED, b"q", this.counter, boot, 1 << 20, False, (), (), (job_id,), ()))
    assert this.table.by_id[job_id].node_id == holder.id


def test_a_job_that_two_nodes_have_keeps_its_slot_when_one_of_them_ends_it() -> None:
    """Both began anew with the lease of a worker that moves; one has said so only when the steward asked."""
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    s = steward(cluster)
    heir, holder = [member for member in cluster if member is not s]
    holder("ADDJOB", "q", "0", 0)
    holder.wait("has it")
    cluster.advance(500)
    ((((_, job_id, _),),),) = [holder.answers["has it"]]
    boot = heir.node.witnesses.boot
    for other in (heir, holder):
        cluster.hold(s, other)
    heir.say(s, (SLOTS_CLAIM, b"q", s.state.wall + 60_000))
    cluster.advance(3_000)
    this = s.node.stewards.of(b"q")
    assert this is not None
    span = (SlotSpan(job_id, b"", heir.id, boot, 60_000, b"worker"),)
    heir.say(s, (SLOTS_CLAIMED, b"q", this.counter, s.id, SlotsKnown(True, 0, b"", 0, ()), span))
    cluster.advance(50)
    assert this.is_active
    assert this.table.by_id[job_id].node_id == holder.id
    ended = (SLOTS_WANTED, b"q", this.counter, holder.node.witnesses.boot, 1 << 20, False, (), (), (job_id,), ())
    holder.say(s, ended)
    assert this.table.by_id[job_id].node_id == heir.id


# Jobs of other nodes.


def groups_of(member: Member) -> list[bytes]:
    """Bodies of the jobs that wait on a node."""
    queue = member.node.state.queues.by_name.get(b"q")
    return [] if queue is None else [unit.job.body for unit in queue.units]


def add_grouped(member: Member, *bodies: str) -> None:
    for body in bodies:
        member("ADDJOB", "q", body, 0, "RETRY", 300, "REPLICATE", 1, "GROUP", body[0])


@pytest.mark.parametrize(
    ("field", "numbers"), [(GROUPINFLIGHT_FIELD, (1,)), (GROUPRATE_FIELD, (1, 60_000, 1))], ids=["slots", "tokens"]
)
@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_group_that_has_to_wait_holds_up_no_job_of_another_node(
    field: int, numbers: tuple[int, ...], first: int
) -> None:
    cluster = cluster_with({field: numbers})
    crowd = Crowd(cluster)
    there, here = cluster.members[first], cluster.members[first - 1]
    add_grouped(there, "z0")
    crowd.wait(1, there)
    cluster.advance(70_000)  # until the first tokens have come
    assert crowd.take() == [b"z0"]
    add_grouped(there, *(f"a{number}" for number in range(10)), "b0", "c0")
    crowd.wait(1, there)
    cluster.advance(100)
    assert crowd.take() == [b"a0"]
    crowd.wait(3, here)
    cluster.advance(1_000)
    assert crowd.take() == [b"b0", b"c0"]
    assert len(groups_of(here)) <= 2
    check(there)
    check(here)


def test_a_job_moves_when_its_group_has_a_slot_again() -> None:
    cluster = cluster_with({GROUPINFLIGHT_FIELD: (1,)})
    crowd = Crowd(cluster)
    there, here, _ = cluster
    add_grouped(there, "a0", "a1", "a2")
    crowd.wait(1, there)
    cluster.advance(100)
    assert crowd.take() == [b"a0"]
    crowd.wait(1, here)
    cluster.advance(1_000)
    assert crowd.take() == groups_of(here) == []
    crowd.done()
    cluster.advance(1_000)
    assert crowd.take() == [b"a1"]
    assert groups_of(there) == [b"a2"]


def test_a_consumer_that_came_and_went_takes_no_job_out_of_its_order() -> None:
    cluster = cluster_with({GROUPINFLIGHT_FIELD: (1,)})
    crowd = Crowd(cluster)
    there, here, _ = cluster
    add_grouped(there, "acme: open", "acme: pay", "acme: ship")
    crowd.wait(1, there)
    cluster.advance(100)
    here("GETJOB", "TIMEOUT", 500, "FROM", "q", client="other")
    cluster.advance(1_000)
    for expected in (b"acme: open", b"acme: pay", b"acme: ship"):
        assert crowd.take() == [expected]
        crowd.done()
        crowd.wait(1, there)
        cluster.advance(1_000)


def test_the_slot_of_a_node_that_began_anew_ends_with_its_job() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    first = steward(cluster)
    there, here = (member for member in cluster if member is not first)
    job_id = there.add("q", "a", "RETRY", 3_000, "REPLICATE", 3, "ASYNC")
    there.wait("consumer", "q")
    cluster.advance(100)
    assert there.answered("consumer") == [b"a"]
    cluster.restart(there)
    cluster.advance(2_000)
    here.add("q", "b", "RETRY", 3_000, "REPLICATE", 3, "ASYNC")
    here.wait("consumer", "q")
    cluster.advance(10_000)
    assert "consumer" not in here.answers  # a consumer may still have the job
    assert [member.node.stewards.lost for member in cluster if member is not first] == [{}, {}]
    assert first.node.stewards.lost == {b"q": 1}
    assert list(there.node.witnesses.of(b"q").table.by_id) == [job_id]
    assert here("ACKJOB", job_id) == 1
    cluster.advance(5_000)
    assert here.answered("consumer") == [b"b"]
    assert first.node.stewards.lost == {}


def test_a_steward_with_nothing_of_a_queue_tells_its_lost_slots_where_queues_are_listed() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    first = steward(cluster)
    there = next(member for member in cluster if member is not first)
    there.add("q", "a", "RETRY", 3_000, "REPLICATE", 1)
    there.wait("consumer", "q")
    cluster.advance(100)
    assert first("QSCAN", "REPLY", "figures") == [b"0", []]
    cluster.restart(there)
    cluster.advance(12_000)
    cursor, [row] = first("QSCAN", "REPLY", "figures")
    assert (cursor, row[0], row[-1]) == (b"0", b"q", 1)


def test_slots_of_a_node_whose_link_is_new_are_not_lost_once_it_has_spoken() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    first = steward(cluster)
    there = next(member for member in cluster if member is not first)
    there.add("q", "a", "RETRY", 3_000, "REPLICATE", 3, "ASYNC")
    there.wait("consumer", "q")
    cluster.advance(100)
    cluster.cut(there, first)
    cluster.advance(2_000)
    assert first.node.stewards.lost == {b"q": 1}
    cluster.heal(there, first)
    cluster.advance(20_000)
    assert first.node.stewards.lost == {}


def test_a_node_that_cannot_be_told_what_ended_gives_its_jobs_when_their_slots_are_over() -> None:
    cluster = cluster_with({GROUPINFLIGHT_FIELD: (1,)})
    crowd = Crowd(cluster)
    first = steward(cluster)
    there, here = (member for member in cluster if member is not first)
    there("ADDJOB", "q", "a0", 0, "RETRY", 10, "REPLICATE", 1, "GROUP", "a")
    add_grouped(there, "a1")
    crowd.wait(1, there)
    cluster.advance(100)
    assert crowd.take() == [b"a0"]
    cluster.lose = lambda flight: flight.kind == SLOTS_KEEP and there in (flight.receiver, flight.sender)
    crowd.done()
    crowd.wait(1, here)
    cluster.advance(60_000)
    assert crowd.take() == [b"a1"]


# Several queues, and consumers that do not wait.


def bodies_for(member: Member | Server, name: str, *words: object, within_ms: int = 20) -> list[bytes]:
    """Let a consumer ask; returns what it is given within a time."""
    rows = member("GETJOB", *words, client=name)
    if isinstance(member, Member):
        member.cluster.advance(within_ms)
    else:
        member.advance(within_ms)
    if rows == BLOCKED:
        rows = member.answers.pop(name)[0]
    return [body for _, _, body in rows or ()]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize(
    ("field", "numbers"), [(INFLIGHT_FIELD, (5,)), (GROUPINFLIGHT_FIELD, (1,)), (RATE_FIELD, (1_000, 1_000, 50))]
)
@pytest.mark.parametrize("how", [("TIMEOUT", 5_000), ("NOHANG",)])
def test_a_limited_queue_that_is_named_first_comes_first(
    size: int, field: int, numbers: tuple[int, ...], how: tuple[object, ...]
) -> None:
    cluster = cluster_with({field: numbers}, size)
    member = cluster.members[-1]
    for number in range(4):
        member("ADDJOB", "q", f"first {number}", 0, "GROUP", f"{number}", "REPLICATE", 1)
        member("ADDJOB", "plain", f"last {number}", 0, "REPLICATE", 1)
    taken = bodies_for(member, "first", *how, "FROM", "q", within_ms=1_000)  # a steward begins, and tokens come
    for turn in range(8 - len(taken)):
        taken += bodies_for(member, f"{turn}", *how, "FROM", "q", "plain")
    assert taken == [b"%b %d" % (word, number) for word in (b"first", b"last") for number in range(4)]
    check(member)


def test_a_queue_that_is_at_its_limit_holds_up_none_that_is_named_behind_it(server: Server) -> None:
    limit(server, INFLIGHT_FIELD, 1)
    for number in range(3):
        server("ADDJOB", "q", f"{number}", 0)
        server("ADDJOB", "plain", f"plain {number}", 0)
    taken = [bodies_for(server, name, "FROM", "q", "plain") for name in "abc"]
    assert taken == [[b"0"], [b"plain 0"], [b"plain 1"]]


def test_a_steward_that_does_not_answer_is_waited_for_once() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (5,)})
    first = steward(cluster)
    other = next(member for member in cluster if member is not first)
    other("ADDJOB", "q", "limited", 0, "REPLICATE", 1)
    for number in range(3):
        other("ADDJOB", "plain", f"{number}", 0, "REPLICATE", 1)
    cluster.lose = lambda flight: flight.kind == SLOTS_WANTED
    pauses = enumerate([1_500, 10, 10])
    assert [bodies_for(other, f"{n}", "FROM", "q", "plain", within_ms=ms) for n, ms in pauses] == [
        [b"0"],
        [b"1"],
        [b"2"],
    ]
    cluster.lose = lambda flight: False
    assert bodies_for(other, "patient", "FROM", "q", "plain", within_ms=5_000) == [b"limited"]


@pytest.mark.parametrize("size", [1, 3])
def test_who_would_not_wait_uses_up_no_token_for_nothing(size: int) -> None:
    """A poll each 37 ms takes what ten tokens a second let through."""
    cluster = cluster_with({RATE_FIELD: (10, 1_000, 1)}, size)
    asking = cluster.members[0]
    for number in range(100):
        asking("ADDJOB", "q", f"{number}", 0, "REPLICATE", 1)
    bodies_for(asking, "first", "NOHANG", "FROM", "q", within_ms=1_000)
    polls = range(0, 5_000, 37)
    taken = [body for at in polls for body in bodies_for(asking, f"{at}", "NOHANG", "FROM", "q", within_ms=37)]
    assert 45 <= len(taken) <= 51


def test_a_list_that_is_limited_and_named_first_comes_first(server: Server) -> None:
    limit(server, INFLIGHT_FIELD, 5)
    server("ADDJOB", "q", "limited", 0)
    server("ADDJOB", "plain", "plain", 0)
    assert server("RQ.POP", "q", "plain", client="pops") == BLOCKED
    server.advance(10)
    assert b"limited" in server.answers["pops"][0][0]


def test_a_poll_leaves_nothing_behind_with_the_steward(server: Server) -> None:
    limit(server, INFLIGHT_FIELD, 1)
    for number in range(2):
        server("ADDJOB", "q", f"{number}", 0)
    assert bodies_for(server, "first", "FROM", "q") == [b"0"]
    assert bodies_for(server, "second", "NOHANG", "FROM", "q") == []
    this = server.node.stewards.of(b"q")
    assert this is not None
    assert this.applicants.by_id == {}


def test_the_token_of_a_job_that_was_not_handed_out_is_there_again() -> None:
    cluster = cluster_with({RATE_FIELD: (1, 60_000, 2)})
    first = steward(cluster)
    other = next(member for member in cluster if member is not first)
    for number in range(3):
        other("ADDJOB", "q", f"{number}", 0, "REPLICATE", 1)
    other.wait("first", "q")
    cluster.advance(62_000)
    assert [body for _, _, body in other.answers["first"][0]] == [b"0"]
    cluster.advance(60_000)  # one token has come
    cluster.hold(first, other)
    other("GETJOB", "TIMEOUT", 100, "FROM", "q", client="gone")
    cluster.advance(500)
    assert any(flight.kind == SLOTS_GIVEN for flight in cluster.held(first, other))
    cluster.release(first, other)
    cluster.advance(100)
    other.wait("next", "q")
    cluster.advance(100)
    assert [body for _, _, body in other.answers["next"][0]] == [b"1"]


def test_many_jobs_of_a_group_that_has_to_wait_are_not_asked_for(server: Server) -> None:
    limit(server, GROUPINFLIGHT_FIELD, 1)
    for number in range(1_100):
        server("ADDJOB", "q", f"a{number}", 0, "GROUP", "a")
    server("ADDJOB", "q", "b0", 0, "GROUP", "b")
    taken = [bodies_for(server, name, "TIMEOUT", 5, "FROM", "q", within_ms=10) for name in "xy"]
    assert taken == [[b"a0"], [b"b0"]]
    check(server)


def test_a_group_that_waits_no_more_is_asked_for_again() -> None:
    cluster = cluster_with({GROUPRATE_FIELD: (1, 60_000, 1)})
    crowd = Crowd(cluster)
    there, here, _ = cluster
    add_grouped(there, "a0")
    crowd.wait(1, there)
    cluster.advance(62_000)
    assert crowd.take() == [b"a0"]
    add_grouped(there, "a1", "a2")
    crowd.wait(2, here)
    cluster.advance(50_000)
    assert (groups_of(here), groups_of(there)) == ([b"a1"], [b"a2"])
    while not (taken := crowd.take()):
        cluster.advance(10)
    assert taken == [b"a1"]
    cluster.advance(200)
    assert (groups_of(here), groups_of(there)) == ([b"a2"], [])


def test_a_job_that_waited_for_the_queue_and_waits_for_its_group_now_holds_up_no_other_node() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (2,), GROUPINFLIGHT_FIELD: (1,)})
    there, here, _ = cluster
    add_grouped(here, "a0", "x0", "a1")
    taken = {}
    for name in "12":
        here.wait(name, "q")
        cluster.advance(100)
        ((_, job_id, body),) = here.answers.pop(name)[0]
        taken[body] = job_id
    here.wait("next", "q")
    cluster.advance(5_000)
    add_grouped(there, "b0")
    cluster.advance(5_000)
    assert "next" not in here.answers
    here("ACKJOB", taken[b"x0"])
    cluster.advance(1_000)
    assert [body for _, _, body in here.answers["next"][0]] == [b"b0"]


def test_a_job_that_was_handed_out_just_before_the_limit_changed_has_its_slot() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    first = steward(cluster)
    other = next(member for member in cluster if member is not first)
    other("ADDJOB", "q", "x", 0, "REPLICATE", 1, "RETRY", 300)
    cluster.hold(first, other)
    other.wait("waits", "q")
    cluster.advance(500)
    limit(first, INFLIGHT_FIELD, 2)
    cluster.advance(500)
    cluster.release(first, other)
    cluster.advance(100)
    assert len(other.answers["waits"][0]) == 1
    cluster.advance(5_000)
    assert len(first("SLOTS", "q")) == 1


# Jobs that come back.


def order_of(member: Member, consumers: int, forgets: bool) -> list[bytes]:
    """Let consumers take jobs until none is left, and give the second job of each group back once; returns the bodies.

    `forgets`: it comes back by its retry time, and not by NACK.
    """
    order: list[bytes] = []
    asking = dict.fromkeys(range(consumers), True)
    for _ in range(400):
        for number in asking:
            rows = member("GETJOB", "FROM", "q", client=number) if asking[number] else BLOCKED
            rows = member.answers.pop(number, [()])[0] if rows == BLOCKED else rows
            asking[number] = bool(rows)
            for _, job_id, body in rows:
                order.append(body)
                if body[1:] != b"1" or order.count(body) > 1:
                    member("ACKJOB", job_id)
                elif not forgets:
                    member("NACK", job_id)
        member.cluster.advance(20)
    return order


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("forgets", [False, True], ids=["nack", "retry"])
@pytest.mark.parametrize("groups", ["a", "abc"])
@pytest.mark.parametrize("consumers", [1, 3, 8])
def test_a_job_that_comes_back_is_the_next_one_of_its_group(
    size: int, groups: str, consumers: int, forgets: bool
) -> None:
    cluster = cluster_with({GROUPINFLIGHT_FIELD: (1,)}, size)
    member = cluster.members[-1]
    for number in range(8):
        for group in groups:
            member("ADDJOB", "q", f"{group}{number}", 0, "GROUP", group, "REPLICATE", 1, "RETRY", 1)
    order = order_of(member, consumers, forgets)
    for group in groups.encode():
        assert b"".join(body[1:] for body in order if body[0] == group) == b"011234567"
    check(member)
    for each in cluster:
        this = each.node.stewards.of(b"q")
        assert this is None or not this.table.by_id


def test_a_job_that_comes_back_passes_those_that_wait_and_none_that_was_accepted(server: Server) -> None:
    limit(server, GROUPINFLIGHT_FIELD, 1)
    jobs = [server("ADDJOB", "q", f"a{number}", 0, "GROUP", "a") for number in range(4)]
    assert bodies_for(server, "0", "FROM", "q") == [b"a0"]
    for name in "123":
        assert server("GETJOB", "FROM", "q", client=name) == BLOCKED
    server.advance(20)
    assert server("NACK", jobs[0], "DELAY", 5) == 1
    server.advance(20)
    assert server.answers["1"][0][0][2] == b"a1"
    server.advance(6_000)
    assert set(server.answers) & set("23") == set()
    assert server("ACKJOB", jobs[1]) == 1
    server.advance(20)
    assert server.answers["2"][0][0][2] == b"a0"
    assert server("ACKJOB", jobs[0]) == 1
    server.advance(20)
    assert server.answers["3"][0][0][2] == b"a2"
    check(server)


# Words that are told together.


def test_what_a_node_wants_while_it_awaits_an_answer_is_said_in_one_word() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (50,)})
    crowd = Crowd(cluster)
    first = steward(cluster)
    other = next(member for member in cluster if member is not first)
    fill(cluster, 20, other)
    crowd.wait(1, other)
    cluster.advance(TOGETHER_MS)
    cluster.lose = lambda flight: flight.kind == SLOTS_GIVEN
    before = len(cluster.sent(SLOTS_WANTED, other, first))
    for _ in range(TOGETHER_MS - 1):
        crowd.wait(1, other)
        cluster.advance(1)
    assert len(cluster.sent(SLOTS_WANTED, other, first)) == before + 1
    cluster.advance(TOGETHER_MS)
    assert len(cluster.sent(SLOTS_WANTED, other, first)) == before + 2, "no answer is waited for for long"
    cluster.lose = lambda flight: False
    cluster.advance(5_000)
    assert len(crowd.take()) == TOGETHER_MS


def test_slots_that_nodes_want_while_others_are_confirmed_are_told_in_one_word() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (50,)})
    crowd = Crowd(cluster)
    first = steward(cluster)
    other, third = [member for member in cluster if member is not first]
    fill(cluster, 2)
    crowd.wait(1)
    cluster.advance(100)
    assert len(crowd.take()) == 3
    cluster.lose = lambda flight: flight.kind == SLOTS_KEPT
    before = len(cluster.sent(SLOTS_KEEP, first, other))
    for member in (first, other, third):
        crowd.wait(1, member)
        cluster.advance(2)
    assert len(cluster.sent(SLOTS_KEEP, first, other)) == before + 1
    cluster.advance(TOGETHER_MS)
    assert len(cluster.sent(SLOTS_KEEP, first, other)) == before + 2, "no answer is waited for for long"
    cluster.lose = lambda flight: False
    cluster.advance(5_000)
    assert len(crowd.take()) == 3
