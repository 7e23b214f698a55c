"""Both clients when all goes wrong: nodes that freeze, move and stay away, bad handlers, forks, cancelling."""

import gc
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import CancelledError, Deferred, gatherResults
from twisted.internet.threads import deferToThread
from twisted.logger import LogEvent, globalLogPublisher

from disqued.client import Backoff, Closed, Job
from tests.integration.client_sides import BlockingSide, DeferredSide, Gate, address, said, until
from tests.integration.cluster import Cluster, ends_well
from tests.integration.daemon import HOST, LIMIT, ROOT, Daemon, environment, wait_until
from tests.programs import Program

Start = Callable[..., Daemon]
SOON = Backoff(0.05, 0.1)
FOR_EVER = 1_000_000  #: seconds of patience, which no test has
MANY = 1_000


def connections(daemon: Daemon) -> int:
    """How many clients are connected, beside the one that asks."""
    with daemon.redis() as other:
        return int(other.info("clients")["connected_clients"]) - 1


@pytest_twisted.ensureDeferred
async def test_workers_go_on_elsewhere_when_their_node_freezes_and_when_it_comes_back(
    side: Any, tmp_path: Path, queue: str
) -> None:
    done: list[tuple[str, bytes]] = []

    async def all_done(body: str, by: Any) -> None:
        for kind in ("usual", "live"):
            await by.add(f"{queue}-{kind}", body, replicate=1, retry=1)  # a frozen node may have asked for it
        expected = {("usual", body.encode()), ("live", body.encode())}
        await until(lambda: expected.issubset(done), f"jobs done: {body}")

    with ends_well(Cluster(tmp_path)) as cluster:
        await deferToThread(cluster.start, 2)
        quick = {"reply_timeout": 0.5, "connect_timeout": 0.5}
        workers = [
            side.worker(
                side.client(address(cluster.nodes[0]), **quick), f"{queue}-{kind}",
                lambda job, kind=kind: done.append((kind, job.body)), poll=0.2, live=kind == "live",
            )
            for kind in ("usual", "live")
        ]  # fmt: skip
        there = side.client(address(cluster.nodes[1]))
        await all_done("before", there)
        cluster.freeze(0)
        await all_done("while it is frozen", there)
        cluster.thaw(0)
        await deferToThread(cluster.wait_joined)
        await all_done("after", side.client(address(cluster.nodes[0])))
        for worker in workers:
            worker.stop()
            await worker.ended
            assert (worker.at_work, worker.figures.untold) == (0, 0)


@pytest_twisted.ensureDeferred
async def test_a_node_that_comes_back_at_another_port_is_found_there(tmp_path: Path, queue: str) -> None:
    side = DeferredSide()  # nodes are looked for by what both have in common
    with ends_well(Cluster(tmp_path)) as cluster:
        await deferToThread(cluster.start, 2)
        client = side.client(address(cluster.nodes[0]), hello_every=0.1)
        before = {(HOST, node.port) for node in cluster.nodes}
        assert await client.qlen(queue) == 0
        assert client.known_nodes == before
        known = cluster.nodes[1].directory / "nodes.conf"
        await until(lambda: cluster.ids[0] in known.read_text(), "a node that will know the other one again")
        cluster.kill(1)
        cluster.nodes[1] = await deferToThread(cluster.launch, 1)
        cluster.started.append(cluster.nodes[1])
        await deferToThread(cluster.wait_joined)
        heard = said(cluster.nodes[0], "hello")
        while said(cluster.nodes[0], "hello") == heard:
            assert await client.qlen(queue) == 0
        cluster.kill(0)
        job_id = await client.add(queue, "x", replicate=1, retry=60)
        assert client.node == address(cluster.nodes[1])
        assert [job.id for job in await client.get(queue)] == [job_id]
        assert await client.ack(job_id) == 1
        await side.close()


@pytest_twisted.ensureDeferred
async def test_a_worker_stops_when_no_node_can_be_reached_whatever_patience_it_has(
    side: Any, start: Start, queue: str
) -> None:
    daemon = start()
    client = side.client(address(daemon), patience=FOR_EVER)
    worker = side.worker(client, queue, print, poll=0.1)
    await until(lambda: daemon.blocked() == 1, "a worker that waits")
    daemon.kill()
    worker.stop()
    await until(lambda: worker.ended.called, "a worker that has stopped")


@pytest_twisted.ensureDeferred
async def test_what_cannot_be_said_of_jobs_ends_with_the_patience_of_the_client(
    side: Any, start: Start, queue: str
) -> None:
    daemon = start()
    client = side.client(address(daemon), patience=3)
    for n in range(20):
        await client.add(queue, str(n), retry=300)
    gate = Gate()
    worker = side.worker(client, queue, partial(side.waits, gate), concurrency=20, grace=0.1, poll=0.1)
    await until(lambda: len(gate.entered) == 20, "all at work")
    daemon.kill()
    worker.stop()
    await until(lambda: worker.ended.called, "a worker that has stopped, and not waited for each job in turn")
    assert (worker.figures.untold, worker.figures.returned, worker.at_work) == (20, 0, 0)
    gate.open()


