"""Failing and dead jobs as all nodes tell of them: each once, what counts, when a walk ends, and who is missing."""

from collections.abc import Coroutine
from typing import Any, cast

import attrs
import pytest
from twisted.internet.defer import Deferred, ensureDeferred, fail, succeed
from twisted.internet.task import Clock

from disqued.core.model.peers import KnownNode
from disqued.errors import CommandError
from disqued.web.turns import OneAtATime
from disqued.web.views import failed_jobs
from disqued.web.views.everywhere import Everywhere
from disqued.web.views.failed_jobs import (
    DEAD,
    FAILING,
    FailedJobs,
    FailedPage,
    FailedQuery,
    FoundJobs,
    ShownJobs,
    merged,
)
from disqued.web.views.job_reports import ClusterJob, JobReport, attempts_of
from disqued.web.views.queue_views import REST_S, AllQueues, QueueOnNodes, QueueRow, Sources

A, B, C = b"a" * 40, b"b" * 40, b"c" * 40
NOW = 1_000_000
JOB, OTHER = (b"DI0f0c644fd3ccb51c2cedbd47fcb6f312646c993c05a%dSQ" % number for number in range(2))
Fields = dict[str, Any]


def told(
    job_id: bytes, phase: str, *, failures: tuple[tuple[int, bytes, bytes, bytes], ...] = (), **more: Any
) -> Fields:
    """What a node tells of a job."""
    return {
        "id": job_id, "queue": b"mail", "ttl": 60, "ctime": 5, "nacks": 1, "additional-deliveries": 1, "max-tries": 3,
        "next-requeue-within": 500, "failures": [list(one) for one in failures], "phase": phase.encode(),
        **{name.replace("_", "-"): value for name, value in more.items()},
    }  # fmt: skip


def report(node_id: bytes, fields: Fields) -> JobReport:
    return JobReport(node_id, node_id == A, fields, None)


FIRST, SECOND = (
    (NOW - 20, A, b"press-1", b"no such host"),
    (NOW - 10, B, b"", b"neither acknowledged nor heard of within 60 s"),
)


# One job of many reports.


def test_the_node_that_knows_most_says_where_a_job_is_and_all_of_them_how_it_failed() -> None:
    job = merged([
        report(A, told(JOB, "elsewhere", failures=(FIRST,), ttl=70)),
        report(B, told(JOB, "delayed", failures=(FIRST, SECOND), next_requeue_within=900, nacks=2)),
    ])  # fmt: skip
    assert (job.phase, job.node_id) == ("delayed", B)
    assert list(job.holders) == [A, B]
    assert (job.tries, job.max_tries) == (3, 3)
    assert (job.failed_at, job.who, job.reason) == (SECOND[0], SECOND[2], SECOND[3])
    assert (job.next_ms, job.kept_ms) == (500, 70_000)


@pytest.mark.parametrize(
    ("phase", "expected"), [("ready", None), ("in-flight", None), ("dead", None), ("delayed", 500)]
)
def test_a_next_try_is_told_of_a_job_that_waits_for_it(phase: str, expected: int | None) -> None:
    assert merged([report(A, told(JOB, phase))]).next_ms == expected


def test_a_node_that_has_not_heard_of_a_redrive_does_not_count() -> None:
    job = merged([
        report(A, told(JOB, "dead", failures=(FIRST,), nacks=3)),
        report(B, told(JOB, "delayed", failures=(FIRST,), nacks=0, additional_deliveries=0, generation=1)),
    ])  # fmt: skip
    assert (job.phase, job.tries) == ("delayed", 0)


# Which jobs are meant.


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (b"", {b"mail", b"mail-2", b"m[x]"}), (b"mail", {b"mail"}), (b"mail*", {b"mail", b"mail-2"}),
        (b"m[x]", {b"m[x]"}), (b"none", set()), (b"Mail", set()),
    ],
)  # fmt: skip
def test_a_queue_is_meant_by_its_name_or_by_a_glob(wanted: bytes, names: set[bytes]) -> None:
    query = FailedQuery(DEAD, wanted)
    assert {name for name in (b"mail", b"mail-2", b"m[x]") if query.is_in(name)} == names


def test_a_reason_is_part_of_the_last_one_in_any_case() -> None:
    job = merged([report(A, told(JOB, "dead", failures=(FIRST,)))])
    assert FailedQuery(DEAD, reason="SUCH host").lets_through(job)
    assert not FailedQuery(DEAD, reason="timeout").lets_through(job)
    assert not FailedQuery(DEAD, ids=frozenset({OTHER})).lets_through(job)


def test_pages_end_with_the_list() -> None:
    jobs = [merged([report(A, told(b"%d" % number, "dead"))]) for number in range(101)]
    assert [job.id for job in FailedPage.of(jobs, 9).rows] == [b"100"]
    assert FailedPage.of([], 1).pages == 1


# Asking.


