"""Adding a job on a lone node: what is admitted, what is refused and in which order, and what the job then is."""

import pytest

from disqued.core.model.outbox import JOB_ADDED
from tests.core_fixtures import Server


@pytest.fixture
def server() -> Server:
    return Server()


def test_a_job_gets_the_defaults_of_disque(server: Server) -> None:
    shown = server.show(server.add())
    assert shown is not None
    assert (shown["repl"], shown["ttl"], shown["delay"], shown["retry"]) == (1, 86_400, 0, 300)
    assert (shown["nacks"], shown["additional-deliveries"]) == (0, 0)


@pytest.mark.parametrize(
    ("ttl", "retry"), [(1, 1), (5, 1), (19, 1), (20, 2), (2_999, 299), (3_000, 300), (3_010, 300), (86_400, 300)]
)
def test_the_default_retry_is_a_tenth_of_the_ttl_at_least_1_and_at_most_300(
    server: Server, ttl: int, retry: int
) -> None:
    shown = server.show(server.add("q", "x", "TTL", ttl))
    assert shown is not None
    assert shown["retry"] == retry


def test_every_job_is_journalled_once_and_before_its_producer_hears_of_it(server: Server) -> None:
    job_id = server.add("q", "x", "DELAY", 5)
    assert server.journal == [(JOB_ADDED, server.job(job_id))]


def test_a_refused_job_leaves_nothing_behind(server: Server) -> None:
    server.refusal("ADDJOB", "q", "x", 0, "REPLICATE", 2)
    server.refusal("ADDJOB", "q", "x", 0, "DELAY", 5, "TTL", 5)
    assert (len(server.state.jobs), len(server.state.queues), server.journal) == (0, 0, [])
    assert server.node.deadline() is None


# MAXLEN.


def test_maxlen_refuses_when_the_queue_is_that_long_already(server: Server) -> None:
    for number in range(3):
        server.add("q", number, "MAXLEN", 3)
    refusal = "MAXLEN Queue is already longer than the specified MAXLEN count"
    assert server.refusal("ADDJOB", "q", "x", 0, "MAXLEN", 3) == refusal
    server.add("q", "x", "MAXLEN", 4)
    server.get()
    assert server.refusal("ADDJOB", "q", "x", 0, "MAXLEN", 1) == refusal


def test_maxlen_does_not_count_jobs_that_are_delayed_or_delivered(server: Server) -> None:
    server.add("q", "delayed", "DELAY", 5)
    server.add("q", "delivered")
    server.get()
    server.add("q", "x", "MAXLEN", 1)


# Which refusal comes first.


@pytest.mark.parametrize(
    ("options", "start"),
    [
        (("x", "TTL", "x"), "ERR TTL"),
        (("x",), "ERR timeout is not"),
        ((0, "REPLICATE", 2, "RETRY", 0, "DELAY", 9, "TTL", 9), "ERR With RETRY"),
        ((0, "REPLICATE", 2, "DELAY", 9, "TTL", 9), "ERR The specified DELAY"),
        ((0, "REPLICATE", 2, "MAXLEN", 1), "NOREPL "),
        ((0, "MAXLEN", 1), "MAXLEN "),
        ((0, "MAXLEN", 2), "PAUSED "),
    ],
)
def test_the_first_check_that_fails_is_the_one_that_is_answered(
    server: Server, options: tuple[str | int, ...], start: str
) -> None:
    server.add()
    server("PAUSE", "q", "in")
    assert server.refusal("ADDJOB", "q", "x", *options).startswith(start)
