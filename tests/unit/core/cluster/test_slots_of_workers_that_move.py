"""Slots of jobs whose worker moves to another node: no moment has nobody who reports them."""

import pytest

from disqued.core.cluster.witnesses import ONCE_MS
from disqued.core.model.messages import SLOTS_WANTED
from disqued.core.model.policies import INFLIGHT_FIELD
from tests.cluster_fixtures import Cluster, Member
from tests.unit.core.cluster.test_stewards import cluster_with, steward


def limited(copies: int = 3, retry_s: int = 300) -> tuple[Cluster, list[Member]]:
    """Return a cluster that allows one job at a time, its steward first, and four jobs on the second node."""
    cluster = cluster_with({INFLIGHT_FIELD: (1,)})
    first = steward(cluster)
    nodes = [first, *(member for member in cluster if member is not first)]
    for number in range(4):
        nodes[1]("ADDJOB", "q", f"{number}", 0, "REPLICATE", copies, "RETRY", retry_s, "ASYNC")
    cluster.advance(200)
    return cluster, nodes


def start(cluster: Cluster, home: Member) -> bytes:
    """Let a worker begin and take a job."""
    home("WORKER", "START", "ID", "w", "TTL", 600_000, client="w")
    home("WQ.WORK", "q", client="w")
    home.answers.pop("w", None)
    home("GETJOB", "WORKER", "w", "FROM", "q", client="taker")
    cluster.advance(100)
    [[_, job_id, _]] = home.answers.pop("taker")[0]
    return job_id


def taken(cluster: Cluster) -> list[bytes]:
    """What those who wait were given."""
    return [
        row[1]
        for member in cluster
        for client, rows in member.answers.items()
        if str(client).startswith("waits")
        for row in rows[0] or ()
    ]


def wait_everywhere(cluster: Cluster) -> None:
    for member in cluster:
        member.wait(f"waits {member.name}", "q")


@pytest.mark.parametrize("copies", [1, 3])
@pytest.mark.parametrize("home", [0, 1, 2])
@pytest.mark.parametrize("way", ["KEEPALIVE", "START"])
def test_a_job_keeps_its_slot_when_its_worker_moves(copies: int, home: int, way: str) -> None:
    cluster, nodes = limited(copies)
    old, new = nodes[home], nodes[(home + 1) % 3]
    job_id = start(cluster, old)
    wait_everywhere(cluster)
    if way == "START":
        new("WORKER", "START", "ID", "w", client="w")
    else:
        new("WORKER", "KEEPALIVE", "w", 1, client="w")
    for _ in range(200):
        cluster.advance(100)
        new("WORKER", "KEEPALIVE", client="w")
        assert not taken(cluster)
    assert job_id in old.node.witnesses.of(b"q").table.by_id
    assert old.node.witnesses.of(b"q").table.by_id[job_id].node_id == new.id
    assert not old.node.witnesses.of(b"q").running
    assert new("ACKJOB", job_id) == 1
    cluster.advance(100)
    assert len(taken(cluster)) == 1