@attrs.define
class Nodes:
    """The daemon, node A of three, as far as these questions need it; and its table of queues."""

    jobs: dict[bytes, list[Fields]]  #: by node
    dead: int = 0  #: that the nodes count
    failing: int = 0
    silent: tuple[bytes, ...] = ()
    endless: tuple[bytes, ...] = ()  #: nodes whose walks do not end
    error: CommandError | None = None
    asked: list[tuple[bytes, ...]] = attrs.field(factory=list)
    reactor: Clock = attrs.field(factory=Clock)
    id: bytes = A
    rests: bool = False  #: an open page is content with figures of a moment ago

    @property
    def clients(self) -> "Nodes":
        return self

    view = turns = clients

    def add_piece(self, piece: Any) -> None:
        piece.turn()

    def wall(self) -> int:
        return NOW

    def known_nodes(self) -> list[KnownNode]:
        return [KnownNode(each, "10.0.0.1", 7711, 17711, myself=each == A) for each in (A, B, C)]

    def call(self, words: list[bytes], *, address: str) -> "Deferred[Any]":
        if self.error is not None:
            return fail(self.error)
        assert words[:2] == [b"CLUSTER", b"ASK"]
        assert words[3] == b"JSCAN"
        self.asked.append(tuple(words[2:]))
        states = {words[at + 1].decode() for at in range(len(words)) if words[at] == b"STATE"}
        return succeed([self._row(each, states) for each in (A, B, C) if words[2] in {b"*", each}])

    def _row(self, node_id: bytes, states: set[str]) -> tuple[bytes, bytes, Any]:
        if node_id in self.silent:
            return node_id, b"silent", None
        found = [fields for fields in self.jobs.get(node_id, []) if fields["phase"].decode() in states]
        rows = [[word for name, value in fields.items() for word in (name.encode(), value)] for fields in found]
        return node_id, b"ok", [b"7" if node_id in self.endless else b"0", rows]

    async def all_queues(self, rest_s: float | None) -> AllQueues:
        assert rest_s == (None if self.rests else 0)
        return AllQueues(Sources(0.0), [QueueRow(b"mail", dead=self.dead, failing=self.failing), QueueRow(b"other")])

    async def one(self, name: bytes, fresh_s: float) -> QueueOnNodes:
        assert fresh_s == 0
        return QueueOnNodes(Sources(0.0), {A: QueueRow(name, dead=self.dead, failing=self.failing)})


def find(nodes: Any, wanted: FailedQuery) -> FoundJobs:
    outcome: list[FoundJobs] = []
    work: Coroutine[Any, Any, FoundJobs] = FailedJobs(nodes, Everywhere(nodes), nodes, OneAtATime()).find(wanted)
    ensureDeferred(work).addCallback(outcome.append)
    return outcome[0]


def test_a_job_that_several_nodes_hold_is_listed_once_the_newest_failure_first() -> None:
    old, new = told(JOB, "dead", failures=(FIRST,)), told(OTHER, "dead", failures=(SECOND,))
    nodes = Nodes({A: [old, new], B: [old], C: [new]}, dead=4)
    for wanted in (FailedQuery(DEAD), FailedQuery(DEAD, b"mail")):
        found = find(nodes, wanted)
        assert [job.id for job in found.jobs] == [OTHER, JOB]
        assert [len(job.holders) for job in found.jobs] == [2, 2]
        assert found.gaps == []


def test_a_node_that_does_not_answer_is_named() -> None:
    nodes = Nodes({B: [told(JOB, "dead", failures=(FIRST,))]}, dead=1, silent=(C,))
    found = find(nodes, FailedQuery(DEAD))
    assert [job.id for job in found.jobs] == [JOB]
    [gap] = found.gaps
    assert gap.startswith("Node cccccccc (10.0.0.1:7711) has a link, and has not answered")
    assert "Jobs that it alone holds are missing." in gap


def test_while_the_nodes_cannot_be_asked_the_list_says_so() -> None:
    found = find(Nodes({}, dead=1, error=CommandError("LOADING")), FailedQuery(DEAD))
    assert (found.jobs, found.gaps) == ([], ["The nodes cannot be asked now: LOADING."])


def test_failing_jobs_that_wait_for_a_delay_are_looked_for_first() -> None:
    put_off, waits = told(JOB, "delayed", failures=(FIRST,)), told(OTHER, "ready", failures=(SECOND,))
    healthy = told(b"healthy", "ready")
    nodes = Nodes({A: [put_off, waits, healthy], B: [put_off]}, failing=2)
    assert [job.id for job in find(nodes, FailedQuery(FAILING)).jobs] == [JOB], "as many as the nodes count"
    assert len(nodes.asked) == 1
    nodes.failing = 3
    assert [job.id for job in find(nodes, FailedQuery(FAILING)).jobs] == [OTHER, JOB]
    assert b"ready" in nodes.asked[-1]


def test_without_failing_jobs_no_node_looks_for_any() -> None:
    nodes = Nodes({A: [told(JOB, "ready")]})
    assert find(nodes, FailedQuery(FAILING)).jobs == []
    assert nodes.asked == []


