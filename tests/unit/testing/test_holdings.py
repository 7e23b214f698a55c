"""The books on limited queues find what is planted into histories, and nothing else."""

from random import Random

import pytest

from tests.holdings import LATE_S, STILL_S, Holding, Holdings, Limit

RETRY_S = 3.0
TWO = Limit(in_flight=2)
SERIAL = Limit(group_in_flight=1)
RATED = Limit(rate=50, burst=50)


def take(books: Holdings, job: str, at: float, until: float | None = None, group: str = "") -> Holding:
    """Let a consumer have a job, until it acknowledges it; None = it says nothing."""
    holding = books.taken(job.encode(), group.encode(), 0, at - 0.01, at, RETRY_S)
    if until is not None:
        books.sent(holding, until)
    return holding


def kinds(books: Holdings) -> list[str]:
    """Name the promises that were broken."""
    return [each.partition(":")[0] for each in books.verdict()]


def steady(books: Holdings, rate: float, seconds: float, begin: float = 0.0) -> None:
    """Let a queue hand out jobs at a rate, each for a moment."""
    for number in range(round(rate * seconds)):
        at = begin + number / rate
        take(books, f"{begin} {number}", at, at)


def test_as_many_jobs_as_the_limit_are_fine_and_the_next_may_come_with_the_acknowledgement() -> None:
    books = Holdings(TWO)
    take(books, "a", 1, 2)
    take(books, "b", 1.5, 3)
    take(books, "c", 2, 4)
    assert kinds(books) == []
    assert (books.peak(forgets=True).in_flight, books.again()) == (2, 0)


def test_one_job_more_is_found() -> None:
    books = Holdings(TWO)
    take(books, "a", 1, 2)
    take(books, "b", 1.5, 3)
    take(books, "c", 1.999, 4)
    assert kinds(books) == ["in flight"]
    assert "3 jobs at 1.999" in books.verdict()[0]
    assert [line.split()[0] for line in books.verdict()[0].splitlines()[1:]] == ["a", "b", "c"]


def test_a_consumer_that_says_nothing_has_its_job_until_its_retry_period_is_over() -> None:
    books = Holdings(TWO)
    take(books, "a", 1)
    take(books, "b", 1)
    take(books, "c", 3.98, 4)
    assert kinds(books) == ["in flight"]
    late = Holdings(TWO)
    take(late, "a", 1)
    take(late, "b", 1)
    take(late, "c", 3.99, 4)  # counted from before GETJOB
    assert kinds(late) == []


def test_a_reply_that_comes_after_the_retry_period_is_with_nobody() -> None:
    books = Holdings(Limit(in_flight=1))
    books.taken(b"a", b"", 0, 1, 5, RETRY_S)
    take(books, "b", 5, 6)
    assert kinds(books) == []


def test_a_job_that_two_consumers_have_is_one_job_and_is_counted_apart() -> None:
    books = Holdings(TWO)
    take(books, "a", 1)
    second = take(books, "a", 2)
    take(books, "b", 2.2, 3)
    assert kinds(books) == []
    assert books.again() == 1
    take(books, "c", 2.6, 2.7)
    assert kinds(books) == ["in flight"]
    books.sent(second, 2.5)  # the first consumer has it still, which no node can know
    assert kinds(books) == []
    assert len(books.peak(forgets=False).over) == 1


def test_a_job_that_comes_after_its_acknowledgement_is_over_and_is_counted_apart() -> None:
    books = Holdings(SERIAL)
    take(books, "a", 1, 2)
    take(books, "a", 5, 6)
    take(books, "b", 5.5, 7)
    assert kinds(books) == []
    assert len(books.peak(forgets=False).over) == 1


def test_a_job_that_comes_after_it_was_given_back_counts_again() -> None:
    books = Holdings(SERIAL)
    books.sent(take(books, "a", 1), 2, acknowledges=False)
    take(books, "a", 5, 6)
    take(books, "b", 5.5, 7)
    assert kinds(books) == ["in flight"]


def test_a_group_has_one_job_at_a_time_and_other_groups_have_theirs() -> None:
    books = Holdings(SERIAL)
    take(books, "a", 1, 2, "x")
    take(books, "b", 1, 2, "y")
    take(books, "c", 2, 3, "x")
    assert kinds(books) == []
    take(books, "d", 1.5, 1.6, "y")
    assert kinds(books) == ["in flight"]
    assert "2 jobs of b'y'" in books.verdict()[0]


def test_what_a_crash_made_nodes_forget_is_told_apart() -> None:
    books = Holdings(TWO)
    take(books, "a", 1)
    take(books, "b", 1)
    books.crashed(1.5, 1.6)
    take(books, "c", 2, 2.1)
    take(books, "d", 2, 2.2)
    assert kinds(books) == []
    assert books.peak(forgets=False).in_flight == 4
    assert len(books.peak(forgets=False).over) == 2
    take(books, "e", 2.05, 2.2)  # nodes gave three after the crash
    assert kinds(books) == ["in flight"]


