"""Keys of jobs: whoever says ADDJOB again with the same key, on whichever node, means the one job."""

from random import Random
from typing import Any

import pytest

from disqued.commands.jobs import KEY_MAX
from disqued.commands.table import BLOCKED
from disqued.core.model.endings import UNDER_WAY_MS
from disqued.core.model.ids import is_job_id
from disqued.core.model.messages import DELJOB, ENQUEUE, FOUND, GOTJOB, INQUIRE, KEEP, REPLJOB, SETACK, YOURJOBS
from disqued.core.model.outbox import JOB_ADDED
from disqued.core.model.peers import PATIENCE, TIMEOUT_MS
from disqued.core.node import Node
from disqued.core.recovery import Recovery, snapshot
from disqued.core.work.inquiries import INQUIRY_MS
from disqued.core.work.keys import ASKED_AGAIN_MS, FLUSHED
from disqued.core.work.placement import TIMED_OUT
from disqued.errors import CommandError
from disqued.wire.jobdump import decode_record, encode_job
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import Server, Word, check


def add(member: Member, key: str, *words: Word, queue: str = "q", body: str = "x", client: str = "client") -> bytes:
    """ADDJOB with a key, which may have to hear from other nodes first; the id.  Raises CommandError."""
    value = member("ADDJOB", queue, body, 1_000, "KEY", key, *words, client=client)
    return answer(member, client) if value is BLOCKED else bytes(value)


def waits(member: Member, key: str, *words: Word, timeout: int = 1_000, client: str = "client") -> None:
    """ADDJOB with a key that is not answered yet."""
    assert member("ADDJOB", "q", "x", timeout, "KEY", key, *words, client=client) is BLOCKED
    assert not member.answers[client]


def answer(member: Member, client: str = "client") -> Any:
    """What a blocked client was answered.  Raises CommandError."""
    (value,) = member.answers.pop(client)
    if isinstance(value, CommandError):
        raise value
    return value


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(3)


# One node.


def test_the_same_key_in_the_same_queue_is_the_same_job(server: Server) -> None:
    first = server.add("q", "first", "KEY", "k", "RETRY", 60)
    assert server.add("q", "second", "KEY", "k", "RETRY", 7, "DELAY", 3) == first
    assert server.bodies("q") == [b"first"]
    assert server.add("q", "third", "KEY", "k") == first
    assert server.state.counters.repeated == 2
    assert server.state.counters.added == 1
    check(server)


def test_other_keys_other_queues_and_jobs_without_a_key_are_other_jobs(server: Server) -> None:
    ids = [
        server.add("q", "x", "KEY", "k"),
        server.add("q", "x", "KEY", "K"),
        server.add("another", "x", "KEY", "k"),
        server.add("q", "x"),
        server.add("q", "x"),
    ]
    assert len(set(ids)) == 5
    # Names of other families of commands are other names.
    assert server("QLPUSH", "q", "k", "x") == b"OK"
    assert server("QLEN", "q") == 5


@pytest.mark.parametrize(
    ("command", "frees"),
    [("ACKJOB", True), ("FASTACK", True), ("DELJOB", True), ("NACK", False), ("ENQUEUE", False), ("DEQUEUE", False)],
)
def test_a_key_is_free_when_its_job_is_acknowledged_or_deleted(server: Server, command: str, frees: bool) -> None:
    first = server.add("q", "x", "KEY", "k")
    server.get("q")
    server(command, first)
    assert (server.add("q", "y", "KEY", "k") != first) is frees
    check(server)


@pytest.mark.parametrize("verb", ["CANCEL", "ACKJOB", "QPURGE", ""])
def test_a_dead_job_keeps_its_key_until_it_ends(server: Server, verb: str) -> None:
    first = server.add("q", "x", "KEY", "k", "MAXTRIES", 1, "TTL", 5, "RETRY", 1, "KEEPDEAD", 20)
    server.get()
    server("NACK", first)
    server.advance(20_000)
    shown = server.show(first)
    assert shown is not None
    assert shown["state"] == b"dead"
    assert server.add("q", "x", "KEY", "k") == first
    if verb:
        server(verb, "q" if verb == "QPURGE" else first)
    server.advance(1_000 if verb else 6_000)
    assert server.add("q", "x", "KEY", "k") != first


