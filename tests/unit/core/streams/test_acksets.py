"""What holders of events tell each other, and how much of it goes to and fro."""

from collections.abc import Callable

import pytest

from disqued.core.model.groups import Entry
from disqued.core.model.messages import BEGIN, DELJOB, FACTS, GOTJOB, MISSING, SETACK, EntryStatus
from disqued.core.streams import acksets
from disqued.core.streams.acksets import ANSWER_MAX_MS, ANSWER_MS
from disqued.core.streams.entries import Streams
from disqued.core.streams.owners import HEARD_MS
from tests.cluster_fixtures import Cluster, Flight, Member
from tests.core_fixtures import UNKNOWN_ID
from tests.unit.core.streams.test_readers import add, check, figures, get, wait


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(2)


def event_of(member: Member, event_id: bytes) -> Entry:
    event = member.state.jobs.get(event_id)
    assert isinstance(event, Entry)
    return event


def told(cluster: Cluster, sender: Member | None = None) -> list[Flight]:
    """What a node told of events, or was told, in order."""
    return cluster.sent(FACTS, sender)


def ids_of(flight: Flight) -> list[bytes]:
    """The events that a message tells of."""
    return [fact.job_id for fact in flight.message[2]]


def event_ids(member: Member) -> list[bytes]:
    """The events of a log, in order."""
    log = member.state.queues.by_name[b"q"].stream
    assert log is not None
    return [event.id for event in log]


def again(cluster: Cluster, one: Member, other: Member) -> None:
    """Let both links between two nodes break and open again."""
    cluster.cut(one, other)
    cluster.flights.clear()
    cluster.heal(one, other)


def all_done(member: Member, number: int) -> list[bytes]:
    """Events with copies, which a group is done with."""
    ids = [add(member, body=str(body), copies=2) for body in range(number)]
    for _ in ids:
        get(member, "EX", 0)
    return ids


# What is told when a link opens.


def test_when_there_is_nothing_to_tell_a_node_hears_so_once(cluster: Cluster) -> None:
    a, b = cluster
    again(cluster, a, b)
    cluster.advance(4 * ANSWER_MS)
    assert [flight.message[2:] for flight in told(cluster)] == [((), True), ((), True)]
    assert len(cluster.sent(MISSING)) == 2
    for member in cluster:
        assert not member.node.acksets._rounds


def test_told_is_what_a_node_may_hold_and_of_which_there_is_something_to_tell() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.cut(a, b)
    add(a, body="of c", copies=2)
    add(a, body="alone")
    cluster.heal(a, b)
    cluster.cut(a, c)
    done, leased, _ = (add(a, body=body, copies=2) for body in ("done", "leased", "fresh"))
    for _ in range(3):
        get(a, "EX", 0)
    get(a, "EX", 500)
    again(cluster, a, b)
    cluster.advance(1)
    assert [ids_of(flight) for flight in told(cluster, a)] == [[done, leased]]
    assert [len(fact.done) for fact in told(cluster, a)[0].message[2]] == [1, 0]


def test_nothing_is_told_of_an_event_that_nobody_has_touched(cluster: Cluster) -> None:
    a, b = cluster
    add(a, copies=2)
    assert not told(cluster)
    again(cluster, a, b)
    cluster.advance(1)
    # Its maker hands it out; who only keeps it asks after it.
    assert [ids_of(flight) for flight in told(cluster, a)] == [[]]
    assert [ids_of(flight) for flight in told(cluster, b)] == [event_ids(b)]


def test_groups_that_are_done_with_an_event_are_told_in_one_order(cluster: Cluster) -> None:
    a, b = cluster
    add(a, copies=2)
    for group in range(9, 0, -1):
        get(a, "EX", 0, group=str(group))
    again(cluster, a, b)
    cluster.advance(1)
    ((fact,),) = (flight.message[2] for flight in told(cluster, a))
    assert fact.done == tuple(b"0:%d" % group for group in range(1, 10))


