"""What the cluster knows of the instants of schedules: which are over, and what became of them.

    the latest of these ends what is over   the last instant that is noted, the end of a pause, `FORGOTTEN_MS` ago
    noted     in the register of the last instant: fired, skipped, missed, in a pause; of the last `OUTCOMES_KEPT`
    not yet   missed since, or in a pause that goes on: each node works that out

Instants are unix milliseconds.
"""

from typing import Final, NamedTuple

from disqued.core.model.calendar import (
    FIRED,
    IN_PAUSE,
    MISSED,
    OUTCOME_NAMES,
    OUTCOMES_KEPT,
    SKIPPED,
    InstantOutcome,
    Refusal,
    ScheduleSetting,
    derived_id,
    last_instants,
    looked_at,
    options_of,
    that_count,
)
from disqued.core.model.clock import Calendar
from disqued.core.model.job import ACKED, DEAD, FLAG_WITH_CONSUMER, QUEUED, Job
from disqued.core.model.messages import (
    ENDED,
    ENDED_CANCELLED,
    ENDED_DEAD,
    ENDED_EXPIRED,
    EXPIRED,
    GONE,
    NOT_KNOWN,
    UNDER_WAY,
    WAS_CANCELLED,
)
from disqued.core.model.phases import is_delayed
from disqued.core.model.policies import (
    FORGOTTEN_MS,
    SCHEDULE_FIELD,
    SCHEDULE_FIRED_FIELD,
    SCHEDULE_PAUSE_FIELD,
    SCHEDULE_REFUSED_FIELD,
)
from disqued.core.model.state import State
from disqued.core.work.standings import end_of

CATCH_UP_LOOKED: Final = 100  #: the greatest CATCHUP with which instants are looked for that have just been missed
PENDING: Final = b"pending"
_UNKNOWN: Final = b"unknown"
#: What became of a job that is not on this node any more, by what this node remembers of its end.
_ENDS: Final = {
    NOT_KNOWN: _UNKNOWN,
    UNDER_WAY: PENDING,
    GONE: b"deleted",
    ENDED: b"ended",
    ENDED_DEAD: b"dead",
    ENDED_EXPIRED: b"expired",
    EXPIRED: b"expired",
    ENDED_CANCELLED: b"cancelled",
    WAS_CANCELLED: b"cancelled",
}


class Run(NamedTuple):
    """An instant of a schedule that is over, and what became of it as far as this node knows."""

    instant: int
    job_id: bytes  #: empty = there is none: the instant was skipped, missed, or came in a pause
    state: bytes  #: queued, running, pending, acked, dead, ..., unknown; without a job skipped, missed or paused


class LastRefusal(NamedTuple):
    """Why the job of an instant was refused that was not fired afterwards."""

    instant: int
    error: bytes
    node_id: bytes  #: of the node that refused it
    is_pending: bool  #: it is the last word: no instant is over since


