"""The view of a node answers from the node's own objects, changes nothing, and costs what it answers."""

from typing import Any

import pytest

from disqued.core.model.job import ACKED
from disqued.core.model.registry import TABLES
from disqued.core.model.worker import RemoteWorker, Worker
from disqued.core.node import Node
from disqued.core.view import NodeView
from tests.cluster_fixtures import Cluster
from tests.core_fixtures import UNKNOWN_ID, Server, check
from tests.counting import lines_of


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def view(server: Server) -> NodeView:
    return NodeView(server.node)


def everything(view: NodeView) -> dict[str, Any]:
    """Every property of a view, copied."""
    public = [name for name in dir(NodeView) if not name.startswith("_")]
    names = [name for name in public if not callable(getattr(NodeView, name))]
    assert len(names) >= 15
    copied = {name: getattr(view, name) for name in names if name not in ("counters", "memory")}
    copied["memory"] = (view.memory.used, view.memory.limit, view.memory.level)
    return {
        name: list(value) if name in ("peers", "workers_here", "workers_elsewhere") else value
        for name, value in copied.items()
    }


def start(server: Server, name: str = "w") -> None:
    server("WORKER", "START", "ID", name, client=name)
    server("WQ.WORK", "tasks", client=name)


def test_a_new_node_has_nothing_to_show(server: Server, view: NodeView) -> None:
    assert (view.job_count, view.acked_count, view.pending_count, view.blocked_count, view.queue_count) == (0,) * 5
    assert (view.memory.used, view.memory.peak, view.memory.level, view.memory.limit) == (0, 0, 0, 1 << 40)
    assert (view.is_leaving, view.is_read_only, view.units_held, view.linked_count) == (False, False, 0, 0)
    assert (list(view.peers), list(view.workers_here), list(view.workers_elsewhere)) == ([], [], [])
    assert [node.id for node in view.known_nodes()] == [view.id] == [server.node.id]
    assert (view.job(UNKNOWN_ID), view.queue(b"q"), view.worker(b"w")) == (None, None, None)
    assert view.known_from(0, 10) == ([], 0)
    assert [view.jobs_of_table(number) for number in range(TABLES)] == [[]] * TABLES


def test_looking_changes_nothing(server: Server, view: NodeView) -> None:
    server.add("q", "x")
    before = everything(view)
    view.queue(b"other")
    view.job(UNKNOWN_ID)
    view.worker(b"w")
    view.known_from(0, 100)
    view.known_nodes()
    assert everything(view) == before
    assert server.node.outbox.journal == []
    assert view.queue(b"other") is None


def test_the_clocks_are_read_at_each_call(server: Server, view: NodeView) -> None:
    now, wall = view.now(), view.wall()
    server.clock.advance(5)  # no step begins
    assert (view.now() - now, view.wall() - wall) == (5, 5)
    assert server.state.now == now


def test_jobs_and_queues_are_the_nodes_own(server: Server, view: NodeView) -> None:
    job_id = server.add("q", "x")
    job = view.job(job_id)
    assert job is server.job(job_id)
    assert view.queue(b"q") is server.state.queues.by_name[b"q"]
    assert (view.job_count, view.queue_count, view.counters.added) == (1, 1, 1)
    server("ACKJOB", job_id)
    assert view.job(job_id) is None
    server("DEBUG", "FLUSHALL")
    assert (view.job_count, view.queue_count, view.queue(b"q")) == (0, 0, None)


def test_jobs_are_counted_by_state() -> None:
    a, b, c = cluster = Cluster(3)
    view = NodeView(a.node)
    cluster.hold(a, b)
    cluster.hold(a, c)
    a("ADDJOB", "q", "x", 5_000, "REPLICATE", 3, client="producer")
    assert (view.pending_count, view.job_count) == (1, 1)
    cluster.release(a, b)
    cluster.release(a, c)
    [job_id] = a.answers["producer"]
    assert view.pending_count == 0
    cluster.cut(a, b)
    a("ACKJOB", job_id)
    assert view.acked_count == 1
    job = view.job(job_id)
    assert job is not None
    assert (job.state, job.is_dummy) == (ACKED, False)
    a("GETJOB", "FROM", "empty", client="consumer")
    assert view.blocked_count == 1


