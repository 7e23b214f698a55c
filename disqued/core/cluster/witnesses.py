"""Witnesses: every node remembers for the steward of a limited queue which slots it has given.

    steward      --SLOTS_KEEP(after, number, taken, ended)--> witness      remember this, if you have all up to `after`
                 <--SLOTS_KEPT(number)--------------------------
    new steward  --SLOTS_CLAIM(epoch)--> witness                           follow me, and nobody before me
                 <--SLOTS_CLAIMED(what is remembered)-----------

A steward is known by its epoch: a counter and its id.  A witness follows the greatest one that it has heard of, and
refuses all before that.

A witness that has started anew does not know what it was told before: it is not complete until a steward has told it
all.  One that was there when the first limit of the queue was set is complete from the beginning.

Times are integer milliseconds of the monotonic clock, where they do not say otherwise.
"""

from typing import Final

from disqued.core.cluster.followers import spans_of
from disqued.core.model.calendar import ranked
from disqued.core.model.custody import SlotHolder
from disqued.core.model.job import RETRY_NEVER_MS, Unit
from disqued.core.model.machine import Hear, Machine
from disqued.core.model.messages import (
    SLOTS_CLAIM,
    SLOTS_CLAIMED,
    SLOTS_KEEP,
    SLOTS_KEPT,
    SlotsKnown,
    SlotSpan,
    SlotWish,
)
from disqued.core.model.outbox import CLIENT_NAME_MAX
from disqued.core.model.policies import LIMIT_FIELDS
from disqued.core.model.schedule import Timed
from disqued.core.model.slots import Slot, SlotTable
from disqued.core.model.state import State

SLACK_MS: Final = 5_000  #: how long the steward counts a slot beyond the lease
ONCE_MS: Final = 300_000  #: how long a job with RETRY 0 has its slot, unless it ends before
TOGETHER_MS: Final = 10  #: how long a message is held back at most while the one before it has no answer
SKEW_MS: Final = 5_000  #: by how much the wall clocks of two nodes may differ

Epoch = tuple[int, bytes]
NO_EPOCH: Final[Epoch] = (0, b"")


class Witness:
    """What this node remembers of the slots of a queue."""

    __slots__ = ("epoch", "is_complete", "number", "promised", "running", "table")

    def __init__(self, table: SlotTable, *, is_complete: bool) -> None:
        self.table: SlotTable = table
        self.promised: Epoch = NO_EPOCH  #: of the steward that it follows
        self.epoch: Epoch = NO_EPOCH  #: of the steward that told it what is in the table
        self.number: int = 0  #: of that steward's last change
        self.is_complete: bool = is_complete
        #: Jobs that consumers of this node have; kept by `admission`.
        self.running: dict[bytes, tuple[Unit, SlotHolder]] = {}

    def remember(self, spans: tuple[SlotSpan, ...], now: int) -> None:
        """Enter slots."""
        for span in spans:
            self.table.put(Slot(span.job_id, span.group, span.node_id, span.boot, now + span.left_ms, span.client))


class OwnWords(Timed):
    """What this node says to itself as the steward; due at once."""

    __slots__ = ("words",)

    def __init__(self) -> None:
        self.awake_at = 0
        #: The fields of SLOTS_WANTED.
        self.words: list[
            tuple[
                bytes, int, int, int, bool, tuple[SlotWish, ...], tuple[SlotSpan, ...], tuple[bytes, ...],
                tuple[bytes, ...],
            ]
        ] = []  # fmt: skip