@pytest.mark.parametrize("late", [500, 3_000])
def test_the_old_home_reports_it_until_the_steward_hears_of_the_new_one(late: int) -> None:
    cluster, (first, old, new) = limited()
    job_id = start(cluster, old)
    wait_everywhere(cluster)
    cluster.hold(new, first)
    new("WORKER", "KEEPALIVE", "w", 1, client="w")
    for _ in range(late // 100):
        cluster.advance(100)
        assert not taken(cluster)
    assert first.node.witnesses.of(b"q").table.by_id[job_id].node_id == old.id
    cluster.release(new, first)
    for _ in range(50):
        cluster.advance(100)
        assert not taken(cluster)
    assert first.node.witnesses.of(b"q").table.by_id[job_id].node_id == new.id
    assert not old.node.witnesses.of(b"q").running


def test_the_new_home_reports_it_before_the_old_one_knows_of_the_move() -> None:
    cluster, (first, old, new) = limited()
    job_id = start(cluster, old)
    wait_everywhere(cluster)
    cluster.hold(new, old)
    new("WORKER", "KEEPALIVE", "w", 1, client="w")
    for _ in range(50):
        cluster.advance(100)
        assert not taken(cluster)
    assert first.node.witnesses.of(b"q").table.by_id[job_id].node_id == new.id
    assert job_id in old.node.witnesses.of(b"q").running
    cluster.release(new, old)
    for _ in range(50):
        cluster.advance(100)
        assert not taken(cluster)
    assert not old.node.witnesses.of(b"q").running


def test_a_worker_that_moves_on_and_back_keeps_its_slot() -> None:
    cluster, nodes = limited()
    job_id = start(cluster, nodes[1])
    wait_everywhere(cluster)
    for epoch, home in enumerate([2, 0, 1, 0, 2, 1], 1):
        nodes[home]("WORKER", "KEEPALIVE", "w", epoch, client="w")
        for _ in range(3 if epoch % 2 else 30):
            cluster.advance(100)
            assert not taken(cluster)
    cluster.advance(5_000)
    assert not taken(cluster)
    assert nodes[1].node.witnesses.of(b"q").running.keys() == {job_id}
    assert nodes[1]("ACKJOB", job_id) == 1
    cluster.advance(2_500)
    assert len(taken(cluster)) == 1


@pytest.mark.parametrize("end", ["ACKJOB", "NACK", "FAIL"])
def test_its_slot_is_free_soon_when_it_is_over_at_the_new_home(end: str) -> None:
    cluster, (first, old, new) = limited()
    job_id = start(cluster, old)
    wait_everywhere(cluster)
    cluster.hold(first, old)  # it does not hear that the steward knows of the new home
    new("WORKER", "KEEPALIVE", "w", 1, client="w")
    cluster.advance(500)
    assert not taken(cluster)
    if end == "FAIL":
        new("WORKER", "FAIL", "w")
    else:
        new(end, job_id)
    cluster.advance(2_500)
    cluster.release(first, old)
    cluster.advance(500)
    assert len(taken(cluster)) == 1


def test_the_slot_of_a_worker_that_moved_outlives_the_steward() -> None:
    cluster, (first, old, new) = limited()
    start(cluster, old)
    for member in (old, new):
        member.wait(f"waits {member.name}", "q")
    new("WORKER", "KEEPALIVE", "w", 1, client="w")
    cluster.isolate(first)
    for _ in range(100):
        cluster.advance(100)
        assert not taken(cluster)


def test_a_node_that_says_that_a_job_is_over_frees_no_slot_while_another_one_has_it() -> None:
    cluster, (first, old, new) = limited()
    job_id = start(cluster, old)
    wait_everywhere(cluster)
    cluster.hold(new, old)  # it does not hear of the move
    new("WORKER", "KEEPALIVE", "w", 1, client="w")
    cluster.advance(3_000)
    assert job_id in old.node.witnesses.of(b"q").running
    assert job_id in new.node.witnesses.of(b"q").running
    number, epoch = 10_000, new.node.witnesses.of(b"q").promised[0]
    boot = new.node.witnesses.boot
    new.say(first, (SLOTS_WANTED, b"q", epoch, boot, number, False, (), (), (job_id,), ()))
    for _ in range(50):
        cluster.advance(100)
        assert not taken(cluster)


def test_a_slot_without_end_gets_one_when_its_node_is_forgotten() -> None:
    cluster, (first, old, new) = limited(retry_s=1)
    job_id = start(cluster, old)
    table = first.node.witnesses.of(b"q").table
    never = table.by_id[job_id].ending_at(first.state.now + (1 << 32) * 1_000)
    cluster.isolate(old)
    table.put(never)
    cluster.advance(60_000)
    assert table.by_id[job_id].until > first.state.now + ONCE_MS
    for member in (first, new):
        member("CLUSTER", "FORGET", old.id)
    cluster.advance(ONCE_MS // 2)
    assert job_id in table.by_id
    cluster.advance(ONCE_MS // 2 + 5_000)
    assert job_id not in table.by_id
