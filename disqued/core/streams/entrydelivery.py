"""Delivery of entries to the consumers of groups, blocked ones included.

Blocked consumers of a group are served when an entry comes into the stream and when a unit comes back: those that want
an entry first come first served; those that want to hear of one (QNOTIFY) all of them, as nothing is reserved for them.

Times are integer milliseconds.
"""

from disqued.core.model.groups import (
    Behind,
    Entry,
    EntryForm,
    EntryUnit,
    Group,
    GroupWaiter,
    PendingEntry,
    Stream,
    read_scope,
)
from disqued.core.model.job import Unit
from disqued.core.model.outbox import Client
from disqued.core.model.queues import PAUSE_OUT, Queue
from disqued.core.model.state import State
from disqued.core.model.trace import DELIVER, ONCE
from disqued.core.model.unfinished import Parts, QuietParts
from disqued.core.model.units import GivenUnit
from disqued.core.model.waiters import Form
from disqued.core.model.worker import Worker
from disqued.core.streams.given import GivenEntries
from disqued.core.streams.pending import PendingEntries
from disqued.core.work.blocking import SERVED_AT_ONCE, Blocking
from disqued.core.work.delivery import FETCHED_BYTES
from disqued.errors import JournalFailed


class EntryDelivery:
    """Gives entries to consumers of groups, and takes back those that a consumer never saw."""

    __slots__ = ("_blocking", "_pending", "_served", "_serving", "_state", "given", "offered")

    def __init__(self, state: State, blocking: Blocking, pending: PendingEntries) -> None:
        self.given = GivenEntries(state)
        #: Queues that have entries for consumers of other nodes; `offers` tells these at the end of the step.
        self.offered: dict[Queue, None] = {}
        self._served = 0  #: consumers served, and groups looked at, in this part
        #: Streams whose consumers are served bit by bit: did something come meanwhile?
        self._serving: dict[Queue, bool] = {}
        self._state = state
        self._blocking = blocking
        self._pending = pending

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
        unit.consumer = state.custody.consumer_of(state.trace.actor)
        state.note(DELIVER, unit, span_ms=waited_ms, who=state.trace.actor, word=b"" if lease_ms else ONCE)
        if worker is not None:
            worker.started += 1
            unit.bind(worker, state.now)
        if lease_ms:
            self._pending.lease(unit, lease_ms)
        else:
            self._pending.finish(group, entry)
        return unit

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

    # Blocked consumers.

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
            self._served = 0
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
                self._served = 0
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
                    self._served = SERVED_AT_ONCE
                if self._served >= SERVED_AT_ONCE:
                    yield
                if not has_more:
                    break

    def _serve_group(self, queue: Queue, group: Group) -> bool:
        """Give entries to the consumers that wait, the longest first, once those were told who want to be told.

        Returns whether there may be more to do.
        """
        replies = self._state.outbox.replies
        self._served += 1
        if group.next(self._state.now) is None:
            return False
        most = SERVED_AT_ONCE - self._served
        for waiter in list(group.waiters):
            if not isinstance(waiter.form, EntryForm):
                self._blocking.stop_waiting(waiter.client)
                replies.append((waiter.client, queue.name, []))
                self._served += 1
                most -= 1
                if most <= 0:
                    return True
        for waiter in list(group.waiters):
            form = waiter.form
            assert isinstance(form, EntryForm)
            if waiter.is_owed:
                continue
            self._state.act_for(waiter.client)
            self._served += 1
            try:
                units = self.fetch(queue, group, form.lease_ms, form.count, strict=form.strict, worker=form.worker)
            except JournalFailed as error:
                self._blocking.stop_waiting(waiter.client)
                replies.append((waiter.client, error, []))
                continue
            if units:
                self.hand(waiter, form, units)
                if self._served >= SERVED_AT_ONCE:
                    return True
            elif not form.strict:
                return False
        return False

    def hand(self, waiter: GroupWaiter, form: EntryForm, units: list[Unit]) -> None:
        """Answer a consumer that waits."""
        self._blocking.stop_waiting(waiter.client)
        self._state.outbox.replies.append((waiter.client, form.answer(units), units))

    # Consumers that are gone.

    def vanished(self, unit: Unit) -> None:
        """Take back a unit whose consumer was gone before it heard of it; what was done at its delivery stays done."""
        if isinstance(unit, GivenUnit):
            self.given.give_back(unit)
        elif isinstance(unit, PendingEntry) and unit.is_leased:
            self._pending.unseen(unit)

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

    def returned(self, unit: EntryUnit) -> bool:
        """Take back a unit of a worker that is dead, or gives it back; returns whether its group can have it again."""
        if isinstance(unit, PendingEntry):
            return self._pending.returned(unit)
        return isinstance(unit, GivenUnit) and self.given.returned(unit)
