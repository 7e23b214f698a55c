"""Who is in the cluster: nodes that meet, move, are forgotten and come back."""

import pytest

from disqued.core.cluster.meetings import FORGOTTEN_MS
from disqued.core.model import messages as m
from disqued.core.model.messages import Greeting, Target
from disqued.core.model.peers import LEAVING, PEERS_MAX, TIMEOUT_MS, KnownNode
from tests.mesh_fixtures import BUS_PORT, Member, Mesh, acquainted, greeting_of, hear, pass_time, rumour_of

# Meeting.


def test_two_nodes_know_each_other_after_one_meets_the_other() -> None:
    a, b = mesh = Mesh(2, joined=False)
    mesh.meet(a, b)
    for one, other in ((a, b), (b, a)):
        assert one.known == {other.id}
        assert one.reachable == (other.id,)
        assert (one.peer(other).host, one.peer(other).port, one.peer(other).bus_port) == (other.host, 7711, BUS_PORT)
    assert all(target.id for target in a.membership.targets())


def test_nodes_that_meet_one_of_them_all_come_to_know_each_other() -> None:
    mesh = Mesh(7)
    for member in mesh:
        assert member.known == {other.id for other in mesh if other is not member}


def test_a_newcomer_and_the_others_hear_of_each_other_at_once() -> None:
    a, b, c, d = mesh = Mesh(4, joined=False)
    for member in (b, c, d):
        mesh.meet(member, a)
    # No time has passed.
    assert all(len(member.reachable) == 3 for member in mesh)


def test_a_stranger_that_does_not_ask_to_be_taken_in_is_not_and_its_messages_change_nothing() -> None:
    a = Member(1)
    a.node.greeted(greeting_of(2, meets=False), "10.0.0.2", a.host)
    hear(a, 2, m.PING, 0, (rumour_of(3),))
    assert a.known == set()
    assert a.membership.targets() == []
    assert a.node.outbox.messages == []
    assert a.node.state.peers.refused == 1


def test_a_second_link_to_a_node_is_not_wanted() -> None:
    a = acquainted(2)
    assert not a.node.link_opened(Target("10.0.0.2", BUS_PORT, b"", meets=True), greeting_of(2), a.host)
    assert a.peer(Member(2)).linked


@pytest.mark.parametrize(
    "greeting",
    [
        Greeting(b"x" * 40, "", 7711, BUS_PORT, 0, meets=True),
        Greeting(b"2" * 40, "", 7711, 0, 0, meets=True),
        Greeting(b"2" * 40, "", 70_000, BUS_PORT, 0, meets=True),
    ],
)
def test_a_node_that_cannot_be_what_it_says_is_not_taken_in(greeting: Greeting) -> None:
    a = Member(1)
    a.node.greeted(greeting, "10.0.0.2", a.host)
    assert a.known == set()


def test_an_announced_host_that_is_no_address_is_not_believed() -> None:
    a = Member(1)
    a.node.greeted(greeting_of(2, host="example"), "::ffff:10.0.0.2", a.host)
    assert a.peer(Member(2)).host == "10.0.0.2"


# Gossip.


def test_a_rumour_about_an_unknown_node_is_looked_at_before_anybody_is_asked_to_take_us_in() -> None:
    a, b, c = mesh = Mesh(3, joined=False)
    mesh.meet(a, b)
    a.membership.own_address.announce("", 7711, BUS_PORT)
    hear(a, 2, m.PONG, 0, (rumour_of(3),))
    [look] = [target for target in a.membership.targets() if target.host == c.host]
    assert look == Target(c.host, BUS_PORT, b"", meets=False)
    mesh.settle()
    dialed = [target for member, target in mesh.dialed if member is a and target.host == c.host]
    assert dialed == [look, Target(c.host, BUS_PORT, c.id, meets=True)]
    assert a.reachable == (b.id, c.id)


def test_an_address_where_another_node_answers_now_joins_nobody() -> None:
    a, b, stranger = mesh = Mesh(3, joined=False)
    mesh.meet(a, b)
    hear(a, 2, m.PONG, 0, (rumour_of(9, host=stranger.host),))
    mesh.advance(2 * TIMEOUT_MS)
    assert a.known == {b.id}
    assert stranger.known == set()


