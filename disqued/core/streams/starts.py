"""Group starts: where the groups of a stream began, and up to where it was flushed, on all nodes.

    QGROUP START, FORGET    a group begins anew: its epoch is one more, and it wants nothing up to a floor
    QFLUSH                  all groups begin behind a floor, the horizon, and what is up to it is let go of

    us  --BEGIN(floor, asks)--> all          merged there; asks: and behind all that you know of, too
        <--BEGIN(floor)-- all                each adds what it has seen, and tells all

A floor is the last stamp that is not wanted, for each node that makes entries; floors and epochs merge by maximum.  So
entries that are made on the other side of a partition, which nobody here could know of, are behind no floor.

That is remembered as long as entries may live that were made before.  An epoch must not be forgotten by one node alone:
what its groups are done with then would mean nothing where it is known.

    it matters no more   --BEGIN(for no time, asks)--> all      does it to you?
                         <--BEGIN(for so long)--                to whom it does
    some seconds later   --BEGIN(for no time)--> all            forgotten, here and there; to whom it has come to
                                                                matter meanwhile tells it to all once more

While some node cannot be reached, which may know it, no epoch is forgotten.

Times are integer milliseconds; stamps are those of `Job.ctime`.
"""

from disqued.core.model.groups import Entry, Floor, Group, PendingEntry, Stream, raise_floor, read_scope
from disqued.core.model.job import WORK_SCOPE, Unit
from disqued.core.model.machine import Hear, Machine
from disqued.core.model.messages import BEGIN, Message
from disqued.core.model.outbox import GONE_DELETED, GROUP
from disqued.core.model.queues import Queue
from disqued.core.model.registry import Registry
from disqued.core.model.state import State
from disqued.core.model.unfinished import Parts, QuietParts
from disqued.core.streams.ready import make_ready

KEPT_MS = 300_000  #: how long a beginning is to be known, at least, that matters to the node that tells of it
TOLD_PER_PART = 500  #: groups whose beginning a node is told of in one go
FORGOTTEN_PER_PART = 500  #: entries of a flush that are let go of in one go, some milliseconds' work
BEGINNINGS_AT_ONCE = 200  #: groups that are forgotten where they began
ENDED_AT_ONCE = 500  #: units of a group that has begun anew, some milliseconds' work
FORGOTTEN_EFFORT = 20_000  #: or fewer, of which groups have much: see `Unfinished.effort`
_DONE = object()


