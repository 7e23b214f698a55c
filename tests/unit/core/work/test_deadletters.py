"""Retry policy on one node: how often a job is tried, when it comes again, and when it is dead."""

from collections.abc import Callable
from random import Random

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.fate import FAILURE_REASON_MAX, FAILURES_KEPT
from disqued.core.model.job import ACTIVE, DEAD, FLAG_PUT_OFF
from disqued.core.model.outbox import JOB_ADDED
from disqued.core.model.terms import Terms, backoff_of
from disqued.core.node import Node
from disqued.core.recovery import AT_END, Recovery, snapshot
from disqued.errors import CommandError
from disqued.testing.clock import Clock
from disqued.wire.jobdump import decode_record, encode_event, encode_job
from tests.cluster_fixtures import Cluster
from tests.core_fixtures import NODE_ID, UNKNOWN_ID, Server, check

WEEK_S = 604_800


def state_of(server: Server, job_id: bytes) -> bytes:
    shown = server.show(job_id)
    return b"gone" if shown is None else bytes(shown["state"])


def reasons(server: Server, job_id: bytes) -> list[bytes]:
    shown = server.show(job_id)
    assert shown is not None
    return [reason for _, _, _, reason in shown["failures"]]


# Tries.


def test_a_job_has_as_many_tries_as_its_terms_say_and_is_dead_then() -> None:
    server = Server()
    job_id = server.add("q", "body", "MAXTRIES", 3, "RETRY", 10)
    for _ in range(2):
        assert server.get()
        assert server("NACK", job_id) == 1
        assert state_of(server, job_id) == b"queued"
    assert server.get()
    assert server("NACK", job_id) == 1
    assert state_of(server, job_id) == b"dead"
    assert server.get() == []
    check(server)


@pytest.mark.parametrize(
    "words", [("ADDJOB", "q", "body", 0, "BACKOFF", 5, 2), ("QPOLICY", "q", "SET", "BACKOFF", 5, 2)]
)
def test_a_longest_delay_below_the_first_is_refused(words: tuple[str | int, ...]) -> None:
    server = Server()
    line = "ERR BACKOFF takes the first delay and then the longest: the longest is not below the first"
    assert server.refusal(*words) == line
    assert server("QPOLICY", "q") == []
    server.run(*words[:-1], 5)


def test_nacks_and_retries_count_alike() -> None:
    server = Server()
    job_id = server.add("q", "body", "MAXTRIES", 2, "RETRY", 10)
    server.get()
    server("NACK", job_id, "REASON", "no disk")
    server.get()
    server.advance(10_000)
    assert state_of(server, job_id) == b"dead"
    assert reasons(server, job_id) == [b"no disk", b"neither acknowledged nor heard of within 10 s"]
    check(server)


def test_a_job_that_only_waits_spends_no_try() -> None:
    server = Server()
    job_id = server.add("q", "body", "MAXTRIES", 1, "RETRY", 1)
    server.advance(60_000)
    assert state_of(server, job_id) == b"queued"
    assert [row[1] for row in server.get()] == [job_id]


def test_the_end_of_a_delay_of_addjob_is_no_try() -> None:
    server = Server()
    job_id = server.add("q", "body", "MAXTRIES", 1, "RETRY", 5, "DELAY", 3)
    server.advance(4_000)
    assert [row[1] for row in server.get()] == [job_id]


@pytest.mark.parametrize("word", ["NACK", "ENQUEUE"])
def test_what_ends_a_delay_of_addjob_early_is_no_try_either(word: str) -> None:
    server = Server()
    job_id = server.add("q", "body", "MAXTRIES", 1, "RETRY", 5, "DELAY", 30)
    assert server(word, job_id) == 1
    assert [row[1] for row in server.get()] == [job_id]
    assert server.job(job_id).nacks == 0


@pytest.mark.parametrize("terms", [(), ("MAXTRIES", 1)])
@pytest.mark.parametrize("words", [("NACK",), ("NACK", "REASON", "no"), ("ENQUEUE",), ()])
def test_a_job_that_was_taken_out_of_its_queue_has_had_no_try_whoever_queues_it(
    terms: tuple[str | int, ...], words: tuple[str, ...]
) -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 5, *terms)
    for _ in range(3):
        assert server("DEQUEUE", job_id) == 1
        if words:
            assert server(words[0], job_id, *words[1:]) == 1
        else:
            server.advance(5_000)
        shown = server.show(job_id)
        assert shown is not None
        assert (shown["state"], shown["nacks"], shown["additional-deliveries"]) == (b"queued", 0, 0)
    server.get()
    server("NACK", job_id)
    assert state_of(server, job_id) == (b"dead" if terms else b"queued"), "that was a try"
    assert server.job(job_id).nacks == 1
    check(server)


