"""Spans with fractions of a second: every command that takes one keeps it to the millisecond, on every node."""

from itertools import pairwise
from random import Random

import pytest

from disqued.commands.jobs import NACK_DELAY
from disqued.core.model.outbox import POLICY as POLICY_SET
from disqued.core.model.terms import Terms
from disqued.core.node import Node
from disqued.core.recovery import Recovery
from disqued.wire.jobdump import decode_record, encode_event
from tests.cluster_fixtures import Cluster
from tests.core_fixtures import NODE_ID, Server, check


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.mark.parametrize("text", ["0.5", ".5", "5e-1", "+0.50", "0.4999999"])
def test_a_delayed_job_is_there_after_half_a_second_and_not_before(server: Server, text: str) -> None:
    job = server.add("q", "body", "DELAY", text)
    server.advance(499)
    assert server.get("q") == []
    server.advance(1)
    assert server.get("q") == [(b"q", job, b"body")]


def test_a_job_is_queued_again_when_its_fraction_of_a_second_is_over(server: Server) -> None:
    job = server.add("q", "body", "RETRY", "0.25", "TTL", "0.9")
    assert server.get("q")
    server.advance(249)
    assert server.get("q") == []
    server.advance(1)
    assert server.get("q") == [(b"q", job, b"body")]
    assert server("WORKING", job) == 0.25
    server.advance(649)
    assert server.show(job) is not None
    server.advance(1)
    assert server.show(job) is None
    check(server)


def test_show_tells_fractions_and_whole_seconds_as_they_are(server: Server) -> None:
    shown = server.show(server.add("q", "body", "DELAY", "1.5", "RETRY", "0.25", "TTL", "10.0"))
    assert shown is not None
    assert (shown["delay"], shown["retry"], shown["ttl"]) == (1.5, 0.25, 10)
    assert [type(shown[name]) for name in ("delay", "retry", "ttl")] == [float, float, int]
    terms = ("MAXTRIES", 3, "BACKOFF", "0.1", "1.25", "KEEPDEAD", "2.5", "RESULT", "60.001")
    shown = server.show(server.add("q", "body", *terms))
    assert shown is not None
    assert (shown["backoff"], shown["keep-dead"], shown["keep-result"]) == ([0.1, 1.25], 2.5, 60.001)


def test_what_is_above_0_is_never_0(server: Server) -> None:
    """RETRY 0 would mean at most once, and DELAY 0 in NACK at once."""
    options = server.job(server.add("q", "body", "RETRY", "1e-9", "DELAY", "0.0001", "TTL", "0.002")).options
    assert (options.retry_ms, options.delay_ms, options.ttl_ms) == (1, 1, 2)
    assert NACK_DELAY.read is not None
    assert NACK_DELAY.read(b"0.0001") == 1


def test_a_delay_up_to_the_end_of_the_ttl_is_refused(server: Server) -> None:
    assert server.add("q", "body", "DELAY", "0.499", "TTL", "0.5")
    line = server.refusal("ADDJOB", "q", "body", 0, "DELAY", "0.5", "TTL", "0.5")
    assert line == "ERR The specified DELAY is greater than TTL. Job refused since would never be delivered"


@pytest.mark.parametrize(("ttl", "retry"), [("0.5", 1), ("9.9", 1), ("25.5", 2), (59, 5), (5_000, 300)])
def test_a_retry_that_nobody_named_is_whole_seconds(server: Server, ttl: str, retry: int) -> None:
    shown = server.show(server.add("q", "body", "TTL", ttl))
    assert shown is not None
    assert (shown["retry"], type(shown["retry"])) == (retry, int)


def test_a_nack_puts_off_by_a_fraction(server: Server) -> None:
    job = server.add("q", "body")
    server.get("q")
    server("NACK", job, "DELAY", "0.75")
    server.advance(749)
    assert server.get("q") == []
    server.advance(1)
    assert server.get("q")


def test_time_outs_in_milliseconds_are_read_alike(server: Server) -> None:
    for text, ms in (("1e2", 100), ("99.6", 100), ("0.2", 1)):
        server("GETJOB", "TIMEOUT", text, "FROM", "q", client=text)
        server.advance(ms - 1)
        assert not server.answers[text]
        server.advance(1)
        assert server.answers[text] == [None]


