"""What nodes tell of how they are."""

from disqued.core.model import messages as m
from disqued.core.model.messages import Vitals
from disqued.core.model.vitals import LastVitals, account_of
from tests.mesh_fixtures import Mesh

START = Vitals(b"1", 0, 100, 0, 1_000, 500)


def told(queued: int, given: int, before: LastVitals, now: int) -> LastVitals:
    return account_of(START._replace(queued=queued, given=given), before, now)


def test_nodes_that_meet_hear_how_the_others_are() -> None:
    mesh = Mesh(3)
    for member in mesh:
        for other in mesh:
            if other is not member:
                account = member.peer(other).account
                assert account is not None
                assert (account.vitals.limit, account.vitals.jobs) == (other.node.state.memory.limit, 0)
    lines = mesh.members[0].membership.lines()
    assert [line.account is None for line in lines] == [True, False, False]


def test_each_pong_comes_with_what_the_node_holds_then() -> None:
    a, b = Mesh(2)
    b.node.state.memory.used = 77
    b.node.state.counters.queued = 3
    b.node.state.counters.exported = 5
    b.node.state.counters.waiting_buckets[1] = 2
    b.node.message(a.id, (m.PING, 0, ()))
    said = [message for _, message in b.node.outbox.messages if message[0] == m.VITALS]
    assert [vitals[1:] for (_, vitals) in said] == [(77, b.node.state.memory.limit, 0, 3, 2)]


def test_rates_are_worked_out_over_a_second_or_more() -> None:
    first = account_of(START, None, 10_000)
    assert (first.queued_rate, first.given_rate) == (None, None)
    second = told(1_100, 500, first, 12_000)
    assert (second.queued_rate, second.given_rate) == (50.0, 0.0)
    # Too soon after: what is held is new, the rates are the old ones.
    third = told(1_200, 510, second, 12_400)
    assert (third.vitals.queued, third.at, third.queued_rate) == (1_200, 12_400, 50.0)
    fourth = told(1_300, 520, third, 13_000)
    assert (fourth.queued_rate, fourth.given_rate) == (200.0, 20.0)


def test_a_node_that_was_started_again_has_no_negative_rates() -> None:
    old = told(1_100, 600, account_of(START, None, 10_000), 12_000)
    again = told(3, 0, old, 14_000)
    assert (again.queued_rate, again.vitals.queued) == (None, 3)
    assert told(13, 10, again, 15_000).queued_rate == 10.0
