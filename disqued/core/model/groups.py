"""The entries of a queue, and what each group of consumers made of them: data alone, changed by `core.streams`.

An entry is kept until its time is over, and every group gets it.  What a group gets is a unit, (entry, scope); the
scope is the name of the group behind its epoch: ``0:mailers``.  A unit that nobody touched is no object.

    entries       a  b  c  d  e  f  g  h  i       in order of (order key, id)
    group            .  .     .  |               position: what is up to here was looked at
      done        a  b     d                     a fact, kept in each entry (`Entry.marks`)
      units             c  .  e                  with a consumer until its deadline, or waiting again (redo)
      exceptions        c                        up to the position and to be had: units that came back, and entries
                                                 that came when the group was past their place

    next of a group = the smaller of its first exception, and the first entry behind its position that is neither
                      done nor a unit of it

There is no pointer that says how far a group has come: an entry that was made on the other side of a partition comes
late, with a place in front of others that are done.  Position and exceptions (`PassedEntries`) are an index, made anew
from the facts whenever that is easier, and no other node ever hears of them.

An entry that another node hands out (`Entry.elsewhere`) is counted as all others are, and is no exception: the position
goes past it.  Should it become this node's to hand out it is found among the exceptions.  Those that other nodes made
have exceptions of their own, as some consumers want none of them (STRICT).

For each group the entries of the stream are one of four, counted as they change:

    in progress   with a consumer, whose time is not over
    redo          was with one, and waits again
    done          a consumer said so, or the group began behind it
    available     none of these; total = in progress + redo + done + available

The cost of an entry that comes or goes depends on what groups have of it, not on how many groups the stream has:
`Entry.touched` are its units, `Entry.late` the exceptions of groups that it is among, `Entry.marks` the facts, by
the numbers that the stream gives to scopes (`Mark`).  On request, done entries are counted from the marks of a scope
and from the place where the group began.

Where a group began is its floor: for each node that made entries the stamp of the last one that the group does not
want.  FORGET raises the epoch, so that what was done by the group of the old one is nothing to the new one.  Both
merge by maximum, and so does the horizon of a flush, which is a floor of the whole stream.

Times are integer milliseconds of the monotonic clock, but for stamps (`Job.ctime`).
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from operator import attrgetter
from typing import Final

from mypy_extensions import mypyc_attr

from disqued.core.model import marks
from disqued.core.model.job import (
    ACTIVE,
    INTO_ACTIVE,
    INTO_QUEUED,
    QUEUED,
    Job,
    JobOptions,
    NamedJob,
    Unit,
    forbidden,
)
from disqued.core.model.memory import Memory
from disqued.core.model.ordered import OrderedUnits
from disqued.core.model.outbox import Client
from disqued.core.model.waiters import Awaited, Consumer, Form, Waiter
from disqued.core.model.worker import Worker
from disqued.errors import CommandError

START: Final = (-(1 << 64), b"")  #: a place in front of every other
SKIPPED_AT_ONCE = 5_000  #: entries passed over in one go, some milliseconds' work

# Bytes, as memory is counted.
LOG_COST = 1_600
GROUP_COST = 950  #: without its name and its scope
UNIT_COST = 260
LATE_COST = 400  #: an entry that nobody has had among the exceptions of a group
MARK_COST = 240  #: a scope that is done with something, beside its text
EARLY_COST = 280  #: a fact of an entry that is not in its stream yet, beside the scope

#: {first 8 hex digits of the id of a node: stamp}.
Floor = dict[bytes, int]

_place = attrgetter("order_key", "id")
_NOBODY: frozenset[bytes] = frozenset()


class Behind(Exception):
    """So many entries had to be passed over that others have to have their turn first."""


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
    """Merge one floor into another, by maximum; returns whether it rose."""
    rose = False
    for origin, ctime in other.items():
        if ctime > floor.get(origin, -1):
            floor[origin] = ctime
            rose = True
    return rose


class Entry(Job):
    """A job of a stream: every group of consumers gets it, and it stays until its time is over (see `groups`).

    It is QUEUED while it is in its stream, and ACTIVE while its delay lasts; what groups make of it changes neither.
    """

    __slots__ = ("absent", "early", "elsewhere", "late", "marks", "stream", "touched")

    def __init__(self, job_id: bytes, queue: bytes, body: bytes, ctime: int, options: JobOptions) -> None:
        super().__init__(job_id, queue, body, ctime, options)
        self.marks: bytes = b""  #: the groups that are done with it, by their numbers in its stream: see `marks`
        self.early: frozenset[bytes] = _NOBODY  #: scopes of those that are done with it before it is in its stream
        self.touched: PendingEntry | None = None  #: the first of the units that groups have of it
        #: What groups can have that are past it, where it is in as an entry that nobody has had; None = in none.
        self.late: dict[PassedEntries, None] | None = None
        self.elsewhere: bool = False  #: another node hands it out, if any does now; this one only keeps it
        self.absent: frozenset[bytes] = frozenset()  #: nodes among those that may hold it which said that they do not
        self.stream: Stream | None = None  #: the stream that it is in

    @property
    def origin(self) -> bytes:
        """The first 8 hex digits of the id of the node that made it."""
        return self.id[2:10]

    @property
    def done(self) -> list[bytes]:
        """Scopes of the groups that are done with it, in order."""
        return sorted(self.early) if self.stream is None else self.stream.scopes_of(self)

    @property
    def has_facts(self) -> bool:
        """Return whether any group is done with it."""
        return bool(self.marks or self.early)

    def is_done_for(self, scope: bytes) -> bool:
        """Return whether a group is certainly done with it."""
        return scope in self.early if self.stream is None else self.stream.is_marked(self, scope)


def new_job(job_id: bytes, queue: bytes, body: bytes, ctime: int, options: JobOptions, *, alias: bytes) -> Job:
    """Make a job, of the kind that has an alias if it has one, or that belongs into a stream; entries have no alias."""
    if options.kind:
        return Entry(job_id, queue, body, ctime, options)
    if alias:
        return NamedJob(job_id, queue, body, ctime, options, alias=alias)
    return Job(job_id, queue, body, ctime, options)


class EntryUnit(Unit):
    """An entry that somebody has, or had."""

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
    """An entry as one group has it: ACTIVE with a consumer, until `requeue_at`, or QUEUED, waiting again."""

    __slots__ = ("consumer", "deliveries", "entry", "following", "group", "lease_ms", "previous")

    def __init__(self, entry: Entry, group: "Group") -> None:
        super().__init__(b"")
        self.entry: Entry = entry
        self.group: Group = group
        self.id = entry.id
        self.queue = entry.queue
        self.body = entry.body
        self.options = entry.options
        self.state = QUEUED
        self.order_key = entry.order_key
        self.requeue_at = 0
        self.flags = 0
        self.nacks = 0
        self.additional_deliveries = 0
        self.deliveries: int = 0  #: times that a consumer got it, as far as this node knows
        self.lease_ms: int = 0  #: how long the consumer has it
        self.consumer: Consumer | None = None  #: who has it, or had it last, from this node; None = that is not known
        #: Its neighbors among the units of its entry; see `Entry.touched`.
        self.previous: PendingEntry | None = None
        self.following: PendingEntry | None = None

    def link(self) -> None:
        """Enter it among the units of its entry."""
        entry = self.entry
        first = entry.touched
        self.following = first
        if first is not None:
            first.previous = self
        entry.touched = self

    def unlink(self) -> None:
        """Take it out of the units of its entry."""
        previous, following = self.previous, self.following
        if previous is not None:
            previous.following = following
        elif self.entry.touched is self:
            self.entry.touched = following
        if following is not None:
            following.previous = previous
        self.previous = self.following = None

    @property
    def job(self) -> Job:
        """The entry."""
        return self.entry

    @property
    def scope(self) -> bytes:
        """The group that it is for, in its epoch."""
        return self.group.scope

    @property
    def is_leased(self) -> bool:
        """Return whether a consumer has it, and its group has not begun anew since then."""
        return self.state == ACTIVE and self.group.units.get(self.entry) is self

    @property
    def progress(self) -> tuple[int, bool, int]:
        """How far it has come, as nodes merge it, by maximum: times that a consumer got it, given back, until when."""
        return (self.deliveries, not self.requeue_at, self.requeue_at)


@mypyc_attr(allow_interpreted_subclasses=True)
class EntryForm(Form):
    """How a consumer of a group takes entries; a form that is no such one only wants to know that there are some."""

    __slots__ = ("lease_ms", "strict")

    def __init__(self, lease_ms: int, count: int = 1, *, strict: bool = False, worker: Worker | None = None) -> None:
        super().__init__(count, worker)
        self.lease_ms: int = lease_ms  #: how long the consumer has them; 0 = they are done at once
        self.strict: bool = strict  #: only such as the node made that hands them out

    @abstractmethod
    def answer(self, units: list[Unit]) -> object:
        """What a consumer is answered that takes these."""


class GroupWaiter(Waiter):
    """A consumer of a group that waits, in the streams of some queues."""

    __slots__ = ("asked", "error", "groups")

    def __init__(
        self, client: Client, queues: Sequence[Awaited], groups: "list[Group]", form: Form, *, nohang: bool = False
    ) -> None:
        super().__init__(client, queues, form, nohang=nohang)
        self.groups: list[Group] = groups
        self.asked: int = 0  #: number of the question to another node whose answer it waits for; 0 = none
        #: The reply if nothing comes: the wait was ended while an event was on its way; None = null is the reply.
        self.error: CommandError | None = None

    @property
    def nothing(self) -> object:
        """What it is answered when there is nothing for it."""
        if self.error is not None:
            return self.error
        return self.form.nothing if self.nohang else None

    @property
    def is_owed(self) -> bool:
        """Return whether its group may be done with something that is on its way to it from another node."""
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
            group.stream.let_go(group)

    def move(self, group: "Group", other: "Group") -> None:
        """Wait for another stream in the place of one."""
        self.groups = [other if one is group else one for one in self.groups]


class PassedEntries:
    """Entries up to the position of a group that it can still have: its exceptions."""

    __slots__ = ("_left", "_stream", "foreign", "late", "own")

    def __init__(self, stream: "Stream") -> None:
        self._stream = stream
        self._left: list[Entry] = []  #: late ones of epochs that are over, which still name this
        self._clear()

    def _clear(self) -> None:
        self.own: OrderedUnits = OrderedUnits()  #: of entries that this node made
        self.foreign: OrderedUnits = OrderedUnits()  #: of others that it hands out
        self.late: dict[Entry, None] = {}  #: those that nobody has had

    def _of_maker(self, entry: Entry) -> OrderedUnits:
        return self.own if entry.origin == self._stream.origin else self.foreign

    def add(self, entry: Entry) -> None:
        """Add an entry that nobody has had, if this node hands it out."""
        if not entry.elsewhere and entry not in self.late:
            self.late[entry] = None
            if entry.late is None:
                entry.late = {}
            entry.late[self] = None
            self._stream.count(LATE_COST)
            self._of_maker(entry).push(entry)

    def discard(self, entry: Entry) -> None:
        """Take out an entry that nobody has had, if it is in here."""
        if entry in self.late:
            del self.late[entry]
            if entry.late is not None:
                del entry.late[self]
                if not entry.late:
                    entry.late = None
            self._stream.count(-LATE_COST)
            self._of_maker(entry).remove(entry)

    def push(self, unit: PendingEntry) -> None:
        """Add a unit that came back."""
        self._of_maker(unit.entry).push(unit)

    def remove(self, unit: PendingEntry) -> None:
        """Take out a unit.  Raises KeyError when it is not in here."""
        self._of_maker(unit.entry).remove(unit)

    def first(self, now: int, *, strict: bool) -> Unit | None:
        """The first one whose time is not over; raises Behind when it takes longer to find it."""
        own = self._first_of(self.own, now)
        foreign = None if strict else self._first_of(self.foreign, now)
        if own is None or foreign is None:
            return foreign if own is None else own
        return min(own, foreign, key=_place)

    def _first_of(self, units: OrderedUnits, now: int) -> Unit | None:
        for skipped, unit in enumerate(units):
            entry = _entry_of(unit)
            if entry.expires_at > now and not self._stream.is_flushed(entry):
                return unit
            if skipped >= SKIPPED_AT_ONCE:
                raise Behind
        return None

    def restart(self) -> None:
        """Forget all, as the epoch is over; late ones go on to name this (`forget_left`)."""
        self._stream.count(-LATE_COST * len(self.late))
        self._left += self.late
        self._clear()

    def forget_left(self, limit: int) -> bool:
        """Let go of some late ones of epochs that are over; returns whether there are more."""
        for entry in self._left[-limit:]:
            if entry.late is not None and entry not in self.late:
                entry.late.pop(self, None)
        del self._left[-limit:]
        return len(self._left) > 0


class Group:
    """A group of consumers of one stream."""

    __slots__ = (
        "epoch",
        "floor",
        "is_asked",
        "leased",
        "name",
        "overlap",
        "passed",
        "position",
        "redo",
        "scope",
        "since",
        "stream",
        "units",
        "until",
        "waiters",
    )  # fmt: skip

    def __init__(self, stream: "Stream", name: bytes) -> None:
        self.stream: Stream = stream
        self.name: bytes = name
        self.epoch: int = 0  #: counts how often the group was forgotten
        self.scope: bytes = scope_of(name, 0)
        self.floor: Floor = {}  #: where it began; empty = at the first entry
        self.since: int = 0  #: when it began, as far as floor and epoch say
        self.until: int = 0  #: when other nodes need not know of that any more, as they said
        self.is_asked: bool = False  #: others were asked whether they need to know it, as this node does not any more
        self.waiters: dict[GroupWaiter, None] = {}  #: first come first
        self.passed: PassedEntries = PassedEntries(stream)
        self._begin()

    def _begin(self) -> None:
        #: Entries that it has, or gave back, and is not done with.
        self.units: dict[Entry, PendingEntry] = {}
        self.position: tuple[int, bytes] = START  #: of the last entry that was looked at
        self.leased: int = 0
        self.redo: int = 0
        self.overlap: int = 0  #: entries that it is done with, and that it began behind besides

    @property
    def done(self) -> int:
        """Entries that it is done with, or began behind."""
        stream = self.stream
        mark = stream.marks.get(self.scope)
        done = 0 if mark is None else mark.uses
        for origin, ctime in self.floor.items():
            done += stream.count_until(origin, ctime)
        return done - self.overlap

    @property
    def available(self) -> int:
        """Entries that it has yet to be given."""
        return len(self.stream) - self.leased - self.redo - self.done

    @property
    def is_known(self) -> bool:
        """Return whether there is anything to say of the group."""
        return bool(self.units or self.waiters or self.floor or self.scope in self.stream.marks)

    @property
    def is_used(self) -> bool:
        """Return whether there is something that means nothing in another epoch."""
        stream = self.stream
        return bool(self.units or self.scope in stream.marks) or any(map(stream.begins_until, self.floor.items()))

    @property
    def is_blank(self) -> bool:
        """True when a new group of this name would be no other."""
        stream = self.stream
        has_any = self.units or self.waiters or self.epoch or self.floor
        return not has_any and self.scope not in stream.marks and self not in stream.searching

    def is_behind(self, entry: Entry) -> bool:
        """Return whether the group began behind an entry."""
        return len(self.floor) > 0 and entry.ctime <= self.floor.get(entry.origin, -1)

    def is_done(self, entry: Entry) -> bool:
        """Return whether the group is done with an entry, or began behind it."""
        if entry.marks:
            mark = self.stream.marks.get(self.scope)
            if mark is not None and marks.has(entry.marks, mark.number):
                return True
        return len(self.floor) > 0 and entry.ctime <= self.floor.get(entry.origin, -1)

    # Entries come and go.

    def arrived(self, entry: Entry) -> None:
        """An entry has come into the stream whose place some group is past."""
        if _place(entry) <= self.position and not self.is_done(entry):
            self.passed.add(entry)

    def came_here(self, entry: Entry) -> None:
        """An entry is handed out by this node from now on, and was by another one, or by none."""
        unit = self.units.get(entry)
        if unit is None:
            if not self.is_done(entry) and _place(entry) <= self.position:
                self.passed.add(entry)
        elif unit.state == QUEUED:
            self.passed.push(unit)

    def went_away(self, entry: Entry) -> None:
        """An entry that this node handed out is handed out by another one from now on, or by none."""
        unit = self.units.get(entry)
        if unit is None:
            self.passed.discard(entry)
        elif unit.state == QUEUED:
            self.passed.remove(unit)

    def end(self, unit: PendingEntry) -> bool:
        """An entry is gone of which the group has a unit; returns whether that was so, and not of an epoch before."""
        entry = unit.entry
        unit.unlink()
        if self.units.get(entry) is not unit:
            return False
        del self.units[entry]
        self.stream.count(-UNIT_COST)
        self._uncount(unit)
        return True

    def _drop(self, entry: Entry) -> PendingEntry | None:
        """Forget what the group has of an entry that it is not done with."""
        unit = self.units.get(entry)
        if unit is None:
            self.passed.discard(entry)
        else:
            self.end(unit)
        return unit

    def _uncount(self, unit: PendingEntry) -> None:
        unit.unbind()
        if unit.state == ACTIVE:
            self.leased -= 1
        else:
            self.redo -= 1
            if not unit.entry.elsewhere:
                self.passed.remove(unit)

    # Units.

    def next(self, now: int, *, strict: bool = False) -> Entry | None:
        """The next entry for a consumer; raises Behind when it takes longer to find it.

        `strict`: only entries that this node made.
        """
        searching = self.stream.searching
        try:
            entry = self._next(now, strict=strict)
        except Behind:
            # Whoever goes on begins where this search came.
            searching[self] = None
            raise
        searching.pop(self, None)
        return entry

    def _next(self, now: int, *, strict: bool) -> Entry | None:
        # This may make exceptions of entries, so it comes first.
        entry = self._next_event(now, strict=strict)
        unit = self.passed.first(now, strict=strict)
        if unit is None or (entry is not None and _place(entry) < _place(unit)):
            return entry
        return _entry_of(unit)

    def _next_event(self, now: int, *, strict: bool) -> Entry | None:
        """The first entry behind the position that the group can have, or could if it were handed out here."""
        stream = self.stream
        for skipped, entry in enumerate(stream.entries.after(self.position)):
            assert isinstance(entry, Entry)
            if (
                entry not in self.units and not entry.elsewhere and entry.expires_at > now and not self.is_done(entry)
                and not stream.is_flushed(entry)
            ):  # fmt: skip
                if not strict or entry.origin == stream.origin:
                    return entry
                self.passed.add(entry)
            self._advance(_place(entry))
            if skipped >= SKIPPED_AT_ONCE:
                raise Behind
        return None

    def take(self, entry: Entry) -> PendingEntry:
        """Let somebody have an entry that is to be had; returns its unit, ACTIVE, whose deadline is yet to be set."""
        unit = self.units.get(entry)
        if unit is None:
            self.passed.discard(entry)
            unit = self.units[entry] = PendingEntry(entry, self)
            unit.link()
            self.stream.count(UNIT_COST)
        else:
            self._uncount(unit)
        assert INTO_ACTIVE[unit.state], forbidden(unit.state, ACTIVE)
        unit.state = ACTIVE
        unit.order_key = entry.order_key
        unit.consumer = None
        self.leased += 1
        self._pass(entry)
        return unit

    def _pass(self, entry: Entry) -> None:
        """Go on behind an entry, if that is the next one."""
        place = _place(entry)
        if place > self.position:
            for first in self.stream.entries.after(self.position):
                if first is entry:
                    self._advance(place)
                return

    def _advance(self, place: tuple[int, bytes]) -> None:
        self.position = place
        if place > self.stream.furthest:
            self.stream.furthest = place

    def give_back(self, unit: PendingEntry, order_key: int | None = None) -> None:
        """Let a unit wait again that a consumer had; at its age, or elsewhere."""
        unit.unbind()
        self.leased -= 1
        assert INTO_QUEUED[unit.state], forbidden(unit.state, QUEUED)
        unit.state = QUEUED
        if order_key is not None:
            unit.order_key = order_key
        self.redo += 1
        if not unit.entry.elsewhere:
            self.passed.push(unit)

    def never_had(self, unit: PendingEntry) -> None:
        """Forget that somebody had an entry: nobody has ever heard of it."""
        entry = unit.entry
        self._drop(entry)
        if _place(entry) <= self.position:
            self.passed.add(entry)

    def finish(self, entry: Entry) -> PendingEntry | None:
        """Note that the group is done with an entry; returns the unit that ends with it."""
        unit = None
        if not self.is_done(entry):
            unit = self._drop(entry)
        self.stream.note_done(entry, self.scope)
        return unit

    # The whole group.

    def move_to(self, other: "Group") -> None:
        """Hand over to a group of another stream all but its entries."""
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
            self.stream.waiting[self] = None
        else:
            self.stream.waiting.pop(self, None)

    def note_beginning(self) -> None:
        """Note whether there is anything to remember of where the group began."""
        if self.epoch or self.floor:
            self.stream.begun[self] = None
        else:
            self.stream.begun.pop(self, None)

    def merge(self, epoch: int, floor: Floor) -> list[PendingEntry] | None:
        """Hear that the group began at a place, in an epoch; returns the units that end, None if that is no news.

        Those of an epoch that is over are still linked to their entries and bound to their workers, and exceptions are
        left to be forgotten (`PassedEntries.forget_left`): whoever has them ends them, some at a time.
        """
        if epoch > self.epoch:
            return self._begin_anew(epoch, dict(floor))
        if epoch < self.epoch or not raise_floor(self.floor, floor):
            return None
        self.note_beginning()
        self._count_overlap()
        for entry in [entry for entry in self.passed.late if self.is_behind(entry)]:
            self.passed.discard(entry)
        over = [unit for unit in self.units.values() if self.is_behind(unit.entry)]
        for unit in over:
            self.end(unit)
        return over

    def forget(self) -> list[PendingEntry]:
        """Forget where it began: that was long ago; returns the units that end."""
        return self._begin_anew(0, {})

    def _begin_anew(self, epoch: int, floor: Floor) -> list[PendingEntry]:
        ended = list(self.units.values())
        self.stream.count(-UNIT_COST * len(ended))
        self.passed.restart()
        self.epoch = epoch
        self.scope = scope_of(self.name, epoch)
        self.floor = floor
        self._begin()
        self.stream.adopt_mark(self)
        self.note_beginning()
        self._count_overlap()
        return ended

    def _count_overlap(self) -> None:
        """Count again the entries that it is done with and that it began behind."""
        self.overlap = 0
        mark = self.stream.marks.get(self.scope)
        if mark is not None:
            for origin, ctime in self.floor.items():
                self.overlap += sum(
                    marks.has(entry.marks, mark.number) for entry in self.stream.made_until(origin, ctime)
                )


class Mark:
    """The number by which a stream knows a scope that is done with entries."""

    __slots__ = ("group", "number", "scope", "uses")

    def __init__(self, scope: bytes, number: int) -> None:
        self.scope: bytes = scope
        self.number: int = number
        self.uses: int = 0  #: entries that are marked with it
        self.group: Group | None = None  #: the group whose scope this is, or was


class Stream:
    """The entries of one queue on this node, and its groups."""

    __slots__ = (
        "_by_number", "_free", "_of_origin", "begun", "cost", "delayed", "entries", "furthest", "groups", "horizon",
        "longest_ms", "marks", "memory", "origin", "owned", "queue", "searching", "seen", "since",
        "until", "waiting",
    )  # fmt: skip

    def __init__(self, queue: bytes, memory: Memory, origin: bytes) -> None:
        self.queue: bytes = queue
        self.memory: Memory = memory
        self.origin: bytes = origin  #: `Entry.origin` of what this node makes
        self.cost: int = 0  #: bytes that it takes beside its entries, as memory is counted
        self.count(LOG_COST)
        self.entries: OrderedUnits = OrderedUnits()
        self.owned: int = 0  #: entries that this node hands out; of each entry one node does, whoever has copies
        self._of_origin: dict[bytes, OrderedUnits] = {}  #: the same by who made them
        self.delayed: dict[Entry, None] = {}  #: entries whose delay is not over
        self.groups: dict[bytes, Group] = {}  #: by name
        self.waiting: dict[Group, None] = {}  #: groups for which somebody waits
        self.searching: dict[Group, None] = {}  #: groups whose next entry has yet to be found
        self.begun: dict[Group, None] = {}  #: groups with an epoch, or that began somewhere
        self.furthest: tuple[int, bytes] = START  #: no group is or was past this place
        self.horizon: Floor = {}  #: what is up to here was flushed
        self.since: int = 0  #: when the horizon was heard of
        self.until: int = 0  #: when other nodes need not know of it any more, as they said
        self.seen: Floor = {}  #: the last stamp of each node's entries that this one has seen
        self.longest_ms: int = 0  #: the longest life that an entry was given
        self.marks: dict[bytes, Mark] = {}  #: scopes that are done with something
        self._by_number: list[Mark | None] = []  #: the same by number; None = it is free
        self._free: list[int] = []  #: free numbers, as a heap

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        for entry in self.entries:
            assert isinstance(entry, Entry)
            yield entry

    @property
    def is_idle(self) -> bool:
        """True when nobody would notice if it were made anew."""
        return not (len(self.entries) or self.delayed or self.groups or self.horizon)

    @property
    def has_content(self) -> bool:
        """Return whether there are entries in it, or will be."""
        return len(self.entries) > 0 or len(self.delayed) > 0

    def group(self, name: bytes) -> Group:
        """The group of a name, made when there is none."""
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = Group(self, name)
            self.adopt_mark(group)
            self.count(cost_of_group(name))
        return group

    def count(self, size: int) -> None:
        """Count bytes that the stream takes, or gives back."""
        self.cost += size
        self.memory.used += size

    def let_go(self, group: Group) -> None:
        """Forget a group if there is nothing of it to remember."""
        if group.is_blank and self.groups.get(group.name) is group:
            del self.groups[group.name]
            for entry in list(group.passed.late):
                group.passed.discard(entry)
            self.count(-cost_of_group(group.name))

    def successor(self) -> "Stream":
        """Make the empty stream that replaces this one, with its consumers and what merges with other nodes."""
        stream = Stream(self.queue, self.memory, self.origin)
        stream.horizon, stream.since, stream.until = self.horizon, self.since, self.until
        stream.seen, stream.longest_ms = self.seen, self.longest_ms
        for group in list(self.waiting | self.begun):
            group.move_to(stream.group(group.name))
        self.waiting.clear()
        return stream

    def see(self, entry: Entry) -> None:
        """Note that an entry was made."""
        if entry.ctime > self.seen.get(entry.origin, -1):
            self.seen[entry.origin] = entry.ctime
        self.longest_ms = max(self.longest_ms, entry.options.ttl_ms)

    def is_flushed(self, entry: Entry) -> bool:
        """Return whether an entry was flushed."""
        return len(self.horizon) > 0 and entry.ctime <= self.horizon.get(entry.origin, -1)

    def expect(self, entry: Entry) -> None:
        """Note an entry whose delay is not over."""
        self.delayed[entry] = None

    def add(self, entry: Entry) -> None:
        """Put an entry in its place."""
        self.delayed.pop(entry, None)
        entry.stream = self
        self.entries.push(entry)
        self.owned += not entry.elsewhere
        units = self._of_origin.get(entry.origin)
        if units is None:
            units = self._of_origin[entry.origin] = OrderedUnits()
        units.push(entry)
        if entry.early:
            early = entry.early
            forget_early(self.memory, entry)
            for scope in sorted(early):
                self.note_done(entry, scope)
        if not entry.elsewhere and _place(entry) <= self.furthest:
            for group in self.groups.values():
                group.arrived(entry)

    def came_here(self, entry: Entry) -> None:
        """An entry is handed out by this node from now on, and was by another one, or by none."""
        self.owned += 1
        if _place(entry) <= self.furthest:
            for group in self.groups.values():
                group.came_here(entry)
        else:
            for unit in units_of(entry):
                unit.group.came_here(entry)

    def went_away(self, entry: Entry) -> None:
        """An entry that this node handed out is handed out by another one from now on, or by none."""
        self.owned -= 1
        for unit in list(units_of(entry)):
            unit.group.went_away(entry)
        for passed in list(entry.late or ()):
            passed.discard(entry)

    def remove(self, entry: Entry) -> list[PendingEntry]:
        """Take an entry out; returns the units that end with it."""
        self.entries.remove(entry)
        self.owned -= not entry.elsewhere
        units = self._of_origin[entry.origin]
        units.remove(entry)
        if not len(units):
            del self._of_origin[entry.origin]
        ended: list[PendingEntry] = []
        for unit in units_of(entry):
            if unit.group.end(unit):
                ended.append(unit)
                self.let_go(unit.group)
        for passed in list(entry.late or ()):
            passed.discard(entry)
        self._unmark(entry)
        entry.stream = None
        return ended

    def count_until(self, origin: bytes, ctime: int) -> int:
        """Count the entries that a node made up to a stamp."""
        units = self._of_origin.get(origin)
        return 0 if units is None else units.count_before((ctime + 1, b""))

    def made_until(self, origin: bytes, ctime: int) -> Iterator[Entry]:
        """The entries that a node made up to a stamp."""
        for entry in self._of_origin.get(origin, ()):
            assert isinstance(entry, Entry)
            if entry.ctime > ctime:
                return
            yield entry

    def begins_until(self, place: tuple[bytes, int]) -> bool:
        """Return whether there is an entry that a node made up to a stamp."""
        origin, ctime = place
        units = self._of_origin.get(origin)
        return units is not None and units.first.order_key <= ctime

    def over_at(self, said: "Group | Stream") -> int:
        """When it need not be known any more where a group began, or up to where the stream was flushed."""
        return max(said.until, said.since + self.longest_ms)

    def needs(self, group: Group, now: int) -> bool:
        """Return whether it matters to this node in which epoch a group is, and where it began."""
        return group.is_used or self.over_at(group) > now

    def forget_horizon(self, now: int) -> bool:
        """Forget up to where the stream was flushed when all that is over; returns whether there was such a place."""
        if not self.horizon or self.over_at(self) > now:
            return False
        self.horizon = {}
        return True

    def forget_searches(self) -> None:
        """Let go of groups whose search for an entry nobody went on with."""
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
        """Return whether others have been asked whether they need to know where some group began."""
        return any(group.is_asked for group in self.begun)

    # Facts.

    def is_marked(self, entry: Entry, scope: bytes) -> bool:
        """Return whether a group is certainly done with an entry of this stream."""
        mark = self.marks.get(scope)
        return mark is not None and marks.has(entry.marks, mark.number)

    def scopes_of(self, entry: Entry) -> list[bytes]:
        """The scopes that are done with an entry, in order."""
        return sorted([mark.scope for number in marks.numbers(entry.marks) if (mark := self._by_number[number])])

    def done_with(self, entry: Entry) -> list[Group]:
        """The groups that are done with an entry, or began behind it."""
        found: dict[Group, None] = {}
        for number in marks.numbers(entry.marks):
            mark = self._by_number[number]
            group = None if mark is None else mark.group
            if mark is not None and group is not None and group.scope == mark.scope:
                found[group] = None
        for group in self.begun:
            if group.is_behind(entry):
                found[group] = None
        return list(found)

    def note_done(self, entry: Entry, scope: bytes) -> bool:
        """Enter the fact that a group is done with an entry; returns whether it is news."""
        mark = self.marks.get(scope)
        if mark is None:
            mark = self._new_mark(scope)
        elif marks.has(entry.marks, mark.number):
            return False
        before = marks.cost(entry.marks)
        entry.marks = marks.with_one_more(entry.marks, mark.number)
        self.count(marks.cost(entry.marks) - before)
        mark.uses += 1
        group = mark.group
        if group is not None and group.scope == scope and group.is_behind(entry):
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

    def _unmark(self, entry: Entry) -> None:
        """Forget all facts of an entry that goes."""
        self.count(-marks.cost(entry.marks))
        for number in marks.numbers(entry.marks):
            mark = self._by_number[number]
            assert mark is not None
            mark.uses -= 1
            group = mark.group
            if group is not None and group.scope == mark.scope and group.is_behind(entry):
                group.overlap -= 1
            if not mark.uses:
                self._drop_mark(mark)
                if group is not None:
                    self.let_go(group)
        entry.marks = b""

    def _drop_mark(self, mark: Mark) -> None:
        del self.marks[mark.scope]
        self.count(-MARK_COST - len(mark.scope))
        self._by_number[mark.number] = None
        heappush(self._free, mark.number)
        if not self.marks:
            self._by_number.clear()
            self._free.clear()


def _entry_of(unit: Unit) -> Entry:
    if isinstance(unit, Entry):
        return unit
    assert isinstance(unit, PendingEntry)
    return unit.entry


def units_of(entry: Entry) -> Iterator[PendingEntry]:
    """What groups have of an entry, each once; the unit that was drawn last may be unlinked."""
    unit = entry.touched
    while unit is not None:
        following = unit.following
        if unit.group.units.get(entry) is unit:
            yield unit
        unit = following


def note_early(memory: Memory, entry: Entry, scope: bytes) -> None:
    """Enter the fact that a group is done with an entry which is not in its stream yet."""
    if scope not in entry.early:
        entry.early |= {scope}
        memory.used += EARLY_COST + len(scope)


def forget_early(memory: Memory, entry: Entry) -> None:
    """Forget what was known of an entry before it came into its stream, or ended."""
    memory.used -= sum(EARLY_COST + len(scope) for scope in entry.early)
    entry.early = _NOBODY
