"""A worker in a reactor: it fetches, runs a handler on each job, keeps the job alive meanwhile, and says how it ended.

    async def handler(job):
        await send_mail(job.body)

    worker = Worker(client, ["mail"], handler, concurrency=20)
    done = worker.run()             # a Deferred that fires when the worker has stopped
    reactor.addSystemEventTrigger("before", "shutdown", worker.stop)

Which job is told what and when is decided by `tasks.Tasks`.  Spans are seconds.
"""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeAlias, TypeVar

from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.client import commands
from disqued.client.commands import Command
from disqued.client.deferred.client import Client
from disqued.client.errors import AccessDenied, Closed, DisquedError, NotTrusted, TooLate
from disqued.client.job import Job
from disqued.client.seats import between_signs, new_seat, stand_up, stay_alive, taken_by
from disqued.client.tasks import (
    Backoff,
    Drop,
    Figures,
    GoOn,
    MoveTo,
    OnExhausted,
    Task,
    Tasks,
    What,
    check_grace,
    check_verdict,
    go_on,
    next_pause,
)
from disqued.client.values import Span, encode_queues, waiting_seconds

#: Does the work; a job is done when it returns, or what it returns has fired, without an error.
Handler: TypeAlias = Callable[[Job], object]

T = TypeVar("T")

#: Errors of a fetch after which the next one would fail in the same way.
_HOPELESS: Final = (AccessDenied, NotTrusted, Closed)

_log = Logger(namespace="disqued.client")


