"""Units in groups, held against what a list and a rule say."""

import sys
from collections import deque
from collections.abc import Callable
from random import Random

import pytest

from disqued.core.model.grouped import READY_GROUP_COST, GroupedUnits
from disqued.core.model.job import Job, JobOptions
from disqued.core.model.memory import Memory
from disqued.core.model.ordered import OrderedUnits, place_of
from disqued.core.model.terms import NO_TERMS, Terms

OPTIONS: dict[bytes, JobOptions] = {}


def unit(number: int, group: bytes = b"") -> Job:
    """A job of this age and group."""
    if group not in OPTIONS:
        terms = Terms(group=group) if group else NO_TERMS
        OPTIONS[group] = JobOptions(ttl_ms=1_000, retry_ms=1, delay_ms=0, replicate=1, terms=terms)
    return Job(b"%048d" % number, b"q", b"body", number, OPTIONS[group])


def grouped(*names: str, fair: bool = True, blocked: tuple[bytes, ...] = ()) -> tuple[GroupedUnits, Memory]:
    """Units such as a1, oldest first, sorted into the groups of their letters."""
    units = OrderedUnits()
    for number, name in enumerate(names):
        units.push(unit(number, name[:1].encode()))
    memory = Memory(1 << 30, evicts=True)
    made = GroupedUnits(units, memory, is_fair=fair, blocked=blocked)
    assert made.go_on(1_000)
    return made, memory


def order(units: GroupedUnits) -> str:
    """The groups of the units in the order in which they are taken."""
    taken = ""
    while units.ready_count:
        first = units.head
        assert units.pop_first() is first
        taken += first.options.terms.group.decode()
    return taken


def test_fair_groups_take_turns_and_each_gives_its_oldest() -> None:
    units, _ = grouped("a", "a", "a", "b", "c", "b")
    assert [place_of(one)[0] for one in units] == [0, 1, 2, 3, 4, 5]
    assert order(units) == "abcaba"
    assert len(units) == 0


def test_without_fair_the_oldest_of_all_ready_groups_goes_first() -> None:
    units, _ = grouped("a", "b", "a", "c", "a", "b", fair=False, blocked=(b"b",))
    assert order(units) == "aaca"
    units.unblock(b"b")
    assert order(units) == "bb"


def test_a_blocked_group_is_not_taken_and_its_turn_comes_last_afterwards() -> None:
    units, _ = grouped("a", "b", "a", "b", blocked=(b"a", b"x"))
    units.block(b"a")
    assert units.ready_count == 2
    units.push(unit(9, b"c"))
    units.unblock(b"a")
    units.unblock(b"a")
    assert units.ready_count == 5
    assert order(units) == "bcaba"
    units.push(unit(10, b"x"))
    assert not units.ready_count
    assert len(units) == 1


def test_a_group_that_becomes_ready_lets_those_go_first_that_were() -> None:
    units, _ = grouped("a", "a", "b")
    assert units.pop_first().options.terms.group == b"a"
    units.push(unit(9, b"c"))
    assert order(units) == "bac"


def test_a_unit_that_is_not_handed_out_costs_its_group_no_turn() -> None:
    units, _ = grouped("a", "a", "b")
    assert units.pass_over(units.pop_first())
    assert order(units) == "ab"
    alone, _ = grouped("a")
    assert not alone.pass_over(alone.pop_first())


def test_the_oldest_unit_can_be_taken_whatever_is_blocked() -> None:
    units, memory = grouped("a", "b", "a", blocked=(b"a",))
    assert units.pop_oldest().options.terms.group == b"a"
    assert units.ready_count == 1
    assert memory.used == units.cost == 2 * READY_GROUP_COST + 2
    assert [units.pop_oldest().options.terms.group for _ in range(2)] == [b"b", b"a"]
    assert memory.used == units.cost == units.group_count == units.ready_count == 0


@pytest.mark.parametrize("fair", [True, False])
def test_units_are_sorted_bit_by_bit_and_those_that_are_not_yet_are_not_taken(fair: bool) -> None:
    plain = OrderedUnits()
    jobs = [unit(number, b"ab"[number % 2 :][:1]) for number in range(10)]
    for job in jobs:
        plain.push(job)
    units = GroupedUnits(plain, Memory(1 << 30, evicts=True), is_fair=fair)
    assert units.ready_count == 0
    assert not units.go_on(4)
    assert units.ready_count == 4
    units.push(unit(100, b"c"))
    units.push(unit(-1, b"c"))
    units.remove(jobs[8])
    units.remove(jobs[0])
    assert units.ready_count == 4
    assert units.group_count == 3
    assert not units.go_on(4)
    assert units.go_on(4)
    assert units.ready_count == len(units) == 10