def test_a_job_whose_result_is_kept_counts_as_acknowledged() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2, "RETRY", 60, "RESULT", 10, client="producer")
    [job_id] = a.answers["producer"]
    a.get("q")
    a("ACKJOB", job_id, "RESULT", "done")
    cluster.advance(2_000)
    for member in cluster:
        view = NodeView(member.node)
        assert not member.state.custody.acked
        assert (view.job_count, view.acked_count) == (1, 1)
        assert member("JSCAN", 0, "STATE", "active", "BUSYLOOP") == [b"0", []]
        assert member("JSCAN", 0, "STATE", "acked", "BUSYLOOP") == [b"0", [job_id]]
        check(member)
    facts = a.stat("q")
    assert facts is not None
    assert (facts["len"], facts["consumed"], facts["dead"], facts["failing"]) == (0, 1, 0, 0)
    cluster.advance(10_000)
    assert [NodeView(member.node).acked_count for member in (a, b)] == [0, 0]


def test_a_dummy_ack_is_no_job_to_show(server: Server, view: NodeView) -> None:
    a, b = cluster = Cluster(2)
    cluster.cut(a, b)
    a("ACKJOB", UNKNOWN_ID)
    found = NodeView(a.node).job(UNKNOWN_ID)
    assert found is not None
    assert found.is_dummy
    job = view.job(server.add())
    assert job is not None
    assert not job.is_dummy


def test_a_table_is_read_from_a_place_on(server: Server, view: NodeView) -> None:
    ids = {server.add("q", str(number)) for number in range(200)}
    assert {job.id for number in range(TABLES) for job in view.jobs_of_table(number)} == ids
    number = max(range(TABLES), key=lambda number: len(view.jobs_of_table(number)))
    whole = view.jobs_of_table(number)
    assert len(whole) > 3
    assert view.jobs_of_table(number, 1, 2) == whole[1:3]
    assert view.jobs_of_table(number, 2) == whole[2:]
    assert view.jobs_of_table(number, len(whole), 5) == []


def test_names_with_jobs_alone_are_walked_over_beside_the_queues(server: Server, view: NodeView) -> None:
    server.add("c")
    server.add("later", "x", "DELAY", 60)
    server.add("a")
    found, serial = view.known_from(0, 2)
    assert [(queue.name, queue.serial > 0) for queue in found] == [(b"c", True), (b"later", False)]
    found, serial = view.known_from(serial, 2)
    assert [queue.name for queue in found] == [b"a"]
    assert view.known_from(serial, 2) == ([], 0)


@pytest.mark.reference  # lines are counted
def test_a_look_up_costs_the_same_however_much_there_is(server: Server, view: NodeView) -> None:
    def looks() -> None:
        view.job(job_id)
        view.queue(b"q0")
        view.known_from(0, 1)
        view.jobs_of_table(number, 0, 1)
        everything(view)

    job_id = server.add("q0")
    number = next(number for number in range(TABLES) if view.jobs_of_table(number))
    few = lines_of(looks)
    for each in range(500):
        server.add(f"q{each}")
    assert lines_of(looks) == few


def test_workers_are_found_here_and_elsewhere(server: Server, view: NodeView) -> None:
    start(server)
    home = server.node.homes.known[b"far"] = RemoteWorker(b"far", 1, b"f" * 40, 3_000)
    here = view.worker(b"w")
    assert isinstance(here, Worker)
    assert view.worker(b"far") is home
    assert (list(view.workers_here), list(view.workers_elsewhere)) == ([here], [home])


