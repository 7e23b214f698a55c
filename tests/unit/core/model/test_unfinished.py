"""Work that is done in parts: commands on very many jobs, and what a flush leaves behind."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from disqued.commands.jobs import CHANGED_PER_PART, CHECKED_PER_PART
from disqued.commands.table import BLOCKED, LONG
from disqued.core.model.outbox import UNIT_DONE
from disqued.core.model.state import FREED_AT_ONCE, FREED_LATER
from disqued.core.model.unfinished import Parts
from disqued.errors import CommandError, InternalError
from tests.core_fixtures import Server, check

MANY = 3 * CHANGED_PER_PART + 1


@pytest.fixture
def server() -> Server:
    return Server()


def added(server: Server, count: int, *options: str | int) -> list[bytes]:
    """Add jobs within one step; returns their ids."""
    server.node.begin()
    return [server.run("ADDJOB", "q", number, 0, *options) for number in range(count)]


def finish(server: Server) -> None:
    """Let the node do what it wants to do now."""
    server.advance(0)


def flush(server: Server) -> None:
    """What DEBUG FLUSHALL does."""
    server.node.begin()
    server.node.flush()
    server.settle()


# Commands on very many jobs.


def queue_length(server: Server) -> int:
    return int(server("QLEN", "q", client="other"))


def jobs_known(server: Server) -> int:
    return len(server.state.jobs)


@pytest.mark.parametrize(
    ("verb", "before", "measure", "per_job"),
    [
        ("ACKJOB", None, jobs_known, -1),
        ("FASTACK", None, jobs_known, -1),
        ("DELJOB", None, jobs_known, -1),
        ("DEQUEUE", None, queue_length, -1),
        ("ENQUEUE", "DEQUEUE", queue_length, 1),
        ("NACK", "DEQUEUE", queue_length, 1),
    ],
)
def test_a_command_on_many_jobs_does_a_bounded_part_of_them_a_tick(
    server: Server, verb: str, before: str | None, measure: Callable[[Server], int], per_job: int
) -> None:
    ids = added(server, MANY)
    if before is not None:
        server(before, *ids)
        finish(server)
        server.answers.clear()
    start = measure(server)
    assert server(verb, *ids) is BLOCKED
    assert measure(server) == start
    changed = [0]
    while not server.answers["client"]:
        server.tick()
        changed.append((measure(server) - start) * per_job)
    assert server.answers["client"] == [MANY]
    assert changed[-1] == MANY
    assert max(later - earlier for earlier, later in pairwise(changed)) <= CHANGED_PER_PART
    check(server)


def test_few_ids_are_dealt_with_at_once(server: Server) -> None:
    ids = added(server, LONG)
    assert server("ACKJOB", *ids[1:]) == LONG - 1
    assert server("ACKJOB", *ids) is BLOCKED
    finish(server)
    assert server.answers["client"] == [1]


def test_jobs_are_changed_in_the_order_in_which_they_were_named(server: Server) -> None:
    ids = added(server, MANY)
    ids = ids[::2] + ids[1::2]
    before = len(server.journal)
    server("ACKJOB", *ids)
    finish(server)
    assert server.journal[before:] == [(UNIT_DONE, job_id, b"") for job_id in ids]


def test_a_job_that_is_named_twice_counts_once(server: Server) -> None:
    ids = added(server, LONG)
    server("ACKJOB", *ids, *ids)
    finish(server)
    assert server.answers["client"] == [LONG]


def test_one_bad_id_among_many_changes_nothing(server: Server) -> None:
    ids = added(server, CHECKED_PER_PART + 5)
    server("ACKJOB", *ids, "bad")
    finish(server)
    [error] = server.answers["client"]
    assert isinstance(error, CommandError)
    assert error.line == b"BADID Invalid Job ID format. - allowed are job ids, and the option RESULT"
    assert len(server.state.jobs) == len(ids)


def test_other_clients_have_their_turn_between_the_parts(server: Server) -> None:
    ids = added(server, MANY)
    server("ACKJOB", *ids)
    server.tick()
    server.tick()
    left = jobs_known(server)
    assert 0 < left < MANY
    assert server("DELJOB", ids[-1], client="other") == 1
    assert server("ACKJOB", ids[0], client="other") == 0
    finish(server)
    assert server.answers["client"] == [MANY - 1]


def test_pieces_take_turns_so_that_a_short_one_is_soon_done(server: Server) -> None:
    ids = added(server, 10 * CHANGED_PER_PART + LONG)
    server("ACKJOB", *ids[LONG:], client="long")
    server("ACKJOB", *ids[:LONG], client="short")
    while not server.answers["short"]:
        server.tick()
    assert not server.answers["long"]
    finish(server)
    assert (server.answers["short"], server.answers["long"]) == ([LONG], [10 * CHANGED_PER_PART])


def test_what_a_client_left_behind_is_done_all_the_same_and_nobody_is_answered(server: Server) -> None:
    ids = added(server, MANY)
    server("ACKJOB", *ids, client="leaves")
    server.tick()
    server.gone("leaves")
    finish(server)
    assert jobs_known(server) == 0
    assert not server.answers["leaves"]


def test_a_flush_between_two_parts_leaves_the_rest_unknown(server: Server) -> None:
    ids = added(server, MANY, "DELAY", 5)
    server("ENQUEUE", *ids)
    server.tick()
    server.tick()
    done = queue_length(server)
    flush(server)
    finish(server)
    assert server.answers["client"] == [done]
    assert (jobs_known(server), len(server.state.queues)) == (0, 0)
    check(server)


def test_unfinished_work_does_not_wait_for_a_backlog_of_deadlines(server: Server) -> None:
    ids = added(server, LONG)
    added(server, 20_000, "TTL", 1)
    server.clock.advance(1_000)
    server("ACKJOB", *ids)
    for _ in range(4):
        server.tick()
    assert server.answers["client"] == [LONG]
    assert jobs_known(server) > 10_000


def test_when_everything_is_done_the_node_asks_for_no_more_ticks(server: Server) -> None:
    server("ACKJOB", *added(server, MANY))
    finish(server)
    ticks = server.ticks
    server.advance(1_000)
    assert server.ticks == ticks
    assert server.node.deadline() is not None  # the queue, in some minutes
    assert server.node.deadline() > server.clock.now()  # type: ignore[operator]


def test_a_bug_in_a_part_is_answered_and_goes_on_to_whoever_reports_it(server: Server) -> None:
    def parts() -> Parts:
        yield
        raise ZeroDivisionError

    server.node.in_parts("client", parts())
    server.node.in_parts("gone", parts())
    ids = added(server, MANY)
    server("ACKJOB", *ids, client="other")
    server.gone("gone")
    bugs = 0
    while not server.answers["other"]:
        try:
            server.tick()
        except ZeroDivisionError:
            server.settle()
            bugs += 1
    assert bugs == 2
    [error] = server.answers["client"]
    assert isinstance(error, InternalError)
    assert not server.answers["gone"]


# What a flush leaves behind.


def kept(server: Server) -> Any:
    """What a flush is to let go of."""
    state = server.state
    return state.jobs, state.queues, state.schedule


def test_a_flush_is_done_at_once_and_lets_go_of_what_was_there_bit_by_bit(server: Server) -> None:
    count = 3 * FREED_AT_ONCE
    added(server, count, "RETRY", 0)
    for number in range(100):
        server.add(f"other {number}")
    server.get(count=1_000)
    jobs, queues, schedule = kept(server)
    blocks = [queue.units._blocks for queue in queues.by_name.values()]

    def entries() -> int:
        queued = sum(len(block) for each in blocks for block in each)
        return sum(1 for _ in jobs) + len(queues) + queued + schedule.entries

    left = [entries()]
    flush(server)
    assert (jobs_known(server), len(server.state.queues), server.state.memory.used) == (0, 0, 0)
    while (at := server.node.deadline()) is not None and at <= server.clock.now():
        server.tick()
        left.append(entries())
        # A queue, or a bucket of the schedule, is out of sight when its turn begins.
        assert left[-2] - left[-1] <= 4 * FREED_AT_ONCE
    assert left[-1] == 0
    assert len(left) > 6


def test_the_node_can_be_used_while_a_flush_lets_go(server: Server) -> None:
    added(server, 3 * FREED_AT_ONCE)
    flush(server)
    new = server.add("q", "new", "RETRY", 1)
    server.tick()
    assert server.get() == [(b"q", new, b"new")]
    flush(server)
    server.add("q", "newer")
    finish(server)
    assert server.bodies() == [b"newer"]
    check(server)


def test_a_small_flush_leaves_nothing_to_do(server: Server) -> None:
    added(server, 100)
    flush(server)
    assert server.node.deadline() is None


def test_large_bodies_are_let_go_of_one_a_tick(server: Server) -> None:
    """The system takes a while to take back the memory of each."""
    ids = [server.add(body=bytes([number]) * (FREED_LATER + 1)) for number in range(1, 5)]
    small = server.add(body=b"small")
    server.node.begin()
    assert server.run("ACKJOB", *ids, small) == 5
    left = [len(server.state.unfinished.freed)]
    assert left == [4]
    assert server.state.memory.used < FREED_LATER
    while len(server.state.unfinished):
        server.tick()
        left.append(len(server.state.unfinished.freed))
    assert left[:5] == [4, 3, 2, 1, 0]
    last = server.add(body=bytes(FREED_LATER + 1))
    server.node.begin()
    assert server.run("ACKJOB", last) == 1
    finish(server)
    assert not server.state.unfinished.freed
