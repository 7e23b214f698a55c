"""What goes wrong with bananaq and must not go wrong here: a test for each, and for who gets what when several ask."""

from collections.abc import Iterator

import pytest

from disqued.commands.table import BLOCKED
from tests.core_fixtures import UNKNOWN_ID, check
from tests.unit.commands.test_streams import Bench, counts


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    check(made)


def test_defect_1_overdue_limbo(bench: Bench) -> None:
    """Between a missed deadline and the next sweep an event could neither be fetched nor acknowledged."""
    event_id = bench.event()
    bench.take("g", "EX", 1)
    bench("QGET", "q", "g", "BLOCK", 60, client="anna")
    bench.advance(1_000)
    assert not bench.answers
    assert counts(bench) == (1, 0, 0, 0)
    bench.advance(1)
    assert bench.answers["anna"] == [[event_id, b"x"]]


def test_defect_2_an_expired_pointer_rewinds_the_group(bench: Bench) -> None:
    """When the newest event that a group had fetched expired before older ones, it got the oldest for ever."""
    for body in "ab":
        bench.event(body, "q", 100)
    bench.event("newest", "q", 2)
    for _ in range(3):
        bench.take("g", "EX", 0)
    bench.advance(2_000)
    assert [bench.take() for _ in range(3)] == [None] * 3
    assert counts(bench) == (0, 0, 2, 0)
    bench.event("c")
    assert [bench.body(), bench.body()] == [b"c", None]


def test_defect_3_acknowledged_but_the_body_is_lost(bench: Bench) -> None:
    """The id was claimed in one step and the body read in another, when it could be gone."""
    bench.event("x", "q", 1)
    bench.advance(999)
    assert bench.body("g", "EX", 0) == b"x"
    bench.advance(1)
    assert bench.take("other", "EX", 0) is None


def test_defect_4_a_missed_wake_up(bench: Bench) -> None:
    """What came between the first look and the beginning of the subscription woke nobody."""
    bench.node.begin()
    bench.run("QGET", "q", "g", "BLOCK", 60, client="anna")
    event_id = bench.run("QADD", "q", 60, "x", client="ben")
    assert bench.answers["anna"] == [[event_id, b"x"]]


@pytest.mark.parametrize("command", [("QGET", "q", "g", "BLOCK", 60), ("QNOTIFY", "g", 60, "q")])
def test_defect_5_no_wake_up_for_redo(bench: Bench, command: tuple[str | int, ...]) -> None:
    """An event that came back woke nobody."""
    event_id = bench.event()
    bench.take("g", "EX", 1)
    bench(*command, client="anna")
    bench.advance(1_001)
    assert bench.answers["anna"] == [[event_id, b"x"] if command[0] == "QGET" else b"q"]


def test_defect_6_the_deadline_is_counted_from_the_arrival_of_a_blocking_fetch(bench: Bench) -> None:
    """After a long wait an event was delivered with its deadline already gone."""
    bench("QGET", "q", "g", "EX", 2, "BLOCK", 60, client="anna")
    bench.advance(10_000)
    event_id = bench.event()
    bench.advance(2_000)
    assert bench.ack(event_id) == 1


@pytest.mark.parametrize("words", [("BLOCK", 5, "DEADLINE", 10), ("DEADLINE", 10, "BLOCK", 5)])
def test_defect_7_the_order_of_options_changes_the_delivery(bench: Bench, words: tuple[str | int, ...]) -> None:
    """BLOCK in front of DEADLINE dropped the deadline, and made the delivery one without acknowledgement."""
    event_id = bench.event()
    assert bench.take("g", *words) == [event_id, b"x"]
    assert counts(bench) == (1, 0, 0, 0)
    assert bench.ack(event_id) == 1


def test_defect_8_a_client_that_disconnects_while_it_is_blocked(bench: Bench) -> None:
    """It was given an event all the same."""
    bench("QGET", "q", "g", "BLOCK", 60, client="anna")
    bench.gone("anna")
    bench.event("a")
    assert counts(bench) == (0, 0, 0, 1)
    bench.vanished.add("ben")
    bench.take("g", "EX", 0)
    bench("QGET", "q", "g", "BLOCK", 60, client="ben")
    event_id = bench.event("b")
    assert counts(bench) == (0, 0, 1, 1)
    assert bench.take() == [event_id, b"b"]
    assert bench.ack(event_id) == 1