@pytest.mark.reference
@pytest.mark.parametrize("lease_ms", [0, 500])
@pytest.mark.parametrize(("limit", "sizes"), [("FACTS_PER_MESSAGE", [2, 2, 1]), ("FACTS_BYTES", [1, 1, 1, 1, 1])])
def test_very_much_is_told_in_several_messages_each_after_an_answer(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, limit: str, sizes: list[int], lease_ms: int
) -> None:
    monkeypatch.setattr(acksets, limit, sizes[0])
    a, b = cluster
    ids = [add(a, copies=2) for _ in range(5)]
    for _ in ids:
        get(a, "EX", lease_ms)
    again(cluster, a, b)
    cluster.advance(1)
    assert [len(flight.message[2]) for flight in told(cluster, a)] == sizes
    assert [flight.message[3] for flight in told(cluster, a)] == [False] * (len(sizes) - 1) + [True]
    assert [event_id for flight in told(cluster, a) for event_id in ids_of(flight)] == ids
    assert not a.node.acksets._rounds


@pytest.mark.reference
def test_an_event_that_is_gone_when_its_turn_comes_is_not_told(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acksets, "FACTS_PER_MESSAGE", 1)
    a, b = cluster
    first, second, third = all_done(a, 3)
    cluster.cut(a, b)
    cluster.hold(b, a)
    cluster.heal(a, b)
    cluster.advance(1)
    cluster.lose = lambda flight: flight.kind == DELJOB
    a("DELJOB", second)
    cluster.flights.clear()
    cluster.release(b, a)
    assert [ids_of(flight) for flight in told(cluster, a)] == [[third]]
    assert not a.holds(second)
    assert a.holds(first)


@pytest.mark.reference
def test_what_is_not_answered_is_told_again_later_and_later_and_what_was_is_not(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acksets, "FACTS_PER_MESSAGE", 2)
    a, b = cluster
    ids = all_done(a, 5)
    cluster.cut(a, b)
    answers: list[Flight] = []

    def lost(flight: Flight) -> bool:
        """All answers of b but the first and, later, the sixth."""
        if flight.kind == MISSING and flight.sender is b:
            answers.append(flight)
            return len(answers) not in (1, 8)
        return False

    cluster.lose = lost
    cluster.flights.clear()
    cluster.heal(a, b)
    cluster.advance(1)
    times: list[int] = []
    seen = len(told(cluster, a))
    since = a.state.now
    assert [ids_of(flight) for flight in told(cluster, a)] == [ids[:2], ids[2:4]]
    while len(told(cluster, a)) < 10:
        cluster.advance(500)
        if len(told(cluster, a)) > seen:
            seen = len(told(cluster, a))
            times.append(round((a.state.now - since) / 1_000))
    assert ANSWER_MS * 32 > ANSWER_MAX_MS
    assert times[:6] == [2, 6, 14, 30, 62, 122]
    assert [ids_of(flight) for flight in told(cluster, a)[2:8]] == [ids[2:4]] * 6
    # The one that was answered at last made it begin anew with the shortest time.
    assert ids_of(told(cluster, a)[8]) == ids[4:]
    assert times[6] - times[5] <= 3


def test_who_has_lost_an_event_for_good_lets_the_other_holder_lose_it_too(cluster: Cluster) -> None:
    a, b = cluster
    (event_id,) = all_done(a, 1)
    cluster.cut(a, b)
    b("DELJOB", event_id)
    cluster.heal(a, b)
    cluster.advance(1)
    assert not a.holds(event_id)
    assert not b.holds(event_id)


def test_facts_that_were_heard_from_who_knows_the_holders_go_no_further() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    add(a, copies=3)
    cluster.cut(a, b)
    get(a, "EX", 0)
    cluster.flights.clear()
    cluster.heal(a, b)
    cluster.advance(10)
    assert figures(b)[b"done"] == 1
    assert not cluster.sent(SETACK)


# A part at a time.


