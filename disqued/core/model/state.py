"""The data that the machines of a node share, and the changes that keep it consistent.

Source: Disque, src/job.c (job registration), src/queue.c (queue creation and collection).
"""

from collections.abc import Iterator
from itertools import chain
from random import Random
from typing import Final

from disqued.core.model.aliases import Aliases
from disqued.core.model.blocked import BlockedClients
from disqued.core.model.counters import Counters
from disqued.core.model.custody import Custody
from disqued.core.model.demand import RemoteDemand
from disqued.core.model.durability import Durability
from disqued.core.model.endings import ending_of
from disqued.core.model.fate import (
    ENDED_MS,
    MARK,
    NO_FATE,
    ONLY_CANCELLED,
    TOLD_MS,
    TRIED_MS,
    UNTRIED_MS,
    Fate,
    is_undone,
    mark_of,
)
from disqued.core.model.groups import Entry, Stream, forget_early
from disqued.core.model.ids import JobIds, Numbers, comes_first
from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    FLAG_CAME_BACK,
    FLAG_COPY,
    FLAG_PUT_OFF,
    FLAG_TAKEN_OUT,
    FLAG_WITH_CONSUMER,
    PERHAPS_TRIED,
    QUEUED,
    UNTRIED,
    WAS_TRIED,
    WORK_SCOPE,
    Job,
    NamedJob,
    Unit,
    tries_at_end,
    tries_of,
)
from disqued.core.model.memory import EVENT_COST, JOB_COST, NAME_FREE, QUEUE_COST, Memory
from disqued.core.model.messages import ENDED_CANCELLED, FATE, SETACK, Message
from disqued.core.model.outbox import (
    FLUSHED,
    GONE_DELETED,
    GONE_EXPIRED,
    GONE_REFUSED,
    JOB_ADDED,
    JOB_GONE,
    UNIT_DONE,
    WATERMARK,
    Client,
    Outbox,
    Record,
)
from disqued.core.model.peers import Peers
from disqued.core.model.phases import list_delayed
from disqued.core.model.policies import PAUSE_FIELD, PolicyTable
from disqued.core.model.queues import Queue, Queues
from disqued.core.model.registry import Registry
from disqued.core.model.schedule import HELD_BYTES, Schedule
from disqued.core.model.shared import Shared
from disqued.core.model.trace import FLUSH, MISCONF, OF_REASON, EventTraces, GroupNote
from disqued.core.model.unfinished import AT_ONCE, BackgroundWork, Parts, QuietParts

ASKED_MS = 5_000  #: lifetime of a question to other nodes
#: How long an empty, unused queue is kept, by memory level.
QUEUE_IDLE_MS = (300_000, 10_000, 2_000, 2_000)
FREED_LATER = 16 << 20  #: bodies of at least this many bytes are freed after the step that drops the job
FREED_AT_ONCE = 1_500  #: table entries that a flush frees at a time: some milliseconds of work
_LAST_TRY: Final = {UNTRIED: UNTRIED_MS, PERHAPS_TRIED: 0, WAS_TRIED: TRIED_MS}
_BROUGHT: Final = FLAG_COPY | FLAG_CAME_BACK  #: jobs that another node may send again although no holder is left
_DONE = object()
_NOBODY: frozenset[bytes] = frozenset()


