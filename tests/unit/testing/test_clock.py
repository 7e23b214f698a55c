"""The clock that tests move."""

import pytest

from disqued.testing.clock import Clock


def test_both_clocks_advance_together():
    clock = Clock(now=5, wall=1_000)
    clock.advance(250)
    assert (clock.now(), clock.wall()) == (255, 1_250)


def test_a_jump_of_the_wall_clock_moves_nothing_else():
    clock = Clock(now=5, wall=10_000)
    clock.jump_wall(-3_000)
    assert (clock.now(), clock.wall()) == (5, 7_000)


def test_time_does_not_go_back():
    with pytest.raises(ValueError, match="cannot advance by -1 ms"):
        Clock().advance(-1)
