"""Limits of a queue as clients set and see them: QPOLICY, SLOTS, QSTAT FULL, and why a job may not run (SHOW)."""

from typing import Any

import pytest

from disqued.commands.reference import errors
from disqued.commands.slots import NEVER, seconds_left
from disqued.commands.table import BLOCKED, MANUAL
from disqued.errors import LogWithoutLimits
from tests.cluster_fixtures import Cluster
from tests.core_fixtures import Server

PARTS = "without its parts: expected"
MISPLACED = "at the wrong place: expected RATE or GROUPRATE count PER per [BURST burst]"
OPTIONS = (
    "GET, SET, TTL, RETRY, REPLICATE, MAXLEN, MAXTRIES, BACKOFF, KEEPDEAD, RESULT, FAIR, INFLIGHT, GROUPINFLIGHT, RATE,"
    " GROUPRATE, PARTITION, IDLE or UNSET"
)


@pytest.fixture
def server() -> Server:
    return Server()


def told(server: Server, queue: str = "q") -> dict[bytes, bytes]:
    """The fields of a policy that are set, and their values."""
    return {field: value for field, value, _, _ in server("QPOLICY", queue)}


def facts(server: Server, queue: str = "q") -> dict[bytes, Any]:
    values = server("QSTAT", queue, "FULL")
    return dict(zip(values[::2], values[1::2], strict=True))


def blocked(server: Server, job_id: bytes) -> bytes | None:
    values = server("SHOW", job_id)
    shown = dict(zip(values[::2], values[1::2], strict=True))
    found: bytes | None = shown.get(b"blocked")
    return found


def add(server: Server, *options: str | int, queue: str = "q") -> bytes:
    job_id: bytes = server("ADDJOB", queue, "body", 0, *options)
    return job_id


def take(server: Server, client: str, queue: str = "q") -> list[bytes]:
    """Let a client wait for a job; returns the ids of what it was given within a moment."""
    rows = server("GETJOB", "FROM", queue, client=client)
    server.advance(50)
    if rows is BLOCKED:
        rows = server.answers.get(client, [[]])[0]
    return [row[1] for row in rows]


# QPOLICY.


def test_limits_are_set_shown_and_unset(server: Server) -> None:
    words = ("INFLIGHT", 5, "GROUPINFLIGHT", 1, "RATE", 10, "PER", 1, "BURST", 20, "PARTITION", "available")
    assert server("QPOLICY", "q", "SET", *words) == b"OK"
    assert told(server) == {
        b"inflight": b"5", b"groupinflight": b"1", b"rate": b"10 PER 1 BURST 20", b"partition": b"available",
    }  # fmt: skip
    limits = server.state.queues.policies.limits_of(b"q")
    assert (limits.in_flight, limits.group_in_flight, limits.is_available) == (5, 1, True)
    assert limits.rate == (10, 1_000, 20)
    server("QPOLICY", "q", "UNSET", "inflight", "groupinflight", "rate", "partition")
    assert told(server) == {}
    assert b"q" not in server.state.queues.policies.gates


def test_what_get_shows_of_a_rate_can_be_set_again(server: Server) -> None:
    server("QPOLICY", "q", "SET", "GROUPRATE", 30, "PER", 60)
    value = told(server)[b"grouprate"]
    assert value == b"30 PER 60"
    server("QPOLICY", "other", "SET", "GROUPRATE", *value.split())
    assert told(server, "other") == {b"grouprate": value}
    assert server.state.queues.policies.limits_of(b"other").group_rate == (30, 60_000, 30)


