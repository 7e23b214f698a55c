"""The defects and races of the original Worqr, each a test that shows that it is not here; and its own test, replayed.

Numbers are those of the list that the documentation refers to (docs/how-to/from-worqr.md).
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.job import Job
from disqued.core.model.registry import Registry
from tests.core_fixtures import UNKNOWN_ID, Server, check
from tests.unit.core.workers.test_workers_life import dequeue, enqueue, info, start, tasks


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    made.node.notifications.set_listening(listens=True)
    yield made
    check(made)


def heard(server: Server, kind: bytes) -> list[bytes]:
    """Contents of the events of a type so far."""
    return [content for _, type_, content, _ in server.events if type_ == kind]


@pytest.mark.parametrize("way", ["WQ.RETURN", "WQ.UNWORK", "WORKER FAIL", "silence"])
def test_1_returned_tasks_go_to_the_front_and_not_to_the_back(server: Server, way: str) -> None:
    start(server)
    enqueue(server, "first", "second")
    [process] = dequeue(server)
    enqueue(server, "third")
    {
        "WQ.RETURN": lambda: server("WQ.RETURN", process),
        "WQ.UNWORK": lambda: server("WQ.UNWORK", "q", client="w"),
        "WORKER FAIL": lambda: server("WORKER", "FAIL", "w"),
        "silence": lambda: server.advance(3_000),
    }[way]()
    assert tasks(server) == [b"first", b"second", b"third"]


@pytest.mark.parametrize("way", ["WORKER FAIL", "WORKER STOP", "WQ.UNWORK", "silence"])
def test_2_failing_one_worker_leaves_the_tasks_of_others_alone(server: Server, way: str) -> None:
    start(server, "a")
    start(server, "b", "TTL", 60_000)
    enqueue(server, "of a", "of b")
    dequeue(server, "a")
    [of_b] = dequeue(server, "b")
    {
        "WORKER FAIL": lambda: server("WORKER", "FAIL", "a"),
        "WORKER STOP": lambda: server("WORKER", "STOP", client="a"),
        "WQ.UNWORK": lambda: server("WQ.UNWORK", "q", client="a"),
        "silence": lambda: server.advance(3_000),
    }[way]()
    assert tasks(server) == [b"of a"]
    assert server("WQ.FINISH", of_b, client="b") == 1
    assert tasks(server) == [b"of a"]


def test_3_returned_tasks_are_announced_and_wake_who_waits(server: Server) -> None:
    start(server, "w", "BIND")
    start(server, "idle")
    enqueue(server, "a")
    dequeue(server)
    assert server("WQ.DEQUEUE", "q", "BLOCK", 0, client="idle") is BLOCKED
    server.events.clear()
    server.gone("w")
    assert heard(server, b"work") == [b"1"]
    assert heard(server, b"returned") == [b"1"]
    assert [task for _, _, task in server.answers["idle"][0]] == [b"a"]


def test_4_unique_enqueues_of_different_tasks_lose_none_and_a_refusal_spoils_nothing(server: Server) -> None:
    for number in range(5):
        server("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", number, client=f"c{number}")
    assert server.refusal("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", 3, client="c0").startswith("DUPLICATE")
    server("WQ.ENQUEUE", "q", "TASKS", "ordinary", client="c0")
    assert tasks(server) == [b"0", b"1", b"2", b"3", b"4", b"ordinary"]


@pytest.mark.parametrize("end", [("WQ.CANCEL", "q", "a"), ("WQ.DELETE", "q")])
def test_5_a_unique_marker_goes_with_its_task_and_with_no_other(server: Server, end: tuple[str, ...]) -> None:
    server("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "a")
    server(*end)
    server("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "a")
    [twin] = enqueue(server, "a")
    assert server("WQ.FINISH", twin) == 2
    assert server.refusal("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "a").startswith("DUPLICATE")


def test_6_what_starts_while_another_worker_fails_is_still_tracked(server: Server) -> None:
    start(server, "a")
    start(server, "b")
    enqueue(server, *map(str, range(700)))
    dequeue(server, "a", count=600)
    assert server("WORKER", "FAIL", "a") is BLOCKED
    # Not all has come back yet, and b takes a task in between.
    [process] = dequeue(server, "b")
    server.advance(1)
    assert info(server, "b")["processes"] == 1
    assert server("WQ.FINISH", process, client="b") == 1
    assert server("WQ.LEN", "q") == 699


def test_7_a_worker_fails_once(server: Server) -> None:
    start(server)
    enqueue(server, "a", "b")
    dequeue(server)
    server("WORKER", "FAIL", "w")
    assert server.refusal("WORKER", "FAIL", "w").startswith("NOWORKER")
    server.advance(10_000)
    assert tasks(server) == [b"a", b"b"]
    assert len(heard(server, b"dead")) == 1


def test_8_a_heartbeat_after_death_changes_nothing_and_starting_again_is_clean(server: Server) -> None:
    start(server)
    server.advance(3_000)
    for _ in range(3):
        assert server.refusal("WORKER", "KEEPALIVE", "w", client="w").startswith("NOWORKER")
    assert len(heard(server, b"dead")) == 1
    start(server)
    assert info(server, "w")["epoch"] == 1
    assert server("WORKER", "LIST") == [b"w"]


@pytest.mark.parametrize("words", [("WQ.DEQUEUE", "q"), ("WQ.WORK", "q"), ("WORKER", "KEEPALIVE")])
def test_9_a_worker_that_lost_its_timer_is_refused(server: Server, words: tuple[str, ...]) -> None:
    start(server)
    enqueue(server, "a")
    server.advance(3_000)
    assert server.refusal(*words, client="w").startswith("NOWORKER")
    assert tasks(server) == [b"a"]


def test_9_its_finish_is_told_from_that_of_the_current_process(server: Server) -> None:
    start(server)
    enqueue(server, "a")
    [process] = dequeue(server)
    server.advance(3_000)
    assert server("WQ.FINISH", process, client="w") == 2


class NeverWalked(Registry):
    """A table of jobs that nobody walks over."""

    __slots__ = ()

    def __iter__(self) -> Iterator[Job]:
        raise AssertionError("somebody walks over all jobs")

    def table(self, number: int) -> list[Job]:
        raise AssertionError("somebody walks over all jobs")


def test_10_listing_queues_and_processes_looks_at_nothing_else(server: Server) -> None:
    start(server)
    for number in range(50):
        enqueue(server, "x", queue=f"other{number}")
    enqueue(server, "a")
    [process] = dequeue(server)
    server.state.jobs.__class__ = NeverWalked
    assert len(server("WQ.QUEUES")) == 50
    assert [row[0] for row in server("WQ.PROCS", "QUEUE", "q")] == [process]
    assert [row[0] for row in server("WQ.PROCS", "WORKER", "w")] == [process]
    server.state.jobs.__class__ = Registry


@pytest.mark.parametrize("queue", ["a_b_work", "wq:x:y", "_", ":", "", "a:b_c"])
def test_11_names_may_have_any_bytes(server: Server, queue: str) -> None:
    start(server, "w_1:x", queues=(queue,))
    enqueue(server, "a", queue=queue)
    rows = server("WQ.DEQUEUE", queue, client="w_1:x")
    assert [(name, task) for name, _, task in rows] == [(queue.encode(), b"a")]
    assert server.events[0] == (queue.encode(), b"work", b"1", None)
    assert server("WQ.FINISH", rows[0][1], client="w_1:x") == 1


def test_12_nothing_is_told_of_a_process_that_did_not_exist(server: Server) -> None:
    start(server)
    enqueue(server, "a")
    [process] = dequeue(server)
    assert [server("WQ.FINISH", one) for one in (UNKNOWN_ID + b":1", process, process)] == [0, 1, 0]
    assert len(heard(server, b"done")) == 1


@pytest.mark.parametrize("words", [("QLEN", "q"), ("INFO",), ("WQ.LEN", "q"), ("ADDJOB", "other", "x", 0)])
def test_13_any_command_of_its_connection_keeps_a_worker_alive(server: Server, words: tuple[Any, ...]) -> None:
    start(server)
    for _ in range(4):
        server.advance(2_999)
        if words[0] == "INFO":
            server("WORKER", "INFO", "w", client="w")
        else:
            server(*words, client="w")
    assert server("WORKER", "LIST") == [b"w"]


def test_the_originals_own_test_goes_through(server: Server) -> None:
    queues = ("q1", "q2", "q3")
    for queue in queues:
        assert server("WQ.DELETE", queue) == 0
        enqueue(server, "1", "2", "3", queue=queue)
    assert server("WQ.QUEUES") == [b"q1", b"q2", b"q3"]
    assert server.refusal("WQ.WORK", "q1", client="w").startswith("NOWORKER")
    server("WORKER", "START", "ID", "w", client="w")
    assert server("WORKER", "LIST") == [b"w"]
    assert server.refusal("WQ.DEQUEUE", "q1", client="w").startswith("NOTWORKING q1")
    assert server("WQ.WORK", "q1", client="w") == 3
    assert server("WQ.LEN", "q1") == 3
    assert server("WQ.PEEK", "q1") == b"1"
    assert sorted(tasks(server, "q1")) == [b"1", b"2", b"3"]

    [first] = dequeue(server, queue="q1")
    assert server("WQ.FINISH", first, client="w") == 1
    [second] = dequeue(server, queue="q1")
    assert server("WQ.RETURN", second, client="w") == 1
    assert server("WQ.LEN", "q1") == 2
    assert server("WQ.PEEK", "q1") == b"2"

    server.events.clear()
    enqueue(server, "4", queue="q1")
    assert heard(server, b"work") == [b"1"]
    for _ in range(3):
        [process] = dequeue(server, queue="q1")
        assert server("WQ.FINISH", process, client="w") == 1
    assert server("WQ.PEEK", "q1") is None
    assert [json.loads(content)["task"] for content in heard(server, b"done")] == ["2", "3", "4"]

    enqueue(server, "c", "c", queue="q1")
    [running] = dequeue(server, queue="q1")
    assert server("WQ.CANCEL", "q1", "c") == [1, running]
    assert heard(server, b"cancel") == [b"c"]
    assert server("WQ.FINISH", running, client="w") == 1
    assert server("WQ.DELETE", "q1") == 0
    assert heard(server, b"delete") == [b""]
    assert server("WQ.UNWORK", "q1", client="w") == 0

    server("WQ.WORK", "q1", client="w")
    [unique] = server("WQ.ENQUEUE", "q1", "UNIQUE", "TASKS", "u")
    for _ in range(2):
        assert server.refusal("WQ.ENQUEUE", "q1", "UNIQUE", "TASKS", "u") == f"DUPLICATE {unique.decode()}"
    [process] = dequeue(server, queue="q1")
    server("WQ.FINISH", process, client="w")
    server("WQ.ENQUEUE", "q1", "UNIQUE", "TASKS", "u")
    enqueue(server, "u", queue="q1")
    assert server("WQ.LEN", "q1") == 2
    for process in dequeue(server, queue="q1", count=2):
        assert server("WQ.FINISH", process, client="w") == 1
    assert server("WQ.LEN", "q1") == 0
    assert server("WORKER", "FAIL", "w") == 0