def ticks_until(member: Member, is_so: Callable[[], bool]) -> int:
    """Tick until something is so; returns how often that was."""
    for ticks in range(100):
        if is_so():
            return ticks
        member.tick()
        member.cluster.settle()
    raise AssertionError("never")


@pytest.mark.reference
def test_very_many_events_are_looked_at_in_parts_also_when_links_open(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acksets, "LOOKED_AT_PER_PART", 2)
    a, b = cluster
    ids = all_done(a, 7)
    again(cluster, a, b)
    assert ticks_until(a, lambda: bool(told(cluster, a))) >= 4
    assert ids_of(told(cluster, a)[0]) == ids
    # One that breaks meanwhile begins anew, and the one before says nothing.
    again(cluster, a, b)
    a.tick()
    again(cluster, a, b)
    cluster.advance(1)
    assert [ids_of(flight) for flight in told(cluster, a)] == [ids]
    again(cluster, a, b)
    for _ in range(4):
        a.tick()
    cluster.cut(a, b)
    cluster.advance(1)
    assert not told(cluster, a)
    assert not a.node.acksets._rounds


@pytest.mark.reference
def test_very_many_logs_are_looked_at_in_parts_while_others_come(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acksets, "QUEUES_PER_PART", 3)
    a, b = cluster
    for number in range(12):
        a("QGROUP", "START", f"r{number}", "g", "FIRST")
    again(cluster, a, b)
    a.tick()
    a("QGROUP", "START", "another", "g", "FIRST")
    assert 2 <= ticks_until(a, lambda: bool(told(cluster, a))) <= 5
    assert len({flight.message[1] for flight in cluster.sent(BEGIN, a, b)}) == 13


