"""Given: entries of other nodes that workers of this node hold.

the worker dies, or returns it   --SETTLE(RETURN)--> the node that gave it
the consumer never saw it        --SETTLE(UNSEEN)--> the same
"""

from disqued.core.model.groups import read_scope
from disqued.core.model.messages import RETURN, SETTLE, UNSEEN
from disqued.core.model.state import State
from disqued.core.model.units import GivenUnit
from disqued.core.model.worker import Worker


class GivenEntries:
    """The entries that other nodes gave to workers of this one."""

    __slots__ = ("_bound", "_state")

    def __init__(self, state: State) -> None:
        self._state = state
        self._bound: dict[tuple[bytes, bytes], GivenUnit] = {}  #: by job id and group

    def bind(self, worker: Worker, units: list[GivenUnit], lease_ms: int) -> None:
        """Return entries to the node that gave them, should their worker die within the lease."""
        now = self._state.now
        for unit in units:
            worker.started += 1
            unit.bind(worker, now)
            self._bound[unit.id, _group_of(unit)] = unit
            self._state.schedule.add(unit, now + lease_ms)

    def lapsed(self, unit: GivenUnit) -> None:
        """The lease is over: the node that gave the entry hands it out again."""
        self._let_go(unit)

    def settled(self, job_id: bytes, group_name: bytes) -> None:
        """An entry was acknowledged or returned: no worker has it any more."""
        unit = self._bound.get((job_id, group_name))
        if unit is not None:
            if unit.worker is not None:
                unit.worker.done += 1
            self._let_go(unit)

    def _let_go(self, unit: GivenUnit) -> None:
        self._bound.pop((unit.id, _group_of(unit)), None)
        self._state.schedule.cancel(unit)
        unit.unbind()

    def returned(self, unit: GivenUnit) -> bool:
        """Return an entry of a dead worker to the node that gave it; says whether that node can be reached."""
        self._let_go(unit)
        return self._state.send(unit.granter, (SETTLE, unit.queue, _group_of(unit), 0, RETURN, (unit.id,)))

    def give_back(self, unit: GivenUnit) -> None:
        """Return an entry that its consumer never saw to the node that gave it."""
        self._let_go(unit)
        self._state.send(unit.granter, (SETTLE, unit.queue, unit.scope, 0, UNSEEN, (unit.id,)))

    def clear(self) -> None:
        """Forget everything; the schedule is gone too."""
        for unit in list(self._bound.values()):
            unit.unbind()
        self._bound.clear()


def _group_of(unit: GivenUnit) -> bytes:
    name, _ = read_scope(unit.scope) or (b"", 0)
    return name
