"""QPOLICY: defaults of ADDJOB for a queue, the same on every node."""

import pytest

from disqued.core.cluster.policy_sync import SWEEP_MS
from disqued.core.model.policies import FORGOTTEN_MS
from disqued.core.model.terms import NO_TERMS, Terms
from tests.cluster_fixtures import Cluster
from tests.core_fixtures import Server, check

NAMES = (
    "ttl, retry, replicate, maxlen, maxtries, backoff, keepdead, result, fair, inflight, groupinflight, rate,"
    " grouprate, partition, idle"
)
OPTIONS = (
    "GET, SET, TTL, RETRY, REPLICATE, MAXLEN, MAXTRIES, BACKOFF, KEEPDEAD, RESULT, FAIR, INFLIGHT, GROUPINFLIGHT, RATE,"
    " GROUPRATE, PARTITION, IDLE or UNSET"
)
UNKNOWN = "ERR syntax error - unknown option"
MISUSE = "ERR QPOLICY takes SET and options, UNSET and fields, or GET"


@pytest.fixture
def server() -> Server:
    return Server()


def told(server: Server, queue: str = "q") -> dict[bytes, bytes]:
    return {field: value for field, value, _, _ in server("QPOLICY", queue)}


def terms(server: Server, *options: str | int, queue: str = "q") -> tuple[int, int, int]:
    """TTL, RETRY and REPLICATE of a job that is added with these options."""
    shown = server.show(server.add(queue, "body", *options))
    assert shown is not None
    return shown["ttl"], shown["retry"], shown["repl"]


def test_what_is_set_is_shown_with_node_and_time(server: Server) -> None:
    assert server("QPOLICY", "q") == []
    assert server("QPOLICY", "q", "SET", "TTL", 3_600, "MAXLEN", 10) == b"OK"
    server("PAUSE", "q", "out")
    at = server.clock.wall() // 1_000
    rows = [[b"pause", b"out"], [b"ttl", b"3600"], [b"maxlen", b"10"]]
    assert server("QPOLICY", "q", "GET") == [[*row, server.node.id, at] for row in rows]
    assert server("QPOLICY", "q", "UNSET", "ttl", "RETRY") == b"OK"
    server("PAUSE", "q", "none")
    assert told(server) == {b"maxlen": b"10"}
    check(server)


def test_addjob_takes_what_it_does_not_say(server: Server) -> None:
    server("QPOLICY", "q", "SET", "TTL", 3_600, "RETRY", 7, "REPLICATE", 1)
    assert terms(server) == (3_600, 7, 1)
    assert terms(server, "TTL", 60) == (60, 7, 1)
    assert terms(server, "RETRY", 9) == (3_600, 9, 1)
    assert terms(server, "KEY", "key") == (3_600, 7, 1)
    assert terms(server, queue="other") == (86_400, 300, 1)
    server("QPOLICY", "q", "SET", "TTL", 600)
    server("QPOLICY", "q", "UNSET", "retry")
    assert terms(server) == (600, 60, 1)
    server("QPOLICY", "q", "UNSET", "ttl", "replicate")
    assert terms(server) == (86_400, 300, 1)
    assert not server.state.queues.policies.defaults


def test_terms_are_defaults_as_well(server: Server) -> None:
    server("QPOLICY", "q", "SET", "MAXTRIES", 3, "BACKOFF", 2, 60, "KEEPDEAD", 100, "RESULT", 50)
    assert told(server) == {b"maxtries": b"3", b"backoff": b"2 60", b"keepdead": b"100", b"result": b"50"}
    assert server.job(server.add("q")).options.terms == Terms(3, 2_000, 60_000, 100_000, 50_000)
    said = ("MAXTRIES", 5, "BACKOFF", 4, 8, "KEEPDEAD", 7, "RESULT", 6, "HEADER", "name", "value")
    terms = server.job(server.add("q", "body", *said)).options.terms
    assert terms == Terms(5, 4_000, 8_000, 7_000, 6_000, ((b"name", b"value"),))
    server("QPOLICY", "q", "UNSET", "maxtries", "backoff", "keepdead", "result")
    assert server.job(server.add("q")).options.terms is NO_TERMS
    server("QPOLICY", "q", "SET", "BACKOFF", 2)
    assert told(server) == {b"backoff": b"2"}
    assert server.job(server.add("q")).options.terms == Terms(0, 2_000, 3_600_000)


