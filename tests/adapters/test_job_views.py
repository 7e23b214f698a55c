"""What a job's page says of its past, its future and of why nobody works on it; on a clock that is told to move."""

from typing import cast

import attrs
from twisted.internet.defer import ensureDeferred
from twisted.internet.testing import MemoryReactorClock

from disqued.core.model.job import ACTIVE, QUEUED
from disqued.core.view import NodeView
from disqued.net.loop.turns import BusyClients
from disqued.testing.clock import WALL_MS
from disqued.web.gateway import Gateway
from disqued.web.views.cluster_answers import MissingNode
from disqued.web.views.job_reports import (
    Around,
    ClusterJob,
    JobReport,
    TimelineEntry,
    Waiters,
    attempts_of,
    timeline_of,
    why_of,
)
from disqued.web.views.job_views import ROWS_MAX, JobSearch, SearchResult, search
from tests.cluster_fixtures import Cluster
from tests.core_fixtures import Server

RETRY_MS = 3_000
AGAIN = "Queued again unless acknowledged"
OVER, EARLY, ENDS = "Its delay is over", "Queued before its delay was over", "Its delay ends: queued for the first time"


def known(job_id: bytes, *servers: Server, silent: tuple[Server, ...] = (), asking: Server | None = None) -> ClusterJob:
    """What nodes say of a job when one of them asks all, the first unless another one is meant."""
    here = asking or servers[0]
    shown = [(server.node.id, server.show(job_id)) for server in servers]
    reports = [
        JobReport(node_id, node_id == here.node.id, fields, None) for node_id, fields in shown if fields is not None
    ]
    return ClusterJob(reports, [MissingNode(server.node.id, "", "has no link to this node") for server in silent])


def entries(job: ClusterJob, server: Server) -> list[TimelineEntry]:
    """The timeline of a job."""
    now = server.clock.wall()
    return timeline_of(job, attempts_of(job, now), now)


def moments(server: Server, job_id: bytes) -> dict[str, TimelineEntry]:
    """The timeline of a job that one node has, by what happens."""
    return {one.what: one for one in entries(known(job_id, server), server)}


def texts(job: ClusterJob, server: Server) -> list[str]:
    """The timeline of a job, without moments."""
    return [one.what for one in entries(job, server)]


def why(server: Server, job_id: bytes) -> str:
    return why_of(known(job_id, server), Around(), server.clock.wall())[1]


def waits(server: Server) -> str:
    return f"In the queue of node {server.node.id[:8].decode()}"


def delivered(server: Server, who: str = "client") -> str:
    return f"Delivered to {who} by node {server.node.id[:8].decode()}"


def replicated(member: Server, *options: str | int) -> bytes:
    """Add a job of which each node of two gets a copy."""
    member("ADDJOB", "q", "x", 0, "REPLICATE", 2, *options)
    ((job_id,),) = member.answers.values()
    member.answers.clear()
    return bytes(job_id)


def test_a_job_that_was_delivered_at_most_once_is_not_said_to_come_back() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", 0)
    assert server.get("q")
    assert "It was delivered at most once, as asked (retry 0): it is never queued again." in why(server, job_id)
    assert AGAIN not in moments(server, job_id)
    server.advance(10_000)
    assert server.job(job_id).state == ACTIVE
    assert server("ENQUEUE", job_id) == 0


def test_an_at_most_once_job_that_was_taken_out_is_not_said_to_be_delivered() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", 0)
    assert server("DEQUEUE", job_id) == 1
    assert "DEQUEUE took it out" in why(server, job_id)
    assert "never queued again" in why(server, job_id)
    assert server("ENQUEUE", job_id) == 0


def test_an_at_most_once_job_is_delayed_first() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", 0, "DELAY", 5)
    assert "It is delayed until 2023-11-14 22:13:25" in why(server, job_id)
    assert moments(server, job_id)[ENDS] == TimelineEntry(ENDS, WALL_MS + 5_000, is_ahead=True)
    server.advance(6_000)
    assert moments(server, job_id)[OVER] == TimelineEntry(OVER, WALL_MS + 5_000)


def test_a_job_in_the_queue_has_no_moment_of_being_queued_again() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", RETRY_MS // 1_000)
    server.advance(2_000)
    assert entries(known(job_id, server), server) == [
        TimelineEntry(f"Added to node {server.node.id[:8].decode()}", WALL_MS), TimelineEntry(waits(server)),
    ]  # fmt: skip