def test_a_key_is_free_when_the_time_of_its_job_is_over(server: Server) -> None:
    first = server.add("q", "x", "KEY", "k", "TTL", 5)
    server.advance(4_999)
    assert server.add("q", "x", "KEY", "k") == first
    # The end has come, and the node has not looked at its deadlines yet.
    server.clock.advance(1)
    assert server.add("q", "x", "KEY", "k") != first


@pytest.mark.parametrize("options", [("RETRY", 0), ("DELAY", 60), ("ASYNC",), ("REPLICATE", 1)])
def test_jobs_of_every_kind_may_have_a_key(server: Server, options: tuple[Word, ...]) -> None:
    first = server.add("q", "x", "KEY", "k", *options)
    server.get("q")
    assert server.add("q", "x", "KEY", "k", *options) == first
    assert len(server.state.jobs) == 1
    check(server)


def test_what_is_there_is_not_refused_as_too_much_or_since_the_queue_is_paused(server: Server) -> None:
    first = server.add("q", "x", "KEY", "k", "MAXLEN", 1)
    assert server.add("q", "x", "KEY", "k", "MAXLEN", 1) == first
    assert server.refusal("ADDJOB", "q", "x", 0, "KEY", "l", "MAXLEN", 1).startswith("MAXLEN ")
    server("PAUSE", "q", "in")
    assert server.add("q", "x", "KEY", "k") == first
    assert server.refusal("ADDJOB", "q", "x", 0, "KEY", "l").startswith("PAUSED ")
    # Nothing is left of what was refused.
    server("PAUSE", "q", "none")
    assert server.add("q", "x", "KEY", "l") != first


def test_what_no_job_may_wish_is_refused_whatever_its_key(server: Server) -> None:
    server.add("q", "x", "KEY", "k")
    assert "DELAY" in server.refusal("ADDJOB", "q", "x", 0, "KEY", "k", "DELAY", 9, "TTL", 9)
    server("QADD", "log", 60, "x")
    assert server.refusal("ADDJOB", "log", "x", 0, "KEY", "k").startswith("WRONGTYPE ")


def test_a_key_has_one_byte_at_least_and_not_too_many(server: Server) -> None:
    text = f"ERR KEY must be 1 to {KEY_MAX} bytes"
    assert server.refusal("ADDJOB", "q", "x", 0, "KEY", "") == text
    assert server.refusal("ADDJOB", "q", "x", 0, "KEY", "k" * (KEY_MAX + 1)) == text
    for key in (b"\0", b"k" * KEY_MAX):
        assert server.add("q", "x", "KEY", key) == server.add("q", "x", "KEY", key)
    assert server.refusal("ADDJOB", "q", "x", 0, "KEY", "a", "KEY", "b") == "ERR KEY is given twice; allowed is once"


def test_who_looks_at_a_job_sees_its_key(server: Server) -> None:
    keyed = server.add("q", "x", "KEY", "k")
    plain = server.add("q", "x")
    assert (server.show(keyed) or {})["key"] == b"k"
    assert "key" not in (server.show(plain) or {})
    _, rows = server("JSCAN", 0, "REPLY", "all")
    (shown,) = [row for row in rows if row[1] == keyed]
    assert shown[shown.index(b"key") + 1] == b"k"


def test_a_flush_frees_all_keys(server: Server) -> None:
    first = server.add("q", "x", "KEY", "k")
    server("DEBUG", "FLUSHALL")
    assert server.add("q", "x", "KEY", "k") != first
    check(server)


@pytest.mark.parametrize("is_controlled", [True, False], ids=["controlled", "crash"])
def test_a_key_outlasts_a_restart(server: Server, is_controlled: bool) -> None:
    first = server.add("q", "x", "KEY", "k")
    records = snapshot(server.state) if is_controlled else server.journal
    wall = server.clock.wall()
    written = [encode_job(record[1], wall - server.clock.now()) for record in records if record[0] == JOB_ADDED]
    server.node = Node(server.node.id, server.clock, Random(2), maxmemory=1 << 40)
    server.state = server.node.state
    server.node.begin()
    recovery = Recovery(server.state, restores_queues=is_controlled)
    for record in written:
        recovery.apply(decode_record(record))
    assert server.add("q", "y", "KEY", "k") == first
    assert (server.show(first) or {})["key"] == b"k"


