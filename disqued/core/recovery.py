"""Coming back: what a journal says, put into the state of a node that starts.

Records are applied in the order in which they were written; a later one wins.

    added ---> known, unless it expired meanwhile      paused ---> the queue is paused, or not any more
    added, as acked ---> done, to be collected
    done, gone ---> forgotten                          flushed ---> everything forgotten, but for policies
    policy ---> the cluster says so of a queue, unless what is known is greater
    leased ---> a consumer has it, since then, or nobody has it any more; a worker has a while to say that it lives
              (`workers.recover`); one with a retry period, and a slot, until that is over

A crash leaves no word about queues and deliveries, but for the watermark (`watermark`), so that jobs come back ACTIVE:

    never queued so far, its delay not over   queued when the delay is over, not later; a copy a retry period after that
    its time came while the node was down     queued at once, RETRY 0 included; where others may have queued it
                                              meanwhile, after they have been asked
    retry > 0                                 queued after one retry period: a consumer may have it still
    retry > 0, and no timer ends it           queued at once, since its deliveries are written down; where others may
                                              hold it, after they have been asked; one that is leased stays leased
    retry > 0, with terms or a fate           likewise, but that counts no try of a job that waited in its queue: the
                                              record of such a job says so, and each delivery is written down behind it
    retry 0                                   never queued again: it may have been delivered
    of a limited queue, and leased            stays leased until its time is over, if that is to come: it counts

A controlled restart leaves that word: its snapshot is taken when nothing can change any more.  Then queues, their
order, at-most-once jobs, delays and counters are restored as they were.

What is stored are wall-clock deadlines.  What remains of one is never less than zero nor more than the whole span
that the job was given, so that a clock that is wrong moves a deadline, but keeps no job for ever.

What no node could have written is refused by who reads it, and stops the start (`job.misfit`).  Stamps are counted on
from the highest one that was read, but never from so far ahead that the next ones could not be read again.

Times are integer milliseconds.  Source: the Disque README, "Disque and disk persistence"; Disque, src/aof.c.
"""

from collections.abc import Callable, Iterator
from typing import Final

from disqued.core.cluster.witnesses import ONCE_MS
from disqued.core.model.custody import SlotHolder
from disqued.core.model.fate import NO_FATE, Fate
from disqued.core.model.groups import Entry, Stream, read_scope, units_of
from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    DEAD,
    FLAG_CAME_BACK,
    FLAG_DELIVERED,
    FLAG_DROPPED,
    FLAG_LEASED,
    FLAG_PUT_OFF,
    FLAG_QUEUED_BEFORE,
    FLAG_TAKEN_OUT,
    INTO_ACKED,
    INTO_ACTIVE,
    INTO_DEAD,
    ORPHAN_MS,
    QUEUED,
    RETRY_NEVER_MS,
    STAMP_LAST,
    WORK_SCOPE,
    Job,
    JobOptions,
    NamedJob,
    StoredJob,
    Unit,
    attempt_of,
    forbidden,
)
from disqued.core.model.memory import JOB_COST, NAME_FREE
from disqued.core.model.outbox import (
    FLUSHED,
    GROUP,
    JOB_ADDED,
    JOB_GONE,
    POLICY,
    QUEUE_PAUSED,
    UNIT_DONE,
    UNIT_LEASED,
    WATERMARK,
    Record,
    is_over,
)
from disqued.core.model.phases import is_delayed, list_delayed
from disqued.core.model.policies import PAUSE_FIELD, Register
from disqued.core.model.registry import TABLES
from disqued.core.model.state import State, list_failed
from disqued.core.model.terms import Terms
from disqued.core.streams.entries import Streams
from disqued.core.streams.pending import PendingEntries, group_lease, read_holder
from disqued.core.streams.starts import GroupStarts
from disqued.core.work.copies import delay_left
from disqued.core.work.leases import lease_record
from disqued.core.work.queueing import Queueing

