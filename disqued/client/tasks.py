"""The jobs that a worker has in its hands, and what to say of each when.

    begin --> running --done-----------------------------------------------> ack, forget
                |  `--failed--> held for a pause that grows --> nack, forget
                |          `--> exhausted: acked, moved or held on
                |          `--> at most once: left
                +-- WORKING after 0.5 s, then three times in each retry time
    stop --> nothing new; what is held is given back at once; what runs may end
         --> give_up: what still runs is given back

A job is kept alive from the moment that it is there until it is acknowledged or given back, while it is held, too.
A live worker (`seats`) need not say so: its node keeps what it has, as long as it lives.  How long its retry time is a
worker learns from the answer to WORKING; the shortest is one second.

Nothing here waits or sends: a worker does what `due` says, and tells what came of it.  Times are seconds.
"""

import inspect
from collections.abc import Callable
from enum import Enum
from random import Random
from typing import Final, TypeAlias

import attrs

from disqued.client.job import Job
from disqued.client.values import Span, encode_data, to_seconds, waiting_seconds, whole_number

FIRST_WORKING_S: Final = 0.5  #: half of the shortest retry time; a job that is done sooner costs no message
KEEPS_PER_RETRY: Final = 3
#: After a WORKING that failed, when the retry time is not known yet.
AGAIN_S: Final = 0.3
HELD_MOST: Final = 1_000
AT_MOST_ONCE: Final = 0.0


_ASYNC: Final = "the worker of disqued.client.aio"


class Phase(Enum):
    """Where a job is."""

    RUNNING = "the handler works on it"
    TELLING = "it is being acknowledged"
    HELD = "it failed, and is given back later"
    RETURNING = "it is being given back"


class NextStep(Enum):
    """What to say of a job now."""

    WORKING = "working"
    NACK = "nack"


@attrs.frozen
class Drop:
    """A job that failed too often is acknowledged, and so forgotten."""


@attrs.frozen
class GoOn:
    """A job that failed too often is tried again all the same."""


@attrs.frozen
class MoveTo:
    """A job that failed too often is added to another queue, and then acknowledged; there its counters begin anew."""

    queue: bytes | str = attrs.field()
    #: Life of the new job; None = the default of the server.
    ttl: Span | None = None

    @queue.validator
    def _is_a_name(self, attribute: object, value: bytes | str) -> None:
        encode_data(value, "queue")


Verdict: TypeAlias = Drop | GoOn | MoveTo
#: Says what becomes of a job that has failed too often; told the job and its last error.
OnExhausted: TypeAlias = Callable[[Job, BaseException], Verdict]


def _waiting(span: Span) -> float:
    return waiting_seconds(span, "a pause")


@attrs.frozen
class Backoff:
    """How long a job that failed is held before it is given back: doubled with each try, and spread."""

    first: float = attrs.field(default=1.0, converter=_waiting)
    most: float = attrs.field(default=60.0, converter=_waiting)

    def __attrs_post_init__(self) -> None:
        """Raises ValueError."""
        if self.first > self.most:
            raise ValueError(f"the first pause is {self.first:g} seconds; at most `most` is allowed: {self.most:g}")

    def pause(self, tries: int, rng: Random) -> float:
        """Say how long, after so many tries."""
        return min(self.first * 2.0 ** min(tries - 1, 30), self.most) * rng.uniform(0.75, 1.25)


@attrs.define(eq=False)
class Task:
    """A job in a worker's hands."""

    job: Job
    phase: Phase
    #: When to send WORKING; None = not, or it is under way.
    working_at: float | None
    #: Its retry time, 0 = at most once; None = not known yet.
    retry: float | None = None
    #: When to give it back, while it is held.
    nack_at: float | None = None
    #: Its next delivery cannot be put off any more.
    is_too_late: bool = False

    @property
    def is_once(self) -> bool:
        """True when nobody will get it again, whatever is said."""
        return self.retry == AT_MOST_ONCE


@attrs.define
class Figures:
    """What a worker has done so far, in jobs."""

    taken: int = 0
    done: int = 0
    failed: int = 0  #: by an error of the handler
    returned: int = 0  #: given back
    left: int = 0  #: at most once, and failed or never begun
    exhausted: int = 0
    too_late: int = 0  #: whose delivery to another worker could not be put off any more
    untold: int = 0  #: of which no node could be told what came of them; they come back by their retry time


