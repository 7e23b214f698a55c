"""What workers have when their node starts again: a while to say that they are there."""

from random import Random

import pytest

from disqued.core.model.outbox import JOB_ADDED, UNIT_LEASED, Record
from disqued.core.node import Node
from disqued.core.recovery import Recovery, draw, snapshot, walk
from disqued.core.workers.workers import BACK_AFTER_START_MS, EPOCH_BELIEVED
from disqued.testing.clock import Clock
from disqued.wire.jobdump import decode_record, encode_event, encode_job
from tests.core_fixtures import NODE_ID, Server
from tests.unit.core.workers.test_workers_life import dequeue, enqueue, info, start, tasks


def written(server: Server, records: list[Record], *, with_queues: bool = False) -> list[bytes]:
    """Records as they stand in a journal."""
    wall = server.clock.wall()
    offset = wall - server.clock.now()
    return [
        encode_event(record, wall)
        if record[0] != JOB_ADDED
        else encode_job(record[1], offset, record[1].state)
        if with_queues
        else encode_job(record[1], offset)
        for record in records
    ]


def started_again(server: Server, journal: list[bytes], *, restores_queues: bool = False, down_ms: int = 100) -> Server:
    """The node after a start from this journal."""
    again = Server(clock=Clock(now=1_000, wall=server.clock.wall() + down_ms))
    again.node = Node(NODE_ID, again.clock, Random(99), maxmemory=1 << 40)
    again.state = again.node.state
    recovery = Recovery(again.state, restores_queues=restores_queues)
    for data in journal:
        recovery.apply(decode_record(data))
    again.state.journaling = True
    again.node.begin()
    again.node.workers.recover(recovery.held)
    again.tick()
    return again


def crashed(server: Server) -> Server:
    return started_again(server, written(server, server.journal))


@pytest.fixture
def server() -> Server:
    made = Server()
    start(made)
    enqueue(made, "a", "b", "c")
    return made


def test_what_a_worker_takes_is_written_down_with_its_id(server: Server) -> None:
    [process] = dequeue(server)
    job_id = process.partition(b":")[0]
    assert [record for record in server.journal if record[0] == UNIT_LEASED] == [(UNIT_LEASED, job_id, b"", 1, b"w")]


def test_what_nobody_in_particular_takes_is_not_written_down(server: Server) -> None:
    server.get()
    assert not [record for record in server.journal if record[0] == UNIT_LEASED]


def test_a_worker_that_says_so_in_time_keeps_its_tasks_after_a_crash(server: Server) -> None:
    first, second = dequeue(server, count=2)
    again = crashed(server)
    again.advance(BACK_AFTER_START_MS - 1)
    assert again("WORKER", "KEEPALIVE", "w", 1, client="w") == BACK_AFTER_START_MS
    assert info(again, "w")["processes"] == 2
    again.advance(BACK_AFTER_START_MS - 1)
    assert tasks(again) == []
    assert [again("WQ.FINISH", process, client="w") for process in (first, second)] == [1, 1]


def test_a_worker_that_does_not_loses_them_to_the_front_in_their_order(server: Server) -> None:
    dequeue(server, count=2)
    again = crashed(server)
    again.advance(BACK_AFTER_START_MS - 1)
    assert tasks(again) == []
    again.advance(1)
    assert tasks(again) == [b"a", b"b"]


def test_a_worker_may_start_again_with_its_id_and_its_own_time(server: Server) -> None:
    [process] = dequeue(server)
    again = crashed(server)
    assert again("WORKER", "START", "ID", "w", "TTL", 5_000, client="w") == [b"w", 2, 5_000, 1_666]
    again("WQ.WORK", "q", client="w")
    assert again("WQ.FINISH", process, client="w") == 1


