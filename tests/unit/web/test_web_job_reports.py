"""A job as all nodes tell of it: whose word counts, who has it, and which nodes are missing."""

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.defer import Deferred, ensureDeferred, fail, succeed
from twisted.internet.task import Clock

from disqued.core.model.ids import is_job_id
from disqued.core.model.job import RETRY_NEVER_MS
from disqued.core.model.peers import FAIL, KnownNode
from disqued.errors import CommandError
from disqued.web.views.everywhere import Everywhere
from disqued.web.views.job_reports import Around, ClusterJob, job_everywhere, why_of

A, B, C = b"a" * 40, b"b" * 40, b"c" * 40
JOB = b"DI0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a0SQ"
HOUR_MS = 3_600_000
SOON = " at 1970-01-01 00:00:05.000 UTC (5 s from now)"
NOWHERE = (
    "No node that answers has it in its queue or with a consumer. "
    "The node that had it began anew without it, a consumer had it before a restart, or DEQUEUE took it out."
)
AGAIN = "Without news it is queued again"


class Node:
    """The daemon and its view, as far as these questions need them; it is node A, and has no copy of the job."""

    def __init__(self, *rows: tuple[bytes, bytes, Any]) -> None:
        self.reactor = Clock()
        self.rows = rows
        self.error: CommandError | None = None
        self.workers = {b"press-1"}
        self.id = A
        self.clients = self

    def call(self, words: list[bytes], *, address: str) -> "Deferred[Any]":
        assert words == [b"CLUSTER", b"ASK", b"*", b"SHOW", JOB]
        return succeed(list(self.rows)) if self.error is None else fail(self.error)

    def wall(self) -> int:
        return 2 * HOUR_MS

    def known_nodes(self) -> list[KnownNode]:
        return [KnownNode(A, "", 7711, 17711, myself=True), KnownNode(C, "10.0.0.3", 7711, 17711, FAIL, 0, HOUR_MS)]

    def job(self, job_id: bytes) -> None:
        assert is_job_id(job_id)

    def worker(self, worker_id: bytes) -> Any:
        return SimpleNamespace() if worker_id in self.workers else None


def shown(phase: bytes, **more: Any) -> list[Any]:
    """A reply of SHOW."""
    fields = {"id": JOB, "queue": b"mail", "nodes-delivered": [A, B, C], "next-requeue-within": 5_000,
              "retry": 60, "phase": phase,
              **{name.replace("_", "-"): value for name, value in more.items()}}  # fmt: skip
    return [part for name, value in fields.items() for part in (name.encode(), value)]


def heard(work: Coroutine[Any, Any, ClusterJob]) -> ClusterJob:
    outcome: list[ClusterJob] = []
    ensureDeferred(work).addCallback(outcome.append)
    return outcome[0]


def asked(*rows: tuple[bytes, bytes, Any]) -> ClusterJob:
    node: Any = Node(*rows)
    return heard(job_everywhere(Everywhere(node), node, JOB))


def test_the_node_whose_consumer_has_it_knows_most() -> None:
    known = asked(
        (A, b"ok", shown(b"elsewhere")), (B, b"ok", shown(b"in-flight", consumer=b"10.0.0.9:4711", in_flight_for=2_000))
    )
    assert known.best is not None
    assert (known.best.node_id, known.best.consumer, known.best.worker) == (B, b"10.0.0.9:4711", None)
    assert why_of(known, Around(), 0) == (
        "Now", ("It is in flight: 10.0.0.9:4711 of node bbbbbbbb has it, for 2 s so far. "
        "Unless acknowledged it is queued again at 1970-01-01 00:00:05.000 UTC (5 s from now)."),
    )  # fmt: skip
    assert known.here is not None
    assert known.here.phase == "elsewhere"


def test_a_worker_is_known_as_one() -> None:
    known = asked((B, b"ok", shown(b"in-flight", consumer=b"press-1")))
    assert [one.worker for one in known.reports] == [b"press-1"]


def test_of_equal_words_that_of_this_node_counts_and_one_without_the_job_never() -> None:
    known = asked((A, b"ok", shown(b"ready")), (B, b"ok", shown(b"ready")))
    assert known.best is known.here
    known = asked((A, b"ok", shown(b"done", queue=None)), (B, b"ok", shown(b"elsewhere")))
    assert known.best is known.reports[1]
    assert asked((A, b"ok", None), (B, b"ok", None)).best is None