class GroupStarts(Machine):
    """The machine behind QGROUP START and FORGET, and QFLUSH of a stream."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def hears(self) -> dict[int, Hear]:
        return {BEGIN: self.on_begin}

    # Groups.

    def start(self, stream: Stream, group_name: bytes, floor: Floor, *, now: bool = False) -> None:
        """Let a group begin behind a floor, on all nodes that can be reached.

        What it has and what it is done with is forgotten; `now`: it begins behind all that other nodes know of, too.
        """
        group = stream.group(group_name)
        self.merge_group(stream, group, group.epoch + 1, floor)
        self._tell_all(self.of_group(stream, group, asks=now))

    def merge_group(self, stream: Stream, group: Group, epoch: int, floor: Floor) -> bool:
        """Note where a group began in an epoch; returns whether that is news."""
        state = self._state
        ended = group.merge(epoch, floor)
        if ended is None:
            return False
        self._end(group, ended)
        group.since = state.now
        if state.journaling:
            state.outbox.journal.append((GROUP, stream.queue, group.scope, tuple(sorted(group.floor.items()))))
        # It may begin before entries that it was done with.
        make_ready(state, state.queue(stream.queue), stream)
        return True

    def group_of(self, stream: Stream, scope: bytes) -> Group:
        """The group of a scope, which is in that epoch or a later one."""
        name, epoch = read_scope(scope) or (b"", 0)
        group = stream.group(name)
        if epoch > group.epoch:
            self.merge_group(stream, group, epoch, {})
        return group

    def forget_group(self, stream: Stream, name: bytes) -> None:
        """Hear that it means nothing any more where a group began."""
        group = stream.groups.get(name)
        if group is not None:
            self._end(group, group.forget())
            stream.let_go(group)

    def floor_now(self, stream: Stream) -> Floor:
        """All entries that this node knows of, and could know of, at this moment."""
        floor = dict(stream.seen)
        floor[self._state.node_id[:8]] = self._state.numbers.last_ctime
        return floor

    def _end(self, group: Group, units: list[PendingEntry]) -> None:
        """Take the units of a group that has begun anew from those who have them; very many bit by bit."""
        parts = self._end_parts(group, units, self._state.jobs)
        if next(parts, _DONE) is not _DONE:
            self._state.work(parts)

    def _end_parts(self, group: Group, units: list[PendingEntry], jobs: Registry) -> QuietParts:
        # After a flush of the whole node there is nothing to take them from.
        while self._state.jobs is jobs:
            for unit in units[-ENDED_AT_ONCE:]:
                unit.unlink()
                unit.unbind()
                self._state.schedule.cancel(unit)
            del units[-ENDED_AT_ONCE:]
            if not group.passed.forget_left(ENDED_AT_ONCE) and not units:
                return
            yield

    def forget_unneeded(self, stream: Stream) -> None:
        """Forget where groups began when it matters no more, here and, as they were asked the last time, to others."""
        if stream.forget_horizon(self._state.now) and self._state.journaling:
            self._state.outbox.journal.append((GROUP, stream.queue, WORK_SCOPE, ()))
        state = self._state
        unneeded = stream.unneeded(state.now, forgets=not state.peers.is_one_away)
        parts = self._forget_unneeded(stream, unneeded, state.jobs)
        if next(parts, _DONE) is not _DONE:
            self._state.work(parts)
        stream.forget_searches()

    def _forget_unneeded(self, stream: Stream, groups: list[Group], jobs: Registry) -> QuietParts:
        for count, group in enumerate(groups, 1):
            # Between two parts it may have come to matter, or everything may have been flushed.
            if self._state.jobs is not jobs:
                return
            if group in stream.begun and not stream.needs(group, self._state.now):
                self._forget_one(stream, group)
            if count % BEGINNINGS_AT_ONCE == 0:
                yield

    def _forget_one(self, stream: Stream, group: Group) -> None:
        scope, asks = group.scope, not group.is_asked and len(self._state.peers.linked) > 0
        group.is_asked = True
        if not asks:
            self._forget_beginning(group)
        for node_id in list(self._state.peers.linked):
            self._state.send(node_id, (BEGIN, stream.queue, scope, {}, 0, asks))

    def _forget_beginning(self, group: Group) -> None:
        """Forget where a group began."""
        self._end(group, group.forget())
        if self._state.journaling:
            self._state.outbox.journal.append((GROUP, group.stream.queue, group.scope, ()))
        group.stream.let_go(group)

    # Flushes.

    def flush(self, name: bytes) -> None:
        """Let all entries of a queue end that this node could know of, and others that can be reached.

        Nobody can have any of them from now on, nor are they counted any more; they are let go of bit by bit.
        """
        state = self._state
        queue = state.queues.by_name.get(name)
        if queue is None or queue.stream is None:
            self._tell_all((BEGIN, name, WORK_SCOPE, {}, 0, True))
            return
        stream = queue.stream
        queue.stream = stream.successor()
        self._note_horizon(queue.stream, self.floor_now(stream))
        self._tell_all(self.of_log(queue.stream, asks=True))
        state.work(self._let_go(stream, state.jobs))

    def merge_horizon(self, stream: Stream, horizon: Floor) -> Parts | None:
        """Hear up to where a stream was flushed; returns how its entries are let go of, None if that is no news."""
        return self._let_go_flushed(stream, self._state.jobs) if self._note_horizon(stream, horizon) else None

    def _note_horizon(self, stream: Stream, horizon: Floor) -> bool:
        state = self._state
        if not raise_floor(stream.horizon, horizon):
            return False
        stream.since = state.now
        if state.journaling:
            state.outbox.journal.append((GROUP, stream.queue, WORK_SCOPE, tuple(sorted(stream.horizon.items()))))
        return True

    def _let_go(self, stream: Stream, jobs: Registry) -> QuietParts:
        """Forget a stream that is nobody's any more, and its entries."""
        yield from self._let_go_flushed(stream, jobs)
        # After a flush of the whole node nothing of it is counted.
        if self._state.jobs is jobs:
            self._state.memory.used -= stream.cost

    def _let_go_flushed(self, stream: Stream, jobs: Registry) -> QuietParts:
        state = self._state
        entries: list[Unit] = [*stream.entries.listed(), *stream.delayed]
        state.unfinished.effort = 0
        for entry in entries:
            assert isinstance(entry, Entry)
            if state.unfinished.effort >= FORGOTTEN_EFFORT:
                yield
                state.unfinished.effort = 0
            state.unfinished.effort += FORGOTTEN_EFFORT // FORGOTTEN_PER_PART
            if state.jobs is jobs and jobs.get(entry.id) is entry and stream.is_flushed(entry):
                state.forget(entry, GONE_DELETED)
        yield

    # Other nodes.

    def of_group(self, stream: Stream, group: Group, *, asks: bool = False) -> Message:
        """What other nodes are told of where a group began."""
        least_ms = KEPT_MS if group.is_used or self._state.peers.is_one_away else 1
        left_ms = max(stream.over_at(group) - self._state.now, least_ms)
        return (BEGIN, stream.queue, group.scope, dict(group.floor), left_ms, asks)

    def of_log(self, stream: Stream, *, asks: bool = False) -> Message:
        """What other nodes are told of up to where a stream was flushed."""
        left_ms = max(0, stream.over_at(stream) - self._state.now)
        return (BEGIN, stream.queue, WORK_SCOPE, dict(stream.horizon), left_ms, asks)

    def _tell_all(self, message: Message) -> None:
        for node_id in list(self._state.peers.linked):
            self._state.send(node_id, message)

    def tell(self, node_id: bytes, stream: Stream) -> QuietParts:
        """Tell a node of all beginnings of a stream, bit by bit."""
        if stream.horizon:
            self._state.send(node_id, self.of_log(stream))
        for count, group in enumerate(list(stream.begun), 1):
            if group in stream.begun:
                self._state.send(node_id, self.of_group(stream, group))
            if count % TOLD_PER_PART == 0:
                yield

    def on_begin(  # noqa: PLR0917 - the fields of the message
        self, sender: bytes, name: bytes, scope: bytes, floor: dict[bytes, int], left_ms: int, asks: bool
    ) -> None:
        """Hear where a group began, or up to where a stream was flushed."""
        state = self._state
        known = read_scope(scope)
        queue = state.queues.by_name.get(name)
        if (scope and known is None) or (queue is None and state.memory.level == 3):
            return
        if not floor and not scope and (queue is None or queue.stream is None):
            return  # there is nothing here to be flushed
        if known is not None and not left_ms:
            self._hear_of_end(sender, queue, *known, asks=asks)
            return
        stream = state.stream(name)
        # This node may have lost what it made until then, and its clock may have gone back.
        state.numbers.stamp_behind(floor.get(state.node_id[:8], 0), state.wall)
        if asks:
            floor = dict(floor)
            raise_floor(floor, self.floor_now(stream))
        if known is None:
            answer = self._hear_of_flush(stream, floor, left_ms)
        else:
            answer = self._hear_of_group(stream, *known, floor, left_ms)
        if asks:
            self._tell_all(answer)

    def _hear_of_end(self, sender: bytes, queue: Queue | None, name: bytes, epoch: int, *, asks: bool) -> None:
        """Hear that it matters to a node no more where a group began, or that it has forgotten it."""
        state = self._state
        stream = None if queue is None else queue.stream
        group = None if stream is None else stream.groups.get(name)
        if stream is None or group is None or group.epoch < epoch:
            return
        if stream.needs(group, state.now) or state.peers.is_one_away:
            if asks:
                state.send(sender, self.of_group(stream, group))
            else:
                self._tell_all(self.of_group(stream, group))
        elif not asks:
            self._forget_beginning(group)

    def _hear_of_flush(self, stream: Stream, floor: Floor, left_ms: int) -> Message:
        parts = self.merge_horizon(stream, floor)
        stream.until = max(stream.until, self._state.now + left_ms)
        if parts is not None:
            self._state.work(parts)
        return self.of_log(stream)

    def _hear_of_group(self, stream: Stream, name: bytes, epoch: int, floor: Floor, left_ms: int) -> Message:
        group = stream.group(name)
        self.merge_group(stream, group, epoch, floor)
        group.until = max(group.until, self._state.now + left_ms)
        answer = self.of_group(stream, group)
        stream.let_go(group)
        return answer