def test_a_job_keeps_the_options_that_it_was_added_with(server: Server) -> None:
    job_id = server.add("q")
    server("QPOLICY", "q", "SET", "TTL", 60)
    shown = server.show(job_id)
    assert shown is not None
    assert shown["ttl"] == 86_400


def test_maxlen_is_a_default_that_addjob_may_overrule(server: Server) -> None:
    server("QPOLICY", "q", "SET", "MAXLEN", 1)
    server.add("q")
    full = "MAXLEN Queue is already longer than the specified MAXLEN count"
    assert server.refusal("ADDJOB", "q", "body", 0) == f"{full} - QPOLICY of the queue says MAXLEN 1"
    assert server.add("q", "body", "MAXLEN", 2)
    assert server.refusal("ADDJOB", "q", "body", 0, "MAXLEN", 2) == full


def test_defaults_are_held_against_what_addjob_says(server: Server) -> None:
    server("QPOLICY", "q", "SET", "TTL", 60)
    assert "DELAY is greater than TTL" in server.refusal("ADDJOB", "q", "body", 0, "DELAY", 60)
    assert "DELAY is greater than TTL" in server.refusal("ADDJOB", "q", "body", 0, "DELAY", 60, "KEY", "key")
    server("QPOLICY", "q", "SET", "RETRY", 0, "REPLICATE", 1)
    assert "REPLICATE to 1" in server.refusal("ADDJOB", "q", "body", 0, "REPLICATE", 2)


@pytest.mark.parametrize(
    ("said", "begin", "end"),
    [
        (("DELAY", 60), "ERR The specified DELAY is greater than TTL.", "TTL 60, RETRY 0, REPLICATE 1"),
        (("REPLICATE", 2), "ERR With RETRY set to 0 please", "TTL 60, RETRY 0"),
        (("MAXTRIES", 3), "ERR MAXTRIES and BACKOFF go with a RETRY above 0", "TTL 60, RETRY 0, REPLICATE 1"),
        (("REPLICATE", 2, "MAXTRIES", 3), "ERR MAXTRIES and BACKOFF go with a RETRY above 0", "TTL 60, RETRY 0"),
    ],
)
def test_an_error_that_comes_of_a_default_names_it(
    server: Server, said: tuple[str | int, ...], begin: str, end: str
) -> None:
    server("QPOLICY", "q", "SET", "TTL", 60, "RETRY", 0, "REPLICATE", 1)
    line = server.refusal("ADDJOB", "q", "body", 0, *said)
    assert line.startswith(begin)
    assert line.endswith(f" - QPOLICY of the queue says {end}")
    assert "QPOLICY" not in server.refusal("ADDJOB", "plain", "body", 0, "DELAY", 60, "TTL", 60)


def test_a_queue_of_jobs_with_one_try_has_one_copy_of_each(server: Server) -> None:
    line = "ERR RETRY 0 goes with REPLICATE 1, in one queue: SET both, or take a RETRY above 0"
    assert server.refusal("QPOLICY", "q", "SET", "RETRY", 0) == line
    server("QPOLICY", "q", "SET", "REPLICATE", 1)
    server("QPOLICY", "q", "SET", "RETRY", 0)
    assert server.refusal("QPOLICY", "q", "SET", "REPLICATE", 2) == line
    server("QPOLICY", "q", "SET", "TTL", 60)
    server("QPOLICY", "q", "SET", "REPLICATE", 2, "RETRY", 9)


