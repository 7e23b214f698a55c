"""The jobs that a worker holds, and when to send what about each.

    begin --> running --done--------> ack, forget
                |  |`--failed-------> nack, forget: the server delivers it again, later
                |  |`--exhausted----> acked, moved, buried or given back
                |   `--at most once-> left
                `-- WORKING after 0.5 s, then three times in each retry time
    stop --> no new jobs; running ones may end
         --> give_up: running jobs are given back

A worker keeps a job alive from its arrival until it is acknowledged or given back.  A live worker (`seats`) need not:
its node keeps its jobs as long as it lives.  It asks once a second which of them were cancelled.  A worker learns the
retry time of a job from the reply to WORKING; the shortest is one second.

Nothing here waits or sends: a worker does what `due` says and reports the outcome.  Times are seconds.
"""

import inspect
from collections.abc import Callable, Mapping
from enum import Enum
from random import Random
from typing import Final, TypeAlias

import attrs

from .job import Job, Signal
from .naming import PACKAGE
from .values import (
    ABOVE_0,
    MOST_SECONDS,
    Span,
    encode_data,
    encode_span,
    to_seconds,
    waiting_seconds,
    whole_number,
)

FIRST_WORKING_S: Final = 0.5  #: half of the shortest retry time; a job that ends sooner costs no message
KEEPS_PER_RETRY: Final = 3
#: Pause after a WORKING that failed, while the retry time is unknown.
AGAIN_S: Final = 0.3
LOOK_S: Final = 1.0  #: how often a live worker asks which of its jobs were cancelled
AT_MOST_ONCE: Final = 0.0
REASON_MAX: Final = 1_024  #: bytes
STOPPED: Final = "the worker stopped"

_ASYNC: Final = f"the worker of {PACKAGE}.aio"


class Phase(Enum):
    """The state of a job in a worker."""

    RUNNING = "the handler works on it"
    TELLING = "it is being acknowledged"
    FAILED = "it is to be given back"
    RETURNING = "it is being given back"


class NextStep(Enum):
    """What to send about a job now."""

    WORKING = "working"
    LOOK = "look"
    NACK = "nack"


@attrs.frozen
class GiveBack:
    """How a job is given back."""

    #: Seconds until its next delivery; None = as its terms say.
    delay: float | None = None
    reason: str = ""
    is_dead: bool = False
    #: Its handler has not begun: no try is counted.
    is_untried: bool = False


class RetryLater(Exception):
    """Raised by a handler: try the job again after so many seconds."""

    def __init__(self, seconds: Span, reason: str = "") -> None:
        """Raises ValueError."""
        super().__init__(seconds, reason)
        delay = to_seconds(seconds, "seconds")
        if not 0 <= delay <= MOST_SECONDS:
            raise ValueError(f"a retry after {delay:g} seconds; 0 to {MOST_SECONDS} are allowed")
        self.delay = delay
        self.reason = reason


