"""Group reconciliation: what a consumer says of an entry reaches the node that hands it out.

    this node hands it out          decided here, at once
    it is a copy here               --SETTLE(ids)--> the node that hands it out
    it is not here                  --SETTLE(ids)--> the node that made it, which its id names; else all
                                    <--SETTLED(outcomes)--   done; or nothing was changed; or it is not here;
                                                             or another one hands it out
    neither done nor refused        everybody else is asked, and who knows of it is asked again
    no node holds it                0, if all nodes were asked

A node that hands an entry out can be silent, or nobody who knows it can be reached.  Then, when it has had the time to
be found to fail (`MARGIN_MS` more than `cluster-node-timeout`), an acknowledgement is taken as a fact by itself: it is
1, it is kept (`orphans`) as long as the entry may live, and told to each node with which a link opens.  What was given
back is 0 then: its time will be over by itself.

A 0 leaves no trace: who hears it may undo what it did.  So it is answered only when nobody who was asked may have done
what was asked for: an answer that is lost makes a later refusal worth nothing, and the acknowledgement is a fact.

Times are integer milliseconds.
"""

from typing import Final

from disqued.core.model.groups import Entry, PendingEntry, scope_of
from disqued.core.model.job import ACTIVE
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import (
    ACK,
    OUTCOME_DONE,
    OUTCOME_LATER,
    OUTCOME_REFUSED,
    OUTCOME_UNKNOWN,
    SETACK,
    SETTLE,
    SETTLED,
    UNSEEN,
)
from disqued.core.model.outbox import Client
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.streams.acksets import AckSets
from disqued.core.streams.entrydelivery import EntryDelivery
from disqued.core.streams.owners import EntryOwners
from disqued.core.streams.pending import PendingEntries
from disqued.core.work.acks import ttl_of

MARGIN_MS: Final = 2_000  #: how much longer an answer is waited for than a node takes to fail
AGAIN_MS: Final = 250  #: between two looks at whether somebody can be asked by now
IDS_AT_ONCE: Final = 1_000  #: in a message
ORPHANS_KEPT: Final = 10_000
_UNDECIDED: Final = (OUTCOME_UNKNOWN, OUTCOME_LATER)


class PendingAck(Timed):
    """A consumer waits to hear what became of some entries."""

    __slots__ = (
        "asked", "client", "count", "deadline_at", "doubted", "group", "known", "number", "open", "queue", "refused",
        "scope", "verb",
    )  # fmt: skip

    def __init__(self, client: Client, number: int, verb: int, *, queue: bytes, group: bytes, deadline_at: int) -> None:
        self.awake_at = 0
        self.client: Client = client
        self.number: int = number
        self.verb: int = verb  #: ACK or RETURN
        self.queue: bytes = queue
        self.group: bytes = group
        self.deadline_at: int = deadline_at
        self.scope: bytes = scope_of(group, 0)  #: of the group when this began
        self.count: int = 0  #: entries that something was done for
        #: Those that are undecided, and who was asked and has yet to answer.
        self.open: dict[bytes, set[bytes]] = {}
        self.asked: dict[bytes, set[bytes]] = {}  #: who was asked on the link that is open
        self.known: set[bytes] = set()  #: those that some node holds
        self.refused: set[bytes] = set()  #: those of which some node said that nothing was changed
        self.doubted: set[bytes] = set()  #: those that may be done: somebody was asked, and the answer is lost


