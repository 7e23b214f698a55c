"""What a live worker of the client library says, and what it leaves to its node."""

from random import Random
from typing import Any

import pytest

from disqued.client import commands
from disqued.client.calls import Call, Patience, Send
from disqued.client.commands import WorkerIdentity
from disqued.client.errors import NoWorker, StaleWorker, server_error
from disqued.client.job import Job
from disqued.client.nodes import Nodes
from disqued.client.seats import Heartbeat, new_seat, take_a_seat
from disqued.client.tasks import Backoff, NextStep, Tasks

SEAT = WorkerIdentity(b"w", 1.5)
JOB = Job(b"q", b"DI%046d" % 1, b"body")


def test_each_connection_of_a_live_worker_begins_with_its_start() -> None:
    assert b" ".join(take_a_seat(SEAT)) == b"WORKER START ID w TTL 1500 BIND"
    assert b" ".join(take_a_seat(WorkerIdentity(b"w", 10, b"press"))) == b"WORKER START ID w TTL 10000 BIND NAME press"


def test_a_fetch_of_a_live_worker_names_it_and_goes_by_its_connection() -> None:
    fetch = Heartbeat(SEAT).fetch(commands.get("a", timeout=2, counters=True), 0.0)
    call = Call(fetch, Nodes([("host", 1)], Random(1)), Patience(), 0.0)
    first = call.next(0.0)
    assert isinstance(first, Send)
    assert (first.words, first.seat) == ((b"HELLO",), None)
    call.answered([1, b"a" * 40, [b"a" * 40, b"", b"1", b"1"]], 0.0)
    asked = call.next(0.0)
    assert isinstance(asked, Send)
    assert b" ".join(asked.words) == b"GETJOB TIMEOUT 2000 WORKER w WITHCOUNTERS COUNT 1 FROM a"
    assert asked.seat is SEAT


def test_it_sends_heartbeats_and_ends_by_its_connection() -> None:
    heartbeat = Heartbeat(SEAT)
    assert heartbeat.interval == 0.5
    for command, words in ((heartbeat.due(7.0), b"WORKER KEEPALIVE"), (heartbeat.stop(), b"WORKER STOP")):
        assert command is not None
        assert (b" ".join(command.words), command.seat) == (words, SEAT)


def test_a_heartbeat_is_due_three_times_in_the_time_of_a_worker_and_a_fetch_counts_as_one() -> None:
    heartbeat = Heartbeat(SEAT)
    heartbeat.fetch(commands.get("a", timeout=2, counters=True), 10.0)
    assert heartbeat.due(10.25) is None
    assert heartbeat.due(10.5) is not None
    assert heartbeat.due(10.75) is None
    assert heartbeat.due(11.0) is not None


def test_two_workers_have_two_ids_and_a_time_that_is_none_is_refused() -> None:
    rng = Random(1)
    one, other = (new_seat(rng, 10, "press") for _ in range(2))
    assert one.id != other.id
    assert (len(one.id), one.name) == (32, b"press")
    wrong: list[Any] = [0, -1, "10"]
    for dead_after in wrong:
        with pytest.raises(ValueError, match="dead_after is"):
            new_seat(rng, dead_after, b"")


def test_a_dead_and_a_superseded_worker_are_errors_of_their_own() -> None:
    assert isinstance(server_error("NOWORKER no such worker"), NoWorker)
    assert isinstance(server_error("STALE somebody else"), StaleWorker)


def test_the_node_keeps_alive_what_a_live_worker_has() -> None:
    tasks = Tasks(1, Backoff(), Random(1), keeps_alive=False)
    task = tasks.begin(JOB, 0.0)
    assert task is not None
    tasks.not_kept(task, 0.2)
    tasks.kept(task, 30, 0.3)
    tasks.too_late(task)
    assert (tasks.next_at(), task.retry) == (0.5, 30.0)
    assert tasks.due(0.5) == [(NextStep.LOOK, task)], "it asks whether it was cancelled"
    assert tasks.due(9.0) == [], "it has asked, and waits for the answer"
    tasks.looked(task, 10.0)
    assert tasks.next_at() == 11.0
    tasks.failed(task, ValueError())
    assert [what for what, _ in tasks.due(200.0)] == [NextStep.NACK]
