"""The checker of the order within groups, by histories of which some break the promise."""

import pytest

from disqued.testing.grouporder import TOLD_MAX, GroupOrder, Place

GROUP = (b"q", b"acme")
OTHER = (b"q", b"zebra")
ONE, TWO, THREE = ((number, b"job %d" % number) for number in (1, 2, 3))


def run(order: GroupOrder, place: Place, *waiting: Place) -> None:
    """Let a job be accepted while these wait, and handed out."""
    order.accepted(GROUP, place, waiting)
    order.handed_out(GROUP, place[1])


@pytest.mark.parametrize("fails", [False, True])
def test_jobs_that_run_one_after_the_other_the_oldest_first_are_in_order(fails: bool) -> None:
    order = GroupOrder(fails=fails)
    run(order, TWO)  # nobody has asked for the first one yet
    run(order, ONE, THREE)
    run(order, THREE)
    run(order, ONE, TWO)  # it was given back, and has its place
    order.accepted(GROUP, TWO, [])  # its consumer is gone before it is handed out
    run(order, THREE)
    assert order.broken == []


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_that_is_accepted_before_an_older_one_is_out_of_order(fails: bool) -> None:
    order = GroupOrder(fails=fails)
    run(order, TWO, THREE, ONE)
    assert order.broken == [f"b'job 2' of {GROUP} was accepted before b'job 1', which is older and waited"]


def test_of_two_jobs_of_a_time_the_id_decides() -> None:
    order = GroupOrder(fails=False)
    run(order, (1, b"b"), (1, b"a"))
    assert len(order.broken) == 1
    run(order, (1, b"a"), (1, b"b"))
    assert len(order.broken) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_that_comes_back_behind_its_place_is_out_of_order(fails: bool) -> None:
    order = GroupOrder(fails=fails)
    run(order, ONE)
    run(order, (0, ONE[1]))  # further in front is allowed
    run(order, (4, ONE[1]))
    assert order.broken == [f"b'job 1' of {GROUP} came back behind its place"]


@pytest.mark.parametrize("fails", [False, True])
def test_a_job_that_nobody_accepted_or_that_was_handed_out_since_is_not_handed_out(fails: bool) -> None:
    order = GroupOrder(fails=fails)
    order.handed_out(GROUP, ONE[1])
    assert order.broken == [f"b'job 1' of {GROUP} was handed out, and no steward had accepted it"]
    run(order, TWO)
    order.handed_out(GROUP, TWO[1])
    assert len(order.broken) == 2


def test_a_job_is_handed_out_in_the_order_in_which_jobs_were_accepted_unless_something_fails() -> None:
    for fails in (False, True):
        order = GroupOrder(fails=fails)
        order.accepted(GROUP, ONE, [])
        order.accepted(OTHER, THREE, [])
        order.accepted(GROUP, TWO, [])
        order.handed_out(GROUP, ONE[1])
        assert order.broken == ([] if fails else [f"b'job 1' of {GROUP} was handed out after b'job 2' was accepted"])
        order.handed_out(OTHER, THREE[1])
        order.handed_out(GROUP, TWO[1])
        assert len(order.broken) == (not fails)


def test_few_of_many_are_told() -> None:
    order = GroupOrder(fails=True)
    for number in range(2 * TOLD_MAX):
        order.handed_out(GROUP, b"%d" % number)
    assert len(order.broken) == TOLD_MAX