def test_groups_are_let_go_of_without_their_units() -> None:
    units, _ = grouped("a", "b", "a")
    others = OrderedUnits(units)
    assert sum(units.release_groups()) == 3
    assert len(others) == 3
    whole, _ = grouped("a", "b", "a", fair=False)
    assert sum(whole.release()) == 3 + 2 + 3


class Model:
    """The rules, said once more: lists that are searched."""

    def __init__(self, *, fair: bool) -> None:
        self.fair = fair
        self.units: list[Job] = []
        self.ring: deque[bytes] = deque()
        self.blocked: set[bytes] = set()

    def ready(self) -> list[Job]:
        return sorted((one for one in self.units if one.options.terms.group not in self.blocked), key=place_of)

    def follow(self) -> None:
        groups = dict.fromkeys(one.options.terms.group for one in self.ready())
        self.ring = deque(name for name in self.ring if name in groups)
        self.ring.extend(name for name in groups if name not in self.ring)

    def pop(self) -> Job:
        ready = self.ready()
        chosen = ready[0]
        if self.fair:
            name = self.ring.popleft()
            chosen = next(one for one in ready if one.options.terms.group == name)
        self.units.remove(chosen)
        if any(one.options.terms.group == chosen.options.terms.group for one in self.units) and self.fair:
            self.ring.append(chosen.options.terms.group)
        self.follow()
        return chosen


@pytest.mark.parametrize("fair", [True, False])
@pytest.mark.parametrize("seed", range(10))
def test_whatever_comes_and_goes_units_are_taken_as_the_rules_say(fair: bool, seed: int) -> None:
    rng = Random(f"{fair} {seed}")
    memory = Memory(1 << 30, evicts=True)
    units, model = GroupedUnits(OrderedUnits(), memory, is_fair=fair), Model(fair=fair)
    names = [b"", b"a", b"b", b"c", b"d"]
    for number in range(1_500):
        what = rng.random()
        if what < 0.45:
            one = unit(rng.randrange(1 << 40) * 2_000 + number, rng.choice(names))
            units.push(one)
            model.units.append(one)
        elif what < 0.75:
            assert bool(units.ready_count) == bool(model.ready())
            if units.ready_count:
                assert units.pop_first() is model.pop()
        elif what < 0.85 and model.units:
            one = rng.choice(model.units)
            units.remove(one)
            model.units.remove(one)
        elif what < 0.9 and model.units:
            one = min(model.units, key=place_of)
            assert units.pop_oldest() is one
            model.units.remove(one)
        elif what < 0.95:
            name = rng.choice(names)
            units.block(name)
            model.blocked.add(name)
        else:
            name = rng.choice(names)
            units.unblock(name)
            model.blocked.discard(name)
        model.follow()
        assert units.ready_count == len(model.ready())
        assert list(units) == sorted(model.units, key=place_of)
    kept = {one.options.terms.group for one in model.units}
    assert memory.used == units.cost == sum(READY_GROUP_COST + len(name) for name in kept)


def lines_of(step: Callable[[], object]) -> int:
    """Count the lines that a step runs."""
    count = 0

    def trace(frame: object, event: str, arg: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]
    try:
        step()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("fair", [True, False])
def test_of_very_many_groups_those_that_are_ready_hand_out_as_if_they_were_alone(fair: bool) -> None:
    def hand_out(blocked: int) -> list[int]:
        names = [b"group %d" % number for number in range(blocked)]
        units = OrderedUnits()
        for number, name in enumerate(names):
            units.push(unit(number, name))
        for number in range(100):
            units.push(unit(blocked + number, b"ready %d" % (number % 10)))
        made = GroupedUnits(units, Memory(1 << 40, evicts=True), is_fair=fair, blocked=names)
        assert made.go_on(blocked + 101)
        assert made.ready_count == 100
        steps = [lambda: made.ready_count, lambda: made.head, made.pop_first] * 20
        return [lines_of(step) for step in steps]

    # A search over blocks of 512 units grows with the logarithm of their number: bisect runs a line for each look.
    alone, among = hand_out(0), hand_out(100_000)
    assert max(among) <= max(alone) + 2 * 20
    assert sum(among) <= 3 * sum(alone)
    OPTIONS.clear()
