"""Workers: how they live, how they die, and what comes back with that."""

from collections.abc import Iterator
from typing import Any

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.workers.worker_leases import LEASES_AT_ONCE
from disqued.core.workers.workers import LATE_MS
from disqued.errors import CommandError
from tests.core_fixtures import Server, Word, check

Row = tuple[bytes, bytes, bytes]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    check(made)


def info(server: Server, worker: str) -> dict[str, Any]:
    values = server("WORKER", "INFO", worker)
    return {values[at].decode(): values[at + 1] for at in range(0, len(values), 2)}


def start(server: Server, name: str = "w", *more: Any, queues: tuple[str, ...] = ("q",)) -> None:
    """Start a worker on a connection of its own name, which works on queues."""
    server("WORKER", "START", "ID", name, *more, client=name)
    server("WQ.WORK", *queues, client=name)


def enqueue(server: Server, *tasks: Any, queue: str = "q") -> list[bytes]:
    return list(server("WQ.ENQUEUE", queue, "TASKS", *tasks))


def dequeue(server: Server, name: str = "w", count: int = 1, queue: str = "q") -> list[bytes]:
    """Ids of processes that a worker takes."""
    rows = server("WQ.DEQUEUE", queue, "COUNT", count, client=name)
    return [process for _, process, _ in rows or []]


def tasks(server: Server, queue: str = "q") -> list[bytes]:
    return list(server("WQ.TASKS", queue))


# Starting.


def test_a_worker_is_told_its_id_its_epoch_and_how_often_to_give_a_sign_of_life(server: Server) -> None:
    assert server("WORKER", "START", "ID", "w") == [b"w", 1, 3_000, 1_000]
    assert server("WORKER", "START", "ID", "slow", "TTL", 60_000, client="b") == [b"slow", 1, 60_000, 20_000]


def test_a_worker_without_an_id_is_given_one_of_its_own(server: Server) -> None:
    ids = {server("WORKER", "START", client=f"c{number}")[0] for number in range(10)}
    assert len(ids) == 10
    assert set(server("WORKER", "LIST")) == ids


def test_a_worker_is_described(server: Server) -> None:
    start(server, "w", "NAME", "the first", queues=("q", "p"))
    enqueue(server, "a", "b")
    dequeue(server, count=2)
    server.advance(40)
    assert info(server, "w") == {
        "id": b"w", "epoch": 1, "home": server.node.id, "ttl": 3_000, "idle-ms": 40, "bound": 0,
        "queues": [b"q", b"p"], "processes": 2, "started": 2, "done": 0, "returned": 0, "name": b"the first",
        "oldest-for": 40,
    }  # fmt: skip


def test_workers_are_listed_by_queue(server: Server) -> None:
    start(server, "a", queues=("q",))
    start(server, "b", queues=("q", "p"))
    assert server("WORKER", "LIST", "QUEUE", "p") == [b"b"]
    assert server("WORKER", "LIST", "QUEUE", "q") == [b"a", b"b"]
    assert server("WORKER", "LIST", "CLUSTER") == [b"a", b"b"]


