"""RQ.PUSH, RQ.POP, RQ.ACK, RQ.RECOVER, RQ.INSPECT and RQ.INFO on one node."""

from collections.abc import Iterator
from typing import Any

import pytest

from disqued.commands import parts
from disqued.commands.table import BLOCKED
from disqued.core.model.queues import PAUSE_IN
from disqued.testing.clock import WALL_MS
from tests.core_fixtures import UNKNOWN_ID, Server, check


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    check(made)


def push(server: Server, *bodies: str, key: str = "q") -> list[bytes]:
    return list(server("RQ.PUSH", key, *bodies))


def popped(server: Server, *words: str | int) -> list[bytes]:
    return [body for _, _, body in server("RQ.POP", *words)]


def pending(server: Server, key: str = "q") -> list[bytes]:
    return [row[1] for row in server("RQ.INSPECT", key, "PENDING", 0, 100)]


def waiting(server: Server, key: str = "q") -> list[bytes]:
    return [row[1] for row in server("RQ.INSPECT", key, 0, 100)]


def rows(answer: Any) -> list[list[bytes]]:
    return [list(row) for row in answer]


# Ids.


def test_ids_are_the_millisecond_and_a_sequence_from_1(server: Server) -> None:
    assert push(server, "a", "b") == [b"%d-1" % WALL_MS, b"%d-2" % WALL_MS]
    server.advance(5)
    assert push(server, "c") == [b"%d-1" % (WALL_MS + 5)]


def test_ids_go_on_from_the_last_one_when_the_clock_goes_back(server: Server) -> None:
    push(server, "a")
    server.clock.jump_wall(-60_000)
    assert push(server, "b", "c") == [b"%d-2" % WALL_MS, b"%d-3" % WALL_MS]


def test_two_lists_do_not_share_ids(server: Server) -> None:
    assert len({*push(server, "a", key="one"), *push(server, "a", key="two")}) == 2


# RQ.PUSH.


def test_bodies_are_any_bytes_and_may_be_empty(server: Server) -> None:
    server("RQ.PUSH", "q", b"\x00\xff\r\n", b"")
    assert popped(server, "COUNT", 9, "q") == [b"\x00\xff\r\n", b""]


def test_a_batch_is_seen_as_a_whole(server: Server) -> None:
    assert server("RQ.POP", "BLOCK", -1, "COUNT", 10, "q", client="anna") is BLOCKED
    push(server, "a", "b", "c")
    [answer] = server.answers["anna"]
    assert [row[2] for row in answer] == [b"a", b"b", b"c"]


def test_nothing_of_a_batch_is_added_to_a_queue_that_is_paused(server: Server) -> None:
    server.node.policies.pause_here(b"q", PAUSE_IN)
    assert server.refusal("RQ.PUSH", "q", "a", "b").startswith("PAUSED")
    assert len(server.state.jobs) == 0


def test_nothing_of_a_batch_is_added_when_not_all_of_it_fits_in_memory() -> None:
    server = Server(maxmemory=10_000)
    assert server.refusal("RQ.PUSH", "q", *["x" * 100] * 20).startswith("OOM")
    assert len(server.state.jobs) == 0
    assert len(push(server, *["x" * 100] * 5)) == 5


def test_a_push_that_needs_more_nodes_than_there_are_adds_nothing(server: Server) -> None:
    server.node.lists.replicate = 2
    assert server.refusal("RQ.PUSH", "q", "a", "b").startswith("NOREPL")
    assert len(server.state.jobs) == 0


def test_elements_live_as_long_as_the_setting_says(server: Server) -> None:
    server.node.lists.ttl_ms = 60_000
    push(server, "a", "b")
    popped(server, "q")
    server.advance(60_001)
    assert len(server.state.jobs) == 0


# RQ.PUSHX.


def test_pushx_takes_the_options_of_jobs(server: Server) -> None:
    server("RQ.PUSHX", "q", "TTL", 90, "RETRY", 1_500, "DELAY", 2, "ELEMS", "a", "b")
    assert popped(server, "q") == []
    server.advance(2_000)
    assert popped(server, "COUNT", 5, "q") == [b"a", b"b"]
    server.advance(1_500)
    assert popped(server, "COUNT", 5, "q") == [b"a", b"b"]


def test_pushx_refuses_what_would_be_longer_than_maxlen(server: Server) -> None:
    push(server, "a", "b")
    assert server.refusal("RQ.PUSHX", "q", "MAXLEN", 3, "ELEMS", "c", "d").startswith("MAXLEN")
    assert len(server("RQ.PUSHX", "q", "MAXLEN", 3, "ELEMS", "c")) == 1


