"""Waits that somebody ends: what each command answers, and that nothing is lost that was on its way."""

from typing import Any

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.messages import GOTJOB
from disqued.core.streams.readers import LOOK_MS
from disqued.core.work.placement import TIMED_OUT
from disqued.errors import CommandError, Unblocked
from tests.cluster_fixtures import Cluster
from tests.core_fixtures import Server, Session, Word, check

NOREPL = f"NOREPL {TIMED_OUT}"
UNBLOCKED = "UNBLOCKED client unblocked via CLIENT UNBLOCK"


def unblock(server: Server, client: str, *, error: bool = False) -> bool:
    """End the wait of a client, as CLIENT UNBLOCK does."""
    server.node.begin()
    found = server.node.timeouts.unblock(Session(client, limited=False), Unblocked() if error else None)
    server.settle()
    return found


def heard(server: Server, client: str) -> Any:
    """What a client was answered that was blocked; an error as its line."""
    (value,) = server.answers.pop(client)
    return value.line.decode() if isinstance(value, CommandError) else value


WAITS: list[tuple[Word, ...]] = [
    ("GETJOB", "FROM", "q"),
    ("GETJOB", "TIMEOUT", 5, "COUNT", 3, "FROM", "q", "other"),
    ("GETJOB", "WORKER", "w", "FROM", "q"),
    ("RQ.POP", "BLOCK", -1, "q"),
    ("QGET", "log", "g", "BLOCK", 5),
    ("QNOTIFY", "g", 5, "log"),
    ("QNOTIFY", "g", 5, "q"),
    ("WQ.DEQUEUE", "tasks", "BLOCK", 5),
]


@pytest.mark.parametrize("words", WAITS, ids=lambda words: " ".join(map(str, words)))
@pytest.mark.parametrize("error", [False, True])
def test_a_consumer_hears_that_there_is_nothing_or_an_error(words: tuple[Word, ...], error: bool) -> None:
    server = Server()
    server("WORKER", "START", "ID", "w", client="reader")
    server("WQ.WORK", "tasks", client="reader")
    assert server(*words, client="reader") is BLOCKED
    assert unblock(server, "reader", error=error)
    assert heard(server, "reader") == (UNBLOCKED if error else None)
    # Nobody waits any more, and nothing comes of the time that it had.
    assert not unblock(server, "reader")
    server("ADDJOB", "q", "x", 0)
    server("QADD", "log", 600, "x")
    server("WQ.ENQUEUE", "tasks", "TASKS", "x")
    server.advance(10_000)
    assert not server.answers
    check(server)


def test_a_client_that_does_not_wait_is_not_unblocked() -> None:
    assert not unblock(Server(), "nobody")


@pytest.mark.parametrize("error", [False, True])
def test_a_job_that_comes_with_the_end_of_a_wait_is_for_the_next_consumer(error: bool) -> None:
    server = Server()
    server("GETJOB", "FROM", "q", client="first")
    server("GETJOB", "FROM", "q", client="second")
    assert unblock(server, "first", error=error)
    job_id = server.add()
    assert heard(server, "second") == [(b"q", job_id, b"body")]
    # Who has its job is not blocked: the job is its own.
    assert not unblock(server, "second", error=error)


def test_the_slot_that_a_steward_gives_for_one_who_has_left_is_for_the_next() -> None:
    server = Server()
    server("QPOLICY", "q", "SET", "INFLIGHT", 1)
    job_id = server.add()
    assert server("GETJOB", "FROM", "q", client="first") is BLOCKED
    assert unblock(server, "first")
    assert heard(server, "first") is None
    assert server("GETJOB", "NOHANG", "FROM", "q", client="second") is BLOCKED
    server.advance(1_000)
    assert heard(server, "second") == [(b"q", job_id, b"body")]


# Copies.


@pytest.mark.parametrize(("error", "line"), [(False, NOREPL), (True, UNBLOCKED)])
@pytest.mark.parametrize("timeout", [0, 60_000])
def test_a_job_whose_copies_are_not_waited_for_is_given_up_everywhere(error: bool, line: str, timeout: int) -> None:
    cluster = Cluster(3)
    a = cluster.members[0]
    cluster.lose = lambda flight: flight.kind == GOTJOB
    assert a("ADDJOB", "q", "x", timeout, "REPLICATE", 3, client="producer") is BLOCKED
    (job,) = a.state.jobs
    assert unblock(a, "producer", error=error)
    assert heard(a, "producer") == line
    cluster.settle()
    assert not any(member.holds(job.id) for member in cluster)
    # Copies that are confirmed later count for nothing.
    cluster.lose = lambda flight: False
    cluster.members[1].say(a, (GOTJOB, job.id))
    cluster.advance(120_000)
    assert not any(member.holds(job.id) for member in cluster)
    assert not unblock(a, "producer", error=error)


