"""WQ.*: adding, taking, finishing, giving back, cancelling and looking at tasks; and the events that tell of it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from disqued.commands import table
from disqued.commands.table import BLOCKED
from disqued.core.workers.tasks import CHANGED_AT_ONCE, LOOKED_AT_ONCE
from tests.core_fixtures import MEGABYTE, OLD_ID, UNKNOWN_ID, Server, check
from tests.unit.core.workers.test_workers_life import dequeue, enqueue, info, start, tasks


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    check(made)


@pytest.fixture
def heard(server: Server) -> list[tuple[Any, ...]]:
    """What those who listen on this node hear: (queue, type, content, the one client that it is for)."""
    server.node.notifications.set_listening(listens=True)
    return server.events


def kinds(heard: list[tuple[Any, ...]]) -> list[tuple[bytes, bytes]]:
    """Types and contents."""
    return [(kind, content) for _, kind, content, _ in heard]


# WQ.ENQUEUE.


def test_tasks_are_served_in_their_order_and_kept_as_they_are(server: Server) -> None:
    start(server)
    ids = enqueue(server, b"\x00\xff\r\n", "", "c")
    rows = server("WQ.DEQUEUE", "q", "COUNT", 5, client="w")
    assert rows == [
        (b"q", ids[0] + b":1", b"\x00\xff\r\n"),
        (b"q", ids[1] + b":1", b""),
        (b"q", ids[2] + b":1", b"c"),
    ]


def test_a_delayed_task_is_queued_when_its_delay_is_over(server: Server) -> None:
    server("WQ.ENQUEUE", "q", "DELAY", 5, "TASKS", "a")
    assert tasks(server) == []
    server.advance(5_000)
    assert tasks(server) == [b"a"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("TASKS",), "ERR wrong number of arguments"),
        (("UNIQUE",), "ERR wrong number of arguments"),
        (("UNIQUE", "UNIQUE", "UNIQUE"), "ERR syntax error"),
        (("DELAY", "9", "TTL", "9", "TASKS", "a"), "ERR The specified DELAY is greater"),
        (("RETRY", "0", "REPLICATE", "2", "TASKS", "a"), "ERR With RETRY set to 0"),
        (("REPLICATE", "3", "TASKS", "a"), "NOREPL"),
    ],
)
def test_what_cannot_be_added_is_refused(server: Server, words: tuple[str, ...], error: str) -> None:
    assert server.refusal("WQ.ENQUEUE", "q", *words).startswith(error)
    assert len(server.state.jobs) == 0


def test_nothing_is_added_to_a_paused_queue(server: Server) -> None:
    server("PAUSE", "q", "in")
    assert server.refusal("WQ.ENQUEUE", "q", "TASKS", "a", "b").startswith("PAUSED")
    assert len(server.state.jobs) == 0


def test_tasks_for_which_there_is_no_room_together_are_not_added_one_by_one() -> None:
    server = Server(maxmemory=MEGABYTE)
    assert server.refusal("WQ.ENQUEUE", "q", "TASKS", *["x" * 400_000] * 3).startswith("OOM")
    assert len(server.state.jobs) == 0


# UNIQUE.


def test_unique_tasks_are_no_larger_together_than_can_be_compared_in_a_step(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("disqued.commands.tasks.UNIQUE_MAX", 10)
    assert server("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "x" * 4, "y" * 6)
    assert server.refusal("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "z" * 4, "y" * 7) == (
        "ERR the tasks are too large for UNIQUE: 67108864 bytes together are allowed"
    )
    assert server("WQ.ENQUEUE", "q", "TASKS", "z" * 4, "y" * 7)


def test_a_unique_task_is_there_once_and_its_job_is_named(server: Server) -> None:
    [job_id] = server("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "a")
    assert server.refusal("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "a") == f"DUPLICATE {job_id.decode()}"
    assert tasks(server) == [b"a"]


def test_one_duplicate_refuses_all(server: Server) -> None:
    server("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "a")
    assert server.refusal("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "b", "a").startswith("DUPLICATE DI")
    assert server.refusal("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "c", "c").startswith("DUPLICATE the same task twice")
    assert tasks(server) == [b"a"]


def test_a_task_is_unique_in_its_queue_or_everywhere(server: Server) -> None:
    server("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "a")
    server("WQ.ENQUEUE", "p", "UNIQUE", "TASKS", "a")
    server.node.tasks.unique_anywhere = True
    assert server.refusal("WQ.ENQUEUE", "r", "UNIQUE", "TASKS", "a").startswith("DUPLICATE")
    server("WQ.DELETE", "q")
    assert server.refusal("WQ.ENQUEUE", "r", "UNIQUE", "TASKS", "a").startswith("DUPLICATE")
    server("WQ.DELETE", "p")
    server("WQ.ENQUEUE", "r", "UNIQUE", "TASKS", "a")


@pytest.mark.parametrize("end", ["finish", "cancel", "kill", "delete", "expiry", "ackjob", "deljob", "flush"])
def test_a_unique_task_may_come_again_when_it_has_ended_in_whatever_way(server: Server, end: str) -> None:
    [job_id] = server("WQ.ENQUEUE", "q", "UNIQUE", "TTL", 5, "TASKS", "a")
    if end in ("finish", "kill"):
        start(server)
        dequeue(server)
    {
        "finish": lambda: server("WQ.FINISH", job_id),
        "cancel": lambda: server("WQ.CANCEL", "q", "a"),
        "kill": lambda: server("WQ.CANCEL", "q", "a", "KILL"),
        "delete": lambda: server("WQ.DELETE", "q"),
        "expiry": lambda: server.advance(5_000),
        "ackjob": lambda: server("ACKJOB", job_id),
        "deljob": lambda: server("DELJOB", job_id),
        "flush": lambda: server("DEBUG", "FLUSHALL"),
    }[end]()
    assert len(server("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "a")) == 1


def test_a_task_that_is_not_unique_neither_blocks_nor_releases_one_that_is(server: Server) -> None:
    [plain] = enqueue(server, "a")
    [unique] = server("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "a")
    enqueue(server, "a")
    assert server("WQ.FINISH", plain) == 2
    assert server.refusal("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "a") == f"DUPLICATE {unique.decode()}"


# WQ.DEQUEUE.


def test_without_a_task_there_is_null_and_with_block_null_after_the_time(server: Server) -> None:
    start(server)
    assert server("WQ.DEQUEUE", "q", client="w") is None
    assert server("WQ.DEQUEUE", "q", "BLOCK", 500, client="w") is BLOCKED
    server.advance(500)
    assert server.answers["w"] == [None]


def test_several_queues_are_asked_in_turn_whatever_the_first_is_called(server: Server) -> None:
    start(server, queues=("count", "p"))
    enqueue(server, "a", "b", queue="count")
    enqueue(server, "c", queue="p")
    rows = server("WQ.DEQUEUE", "count", "COUNT", 3, "p", client="w")
    assert [task for _, _, task in rows] == [b"a", b"c", b"b"]


def test_one_who_waits_gets_as_many_as_it_asked_for(server: Server) -> None:
    start(server)
    assert server("WQ.DEQUEUE", "q", "COUNT", 2, "BLOCK", 0, client="w") is BLOCKED
    enqueue(server, "a", "b", "c")
    [rows] = server.answers["w"]
    assert [task for _, _, task in rows] == [b"a", b"b"]
    assert info(server, "w")["processes"] == 2


def test_nobody_waits_at_a_node_that_is_leaving(server: Server) -> None:
    start(server)
    server.node.leaving.set(leaving=True)
    assert server.refusal("WQ.DEQUEUE", "q", "BLOCK", 0, client="w").startswith("LEAVING")
    assert server("WQ.DEQUEUE", "q", client="w") is None


# WQ.FINISH.


def test_a_process_is_finished_once(server: Server) -> None:
    start(server)
    enqueue(server, "a")
    [process] = dequeue(server)
    assert [server("WQ.FINISH", process, client="w") for _ in range(3)] == [1, 0, 0]
    assert info(server, "w")["done"] == 1


def test_an_event_of_a_log_is_no_process_and_nobody_hears_that_it_is_done(
    server: Server, heard: list[tuple[Any, ...]]
) -> None:
    event_id = bytes(server("QADD", "log", 60, "x"))
    heard.clear()
    assert server.refusal("WQ.FINISH", event_id + b":1").startswith("WRONGTYPE ")
    assert server("QLEN", "log") == 1
    assert not heard


def test_anybody_may_finish_a_process_by_the_id_of_its_job(server: Server) -> None:
    start(server)
    [job_id] = enqueue(server, "a")
    dequeue(server)
    assert server("WQ.FINISH", job_id, client="somebody") == 1
    assert info(server, "w")["processes"] == 0


def test_a_late_finish_is_a_fact_as_long_as_nobody_took_the_task_again(server: Server) -> None:
    start(server)
    enqueue(server, "a")
    [process] = dequeue(server)
    server("WORKER", "FAIL", "w")
    assert tasks(server) == [b"a"]
    assert server("WQ.FINISH", process, "STRICT", client="w") == 2
    assert tasks(server) == []


def test_a_late_finish_after_redelivery_counts_and_the_other_worker_hears_of_it(
    server: Server, heard: list[tuple[Any, ...]]
) -> None:
    start(server, "late")
    start(server, "other")
    enqueue(server, "a")
    [process] = dequeue(server, "late")
    server("WORKER", "FAIL", "late")
    [again] = dequeue(server, "other")
    assert again != process
    heard.clear()
    assert server("WQ.FINISH", process, client="late") == 2
    assert (b"cancel", again) in kinds(heard)
    assert server("WQ.FINISH", again, client="other") == 0


def test_a_strict_late_finish_does_nothing_while_another_worker_has_the_task(
    server: Server, heard: list[tuple[Any, ...]]
) -> None:
    start(server, "late")
    start(server, "other")
    enqueue(server, "a")
    [process] = dequeue(server, "late")
    server("WORKER", "FAIL", "late")
    [again] = dequeue(server, "other")
    heard.clear()
    assert server("WQ.FINISH", process, "STRICT", client="late") == 0
    assert heard == []
    assert server("WQ.FINISH", again, client="other") == 1


@pytest.mark.parametrize("process", [UNKNOWN_ID, UNKNOWN_ID + b":1", OLD_ID + b":7"])
def test_what_is_not_known_is_not_finished(server: Server, process: bytes) -> None:
    assert server("WQ.FINISH", process) == 0


@pytest.mark.parametrize(
    ("process", "error"),
    [(b"x", "BADID"), (UNKNOWN_ID + b":0", "ERR a process"), (UNKNOWN_ID + b":x", "ERR a process"), (b"", "BADID"),
     (UNKNOWN_ID + b":", "ERR a process"), (UNKNOWN_ID + b":" + b"9" * 30, "ERR a process")],
)  # fmt: skip
def test_what_is_no_process_is_refused(server: Server, process: bytes, error: str) -> None:
    assert server.refusal("WQ.FINISH", process).startswith(error)


# WQ.RETURN.


def test_what_is_given_back_is_served_first_in_its_order_and_once(server: Server) -> None:
    start(server)
    enqueue(server, "a", "b", "c")
    first, second = dequeue(server, count=2)
    assert server("WQ.RETURN", second, first, first) == 2
    assert tasks(server) == [b"a", b"b", b"c"]
    assert server("WQ.RETURN", first, second) == 0
    assert info(server, "w")["returned"] == 2


def test_what_is_given_back_to_the_back_is_served_last(server: Server) -> None:
    start(server)
    enqueue(server, "a", "b", "c")
    first, second = dequeue(server, count=2)
    assert server("WQ.RETURN", second, "BACK", first) == 2
    assert tasks(server) == [b"c", b"a", b"b"]


def test_what_is_given_back_with_a_delay_is_nobodys_until_it_is_over(server: Server) -> None:
    start(server)
    enqueue(server, "a", "b")
    [process] = dequeue(server)
    assert server("WQ.RETURN", process, "DELAY", 5) == 1
    assert server("WORKER", "STOP", client="w") == 0
    server.advance(4_999)
    assert tasks(server) == [b"b"]
    server.advance(1)
    assert tasks(server) == [b"a", b"b"]


def test_a_task_that_was_given_back_is_another_process(server: Server) -> None:
    start(server)
    [job_id] = enqueue(server, "a")
    processes = []
    for _ in range(3):
        [process] = dequeue(server)
        processes.append(process)
        assert server("WQ.RETURN", process) == 1
    assert processes == [job_id + b":%d" % attempt for attempt in (1, 2, 3)]


# WQ.UNWORK.


def test_who_stops_to_work_on_a_queue_gives_back_what_it_has_of_it_alone(server: Server) -> None:
    start(server, "w", queues=("q", "p"))
    start(server, "other")
    enqueue(server, "a", "b")
    enqueue(server, "c", queue="p")
    dequeue(server, "w")
    [kept] = dequeue(server, "other")
    [also_kept] = dequeue(server, "w", queue="p")
    assert server("WQ.UNWORK", "q", client="w") == 1
    assert tasks(server) == [b"a"]
    assert server.refusal("WQ.DEQUEUE", "q", client="w").startswith("NOTWORKING q")
    assert [server("WQ.FINISH", process) for process in (kept, also_kept)] == [1, 1]


# WQ.CANCEL and WQ.DELETE.


def test_cancelling_ends_every_waiting_task_of_this_body_and_names_the_processes(
    server: Server, heard: list[tuple[Any, ...]]
) -> None:
    start(server)
    enqueue(server, "a", "a", "b", "a")
    [process] = dequeue(server)
    heard.clear()
    assert server("WQ.CANCEL", "q", "a") == [2, process]
    assert tasks(server) == [b"b"]
    assert kinds(heard) == [(b"cancel", b"a")]
    assert server("WQ.FINISH", process) == 1


def test_processes_of_other_queues_are_not_named(server: Server) -> None:
    start(server, queues=("q", "p"))
    enqueue(server, "a", queue="p")
    dequeue(server, queue="p")
    assert server("WQ.CANCEL", "q", "a") == [0]


def test_what_is_killed_comes_back_by_neither_return_nor_death(server: Server) -> None:
    start(server)
    enqueue(server, "a", "a")
    processes = dequeue(server, count=2)
    assert server("WQ.CANCEL", "q", "a", "KILL") == [0, *processes]
    assert server("WQ.RETURN", *processes) == 0
    assert server("WORKER", "FAIL", "w") == 0
    assert server("WQ.FINISH", processes[0]) == 0
    assert tasks(server) == []


def test_a_very_long_queue_is_cancelled_bit_by_bit(server: Server) -> None:
    for _ in range(LOOKED_AT_ONCE // 500 + 1):
        enqueue(server, *["a"] * 250, *["b"] * 250)
    waiting = server("WQ.LEN", "q")
    assert server("WQ.CANCEL", "q", "a") is BLOCKED
    server.advance(1)
    assert server.answers["client"] == [[waiting // 2]]
    assert server("WQ.LEN", "q") == waiting // 2


@pytest.mark.parametrize("way", ["death", "return", "nack", "delay", "back", "retry"])
def test_what_was_running_when_its_queue_was_deleted_does_not_come_back(server: Server, way: str) -> None:
    start(server)
    [job_id] = server("WQ.ENQUEUE", "q", "RETRY", 5, "TASKS", "a")
    process = server.get()[0][1] if way == "retry" else dequeue(server)[0]
    enqueue(server, "b")
    assert server("WQ.DELETE", "q") == 1
    {
        "death": lambda: server("WORKER", "FAIL", "w"),
        "return": lambda: server("WQ.RETURN", process),
        "nack": lambda: server("NACK", job_id),
        "delay": lambda: server("WQ.RETURN", process, "DELAY", 3),
        "back": lambda: server("WQ.RETURN", process, "BACK"),
        "retry": lambda: server.advance(5_000),
    }[way]()
    server.advance(20_000)
    assert tasks(server) == []
    assert len(server.state.jobs) == 0


def test_what_was_running_may_finish_after_its_queue_was_deleted(server: Server) -> None:
    start(server)
    enqueue(server, "a")
    [process] = dequeue(server)
    assert server("WQ.DELETE", "q") == 0
    assert server("WQ.FINISH", process, client="w") == 1


def test_what_was_running_may_come_back_when_that_is_wanted(server: Server) -> None:
    start(server)
    enqueue(server, "a", "b")
    dequeue(server)
    assert server("WQ.DELETE", "q", "KEEP") == 1
    server("WORKER", "FAIL", "w")
    assert tasks(server) == [b"a"]


def test_a_very_long_queue_is_deleted_bit_by_bit(server: Server, heard: list[tuple[Any, ...]]) -> None:
    for _ in range(3):
        enqueue(server, *["a"] * CHANGED_AT_ONCE)
    heard.clear()
    assert server("WQ.DELETE", "q") is BLOCKED
    server.advance(1)
    assert server.answers["client"] == [3 * CHANGED_AT_ONCE]
    assert kinds(heard) == [(b"delete", b"")]


# Looking.


def test_looking_takes_nothing(server: Server) -> None:
    enqueue(server, "a", "b", "c")
    assert server("WQ.PEEK", "q") == b"a"
    assert server("WQ.LEN", "q") == 3
    assert server("WQ.TASKS", "q") == [b"a", b"b", b"c"]
    assert server("WQ.TASKS", "q", 1) == [b"b", b"c"]
    assert server("WQ.TASKS", "q", 1, 1) == [b"b"]
    assert server("WQ.TASKS", "q", 0, 0) == []
    assert server("WQ.PEEK", "nowhere") is None
    assert server("WQ.LEN", "nowhere") == 0
    assert server("WQ.TASKS", "nowhere") == []


def test_a_list_of_large_tasks_ends_with_the_one_that_makes_it_large(server: Server) -> None:
    large = [b"%d" % number + b"x" * 600_000 for number in range(4)]
    for task in large:
        enqueue(server, task)
    assert server("WQ.TASKS", "q") == large[:2]


def test_queues_with_waiting_tasks_are_listed(server: Server) -> None:
    start(server, queues=("empty", "q"))
    for name in ("a_b", "c:d", "e"):
        enqueue(server, "x", queue=name)
    server("WQ.DEQUEUE", "empty", client="w")
    assert server("WQ.QUEUES") == [b"a_b", b"c:d", b"e"]


def test_processes_are_listed_by_queue_worker_and_task(server: Server) -> None:
    start(server, "v", queues=("q",))
    start(server, "w", queues=("q", "p"))
    enqueue(server, "a", "b")
    enqueue(server, "a", queue="p")
    [one] = dequeue(server, "v")
    server.advance(250)
    [two] = dequeue(server, "w")
    [three] = dequeue(server, "w", queue="p")
    server.add("q", "c")
    server.get()
    rows = server("WQ.PROCS")
    assert rows[:3] == [
        (one, b"q", b"v", b"a", 250, 1),
        (two, b"q", b"w", b"b", 0, 1),
        (rows[2][0], b"q", b"", b"c", 0, 1),
    ]
    assert [row[0] for row in server("WQ.PROCS", "WORKER", "w")] == [two, three]
    assert [row[0] for row in server("WQ.PROCS", "TASK", "a")] == [one, three]
    assert [row[0] for row in server("WQ.PROCS", "QUEUE", "q", "WORKER", "w")] == [two]
    assert server("WQ.PROCS", "WORKER", "nobody") == server("WQ.PROCS", "QUEUE", "nowhere") == []


# Events.


def test_work_is_told_once_for_all_tasks_that_came_in_one_turn(server: Server, heard: list[tuple[Any, ...]]) -> None:
    server.node.begin()
    for body in (b"a", b"b"):
        for queue in (b"q", b"p"):
            line = [b"WQ.ENQUEUE", queue, b"TASKS", body, body]
            server.node.command("client", table.parse(table.find(line), line))
    server.settle()
    assert heard == [(b"q", b"work", b"4", None), (b"p", b"work", b"4", None)]


def test_jobs_of_other_families_are_work_too(server: Server, heard: list[tuple[Any, ...]]) -> None:
    server.add("q", "a")
    assert heard == [(b"q", b"work", b"1", None)]


def test_what_comes_back_is_told_as_work_and_as_returned(server: Server, heard: list[tuple[Any, ...]]) -> None:
    start(server)
    enqueue(server, "a", "b")
    dequeue(server, count=2)
    heard.clear()
    server("WORKER", "STOP", client="w")
    assert kinds(heard) == [(b"work", b"2"), (b"returned", b"2")]


def test_a_death_is_told_on_every_queue_of_the_worker(server: Server, heard: list[tuple[Any, ...]]) -> None:
    start(server, queues=("q", "p"))
    enqueue(server, "a")
    dequeue(server)
    heard.clear()
    server.advance(3_000)
    dead = [(queue, json.loads(content)) for queue, kind, content, _ in heard if kind == b"dead"]
    assert dead == [(name, {"workerId": "w", "returned": 1}) for name in (b"q", b"p")]


def test_done_is_told_with_worker_task_and_result(server: Server, heard: list[tuple[Any, ...]]) -> None:
    start(server)
    enqueue(server, b"\xff")
    [process] = dequeue(server)
    heard.clear()
    server("WQ.FINISH", process, "RESULT", "", client="w")
    [(kind, content)] = kinds(heard)
    told = json.loads(content)
    assert kind == b"done"
    assert told.pop("task").encode("utf-8", "surrogateescape") == b"\xff"
    assert told == {"workerId": "w", "process": process.decode(), "result": ""}


def test_asking_for_work_tells_the_asker_alone_and_only_if_there_is_some(
    server: Server, heard: list[tuple[Any, ...]]
) -> None:
    assert server("WQ.REQUEST", "q", client="anna") == 0
    enqueue(server, "a", "b")
    heard.clear()
    assert server("WQ.REQUEST", "q", client="anna") == 2
    assert heard == [(b"q", b"work", b"2", "anna")]


def test_nothing_is_made_of_what_nobody_listens_to(server: Server) -> None:
    enqueue(server, "a")
    server("WQ.CANCEL", "q", "a")
    assert server.node.outbox.events == []
    assert server.events == []
