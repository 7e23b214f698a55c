"""A worker in a reactor, whose handlers are coroutines, functions that return Deferreds, or plain functions.

    async def handler(job):
        await send_mail(job.body)

    worker = Worker(client, ["mail"], handler, concurrency=20)
    done = worker.run()             # a Deferred that fires when the worker has stopped
    reactor.addSystemEventTrigger("before", "shutdown", worker.stop)

The core is in `base_worker`.  Durations are seconds.
"""

from collections.abc import Coroutine
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from ..base_worker import BaseWorker, Handler
from ..job import Job, RunningJob
from ..tasks import Task, check_ran
from .client import Client

__all__ = ["Handler", "Worker"]

T = TypeVar("T")

_log = Logger(namespace="disqued.client")


class Worker(BaseWorker[Client]):
    """Handles the jobs of some queues, several at a time, until it is stopped."""

    _client_type = Client

    def _prepare(self) -> None:
        self._asleep: set[Deferred[None]] = set()  #: coroutines that wait for a change
        self._wakes = False  #: they wake in the next turn of the reactor
        self._end: Deferred[None] | None = None
        self._waiters: list[Deferred[None]] = []  #: Deferreds of `stop`

    def run(self) -> "Deferred[None]":
        """Work until `stop`; fires once it holds no more jobs, or fails with AccessDenied, NotTrusted or Closed.

        Cancelling it stops the worker; it fails at once, and the Deferred of `stop` fires once it holds no more jobs.
        """
        self._begin_run()
        Deferred.fromCoroutine(self._keep()).addErrback(lambda failure: _log.failure("in a worker", failure))
        self._end = Deferred.fromCoroutine(self._work())
        ended: Deferred[None] = Deferred(self._cancelled)
        self._end.addBoth(self._ended, ended)
        return ended

    def stop(self) -> "Deferred[None]":
        """Stop: fetch no more jobs, wait for handlers during `grace`, give back the rest."""
        stopped: Deferred[None] = Deferred()
        self._stop_asked = True
        if self._end is None or self._end.called:
            stopped.callback(None)
        else:
            self._waiters.append(stopped)
            self._change()
        return stopped

    def _cancelled(self, ended: "Deferred[None]") -> None:
        self.stop()

    def _ended(self, result: Any, ended: "Deferred[None]") -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.callback(None)
        if not ended.called:  # else it was cancelled
            ended.callback(result)

    # The primitives.

    async def _run_handler(self, task: Task, job: RunningJob) -> object:
        running = self._running[task] = maybeDeferred(self._handler, job)
        try:
            ending = await running
        finally:
            self._running.pop(task, None)
        check_ran(ending, awaits=False)
        return ending

    def _from_handler(self, work: Coroutine[Any, Any, None]) -> "Deferred[None]":
        return Deferred.fromCoroutine(work)

    async def _judge(self, job: Job, error: BaseException) -> object:
        return await maybeDeferred(self._on_exhausted, job, error)

    def _hand_out(self, task: Task, work: Coroutine[Any, Any, None]) -> None:
        Deferred.fromCoroutine(self._safely(task, work))

    async def _until_changed(self, limit: float | None) -> None:
        waiting: Deferred[None] = Deferred()
        self._asleep.add(waiting)
        timer = None if limit is None else self._client.reactor.callLater(limit, self._wake, waiting)
        try:
            await waiting
        finally:
            if timer is not None and timer.active():
                timer.cancel()

    def _wake(self, waiting: "Deferred[None]") -> None:
        self._asleep.discard(waiting)
        waiting.callback(None)

    def _change(self) -> None:
        """Wake waiters in the next turn of the reactor, so that nothing else runs within a step of the core."""
        if not self._wakes and self._asleep:
            self._wakes = True
            self._client.reactor.callLater(0, self._wake_all)

    def _wake_all(self) -> None:
        self._wakes = False
        for waiting in list(self._asleep):
            self._wake(waiting)

    def _warn(self, text: str) -> None:
        _log.warn("{text}", text=text)

    def _log_failure(self, text: str, error: BaseException) -> None:
        _log.failure("{text}", Failure(error), text=text)
