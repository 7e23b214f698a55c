"""Queues: the container of all of them, idleness, and the import rate.  Their order is in tests/property."""

import pytest

from disqued.core.model.memory import Memory
from disqued.core.model.ordered import BLOCK, OrderedUnits
from disqued.core.model.policies import PolicyTable
from disqued.core.model.queues import PAUSE_IN, PAUSE_OUT, ImportRate, Queue, Queues
from disqued.core.model.waiters import Waiter
from disqued.core.work.delivery import PLAIN
from tests.core_fixtures import make_job


@pytest.fixture
def queue() -> Queue:
    return Queue(b"q", 1, 0, 0)


def test_both_ends_are_served_while_blocks_fill_up_and_empty() -> None:
    units = OrderedUnits()
    jobs = [make_job(number, order_key=number) for number in range(3 * BLOCK)]
    for job in jobs:
        units.push(job)
    assert [units.pop_first() for _ in jobs] == jobs
    assert len(units) == 0
    assert list(units) == list(reversed(units)) == []


def test_a_unit_that_is_queued_again_goes_back_to_its_age() -> None:
    units = OrderedUnits()
    jobs = [make_job(number, order_key=number) for number in range(2 * BLOCK)]
    for job in jobs:
        units.push(job)
    taken = [units.pop_first() for _ in range(BLOCK + 5)]
    for job in reversed(taken):
        units.push(job)
    assert list(units) == jobs


def test_a_negative_key_puts_a_unit_in_front_of_every_other() -> None:
    units = OrderedUnits()
    jobs = [make_job(number, order_key=number - BLOCK) for number in range(2 * BLOCK)]
    for job in reversed(jobs):
        units.push(job)
    assert list(units) == jobs


@pytest.mark.parametrize("order_key", [0, 1, 2])
def test_removing_a_unit_that_is_not_there_is_a_bug_and_said_so(order_key: int) -> None:
    units = OrderedUnits()
    stranger = make_job(7, order_key=order_key)
    with pytest.raises(KeyError):
        units.remove(stranger)
    units.push(make_job(1, order_key=1))
    with pytest.raises(KeyError):
        units.remove(stranger)
    assert len(units) == 1


def test_a_queue_is_idle_without_jobs_consumers_and_pause(queue: Queue) -> None:
    assert queue.is_idle
    queue.set_pause(PAUSE_IN | PAUSE_OUT)
    assert not queue.is_idle
    queue.set_pause(0)
    queue.waiters[Waiter("anna", [queue], PLAIN)] = None
    assert not queue.is_idle
    queue.waiters.clear()
    queue.units.push(make_job())
    assert not queue.is_idle


def test_queues_are_walked_in_the_order_of_their_creation_whatever_comes_and_goes() -> None:
    memory = Memory(1 << 30, evicts=True)
    queues = Queues(PolicyTable(memory), memory)
    made = [queues.create(b"%d" % number, 0, 0) for number in range(10)]
    assert [queue.serial for queue in made] == list(range(1, 11))
    queues.remove(made[4])
    queues.remove(made[0])
    assert len(queues) == 8
    again = queues.create(made[4].name, 0, 0)
    assert queues.from_serial(0, 3) == made[1:4]
    assert queues.from_serial(5, 100) == [*made[5:], again]
    assert queues.from_serial(12, 5) == []
    assert queues.by_name[b"4"] is again


class TestImportRate:
    """The figures of the C version."""

    def test_it_is_the_jobs_of_two_windows_over_their_span(self) -> None:
        rate = ImportRate(1_000)
        assert rate.per_second(1_000) == 0
        rate.note(1_000)
        rate.note(1_000)
        assert rate.per_second(1_000) == 40
        assert rate.per_second(2_000) == 2
        assert rate.per_second(6_000) == 1
        assert rate.per_second(6_001) == 0

    def test_the_window_before_still_counts(self) -> None:
        rate = ImportRate(0)
        for now in (0, 500, 1_000, 1_001, 1_500):
            rate.note(now)
        assert rate.per_second(1_500) == 4  # five jobs in a second and a half, rounded up

    def test_a_window_that_is_long_past_does_not(self) -> None:
        rate = ImportRate(0)
        for now in (0, 10_000, 20_000):
            rate.note(now)
        assert rate.per_second(20_000) == 1
