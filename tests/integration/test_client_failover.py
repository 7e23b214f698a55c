"""Both clients of the library on three nodes that are killed, leave and come back: what was promised is not lost."""

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import ensureDeferred, gatherResults
from twisted.internet.threads import deferToThread

from disqued.client import Backoff, DisquedError, Job
from tests.integration.client_sides import Gate, address, until
from tests.integration.cluster import Cluster, ends_well, flags
from tests.integration.daemon import HOST

JOBS = 300
FOLLOWED = 100  #: more than a client counts before it moves


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that know each other; each test leaves them as it found them."""
    with ends_well(Cluster(tmp_path_factory.mktemp("cluster"))) as nodes:
        nodes.start(3)
        yield nodes


def number_of(cluster: Cluster, client: Any) -> int:
    """Which node a client talks to."""
    return [address(node) for node in cluster.nodes].index(client.node)


@pytest_twisted.ensureDeferred
async def test_a_client_that_was_told_of_one_node_learns_of_all(side: Any, cluster: Cluster) -> None:
    client = side.client(address(cluster.nodes[1]))
    await client.qlen("q")
    assert client.known_nodes == {(HOST, node.port) for node in cluster.nodes}
    assert client.node == address(cluster.nodes[1])


@pytest_twisted.ensureDeferred
async def test_a_client_moves_to_the_node_that_its_jobs_come_from(side: Any, cluster: Cluster, queue: str) -> None:
    here, there = cluster.nodes[:2]
    producer, consumer = side.client(address(there)), side.client(address(here))
    await consumer.qlen(queue)
    for n in range(FOLLOWED):
        await producer.add(queue, str(n), retry=300)
    bodies = []
    for _ in range(FOLLOWED):
        [job] = await consumer.get(queue)
        bodies.append(int(job.body))
        assert await consumer.ack(job) == 1
    assert sorted(bodies) == list(range(FOLLOWED))
    assert consumer.node == address(there)


@pytest_twisted.ensureDeferred
async def test_a_get_that_waits_goes_on_elsewhere_when_its_node_is_killed(
    side: Any, cluster: Cluster, queue: str
) -> None:
    client = side.client(address(cluster.nodes[0]))
    waiting = client.get(queue)
    await until(lambda: cluster.nodes[0].blocked() == 1, "a consumer that waits")
    cluster.kill(0)
    producer = side.client(address(cluster.nodes[1]))
    job_id = await producer.add(queue, "at last", replicate=1)
    assert [job.id for job in await waiting] == [job_id]
    assert client.node != address(cluster.nodes[0])
    assert await client.ack(job_id) == 1
    await deferToThread(cluster.restart, 0)
    await deferToThread(cluster.wait_joined)


@pytest_twisted.ensureDeferred
async def test_a_client_goes_elsewhere_when_its_node_leaves(side: Any, cluster: Cluster, queue: str) -> None:
    leaver = cluster.nodes[2]
    client = side.client(address(leaver))
    waiting = client.get(queue)
    await until(lambda: leaver.blocked() == 1, "a consumer that waits")
    assert leaver.call("CLUSTER", "LEAVING", "yes") == "OK"
    job_id = await side.client(address(cluster.nodes[1])).add(queue, "x", replicate=1)
    assert [job.id for job in await waiting] == [job_id]
    assert client.node != address(leaver)
    await client.ack(job_id)
    assert leaver.call("CLUSTER", "LEAVING", "no") == "OK"
    for other in cluster.nodes[:2]:
        await until(lambda other=other: "leaving" not in flags(other, cluster.ids[2]), "a node that stays")


class Books:
    """What producers were told and what workers did."""

    def __init__(self) -> None:
        self.added: set[bytes] = set()
        self.done: list[bytes] = []
        self.unsure = 0
        self._lock = threading.Lock()

    async def produce(self, client: Any, queue: str, name: str) -> None:
        """Add jobs one after the other; what is not known to be there does not count."""
        for n in range(JOBS):
            body = b"%s-%d" % (name.encode(), n)
            try:
                await client.add(queue, body, replicate=2, retry=2, ttl=3_600, timeout=2)
                self.added.add(body)
            except DisquedError:
                self.unsure += 1

    def work(self, job: Job) -> None:
        """The handler."""
        with self._lock:
            self.done.append(job.body)

    def missing(self) -> set[bytes]:
        """What was added and is not done."""
        with self._lock:
            return self.added.difference(self.done)


@pytest_twisted.ensureDeferred
async def test_nothing_that_was_added_is_lost_when_the_node_of_producers_and_workers_is_killed(
    side: Any, cluster: Cluster, queue: str
) -> None:
    books = Books()
    first = address(cluster.nodes[0])
    options = {"reply_timeout": 3}
    consumers = [side.client(first, **options) for _ in range(2)]
    workers = [
        side.worker(client, [queue], books.work, concurrency=4, backoff=Backoff(0.1, 1), poll=0.5)
        for client in consumers
    ]
    producers = [side.client(first, **options) for _ in range(2)]
    production = gatherResults(
        [ensureDeferred(books.produce(client, queue, f"p{n}")) for n, client in enumerate(producers)]
    )
    await until(lambda: len(books.done) > 50, "some business")
    cluster.kill(0)
    await production
    assert books.unsure < JOBS / 2, "producers go on elsewhere"
    assert {client.node for client in producers} <= {address(node) for node in cluster.nodes[1:]}
    await deferToThread(cluster.restart, 0)
    await until(lambda: not books.missing(), "every job that was added done")
    for worker in workers:
        worker.stop()
    await gatherResults([worker.ended for worker in workers])
    assert sum(worker.at_work for worker in workers) == 0
    await deferToThread(cluster.wait_joined)


@pytest_twisted.ensureDeferred
async def test_a_worker_keeps_and_ends_its_jobs_when_the_node_that_gave_them_is_killed(
    side: Any, cluster: Cluster, queue: str
) -> None:
    gate = Gate()
    # On a machine that stood still for a second nodes take each other for gone, for a moment.
    await deferToThread(cluster.wait_joined)
    client = side.client(address(cluster.nodes[0]))
    job_id = await client.add(queue, "x", replicate=3, retry=2, timeout=10)
    worker = side.worker(client, [queue], partial(side.waits, gate), poll=0.2)
    await until(lambda: gate.entered, "the job at work")
    cluster.kill(0)
    await until(lambda: client.node != address(cluster.nodes[0]), "a worker that went elsewhere")
    worker.stop()
    gate.open()
    await worker.ended
    assert worker.figures.done == 1
    assert number_of(cluster, client) in (1, 2)
    await deferToThread(cluster.restart, 0)
    await deferToThread(cluster.wait_joined)
    looker = side.client(address(cluster.nodes[0]))
    await until(lambda: cluster.nodes[0].call("SHOW", job_id.decode()) is None, "a job that is done everywhere")
    assert await looker.get(queue, timeout=0.1) == []
