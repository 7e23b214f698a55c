"""Addresses that a node tries: for how long, and how many."""

from disqued.core.cluster.meetings import MEETINGS_MAX
from disqued.core.model import messages as m
from disqued.core.model.messages import Target
from disqued.core.model.peers import TIMEOUT_MS
from tests.mesh_fixtures import BUS_PORT, Member, acquainted, hear, pass_time, rumour_of


def test_meeting_a_node_that_does_not_answer_is_given_up() -> None:
    a = Member(1)
    a.membership.meet("10.0.0.9", 7711, BUS_PORT)
    assert a.membership.targets() == [Target("10.0.0.9", BUS_PORT, b"", meets=True)]
    assert [line.host for line in a.membership.meetings.lines()] == ["10.0.0.9"]
    pass_time(a, TIMEOUT_MS - 1_000)
    assert a.membership.targets()
    a.node.outbox.members_changed = False
    pass_time(a, 2_000)
    assert a.membership.targets() == []
    assert a.node.outbox.members_changed
    assert a.node.deadline() is None


def test_an_address_is_tried_for_a_second_however_short_the_time_out() -> None:
    a = Member(1)
    a.node.state.peers.timeout_ms = 40
    a.membership.meet("10.0.0.9", 7711, BUS_PORT)
    pass_time(a, 900, step=10)
    assert a.membership.targets()
    pass_time(a, 150, step=10)
    assert not a.membership.targets()


def test_what_a_hostile_peer_says_takes_bounded_room() -> None:
    a = acquainted(2)
    for start in range(3, 30_000, 100):
        rumours = tuple(rumour_of(n, host=f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}") for n in range(start, start + 100))
        hear(a, 2, m.PING, 0, rumours)
        a.node.outbox.messages.clear()
    assert len(a.membership.targets()) == 1 + MEETINGS_MAX
    # An operator is heard all the same.
    a.membership.meet("192.0.2.1", 7711, BUS_PORT)
    assert a.membership.targets()[-1].host == "192.0.2.1"
    assert len(a.membership.targets()) == 1 + MEETINGS_MAX


def test_a_meeting_needs_an_address() -> None:
    a = Member(1)
    a.membership.meet("localhost", 7711, BUS_PORT)
    assert a.membership.targets() == []
