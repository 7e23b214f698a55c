"""Delivery: order, retries, delays, the end of a job's life, at most once, pause, and consumers that wait."""

from itertools import pairwise

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.job import ACKED, ACTIVE, FLAG_DELIVERED, QUEUED
from disqued.core.model.memory import COUNTS_COST, QUEUE_COST
from disqued.core.model.outbox import JOB_ADDED, UNIT_DONE
from disqued.core.node import DUE_PER_TICK
from disqued.core.work.blocking import SERVED_AT_ONCE
from disqued.core.work.delivery import FETCHED_BYTES, OVER_AT_ONCE, OVER_PER_PART
from disqued.core.work.requeueing import PAUSED_MS
from disqued.errors import NodeLeaving
from tests.core_fixtures import Server, Word, check

DAY_MS = 86_400_000


@pytest.fixture
def server() -> Server:
    return Server()


def state_of(server: Server, job_id: bytes) -> str | None:
    """The state as SHOW tells it; None for a job that is not known."""
    shown = server.show(job_id)
    return None if shown is None else shown["state"].decode()


def wait(server: Server, client: str, *queues: Word, timeout: int = 0, counters: bool = False) -> None:
    """Block a client in GETJOB."""
    words: list[Word] = ["WITHCOUNTERS"] * counters
    assert server("GETJOB", *words, "TIMEOUT", timeout, "FROM", *(queues or ("q",)), client=client) is BLOCKED


# Order.


def test_jobs_of_one_millisecond_are_served_in_the_order_in_which_they_were_added(server: Server) -> None:
    for number in range(2_000):
        server.run("ADDJOB", "q", number, 0)
    assert server.bodies(count=2_000) == [b"%d" % number for number in range(2_000)]


def test_a_job_that_is_queued_again_goes_before_younger_ones(server: Server) -> None:
    old = server.add("q", "old", "RETRY", 5)
    server.advance(1)
    server.add("q", "young")
    assert server.bodies(count=1) == [b"old"]
    server("NACK", old)
    assert server.bodies() == [b"old", b"young"]


def test_queues_are_asked_in_turn_one_job_each(server: Server) -> None:
    for number in range(3):
        server.add("a", f"a{number}")
        server.add("b", f"b{number}")
    assert server.bodies("a", "b", count=10) == [b"a0", b"b0", b"a1", b"b1", b"a2", b"b2"]


def test_a_queue_named_twice_is_asked_twice_in_each_round(server: Server) -> None:
    for number in range(3):
        server.add("a", f"a{number}")
        server.add("b", f"b{number}")
    assert server.bodies("a", "a", "b", count=5) == [b"a0", b"a1", b"b0", b"a2", b"b1"]


def ordered(server: Server, *words: Word, client: str = "client") -> list[bytes]:
    """GETJOB ORDERED NOHANG; the bodies."""
    rows = server("GETJOB", "NOHANG", "ORDERED", *words, client=client)
    return [row[2] for row in rows or []]


def test_with_ordered_each_queue_is_emptied_before_the_next_one(server: Server) -> None:
    for number in range(3):
        server.add("low", f"low{number}")
        server.add("high", f"high{number}")
    assert ordered(server, "COUNT", 2, "FROM", "high", "low") == [b"high0", b"high1"]
    assert ordered(server, "COUNT", 3, "FROM", "none", "high", "high", "low") == [b"high2", b"low0", b"low1"]
    server.add("high", "high3")
    assert ordered(server, "FROM", "high", "low") == [b"high3"]
    assert ordered(server, "FROM", "high", "low") == [b"low2"]
    assert ordered(server, "FROM", "high", "low") == []


@pytest.mark.parametrize("words", [(), ("WITHCOUNTERS",), ("WITHHEADERS",), ("WORKER", "w"), ("TIMEOUT", 5_000)])
def test_with_ordered_a_consumer_that_waited_gets_as_many_as_it_may_of_one_queue(
    server: Server, words: tuple[Word, ...]
) -> None:
    server("WORKER", "START", "ID", "w")
    assert server("GETJOB", "ORDERED", "COUNT", 3, *words, "FROM", "high", "low", client="anna") is BLOCKED
    for number in range(5):
        server.add("low", f"low{number}", "DELAY", 1)
    server.advance(2_000)
    (rows,) = server.answers.pop("anna")
    assert [row[2] for row in rows] == [b"low0", b"low1", b"low2"]
    assert {len(row) for row in rows} == ({7} if words and words[0] in ("WITHCOUNTERS", "WITHHEADERS") else {3})
    worker = server.node.workers.by_id[b"w"]
    assert len(worker.leases) == (3 if words[:1] == ("WORKER",) else 0)


