"""Deliveries after an answered acknowledgement, and whether word of it could have come in time."""

import attrs
import pytest

from disqued.testing.__main__ import main
from disqued.testing.checker import Request
from disqued.testing.profiles import BY_NAME, RETURNS
from disqued.testing.returns import APART, CROSSING, LATE, UNLINKED, Returns
from disqued.testing.world import World

ACKED_AT = 1_000


def world_of_three() -> tuple[World, Returns]:
    """Three nodes that are linked, and a watch on their ways; 10 s are over."""
    world = World(1, attrs.evolve(BY_NAME["calm"], nodes=3))
    world.join()
    returns = Returns(world)
    pass_ms(world, 10_000)
    return world, returns


def pass_ms(world: World, ms: int) -> None:
    """Let time pass."""
    world.events.run(world.events.now + ms)


def kind_of(world: World, returns: Returns, acked_at: int) -> str:
    """Say why a job comes from node 1 now that was acknowledged on node 0 at a time."""
    request = Request(1, b"q", b"1:", 2, 1_000, 60_000, 0, 0, "p", 0, acked_at=acked_at, acked_on=0)
    before = returns.counts
    world.returned.append((request, world.events.now, 1))
    (kind,) = returns.counts - before
    return kind


def cut(world: World, one: int, other: int) -> None:
    """Let nothing through between two nodes, and break their links."""
    for source, target in ((one, other), (other, one)):
        path = world.network.path(world.servers[source], world.servers[target])
        path.block()
        assert path.link is not None
        path.link.break_off()


def test_word_could_have_come_where_a_link_is_open() -> None:
    world, returns = world_of_three()
    now = world.events.now
    assert kind_of(world, returns, now - 1_000) == LATE
    assert kind_of(world, returns, now - 50) == CROSSING
    assert kind_of(world, returns, now - 2) == APART


def test_word_travels_over_other_nodes() -> None:
    world, returns = world_of_three()
    cut(world, 0, 1)
    pass_ms(world, 2_000)
    assert kind_of(world, returns, world.events.now - 1_000) == LATE
    cut(world, 0, 2)
    pass_ms(world, 2_000)
    assert kind_of(world, returns, world.events.now - 1_000) == APART
    # It has come to node 2 before that was cut off from node 0.
    assert kind_of(world, returns, world.events.now - 2_500) == LATE


def test_nodes_that_can_be_linked_again_are_unlinked_until_they_are() -> None:
    world, returns = world_of_three()
    cut(world, 0, 1)
    cut(world, 2, 1)
    pass_ms(world, 2_000)
    for source, target in ((0, 1), (1, 0)):
        world.network.path(world.servers[source], world.servers[target]).unblock()
    pass_ms(world, 30)
    assert kind_of(world, returns, world.events.now - 1_000) == UNLINKED


def test_a_node_that_stands_still_hears_nothing() -> None:
    world, returns = world_of_three()
    world.servers[1].pause()
    pass_ms(world, 2_000)
    assert kind_of(world, returns, world.events.now - 1_000) == APART


def test_the_campaign_has_each_kind_of_fault_often_and_rarely() -> None:
    assert {profile.every_ms for profile in RETURNS} == {6_000, 20_000}
    assert all(profile.kinds and profile.name.startswith("returns-") for profile in RETURNS)


def test_the_count_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--profile", "returns-cuts2", "--seeds", "2", "--returns"]) == 0
    out = capsys.readouterr().out
    assert "returns-cuts2, seeds 1 to 2: " in out
    assert " after an answered acknowledgement (" in out
    assert all(f" {kind}" in out for kind in (APART, UNLINKED, CROSSING, LATE))