DRAWN_BYTES = 1 << 18  #: bodies after which a draw ends
AHEAD_MAX_MS = 60_000  #: a watermark further in the future was made by a clock that was wrong
PROBED_AFTER_MS = 5_000  #: after a start, when links are open: other holders are asked who has what waits here
COLLECTED_AFTER_MS = 1_000  #: when the holders of jobs that are done are asked, after a start
#: A life that events are thought to have of which only other nodes know: what is said of where groups begin is kept as
#: long, at least.
UNHEARD_MS = 86_400_000
AT_END: Final = object()  #: what `Recovery.apply_some` returns at the end
PASSED_AT_ONCE = 2_000  #: jobs that a walk passes over before it comes back


def snapshot(state: State) -> Iterator[Record]:
    """All that a controlled restart brings back, in the order in which it is best read back.

    Queued jobs come first, queue by queue and oldest first.  A job that still waits for copies is nobody's yet.
    One that is done is kept while other nodes may hold it.
    """
    queues = state.queues.from_serial(0, len(state.queues))
    yield from _watermark(state)
    yield from _policies(state)
    for queue in queues:
        if queue.pause_here:
            yield (QUEUE_PAUSED, queue.name, queue.pause_here)
        if queue.stream is not None:
            yield from _beginnings(state, queue.stream)
    for queue in queues:
        for unit in queue.units:
            yield (JOB_ADDED, unit.job)
        for event in queue.stream or ():
            yield (JOB_ADDED, event)
            yield from _facts(state, event)
    for job in state.jobs:
        if job.state in (ACTIVE, DEAD) or (job.state == ACKED and job.holders):
            yield (JOB_ADDED, job)
            leased = lease_record(state, job)
            if leased is not None:
                yield leased


def _watermark(state: State) -> Iterator[Record]:
    """Up to when delayed jobs have been queued, where the journal says so."""
    if state.durability.watermark.until:
        yield (WATERMARK, state.durability.watermark.until)


def _policies(state: State) -> Iterator[Record]:
    """What the cluster says of queues, as long as it is known."""
    registers = state.queues.policies.registers
    for place in list(registers):
        register = registers.get(place)
        if register is not None:
            yield (POLICY, *place, register)


def _beginnings(state: State, log: Stream) -> Iterator[Record]:
    """Where the groups of a log began, up to where it was flushed, and since when that is so."""
    offset = state.wall - state.now
    if log.horizon:
        yield (GROUP, log.queue, WORK_SCOPE, tuple(sorted(log.horizon.items())), log.since + offset)
    for group in list(log.begun):
        if group in log.begun:
            yield (GROUP, log.queue, group.scope, tuple(sorted(group.floor.items())), group.since + offset)


def _facts(state: State, event: Entry) -> Iterator[Record]:
    """What is known of an event beside that it is there: who is done with it, and who has it or had it."""
    for scope in event.done:
        yield (UNIT_DONE, event.id, scope)
    for unit in list(units_of(event)):
        if unit.group.units.get(event) is unit:
            yield group_lease(unit, state.wall + unit.requeue_at - state.now if unit.requeue_at else 0)


def walk(state: State) -> Iterator[Record | None]:
    """All that a crash leaves, drawn bit by bit while the node goes on.

    Each record is true when it is drawn.  So a journal that has them among the records of what happens meanwhile, in
    that order, says what is true at the end of the walk; and so does one that has all of them first and then what
    happened since the walk began, for a record that is met twice changes nothing, and the last word is the later one.

    An at-most-once job that was delivered is done, to a journal that goes on.  Very many of these in a row are a None
    each now and then, so that whoever draws can let others have their turn.
    """
    passed = 0
    yield from _watermark(state)
    yield from _policies(state)
    for queue in state.queues.from_serial(0, len(state.queues)):
        if queue.pause_here:
            yield (QUEUE_PAUSED, queue.name, queue.pause_here)
        if queue.stream is not None:
            yield from _beginnings(state, queue.stream)
    for number in range(TABLES):
        # A flush puts another registry in the place of this one.
        for job in state.jobs.table(number):
            if _outlasts_a_crash(state, job) and state.jobs.get(job.id) is job:
                yield (JOB_ADDED, job)
                # Looked at when it is drawn, as every record is.
                leased = _lease_to_keep(state, job)
                if leased is not None:
                    yield leased
                if isinstance(job, Entry):
                    yield from _facts(state, job)
            else:
                passed += 1
                if passed % PASSED_AT_ONCE == 0:
                    yield None