def test_with_ordered_a_consumer_that_waits_and_goes_leaves_all_jobs(server: Server) -> None:
    server("GETJOB", "ORDERED", "COUNT", 3, "FROM", "high", "low", client="anna")
    server.vanished.add("anna")
    for number in range(2):
        server.add("low", number)
    assert ordered(server, "COUNT", 3, "FROM", "low") == [b"0", b"1"]


@pytest.mark.parametrize(
    ("words", "again"), [(("PAUSE", "high", "out"), ("PAUSE", "high", "none")), (("THROTTLE", "high", 60), ())]
)
def test_with_ordered_a_queue_that_gives_nothing_now_counts_as_empty(
    server: Server, words: tuple[Word, ...], again: tuple[Word, ...]
) -> None:
    server.add("high", "high")
    server.add("low", "low")
    server(*words)
    assert ordered(server, "COUNT", 2, "FROM", "high", "low") == [b"low"]
    assert server("GETJOB", "ORDERED", "COUNT", 2, "FROM", "high", "low", client="anna") is BLOCKED
    if again:
        server(*again)
    server.advance(60_000)
    assert [row[2] for row in server.answers["anna"][0]] == [b"high"]


def test_with_ordered_a_group_whose_turn_it_is_comes_first_within_its_queue(server: Server) -> None:
    server("QPOLICY", "high", "SET", "FAIR")
    for group in ("a", "a", "b"):
        server.add("high", group, "GROUP", group)
    server.add("low", "low")
    assert ordered(server, "COUNT", 4, "FROM", "high", "low") == [b"a", b"b", b"a", b"low"]


@pytest.mark.parametrize("nohang", [(), ("NOHANG",)])
def test_with_ordered_a_limited_queue_gives_what_its_steward_grants_before_the_next_one(
    server: Server, nohang: tuple[str, ...]
) -> None:
    server("QPOLICY", "high", "SET", "INFLIGHT", 2)
    for number in range(4):
        server.add("high", f"high{number}", "RETRY", 600)
    server.add("low", "low")
    words = ("GETJOB", *nohang, "ORDERED", "COUNT", 3, "FROM", "high", "low")
    assert server(*words, client="first") is BLOCKED
    assert server(*words, client="second") is BLOCKED
    server.advance(1_000)
    taken = {client: [row[2] for row in rows] for client, (rows,) in server.answers.items()}
    assert taken == {"first": [b"high0", b"high1"], "second": [b"low"]}


def test_a_fetch_stops_at_its_count(server: Server) -> None:
    for number in range(5):
        server.add("q", number)
    assert server.bodies(count=2) == [b"0", b"1"]
    assert server("QLEN", "q") == 3


# Retry.


def test_a_job_without_an_ack_is_queued_again_after_its_retry_period(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 5)
    server.get()
    server.advance(4_999)
    assert state_of(server, job_id) == "active"
    server.advance(1)
    assert state_of(server, job_id) == "queued"
    assert server.get("q")
    server.advance(5_000)
    assert server.bodies() == [b"x"]


def test_retry_starts_again_at_delivery_as_defect_7_of_the_c_version_did_not(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 5)
    server.advance(4_900)
    server.get()
    server.advance(4_999)
    assert state_of(server, job_id) == "active"
    assert server.show(job_id)["next-requeue-within"] == 1  # type: ignore[index]
    server.advance(1)
    assert state_of(server, job_id) == "queued"


@pytest.mark.parametrize("waited_ms", [0, 1, 999, 1_000, 1_001, 7_654, 86_000])
def test_a_consumer_has_the_whole_retry_period_however_long_the_job_was_queued(server: Server, waited_ms: int) -> None:
    job_id = server.add("q", "x", "RETRY", 1, "TTL", 100)
    server.advance(waited_ms)
    server.get()
    server.advance(999)
    assert state_of(server, job_id) == "active"
    server.advance(1)
    assert state_of(server, job_id) == "queued"


def test_a_queued_job_does_not_wake_the_node_again_and_again(server: Server) -> None:
    server.add("q", "x", "RETRY", 1, "TTL", 200)
    server.advance(190_000)
    assert server.ticks <= 2


def test_show_tells_the_timer_of_a_queued_job_as_if_it_began_again_each_period(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 10, "TTL", 15)
    for now, within, awake in (
        (0, 10_000, 10_000),
        (4_000, 6_000, 6_000),
        (10_000, 10_000, 5_000),
        (13_000, 7_000, 2_000),
    ):
        server.advance(now - (server.clock.now() - 1_000))
        shown = server.show(job_id)
        assert shown is not None
        assert (shown["next-requeue-within"], shown["next-awake-within"]) == (within, awake)


