"""Where groups begin and what was flushed: what nodes tell each other of it, and for how long it is known."""

from typing import Any

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.groups import Stream
from disqued.core.model.job import WORK_SCOPE
from disqued.core.model.messages import BEGIN, REPLJOB, Message
from disqued.core.model.outbox import GROUP
from disqued.core.model.state import QUEUE_IDLE_MS
from disqued.core.streams.starts import FORGOTTEN_PER_PART
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import Word, check
from tests.unit.commands.test_streams import Bench
from tests.unit.core.streams.test_readers import ack, add, answer, figures, get, isolated


def log_of(member: Member, queue: bytes = b"q") -> Stream:
    log = member.state.queues.by_name[queue].stream
    assert log is not None
    return log


def told(cluster: Cluster, receiver: Member) -> list[Message]:
    """What a node was told of beginnings."""
    return [flight.message for flight in cluster.sent(BEGIN, receiver=receiver)]


def begin(sender: Member, receiver: Member, *words: Any, queue: bytes = b"q") -> None:
    """Say where a group began: scope, floor, how long that is to be known, and whether others are to add to it."""
    sender.say(receiver, (BEGIN, queue, *words))


# Groups.


def test_who_waits_gets_at_once_what_its_group_can_have_when_it_begins_anew() -> None:
    bench = Bench()
    event_id = bench.event()
    bench.take("g", "EX", 0)
    assert bench("QGET", "q", "g", "BLOCK", 60, client="anna") is BLOCKED
    bench("QGROUP", "START", "q", "g", "FIRST", client="operator")
    assert bench.answers["anna"] == [[event_id, b"x"]]


def test_what_consumers_have_is_waited_for_no_more_when_their_group_begins_anew() -> None:
    bench = Bench()
    for _ in range(2):
        bench.event()
        bench.take()
    log = bench.state.queues.by_name[b"q"].stream
    assert log is not None
    units = list(log.groups[b"g"].units.values())
    assert all(unit.awake_at for unit in units)
    bench("QGROUP", "START", "q", "g", "NOW")
    assert [unit.awake_at for unit in units] == [0, 0]


def test_a_node_that_comes_back_hears_where_groups_began_meanwhile() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a, copies=2)
    isolated(cluster, b)
    a("QGROUP", "START", "q", "behind", "NOW")
    a("QGROUP", "START", "q", "anew", "FIRST")
    get(a, "EX", 0, group="forgotten")
    a("QGROUP", "FORGET", "q", "forgotten")
    cluster.flights.clear()
    cluster.heal(a, b)
    cluster.advance(1)
    assert {message[2] for message in told(cluster, b)} == {b"1:behind", b"1:anew", b"1:forgotten"}
    assert figures(b, "behind")[b"done"] == 1
    assert log_of(b).groups[b"anew"].epoch == 1
    assert get(b, group="anew") == [event_id, b"x"]


def test_what_is_nothing_new_to_anybody_is_not_told() -> None:
    """Groups that only are used, and logs that never were flushed."""
    cluster = Cluster(2)
    a, b = cluster
    ack(a, add(a, copies=2))
    get(a)
    cluster.cut(a, b)
    cluster.heal(a, b)
    cluster.advance(1)
    assert not cluster.sent(BEGIN)


@pytest.mark.parametrize("words", [("QGROUP", "START", "q", "g", "NOW"), ("QFLUSH", "q")])
def test_others_are_told_how_long_a_beginning_is_to_be_known(words: tuple[Word, ...]) -> None:
    """As long as an event may live that is behind it; that is counted from the moment at which it is told."""
    cluster = Cluster(2)
    a, b = cluster
    cluster.advance(5_000)
    add(a)
    a(*words)
    assert [message[4] for message in told(cluster, b)] == [600_000]
    cluster.cut(a, b)
    cluster.advance(100_000)
    cluster.flights.clear()
    cluster.heal(a, b)
    cluster.advance(1)
    assert [message[4] for message in told(cluster, b)] == [500_000]
    log = log_of(b)
    said = log if words[0] == "QFLUSH" else log.groups[b"g"]
    assert said.until - b.state.now == 500_000 - 1


