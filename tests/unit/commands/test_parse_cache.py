"""Parse caches: a command from the cache does the same as one from the parser, and the caches are bounded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disqued.commands import parse_cache, table
from disqued.commands.jobs import AddJob
from disqued.commands.parse_cache import (
    CACHED,
    CACHED_BYTES,
    CACHED_WORDS,
    FEW,
    Acknowledgement,
    Addition,
    Fetch,
)
from disqued.commands.table import BLOCKED
from disqued.errors import CommandError
from tests.cluster_fixtures import Cluster
from tests.core_fixtures import UNKNOWN_ID, Server, words

ADD, GET, ACK = (table.PLAIN[name] for name in (b"ADDJOB", b"GETJOB", b"ACKJOB"))


def parse_cached(*said: str | bytes | int) -> Any:
    """The call for a session without limits."""
    line = words(said)
    return table.PLAIN[line[0]].parse_cached(line)


@pytest.fixture(autouse=True)
def empty_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep nothing of other tests."""
    monkeypatch.setattr(ADD, "parse_cached", parse_cache.cached_options(ADD.parse))
    monkeypatch.setattr(GET, "parse_cached", parse_cache.cached_fetches(GET.parse))


# ---- The same as the parser.

QUEUES = st.sampled_from(["a", "b", ""])
NUMBERS = st.sampled_from([0, 1, 2, 5, 100_000, -1, "x", "", 2**31, "0.5", "1e3", "1e400"])
OPTIONS = st.one_of(
    st.tuples(st.sampled_from(["TTL", "RETRY", "DELAY", "REPLICATE", "MAXLEN", "ttl"]), NUMBERS),
    st.sampled_from([("ASYNC",), ("KEY", "k"), ("KEY", ""), ("WHAT",), ("TTL",)]),
)
ADDITIONS = st.builds(
    lambda queue, timeout, options: ("ADDJOB", queue, "body", timeout, *(word for each in options for word in each)),
    QUEUES, NUMBERS, st.lists(OPTIONS, max_size=3),
)  # fmt: skip
FETCHES = st.builds(
    lambda options, queues: ("GETJOB", *(word for each in options for word in each), "FROM", *queues),
    st.lists(
        st.one_of(
            st.sampled_from([("NOHANG",), ("WITHCOUNTERS",), ("ORDERED",), ("WORKER", "w")]),
            st.tuples(st.sampled_from(["COUNT", "TIMEOUT"]), NUMBERS),
        ),
        max_size=3,
    ),
    st.lists(QUEUES, max_size=3),
)  # fmt: skip
#: Acknowledged are jobs by their number, or something else.
ACKS = st.tuples(
    st.just("ACKJOB"), st.lists(st.one_of(st.integers(0, 5), st.sampled_from([UNKNOWN_ID, b"DIxSQ", b""])), max_size=4)
)
PAUSES = st.tuples(st.just("advance"), st.sampled_from([1, 1_000, 400_000]))
OTHERS = st.sampled_from([("PAUSE", "a", "in"), ("PAUSE", "a", "none"), ("QLEN", "a"), ("QGET", "a"), ("ADDJOB", "a")])


def play(server: Server, story: list[tuple[Any, ...]]) -> list[Any]:
    """What a server answers, in turn, and what it has in the end."""
    told: list[Any] = []
    ids: list[bytes] = []
    for number, (name, *given_words) in enumerate(story):
        rest = given_words
        if name == "advance":
            server.advance(*rest)
            continue
        if name == "ACKJOB":
            rest = [ids[word % len(ids)] if isinstance(word, int) and ids else word for word in given_words[0]]
        try:
            value = server(name, *rest, client=f"client {number}")
        except CommandError as error:
            value = error.line
        if name == "ADDJOB" and isinstance(value, bytes) and value[:2] == b"DI":
            ids.append(value)
        told.append("BLOCKED" if value is BLOCKED else value)
    jobs = sorted((job.id, job.queue, job.state, job.requeue_at, job.expires_at) for job in server.state.jobs)
    return [*told, dict(server.answers), jobs, len(server.journal)]


@given(st.lists(st.one_of(ADDITIONS, FETCHES, ACKS, PAUSES, OTHERS), max_size=25))
def test_commands_from_the_cache_do_the_same_as_those_from_the_parser(story: list[tuple[Any, ...]]) -> None:
    assert play(Server(), story) == play(Server(reads_all=True), story)


# ---- What is cached.


def test_options_are_parsed_once_and_serve_every_queue_and_body() -> None:
    assert isinstance(parse_cached("ADDJOB", "a", "one", 0, "TTL", 5), AddJob)
    again = parse_cached("ADDJOB", "b", "two", 0, "TTL", 5)
    assert isinstance(again, Addition)
    assert (again.queue, again.body) == (b"b", b"two")
    assert parse_cached("ADDJOB", "c", "three", 0, "TTL", 5).options is again.options
    assert isinstance(parse_cached("ADDJOB", "a", "one", 0, "TTL", 6), AddJob)


def test_a_job_with_a_key_is_parsed_each_time() -> None:
    for _ in range(2):
        assert isinstance(parse_cached("ADDJOB", "a", "one", 0, "KEY", "k"), AddJob)


