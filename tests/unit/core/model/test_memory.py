"""The memory ladder: what is counted, what is refused and evicted on each rung, and how fast."""

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.memory import COUNTS_COST, JOB_COST, QUEUE_COST, Memory
from disqued.core.model.outbox import GONE_EVICTED, JOB_GONE
from disqued.core.node import EVICTED_PER_CYCLE
from tests.core_fixtures import Server, check

BODY = b"x" * 100
LIMIT = 1_000 * (JOB_COST + len(BODY)) + QUEUE_COST + COUNTS_COST + 1  #: a thousand jobs in one queue


def filled(jobs: int, *options: str | int, limit: int = LIMIT, evicts: bool = True) -> Server:
    """A server that some jobs were added to before there was a limit."""
    server = Server(evicts=evicts)
    for _ in range(jobs):
        server.run("ADDJOB", "q", BODY, 0, *options)
    server.state.memory.set_limit(limit)
    return server


@pytest.mark.parametrize(
    ("used", "level", "is_low"),
    [
        (0, 0, False),
        (750, 0, False),
        (751, 1, True),
        (950, 1, True),
        (951, 2, True),
        (1_000, 2, True),
        (1_001, 3, True),
    ],
)
def test_the_ladder_has_rungs_at_75_95_and_100_per_cent(used: int, level: int, is_low: bool) -> None:
    memory = Memory(1_000, evicts=True)
    memory.used = used
    assert (memory.level, memory.is_low) == (level, is_low)


def test_a_new_limit_takes_effect_at_once() -> None:
    memory = Memory(1_000, evicts=True)
    memory.used = 990
    memory.set_limit(10_000)
    assert (memory.limit, memory.level) == (10_000, 0)
    memory.set_limit(900)
    assert memory.level == 3


def test_the_peak_is_remembered() -> None:
    memory = Memory(1_000, evicts=True)
    for used, peak in ((500, 500), (100, 500), (700, 700)):
        memory.used = used
        assert memory.level == 0
        assert memory.peak == peak


def test_jobs_and_queues_are_counted_as_they_come_and_go() -> None:
    server = Server()
    used = server.state.memory
    job_id = server.add("queue", b"x" * 1_000)
    assert used.used == JOB_COST + 1_000 + QUEUE_COST + COUNTS_COST + 5
    server.get("queue")
    server("ACKJOB", job_id)
    assert used.used == QUEUE_COST + COUNTS_COST + 5
    server.advance(600_000)
    assert used.used == 0


def test_nothing_is_evicted_up_to_95_per_cent() -> None:
    server = filled(949, "RETRY", 0)
    server.get(count=949)
    assert server.node.make_room()
    assert len(server.state.jobs) == 949


def test_above_95_per_cent_delivered_at_most_once_jobs_are_evicted_until_it_is_enough() -> None:
    server = filled(1_100, "RETRY", 0)
    ids = [job_id for _, job_id, _ in server.get(count=300)]
    before = len(server.journal)
    assert server.node.make_room()
    server.settle()
    assert server.state.memory.level == 1
    gone = 1_100 - len(server.state.jobs)
    assert gone == 151
    assert server.journal[before:] == [
        (JOB_GONE, job_id, GONE_EVICTED) for job_id in ids[:gone]
    ]  # the oldest claim first
    check(server)


def test_what_is_queued_or_may_come_back_is_never_evicted() -> None:
    server = filled(600, "RETRY", 0)
    server.get(count=100)
    for _ in range(600):
        server.state.memory.set_limit(1 << 40)
        server.add("other", BODY, "RETRY", 10)
    server.get("other", count=600)
    server.state.memory.set_limit(LIMIT)
    assert not server.node.make_room()
    assert len(server.state.jobs) == 1_100
    assert server("QLEN", "q") == 500
    check(server)


def test_above_100_per_cent_room_must_be_made_or_nothing_is_added() -> None:
    server = filled(1_001, "RETRY", 60)
    server.get(count=1_001)
    assert not server.node.make_room()
    assert len(server.state.jobs) == 1_001


def test_between_95_and_100_per_cent_there_is_room_even_if_nothing_could_be_evicted() -> None:
    server = filled(980)
    assert server.state.memory.level == 2
    assert server.node.make_room()


def test_one_command_frees_many_jobs_as_defect_12_of_the_c_version_did_not() -> None:
    server = filled(3_000, "RETRY", 0)
    server.get(count=3_000)
    calls = 1
    while not server.node.make_room():
        calls += 1
    assert calls <= 2_000 // EVICTED_PER_CYCLE + 1