def test_workers_are_described_by_pattern_and_number(server: Server) -> None:
    start(server, "a1", queues=("q",))
    start(server, "a2", "NAME", "The Press", queues=("q", "p"))
    start(server, "b", queues=("q",))
    described = server("WORKER", "LIST", "FULL", "MATCH", "*PRESS")
    assert [row[1] for row in described] == [b"a2"]
    assert described[0] == server("WORKER", "INFO", "a2")
    assert described[0][-2:] == [b"oldest-for", None]
    assert [row[1] for row in server("WORKER", "LIST", "FULL", "COUNT", 2)] == [b"a1", b"a2"]
    assert server("WORKER", "LIST", "QUEUE", "p", "MATCH", "a*") == [b"a2"]
    assert server("WORKER", "LIST", "MATCH", "a?", "COUNT", 1) == [b"a1"]
    for word in (("FULL",), ("MATCH", "a"), ("COUNT", 1)):
        with pytest.raises(CommandError, match="go without CLUSTER"):
            server("WORKER", "LIST", "CLUSTER", *word)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("START", "TTL", "-1"), "ERR TTL must be a number of milliseconds"),
        (("START", "ID", ""), "ERR the id of a worker has 1 to"),
        (("START", "NAME", "x" * 2_000), "ERR the id of a worker has 1 to"),
        (("KEEPALIVE",), "NOWORKER"),
        (("KEEPALIVE", "nobody"), "NOWORKER"),
        (("KEEPALIVE", "nobody", "0"), "ERR the epoch is"),
        (("STOP",), "NOWORKER"),
        (("FAIL", "nobody"), "NOWORKER"),
        (("INFO", "nobody"), "NOWORKER"),
        (("NOPE",), "ERR WORKER takes START"),
        (("START", "NOPE"), "ERR syntax error - unknown option 'NOPE'; expected ID, TTL, BIND or NAME"),
    ],
)
def test_what_makes_no_sense_is_refused(server: Server, words: tuple[str, ...], error: str) -> None:
    assert server.refusal("WORKER", *words).startswith(error)


# Permission.


def test_who_is_no_worker_neither_works_nor_takes(server: Server) -> None:
    enqueue(server, "a")
    assert server.refusal("WQ.WORK", "q").startswith("NOWORKER")
    assert server.refusal("WQ.DEQUEUE", "q").startswith("NOWORKER")
    assert server.refusal("WQ.UNWORK", "q").startswith("NOWORKER")
    assert tasks(server) == [b"a"]


def test_a_worker_takes_only_from_queues_that_it_works_on(server: Server) -> None:
    start(server)
    enqueue(server, "a", queue="other")
    assert server.refusal("WQ.DEQUEUE", "q", "other", client="w").startswith("NOTWORKING other")


# Death.


def test_a_worker_dies_exactly_when_its_time_is_over(server: Server) -> None:
    start(server)
    enqueue(server, "a")
    dequeue(server)
    server.advance(2_999)
    assert tasks(server) == []
    server.advance(1)
    assert tasks(server) == [b"a"]
    assert server("WORKER", "LIST") == []


def test_every_command_of_a_worker_is_a_sign_of_life(server: Server) -> None:
    start(server)
    enqueue(server, "a")
    dequeue(server)
    for _ in range(5):
        server.advance(2_900)
        server("QLEN", "elsewhere", client="w")
    assert server("WORKER", "LIST") == [b"w"]
    server.advance(2_999)
    assert server("WORKER", "LIST") == [b"w"]
    server.advance(1)
    assert server("WORKER", "LIST") == []


def test_commands_of_others_are_no_sign_of_life(server: Server) -> None:
    start(server)
    for _ in range(30):
        server.advance(100)
        server("QLEN", "q", client="somebody")
    assert server("WORKER", "LIST") == []


def test_who_waits_is_alive(server: Server) -> None:
    start(server)
    assert server("WQ.DEQUEUE", "q", "BLOCK", 60_000, client="w") is BLOCKED
    server.advance(50_000)
    assert server("WORKER", "LIST") == [b"w"]
    enqueue(server, "a")
    assert [task for _, _, task in server.answers["w"][0]] == [b"a"]
    server.advance(2_999)
    assert tasks(server) == []
    server.advance(1)
    assert tasks(server) == [b"a"]


@pytest.mark.parametrize("fetch", [("WQ.DEQUEUE", "q", "BLOCK", 2_900), ("QGET", "log", "g", "BLOCK", "2.9")])
def test_who_has_waited_in_vain_is_alive_for_its_time_from_then_on(server: Server, fetch: tuple[Word, ...]) -> None:
    start(server)
    assert server(*fetch, client="w") is BLOCKED
    server.advance(2_900)
    assert server.answers["w"] == [None]
    server.advance(2_999)
    assert server("WORKER", "LIST") == [b"w"]
    server.advance(1)
    assert server("WORKER", "LIST") == []


