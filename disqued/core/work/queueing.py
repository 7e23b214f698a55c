"""Queueing: a job enters its queue and leaves it, and its timer is set.

What every machine that touches a job shares: first queueing, redelivery, handing out, replication, moves between nodes
and recovery.  Nothing here decides whether a job may be queued (`requeueing`) or who gets it (`delivery`).

The retry period starts when a job is queued and starts again when it is handed out, so a consumer always has the
whole of it.  A deadline that is put off is not moved in the schedule: when the old one comes, the job is looked at,
found to have time left, and scheduled again.  A job that is queued when its retry period ends needs nothing, so its
timer rests until it leaves the queue: a long queue wakes the node once for each job, not once each period.

Times are integer milliseconds.  Source: Disque, src/queue.c.
"""

from typing import Final

from disqued.core.model.job import (
    ACTIVE,
    FLAG_ASKING,
    FLAG_CAME_BACK,
    FLAG_COPY,
    FLAG_DELIVERED,
    FLAG_GIVEN,
    FLAG_LEASED,
    FLAG_PUT_OFF,
    FLAG_QUEUED_BEFORE,
    FLAG_TAKEN_OUT,
    FLAG_WITH_CONSUMER,
    INTO_ACTIVE,
    INTO_QUEUED,
    QUEUED,
    WORK_SCOPE,
    Job,
    Unit,
    forbidden,
)
from disqued.core.model.machine import Machine
from disqued.core.model.outbox import JOB_ADDED, QUEUE_PAUSED, UNIT_LEASED, WORK, Notification
from disqued.core.model.queues import HOLDS_ALL, PAUSE_IN, PAUSE_OUT, Queue
from disqued.core.model.schedule import HELD_BYTES
from disqued.core.model.state import State
from disqued.core.work.copies import Copies, delay_left
from disqued.core.work.leases import Leases

ASKED_AGAIN_MS: Final = 1_000  #: when other holders are asked once more that have not said whether they know better

_LASTING_FLAGS: Final = FLAG_DELIVERED | FLAG_CAME_BACK | FLAG_COPY  #: those that a job keeps when it is queued again


def requeue_within(unit: Unit, now: int) -> int:
    """Milliseconds until the timer of a unit ends, which has one; that of a queued unit begins again each time."""
    left_ms = unit.requeue_at - now
    retry_ms = unit.options.retry_ms
    if left_ms <= 0 and retry_ms and unit.state == QUEUED:
        return retry_ms - -left_ms % retry_ms
    return max(0, left_ms)