@pytest.mark.parametrize(("error", "line"), [(False, NOREPL), (True, UNBLOCKED)])
def test_elements_that_are_added_together_are_given_up_together(error: bool, line: str) -> None:
    cluster = Cluster(2)
    a, b = cluster
    cluster.hold(b, a)
    assert a("RQ.PUSH", "q", "one", "two", "REPLICATE", 2, client="producer") is BLOCKED
    assert unblock(a, "producer", error=error)
    assert heard(a, "producer") == line
    cluster.release(b, a)
    cluster.advance(120_000)
    assert not len(a.state.jobs)
    assert not len(b.state.jobs)


def test_a_job_that_has_its_copies_is_not_given_up() -> None:
    cluster = Cluster(2)
    a, b = cluster
    assert a("ADDJOB", "q", "x", 0, "REPLICATE", 2, client="producer") is BLOCKED
    job_id = heard(a, "producer")
    assert not unblock(a, "producer", error=True)
    assert a.holds(job_id)
    assert b.holds(job_id)


@pytest.mark.parametrize(("error", "line"), [(False, NOREPL), (True, UNBLOCKED)])
def test_of_those_who_wait_for_one_key_the_others_wait_on(error: bool, line: str) -> None:
    cluster = Cluster(2)
    a, b = cluster
    cluster.hold(b, a)
    for client in ("first", "second"):
        assert a("ADDJOB", "q", "x", 0, "KEY", "k", "REPLICATE", 2, client=client) is BLOCKED
    assert unblock(a, "first", error=error)
    assert heard(a, "first") == line
    cluster.release(b, a)
    cluster.advance(5_000)
    job_id = heard(a, "second")
    assert a.holds(job_id)
    assert b.holds(job_id)


# Outcomes of jobs.


def test_one_who_waits_for_jobs_hears_how_they_stand_or_an_error() -> None:
    server = Server()
    job_id, done = server.add("q", "a", "RESULT", 60), server.add("q", "b", "RESULT", 60)
    for client in ("rows", "error"):
        assert server("WAITJOB", 0, job_id, done, client=client) is BLOCKED
    server("ACKJOB", done)
    assert unblock(server, "rows")
    at_time_out = server("WAITJOB", 1, job_id, done, client="time-out")
    assert at_time_out is BLOCKED
    server.advance(1)
    assert heard(server, "rows") == heard(server, "time-out")
    assert unblock(server, "error", error=True)
    assert heard(server, "error") == UNBLOCKED
    server("ACKJOB", job_id)
    server.advance(60_000)
    assert not any(server.answers.values())


# What is on its way, and what goes on.


@pytest.mark.parametrize(("error", "line"), [(False, None), (True, UNBLOCKED)])
def test_an_event_with_ex_zero_that_is_on_its_way_is_waited_for(error: bool, line: str | None) -> None:
    cluster = Cluster(2)
    a, b = cluster
    for comes in (True, False):
        assert b("QGET", "q", "g", "EX", 0, "BLOCK", 50, client="reader") is BLOCKED
        cluster.hold(b, a)
        event_id = a("QADD", "q", 600, "x", "REPLICATE", 1)
        assert unblock(b, "reader", error=error)
        # It is ending already, and is not hurried past what is on its way.
        assert not unblock(b, "reader", error=error)
        cluster.advance(LOOK_MS - 1)
        assert not b.answers["reader"]
        if comes:
            cluster.release(b, a)
            assert heard(b, "reader") == [event_id, b"x"]
        else:
            cluster.advance(1)
            assert heard(b, "reader") == line


def test_an_event_that_comes_too_late_goes_back_to_its_group() -> None:
    cluster = Cluster(2)
    a, b = cluster
    assert b("QGET", "q", "g", "EX", 60, "BLOCK", 50, client="reader") is BLOCKED
    cluster.hold(b, a)
    event_id = a("QADD", "q", 600, "x", "REPLICATE", 1)
    assert unblock(b, "reader")
    assert heard(b, "reader") is None
    cluster.release(b, a)
    assert a("QGET", "q", "g", "EX", 60, client="next") == [event_id, b"x"]


@pytest.mark.parametrize("words", [("QPURGE", "q"), ("CANCEL", "JOB"), ("CLUSTER", "ASK", "*", "QLEN", "q")])
def test_what_has_begun_on_other_nodes_goes_on(words: tuple[str, ...]) -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = b.add("q", "x", "REPLICATE", 1)
    cluster.hold(b, a)
    line = [job_id if word == "JOB" else word for word in words]
    assert a(*line, client="operator") is BLOCKED
    assert not unblock(a, "operator", error=True)
    cluster.release(b, a)
    cluster.advance(5_000)
    assert heard(a, "operator") != UNBLOCKED
