"""Logs in a cluster: who hands an event out, consumers on other nodes, and what becomes of both when links break."""

from typing import Any

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.groups import Entry
from disqued.core.model.messages import (
    DELIVERED,
    FACTS,
    GIVE,
    HAVE,
    MISSING,
    SETACK,
    SETTLE,
    SETTLED,
    TAKE,
    UNSEEN,
    WANT,
)
from disqued.core.model.outbox import UNIT_DONE
from disqued.core.streams.owners import HEARD_MS
from disqued.core.streams.readers import LINGER_MS, LOOK_MS
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import Word, check_log

NODE_TIMEOUT_MS = 20_000  #: after which a node that cannot be reached has failed for all others


def answer(member: Member, *words: Word, client: str = "client") -> Any:
    """Run a command that may have to hear from other nodes first; its answer."""
    value = member(*words, client=client)
    if value is BLOCKED:
        assert client in member.answers, f"{words} waits"
        (value,) = member.answers.pop(client)
    return value


def add(member: Member, *words: Word, body: str = "x", copies: int = 1) -> bytes:
    event_id = answer(member, "QADD", "q", 600, body, "REPLICATE", copies, *words)
    assert isinstance(event_id, bytes)
    return event_id


def get(member: Member, *words: Word, group: str = "g", client: str = "reader") -> Any:
    return answer(member, "QGET", "q", group, *words, client=client)


def ack(member: Member, *ids: bytes, group: str = "g") -> int:
    count = answer(member, "QACK", "q", group, *ids, client="settler")
    assert isinstance(count, int)
    return count


def wait(member: Member, *words: Word, group: str = "g", client: str = "waiting") -> None:
    assert member("QGET", "q", group, "BLOCK", 600, *words, client=client) is BLOCKED
    assert client not in member.answers


def figures(member: Member, group: str = "g") -> dict[bytes, int]:
    ((_, groups),) = member("QSTATUS", "q", "GROUPS", group)
    shown = groups[1]
    return dict(zip(shown[::2], shown[1::2], strict=True))


def check(cluster: Cluster) -> None:
    """What each node counts and where it looks is what its facts say."""
    for member in cluster:
        queue = member.state.queues.by_name.get(b"q")
        if queue is not None and queue.stream is not None:
            check_log(queue.stream)


def holders(cluster: Cluster, event_id: bytes) -> list[Member]:
    return [member for member in cluster if member.holds(event_id)]


def isolated(cluster: Cluster, member: Member) -> None:
    """Cut a node off until all others know that it fails."""
    cluster.isolate(member)
    cluster.advance(NODE_TIMEOUT_MS)


def healed(cluster: Cluster, member: Member) -> None:
    for other in cluster:
        if other is not member:
            cluster.heal(member, other)
    cluster.advance(2_000)


# Consumers on other nodes.


@pytest.mark.parametrize("copies", [1, 3])
def test_a_consumer_on_any_node_gets_an_event_and_is_done_with_it_there(copies: int) -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = add(a, body="hello", copies=copies)
    assert get(b) == [event_id, b"hello"]
    assert get(a) is get(b) is get(c) is None
    assert ack(b, event_id) == 1
    assert [ack(member, event_id) for member in cluster] == [0, 0, 0]
    cluster.advance(60_000)
    assert get(a) is get(b) is get(c) is None
    for member in holders(cluster, event_id):
        assert figures(member)[b"done"] == 1
    check(cluster)


def test_null_means_that_no_node_has_anything_and_costs_a_question_each() -> None:
    cluster = Cluster(5)
    a = cluster.members[0]
    assert get(a) is None
    assert len(cluster.sent(WANT)) == len(cluster.sent(HAVE)) == 4
    assert not cluster.sent(TAKE)


def test_a_node_that_does_not_answer_is_waited_for_no_longer_than_the_limit() -> None:
    cluster = Cluster(2)
    a, b = cluster
    cluster.hold(b, a)
    assert a("QGET", "q", "g", client="reader") is BLOCKED
    cluster.advance(LOOK_MS - 1)
    assert "reader" not in a.answers
    cluster.advance(1)
    assert a.answers["reader"] == [None]


