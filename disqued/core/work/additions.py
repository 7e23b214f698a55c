"""Adding a job: admission, its id, and where it goes.

    ADDJOB --> refused, or
               one copy, this node's: registered, queued (or scheduled, when delayed); the id is returned
               more copies:           `replication`; the producer is blocked until there are enough

Times are integer milliseconds.  Source: Disque, src/job.c.
"""

from collections.abc import Callable

from disqued.core.model.calendar import JobTemplate
from disqued.core.model.groups import new_job
from disqued.core.model.job import Job, JobOptions
from disqued.core.model.memory import JOB_COST, NAME_COST
from disqued.core.model.outbox import Client
from disqued.core.model.queues import NAME_MAX, PAUSE_IN, Queue
from disqued.core.model.state import State
from disqued.core.model.trace import ADD
from disqued.core.work.placement import Placement, naming_policy, too_long
from disqued.core.work.queueing import Queueing
from disqued.core.work.replication import Batch, PendingAddition, Replication
from disqued.errors import NameTooLong, NotReplicated, OutOfMemory

#: Makes the alias of a job from its stamp.
AliasOf = Callable[[int], bytes]


class Additions:
    """Adds the jobs of producers: the part of the core behind ADDJOB."""

    __slots__ = ("_placement", "_queueing", "_replication", "_state")

    def __init__(self, state: State, queueing: Queueing, placement: Placement, replication: Replication) -> None:
        self._state = state
        self._queueing = queueing
        self._placement = placement
        self._replication = replication

    def add(
        self, client: Client, queue_name: bytes, body: bytes, options: JobOptions, *,
        maxlen: int, timeout_ms: int, asynchronous: bool, by_default: bool = False, alias_of: AliasOf | None = None,
    ) -> bytes | None:  # fmt: skip
        """Create a job, or an event of a log that takes it, and return its id; None when `client` waits for copies.

        `maxlen` 0 = no limit, `timeout_ms` 0 = for ever.  `by_default`: the producer did not say how many copies, so
        that fewer are enough when nodes turn out to take none.  `alias_of` as in `add_together`; None = no alias.
        Raises what `_admit` raises.
        """
        state = self._state
        queue = self._admit(queue_name, options, 1, maxlen=maxlen, waits=not asynchronous)
        if options.replicate > 1 or state.memory.used > state.memory.low_mark or state.leaving:
            return self._add_several(
                client, queue_name, body, options, timeout_ms,
                asynchronous=asynchronous, by_default=by_default, alias_of=alias_of,
            )  # fmt: skip
        if queue is None and not options.delay_ms and not options.kind:
            queue = state.queue(queue_name)
        job = self._make(queue_name, queue, body, options, alias_of)
        if options.kind:
            state.note(ADD, job, who=client)
            state.enter(job)
            self._replication.begin(job)
            return job.id
        state.register(job)
        state.schedule.add(job, options.first_at)
        if queue is not None and not options.delay_ms:
            self._queueing.enqueue_new(job, queue)
        if state.trace.full is not None:
            state.trace.full.add(job)
        return job.id

    def _add_several(
        self, client: Client, queue_name: bytes, body: bytes, options: JobOptions, timeout_ms: int, *,
        asynchronous: bool, by_default: bool, alias_of: AliasOf | None = None,
    ) -> bytes | None:  # fmt: skip
        """Create a job with copies on other nodes."""
        state = self._state
        job = self._make(queue_name, state.queues.by_name.get(queue_name), body, options, alias_of)
        places = self._placement.places_for(options.replicate)
        job.holders = places.holders
        if asynchronous:
            self._replication.add_quietly(job, places)
            return job.id
        deadline_at = state.now + timeout_ms if timeout_ms else 0
        pending = PendingAddition(job, client, deadline_at, state.now, by_default=by_default)
        self._replication.await_copies(pending, places)
        return None

    def add_instant(
        self, client: Client, template: JobTemplate, options: JobOptions, *, job_id: bytes, ctime: int, timeout_ms: int
    ) -> bool:
        """Create the job of an instant of a schedule, whose id and stamp are given; False while it waits for copies.

        Another node may make the same job.  Raises what `_admit` raises.
        """
        state = self._state
        waits = not template.asynchronous
        queue = self._admit(template.queue, options, 1, maxlen=template.maxlen, waits=waits)
        if options.stamped_at != state.now:
            options.stamp(state.now)
        job = Job(job_id, template.queue if queue is None else queue.name, template.body, ctime, options)
        if options.replicate == 1:
            state.note(ADD, job, who=client)
            state.enter(job)
            self._replication.begin(job)
            return True
        places = self._placement.places_for(options.replicate)
        job.holders = places.holders
        if not waits:
            self._replication.add_quietly(job, places)
            return True
        by_default = not template.replicate
        pending = PendingAddition(job, client, state.now + timeout_ms, state.now, by_default=by_default)
        self._replication.await_copies(pending, places)
        return False

    def add_together(
        self, batch: Batch, queue_name: bytes, bodies: list[bytes], options: JobOptions, alias_of: AliasOf, *,
        maxlen: int, timeout_ms: int, asynchronous: bool, by_default: bool, front: bool = False,
    ) -> list[Job]:  # fmt: skip
        """Create jobs that have aliases, all of them or none; `batch.is_over` says whether that is done.

        `alias_of` is told the stamp of a job; `front`: before all that wait.  Times and errors as in `add`.
        Raises NotReplicated (NOREPL), QueueTooLong (MAXLEN), QueuePaused (PAUSED), WrongType (WRONGTYPE),
        OutOfMemory (OOM).
        """
        state = self._state
        self._check_room(sum(map(len, bodies)) + len(bodies) * (JOB_COST + NAME_COST))
        queue = self._admit(queue_name, options, len(bodies), maxlen=maxlen, waits=not asynchronous)
        several = options.replicate > 1 or self._placement.takes_no_copy
        jobs: list[Job] = []
        for body in bodies:
            job = self._make(queue_name, queue, body, options, alias_of)
            if front:
                job.order_key = state.numbers.next_front(state.wall)
            jobs.append(job)
        if not several:
            for job in jobs:
                state.note(ADD, job, who=batch.client)
                state.enter(job)
                self._replication.begin(job)
            return jobs
        places = self._placement.places_for(options.replicate)
        deadline_at = state.now + timeout_ms if timeout_ms else 0
        for job in jobs:
            job.holders = places.holders
            if asynchronous:
                self._replication.add_quietly(job, places)
            else:
                pending = PendingAddition(job, batch.client, deadline_at, state.now, by_default=by_default, batch=batch)
                batch.pendings.append(pending)
                batch.missing[job.id] = None
                self._replication.await_copies(pending, places)
        batch.is_over = asynchronous
        return jobs

    def _check_room(self, size: int) -> None:
        """Refuse jobs for which there is no room, all of them together."""
        memory = self._state.memory
        if memory.used + size > memory.limit:
            raise OutOfMemory

    def _admit(self, queue_name: bytes, options: JobOptions, added: int, *, maxlen: int, waits: bool) -> Queue | None:
        """Refuse jobs, so many, that may not be added now; returns their queue, None when there is none yet.

        `waits`: their producer waits for the copies.
        Raises NotReplicated (NOREPL), WrongType (WRONGTYPE), QueueTooLong (MAXLEN), QueuePaused (PAUSED), NameTooLong
        (ERR).
        """
        state = self._state
        if options.replicate > 1 or state.memory.used > state.memory.low_mark or state.leaving:
            try:
                self._placement.check(options.replicate, waits=waits)
            except NotReplicated as error:
                raise naming_policy(error, state, queue_name, options.replicate) from None
        queue = state.queues.by_name.get(queue_name)
        if queue is not None:
            if options.kind or queue.stream is not None:
                queue.check_kind(options.kind)
            if maxlen and (len(queue.units) if queue.stream is None else len(queue.stream)) + added > maxlen:
                raise too_long(state, queue_name, maxlen)
            if queue.pause & PAUSE_IN:
                raise state.queues.refusal(queue_name)
        elif queue_name[NAME_MAX:]:
            raise NameTooLong
        return queue

    def _make(
        self, queue_name: bytes, queue: Queue | None, body: bytes, options: JobOptions, alias_of: AliasOf | None = None
    ) -> Job:
        state = self._state
        job_id = state.numbers.ids.next(options.ttl_suffix)
        ctime = state.numbers.next_ctime(state.wall)
        state.counters.added += 1
        name = queue_name if queue is None else queue.name
        if options.stamped_at != state.now:
            options.stamp(state.now)
        if alias_of is None and not options.kind:
            return Job(job_id, name, body, ctime, options)
        return new_job(job_id, name, body, ctime, options, alias=b"" if alias_of is None else alias_of(ctime))
