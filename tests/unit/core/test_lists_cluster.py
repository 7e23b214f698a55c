"""Reliable lists and okq's events on several nodes: copies, orphans, what consumers of other nodes have."""

from collections.abc import Iterator
from typing import Any

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.job import FLAG_ASKING, ORPHAN_MS, STATE_NAMES
from disqued.core.model.messages import CLAIM, CLAIMED, DELIVERED, GOTJOB, QUEUED, REPLJOB, WILLQUEUE
from disqued.core.model.outbox import JOB_ADDED
from disqued.core.recovery import PROBED_AFTER_MS, Recovery
from disqued.wire.jobdump import decode_record, encode_job
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import Word, check


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(3)
    yield made
    for member in made:
        check_but_journal(member)


def check_but_journal(member: Member) -> None:
    """What `check` asserts; acks of other nodes are kept in the journal, too."""
    member.journal.clear()
    state = member.state
    kept = [job for job in state.jobs if job not in state.custody.evictable]
    member.journal += [(0, job) for job in kept]
    check(member)


def ask(member: Member, *words: Word, client: str = "client") -> Any:
    """Run a command; what it answers after having been blocked is the answer."""
    value = member(*words, client=client)
    return member.answers[client].pop() if value is BLOCKED else value


def push(member: Member, *bodies: str) -> list[bytes]:
    return list(ask(member, "RQ.PUSH", "q", *bodies))


def pop(member: Member, count: int = 1) -> list[bytes]:
    return [body for _, _, body in member("RQ.POP", "COUNT", count, "q")]


def pop_anywhere(*members: Member) -> list[bytes]:
    """What one of the nodes has; those that were asked before may have been brought it."""
    return next((bodies for member in (*members, *members) if (bodies := pop(member))), [])


def recover(member: Member, count: int = 10, elapsed: int = 0, client: str = "client") -> list[bytes]:
    return [body for _, body in ask(member, "RQ.RECOVER", "q", count, elapsed, client=client)]


def pending(member: Member) -> list[tuple[bytes, int]]:
    return [(row[1], row[4]) for row in member("RQ.INSPECT", "q", "PENDING", 0, 100)]


def state_of(member: Member, body: bytes) -> str:
    [job] = [job for job in member.state.jobs if job.body == body]
    return STATE_NAMES[job.state].decode()


# Ids and copies.