def test_defect_9_a_group_named_available_collides_with_internal_keys(bench: Bench) -> None:
    for name in ("available", "done", "redo", "inprogress", "total"):
        event_id = bench.event(name, name)
        assert bench.take(name, queue=name) == [event_id, name.encode()]
        assert bench.ack(event_id, name, name) == 1
        assert counts_of(bench, name) == (0, 0, 1, 0)


def counts_of(bench: Bench, name: str) -> tuple[int, ...]:
    figures = bench.figures(name, name)
    return tuple(figures[key] for key in ("inprogress", "redo", "done", "available"))


# Who gets what.


def test_two_consumers_of_a_group_who_fetch_at_once_get_two_events_or_one_gets_none(bench: Bench) -> None:
    first, second = bench.event("a"), bench.event("b")
    bench.node.begin()
    taken = [bench.run("QGET", "q", "g", client=client) for client in ("anna", "ben", "cleo")]
    assert taken == [[first, b"a"], [second, b"b"], None]


def test_two_groups_that_fetch_at_once_get_the_same_event(bench: Bench) -> None:
    event_id = bench.event()
    bench.node.begin()
    assert bench.run("QGET", "q", "g") == bench.run("QGET", "q", "h") == [event_id, b"x"]


def test_who_missed_its_deadline_acknowledges_what_another_one_has(bench: Bench) -> None:
    event_id = bench.event()
    bench.take("g", "EX", 1)
    bench.advance(1_001)
    bench.take("g", "EX", 9)
    assert [bench.ack(event_id), bench.ack(event_id)] == [1, 0]


def test_who_missed_its_deadline_has_done_nothing_while_the_event_waits(bench: Bench) -> None:
    event_id = bench.event()
    bench.take("g", "EX", 1)
    bench.advance(1_001)
    assert bench.ack(event_id) == 0
    assert bench.take() == [event_id, b"x"]


def test_exactly_at_the_deadline_is_in_time(bench: Bench) -> None:
    event_id = bench.event()
    bench.take("g", "EX", 1)
    bench.advance(1_000)
    assert bench.ack(event_id) == 1


def test_an_event_that_ends_while_it_is_in_progress_is_gone(bench: Bench) -> None:
    event_id = bench.event("x", "q", 1)
    bench.take("g", "EX", 9)
    bench.advance(1_000)
    assert bench.ack(event_id) == 0


def test_an_event_that_ends_in_redo_is_dropped(bench: Bench) -> None:
    bench.event("x", "q", 3)
    bench.take("g", "EX", 1)
    bench.advance(3_000)
    assert bench.take() is None


def test_a_group_that_appears_after_the_events_sees_all_that_live(bench: Bench) -> None:
    bench.event("dead", "q", 1)
    bench.event("alive", "q", 9)
    bench.advance(1_000)
    assert [bench.body("new"), bench.body("new")] == [b"alive", None]


def test_an_event_that_comes_with_an_earlier_place_than_the_newest_one_fetched_is_not_skipped(bench: Bench) -> None:
    """Ids out of order: the pointer of a group only moved forward, and passed over what came late behind it."""
    late = bench.event("late", "q", 60, "DELAY", 5)
    early = bench.event("early")
    assert bench.take("g", "EX", 30) == [early, b"early"]
    assert bench.ack(early) == 1
    assert bench.take("g") is None
    bench.advance(5_000)
    assert bench.take("g") == [late, b"late"]


def test_waiters_of_a_queue_that_is_flushed_keep_waiting(bench: Bench) -> None:
    assert bench("QGET", "q", "g", "BLOCK", 60, client="anna") is BLOCKED
    bench("QFLUSH", "q")
    assert not bench.answers
    event_id = bench.event()
    assert bench.answers["anna"] == [[event_id, b"x"]]
    bench.advance(1)


def test_of_ten_in_qnotify_all_are_told_and_of_ten_in_qget_one_is(bench: Bench) -> None:
    for number in range(10):
        bench("QNOTIFY", "g", 60, "q", client=("notify", number))
        bench("QGET", "q", "g", "BLOCK", 60, client=("get", number))
    event_id = bench.event()
    assert bench.answers.pop(("get", 0)) == [[event_id, b"x"]]
    assert bench.answers == {("notify", number): [b"q"] for number in range(10)}


def test_one_command_has_one_reply(bench: Bench) -> None:
    """Defect 10: two errors were answered to one command, so that client and server were out of step from then on."""
    assert bench.refusal("QACK", "q", "g", "no id").startswith("BADID ")
    assert bench("QACK", "q", "g", UNKNOWN_ID) == 0