def test_a_consumer_that_waits_gets_what_comes_on_another_node_at_once() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    wait(b)
    event_id = add(a)
    assert b.answers.pop("waiting") == [[event_id, b"x"]]


def test_of_many_consumers_on_all_nodes_one_gets_an_event_and_the_next_one_the_next() -> None:
    cluster = Cluster(3)
    for member in cluster:
        for number in range(3):
            wait(member, client=f"{member.name}{number}")
    ids = [add(cluster.members[number % 3], body=str(number)) for number in range(9)]
    got = [row[0] for member in cluster for rows in member.answers.values() for row in rows if isinstance(row, list)]
    assert sorted(got) == sorted(ids)
    check(cluster)


def test_several_events_come_at_once_and_each_group_gets_them() -> None:
    cluster = Cluster(2)
    a, b = cluster
    ids = [add(a, body=str(number)) for number in range(5)]
    for group in ("g", "h"):
        assert get(b, "COUNT", 3, group=group) == [[ids[number], b"%d" % number] for number in range(3)]
    assert ack(b, *ids) == 3
    assert ack(b, *ids, group="h") == 3


def test_who_is_told_of_events_hears_of_those_on_other_nodes() -> None:
    cluster = Cluster(2)
    a, b = cluster
    assert answer(b, "QNOTIFY", "g", 0, "q") is None
    assert b("QNOTIFY", "g", 60, "q", "r", client="told") is BLOCKED
    add(a)
    assert b.answers.pop("told") == [b"q"]
    assert answer(b, "QNOTIFY", "g", 0, "q") == b"q"
    assert get(a) is not None


def test_an_event_with_ex_zero_is_done_where_it_is_handed_out_before_it_leaves() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a, copies=2)
    cluster.lose = lambda flight: flight.kind == GIVE
    assert b("QGET", "q", "g", "EX", 0, client="reader") is BLOCKED
    assert figures(a)[b"done"] == figures(b)[b"done"] == 1
    (given,) = cluster.lost
    assert a.journal.index((UNIT_DONE, event_id, b"0:g")) >= 0
    cluster.repeat(given)
    assert b.answers.pop("reader") == [[event_id, b"x"]]


def test_what_a_consumer_never_saw_goes_back_as_if_nobody_had_had_it() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a)
    value = get(b)
    b.node.begin()
    b.node.gone("reader", [value.job_id])
    b.settle()
    cluster.settle()
    assert figures(a) == {
        b"total": 1, b"inprogress": 0, b"redo": 0, b"done": 0, b"available": 1, b"consumers": 0,
    }  # fmt: skip
    assert get(b) == [event_id, b"x"]


def test_a_consumer_that_leaves_before_its_event_comes_has_not_had_it() -> None:
    cluster = Cluster(2)
    a, b = cluster
    first, second = add(a), add(a, body="y")
    assert [get(b), get(b)] == [[first, b"x"], [second, b"y"]]
    wait(b)
    cluster.hold(a, b)
    third = add(a, body="z")
    b.node.begin()
    b.node.gone("waiting")
    b.settle()
    cluster.settle()
    cluster.release(a, b)
    assert get(a) == [third, b"z"]
    assert figures(a)[b"inprogress"] == 3


def test_what_comes_for_one_who_is_gone_is_given_back_unseen() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a)
    cluster.lose = lambda flight: flight.kind == GIVE
    assert b("QGET", "q", "g", "BLOCK", 60, client="reader") is BLOCKED
    cluster.lose = lambda flight: False
    (lost,) = [flight for flight in cluster.lost if flight.kind == GIVE]
    b.node.begin()
    b.node.gone("reader")
    b.settle()
    cluster.repeat(lost)
    assert [flight.message[4] for flight in cluster.sent(SETTLE)] == [UNSEEN]
    assert get(a) == [event_id, b"x"]


