"""Queues that expire when nobody uses them: who says so, and what is left on every node."""

from typing import Any

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.cluster.idleness import GRACE_MS
from disqued.core.model.messages import POLICIES_PER_MESSAGE, POLICY
from disqued.core.model.policies import (
    EXPIRING_FIELDS,
    FORGOTTEN_MS,
    IDLE_FIELD,
    TTL_FIELD,
    USE_FIELD,
    Register,
    cost_of_register,
)
from disqued.core.recovery import Recovery, snapshot
from tests.cluster_fixtures import Cluster
from tests.core_fixtures import Server, Word, check

SPAN_S = 600
SPAN_MS = SPAN_S * 1_000
EXPIRED_MS = SPAN_MS + GRACE_MS  #: after the last word of use


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3)


def set_idle(server: Server, queue: str = "q") -> None:
    server("QPOLICY", queue, "SET", "IDLE", SPAN_S, "TTL", 7_200, "RETRY", 50)


def fields(server: Server, queue: str = "q") -> dict[bytes, bytes]:
    """The policy of a queue, as QPOLICY GET tells it."""
    return {name: value for name, value, _, _ in server("QPOLICY", queue, client="looks")}


ALL = {b"idle": b"%d" % SPAN_S, b"ttl": b"7200", b"retry": b"50"}


# One node.


def test_a_queue_that_nobody_uses_forgets_its_policy_and_its_figures(server: Server) -> None:
    set_idle(server)
    server("ACKJOB", server.add())
    server("GETJOB", "NOHANG", "FROM", "q")
    server.advance(EXPIRED_MS - 1)
    assert fields(server) == ALL
    server.advance(SPAN_MS)
    assert fields(server) == {}
    assert server.stat() is None
    assert not server.state.queues.policies.idle
    assert not server.state.queues.policies.used
    # What comes later has the defaults of every queue.
    job = server.job(server.add())
    assert (job.options.ttl_ms, job.options.retry_ms) == (86_400_000, 300_000)
    server.advance(10 * SPAN_MS)
    check(server)


def test_its_figures_are_forgotten_with_it_even_if_idle_queues_stay_for_longer() -> None:
    server = Server()
    server("QPOLICY", "q", "SET", "IDLE", 10)
    server.advance(9_000)
    server("ACKJOB", server.add())
    assert server.stat() is not None
    server.advance(10_000 + 5_000 + GRACE_MS)
    assert server.stat() is None


def use(server: Server, way: str) -> None:
    """Let a queue be in use until the end of the test."""
    ways: dict[str, list[tuple[Word, ...]]] = {
        "waiting": [("ADDJOB", "q", "x", 0, "TTL", 1_000_000)],
        "delayed": [("ADDJOB", "q", "x", 0, "TTL", 1_000_000, "DELAY", 500_000)],
        "leased": [("ADDJOB", "q", "x", 0, "TTL", 1_000_000, "RETRY", 500_000), ("GETJOB", "FROM", "q")],
        "once": [("ADDJOB", "q", "x", 0, "TTL", 1_000_000, "RETRY", 0, "REPLICATE", 1), ("GETJOB", "FROM", "q")],
        "consumer": [("GETJOB", "FROM", "q")],
        "watcher": [("QNOTIFY", "g", 100_000, "q")],
        "paused": [("PAUSE", "q", "in")],
        "paused here": [("PAUSE", "q", "out", "node")],
    }
    for words in ways[way]:
        server(*words, client="user")


@pytest.mark.parametrize("way", ["waiting", "delayed", "leased", "once", "consumer", "paused", "paused here"])
def test_a_queue_that_is_in_use_does_not_expire(server: Server, way: str) -> None:
    set_idle(server)
    use(server, way)
    server.advance(3 * EXPIRED_MS)
    assert fields(server).items() >= ALL.items()


def test_a_job_is_never_lost_by_the_expiry_of_its_queue(server: Server) -> None:
    set_idle(server)
    server.advance(EXPIRED_MS - 1)
    job_id = server.add()
    server.advance(5 * EXPIRED_MS)
    assert server.get() == [(b"q", job_id, b"body")]


