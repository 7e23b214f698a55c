"""Names that a command brings into being count, and are refused when memory is full."""

import contextlib

import attrs
import pytest

from disqued.acl.user import DEFAULT, TEXT_COST, Pattern, User
from disqued.acl.users import Users
from disqued.core.model.job import Job
from disqued.core.model.memory import COUNTS_COST, JOB_COST, NAME_FREE, OVERDRAFT_PART, WORK_COST, WORKER_COST
from disqued.core.model.queues import NAME_MAX
from disqued.core.model.schedule import HELD_BYTES, Timed
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


TOO_LONG = "n" * (NAME_MAX + 1)


@pytest.mark.parametrize(
    "words",
    [
        ("ADDJOB", TOO_LONG, "body", 0),
        ("ADDJOB", TOO_LONG, "body", 0, "DELAY", 5),
        ("ADDJOB", TOO_LONG, "body", 0, "KEY", "k"),
        ("GETJOB", "FROM", "q", TOO_LONG),
        ("PAUSE", TOO_LONG, "in"),
        ("QADD", TOO_LONG, 60, "event"),
        ("QGET", TOO_LONG, "group", "BLOCK", 10),
        ("QGROUP", "START", TOO_LONG, "group", "FIRST"),
        ("QLPUSH", TOO_LONG, "id", "event"),
        ("QREGISTER", "q", TOO_LONG),
        ("QREGISTER", "GROUP", "group", TOO_LONG),
        ("RQ.POP", "BLOCK", 10, "KEYS", TOO_LONG),
        ("RQ.PUSH", TOO_LONG, "element"),
        ("WQ.ENQUEUE", TOO_LONG, "TASKS", "task"),
        ("WQ.WORK", TOO_LONG),
    ],
    ids=lambda words: " ".join(str(word)[:8] for word in words),
)
def test_the_name_of_a_new_queue_has_a_length(server: Server, words: tuple[str | int, ...]) -> None:
    server("WORKER", "START", "ID", "w")
    used = server.state.memory.used
    assert server.refusal(*words) == "ERR the name of a queue has 65000 bytes at most"
    assert (server.state.memory.used, len(server.state.queues)) == (used, 0)
    check(server)
    longest = [word[:-1] if word is TOO_LONG else word for word in words]
    server(*longest)


def test_a_user_counts_until_it_is_gone_and_is_refused_when_memory_is_full(server: Server) -> None:
    memory = server.state.memory
    users = Users(User(DEFAULT), memory)
    assert memory.used == 0
    ann = User(b"ann", queues=(Pattern(b"mail:*"),), commands=("+ping",), granted=frozenset({"PING"}))
    users.put(ann)
    assert memory.used == ann.cost
    wide = attrs.evolve(ann, channels=(b"news",))
    assert users.cost_of(wide) == TEXT_COST + len("news")
    users.put(wide)
    assert memory.used == wide.cost
    server("DEBUG", "FLUSHALL")
    assert memory.used == wide.cost
    users.replace([User(b"bob")])
    assert memory.used == User(b"bob").cost
    assert users.remove(b"bob") == User(b"bob")
    assert memory.used == 0


def test_a_long_name_of_a_queue_counts_with_each_job_that_may_be_its_last_holder(server: Server) -> None:
    job_id = server.add(LONG, "body", "RETRY", 0, "DELAY", 5)
    assert server.state.memory.used == JOB_COST + len("body") + len(LONG) - NAME_FREE + COUNTS_COST
    check(server)
    server("DELJOB", job_id)
    assert server.state.memory.used == 0


def test_what_is_kept_of_jobs_that_are_gone_is_little_beside_those_that_are_there(server: Server) -> None:
    for _ in range(200):
        server.add("small", "x")
    gone = [server.add("large", "y" * 20_000) for _ in range(200)]
    for job_id in gone:
        server("DELJOB", job_id)
    jobs = {item for item in entries(server) if isinstance(item, Job)}
    kept = sum(len(job.body) for job in jobs if job.id in gone)
    assert kept <= HELD_BYTES * len(jobs)
    assert len(jobs) >= 200


def entries(server: Server) -> list[Timed]:
    """What the schedule keeps, stale entries included."""
    schedule = server.state.schedule
    return [item for bucket in schedule._buckets.values() for item in bucket.items] + [
        item for _, _, item in schedule._front
    ]
