"""What a node gives to consumers of other nodes, and what it remembers of them."""

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model import groups
from disqued.core.model.messages import GIVE, TAKE, WANT
from disqued.core.streams.offers import WANTS_OF_NODE
from tests.cluster_fixtures import Cluster
from tests.unit.core.streams.test_readers import add, answer, get, isolated, wait


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(2)


def test_a_long_log_is_searched_in_parts_for_a_consumer_of_another_node() -> None:
    cluster = Cluster(2)
    a, b = cluster
    for _ in range(12_000):
        a.node.begin()
        a.run("QADD", "q", 600, "x", "REPLICATE", 1)
    answer(a, "QGROUP", "START", "q", "g", "NOW")
    last = add(a, body="last")
    assert b("QGET", "q", "g", client="reader") is BLOCKED
    cluster.advance(50)
    assert b.answers.pop("reader") == [[last, b"last"]]


def test_what_a_node_wants_is_bounded_and_who_is_forgotten_is_told_of_nothing() -> None:
    cluster = Cluster(2)
    a, b = cluster
    for number in range(WANTS_OF_NODE + 5):
        b.say(a, (WANT, b"queue %d" % number, b"g", True))
    assert len(a.state.demand.entries) == WANTS_OF_NODE
    assert b"queue 4" not in a.state.demand.entries
    cluster.cut(a, b)
    assert not a.state.demand.entries


def test_a_paused_log_gives_nothing_to_other_nodes() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a)
    a("PAUSE", "q", "out", "node")
    assert get(b) is None
    wait(b)
    a("PAUSE", "q", "none", "node")
    assert b.answers.pop("waiting") == [[event_id, b"x"]]


def test_who_takes_without_having_said_that_it_wants_some_gets_some_too(cluster: Cluster) -> None:
    a, b = cluster
    event_id = add(a)
    a("QLPUSH", "work", "id", "x", "REPLICATE", 1)
    for number, name in enumerate((b"q", b"nowhere", b"work"), 1):
        b.say(a, (TAKE, name, b"g", number, 1, 1_000, False))
    given = [flight.message for flight in cluster.sent(GIVE)]
    assert given == [
        (GIVE, 1, b"0:g", ((event_id, b"x"),)), (GIVE, 2, b"", ()), (GIVE, 3, b"", ()),
    ]  # fmt: skip


def test_no_group_is_made_by_one_that_takes_nothing(cluster: Cluster) -> None:
    a, b = cluster
    add(a, "DELAY", 60)
    b.say(a, (TAKE, b"q", b"g", 1, 1, 1_000, False))
    log = a.state.queues.by_name[b"q"].stream
    assert log is not None
    assert not log.groups


def test_with_ex_zero_a_node_that_cannot_write_its_journal_gives_nothing_away(cluster: Cluster) -> None:
    a, b = cluster
    event_id = add(a)
    a.state.durability.read_only = True
    assert get(b, "EX", 0) is None
    assert get(b) == [event_id, b"x"]


def test_strict_is_asked_of_other_nodes_too() -> None:
    """One has a copy of an event whose maker cannot be reached."""
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.cut(b, c)
    event_id = add(c, copies=2)
    isolated(cluster, c)
    assert a.holds(event_id)
    assert get(b, "EX", 0, "STRICT") is None
    assert get(b, "EX", 0) == [event_id, b"x"]


def test_a_long_log_is_searched_for_other_nodes_a_part_a_tick(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "SKIPPED_AT_ONCE", 10)
    a, b = cluster
    for _ in range(50):
        add(a)
    a("QGROUP", "START", "q", "g", "NOW")
    last = add(a)
    b.say(a, (TAKE, b"q", b"g", 1, 1, 1_000, False))
    for _ in range(3):
        assert not cluster.sent(GIVE)
        a.tick()
    cluster.advance(1)
    assert [flight.message for flight in cluster.sent(GIVE)] == [(GIVE, 1, b"1:g", ((last, b"x"),))]
