"""When a journal is compacted by itself."""

from typing import Any

import attrs

from disqued.persistence.aof.compaction_schedule import RETRY_MAX_MS, RETRY_MS, CompactionSchedule
from disqued.testing.clock import Clock


@attrs.frozen
class Settings:
    auto_aof_rewrite_percentage: int = 50
    auto_aof_rewrite_min_size: int = 0


def make(**settings: int) -> tuple[CompactionSchedule, Clock]:
    clock = Clock()
    config: Any = Settings(**settings)
    return CompactionSchedule(config, clock), clock


def due_above(schedule: CompactionSchedule, size: int) -> bool:
    """Return whether a journal is compacted as soon as it is larger than this."""
    return schedule.is_due(size + 1) and not schedule.is_due(size)


def test_a_journal_is_compacted_once_it_has_grown_by_the_percentage() -> None:
    schedule, _ = make()
    assert not schedule.is_due(1 << 60), "it was not measured yet"
    schedule.begin_at(1_001)
    assert schedule.base_size == 1_001
    assert due_above(schedule, 1_501)
    schedule.succeeded(400)
    assert schedule.base_size == 400
    assert due_above(schedule, 600)


def test_a_small_journal_is_left_alone() -> None:
    schedule, _ = make(auto_aof_rewrite_min_size=1_000)
    schedule.begin_at(100)
    assert due_above(schedule, 1_000)
    schedule.begin_at(1_000)
    assert due_above(schedule, 1_500)


def test_a_percentage_of_0_leaves_every_journal_alone() -> None:
    schedule, _ = make()
    schedule.begin_at(100)
    never: Any = Settings(auto_aof_rewrite_percentage=0)
    schedule.configure(never)
    assert schedule.base_size == 100
    assert not schedule.is_due(1 << 60)


def test_each_failure_doubles_the_pause_and_a_success_ends_it() -> None:
    schedule, clock = make()
    schedule.begin_at(100)
    assert schedule.is_due(1_000)
    for expected in [RETRY_MS << times for times in range(6)] + [RETRY_MAX_MS, RETRY_MAX_MS]:
        schedule.failed()
        clock.advance(expected - 1)
        assert not schedule.is_due(1_000)
        clock.advance(1)
        assert schedule.is_due(1_000)
    schedule.failed()
    schedule.succeeded(100)
    assert schedule.is_due(1_000)
    schedule.failed()
    clock.advance(RETRY_MS)
    assert schedule.is_due(1_000)