@pytest_twisted.ensureDeferred
async def test_stopping_may_be_asked_for_twice_too_early_and_too_late(side: Any, client: Any, queue: str) -> None:
    worker = side.worker(client, queue, print, poll=0.1)
    stopping = [worker.stop(), worker.stop()]
    await worker.ended
    stopping.append(worker.stop())
    if side.name == "deferred":
        await gatherResults(stopping)
    with pytest.raises(RuntimeError, match="started before"):
        await side.ran(worker)
    job_id = await client.add(queue, "x")
    early = side.idle_worker(client, queue, print)
    early.stop()
    await side.ran(early)
    assert await client.qlen(queue) == 1
    assert await client.ack(job_id) == 1


@pytest_twisted.ensureDeferred
async def test_a_handler_may_stop_its_worker(side: Any, client: Any, queue: str) -> None:
    for n in range(3):
        await client.add(queue, str(n), retry=300)
    workers: list[Any] = []

    def work(job: Job) -> None:
        workers[0].stop()
        assert workers[0].is_stopping

    workers.append(side.idle_worker(client, queue, work, poll=0.1))
    await side.ran(workers[0])
    assert workers[0].figures.done == 1
    assert await client.qlen(queue) == 2


@pytest_twisted.ensureDeferred
async def test_a_thousand_jobs_are_each_done_once_by_one_worker(side: Any, client: Any, queue: str) -> None:
    await gatherResults([client.add(queue, str(n), retry=300) for n in range(MANY)])
    done: Counter[bytes] = Counter()
    lock = threading.Lock()

    def work(job: Job) -> None:
        with lock:
            done[job.body] += 1

    worker = side.worker(client, queue, work, concurrency=50, poll=0.2)
    await until(lambda: worker.figures.done == MANY, "all done")
    worker.stop()
    await worker.ended
    assert (len(done), set(done.values())) == (MANY, {1})
    assert await side.walk(client.scan_jobs(queue=queue)) == []


@pytest_twisted.ensureDeferred
async def test_a_paused_queue_is_waited_for(side: Any, client: Any, daemon: Daemon, queue: str) -> None:
    await client.add(queue, "x", retry=300)
    await client.pause(queue, "out")
    gate = Gate()
    gate.open()
    worker = side.worker(client, queue, partial(side.waits, gate), poll=0.2)
    await until(lambda: daemon.blocked() == 1, "a worker that waits")
    assert gate.entered == []
    await client.pause(queue, "none")
    await until(lambda: worker.figures.done == 1, "the job done")
    worker.stop()
    await worker.ended


@pytest_twisted.ensureDeferred
async def test_what_a_handler_leaves_the_program_with_is_an_error_like_any_other(
    side: Any, client: Any, queue: str
) -> None:
    job_id = await client.add(queue, "x", retry=300)
    tries: list[int] = []

    def leave(job: Job) -> None:
        tries.append(job.tries)
        raise (SystemExit, KeyboardInterrupt)[job.tries % 2]

    worker = side.worker(client, queue, leave, backoff=SOON, poll=0.1)
    await until(lambda: len(tries) >= 3, "a job that is tried again and again")
    worker.stop()
    await worker.ended
    assert worker.figures.failed == len(tries) <= worker.figures.returned
    assert await client.ack(job_id) == 1


