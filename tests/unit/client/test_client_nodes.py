"""Which node a client talks to: seeds, priorities, failures, and following the jobs."""

from collections.abc import Sequence
from random import Random

import pytest

from disqued.client.addresses import Address, Socket, read_address
from disqued.client.job import KnownNode, Topology
from disqued.client.nodes import JOBS_COUNTED, LAST_CLOSED_S, Node, Nodes

A, B, C = (letter * 40 for letter in (b"a", b"b", b"c"))
PORTS = {A: 1, B: 2, C: 3}


def told(own: bytes, **priorities: int) -> Topology:
    """What a node says: the letters of nodes with their priorities."""
    rows = [
        KnownNode(letter.encode() * 40, "host", PORTS[letter.encode() * 40], priority)
        for letter, priority in priorities.items()
    ]
    return Topology(own, tuple(rows))


def nodes_of(*seeds: str, more: Sequence[Address] = (), seed: int = 1) -> Nodes:
    return Nodes([*map(read_address, seeds), *more] or [("host", 1)], Random(seed))


def chosen(nodes: Nodes, now: float = 0.0, **more: object) -> Node:
    node = nodes.choose(now, **more)
    assert node is not None
    return node


def three() -> tuple[Nodes, Node, Node, Node]:
    """A client that has heard of three nodes from the first."""
    nodes = nodes_of()
    first = chosen(nodes)
    nodes.heard(first, told(A, a=1, b=1, c=1), 0)
    by_id = {node.id: node for node in nodes._all}
    return nodes, by_id[A], by_id[B], by_id[C]


def test_the_first_choice_is_any_of_the_seeds() -> None:
    first = {chosen(nodes_of("host:1", "host:2", "host:3", seed=seed)).address for seed in range(50)}
    assert first == {("host", 1), ("host", 2), ("host", 3)}


def test_hello_tells_of_all_nodes() -> None:
    nodes, *_ = three()
    assert nodes.addresses() == {("host", 1), ("host", 2), ("host", 3)}


def test_a_node_is_asked_for_the_others_once_and_again_when_that_is_old() -> None:
    nodes = nodes_of()
    node = chosen(nodes)
    assert [nodes.wants_hello(node, now) for now in (0, 0, 29, 30, 31)] == [True, False, False, True, False]


def test_the_current_node_is_kept_while_it_is_as_good_as_any() -> None:
    nodes, a, _, _ = three()
    assert all(chosen(nodes) is a for _ in range(20))


def test_a_node_of_lower_priority_is_left() -> None:
    nodes, a, b, _ = three()
    nodes.heard(a, told(A, a=100, b=1, c=5), 0)
    assert chosen(nodes) is b


def test_a_node_reached_by_another_name_keeps_that_address() -> None:
    nodes = nodes_of("outside:1")
    first = chosen(nodes)
    nodes.heard(first, Topology(A, (KnownNode(A, "10.0.0.1", 7711, 1), KnownNode(B, "10.0.0.2", 7711, 1))), 0)
    assert nodes.addresses() == {("outside", 1), ("10.0.0.2", 7711)}


def test_a_node_that_does_not_know_its_own_address_is_no_new_one() -> None:
    nodes = nodes_of()
    nodes.heard(chosen(nodes), Topology(A, (KnownNode(A, "", 1, 1),)), 0)
    assert nodes.addresses() == {("host", 1)}


def test_a_node_that_is_known_by_two_addresses_is_kept_once() -> None:
    nodes = nodes_of("localhost:1", "host:2")
    first, second = nodes._all
    nodes.heard(second, told(B, a=1, b=1), 0)
    assert nodes.addresses() == {("localhost", 1), ("host", 2), ("host", 1)}
    nodes.heard(first, told(A, a=1, b=1), 0)
    assert nodes.addresses() == {("localhost", 1), ("host", 2)}


def test_a_node_that_nobody_tells_of_any_more_is_forgotten_unless_it_is_a_seed() -> None:
    nodes, a, _, _ = three()
    nodes.heard(a, told(A, a=1, c=1), 0)
    assert nodes.addresses() == {("host", 1), ("host", 3)}
    other = nodes_of("host:1", "host:9")
    node = chosen(other)
    other.heard(node, told(A, a=1), 0)
    assert ("host", 9) in other.addresses() or node.address == ("host", 9)


def test_another_node_is_taken_when_the_current_one_fails_and_kept_when_that_is_back() -> None:
    nodes, a, *_ = three()
    nodes.failed(a, 0)
    second = chosen(nodes)
    assert second is not a
    assert chosen(nodes, 100) is second


def test_a_node_that_fails_is_closed_twice_as_long_each_time() -> None:
    nodes = nodes_of()
    node = chosen(nodes)
    spans = []
    now = 0.0
    for _ in range(12):
        nodes.failed(node, now)
        assert nodes.choose(node.open_at - 0.001) is None
        assert nodes.choose(node.open_at) is node
        assert nodes.opens_at() == node.open_at
        spans.append(node.open_at - now)
        now = node.open_at
    assert 0.075 <= spans[0] <= 0.125
    assert 0.15 <= spans[1] <= 0.25
    assert spans[-1] <= LAST_CLOSED_S * 1.25


def test_many_commands_that_fail_at_the_same_time_close_a_node_once() -> None:
    nodes = nodes_of()
    node = chosen(nodes)
    for _ in range(200):
        nodes.failed(node, 0)
    assert (node.failures, node.open_at < 0.2) == (1, True)


