"""The events of a queue, and what each group of consumers made of them: data alone, changed by `entries`.

An event is kept until its time is over, and every group gets it.  What a group gets is a unit, (event, scope); the
scope is the name of the group behind its epoch: ``0:mailers``.  A unit that nobody touched is no object.

    Log.events   a  b  c  d  e  f  g  h  i       in order of (order key, id)
    group            .  .     .  |               position: what is up to here was looked at
      done        a  b     d                     a fact, kept in each event (`Entry.marks`)
      units             c  .  e                  with a consumer until its deadline, or waiting again (redo)
      exceptions        c                        up to the position and to be had: units that came back, and events
                                                 that came when the group was past their place

    next of a group = the smaller of its first exception, and the first event behind its position that is neither
                      done nor a unit of it

There is no pointer that says how far a group has come: an event that was made on the other side of a partition comes
late, with a place in front of others that are done.  Position and exceptions are an index, made anew from the facts
whenever that is easier, and no other node ever hears of them.

An event that another node hands out (`Entry.elsewhere`) is counted as all others are, and is no exception: the position
goes past it.  Should it become this node's to hand out it is found among the exceptions.  Those that other nodes made
have exceptions of their own, as some consumers want none of them (STRICT).

For each group the events of the log are one of four, counted as they change:

    in progress   with a consumer, whose time is not over
    redo          was with one, and waits again
    done          a consumer said so, or the group began behind it
    available     none of these; total = in progress + redo + done + available

However many groups a log has, an event that comes or goes costs what groups have of it, and no more: `Entry.touched`
are its units, `Entry.late` the groups that have it among their exceptions, `Entry.marks` the facts, by the numbers that
the log gives to scopes (`Mark`).  What is done is counted from the marks of a scope and from the place where the group
began, when somebody asks.

Where a group began is its floor: for each node that made events the stamp of the last one that the group does not
want.  FORGET raises the epoch, so that what was done by the group of the old one is nothing to the new one.  Both
merge by maximum, and so does the horizon of a flush, which is a floor of the whole log.

Times are integer milliseconds of the monotonic clock, but for stamps (`Job.ctime`).
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import Final

from mypy_extensions import mypyc_attr

from disqued.core.model import marks
from disqued.core.model.job import ACTIVE, QUEUED, TO_ACTIVE, TO_QUEUED, Job, JobOptions, NamedJob, Unit
from disqued.core.model.memory import Memory
from disqued.core.model.ordered import OrderedUnits
from disqued.core.model.outbox import Client
from disqued.core.model.waiters import Awaited, Form, Waiter
from disqued.core.model.worker import Worker

START: Final = (-(1 << 64), b"")  #: a place in front of every other
SKIPPED_AT_ONCE = 5_000  #: events passed over in one go, some milliseconds' work

# Bytes, as memory is counted.
LOG_COST = 1_600
GROUP_COST = 950  #: without its name and its scope
UNIT_COST = 260
LATE_COST = 400  #: an event that nobody has had among the exceptions of a group
MARK_COST = 240  #: a scope that is done with something, beside its text
EARLY_COST = 280  #: a fact of an event that is not in its log yet, beside the scope

#: {first 8 hex digits of the id of a node: stamp}.
Floor = dict[bytes, int]

_place = attrgetter("order_key", "id")
_NOBODY: frozenset[bytes] = frozenset()


class Behind(Exception):
    """So many events had to be passed over that others have to have their turn first."""


def cost_of_group(name: bytes) -> int:
    """Return the bytes of a group without what it has: its name stands in its scope, too."""
    return GROUP_COST + 2 * len(name)


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


class Entry(Job):
    """A job of a log: every group of consumers gets it, and it stays until its time is over (see `groups`).

    It is QUEUED while it is in its log, and ACTIVE while its delay lasts; what groups make of it changes neither.
    """

    __slots__ = ("absent", "early", "elsewhere", "late", "log", "marks", "touched")

    def __init__(self, job_id: bytes, queue: bytes, body: bytes, ctime: int, options: JobOptions) -> None:
        super().__init__(job_id, queue, body, ctime, options)
        self.marks: bytes = b""  #: the groups that are done with it, by their numbers in its log: see `marks`
        self.early: frozenset[bytes] = _NOBODY  #: scopes of those that are done with it before it is in its log
        self.touched: PendingEntry | None = None  #: the first of the units that groups have of it
        self.late: dict[Group, None] | None = None  #: groups that have it among their exceptions; None = there is none
        self.elsewhere: bool = False  #: another node hands it out, if any does now; this one only keeps it
        self.absent: frozenset[bytes] = frozenset()  #: nodes among those that may hold it which said that they do not
        self.log: Stream | None = None  #: the log that it is in

    @property
    def origin(self) -> bytes:
        """The first 8 hex digits of the id of the node that made it."""
        return self.id[2:10]

    @property
    def done(self) -> list[bytes]:
        """Scopes of the groups that are done with it, in order."""
        return sorted(self.early) if self.log is None else self.log.scopes_of(self)

    @property
    def has_facts(self) -> bool:
        """Return whether any group is done with it."""
        return bool(self.marks or self.early)

    def is_done_for(self, scope: bytes) -> bool:
        """Return whether a group is certainly done with it."""
        return scope in self.early if self.log is None else self.log.is_marked(self, scope)


def new_job(job_id: bytes, queue: bytes, body: bytes, ctime: int, options: JobOptions, *, alias: bytes) -> Job:
    """Make a job, of the kind that has an alias if it has one, or that belongs into a log; events have no alias."""
    if options.kind:
        return Entry(job_id, queue, body, ctime, options)
    if alias:
        return NamedJob(job_id, queue, body, ctime, options, alias=alias)
    return Job(job_id, queue, body, ctime, options)


class EntryUnit(Unit):
    """An event that somebody has, or had."""

    __slots__ = ("body", "granter", "id", "options", "queue", "worker")

    def __init__(self, granter: bytes) -> None:
        self.awake_at = 0
        self.granter: bytes = granter  #: node that handed it out last; empty = this one
        self.worker: Worker | None = None  #: of this node, with whom it comes back; None = there is none

    def bind(self, worker: Worker, now: int) -> None:
        """Let it come back when a worker dies, of whom this is a sign of life."""
        self.worker = worker
        worker.alive_at = now
        worker.leases[self] = now

    def unbind(self) -> None:
        """Note that no worker has it any more."""
        if self.worker is not None:
            self.worker.leases.pop(self, None)
            self.worker = None


class PendingEntry(EntryUnit):
    """An event as one group has it: ACTIVE with a consumer, until `requeue_at`, or QUEUED, waiting again."""

    __slots__ = ("deliveries", "event", "following", "group", "lease_ms", "previous")

    def __init__(self, event: Entry, group: "Group") -> None:
        super().__init__(b"")
        self.event: Entry = event
        self.group: Group = group
        self.id = event.id
        self.queue = event.queue
        self.body = event.body
        self.options = event.options
        self.state = QUEUED
        self.order_key = event.order_key
        self.requeue_at = 0
        self.flags = 0
        self.nacks = 0
        self.additional_deliveries = 0
        self.deliveries: int = 0  #: times that a consumer got it, as far as this node knows
        self.lease_ms: int = 0  #: how long the consumer has it
        #: Its neighbors among the units of its event; see `Entry.touched`.
        self.previous: PendingEntry | None = None
        self.following: PendingEntry | None = None

    def link(self) -> None:
        """Enter it among the units of its event."""
        event = self.event
        first = event.touched
        self.following = first
        if first is not None:
            first.previous = self
        event.touched = self

    def unlink(self) -> None:
        """Take it out of the units of its event."""
        previous, following = self.previous, self.following
        if previous is not None:
            previous.following = following
        elif self.event.touched is self:
            self.event.touched = following
        if following is not None:
            following.previous = previous
        self.previous = self.following = None

    @property
    def job(self) -> Job:
        """The event."""
        return self.event

    @property
    def scope(self) -> bytes:
        """The group that it is for, in its epoch."""
        return self.group.scope

    @property
    def progress(self) -> tuple[int, bool, int]:
        """How far it has come, as nodes merge it, by maximum: times that a consumer got it, given back, until when."""
        return (self.deliveries, not self.requeue_at, self.requeue_at)


@mypyc_attr(allow_interpreted_subclasses=True)
class EntryForm(Form):
    """How a consumer of a group takes events; a form that is no such one only wants to know that there are some."""

    __slots__ = ("lease_ms", "strict")

    def __init__(self, lease_ms: int, count: int = 1, *, strict: bool = False, worker: Worker | None = None) -> None:
        super().__init__(count, worker)
        self.lease_ms: int = lease_ms  #: how long the consumer has them; 0 = they are done at once
        self.strict: bool = strict  #: only such as the node made that hands them out

    @abstractmethod
    def answer(self, units: list[Unit]) -> object:
        """What a consumer is answered that takes these."""


class GroupWaiter(Waiter):
    """A consumer of a group that waits, in the logs of some queues."""

    __slots__ = ("asked", "groups")

    def __init__(
        self, client: Client, queues: Sequence[Awaited], groups: "list[Group]", form: Form, *, nohang: bool = False
    ) -> None:
        super().__init__(client, queues, form, nohang=nohang)
        self.groups: list[Group] = groups
        self.asked: int = 0  #: number of the question to another node whose answer it waits for; 0 = none

    @property
    def is_owed(self) -> bool:
        """Tell whether its group may be done with something that is on its way to it from another node."""
        form = self.form
        return self.asked > 0 and isinstance(form, EntryForm) and not form.lease_ms

    def enter(self) -> None:
        """Begin to wait."""
        for group in self.groups:
            group.waiters[self] = None
            group.note_waiting()

    def leave(self) -> None:
        """Wait no more."""
        for group in self.groups:
            group.waiters.pop(self, None)
            group.note_waiting()
            group.log.let_go(group)

    def move(self, group: "Group", other: "Group") -> None:
        """Wait for another log in the place of one."""
        self.groups = [other if one is group else one for one in self.groups]


class Group:
    """A group of consumers of one log."""

    __slots__ = (
        "_late", "_left", "epoch", "floor", "foreign", "is_asked", "leased", "log", "name", "overlap", "own",
        "position", "redo", "scope", "since", "units", "until", "waiters",
    )  # fmt: skip

    def __init__(self, log: "Stream", name: bytes) -> None:
        self.log: Stream = log
        self.name: bytes = name
        self.epoch: int = 0  #: counts how often the group was forgotten
        self.scope: bytes = scope_of(name, 0)
        self.floor: Floor = {}  #: where it began; empty = at the first event
        self.since: int = 0  #: when it began, as far as floor and epoch say
        self.until: int = 0  #: when other nodes need not know of that any more, as they said
        self.is_asked: bool = False  #: others were asked whether they need to know it, as this node does not any more
        self.waiters: dict[GroupWaiter, None] = {}  #: first come first
        self._left: list[Entry] = []  #: exceptions of epochs that are over, which the events still name
        self._begin()

    def _begin(self) -> None:
        #: Events that it has, or gave back, and is not done with.
        self.units: dict[Entry, PendingEntry] = {}
        self.position: tuple[int, bytes] = START  #: of the last event that was looked at
        #: Exceptions, of events that this node made, and of others that it hands out.
        self.own: OrderedUnits = OrderedUnits()
        self.foreign: OrderedUnits = OrderedUnits()
        #: Events among the exceptions: those that nobody has had.
        self._late: dict[Entry, None] = {}
        self.leased: int = 0
        self.redo: int = 0
        self.overlap: int = 0  #: events that it is done with, and that it began behind besides

    @property
    def done(self) -> int:
        """Events that it is done with, or began behind."""
        log = self.log
        mark = log.marks.get(self.scope)
        done = 0 if mark is None else mark.uses
        for origin, ctime in self.floor.items():
            done += log.count_until(origin, ctime)
        return done - self.overlap

    @property
    def available(self) -> int:
        """Events that it has yet to be given."""
        return len(self.log) - self.leased - self.redo - self.done

    @property
    def is_known(self) -> bool:
        """Tell whether there is anything to say of the group."""
        return bool(self.units or self.waiters or self.floor or self.scope in self.log.marks)

    @property
    def is_used(self) -> bool:
        """Tell whether there is something that means nothing in another epoch."""
        return bool(self.units or self.scope in self.log.marks) or any(map(self.log.begins_until, self.floor.items()))

    @property
    def is_blank(self) -> bool:
        """True when a new group of this name would be no other."""
        log = self.log
        return not (
            self.units or self.waiters or self.epoch or self.floor or self.scope in log.marks or self in log.searching
        )

    def is_behind(self, event: Entry) -> bool:
        """Tell whether the group began behind an event."""
        return len(self.floor) > 0 and event.ctime <= self.floor.get(event.origin, -1)

    def is_done(self, event: Entry) -> bool:
        """Tell whether the group is done with an event, or began behind it."""
        if event.marks:
            mark = self.log.marks.get(self.scope)
            if mark is not None and marks.has(event.marks, mark.number):
                return True
        return len(self.floor) > 0 and event.ctime <= self.floor.get(event.origin, -1)

    @property
    def late_events(self) -> dict[Entry, None]:
        """Events that nobody has had among its exceptions."""
        return self._late

    # Events come and go.

    def arrived(self, event: Entry) -> None:
        """An event has come into the log whose place some group is past."""
        if _place(event) <= self.position and not self.is_done(event):
            self._except(event)

    def _exceptions_of(self, event: Entry) -> OrderedUnits:
        """The exceptions among which an event is, or its unit, when it is one."""
        return self.own if event.origin == self.log.origin else self.foreign

    def _except(self, event: Entry) -> None:
        """Note an event in front of the position that nobody has had."""
        if not event.elsewhere and event not in self._late:
            self._late[event] = None
            if event.late is None:
                event.late = {}
            event.late[self] = None
            self.log.count(LATE_COST)
            self._exceptions_of(event).push(event)

    def except_no_more(self, event: Entry) -> None:
        """Note that an event that nobody has had is no exception, if it was."""
        if event in self._late:
            del self._late[event]
            if event.late is not None:
                del event.late[self]
                if not event.late:
                    event.late = None
            self.log.count(-LATE_COST)
            self._exceptions_of(event).remove(event)

    def came_here(self, event: Entry) -> None:
        """An event is handed out by this node from now on, and was by another one, or by none."""
        unit = self.units.get(event)
        if unit is None:
            if not self.is_done(event) and _place(event) <= self.position:
                self._except(event)
        elif unit.state == QUEUED:
            self._exceptions_of(event).push(unit)

    def went_away(self, event: Entry) -> None:
        """An event that this node handed out is handed out by another one from now on, or by none."""
        unit = self.units.get(event)
        if unit is None:
            self.except_no_more(event)
        elif unit.state == QUEUED:
            self._exceptions_of(event).remove(unit)

    def end(self, unit: PendingEntry) -> bool:
        """An event is gone of which the group has a unit; say whether that was so, and not of an epoch before."""
        event = unit.event
        unit.unlink()
        if self.units.get(event) is not unit:
            return False
        del self.units[event]
        self.log.count(-UNIT_COST)
        self._uncount(unit)
        return True

    def _drop(self, event: Entry) -> PendingEntry | None:
        """Forget what the group has of an event that it is not done with."""
        unit = self.units.get(event)
        if unit is None:
            self.except_no_more(event)
        else:
            self.end(unit)
        return unit

    def _uncount(self, unit: PendingEntry) -> None:
        unit.unbind()
        if unit.state == ACTIVE:
            self.leased -= 1
        else:
            self.redo -= 1
            if not unit.event.elsewhere:
                self._exceptions_of(unit.event).remove(unit)

    # Units.

    def next(self, now: int, *, strict: bool = False) -> Entry | None:
        """The next event for a consumer; raises Behind when it takes longer to find it.

        `strict`: only events that this node made.
        """
        searching = self.log.searching
        try:
            event = self._next(now, strict=strict)
        except Behind:
            # Whoever goes on begins where this search came.
            searching[self] = None
            raise
        searching.pop(self, None)
        return event

    def _next(self, now: int, *, strict: bool) -> Entry | None:
        # This may make exceptions of events, so it comes first.
        event = self._next_event(now, strict=strict)
        piles = (self.own,) if strict else (self.own, self.foreign)
        found: list[Unit] = [unit for pile in piles if (unit := self._first_of(pile, now)) is not None]
        if event is not None:
            found.append(event)
        if not found:
            return None
        unit = min(found, key=_place)
        return unit if isinstance(unit, Entry) else self._event_of(unit)

    @staticmethod
    def _event_of(unit: Unit) -> Entry:
        assert isinstance(unit, PendingEntry)
        return unit.event

    def _first_of(self, pile: OrderedUnits, now: int) -> Unit | None:
        """The first of some exceptions whose time is not over."""
        for skipped, unit in enumerate(pile):
            event = unit if isinstance(unit, Entry) else self._event_of(unit)
            if event.expires_at > now and not self.log.is_flushed(event):
                return unit
            if skipped >= SKIPPED_AT_ONCE:
                raise Behind
        return None

    def _next_event(self, now: int, *, strict: bool) -> Entry | None:
        """The first event behind the position that the group can have, or could if it were handed out here."""
        log = self.log
        for skipped, event in enumerate(log.events.after(self.position)):
            assert isinstance(event, Entry)
            if (
                event not in self.units and not event.elsewhere and event.expires_at > now and not self.is_done(event)
                and not log.is_flushed(event)
            ):  # fmt: skip
                if not strict or event.origin == log.origin:
                    return event
                self._except(event)
            self._advance(_place(event))
            if skipped >= SKIPPED_AT_ONCE:
                raise Behind
        return None

    def take(self, event: Entry) -> PendingEntry:
        """Let somebody have an event that is to be had; returns its unit, ACTIVE, whose deadline is yet to be set."""
        unit = self.units.get(event)
        if unit is None:
            self.except_no_more(event)
            unit = self.units[event] = PendingEntry(event, self)
            unit.link()
            self.log.count(UNIT_COST)
        else:
            self._uncount(unit)
        unit.state = TO_ACTIVE[unit.state]
        unit.order_key = event.order_key
        self.leased += 1
        self._pass(event)
        return unit

    def _pass(self, event: Entry) -> None:
        """Go on behind an event, if that is the next one."""
        place = _place(event)
        if place > self.position:
            for first in self.log.events.after(self.position):
                if first is event:
                    self._advance(place)
                return

    def _advance(self, place: tuple[int, bytes]) -> None:
        self.position = place
        if place > self.log.furthest:
            self.log.furthest = place

    def give_back(self, unit: PendingEntry, order_key: int | None = None) -> None:
        """Let a unit wait again that a consumer had; at its age, or elsewhere."""
        unit.unbind()
        self.leased -= 1
        unit.state = TO_QUEUED[unit.state]
        if order_key is not None:
            unit.order_key = order_key
        self.redo += 1
        if not unit.event.elsewhere:
            self._exceptions_of(unit.event).push(unit)

    def never_had(self, unit: PendingEntry) -> None:
        """Forget that somebody had an event: nobody has ever heard of it."""
        event = unit.event
        self._drop(event)
        if _place(event) <= self.position:
            self._except(event)

    def finish(self, event: Entry) -> PendingEntry | None:
        """Note that the group is done with an event; returns the unit that ends with it."""
        unit = None
        if not self.is_done(event):
            unit = self._drop(event)
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
        other.note_waiting()
        other.note_beginning()

    def note_waiting(self) -> None:
        """Note whether anybody waits for the group."""
        if self.waiters:
            self.log.waiting[self] = None
        else:
            self.log.waiting.pop(self, None)

    def note_beginning(self) -> None:
        """Note whether there is anything to remember of where the group began."""
        if self.epoch or self.floor:
            self.log.begun[self] = None
        else:
            self.log.begun.pop(self, None)

    def merge(self, epoch: int, floor: Floor) -> list[PendingEntry] | None:
        """Hear that the group began at a place, in an epoch; returns the units that end, None if that is no news.

        Those of an epoch that is over are still linked to their events and bound to their workers, and exceptions are
        left to be forgotten (`forget_left`): whoever has them ends them, some at a time.
        """
        if epoch > self.epoch:
            return self._begin_anew(epoch, dict(floor))
        if epoch < self.epoch or not raise_floor(self.floor, floor):
            return None
        self.note_beginning()
        self._count_overlap()
        for event in [event for event in self._late if self.is_behind(event)]:
            self.except_no_more(event)
        over = [unit for unit in self.units.values() if self.is_behind(unit.event)]
        for unit in over:
            self.end(unit)
        return over

    def forget(self) -> list[PendingEntry]:
        """Forget where it began: that was long ago; returns the units that end."""
        return self._begin_anew(0, {})

    def _begin_anew(self, epoch: int, floor: Floor) -> list[PendingEntry]:
        ended = list(self.units.values())
        self.log.count(-UNIT_COST * len(ended))
        self.log.count(-LATE_COST * len(self._late))
        self._left += self._late
        self.epoch = epoch
        self.scope = scope_of(self.name, epoch)
        self.floor = floor
        self._begin()
        self.log.adopt_mark(self)
        self.note_beginning()
        self._count_overlap()
        return ended

    def forget_left(self, limit: int) -> bool:
        """Let go of some exceptions of epochs that are over; say whether there are more."""
        for event in self._left[-limit:]:
            if event.late is not None and event not in self._late:
                event.late.pop(self, None)
        del self._left[-limit:]
        return len(self._left) > 0

    def _count_overlap(self) -> None:
        """Count again the events that it is done with and that it began behind."""
        self.overlap = 0
        mark = self.log.marks.get(self.scope)
        if mark is not None:
            for origin, ctime in self.floor.items():
                self.overlap += sum(marks.has(event.marks, mark.number) for event in self.log.made_until(origin, ctime))


class Mark:
    """The number by which a log knows a scope that is done with events."""

    __slots__ = ("group", "number", "scope", "uses")

    def __init__(self, scope: bytes, number: int) -> None:
        self.scope: bytes = scope
        self.number: int = number
        self.uses: int = 0  #: events that are marked with it
        self.group: Group | None = None  #: the group whose scope this is, or was


class Stream:
    """The events of one queue on this node, and its groups."""

    __slots__ = (
        "_by_number", "_free", "_of_origin", "begun", "cost", "delayed", "events", "furthest", "groups", "horizon",
        "longest_ms", "marks", "memory", "origin", "owned", "queue", "searching", "seen", "since",
        "until", "waiting",
    )  # fmt: skip

    def __init__(self, queue: bytes, memory: Memory, origin: bytes) -> None:
        self.queue: bytes = queue
        self.memory: Memory = memory
        self.origin: bytes = origin  #: `Entry.origin` of what this node makes
        self.cost: int = 0  #: bytes that it takes beside its events, as memory is counted
        self.count(LOG_COST)
        self.events: OrderedUnits = OrderedUnits()
        self.owned: int = 0  #: events that this node hands out; of each event one node does, whoever has copies
        self._of_origin: dict[bytes, OrderedUnits] = {}  #: the same by who made them
        self.delayed: dict[Entry, None] = {}  #: events whose delay is not over
        self.groups: dict[bytes, Group] = {}  #: by name
        self.waiting: dict[Group, None] = {}  #: groups for which somebody waits
        self.searching: dict[Group, None] = {}  #: groups whose next event has yet to be found
        self.begun: dict[Group, None] = {}  #: groups with an epoch, or that began somewhere
        self.furthest: tuple[int, bytes] = START  #: no group is or was past this place
        self.horizon: Floor = {}  #: what is up to here was flushed
        self.since: int = 0  #: when the horizon was heard of
        self.until: int = 0  #: when other nodes need not know of it any more, as they said
        self.seen: Floor = {}  #: the last stamp of each node's events that this one has seen
        self.longest_ms: int = 0  #: the longest life that an event was given
        self.marks: dict[bytes, Mark] = {}  #: scopes that are done with something
        self._by_number: list[Mark | None] = []  #: the same by number; None = it is free
        self._free: list[int] = []  #: free numbers, as a heap

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Entry]:
        for event in self.events:
            assert isinstance(event, Entry)
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
            self.adopt_mark(group)
            self.count(cost_of_group(name))
        return group

    def count(self, size: int) -> None:
        """Count bytes that the log takes, or gives back."""
        self.cost += size
        self.memory.used += size

    def let_go(self, group: Group) -> None:
        """Forget a group if there is nothing of it to remember."""
        if group.is_blank and self.groups.get(group.name) is group:
            del self.groups[group.name]
            for event in list(group.late_events):
                group.except_no_more(event)
            self.count(-cost_of_group(group.name))

    def successor(self) -> "Stream":
        """Make the empty log that takes the place of this one, with its consumers and what merges with other nodes."""
        log = Stream(self.queue, self.memory, self.origin)
        log.horizon, log.since, log.until = self.horizon, self.since, self.until
        log.seen, log.longest_ms = self.seen, self.longest_ms
        for group in list(self.waiting | self.begun):
            group.move_to(log.group(group.name))
        self.waiting.clear()
        return log

    def see(self, event: Entry) -> None:
        """Note that an event was made."""
        if event.ctime > self.seen.get(event.origin, -1):
            self.seen[event.origin] = event.ctime
        self.longest_ms = max(self.longest_ms, event.options.ttl_ms)

    def is_flushed(self, event: Entry) -> bool:
        """Tell whether an event was flushed."""
        return len(self.horizon) > 0 and event.ctime <= self.horizon.get(event.origin, -1)

    def expect(self, event: Entry) -> None:
        """Note an event whose delay is not over."""
        self.delayed[event] = None

    def add(self, event: Entry) -> None:
        """Put an event in its place."""
        self.delayed.pop(event, None)
        event.log = self
        self.events.push(event)
        self.owned += not event.elsewhere
        units = self._of_origin.get(event.origin)
        if units is None:
            units = self._of_origin[event.origin] = OrderedUnits()
        units.push(event)
        if event.early:
            early = event.early
            forget_early(self.memory, event)
            for scope in sorted(early):
                self.note_done(event, scope)
        if not event.elsewhere and _place(event) <= self.furthest:
            for group in self.groups.values():
                group.arrived(event)

    def came_here(self, event: Entry) -> None:
        """An event is handed out by this node from now on, and was by another one, or by none."""
        self.owned += 1
        if _place(event) <= self.furthest:
            for group in self.groups.values():
                group.came_here(event)
        else:
            for unit in units_of(event):
                unit.group.came_here(event)

    def went_away(self, event: Entry) -> None:
        """An event that this node handed out is handed out by another one from now on, or by none."""
        self.owned -= 1
        for unit in list(units_of(event)):
            unit.group.went_away(event)
        for group in list(event.late or ()):
            group.went_away(event)

    def remove(self, event: Entry) -> list[PendingEntry]:
        """Take an event out; returns the units that end with it."""
        self.events.remove(event)
        self.owned -= not event.elsewhere
        units = self._of_origin[event.origin]
        units.remove(event)
        if not len(units):
            del self._of_origin[event.origin]
        ended: list[PendingEntry] = []
        for unit in units_of(event):
            if unit.group.end(unit):
                ended.append(unit)
                self.let_go(unit.group)
        for group in list(event.late or ()):
            group.except_no_more(event)
        self._unmark(event)
        event.log = None
        return ended

    def count_until(self, origin: bytes, ctime: int) -> int:
        """Count the events that a node made up to a stamp."""
        units = self._of_origin.get(origin)
        return 0 if units is None else units.count_before((ctime + 1, b""))

    def made_until(self, origin: bytes, ctime: int) -> Iterator[Entry]:
        """The events that a node made up to a stamp."""
        for event in self._of_origin.get(origin, ()):
            assert isinstance(event, Entry)
            if event.ctime > ctime:
                return
            yield event

    def begins_until(self, place: tuple[bytes, int]) -> bool:
        """Tell whether there is an event that a node made up to a stamp."""
        origin, ctime = place
        units = self._of_origin.get(origin)
        return units is not None and units.first.order_key <= ctime

    def over_at(self, said: "Group | Stream") -> int:
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

    def forget_searches(self) -> None:
        """Let go of groups whose search for an event nobody went on with."""
        searching, self.searching = self.searching, {}
        for group in searching:
            self.let_go(group)

    def unneeded(self, now: int, *, forgets: bool) -> list[Group]:
        """The groups that began somewhere, which matters to this node no more; none if it `forgets` nothing now."""
        unneeded = {group: None for group in self.begun if forgets and not self.needs(group, now)}
        for group in self.begun:
            group.is_asked = group.is_asked and group in unneeded
        return list(unneeded)

    @property
    def asks(self) -> bool:
        """Tell whether others have been asked whether they need to know where some group began."""
        return any(group.is_asked for group in self.begun)

    # Facts.

    def is_marked(self, event: Entry, scope: bytes) -> bool:
        """Return whether a group is certainly done with an event of this log."""
        mark = self.marks.get(scope)
        return mark is not None and marks.has(event.marks, mark.number)

    def scopes_of(self, event: Entry) -> list[bytes]:
        """The scopes that are done with an event, in order."""
        return sorted([mark.scope for number in marks.numbers(event.marks) if (mark := self._by_number[number])])

    def done_with(self, event: Entry) -> list[Group]:
        """The groups that are done with an event, or began behind it."""
        found: dict[Group, None] = {}
        for number in marks.numbers(event.marks):
            mark = self._by_number[number]
            group = None if mark is None else mark.group
            if mark is not None and group is not None and group.scope == mark.scope:
                found[group] = None
        for group in self.begun:
            if group.is_behind(event):
                found[group] = None
        return list(found)

    def note_done(self, event: Entry, scope: bytes) -> bool:
        """Enter the fact that a group is done with an event; say whether it is news."""
        mark = self.marks.get(scope)
        if mark is None:
            mark = self._new_mark(scope)
        elif marks.has(event.marks, mark.number):
            return False
        before = marks.cost(event.marks)
        event.marks = marks.with_one_more(event.marks, mark.number)
        self.count(marks.cost(event.marks) - before)
        mark.uses += 1
        group = mark.group
        if group is not None and group.scope == scope and group.is_behind(event):
            group.overlap += 1
        return True

    def _new_mark(self, scope: bytes) -> Mark:
        number = heappop(self._free) if self._free else len(self._by_number)
        mark = self.marks[scope] = Mark(scope, number)
        if number < len(self._by_number):
            self._by_number[number] = mark
        else:
            self._by_number.append(mark)
        self.count(MARK_COST + len(scope))
        known = read_scope(scope)
        group = None if known is None else self.groups.get(known[0])
        mark.group = group if group is not None and group.scope == scope else None
        return mark

    def adopt_mark(self, group: Group) -> None:
        """Let the facts of a scope be those of a group which has just come to have it."""
        mark = self.marks.get(group.scope)
        if mark is not None:
            mark.group = group

    def _unmark(self, event: Entry) -> None:
        """Forget all facts of an event that goes."""
        self.count(-marks.cost(event.marks))
        for number in marks.numbers(event.marks):
            mark = self._by_number[number]
            assert mark is not None
            mark.uses -= 1
            group = mark.group
            if group is not None and group.scope == mark.scope and group.is_behind(event):
                group.overlap -= 1
            if not mark.uses:
                self._drop_mark(mark)
                if group is not None:
                    self.let_go(group)
        event.marks = b""

    def _drop_mark(self, mark: Mark) -> None:
        del self.marks[mark.scope]
        self.count(-MARK_COST - len(mark.scope))
        self._by_number[mark.number] = None
        heappush(self._free, mark.number)
        if not self.marks:
            self._by_number.clear()
            self._free.clear()


def units_of(event: Entry) -> Iterator[PendingEntry]:
    """What groups have of an event, each once; the unit that was drawn last may be unlinked."""
    unit = event.touched
    while unit is not None:
        following = unit.following
        if unit.group.units.get(event) is unit:
            yield unit
        unit = following


def note_early(memory: Memory, event: Entry, scope: bytes) -> None:
    """Enter the fact that a group is done with an event which is not in its log yet."""
    if scope not in event.early:
        event.early |= {scope}
        memory.used += EARLY_COST + len(scope)


def forget_early(memory: Memory, event: Entry) -> None:
    """Forget what was known of an event before it came into its log, or ended."""
    memory.used -= sum(EARLY_COST + len(scope) for scope in event.early)
    event.early = _NOBODY