# Moving, leaving.


def test_a_node_that_comes_back_elsewhere_is_followed() -> None:
    a, b, c = mesh = Mesh(3)
    b.is_up = False
    mesh.settle()
    b.links.clear()
    for node_id in list(b.node.state.peers.linked):
        b.node.link_closed(node_id)
    b.host = "10.0.0.99"
    b.is_up = True
    mesh.advance(2_000)
    assert [peer.host for peer in (a.peer(b), c.peer(b))] == ["10.0.0.99", "10.0.0.99"]
    assert b.id in a.reachable
    assert b.id in c.reachable


def test_a_link_that_works_is_not_given_up_because_the_other_node_has_a_second_address() -> None:
    a = acquainted(2)
    a.node.greeted(greeting_of(2, meets=False), "10.0.0.222", a.host)
    assert a.membership.targets() == [Target("10.0.0.2", BUS_PORT, b"%040x" % 2, meets=False)]
    a.node.link_closed(b"%040x" % 2)
    second = Target("10.0.0.222", BUS_PORT, b"", meets=False)
    assert second in a.membership.targets()
    # It is tried once for each time that it was heard of.
    a.clock.advance(TIMEOUT_MS)
    a.node.begin()
    a.node.tick()
    assert second not in a.membership.targets()
    assert a.node.link_opened(a.membership.targets()[0], greeting_of(2, meets=False), a.host)
    a.node.link_closed(b"%040x" % 2)
    assert second not in a.membership.targets()


def test_a_node_that_announces_another_address_is_dialed_there() -> None:
    a = acquainted(2)
    a.node.outbox.members_changed = False
    a.node.greeted(greeting_of(2, host="192.0.2.2", meets=False), "10.0.0.2", a.host)
    assert a.membership.targets() == [Target("192.0.2.2", BUS_PORT, b"%040x" % 2, meets=False)]
    assert a.peer(Member(2)).stale
    assert a.node.outbox.members_changed


def test_the_address_of_a_node_is_forgotten_when_another_one_answers_there() -> None:
    a = acquainted(2)
    [target] = a.membership.targets()
    a.node.link_closed(target.id)
    assert not a.node.link_opened(target, greeting_of(3, meets=False), a.host)
    assert a.membership.targets() == []
    assert a.known == {target.id}
    a.node.greeted(greeting_of(2, meets=False), "10.0.0.7", a.host)
    assert [found.host for found in a.membership.targets()] == ["10.0.0.7"]


def test_leaving_is_known_everywhere_at_once_and_ends_as_fast() -> None:
    a, b, c = mesh = Mesh(3)
    a.membership.set_leaving(leaving=True)
    mesh.settle()
    assert (b.reachable, c.reachable) == ((c.id,), (b.id,))
    assert b.peer(a).flags == LEAVING
    a.membership.set_leaving(leaving=False)
    mesh.settle()
    assert b.reachable == (a.id, c.id)


def test_a_leaving_node_says_so_when_a_link_opens() -> None:
    a = acquainted(2)
    a.node.greeted(greeting_of(2, meets=False, flags=m.NODE_LEAVING), "10.0.0.2", a.host)
    assert a.reachable == ()


# Forgetting.


def test_a_forgotten_node_is_not_taken_in_for_a_minute_whoever_speaks_of_it() -> None:
    a, b, c = mesh = Mesh(3)
    assert a.membership.forget(c.id)
    assert not a.membership.forget(c.id)
    assert c.id in a.node.state.peers.forgotten
    mesh.advance(FORGOTTEN_MS - 1_000)
    assert a.known == {b.id}
    mesh.advance(10_000)
    assert a.known == {b.id, c.id}
    assert c.id not in a.node.state.peers.forgotten


def test_a_forgotten_node_is_neither_looked_for_nor_taken_in_before_the_minute_is_over() -> None:
    a = acquainted(2, 3)
    a.membership.forget(b"%040x" % 3)
    hear(a, 2, m.PONG, 0, (rumour_of(3),))
    a.node.greeted(greeting_of(3), "10.0.0.3", a.host)
    assert [target.id for target in a.membership.targets()] == [b"%040x" % 2]
    pass_time(a, FORGOTTEN_MS)
    a.node.greeted(greeting_of(3), "10.0.0.3", a.host)
    assert b"%040x" % 3 in a.known


