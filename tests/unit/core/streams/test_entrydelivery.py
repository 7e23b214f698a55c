"""Who gets an event, those that wait included, and what becomes of one whose consumer is gone."""

from collections.abc import Iterator

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model import groups
from disqued.core.model.messages import DELIVERED, SETTLE, TAKE, UNSEEN
from disqued.core.streams import entrydelivery
from tests.cluster_fixtures import Cluster
from tests.core_fixtures import check as check_node
from tests.unit.commands.test_streams import Bench, counts
from tests.unit.core.streams.test_pending import gone, unit_of
from tests.unit.core.streams.test_readers import add, answer, check, figures, get, isolated


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    check_node(made)


# Who gets what.


def test_one_group_that_waits_is_served_beside_one_that_does_not(bench: Bench) -> None:
    bench.event("old")
    bench.take("h")
    assert bench("QGET", "q", "g", "EX", 0) is not None
    assert bench("QGET", "q", "g", "BLOCK", 60, client="anna") is BLOCKED
    event_id = bench.event("new")
    assert bench.answers["anna"] == [[event_id, b"new"]]


@pytest.mark.reference
def test_several_large_events_are_fewer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entrydelivery, "FETCHED_BYTES", 10)
    for _ in range(5):
        bench.event("12345")
    assert len(bench("QGET", "q", "g", "COUNT", 5)) == 2
    assert len(bench("QGET", "q", "g", "COUNT", 5)) == 2
    assert len(bench("QGET", "q", "g", "COUNT", 5)) == 1
    bench.event("123456789")
    bench.event("1")
    assert len(bench("QGET", "q", "g", "COUNT", 5)) == 2


def test_what_was_found_is_given_though_what_comes_next_takes_longer_to_find(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "SKIPPED_AT_ONCE", 10)
    first = bench.event("first")
    for _ in range(30):
        bench.event("over", "q", 1)
    last = bench.event("last")
    # Their time is over, and nobody has looked yet.
    bench.clock.advance(1_000)
    assert bench("QGET", "q", "g", "COUNT", 2) == [[first, b"first"]]
    assert bench("QGET", "q", "g", "COUNT", 2, client="anna") is BLOCKED
    bench.advance(10)
    assert bench.answers["anna"] == [[[last, b"last"]]]


def test_a_paused_log_says_to_others_that_it_has_none() -> None:
    cluster = Cluster(2)
    a, b = cluster
    add(a)
    a("PAUSE", "q", "out", "node")
    assert answer(b, "QGET", "q", "g", "COUNT", 2) is None
    assert not cluster.sent(TAKE)


def test_who_waits_is_served_though_it_takes_several_parts_to_find_something(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "SKIPPED_AT_ONCE", 10)
    bench("PAUSE", "q", "out")
    for _ in range(30):
        bench.event("over", "q", 1)
    last = bench.event("last")
    assert bench("QGET", "q", "g", "BLOCK", 60, client="anna") is BLOCKED
    bench.clock.advance(1_000)
    bench("PAUSE", "q", "none")
    assert not bench.answers
    bench.advance(10)
    assert bench.answers["anna"] == [[last, b"last"]]


def test_who_wanted_to_be_told_is_told_once(bench: Bench) -> None:
    assert bench("QNOTIFY", "g", 60, "q", client="anna") is BLOCKED
    bench.event()
    bench.event()
    assert bench.answers["anna"] == [b"q"]
    assert "anna" not in bench.state.waiting.blocked


def test_who_waits_to_be_done_at_once_hears_that_this_cannot_be_kept_and_the_next_one_is_served(bench: Bench) -> None:
    event_id = bench.event()
    bench.take()
    assert bench("QGET", "q", "g", "EX", 0, "BLOCK", 60, client="anna") is BLOCKED
    assert bench("QGET", "q", "g", "BLOCK", 60, client="ben") is BLOCKED
    bench.state.durability.read_only = True
    bench("QGROUP", "RETURN", "q", "g", event_id)
    (error,) = bench.answers["anna"]
    assert error.line.startswith(b"MISCONF ")
    assert "anna" not in bench.state.waiting.blocked
    assert bench.answers["ben"] == [[event_id, b"x"]]
    assert counts(bench) == (1, 0, 0, 0)


