"""A lone node as tests of the core use it: on a clock that is told to move, spoken to in words.

    server = Server()
    job = server("ADDJOB", "q", "body", 0)          the reply, held against the shape that the command declares
    server.refusal("ADDJOB", "q", "body", "x")      the line of the error instead
    server.get("q")                                 GETJOB NOHANG FROM q: [(queue, id, body), ...]
    server("GETJOB", "FROM", "q", client="anna")    BLOCKED; the answer comes into server.answers["anna"]
    server.advance(1_000)                           ticks when the node asks for it, and never otherwise

The outbox is emptied after each step, the way the driver does it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from random import Random
from typing import Any

import disqued.commands.catalogue  # enters the commands into the table
from disqued.commands.dispatch import Dispatch, Outcome
from disqued.commands.latency import LatencyMonitor
from disqued.commands.slowlog import SlowLog
from disqued.commands.table import BLOCKED, Command
from disqued.core.model import marks
from disqued.core.model.groups import (
    EARLY_COST,
    LATE_COST,
    LOG_COST,
    MARK_COST,
    UNIT_COST,
    Entry,
    GroupWaiter,
    PendingEntry,
    Stream,
    cost_of_group,
    units_of,
)
from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    FLAG_ASKING,
    FLAG_ELSEWHERE,
    FLAG_LEASED,
    KIND_LOG,
    QUEUED,
    WORK_SCOPE,
    Job,
    JobOptions,
    NamedJob,
    Unit,
)
from disqued.core.model.memory import (
    BOUND_COST,
    COUNTS_COST,
    EVENT_COST,
    HOME_COST,
    JOB_COST,
    NAME_COST,
    NAME_FREE,
    PENDING_COST,
    QUEUE_COST,
)
from disqued.core.model.messages import EVENT
from disqued.core.model.outbox import FLUSHED, JOB_ADDED, JOB_GONE, UNIT_DONE, UNIT_LEASED, Client, Record
from disqued.core.model.phases import PHASE_NAMES, count_phases, is_delayed, phase_of
from disqued.core.model.policies import cost_of_register
from disqued.core.model.queues import GROUPED, HOLDS_ALL, LIMITED, THROTTLED, Queue
from disqued.core.model.schedule import WIDTH_MS
from disqued.core.model.slots import SLOT_COST, Slot
from disqued.core.model.state import State
from disqued.core.model.waiters import Watcher
from disqued.core.node import Node
from disqued.cron import CronCalendar
from disqued.errors import CommandError
from disqued.testing.clock import Clock

NODE_ID = b"0123456789abcdef0123456789abcdef01234567"
MEGABYTE = 1 << 20
UNKNOWN_ID = b"DI" + b"f" * 40 + b"05a0SQ"
OLD_ID = b"D-130f254d-QsheHqzDg4yS0nDMzI3PD+Md-003d"

Word = str | bytes | int

assert disqued.commands.catalogue


def words(args: Iterable[Word]) -> list[bytes]:
    """A command as it comes off the wire."""
    return [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]


#: Ticks until no job waits for the journal any more.
SETTLED_AT_MOST = 10_000


def make_dispatch(node: Node) -> Dispatch:
    """A dispatch without clock, slow log and permissions, which lets bugs escape."""
    return Dispatch(
        node, seconds=lambda: 0.0, microseconds=lambda: node.clock.wall() * 1_000, on_crash=reraise,
        failure=lambda: "planted", slowlog=SlowLog(-1, 0), latency=LatencyMonitor(0),
    )  # fmt: skip


def reraise(client: object, args: list[bytes]) -> None:
    """Let a bug in a command fail the test."""
    raise  # noqa: PLE0704 - it is called while the exception is being handled


class Session:
    """A client as dispatch sees it, equal to what the test calls the client, so that both find it in the node."""

    def __init__(self, client: Client, *, limited: bool) -> None:
        self.client = client
        self.id: int = getattr(client, "id", 0)
        self.name: bytes = getattr(client, "name", b"")
        self.limited = limited
        self.user = getattr(client, "user", None)  #: None = it may do everything

    def __eq__(self, other: object) -> bool:
        return bool(self.client == (other.client if isinstance(other, Session) else other))

    def __hash__(self) -> int:
        return hash(self.client)

    def __str__(self) -> str:
        return str(self.client)

    @property
    def address(self) -> str:
        """What the client calls itself, or is called by the test."""
        return str(getattr(self.client, "address", self.client))

    def check(self, entry: Command) -> None:
        """It may run every command."""


class Server:
    """A node, its clock, and what it has answered and written so far."""

    is_alone = True  #: it has nobody to write to

    def __init__(
        self,
        *,
        seed: int = 1,
        now: int = 1_000,
        maxmemory: int = 1 << 40,
        evicts: bool = True,
        clock: Clock | None = None,
        reads_all: bool = False,
    ) -> None:
        self.clock = clock or Clock(now=now)
        self._parses_all = reads_all  #: no command comes from a parse cache
        self.node = Node(
            NODE_ID, self.clock, Random(seed), maxmemory=maxmemory, evicts=evicts, calendar=CronCalendar()
        )  # fmt: skip
        self.state = self.node.state
        self.state.journaling = True
        self.journal: list[Record] = []
        #: What blocked clients were answered, by client.
        self.answers: dict[Client, list[Any]] = defaultdict(list)
        #: Events for those who listen here: (queue, type, content, the one client that it is for).
        self.events: list[tuple[Any, ...]] = []
        #: Clients whose connection is found broken when they are to be answered.
        self.vanished: set[Client] = set()
        self.ticks = 0  #: times that the node asked to be looked at
        self._dispatch = make_dispatch(self.node)

    def _dispatch_now(self) -> Dispatch:
        """The dispatch of the node, which may be another one than before."""
        if self._dispatch.node is not self.node:
            self._dispatch = make_dispatch(self.node)
        return self._dispatch

    # Commands.

    def __call__(self, *args: Word, client: Client = "client") -> Any:
        """Run a command as a step of its own.  Raises CommandError."""
        self.node.begin(Session(client, limited=False))
        return self.run(*args, client=client)

    def run(self, *args: Word, client: Client = "client") -> Any:
        """Run a command within the step that has begun.  Raises CommandError."""
        line = words(args)
        before = len(self.node.outbox.journal)
        outcome = self._dispatch_now().execute(
            Session(client, limited=self._parses_all), line, Outcome(checked=self._parses_all)
        )
        value, entry = outcome.value, outcome.entry
        if outcome.failed:
            raise value
        assert entry is not None
        if value is not BLOCKED:
            assert entry.reply.matches(value), (line, value)
            assert all(entry.encoder(protocol)(value) for protocol in (2, 3))
            self._check_promised(entry, line, value, before)
        self.settle()
        return value

    def _check_promised(self, entry: Command, line: list[bytes], value: Any, before: int) -> None:
        """Hold what a command that may add jobs has journaled against what the turn may take back of its reply."""
        if entry.promised is None or isinstance(value, int) or b"NOBLOCK" in map(bytes.upper, line):
            return  # it tells of no new job; what is added in the background is promised to nobody
        new = {record[1].id for record in self.node.outbox.journal[before:] if record[0] == JOB_ADDED}
        assert new <= {*entry.promised(value)}, f"the reply to {line} would be sent though {new} were not durable"

    def refusal(self, *args: Word, client: Client = "client") -> str:
        """Run a command that must fail; returns the line of its error."""
        try:
            value = self(*args, client=client)
        except CommandError as error:
            return error.line.decode()
        raise AssertionError(f"{args} was answered {value!r}")

    def add(self, queue: Word = "q", body: Word = "body", *options: Word) -> bytes:
        """ADDJOB; returns the id."""
        return bytes(self("ADDJOB", queue, body, 0, *options))

    def get(self, *queues: Word, count: int = 1, client: Client = "client") -> list[tuple[bytes, bytes, bytes]]:
        """GETJOB NOHANG; returns rows, none when there is no job."""
        return self("GETJOB", "NOHANG", "COUNT", count, "FROM", *(queues or ("q",)), client=client) or []

    def bodies(self, *queues: Word, count: int = 1_000) -> list[bytes]:
        """GETJOB NOHANG; returns the bodies."""
        return [body for _, _, body in self.get(*queues, count=count)]

    def show(self, job_id: bytes) -> dict[str, Any] | None:
        """SHOW, by name; None for an unknown job."""
        values = self("SHOW", job_id)
        return None if values is None else {values[at].decode(): values[at + 1] for at in range(0, len(values), 2)}

    def stat(self, queue: Word = "q") -> dict[str, Any] | None:
        """QSTAT FULL, by name; None for an unknown queue."""
        values = self("QSTAT", queue, "FULL")
        return None if values is None else {values[at].decode(): values[at + 1] for at in range(0, len(values), 2)}

    def job(self, job_id: bytes) -> Job:
        """The job itself, which must be known."""
        job = self.state.jobs.get(job_id)
        assert job is not None
        return job

    # Time, and the work of a driver.

    def advance(self, ms: int) -> None:
        """Let time pass; the node is looked at exactly when it asked for it."""
        end = self.clock.now() + ms
        while (at := self.node.deadline()) is not None and at <= end:
            self.clock.advance(max(0, at - self.clock.now()))
            self.tick()
        self.clock.advance(end - self.clock.now())
        self.node.begin()

    def tick(self) -> None:
        """Look at the deadlines now."""
        self.ticks += 1
        self.node.begin()
        self.node.tick()
        self.settle()

    def gone(self, client: Client) -> None:
        """End a client's connection."""
        self.node.begin()
        self.node.gone(client)
        self.settle()

    def settle(self) -> None:
        """Take what is in the outbox, and let the jobs go that wait for the journal: what it has is on the disk."""
        self._take_outbox()
        mark = self.state.durability.watermark
        for _ in range(SETTLED_AT_MOST):
            if not mark.held or self.state.durability.read_only:
                return
            self.node.requeueing.release(mark.last, mark.until)
            self.node.tick()
            self._take_outbox()
        raise AssertionError(f"jobs wait for ever: {mark.held}, {len(self.state.unfinished)} pieces of work")

    def _take_outbox(self) -> None:
        """Take what is in the outbox."""
        outbox = self.node.outbox
        while outbox.asked:
            asked = outbox.asked.pop(0)
            outcome = self._dispatch_now().execute(Session("another node", limited=False), list(asked.words), Outcome())
            self.node.questions.answer(asked, outcome.value)
        while outbox.replies:
            replies, outbox.replies = outbox.replies, []
            for client, value, units in replies:
                if units and client in self.vanished:
                    self.node.delivery.give_back(units)
                else:
                    self.answers[client.client if isinstance(client, Session) else client].append(value)
            if self.state.ready:
                self.node.delivery.serve()
        self.journal += outbox.journal
        outbox.journal.clear()
        if outbox.events:
            self.node.notifications.collect()
        sent, outbox.messages = outbox.messages, []
        self.events += [message[1:] for node_id, message in sent if node_id == self.node.id and message[0] == EVENT]
        outbox.messages = [entry for entry in sent if entry[0] != self.node.id]
        assert not (self.is_alone and outbox.messages), "a lone node has nobody to write to"