def test_a_dequeued_job_keeps_its_timer(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 10)
    server.advance(23_000)
    assert server("DEQUEUE", job_id) == 1
    server.advance(6_999)
    assert state_of(server, job_id) == "active"
    server.advance(1)
    assert state_of(server, job_id) == "queued"


def test_a_job_acked_in_time_is_never_queued_again(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 1)
    server.get()
    assert server("ACKJOB", job_id) == 1
    server.advance(DAY_MS)
    assert server.stat() is None  # the queue itself has been idle for long enough


# Delay.


def test_a_delayed_job_is_queued_when_its_delay_is_over_and_not_before(server: Server) -> None:
    job_id = server.add("q", "x", "DELAY", 3)
    assert state_of(server, job_id) == "active"
    assert server("QLEN", "q") == 0
    server.advance(2_999)
    assert server("QLEN", "q") == 0
    server.advance(1)
    assert state_of(server, job_id) == "queued"
    assert server.show(job_id)["additional-deliveries"] == 0  # type: ignore[index]


def test_delayed_jobs_come_by_their_age_not_by_their_delay(server: Server) -> None:
    server.add("q", "older", "DELAY", 2)
    server.add("q", "younger", "DELAY", 1)
    server.advance(2_000)
    assert server.bodies() == [b"older", b"younger"]


def test_retry_counts_from_the_end_of_the_delay(server: Server) -> None:
    job_id = server.add("q", "x", "DELAY", 3, "RETRY", 1)
    server.advance(3_000)
    server.get()
    server.advance(999)
    assert state_of(server, job_id) == "active"
    server.advance(1)
    assert state_of(server, job_id) == "queued"


# TTL.


def test_a_queued_job_ends_with_its_ttl(server: Server) -> None:
    job_id = server.add("q", "x", "TTL", 7)
    server.advance(6_999)
    assert server("QLEN", "q") == 1
    server.advance(1)
    assert server("QLEN", "q") == 0
    assert server.show(job_id) is None


def test_a_delayed_job_ends_with_its_ttl(server: Server) -> None:
    job_id = server.add("q", "x", "TTL", 7, "DELAY", 6)
    server("PAUSE", "q", "in")
    server.advance(7_000)
    assert server.show(job_id) is None


@pytest.mark.parametrize("retry", [0, 1, 60])
def test_a_delivered_job_ends_with_its_ttl(server: Server, retry: int) -> None:
    job_id = server.add("q", "x", "TTL", 7, "RETRY", retry)
    server.get()
    server.advance(6_999)
    assert server.show(job_id) is not None
    server.advance(1)
    assert server.show(job_id) is None
    assert server.state.memory.used == QUEUE_COST + COUNTS_COST + len(b"q")
    check(server)


def test_a_job_whose_time_is_over_is_not_handed_out_even_before_anybody_noticed(server: Server) -> None:
    server.add("q", "over", "TTL", 1)
    server.add("q", "good", "TTL", 10)
    server.clock.advance(1_000)  # and no tick
    assert server.bodies() == [b"good"]
    assert server.stat()["jobs-out"] == 1  # type: ignore[index]
    check(server)


def test_when_every_job_of_a_queue_is_over_there_is_none(server: Server) -> None:
    server.add("q", "over", "TTL", 1)
    server.clock.advance(1_000)
    assert server.get() == []
    assert len(server.state.jobs) == 0


# At most once.


def test_an_at_most_once_job_is_never_queued_a_second_time(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 0)
    assert server.bodies() == [b"x"]
    for verb in ("ENQUEUE", "NACK"):
        assert server(verb, job_id) == 0
    server.advance(DAY_MS - 1)
    assert server.bodies() == []
    assert state_of(server, job_id) == "active"


def test_a_timer_that_may_queue_nothing_ends(server: Server) -> None:
    job = server.job(server.add("q", "x", "RETRY", 0))
    server.get()
    job.requeue_at = server.state.now + 10
    server.node.queueing.reschedule(job)
    server.clock.advance(10)
    server.tick()
    assert (job.state, job.requeue_at) == (ACTIVE, 0)
    deadline = server.node.deadline()
    assert deadline is None or deadline > server.state.now


def test_an_at_most_once_job_that_was_dequeued_is_never_queued_again(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 0)
    assert server("DEQUEUE", job_id) == 1
    assert server("ENQUEUE", job_id) == 0
    server.advance(DAY_MS - 1)
    assert server.bodies() == []


def test_a_delayed_at_most_once_job_can_be_queued_early_and_then_not_again(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 0, "DELAY", 5)
    assert server("ENQUEUE", job_id) == 1
    assert server.bodies() == [b"x"]
    server.advance(10_000)
    assert server.bodies() == []


