"""Terms, failures, results, progress and cancellation by all clients, on one daemon."""

import asyncio
from collections.abc import Callable
from inspect import isawaitable
from time import sleep
from typing import Any

import pytest
import pytest_twisted
from twisted.internet.defer import CancelledError, Deferred

from disqued.client import (
    Backoff,
    Bury,
    Drop,
    JobCancelled,
    JobDead,
    ResultUnknown,
    RetryLater,
    RunningJob,
    WaitTimeout,
    move_to,
)
from tests.integration.client_sides import AioSide, DeferredSide, Gate, address, said, until
from tests.integration.daemon import LIMIT, Daemon

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
SOON = Backoff(0.1, 0.1)  #: a second, as the server counts


def fails(error: Exception, tried: list[RunningJob] | None = None) -> Callable[[RunningJob], object]:
    """A handler that fails."""

    def handler(job: RunningJob) -> object:
        if tried is not None:
            tried.append(job)
        raise error

    return handler


def after(told: Any, then: Callable[[], object]) -> object:
    """Go on in a handler once something was told, in the way of its side."""
    if told is None:
        return then()
    if isinstance(told, Deferred):
        return told.addCallback(lambda _: then())

    async def go_on() -> object:
        await told
        ending = then()
        return await ending if isawaitable(ending) else ending

    return go_on()


async def stopped(worker: Any) -> None:
    worker.stop()
    await worker.ended


def reasons(facts: Any) -> list[bytes]:
    """Why the tries of a job failed."""
    return [reason for _, _, _, reason in facts.get("failures", ())]


@pytest_twisted.ensureDeferred
async def test_a_failed_try_leaves_its_reason_and_the_server_delivers_the_job_again(
    side: Any, client: Any, queue: str
) -> None:
    tried: list[RunningJob] = []
    job_id = await client.add(queue, "x", retry=300)
    worker = side.worker(client, [queue], fails(ValueError("no address"), tried), backoff=SOON, poll=0.1)
    await until(lambda: len(tried) == 2, "a second try")
    assert [(job.tries, job.attempt) for job in tried] == [(1, 1), (2, 2)]
    assert tried[1].fencing_token == job_id + b":2"
    await stopped(worker)
    shown = await client.show(job_id)
    assert (reasons(shown), shown["nacks"]) == ([b"ValueError: no address"] * 2, 2)


@pytest_twisted.ensureDeferred
async def test_the_backoff_of_a_job_goes_before_that_of_its_worker(side: Any, client: Any, queue: str) -> None:
    job_id = await client.add(queue, "x", retry=300, backoff=(100, 200))
    worker = side.worker(client, [queue], fails(ValueError()), backoff=SOON, poll=0.1)
    await until(lambda: worker.figures.returned == 1, "a job that failed")
    shown = await client.show(job_id)
    assert 85_000 < shown["next-requeue-within"] <= 110_000
    assert (shown["backoff"], reasons(shown)) == ([100, 200], [b"ValueError"])
    await stopped(worker)


@pytest_twisted.ensureDeferred
async def test_a_handler_says_when_its_job_is_tried_again(side: Any, client: Any, queue: str) -> None:
    job_id = await client.add(queue, "x", retry=300, backoff=1)
    worker = side.worker(client, [queue], fails(RetryLater(100, "the shop is closed")), backoff=SOON, poll=0.1)
    await until(lambda: worker.figures.returned == 1, "a job that failed")
    shown = await client.show(job_id)
    assert 95_000 < shown["next-requeue-within"] <= 100_000
    assert reasons(shown) == [b"the shop is closed"]
    await stopped(worker)


@pytest_twisted.ensureDeferred
async def test_a_job_that_is_buried_is_dead_until_it_is_redriven(side: Any, client: Any, queue: str) -> None:
    tried: list[RunningJob] = []
    job_id = await client.add(queue, "x", retry=300, max_tries=5, result_ttl=60)
    worker = side.worker(client, [queue], fails(Bury("no such user"), tried), poll=0.1)
    outcome = await client.outcome(job_id, LIMIT)
    assert (outcome.id, outcome.state, outcome.value, outcome.tries, outcome.reason) == (
        job_id, "dead", None, 1, "no such user",
    )  # fmt: skip
    assert worker.figures.buried == 1
    with pytest.raises(JobDead, match="is dead after 1 try: no such user") as caught:
        await client.wait(job_id, LIMIT)
    assert (caught.value.id, caught.value.tries, caught.value.reason) == (job_id, 1, "no such user")
    assert await side.walk(client.scan_jobs(queue=queue, states="dead")) == [job_id]
    await stopped(worker)
    assert [await client.redrive(queue), await client.redrive(queue)] == [1, 0]
    again = side.worker(client, [queue], lambda job: tried.append(job) or "well", poll=0.1)
    assert await client.wait(job_id, LIMIT) == b"well"
    assert [job.attempt for job in tried] == [1, 2], "no fencing token comes twice, also after REDRIVE"
    await stopped(again)


