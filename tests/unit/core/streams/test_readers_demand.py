"""What nodes tell each other of what their consumers want, counted, and what they may not be talked into by it."""

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model import groups
from disqued.core.model.messages import GIVE, HAVE, SETTLE, TAKE, UNSEEN, WANT
from disqued.core.streams.offers import LIVES_MS
from disqued.core.streams.readers import AGAIN_MS, LINGER_MS, LOOK_MS
from tests.cluster_fixtures import Cluster, Member
from tests.unit.commands.test_streams import Bench
from tests.unit.core.streams.test_readers import ack, add, answer, check, figures, get, wait


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(2)


def is_wanted(member: Member) -> bool:
    """Tell whether a node knows that others want events of q."""
    return b"q" in member.state.demand.entries


# Asking.


def test_one_who_waits_on_a_node_alone_is_nothing_to_others() -> None:
    bench = Bench()
    assert bench("QGET", "q", "g", "BLOCK", 60) is BLOCKED
    assert not bench.node.readers._demands


def test_a_node_that_leaves_asks_others_for_nothing(cluster: Cluster) -> None:
    a, b = cluster
    add(a)
    b("CLUSTER", "LEAVING", "yes")
    assert b("QGET", "q", "g") is None
    assert not cluster.sent(WANT)


def test_who_waits_asks_once_for_all_and_who_does_not_wait_or_takes_nothing_asks_anew(cluster: Cluster) -> None:
    _, b = cluster
    asked: list[int] = []
    for number in range(3):
        wait(b, client=f"waits {number}")
        asked.append(len(cluster.sent(WANT)))
    for _ in range(2):
        assert get(b) is None
        asked.append(len(cluster.sent(WANT)))
    for number in range(2):
        assert b("QNOTIFY", "g", 60, "q", client=f"told {number}") is BLOCKED
        asked.append(len(cluster.sent(WANT)))
    assert asked == [1, 1, 1, 2, 3, 4, 5]


def test_a_node_that_said_it_has_some_is_not_asked_whether_it_has(cluster: Cluster) -> None:
    a, b = cluster
    ids = [add(a, body=str(number)) for number in range(3)]
    assert get(b)[0] == ids[0]
    assert get(b)[0] == ids[1]
    assert b("QGET", "q", "g", "BLOCK", 60, client="waits") is BLOCKED
    assert b.answers.pop("waits") == [[ids[2], b"2"]]
    assert (len(cluster.sent(WANT)), len(cluster.sent(TAKE))) == (1, 3)


def test_a_node_that_has_events_which_the_group_is_done_with_says_that_it_has_none(cluster: Cluster) -> None:
    a, b = cluster
    add(a)
    assert get(a, "EX", 0)
    assert get(b) is None
    assert not cluster.sent(TAKE)


def test_consumers_that_wait_get_what_comes_each_at_once(cluster: Cluster) -> None:
    a, b = cluster
    for number in range(3):
        wait(b, client=f"waits {number}")
    for number in range(3):
        event_id = add(a)
        assert b.answers.pop(f"waits {number}") == [[event_id, b"x"]]
    assert len(cluster.sent(WANT)) == 1


def test_what_somebody_was_told_of_it_is_not_told_again_until_it_has_come_for_some(cluster: Cluster) -> None:
    a, b = cluster
    assert get(b) is None
    cluster.flights.clear()
    ids = [add(a) for _ in range(3)]
    assert [flight.message for flight in cluster.sent(HAVE)] == [(HAVE, b"q", b"g", True)]
    assert [get(b)[0] for _ in ids] == ids
    add(a)
    assert len(cluster.sent(HAVE)) == 2
    # Who asks and hears that there is one was told of it, too.
    cluster.flights.clear()
    add(a)
    assert answer(b, "QNOTIFY", "g", 0, "q") == b"q"
    add(a)
    assert len(cluster.sent(HAVE)) == 1


