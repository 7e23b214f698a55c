"""Events in a cluster: their copies, and what a node may not be talked into."""

from typing import Any

from disqued.commands.table import BLOCKED
from disqued.core.model.messages import REPLJOB
from tests.cluster_fixtures import Cluster, Member


def added(member: Member, *words: str | int) -> bytes:
    """QADD, whose answer comes when the copies are there."""
    assert member("QADD", "q", 60, "x", *words) is BLOCKED
    (event_id,) = member.answers.pop("client")
    assert isinstance(event_id, bytes), event_id
    return event_id


def taken(member: Member, *words: str | int, group: str = "g", client: str = "reader") -> Any:
    """QGET, which asks the other nodes when there is nothing here."""
    value = member("QGET", "q", group, *words, client=client)
    if value is BLOCKED:
        (value,) = member.answers.pop(client)
    return value


def settled(member: Member, *words: str | bytes | int, client: str = "settler") -> int:
    """QACK, or another command that other nodes may have to decide."""
    value = member(*words, client=client)
    if value is BLOCKED:
        (value,) = member.answers.pop(client)
    assert isinstance(value, int)
    return value


def test_an_event_is_answered_when_its_copies_are_there() -> None:
    cluster = Cluster(3)
    event_id = added(cluster.members[0])
    assert all(member.holds(event_id) for member in cluster)
    a = cluster.members[0]
    assert a("QGET", "q", "g") == [event_id, b"x"]
    cluster.advance(60_000)
    assert not any(member.holds(event_id) for member in cluster)


def test_a_producer_hears_that_there_are_too_few_nodes_after_the_timeout() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == REPLJOB
    assert a("QADD", "q", 60, "x", "REPLICATE", 2) is BLOCKED
    cluster.advance(5_000)
    (error,) = a.answers.pop("client")
    assert error.line.startswith(b"NOREPL ")
    assert not any(member.state.jobs.get(job.id) for member in (a, b, c) for job in a.state.jobs)
    assert taken(a) is None


def test_additions_that_nobody_waits_for_are_bounded_and_those_that_fail_are_counted() -> None:
    """Their producers hear BUSY when one more than the limit would wait for its copies."""
    cluster = Cluster(2)
    a = cluster.members[0]
    a.node.streams.background.limit = 3
    cluster.lose = lambda flight: flight.kind == REPLJOB
    for _ in range(3):
        assert a("QADD", "q", 60, "x", "NOBLOCK", "REPLICATE", 2) == b"OK"
    assert a.refusal("QADD", "q", 60, "x", "NOBLOCK").startswith("BUSY ")
    cluster.advance(5_000)
    background = a.node.streams.background
    assert (background.running, background.failed) == (0, 3)
    cluster.lose = lambda flight: False
    assert a("QADD", "q", 60, "x", "NOBLOCK", "REPLICATE", 2) == b"OK"
    assert (background.running, background.failed) == (0, 3)


def test_an_acknowledgement_for_everybody_at_a_node_that_does_not_know_an_event_does_not_end_it() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = bytes(a("QADD", "q", 60, "x", "REPLICATE", 1))
    assert c("ACKJOB", event_id) == 0
    cluster.advance(10_000)
    assert a("QGET", "q", "g") == [event_id, b"x"]
    assert c.state.jobs.get(event_id) is None
    assert b.state.jobs.get(event_id) is None


def test_a_node_that_leaves_is_safe_to_stop_when_its_events_are_elsewhere() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = bytes(a("QADD", "q", 600, "x", "REPLICATE", 1))
    a("CLUSTER", "LEAVING", "yes")
    cluster.advance(10_000)
    assert b.holds(event_id)
    assert a.node.leaving.is_safe
