"""FAIR and THROTTLE: groups take turns, what is throttled is handed to nobody in whatever way, and throttles end."""

from random import Random

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.cluster.gates import SORTED_AT_ONCE, place_of_throttle
from disqued.core.model.job import Job
from disqued.core.model.messages import NEEDJOBS, POLICY, POLLJOBS, YOURJOBS
from disqued.core.model.outbox import JOB_ADDED, Record
from disqued.core.model.outbox import POLICY as POLICY_RECORD
from disqued.core.model.policies import AHEAD_MS, THROTTLE_FIELD, THROTTLE_MAX_MS, Register
from disqued.core.recovery import Recovery, snapshot
from disqued.core.work.delivery import SORTED_PER_PART
from disqued.errors import LogWithoutLimits
from disqued.wire.jobdump import decode_record, encode_event, encode_job
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import Server, check

NO_JOBS: list[bytes] = []


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def cluster() -> Cluster:
    return agreeing(Cluster(3))


def agreeing(cluster: Cluster) -> Cluster:
    """Let the wall clocks agree."""
    first, *others = cluster
    for member in others:
        member.clock.jump_wall(first.clock.wall() - member.clock.wall())
        member.node.begin()
    return cluster


def fill(server: Server, *bodies: str, queue: str = "q") -> list[bytes]:
    """Add jobs whose groups are the first letters of their bodies; - is that of jobs without a group."""
    return [server.add(queue, body, "REPLICATE", 1, *(() if body[0] == "-" else ("GROUP", body[0]))) for body in bodies]


def taken(server: Server, count: int = 100) -> str:
    """Take jobs; returns their bodies."""
    return b" ".join(server.bodies(count=count)).decode()


# Groups.


def test_a_job_says_its_group_and_keeps_it(server: Server) -> None:
    job_id = server.add("q", "body", "GROUP", "acme")
    shown = server.show(job_id)
    assert shown is not None
    assert shown["group"] == b"acme"
    plain = server.show(server.add("q", "body", "MAXTRIES", 3))
    assert plain is not None
    assert "group" not in plain
    for size in (0, 256):
        assert server.refusal("ADDJOB", "q", "body", 0, "GROUP", "g" * size) == "ERR GROUP must be 1 to 255 bytes"
    assert server.add("q", "body", "GROUP", "g" * 255)
    check(server)


def test_a_group_changes_nothing_while_no_policy_asks_for_it(server: Server) -> None:
    fill(server, "a1", "b1", "a2")
    assert server.state.queues.by_name[b"q"].grouped is None
    assert taken(server) == "a1 b1 a2"


def test_groups_of_a_fair_queue_take_turns(server: Server) -> None:
    fill(server, "a1", "a2", "a3", "b1", "-1", "-2")
    assert server("QPOLICY", "q", "SET", "FAIR") == b"OK"
    check(server)
    assert server.stat()["groups"] == 3  # type: ignore[index]
    assert taken(server) == "a1 b1 -1 a2 -2 a3"
    check(server)


def test_a_queue_that_comes_into_being_later_is_fair_and_one_that_is_not_any_more_is_plain(server: Server) -> None:
    server("QPOLICY", "q", "SET", "FAIR")
    fill(server, "a1", "a2", "b1")
    assert taken(server, 2) == "a1 b1"
    fill(server, "b2", "a3", "b3")
    server("QPOLICY", "q", "UNSET", "fair")
    check(server)
    assert server.state.queues.by_name[b"q"].grouped is None
    assert taken(server) == "a2 b2 a3 b3"


def test_one_tenant_with_very_many_jobs_delays_another_by_one_job(server: Server) -> None:
    server("QPOLICY", "q", "SET", "FAIR")
    fill(server, *(f"a{number}" for number in range(1_000)))
    fill(server, "b1", "b2")
    assert taken(server, 4) == "a0 b1 a1 b2"