def test_what_a_worker_holds_is_known_with_the_time(server: Server, view: NodeView) -> None:
    start(server)
    server("WQ.ENQUEUE", "tasks", "TASKS", "x", "y")
    server.advance(10)
    server("WQ.DEQUEUE", "tasks", client="w")
    worker = view.worker(b"w")
    assert isinstance(worker, Worker)
    [unit] = worker.leases
    server.advance(5)
    assert view.units_held == 1
    assert view.holder_of(unit) is worker
    assert view.held_since(unit) == view.now() - 5
    queue = view.queue(b"tasks")
    assert queue is not None
    waiting = queue.units.first
    assert (view.holder_of(waiting), view.held_since(waiting)) == (None, None)


def test_what_a_consumer_without_a_name_holds_is_known_with_the_time(server: Server, view: NodeView) -> None:
    job = server.job(server.add("q", "x", "RETRY", 60))
    server.advance(10)
    assert server.get("q")
    server.advance(7)
    assert (view.holder_of(job), view.held_since(job)) == (None, view.now() - 7)


def test_the_home_of_a_job_that_a_worker_elsewhere_has_is_known(server: Server, view: NodeView) -> None:
    job = server.job(server.add())
    assert view.home_of(job) is None
    home = server.state.custody.elsewhere[job] = RemoteWorker(b"far", 1, b"f" * 40, 3_000)
    assert view.home_of(job) is home


def test_consumers_of_a_group_wait_or_are_registered(server: Server, view: NodeView) -> None:
    server("QADD", "log", 60, "x")
    assert server("QGET", "log", "g")
    queue = view.queue(b"log")
    assert queue is not None
    assert queue.stream is not None
    group = queue.stream.groups[b"g"]
    assert view.consumers_of(group) == 0
    server("QGET", "log", "g", "BLOCK", 60, client="anna")
    server("QREGISTER", "GROUP", "g", "log", client="bert")
    assert view.consumers_of(group) == 2
    [[_, shown], *_] = server("QSTATUS", "log", "g")
    assert shown[1][-2:] == [b"consumers", 2]


def test_the_cluster_is_shown_as_cluster_nodes_shows_it() -> None:
    a, b, c = cluster = Cluster(3)
    view = NodeView(a.node)
    assert [peer.id for peer in view.peers] == [b.id, c.id]
    assert view.linked_count == 2
    cluster.cut(a, b)
    assert view.linked_count == 1
    a.node.membership.meet("10.0.0.9", 7711, 17_711)
    *known, tried = view.known_nodes()
    assert [node.id for node in known] == [a.id, b.id, c.id]
    assert [node.connected for node in known] == [True, False, True]
    assert (tried.host, tried.met) == ("10.0.0.9", False)
    assert view.peer_timeout_ms == a.node.state.peers.timeout_ms
    a("CLUSTER", "LEAVING", "yes")
    assert view.is_leaving


def test_background_work_is_counted_apart(server: Server, view: NodeView) -> None:
    server.node.lists.background = 3
    server.node.streams.background.running, server.node.streams.background.failed = 2, 1
    assert (view.background_pushes, view.background_additions.running, view.background_additions.failed) == (3, 2, 1)


def test_vitals_are_what_other_nodes_are_sent(server: Server, view: NodeView) -> None:
    server.add("q", "x")
    server.add("q", "y")
    server.get("q")
    assert view.vitals[1:] == (view.memory.used, view.memory.limit, 2, 2, 1)
    assert view.counters.given == 1


def test_memory_is_shown_with_its_limit_and_its_level() -> None:
    server = Server(maxmemory=10_000)
    view = NodeView(server.node)
    server.add("q", "x" * 8_200)
    assert view.memory.used == server.state.memory.used > 9_500
    assert (view.memory.limit, view.memory.level) == (10_000, 2)
    server("GETJOB", "FROM", "q")
    server("DEBUG", "FLUSHALL")
    assert (view.memory.used, view.memory.level) == (0, 0)


def test_a_view_offers_no_way_to_the_node(view: NodeView) -> None:
    offered = [name for name in dir(view) if not name.startswith("_")]
    assert not any(isinstance(getattr(view, name), Node) for name in offered)
    assert not {"state", "node", "command", "message", "outbox"} & set(offered)
    with pytest.raises(AttributeError):
        view.id = b"x"  # type: ignore[misc]
