"""What a worker tells the nodes about its jobs: WORKING, ACKJOB and NACK.

When no node can be reached, the job returns to its queue by its retry time (`Figures.untold`).  Durations are seconds.
"""

import contextlib
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from . import commands
from .commands import Command
from .errors import DisquedError, JobCancelled, ServerError, TooLate
from .tasks import MoveTo, Task, Tasks

T = TypeVar("T")

_UNKNOWN: Final = "unknown"  #: CANCEL: no node that answered knows the job
_CANCELLING: Final = "cancelling"  #: CANCEL: a consumer has the job


class SendCommand(Protocol):
    """Sends a command, as `run` of a client."""

    async def __call__(self, command: Command[T], patience: float | None = None) -> T:
        """Send it and return its result."""


class JobReporter:
    """Tells the nodes what becomes of the jobs of one worker."""

    def __init__(
        self, tasks: Tasks, send: SendCommand, *, now: Callable[[], float], on_change: Callable[[], None],
        on_cancel: Callable[[Task], None], warn: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`on_change` is called after each change of the tasks; `warn` logs a line.

        `on_cancel` is called with a job that somebody cancelled, unless its handler learns that from `progress`.
        """
        self._tasks = tasks
        self._send = send
        self._now = now
        self._on_change = on_change
        self._on_cancel = on_cancel
        self._warn = warn
        self._give_up_at: float | None = None  #: None while the worker runs

    def give_up_at(self, at: float) -> None:
        """Try no longer than this to reach a node: the worker stops."""
        self._give_up_at = at

    async def _say(self, command: Command[T]) -> T:
        left = None if self._give_up_at is None else max(0.0, self._give_up_at - self._now())
        return await self._send(command, left)

    async def keep(self, task: Task) -> None:
        """Postpone the next delivery of a job."""
        try:
            await self._work_on(task, commands.working(task.job))
        except JobCancelled:
            self._on_cancel(task)
        except DisquedError:
            self._tasks.not_kept(task, self._now())
        self._on_change()

    async def look(self, tasks: list[Task]) -> None:
        """Ask which jobs of a live worker were cancelled."""
        cancelled: set[bytes] = set()
        with contextlib.suppress(DisquedError):  # the next look may succeed
            for at in range(0, len(tasks), commands.WAITED_MAX):
                some = tasks[at : at + commands.WAITED_MAX]
                found = await self._say(commands.standings(task.job for task in some))
                cancelled.update(outcome.id for outcome in found if outcome.is_cancelled)
        for task in tasks:
            if task.job.id in cancelled and self._tasks.is_running(task):
                self._tasks.cancelled(task)
                self._on_cancel(task)
            else:
                self._tasks.looked(task, self._now())
        self._on_change()

    async def progress(self, task: Task, value: bytes | str) -> None:
        """Tell how far a job is.  Raises JobCancelled and ValueError."""
        try:
            await self._work_on(task, commands.working(task.job, value))
        except JobCancelled:
            raise
        except DisquedError as error:
            self._warn(f"the progress of job {task.job.id.decode()} reached no node: {error}")
        self._on_change()

    async def _work_on(self, task: Task, working: Command[int | float]) -> None:
        """Send WORKING.  Raises JobCancelled, and DisquedError when no node took it."""
        try:
            retry = await self._say(working)
        except TooLate:
            self._tasks.too_late(task)
        except JobCancelled:
            self._tasks.cancelled(task)
            raise
        else:
            self._tasks.kept(task, retry, self._now())

    async def learn_retry(self, task: Task) -> None:
        """Find out the retry time of a job, unless it is known or the next delivery cannot be postponed."""
        if task.retry is None and not task.is_too_late and not task.cancelled.is_set:
            await self.keep(task)

    async def learn_terms(self, task: Task) -> None:
        """Find out what the terms of a job say about failed tries, and its retry time."""
        if not task.cancelled.is_set:
            await self._look(task)
            await self.learn_retry(task)

    async def _look(self, task: Task) -> None:
        """Note what its node knows of a job; nothing if it does not know the job, or refuses to say."""
        try:
            facts = await self._say(commands.show(task.job))
        except DisquedError:
            return
        if facts is None or facts.get("queue") is None:
            return
        task.facts = facts
        if isinstance(retry := facts.get("retry"), int | float):
            task.retry = float(retry)
        match facts.get("backoff"):
            case [int() | float() as first, *_]:
                task.has_backoff = first > 0
        task.keeps_result = bool(facts.get("keep-result"))

    async def acknowledge(self, task: Task, value: object = None) -> Exception | None:
        """Acknowledge a job, with a result if there is one, and forget it.

        A job that keeps its result is not acknowledged when the value cannot be one; returns why.
        """
        try:
            if value is not None and not isinstance(value, bytes | str):
                raise TypeError(f"the handler returned {value!r:.100}; bytes, text and None are results")  # noqa: TRY301
            command = commands.ack(task.job, result=value)
        except (TypeError, ValueError) as error:  # ValueError: text that is no UTF-8
            return await self._without_result(task, error)
        try:
            await self._say(command)
            self._tasks.figures.done += 1
        except DisquedError as error:
            if value is not None and type(error) is ServerError:  # too long, for one
                return await self._without_result(task, error)
            self._untold(task, "acknowledged", error)
        self.forget(task)
        return None

    async def _without_result(self, task: Task, error: Exception) -> Exception | None:
        await self._look(task)
        return error if task.keeps_result else await self.acknowledge(task)

    async def give_back(self, task: Task) -> None:
        """Return a job to its queue and forget it."""
        how = task.give_back
        if not how.is_dead:
            await self.learn_retry(task)
            if task.is_once:
                self.leave(task)
                return
        if how.is_untried:
            nack = commands.nack(task.job, untried=True)
        else:
            nack = commands.nack(task.job, delay=how.delay, reason=how.reason, dead=how.is_dead)
        try:
            await self._say(nack)
            self._tasks.figures.returned += 1
        except DisquedError as error:
            self._untold(task, "given back", error)
        self.forget(task)

    async def copy(self, task: Task, target: MoveTo) -> None:
        """Add a job to another queue, with its headers and the terms that are known of it.  Raises DisquedError."""
        await self._say(commands.copy(task.job, target.queue, target.ttl, task.facts))

    async def drop(self, task: Task) -> None:
        """End a job that nobody has done, and forget it: clients that wait for it receive `cancelled`.

        It is acknowledged where the user, or an older node, refuses to cancel it.
        """
        try:
            [word] = await self._say(commands.cancel(task.job))
        except ServerError:
            word = _UNKNOWN
        except DisquedError as error:
            self._untold(task, "cancelled", error)
            self.forget(task)
            return
        if word == _UNKNOWN:  # an acknowledgement is remembered for holders that are away
            await self.acknowledge(task)
            return
        if word == _CANCELLING:
            with contextlib.suppress(DisquedError):  # it ends by its retry time
                await self._say(commands.nack(task.job, untried=True))
        self._tasks.figures.done += 1
        self.forget(task)

    def leave(self, task: Task) -> None:
        """Forget an at-most-once job that was not ended."""
        self._warn(f"at-most-once job {task.job.id.decode()} was not ended, and nobody gets it again")
        self._tasks.figures.left += 1
        self.forget(task)

    def forget(self, task: Task) -> None:
        """Drop a job."""
        self._tasks.forget(task)
        self._on_change()

    def _untold(self, task: Task, what: str, error: DisquedError) -> None:
        self._tasks.figures.untold += 1
        self._warn(f"job {task.job.id.decode()} could not be {what}, and comes back: {error}")
