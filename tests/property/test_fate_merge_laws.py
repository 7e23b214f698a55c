"""Fates merge: in any order, any number of times, with one outcome; and what is lost by it is known."""

from hypothesis import given

from disqued.core.model.fate import FAILURES_KEPT, NO_FATE, Fate, Word, merge
from tests.fates import NODE_A, NODE_B, fates


@given(fates, fates, fates)
def test_a_merge_is_commutative_associative_and_idempotent(one: Fate, two: Fate, three: Fate) -> None:
    assert merge(one, two) == merge(two, one)
    assert merge(merge(one, two), three) == merge(one, merge(two, three))
    assert merge(one, one) == one
    assert merge(one, NO_FATE) == one == merge(NO_FATE, one)


@given(fates, fates)
def test_a_merge_forgets_nothing_but_old_failures_and_older_generations(one: Fate, two: Fate) -> None:
    both = merge(one, two)
    assert both.generation == max(one.generation, two.generation)
    newest = [fate for fate in (one, two) if fate.generation == both.generation]
    assert both.is_dead is any(fate.is_dead for fate in newest)
    assert both.spent == max(fate.spent for fate in newest)
    assert both.is_cancelled is (one.is_cancelled or two.is_cancelled)
    assert list(both.failures) == sorted({*one.failures, *two.failures})[-FAILURES_KEPT:]
    assert both.result == min((word for word in (one.result, two.result) if word is not None), default=None)
    assert both.progress == max((word for word in (one.progress, two.progress) if word is not None), default=None)


def test_the_first_of_two_results_counts_and_that_there_were_two_is_known() -> None:
    first, second = Word(5, NODE_B, b"b"), Word(6, NODE_A, b"a")
    both = merge(Fate(result=second), Fate(result=first))
    assert (both.result, both.has_rivals) == (first, True)
    assert merge(Fate(result=first), Fate(result=first)).has_rivals is False


def test_a_redriven_job_is_not_dead_whatever_an_older_word_says() -> None:
    assert merge(Fate(generation=1), Fate(is_dead=True)).is_dead is False
    assert merge(Fate(generation=1), Fate(generation=1, is_dead=True)).is_dead is True