def test_a_consumer_counts_that_took_over_a_job_that_was_taken_out_of_its_queue() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 5)
    server("DEQUEUE", job_id)
    assert server("WORKING", job_id) == 5
    assert server("NACK", job_id) == 1
    assert server.job(job_id).nacks == 1


def test_a_job_that_nobody_was_given_is_not_put_off_but_may_be_buried() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 5)
    server("DEQUEUE", job_id)
    assert server("NACK", job_id, "DELAY", 60) == 0
    assert server("NACK", job_id, "DEAD") == 1
    assert (state_of(server, job_id), server.job(job_id).nacks) == (b"dead", 0)


@pytest.mark.parametrize("delay", [0, 30])
def test_holders_agree_that_a_job_which_nobody_was_given_has_had_no_try(delay: int) -> None:
    a, b = cluster = Cluster(2)
    a("ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 60, "DELAY", delay)
    [job_id] = [job.id for job in a.state.jobs]
    if not delay:
        a("DEQUEUE", job_id)
    assert a("NACK", job_id) == 1
    cluster.settle()
    for node, state in ((a, b"queued"), (b, b"active")):
        shown = node.show(job_id)
        assert shown is not None
        assert (shown["state"], shown["nacks"], shown["additional-deliveries"]) == (state, 0, 0)


@pytest.mark.parametrize("words", [("NACK",), ("NACK", "REASON", "why"), ("ENQUEUE",), ()])
@pytest.mark.parametrize("terms", [(), ("MAXTRIES", 5)])
def test_another_holder_cannot_know_that_nobody_was_given_a_job_and_counts_a_try(
    words: tuple[str, ...], terms: tuple[str | int, ...]
) -> None:
    a, b = cluster = Cluster(2)
    a("ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 60, *terms)
    [job_id] = [job.id for job in a.state.jobs]
    a("DEQUEUE", job_id)
    if words:
        assert b(words[0], job_id, *words[1:]) == 1
    else:  # its timer ends, and the other node is away
        cluster.isolate(a)
        cluster.advance(600_000)
    cluster.settle()
    for node in (a, b) if words else (b,):
        shown = node.show(job_id)
        assert shown is not None
        assert shown["nacks"] + shown["additional-deliveries"] == 1


def test_enqueue_takes_a_try_and_says_when_there_was_none_left() -> None:
    server = Server()
    job_id = server.add("q", "body", "MAXTRIES", 2, "RETRY", 10)
    server.get()
    assert server("ENQUEUE", job_id) == 1
    server.get()
    assert server("ENQUEUE", job_id) == 0
    assert state_of(server, job_id) == b"dead"
    assert reasons(server, job_id) == [b"queued again on request after its last try"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), b"its worker mailer died"), (("WORKER", "FAIL", "w"), b"its worker mailer died"),
        (("WORKER", "STOP", "w"), b"its worker mailer stopped before it was done"),
    ],
)  # fmt: skip
def test_the_end_of_a_worker_takes_a_try_and_says_whose_and_which_end_it_was(
    words: tuple[str, ...], reason: bytes
) -> None:
    server = Server()
    job_id = server.add("q", "body", "MAXTRIES", 1, "RETRY", 100)
    server("WORKER", "START", "ID", "w", "NAME", "mailer", "TTL", 2_000)
    server("GETJOB", "NOHANG", "WORKER", "w", "FROM", "q")
    if words:
        server(*words)
    server.advance(5_000)
    assert state_of(server, job_id) == b"dead"
    assert reasons(server, job_id) == [reason]
    check(server)


def test_a_consumer_that_never_saw_its_job_has_not_tried_it() -> None:
    server = Server()
    assert server("GETJOB", "FROM", "q", client="anna") is not None
    server.vanished.add("anna")
    job_id = server.add("q", "body", "MAXTRIES", 1, "RETRY", 100)
    assert [row[1] for row in server.get()] == [job_id]


@pytest.mark.parametrize("terms", [(), ("MAXTRIES", 1), ("BACKOFF", 60)])
def test_a_job_that_nobody_began_returns_to_its_place_and_nothing_is_counted(terms: tuple[object, ...]) -> None:
    server = Server()
    job_id = server.add("q", "first", "RETRY", 100, *terms)
    later = server.add("q", "later", "RETRY", 100)
    server.get()
    assert server("NACK", job_id, "UNTRIED") == 1
    assert server("NACK", job_id, "UNTRIED") == 0, "nobody has it"
    shown = server.show(job_id)
    assert shown is not None
    assert (shown["state"], shown["nacks"], shown["additional-deliveries"]) == (b"queued", 0, 0)
    assert [row[1] for row in server.get(count=2)] == [job_id, later]
    check(server)


