"""Units in groups: those of a queue that is fair to its groups, or of which some groups hand nothing out for now.

A group is the jobs of one queue that have the same GROUP; jobs without one are a group of their own, the empty name.
All units stay in the order of their age, as in `OrderedUnits`: whoever only looks (QPEEK, scans, purges) sees no
difference.  Besides, each group has its own units in order, and the groups that may hand out are *ready*:

    all units, by age      a1 b1 a2 a3 c1 b2 ...
    groups, each by age    a: a1 a2 a3     b: b1 b2     c: c1     d: d1, blocked
    ready, FAIR            ring: a -> b -> c -> a ...             pop_first: a1 b1 c1 a2 b2 a3
    ready, not FAIR        heads: a1 b1 c1, by age                pop_first: a1 b1 a2 a3 c1 b2

FAIR is deficit round robin with a quantum of one and a cost of one for each job, so no deficit is left after a turn:
of k ready groups none waits for more than k-1 jobs of others.  A group that becomes ready goes to the end of the ring.

Whoever limits what a group may have blocks it and unblocks it (`block`, `unblock`), each for a reason of its own.  A
group that is blocked for any reason is neither in the ring nor among the heads, so it costs no search however many jobs
it has: `pop_first`, `head` and `ready_count` know ready groups alone.  The names of blocked groups are remembered,
whether they have units or not.

A queue that becomes grouped is sorted into groups bit by bit, oldest units first (`go_on`).  Units that are not sorted
in yet are not ready.
"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Final

from disqued.core.model.job import Unit
from disqued.core.model.memory import Memory
from disqued.core.model.ordered import OrderedUnits, place_of

READY_GROUP_COST: Final = 440  #: bytes of a group of which units wait, without its name: its blocks, its places
_BEFORE_ALL: Final = (-(1 << 63), b"")  #: a place in front of every unit

# Why a group is blocked: bits.
THROTTLED_GROUP: Final = 1
WAITING_GROUP: Final = 2  #: a unit of it is lent, and has to wait for a slot or a token of its group
PASSED_OVER: Final = 4  #: for a moment, as somebody cannot use its units

_NO_UNITS: Final = OrderedUnits()


class JobGroup:
    """The units of one group that wait in a queue; there is at least one."""

    __slots__ = ("name", "units")

    def __init__(self, name: bytes) -> None:
        self.name: bytes = name
        self.units: OrderedUnits = OrderedUnits()


class GroupedUnits(OrderedUnits):
    """Units in order, of which `pop_first` takes those of ready groups alone."""

    __slots__ = ("_blocked", "_cost", "_groups", "_heads", "_held", "_memory", "_ready", "_ring", "_sorted_to",
                 "ended_loans", "given", "given_until", "has_new_first", "held_groups", "is_fair", "lent")  # fmt: skip

    def __init__(self, units: OrderedUnits, memory: Memory, *, is_fair: bool, blocked: Iterable[bytes] = ()) -> None:
        """Take over the units of a queue, which are not sorted into groups yet: see `go_on`."""
        super().__init__(units)
        self._memory = memory
        self.is_fair: bool = is_fair
        self._blocked: dict[bytes, int] = dict.fromkeys(blocked, THROTTLED_GROUP)  #: name: reasons
        self._groups: dict[bytes, JobGroup] = {}
        self._ring: OrderedDict[JobGroup, None] = OrderedDict()  #: ready groups, the next one first; if it is fair
        self._heads: OrderedUnits = OrderedUnits()  #: the first unit of each ready group; if it is not fair
        self._ready = 0  #: units of ready groups
        self._cost = 0  #: bytes that groups take
        #: Units that somebody has taken out of their groups, and that stay in the queue; see `lend`.
        self.lent: dict[Unit, None] = {}
        #: What has changed since who lent them last looked: units that are lent no more; and whether another unit
        #: became the first of its group.
        self.ended_loans: list[Unit] = []
        self.has_new_first: bool = False
        self.given: dict[Unit, None] = {}  #: of these: who lent them may hand them out
        self.given_until: int = 0  #: and no longer than this
        self._held: dict[Unit, None] = {}  #: of these: those that wait for a slot or a token of their group
        self.held_groups: dict[bytes, int] = {}  #: how many of each group; only this class changes it
        #: Place of the last unit that is sorted in, and all before it are; None = every unit is.
        self._sorted_to: tuple[int, bytes] | None = _BEFORE_ALL if self._length else None

    # Groups.

    @property
    def group_count(self) -> int:
        """Groups of which units wait."""
        return len(self._groups)

    @property
    def ready_count(self) -> int:
        """Units that `pop_first` could take, one after the other."""
        return self._ready

    def is_throttled(self, name: bytes) -> bool:
        """Return whether a group is throttled."""
        return self._blocked.get(name, 0) & THROTTLED_GROUP != 0

    def units_of(self, name: bytes) -> OrderedUnits:
        """Return the units of a group that wait; to be read alone."""
        group = self._groups.get(name)
        return _NO_UNITS if group is None else group.units

    def block(self, name: bytes, reason: int = THROTTLED_GROUP) -> None:
        """Let a group hand nothing out, for a reason."""
        before = self._blocked.get(name, 0)
        self._blocked[name] = before | reason
        group = self._groups.get(name)
        if group is not None and not before:
            self._unready(group, group.units.first)
            self._ready -= len(group.units)

    def unblock(self, name: bytes, reason: int = THROTTLED_GROUP) -> None:
        """End a reason; if it was the last one, the turn of the group comes after those of all ready groups."""
        before = self._blocked.get(name, 0)
        if before & ~reason:
            self._blocked[name] = before & ~reason
        elif before:
            del self._blocked[name]
            group = self._groups.get(name)
            if group is not None:
                self._make_ready(group)
                self._ready += len(group.units)

    def set_blocked(self, names: Collection[bytes]) -> None:
        """Let these groups be throttled, and no others."""
        for name in [name for name in self._blocked if name not in names]:
            self.unblock(name)
        for name in names:
            self.block(name)

    def pass_over(self, unit: Unit) -> bool:
        """Give its group the turn back that a unit took which was not handed out; return whether any unit is ready."""
        if self.is_fair:
            group = self._groups.get(unit.options.terms.group)
            if group is not None and group in self._ring:
                self._ring.move_to_end(group, last=False)
        return self._ready > 0

    def go_on(self, count: int) -> bool:
        """Sort so many more units into groups; return whether all are."""
        if self._sorted_to is None:
            return True
        units = list(islice(self.after(self._sorted_to), count))
        for unit in units:
            self._enter(unit)
        self._sorted_to = place_of(units[-1]) if len(units) == count else None
        return self._sorted_to is None

    def _is_sorted_in(self, unit: Unit) -> bool:
        return self._sorted_to is None or place_of(unit) <= self._sorted_to

    def _enter(self, unit: Unit) -> None:
        """Sort a unit into its group."""
        name = unit.options.terms.group
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = JobGroup(name)
            group.units.push(unit)
            self._hold(READY_GROUP_COST + len(name))
            if name not in self._blocked:
                self._make_ready(group)
        else:
            before = group.units.first
            group.units.push(unit)
            if group.units.first is unit and not self.is_fair and name not in self._blocked:
                self._heads.remove(before)
                self._heads.push(unit)
        if self.lent and group.units.first is unit:
            self.has_new_first = True
        if name not in self._blocked:
            self._ready += 1

    def _leave(self, unit: Unit) -> None:
        """Take a unit out of its group, in which it is."""
        name = unit.options.terms.group
        group = self._groups[name]
        before = group.units.first
        group.units.remove(unit)
        if name not in self._blocked:
            self._ready -= 1
            if not len(group.units):
                self._unready(group, before)
            elif before is unit and not self.is_fair:
                self._heads.remove(before)
                self._heads.push(group.units.first)
        if not len(group.units):
            self._forget(group)

    def _make_ready(self, group: JobGroup) -> None:
        if self.is_fair:
            self._ring[group] = None
        else:
            self._heads.push(group.units.first)

    def _unready(self, group: JobGroup, first: Unit) -> None:
        """Take a group from those that are ready, whose first unit is, or was, this one."""
        if self.is_fair:
            del self._ring[group]
        else:
            self._heads.remove(first)

    def _forget(self, group: JobGroup) -> None:
        del self._groups[group.name]
        self._hold(-READY_GROUP_COST - len(group.name))

    def _hold(self, size: int) -> None:
        self._cost += size
        self._memory.used += size

    # Units.

    def push(self, unit: Unit) -> None:
        """Put a unit in its place."""
        super().push(unit)
        if self._is_sorted_in(unit):
            self._enter(unit)

    def pop_first(self) -> Unit:
        """Take the next unit of a ready group; there must be one."""
        unit = self._pop_ready()
        OrderedUnits.remove(self, unit)
        return unit

    def _pop_ready(self) -> Unit:
        if self.is_fair:
            group, _ = self._ring.popitem(last=False)
            unit = group.units.pop_first()
        else:
            unit = self._heads.pop_first()
            group = self._groups[unit.options.terms.group]
            group.units.pop_first()
        self._ready -= 1
        if len(group.units):
            self._make_ready(group)
        else:
            self._forget(group)
        return unit

    def lend(self) -> Unit:
        """Take the next unit of a ready group out of its group, not out of the queue; there must be one.

        It is not the next one again before it is taken back.
        """
        unit = self._pop_ready()
        self.lent[unit] = None
        return unit

    def lend_older(self, unit: Unit) -> Unit | None:
        """Lend the first unit of the group of one that is lent, if it is older; None = it is not.

        If the younger one has to wait for its group, so has the older one.
        """
        name = unit.options.terms.group
        group = self._groups.get(name)
        if group is None or place_of(group.units.first) > place_of(unit):
            return None
        older = group.units.first
        self._leave(older)
        self.lent[older] = None
        if unit in self._held:
            self.hold(older)
        return older

    def hold(self, unit: Unit) -> None:
        """Let a unit that is lent wait for its group, if it is not given: no more of the group is ready meanwhile."""
        if unit in self.lent and unit not in self.given and unit not in self._held:
            name = unit.options.terms.group
            self._held[unit] = None
            self.held_groups[name] = self.held_groups.get(name, 0) + 1
            self.block(name, WAITING_GROUP)

    def give(self, unit: Unit) -> None:
        """Let a unit that is lent be handed out."""
        self._end_hold(unit)
        self.given[unit] = None

    def _end_hold(self, unit: Unit) -> None:
        if unit in self._held:
            name = unit.options.terms.group
            del self._held[unit]
            self.held_groups[name] -= 1
            if not self.held_groups[name]:
                del self.held_groups[name]
                self.unblock(name, WAITING_GROUP)

    @property
    def has_to_wait(self) -> bool:
        """Return whether nothing may be lent, and all that is has to wait for its group."""
        return not self._ready and len(self._held) == len(self.lent) and self._sorted_to is None

    def take_back(self, unit: Unit) -> None:
        """Sort a unit into its group again, if it is still in the queue."""
        if unit in self.lent:
            self._end_loan(unit)
            self._enter(unit)

    def _end_loan(self, unit: Unit) -> None:
        del self.lent[unit]
        self.ended_loans.append(unit)
        self.given.pop(unit, None)
        self._end_hold(unit)

    def pop_oldest(self) -> Unit:
        """Take the oldest unit, whether its group is ready or not; the queue must not be empty."""
        unit = super().pop_first()
        self._leave_if_sorted_in(unit)
        return unit

    def _leave_if_sorted_in(self, unit: Unit) -> None:
        if unit in self.lent:
            self._end_loan(unit)
        elif self._is_sorted_in(unit):
            self._leave(unit)

    @property
    def head(self) -> Unit:
        """The unit that `pop_first` would take; there must be one."""
        return next(iter(self._ring)).units.first if self.is_fair else self._heads.first

    def remove(self, unit: Unit) -> None:
        """Take out a unit.  Raises KeyError when it is not in here."""
        super().remove(unit)
        self._leave_if_sorted_in(unit)

    def release(self) -> Iterator[int]:
        """Let go of all units, bit by bit; yields how many each bit was.  Not to be used again."""
        yield from super().release()
        yield from self.release_groups()

    @property
    def cost(self) -> int:
        """Bytes that its groups take."""
        return self._cost

    def release_groups(self) -> Iterator[int]:
        """Let go of the groups, bit by bit, when others have taken over the units.  Not to be used again."""
        yield from self._heads.release()
        while self._groups:
            _, group = self._groups.popitem()
            self._ring.pop(group, None)
            yield from group.units.release()


class GivenUnits(OrderedUnits):
    """Those of the units of a queue that are lent and given, in the order in which they were."""

    __slots__ = ("_units",)

    def __init__(self, units: GroupedUnits | None) -> None:
        """Show those of these units; None = there are none."""
        super().__init__()
        self._units = units

    def __len__(self) -> int:
        return 0 if self._units is None else len(self._units.given)

    def pop_first(self) -> Unit:
        """Take the next unit out of the queue; there must be one."""
        assert self._units is not None
        unit = next(iter(self._units.given))
        self._units.remove(unit)
        return unit


NOTHING_GIVEN: Final = GivenUnits(None)  #: of a queue that is not limited
