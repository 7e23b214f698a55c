"""okq's commands on one node: QLPUSH to QINFO."""

from collections import Counter
from collections.abc import Iterator

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.job import ALIAS_MAX
from disqued.core.model.queues import PAUSE_IN, PAUSE_OUT
from disqued.core.work.consumers import BYTES_MAX
from tests.core_fixtures import Server, check


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    check(made)


def served(server: Server, queue: str = "q") -> list[bytes]:
    """Take everything, each for good."""
    found = []
    while (row := server("QRPOP", queue, "EX", 0)) is not None:
        found.append(row[0])
    return found


# Pushing and looking.


def test_what_is_pushed_at_the_left_is_served_last_and_at_the_right_next(server: Server) -> None:
    for word, event in (("QLPUSH", "1"), ("QLPUSH", "2"), ("QRPUSH", "3"), ("QRPUSH", "4"), ("QLPUSH", "5")):
        assert server(word, "q", event, "x") == b"OK"
    assert server("QLPEEK", "q") == (b"5", b"x")
    assert server("QRPEEK", "q") == (b"4", b"x")
    assert served(server) == [b"4", b"3", b"1", b"2", b"5"]


def test_looking_changes_nothing_and_nothing_is_null(server: Server) -> None:
    assert server("QLPEEK", "q") is None
    server("QLPUSH", "q", "1", "x")
    assert server("QRPEEK", "q") == server("QRPEEK", "q") == (b"1", b"x")
    assert served(server) == [b"1"]
    assert server("QRPEEK", "q") is None


def test_an_id_is_refused_while_its_event_waits_or_is_claimed(server: Server) -> None:
    server("QLPUSH", "q", "1", "x")
    assert server.refusal("QRPUSH", "q", "1", "y") == "ERR duplicate event 1"
    server("QRPOP", "q")
    assert server.refusal("QLPUSH", "q", "1", "y") == "ERR duplicate event 1"
    assert server("QLPUSH", "other", "1", "y") == b"OK"
    server("QACK", "q", "1")
    assert server("QLPUSH", "q", "1", "z") == b"OK"


def test_ids_and_contents_are_any_bytes(server: Server) -> None:
    server("QLPUSH", "q", b"\x00\xff", b"\r\n")
    server("QLPUSH", "q", b"", b"")
    assert server("QRPOP", "q") == [b"\x00\xff", b"\r\n"]
    assert server("QRPOP", "q") == [b"", b""]
    assert server("QACK", "q", b"") == 1


def test_an_id_that_is_too_long_is_refused(server: Server) -> None:
    assert server("QLPUSH", "q", "i" * (ALIAS_MAX - 1), "x") == b"OK"
    assert "65534 bytes at most" in server.refusal("QLPUSH", "q", "i" * ALIAS_MAX, "x")


def test_another_fourth_word_is_refused(server: Server) -> None:
    assert server.refusal("QLPUSH", "q", "1", "x", "LATER") == (
        "ERR syntax error - unknown option 'LATER'; expected NOBLOCK or REPLICATE"
    )


# NOBLOCK.


def test_noblock_answers_ok_and_the_event_is_there(server: Server) -> None:
    assert server("QLPUSH", "q", "1", "x", "NOBLOCK") == b"OK"
    assert served(server) == [b"1"]
    assert server.node.lists.background == 0


def test_what_fails_in_the_background_is_counted(server: Server) -> None:
    # Of okq: background pushes swallow their errors.
    server("QLPUSH", "q", "1", "x")
    assert server("QLPUSH", "q", "1", "y", "NOBLOCK") == b"OK"
    server.node.policies.pause_here(b"p", PAUSE_IN)
    assert server("QLPUSH", "p", "1", "y", "noblock") == b"OK"
    assert server.state.counters.background_failed == 2
    assert served(server) == [b"1"]


# Popping.


def test_an_event_comes_back_at_the_front_when_its_time_is_over(server: Server) -> None:
    for event in ("1", "2"):
        server("QLPUSH", "q", event, "x")
    assert server("QRPOP", "q", "EX", 5) == [b"1", b"x"]
    server("QRPUSH", "q", "3", "x")
    server.advance(4_999)
    assert server("QRPEEK", "q") == (b"3", b"x")
    server.advance(1)
    assert served(server) == [b"1", b"3", b"2"]


def test_events_whose_claims_are_over_come_back_however_many_longer_ones_are_older(server: Server) -> None:
    # Of okq: a sweep every ten seconds looks at the fifty oldest claims alone.
    for number in range(70):
        server("QLPUSH", "q", str(number), "x")
    for _ in range(69):
        server("QRPOP", "q", "EX", 1_000)
    assert server("QRPOP", "q", "EX", 1) == [b"69", b"x"]
    server.advance(1_000)
    assert server("QRPOP", "q") == [b"69", b"x"]


