"""The events of a queue, and what each group of consumers made of them: data alone, changed by `logs`.

An event is kept until its time is over, and every group gets it.  What a group gets is a unit, (event, scope); the
scope is the name of the group behind its epoch: ``0:mailers``.  A unit that nobody touched is no object.

    Log.events   a  b  c  d  e  f  g  h  i       in order of (order key, id)
    group            .  .     .  |               position: what is up to here was looked at
      done        a  b     d                     a fact, kept in each event
      units             c  .  e                  with a consumer until its deadline, or waiting again (redo)
      exceptions        c                        up to the position and to be had: units that came back, and events
                                                 that came when the group was past their place

    next of a group = the smaller of its first exception, and the first event behind its position that is neither
                      done nor a unit of it

There is no pointer that says how far a group has come: an event that was made on the other side of a partition comes
late, with a place in front of others that are done.  Position and exceptions are an index, made anew from the facts
whenever that is easier, and no other node ever hears of them.

An event that another node hands out (`Event.elsewhere`) is counted as all others are, and is no exception: the position
goes past it.  Should it become this node's to hand out it is found among the exceptions.  Those that other nodes made
have exceptions of their own, as some consumers want none of them (STRICT).

For each group the events of the log are one of four, counted as they change:

    in progress   with a consumer, whose time is not over
    redo          was with one, and waits again
    done          a consumer said so, or the group began behind it
    available     none of these; total = in progress + redo + done + available

Where a group began is its floor: for each node that made events the stamp of the last one that the group does not
want.  FORGET raises the epoch, so that what was done by the group of the old one is nothing to the new one.  Both
merge by maximum, and so does the horizon of a flush, which is a floor of the whole log.

Times are integer milliseconds of the monotonic clock, but for stamps (`Job.ctime`).
"""

from collections.abc import Iterator
from operator import attrgetter
from typing import Final

from disqued.core.job import ACTIVE, QUEUED, Event, Unit
from disqued.core.memory import Memory
from disqued.core.queues import OrderedUnits
from disqued.core.units import GroupUnit, GroupWaiter

START: Final = (-(1 << 64), b"")  #: a place in front of every other
SKIPPED_AT_ONCE = 5_000  #: events passed over in one go, some milliseconds' work
SETS_KEPT = 1_024  #: distinct sets of groups that are done with an event, of which one object each is kept

# Bytes, as memory is counted.
LOG_COST = 1_600
GROUP_COST = 1_400  #: beside its name
UNIT_COST = 260
DONE_COST = 40  #: a fact; events that the same groups are done with share their set

#: {first 8 hex digits of the id of a node: stamp}.
Floor = dict[bytes, int]

_place = attrgetter("order_key", "id")
_NOBODY: frozenset[bytes] = frozenset()


class Behind(Exception):
    """So many events had to be passed over that others have to have their turn first."""


def scope_of(name: bytes, epoch: int) -> bytes:
    """The scope of a group in one of its epochs; never empty, and never the same for two."""
    return b"%d:%s" % (epoch, name)


def read_scope(scope: bytes) -> tuple[bytes, int] | None:
    """The name of a group and its epoch; None for what is no scope of a group."""
    digits, colon, name = scope.partition(b":")
    if not colon or not digits.isdigit() or len(digits) > 18 or (digits[:1] == b"0" and digits != b"0"):
        return None
    return name, int(digits)


def raise_floor(floor: Floor, other: Floor) -> bool:
    """Merge one floor into another, by maximum; say whether it rose."""
    rose = False
    for origin, ctime in other.items():
        if ctime > floor.get(origin, -1):
            floor[origin] = ctime
            rose = True
    return rose


