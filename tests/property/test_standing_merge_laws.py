"""What nodes say of a job merges: in any order, any number of times, with one answer, on one scale for all commands."""

from hypothesis import given
from hypothesis import strategies as st

from disqued.core.model import messages as m
from disqued.core.model.fate import Fate
from disqued.core.model.messages import Outcome
from disqued.core.work.inquiries import AliasFindings, better
from disqued.core.work.standings import has_ended, is_final, merge_standings
from tests.fates import fates

ID = b"id"


@st.composite
def standings(draw: st.DrawFn) -> Outcome:
    """What a node may say: whether a job is dead that it holds, its fate tells."""
    fate: Fate = draw(fates)
    state = draw(st.integers(m.NOT_KNOWN, m.WAS_ACKED))
    if state in (m.PENDING, m.IS_DEAD):
        state = m.IS_DEAD if fate.is_dead else m.PENDING
    return Outcome(ID, state, draw(st.integers(0, 9)), fate)


@given(standings(), standings(), standings())
def test_a_merge_is_commutative_associative_and_idempotent(one: Outcome, two: Outcome, three: Outcome) -> None:
    assert merge_standings(one, two) == merge_standings(two, one)
    assert merge_standings(merge_standings(one, two), three) == merge_standings(one, merge_standings(two, three))
    assert merge_standings(one, one) == one


@given(standings(), standings())
def test_done_beats_every_other_state(one: Outcome, other: Outcome) -> None:
    merged = merge_standings(one, other)
    assert has_ended(merged.state) is (has_ended(one.state) or has_ended(other.state))
    assert (merged.state >= m.EXPIRED) is (one.state >= m.EXPIRED or other.state >= m.EXPIRED)
    assert is_final(m.IS_DEAD)
    assert not has_ended(m.IS_DEAD)


@given(st.integers(m.NOT_KNOWN, m.WAS_ACKED), st.integers(m.NOT_KNOWN, m.WAS_ACKED))
def test_what_counts_of_a_key_is_what_counts_of_its_job(one: int, other: int) -> None:
    found = better(AliasFindings(one, b"1"), AliasFindings(other, b"2"))
    assert found.how == max(one, other)
    assert found.job_id == b"1" or other > one


def test_a_job_that_was_redriven_is_not_dead_whatever_a_node_says_that_has_not_heard_of_it() -> None:
    stale, redriven = Outcome(ID, m.IS_DEAD, 3, Fate(is_dead=True)), Outcome(ID, m.PENDING, 3, Fate(generation=1))
    assert merge_standings(stale, redriven).state == m.PENDING