def progressed(state: State) -> Iterator[Record]:
    """The jobs that have a progress, as a crash is to leave them; the journal may have an earlier progress."""
    for job in state.jobs:
        if job.options.fate.progress is not None and job.state != ACKED and _outlasts_a_crash(state, job):
            yield (JOB_ADDED, job)


def _lease_to_keep(state: State, job: Job) -> Record | None:
    """What a journal is to know of who has a job, as far as that outlasts a crash; None: nothing."""
    if job in state.custody.spans or state.jobs.get(job.id) is not job:
        return None
    return lease_record(state, job)


def _outlasts_a_crash(state: State, job: Job) -> bool:
    """Tell whether a journal is to bring a job back after a crash."""
    if job.state == DEAD:
        return True
    if job.state in (ACTIVE, QUEUED):
        return bool(job.options.retry_ms or not job.flags & FLAG_DELIVERED or job in state.custody.limited)
    return job.state == ACKED and bool(job.holders)


def draw(records: Iterator[Record | None], limit: int) -> list[Record] | None:
    """Draw some records of a walk, `limit` at most, and no more once their bodies are `DRAWN_BYTES`.

    None of them are many that were passed over; None is the end.
    """
    drawn: list[Record] = []
    size = 0
    for record in records:
        if record is None:
            return drawn
        drawn.append(record)
        added = record[-1]
        if isinstance(added, Job):
            size += len(added.body)
        if len(drawn) == limit or size >= DRAWN_BYTES:
            return drawn
    return drawn or None