# Several nodes, one after the other.


@pytest.mark.parametrize("replicate", [1, 2, 3])
def test_the_same_key_on_two_nodes_is_the_same_job(cluster: Cluster, replicate: int) -> None:
    a, b, c = cluster
    first = add(a, "k", "REPLICATE", replicate)
    assert is_job_id(first)
    assert [add(member, "k", "REPLICATE", replicate) for member in (a, b, c)] == [first] * 3
    assert sum(member("QLEN", "q") for member in cluster) == 1
    assert sum(member.state.counters.added for member in cluster) == 1
    assert sum(member.state.counters.repeated for member in cluster) == 3
    assert all((member.show(first) or {"key": b"k"})["key"] == b"k" for member in cluster)
    assert not any(member.node.keys.adding for member in cluster)
    c("ACKJOB", first)
    cluster.advance(5_000)
    second = add(b, "k", "REPLICATE", replicate)
    assert second != first
    for member in cluster:
        check(member)


def test_a_job_that_is_done_and_not_collected_yet_has_no_key_any_more(cluster: Cluster) -> None:
    a, b, _ = cluster
    first = add(a, "k", "REPLICATE", 2, "RETRY", 60)
    cluster.lose = lambda flight: flight.kind == SETACK
    a("ACKJOB", first)
    shown = a.show(first) or {}
    assert (shown["state"], "key" in shown) == (b"acked", False)
    cluster.lose = lambda flight: False
    # Whoever has a copy has not heard of it, and hears from who has.
    second = add(a, "k")
    assert second != first
    assert add(b, "k") == second


def test_a_key_goes_where_its_job_goes(cluster: Cluster) -> None:
    a, b, c = cluster
    for retry in (60, 0):
        first = add(a, "k", "REPLICATE", 1, "RETRY", retry)
        b.wait("consumer")
        cluster.advance(1_000)
        assert cluster.sent(YOURJOBS, a, b)
        assert [add(member, "k", "REPLICATE", 1, "RETRY", retry) for member in cluster] == [first] * 3
        assert b.answered("consumer") == [b"x"]
        b.answers.clear()
        c("ACKJOB", first)
        cluster.advance(5_000)


def test_a_node_that_leaves_names_the_job_that_another_one_keeps_for_it(cluster: Cluster) -> None:
    a, b, c = cluster
    a("CLUSTER", "LEAVING", "yes")
    cluster.advance(200)
    first = add(a, "k", "REPLICATE", 2)
    assert cluster.sent(ENQUEUE, a)
    assert not a.holds(first)
    assert [add(member, "k") for member in (a, b, c)] == [first] * 3


def test_with_async_nodes_are_asked_first(cluster: Cluster) -> None:
    a, b, _ = cluster
    first = add(a, "k", "ASYNC", "REPLICATE", 3)
    assert len(cluster.sent(INQUIRE, a)) == 2
    assert add(b, "k", "ASYNC", "REPLICATE", 3) == first


def test_a_job_without_a_key_is_asked_of_nobody(cluster: Cluster) -> None:
    a, _, _ = cluster
    a.add("q", "x", "REPLICATE", 1)
    assert not cluster.sent(INQUIRE)


def test_a_refusal_is_heard_after_other_nodes_were_asked_and_leaves_nothing(cluster: Cluster) -> None:
    a, b, _ = cluster
    add(a, "k", "REPLICATE", 1)
    with pytest.raises(CommandError, match="MAXLEN"):
        add(a, "l", "REPLICATE", 1, "MAXLEN", 1)
    assert not a.node.keys.adding
    assert is_job_id(add(b, "l", "REPLICATE", 1))


# While the first one waits for its copies.


def test_who_comes_second_waits_for_the_same_copies(cluster: Cluster) -> None:
    a, b, c = cluster
    for other in (b, c):
        cluster.hold(other, a)
    waits(a, "k", "REPLICATE", 3, client="first")
    waits(a, "k", "REPLICATE", 3, client="second")
    for other in (b, c):
        cluster.release(other, a)
    assert a.holds(answer(a, "first"))
    assert len(a.answers["second"]) == 1
    assert a.answers.pop("second") == [job.id for job in a.state.jobs]
    assert a.state.counters.repeated == 1
    assert not a.node.keys.adding


