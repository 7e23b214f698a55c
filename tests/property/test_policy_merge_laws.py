"""Registers of policies merge: in any order, any number of times, on any way through the nodes, with one outcome."""

from collections.abc import Iterable, Sequence
from functools import reduce
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from disqued.core.model.calendar import EVERY, FIRED, OUTCOMES_KEPT, JobTemplate, LastFiring, ScheduleSetting, joined
from disqued.core.model.memory import Memory
from disqued.core.model.messages import POLICY
from disqued.core.model.policies import (
    FAIR_FIELD,
    NO_DEFAULTS,
    PAUSE_FIELD,
    RETRY_FIELD,
    SCHEDULE_FIELD,
    SCHEDULE_FIRED_FIELD,
    SCHEDULE_REFUSED_FIELD,
    THROTTLE_FIELD,
    TTL_FIELD,
    PauseSetting,
    Place,
    Policy,
    PolicyTable,
    Register,
    Value,
    cost_of_register,
    version_of,
)
from disqued.core.model.terms import Terms
from tests.cluster_fixtures import Cluster
from tests.core_fixtures import check
from tests.schedule_values import firings, refusals

NODES = tuple(name * 40 for name in (b"a", b"b", b"c"))

texts = st.sampled_from([b"", b"deploy", "Störung".encode()])
pauses = st.builds(PauseSetting, st.integers(0, 3), texts, texts)
numbers: st.SearchStrategy[tuple[int, ...]] = st.integers(60, 62).map(lambda number: (number,)) | st.just(())


def fields(field: int, values: st.SearchStrategy[Value]) -> st.SearchStrategy[Policy]:
    registers = st.builds(Register, st.integers(1, 4), st.sampled_from(NODES), st.integers(0, 3), values)
    return st.tuples(st.sampled_from([b"q", b"r"]), st.just(field), registers)


settings_ = st.just(()) | st.builds(
    ScheduleSetting, st.just(EVERY), st.just(b""), st.integers(1_000, 1_002), st.just(b"UTC"), st.booleans(),
    st.integers(0, 2), st.just(0),
    st.just(JobTemplate(b"mail", b"body", 60_000, 5_000, 0, 0, 0, False, Terms())),
)  # fmt: skip
policies = st.lists(
    st.one_of(
        fields(PAUSE_FIELD, pauses), *(fields(field, numbers) for field in (TTL_FIELD, RETRY_FIELD)),
        fields(SCHEDULE_FIELD, settings_), fields(SCHEDULE_FIRED_FIELD, firings()),
        fields(SCHEDULE_REFUSED_FIELD, refusals),
        fields(FAIR_FIELD, st.sampled_from([(), (1,)])), fields(THROTTLE_FIELD, st.just((5,))),
    ),
    max_size=8,
)  # fmt: skip


def merged(*parts: Sequence[Policy]) -> dict[Place, Register]:
    """What a table knows that has heard all this."""
    memory = Memory(1 << 30, evicts=True)
    table = PolicyTable(memory)
    for part in parts:
        for queue, field, register in part:
            table.merge(queue, field, register)
    for name in (b"q", b"r"):
        assert table.defaults.get(name, NO_DEFAULTS) == table.derive_defaults(name)
        end, fair = (table.registers.get((name, field)) for field in (THROTTLE_FIELD, FAIR_FIELD))
        gate = table.gates.get(name)
        assert (gate is not None and gate.until) == (end is not None and end.counter)
        assert (gate is not None and gate.is_fair) == (fair is not None and fair.value == (1,))
        register = table.registers.get((name, SCHEDULE_FIELD))
        assert table.schedules.get(name, ()) == (() if register is None else register.value)
    assert memory.used == sum(cost_of_register(queue, known.value) for (queue, _), known in table.registers.items())
    return table.registers


def listed(registers: dict[Place, Register]) -> list[Policy]:
    return [(queue, field, register) for (queue, field), register in registers.items()]


@given(policies, policies, policies)
def test_a_merge_is_commutative_associative_and_idempotent(
    one: list[Policy], two: list[Policy], three: list[Policy]
) -> None:
    assert merged(one, two) == merged(two, one)
    assert merged(listed(merged(one, two)), three) == merged(one, listed(merged(two, three)))
    assert merged(one, one) == merged(one)


@given(policies, st.randoms(use_true_random=False))
def test_what_is_known_in_the_end_is_the_maximum_whatever_the_order(said: list[Policy], rng: Random) -> None:
    shuffled = [*said, *said]
    rng.shuffle(shuffled)
    known = merged(shuffled)
    assert known == {
        place: greatest(register for name, field, register in said if (name, field) == place)
        for place in {(name, field) for name, field, _ in said}
    }


def greatest(registers: Iterable[Register]) -> Register:
    """The greatest of some registers of one place; of the last instants of schedules with all that they say."""
    known = list(registers)
    firings_ = [register.value for register in known if isinstance(register.value, LastFiring)]
    if not firings_:
        return max(known)
    return max(known, key=version_of)._replace(value=reduce(joined, firings_))


@given(firings(), firings(), firings())
def test_what_sides_know_of_the_last_instants_is_joined(one: LastFiring, two: LastFiring, three: LastFiring) -> None:
    assert joined(one, two) == joined(two, one)
    assert joined(one, joined(two, three)) == joined(joined(one, two), three)
    assert joined(one, one) == one
    outcomes = dict(joined(one, two).outcomes)
    assert len(outcomes) == min(OUTCOMES_KEPT, len({*dict(one.outcomes), *dict(two.outcomes)}))
    for side in (one, two):
        assert all(outcomes.get(instant, FIRED) >= outcome for instant, outcome in side.outcomes)


@given(st.lists(st.tuples(st.integers(0, 2), policies.filter(bool)), max_size=6))
def test_nodes_that_hear_different_words_in_different_orders_agree(said: list[tuple[int, list[Policy]]]) -> None:
    cluster = Cluster(3)
    wall = cluster.members[0].state.wall
    everything: list[Policy] = []
    for number, part in said:
        # None of them is outdated; the clock of the first node is ahead of all others.
        fresh = tuple(
            (queue, field, register._replace(
                set_at=wall + register.set_at,
                counter=register.counter + (wall + 1_000_000 if field == THROTTLE_FIELD else 0),
            ))
            for queue, field, register in part
        )  # fmt: skip
        everything += fresh
        receiver = cluster.members[number]
        cluster.members[number - 1].say(receiver, (POLICY, 7, fresh))
    wanted = merged(everything)
    for member in cluster:
        assert member.state.queues.policies.registers == wanted
        check(member)