class Recovery:
    """Applies records to the state of a node whose `journaling` is off and that serves nobody yet."""

    __slots__ = (
        "_appliers",
        "_delayed",
        "_held",
        "_is_sure",
        "_leases",
        "_names",
        "_options",
        "_pending",
        "_queueing",
        "_restores_queues",
        "_spans",
        "_starts",
        "_state",
        "_streams",
        "_until",
        "_wishes",
        "expired",
    )  # fmt: skip

    def __init__(self, state: State, *, restores_queues: bool) -> None:
        """Take the state to fill, and whether what the records say about queues holds."""
        self._state = state
        self._restores_queues = restores_queues
        self._queueing = Queueing(state)
        self._starts = GroupStarts(state)
        self._pending = PendingEntries(state, self._starts)
        self._streams = Streams(state, self._queueing, self._starts, self._pending)
        #: What was left of the deadlines of jobs that no timer queues: those that are leased until then.
        self._spans: dict[bytes, int] = {}
        #: Names of queues, one object each.
        self._names: dict[bytes, bytes] = {}
        #: What the last job wished: (ttl, retry, delay, replicate, kind, terms, fate), and the options that came of it.
        self._wishes: tuple[int, int, int, int, int, Terms, Fate] | None = None
        self._options: JobOptions
        #: Ids of jobs left out because their time was over, or their queue was flushed; the journal has yet to hear.
        self.expired: list[bytes] = []
        #: Delayed jobs that no record says were queued, and their stored times: `finish` decides about them.
        self._delayed: list[tuple[Job, int]] = []
        self._is_sure = True  #: nothing that was written after the watermark can be lost
        self._until = 0  #: the watermark; 0 = the journal has none, it is of an older version
        #: By the kind of a record, what applies it; takes the fields of the record.
        self._appliers: dict[int, Callable[..., None]] = {
            JOB_ADDED: self._add,
            UNIT_DONE: self._finish,
            JOB_GONE: self._forget,
            FLUSHED: self._flush,
            QUEUE_PAUSED: self._pause,
            UNIT_LEASED: self._lease,
            GROUP: self._begin_group,
            WATERMARK: self._move_watermark,
            POLICY: self._follow_policy,
        }
        #: Leases that have slots, by job: the delivery, and when its time began.  `finish` decides about them.
        self._leases: dict[bytes, tuple[int, int]] = {}
        #: What workers had: {(job id, scope): worker id}.
        self._held: dict[tuple[bytes, bytes], bytes] = {}

    @property
    def held(self) -> dict[Unit, bytes]:
        """What workers had, as far as it is still there: {unit: worker id}."""
        units = {self._unit(*name): worker_id for name, worker_id in self._held.items()}
        return {unit: worker_id for unit, worker_id in units.items() if unit is not None}

    def _unit(self, job_id: bytes, scope: bytes) -> Unit | None:
        """The job of an id, or what the group of a scope has of it."""
        job = self._state.jobs.get(job_id)
        if scope == WORK_SCOPE or not isinstance(job, Entry) or job.stream is None:
            return job
        known = read_scope(scope)
        group = None if known is None else job.stream.groups.get(known[0])
        return None if group is None or group.scope != scope else group.units.get(job)

    def apply_some(self, records: Iterator[object], limit: int) -> object:
        """Apply the next records, `limit` at most; returns the first that is none, and None where all were."""
        add, left = self._add, limit
        for record in records:
            # Nearly all are of this kind.
            if record.__class__ is tuple and record[0] == JOB_ADDED:
                add(record[1])
            elif isinstance(record, tuple):
                self.apply(record)
            else:
                return record
            left -= 1
            if not left:
                return None
        return AT_END

    def apply(self, record: Record) -> None:
        """Apply the next record, in the form of `jobdump.decode_record`."""
        self._appliers[record[0]](*record[1:])

    def _flush(self, when: int = 0) -> None:
        self._state.flush()
        self._held.clear()
        self._leases.clear()

    def _pause(self, queue: bytes, pause: int, when: int = 0) -> None:
        self._queueing.set_pause(queue, pause)

    def _move_watermark(self, until: int, is_sure: bool = True) -> None:
        self._until = self._state.durability.watermark.until = until
        self._is_sure = is_sure

    def _follow_policy(self, queue: bytes, field: int, register: Register, when: int = 0) -> None:
        """Enter a register, or forget it."""
        policies = self._state.queues.policies
        if register.counter:
            policies.merge(queue, field, register)
        else:
            policies.forget(queue, field)
        if field == PAUSE_FIELD:
            self._queueing.follow_policy(queue)

    def finish(self) -> None:
        """Decide about delayed jobs and leases, now that all records are known, and journal what a clock has moved.

        The last thing that is done before the node serves; its `journaling` is on again where there is a journal.  If
        there is no watermark after it, the journal begins one behind what was journaled here.
        """
        state, until = self._state, self._until
        # One that an older version did not write, or a clock that was ahead: what it is about is written again first.
        is_ahead = until > state.wall + AHEAD_MAX_MS
        delayed, self._delayed = self._delayed, []
        for job, due in delayed:
            if state.jobs.get(job.id) is not job or job.state != ACTIVE:
                continue
            is_sure = self._is_sure or job.options.retry_ms > 0
            if due <= (until or state.wall) or (due <= state.wall and not is_sure):
                self._take_for_queued(job, due)
            else:
                self._go_on_waiting(job, due)
            if state.journaling and (not until or is_ahead or due - state.wall > job.options.delay_ms):
                state.outbox.journal.append((JOB_ADDED, job))
        self._resume_leases()
        for unit in [unit for unit in state.queues.delayed if not is_delayed(unit.job)]:
            state.queues.end_delay(unit)
        if is_ahead:
            state.durability.watermark.until = 0

    def _take_for_queued(self, job: Job, due: int) -> None:
        """Treat a delayed job as one that may have been delivered; the clock may say that its time is to come."""
        state, options = self._state, job.options
        self._expect_untried(job)
        job.flags |= FLAG_QUEUED_BEFORE
        if options.retry_ms:
            left_ms = min(due - state.wall, options.delay_ms)
            job.requeue_at = state.now + max(left_ms, options.retry_ms)
        else:
            job.requeue_at = 0
            state.custody.evictable[job] = None
        self._queueing.reschedule(job)

    def _expect_untried(self, job: Job) -> None:
        """Count no try of a job with terms that no record says was queued, and that this node was to queue first."""
        is_own = job.holders is None or job.id[2:10] == self._state.node_id[:8]
        if is_own and job.options.is_rare and not job.flags & FLAG_QUEUED_BEFORE:
            job.flags |= FLAG_TAKEN_OUT

    def _go_on_waiting(self, job: Job, due: int) -> None:
        """Let a delayed job be queued when its time comes, which may be now: it never was before."""
        state, options = self._state, job.options
        left_ms = due - state.wall
        job.flags &= ~FLAG_QUEUED_BEFORE
        state.custody.evictable.pop(job, None)
        if -left_ms >= options.retry_ms > 0 and job.holders and state.shared.others(job.holders):
            # Others have queued it by now, if they could.
            self._expect_untried(job)
            job.flags |= FLAG_QUEUED_BEFORE
            job.requeue_at = state.now + PROBED_AFTER_MS
        else:
            job.requeue_at = state.now + max(0, min(left_ms, options.delay_ms))
            list_delayed(state.queues, job)
        self._queueing.reschedule(job)

    def _lease(self, job_id: bytes, scope: bytes, deliveries: int, worker: bytes, when: int) -> None:
        """Give a unit back to the consumer that had it, or take it from everybody: 0 deliveries."""
        if scope != WORK_SCOPE:
            self._lease_in_group(job_id, scope, deliveries, worker, when)
            return
        job = self._state.jobs.get(job_id)
        if job is None or job.state in (ACKED, DEAD):
            return
        self._note_worker(job_id, scope, worker if deliveries else b"")
        if job.options.retry_ms == RETRY_NEVER_MS:
            self._lease_manual(job, deliveries, when)
            return
        if deliveries and not worker and when:
            self._leases[job_id] = (deliveries, when)
            if job.options.is_rare and deliveries + job.options.fate.spent >= attempt_of(job):
                self._note_delivered(job)
            return
        self._leases.pop(job_id, None)
        if worker and deliveries:
            # An attempt counts the tries of earlier generations, too.
            job.additional_deliveries = max(0, deliveries - 1 - job.nacks - job.options.fate.spent)
            self._note_delivered(job)
        elif deliveries >= attempt_of(job):
            self._note_delivered(job)

    @staticmethod
    def _note_delivered(job: Job) -> None:
        """Note that a consumer has had a job since a try was last counted."""
        job.flags = job.flags & ~FLAG_TAKEN_OUT | FLAG_QUEUED_BEFORE | FLAG_DELIVERED

    def _note_worker(self, job_id: bytes, scope: bytes, worker_id: bytes) -> None:
        """Note which worker has a unit now; empty = none."""
        if worker_id:
            self._held[job_id, scope] = worker_id
        else:
            self._held.pop((job_id, scope), None)

    def _lease_manual(self, job: Job, deliveries: int, when: int) -> None:
        """The same, of a job that no timer takes from its consumer."""
        state = self._state
        if not deliveries:
            if job.flags & FLAG_LEASED:
                state.end_lease(job)
                self._offer(job)
            return
        if job.state == QUEUED:
            state.queue(job.queue).units.remove(job)
            assert INTO_ACTIVE[job.state], forbidden(job.state, ACTIVE)
            job.state = ACTIVE
        job.additional_deliveries = max(job.additional_deliveries, deliveries - 1 - job.nacks)
        # A clock that went back says nothing of how long it was.
        self._keep_lease(job, state.now - max(0, state.wall - when))
        span_ms = self._spans.pop(job.id, 0)
        if span_ms:
            state.custody.spans[job] = span_ms
            job.requeue_at = state.now + span_ms
            self._queueing.reschedule(job)

    def _resume_leases(self) -> None:
        """Leave jobs that have slots with their consumers, for the rest of their time.

        One with RETRY 0 is not handed out again, whether its slot has ended or not.
        """
        state = self._state
        leases, self._leases = self._leases, {}
        for job_id, (deliveries, when) in leases.items():
            job = state.jobs.get(job_id)
            if job is None or job.state != ACTIVE or job.flags & FLAG_PUT_OFF:
                continue
            retry_ms = job.options.retry_ms
            # A clock that went back says nothing of how long it was.
            since = state.now - max(0, state.wall - when)
            is_over = since + (retry_ms or ONCE_MS) <= state.now
            job.additional_deliveries = max(job.additional_deliveries, deliveries - 1 - job.nacks)
            if is_over and retry_ms:
                continue
            job.flags |= FLAG_QUEUED_BEFORE | FLAG_DELIVERED
            if retry_ms:
                job.flags |= FLAG_LEASED
                job.requeue_at = since + retry_ms
                state.queue(job.queue).note_lease(job, since, None)
                self._queueing.reschedule(job)
                continue
            job.requeue_at = 0
            state.custody.evictable[job] = None
            if not is_over:
                job.flags |= FLAG_LEASED
                state.queues.counts[job.queue].once += 1
                state.custody.limited[job] = SlotHolder(since, b"")
            elif state.journaling:
                state.outbox.journal.append((UNIT_DONE, job_id, WORK_SCOPE))

    def _keep_lease(self, job: Job, since: int) -> None:
        """Leave a job with the consumer that has it since then."""
        job.flags |= FLAG_QUEUED_BEFORE | FLAG_DELIVERED
        job.requeue_at = self._state.now + RETRY_NEVER_MS
        self._queueing.leases.begin(job, since)

    def _offer(self, job: Job) -> None:
        """Let consumers have a job that no timer queues: now, or when other holders have not said that it is theirs."""
        state = self._state
        if job.holders is None or job.holders <= {state.node_id}:
            job.requeue_at = state.now + RETRY_NEVER_MS
            self._queueing.enqueue_new(job, state.queue(job.queue))
        else:
            job.flags |= FLAG_QUEUED_BEFORE
            job.requeue_at = state.now + PROBED_AFTER_MS
        self._queueing.reschedule(job)

    def _forget(self, job_id: bytes, reason: bytes = b"", when: int = 0) -> None:
        job = self._state.jobs.get(job_id)
        if job is not None:
            self._held.pop((job_id, WORK_SCOPE), None)
            self._leases.pop(job_id, None)
            self._state.drop(job)

    def _add(self, stored: StoredJob) -> None:
        # A journal has millions of these, so that this is written for speed: a tuple taken apart at once is read twice
        # as fast as by name, most jobs want the same as the one before, and what calls would cost is spelled out.
        holders: frozenset[bytes] | None
        (
            job_id, queue, body, place, flags, replicate, holders, ctime, expires, _,
            ttl_ms, retry_ms, delay_ms, nacks, additional_deliveries, order_key, kind, alias, terms, fate,
        ) = stored  # fmt: skip
        state = self._state
        if ctime > state.numbers.last_ctime:
            state.numbers.last_ctime = ctime if ctime < STAMP_LAST else STAMP_LAST
        left_ms = expires - state.wall
        if left_ms <= 0:
            self._forget(job_id)
            self.expired.append(job_id)
            return
        if kind:
            self._add_event(stored, left_ms)
            return
        wishes = (ttl_ms, retry_ms, delay_ms, replicate, kind, terms, fate)
        options = self._options if wishes == self._wishes else self._wish(wishes)
        now = state.now
        if options.stamped_at != now:
            options.stamp(now)
        name = self._names.setdefault(queue, queue)
        if alias:
            job: Job = NamedJob(job_id, name, body, ctime, options, alias=alias)
        else:
            job = Job(job_id, name, body, ctime, options)
        job.expires_at = at = now + (left_ms if left_ms < ttl_ms else ttl_ms)
        job.holders = holders if holders is None else state.shared.holders(holders)
        job.nacks = nacks
        job.additional_deliveries = additional_deliveries
        # One object for both where they are equal, as they are for most.
        job.order_key = ctime if order_key == ctime else order_key
        before = state.jobs.put(job)
        counts = state.queues.counts
        if name in counts:
            counts[name].known += 1
        else:
            state.queues.count(name).known = 1
        state.memory.used += JOB_COST + len(body)
        if name[NAME_FREE:]:
            state.memory.used += len(name) - NAME_FREE
        if options.is_rare:
            state.memory.used += options.cost
            job.expires_at = at = now + min(left_ms, ttl_ms + terms.stay_ms)
        job.flags = flags | FLAG_CAME_BACK
        if fate.is_cancelled:
            job.flags |= FLAG_DROPPED
        is_plain = before is None and not (alias or delay_ms or place == ACKED or self._restores_queues)
        if is_plain and 0 < retry_ms < RETRY_NEVER_MS and fate is NO_FATE:
            # A consumer may have it, or be done with it.
            job.flags |= FLAG_QUEUED_BEFORE
            job.requeue_at = requeue_at = options.requeue_at
            state.schedule.add(job, requeue_at if requeue_at < at else at)
        else:
            self._place(job, stored, before)

    def _wish(self, wishes: tuple[int, int, int, int, int, Terms, Fate]) -> JobOptions:
        """The options for these wishes, which the next job has, too, as a rule."""
        self._wishes = wishes
        self._options = self._state.shared.options(*wishes[:5], terms=wishes[5], fate=wishes[6])
        return self._options

    def _place(self, job: Job, stored: StoredJob, before: Job | None) -> None:
        """Let a job go on where it was, in the place of what was known of it, if that is more than to wait."""
        state, options, retry_ms = self._state, job.options, stored.retry_ms
        since = None if before is None else self._let_go(before, job)
        if isinstance(job, NamedJob):
            state.aliases.add(job)
        if stored.state == ACKED:
            self._keep_done(job, stored)
            return
        if stored.fate is not NO_FATE:
            list_failed(state, job)
            if self._waits(job, stored):
                self._held.pop((job.id, WORK_SCOPE), None)
                self._schedule(job)
                return
        if self._restores_queues or since is not None:
            self._resume(job, stored, since)
            self._schedule(job)
            return
        if options.delay_ms and not job.flags & FLAG_QUEUED_BEFORE and retry_ms != RETRY_NEVER_MS:
            self._delayed.append((job, stored.requeue))
        if delay_ms := delay_left(stored.requeue - state.wall, job.flags, options.delay_ms, retry_ms):
            # A copy gives the others the time to queue it first.
            job.requeue_at = state.now + delay_ms + (retry_ms if job.flags & FLAG_QUEUED_BEFORE else 0)
        elif retry_ms == RETRY_NEVER_MS:
            self._offer(job)
            return
        else:
            # A consumer may have it, or be done with it; where once is all, it may have been delivered.
            job.flags |= FLAG_QUEUED_BEFORE
            job.requeue_at = state.now + retry_ms if retry_ms else 0
            if not retry_ms:
                state.custody.evictable[job] = None
        self._schedule(job)

    def _waits(self, job: Job, stored: StoredJob) -> bool:
        """Go on with a job that is dead or put off; return whether it is.

        One that is put off was not queued before the crash: that would have been written down.
        """
        state = self._state
        if stored.fate.is_dead:
            assert INTO_DEAD[job.state], forbidden(job.state, DEAD)
            job.state = DEAD
            job.requeue_at = 0
            return True
        if not job.flags & FLAG_PUT_OFF:
            return False
        job.requeue_at = min(state.now + max(stored.requeue - state.wall, 1), job.expires_at)
        return True

    def _schedule(self, job: Job) -> None:
        if job.options.is_listed:
            list_delayed(self._state.queues, job)
        at, requeue_at = job.expires_at, job.requeue_at
        self._state.schedule.add(job, requeue_at if 0 < requeue_at < at else at)

    # Logs.

    def _add_event(self, stored: StoredJob, left_ms: int) -> None:
        """Put an event into its log, or let its delay go on; of one that is there already, note who else holds it."""
        state = self._state
        holders = stored.holders if stored.holders is None else state.shared.holders(stored.holders)
        known = state.jobs.get(stored.id)
        if known is not None:
            known.holders = holders
            return
        options = state.shared.options(stored.ttl_ms, stored.retry_ms, stored.delay_ms, stored.replicate, stored.kind)
        name = self._names.setdefault(stored.queue, stored.queue)
        event = Entry(stored.id, name, stored.body, stored.ctime, options)
        event.expires_at = state.now + min(left_ms, stored.ttl_ms)
        event.holders = holders
        event.order_key = stored.order_key
        state.enter(event)
        if stored.delay_ms and stored.requeue > state.wall:
            event.requeue_at = state.now + min(stored.requeue - state.wall, stored.delay_ms)
            self._streams.expect(event)
            self._queueing.reschedule(event)
        else:
            self._streams.publish(event)
        if state.jobs.get(stored.id) is not event:
            # It was flushed, and a crash came before the journal heard of each event.
            self.expired.append(stored.id)

    def _finish(self, job_id: bytes, scope: bytes, when: int = 0) -> None:
        """Forget a job that is done, or note that a group is done with an event."""
        if scope == WORK_SCOPE:
            self._forget(job_id)
            return
        event, name = self._state.jobs.get(job_id), read_scope(scope)
        if isinstance(event, Entry) and name is not None:
            self._pending.note_done(event, scope)

    def _lease_in_group(self, job_id: bytes, scope: bytes, deliveries: int, worker: bytes, when: int) -> None:
        """Let a group have an event as it had it, or have had it."""
        event, name, holder = self._state.jobs.get(job_id), read_scope(scope), read_holder(worker)
        if not isinstance(event, Entry) or event.stream is None or name is None or holder is None:
            return
        group = event.stream.group(name[0])
        if group.scope != scope or group.is_done(event):
            event.stream.let_go(group)
            return
        self._pending.resume(group, event, deliveries, holder[0], when)
        self._note_worker(job_id, scope, holder[1])

    def _begin_group(self, queue: bytes, scope: bytes, floor: tuple[tuple[bytes, int], ...], when: int) -> None:
        """Let a group begin where it did, or a queue be flushed that was; or forget that, if it is over."""
        if is_over(scope, floor):
            self._forget_group(queue, scope)
            return
        state = self._state
        log = state.stream(queue)
        name = read_scope(scope)
        began = dict(floor)
        # New events are behind it, though the clock went back and those are gone that were made until then.
        state.numbers.last_ctime = max(state.numbers.last_ctime, min(began.get(state.node_id[:8], 0), STAMP_LAST))
        # A clock that went back says nothing of how long it was.
        since = state.now - max(0, state.wall - when)
        if name is None:
            for _ in self._starts.merge_horizon(log, began) or ():
                pass
            log.since = since
        elif self._starts.merge_group(log, log.group(name[0]), name[1], began):
            log.group(name[0]).since = since
        log.longest_ms = max(log.longest_ms, UNHEARD_MS)

    def _forget_group(self, queue_name: bytes, scope: bytes) -> None:
        """Forget where a group began, or up to where a queue was flushed."""
        queue, name = self._state.queues.by_name.get(queue_name), read_scope(scope)
        if queue is None or queue.stream is None:
            return
        if name is None:
            queue.stream.horizon = {}
        else:
            self._starts.forget_group(queue.stream, name[0])

    def _keep_done(self, job: Job, stored: StoredJob) -> None:
        """Go on with a job that is done: other nodes may hold it, or its result is kept; it is to be collected."""
        state = self._state
        assert INTO_ACKED[job.state], forbidden(job.state, ACKED)
        job.state = ACKED
        state.queues.counts[job.queue].done += 1
        left_ms = min(stored.requeue - state.wall, stored.terms.keep_result_ms)
        job.requeue_at = state.now + left_ms if left_ms > 0 else 0
        state.custody.acked[job] = 0
        self._leases.pop(job.id, None)
        if not job.requeue_at:
            state.custody.evictable[job] = None
        state.schedule.add(job, min(job.expires_at, state.now + COLLECTED_AFTER_MS))

    def _let_go(self, before: Job, job: Job) -> int | None:
        """Put a job in the place of what was known of it; returns since when a consumer has it, if one does."""
        state, since = self._state, None
        if before.flags & FLAG_LEASED:
            # Its record was written again, with what is new, while a consumer had it.
            since = self._queueing.leases.since(before)
            job.additional_deliveries = max(job.additional_deliveries, before.additional_deliveries)
        state.let_go(before)
        return since

    def _resume(self, job: Job, stored: StoredJob, since: int | None) -> None:
        """Put a job back where it was, or leave it with the consumer that has it since that time."""
        state = self._state
        if since is not None:
            self._keep_lease(job, since)
            return
        job.requeue_at = 0
        if stored.requeue:
            span_ms = stored.retry_ms if job.flags & FLAG_QUEUED_BEFORE else max(stored.delay_ms, stored.retry_ms)
            left_ms = max(stored.requeue - state.wall, 1)
            if stored.retry_ms == RETRY_NEVER_MS and stored.state != QUEUED:
                if left_ms < stored.ttl_ms:
                    self._spans[job.id] = left_ms
                span_ms = max(stored.delay_ms, ORPHAN_MS)
            job.requeue_at = state.now + min(left_ms, max(span_ms, 1))
        if stored.state == QUEUED:
            self._queueing.enqueue_new(job, state.queue(job.queue))
        elif not stored.retry_ms and job.flags & FLAG_QUEUED_BEFORE:
            state.custody.evictable[job] = None