def in_journal(journal: Iterable[Record]) -> set[bytes]:
    """Ids of the jobs that a journal says are there."""
    ids: set[bytes] = set()
    for kind, *rest in journal:
        if kind == JOB_ADDED:
            ids.add(rest[0].id)
        elif kind == UNIT_LEASED:
            pass
        elif kind == FLUSHED:
            ids.clear()
        elif kind == JOB_GONE or (kind == UNIT_DONE and rest[1] == WORK_SCOPE):
            ids.discard(rest[0])
    return ids


def next_deadline(job: Job) -> int:
    """When something has to be done with a job, from its own fields."""
    # While others are asked about a job, its timer has ended, and they are asked again.
    if job.requeue_at and job.state != QUEUED and not job.flags & FLAG_ASKING:
        return min(job.requeue_at, job.expires_at)
    return job.expires_at


def check(server: Server) -> None:
    """Assert what holds between any two steps, whatever happened before."""
    state = server.state
    jobs = list(state.jobs)
    assert len(jobs) == len(state.jobs)
    named = [job for job in jobs if isinstance(job, NamedJob)]
    queues = state.queues.by_name
    counted = [
        *(JOB_COST + len(job.body) + max(0, len(job.queue) - NAME_FREE) for job in jobs),
        *(job.options.cost for job in jobs),
        *(EVENT_COST for job in jobs if job.options.kind),
        *(EARLY_COST + len(scope) for job in jobs if isinstance(job, Entry) for scope in job.early),
        *(NAME_COST + len(job.alias) for job in named),
        BOUND_COST * len(state.custody.bound),
        PENDING_COST * len(server.node.replication.pending),
        *(QUEUE_COST + len(name) for name in queues),
        COUNTS_COST * len(state.queues.counts),
        *(queue.grouped.cost for queue in queues.values() if queue.grouped is not None),
        *(queue.stream.cost for queue in queues.values() if queue.stream is not None),
        *(worker.cost for worker in server.node.workers.by_id.values()),
        *(HOME_COST + len(worker_id) for worker_id in server.node.homes.known),
        *(cost_of_register(name, known.value) for (name, _), known in state.queues.policies.registers.items()),
        *(SLOT_COST + len(slot.group) + len(slot.client) for slot in slots_of(server)),
    ]
    assert state.memory.used == sum(counted)
    for name in state.queues.policies.gates:
        limited = server.node.admission.of(name)
        assert limited is None or limited.waiting == sum(wish.waits for wish in limited.wishes.values())
    assert sorted(job.id for same in state.aliases.named.values() for job in same) == sorted(job.id for job in named)
    assert all(job in state.aliases.named[job.queue, job.alias] for job in named)
    queued: list[Unit] = []
    leased: list[Unit] = []
    for queue in state.queues.by_name.values():
        units = list(queue.units)
        assert len(units) == len(queue.units)
        assert units == sorted(units, key=lambda unit: (unit.order_key, unit.id))
        assert all(unit.queue == queue.name for unit in units)
        check_groups(state, queue)
        keeps = (
            queue.is_awaited and queue.units.ready_count and not queue.holds & HOLDS_ALL
            and queue not in state.waiting.behind and not queue.holds & LIMITED
        )  # fmt: skip
        assert not keeps, f"{queue.name!r} keeps a job from its consumers"
        queued += units
        began = [since for since, _ in queue.leased.values()]
        assert queue.tangled or began == sorted(began)
        assert all(unit.flags & FLAG_ELSEWHERE and not unit.flags & FLAG_LEASED for unit in queue.elsewhere)
        if queue.stream is not None:
            queued += queue.stream
            assert all(event.state == ACTIVE for event in queue.stream.delayed)
            check_log(queue.stream)
        leased += queue.leased
        assert queue.pause == state.queues.policies.pause_of(queue.name).bits | queue.pause_here
    held = state.durability.watermark.held  # their delay is over, and they wait for the journal
    delayed = [job for job in jobs if is_delayed(job) and job not in held]
    assert sorted(unit.id for unit in state.queues.delayed) == sorted(job.id for job in delayed)
    assert all(state.queues.delayed_in(name) >= count for name, count in Counter(job.queue for job in delayed).items())
    check_phases(state)
    policies = state.queues.policies
    assert all(name in queues for name, _ in policies.registers if policies.pause_of(name).bits)
    assert sorted(unit.id for unit in queued) == sorted(job.id for job in jobs if job.state == QUEUED)
    assert sorted(unit.id for unit in leased) == sorted(
        job.id for job in jobs if job.flags & FLAG_LEASED and job.options.retry_ms and job.options.kind != KIND_LOG
    )
    assert all(unit in leased for unit in state.custody.spans)
    for waiter in state.waiting.blocked.values():
        if isinstance(waiter, GroupWaiter):
            assert all(waiter in group.waiters for group in waiter.groups)
            continue
        waits = [queue.watchers if isinstance(waiter, Watcher) else queue.waiters for queue in waiter.queues]
        assert all(waiter in line for line in waits)
    assert all(unit in leased and worker.leases.get(unit) is not None for unit, worker in state.custody.bound.items())
    for worker in server.node.workers.by_id.values():
        for unit in worker.leases:
            is_event = isinstance(unit, PendingEntry)
            assert (unit.worker if is_event else state.custody.bound.get(unit)) is worker
            assert not is_event or (unit.state == ACTIVE and unit.group.units.get(unit.entry) is unit)
        assert list(worker.leases.values()) == sorted(worker.leases.values())
        assert not worker.ttl_ms or 0 < worker.awake_at <= worker.alive_at + worker.ttl_ms
    assert {*state.custody.acked, *state.custody.settled} == {job for job in jobs if job.state == ACKED}
    assert not state.custody.acked.keys() & state.custody.settled
    kept = {job.id for job in jobs if job not in state.custody.evictable or job in state.custody.limited}
    assert in_journal(server.journal) == kept
    deadline = server.node.deadline()
    due = [next_deadline(job) for job in jobs]
    due += [waiter.awake_at for waiter in state.waiting.blocked.values() if waiter.awake_at]
    if due:
        assert deadline is not None
        assert deadline <= min(due)
    assert not state.ready
    # What is cancelled is not kept: live entries, as many stale ones, and a few for each bucket in use.
    live = len(jobs) + len(state.waiting.blocked) + len(state.queues) + len(server.node.workers.by_id)
    assert state.schedule.entries <= 20 * live + WIDTH_MS