def test_two_who_wait_ask_two_nodes_that_have_some() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    assert get(c) is None
    for member in (a, b):
        add(member)
    cluster.lose = lambda flight: flight.kind == GIVE
    for number in range(3):
        assert c("QGET", "q", "g", "BLOCK", 60, client=number) is BLOCKED
    assert [flight.receiver for flight in cluster.sent(TAKE)] == [a, b, a]
    assert len(cluster.lost) == 3


def test_who_waits_for_an_answer_asks_nobody_else() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    wait(c)
    cluster.lose = lambda flight: flight.kind == GIVE
    add(a)
    add(b)
    assert [flight.receiver for flight in cluster.sent(TAKE)] == [a]


def test_who_is_told_of_events_is_told_once() -> None:
    a, b, c = Cluster(3)
    assert c("QNOTIFY", "g", 60, "q", client="told") is BLOCKED
    add(a)
    add(b)
    assert c.answers["told"] == [b"q"]


# As long as somebody waits, and a while longer.


def test_who_waits_for_long_is_remembered_for_a_message_now_and_then(cluster: Cluster) -> None:
    a, b = cluster
    wait(b)
    ticks = b.ticks
    cluster.advance(4 * LIVES_MS)
    assert 4 * LIVES_MS // AGAIN_MS - 2 <= len(cluster.sent(WANT)) <= 4 * LIVES_MS // AGAIN_MS + 2
    assert b.ticks - ticks < 4 * LIVES_MS // 100
    event_id = add(a)
    assert b.answers.pop("waiting") == [[event_id, b"x"]]


def test_who_does_not_say_again_that_it_wants_some_is_told_for_a_while_and_no_longer(cluster: Cluster) -> None:
    a, b = cluster
    wait(b)
    cluster.lose = lambda flight: flight.kind == WANT
    cluster.advance(LIVES_MS - 1)
    first = add(a)
    assert b.answers.pop("waiting") == [[first, b"x"]]
    assert b("QGET", "q", "g", "BLOCK", 60, client="again") is BLOCKED
    cluster.advance(1)
    cluster.flights.clear()
    add(a)
    assert not cluster.sent(HAVE)
    assert not is_wanted(a)


def test_others_are_told_when_nobody_has_waited_for_a_while(cluster: Cluster) -> None:
    a, b = cluster
    assert get(b) is None
    cluster.advance(LINGER_MS - 100)
    assert is_wanted(a)
    assert get(b) is None
    cluster.advance(LINGER_MS - 100)
    assert is_wanted(a)
    cluster.advance(LINGER_MS)
    assert not is_wanted(a)
    assert not b.node.readers._demands


def test_who_comes_when_others_have_just_been_told_that_nobody_waits_asks_again(cluster: Cluster) -> None:
    a, b = cluster
    assert get(b) is None
    cluster.advance(2 * LINGER_MS)
    wait(b)
    event_id = add(a)
    assert b.answers.pop("waiting") == [[event_id, b"x"]]


def test_others_are_told_in_the_order_of_their_ids_that_nobody_waits_any_more() -> None:
    cluster = Cluster(9)
    a, *others = cluster
    assert get(a) is None
    cluster.flights.clear()
    cluster.advance(2 * LINGER_MS)
    assert [flight.receiver.id for flight in cluster.sent(WANT)] == sorted(other.id for other in others)


@pytest.mark.parametrize("is_back", [False, True])
def test_word_of_events_for_a_queue_that_is_gone_here_changes_nothing(cluster: Cluster, is_back: bool) -> None:
    a, b = cluster
    assert get(b) is None
    limit = b.state.memory.limit
    b.state.memory.set_limit(1)
    cluster.advance(3_000)
    assert b"q" not in b.state.queues.by_name
    b.state.memory.set_limit(limit)
    if is_back:
        b("ADDJOB", "q", "work", 0, "REPLICATE", 1)
    a.say(b, (HAVE, b"q", b"g", True))
    assert not cluster.sent(TAKE)


