"""Pending entries: what groups have of entries, from their delivery to their acknowledgement.

    --delivery--> in progress --QACK--> done, for the group
                   |       ^
                   v       | the next delivery
                   redo ---+        the deadline passes; QGROUP RETURN; the consumer vanished

A deadline is counted from the delivery, also for a consumer that had to wait.  An acknowledgement at the deadline is
accepted, a millisecond later it is not, whether or not anything has happened to the unit by then.  It names the entry
and not the consumer: a late consumer, after another one of the group got the entry, has done what that one is doing.
A refused acknowledgement leaves no trace: the consumer may undo what it did.

The owner of an entry sends each lease (DELIVERED) and each end (SETACK) to the other holders, which merge them here.

The journal hears of each fact that a group is done (UNIT_DONE with its scope) and of leases (UNIT_LEASED, whose word
for the holder is the end of the lease on the wall clock, in milliseconds, and the id of the worker if it is with one).
After a crash leases whose end is ahead are as they were; other units wait again.

Times are integer milliseconds.
"""

from collections.abc import Iterator

from disqued.core.model.groups import Entry, Group, PendingEntry, note_early, read_scope, units_of
from disqued.core.model.job import ACTIVE
from disqued.core.model.messages import DELIVERED, SETACK, EntryLease, EntryStatus
from disqued.core.model.outbox import UNIT_DONE, UNIT_LEASED, Record
from disqued.core.model.state import State
from disqued.core.model.trace import ACK, NACK, PEER, REQUEUE, UNSEEN, GroupNote
from disqued.core.streams.ready import make_ready
from disqued.core.streams.starts import GroupStarts

UNTIL_DIGITS = 20  #: of an end of a lease, at most


class PendingEntries:
    """Leases and acknowledgements of entries by groups, of this node and of others."""

    __slots__ = ("_starts", "_state")

    def __init__(self, state: State, starts: GroupStarts) -> None:
        self._state = state
        self._starts = starts

    def unit(self, queue_name: bytes, group_name: bytes, job_id: bytes) -> PendingEntry | None:
        """What a group has of an entry; None when it has nothing of it, or all of them do not know of each other."""
        entry = self._state.jobs.get(job_id)
        queue = self._state.queues.by_name.get(queue_name)
        if not isinstance(entry, Entry) or queue is None or queue.stream is None or entry.stream is not queue.stream:
            return None
        group = queue.stream.groups.get(group_name)
        return None if group is None else group.units.get(entry)

    def is_held(self, unit: PendingEntry) -> bool:
        """Return whether a consumer has a unit, and its time is not over."""
        now = self._state.now
        return unit.state == ACTIVE and now <= unit.requeue_at and unit.entry.expires_at > now

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

    # Leases.

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

    def due(self, unit: PendingEntry) -> None:
        """The time of the consumer that has a unit is over: the group can have it again."""
        if unit.is_leased:
            if self._state.now <= unit.requeue_at:
                self._state.schedule.add(unit, unit.requeue_at + 1)
            elif unit.entry.elsewhere:
                # Only how it looks from here: who hands it out may have heard more.
                unit.group.give_back(unit)
            else:
                self._return(unit)

    def unseen(self, unit: PendingEntry) -> None:
        """Take back a unit whose consumer was gone before it heard of it."""
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
            make_ready(state, state.queue(unit.queue), unit.group.stream)
            unit.group.stream.let_go(unit.group)
        self._note_lease(unit)

    def give_back(self, unit: PendingEntry) -> None:
        """A consumer gives a unit back, before its time is over: its group can have it before all others."""
        self._state.note(NACK, unit, who=self._state.trace.actor)
        unit.nacks += 1
        self._state.counters.nacked += 1
        self._back(unit, self._state.numbers.next_front(self._state.wall))
        self._note_lease(unit)

    def returned(self, unit: PendingEntry) -> bool:
        """The worker that has a unit is dead, or gives back what it has: its group can have it before all others.

        Returns whether that is so: not when its stream was flushed, nor when its group has begun anew.
        """
        queue = self._state.queues.by_name.get(unit.queue)
        if queue is None or queue.stream is not unit.group.stream or not unit.is_leased:
            return False
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
        make_ready(state, queue, unit.group.stream)

    # Acknowledgements.

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
        group = self._starts.group_of(entry.stream, scope)
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
        group = self._starts.group_of(stream, scope)
        if group.scope == scope:
            self._finish(group, entry)
        else:
            stream.note_done(entry, scope)
            self._note_done(entry, scope)
        return True

    def _note_done(self, entry: Entry, scope: bytes) -> None:
        if self._state.journaling:
            self._state.outbox.journal.append((UNIT_DONE, entry.id, scope))

    # Other nodes.

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
        group = self._starts.group_of(stream, lease.scope)
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
                make_ready(state, state.queue(entry.queue), group.stream)
        self._journal_lease(unit)

    # The journal.

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
