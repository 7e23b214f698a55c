"""What nodes tell each other of a job are facts that merge: in any order, any number of times, with one outcome.

exists      union of the nodes that may hold it
done        final: beats every other fact, before or after it
hints       who has it queued or at work: they move timers, and decide nothing that outlives them
"""

from collections.abc import Sequence
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from disqued.core.model import messages as m
from disqued.core.model.job import ACKED, QUEUED, Job, JobOptions
from disqued.core.model.messages import Message
from disqued.wire.messages import decode, encode
from tests.cluster_fixtures import Cluster, Member

DAY_MS = 86_400_000
JOB_ID = b"DI" + b"0" * 40 + b"05a0" + b"SQ"
NODES = tuple(name * 40 for name in (b"a", b"b", b"c", b"d", b"e"))
SENDERS = NODES[1:3]  #: of the three nodes that are linked; the receiver is a

holder_sets = st.frozensets(st.sampled_from(NODES), min_size=1)


def copy_of(holders: frozenset[bytes]) -> Message:
    options = JobOptions(ttl_ms=DAY_MS, retry_ms=60_000, delay_ms=0, replicate=2)
    options.stamp(0)
    job = Job(JOB_ID, b"q", b"body", 1, options)
    job.holders = holders
    return (m.REPLJOB, job, False)


existence = st.one_of(
    st.builds(copy_of, holder_sets), st.tuples(st.just(m.HOLDERS), st.just(JOB_ID), holder_sets),
    st.builds(lambda: (m.WILLQUEUE, JOB_ID, b"")),
)  # fmt: skip
hints = st.one_of(
    st.tuples(st.just(m.QUEUED), st.just(JOB_ID), st.just(b""), st.sampled_from([m.AS_BEFORE, m.AFTER_NACK, m.AGAIN])),
    st.tuples(st.just(m.WORKING), st.just(JOB_ID), st.just(b""), st.integers(0, 60_000)),
    st.tuples(st.just(m.ENQUEUE), st.just(JOB_ID), st.just(b""), st.just(0)),
    st.builds(lambda: (m.WILLQUEUE, JOB_ID, b"")),
)
done = st.tuples(st.just(m.SETACK), st.just(JOB_ID), st.just(b""), st.just(False), holder_sets | st.just(frozenset()))
said = st.tuples(st.sampled_from(SENDERS), st.one_of(st.builds(copy_of, holder_sets), hints, done))
#: Of one that knows that this node may hold the job.  Who does not know keeps the fact itself, and asks again.
done_for_us = st.tuples(
    st.just(m.SETACK), st.just(JOB_ID), st.just(b""), st.just(False), holder_sets.map(lambda nodes: nodes | {NODES[0]})
)
Said = Sequence[tuple[bytes, Message]]


def tell(messages: Said) -> Member:
    """A node of three that has heard these messages; what it answers is lost."""
    cluster = Cluster(3)
    cluster.lose = lambda flight: True
    member = cluster.members[0]
    for sender, message in messages:
        member.node.begin()
        member.node.message(sender, decode(encode(message, 0)))
        member.settle()
    return member


def holders_of(member: Member) -> frozenset[bytes]:
    job = member.state.jobs.get(JOB_ID)
    assert job is not None
    return job.holders or frozenset((member.id,))


@given(st.lists(existence, min_size=1, max_size=3), st.data())
def test_that_a_job_exists_is_a_union_whatever_the_order_and_however_often_it_is_said(
    facts: list[Message], data: st.DataObject
) -> None:
    told = [(data.draw(st.sampled_from(SENDERS)), fact) for fact in facts]
    # A node hears of holders only after it was given the copy.
    first = (SENDERS[0], copy_of(frozenset((NODES[0], SENDERS[0]))))
    outcomes = {holders_of(tell([first, *order])) for order in permutations(told)}
    assert len(outcomes) == 1
    named = [fact[1].holders if fact[0] == m.REPLJOB else fact[2] for _, fact in told if fact[0] != m.WILLQUEUE]
    # Who asks about a job holds it.
    asked = frozenset(sender for sender, fact in told if fact[0] == m.WILLQUEUE)
    assert outcomes == {frozenset((NODES[0], SENDERS[0])).union(asked, *named)}
    again = data.draw(st.lists(st.sampled_from(told), max_size=6))
    assert holders_of(tell([first, *told, *again])) in outcomes


@given(st.lists(said, max_size=8), st.tuples(st.sampled_from(SENDERS), done_for_us), st.data())
def test_done_beats_everything_else_whatever_comes_before_and_after_it(
    others: Said, fact: tuple[bytes, Message], data: st.DataObject
) -> None:
    order = data.draw(st.permutations([*others, fact]))
    member = tell(order)
    job = member.state.jobs.get(JOB_ID)
    assert job is None or job.state == ACKED
    # Nothing that is heard later, and no timer, brings it back.
    for sender, message in [*others, (SENDERS[0], copy_of(frozenset(NODES[:2])))]:
        member.node.begin()
        member.node.message(sender, decode(encode(message, 0)))
        member.settle()
    member.cluster.advance(300_000)
    assert member.bodies() == []
    assert not any(job.state == QUEUED for job in member.state.jobs)


@given(st.lists(said.filter(lambda one: one[1][0] != m.SETACK), max_size=8))
def test_hints_neither_end_a_job_nor_keep_it_from_being_delivered_for_ever(others: Said) -> None:
    member = tell([(SENDERS[0], copy_of(frozenset((NODES[0], SENDERS[0])))), *others])
    delivered = member.bodies()
    for _ in range(10):
        if delivered:
            break
        member.cluster.advance(60_000)
        delivered = member.bodies()
    assert delivered == [b"body"]
