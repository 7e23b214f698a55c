"""The address of a node: announced, learnt from others, and that of another node with its id."""

from random import Random

from disqued.core.model.peers import KnownNode
from disqued.core.node import Node
from disqued.testing.clock import Clock
from tests.mesh_fixtures import BUS_PORT, Member, Mesh, greeting_of


def test_a_node_that_has_announced_nothing_has_no_address_and_no_ports() -> None:
    node = Node(b"%040x" % 1, Clock(), Random(1), maxmemory=1 << 30)
    assert node.membership.lines() == [KnownNode(node.id, "", 0, 0, connected=True, myself=True)]


def test_the_own_address_is_learnt_from_others() -> None:
    a, b = mesh = Mesh(2, joined=False)
    assert (a.membership.own_address.host, b.membership.own_address.host) == ("", "")
    mesh.meet(a, b)
    assert (a.membership.own_address.host, b.membership.own_address.host) == (a.host, b.host)


def test_an_announced_address_is_the_one_that_others_use() -> None:
    a, _ = mesh = Mesh(2, joined=False)
    a.node.outbox.members_changed = False
    a.membership.own_address.announce("192.0.2.1", 7000, 8000)
    assert a.node.outbox.members_changed
    mesh.members[1].node.greeted(a.membership.own_address.greeting(True), a.host, "10.0.0.2")
    peer = mesh.members[1].peer(a)
    assert (peer.host, peer.port, peer.bus_port) == ("192.0.2.1", 7000, 8000)
    a.node.greeted(greeting_of(2), "10.0.0.2", "10.9.9.9")
    assert a.membership.own_address.host == "192.0.2.1"


def test_another_announced_address_is_written_into_the_file_of_members() -> None:
    a = Member(1)
    a.node.outbox.members_changed = False
    a.membership.own_address.announce("192.0.2.1", 7712, BUS_PORT + 1)
    assert a.node.outbox.members_changed
    assert a.membership.lines()[0] == KnownNode(a.id, "192.0.2.1", 7712, BUS_PORT + 1, 0, connected=True, myself=True)


def test_a_node_that_meets_itself_drops_the_address_and_finds_no_twin() -> None:
    (a,) = mesh = Mesh(1, joined=False)
    mesh.meet(a, a)
    assert a.membership.targets() == []
    assert a.known == set()
    assert a.membership.own_address.twin == ""


def test_two_nodes_with_one_id_are_reported_and_not_joined() -> None:
    a, b = mesh = Mesh(2, joined=False)
    b.node.state.node_id = a.id
    mesh.meet(a, b)
    assert (a.known, b.known) == (set(), set())
    assert a.membership.own_address.twin == f"{b.host}:{BUS_PORT}"
    assert b.membership.own_address.twin == f"{a.host}:{BUS_PORT}"
