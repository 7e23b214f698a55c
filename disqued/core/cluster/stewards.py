"""Stewards: which jobs of a limited queue may be handed out, decided in one place for the whole cluster.

The steward of a queue is the first of the nodes that can be reached and do not leave, by rendezvous hash of its name.
Jobs stay where they are; what travels is ids.

    node     --SLOTS_WANTED(wanted, running, ended, returned)--> steward
                                                                    consumers wait for these jobs; these are over
    steward  --SLOTS_KEEP(after, number, taken, ended)--> all       remember that
    all      --SLOTS_KEPT(number)--> steward                        a majority does
    steward  --SLOTS_GIVEN(given, waiting, held)--> node            hand these out; those wait, these for their group

A limit is held where nodes cannot hear each other, too, as nothing is given before a majority of the known nodes
remembers it.  With PARTITION available the steward does not wait for that, and each side has a steward of its own.

    new steward  --SLOTS_CLAIM(epoch)--> all                        follow nobody before me
    all          --SLOTS_CLAIMED(what I remember)--> new steward    the latest of a majority counts

A node that follows a steward refuses the ones before it (`witnesses`), so of two nodes that take themselves for the
steward one at most has a majority, and no clock is asked.  A node that has started anew does not know what it was told
before, and is not counted until a steward has told it all; if all known nodes answer, they are enough.

Which of the jobs that wait is the next is said in `applicants`.  A slot ends when its node says so, and at the latest
when the job may be delivered again.  While that node is gone, the steward looks whether it knows that the job is over.

Under load, changes are sent in batches: those that come before the followers have confirmed the last slots wait until
they have, `TOGETHER_MS` at most.  Nodes do the same while they wait for the answer of their steward (`admission`).

Several nodes may say that they have the same job: when a worker moves and takes its jobs along, or after a second
delivery.  The slot is that of the one that began last to say so, and `others` has what the others say.  It is free when
none of them has the job any more.

What was lost on its way is said again: nodes say all that they know every `SAID_AGAIN_MS`, with a number, so that an
older word changes nothing.

Times are integer milliseconds of the monotonic clock; spans travel, never instants.
"""

from collections.abc import Sequence
from typing import Final

from disqued.core.cluster.admission import Admission
from disqued.core.cluster.followers import ANSWER_MS, Followers
from disqued.core.cluster.witnesses import ONCE_MS, TOGETHER_MS, OwnWords, Witness, Witnesses
from disqued.core.model.applicants import Applicant, Applicants
from disqued.core.model.gates import NO_LIMITS
from disqued.core.model.job import ACKED, DEAD, RETRY_NEVER_MS
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import (
    SLOTS_CLAIM,
    SLOTS_CLAIMED,
    SLOTS_GIVEN,
    SLOTS_KEPT,
    SLOTS_WANTED,
    SlotsKnown,
    SlotSpan,
    SlotWish,
)
from disqued.core.model.policies import LIMIT_FIELDS
from disqued.core.model.schedule import Timed
from disqued.core.model.slots import Slot, SlotTable
from disqued.core.model.state import State
from disqued.core.model.unfinished import AT_ONCE

SAID_AGAIN_MS: Final = 2_000  #: how often nodes say everything
MUTE_MS: Final = 10_000  #: a node that has jobs with consumers has said so several times by then
LATE_MS: Final = 1_000  #: how long a slot may wait until enough nodes remember it; later it is taken anew

Answer = tuple[SlotsKnown, tuple[SlotSpan, ...]]


class Gift:
    """A slot that is given as soon as enough nodes remember it, if it is still the same then, and not too late."""

    __slots__ = ("applicant", "at", "number", "slot")

    def __init__(self, number: int, slot: Slot, applicant: Applicant, at: int) -> None:
        self.number: int = number  #: of the change
        self.slot: Slot = slot
        self.applicant: Applicant = applicant
        self.at: int = at  #: when the slot was taken


