"""The node as its driver sees it: when it wants to be looked at, and how much it does then."""

import pytest

from disqued.commands import table
from disqued.commands.table import BLOCKED
from disqued.core.model.job import Job
from disqued.core.model.schedule import WIDTH_MS
from disqued.core.node import DUE_PER_TICK
from tests.core_fixtures import Server, check

RESIDENT = 50_000


@pytest.fixture
def server() -> Server:
    return Server()


# When.


def test_a_node_with_nothing_to_do_sets_no_timer_as_defect_9_of_the_c_version_did(server: Server) -> None:
    assert server.node.deadline() is None
    job_id = server.add("q", "x", "TTL", 250, "RETRY", 240)
    assert 241_000 - WIDTH_MS < server.node.deadline() <= 241_000  # type: ignore[operator]
    server("ACKJOB", job_id)
    assert 301_000 - WIDTH_MS < server.node.deadline() <= 301_000  # type: ignore[operator]
    server.advance(300_000)
    assert server.node.deadline() is None
    assert server.ticks <= 2


def test_an_idle_node_with_a_job_is_woken_for_its_deadline_alone(server: Server) -> None:
    server.add("q", "x", "TTL", 200, "RETRY", 100)
    server.get()
    server.advance(99_900)
    assert server.ticks == 0
    server.advance(100)
    assert server("QLEN", "q") == 1
    assert server.ticks <= 2


def test_a_tick_before_anything_is_due_changes_nothing(server: Server) -> None:
    server.add("q", "x", "DELAY", 10)
    at = server.node.deadline()
    for _ in range(5):
        server.tick()
    assert server.node.deadline() == at
    check(server)


def test_a_tick_that_comes_late_does_everything_that_is_due(server: Server) -> None:
    server.add("q", "delayed", "DELAY", 1)
    server.add("q", "retried", "RETRY", 2)
    server.get()
    server.add("q", "over", "TTL", 3)
    assert server("GETJOB", "TIMEOUT", 4_000, "FROM", "other", client="anna") is BLOCKED
    server.clock.advance(60_000)
    server.tick()
    assert server.answers["anna"] == [None]
    # What a consumer did not acknowledge in time it may have acknowledged meanwhile: that is read first.
    assert server.bodies() == [b"delayed"]
    server.clock.advance(1)
    server.tick()
    assert server.bodies() == [b"retried"]
    check(server)


def test_a_tick_does_a_bounded_part_and_asks_to_be_called_again_at_once(server: Server) -> None:
    for number in range(2 * DUE_PER_TICK + 1):
        server.run("ADDJOB", "q", number, 0, "DELAY", 1)
    server.clock.advance(1_000)
    for expected in (DUE_PER_TICK, 2 * DUE_PER_TICK):
        server.tick()
        assert server("QLEN", "q") == expected
        assert server.node.deadline() <= server.clock.now()  # type: ignore[operator]
    server.tick()
    bodies = server.bodies(count=DUE_PER_TICK) + server.bodies(count=DUE_PER_TICK) + server.bodies()
    assert bodies == [b"%d" % number for number in range(2 * DUE_PER_TICK + 1)]


# How much.


@pytest.fixture(scope="module")
def crowded() -> Server:
    """A node with many jobs, in all states, none of them due soon."""
    server = Server()
    server.state.journaling = False
    node = server.node
    parse, take = table.PLAIN[b"ADDJOB"].parse, table.PLAIN[b"GETJOB"].parse
    for number in range(RESIDENT):
        if number % 16 == 0:
            server.clock.advance(1)
            node.begin()
        queue = b"%d" % (number % 7)
        delay = b"5000" if number % 3 else b"0"
        node.command(
            "client", parse([b"ADDJOB", queue, b"x", b"0", b"RETRY", b"3000", b"TTL", b"7000", b"DELAY", delay])
        )
        if number % 5 == 0:
            node.command("client", take([b"GETJOB", b"NOHANG", b"FROM", queue]))
    return server


@pytest.mark.parametrize("what", ["retry", "delay", "ttl", "time-out"])
def test_with_many_resident_jobs_a_deadline_is_met_within_100_ms_without_scanning_them(
    crowded: Server, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at: list[object] = []
    due = type(crowded.node)._due
    monkeypatch.setattr(type(crowded.node), "_due", lambda node, item: (looked_at.append(item), due(node, item)))
    options = {"retry": ("RETRY", 1), "delay": ("DELAY", 1), "ttl": ("TTL", 1), "time-out": ()}[what]
    job_id = b""
    if what == "time-out":
        assert crowded("GETJOB", "TIMEOUT", 1_000, "FROM", "other", client="anna") is BLOCKED
    else:
        job_id = crowded.add("other", "x", *options)
        if what != "delay":
            assert crowded.get("other")
    ticks = crowded.ticks
    crowded.advance(1_100)
    if what == "time-out":
        assert crowded.answers.pop("anna") == [None]
    elif what == "ttl":
        assert crowded.show(job_id) is None
    else:
        assert crowded("QLEN", "other") == 1
        assert crowded("ACKJOB", job_id) == 1
    assert len([item for item in looked_at if isinstance(item, Job)]) <= 2
    assert len(looked_at) <= 3
    assert crowded.ticks - ticks <= 4


def test_with_many_resident_jobs_the_schedule_keeps_about_one_entry_for_each(crowded: Server) -> None:
    assert crowded.state.schedule.entries <= 1.1 * len(crowded.state.jobs) + 100


def test_bursts_of_deadlines_at_that_size_are_all_met_in_time(crowded: Server) -> None:
    for _ in range(3_000):
        crowded.run("ADDJOB", "burst", "x", 0, "DELAY", 1)
    crowded.advance(999)
    assert crowded("QLEN", "burst") == 0
    crowded.advance(1)
    assert crowded("QLEN", "burst") == 3_000
    assert len(crowded.bodies("burst", count=2_000) + crowded.bodies("burst", count=2_000)) == 3_000