def test_at_most_once_is_journalled_as_done_before_the_consumer_hears_of_it(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 0)
    server.node.begin()
    queue = server.state.queues.by_name[b"q"]
    [unit] = server.node.delivery.fetch([queue], 1)
    assert server.node.outbox.journal == [(UNIT_DONE, job_id, b"")]
    assert unit.flags & FLAG_DELIVERED
    server.settle()
    check(server)


def test_a_delivery_with_retries_writes_nothing(server: Server) -> None:
    server.add()
    server.journal.clear()
    server.get()
    assert server.journal == []


# Counters.


def test_each_nack_counts_as_a_nack_and_each_other_requeue_as_an_additional_delivery(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 1)
    for verb in ("NACK", "ENQUEUE", "NACK"):
        server.get()
        assert server(verb, job_id) == 1
    server.get()
    server.advance(1_000)
    [(_, _, _, _, nacks, _, additional)] = server("GETJOB", "WITHCOUNTERS", "FROM", "q")
    assert (nacks, additional) == (2, 2)


def test_the_first_queueing_counts_as_nothing(server: Server) -> None:
    job_id = server.add("q", "x", "DELAY", 5)
    assert server("ENQUEUE", job_id) == 1
    assert server("GETJOB", "WITHCOUNTERS", "FROM", "q") == [
        (b"q", job_id, b"x", b"nacks", 0, b"additional-deliveries", 0)
    ]


def test_a_job_given_back_is_queued_at_once(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 60)
    server.get()
    assert server("NACK", job_id) == 1
    assert state_of(server, job_id) == "queued"
    assert server("NACK", job_id) == 0


# WORKING.


def test_working_puts_the_next_delivery_off_by_a_whole_retry_period(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 5)
    server.get()
    for _ in range(10):
        server.advance(4_000)
        assert server("WORKING", job_id) == 5
    server.advance(4_999)
    assert state_of(server, job_id) == "active"
    server.advance(1)
    assert state_of(server, job_id) == "queued"


def test_working_takes_a_queued_job_out_of_its_queue(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 5)
    assert server("WORKING", job_id) == 5
    assert server("QLEN", "q") == 0
    server.advance(5_000)
    assert server("QLEN", "q") == 1


def test_working_on_an_at_most_once_job_takes_it_out_for_good(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 0)
    assert server("WORKING", job_id) == 0
    server.advance(40_000_000)
    assert server.bodies() == []
    assert server("ENQUEUE", job_id) == 0


def test_working_leaves_the_delay_of_an_at_most_once_job_alone(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 0, "DELAY", 3)
    server.advance(1_000)
    assert server("WORKING", job_id) == 0
    server.advance(2_000)
    assert server.bodies() == [b"x"]


def test_working_is_too_late_once_half_of_the_ttl_is_over(server: Server) -> None:
    job_id = server.add("q", "x", "TTL", 10, "RETRY", 9)
    server.get()
    server.advance(5_000)
    assert server("WORKING", job_id) == 9
    server.advance(1)
    assert server.refusal("WORKING", job_id) == (
        "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone the next delivery."
    )


def test_working_on_a_job_that_is_done_but_kept_is_refused_and_changes_nothing(server: Server) -> None:
    job = server.job(server.add("q", "x", "RETRY", 7))
    server.get()
    job.state, job.requeue_at = ACKED, 0
    assert server.refusal("WORKING", job.id).startswith("NOJOB ")
    assert job.requeue_at == 0


# Pause.


def test_paused_in_refuses_new_jobs_and_hands_out_old_ones(server: Server) -> None:
    server.add("q", "old")
    server("PAUSE", "q", "in")
    assert server.refusal("ADDJOB", "q", "new", 0) == "PAUSED Queue paused in input, try later"
    assert server.bodies() == [b"old"]
    server("PAUSE", "q", "none")
    server.add("q", "new")


def test_paused_in_puts_off_retries_until_it_ends(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 5)
    server.get()
    server("PAUSE", "q", "in")
    server.advance(12_000)
    assert state_of(server, job_id) == "active"
    server("PAUSE", "q", "none")
    server.advance(2_999)
    assert state_of(server, job_id) == "active"
    server.advance(1)
    assert state_of(server, job_id) == "queued"
    assert server.show(job_id)["additional-deliveries"] == 1  # type: ignore[index]