def test_a_walk_that_does_not_end_is_cut_and_the_list_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_jobs, "_WALKS", {DEAD: (((b"dead",), 3),)})
    nodes = Nodes({A: [told(JOB, "dead", failures=(FIRST,))]}, dead=2, endless=(B,))
    found = find(nodes, FailedQuery(DEAD))
    assert [job.id for job in found.jobs] == [JOB]
    assert [words[0] for words in nodes.asked] == [b"*", B, B]
    assert "more jobs than one look goes through" in found.gaps[0]


def test_a_list_that_is_full_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failed_jobs, "FOUND_MAX", 1)
    nodes = Nodes({A: [told(JOB, "dead")], B: [told(OTHER, "dead")]}, dead=2)
    found = find(nodes, FailedQuery(DEAD))
    assert ([job.id for job in found.jobs], found.is_partial) == ([JOB], True)


# Attempts.


def test_attempts_of_all_nodes_are_told_once_the_newest_first() -> None:
    known = ClusterJob(
        [
            report(A, told(JOB, "elsewhere", failures=(FIRST,), attempt=4)),
            report(
                B, told(JOB, "in-flight", failures=(FIRST, SECOND), attempt=4, consumer=b"press-2", in_flight_for=5)
            ),
        ],
        (),
    )
    attempts = attempts_of(known, NOW)
    assert [(one.outcome, one.at, one.node_id, one.who) for one in attempts.rows] == [
        ("in flight", NOW, B, b"press-2"), ("time over", SECOND[0], B, b""), ("failed", FIRST[0], A, b"press-1")
    ]  # fmt: skip
    assert attempts.only_counted == 1


@pytest.mark.parametrize(
    ("reason", "outcome"),
    [
        (b"given back by its worker", "returned"),
        (b"died", "worker died"),
        (b"stopped before it was done", "worker stopped"),
    ],
)
def test_what_became_of_a_worker_is_the_outcome_of_its_attempts(reason: bytes, outcome: str) -> None:
    known = ClusterJob([report(A, told(JOB, "ready", failures=((NOW, A, b"press-1", reason),)))], ())
    assert [one.outcome for one in attempts_of(known, NOW).rows] == [outcome]


@pytest.mark.parametrize(("more", "outcomes"), [({}, ["done"]), ({"cancelled": 1}, [])])
def test_the_end_of_a_job_is_an_attempt_unless_it_was_cancelled(more: Fields, outcomes: list[str]) -> None:
    known = ClusterJob([report(A, told(JOB, "done", **more))], ())
    assert [one.outcome for one in attempts_of(known, NOW).rows] == outcomes


# Pages that are open.


def test_an_open_page_shows_what_was_found_last_and_walks_rest() -> None:
    nodes = Nodes({A: [told(JOB, "dead", failures=(FIRST,))]}, dead=1)
    jobs = FailedJobs(cast("Any", nodes), Everywhere(cast("Any", nodes)), cast("Any", nodes), OneAtATime())
    opened: list[ShownJobs] = []
    ensureDeferred(jobs.open(FailedQuery(DEAD), 1)).addCallback(opened.append)
    walks = len(nodes.asked)
    shown = jobs.watch(FailedQuery(DEAD), 1)
    assert shown is opened[0]
    assert [job.id for job in shown.cut.rows] == [JOB]
    assert len(nodes.asked) == walks, "it was found just now"
    nodes.rests = True
    nodes.jobs[A].append(told(OTHER, "dead", failures=(SECOND,)))
    nodes.dead = 2
    nodes.reactor.advance(REST_S)
    for _ in range(3):
        shown = jobs.watch(FailedQuery(DEAD), 1)
        assert shown is not None
    assert [job.id for job in shown.cut.rows] == [OTHER, JOB]
    assert len(nodes.asked) == 2 * walks


def test_a_page_whose_list_is_not_known_waits_for_no_walk() -> None:
    nodes = Nodes({A: [told(JOB, "dead", failures=(FIRST,))]}, dead=1, rests=True)
    alone = OneAtATime()
    jobs = FailedJobs(cast("Any", nodes), Everywhere(cast("Any", nodes)), cast("Any", nodes), alone)
    ensureDeferred(alone.__aenter__())
    assert jobs.watch(FailedQuery(DEAD), 1) is None
    assert jobs.watch(FailedQuery(DEAD), 1) is None
    assert not nodes.asked
    ensureDeferred(alone.__aexit__())
    shown = jobs.watch(FailedQuery(DEAD), 1)
    assert shown is not None
    assert shown.cut.count == 1


def test_a_list_that_nobody_looks_at_is_forgotten() -> None:
    nodes = Nodes({A: []}, rests=True)
    alone = OneAtATime()
    jobs = FailedJobs(cast("Any", nodes), Everywhere(cast("Any", nodes)), cast("Any", nodes), alone)
    assert jobs.watch(FailedQuery(DEAD), 1) is not None
    ensureDeferred(alone.__aenter__())  # no walk ends from here on
    nodes.reactor.advance(failed_jobs.UNWATCHED_S)
    assert jobs.watch(FailedQuery(DEAD), 2) is None
    nodes.reactor.advance(1)
    assert jobs.watch(FailedQuery(DEAD), 1) is None