@pytest.mark.parametrize("words", [("ADDJOB", "q", "x", 0), ("QPOLICY", "q", "SET", "MAXLEN", 9)])
def test_use_counts_from_its_last_moment(server: Server, words: tuple[Word, ...]) -> None:
    set_idle(server)
    server.advance(SPAN_MS - 1_000)
    server(*words)
    for _, job_id, _ in server.get() if words[0] == "ADDJOB" else ():
        server("ACKJOB", job_id)
    server.advance(EXPIRED_MS - 1)
    assert fields(server).items() >= ALL.items()
    server.advance(SPAN_MS)
    assert fields(server) == {}


def test_use_counts_though_the_queue_was_forgotten_meanwhile_as_idle_ones_are(server: Server) -> None:
    server("QPOLICY", "q", "SET", "IDLE", 4_000)
    server.advance(1_000)
    server("ACKJOB", server.add())
    server.advance(1_500_000)
    assert b"q" not in server.state.queues.by_name
    server.advance(4_000_000 + GRACE_MS - 1_500_000)
    assert b"idle" in fields(server), "it is not that long ago that it was used"
    server.advance(4_000_000)
    assert fields(server) == {}


@pytest.mark.parametrize("controlled", [False, True])
def test_the_span_begins_again_with_a_start(server: Server, controlled: bool) -> None:
    set_idle(server)
    server.advance(SPAN_MS)
    again = restarted(server, controlled=controlled)
    again.advance(EXPIRED_MS - 1)
    assert fields(again) == ALL
    again.advance(1)
    assert fields(again) == {}


def restarted(server: Server, *, controlled: bool) -> Server:
    """A node that has what the journal of another one has, or its snapshot."""
    again = Server(clock=server.clock)
    again.node.begin()
    again.state.journaling = False
    recovery = Recovery(again.state, restores_queues=controlled)
    for record in [*snapshot(server.state)] if controlled else server.journal:
        recovery.apply(record)
    again.state.journaling = True
    recovery.finish()
    again.node.policies.resume()
    again.node.idleness.resume()
    again.settle()
    return again


@pytest.mark.parametrize("controlled", [False, True])
def test_an_expiry_outlives_a_start_and_a_later_policy_is_a_new_one(server: Server, controlled: bool) -> None:
    set_idle(server)
    server.advance(EXPIRED_MS)
    again = restarted(server, controlled=controlled)
    assert fields(again) == {}
    again("QPOLICY", "q", "SET", "TTL", 60)
    again.advance(5 * EXPIRED_MS)
    assert fields(again) == {b"ttl": b"60"}
    assert again.state.queues.policies.registers[b"q", TTL_FIELD].counter == 2
    again("QPOLICY", "q", "SET", "IDLE", SPAN_S)
    again.advance(EXPIRED_MS)
    assert fields(again) == {}


def test_a_flush_is_no_expiry_and_stops_none(server: Server) -> None:
    set_idle(server)
    server.add()
    server.node.flush()
    assert fields(server) == ALL
    server.advance(2 * EXPIRED_MS)
    assert fields(server) == {}


def test_without_idle_a_policy_stays(server: Server) -> None:
    set_idle(server)
    server("QPOLICY", "q", "UNSET", "IDLE")
    server.advance(3 * EXPIRED_MS)
    assert fields(server) == {b"ttl": b"7200", b"retry": b"50"}
    assert not server.state.queues.policies.idle


def test_the_account_of_use_is_forgotten_a_week_after_the_last_word(server: Server) -> None:
    set_idle(server)
    server.advance(EXPIRED_MS)
    assert list(server.state.queues.policies.registers) == [(b"q", USE_FIELD)]
    server.advance(FORGOTTEN_MS + 2 * 3_600_000)
    assert not server.state.queues.policies.registers


def test_registers_that_expire_are_memory_that_is_free(server: Server) -> None:
    before = server.state.memory.used
    set_idle(server)
    server.advance(EXPIRED_MS)
    assert server.state.memory.used == before + cost_of_register(b"q", (0,))


# Several nodes.


def expired(cluster: Cluster) -> list[bool]:
    return [not fields(member) for member in cluster]