def test_a_job_with_one_try_takes_no_defaults_of_tries(server: Server) -> None:
    server("QPOLICY", "q", "SET", "MAXTRIES", 3, "BACKOFF", 2, 60, "KEEPDEAD", 100)
    for key in ((), ("KEY", "key")):
        shown = server.show(server.add("q", "body", "RETRY", 0, *key))
        assert shown is not None
        assert (shown["max-tries"], shown["backoff"], shown["keep-dead"], shown["retry"]) == (0, [0, 0], 100, 0)
    assert "RETRY above 0" in server.refusal("ADDJOB", "q", "body", 0, "RETRY", 0, "MAXTRIES", 2)


@pytest.mark.parametrize("more", [("MAXTRIES", 3), ("BACKOFF", 2)])
def test_a_queue_does_not_ask_for_one_try_and_for_more(server: Server, more: tuple[str | int, ...]) -> None:
    line = (
        "ERR RETRY 0 goes without MAXTRIES and BACKOFF, in one queue: UNSET what is not meant, or take a RETRY above 0"
    )
    assert server.refusal("QPOLICY", "q", "SET", "RETRY", 0, "REPLICATE", 1, *more) == line
    server("QPOLICY", "q", "SET", *more)
    assert server.refusal("QPOLICY", "q", "SET", "RETRY", 0, "REPLICATE", 1) == line
    server("QPOLICY", "q", "UNSET", more[0])
    server("QPOLICY", "q", "SET", "RETRY", 0, "REPLICATE", 1)
    assert server.refusal("QPOLICY", "q", "SET", *more) == line
    server("QPOLICY", "q", "SET", "RETRY", 9, *more)
    assert set(told(server)) == {b"retry", b"replicate", str(more[0]).lower().encode()}


def test_two_sides_of_a_partition_that_ask_for_one_try_and_for_more_leave_the_queue_usable() -> None:
    cluster = Cluster(2)
    a, b = cluster
    cluster.isolate(a)
    a("QPOLICY", "q", "SET", "RETRY", 0, "REPLICATE", 1)
    b("QPOLICY", "q", "SET", "MAXTRIES", 3, "BACKOFF", 2)
    cluster.heal(a, b)
    cluster.advance(100)
    assert set(told(a)) == {b"retry", b"replicate", b"maxtries", b"backoff"}
    assert terms(a)[1] == 0


def test_copies_that_a_queue_demands_are_demanded_as_if_they_were_said(server: Server) -> None:
    server("QPOLICY", "q", "SET", "REPLICATE", 3)
    assert server.refusal("ADDJOB", "q", "body", 0).startswith("NOREPL")
    assert server.add("q", "body", "REPLICATE", 1)


def test_other_commands_take_no_defaults(server: Server) -> None:
    server("QPOLICY", "q", "SET", "TTL", 60, "MAXLEN", 1)
    for words in (("RQ.PUSH", "q", "one", "two"), ("WQ.ENQUEUE", "q", "TASKS", "one", "two")):
        server(*words)
    assert all(job.options.ttl_ms > 60_000 for job in server.state.jobs)
    assert len(server.state.jobs) == 4


@pytest.mark.parametrize(
    "words",
    [
        ("SET",), ("TTL", "60"), ("TTL", "60", "GET"), ("SET", "GET"), ("SET", "TTL", "60", "UNSET", "retry"),
    ],
)  # fmt: skip
def test_one_verb_at_a_time(server: Server, words: tuple[str, ...]) -> None:
    assert server.refusal("QPOLICY", "q", *words) == MISUSE
    assert not server.state.queues.policies.registers


