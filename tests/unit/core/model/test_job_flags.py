"""What becomes of each flag of a job: when it is queued again, put off, finished, written down or copied."""

from itertools import combinations
from typing import Final

import pytest

from disqued.core.model import job as jobs
from disqued.core.model.job import (
    ACTIVE,
    FLAG_ASKING,
    FLAG_CAME_BACK,
    FLAG_COPY,
    FLAG_DELIVERED,
    FLAG_DROPPED,
    FLAG_ELSEWHERE,
    FLAG_GIVEN,
    FLAG_HELD_ELSEWHERE,
    FLAG_LEASED,
    FLAG_PUT_OFF,
    FLAG_QUEUED_BEFORE,
    FLAG_TAKEN_OUT,
    QUEUED,
    STATE_NAMES,
    StoredJob,
)
from disqued.core.model.outbox import JOB_ADDED
from disqued.persistence.sqlite.rows import noted
from disqued.wire.jobdump import decode_copy, decode_record, encode_copy, encode_job
from tests.core_fixtures import Server, make_job

#: Each flag by its name; those that stand for several are not among them.
FLAGS: Final = {
    name: value
    for name, value in vars(jobs).items()
    if name.startswith("FLAG_") and value.bit_count() == 1
}  # fmt: skip
ALL: Final = sum(FLAGS.values())
EACH = pytest.mark.parametrize("flag", FLAGS.values(), ids=FLAGS)


def active(server: Server, *options: str | int) -> jobs.Job:
    """A job that waits for its timer, without any flag."""
    job = server.job(server.add("q", "x", *options))
    server("DEQUEUE", job.id)
    job.flags = 0
    return job


def test_each_flag_is_a_bit_of_its_own() -> None:
    assert len(FLAGS) == len(set(FLAGS.values())) == 17
    assert ALL.bit_count() == 17


@EACH
def test_a_job_that_is_queued_keeps_what_lasts_and_nothing_of_the_moment(flag: int) -> None:
    server = Server()
    job = active(server, "RETRY", 60)
    job.flags = flag
    server.node.begin()
    if flag == FLAG_DROPPED:
        assert not server.node.requeueing.enqueue(job)
        return
    assert server.node.requeueing.enqueue(job)
    lasts = flag in (FLAG_QUEUED_BEFORE, FLAG_DELIVERED, FLAG_CAME_BACK, FLAG_COPY)
    assert job.flags == (flag if lasts else 0) | FLAG_QUEUED_BEFORE
    assert job.additional_deliveries == (flag == FLAG_QUEUED_BEFORE)


@EACH
def test_a_job_whose_timer_begins_again_is_with_no_consumer_and_asked_for_no_more(flag: int) -> None:
    server = Server()
    job = active(server, "RETRY", 60)
    job.flags = flag
    server.node.begin()
    server.node.queueing.put_off(job, server.state.now + 1_000)
    ended = flag in (
        FLAG_ASKING, FLAG_GIVEN, FLAG_PUT_OFF, FLAG_TAKEN_OUT, FLAG_LEASED, FLAG_ELSEWHERE, FLAG_HELD_ELSEWHERE,
    )  # fmt: skip
    assert job.flags == (0 if ended else flag)
    assert job.requeue_at == server.state.now + 1_000


@EACH
def test_a_job_that_is_handed_out_is_known_as_delivered_and_leased(flag: int) -> None:
    server = Server()
    job = server.job(server.add("q", "x", "RETRY", 60))
    job.flags = flag
    assert [row[1] for row in server.get()] == [job.id]
    assert job.flags == flag | FLAG_DELIVERED | FLAG_LEASED


@EACH
@pytest.mark.parametrize("retry", [0, 60])
def test_the_end_of_a_job_that_another_node_may_bring_again_is_remembered(flag: int, retry: int) -> None:
    server = Server()
    job = active(server, "RETRY", retry)
    job.flags = flag
    server("ACKJOB", job.id)
    assert server.state.jobs.get(job.id) is None
    brought = flag in (FLAG_COPY, FLAG_CAME_BACK)
    assert (job.id in server.state.custody.ended) is bool(brought and retry)


def test_of_the_flags_in_a_journal_there_are_three_whatever_else_a_job_has() -> None:
    job = make_job()
    for size in range(len(FLAGS) + 1):
        for some in combinations(FLAGS.values(), size):
            job.flags = sum(some)
            kept = job.flags & (FLAG_QUEUED_BEFORE | FLAG_DELIVERED | FLAG_PUT_OFF)
            assert decode_record(encode_job(job, 0))[1].flags == kept
            assert noted([(JOB_ADDED, job)], 1, 0, 0)[0][6] == kept
            assert decode_copy(encode_copy(job, 0)).flags == job.flags & (FLAG_QUEUED_BEFORE | FLAG_PUT_OFF)


@pytest.mark.parametrize("state", STATE_NAMES)
@pytest.mark.parametrize("told", [ACTIVE, QUEUED])
def test_a_job_that_is_done_is_written_down_as_done_and_others_as_wanted(state: int, told: int) -> None:
    job = make_job()
    job.state = state
    assert decode_record(encode_job(job, 0, told))[1].state == (state if state == jobs.ACKED else told)
    for with_state in (False, True):
        expected = state if with_state or state == jobs.ACKED else ACTIVE
        assert noted([(JOB_ADDED, job)], 1, 0, 0, with_state=with_state)[0][5] == expected


@pytest.mark.parametrize("flags", range(4))
def test_a_copy_is_known_as_one_and_as_delivered_by_nobody_here(flags: int) -> None:
    server = Server()
    server.node.begin()
    stored: StoredJob = decode_record(encode_job(make_job(now=server.state.now), 0))[1]
    made = server.node.queueing.copies.make(stored._replace(flags=flags, expires=60_000))
    assert made is not None
    assert made.flags == flags & FLAG_QUEUED_BEFORE | FLAG_COPY
