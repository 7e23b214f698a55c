"""The schedule, by sentences, and by the work that it does."""

from collections.abc import Callable
from typing import Any

import pytest

from disqued.core.model.schedule import (
    BEGUN_AT_ONCE,
    FEW,
    HELD_BYTES,
    STALE_MIN,
    STALE_PART,
    SWEEP_MIN,
    WIDTH_MS,
    Schedule,
    Timed,
)

FAR = 1_000 * WIDTH_MS


class Item(Timed):
    """Something with a deadline, that counts how often it was looked at."""

    __slots__ = ("_at", "looks")

    def __init__(self) -> None:
        self._at = 0
        self.looks = 0

    @property
    def awake_at(self) -> int:  # type: ignore[override]
        """The deadline, counted."""
        self.looks += 1
        return self._at

    @awake_at.setter
    def awake_at(self, at: int) -> None:
        self._at = at


@pytest.fixture
def schedule() -> Schedule:
    return Schedule()


def timed() -> Timed:
    """Something with a deadline."""
    item = Timed()
    item.awake_at = 0
    return item


def filled(schedule: Schedule, count: int, at: int = FAR, kind: Callable[[], Timed] = timed) -> list[Any]:
    """Schedule items for one time."""
    items = [kind() for _ in range(count)]
    for item in items:
        schedule.add(item, at)
    return items


def test_an_empty_schedule_asks_for_nothing(schedule: Schedule) -> None:
    assert schedule.next_at() is None
    assert schedule.pop_due(10**12, 10) == []


def test_an_item_is_handed_out_in_its_millisecond_and_once(schedule: Schedule) -> None:
    [item] = filled(schedule, 1, 5_000)
    assert schedule.pop_due(4_999, 10) == []
    assert schedule.pop_due(5_000, 10) == [item]
    assert item.awake_at == 0
    assert schedule.pop_due(10**9, 10) == []


def test_equal_deadlines_come_in_the_order_in_which_they_were_added(schedule: Schedule) -> None:
    items = filled(schedule, 100)
    assert schedule.pop_due(FAR, 30) == items[:30]
    late = filled(schedule, 10)
    assert schedule.pop_due(FAR, 1_000) == items[30:] + late


def test_a_deadline_that_is_over_already_is_due_at_once(schedule: Schedule) -> None:
    assert schedule.pop_due(10_000, 10) == []
    [item] = filled(schedule, 1, 500)
    assert schedule.next_at() == 500
    assert schedule.pop_due(10_000, 10) == [item]


def test_an_unscheduled_item_is_never_taken_for_one_of_the_first_bucket(schedule: Schedule) -> None:
    item, other = timed(), timed()
    schedule.add(other, 10)
    schedule.cancel(item)
    schedule.move(item, 20)
    assert schedule.pop_due(30, 10) == [other, item]


def test_an_item_that_left_its_bucket_and_came_back_is_handed_out_once(schedule: Schedule) -> None:
    [item] = filled(schedule, 1)
    for _ in range(5):
        schedule.move(item, 2 * FAR)
        schedule.move(item, FAR + 1)
    assert schedule.pop_due(FAR + 1, 10) == [item]
    assert schedule.pop_due(3 * FAR, 10) == []


def test_moving_within_a_bucket_makes_no_new_entry(schedule: Schedule) -> None:
    [item] = filled(schedule, 1)
    for at in range(FAR, FAR + WIDTH_MS):
        schedule.move(item, at)
    assert schedule.entries == 1
    assert schedule.pop_due(FAR + WIDTH_MS - 2, 10) == []
    assert schedule.pop_due(FAR + WIDTH_MS - 1, 10) == [item]


def test_a_cancelled_item_is_not_kept_when_nothing_else_is_in_its_bucket(schedule: Schedule) -> None:
    for _ in range(100):
        items = filled(schedule, STALE_MIN)
        for item in items:
            schedule.cancel(item)
    assert schedule.entries == 0
    assert schedule.next_at() is None


def test_of_many_cancelled_items_few_are_kept_beside_a_live_one(schedule: Schedule) -> None:
    live = filled(schedule, 1)
    for _ in range(100):
        for item in filled(schedule, 10):
            schedule.cancel(item)
    assert schedule.entries <= STALE_MIN + 2
    assert schedule.pop_due(FAR, 100) == live


def test_items_that_come_and_go_leave_no_copies_behind(schedule: Schedule) -> None:
    items = filled(schedule, 50)
    for _ in range(200):
        for item in items:
            schedule.move(item, 2 * FAR)
            schedule.move(item, FAR)
    assert schedule.entries <= len(items) * 4 / 3 + 2 * STALE_MIN
    assert schedule.pop_due(FAR, 1_000) == items


