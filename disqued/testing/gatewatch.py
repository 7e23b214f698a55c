"""What a node hands out of queues that are throttled or fair, held against what it knows of them.

    throttled    a queue, or a group, of which the node knows a throttle that is not over hands nothing out
    order        what a grouped queue hands out of a group is older than what it keeps of it
    FAIR         a group waits for no more jobs of others than there were groups when it got ready, or had its last turn

The watch reads registers, queues and leases, and nothing of what `core.model.grouped` keeps.
"""

from collections.abc import Callable

from disqued.core.model.gates import split_throttle_name
from disqued.core.model.job import QUEUED, Unit
from disqued.core.model.ordered import place_of
from disqued.core.model.policies import FAIR_FIELD, GROUP_THROTTLE_FIELD, THROTTLE_FIELD, Register
from disqued.core.model.queues import Queue
from disqued.core.model.state import State
from disqued.testing.pausewatch import PauseWatch

Groups = dict[bytes, list[Unit]]  #: units that wait, oldest first, by group


class _Look:
    """A queue between two steps."""

    def __init__(self, state: State, queue: Queue) -> None:
        registers = state.queues.policies.registers
        fair = registers.get((queue.name, FAIR_FIELD))
        self.queue = queue
        self.is_fair = fair is not None and bool(fair.value)
        self.is_throttled = _lasts(registers.get((queue.name, THROTTLE_FIELD)), state.wall)
        self.jobs_out = queue.jobs_out
        self.moves = (queue.jobs_in, queue.jobs_out)
        self.throttled: set[bytes] = set()
        self.blocked: set[bytes] = set()  #: also groups whose throttle is over, and nobody has looked yet
        self.is_sorted = queue not in state.waiting.behind
        for (name, field), register in registers.items():
            found = split_throttle_name(name) if field == GROUP_THROTTLE_FIELD else None
            if found is not None and found[0] == queue.name:
                self.blocked.add(found[1])
                if _lasts(register, state.wall):
                    self.throttled.add(found[1])
        self.waiting: Groups = {}
        for unit in queue.units:
            self.waiting.setdefault(unit.options.terms.group, []).append(unit)

    def ready(self) -> set[bytes]:
        """The groups that may hand out."""
        return self.waiting.keys() - self.blocked


def _lasts(register: Register | None, wall: int) -> bool:
    return register is not None and register.counter > wall


class GateWatch(PauseWatch):
    """What one process hands out of queues that are throttled or fair."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        #: Of each fair queue and ready group: jobs of others since its last turn, and how many these may be.
        self._waits: dict[tuple[Queue, bytes], tuple[int, int]] = {}
        #: What had come into each queue and left it after the last step that was seen; links end in others.
        self._seen: dict[Queue, tuple[int, int]] = {}

    def over(self, step: Callable[[], None]) -> None:
        """Carry out a step, and look at the queues before and after it."""
        before = [_Look(self._state, queue) for queue in self._state.queues.by_name.values()]
        super().over(step)
        by_name = self._state.queues.by_name
        known = set(by_name.values())
        self._seen = {queue: moves for queue, moves in self._seen.items() if queue in known}
        self._waits = {key: waits for key, waits in self._waits.items() if key[0] in known}
        for look in before:
            queue = look.queue
            if queue in known:
                if self._seen.get(queue) != look.moves:
                    self._forget(queue)
                after = _Look(self._state, queue)
                self._compare(look, after)
                self._seen[queue] = after.moves

    def _forget(self, queue: Queue) -> None:
        """Begin to count again: turns were taken that nobody saw."""
        for key in [key for key in self._waits if key[0] is queue]:
            del self._waits[key]

    def _compare(self, before: _Look, after: _Look) -> None:
        queue = before.queue
        if before.is_throttled and after.is_throttled and queue.jobs_out != before.jobs_out:
            self.broken.append(b"%b, throttled" % queue.name)
        given = {
            name: [unit for unit in units if unit.state != QUEUED and unit in queue.leased]
            for name, units in before.waiting.items()
        }
        for name in before.throttled & after.throttled:
            if given.get(name):
                self.broken.append(b"group %b of %b, throttled" % (name, queue.name))
        if before.is_fair and after.is_fair:
            self._check_order(before, after, given)
        if before.is_fair and after.is_fair and before.is_sorted and after.is_sorted:
            self._check_turns(before, after, given)
        else:
            self._forget(queue)

    def _check_order(self, before: _Look, after: _Look, given: Groups) -> None:
        for name, units in given.items():
            were = set(before.waiting[name])
            kept = [place_of(unit) for unit in after.waiting.get(name, ()) if unit in were]
            if units and kept and max(map(place_of, units)) > min(kept):
                self.broken.append(b"group %b of %b, out of order" % (name, before.queue.name))

    def _check_turns(self, before: _Look, after: _Look, given: Groups) -> None:
        ready, queue = after.ready(), before.queue
        others = {name: sum(len(units) for group, units in given.items() if group != name) for name in ready}
        stayed = before.ready() & ready
        for name in before.waiting.keys() - ready:
            self._waits.pop((queue, name), None)
        for name in ready:
            left = {unit for unit in before.waiting.get(name, ()) if unit.state != QUEUED}
            if name not in stayed or left or (queue, name) not in self._waits:
                self._waits[queue, name] = (0, len(ready) - 1)
                continue
            count, most = self._waits[queue, name]
            if others[name]:
                self._waits[queue, name] = (count + others[name], most)
            if count + others[name] > most:
                self.broken.append(b"%b, not fair to group %b" % (queue.name, name))
