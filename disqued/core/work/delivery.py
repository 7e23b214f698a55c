"""Delivery: queueing, handing out, and queueing again what nobody acknowledged.

    enqueue ---> queue ---fetch (GETJOB)---> consumer ---ACKJOB---> done
      ^            |                            |
      |            +--- waiters, first come ----+
      +--- retry timer, NACK, ENQUEUE ----------+

The retry period starts when a job is queued and starts again when it is handed out, so a consumer always has the
whole of it.  A deadline that is put off is not moved in the schedule: when the old one comes, the job is looked at,
found to have time left, and scheduled again.  A job that is queued when its retry period ends needs nothing, so its
timer rests until it leaves the queue: a long queue wakes the node once for each job, not once each period.

A job with retry 0 is delivered at most once: the journal says that it is done before the consumer hears of it, and
nothing queues it a second time.  One with a delay is the only one that a start after a crash may queue, so it is held
when its time comes until the disk knows that (`watermark`).

A job whose time is over is never handed out.  Those at the front of a queue are dropped when they are met, a bounded
number in a millisecond; a queue with more of them is `behind`, and they are dropped bit by bit.  Until that is done it
is not known whether there is a job to give, so that whoever asks waits for it, NOHANG or not: some milliseconds later
comes the job, or the word that there is none.

Other nodes that may hold a job are asked before it is queued again (WILLQUEUE), and hear when it is (QUEUED); `sharing`
has the protocol.  A timer that ends late, since the node was held up, lets the node read first what came meanwhile: the
acknowledgement may be there.

Source: Disque, src/queue.c and src/job.c; the Disque README, "Job re-queueing state machine".
"""

from collections.abc import Callable, Iterable
from typing import Final

from disqued.core.model import messages
from disqued.core.model.job import (
    ACTIVE,
    FLAG_ASKING,
    FLAG_CAME_BACK,
    FLAG_COPY,
    FLAG_DELIVERED,
    FLAG_DROPPED,
    FLAG_GIVEN,
    FLAG_LEASED,
    FLAG_QUEUED_BEFORE,
    FLAG_WITH_CONSUMER,
    QUEUED,
    RETRY_NEVER_MS,
    TO_ACTIVE,
    TO_QUEUED,
    WORK_SCOPE,
    Job,
    Unit,
)
from disqued.core.model.machine import Machine
from disqued.core.model.messages import AFTER_NACK, AGAIN, AS_BEFORE, ASKED
from disqued.core.model.outbox import GONE_EXPIRED, JOB_ADDED, QUEUE_PAUSED, UNIT_DONE, WATERMARK, WORK, News
from disqued.core.model.queues import PAUSE_IN, PAUSE_OUT, Client, Form, Queue, Waiter, Watcher
from disqued.core.model.schedule import HELD_BYTES
from disqued.core.model.state import State
from disqued.core.model.trace import ASKED as ASKED_FOR
from disqued.core.model.trace import DELIVER, ENQUEUE, NACK, ONCE, REQUEUE, UNSEEN, WORKING
from disqued.core.model.unfinished import Parts
from disqued.core.work.copies import Copies, delay_left
from disqued.core.work.leases import Leases
from disqued.errors import CommandError, NodeLeaving, TooLate, UnknownJob, WrongType

OVER_AT_ONCE: Final = (
    500  #: jobs whose time is over that consumers drop within a millisecond on their way to a good one
)
SERVED_AT_ONCE: Final = 500  #: consumers that wait and are answered in one go, some milliseconds' work
OVER_PER_PART: Final = (
    1_000  #: such jobs dropped per part of the work on a queue that is behind, some milliseconds' work
)
RELEASED_PER_PART: Final = 500  #: jobs that waited for the journal and are queued at a time
PAUSED_MS: Final = 1_000  #: when a job that no timer queues again is tried again, which its paused queue did not take
LATE_MS: Final = 20  #: after which a timer has been held up, together with all that came meanwhile
ASKED_AGAIN_MS: Final = 1_000  #: when other holders are asked once more that have not said whether they know better
FETCHED_BYTES: Final = 1 << 20  #: names and bodies after which a fetch ends: only its last job makes a reply larger

_BITS_KNOWN: Final = 1_024
_BITS: Final = [number.bit_length() for number in range(_BITS_KNOWN)]  #: a method of an integer has to be looked for
_NOBODY: Final[frozenset[bytes]] = frozenset()
_LASTING_FLAGS: Final = FLAG_DELIVERED | FLAG_CAME_BACK | FLAG_COPY  #: those that a job keeps when it is queued again

