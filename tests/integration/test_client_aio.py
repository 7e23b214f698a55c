"""The client for asyncio: whatever a program cancels, no job is lost, and none waits for its retry time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from disqued.client import Job
from disqued.client.aio import Client, Worker
from tests.integration.client_sides import address
from tests.integration.daemon import LIMIT, Daemon, wait_until

CANCELS = 1_000
STEPS = 40  #: of the event loop, among which a fetch is cancelled


async def until(condition: Callable[[], Awaitable[Any]], what: str) -> Any:
    """Ask until the answer is true, and return it."""
    async with asyncio.timeout(LIMIT):
        while not (answer := await condition()):
            await asyncio.sleep(0.01)
    assert answer, what
    return answer


def run(daemon: Daemon, story: Callable[[Client], Awaitable[None]]) -> None:
    """Tell a story with a client, which is closed at its end."""

    async def told() -> None:
        async with Client(address(daemon)) as client:
            await story(client)

    asyncio.run(told(), debug=False)


@pytest.mark.parametrize("retry", [300, 0], ids=["at least once", "at most once"])
def test_no_job_is_lost_or_late_when_fetches_are_cancelled_as_it_arrives(
    daemon: Daemon, queue: str, retry: int
) -> None:
    """Each job meets a fetch that is cancelled so many steps of the loop after the job was added."""

    async def story(client: Client) -> None:
        taken: list[bytes] = []
        in_vain = 0  #: cancels that came too late
        for number in range(CANCELS):
            fetch = asyncio.create_task(client.get(queue))
            await until(lambda: asyncio.to_thread(daemon.blocked), "a consumer that waits")
            terms = {"max_tries": 1} if retry else {}
            adding = asyncio.create_task(client.add(queue, str(number), retry=retry, replicate=1, **terms))
            for _ in range(number % STEPS):
                await asyncio.sleep(0)
            fetch.cancel()
            await asyncio.wait([fetch, adding])
            jobs = [] if fetch.cancelled() else fetch.result()
            in_vain += not fetch.cancelled()
            # Neither its retry time nor anything else has to pass: the next fetch has the job.
            jobs = jobs or await client.get(queue, timeout=LIMIT)
            taken += [job.body for job in jobs]
            await client.ack(*jobs)
        assert taken == [b"%d" % number for number in range(CANCELS)]
        assert 0 < in_vain < CANCELS

    run(daemon, story)


def test_a_program_that_asks_with_short_timeouts_has_one_fetch_under_way(daemon: Daemon, queue: str) -> None:
    async def story(client: Client) -> None:
        for _ in range(50):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.002):
                    await client.get(queue)
        assert await asyncio.to_thread(daemon.blocked) <= 1
        connections = await client.call("CLIENT", "LIST")
        assert isinstance(connections, bytes)
        assert connections.count(b"cmd=getjob") <= 1
        await client.add(queue, "x", retry=300)
        [job] = await client.get(queue, timeout=LIMIT)
        assert job.body == b"x"
        await client.ack(job)

    run(daemon, story)


@pytest.mark.parametrize("retry", [300, 0], ids=["at least once", "at most once"])
def test_a_job_for_a_cancelled_fetch_goes_to_another_one_that_waits(daemon: Daemon, queue: str, retry: int) -> None:
    async def story(client: Client) -> None:
        first, second = (asyncio.create_task(client.get(queue)) for _ in range(2))
        await until(lambda: asyncio.to_thread(lambda: daemon.blocked() == 2), "two consumers that wait")
        first.cancel()
        await asyncio.wait([first])
        await client.add(queue, "x", retry=retry, replicate=1)
        async with asyncio.timeout(LIMIT):
            [job] = await second
        assert job.body == b"x"
        assert await client.ack(job) == 1

    run(daemon, story)


def test_a_worker_whose_run_is_cancelled_puts_its_jobs_away(daemon: Daemon, queue: str) -> None:
    async def story(client: Client) -> None:
        entered: list[bytes] = []
        cancelled: list[bytes] = []

        async def work(job: Job) -> None:
            entered.append(job.body)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancelled.append(job.body)
                raise

        for number in range(2):
            await client.add(queue, str(number), retry=300)
        worker = Worker(client, queue, work, concurrency=2, grace=0, poll=0.1)
        running = asyncio.create_task(worker.run())
        await until(lambda: asyncio.sleep(0, len(entered) == 2), "both at work")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert sorted(cancelled) == sorted(entered)
        assert (worker.figures.returned, worker.at_work, await client.qlen(queue)) == (2, 0, 2)

    run(daemon, story)


def test_a_client_that_closes_gives_back_what_came_for_a_cancelled_get(daemon: Daemon, queue: str) -> None:
    async def story(client: Client) -> None:
        fetch = asyncio.create_task(client.get(queue))
        await until(lambda: asyncio.to_thread(daemon.blocked), "a consumer that waits")
        fetch.cancel()
        await asyncio.wait([fetch])
        await client.add(queue, "x", retry=300)

    run(daemon, story)
    wait_until(lambda: daemon.call("QLEN", queue) == 1, "a job that is back")
