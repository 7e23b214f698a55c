"""A worker in an event loop, whose handlers are coroutine functions, or plain functions that do not block.

    async def handler(job):
        await send_mail(job.body)

    worker = Worker(client, ["mail"], handler, concurrency=20)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()

The core is in `base_worker`.  Durations are seconds.
"""

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any, TypeVar

from ..base_worker import BaseWorker, Handler
from ..job import Job, RunningJob
from ..tasks import Task, check_ran
from .client import Client

__all__ = ["Handler", "Worker"]

T = TypeVar("T")


class Worker(BaseWorker[Client]):
    """Handles the jobs of some queues, several at a time, until it is stopped."""

    _client_type = Client

    def _prepare(self) -> None:
        self._detached: set[asyncio.Task[None]] = set()
        self._asleep: set[asyncio.Future[None]] = set()  #: coroutines that wait for a change

    def stop(self) -> None:
        """Ask it to stop; `run` returns once it holds no more jobs."""
        self._stop_asked = True
        self._change()

    async def run(self) -> None:
        """Work until `stop`.  Raises AccessDenied, NotTrusted or Closed, once it holds no more jobs.

        Cancelling it stops the worker, which raises CancelledError once it holds no more jobs.
        """
        self._begin_run()
        loop = asyncio.get_running_loop()
        keeper = loop.create_task(self._keep())
        work = loop.create_task(self._work())
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            self.stop()
            await asyncio.wait([work])
            raise
        finally:
            if work.done():
                await keeper
            else:  # cancelled a second time
                for task in (work, keeper, *self._detached):
                    task.cancel()

    # The primitives.

    async def _run_handler(self, task: Task, job: RunningJob) -> object:
        ending = self._handler(job)
        check_ran(ending, awaits=True)
        if not inspect.isawaitable(ending):
            return ending
        running = self._running[task] = asyncio.ensure_future(ending)
        try:
            return await running
        finally:
            del self._running[task]

    def _from_handler(self, work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        return work

    async def _judge(self, job: Job, error: BaseException) -> object:
        verdict: object = self._on_exhausted(job, error)
        return await verdict if inspect.isawaitable(verdict) else verdict

    def _hand_out(self, task: Task, work: Coroutine[Any, Any, None]) -> None:
        detached = asyncio.get_running_loop().create_task(self._safely(task, work))
        self._detached.add(detached)
        detached.add_done_callback(self._detached.discard)

    async def _until_changed(self, limit: float | None) -> None:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._asleep.add(waiting)
        try:
            await asyncio.wait([waiting], timeout=limit)
        finally:
            self._asleep.discard(waiting)

    def _change(self) -> None:
        for waiting in self._asleep:
            if not waiting.done():
                waiting.set_result(None)