Row = tuple[bytes, bytes, bytes] | tuple[bytes, bytes, bytes, bytes, int, bytes, int]


class PlainForm(Form):
    """GETJOB: (queue, id, body)."""

    __slots__ = ()

    def row(self, unit: Unit) -> Row:
        """A job as GETJOB answers it."""
        return (unit.queue, unit.id, unit.body)


class CountedForm(Form):
    """GETJOB WITHCOUNTERS: the same, and two names with their values."""

    __slots__ = ()

    def row(self, unit: Unit) -> Row:
        """A job with its counters."""
        return (
            unit.queue,
            unit.id,
            unit.body,
            b"nacks",
            unit.nacks,
            b"additional-deliveries",
            unit.redeliveries,
        )


def _is_no_log(what: Job | Queue | Unit) -> None:
    raise AssertionError(f"{what!r} belongs to a log, and nobody looks after logs")


PLAIN = PlainForm()
COUNTED = CountedForm()


def requeue_within(unit: Unit, now: int) -> int:
    """Milliseconds until the timer of a unit ends, which has one; that of a queued unit begins again each time."""
    left_ms = unit.requeue_at - now
    retry_ms = unit.options.retry_ms
    if left_ms <= 0 and retry_ms and unit.state == QUEUED:
        return retry_ms - -left_ms % retry_ms
    return max(0, left_ms)