def test_each_waits_for_its_own_time_and_the_job_is_given_up_with_the_last(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == REPLJOB
    waits(a, "k", "REPLICATE", 3, timeout=500, client="first")
    cluster.advance(200)
    waits(a, "k", "REPLICATE", 3, timeout=800, client="second")
    cluster.advance(300)
    with pytest.raises(CommandError, match=TIMED_OUT):
        answer(a, "first")
    assert len(a.state.jobs) == 1
    cluster.advance(500)
    with pytest.raises(CommandError, match=TIMED_OUT):
        answer(a, "second")
    assert not a.state.jobs
    assert not a.node.replication.pending
    assert not a.node.keys.adding
    # Nobody was told of it, and the key is free.
    cluster.lose = lambda flight: False
    first = add(b, "k", "REPLICATE", 3)
    assert [add(member, "k") for member in cluster] == [first] * 3
    assert not any(check(member) for member in (a, b, c))


def test_who_waits_on_without_an_end_hears_of_the_copies_that_come_late(cluster: Cluster) -> None:
    a, _, _ = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB
    waits(a, "k", "REPLICATE", 3, timeout=500, client="first")
    waits(a, "k", "REPLICATE", 3, timeout=0, client="second")
    cluster.advance(2_000)
    with pytest.raises(CommandError, match=TIMED_OUT):
        answer(a, "first")
    cluster.lose = lambda flight: False
    cluster.advance(2_000)
    # Who gave up before hears the same when it asks again.
    assert answer(a, "second") == add(a, "k", client="first")


def test_the_job_stays_wanted_when_the_first_of_those_who_wait_is_gone(cluster: Cluster) -> None:
    a, b, c = cluster
    for other in (b, c):
        cluster.hold(other, a)
    waits(a, "k", "REPLICATE", 3, client="first")
    waits(a, "k", "REPLICATE", 3, client="second")
    a.gone("first")
    for other in (b, c):
        cluster.release(other, a)
    assert a.holds(answer(a, "second"))
    assert "first" not in a.answers or not a.answers["first"]


def test_a_job_whose_producers_are_all_gone_is_given_up(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB
    waits(a, "k", "REPLICATE", 3, client="first")
    waits(a, "k", "REPLICATE", 3, client="second")
    assert b.state.jobs
    for client in ("first", "second"):
        a.gone(client)
    cluster.settle()
    assert [len(member.state.jobs) for member in cluster] == [0, 0, 0]
    # And one that is gone while others are asked adds nothing.
    cluster.lose = lambda flight: False
    cluster.hold(c, a)
    waits(a, "l")
    a.gone("client")
    cluster.release(c, a)
    assert [len(member.state.jobs) for member in cluster] == [0, 0, 0]
    assert not a.node.keys.adding


def test_on_another_node_it_waits_for_the_outcome_too(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB
    waits(a, "k", "REPLICATE", 3, timeout=3_000)
    cluster.advance(100)
    # It has a copy itself, and does not name what may be given up yet.
    assert b.state.jobs
    waits(b, "k", "REPLICATE", 3, timeout=3_000)
    waits(c, "k", "REPLICATE", 3, timeout=400)
    cluster.advance(1_000)
    with pytest.raises(CommandError, match=TIMED_OUT):
        answer(c)
    cluster.lose = lambda flight: False
    cluster.advance(1_500)
    assert answer(a) == answer(b)
    assert sum(member("QLEN", "q") for member in cluster) == 1


def test_another_node_hears_at_once_what_became_of_it_and_does_not_ask_again(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB
    waits(a, "k", "REPLICATE", 3)
    (job,) = a.state.jobs
    waits(b, "k", "REPLICATE", 3)
    asked = len(cluster.sent(INQUIRE))
    # Even if a consumer is done with the job before it could have asked again.
    a("ACKJOB", job.id)
    assert answer(a) == answer(b) == job.id
    assert len(cluster.sent(INQUIRE)) == asked


def test_what_became_of_it_may_come_before_all_have_answered(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB
    waits(a, "k", "REPLICATE", 3)
    (job,) = a.state.jobs
    cluster.hold(c, b)
    waits(b, "k", "REPLICATE", 3)
    a("ACKJOB", job.id)
    cluster.release(c, b)
    assert answer(b) == job.id


def test_a_node_that_gives_up_lets_the_next_one_begin_at_once(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB and flight.receiver is a
    waits(a, "k", "REPLICATE", 3)
    waits(b, "k", "REPLICATE", 3)
    a.gone("client")
    cluster.settle()
    assert b.holds(answer(b))


def test_of_what_a_node_says_before_all_have_answered_the_last_word_counts(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB and flight.receiver is a
    waits(a, "k", "REPLICATE", 3)
    cluster.hold(c, b)
    waits(b, "k", "REPLICATE", 3)
    # It was about to add the job, and is no more; there is nothing to wait for.
    a.gone("client")
    cluster.release(c, b)
    assert b.holds(answer(b))


def test_who_waits_for_one_job_hears_of_another_that_the_same_node_adds_next(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB
    waits(a, "k", "REPLICATE", 3)
    waits(b, "k", "REPLICATE", 3)
    cluster.lose = lambda flight: flight.kind in (GOTJOB, FOUND)
    a.gone("client")
    cluster.settle()
    cluster.lose = lambda flight: flight.kind == GOTJOB
    waits(a, "k", "REPLICATE", 3, client="next")
    asked = len(cluster.sent(INQUIRE, b))
    # Once in a pause, however many others ask: two that wait would hurry each other for ever.
    waits(c, "k", "REPLICATE", 3)
    assert len(cluster.sent(INQUIRE, b)) == asked
    (job,) = a.state.jobs
    a("ACKJOB", job.id)
    assert answer(a, "next") == answer(b) == answer(c) == job.id
    cluster.advance(10 * ASKED_AGAIN_MS)
    assert sum(member("QLEN", "q") for member in cluster) == 0


def test_it_asks_again_when_the_word_of_the_outcome_is_lost(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB
    waits(a, "k", "REPLICATE", 3)
    (job,) = a.state.jobs
    waits(b, "k", "REPLICATE", 3)
    cluster.lose = lambda flight: flight.kind == FOUND
    a.answers.clear()
    cluster.advance(50)
    assert answer(a) == job.id
    assert not b.answers["client"]
    cluster.lose = lambda flight: False
    cluster.advance(2 * ASKED_AGAIN_MS)
    assert answer(b) == job.id


@pytest.mark.parametrize("to", ["consumer", "another node"])
def test_a_job_that_is_under_way_to_another_node_is_named_by_the_one_that_it_left(cluster: Cluster, to: str) -> None:
    a, b, c = cluster
    if to == "consumer":
        b.wait("consumer")
    else:
        a("CLUSTER", "LEAVING", "yes")
        cluster.advance(200)
    cluster.lose = lambda flight: flight.kind in (YOURJOBS, ENQUEUE)
    first = add(a, "k", "REPLICATE", 1, "RETRY", 0)
    assert not a.holds(first)
    assert add(c, "k", "REPLICATE", 1, "RETRY", 0) == add(a, "k", "REPLICATE", 1, "RETRY", 0) == first
    cluster.advance(UNDER_WAY_MS)
    assert add(c, "k", "REPLICATE", 1, "RETRY", 0) != first


def test_on_another_node_it_is_added_when_the_first_one_is_given_up(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB and flight.receiver is a
    waits(a, "k", "REPLICATE", 3, timeout=500)
    (given_up,) = a.state.jobs
    waits(b, "k", "REPLICATE", 3, timeout=5_000)
    cluster.advance(2_000)
    with pytest.raises(CommandError, match=TIMED_OUT):
        answer(a)
    second = answer(b)
    assert second != given_up.id
    assert not any(member.holds(given_up.id) for member in cluster)
    assert all(member.holds(second) for member in cluster)


def test_a_consumer_that_is_faster_than_the_copies_settles_it_for_all(cluster: Cluster) -> None:
    a, _, _ = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB
    waits(a, "k", "REPLICATE", 3, client="first")
    waits(a, "k", "REPLICATE", 3, client="second")
    (job,) = a.state.jobs
    a("ACKJOB", job.id)
    assert answer(a, "first") == answer(a, "second") == job.id


def test_a_flush_ends_the_wait(cluster: Cluster) -> None:
    a, _, c = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB
    waits(a, "k", "REPLICATE", 3, client="first")
    cluster.hold(c, a)
    waits(a, "l", client="second")
    a("DEBUG", "FLUSHALL")
    for client in ("first", "second"):
        with pytest.raises(CommandError, match=FLUSHED):
            answer(a, client)
    cluster.release(c, a)
    assert not a.node.keys.adding
    assert not a.state.jobs


def test_a_worker_that_waits_for_its_job_is_alive(cluster: Cluster) -> None:
    a, _, _ = cluster
    a("WORKER", "START", "ID", "w", "TTL", 1_000, client="worker")
    cluster.lose = lambda flight: flight.kind == GOTJOB
    waits(a, "k", "REPLICATE", 3, timeout=0, client="worker")
    cluster.advance(5_000)
    assert a.node.workers.by_id[b"w"].is_alive


# At the same moment.


def test_of_two_nodes_that_add_one_key_at_the_same_moment_both_name_one_job(cluster: Cluster) -> None:
    a, b, _ = cluster
    for sender, receiver in ((a, b), (b, a)):
        cluster.hold(sender, receiver)
    for member in (a, b):
        waits(member, "k", "REPLICATE", 1)
    cluster.release(a, b)
    cluster.release(b, a)
    # The one that was first to ask tells the other one what became of it.
    assert answer(a) == answer(b)
    assert [member("QLEN", "q") for member in cluster] == [0, 1, 0]


def test_the_one_that_waits_for_another_node_adds_the_job_itself_when_nothing_comes_of_that(cluster: Cluster) -> None:
    a, b, _ = cluster
    for sender, receiver in ((a, b), (b, a)):
        cluster.hold(sender, receiver)
    for member in (a, b):
        waits(member, "k", "REPLICATE", 1)
    b("PAUSE", "q", "in", "node", client="operator")
    cluster.release(a, b)
    cluster.release(b, a)
    with pytest.raises(CommandError, match="paused"):
        answer(b)
    cluster.advance(ASKED_AGAIN_MS)
    assert a.holds(answer(a))


def test_a_node_that_is_silent_keeps_nobody_for_long_and_its_time_is_not_the_clients(cluster: Cluster) -> None:
    a, b, _ = cluster
    cluster.hold(b, a)
    waits(a, "k", "REPLICATE", 1, timeout=100, client="first")
    waits(a, "k", "REPLICATE", 1, timeout=100, client="second")
    cluster.advance(INQUIRY_MS)
    assert answer(a, "first") == answer(a, "second")


# Nodes that cannot hear each other.


def test_both_sides_of_a_partition_may_add_a_job_of_one_key(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.isolate(a)
    first = add(a, "k", "REPLICATE", 1)
    second = add(b, "k", "REPLICATE", 1)
    assert first != second
    cluster.heal(a, b)
    cluster.heal(a, c)
    assert add(a, "k") == first
    assert add(b, "k") == second


def test_a_copy_is_named_and_kept_when_the_node_that_made_the_job_is_gone(cluster: Cluster) -> None:
    a, b, c = cluster
    first = add(a, "k", "REPLICATE", 3, "RETRY", 60)
    cluster.isolate(a)
    assert add(b, "k") == add(c, "k") == first
    assert sum(member.state.counters.added for member in cluster) == 1
    cluster.advance(61_000)
    assert b("QLEN", "q") + c("QLEN", "q") == 1


def test_what_a_node_has_named_is_not_lost_when_its_maker_gives_it_up(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB
    waits(a, "k", "REPLICATE", 3, "RETRY", 60, timeout=1_000)
    cluster.cut(a, c)
    named = add(c, "k", "RETRY", 60)
    cluster.advance(1_500)
    with pytest.raises(CommandError, match=TIMED_OUT):
        answer(a)
    assert cluster.sent(DELJOB, a, b)
    assert b.holds(named)
    assert add(b, "k") == named
    # Nobody but c finds that a does not answer.
    cluster.advance(61_000 + PATIENCE * TIMEOUT_MS)
    assert b("QLEN", "q") + c("QLEN", "q") == 1


def test_what_one_node_has_named_is_not_taken_for_done_by_those_who_were_told_to_forget_it() -> None:
    a, b, c, d = cluster = Cluster(4)
    cluster.lose = lambda flight: flight.kind == GOTJOB
    d("PAUSE", "q", "in", "node", client="operator")
    waits(a, "k", "REPLICATE", 3, "RETRY", 60, timeout=1_000)
    cluster.advance(100)
    for other in (a, c):
        cluster.cut(other, d)
    d("PAUSE", "q", "none", "node", client="operator")
    named = add(d, "k", "RETRY", 60)
    cluster.advance(1_500)
    assert (a.holds(named), b.holds(named), c.holds(named)) == (False, True, False)
    cluster.lose = lambda flight: False
    cluster.advance(61_000)
    assert b.get("q")[0][1] == named


def test_what_was_named_is_not_lost_after_a_restart_either(cluster: Cluster) -> None:
    """What a node promised it does not write down; it takes whatever came back from a store for promised."""
    a, b, c = cluster
    named = add(a, "k", "REPLICATE", 2, "RETRY", 60)
    holder = b if b.holds(named) else c
    copy = holder.job(named)
    written = encode_job(copy, holder.clock.wall() - holder.clock.now())
    holder.state.drop(copy)
    Recovery(holder.state, restores_queues=False).apply(decode_record(written))
    a.say(holder, (DELJOB, named))
    assert holder.holds(named)


def test_a_copy_that_was_given_up_meanwhile_is_not_named(cluster: Cluster) -> None:
    """The word that it was given up is faster than the question whether it can be kept."""
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB
    waits(a, "k", "REPLICATE", 3, "RETRY", 60, timeout=1_000)
    (given_up,) = a.state.jobs
    cluster.cut(a, c)
    c("DELJOB", given_up.id, client="operator")
    cluster.hold(b, c)
    waits(c, "k", "REPLICATE", 1, timeout=5_000)
    cluster.advance(1_100)
    assert not b.holds(given_up.id)
    cluster.release(b, c)
    assert answer(c) != given_up.id


def test_a_job_that_is_done_is_not_named_by_who_has_not_heard_of_it(cluster: Cluster) -> None:
    a, b, c = cluster
    first = add(a, "k", "REPLICATE", 2, "RETRY", 60)
    holder = b if b.holds(first) else c
    third = c if holder is b else b
    cluster.lose = lambda flight: flight.kind == SETACK and flight.receiver is holder
    a("ACKJOB", first)
    assert (holder.show(first) or {})["key"] == b"k"
    second = add(third, "k", "REPLICATE", 1)
    assert second != first
    assert add(third, "k") == second


def test_a_copy_that_nobody_will_ever_queue_is_not_named(cluster: Cluster) -> None:
    """A job that is delivered at most once waits for the word of the node that leaves, which never comes."""
    a, b, c = cluster
    a("CLUSTER", "LEAVING", "yes")
    cluster.advance(200)
    cluster.lose = lambda flight: flight.kind in (ENQUEUE, DELJOB)
    first = add(a, "k", "REPLICATE", 1, "RETRY", 0)
    holder = b if b.holds(first) else c
    cluster.isolate(a)
    second = add(holder, "k", "REPLICATE", 1, "RETRY", 0)
    assert second != first
    assert holder("QLEN", "q") == 1


def test_every_question_has_its_answer_and_a_name_that_is_found_is_asked_to_be_kept(cluster: Cluster) -> None:
    a, b, c = cluster
    first = add(a, "k", "REPLICATE", 3)
    cluster.isolate(a)
    assert add(c, "k") == first
    assert [flight.message[3] for flight in cluster.sent(INQUIRE, c, b)][-1] == KEEP
    assert len(cluster.sent(INQUIRE)) == len(cluster.sent(FOUND))


def test_links_that_are_gone_while_it_waits_for_another_node_keep_nobody(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB
    waits(a, "k", "REPLICATE", 3, timeout=0)
    (job,) = a.state.jobs
    waits(b, "k", "REPLICATE", 1, timeout=10_000)
    cluster.isolate(b)
    cluster.advance(ASKED_AGAIN_MS)
    # It has a copy, which it keeps from now on.
    assert answer(b) == job.id
    b("DEBUG", "FLUSHALL")
    assert add(b, "k", "REPLICATE", 1) != job.id
    assert c.holds(job.id)
