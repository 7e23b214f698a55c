"""What needs attention, as the overview says it: of nodes, of queues, the worst first."""

from typing import Any

import attrs
import pytest

from disqued.core.model.peers import FAIL, LEAVING, KnownNode
from disqued.core.model.queues import PAUSE_IN, PAUSE_OUT
from disqued.web.views.cluster_answers import MissingNode
from disqued.web.views.health_findings import (
    KINDS,
    NEW_S,
    OLD_MS,
    SHOWN,
    UNCONSUMED_MS,
    FindingGroup,
    NodeFacts,
    QueueSurvey,
    in_order,
    node_groups,
)
from disqued.web.views.queue_views import STILL_MS, QueueRow

A, B, C = b"a" * 40, b"b" * 40, b"c" * 40
KNOWN = [
    KnownNode(A, "10.0.0.1", 7711, 0, myself=True, connected=True), KnownNode(B, "10.0.0.2", 7711, 0, connected=True),
    KnownNode(C, "", 7711, 0, flags=FAIL),
]  # fmt: skip
WELL = {"loading": "0", "aof_last_write_status": "ok", "aof_last_bgrewrite_status": "ok", "memory_level": "1",
        "dir_free_bytes": "50", "dir_size_bytes": "1000"}  # fmt: skip
CONSUMED = QueueRow(b"q", length=3, blocked=1, oldest_ms=1_000)


def of_nodes(**more: Any) -> list[FindingGroup]:
    return in_order(node_groups(NodeFacts(A, **{"known": KNOWN, "facts": {A: WELL, B: WELL}, **more})))


def of_queues(*rows: QueueRow, is_whole: bool = True, has_copies: bool = False) -> dict[str, FindingGroup]:
    survey = QueueSurvey()
    survey.look(rows)
    groups = survey.groups(lambda row: f"Pause {row.pause}. ", is_whole=is_whole, has_copies=has_copies)
    return {group.kind: group for group in in_order(groups)}


def said(groups: list[FindingGroup]) -> list[tuple[str, str, list[str]]]:
    return [(group.kind, group.title, [one.text for one in group.findings]) for group in groups]


def test_nothing_is_wrong_where_all_is_well() -> None:
    assert of_nodes() == []
    assert of_queues() == {}
    log = QueueRow(b"log", length=9, oldest_ms=10 * OLD_MS, is_log=True)
    assert of_queues(CONSUMED, QueueRow(b"idle"), log) == {}


@pytest.mark.parametrize(
    ("fields", "kind", "title", "here", "there"),
    [
        (
            {"aof_last_write_status": "err"}, "store", "Writes fail on 2 nodes",
            "This node could not write to its store.", "Node bbbbbbbb (10.0.0.2:7711) could not write to its store.",
        ),
        (
            {"aof_last_write_status": "err", "persistence_failure": "no space left"}, "store",
            "Writes fail on 1 node", "",
            "Node bbbbbbbb (10.0.0.2:7711) could not write to its store: no space left.",
        ),
        (
            {"aof_last_write_status": "err", "redis_last_error": "refused"}, "store", "Writes fail on 2 nodes",
            "This node could not write to its store: refused.",
            "Node bbbbbbbb (10.0.0.2:7711) could not write to its store: refused.",
        ),
        (
            {"aof_last_bgrewrite_status": "err"}, "store", "Writes fail on 2 nodes",
            "This node could not compact its journal; its log says why.",
            "Node bbbbbbbb (10.0.0.2:7711) could not compact its journal; its log says why.",
        ),
        (
            {"dir_free_bytes": "49"}, "disk", "Disk space is low on 2 nodes",
            "This node has 49 B of 1000 B free where its data are.",
            "Node bbbbbbbb (10.0.0.2:7711) has 49 B of 1000 B free where its data are.",
        ),
        (
            {"memory_level": "2", "used_memory": "960", "maxmemory": "1000"}, "memory",
            "Memory is nearly full on 1 node", "",
            "Node bbbbbbbb (10.0.0.2:7711) uses 960 B of 1000 B, and evicts what it may drop.",
        ),
        (
            {"loading": "1"}, "node-loading", "Data are being loaded on 1 node", "",
            "Node bbbbbbbb (10.0.0.2:7711) loads its data and answers commands with LOADING.",
        ),
    ],
)  # fmt: skip
def test_what_a_node_says_of_itself_is_a_finding_unless_this_one_says_it_already(
    fields: dict[str, str], kind: str, title: str, here: str, there: str
) -> None:
    found = of_nodes(facts={A: WELL | fields, B: WELL | fields})
    assert said(found) == [(kind, title, [text for text in (here, there) if text])]
    assert found[0].findings[-1].node_id == B