def test_a_reply_from_before_a_crash_that_is_read_after_it_is_forgotten_too() -> None:
    books = Holdings(Limit(in_flight=1))
    books.crashed(1.5, 1.6)
    books.taken(b"a", b"", 0, 1.55, 1.7, RETRY_S)
    take(books, "b", 2, 3)
    assert kinds(books) == []


def test_a_bucket_may_be_full_once_and_goes_on_at_its_rate() -> None:
    books = Holdings(RATED)
    for number in range(50):
        take(books, f"burst {number}", 0.0, 0.0)
    steady(books, 50, 20)
    assert kinds(books) == []
    assert books.excess() == pytest.approx(51, abs=1)


@pytest.mark.parametrize(("rate", "seconds"), [(100, 2.5), (75, 5), (55, 25)])
def test_a_rate_that_is_too_high_for_a_while_is_found(rate: float, seconds: float) -> None:
    books = Holdings(RATED)
    steady(books, 40, 10)
    for number in range(50):
        take(books, f"burst {number}", 10.0, 10.0)
    steady(books, rate, seconds, 10.0)
    steady(books, 30, 10, 10.0 + seconds)
    assert kinds(books) == ["rate"]


def test_a_bucket_that_is_full_again_too_soon_is_found() -> None:
    books = Holdings(RATED)
    for number in range(2 * RATED.burst + RATED.rate + 1):
        take(books, f"{number}", 0.0, 0.0)
    assert LATE_S == 1
    assert kinds(books) == ["rate"]


def test_a_reply_that_is_read_late_does_not_count_as_a_late_delivery() -> None:
    books = Holdings(RATED)
    for number in range(1_000):
        # All are read at the same moment by a client that had no processor.
        books.sent(books.taken(b"%d" % number, b"", 0, number / 50, 20.0, RETRY_S), 20.0)
    assert books.excess() <= 1
    assert kinds(books) == []


def test_the_excess_is_that_of_the_worst_of_all_windows() -> None:
    random = Random(5)
    for _ in range(20):
        books = Holdings(Limit(rate=random.choice((1, 3, 10)), burst=1))
        for number in range(random.randrange(1, 40)):
            asked_at = random.random() * 10
            books.taken(b"%d" % number, b"", 0, asked_at, asked_at + random.random(), RETRY_S)
        windows = [(first.asked_at, last.since) for first in books.all for last in books.all]
        counts = (
            sum(begin <= each.asked_at and each.since <= end for each in books.all) - books.limit.rate * (end - begin)
            for begin, end in windows
            if begin < end
        )
        assert books.excess() == pytest.approx(max(0.0, *counts))


def test_a_job_that_is_with_nobody_after_the_heal_is_found() -> None:
    books = Holdings(TWO)
    books.added(b"a", 1)
    books.added(b"b", 1)
    books.healed(2)
    take(books, "a", 2.1, 2.2)
    take(books, "b", 2.2 + RETRY_S + STILL_S + 0.1)
    assert kinds(books) == ["delivered"]
    assert books.still() == pytest.approx(RETRY_S + STILL_S + 0.1)


def test_a_job_that_waits_for_others_to_end_or_for_its_fault_to_end_is_fine() -> None:
    books = Holdings(Limit(in_flight=1))
    books.added(b"a", 1)
    books.added(b"b", 1)
    take(books, "a", 100, 100 + RETRY_S)
    books.healed(101)
    take(books, "b", 100 + RETRY_S + STILL_S)
    assert kinds(books) == []
    books.added(b"c", 1_000)
    take(books, "c", 1_000.5, 1_001)
    assert kinds(books) == []


def test_a_pause_is_the_longest_time_without_a_delivery_that_began_in_a_fault() -> None:
    books = Holdings(TWO)
    for number, at in enumerate((1, 2, 5, 6, 16)):
        take(books, f"{number}", at, at + 0.5)
    assert books.pause(1.5, 4) == 3
    assert books.pause(3, 4) == 2
    assert books.pause(5.5, 6.5) == 10
    assert books.pause(20, 21) == 0


def test_books_without_a_delivery_find_nothing() -> None:
    books = Holdings(Limit(2, 1, 50, 50))
    books.healed(1)
    assert (kinds(books), books.excess(), books.still(), books.pause(0, 1)) == ([], 0, 0, 0)
    assert books.limit.words() == ("INFLIGHT", 2, "GROUPINFLIGHT", 1, "RATE", 50, "PER", 1, "BURST", 50)