def test_a_burst_ends_at_the_next_option_and_words_may_be_small(server: Server) -> None:
    server("QPOLICY", "q", "SET", "rate", 3, "per", 2, "INFLIGHT", 7, "grouprate", 1, "per", 1, "burst", 4, "TTL", 9)
    assert told(server) == {
        b"ttl": b"9", b"inflight": b"7", b"rate": b"3 PER 2", b"grouprate": b"1 PER 1 BURST 4",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("INFLIGHT",), "syntax error - INFLIGHT without its value: allowed are whole numbers from 1 to 10000"),
        (("PARTITION",), "syntax error - PARTITION without its value: allowed are strict | available"),
        (("RATE", 10), f"RATE {PARTS} RATE count PER per [BURST burst]"),
        (("RATE",), f"RATE {PARTS} RATE count PER per [BURST burst]"),
        (("RATE", 10, 1), f"RATE {PARTS} RATE count PER per [BURST burst]"),
        (("RATE", 10, "PER"), f"RATE {PARTS} RATE count PER per [BURST burst]"),
        (("RATE", 10, "PER", 1, "BURST"), f"RATE {PARTS} RATE count PER per [BURST burst]"),
        (("GROUPRATE", 10), f"GROUPRATE {PARTS} GROUPRATE count PER per [BURST burst]"),
        (("RATE", 10, "PER", 1, "PER", 2), f"syntax error - PER {MISPLACED}"),
        (("RATE", 10, "PER", 1, "BURST", 5, "BURST", 6), f"syntax error - BURST {MISPLACED}"),
        (("FAIR", "yes"), f"syntax error - unknown option 'yes'; expected {OPTIONS}"),
        (("GROUPINFLIGHTS", 1), f"syntax error - unknown option 'GROUPINFLIGHTS'; expected {OPTIONS}"),
        (("FAIR", "\r\n"), f"syntax error - unknown option '\\r\\n'; expected {OPTIONS}"),
    ],
)
def test_errors_say_what_is_allowed(server: Server, words: tuple[str | int, ...], line: str) -> None:
    assert server.refusal("QPOLICY", "q", "SET", *words) == f"ERR {line}"
    assert not server.state.queues.policies.registers
    assert line.startswith("syntax error") or f"ERR {line}" in errors(MANUAL["QPOLICY"])


@pytest.mark.parametrize(
    ("words", "line", "word"),
    [
        (("INFLIGHT", 0), "INFLIGHT takes whole numbers from 1 to 10000, not <word>", "0"),
        (("INFLIGHT", 10_001), "INFLIGHT takes whole numbers from 1 to 10000, not <word>", "10001"),
        (("GROUPINFLIGHT", "x"), "GROUPINFLIGHT takes whole numbers from 1 to 10000, not <word>", "x"),
        (("RATE", 0, "PER", 1), "RATE takes whole numbers from 1 to 1000000, not <word>", "0"),
        (("RATE", "0.5", "PER", 1), "RATE takes whole numbers from 1 to 1000000, not <word>", "0.5"),
        (("RATE", 1, "PER", "1000000.001"), "PER takes seconds above 0 to 1000000, not <word>", "1000000.001"),
        (("RATE", 1, "PER", 1, "BURST", 10**7), "RATE takes whole numbers from 1 to 1000000, not <word>", "10000000"),
        (("GROUPRATE", 1, "PER", ""), "PER takes seconds above 0 to 1000000, not <word>", ""),
        (("PARTITION", "maybe"), "unknown PARTITION <word>; expected strict or available", "maybe"),
    ],
)
def test_errors_repeat_the_value_that_is_wrong(
    server: Server, words: tuple[str | int, ...], line: str, word: str
) -> None:
    assert server.refusal("QPOLICY", "q", "SET", *words) == f"ERR {line.replace('<word>', repr(word))}"
    assert not server.state.queues.policies.registers
    assert f"ERR {line}" in errors(MANUAL["QPOLICY"])


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("QPOLICY", "q", "SET", "INFLIGHT", 5, "INFLIGHT", 6), "INFLIGHT"),
        (("QPOLICY", "q", "SET", "PARTITION", "strict", "partition", "available"), "PARTITION"),
        (("QPOLICY", "q", "SET", "RATE", 1, "PER", 1, "RATE", 2, "PER", 1), "RATE"),
        (("QPOLICY", "q", "SET", "FAIR", "FAIR"), "FAIR"),
        (("THROTTLE", "q", 1, "GROUP", "a", "GROUP", "b"), "GROUP"),
        (("SLOTS", "q", "COUNT", 1, "COUNT", 1), "COUNT"),
        (("QPURGE", "q", "DRYRUN", "DRYRUN"), "DRYRUN"),
        (("ADDJOB", "q", "body", 0, "GROUP", "a", "RETRY", 5, "GROUP", "b"), "GROUP"),
        (("ADDJOB", "q", "body", 0, "MAXTRIES", 1, "MAXTRIES", 1), "MAXTRIES"),
        (("ADDJOB", "q", "body", 0, "BACKOFF", 1, "BACKOFF", 1, 2), "BACKOFF"),
        (("ADDJOB", "q", "body", 0, "KEEPDEAD", 1, "KEEPDEAD", 1), "KEEPDEAD"),
        (("ADDJOB", "q", "body", 0, "RESULT", 1, "RESULT", 1), "RESULT"),
        (("ADDJOB", "q", "body", 0, "KEY", "a", "KEY", "b"), "KEY"),
    ],
)
def test_an_option_that_is_given_twice_is_refused(server: Server, words: tuple[str | int, ...], option: str) -> None:
    assert server.refusal(*words) == f"ERR {option} is given twice; allowed is once"
    assert not server.state.queues.policies.registers
    assert not server.state.jobs
    [line] = [each for each in errors(MANUAL[str(words[0])]) if "<option> is given twice" in each]
    assert option in line


