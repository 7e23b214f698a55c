"""Registers: the greater version wins, what is kept is counted, and old ends of a pause are forgotten."""

from disqued.core.model.memory import Memory
from disqued.core.model.policies import (
    COUNTER_MAX,
    FORGOTTEN_MS,
    NO_PAUSE,
    PAUSE_FIELD,
    POLICY_COST,
    PauseSetting,
    PolicyTable,
    Register,
    is_outdated,
    is_printable,
)

NODE_A, NODE_B = b"a" * 40, b"b" * 40
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


def test_only_the_end_of_a_pause_is_outdated_after_a_week() -> None:
    assert not is_outdated(Register(1, NODE_A, 5, NO_PAUSE), 5 + FORGOTTEN_MS)
    assert is_outdated(Register(1, NODE_A, 5, NO_PAUSE), 6 + FORGOTTEN_MS)
    assert not is_outdated(Register(1, NODE_A, 5, DEPLOY), 6 + FORGOTTEN_MS)


def test_a_reason_is_one_printable_line() -> None:
    assert is_printable("Störung, ring Ann".encode())
    assert is_printable(b"")
    assert not any(map(is_printable, (b"a\nb", b"a\rb", b"\0", b"\x7f", b"\xff", "\u2028".encode())))