def test_an_element_with_retry_0_is_delivered_once(server: Server) -> None:
    server("RQ.PUSHX", "q", "RETRY", 0, "REPLICATE", 1, "ELEMS", "a")
    assert popped(server, "q") == [b"a"]
    assert server("RQ.RECOVER", "q", 9, 0) == []
    assert "REPLICATE to 1" in server.refusal("RQ.PUSHX", "q", "RETRY", 0, "REPLICATE", 2, "ELEMS", "a")


def test_a_delay_beyond_the_ttl_is_refused(server: Server) -> None:
    assert "DELAY must be below TTL" in server.refusal("RQ.PUSHX", "q", "TTL", 5, "DELAY", 5, "ELEMS", "a")


def test_pushx_without_elems_is_a_syntax_error(server: Server) -> None:
    assert server.refusal("RQ.PUSHX", "q", "TTL", 5, "a") == (
        "ERR syntax error - unknown option 'a'; expected REPLICATE, RETRY, TTL, DELAY, MAXLEN, ASYNC or ELEMS"
    )
    assert server.refusal("RQ.PUSHX", "q", "TTL", 5) == "ERR syntax error - needed as well: ELEMS element ..."


# RQ.POP.


def test_each_list_is_emptied_before_the_next_one(server: Server) -> None:
    push(server, "a", "b", key="high")
    push(server, "c", "d", key="low")
    assert rows(server("RQ.POP", "COUNT", 3, "high", "low"))[1:] == [
        [b"high", b"%d-2" % WALL_MS, b"b"],
        [b"low", b"%d-3" % WALL_MS, b"c"],
    ]
    assert popped(server, "COUNT", 3, "high", "low") == [b"d"]


@pytest.mark.parametrize("block", [(), ("BLOCK", 0)])
def test_nothing_there_is_an_empty_array_at_once(server: Server, block: tuple[str | int, ...]) -> None:
    assert server("RQ.POP", *block, "q") == []


def test_after_the_time_out_there_is_null(server: Server) -> None:
    assert server("RQ.POP", "BLOCK", 250, "q", client="anna") is BLOCKED
    server.advance(249)
    assert server.answers == {}
    server.advance(1)
    assert server.answers == {"anna": [None]}


def test_a_negative_block_waits_for_ever(server: Server) -> None:
    assert server("RQ.POP", "BLOCK", -1, "q", client="anna") is BLOCKED
    server.advance(10_000_000)
    push(server, "a")
    assert [row[2] for row in server.answers["anna"][0]] == [b"a"]


def test_who_waited_longest_is_served_first_from_one_list_alone(server: Server) -> None:
    for client in ("anna", "bob"):
        server("RQ.POP", "COUNT", 2, "BLOCK", -1, "one", "two", client=client)
    server.node.begin()
    server.node.placement.takes_no_copy  # noqa: B018 - one step, two pushes
    server("RQ.PUSH", "one", "a", "b", "c")
    assert {client: [row[2] for row in rows] for client, [rows] in server.answers.items()} == {
        "anna": [b"a", b"b"],
        "bob": [b"c"],
    }


def test_consumers_of_every_family_stand_in_one_line(server: Server) -> None:
    server("GETJOB", "FROM", "q", client="anna")
    server("RQ.POP", "BLOCK", -1, "q", client="bob")
    push(server, "a", "b")
    assert [list(answers[0][0])[2] for answers in server.answers.values()] == [b"a", b"b"]
    assert list(server.answers) == ["anna", "bob"]


def test_count_0_takes_nothing(server: Server) -> None:
    push(server, "a")
    assert server("RQ.POP", "COUNT", 0, "q") == []
    assert server("RQ.POP", "COUNT", 0, "BLOCK", 10, "empty") == []
    assert waiting(server) == [b"a"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("COUNT", "-1", "q"), "ERR COUNT must be a whole number, 0 or more"),
        (("COUNT", "x", "q"), "ERR COUNT must be a whole number, 0 or more"),
        (("BLOCK", "soon", "q"), "ERR BLOCK must be a number of milliseconds, of 64 bits at most"),
        (("COUNT", "2"), "ERR syntax error - needed as well: [KEYS] key ..."),
        (("COUNT",), "ERR syntax error - COUNT without its value: allowed are 0 or more; more than 2000 is 2000"),
        (("BLOCK", "100", "COUNT", "2"), "ERR syntax error - needed as well: [KEYS] key ..."),
        (
            ("KEYS",),
            "ERR syntax error - KEYS without its value: allowed are any bytes, or none; 65000 at most of a new queue",
        ),
    ],
)
def test_an_option_with_a_bad_value_is_no_list(server: Server, words: tuple[str, ...], error: str) -> None:
    assert server.refusal("RQ.POP", *words) == error