def test_a_queue_expires_on_all_nodes(cluster: Cluster) -> None:
    a, b, c = cluster
    set_idle(b)
    cluster.advance(EXPIRED_MS - 1)
    assert expired(cluster) == [False] * 3
    cluster.advance(SPAN_MS)
    assert expired(cluster) == [True] * 3
    assert a.state.queues.policies.registers == b.state.queues.policies.registers == c.state.queues.policies.registers


@pytest.mark.parametrize("way", ["waiting", "delayed", "leased", "once", "consumer", "watcher", "paused here"])
def test_what_one_node_uses_expires_nowhere(cluster: Cluster, way: str) -> None:
    set_idle(cluster.members[0])
    use(cluster.members[2], way)
    for _ in range(8):
        cluster.advance(SPAN_MS // 2)
        assert expired(cluster) == [False] * 3


def test_nodes_say_twice_in_a_span_that_a_queue_is_in_use(cluster: Cluster) -> None:
    a, _, c = cluster
    set_idle(a)
    use(c, "consumer")
    before = a.state.queues.policies.registers[b"q", USE_FIELD].counter
    cluster.advance(10 * SPAN_MS)
    words = (a.state.queues.policies.registers[b"q", USE_FIELD].counter - before) // 2
    assert words == 20


@pytest.mark.parametrize("size", [2, 3])
def test_who_uses_a_queue_that_has_just_expired_says_so_and_what_its_policy_is(size: int) -> None:
    cluster = Cluster(size)
    a, b, *_ = cluster
    set_idle(a)
    cluster.advance(EXPIRED_MS - 1)
    # A job comes as its queue expires: the word of that is under way.
    for other in cluster.members[1:]:
        cluster.hold(a, other)
    a.clock.advance(1)
    a.tick()
    cluster.settle()
    assert fields(a) == {}
    job_id = b.add("q", "x", "REPLICATE", 1)
    assert b.job(job_id).options.ttl_ms == 7_200_000
    for other in cluster.members[1:]:
        cluster.release(a, other)
    assert [fields(member) for member in cluster] == [ALL] * size
    cluster.advance(3 * EXPIRED_MS)
    assert [fields(member) for member in cluster] == [ALL] * size
    assert b.get() == [(b"q", job_id, b"x")]
    b("ACKJOB", job_id)
    cluster.advance(3 * EXPIRED_MS)
    assert expired(cluster) == [True] * size


def test_a_word_of_use_that_comes_after_the_expiry_brings_the_fields_with_it(cluster: Cluster) -> None:
    """A node says that it uses a queue, and the others let it expire before that word arrives."""
    a, b, c = cluster
    set_idle(a)
    cluster.advance(EXPIRED_MS - 2)
    for other in (a, c):
        cluster.hold(b, other)
    b.clock.advance(1)
    b("QPOLICY", "q", "SET", "MAXLEN", 7)
    for member in (a, c):
        member.clock.advance(2)
        member.tick()
    cluster.settle()
    assert (fields(a), fields(c)) == ({}, {})
    for other in (a, c):
        cluster.release(b, other)
    assert [fields(member) for member in cluster] == [ALL | {b"maxlen": b"7"}] * 3


def test_nothing_expires_while_a_node_is_away_which_may_use_the_queue(cluster: Cluster) -> None:
    a, b, c = cluster
    set_idle(a)
    cluster.isolate(c)
    use(c, "waiting")
    cluster.advance(5 * EXPIRED_MS)
    assert expired(cluster) == [False] * 3
    for other in (a, b):
        cluster.heal(c, other)
    cluster.advance(5 * EXPIRED_MS)
    assert expired(cluster) == [False] * 3
    c("ACKJOB", c.get()[0][1])
    cluster.advance(5 * EXPIRED_MS)
    assert expired(cluster) == [True] * 3


def test_a_node_that_is_back_has_a_span_to_say_what_it_uses(cluster: Cluster) -> None:
    a, b, c = cluster
    set_idle(a)
    cluster.advance(SPAN_MS - 20_000)
    cluster.isolate(c)
    cluster.advance(15_000)
    for other in (a, b):
        cluster.heal(c, other)
    cluster.advance(EXPIRED_MS - 1_000)
    assert expired(cluster) == [False] * 3
    cluster.advance(SPAN_MS)
    assert expired(cluster) == [True] * 3


@pytest.mark.parametrize("has_job", [False, True])
def test_a_node_that_was_forgotten_brings_a_policy_back_only_with_jobs(cluster: Cluster, has_job: bool) -> None:
    a, b, c = cluster
    set_idle(a)
    cluster.isolate(c)
    for member in (a, b):
        member("CLUSTER", "FORGET", c.id)
    if has_job:
        use(c, "waiting")
    cluster.advance(3 * EXPIRED_MS)
    assert expired(cluster) == [True, True, False]
    # It is used again meanwhile, without a policy.
    a.add("q", "later", "REPLICATE", 1)
    meet(cluster, c)
    expected = [ALL] * 3 if has_job else [{}] * 3
    assert [fields(member) for member in cluster] == expected
    cluster.advance(3 * EXPIRED_MS)
    assert [fields(member) for member in cluster] == expected


def meet(cluster: Cluster, stranger: Any) -> None:
    """Let a node that was forgotten be one of the cluster again."""
    for other in cluster:
        if other is not stranger:
            other.node.state.peers.forgotten.discard(stranger.id)
            cluster.heal(stranger, other)


def test_what_has_expired_is_not_learnt_from_words_that_were_under_way(cluster: Cluster) -> None:
    a, b, _ = cluster
    set_idle(a)
    old = a.state.queues.policies.registers[b"q", TTL_FIELD]
    cluster.advance(EXPIRED_MS)
    assert fields(b) == {}
    a.say(b, (POLICY, 1, ((b"q", TTL_FIELD, old),)))
    assert fields(b) == {}
    a.say(b, (POLICY, 2, ((b"q", TTL_FIELD, Register(2, a.id, a.state.wall, (60_000,))),)))
    assert fields(b) == {b"ttl": b"60"}


def test_of_two_operators_the_later_word_counts_after_an_expiry_too(cluster: Cluster) -> None:
    a, b, c = cluster
    set_idle(a)
    for ttl in (100, 200, 300):
        a("QPOLICY", "q", "SET", "TTL", ttl)
    cluster.advance(EXPIRED_MS)
    assert expired(cluster) == [True] * 3
    b("QPOLICY", "q", "SET", "TTL", 60)
    assert [fields(member) for member in (a, c)] == [{b"ttl": b"60"}] * 2
    assert b.state.queues.policies.registers[b"q", TTL_FIELD].counter == 5


def test_no_field_of_a_queue_is_told_without_the_account_of_its_use(cluster: Cluster) -> None:
    a, b, _ = cluster
    set_idle(a)
    cluster.cut(a, b)
    cluster.flights.clear()
    cluster.heal(a, b)
    for flight in cluster.sent(POLICY):
        seen = False
        for _, field, _ in flight.data[2]:
            seen = seen or field == USE_FIELD
            assert seen or field not in EXPIRING_FIELDS


def test_idle_has_a_least_span(server: Server) -> None:
    line = "ERR IDLE must be a number of seconds - allowed are 10 to 2147483647, with fractions"
    assert {server.refusal("QPOLICY", "q", "SET", "IDLE", value) for value in (9.999, 0, -1, "x", 2**31)} == {line}
    server("QPOLICY", "q", "SET", "IDLE", 10)
    assert fields(server) == {b"idle": b"10"}
    assert (b"q", IDLE_FIELD) in server.state.queues.policies.registers
    assert server("GETJOB", "FROM", "q", client="waits") is BLOCKED


def test_a_message_with_the_accounts_of_use_has_no_more_policies_than_the_bus_takes(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.isolate(b)
    names = [f"q{number}" for number in range(POLICIES_PER_MESSAGE)]
    for name in names:
        set_idle(a, name)
        a("ADDJOB", name, "body", 0, "REPLICATE", 1)  # in use: its account has a word of it
    cluster.advance(SPAN_MS)
    cluster.heal(a, b)
    cluster.advance(SPAN_MS // 10)
    sizes = [len(flight.data[2]) for flight in cluster.sent(POLICY)]
    assert POLICIES_PER_MESSAGE - 2 < max(sizes) <= POLICIES_PER_MESSAGE
    assert all(fields(b, name) == ALL for name in names)
