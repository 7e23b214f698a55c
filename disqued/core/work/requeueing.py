"""Requeueing: a job is queued again when nobody acknowledged it in time, or because a client says so.

    retry timer --ask the other holders--+
    NACK, ENQUEUE ----------------------+--> queue
    the end of a delay --journal--------+

A job that has had all the tries that it may have is dead instead of being queued again, and a NACK may put a job off or
bury it (`deadletters`).

A job with retry 0 is never queued a second time.  One with a delay is the only such job that a start after a crash may
queue, so it is held when its time comes until the disk knows that (`watermark`).

Other nodes that may hold a job are asked before it is queued again (WILLQUEUE), and hear when it is (QUEUED); `sharing`
has the protocol.  A timer that ends late, since the node was held up, lets the node read first what came meanwhile: the
acknowledgement may be there.

An entry of a stream is not queued: it is published to its consumer groups.  A job whose queue was deleted while
somebody had it is acknowledged instead, and so is one that was cancelled.

Times are integer milliseconds.  Source: Disque, src/job.c; the Disque README, "Job re-queueing state machine".
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from disqued.core.model import messages
from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    DEAD,
    FLAG_ASKING,
    FLAG_DOUBTED,
    FLAG_DROPPED,
    FLAG_LEASED,
    FLAG_PUT_OFF,
    FLAG_QUEUED_BEFORE,
    FLAG_TAKEN_OUT,
    FLAG_WITH_CONSUMER,
    QUEUED,
    RETRY_NEVER_MS,
    WORK_SCOPE,
    Job,
)
from disqued.core.model.machine import Machine
from disqued.core.model.messages import AFTER_NACK, AGAIN, AS_BEFORE, ASKED, RETURNED
from disqued.core.model.outbox import GONE_EXPIRED, JOB_ADDED, WATERMARK
from disqued.core.model.spans import seconds_text
from disqued.core.model.state import State
from disqued.core.model.terms import backoff_of
from disqued.core.model.trace import ASKED as ASKED_FOR
from disqued.core.model.trace import ENQUEUE, NACK, REQUEUE, UNSEEN, WORKING
from disqued.core.model.unfinished import QuietParts
from disqued.core.model.waiters import Lease
from disqued.core.work.acks import Acks
from disqued.core.work.deadletters import DeadLetters, is_spent
from disqued.core.work.kinds import StreamMachine
from disqued.core.work.queueing import Queueing
from disqued.errors import JobCancelled, JobIsDead, SlotIsOver, TooLate, UnknownJob, WrongType

DOUBTED_PER_PART: Final = 1_000  #: jobs looked at after this node stood still, some milliseconds' work
RELEASED_PER_PART: Final = 500  #: jobs that waited for the journal and are queued at a time
PAUSED_MS: Final = 1_000  #: when a job that no timer queues again is tried again, which its paused queue did not take
NO_TRY_LEFT: Final = b"queued again on request after its last try"
GIVEN_BACK: Final = b"given back by its worker"
WORKER_STOPPED: Final = b"stopped before it was done"
WORKER_DIED: Final = b"died"
WORKER_SHOWN: Final = 200  #: bytes of the name of a worker in the reason of a failure
LATE: Final = b"late"  #: stands for the text that names the retry period
LATE_MS: Final = 20  #: after which a timer has been held up, together with all that came meanwhile

_NOBODY: Final[frozenset[bytes]] = frozenset()


def end_of_worker(name: bytes, how: bytes) -> bytes:
    """Return the reason of a try that failed because its worker ended.  `how`: WORKER_STOPPED or WORKER_DIED."""
    return b"its worker %b %b" % (name[:WORKER_SHOWN], how)


class GivenBack(NamedTuple):
    """What a consumer says of a job that it gives back."""

    who: bytes  #: name or address of the consumer
    reason: bytes = b""
    delay_ms: int = -1  #: until the job is queued; negative = as its terms say
    buries: bool = False  #: the job is dead, however many tries are left


class Requeueing(Machine):
    """The machine that decides whether and when a job is queued again."""

    __slots__ = ("_acks", "_letters", "_state", "_streams", "queueing")

    def __init__(
        self, state: State, queueing: Queueing, acks: Acks, streams: StreamMachine, letters: DeadLetters
    ) -> None:
        self._state = state
        self._letters = letters
        self.queueing = queueing
        self._acks = acks
        self._streams = streams

    def enqueue(
        self, job: Job, *, nack: bool = False, asked: bool = False, front: bool = False, why: bytes = GIVEN_BACK
    ) -> bool:
        """Queue a job that is active; say whether that was possible.  `nack`, `asked`: because a client said so.

        `front`: before all that wait, and not at its age.  `why`: how the try failed, if it was one, and nobody asked.

        Not possible for a job that is queued, acked, dead or still waiting for copies, nor for an at-most-once job that
        was queued before, or of which this node has a copy that its origin has not told it to queue.  One without a try
        left becomes dead instead.  A NACK of a job with terms or a fate comes by `give_back`, which has counted it.

        A try is a delivery: a job that was never queued, or that somebody took out of its queue, has had none, whoever
        queues it.
        """
        if job.state != ACTIVE or (job.flags & FLAG_DROPPED and self._acks.end_undone(job)):
            return False
        options = job.options
        if options.is_rare and options.kind:
            self._state.note(ENQUEUE, job)
            self._streams.publish(job)
            return True
        retry_ms = options.retry_ms
        again = job.flags & FLAG_QUEUED_BEFORE
        if not retry_ms and (again or (not job.requeue_at and (nack or asked))):
            return False
        if options.delay_ms and not again and self._waits_for_journal(job):
            return True
        ends_delay = asked and self.queueing.is_delayed(job)
        is_new = not job.flags & (FLAG_DOUBTED | FLAG_PUT_OFF) or nack or asked
        counts = again != 0 and not job.flags & FLAG_TAKEN_OUT
        if is_new:
            if options.is_rare:
                if not nack and not self._take_try(job, again=counts, asked=asked, why=why):
                    return False
            else:
                self._count_enqueued(job, nack=nack, again=counts, asked=asked)
        state = self._state
        job.requeue_at = state.now + retry_ms if retry_ms else 0
        if front:
            job.order_key = state.numbers.next_front(state.wall)
        queue = state.queue(job.queue)
        self.queueing.enqueue_new(job, queue)
        if again and is_new:
            queue.requeued += 1
        self.queueing.reschedule(job)
        if options.is_rare or ends_delay:
            self._note_queued(job, is_told=nack or job.options is not options)
        if job.holders and (again or nack or ends_delay):
            how = AFTER_NACK if nack else AS_BEFORE if not (counts and is_new) else ASKED if asked else AGAIN
            state.tell(job, (messages.QUEUED, job.id, WORK_SCOPE, how))
        return True

    def _note_queued(self, job: Job, *, is_told: bool) -> None:
        """Let the journal know that a delay is over, or how often a job was tried; the other holders count like that.

        `is_told`: a failure has said so.
        """
        state = self._state
        if state.queues.delayed:
            state.queues.end_delay(job)
        if job.options.is_rare:
            if not is_told:
                self._letters.fates.say(job)
        elif state.journaling:
            # A start after a crash would wait for the delay once more.
            state.outbox.journal.append((JOB_ADDED, job))

    def _count_enqueued(self, job: Job, *, nack: bool, again: bool, asked: bool) -> None:
        """Count why a job is queued, and note it for the event log."""
        state = self._state
        if state.trace.full is not None:
            state.note(NACK if nack else REQUEUE if again else ENQUEUE, job, word=ASKED_FOR if asked else b"")
        if nack:
            job.nacks += 1
            state.counters.nacked += 1
        elif again:
            job.additional_deliveries += 1
            state.counters.requeued += 1

    def _take_try(self, job: Job, *, again: bool, asked: bool, why: bytes) -> bool:
        """Count a try of a job with terms or a fate; return False when none was left, so that it is dead now."""
        if not again or job.flags & FLAG_PUT_OFF:
            self._state.note(ENQUEUE, job)  # no try has ended, or it was counted when it did
            return True
        reason = NO_TRY_LEFT if asked else why
        if why == LATE:
            span_ms = self._state.custody.spans.get(job, job.options.retry_ms)
            reason = b"neither acknowledged nor heard of within %b s" % seconds_text(span_ms)
        if self._letters.ends_last_try(job, reason):
            return False
        self._count_enqueued(job, nack=False, again=True, asked=asked)
        if job.options.terms.max_tries and not asked:
            self._letters.note_failure(job, b"", reason, is_last=False)
        return job.state == ACTIVE

    def nack(self, job: Job) -> bool:
        """Let a consumer give back a job that has neither terms nor a fate; return whether it could."""
        return self.enqueue(job, asked=True) if self._is_untried(job) else self.enqueue(job, nack=True)

    @staticmethod
    def _is_untried(job: Job) -> bool:
        """Return whether no consumer has had a job since it was last counted, as far as this node knows."""
        return job.flags & FLAG_TAKEN_OUT != 0 or not job.flags & FLAG_QUEUED_BEFORE

    def give_back(self, job: Job, said: GivenBack) -> bool:
        """Let a consumer give a job back that has terms or a fate, or of which it says more; return whether it could.

        Not possible for a job that waits in a queue or is put off: nobody has it.  Either can be buried.  One that was
        taken out of its queue, or was never in it, is queued and counts nothing.
        """
        state, retry_ms = self._state, job.options.retry_ms
        if job.state != ACTIVE and not (job.state == QUEUED and said.buries):
            return False
        if job.flags & FLAG_DROPPED:
            self._acks.end_undone(job)
            return False
        waits = job.state == QUEUED or job.flags & FLAG_PUT_OFF or self._is_untried(job)
        if waits and not said.buries:
            return said.delay_ms < 0 and not job.flags & FLAG_PUT_OFF and self.enqueue(job, asked=True)
        if not waits:
            if not retry_ms and not said.buries:
                return False
            state.note(NACK, job, failure=said.reason)
            job.nacks += 1
        state.counters.nacked += 1
        is_last = said.buries or is_spent(job)
        delay_ms = 0
        if not is_last:
            delay_ms = said.delay_ms
            if delay_ms < 0:
                delay_ms = backoff_of(job.options.terms, job.id, job.nacks)
        if delay_ms:
            self.queueing.put_off(job, min(state.now + delay_ms, job.expires_at))
            job.flags |= FLAG_PUT_OFF
        self._letters.note_failure(job, said.who, said.reason, is_last=is_last)
        return is_last or delay_ms > 0 or self.enqueue(job, nack=True)

    def take_back(self, job: Job) -> bool:
        """Queue a job that its consumer has not begun to work on, at its age; it counts as no try.

        Not possible for one that nobody has, nor for an at-most-once job: an earlier call may have taken it back.
        """
        state, retry_ms = self._state, job.options.retry_ms
        if job.state != ACTIVE or not retry_ms:
            return False
        if job.flags & FLAG_DROPPED:
            self.queueing.leases.end(job)
            job.flags |= FLAG_TAKEN_OUT
            self._acks.end_undone(job)
            return False
        if job.flags & FLAG_PUT_OFF or not job.flags & FLAG_QUEUED_BEFORE:
            return False
        state.note(REQUEUE, job, word=UNSEEN)
        state.counters.returned += 1
        job.requeue_at = state.now + retry_ms
        self.queueing.enqueue_new(job, state.queue(job.queue))
        self.queueing.note_untried(job)
        self.queueing.reschedule(job)
        state.tell(job, (messages.QUEUED, job.id, WORK_SCOPE, RETURNED))
        return True

    def _waits_for_journal(self, job: Job) -> bool:
        """Let the journal know that a delayed job is queued for the first time; return whether it is held until then.

        A job with a retry period that somebody queues before its time is written down by who does that.
        """
        state, retry_ms = self._state, job.options.retry_ms
        state.queues.end_delay(job)
        if not state.journaling or retry_ms == RETRY_NEVER_MS:
            return False
        if job.requeue_at > state.now:
            if retry_ms:
                return False
            job.flags |= FLAG_QUEUED_BEFORE
            state.outbox.journal.append((JOB_ADDED, job))
        else:
            state.reach()
            if retry_ms or state.durability.watermark.is_safe(state.now):
                return False
            if not state.outbox.journal:
                # A step that writes nothing has no commit, and the job would be held until another step has one.
                state.outbox.journal.append((WATERMARK, state.durability.watermark.until))
        state.durability.watermark.hold(job)
        return True

    def release(self, last: int, until: int) -> None:
        """Queue the jobs that were held up to that number: what was journaled before is safe, and so the watermark."""
        mark = self._state.durability.watermark
        mark.safe = max(mark.safe, until)
        if mark.held:
            self._state.work(self._release(last))

    def _release(self, last: int) -> QuietParts:
        while jobs := self._state.durability.watermark.release(last, RELEASED_PER_PART):
            for job in jobs:
                self._queue_held(job)
            yield

    def _queue_held(self, job: Job) -> None:
        state = self._state
        if state.jobs.get(job.id) is not job or job.state != ACTIVE:
            return
        state.note(ENQUEUE, job)
        job.requeue_at = 0
        self.queueing.enqueue_new(job, state.queue(job.queue))
        self.queueing.reschedule(job)

    def stalled(self) -> None:
        """Ask about all queued jobs before they are handed out: others may have queued them meanwhile."""
        # The first part at once, before consumers ask.
        self._state.begin_work(self._doubt_queued())

    def _doubt_queued(self) -> QuietParts:
        state, jobs, looked_at = self._state, self._state.jobs, 0
        for _, table in jobs.from_table(0):
            # A flush puts another registry in the place of this one.
            if state.jobs is not jobs:
                return
            for job in table:
                if job.state == QUEUED and job.holders and job.options.retry_ms:
                    self._doubt(job)
            looked_at += len(table)
            if looked_at >= DOUBTED_PER_PART:
                looked_at = 0
                yield

    def _doubt(self, job: Job) -> None:
        if not self.queueing.is_paused_in(job.queue) and self.queueing.dequeue(job):
            job.flags |= FLAG_DOUBTED
            job.requeue_at = self._state.now
            self.queueing.reschedule(job)

    def due(self, job: Job) -> None:
        """Do what the deadline of a job asks for that is active, queued or dead."""
        state = self._state
        now = state.now
        if job.expires_at <= now:
            state.forget(job, GONE_EXPIRED)
            return
        if job.state != ACTIVE or job in state.durability.watermark.held:
            state.schedule.add(job, job.expires_at)
            return
        custody = state.custody
        if job in custody.bound and job not in custody.spans and job.requeue_at <= now:
            # As long as its worker lives it keeps what it has, but for what it took for a time.
            job.requeue_at = now + job.options.retry_ms
        if job.flags & FLAG_DROPPED and 0 < job.requeue_at <= now and self._may_end(job):
            self._acks.end_undone(job)
            return
        if 0 < job.requeue_at <= now:
            self._timer_ended(job)
        self.queueing.reschedule(job)

    @staticmethod
    def _may_end(job: Job) -> bool:
        """Return whether a job that is not to be delivered again ends when its timer does, without asking others.

        A consumer of another node may have one that was cancelled.
        """
        return not job.options.fate.is_cancelled or job.holders is None or job.flags & FLAG_LEASED != 0

    def _timer_ended(self, job: Job) -> None:
        """Queue a job whose timer has ended, unless its queue is paused or other holders have yet to say something."""
        retry_ms = job.options.retry_ms
        has_own_span = job in self._state.custody.spans
        if retry_ms and self.queueing.is_paused_in(job.queue):
            waits_ms = PAUSED_MS if job.options.kind or has_own_span else job.options.probe_ms
            job.requeue_at = self._state.now + waits_ms
            job.flags &= ~FLAG_ASKING
        elif retry_ms and job.flags & FLAG_QUEUED_BEFORE and not self._has_asked(job):
            return
        elif self.queueing.leases.keeps_orphans and not job.flags & FLAG_PUT_OFF and self._is_orphan(job):
            job.flags &= ~FLAG_ASKING
            self._state.custody.asking.pop(job, None)
            self.queueing.leases.adopt(job)
        elif not self.enqueue(job, front=has_own_span, why=LATE):
            job.requeue_at = 0

    def _has_asked(self, job: Job) -> bool:
        """Ask the other holders whether a job may be queued; say whether there is nobody left to wait for.

        A node that was held up may have an acknowledgement in its buffers: it reads them first.
        """
        state = self._state
        is_late = False
        asked = state.shared.others(job.holders) if job.holders else ()
        unheard: Iterable[bytes] = asked
        if job.flags & FLAG_ASKING:
            unheard = state.custody.asking.get(job, _NOBODY)
        else:
            is_late = state.now - job.requeue_at >= LATE_MS
            if not asked and not is_late:
                return True
            job.flags |= FLAG_ASKING
            job.requeue_at = state.now
        # While one is silent all are asked again: what another one said a while ago may not be so any more.
        for node_id in asked if unheard else ():
            state.send(node_id, (messages.WILLQUEUE, job.id, WORK_SCOPE))
        missing = state.peers.awaited(unheard, job.requeue_at, state.now)
        state.custody.asking[job] = state.shared.holders(missing)
        return not missing and not is_late

    def go_ahead(self, job: Job, node_id: bytes, others: frozenset[bytes]) -> None:
        """Hear that a node does not have a job that this one is about to queue; ask others that it has named."""
        state = self._state
        missing = state.custody.asking.get(job, _NOBODY)
        if self._is_owed(job, node_id):
            # It may have said so before something happened that made this node give up its question.
            state.send(node_id, (messages.WILLQUEUE, job.id, WORK_SCOPE))
            return
        more = state.peers.awaited(others, job.requeue_at, state.now)
        for other in sorted(more):
            state.send(other, (messages.WILLQUEUE, job.id, WORK_SCOPE))
        state.custody.asking[job] = left = state.shared.holders((missing | more) - {node_id})
        if not state.peers.awaited(left, job.requeue_at, state.now):
            self._timer_ended(job)
            self.queueing.reschedule(job)

    def _is_owed(self, job: Job, node_id: bytes) -> bool:
        """Tell whether an answer may belong to an earlier question; the next one of this node does not."""
        owed = self._state.custody.owed.get(job)
        if owed is None or node_id not in owed:
            return False
        left = owed - {node_id}
        if left:
            self._state.custody.owed[job] = left
        else:
            del self._state.custody.owed[job]
        return True

    def ask_again(self, job: Job, node_id: bytes) -> None:
        """Take back what a node has said of a job that this one is about to queue: it goes first."""
        state = self._state
        state.custody.asking[job] = state.shared.holders(state.custody.asking.get(job, _NOBODY) | {node_id})

    def _is_orphan(self, job: Job) -> bool:
        """Tell whether a job that nobody else seems to have in a queue may have been delivered."""
        is_manual = job.options.retry_ms == RETRY_NEVER_MS
        return is_manual and bool(job.flags & FLAG_QUEUED_BEFORE) and job not in self._state.custody.spans

    def working(self, job_id: bytes) -> int:
        """Put off the next delivery of a job that is still worked on; return its retry period in milliseconds.

        Of one that is put off already, or delayed, the next delivery does not come nearer.  One of a limited queue has
        lost its slot when its consumer has it no more, and would exceed the limit.

        Raises UnknownJob (NOJOB), also for one that is done, WrongType (WRONGTYPE) for an event, JobCancelled
        (CANCELLED), TooLate, JobIsDead and SlotIsOver (TOOLATE).
        """
        state = self._state
        job = state.jobs.get(job_id)
        if job is None:
            raise UnknownJob
        if job.options.kind:
            raise WrongType
        options = job.options
        if options.fate.is_cancelled:
            raise JobCancelled
        if job.state == ACKED:
            raise UnknownJob
        if job.state == DEAD:
            raise JobIsDead
        if (job.expires_at - state.now) * 2 < options.ttl_ms:
            raise TooLate
        if job.state in (ACTIVE, QUEUED) and not self.queueing.waits(job):
            gate = state.queues.policies.gates.get(job.queue)
            if gate is not None and gate.is_limited and not self._has_slot(job):
                raise SlotIsOver
            self._work_on(job)
        return options.retry_ms

    def _has_slot(self, job: Job) -> bool:
        """Return whether a consumer of this node has a job of a limited queue, and its time is not over."""
        return self.queueing.is_leased(job) if job.options.retry_ms else job.flags & FLAG_LEASED != 0

    def _work_on(self, job: Job) -> None:
        """Let the lease of a job begin again, or begin here."""
        state, options = self._state, job.options
        state.note(WORKING, job, who=state.trace.actor)
        self.queueing.dequeue(job)
        if options.retry_ms:
            state.counters.working += 1
            span_ms = state.custody.spans.get(job, 0)
            requeue_at = state.now + (span_ms or options.retry_ms)
            # What a consumer of this node has keeps its place among what was handed out.
            stays = job.flags & FLAG_WITH_CONSUMER == FLAG_LEASED and options.retry_ms != RETRY_NEVER_MS
            is_bound = job in state.custody.bound or (stays and not span_ms)
            if state.custody.limited and job in state.custody.limited:
                self._lengthen_slot(job, requeue_at, span_ms, restarts=is_bound)
            elif is_bound:
                self.queueing.restart(job, requeue_at)
            else:
                since, consumer = self._lease_of(job)
                self.queueing.put_off(job, requeue_at)
                self.queueing.leases.begin(job, since, span_ms, consumer)
            self.queueing.reschedule(job)
            if is_bound or options.retry_ms != RETRY_NEVER_MS:
                self.queueing.leases.tell(job)

    def _lease_of(self, job: Job) -> Lease:
        """Return since when a consumer of this node has a job, and who; if none has it, since now, and nobody."""
        return self._state.queue(job.queue).leased.get(job, (self._state.now, None))

    def _lengthen_slot(self, job: Job, requeue_at: int, span_ms: int, *, restarts: bool) -> None:
        """Let the lease of a job begin again that has a slot: it keeps that, with a consumer all the time."""
        custody, leases = self._state.custody, self.queueing.leases
        if restarts:
            self.queueing.restart(job, requeue_at)
            if job not in custody.bound:
                leases.announce(job)
            return
        (since, consumer), slot_since = self._lease_of(job), custody.limited.pop(job)
        self.queueing.put_off(job, requeue_at)
        leases.begin(job, since, span_ms, consumer)
        custody.limited[job] = slot_since