@pytest.mark.parametrize(
    ("reply", "sentence"),
    [
        (shown(b"ready", place=3), "It waits in the queue of node bbbbbbbb, at about place 3."),
        (shown(b"ready"), "It waits in the queue of node bbbbbbbb, behind more than 500 others."),
        (
            shown(b"delayed", failures=[[1, B, b"ann", b"timeout"], [2, B, b"ann", b"no such host"]]),
            f"It failed, and node bbbbbbbb queues it again{SOON}. The last failure: no such host.",
        ),
        (shown(b"delayed", failures=[[1, B, b"ann", b""]]), f"It failed, and node bbbbbbbb queues it again{SOON}."),
        (shown(b"delayed", nacks=1), f"It failed, and node bbbbbbbb queues it again{SOON}."),
        (
            shown(b"ready", blocked=b"paused", place=1),
            "It waits in the queue of node bbbbbbbb, at about place 1, and may not be handed out: paused.",
        ),
        (
            shown(b"delayed"),
            "It is delayed until 1970-01-01 00:00:05.000 UTC (5 s from now): node bbbbbbbb queues it then.",
        ),
        (shown(b"elsewhere"), f"{NOWHERE} {AGAIN}{SOON}."),
        (
            shown(b"elsewhere", retry=0),
            (f"{NOWHERE} "
            "It is delivered at most once, as asked (retry 0), so it is never queued again."),
        ),
        (
            shown(b"wait-repl", repl=3, nodes_confirmed=[A]),
            "It waits for copies on node bbbbbbbb: 2 of 3 nodes have one. Its producer waits, too.",
        ),
        (
            shown(b"done", queue=None),
            "It is acknowledged. Node bbbbbbbb never had it, and keeps the word until all nodes know.",
        ),
        (shown(b"done", cancelled=1), "It was cancelled, and has ended."),
        (
            shown(b"done", nodes_confirmed=[A]),
            "It is acknowledged: done. It is kept until all nodes that may hold it know; 1 of 3 do.",
        ),
        (
            shown(b"in-flight", retry=RETRY_NEVER_MS // 1_000, next_requeue_within=None),
            ("It is in flight: a consumer of node bbbbbbbb has it. "
            "Should that not be done with it, RQ.RECOVER hands it to another one."),
        ),
        (
            shown(b"in-flight", consumer=b"press-1"),
            "It is in flight: press-1 of node bbbbbbbb has it. A worker keeps it as long as it lives.",
        ),
        (
            shown(b"ready", groups=[]),
            "It is an event: each group of consumers is given it, until its time is over.",
        ),
    ],
)  # fmt: skip
def test_where_it_is_is_said_in_a_sentence(reply: list[Any], sentence: str) -> None:
    _, said = why_of(asked((B, b"ok", reply)), Around(), 0)
    assert said == sentence


def test_what_the_sentence_is_stands_before_it() -> None:
    labels = {phase: why_of(asked((B, b"ok", shown(phase))), Around(), 0)[0] for phase in (b"ready", b"dead", b"done")}
    assert labels == {b"ready": (waits := "Why it is not running"), b"dead": waits, b"done": "What became of it"}


def test_nodes_that_do_not_answer_are_named_and_those_that_may_hold_it_are_lost() -> None:
    known = asked((A, b"ok", shown(b"elsewhere")), (b"d" * 40, b"silent", None), (C, b"away", None))
    assert [one.sentence for one in known.missing] == [
        "Node dddddddd has a link, and has not answered within 2 s.",
        "Node cccccccc (10.0.0.3:7711) has failed, and was heard 1 h ago.",
    ]
    assert [one.id for one in known.lost] == [C]


def test_a_node_that_cannot_ask_is_the_only_answer() -> None:
    node: Any = Node()
    node.error = CommandError("not now")
    known = heard(job_everywhere(Everywhere(node), node, JOB))
    assert known.best is None
    assert [(one.id, one.why) for one in known.missing] == [(A, "refuses to answer: ERR not now")]
