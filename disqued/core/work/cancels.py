"""Cancelling: a job is not delivered any more, wherever it is.

That a job is cancelled is a part of its fate, which merges by OR.  Each holder that learns it does what it can:

    queued or delayed here        it ends at once: SETACK to all holders, as for an acknowledgement
    a consumer of this node       its live worker is told; WORKING is answered -CANCELLED; ACKJOB counts as ever
    neither                       nothing; the holder that has it does one of these

Of several holders that end a dead job, or one that was put off, since another node asks them, the first one counts it
(`goes_first`), and tells the others.

A job that its consumer does not acknowledge ends when it would be queued again (FLAG_DROPPED).

    us    --CANCEL(number, ids)-->          every node with a link, for jobs that are unknown or not over here
    them  --CANCELLED(number, states)-->    us: how each stands now; the highest counts (`standings`)

Nodes that say nothing are waited for `SILENCE_MS`.  What a link lost is told again while the job is not over.

Times are integer milliseconds.
"""

from typing import Final

from disqued.core.model import messages
from disqued.core.model.fate import Fate, cancelled, is_undone
from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    DEAD,
    FLAG_DROPPED,
    FLAG_ENDED_ELSEWHERE,
    FLAG_PUT_OFF,
    FLAG_QUEUED_BEFORE,
    FLAG_WITH_CONSUMER,
    Job,
    process_of,
)
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import (
    ENDED_CANCELLED,
    IDS_PER_MESSAGE,
    IS_DEAD,
    NOT_KNOWN,
    PENDING,
    UNDER_WAY,
    WAS_CANCELLED,
)
from disqued.core.model.outbox import CANCEL, HERE_ALONE, Client, Notification
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State, goes_first
from disqued.core.work.acks import Acks
from disqued.core.work.fates import Fates
from disqued.core.work.queueing import Queueing
from disqued.core.work.standings import is_final, standing_of
from disqued.errors import WrongType

SILENCE_MS: Final = 2_000  #: how long nodes that say nothing are waited for
TOLD_EVERY_MS: Final = 5_000  #: how often holders are told again of a cancelled job that is not over
TOLD_MAX: Final = 10_000  #: such jobs; of more the holders are told once

_NONE: Final[frozenset[bytes]] = frozenset()


class CancelRequest(Timed):
    """A client that waits for what other nodes say."""

    __slots__ = ("client", "job_ids", "number", "standings", "waits_for")

    def __init__(self, client: Client, number: int, job_ids: list[bytes], standings: dict[bytes, int]) -> None:
        self.awake_at = 0
        self.client: Client = client
        self.number: int = number
        self.job_ids: list[bytes] = job_ids  #: as the client named them
        self.standings: dict[bytes, int] = standings
        self.waits_for: dict[bytes, set[bytes]] = {}  #: by nodes the jobs of which they have yet to say something

    @property
    def reply(self) -> list[bytes]:
        """What the client is answered now."""
        return [_word_of(self.standings.get(job_id, NOT_KNOWN)) for job_id in self.job_ids]


class _Reminder(Timed):
    """When holders are told again."""

    __slots__ = ()

    def __init__(self) -> None:
        self.awake_at = 0