@pytest.mark.parametrize("again", [1, 20, 40])
def test_an_item_that_left_and_came_back_is_the_last_of_its_time(schedule: Schedule, again: int) -> None:
    items = filled(schedule, 50)
    for item in items[:again]:
        schedule.move(item, 2 * FAR)
        schedule.move(item, FAR)
    assert schedule.pop_due(FAR, 1_000) == items[again:] + items[:again]


def test_cancelled_items_are_at_most_a_quarter_of_a_bucket(schedule: Schedule) -> None:
    items = filled(schedule, 4_000)
    for number, item in enumerate(items[::2], 1):
        schedule.cancel(item)
        assert schedule.entries <= (len(items) - number) * 4 / 3 + 1
    assert schedule.pop_due(FAR, 4_000) == items[1::2]


def held(schedule: Schedule) -> int:
    """Bytes of bodies of stale entries; an item stands for a job whose body has as many bytes as it says."""
    return sum(item.size for bucket in schedule._buckets.values() for item in bucket.items if not item.awake_at)


class Large(Timed):
    """Something with a body."""

    __slots__ = ("size",)

    def __init__(self, size: int = 10_000) -> None:
        self.awake_at = 0
        self.size = size


@pytest.mark.reference
@pytest.mark.parametrize("size", [HELD_BYTES + 1, 3_000, 1_000_000])
@pytest.mark.parametrize("ends", ["cancel", "move"])
def test_stale_entries_hold_few_bytes_beside_live_ones(schedule: Schedule, size: int, ends: str) -> None:
    stays = [Large(0) for _ in range(400)]
    goes = [Large(size) for _ in range(400)]
    for one, other in zip(stays, goes, strict=True):
        schedule.add(one, FAR)
        schedule.add(other, FAR)
    for item in goes:
        if ends == "move":
            schedule.move_large(item, 2 * FAR, size)
        schedule.cancel_large(item, size)
        assert held(schedule) <= HELD_BYTES * schedule.entries
    assert all(item.awake_at == FAR for item in stays)
    assert len(schedule.pop_due(2 * FAR, 1_000)) == 400


