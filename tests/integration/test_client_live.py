"""Live workers of both clients: what one has is back the moment that its process or its connection ends."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import pytest_twisted

from disqued.client import Backoff, Job
from tests.integration.client_sides import Gate, address, said, until
from tests.integration.cluster import Cluster, ends_well
from tests.integration.daemon import LIMIT, ROOT, Daemon, environment, wait_until
from tests.programs import Program

Start = Callable[..., Daemon]

PROGRAMS = {
    "blocking": """
import os, sys, threading
from disqued.client.blocking import Client, Worker

def work(job):
    os.write(1, job.body + b'\\n')
    threading.Event().wait()

Worker(Client([sys.argv[1]]), [sys.argv[2]], work, concurrency=2, live=True, dead_after=3600, name="doomed").run()
""",
    "deferred": """
import os, sys
from twisted.internet.defer import Deferred
from twisted.internet.task import react
from disqued.client import Client, Worker

def work(job):
    os.write(1, job.body + b'\\n')
    return Deferred()

def main(reactor, node, queue):
    worker = Worker(Client([node], reactor=reactor), [queue], work, concurrency=2, live=True, dead_after=3600,
                    name="doomed")
    return worker.run()

react(main, sys.argv[1:])
""",
    "aio": """
import asyncio, os, sys
from disqued.client.aio import Client, Worker

async def work(job):
    os.write(1, job.body + b'\\n')
    await asyncio.Event().wait()

async def main(node, queue):
    await Worker(Client([node]), [queue], work, concurrency=2, live=True, dead_after=3600, name="doomed").run()