class Group:
    """A group of consumers of one log."""

    __slots__ = (
        "_late", "done", "epoch", "floor", "foreign", "is_asked", "leased", "log", "name", "own", "position", "redo",
        "scope", "since", "units", "until", "waiters",
    )  # fmt: skip

    def __init__(self, log: "Log", name: bytes) -> None:
        self.log: Log = log
        self.name: bytes = name
        self.epoch: int = 0  #: counts how often the group was forgotten
        self.scope: bytes = scope_of(name, 0)
        self.floor: Floor = {}  #: where it began; empty = at the first event
        self.since: int = 0  #: when it began, as far as floor and epoch say
        self.until: int = 0  #: when other nodes need not know of that any more, as they said
        self.is_asked: bool = False  #: others were asked whether they need to know it, as this node does not any more
        self.waiters: dict[GroupWaiter, None] = {}  #: first come first
        self._begin()

    def _begin(self) -> None:
        #: Events that it has, or gave back, and is not done with.
        self.units: dict[Event, GroupUnit] = {}
        self.position: tuple[int, bytes] = START  #: of the last event that was looked at
        #: Exceptions, of events that this node made, and of others that it hands out.
        self.own: OrderedUnits = OrderedUnits()
        self.foreign: OrderedUnits = OrderedUnits()
        #: Events among the exceptions: those that nobody has had.
        self._late: dict[Event, None] = {}
        self.leased: int = 0
        self.redo: int = 0
        self.done: int = 0

    @property
    def available(self) -> int:
        """Events that it has yet to be given."""
        return len(self.log) - self.leased - self.redo - self.done

    @property
    def is_known(self) -> bool:
        """Tell whether there is anything to say of the group."""
        return bool(self.done or self.units or self.waiters or self.floor)

    @property
    def is_used(self) -> bool:
        """Tell whether there is something that means nothing in another epoch."""
        return bool(self.done or self.units)

    @property
    def is_blank(self) -> bool:
        """True when a new group of this name would be no other."""
        return not (self.done or self.units or self.waiters or self.epoch or self.floor)

    def is_done(self, event: Event) -> bool:
        """Tell whether the group is done with an event, or began behind it."""
        return self.scope in event.done or (len(self.floor) > 0 and event.ctime <= self.floor.get(event.origin, -1))

    # Events come and go.

    def arrived(self, event: Event) -> None:
        """An event has come into the log."""
        if self.is_done(event):
            self.done += 1
        elif _place(event) <= self.position:
            self._except(event)

    def _exceptions_of(self, event: Event) -> OrderedUnits:
        """The exceptions among which an event is, or its unit, when it is one."""
        return self.own if event.origin == self.log.origin else self.foreign

    def _except(self, event: Event) -> None:
        """Note an event in front of the position that nobody has had."""
        if not event.elsewhere and event not in self._late:
            self._late[event] = None
            self._exceptions_of(event).push(event)

    def _except_no_more(self, event: Event) -> None:
        """Note that an event that nobody has had is no exception, if it was."""
        if event in self._late:
            del self._late[event]
            self._exceptions_of(event).remove(event)

    def came_here(self, event: Event) -> None:
        """An event is handed out by this node from now on, and was by another one, or by none."""
        unit = self.units.get(event)
        if unit is None:
            if not self.is_done(event) and _place(event) <= self.position:
                self._except(event)
        elif unit.state == QUEUED:
            self._exceptions_of(event).push(unit)

    def went_away(self, event: Event) -> None:
        """An event that this node handed out is handed out by another one from now on, or by none."""
        unit = self.units.get(event)
        if unit is None:
            self._except_no_more(event)
        elif unit.state == QUEUED:
            self._exceptions_of(event).remove(unit)

    def left(self, event: Event) -> GroupUnit | None:
        """An event is gone; returns the unit that ends with it."""
        if self.is_done(event):
            self.done -= 1
            return None
        return self._drop(event)

    def _drop(self, event: Event) -> GroupUnit | None:
        """Forget what the group has of an event that it is not done with."""
        unit = self.units.pop(event, None)
        if unit is not None:
            self.log.memory.used -= UNIT_COST
            self._uncount(unit)
        else:
            self._except_no_more(event)
        return unit

    def _uncount(self, unit: GroupUnit) -> None:
        unit.unbind()
        if unit.state == ACTIVE:
            self.leased -= 1
        else:
            self.redo -= 1
            if not unit.event.elsewhere:
                self._exceptions_of(unit.event).remove(unit)

    # Units.

    def next(self, now: int, *, strict: bool = False) -> Event | None:
        """The next event for a consumer; raises Behind when it takes longer to find it.

        `strict`: only events that this node made.
        """
        # This may make exceptions of events, so it comes first.
        event = self._next_event(now, strict=strict)
        piles = (self.own,) if strict else (self.own, self.foreign)
        found: list[Unit] = [unit for pile in piles if (unit := self._first_of(pile, now)) is not None]
        if event is not None:
            found.append(event)
        if not found:
            return None
        unit = min(found, key=_place)
        return unit if isinstance(unit, Event) else self._event_of(unit)

    @staticmethod
    def _event_of(unit: Unit) -> Event:
        assert isinstance(unit, GroupUnit)
        return unit.event

    def _first_of(self, pile: OrderedUnits, now: int) -> Unit | None:
        """The first of some exceptions whose time is not over."""
        for skipped, unit in enumerate(pile):
            event = unit if isinstance(unit, Event) else self._event_of(unit)
            if event.expires_at > now and not self.log.is_flushed(event):
                return unit
            if skipped >= SKIPPED_AT_ONCE:
                raise Behind
        return None

    def _next_event(self, now: int, *, strict: bool) -> Event | None:
        """The first event behind the position that the group can have, or could if it were handed out here."""
        log = self.log
        for skipped, event in enumerate(log.events.after(self.position)):
            assert isinstance(event, Event)
            if (
                event not in self.units and not event.elsewhere and event.expires_at > now and not self.is_done(event)
                and not log.is_flushed(event)
            ):  # fmt: skip
                if not strict or event.origin == log.origin:
                    return event
                self._except(event)
            self.position = _place(event)
            if skipped >= SKIPPED_AT_ONCE:
                raise Behind
        return None

    def take(self, event: Event) -> GroupUnit:
        """Let somebody have an event that is to be had; returns its unit, ACTIVE, whose deadline is yet to be set."""
        unit = self.units.get(event)
        if unit is None:
            unit = self.units[event] = GroupUnit(event, self)
            self.log.memory.used += UNIT_COST
            self._except_no_more(event)
        else:
            self._uncount(unit)
        unit.state = ACTIVE
        unit.order_key = event.order_key
        self.leased += 1
        self._pass(event)
        return unit

    def _pass(self, event: Event) -> None:
        """Go on behind an event, if that is the next one."""
        place = _place(event)
        if place > self.position:
            for first in self.log.events.after(self.position):
                if first is event:
                    self.position = place
                return

    def give_back(self, unit: GroupUnit, order_key: int | None = None) -> None:
        """Let a unit wait again that a consumer had; at its age, or elsewhere."""
        unit.unbind()
        self.leased -= 1
        unit.state = QUEUED
        if order_key is not None:
            unit.order_key = order_key
        self.redo += 1
        if not unit.event.elsewhere:
            self._exceptions_of(unit.event).push(unit)

    def never_had(self, unit: GroupUnit) -> None:
        """Forget that somebody had an event: nobody has ever heard of it."""
        event = unit.event
        self._drop(event)
        if _place(event) <= self.position:
            self._except(event)

    def finish(self, event: Event) -> GroupUnit | None:
        """Note that the group is done with an event; returns the unit that ends with it."""
        unit = None
        if not self.is_done(event):
            unit = self._drop(event)
            self.done += 1
        self.log.note_done(event, self.scope)
        return unit

    # The whole group.

    def move_to(self, other: "Group") -> None:
        """Hand over to a group of another log all but its events."""
        other.epoch, other.scope, other.floor = self.epoch, self.scope, dict(self.floor)
        other.since, other.until = self.since, self.until
        other.waiters, self.waiters = self.waiters, {}
        for waiter in other.waiters:
            waiter.move(self, other)

    def merge(self, epoch: int, floor: Floor) -> list[GroupUnit] | None:
        """Hear that the group began at a place, in an epoch; returns the units that end, None if that is no news."""
        if epoch > self.epoch:
            return self._begin_anew(epoch, dict(floor))
        if epoch < self.epoch:
            return None
        wanted = [event for event in self.log if not self.is_done(event)]
        if not raise_floor(self.floor, floor):
            return None
        over = [event for event in wanted if self.is_done(event)]
        self.done += len(over)
        return [unit for event in over if (unit := self._drop(event)) is not None]

    def forget(self) -> list[GroupUnit]:
        """Forget where it began: that was long ago; returns the units that end."""
        return self._begin_anew(0, {})

    def _begin_anew(self, epoch: int, floor: Floor) -> list[GroupUnit]:
        ended = list(self.units.values())
        for unit in ended:
            unit.unbind()
        self.log.memory.used -= UNIT_COST * len(ended)
        self.epoch = epoch
        self.scope = scope_of(self.name, epoch)
        self.floor = floor
        self._begin()
        self.done = sum(map(self.is_done, self.log))
        return ended