@pytest.mark.parametrize("pause_ms", [0, 3 * LINGER_MS])
def test_who_waits_for_a_queue_that_is_paused_here_has_what_others_have_when_the_pause_is_over(
    cluster: Cluster, pause_ms: int
) -> None:
    a, b = cluster
    wait(b)
    assert b("QNOTIFY", "other", 600, "q", client="told") is BLOCKED
    b("PAUSE", "q", "out", "node")
    event_id = add(a)
    cluster.advance(pause_ms)
    assert not cluster.sent(TAKE)
    assert not b.answers
    b("PAUSE", "q", "none", "node")
    assert b.answers.pop("waiting") == [[event_id, b"x"]]
    assert b.answers.pop("told") == [b"q"]


def test_what_is_paused_on_other_nodes_is_had_when_the_pause_is_over_there(cluster: Cluster) -> None:
    a, b = cluster
    a("PAUSE", "q", "out", "BCAST")
    event_id = add(a)
    wait(b)
    a("PAUSE", "q", "none", "BCAST")
    assert b.answers.pop("waiting") == [[event_id, b"x"]]


# Answers.


def test_what_nobody_asked_for_goes_back_unseen_and_nothing_is_not_sent_back(cluster: Cluster) -> None:
    a, b = cluster
    event_id = add(a)
    a.say(b, (GIVE, 77, b"0:g", ((event_id, b"x"),)))
    assert [flight.message for flight in cluster.sent(SETTLE)] == [(SETTLE, b"", b"0:g", 0, UNSEEN, (event_id,))]
    a.say(b, (GIVE, 77, b"", ()))
    assert len(cluster.sent(SETTLE)) == 1
    assert get(a) == [event_id, b"x"]


def test_an_answer_of_a_node_that_was_not_asked_goes_back_and_the_right_one_is_waited_for() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    wait(b)
    cluster.hold(b, a)
    event_id, other = add(a), add(c)
    ((_, _, _, number, *_),) = (flight.message for flight in cluster.sent(TAKE))
    c.say(b, (GIVE, number, b"0:g", ((other, b"x"),)))
    assert "waiting" not in b.answers
    cluster.release(b, a)
    assert b.answers.pop("waiting") == [[event_id, b"x"]]
    assert get(c) == [other, b"x"]


def test_a_scope_that_is_none_does_no_harm_to_a_worker(cluster: Cluster) -> None:
    a, b = cluster
    b("WORKER", "START", "ID", "w", "TTL", 60_000, client="worker")
    event_id = add(a)
    cluster.lose = lambda flight: flight.kind == GIVE
    assert b("QGET", "q", "g", "BLOCK", 60, "WORKER", "w", client="worker") is BLOCKED
    cluster.lose = lambda flight: False
    a.say(b, (GIVE, b.state.numbers.questions, b"nonsense", ((event_id, b"x"),)))
    assert b.answers.pop("worker") == [[event_id, b"x"]]
    b("WORKER", "STOP", "w", client="operator")
    assert not b.node.entry_delivery.given._bound


def test_events_of_others_are_counted_as_they_come(cluster: Cluster) -> None:
    a, b = cluster
    for _ in range(3):
        add(a)
    assert len(get(b, "COUNT", 2)) == 2
    assert b.state.counters.imported == 2


@pytest.mark.parametrize("ends", [False, True])
def test_who_was_promised_an_event_that_another_one_got_takes_what_came_here_meanwhile(
    cluster: Cluster, ends: bool
) -> None:
    """With EX 0 it takes nothing else while it waits for the answer."""
    a, b = cluster
    assert b("QGET", "q", "g", "EX", 0, "BLOCK", 60, client="reader") is BLOCKED
    cluster.hold(b, a)
    add(a)
    assert get(a)
    if ends:
        b.gone("reader")
        b.state.memory.set_limit(1)
        cluster.advance(3_000)
        assert b"q" not in b.state.queues.by_name
        b.state.memory.set_limit(1 << 40)
    else:
        own = add(b, body="own")
        assert "reader" not in b.answers
    cluster.release(b, a)
    if not ends:
        assert b.answers.pop("reader") == [[own, b"own"]]