def check_phases(state: State) -> None:
    """Assert that the counts of each queue are what a walk over all jobs finds."""
    queues = state.queues
    found = {name: [0] * len(PHASE_NAMES) for name in queues.by_name}
    for job in state.jobs:
        found.setdefault(job.queue, [0] * len(PHASE_NAMES))[phase_of(queues, job)] += 1
    assert {name: tuple(counts) for name, counts in found.items()} == {
        name: tuple(count_phases(queues, name)) for name in queues.counts
    }
    in_order = queues.names_from(0, len(found) + 1)
    assert dict(in_order) == {name: each.serial for name, each in queues.counts.items()}
    assert in_order == sorted(in_order, key=lambda entry: entry[1])


def slots_of(server: Server) -> list[Slot]:
    """What a node remembers of the slots of limited queues."""
    witnesses = [server.node.witnesses.known(name) for name in server.state.queues.policies.gates]
    return [slot for witness in witnesses if witness is not None for slot in witness.table.by_id.values()]


def check_groups(state: State, queue: Queue) -> None:
    """Assert that a queue is held as its gate says, and that what its groups say is what its units say."""
    gate = state.queues.policies.gates.get(queue.name)
    assert bool(queue.holds & THROTTLED) == (gate is not None and gate.until > 0)
    grouped = queue.grouped
    assert (grouped is not None) == (gate is not None and gate.needs_groups) == bool(queue.holds & GROUPED)
    if grouped is None:
        assert queue.units.ready_count == len(queue.units)
        return
    assert grouped is queue.units
    assert gate is not None
    assert gate.is_fair == grouped.is_fair
    assert queue in state.waiting.behind or grouped.go_on(1)
    if queue in state.waiting.behind:
        return
    by_group: dict[bytes, list[Unit]] = {}
    for unit in grouped:
        if unit in grouped.lent:
            continue
        by_group.setdefault(unit.options.terms.group, []).append(unit)
    assert grouped.group_count == len(by_group)
    assert all(list(grouped.units_of(name)) == units for name, units in by_group.items())
    ready = [units for name, units in by_group.items() if name not in gate.groups.keys() | grouped.held_groups.keys()]
    assert {name for name in by_group if grouped.is_throttled(name)} == by_group.keys() & gate.groups.keys()
    assert sum(grouped.held_groups.values()) <= len(grouped.lent) - len(grouped.given)
    assert grouped.ready_count == sum(map(len, ready))
    if ready:
        heads = [units[0] for units in ready]
        assert grouped.head in heads
        assert grouped.is_fair or grouped.head is min(heads, key=lambda unit: (unit.order_key, unit.id))


