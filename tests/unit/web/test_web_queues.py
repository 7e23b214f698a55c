"""Tables of the queues of all nodes: sums, rates, who shares a walk, and what is missing."""

from collections.abc import Coroutine
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred, ensureDeferred
from twisted.internet.task import Clock

from disqued.core.model.peers import KnownNode
from disqued.core.model.policies import NO_PAUSE, PauseSetting
from disqued.core.model.queues import PAUSE_IN, PAUSE_OUT
from disqued.errors import CommandError
from disqued.web.views import node_labels, queue_views
from disqued.web.views.everywhere import ClusterReply, Everywhere, NodeReply
from disqued.web.views.queue_views import REST_S, REST_TIMES, QueueOnNodes, QueueRow, QueueTable, Rates, Sources

A, B, C = b"a" * 40, b"b" * 40, b"c" * 40


class View:
    """A node without queues."""

    id = A

    def queue(self, _: bytes) -> None:
        """There is none."""

    def wall(self) -> int:
        return 100_000

    def pause_of(self, name: bytes) -> PauseSetting:
        return PauseSetting(PAUSE_IN, b"deploy", b"olga") if name == b"all" else NO_PAUSE

    def known_nodes(self) -> list[KnownNode]:
        return [KnownNode(A, "", 7711, 0, myself=True), KnownNode(B, "10.0.0.2", 7711, 0, pong_at=88_000)]


@attrs.define
class Node:
    """The daemon, as far as questions need it: each call waits to be answered by the test."""

    reactor: Clock = attrs.field(factory=Clock)
    view: View = attrs.field(factory=View)
    calls: list[tuple[list[bytes], Deferred[Any]]] = attrs.field(factory=list)
    pieces: int = 0  #: that had their turns

    @property
    def clients(self) -> "Node":
        return self

    @property
    def turns(self) -> "Node":
        return self

    def add_piece(self, piece: Any) -> None:
        self.pieces += 1
        piece.turn()

    def call(self, words: list[bytes], *, address: str) -> Deferred[Any]:
        answer: Deferred[Any] = Deferred()
        self.calls.append((words, answer))
        return answer

    def answer(self, *rows: tuple[bytes, bytes, Any]) -> list[bytes]:
        words, answer = self.calls.pop(0)
        answer.callback(list(rows))
        return words


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def table(node: Node) -> QueueTable:
    gateway: Any = node
    history: Any = None
    return QueueTable(gateway, Everywhere(gateway), Rates(gateway, history))


def heard(work: Coroutine[Any, Any, Any]) -> list[Any]:
    """What it returned, or the exception, once there is either."""
    outcome: list[Any] = []
    ensureDeferred(work).addCallbacks(outcome.append, lambda failure: outcome.append(failure.value))
    return outcome


def told(name: bytes = b"q", **fields: Any) -> list[Any]:
    """What QSTAT FULL answers."""
    figures = {"len": 0, "idle": 0, "blocked": 0, "jobs-in": 0, "jobs-out": 0, "pause": b"none"}
    figures |= {field.replace("_", "-"): value for field, value in fields.items()}
    return [b"name", name, *(part for field, value in figures.items() for part in (field.encode(), value))]


def figures(facts: list[Any]) -> list[Any]:
    """The same as QSCAN REPLY figures answers it."""
    given = {bytes(name).decode(): value for name, value in zip(facts[::2], facts[1::2], strict=True)}
    told = {"in-flight": 0, "delayed": 0, "dead": 0, "failing": 0, "oldest": -1, "consumed": 0, "pause-node": b"none"}
    told |= dict.fromkeys(("elsewhere", "done", "slots-lost"), 0)
    told |= {"ready": given.get("owned", given["len"]), "requeued": 0, "is-log": int("owned" in given)}
    told |= {"delivered": given["jobs-out"]} | given
    return [
        told[name] for name in (
            "name", "ready", "in-flight", "delayed", "dead", "failing", "oldest", "blocked", "jobs-in", "delivered",
            "requeued", "consumed", "idle", "pause", "pause-node", "is-log", "elsewhere", "done", "slots-lost",
        )
    ]  # fmt: skip


def ended(*rows: list[Any]) -> list[Any]:
    """The last page of a walk."""
    return [b"0", [figures(row) for row in rows]]


def by_name(outcome: list[Any]) -> dict[bytes, QueueRow]:
    (found,) = outcome
    return {row.name: row for row in found.rows}


