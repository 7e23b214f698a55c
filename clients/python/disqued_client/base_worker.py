"""The worker core: fetching and handling jobs, written once as coroutines for three runners.

    _work     fetch as many jobs as there is room for; send the heartbeats of a live worker (`seats.Heartbeat`)
    _handle   one for each job: run the handler, then acknowledge, give back or move the job; with OpenTelemetry in a
              span (`tracing`)
    _keep     send WORKING when it is due, or ask what was cancelled, and NACK for failed jobs (`tasks.Tasks`)

`reporting.JobReporter` tells the nodes what becomes of a job.

A side supplies the primitives: how to send a command, run a handler, wait for a change and start a coroutine.
Between two of them the core runs alone (`base_client`).  Durations are seconds.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

import attrs

from . import commands, tracing
from .base_client import BaseClient
from .commands import Command
from .errors import AccessDenied, Closed, DisquedError, NotTrusted
from .job import Job, RunningJob
from .reporting import JobReporter
from .seats import Heartbeat, new_seat
from .tasks import (
    Backoff,
    Bury,
    Drop,
    Figures,
    GoOn,
    MoveTo,
    NextStep,
    OnExhausted,
    RetryLater,
    Task,
    Tasks,
    Verdict,
    check_calls,
    check_grace,
    check_verdict,
    go_on,
    next_pause,
    reason_of,
)
from .values import Span, encode_queues, waiting_seconds

#: Handles a job; the job is done when it, and the awaitable that it may return, ends without an error.  What it returns
#: is the result of a job that keeps one.
Handler: TypeAlias = Callable[[RunningJob], object]

T = TypeVar("T")
AnyClientT = TypeVar("AnyClientT", bound=BaseClient[Any, Any])

_log = logging.getLogger("disqued.client")

#: Errors after which the next fetch would fail in the same way.
_HOPELESS: Final = (AccessDenied, NotTrusted, Closed)


class Cancellable(Protocol):
    """A handler at work: a Deferred, or a task of asyncio."""

    def cancel(self) -> object:
        """End it early."""


class BaseWorker(ABC, Generic[AnyClientT]):
    """Handles the jobs of some queues, several at a time, until it is stopped."""

    _client_type: ClassVar[type[BaseClient[Any, Any]]]  #: of this side
    _awaits: ClassVar[bool] = True  #: handlers may be coroutine functions

    def __init__(
        self,
        client: AnyClientT,
        queues: bytes | str | Iterable[bytes | str],
        handler: Handler,
        *,
        concurrency: int = 1,
        ordered: bool = False,
        backoff: Backoff | None = None,
        max_tries: int | None = None,
        on_exhausted: OnExhausted = go_on,
        grace: Span = 30,
        poll: Span = 1,
        live: bool = False,
        dead_after: Span = 10,
        name: bytes | str = b"",
    ) -> None:
        """Take a client, which may also be used elsewhere.  Raises ValueError and TypeError.

        With `ordered` the jobs of a queue come before those of the queues that are named behind it; else a fetch takes
        one of each in turn.

        `backoff` is for jobs that were added without one.  After `max_tries` tries of a job `on_exhausted` decides:
        `Drop`, `MoveTo`, `Bury` or `GoOn`.  When the worker stops, handlers may go on for `grace`.  `poll` is the
        length of one fetch, and so how long stopping may take when idle; when no node can be reached, stopping takes at
        most `grace` and the patience of the client.

        A `live` worker keeps its jobs as long as it lives, whatever their retry time.  They return to their queue at
        once when its process ends, its connection breaks, or its node has received nothing from it for `dead_after`.
        `name` is a name for people.
        """
        if not isinstance(client, self._client_type):
            allowed = f"{self._client_type.__module__.removesuffix('.client')}.Client"
            raise TypeError(f"the client is {client!r}; a {allowed} is allowed")
        check_calls(awaits=self._awaits, handler=handler, on_exhausted=on_exhausted)
        if not isinstance(backoff, Backoff | None):
            raise TypeError(f"backoff is {backoff!r}; a Backoff is allowed")
        self._client = client
        self._queues = encode_queues(queues)
        self._ordered = ordered
        self._handler = handler
        self._on_exhausted = on_exhausted
        self._grace = check_grace(grace)
        self._poll = waiting_seconds(poll, "poll")
        self._rng = client.random
        self._heartbeat = Heartbeat(new_seat(self._rng, dead_after, name)) if live else None
        self._concurrency = concurrency
        self._tasks = Tasks(concurrency, backoff or Backoff(), self._rng, max_tries, keeps_alive=not live)
        self._reporter = JobReporter(
            self._tasks, self._send, now=client.now, on_change=self._change, on_cancel=self._cancel, warn=self._warn
        )
        self._stop_asked = False
        self._was_started = False
        self._is_over = False
        self._running: dict[Task, Cancellable] = {}  #: handlers that can be cancelled, unlike those in threads
        self._prepare()

    # What a side supplies.

    @abstractmethod
    def _prepare(self) -> None:
        """Make what the primitives need."""

    @abstractmethod
    async def _run_handler(self, task: Task, job: RunningJob) -> object:
        """Run the handler on a job, and wait for its end; returns what it returns.  Raises what it raises."""

    @abstractmethod
    def _from_handler(self, work: Coroutine[Any, Any, None]) -> Any:
        """Run a coroutine of the core that a handler calls; returns its result, or a promise of it."""

    @abstractmethod
    async def _judge(self, job: Job, error: BaseException) -> object:
        """Ask `on_exhausted`, and wait for its answer.  Raises what it raises."""

    @abstractmethod
    def _hand_out(self, task: Task, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine about a job, at the same time as others of its kind."""

    @abstractmethod
    async def _until_changed(self, limit: float | None) -> None:
        """Wait for `_change`, for at most `limit` seconds (None: no limit)."""

    @abstractmethod
    def _change(self) -> None:
        """Wake what waits for a change."""

    # What a side may override.

    async def _send(
        self, command: Command[T], patience: float | None = None, wanted: Callable[[], bool] | None = None
    ) -> T:
        """Carry out a command, as `run` of the client."""
        result: T = await self._client.run(command, patience, wanted)
        return result

    async def _tell(self, task: Task, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that only talks to nodes: concurrently with others, or one after another."""
        self._hand_out(task, work)

    def _warn(self, text: str) -> None:
        _log.warning("%s", text)

    def _log_failure(self, text: str, error: BaseException) -> None:
        _log.warning("%s", text, exc_info=error)

    # What all sides have.

    @property
    def id(self) -> bytes:
        """Its id on the nodes, if it is a live worker; else empty."""
        return self._heartbeat.seat.id if self._heartbeat else b""

    @property
    def figures(self) -> Figures:
        """Counts of its jobs so far."""
        return self._tasks.figures

    @property
    def at_work(self) -> int:
        """How many jobs it holds."""
        return len(self._tasks)

    @property
    def is_stopping(self) -> bool:
        """True once it was asked to stop; a long handler may check it."""
        return self._stop_asked

    def _begin_run(self) -> None:
        if self._was_started:
            raise RuntimeError("this worker has been started before: make another one")
        self._was_started = True

    # Fetching.

    async def _work(self) -> None:
        """Work until `stop`.  Raises AccessDenied, NotTrusted or Closed, once it holds no more jobs."""
        try:
            await self._fetch_all()
        finally:
            await self._put_away()
            await self._stop_heartbeat()
            self._is_over = True
            self._change()

    async def _fetch_all(self) -> None:
        failures = 0
        while not self._stop_asked:
            room = self._tasks.room()
            if not room:
                await self._until_changed(self._at_most(self._poll))
                await self._send_heartbeat()
                continue
            try:
                jobs = await self._fetch(room)
                failures = 0
            except DisquedError as error:
                if self.is_stopping:
                    return
                if isinstance(error, _HOPELESS):
                    raise
                failures += 1
                self._warn(f"fetching from {self._queues} failed: {error}")
                await self._rest(self._at_most(next_pause(failures, self._rng)))
                continue
            for job in jobs:
                await self._begin(job)

    async def _fetch(self, room: int) -> list[Job]:
        """Fetch jobs; the only place where a worker does."""
        fetch = commands.get(
            *self._queues, timeout=self._poll, count=room, ordered=self._ordered, counters=True, headers=True
        )
        if self._heartbeat is not None:
            fetch = self._heartbeat.fetch(fetch, self._client.now())
        return await self._send(fetch, wanted=lambda: not self._stop_asked)

    async def _rest(self, seconds: float) -> None:
        end = self._client.now() + seconds
        while not self._stop_asked and (left := end - self._client.now()) > 0:
            await self._until_changed(min(left, self._poll))

    async def _begin(self, job: Job) -> None:
        task = self._tasks.begin(job, self._client.now())
        if task is None:
            return
        self._change()
        if self._stop_asked:
            await self._tell(task, self._came_late(task))
        else:
            self._hand_out(task, self._handle(task))

    def _running_job(self, task: Task) -> RunningJob:
        def report(value: bytes | str) -> Any:
            return self._from_handler(self._reporter.progress(task, value))

        return RunningJob(**attrs.asdict(task.job, recurse=False), cancelled=task.cancelled, report=report)

    def _cancel(self, task: Task) -> None:
        """Cancel the handler of a job, where handlers can be cancelled."""
        if (running := self._running.get(task)) is not None:
            running.cancel()

    async def _came_late(self, task: Task) -> None:
        """Give back a job that arrived while the worker stops; begin it if it is delivered at most once."""
        await self._reporter.learn_retry(task)
        if task.retry:
            self._tasks.give_back(task)
            self._change()
        else:
            self._hand_out(task, self._handle(task))

    # Heartbeats.

    def _at_most(self, seconds: float) -> float:
        """Return how long to wait for something: a live worker sends its heartbeats in time."""
        return seconds if self._heartbeat is None else min(seconds, self._heartbeat.interval)

    async def _send_heartbeat(self) -> None:
        if self._heartbeat is None or (command := self._heartbeat.due(self._client.now())) is None:
            return
        try:
            await self._send(command, self._heartbeat.interval)
        except DisquedError as error:
            self._warn(f"no node received the sign of life of this worker: {error}")

    async def _stop_heartbeat(self) -> None:
        if self._heartbeat is None:
            return
        try:
            await self._send(self._heartbeat.stop(), self._heartbeat.interval)
        except DisquedError as error:
            self._warn(f"no node received the end of this worker: {error}")
        self._client.leave(self._heartbeat.seat)

    # One job.

    async def _handle(self, task: Task) -> None:
        if not self._tasks.is_running(task):
            return  # given back before it began
        task.has_begun = True
        if tracing.tracer is None:
            await self._try(task)
        else:
            with tracing.attempt(task):
                await self._try(task)

    async def _try(self, task: Task) -> None:
        try:
            result = await self._run_handler(task, self._running_job(task))
        except GeneratorExit:
            raise
        except BaseException as error:  # a handler must not end the program
            task.error = error
            if self._tasks.is_running(task) and not isinstance(error, Bury):
                await self._reporter.learn_terms(task)
            if self._tasks.is_running(task):  # else it was given back meanwhile
                await self._failed(task, error)
        else:
            if self._tasks.settle(task):
                wrong = await self._reporter.acknowledge(task, result)
                if wrong is not None:
                    task.error = wrong
                    await self._failed(task, wrong)

    async def _failed(self, task: Task, error: BaseException) -> None:
        """Give back a job whose handler failed, unless it ends here."""
        if task.cancelled.is_set:
            self.figures.cancelled += 1
        else:
            self.figures.failed += 1
            text = f"job {task.job.id.decode()} failed, try {task.job.tries}"
            if isinstance(error, Bury | RetryLater):
                self._warn(f"{text}: {reason_of(error)}")
            else:
                self._log_failure(text, error)
            if task.is_once and not isinstance(error, Bury):
                self._reporter.leave(task)
                return
            if self._tasks.is_exhausted(task) and not isinstance(error, Bury):
                verdict = await self._exhausted(task, error)
                if isinstance(verdict, Drop | MoveTo):
                    await self._reporter.drop(task)
                    return
                error = verdict if isinstance(verdict, Bury) else error
        self._tasks.failed(task, error)
        self._change()

    async def _exhausted(self, task: Task, error: BaseException) -> Verdict:
        """Ask `on_exhausted` about a job, and move the job if it says so."""
        self._tasks.settle(task)
        self.figures.exhausted += 1
        try:
            verdict = check_verdict(await self._judge(task.job, error))
            if isinstance(verdict, MoveTo):
                await self._reporter.copy(task, verdict)
        except Exception as failure:
            self._log_failure(f"on_exhausted failed for job {task.job.id.decode()}, which goes on", failure)
            return GoOn()
        return verdict

    async def _safely(self, task: Task, work: Awaitable[None]) -> None:
        """Run a coroutine about a job; after a bug of ours the job comes back by its retry time."""
        try:
            await work
        except Exception as error:
            self._log_failure(f"in a worker, with job {task.job.id.decode()}", error)
            self._reporter.forget(task)

    # Keeping jobs alive.

    async def _keep(self) -> None:
        """Send WORKING and give back failed jobs, until the worker has ended."""
        while not self._is_over:
            now = self._client.now()
            due = self._tasks.due(now)
            looks = [task for what, task in due if what is NextStep.LOOK]
            if looks:
                await self._tell(looks[0], self._reporter.look(looks))
            for what, task in due:
                if what is not NextStep.LOOK:
                    work = self._reporter.give_back(task) if what is NextStep.NACK else self._reporter.keep(task)
                    await self._tell(task, work)
            if not due:
                at = self._tasks.next_at()
                await self._until_changed(None if at is None else max(0.0, at - now))

    # The end.

    async def _put_away(self) -> None:
        """Wait for the handlers, then give back the jobs that they have not ended."""
        self._stop_asked = True
        end = self._client.now() + self._grace
        self._reporter.give_up_at(end + self._client.patience)
        self._tasks.stop()
        self._change()
        while self._tasks.any_running() and (left := end - self._client.now()) > 0:
            await self._until_changed(self._at_most(left))
            await self._send_heartbeat()
        for task in self._tasks.give_up():
            self._cancel(task)
        self._change()
        while len(self._tasks):
            await self._until_changed(None)
