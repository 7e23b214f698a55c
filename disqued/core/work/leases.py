"""Leases: the jobs that consumers have, and what the journal and the other holders are told of them.

A job that nothing queues again by itself (RETRY_NEVER_MS) would be forgotten with the node that handed it out, for
nobody else could tell it from one that waits.  So each such delivery is written down, and told:

    handed out   journal UNIT_LEASED(deliveries)   --DELIVERED(left, elapsed, deliveries)--> every other holder
    given back   journal UNIT_LEASED(0)            --QUEUED--> every other holder
    done         journal UNIT_DONE                 --SETACK--> every other holder

A job that has a slot of a limited queue (`Custody.limited`) is written down in the same way, whatever its retry period
is, so that the limit counts it after a crash.  Its record says when the retry period began: with the delivery, or with
the last WORKING.  With RETRY 0 it replaces UNIT_DONE, which is written when the slot ends.

What other nodes have handed out is in `Queue.elsewhere`, where RECOVER finds it should that node be gone.  When two
nodes say that a consumer of theirs has a job, the later delivery counts: the higher number of deliveries, then the
higher node id.

Of other jobs with terms or a fate the delivery is written down as well, with its number, but tells nobody.  A restart
knows by that which of them nobody was given since a try was last counted (FLAG_TAKEN_OUT), and counts none of those.

A fetch may set a time of its own (`span_ms`) for what it takes.  When that is over the unit goes to the front of its
queue, be it with a worker or not; a restart after a crash does not know of it and queues the unit at once.

What a worker has is told with its worker (LEASED) behind that, so that it comes back from the other holders, too, when
the node of the worker fails; the word of the lease alone takes it from its worker.

Times are integer milliseconds of the monotonic clock.
"""

from disqued.core.model.custody import SlotHolder
from disqued.core.model.job import (
    FLAG_ELSEWHERE,
    FLAG_LEASED,
    FLAG_QUEUED_BEFORE,
    FLAG_TAKEN_OUT,
    RETRY_NEVER_MS,
    WORK_SCOPE,
    Job,
    attempt_of,
)
from disqued.core.model.messages import DELIVERED, LEASED, WORKING, Held, Message
from disqued.core.model.outbox import JOB_ADDED, UNIT_LEASED, Record, name_of
from disqued.core.model.state import State, tell_slot
from disqued.core.model.trace import DELIVER, RECOVERED
from disqued.core.model.waiters import Consumer


def lease_record(state: State, job: Job) -> Record | None:
    """What a journal is to know of the lease of a job; None: nothing.

    It knows those of workers, those that no timer ends, and those that have a slot.
    """
    if not job.flags & FLAG_LEASED:
        return None
    custody, retry_ms = state.custody, job.options.retry_ms
    worker = custody.bound.get(job) if custody.bound else None
    if worker is not None or retry_ms == RETRY_NEVER_MS:
        held_since = state.queues.by_name[job.queue].held_since(job)
        since = state.now if held_since is None else held_since
    elif job in custody.limited:
        since = job.requeue_at - retry_ms if retry_ms else custody.limited[job].since
    else:
        return None
    worker_id = b"" if worker is None else worker.id
    return (UNIT_LEASED, job.id, WORK_SCOPE, job.deliveries, worker_id, state.wall - (state.now - since))