class Worker:
    """Works on the jobs of some queues, some at a time, until it is stopped."""

    def __init__(
        self,
        client: Client,
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
        """Take a client, which may be used otherwise, too.  Raises ValueError.

        `max_tries` is how often a job is tried before `on_exhausted` says what becomes of it: `Drop`, `MoveTo` or
        `GoOn`.  `grace` is how long handlers may go on when the worker is stopped.  `poll` is how long one fetch waits,
        and so how long stopping may take when nothing is to be done; when no node can be reached it takes `grace`
        and the patience of the client at most.

        A `live` worker keeps its jobs as long as it is alive, whatever their retry time is, and they are back at once
        when its process ends or its connection breaks, or when its node has heard nothing of it for `dead_after`.
        `name` is what people read on the page of workers.
        """
        self._client = client
        self._queues = encode_queues(queues)
        self._handler = handler
        self._on_exhausted = on_exhausted
        self._grace = check_grace(grace)
        self._poll = waiting_seconds(poll, "poll")
        self._rng = client.random
        self._seat = new_seat(self._rng, dead_after, name) if live else None
        self._tasks = Tasks(concurrency, backoff or Backoff(), self._rng, max_tries, keeps_alive=not live)
        self._running: dict[Task, Deferred[Any]] = {}
        self._timer: Any = None
        self._heard_at = 0.0  #: when the nodes heard last that it is alive
        #: Fires when something has changed that the worker may wait for.
        self._changed: Deferred[None] = Deferred()
        self._end: Deferred[None] | None = None
        self._tell_until: float | None = None  #: when it stops, whatever has not been said of its jobs
        self._waiters: list[Deferred[None]] = []

    @property
    def id(self) -> bytes:
        """What nodes call it, if it is a live one; else empty."""
        return self._seat.id if self._seat else b""

    @property
    def figures(self) -> Figures:
        """What it has done so far."""
        return self._tasks.figures

    @property
    def at_work(self) -> int:
        """How many jobs it has in its hands."""
        return len(self._tasks)

    @property
    def is_stopping(self) -> bool:
        """True from the moment that it was asked to stop: a handler that takes long may look at it."""
        return self._tasks.is_stopping

    def run(self) -> "Deferred[None]":
        """Work until `stop`; the Deferred fires when all is put away, or fails with AccessDenied, NotTrusted or Closed.

        To cancel it is to stop; it fails then and there, and what `stop` returns fires when all is put away.
        """
        if self._end is not None:
            raise RuntimeError("this worker has been started before: make another one")
        self._end = Deferred.fromCoroutine(self._work())
        ended: Deferred[None] = Deferred(self._cancelled)
        self._end.addBoth(self._ended, ended)
        return ended

    def stop(self) -> "Deferred[None]":
        """Stop: nothing new is fetched, handlers get their grace, what does not end is given back."""
        stopped: Deferred[None] = Deferred()
        if self._end is None or self._end.called:
            self._tasks.stop(self._client.now())
            stopped.callback(None)
            return stopped
        self._waiters.append(stopped)
        if not self._tasks.is_stopping:
            self._tasks.stop(self._client.now())
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

    # Fetching.

    async def _work(self) -> None:
        try:
            await self._fetch_all()
        finally:
            self._tasks.stop(self._client.now())
            self._tell_until = self._client.now() + self._grace + self._client.patience
            self._tick()
            await self._put_away()
            await self._stand_up()

    async def _fetch_all(self) -> None:
        failures = 0
        while not self._tasks.is_stopping:
            room = self._tasks.room()
            if not room:
                await self._until_changed(self._at_most())
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
                _log.warn("fetching from {queues} failed: {error}", queues=self._queues, error=error)
                await self._until_changed(self._at_most(next_pause(failures, self._rng)))
                continue
            for job in jobs:
                self._begin(job)

    def _fetch(self, room: int) -> "Deferred[list[Job]]":
        """Ask for jobs; every fetch of a worker goes through here."""
        fetch = commands.get(*self._queues, timeout=self._poll, count=room, counters=True)
        if self._seat is not None:
            self._heard_at = self._client.now()
            fetch = taken_by(self._seat, fetch)
        return self._client.run(fetch, wanted=self._is_wanted)

    def _is_wanted(self) -> bool:
        return not self.is_stopping

    # Being alive.

    def _at_most(self, seconds: float | None = None) -> float | None:
        """How long to wait for something, None = for ever: a live worker gives a sign of life now and then."""
        if self._seat is None:
            return seconds
        return between_signs(self._seat) if seconds is None else min(seconds, between_signs(self._seat))

    async def _stay_alive(self) -> None:
        """Give a sign of life, if it is time."""
        if self._seat is None or self._client.now() < self._heard_at + between_signs(self._seat):
            return
        self._heard_at = self._client.now()
        try:
            await self._client.run(stay_alive(self._seat), between_signs(self._seat))
        except DisquedError as error:
            _log.warn("the nodes could not be told that this worker is alive: {error}", error=error)

    async def _stand_up(self) -> None:
        """Be a worker no more; what came back by itself would come back so, too."""
        if self._seat is None:
            return
        try:
            await self._client.run(stand_up(self._seat), between_signs(self._seat))
        except DisquedError as error:
            _log.warn("no node could be told that this worker has ended: {error}", error=error)
        self._client.leave(self._seat)

    def _begin(self, job: Job) -> None:
        task = self._tasks.begin(job, self._client.now())
        if task is None:
            return
        if self._tasks.is_stopping:
            self._detach(task, self._came_late(task))
        else:
            self._detach(task, self._handle(task))
        self._arm()

    async def _came_late(self, task: Task) -> None:
        """A job that came while the worker stops is given back, or begun when nobody else would get it."""
        await self._learn_retry(task)
        if task.retry:
            self._tasks.give_back(task, self._client.now())
            self._arm()
        elif self._tasks.is_running(task):
            await self._handle(task)

    # One job.

    async def _handle(self, task: Task) -> None:
        running = self._running[task] = maybeDeferred(self._handler, task.job)
        try:
            await running
        except GeneratorExit:
            raise
        except BaseException as error:  # to leave the program is not for a handler to decide
            await self._failed(task, error)
        else:
            await self._done(task)
        finally:
            self._running.pop(task, None)

    async def _done(self, task: Task) -> None:
        if self._tasks.settle(task):
            await self._acknowledge(task)
            self._forget(task)

    async def _acknowledge(self, task: Task) -> None:
        try:
            await self._tell(commands.ack(task.job))
            self.figures.done += 1
        except DisquedError as error:
            self._untold(task, "acknowledged", error)

    async def _failed(self, task: Task, error: BaseException) -> None:
        if not self._tasks.is_running(task):
            return  # given back meanwhile
        self.figures.failed += 1
        _log.failure("job {id} failed, try {tries}", Failure(error), id=task.job.id.decode(), tries=task.job.tries)
        await self._learn_retry(task)
        if not self._tasks.is_running(task):
            return
        if task.is_once:
            self._leave(task)
        elif self._tasks.is_exhausted(task):
            await self._exhausted(task, error)
        else:
            self._hold(task)

    async def _exhausted(self, task: Task, error: BaseException) -> None:
        self._tasks.settle(task)
        self.figures.exhausted += 1
        try:
            verdict = check_verdict(await maybeDeferred(self._on_exhausted, task.job, error))
            if isinstance(verdict, MoveTo):
                await self._tell(commands.add(verdict.queue, task.job.body, ttl=verdict.ttl, retry_add=True))
        except Exception:
            _log.failure("on_exhausted failed for job {id}, which goes on", id=task.job.id.decode())
            verdict = GoOn()
        if isinstance(verdict, Drop | MoveTo):
            await self._acknowledge(task)
            self._forget(task)
        else:
            self._hold(task)

    def _hold(self, task: Task) -> None:
        self._tasks.hold(task, self._client.now())
        self._arm()
        self._change()

    def _leave(self, task: Task) -> None:
        _log.warn("at-most-once job {id} was not ended, and nobody gets it again", id=task.job.id.decode())
        self.figures.left += 1
        self._forget(task)

    def _forget(self, task: Task) -> None:
        self._tasks.forget(task)
        self._arm()
        self._change()

    def _tell(self, command: Command[T]) -> "Deferred[T]":
        """Say something of a job; once the worker stops all has to be said in the time for that."""
        left = None if self._tell_until is None else max(0.0, self._tell_until - self._client.now())
        return self._client.run(command, left)

    def _untold(self, task: Task, what: str, error: DisquedError) -> None:
        self.figures.untold += 1
        _log.warn(
            "job {id} could not be {what}, and comes back: {error}", id=task.job.id.decode(), what=what, error=error
        )

    async def _give_back(self, task: Task) -> None:
        """Return a job that is settled."""
        if task.retry is None:
            await self._learn_retry(task)
        if task.is_once:
            self._leave(task)
            return
        try:
            await self._tell(commands.nack(task.job))
            self.figures.returned += 1
        except DisquedError as error:
            self._untold(task, "given back", error)
        self._forget(task)

    # Keeping jobs alive.

    async def _learn_retry(self, task: Task) -> None:
        if task.retry is None and not task.is_too_late:
            await self._say_working(task)

    async def _say_working(self, task: Task) -> None:
        try:
            retry = await self._tell(commands.working(task.job))
        except TooLate:
            self._tasks.too_late(task)
        except DisquedError:
            self._tasks.not_kept(task, self._client.now())
        else:
            self._tasks.kept(task, retry, self._client.now())
        self._arm()

    def _tick(self) -> None:
        for what, task in self._tasks.due(self._client.now()):
            self._detach(task, self._give_back(task) if what is What.NACK else self._say_working(task))
        self._arm()

    def _arm(self) -> None:
        """Set the one timer to the moment when something is due."""
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        at = self._tasks.next_at()
        if at is not None:
            self._timer = self._client.reactor.callLater(max(0.0, at - self._client.now()), self._tick)

    # The end, and waiting.

    async def _put_away(self) -> None:
        """Wait for the handlers, then give back what they have not ended."""
        end = self._client.now() + self._grace
        while self._tasks.any_running() and self._client.now() < end:
            await self._until_changed(self._at_most(end - self._client.now()))
            await self._stay_alive()
        for task in self._tasks.give_up(self._client.now()):
            if (running := self._running.get(task)) is not None:
                running.cancel()
        self._tick()
        while len(self._tasks):
            await self._until_changed()

    async def _until_changed(self, limit: float | None = None) -> None:
        changed = self._changed
        if limit is None:
            await _either(changed)
            return
        timer = deferLater(self._client.reactor, limit, lambda: None)
        timer.addErrback(lambda failure: failure.trap(CancelledError))
        await _either(changed, timer)
        timer.cancel()

    def _change(self) -> None:
        changed, self._changed = self._changed, Deferred()
        changed.callback(None)

    def _detach(self, task: Task, work: Coroutine[Any, Any, None]) -> None:
        """Let a coroutine run by itself."""
        Deferred.fromCoroutine(work).addErrback(self._broke, task)

    def _broke(self, failure: Failure, task: Task) -> None:
        """An error of our own, which is a bug: the job comes back by its retry time."""
        _log.failure("in a worker, with job {id}", failure, id=task.job.id.decode())
        self._forget(task)


def _either(*parts: "Deferred[None]") -> "Deferred[None]":
    """Wait for the first of some Deferreds, and leave them be."""
    first: Deferred[None] = Deferred()

    def fired(result: None) -> None:
        if not first.called:
            first.callback(None)

    for part in parts:
        part.addCallback(fired)
    return first
