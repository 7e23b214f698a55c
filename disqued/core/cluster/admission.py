"""Admission: a node asks the steward of a limited queue before it hands a job of it out.

    a consumer wants a job   the next ones of the queue are lent (`grouped`), and the steward is asked for their slots
    SLOTS_GIVEN              those are handed out at once; what nobody takes goes back, and so its slot
    waiting                  consumers go on waiting; the next ones are asked for
    held                     the same for want of a slot or a token of the group: this node asks for no more of that
                             group meanwhile, and if it has no others, it asks other nodes for jobs (`federation`)
    a lease ends             the steward hears so
    a job comes back         it is asked for instead of the youngest one of its group that is not given yet

As many jobs are asked for as consumers wait for, beyond those that have to wait, and `WISHES_PER_MESSAGE` at most.
When nobody waits any more they are put back.

Where consumers come fast, more are asked for, and are handed out at once to those who come: twice as many each time
that the last ones were taken within `AHEAD_MS`, half as many when they lasted longer.  As they are taken, the next ones
are asked for; put back is what nobody took since.  So a consumer does not wait for each job; after a stall of the node
it does (`given_until`).  All nodes together keep half of INFLIGHT ahead at most, and nothing of a queue with a
rate: a token that is taken early would be missing meanwhile.

An answer counts for `GIVEN_MS` from the word that it answers (`number`): the steward counts a slot for the retry period
and `SLACK_MS` from when it heard that, so that a job that is handed out in time has its slot as long as a consumer has
it.  WORKING lengthens both, as long as the steward can be reached; a job with RETRY 0 has its slot for `ONCE_MS`.  An
answer to a wish that was withdrawn and made again since does not count.

A worker that moves takes its jobs along.  Its new home reports them from then on; its old home goes on doing so until
the steward knows of the new one, so that there is no moment at which nobody reports them:

    new home  --SLOTS_WANTED(running: 1)--> steward        the slot is the new home's
    steward   --SLOTS_KEEP(1 is the new home's)--> all
    old home  --SLOTS_WANTED(ended: 1)--> steward          changes nothing

Times are integer milliseconds of the monotonic clock.
"""

from typing import Final

from disqued.core.cluster.gates import Gates
from disqued.core.cluster.witnesses import ONCE_MS, SLACK_MS, TOGETHER_MS, Witnesses
from disqued.core.model.blocked import WantedQueues
from disqued.core.model.custody import EndedLeases, SlotHolder
from disqued.core.model.grouped import GroupedUnits
from disqued.core.model.job import (
    ACTIVE,
    FLAG_LEASED,
    FLAG_WITH_CONSUMER,
    RETRY_NEVER_MS,
    WORK_SCOPE,
    Unit,
)
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import SLOTS_GIVEN, SLOTS_WANTED, WISHES_PER_MESSAGE, SlotWish
from disqued.core.model.outbox import UNIT_DONE
from disqued.core.model.queues import LIMITED, Queue
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.unfinished import AT_ONCE
from disqued.core.work.delivery import Delivery

GIVEN_MS: Final = 4_000
SAID_AGAIN_MS: Final = 2_000  #: how often the steward hears everything
AHEAD_MS: Final = 50  #: how long a job that was asked for ahead waits for a consumer
AHEAD_MAX: Final = 128  #: jobs of a queue that are asked for ahead
AHEAD_PART: Final = 2  #: of INFLIGHT, so that all nodes together keep one such part ahead at most
SAID_MAX: Final = 100  #: words whose time is remembered; an answer to one before these does not count
UNHEARD_MS: Final = 1_000  #: how long who would not wait is kept waiting for the steward


class Wish:
    """A job that is asked for."""

    __slots__ = ("number", "unit", "waits")

    def __init__(self, unit: Unit) -> None:
        self.unit: Unit = unit
        self.number: int = 0  #: of the word in which it was asked for first; 0 = not yet
        self.waits: bool = False  #: the steward has said so


