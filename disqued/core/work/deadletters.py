"""Dead letters: jobs that failed too often, or that a consumer buried.

    NACK, retry --the failure is noted--> tries left: queued, now or later      none left, or NACK DEAD: dead
    dead   --REDRIVE--> the next generation, its counters at zero: queued
           --its end, KEEPDEAD after its time to live--> forgotten              --ACKJOB--> done

A try is a delivery: a job that is with a consumer has had nacks + additional deliveries + 1 tries of this generation.
Nodes that cannot hear each other count for themselves, so that a job has at most MAXTRIES tries on each side.  What the
sides know is merged when they meet (`model.fate`): then there is one dead job, even if each side still had a try left.

Whoever learns that a job is dead takes it out of its queue and from its consumer, whose acknowledgement still counts.
A node that hears of a try of a job that it knows to be dead answers with the fate (`sharing`).

A node that was away may have missed a death, or the progress of a job that a consumer of this node has.  When a link
opens it hears of such jobs that it may hold, so many at a time, so that nothing else waits behind a hundred thousand of
them.

A NACK that puts a job off is remembered by its holder, not by the worker.  The other holders put their own timers off
to a little after the same instant, so that another node queues the job should this one be gone.

Times are integer milliseconds.
"""

from typing import Final

from disqued.core.model.fate import GENERATION_MAX, NO_FATE, Failure, Fate, has_died, last_failures
from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    DEAD,
    FLAG_ASKING,
    FLAG_DELIVERED,
    FLAG_DOUBTED,
    FLAG_GIVEN,
    FLAG_PUT_OFF,
    FLAG_QUEUED_BEFORE,
    FLAG_TAKEN_OUT,
    FLAG_WITH_CONSUMER,
    INTO_ACTIVE,
    INTO_DEAD,
    QUEUED,
    WORK_SCOPE,
    Job,
    forbidden,
)
from disqued.core.model.machine import Acts, Machine, on
from disqued.core.model.messages import AS_BEFORE
from disqued.core.model.messages import QUEUED as QUEUED_HERE
from disqued.core.model.outbox import JOB_ADDED
from disqued.core.model.phases import list_delayed
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.trace import DEAD as DIED
from disqued.core.model.trace import PEER, REDRIVEN
from disqued.core.work.copies import SPREAD_MS
from disqued.core.work.fates import Fates
from disqued.core.work.queueing import Queueing

TOLD_AT_ONCE: Final = 200  #: jobs that a node hears of at a time when a link has opened
TOLD_AGAIN_MS: Final = 100


class FateRound(Timed):
    """The jobs of whose fates one node has yet to hear."""

    __slots__ = ("jobs", "node_id")

    def __init__(self, node_id: bytes, jobs: list[Job]) -> None:
        self.awake_at = 0
        self.node_id: bytes = node_id
        self.jobs: list[Job] = jobs  #: the next one last


def is_spent(job: Job) -> bool:
    """Return whether a job that waits for its next try has had all of them."""
    max_tries = job.options.terms.max_tries
    return 0 < max_tries <= job.nacks + job.additional_deliveries


