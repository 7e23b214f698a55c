"""Of whom a PING or PONG tells."""

from disqued.core.model import messages as m
from disqued.core.model.messages import Message
from disqued.core.model.peers import PFAIL
from tests.mesh_fixtures import Member, Mesh, acquainted, hear, rumour_of


def test_gossip_tells_of_a_few_nodes_and_of_suspected_ones_among_them() -> None:
    a = acquainted(*range(2, 62))
    suspected = a.peer(Member(30))
    suspected.flags = PFAIL
    a.node.link_closed(suspected.id)
    hear(a, 2, m.PING, 0, ())
    [(kind, _, rumours), _] = [message for to, message in a.node.outbox.messages if to == b"%040x" % 2]
    assert kind == m.PONG
    # One in ten, and besides those who are suspected; never of the one who is told.
    assert len(rumours) == 7
    assert [rumour for rumour in rumours if rumour.flags] == [rumour_of(30, m.NODE_PFAIL)]
    assert b"%040x" % 2 not in {rumour.id for rumour in rumours}


def test_the_same_seed_tells_the_same() -> None:
    def run() -> list[list[tuple[bytes, Message]]]:
        mesh = Mesh(5, seed=7)
        mesh.separate(mesh.members[:1], mesh.members[1:])
        mesh.advance(30_000)
        return [member.sent for member in mesh]

    assert run() == run()
