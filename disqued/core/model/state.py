"""What one node knows: the data that its machines share, and the changes that keep it consistent.

Source: Disque, src/job.c (job registration), src/queue.c (queue creation and collection).
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from random import Random
from typing import Any, Final

from mypy_extensions import i64

from disqued.core.model.counters import Counters
from disqued.core.model.departed import Departed
from disqued.core.model.groups import Group, Log, forget_early
from disqued.core.model.ids import JobIds
from disqued.core.model.job import (
    FLAG_CAME_BACK,
    FLAG_COPY,
    FLAG_WITH_CONSUMER,
    KEYED,
    KIND_WORK,
    QUEUED,
    UNIQUE,
    WORK_SCOPE,
    Event,
    Job,
    JobOptions,
    NamedJob,
    Unit,
)
from disqued.core.model.memory import BOUND_COST, EVENT_COST, JOB_COST, NAME_COST, NAME_FREE, QUEUE_COST, Memory
from disqued.core.model.messages import BEGIN, SETACK, Message
from disqued.core.model.outbox import (
    FLUSHED,
    GONE_DELETED,
    GONE_REFUSED,
    GROUP,
    JOB_ADDED,
    JOB_GONE,
    UNIT_DONE,
    WATERMARK,
    Outbox,
    Record,
)
from disqued.core.model.peers import Peers
from disqued.core.model.queues import Client, Queue, Queues, Waiter, check_name
from disqued.core.model.registry import Registry
from disqued.core.model.schedule import HELD_BYTES, Schedule, Timed
from disqued.core.model.tombstones import Ended
from disqued.core.model.trace import AHEAD, BACK, CLOCK, FLUSH, MISCONF, OF_REASON, OfGroup, Trail
from disqued.core.model.unfinished import AT_ONCE, Parts, Unfinished
from disqued.core.model.units import GroupUnit
from disqued.core.model.watermark import Watermark
from disqued.core.model.worker import Home, Worker

AHEAD_NS = 86_400_000 * 1_000_000  #: how far the stamp of another node may be ahead and still move our clock of stamps
ASKED_MS = 5_000  #: after which nobody needs what others were asked whether they do
#: How long a queue stays without jobs, consumers and use, by memory level.
QUEUE_IDLE_MS = (300_000, 10_000, 2_000, 2_000)
QUESTIONS = (1 << 32) - 1  #: numbers of questions begin again after this one
OPTIONS_KEPT = 1_024  #: distinct `JobOptions` remembered
HOLDER_SETS_KEPT = 1_024  #: distinct sets of holders remembered
BEGINNINGS_AT_ONCE = 200  #: groups that are forgotten where they began
ENDED_AT_ONCE = 500  #: units of a group that has begun anew, some milliseconds' work
FREED_LATER = 16 << 20  #: bytes of a body from which on it is not freed in the step that drops its job
FREED_AT_ONCE = 1_500  #: entries of tables that a flush lets go of at a time, some milliseconds' work
_BROUGHT: Final = FLAG_COPY | FLAG_CAME_BACK  #: jobs that another node may bring once more, though nobody holds them
_DONE = object()
_NOBODY: frozenset[bytes] = frozenset()


class State:
    """Jobs, queues, deadlines and the outbox of one node."""

    __slots__ = (
        "_freed_later", "_holder_sets", "_options", "_others", "abandons", "acked", "actor", "adding", "ahead_ms", "asking",
        "behind", "blocked", "bound", "counters", "departed", "effort", "elsewhere", "ended", "endings",
        "evictable", "giving", "ids", "interested", "jobs", "journaling", "last_ctime", "leaving", "listeners",
        "memory", "named", "node_id", "now", "outbox", "owed", "peers", "pending", "questions", "queues",
        "read_only", "ready", "rng", "schedule", "spans", "trail", "unfinished", "unique", "waits", "wall",
        "wanted", "watermark",
    )  # fmt: skip

    def __init__(self, node_id: bytes, ids: JobIds, memory: Memory, rng: Random) -> None:
        self.node_id: bytes = node_id
        self.rng: Random = rng  #: draws nodes and shifts times
        self.peers: Peers = Peers()
        self.ids: JobIds = ids
        self.memory: Memory = memory
        self.outbox: Outbox = Outbox()
        self.counters: Counters = Counters()
        self.journaling: bool = False  #: whether anybody takes the journal; set by the driver
        self.read_only: bool = False  #: the journal takes no jobs now; set by the driver
        self.leaving: bool = False  #: True while this node drains and takes no new jobs
        self.now: int = 0  #: monotonic milliseconds, read once per step
        self.wall: int = 0  #: unix milliseconds, read once per step
        #: What the wall clock was ahead of the monotonic one when the trail last had to do with that.
        self.ahead_ms: int = 0
        #: What happens, for the event log; None = nobody wants it.
        self.trail: Trail | None = None
        #: The same, or one of its own where only how jobs end is wanted.
        self.endings: Trail | None = None
        #: Who makes this step happen: a client, whom its connection names, or the id of a node; None = time does.
        self.actor: Client | None = None
        #: How each class of what is waited for ends when its client is gone; filled from the machines.
        self.abandons: dict[type[Timed], Callable[[Timed], None]] = {}
        self.unfinished: Unfinished = Unfinished()
        #: What this tick has done beside one thing for each deadline, in units of a tenth of a microsecond or so.
        self.effort: int = 0
        self.watermark: Watermark = Watermark()  #: up to when delayed jobs have been queued
        self.last_ctime: int = 0  #: the highest stamp that was given or seen
        self.questions: int = 0  #: the number of the last question to other nodes
        self._freed_later: list[bytes] = []
        self._options: dict[tuple[int, int, int, int, int], JobOptions] = {}
        self._holder_sets: dict[frozenset[bytes], frozenset[bytes]] = {}
        self._others: dict[frozenset[bytes], tuple[bytes, ...]] = {}
        #: Queues that consumers of other nodes want jobs of: {name: {node id: ...}}; kept by `federation`.
        self.wanted: dict[bytes, Any] = {}
        #: Logs that consumers of other nodes want events of: {queue: {group: {node id: ...}}}; kept by `readers`.
        self.interested: dict[bytes, Any] = {}
        #: Ids of the nodes, this one too, on which somebody listens to events; kept by `events`.
        self.listeners: dict[bytes, None] = {}
        self._clear()

    def _clear(self) -> None:
        self.jobs: Registry = Registry()
        self.queues: Queues = Queues()
        self.schedule: Schedule = Schedule()
        self.blocked: dict[Client, Waiter] = {}
        #: What other clients wait for whose command has no reply yet, such as copies or the answers of other nodes.
        self.waits: dict[Client, dict[Timed, None]] = {}
        #: Units that consumers have for a time of their fetch's own, in milliseconds; then they go to the front.
        self.spans: dict[Unit, int] = {}
        #: Queues that got jobs while consumers wait for them; served at the end of the step, in this order.
        self.ready: dict[Queue, None] = {}
        #: Queues that begin with more jobs whose time is over than one step drops; what is behind these is not known.
        self.behind: dict[Queue, None] = {}
        #: Queues that got jobs which consumers of other nodes want; dealt with at the end of the step, after `ready`.
        self.giving: dict[Queue, None] = {}
        self.watermark.held.clear()
        #: Jobs that may be dropped when memory is short, oldest claim first: acked, or delivered at most once.
        self.evictable: dict[Job, None] = {}
        #: Jobs that have an alias: {(queue, alias): jobs}.
        self.named: dict[tuple[bytes, bytes], tuple[NamedJob, ...]] = {}
        #: Of these: the unique tasks of all queues, {alias: jobs}.
        self.unique: dict[bytes, tuple[NamedJob, ...]] = {}
        #: Units that a worker of this node has, which dies with them.
        self.bound: dict[Unit, Worker] = {}
        #: Jobs that a worker of another node has, as far as this one was told; kept by `homes`.
        self.elsewhere: dict[Job, Home] = {}
        #: Jobs that are done and that other nodes may hold, with the attempts that were made to collect them.
        self.acked: dict[Job, int] = {}
        #: Jobs whose timers have ended, and the nodes that have yet to say whether they know better.
        self.asking: dict[Job, frozenset[bytes]] = {}
        #: Nodes whose answer to a question that was given up may be on its way: it does not count for a later one.
        self.owed: dict[Job, frozenset[bytes]] = {}
        #: Jobs that others held and that are done, and that a late message must not bring back.
        self.ended: Ended = Ended()
        #: Jobs of producers that wait for copies: {id: ...}; kept by `replication`.
        self.pending: dict[bytes, Any] = {}
        #: Jobs with keys that producers are about to add: {(queue, alias): ...}; kept by `keys`.
        self.adding: dict[tuple[bytes, bytes], Any] = {}
        #: Jobs with keys that have just left for another node.
        self.departed: Departed = Departed()

    def flush(self) -> None:
        """Forget every job, queue and blocked consumer; nobody is told.

        It is done when this returns.  The tables that were in use are let go of afterwards, bit by bit.
        """
        left = _released(self.jobs, self.queues, self.schedule, self.evictable)
        self._clear()
        self._holder_sets.clear()
        self._others.clear()
        self.memory.flush()
        if self.journaling:
            self.outbox.journal.append((FLUSHED,))
        if self.endings is not None:
            self.endings.tell(FLUSH, self.wall, self.now, who=self.actor)
        self.unfinished.awake_at = 0
        self.keep_going()
        if next(left, _DONE) is not _DONE:
            self.work(left)

    def act_for(self, actor: Client | None) -> None:
        """Go on with a step on behalf of another client."""
        if actor is not self.actor:
            self.actor = actor
            if self.trail is not None:
                self.trail.act(self.wall, self.now, actor)

    def note(self, kind: int, unit: Unit, *, span_ms: int = -1, who: Client | None = None, word: bytes = b"") -> None:
        """Leave a word in the trail, where that is wanted."""
        if self.trail is not None:
            told = unit if isinstance(unit, Job) else OfGroup(unit.job, unit.scope)
            self.trail.tell(
                kind, self.wall, self.now, told,
                attempt=unit.deliveries, nacks=unit.nacks, span_ms=span_ms, who=who, word=word,
            )  # fmt: skip

    def note_end(
        self, kind: int, unit: Unit | OfGroup, *, span_ms: int = -1, who: Client | None = None, word: bytes = b""
    ) -> None:
        """Leave a word in the trail of how something ended, where that is wanted."""
        if self.endings is not None:
            told = unit if isinstance(unit, Job) else OfGroup(unit.job, unit.scope)
            self.endings.tell(
                kind, self.wall, self.now, told,
                attempt=unit.deliveries, nacks=unit.nacks, span_ms=span_ms, who=who, word=word,
            )  # fmt: skip

    def note_node(self, kind: int, word: bytes) -> None:
        """Leave a word in the trail that is about the node itself, where that is wanted."""
        if self.endings is not None:
            self.endings.tell(kind, self.wall, self.now, word=word)

    def note_clock(self) -> None:
        """Leave a word in the trail if the wall clock was set since the last one: spans across it are not known."""
        before_ms, self.ahead_ms = self.ahead_ms, self.wall - self.now
        if self.trail is not None and before_ms:
            word = AHEAD if self.ahead_ms > before_ms else BACK
            self.trail.tell(CLOCK, self.wall, self.now, word=word)

    def wait(self, client: Client, this: Timed) -> None:
        """Note what a client waits for."""
        waits = self.waits
        if client in waits:
            waits[client][this] = None
        else:
            waits[client] = {this: None}

    def wait_no_more(self, client: Client, this: Timed) -> None:
        """A client waits for this no longer."""
        waits = self.waits[client]
        del waits[this]
        if not waits:
            del self.waits[client]

    def forsake(self, client: Client) -> None:
        """A client is gone: nobody needs any more what it waited for."""
        for this in list(self.waits.get(client, ())):
            self.abandons[type(this)](this)

    def work(self, parts: Parts, client: Client | None = None) -> None:
        """Do a piece of work in parts, in the ticks that follow; a client that is named is answered at the end."""
        self.unfinished.add(client, parts)
        self.keep_going()

    def keep_going(self) -> None:
        """See to it that there is a tick for unfinished work, if there is any."""
        if len(self.unfinished) and not self.unfinished.awake_at:
            self.schedule.add(self.unfinished, AT_ONCE)

    def say_done(self, node_id: bytes, job: Job, *, last: bool = False) -> None:
        """Tell a node that a job is done; `last`: every other holder knows it already.

        Who may hold it is left out while the journal cannot be written: a node that names the holders counts as one
        that will not forget the ack.
        """
        holders = job.holders if job.holders and not self.read_only else _NOBODY
        self.send(node_id, (SETACK, job.id, WORK_SCOPE, last, holders))

    def say_ended(self, node_id: bytes, job_id: bytes) -> bool:
        """Tell a node that a job is done that it has, and that ended here; who may hold it is not known any more.

        Returns whether it did end here.
        """
        if job_id in self.ended:
            self.send(node_id, (SETACK, job_id, WORK_SCOPE, False, _NOBODY))
            return True
        return False

    def spread(self, span_ms: int) -> int:
        """Draw a span below the given one: what keeps nodes from doing a thing at the same time."""
        return int(self.rng.random() * span_ms)

    def send(self, node_id: bytes, message: Message) -> bool:
        """Send a message to another node; say whether there is a link that it can leave on."""
        if node_id not in self.peers.linked:
            return False
        self.outbox.messages.append((node_id, message))
        return True

    def holders(self, node_ids: frozenset[bytes]) -> frozenset[bytes]:
        """The one object for a set of nodes: a cluster has few such sets, and very many jobs."""
        known = self._holder_sets.get(node_ids)
        if known is None:
            if len(self._holder_sets) >= HOLDER_SETS_KEPT:
                self._holder_sets.clear()
            known = self._holder_sets[node_ids] = node_ids
        return known

    def others(self, holders: frozenset[bytes]) -> tuple[bytes, ...]:
        """The nodes of a set but this one, in order."""
        others = self._others.get(holders)
        if others is None:
            if len(self._others) >= HOLDER_SETS_KEPT:
                self._others.clear()
            others = self._others[holders] = tuple(sorted(holders - {self.node_id}))
        return others

    def unite_holders(self, job: Job, holders: frozenset[bytes]) -> bool:
        """Note that more nodes may hold a job; say whether there was anything to note."""
        known = job.holders or frozenset((self.node_id,))
        if holders <= known:
            return False
        job.holders = self.holders(known | holders)
        return True

    def add_holders(self, job: Job, holders: frozenset[bytes]) -> None:
        """Note that more nodes may hold a job, of which this one is perhaps none."""
        job.holders = self.holders((job.holders or frozenset()) | holders)

    def tell(self, job: Job, message: Message) -> None:
        """Send a message to all other nodes that may hold a job."""
        if job.holders:
            for node_id in self.others(job.holders):
                self.send(node_id, message)

    def next_ctime(self) -> int:
        """Stamp a job that is created now: unix nanoseconds, counted up within a millisecond, never going back."""
        # With a number of the machine: one of Python's costs ten times as much, above 2 ** 31.
        ctime = i64(self.wall) * 1_000_000
        if ctime <= self.last_ctime:
            ctime = i64(self.last_ctime) + 1
        self.last_ctime = ctime
        return ctime

    def stamp_behind(self, ctime: int) -> None:
        """Stamp what is created from now on behind what another node knows, unless that is too far ahead."""
        if self.last_ctime < ctime < i64(self.wall) * 1_000_000 + AHEAD_NS:
            self.last_ctime = ctime

    def options(self, ttl_ms: int, retry_ms: int, delay_ms: int, replicate: int, kind: int = KIND_WORK) -> JobOptions:
        """The shared options object for these wishes."""
        wishes = (ttl_ms, retry_ms, delay_ms, replicate, kind)
        options = self._options.get(wishes)
        if options is None:
            if len(self._options) >= OPTIONS_KEPT:
                self._options.clear()
            options = self._options[wishes] = JobOptions(
                ttl_ms=ttl_ms, retry_ms=retry_ms, delay_ms=delay_ms, replicate=replicate, kind=kind
            )
        return options

    def next_number(self) -> int:
        """Number a question to other nodes, by which its answer is known; never 0, and of 32 bits."""
        self.questions = self.questions % QUESTIONS + 1
        return self.questions

    def next_front(self) -> int:
        """The order key of a unit that is put in front of all others now."""
        return -self.next_ctime()

    def begin_watermark(self) -> Record:
        """Begin to note how far delayed jobs were queued; returns the record that says so to a journal."""
        self.watermark.until = 1
        return (WATERMARK, 1)

    def reach(self) -> None:
        """Let the journal know that delayed jobs whose time is over are queued from now on."""
        if self.watermark.reach(self.now):
            self.outbox.journal.append((WATERMARK, self.watermark.until))

    def register(self, job: Job) -> None:
        """Enter a new job: memory, registry, journal."""
        self.memory.used += JOB_COST + len(job.body)
        if job.queue[NAME_FREE:]:
            self.memory.used += len(job.queue) - NAME_FREE
        self.jobs.add(job)
        if isinstance(job, NamedJob):
            self.note_name(job)
        elif job.options.kind:
            self.memory.used += EVENT_COST
        if self.journaling:
            self.outbox.journal.append((JOB_ADDED, job))

    def enter(self, job: Job) -> None:
        """Enter a job that the journal is not to know, not yet or never: memory, registry."""
        self.memory.used += JOB_COST + len(job.body)
        if job.queue[NAME_FREE:]:
            self.memory.used += len(job.queue) - NAME_FREE
        self.jobs.add(job)
        if isinstance(job, NamedJob):
            self.note_name(job)
        elif job.options.kind:
            self.memory.used += EVENT_COST

    def note_name(self, job: NamedJob) -> None:
        """Let a job be found by its alias."""
        self.memory.used += NAME_COST + len(job.alias)
        key = (job.queue, job.alias)
        self.named[key] = (*self.named.get(key, ()), job)
        if job.alias[:1] == UNIQUE:
            self.unique[job.alias] = (*self.unique.get(job.alias, ()), job)

    def _forget_name(self, job: NamedJob) -> None:
        self.memory.used -= NAME_COST + len(job.alias)
        key = (job.queue, job.alias)
        others = tuple(other for other in self.named[key] if other is not job)
        if others:
            self.named[key] = others
        else:
            del self.named[key]
        if job.alias[:1] == UNIQUE:
            others = tuple(other for other in self.unique[job.alias] if other is not job)
            if others:
                self.unique[job.alias] = others
            else:
                del self.unique[job.alias]

    def note_departed(self, job: Job) -> None:
        """Remember for a while that another node has a job from now on, if it has a key."""
        if isinstance(job, NamedJob) and job.alias[:1] == KEYED:
            self.departed.add(job.queue, job.alias, job.id, self.now)

    def by_name(self, queue_name: bytes, alias: bytes) -> tuple[NamedJob, ...]:
        """Jobs of a queue with this alias, oldest first; more than one only if nodes could not hear each other."""
        return tuple(sorted(self.named.get((queue_name, alias), ()), key=_age))

    def forget(self, job: Job, reason: bytes) -> None:
        """Drop a job for a reason that is not its acknowledgement (GONE_...)."""
        who = self.actor if reason == GONE_DELETED else None
        self.note_end(OF_REASON[reason], job, who=who, word=MISCONF if reason == GONE_REFUSED else b"")
        self.drop(job)
        if reason in self.counters.gone:
            self.counters.gone[reason] += 1
        if self.journaling:
            self.outbox.journal.append((JOB_GONE, job.id, reason))

    def finish(self, job: Job) -> None:
        """Drop a job that is acknowledged and that nobody else holds, or that is held elsewhere alone from now on."""
        self.drop(job)
        if (job.holders or job.flags & _BROUGHT) and job.options.retry_ms:
            self.ended.add(job.id)
        # The journal does not know dummy acks.
        if self.journaling and (job.holders is None or job.holders):
            self.outbox.journal.append((UNIT_DONE, job.id, WORK_SCOPE))

    def drop(self, job: Job) -> None:
        """Drop a job without a word to the journal."""
        self.jobs.remove(job)
        self.let_go(job)

    def let_go(self, job: Job) -> None:
        """Undo what a job that is not in the registry any more took and waited for."""
        if job.state == QUEUED:
            if isinstance(job, Event):
                self._leave_log(job)
            else:
                self.queues.by_name[job.queue].units.remove(job)
        elif job.flags & FLAG_WITH_CONSUMER:
            self.end_lease(job)
        size = len(job.body)
        self.memory.used -= JOB_COST + size
        if job.queue[NAME_FREE:]:
            self.memory.used -= len(job.queue) - NAME_FREE
        if size > HELD_BYTES:
            self.schedule.cancel_large(job, size)
            if size > FREED_LATER:
                self._free_later(job.body)
        else:
            self.schedule.cancel(job)
        if job.__class__ is not Job:
            self._let_go_of_its_own(job)
        if self.evictable:
            self.evictable.pop(job, None)
        if self.acked:
            self.acked.pop(job, None)
        if self.asking:
            self.asking.pop(job, None)
        if self.owed:
            self.owed.pop(job, None)

    def _free_later(self, body: bytes) -> None:
        """Keep a body for a tick of its own: the system takes a while to take its memory back."""
        self._freed_later.append(body)
        if len(self._freed_later) == 1:
            self.work(_freed(self._freed_later))

    def _let_go_of_its_own(self, job: Job) -> None:
        """Undo what a job of another class than most took."""
        if job.options.kind:
            self.memory.used -= EVENT_COST
        if isinstance(job, NamedJob):
            self._forget_name(job)
        elif isinstance(job, Event) and job.state != QUEUED:
            forget_early(self.memory, job)
            queue = self.queues.by_name.get(job.queue)
            if queue is not None and queue.log is not None:
                queue.log.delayed.pop(job, None)

    def _leave_log(self, event: Event) -> None:
        """Take an event out of its log, with all that groups have of it."""
        assert event.log is not None
        self.effort += 8 * len(event.marks)
        for unit in event.log.remove(event):
            self.schedule.cancel(unit)
            self.effort += 10

    def end_units(self, group: Group, units: list[GroupUnit]) -> None:
        """Take the units of a group that has begun anew from those who have them; very many bit by bit."""
        parts = self._end_units(group, units, self.jobs)
        if next(parts, _DONE) is not _DONE:
            self.work(parts)

    def _end_units(self, group: Group, units: list[GroupUnit], jobs: Registry) -> Parts:
        # After a flush of the whole node there is nothing to take them from.
        while self.jobs is jobs:
            for unit in units[-ENDED_AT_ONCE:]:
                unit.unlink()
                unit.unbind()
                self.schedule.cancel(unit)
            del units[-ENDED_AT_ONCE:]
            if not group.forget_left(ENDED_AT_ONCE) and not units:
                return
            yield

    def log(self, name: bytes) -> Log:
        """The log of the queue of this name, created when there is none."""
        queue = self.queue(name)
        if queue.log is None:
            queue.log = Log(queue.name, self.memory, self.node_id[:8])
        return queue.log

    def end_lease(self, unit: Unit) -> None:
        """Note that no consumer has a unit any more, of this node or of another one."""
        unit.flags &= ~FLAG_WITH_CONSUMER
        queue = self.queues.by_name.get(unit.queue)
        if queue is not None:
            queue.leased.pop(unit, None)
            if queue.elsewhere:
                queue.elsewhere.pop(unit, None)
        if self.spans or self.bound or self.elsewhere:
            self._end_lease_of_its_own(unit)

    def _end_lease_of_its_own(self, unit: Unit) -> None:
        """Undo what a lease brought along that few have: a span of its own, or a worker."""
        self.spans.pop(unit, None)
        worker = self.bound.pop(unit, None)
        if worker is not None:
            self.memory.used -= BOUND_COST
            del worker.leases[unit]
        home = self.elsewhere.pop(unit.job, None)
        if home is not None:
            del home.jobs[unit.job]

    def queue(self, name: bytes) -> Queue:
        """The queue of this name, created when there is none."""
        queue = self.queues.by_name.get(name)
        if queue is None:
            queue = self.queues.create(name, self.now, self.wall)
            self.memory.used += QUEUE_COST + len(name)
            self.schedule.add(queue, self.now + QUEUE_IDLE_MS[self.memory.level])
        return queue

    def cost_of_new(self, names: Iterable[bytes]) -> int:
        """Bytes that the queues of these names take which are not there.  Raises NameTooLong (ERR)."""
        by_name = self.queues.by_name
        new = [name for name in names if name not in by_name]
        for name in new:
            check_name(name)
        return sum([QUEUE_COST + len(name) for name in new])

    def _forget_beginnings(self, log: Log) -> None:
        """Forget where groups began when it matters no more, here and, as they were asked the last time, to others."""
        if log.forget_horizon(self.now) and self.journaling:
            self.outbox.journal.append((GROUP, log.queue, WORK_SCOPE, ()))
        parts = self._forget_unneeded(log, log.unneeded(self.now, forgets=not self.peers.is_one_away), self.jobs)
        if next(parts, _DONE) is not _DONE:
            self.work(parts)
        log.forget_searches()

    def _forget_unneeded(self, log: Log, groups: list[Group], jobs: Registry) -> Parts:
        for count, group in enumerate(groups, 1):
            # Between two parts it may have come to matter, or everything may have been flushed.
            if self.jobs is not jobs:
                return
            if group in log.begun and not log.needs(group, self.now):
                self._forget_one(log, group)
            if count % BEGINNINGS_AT_ONCE == 0:
                yield

    def _forget_one(self, log: Log, group: Group) -> None:
        scope, asks = group.scope, not group.is_asked and len(self.peers.linked) > 0
        group.is_asked = True
        if not asks:
            self.forget_beginning(group)
        for node_id in list(self.peers.linked):
            self.send(node_id, (BEGIN, log.queue, scope, {}, 0, asks))

    def forget_beginning(self, group: Group) -> None:
        """Forget where a group began."""
        self.end_units(group, group.forget())
        if self.journaling:
            self.outbox.journal.append((GROUP, group.log.queue, group.scope, ()))
        group.log.let_go(group)

    def collect_queue(self, queue: Queue) -> bool:
        """Forget a queue that has been idle for long enough; say whether it was."""
        if queue.log is not None:
            self._forget_beginnings(queue.log)
        if not queue.is_idle or self.now - queue.accessed_at < QUEUE_IDLE_MS[self.memory.level]:
            return False
        self.schedule.cancel(queue)
        self.queues.remove(queue)
        self.memory.used -= QUEUE_COST + len(queue.name)
        if queue.log is not None:
            self.memory.used -= queue.log.cost
        return True


def _age(job: Job) -> tuple[int, bytes]:
    return (job.ctime, job.id)


def _released(jobs: Registry, queues: Queues, schedule: Schedule, evictable: dict[Job, None]) -> Parts:
    """Let go of tables that nobody uses any more.

    The schedule is the last: it holds jobs by their age, as they lie in memory, so that memory goes back bit by bit.
    """
    freed = 0
    for entries in chain(_emptied(evictable), jobs.release(), queues.release(), schedule.release()):
        freed += entries
        if freed >= FREED_AT_ONCE:
            freed = 0
            yield


def _freed(bodies: list[bytes]) -> Parts:
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