def test_of_an_option_of_disque_the_last_one_counts(server: Server) -> None:
    shown = server.show(server.add("q", "body", "RETRY", 5, "TTL", 50, "RETRY", 6, "TTL", 60, "ASYNC", "ASYNC"))
    assert shown is not None
    assert (shown["retry"], shown["ttl"]) == (6, 60)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("THROTTLE", "q", 1, "GROUP"), "syntax error - GROUP without its value: allowed are 1 to 255 bytes"),
        (("THROTTLE", "q", 1, "GROP", "a"), "syntax error - unknown option 'GROP'; expected GROUP"),
        (("SLOTS", "q", "x" * 200), f"syntax error - unknown option '{'x' * 128}'; expected COUNT"),
        (("ADDJOB", "q", "b", 0, "GROUP"), "syntax error - GROUP without its value: allowed are 1 to 255 bytes"),
        (("THROTTLE", "q", 1, "GROUP", "a", "GROUP", "b"), "GROUP is given twice; allowed is once"),
    ],
)
def test_a_syntax_error_names_the_wrong_word(server: Server, words: tuple[str | int, ...], line: str) -> None:
    assert server.refusal(*words) == f"ERR {line}"


LIMITS = (("INFLIGHT", 3), ("GROUPINFLIGHT", 1), ("RATE", 1, "PER", 1), ("GROUPRATE", 1, "PER", 1), ("FAIR",))


@pytest.mark.parametrize("words", [*LIMITS, ("PARTITION", "strict"), ("TTL", 9, "INFLIGHT", 3)])
def test_limits_of_a_log_are_refused(server: Server, words: tuple[str | int, ...]) -> None:
    server("QADD", "log", 1_000, "event")
    line = f"WRONGTYPE {LogWithoutLimits.__doc__}"
    assert server.refusal("QPOLICY", "log", "SET", *words) == line
    assert not server.state.queues.policies.registers
    assert line in errors(MANUAL["QPOLICY"])


def test_limits_of_a_queue_that_became_a_log_can_be_taken_back(server: Server) -> None:
    server("QPOLICY", "log", "SET", "INFLIGHT", 3, "MAXLEN", 9)
    server("QADD", "log", 1_000, "event")
    server.state.peers.has_quorum = False
    assert facts(server, "log")[b"slots-blocked"] == b""
    assert server("QPOLICY", "log", "SET", "MAXLEN", 10) == b"OK"
    assert server("QPOLICY", "log", "UNSET", "inflight") == b"OK"
    assert told(server, "log") == {b"maxlen": b"10"}


# SLOTS and QSTAT.


def test_slots_tell_who_has_a_job_and_for_how_long(server: Server) -> None:
    server("QPOLICY", "q", "SET", "INFLIGHT", 2)
    first, second, third = [add(server, "GROUP", group, "RETRY", 60) for group in ("acme", "acme", "bob")]
    assert server("SLOTS", "q") == []
    assert take(server, "anna") == [first]
    assert take(server, "bert") == [second]
    assert take(server, "carl") == []
    # A slot lasts for some seconds longer than the lease, as the answer of the steward takes its time.
    assert server("SLOTS", "q") == [
        [first, b"acme", server.node.id, 65, b"anna"], [second, b"acme", server.node.id, 65, b"bert"],
    ]  # fmt: skip
    assert server("SLOTS", "q", "COUNT", 1) == [[first, b"acme", server.node.id, 65, b"anna"]]
    figures = facts(server)
    assert (figures[b"inflight"], figures[b"partition"], figures[b"slots"]) == (2, b"strict", 2)
    assert (figures[b"slots-awaited"], figures[b"steward"]) == (1, server.node.id)
    server("ACKJOB", first)
    server.advance(50)
    assert [row[0] for row in server("SLOTS", "q")] == [second, third]
    assert facts(server)[b"slots-awaited"] == 0