def test_options_come_in_any_order(server: Server) -> None:
    push(server, "a", "b", "c")
    assert popped(server, "BLOCK", 100, "COUNT", 2, "q") == [b"a", b"b"]


def test_a_list_may_be_called_like_an_option(server: Server) -> None:
    names = ("COUNT", "BLOCK", "KEYS", "WITHCOUNTERS")
    for key in names:
        push(server, key, key=key)
    assert popped(server, "COUNT", 9, "KEYS", *names) == [name.encode() for name in names]


def test_a_number_before_the_lists_is_a_list(server: Server) -> None:
    push(server, "a", key="10")
    push(server, "b", "c", key="myLowPriorityQueue")
    assert popped(server, "COUNT", 2, "10", "myLowPriorityQueue") == [b"a", b"b"]


@pytest.mark.parametrize("worker", [(), ("WORKER", "w")])
@pytest.mark.parametrize("family", ["RQ.PUSH", "ADDJOB"])
def test_counters_come_with_elements_as_with_jobs_at_once_and_after_a_wait(
    server: Server, family: str, worker: tuple[str, ...]
) -> None:
    if worker:
        server("WORKER", "START", "ID", "w")
    add = server("RQ.PUSH", "q", "a")[0] if family == "RQ.PUSH" else server.add("q", "a", "RETRY", 1)
    words = ("RQ.POP", "WITHCOUNTERS", *worker)
    first = [[b"q", add, b"a", b"nacks", 0, b"additional-deliveries", 0]]
    assert rows(server(*words, "q")) == first
    [job] = server.state.jobs
    assert server(*words, "BLOCK", -1, "COUNT", 3, "q", client="anna") is BLOCKED
    server("NACK", job.id)
    assert rows(server.answers.pop("anna")[0]) == [[b"q", add, b"a", b"nacks", 1, b"additional-deliveries", 0]]
    server("RQ.RECOVER", "q", 1, 0)
    server("ENQUEUE", job.id)
    [counted] = rows(server(*words, "q"))
    assert counted == [b"q", add, b"a", b"nacks", 1, b"additional-deliveries", job.redeliveries]
    assert job.redeliveries > 0
    server("ENQUEUE", job.id)
    assert [list(row) for row in server("GETJOB", "WITHCOUNTERS", "FROM", "q")] == [
        [b"q", job.id, b"a", b"nacks", 1, b"additional-deliveries", job.redeliveries]
    ]


def test_what_goes_to_a_client_that_is_gone_comes_back(server: Server) -> None:
    server("RQ.POP", "BLOCK", -1, "q", client="anna")
    server.vanished.add("anna")
    push(server, "a")
    assert waiting(server) == [b"a"]
    assert pending(server) == []


def test_jobs_of_other_commands_show_their_ids(server: Server) -> None:
    job_id = server.add("q", "a", "RETRY", 10)
    assert rows(server("RQ.POP", "q")) == [[b"q", job_id, b"a"]]
    assert server("RQ.ACK", "q", job_id) == [job_id]


# RQ.ACK.


def test_who_is_first_to_acknowledge_gets_the_id_back(server: Server) -> None:
    one, two = push(server, "a", "b")
    popped(server, "COUNT", 2, "q")
    assert server("RQ.ACK", "q", two, "1-1", one, two) == [two, one]
    assert server("RQ.ACK", "q", one) == []


def test_what_waits_cannot_be_acknowledged(server: Server) -> None:
    one, two = push(server, "a", "b")
    popped(server, "q")
    assert server("RQ.ACK", "q", two, one) == [one]
    assert waiting(server) == [b"b"]


def test_what_is_delayed_cannot_be_acknowledged(server: Server) -> None:
    [one] = server("RQ.PUSHX", "q", "DELAY", 5, "ELEMS", "a")
    push(server, "b")
    assert server("RQ.ACK", "q", one) == []


def test_the_job_id_is_as_good_as_the_id(server: Server) -> None:
    push(server, "a")
    popped(server, "q")
    [job] = server.state.jobs
    assert server("RQ.ACK", "q", job.id) == [job.id]


def test_an_id_of_another_list_matches_nothing(server: Server) -> None:
    [one] = push(server, "a", key="one")
    push(server, "b", key="two")
    popped(server, "COUNT", 2, "one", "two")
    assert server("RQ.ACK", "two", one) == []
    [job] = server.state.aliases.by_name(b"one", b"r" + one)
    assert server("RQ.ACK", "two", job.id) == []
    assert server("RQ.ACK", "one", one) == [one]