def test_a_worker_without_a_time_to_live_lives_on(server: Server) -> None:
    start(server, "w", "TTL", 0)
    enqueue(server, "a")
    dequeue(server)
    server.advance(3_600_000)
    assert server("WORKER", "LIST") == [b"w"]
    assert tasks(server) == []


def test_a_bound_worker_dies_with_its_connection(server: Server) -> None:
    start(server, "w", "BIND")
    enqueue(server, "a", "b")
    dequeue(server)
    server.gone("w")
    assert tasks(server) == [b"a", b"b"]
    assert server("WORKER", "LIST") == []


def test_a_worker_that_is_not_bound_outlives_its_connection_for_its_time(server: Server) -> None:
    start(server)
    enqueue(server, "a")
    dequeue(server)
    server.gone("w")
    server.advance(2_999)
    assert tasks(server) == []
    server.advance(1)
    assert tasks(server) == [b"a"]


def test_a_worker_may_come_back_on_another_connection(server: Server) -> None:
    start(server)
    enqueue(server, "a")
    [process] = dequeue(server)
    server.gone("w")
    server.advance(2_000)
    assert server("WORKER", "KEEPALIVE", "w", client="again") == 3_000
    server.advance(2_500)
    assert server("WQ.FINISH", process, client="again") == 1
    assert server("WQ.DEQUEUE", "q", client="again") is None


def test_a_node_that_was_stopped_for_a_while_does_not_take_its_workers_for_dead(server: Server) -> None:
    start(server)
    enqueue(server, "a")
    [process] = dequeue(server)
    # Nobody looked at the clock for ten seconds, and what the worker said meanwhile has not been read.
    server.clock.advance(10_000)
    server.tick()
    assert server("WORKER", "LIST") == [b"w"]
    assert server("WQ.FINISH", process, client="w") == 1


def test_a_worker_that_stays_silent_after_such_a_stop_dies(server: Server) -> None:
    start(server)
    enqueue(server, "a")
    dequeue(server)
    server.clock.advance(3_000 + LATE_MS)
    server.tick()
    assert tasks(server) == []
    server.advance(LATE_MS)
    assert tasks(server) == [b"a"]


def test_anybody_may_fail_a_worker(server: Server) -> None:
    start(server)
    enqueue(server, "a", "b", "c")
    dequeue(server, count=2)
    assert server("WORKER", "FAIL", "w", client="somebody") == 2
    assert tasks(server) == [b"a", b"b", b"c"]
    assert server.refusal("WQ.DEQUEUE", "q", client="w").startswith("NOWORKER")


def test_a_worker_that_stops_gives_back_what_it_has_and_nothing_else(server: Server) -> None:
    start(server, "w")
    start(server, "other")
    enqueue(server, "a", "b", "c")
    dequeue(server, "w")
    [kept] = dequeue(server, "other")
    assert server("WORKER", "STOP", client="w") == 1
    assert tasks(server) == [b"a", b"c"]
    assert server("WQ.FINISH", kept, client="other") == 1


def test_three_tasks_come_back_in_their_order_before_all_others(server: Server) -> None:
    start(server)
    enqueue(server, "a", "b", "c", "d", "e")
    dequeue(server, count=3)
    enqueue(server, "f")
    server.advance(3_000)
    assert tasks(server) == [b"a", b"b", b"c", b"d", b"e", b"f"]


def test_what_came_back_twice_keeps_its_order(server: Server) -> None:
    enqueue(server, "a", "b", "c", "d")
    for name, count in (("one", 3), ("two", 2)):
        start(server, name)
        dequeue(server, name, count)
        server("WORKER", "FAIL", name)
    assert tasks(server) == [b"a", b"b", b"c", b"d"]


def test_very_many_tasks_come_back_bit_by_bit_and_in_order(server: Server) -> None:
    count = 3 * LEASES_AT_ONCE + 7
    bodies = [b"%d" % number for number in range(count)]
    for at in range(0, count, 1_000):
        enqueue(server, *bodies[at : at + 1_000])
    start(server)
    assert len(dequeue(server, count=count)) == count
    assert server("WORKER", "STOP", client="w") is BLOCKED
    assert 0 < server("WQ.LEN", "q") < count
    server.advance(1)
    assert server.answers["w"] == [count]
    assert [body for _, _, body in server.get(count=count)] == bodies