def test_a_job_whose_time_is_over_costs_its_group_no_turn(server: Server) -> None:
    server("QPOLICY", "q", "SET", "FAIR")
    server.add("q", "a0", "GROUP", "a", "TTL", 1, "RETRY", 1)
    fill(server, "a1", "b1")
    server.node.begin()
    server.clock.advance(1_500)  # nobody has looked at the deadline yet
    assert taken(server) == "a1 b1"
    check(server)


def test_the_last_job_of_a_throttled_queue_that_is_over_lets_no_other_group_out(server: Server) -> None:
    server("THROTTLE", "q", 60, "GROUP", "a")
    server.add("q", "b0", "GROUP", "b", "TTL", 1, "RETRY", 1)
    fill(server, "a1")
    server.clock.advance(1_500)
    assert taken(server) == ""
    assert taken(server) == ""
    check(server)


def test_a_job_that_comes_back_keeps_its_place_in_its_group(server: Server) -> None:
    server("QPOLICY", "q", "SET", "FAIR")
    first, *_ = fill(server, "a1", "a2", "b1", "b2")
    assert taken(server, 1) == "a1"
    server("NACK", first)
    assert taken(server) == "b1 a1 b2 a2"
    check(server)


def test_a_long_queue_is_sorted_bit_by_bit_and_nobody_hears_meanwhile_that_it_is_empty(server: Server) -> None:
    count = 2 * SORTED_PER_PART + SORTED_AT_ONCE
    fill(server, *(f"a{number}" for number in range(count)))
    fill(server, "b1")
    server("THROTTLE", "q", 60, "GROUP", "a")
    check(server)
    assert server("GETJOB", "NOHANG", "FROM", "q", client="anna") is BLOCKED
    server.advance(10)
    assert [rows[0][2] for rows in server.answers["anna"]] == [b"b1"]
    assert server.get() == []
    check(server)
    server("QPOLICY", "q", "SET", "FAIR")
    server.advance(60_000)
    assert taken(server, 2) == "a0 a1"
    check(server)


def test_consumers_are_served_while_a_long_queue_is_sorted(server: Server) -> None:
    for number in range(5):
        assert server("GETJOB", "TIMEOUT", 0, "FROM", "q", "other", client=number) is BLOCKED
    server("PAUSE", "q", "out")
    fill(server, *(f"a{number}" for number in range(2 * SORTED_PER_PART)))
    server("QPOLICY", "q", "SET", "FAIR")
    server("PAUSE", "q", "none")
    server.advance(10)
    assert [len(server.answers[number]) for number in range(5)] == [1] * 5
    check(server)


@pytest.mark.parametrize("seed", range(5))
def test_whatever_happens_a_queue_follows_its_gate(seed: int) -> None:
    server, rng = Server(seed=seed), Random(seed)
    ids: list[bytes] = []
    for _ in range(400):
        what = rng.randrange(10)
        if what < 4:
            ids += fill(server, rng.choice("abc-") + "1")
        elif what < 6:
            server.get(count=rng.randrange(1, 4))
        elif what == 6:
            server("QPOLICY", "q", *rng.choice([("SET", "FAIR"), ("UNSET", "fair")]))
        elif what == 7:
            server("THROTTLE", "q", rng.randrange(1, 20), *rng.choice([(), ("GROUP", "a"), ("GROUP", "b")]))
        elif what == 8 and ids:
            server(rng.choice(["ACKJOB", "NACK", "DEQUEUE", "ENQUEUE", "DELJOB"]), rng.choice(ids))
        else:
            server.advance(rng.randrange(8_000))
        if rng.random() < 0.01:
            server("DEBUG", "FLUSHALL")
        check(server)
    server.advance(100_000)
    assert not any(gate.until or gate.groups for gate in server.state.queues.policies.gates.values())
    check(server)


# Throttles of a queue.


def test_a_throttled_queue_hands_nothing_out_until_it_ends(server: Server) -> None:
    fill(server, "a1")
    assert server("THROTTLE", "q", 30) == 30
    assert server.get() == NO_JOBS
    server.advance(1_500)
    assert server("THROTTLE", "q", 0) == 29
    assert server.stat()["throttled-for"] == 29  # type: ignore[index]
    server.advance(28_499)
    assert server.get() == NO_JOBS
    server.advance(1)
    assert server("THROTTLE", "q", 0) == 0
    assert taken(server) == "a1"
    assert not server.state.queues.policies.registers
    check(server)