def test_a_job_that_a_consumer_has_comes_back_when_the_timeline_says_so() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", RETRY_MS // 1_000)
    server.advance(5_000)
    assert server.get("q")
    found = moments(server, job_id)
    assert found[delivered(server)] == TimelineEntry(delivered(server), WALL_MS + 5_000)
    assert found[AGAIN] == TimelineEntry(AGAIN, WALL_MS + 5_000 + RETRY_MS, is_ahead=True)
    assert f"client of node {server.node.id[:8].decode()} has it" in why(server, job_id)
    assert "Unless acknowledged it is queued again at 2023-11-14 22:13:28" in why(server, job_id)
    server.advance(RETRY_MS)
    assert server.job(job_id).state == QUEUED
    found = moments(server, job_id)
    assert AGAIN not in found
    assert list(found)[-2:] == ["1 earlier attempt, only counted", waits(server)]


def test_a_job_whose_life_ends_before_its_timer_is_not_said_to_come_back() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", 60, "TTL", 10)
    assert server.get("q")
    assert AGAIN not in moments(server, job_id)
    assert "not queued again: its time to live ends before" in why(server, job_id)
    assert server("NACK", job_id) == 1
    assert server("DEQUEUE", job_id) == 1
    assert "not queued again by itself: its time to live ends before" in why(server, job_id)
    assert not any(one.is_ahead for one in moments(server, job_id).values())
    server.advance(10_000)
    assert server.state.jobs.get(job_id) is None


def test_a_job_that_is_put_off_beyond_its_time_to_live_is_not_said_to_be_tried_again() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", 3, "TTL", 10)
    server.get("q")
    server("NACK", job_id, "DELAY", 60)
    assert "Tried again" not in moments(server, job_id)
    assert "its time to live ends before it is tried again" in why(server, job_id)


def test_working_does_not_move_the_moment_of_the_delivery() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", RETRY_MS // 1_000)
    server.advance(1_000)
    server.get("q")
    for _ in range(3):
        server.advance(2_000)
        server("WORKING", job_id)
    found = moments(server, job_id)
    assert found[delivered(server)].at == WALL_MS + 1_000
    assert found[AGAIN].at == WALL_MS + 7_000 + RETRY_MS


def test_a_delay_that_was_cut_short_is_not_said_to_have_ended() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", 3, "DELAY", 5)
    server("ENQUEUE", job_id)
    assert moments(server, job_id)[EARLY] == TimelineEntry(EARLY)
    assert not {OVER, ENDS} & moments(server, job_id).keys()
    server.get("q")
    server("NACK", job_id, "REASON", "no such host")
    server.advance(10_000)
    assert EARLY in moments(server, job_id), "it was tried before the delay was over"


def test_a_delayed_job_that_is_buried_was_not_queued() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", 3, "DELAY", 5, "MAXTRIES", 3)
    server("NACK", job_id, "DEAD")
    found = moments(server, job_id)
    assert "Ended before its delay was over" in found
    assert EARLY not in found
    assert list(found)[-1] == "Dead"
    assert found["Dead"].at == server.clock.wall()


def test_a_delayed_job_is_still_delayed_wherever_one_looks() -> None:
    a, b = Cluster(2)
    job_id = replicated(a, "DELAY", 60)
    for asking in (a, b):
        found = entries(known(job_id, a, b, asking=asking), asking)
        assert [one.what for one in found if one.is_ahead] == [ENDS]
        assert EARLY not in texts(known(job_id, a, b, asking=asking), asking)
    assert texts(known(job_id, b, silent=(a,)), b)[1:] == [ENDS, "Queued without news"]


def test_a_job_that_no_consumer_ever_had_is_in_a_queue_and_nothing_else_is_said() -> None:
    a, b = Cluster(2)
    job_id = replicated(a, "RETRY", 3)
    said = [f"Added to node {a.node.id[:8].decode()}", waits(a)]
    assert texts(known(job_id, a, b), a) == texts(known(job_id, a, b, asking=b), b) == said
    assert texts(known(job_id, b, silent=(a,)), b)[1:] == ["Queued again without news"]


