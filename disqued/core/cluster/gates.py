"""Gates of queues: FAIR and THROTTLE come into effect on this node, and throttles end.

    register learnt, or forgotten --gate_changed--> the queue follows its gate; its jobs are sorted into groups, or not
    the end of a throttle is due  --> the register is forgotten --gate_changed--> the queue hands out again

A throttle is a register of `policy_sync` whose counter is its end: of several that are set the latest end counts on
every node, a store keeps it over a restart, and a node that was away learns it.  Nobody ends one before its time.

The end is a time of the wall clock, as the instants of schedules are: between nodes whose clocks differ, a throttle
ends as much earlier or later.  Each node measures what is left of it with its monotonic clock from the moment in which
it learns of it, so that a clock that is set afterwards changes nothing.

Consumers that wait go on waiting, and are served when a throttle ends.  Times are integer milliseconds.
"""

from collections.abc import Iterator
from typing import Final

from disqued.core.cluster.federation import Federation
from disqued.core.cluster.policy_sync import Policies
from disqued.core.model.gates import throttle_name
from disqued.core.model.machine import Acts, Machine, on
from disqued.core.model.outbox import HERE_ALONE, WORK, Notification
from disqued.core.model.policies import (
    AHEAD_MS,
    GROUP_THROTTLE_FIELD,
    THROTTLE_FIELD,
    THROTTLE_FIELDS,
    THROTTLE_MAX_MS,
    Place,
    queue_of_gate,
)
from disqued.core.model.queues import HOLDS_ALL, Queue
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.unfinished import QuietParts
from disqued.core.work.delivery import Delivery

SORTED_AT_ONCE: Final = 50  #: jobs of a queue that are sorted into groups at once; more are sorted bit by bit
RELEASED_PER_PART: Final = 2_000  #: entries of groups that are freed at a time


class ThrottleEnd(Timed):
    """The end of a throttle that is in effect."""

    __slots__ = ("place",)

    def __init__(self, place: Place) -> None:
        self.awake_at = 0
        self.place: Place = place


class Gates(Machine):
    """The machine that lets queues follow their gates."""

    __slots__ = ("_delivery", "_ends", "_federation", "_policies", "_state")

    def __init__(self, state: State, policies: Policies, federation: Federation, delivery: Delivery) -> None:
        self._state = state
        self._policies = policies
        self._federation = federation
        self._delivery = delivery
        self._ends: dict[Place, ThrottleEnd] = {}

    def due_table(self) -> Acts:
        return on(ThrottleEnd, self.ended)

    # Throttles.

    def throttle(self, queue: bytes, group: bytes, span_ms: int) -> None:
        """Let a queue, or a group of it, hand nothing out for so long, in the whole cluster; the latest end counts."""
        name, field = place_of_throttle(queue, group)
        self._policies.reach(name, field, self._state.wall + span_ms, (span_ms,))

    def throttled_ms(self, queue: bytes, group: bytes = b"") -> int:
        """Return how long a queue, or a group of it, hands nothing out from now on."""
        end = self._ends.get(place_of_throttle(queue, group))
        return 0 if end is None else max(0, end.awake_at - self._state.now)

    def ended(self, end: ThrottleEnd) -> None:
        """The time of a throttle is over."""
        if self._ends.get(end.place) is end:
            self._policies.forget(*end.place)

    def _plan_end(self, place: Place) -> None:
        """Be woken at the end of a throttle, or not any more if there is none."""
        state = self._state
        register = state.queues.policies.registers.get(place)
        end = self._ends.get(place)
        if register is None:
            if end is not None:
                del self._ends[place]
                state.schedule.cancel(end)
            return
        if end is None:
            end = self._ends[place] = ThrottleEnd(place)
        left_ms = max(1, min(register.counter - state.wall, THROTTLE_MAX_MS + AHEAD_MS))
        state.schedule.move(end, state.now + left_ms)

    # Gates.

    def gate_changed(self, name: bytes, field: int) -> None:
        if field in THROTTLE_FIELDS:
            self._plan_end((name, field))
        queue_name, group = queue_of_gate(name, field)
        queue = self._state.queues.by_name.get(queue_name)
        if queue is not None:
            self._follow(queue, group)

    def _follow(self, queue: Queue, group: bytes) -> None:
        """Let a queue follow its gate, of which what holds for a group of it may have changed (empty = for none)."""
        state = self._state
        gate = state.queues.policies.gates.get(queue.name)
        before = queue.holds
        if queue.grouped is not None and group:
            if gate is not None and group in gate.groups:
                queue.grouped.block(group)
            else:
                queue.grouped.unblock(group)
        old = queue.follow(gate, state.memory)
        if queue.grouped is not None and not queue.grouped.go_on(SORTED_AT_ONCE):
            self._delivery.fall_behind(queue)
        if old is not None:
            state.begin_work(_in_parts(old.release_groups()))
        if (queue.holds ^ before) & HOLDS_ALL:
            self._federation.holds_changed(queue)
        self.opened(queue)

    def opened(self, queue: Queue) -> None:
        """Serve those who wait for a queue that may hand out more than before, and tell those who listen to it."""
        if not queue.holds & HOLDS_ALL and queue.units.ready_count:
            state = self._state
            if queue.is_awaited:
                state.ready[queue] = None
            if state.demand.listeners:
                state.outbox.events.append(Notification(queue.name, WORK, queue.units.ready_count, HERE_ALONE))
            self._federation.look_at(queue.name)

    def lacking(self, queue: Queue) -> None:
        """Ask other nodes for jobs: consumers wait, and those that are here have to wait for their groups."""
        self._federation.local_demand.need([queue])

    # The whole node.

    def resume(self) -> None:
        """Begin to hold what the registers say, after a start."""
        self.flushed()
        queues = self._state.queues
        # The store may have told of a throttle, then of jobs, and then that the throttle is over.
        for queue in list(queues.by_name.values()):
            if queue.holds & ~queue.pause or queue.name in queues.policies.gates:
                self._follow_all(queue)

    def _follow_all(self, queue: Queue) -> None:
        """Let a queue follow its gate that a store told of, in whatever order."""
        self._follow(queue, b"")
        gate = self._state.queues.policies.gates.get(queue.name)
        if queue.grouped is not None and gate is not None:
            queue.grouped.set_blocked(gate.groups)

    def flushed(self) -> None:
        """Throttles outlive a flush, and the schedule does not."""
        self._ends.clear()
        for place in self._state.queues.policies.registers:
            if place[1] in THROTTLE_FIELDS:
                self._plan_end(place)


def place_of_throttle(queue: bytes, group: bytes) -> Place:
    """Return the place of the register of a throttle of a queue, or of a group of it."""
    return (throttle_name(queue, group), GROUP_THROTTLE_FIELD) if group else (queue, THROTTLE_FIELD)


def _in_parts(released: Iterator[int]) -> QuietParts:
    """Let go of groups that are not in use, bit by bit."""
    freed = 0
    for count in released:
        freed += count
        if freed >= RELEASED_PER_PART:
            freed = 0
            yield