def test_who_has_a_deadline_takes_what_comes_here_while_an_answer_is_under_way_and_gives_that_back(
    cluster: Cluster,
) -> None:
    a, b = cluster
    wait(b, "EX", 30)
    cluster.hold(b, a)
    event_id = add(a)
    own = add(b, body="own")
    assert b.answers.pop("waiting") == [[own, b"own"]]
    cluster.release(b, a)
    assert figures(a)[b"available"] == 1
    assert get(a) == [event_id, b"x"]


def test_with_ex_zero_an_answer_is_waited_for_as_long_as_others_have_to_answer(cluster: Cluster) -> None:
    a, b = cluster
    assert b("QGET", "q", "g", "EX", 0, "BLOCK", 5, client="reader") is BLOCKED
    cluster.hold(b, a)
    add(a)
    cluster.advance(5_000 + LOOK_MS - 1)
    assert "reader" not in b.answers
    cluster.advance(1)
    assert b.answers.pop("reader") == [None]


@pytest.mark.parametrize("with_worker", [False, True])
def test_what_comes_for_one_whose_connection_turns_out_to_be_broken_goes_back(
    cluster: Cluster, with_worker: bool
) -> None:
    a, b = cluster
    words: list[str] = []
    if with_worker:
        b("WORKER", "START", "ID", "w", "TTL", 60_000, client="worker")
        words = ["WORKER", "w"]
    wait(b, *words)
    b.vanished.add("waiting")
    event_id = add(a)
    assert "waiting" not in b.answers
    assert figures(a)[b"available"] == 1
    if with_worker:
        assert not b.node.workers.by_id[b"w"].leases
        assert not b.node.entry_delivery.given._bound
    assert get(a) == [event_id, b"x"]
    check(cluster)


def test_what_a_worker_takes_of_other_nodes_and_does_is_counted_and_let_go_of(cluster: Cluster) -> None:
    a, b = cluster
    b("WORKER", "START", "ID", "w", "TTL", 600_000, client="worker")
    ids = [add(a) for _ in range(3)]
    worker = b.node.workers.by_id[b"w"]
    for event_id in ids:
        assert get(b, "EX", 10, "WORKER", "w", client="worker")[0] == event_id
    units = list(worker.leases)
    assert (worker.started, worker.done, len(units)) == (3, 0, 3)
    assert ack(b, ids[0]) == 1
    assert (worker.started, worker.done, list(worker.leases)) == (3, 1, units[1:])
    assert not units[0].awake_at
    # One is given back; the time of the other is over.
    assert answer(b, "QGROUP", "RETURN", "q", "g", ids[1], client="worker") == 1
    cluster.advance(10_001)
    assert not worker.leases
    assert not b.node.entry_delivery.given._bound
    assert figures(a)[b"redo"] == 2


def test_what_a_worker_had_that_is_dead_is_not_looked_at_again(cluster: Cluster) -> None:
    a, b = cluster
    b("WORKER", "START", "ID", "w", "TTL", 600_000, client="worker")
    add(a)
    get(b, "EX", 10, "WORKER", "w", client="worker")
    (unit,) = b.node.workers.by_id[b"w"].leases
    assert unit.awake_at
    b("WORKER", "STOP", "w", client="operator")
    assert not unit.awake_at
    assert not b.node.entry_delivery.given._bound


# Links.


def close(member: Member, other: Member) -> None:
    """Let a node lose its link to another one, whose own link to it stays."""
    member.node.begin()
    member.node.link_closed(other.id)
    member.settle()


def test_what_cannot_be_given_to_the_node_that_asked_can_be_had_again(cluster: Cluster) -> None:
    a, b = cluster
    event_id = add(a)
    close(a, b)
    b.say(a, (TAKE, b"q", b"g", 1, 1, 60_000, False))
    assert figures(a)[b"available"] == 1
    assert get(a) == [event_id, b"x"]


