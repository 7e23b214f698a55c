"""Names that a command brings into being count, and are refused when memory is full."""

import contextlib

import pytest

from disqued.core.memory import OVERDRAFT_PART, WORK_COST, WORKER_COST
from disqued.errors import OutOfMemory
from tests.core_fixtures import Server, check

LONG = "n" * 60_000


@pytest.fixture
def server() -> Server:
    return Server()


def full(server: Server) -> Server:
    """Leave no room for anything."""
    server.state.memory.set_limit(server.state.memory.used - 1)
    return server


def test_a_worker_and_what_it_works_on_count_until_it_ends(server: Server) -> None:
    server("WORKER", "START", "ID", "w", "NAME", "press")
    server("WQ.WORK", LONG, "short", LONG)
    assert server.state.memory.used == WORKER_COST + len("wpress") + 2 * WORK_COST + len(LONG) + len("short")
    check(server)
    server("WQ.UNWORK", "short")
    assert server.state.memory.used == WORKER_COST + len("wpress") + WORK_COST + len(LONG)
    server("DEBUG", "FLUSHALL")
    assert server.state.memory.used == WORKER_COST + len("wpress") + WORK_COST + len(LONG)
    server("WORKER", "STOP")
    assert server.state.memory.used == 0
    check(server)


@pytest.mark.parametrize(
    "words",
    [
        ("WORKER", "START", "ID", "another"),
        ("WQ.WORK", LONG),
        ("QGET", "log", LONG),
        ("QGROUP", "START", "log", LONG, "FIRST"),
        ("QGET", LONG, "group", "BLOCK", "10"),
        ("PAUSE", LONG, "in"),
    ],
    ids=lambda words: " ".join(words[:2])[:16],
)
def test_a_name_for_which_there_is_no_room_is_refused(server: Server, words: tuple[str, ...]) -> None:
    server("WORKER", "START", "ID", "w")
    server("QADD", "log", 60, "event")
    used = full(server).state.memory.used
    assert server.refusal(*words).startswith("OOM")
    assert server.state.memory.used == used
    check(server)


def test_very_many_names_of_one_client_stay_near_the_limit(server: Server) -> None:
    server("WORKER", "START", "ID", "w")
    server("QADD", "log", 60, "event")
    limit = server.state.memory.used + 1_000_000
    server.state.memory.set_limit(limit)
    for number in range(100):
        for words in (("WQ.WORK", f"{LONG}{number}"), ("QGET", "log", f"{LONG[:900]}{number}")):
            with contextlib.suppress(OutOfMemory):
                server(*words)
        assert server.state.memory.used <= limit + limit // OVERDRAFT_PART + 1_000
    assert server.state.memory.used > limit


def test_a_name_that_is_there_already_needs_no_room(server: Server) -> None:
    server("WORKER", "START", "ID", "w")
    server("WQ.WORK", "queue")
    server("QADD", "log", 60, "event")
    server("QGET", "log", "group", "EX", 300)
    full(server)
    assert server("WQ.WORK", "queue") == 0
    assert server("QGET", "log", "group") is None