@pytest.mark.parametrize(("retry", "span_ms", "each_ms"), [(60, 0, 60_000), (5, 0, 5_000), (60, 2_000, PAUSED_MS)])
def test_a_job_that_its_paused_queue_did_not_take_is_tried_again(
    server: Server, retry: int, span_ms: int, each_ms: int
) -> None:
    job = server.job(server.add("q", "x", "RETRY", retry))
    server.node.begin()
    server.node.delivery.drain([server.state.queues.by_name[b"q"]], 1, span_ms)
    server.settle()
    server("PAUSE", "q", "in")
    server.advance(span_ms or 1_000 * retry)
    for _ in range(3):
        assert (job.state, job.requeue_at) == (ACTIVE, server.state.now + each_ms)
        server.advance(each_ms)
    server("PAUSE", "q", "none")
    server.advance(each_ms - 1)
    assert job.state == ACTIVE
    server.advance(1)
    assert job.state == QUEUED


def test_paused_in_queues_delayed_at_most_once_jobs_all_the_same(server: Server) -> None:
    server.add("q", "x", "RETRY", 0, "DELAY", 1)
    server.add("q", "y", "RETRY", 1, "DELAY", 1)
    server("PAUSE", "q", "in")
    server.advance(5_500)
    assert server.bodies() == [b"x"]


@pytest.mark.parametrize("verb", ["ENQUEUE", "NACK"])
def test_paused_in_does_not_stop_a_job_that_is_queued_by_hand(server: Server, verb: str) -> None:
    job_id = server.add()
    server.get()
    server("PAUSE", "q", "in")
    assert server(verb, job_id) == 1
    assert server.bodies() == [b"body"]


def test_paused_out_looks_empty_and_may_block_its_consumers(server: Server) -> None:
    server("PAUSE", "q", "out")
    server.add("q", "x")
    assert server.get() == []
    wait(server, "anna")
    server.add("q", "y")
    assert not server.answers["anna"]
    server("PAUSE", "q", "none")
    assert [body for [(_, _, body)] in server.answers["anna"]] == [b"x"]


def test_other_queues_are_served_beside_one_that_is_paused_out(server: Server) -> None:
    server.add("a", "1")
    server.add("b", "2")
    server("PAUSE", "a", "out")
    assert server.bodies("a", "b") == [b"2"]


def test_changing_out_to_in_wakes_consumers_too(server: Server) -> None:
    server.add("q", "x")
    server("PAUSE", "q", "out")
    wait(server, "anna")
    assert server("PAUSE", "q", "in") == b"in"
    assert len(server.answers["anna"]) == 1


def test_lifting_the_pause_of_an_unknown_queue_creates_none(server: Server) -> None:
    server.node.queueing.set_pause(b"q", 0)
    assert len(server.state.queues) == 0


# Consumers that wait.


def test_consumers_are_served_in_the_order_in_which_they_came(server: Server) -> None:
    for client in "anna", "ben", "cleo":
        wait(server, client)
    for number in range(3):
        server.add("q", number)
    assert {client: rows[0][0][2] for client, rows in server.answers.items()} == {
        "anna": b"0",
        "ben": b"1",
        "cleo": b"2",
    }


def test_a_consumer_that_waited_is_given_one_job_however_many_it_wanted(server: Server) -> None:
    assert server("GETJOB", "COUNT", 10, "FROM", "a", "b") is BLOCKED
    server.add("a", "1")
    server.add("b", "2")
    assert [len(rows) for rows in server.answers["client"]] == [1]


def test_with_counters_is_remembered_while_waiting(server: Server) -> None:
    wait(server, "anna", counters=True)
    job_id = server.add()
    assert server.answers["anna"] == [[(b"q", job_id, b"body", b"nacks", 0, b"additional-deliveries", 0)]]


def test_a_consumer_of_several_queues_waits_in_none_of_them_afterwards(server: Server) -> None:
    wait(server, "anna", "a", "b", "a")
    assert server.stat("a")["blocked"] == server.stat("b")["blocked"] == 1  # type: ignore[index]
    server.add("b", "1")
    server.add("a", "2")
    assert server.bodies("a") == [b"2"]
    assert server.stat("a")["blocked"] == server.stat("b")["blocked"] == 0  # type: ignore[index]


def test_a_requeued_job_goes_to_a_consumer_that_waits(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 1)
    server.get()
    wait(server, "anna")
    server.advance(1_000)
    assert server.answers["anna"] == [[(b"q", job_id, b"x")]]


def test_several_jobs_that_are_due_at_once_go_to_several_consumers(server: Server) -> None:
    for number in range(3):
        server.add("q", number, "DELAY", 1)
    wait(server, "anna")
    wait(server, "ben")
    server.advance(1_000)
    assert [rows[0][0][2] for rows in server.answers.values()] == [b"0", b"1"]
    assert server.bodies() == [b"2"]


