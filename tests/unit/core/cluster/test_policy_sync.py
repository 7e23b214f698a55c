"""Policies on several nodes: the last word counts everywhere, a node that was away learns it, and the telling ends."""

import pytest

from disqued.core.cluster.policy_sync import SWEEP_MS
from disqued.core.model.memory import COUNTS_COST, QUEUE_COST
from disqued.core.model.messages import NEEDJOBS, PAUSE, POLICIES_PER_MESSAGE, POLICY
from disqued.core.model.outbox import FLUSHED, QUEUE_PAUSED
from disqued.core.model.outbox import POLICY as POLICY_RECORD
from disqued.core.model.policies import FORGOTTEN_MS, PAUSE_FIELD, cost_of_register
from tests.cluster_fixtures import Cluster, Flight
from tests.core_fixtures import check

REFUSAL = "PAUSED Queue paused in input, try later"
#: Every way to add to the queue q.
ADDING: list[tuple[str | int, ...]] = [
    ("ADDJOB", "q", "body", 0),
    ("ADDJOB", "q", "body", 10_000, "REPLICATE", 3),
    ("ADDJOB", "q", "body", 0, "ASYNC"),
    ("QADD", "q", 60, "body"),
    ("RQ.PUSH", "q", "body"),
    ("WQ.ENQUEUE", "q", "TASKS", "body"),
]
#: The same with a name, for which the other nodes are asked first: what is there is not refused.
NAMING: list[tuple[str | int, ...]] = [
    ("ADDJOB", "q", "body", 0, "KEY", "key"),
    ("QLPUSH", "q", "1", "body"),
    ("QRPUSH", "q", "1", "body"),
]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3)


def states(cluster: Cluster, queue: str = "q") -> list[bytes]:
    return [member("PAUSE", queue, "state") for member in cluster]


def told(cluster: Cluster) -> list[tuple[str, int]]:
    """Who told whom, and how many registers; answers are left out."""
    return [(repr(flight)[:4], len(flight.data[2])) for flight in cluster.sent(POLICY) if flight.data[2]]


def check_all(cluster: Cluster) -> None:
    """What each node keeps is consistent, and nobody waits for an answer."""
    for member in cluster:
        check(member)
        assert not member.node.policies._rounds


def test_a_pause_holds_on_every_node_at_once(cluster: Cluster) -> None:
    a, b, c = cluster
    assert a("PAUSE", "q", "in") == b"in"
    assert states(cluster) == [b"in"] * 3
    assert all(member.refusal("ADDJOB", "q", "body", 0) == REFUSAL for member in cluster)
    assert c("PAUSE", "q", "none") == b"none"
    assert states(cluster) == [b"none"] * 3
    assert b.add("q", "body", "REPLICATE", 1)
    check_all(cluster)


def test_each_node_hands_on_only_what_is_new_to_it(cluster: Cluster) -> None:
    a, b, _ = cluster
    a("PAUSE", "q", "in")
    assert sorted(told(cluster)) == [("a->b", 1), ("a->c", 1), ("b->c", 1), ("c->b", 1)]
    cluster.flights.clear()
    cluster.advance(120_000)
    assert not told(cluster)
    b.say(a, (POLICY, 7, tuple((b"q", PAUSE_FIELD, known) for known in b.state.queues.policies.registers.values())))
    assert told(cluster) == [("b->a", 1)]
    assert [flight.message for flight in cluster.sent(POLICY) if repr(flight)[:4] == "a->b"] == [(POLICY, 7, ())]


def test_a_node_hands_on_what_it_learns_to_nodes_that_the_first_one_cannot_reach(cluster: Cluster) -> None:
    a, _, c = cluster
    cluster.cut(a, c)
    a("PAUSE", "q", "in")
    assert states(cluster) == [b"in"] * 3


def test_a_node_that_was_away_learns_the_last_word_when_a_link_opens(cluster: Cluster) -> None:
    a, b, c = cluster
    c("PAUSE", "other", "in")
    cluster.cut(a, c)
    cluster.cut(b, c)
    a("PAUSE", "q", "all", "REASON", "deploy")
    b("PAUSE", "other", "none")
    assert c("PAUSE", "q", "state") == b"none"
    cluster.heal(a, c)
    assert (c("PAUSE", "q", "state"), c("PAUSE", "other", "state")) == (b"all", b"none")
    assert c.refusal("ADDJOB", "q", "body", 0) == f"{REFUSAL} (deploy; by address client)"
    cluster.heal(b, c)
    assert states(cluster) == [b"all"] * 3
    check_all(cluster)


