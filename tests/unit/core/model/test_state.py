"""The state of a node: stamps, the life of a queue, flushing."""

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.outbox import FLUSHED, JOB_ADDED
from disqued.core.model.shared import OPTIONS_KEPT
from tests.core_fixtures import Server, check

HOUR_MS = 3_600_000


@pytest.fixture
def server() -> Server:
    return Server()


# Stamps.


def test_stamps_are_unix_nanoseconds_and_count_up_within_a_millisecond(server: Server) -> None:
    wall = server.clock.wall()
    assert [server.state.numbers.next_ctime(server.state.wall) for _ in range(3)] == [
        wall * 1_000_000 + more for more in range(3)
    ]
    server.advance(1)
    assert server.state.numbers.next_ctime(server.state.wall) == (wall + 1) * 1_000_000


@pytest.mark.parametrize("jump_ms", [-HOUR_MS, -1, 1, HOUR_MS])
def test_stamps_go_up_whichever_way_the_wall_clock_jumps(server: Server, jump_ms: int) -> None:
    stamps = []
    for step in range(100):
        stamps.append(server.job(server.add("q", step)).ctime)
        if step == 50:
            server.clock.jump_wall(jump_ms)
        if step % 3 == 0:
            server.advance(1)
    assert stamps == sorted(set(stamps))
    assert server.bodies(count=100) == [b"%d" % step for step in range(100)]


@pytest.mark.parametrize("jump_ms", [-HOUR_MS, HOUR_MS, 400 * 24 * HOUR_MS])
def test_a_wall_clock_that_jumps_requeues_nothing_ends_nothing_and_loses_nothing(server: Server, jump_ms: int) -> None:
    retried = server.add("q", "retried", "RETRY", 10, "TTL", 100)
    server.get()
    server.add("q", "delayed", "DELAY", 20)
    server.add("ending", "ending", "TTL", 30)
    server("GETJOB", "TIMEOUT", 40_000, "FROM", "other", client="anna")
    server.clock.jump_wall(jump_ms)
    server.advance(9_999)
    assert server.bodies() == []
    server.advance(1)
    assert server.bodies() == [b"retried"]
    server("ACKJOB", retried)
    server.advance(9_999)
    assert server.bodies() == []
    server.advance(1)
    assert server.bodies() == [b"delayed"]
    server.advance(9_999)
    assert server("QLEN", "ending") == 1
    server.advance(1)
    assert server("QLEN", "ending") == 0
    server.advance(9_999)
    assert not server.answers["anna"]
    server.advance(1)
    assert server.answers["anna"] == [None]
    assert server.stat()["age"] == 40  # type: ignore[index]


def test_a_stamp_that_was_seen_is_never_given_again(server: Server) -> None:
    ctime = server.state.numbers.next_ctime(server.state.wall) + 10**12
    server.state.numbers.last_ctime = ctime
    assert server.state.numbers.next_ctime(server.state.wall) == ctime + 1


# Options.


def test_equal_wishes_share_one_object_and_the_memory_for_them_is_bounded(server: Server) -> None:
    first = server.job(server.add("q", "x", "TTL", 1_000))
    assert server.job(server.add("q", "y", "TTL", 1_000)).options is first.options
    for ttl in range(2_000, 2_000 + 2 * OPTIONS_KEPT):
        server.add("q", "x", "TTL", ttl)
    assert len(server.state.shared._options) <= OPTIONS_KEPT
    assert server.show(first.id)["ttl"] == 1_000  # type: ignore[index]
    assert server.job(server.add("q", "z", "TTL", 1_000)).options.ttl_ms == 1_000_000


# Queues.


def test_a_queue_comes_into_being_when_it_is_used_and_not_when_it_is_looked_at(server: Server) -> None:
    server("QLEN", "a")
    server("QPEEK", "b", 1)
    server("PAUSE", "c", "none")
    server("PAUSE", "d", "state")
    server.refusal("ADDJOB", "e", "x", 0, "REPLICATE", 2)
    server.add("f", "x", "DELAY", 5)
    assert server("QSCAN") == [b"0", []]
    server("GETJOB", "NOHANG", "FROM", "x")
    server("PAUSE", "y", "in")
    server.add("z")
    assert server("QSCAN") == [b"0", [b"x", b"y", b"z"]]


def test_an_idle_queue_is_forgotten_five_minutes_after_its_last_use(server: Server) -> None:
    job_id = server.add()
    server.advance(200_000)
    server.get()
    server("ACKJOB", job_id)
    server.advance(299_999)
    assert server.stat() is not None
    server.advance(1)
    assert server.stat() is None
    assert server.node.deadline() is None
    check(server)


def test_a_queue_with_jobs_consumers_or_a_pause_is_kept(server: Server) -> None:
    server.add("jobs", "x", "TTL", 10_000)
    assert server("GETJOB", "FROM", "consumers", client="anna") is BLOCKED
    server("PAUSE", "pause", "in")
    server.advance(9_000_000)
    assert server("QSCAN")[1] == [b"jobs", b"consumers", b"pause"]
    server.gone("anna")
    server("PAUSE", "pause", "none")
    server.advance(2_000_000)
    assert server("QSCAN")[1] == []


def test_a_queue_that_comes_back_begins_anew(server: Server) -> None:
    server("ACKJOB", server.add())
    server.advance(300_000)
    server.add()
    stat = server.stat()
    assert stat is not None
    assert (stat["jobs-in"], stat["consumed"], stat["age"]) == (1, 0, 0)


# Flushing.


def test_a_flush_forgets_everything_and_answers_those_who_wait(server: Server) -> None:
    server.add("q", "x")
    server.add("q", "y", "DELAY", 5, "RETRY", 0)
    server("PAUSE", "q", "out", "node")
    assert server("GETJOB", "TIMEOUT", 50, "FROM", "q", client="anna") is BLOCKED
    server.node.flush()
    server.settle()
    assert server.answers["anna"] == [None]
    assert server.journal[-1] == (FLUSHED,)
    assert (len(server.state.jobs), len(server.state.queues), server.state.memory.used) == (0, 0, 0)
    assert server.node.deadline() is None
    server.advance(100_000)
    assert server.answers["anna"] == [None]
    check(server)


def test_after_a_flush_ids_and_stamps_go_on(server: Server) -> None:
    before = server.job(server.add())
    server.node.flush()
    server.settle()
    after = server.job(server.add())
    assert after.id != before.id
    assert after.ctime > before.ctime
    assert server.bodies() == [b"body"]


def test_without_a_journal_nothing_is_written(server: Server) -> None:
    server.state.journaling = False
    server("ACKJOB", server.add())
    server.add("q", "x", "RETRY", 0, "TTL", 5)
    server.get()
    server("DELJOB", server.add())
    server.advance(5_000)
    server.node.flush()
    server.settle()
    assert server.journal == []


def test_a_record_of_a_job_is_the_job_itself(server: Server) -> None:
    job_id = server.add()
    [(kind, job)] = server.journal
    assert (kind, job.id) == (JOB_ADDED, job_id)