class Queueing(Machine):
    """The queues of one node, and the timers and leases of its jobs."""

    __slots__ = ("_state", "copies", "leases")

    def __init__(self, state: State) -> None:
        self._state = state
        self.copies = Copies(state)
        self.leases = Leases(state)

    def flushing(self) -> None:
        self.copies.forget()

    def enqueue_new(self, job: Job, queue: Queue) -> None:
        """Queue a job for the first time; its deadline is set already."""
        assert INTO_QUEUED[job.state], forbidden(job.state, QUEUED)
        job.state = QUEUED
        state = self._state
        if job.flags & FLAG_WITH_CONSUMER:
            self.leases.end(job)
        if state.custody.asking:
            state.custody.asking.pop(job, None)
        job.flags = job.flags & _LASTING_FLAGS | FLAG_QUEUED_BEFORE
        queue.units.push(job)
        queue.jobs_in += 1
        state.counters.queued += 1
        queue.accessed_at = state.now
        if (queue.waiters or queue.watchers) and not queue.holds & HOLDS_ALL:
            state.ready[queue] = None
        demand = state.demand
        if demand.jobs and queue.name in demand.jobs:
            demand.giving[queue] = None
        if demand.listeners:
            state.outbox.events.append(Notification(queue.name, WORK, 1))

    def dequeue(self, job: Job) -> bool:
        """Take a job out of its queue without delivering it; say whether it was queued."""
        if job.state != QUEUED or job.options.kind:
            return False
        state = self._state
        state.queues.by_name[job.queue].units.remove(job)
        state.counters.dequeued += 1
        if job.requeue_at:
            job.requeue_at = state.now + requeue_within(job, state.now)
            self.reschedule(job)
        assert INTO_ACTIVE[job.state], forbidden(job.state, ACTIVE)
        job.state = ACTIVE
        if job.options.is_rare:
            job.flags |= FLAG_TAKEN_OUT
        return True

    def take_out(self, job: Job) -> bool:
        """Take a job out of its queue because a client says so; say whether it was queued.

        That it is queued again then counts nothing: no consumer has had it.
        """
        if not self.dequeue(job):
            return False
        job.flags |= FLAG_TAKEN_OUT
        return True

    def reschedule(self, job: Job) -> None:
        """See to it that the job is looked at when its next deadline comes; it may be looked at before."""
        at = job.expires_at
        requeue_at = job.requeue_at
        if job.flags & FLAG_ASKING:
            requeue_at = self._asks_again_at(job)
        if 0 < requeue_at < at:
            at = requeue_at
        if not 0 < job.awake_at <= at:
            if job.body[HELD_BYTES : HELD_BYTES + 1]:
                self._state.schedule.move_large(job, at, len(job.body))
            else:
                self._state.schedule.move(job, at)

    def _asks_again_at(self, job: Job) -> int:
        """When holders that have not answered are asked once more; at once where nobody is to answer."""
        state = self._state
        if not state.custody.asking.get(job):
            return state.now + 1
        return state.now + max(1, min(ASKED_AGAIN_MS, state.peers.timeout_ms // 4))

    def put_off(self, job: Job, requeue_at: int) -> None:
        """Let the timer of a job begin again; somebody else has it."""
        self.restart(job, requeue_at)
        if job.flags & FLAG_WITH_CONSUMER:
            self.leases.end(job)

    def restart(self, job: Job, requeue_at: int) -> None:
        """Let the timer of a job begin again, and give up the question whether it may be queued."""
        job.requeue_at = requeue_at
        self.note_taken(job)
        job.flags &= ~(FLAG_ASKING | FLAG_GIVEN | FLAG_PUT_OFF | FLAG_TAKEN_OUT)
        if self._state.queues.delayed:
            self._state.queues.end_delay(job)
        if self._state.custody.asking:
            missing = self._state.custody.asking.pop(job, None)
            if missing and job.holders:
                # Those that have answered may have been asked once more.
                self._state.custody.owed[job] = self._state.shared.holders(job.holders - {self._state.node_id})
        self.reschedule(job)

    def note_taken(self, job: Job) -> None:
        """Note that somebody else may have had a job that nobody had; the journal hears of one with terms or a fate."""
        if job.flags & FLAG_TAKEN_OUT:
            job.flags &= ~FLAG_TAKEN_OUT
            if job.options.is_rare and self._state.journaling:
                self._state.outbox.journal.append((JOB_ADDED, job))

    def note_untried(self, job: Job) -> None:
        """Let the journal know that a delivery counts nothing of a job with terms or a fate: it waits again."""
        state = self._state
        if job.options.is_rare and state.journaling:
            state.outbox.journal += ((UNIT_LEASED, job.id, WORK_SCOPE, 0, b""), (JOB_ADDED, job))

    def is_delayed(self, job: Job) -> bool:
        """Tell whether the delay of a job is not over that may be delivered more than once."""
        options = job.options
        left_ms = job.requeue_at - self._state.now
        return bool(options.retry_ms and delay_left(left_ms, job.flags, options.delay_ms, options.retry_ms))

    def waits(self, job: Job) -> bool:
        """Return whether a job is put off, or its delay is not over, as far as this node knows: nobody has it."""
        if job.state != ACTIVE or job.flags & FLAG_WITH_CONSUMER:
            return False
        return job.flags & FLAG_PUT_OFF != 0 or self.is_delayed(job)

    def is_leased(self, job: Job) -> bool:
        """Tell whether a consumer has a job from this node, and for how long is not over yet."""
        return job.state == ACTIVE and job.flags & FLAG_LEASED != 0 and job.requeue_at > self._state.now

    def is_paused_in(self, queue_name: bytes) -> bool:
        """Tell whether a queue takes no new jobs."""
        queue = self._state.queues.by_name.get(queue_name)
        return queue is not None and queue.pause & PAUSE_IN != 0

    def set_pause(self, queue_name: bytes, pause: int) -> None:
        """Set the PAUSE_... bits of a queue on this node alone."""
        state = self._state
        queue = state.queues.by_name.get(queue_name)
        if queue is None:
            if not pause:
                return
            queue = state.queue(queue_name)
        if pause != queue.pause_here and state.journaling:
            state.outbox.journal.append((QUEUE_PAUSED, queue.name, pause))
        queue.pause_here = pause
        self.follow_policy(queue_name)

    def follow_policy(self, queue_name: bytes) -> None:
        """Let a queue be paused as the cluster says, and as is said of it on this node."""
        state = self._state
        pause = state.queues.policies.pause_of(queue_name).bits
        queue = state.queues.by_name.get(queue_name)
        if queue is None:
            if not pause:
                return
            queue = state.queue(queue_name)
        pause |= queue.pause_here
        queue.set_pause(pause)
        if not pause & PAUSE_OUT and ((queue.is_awaited and len(queue.units)) or queue.stream is not None):
            state.ready[queue] = None