def test_of_two_sides_of_a_partition_the_higher_version_counts_on_both(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.cut(a, c)
    cluster.cut(b, c)
    a("PAUSE", "q", "in")
    a("PAUSE", "q", "out")
    c("PAUSE", "q", "all")
    a("PAUSE", "even", "in")
    c("PAUSE", "even", "out")
    cluster.heal(a, c)
    assert states(cluster) == [b"out"] * 3
    assert states(cluster, "even") == [b"out"] * 3  # the id of c is the higher one
    check_all(cluster)


def test_what_is_lost_is_said_again_until_it_is_answered(cluster: Cluster) -> None:
    a, b, _ = cluster
    lost: list[Flight] = []

    def lose(flight: Flight) -> bool:
        lost.append(flight)
        return flight.kind == POLICY and flight.receiver is b and len(lost) < 40

    cluster.lose = lose
    a("PAUSE", "q", "in")
    assert b("PAUSE", "q", "state") == b"none"
    cluster.lose = lambda flight: flight.kind == POLICY and flight.sender is b
    cluster.advance(2_000)
    assert b("PAUSE", "q", "state") == b"in"
    cluster.lose = lambda flight: False
    cluster.advance(60_000)
    check_all(cluster)


def test_very_many_policies_are_told_a_message_at_a_time(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.cut(a, c)
    cluster.cut(b, c)
    for number in range(2 * POLICIES_PER_MESSAGE + 1):
        a("PAUSE", number, "in")
    cluster.flights.clear()
    cluster.heal(a, c)
    counts = [count for who, count in told(cluster) if who == "a->c"]
    assert counts == [POLICIES_PER_MESSAGE, POLICIES_PER_MESSAGE, 1]
    assert all(c("PAUSE", number, "state") == b"in" for number in range(2 * POLICIES_PER_MESSAGE + 1))
    check_all(cluster)


def test_large_reasons_fill_a_message_before_it_is_full(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.cut(a, c)
    cluster.cut(b, c)
    for number in range(6):
        a("PAUSE", b"%d" % number * 60_000, "in")
    cluster.flights.clear()
    cluster.heal(a, c)
    assert [count for who, count in told(cluster) if who == "a->c"] == [5, 1]


# This node alone.


def test_a_pause_of_one_node_is_no_affair_of_the_others_and_ends_with_the_next_word_for_all(cluster: Cluster) -> None:
    a, b, _ = cluster
    assert b("PAUSE", "q", "out", "node") == b"out"
    assert states(cluster) == [b"none", b"out", b"none"]
    assert not cluster.sent(POLICY) + cluster.sent(PAUSE)
    assert a("PAUSE", "q", "in") == b"in"
    assert states(cluster) == [b"in"] * 3
    assert b("PAUSE", "q", "out", "node") == b"all"
    assert b("PAUSE", "q", "none", "node") == b"in"
    assert b("PAUSE", "q", "out", "node") == b"all"
    a("PAUSE", "q", "none")
    assert states(cluster) == [b"none"] * 3
    assert [record for record in b.journal if record[0] == QUEUE_PAUSED][-1] == (QUEUE_PAUSED, b"q", 0)
    check_all(cluster)


def test_an_older_node_that_broadcasts_a_pause_sets_that_of_each_node_alone(cluster: Cluster) -> None:
    a, b, c = cluster
    a.say(b, (PAUSE, b"q", 1))
    assert states(cluster) == [b"none", b"in", b"none"]
    b.state.memory.set_limit(1)
    a.say(b, (PAUSE, b"q", 3))
    a.say(b, (PAUSE, b"unknown", 3))
    assert b("PAUSE", "q", "state") == b"all"
    assert b"unknown" not in b.state.queues.by_name
    c("PAUSE", "q", "none")
    assert states(cluster) == [b"none"] * 3


# What follows a pause.


def test_a_node_that_learns_out_hands_out_nothing_more(cluster: Cluster) -> None:
    a, b, c = cluster
    b.add("q", "one", "REPLICATE", 1)
    c.wait("carl")
    b.add("q", "two", "REPLICATE", 1)
    assert c.answered("carl") == [b"one"]
    a("PAUSE", "q", "out")
    c.wait("cleo")
    cluster.flights.clear()
    b.add("q", "three", "REPLICATE", 1)
    assert c.answered("cleo") == []
    assert not cluster.sent(NEEDJOBS)
    a("PAUSE", "q", "none")
    assert c.answered("cleo") == [b"two"]
    check_all(cluster)


def test_reason_and_owner_are_told_to_producers_on_every_node(cluster: Cluster) -> None:
    a, b, _ = cluster
    a("PAUSE", "q", "in", "REASON", "deploy of billing", client=Named(b"cli", b"ops"))
    line = f"{REFUSAL} (deploy of billing; by ops, client cli)"
    assert {b.refusal(*words) for words in ADDING} == {line}
    for words in NAMING:
        b(*words, client="kate")
    assert [str(answer.line, "ascii") for answer in b.answers["kate"]] == [line] * len(NAMING)
    stat = b.stat()
    assert stat is not None
    assert (stat["pause"], stat["pause-reason"], stat["pause-by"]) == (b"in", b"deploy of billing", b"ops, client cli")
    assert stat["pause-node"] == b"none"
    assert abs(stat["pause-at"] - a.state.wall // 1_000) <= 1
    a("PAUSE", "q", "in", client=Named(b"", b"ops"))
    assert b.refusal("ADDJOB", "q", "body", 0) == f"{REFUSAL} (by ops)"
    a("PAUSE", "q", "in", client=Named(b"", b"default"))
    assert b.refusal("ADDJOB", "q", "body", 0) == REFUSAL
    a("PAUSE", "q", "in", "REASON", "deploy", client=Named(b"", b"default"))
    assert b.refusal("ADDJOB", "q", "body", 0) == f"{REFUSAL} (deploy; by address 10.0.0.9:4711)"
    assert b.stat()["pause-by"] == b"address 10.0.0.9:4711"  # type: ignore[index]
    a("PAUSE", "q", "in", client=Named(b"cli", b"default"))
    assert b.refusal("ADDJOB", "q", "body", 0) == f"{REFUSAL} (by cli)"


def test_a_producer_of_a_node_that_has_not_learnt_of_the_pause_hears_of_it_from_the_one_that_has(
    cluster: Cluster,
) -> None:
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == POLICY and flight.receiver is c
    a("PAUSE", "q", "in", "REASON", "deploy")
    assert c("ADDJOB", "q", "body", 0, "REPLICATE", 2, client="paul") is not None
    cluster.advance(1)
    nodes = ", ".join(sorted(member.id.decode() for member in (a, b)))
    assert [str(answer.line, "ascii") for answer in c.answers["paul"]] == [f"{REFUSAL} (on node {nodes})"]
    assert b.refusal("ADDJOB", "q", "body", 0, "REPLICATE", 2) == f"{REFUSAL} (deploy; by address client)"


# Keeping and forgetting.


def test_a_full_node_learns_a_pause_all_the_same(cluster: Cluster) -> None:
    a, b, _ = cluster
    b.state.memory.set_limit(1)
    a("PAUSE", "unknown", "all")
    assert b("PAUSE", "unknown", "state") == b"all"
    check_all(cluster)


def test_a_flush_leaves_policies_and_goes_on_telling(cluster: Cluster) -> None:
    a, b, _ = cluster
    b("PAUSE", "here", "out", "node")
    cluster.lose = lambda flight: flight.kind == POLICY and flight.receiver is b
    a("PAUSE", "q", "in")
    a.node.begin()
    a.node.flush()
    a.settle()
    assert a.journal[-1] == (FLUSHED,)
    assert a.refusal("ADDJOB", "q", "body", 0) == REFUSAL
    register = a.state.queues.policies.registers[b"q", PAUSE_FIELD]
    assert a.state.memory.used == cost_of_register(b"q", register.value) + QUEUE_COST + COUNTS_COST + 1
    cluster.lose = lambda flight: False
    cluster.advance(10_000)
    assert b("PAUSE", "q", "state") == b"in"
    b.node.begin()
    b.node.flush()
    b.settle()
    assert (b("PAUSE", "q", "state"), b("PAUSE", "here", "state")) == (b"in", b"none")
    check_all(cluster)


def test_the_end_of_a_pause_is_forgotten_after_a_week_everywhere() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a("PAUSE", "q", "in")
    a("PAUSE", "kept", "in")
    b("PAUSE", "q", "none")
    cluster.advance(FORGOTTEN_MS - 8 * SWEEP_MS)
    assert len(a.state.queues.policies) == len(b.state.queues.policies) == 2
    cluster.advance(16 * SWEEP_MS)  # the wall clocks are hours apart
    assert [name for name, _ in a.state.queues.policies.registers] == [b"kept"]
    assert [name for name, _ in b.state.queues.policies.registers] == [b"kept"]
    kind, name, field, register = a.journal[-1]
    assert (kind, name, field, register.counter) == (POLICY_RECORD, b"q", PAUSE_FIELD, 0)
    check_all(cluster)


def test_an_outdated_word_is_not_learnt_again_from_a_node_that_still_has_it(cluster: Cluster) -> None:
    a, b, _ = cluster
    a("PAUSE", "q", "none")
    known = a.state.queues.policies.registers[b"q", PAUSE_FIELD]
    a.say(b, (POLICY, 7, ((b"old", PAUSE_FIELD, known._replace(set_at=1)),)))
    assert (b"old", PAUSE_FIELD) not in b.state.queues.policies.registers
    a("PAUSE", "old", "in")
    a.say(b, (POLICY, 8, ((b"old", PAUSE_FIELD, known._replace(counter=9, set_at=1)),)))
    assert states(cluster, "old")[1:] == [b"none"] * 2  # it ends a pause that is known


class Named:
    """A client with a name, and a user."""

    def __init__(self, name: bytes, user: bytes) -> None:
        self.name = name
        self.user = User(user)
        self.address = "10.0.0.9:4711"


class User:
    """A user that may do everything."""

    all_queues = all_channels = True

    def __init__(self, name: bytes) -> None:
        self.name = name