class State:
    """Jobs, queues, deadlines and the outbox of one node."""

    __slots__ = (
        "aliases", "counters", "custody", "demand", "durability", "jobs", "journaling", "leaving", "memory", "node_id",
        "now", "numbers", "outbox", "peers", "queues", "ready", "schedule", "shared", "trace", "unfinished", "waiting",
        "wall",
    )  # fmt: skip

    def __init__(self, node_id: bytes, ids: JobIds, memory: Memory, rng: Random) -> None:
        self.node_id: bytes = node_id
        self.peers: Peers = Peers()
        self.numbers: Numbers = Numbers(ids, rng)
        self.memory: Memory = memory
        self.shared: Shared = Shared(node_id)
        self.outbox: Outbox = Outbox()
        self.counters: Counters = Counters()
        self.journaling: bool = False  #: whether a store takes records; set by the driver
        self.durability: Durability = Durability()
        self.leaving: bool = False  #: True while this node drains and takes no new jobs
        self.now: int = 0  #: monotonic milliseconds, read once per step
        self.wall: int = 0  #: unix milliseconds, read once per step
        self.trace: EventTraces = EventTraces()
        self.unfinished: BackgroundWork = BackgroundWork()
        self.demand: RemoteDemand = RemoteDemand()
        self.waiting: BlockedClients = BlockedClients()
        self._clear(PolicyTable(self.memory))

    def _clear(self, policies: PolicyTable) -> None:
        self.jobs: Registry = Registry()
        self.queues: Queues = Queues(policies, self.memory)
        self.schedule: Schedule = Schedule()
        self.custody: Custody = Custody(self.memory)
        self.aliases: Aliases = Aliases(self.memory)
        #: Queues that got jobs while consumers wait for them; served at the end of the step, in this order.
        self.ready: dict[Queue, None] = {}
        self.demand.giving = {}
        self.waiting.clear()
        self.durability.watermark.held.clear()

    def become(self, node_id: bytes) -> None:
        """Take another node id, as CLUSTER RESET HARD does."""
        self.node_id = node_id
        self.shared, before = Shared(node_id), self.shared
        self.shared.dead_ttl_ms = before.dead_ttl_ms
        if self.trace.endings is not None:
            self.trace.endings.become(self.wall, self.now, node_id)
        self.numbers.ids = JobIds(node_id, b"%040x" % self.numbers.rng.getrandbits(160))

    def flush(self) -> None:
        """Forget every job, queue and blocked consumer, without telling anybody; policies stay.

        It is done when this returns.  The tables that were in use are let go of afterwards, bit by bit.
        """
        left = _released(self.jobs, self.queues, self.schedule, self.custody.evictable)
        self._clear(self.queues.policies)
        self.shared.forget_holders()
        self.memory.flush()
        for queue, field in self.queues.policies.registers:
            if field == PAUSE_FIELD and self.queues.policies.pause_of(queue).bits:
                self.queue(queue)
        if self.journaling:
            self.outbox.journal.append((FLUSHED,))
        if self.trace.endings is not None:
            self.trace.endings.tell(FLUSH, self.wall, self.now, who=self.trace.actor)
        self.unfinished.awake_at = 0
        self.keep_going()
        if next(left, _DONE) is not _DONE:
            self.work(left)

    def act_for(self, actor: Client | None) -> None:
        """Go on with a step on behalf of another client."""
        if actor is not self.trace.actor:
            self.trace.actor = actor
            if self.trace.full is not None:
                self.trace.full.act(self.wall, self.now, actor)

    def note(
        self, kind: int, unit: Unit, *, span_ms: int = -1, who: Client | None = None, word: bytes = b"",
        failure: bytes = b"",
    ) -> None:  # fmt: skip
        """Leave a word in the trail, where that is wanted."""
        if self.trace.full is not None:
            told = unit if isinstance(unit, Job) else GroupNote(unit.job, unit.scope)
            self.trace.full.tell(
                kind, self.wall, self.now, told,
                attempt=unit.deliveries + unit.job.options.fate.spent, nacks=unit.nacks, span_ms=span_ms, who=who,
                word=word, failure=failure,
            )  # fmt: skip

    def note_end(
        self, kind: int, unit: Unit | GroupNote, *, span_ms: int = -1, who: Client | None = None, word: bytes = b"",
        failure: bytes = b"",
    ) -> None:  # fmt: skip
        """Leave a word in the trail of how something ended, where that is wanted."""
        if self.trace.endings is not None:
            told = unit if isinstance(unit, Job) else GroupNote(unit.job, unit.scope)
            self.trace.endings.tell(
                kind, self.wall, self.now, told,
                attempt=unit.deliveries + unit.job.options.fate.spent, nacks=unit.nacks, span_ms=span_ms, who=who,
                word=word, failure=failure,
            )  # fmt: skip

    def note_node(self, kind: int, word: bytes) -> None:
        """Leave a word in the trail that is about the node itself, where that is wanted."""
        if self.trace.endings is not None:
            self.trace.endings.tell(kind, self.wall, self.now, word=word)

    def work(self, parts: Parts, client: Client | None = None) -> None:
        """Do a piece of work in parts, in the ticks that follow; a client that is named is answered at the end."""
        self.unfinished.add(client, parts)
        self.keep_going()

    def begin_work(self, parts: Parts) -> None:
        """Do the first part of a piece of work now, and the rest as `work` does; nobody waits for it."""
        if next(parts, self) is not self:
            self.work(parts)

    def keep_going(self) -> None:
        """See to it that there is a tick for unfinished work, if there is any."""
        if len(self.unfinished) and not self.unfinished.awake_at:
            self.schedule.add(self.unfinished, AT_ONCE)

    def say_done(self, node_id: bytes, job: Job, *, last: bool = False) -> None:
        """Tell a node that a job is done; `last`: every other holder knows it already.

        Of a job that was cancelled before anybody had it the mark says everything.  Who may hold it is left out while
        the journal cannot be written: a node that names the holders counts as one that will not forget the ack.
        """
        mark = WORK_SCOPE
        fate = job.options.fate
        if fate is not NO_FATE:
            mark = mark_of(fate)
            if fate is not ONLY_CANCELLED or job.options.terms.keep_result_ms or tries_at_end(job, job.flags):
                self.send(node_id, self.word_of_fate(job))
        holders = job.holders if job.holders and not self.durability.read_only else _NOBODY
        self.send(node_id, (SETACK, job.id, mark, last, holders))

    def word_of_fate(self, job: Job) -> Message:
        """What another holder is told of the fate of a job, and of its last try; of one that is put off, until when."""
        left_ms = 0
        if job.state == ACTIVE and job.flags & FLAG_PUT_OFF:
            left_ms = max(TOLD_MS + 1, job.requeue_at - self.now)
        elif job.state == ACTIVE and job.flags & FLAG_TAKEN_OUT:
            left_ms = UNTRIED_MS
        elif job.state == ACKED and job.holders:
            left_ms = ENDED_MS | _LAST_TRY[job.flags & WAS_TRIED]
        return (FATE, job.id, left_ms, job.nacks, job.additional_deliveries, job.options.fate)

    def tell_fate(self, job: Job) -> None:
        """Tell all other nodes that may hold a job what became of it."""
        if job.holders:
            self.tell(job, self.word_of_fate(job))

    def say_ended(self, node_id: bytes, job_id: bytes) -> bool:
        """Tell a node that a job is done that it has, and that ended here; who may hold it is not known any more.

        Returns whether it did end here.
        """
        if job_id in self.custody.ended:
            mark = MARK if self.custody.ended.of(job_id, self.now) == ENDED_CANCELLED else WORK_SCOPE
            self.send(node_id, (SETACK, job_id, mark, False, _NOBODY))
            return True
        return False

    def send(self, node_id: bytes, message: Message) -> bool:
        """Send a message to another node; say whether there is a link that it can leave on."""
        if node_id not in self.peers.linked:
            return False
        self.outbox.messages.append((node_id, message))
        return True

    def unite_holders(self, job: Job, holders: frozenset[bytes]) -> bool:
        """Note that more nodes may hold a job; say whether there was anything to note."""
        known = job.holders or frozenset((self.node_id,))
        if holders <= known:
            return False
        job.holders = self.shared.holders(known | holders)
        return True

    def add_holders(self, job: Job, holders: frozenset[bytes]) -> None:
        """Note that more nodes may hold a job, of which this one is perhaps none."""
        job.holders = self.shared.holders((job.holders or frozenset()) | holders)

    def tell(self, job: Job, message: Message) -> None:
        """Send a message to all other nodes that may hold a job."""
        if job.holders:
            for node_id in self.shared.others(job.holders):
                self.send(node_id, message)

    def begin_watermark(self) -> Record:
        """Begin to note how far delayed jobs were queued; returns the record that says so to a journal."""
        self.durability.watermark.until = 1
        return (WATERMARK, 1)

    def reach(self) -> None:
        """Let the journal know that delayed jobs whose time is over are queued from now on."""
        if self.durability.watermark.reach(self.now):
            self.outbox.journal.append((WATERMARK, self.durability.watermark.until))

    def register(self, job: Job) -> None:
        """Enter a new job: memory, registry, journal."""
        self.memory.used += JOB_COST + len(job.body)
        if job.queue[NAME_FREE:]:
            self.memory.used += len(job.queue) - NAME_FREE
        self.jobs.add(job)
        try:
            self.queues.counts[job.queue].known += 1
        except KeyError:
            self.queues.count(job.queue).known = 1
        if job.options.is_listed or job.__class__ is not Job:
            self._enter_rare(job)
        if self.journaling:
            self.outbox.journal.append((JOB_ADDED, job))

    def enter(self, job: Job) -> None:
        """Enter a job that the journal is not to know, not yet or never: memory, registry."""
        self.memory.used += JOB_COST + len(job.body)
        if job.queue[NAME_FREE:]:
            self.memory.used += len(job.queue) - NAME_FREE
        self.jobs.add(job)
        try:
            counts = self.queues.counts[job.queue]
        except KeyError:
            counts = self.queues.count(job.queue)
        counts.known += 1
        if job.state == ACKED:
            counts.done += 1
        if job.options.is_listed or job.__class__ is not Job:
            self._enter_rare(job)

    def set_fate(self, job: Job, fate: Fate) -> None:
        """Give a job that is entered another fate."""
        old = job.options
        _unlist_failed(self.queues, job)
        self.queues.end_delay(job)
        job.options = new = self.shared.options(
            old.ttl_ms, old.retry_ms, old.delay_ms, old.replicate, old.kind, terms=old.terms, fate=fate
        )
        self.memory.used += new.cost - old.cost
        list_failed(self, job)
        list_delayed(self.queues, job)

    def forget(self, job: Job, reason: bytes) -> None:
        """Drop a job for a reason that is not its acknowledgement (GONE_...)."""
        who = self.trace.actor if reason == GONE_DELETED else None
        self.note_end(OF_REASON[reason], job, who=who, word=MISCONF if reason == GONE_REFUSED else b"")
        tries = tries_at_end(job, job.flags) if job.state == ACKED else tries_of(job)
        self.drop(job, reason)
        self.custody.ended.note(job.id, ending_of(job, reason), tries)
        if reason in self.counters.gone:
            self.counters.gone[reason] += 1
        if self.journaling:
            self.outbox.journal.append((JOB_GONE, job.id, reason))

    def finish(self, job: Job) -> None:
        """Drop a job that is acknowledged and that nobody else holds, or that is held elsewhere alone from now on."""
        self.drop(job)
        if (job.holders or job.flags & _BROUGHT) and job.options.retry_ms:
            self.custody.ended.add(job.id)
        # The journal does not know dummy acks.
        if self.journaling and (job.holders is None or job.holders):
            self.outbox.journal.append((UNIT_DONE, job.id, WORK_SCOPE))

    def drop(self, job: Job, reason: bytes = b"") -> None:
        """Drop a job without a word to the journal, for a reason (GONE_...) if it is not its acknowledgement."""
        self.jobs.remove(job)
        if self.custody.watched:
            self.note_watched(job, reason)
        self.let_go(job)

    def let_go(self, job: Job) -> None:
        """Undo what a job that is not in the registry any more took and waited for."""
        flags = job.flags
        counts = self.queues.counts[job.queue]
        counts.known -= 1
        if job.state == QUEUED:
            if isinstance(job, Entry):
                _leave_stream(self, job)
            else:
                self.queues.by_name[job.queue].units.remove(job)
        elif flags & FLAG_WITH_CONSUMER:
            self.end_lease(job)
        elif job.state == ACKED:
            counts.done -= 1
            self.custody.acked.pop(job, None)
        size = len(job.body)
        self.memory.used -= JOB_COST + size
        if job.queue[NAME_FREE:]:
            self.memory.used -= len(job.queue) - NAME_FREE
        if size > HELD_BYTES:
            self.schedule.cancel_large(job, size)
            _free_later(self, job.body)
        else:
            self.schedule.cancel(job)
        if job.options.is_listed or job.__class__ is not Job:
            self._let_go_of_rare(job, flags)
        custody = self.custody
        if custody.evictable:
            custody.evictable.pop(job, None)
        if custody.asking:
            custody.asking.pop(job, None)
        if custody.owed:
            custody.owed.pop(job, None)
        if not counts.known:
            self.queues.stop_counting(job.queue)

    def note_watched(self, job: Job, reason: bytes = b"") -> None:
        """Note that something changed of a job, or why it is gone (GONE_...), for those who wait for its end."""
        custody = self.custody
        if job.id in custody.watched:
            tries = tries_of(job) if reason == GONE_EXPIRED else tries_at_end(job, job.flags)
            custody.changed.jobs[job.id] = (job, reason, tries)
            if not custody.changed.awake_at:
                self.schedule.add(custody.changed, AT_ONCE)

    def _enter_rare(self, job: Job) -> None:
        """Enter what most jobs do not have."""
        self.memory.used += job.options.cost
        if job.options.fate is not NO_FATE:
            list_failed(self, job)
        if job.options.delay_ms or job.flags & FLAG_PUT_OFF:
            list_delayed(self.queues, job)
        if isinstance(job, NamedJob):
            self.aliases.add(job)
        elif job.options.kind:
            self.memory.used += EVENT_COST

    def _let_go_of_rare(self, job: Job, flags: int) -> None:
        """Undo what most jobs do not have; the flags say whether a consumer had the job."""
        self.memory.used -= job.options.cost
        if self.custody.settled:
            self.custody.settled.pop(job, None)
        fate = job.options.fate
        if fate is not NO_FATE:
            _unlist_failed(self.queues, job)
            if is_undone(fate):
                self.custody.ended.note(job.id, ENDED_CANCELLED, tries_at_end(job, flags))
        if self.queues.delayed:
            self.queues.end_delay(job)
        if job.options.kind:
            self.memory.used -= EVENT_COST
        if job.__class__ is Job:
            return
        if isinstance(job, NamedJob):
            self.aliases.remove(job)
        elif isinstance(job, Entry) and job.state != QUEUED:
            forget_early(self.memory, job)
            queue = self.queues.by_name.get(job.queue)
            if queue is not None and queue.stream is not None:
                queue.stream.delayed.pop(job, None)

    def stream(self, name: bytes) -> Stream:
        """The log of the queue of this name, created when there is none."""
        queue = self.queue(name)
        if queue.stream is None:
            queue.stream = Stream(queue.name, self.memory, self.node_id[:8])
        return queue.stream

    def end_lease(self, unit: Unit) -> None:
        """Note that no consumer has a unit any more, of this node or of another one."""
        unit.flags &= ~FLAG_WITH_CONSUMER
        queue = self.queues.by_name.get(unit.queue)
        if queue is not None and unit in queue.leased:
            del queue.leased[unit]
        elif not unit.options.retry_ms:
            self.queues.counts[unit.queue].once -= 1
        if queue is not None and queue.elsewhere:
            queue.elsewhere.pop(unit, None)
        custody = self.custody
        if custody.spans or custody.bound or custody.elsewhere or custody.limited:
            custody.end_lease(unit)
            if unit in custody.limited:
                del custody.limited[unit]
                tell_slot(self, unit)

    def queue(self, name: bytes) -> Queue:
        """The queue of this name, created when there is none."""
        queue = self.queues.by_name.get(name)
        if queue is None:
            queue = self.queues.create(name, self.now, self.wall)
            self.memory.used += QUEUE_COST + len(name)
            self.schedule.add(queue, self.now + QUEUE_IDLE_MS[self.memory.level])
        return queue

    def collect_queue(self, queue: Queue) -> bool:
        """Forget a queue that has been idle for long enough; say whether it was."""
        if not queue.is_idle or self.now - queue.accessed_at < QUEUE_IDLE_MS[self.memory.level]:
            return False
        if queue.name in self.queues.policies.idle:
            self.queues.policies.used[queue.name] = queue.accessed_at
        self.schedule.cancel(queue)
        self.queues.remove(queue)
        self.memory.used -= QUEUE_COST + len(queue.name)
        if queue.stream is not None:
            self.memory.used -= queue.stream.cost
        return True


