"""Short ways of the commands that are heard most: they do what the long way does, and remember so much and no more."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disqued.commands import recalled, table
from disqued.commands.jobs import AddJob, GetJob
from disqued.commands.recalled import (
    FEW,
    REMEMBERED,
    REMEMBERED_BYTES,
    REMEMBERED_WORDS,
    Acknowledgement,
    Addition,
    Fetch,
)
from disqued.commands.table import BLOCKED
from disqued.errors import CommandError
from tests.cluster_fixtures import Cluster
from tests.core_fixtures import UNKNOWN_ID, Server, words

ADD, GET, ACK = (table.PLAIN[name] for name in (b"ADDJOB", b"GETJOB", b"ACKJOB"))


def recall(*said: str | bytes | int) -> Any:
    """What is run for a client that may do everything."""
    line = words(said)
    return table.PLAIN[line[0]].recall(line)


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be remembered of other tests."""
    monkeypatch.setattr(ADD, "recall", recalled.additions(ADD.parse))
    monkeypatch.setattr(GET, "recall", recalled.fetches(GET.parse))


# ---- The same as the long way.

QUEUES = st.sampled_from(["a", "b", ""])
NUMBERS = st.sampled_from([0, 1, 2, 5, 100_000, -1, "x", "", 2**31])
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
            st.sampled_from([("NOHANG",), ("WITHCOUNTERS",), ("WORKER", "w")]),
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
def test_the_short_ways_do_what_the_long_ones_do(story: list[tuple[Any, ...]]) -> None:
    assert play(Server(), story) == play(Server(reads_all=True), story)


# ---- What is remembered.


def test_terms_are_read_once_and_serve_every_queue_and_body() -> None:
    assert isinstance(recall("ADDJOB", "a", "one", 0, "TTL", 5), AddJob)
    again = recall("ADDJOB", "b", "two", 0, "TTL", 5)
    assert isinstance(again, Addition)
    assert (again.queue, again.body) == (b"b", b"two")
    assert recall("ADDJOB", "c", "three", 0, "TTL", 5).terms is again.terms
    assert isinstance(recall("ADDJOB", "a", "one", 0, "TTL", 6), AddJob)


def test_a_job_with_a_key_is_read_each_time() -> None:
    for _ in range(2):
        assert isinstance(recall("ADDJOB", "a", "one", 0, "KEY", "k"), AddJob)


def test_a_fetch_is_read_once() -> None:
    first = recall("GETJOB", "FROM", "a", "b")
    assert isinstance(first, Fetch)
    assert recall("GETJOB", "FROM", "a", "b") is first
    assert recall("GETJOB", "FROM", "b", "a") is not first


@pytest.mark.parametrize("option", [("WITHCOUNTERS",), ("WORKER", "w")], ids=str)
def test_a_fetch_with_more_in_its_answer_or_for_a_worker_has_no_short_way_but_is_remembered(
    option: tuple[str, ...],
) -> None:
    first = recall("GETJOB", *option, "FROM", "a")
    assert isinstance(first, GetJob)
    assert recall("GETJOB", *option, "FROM", "a") is first


def test_what_serves_again_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        recall("GETJOB", "WITHCOUNTERS", "FROM", "a").count = 2


def test_long_fetches_are_not_remembered() -> None:
    for size, is_kept in [(REMEMBERED_BYTES - 10, True), (REMEMBERED_BYTES - 9, False)]:
        assert (recall("GETJOB", "FROM", "x" * size) is recall("GETJOB", "FROM", "x" * size)) is is_kept
    many = [str(number) for number in range(REMEMBERED_WORDS - 1)]
    assert recall("GETJOB", "FROM", *many) is not recall("GETJOB", "FROM", *many)
    assert recall("GETJOB", "FROM", *many[1:]) is recall("GETJOB", "FROM", *many[1:])


def test_long_terms_are_not_remembered() -> None:
    for count, is_kept in [(REMEMBERED_WORDS - 1, True), (REMEMBERED_WORDS, False)]:
        said = ["ADDJOB", "a", "body", 0, *["ASYNC"] * count]
        assert isinstance(recall(*said), AddJob)
        assert isinstance(recall(*said), Addition) is is_kept


def test_of_very_many_words_the_last_are_remembered() -> None:
    first = recall("GETJOB", "FROM", "0")
    for number in range(1, REMEMBERED):
        last = recall("GETJOB", "FROM", number)
    assert recall("GETJOB", "FROM", REMEMBERED - 1) is last
    assert recall("GETJOB", "FROM", "0") is first
    recall("GETJOB", "FROM", "one more")
    assert recall("GETJOB", "FROM", "0") is not first
    for number in range(REMEMBERED + 1):
        recall("ADDJOB", "a", "body", number)
    assert isinstance(recall("ADDJOB", "a", "body", 0), AddJob)
    assert isinstance(recall("ADDJOB", "a", "body", REMEMBERED), Addition)


def test_what_cannot_be_read_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(CommandError, match="TTL must be a number > 0"):
            recall("ADDJOB", "a", "body", 0, "TTL", 0)
        with pytest.raises(CommandError, match="COUNT"):
            recall("GETJOB", "COUNT", 0, "FROM", "a")


def test_terms_that_contradict_each_other_are_refused_each_time() -> None:
    server = Server()
    for _ in range(3):
        assert "DELAY is greater" in server.refusal("ADDJOB", "a", "body", 0, "DELAY", 9, "TTL", 5)


def test_acknowledgements_of_a_few_right_ids_have_a_short_way() -> None:
    assert isinstance(recall("ACKJOB", UNKNOWN_ID), Acknowledgement)
    assert isinstance(recall("ACKJOB", *[UNKNOWN_ID] * (FEW - 1)), Acknowledgement)
    assert not isinstance(recall("ACKJOB", *[UNKNOWN_ID] * FEW), Acknowledgement)
    with pytest.raises(CommandError, match="Invalid Job ID"):
        recall("ACKJOB", UNKNOWN_ID, "x")


# ---- Terms.


def test_the_same_terms_come_to_other_options_on_another_node() -> None:
    one, other = Server(), Server(seed=2)
    for server in (one, other, one):
        job = server.state.jobs.get(server.add("q", "body", "TTL", 77))
        assert job is not None
        assert server.state.options(77_000, 7_000, 0, 1) is job.options


def test_while_a_node_takes_no_copy_itself_terms_are_looked_at_each_time() -> None:
    server = Server()
    server.add("q", "first")
    server.state.leaving = True
    try:
        assert server.refusal("ADDJOB", "q", "body", 0).startswith("NOREPL")
    finally:
        server.state.leaving = False
    assert server.add("q", "second")
    assert len(server.get("q", count=5)) == 2


def test_terms_ask_for_as_many_copies_as_can_be_made_now() -> None:
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