@pytest.mark.reference
def test_events_are_placed_in_parts_and_only_by_the_last_look(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed: list[bytes] = []
    place = Streams.place

    def noted(self: Streams, event: Entry) -> None:
        placed.append(event.id)
        place(self, event)

    monkeypatch.setattr(acksets, "LOOKED_AT_PER_PART", 2)
    a, _ = cluster
    ids = [add(a, copies=2) for _ in range(7)]
    add(a, body="alone")
    a.node.begin()
    monkeypatch.setattr(Streams, "place", noted)
    a.node.acksets.standing_changed()
    a.tick()
    assert placed == ids[:2]
    # A node comes or goes meanwhile, and a queue.
    a.node.acksets.standing_changed()
    a("QADD", "another", 60, "x", "REPLICATE", 1)
    assert ticks_until(a, lambda: len(placed) >= 2 + len(ids)) >= 4
    cluster.advance(1)
    assert placed == ids[:2] + ids


# One node alone is asked, or told.


def test_what_comes_to_mind_in_one_step_is_asked_in_one_message_and_more_when_that_is_answered(
    cluster: Cluster,
) -> None:
    a, b = cluster
    ids = [add(a, copies=2) for _ in range(4)]
    cluster.advance(ANSWER_MS)
    cluster.flights.clear()
    b.node.begin()
    for event_id in ids[:2]:
        b.node.acksets.doubt(a.id, event_of(b, event_id))
    b.settle()
    assert not told(cluster)
    cluster.hold(a, b)
    cluster.advance(1)
    assert [ids_of(flight) for flight in told(cluster)] == [ids[:2]]
    for event_id in ids[2:]:
        b.node.acksets.doubt(a.id, event_of(b, event_id))
    cluster.advance(100)
    assert len(told(cluster)) == 1
    cluster.release(a, b)
    assert [ids_of(flight) for flight in told(cluster)] == [ids[:2], ids[2:]]
    assert not b.node.acksets._rounds


def test_a_doubt_that_is_not_answered_is_told_again_after_the_shortest_time(cluster: Cluster) -> None:
    a, b = cluster
    event_id = add(a, copies=2)
    cluster.advance(ANSWER_MS)
    cluster.flights.clear()
    cluster.hold(a, b)
    b.node.acksets.doubt(a.id, event_of(b, event_id))
    cluster.advance(ANSWER_MS + 10)
    assert [ids_of(flight) for flight in told(cluster)] == [[event_id]] * 2
    cluster.cut(a, b)
    # Nobody can be asked now.
    b.node.acksets.doubt(a.id, event_of(b, event_id))
    cluster.advance(10)
    assert not b.node.acksets._rounds


def test_who_links_to_a_node_again_is_asked_after_what_it_hands_out_and_nothing_else(cluster: Cluster) -> None:
    """It may have started again with nothing, while the link to it stayed as it was."""
    a, b = cluster
    add(a, copies=2)
    get(a, "EX", 0)
    event_id = add(b, copies=2)
    a("QGROUP", "START", "r", "g", "FIRST")
    b.state.drop(b.job(event_id))
    b.node.begin()
    b.node.link_closed(a.id)
    b.settle()
    cluster.flights.clear()
    cluster._link(b, a)
    cluster.settle()
    cluster.advance(1)
    assert [ids_of(flight) for flight in told(cluster, a)] == [[event_id]]
    assert not cluster.sent(BEGIN, sender=a)
    assert get(a) == [event_id, b"x"]
    check(cluster)


def test_who_has_no_logs_asks_nobody_that_links_to_it(cluster: Cluster) -> None:
    a, b = cluster
    b.node.begin()
    b.node.link_closed(a.id)
    b.settle()
    cluster.flights.clear()
    cluster._link(b, a)
    cluster.settle()
    assert not told(cluster, a)


def test_a_copy_whose_maker_leaves_is_told_of_to_the_other_holders() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    a("CLUSTER", "LEAVING", "yes")
    event_id = add(a, copies=2)
    asking = [flight for flight in told(cluster) if flight.message[1] == 0]
    assert {flight.sender for flight in asking} == {b, c}
    assert all(flight.message[2:] == ((EntryStatus(event_id, (), ()),), False) for flight in asking)


def test_who_gets_a_copy_of_an_event_that_groups_know_is_told_what_they_made_of_it(cluster: Cluster) -> None:
    a, b = cluster
    event_id = add(a)
    get(a, "EX", 0)
    a("CLUSTER", "LEAVING", "yes")
    cluster.advance(5_000)
    assert b.holds(event_id)
    assert (FACTS, 0, (EntryStatus(event_id, (b"0:g",), ()),), False) in [flight.message for flight in told(cluster, a)]
    assert b.id in (event_of(a, event_id).holders or ())


def test_who_tells_of_an_event_holds_it(cluster: Cluster) -> None:
    a, b = cluster
    event_id = add(b)
    a.say(b, (FACTS, 0, (EntryStatus(event_id, (), ()),), False))
    assert event_of(b, event_id).holders == {a.id, b.id}
    assert not cluster.sent(MISSING)
    a.say(b, (FACTS, 0, (EntryStatus(UNKNOWN_ID, (), ()),), False))
    assert [flight.message for flight in cluster.sent(MISSING)] == [(MISSING, 0, (UNKNOWN_ID,))]


def test_who_said_that_it_has_no_copy_counts_again_when_it_tells_of_it(cluster: Cluster) -> None:
    a, b = cluster
    event_id = add(a, copies=2)
    event = event_of(b, event_id)
    assert event.elsewhere
    a.say(b, (MISSING, 0, (event_id, UNKNOWN_ID)))
    assert event.absent == {a.id}
    assert not event.elsewhere
    a.say(b, (FACTS, 0, (EntryStatus(event_id, (), ()),), False))
    assert event.absent == frozenset()
    assert event.elsewhere


def test_who_said_that_it_has_no_copy_counts_again_when_it_has_got_one(cluster: Cluster) -> None:
    a, b = cluster
    event_id = add(a, copies=2)
    b.say(a, (MISSING, 0, (event_id,)))
    assert event_of(a, event_id).absent == {b.id}
    b.say(a, (GOTJOB, event_id))
    assert event_of(a, event_id).absent == frozenset()


@pytest.mark.reference
def test_an_answer_to_nothing_that_was_told_lets_nobody_tell_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acksets, "FACTS_PER_MESSAGE", 1)
    a, b = cluster
    b.say(a, (MISSING, 5, ()))
    all_done(a, 3)
    cluster.cut(a, b)
    cluster.lose = lambda flight: flight.kind == MISSING
    cluster.flights.clear()
    cluster.heal(a, b)
    cluster.advance(1)
    cluster.lose = lambda flight: False
    assert len(told(cluster, a)) == 1
    number = told(cluster, a)[0].message[1]
    for wrong in (0, number + 1):
        b.say(a, (MISSING, wrong, ()))
        assert len(told(cluster, a)) == 1
    b.say(a, (MISSING, number, ()))
    assert len(told(cluster, a)) == 3


