"""Acknowledgement sets: the facts that holders of entries share, so that any of them can take over.

The owner of an entry sends each delivery (DELIVERED) and each end (SETACK) to the other holders when it happens, and
group starts (BEGIN) to all nodes.  What cannot be sent without a link is sent when the link opens:

    us    --BEGIN--> them                   where the groups of each stream began, and up to where it was flushed
          --FACTS(some entries)--> them     who is done with them, and who has them
    them  --MISSING(number, ids)--> us      of these I hold none; the next ones, please
          --FACTS(the rest, last)--> them

FACTS covers the entries that the other node may hold and that there is something to say of, and those that it owns:
MISSING then says that another node has to own them.  Messages may come late, twice or never: facts unite, group starts
and horizons merge by maximum, and of leases the word of the owner counts.

When nodes come, go or fail, all entries are examined again, in parts: this node owns some of them now, and others no
longer.

Times are integer milliseconds.
"""

from collections.abc import Iterator
from typing import Final

from disqued.core.model.groups import START, Entry, Stream
from disqued.core.model.job import WAIT_REPL
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import DELJOB, FACTS, FACTS_PER_MESSAGE, MISSING, EntryStatus
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.unfinished import QuietParts
from disqued.core.streams.entries import Streams
from disqued.core.streams.owners import HEARD_MS, NOBODY
from disqued.core.streams.pending import PendingEntries
from disqued.core.streams.starts import GroupStarts

LOOKED_AT_PER_PART: Final = 1_000  #: entries, some milliseconds' work
GROUPS_PER_EVENT: Final = 16  #: that cost as much as an entry by itself
QUEUES_PER_PART: Final = 500
ANSWER_MS: Final = 2_000  #: how long an answer is waited for before the same is said again; then twice as long
ANSWER_MAX_MS: Final = 60_000
FACTS_BYTES: Final = 1 << 18  #: of scopes, after which a message is full


class AckSetRound(Timed):
    """What a node is to be told, in the order of its coming to mind."""

    __slots__ = ("at", "awaited", "began_at", "entries", "is_collected", "node_id", "patience_ms")

    def __init__(self, node_id: bytes) -> None:
        self.awake_at = 0
        self.node_id: bytes = node_id
        self.entries: list[Entry] = []
        self.at: int = 0  #: so many of them were told
        self.began_at: int = 0  #: the same, before the last message
        self.patience_ms: int = ANSWER_MS  #: how long its answer is waited for
        self.awaited: int = 0  #: number of the message whose answer is waited for; 0 = none
        self.is_collected: bool = False  #: these are all


