"""Entries of streams: entries that every consumer group gets, and that stay until their time is over.

    QADD --> entry --delay, copies--> stream --QGET g--> unit (entry, g): in progress --QACK--> done, for g
                                       ^                 |
                                       +-- redo <--------+ the deadline passes; QGROUP RETURN; the consumer vanished

An entry is a job of the kind stream, which no timer queues again (its retry period is RETRY_NEVER_MS), so that it may
have copies and is at-least-once.  Nothing but the end of its time, DELJOB or a flush removes it.  What groups made of
it is in `groups`; here is what consumers and time do to that.

A deadline is counted from the delivery, also of one who had to wait.  An acknowledgement at the deadline is accepted, a
millisecond later it is not, whether or not anything has happened to the unit by then.  It names the entry and not the
consumer: who comes late, after another one of the group got the entry, has done what that one is doing.  A refused
acknowledgement leaves no trace: who hears so may undo what it did.

Who waits for a group is served when an entry comes into the stream and when a unit comes back, those that want an entry
first come first served.  Those that want to be told (QNOTIFY) are all told, as nothing is reserved for them.

Of several nodes that hold an entry one hands it out (`owners`).  The others hear of each delivery, each fact and
each beginning, and keep them for the day on which it is theirs to hand out (`acksets`).  Consumers on nodes that do not
hold it get it from there (`readers`), and say there that they are done with it (`reconciliation`).

The journal hears of an entry (JOB_ADDED), of each fact that a group is done (UNIT_DONE with its scope), of leases
(UNIT_LEASED, whose word for the holder is the end of the lease on the wall clock, in milliseconds, and the id of the
worker if it is with one) and of where groups begin and flushes end (GROUP).  After a crash leases whose end is ahead
are as they were; others wait again.

Times are integer milliseconds.
"""

from collections.abc import Iterator

from disqued.core.model.groups import (
    Behind,
    Entry,
    EntryForm,
    EntryUnit,
    Group,
    GroupWaiter,
    PendingEntry,
    Stream,
    note_early,
    read_scope,
    units_of,
)
from disqued.core.model.job import ACTIVE, TO_QUEUED, Job, Unit
from disqued.core.model.machine import Hear, Machine
from disqued.core.model.messages import BEGIN, DELIVERED, FACTS, SETACK, EntryLease, EntryStatus
from disqued.core.model.outbox import GONE_DELETED, UNIT_DONE, UNIT_LEASED, Client, Record
from disqued.core.model.queues import PAUSE_OUT, Queue
from disqued.core.model.state import State
from disqued.core.model.trace import ACK, DELIVER, NACK, ONCE, PEER, REQUEUE, UNSEEN, GroupNote
from disqued.core.model.unfinished import Parts, QuietParts
from disqued.core.model.units import GivenUnit
from disqued.core.model.waiters import Form
from disqued.core.model.worker import Worker
from disqued.core.streams.given import GivenEntries
from disqued.core.streams.members import GroupMembers
from disqued.core.streams.owners import EntryOwners
from disqued.core.streams.starts import GroupStarts
from disqued.core.work.background import Background
from disqued.core.work.blocking import SERVED_AT_ONCE, Blocking
from disqued.core.work.delivery import FETCHED_BYTES
from disqued.core.work.queueing import Queueing
from disqued.errors import JournalFailed

ADD_TIMEOUT_MS = 5_000
UNTIL_DIGITS = 20  #: of an end of a lease, at most


class QueueNameForm(Form):
    """QNOTIFY: the name of the queue that has something."""

    __slots__ = ()

    def row(self, unit: Unit) -> bytes:
        """The queue of an entry."""
        return unit.queue


QUEUE_NAME = QueueNameForm()