def test_acks_of_a_list_that_is_missing_are_null(server: Server) -> None:
    assert server("RQ.ACK", "q", "1-1") is None


def test_malformed_ids_match_nothing(server: Server) -> None:
    # Of the original: the id before it is taken for it, and long ones overrun a buffer.
    [one] = push(server, "a")
    popped(server, "q")
    bad = (b"", b"-", b"x", one + b"0", b"0" + one, one + b"\x00", b"9" * 60_000, UNKNOWN_ID, b"\xff\x00")
    assert server("RQ.ACK", "q", *bad) == []
    assert server("RQ.ACK", "q", "x", one, "x") == [one]


# RQ.RECOVER.


def test_recovering_is_a_delivery_and_the_element_goes_to_the_end(server: Server) -> None:
    push(server, "a", "b")
    popped(server, "q")
    server.advance(100)
    popped(server, "q")
    server.advance(50)
    assert [list(row)[1] for row in server("RQ.RECOVER", "q", 5, 150)] == [b"a"]
    [first, second] = server("RQ.INSPECT", "q", "PENDING", 0, 10)
    assert first[1:] == (b"b", WALL_MS + 100, 50, 1)
    assert second[1:] == (b"a", WALL_MS + 150, 0, 2)
    assert waiting(server) == []


def test_recovering_stops_at_what_is_too_young(server: Server) -> None:
    push(server, "a", "b", "c")
    for _ in range(3):
        popped(server, "q")
        server.advance(10)
    assert [row[1] for row in server("RQ.RECOVER", "q", 9, 20)] == [b"a", b"b"]


def test_no_element_is_twice_in_one_reply(server: Server) -> None:
    # Of the original: three elements, count 7 and elapsed 0 gave seven entries.
    push(server, "a", "b", "c")
    popped(server, "COUNT", 3, "q")
    assert [row[1] for row in server("RQ.RECOVER", "q", 7, 0)] == [b"a", b"b", b"c"]
    assert [row[4] for row in server("RQ.INSPECT", "q", "PENDING", 0, 9)] == [2, 2, 2]


@pytest.mark.parametrize("count", [0, -3])
def test_recovering_none_is_an_empty_array(server: Server, count: int) -> None:
    push(server, "a")
    popped(server, "q")
    assert server("RQ.RECOVER", "q", count, 0) == []


def test_recovering_from_a_list_that_is_missing_is_null_and_from_an_empty_one_nothing(server: Server) -> None:
    assert server("RQ.RECOVER", "q", 5, 0) is None
    push(server, "a")
    assert server("RQ.RECOVER", "q", 5, 0) == []


def test_who_had_it_before_may_still_acknowledge(server: Server) -> None:
    [one] = push(server, "a")
    popped(server, "q")
    server("RQ.RECOVER", "q", 1, 0, client="other")
    assert server("RQ.ACK", "q", one, client="client") == [one]
    assert server("RQ.ACK", "q", one, client="other") == []


def test_what_every_family_fetched_can_be_recovered_but_for_what_is_delivered_once(server: Server) -> None:
    once = server.add("q", "once", "RETRY", 0)
    again = server.add("q", "again", "RETRY", 10)
    server("QLPUSH", "q", "e1", "event")
    server.get(count=2)
    server("QRPOP", "q")
    assert [row[1] for row in server("RQ.RECOVER", "q", 9, 0)] == [b"again", b"event"]
    assert {once, again} <= {job.id for job in server.state.jobs}


def test_recovering_starts_the_retry_timer_anew(server: Server) -> None:
    server.add("q", "a", "RETRY", 10)
    server.get()
    server.advance(9_000)
    assert len(server("RQ.RECOVER", "q", 1, 0)) == 1
    server.advance(9_000)
    assert server.get() == []
    server.advance(1_000)
    assert server.bodies() == [b"a"]


@pytest.mark.parametrize("words", [("x", "0"), ("1", "x"), ("1", "")])
def test_wrong_arguments_of_recover_are_answered_with_its_usage(server: Server, words: tuple[str, ...]) -> None:
    push(server, "a")
    if words == ("1", ""):
        assert server("RQ.RECOVER", "q", *words) == []
    else:
        assert server.refusal("RQ.RECOVER", "q", *words).startswith("ERR usage: RQ.RECOVER key count elapsed")


def test_the_word_pending_changes_nothing(server: Server) -> None:
    push(server, "a")
    popped(server, "q")
    assert [row[1] for row in server("RQ.RECOVER", "q", "PENDING", 5, 0)] == [b"a"]