def test_a_fetch_is_parsed_once() -> None:
    first = parse_cached("GETJOB", "FROM", "a", "b")
    assert isinstance(first, Fetch)
    assert parse_cached("GETJOB", "FROM", "a", "b") is first
    assert parse_cached("GETJOB", "FROM", "b", "a") is not first


@pytest.mark.parametrize("option", [("WITHCOUNTERS",), ("ORDERED",), ("WORKER", "w")], ids=str)
def test_a_fetch_with_more_in_its_answer_or_for_a_worker_is_parsed_once(
    option: tuple[str, ...],
) -> None:
    first = parse_cached("GETJOB", *option, "FROM", "a")
    assert isinstance(first, Fetch)
    assert parse_cached("GETJOB", *option, "FROM", "a") is first


def test_long_fetches_are_not_cached() -> None:
    for size, is_kept in [(CACHED_BYTES - 10, True), (CACHED_BYTES - 9, False)]:
        assert (parse_cached("GETJOB", "FROM", "x" * size) is parse_cached("GETJOB", "FROM", "x" * size)) is is_kept
    many = [str(number) for number in range(CACHED_WORDS - 1)]
    assert parse_cached("GETJOB", "FROM", *many) is not parse_cached("GETJOB", "FROM", *many)
    assert parse_cached("GETJOB", "FROM", *many[1:]) is parse_cached("GETJOB", "FROM", *many[1:])


def test_long_options_are_not_cached() -> None:
    for count, is_kept in [(CACHED_WORDS - 1, True), (CACHED_WORDS, False)]:
        said = ["ADDJOB", "a", "body", 0, *["ASYNC"] * count]
        assert isinstance(parse_cached(*said), AddJob)
        assert isinstance(parse_cached(*said), Addition) is is_kept


def test_a_full_cache_is_emptied() -> None:
    first = parse_cached("GETJOB", "FROM", "0")
    for number in range(1, CACHED):
        last = parse_cached("GETJOB", "FROM", number)
    assert parse_cached("GETJOB", "FROM", CACHED - 1) is last
    assert parse_cached("GETJOB", "FROM", "0") is first
    parse_cached("GETJOB", "FROM", "one more")
    assert parse_cached("GETJOB", "FROM", "0") is not first
    for number in range(CACHED + 1):
        parse_cached("ADDJOB", "a", "body", number)
    assert isinstance(parse_cached("ADDJOB", "a", "body", 0), AddJob)
    assert isinstance(parse_cached("ADDJOB", "a", "body", CACHED), Addition)


def test_invalid_words_are_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(CommandError, match="TTL must be a number > 0"):
            parse_cached("ADDJOB", "a", "body", 0, "TTL", 0)
        with pytest.raises(CommandError, match="COUNT"):
            parse_cached("GETJOB", "COUNT", 0, "FROM", "a")


def test_options_that_contradict_each_other_are_refused_each_time() -> None:
    server = Server()
    for _ in range(3):
        assert "DELAY is greater" in server.refusal("ADDJOB", "a", "body", 0, "DELAY", 9, "TTL", 5)


def test_acknowledgements_of_a_few_right_ids_need_no_parser() -> None:
    assert isinstance(parse_cached("ACKJOB", UNKNOWN_ID), Acknowledgement)
    assert isinstance(parse_cached("ACKJOB", *[UNKNOWN_ID] * (FEW - 1)), Acknowledgement)
    assert not isinstance(parse_cached("ACKJOB", *[UNKNOWN_ID] * FEW), Acknowledgement)
    with pytest.raises(CommandError, match="Invalid Job ID"):
        parse_cached("ACKJOB", UNKNOWN_ID, "x")


# ---- Cached options.


def test_the_same_words_come_to_other_options_on_another_node() -> None:
    one, other = Server(), Server(seed=2)
    for server in (one, other, one):
        job = server.state.jobs.get(server.add("q", "body", "TTL", 77))
        assert job is not None
        assert server.state.shared.options(77_000, 7_000, 0, 1) is job.options


def test_while_a_node_takes_no_copy_itself_options_are_completed_each_time() -> None:
    server = Server()
    server.add("q", "first")
    server.state.leaving = True
    try:
        assert server.refusal("ADDJOB", "q", "body", 0).startswith("NOREPL")
    finally:
        server.state.leaving = False
    assert server.add("q", "second")
    assert len(server.get("q", count=5)) == 2


def test_options_ask_for_as_many_copies_as_can_be_made_now() -> None:
    cluster = Cluster(2)
    a, _ = cluster

    def held_by() -> list[str]:
        assert a("ADDJOB", "q", "body", 0, client="producer") is BLOCKED
        cluster.settle()
        [job_id] = a.answers.pop("producer")
        return [member.name for member in cluster if member.holds(job_id)]

    assert [held_by(), held_by()] == [["a", "b"]] * 2
    limit, used = a.state.memory.limit, a.state.memory.used
    a.state.memory.set_limit(1_000_000)
    a.state.memory.used = 900_000  # little is left: it keeps no copy itself
    assert [held_by(), held_by()] == [["b"]] * 2
    a.state.memory.set_limit(limit)
    a.state.memory.used = used
    assert [held_by(), held_by()] == [["a", "b"]] * 2