def test_who_waits_is_woken_by_what_comes_back_one_for_each_task(server: Server) -> None:
    start(server, "w", "BIND")
    enqueue(server, "a", "b")
    dequeue(server, count=2)
    for name in ("x", "y"):
        start(server, name)
        assert server("WQ.DEQUEUE", "q", "BLOCK", 0, client=name) is BLOCKED
    server.gone("w")
    assert [[row[2] for row in server.answers[name][0]] for name in ("x", "y")] == [[b"a"], [b"b"]]


def test_who_waits_as_a_worker_that_is_failed_takes_nothing(server: Server) -> None:
    start(server)
    assert server("WQ.DEQUEUE", "q", "BLOCK", 0, client="w") is BLOCKED
    server("WORKER", "FAIL", "w")
    [error] = server.answers["w"]
    assert error.line.startswith(b"NOWORKER")
    enqueue(server, "a")
    assert tasks(server) == [b"a"]


def test_who_waits_for_a_queue_that_it_works_on_no_more_takes_nothing(server: Server) -> None:
    start(server)
    server("WORKER", "KEEPALIVE", "w", client="other")
    assert server("WQ.DEQUEUE", "q", "BLOCK", 0, client="w") is BLOCKED
    assert server("WQ.UNWORK", "q", client="other") == 0
    [error] = server.answers["w"]
    assert error.line.startswith(b"NOTWORKING q")


# Being somebody else.


def test_an_id_that_is_started_elsewhere_takes_over_what_it_had(server: Server) -> None:
    start(server)
    enqueue(server, "a")
    [process] = dequeue(server)
    assert server("WORKER", "START", "ID", "w", client="new") == [b"w", 2, 3_000, 1_000]
    assert server.refusal("WQ.DEQUEUE", "q", client="w").startswith("STALE")
    assert server.refusal("WORKER", "KEEPALIVE", client="w").startswith("STALE")
    assert server.refusal("WORKER", "KEEPALIVE", "w", 1, client="w").startswith("STALE")
    assert info(server, "w")["processes"] == 1
    assert server("WQ.FINISH", process, client="new") == 1


def test_who_is_stale_keeps_nobody_alive(server: Server) -> None:
    start(server)
    server("WORKER", "START", "ID", "w", client="new")
    for _ in range(30):
        server.advance(100)
        server("QLEN", "q", client="w")
    assert server("WORKER", "LIST") == []


def test_starting_again_on_the_same_connection_is_no_take_over(server: Server) -> None:
    start(server)
    assert server("WORKER", "START", "ID", "w", "TTL", 9_000, client="w") == [b"w", 1, 9_000, 3_000]
    assert server("WQ.DEQUEUE", "q", client="w") is None


def test_the_end_of_a_stale_connection_is_nobodys_death(server: Server) -> None:
    start(server, "w", "BIND")
    server("WORKER", "START", "ID", "w", "BIND", client="new")
    server.gone("w")
    assert server("WORKER", "LIST") == [b"w"]
    server.gone("new")
    assert server("WORKER", "LIST") == []


# What a worker has.


def test_a_task_of_a_live_worker_is_never_delivered_again_however_long_it_takes(server: Server) -> None:
    start(server)
    server("WQ.ENQUEUE", "q", "RETRY", 2, "TASKS", "a")
    [process] = dequeue(server)
    for _ in range(200):
        server.advance(1_000)
        server("WORKER", "KEEPALIVE", client="w")
    assert tasks(server) == []
    assert server("WQ.FINISH", process, client="w") == 1


def test_a_task_of_nobody_comes_again_after_its_retry_period(server: Server) -> None:
    server("WQ.ENQUEUE", "q", "RETRY", 2, "TASKS", "a")
    server.get()
    server.advance(2_000)
    assert tasks(server) == [b"a"]