def test_nodes_never_give_the_same_id(cluster: Cluster) -> None:
    ids = [tuple(map(int, one.split(b"-"))) for member in cluster for one in push(member, "x", "y")]
    assert len(set(ids)) == 6
    assert [sequence % 65_536 for _, sequence in ids] == [0xAAAA, 0xAAAA, 0xBBBB, 0xBBBB, 0xCCCC, 0xCCCC]
    # The first and the second of a millisecond: the nth of a node that is alone has n there.
    assert [sequence // 65_536 for _, sequence in ids[:2]] == [1, 2]


def test_a_push_is_answered_when_all_of_it_has_its_copies(cluster: Cluster) -> None:
    a, b, c = cluster
    confirmed = []

    def lose(flight: Any) -> bool:
        if flight.kind == GOTJOB and flight.sender is c and not confirmed:
            confirmed.append(flight)
            return True
        return False

    cluster.lose = lose
    assert a("RQ.PUSH", "q", "x", "y") is BLOCKED
    assert a.answers["client"] == []
    assert pop(b) == []
    cluster.advance(1_000)
    assert len(a.answers["client"][0]) == 2
    assert all(len(member.state.jobs) == 2 for member in cluster)


def test_a_push_without_its_copies_removes_all_of_them(cluster: Cluster) -> None:
    a, b, c = cluster
    a.node.lists.replicate = 3
    number = []

    def lose(flight: Any) -> bool:
        if flight.kind == REPLJOB and flight.receiver is c:
            number.append(flight)
            return flight.message[1].body == b"y"
        return False

    cluster.lose = lose
    assert a("RQ.PUSH", "q", "x", "y") is BLOCKED
    cluster.advance(6_000)
    [error] = a.answers["client"]
    assert error.line.startswith(b"NOREPL")
    assert [len(member.state.jobs) for member in cluster] == [0, 0, 0]
    assert pop(a) == pop(b) == []


def test_a_producer_that_leaves_takes_its_batch_along(cluster: Cluster) -> None:
    a, b, c = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB
    a("RQ.PUSH", "q", "x", "y", client="anna")
    a.gone("anna")
    cluster.settle()
    assert [len(member.state.jobs) for member in (a, b, c)] == [0, 0, 0]


def test_a_full_node_lets_others_keep_what_is_pushed(cluster: Cluster) -> None:
    a, b, c = cluster
    a.state.memory.set_limit(1 << 20)
    a.state.memory.low_mark = -1
    ids = push(a, "x", "y")
    assert len(ids) == 2
    assert len(a.state.jobs) == 0
    assert sorted(pop(b, 5) + pop(c, 5)) == [b"x", b"y"]


# Orphans.


def test_what_waited_on_a_node_that_is_gone_is_queued_by_one_of_the_others(cluster: Cluster) -> None:
    a, b, c = cluster
    push(a, "x")
    cluster.isolate(a)
    cluster.advance(ORPHAN_MS + 2_000)
    assert sorted((state_of(b, b"x"), state_of(c, b"x"))) == ["active", "queued"]
    assert pop_anywhere(b, c) == [b"x"]


def test_what_waits_on_a_node_that_is_there_is_left_alone(cluster: Cluster) -> None:
    a, b, c = cluster
    push(a, "x")
    cluster.advance(10 * ORPHAN_MS)
    assert [state_of(member, b"x") for member in (a, b, c)] == ["queued", "active", "active"]
    assert [job.additional_deliveries for job in a.state.jobs] == [0]


def test_orphans_are_kept_as_delivered_if_that_is_wanted(cluster: Cluster) -> None:
    a, b, c = cluster
    for member in cluster:
        member.node.queueing.leases.keeps_orphans = True
    push(a, "x")
    cluster.isolate(a)
    cluster.advance(ORPHAN_MS + 2_000)
    assert [state_of(member, b"x") for member in (b, c)] == ["active", "active"]
    assert [job.flags & FLAG_ASKING for member in (b, c) for job in member.state.jobs] == [0, 0]
    assert not b.state.custody.asking
    assert not c.state.custody.asking
    assert pop(b) == pop(c) == []
    assert recover(b) == [b"x"]


def test_what_was_delivered_by_a_node_that_is_gone_is_not_queued(cluster: Cluster) -> None:
    a, b, c = cluster
    push(a, "x")
    assert pop(a) == [b"x"]
    cluster.isolate(a)
    cluster.advance(10 * ORPHAN_MS)
    assert [state_of(member, b"x") for member in (b, c)] == ["active", "active"]
    assert pending(b) == [(b"x", 1)]


def test_who_was_not_told_of_a_delivery_asks_and_hears_of_it(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, "x")
    cluster.lose = lambda flight: flight.kind == DELIVERED
    pop(a)
    cluster.lose = lambda flight: False
    assert b.refusal("RQ.INSPECT", "q", "PENDING", 0, 1) == "EMPTYKEY"
    cluster.advance(ORPHAN_MS + 2_000)
    assert pending(b) == [(b"x", 1)]
    assert [row[3] >= ORPHAN_MS for row in b("RQ.INSPECT", "q", "PENDING", 0, 1)] == [True]


def test_a_holder_knows_when_a_delivery_was_given_back(cluster: Cluster) -> None:
    a, b, c = cluster
    push(a, "x")
    pop(a)
    [job] = a.state.jobs
    a("NACK", job.id)
    assert pending(b) == []
    cluster.isolate(a)
    cluster.advance(ORPHAN_MS + 2_000)
    assert pop_anywhere(b, c) == [b"x"]


def test_an_ack_at_another_node_that_has_a_copy_counts(cluster: Cluster) -> None:
    a, b, _ = cluster
    [one] = push(a, "x")
    pop(a)
    assert b("RQ.ACK", "q", one) == [one]
    assert ask(a, "RQ.ACK", "q", one) == []
    assert [len(member.state.jobs) for member in cluster] == [0, 0, 0]


# Recovery in a cluster.


def test_what_consumers_of_another_node_have_is_asked_for_there(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, "x", "y")
    pop(a, 2)
    cluster.advance(5_000)
    assert recover(b, 10, 5_000) == [b"x", b"y"]
    assert len(cluster.sent(CLAIM)) == len(cluster.sent(CLAIMED)) == 1
    assert pending(a) == pending(b) == [(b"x", 2), (b"y", 2)]
    # It has just been handed out, whoever asks.
    assert recover(a, 10, 1_000) == recover(b, 10, 1_000) == []


def test_own_ones_come_first_and_no_more_than_are_wanted(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, "x", "y")
    pop(a, 2)
    push(b, "z")
    pop(b)
    cluster.advance(1_000)
    assert recover(b, 2, 500) == [b"z", b"x"]
    assert recover(b, 9, 500) == [b"y"]


def test_what_nodes_had_that_are_gone_may_be_of_one_age(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, "x", "y")
    pop(a, 2)
    cluster.isolate(a)
    # As if two nodes had made them in the same nanosecond.
    units = list(b.state.queues.by_name[b"q"].elsewhere)
    for unit in units:
        unit.order_key = units[0].order_key
    cluster.advance(20_000)
    assert sorted(recover(b)) == [b"x", b"y"]


def test_two_who_recover_at_the_same_time_do_not_get_the_same(cluster: Cluster) -> None:
    a, b, c = cluster
    push(a, *"uvwxyz")
    pop(a, 6)
    cluster.advance(10_000)
    for first, second in ((b, a), (c, a), (a, b), (a, c)):
        cluster.hold(first, second)
    assert b("RQ.RECOVER", "q", 3, 10_000) is BLOCKED
    assert c("RQ.RECOVER", "q", 3, 10_000) is BLOCKED
    for first, second in ((b, a), (c, a), (a, b), (a, c)):
        cluster.release(first, second)
    got = [row[1] for member in (b, c) for row in member.answers["client"][0]]
    assert sorted(got) == [b"u", b"v", b"w", b"x", b"y", b"z"]


def test_when_the_node_cannot_be_reached_the_copy_is_handed_out_and_one_ack_wins(cluster: Cluster) -> None:
    a, b, c = cluster
    [one] = push(a, "x")
    pop(a)
    cluster.isolate(a)
    cluster.advance(5_000)
    assert recover(b, 10, 5_000) == [b"x"]
    assert pending(b) == pending(c) == [(b"x", 2)]
    assert recover(c, 10, 1_000) == []
    assert recover(a, 10, 5_000) == [b"x"]
    assert b("RQ.ACK", "q", one) == [one]
    for other in (b, c):
        cluster.heal(a, other)
    cluster.advance(10_000)
    assert ask(a, "RQ.ACK", "q", one) == []
    assert [len(member.state.jobs) for member in cluster] == [0, 0, 0]


def test_a_node_that_does_not_answer_is_not_waited_for_for_long(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, "x")
    pop(a)
    push(b, "z")
    pop(b)
    cluster.advance(1_000)
    cluster.lose = lambda flight: flight.kind == CLAIM
    assert b("RQ.RECOVER", "q", 10, 0) is BLOCKED
    cluster.advance(2_000)
    assert [[row[1] for row in rows] for rows in b.answers["client"]] == [[b"z"]]


def test_a_client_that_is_gone_while_nodes_are_asked_is_not_answered(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, "x")
    pop(a)
    cluster.hold(a, b)
    assert b("RQ.RECOVER", "q", 10, 0, client="anna") is BLOCKED
    b.gone("anna")
    cluster.release(a, b)
    cluster.advance(5_000)
    assert b.answers == {}


def test_a_node_that_lost_its_memory_is_found_out(cluster: Cluster) -> None:
    a, b, c = cluster
    push(a, "x")
    pop(a)
    a.node.begin()
    a.node.flush()
    a.settle()
    cluster.advance(10_000)
    assert recover(b, 10, 1_000) == []
    cluster.advance(5_000)
    assert pop_anywhere(b, c) == [b"x"]


def test_recovering_several_hundred_takes_several_messages(cluster: Cluster) -> None:
    a, b, _ = cluster
    push(a, *["x"] * 250)
    pop(a, 250)
    cluster.advance(100)
    assert len(recover(b, 230, 50)) == 230
    assert len(cluster.sent(CLAIM)) == 3
    assert len(recover(b, 230, 50)) == 20


def test_lists_reach_consumers_of_every_node(cluster: Cluster) -> None:
    a, b, _ = cluster
    assert b("RQ.POP", "BLOCK", 5_000, "q", client="anna") is BLOCKED
    [one] = push(a, "x")
    [rows] = b.answers["anna"]
    assert [list(row) for row in rows] == [[b"q", one, b"x"]]
    assert b("RQ.ACK", "q", one) == [one]


# okq.


def test_a_claim_of_a_node_that_is_gone_ends_with_its_time(cluster: Cluster) -> None:
    a, b, c = cluster
    assert ask(a, "QLPUSH", "q", "one", "x") == b"OK"
    assert a("QRPOP", "q", "EX", 20) == [b"one", b"x"]
    cluster.isolate(a)
    cluster.advance(19_000)
    assert b("QRPOP", "q") is None
    cluster.advance(3_000)
    assert [b"one", b"x"] in (b("QRPOP", "q"), c("QRPOP", "q"))


def test_who_waits_to_hear_hears_of_events_of_other_nodes(cluster: Cluster) -> None:
    a, b, _ = cluster
    b("QREGISTER", "q", client="anna")
    assert b("QNOTIFY", 60, client="anna") is BLOCKED
    assert ask(a, "QLPUSH", "q", "one", "x") == b"OK"
    cluster.advance(100)
    assert b.answers["anna"] == [b"q"]
    assert b("QRPOP", "q") == [b"one", b"x"]


def test_an_event_in_the_background_counts_until_its_copies_are_there(cluster: Cluster) -> None:
    a, b, c = cluster
    a.node.lists.pool_size = 2
    cluster.hold(a, b)
    cluster.hold(a, c)
    for event in ("1", "2"):
        assert a("QLPUSH", "q", event, "x", "NOBLOCK") == b"OK"
    assert a.refusal("QLPUSH", "q", "3", "x", "NOBLOCK") == "ERR too busy to process NOBLOCK event"
    cluster.release(a, b)
    cluster.release(a, c)
    assert a.node.lists.background == 0
    assert a("QLPUSH", "q", "3", "x", "NOBLOCK") == b"OK"
    assert a("QRPOP", "q") == [b"1", b"x"]


def test_what_gets_no_copies_in_the_background_is_counted(cluster: Cluster) -> None:
    a, *_ = cluster
    a.node.lists.replicate = 3
    cluster.lose = lambda flight: flight.kind == REPLJOB
    assert a("QLPUSH", "q", "1", "x", "NOBLOCK") == b"OK"
    cluster.advance(6_000)
    assert (a.node.lists.background, a.state.counters.background_failed) == (0, 1)
    assert len(a.state.jobs) == 0


def test_two_events_of_one_id_are_acknowledged_together(cluster: Cluster) -> None:
    a, b, _ = cluster
    # Neither side of a partition can ask the other one whether the id is taken.
    cluster.isolate(a)
    for member in (a, b):
        assert ask(member, "QLPUSH", "q", "one", member.name, "REPLICATE", 1) == b"OK"
    cluster.heal(a, b)
    assert a("QRPOP", "q") == [b"one", b"a"]
    assert a("QRPOP", "q") is None  # and b brings its own
    assert a("QRPOP", "q") == [b"one", b"b"]
    assert a("QACK", "q", "one") == 1
    assert ask(a, "QACK", "q", "one") == 0
    cluster.advance(5_000)
    assert [len(member.state.jobs) for member in cluster] == [0, 0, 0]


def test_a_flush_empties_the_queue_on_every_node_that_can_be_reached(cluster: Cluster) -> None:
    a, b, c = cluster
    for member in cluster:
        assert ask(member, "QLPUSH", "q", member.name, "x", "REPLICATE", 1) == b"OK"
    assert a("QFLUSH", "q") == b"OK"
    cluster.advance(5_000)
    assert [len(member.state.jobs) for member in (a, b, c)] == [0, 0, 0]


def test_a_node_that_leaves_says_what_its_consumers_have(cluster: Cluster) -> None:
    a, b, c = cluster
    a.node.lists.replicate = 1
    push(a, "x")
    pop(a)
    a.node.leaving.set(leaving=True)
    cluster.advance(5_000)
    assert a.node.leaving.is_safe
    cluster.isolate(a)
    cluster.advance(2 * ORPHAN_MS)
    assert pop(b) == pop(c) == []
    assert recover(b) + recover(c, elapsed=1_000) == [b"x"]


# Restarts.


def test_a_node_that_starts_with_a_copy_asks_the_other_holders_and_leaves_the_element_to_them() -> None:
    cluster = Cluster(2)
    a, b = cluster
    push(a, "x")
    offset = b.clock.wall() - b.clock.now()
    assert {record[0] for record in b.journal} == {JOB_ADDED}
    records = [encode_job(record[1], offset) for record in b.journal]
    [copy] = list(b.state.jobs)
    b.state.drop(copy)
    b.node.begin()
    recovery = Recovery(b.state, restores_queues=False)
    for record in records:
        recovery.apply(decode_record(record))
    cluster.flights.clear()
    cluster.advance(PROBED_AFTER_MS + 2_000)
    assert len(cluster.sent(WILLQUEUE, b, a)) == 1
    assert not cluster.sent(QUEUED, b, a)
    assert (state_of(a, b"x"), state_of(b, b"x")) == ("queued", "active")