def test_other_waits_end_after_a_fraction(server: Server) -> None:
    server("QREGISTER", "q", client="okq")
    server("QNOTIFY", "0.5", client="okq")
    server("RQ.POP", "BLOCK", "500.4", "KEYS", "list", client="list")
    server.advance(499)
    assert not server.answers
    server.advance(1)
    assert dict(server.answers) == {"okq": [None], "list": [None]}
    assert server("WORKER", "START", "ID", "w", "TTL", "1500.4", client="worker")[2] == 1_500


def test_a_failure_tells_the_fraction_that_was_over(server: Server) -> None:
    job = server.add("q", "body", "RETRY", "0.25", "MAXTRIES", 1)
    server.get("q")
    server.advance(250)
    shown = server.show(job)
    assert shown is not None
    assert shown["state"] == b"dead"
    assert shown["failures"][-1][-1] == b"neither acknowledged nor heard of within 0.25 s"


def test_lists_and_tasks_and_streams_keep_fractions(server: Server) -> None:
    server("RQ.PUSHX", "list", "RETRY", "250.4", "TTL", "1.5", "DELAY", "0.5", "ELEMS", "x")
    server("WQ.ENQUEUE", "tasks", "RETRY", "0.25", "TTL", "1.5", "DELAY", "0.5", "TASKS", "x")
    server("QADD", "log", "15e-1", "x", "DELAY", ".5")
    found = {job.queue: (job.options.ttl_ms, job.options.retry_ms, job.options.delay_ms) for job in server.state.jobs}
    assert found[b"list"] == found[b"tasks"] == (1_500, 250, 500)
    assert found[b"log"][::2] == (1_500, 500)


def test_a_work_queue_gives_an_event_to_somebody_else_after_a_fraction(server: Server) -> None:
    server("QLPUSH", "q", "one", "x")
    assert server("QRPOP", "q", "EX", "0.5")
    server.advance(499)
    assert server("QRPOP", "q") is None
    server.advance(1)
    assert server("QRPOP", "q")


def test_a_throttle_lasts_for_a_fraction_and_is_told_rounded_up(server: Server) -> None:
    server.add("q", "body")
    assert server("THROTTLE", "q", "0.5") == 1
    server.advance(499)
    assert (server("THROTTLE", "q", 0), server.get("q")) == (1, [])
    server.advance(1)
    assert (server("THROTTLE", "q", 0), len(server.get("q"))) == (0, 1)


POLICY = ("TTL", "90.5", "RETRY", "0.25", "BACKOFF", "0.5", 2, "KEEPDEAD", "1.75", "RESULT", 60)
LIMITS = ("RATE", 3, "PER", "0.5", "BURST", 1, "GROUPRATE", 1, "PER", 2)
TOLD = {
    b"ttl": b"90.5", b"retry": b"0.25", b"backoff": b"0.5 2", b"keepdead": b"1.75", b"result": b"60",
    b"rate": b"3 PER 0.5 BURST 1", b"grouprate": b"1 PER 2",
}  # fmt: skip


def policy_of(server: Server) -> dict[bytes, bytes]:
    return {field: value for field, value, _, _ in server("QPOLICY", "q")}


def test_a_policy_keeps_fractions_on_every_node_and_over_a_restart() -> None:
    a, b, _ = cluster = Cluster(3)
    a("QPOLICY", "q", "SET", *POLICY, *LIMITS)
    cluster.advance(1_000)
    assert policy_of(a) == policy_of(b) == TOLD
    shown = b.show(b.add("q", "body", "ASYNC"))
    assert shown is not None
    assert (shown["ttl"], shown["retry"], shown["backoff"], shown["keep-dead"]) == (91, 0.25, [0.5, 2], 1.75)
    assert dict(zip((row := b("QSTAT", "q", "FULL"))[::2], row[1::2], strict=True))[b"rate"] == b"3 PER 0.5 BURST 1"
    restarted = Node(NODE_ID, b.clock, Random(7), maxmemory=1 << 40)
    recovery = Recovery(restarted.state, restores_queues=False)
    restarted.begin()
    for record in b.journal:
        if record[0] == POLICY_SET:
            recovery.apply(decode_record(encode_event(record, b.clock.wall())))
    recovery.finish()
    assert restarted.state.queues.policies.derive_defaults(b"q") == b.state.queues.policies.derive_defaults(b"q")
    assert restarted.state.queues.policies.derive_limits(b"q") == b.state.queues.policies.derive_limits(b"q")


