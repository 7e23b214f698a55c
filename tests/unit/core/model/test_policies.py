"""Registers: the greater version wins, what is kept is counted, and old ends of a pause are forgotten."""

from disqued.core.model.calendar import AT, EVERY, JobTemplate, LastFiring, ScheduleSetting
from disqued.core.model.memory import Memory
from disqued.core.model.policies import (
    COUNTER_MAX,
    FORGOTTEN_MS,
    NO_PAUSE,
    PAUSE_FIELD,
    POLICY_COST,
    SCHEDULE_FIELD,
    SCHEDULE_FIRED_FIELD,
    PauseSetting,
    PolicyTable,
    Register,
    Value,
    cost_of_register,
    is_printable,
)
from disqued.core.model.terms import NO_TERMS

NODE_A, NODE_B = b"a" * 40, b"b" * 40
_JOB = JobTemplate(b"mail", b"body", 60_000, 5_000, 0, 0, 0, False, NO_TERMS)
EVERY_MINUTE = ScheduleSetting(EVERY, b"", 60_000, b"UTC", False, 1, 0, _JOB)
DEPLOY = PauseSetting(1, b"deploy", b"ops")


def table() -> tuple[PolicyTable, Memory]:
    memory = Memory(1 << 30, evicts=True)
    return PolicyTable(memory), memory


def test_a_higher_counter_wins_and_then_the_higher_node_id() -> None:
    policies, _ = table()
    assert policies.merge(b"q", PAUSE_FIELD, Register(2, NODE_A, 5, DEPLOY))
    assert not policies.merge(b"q", PAUSE_FIELD, Register(1, NODE_B, 9, NO_PAUSE))
    assert not policies.merge(b"q", PAUSE_FIELD, Register(2, NODE_A, 5, DEPLOY))
    assert policies.pause_of(b"q") == DEPLOY
    assert policies.merge(b"q", PAUSE_FIELD, Register(2, NODE_B, 1, NO_PAUSE))
    assert policies.pause_of(b"q") == policies.pause_of(b"other") == NO_PAUSE
    assert len(policies) == 1


def test_a_new_word_follows_the_highest_that_is_known() -> None:
    policies, _ = table()
    assert policies.succeed(b"q", PAUSE_FIELD, NODE_A, 7, DEPLOY) == Register(1, NODE_A, 7, DEPLOY)
    policies.merge(b"q", PAUSE_FIELD, Register(41, NODE_B, 5, DEPLOY))
    assert policies.succeed(b"q", PAUSE_FIELD, NODE_A, 7, NO_PAUSE).counter == 42
    policies.merge(b"q", PAUSE_FIELD, Register(COUNTER_MAX, NODE_B, 5, DEPLOY))
    assert policies.succeed(b"q", PAUSE_FIELD, NODE_A, 7, NO_PAUSE).counter == COUNTER_MAX


def test_what_a_register_takes_is_counted_and_outlasts_a_flush() -> None:
    policies, memory = table()
    policies.merge(b"mail", PAUSE_FIELD, Register(1, NODE_A, 5, DEPLOY))
    assert memory.used == POLICY_COST + len(b"maildeployops")
    memory.flush()
    policies.merge(b"mail", PAUSE_FIELD, Register(2, NODE_A, 5, NO_PAUSE))
    assert memory.used == POLICY_COST + len(b"mail")
    assert policies.forget(b"mail", PAUSE_FIELD)
    assert not policies.forget(b"mail", PAUSE_FIELD)
    assert memory.used == len(policies) == 0


def is_outdated(policies: PolicyTable, field: int, value: Value, wall: int) -> bool:
    return policies.is_outdated(b"q", field, Register(1, NODE_A, 5, value), wall)


def test_only_the_end_of_a_pause_is_outdated_after_a_week() -> None:
    policies, _ = table()
    assert not is_outdated(policies, PAUSE_FIELD, NO_PAUSE, 5 + FORGOTTEN_MS)
    assert is_outdated(policies, PAUSE_FIELD, NO_PAUSE, 6 + FORGOTTEN_MS)
    assert not is_outdated(policies, PAUSE_FIELD, DEPLOY, 6 + FORGOTTEN_MS)


def test_a_schedule_is_outdated_when_it_was_deleted_or_its_instant_is_over_and_its_last_instant_with_it() -> None:
    policies, memory = table()
    week_later = 6 + FORGOTTEN_MS
    assert is_outdated(policies, SCHEDULE_FIELD, (), week_later)
    assert not is_outdated(policies, SCHEDULE_FIELD, EVERY_MINUTE, week_later)
    once = EVERY_MINUTE._replace(kind=AT, number=1_000)
    assert not is_outdated(policies, SCHEDULE_FIELD, once, week_later)
    assert is_outdated(policies, SCHEDULE_FIELD, once, 1_001 + FORGOTTEN_MS)
    last = LastFiring(b"")
    assert is_outdated(policies, SCHEDULE_FIRED_FIELD, last, week_later)
    assert policies.merge(b"q", SCHEDULE_FIELD, Register(1, NODE_A, 5, EVERY_MINUTE))
    assert policies.schedules == {b"q": EVERY_MINUTE}
    assert not is_outdated(policies, SCHEDULE_FIRED_FIELD, last, week_later)
    assert memory.used == cost_of_register(b"q", EVERY_MINUTE)
    assert policies.merge(b"q", SCHEDULE_FIELD, Register(2, NODE_A, 5, ()))
    assert not policies.schedules
    assert not policies.defaults


def test_a_reason_is_one_printable_line() -> None:
    assert is_printable("Störung, ring Ann".encode())
    assert is_printable(b"")
    assert not any(map(is_printable, (b"a\nb", b"a\rb", b"\0", b"\x7f", b"\xff", "\u2028".encode())))