def test_a_worker_that_had_a_higher_epoch_goes_on_with_it(server: Server) -> None:
    dequeue(server)
    again = crashed(server)
    assert again("WORKER", "KEEPALIVE", "w", 7, client="w") == BACK_AFTER_START_MS
    assert info(again, "w")["epoch"] == 7
    assert again.refusal("WORKER", "KEEPALIVE", "w", 6, client="late").startswith("STALE")
    assert again.refusal("WORKER", "KEEPALIVE", "w", 8, client="early").startswith("ERR no epoch as high")


def test_an_epoch_that_no_worker_comes_to_is_not_believed_after_a_crash(server: Server) -> None:
    dequeue(server)
    again = crashed(server)
    for epoch in (EPOCH_BELIEVED + 1, 2**63 - 1):
        assert again.refusal("WORKER", "KEEPALIVE", "w", epoch, client="w").startswith("ERR no epoch as high")
    assert again("WORKER", "KEEPALIVE", "w", EPOCH_BELIEVED, client="w") == BACK_AFTER_START_MS
    assert again("WORKER", "START", "ID", "w", client="new")[1] == EPOCH_BELIEVED + 1


def test_an_epoch_is_known_once_a_worker_has_started_again(server: Server) -> None:
    dequeue(server)
    again = crashed(server)
    again("WORKER", "START", "ID", "w", client="w")
    assert again.refusal("WORKER", "KEEPALIVE", "w", 3, client="early").startswith("ERR no epoch as high")


def test_the_attempts_of_before_are_known_after_a_crash(server: Server) -> None:
    for _ in range(2):
        [process] = dequeue(server)
        server("WQ.RETURN", process)
    [process] = dequeue(server)
    assert process.endswith(b":3")
    again = crashed(server)
    again("WORKER", "KEEPALIVE", "w", client="w")
    assert again("WQ.FINISH", process, "STRICT", client="w") == 1


@pytest.mark.parametrize("end", ["finish", "ackjob", "deljob"])
def test_what_ended_after_it_was_taken_does_not_come_back(server: Server, end: str) -> None:
    [process] = dequeue(server)
    job_id = process.partition(b":")[0]
    server({"finish": "WQ.FINISH", "ackjob": "ACKJOB", "deljob": "DELJOB"}[end], job_id)
    again = crashed(server)
    again.advance(400_000)
    assert sorted(tasks(again)) == [b"b", b"c"]


def test_a_controlled_restart_keeps_queue_and_leases(server: Server) -> None:
    [process] = dequeue(server)
    journal = written(server, list(snapshot(server.state)), with_queues=True)
    again = started_again(server, journal, restores_queues=True)
    assert tasks(again) == [b"b", b"c"]
    again("WORKER", "KEEPALIVE", "w", client="w")
    assert again("WQ.FINISH", process, client="w") == 1


def test_after_a_controlled_restart_too_what_a_dead_worker_had_goes_to_the_front(server: Server) -> None:
    dequeue(server)
    journal = written(server, list(snapshot(server.state)), with_queues=True)
    again = started_again(server, journal, restores_queues=True)
    again.advance(BACK_AFTER_START_MS)
    assert tasks(again) == [b"a", b"b", b"c"]


def test_a_journal_that_is_written_anew_says_who_has_what(server: Server) -> None:
    [process] = dequeue(server)
    records: list[Record] = []
    drawn = walk(server.state)
    while (some := draw(drawn, 2)) is not None:
        records += some
    again = started_again(server, written(server, records))
    assert list(again.node.workers.by_id) == [b"w"]
    assert again("WQ.FINISH", process) == 1


def test_what_came_back_before_a_crash_and_waits_is_not_lost(server: Server) -> None:
    dequeue(server)
    server("WORKER", "STOP", client="w")
    again = crashed(server)
    again.advance(BACK_AFTER_START_MS)
    assert tasks(again) == [b"a"]
    again.advance(400_000)
    assert sorted(tasks(again)) == [b"a", b"b", b"c"]


def test_a_flush_in_the_journal_leaves_nobody_anything(server: Server) -> None:
    dequeue(server)
    server("DEBUG", "FLUSHALL")
    assert crashed(server).node.workers.by_id == {}