def test_a_doubt_while_it_is_still_found_out_what_is_to_be_told_waits_for_that(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acksets, "LOOKED_AT_PER_PART", 2)
    a, b = cluster
    ids = all_done(a, 7)
    again(cluster, a, b)
    a.tick()
    a.node.acksets.doubt(b.id, event_of(a, ids[6]))
    cluster.advance(1)
    assert [sorted(ids_of(flight)) for flight in told(cluster, a)] == [sorted([*ids, ids[6]])]


def test_who_keeps_a_copy_of_an_event_that_is_not_here_hears_so(cluster: Cluster) -> None:
    a, b = cluster
    known, ended = add(a, copies=2), add(a, copies=2)
    a("DELJOB", ended)
    assert ended in a.state.custody.ended
    cluster.flights.clear()
    for job_id in (known, ended, UNKNOWN_ID):
        b.say(a, (GOTJOB, job_id))
    assert [flight.message for flight in cluster.sent(MISSING, a)] == [(MISSING, 0, (UNKNOWN_ID,))]


# After a start.


def start(member: Member) -> None:
    """As after a start: nobody has been heard of yet."""
    member.node.begin()
    member.node.acksets.resume()
    member.tick()


def test_after_a_start_events_are_handed_out_when_the_last_other_holder_has_told_all_that_it_knows() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    event_id = add(a, copies=3)
    cluster.isolate(a)
    start(a)
    assert a.node.streams.owners.unheard == {b.id, c.id}
    wait(a)
    cluster.hold(b, a)
    cluster.heal(a, b)
    cluster.advance(1)
    # It is told of that event: it is not known yet who hands it out.
    assert event_id in [told_id for flight in told(cluster, a) for told_id in ids_of(flight)]
    cluster.release(b, a, order=lambda flights: [])
    for words in ((0, (), True), (7, (), False), (0, (), False)):
        b.say(a, (FACTS, *words))
        assert a.node.streams.owners.unheard == {b.id, c.id}
    b.say(a, (FACTS, 8, (), True))
    assert a.node.streams.owners.unheard == {c.id}
    assert "waiting" not in a.answers
    cluster.heal(a, c)
    cluster.advance(1)
    assert a.answers.pop("waiting") == [[event_id, b"x"]]


def test_after_a_start_nobody_is_waited_for_when_all_is_this_nodes(cluster: Cluster) -> None:
    a, _ = cluster
    event_id = add(a)
    start(a)
    assert not a.node.acksets.awake_at
    assert get(a) == [event_id, b"x"]


def test_after_a_flush_of_the_node_nobody_is_waited_for_and_a_start_waits_again(cluster: Cluster) -> None:
    a, b = cluster
    add(a, copies=2)
    cluster.cut(a, b)
    start(a)
    cluster.hold(b, a)
    cluster.heal(a, b)
    assert a.node.acksets._rounds
    a("DEBUG", "FLUSHALL")
    assert not a.node.acksets._rounds
    assert not a.node.streams.owners.unheard
    add(a)
    a.state.unite_holders(event_of(a, event_ids(a)[0]), frozenset({b.id}))
    start(a)
    assert a.node.streams.owners.unheard == {b.id}
    cluster.advance(HEARD_MS)
    assert not a.node.streams.owners.unheard