class Stewardship(Timed):
    """A queue of which this node is the steward, or is about to be."""

    __slots__ = (
        "answers", "applicants", "asked_at", "claimed_at", "counter", "followers", "gifts", "is_active", "name",
        "others", "probed_at", "reporters", "told", "unheard", "witness",
    )  # fmt: skip

    def __init__(self, name: bytes, witness: Witness) -> None:
        self.awake_at = 0
        self.name: bytes = name
        self.witness: Witness = witness
        self.counter: int = 0  #: of its epoch
        self.is_active: bool = False  #: False = it waits for what others remember
        self.answers: dict[bytes, Answer] = {}  #: of nodes, to its claim
        self.claimed_at: int = 0  #: when this epoch began
        self.asked_at: int = 0  #: when nodes were asked last
        self.applicants: Applicants = Applicants(0)
        self.told: dict[bytes, None] = {}  #: jobs whose nodes have yet to hear that they wait
        self.followers: Followers = Followers()
        self.gifts: list[Gift] = []
        self.others: dict[bytes, dict[bytes, Slot]] = {}  #: by job and node: reports beside that of the slot
        self.reporters: dict[bytes, tuple[int, int]] = {}  #: boot and number of the last word of each node
        self.unheard: dict[bytes, int] = {}  #: since when the link of a node is new, until its next word
        self.probed_at: int = 0  #: when jobs of nodes that are gone were looked at last

    @property
    def table(self) -> SlotTable:
        """The slots, as far as this node knows."""
        return self.witness.table

    def is_mute(self, node_id: bytes, now: int) -> bool:
        """Return whether a node has not said a word since its link is new, though it had the time to."""
        since = self.unheard.get(node_id)
        return since is not None and now - since >= MUTE_MS

    def drop_other(self, job_id: bytes, node_id: bytes) -> None:
        """Forget what a node without the slot of a job reports of it."""
        others = self.others.get(job_id)
        if others is not None and others.pop(node_id, None) is not None and not others:
            del self.others[job_id]