def test_the_latest_end_counts(server: Server) -> None:
    assert server("THROTTLE", "q", 30) == 30
    assert server("THROTTLE", "q", 10) == 30
    assert server("THROTTLE", "q", 60) == 60
    fill(server, "a1")
    server.advance(59_999)
    assert server.get() == NO_JOBS
    server.advance(1)
    assert taken(server) == "a1"


def test_asking_changes_nothing(server: Server) -> None:
    assert server("THROTTLE", "q", 0) == server("THROTTLE", "q", 0, "GROUP", "a") == 0
    assert not server.state.queues.policies.registers
    assert server.stat() is None


def test_seconds_are_bounded_and_a_log_is_refused(server: Server) -> None:
    line = "ERR the seconds of a throttle must be a number from 0 to 86400"
    assert {server.refusal("THROTTLE", "q", seconds) for seconds in (86_401, "86400.001", -1, "", "nan")} == {line}
    server("QADD", "log", 60, "event")
    assert server.refusal("THROTTLE", "log", 5) == f"WRONGTYPE {LogWithoutLimits.__doc__}"


#: Each way by which a job is taken, and what is answered where there is none.
WAYS: list[tuple[tuple[str | int, ...], object]] = [
    (("GETJOB", "NOHANG", "FROM", "q"), None),
    (("GETJOB", "NOHANG", "COUNT", 5, "FROM", "q", "other"), None),
    (("RQ.POP", "KEYS", 1, "q", "COUNT", 5), None),
    (("QRPOP", "q"), None),
    (("QNOTIFY", 1), None),
]


@pytest.mark.parametrize("options", [(), ("GROUP", "a")])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way[0][0] + str(len(way[0])))
def test_no_way_of_taking_a_job_passes_a_throttle(
    server: Server, options: tuple[str, ...], way: tuple[tuple[str | int, ...], object]
) -> None:
    words, _ = way
    before = Server()
    for one in (before, server):
        one("QREGISTER", "q", client="anna")
    fill(before, "a1")
    given = before(*words, client="anna")
    assert given not in (None, [], BLOCKED)
    fill(server, "a1")
    server("THROTTLE", "q", 30, *options)
    value = server(*words, client="anna")
    assert value in (None, []) or (value is BLOCKED and not server.answers["anna"])
    server.advance(29_000)
    assert not any(server.answers["anna"])
    assert server("QPEEK", "q", 1), "whoever only looks sees it"
    check(server)


@pytest.mark.parametrize("options", [(), ("GROUP", "a")])
def test_a_worker_gets_nothing_of_what_is_throttled(server: Server, options: tuple[str, ...]) -> None:
    server("WORKER", "START", "ID", "w1", "TTL", 0, client="anna")
    server("WQ.WORK", "q", client="anna")
    fill(server, "a1")
    server("THROTTLE", "q", 30, *options)
    assert server("GETJOB", "NOHANG", "WORKER", "w1", "FROM", "q") is None
    assert not server("WQ.DEQUEUE", "q", client="anna")
    assert server("WQ.REQUEST", "q", client="anna") == 0
    assert server("GETJOB", "WORKER", "w1", "FROM", "q", client="bob") is BLOCKED
    server.advance(29_999)
    assert not server.answers["bob"]
    server.advance(1)
    assert len(server.answers["bob"]) == 1
    fill(server, "a2")
    assert server("WQ.REQUEST", "q", client="anna") == 1
    check(server)


