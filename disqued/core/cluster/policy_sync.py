"""Keeping the policies of queues, and schedules, the same on all nodes.

    set here, or learnt  --POLICY(number, some registers)--> every node with a link, but the one that told
    a link opens         --POLICY(number, the first 100)---> that node, then the next ones until it has all
    the other node       <--POLICY(number)------------------ I have these; more, please

The fields of a queue that may expire (`idleness`) follow the account of its use, without which a node could drop them
as expired.  A node that reports an outdated expiry receives all fields of the queue.

A node hands on only what was new to it, so the telling ends.  What is not answered is said again.  A node that was
away learns everything when a link opens.

The latest word counts everywhere: a node that learns a newer pause forgets what was said of the queue on it alone.

Times are integer milliseconds of the monotonic clock; registers have unix milliseconds.
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Final

from disqued.core.cluster.federation import Federation
from disqued.core.model.calendar import LastFiring, Refusal
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import PAUSE, POLICIES_PER_MESSAGE, POLICY
from disqued.core.model.outbox import POLICY as POLICY_RECORD
from disqued.core.model.policies import (
    AHEAD_MS,
    EXPIRING_FIELDS,
    GATE_FIELDS,
    IDLE_FIELDS,
    PAUSE_FIELD,
    SCHEDULE_FIELDS,
    SCHEDULE_FIRED_FIELD,
    SCHEDULE_REFUSED_FIELD,
    SCHEDULE_RUN_FIELDS,
    THROTTLE_FIELDS,
    THROTTLE_MAX_MS,
    USE_FIELD,
    PauseSetting,
    Place,
    Policy,
    Register,
    Value,
    empty_value,
    size_of,
)
from disqued.core.model.queues import PAUSE_OUT
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.unfinished import QuietParts
from disqued.core.work.queueing import Queueing

ANSWER_MS: Final = 2_000  #: how long an answer is waited for before the same is said again; then twice as long
ANSWER_MAX_MS: Final = 60_000
MESSAGE_BYTES: Final = 1 << 18  #: of names and values, after which a message is full
SWEEP_MS: Final = 3_600_000  #: how often registers are looked through for outdated ones
SWEPT_PER_PART: Final = 1_000


class PolicyRound(Timed):
    """What one node has yet to learn."""

    __slots__ = ("awaited", "left", "node_id", "patience_ms", "told")

    def __init__(self, node_id: bytes, places: list[Place]) -> None:
        self.awake_at = 0
        self.node_id: bytes = node_id
        self.left: dict[Place, None] = dict.fromkeys(places)  #: not told yet, in this order
        self.told: list[Place] = []  #: in the message whose answer is waited for
        self.awaited: int = 0  #: number of that message; 0 = none
        self.patience_ms: int = ANSWER_MS


class Policies(Timed, Machine):
    """The machine that sets registers and tells them to other nodes; it is due when outdated ones are forgotten."""

    __slots__ = ("_federation", "_machines", "_queueing", "_rounds", "_state")

    def __init__(self, state: State, queueing: Queueing, federation: Federation, machines: Sequence[Machine]) -> None:
        self.awake_at = 0
        self._state = state
        self._queueing = queueing
        self._federation = federation
        self._machines = machines
        self._rounds: dict[bytes, PolicyRound] = {}

    def hears(self) -> dict[int, Hear]:
        return {POLICY: self.on_policy, PAUSE: self.on_pause}

    def due_table(self) -> Acts:
        return on(PolicyRound, self.round_due) | on(Policies, Policies.due)

    # Setting.

    def set_pause(self, name: bytes, value: PauseSetting) -> None:
        """Pause a queue in the whole cluster, or end that."""
        self.set(name, {PAUSE_FIELD: value})

    def set(self, name: bytes, values: Mapping[int, Value]) -> None:
        """Set fields of the policy of a queue in the whole cluster; the empty value unsets a field."""
        state = self._state
        new: list[Place] = []
        for field, value in values.items():
            register = state.queues.policies.succeed(name, field, state.node_id, state.wall, value)
            if self._learn(name, field, register):
                new.append((name, field))
        if name in state.queues.policies.idle and not EXPIRING_FIELDS.isdisjoint(values):
            self.note_use(name)
        self._tell(new, b"")

    def note_use(self, name: bytes) -> None:
        """Let the whole cluster know that a queue is in use, which expires when nobody says so for its span."""
        policies = self._state.queues.policies
        known = policies.registers.get((name, USE_FIELD))
        last = 0 if known is None else known.counter
        self.reach(name, USE_FIELD, (last | 1) + 1, (policies.floor_of(name),))

    def settle(self, name: bytes, instant: int, firing: LastFiring) -> None:
        """Note in the whole cluster that an instant of a schedule is over, and what became of it."""
        self.reach(name, SCHEDULE_FIRED_FIELD, instant, firing)

    def refuse(self, name: bytes, refusal: Refusal) -> None:
        """Note in the whole cluster why the job of an instant is refused."""
        self.reach(name, SCHEDULE_REFUSED_FIELD, self._state.wall, refusal)

    def reach(self, name: bytes, field: int, counter: int, value: Value) -> None:
        """Set a field whose counter is a time in the whole cluster, unless a later one says as much."""
        state = self._state
        if self._learn(name, field, Register(counter, state.node_id, state.wall, value)):
            self._tell([(name, field)], b"")

    def tell_all_of(self, name: bytes) -> None:
        """Let all nodes with a link learn again what expires with a queue."""
        registers = self._state.queues.policies.registers
        self._tell([(name, field) for field in sorted(EXPIRING_FIELDS) if (name, field) in registers], b"")

    def pause_here(self, name: bytes, pause: int) -> None:
        """Set the PAUSE_... bits of a queue on this node alone."""
        before = self._pause_of(name)
        self._queueing.set_pause(name, pause)
        self._follow(name, before)

    def _pause_of(self, name: bytes) -> int:
        queue = self._state.queues.by_name.get(name)
        return 0 if queue is None else queue.pause

    def _follow(self, name: bytes, before: int) -> None:
        """Let the machines know that a queue may be paused in another way than before."""
        queue = self._state.queues.by_name.get(name)
        if queue is None or queue.pause == before:
            return
        self._federation.holds_changed(queue)
        if not queue.pause & PAUSE_OUT:
            for machine in self._machines:
                machine.queue_resumed(queue)

    # Learning.

    def on_policy(self, sender: bytes, number: int, policies: tuple[Policy, ...]) -> None:
        """Learn registers, hand on those that are new, and answer; or hear that a node has what it was told.

        An outdated one that nothing is known of here was forgotten, and stays so.  An instant of a schedule that is far
        ahead comes of a wrong clock, and would keep the schedule from coming until then; so does the end of a throttle
        that is further ahead than the longest one.
        """
        if not policies:
            self._answered(sender, number)
            return
        wall = self._state.wall
        table = self._state.queues.policies
        new: list[Place] = []
        for name, field, register in policies:
            if (name, field) not in table.registers and table.is_outdated(name, field, register, wall):
                continue
            if table.has_expired(name, field, register):
                continue
            known = table.registers.get((name, field))
            if field == USE_FIELD and known is not None and register < known and register.counter & 1:
                self.tell_all_of(name)
            if field in SCHEDULE_RUN_FIELDS and register.counter > wall + AHEAD_MS:
                continue
            if field in THROTTLE_FIELDS and register.counter > wall + THROTTLE_MAX_MS + AHEAD_MS:
                continue
            if self._learn(name, field, register):
                new.append((name, field))
        self._tell(new, sender)
        self._state.send(sender, (POLICY, number, ()))

    def _learn(self, name: bytes, field: int, register: Register) -> bool:
        """Enter a register, and follow it; return whether it says more than what was known."""
        state = self._state
        if not state.queues.policies.merge(name, field, register):
            return False
        if state.journaling:
            known = state.queues.policies.registers[name, field]
            state.outbox.journal.append((POLICY_RECORD, name, field, known))
        self.plan()
        if field == PAUSE_FIELD:
            self._follow_pause(name)
        else:
            self._announce(name, field)
        return True

    def _announce(self, name: bytes, field: int) -> None:
        """Let the machines know that a register is another one than before, or is gone."""
        for machine in self._machines:
            if field in SCHEDULE_FIELDS:
                machine.schedule_changed(name)
            elif field in GATE_FIELDS:
                machine.gate_changed(name, field)
            elif field in IDLE_FIELDS:
                machine.idle_changed(name)

    def _follow_pause(self, name: bytes) -> None:
        """Let a queue be paused as the cluster says now; what was said of it on this node alone is over."""
        before = self._pause_of(name)
        queue = self._state.queues.by_name.get(name)
        if queue is not None and queue.pause_here:
            self._queueing.set_pause(name, 0)
        else:
            self._queueing.follow_policy(name)
        self._follow(name, before)

    def on_pause(self, sender: bytes, name: bytes, pause: int) -> None:
        """Pause a queue on this node alone, as a node of an older version asks for.

        A queue that is not here is not paused so when memory is full.
        """
        state = self._state
        if name in state.queues.by_name or state.memory.level < 3:
            self.pause_here(name, pause)

    # Telling.

    def _tell(self, places: list[Place], source: bytes) -> None:
        """Let all nodes with a link learn registers, but the one that told of them."""
        if not places:
            return
        for node_id in self._state.peers.linked:
            if node_id == source:
                continue
            this = self._rounds.get(node_id)
            if this is None:
                this = self._rounds[node_id] = PolicyRound(node_id, [])
            this.left.update(dict.fromkeys(places))
            if not this.awaited:
                self._go_on(this)

    def link_opened(self, node_id: bytes) -> None:
        """Tell a node everything."""
        self._end(node_id)
        registers = self._state.queues.policies.registers
        if registers:
            this = self._rounds[node_id] = PolicyRound(node_id, list(registers))
            self._go_on(this)

    def greeted(self, node_id: bytes) -> None:
        """The link of a node to this one has opened: it may have forgotten what this node told it before."""
        if node_id in self._state.peers.linked and node_id not in self._rounds:
            self.link_opened(node_id)

    def link_closed(self, node_id: bytes) -> None:
        """Tell a node no more: it learns everything when the next link opens."""
        self._end(node_id)

    def _end(self, node_id: bytes) -> None:
        this = self._rounds.pop(node_id, None)
        if this is not None:
            self._state.schedule.cancel(this)

    def _go_on(self, this: PolicyRound) -> None:
        """Tell a node the next registers; the round ends when it has all."""
        state = self._state
        registers = state.queues.policies.registers
        policies: list[Policy] = []
        this.told = []
        size = 0
        for place in list(islice(this.left, POLICIES_PER_MESSAGE)):
            name, field = place
            use = registers.get((name, USE_FIELD)) if field in EXPIRING_FIELDS else None
            if size >= MESSAGE_BYTES or len(policies) + (use is not None) >= POLICIES_PER_MESSAGE:
                break
            del this.left[place]
            register = registers.get(place)
            if register is not None:
                if use is not None:
                    policies.append((name, USE_FIELD, use))
                policies.append((name, field, register))
                this.told.append(place)
                size += len(name) + size_of(register.value)
        if not policies and this.left:
            self._await(this, 0, 1)
            return
        number = state.numbers.next_number()
        if policies and state.send(this.node_id, (POLICY, number, tuple(policies))):
            self._await(this, number, this.patience_ms)
        else:
            self._end(this.node_id)

    def _await(self, this: PolicyRound, number: int, in_ms: int) -> None:
        this.awaited = number
        self._state.schedule.move(this, self._state.now + in_ms)

    def _answered(self, sender: bytes, number: int) -> None:
        """A node has what it was told: tell it more, if there is more."""
        this = self._rounds.get(sender)
        if this is not None and this.awaited == number:
            this.awaited = 0
            this.patience_ms = ANSWER_MS
            self._go_on(this)

    def round_due(self, this: PolicyRound) -> None:
        """Say again what was not answered, or go on."""
        if self._rounds.get(this.node_id) is not this:
            return
        if this.awaited:
            this.patience_ms = min(2 * this.patience_ms, ANSWER_MAX_MS)
            this.left = dict.fromkeys((*this.told, *this.left))
        self._go_on(this)

    # Forgetting.

    def plan(self) -> None:
        """See to it that outdated registers are forgotten, if there are any registers."""
        if not self.awake_at and len(self._state.queues.policies):
            self._state.schedule.add(self, self._state.now + SWEEP_MS)

    def resume(self) -> None:
        """Plan again, after all deadlines were dropped, or after a start."""
        self.awake_at = 0
        self.plan()

    def due(self) -> None:
        """Look for outdated registers."""
        self._state.work(self._sweep())
        self.plan()

    def _sweep(self) -> QuietParts:
        state = self._state
        policies = state.queues.policies
        for count, place in enumerate(list(policies.registers), 1):
            register = policies.registers.get(place)
            if register is not None and policies.is_outdated(*place, register, state.wall):
                self.forget(*place)
            if count % SWEPT_PER_PART == 0:
                yield

    def forget(self, name: bytes, field: int) -> None:
        """Forget a register that is outdated."""
        state = self._state
        state.queues.policies.forget(name, field)
        if state.journaling:
            gone = Register(0, state.node_id, state.wall, empty_value(field))
            state.outbox.journal.append((POLICY_RECORD, name, field, gone))
        self._announce(name, field)

    # The whole node.

    def flushing(self) -> None:
        """The schedule is about to be dropped: nobody is told any more in this life of it."""
        for this in self._rounds.values():
            self._state.schedule.cancel(this)

    def flushed(self) -> None:
        """Go on telling, and plan to forget."""
        for this in self._rounds.values():
            self._await(this, this.awaited, this.patience_ms)
        self.resume()
