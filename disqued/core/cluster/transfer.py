"""Jobs that move: out of the queue of one node, into that of another.

    give_away --> YOURJOBS --> take_over
        retry > 0    stays here as a copy that waits for the other node to be done with it
        retry 0      is forgotten here, and the journal knows before it leaves: it exists on one node at a time

Whoever takes a job over tells the holders that had no part in the move where it is now: they would ask its old place.

Times are integer milliseconds.  Source: Disque, src/queue.c (needJobs, receiveYourJobs).
"""

from disqued.core.model import messages
from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    DEAD,
    FLAG_DELIVERED,
    FLAG_DROPPED,
    FLAG_GIVEN,
    FLAG_QUEUED_BEFORE,
    FLAG_TAKEN_OUT,
    INTO_ACTIVE,
    QUEUED,
    WAIT_REPL,
    WORK_SCOPE,
    Job,
    StoredJob,
    forbidden,
)
from disqued.core.model.memory import cost_of_job
from disqued.core.model.outbox import GONE_EXPIRED, HERE_ALONE, JOB_ADDED, WORK, Notification
from disqued.core.model.queues import Queue
from disqued.core.model.state import State
from disqued.core.model.trace import ENQUEUE, LEAVE, REPLICATE
from disqued.core.work.copies import SPREAD_MS
from disqued.core.work.delivery import FETCHED_BYTES, Delivery
from disqued.core.work.fates import Fates
from disqued.core.work.purges import Purges


class Transfer:
    """The machine that takes jobs out of queues for other nodes, and puts those of others into ours."""

    __slots__ = ("_delivery", "_fates", "_purges", "_queueing", "_state")

    def __init__(self, state: State, delivery: Delivery, fates: Fates, purges: Purges) -> None:
        self._state = state
        self._delivery = delivery
        self._fates = fates
        self._purges = purges
        self._queueing = delivery.queueing

    # Giving.

    def give_away(
        self, queue: Queue, count: int, node_id: bytes, room: int | None = None, *, held: bool = False
    ) -> list[Job]:
        """Take up to `count` jobs out of a queue for another node, fewer of large ones, in the order of delivery.

        `room`: bytes that the node has room for, as memory is counted; None = not known.  With `held` jobs of groups
        that are held back go, too, oldest first.
        """
        state = self._state
        given: list[Job] = []
        size = 0
        units = queue.units
        while len(given) < count and size < FETCHED_BYTES and (len(units) if held else units.ready_count):
            if room is not None:
                room -= cost_of_job((units.first if held else units.head).job)
                if room < 0:
                    break
            job = (units.pop_oldest() if held else units.pop_first()).job
            assert INTO_ACTIVE[job.state], forbidden(job.state, ACTIVE)
            job.state = ACTIVE
            if job.expires_at <= state.now:
                state.forget(job, GONE_EXPIRED)
                if self._delivery.has_dropped_enough(queue):
                    break
                continue
            given.append(job)
            size += len(job.body)
            state.note(LEAVE, job, who=node_id)
            self._leave_to(job, node_id)
        queue.jobs_out += len(given)
        queue.exported += len(given)
        state.counters.exported += len(given)
        return given

    def _leave_to(self, job: Job, node_id: bytes) -> None:
        state = self._state
        if not job.options.retry_ms:
            self.part_with(job)
            return
        state.unite_holders(job, frozenset((state.node_id, node_id)))
        if job.options.is_rare:
            job.flags |= FLAG_TAKEN_OUT
        self._queueing.put_off(job, state.now + job.options.probe_ms + state.numbers.spread(SPREAD_MS))
        job.flags |= FLAG_GIVEN

    def part_with(self, job: Job) -> None:
        """Forget an at-most-once job that another node is to have: it moves as a whole."""
        job.additional_deliveries += 1
        self._state.custody.ended.leave(job, self._state.now)
        self._state.finish(job)
        self._state.custody.changed.jobs.pop(job.id, None)

    # Taking.

    def take_over(self, stored: StoredJob, sender: bytes, *, queued: bool) -> bool:
        """Take a job that another node gives: into the queue, or with its timers; say whether it is in the queue now.

        Not one that is done, that a consumer of this node has, that is queued here already, or whose time is over.
        """
        state, queueing = self._state, self._queueing
        job = state.jobs.get(stored.id)
        known = job is not None
        if job is None:
            job = queueing.copies.make(stored)
            if job is None:
                state.say_ended(sender, stored.id)
                return False
        elif not self._may_take_over(job, stored, sender, queued=queued):
            return False
        if stored.retry_ms:
            grew = state.unite_holders(job, (stored.holders or frozenset()) | {sender, state.node_id})
            if known and (grew or job.options.is_rare) and state.journaling:
                state.outbox.journal.append((JOB_ADDED, job))
        elif stored.requeue:
            # It is here alone from now on, and waits here for the end of its delay.
            job.requeue_at = state.now + min(stored.requeue, stored.delay_ms)
            if known and state.journaling:
                state.outbox.journal.append((JOB_ADDED, job))
        if not known:
            state.note(REPLICATE, job, who=sender)
            state.register(job)
            state.schedule.add(job, job.expires_at)
        queued = queued and job.state != DEAD
        if queued and job.flags & FLAG_DROPPED:
            # It is known here to be cancelled, and ends in a moment.
            queued = False
            job.requeue_at = state.now
        if queued:
            self._enqueue(job, sender)
        queueing.reschedule(job)
        if self._purges.shares and self._purges.end(job):
            return False
        return queued

    def _enqueue(self, job: Job, giver: bytes) -> None:
        state, retry_ms = self._state, job.options.retry_ms
        job.requeue_at = state.now + retry_ms if retry_ms else 0
        state.note(ENQUEUE, job, who=giver)
        state.queues.end_delay(job)
        self._queueing.enqueue_new(job, state.queue(job.queue))
        if state.demand.listeners:
            # It was announced to all where it came into being; who listens here may have asked for it.
            state.outbox.events[-1] = Notification(job.queue, WORK, 1, HERE_ALONE)
        for node_id in state.shared.others(job.holders or frozenset()):
            if node_id != giver:
                state.send(node_id, (messages.QUEUED, job.id, WORK_SCOPE, messages.AS_BEFORE))

    def _may_take_over(self, job: Job, stored: StoredJob, sender: bytes, *, queued: bool) -> bool:
        """Tell whether a job that is known here can be queued for another node, which hears why not."""
        state, queueing = self._state, self._queueing
        self._fates.learn_of_copy(job, stored)
        if job.state == ACKED:
            if queued and stored.terms.keep_result_ms:
                self._fates.say_untried(job, stored, sender)
            state.say_done(sender, job)
            return False
        if job.state == DEAD:
            state.send(sender, state.word_of_fate(job))
            return False
        if job.state in (QUEUED, WAIT_REPL):
            return False
        if not job.options.retry_ms:
            # Known as a copy that nobody was told to queue: another one was, which comes here now.
            return not job.flags & (FLAG_QUEUED_BEFORE | FLAG_DELIVERED) and not queueing.copies.came_before(stored)
        if queueing.is_leased(job):
            state.send(sender, queueing.leases.hint(job))
            return False
        return True