def test_what_nobody_has_and_what_is_delivered_once_is_not_given_back_untried() -> None:
    server = Server()
    once = server.add("q", "once", "RETRY", 0)
    put_off = server.add("q", "put off", "RETRY", 10)
    delayed = server.add("q", "delayed", "RETRY", 10, "DELAY", 10)
    server.get(count=2)
    server("NACK", put_off, "DELAY", 20)
    assert server("NACK", once, put_off, delayed, UNKNOWN_ID, "UNTRIED") == 0
    assert server("QLEN", "q") == 0
    check(server)


def test_untried_goes_alone() -> None:
    server = Server()
    job_id = server.add("q", "body")
    server.get()
    with pytest.raises(CommandError, match="UNTRIED goes without DELAY, REASON and DEAD"):
        server("NACK", job_id, "UNTRIED", "DEAD")


def test_a_cancelled_job_that_nobody_began_ends() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10)
    server.get()
    assert server("CANCEL", job_id) == [b"cancelling"]
    assert server("NACK", job_id, "UNTRIED") == 0
    assert state_of(server, job_id) == b"gone"
    check(server)


def test_a_plain_nack_of_a_plain_job_costs_no_record_and_no_fate() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10)
    server.get()
    records = len(server.journal)
    used = server.state.memory.used
    assert server("NACK", job_id) == 1
    assert not server.job(job_id).options.is_rare
    assert (len(server.journal), server.state.memory.used) == (records, used)


# Failures.


def test_a_failure_says_when_where_who_and_why() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10)
    server.get()
    server("NACK", job_id, "REASON", "it broke", client="anna")
    shown = server.show(job_id)
    assert shown is not None
    assert shown["failures"] == [[server.clock.wall(), NODE_ID, b"anna", b"it broke"]]
    assert shown["generation"] == 0


def test_the_last_failures_are_kept() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10)
    for number in range(FAILURES_KEPT + 2):
        server.get()
        server.advance(1)
        server("NACK", job_id, "REASON", number)
    assert reasons(server, job_id) == [b"%d" % number for number in range(2, FAILURES_KEPT + 2)]
    check(server)


def test_a_reason_has_a_limit() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10)
    server.get()
    assert "at most 1024 bytes" in server.refusal("NACK", job_id, "REASON", b"x" * (FAILURE_REASON_MAX + 1))
    assert server("NACK", job_id, "REASON", b"x" * FAILURE_REASON_MAX) == 1


def test_options_go_with_very_many_ids() -> None:
    server = Server()
    ids = [server.add("q", number, "RETRY", 100) for number in range(700)]
    server.get(count=700)
    server("NACK", *ids, "DELAY", 20, "REASON", "dead", client="anna")
    server.advance(100)
    assert server.answers["anna"] == [700]
    assert server.get(count=700) == []
    assert reasons(server, ids[650]) == [b"dead"]
    assert server.job(ids[650]).options.fate.is_dead is False
    server.advance(20_000)
    assert len(server.get(count=700)) == 700
    assert server.refusal("NACK", *ids, "DEAD", ids[0]) == (
        "ERR syntax error - options among 500 ids or more; expected before them or behind them"
    )


# Delays.


def test_a_nack_with_a_delay_puts_the_next_delivery_off() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10)
    server.get()
    assert server("NACK", job_id, "DELAY", 60) == 1
    server.advance(59_000)
    assert server.get() == []
    server.advance(1_000)
    assert [row[1] for row in server.get()] == [job_id]
    shown = server.show(job_id)
    assert shown is not None
    assert (shown["nacks"], shown["additional-deliveries"]) == (1, 0)
    check(server)


def test_the_end_of_a_put_off_is_no_further_try() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10, "MAXTRIES", 2)
    server.get()
    server("NACK", job_id, "DELAY", 60)
    server.advance(60_000)
    assert [row[1] for row in server.get()] == [job_id]
    server("NACK", job_id, "DELAY", 60)
    assert state_of(server, job_id) == b"dead"


def test_a_job_that_is_put_off_can_be_asked_for_at_once_and_is_given_back_once() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10, "MAXTRIES", 2)
    server.get()
    server("NACK", job_id, "DELAY", 60)
    assert server("NACK", job_id) == 0
    assert server("ENQUEUE", job_id) == 1
    assert [row[1] for row in server.get()] == [job_id]
    assert (server.job(job_id).nacks, server.job(job_id).additional_deliveries) == (1, 0)
    # After that its timer is the retry period again, and its end takes a try.
    server.advance(10_000)
    assert state_of(server, job_id) == b"dead"