def test_without_ex_it_is_thirty_seconds(server: Server) -> None:
    server("QLPUSH", "q", "1", "x")
    server("QRPOP", "q")
    server.advance(29_999)
    assert server("QRPOP", "q") is None
    server.advance(1)
    assert server("QRPOP", "q") == [b"1", b"x"]


def test_ex_0_is_done_before_the_reply(server: Server) -> None:
    server("QLPUSH", "q", "1", "x")
    assert server("QRPOP", "q", "EX", 0) == [b"1", b"x"]
    assert len(server.state.jobs) == 0
    assert server("QACK", "q", "1") == 0


@pytest.mark.parametrize(
    ("ex", "error"),
    [
        ("-1", "ERR bad expires value: -1 < 0"),
        ("x", "ERR bad expires value: 'x' is not a number of seconds"),
        ("1.5.", "ERR bad expires value: '1.5.' is not a number of seconds"),
        ("9999999999", "ERR bad expires value: 9999999999 is not below 2147483648"),
    ],
)
def test_a_bad_time_is_refused_with_what_is_wrong(server: Server, ex: str, error: str) -> None:
    server("QLPUSH", "q", "1", "x")
    assert server.refusal("QRPOP", "q", "EX", ex) == error
    assert served(server) == [b"1"]


def test_working_gives_as_long_again(server: Server) -> None:
    server("QLPUSH", "q", "1", "x")
    server("QRPOP", "q", "EX", 10)
    [job] = server.state.jobs
    server.advance(8_000)
    server("WORKING", job.id)
    server.advance(9_999)
    assert server("QRPOP", "q") is None
    server.advance(1)
    assert server("QRPOP", "q") == [b"1", b"x"]


def test_a_claim_of_a_job_with_a_shorter_retry_period_lasts_as_long_as_it_says(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 5)
    assert server("QRPOP", "q", "EX", 60) == [job_id, b"x"]
    server.advance(59_999)
    assert server("QRPOP", "q") is None
    server.advance(1)
    assert server("QRPOP", "q") == [job_id, b"x"]


def test_a_queue_that_is_paused_in_gets_its_events_back_after_the_pause(server: Server) -> None:
    server("QLPUSH", "q", "1", "x")
    server("QRPOP", "q", "EX", 5)
    server.node.policies.pause_here(b"q", PAUSE_IN)
    server.advance(60_000)
    assert server("QRPOP", "q") is None
    server.node.policies.pause_here(b"q", 0)
    server.advance(1_000)
    assert server("QRPOP", "q") == [b"1", b"x"]


def test_an_event_goes_back_when_its_client_is_gone_before_it_heard_of_it(server: Server) -> None:
    server("QLPUSH", "q", "1", "x")
    row = server("QRPOP", "q")
    server.node.begin()
    server.node.gone("client", [row.job_id])
    server.settle()
    assert server("QRPOP", "q") == [b"1", b"x"]


# Acknowledging.


def test_an_ack_counts_once(server: Server) -> None:
    server("QLPUSH", "q", "1", "x")
    server("QRPOP", "q")
    assert server("QACK", "q", "1") == 1
    assert server("QACK", "q", "1") == 0
    assert server("QACK", "q", "2") == 0
    assert server("QACK", "other", "1") == 0


def test_a_late_ack_counts_while_the_event_waits_again(server: Server) -> None:
    server("QLPUSH", "q", "1", "x")
    server("QRPOP", "q", "EX", 1)
    server.advance(1_500)
    assert server("QACK", "q", "1") == 1
    assert server("QRPOP", "q") is None


def test_an_event_that_was_never_popped_can_be_acknowledged_away(server: Server) -> None:
    server("QLPUSH", "q", "1", "x")
    assert server("QACK", "q", "1") == 1
    assert served(server) == []


def test_an_ack_that_does_not_count_leaves_no_trace(server: Server) -> None:
    server("QLPUSH", "q", "1", "x")
    before = len(server.journal)
    assert server("QACK", "q", "DI" + "f" * 40 + "05a0SQ") == 0
    assert len(server.journal) == before


# Consumers.


def test_a_registration_replaces_the_one_before_and_ends_with_the_connection(server: Server) -> None:
    server("QREGISTER", "a", "b", client="anna")
    server("QREGISTER", "b", client="bob")
    consumers = server.node.consumers
    assert [consumers.count(name) for name in (b"a", b"b", b"c")] == [1, 2, 0]
    server("QREGISTER", "c", "c", client="anna")
    assert [consumers.count(name) for name in (b"a", b"b", b"c")] == [0, 1, 1]
    server.gone("bob")
    server("QREGISTER", client="anna")
    assert (len(consumers), consumers.size, consumers.names()) == (0, 0, [])