@pytest.mark.parametrize("options", [(), ("GROUP", "a")])
def test_those_who_wait_go_on_waiting_and_are_served_when_it_ends(server: Server, options: tuple[str, ...]) -> None:
    server("THROTTLE", "q", 30, *options)
    assert server("GETJOB", "TIMEOUT", 0, "FROM", "q", client="anna") is BLOCKED
    server("QREGISTER", "q", client="bob")
    assert server("QNOTIFY", 60, client="bob") is BLOCKED
    fill(server, "a1", "a2")
    server.advance(29_999)
    assert not server.answers
    server.advance(1)
    assert [rows[0][2] for rows in server.answers["anna"]] == [b"a1"]
    assert server.answers["bob"]
    check(server)


def test_what_is_throttled_is_added_acknowledged_and_given_back_as_ever(server: Server) -> None:
    first, second = fill(server, "a1", "a2")
    assert taken(server, 1) == "a1"
    server("THROTTLE", "q", 30)
    assert server("NACK", first) == 1
    assert server("ACKJOB", second) == 1
    assert server("QLEN", "q") == 1
    server.advance(30_000)
    assert taken(server) == "a1"


# Throttles of a group.


def test_other_groups_go_on_while_one_is_throttled(server: Server) -> None:
    fill(server, "a1", "b1", "a2", "-1")
    server("THROTTLE", "q", 30, "GROUP", "a")
    check(server)
    assert taken(server) == "b1 -1"
    assert server("THROTTLE", "q", 0) == 0
    fill(server, "b2", "a3")
    assert taken(server) == "b2"
    server.advance(30_000)
    assert server.state.queues.by_name[b"q"].grouped is None, "it is plain again"
    assert taken(server) == "a1 a2 a3"
    check(server)


def test_two_throttled_groups_end_each_at_its_time(server: Server) -> None:
    fill(server, "a1", "b1", "c1")
    server("THROTTLE", "q", 10, "GROUP", "a")
    server("THROTTLE", "q", 20, "GROUP", "b")
    assert taken(server) == "c1"
    server.advance(10_000)
    check(server)
    assert taken(server) == "a1"
    server.advance(10_000)
    assert taken(server) == "b1"


def test_a_queue_of_another_name_is_not_throttled_by_a_group(server: Server) -> None:
    name, field = place_of_throttle(b"q", b"a")
    assert name == b"\x01aq"
    server("THROTTLE", "q", 30, "GROUP", "a")
    server.add("aq", "1", "GROUP", "q")
    assert server.bodies("aq") == [b"1"]
    assert field != THROTTLE_FIELD


# The whole node.


def restarted(
    server: Server, *, down_ms: int = 0, controlled: bool = False, records: list[Record] | None = None
) -> Server:
    """A node that begins with what the journal of another one has, or with its snapshot, or with some records."""
    if records is None:
        records = [*snapshot(server.state)] if controlled else server.journal
    again = Server(clock=server.clock)
    server.clock.advance(down_ms)
    again.node.begin()
    again.state.journaling = False
    recovery = Recovery(again.state, restores_queues=controlled)
    for record in records:
        recovery.apply(stored(record, server, controlled=controlled))
    again.state.journaling = True
    recovery.finish()
    again.node.policies.resume()
    again.node.gates.resume()
    again.settle()
    return again


def stored(record: Record, server: Server, *, controlled: bool) -> Record:
    """A record as a store gives it back."""
    state = server.state
    if record[0] == JOB_ADDED:
        job: Job = record[1]
        offset = state.wall - state.now
        return decode_record(encode_job(job, offset, job.state) if controlled else encode_job(job, offset))
    return decode_record(encode_event(record, state.wall))


@pytest.mark.parametrize("controlled", [True, False])
def test_throttles_and_fairness_outlive_a_restart(server: Server, controlled: bool) -> None:
    server("QPOLICY", "q", "SET", "FAIR")
    fill(server, "a1", "a2", "b1", "c1")
    server("THROTTLE", "q", 30, "GROUP", "a")
    server("THROTTLE", "q", 10)
    server("THROTTLE", "gone", 5)
    again = restarted(server, down_ms=6_000, controlled=controlled)
    assert [again("THROTTLE", "q", 0), again("THROTTLE", "q", 0, "GROUP", "a")] == [4, 24]
    again.advance(1)
    assert again("THROTTLE", "gone", 0) == 0
    if not controlled:
        for job in list(again.state.jobs):
            again("ENQUEUE", job.id)
    assert again.get() == NO_JOBS
    again.advance(4_000)
    assert taken(again) == "b1 c1"
    again.advance(20_000)
    assert taken(again) == "a1 a2"
    assert [place for place, _ in again.state.queues.policies.registers.items()] == [(b"q", 9)]


