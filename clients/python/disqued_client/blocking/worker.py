"""A worker with threads, for handlers that block.

    run, in the caller's thread   the core's `_work`
    handler threads               the core's `_handle`, one job each
    keeper thread                 the core's `_keep`

    worker = Worker(client, ["mail"], send_mail, concurrency=4)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()

The core is in `base_worker`; one lock is held while it runs (`stepping`).  Durations are seconds.
"""

import threading
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from typing import Any, TypeVar

from ..base_worker import BaseWorker, Handler
from ..commands import Command
from ..job import Job, RunningJob
from ..tasks import Task, check_ran
from .client import Client
from .stepping import finish, released

__all__ = ["Handler", "Worker"]

T = TypeVar("T")


class Worker(BaseWorker[Client]):
    """Handles the jobs of some queues, several at a time, until it is stopped."""

    _client_type = Client
    _awaits = False

    def _prepare(self) -> None:
        #: Held while the core runs; notified of each change that a thread may wait for.
        self._changed = threading.Condition(threading.Lock())
        self._todo: SimpleQueue[tuple[Task, Coroutine[Any, Any, None]] | None] = SimpleQueue()

    def stop(self) -> None:
        """Ask it to stop, from any thread or a signal handler; `run` returns once it holds no more jobs."""
        self._stop_asked = True

    def run(self) -> None:
        """Work until `stop`.  Raises AccessDenied, NotTrusted or Closed, once it holds no more jobs."""
        self._begin_run()
        keeper = threading.Thread(target=self._step, args=(self._keep,), name="disqued-keeper", daemon=True)
        threads = [
            threading.Thread(target=self._handle_all, name=f"disqued-handler-{n}", daemon=True)
            for n in range(self._concurrency)
        ]
        for thread in (keeper, *threads):
            thread.start()
        try:
            self._step(self._work)
        finally:
            for _ in threads:
                self._todo.put(None)
            keeper.join()

    def _step(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        with self._changed:
            finish(work())

    def _handle_all(self) -> None:
        while (item := self._todo.get()) is not None:
            task, work = item
            with self._changed:
                finish(self._safely(task, work))

    # The primitives.

    async def _send(
        self, command: Command[T], patience: float | None = None, wanted: Callable[[], bool] | None = None
    ) -> T:
        with released(self._changed):
            return self._client.run(command, patience, wanted)

    async def _run_handler(self, task: Task, job: RunningJob) -> object:
        with released(self._changed):
            ending = self._handler(job)
        check_ran(ending, awaits=False)
        return ending

    def _from_handler(self, work: Coroutine[Any, Any, None]) -> None:
        with self._changed:
            finish(work)

    async def _judge(self, job: Job, error: BaseException) -> object:
        with released(self._changed):
            return self._on_exhausted(job, error)

    def _hand_out(self, task: Task, work: Coroutine[Any, Any, None]) -> None:
        self._todo.put((task, work))

    async def _tell(self, task: Task, work: Coroutine[Any, Any, None]) -> None:
        await self._safely(task, work)

    async def _until_changed(self, limit: float | None) -> None:
        self._changed.wait(limit)

    def _change(self) -> None:
        self._changed.notify_all()
