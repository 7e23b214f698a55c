"""CLUSTER ASK on clusters of cores: who is asked, what is told of who does not answer, and what may be asked for."""

import pytest

from disqued.acl.user import User
from disqued.commands.categories import BLOCKING, PUBSUB, writes
from disqued.commands.cluster import ASKED, CHANGING, check_asked
from disqued.commands.table import BLOCKED, LONG, find
from disqued.core.cluster.questions import ANSWER_MS
from disqued.core.model.job import DEAD
from disqued.core.model.messages import ASK, TOLD
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import UNKNOWN_ID, Server, Word, check


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def asked(member: Member, *words: Word) -> dict[bytes, tuple[bytes, object]]:
    """What each node answers, once the client hears it."""
    member.answers.clear()
    assert member("CLUSTER", "ASK", *words, client="operator") is BLOCKED
    (answers,) = member.answers.pop("operator")
    return {node_id: (status, value) for node_id, status, value in answers}


def test_each_node_answers_for_itself(cluster: Cluster) -> None:
    for number, member in enumerate(cluster):
        for _ in range(number):
            member.add("q", "body", "REPLICATE", 1, "RETRY", 0)
    assert asked(cluster.members[0], "*", "QLEN", "q") == {
        member.id: (b"ok", number) for number, member in enumerate(cluster)
    }
    for member in cluster:
        check(member)


def test_the_answers_are_in_the_order_of_the_ids(cluster: Cluster) -> None:
    a = cluster.members[0]
    a("CLUSTER", "ASK", "*", "QLEN", "q", client="operator")
    cluster.settle()
    (answers,) = a.answers["operator"]
    assert [node_id for node_id, _, _ in answers] == sorted(member.id for member in cluster)


def test_one_node_alone_is_asked(cluster: Cluster) -> None:
    a, b, _ = cluster
    b.add("q", "body", "REPLICATE", 1, "RETRY", 0)
    assert asked(a, b.id, "QLEN", "q") == {b.id: (b"ok", 1)}
    assert len(cluster.sent(ASK)) == len(cluster.sent(TOLD)) == 1
    assert asked(a, a.id, "QLEN", "q") == {a.id: (b"ok", 0)}
    assert len(cluster.sent(ASK)) == 1


def test_a_node_alone_asks_itself() -> None:
    server = Server()
    server.add()
    assert server("CLUSTER", "ASK", "*", "QLEN", "q", client="operator") is BLOCKED
    assert server.answers["operator"] == [[(server.node.id, b"ok", 1)]]
    assert server.node.deadline() is not None
    check(server)


def test_an_error_is_told_as_it_is(cluster: Cluster) -> None:
    a, b, _ = cluster
    b("QADD", "log", 60, "event")
    told = asked(a, b.id, "SLOTS", "log")
    assert told == {b.id: (b"error", b"WRONGTYPE Operation against a key holding the wrong kind of value")}