def test_a_queue_without_limits_has_no_slots(server: Server) -> None:
    add(server)
    assert take(server, "anna")
    assert server("SLOTS", "q") == server("SLOTS", "none") == []
    figures = facts(server)
    assert [figures[name] for name in (b"inflight", b"rate", b"partition", b"slots")] == [0, b"", b"", 0]
    assert figures[b"steward"] == b""


@pytest.mark.parametrize(
    ("retry", "left", "without_job"), [(0, 305, 305), (2**31 - 1, 2**31 - 1, 2**31 + 4), (None, 2_592_000, NEVER)]
)
def test_a_slot_that_ends_with_the_acknowledgement_alone_lasts_as_long_as_its_job(
    server: Server, retry: int | None, left: int, without_job: int
) -> None:
    server("QPOLICY", "q", "SET", "INFLIGHT", 2)
    if retry is None:
        server("RQ.PUSH", "q", "element")
        server("RQ.POP", "KEYS", "q", client="anna")
        server.advance(50)
    else:
        add(server, "TTL", 2**31 - 1, "RETRY", retry, "REPLICATE", 1)
        take(server, "anna")
    assert [row[3] for row in server("SLOTS", "q")] == [left]
    witness = server.node.witnesses.known(b"q")
    assert witness is not None
    [slot] = witness.table.by_id.values()
    assert seconds_left(slot, None, server.state.now) == without_job


def test_a_slot_is_told_to_end_with_the_life_of_its_job() -> None:
    cluster = Cluster(2)
    cluster.advance(10_000)
    a, b = cluster.members
    a("QPOLICY", "q", "SET", "INFLIGHT", 1)
    cluster.advance(500)
    first = a("ADDJOB", "q", "body", 0, "REPLICATE", 1, "TTL", 4, "RETRY", 60)
    a("ADDJOB", "q", "body", 0, "REPLICATE", 1, "RETRY", 60)
    a.wait("anna", "q")
    a.wait("bert", "q")
    cluster.advance(50)
    assert [row[3] for row in a("SLOTS", "q")] == [4]
    assert [row[3] for row in b("SLOTS", "q")] == [65], "a node without the job does not know its life"
    cluster.advance(3_000)
    assert [row[0] for row in a("SLOTS", "q")] == [first]
    assert "bert" not in a.answers
    cluster.advance(1_000)
    assert [row[3] for row in a("SLOTS", "q")] == [65]
    assert "bert" in a.answers


def test_a_log_has_no_slots_and_a_count_is_above_zero(server: Server) -> None:
    server("QADD", "log", 60, "event")
    assert server.refusal("SLOTS", "log").startswith("WRONGTYPE ")
    assert server.refusal("SLOTS", "q", "COUNT", 0) == (
        "ERR COUNT must be a number greater than zero - allowed are whole numbers"
    )


def test_every_node_shows_the_slots_of_the_whole_cluster() -> None:
    cluster = Cluster(3)
    cluster.advance(10_000)
    a, b, c = cluster.members
    a("QPOLICY", "q", "SET", "INFLIGHT", 5)
    cluster.advance(500)
    for member in (a, b):
        member("ADDJOB", "q", "body", 0, "REPLICATE", 1)
        member("GETJOB", "FROM", "q", client=member.name)
    cluster.advance(1_000)
    had = {(member.answers[member.name][0][0][1], member.node.id) for member in (a, b)}
    for member in (a, b, c):
        assert {(row[0], row[2]) for row in member("SLOTS", "q")} == had


# Why a job may not run.


def test_a_job_of_a_queue_without_policy_says_nothing(server: Server) -> None:
    assert blocked(server, add(server)) is None


def test_a_pause_and_throttles_are_told(server: Server) -> None:
    job_id, other = add(server, "GROUP", "acme"), add(server)
    server("PAUSE", "q", "out")
    assert blocked(server, job_id) == b"paused"
    server("PAUSE", "q", "none")
    server("THROTTLE", "q", 5)
    assert blocked(server, job_id) == b"throttled for 5 s"
    server.advance(5_100)
    server("THROTTLE", "q", 5, "GROUP", "acme")
    assert blocked(server, job_id) == b"group acme throttled for 5 s"
    assert blocked(server, other) == b""
    server.advance(5_100)
    assert blocked(server, job_id) is None