class Log:
    """The events of one queue on this node, and its groups."""

    __slots__ = (
        "_sets", "delayed", "events", "groups", "horizon", "longest_ms", "memory", "origin", "owned", "queue", "seen",
        "since", "until",
    )  # fmt: skip

    def __init__(self, queue: bytes, memory: Memory, origin: bytes) -> None:
        self.queue: bytes = queue
        self.memory: Memory = memory
        self.origin: bytes = origin  #: `Event.origin` of what this node makes
        memory.used += LOG_COST
        self.events: OrderedUnits = OrderedUnits()
        self.owned: int = 0  #: events that this node hands out; of each event one node does, whoever has copies
        self.delayed: dict[Event, None] = {}  #: events whose delay is not over
        self.groups: dict[bytes, Group] = {}  #: by name
        self.horizon: Floor = {}  #: what is up to here was flushed
        self.since: int = 0  #: when the horizon was heard of
        self.until: int = 0  #: when other nodes need not know of it any more, as they said
        self.seen: Floor = {}  #: the last stamp of each node's events that this one has seen
        self.longest_ms: int = 0  #: the longest life that an event was given
        self._sets: dict[frozenset[bytes], frozenset[bytes]] = {}

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        for event in self.events:
            assert isinstance(event, Event)
            yield event

    @property
    def is_idle(self) -> bool:
        """True when nobody would notice if it were made anew."""
        return not (len(self.events) or self.delayed or self.groups or self.horizon)

    @property
    def has_content(self) -> bool:
        """Tell whether there are events in it, or will be."""
        return len(self.events) > 0 or len(self.delayed) > 0

    def group(self, name: bytes) -> Group:
        """The group of a name, made when there is none."""
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = Group(self, name)
            self.memory.used += GROUP_COST + len(name)
        return group

    def let_go(self, group: Group) -> None:
        """Forget a group if there is nothing of it to remember."""
        if group.is_blank and self.groups.get(group.name) is group:
            del self.groups[group.name]
            self.memory.used -= GROUP_COST + len(group.name)

    def successor(self) -> "Log":
        """Make the empty log that takes the place of this one, with its consumers and what merges with other nodes."""
        log = Log(self.queue, self.memory, self.origin)
        log.horizon, log.since, log.until = self.horizon, self.since, self.until
        log.seen, log.longest_ms = self.seen, self.longest_ms
        for group in self.groups.values():
            if group.waiters or group.epoch or group.floor:
                group.move_to(log.group(group.name))
        return log

    def see(self, event: Event) -> None:
        """Note that an event was made."""
        if event.ctime > self.seen.get(event.origin, -1):
            self.seen[event.origin] = event.ctime
        self.longest_ms = max(self.longest_ms, event.options.ttl_ms)

    def is_flushed(self, event: Event) -> bool:
        """Tell whether an event was flushed."""
        return len(self.horizon) > 0 and event.ctime <= self.horizon.get(event.origin, -1)

    def expect(self, event: Event) -> None:
        """Note an event whose delay is not over."""
        self.delayed[event] = None

    def add(self, event: Event) -> None:
        """Put an event in its place."""
        self.delayed.pop(event, None)
        event.log = self
        self.memory.used += DONE_COST * len(event.done)
        self.events.push(event)
        self.owned += not event.elsewhere
        for group in self.groups.values():
            group.arrived(event)

    def remove(self, event: Event) -> list[GroupUnit]:
        """Take an event out; returns the units that end with it."""
        self.events.remove(event)
        self.owned -= not event.elsewhere
        event.log = None
        self.memory.used -= DONE_COST * len(event.done)
        units: list[GroupUnit] = []
        for group in list(self.groups.values()):
            unit = group.left(event)
            if unit is not None:
                units.append(unit)
            self.let_go(group)
        return units

    @property
    def cost(self) -> int:
        """Bytes that it takes beside its events, as memory is counted."""
        groups = sum(GROUP_COST + len(name) + UNIT_COST * len(group.units) for name, group in self.groups.items())
        return LOG_COST + groups + DONE_COST * sum(len(event.done) for event in self)

    def over_at(self, said: "Group | Log") -> int:
        """When it need not be known any more where a group began, or up to where the log was flushed."""
        return max(said.until, said.since + self.longest_ms)

    def needs(self, group: Group, now: int) -> bool:
        """Tell whether it matters to this node in which epoch a group is, and where it began."""
        return group.is_used or self.over_at(group) > now

    def forget_horizon(self, now: int) -> bool:
        """Forget up to where the log was flushed when all that is over; say whether there was such a place."""
        if not self.horizon or self.over_at(self) > now:
            return False
        self.horizon = {}
        return True

    def unneeded(self, now: int, *, forgets: bool) -> list[Group]:
        """The groups that began somewhere, which matters to this node no more; none if it `forgets` nothing now."""
        groups = [group for group in self.groups.values() if group.floor or group.epoch]
        unneeded = [group for group in groups if forgets and not self.needs(group, now)]
        for group in groups:
            group.is_asked = group.is_asked and group in unneeded
        return unneeded

    @property
    def asks(self) -> bool:
        """Tell whether others have been asked whether they need to know where some group began."""
        return any(group.is_asked for group in self.groups.values())

    def note_done(self, event: Event, scope: bytes) -> bool:
        """Enter the fact that a group is done with an event; say whether it is news."""
        if scope in event.done:
            return False
        event.done = self._united(event.done, scope)
        self.memory.used += DONE_COST
        return True

    def _united(self, done: frozenset[bytes], scope: bytes) -> frozenset[bytes]:
        """The one object for a set of scopes and one more."""
        union = done | {scope}
        known = self._sets.get(union)
        if known is None:
            if len(self._sets) >= SETS_KEPT:
                self._sets.clear()
            known = self._sets[union] = union
        return known
