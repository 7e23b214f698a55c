"""How many copies there can be, and what is refused for want of nodes that take them."""

import pytest

from disqued.core.model.peers import BRIEF_MANY, BRIEF_MS, BRIEF_RECENT_MS, Peer
from disqued.core.work.placement import older_nodes, timed_out
from tests.core_fixtures import Server

TOO_FEW = "NOREPL Not enough reachable nodes for the requested replication level"
UNABLE = f"{TOO_FEW}, since I'm unable to hold a copy of the message for the following reason: "


@pytest.fixture
def server() -> Server:
    return Server()


def reach(server: Server, nodes: tuple[bytes, ...]) -> None:
    """Let a node believe that it can reach others."""
    server.state.peers.reachable = nodes
    server.node.placement.reachable_changed()


@pytest.mark.parametrize(("others", "copies"), [(0, 1), (1, 2), (2, 3), (3, 3), (9, 3)])
def test_the_default_copies_are_those_that_can_be_made_as_defect_6_of_the_c_version_was_not(
    server: Server, others: int, copies: int
) -> None:
    reach(server, tuple(b"%040x" % number for number in range(others)))
    assert server.node.placement.default_copies == copies


def test_more_copies_than_nodes_are_refused(server: Server) -> None:
    for options in ((), ("ASYNC",), ("DELAY", 5)):
        assert server.refusal("ADDJOB", "q", "x", 100, "REPLICATE", 2, *options) == TOO_FEW


def test_as_many_nodes_as_copies_are_enough(server: Server) -> None:
    reach(server, (b"f" * 40,))
    server("ADDJOB", "q", "x", 0, "REPLICATE", 2)
    assert server.refusal("ADDJOB", "q", "x", 0, "REPLICATE", 3) == TOO_FEW


def test_a_leaving_node_says_that_it_takes_no_copy(server: Server) -> None:
    server.node.delivery.set_leaving(leaving=True)
    assert server.refusal("ADDJOB", "q", "x", 0) == f"{UNABLE}I'm leaving the cluster"
    assert server.refusal("ADDJOB", "q", "x", 0, "REPLICATE", 2) == TOO_FEW


def test_a_node_that_is_short_of_memory_says_that_it_takes_no_copy() -> None:
    server = Server(maxmemory=10_000)
    while not server.state.memory.is_low:
        server.add("q", b"x" * 500)
    assert server.refusal("ADDJOB", "q", "x", 0) == f"{UNABLE}I'm out of memory"
    assert server.refusal("ADDJOB", "q", "x", 0, "REPLICATE", 2) == TOO_FEW


def test_a_node_that_keeps_ending_its_links_is_named(server: Server) -> None:
    peer = Peer(b"f" * 40, "10.0.0.2", 7711, 17711)
    server.state.peers.by_id[peer.id] = peer
    for times in range(3):
        assert older_nodes(server.state) == [], times
        peer.linked_at = server.state.now
        peer.note_end(server.state.now)
    [named] = older_nodes(server.state)
    assert named.startswith("node ffffffff (version ?) keeps ending its link")
    for error in (timed_out(server.state), server.node.placement.not_replicated()):
        assert named in str(error)
    peer.note_end(server.state.now + BRIEF_MS + 1)  # it has lasted
    assert older_nodes(server.state) == []
    for _ in range(BRIEF_MANY):
        peer.linked_at = server.state.now
        peer.note_end(server.state.now)
    assert not peer.ends_links(server.state.now + BRIEF_RECENT_MS + 1)


def test_too_few_nodes_for_the_policy_of_a_queue_name_it(server: Server) -> None:
    server("QPOLICY", "q", "SET", "REPLICATE", 9)
    assert server.refusal("ADDJOB", "q", "x", 100) == f"{TOO_FEW} - QPOLICY of the queue says REPLICATE 9"
    assert server.refusal("ADDJOB", "q", "x", 100, "REPLICATE", 2) == TOO_FEW
    assert server.refusal("ADDJOB", "other", "x", 100, "REPLICATE", 9) == TOO_FEW