@pytest.mark.parametrize("timeout", [1, 63, 64, 99, 1_000, 86_400_000])
def test_a_consumer_is_answered_with_nothing_in_the_millisecond_of_its_time_out(server: Server, timeout: int) -> None:
    wait(server, "anna", "a", "b", timeout=timeout)
    server.advance(timeout - 1)
    assert not server.answers["anna"]
    server.advance(1)
    assert server.answers["anna"] == [None]
    server.add("a")
    assert server.answers["anna"] == [None]


def test_time_outs_of_many_clients_are_exact_as_defect_18_of_the_c_version_was_not(server: Server) -> None:
    for number in range(500):
        wait(server, f"client {number}", timeout=100)
    server.advance(99)
    assert not server.answers
    server.advance(1)
    assert list(server.answers) == [f"client {number}" for number in range(500)]


def test_a_time_out_beyond_every_clock_is_for_ever(server: Server) -> None:
    wait(server, "anna", timeout=2**63 - 1)
    server.advance(10**9)
    assert not server.answers["anna"]
    server.add()
    assert len(server.answers["anna"]) == 1


def test_a_client_that_went_away_takes_no_job(server: Server) -> None:
    wait(server, "anna", timeout=1_000)
    server.gone("anna")
    server.gone("anna")
    server.add("q", "x")
    server.advance(2_000)
    assert not server.answers["anna"]
    assert server.bodies() == [b"x"]


@pytest.mark.parametrize("retry", [0, 5])
def test_a_job_for_a_client_that_just_vanished_is_given_back_as_defect_24_of_the_c_version_did_not(
    server: Server, retry: int
) -> None:
    wait(server, "anna")
    wait(server, "ben")
    server.vanished = {"anna"}
    job_id = server.add("q", "x", "RETRY", retry)
    assert server.answers["ben"] == [[(b"q", job_id, b"x")]]
    check(server)
    stat = server.stat()
    assert stat is not None
    assert (stat["jobs-in"], stat["jobs-out"]) == (1, 1)


def test_an_at_most_once_job_that_is_given_back_is_in_the_journal_again(server: Server) -> None:
    wait(server, "anna")
    server.vanished = {"anna"}
    job_id = server.add("q", "x", "RETRY", 0)
    assert [record[0] for record in server.journal] == [JOB_ADDED, UNIT_DONE, JOB_ADDED]
    assert state_of(server, job_id) == "queued"
    assert server.job(job_id).flags & FLAG_DELIVERED == 0
    check(server)
    assert server.bodies() == [b"x"]


def test_nothing_is_given_back_that_is_acked_or_queued_already(server: Server) -> None:
    acked, queued = server.add("q", "a"), server.add("q", "b")
    server.node.begin()
    units = server.node.delivery.fetch([server.state.queues.by_name[b"q"]], 2)
    server("ACKJOB", acked)
    server("ENQUEUE", queued)
    server.node.delivery.give_back(units)
    check(server)
    assert server.bodies() == [b"b"]


def test_a_job_is_given_back_on_a_node_that_keeps_no_journal_too(server: Server) -> None:
    server.state.journaling = False
    wait(server, "anna")
    server.vanished = {"anna"}
    server.add("q", "x", "RETRY", 0)
    assert server.journal == []
    assert server.bodies() == [b"x"]


def test_a_time_out_that_comes_too_late_answers_nobody(server: Server) -> None:
    wait(server, "anna", timeout=1_000)
    waiter = server.state.waiting.blocked["anna"]
    server.add()
    server.node.blocking.timed_out(waiter)
    server.settle()
    assert len(server.answers["anna"]) == 1


# LEAVING.


def test_a_leaving_node_sends_its_waiting_consumers_elsewhere(server: Server) -> None:
    wait(server, "anna")
    server.node.begin()
    server.node.delivery.set_leaving(leaving=True)
    server.settle()
    [error] = server.answers["anna"]
    assert isinstance(error, NodeLeaving)
    assert error.line == b"LEAVING This node is leaving the cluster, please connect to a different one"


def test_very_many_consumers_are_sent_elsewhere_bit_by_bit(server: Server) -> None:
    names = [f"client {number}" for number in range(2 * SERVED_AT_ONCE + 1)]
    for name in names:
        wait(server, name)
    server.node.begin()
    server.node.delivery.set_leaving(leaving=True)
    assert len(server.node.outbox.replies) == SERVED_AT_ONCE
    server.settle()
    server.advance(10)
    assert all(isinstance(server.answers[name][0], NodeLeaving) for name in names)


