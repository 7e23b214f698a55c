"""One budget for what connections hold: who is ended, and when."""

import pytest

from disqued.core.model.memory import Memory
from disqued.net.loop.buffers import MINIMUM, Buffers

LIMIT = MINIMUM
FULL = 3 * LIMIT  #: maxmemory, whose quarter is below the minimum


class Connection:
    """Holds what it reports, and notes that it was ended."""

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        self.ended_with = 0

    def hold(self, size: int) -> "Connection":
        self._buffers.hold(self, size)
        return self

    def end_for_buffers(self, size: int) -> None:
        self.ended_with = size
        assert self._buffers.size_of(self) == 0, "it is dropped before it is ended"


@pytest.fixture
def buffers() -> Buffers:
    return Buffers(Memory(FULL, evicts=True))


def test_the_limit_is_a_quarter_of_maxmemory_and_no_less_than_the_minimum() -> None:
    memory = Memory(FULL, evicts=True)
    buffers = Buffers(memory)
    assert buffers.limit == MINIMUM
    memory.set_limit(100 * MINIMUM)
    assert buffers.limit == 25 * MINIMUM


def test_the_total_follows_what_each_holder_reports(buffers: Buffers) -> None:
    first, second = Connection(buffers).hold(1_000_000), Connection(buffers).hold(2_000_000)
    assert buffers.used == 3_000_000
    first.hold(10)
    assert buffers.used == 2_000_010
    buffers.drop(second)
    buffers.drop(second)
    assert buffers.used == 10
    first.hold(0)
    assert (buffers.used, buffers.peak) == (0, 3_000_000)


def test_the_holder_of_the_most_is_ended_and_the_others_stay(buffers: Buffers) -> None:
    small = [Connection(buffers).hold(LIMIT // 8) for _ in range(8)]
    large = Connection(buffers).hold(LIMIT // 2)
    assert not large.ended_with
    last = Connection(buffers).hold(LIMIT // 2 + 1)
    assert last.ended_with == LIMIT // 2 + 1
    assert not any(each.ended_with for each in [*small, large])
    assert buffers.used == LIMIT + LIMIT // 2
    assert buffers.ended == 1


def test_of_holders_of_about_the_same_size_the_largest_is_ended(buffers: Buffers) -> None:
    near = [Connection(buffers).hold(LIMIT // 4 + extra) for extra in (0, 1, 4, 2)]
    assert [each.ended_with > 0 for each in near] == [False] * 4
    Connection(buffers).hold(LIMIT // 4)
    assert [each.ended_with > 0 for each in near] == [False, False, True, False]


def test_one_holder_alone_may_hold_as_much_as_maxmemory(buffers: Buffers) -> None:
    small = Connection(buffers).hold(LIMIT)
    large = Connection(buffers).hold(FULL)
    assert not large.ended_with
    large.hold(FULL + 1)
    assert large.ended_with == FULL + 1
    assert not small.ended_with


def test_the_one_large_holder_is_ended_when_the_others_hold_too_much(buffers: Buffers) -> None:
    large = Connection(buffers).hold(FULL)
    others = [Connection(buffers).hold(LIMIT // 4) for _ in range(4)]
    assert not large.ended_with
    others[0].hold(LIMIT // 4 + 1)
    assert large.ended_with == FULL
    assert not any(each.ended_with for each in others)


def test_a_hundred_times_the_limit_in_small_parts_never_exceeds_it_by_more_than_one(buffers: Buffers) -> None:
    part = LIMIT // 64
    for _ in range(6_400):
        Connection(buffers).hold(part)
        assert buffers.used <= LIMIT + part
    assert buffers.ended == 6_400 - 65


def test_counters_are_zeroed(buffers: Buffers) -> None:
    for _ in range(3):
        Connection(buffers).hold(LIMIT)
    assert buffers.facts() == {"mem_clients_normal": 2 * LIMIT, "mem_clients_limit": LIMIT, "mem_clients_ended": 1}
    buffers.reset()
    assert buffers.facts() == {"mem_clients_normal": 2 * LIMIT, "mem_clients_limit": LIMIT, "mem_clients_ended": 0}