def test_a_node_is_asked_no_more_a_while_after_nobody_waits() -> None:
    cluster = Cluster(2)
    a, b = cluster
    assert get(b) is None
    assert a.state.demand.entries
    cluster.advance(2 * LINGER_MS)
    assert not a.state.demand.entries


def test_a_consumer_that_waits_gets_what_comes_on_a_node_that_was_away() -> None:
    cluster = Cluster(2)
    a, b = cluster
    isolated(cluster, a)
    wait(b)
    event_id = add(a)
    healed(cluster, a)
    assert b.answers.pop("waiting") == [[event_id, b"x"]]


def test_who_is_told_of_something_that_nobody_wants_any_more_says_so() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a.say(b, (HAVE, b"q", b"g", True))
    assert [flight.message for flight in cluster.sent(WANT)] == [(WANT, b"q", b"g", False)]


def test_a_flush_of_the_node_answers_those_who_wait_for_other_nodes() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a)
    get(b)
    wait(b)
    cluster.hold(b, a)
    assert b("QACK", "q", "g", event_id, client="settler") is BLOCKED
    b("DEBUG", "FLUSHALL")
    assert b.answers.pop("waiting") == [None]
    assert b.answers.pop("settler") == [0]
    cluster.release(b, a)
    assert figures(a)[b"done"] == 1


# Workers.


@pytest.mark.parametrize("end", ["STOP", "FAIL", "connection", "ttl"])
@pytest.mark.parametrize("seed", range(4))
def test_what_a_worker_has_of_another_node_is_had_again_at_once_when_it_ends(end: str, seed: int) -> None:
    cluster = Cluster(3, seed=seed)
    a, b, c = cluster
    first, second, done = (add(b, body=str(number)) for number in range(3))
    a("WORKER", "START", "ID", "w", "TTL", 3_000, *(["BIND"] if end == "connection" else []), client="worker")
    assert get(a, "EX", 600, "COUNT", 3, "WORKER", "w", client="worker") == [
        [first, b"0"], [second, b"1"], [done, b"2"],
    ]  # fmt: skip
    assert answer(a, "QACK", "q", "g", done, client="worker") == 1
    wait(c)
    if end == "connection":
        a.node.begin()
        a.node.gone("worker")
        a.settle()
        cluster.settle()
    elif end == "ttl":
        cluster.advance(3_100)
    else:
        a("WORKER", end, "w", client="operator")
    assert c.answers.pop("waiting") == [[first, b"0"]]
    assert get(b) == [second, b"1"]
    assert get(b) is None


def test_what_a_worker_had_of_another_node_for_too_long_is_not_taken_from_who_has_it_then() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(b)
    a("WORKER", "START", "ID", "w", "TTL", 600_000, client="worker")
    assert get(a, "EX", 5, "WORKER", "w", client="worker") == [event_id, b"x"]
    cluster.advance(5_001)
    assert get(b, "EX", 600) == [event_id, b"x"]
    a("WORKER", "STOP", "w", client="operator")
    assert figures(b)[b"inprogress"] == 1
    assert ack(b, event_id) == 1


def test_a_worker_keeps_what_others_remind_its_node_of_and_its_end_returns_it() -> None:
    """What another node remembers of a lease ends a little later than the lease: spans are told, not moments."""
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = add(a, copies=3)
    a("WORKER", "START", "ID", "w", "TTL", 30_000, client="worker")
    assert get(a, "EX", 600, "WORKER", "w", client="worker") == [event_id, b"x"]
    cluster.advance(5)
    b.say(a, (DELIVERED, event_id, b"0:g", 600_000, 5, 1))
    cluster.advance(30_000)
    assert get(c) == [event_id, b"x"]
    check(cluster)


# Deadlines.


def test_an_event_is_had_again_on_any_node_when_the_time_of_its_consumer_is_over() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = add(a, copies=3)
    assert get(b, "EX", 5) == [event_id, b"x"]
    for member in cluster:
        assert figures(member)[b"inprogress"] == 1
    wait(c)
    cluster.advance(5_000)
    assert "waiting" not in c.answers
    cluster.advance(1)
    assert c.answers.pop("waiting") == [[event_id, b"x"]]
    # The work is done, whoever did it.
    assert ack(b, event_id) == 1
    assert ack(c, event_id) == 0
    check(cluster)