@pytest.mark.parametrize("scope", [WORK_SCOPE, b"1:g"])
def test_of_what_others_say_the_longest_time_counts_and_what_is_over_is_told_as_that(scope: bytes) -> None:
    cluster = Cluster(2)
    a, b = cluster
    floor = {a.id[:8]: 1}
    begin(a, b, scope, floor, 90_000, False)
    begin(a, b, scope, floor, 20_000, False)
    log = log_of(b)
    said = log.groups[b"g"] if scope else log
    assert said.until == b.state.now + 90_000
    cluster.cut(a, b)
    cluster.advance(90_100)
    cluster.flights.clear()
    cluster.heal(a, b)
    cluster.advance(1)
    # Of a group, for as little as it takes to be known: for no time means that it is forgotten.
    assert [message[4] for message in told(cluster, a)] == [1 if scope else 0]


# What one node has forgotten, and another one has not.

BEGINNINGS = (("START", "q", "g", "FIRST"), ("START", "q", "g", "NOW"), ("FORGET", "q", "g"))


def uneven(*words: str) -> Cluster:
    """Two nodes of which one has seen events of short lives alone, so that it would forget where a group began."""
    cluster = Cluster(2)
    a, b = cluster
    answer(b, "QADD", "q", 3_600, "long", "REPLICATE", 1)
    answer(a, "QADD", "q", 10, "short", "REPLICATE", 1)
    a("QGROUP", *words)
    cluster.advance(3 * QUEUE_IDLE_MS[0])
    return cluster


@pytest.mark.parametrize("words", BEGINNINGS)
def test_what_a_group_is_done_with_stays_done_however_long_each_node_would_know_its_beginning(
    words: tuple[str, ...],
) -> None:
    cluster = uneven(*words)
    a, b = cluster
    event_id = add(a)
    assert get(a)[0] == event_id
    assert ack(a, event_id) == 1
    cluster.cut(a, b)
    cluster.heal(a, b)
    cluster.advance(1_000)
    assert log_of(a).groups[b"g"].epoch == log_of(b).groups[b"g"].epoch == 1
    assert figures(a)[b"done"] == 1
    assert figures(a)[b"total"] == 1


@pytest.mark.parametrize("words", BEGINNINGS)
def test_a_group_begins_anew_on_all_nodes_however_long_each_would_know_its_last_beginning(
    words: tuple[str, ...],
) -> None:
    cluster = uneven(*words)
    a, b = cluster
    event_id = add(b)
    while (taken := get(b)) is not None:
        assert ack(b, taken[0]) == 1
    a("QGROUP", "START", "q", "g", "FIRST")
    cluster.advance(100)
    assert get(b)[1] == b"long"
    assert get(b)[0] == event_id


def test_a_group_that_has_something_keeps_its_epoch_everywhere() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    a("QGROUP", "FORGET", "q", "g")
    epochs: list[set[int]] = []
    for _ in range(3):
        event_id = answer(b, "QADD", "q", 3_600, "x", "REPLICATE", 1)
        assert get(b)[0] == event_id
        ack(b, event_id)
        cluster.advance(QUEUE_IDLE_MS[0])
        add(a)
        epochs.append({log_of(member).group(b"g").epoch for member in (a, b)})
        cluster.advance(QUEUE_IDLE_MS[0])
    assert epochs == [{1}, {1}, {1}]
    assert log_of(c).groups[b"g"].epoch == 1


def collect(member: Member) -> None:
    """Let a node look whether it may forget something of its queue."""
    member.node.begin()
    member.node.collect_queue(member.state.queues.by_name[b"q"])
    member("QINFO")


def test_nodes_ask_each_other_and_forget_a_beginning_together() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    answer(a, "QADD", "q", 10, "x", "REPLICATE", 1)
    a("QGROUP", "FORGET", "q", "g")
    cluster.advance(20_000)
    collect(b)
    cluster.advance(10)
    assert [log_of(member).groups[b"g"].epoch for member in cluster] == [1, 1, 1]
    collect(b)
    cluster.advance(10)
    for member in cluster:
        assert not log_of(member).groups
        assert member.journal[-1] == (GROUP, b"q", b"0:g", ())