def test_a_delay_of_0_ends_no_back_off_early() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10, "BACKOFF", 30)
    server.get()
    assert server("NACK", job_id, "DELAY", 0) == 1
    assert [row[1] for row in server.get()] == [job_id]


def test_a_delay_that_outlasts_the_job_lasts_for_the_rest_of_its_time() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10, "TTL", 100)
    server.get()
    assert server("NACK", job_id, "DELAY", 10_000) == 1
    assert server.job(job_id).requeue_at == server.job(job_id).expires_at
    server.advance(100_000)
    assert state_of(server, job_id) == b"gone"
    check(server)


def test_a_job_with_retry_0_is_not_given_back() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 0, "REPLICATE", 1)
    server.get()
    for options in ((), ("DELAY", 1)):
        assert server("NACK", job_id, *options) == 0


@pytest.mark.parametrize(
    ("added", "given_back"), [(("DELAY", 30), ()), ((), ("DELAY", 30)), (("BACKOFF", 30), ("REASON", "x"))]
)
def test_working_brings_no_delivery_nearer(added: tuple[str | int, ...], given_back: tuple[str | int, ...]) -> None:
    cluster = Cluster(2)
    a, b = cluster
    a("ADDJOB", "q", "body", 0, "REPLICATE", 2, "RETRY", 5, *added)
    (job_id,) = a.answers.pop("client")
    if given_back:
        a.get("q")
        a("NACK", job_id, *given_back)
    cluster.advance(1)
    for member in (a, b):
        before = member.job(job_id).requeue_at
        assert member("WORKING", job_id) == 5
        cluster.advance(1)
        assert member.job(job_id).requeue_at == before
    cluster.advance(26_000)
    assert a.get("q") == b.get("q") == []
    cluster.advance(8_000)
    assert [row[1] for row in (*a.get("q"), *b.get("q"))] == [job_id]


def test_working_is_refused_for_a_job_that_is_dead_or_done() -> None:
    server = Server()
    job_id = server.add("q", "body", "MAXTRIES", 1, "RETRY", 10, "RESULT", 60)
    server.get()
    server("NACK", job_id)
    assert server.refusal("WORKING", job_id) == "TOOLATE The job is dead: it is not delivered again before REDRIVE."
    assert server.refusal("WORKING", job_id, "PROGRESS", "half").startswith("TOOLATE ")
    server("ACKJOB", job_id)
    assert server.show(job_id)
    assert server.refusal("WORKING", job_id) == "NOJOB Job not known in the context of this node."


def test_the_back_off_doubles_up_to_its_longest_and_is_spread_by_a_tenth() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 1_000, "BACKOFF", 10, 60)
    for expected_s in (10, 20, 40, 60, 60):
        assert server.get()
        server("NACK", job_id)
        left_ms = server.job(job_id).requeue_at - server.state.now
        assert 0.9 * expected_s <= left_ms / 1_000 <= 1.1 * expected_s
        server.advance(left_ms)
    check(server)


def test_the_back_off_is_a_pure_function_that_differs_from_job_to_job() -> None:
    terms = Terms(backoff_ms=10_000, backoff_most_ms=3_600_000)
    spans = {backoff_of(terms, b"DI%038d05a0SQ" % number, 1) for number in range(1_000)}
    assert len(spans) > 500
    assert min(spans) >= 9_000
    assert max(spans) <= 11_000
    assert backoff_of(terms, b"a", 3) == backoff_of(terms, b"a", 3)
    assert 3_240_000 <= backoff_of(terms, b"a", 65_535) <= 3_960_000
    assert backoff_of(Terms(), b"a", 5) == 0


# Dead.


def test_dead_buries_at_once_and_the_job_keeps_what_it_was() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10, "MAXTRIES", 5, "KEEPDEAD", 50, "TTL", 100, "KEY", "k")
    server.get()
    server.advance(5_000)
    assert server("NACK", job_id, "DEAD", "REASON", "bad input") == 1
    shown = server.show(job_id)
    assert shown is not None
    assert (shown["state"], shown["body"], shown["nacks"], shown["ttl"]) == (b"dead", b"body", 1, 145)
    assert server("ADDJOB", "q", "other", 0, "KEY", "k") == job_id
    server.advance(144_000)
    assert state_of(server, job_id) == b"dead"
    server.advance(1_000)
    assert state_of(server, job_id) == b"gone"
    assert server.state.counters.gone[b"expired"] == 1
    check(server)


