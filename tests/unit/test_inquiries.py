"""Names in a cluster: what is taken on one node is taken on all, and who says that it is done may be on any."""

from typing import Any

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.inquiries import INQUIRY_MS
from disqued.core.messages import FOUND, INQUIRE
from disqued.errors import CommandError
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import Word


def answer(member: Member, *words: Word, client: str = "client") -> Any:
    """Run a command that may have to hear from other nodes first; its answer.  Raises CommandError."""
    value = member.run(*words, client=client)
    if value is BLOCKED:
        assert client in member.answers, f"{words} waits"
        (value,) = member.answers.pop(client)
        if isinstance(value, CommandError):
            raise value
    return value


def push(member: Member, event_id: str, *words: Word, client: str = "client") -> Any:
    return answer(member, "QLPUSH", "q", event_id, "x", "REPLICATE", 1, *words, client=client)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3)


def test_an_event_id_that_is_taken_on_another_node_is_refused_until_the_event_is_done(cluster: Cluster) -> None:
    a, b, c = cluster
    assert push(a, "one") == b"OK"
    with pytest.raises(CommandError, match="duplicate event one"):
        push(b, "one")
    assert answer(b, "QLPUSH", "another queue", "one", "x", "REPLICATE", 1) == b"OK"
    assert answer(c, "QACK", "q", "one") == 1
    assert answer(c, "QACK", "q", "one") == 0
    assert push(b, "one") == b"OK"


def test_in_the_background_a_taken_id_is_counted_and_nobody_waits(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, "one")
    assert b("QLPUSH", "q", "one", "x", "NOBLOCK") == b"OK"
    assert b.state.counters.background_failed == 1
    assert b("QLPUSH", "q", "two", "x", "NOBLOCK") == b"OK"
    assert (b.state.counters.background_failed, b.node.lists.background) == (1, 0)
    assert b("QLEN", "q") == 1


def test_of_two_nodes_that_add_the_same_id_at_the_same_time_one_does(cluster: Cluster) -> None:
    a, b, c = cluster
    for sender, receiver in ((a, b), (b, a)):
        cluster.hold(sender, receiver)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    assert b("QLPUSH", "q", "one", "y", "REPLICATE", 1) is BLOCKED
    with pytest.raises(CommandError, match="duplicate event one"):
        push(a, "one", client="another")
    cluster.release(a, b)
    cluster.release(b, a)
    answers = {member.name: member.answers.pop("client")[0] for member in (a, b)}
    assert answers["b"] == b"OK"
    assert "duplicate event one" in str(answers["a"])
    assert [member("QLEN", "q") for member in cluster] == [0, 1, 0]
    assert c("QLEN", "q") == 0


def test_a_node_that_is_silent_keeps_nobody_for_long(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.hold(b, a)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    cluster.advance(INQUIRY_MS)
    assert a.answers.pop("client") == [b"OK"]
    assert a("QACK", "q", "two") is BLOCKED
    cluster.cut(a, b)
    assert a.answers.pop("client") == [0]


def test_who_asks_a_little_later_hears_of_the_one_that_is_being_added(cluster: Cluster) -> None:
    """Also when that node comes first by its id, and has already said that it has nothing."""
    a, b, c = cluster
    cluster.hold(c, a)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    with pytest.raises(CommandError, match="duplicate event one"):
        push(b, "one")
    cluster.release(c, a)
    assert a.answers.pop("client") == [b"OK"]
    assert [member("QLEN", "q") for member in cluster] == [1, 0, 0]


def test_a_name_that_is_too_long_for_any_job_is_asked_of_nobody(cluster: Cluster) -> None:
    a, _, _ = cluster
    for words in (("QACK", "q", "x" * 70_000), ("RQ.ACK", "q", "x" * 70_000)):
        assert a(*words) in (0, None)
    assert not cluster.sent(INQUIRE)


def test_both_sides_of_a_partition_may_take_an_id(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.isolate(a)
    assert push(a, "one") == push(b, "one") == b"OK"


def test_a_client_that_is_gone_adds_nothing(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.hold(b, a)
    assert a("QLPUSH", "q", "one", "x", "REPLICATE", 1) is BLOCKED
    a.node.gone("client")
    cluster.release(b, a)
    assert a("QLEN", "q") == 0
    assert push(a, "one") == b"OK"


@pytest.mark.parametrize(("scope", "elsewhere"), [("queue", "q"), ("global", "another")])
def test_a_unique_task_is_refused_on_every_node(cluster: Cluster, scope: str, elsewhere: str) -> None:
    a, b, _ = cluster
    for member in cluster:
        member.node.tasks.unique_anywhere = scope == "global"
    (job_id,) = answer(a, "WQ.ENQUEUE", "q", "UNIQUE", "REPLICATE", 1, "TASKS", "t")
    with pytest.raises(CommandError) as caught:
        answer(b, "WQ.ENQUEUE", elsewhere, "UNIQUE", "REPLICATE", 1, "TASKS", "s", "t")
    assert caught.value.line == b"DUPLICATE " + job_id
    assert b("WQ.LEN", elsewhere) == 0
    # One that does not want to be the only one is not asked about.
    before = len(cluster.sent(INQUIRE))
    assert answer(b, "WQ.ENQUEUE", elsewhere, "REPLICATE", 1, "TASKS", "t")
    assert len(cluster.sent(INQUIRE)) == before


def test_a_unique_task_that_is_just_being_added_is_refused_in_words(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.hold(b, a)
    assert a("WQ.ENQUEUE", "q", "UNIQUE", "REPLICATE", 1, "TASKS", "t") is BLOCKED
    with pytest.raises(CommandError, match="being added by another client"):
        answer(a, "WQ.ENQUEUE", "q", "UNIQUE", "REPLICATE", 1, "TASKS", "t", client="second")


def test_elements_are_acknowledged_on_any_node(cluster: Cluster) -> None:
    a, b, c = cluster
    names = answer(a, "RQ.PUSH", "q", "x", "y", "z")
    taken = [row[1] for row in answer(a, "RQ.POP", "COUNT", 2, "q")]
    assert taken == names[:2]
    # What nobody has is not there to be acknowledged.
    assert answer(c, "RQ.ACK", "q", *names, "never-given") == taken
    assert answer(b, "RQ.ACK", "q", *names) in (None, [])
    assert answer(a, "RQ.ACK", "q", *names) == []
    assert len(cluster.sent(FOUND)) == len(cluster.sent(INQUIRE)) > 0


def test_a_flush_lets_those_who_wait_go_on_with_what_is_known(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.hold(b, a)
    assert a("QACK", "q", "one") is BLOCKED
    a("DEBUG", "FLUSHALL", client="operator")
    assert a.answers.pop("client") == [0]