def test_a_beginning_that_comes_to_matter_after_the_question_is_told_again() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    answer(a, "QADD", "q", 10, "x", "REPLICATE", 1)
    a("QGROUP", "FORGET", "q", "g")
    cluster.advance(20_000)
    collect(b)
    cluster.advance(10)
    add(a)
    assert get(a) is not None
    collect(b)
    cluster.advance(10)
    assert [log_of(member).groups[b"g"].epoch for member in cluster] == [1, 1, 1]


def test_a_beginning_is_not_forgotten_while_a_node_is_away_that_may_know_it() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    answer(a, "QADD", "q", 10, "x", "REPLICATE", 1)
    a("QGROUP", "FORGET", "q", "g")
    isolated(cluster, c)
    cluster.advance(3 * QUEUE_IDLE_MS[0])
    event_id = add(a)
    assert get(a)[0] == event_id
    assert ack(a, event_id) == 1
    for other in (a, b):
        cluster.heal(other, c)
    cluster.advance(2_000)
    assert log_of(a).groups[b"g"].epoch == 1
    assert figures(a)[b"done"] == 1
    cluster.advance(600_000 + 3 * QUEUE_IDLE_MS[0])
    assert b"q" not in a.state.queues.by_name


def test_the_end_of_a_beginning_that_is_not_known_or_not_the_last_one_changes_nothing() -> None:
    cluster = Cluster(2)
    a, b = cluster
    begin(a, b, b"3:g", {}, 0, False)
    assert b"q" not in b.state.queues.by_name
    begin(a, b, b"2:g", {}, 1, False)
    cluster.advance(2)
    begin(a, b, b"3:g", {}, 0, False)
    assert log_of(b).groups[b"g"].epoch == 2
    assert not told(cluster, a)
    add(b)
    get(b)
    begin(a, b, b"1:g", {}, 0, False)
    begin(a, b, b"1:g", {}, 0, True)
    assert [message[2] for message in told(cluster, a)] == [b"2:g", b"2:g"]


def test_where_a_group_began_is_journaled_in_one_order_whoever_was_heard_of_first() -> None:
    cluster = Cluster(2)
    a, b = cluster
    add(b, copies=2)
    add(a)
    for words, scope in ((("QGROUP", "START", "q", "g", "NOW"), b"1:g"), (("QFLUSH", "q"), WORK_SCOPE)):
        a(*words)
        (record,) = (record for record in a.journal if record[0] == GROUP and record[2] == scope)
        assert [origin for origin, _ in record[3]] == [b"a" * 8, b"b" * 8]
        assert isinstance(record[3], tuple)


def test_what_is_being_added_is_behind_a_beginning_too() -> None:
    """Its copies are yet to be made: it is in no log."""
    cluster = Cluster(2)
    a, b = cluster
    cluster.lose = lambda flight: flight.kind == REPLJOB
    assert a("QADD", "q", 60, "x", "REPLICATE", 2, client="producer") is BLOCKED
    a("QGROUP", "START", "q", "g", "NOW")
    cluster.lose = lambda flight: False
    cluster.advance(3_000)
    (event_id,) = a.answers.pop("producer")
    assert isinstance(event_id, bytes)
    assert figures(a)[b"done"] == 1
    assert get(a) is get(b) is None


@pytest.mark.parametrize(("ahead_ms", "believed"), [(3_600_000, True), (86_500_000, False)])
def test_new_events_are_behind_a_beginning_that_others_remember_unless_it_is_far_ahead(
    ahead_ms: int, believed: bool
) -> None:
    """The node lost its memory, and its clock went back."""
    cluster = Cluster(2)
    a, b = cluster
    begin(b, a, b"1:g", {a.id[:8]: (a.clock.wall() + ahead_ms) * 1_000_000}, 1_000, False)
    cluster.advance(100)
    event_id = add(a)
    assert get(a) == ([event_id, b"x"] if believed else None)


# Flushes.


def test_a_flush_of_a_queue_that_only_others_have_empties_it_there() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = add(a)
    other = add(b)
    assert c("QFLUSH", "q") == b"OK"
    cluster.advance(100)
    assert not a.holds(event_id)
    assert not b.holds(other)
    assert told(cluster, a)[0][4:] == (0, True)