class Instants:
    """Tells what became of the instants of schedules; it changes nothing."""

    __slots__ = ("_calendar", "_state")

    def __init__(self, state: State, calendar: Calendar) -> None:
        self._state = state
        self._calendar = calendar

    def id_of(self, name: bytes, setting: ScheduleSetting, instant: int) -> bytes:
        """Return the id of the job of an instant."""
        register = self._state.queues.policies.registers[name, SCHEDULE_FIELD]
        ttl_suffix = options_of(name, setting, instant, 1).ttl_suffix
        return derived_id(name, (register.counter, register.node_id), instant, ttl_suffix)

    def set_at(self, name: bytes) -> int:
        """Return when a schedule was set."""
        return self._state.queues.policies.registers[name, SCHEDULE_FIELD].set_at

    def over_until(self, name: bytes) -> int:
        """Return the time up to which instants are over: fired, passed over, or in a pause."""
        return max(self._state.wall - FORGOTTEN_MS, self.resumed_at(name), self.fired_until(name))

    def resumed_at(self, name: bytes) -> int:
        """Return when a pause of a schedule ended last, or began; 0 = there was none."""
        pause = self._state.queues.policies.registers.get((name, SCHEDULE_PAUSE_FIELD))
        return 0 if pause is None else pause.set_at

    def fired_until(self, name: bytes) -> int:
        """Return the last instant that is noted as over; 0 = none."""
        fired = self._state.queues.policies.registers.get((name, SCHEDULE_FIRED_FIELD))
        return 0 if fired is None else fired.counter

    def passed(self, name: bytes, began: int, wall: int) -> list[InstantOutcome]:
        """Return the last instants that a pause kept from being fired, which began then and goes on until `wall`."""
        setting = self._state.queues.policies.schedules[name]
        instants = last_instants(
            setting, self.set_at(name), self._calendar, self.fired_until(name), wall, OUTCOMES_KEPT
        )
        return [(instant, IN_PAUSE if instant > began else MISSED) for instant in instants]

    def missed_before(self, name: bytes, instant: int) -> list[InstantOutcome]:
        """Return the instants between the one that is fired and the last one that was over: they do not count."""
        setting = self._state.queues.policies.schedules.get(name)
        if setting is None:
            return []
        # The node that ends a pause has noted the instants before that.
        since = max(self.fired_until(name), self.resumed_at(name))
        before = last_instants(setting, self.set_at(name), self._calendar, since, instant - 1, OUTCOMES_KEPT - 1)
        return [(one, MISSED) for one in before]

    def runs_of(self, name: bytes, count: int, *, knows_missed: bool) -> list[Run]:
        """Return the last instants of a schedule that are over, the latest first, `RUNS_TOLD` at most.

        The ids of jobs follow from name, version and instant; that an instant has none is in a register.
        `knows_missed`: this node has heard which instants others have fired, so that the rest has been missed.
        """
        table = self._state.queues.policies
        setting, until = table.schedules.get(name), self.fired_until(name)
        if setting is None:
            return []
        firing = table.firing_of(name)
        outcomes = dict(firing.outcomes)
        instants = last_instants(setting, self.set_at(name), self._calendar, 0, until, count)
        runs = [self._run_of(name, setting, instant, outcomes.get(instant, 0)) for instant in instants]
        later = self._not_noted(name, setting, knows_missed=knows_missed)
        runs += [Run(instant, b"", OUTCOME_NAMES[outcome]) for instant, outcome in later]
        if not runs and until:  # it was set again since
            outcome = outcomes.get(until, FIRED)
            if outcome != FIRED:
                return [Run(until, b"", OUTCOME_NAMES[outcome])]
            return [Run(until, firing.job_id, _state_of(self._state, firing.job_id))] if firing.job_id else []
        return runs[: -count - 1 : -1]

    def _run_of(self, name: bytes, setting: ScheduleSetting, instant: int, outcome: int) -> Run:
        """Return what became of an instant that is noted as over; outcome 0 = no node has noted which."""
        job_id = self.id_of(name, setting, instant)
        state = _state_of(self._state, job_id)
        if outcome not in (0, FIRED) and state == _UNKNOWN:
            return Run(instant, b"", OUTCOME_NAMES[outcome])
        return Run(instant, job_id, state)

    def _not_noted(self, name: bytes, setting: ScheduleSetting, *, knows_missed: bool) -> list[InstantOutcome]:
        """Return the last instants that are over and not noted as that yet: in a pause that goes on, or missed."""
        table, wall = self._state.queues.policies, self._state.wall
        if table.is_schedule_paused(name):
            return self.passed(name, table.registers[name, SCHEDULE_PAUSE_FIELD].set_at, wall)
        if setting.catch_up > CATCH_UP_LOOKED or not knows_missed:
            return []
        since, count = self.over_until(name), looked_at(setting) + OUTCOMES_KEPT
        past = last_instants(setting, self.set_at(name), self._calendar, since, wall, count)
        missed = past[: len(past) - len(that_count(past, setting, wall))]
        return [(instant, MISSED) for instant in missed[-OUTCOMES_KEPT:]]

    def refusal_of(self, name: bytes) -> LastRefusal | None:
        """Return the last refusal of a schedule since it was set, unless its instant was fired later."""
        table = self._state.queues.policies
        register = table.registers.get((name, SCHEDULE_REFUSED_FIELD))
        if name not in table.schedules or register is None or not isinstance(register.value, Refusal):
            return None
        instant, error = register.value
        if instant <= self.set_at(name):
            return None
        if instant <= self.fired_until(name):
            outcome = dict(table.firing_of(name).outcomes).get(instant, FIRED)
            if outcome in (FIRED, SKIPPED):
                return None
        return LastRefusal(instant, error, register.node_id, instant > self.over_until(name))


def _state_of(state: State, job_id: bytes) -> bytes:
    """Return how the job of an instant stands, as far as this node knows."""
    job = state.jobs.get(job_id)
    if job is not None:
        return _state_of_job(job)
    standing = state.custody.ended.of(job_id, state.now)
    # A job of a schedule is never given up: one that must not come back is acknowledged.
    return b"acked" if standing == ENDED and job_id in state.custody.ended else _ENDS[standing]


def _state_of_job(job: Job) -> bytes:
    """Return how a job stands that is on this node."""
    if job.state == QUEUED:
        return b"queued"
    if job.state == DEAD:
        return b"dead"
    if job.state == ACKED:
        return b"cancelled" if end_of(job.options.fate) == WAS_CANCELLED else b"acked"
    if job.flags & FLAG_WITH_CONSUMER:
        return b"running"
    return b"delayed" if is_delayed(job) else PENDING