def test_each_figure_is_the_sum_and_the_oldest_the_greatest(node: Node, table: QueueTable) -> None:
    outcome = heard(table.all_queues())
    words = node.answer(
        (A, b"ok", ended(told(len=2, dead=1, oldest=5, idle=9, in_flight=1), told(b"here", len=1))),
        (B, b"ok", ended(told(len=3, failing=2, oldest=-1, delayed=4, idle=3, blocked=7), told(b"there", oldest=8))),
    )
    assert words == [b"CLUSTER", b"ASK", b"*", b"QSCAN", b"0", b"REPLY", b"figures", b"COUNT", b"25"]
    rows = by_name(outcome)
    assert rows.keys() == {b"q", b"here", b"there"}
    row = rows[b"q"]
    assert (row.length, row.dead, row.failing, row.delayed, row.in_flight, row.blocked) == (5, 1, 2, 4, 1, 7)
    assert (row.oldest_ms, row.idle_ms, rows[b"here"].oldest_ms, rows[b"there"].oldest_ms) == (
        5_000,
        3_000,
        None,
        8_000,
    )


def test_a_sum_leaves_the_figures_of_the_nodes_as_they_are() -> None:
    here, there = QueueRow(b"q", length=2, idle_ms=5), QueueRow(b"q", length=3, idle_ms=4)
    found = QueueOnNodes(Sources(0.0), {A: here, B: there})
    for _ in range(2):
        assert found.total == QueueRow(b"q", length=5, idle_ms=4, nodes=2)
    assert (here.length, there.length) == (2, 3)


@pytest.mark.parametrize(("walked", "pieces"), [(A, 3), (B, 0)])
def test_a_walk_pauses_after_each_answer_of_its_own_node_and_waits_for_those_of_others(
    node: Node, table: QueueTable, walked: bytes, pieces: int
) -> None:
    outcome = heard(table.all_queues())
    node.answer((walked, b"ok", [b"1", [figures(told(b"one"))]]))
    node.answer((walked, b"ok", [b"2", [figures(told(b"two"))]]))
    node.answer((walked, b"ok", ended(told(b"three"))))
    assert by_name(outcome).keys() == {b"one", b"two", b"three"}
    assert node.pieces == pieces + 1, "and one for the sums"


def test_events_of_a_log_are_counted_by_their_owners(node: Node, table: QueueTable) -> None:
    outcome = heard(table.all_queues())
    node.answer((A, b"ok", ended(told(len=5, owned=3))), (B, b"ok", ended(told(len=5, owned=2))))
    assert (by_name(outcome)[b"q"].length, by_name(outcome)[b"q"].is_log) == (5, True)


def test_a_walk_is_shared_and_rests_longer_the_longer_it_took(node: Node, table: QueueTable) -> None:
    first, second = heard(table.all_queues()), heard(table.all_queues())
    node.answer((A, b"ok", ended(told())))
    assert first[0] is second[0] is heard(table.all_queues())[0]
    node.reactor.advance(REST_S - 0.1)
    assert heard(table.all_queues())[0] is first[0]
    assert not node.calls
    node.reactor.advance(0.1)
    heard(table.all_queues())
    node.reactor.advance(1)
    node.answer((A, b"ok", ended(told())))
    node.reactor.advance(REST_TIMES - 0.1)
    heard(table.all_queues())
    assert not node.calls
    node.reactor.advance(0.1)
    heard(table.all_queues())
    assert len(node.calls) == 1


def test_who_looks_now_and_then_shares_older_figures_and_who_has_changed_something_waits_for_none(
    node: Node, table: QueueTable
) -> None:
    first = heard(table.all_queues())
    node.answer((A, b"ok", ended(told())))
    node.reactor.advance(REST_S + 1)
    assert heard(table.all_queues(REST_S + 2))[0] is first[0]
    assert not node.calls
    second = heard(table.all_queues())
    node.answer((A, b"ok", ended(told())))
    assert second[0] is not first[0]
    heard(table.all_queues(0))
    assert len(node.calls) == 1


def test_a_name_that_a_node_only_has_jobs_of_was_used_where_it_has_a_queue(node: Node, table: QueueTable) -> None:
    outcome = heard(table.all_queues())
    alone = told(b"later", idle=-1, delayed=2)
    node.answer((A, b"ok", ended(told(idle=9), alone)), (B, b"ok", ended(told(idle=-1, delayed=1), alone)))
    rows = by_name(outcome)
    assert (rows[b"q"].idle_ms, rows[b"q"].delayed) == (9_000, 1)
    assert (rows[b"later"].idle_ms, rows[b"later"].delayed) == (None, 4)


def test_waiting_for_a_silent_node_is_no_work(node: Node, table: QueueTable) -> None:
    heard(table.all_queues())
    node.reactor.advance(2)
    node.answer((A, b"ok", ended()), (B, b"silent", None))
    node.reactor.advance(REST_S)
    heard(table.all_queues())
    assert len(node.calls) == 1