def test_registrations_are_bounded(server: Server) -> None:
    names = [f"{number:03d}" + "n" * (BYTES_MAX // 500) for number in range(300)]
    server("QREGISTER", *names, client="anna")
    assert server.refusal("QREGISTER", *names, client="bob").startswith("OOM")
    server("QREGISTER", *names, "n", client="anna")
    server.gone("anna")
    server("QREGISTER", *names, client="bob")


def test_notify_names_a_queue_that_has_something_and_takes_nothing(server: Server) -> None:
    server("QREGISTER", "a", "b")
    server("QLPUSH", "b", "1", "x")
    assert server("QNOTIFY", 30) == b"b"
    assert server("QNOTIFY", 0) == b"b"
    assert served(server, "b") == [b"1"]
    assert server("QNOTIFY", 0) is None


def test_notify_looks_at_queues_in_random_order(server: Server) -> None:
    server("QREGISTER", "a", "b", "c")
    for queue in "abc":
        server("QLPUSH", queue, "1", "x")
    named = Counter(server("QNOTIFY", 1) for _ in range(300))
    assert set(named) == {b"a", b"b", b"c"}
    assert min(named.values()) > 50


def test_all_that_wait_are_told(server: Server) -> None:
    for number in range(10):
        server("QREGISTER", "q", client=number)
        assert server("QNOTIFY", 30, client=number) is BLOCKED
    server("QLPUSH", "q", "1", "x")
    assert dict(server.answers) == {number: [b"q"] for number in range(10)}
    assert served(server) == [b"1"]


def test_who_waits_to_take_comes_before_those_who_wait_to_hear(server: Server) -> None:
    server("QREGISTER", "q", client="anna")
    server("QNOTIFY", 30, client="anna")
    server("GETJOB", "FROM", "q", client="bob")
    server("QLPUSH", "q", "1", "x")
    assert list(server.answers) == ["bob"]
    server("QLPUSH", "q", "2", "x")
    assert server.answers["anna"] == [b"q"]


def test_without_word_there_is_null_after_the_time_out(server: Server) -> None:
    server("QREGISTER", "q", client="anna")
    server("QNOTIFY", 2, client="anna")
    server("QNOTIFY", 1, client="not registered")
    server.advance(1_999)
    assert dict(server.answers) == {"not registered": [None]}
    server.advance(1)
    assert server.answers["anna"] == [None]


@pytest.mark.parametrize("timeout", ["-1", "x", "-0.5", "99999999999"])
def test_a_bad_time_out_is_refused_with_what_is_allowed(server: Server, timeout: str) -> None:
    assert server.refusal("QNOTIFY", timeout) == "ERR timeout must be a number of seconds, 0 to 2147483647"


def test_an_event_that_comes_back_wakes_who_waits(server: Server) -> None:
    # Of okq: nobody is told of an event that the sweep has put back.
    server("QLPUSH", "q", "1", "x")
    server("QRPOP", "q", "EX", 3)
    server("QREGISTER", "q", client="anna")
    server("QNOTIFY", 30, client="anna")
    server.advance(2_999)
    assert server.answers == {}
    server.advance(1)
    assert server.answers["anna"] == [b"q"]


def test_the_end_of_a_pause_wakes_who_waits(server: Server) -> None:
    server.node.policies.pause_here(b"q", PAUSE_OUT)
    server("QLPUSH", "q", "1", "x")
    server("QREGISTER", "q", client="anna")
    assert server("QNOTIFY", 30, client="anna") is BLOCKED
    server.node.begin()
    server.node.policies.pause_here(b"q", 0)
    server.node.serve()
    server.settle()
    assert server.answers["anna"] == [b"q"]


def test_who_waits_is_not_missed_between_the_look_and_the_wait(server: Server) -> None:
    # Of bananaq: what is added between the first look and the start of the subscription wakes nobody.
    server("QREGISTER", "q", client="anna")
    for number in range(20):
        assert server("QNOTIFY", 30, client="anna") is BLOCKED
        server("QLPUSH", "q", str(number), "x")
        assert server.answers["anna"].pop() == b"q"
        assert served(server) == [b"%d" % number]


def test_who_is_gone_is_not_told_and_keeps_no_queue(server: Server) -> None:
    server("QREGISTER", "q", client="anna")
    server("QNOTIFY", 3_000, client="anna")
    server.gone("anna")
    server("QLPUSH", "q", "1", "x")
    assert server.answers == {}
    assert served(server) == [b"1"]
    server.advance(700_000)
    assert b"q" not in server.state.queues.by_name


def test_an_event_whose_life_is_over_wakes_nobody(server: Server) -> None:
    server.node.lists.ttl_ms = 5_000
    server("QLPUSH", "q", "1", "x")
    server("QREGISTER", "q", client="anna")
    server.clock.advance(5_001)
    server.node.begin()
    assert server("QNOTIFY", 1, client="anna") is BLOCKED
    server.advance(1_000)
    assert server.answers["anna"] == [None]


# QFLUSH, QSTATUS, QINFO.


def test_a_flush_drops_what_waits_and_what_is_claimed(server: Server) -> None:
    for event in ("1", "2", "3"):
        server("QLPUSH", "q", event, "x")
    server("QLPUSH", "other", "1", "x")
    server("QRPOP", "q", "EX", 1)
    server("ADDJOB", "q", "delayed", 0, "DELAY", 5)
    assert server("QFLUSH", "q") == b"OK"
    assert server("QACK", "q", "1") == 0
    server.advance(60_000)
    assert served(server) == []
    assert served(server, "other") == [b"1"]


def test_an_id_that_is_used_again_after_a_flush_is_claimed_for_its_whole_time(server: Server) -> None:
    # Of okq: the lock of before the flush stays, so that the new claim ends with it.
    server("QLPUSH", "q", "1", "x")
    server("QRPOP", "q", "EX", 2)
    server("QFLUSH", "q")
    server("QLPUSH", "q", "1", "y")
    server("QRPOP", "q", "EX", 30)
    server.advance(29_999)
    assert server("QRPOP", "q") is None


def test_who_waits_goes_on_waiting_after_a_flush(server: Server) -> None:
    server("RQ.POP", "BLOCK", -1, "q", client="anna")
    server("QFLUSH", "q")
    assert server.answers == {}
    server("QLPUSH", "q", "1", "x")
    assert len(server.answers["anna"]) == 1


def test_very_many_are_flushed_bit_by_bit(server: Server) -> None:
    for _ in range(3):
        server("RQ.PUSH", "q", *["x"] * 1_000)
    assert server("QFLUSH", "q", client="anna") is BLOCKED
    while "anna" not in server.answers:
        left = len(server.state.jobs)
        server.tick()
        assert len(server.state.jobs) < left or not left
    assert server.answers["anna"] == [b"OK"]
    assert len(server.state.jobs) == 0


def counted(server: Server, *queues: str) -> dict[bytes, dict[bytes, int]]:
    found = {}
    for name, (group, values) in server("QSTATUS", *queues):
        assert group == b"-"
        found[name] = dict(zip(values[::2], values[1::2], strict=True))
        total = found[name][b"total"]
        assert total == sum(found[name][key] for key in (b"inprogress", b"redo", b"done", b"available"))
    return found


def test_status_counts_what_waits_and_what_is_claimed(server: Server) -> None:
    for event in ("1", "2", "3"):
        server("QLPUSH", "b", event, "x")
    server("QRPOP", "b")
    server("QREGISTER", "a", "b")
    server("GETJOB", "FROM", "c", client="anna")
    status = counted(server)
    assert list(status) == [b"a", b"b", b"c"]
    assert [(row[b"total"], row[b"inprogress"], row[b"consumers"]) for row in status.values()] == [
        (0, 0, 1),
        (3, 1, 1),
        (0, 0, 1),
    ]


def test_who_is_registered_and_waits_is_one_consumer(server: Server) -> None:
    server("QREGISTER", "q", client="anna")
    server("QNOTIFY", 30, client="anna")
    assert counted(server)[b"q"][b"consumers"] == 1


def test_queues_that_are_asked_for_are_shown_in_that_order_with_nothing_in_them(server: Server) -> None:
    assert list(counted(server, "z", "a", "z2")) == [b"z", b"a", b"z2"]
    assert set(counted(server, "z")[b"z"].values()) == {0}


def test_info_lines_up_its_columns(server: Server) -> None:
    server("QLPUSH", "q", "1", "x")
    server("QREGISTER", "a longer name")
    assert server("QINFO") == [
        b"a longer name - total:0 inprogress:0 redo:0 done:0 available:0 consumers:1",
        b"q             - total:1 inprogress:0 redo:0 done:0 available:1 consumers:0",
    ]
    assert server("QINFO", "none") == [b"none - total:0 inprogress:0 redo:0 done:0 available:0 consumers:0"]


def test_more_queues_than_a_reply_shows_have_to_be_named(server: Server) -> None:
    for number in range(2_001):
        server.add(f"q{number}")
    assert "more than 2000 queues are active" in server.refusal("QSTATUS")
    assert len(server("QSTATUS", "q1")) == 1


def test_nobody_waits_to_hear_of_queues_at_a_node_that_is_leaving(server: Server) -> None:
    server("QREGISTER", "q")
    server.node.leaving.set(leaving=True)
    assert server.refusal("QNOTIFY", 1).startswith("LEAVING")
    assert server("QNOTIFY", 0) is None