class Streams(Machine):
    """The machine between the streams and the groups of consumers of one node."""

    __slots__ = (
        "_blocking",
        "_queueing",
        "_serving",
        "_state",
        "add_timeout_ms",
        "background",
        "given",
        "members",
        "offered",
        "owners",
        "served",
        "starts",
    )  # fmt: skip

    def __init__(self, state: State, queueing: Queueing, blocking: Blocking) -> None:
        self.owners = EntryOwners(state)
        self.starts = GroupStarts(state, self._make_ready)
        self.given = GivenEntries(state)
        #: Queues that have entries for consumers of other nodes; `readers` tells these at the end of the step.
        self.offered: dict[Queue, None] = {}
        self.background = Background()
        self.members = GroupMembers()
        self.add_timeout_ms: int = ADD_TIMEOUT_MS  #: how long a producer waits for copies; 0 = for ever
        self.served: int = 0  #: consumers served, and groups looked at, in this part
        #: Streams whose consumers are served bit by bit: did something come meanwhile?
        self._serving: dict[Queue, bool] = {}
        self._state = state
        self._queueing = queueing
        self._blocking = blocking

    def hears(self) -> dict[int, Hear]:
        return {BEGIN: self.starts.on_begin}

    def client_gone(self, client: Client) -> None:
        if self.members.by_client:
            self.members.forget(client)

    def consumers_of(self, group: Group) -> int:
        """Count the consumers of a group: waiting ones and registered ones."""
        return len(group.waiters) + self.members.count(group.stream.queue, group.name)

    # Entries come.

    def publish(self, job: Job) -> None:
        """Put an entry into its stream, where groups can have it: its delay is over, and so is the wait for copies."""
        assert isinstance(job, Entry)
        state = self._state
        queue = state.queue(job.queue)
        stream = state.stream(job.queue)
        stream.see(job)
        if stream.is_flushed(job):
            state.forget(job, GONE_DELETED)
            return
        job.requeue_at = 0
        job.state = TO_QUEUED[job.state]
        job.elsewhere = self.owners.is_elsewhere(job)
        for scope in job.done:
            self._know(stream, scope)
        stream.add(job)
        queue.accessed_at = state.now
        self._queueing.reschedule(job)
        if job.elsewhere:
            return
        queue.jobs_in += 1
        state.counters.queued += 1
        self._make_ready(queue, stream)

    def keep(self, job: Job) -> None:
        """Keep a copy of an entry, which is handed out by another node unless it turns out to be this one's."""
        assert isinstance(job, Entry)
        if job.requeue_at:
            self.expect(job)
        else:
            self.publish(job)
        if self.owners.of(job)[:8] != job.origin:
            # The maker does not hold it: a holder that has none says so.
            self._state.tell(job, (FACTS, 0, (self.fact_of(job),), False))

    def place(self, entry: Entry) -> None:
        """See again who hands out an entry."""
        stream = entry.stream
        if stream is None:
            return
        is_elsewhere = self.owners.is_elsewhere(entry)
        if is_elsewhere != entry.elsewhere:
            entry.elsewhere = is_elsewhere
            if is_elsewhere:
                stream.went_away(entry)
            else:
                stream.came_here(entry)
        if not is_elsewhere:
            self._make_ready(self._state.queue(entry.queue), stream)

    def expect(self, job: Job) -> None:
        """Note an entry whose delay is not over: a flush ends it, too."""
        assert isinstance(job, Entry)
        stream = self._state.stream(job.queue)
        stream.see(job)
        if stream.is_flushed(job):
            self._state.forget(job, GONE_DELETED)
        else:
            stream.expect(job)

    def _make_ready(self, queue: Queue, stream: Stream) -> None:
        """Serve those who wait at the end of the step."""
        state = self._state
        if queue.pause & PAUSE_OUT:
            return
        if stream.waiting or queue.name in state.demand.entries:
            state.ready[queue] = None

    # Entries go to consumers.

    def fetch(
        self, queue: Queue, group: Group, lease_ms: int, count: int = 1, *, strict: bool = False,
        worker: Worker | None = None,
    ) -> list[Unit]:  # fmt: skip
        """Take up to `count` entries for a consumer of a group that has them for so long; fewer of large ones.

        With `lease_ms` 0 the group is done with them at once; `strict`: only of those that this node made.
        Raises Behind when others have to have their turn before it is known whether there is one, JournalFailed
        (MISCONF) when it could not be kept that it is done.
        """
        taken: list[Unit] = []
        size = 0
        if queue.pause & PAUSE_OUT:
            return taken
        state = self._state
        if not lease_ms and state.durability.read_only:
            raise JournalFailed
        while len(taken) < count and size < FETCHED_BYTES:
            try:
                entry = group.next(state.now, strict=strict)
            except Behind:
                if taken:
                    break
                raise
            if entry is None:
                break
            taken.append(self._deliver(queue, group, entry, lease_ms, worker))
            size += len(entry.body)
        return taken

    def _deliver(self, queue: Queue, group: Group, entry: Entry, lease_ms: int, worker: Worker | None) -> Unit:
        """Let a consumer have an entry; of a worker it comes back with the death of that."""
        state = self._state
        queue.jobs_out += 1
        queue.accessed_at = state.now
        waited_ms = max(0, state.wall - entry.ctime // 1_000_000 - entry.options.delay_ms)
        state.counters.waiting_buckets[waited_ms.bit_length()] += 1
        state.counters.waiting_ms += waited_ms
        unit = group.take(entry)
        if unit.deliveries:
            state.counters.redelivered += 1
        unit.deliveries += 1
        state.note(DELIVER, unit, span_ms=waited_ms, who=state.trace.actor, word=b"" if lease_ms else ONCE)
        if worker is not None:
            worker.started += 1
            unit.bind(worker, state.now)
        if lease_ms:
            self.lease(unit, lease_ms)
        else:
            self.finish(group, entry)
        return unit

    def lease(self, unit: PendingEntry, lease_ms: int) -> None:
        """Let the time of a consumer begin now."""
        state = self._state
        unit.granter = b""
        unit.lease_ms = lease_ms
        unit.requeue_at = state.now + lease_ms
        # An acknowledgement in the last millisecond counts.
        state.schedule.move(unit, unit.requeue_at + 1)
        self._note_lease(unit)

    def _note_lease(self, unit: PendingEntry) -> None:
        """Let the journal and the other holders know until when somebody has a unit."""
        self._journal_lease(unit)
        entry = unit.entry
        if entry.holders:
            self._state.tell(entry, (DELIVERED, entry.id, *self.lease_of(unit)))

    def _journal_lease(self, unit: PendingEntry) -> None:
        state = self._state
        if state.journaling:
            until = state.wall + unit.requeue_at - state.now if unit.requeue_at else 0
            state.outbox.journal.append(group_lease(unit, until))

    def lease_of(self, unit: PendingEntry) -> EntryLease:
        """What another node is told of who has a unit."""
        left_ms = max(1, unit.requeue_at - self._state.now) if unit.state == ACTIVE and unit.requeue_at else 0
        return EntryLease(unit.scope, left_ms, max(0, unit.lease_ms - left_ms) if left_ms else 0, unit.deliveries)

    def leases_of(self, entry: Entry) -> Iterator[EntryLease]:
        """Yield what another node is told of the groups that have an entry."""
        for unit in units_of(entry):
            yield self.lease_of(unit)

    def fact_of(self, entry: Entry) -> EntryStatus:
        """What another node is told of an entry."""
        return EntryStatus(entry.id, tuple(entry.done), tuple(self.leases_of(entry)))

    def has_event(self, queue: Queue, group_name: bytes) -> bool:
        """Return whether a group can have an entry now; True where that takes longer to find out."""
        if queue.stream is None or queue.pause & PAUSE_OUT:
            return False
        group = queue.stream.group(group_name)
        try:
            return group.next(self._state.now) is not None
        except Behind:
            return True
        finally:
            queue.stream.let_go(group)

    def wait(
        self, client: Client, queues: list[Queue], group_name: bytes, timeout_ms: int, form: Form, *,
        nohang: bool = False,
    ) -> GroupWaiter:  # fmt: skip
        """Block a consumer until its group can have something, or for `timeout_ms`; 0 = for ever.

        `nohang`: who would not wait, and is to hear what other nodes have.
        """
        groups = [self._state.stream(queue.name).group(group_name) for queue in dict.fromkeys(queues)]
        waiter = GroupWaiter(client, queues, groups, form, nohang=nohang)
        self._blocking.block(waiter, timeout_ms)
        return waiter

    def serve(self, queue: Queue) -> None:
        """Serve those who wait for a stream; very many bit by bit."""
        stream = queue.stream
        if stream is None or queue.pause & PAUSE_OUT:
            return
        if queue in self._serving:
            self._serving[queue] = True
            return
        if stream.waiting:
            self.served = 0
            parts = self._serve_groups(queue, stream)
            try:
                next(parts)
            except StopIteration:
                pass
            else:
                self._serving[queue] = False
                self._state.work(self._serve_on(queue, parts))
        if queue.name in self._state.demand.entries:
            self.offered[queue] = None

    def _serve_on(self, queue: Queue, parts: Parts) -> QuietParts:
        """Go on serving those who wait, and look again when something came meanwhile."""
        state = self._state
        while True:
            try:
                self.served = 0
                next(parts)
            except StopIteration:
                break
            yield
        again = self._serving.pop(queue, False)
        if again and state.queues.by_name.get(queue.name) is queue:
            state.ready[queue] = None

    def _serve_groups(self, queue: Queue, stream: Stream) -> QuietParts:
        """Serve the groups for which somebody waits, so many consumers at a time."""
        for group in list(stream.waiting):
            while group.waiters and queue.stream is stream and not queue.pause & PAUSE_OUT:
                try:
                    has_more = self._serve_group(queue, group)
                except Behind:
                    # The next part of the work goes on from where this one came.
                    has_more = True
                    self.served = SERVED_AT_ONCE
                if self.served >= SERVED_AT_ONCE:
                    yield
                if not has_more:
                    break

    def _serve_group(self, queue: Queue, group: Group) -> bool:
        """Give entries to the consumers that wait, the longest first, once those were told who want to be told.

        Returns whether there may be more to do.
        """
        replies = self._state.outbox.replies
        self.served += 1
        if group.next(self._state.now) is None:
            return False
        most = SERVED_AT_ONCE - self.served
        for waiter in list(group.waiters):
            if not isinstance(waiter.form, EntryForm):
                self._blocking.stop_waiting(waiter.client)
                replies.append((waiter.client, queue.name, []))
                self.served += 1
                most -= 1
                if most <= 0:
                    return True
        for waiter in list(group.waiters):
            form = waiter.form
            assert isinstance(form, EntryForm)
            if waiter.is_owed:
                continue
            self._state.act_for(waiter.client)
            self.served += 1
            try:
                units = self.fetch(queue, group, form.lease_ms, form.count, strict=form.strict, worker=form.worker)
            except JournalFailed as error:
                self._blocking.stop_waiting(waiter.client)
                replies.append((waiter.client, error, []))
                continue
            if units:
                self.hand(waiter, form, units)
                if self.served >= SERVED_AT_ONCE:
                    return True
            elif not form.strict:
                return False
        return False

    def hand(self, waiter: GroupWaiter, form: EntryForm, units: list[Unit]) -> None:
        """Answer a consumer that waits."""
        self._blocking.stop_waiting(waiter.client)
        self._state.outbox.replies.append((waiter.client, form.answer(units), units))

    # Entries come back.

    def due(self, unit: PendingEntry) -> None:
        """The time of the consumer that has a unit is over: the group can have it again."""
        if unit.state == ACTIVE and unit.group.units.get(unit.entry) is unit:
            if self._state.now <= unit.requeue_at:
                self._state.schedule.add(unit, unit.requeue_at + 1)
            elif unit.entry.elsewhere:
                # Only how it looks from here: who hands it out may have heard more.
                unit.group.give_back(unit)
            else:
                self._return(unit)

    def vanished(self, unit: Unit) -> None:
        """A unit was handed to a consumer that turned out to be gone before it heard of it."""
        if isinstance(unit, GivenUnit):
            self.given.give_back(unit)
            return
        if not isinstance(unit, PendingEntry) or unit.state != ACTIVE or unit.group.units.get(unit.entry) is not unit:
            return  # what was done at its delivery stays done
        state = self._state
        if not unit.entry.holders:
            # What other nodes were told is not taken back: it merges by maximum.
            unit.deliveries -= 1
        state.counters.returned += 1
        state.note(REQUEUE, unit, word=UNSEEN)
        if unit.deliveries:
            self._back(unit)
        else:
            state.schedule.cancel(unit)
            unit.requeue_at = 0
            unit.group.never_had(unit)
            self._make_ready(state.queue(unit.queue), unit.group.stream)
            unit.group.stream.let_go(unit.group)
        self._note_lease(unit)

    def give_back(self, unit: PendingEntry) -> None:
        """A consumer gives a unit back, before its time is over: its group can have it before all others."""
        self._state.note(NACK, unit, who=self._state.trace.actor)
        unit.nacks += 1
        self._state.counters.nacked += 1
        self._back(unit, self._state.numbers.next_front(self._state.wall))
        self._note_lease(unit)

    def returned(self, unit: EntryUnit) -> bool:
        """The worker that has a unit is dead, or gives back what it has: its group can have it before all others.

        Returns whether that is so: not when its stream was flushed.
        """
        if not isinstance(unit, PendingEntry):
            return isinstance(unit, GivenUnit) and self.given.returned(unit)
        queue = self._state.queues.by_name.get(unit.queue)
        if queue is None or queue.stream is not unit.group.stream or unit.state != ACTIVE:
            return False
        if unit.group.units.get(unit.entry) is not unit:
            return False  # its group has begun anew
        self._return(unit, self._state.numbers.next_front(self._state.wall))
        self._note_lease(unit)
        return True

    def _return(self, unit: PendingEntry, order_key: int | None = None) -> None:
        """Nobody has a unit any more, without a word of who had it."""
        self._state.note(REQUEUE, unit)
        self._back(unit, order_key)

    def _back(self, unit: PendingEntry, order_key: int | None = None) -> None:
        state = self._state
        state.schedule.cancel(unit)
        unit.requeue_at = 0
        unit.group.give_back(unit, order_key)
        state.counters.requeued += 1
        queue = state.queue(unit.queue)
        queue.requeued += 1
        queue.accessed_at = state.now
        self._make_ready(queue, unit.group.stream)

    # Entries are done.

    def unit(self, queue_name: bytes, group_name: bytes, job_id: bytes) -> PendingEntry | None:
        """What a group has of an entry; None when it has nothing of it, or all of them do not know of each other."""
        entry = self._state.jobs.get(job_id)
        queue = self._state.queues.by_name.get(queue_name)
        if not isinstance(entry, Entry) or queue is None or queue.stream is None or entry.stream is not queue.stream:
            return None
        group = queue.stream.groups.get(group_name)
        return None if group is None else group.units.get(entry)

    def handed(self, entry: Entry, scope: bytes) -> bool:
        """An entry was handed to a consumer of a group that turned out to be gone before it heard of it.

        Returns whether it was this node that handed it out.
        """
        name = read_scope(scope)
        group = entry.stream.groups.get(name[0]) if entry.stream is not None and name is not None else None
        unit = None if group is None or group.scope != scope else group.units.get(entry)
        if unit is None or unit.granter:
            return not entry.elsewhere
        self.vanished(unit)
        return True

    def is_held(self, unit: PendingEntry) -> bool:
        """Return whether a consumer has a unit, and its time is not over."""
        now = self._state.now
        return unit.state == ACTIVE and now <= unit.requeue_at and unit.entry.expires_at > now

    def acknowledge(self, queue_name: bytes, group_name: bytes, job_id: bytes) -> bool:
        """Note that a group is done with an entry that a consumer of it has; returns whether that was so."""
        unit = self.unit(queue_name, group_name, job_id)
        if unit is None or not self.is_held(unit):
            return False
        state = self._state
        flight_ms = state.now - unit.requeue_at + unit.lease_ms
        state.counters.flight_buckets[flight_ms.bit_length()] += 1
        state.counters.flight_ms += flight_ms
        queue = state.queues.by_name.get(queue_name)
        if queue is not None:
            queue.acked += 1
        if unit.worker is not None:
            unit.worker.done += 1
        state.note_end(ACK, unit, span_ms=flight_ms, who=state.trace.actor)
        self.finish(unit.group, unit.entry)
        return True

    def finish(self, group: Group, entry: Entry) -> None:
        """Note the fact that a group is done with an entry."""
        state = self._state
        self._finish(group, entry)
        if entry.holders:
            state.tell(entry, (SETACK, entry.id, group.scope, False, entry.holders))

    def adopt(self, entry: Entry, scope: bytes) -> bool:
        """Note that a group is done with an entry whose owner cannot be asked; returns whether that is news."""
        if entry.stream is None or entry.is_done_for(scope):
            return False
        group = self._know(entry.stream, scope)
        if group.scope != scope:
            return False
        self.finish(group, entry)
        return True

    def _finish(self, group: Group, entry: Entry) -> None:
        unit = group.finish(entry)
        if unit is not None:
            self._state.schedule.cancel(unit)
        self._note_done(entry, group.scope)

    def note_done(self, entry: Entry, scope: bytes) -> bool:
        """Hear that a group is done with an entry; returns whether that is news."""
        if entry.is_done_for(scope):
            return False
        stream = entry.stream
        if stream is None:
            # Its delay is not over here.
            note_early(self._state.memory, entry, scope)
            self._note_done(entry, scope)
            return True
        group = self._know(stream, scope)
        if group.scope == scope:
            self._finish(group, entry)
        else:
            stream.note_done(entry, scope)
            self._note_done(entry, scope)
        return True

    def on_setack(self, sender: bytes, entry: Entry, scope: bytes, holders: frozenset[bytes]) -> None:
        """Hear from another node that a group is done with an entry; holders that it does not know hear it from us."""
        state = self._state
        if read_scope(scope) is None or not self.note_done(entry, scope):
            return
        state.note_end(ACK, GroupNote(entry, scope), who=sender, word=PEER)
        for node_id in state.shared.others(entry.holders or frozenset()):
            if node_id not in holders and node_id != sender:
                state.send(node_id, (SETACK, entry.id, scope, False, entry.holders))

    def on_delivered(self, sender: bytes, entry: Entry, lease: EntryLease) -> None:
        """Hear from another node that a consumer of a group has an entry, or has it no more: the maximum counts."""
        stream = entry.stream
        if stream is None or read_scope(lease.scope) is None:
            return
        state = self._state
        group = self._know(stream, lease.scope)
        if group.scope == lease.scope and not group.is_done(entry):
            unit = group.units.get(entry)
            until = state.now + lease.left_ms if lease.left_ms else 0
            if unit is None or (lease.deliveries, not lease.left_ms, until) > unit.progress:
                self._lease_elsewhere(group, entry, lease, sender)
        elif entry.is_done_for(lease.scope):
            state.send(sender, (SETACK, entry.id, lease.scope, False, entry.holders or frozenset()))

    def _lease_elsewhere(self, group: Group, entry: Entry, lease: EntryLease, sender: bytes) -> None:
        """Take note of a lease that another node gave."""
        state = self._state
        known = group.units.get(entry)
        if known is None or known.state != ACTIVE or known.deliveries != lease.deliveries or not lease.left_ms:
            unit = group.take(entry)
            unit.deliveries = lease.deliveries
            unit.granter = sender
        else:
            # The same one, as another node remembers it: who has it here has it still, and a little longer perhaps.
            unit = known
        if lease.left_ms:
            unit.lease_ms = lease.left_ms + lease.elapsed_ms
            unit.requeue_at = state.now + lease.left_ms
            state.schedule.move(unit, unit.requeue_at + 1)
        else:
            state.schedule.cancel(unit)
            unit.requeue_at = 0
            group.give_back(unit)
            if not entry.elsewhere:
                self._make_ready(state.queue(entry.queue), group.stream)
        self._journal_lease(unit)

    def _know(self, stream: Stream, scope: bytes) -> Group:
        """The group of a scope, which is in that epoch or a later one."""
        name, epoch = read_scope(scope) or (b"", 0)
        group = stream.group(name)
        if epoch > group.epoch:
            self.starts.merge_group(stream, group, epoch, {})
        return group

    def _note_done(self, entry: Entry, scope: bytes) -> None:
        if self._state.journaling:
            self._state.outbox.journal.append((UNIT_DONE, entry.id, scope))

    def resume(self, group: Group, entry: Entry, deliveries: int, until: int, since: int) -> None:
        """Let a group have an entry as the journal says: since then and until then, unix milliseconds."""
        state = self._state
        if not deliveries:
            self._never_had(group, entry)
            return
        unit = group.take(entry)
        unit.deliveries = deliveries
        unit.lease_ms = max(0, until - since)
        left_ms = min(until - state.wall, unit.lease_ms)
        if left_ms < 0 or not until:
            group.give_back(unit)
            state.schedule.cancel(unit)
            unit.requeue_at = 0
        else:
            unit.requeue_at = state.now + left_ms
            state.schedule.move(unit, unit.requeue_at + 1)

    def _never_had(self, group: Group, entry: Entry) -> None:
        """Undo what the journal said before of who has an entry: it was given back unseen."""
        unit = group.units.get(entry)
        if unit is not None:
            self._state.schedule.cancel(unit)
            group.never_had(unit)
        group.stream.let_go(group)


def group_lease(unit: PendingEntry, until: int) -> Record:
    """What the journal is told of a unit that somebody has until then, unix milliseconds; 0 = that nobody has."""
    holder = b"%d" % until if unit.worker is None else b"%d %b" % (until, unit.worker.id)
    return (UNIT_LEASED, unit.id, unit.scope, unit.deliveries, holder)


def read_holder(holder: bytes) -> tuple[int, bytes] | None:
    """Until when somebody has a unit, as the journal says, and the id of the worker, empty = none; None = no such."""
    until, _, worker_id = holder.partition(b" ")
    return (int(until), worker_id) if until.isdigit() and len(until) <= UNTIL_DIGITS else None
