"""The jobs that a worker holds, and when to send what about each.

    begin --> running --done-----------------------------------------------> ack, forget
                |  `--failed--> held for a growing pause --> nack, forget
                |          `--> exhausted: acked, moved or held on
                |          `--> at most once: left
                +-- WORKING after 0.5 s, then three times in each retry time
    stop --> no new jobs; held jobs are given back at once; running ones may end
         --> give_up: running jobs are given back

A worker keeps a job alive from its arrival until it is acknowledged or given back, also while it is held.  A live
worker (`seats`) need not: its node keeps its jobs as long as it lives.  A worker learns the retry time of a job from
the reply to WORKING; the shortest is one second.

Nothing here waits or sends: a worker does what `due` says and reports the outcome.  Times are seconds.
"""

import inspect
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Final, TypeAlias

import attrs

from disqued.client.job import Job
from disqued.client.values import Span, encode_data, to_seconds, waiting_seconds, whole_number

FIRST_WORKING_S: Final = 0.5  #: half of the shortest retry time; a job that ends sooner costs no message
KEEPS_PER_RETRY: Final = 3
#: Pause after a WORKING that failed, while the retry time is unknown.
AGAIN_S: Final = 0.3
HELD_MOST: Final = 1_000
AT_MOST_ONCE: Final = 0.0


_ASYNC: Final = "the worker of disqued.client.aio"


class Phase(Enum):
    """The state of a job in a worker."""

    RUNNING = "the handler works on it"
    TELLING = "it is being acknowledged"
    HELD = "it failed, and is given back later"
    RETURNING = "it is being given back"


class NextStep(Enum):
    """What to send about a job now."""

    WORKING = "working"
    NACK = "nack"


@attrs.frozen
class Drop:
    """Acknowledge a job that failed too often."""


@attrs.frozen
class GoOn:
    """Retry a job that failed too often all the same."""


@attrs.frozen
class MoveTo:
    """Add a job that failed too often to another queue, with new counters, and acknowledge it."""

    queue: bytes | str = attrs.field()
    #: Time to live of the new job; None = the default of the server.
    ttl: Span | None = None

    @queue.validator
    def _is_a_name(self, attribute: object, value: bytes | str) -> None:
        encode_data(value, "queue")


Verdict: TypeAlias = Drop | GoOn | MoveTo
#: Decides about a job that failed too often, from the job and its last error.
OnExhausted: TypeAlias = Callable[[Job, BaseException], Verdict]


def _waiting(span: Span) -> float:
    return waiting_seconds(span, "a pause")


@attrs.frozen
class Backoff:
    """How long a failed job is held before it is given back: exponential, with jitter."""

    first: float = attrs.field(default=1.0, converter=_waiting)
    most: float = attrs.field(default=60.0, converter=_waiting)

    def __attrs_post_init__(self) -> None:
        """Raises ValueError."""
        if self.first > self.most:
            raise ValueError(f"the first pause is {self.first:g} seconds; at most `most` is allowed: {self.most:g}")

    def pause(self, tries: int, rng: Random) -> float:
        """Return the pause after so many tries."""
        return min(self.first * 2.0 ** min(tries - 1, 30), self.most) * rng.uniform(0.75, 1.25)


@attrs.define(eq=False)
class Task:
    """A job that a worker holds."""

    job: Job
    phase: Phase
    #: When to send WORKING; None = never, or it is under way.
    working_at: float | None
    #: Its retry time, 0 = at most once; None = unknown yet.
    retry: float | None = None
    #: When to give it back, while it is held.
    nack_at: float | None = None
    #: Its next delivery can no longer be postponed.
    is_too_late: bool = False

    @property
    def is_once(self) -> bool:
        """True when it is never delivered again."""
        return self.retry == AT_MOST_ONCE