class LimitedQueue(Timed):
    """A limited queue: the jobs that this node asks the steward for, and those that its consumers have."""

    __slots__ = (
        "ahead", "asked_at", "awaited", "chosen_at", "ended", "is_unheard", "moved", "name", "number", "returned",
        "running", "said", "said_all_at", "said_at", "steward", "units", "waiting", "wanted_at", "wishes",
    )  # fmt: skip

    def __init__(self, name: bytes, running: dict[bytes, tuple[Unit, SlotHolder]]) -> None:
        self.awake_at = 0
        self.name: bytes = name
        self.wishes: dict[bytes, Wish] = {}  #: by job, the latest one last
        self.waiting: int = 0  #: how many of these wait, as the steward said
        self.units: GroupedUnits | None = None  #: what was lent of when that was last looked at
        self.running: dict[bytes, tuple[Unit, SlotHolder]] = running  #: as the witness of the queue has it
        #: Those of `running` that consumers of other nodes have now; the steward may not know that yet.
        self.moved: dict[bytes, None] = {}
        self.ended: dict[bytes, None] = {}  #: jobs whose slots are free; the steward has yet to hear so
        self.returned: dict[bytes, None] = {}  #: the same, of jobs that were not handed out: their tokens are, too
        self.number: int = 0  #: of the last word
        self.said: dict[int, int] = {}  #: when the last words were said, by their numbers
        self.said_at: int = 0  #: when the last one was
        self.awaited: int = 0  #: of the last word with wishes that the steward has not answered; 0 = none
        self.said_all_at: int = 0  #: when the steward last heard everything
        self.steward: bytes = b""  #: who heard the last word
        self.ahead: int = 0  #: how many more are asked for than consumers wait
        self.chosen_at: int = 0  #: when that was decided last
        self.wanted_at: int = 0  #: when a consumer waited for a job, or took one, last
        self.asked_at: int = 0  #: since when an answer is awaited; 0 = none is
        self.is_unheard: bool = False  #: the last answer did not come in time

    def drop(self, job_id: bytes) -> Wish:
        """Ask for a job no more; it is one that is asked for."""
        wish = self.wishes.pop(job_id)
        if wish.waits:
            self.waiting -= 1
        return wish