def test_an_acknowledged_job_with_a_result_was_acknowledged_once_at_a_moment() -> None:
    a, b = Cluster(2)
    job_id = replicated(a, "RETRY", 60, "RESULT", 60)
    a.advance(1_000)
    a.get("q")
    a.advance(1_000)
    at = a.clock.wall()
    a("ACKJOB", job_id, "RESULT", "sent")
    for asking in (a, b):
        job = known(job_id, a, b, asking=asking)
        assert job.accepted == (at, a.node.id)
        assert [(one.outcome, one.at, one.node_id) for one in attempts_of(job, at).rows] == [("done", at, a.node.id)]
        done = f"Acknowledged on node {a.node.id[:8].decode()}"
        assert entries(job, a)[1:] == [TimelineEntry(done, at)]
        assert why_of(job, Around(), at) == (
            "What became of it", "It is acknowledged: done. Its result is kept for its time."
        )  # fmt: skip


def test_attempts_a_redrive_and_a_back_off_stand_in_the_timeline_with_what_is_known_of_them() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", 60, "MAXTRIES", 2, "BACKOFF", 30, 30)
    for reason in ("first", "second"):
        server.get("q")
        server.advance(1_000)
        server("NACK", job_id, "REASON", reason)
        server.advance(40_000)
    server("REDRIVE", "q", "ID", job_id)
    server.advance(1_000)
    server.get("q")
    server("NACK", job_id)
    node = server.node.id[:8].decode()
    found = entries(known(job_id, server), server)
    assert [one.what for one in found] == [
        f"Added to node {node}", *[f"Failed on node {node}, client"] * 3, "Redriven once", "Tried again",
    ]  # fmt: skip
    assert found[1].at == WALL_MS + 1_000
    assert (found[-1].is_ahead, AGAIN in [one.what for one in found]) == (True, False)


def test_a_cancelled_job_ends_with_the_attempt_that_goes_on() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", 60)
    server.get("q")
    server("CANCEL", job_id)
    found = moments(server, job_id)
    assert list(found)[-2:] == ["Cancelled", "Ends unless acknowledged"]
    assert "It is cancelled: it ends with this attempt." in why(server, job_id)


def test_a_job_waits_for_the_same_reason_wherever_one_looks() -> None:
    a, b = Cluster(2)
    first, job_id = replicated(a), replicated(a)
    node = a.node.id[:8].decode()
    assert first != job_id
    for waiters, end in (
        (Waiters(0, is_partial=False), "; no consumer on any node waits for jobs of this queue."),
        (Waiters(0, is_partial=True), "; no consumer on any node that answers waits for jobs of this queue."),
        (Waiters(1, is_partial=False), "; a consumer gets it in turn."),
    ):
        said = {why_of(known(job_id, a, b, asking=asking), Around(waiters), a.clock.wall()) for asking in (a, b)}
        assert said == {("Why it is not running", f"It waits in the queue of node {node}, at about place 2{end}")}


class OneNode:
    """As much of a gateway as a search needs."""

    def __init__(self, server: Server) -> None:
        self.view = NodeView(server.node)
        self.reactor = MemoryReactorClock()
        self.turns = BusyClients(self.reactor)


def search_all(server: Server, wanted: JobSearch) -> tuple[list[int], set[bytes]]:
    """Search to the end, page by page; returns how many jobs each page had, and the bodies."""
    pages: list[int] = []
    bodies: set[bytes] = set()
    while True:
        gateway = OneNode(server)
        waited = ensureDeferred(search(cast("Gateway", gateway), wanted))
        while not waited.called:
            gateway.reactor.advance(1)
        found = waited.result
        assert isinstance(found, SearchResult)
        pages.append(len(found.jobs))
        bodies |= {job.body for job in found.jobs}
        if not found.cursor:
            return pages, bodies
        wanted = attrs.evolve(wanted, cursor=found.cursor)


def test_a_search_among_all_jobs_has_full_pages_and_meets_each_job() -> None:
    server = Server()
    bodies = {b"%d" % number for number in range(3 * ROWS_MAX + 7)}
    for body in bodies:
        server.add("q", body)
    pages, met = search_all(server, JobSearch(b"q", state="any"))
    assert met == bodies
    assert pages == [ROWS_MAX, ROWS_MAX, ROWS_MAX, 7]