class Witnesses(Machine):
    """The machine that remembers slots."""

    __slots__ = ("_by_name", "_started_at", "_state", "boot", "own_words")

    def __init__(self, state: State) -> None:
        self._state = state
        self._by_name: dict[bytes, Witness] = {}
        self._started_at: int = 0  #: unix milliseconds
        self.boot: int = 0  #: which life of this node this is
        self.own_words: OwnWords = OwnWords()

    def hears(self) -> dict[int, Hear]:
        return {SLOTS_KEEP: self.on_keep, SLOTS_CLAIM: self.on_claim}

    def start(self) -> None:
        """Note when this life of the node began."""
        self._started_at = self._state.wall
        self.boot = self._state.wall & 0xFFFF_FFFF  # a node does not start twice in a millisecond

    def steward_of(self, name: bytes) -> bytes:
        """Return the node that is the steward of a queue, as far as this one can tell."""
        state = self._state
        nodes = tuple(state.peers.reachable)
        if not state.leaving or not nodes:
            nodes = (*nodes, state.node_id)
        return ranked(name, nodes)[0]

    def of(self, name: bytes) -> Witness:
        """Return what this node remembers of a queue."""
        witness = self._by_name.get(name)
        if witness is None:
            table = SlotTable(self._state.memory)
            witness = self._by_name[name] = Witness(table, is_complete=self._saw_the_first(name))
        return witness

    def known(self, name: bytes) -> Witness | None:
        """Return the same, if anything is remembered."""
        return self._by_name.get(name)

    def forget(self, name: bytes) -> None:
        """Forget a queue that is not limited any more."""
        witness = self._by_name.pop(name, None)
        if witness is not None:
            witness.table.clear()

    def _saw_the_first(self, name: bytes) -> bool:
        """Return whether this node has been there since before a queue was limited: no slot can be unknown to it."""
        registers = self._state.queues.policies.registers
        known = [registers[name, field] for field in LIMIT_FIELDS if (name, field) in registers]
        since = self._started_at + SKEW_MS
        return bool(known) and all(register.counter == 1 and register.set_at > since for register in known)

    def running_of(self, name: bytes, group: bytes) -> int:
        """Count the slots of a group of a queue, as far as this node knows."""
        witness = self._by_name.get(name)
        if witness is None:
            return 0
        if witness.epoch[1] != self._state.node_id:  # a steward ends them itself, and tells others so
            for job_id in witness.table.over(self._state.now):
                witness.table.end(job_id)
        return witness.table.by_group.get(group, 0)

    def freed(self, name: bytes) -> None:
        """Slots of a queue are free: other nodes may want jobs of its groups that could not run before."""
        state = self._state
        if name in state.demand.jobs and name in state.queues.by_name:
            state.demand.giving[state.queues.by_name[name]] = None

    def follow(self, name: bytes, epoch: Epoch) -> bool:
        """Follow a steward, unless this node follows a later one; return whether it does."""
        witness = self.of(name)
        witness.promised = max(witness.promised, epoch)
        return witness.promised == epoch

    def answer(self, name: bytes) -> tuple[SlotsKnown, tuple[SlotSpan, ...]]:
        """Say what is remembered of a queue, and what consumers of this node have."""
        witness, now = self.of(name), self._state.now
        counter, steward = witness.epoch
        slots = spans_of(witness.table.by_id.values(), now)
        known = SlotsKnown(witness.is_complete, counter, steward, witness.number, slots)
        return known, self.running(name)

    def running(self, name: bytes) -> tuple[SlotSpan, ...]:
        """Say of jobs of a queue that consumers of this node have how long they have them.

        What a consumer has had for its time is not among them, though the other holders have yet to say whether it may
        be queued again: its slot is over.
        """
        spans = [self._span_of(unit, holder) for unit, holder in self.of(name).running.values()]
        return tuple(span for span in spans if span.left_ms > 0)

    def client_of(self, name: bytes, slot: Slot) -> bytes:
        """Return who has the job of a slot: a worker's id, a client's name or address; empty = that is not known."""
        own = self.of(name).running.get(slot.job_id) if slot.node_id == self._state.node_id else None
        return slot.client if own is None else self._client_of(*own)

    def _client_of(self, unit: Unit, holder: SlotHolder) -> bytes:
        worker = self._state.custody.bound.get(unit)
        return holder.client if worker is None else worker.id[:CLIENT_NAME_MAX]

    def _span_of(self, unit: Unit, holder: SlotHolder) -> SlotSpan:
        until = unit.requeue_at if unit.options.retry_ms else holder.since + ONCE_MS
        left_ms = min(until - self._state.now + SLACK_MS, RETRY_NEVER_MS)
        client = self._client_of(unit, holder)
        return SlotSpan(unit.id, unit.options.terms.group, self._state.node_id, self.boot, left_ms, client)

    def on_claim(self, sender: bytes, name: bytes, counter: int) -> None:
        """Follow a new steward, unless this node follows a later one, and tell it what is remembered."""
        self.follow(name, (counter, sender))
        self._state.send(sender, (SLOTS_CLAIMED, name, *self.of(name).promised, *self.answer(name)))

    def on_keep(  # noqa: PLR0917 - the fields of the message
        self, sender: bytes, name: bytes, counter: int, after: int, number: int, taken: tuple[SlotSpan, ...],
        ended: tuple[bytes, ...],
    ) -> None:  # fmt: skip
        """Remember a change, if it is of the steward that this node follows and comes next."""
        witness, epoch, now = self.of(name), (counter, sender), self._state.now
        if self.follow(name, epoch):
            if not after and (witness.epoch != epoch or number > witness.number):
                witness.table.clear()
                witness.remember(taken, now)
                witness.epoch, witness.number, witness.is_complete = epoch, number, True
            elif after and witness.epoch == epoch and witness.number == after:
                witness.remember(taken, now)
                for job_id in ended:
                    witness.table.end(job_id)
                witness.number = number
            self.freed(name)
        kept = witness.number if witness.epoch == epoch == witness.promised else 0
        self._state.send(sender, (SLOTS_KEPT, name, *witness.promised, kept))