@pytest_twisted.ensureDeferred
async def test_a_job_is_dead_after_the_tries_of_its_terms(side: Any, client: Any, queue: str) -> None:
    job_id = await client.add(queue, "x", retry=300, max_tries=2, backoff=1)
    worker = side.worker(client, [queue], fails(OSError("no route")), poll=0.1)
    outcome = await client.outcome(job_id, LIMIT)
    assert (outcome.state, outcome.tries, outcome.reason) == ("dead", 2, "OSError: no route")
    await stopped(worker)


@pytest_twisted.ensureDeferred
async def test_a_worker_may_bury_what_failed_too_often(side: Any, client: Any, queue: str) -> None:
    job_id = await client.add(queue, "x", retry=300)
    options = {"max_tries": 1, "on_exhausted": lambda job, error: Bury(f"gave up: {error}"), "poll": 0.1}
    worker = side.worker(client, [queue], fails(OSError("no route")), **options)
    outcome = await client.outcome(job_id, LIMIT)
    assert (outcome.state, outcome.reason) == ("dead", "gave up: no route")
    await stopped(worker)


@pytest_twisted.ensureDeferred
async def test_what_a_handler_returns_is_the_result_and_stays(side: Any, client: Any, queue: str) -> None:
    job_id = await client.add(queue, "cat.png", retry=300, result_ttl=60, headers={"size": "32", "x": b"\xff"})
    waiting = client.wait(job_id, LIMIT)
    seen: list[Any] = []
    worker = side.worker(client, [queue], lambda job: seen.append(job.headers) or job.body.decode().upper(), poll=0.1)
    assert await waiting == b"CAT.PNG"
    assert await client.wait(job_id, LIMIT) == b"CAT.PNG"
    assert seen == [{"size": b"32", "x": b"\xff"}]
    nothing = await client.add(f"{queue}-2", "x")
    with pytest.raises(WaitTimeout, match="has not ended in time"):
        await client.wait(nothing, 0.05)
    first, second = await client.wait_jobs([nothing, job_id], 0.05)
    assert ((first.state, first.is_over), (second.state, second.value)) == (("pending", False), ("acked", b"CAT.PNG"))
    assert [each.id for each in await client.wait_jobs([nothing, job_id], LIMIT, any=True)] == [job_id]
    await stopped(worker)


@pytest_twisted.ensureDeferred
async def test_a_job_without_a_stay_for_its_result_has_one_for_those_who_wait(
    side: Any, client: Any, daemon: Daemon, queue: str
) -> None:
    job_id = await client.add(queue, "x", retry=300)
    before = said(daemon, "waitjob")
    waiting = client.wait(job_id, LIMIT)
    await until(lambda: said(daemon, "waitjob") > before, "a caller that waits")
    [job] = await client.get(queue)
    assert await client.ack(job, result="well") == 1
    assert await waiting == b"well"
    with pytest.raises(ResultUnknown):
        await client.wait(job_id, LIMIT)


@pytest_twisted.ensureDeferred
async def test_a_value_that_is_no_result_fails_a_job_that_keeps_one_and_no_other(
    side: Any, client: Any, queue: str
) -> None:
    kept = await client.add(queue, "x", retry=300, result_ttl=60, max_tries=1)
    worker = side.worker(client, [queue], lambda job: 7, poll=0.1)
    outcome = await client.outcome(kept, LIMIT)
    text = "TypeError: the handler returned 7; bytes, text and None are results"
    assert (outcome.state, outcome.reason) == ("dead", text)
    other = await client.add(queue, "x", retry=300)
    await until(lambda: worker.figures.done == 1, "a job that nobody wants a result of")
    assert await client.show(other) is None
    await stopped(worker)


@pytest_twisted.ensureDeferred
async def test_progress_is_seen_while_the_job_runs(side: Any, client: Any, queue: str) -> None:
    gate = Gate()
    job_id = await client.add(queue, "x", retry=300, result_ttl=60)

    def handler(job: RunningJob) -> object:
        return after(job.progress("half"), lambda: side.waits(gate, job))

    worker = side.worker(client, [queue], handler, poll=0.1)
    await until(lambda: gate.entered, "a job at work")
    assert (await client.show(job_id))["progress"] == b"half"
    gate.open()
    await until(lambda: worker.figures.done == 1, "the job done")
    await stopped(worker)


