"""Entries of streams: entries that every consumer group gets, and that stay until their time is over.

    QADD --> entry --delay, copies--> stream --QGET g--> unit (entry, g): in progress --QACK--> done, for g
                                       ^                 |
                                       +-- redo <--------+ the deadline passes; QGROUP RETURN; the consumer vanished

An entry is a job of the kind stream, which no timer queues again (its retry period is RETRY_NEVER_MS), so that it may
have copies and is at-least-once.  Nothing but the end of its time, DELJOB or a flush removes it.  What groups made of
it is in `groups`; what consumers and time do to that is in `entrydelivery` and `pending`.

Of several nodes that hold an entry one hands it out (`owners`).  The others hear of each delivery, each fact and
each beginning, and keep them for the day on which it is theirs to hand out (`acksets`).  Consumers on nodes that do not
hold it get it from there (`readers`), and say there that they are done with it (`reconciliation`).

The journal hears of an entry (JOB_ADDED), of what groups make of it (`pending`), and of where groups begin and flushes
end (GROUP).

Times are integer milliseconds.
"""

from disqued.core.model.groups import Entry, Group
from disqued.core.model.job import (
    INTO_QUEUED,
    QUEUED,
    Job,
    forbidden,
)
from disqued.core.model.machine import Machine
from disqued.core.model.messages import FACTS
from disqued.core.model.outbox import GONE_DELETED, Client
from disqued.core.model.state import State
from disqued.core.streams.members import GroupMembers
from disqued.core.streams.owners import EntryOwners
from disqued.core.streams.pending import PendingEntries
from disqued.core.streams.ready import make_ready
from disqued.core.streams.starts import GroupStarts
from disqued.core.work.background import Background
from disqued.core.work.queueing import Queueing

ADD_TIMEOUT_MS = 5_000


class Streams(Machine):
    """The machine that puts entries into the streams of one node."""

    __slots__ = ("_pending", "_queueing", "_starts", "_state", "add_timeout_ms", "background", "members", "owners")

    def __init__(self, state: State, queueing: Queueing, starts: GroupStarts, pending: PendingEntries) -> None:
        self.owners = EntryOwners(state)
        self.background = Background()
        self.members = GroupMembers()
        self.add_timeout_ms: int = ADD_TIMEOUT_MS  #: how long a producer waits for copies; 0 = for ever
        self._state = state
        self._queueing = queueing
        self._starts = starts
        self._pending = pending

    def client_gone(self, client: Client) -> None:
        if self.members.by_client:
            self.members.forget(client)

    def consumers_of(self, group: Group) -> int:
        """Count the consumers of a group: waiting ones and registered ones."""
        return len(group.waiters) + self.members.count(group.stream.queue, group.name)

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
        assert INTO_QUEUED[job.state], forbidden(job.state, QUEUED)
        job.state = QUEUED
        job.elsewhere = self.owners.is_elsewhere(job)
        for scope in job.done:
            self._starts.group_of(stream, scope)
        stream.add(job)
        queue.accessed_at = state.now
        self._queueing.reschedule(job)
        if job.elsewhere:
            return
        queue.jobs_in += 1
        state.counters.queued += 1
        make_ready(state, queue, stream)

    def keep(self, job: Job) -> None:
        """Keep a copy of an entry, which is handed out by another node unless it turns out to be this one's."""
        assert isinstance(job, Entry)
        if job.requeue_at:
            self.expect(job)
        else:
            self.publish(job)
        if self.owners.of(job)[:8] != job.origin:
            # The maker does not hold it: a holder that has none says so.
            self._state.tell(job, (FACTS, 0, (self._pending.fact_of(job),), False))

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
            make_ready(self._state, self._state.queue(entry.queue), stream)

    def expect(self, job: Job) -> None:
        """Note an entry whose delay is not over: a flush ends it, too."""
        assert isinstance(job, Entry)
        stream = self._state.stream(job.queue)
        stream.see(job)
        if stream.is_flushed(job):
            self._state.forget(job, GONE_DELETED)
        else:
            stream.expect(job)