def test_who_waits_for_an_answer_asks_another_node_when_the_link_breaks() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    wait(c)
    cluster.lose = lambda flight: flight.kind == GIVE
    add(a)
    cluster.lose = lambda flight: False
    other = add(b)
    assert "waiting" not in c.answers
    cluster.cut(a, c)
    assert c.answers.pop("waiting") == [[other, b"x"]]
    assert not c.node.readers._takes


def test_who_waits_for_an_answer_goes_on_waiting_when_the_link_to_another_node_breaks() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    wait(c)
    cluster.hold(a, c)
    add(b)
    assert c.answers.pop("waiting")
    wait(c)
    cluster.release(a, c)
    cluster.hold(c, a)
    event_id = add(a)
    cluster.cut(b, c)
    cluster.release(c, a)
    assert c.answers.pop("waiting") == [[event_id, b"x"]]


def test_with_ex_zero_what_is_here_is_taken_when_the_link_breaks_on_which_something_was_to_come(
    cluster: Cluster,
) -> None:
    a, b = cluster
    assert b("QGET", "q", "g", "EX", 0, "BLOCK", 60, client="reader") is BLOCKED
    cluster.hold(b, a)
    add(a)
    own = add(b, body="own")
    assert "reader" not in b.answers
    cluster.cut(a, b)
    assert b.answers.pop("reader") == [[own, b"own"]]


def test_who_does_not_wait_is_not_kept_by_a_node_whose_link_breaks() -> None:
    cluster = Cluster(3)
    a, _, c = cluster
    cluster.hold(a, c)
    assert c("QGET", "q", "g", client="reader") is BLOCKED
    cluster.cut(a, c)
    assert c.answers.pop("reader") == [None]


def test_a_node_whose_link_opens_hears_at_once_what_is_waited_for() -> None:
    """Though the others have just been told; who waits for jobs is another matter."""
    cluster = Cluster(3)
    a, b, _ = cluster
    cluster.cut(a, b)
    wait(b)
    b.wait("for jobs", "work")
    cluster.heal(a, b)
    event_id = add(a)
    assert b.answers.pop("waiting") == [[event_id, b"x"]]


def test_after_a_flush_of_the_node_consumers_that_wait_are_told_as_before(cluster: Cluster) -> None:
    a, b = cluster
    b("WORKER", "START", "ID", "w", "TTL", 600_000, client="worker")
    add(a)
    get(b, "EX", 600, "WORKER", "w", client="worker")
    wait(b)
    cluster.lose = lambda flight: flight.kind == GIVE
    add(a)
    b("DEBUG", "FLUSHALL")
    assert b.answers.pop("waiting") == [None]
    readers = b.node.readers
    assert (readers._takes, b.node.entry_delivery.given._bound, readers._demands) == ({}, {}, {})
    cluster.lose = lambda flight: False
    a("QFLUSH", "q")
    wait(b)
    cluster.advance(2 * LIVES_MS)
    event_id = add(a)
    assert b.answers.pop("waiting") == [[event_id, b"x"]]


def test_a_new_group_finds_an_event_behind_very_many_that_another_node_hands_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(groups, "SKIPPED_AT_ONCE", 10)
    cluster = Cluster(2)
    a, b = cluster
    for _ in range(35):
        add(a, copies=2)
    own = add(b, copies=2)
    log = b.state.queues.by_name[b"q"].stream
    assert log is not None
    assert b("QGET", "q", "g", client="anna") is BLOCKED
    cluster.advance(100)
    assert b.answers["anna"] == [[own, b"x"]]
    assert b("QNOTIFY", "h", 0, "q") == b"q"
    assert set(log.groups) == {b"g", b"h"}
    check(cluster)
    # Whose search nobody goes on with is forgotten.
    b.node.collect_queue(b.state.queues.by_name[b"q"])
    assert set(log.groups) == {b"g"}