class Tasks:
    """All jobs of one worker."""

    def __init__(
        self, concurrency: int, backoff: Backoff, rng: Random, max_tries: int | None = None,
        held_most: int = HELD_MOST, *, keeps_alive: bool = True,
    ) -> None:  # fmt: skip
        """Take at most `concurrency` jobs at a time; `max_tries` None = never exhausted.  Raises ValueError.

        Without `keeps_alive` the node keeps alive what is in hand.
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
        """How many jobs to fetch now."""
        if self.is_stopping:
            return 0
        busy = sum(task.phase in (Phase.RUNNING, Phase.TELLING) for task in self._tasks.values())
        return self._concurrency - busy if len(self._tasks) - busy < self._held_most else 0

    def begin(self, job: Job, now: float) -> Task | None:
        """Take a job that was fetched; None when it is here already, handed out twice.

        A job that is given back may be here again before the node has said that it took it.
        """
        known = self._tasks.get(job.id)
        if known is not None and known.phase is not Phase.RETURNING:
            return None
        self.figures.taken += 1
        task = self._tasks[job.id] = Task(job, Phase.RUNNING, now + FIRST_WORKING_S if self._keeps_alive else None)
        return task

    # Time.

    def due(self, now: float) -> list[tuple[NextStep, Task]]:
        """What has to be said now, of which jobs; each is named once."""
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
        """When something will be due; None when nothing is to come."""
        instants = (at for task in self._tasks.values() for at in (task.nack_at, task.working_at) if at is not None)
        return min(instants, default=None)

    def kept(self, task: Task, retry: float, now: float) -> None:
        """Take the answer to WORKING: the retry time of the job, which begins now."""
        task.retry = float(retry)
        task.working_at = None if task.is_once or not self._keeps_alive else now + task.retry / KEEPS_PER_RETRY

    def not_kept(self, task: Task, now: float) -> None:
        """Take that WORKING could not be said, or that the node that was asked did not know the job."""
        if not task.is_once and self._keeps_alive:
            task.working_at = now + max(AGAIN_S, (task.retry or 0.0) / KEEPS_PER_RETRY / 2)

    def too_late(self, task: Task) -> None:
        """Take that the next delivery cannot be put off any more; what comes of this one counts all the same."""
        task.working_at = None
        self.figures.too_late += not task.is_too_late
        task.is_too_late = True

    # How it ended.

    def is_running(self, task: Task) -> bool:
        """Say whether a job is still to be told of: its handler works on it, and it was not given up."""
        return self._tasks.get(task.job.id) is task and task.phase is Phase.RUNNING

    def any_running(self) -> bool:
        """Say whether handlers are at work."""
        return any(task.phase is Phase.RUNNING for task in self._tasks.values())

    def settle(self, task: Task) -> bool:
        """Begin to tell what came of a job; False when that has been done: it was given up meanwhile."""
        if not self.is_running(task):
            return False
        task.phase = Phase.TELLING
        return True

    def is_exhausted(self, task: Task) -> bool:
        """Say whether a job that failed has failed too often."""
        return self._max_tries is not None and task.job.tries >= self._max_tries

    def hold(self, task: Task, now: float) -> None:
        """Keep a job that failed for a while before it is given back."""
        task.phase = Phase.HELD
        task.nack_at = now if self.is_stopping else now + self._backoff.pause(task.job.tries, self._rng)

    def forget(self, task: Task) -> None:
        """Have done with a job."""
        if self._tasks.get(task.job.id) is task:
            del self._tasks[task.job.id]

    # The end.

    def stop(self, now: float) -> None:
        """Take nothing new, and give back at once what is held."""
        self.is_stopping = True
        for task in self._tasks.values():
            if task.phase is Phase.HELD:
                task.nack_at = now

    def give_up(self, now: float) -> list[Task]:
        """Give back at once what still runs, and name it; what its handlers say from now on does not count."""
        running = [task for task in self._tasks.values() if task.phase is Phase.RUNNING]
        for task in running:
            self.give_back(task, now)
        return running

    def give_back(self, task: Task, now: float) -> None:
        """Have a job given back that runs: `due` says so next, behind a WORKING that is under way."""
        if self.is_running(task):
            task.phase = Phase.HELD
            task.nack_at = now


def check_grace(grace: Span) -> float:
    """Read how long handlers may go on when a worker stops.  Raises ValueError."""
    seconds = to_seconds(grace, "grace")
    if seconds < 0:
        raise ValueError(f"grace is {seconds:g} seconds; 0 or more are allowed")
    return seconds


def check_calls(*, awaits: bool, **calls: object) -> None:
    """Look at what a worker is to call, by its name.  Raises TypeError when it cannot.

    `awaits`: it may be a coroutine function.
    """
    for name, call in calls.items():
        if not callable(call):
            raise TypeError(f"{name} is {call!r}; a function of a job is allowed")
        if not awaits and inspect.iscoroutinefunction(call):
            raise TypeError(f"{name} is a coroutine function, which threads cannot run; {_ASYNC} can")


def check_ran(ending: object, *, awaits: bool) -> None:
    """Look at what a handler returned.  Raises TypeError when it has not run.

    `awaits`: what it returned is awaited by the caller, if that can be.
    """
    if inspect.isgenerator(ending) or inspect.isasyncgen(ending):
        raise TypeError("the handler is a generator, and none of it has run; a function without yield is allowed")
    if not awaits and inspect.isawaitable(ending):
        if inspect.iscoroutine(ending):
            ending.close()
        raise TypeError(f"the handler returned a {type(ending).__name__}, which nobody awaits here; {_ASYNC} does")


def check_verdict(verdict: object) -> Verdict:
    """Take what `on_exhausted` has said.  Raises TypeError when that is no verdict."""
    if not isinstance(verdict, Drop | MoveTo | GoOn):
        raise TypeError(f"on_exhausted returned {verdict!r}; Drop(), MoveTo(queue) and GoOn() are allowed")
    return verdict


def go_on(job: Job, error: BaseException) -> Verdict:
    """Be the `on_exhausted` that tries each job again."""
    return GoOn()


def move_to(queue: bytes | str, ttl: Span | None = None) -> OnExhausted:
    """Make an `on_exhausted` that moves each job to the queue for dead letters."""
    verdict = MoveTo(queue, ttl)
    return lambda job, error: verdict


#: After a fetch that failed.
_FETCHING_FAILED: Final = Backoff(0.5, 15.0)


def next_pause(failures: int, rng: Random) -> float:
    """How long to wait before the next fetch, after so many that failed in a row."""
    return _FETCHING_FAILED.pause(failures, rng)