def test_a_leaving_node_serves_what_it_has_but_nobody_waits(server: Server) -> None:
    server.add("q", "x")
    server.node.delivery.set_leaving(leaving=True)
    assert len(server("GETJOB", "FROM", "q")) == 1
    assert server("GETJOB", "NOHANG", "FROM", "q") is None
    assert server.refusal("GETJOB", "FROM", "q").startswith("LEAVING ")
    server.node.delivery.set_leaving(leaving=False)
    wait(server, "anna")


# Very many jobs whose time is over, before anybody noticed.

HEAP = 3 * OVER_AT_ONCE


def heap(server: Server, *bodies: str, queue: str = "q", count: int = HEAP) -> None:
    """Fill a queue with jobs whose time will be over, then with good ones, and let their time pass without a tick."""
    server.node.begin()
    for number in range(count):
        server.run("ADDJOB", queue, number, 0, "TTL", 1)
    for body in bodies:
        server.run("ADDJOB", queue, body, 0, "TTL", 100)
    server.clock.advance(1_000)


def ask(server: Server, *queues: str, client: str = "client", count: int = 1) -> list[bytes] | None:
    """GETJOB NOHANG, waiting for the answer as a client does; the bodies, None when there is no job."""
    value = server("GETJOB", "NOHANG", "COUNT", count, "FROM", *(queues or ("q",)), client=client)
    if value is BLOCKED:
        server.advance(0)
        [value] = server.answers.pop(client)
    return None if value is None else [body for _, _, body in value]


def test_a_consumer_drops_a_bounded_number_of_jobs_that_are_over(server: Server) -> None:
    heap(server, "good", count=4 * (OVER_PER_PART + DUE_PER_TICK))
    before = len(server.journal)
    assert server("GETJOB", "NOHANG", "FROM", "q") is BLOCKED
    assert server("GETJOB", "NOHANG", "FROM", "q", client="another") is BLOCKED
    dropped = [len(server.journal) - before]
    while not server.answers["client"]:
        server.tick()
        dropped.append(len(server.journal) - before)
    assert dropped[0] <= OVER_AT_ONCE + 1
    steps = [later - earlier for earlier, later in pairwise(dropped)]
    assert max(steps) <= OVER_PER_PART + DUE_PER_TICK
    [[(_, _, body)]] = server.answers["client"]
    assert body == b"good"


def test_the_good_job_behind_those_that_are_over_is_had_without_a_retry(server: Server) -> None:
    heap(server, "good", "better")
    assert ask(server) == [b"good"]
    assert ask(server) == [b"better"]
    assert ask(server) is None
    check(server)


def test_when_all_of_them_are_over_the_word_is_null(server: Server) -> None:
    heap(server)
    assert ask(server) is None
    assert len(server.state.jobs) == 0
    check(server)


def test_a_good_job_in_another_queue_is_had_at_once(server: Server) -> None:
    heap(server, "late")
    server.add("other", "soon")
    assert [body for _, _, body in server("GETJOB", "NOHANG", "FROM", "q", "other")] == [b"soon"]
    assert ask(server, "other") is None
    assert ask(server) == [b"late"]


def test_good_jobs_between_heaps_of_others_are_all_found(server: Server) -> None:
    server.node.begin()
    for round_ in range(4):
        for number in range(OVER_PER_PART + OVER_AT_ONCE):
            server.run("ADDJOB", "q", number, 0, "TTL", 1)
        server.run("ADDJOB", "q", f"good {round_}", 0)
    server.clock.advance(1_000)
    for round_ in range(4):
        assert ask(server) == [b"good %d" % round_]
    assert ask(server) is None
    check(server)


def test_two_who_wait_get_the_good_jobs_of_which_each_is_behind_a_heap_of_others(server: Server) -> None:
    server.node.begin()
    for body in (b"one", b"two"):
        for number in range(OVER_PER_PART + OVER_AT_ONCE):
            server.run("ADDJOB", "q", number, 0, "TTL", 1)
        server.run("ADDJOB", "q", body, 0)
    server.clock.advance(1_000)
    # Their deadlines come late here, so that only consumers notice.
    server.state.schedule.pop_due(server.clock.now(), 10_000)
    for client in "abc":
        assert server("GETJOB", "NOHANG", "FROM", "q", client=client) is BLOCKED
    server.advance(0)
    assert [server.answers[client][0][0][2] for client in "ab"] == [b"one", b"two"]
    assert server.answers["c"] == [None]


def test_consumers_of_both_kinds_are_served_in_the_order_in_which_they_came(server: Server) -> None:
    heap(server, "first", "second")
    for client, words in (("a", ["NOHANG"]), ("b", []), ("c", ["NOHANG"]), ("d", [])):
        assert server("GETJOB", *words, "FROM", "q", client=client) is BLOCKED
    server.advance(0)
    answers = {client: values for client, values in server.answers.items() if values}
    assert [answers[client][0][0][2] for client in "ab"] == [b"first", b"second"]
    assert answers["c"] == [None]
    assert "d" not in answers
    check(server)
    server.add("q", "third")
    assert server.answers["d"][0][0][2] == b"third"