class Delivery(Machine):
    """The machine between the queues and the consumers of one node."""

    __slots__ = (
        "_over", "_over_at", "_rest", "_served", "_state", "copies", "expect", "give_back_event", "keep_event",
        "leases", "on_dropped", "on_waited", "publish", "serve_log",
    )  # fmt: skip

    def __init__(self, state: State) -> None:
        self._state = state
        self.copies = Copies(state)
        self.leases = Leases(state)
        self._over_at = 0
        self._served = 0  #: consumers answered by `serve` in this part
        #: Queues with more consumers to be answered than one part answers; None = there are none.
        self._rest: dict[Queue, None] | None = None
        self._over = 0  #: jobs dropped by consumers in the millisecond `_over_at`
        #: Called with a job that would be queued again, and whose queue was deleted: it is to be done.
        self.on_dropped: Callable[[Job], None] = lambda _: None
        #: Called with a client that has waited until now.
        self.on_waited: Callable[[Client], None] = lambda _: None
        # What is done with the jobs of logs instead; `logs` says what.
        self.publish: Callable[[Job], None] = _is_no_log  #: put it into its log, where groups can have it
        self.expect: Callable[[Job], None] = _is_no_log  #: its delay is not over
        self.keep_event: Callable[[Job], None] = _is_no_log  #: it is a copy of another node's
        self.serve_log: Callable[[Queue], None] = _is_no_log
        self.give_back_event: Callable[[Unit], None] = _is_no_log

    # Into the queue.

    def enqueue_new(self, job: Job, queue: Queue) -> None:
        """Queue a job for the first time; its deadline is set already."""
        job.state = TO_QUEUED[job.state]
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
        if (queue.waiters or queue.watchers) and not queue.pause & PAUSE_OUT:
            state.ready[queue] = None
        demand = state.demand
        if demand.jobs and queue.name in demand.jobs:
            demand.giving[queue] = None
        if demand.listeners:
            state.outbox.events.append(News(queue.name, WORK, 1))

    def enqueue(self, job: Job, *, nack: bool = False, asked: bool = False, front: bool = False) -> bool:
        """Queue a job that is active; say whether that was possible.  `nack`, `asked`: because a client said so.

        `front`: before all that wait, and not at its age.

        Not possible for a job that is queued, acked or still waiting for copies, nor for an at-most-once job that
        was queued before.
        """
        if job.state != ACTIVE:
            return False
        if job.flags & FLAG_DROPPED:
            self.on_dropped(job)
            return False
        if job.options.kind:
            self._state.note(ENQUEUE, job)
            self.publish(job)
            return True
        retry_ms = job.options.retry_ms
        again = job.flags & FLAG_QUEUED_BEFORE
        if again and not retry_ms:
            return False
        if job.options.delay_ms and not again and self._waits_for_journal(job, nack=nack):
            return True
        ends_delay = asked and self.is_delayed(job)
        self._count_enqueued(job, nack=nack, again=bool(again), asked=asked)
        state = self._state
        job.requeue_at = state.now + retry_ms if retry_ms else 0
        if front:
            job.order_key = state.numbers.next_front(state.wall)
        queue = state.queue(job.queue)
        self.enqueue_new(job, queue)
        if again:
            queue.requeued += 1
        self.reschedule(job)
        if ends_delay and state.journaling:
            # A start after a crash would wait for the delay once more.
            state.outbox.journal.append((JOB_ADDED, job))
        if job.holders and (again or nack or ends_delay):
            how = AFTER_NACK if nack else AS_BEFORE if not again else ASKED if asked else AGAIN
            state.tell(job, (messages.QUEUED, job.id, WORK_SCOPE, how))
        return True

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

    def _waits_for_journal(self, job: Job, *, nack: bool) -> bool:
        """Let the journal know that a delayed job is queued for the first time; return whether it is held until then.

        A job with a retry period that somebody queues before its time is written down by who does that.
        """
        state, retry_ms = self._state, job.options.retry_ms
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
        if nack:
            job.nacks += 1
            state.counters.nacked += 1
        state.durability.watermark.hold(job)
        return True

    def release(self, last: int, until: int) -> None:
        """Queue the jobs that were held up to that number: what was journaled before is safe, and so the watermark."""
        mark = self._state.durability.watermark
        mark.safe = max(mark.safe, until)
        if mark.held:
            self._state.work(self._release(last))

    def _release(self, last: int) -> Parts:
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
        self.enqueue_new(job, state.queue(job.queue))
        self.reschedule(job)

    def is_delayed(self, job: Job) -> bool:
        """Tell whether the delay of a job is not over that may be delivered more than once."""
        options = job.options
        left_ms = job.requeue_at - self._state.now
        return bool(options.retry_ms and delay_left(left_ms, job.flags, options.delay_ms, options.retry_ms))

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
        job.state = TO_ACTIVE[job.state]
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

    def put_off(self, job: Job, requeue_at: int) -> None:
        """Let the timer of a job begin again; somebody else has it."""
        self._restart(job, requeue_at)
        if job.flags & FLAG_WITH_CONSUMER:
            self.leases.end(job)

    def _restart(self, job: Job, requeue_at: int) -> None:
        """Let the timer of a job begin again, and give up the question whether it may be queued."""
        job.requeue_at = requeue_at
        job.flags &= ~(FLAG_ASKING | FLAG_GIVEN)
        if self._state.custody.asking:
            missing = self._state.custody.asking.pop(job, None)
            if missing:
                self._state.custody.owed[job] = missing
        self.reschedule(job)

    def due(self, job: Job) -> None:
        """Do what the deadline of a job asks for that is active or queued."""
        state = self._state
        now = state.now
        if job.expires_at <= now:
            state.forget(job, GONE_EXPIRED)
            return
        if job.state == QUEUED or job in state.durability.watermark.held:
            state.schedule.add(job, job.expires_at)
            return
        custody = state.custody
        if job in custody.bound and job not in custody.spans and job.requeue_at <= now:
            # As long as its worker lives it keeps what it has, but for what it took for a time.
            job.requeue_at = now + job.options.retry_ms
        if job.flags & FLAG_DROPPED and 0 < job.requeue_at <= now:
            self.on_dropped(job)
            return
        if 0 < job.requeue_at <= now:
            self._timer_ended(job)
        self.reschedule(job)

    def _timer_ended(self, job: Job) -> None:
        """Queue a job whose timer has ended, unless its queue is paused or other holders have yet to say something."""
        retry_ms = job.options.retry_ms
        has_own_span = job in self._state.custody.spans
        if retry_ms and self.is_paused_in(job.queue):
            waits_ms = PAUSED_MS if job.options.kind or has_own_span else job.options.probe_ms
            job.requeue_at = self._state.now + waits_ms
            job.flags &= ~FLAG_ASKING
        elif retry_ms and job.flags & FLAG_QUEUED_BEFORE and not self._has_asked(job):
            return
        elif self.leases.keeps_orphans and self._is_orphan(job):
            job.flags &= ~FLAG_ASKING
            self._state.custody.asking.pop(job, None)
            self.leases.adopt(job)
        elif not self.enqueue(job, front=has_own_span):
            job.requeue_at = 0

    def _has_asked(self, job: Job) -> bool:
        """Ask the other holders whether a job may be queued; say whether there is nobody left to wait for.

        A node that was held up may have an acknowledgement in its buffers: it reads them first.
        """
        state = self._state
        is_late = False
        asked: Iterable[bytes]
        if job.flags & FLAG_ASKING:
            asked = sorted(state.custody.asking.get(job, _NOBODY))
        else:
            asked = state.shared.others(job.holders) if job.holders else ()
            is_late = state.now - job.requeue_at >= LATE_MS
            if not asked and not is_late:
                return True
            job.flags |= FLAG_ASKING
            job.requeue_at = state.now
        for node_id in asked:
            state.send(node_id, (messages.WILLQUEUE, job.id, WORK_SCOPE))
        may_wait = state.now - job.requeue_at < state.peers.timeout_ms
        missing = state.peers.hopeful(asked) if may_wait else _NOBODY
        state.custody.asking[job] = state.shared.holders(missing)
        return not missing and not is_late

    def _asks_again_at(self, job: Job) -> int:
        """When holders that have not answered are asked once more; at once where nobody is to answer."""
        state = self._state
        if not state.custody.asking.get(job):
            return state.now + 1
        return state.now + max(1, min(ASKED_AGAIN_MS, state.peers.timeout_ms // 4))

    def go_ahead(self, job: Job, node_id: bytes, others: frozenset[bytes]) -> None:
        """Hear that a node does not have a job that this one is about to queue; ask others that it has named."""
        state = self._state
        missing = state.custody.asking.get(job, _NOBODY)
        if self._is_owed(job, node_id):
            # It may have said so before something happened that made this node give up its question.
            state.send(node_id, (messages.WILLQUEUE, job.id, WORK_SCOPE))
            return
        more = state.peers.hopeful(others)
        for other in sorted(more):
            state.send(other, (messages.WILLQUEUE, job.id, WORK_SCOPE))
        state.custody.asking[job] = left = state.shared.holders((missing | more) - {node_id})
        if not state.peers.hopeful(left):
            self._timer_ended(job)
            self.reschedule(job)

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

    def is_paused_in(self, queue_name: bytes) -> bool:
        """Tell whether a queue takes no new jobs."""
        queue = self._state.queues.by_name.get(queue_name)
        return queue is not None and queue.pause & PAUSE_IN != 0

    # Out of the queue.

    def drain(self, queues: list[Queue], count: int, span_ms: int = 0) -> list[Unit]:
        """Take up to `count` jobs, each queue until it has no more before the next one; fewer of large ones.

        With a span, consumers have them for so long, whatever their retry period is.
        """
        taken: list[Unit] = []
        size = 0
        for queue in queues:
            while len(taken) < count and size < FETCHED_BYTES:
                unit = self.take(queue, span_ms)
                if unit is None:
                    break
                taken.append(unit)
                size += len(unit.queue) + len(unit.body)
        return taken

    def fetch(self, queues: list[Queue], count: int) -> list[Unit]:
        """Take up to `count` jobs, one from each queue in turn, and round again; fewer of large ones."""
        taken: list[Unit] = []
        size = 0
        while queues:
            giving: list[Queue] = []
            for queue in queues:
                unit = self.take(queue)
                if unit is not None:
                    taken.append(unit)
                    if len(taken) == count:
                        return taken
                    size += len(unit.queue) + len(unit.body)
                    if size >= FETCHED_BYTES:
                        return taken
                    giving.append(queue)
            # One that is empty now has nothing to give in the next round either.
            queues = giving
        return taken

    def take(self, queue: Queue, span_ms: int = 0) -> Unit | None:
        """Take the oldest job of a queue, if it has one to give, for its retry period or for that span."""
        state = self._state
        units = queue.units
        if queue.pause & PAUSE_OUT:
            return None
        while len(units):
            unit = units.pop_first()
            unit.state = TO_ACTIVE[unit.state]
            job = unit.job
            if job.expires_at <= state.now:
                state.forget(job, GONE_EXPIRED)
                if self.has_dropped_enough(queue):
                    return None
                continue
            retry_ms = unit.options.retry_ms
            unit.flags |= FLAG_DELIVERED | FLAG_LEASED
            if retry_ms:
                queue.leased[unit] = state.now
                requeued_by = unit.requeue_at
                unit.requeue_at = requeue_at = state.now + retry_ms
                waited_ms = requeue_at - requeued_by
                if unit.additional_deliveries or unit.nacks:
                    state.counters.redelivered += 1
                if span_ms or retry_ms == RETRY_NEVER_MS:
                    self.leases.announce(job, span_ms)
                    self.reschedule(job)
                elif unit.awake_at > requeue_at or job.holders is not None:
                    self.reschedule(job)
            else:
                waited_ms = max(0, state.wall - job.ctime // 1_000_000 - job.options.delay_ms)
                self._delivered_once(job)
            if state.trace.full is not None:
                if retry_ms and not unit.nacks and not unit.additional_deliveries:
                    state.trace.full.deliver(job, waited_ms)
                else:
                    word = b"" if retry_ms else ONCE
                    state.note(DELIVER, unit, span_ms=waited_ms, who=state.trace.actor, word=word)
            counters = state.counters
            counters.waiting_buckets[_BITS[waited_ms] if 0 <= waited_ms < _BITS_KNOWN else waited_ms.bit_length()] += 1
            counters.waiting_ms += waited_ms
            queue.jobs_out += 1
            queue.accessed_at = state.now
            return unit
        return None

    def has_dropped_enough(self, queue: Queue) -> bool:
        """Count a job that was dropped because its time is over; say whether the others have to wait."""
        state = self._state
        if self._over_at != state.now:
            self._over_at, self._over = state.now, 0
        self._over += 1
        if self._over < OVER_AT_ONCE:
            return False
        if len(queue.units):
            if not state.waiting.behind:
                state.work(self._catch_up())
            state.waiting.behind[queue] = None
        return True

    def _catch_up(self) -> Parts:
        """Drop the jobs whose time is over in front of the queues that are behind, and serve those who wait."""
        state = self._state
        # A flush puts another dict in the place of this one.
        while state.waiting.behind:
            queue = next(iter(state.waiting.behind))
            if self._drop_over(queue):
                self._serve_behind(queue)
            yield

    def _drop_over(self, queue: Queue) -> bool:
        """Drop jobs whose time is over from the front of a queue; say whether none is left there."""
        for _ in range(OVER_PER_PART):
            if not self._begins_with_over(queue):
                return True
            unit = queue.units.pop_first()
            unit.state = TO_ACTIVE[unit.state]
            self._state.forget(unit.job, GONE_EXPIRED)
        return False

    def _begins_with_over(self, queue: Queue) -> bool:
        return len(queue.units) > 0 and queue.units.first.job.expires_at <= self._state.now

    def _serve_behind(self, queue: Queue) -> None:
        """Serve those who wait for a queue whose first job is good; who would not wait hears if there is no more."""
        state = self._state
        state.ready[queue] = None
        self.serve()
        if self._begins_with_over(queue):
            return
        del state.waiting.behind[queue]
        for waiter in list(queue.waiters):
            if waiter.nohang and not self.is_behind(waiter.queues):
                self.timed_out(waiter)

    def is_behind(self, queues: list[Queue]) -> bool:
        """Tell whether one of these queues may have a job that nobody could look at yet."""
        return not self._state.waiting.behind.keys().isdisjoint(queues)

    def _delivered_once(self, job: Job) -> None:
        """Make sure that an at-most-once job is never handed out again, whatever happens from here on."""
        state = self._state
        state.custody.evictable[job] = None
        if state.journaling:
            state.outbox.journal.append((UNIT_DONE, job.id, WORK_SCOPE))

    def give_back(self, units: list[Unit]) -> None:
        """Queue again what was taken for a consumer that turned out to be gone before it heard of it."""
        state = self._state
        for unit in units:
            # An event that another node gave is here as a unit alone, without its job.
            if unit.options.kind:
                self.give_back_event(unit)
                continue
            job = unit.job
            if state.jobs.get(job.id) is not job or job.state != ACTIVE:
                continue
            if not job.options.retry_ms:
                job.flags &= ~FLAG_DELIVERED
                state.custody.evictable.pop(job, None)
                if state.journaling:
                    state.outbox.journal.append((JOB_ADDED, job))
            state.note(REQUEUE, job, word=UNSEEN)
            queue = state.queue(job.queue)
            self.enqueue_new(job, queue)
            queue.jobs_in -= 1
            queue.jobs_out -= 1
            state.counters.returned += 1

    def is_leased(self, job: Job) -> bool:
        """Tell whether a consumer has a job from this node, and for how long is not over yet."""
        return job.state == ACTIVE and job.flags & FLAG_LEASED != 0 and job.requeue_at > self._state.now

    # Consumers that wait.

    def wait(
        self, client: Client, queues: list[Queue], timeout_ms: int, form: Form = PLAIN, *, nohang: bool = False
    ) -> None:
        """Block a consumer until one of the queues has a job, or for `timeout_ms`; 0 = for ever.

        With `nohang` only until none of them is behind.
        """
        waiter = Waiter(client, list(dict.fromkeys(queues)), form, nohang=nohang)
        self.block(waiter, timeout_ms)

    def block(self, waiter: Waiter, timeout_ms: int) -> None:
        """Let a consumer wait, for `timeout_ms` at most; 0 = for ever."""
        state = self._state
        state.waiting.blocked[waiter.client] = waiter
        waiter.enter()
        worker = waiter.form.worker
        if worker is not None:
            worker.waiters[waiter.client] = None
        if timeout_ms:
            state.schedule.add(waiter, state.now + timeout_ms)

    def stop_waiting(self, client: Client) -> bool:
        """Unblock a consumer without an answer; say whether it was blocked."""
        waiter = self._state.waiting.blocked.pop(client, None)
        if waiter is None:
            return False
        waiter.leave()
        self._state.schedule.cancel(waiter)
        self._let_worker_go(waiter)
        return True

    def timed_out(self, waiter: Waiter) -> None:
        """Answer a consumer whose time is up: no jobs."""
        if self.stop_waiting(waiter.client):
            value = waiter.form.nothing if waiter.nohang else None
            self._state.outbox.replies.append((waiter.client, value, []))

    def watch(self, client: Client, queues: list[Queue], timeout_ms: int) -> None:
        """Block a client until it can hear the name of a queue that has a job, or for `timeout_ms`."""
        self.block(Watcher(client, queues, PLAIN), timeout_ms)

    def has_some(self, queue: Queue) -> bool:
        """Tell whether a queue has a job to give; jobs in front whose time is over are dropped."""
        while not queue.pause & PAUSE_OUT and len(queue.units):
            if not self._begins_with_over(queue):
                return True
            unit = queue.units.pop_first()
            unit.state = TO_ACTIVE[unit.state]
            self._state.forget(unit.job, GONE_EXPIRED)
            if self.has_dropped_enough(queue):
                break
        return False

    def _tell_watchers(self, queue: Queue) -> None:
        """Let all who want to hear of it know that a queue has a job, if it has one: nothing is kept for them."""
        if self.has_some(queue):
            for watcher in list(queue.watchers):
                if self._served >= SERVED_AT_ONCE:
                    self._state.ready[queue] = None
                    return
                self._served += 1
                self.stop_waiting(watcher.client)
                self._state.outbox.replies.append((watcher.client, queue.name, []))

    def refuse_waiters(self, error: CommandError) -> None:
        """Answer every blocked consumer with an error; very many hear so bit by bit."""
        self._begin(self._refuse(list(self._state.waiting.blocked.values()), error))

    def flushing(self) -> None:
        """Everything is about to be forgotten, queues and the schedule too: answer every blocked consumer no jobs."""
        waiters = list(self._state.waiting.blocked.values())
        self._state.waiting.blocked = {}
        self._begin(self._answer_nothing(waiters))
        self.copies.forget()

    def _begin(self, parts: Parts) -> None:
        if next(parts, self) is not self:
            self._state.work(parts)

    def _refuse(self, waiters: list[Waiter], error: CommandError) -> Parts:
        for count, waiter in enumerate(waiters, 1):
            if self._state.waiting.blocked.get(waiter.client) is waiter and self.stop_waiting(waiter.client):
                self._state.outbox.replies.append((waiter.client, error, []))
            if count % SERVED_AT_ONCE == 0:
                yield

    def _answer_nothing(self, waiters: list[Waiter]) -> Parts:
        for count, waiter in enumerate(waiters, 1):
            self._let_worker_go(waiter)
            self._state.outbox.replies.append((waiter.client, None, []))
            if count % SERVED_AT_ONCE == 0:
                yield

    def _let_worker_go(self, waiter: Waiter) -> None:
        """Note that nobody waits any more, for a worker if it was for one."""
        worker = waiter.form.worker
        if worker is not None:
            worker.waiters.pop(waiter.client, None)
        self.on_waited(waiter.client)

    def _serve_rest(self, rest: dict[Queue, None]) -> Parts:
        """Go on with queues that have very many consumers."""
        state = self._state
        while rest:
            yield
            queues = list(rest)
            rest.clear()
            for queue in queues:
                # A flush forgets them.
                if state.queues.by_name.get(queue.name) is queue:
                    state.ready[queue] = None
            self.serve()
        self._rest = None

    def _put_off(self, ready: dict[Queue, None]) -> None:
        """Serve these in the next part."""
        if self._rest is None:
            self._rest = {}
            self._state.work(self._serve_rest(self._rest))
        self._rest.update(ready)
        ready.clear()

    def serve(self) -> None:
        """Hand jobs to those who wait for the queues that became ready in this step; to very many bit by bit."""
        state = self._state
        ready, actor = state.ready, state.trace.actor
        self._served = 0
        while ready:
            if self._served >= SERVED_AT_ONCE:
                self._put_off(ready)
                break
            queue = next(iter(ready))
            del ready[queue]
            if queue.log is not None:
                self.serve_log(queue)
            while queue.waiters:
                if self._served >= SERVED_AT_ONCE:
                    ready[queue] = None
                    break
                self._served += 1
                waiter = next(iter(queue.waiters))
                state.act_for(waiter.client)
                unit = self.take(queue)
                if unit is None:
                    break
                self.stop_waiting(waiter.client)
                form = waiter.form
                units = [unit] if form.count == 1 else [unit, *self.drain([queue], form.count - 1)]
                state.outbox.replies.append((waiter.client, [form.row(unit) for unit in units], units))
            state.act_for(actor)
            if queue.watchers:
                self._tell_watchers(queue)

    # What operators and consumers ask for.

    def working(self, job_id: bytes) -> int:
        """Put off the next delivery of a job that is still worked on; return its retry period in seconds.

        Raises UnknownJob (NOJOB), WrongType (WRONGTYPE) for an event, TooLate (TOOLATE).
        """
        state = self._state
        job = state.jobs.get(job_id)
        if job is None:
            raise UnknownJob
        if job.options.kind:
            raise WrongType
        options = job.options
        if (job.expires_at - state.now) * 2 < options.ttl_ms:
            raise TooLate
        if job.state in (ACTIVE, QUEUED):
            state.note(WORKING, job, who=state.trace.actor)
            self.dequeue(job)
            if options.retry_ms:
                state.counters.working += 1
                span_ms = state.custody.spans.get(job, 0)
                requeue_at = state.now + (span_ms or options.retry_ms)
                # What a consumer of this node has keeps its place among what was handed out.
                stays = job.flags & FLAG_WITH_CONSUMER == FLAG_LEASED and options.retry_ms != RETRY_NEVER_MS
                is_bound = job in state.custody.bound or (stays and not span_ms)
                if is_bound:
                    self._restart(job, requeue_at)
                else:
                    since = state.queue(job.queue).leased.get(job, state.now)
                    self.put_off(job, requeue_at)
                    self.leases.begin(job, since, span_ms)
                self.reschedule(job)
                if is_bound or options.retry_ms != RETRY_NEVER_MS:
                    self.leases.tell(job)
        return options.retry_ms // 1_000

    def lease(self, job: Job, since: int) -> None:
        """Note that a consumer of this node has a job, and since when."""
        self.leases.begin(job, since)

    def set_pause(self, queue_name: bytes, pause: int) -> None:
        """Set the PAUSE_... bits of a queue on this node."""
        state = self._state
        queue = state.queues.by_name.get(queue_name)
        if queue is None:
            if not pause:
                return
            queue = state.queue(queue_name)
        if pause != queue.pause and state.journaling:
            state.outbox.journal.append((QUEUE_PAUSED, queue.name, pause))
        queue.pause = pause
        if not pause & PAUSE_OUT and ((queue.is_awaited and len(queue.units)) or queue.log is not None):
            state.ready[queue] = None

    def set_leaving(self, *, leaving: bool) -> None:
        """Start or stop leaving the cluster; consumers that wait are sent elsewhere."""
        self._state.leaving = leaving
        if leaving:
            self.refuse_waiters(NodeLeaving())