def test_a_call_evicts_a_bounded_number_of_jobs() -> None:
    server = filled(3_000, "RETRY", 0)
    server.get(count=3_000)
    server.node.make_room()
    assert len(server.state.jobs) == 3_000 - EVICTED_PER_CYCLE


def test_the_policy_noeviction_evicts_nothing() -> None:
    server = filled(1_001, "RETRY", 0, evicts=False)
    server.get(count=1_001)
    assert not server.node.make_room()
    assert len(server.state.jobs) == 1_001


# Idle queues.


@pytest.mark.parametrize(("level", "idle_ms"), [(0, 300_000), (1, 10_000), (2, 2_000), (3, 2_000)])
def test_idle_queues_go_sooner_when_memory_is_low(level: int, idle_ms: int) -> None:
    server = Server()
    server("GETJOB", "NOHANG", "FROM", "idle")
    server.advance(1)
    server.add("q", b"x" * 1_000_000)
    server.state.memory.set_limit(1_010_000 * (200, 120, 103, 99)[level] // 100)
    assert server.state.memory.level == level
    server.clock.advance(idle_ms - 2)
    server.tick()
    assert server.stat("idle") is not None
    server.clock.advance(1)
    server.tick()
    assert server.stat("idle") is None
    check(server)


def test_making_room_collects_idle_queues_a_bounded_number_at_a_time() -> None:
    server = Server()
    for number in range(1_000):
        server("GETJOB", "NOHANG", "FROM", number)
    server.clock.advance(2_000)
    server.node.begin()
    server.state.memory.set_limit(QUEUE_COST + COUNTS_COST)
    assert not server.node.make_room()
    assert len(server.state.queues) == 1_000 - EVICTED_PER_CYCLE
    for _ in range(4):
        server.node.make_room()
    assert len(server.state.queues) == 0
    assert server.node.make_room()


def test_queues_in_use_are_passed_over_when_room_is_made() -> None:
    server = Server()
    for number in range(EVICTED_PER_CYCLE):
        server("PAUSE", number, "in")
    server("GETJOB", "NOHANG", "FROM", "idle")
    server.clock.advance(2_000)
    server.node.begin()
    server.state.memory.set_limit(1_000)
    for _ in range(3):
        server.node.make_room()
    assert server.stat("idle") is None
    assert len(server.state.queues) == EVICTED_PER_CYCLE


# Queues that nobody puts anything into.


def full() -> Server:
    """A server whose memory is full of jobs that cannot be evicted."""
    server = filled(1_001)
    assert server.state.memory.level == 3
    return server


def test_when_memory_is_full_getjob_makes_no_queue_as_it_does_otherwise() -> None:
    server = full()
    for number in range(100):
        assert server("GETJOB", "NOHANG", "FROM", f"new {number}") is None
    assert len(server.state.queues) == 1
    server.state.memory.set_limit(1 << 40)
    assert server("GETJOB", "NOHANG", "FROM", "new") is None
    assert server.stat("new") is not None


def test_when_memory_is_full_nobody_waits_for_a_queue_that_is_not_there() -> None:
    server = full()
    oom = "OOM command not allowed when used memory > 'maxmemory'."
    assert server.refusal("GETJOB", "FROM", "new") == oom
    assert server("GETJOB", "FROM", "new", "q")[0][2] == BODY  # nor need it, when there is a job
    server("PAUSE", "q", "out")
    assert server.refusal("GETJOB", "FROM", "q", "new") == oom
    assert server("GETJOB", "FROM", "q") is BLOCKED
    assert server.refusal("PAUSE", "other", "in") == oom
    assert server.refusal("PAUSE", "other", "in", "node") == oom
    assert server.refusal("PAUSE", "other", "none") == oom  # other nodes are to hear of it
    assert server("PAUSE", "other", "none", "node") == server("PAUSE", "other", "state") == b"none"
    assert server("PAUSE", "q", "none") == b"none"
    assert len(server.state.queues) == 1
    check(server)


def test_room_for_a_queue_is_made_where_that_is_possible() -> None:
    server = filled(1_001, "RETRY", 0)
    server.get(count=1)
    assert server.state.memory.level == 3
    assert server("PAUSE", "new", "in") == b"in"
    assert server.stat("new") is not None
    check(server)