def test_fields_that_a_node_of_another_version_lacks_or_fills_otherwise_are_no_findings() -> None:
    assert of_nodes(facts={A: {}, B: {"memory_level": "high", "dir_size_bytes": "-1"}}) == []


def test_missing_leaving_and_own_trouble_are_told_and_the_worst_first() -> None:
    leaving = KnownNode(B, "10.0.0.2", 7711, 0, flags=LEAVING)
    own_leaves = KnownNode(A, "10.0.0.1", 7711, 0, flags=LEAVING, myself=True)
    missing = [MissingNode(C, "", "has failed, and was heard 5 s ago")]
    found = of_nodes(known=[own_leaves, leaving], missing=missing, failure="LOADING the store", trouble=["Odd."],
                     drained=[B])  # fmt: skip
    assert said(found) == [
        ("cannot-ask", "The nodes cannot be asked now", ["LOADING the store."]),
        ("node-missing", "1 node does not answer", ["Node cccccccc has failed, and was heard 5 s ago."]),
        ("this-node", "This node needs attention", ["Odd."]),
        ("node-leaving", "2 nodes leave the cluster",
         ["This node leaves the cluster: it hands its jobs to other nodes and accepts no new ones.",
          "Node bbbbbbbb (10.0.0.2:7711) is drained, and may be stopped."]),
    ]  # fmt: skip
    assert [group.severity for group in found] == ["error", "error", "error", "warning"]
    assert [group.path for group in found] == ["/#h-nodes", "/#h-nodes", "/#h-node", "/#h-nodes"]


@pytest.mark.parametrize(
    ("row", "kind", "title", "text"),
    [
        (QueueRow(b"q", dead=2), "dead", "1 queue has dead jobs", "2 dead jobs."),
        (QueueRow(b"q", failing=1), "failing", "1 queue has failing jobs", "1 failing job."),
        (
            QueueRow(b"q", length=1, oldest_ms=UNCONSUMED_MS),
            "unconsumed",
            "1 queue has ready jobs and no consumer on any node",
            "1 ready job, the oldest added 2 s ago.",
        ),
        (QueueRow(b"q", length=1), "unconsumed", "1 queue has ready jobs and no consumer on any node", "1 ready job."),
        (QueueRow(b"q", pause=PAUSE_IN), "paused", "1 queue is paused", "Pause 1. 0 ready jobs."),
        (
            attrs.evolve(CONSUMED, oldest_ms=OLD_MS),
            "old",
            "1 queue has a backlog of old jobs",
            "3 ready jobs, the oldest added 15 min ago.",
        ),
        (
            QueueRow(b"q", length=1, elsewhere=7, nodes=3, blocked=1),
            "stranded",
            "1 queue or more has jobs that no node hands out",
            "at least 5 copies of jobs that wait for the end of their retry time, as the node that had them is gone.",
        ),
        (
            QueueRow(b"q", slots_lost=1),
            "slots-lost",
            "1 queue has slots of nodes that are gone",
            "1 slot of a node that is gone or began anew; it is free when its job is acknowledged or comes again.",
        ),
    ],
)
def test_a_queue_stands_under_what_is_wrong_with_it(row: QueueRow, kind: str, title: str, text: str) -> None:
    found = of_queues(row, CONSUMED)
    assert said(list(found.values())) == [(kind, title, [text])]
    assert found[kind].findings[0].queue == b"q"
    assert not found[kind].more


@pytest.mark.parametrize(
    "fields",
    [
        {"blocked": 1},
        {"in_flight": 1},
        {"out_rate": 0.5},
        {"delivered_ms": 40_000},
        {"pause": PAUSE_OUT},
        {"oldest_ms": UNCONSUMED_MS - 1},
        {"length": 0},
    ],
)
def test_a_queue_with_a_consumer_or_nothing_to_consume_is_not_unconsumed(fields: dict[str, Any]) -> None:
    row = attrs.evolve(QueueRow(b"q", length=1, oldest_ms=60_000), **fields)
    assert "unconsumed" not in of_queues(row)