def test_a_refused_acknowledgement_leaves_no_trace_on_any_node() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = add(a, copies=2)
    assert ack(b, event_id) == ack(c, event_id) == 0
    get(b, "EX", 1)
    cluster.advance(1_001)
    assert ack(b, event_id) == 0
    assert get(c) == [event_id, b"x"]


def test_an_event_is_given_back_from_another_node() -> None:
    cluster = Cluster(2)
    a, b = cluster
    first, second, third = (add(a, body=str(number)) for number in range(3))
    assert get(b, "COUNT", 2) == [[first, b"0"], [second, b"1"]]
    assert answer(b, "QGROUP", "RETURN", "q", "g", first, second) == 2
    assert get(a, "COUNT", 9) == [[first, b"0"], [second, b"1"], [third, b"2"]]


# Acknowledgements of events that are nowhere, or that nobody can be asked about.


def test_an_event_that_no_node_holds_is_refused_when_all_have_said_so() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    event_id = add(a)
    a("DELJOB", event_id)
    assert ack(b, event_id) == 0


def test_deleting_an_event_deletes_its_copies() -> None:
    cluster = Cluster(3)
    a, _, _ = cluster
    event_id = add(a, copies=3)
    a("DELJOB", event_id)
    assert not holders(cluster, event_id)
    cluster.advance(30_000)
    assert not holders(cluster, event_id)


def test_an_acknowledgement_waits_for_the_node_that_decides() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = add(a, copies=1)
    get(b)
    cluster.cut(a, b)
    assert b("QACK", "q", "g", event_id, client="settler") is BLOCKED
    cluster.advance(1_000)
    assert "settler" not in b.answers
    cluster.heal(a, b)
    cluster.advance(500)
    assert b.answers.pop("settler") == [1]
    assert figures(a)[b"done"] == 1
    assert c.state.jobs.get(event_id) is None


def test_an_acknowledgement_that_nobody_can_decide_is_a_fact_by_itself() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a)
    assert get(b, "EX", 300) == [event_id, b"x"]
    isolated(cluster, a)
    assert b("QACK", "q", "g", event_id, client="settler") is BLOCKED
    cluster.advance(b.node.reconciliation.patience_ms)
    assert b.answers.pop("settler") == [1]
    assert figures(a)[b"inprogress"] == 1
    healed(cluster, a)
    assert figures(a)[b"done"] == 1


def test_an_answer_that_is_lost_is_no_refusal() -> None:
    """The node that decides says 0 when it is asked again, for it is done: by this acknowledgement."""
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a)
    assert get(b, "EX", 300) == [event_id, b"x"]
    cluster.lose = lambda flight: flight.kind == SETTLED
    assert b("QACK", "q", "g", event_id, client="settler") is BLOCKED
    assert figures(a)[b"done"] == 1
    cluster.lose = lambda flight: False
    cluster.cut(a, b)
    cluster.heal(a, b)
    cluster.advance(1_000)
    assert b.answers.pop("settler") == [1]


def test_that_a_group_is_done_with_an_event_does_not_end_a_copy_that_is_still_to_come() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a)
    a.say(b, (SETACK, event_id, b"0:g", False, frozenset((a.id, b.id))))
    assert event_id not in b.state.custody.ended


def test_with_ex_zero_what_is_on_its_way_is_waited_for_when_the_time_of_its_consumer_is_up() -> None:
    cluster = Cluster(2)
    a, b = cluster
    assert b("QGET", "q", "g", "EX", 0, "BLOCK", 5, client="reader") is BLOCKED
    cluster.hold(b, a)
    event_id = add(a)
    # Nor does it take another one meanwhile: that one is for the next.
    own = add(b, body="own")
    cluster.advance(5_000)
    assert "reader" not in b.answers
    cluster.release(b, a)
    assert b.answers.pop("reader") == [[event_id, b"x"]]
    assert get(b) == [own, b"own"]