def test_a_buried_job_without_terms_keeps_its_own_end() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10, "TTL", 100)
    server.get()
    server("NACK", job_id, "DEAD")
    server.advance(99_000)
    assert state_of(server, job_id) == b"dead"
    server.advance(1_000)
    assert state_of(server, job_id) == b"gone"


def test_what_a_dead_job_takes_and_what_it_does_not() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10)
    server.get()
    server("NACK", job_id, "DEAD")
    assert server("ENQUEUE", job_id) == 0
    assert server("NACK", job_id) == 0
    assert server("NACK", job_id, "DEAD") == 0
    assert server("DEQUEUE", job_id) == 0
    server.advance(100_000)
    assert server.get() == []
    assert state_of(server, job_id) == b"dead"
    assert server("ACKJOB", job_id) == 1
    assert state_of(server, job_id) == b"gone"
    check(server)


@pytest.mark.parametrize("word", ["FASTACK", "DELJOB", "ACKJOB"])
def test_a_dead_job_ends_like_others(word: str) -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10)
    server.get()
    server("NACK", job_id, "DEAD")
    assert server(word, job_id) == 1
    assert state_of(server, job_id) == b"gone"
    check(server)


def test_a_job_that_is_put_off_or_delayed_can_be_buried() -> None:
    server = Server()
    put_off = server.add("q", "body", "RETRY", 10)
    server.get()
    server("NACK", put_off, "DELAY", 100)
    delayed = server.add("q", "body", "RETRY", 0, "REPLICATE", 1, "DELAY", 50)
    assert server("NACK", put_off, delayed, "DEAD") == 2
    server.advance(200_000)
    assert (state_of(server, put_off), state_of(server, delayed)) == (b"dead", b"dead")
    assert server.job(put_off).nacks == 1
    check(server)


@pytest.mark.parametrize("retry", [0, 10])
def test_a_job_that_waits_in_its_queue_can_be_buried_and_that_is_no_try(retry: int) -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", retry, "RESULT", 60)
    assert server("NACK", job_id, "REASON", "bad") == 0, "nobody has it"
    assert server("NACK", job_id, "DEAD", "REASON", "poison", client="ops") == 1
    assert server("NACK", job_id, "DEAD") == 0
    assert (state_of(server, job_id), reasons(server, job_id)) == (b"dead", [b"poison"])
    assert server("QLEN", "q") == 0
    assert server.get() == []
    [[_, state, _, tries, reason]] = server("WAITJOB", 0, job_id)
    assert (state, tries, reason) == (b"dead", 0, b"poison")
    server.advance(60_000)
    assert state_of(server, job_id) == b"dead", "no timer queues it"
    assert redrive(server) == 1
    assert [row[1] for row in server.get()] == [job_id]
    check(server)


def test_all_holders_bury_a_job_that_waits_and_none_counts_a_try() -> None:
    a, b, c = cluster = Cluster(3)
    a("ADDJOB", "q", "body", 0, "REPLICATE", 3, "RETRY", 60, "MAXTRIES", 1)
    cluster.settle()
    [job_id] = [job.id for job in a.state.jobs]
    assert a("NACK", job_id, "DEAD") == 1
    cluster.settle()
    cluster.advance(120_000)
    for node in (a, b, c):
        shown = node.show(job_id)
        assert shown is not None
        assert (shown["state"], shown["nacks"], shown["additional-deliveries"]) == (b"dead", 0, 0)


def test_a_dead_job_is_not_evicted() -> None:
    server = Server()
    delayed = server.add("q", "body", "RETRY", 0, "REPLICATE", 1, "DELAY", 50)
    server("NACK", delayed, "DEAD")
    assert server.job(delayed) not in server.state.custody.evictable


# Restarts.


class Disk:
    """The journal of a server, and nodes that start from it."""

    def __init__(self, server: Server) -> None:
        self.server = server

    def restart(self, *, controlled: bool, down_ms: int = 0) -> Server:
        """End the server and start another one from its journal, or from its last snapshot."""
        old = self.server
        offset, wall = old.clock.wall() - old.clock.now(), old.clock.wall()
        records = list(snapshot(old.state)) if controlled else old.journal
        lines = [
            encode_job(record[1], offset, record[1].state if controlled else ACTIVE)
            if record[0] == JOB_ADDED
            else encode_event(record, wall)
            for record in records
        ]
        clock = Clock(now=77_000, wall=wall + down_ms)
        server = Server(clock=clock)
        server.node = Node(NODE_ID, clock, Random(5), maxmemory=1 << 40)
        server.state = server.node.state
        recovery = Recovery(server.state, restores_queues=controlled)
        assert recovery.apply_some(map(decode_record, lines), len(lines) + 1) is AT_END
        server.node.begin()
        server.state.journaling = True
        recovery.finish()
        server.journal = [(JOB_ADDED, job) for job in server.state.jobs]
        return server