def test_slots_of_a_group_and_of_the_queue_are_told(server: Server) -> None:
    server("QPOLICY", "q", "SET", "GROUPINFLIGHT", 1)
    first, second = add(server, "GROUP", "acme"), add(server, "GROUP", "acme")
    plain = [add(server), add(server)]
    assert blocked(server, second) == b""
    assert take(server, "anna") == [first]
    assert blocked(server, second) == b"group acme has its 1 running job"
    assert blocked(server, plain[0]) == b""
    assert take(server, "bert") == plain[:1]
    assert blocked(server, plain[1]) == b"the group of jobs without GROUP has its 1 running job"
    server("QPOLICY", "q", "SET", "INFLIGHT", 2)
    server("QPOLICY", "q", "UNSET", "groupinflight")
    server.advance(50)
    assert blocked(server, second) == b"the queue has its 2 running jobs"
    server("ACKJOB", first)
    server.advance(50)
    assert blocked(server, second) == b""


def test_a_rate_is_told_to_those_who_wait(server: Server) -> None:
    server("QPOLICY", "q", "SET", "RATE", 10, "PER", 1, "BURST", 1)
    first, second = add(server, "GROUP", "acme"), add(server, "GROUP", "acme")
    assert take(server, "anna") == []  # a bucket is empty at first
    assert blocked(server, first) == b"the rate of the queue is used up"
    server.advance(100)
    assert blocked(server, first) is None
    server("QPOLICY", "q", "UNSET", "rate")
    server("QPOLICY", "q", "SET", "GROUPRATE", 1, "PER", 1_000)
    server.advance(50)
    take(server, "bert")
    assert blocked(server, second) == b"the rate of group acme is used up"


def test_a_missing_majority_is_told_unless_the_limits_are_available() -> None:
    cluster = Cluster(3)
    cluster.advance(10_000)
    a = cluster.members[0]
    a("QPOLICY", "q", "SET", "INFLIGHT", 5)
    job_id = a("ADDJOB", "q", "body", 0, "REPLICATE", 1)
    cluster.advance(500)
    assert blocked(a, job_id) == b""
    cluster.isolate(a)
    cluster.advance(60_000)
    assert blocked(a, job_id) == b"no majority of the nodes can be reached"
    assert facts(a)[b"slots-blocked"] == b"no majority of the nodes can be reached"
    a("QPOLICY", "q", "SET", "PARTITION", "available")
    assert blocked(a, job_id) == facts(a)[b"slots-blocked"] == b""


def test_a_steward_that_waits_for_a_lost_node_says_so_until_that_is_forgotten() -> None:
    cluster = Cluster(3)
    cluster.advance(10_000)
    a, b, lost = cluster.members
    a("QPOLICY", "q", "SET", "INFLIGHT", 5)
    cluster.advance(500)
    for member in (a, b):  # they crash, and come back without the third node: two do not know what was given
        member.node.witnesses.forget(b"q")
        member.node.witnesses.start()
    cluster.isolate(lost)
    job_id = a("ADDJOB", "q", "body", 0, "REPLICATE", 1)
    a.wait("anna", "q")
    b.wait("bert", "q")
    cluster.advance(20_000)
    assert "anna" not in a.answers
    steward, other = (a, b) if a.node.witnesses.steward_of(b"q") == a.id else (b, a)
    reasons = {
        steward: b"the steward waits for node %b to say which slots are known there; CLUSTER FORGET of a lost node ends"
        b" that" % lost.id[:8],
        other: b"the steward, node %b, does not know all slots yet; ask it which nodes it waits for" % steward.id[:8],
    }
    assert blocked(a, job_id) == reasons[a]
    for member in (a, b):
        assert facts(member)[b"slots-blocked"] == reasons[member]
        member("CLUSTER", "FORGET", lost.id)
    cluster.advance(1_000)
    assert len(a.answers.get("anna", [])) + len(b.answers.get("bert", [])) == 1
    assert [facts(member)[b"slots-blocked"] for member in (a, b)] == [b"", b""]


def test_a_queue_with_limits_is_described_before_its_first_job(server: Server) -> None:
    assert server("QSTAT", "q", "FULL") is None
    server("QPOLICY", "q", "SET", "INFLIGHT", 5, "RATE", 1, "PER", 1)
    figures = facts(server)
    assert (figures[b"len"], figures[b"inflight"], figures[b"rate"]) == (0, 5, b"1 PER 1 BURST 1")
    assert (figures[b"slots"], figures[b"steward"], figures[b"slots-blocked"]) == (0, server.node.id, b"")
    assert not server.state.queues.by_name, "to look makes no queue"
    server("QPOLICY", "q", "UNSET", "inflight", "rate")
    assert server("QSTAT", "q", "FULL") is None


# Ways of taking a job.


def with_consumers(server: Server, queue: str = "q") -> int:
    return len(server.state.queues.by_name[queue.encode()].leased)