def test_with_ex_zero_an_answer_that_does_not_come_is_not_waited_for_long() -> None:
    cluster = Cluster(2)
    a, b = cluster
    assert b("QGET", "q", "g", "EX", 0, "BLOCK", 5, client="reader") is BLOCKED
    cluster.hold(b, a)
    add(a)
    cluster.advance(5_000 + LOOK_MS)
    assert b.answers.pop("reader") == [None]


def test_a_node_that_cannot_write_its_journal_decides_nothing_for_others() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a)
    get(b, "EX", 300)
    a.state.durability.read_only = True
    assert b("QACK", "q", "g", event_id, client="settler") is BLOCKED
    cluster.advance(1_000)
    assert "settler" not in b.answers
    assert figures(a)[b"inprogress"] == 1
    a.state.durability.read_only = False
    cluster.advance(1_000)
    assert b.answers.pop("settler") == [1]


def test_what_cannot_be_given_back_now_is_left_to_its_deadline() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = add(a)
    get(b, "EX", 30)
    isolated(cluster, a)
    assert b("QGROUP", "RETURN", "q", "g", event_id, client="settler") is BLOCKED
    cluster.advance(b.node.reconciliation.patience_ms)
    assert b.answers.pop("settler") == [0]
    healed(cluster, a)
    cluster.advance(30_000)
    assert get(c) == [event_id, b"x"]


def test_an_acknowledgement_of_a_copy_whose_node_is_silent_is_decided_by_the_next_holder() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = add(a, copies=3)
    get(b, "EX", 300)
    cluster.isolate(a)
    assert c("QACK", "q", "g", event_id, client="settler") is BLOCKED
    cluster.advance(NODE_TIMEOUT_MS)
    assert c.answers.pop("settler") == [1]
    assert ack(b, event_id) == 0


def test_a_client_that_is_gone_is_not_answered() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a)
    get(b)
    cluster.hold(a, b)
    assert b("QACK", "q", "g", event_id, client="settler") is BLOCKED
    b.node.gone("settler")
    cluster.release(a, b)
    assert "settler" not in b.answers
    assert figures(a)[b"done"] == 1


# Nodes that fail, and partitions.


def test_a_copy_is_handed_out_by_one_other_holder_when_its_node_fails() -> None:
    cluster = Cluster(4)
    a = cluster.members[0]
    ids = [add(a, body=str(number), copies=3) for number in range(20)]
    done = get(cluster.members[1])[0]
    ack(cluster.members[1], done)
    kept = get(cluster.members[1], "EX", 500)[0]
    isolated(cluster, a)
    rest = [member for member in cluster if member is not a]
    got: list[bytes] = []
    for turn in range(60):
        row = get(rest[turn % 3])
        if row is not None:
            got.append(row[0])
    assert sorted(got) == sorted(set(ids) - {done, kept})
    # Who has it from the node that failed can say so to any other.
    assert ack(rest[2], kept) == 1
    assert ack(rest[0], *got) == 18
    check(cluster)
    healed(cluster, a)
    assert figures(a)[b"done"] == 20
    assert get(a) is None
    check(cluster)


def test_both_sides_of_a_partition_go_on_and_agree_afterwards() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    before = add(a, body="before", copies=3)
    isolated(cluster, a)
    here, there = add(a, body="here"), add(b, body="there", copies=2)
    assert sorted(get(a, "EX", 300)[1] for _ in range(2)) == [b"before", b"here"]
    assert sorted(get(b, "EX", 300)[1] for _ in range(2)) == [b"before", b"there"]
    assert ack(a, before) == 1
    healed(cluster, a)
    # Known to be done on one side is done on the other, whatever a consumer there thinks.
    assert ack(c, before) == 0
    assert ack(c, here, there) == 2
    assert all(get(member) is None for member in cluster)
    check(cluster)