@pytest.mark.parametrize("restart", ["none", "controlled", "crash"])
def test_a_job_with_retry_0_can_be_buried_and_redriven(restart: str) -> None:
    server = Server()
    server.state.journaling = True
    job_id = server.add("q", "body", "RETRY", 0, "REPLICATE", 1)
    server.get()
    assert server("NACK", job_id, "DEAD", "REASON", "no disk") == 1
    assert (state_of(server, job_id), reasons(server, job_id)) == (b"dead", [b"no disk"])
    assert server("WAITJOB", 1, job_id) == [[job_id, b"dead", None, 1, b"no disk"]]
    assert server.job(job_id) not in server.state.custody.evictable
    if restart != "none":
        server = Disk(server).restart(controlled=restart == "controlled")
    assert server("REDRIVE", "q", client="rosa") is BLOCKED
    server.advance(10)
    assert server.answers["rosa"] == [1]
    if restart == "controlled":
        server = Disk(server).restart(controlled=True)
        server.advance(1)
    assert [row[1:] for row in server.get()] == [(job_id, b"body")]
    server.advance(100_000)
    assert server.get() == []
    check(server)


@pytest.mark.parametrize("controlled", [False, True])
def test_a_put_off_outlives_a_restart(controlled: bool) -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10, "MAXTRIES", 2)
    server.get()
    server("NACK", job_id, "DELAY", 100, "REASON", "later")
    server.advance(30_000)
    server = Disk(server).restart(controlled=controlled, down_ms=20_000)
    job = server.job(job_id)
    assert job.flags & FLAG_PUT_OFF
    server.advance(49_000)
    assert server.get() == []
    server.advance(1_000)
    assert [row[1] for row in server.get()] == [job_id]
    assert (server.job(job_id).nacks, server.job(job_id).additional_deliveries) == (1, 0)
    assert reasons(server, job_id) == [b"later"]
    check(server)


@pytest.mark.parametrize("controlled", [False, True])
def test_a_put_off_that_ends_while_the_node_is_down_is_over_at_its_start(controlled: bool) -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 1_000)
    server.get()
    server("NACK", job_id, "DELAY", 100)
    server = Disk(server).restart(controlled=controlled, down_ms=200_000)
    server.advance(10)
    assert [row[1] for row in server.get()] == [job_id]
    assert server.job(job_id).additional_deliveries == 0


def test_a_put_off_that_was_over_before_a_crash_stays_over() -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 1_000)
    server.get()
    server("NACK", job_id, "DELAY", 100)
    server("ENQUEUE", job_id)
    server.get()
    server = Disk(server).restart(controlled=False)
    assert not server.job(job_id).flags & FLAG_PUT_OFF
    server.advance(999_000)
    assert server.get() == []


@pytest.mark.parametrize("controlled", [False, True])
def test_a_crash_gives_no_job_more_tries(controlled: bool) -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10, "MAXTRIES", 3)
    server.get()
    server("NACK", job_id)
    server.get()
    server.advance(10_000)  # a retry: the third try waits
    server = Disk(server).restart(controlled=controlled)
    assert (server.job(job_id).nacks, server.job(job_id).additional_deliveries) == (1, 1)
    tries = 2
    for _ in range(5):
        tries += len(server.get())
        server.advance(10_000)
    assert tries <= 3
    assert state_of(server, job_id) == b"dead"


def waits(server: Server) -> bytes:
    """A job on its only try that nobody was given."""
    return server.add("q", "body", "RETRY", 5, "MAXTRIES", 1)


def waits_after_a_nack(server: Server) -> bytes:
    job_id = server.add("q", "body", "RETRY", 5, "MAXTRIES", 2)
    server.get()
    server("NACK", job_id)
    return job_id


def waits_after_a_retry(server: Server) -> bytes:
    job_id = server.add("q", "body", "RETRY", 5, "MAXTRIES", 2)
    server.get()
    server.advance(5_000)
    return job_id


def was_given_back_untried(server: Server) -> bytes:
    job_id = waits(server)
    server.get()
    server("NACK", job_id, "UNTRIED")
    return job_id


def was_redriven(server: Server) -> bytes:
    job_id = waits(server)
    server.get()
    server("NACK", job_id)
    assert server("REDRIVE", "q", client="rosa") is BLOCKED
    server.advance(10)
    return job_id