@pytest.mark.parametrize("options", [(), ("GROUP", "a")])
def test_a_queue_that_a_store_tells_of_while_it_was_throttled_is_not_held_when_that_is_over(
    server: Server, options: tuple[str, ...]
) -> None:
    server("THROTTLE", "q", 5, *options)
    fill(server, "a1", "a2")
    jobs = [record for record in snapshot(server.state) if record[0] == JOB_ADDED]
    server.advance(5_000)
    said, over = [record for record in server.journal if record[0] == POLICY_RECORD]
    again = restarted(server, controlled=True, records=[said, *jobs, over])
    queue = again.state.queues.by_name[b"q"]
    assert (queue.holds, queue.grouped) == (0, None)
    assert taken(again) == "a1 a2"


def test_a_throttle_that_is_over_is_forgotten_by_the_journal_too(server: Server) -> None:
    server("THROTTLE", "q", 5)
    server.advance(5_000)
    assert [record[3].counter > 0 for record in server.journal if record[0] == POLICY_RECORD] == [True, False]
    assert not restarted(server).state.queues.policies.registers


def test_a_wall_clock_that_is_set_neither_ends_nor_extends_a_throttle(server: Server) -> None:
    for jump_ms in (3_600_000, -7_200_000):
        server("THROTTLE", "q", 30)
        server.clock.jump_wall(jump_ms)
        server.advance(29_999)
        assert server("THROTTLE", "q", 0) == 1
        server.advance(1)
        assert server("THROTTLE", "q", 0) == 0


def test_a_flush_leaves_throttles(server: Server) -> None:
    server("THROTTLE", "q", 30)
    server("THROTTLE", "q", 30, "GROUP", "a")
    server("DEBUG", "FLUSHALL")
    fill(server, "a1")
    assert server.get() == NO_JOBS
    check(server)
    server.advance(30_000)
    assert taken(server) == "a1"


def test_memory_that_is_full_refuses_a_throttle() -> None:
    server = Server(evicts=False)
    server.state.memory.set_limit(1)
    server.state.memory.used = 2
    assert server.refusal("THROTTLE", "q", 30).startswith("OOM")
    assert server("THROTTLE", "q", 0) == 0


# The cluster.


def left(cluster: Cluster, *options: str) -> list[int]:
    return [member("THROTTLE", "q", 0, *options) for member in cluster]


def test_a_throttle_holds_on_every_node(cluster: Cluster) -> None:
    a, b, c = cluster
    for member in cluster:
        fill(member, "a1")
    assert b("THROTTLE", "q", 30) == 30
    assert left(cluster) == [30] * 3
    c("THROTTLE", "q", 60, "GROUP", "a")
    assert left(cluster, "GROUP", "a") == [60] * 3
    assert [member.get() for member in cluster] == [NO_JOBS] * 3
    cluster.advance(30_000)
    fill(a, "b1")
    assert [taken(member) for member in cluster] == ["b1", "", ""]
    cluster.advance(30_000)
    assert sorted(taken(member) for member in (*cluster, *cluster)) == ["", "", "", "a1", "a1", "a1"]
    assert not any(member.state.queues.policies.registers for member in cluster)
    for member in cluster:
        check(member)