def check_log(log: Stream) -> None:
    """Assert that what a log counts, and where its groups look, is what its facts say."""
    events = list(log)
    assert events == sorted(events, key=lambda event: (event.order_key, event.id))
    assert all(event.stream is log for event in events)
    assert {group.name for group in (*log.waiting, *log.begun)} <= log.groups.keys()
    assert log.cost == cost_of(log)
    for event in events:
        assert {unit.group for unit in units_of(event)} == {one for one in log.groups.values() if event in one.units}
        assert not event.early
    for name, group in log.groups.items():
        assert group.name == name
        assert group.stream is log
        assert not group.is_blank
        assert (group in log.waiting) == bool(group.waiters)
        assert (group in log.begun) == bool(group.epoch or group.floor)
        assert group.position <= log.furthest
        assert all(group.passed in (event.late or ()) for event in group.passed.late)
        done = [event for event in events if group.is_done(event)]
        leased = [event for event, unit in group.units.items() if unit.state == ACTIVE]
        redo = [event for event, unit in group.units.items() if unit.state == QUEUED]
        assert (group.done, group.leased, group.redo) == (len(done), len(leased), len(redo))
        assert group.leased + group.redo + group.done + group.available == len(log)
        assert set(group.units) <= set(events) - set(done)
        exceptions = [*group.passed.own, *group.passed.foreign]
        here = {event for event in events if not event.elsewhere}
        behind = {event for event in here if (event.order_key, event.id) <= group.position}
        late = behind - set(done) - set(group.units)
        assert {event for event in exceptions if isinstance(event, Entry)} >= late
        assert set(exceptions) & set(done) == set()
        assert {unit.entry for unit in exceptions if isinstance(unit, PendingEntry)} == set(redo) & here
        assert {unit.job for unit in exceptions} <= here
        assert all(unit.job.id[2:10] == log.origin for unit in group.passed.own)
        assert not any(unit.job.id[2:10] == log.origin for unit in group.passed.foreign)
        assert all(group.units[unit.entry] is unit for unit in exceptions if isinstance(unit, PendingEntry))
        assert all(unit.awake_at == unit.requeue_at + 1 for unit in group.units.values() if unit.state == ACTIVE)


def cost_of(log: Stream) -> int:
    """What a log takes, added up."""
    groups = sum(
        cost_of_group(name) + UNIT_COST * len(group.units) + LATE_COST * len(group.passed.late)
        for name, group in log.groups.items()
    )
    used = {scope for event in log for scope in event.done}
    assert used == set(log.marks)
    facts = sum(MARK_COST + len(scope) for scope in used) + sum(marks.cost(event.marks) for event in log)
    return LOG_COST + groups + facts


def make_job(
    number: int = 1, *, order_key: int | None = None, ttl_ms: int = 60_000, retry_ms: int = 1_000, now: int = 1_000
) -> Job:
    """A job that no node made, with an id that sorts by its number."""
    options = JobOptions(ttl_ms=ttl_ms, retry_ms=retry_ms, delay_ms=0, replicate=1)
    options.stamp(now)
    job = Job(b"DI01234567%032x05a0SQ" % number, b"q", b"body", number, options)
    if order_key is not None:
        job.order_key = order_key
    return job