def test_one_who_has_gone_leaves_the_walk_to_the_next(node: Node, table: QueueTable) -> None:
    gone = ensureDeferred(table.all_queues())
    stays = heard(table.all_queues())
    gone.addErrback(lambda failure: None)
    gone.cancel()
    for _ in list(node.calls):
        node.answer((A, b"ok", ended(told())))
    assert by_name(stays).keys() == {b"q"}


def test_a_node_that_falls_silent_within_a_walk_is_missing_with_all_its_figures(node: Node, table: QueueTable) -> None:
    outcome = heard(table.all_queues())
    node.answer((A, b"ok", ended(told(len=1))), (B, b"ok", [b"7", [figures(told(len=1))]]), (C, b"away", None))
    node.answer((B, b"silent", None))
    assert by_name(outcome)[b"q"].length == 1
    assert [(reply.node_id, reply.status) for reply in outcome[0].sources.missing] == [(B, b"silent"), (C, b"away")]


def test_a_node_that_is_forgotten_within_a_walk_is_missing(node: Node, table: QueueTable) -> None:
    outcome = heard(table.all_queues())
    node.answer((A, b"ok", [b"7", []]), (B, b"ok", ended(told())))
    node.calls.pop(0)[1].errback(CommandError("Unknown node"))
    assert [reply.value for reply in outcome[0].sources.missing] == [b"ERR Unknown node"]
    assert by_name(outcome).keys() == {b"q"}


def walk(node: Node, table: QueueTable, *answers: tuple[bytes, int]) -> float | None:
    """Walk after two more seconds, and answer jobs queued on nodes; returns the rate."""
    node.reactor.advance(REST_S)
    outcome = heard(table.all_queues())
    node.answer(*((node_id, b"ok", ended(told(jobs_in=jobs_in))) for node_id, jobs_in in answers))
    return by_name(outcome)[b"q"].in_rate


def test_rates_are_those_of_each_node_so_that_one_that_comes_or_goes_makes_no_jump(
    node: Node, table: QueueTable
) -> None:
    assert walk(node, table, (B, 100), (C, 5_000)) is None
    assert walk(node, table, (B, 120), (C, 5_010)) == 15
    assert walk(node, table, (B, 140)) == 10, "one has gone"
    assert walk(node, table, (B, 160), (C, 5_050)) == 20, "and comes back: 40 jobs in 4 seconds"
    assert walk(node, table, (A, 9_000), (B, 180), (C, 5_050)) is None, "the rate of a new one is not known yet"
    assert walk(node, table, (A, 9_002), (B, 200), (C, 10)) is None, "one counts from the beginning"
    assert walk(node, table, (A, 9_004), (B, 220), (C, 20)) == 16


def test_jobs_that_move_to_another_node_are_not_delivered(node: Node, table: QueueTable) -> None:
    answers = (told(jobs_out=5, delivered=5), told(jobs_out=505, delivered=5), told(jobs_out=507, delivered=7))
    rows = []
    for answer in answers:
        node.reactor.advance(REST_S)
        outcome = heard(table.all_queues())
        node.answer((B, b"ok", ended(answer)))
        rows.append(by_name(outcome)[b"q"])
    assert [(row.delivered, row.out_rate) for row in rows] == [(5, None), (5, 0), (7, 1)]


def test_a_row_says_for_how_long_no_job_was_seen_to_be_delivered(node: Node, table: QueueTable) -> None:
    ages = []
    for delivered, pause_s in ((5, REST_S), (5, REST_S), (7, REST_S), (7, 40), (7, queue_views.STALE_S - 40)):
        node.reactor.advance(pause_s)
        outcome = heard(table.all_queues())
        node.answer((A, b"ok", ended(told(jobs_out=1))), (B, b"ok", ended(told(jobs_out=delivered))))
        ages.append(by_name(outcome)[b"q"].delivered_ms)
    assert ages == [None, None, 0, 40_000, None]


def test_what_an_older_node_hands_out_counts_as_delivered(node: Node, table: QueueTable) -> None:
    outcome = heard(table.one(b"q", 0))
    node.answer((B, b"ok", told(jobs_out=5)))
    assert outcome[0].total.delivered == 5