class DeadLetters(Machine):
    """The machine that buries jobs, follows what other nodes say of dead ones, and redrives them."""

    __slots__ = ("_queueing", "_rounds", "_state", "fates", "told_at_once")

    def __init__(self, state: State, queueing: Queueing, fates: Fates) -> None:
        self._state = state
        self._queueing = queueing
        self._rounds: dict[bytes, FateRound] = {}
        self.told_at_once: int = TOLD_AT_ONCE
        self.fates = fates

    def due_table(self) -> Acts:
        return on(FateRound, self.round_due)

    def note_failure(self, job: Job, who: bytes, reason: bytes, *, is_last: bool) -> None:
        """Note that a try failed; after the last one the job is dead."""
        fate = job.options.fate
        failure = Failure(self._state.wall, self._state.node_id, who, reason)
        failures = last_failures((*fate.failures, failure))
        if is_last and not fate.is_dead:
            self._state.counters.buried += 1
        self.fates.change(job, fate._replace(failures=failures, is_dead=fate.is_dead or is_last))

    def ends_last_try(self, job: Job, reason: bytes) -> bool:
        """Bury a job that would be handed out for one try more than it may have; return whether it is dead now."""
        max_tries = job.options.terms.max_tries
        if not 0 < max_tries <= job.nacks + job.additional_deliveries + 1:
            return False
        job.additional_deliveries += 1
        self.note_failure(job, b"", reason, is_last=True)
        return True

    def redrive(self, job: Job) -> None:
        """Let a dead job begin its next generation; its end stays as it is.

        It is queued when the other holders have said that they have not queued it: one of them may have redriven it,
        too, and the word of that may be on its way.  A queue that is paused takes it at once.
        """
        state, fate = self._state, job.options.fate
        spent, retry_ms = fate.spent, job.options.retry_ms
        spent = min(spent + job.nacks + job.redeliveries, GENERATION_MAX)
        if retry_ms:
            job.nacks = job.additional_deliveries = 0
        else:
            job.nacks = 0
            job.flags &= ~FLAG_DELIVERED  # the one delivery is to come again
        state.counters.redriven += 1
        generation = min(fate.generation + 1, GENERATION_MAX)
        self.fates.change(job, fate._replace(generation=generation, is_dead=False, spent=spent))
        if retry_ms and job.holders and not self._queueing.is_paused_in(job.queue):
            # No try has ended.
            job.flags |= FLAG_PUT_OFF
            job.requeue_at = state.now
            self._queueing.reschedule(job)
            return
        job.requeue_at = state.now + retry_ms if retry_ms else 0
        self._queueing.enqueue_new(job, state.queue(job.queue))
        self._queueing.reschedule(job)
        state.tell(job, (QUEUED_HERE, job.id, WORK_SCOPE, AS_BEFORE))

    # What nodes hear that were away.

    def link_opened(self, node_id: bytes) -> None:
        """Tell a node of the jobs that it may hold: of dead ones, and of those with a progress and a consumer here."""
        self.link_closed(node_id)
        state = self._state
        if node_id not in state.peers.linked:
            return
        jobs = [
            unit.job
            for queue in state.queues.by_name.values()
            for unit in (*queue.dead, *queue.leased)
            if unit.job.holders and node_id in unit.job.holders
            if unit.job.state == DEAD or unit.job.options.fate.progress is not None
        ]
        if jobs:
            this = self._rounds[node_id] = FateRound(node_id, jobs)
            self.round_due(this)

    def greeted(self, node_id: bytes) -> None:
        """Tell a node again that can hear it now."""
        self.link_opened(node_id)

    def link_closed(self, node_id: bytes) -> None:
        """Tell a node no more: the next link begins a round again."""
        this = self._rounds.pop(node_id, None)
        if this is not None:
            self._state.schedule.cancel(this)

    def flushing(self) -> None:
        """No job is dead any more."""
        self._rounds.clear()

    def round_due(self, this: FateRound) -> None:
        """Tell a node of the fates of the next jobs."""
        state = self._state
        if self._rounds.get(this.node_id) is not this:
            return
        for _ in range(min(self.told_at_once, len(this.jobs))):
            job = this.jobs.pop()
            if job.state in (DEAD, ACTIVE) and state.jobs.get(job.id) is job:
                state.send(this.node_id, state.word_of_fate(job))
        if this.jobs:
            state.schedule.move(this, state.now + TOLD_AGAIN_MS)
        else:
            del self._rounds[this.node_id]

    # What other nodes say.

    def fate_changed(self, job: Job, before: Fate) -> None:
        """Follow the fate of a job: it may be dead, or not be dead any more."""
        fate = job.options.fate
        if has_died(fate) and not has_died(before):
            job.expires_at += job.options.terms.keep_dead_ms
        if fate.generation > before.generation and job.state != ACKED:
            self._note(REDRIVEN, job)
        if fate.is_dead:
            if job.state in (ACTIVE, QUEUED):
                self._end_tries(job)
        elif job.state == DEAD:
            self._begin_again(job)
        elif job.state in (ACTIVE, QUEUED) and is_spent(job):
            # Nodes that could not hear each other had some of the tries each.
            self._state.counters.buried += 1
            self.fates.change(job, fate._replace(is_dead=True))

    def _end_tries(self, job: Job) -> None:
        """Let nobody have a job any more."""
        state = self._state
        self._queueing.dequeue(job)
        if job.flags & FLAG_WITH_CONSUMER:
            self._queueing.leases.end(job)
        custody = state.custody
        custody.asking.pop(job, None)
        custody.owed.pop(job, None)
        custody.evictable.pop(job, None)
        job.flags &= ~(FLAG_ASKING | FLAG_DOUBTED | FLAG_GIVEN | FLAG_PUT_OFF | FLAG_TAKEN_OUT)
        job.requeue_at = 0
        assert INTO_DEAD[job.state], forbidden(job.state, DEAD)
        job.state = DEAD
        failures = job.options.fate.failures
        self._note(DIED, job, failures[-1].reason if failures else b"")
        self._queueing.reschedule(job)

    def _note(self, kind: int, job: Job, failure: bytes = b"") -> None:
        """Tell the event log what became of a job, and whether another node said so."""
        who = self._state.trace.actor
        self._state.note_end(kind, job, who=who, word=PEER if isinstance(who, bytes) else b"", failure=failure)

    def _begin_again(self, job: Job) -> None:
        """Leave a job to the node that has redriven it."""
        state, options = self._state, job.options
        assert INTO_ACTIVE[job.state], forbidden(job.state, ACTIVE)
        job.state = ACTIVE
        if options.retry_ms:
            job.flags |= FLAG_QUEUED_BEFORE
            job.requeue_at = state.now + options.probe_ms + state.numbers.spread(SPREAD_MS)
        self._queueing.reschedule(job)

    def put_off_elsewhere(self, job: Job, left_ms: int, *, is_news: bool) -> None:
        """Queue a job a little after the node that put it off, in case that node is gone by then.

        `is_news`: the word of it told of a try that was not known here.  A consumer of this node has had that try.
        """
        state, options = self._state, job.options
        if job.state != ACTIVE or not options.retry_ms or options.fate is NO_FATE:
            return
        if self._queueing.is_leased(job) and not is_news:
            return
        at = state.now + left_ms
        if left_ms <= SPREAD_MS:
            # The other one asks, too, or is about to.  That moves no timer: the word may be older than what is known
            # here.  But where both ask, neither counts a try, unless this node has delivered the job since that one.
            if not is_news or not job.flags & FLAG_ASKING or job.flags & FLAG_PUT_OFF:
                return
        elif job.flags & FLAG_PUT_OFF and abs(job.requeue_at - at) <= SPREAD_MS:
            return  # known already
        else:
            self._queueing.put_off(job, min(at + state.numbers.spread(SPREAD_MS), job.expires_at))
        job.flags |= FLAG_PUT_OFF | FLAG_QUEUED_BEFORE
        list_delayed(state.queues, job)
        if state.journaling:
            state.outbox.journal.append((JOB_ADDED, job))