def tell_slot(state: State, unit: Unit) -> None:
    """Let `admission` hear that a lease with a slot has ended, or that another consumer has it now."""
    over = state.custody.over
    over.units.append(unit)
    if not over.awake_at:
        state.schedule.add(over, AT_ONCE)


def goes_first(state: State, node_ids: frozenset[bytes] | None, job_id: bytes) -> bool:
    """Return whether this node has the best claim to a job, of these nodes that it can reach; None = no others."""
    linked, own = state.peers.linked, state.node_id
    return not node_ids or not any(
        node_id in linked and comes_first(node_id, own, job_id) for node_id in state.shared.others(node_ids)
    )


def list_failed(state: State, job: Job) -> None:
    """Enter a job among those of its queue that are dead or have failures, if it is one."""
    fate = job.options.fate
    if job.state != ACKED and (fate.is_dead or fate.failures):
        queue = state.queue(job.queue)
        if fate.is_dead and job not in queue.dead:
            queue.dead[job] = None
            state.queues.dead += 1
        elif not fate.is_dead and job not in queue.failing:
            queue.failing[job] = None
            state.queues.failing += 1


def _unlist_failed(queues: Queues, job: Job) -> None:
    """Take a job from those of its queue that are dead or have failures."""
    queue = queues.by_name.get(job.queue)
    if queue is None:
        return
    if job in queue.dead:
        del queue.dead[job]
        queues.dead -= 1
    if job in queue.failing:
        del queue.failing[job]
        queues.failing -= 1