def was_delayed(server: Server) -> bytes:
    job_id = server.add("q", "body", "RETRY", 5, "MAXTRIES", 1, "DELAY", 1)
    server.advance(1_100)
    return job_id


def was_put_off(server: Server) -> bytes:
    job_id = server.add("q", "body", "RETRY", 5, "MAXTRIES", 2)
    server.get()
    server("NACK", job_id, "DELAY", 1)
    server.advance(1_100)
    return job_id


def was_taken_out(server: Server) -> bytes:
    job_id = waits(server)
    server("DEQUEUE", job_id)
    server("ENQUEUE", job_id)
    return job_id


def was_in_a_reply_that_nobody_received(server: Server) -> bytes:
    job_id = waits(server)
    server.node.begin()
    server.node.delivery.give_back(server.node.delivery.fetch([server.state.queue(b"q")], 1))
    return job_id


WAYS_TO_WAIT = [
    waits, waits_after_a_nack, waits_after_a_retry, was_given_back_untried, was_redriven, was_delayed, was_put_off,
    was_taken_out, was_in_a_reply_that_nobody_received,
]  # fmt: skip


@pytest.mark.parametrize("crashes", [1, 3])
@pytest.mark.parametrize("way", WAYS_TO_WAIT)
def test_a_crash_takes_no_try_of_a_job_that_waited_for_a_consumer(way: Callable[[Server], bytes], crashes: int) -> None:
    server = Server()
    server.state.journaling = True
    server.journal.append(server.state.begin_watermark())
    job_id = way(server)
    assert state_of(server, job_id) == b"queued"
    counts = (server.job(job_id).nacks, server.job(job_id).additional_deliveries, server.job(job_id).options.fate)
    for _ in range(crashes):
        server = Disk(server).restart(controlled=False)
        assert state_of(server, job_id) == b"active"
        server.advance(6_000)
        job = server.job(job_id)
        assert state_of(server, job_id) == b"queued"
        assert (job.nacks, job.additional_deliveries, job.options.fate) == counts
    assert [row[1] for row in server.get()] == [job_id], "it has its last try yet"
    server.advance(5_000)
    assert state_of(server, job_id) == b"dead"
    check(server)


@pytest.mark.parametrize("way", WAYS_TO_WAIT)
@pytest.mark.parametrize("options", [(), ("LEASE", 2)])
def test_a_crash_counts_the_try_of_a_job_that_a_consumer_had(
    way: Callable[[Server], bytes], options: tuple[str | int, ...]
) -> None:
    server = Server()
    server.state.journaling = True
    server.journal.append(server.state.begin_watermark())
    job_id = way(server)
    server.node.begin()
    span_ms = 2_000 if options else 0
    assert server.node.delivery.drain([server.state.queue(b"q")], 1, span_ms)
    server = Disk(server).restart(controlled=False)
    server.advance(6_000)
    assert state_of(server, job_id) == b"dead"
    assert server.get() == []


@pytest.mark.parametrize("controlled", [False, True])
def test_a_dead_job_outlives_a_restart_with_its_end(controlled: bool) -> None:
    server = Server()
    job_id = server.add("q", "body", "RETRY", 10, "MAXTRIES", 1, "TTL", 100, "KEEPDEAD", 1_000)
    server.get()
    server("NACK", job_id, "REASON", "why")
    server = Disk(server).restart(controlled=controlled, down_ms=200_000)
    assert server.job(job_id).state == DEAD
    assert reasons(server, job_id) == [b"why"]
    server.advance(899_000)
    assert server.get() == []
    assert state_of(server, job_id) == b"dead"
    check(server)
    server.advance(1_000)
    assert state_of(server, job_id) == b"gone"


# Redrive, and what operators see.


def redrive(server: Server, *words: str | int | bytes) -> int:
    """REDRIVE; returns how many jobs were queued again."""
    assert server("REDRIVE", "q", *words, client="ops") is BLOCKED
    server.advance(10)
    (count,) = server.answers.pop("ops")
    assert isinstance(count, int)
    return count


def dead_jobs(server: Server, count: int) -> list[bytes]:
    ids = [
        server.add("q", number, "RETRY", 100, "MAXTRIES", 1, "TTL", 1_000, "KEEPDEAD", 1_000) for number in range(count)
    ]
    for job_id in ids:
        server.get()
        server.advance(1)
        assert server("NACK", job_id, "REASON", "why") == 1
    return ids


