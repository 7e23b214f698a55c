"""RQ.RECOVER in a queue with limits: an element moves from consumer to consumer, and its slot stays with it."""

from collections.abc import Iterable
from typing import Any

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.policies import AVAILABLE, INFLIGHT_FIELD, PARTITION_FIELD
from disqued.errors import SlotsElsewhere
from tests.cluster_fixtures import Cluster, Member
from tests.unit.core.cluster.test_stewards import cluster_with, steward

REFUSED = "the queue has limits, and these elements have slots on other nodes; ENQUEUE takes them from their consumers"
Given = list[tuple[str, bytes]]


def push(cluster: Cluster, member: Member, *bodies: str) -> list[bytes]:
    """Add elements with copies on all nodes; returns the ids of their jobs."""
    for each in cluster:
        each.node.lists.replicate = 3
    member("RQ.PUSH", "q", *bodies)
    cluster.advance(100)
    member.answers.pop("client")
    by_body = {job.body: job.id for job in member.state.jobs}
    return [by_body[body.encode()] for body in bodies]


def wait_everywhere(cluster: Cluster) -> None:
    """Let a consumer wait on each node."""
    for member in cluster:
        member("GETJOB", "FROM", "q", client="waits")
    cluster.advance(100)


def given(members: Iterable[Member], *clients: str) -> Given:
    """Return which nodes have given which bodies to these clients since this was asked last."""
    return [
        (member.name, body)
        for member in members
        for client in (*clients, "waits")
        for rows in member.answers.pop(client, [])
        for _, _, body in rows or ()
    ]


def recover(cluster: Cluster, member: Member, *words: str) -> list[bytes]:
    value: Any = member("RQ.RECOVER", "q", 10, 0, *words, client="recovers")
    if value is BLOCKED:
        cluster.advance(2_500)
        value = member.answers["recovers"].pop()
    return [body for _, body in value]


def refused(member: Member, *words: str) -> str:
    with pytest.raises(SlotsElsewhere) as raised:
        member("RQ.RECOVER", "q", 10, 0, *words)
    return str(raised.value)


def slots(cluster: Cluster) -> list[list[bytes]]:
    """Return the jobs that have slots, as each node knows."""
    return [list(member.node.witnesses.of(b"q").table.by_id) for member in cluster]


def keeps_its_slot(cluster: Cluster, job_id: bytes) -> None:
    """Let a minute pass in which nothing else may be handed out."""
    for _ in range(6):
        cluster.advance(10_000)
        assert given(cluster) == []
        assert slots(cluster) == [[job_id]] * 3


@pytest.mark.parametrize("by_steward", [False, True])
def test_an_element_that_another_node_recovers_keeps_its_slot(by_steward: bool) -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    first = steward(cluster)
    a, c = (member for member in cluster if member is not first)
    b = first if by_steward else c
    ids = push(cluster, a, "one", "two")
    a("RQ.POP", "q", client="pops")
    cluster.advance(100)
    assert given(cluster, "pops") == [(a.name, b"one")]
    wait_everywhere(cluster)
    assert recover(cluster, b) == [b"one"]
    keeps_its_slot(cluster, ids[0])
    assert b("ACKJOB", ids[0]) == 1
    cluster.advance(3_000)
    assert [body for _, body in given(cluster)] == [b"two"]
    assert slots(cluster) == [[ids[1]]] * 3


def test_a_worker_of_another_node_gets_no_element_with_a_slot() -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (2,)})
    a, b, _ = cluster
    push(cluster, a, "one")
    a("RQ.POP", "q", client="pops")
    cluster.advance(100)
    b("WORKER", "START", "ID", "w", "TTL", 0, client="works")
    assert refused(b, "WORKER", "w") == REFUSED
    push(cluster, b, "two")
    b("RQ.POP", "q", client="pops")
    cluster.advance(100)
    assert given(cluster, "pops") == [(a.name, b"one"), (b.name, b"two")]
    assert recover(cluster, b, "WORKER", "w") == [b"two"], "what this node handed out"
    assert recover(cluster, b) == [b"two", b"one"]


@pytest.mark.parametrize("available", [False, True])
def test_elements_of_a_node_that_cannot_be_reached_stay_with_their_consumers(available: bool) -> None:
    cluster = cluster_with({INFLIGHT_FIELD: (1,), **({PARTITION_FIELD: (AVAILABLE,)} if available else {})})
    first = steward(cluster)
    a, b = (member for member in cluster if member is not first)
    ids = push(cluster, a, "one", "two")
    a("RQ.POP", "q", client="pops")
    cluster.advance(100)
    assert given(cluster, "pops") == [(a.name, b"one")]
    cluster.isolate(a)
    cluster.advance(60_000)
    assert refused(b) == REFUSED
    assert b("RQ.RECOVER", "q", 10, 1 << 40) == [], "there is nothing of that age"
    # Whoever knows that the consumer is gone says so: the job waits for the slot that it has.
    assert b("ENQUEUE", ids[0]) == 1
    wait_everywhere(cluster)
    cluster.advance(10_000)
    assert given([first, b]) == [(b.name, b"one")]
    cluster.heal(a, b)
    cluster.heal(a, first)
    keeps_its_slot(cluster, ids[0])
    assert b("ACKJOB", ids[0]) == 1
    cluster.advance(3_000)
    assert [body for _, body in given(cluster)] == [b"two"]


def test_elements_of_a_queue_without_limits_are_taken_over() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    push(cluster, a, "one")
    a("RQ.POP", "q")
    cluster.isolate(a)
    assert recover(cluster, b) == [b"one"]