@attrs.define
class Figures:
    """Counts of a worker's jobs."""

    taken: int = 0
    done: int = 0
    failed: int = 0  #: by an error of the handler
    returned: int = 0  #: given back
    left: int = 0  #: at-most-once jobs that failed or never began
    exhausted: int = 0
    too_late: int = 0  #: whose next delivery could no longer be postponed
    untold: int = 0  #: whose outcome reached no node; they return by their retry time


class Tasks:
    """All jobs of one worker."""

    def __init__(
        self, concurrency: int, backoff: Backoff, rng: Random, max_tries: int | None = None,
        held_most: int = HELD_MOST, *, keeps_alive: bool = True,
    ) -> None:  # fmt: skip
        """Take at most `concurrency` jobs at a time; `max_tries` None = never exhausted.  Raises ValueError.

        Without `keeps_alive` the node keeps the jobs alive.
        """
        for name, value in (("concurrency", concurrency), ("max_tries", max_tries), ("held_most", held_most)):
            if value is not None:
                whole_number(value, name)
        self._concurrency = concurrency
        self._backoff = backoff
        self._rng = rng
        self._max_tries = max_tries
        self._held_most = held_most
        self._keeps_alive = keeps_alive
        self._tasks: dict[bytes, Task] = {}
        self.is_stopping: bool = False
        self.figures = Figures()

    def __len__(self) -> int:
        return len(self._tasks)

    def room(self) -> int:
        """Return how many jobs to fetch now."""
        if self.is_stopping:
            return 0
        busy = sum(task.phase in (Phase.RUNNING, Phase.TELLING) for task in self._tasks.values())
        return self._concurrency - busy if len(self._tasks) - busy < self._held_most else 0

    def begin(self, job: Job, now: float) -> Task | None:
        """Take a fetched job; returns None when the worker already holds it.

        A job that is being given back may arrive again before the node confirms that it took it back.
        """
        known = self._tasks.get(job.id)
        if known is not None and known.phase is not Phase.RETURNING:
            return None
        self.figures.taken += 1
        task = self._tasks[job.id] = Task(job, Phase.RUNNING, now + FIRST_WORKING_S if self._keeps_alive else None)
        return task

    # Time.

    def due(self, now: float) -> list[tuple[NextStep, Task]]:
        """Return what to send now about which jobs; each is returned once."""
        found: list[tuple[NextStep, Task]] = []
        for task in self._tasks.values():
            if task.nack_at is not None and task.nack_at <= now:
                task.nack_at = task.working_at = None
                task.phase = Phase.RETURNING
                found.append((NextStep.NACK, task))
            elif task.working_at is not None and task.working_at <= now:
                task.working_at = None
                found.append((NextStep.WORKING, task))
        return found

    def next_at(self) -> float | None:
        """Return when the next step is due; None when there is none."""
        instants = (at for task in self._tasks.values() for at in (task.nack_at, task.working_at) if at is not None)
        return min(instants, default=None)

    def kept(self, task: Task, retry: float, now: float) -> None:
        """Take the reply to WORKING: the retry time of the job, which starts now."""
        task.retry = float(retry)
        task.working_at = None if task.is_once or not self._keeps_alive else now + task.retry / KEEPS_PER_RETRY

    def not_kept(self, task: Task, now: float) -> None:
        """Note that WORKING failed, or that the node did not know the job."""
        if not task.is_once and self._keeps_alive:
            task.working_at = now + max(AGAIN_S, (task.retry or 0.0) / KEEPS_PER_RETRY / 2)

    def too_late(self, task: Task) -> None:
        """Note that the next delivery can no longer be postponed; this one still counts."""
        task.working_at = None
        self.figures.too_late += not task.is_too_late
        task.is_too_late = True

    # Outcomes.

    def is_running(self, task: Task) -> bool:
        """Return whether the handler works on a job that was not given up."""
        return self._tasks.get(task.job.id) is task and task.phase is Phase.RUNNING

    def any_running(self) -> bool:
        """Return whether any handler is at work."""
        return any(task.phase is Phase.RUNNING for task in self._tasks.values())

    def settle(self, task: Task) -> bool:
        """Begin to report the end of a job; returns False if it was given up meanwhile."""
        if not self.is_running(task):
            return False
        task.phase = Phase.TELLING
        return True

    def is_exhausted(self, task: Task) -> bool:
        """Return whether a failed job has used up its tries."""
        return self._max_tries is not None and task.job.tries >= self._max_tries

    def hold(self, task: Task, now: float) -> None:
        """Keep a failed job for a while before it is given back."""
        task.phase = Phase.HELD
        task.nack_at = now if self.is_stopping else now + self._backoff.pause(task.job.tries, self._rng)

    def forget(self, task: Task) -> None:
        """Drop a job."""
        if self._tasks.get(task.job.id) is task:
            del self._tasks[task.job.id]

    # The end.

    def stop(self, now: float) -> None:
        """Take no new jobs, and give back held ones at once."""
        self.is_stopping = True
        for task in self._tasks.values():
            if task.phase is Phase.HELD:
                task.nack_at = now

    def give_up(self, now: float) -> list[Task]:
        """Give back running jobs at once and return them; the outcomes of their handlers no longer count."""
        running = [task for task in self._tasks.values() if task.phase is Phase.RUNNING]
        for task in running:
            self.give_back(task, now)
        return running

    def give_back(self, task: Task, now: float) -> None:
        """Have a running job given back: `due` returns it next, after a WORKING under way."""
        if self.is_running(task):
            task.phase = Phase.HELD
            task.nack_at = now