class Leases:
    """What becomes of a lease, once `Queue.leased` has it."""

    __slots__ = ("_state", "keeps_orphans")

    def __init__(self, state: State) -> None:
        self._state = state
        #: What has lost the node that had it queued is kept as delivered, until somebody asks for it (`rq-orphans`).
        self.keeps_orphans: bool = False

    def begin(self, job: Job, since: int, span_ms: int = 0, consumer: Consumer | None = None) -> None:
        """Note that a consumer of this node has a job since then, until its retry timer or that span ends.

        It is the client on whose behalf this step is, unless another one is named.
        """
        state = self._state
        if job.flags & FLAG_ELSEWHERE:
            state.end_lease(job)
        job.flags = job.flags & ~FLAG_TAKEN_OUT | FLAG_LEASED
        who = consumer or state.custody.consumer_of(state.trace.actor)
        state.queue(job.queue).note_lease(job, since, who)
        self.announce(job, span_ms)

    def announce(self, job: Job, span_ms: int = 0, *, has_slot: bool = False) -> None:
        """Tell the journal and the other holders of a lease that has just begun, or begun again."""
        state = self._state
        if has_slot:
            state.custody.limited[job] = SlotHolder(state.now, name_of(state.trace.actor))
        if span_ms:
            state.custody.spans[job] = span_ms
            job.requeue_at = state.now + span_ms
            if job.options.is_rare and state.journaling:
                # Its lease is not written down, but that it was tried.
                state.outbox.journal.append((JOB_ADDED, job))
        elif state.journaling:
            record = lease_record(state, job)
            if record is not None:
                state.outbox.journal.append(record)
            elif job.options.is_rare:
                state.outbox.journal.append((UNIT_LEASED, job.id, WORK_SCOPE, attempt_of(job), b"", 0))
        if job.holders and job.options.retry_ms == RETRY_NEVER_MS:
            self.tell(job)

    def end(self, job: Job) -> None:
        """Note that no consumer has a job any more that is not done."""
        state = self._state
        custody, flags = state.custody, job.flags
        is_written = flags & FLAG_LEASED and (job.options.retry_ms == RETRY_NEVER_MS or job in custody.limited)
        if state.journaling and is_written and job not in custody.spans:
            state.outbox.journal.append((UNIT_LEASED, job.id, WORK_SCOPE, 0, b""))
        state.end_lease(job)

    def hint(self, job: Job) -> Message:
        """What another holder is told of a job that a consumer has."""
        state = self._state
        left_ms = max(0, job.requeue_at - state.now)
        if job.options.retry_ms != RETRY_NEVER_MS:
            return (WORKING, job.id, WORK_SCOPE, left_ms)
        elapsed_ms = max(0, state.now - self.since(job))
        return (DELIVERED, job.id, WORK_SCOPE, min(left_ms, RETRY_NEVER_MS), elapsed_ms, job.deliveries)

    def tell(self, job: Job) -> None:
        """Let all other holders of a job hear that a consumer of this node has it."""
        for message in self.hints(job):
            self._state.tell(job, message)

    def hints(self, job: Job) -> list[Message]:
        """What another holder is told of a job that a consumer has, and of its worker if that is one."""
        worker = self._state.custody.bound.get(job)
        if worker is None:
            return [self.hint(job)]
        held = Held(job.id, WORK_SCOPE, job.deliveries, self._state.now - worker.leases[job])
        return [self.hint(job), (LEASED, worker.id, worker.epoch, worker.ttl_ms, (held,))]

    def since(self, job: Job) -> int:
        """When a job that a consumer has was handed out."""
        queue = self._state.queues.by_name[job.queue]
        if job.flags & FLAG_LEASED:
            since = queue.held_since(job)
            return self._state.now if since is None else since
        return queue.elsewhere[job][0]

    def recover(self, job: Job) -> None:
        """Hand a job that a consumer has to another one: that is one delivery more, and begins now.

        If it was with a worker it is that one's no more.
        """
        state = self._state
        job.additional_deliveries += 1
        state.counters.redelivered += 1
        worker = state.custody.bound.get(job)
        if worker is not None:
            worker.returned += 1
        holder = state.custody.limited.pop(job, None)  # it keeps its slot: it is with a consumer all the time
        state.end_lease(job)
        if holder is not None:
            state.custody.limited[job] = holder._replace(client=name_of(state.trace.actor))
            tell_slot(state, job)
        job.requeue_at = state.now + job.options.retry_ms
        self.begin(job, state.now)
        if state.trace.full is not None:
            # It waited in no queue.
            state.note(DELIVER, job, span_ms=0, who=state.trace.actor, word=RECOVERED)
        queue = state.queue(job.queue)
        queue.accessed_at = state.now
        if job.holders and job.options.retry_ms != RETRY_NEVER_MS:
            self.tell(job)

    def bring_slot(self, job: Job) -> None:
        """Note that a job comes from another node with the worker that has it: in a limited queue it keeps its slot.

        Its lease is about to begin here.
        """
        state = self._state
        gate = state.queues.policies.gates.get(job.queue)
        if gate is not None and gate.is_limited:
            state.custody.limited[job] = SlotHolder(state.now, b"")
            tell_slot(state, job)

    def note_elsewhere(self, job: Job, sender: bytes, elapsed_ms: int, deliveries: int) -> None:
        """Note that a consumer of another node has a job, for the so-manieth time."""
        state = self._state
        job.flags |= FLAG_ELSEWHERE | FLAG_QUEUED_BEFORE
        job.additional_deliveries = max(job.additional_deliveries, deliveries - 1 - job.nacks)
        state.queue(job.queue).elsewhere[job] = (state.now - elapsed_ms, sender)

    def adopt(self, job: Job) -> None:
        """Keep a job as delivered that was queued on a node that is gone: it may have been."""
        job.requeue_at = self._state.now + job.options.retry_ms
        self.begin(job, self._state.now)