def test_a_redriven_job_begins_again_and_keeps_its_id_failures_and_end() -> None:
    server = Server()
    (job_id,) = dead_jobs(server, 1)
    end = server.job(job_id).expires_at
    assert redrive(server) == 1
    assert redrive(server) == 0
    shown = server.show(job_id)
    assert shown is not None
    assert (shown["state"], shown["nacks"], shown["generation"]) == (b"queued", 0, 1)
    assert reasons(server, job_id) == [b"why"]
    rows = server("GETJOB", "NOHANG", "WITHHEADERS", "FROM", "q")
    assert rows[0][-2:] == (b"attempt", 2)
    server("NACK", job_id)
    assert state_of(server, job_id) == b"dead"
    assert server.job(job_id).expires_at == end
    check(server)


@pytest.mark.parametrize("controlled", [False, True])
def test_a_redriven_job_stays_so_over_a_restart(controlled: bool) -> None:
    server = Server()
    (job_id,) = dead_jobs(server, 1)
    redrive(server)
    server = Disk(server).restart(controlled=controlled)
    assert server.job(job_id).options.fate.generation == 1
    assert server.job(job_id).state != DEAD
    server.advance(100_100)
    assert [row[1] for row in server.get()] == [job_id] or state_of(server, job_id) == b"dead"


def test_count_takes_the_oldest_and_ids_take_these() -> None:
    server = Server()
    ids = dead_jobs(server, 5)
    assert redrive(server, "COUNT", 2) == 2
    assert [state_of(server, job_id) for job_id in ids] == [b"queued"] * 2 + [b"dead"] * 3
    assert redrive(server, "ID", ids[4], ids[0], UNKNOWN_ID, "COUNT", 5) == 1
    assert state_of(server, ids[4]) == b"queued"
    assert "goes with the ids of jobs" in server.refusal("REDRIVE", "q", "ID")
    assert "goes with the ids of jobs" in server.refusal("REDRIVE", "q", ids[0])
    assert redrive(Server()) == 0


def test_a_rate_is_kept_and_a_client_that_goes_stops_it() -> None:
    server = Server()
    dead_jobs(server, 100)
    assert server("REDRIVE", "q", "RATE", 20, client="ops") is BLOCKED
    begin = server.state.queues.by_name[b"q"].jobs_in
    for second in range(1, 4):
        server.advance(1_000)
        assert 20 * second - 2 <= server.state.queues.by_name[b"q"].jobs_in - begin <= 20 * second + 2
    server.gone("ops")
    server.advance(10_000)
    assert server.state.queues.by_name[b"q"].jobs_in - begin <= 62
    assert redrive(server) >= 38
    check(server)


def test_show_tells_the_number_of_the_delivery_which_redrive_does_not_begin_again() -> None:
    server = Server()
    job_id = server.add("q", "body", "MAXTRIES", 2, "RETRY", 10)
    assert "attempt" not in (server.show(job_id) or {}), "a job that never failed: 1 + nacks + additional-deliveries"
    numbers = []
    for _ in range(2):
        rows = server("GETJOB", "WITHHEADERS", "FROM", "q")
        server("NACK", job_id, "REASON", "why")
        numbers.append((rows[0][-1], (server.show(job_id) or {})["attempt"]))
    assert numbers == [(1, 2), (2, 3)]
    server("REDRIVE", "q", client="ops")
    server.advance(1_000)
    [row] = server("GETJOB", "WITHHEADERS", "FROM", "q")
    assert (row[-1], (server.show(job_id) or {})["attempt"]) == (3, 3)


def test_a_flush_ends_a_redrive() -> None:
    server = Server()
    dead_jobs(server, 100)
    assert server("REDRIVE", "q", "RATE", 20, client="ops") is BLOCKED
    server.advance(1_000)
    server("DEBUG", "FLUSHALL")
    server.advance(1_000)
    assert len(server.answers["ops"]) == 1
    check(server)


def test_operators_see_dead_and_failing_jobs() -> None:
    server = Server()
    ids = dead_jobs(server, 3)
    failing = server.add("q", "again", "RETRY", 100)
    server.get()
    server("NACK", failing, "REASON", "why")
    stat = server.stat()
    assert stat is not None
    assert (stat["len"], stat["dead"], stat["failing"]) == (1, 3, 1)
    assert [row[1] for row in server("QPEEK", "q", 2, "DEAD")] == ids[:0:-1]
    assert [row[1] for row in server("QPEEK", "q", -9, "DEAD")] == ids
    assert sorted(server("JSCAN", 0, "BUSYLOOP", "STATE", "dead")[1]) == sorted(ids)
    server.advance(600_000)
    assert server.stat() is not None, "a queue with dead jobs is not forgotten"
    server("ACKJOB", *ids, failing)
    server.advance(600_000)
    assert server.stat() is None
    check(server)