def test_events_made_on_the_other_side_are_not_skipped_by_a_group_that_is_past_their_place() -> None:
    cluster = Cluster(2)
    a, b = cluster
    isolated(cluster, a)
    late = [add(a, body=str(number)) for number in range(3)]
    cluster.advance(1_000)
    early = add(b, body="b")
    assert get(b) == [early, b"b"]
    ack(b, early)
    healed(cluster, a)
    assert [get(b)[0] for _ in late] == late
    assert ack(b, *late) == 3


def test_strict_gives_nothing_whose_node_cannot_be_reached() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id, own = add(a, copies=2), add(b, copies=2)
    isolated(cluster, a)
    assert get(b, "EX", 0, "STRICT") == [own, b"x"]
    assert get(b, "EX", 0, "STRICT") is None
    assert get(b, "EX", 0, group="lax") == [event_id, b"x"]
    healed(cluster, a)
    assert get(b, "EX", 0, "STRICT") == [event_id, b"x"]
    assert get(b, "EX", 0, "STRICT") is get(a, "EX", 0, "STRICT") is None
    check(cluster)


def test_a_node_that_has_lost_its_memory_does_not_keep_others_from_handing_out_its_events() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = add(a, copies=3)
    a("DEBUG", "FLUSHALL")
    assert not a.holds(event_id)
    cluster.cut(a, b)
    cluster.cut(a, c)
    cluster.heal(a, b)
    cluster.heal(a, c)
    cluster.advance(5_000)
    assert get(a) == [event_id, b"x"]
    assert ack(a, event_id) == 1
    assert get(b) is get(c) is None


def test_what_was_not_answered_is_told_again() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a, copies=2)
    a.state.drop(a.state.jobs.get(event_id))
    cluster.lose = lambda flight: flight.kind == MISSING
    cluster.cut(a, b)
    cluster.heal(a, b)
    cluster.advance(1_000)
    assert get(b) is None
    cluster.lose = lambda flight: False
    cluster.advance(4_000)
    assert get(b) == [event_id, b"x"]


def test_a_copy_that_its_node_did_not_keep_is_handed_out_by_one_of_the_others() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    a("CLUSTER", "LEAVING", "yes")
    ids = [add(a, copies=2) for _ in range(6)]
    got = [get(b)[0] for _ in range(3)] + [get(c)[0] for _ in range(3)]
    assert sorted(got) == sorted(ids)
    assert get(b) is get(c) is None
    check(cluster)


def test_a_node_that_leaves_hands_its_events_on_with_what_groups_made_of_them() -> None:
    cluster = Cluster(2)
    a, b = cluster
    done, kept, rest = (add(a, body=body) for body in ("done", "kept", "rest"))
    get(a)
    ack(a, done)
    get(a, "EX", 300)
    a("CLUSTER", "LEAVING", "yes")
    cluster.advance(5_000)
    assert figures(b) == {
        b"total": 3, b"inprogress": 1, b"redo": 0, b"done": 1, b"available": 1, b"consumers": 0,
    }  # fmt: skip
    assert get(b) == [rest, b"rest"]
    assert ack(b, kept) == 1
    check(cluster)


def test_a_lost_message_about_a_fact_is_made_good_when_the_link_opens_again() -> None:
    cluster = Cluster(2)
    a, b = cluster
    ids = [add(a, body=str(number), copies=2) for number in range(3)]
    cluster.cut(a, b)
    assert [get(a)[0] for _ in ids] == ids
    assert ack(a, ids[0]) == 1
    assert figures(b)[b"done"] == figures(b)[b"inprogress"] == 0
    cluster.heal(a, b)
    cluster.advance(100)
    assert (figures(b)[b"done"], figures(b)[b"inprogress"]) == (1, 2)
    assert cluster.sent(FACTS)


# Beginnings and flushes.


def test_a_group_that_begins_now_begins_behind_the_events_of_all_nodes() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    add(a)
    add(b, copies=2)
    assert b("QGROUP", "START", "q", "g", "NOW") == b"OK"
    assert all(get(member) is None for member in cluster)
    event_id = add(c)
    assert get(a) == [event_id, b"x"]


