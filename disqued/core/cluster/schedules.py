"""Firing the schedules of jobs: one job for each instant, whichever node makes it.

    an instant comes --> the first of the nodes that can be reached, by rendezvous hash of the name, makes the job
                         after OTHERS_MS the second one does, if it has not heard that the instant is over; and so on
    the job is there, with its copies --POLICY(instant, job)--> every node: the instant is over

The id of the job is derived from name, version and instant (`calendar`): nodes that cannot hear each other make the
same job, which merges as two copies do when they meet.  Its acknowledgement is kept until every known node has
confirmed it (`acks`), so that a node that could not be heard hands it out no more.

That an instant is over is a register whose counter is the instant, so that the latest one wins.  It is written after
the job: a crash in between makes the same job again, and loses none.  A node that starts, or that stood still, lets
the others tell first, for HOLD_MS.  With it goes what became of the last instants: fired, skipped, missed or in a
pause.  The node that fires or skips an instant notes those since the last one as missed.  The node that ends a pause
notes the instants that fell into it.

An instant whose job is refused (queue paused, MAXLEN, too few nodes, memory) is not over: it is tried again, and after
`ON_TIME_MS` it counts as missed, like one that comes while no node is up.  Of these the last CATCHUP are fired, and
none that is older than `FORGOTTEN_MS`.  Why it is refused is a register, too, so that every node tells it.

A job with RETRY 0 must not be made twice: the first of all known nodes makes it, and no other node in its place.

Times are integer milliseconds of the monotonic clock; instants are unix milliseconds.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from disqued.core.cluster.instants import PENDING, Instants, LastRefusal, Run
from disqued.core.cluster.policy_sync import Policies
from disqued.core.model.calendar import (
    ERROR_MAX,
    FIRED,
    ON_TIME_MS,
    OUTCOMES_KEPT,
    SKIPPED,
    LastFiring,
    Refusal,
    ScheduleSetting,
    last_instants,
    looked_at,
    next_instants,
    options_of,
    ranked,
    that_count,
)
from disqued.core.model.clock import Calendar
from disqued.core.model.job import ACKED, DEAD, FLAG_COPY
from disqued.core.model.machine import Acts, Machine, on
from disqued.core.model.outbox import Client
from disqued.core.model.peers import LEAVING
from disqued.core.model.policies import (
    SCHEDULE_FIELD,
    SCHEDULE_PAUSE_FIELD,
    SCHEDULE_REFUSED_FIELD,
    Value,
)
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.unfinished import AT_ONCE
from disqued.core.work.additions import Additions
from disqued.core.work.background import BackgroundClient
from disqued.core.work.outcomes import Outcomes
from disqued.core.work.placement import Placement
from disqued.errors import CommandError, JournalFailed, OutOfMemory

OTHERS_MS: Final = 2_000  #: how long each node leaves an instant to the one before it
RANKS: Final = 4  #: nodes after this one do not wait longer than it does
HOLD_MS: Final = 5_000  #: how long a node that starts lets others tell which instants are over
COPIES_MS: Final = 2_000  #: how long copies are waited for
JOB_ASKED_MS: Final = 2_500  #: how long other nodes are asked whether the last job is over
RETRY_MS: Final = 2_000  #: pause after a refusal, then twice as long
RETRY_MAX_MS: Final = 60_000
LOOKED_EVERY_MS: Final = 60_000  #: how often the wall clock is looked at, which may be set
NEXT_MAX: Final = 1_000  #: instants that SCHEDULE NEXT tells at most
RUNS_TOLD: Final = OUTCOMES_KEPT  #: last instants that SCHEDULE GET tells
REFUSAL_MS: Final = 10_000  #: while a refusal stands the same error is noted again after so long
_LOW_MEMORY: Final = "the memory of this node is low: it takes no jobs now"


class ScheduleFigures(NamedTuple):
    """How the schedules stand on this node."""

    schedules: int
    paused: int
    refused: int  #: whose next job was refused, and is tried again
    behind_ms: int  #: since the first instant that has come and is not over; 0 = there is none


class Plan(Timed, BackgroundClient):
    """A schedule as this node sees to it; it stands for the producer of its jobs."""

    __slots__ = ("answer", "asked", "instant", "is_busy", "job_id", "missed", "name", "retry_at", "retry_ms",
                 "seen_at", "when_over")  # fmt: skip

    def __init__(self, name: bytes, when_over: Callable[["Plan"], None]) -> None:
        self.awake_at = 0
        self.name: bytes = name
        self.when_over: Callable[[Plan], None] = when_over
        self.instant: int = 0  #: that is to be fired next, and has come; 0 = none
        self.seen_at: int = 0  #: when this node saw that it has come
        self.missed: int = 0  #: instants before it that do not count any more
        self.job_id: bytes = b""  #: of its job
        self.is_busy: bool = False  #: copies of the job, or answers of nodes, are waited for
        self.answer: object = None  #: what came of that; None = nothing yet
        self.asked: bytes = b""  #: id of the last job that turned out to be over
        self.retry_at: int = 0  #: nothing is tried before; 0 = no such time
        self.retry_ms: int = RETRY_MS

    def ended(self, value: object) -> None:
        """Go on with the id of the job, an error, or how the last job stands."""
        self.answer = value
        self.when_over(self)

    @property
    def takes_fewer(self) -> bool:
        """The job is made with the copies that there are: another node may make it as well."""
        return True

    @property
    def address(self) -> str:
        """Who adds the job, for the event log."""
        return f"schedule {self.name.decode('utf-8', 'replace')}"


class Schedules(Machine):
    """The machine that fires schedules."""

    __slots__ = ("_additions", "_calendar", "_hold_until", "_outcomes", "_paused", "_placement", "_plans", "_policies",
                 "_state", "instants")  # fmt: skip

    def __init__(
        self, state: State, policies: Policies, additions: Additions, placement: Placement, *, outcomes: Outcomes,
        calendar: Calendar,
    ) -> None:  # fmt: skip
        self._state = state
        self._policies = policies
        self._additions = additions
        self._placement = placement
        self._outcomes = outcomes
        self._calendar = calendar
        self.instants = Instants(state, calendar)
        self._plans: dict[bytes, Plan] = {}
        self._paused: set[bytes] = set()  #: names of schedules that are paused
        self._hold_until: int = 0  #: nothing is fired before

    def due_table(self) -> Acts:
        return on(Plan, self.due)

    # What commands ask for.

    def misfit(self, line: bytes, zone: bytes) -> str:
        """Say what is wrong with a cron line or a time zone; empty = they are sound."""
        return self._calendar.misfit(line, zone)

    def set(self, name: bytes, setting: ScheduleSetting) -> None:
        """Set a schedule in the whole cluster; it stays paused if it is."""
        self._policies.set(name, {SCHEDULE_FIELD: setting})

    def delete(self, name: bytes) -> bool:
        """Delete a schedule in the whole cluster; return whether there was one."""
        table = self._state.queues.policies
        if name not in table.schedules:
            return False
        gone: dict[int, Value] = {SCHEDULE_FIELD: ()}
        if table.is_schedule_paused(name):
            gone[SCHEDULE_PAUSE_FIELD] = ()
        self._policies.set(name, gone)
        return True

    def pause(self, name: bytes, *, pauses: bool) -> bool:
        """Pause a schedule in the whole cluster, or end that; return whether there is one.

        Instants that come meanwhile do not count.
        """
        table = self._state.queues.policies
        if name not in table.schedules:
            return False
        if table.is_schedule_paused(name) != pauses:
            began = 0 if pauses else table.registers[name, SCHEDULE_PAUSE_FIELD].set_at
            self._policies.set(name, {SCHEDULE_PAUSE_FIELD: (1,) if pauses else ()})
            if not pauses:
                self._settle_pause(name, began)
        return True

    def _settle_pause(self, name: bytes, began: int) -> None:
        """Note what became of the instants that came in a pause, which is over, or were missed before it."""
        outcomes = self.instants.passed(name, began, self._state.wall)
        if outcomes:
            self._policies.settle(name, outcomes[-1][0], LastFiring(b"", 0, tuple(outcomes)))

    def fire(self, client: Client, name: bytes, setting: ScheduleSetting) -> bytes | None:
        """Add a job as the schedule would now, under an id of its own; return that, or None: `client` waits.

        Raises what `Additions.add` raises.
        """
        template = setting.job
        options = options_of(name, setting, self._state.wall, template.replicate or self._placement.default_copies)
        return self._additions.add(
            client, template.queue, template.body, options, maxlen=template.maxlen, timeout_ms=COPIES_MS,
            asynchronous=template.asynchronous, by_default=not template.replicate,
        )  # fmt: skip

    def next_of(self, name: bytes, count: int, new: ScheduleSetting | None = None) -> list[int]:
        """Return the next instants of a schedule, in order; none while it is paused.

        With `new` return those that it would have, not paused, if it were set so now.
        """
        if new is not None:
            return next_instants(new, self._state.wall, self._calendar, self._state.wall, count)
        table = self._state.queues.policies
        setting = table.schedules.get(name)
        if setting is None or table.is_schedule_paused(name):
            return []
        wall = max(self._state.wall, self.instants.over_until(name))
        return next_instants(setting, self.instants.set_at(name), self._calendar, wall, count)

    def runs_of(self, name: bytes, count: int) -> list[Run]:
        """Return the last instants of a schedule that are over, the latest first, `RUNS_TOLD` at most."""
        return self.instants.runs_of(name, count, knows_missed=self._state.now >= self._hold_until)

    def refusal_of(self, name: bytes) -> LastRefusal | None:
        """Return the last refusal of a schedule since it was set, unless its instant was fired later."""
        return self.instants.refusal_of(name)

    @property
    def figures(self) -> ScheduleFigures:
        """How the schedules stand: O(schedules)."""
        wall, refused, behind = self._state.wall, 0, 0
        for plan in self._plans.values():
            if plan.instant:
                refused += plan.retry_at > 0
                behind = max(behind, wall - plan.instant)
        return ScheduleFigures(len(self._state.queues.policies.schedules), len(self._paused), refused, behind)

    # Planning.

    def start(self) -> None:
        """Plan the schedules that the store had, after other nodes have had the time to tell what is over."""
        self._hold()
        for name in self._state.queues.policies.schedules:
            self.schedule_changed(name)

    def stalled(self) -> None:
        """Other nodes may have gone on without this one."""
        if self._plans:
            self._hold()

    def _hold(self) -> None:
        if self._state.peers.by_id:
            self._hold_until = self._state.now + HOLD_MS

    def schedule_changed(self, name: bytes) -> None:
        """Plan a schedule, or no longer."""
        plan = self._plans.get(name)
        table = self._state.queues.policies
        if name in table.schedules and table.is_schedule_paused(name):
            self._paused.add(name)
        else:
            self._paused.discard(name)
        if name in table.schedules:
            if plan is None:
                plan = self._plans[name] = Plan(name, self._wake)
            self._wake(plan)
        elif plan is not None and not plan.is_busy:
            self._drop(plan)

    def _wake(self, plan: Plan) -> None:
        self._state.schedule.move(plan, AT_ONCE)

    def _drop(self, plan: Plan) -> None:
        self._state.schedule.cancel(plan)
        del self._plans[plan.name]

    def reachable_changed(self) -> None:
        """Another node may be the first now."""
        for plan in self._plans.values():
            if plan.instant and not plan.is_busy:
                self._wake(plan)

    def standing_changed(self) -> None:
        """Another node may be the first of all now."""
        self.reachable_changed()

    def flushed(self) -> None:
        """Schedules outlive a flush; the list of deadlines does not."""
        names = list(self._plans)
        self._plans.clear()
        for name in names:
            self.schedule_changed(name)

    def due(self, plan: Plan) -> None:
        """Look at a schedule: an instant has come, or what was waited for."""
        if self._is_planned(plan) and plan.answer is not None:
            self._go_on(plan)
        if self._is_planned(plan) and not plan.is_busy:
            self._look(plan)

    def _is_planned(self, plan: Plan) -> bool:
        """Return whether a plan is that of its schedule, which may have been deleted."""
        return self._plans.get(plan.name) is plan

    def _look(self, plan: Plan) -> None:
        """Fire the instant that has come, or sleep until one comes."""
        state, table = self._state, self._state.queues.policies
        setting = table.schedules.get(plan.name)
        if setting is None:
            self._drop(plan)
            return
        if table.is_schedule_paused(plan.name):
            plan.instant = 0
            return
        known, wall = self.instants, state.wall
        set_at, since = known.set_at(plan.name), known.over_until(plan.name)
        past = last_instants(setting, set_at, self._calendar, since, wall, looked_at(setting))
        instants = that_count(past, setting, wall)
        if not instants:
            plan.instant = 0
            coming = next_instants(setting, set_at, self._calendar, max(wall, since), 1)
            if coming:
                self._sleep(plan, coming[0] - wall)
            return
        if plan.instant != instants[0]:
            plan.instant, plan.seen_at = instants[0], state.now
            plan.retry_at, plan.retry_ms = 0, RETRY_MS
        plan.missed = len(past) - len(instants)
        self._see_to(plan, setting)

    def _sleep(self, plan: Plan, span_ms: int) -> None:
        self._state.schedule.move(plan, self._state.now + max(1, min(span_ms, LOOKED_EVERY_MS)))

    def _see_to(self, plan: Plan, setting: ScheduleSetting) -> None:
        """Fire an instant, when it is the turn of this node."""
        now = self._state.now
        rank = self._rank_of(plan.name, setting)
        if not setting.job.retry_ms and rank:
            self._sleep(plan, LOOKED_EVERY_MS)
            return
        at = max(plan.seen_at + min(rank, RANKS) * OTHERS_MS, plan.retry_at, self._hold_until)
        if at > now:
            self._sleep(plan, at - now)
        else:
            self._fire(plan, setting)

    def _rank_of(self, name: bytes, setting: ScheduleSetting) -> int:
        """Return how many nodes see to a schedule before this one does."""
        peers = self._state.peers
        others: list[bytes] = list(peers.reachable)
        if not setting.job.retry_ms:
            others = [node_id for node_id, peer in peers.by_id.items() if not peer.flags & LEAVING]
        return ranked(name, (self._state.node_id, *others)).index(self._state.node_id)

    # Firing.

    def _fire(self, plan: Plan, setting: ScheduleSetting) -> None:
        state, table = self._state, self._state.queues.policies
        if state.leaving:  # others see to it
            self._postpone(plan, None)
            return
        if state.durability.read_only or self._placement.takes_no_copy:
            self._postpone(plan, JournalFailed() if state.durability.read_only else OutOfMemory(_LOW_MEMORY))
            return
        copies = setting.job.replicate or self._placement.default_copies
        options = options_of(plan.name, setting, plan.instant, copies)
        plan.job_id = self.instants.id_of(plan.name, setting, plan.instant)
        if state.jobs.get(plan.job_id) is not None or plan.job_id in state.custody.ended:
            self._settle(plan, FIRED)
            return
        last = table.last_job_of(plan.name)
        if setting.skips and last and plan.asked != last and not self._is_over(plan, last):
            return
        try:
            is_there = self._additions.add_instant(
                plan, setting.job, options, job_id=plan.job_id, ctime=plan.instant * 1_000_000, timeout_ms=COPIES_MS
            )
        except CommandError as refusal:
            self._postpone(plan, refusal)
            return
        if is_there:
            self._fired(plan, plan.job_id)
        else:
            plan.is_busy = True

    def _fired(self, plan: Plan, job_id: bytes) -> None:
        """Count an instant whose job this node has made, and remember the end of that, though nobody else holds it."""
        job, counters = self._state.jobs.get(job_id), self._state.counters
        if job is not None:
            job.flags |= FLAG_COPY
        counters.instants_fired += 1
        counters.instants_late += self._state.wall - plan.instant > ON_TIME_MS
        counters.instants_missed += plan.missed
        self._settle(plan, FIRED)

    def _pass_over(self, plan: Plan) -> None:
        """Leave out an instant, since the last job is not over."""
        self._state.counters.instants_skipped += 1
        self._state.counters.instants_missed += plan.missed
        self._settle(plan, SKIPPED)

    def _settle(self, plan: Plan, outcome: int) -> None:
        """The instant is over, on all nodes; look for the next one."""
        outcomes = [*self.instants.missed_before(plan.name, plan.instant), (plan.instant, outcome)][-OUTCOMES_KEPT:]
        job = (plan.job_id, plan.instant) if outcome == FIRED else (b"", 0)
        self._policies.settle(plan.name, plan.instant, LastFiring(*job, tuple(outcomes)))
        plan.asked = b""
        if self._is_planned(plan):
            self._wake(plan)

    def _postpone(self, plan: Plan, error: CommandError | None) -> None:
        """Try again later, and note why, unless another node sees to it meanwhile."""
        if error is not None:
            self._note_refusal(plan, error)
        self._state.counters.firings_refused += 1
        plan.retry_at = self._state.now + plan.retry_ms
        plan.retry_ms = min(2 * plan.retry_ms, RETRY_MAX_MS)
        self._wake(plan)

    def _note_refusal(self, plan: Plan, error: CommandError) -> None:
        """Let all nodes know why an instant is refused, but not the same each time."""
        table, wall = self._state.queues.policies, self._state.wall
        if plan.name not in table.schedules:
            return
        refusal = Refusal(plan.instant, _printable(error.line))
        known = table.registers.get((plan.name, SCHEDULE_REFUSED_FIELD))
        if known is not None and isinstance(known.value, Refusal):
            stands = known.value.instant > self.instants.over_until(plan.name)
            is_young = stands and 0 <= wall - known.counter < REFUSAL_MS
            if known.value.error == refusal.error and (is_young or known.value.instant == refusal.instant):
                return
        self._policies.refuse(plan.name, refusal)

    def _is_over(self, plan: Plan, job_id: bytes) -> bool:
        """Return whether the last job is known to be over; else the instant is passed over, or nodes are asked."""
        state = self._state
        job = state.jobs.get(job_id)
        if job is not None and job.state not in (ACKED, DEAD):
            self._pass_over(plan)
            return False
        if job is not None or job_id in state.custody.ended or not state.peers.linked:
            return True
        rows = self._outcomes.wait(plan, JOB_ASKED_MS, [job_id], answers_any=False, with_progress=False)
        plan.is_busy = rows is None
        return rows is not None

    def _go_on(self, plan: Plan) -> None:
        """Go on with what was waited for: the copies of the job, or how the last one stands."""
        answer, plan.answer = plan.answer, None
        plan.is_busy = False
        if isinstance(answer, bytes):
            self._fired(plan, answer)
        elif isinstance(answer, list):
            last = self._state.queues.policies.last_job_of(plan.name)
            if any(row[0] == last and row[1] == PENDING for row in answer):
                self._pass_over(plan)
            else:
                plan.asked = last
        elif isinstance(answer, CommandError):
            self._postpone(plan, answer)
        else:
            self._postpone(plan, None)


def _printable(line: bytes) -> bytes:
    """Return the line of an error as a register may have it."""
    text = line.decode("utf-8", "replace")
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return text.encode()[:ERROR_MAX].decode("utf-8", "ignore").encode()


class NoCalendar:
    """The calendar of a node that was given none: it knows no cron line, and the two other kinds need none."""

    def misfit(self, line: bytes, zone: bytes) -> str:
        """Say that there are no cron lines here."""
        return "this node knows no cron lines; allowed are EVERY and AT"

    def after(self, line: bytes, zone: bytes, wall: int, count: int) -> list[int]:
        """Return no instants: another node fires them."""
        return []

    def before(self, line: bytes, zone: bytes, since: int, wall: int, count: int) -> list[int]:
        """Return no instants: another node fires them."""
        return []
