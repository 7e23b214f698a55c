"""Any fetch may be a worker's: what it took by RQ.POP, RQ.RECOVER, QRPOP or QGET is back at once when it dies."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.groups import SKIPPED_AT_ONCE
from disqued.core.model.outbox import UNIT_LEASED
from disqued.core.work.delivery import OVER_AT_ONCE
from disqued.core.workers.workers import BACK_AFTER_START_MS, TTL_MS
from tests.core_fixtures import Server, Word, check
from tests.lists_fixtures import Lasting
from tests.unit.core.workers.test_workers_life import info

DAY_MS = 86_400_000
NEVER = "the worker is alive as long as its connection is"

Death = Callable[[Server], None]


@pytest.fixture
def server() -> Iterator[Lasting]:
    made = Lasting()
    begin(made)
    yield made
    check(made)


def begin(server: Server, name: str = "w", ttl: int = 0) -> None:
    """Start a worker that dies with its connection, which has its name."""
    server("WORKER", "START", "ID", name, "TTL", ttl, "BIND", client=name)


def break_connection(server: Server) -> None:
    server.gone("w")


def be_declared_dead(server: Server) -> None:
    server("WORKER", "FAIL", "w")


def fall_silent(server: Server) -> None:
    begin(server, ttl=TTL_MS)
    server.advance(TTL_MS)


def stop(server: Server) -> None:
    server("WORKER", "STOP", client="w")


@pytest.fixture(params=[break_connection, be_declared_dead, fall_silent, stop])
def dies(request: pytest.FixtureRequest) -> Any:
    return request.param


def pop(server: Server, *options: Word, count: int = 1, client: str = "w") -> list[bytes]:
    rows = server("RQ.POP", "COUNT", count, *options, "WORKER", "w", "q", client=client)
    return [body for _, _, body in rows]


def waiting(server: Server) -> list[bytes]:
    return [body for _, body in server("RQ.INSPECT", "q", 0, 100)]


def pending(server: Server) -> list[tuple[bytes, int]]:
    """Bodies of what is delivered, and how often."""
    return [(row[1], row[4]) for row in server("RQ.INSPECT", "q", "PENDING", 0, 100)]


def recover(server: Server, *options: Word, count: int = 10) -> list[bytes]:
    return [body for _, body in server("RQ.RECOVER", "q", count, 0, *options)]


def event(server: Server, body: Word = "x") -> bytes:
    return bytes(server("QADD", "log", 3_600, body))


def take(server: Server, *options: Word) -> bytes | None:
    """QGET of the group g; returns the body."""
    taken = server("QGET", "log", "g", *options)
    return None if taken is None else bytes(taken[1])


def counts(server: Server) -> tuple[int, ...]:
    """Of the group g: in progress, redo, done, available."""
    [[_, [_, values]]] = server("QSTATUS", "log", "GROUPS", "g")
    figures = dict(zip(values[::2], values[1::2], strict=True))
    return tuple(figures[name] for name in (b"inprogress", b"redo", b"done", b"available"))


# RQ.POP.


def test_elements_of_a_worker_are_back_in_front_and_in_their_order_when_it_dies(server: Lasting, dies: Death) -> None:
    server("RQ.PUSH", "q", "a", "b", "c", "d")
    assert pop(server, count=3) == [b"a", b"b", b"c"]
    server.advance(1_000)
    assert waiting(server) == [b"d"]
    dies(server)
    assert waiting(server) == [b"a", b"b", b"c", b"d"]
    assert pending(server) == []


def test_a_worker_keeps_its_elements_as_long_as_it_lives(server: Lasting) -> None:
    server("RQ.PUSHX", "q", "RETRY", 60_000, "ELEMS", "a")
    server("RQ.PUSH", "q", "b")
    pop(server, count=2)
    server.advance(DAY_MS - 60_000)
    assert waiting(server) == [], NEVER


def test_an_element_that_comes_back_is_another_delivery_and_wakes_who_waits(server: Lasting) -> None:
    server("RQ.PUSH", "q", "a")
    pop(server)
    assert server("RQ.POP", "BLOCK", -1, "q", client="anna") is BLOCKED
    server.gone("w")
    [[[_, _, body]]] = server.answers["anna"]
    assert body == b"a"
    assert pending(server) == [(b"a", 2)]


def test_an_element_that_is_delivered_at_most_once_belongs_to_nobody(server: Lasting) -> None:
    server("RQ.PUSHX", "q", "RETRY", 0, "REPLICATE", 1, "ELEMS", "a")
    assert pop(server) == [b"a"]
    server.gone("w")
    assert waiting(server) == []


def test_what_a_worker_has_is_pending_and_may_be_acknowledged_by_anybody(server: Lasting) -> None:
    names = server("RQ.PUSH", "q", "a", "b")
    pop(server, count=2)
    assert pending(server) == [(b"a", 1), (b"b", 1)]
    assert server("RQ.ACK", "q", names[0]) == [names[0]]
    assert (info(server, "w")["processes"], info(server, "w")["done"]) == (1, 1)
    server.gone("w")
    assert waiting(server) == [b"b"]


def test_what_is_given_back_is_the_workers_no_more(server: Lasting) -> None:
    [job_id] = server("RQ.PUSH", "q", "a").job_ids
    pop(server)
    server("NACK", job_id)
    server.get()
    server.gone("w")
    assert waiting(server) == []
    assert pending(server) == [(b"a", 2)]


def test_working_leaves_a_worker_what_it_has(server: Lasting) -> None:
    first, _ = server("RQ.PUSH", "q", "a", "b").job_ids
    pop(server)
    server.advance(10)
    pop(server)
    server("WORKING", first)
    check(server)
    server.gone("w")
    assert waiting(server) == [b"a", b"b"]


@pytest.mark.parametrize("block", [0, 1_000, -1])
def test_a_worker_that_is_not_there_is_refused_before_anything_is_taken(server: Lasting, block: int) -> None:
    server("RQ.PUSH", "q", "a")
    server.gone("w")
    refusal = server.refusal("RQ.POP", "BLOCK", block, "WORKER", "w", "q")
    assert refusal.startswith("NOWORKER")
    assert waiting(server) == [b"a"]


def test_who_waits_gets_up_to_count_for_its_worker(server: Lasting) -> None:
    assert server("RQ.POP", "COUNT", 5, "BLOCK", -1, "WORKER", "w", "q", client="hand") is BLOCKED
    server("RQ.PUSH", "q", "a", "b")
    [rows] = server.answers["hand"]
    assert [body for _, _, body in rows] == [b"a", b"b"]
    server.gone("w")
    assert waiting(server) == [b"a", b"b"]


def test_a_worker_that_dies_while_it_waits_gets_nothing(server: Lasting) -> None:
    assert server("RQ.POP", "BLOCK", -1, "WORKER", "w", "q", client="hand") is BLOCKED
    server("WORKER", "FAIL", "w")
    [refusal] = server.answers["hand"]
    assert refusal.line.startswith(b"NOWORKER")
    server("RQ.PUSH", "q", "a")
    assert waiting(server) == [b"a"]


def test_who_would_not_wait_and_has_to_hears_an_empty_array(server: Lasting) -> None:
    server("RQ.PUSHX", "q", "TTL", 1, "ELEMS", *["over"] * (OVER_AT_ONCE + 1))
    server.clock.advance(1_000)
    assert server("RQ.POP", "WORKER", "w", "q", client="hand") is BLOCKED
    server.advance(100)
    assert [list(answer) for answer in server.answers["hand"]] == [[]]


# RQ.RECOVER.


def test_what_is_recovered_is_with_the_new_worker_and_no_more_with_the_old_one(server: Lasting) -> None:
    begin(server, "v")
    server("RQ.PUSH", "q", "a", "b")
    pop(server, count=2)
    assert recover(server, "WORKER", "v") == [b"a", b"b"]
    assert [info(server, name)["processes"] for name in "wv"] == [0, 2]
    assert info(server, "w")["returned"] == 2
    server.gone("w")
    assert waiting(server) == []
    server.gone("v")
    assert waiting(server) == [b"a", b"b"]


def test_what_somebody_recovers_for_nobody_in_particular_stays_with_him(server: Lasting) -> None:
    server("RQ.PUSH", "q", "a")
    pop(server)
    assert recover(server) == [b"a"]
    server.gone("w")
    assert waiting(server) == []
    assert pending(server) == [(b"a", 2)]


def test_what_nobody_in_particular_had_a_worker_may_recover(server: Lasting) -> None:
    server("RQ.PUSH", "q", "a", "b")
    server("RQ.POP", "COUNT", 2, "q")
    assert recover(server, "WORKER", "w") == [b"a", b"b"]
    server.gone("w")
    assert waiting(server) == [b"a", b"b"]


def test_a_recovery_for_a_worker_that_is_not_there_takes_nothing(server: Lasting) -> None:
    server("RQ.PUSH", "q", "a")
    server("RQ.POP", "q")
    assert server.refusal("RQ.RECOVER", "q", 1, 0, "WORKER", "nobody").startswith("NOWORKER")
    assert pending(server) == [(b"a", 1)]


# QRPOP.


def test_an_event_of_okq_is_the_next_one_again_when_its_worker_dies(server: Lasting, dies: Death) -> None:
    server("QLPUSH", "q", "1", "a")
    server("QLPUSH", "q", "2", "b")
    assert server("QRPOP", "q", "EX", 3_600, "WORKER", "w")[1] == b"a"
    server.advance(1_000)
    dies(server)
    assert server("QRPOP", "q")[1] == b"a"


def test_the_time_of_a_fetch_ends_also_while_its_worker_lives(server: Lasting) -> None:
    server("QLPUSH", "q", "1", "a")
    server.add("q", "b", "RETRY", 3)
    for _ in range(2):
        server("QRPOP", "q", "EX", 10, "WORKER", "w")
    server.advance(9_999)
    assert waiting(server) == []
    server.advance(1)
    assert sorted(waiting(server)) == [b"a", b"b"]
    assert info(server, "w")["processes"] == 0


def test_working_begins_the_time_of_a_fetch_anew_for_a_worker(server: Lasting) -> None:
    server("QLPUSH", "q", "1", "a")
    job_id = server("QRPOP", "q", "EX", 10, "WORKER", "w").job_id
    server.advance(8_000)
    server("WORKING", job_id)
    server.advance(9_999)
    assert waiting(server) == []
    server.advance(1)
    assert waiting(server) == [b"a"]


@pytest.mark.parametrize("fetch", [("QRPOP", "q"), ("QGET", "log", "g"), ("QGET", "log", "g", "STRICT")])
def test_what_is_done_at_once_is_no_workers(server: Lasting, fetch: tuple[str, ...]) -> None:
    server("QLPUSH", "q", "1", "a")
    event(server)
    refusal = server.refusal(*fetch, "EX", 0, "WORKER", "w")
    assert refusal == "ERR WORKER does not go with EX 0: what is done at once does not come back from anybody"
    assert waiting(server) == [b"a"]
    assert counts(server) == (0, 0, 0, 1)


def test_an_unknown_worker_takes_no_event(server: Lasting) -> None:
    server("QLPUSH", "q", "1", "a")
    event(server)
    assert server.refusal("QRPOP", "q", "WORKER", "nobody").startswith("NOWORKER")
    assert server.refusal("QGET", "log", "g", "WORKER", "nobody").startswith("NOWORKER")
    assert server.refusal("QGET", "log", "g", "BLOCK", 1, "WORKER", "nobody").startswith("NOWORKER")
    assert waiting(server) == [b"a"]
    assert counts(server) == (0, 0, 0, 1)


# QGET.


def test_events_of_a_log_are_in_redo_at_once_when_their_worker_dies(server: Lasting, dies: Death) -> None:
    for body in "abcd":
        event(server, body)
    rows = server("QGET", "log", "g", "EX", 600, "COUNT", 3, "WORKER", "w")
    assert [body for _, body in rows] == [b"a", b"b", b"c"]
    server.advance(1_000)
    assert counts(server) == (3, 0, 0, 1)
    dies(server)
    assert counts(server) == (0, 3, 0, 1)
    assert [take(server) for _ in range(5)] == [b"a", b"b", b"c", b"d", None]


def test_they_come_before_what_is_older_and_was_given_back(server: Lasting) -> None:
    first = event(server, "a")
    event(server, "b")
    take(server)
    assert take(server, "WORKER", "w") == b"b"
    server("QGROUP", "RETURN", "log", "g", first)
    server.gone("w")
    assert [take(server), take(server)] == [b"b", b"a"]


def test_other_groups_hear_nothing_of_it(server: Lasting) -> None:
    event(server, "a")
    assert server("QGET", "log", "other", "EX", 600)[1] == b"a"
    take(server, "WORKER", "w")
    server.gone("w")
    [[_, [_, values]]] = server("QSTATUS", "log", "GROUPS", "other")
    assert values[values.index(b"inprogress") + 1] == 1


def test_who_waits_for_the_group_gets_what_a_dead_worker_had(server: Lasting) -> None:
    event(server, "a")
    take(server, "WORKER", "w")
    assert server("QGET", "log", "g", "BLOCK", 60, client="anna") is BLOCKED
    assert server("QNOTIFY", "g", 60, "log", client="bob") is BLOCKED
    server.gone("w")
    assert [answer[1] for answer in server.answers["anna"]] == [b"a"]
    assert server.answers["bob"] == [b"log"]


@pytest.mark.parametrize("end", ["QACK", "deadline", "QGROUP RETURN", "DELJOB", "QGROUP FORGET", "QFLUSH"])
def test_what_has_ended_otherwise_is_the_workers_no_more(server: Lasting, end: str) -> None:
    event_id = event(server, "a")
    take(server, "EX", 10, "WORKER", "w")
    assert info(server, "w")["processes"] == 1
    match end:
        case "QACK":
            assert server("QACK", "log", "g", event_id) == 1
        case "deadline":
            server.advance(10_001)
        case "QGROUP RETURN":
            server("QGROUP", "RETURN", "log", "g", event_id)
        case "DELJOB":
            server("DELJOB", event_id)
        case "QGROUP FORGET":
            server("QGROUP", "FORGET", "log", "g")
        case "QFLUSH":
            server("QFLUSH", "log")
            server.advance(100)
    assert info(server, "w")["processes"] == 0
    before = counts(server) if end != "QFLUSH" else ()
    server.gone("w")
    assert server.node.state.counters.tasks_given_back == 0
    if before:
        assert counts(server) == before


def test_what_a_worker_did_is_counted(server: Lasting) -> None:
    for body in "abc":
        event(server, body)
    rows = server("QGET", "log", "g", "COUNT", 3, "WORKER", "w")
    server("QACK", "log", "g", rows[0][0])
    described = info(server, "w")
    assert [described[name] for name in ("started", "done", "processes")] == [3, 1, 2]
    server.gone("w")
    assert server.node.state.counters.tasks_given_back == 2


def test_a_worker_that_waits_for_a_group_and_dies_gets_nothing(server: Lasting) -> None:
    assert server("QGET", "log", "g", "BLOCK", 60, "WORKER", "w", client="hand") is BLOCKED
    server("WORKER", "FAIL", "w")
    [refusal] = server.answers["hand"]
    assert refusal.line.startswith(b"NOWORKER")
    event(server, "a")
    assert counts(server) == (0, 0, 0, 1)


def test_who_waited_for_a_group_took_it_for_its_worker(server: Lasting) -> None:
    assert server("QGET", "log", "g", "BLOCK", 60, "EX", 600, "WORKER", "w", client="hand") is BLOCKED
    event(server, "a")
    assert [answer[1] for answer in server.answers["hand"]] == [b"a"]
    server.gone("w")
    assert counts(server) == (0, 1, 0, 0)


def test_who_has_waited_for_a_group_is_alive_for_its_time_from_then_on(server: Lasting) -> None:
    begin(server, "v", TTL_MS)
    assert server("QGET", "log", "g", "BLOCK", 60, "EX", 600, "WORKER", "v", client="hand") is BLOCKED
    server.advance(TTL_MS - 1)
    event(server, "a")
    server.advance(TTL_MS - 1)
    assert counts(server) == (1, 0, 0, 0)
    server.advance(1)
    assert counts(server) == (0, 1, 0, 0)


def test_a_worker_that_dies_while_the_log_is_searched_gets_nothing(server: Lasting) -> None:
    ids = [event(server, b"%d" % number) for number in range(SKIPPED_AT_ONCE + 5)]
    for _ in ids[:-1]:
        server("QGET", "log", "g", "EX", 0)
    # The position is found anew from the facts.
    server.state.stream(b"log").groups[b"g"].position = (-(1 << 64), b"")
    assert server("QGET", "log", "g", "WORKER", "w", client="hand") is BLOCKED
    server("WORKER", "FAIL", "w")
    server.advance(1_000)
    [refusal] = server.answers["hand"]
    assert refusal.line.startswith(b"NOWORKER")
    assert counts(server)[0] == 0


def test_an_event_that_its_worker_never_saw_is_its_no_more(server: Lasting) -> None:
    server.vanished.add("hand")
    assert server("QGET", "log", "g", "BLOCK", 60, "WORKER", "w", client="hand") is BLOCKED
    event(server, "a")
    assert counts(server) == (0, 0, 0, 1)
    assert info(server, "w")["processes"] == 0
    assert take(server) == b"a"


# After a start.


@pytest.mark.parametrize("how", ["after_crash", "after_restart", "after_compaction"])
def test_what_workers_had_comes_back_soon_after_a_start(server: Lasting, how: str) -> None:
    server("RQ.PUSH", "q", "a", "b", "c")
    pop(server, count=2)
    event(server, "x")
    take(server, "EX", 600, "WORKER", "w")
    again = getattr(server, how)()
    assert waiting(again) == [b"c"]
    assert counts(again) == (1, 0, 0, 0)
    check(again)
    again.advance(BACK_AFTER_START_MS)
    assert waiting(again) == [b"a", b"b", b"c"]
    assert counts(again) == (0, 1, 0, 0)
    check(again)


@pytest.mark.parametrize("how", ["after_crash", "after_restart", "after_compaction"])
def test_a_worker_that_says_so_in_time_keeps_it(server: Lasting, how: str) -> None:
    [name] = server("RQ.PUSH", "q", "a")
    pop(server)
    event_id = event(server, "x")
    take(server, "EX", 600, "WORKER", "w")
    again = getattr(server, how)()
    again("WORKER", "START", "ID", "w", "TTL", 0, "BIND", client="w")
    again.advance(2 * BACK_AFTER_START_MS)
    assert info(again, "w")["processes"] == 2
    twice = getattr(again, how)()
    twice("WORKER", "START", "ID", "w", "TTL", 0, "BIND", client="w")
    assert twice("RQ.ACK", "q", name) == [name]
    assert twice("QACK", "log", "g", event_id) == 1
    check(twice)


@pytest.mark.parametrize("how", ["after_crash", "after_restart", "after_compaction"])
def test_what_came_back_before_the_start_is_no_workers_after_it(server: Lasting, how: str) -> None:
    server("RQ.PUSH", "q", "a")
    pop(server)
    event(server, "x")
    take(server, "EX", 600, "WORKER", "w")
    server.gone("w")
    server("RQ.POP", "q")
    take(server, "EX", 600)
    again = getattr(server, how)()
    assert not again.node.workers.by_id
    assert pending(again) == [(b"a", 2)]
    assert counts(again) == (1, 0, 0, 0)


def test_a_worker_keeps_a_job_with_terms_over_two_crashes_in_a_row(server: Lasting) -> None:
    """A start writes the lease down again, with the worker."""
    server("ADDJOB", "q", "a", 0, "RETRY", 600, "MAXTRIES", 3)
    assert server("GETJOB", "WORKER", "w", "FROM", "q", client="w")
    again = server.after_crash().after_crash()
    assert info(again, "w")["processes"] == 1
    check(again)


def test_what_was_recovered_from_a_worker_is_not_its_own_after_a_crash(server: Lasting) -> None:
    server("RQ.PUSH", "q", "a")
    pop(server)
    recover(server)
    again = server.after_crash()
    assert not again.node.workers.by_id
    assert pending(again) == [(b"a", 2)]


def test_a_time_of_a_fetch_and_its_worker_are_forgotten_by_a_crash(server: Lasting) -> None:
    server("QLPUSH", "q", "1", "a")
    server("QRPOP", "q", "WORKER", "w")
    again = server.after_crash()
    assert not again.node.workers.by_id
    assert waiting(again) == [b"a"]


def test_a_lease_of_a_log_is_written_down_once_with_its_worker(server: Lasting) -> None:
    event(server, "x")
    take(server, "EX", 600, "WORKER", "w")
    [record] = [record for record in server.journal if record[0] == UNIT_LEASED]
    assert record[4] == b"%d w" % (server.clock.wall() + 600_000)


def test_a_flush_of_the_whole_node_leaves_a_worker_nothing(server: Lasting) -> None:
    server("RQ.PUSH", "q", "a")
    event(server, "x")
    pop(server)
    take(server, "WORKER", "w")
    server.node.flush()
    server.settle()
    assert info(server, "w")["processes"] == 0
    server.gone("w")
    assert server("RQ.POP", "q") == []