def test_who_would_not_wait_waits_for_the_last_of_several_such_queues(server: Server) -> None:
    heap(server, queue="short", count=OVER_AT_ONCE + 1)
    server.node.begin()
    for number in range(6 * OVER_PER_PART):
        server.run("ADDJOB", "long", number, 0, "TTL", 1)
    server.run("ADDJOB", "long", "good", 0)
    server.clock.advance(1_000)
    assert server("GETJOB", "NOHANG", "FROM", "short", "long") is BLOCKED
    while server.state.queues.by_name[b"short"] in server.state.waiting.behind:
        server.tick()
    assert not server.answers["client"]
    server.advance(0)
    assert server.answers["client"][0][0][2] == b"good"


def test_a_queue_paused_meanwhile_gives_nothing(server: Server) -> None:
    heap(server, "good")
    assert server("GETJOB", "NOHANG", "FROM", "q") is BLOCKED
    server("PAUSE", "q", "out", client="operator")
    server.advance(0)
    assert server.answers["client"] == [None]
    assert server("QLEN", "q") == 1
    check(server)


def test_who_goes_away_while_a_queue_is_behind_takes_nothing(server: Server) -> None:
    heap(server, "good")
    assert server("GETJOB", "NOHANG", "FROM", "q", client="leaves") is BLOCKED
    server.gone("leaves")
    server.advance(0)
    assert not server.answers["leaves"]
    assert ask(server) == [b"good"]


def test_a_flush_ends_the_work_on_a_queue_that_is_behind(server: Server) -> None:
    heap(server, "good")
    assert server("GETJOB", "NOHANG", "FROM", "q") is BLOCKED
    server.node.flush()
    server.settle()
    assert server.answers.pop("client") == [None]
    heap(server, "new")
    assert ask(server) == [b"new"]
    server.advance(0)
    check(server)


def test_a_job_that_comes_to_a_queue_that_is_behind_waits_its_turn(server: Server) -> None:
    heap(server, "good")
    assert server("GETJOB", "FROM", "q", client="first") is BLOCKED
    server.add("q", "new")
    assert server("GETJOB", "FROM", "q", client="second") is BLOCKED
    server.advance(0)
    assert [server.answers[client][0][0][2] for client in ("first", "second")] == [b"good", b"new"]


# Large replies.


def test_a_fetch_ends_with_the_job_that_makes_it_large(server: Server) -> None:
    for number in range(6):
        server.add("q", b"%d" % number * (FETCHED_BYTES // 4))
    assert [body[:1] for body in server.bodies()] == [b"0", b"1", b"2", b"3"]
    assert [body[:1] for body in server.bodies()] == [b"4", b"5"]


@pytest.mark.parametrize(("short", "jobs"), [(1, 2), (0, 1)])
@pytest.mark.parametrize("queues", [("q",), ("q", "p")])
def test_a_fetch_goes_on_until_it_is_large(server: Server, short: int, jobs: int, queues: tuple[str, ...]) -> None:
    server.add("q", b"x" * (FETCHED_BYTES - len(b"q") - short))
    server.add("q", b"y")
    assert len(server.bodies(*queues)) == jobs


def test_a_job_larger_than_that_is_handed_out_alone(server: Server) -> None:
    for _ in range(2):
        server.add("q", b"x" * (2 * FETCHED_BYTES))
    assert len(server.bodies()) == 1
    assert len(server.bodies()) == 1


def test_names_of_queues_count_as_they_are_answered_with_each_job(server: Server) -> None:
    name = b"n" * (FETCHED_BYTES // 20)
    for number in range(25):
        server.add(name, number)
    assert len(server.bodies(name)) == 20


def test_a_delayed_at_most_once_job_is_held_back_while_the_journal_cannot_say_that_it_is_done(server: Server) -> None:
    server.add("q", "delayed", "DELAY", 1, "RETRY", 0)
    server.add("q", "not delayed", "RETRY", 0)
    server.add("q", "may come again", "DELAY", 1)
    server.state.durability.read_only = True
    server.advance(1_000)
    assert server.bodies() == [b"not delayed", b"may come again"]
    server.advance(10_000)
    assert server.bodies() == []
    server.state.durability.read_only = False
    server.settle()
    assert server.bodies() == [b"delayed"]
    server.advance(10_000)
    assert server.bodies() == []
    check(server)
