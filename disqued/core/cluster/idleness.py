"""Idleness: a queue that nobody uses for its span expires: it forgets its policy and its figures on every node.

    use of a queue   jobs that a node knows, copies and delayed ones included; events; consumers that wait; a pause;
                     a job that was queued or handed out, or a field that was set, within the span

    a node uses it, half a span after the last word of use    --USE(even)--> all: each waits for a span from then on
    no word for a span, `GRACE_MS` over, every node reachable --USE(odd, floor)--> all: fields up to the floor expire
    a node that uses it hears that it has expired             --USE(even)--> all, and the fields: it has not

The words are a register of `policy_sync`; `model.policies` says what its counter and its value are.  Jobs have no part
in this: a queue that expires has none on any node, and one that is added at that moment is there as any other, with the
defaults of the queue or without them, as when an operator unsets these.

    a node that is away    nothing expires until it is back, or is forgotten (CLUSTER FORGET); when it is back it has a
                           span to tell of use
    one that was forgotten and comes back    its fields are not above the floor: they expire there, and are not learnt;
                           unless it has jobs of the queue, whose policy is then in use again
    a word that is late    the latest one counts, and who uses a queue has it; who has dropped the fields learns them
                           again

Clocks of nodes are not compared: each measures a span on its own monotonic clock, after a start from the start on.
Times are integer milliseconds.  Source: the RabbitMQ manual, "Queue TTL", for what x-expires calls use.
"""

from typing import Final

from disqued.core.cluster.policy_sync import Policies
from disqued.core.model.machine import Acts, Machine, on
from disqued.core.model.peers import FAIL, PFAIL
from disqued.core.model.policies import EXPIRING_FIELDS, USE_FIELD
from disqued.core.model.schedule import Timed
from disqued.core.model.state import QUEUE_IDLE_MS, State

GRACE_MS: Final = 5_000  #: for words of use that are on their way when a span is over


class IdleQueue(Timed):
    """A queue that expires when it is not used; due when its use is looked at."""

    __slots__ = ("floor", "heard_at", "name")

    def __init__(self, name: bytes) -> None:
        self.awake_at = 0
        self.name: bytes = name
        self.heard_at: int = 0  #: when the last word of its use came
        self.floor: int = 0  #: of its fields, as that word had it


class Idleness(Machine):
    """The machine that says which queues are in use, and lets others expire."""

    __slots__ = ("_joined_at", "_policies", "_queues", "_state")

    def __init__(self, state: State, policies: Policies) -> None:
        self._state = state
        self._policies = policies
        self._queues: dict[bytes, IdleQueue] = {}
        self._joined_at = 0  #: when a link to or from another node opened last

    def due_table(self) -> Acts:
        return on(IdleQueue, self.due)

    # Use.

    def _span_ms(self, name: bytes) -> int:
        return self._state.queues.policies.idle[name]

    def _used_at(self, name: bytes) -> int:
        """Return when this node used a queue last: now, if it uses it."""
        queues = self._state.queues
        queue = queues.by_name.get(name)
        if queues.has_jobs(name) or (queue is not None and not queue.is_idle):
            return self._state.now
        used_at = queues.policies.used.get(name, 0)
        return used_at if queue is None else max(used_at, queue.accessed_at)

    def _is_in_use(self, name: bytes) -> bool:
        """Return whether this node has used a queue within its span, if it has one."""
        return name in self._state.queues.policies.idle and (
            self._used_at(name) > self._state.now - self._span_ms(name)
        )

    def due(self, this: IdleQueue) -> None:
        """Say that a queue is in use, or that it has expired, or look again later."""
        if self._queues.get(this.name) is not this:
            return
        state, span_ms = self._state, self._span_ms(this.name)
        elapsed_ms = state.now - this.heard_at
        if self._used_at(this.name) > this.heard_at:
            self._policies.note_use(this.name)
        elif elapsed_ms < span_ms:
            state.schedule.add(this, this.heard_at + span_ms)
        elif state.now < self._ends_at(this, span_ms):
            state.schedule.add(this, self._ends_at(this, span_ms))
        elif self._is_whole():
            self._expire(this.name)
        else:
            state.schedule.add(this, state.now + span_ms // 2)

    def _ends_at(self, this: IdleQueue, span_ms: int) -> int:
        return max(this.heard_at, self._joined_at) + span_ms + GRACE_MS

    def _is_whole(self) -> bool:
        """Return whether every node of the cluster can be heard."""
        peers = self._state.peers.by_id.values()
        return all(peer.linked and not peer.flags & (PFAIL | FAIL) for peer in peers)

    def link_opened(self, node_id: bytes) -> None:
        """A node can be told of use again."""
        self._joined_at = self._state.now

    def greeted(self, node_id: bytes) -> None:
        """A node can tell of use again."""
        self._joined_at = self._state.now

    # Expiry.

    def _expire(self, name: bytes) -> None:
        """Let a queue forget its policy in the whole cluster."""
        registers = self._state.queues.policies.registers
        floor = max(registers[name, field].counter for field in EXPIRING_FIELDS if (name, field) in registers)
        use = registers.get((name, USE_FIELD))
        last = 0 if use is None else use.counter
        self._policies.reach(name, USE_FIELD, (last + 1) | 1, (floor,))

    def idle_changed(self, name: bytes) -> None:
        state = self._state
        policies = state.queues.policies
        use = policies.registers.get((name, USE_FIELD))
        this = self._queues.get(name)
        if use is not None and use.counter & 1 and this is not None and self._is_in_use(name):
            self._revive(this)
            return
        self._drop_expired(name)
        if name not in policies.idle:
            if this is not None and self._queues.pop(name, None) is not None:
                state.schedule.cancel(this)
            return
        if this is None:
            this = self._queues[name] = IdleQueue(name)
        this.heard_at = state.now
        this.floor = policies.floor_of(name)
        state.schedule.move(this, state.now + self._span_ms(name) // 2)

    def _revive(self, this: IdleQueue) -> None:
        """Say that a queue has not expired, for this node uses it; and what its policy is."""
        state = self._state
        use = state.queues.policies.registers[this.name, USE_FIELD]
        self._policies.reach(this.name, USE_FIELD, use.counter + 1, (this.floor,))
        self._policies.tell_all_of(this.name)

    def _drop_expired(self, name: bytes) -> None:
        """Forget the fields of a queue that have expired, and its figures if it has no policy any more."""
        state = self._state
        policies = state.queues.policies
        had = name in policies.idle
        for field in sorted(EXPIRING_FIELDS):
            register = policies.registers.get((name, field))
            if register is not None and policies.has_expired(name, field, register):
                self._policies.forget(name, field)
        queue = state.queues.by_name.get(name)
        if had and name not in policies.idle and queue is not None:
            queue.accessed_at = state.now - QUEUE_IDLE_MS[0]
            state.collect_queue(queue)

    # The whole node.

    def resume(self) -> None:
        """Begin to measure the spans, after a start."""
        self.flushed()

    def flushed(self) -> None:
        """Policies outlive a flush, and the schedule does not."""
        self._queues.clear()
        for name in list(self._state.queues.policies.idle):
            self.idle_changed(name)
