"""Both clients of the library on one daemon: commands, refusals, and workers from their first job to their end."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import CancelledError, gatherResults

from disqued.client import (
    AccessDenied,
    Backoff,
    BadJobId,
    Job,
    MoveTo,
    ServerError,
    Uncertain,
    UnknownJob,
    Unreachable,
    move_to,
)
from tests.integration.client_sides import DeferredSide, Gate, address, said, until
from tests.integration.cluster import Cluster, ends_well
from tests.integration.daemon import HOST, Daemon

SOON = Backoff(0.05, 0.1)

Start = Callable[..., Daemon]


def facts(daemon: Daemon, job_id: bytes) -> dict[str, Any]:
    """What the daemon knows of a job, asked by another client."""
    with daemon.redis() as other:
        shown = other.execute_command("SHOW", job_id) or []
    return dict(zip(shown[::2], shown[1::2], strict=True))


@pytest_twisted.ensureDeferred
async def test_a_job_is_added_taken_looked_at_and_acknowledged(client: Any, queue: str) -> None:
    job_id = await client.add(queue, "to: ann", retry=60, ttl=600)
    assert await client.qlen(queue) == 1
    assert await client.qpeek(queue) == [Job(queue.encode(), job_id, b"to: ann")]
    [job] = await client.get(queue, counters=True)
    assert (job.id, job.body, job.queue, job.tries) == (job_id, b"to: ann", queue.encode(), 1)
    shown = await client.show(job)
    assert (shown["state"], shown["retry"], shown["body"]) == (b"active", 60, b"to: ann")
    assert await client.working(job) == 60
    assert await client.nack(job) == 1
    assert [again.nacks for again in await client.get(queue, counters=True)] == [1]
    assert await client.ack(job) == 1
    assert await client.show(job) is None
    assert (await client.qstat(queue))["jobs-in"] == 2
    assert await client.qstat("nobody-knows-it") is None


@pytest_twisted.ensureDeferred
async def test_spans_go_to_the_node_and_back_to_the_millisecond(client: Any, queue: str) -> None:
    terms = {"max_tries": 3, "backoff": (0.5, timedelta(seconds=2)), "keep_dead": 1.5, "result_ttl": 0.125}
    job_id = await client.add(queue, "x", delay=0.0004, retry=60.25, ttl=600.0, **terms)
    [job] = await client.get(queue, timeout=60)
    shown = await client.show(job)
    assert (job.id, shown["delay"], shown["retry"], shown["ttl"]) == (job_id, 0.001, 60.25, 600)
    assert (shown["backoff"], shown["keep-dead"], shown["keep-result"]) == ([0.5, 2], 1.5, 0.125)
    assert await client.working(job) == 60.25
    assert await client.nack(job, delay=100.5) == 1
    assert 60_000 < (await client.show(job))["next-requeue-within"] <= 100_500
    await client.set_policy(queue, ttl=90.5, rate=(3, 0.5))
    policy = await client.policy(queue)
    assert (policy["ttl"].value, policy["rate"].value) == (90.5, (3, 0.5))


@pytest_twisted.ensureDeferred
async def test_other_commands_do_what_they_say(client: Any, queue: str, daemon: Daemon) -> None:
    job_id = await client.add(queue, "x", asynchronous=True)
    assert [await client.dequeue(job_id), await client.enqueue(job_id)] == [1, 1]
    assert await client.pause(queue, "in") == "in"
    with pytest.raises(ServerError, match="PAUSED"):
        await client.add(queue, "y")
    assert await client.pause(queue, "none") == "none"
    with pytest.raises(ServerError, match="MAXLEN"):
        await client.add(queue, "y", maxlen=1)
    assert await client.delete(job_id) == 1
    assert await client.fast_ack(await client.add(queue, "y")) == 1
    assert int((await client.info("server"))["process_id"]) == daemon.process.pid
    assert (await client.hello()).nodes[0].port == daemon.port
    assert await client.call("ECHO", "hello") == b"hello"
    assert client.node == address(daemon)


@pytest_twisted.ensureDeferred
async def test_errors_come_with_their_word_and_the_client_goes_on(client: Any, queue: str) -> None:
    with pytest.raises(BadJobId, match="BADID"):
        await client.call("ACKJOB", b"DI" + b"x" * 46)
    with pytest.raises(UnknownJob):
        await client.working(b"DI" + b"0" * 40 + b"05a0SQ")
    with pytest.raises(ServerError) as caught:
        await client.call("LPUSH", queue, "x")
    assert caught.value.word == "ERR"
    with pytest.raises(ServerError, match="NOREPL"):
        await client.add(queue, "x", replicate=3)
    assert await client.call("PING") == b"PONG"


@pytest_twisted.ensureDeferred
async def test_a_get_waits_for_its_job_and_holds_up_nothing_else(client: Any, daemon: Daemon, queue: str) -> None:
    waiting = [client.get(queue, "another"), client.get(queue)]
    await until(lambda: daemon.blocked() == 2, "two consumers that wait")
    first = await client.add(queue, "1")
    second = await client.add(queue, "2")
    taken = await gatherResults(waiting)
    assert sorted(job.id for jobs in taken for job in jobs) == sorted([first, second])


@pytest_twisted.ensureDeferred
async def test_a_get_that_finds_nothing_answers_nothing(client: Any, queue: str) -> None:
    assert await client.get(queue, nohang=True) == []
    assert await client.get(queue, timeout=0.05) == []


@pytest_twisted.ensureDeferred
async def test_walks_find_all(side: Any, client: Any, queue: str) -> None:
    added = await gatherResults([client.add(queue, str(n)) for n in range(30)])
    found = await side.walk(client.scan_jobs(queue=queue, states=["queued"], count=7))
    assert sorted(found) == sorted(added)
    assert queue.encode() in await side.walk(client.scan_queues(minlen=30))
    assert queue.encode() not in await side.walk(client.scan_queues(minlen=31))


@pytest_twisted.ensureDeferred
async def test_connections_are_called_by_the_name_of_their_client(side: Any, daemon: Daemon, queue: str) -> None:
    client = side.client(address(daemon), client_name="press-1")
    await client.add(queue, "x")
    assert b" name=press-1 " in await client.call("CLIENT", "LIST")


@pytest_twisted.ensureDeferred
async def test_a_password_is_given_and_a_wrong_one_is_told(side: Any, start: Start, queue: str) -> None:
    daemon = start()
    daemon.call("CONFIG", "SET", "requirepass", "sesame")
    friend = side.client(address(daemon), password="sesame")
    job_id = await friend.add(queue, "x")
    assert [job.id for job in await friend.get(queue)] == [job_id]
    for client in (side.client(address(daemon)), side.client(address(daemon), password="simsala")):
        with pytest.raises(AccessDenied):
            await client.qlen(queue)
        worker = side.worker(client, [queue], print)
        with pytest.raises(AccessDenied):
            await worker.ended


@pytest.fixture
def frozen(tmp_path: Path) -> Iterator[Cluster]:
    """One node, whose process is stopped in the middle of whatever it does."""
    with ends_well(Cluster(tmp_path, options=())) as cluster:
        cluster.start(1)
        yield cluster


@pytest_twisted.ensureDeferred
async def test_a_node_that_stands_still_is_noticed(side: Any, frozen: Cluster) -> None:
    [daemon] = frozen.nodes
    client = side.client(address(daemon), reply_timeout=0.5, connect_timeout=0.5, patience=1)
    assert await client.qlen("q") == 0
    frozen.freeze(0)
    with pytest.raises(Uncertain, match="ADDJOB was answered"):
        await client.add("q", "x", timeout=0.5)
    with pytest.raises(Unreachable):
        await client.qlen("q")
    frozen.thaw(0)
    patient = side.client(address(daemon))
    assert await patient.qlen("q") in (0, 1)
    with pytest.raises(Unreachable):
        await side.client(f"{HOST}:1", patience=0.3).add("q", "x")


@pytest_twisted.ensureDeferred
async def test_a_job_for_a_get_that_was_cancelled_is_given_back(daemon: Daemon, queue: str) -> None:
    side = DeferredSide()
    client = side.client(address(daemon))
    waiting = client.get(queue)
    await until(lambda: daemon.blocked() == 1, "a consumer that waits")
    waiting.cancel()
    with pytest.raises(CancelledError):
        await waiting
    before = said(daemon, "nack")
    job_id = await client.add(queue, "x", retry=300, max_tries=1)
    await until(lambda: said(daemon, "nack") > before, "a job that was given back")
    assert (facts(daemon, job_id)["state"], facts(daemon, job_id)["nacks"]) == ("queued", 0)
    assert [job.id for job in await client.get(queue, nohang=True)] == [job_id]
    await side.close()


# Workers.


@pytest_twisted.ensureDeferred
async def test_a_worker_works_on_every_job_and_on_no_more_at_once_than_it_was_told(
    side: Any, client: Any, queue: str
) -> None:
    for n in range(20):
        await client.add(queue, str(n), retry=300)
    gate = Gate()
    worker = side.worker(client, [queue], partial(side.waits, gate), concurrency=3, poll=0.1)
    await until(lambda: len(gate.entered) == 3, "three jobs at work")
    assert await client.qlen(queue) == 17
    gate.open()
    await until(lambda: worker.figures.done == 20, "all jobs done")
    assert sorted(map(int, gate.entered)) == list(range(20))
    worker.stop()
    await worker.ended
    assert await side.walk(client.scan_jobs(queue=queue)) == []


@pytest_twisted.ensureDeferred
async def test_a_job_is_kept_alive_while_its_handler_works_on_it(
    side: Any, client: Any, daemon: Daemon, queue: str
) -> None:
    job_id = await client.add(queue, "x", retry=1)
    gate = Gate()
    worker = side.worker(client, [queue], partial(side.waits, gate), concurrency=2, poll=0.1)
    before = said(daemon, "working")
    await until(
        lambda: said(daemon, "working") >= before + 8, "a job that was kept alive for more than two retry times"
    )
    assert facts(daemon, job_id)["additional-deliveries"] == 0
    gate.open()
    await until(lambda: worker.figures.done == 1, "the job done")
    assert gate.entered == [b"x"]
    worker.stop()
    await worker.ended


@pytest_twisted.ensureDeferred
async def test_a_job_that_fails_is_tried_again_and_then_moved_to_the_dead_letters(
    side: Any, client: Any, queue: str
) -> None:
    tries: list[int] = []

    def fail(job: Job) -> None:
        tries.append(job.tries)
        raise RuntimeError("it does not work")

    job_id = await client.add(queue, "x", retry=300)
    dead = f"{queue}-dead"
    options = {"backoff": SOON, "max_tries": 3, "on_exhausted": move_to(dead), "poll": 0.1}
    worker = side.worker(client, [queue], fail, **options)
    await until(lambda: worker.figures.exhausted and not worker.at_work, "a job that failed three times")
    assert tries == [1, 2, 3]
    [letter] = await client.get(dead)
    assert (letter.body, letter.id != job_id) == (b"x", True)
    assert await client.show(job_id) is None
    worker.stop()
    await worker.ended


@pytest_twisted.ensureDeferred
async def test_a_handler_that_is_called_and_never_runs_does_not_end_its_job(
    side: Any, client: Any, daemon: Daemon, queue: str
) -> None:
    def never_runs(job: Job) -> Iterator[Job]:
        yield job

    job_id = await client.add(queue, "x", retry=300)
    worker = side.worker(client, [queue], never_runs, backoff=SOON, poll=0.1)
    await until(lambda: facts(daemon, job_id)["nacks"] >= 2, "a job that goes on")
    assert worker.figures.done == 0
    worker.stop()
    await worker.ended


@pytest_twisted.ensureDeferred
async def test_a_worker_that_could_never_work_is_refused(side: Any, client: Any, queue: str) -> None:
    for handler, options, told in (
        ("send", {}, "handler is 'send'; a function of a job is allowed"),
        (print, {"on_exhausted": "mail.dead"}, "on_exhausted is 'mail.dead'; a function"),
        (print, {"backoff": 3}, "backoff is 3; a Backoff is allowed"),
    ):
        with pytest.raises(TypeError, match=told):
            side.idle_worker(client, [queue], handler, **options)


@pytest_twisted.ensureDeferred
async def test_a_verdict_that_cannot_be_carried_out_leaves_the_job_as_it_is(
    side: Any, client: Any, daemon: Daemon, queue: str
) -> None:
    def fail(job: Job) -> None:
        raise RuntimeError("it does not work")

    dead = f"{queue}-dead"
    await client.pause(dead, "in")
    job_id = await client.add(queue, "x", retry=300)
    options = {"backoff": SOON, "max_tries": 1, "on_exhausted": lambda job, error: MoveTo(dead), "poll": 0.1}
    worker = side.worker(client, [queue], fail, **options)
    await until(lambda: facts(daemon, job_id)["nacks"] >= 2, "a job that goes on")
    await client.pause(dead, "none")
    await until(lambda: worker.figures.done == 1, "a job that was moved")
    assert len(await client.get(dead)) == 1
    worker.stop()
    await worker.ended


@pytest_twisted.ensureDeferred
async def test_an_at_most_once_job_that_fails_is_not_given_back(
    side: Any, client: Any, daemon: Daemon, queue: str
) -> None:
    def fail(job: Job) -> None:
        raise RuntimeError("it does not work")

    job_id = await client.add(queue, "x", retry=0, replicate=1)
    worker = side.worker(client, [queue], fail, poll=0.1)
    await until(lambda: worker.figures.left == 1, "a job that was left")
    worker.stop()
    await worker.ended
    assert worker.figures.returned == 0
    assert (facts(daemon, job_id)["nacks"], facts(daemon, job_id)["state"]) == (0, "active")


@pytest_twisted.ensureDeferred
async def test_a_job_in_the_second_half_of_its_life_is_worked_on_to_its_end(
    side: Any, client: Any, daemon: Daemon, queue: str
) -> None:
    await client.add(queue, "x", retry=3, ttl=4)
    gate = Gate()
    worker = side.worker(client, [queue], partial(side.waits, gate), poll=0.1)
    await until(lambda: worker.figures.too_late == 1, "a job that cannot be kept any longer")
    gate.open()
    await until(lambda: worker.figures.done == 1, "the job done")
    worker.stop()
    await worker.ended


@pytest_twisted.ensureDeferred
async def test_a_worker_that_stops_lets_its_handlers_end(side: Any, client: Any, queue: str) -> None:
    for n in range(5):
        await client.add(queue, str(n), retry=300)
    gate = Gate()
    worker = side.worker(client, [queue], partial(side.waits, gate), concurrency=2, poll=0.1)
    await until(lambda: len(gate.entered) == 2, "two jobs at work")
    worker.stop()
    gate.open()
    await worker.ended
    assert (worker.figures.done, worker.at_work) == (2, 0)
    assert await client.qlen(queue) == 3
    assert len(gate.entered) == 2


@pytest_twisted.ensureDeferred
async def test_a_worker_that_stops_under_load_returns_every_job_that_it_cannot_end(
    side: Any, client: Any, daemon: Daemon, queue: str
) -> None:
    # Calls that are made at the same time arrive in any order: those that can be done are there before the others.
    for numbers in (range(100), range(100, 200)):
        await gatherResults([client.add(queue, str(n), retry=300) for n in numbers])
    gate, failed = Gate(), []

    def some(job: Job) -> object:
        number = int(job.body)
        if number % 3 == 0:
            failed.append(number)
            raise RuntimeError("it does not work")
        if number < 100:
            return None
        return side.waits(gate, job)

    worker = side.worker(client, [queue], some, concurrency=8, backoff=Backoff(300, 300), grace=0.2, poll=0.1)
    await until(lambda: len(gate.entered) == 8, "as many jobs at work as may be")
    assert await client.qlen(queue) < 100
    worker.stop()
    await worker.ended
    done = 66  # below 100, and no multiple of 3
    assert (worker.figures.done, worker.figures.left, worker.figures.untold) == (done, 0, 0)
    assert worker.figures.returned == len(failed) + 8
    assert await client.qlen(queue) == 200 - done - len(failed), "not one waits for its retry time"
    put_off = [facts(daemon, job_id) for job_id in await side.walk(client.scan_jobs(queue=queue, states=["active"]))]
    assert len(put_off) == len(failed)
    assert all(each["nacks"] == 1 for each in put_off), "the server has the delay, which the worker did not wait for"
    assert gate.cancelled == (8 if side.cancels() else 0)
    gate.open()


@pytest_twisted.ensureDeferred
async def test_a_worker_that_stops_while_it_waits_loses_no_job_that_comes_then(
    side: Any, client: Any, daemon: Daemon, queue: str
) -> None:
    seen: list[bytes] = []
    worker = side.worker(client, [queue], lambda job: seen.append(job.body), poll=3)
    await until(lambda: daemon.blocked() == 1, "a worker that waits")
    worker.stop()
    job_id = await client.add(queue, "often", retry=300, max_tries=1)
    await worker.ended
    assert (seen, await client.qlen(queue)) == ([], 1)
    assert (facts(daemon, job_id)["nacks"], facts(daemon, job_id)["additional-deliveries"]) == (0, 0)
    once = side.worker(client, [f"{queue}-once"], lambda job: seen.append(job.body), poll=3)
    await until(lambda: daemon.blocked() == 1, "a worker that waits")
    once.stop()
    await client.add(f"{queue}-once", "once", retry=0, replicate=1)
    await once.ended
    assert seen == [b"once"], "nobody else would get it"