def test_counters_that_are_too_close_or_too_old_make_no_rate(
    node: Node, table: QueueTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk(node, table, (B, 0))
    assert walk(node, table, (B, 20)) == 10
    monkeypatch.setattr(queue_views, "LEAST_S", 3)
    assert walk(node, table, (B, 999)) == 10
    node.reactor.advance(queue_views.STALE_S)
    assert walk(node, table, (B, 2_000)) is None


def test_when_nobody_can_be_asked_the_figures_are_those_of_before(node: Node, table: QueueTable) -> None:
    outcome = heard(table.all_queues())
    node.calls.pop(0)[1].errback(CommandError("loading"))
    assert (outcome[0].sources.failure, outcome[0].rows) == ("loading", [])
    node.reactor.advance(REST_S)
    before = heard(table.all_queues())
    node.answer((A, b"ok", ended(told())))
    node.reactor.advance(REST_S)
    after = heard(table.all_queues())
    node.calls.pop(0)[1].errback(CommandError("paused"))
    assert after[0].rows == before[0].rows
    assert (after[0].sources.failure, after[0].sources.asked_at) == ("paused", before[0].sources.asked_at)


def test_one_queue_has_a_row_for_each_node_that_has_it(node: Node, table: QueueTable) -> None:
    outcome = heard(table.one(b"q", 0))
    words = node.answer((A, b"ok", None), (B, b"ok", told(len=1)), (C, b"ok", told(len=2)))
    assert words[2:] == [b"*", b"QSTAT", b"q", b"FULL"]
    assert {node_id: row.length for node_id, row in outcome[0].on_nodes.items()} == {B: 1, C: 2}
    assert outcome[0].total.length == 3
    none = heard(table.one(b"other", 0))
    node.answer((A, b"ok", None))
    assert none[0].total is None
    refused = heard(table.one(b"more", 0))
    node.calls.pop(0)[1].errback(CommandError("loading"))
    assert (refused[0].total, refused[0].sources.failure) == (None, "loading")


@pytest.mark.parametrize(
    ("row", "scope", "note"),
    [
        (QueueRow(b"q"), "", ""),
        (QueueRow(b"all", pause=PAUSE_IN), "all nodes", "all nodes, by olga: deploy"),
        (QueueRow(b"q", pause=PAUSE_OUT, node_pause=PAUSE_OUT, paused_on=(A,)), "this node", "this node"),
        (QueueRow(b"q", pause=PAUSE_OUT, node_pause=PAUSE_OUT, paused_on=(B,)), "node bbbbbbbb", "node bbbbbbbb"),
        (
            QueueRow(b"all", pause=PAUSE_IN | PAUSE_OUT, node_pause=PAUSE_OUT, paused_on=(B, C)),
            "all nodes, and out on 2 nodes", "all nodes, and out on 2 nodes, by olga: deploy",
        ),
    ],
)  # fmt: skip
def test_a_pause_says_where_it_holds(row: QueueRow, scope: str, note: str) -> None:
    view: Any = View()
    assert (queue_views.pause_scope(view, row), queue_views.pause_note(view, row)) == (scope, note)


def test_a_pause_that_only_another_node_has_is_a_banner_that_names_it() -> None:
    view: Any = View()
    row = QueueRow(b"all", pause=PAUSE_IN | PAUSE_OUT, node_pause=PAUSE_OUT, paused_on=(B,))
    shown = queue_views.pauses_of(view, b"all", row)
    assert [(one.what, one.scope, one.owner, one.reason) for one in shown] == [
        ("Adds are paused", "on all nodes", "olga", "deploy"), ("Delivery is paused", "on node bbbbbbbb", "", "")
    ]  # fmt: skip
    assert queue_views.pauses_of(view, b"q", None) == []


def test_sums_of_copies_are_called_copies_where_several_nodes_count() -> None:
    of_one, of_two = (node_labels.ShownSources(nodes, [], 0, "") for nodes in (1, 2))
    labels = ("Ready", "In flight", "Delayed", "Dead", "Failing")
    assert [of_one.label(name) for name in labels] == list(labels)
    assert [of_two.label(name) for name in labels] == [
        "Ready", "In flight", "Delayed copies", "Dead copies", "Failing copies"
    ]  # fmt: skip


def test_nodes_that_are_missing_are_named_with_the_reason() -> None:
    view: Any = View()
    replies = [
        NodeReply(A, b"ok", 1), NodeReply(B, b"away", None), NodeReply(C, b"silent", None),
        NodeReply(C, b"error", b"LOADING the store"),
    ]  # fmt: skip
    shown = node_labels.shown_sources(view, ClusterReply(0.0, replies), 1.5, "")
    assert (shown.nodes, shown.age_ms) == (1, 1_500)
    assert [one.sentence for one in shown.missing] == [
        "Node bbbbbbbb (10.0.0.2:7711) has no link to this node, and was heard 12 s ago.",
        "Node cccccccc has a link, and has not answered within 2 s.",
        "Node cccccccc refuses to answer: LOADING the store.",
    ]
    assert [(label.short, label.myself) for label in node_labels.labels(view, (A, C))] == [
        ("aaaaaaaa", True), ("cccccccc", False)
    ]  # fmt: skip