class Stewards(Machine):
    """The machine of stewards."""

    __slots__ = ("_admission", "_by_name", "_state", "_witnesses", "lost")

    def __init__(self, state: State, witnesses: Witnesses, admission: Admission) -> None:
        self._state = state
        self._witnesses = witnesses
        self._admission = admission
        self._by_name: dict[bytes, Stewardship] = {}
        #: By queue, the number of slots of nodes that are gone or began anew, counted every `SAID_AGAIN_MS`.  Such a
        #: slot ends with its job, or when the job may be delivered again.
        self.lost: dict[bytes, int] = {}

    def hears(self) -> dict[int, Hear]:
        return {SLOTS_WANTED: self.on_wanted, SLOTS_KEPT: self.on_kept, SLOTS_CLAIMED: self.on_claimed}

    def due_table(self) -> Acts:
        return on(Stewardship, self.due) | on(OwnWords, self.hear_own)

    def of(self, name: bytes) -> Stewardship | None:
        """Return the queue as its steward knows it; None = this node is not its steward, or nobody has asked."""
        return self._by_name.get(name)

    # Events.

    def gate_changed(self, name: bytes, field: int) -> None:
        """Follow other limits of a queue; without limits there is nothing to remember."""
        if field not in LIMIT_FIELDS:
            return
        this = self._by_name.get(name)
        limits = self._state.queues.policies.limits_of(name)
        if limits == NO_LIMITS:
            if this is not None:
                self._resign(this)
            self._witnesses.forget(name)
        elif this is not None:
            this.applicants.follow(limits, self._state.now)
            self._wake(this)

    def link_opened(self, node_id: bytes) -> None:
        """Tell the node everything: it may have begun anew.

        If its consumers have jobs, it says so within `SAID_AGAIN_MS`; if not, it may stay silent.
        """
        for this in self._by_name.values():
            this.unheard[node_id] = self._state.now
            this.followers.forget(node_id)
            self._wake(this)

    def reachable_changed(self) -> None:
        """Another node may be the steward now."""
        for this in self._by_name.values():
            self._wake(this)

    def standing_changed(self) -> None:
        """Another node may be the steward now, or the majority another one."""
        self.reachable_changed()

    def flushed(self) -> None:
        """Slots outlive a flush of this node; the list of deadlines does not."""
        for this in self._by_name.values():
            this.awake_at = 0
            self._wake(this)

    def _wake(self, this: Stewardship) -> None:
        self._state.schedule.move(this, AT_ONCE)

    # Those who want slots.

    def hear_own(self, own: OwnWords) -> None:
        """Hear what this node says to itself."""
        words, own.words = own.words, []
        for fields in words:
            self.on_wanted(self._state.node_id, *fields)

    def on_wanted(  # noqa: PLR0917 - the fields of the message
        self, sender: bytes, name: bytes, epoch: int, boot: int, number: int, whole: bool,
        wanted: tuple[SlotWish, ...], running: tuple[SlotSpan, ...], ended: tuple[bytes, ...],
        returned: tuple[bytes, ...],
    ) -> None:  # fmt: skip
        """Hear what a node wants and has of the slots of a queue of which this node is the steward.

        Only a node that follows this steward has heard of all slots that it was given, and can say that it has no
        others.  With PARTITION available a node that cannot be reached is of another side: what it has does not count
        here, and it is given nothing.
        """
        state, limits = self._state, self._state.queues.policies.limits_of(name)
        if limits == NO_LIMITS or self._witnesses.steward_of(name) != state.node_id:
            return
        if limits.is_available and sender != state.node_id and sender not in state.peers.reachable:
            return
        this = self._by_name.get(name)
        if this is None:
            this = self._by_name[name] = Stewardship(name, self._witnesses.of(name))
            self._claim(this)
        before = this.reporters.get(sender)
        if before is not None and before[0] == boot and before[1] >= number:
            return
        this.reporters[sender] = (boot, number)
        this.unheard.pop(sender, None)
        if this.is_active:
            for span in running:
                self._renew(this, sender, boot, span)
            if epoch == this.counter:
                for job_id in ended:
                    self._end_of(this, job_id, sender, boot)
                for job_id in returned:
                    self._end_of(this, job_id, sender, boot, is_unused=True)
                if whole:
                    self._forget_others(
                        this, sender, boot, {span.job_id for span in running} | {w.job_id for w in wanted}
                    )
        for wish in wanted:
            this.applicants.apply(Applicant(sender, boot, wish))
            this.told[wish.job_id] = None
        self._wake(this)

    def _renew(self, this: Stewardship, node_id: bytes, boot: int, span: SlotSpan) -> None:
        """Hear for how long a consumer still has a job."""
        slot = Slot(span.job_id, span.group, node_id, boot, self._state.now + span.left_ms, span.client)
        known = this.table.by_id.get(span.job_id)
        others = this.others.get(span.job_id, {})
        this.applicants.drop(span.job_id, node_id)
        if node_id in others:
            others[node_id] = slot
            return
        is_its = known is not None and known.node_id == node_id and known.boot == boot
        if known is None or not is_its or known.client != slot.client or known.until < slot.until - SAID_AGAIN_MS:
            self._take(this, slot)

    def _forget_others(self, this: Stewardship, node_id: bytes, boot: int, named: set[bytes]) -> None:
        """End what a node had and wanted, and does not name any more."""
        for job_id, slot in list(this.table.by_id.items()):
            if slot.node_id == node_id and slot.boot == boot and job_id not in named:
                self._end(this, job_id)
        for job_id in [job_id for job_id, others in this.others.items() if node_id in others and job_id not in named]:
            this.drop_other(job_id, node_id)
        this.applicants.drop_others(node_id, named)

    def _end_of(self, this: Stewardship, job_id: bytes, node_id: bytes, boot: int, *, is_unused: bool = False) -> None:
        """End the slot of a job, if it is that of a node; it does not wait for one any more, either."""
        slot = this.table.by_id.get(job_id)
        if slot is not None and slot.node_id == node_id and slot.boot == boot:
            self._end(this, job_id)
            if is_unused:
                this.applicants.give_back(slot.group)
        this.drop_other(job_id, node_id)
        this.applicants.drop(job_id, node_id)

    def _end(self, this: Stewardship, job_id: bytes) -> None:
        """End a slot, or let it be that of another node that says that it has the job."""
        slot = this.table.end(job_id)
        if slot is None:
            return
        others = this.others.pop(job_id, {})
        heirs = [other for other in others.values() if other.until > self._state.now and self._is_there(this, other)]
        if heirs:
            self._take(this, heirs.pop())
            if heirs:
                this.others[job_id] = {heir.node_id: heir for heir in heirs}
        else:
            this.followers.changed[job_id] = None
            this.applicants.unblock(slot.group)
            self._witnesses.freed(this.name)

    def _take(self, this: Stewardship, slot: Slot) -> None:
        """Enter a slot.  If another node had one for the same job, that is kept as a report."""
        known = this.table.by_id.get(slot.job_id)
        this.drop_other(slot.job_id, slot.node_id)
        if known is not None and known.node_id != slot.node_id:
            this.others.setdefault(slot.job_id, {})[known.node_id] = known
        this.table.put(slot)
        this.followers.changed[slot.job_id] = slot

    # Giving.

    def due(self, this: Stewardship) -> None:
        """Give what can be given, tell the others, and say again what they have not confirmed."""
        state = self._state
        if self._by_name.get(this.name) is not this:
            return
        if self._witnesses.steward_of(this.name) != state.node_id:
            self._resign(this)
            return
        if this.witness.promised != (this.counter, state.node_id):
            self._claim_again(this)
            return
        if not this.is_active and not self._go_on_claiming(this):
            return
        for job_id in this.table.over(state.now):
            self._end(this, job_id)
        self._probe(this)
        if not this.table.by_id:
            self.lost.pop(this.name, None)
        self._hand_over(this)
        if not _is_gathering(this, state.now):
            self._give(this)
            this.followers.note()
            this.witness.number = this.followers.number
        this.followers.tell(state, this.name, this.counter, this.table)
        self._hand_over(this)
        self._tell_waiting(this)
        self._plan(this)

    def _give(self, this: Stewardship) -> None:
        """Take a slot for each job that may be handed out now; for none while nobody answers."""
        now = self._state.now
        if this.gifts and now - this.gifts[0].at >= ANSWER_MS:
            return
        while (applicant := this.applicants.choose(this.table, now)) is not None:
            wish = applicant.wish
            this.told.pop(wish.job_id, None)
            slot = Slot(wish.job_id, wish.group, applicant.node_id, applicant.boot, now + wish.span_ms, b"")
            self._take(this, slot)
            this.gifts.append(Gift(this.followers.number + 1, slot, applicant, now))
        this.told.update(dict.fromkeys(this.applicants.held))
        this.applicants.held.clear()

    def _hand_over(self, this: Stewardship) -> None:
        """Let nodes hand out what enough nodes remember."""
        peers, now = self._state.peers, self._state.now
        known = this.followers.number if this.applicants.limits.is_available else this.followers.known_to_most(peers)
        given: dict[bytes, list[bytes]] = {}
        ready = [gift for gift in this.gifts if gift.number <= known]
        del this.gifts[: len(ready)]
        for gift in ready:
            slot = gift.slot
            if this.table.by_id.get(slot.job_id) is not slot:
                continue
            if now - gift.at <= LATE_MS:
                given.setdefault(slot.node_id, []).append(slot.job_id)
            else:
                self._end(this, slot.job_id)
                this.applicants.give_back(slot.group)
                this.applicants.apply(gift.applicant)
        for node_id, job_ids in given.items():
            self._tell_node(this, node_id, given=job_ids)

    def _tell_waiting(self, this: Stewardship) -> None:
        """Tell nodes which of the jobs that they asked for have to wait."""
        waiting: dict[bytes, tuple[list[bytes], list[bytes]]] = {}
        for job_id in this.told:
            applicant = this.applicants.by_id.get(job_id)
            if applicant is not None:
                of_queue, of_group = waiting.setdefault(applicant.node_id, ([], []))
                (of_group if this.applicants.is_held(applicant) else of_queue).append(job_id)
        this.told.clear()
        for node_id, (of_queue, of_group) in waiting.items():
            self._tell_node(this, node_id, waiting=of_queue, held=of_group)

    def _tell_node(
        self,
        this: Stewardship,
        node_id: bytes,
        *,
        given: Sequence[bytes] = (),
        waiting: Sequence[bytes] = (),
        held: Sequence[bytes] = (),
    ) -> None:
        boot, number = this.reporters[node_id]
        lists = tuple(given), tuple(waiting), tuple(held)
        if node_id == self._state.node_id:
            self._admission.on_given(node_id, this.name, this.counter, boot, number, *lists)
        else:
            self._state.send(node_id, (SLOTS_GIVEN, this.name, this.counter, boot, number, *lists))

    def _plan(self, this: Stewardship) -> None:
        """Wake when a slot ends, a token comes, or an answer is missing; sleep while there is nothing to do."""
        now = self._state.now
        times = [this.table.next_end, this.applicants.next_at(this.table, now)]
        if _is_gathering(this, now):
            times.append(this.gifts[-1].at + TOGETHER_MS)
        if this.followers.changed:
            times.append(now + 1)
        if this.table.by_id or this.applicants.by_id:
            times.append(now + SAID_AGAIN_MS)
        if this.followers.awaits_one(self._state.peers):
            times.append(now + ANSWER_MS)
        at = min((at for at in times if at), default=0)
        if at:
            self._state.schedule.move(this, max(at, now + 1))

    def _probe(self, this: Stewardship) -> None:
        """End the slots of jobs that are over, as far as this node knows, while the nodes that had them are gone.

        With PARTITION available those of nodes that cannot be reached do not count, either: they are of another side.
        A slot without end, of a job that nothing takes from its consumer, gets one when its node was forgotten.
        """
        state = self._state
        if state.now - this.probed_at < SAID_AGAIN_MS:
            return
        this.probed_at = state.now
        self.lost.pop(this.name, None)
        is_available = this.applicants.limits.is_available
        lost = [
            (job_id, slot)
            for job_id, slot in this.table.by_id.items()
            if not self._is_there(this, slot) or this.is_mute(slot.node_id, state.now)
        ]
        for job_id, slot in lost:
            job = state.jobs.get(job_id)
            is_over = job_id in state.custody.ended if job is None else job.state in (ACKED, DEAD)
            is_apart = slot.node_id != state.node_id and slot.node_id not in state.peers.reachable
            is_forgotten = slot.node_id != state.node_id and slot.node_id not in state.peers.by_id
            if is_over or (is_available and is_apart):
                self._end(this, job_id)
            elif is_forgotten and slot.until - state.now > RETRY_NEVER_MS // 2:
                self._take(this, slot.ending_at(state.now + ONCE_MS))
        left = sum([job_id in this.table.by_id for job_id, _ in lost])
        if left:
            self.lost[this.name] = left

    def _is_there(self, this: Stewardship, slot: Slot) -> bool:
        """Return whether the process that has a job tells this node what becomes of it."""
        reporter = this.reporters.get(slot.node_id)
        if reporter is None or reporter[0] != slot.boot:
            return False
        return slot.node_id == self._state.node_id or slot.node_id in self._state.peers.linked

    # Becoming the steward, and ceasing to be.

    def _claim(self, this: Stewardship) -> None:
        """Let nobody follow a steward before this one, and ask what others remember."""
        state = self._state
        # No epoch is used twice, not by a node that has started anew, either.
        this.counter = max(this.witness.promised[0] + 1, state.wall)
        self._witnesses.follow(this.name, (this.counter, state.node_id))
        this.answers = {state.node_id: self._witnesses.answer(this.name)}
        this.claimed_at = state.now
        self._ask_all(this)
        self._wake(this)

    def _ask_all(self, this: Stewardship) -> None:
        this.asked_at = self._state.now
        for node_id in self._state.peers.linked:
            if node_id not in this.answers:
                self._state.send(node_id, (SLOTS_CLAIM, this.name, this.counter))

    def _claim_again(self, this: Stewardship) -> None:
        """Claim once more in a while, as nodes follow somebody else who takes himself for the steward."""
        state = self._state
        at = this.claimed_at + ANSWER_MS
        if state.now < at:
            state.schedule.move(this, at)
            return
        fresh = self._by_name[this.name] = Stewardship(this.name, this.witness)
        state.schedule.cancel(this)
        self._claim(fresh)

    def _go_on_claiming(self, this: Stewardship) -> bool:
        """Begin when enough nodes have answered, or ask the others again; return whether it has begun."""
        state = self._state
        if self._has_heard_enough(this):
            self._begin(this)
            return True
        if state.now - this.asked_at >= ANSWER_MS:
            self._ask_all(this)
        state.schedule.move(this, this.asked_at + ANSWER_MS)
        return False

    def _has_heard_enough(self, this: Stewardship) -> bool:
        """Return whether nodes that answered the claim know together what was given, or need not."""
        peers = self._state.peers
        if all(node_id in this.answers for node_id in peers.by_id):
            return True
        if self._state.queues.policies.limits_of(this.name).is_available:
            return all(node_id in this.answers for node_id in peers.reachable)
        return sum(known.is_complete for known, _ in this.answers.values()) >= peers.majority

    def _begin(self, this: Stewardship) -> None:
        """Go on with what a majority remembers, and with what consumers have as their nodes say."""
        state, witness = self._state, this.witness
        latest = max((known for known, _ in this.answers.values()), key=_version_of)
        witness.table.clear()
        witness.remember(latest.slots, state.now)
        for _, running in this.answers.values():
            for span in running:
                # It is there, whether it has said anything of its own accord yet or not.
                this.reporters.setdefault(span.node_id, (span.boot, 0))
                known = witness.table.by_id.get(span.job_id)
                if known is None or known.node_id == span.node_id:
                    witness.remember((span,), state.now)
                else:
                    # A node that stood still may not know yet that its lease is over, and that the slot is another's.
                    slot = Slot(span.job_id, span.group, span.node_id, span.boot, state.now + span.left_ms, span.client)
                    this.others.setdefault(span.job_id, {})[span.node_id] = slot
        witness.epoch, witness.number, witness.is_complete = (this.counter, state.node_id), this.followers.number, True
        this.is_active = True
        before = this.applicants
        this.applicants = Applicants(state.now)
        this.applicants.follow(self._state.queues.policies.limits_of(this.name), state.now)
        for applicant in before.by_id.values():
            this.applicants.apply(applicant)

    def _resign(self, this: Stewardship) -> None:
        """Be the steward of a queue no more."""
        self._state.schedule.cancel(this)
        self._by_name.pop(this.name, None)
        self.lost.pop(this.name, None)

    def on_claimed(  # noqa: PLR0917 - the fields of the message
        self, sender: bytes, name: bytes, counter: int, steward: bytes, known: SlotsKnown, running: tuple[SlotSpan, ...]
    ) -> None:
        """Hear what a node remembers, or that it follows a later steward."""
        this = self._of_epoch(name, counter, steward)
        if this is not None and not this.is_active:
            this.answers[sender] = (known, running)

    def on_kept(self, sender: bytes, name: bytes, counter: int, steward: bytes, number: int) -> None:
        """Hear up to which change a node remembers, or that it follows a later steward."""
        this = self._of_epoch(name, counter, steward)
        if this is not None and this.is_active:
            this.followers.kept(sender, number, self._state.now)

    def _of_epoch(self, name: bytes, counter: int, steward: bytes) -> Stewardship | None:
        """Return a queue of which this node is the steward in an epoch; a later one is noted."""
        this = self._by_name.get(name)
        if this is None:
            return None
        self._wake(this)
        if (counter, steward) > (this.counter, self._state.node_id):
            self._witnesses.follow(name, (counter, steward))
        return this if (counter, steward) == (this.counter, self._state.node_id) else None


def _is_gathering(this: Stewardship, now: int) -> bool:
    """Return whether changes wait for the followers to confirm the last ones, to be told in one message."""
    return bool(this.gifts) and now - this.gifts[-1].at < TOGETHER_MS


def _version_of(known: SlotsKnown) -> tuple[bool, int, bytes, int]:
    return (known.is_complete, known.epoch, known.steward, known.number)