@pytest_twisted.ensureDeferred
async def test_a_verdict_that_is_none_is_told_and_the_job_goes_on(
    side: Any, client: Any, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(job: Job) -> None:
        raise RuntimeError("it does not work")

    job_id = await client.add(queue, "x", retry=300)
    worker = side.worker(client, queue, fail, backoff=SOON, poll=0.1, max_tries=1, on_exhausted=lambda job, error: None)
    await until(lambda: worker.figures.returned >= 2, "a job that goes on")
    worker.stop()
    await worker.ended
    if side.name == "blocking":
        assert "on_exhausted returned None" in caplog.text
    assert await client.ack(job_id) == 1


@pytest_twisted.ensureDeferred
async def test_a_worker_ends_when_its_client_is_closed(side: Any, client: Any, daemon: Daemon, queue: str) -> None:
    worker = side.worker(client, queue, print, poll=0.1)
    await until(lambda: daemon.blocked() == 1, "a worker that waits")
    await side.closed(client)
    with pytest.raises(Closed):
        await worker.ended


# Threads and forks.


@pytest_twisted.ensureDeferred
async def test_many_threads_use_one_client(daemon: Daemon, queue: str) -> None:
    side = BlockingSide()
    client = side.client(address(daemon)).inner
    errors: list[BaseException] = []
    bodies: Counter[bytes] = Counter()

    def use(number: int) -> None:
        try:
            for n in range(20):
                own = f"{queue}-{number}"
                job_id = client.add(own, f"{number} {n}", retry=300)
                [job] = client.get(own)
                assert (job.id, job.body) == (job_id, b"%d %d" % (number, n))
                bodies[job.body] += 1
                assert client.ack(job) == 1
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    await deferToThread(lambda: [thread.join(LIMIT) for thread in threads])
    assert (errors, len(bodies)) == ([], 320)
    await side.close()
    await until(lambda: connections(daemon) == 0, "no connection left")


FORKING = """
import os, sys, threading
from disqued.client.blocking import Client

node, queue = sys.argv[1:]
client = Client(node)
stop = threading.Event()
client.add(queue, 'before', retry=300)
waiting = [threading.Thread(target=client.get, args=('nobody',), kwargs={'timeout': 0.1}) for _ in range(6)]
for thread in waiting:
    thread.start()
for thread in waiting:
    thread.join()  # each leaves a connection that is idle
newest = max(int(line.split()[0].removeprefix(b'id=')) for line in client.call('CLIENT', 'LIST').splitlines())

def use():
    while not stop.is_set():
        assert client.qlen('nobody') == 0

threads = [threading.Thread(target=use) for _ in range(3)]
for thread in threads:
    thread.start()
children = []
for n in range(5):
    if not (child := os.fork()):
        try:
            assert client.call('CLIENT', 'ID') > newest, 'a connection of its own'
            client.add(queue, 'child', retry=300)
            client.close()
            os._exit(0)
        except BaseException as error:
            os.write(2, repr(error).encode())
        os._exit(1)
    children.append(child)
ended = [os.waitpid(child, 0)[1] for child in children]
stop.set()
for thread in threads:
    thread.join()
taken = client.get(queue, count=100)
print(ended, sorted(job.body for job in taken), client.ack(*taken))
client.close()
"""


def test_a_client_may_be_used_on_both_sides_of_a_fork(daemon: Daemon, queue: str) -> None:
    argv = [sys.executable, "-W", "error::DeprecationWarning:disqued", "-c", FORKING, address(daemon), queue]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT, env=environment(), cwd=ROOT, check=False)
    bodies = sorted([b"before", *[b"child"] * 5])
    assert (done.stdout, done.returncode) == (f"{[0] * 5} {bodies} 6\n", 0), done.stderr


PARENT = """
import os, sys, threading, time
from disqued.client.blocking import Client, Worker

node, queue = sys.argv[1:]

def work(job):
    if not os.fork():
        os.write(1, b'%d\\n' % os.getpid())
        threading.Event().wait()
    threading.Event().wait()

Worker(Client(node), queue, work, live=True, dead_after=3600).run()
"""


def test_a_child_that_outlives_a_live_worker_keeps_none_of_its_jobs(daemon: Daemon, queue: str) -> None:
    daemon.call("ADDJOB", queue, "x", 0, "RETRY", 3600)
    argv = [sys.executable, "-c", PARENT, address(daemon), queue]
    with Program(argv, stdout=subprocess.PIPE, env=environment(), cwd=ROOT, text=True) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            assert daemon.call("QLEN", queue) == 0
            process.kill()
            wait_until(lambda: daemon.call("QLEN", queue) == 1, "a job that is back")
            os.kill(child, 0)
        finally:
            os.kill(child, signal.SIGKILL)


# Cancelling.


@pytest_twisted.ensureDeferred
async def test_cancelling_leaves_nothing_behind(start: Start, queue: str) -> None:
    daemon, side = start(), DeferredSide()
    client = side.client(address(daemon))
    for begin in (lambda: client.add(queue, "x"), lambda: client.get(queue), lambda: client.qlen(queue)):
        for _ in range(5):
            under_way = begin()
            under_way.cancel()
            with pytest.raises(CancelledError):
                await under_way
    assert await client.qlen(queue) in range(6)
    await until(lambda: daemon.blocked() == 0, "nobody who waits")
    await side.close()
    await until(lambda: connections(daemon) == 0, "no connection left")


@pytest_twisted.ensureDeferred
async def test_logging_in_may_be_cancelled(start: Start) -> None:
    daemon, side = start(), DeferredSide()
    daemon.call("CONFIG", "SET", "requirepass", "sesame")
    for _ in range(5):
        under_way: Deferred[int] = side.client(address(daemon), password="sesame").qlen("q")
        under_way.cancel()
        with pytest.raises(CancelledError):
            await under_way
    await side.close()


@pytest_twisted.ensureDeferred
async def test_to_cancel_a_worker_is_to_stop_it(daemon: Daemon, queue: str, request: pytest.FixtureRequest) -> None:
    side = DeferredSide()
    client = side.client(address(daemon))
    await client.add(queue, "x", retry=300)
    gate = Gate()
    errors: list[LogEvent] = []
    request.addfinalizer(lambda: globalLogPublisher.removeObserver(note))

    def note(event: LogEvent) -> None:
        errors.extend([event] if "log_failure" in event else [])

    globalLogPublisher.addObserver(note)
    worker = side.worker(client, queue, partial(side.waits, gate), poll=0.1)
    await until(lambda: gate.entered, "a job at work")
    worker.ended.cancel()
    with pytest.raises(CancelledError):
        await worker.ended
    stopped = worker.stop()
    gate.open()
    await stopped
    assert (worker.figures.done, worker.at_work) == (1, 0)
    del worker
    gc.collect()  # which is when an error that nobody has taken is told
    assert errors == []
    await side.close()