def test_after_a_flush_all_nodes_know_of_the_same() -> None:
    """One has seen events of a node that cannot be reached, of which the others never heard."""
    cluster = Cluster(4)
    a, b, c, d = cluster
    add(d)
    cluster.cut(a, d)
    cluster.cut(c, d)
    assert b.holds(add(d, copies=2))
    add(a)
    isolated(cluster, d)
    a("QFLUSH", "q")
    horizons = [log_of(member).horizon for member in (a, b, c)]
    assert horizons[0] == horizons[1] == horizons[2]
    assert d.id[:8] in horizons[0]


def test_a_flush_that_is_heard_of_twice_is_news_once() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(b)
    floor = {b.id[:8]: b.state.numbers.last_ctime}
    begin(a, b, WORK_SCOPE, floor, 1_000, False)
    since, records = log_of(b).since, len(b.journal)
    assert len(b.state.unfinished) == 1
    cluster.advance(1_000)
    assert not b.holds(event_id)
    records = len(b.journal)
    begin(a, b, WORK_SCOPE, floor, 1_000, False)
    assert not len(b.state.unfinished)
    assert (log_of(b).since, len(b.journal)) == (since, records)


def test_what_was_flushed_is_let_go_of_a_part_at_a_time() -> None:
    bench = Bench()
    for number in range(FORGOTTEN_PER_PART + 50):
        # The last ones end by themselves, between the two parts.
        bench.event(number, "q", 60 if number < FORGOTTEN_PER_PART else 1)
    bench("QFLUSH", "q")
    assert len(bench.state.jobs) == FORGOTTEN_PER_PART + 50
    bench.tick()
    assert len(bench.state.jobs) == 50
    bench.clock.advance(1_000)
    bench.tick()
    assert not len(bench.state.jobs)
    bench.tick()
    check(bench)


# What a node may not be talked into.


@pytest.mark.parametrize("scope", [b"g", b"01:g", b":g"])
def test_a_beginning_of_what_is_no_group_changes_nothing(scope: bytes) -> None:
    cluster = Cluster(2)
    a, b = cluster
    add(b)
    begin(a, b, scope, {b.id[:8]: b.state.numbers.last_ctime}, 1_000, True)
    begin(a, b, scope, {}, 1_000, True, queue=b"another")
    assert not log_of(b).horizon
    assert not log_of(b).groups
    assert b"another" not in b.state.queues.by_name
    assert not told(cluster, a)


@pytest.mark.parametrize("asks", [False, True])
def test_a_flush_of_nothing_up_to_nowhere_makes_no_queue(asks: bool) -> None:
    cluster = Cluster(2)
    a, b = cluster
    begin(a, b, WORK_SCOPE, {}, 0, asks)
    assert b"q" not in b.state.queues.by_name
    b("QLPUSH", "work", "id", "x", "REPLICATE", 1)
    begin(a, b, WORK_SCOPE, {}, 0, asks, queue=b"work")
    assert b.state.queues.by_name[b"work"].stream is None
    assert not told(cluster, a)


def test_what_was_flushed_or_began_is_known_before_there_is_anything_here() -> None:
    cluster = Cluster(2)
    a, b = cluster
    floor = {a.id[:8]: 7}
    begin(a, b, WORK_SCOPE, floor, 1_000, False)
    assert log_of(b).horizon == floor
    begin(a, b, b"2:g", {}, 1_000, False, queue=b"r")
    assert log_of(b, b"r").groups[b"g"].epoch == 2


def test_a_group_of_which_there_is_nothing_to_know_is_not_made() -> None:
    cluster = Cluster(2)
    a, b = cluster
    begin(a, b, b"0:g", {}, 1, False)
    assert not log_of(b).groups


def test_while_memory_is_full_beginnings_make_no_queues_and_those_of_others_are_heard() -> None:
    cluster = Cluster(2)
    a, b = cluster
    add(b)
    b.state.memory.set_limit(1)
    assert b.state.memory.level == 3
    floor = {b.id[:8]: b.state.numbers.last_ctime}
    begin(a, b, WORK_SCOPE, floor, 1_000, False, queue=b"another")
    begin(a, b, b"1:g", floor, 1_000, False, queue=b"another")
    assert b"another" not in b.state.queues.by_name
    begin(a, b, b"1:g", floor, 1_000, False)
    assert figures(b)[b"done"] == 1