class Bury(Exception):
    """Raised by a handler, or returned by `on_exhausted`: the job is dead, and is not tried again before `redrive`."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


@attrs.frozen
class Drop:
    """End a job that failed too often: it is cancelled, so nobody takes it for done."""


@attrs.frozen
class GoOn:
    """Retry a job that failed too often all the same."""


@attrs.frozen
class MoveTo:
    """Add a job that failed too often to another queue, with its terms and new counters, and end it here.

    Clients that wait for it receive `cancelled`: the new job has another id.
    """

    queue: bytes | str = attrs.field()
    #: Time to live of the new job; None = the default of the server.
    ttl: Span | None = attrs.field(default=None)

    @queue.validator
    def _is_a_name(self, attribute: object, value: bytes | str) -> None:
        encode_data(value, "queue")

    @ttl.validator
    def _is_allowed(self, attribute: object, value: Span | None) -> None:
        if value is not None:
            encode_span(value, "ttl", ABOVE_0)


Verdict: TypeAlias = Drop | GoOn | MoveTo | Bury
#: Decides about a job that failed too often, from the job and its last error.
OnExhausted: TypeAlias = Callable[[Job, BaseException], Verdict]


def _waiting(span: Span) -> float:
    return waiting_seconds(span, "a pause")


@attrs.frozen
class Backoff:
    """The delay before the next try of a job that has no backoff of its own: exponential, with jitter."""

    first: float = attrs.field(default=1.0, converter=_waiting)
    most: float = attrs.field(default=60.0, converter=_waiting)

    def __attrs_post_init__(self) -> None:
        """Raises ValueError."""
        if self.first > self.most:
            raise ValueError(f"the first pause is {self.first:g} seconds; at most `most` is allowed: {self.most:g}")

    def pause(self, tries: int, rng: Random) -> float:
        """Return the pause after so many tries."""
        pause = min(self.first * 2.0 ** min(tries - 1, 30), self.most) * rng.uniform(0.75, 1.25)
        return min(pause, MOST_SECONDS)


@attrs.define(eq=False)
class Task:
    """A job that a worker holds."""

    job: Job
    phase: Phase
    #: When to send WORKING, or to ask whether it was cancelled; None = never, or it is under way.
    working_at: float | None
    #: Its retry time, 0 = at most once; None = unknown yet.
    retry: float | None = None
    #: How to give it back, once it has failed.
    give_back: GiveBack = GiveBack()
    #: Whether its terms say how long to wait after a failed try.
    has_backoff: bool = False
    #: Whether its terms keep its result.
    keeps_result: bool = False
    #: What SHOW told of it last; empty = it was not asked for, or refused.
    facts: Mapping[str, object] = attrs.field(factory=dict, repr=False)
    cancelled: Signal = attrs.field(factory=Signal)
    #: Its next delivery can no longer be postponed.
    is_too_late: bool = False
    #: Why the attempt failed.
    error: BaseException | None = None
    #: Its handler has been called.
    has_begun: bool = False

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
    buried: int = 0
    cancelled: int = 0  #: that ended because somebody cancelled them
    too_late: int = 0  #: whose next delivery could no longer be postponed
    untold: int = 0  #: whose outcome reached no node; they return by their retry time


class Tasks:
    """All jobs of one worker."""

    def __init__(
        self, concurrency: int, backoff: Backoff, rng: Random, max_tries: int | None = None, *, keeps_alive: bool = True
    ) -> None:
        """Take at most `concurrency` jobs at a time; `max_tries` None = never exhausted.  Raises ValueError.

        Without `keeps_alive` the node keeps the jobs alive.
        """
        for name, value in (("concurrency", concurrency), ("max_tries", max_tries)):
            if value is not None:
                whole_number(value, name)
        self._concurrency = concurrency
        self._backoff = backoff
        self._rng = rng
        self._max_tries = max_tries
        self._keeps_alive = keeps_alive
        self._tasks: dict[bytes, Task] = {}
        self.is_stopping: bool = False
        self.figures = Figures()

    def __len__(self) -> int:
        return len(self._tasks)

    def room(self) -> int:
        """Return how many jobs to fetch now."""
        return 0 if self.is_stopping else max(0, self._concurrency - len(self._tasks))

    def begin(self, job: Job, now: float) -> Task | None:
        """Take a fetched job; returns None when the worker already holds it.

        A job that is being given back may arrive again before the node confirms that it took it back.
        """
        known = self._tasks.get(job.id)
        if known is not None and known.phase is not Phase.RETURNING:
            return None
        self.figures.taken += 1
        task = self._tasks[job.id] = Task(job, Phase.RUNNING, now + FIRST_WORKING_S)
        return task

    # Time.

    def due(self, now: float) -> list[tuple[NextStep, Task]]:
        """Return what to send now about which jobs; each is returned once."""
        found: list[tuple[NextStep, Task]] = []
        for task in self._tasks.values():
            if task.phase is Phase.FAILED:
                task.working_at = None
                task.phase = Phase.RETURNING
                found.append((NextStep.NACK, task))
            elif task.working_at is not None and task.working_at <= now:
                task.working_at = None
                if self._keeps_alive:
                    found.append((NextStep.WORKING, task))
                elif task.phase is Phase.RUNNING:
                    found.append((NextStep.LOOK, task))
        return found

    def next_at(self) -> float | None:
        """Return when the next step is due that waits for its time; None when there is none."""
        return min((task.working_at for task in self._tasks.values() if task.working_at is not None), default=None)

    def kept(self, task: Task, retry: float, now: float) -> None:
        """Take the reply to WORKING: the retry time of the job, which starts now."""
        task.retry = float(retry)
        if self._keeps_alive:
            task.working_at = None if task.is_once else now + task.retry / KEEPS_PER_RETRY

    def not_kept(self, task: Task, now: float) -> None:
        """Note that WORKING failed, or that the node did not know the job."""
        if not task.is_once and self._keeps_alive:
            task.working_at = now + max(AGAIN_S, (task.retry or 0.0) / KEEPS_PER_RETRY / 2)

    def too_late(self, task: Task) -> None:
        """Note that the next delivery can no longer be postponed; this one still counts."""
        if self._keeps_alive:
            task.working_at = None
        self.figures.too_late += not task.is_too_late
        task.is_too_late = True

    def looked(self, task: Task, now: float) -> None:
        """Note that a job of a live worker was not cancelled, as far as is known."""
        if self.is_running(task):
            task.working_at = now + LOOK_S

    def cancelled(self, task: Task) -> None:
        """Note that somebody cancelled a job: it is not kept alive, and its handler should end."""
        task.working_at = None
        task.cancelled.is_set = True

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

    def failed(self, task: Task, error: BaseException) -> None:
        """Have a failed job given back, or buried: `due` returns it next, after a WORKING under way."""
        task.phase = Phase.FAILED
        task.give_back = self._after(task, error)
        self.figures.buried += task.give_back.is_dead

    def _after(self, task: Task, error: BaseException) -> GiveBack:
        if task.cancelled.is_set:
            return GiveBack()
        if isinstance(error, Bury):
            return GiveBack(reason=reason_of(error), is_dead=True)
        if isinstance(error, RetryLater):
            return GiveBack(error.delay, reason_of(error))
        own = None if task.has_backoff else self._backoff.pause(task.job.tries, self._rng)
        return GiveBack(own, reason_of(error))

    def forget(self, task: Task) -> None:
        """Drop a job."""
        if self._tasks.get(task.job.id) is task:
            del self._tasks[task.job.id]

    # The end.

    def stop(self) -> None:
        """Take no new jobs."""
        self.is_stopping = True

    def give_up(self) -> list[Task]:
        """Give back running jobs at once and return them; the outcomes of their handlers no longer count."""
        running = [task for task in self._tasks.values() if task.phase is Phase.RUNNING]
        for task in running:
            self.give_back(task)
        return running

    def give_back(self, task: Task) -> None:
        """Have a running job given back because the worker stops: as failed, or untried before its handler begins."""
        if self.is_running(task):
            task.phase = Phase.FAILED
            task.give_back = GiveBack(0, STOPPED) if task.has_begun else GiveBack(is_untried=True)


def reason_of(error: BaseException) -> str:
    """Return why a try failed, in at most 1 KiB: the class and the text of the error, or what the handler said."""
    if isinstance(error, Bury | RetryLater):
        text = str(error.reason) or type(error).__name__
    else:
        try:
            said = str(error)
        except Exception:  # of a class whose text fails, too
            said = ""
        text = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return text.encode(errors="replace")[:REASON_MAX].decode(errors="ignore")


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
    if not isinstance(verdict, Drop | MoveTo | GoOn | Bury):
        raise TypeError(f"on_exhausted returned {verdict!r}; Drop(), MoveTo(queue), Bury() and GoOn() are allowed")
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