@pytest.mark.parametrize(
    "words",
    [
        ("GETJOB", "COUNT", 5, "FROM", "q"),
        ("GETJOB", "NOHANG", "COUNT", 5, "FROM", "q"),
        ("RQ.POP", "q", "COUNT", 5),
        ("RQ.POP", "q", "COUNT", 5, "BLOCK", 10_000),
    ],
)
def test_every_way_of_taking_jobs_is_limited(server: Server, words: tuple[str | int, ...]) -> None:
    server("QPOLICY", "q", "SET", "INFLIGHT", 2)
    for _ in range(5):
        add(server, "RETRY", 60)
    for client in "abc":
        server(*words, client=client)
    server.advance(500)
    assert with_consumers(server) == len(server("SLOTS", "q")) == 2


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (("GETJOB", "COUNT", 5, "FROM", "q"), 1),
        (("RQ.POP", "COUNT", 5, "KEYS", "q"), 3),
        (("WQ.DEQUEUE", "q", "COUNT", 5, "BLOCK", 10_000), 3),
    ],
)
def test_a_call_takes_one_job_or_as_many_as_the_steward_gives_at_once(
    server: Server, words: tuple[str | int, ...], count: int
) -> None:
    server("QPOLICY", "q", "SET", "INFLIGHT", 3)
    for _ in range(5):
        add(server, "RETRY", 60)
    server("WORKER", "START", "ID", "anna", client="anna")
    server("WQ.WORK", "q", client="anna")
    server(*words, client="anna")
    server.advance(500)
    assert with_consumers(server) == len(server("SLOTS", "q")) == count


def test_the_slots_of_jobs_are_forgotten_with_the_last_limit(server: Server) -> None:
    server("QPOLICY", "q", "SET", "INFLIGHT", 1, "GROUPINFLIGHT", 1)
    had, *others = [add(server, "RETRY", 60) for _ in range(3)]
    assert take(server, "anna") == [had]
    server("QPOLICY", "q", "UNSET", "inflight")
    server("QPOLICY", "q", "SET", "INFLIGHT", 1)
    assert [row[0] for row in server("SLOTS", "q")] == [had]
    server("QPOLICY", "q", "UNSET", "inflight", "groupinflight")
    server("QPOLICY", "q", "SET", "INFLIGHT", 1)
    assert take(server, "bert") == others[:1]
    assert [row[0] for row in server("SLOTS", "q")] == others[:1]


def test_workers_are_limited_and_their_slots_end_with_them(server: Server) -> None:
    server("QPOLICY", "q", "SET", "INFLIGHT", 2)
    for _ in range(5):
        add(server, "RETRY", 60)
    for client in "ab":
        server("WORKER", "START", "ID", client, client=client)
        server("WQ.WORK", "q", client=client)
        server("WQ.DEQUEUE", "q", "COUNT", 5, client=client)
    server.advance(500)
    assert with_consumers(server) == len(server("SLOTS", "q")) == 2
    server("WORKER", "FAIL", "a")
    server("WORKER", "FAIL", "b")
    server.advance(500)
    assert with_consumers(server) == len(server("SLOTS", "q")) == 0


def test_a_job_that_is_recovered_keeps_its_slot(server: Server) -> None:
    server("QPOLICY", "q", "SET", "INFLIGHT", 1)
    first, _ = add(server, "RETRY", 60), add(server, "RETRY", 60)
    assert take(server, "anna") == [first]
    assert [row[0] for row in server("RQ.RECOVER", "q", 10, 0)] == [first]
    server.advance(500)
    assert [row[0] for row in server("SLOTS", "q")] == [first]
    assert take(server, "bert") == []
    server("ACKJOB", first)
    server.advance(500)
    assert with_consumers(server) == len(server("SLOTS", "q")) == 1


def test_a_command_that_waits_for_nothing_is_refused(server: Server) -> None:
    server("QPOLICY", "q", "SET", "INFLIGHT", 1)
    add(server)
    assert server.refusal("QRPOP", "q").startswith("WRONGTYPE the queue has limits")
    server("QPOLICY", "q", "UNSET", "inflight")
    assert server("QRPOP", "q") is not None


def test_events_of_a_log_are_not_limited(server: Server) -> None:
    server("QPOLICY", "log", "SET", "INFLIGHT", 1)
    for number in range(3):
        server("QADD", "log", 60, f"event {number}")
    assert all(server("QGET", "log", "g") for _ in range(3))
