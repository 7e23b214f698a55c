"""What a job's page says of its past, its future and of why nobody works on it; on a clock that is told to move."""

from typing import cast

import attrs
from twisted.internet.defer import ensureDeferred
from twisted.internet.testing import MemoryReactorClock

from disqued.core.model.job import ACTIVE, QUEUED
from disqued.core.recovery import Recovery
from disqued.core.view import NodeView
from disqued.net.loop.turns import BusyClients
from disqued.testing.clock import WALL_MS
from disqued.web.gateway import Gateway
from disqued.web.views.job_views import (
    ROWS_MAX,
    JobSearch,
    SearchResult,
    TimelineEntry,
    search,
    timeline,
    why_not_running,
)
from disqued.wire.jobdump import decode_record, encode_job
from tests.cluster_fixtures import Cluster
from tests.core_fixtures import Server

RETRY_MS = 3_000
AGAIN, WAITS, DELIVERED = (
    "Queued again unless acknowledged", "In the queue of this node", "Delivered to a consumer by this node",
)  # fmt: skip


def moments(server: Server, job_id: bytes) -> dict[str, TimelineEntry]:
    """The timeline of a job, by what happens."""
    return {moment.what: moment for moment in timeline(NodeView(server.node), server.job(job_id))}


def why(server: Server, job_id: bytes) -> str:
    return why_not_running(NodeView(server.node), server.job(job_id))


def test_a_job_that_was_delivered_at_most_once_is_not_said_to_come_back() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", 0)
    assert server.get("q")
    assert why(server, job_id) == "It was delivered, at most once as asked (retry 0): it is never queued again."
    assert AGAIN not in moments(server, job_id)
    server.advance(10_000)
    assert server.job(job_id).state == ACTIVE
    assert server("ENQUEUE", job_id) == 0


def test_an_at_most_once_job_that_was_taken_out_is_not_said_to_be_delivered() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", 0)
    assert server("DEQUEUE", job_id) == 1
    assert "it was taken out" in why(server, job_id)
    assert "never queued again" in why(server, job_id)
    assert server("ENQUEUE", job_id) == 0


def test_an_at_most_once_job_is_delayed_first() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", 0, "DELAY", 5)
    assert "It is delayed until 2023-11-14 22:13:25" in why(server, job_id)


def test_a_job_in_the_queue_has_no_moment_of_being_queued_again() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", RETRY_MS // 1_000)
    for _ in range(4):
        found = moments(server, job_id)
        assert AGAIN not in found
        assert found[WAITS] == TimelineEntry(WAITS, WALL_MS)
        server.advance(2_000)
    assert server.job(job_id).state == QUEUED
    assert server.job(job_id).redeliveries == 0


def test_a_job_that_a_consumer_has_comes_back_when_the_timeline_says_so() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", RETRY_MS // 1_000)
    server.advance(5_000)
    assert server.get("q")
    found = moments(server, job_id)
    assert found[DELIVERED] == TimelineEntry(DELIVERED, WALL_MS + 5_000)
    assert found[AGAIN] == TimelineEntry(AGAIN, WALL_MS + 5_000 + RETRY_MS, is_ahead=True)
    assert "the client client has it until 2023-11-14 22:13:28" in why(server, job_id)
    server.gone("client")
    assert "the client client, whose connection has ended, has it until" in why(server, job_id)
    server.advance(RETRY_MS)
    assert server.job(job_id).state == QUEUED
    found = moments(server, job_id)
    assert AGAIN not in found
    assert found[WAITS] == TimelineEntry(WAITS, WALL_MS + 5_000 + RETRY_MS)


def test_a_job_whose_life_ends_before_its_timer_is_not_said_to_come_back() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", 60, "TTL", 10)
    assert server.get("q")
    assert AGAIN not in moments(server, job_id)
    assert "not queued again: its time to live ends before" in why(server, job_id)
    assert server("NACK", job_id) == 1
    assert server("DEQUEUE", job_id) == 1
    assert "not queued here by itself: its time to live ends before" in why(server, job_id)
    server.advance(10_000)
    assert server.state.jobs.get(job_id) is None


def test_since_when_a_job_is_queued_that_came_back_from_a_store_is_not_known() -> None:
    before = Server()
    job_id = before.add("q", "x", "RETRY", RETRY_MS // 1_000)
    before.advance(8_000)
    clock = before.clock
    after = Server(clock=clock)
    record = encode_job(before.job(job_id), clock.wall() - clock.now(), QUEUED)
    Recovery(after.state, restores_queues=True).apply(decode_record(record))
    assert after.job(job_id).state == QUEUED
    assert moments(after, job_id)[WAITS] == TimelineEntry(WAITS, None)


def test_nothing_seems_to_happen_before_a_job_was_added() -> None:
    server = Server()
    job_id = server.add("q", "x")
    server.clock.jump_wall(-5)
    assert moments(server, job_id)[WAITS] == TimelineEntry(WAITS, WALL_MS)


def test_working_does_not_move_the_moment_of_the_delivery() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", RETRY_MS // 1_000)
    server.advance(1_000)
    server.get("q")
    for _ in range(3):
        server.advance(2_000)
        server("WORKING", job_id)
    found = moments(server, job_id)
    assert found[DELIVERED].at == WALL_MS + 1_000
    assert found[AGAIN].at == WALL_MS + 7_000 + RETRY_MS


def test_a_delay_that_was_cut_short_is_not_said_to_have_ended() -> None:
    server = Server()
    job_id = server.add("q", "x", "RETRY", 3, "DELAY", 5)
    server("ENQUEUE", job_id)
    early = "Queued for the first time, before its delay was over"
    assert moments(server, job_id)[early] == TimelineEntry(early, None)
    assert "Delay ends: queued for the first time" not in moments(server, job_id)


def test_a_copy_of_a_delayed_job_is_not_said_to_have_been_queued() -> None:
    a, b = Cluster(2)
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2, "DELAY", 60)
    ((job_id,),) = a.answers.values()
    (ends,) = [moment for moment in timeline(NodeView(b.node), b.job(job_id)) if "Delay" in moment.what]
    assert ends.is_ahead
    assert "Queued for the first time, before its delay was over" not in moments(b, job_id)


def test_a_copy_is_queued_unless_another_node_has_the_job_in_its_queue() -> None:
    a, b = Cluster(2)
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2, "RETRY", 3)
    ((job_id,),) = a.answers.values()
    assert f"{AGAIN} or in the queue of another node" in moments(b, job_id)


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