def check_grace(grace: Span) -> float:
    """Check how long handlers may go on when a worker stops, in seconds.  Raises ValueError."""
    seconds = to_seconds(grace, "grace")
    if seconds < 0:
        raise ValueError(f"grace is {seconds:g} seconds; 0 or more are allowed")
    return seconds


def check_calls(*, awaits: bool, **calls: object) -> None:
    """Check the functions that a worker calls, by their names.  Raises TypeError.

    `awaits`: coroutine functions are allowed.
    """
    for name, call in calls.items():
        if not callable(call):
            raise TypeError(f"{name} is {call!r}; a function of a job is allowed")
        if not awaits and inspect.iscoroutinefunction(call):
            raise TypeError(f"{name} is a coroutine function, which threads cannot run; {_ASYNC} can")


def check_ran(ending: object, *, awaits: bool) -> None:
    """Check the return value of a handler.  Raises TypeError when the handler has not run.

    `awaits`: the caller awaits an awaitable result.
    """
    if inspect.isgenerator(ending) or inspect.isasyncgen(ending):
        raise TypeError("the handler is a generator, and none of it has run; a function without yield is allowed")
    if not awaits and inspect.isawaitable(ending):
        if inspect.iscoroutine(ending):
            ending.close()
        raise TypeError(f"the handler returned a {type(ending).__name__}, which nobody awaits here; {_ASYNC} does")


def check_verdict(verdict: object) -> Verdict:
    """Check the return value of `on_exhausted`.  Raises TypeError when it is no verdict."""
    if not isinstance(verdict, Drop | MoveTo | GoOn):
        raise TypeError(f"on_exhausted returned {verdict!r}; Drop(), MoveTo(queue) and GoOn() are allowed")
    return verdict


def go_on(job: Job, error: BaseException) -> Verdict:
    """Retry each exhausted job: the default `on_exhausted`."""
    return GoOn()


def move_to(queue: bytes | str, ttl: Span | None = None) -> OnExhausted:
    """Return an `on_exhausted` that moves each job to a dead letter queue."""
    verdict = MoveTo(queue, ttl)
    return lambda job, error: verdict


#: Pauses after failed fetches.
_FETCHING_FAILED: Final = Backoff(0.5, 15.0)


def next_pause(failures: int, rng: Random) -> float:
    """Return the pause before the next fetch, after so many failures in a row."""
    return _FETCHING_FAILED.pause(failures, rng)