def test_a_rate_of_a_fraction_of_a_second_is_held(server: Server) -> None:
    for number in range(3):
        server.add("q", f"{number}")
    server("QPOLICY", "q", "SET", "RATE", 1, "PER", "0.5")
    server.advance(5_000)
    taken = []
    for at in range(0, 1_600, 10):
        server("GETJOB", "NOHANG", "FROM", "q", client=str(at))
        server.advance(10)
        if any(server.answers[str(at)]):
            taken.append(at)
    assert len(taken) == 3
    assert all(490 <= later - first <= 510 for first, later in pairwise(taken))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("RATE", "1.5", "PER", 1), "ERR RATE takes whole numbers from 1 to 1000000, not '1.5'"),
        (("RATE", 1, "PER", 0), "ERR PER takes seconds above 0 to 1000000, not '0'"),
        (("RATE", 1, "PER", "soon"), "ERR PER takes seconds above 0 to 1000000, not 'soon'"),
        (("RATE", 1, "PER", 1, "BURST", "0.5"), "ERR RATE takes whole numbers from 1 to 1000000, not '0.5'"),
        (("REPLICATE", "1.0"), "ERR REPLICATE must be between 1 and 65535 - allowed are whole numbers"),
    ],
)
def test_counts_stay_whole_numbers(server: Server, words: tuple[str | int, ...], line: str) -> None:
    assert server.refusal("QPOLICY", "q", "SET", *words) == line


def test_a_schedule_keeps_the_fractions_of_its_spans_and_jobs(server: Server) -> None:
    job = ("QUEUE", "q", "BODY", "x", "DELAY", "0.5", "RETRY", "0.25", "TTL", "9.5", "JITTER", "0.75", "RESULT", "1.5")
    assert server("SCHEDULE", "SET", "s", "EVERY", "1.5", *job) == b"OK"
    shown = dict(zip((row := server("SCHEDULE", "GET", "s"))[::2], row[1::2], strict=True))
    names = (b"when", b"jitter", b"ttl", b"retry", b"delay", b"result")
    assert [shown[name] for name in names] == [b"EVERY 1.5", 0.75, 9.5, 0.25, 0.5, 1.5]
    assert server("SCHEDULE", "LIST")[0][1] == b"EVERY 1.5"
    server.advance(1_499)
    assert not len(server.state.jobs)
    server.advance(1)
    (made,) = server.state.jobs
    assert 500 <= made.options.delay_ms <= 1_250
    assert (made.options.retry_ms, made.options.ttl_ms) == (250, 9_500)


@pytest.mark.parametrize("span", ["0.999", "0", "nan"])
def test_a_schedule_does_not_come_more_often_than_once_a_second(server: Server, span: str) -> None:
    line = server.refusal("SCHEDULE", "SET", "s", "EVERY", span, "QUEUE", "q", "BODY", "x")
    assert line == "ERR EVERY must be a number of seconds from 1 to 2147483647"


def test_another_node_of_the_cluster_keeps_to_fractions() -> None:
    a, b, c = cluster = Cluster(3)
    terms = ("MAXTRIES", 3, "BACKOFF", "0.5", "1.5", "KEEPDEAD", "0.75", "RESULT", "0.125")
    job_id = a.add("q", "body", "REPLICATE", 3, "DELAY", "0.5", "RETRY", "0.25", "TTL", "30.5", *terms, "ASYNC")
    for node in (b, c):
        options = node.job(job_id).options
        assert (options.ttl_ms, options.retry_ms, options.delay_ms) == (30_500, 250, 500)
        assert options.terms == Terms(3, 500, 1_500, 750, 125)
    cluster.advance(499)
    assert a.get("q") == []
    cluster.advance(1)
    assert a.get("q")
    # Its node is gone: another one queues the job again, some moments after the retry time.
    for node in (b, c):
        cluster.cut(a, node)
    cluster.advance(25_000)
    assert any(node.state.queues.by_name[b"q"].length for node in (b, c) if b"q" in node.state.queues.by_name)


def test_a_node_that_leaves_gives_fractions_away() -> None:
    a, b = cluster = Cluster(2)
    job_id = a.add("q", "body", "REPLICATE", 1, "RETRY", "0.25", "DELAY", "20.5", "TTL", "99.5")
    a("CLUSTER", "LEAVING", "yes")
    cluster.advance(10_000)
    options = b.job(job_id).options
    assert (options.ttl_ms, options.retry_ms, options.delay_ms) == (99_500, 250, 20_500)