@pytest_twisted.ensureDeferred
async def test_those_who_wait_are_told_the_progress(side: Any, client: Any, daemon: Daemon, queue: str) -> None:
    told: list[bytes] = []
    job_id = await client.add(queue, "x", retry=300, result_ttl=60)
    [job] = await client.get(queue)
    await client.working(job, progress="begun")
    waiting = client.wait(job_id, LIMIT, told.append)
    await until(lambda: told == [b"begun"], "the progress that there was")
    for value in (b"half", b"most"):
        await client.working(job, progress=value)
        await until(lambda value=value: told[-1] == value, "a progress")
    await client.ack(job, result="well")
    assert await waiting == b"well"
    assert told == [b"begun", b"half", b"most"]


@pytest_twisted.ensureDeferred
async def test_what_takes_progress_may_use_the_client_wait_and_fail(side: Any, client: Any, queue: str) -> None:
    added = await client.add(queue, "x", retry=300, result_ttl=60)
    [job] = await client.get(queue)
    shown: list[Any] = []

    def look(value: bytes) -> object:
        found = client.inner.qlen(queue) if hasattr(client, "inner") else client.qlen(queue)

        def note(length: int) -> None:
            shown.append((value, length))
            raise KeyError(value)

        if isinstance(found, int):
            return note(found)
        if isinstance(found, Deferred):
            return found.addCallback(note)

        async def awaited() -> None:
            note(await found)

        return awaited()

    await client.working(job, progress="half")
    with pytest.raises(KeyError):
        await client.wait(added, LIMIT, look)
    assert shown == [(b"half", 0)]
    silent: list[bytes] = []
    with pytest.raises(WaitTimeout):
        await client.wait(added, 0.3, silent.append)
    assert silent == [b"half"]
    await client.ack(job)


@pytest_twisted.ensureDeferred
async def test_a_queue_has_a_policy_that_jobs_follow(side: Any, client: Any, queue: str) -> None:
    assert await client.policy(queue) == {}
    assert await client.set_policy(queue, max_tries=3, backoff=(2, 600), result_ttl=60) == "OK"
    await client.pause(queue, "out")
    found = await client.policy(queue)
    assert {name: setting.value for name, setting in found.items()} == {
        "pause": "out", "max_tries": 3, "backoff": (2, 600), "result_ttl": 60,
    }  # fmt: skip
    stat = await client.qstat(queue, full=True)
    assert stat["pause-by"], "a client without a name is its address"
    shown = await client.show(await client.add(queue, "x"))
    assert (shown["max-tries"], shown["backoff"]) == (3, [2, 600])
    await client.unset_policy(queue, "max_tries", "backoff", "result_ttl")
    await client.pause(queue, "none")
    assert await client.policy(queue) == {}


@pytest_twisted.ensureDeferred
async def test_a_schedule_is_set_fired_paused_and_deleted(side: Any, client: Any, queue: str) -> None:
    assert await client.set_schedule(queue, queue, "x", every=3_600, retry=60, headers={"size": "32"}) == "OK"
    [row] = await client.schedules(queue)
    assert (row.name, row.when, row.queue) == (queue.encode(), b"EVERY 3600", queue.encode())
    assert (row.state, row.last_at, row.became, row.error) == ("active", 0, "", "")
    assert await client.next_of_schedule(queue, 2) == [row.next_at, row.next_at + 3_600]
    assert (await client.schedule(queue))["body"] == b"x"
    job_id = await client.fire_schedule(queue)
    [job] = await client.get(queue, timeout=5, headers=True)
    assert (job.id, job.headers["schedule-name"]) == (job_id, queue.encode())
    assert await client.pause_schedule(queue) == "OK"
    assert await client.next_of_schedule(queue) == []
    assert await client.resume_schedule(queue) == "OK"
    assert [await client.delete_schedule(queue) for _ in range(2)] == [1, 0]
    assert await client.schedule(queue) is None


@pytest_twisted.ensureDeferred
async def test_a_queue_is_purged_of_some_jobs_or_of_all(side: Any, client: Any, queue: str) -> None:
    for _ in range(3):
        await client.add(queue, "x", retry=300)
    [job] = await client.get(queue)
    assert await client.purge(queue, dry_run=True) == 3
    assert await client.purge(queue, states=["queued"]) == 2
    assert (await client.qlen(queue), (await client.show(job))["state"]) == (0, b"active")
    assert [await client.purge(queue), await client.purge(queue)] == [1, 0]


@pytest_twisted.ensureDeferred
async def test_a_running_job_that_is_cancelled_ends_when_its_handler_does(side: Any, client: Any, queue: str) -> None:
    waits, runs = await client.add(f"{queue}-2", "x"), await client.add(queue, "x", retry=1)
    assert await client.cancel(waits) == ["cancelled"]
    begun: list[RunningJob] = []
    gate = Gate()

    def handler(job: RunningJob) -> object:
        begun.append(job)
        if side.cancels():
            return side.waits(gate, job)
        while not job.is_cancelled:
            sleep(0.02)
        raise RuntimeError("stop")

    worker = side.worker(client, [queue], handler, poll=0.1)
    await until(lambda: begun, "a job at work")
    waiting = client.wait(runs, LIMIT)
    assert await client.cancel(runs) == ["cancelling"]
    with pytest.raises(JobCancelled, match="was cancelled") as caught:
        await waiting
    assert caught.value.word == "CANCELLED"
    await until(lambda: worker.figures.cancelled == 1 and not worker.at_work, "a handler that ended")
    assert begun[0].is_cancelled
    assert (gate.cancelled, worker.figures.failed) == (int(side.cancels()), 0)
    assert await client.cancel(b"DI" + b"0" * 40 + b"05a0SQ") == ["unknown"]
    await stopped(worker)