class Reconciliation(Machine):
    """The machine behind QACK and QGROUP RETURN."""

    __slots__ = ("_delivery", "_facts", "_open", "_owners", "_pending", "_state", "orphans")

    def __init__(
        self, state: State, owners: EntryOwners, pending: PendingEntries, delivery: EntryDelivery, facts: AckSets
    ) -> None:
        self._state = state
        self._owners = owners
        self._pending = pending
        self._delivery = delivery
        self._facts = facts
        self._open: dict[int, PendingAck] = {}
        #: Acknowledgements of entries that nobody knew who could be reached: {(id, scope): until when they are kept}.
        self.orphans: dict[tuple[bytes, bytes], int] = {}

    def hears(self) -> dict[int, Hear]:
        return {SETTLE: self.on_settle, SETTLED: self.on_settled}

    def due_table(self) -> Acts:
        return on(PendingAck, self.due)

    def abandon_table(self) -> Acts:
        return on(PendingAck, self.forsake)

    # Consumers of this node.

    def settle(self, client: Client, verb: int, queue: bytes, group: bytes, *, ids: list[bytes]) -> int | None:
        """Acknowledge entries, or give them back; returns of how many that was so, None if the client is to wait."""
        state = self._state
        count = 0
        elsewhere: list[bytes] = []
        for job_id in ids:
            outcome = self._decide(verb, queue, group, job_id)
            if outcome in _UNDECIDED and state.peers.by_id:
                elsewhere.append(job_id)
            else:
                count += outcome == OUTCOME_DONE
        if not elsewhere:
            return count
        number = state.numbers.next_number()
        this = self._open[number] = PendingAck(
            client, number, verb, queue=queue, group=group, deadline_at=state.now + self.patience_ms
        )
        this.scope = self._scope(queue, group)
        this.count = count
        for job_id in elsewhere:
            this.open[job_id] = set()
            this.asked[job_id] = set()
        state.waiting.add(client, this)
        self._ask(this, list(this.open))
        return None

    @property
    def patience_ms(self) -> int:
        """How long an answer is waited for."""
        return self._state.peers.timeout_ms + MARGIN_MS

    def _decide(self, verb: int, queue: bytes, group: bytes, job_id: bytes) -> int:
        """Do what is asked for if it is this node's to decide; returns an OUTCOME_..."""
        state = self._state
        entry = state.jobs.get(job_id)
        if not isinstance(entry, Entry):
            return OUTCOME_REFUSED if entry is not None or job_id in state.custody.ended else OUTCOME_UNKNOWN
        unit = self._pending.unit(queue, group, job_id)
        if entry.elsewhere and not self._is_own(unit):
            return OUTCOME_LATER
        if verb == ACK:
            return OUTCOME_DONE if self._pending.acknowledge(queue, group, job_id) else OUTCOME_REFUSED
        if unit is None or not self._pending.is_held(unit):
            return OUTCOME_REFUSED
        self._pending.give_back(unit)
        return OUTCOME_DONE

    def _is_own(self, unit: PendingEntry | None) -> bool:
        """Return whether this node has handed out a unit that somebody has."""
        return unit is not None and unit.state == ACTIVE and not unit.granter

    def _ask(self, this: PendingAck, ids: list[bytes]) -> None:
        """Ask who may decide of these, once on each link; come back in a while."""
        questions: dict[bytes, list[bytes]] = {}
        for job_id in ids:
            for node_id in self._deciders(job_id, this.asked[job_id]):
                if node_id not in this.asked[job_id]:
                    this.asked[job_id].add(node_id)
                    this.open[job_id].add(node_id)
                    questions.setdefault(node_id, []).append(job_id)
        for node_id, asked in questions.items():
            for at in range(0, len(asked), IDS_AT_ONCE):
                some = tuple(asked[at : at + IDS_AT_ONCE])
                self._state.send(node_id, (SETTLE, this.queue, this.group, this.number, this.verb, some))
        self._state.schedule.move(this, min(self._state.now + AGAIN_MS, this.deadline_at))

    def _deciders(self, job_id: bytes, asked: set[bytes]) -> list[bytes]:
        """The nodes that can be asked of an entry: one that should know, or all when it does not."""
        linked = self._state.peers.linked
        entry = self._state.jobs.get(job_id)
        if isinstance(entry, Entry):
            arbiter = self._owners.of(entry)
            return [arbiter] if arbiter in linked else []
        makers = [node_id for node_id in linked if node_id[:8] == job_id[2:10]]
        if makers and not asked.issuperset(makers):
            return makers
        return list(linked)

    def due(self, this: PendingAck) -> None:
        """Ask who can be asked now, or answer without."""
        if self._open.get(this.number) is not this:
            return
        for job_id in list(this.open):
            outcome = self._decide(this.verb, this.queue, this.group, job_id)
            if outcome not in _UNDECIDED:
                self._conclude(this, job_id, outcome)
            elif job_id in this.refused:
                self._refuse(this, job_id)
            elif outcome == OUTCOME_LATER or job_id in this.known:
                # Who answered is asked again.
                this.asked[job_id] = set(this.open[job_id])
        if self._state.now >= this.deadline_at:
            for job_id in list(this.open):
                self._close(this, job_id, self._give_up(this, job_id))
        self._go_on(this)

    def _go_on(self, this: PendingAck) -> None:
        """Answer the client when all is decided, else ask on."""
        if this.open:
            self._ask(this, list(this.open))
            return
        self.forsake(this)
        self._state.outbox.replies.append((this.client, this.count, []))

    def _close(self, this: PendingAck, job_id: bytes, outcome: int) -> None:
        del this.open[job_id], this.asked[job_id]
        if outcome == OUTCOME_DONE:
            this.count += 1
            self._delivery.given.settled(job_id, this.group)

    def _conclude(self, this: PendingAck, job_id: bytes, outcome: int) -> None:
        """Hear from one who decides."""
        if outcome == OUTCOME_DONE:
            self._close(this, job_id, outcome)
        else:
            this.refused.add(job_id)
            self._refuse(this, job_id)

    def _refuse(self, this: PendingAck, job_id: bytes) -> None:
        """Let something be refused, once nobody is left who may still say that it is done."""
        if not this.open[job_id]:
            is_done = job_id in this.doubted and self._adopt(this, job_id)
            self._close(this, job_id, OUTCOME_DONE if is_done else OUTCOME_REFUSED)

    def _give_up(self, this: PendingAck, job_id: bytes) -> int:
        """Decide of an entry about which nobody can be asked."""
        if this.open[job_id]:
            this.doubted.add(job_id)
        if self._is_known_to_nobody(this, job_id):
            return OUTCOME_REFUSED
        return OUTCOME_DONE if self._adopt(this, job_id) else OUTCOME_REFUSED

    def _is_known_to_nobody(self, this: PendingAck, job_id: bytes) -> bool:
        """Return whether all nodes have said that they do not hold an entry, which is not here either."""
        if job_id in this.known or self._state.jobs.get(job_id) is not None:
            return False
        return this.asked[job_id] - this.open[job_id] >= self._state.peers.by_id.keys()

    def _adopt(self, this: PendingAck, job_id: bytes) -> bool:
        """Take an acknowledgement as a fact; returns whether there is room for it, and it is not somebody else's.

        Not if the group began anew meanwhile: what its consumers had then means nothing any more.
        """
        state = self._state
        if this.verb != ACK:
            return False
        scope = self._scope(this.queue, this.group)
        if scope != this.scope:
            return False
        entry = state.jobs.get(job_id)
        if isinstance(entry, Entry):
            return (entry.is_done_for(scope) and job_id in this.doubted) or self._pending.adopt(entry, scope)
        self._forget_old()
        if len(self.orphans) >= ORPHANS_KEPT:
            return False
        self.orphans[job_id, scope] = state.now + ttl_of(job_id)
        for node_id in list(state.peers.linked):
            state.send(node_id, (SETACK, job_id, scope, False, frozenset()))
        return True

    def _scope(self, queue_name: bytes, group_name: bytes) -> bytes:
        """The scope of a group in the epoch in which it is here."""
        queue = self._state.queues.by_name.get(queue_name)
        group = queue.stream.groups.get(group_name) if queue is not None and queue.stream is not None else None
        return group.scope if group is not None else scope_of(group_name, 0)

    def _forget_old(self) -> None:
        now = self._state.now
        for key in [key for key, until in self.orphans.items() if until <= now]:
            del self.orphans[key]

    def on_settled(self, sender: bytes, number: int, outcomes: tuple[tuple[bytes, int], ...]) -> None:
        """Hear what another node decided."""
        this = self._open.get(number)
        if this is None:
            return
        for job_id, outcome in outcomes:
            if sender in this.open.get(job_id, ()):
                self._hear(this, sender, job_id, outcome)
        self._go_on(this)

    def _hear(self, this: PendingAck, sender: bytes, job_id: bytes, outcome: int) -> None:
        """Hear what another node says of one of the entries that it was asked of."""
        this.open[job_id].discard(sender)
        if outcome not in _UNDECIDED:
            self._conclude(this, job_id, outcome)
            return
        if job_id in this.refused:
            self._refuse(this, job_id)
            return
        if outcome == OUTCOME_LATER:
            this.known.add(job_id)
            return
        entry = self._state.jobs.get(job_id)
        if isinstance(entry, Entry):
            # It was supposed to hand this out.
            self._facts.doubt(sender, entry)
        elif not this.open[job_id] and self._is_known_to_nobody(this, job_id):
            self._close(this, job_id, OUTCOME_REFUSED)

    def forsake(self, this: PendingAck) -> None:
        """Nobody waits for this any more."""
        del self._open[this.number]
        self._state.schedule.cancel(this)
        self._state.waiting.remove(this.client, this)

    # Consumers of other nodes.

    def on_settle(  # noqa: PLR0917 - the fields of the message
        self, sender: bytes, queue: bytes, group: bytes, number: int, verb: int, ids: tuple[bytes, ...]
    ) -> None:
        """Decide for a consumer of another node, if it is this one's to decide."""
        if verb == UNSEEN:
            self._take_back(group, ids)
            return
        if self._state.durability.read_only:
            # What is decided now would be forgotten in a crash.
            outcomes = tuple((job_id, OUTCOME_LATER) for job_id in ids)
        else:
            outcomes = tuple((job_id, self._decide(verb, queue, group, job_id)) for job_id in ids)
        self._state.send(sender, (SETTLED, number, outcomes))

    def unseen(self, job_id: bytes, scope: bytes) -> None:
        """A consumer of this node was handed an entry of another one, and is gone before it heard of it."""
        for node_id in self._deciders(job_id, set()):
            self._state.send(node_id, (SETTLE, b"", scope, 0, UNSEEN, (job_id,)))

    def _take_back(self, scope: bytes, ids: tuple[bytes, ...]) -> None:
        """Let entries be had again that a consumer of another node never saw."""
        for job_id in ids:
            entry = self._state.jobs.get(job_id)
            if isinstance(entry, Entry):
                self._delivery.handed(entry, scope)

    # Links.

    def link_opened(self, node_id: bytes) -> None:
        """Tell a node what was acknowledged while it could not be asked."""
        self._forget_old()
        for job_id, scope in self.orphans:
            self._state.send(node_id, (SETACK, job_id, scope, False, frozenset()))

    def link_closed(self, node_id: bytes) -> None:
        """Expect no answer of a node, which may have done what it was asked; it is asked again when it can be."""
        for this in self._open.values():
            for job_id, asked in this.asked.items():
                asked.discard(node_id)
                if node_id in this.open[job_id]:
                    this.open[job_id].discard(node_id)
                    this.doubted.add(job_id)

    def flushing(self) -> None:
        """Everything is gone, and the schedule with it: who waits hears of what was done."""
        self.orphans.clear()
        for this in list(self._open.values()):
            self.forsake(this)
            self._state.outbox.replies.append((this.client, this.count, []))