def test_a_node_that_does_not_answer_is_silent_and_one_without_a_link_away(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.hold(b, a)
    cluster.isolate(c)
    assert a("CLUSTER", "ASK", "*", "QLEN", "q", client="operator") is BLOCKED
    cluster.advance(ANSWER_MS - 1)
    assert not a.answers["operator"]
    cluster.advance(1)
    assert {node_id: (status, value) for node_id, status, value in a.answers["operator"][0]} == {
        a.id: (b"ok", 0), b.id: (b"silent", None), c.id: (b"away", None),
    }  # fmt: skip
    cluster.release(b, a)
    cluster.settle()
    assert len(a.answers["operator"]) == 1
    check(a)


def test_a_link_that_closes_ends_the_wait(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.hold(b, a)
    a("CLUSTER", "ASK", b.id, "QLEN", "q", client="operator")
    cluster.settle()
    assert not a.answers["operator"]
    cluster.cut(a, b)
    assert a.answers["operator"] == [[(b.id, b"away", None)]]
    assert asked(a, c.id, "QLEN", "q") == {c.id: (b"ok", 0)}


def test_a_client_that_goes_is_not_answered(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.hold(b, a)
    a("CLUSTER", "ASK", "*", "QLEN", "q", client="operator")
    a.gone("operator")
    cluster.release(b, a)
    cluster.advance(ANSWER_MS)
    assert not a.answers["operator"]
    check(a)


def test_a_flush_answers_what_is_known(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.hold(b, a)
    a("CLUSTER", "ASK", b.id, "QLEN", "q", client="operator")
    a("DEBUG", "FLUSHALL", client="admin")
    assert a.answers["operator"] == [[(b.id, b"silent", None)]]


def test_what_is_told_twice_or_to_nobody_changes_nothing(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.hold(c, a)
    a("CLUSTER", "ASK", "*", "QLEN", "q", client="operator")
    cluster.settle()
    (told,) = cluster.sent(TOLD, b, a)
    cluster.repeat(told)
    cluster.release(c, a)
    cluster.settle()
    cluster.repeat(told)
    cluster.settle()
    assert len(a.answers["operator"]) == 1
    check(a)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("ADDJOB q body 0", "ADDJOB"), ("PAUSE q out", "PAUSE"), ("GETJOB FROM q", "GETJOB"),
        ("CLIENT KILL 127.0.0.1:1", "CLIENT KILL"), ("MONITOR", "MONITOR"), ("CONFIG GET port", "CONFIG GET"),
        ("CLUSTER ASK * QLEN q", "CLUSTER ASK"), ("CLUSTER RESET", "CLUSTER RESET"),
    ],
)  # fmt: skip
def test_what_changes_waits_or_is_about_a_connection_is_refused(command: str, name: str) -> None:
    refusal = Server().refusal("CLUSTER", "ASK", "*", *command.split())
    assert refusal.startswith(f"ERR nodes do not answer {name} to each other; allowed are CLIENT LIST")


@pytest.mark.parametrize(
    ("words", "refusal"),
    [
        (["*", "QLEN"], "ERR wrong number of arguments for 'qlen' command"),
        (["*", "NOSUCH"], "ERR unknown command 'NOSUCH'"),
        (["*", "SHOW", "no id"], "BADID Invalid Job ID format."),
        (["f" * 40, "QLEN", "q"], "ERR Unknown node " + "f" * 40),
        (["?", "QLEN", "q"], "ERR Unknown node ? - allowed is *, or the id of a node"),
    ],
)
def test_bad_questions_are_refused_here(words: list[str], refusal: str) -> None:
    assert Server().refusal("CLUSTER", "ASK", *words).startswith(refusal)


def test_a_user_who_may_not_read_all_queues_is_refused() -> None:
    class Limited:
        name, address, user = b"ann", "127.0.0.1:1", User(b"ann")

    refusal = Server().refusal("CLUSTER", "ASK", "*", "QLEN", "q", client=Limited())
    assert refusal == "NOPERM CLUSTER ASK is for users who may read all queues"


def test_only_commands_are_asked_for_that_look_and_are_over_at_once() -> None:
    for name in sorted(ASKED):
        entry = find([word.encode() for word in name.split()])
        assert entry.name == name
        assert not writes(entry), name
        assert not entry.hands_out, name
        assert not entry.is_of_connection, name
        assert name not in BLOCKING | PUBSUB


# The commands that change something.


def test_a_node_drains_and_stays_when_another_one_is_asked(cluster: Cluster) -> None:
    a, b, _ = cluster
    assert asked(a, b.id, "CLUSTER", "LEAVING", "yes") == {b.id: (b"ok", b"OK")}
    assert [member.node.state.leaving for member in cluster] == [False, True, False]
    assert asked(a, b.id, "cluster", "leaving") == {b.id: (b"ok", b"yes")}
    assert asked(a, b.id, "CLUSTER", "LEAVING", "yes") == {b.id: (b"ok", b"OK")}
    assert asked(a, b.id, "CLUSTER", "LEAVING", "no") == {b.id: (b"ok", b"OK")}
    assert not any(member.node.state.leaving for member in cluster)
    assert asked(a, a.id, "CLUSTER", "LEAVING", "yes") == {a.id: (b"ok", b"OK")}
    assert [member.node.state.leaving for member in cluster] == [True, False, False]
    for member in cluster:
        check(member)


def test_a_node_whose_answer_is_lost_is_silent_and_may_be_asked_again(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.hold(b, a)
    a("CLUSTER", "ASK", b.id, "CLUSTER", "LEAVING", "yes", client="operator")
    cluster.advance(ANSWER_MS)
    assert a.answers.pop("operator") == [[(b.id, b"silent", None)]]
    assert b.node.state.leaving
    cluster.release(b, a)
    assert asked(a, b.id, "CLUSTER", "LEAVING", "yes") == {b.id: (b"ok", b"OK")}
    cluster.isolate(b)
    assert asked(a, b.id, "CLUSTER", "LEAVING", "no") == {b.id: (b"away", None)}
    assert b.node.state.leaving


@pytest.mark.parametrize("words", ["CLUSTER LEAVING yes", "CLUSTER LEAVING no", "cluster leaving"])
def test_a_command_that_changes_something_is_asked_of_one_node_at_a_time(words: str) -> None:
    server = Server()
    refusal = server.refusal("CLUSTER", "ASK", "*", *words.split())
    assert refusal == "ERR CLUSTER LEAVING is asked of one node at a time: * is not allowed, the id of a node is"
    assert not server.node.state.leaving


def test_bad_words_of_it_are_refused_here() -> None:
    server = Server()
    refusal = server.refusal("CLUSTER", "ASK", server.node.id, "CLUSTER", "LEAVING", "maybe")
    assert refusal == "ERR Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"
    refusal = server.refusal("CLUSTER", "ASK", "f" * 40, "CLUSTER", "LEAVING", "yes")
    assert refusal.startswith("ERR Unknown node " + "f" * 40)


def test_few_commands_that_change_something_are_asked() -> None:
    assert {"CLUSTER LEAVING", "ENQUEUE", "NACK"} == CHANGING
    assert not CHANGING & ASKED


def failing(member: Member) -> bytes:
    """A job that one node alone has, and that waits for its next try."""
    job_id = member.add("q", "body", "REPLICATE", 1, "RETRY", 60, "MAXTRIES", 9)
    member.get()
    member("NACK", "DELAY", 600, job_id)
    return job_id


def test_a_node_queues_a_job_that_another_one_has_no_copy_of(cluster: Cluster) -> None:
    a, b, _ = cluster
    job_id = failing(b)
    assert a("ENQUEUE", job_id) == 0
    for count in (1, 0):
        assert asked(a, b.id, "ENQUEUE", job_id) == {b.id: (b"ok", count)}
        assert b("QLEN", "q") == 1
    assert asked(a, a.id, "ENQUEUE", job_id) == {a.id: (b"ok", 0)}
    for member in cluster:
        check(member)


def test_a_node_buries_a_job_that_another_one_has_no_copy_of(cluster: Cluster) -> None:
    a, b, _ = cluster
    job_id = failing(b)
    cluster.advance(1)
    for count in (1, 0):
        assert asked(a, b.id, "NACK", "DEAD", "REASON", "hopeless", job_id) == {b.id: (b"ok", count)}
        assert b.job(job_id).state == DEAD
    assert [one.reason for one in b.job(job_id).options.fate.failures] == [b"", b"hopeless"], "each failure once"
    check(b)


@pytest.mark.parametrize("count", [1, LONG])
@pytest.mark.parametrize("words", [(), ("DELAY", 5), ("UNTRIED",)])
def test_a_nack_that_counts_a_try_is_refused(words: tuple[Word, ...], count: int) -> None:
    server = Server()
    refusal = server.refusal("CLUSTER", "ASK", server.node.id, "NACK", *[UNKNOWN_ID] * count, *words)
    assert refusal == (
        "ERR NACK without DEAD is not asked of another node: asked twice it counts two tries; allowed is DEAD"
    )
    assert check_asked([b"NACK", b"DEAD", *[UNKNOWN_ID] * count]).name == "NACK"


@pytest.mark.parametrize("words", [("ENQUEUE", UNKNOWN_ID), ("nack", "DEAD", UNKNOWN_ID)])
def test_jobs_are_queued_and_buried_on_one_node_at_a_time(words: tuple[Word, ...]) -> None:
    server = Server()
    assert "is asked of one node at a time: * is not allowed" in server.refusal("CLUSTER", "ASK", "*", *words)


def test_a_job_that_is_unknown_is_null_everywhere(cluster: Cluster) -> None:
    told = asked(cluster.members[0], "*", "SHOW", UNKNOWN_ID)
    assert set(told.values()) == {(b"ok", None)}
