"""What nodes tell each other of logs are facts that merge: in any order, any number of times, with one outcome.

done        a group is done with an event: a union, within an epoch of the group
leases      who has it, for the so-manieth time: the maximum, and nothing once it is done
beginnings  the epoch of a group by maximum, and where it began in it, for each node that makes events, too
horizons    up to where a log was flushed, for each node that makes events: the maximum
"""

from collections.abc import Sequence
from itertools import permutations
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from disqued.core.model import messages as m
from disqued.core.model.groups import Entry, raise_floor, scope_of
from disqued.core.model.job import KIND_LOG, RETRY_NEVER_MS, JobOptions
from disqued.core.model.messages import EntryLease, EntryStatus, Message
from disqued.wire.messages import decode, encode
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import check_log

DAY_MS = 86_400_000
NODES = tuple(name * 40 for name in (b"a", b"b", b"c"))  #: the receiver is a
SENDERS = NODES[1:]
STAMPS = (10, 20, 30)  #: of the three events
IDS = [b"DI" + b"b" * 8 + b"%032x" % number + b"05a0SQ" for number in range(len(STAMPS))]
Said = Sequence[tuple[bytes, Message]]


def copy_of(number: int) -> Message:
    options = JobOptions(ttl_ms=DAY_MS, retry_ms=RETRY_NEVER_MS, delay_ms=0, replicate=2, kind=KIND_LOG)
    options.stamp(0)
    event = Entry(IDS[number], b"q", b"body", STAMPS[number], options)
    event.holders = frozenset(NODES)
    return (m.REPLJOB, event, True)


ids = st.sampled_from(IDS)
scopes = st.builds(scope_of, st.sampled_from([b"g", b"h"]), st.integers(0, 2))
leases = st.builds(EntryLease, scopes, st.sampled_from([0, 1_000, 50_000]), st.just(0), st.integers(1, 3))
floors = st.dictionaries(st.sampled_from([b"b" * 8, b"c" * 8]), st.sampled_from([0, *STAMPS]), max_size=2)
facts = st.builds(
    EntryStatus, ids, st.lists(scopes, max_size=2, unique=True).map(tuple), st.lists(leases, max_size=2).map(tuple)
)
messages = st.one_of(
    st.builds(lambda job_id, scope: (m.SETACK, job_id, scope, False, frozenset(NODES)), ids, scopes),
    st.builds(lambda job_id, lease: (m.DELIVERED, job_id, *lease), ids, leases),
    st.builds(lambda some: (m.FACTS, 0, tuple(some), False), st.lists(facts, max_size=2)),
    st.builds(lambda scope, floor: (m.BEGIN, b"q", scope, floor, DAY_MS, False), scopes, floors),
    st.builds(lambda floor: (m.BEGIN, b"q", b"", floor, DAY_MS, False), floors),
)
said = st.lists(st.tuples(st.sampled_from(SENDERS), messages), max_size=3)


def tell(messages: Said) -> Member:
    """A node of three that has heard of the events, and then these messages; what it answers is lost."""
    cluster = Cluster(3)
    cluster.lose = lambda flight: True
    member = cluster.members[0]
    for sender, message in [*((SENDERS[0], copy_of(number)) for number in range(len(IDS))), *messages]:
        member.node.begin()
        member.node.message(sender, decode(encode(message, 0)))
        member.settle()
    # What is let go of is let go of in parts; no time passes.
    while member.node.deadline() is not None and member.node.deadline() <= member.state.now:  # type: ignore[operator]
        member.tick()
    return member


def outcome(member: Member) -> Any:
    """All that a node knows of the log, as it would tell it."""
    log = member.state.queues.by_name[b"q"].stream
    assert log is not None
    check_log(log)
    groups = {
        name: (
            group.epoch, sorted(group.floor.items()), group.done, group.leased, group.redo,
            sorted((event.id, unit.progress) for event, unit in group.units.items()),
        )
        for name, group in log.groups.items() if not group.is_blank
    }  # fmt: skip
    # A fact of an epoch that is over means nothing.
    done = sorted((event.id, sorted(scope for scope in event.done if _counts(log, scope))) for event in log)
    return (groups, done, sorted(log.horizon.items()))


def _counts(log: Any, scope: bytes) -> bool:
    return any(group.scope == scope for group in log.groups.values())


@given(said)
def test_whatever_the_order_the_outcome_is_one(facts: Said) -> None:
    outcomes = [outcome(tell(order)) for order in permutations(facts)]
    assert all(one == outcomes[0] for one in outcomes)


@given(said, st.data())
def test_hearing_it_again_changes_nothing(facts: Said, data: st.DataObject) -> None:
    again = data.draw(st.lists(st.sampled_from(facts), max_size=4)) if facts else []
    assert outcome(tell([*facts, *again])) == outcome(tell(facts))


@given(said, said)
def test_two_nodes_that_tell_each_other_all_they_know_know_the_same(facts: Said, others: Said) -> None:
    """What a node tells when a link opens is all that it knows."""
    cluster = Cluster(2)
    a, b = cluster
    cluster.cut(a, b)
    for member, messages in ((a, facts), (b, others)):
        sender = b if member is a else a
        for message in (*map(copy_of, range(len(IDS))), *(message for _, message in messages)):
            member.node.begin()
            member.node.message(sender.id, decode(encode(message, 0)))
            member.settle()
        member.tick()
    cluster.heal(a, b)
    cluster.advance(50)
    # Spans are told, not moments: they end a little apart.
    one, other = outcome(a), outcome(b)
    assert one[1:] == other[1:]
    assert {name: rest[:-1] for name, rest in one[0].items()} == {name: rest[:-1] for name, rest in other[0].items()}


@given(st.lists(floors, max_size=4))
def test_floors_are_a_maximum_for_each_node(some: list[dict[bytes, int]]) -> None:
    outcomes = []
    for order in permutations(some):
        floor: dict[bytes, int] = {}
        for one in order:
            raise_floor(floor, one)
            assert not raise_floor(floor, one)
        outcomes.append(floor)
    assert all(one == outcomes[0] for one in outcomes)
    assert outcomes[0] == {key: max(one.get(key, 0) for one in some) for key in {key for one in some for key in one}}