@pytest_twisted.ensureDeferred
async def test_a_handler_of_a_live_worker_learns_that_its_job_was_cancelled(
    side: Any, client: Any, daemon: Daemon, queue: str
) -> None:
    job_id = await client.add(queue, "x", retry=300)
    begun: list[RunningJob] = []
    gate = Gate()

    def handler(job: RunningJob) -> object:
        begun.append(job)
        if side.cancels():
            return side.waits(gate, job)
        while not job.is_cancelled:
            sleep(0.02)
        raise RuntimeError("stop")

    worker = side.worker(client, [queue], handler, poll=0.1, live=True)
    await until(lambda: begun, "a job at work")
    before = said(daemon, "working")
    assert await client.cancel(job_id) == ["cancelling"]
    await until(lambda: worker.figures.cancelled == 1 and not worker.at_work, "a handler that ended")
    assert begun[0].is_cancelled
    assert (worker.figures.failed, said(daemon, "working")) == (0, before)
    await stopped(worker)


@pytest_twisted.ensureDeferred
async def test_progress_tells_a_handler_that_its_job_was_cancelled(side: Any, client: Any, queue: str) -> None:
    gate, done = Gate(), []
    job_id = await client.add(queue, "x", retry=300)

    def handler(job: RunningJob) -> object:
        return after(side.waits(gate, job), lambda: after(job.progress("half"), lambda: done.append(job)))

    worker = side.worker(client, [queue], handler, poll=0.1)
    await until(lambda: gate.entered, "a job at work")
    assert await client.cancel(job_id) == ["cancelling"]
    gate.open()
    await until(lambda: worker.figures.cancelled == 1 and not worker.at_work, "a handler that ended")
    assert (done, worker.figures.done) == ([], 0)
    await stopped(worker)


@pytest.mark.parametrize("awaited", [DeferredSide, AioSide])
@pytest_twisted.ensureDeferred
async def test_a_wait_that_was_cancelled_leaves_its_client_as_it_was(awaited: Any, daemon: Daemon, queue: str) -> None:
    side = awaited()
    client = side.client(address(daemon))
    job_id = await client.add(queue, "x", retry=300, result_ttl=60)
    if awaited is DeferredSide:
        before = said(daemon, "waitjob")
        waiting = client.wait(job_id)
        await until(lambda: said(daemon, "waitjob") > before, "a caller that waits")
        waiting.cancel()
        with pytest.raises(CancelledError):
            await waiting
    else:

        async def cut_short() -> None:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await client.inner.wait(job_id)

        await side.loop.begin(cut_short())
    later = client.wait(job_id, LIMIT)
    [job] = await client.get(queue)
    assert await client.ack(job, result="well") == 1
    assert await later == b"well"
    await side.close()


@pytest_twisted.ensureDeferred
@pytest.mark.parametrize("moves", [True, False])
async def test_a_job_that_failed_too_often_keeps_its_terms_and_its_producer_hears_of_no_success(
    side: Any, client: Any, queue: str, *, moves: bool
) -> None:
    dead = f"{queue}-dead"
    terms = {"result_ttl": 60, "max_tries": 9, "backoff": (2, 60), "keep_dead": 77, "group": "g"}
    job_id = await client.add(queue, "x", retry=300, headers={"traceparent": TRACEPARENT}, **terms)
    ending = move_to(dead) if moves else lambda job, error: Drop()
    worker = side.worker(client, [queue], fails(ValueError()), max_tries=1, on_exhausted=ending, poll=0.1)
    with pytest.raises(JobCancelled):
        await client.wait(job_id, LIMIT)
    await until(lambda: worker.figures.done == 1, "a job that has ended")
    await stopped(worker)
    assert (await client.outcome(job_id, LIMIT)).state == "cancelled"
    if moves:
        [letter] = await client.get(dead, headers=True, counters=True)
        assert (letter.body, letter.tries, letter.headers["traceparent"]) == (b"x", 1, TRACEPARENT.encode())
        shown = await client.show(letter)
        names = ("keep-result", "max-tries", "backoff", "keep-dead", "group")
        assert [shown[name] for name in names] == [60, 9, [2, 60], 77, b"g"]
