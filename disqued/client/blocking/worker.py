"""A worker with threads: it fetches, hands jobs to its handlers, keeps them alive meanwhile, and says how they ended.

    run, in the caller's thread   fetches as many jobs as there is room for
                                  and says that the worker is alive, if it is a live one
    handler threads               work, and then acknowledge, hold or move the job
    one more                      says WORKING, and gives back what was held

    worker = Worker(client, ["mail"], send_mail, concurrency=4)
    signal.signal(signal.SIGTERM, lambda *_: worker.stop())
    worker.run()

Which job is told what and when is decided by `tasks.Tasks`.  Spans are seconds.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from typing import Final, TypeAlias, TypeVar

from disqued.client import commands
from disqued.client.blocking.client import Client
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

#: Does the work; a job is done when it returns without an error.
Handler: TypeAlias = Callable[[Job], object]

T = TypeVar("T")

#: Errors of a fetch after which the next one would fail in the same way.
_HOPELESS: Final = (AccessDenied, NotTrusted, Closed)

_log = logging.getLogger("disqued.client")


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
        self._concurrency = concurrency
        self._tasks = Tasks(concurrency, backoff or Backoff(), self._rng, max_tries, keeps_alive=not live)
        #: Guards `_tasks`; told when something changes that a thread may wait for.
        self._changed = threading.Condition()
        self._todo: SimpleQueue[Task | None] = SimpleQueue()
        self._heard_at = 0.0  #: when the nodes heard last that it is alive
        self._tell_until: float | None = None  #: when it stops, whatever has not been said of its jobs
        self._stop_asked = False
        self._is_over = False
        self._was_started = False

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
        return self._stop_asked

    def stop(self) -> None:
        """Ask it to stop, from any thread or a signal handler; `run` returns when all is put away."""
        self._stop_asked = True

    def run(self) -> None:
        """Work until `stop`.  Raises AccessDenied, NotTrusted or Closed, after all is put away."""
        if self._was_started:
            raise RuntimeError("this worker has been started before: make another one")
        self._was_started = True
        keeper = threading.Thread(target=self._keep, name="disqued-keeper", daemon=True)
        threads = [
            threading.Thread(target=self._handle_all, name=f"disqued-handler-{n}", daemon=True)
            for n in range(self._concurrency)
        ]
        for thread in (keeper, *threads):
            thread.start()
        try:
            self._fetch_all()
        finally:
            self._put_away()
            self._stand_up()
            self._is_over = True
            for _ in threads:
                self._todo.put(None)
            self._change()
            keeper.join()

    # Fetching.

    def _fetch_all(self) -> None:
        failures = 0
        while not self._stop_asked:
            with self._changed:
                room = self._tasks.room()
                if not room:
                    self._changed.wait(self._at_most(self._poll))
            if not room:
                self._stay_alive()
                continue
            try:
                jobs = self._fetch(room)
                failures = 0
            except DisquedError as error:
                if self.is_stopping:
                    return
                if isinstance(error, _HOPELESS):
                    raise
                failures += 1
                _log.warning("fetching from %s failed: %s", self._queues, error)
                self._rest(self._at_most(next_pause(failures, self._rng)))
                continue
            for job in jobs:
                self._begin(job)

    def _fetch(self, room: int) -> list[Job]:
        """Ask for jobs; every fetch of a worker goes through here."""
        fetch = commands.get(*self._queues, timeout=self._poll, count=room, counters=True)
        if self._seat is not None:
            self._heard_at = self._client.now()
            fetch = taken_by(self._seat, fetch)
        return self._client.run(fetch, wanted=self._is_wanted)

    def _is_wanted(self) -> bool:
        return not self.is_stopping

    # Being alive.

    def _at_most(self, seconds: float) -> float:
        """How long to wait for something: a live worker gives a sign of life now and then."""
        return seconds if self._seat is None else min(seconds, between_signs(self._seat))

    def _stay_alive(self) -> None:
        """Give a sign of life, if it is time."""
        if self._seat is None or self._client.now() < self._heard_at + between_signs(self._seat):
            return
        self._heard_at = self._client.now()
        try:
            self._client.run(stay_alive(self._seat), between_signs(self._seat))
        except DisquedError as error:
            _log.warning("the nodes could not be told that this worker is alive: %s", error)

    def _stand_up(self) -> None:
        """Be a worker no more; what came back by itself would come back so, too."""
        if self._seat is None:
            return
        try:
            self._client.run(stand_up(self._seat), between_signs(self._seat))
        except DisquedError as error:
            _log.warning("no node could be told that this worker has ended: %s", error)
        self._client.leave(self._seat)

    def _rest(self, seconds: float) -> None:
        end = self._client.now() + seconds
        with self._changed:
            while not self._stop_asked and (left := end - self._client.now()) > 0:
                self._changed.wait(min(left, self._poll))

    def _begin(self, job: Job) -> None:
        with self._changed:
            task = self._tasks.begin(job, self._client.now())
            self._changed.notify_all()
        if task is None:
            return
        if self._stop_asked:
            self._came_late(task)
        else:
            self._todo.put(task)

    def _came_late(self, task: Task) -> None:
        """A job that came while the worker stops is given back, or begun when nobody else would get it."""
        self._learn_retry(task)
        if not task.retry:
            self._todo.put(task)
            return
        with self._changed:
            self._tasks.give_back(task, self._client.now())
            self._changed.notify_all()

    # One job, in a thread of its own.

    def _handle_all(self) -> None:
        while (task := self._todo.get()) is not None:
            try:
                self._handle(task)
            except Exception:
                self._broke(task)

    def _handle(self, task: Task) -> None:
        if not self._tasks.is_running(task):
            return  # given back before it was begun
        try:
            self._handler(task.job)
        except BaseException as error:  # to leave the program is not for a handler to decide
            self._failed(task, error)
        else:
            if self._settle(task):
                self._acknowledge(task)
                self._forget(task)

    def _settle(self, task: Task) -> bool:
        with self._changed:
            return self._tasks.settle(task)

    def _acknowledge(self, task: Task) -> None:
        try:
            self._tell(commands.ack(task.job))
        except DisquedError as error:
            self._untold(task, "acknowledged", error)
        else:
            with self._changed:
                self.figures.done += 1

    def _failed(self, task: Task, error: BaseException) -> None:
        with self._changed:
            if not self._tasks.is_running(task):
                return  # given back meanwhile
            self.figures.failed += 1
        _log.warning("job %s failed, try %d", task.job.id.decode(), task.job.tries, exc_info=error)
        self._learn_retry(task)
        with self._changed:
            if not self._tasks.is_running(task):
                return
            is_exhausted = self._tasks.is_exhausted(task) and not task.is_once
            if is_exhausted:
                self._tasks.settle(task)
                self.figures.exhausted += 1
        if task.is_once:
            self._leave(task)
        elif is_exhausted:
            self._exhausted(task, error)
        else:
            self._hold(task)

    def _exhausted(self, task: Task, error: BaseException) -> None:
        try:
            verdict = check_verdict(self._on_exhausted(task.job, error))
            if isinstance(verdict, MoveTo):
                self._tell(commands.add(verdict.queue, task.job.body, ttl=verdict.ttl, retry_add=True))
        except Exception:
            _log.exception("on_exhausted failed for job %s, which goes on", task.job.id.decode())
            verdict = GoOn()
        if isinstance(verdict, Drop | MoveTo):
            self._acknowledge(task)
            self._forget(task)
        else:
            self._hold(task)

    def _hold(self, task: Task) -> None:
        with self._changed:
            self._tasks.hold(task, self._client.now())
            self._changed.notify_all()

    def _leave(self, task: Task) -> None:
        _log.warning("at-most-once job %s was not ended, and nobody gets it again", task.job.id.decode())
        with self._changed:
            self.figures.left += 1
        self._forget(task)

    def _forget(self, task: Task) -> None:
        with self._changed:
            self._tasks.forget(task)
            self._changed.notify_all()

    def _broke(self, task: Task) -> None:
        """An error of our own, which is a bug: the job comes back by its retry time."""
        _log.exception("in a worker, with job %s", task.job.id.decode())
        self._forget(task)

    def _tell(self, command: Command[T]) -> T:
        """Say something of a job; once the worker stops all has to be said in the time for that."""
        left = None if self._tell_until is None else max(0.0, self._tell_until - self._client.now())
        return self._client.run(command, left)

    def _untold(self, task: Task, what: str, error: DisquedError) -> None:
        with self._changed:
            self.figures.untold += 1
        _log.warning("job %s could not be %s, and comes back: %s", task.job.id.decode(), what, error)

    def _give_back(self, task: Task) -> None:
        """Return a job that is settled."""
        self._learn_retry(task)
        if task.is_once:
            self._leave(task)
            return
        try:
            self._tell(commands.nack(task.job))
        except DisquedError as error:
            self._untold(task, "given back", error)
        else:
            with self._changed:
                self.figures.returned += 1
        self._forget(task)

    # Keeping jobs alive.

    def _keep(self) -> None:
        while not self._is_over:
            with self._changed:
                now = self._client.now()
                due = self._tasks.due(now)
                if not due:
                    at = self._tasks.next_at()
                    self._changed.wait(None if at is None else max(0.0, at - now))
            for what, task in due:
                try:
                    self._give_back(task) if what is What.NACK else self._say_working(task)
                except Exception:
                    self._broke(task)

    def _learn_retry(self, task: Task) -> None:
        if task.retry is None and not task.is_too_late:
            self._say_working(task)

    def _say_working(self, task: Task) -> None:
        error: DisquedError | None = None
        retry = 0
        try:
            retry = self._tell(commands.working(task.job))
        except DisquedError as caught:
            error = caught
        with self._changed:
            if error is None:
                self._tasks.kept(task, retry, self._client.now())
            elif isinstance(error, TooLate):
                self._tasks.too_late(task)
            else:
                self._tasks.not_kept(task, self._client.now())
            self._changed.notify_all()

    # The end.

    def _put_away(self) -> None:
        """Wait for the handlers, then give back what they have not ended."""
        self._stop_asked = True
        end = self._client.now() + self._grace
        self._tell_until = end + self._client.patience
        with self._changed:
            self._tasks.stop(self._client.now())
            self._changed.notify_all()
        while self._still_runs(end):
            self._stay_alive()
        with self._changed:
            self._tasks.give_up(self._client.now())
            self._changed.notify_all()
            self._changed.wait_for(lambda: not len(self._tasks))

    def _still_runs(self, end: float) -> bool:
        """Wait for the handlers, a while; say whether some are at work and may go on."""
        with self._changed:
            left = end - self._client.now()
            if self._tasks.any_running() and left > 0:
                self._changed.wait(self._at_most(left))
            return self._tasks.any_running() and self._client.now() < end

    def _change(self) -> None:
        with self._changed:
            self._changed.notify_all()
