"""The worker core: what a worker does with its jobs, written once as coroutines for three runners.

    _work     fetch as many jobs as there is room for; tell the nodes that a live worker is alive
    _handle   one for each job: run the handler, then acknowledge, hold or move the job
    _keep     say WORKING, and give back held jobs, when `tasks.Tasks` says so

A side supplies the primitives: how to send a command, run a handler, wait for a change and start a coroutine.
Between two of them the core runs alone (`base_client`).  Durations are seconds.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, ClassVar, Final, Generic, Protocol, TypeAlias, TypeVar

from disqued.client import commands
from disqued.client.base_client import BaseClient
from disqued.client.commands import Command
from disqued.client.errors import AccessDenied, Closed, DisquedError, NotTrusted, TooLate
from disqued.client.job import Job
from disqued.client.seats import between_signs, new_seat, stand_up, stay_alive, taken_by
from disqued.client.tasks import (
    Backoff,
    Drop,
    Figures,
    GoOn,
    MoveTo,
    NextStep,
    OnExhausted,
    Task,
    Tasks,
    Verdict,
    check_calls,
    check_grace,
    check_verdict,
    go_on,
    next_pause,
)
from disqued.client.values import Span, encode_queues, waiting_seconds

#: Does the work; the job is done when it, and the awaitable that it may return, ends without an error.
Handler: TypeAlias = Callable[[Job], object]

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
    """Works on the jobs of some queues, several at a time, until it is stopped."""

    _client_type: ClassVar[type[BaseClient[Any, Any]]]  #: of this side
    _awaits: ClassVar[bool] = True  #: handlers may be coroutine functions

    def __init__(
        self,
        client: AnyClientT,
        queues: bytes | str | Iterable[bytes | str],
        handler: Handler,
        *,
        concurrency: int = 1,
        backoff: Backoff | None = None,
        max_tries: int | None = None,
        on_exhausted: OnExhausted = go_on,
        grace: Span = 30,
        poll: Span = 1,
        live: bool = False,
        dead_after: Span = 10,
        name: bytes | str = b"",
    ) -> None:
        """Take a client, which may have other uses, too.  Raises ValueError and TypeError.

        After `max_tries` tries of a job `on_exhausted` decides: `Drop`, `MoveTo` or `GoOn`.  When the worker stops,
        handlers may go on for `grace`.  `poll` is the length of one fetch, and so what stopping may take when there is
        nothing to do; when no node can be reached, stopping takes at most `grace` and the patience of the client.

        A `live` worker keeps its jobs as long as it lives, whatever their retry time.  They return to their queue at
        once when its process ends, its connection breaks, or its node has heard nothing from it for `dead_after`.
        `name` is for people to read.
        """
        if not isinstance(client, self._client_type):
            allowed = f"{self._client_type.__module__.removesuffix('.client')}.Client"
            raise TypeError(f"the client is {client!r}; a {allowed} is allowed")
        check_calls(awaits=self._awaits, handler=handler, on_exhausted=on_exhausted)
        if not isinstance(backoff, Backoff | None):
            raise TypeError(f"backoff is {backoff!r}; a Backoff is allowed")
        self._client = client
        self._queues = encode_queues(queues)
        self._handler = handler
        self._on_exhausted = on_exhausted
        self._grace = check_grace(grace)
        self._poll = waiting_seconds(poll, "poll")
        self._rng = client.random
        self._seat = new_seat(self._rng, dead_after, name) if live else None
        self._concurrency = concurrency
        self._tasks = Tasks(concurrency, backoff or Backoff(), self._rng, max_tries, keeps_alive=not live)
        self._signed_at = 0.0  #: when the last sign of life was sent
        self._tell_until: float | None = None  #: once it stops: when it gives up telling the nodes about its jobs
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
    async def _run_handler(self, task: Task) -> None:
        """Run the handler on a job, and wait for its end.  Raises what it raises."""

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

    # What a side may do in another way.

    async def _send(
        self, command: Command[T], patience: float | None = None, wanted: Callable[[], bool] | None = None
    ) -> T:
        """Carry out a command by the client, as its `run`."""
        result: T = await self._client.run(command, patience, wanted)
        return result

    async def _tell(self, task: Task, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that only talks to nodes: side by side with others, or one after another."""
        self._hand_out(task, work)

    def _warn(self, text: str) -> None:
        _log.warning("%s", text)

    def _log_failure(self, text: str, error: BaseException) -> None:
        _log.warning("%s", text, exc_info=error)

    # What all sides have.

    @property
    def id(self) -> bytes:
        """The id by which nodes know it, if it is a live worker; else empty."""
        return self._seat.id if self._seat else b""

    @property
    def figures(self) -> Figures:
        """What it has done so far."""
        return self._tasks.figures

    @property
    def at_work(self) -> int:
        """How many jobs it has in hand."""
        return len(self._tasks)

    @property
    def is_stopping(self) -> bool:
        """True once it was asked to stop; a long handler may look at it."""
        return self._stop_asked

    def _begin_run(self) -> None:
        if self._was_started:
            raise RuntimeError("this worker has been started before: make another one")
        self._was_started = True

    # Fetching.

    async def _work(self) -> None:
        """Work until `stop`.  Raises AccessDenied, NotTrusted or Closed, after all jobs are put away."""
        try:
            await self._fetch_all()
        finally:
            await self._put_away()
            await self._stand_up()
            self._is_over = True
            self._change()

    async def _fetch_all(self) -> None:
        failures = 0
        while not self._stop_asked:
            room = self._tasks.room()
            if not room:
                await self._until_changed(self._at_most(self._poll))
                await self._stay_alive()
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
        """Ask for jobs; every fetch of a worker goes through here."""
        fetch = commands.get(*self._queues, timeout=self._poll, count=room, counters=True)
        if self._seat is not None:
            self._signed_at = self._client.now()
            fetch = taken_by(self._seat, fetch)
        return await self._send(fetch, wanted=self._is_wanted)

    def _is_wanted(self) -> bool:
        return not self._stop_asked

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

    async def _came_late(self, task: Task) -> None:
        """Give back a job that came while the worker stops, or begin it when nobody else would get it."""
        await self._learn_retry(task)
        if task.retry:
            self._tasks.give_back(task, self._client.now())
            self._change()
        else:
            self._hand_out(task, self._handle(task))

    # Being alive.

    def _at_most(self, seconds: float) -> float:
        """How long to wait for something: a live worker gives a sign of life in time."""
        return seconds if self._seat is None else min(seconds, between_signs(self._seat))

    async def _stay_alive(self) -> None:
        if self._seat is None or self._client.now() < self._signed_at + between_signs(self._seat):
            return
        self._signed_at = self._client.now()
        try:
            await self._send(stay_alive(self._seat), between_signs(self._seat))
        except DisquedError as error:
            self._warn(f"no node received the sign of life of this worker: {error}")

    async def _stand_up(self) -> None:
        if self._seat is None:
            return
        try:
            await self._send(stand_up(self._seat), between_signs(self._seat))
        except DisquedError as error:
            self._warn(f"no node received the end of this worker: {error}")
        self._client.leave(self._seat)

    # One job.

    async def _handle(self, task: Task) -> None:
        if not self._tasks.is_running(task):
            return  # given back before it was begun
        try:
            await self._run_handler(task)
        except GeneratorExit:
            raise
        except BaseException as error:  # to leave the program is not for a handler to decide
            await self._failed(task, error)
        else:
            if self._tasks.settle(task):
                await self._acknowledge(task)
                self._forget(task)

    async def _acknowledge(self, task: Task) -> None:
        try:
            await self._say(commands.ack(task.job))
            self.figures.done += 1
        except DisquedError as error:
            self._untold(task, "acknowledged", error)

    async def _failed(self, task: Task, error: BaseException) -> None:
        if not self._tasks.is_running(task):
            return  # given back meanwhile
        self.figures.failed += 1
        self._log_failure(f"job {task.job.id.decode()} failed, try {task.job.tries}", error)
        await self._learn_retry(task)
        if not self._tasks.is_running(task):
            return
        if task.is_once:
            self._leave_job(task)
        elif self._tasks.is_exhausted(task):
            await self._exhausted(task, error)
        else:
            self._hold(task)

    async def _exhausted(self, task: Task, error: BaseException) -> None:
        self._tasks.settle(task)
        self.figures.exhausted += 1
        verdict: Verdict
        try:
            verdict = check_verdict(await self._judge(task.job, error))
            if isinstance(verdict, MoveTo):
                await self._say(commands.add(verdict.queue, task.job.body, ttl=verdict.ttl, retry_add=True))
        except Exception as failure:
            self._log_failure(f"on_exhausted failed for job {task.job.id.decode()}, which goes on", failure)
            verdict = GoOn()
        if isinstance(verdict, Drop | MoveTo):
            await self._acknowledge(task)
            self._forget(task)
        else:
            self._hold(task)

    def _hold(self, task: Task) -> None:
        self._tasks.hold(task, self._client.now())
        self._change()

    def _leave_job(self, task: Task) -> None:
        self._warn(f"at-most-once job {task.job.id.decode()} was not ended, and nobody gets it again")
        self.figures.left += 1
        self._forget(task)

    def _forget(self, task: Task) -> None:
        self._tasks.forget(task)
        self._change()

    def _broke(self, task: Task, error: BaseException) -> None:
        """Log a bug of ours; the job comes back by its retry time."""
        self._log_failure(f"in a worker, with job {task.job.id.decode()}", error)
        self._forget(task)

    async def _safely(self, task: Task, work: Awaitable[None]) -> None:
        """Run a coroutine about a job; its bugs end with it."""
        try:
            await work
        except Exception as error:
            self._broke(task, error)

    async def _say(self, command: Command[T]) -> T:
        """Tell a node about a job; once the worker stops, within the time that is left for it."""
        left = None if self._tell_until is None else max(0.0, self._tell_until - self._client.now())
        return await self._send(command, left)

    def _untold(self, task: Task, what: str, error: DisquedError) -> None:
        self.figures.untold += 1
        self._warn(f"job {task.job.id.decode()} could not be {what}, and comes back: {error}")

    async def _give_back(self, task: Task) -> None:
        await self._learn_retry(task)
        if task.is_once:
            self._leave_job(task)
            return
        try:
            await self._say(commands.nack(task.job))
            self.figures.returned += 1
        except DisquedError as error:
            self._untold(task, "given back", error)
        self._forget(task)

    # Keeping jobs alive.

    async def _keep(self) -> None:
        """Say WORKING and give back held jobs, until the worker is over."""
        while not self._is_over:
            now = self._client.now()
            due = self._tasks.due(now)
            for what, task in due:
                work = self._give_back(task) if what is NextStep.NACK else self._say_working(task)
                await self._tell(task, work)
            if not due:
                at = self._tasks.next_at()
                await self._until_changed(None if at is None else max(0.0, at - now))

    async def _learn_retry(self, task: Task) -> None:
        if task.retry is None and not task.is_too_late:
            await self._say_working(task)

    async def _say_working(self, task: Task) -> None:
        try:
            retry = await self._say(commands.working(task.job))
        except TooLate:
            self._tasks.too_late(task)
        except DisquedError:
            self._tasks.not_kept(task, self._client.now())
        else:
            self._tasks.kept(task, retry, self._client.now())
        self._change()

    # The end.

    async def _put_away(self) -> None:
        """Wait for the handlers, then give back what they have not ended."""
        self._stop_asked = True
        end = self._client.now() + self._grace
        self._tell_until = end + self._client.patience
        self._tasks.stop(self._client.now())
        self._change()
        while self._tasks.any_running() and (left := end - self._client.now()) > 0:
            await self._until_changed(self._at_most(left))
            await self._stay_alive()
        for task in self._tasks.give_up(self._client.now()):
            if (running := self._running.get(task)) is not None:
                running.cancel()
        self._change()
        while len(self._tasks):
            await self._until_changed(None)