@pytest.mark.reference
@pytest.mark.parametrize("size", [HELD_BYTES + 1, 3_000])
def test_large_items_that_are_cancelled_cost_work_in_proportion_to_their_size(schedule: Schedule, size: int) -> None:
    items = filled(schedule, 2_000, kind=Item)
    looks = sum(item.looks for item in items)
    for item in items:
        schedule.cancel_large(item, size)
    assert sum(item.looks for item in items) - looks <= (2 * STALE_PART + 2 * size // HELD_BYTES) * len(items)


def test_nobody_is_woken_for_a_bucket_of_which_everything_is_cancelled(schedule: Schedule) -> None:
    early, later, last = (filled(schedule, 1, at)[0] for at in (FAR, 2 * FAR, 3 * FAR))
    schedule.cancel(later)
    schedule.cancel(early)
    assert schedule.next_at() == 3 * FAR
    schedule.add(early, FAR)
    schedule.add(later, 2 * FAR)
    schedule.cancel(later)
    assert schedule.pop_due(FAR, 10) == [early]
    assert schedule.next_at() == 3 * FAR
    assert schedule.pop_due(3 * FAR, 10) == [last]


def test_empty_buckets_are_swept_away_when_there_are_many(schedule: Schedule) -> None:
    head = filled(schedule, 1, FAR)
    for number in range(10 * SWEEP_MIN):
        [item] = filled(schedule, 1, 2 * FAR + number * WIDTH_MS)
        schedule.cancel(item)
    assert len(schedule._buckets) <= SWEEP_MIN + 2
    assert schedule.pop_due(10 * FAR, 10) == head


def test_sweeping_keeps_what_is_in_use(schedule: Schedule) -> None:
    items = [filled(schedule, 1, FAR + number * WIDTH_MS)[0] for number in range(3 * SWEEP_MIN)]
    for item in items[::2]:
        schedule.cancel(item)
    filled(schedule, 1, FAR * FAR)
    assert schedule.pop_due(FAR * FAR - 1, 10**6) == items[1::2]


@pytest.mark.parametrize("early", [1, FEW, 10 * FEW])
def test_few_and_many_that_become_due_beside_a_backlog_keep_the_order(schedule: Schedule, early: int) -> None:
    backlog = filled(schedule, 2 * FEW, FAR)
    assert schedule.pop_due(FAR, 1) == backlog[:1]
    more = filled(schedule, early, FAR + 2 * WIDTH_MS)
    assert schedule.pop_due(FAR + 2 * WIDTH_MS, 1_000) == backlog[1:] + more


@pytest.mark.reference
def test_the_work_of_a_tick_does_not_grow_with_what_is_not_due(schedule: Schedule) -> None:
    resident = [filled(schedule, 200, FAR + number * WIDTH_MS, kind=Item) for number in range(1_000)]
    items = [item for bucket in resident for item in bucket]
    [due] = filled(schedule, 1, FAR - 1, kind=Item)
    for item in items:
        item.looks = 0
    for now in range(0, FAR, 10):
        schedule.next_at()
        schedule.pop_due(now, 2_000)
    assert schedule.pop_due(FAR - 1, 2_000) == [due]
    assert sum(item.looks for item in items) == 0
    assert len(schedule.pop_due(FAR, 2_000)) == 200
    assert sum(item.looks for item in items) <= 3 * 200


@pytest.mark.reference
def test_waking_after_a_long_sleep_puts_the_backlog_in_order_once(schedule: Schedule) -> None:
    items = [filled(schedule, 1, FAR + number * WIDTH_MS, kind=Item)[0] for number in range(20_000)]
    popped = []
    while due := schedule.pop_due(10**9, 2_000):
        popped += due
    assert popped == items
    assert max(item.looks for item in items) <= 5


# Very many deadlines at once.

LIMIT = 4_000


def work(items: list[Item]) -> int:
    """How often the items were looked at since this was last asked."""
    looks = sum(item.looks for item in items)
    for item in items:
        item.looks = 0
    return looks


@pytest.mark.reference
def test_waking_after_a_long_sleep_looks_at_a_bounded_number_a_call_and_keeps_the_order(schedule: Schedule) -> None:
    items = [item for number in range(1_000) for item in filled(schedule, 50, FAR + number * WIDTH_MS, kind=Item)]
    work(items)
    popped: list[Timed] = []
    while due := schedule.pop_due(10**9, LIMIT):
        assert len(due) == min(LIMIT, len(items) - len(popped))
        popped += due
        assert work(items) <= 3 * (BEGUN_AT_ONCE + LIMIT)
        assert len(popped) == len(items) or schedule.next_at() <= 10**9  # type: ignore[operator]
    assert popped == items


@pytest.mark.reference
@pytest.mark.parametrize("now", [FAR + WIDTH_MS - 1, FAR + WIDTH_MS // 2, 10**9])
def test_one_span_with_very_many_deadlines_is_worked_off_piece_by_piece(schedule: Schedule, now: int) -> None:
    count = 3 * BEGUN_AT_ONCE + 7
    items = [filled(schedule, 1, FAR + WIDTH_MS - 1 - number % WIDTH_MS, kind=Item)[0] for number in range(count)]
    later = filled(schedule, 3, FAR + WIDTH_MS, kind=Item)
    due_by_now = {item for item in items if item.awake_at <= now}
    work(items)
    popped: list[Timed] = []
    while (at := schedule.next_at()) is not None and at <= now:
        due = schedule.pop_due(now, LIMIT)
        assert work(items) <= 3 * (BEGUN_AT_ONCE + LIMIT)
        assert len(due) <= LIMIT
        popped += due
    early = later if now > FAR + WIDTH_MS else []
    assert set(popped) == due_by_now | set(early)
    assert len(popped) == len(set(popped))
    assert popped[len(popped) - len(early) :] == early
    rest = []
    while (at := schedule.next_at()) is not None:
        rest += schedule.pop_due(at, LIMIT)
    assert len(popped) + len(rest) == count + len(later)
    assert schedule.entries == 0


def test_what_is_cancelled_or_moved_while_its_span_is_worked_off_is_handed_out_once_or_never(
    schedule: Schedule,
) -> None:
    items = filled(schedule, 3 * BEGUN_AT_ONCE)
    now = FAR
    first = schedule.pop_due(now, LIMIT)
    cancelled, moved, put_off = items[-1], items[-2], items[-3]
    schedule.cancel(cancelled)
    schedule.move(moved, FAR + 1)
    schedule.move(put_off, 2 * FAR)
    popped = list(first)
    while (at := schedule.next_at()) is not None and at <= FAR + 1:
        now = max(now, at)
        popped += schedule.pop_due(now, LIMIT)
    assert sorted(map(id, popped)) == sorted(map(id, [*items[:-3], moved]))
    assert schedule.pop_due(2 * FAR, LIMIT) == [put_off]


def test_equal_deadlines_of_a_very_long_span_keep_their_order(schedule: Schedule) -> None:
    items = filled(schedule, 2 * BEGUN_AT_ONCE + 1)
    popped: list[Timed] = []
    while (at := schedule.next_at()) is not None:
        popped += schedule.pop_due(at + WIDTH_MS, LIMIT)
    assert popped == items


@pytest.mark.parametrize("begun", [False, True])
def test_a_schedule_lets_go_of_everything_bit_by_bit(schedule: Schedule, begun: bool) -> None:
    for number in range(100):
        filled(schedule, 10, FAR + number * WIDTH_MS)
    filled(schedule, 3 * BEGUN_AT_ONCE, FAR)
    if begun:
        schedule.pop_due(FAR, 1)
        schedule.pop_due(FAR, 1)
    total = schedule.entries
    sizes = list(schedule.release())
    assert sum(sizes) == total
    assert max(sizes) <= BEGUN_AT_ONCE // 8
    assert schedule.entries == 0