@pytest.mark.parametrize(
    "fields",
    [
        {"length": 3},
        {"length": 1, "in_flight": 1, "delayed": 1},
        {"idle_ms": STILL_MS - 1},
        {"is_log": True},
        {"elsewhere": 0, "nodes": 1},
    ],
)
def test_copies_of_jobs_that_a_node_may_have_are_not_stranded(fields: dict[str, Any]) -> None:
    row = QueueRow(b"q", elsewhere=6, nodes=3, idle_ms=STILL_MS)
    assert row.stranded == 6
    assert attrs.evolve(row, **fields).stranded == 0


def test_a_start_without_a_store_is_told_for_a_while_unless_all_started_together() -> None:
    def facts(up_s: int, store: str = "none") -> dict[str, str]:
        return WELL | {"uptime_in_seconds": str(up_s), "persistence": store}

    assert said(of_nodes(facts={A: facts(3_600), B: facts(12)})) == [
        ("node-new", "1 node started a short time ago without a store",
         ["Node bbbbbbbb (10.0.0.2:7711) started 12 s ago: jobs that it alone had before are lost."]),
    ]  # fmt: skip
    assert of_nodes(facts={A: facts(3_600), B: facts(12, "aof")}) == []
    assert of_nodes(facts={A: facts(70), B: facts(12)}) == []
    assert of_nodes(facts={A: facts(3_600), B: facts(NEW_S)}) == []


def test_old_jobs_of_a_queue_that_is_paused_or_unconsumed_are_told_once() -> None:
    rows = (attrs.evolve(CONSUMED, oldest_ms=OLD_MS, pause=PAUSE_OUT), QueueRow(b"r", length=1, oldest_ms=OLD_MS))
    assert list(of_queues(*rows)) == ["unconsumed", "paused"]
    assert "old" in of_queues(attrs.evolve(rows[0], pause=PAUSE_IN))


def test_a_queue_with_several_faults_is_told_under_each_the_worst_first() -> None:
    row = QueueRow(b"q", length=1, oldest_ms=OLD_MS, dead=1, failing=1, pause=PAUSE_IN)
    found = of_queues(row)
    assert list(found) == ["dead", "unconsumed", "failing", "paused"]
    assert [group.is_error for group in found.values()] == [True, False, False, False]


def test_while_nodes_are_missing_or_hold_copies_the_words_say_so() -> None:
    row = QueueRow(b"q", length=1, dead=2, failing=1)
    found = of_queues(row, is_whole=False, has_copies=True)
    assert found["unconsumed"].title == "1 queue has ready jobs and no consumer on any node that answers"
    assert found["dead"].findings[0].text == "2 dead jobs, each copy counted."
    assert found["failing"].findings[0].text == "1 failing job, each copy counted."


def test_the_worst_of_many_are_shown_and_the_others_counted_whatever_the_slices() -> None:
    rows = [QueueRow(b"q%d" % number, dead=number, oldest_ms=number, length=1, blocked=1) for number in range(25)]
    survey = QueueSurvey()
    for at in range(0, 25, 7):
        survey.look(rows[at : at + 7])
    [group] = in_order(survey.groups(lambda _: "", is_whole=True, has_copies=False))
    assert (group.count, group.more, group.path) == (24, 24 - SHOWN, "/dead")
    assert [one.queue for one in group.findings] == [b"q%d" % number for number in range(24, 24 - SHOWN, -1)]
    assert [row.name for row in survey.oldest] == [one.queue for one in group.findings]
    assert (survey.queues, survey.ready, survey.dead) == (25, 25, sum(range(25)))


def test_every_kind_has_its_place() -> None:
    row = QueueRow(b"q", length=1, oldest_ms=OLD_MS, dead=1, failing=1, pause=PAUSE_IN)
    survey = QueueSurvey()
    survey.look([row])
    made = {group.kind for group in survey.groups(lambda _: "", is_whole=True, has_copies=False)}
    made |= {group.kind for group in node_groups(NodeFacts(A, KNOWN, {}))}
    assert made == KINDS.keys()
