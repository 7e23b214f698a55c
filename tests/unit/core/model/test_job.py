"""A job: what its options make of its deadlines, and that it is its own only unit."""

import pytest

from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    QUEUED,
    STATE_NAMES,
    TRANSITIONS,
    WAIT_REPL,
    JobOptions,
    JobState,
    Unit,
)
from tests.core_fixtures import Server, make_job


@pytest.mark.parametrize(
    ("ttl_ms", "retry_ms", "delay_ms", "requeue_at", "first_at"),
    [
        (60_000, 5_000, 0, 5_100, 5_100),
        (60_000, 5_000, 9_000, 9_100, 9_100),
        (60_000, 0, 9_000, 9_100, 9_100),
        (60_000, 0, 0, 0, 60_100),
        (3_000, 5_000, 0, 5_100, 3_100),
        (5_000, 5_000, 0, 5_100, 5_100),
    ],
)
def test_the_first_deadline_is_delay_or_retry_or_the_end(
    ttl_ms: int, retry_ms: int, delay_ms: int, requeue_at: int, first_at: int
) -> None:
    options = JobOptions(ttl_ms=ttl_ms, retry_ms=retry_ms, delay_ms=delay_ms, replicate=1)
    options.stamp(100)
    assert (options.expires_at, options.requeue_at, options.first_at) == (100 + ttl_ms, requeue_at, first_at)


def test_stamping_anew_leaves_nothing_of_the_old_stamp() -> None:
    options = JobOptions(ttl_ms=1_000, retry_ms=0, delay_ms=0, replicate=1)
    for now in (5, 70):
        options.stamp(now)
        assert (options.stamped_at, options.expires_at, options.first_at) == (now, now + 1_000, now + 1_000)


def test_jobs_of_one_millisecond_share_their_options_and_later_ones_move_no_deadline_of_earlier_ones() -> None:
    server = Server()
    first = server.job(server.add("q", "x", "TTL", 10))
    server.advance(500)
    second = server.job(server.add("q", "x", "TTL", 10))
    assert first.options is second.options
    assert second.expires_at - first.expires_at == 500


def test_a_work_job_is_its_own_only_unit() -> None:
    job = make_job()
    assert job.job is job
    assert job.scope == b""


def test_a_unit_must_say_its_job_and_scope() -> None:
    unit = Unit()
    with pytest.raises(NotImplementedError):
        _ = unit.job
    with pytest.raises(NotImplementedError):
        _ = unit.scope


def test_states_have_the_names_and_numbers_of_disque() -> None:
    assert [(int(state), STATE_NAMES[state]) for state in JobState] == [
        (0, b"wait-repl"),
        (1, b"active"),
        (2, b"queued"),
        (3, b"acked"),
    ]
    assert (WAIT_REPL, ACTIVE, QUEUED, ACKED) == (0, 1, 2, 3)


def test_an_acked_job_has_no_state_to_go_to_and_every_state_can_be_acked() -> None:
    assert not TRANSITIONS[JobState.ACKED]
    assert all(JobState.ACKED in TRANSITIONS[state] for state in JobState if state != JobState.ACKED)
