"""Who hands out an event: all its holders come to the same answer, each by itself."""

import pytest

from disqued.core.model.groups import Entry
from disqued.core.model.ids import comes_first
from disqued.core.model.peers import FAIL, LEAVING, PFAIL
from disqued.core.streams import owners
from disqued.core.streams.owners import NOBODY, EntryOwners
from tests.cluster_fixtures import Cluster, Member
from tests.unit.core.streams.test_readers import add


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(4)


def event_of(member: Member, event_id: bytes) -> Entry:
    event = member.state.jobs.get(event_id)
    assert isinstance(event, Entry)
    return event


def arbiter(member: Member, event_id: bytes) -> bytes:
    """The node that hands out an event, as this one sees it."""
    return member.node.streams.owners.of(event_of(member, event_id))


def mark(member: Member, other: Member, flags: int) -> None:
    """Let a node see another one so."""
    member.state.peers.by_id[other.id].flags = flags
    member.node.streams.owners.forget_candidates()


def test_an_event_that_nobody_else_holds_is_handed_out_here(cluster: Cluster) -> None:
    a, b, *_ = cluster
    event_id = add(a)
    a.node.streams.owners.unheard = frozenset({b.id})
    assert arbiter(a, event_id) == a.id
    assert not a.node.streams.owners.is_elsewhere(event_of(a, event_id))


@pytest.mark.parametrize("flag", [PFAIL, FAIL])
def test_all_holders_name_the_same_one_of_those_that_can_be_reached_and_not_always_the_same(
    cluster: Cluster, flag: int
) -> None:
    a, *others = cluster
    ids = [add(a, copies=4) for _ in range(12)]
    assert {arbiter(member, event_id) for member in cluster for event_id in ids} == {a.id}
    for member in others:
        mark(member, a, flag)
    named = [{arbiter(member, event_id) for member in others} for event_id in ids]
    for event_id, names in zip(ids, named, strict=True):
        (name,) = names
        assert not any(comes_first(other.id, name, event_id) for other in others if other.id != name)
    assert len(set.union(*named)) == 3


def test_one_that_leaves_hands_out_nothing_unless_all_leave(cluster: Cluster) -> None:
    a, *_ = cluster
    event_id = add(a, copies=2)
    (other,) = (member for member in cluster if member is not a and member.holds(event_id))
    for member in (a, other):
        if member is a:
            a.state.leaving = True
            a.node.streams.owners.forget_candidates()
        else:
            mark(other, a, LEAVING)
        assert arbiter(member, event_id) == other.id
    other.state.leaving = True
    other.node.streams.owners.forget_candidates()
    mark(a, other, LEAVING)
    assert arbiter(a, event_id) == arbiter(other, event_id) == a.id


def test_a_holder_that_is_not_known_any_more_does_not_count(cluster: Cluster) -> None:
    a, *_ = cluster
    event_id = add(a, copies=2)
    (other,) = (member for member in cluster if member is not a and member.holds(event_id))
    del other.state.peers.by_id[a.id]
    other.node.streams.owners.forget_candidates()
    assert arbiter(other, event_id) == other.id


def test_after_a_start_nobody_hands_out_what_those_hold_who_have_not_been_heard(cluster: Cluster) -> None:
    a, b, c, d = cluster
    event_id = add(a, copies=2)
    (other,) = (member for member in (b, c, d) if member.holds(event_id))
    strangers = frozenset(member.id for member in (b, c, d) if member is not other)
    a.node.streams.owners.unheard = strangers
    assert arbiter(a, event_id) == a.id
    a.node.streams.owners.unheard = strangers | {other.id}
    assert arbiter(a, event_id) == NOBODY


def test_of_many_events_with_the_same_holders_who_counts_is_found_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[frozenset[bytes]] = []
    those_there = EntryOwners._those_there

    def counted(self: EntryOwners, holders: frozenset[bytes], absent: frozenset[bytes]) -> tuple[bytes, ...]:
        found.append(holders)
        return those_there(self, holders, absent)

    monkeypatch.setattr(EntryOwners, "_those_there", counted)
    a = cluster.members[0]
    for _ in range(20):
        add(a, copies=4)
    assert len(found) <= len(cluster.members)


@pytest.mark.reference
def test_as_many_sets_of_holders_are_kept_as_the_limit_says(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "SETS_KEPT", 3)
    a, b, c, d = cluster
    event = event_of(a, add(a, copies=4))
    machine = a.node.streams.owners
    machine.forget_candidates()
    kept: list[int] = []
    for absent in ({b.id}, {c.id}, {d.id}, {b.id, c.id}, {c.id, d.id}):
        event.absent = frozenset(absent)
        assert machine.of(event) == a.id
        kept.append(len(machine._candidates))
    assert kept == [1, 2, 3, 1, 2]