# RQ.INSPECT and RQ.INFO.


@pytest.mark.reference
def test_what_consumers_have_is_shown_at_once_however_much_it_is(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "SORTED_AT_ONCE", 3)
    push(server, "a", "b", "c", "d", "e")
    popped(server, "COUNT", 4, "q")
    assert pending(server) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    ("start", "count", "shown"),
    [
        (0, 2, b"ab"),
        (1, 9, b"bcd"),
        (-2, 2, b"cd"),
        (-1, 5, b"d"),
        (-4, 1, b"a"),
        (-5, 9, b""),
        (4, 1, b""),
        (99, 1, b""),
    ],
)
def test_a_part_of_what_waits_or_is_delivered_is_shown(server: Server, start: int, count: int, shown: bytes) -> None:
    push(server, *"abcd")
    assert b"".join(row[1] for row in server("RQ.INSPECT", "q", start, count)) == shown
    popped(server, "COUNT", 4, "q")
    assert b"".join(row[1] for row in server("RQ.INSPECT", "q", "PENDING", start, count)) == shown


def test_a_positive_start_in_an_empty_list_shows_nothing(server: Server) -> None:
    # Of the original: the server crashes.
    push(server, "a")
    assert server("RQ.INSPECT", "q", "PENDING", 1, 1) == []
    popped(server, "q")
    assert server("RQ.INSPECT", "q", 1, 5) == []


@pytest.mark.parametrize("words", [("0", "0"), ("0", "-1"), ("0", "x"), ("x", "1"), ("PENDING", "0")])
def test_wrong_arguments_of_inspect_are_answered_with_its_usage(server: Server, words: tuple[str, ...]) -> None:
    push(server, "a")
    assert server.refusal("RQ.INSPECT", "q", *words).startswith("ERR usage: RQ.INSPECT key [PENDING] start count")


def test_a_list_that_is_missing_is_emptykey(server: Server) -> None:
    assert server.refusal("RQ.INSPECT", "q", 0, 1) == "EMPTYKEY"
    assert server.refusal("RQ.INSPECT", "q", "PENDING", 0, 1) == "EMPTYKEY"
    assert server.refusal("RQ.INFO", "q") == "EMPTYKEY"


def test_the_list_is_there_while_it_is_empty_until_it_has_been_idle(server: Server) -> None:
    [one] = push(server, "a")
    popped(server, "q")
    server("RQ.ACK", "q", one)
    assert server("RQ.INSPECT", "q", 0, 1) == []
    assert server("RQ.ACK", "q", one) == []
    server.advance(700_000)
    assert server.refusal("RQ.INSPECT", "q", 0, 1) == "EMPTYKEY"


def test_info_counts_both_sides(server: Server) -> None:
    push(server, "aa", "bbb", "c")
    popped(server, "q")
    server.advance(70)
    server("RQ.RECOVER", "q", 1, 0)
    server.advance(30)
    popped(server, "q")
    info = server("RQ.INFO", "q")
    assert dict(zip(info[::2], info[1::2], strict=True)) == {
        b"undelivered": 1,
        b"delivered": 2,
        b"memory": 6,
        b"oldest-pending-ms": 30,
        b"max-deliveries": 2,
        b"copies-elsewhere": 0,
    }


def test_a_long_list_is_counted_bit_by_bit(server: Server) -> None:
    for _ in range(12):
        push(server, *["x"] * 1_000)
    assert server("RQ.INFO", "q", client="anna") is BLOCKED
    server.tick()
    server.tick()
    server.tick()
    assert server.answers["anna"][0][:6] == [b"undelivered", 12_000, b"delivered", 0, b"memory", 12_000]


# Nothing comes back by itself.


def test_no_timer_takes_an_element_from_its_consumer(server: Server) -> None:
    push(server, "a")
    popped(server, "q")
    server.advance(20 * 86_400_000)
    assert waiting(server) == []
    assert pending(server) == [b"a"]


def test_a_nack_gives_an_element_back_and_counts(server: Server) -> None:
    push(server, "a")
    popped(server, "q")
    [job] = server.state.jobs
    assert server("NACK", job.id) == 1
    assert waiting(server) == [b"a"]
    popped(server, "q")
    assert [row[4] for row in server("RQ.INSPECT", "q", "PENDING", 0, 9)] == [2]


def test_show_names_no_requeue_of_an_element(server: Server) -> None:
    push(server, "a")
    [job] = server.state.jobs
    shown = server.show(job.id)
    assert shown is not None
    assert shown["next-requeue-within"] is None