@pytest.mark.parametrize("words", [("inflight",), ("FOO",), ("TTL", "60"), ("SET", "TTL", "60"), ("UNSET", "ttl")])
def test_get_takes_no_field(server: Server, words: tuple[str, ...]) -> None:
    line = "ERR QPOLICY GET takes no field: it shows all fields that are set"
    assert server.refusal("QPOLICY", "q", "GET", *words) == line
    assert not server.state.queues.policies.registers


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("SET", "TTL", "0"), "ERR TTL must be a number > 0 - allowed are seconds, with fractions"),
        (("SET", "RETRY", "-1"), "ERR RETRY time must be a non negative number - allowed are seconds, with fractions"),
        (("SET", "REPLICATE", "65536"), "ERR REPLICATE must be between 1 and 65535 - allowed are whole numbers"),
        (("SET", "MAXLEN", "0"), "ERR MAXLEN must be a positive number - allowed are whole numbers"),
        (("UNSET", "pause"), f"ERR unknown field 'pause'; expected one of {NAMES}"),
        (("SET", "MAXTRIES", "0"), "ERR MAXTRIES must be a whole number from 1 to 65535"),
        (("SET", "BACKOFF", "0"), "ERR BACKOFF delays must be numbers of seconds > 0"),
        (("SET", "KEEPDEAD", "-1"), "ERR KEEPDEAD time must be a number of seconds, 0 or more"),
        (("SET", "RESULT", "0"), "ERR RESULT time must be a number of seconds > 0"),
        (("UNSET",), f"ERR syntax error - UNSET without its value: allowed are {NAMES.replace(', ', ' | ')}"),
        (("what",), f"{UNKNOWN} 'what'; expected {OPTIONS}"),
        (("SET", "MAXTRY", "3"), f"{UNKNOWN} 'MAXTRY'; expected {OPTIONS}"),
    ],
)
def test_values_are_bounded_as_those_of_addjob(server: Server, words: tuple[str, ...], line: str) -> None:
    assert server.refusal("QPOLICY", "q", *words) == line
    assert not server.state.queues.policies.registers


def test_a_full_node_refuses_new_fields_and_changes_those_that_are_there(server: Server) -> None:
    server("QPOLICY", "q", "SET", "TTL", 60)
    server.state.memory.set_limit(1)
    assert server.refusal("QPOLICY", "q", "SET", "RETRY", 60).startswith("OOM")
    server("QPOLICY", "q", "SET", "TTL", 70)
    server("QPOLICY", "q", "UNSET", "ttl", "retry")
    assert told(server) == {}
    check(server)


def test_a_name_that_no_queue_may_have_is_refused(server: Server) -> None:
    assert server.refusal("QPOLICY", "q" * 65_001, "SET", "TTL", 60).startswith("ERR ")


def test_a_default_makes_no_queue_and_lets_the_pause_of_a_node_be(server: Server) -> None:
    server("QPOLICY", "q", "SET", "TTL", 60)
    assert not server.state.queues.by_name
    server("PAUSE", "q", "in", "node")
    server("QPOLICY", "q", "SET", "TTL", 70)
    assert server("PAUSE", "q", "state") == b"in"


def test_options_are_made_again_when_the_defaults_change(server: Server) -> None:
    for ttl in (*range(100, 140), 100):
        server("QPOLICY", "q", "SET", "TTL", ttl)
        assert terms(server)[0] == ttl


# Several nodes.


def test_every_node_adds_with_the_defaults_and_one_that_was_away_learns_them() -> None:
    a, b, c = cluster = Cluster(3)
    cluster.isolate(c)
    a("QPOLICY", "q", "SET", "TTL", 600, "REPLICATE", 1)
    b("QPOLICY", "q", "SET", "RETRY", 5)
    c("QPOLICY", "q", "SET", "MAXLEN", 7)
    assert terms(b) == (600, 5, 1)
    assert terms(c, "REPLICATE", 1) == (86_400, 300, 1)
    cluster.heal(b, c)
    cluster.heal(a, c)
    for member in cluster:
        assert terms(member) == (600, 5, 1)
        assert told(member) == {b"ttl": b"600", b"retry": b"5", b"replicate": b"1", b"maxlen": b"7"}
        check(member)


def test_fields_that_were_unset_are_forgotten_after_a_week() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a("QPOLICY", "q", "SET", "TTL", 60, "RETRY", 5)
    b("QPOLICY", "q", "UNSET", "ttl")
    cluster.advance(FORGOTTEN_MS + 16 * SWEEP_MS)
    for member in cluster:
        assert told(member) == {b"retry": b"5"}
        assert len(member.state.queues.policies) == 1
        check(member)