asyncio.run(main(*sys.argv[1:]))
""",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with ends_well(Cluster(tmp_path_factory.mktemp("cluster"))) as nodes:
        nodes.start(2)
        yield nodes


def alive(daemon: Daemon) -> list[bytes]:
    """Ids of the workers that live on a node."""
    with daemon.redis() as other:
        return [worker.encode() for worker in other.execute_command("WORKER", "LIST")]


def has(daemon: Daemon, worker: Any) -> int:
    """How many jobs a worker has, as its node knows it."""
    with daemon.redis() as other:
        facts = other.execute_command("WORKER", "INFO", worker.id)
    return int(dict(zip(facts[::2], facts[1::2], strict=True))["processes"])


@pytest.mark.parametrize("which", sorted(PROGRAMS))
def test_jobs_of_a_process_that_is_killed_are_back_at_once_and_in_front(daemon: Daemon, queue: str, which: str) -> None:
    with daemon.redis() as other:
        for body in ("1", "2", "later"):
            other.execute_command("ADDJOB", queue, body, 0, "RETRY", 3600)
        argv = [sys.executable, "-c", PROGRAMS[which], address(daemon), queue]
        with Program(argv, stdout=subprocess.PIPE, env=environment(), cwd=ROOT, text=True) as process:
            try:
                assert process.stdout is not None
                assert sorted(process.stdout.readline().strip() for _ in range(2)) == ["1", "2"]
                assert other.execute_command("QLEN", queue) == 1
            finally:
                os.kill(process.pid, signal.SIGKILL)
        # Nobody else would have them for an hour: neither their retry time nor that of the worker is over.
        wait_until(lambda: other.execute_command("QLEN", queue) == 3, "jobs that are back")
        rows = other.execute_command("GETJOB", "COUNT", 3, "FROM", queue)
        taken = [body for _, _, body in rows]
    assert taken == ["1", "2", "later"]


@pytest_twisted.ensureDeferred
async def test_a_live_worker_keeps_a_job_for_longer_than_its_retry_time_and_says_nothing_of_it(
    side: Any, client: Any, daemon: Daemon, queue: str
) -> None:
    job_id = await client.add(queue, "x", retry=1)
    gate = Gate()
    before = said(daemon, "working")
    worker = side.worker(client, [queue], partial(side.waits, gate), live=True, dead_after=0.9, poll=0.1)
    await until(lambda: gate.entered, "a job at work")
    told = said(daemon, "worker|keepalive")
    await until(lambda: said(daemon, "worker|keepalive") >= told + 8, "signs of life for more than two retry times")
    assert (await client.show(job_id))["additional-deliveries"] == 0
    assert has(daemon, worker) == 1
    gate.open()
    await until(lambda: worker.figures.done == 1, "the job done")
    assert (gate.entered, said(daemon, "working")) == ([b"x"], before)
    worker.stop()
    await worker.ended
    assert worker.id not in alive(daemon)


@pytest_twisted.ensureDeferred
async def test_a_live_worker_that_stops_gives_its_handlers_their_time_and_stays_alive_for_it(
    side: Any, client: Any, daemon: Daemon, queue: str
) -> None:
    await client.add(queue, "x", retry=300)
    gate = Gate()
    worker = side.worker(client, [queue], partial(side.waits, gate), live=True, dead_after=0.6, poll=0.1)
    await until(lambda: gate.entered, "a job at work")
    worker.stop()
    told = said(daemon, "worker|keepalive")
    await until(lambda: said(daemon, "worker|keepalive") >= told + 5, "signs of life for longer than it lives without")
    assert has(daemon, worker) == 1
    gate.open()
    await worker.ended
    assert (worker.figures.done, worker.id in alive(daemon)) == (1, False)
    assert await client.qlen(queue) == 0


@pytest_twisted.ensureDeferred
async def test_a_worker_that_was_declared_dead_begins_anew(side: Any, client: Any, daemon: Daemon, queue: str) -> None:
    gate = Gate()
    gate.open()
    worker = side.worker(client, [queue], partial(side.waits, gate), live=True, poll=0.1)
    await until(lambda: worker.id in alive(daemon), "a worker that is known")
    assert daemon.call("WORKER", "FAIL", worker.id) == 0
    await client.add(queue, "x", retry=300)
    await until(lambda: worker.figures.done == 1, "a job of a worker that is alive again")
    worker.stop()
    await worker.ended


@pytest_twisted.ensureDeferred
async def test_a_worker_whose_connections_break_goes_on_and_may_get_a_job_again(
    side: Any, client: Any, daemon: Daemon, queue: str
) -> None:
    await client.add(queue, "x", retry=300)
    gate = Gate()
    worker = side.worker(client, [queue], partial(side.waits, gate), concurrency=2, live=True, poll=0.1)
    await until(lambda: gate.entered, "a job at work")
    daemon.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    # It is handed to the same worker again, which works on it already.
    await until(lambda: worker.id in alive(daemon) and has(daemon, worker) == 1, "a worker that has its job again")
    gate.open()
    await until(lambda: worker.figures.done == 1, "the job done")
    assert gate.entered == [b"x"]
    worker.stop()
    await worker.ended
    assert await client.qlen(queue) == 0


@pytest_twisted.ensureDeferred
async def test_a_failed_job_is_delivered_again_after_its_delay_though_its_worker_has_ended(
    side: Any, client: Any, daemon: Daemon, queue: str
) -> None:
    def fail(job: Job) -> None:
        raise RuntimeError("it does not work")

    await client.add(queue, "x", retry=300)
    worker = side.worker(client, [queue], fail, live=True, poll=0.1, backoff=Backoff(2, 2))
    await until(lambda: worker.figures.failed == 1, "a job that failed")
    worker.stop()
    await worker.ended
    assert (worker.figures.returned, await client.qlen(queue)) == (1, 0)
    [job] = await client.get(queue, timeout=LIMIT, counters=True)
    assert job.nacks == 1


@pytest_twisted.ensureDeferred
async def test_two_live_workers_of_one_client_have_each_its_own(
    side: Any, client: Any, daemon: Daemon, queue: str
) -> None:
    for n in range(2):
        await client.add(queue, str(n), retry=300)
    gate = Gate()
    workers = [
        side.worker(client, [queue], partial(side.waits, gate), live=True, poll=0.1, name=f"no {n}") for n in range(2)
    ]
    await until(lambda: len(gate.entered) == 2, "both at work")
    assert [has(daemon, worker) for worker in workers] == [1, 1]
    daemon.call("WORKER", "FAIL", workers[0].id)
    assert await client.qlen(queue) == 1
    assert has(daemon, workers[1]) == 1
    gate.open()
    await until(lambda: sum(worker.figures.done for worker in workers) >= 2, "both jobs done")
    for worker in workers:
        worker.stop()
        await worker.ended


@pytest_twisted.ensureDeferred
async def test_a_live_worker_goes_to_another_node_when_its_own_is_killed(
    side: Any, cluster: Cluster, queue: str
) -> None:
    client = side.client(*map(address, cluster.nodes))
    gate = Gate()
    gate.open()
    worker = side.worker(client, [queue], partial(side.waits, gate), live=True, poll=0.1)
    await until(lambda: any(worker.id in alive(node) for node in cluster.nodes), "a worker on one of the nodes")
    home = next(n for n, node in enumerate(cluster.nodes) if worker.id in alive(node))
    other = cluster.nodes[1 - home]
    cluster.kill(home)
    await until(lambda: worker.id in alive(other), "a worker on the other node")
    producer = side.client(address(other))
    await producer.add(queue, "x", retry=300, replicate=1)
    await until(lambda: worker.figures.done == 1, "a job done there")
    worker.stop()
    await worker.ended
    cluster.restart(home)
