"""A job: what its options make of its deadlines, and that it is its own only unit."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from disqued.core.model import job
from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    DEAD,
    INTO_ACKED,
    INTO_ACTIVE,
    INTO_DEAD,
    INTO_QUEUED,
    INTO_WAIT_REPL,
    QUEUED,
    STATE_NAMES,
    TRANSITIONS,
    WAIT_REPL,
    JobOptions,
    JobState,
    Unit,
    attempt_of,
    forbidden,
    process_of,
)
from tests.core_fixtures import Server, make_job
from tools import draw_states


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


def test_the_attempt_is_the_number_of_deliveries_of_which_each_may_be_given_back_or_run_out() -> None:
    job = make_job()
    assert (attempt_of(job), process_of(job)) == (1, job.id + b":1")
    job.nacks, job.additional_deliveries = 2, 3
    assert (attempt_of(job), process_of(job)) == (6, job.id + b":6")


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
        (4, b"dead"),
    ]
    assert (WAIT_REPL, ACTIVE, QUEUED, ACKED, DEAD) == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("into", "after"), [(INTO_WAIT_REPL, 0), (INTO_ACTIVE, 1), (INTO_QUEUED, 2), (INTO_ACKED, 3), (INTO_DEAD, 4)]
)
@pytest.mark.parametrize("before", list(JobState))
def test_a_state_is_entered_from_those_of_the_table_alone(into: tuple[bool, ...], after: int, before: JobState) -> None:
    assert into[before] is ((before, after) in TRANSITIONS)


def test_a_change_that_the_table_does_not_have_is_named() -> None:
    assert forbidden(ACKED, QUEUED) == "a unit that is acked cannot become queued"


def test_a_job_that_is_done_is_not_queued_again() -> None:
    server = Server()
    done = server.job(server.add("q", "x"))
    server.get("q")
    done.state = ACKED
    with pytest.raises(AssertionError, match="a unit that is acked cannot become queued"):
        server.node.queueing.enqueue_new(done, server.node.state.queue(b"q"))
    assert done.state == ACKED


def test_an_acked_job_has_no_state_to_go_to() -> None:
    assert not [after for before, after in TRANSITIONS if before == ACKED]


def _changes_of_state() -> list[tuple[str, str]]:
    """Every line of the core that assigns the state of a unit, other than to a new one, and the line before it."""
    core = Path(job.__file__).parents[1]
    return [
        (before.strip(), line.strip())
        for file in core.rglob("*.py")
        for before, line in pairwise(file.read_text("utf-8").splitlines())
        if re.match(r"\s*\w+\.state = ", line) and not re.match(r"\s*self\.", line)
    ]


def test_every_change_of_a_state_is_checked_against_the_table() -> None:
    changes = _changes_of_state()
    assert len(changes) >= 15
    checked = re.compile(r"assert INTO_(\w+)\[(\w+)\.state\], forbidden\(\2\.state, \1\)\n\2\.state = \1$")
    # What is kept of a job that is done is another object, whose very next change is from the state of the job.
    assert [line for before, line in changes if not checked.match(f"{before}\n{line}")] == ["done.state = job.state"]


def test_the_diagram_in_the_docs_is_drawn_from_the_table() -> None:
    assert draw_states.shown(draw_states.PAGE.read_text("utf-8")) == draw_states.diagram()