class AckSets(Timed, Machine):
    """The machine that keeps holders of entries at one; it is due when others have been waited for, after a start."""

    __slots__ = ("_looks", "_pending", "_rounds", "_starts", "_state", "_streams")

    def __init__(self, state: State, streams: Streams, starts: GroupStarts, pending: PendingEntries) -> None:
        self.awake_at = 0
        self._state = state
        self._streams = streams
        self._starts = starts
        self._pending = pending
        self._rounds: dict[bytes, AckSetRound] = {}
        self._looks = 0  #: how often all entries were to be looked at again

    def hears(self) -> dict[int, Hear]:
        return {FACTS: self.on_facts, MISSING: self.on_missing}

    def due_table(self) -> Acts:
        return on(AckSetRound, self.round_due) | on(AckSets, AckSets.due)

    # After a start.

    def resume(self) -> None:
        """Everything is read from the store: wait for what others know, if others may hold some of it."""
        others: set[bytes] = set()
        for stream in self._all_logs():
            for holders in {entry.holders for entry in stream if entry.holders}:
                others.update(self._state.shared.others(holders))
        if others:
            self._streams.owners.unheard = frozenset(others)
            self._look_again()
            self._state.schedule.move(self, self._state.now + HEARD_MS)

    def due(self) -> None:
        """Those who have not told what they know by now are not waited for."""
        if self._streams.owners.unheard:
            self._streams.owners.unheard = frozenset()
            self._look_again()

    def _heard(self, node_id: bytes) -> None:
        arbiters = self._streams.owners
        if node_id in arbiters.unheard:
            arbiters.unheard -= {node_id}
            self._look_again()

    # Nodes come and go.

    def standing_changed(self) -> None:
        self._streams.owners.forget_candidates()
        self._look_again()

    def _look_again(self) -> None:
        self._looks += 1
        if self._has_logs:
            self._state.work(self._look(self._looks))

    @property
    def _has_logs(self) -> bool:
        return any(True for _ in self._all_logs())

    def _all_logs(self) -> Iterator[Stream]:
        for queue in self._state.queues.by_name.values():
            if queue.stream is not None:
                yield queue.stream

    def _look(self, look: int) -> QuietParts:
        """Look at all entries, until there is a reason to begin anew."""
        for stream in list(self._all_logs()):
            for entries in _pieces(stream):
                if look != self._looks:
                    return
                for entry in entries:
                    if entry.holders:
                        self._place(entry)
                yield

    def link_opened(self, node_id: bytes) -> None:
        """Tell a node all that it may not know."""
        this = self._rounds[node_id] = AckSetRound(node_id)
        if self._has_logs:
            self._state.work(self._collect(this))
        else:
            this.is_collected = True
            self._go_on(this)

    def greeted(self, node_id: bytes) -> None:
        """The link of a node to this one is there again: ask after what it hands out, it may be gone there."""
        if node_id in self._state.peers.linked and node_id not in self._rounds and self._has_logs:
            this = self._rounds[node_id] = AckSetRound(node_id)
            self._state.work(self._collect(this, others=False))

    def link_closed(self, node_id: bytes) -> None:
        """Tell a node no more: it is told all of it when the next link opens."""
        this = self._rounds.pop(node_id, None)
        if this is not None:
            self._state.schedule.cancel(this)

    def _collect(self, this: AckSetRound, *, others: bool = True) -> QuietParts:
        """Tell a node of all beginnings, and find the entries that it is to be told of, or those that it hands out."""
        state = self._state
        node_id = this.node_id
        for count, stream in enumerate(list(self._all_logs()), 1):
            if others:
                yield from self._starts.tell(node_id, stream)
            for entries in _pieces(stream):
                if self._rounds.get(node_id) is not this:
                    return
                concerns = self._concerns if others else self._is_left_to
                this.entries += [entry for entry in entries if concerns(entry, node_id)]
                yield
            if count % QUEUES_PER_PART == 0:
                yield
        if self._rounds.get(node_id) is this and node_id in state.peers.linked:
            this.is_collected = True
            self._go_on(this)

    def _is_left_to(self, entry: Entry, node_id: bytes) -> bool:
        """Return whether a node hands out an entry, as far as is known."""
        return entry.holders is not None and self._streams.owners.of(entry) == node_id

    def _concerns(self, entry: Entry, node_id: bytes) -> bool:
        """Return whether a node is to be told of an entry: it may hold it, and there is something to say or to ask."""
        if not entry.holders or node_id not in entry.holders:
            return False
        # After a start it is not known yet who hands out what.
        return (
            entry.has_facts
            or self._streams.owners.of(entry) in (node_id, NOBODY)
            or any(self._pending.leases_of(entry))
        )

    # Telling.

    def doubt(self, node_id: bytes, entry: Entry) -> None:
        """Ask a node whether it has an entry that it would be the one to hand out."""
        this = self._rounds.get(node_id)
        if this is None:
            this = self._rounds[node_id] = AckSetRound(node_id)
            this.is_collected = True
        this.entries.append(entry)
        if this.is_collected and not this.awaited:
            # At the end of the step at the earliest: more may come to mind in it.
            self._await(this, 0)

    def tell(self, node_id: bytes, entry: Entry) -> None:
        """Tell a node what is known of an entry, of which it has just got a copy."""
        self.note_holder(node_id, entry)
        if entry.has_facts or any(self._pending.leases_of(entry)):
            self._state.send(node_id, (FACTS, 0, (self._pending.fact_of(entry),), False))

    def round_due(self, this: AckSetRound) -> None:
        """Say once more what was not answered, or begin."""
        if self._rounds.get(this.node_id) is not this:
            return
        if this.awaited:
            this.at = this.began_at
            this.patience_ms = min(2 * this.patience_ms, ANSWER_MAX_MS)
        self._go_on(this)

    def _await(self, this: AckSetRound, number: int, in_ms: int = 1) -> None:
        this.awaited = number
        self._state.schedule.move(this, self._state.now + in_ms)

    def _go_on(self, this: AckSetRound) -> None:
        """Tell the next ones, and wait for the answer; nothing is said once all has been."""
        state = self._state
        facts: list[EntryStatus] = []
        size = 0
        this.began_at = this.at
        while this.at < len(this.entries) and len(facts) < FACTS_PER_MESSAGE and size < FACTS_BYTES:
            entry = this.entries[this.at]
            this.at += 1
            if state.jobs.get(entry.id) is entry:
                fact = self._pending.fact_of(entry)
                facts.append(fact)
                size += sum(map(len, fact.done)) + sum(len(lease.scope) for lease in fact.leases)
        last = this.at == len(this.entries)
        number = state.numbers.next_number()
        if state.send(this.node_id, (FACTS, number, tuple(facts), last)):
            self._await(this, number, this.patience_ms)
        else:
            self._end(this)

    def _end(self, this: AckSetRound) -> None:
        del self._rounds[this.node_id]
        self._state.schedule.cancel(this)

    def _place(self, entry: Entry) -> None:
        """See again which node hands out an entry; ask a node that neither made it nor told this one of it."""
        self._streams.place(entry)
        if entry.stream is not None and entry.elsewhere:
            arbiter = self._streams.owners.of(entry)
            if arbiter and arbiter[:8] != entry.origin:
                self.doubt(arbiter, entry)

    # Hearing.

    def on_facts(self, sender: bytes, number: int, facts: tuple[EntryStatus, ...], last: bool) -> None:
        """Hear what another node knows of some entries."""
        state = self._state
        missing: list[bytes] = []
        for fact in facts:
            entry = state.jobs.get(fact.job_id)
            if entry is None and fact.job_id in state.custody.ended:
                state.send(sender, (DELJOB, fact.job_id))
            elif not isinstance(entry, Entry):
                missing.append(fact.job_id)
            elif entry.state != WAIT_REPL:
                self._hear(sender, entry, fact)
        if number or missing:
            state.send(sender, (MISSING, number, tuple(missing)))
        if last and number:
            self._heard(sender)

    def _hear(self, sender: bytes, entry: Entry, fact: EntryStatus) -> None:
        self.note_holder(sender, entry)
        for scope in fact.done:
            self._pending.on_setack(sender, entry, scope, entry.holders or frozenset())
        for lease in fact.leases:
            self._pending.on_delivered(sender, entry, lease)

    def note_holder(self, node_id: bytes, entry: Entry) -> None:
        """Note that a node holds an entry."""
        state = self._state
        is_new = state.unite_holders(entry, frozenset((node_id, state.node_id)))
        if node_id in entry.absent:
            entry.absent -= {node_id}
            is_new = True
        if is_new:
            self._place(entry)

    def on_missing(self, sender: bytes, number: int, ids: tuple[bytes, ...]) -> None:
        """Hear which entries a node does not hold, and tell it the next ones."""
        for job_id in ids:
            entry = self._state.jobs.get(job_id)
            if isinstance(entry, Entry) and sender not in entry.absent:
                entry.absent |= {sender}
                self._place(entry)
        this = self._rounds.get(sender)
        if not number or this is None or this.awaited != number:
            return
        this.patience_ms = ANSWER_MS
        if this.at == len(this.entries):
            self._end(this)
        else:
            self._go_on(this)

    def on_gotjob(self, sender: bytes, job_id: bytes) -> None:
        """Hear that a node holds a copy; of an entry that is not here, as a start has taken it, it is to know that."""
        if self._state.jobs.get(job_id) is None and job_id not in self._state.custody.ended:
            self._state.send(sender, (MISSING, 0, (job_id,)))

    def flushing(self) -> None:
        """Everything is gone, and the schedule with it."""
        self._rounds.clear()
        self._streams.owners.unheard = frozenset()
        self.awake_at = 0


def _pieces(stream: Stream) -> Iterator[list[Entry]]:
    """The entries of a stream, some at a time; between two of them entries may come and go."""
    place = START
    while True:
        entries: list[Entry] = []
        # Each may come or go in every group.
        most = max(1, LOOKED_AT_PER_PART // (1 + len(stream.groups) // GROUPS_PER_EVENT))
        for entry in stream.entries.after(place):
            assert isinstance(entry, Entry)
            entries.append(entry)
            if len(entries) == most:
                break
        if not entries:
            return
        place = (entries[-1].order_key, entries[-1].id)
        yield entries
