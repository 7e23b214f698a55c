"""What a worker tells the nodes about its jobs: WORKING, ACKJOB and NACK.

When no node can be reached, the job returns to its queue by its retry time (`Figures.untold`).  Durations are seconds.
"""

from collections.abc import Callable
from typing import Protocol, TypeVar

from disqued.client import commands
from disqued.client.commands import Command
from disqued.client.errors import DisquedError, TooLate
from disqued.client.tasks import MoveTo, Task, Tasks

T = TypeVar("T")


class SendCommand(Protocol):
    """Sends a command, as `run` of a client."""

    async def __call__(self, command: Command[T], patience: float | None = None) -> T:
        """Send it and return its result."""


class JobReporter:
    """Tells the nodes what becomes of the jobs of one worker."""

    def __init__(
        self, tasks: Tasks, send: SendCommand, *, now: Callable[[], float], on_change: Callable[[], None],
        warn: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`on_change` is called after each change of the tasks; `warn` logs a line."""
        self._tasks = tasks
        self._send = send
        self._now = now
        self._on_change = on_change
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
            retry = await self._say(commands.working(task.job))
        except TooLate:
            self._tasks.too_late(task)
        except DisquedError:
            self._tasks.not_kept(task, self._now())
        else:
            self._tasks.kept(task, retry, self._now())
        self._on_change()

    async def learn_retry(self, task: Task) -> None:
        """Find out the retry time of a job, unless it is known or the next delivery cannot be postponed."""
        if task.retry is None and not task.is_too_late:
            await self.keep(task)

    async def acknowledge(self, task: Task) -> None:
        """Acknowledge a job and forget it."""
        try:
            await self._say(commands.ack(task.job))
            self._tasks.figures.done += 1
        except DisquedError as error:
            self._untold(task, "acknowledged", error)
        self.forget(task)

    async def give_back(self, task: Task) -> None:
        """Return a job to its queue and forget it."""
        await self.learn_retry(task)
        if task.is_once:
            self.leave(task)
            return
        try:
            await self._say(commands.nack(task.job))
            self._tasks.figures.returned += 1
        except DisquedError as error:
            self._untold(task, "given back", error)
        self.forget(task)

    async def copy(self, task: Task, target: MoveTo) -> None:
        """Add the body of a job to another queue.  Raises DisquedError."""
        await self._say(commands.add(target.queue, task.job.body, ttl=target.ttl, retry_add=True))

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