def test_a_node_that_failed_counts_as_sound_again_when_it_works_or_others_say_so() -> None:
    nodes, a, b, c = three()
    nodes.failed(b, 0)
    nodes.heard(a, told(A, a=100, b=1, c=5), 0)
    assert chosen(nodes, 0.01) is c, "b is closed"
    nodes.heard(a, told(A, a=100, b=1, c=5), 50)
    assert chosen(nodes, 50) is b


def test_a_leaving_node_is_left_until_another_one_says_that_it_stays() -> None:
    nodes, a, *_ = three()
    nodes.leaves(a)
    second = chosen(nodes)
    assert second is not a
    nodes.heard(second, told(second.id, a=1, b=1, c=1), 0)
    assert a.priority == 1


def test_the_node_that_is_near_is_preferred_while_it_is_sound() -> None:
    nodes, a, b, _ = three()
    assert chosen(nodes, near=B) is b
    assert nodes.current is a, "that is for one command"
    nodes.failed(b, 0)
    assert chosen(nodes, 100, near=B) is a


def test_nodes_that_refused_are_left_out_for_one_command() -> None:
    nodes, a, b, c = three()
    assert chosen(nodes, without=[a, b]) is c
    assert nodes.choose(0, without=[a, b, c]) is None
    assert nodes.opens_at([a, b, c]) == float("inf")
    assert chosen(nodes) is a


def test_a_client_moves_to_where_most_of_its_jobs_come_from() -> None:
    nodes, _, b, _ = three()
    for n in range(JOBS_COUNTED):
        assert nodes.current is not b
        nodes.took([B[:8]] if n % 4 else [A[:8]])
    assert chosen(nodes) is b


def test_a_client_stays_when_no_other_node_gives_more_than_half() -> None:
    nodes, a, *_ = three()
    for n in range(JOBS_COUNTED * 3):
        nodes.took([(A, B, C)[n % 3][:8]])
    for _ in range(JOBS_COUNTED * 2):
        nodes.took([A[:8]])
    half = JOBS_COUNTED // 2
    nodes.took([B[:8]] * half + [A[:8], C[:8]] * (half // 2))
    assert chosen(nodes) is a


@pytest.mark.parametrize("priority", [5, 10, 100])
def test_a_client_does_not_follow_its_jobs_to_a_worse_node(priority: int) -> None:
    nodes, a, _, _ = three()
    nodes.heard(a, told(A, a=1, b=priority, c=1), 0)
    nodes.took([B[:8]] * JOBS_COUNTED)
    assert chosen(nodes) is a


def test_jobs_of_a_node_that_nobody_knows_move_nobody() -> None:
    nodes, a, *_ = three()
    nodes.took([b"ffffffff"] * JOBS_COUNTED * 2)
    assert chosen(nodes) is a


@pytest.mark.parametrize("seeds", [("host:1",), ("host:1", "host:2")], ids=["learnt", "seed"])
def test_a_node_that_fails_and_is_said_to_be_elsewhere_is_looked_for_there_and_where_it_was_in_turn(
    seeds: tuple[str, ...],
) -> None:
    nodes = nodes_of(*seeds)
    a = nodes._all[0]
    nodes.heard(a, told(A, a=1, b=1), 0)
    [b] = [node for node in nodes._all if node.id == B]
    moved = Topology(A, (KnownNode(A, "inside", 1, 1), KnownNode(B, "host", 22, 1)))
    for _ in range(2):
        nodes.heard(a, moved, 0)
        assert (a.address, b.address) == (("host", 1), ("host", 2)), "while it works, that may be another's view"
    seen = []
    for now in range(0, 100, 20):
        nodes.failed(b, now)
        nodes.heard(a, moved, now)
        seen.append(b.address)
    assert seen == [("host", 22), ("host", 2), ("host", 22), ("host", 2), ("host", 22)]
    assert nodes.addresses() == {("host", 1), ("host", 22)}


def test_with_a_socket_alone_nothing_is_learnt_of_others() -> None:
    nodes = nodes_of(more=[Socket("/s")])
    node = chosen(nodes)
    nodes.heard(node, told(A, a=1, b=1), 0)
    assert nodes.addresses() == {Socket("/s")}
    nodes.failed(node, 0)
    assert (nodes.addresses(), node.id) == ({Socket("/s")}, A)


def test_a_socket_is_preferred_and_the_others_are_there_when_it_fails() -> None:
    for seed in range(10):
        nodes = nodes_of("host:1", "host:2", more=[Socket("/s")], seed=seed)
        node = chosen(nodes)
        assert node.address == Socket("/s")
        nodes.heard(node, told(C, a=1, b=1, c=1), 0)
        assert nodes.addresses() == {("host", 1), ("host", 2), Socket("/s")}
        nodes.failed(node, 0)
        assert chosen(nodes).address in {("host", 1), ("host", 2)}


def test_what_is_wrong_with_each_node_is_told() -> None:
    nodes = nodes_of("host:1", "[::1]:2", more=[Socket("/s")])
    nodes.failed(nodes._all[0], 0, OSError("refused"))
    assert nodes.tell() == "host:1: refused; [::1]:2: not asked; unix:///s: not asked"
    nodes.worked(nodes._all[0])
    assert nodes.tell().startswith("host:1: not asked")