def test_who_wants_to_be_told_is_not_told_of_what_its_group_cannot_have(bench: Bench) -> None:
    bench.event()
    bench.take("g", "EX", 0)
    assert bench("QNOTIFY", "g", 60, "q", client="anna") is BLOCKED
    bench("PAUSE", "q", "out")
    bench("PAUSE", "q", "none")
    assert not bench.answers


def test_one_who_waits_for_events_of_this_node_alone_does_not_keep_others_from_having_some() -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a, copies=2)
    cluster.isolate(a)
    assert b("QGET", "q", "g", "EX", 0, "STRICT", "BLOCK", 600, client="strict") is BLOCKED
    assert b("QGET", "q", "g", "BLOCK", 600, client="lax") is BLOCKED
    isolated(cluster, a)
    assert b.answers == {"lax": [[event_id, b"x"]]}
    own = add(b, body="own")
    assert b.answers["strict"] == [[own, b"own"]]


# What comes back.


def test_who_gets_what_another_one_never_saw_gets_it_at_once(bench: Bench) -> None:
    event_id = bench.event()
    bench("QGET", "q", "g", client="anna")
    assert bench("QGET", "q", "g", "BLOCK", 60, client="ben") is BLOCKED
    gone(bench, "anna", event_id + b":0:g")
    assert bench.answers["ben"] == [[event_id, b"x"]]


def test_what_was_had_before_is_to_be_had_again_though_the_last_one_never_saw_it(bench: Bench) -> None:
    event_id = bench.event()
    bench.take("g", "EX", 1)
    bench.advance(1_001)
    bench("QGET", "q", "g", client="anna")
    gone(bench, "anna", event_id + b":0:g")
    assert counts(bench) == (0, 1, 0, 0)
    assert unit_of(bench, event_id).deliveries == 1
    # Nobody has it: that somebody else is gone, too, changes nothing.
    gone(bench, "client", event_id + b":0:g")
    assert counts(bench) == (0, 1, 0, 0)
    assert unit_of(bench, event_id).deliveries == 1


def test_what_other_nodes_were_told_was_had_is_to_be_had_again_on_all() -> None:
    """That merges by maximum, so that it cannot be taken back."""
    cluster = Cluster(2)
    a, _ = cluster
    event_id = add(a, copies=2)
    get(a)
    gone(a, "reader", event_id + b":0:g")
    cluster.settle()
    assert [figures(member)[b"redo"] for member in cluster] == [1, 1]
    check(cluster)


def test_what_was_done_when_it_was_handed_out_stays_done(bench: Bench) -> None:
    bench.vanished.add("anna")
    assert bench("QGET", "q", "g", "EX", 0, "BLOCK", 60, client="anna") is BLOCKED
    bench.event()
    assert counts(bench) == (0, 0, 1, 0)


@pytest.mark.parametrize("scope", [b"0:h", b"1:g", b"g", b"", b"nonsense"])
def test_what_was_handed_to_no_group_of_now_changes_nothing_when_it_was_not_seen(bench: Bench, scope: bytes) -> None:
    event_id = bench.event()
    delayed = bench.event("y", "q", 60, "DELAY", 5)
    bench.take()
    gone(bench, "client", event_id + b":" + scope, delayed + b":" + scope)
    assert counts(bench) == (1, 0, 0, 0)


@pytest.mark.parametrize("is_known", [False, True])
def test_what_another_node_handed_out_goes_back_to_it_though_a_copy_is_here(is_known: bool) -> None:
    cluster = Cluster(2)
    a, b = cluster
    event_id = add(a, copies=2)
    if not is_known:
        cluster.lose = lambda flight: flight.kind == DELIVERED
    get(b)
    assert figures(b)[b"inprogress"] == is_known
    cluster.lose = lambda flight: False
    gone(b, "reader", event_id + b":0:g")
    cluster.settle()
    assert [flight.message[4:] for flight in cluster.sent(SETTLE)] == [(UNSEEN, (event_id,))]
    assert figures(a)[b"redo"] == 1
    assert get(b) == [event_id, b"x"]