class Cancels(Machine):
    """The machine behind CANCEL."""

    __slots__ = ("_acks", "_fates", "_going_on", "_open", "_queueing", "_reminder", "_state")

    def __init__(self, state: State, queueing: Queueing, acks: Acks, fates: Fates) -> None:
        self._state = state
        self._queueing = queueing
        self._acks = acks
        self._fates = fates
        self._open: dict[int, CancelRequest] = {}
        self._reminder = _Reminder()
        self._going_on: dict[bytes, None] = {}  #: jobs that were cancelled on this node and are not over

    def hears(self) -> dict[int, Hear]:
        return {messages.CANCEL: self.on_cancel, messages.CANCELLED: self.on_cancelled}

    def due_table(self) -> Acts:
        return on(CancelRequest, self.due) | on(_Reminder, self.remind)

    def abandon_table(self) -> Acts:
        return on(CancelRequest, self.forsake)

    # Asking.

    def cancel(
        self, client: Client, job_ids: list[bytes], hidden: frozenset[bytes] = _NONE
    ) -> list[bytes] | None:  # fmt: skip
        """Cancel jobs on the whole cluster; returns the reply, or None when the client is blocked until it comes.

        Those that are `hidden` from the client are unknown to it.  Raises WrongType (WRONGTYPE) for an event, before
        anything is changed.
        """
        state = self._state
        seen = [job_id for job_id in dict.fromkeys(job_ids) if job_id not in hidden]
        for job_id in seen:
            job = state.jobs.get(job_id)
            if job is not None and job.options.kind:
                raise WrongType
        standings = {job_id: self._cancel(job_id) for job_id in seen}
        this = CancelRequest(client, state.numbers.next_number(), job_ids, standings)
        asked = [job_id for job_id, standing in standings.items() if self._depends_on_others(job_id, standing)]
        for node_id in list(state.peers.linked) if asked else ():
            for at in range(0, len(asked), IDS_PER_MESSAGE):
                some = asked[at : at + IDS_PER_MESSAGE]
                state.send(node_id, (messages.CANCEL, this.number, tuple(some)))
                this.waits_for.setdefault(node_id, set()).update(some)
        if not this.waits_for:
            return this.reply
        self._open[this.number] = this
        state.waiting.add(client, this)
        state.schedule.add(this, state.now + SILENCE_MS)
        return None

    def _depends_on_others(self, job_id: bytes, standing: int) -> bool:
        """Return whether another node may have more to say of a job."""
        if standing != PENDING:
            # A job that is acknowledged here is too late to cancel anywhere.
            return not is_final(standing) and self._state.jobs.get(job_id) is None
        job = self._state.jobs.get(job_id)
        return job is not None and not self._queueing.is_leased(job)

    def on_cancelled(self, sender: bytes, number: int, states: tuple[tuple[bytes, int], ...]) -> None:
        """Hear what became of jobs on another node."""
        this = self._open.get(number)
        if this is None or sender not in this.waits_for:
            return
        for job_id, standing in states:
            if job_id in this.standings:
                this.standings[job_id] = max(this.standings[job_id], standing)
                this.waits_for[sender].discard(job_id)
        self._go_on(this, sender)

    def _go_on(self, this: CancelRequest, node_id: bytes) -> None:
        if not this.waits_for[node_id]:
            del this.waits_for[node_id]
        if not this.waits_for:
            self._finish(this)

    def _finish(self, this: CancelRequest) -> None:
        self.forsake(this)
        self._state.outbox.replies.append((this.client, this.reply, []))

    def due(self, this: CancelRequest) -> None:
        """Go on without the nodes that say nothing."""
        if self._open.get(this.number) is this:
            self._finish(this)

    def forsake(self, this: CancelRequest) -> None:
        """Nobody waits for this any more."""
        del self._open[this.number]
        self._state.schedule.cancel(this)
        self._state.waiting.remove(this.client, this)

    def link_closed(self, node_id: bytes) -> None:
        """Expect no answer of a node."""
        for this in list(self._open.values()):
            if node_id in this.waits_for:
                this.waits_for[node_id].clear()
                self._go_on(this, node_id)

    def flushing(self) -> None:
        """Everything is about to be dropped: clients that wait hear what is known."""
        for this in list(self._open.values()):
            self._finish(this)
        self._going_on.clear()

    def flushed(self) -> None:
        """The schedule is empty."""
        self._reminder.awake_at = 0

    # Cancelling.

    def on_cancel(self, sender: bytes, number: int, job_ids: tuple[bytes, ...]) -> None:
        """Cancel jobs because another node says so, and answer what became of that."""
        states = tuple([(job_id, self._cancel(job_id, is_alone=False)) for job_id in job_ids])
        self._state.send(sender, (messages.CANCELLED, number, states))

    def _cancel(self, job_id: bytes, *, is_alone: bool = True) -> int:
        """Cancel a job here; returns how it stands now.  Not `is_alone`: other holders are asked, too."""
        state = self._state
        job = state.jobs.get(job_id)
        if job is None or job.options.kind or job.state == ACKED:
            return standing_of(state, job_id).state
        fate = job.options.fate
        if not fate.is_cancelled and fate.result is None and self._can_end(job):
            can_end_elsewhere = not is_alone and (job.state == DEAD or job.flags & FLAG_PUT_OFF)
            if can_end_elsewhere and not goes_first(state, job.holders, job_id):
                job.flags |= FLAG_ENDED_ELSEWHERE
            self._acks.end_undone(job)
        elif not fate.is_cancelled:
            self._fates.change(job, cancelled(fate))
        now = state.jobs.get(job_id)
        if now is None or now.state == ACKED:
            return WAS_CANCELLED
        self._remind_of(job_id)
        return PENDING

    def fate_changed(self, job: Job, before: Fate) -> None:
        """End a job that is cancelled, or see to it that it ends when it would be queued again."""
        fate = job.options.fate
        if not fate.is_cancelled or before.is_cancelled or job.state == ACKED:
            return
        if is_undone(fate) and self._can_end(job):
            self._acks.end(job)
            return
        job.flags |= FLAG_DROPPED
        state = self._state
        if state.demand.listeners and job in state.custody.bound:
            state.outbox.events.append(Notification(job.queue, CANCEL, process_of(job), HERE_ALONE))

    def _can_end(self, job: Job) -> bool:
        """Return whether this node knows that no consumer has a job."""
        if job.state != ACTIVE:
            return True
        if job.flags & FLAG_WITH_CONSUMER:
            return False
        if job.holders is None or job.flags & FLAG_PUT_OFF:
            return True
        return bool(job.options.delay_ms and not job.flags & FLAG_QUEUED_BEFORE)

    # Telling again.

    def _remind_of(self, job_id: bytes) -> None:
        if len(self._going_on) < TOLD_MAX:
            self._going_on[job_id] = None
            self._plan(TOLD_EVERY_MS)

    def _plan(self, in_ms: int) -> None:
        at = self._state.now + in_ms
        if self._going_on and not 0 < self._reminder.awake_at <= at:
            self._state.schedule.move(self._reminder, at)

    def remind(self, reminder: _Reminder) -> None:
        """Tell the holders again of jobs that are not over."""
        state = self._state
        for job_id in list(self._going_on):
            job = state.jobs.get(job_id)
            if job is None or job.state == ACKED:
                del self._going_on[job_id]
            else:
                state.tell_fate(job)
        self._plan(TOLD_EVERY_MS)

    def link_opened(self, node_id: bytes) -> None:
        """Tell a node what it could not hear."""
        self._plan(1)


def _word_of(standing: int) -> bytes:
    """Return what a client is answered."""
    if standing in (ENDED_CANCELLED, WAS_CANCELLED):
        return b"cancelled"
    if standing <= UNDER_WAY:
        return b"unknown"
    return b"cancelling" if standing <= IS_DEAD else b"done"