class Admission(Machine):
    """The machine that asks stewards."""

    __slots__ = ("_by_name", "_delivery", "_gates", "_state", "_witnesses")

    def __init__(self, state: State, witnesses: Witnesses, delivery: Delivery, gates: Gates) -> None:
        self._state = state
        self._gates = gates
        self._witnesses = witnesses
        self._delivery = delivery
        self._by_name: dict[bytes, LimitedQueue] = {}

    def hears(self) -> dict[int, Hear]:
        return {SLOTS_GIVEN: self.on_given}

    def due_table(self) -> Acts:
        return on(WantedQueues, self.look_at) | on(EndedLeases, self.ended) | on(LimitedQueue, self.due)

    def of(self, name: bytes) -> LimitedQueue | None:
        """Return what this node asks for and has of a limited queue; None = nothing."""
        return self._by_name.get(name)

    # Events.

    def look_at(self, wanted: WantedQueues) -> None:
        """Consumers want jobs of these queues."""
        self.ended(self._state.custody.over)  # a job that is back is not to be asked for before its slot is free
        queues = list(wanted.queues)
        wanted.queues.clear()
        for queue in queues:
            if queue.holds & LIMITED:
                self._ask(self._limited(queue.name))

    def ended(self, over: EndedLeases) -> None:
        """No consumer of this node has these any more, or another one has."""
        units, over.units = over.units, []
        limited = self._state.custody.limited
        changed: dict[LimitedQueue, None] = {}
        for unit in units:
            this = self._by_name.get(unit.queue)
            if unit in limited:
                if self._is_limited(unit.queue):
                    this = self._limited(unit.queue)
                    self._enter(this, unit)
                    this.steward = b""  # it is to hear that at once
                    changed[this] = None
            elif this is not None and unit.id in this.running:
                if _is_elsewhere(unit):
                    this.moved[unit.id] = None
                else:
                    _remove(this, unit.id)
                changed[this] = None
            elif this is not None and unit.id in this.wishes:
                changed[this] = None  # it was handed out, and is over already
        for this in changed:
            self._ask(this)

    def gate_changed(self, name: bytes, field: int) -> None:
        """Ask again under the new limits; forget a queue that has none any more."""
        this = self._by_name.get(name)
        if this is None:
            return
        queue = self._state.queues.by_name.get(name)
        self._look_after(this, None if queue is None else queue.grouped)
        self._take_back(this, list(this.wishes))
        if self._is_limited(name):
            self._wake(this)
        else:
            self._forget(this)

    def start(self) -> None:
        """Go on with what consumers had before a restart, or a crash."""
        state = self._state
        limited = state.custody.limited  # those that are delivered once
        for name, gate in state.queues.policies.gates.items():
            queue = state.queues.by_name.get(name)
            if gate.is_limited and queue is not None:
                limited.update({unit: SlotHolder(since, b"") for unit, (since, _) in queue.leased.items()})
        for unit, holder in sorted(limited.items(), key=lambda entry: (entry[1].since, entry[0].id)):
            if self._is_limited(unit.queue):
                this = self._limited(unit.queue)
                this.running[unit.id] = (unit, holder)
                self._wake(this)
            else:
                self._end_delivered_once(unit)

    def reachable_changed(self) -> None:
        """The steward may be another node now."""
        for this in self._by_name.values():
            self._wake(this)

    def link_opened(self, node_id: bytes) -> None:
        """A steward may be there again."""
        self.reachable_changed()

    def flushing(self) -> None:
        """All jobs are gone, and the schedule with them."""
        for this in self._by_name.values():
            this.ended.update(dict.fromkeys(this.running))
            this.running.clear()
            this.moved.clear()
            this.wishes.clear()
            this.waiting = 0

    def flushed(self) -> None:
        """Stewards are to hear that nothing is left."""
        for this in self._by_name.values():
            this.awake_at = 0
            self._wake(this)

    def due(self, this: LimitedQueue) -> None:
        """Say what is new, and from time to time everything."""
        self.ended(self._state.custody.over)
        if self._by_name.get(this.name) is this:
            self._ask(this)

    def _wake(self, this: LimitedQueue) -> None:
        self._state.schedule.move(this, AT_ONCE)

    def _limited(self, name: bytes) -> LimitedQueue:
        this = self._by_name.get(name)
        if this is None:
            this = self._by_name[name] = LimitedQueue(name, self._witnesses.of(name).running)
        return this

    def _is_limited(self, name: bytes) -> bool:
        gate = self._state.queues.policies.gates.get(name)
        return gate is not None and gate.is_limited

    def _forget(self, this: LimitedQueue) -> None:
        self._state.schedule.cancel(this)
        del self._by_name[this.name]
        for unit, _ in this.running.values():
            if not unit.options.retry_ms:
                self._end_delivered_once(unit)
        self._release(this)

    # Asking.

    def _ask(self, this: LimitedQueue) -> None:
        """Let the steward hear what is wanted, what is running and what has ended."""
        queue = self._state.queues.by_name.get(this.name)
        units = None if queue is None else queue.grouped
        self._end_those_delivered_once(this)
        self._end_those_moved(this)
        self._look_after(this, units)
        wanted = 0 if queue is None else _wanted(queue)
        if wanted or (this.ahead and self._state.now - this.wanted_at < AHEAD_MS):
            if queue is not None and units is not None:
                self._wish(this, units, wanted + (self._ahead_of(this) if wanted else this.ahead))
                if wanted and units.has_to_wait:
                    self._gates.lacking(queue)  # other nodes may have jobs of other groups
        elif this.wishes:
            this.ahead = 0
            self._take_back(this, list(this.wishes))
            if queue is not None:
                self._gates.opened(queue)  # consumers of other nodes may want them
        self._say(this)
        if not _has_open(this, units):
            self._release(this)
        elif this.is_unheard or not self._can_say(this.steward):
            self._release(this)  # nobody is to wait for that again and again
        elif not this.asked_at:
            this.asked_at = self._state.now
        elif self._state.now - this.asked_at >= UNHEARD_MS:
            this.is_unheard = True
            self._release(this)
        self._plan(this)

    def _end_those_delivered_once(self, this: LimitedQueue) -> None:
        """Free the slots of jobs that nothing takes from a consumer, when that lasts for long."""
        since = self._state.now - ONCE_MS
        for job_id, (unit, holder) in list(this.running.items()):
            if holder.since > since:
                return
            if not unit.options.retry_ms:
                del this.running[job_id]
                self._end_delivered_once(unit)
                this.ended[job_id] = None

    def _end_those_moved(self, this: LimitedQueue) -> None:
        """Leave jobs to the nodes whose consumers have them now, as soon as the steward knows; or they are over."""
        slots = self._witnesses.of(this.name).table.by_id
        for job_id in list(this.moved):
            unit = this.running[job_id][0]
            slot = slots.get(job_id)
            if not _is_elsewhere(unit) or (slot is not None and slot.node_id == self._home_of(unit)):
                _remove(this, job_id)

    def _home_of(self, unit: Unit) -> bytes:
        """Return the node whose consumer has a job, as far as this one knows."""
        home = self._state.custody.elsewhere.get(unit.job)
        return self._state.queue(unit.queue).elsewhere[unit][1] if home is None else home.node_id

    def _enter(self, this: LimitedQueue, unit: Unit) -> None:
        """Note that a consumer of this node has a job."""
        this.running[unit.id] = (unit, self._state.custody.limited[unit])
        this.moved.pop(unit.id, None)
        this.ended.pop(unit.id, None)

    def _end_delivered_once(self, unit: Unit) -> None:
        """Free the slot of a job that nobody gets a second time; to the journal it is done now."""
        state = self._state
        if state.custody.limited.pop(unit, None) is not None and state.journaling:
            state.outbox.journal.append((UNIT_DONE, unit.id, WORK_SCOPE))

    def _look_after(self, this: LimitedQueue, units: GroupedUnits | None) -> None:
        """See what became of what was asked for: handed out, given and not taken, overtaken, or not there any more."""
        if units is None or units is not this.units:
            this.units = units
            self._see_all(this, units)
        elif units.given and (not this.ahead or self._state.now >= units.given_until):
            self._see_all(this, units)
            self._take_back(this, [unit.id for unit in units.given if unit.id in this.wishes])
        else:
            for unit in units.ended_loans:
                wish = this.wishes.get(unit.id)
                if wish is not None and wish.unit is unit and unit not in units.lent:
                    self._see(this, unit)
        if units is not None:
            units.ended_loans.clear()
            if units.has_new_first:
                units.has_new_first = self._let_older_pass(this, units)

    def _see_all(self, this: LimitedQueue, units: GroupedUnits | None) -> None:
        """See what became of everything that was asked for and is not lent any more."""
        for wish in list(this.wishes.values()):
            if units is None or wish.unit not in units.lent:
                self._see(this, wish.unit)

    def _see(self, this: LimitedQueue, unit: Unit) -> None:
        """See what became of a job that was asked for and is not lent any more."""
        this.drop(unit.id)
        this.wanted_at = self._state.now
        if unit.state == ACTIVE and unit.flags & FLAG_LEASED:
            self._state.custody.limited.setdefault(unit, SlotHolder(self._state.now, b""))
            self._enter(this, unit)
        else:
            this.ended[unit.id] = None

    def _let_older_pass(self, this: LimitedQueue, units: GroupedUnits) -> bool:
        """Ask for jobs that came back instead of younger ones of their groups that are not given yet, if there are any.

        All wishes are of units that are lent: one that was handed out and is back already has been seen before.
        Returns whether any job passed.
        """
        passed = False
        for job_id, wish in reversed(list(this.wishes.items())):
            older = None if wish.unit in units.given else units.lend_older(wish.unit)
            if older is not None:
                self._take_back(this, [job_id])
                this.wishes[older.id] = Wish(older)
                passed = True
        return passed

    def _take_back(self, this: LimitedQueue, job_ids: list[bytes]) -> None:
        """Ask for these jobs no more."""
        queue = self._state.queues.by_name.get(this.name)
        for job_id in job_ids:
            wish = this.drop(job_id)
            if queue is not None and queue.grouped is not None:
                queue.grouped.take_back(wish.unit)
            if wish.number:
                this.returned[job_id] = None

    def _wish(self, this: LimitedQueue, units: GroupedUnits, wanted: int) -> None:
        """Choose further jobs to ask for."""
        open_count = len(this.wishes) - this.waiting
        while open_count < wanted and len(this.wishes) < WISHES_PER_MESSAGE and units.ready_count:
            unit = units.lend()
            this.wishes[unit.id] = Wish(unit)
            open_count += 1

    def _ahead_of(self, this: LimitedQueue) -> int:
        """Decide how many more are asked for than consumers wait, of whom there are some."""
        now = self._state.now
        limits = self._state.queues.policies.limits_of(this.name)
        most = AHEAD_MAX
        if limits.rate is not None or limits.group_rate is not None:
            most = 0
        elif limits.in_flight:
            most = min(most, limits.in_flight // (AHEAD_PART * (len(self._state.peers.by_id) + 1)))
        this.ahead = min(most, max(1, 2 * this.ahead)) if now - this.chosen_at <= AHEAD_MS else this.ahead // 2
        this.chosen_at = this.wanted_at = now
        return this.ahead

    def _say(self, this: LimitedQueue) -> None:
        """Tell the steward what is new to it; everything, if it has not heard that for long."""
        state = self._state
        steward = self._witnesses.steward_of(this.name)
        is_whole = steward != this.steward or state.now - this.said_all_at >= SAID_AGAIN_MS
        fresh: list[Wish] = []
        for wish in reversed(this.wishes.values()):
            if wish.number:
                break
            fresh.append(wish)
        fresh.reverse()
        if not (fresh or this.ended or this.returned or (is_whole and (this.wishes or this.running or this.number))):
            return
        if not self._can_say(steward) or (not is_whole and _is_gathering(this, self._state.now)):
            return
        this.number += 1
        this.said[this.number] = this.said_at = state.now
        this.said.pop(this.number - SAID_MAX, 0)
        told = list(this.wishes.values()) if is_whole else fresh
        if fresh:
            this.awaited = this.number
        for wish in fresh:
            wish.number = this.number
        wishes = tuple(_wish_of(wish.unit) for wish in told)
        running = self._witnesses.running(this.name) if is_whole else ()
        ended = tuple(job_id for job_id in this.ended if job_id not in this.running)
        returned = tuple(job_id for job_id in this.returned if job_id not in this.running)
        this.ended.clear()
        this.returned.clear()
        this.steward = steward
        if is_whole:
            this.said_all_at = state.now
        epoch, boot = self._witnesses.of(this.name).promised[0], self._witnesses.boot
        if steward == state.node_id:
            own = self._witnesses.own_words
            own.words.append((this.name, epoch, boot, this.number, is_whole, wishes, running, ended, returned))
            state.schedule.move(own, AT_ONCE)
        else:
            said = (this.name, epoch, boot, this.number, is_whole, wishes, running, ended, returned)
            state.send(steward, (SLOTS_WANTED, *said))

    def _can_say(self, steward: bytes) -> bool:
        """Return whether a steward can be told anything now."""
        return steward == self._state.node_id or steward in self._state.peers.linked

    def _plan(self, this: LimitedQueue) -> None:
        state = self._state
        if this.wishes or this.running or this.ended or this.returned:
            is_waiting = this.asked_at or this.moved
            pause_ms = AHEAD_MS if this.ahead and this.wishes else UNHEARD_MS if is_waiting else SAID_AGAIN_MS
            queue = state.queues.by_name.get(this.name)
            if _is_gathering(this, self._state.now):
                pause_ms = TOGETHER_MS
            if this.wishes and not this.ahead and (queue is None or not queue.is_awaited):
                pause_ms = 1  # who has been let go wants them no more
            state.schedule.move(this, state.now + pause_ms)
        else:
            state.schedule.cancel(this)

    # Answers.

    def on_given(  # noqa: PLR0917 - the fields of the message
        self, sender: bytes, name: bytes, epoch: int, boot: int, number: int, given: tuple[bytes, ...],
        waiting: tuple[bytes, ...], held: tuple[bytes, ...],
    ) -> None:  # fmt: skip
        """Hand out what the steward has given, if it is not too late."""
        this = self._by_name.get(name)
        queue = self._state.queues.by_name.get(name)
        if boot != self._witnesses.boot or not self._witnesses.follow(name, (epoch, sender)):
            return
        if this is None or queue is None or queue.grouped is None:
            return
        this.is_unheard = False
        if number >= this.awaited:
            this.awaited = 0
        since = self._state.now - GIVEN_MS
        units = queue.grouped
        said_at = this.said.get(number, since - 1)
        is_timely = said_at >= since
        if is_timely:
            until = said_at + GIVEN_MS
            units.given_until = min(units.given_until, until) if units.given else until
        for job_id in given if is_timely else ():
            wish = this.wishes.get(job_id)
            if wish is not None and 0 < wish.number <= number and wish.unit in units.lent:
                units.give(wish.unit)
        for job_id in (*waiting, *held):
            wish = this.wishes.get(job_id)
            if wish is not None and not wish.waits:
                wish.waits = True
                this.waiting += 1
        for job_id in held:
            wish = this.wishes.get(job_id)
            if wish is not None:
                units.hold(wish.unit)
        if units.given:
            self._state.ready[queue] = None
            self._delivery.serve()
        self._wake(this)

    def _release(self, this: LimitedQueue) -> None:
        """Who would not wait has waited long enough, and who named other queues behind this one as well."""
        this.asked_at = 0
        queue = self._state.queues.by_name.get(this.name)
        if queue is not None and queue in self._state.waiting.asking:
            self._delivery.heard_steward(queue)


def _is_gathering(this: LimitedQueue, now: int) -> bool:
    """Return whether news for the steward waits for its answer to the last word, to be said in one message."""
    return this.awaited > 0 and now - this.said_at < TOGETHER_MS


def _has_open(this: LimitedQueue, units: GroupedUnits | None) -> bool:
    """Return whether the steward has yet to answer."""
    given = {} if units is None else units.given
    for wish in reversed(this.wishes.values()):  # noqa: SIM110 - a generator takes longer, and this is for each job
        if not wish.waits and wish.unit not in given:
            return True
    return False


def _remove(this: LimitedQueue, job_id: bytes) -> None:
    """Let the steward hear that this node has nothing to do with a job any more."""
    del this.running[job_id]
    this.moved.pop(job_id, None)
    this.ended[job_id] = None


def _wish_of(unit: Unit) -> SlotWish:
    return SlotWish(unit.id, unit.order_key, unit.options.terms.group, _span_of_lease(unit))


def _is_elsewhere(unit: Unit) -> bool:
    """Return whether a consumer of another node has a job, and none of this one."""
    with_consumer = unit.flags & FLAG_WITH_CONSUMER
    return unit.state == ACTIVE and with_consumer != 0 and not with_consumer & FLAG_LEASED


def _span_of_lease(unit: Unit) -> int:
    return min((unit.options.retry_ms or ONCE_MS) + SLACK_MS, RETRY_NEVER_MS)


def _wanted(queue: Queue) -> int:
    """Count the jobs that waiting consumers of a queue can take, up to a bound."""
    wanted = 0
    for waiter in queue.waiters:
        wanted += waiter.form.count
        if wanted >= WISHES_PER_MESSAGE:
            return WISHES_PER_MESSAGE
    return wanted or int(bool(queue.watchers))