def test_a_node_that_everybody_forgets_stays_out() -> None:
    a, b, c = mesh = Mesh(3)
    c.is_up = False
    a.membership.forget(c.id)
    b.membership.forget(c.id)
    mesh.advance(2 * FORGOTTEN_MS)
    c.is_up = True
    mesh.advance(10_000)
    assert (a.known, b.known) == ({b.id}, {a.id})


def test_an_operator_can_take_a_forgotten_node_back_at_once() -> None:
    a, b = mesh = Mesh(2)
    a.membership.forget(b.id)
    mesh.settle()
    assert b.known == {a.id}
    assert a.known == set()
    mesh.meet(a, b)
    mesh.advance(1_000)
    assert a.reachable == (b.id,)


def test_nodes_that_forgot_each_other_find_together_when_one_of_them_meets_the_other() -> None:
    a, b = mesh = Mesh(2)
    a.membership.forget(b.id)
    b.membership.forget(a.id)
    mesh.settle()
    mesh.meet(a, b)
    # The other one does not want to hear of it for a minute.
    mesh.advance(FORGOTTEN_MS + 2 * TIMEOUT_MS)
    assert (a.reachable, b.reachable) == ((b.id,), (a.id,))


# Reset.


def test_a_soft_reset_leaves_a_node_alone_under_its_id() -> None:
    a, b = mesh = Mesh(2)
    before = a.id
    a.node.state.peers.forgotten.add(b"%040x" % 9)
    a.membership.reset(hard=False)
    assert not a.node.state.peers.forgotten
    mesh.settle()
    mesh.advance(5_000)
    assert (a.id, a.known, a.reachable) == (before, set(), ())
    assert a.node.deadline() is None
    assert b.known == {before}


def test_a_hard_reset_makes_another_node() -> None:
    a, b = mesh = Mesh(2)
    before = a.id
    a.membership.reset(hard=True)
    mesh.settle()
    assert a.id != before
    assert a.node.state.numbers.ids.next(b"05a0SQ").startswith(b"DI" + a.id[:8])
    assert a.membership.own_address.greeting(False).id == a.id
    mesh.advance(2 * TIMEOUT_MS)
    assert b.known == {before}
    # The address of the one that was is that of another one.
    assert b.membership.targets() == []
    mesh.meet(a, b)
    mesh.advance(1_000)
    assert a.reachable == (b.id,)
    assert b.known == {before, a.id}


def test_a_reset_knows_nothing_of_nodes_that_were_forgotten_before_it() -> None:
    a = acquainted(2, 3)
    forgotten = b"%040x" % 3
    a.membership.forget(forgotten)
    a.membership.reset(hard=False)
    assert not a.node.state.peers.forgotten
    a.node.greeted(greeting_of(3), "10.0.0.3", a.host)
    assert a.known == {forgotten}


# Restarts.


def test_a_restarted_node_knows_whom_it_knew() -> None:
    a, b, c = mesh = Mesh(3)
    a.membership.set_leaving(leaving=True)
    mesh.settle()
    lines = a.membership.lines()
    assert lines[0] == KnownNode(a.id, a.host, 7711, BUS_PORT, LEAVING, connected=True, myself=True)
    again = Member(1)
    mesh.members[0] = again
    again.membership.restore(lines)
    assert again.node.state.leaving
    assert again.membership.own_address.host == a.host
    assert again.known == {b.id, c.id}
    # They know us already.
    assert not any(target.meets for target in again.membership.targets())
    for other in (b, c):
        del other.links[a.id]
        other.node.link_closed(a.id)
    mesh.advance(1_000)
    assert again.reachable == (b.id, c.id)


# Numbers.


def test_there_are_only_so_many_nodes() -> None:
    a = Member(1)
    for number in range(2, PEERS_MAX + 10):
        a.node.greeted(greeting_of(number), "10.0.0.2", a.host)
    assert len(a.known) == PEERS_MAX