def test_the_retry_period_is_that_of_the_setting(server: Server) -> None:
    server.node.tasks.retry_ms = 7_000
    [job_id] = enqueue(server, "a")
    shown = server.show(job_id)
    assert shown is not None
    assert shown["retry"] == 7


def test_working_leaves_a_task_with_its_worker(server: Server) -> None:
    start(server)
    [job_id] = enqueue(server, "a")
    dequeue(server)
    server("WORKING", job_id, client="w")
    assert info(server, "w")["processes"] == 1
    server("WORKER", "FAIL", "w")
    assert tasks(server) == [b"a"]


@pytest.mark.parametrize("word", ["ACKJOB", "FASTACK", "DELJOB", "NACK", "ENQUEUE"])
def test_what_others_do_with_a_job_takes_it_from_its_worker(server: Server, word: str) -> None:
    start(server)
    [job_id] = enqueue(server, "a")
    dequeue(server)
    server(word, job_id)
    assert info(server, "w")["processes"] == 0


def test_what_a_worker_has_is_dropped_when_its_time_is_over(server: Server) -> None:
    start(server, "w", "TTL", 0)
    server("WQ.ENQUEUE", "q", "TTL", 5, "TASKS", "a")
    dequeue(server)
    server.advance(5_000)
    assert info(server, "w")["processes"] == 0


def test_everything_that_a_worker_has_is_gone_after_a_flush_and_it_lives_on(server: Server) -> None:
    start(server)
    enqueue(server, "a")
    dequeue(server)
    server("DEBUG", "FLUSHALL")
    assert info(server, "w")["processes"] == 0
    server.advance(2_999)
    assert server("WORKER", "LIST") == [b"w"]
    server.advance(1)
    assert server("WORKER", "LIST") == []


def test_a_reply_that_its_worker_never_saw_gives_the_task_back(server: Server) -> None:
    start(server)
    assert server("WQ.DEQUEUE", "q", "BLOCK", 0, client="w") is BLOCKED
    server.vanished.add("w")
    enqueue(server, "a")
    assert tasks(server) == [b"a"]
    assert info(server, "w")["processes"] == 0


def test_processes_in_replies_that_were_not_sent_go_back(server: Server) -> None:
    start(server)
    enqueue(server, "a")
    [process] = dequeue(server)
    server.node.begin()
    server.node.gone("w", [process])
    server.settle()
    assert tasks(server) == [b"a"]


# GETJOB ... WORKER.


def test_jobs_fetched_for_a_worker_come_back_to_the_front_when_it_dies(server: Server) -> None:
    server("WORKER", "START", "ID", "w", "BIND", client="w")
    for body in ("a", "b", "c"):
        server.add("q", body)
    rows = server("GETJOB", "COUNT", 2, "WORKER", "w", "FROM", "q", client="w")
    assert [body for _, _, body in rows] == [b"a", b"b"]
    server.gone("w")
    assert tasks(server) == [b"a", b"b", b"c"]


def test_jobs_waited_for_are_the_workers_too(server: Server) -> None:
    server("WORKER", "START", "ID", "w", client="w")
    assert server("GETJOB", "WITHCOUNTERS", "WORKER", "w", "FROM", "q", client="c") is BLOCKED
    server.add("q", "a")
    [[row]] = server.answers["c"]
    assert row[2:] == (b"a", b"nacks", 0, b"additional-deliveries", 0)
    assert info(server, "w")["processes"] == 1


def test_a_job_that_is_delivered_once_is_nobodys(server: Server) -> None:
    server("WORKER", "START", "ID", "w", client="w")
    server.add("q", "a", "RETRY", 0)
    server("GETJOB", "WORKER", "w", "FROM", "q", client="w")
    assert info(server, "w")["processes"] == 0
    assert server("WORKER", "FAIL", "w") == 0
    assert tasks(server) == []


def test_nobody_fetches_for_a_worker_that_is_not_there(server: Server) -> None:
    server.add("q", "a")
    assert server.refusal("GETJOB", "WORKER", "w", "FROM", "q").startswith("NOWORKER")
    assert tasks(server) == [b"a"]