def test_a_node_that_was_away_learns_it_and_the_latest_end_counts_on_both_sides(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.isolate(c)
    a("THROTTLE", "q", 30)
    c("THROTTLE", "q", 50)
    c("THROTTLE", "p", 5)
    assert left(cluster) == [30, 30, 50]
    cluster.heal(a, c)
    cluster.heal(b, c)
    assert left(cluster) == [50] * 3
    cluster.advance(5_000)
    cluster.isolate(c)
    cluster.advance(44_999)
    assert left(cluster) == [1] * 3


def test_a_throttle_that_is_over_here_is_not_learnt_again_from_a_clock_that_is_behind(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.isolate(c)
    c.clock.jump_wall(-600_000)
    a("THROTTLE", "q", 30)
    cluster.advance(30_000)
    say = Register(a.state.wall, c.id, a.state.wall - 30_000, (30_000,))
    b.say(a, (POLICY, 7, ((b"q", THROTTLE_FIELD, say),)))
    assert not a.state.queues.policies.registers


def test_an_end_that_is_further_ahead_than_any_comes_of_a_wrong_clock(cluster: Cluster) -> None:
    a, b, _ = cluster
    wall = a.state.wall
    for ahead_ms, is_known in ((THROTTLE_MAX_MS + AHEAD_MS + 1, False), (THROTTLE_MAX_MS + AHEAD_MS, True)):
        b.say(a, (POLICY, 7, ((b"q", THROTTLE_FIELD, Register(wall + ahead_ms, b.id, wall, (30_000,))),)))
        assert bool(a.state.queues.policies.registers) == is_known


def asked(cluster: Cluster, member: Member) -> int:
    return len(cluster.sent(NEEDJOBS, member)) + len(cluster.sent(POLLJOBS, member))


def test_a_throttled_queue_neither_asks_nor_gives(cluster: Cluster) -> None:
    a, b, _ = cluster
    fill(a, "a1")
    a("THROTTLE", "q", 30)
    cluster.flights.clear()
    b.wait("anna", timeout=0)
    assert asked(cluster, b) == 0
    b.say(a, (NEEDJOBS, b"q", 5))
    cluster.advance(29_000)
    assert not cluster.sent(YOURJOBS)
    cluster.advance(1_000)
    cluster.advance(100)
    assert b.answered("anna") == [b"a1"]
    for member in cluster:
        check(member)


def test_jobs_of_a_throttled_group_are_not_given_for_demand(cluster: Cluster) -> None:
    a, b, _ = cluster
    fill(a, "a1", "a2", "b1")
    a("THROTTLE", "q", 30, "GROUP", "a")
    b.wait("anna", timeout=0)
    b.wait("bob", timeout=0)
    cluster.advance(29_000)
    assert (b.answered("anna"), b.answered("bob")) == ([b"b1"], [])
    assert a("QLEN", "q") == 2
    cluster.advance(1_100)
    assert b.answered("bob") == [b"a1"]


def test_a_node_that_leaves_takes_throttled_jobs_with_it_and_they_stay_throttled(cluster: Cluster) -> None:
    a, b, c = cluster
    fill(a, "a1", "b1")
    a.add("q", "once", "RETRY", 0, "REPLICATE", 1, "GROUP", "a")
    a("THROTTLE", "q", 30)
    a("THROTTLE", "q", 60, "GROUP", "a")
    a.node.begin()
    a.node.leaving.set(leaving=True)
    a.settle()
    cluster.settle()
    cluster.advance(5_000)
    assert a.node.leaving.facts()["cluster_safe_to_stop"] == "yes"
    cluster.isolate(a)
    cluster.members.remove(a)
    assert (b.get(count=9), c.get(count=9)) == (NO_JOBS, NO_JOBS)
    cluster.advance(25_000)
    assert sorted(b.bodies() + c.bodies() + b.bodies() + c.bodies()) == [b"b1"]
    cluster.advance(30_000)
    assert sorted(b.bodies() + c.bodies() + b.bodies() + c.bodies()) == [b"a1", b"once"]


def test_a_copy_knows_its_group(cluster: Cluster) -> None:
    a, b, _ = cluster
    job_id = a("ADDJOB", "q", "body", 10_000, "REPLICATE", 3, "GROUP", "acme")
    if not isinstance(job_id, bytes):
        job_id = a.answers["client"][0]
    assert b.job(job_id).options.terms.group == b"acme"