def _free_later(state: State, body: bytes) -> None:
    """Keep a very large body for a tick of its own: the system takes a while to take its memory back."""
    if len(body) <= FREED_LATER:
        return
    state.unfinished.freed.append(body)
    if len(state.unfinished.freed) == 1:
        state.work(_freed(state.unfinished.freed))


def _leave_stream(state: State, event: Entry) -> None:
    """Take an event out of its log, with all that groups have of it."""
    assert event.stream is not None
    state.unfinished.effort += 8 * len(event.marks)
    for unit in event.stream.remove(event):
        state.schedule.cancel(unit)
        state.unfinished.effort += 10


def _released(jobs: Registry, queues: Queues, schedule: Schedule, evictable: dict[Job, None]) -> QuietParts:
    """Free tables that are no longer in use.

    The schedule is the last: it holds jobs by their age, as they lie in memory, so that memory goes back bit by bit.
    """
    freed = 0
    for entries in chain(_emptied(evictable), jobs.release(), queues.release(), schedule.release()):
        freed += entries
        if freed >= FREED_AT_ONCE:
            freed = 0
            yield


def _freed(bodies: list[bytes]) -> QuietParts:
    """Let go of bodies, so many bytes a part."""
    size = 0
    while bodies:
        size += len(bodies.pop())
        if size > FREED_LATER:
            size = 0
            yield


def _emptied(table: dict[Job, None]) -> Iterator[int]:
    while table:
        table.popitem()
        yield 1
