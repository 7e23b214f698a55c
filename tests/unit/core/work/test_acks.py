"""Acknowledgement on one node: a job is done, at once, and once."""

import pytest

from disqued.core.model.outbox import GONE_DELETED, JOB_GONE, UNIT_DONE
from tests.core_fixtures import OLD_ID, UNKNOWN_ID, Server, check


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.mark.parametrize("verb", ["ACKJOB", "FASTACK"])
@pytest.mark.parametrize("stage", ["delayed", "queued", "delivered"])
def test_a_job_can_be_acknowledged_at_every_stage(server: Server, verb: str, stage: str) -> None:
    job_id = server.add("q", "x", *(("DELAY", 5) if stage == "delayed" else ()))
    if stage == "delivered":
        server.get()
    assert server(verb, job_id) == 1
    assert server.show(job_id) is None
    assert server.journal[-1] == (UNIT_DONE, job_id, b"")
    server.advance(10_000)
    assert server.get() == []
    check(server)


@pytest.mark.parametrize("verb", ["ACKJOB", "FASTACK", "DELJOB"])
def test_only_jobs_that_are_known_and_not_done_are_counted(server: Server, verb: str) -> None:
    first, second = server.add(), server.add()
    assert server(verb, UNKNOWN_ID, first, OLD_ID, first) == 1
    assert server(verb, first) == 0
    assert server(verb, second) == 1
    assert len(server.state.jobs) == 0


def test_acknowledging_what_nobody_knows_leaves_nothing_behind(server: Server) -> None:
    assert server("ACKJOB", UNKNOWN_ID) == 0
    assert server.journal == []
    assert server.state.memory.used == 0


def test_deleting_a_job_is_not_acknowledging_it(server: Server) -> None:
    job_id = server.add()
    assert server("DELJOB", job_id) == 1
    assert server.journal[-1] == (JOB_GONE, job_id, GONE_DELETED)
    assert server.stat()["consumed"] == 0  # type: ignore[index]


def test_acknowledged_jobs_count_as_consumed_by_their_queue(server: Server) -> None:
    for number in range(3):
        server("ACKJOB", server.add("q", number))
    assert server.stat()["consumed"] == 3  # type: ignore[index]


def test_a_job_can_be_acknowledged_when_its_queue_is_forgotten(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 0)
    server.get()
    server.advance(400_000)
    assert server("QSTAT", "q") is None
    assert server("ACKJOB", job_id) == 1
    check(server)


def test_an_at_most_once_job_that_is_acknowledged_is_no_candidate_for_eviction_any_more(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 0)
    server.get()
    assert len(server.state.custody.evictable) == 1
    server("ACKJOB", job_id)
    assert len(server.state.custody.evictable) == 0