def test_a_group_is_forgotten_on_all_nodes_also_on_one_that_was_away() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = add(a, copies=3)
    ack(b, get(b)[0])
    isolated(cluster, c)
    assert a("QGROUP", "FORGET", "q", "g") == 1
    assert get(b) == [event_id, b"x"]
    assert figures(c)[b"done"] == 1
    healed(cluster, c)
    assert figures(c)[b"done"] == 0
    assert figures(c)[b"inprogress"] == 1
    check(cluster)


def test_a_flush_empties_the_log_on_all_nodes_that_can_be_reached_and_on_others_when_they_come_back() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    ids = [add(a, copies=3), add(b, copies=2), add(c)]
    isolated(cluster, c)
    made_apart = add(c)
    a("QFLUSH", "q")
    cluster.advance(100)
    assert not [event_id for event_id in ids if a.holds(event_id) or b.holds(event_id)]
    assert c.holds(ids[0])
    healed(cluster, c)
    assert not c.holds(ids[0])
    assert c.holds(made_apart)
    assert get(a)[0] in (made_apart, ids[2])


def test_a_flush_and_a_group_that_is_forgotten_reach_the_events_of_other_nodes_from_one_that_has_none() -> None:
    cluster = Cluster(3)
    a, _, c = cluster
    event_id = add(a)
    ack(a, get(a)[0])
    assert c("QGROUP", "FORGET", "q", "g") == 0
    assert get(a) == [event_id, b"x"]
    assert c("QFLUSH", "q") == b"OK"
    cluster.advance(100)
    assert not a.holds(event_id)
    # A queue that nobody has anything of is not made by that.
    c("QFLUSH", "another")
    assert not any(b"another" in member.state.queues.by_name for member in cluster)


def test_what_is_flushed_is_what_the_nodes_that_can_be_reached_know_of_also_from_one_that_cannot() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.cut(a, c)
    event_id = add(c, copies=2)
    cluster.heal(a, c)
    add(a)
    isolated(cluster, c)
    assert (a.holds(event_id), b.holds(event_id)) == (False, True)
    a("QFLUSH", "q")
    cluster.advance(100)
    assert not b.holds(event_id)
    healed(cluster, c)
    assert not holders(cluster, event_id)


# After a start.


def test_what_came_from_the_store_is_handed_out_when_others_have_told_what_they_know() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id, own = add(a, copies=3), add(a)
    cluster.isolate(a)
    # As after a start: nobody has been heard of yet.
    a.node.begin()
    a.node.acksets.resume()
    a.tick()
    assert a("QGET", "q", "g", client="reader") == [own, b"x"]
    assert get(a, client="again") is None
    cluster.advance(NODE_TIMEOUT_MS)
    assert get(b) == [event_id, b"x"]
    assert ack(c, event_id) == 1


def test_others_that_do_not_come_are_waited_for_a_while_after_a_start() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a, copies=2)
    cluster.cut(a, b)
    a.node.begin()
    a.node.acksets.resume()
    a.tick()
    wait(a)
    cluster.advance(HEARD_MS - 100)
    assert "waiting" not in a.answers
    cluster.advance(200)
    assert a.answers.pop("waiting") == [[event_id, b"x"]]
    event = a.state.jobs.get(event_id)
    assert isinstance(event, Entry)
    assert not event.elsewhere


def test_who_waits_to_hear_of_its_acknowledgement_hears_0_when_its_group_begins_anew() -> None:
    """Nobody can be asked: it would be a fact, and the event done for a group that never had it."""
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a)
    assert get(b)[0] == event_id
    isolated(cluster, a)
    assert b("QACK", "q", "g", event_id, client="settler") is BLOCKED
    b("QGROUP", "START", "q", "g", "FIRST")
    cluster.advance(2 * NODE_TIMEOUT_MS)
    assert b.answers.pop("settler") == [0]
    healed(cluster, a)
    assert get(b)[0] == event_id
