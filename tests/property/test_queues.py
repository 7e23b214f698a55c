"""The order of a queue against a list that is sorted each time."""

from bisect import insort
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disqued.core.model import ordered
from disqued.core.model.job import Job, Unit
from disqued.core.model.ordered import OrderedUnits
from tests.core_fixtures import make_job

#: (order key, what to do: push mostly, pop the first, or remove one by its place).
STEPS = st.lists(
    st.tuples(st.integers(-5, 40), st.sampled_from(["push", "push", "push", "pop", "remove"])), max_size=200
)


class Pair:
    """A queue, and the list of what must be in it."""

    def __init__(self) -> None:
        self.units = OrderedUnits()
        self.sorted: list[tuple[int, bytes, Job]] = []
        self.made = 0

    def push(self, order_key: int, tie: int = 0) -> None:
        """Put a new job in; jobs of one order key are told apart by their ids, in any order."""
        self.made += 1
        job = make_job(tie * 1_000_000 + self.made, order_key=order_key)
        insort(self.sorted, (order_key, job.id, job))
        self.units.push(job)

    def pop(self) -> None:
        """Take the oldest."""
        if self.sorted:
            assert self.units.pop_first() is self.sorted.pop(0)[2]

    def remove(self, place: int) -> None:
        """Take one out, wherever it stands."""
        if self.sorted:
            job = self.sorted.pop(place % len(self.sorted))[2]
            self.units.remove(job)
            with pytest.raises(KeyError):
                self.units.remove(job)

    def check(self) -> None:
        """Compare all of both."""
        expected: list[Unit] = [job for _, _, job in self.sorted]
        assert list(self.units) == expected
        assert list(reversed(self.units)) == expected[::-1]
        assert len(self.units) == len(expected)


@given(block=st.sampled_from([2, 3, 8]), steps=STEPS, ties=st.randoms(use_true_random=False))
def test_order_is_that_of_a_sorted_list(block: int, steps: list[tuple[int, str]], ties: Random) -> None:
    """With blocks so small that every way of splitting them is met."""
    pair = Pair()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ordered, "BLOCK", block)
        for order_key, step in steps:
            if step == "push":
                pair.push(order_key, ties.randrange(100))
            elif step == "pop":
                pair.pop()
            else:
                pair.remove(order_key)
            pair.check()


@given(seed=st.integers(0, 2**32), shares=st.tuples(*[st.integers(0, 5)] * 4))
def test_thousands_of_units_keep_their_order(seed: int, shares: tuple[int, ...]) -> None:
    rng = Random(seed)
    pair = Pair()
    newest = front = 0
    for _ in range(700):
        pair.push(newest := newest + 1)
    for step in rng.choices(["end", "front", "anywhere", "out", "oldest"], [2, *shares], k=1_500):
        if step == "end":
            pair.push(newest := newest + rng.randrange(2))
        elif step == "front":
            pair.push(front := front - 1)
        elif step == "anywhere":
            pair.push(rng.randint(front, newest), rng.randrange(100))
        elif step == "out":
            pair.remove(rng.randrange(1 << 30))
        else:
            pair.pop()
    pair.check()
