"""One node: which input goes to which machine.

    command --+                         +--> streams       entries: QADD; entry_delivery: QGET; pending_entries: QACK
              |                         +--> additions     ADDJOB; replication: copies; placement: on which nodes
    message --+                         |    keys          ADDJOB KEY: one job for each
              |                         +--> delivery      GETJOB; blocking: blocked consumers
              |                         |    requeueing    retries, NACK; letters: dead jobs; redrives: REDRIVE
    link    --+--> Node, one step at a  +--> acks          ACKJOB, DELJOB, collection; purges: QPURGE
    gone    --+    time, on one State   |    outcomes      WAITJOB; cancels: CANCEL; progress: WORKING PROGRESS
    tick    --+           |             +--> federation    jobs to where consumers wait; policies: pauses of queues
                          |             +--> gates         FAIR and THROTTLE; stewards, admission: limits
                          |             +--> idleness      queues that expire
                          |             +--> membership    who is there; its detector: who answers
                          |             +--> workers       who is alive and has what; homes: on which node
                          |             +--> notifications what listeners receive
                          |             +--> timeouts      waits that end without anything
                          |
                       Outbox  --> the driver: journal, commit, messages, replies

A message, a deadline or an event reaches the machines through their tables and methods (`model.machine`).

A step begins with `begin`, which reads the clocks, unless they stand, and runs to its end; several commands of one
client may share it.  The same clocks, the same generator and the same inputs give the same effects in the same order.

Times are integer milliseconds.
"""

from random import Random
from typing import Protocol

from mypy_extensions import mypyc_attr

from disqued.core.cluster.admission import Admission
from disqued.core.cluster.federation import Federation
from disqued.core.cluster.gates import Gates
from disqued.core.cluster.hindrances import Hindrances
from disqued.core.cluster.idleness import Idleness
from disqued.core.cluster.leaving import Leaving
from disqued.core.cluster.membership import Membership
from disqued.core.cluster.notifications import Notifications
from disqued.core.cluster.policy_sync import Policies
from disqued.core.cluster.questions import Questions
from disqued.core.cluster.schedules import NoCalendar, Schedules
from disqued.core.cluster.stewards import Stewards
from disqued.core.cluster.witnesses import Witnesses
from disqued.core.lists import Lists
from disqued.core.model import messages
from disqued.core.model.clock import Calendar, Clock
from disqued.core.model.fate import MARK
from disqued.core.model.groups import Entry, PendingEntry, read_scope
from disqued.core.model.ids import JobIds
from disqued.core.model.job import ACKED, ACTIVE, DEAD, QUEUED, Job, Unit
from disqued.core.model.machine import Hear, Machine, handlers, join
from disqued.core.model.memory import Memory
from disqued.core.model.messages import EntryLease, Gossip, Greeting, Message, Target
from disqued.core.model.outbox import GONE_EVICTED, GONE_EXPIRED, JOB_GONE, Client
from disqued.core.model.queues import Queue
from disqued.core.model.schedule import Timed
from disqued.core.model.state import ASKED_MS, QUEUE_IDLE_MS, State
from disqued.core.model.trace import SET_MS
from disqued.core.model.unfinished import Parts
from disqued.core.model.worker import Worker
from disqued.core.streams.acksets import AckSets
from disqued.core.streams.entries import Streams
from disqued.core.streams.entrydelivery import EntryDelivery
from disqued.core.streams.offers import EntryOffers
from disqued.core.streams.pending import PendingEntries
from disqued.core.streams.readers import Readers
from disqued.core.streams.reconciliation import Reconciliation
from disqued.core.streams.starts import GroupStarts
from disqued.core.timeouts import Timeouts
from disqued.core.work.acks import Acks
from disqued.core.work.additions import Additions
from disqued.core.work.blocking import Blocking
from disqued.core.work.cancels import Cancels
from disqued.core.work.consumers import Consumers
from disqued.core.work.deadletters import DeadLetters
from disqued.core.work.delivery import Delivery
from disqued.core.work.fates import Fates
from disqued.core.work.inquiries import Inquiries
from disqued.core.work.keys import Keys
from disqued.core.work.outcomes import Outcomes
from disqued.core.work.placement import Placement
from disqued.core.work.progress import Progress
from disqued.core.work.purges import Purges
from disqued.core.work.queueing import Queueing
from disqued.core.work.redrives import Redrives
from disqued.core.work.replicas import Replicas
from disqued.core.work.replication import Replication
from disqued.core.work.requeueing import Requeueing
from disqued.core.work.sessions import Sessions
from disqued.core.work.sharing import Sharing
from disqued.core.workers.homes import Homes
from disqued.core.workers.tasks import Tasks
from disqued.core.workers.worker_leases import WorkerLeases
from disqued.core.workers.worker_moves import WorkerMoves
from disqued.core.workers.workers import Workers
from disqued.errors import OutOfMemory

DUE_PER_TICK = 1_000  #: deadlines handled before clients get their turn again, some milliseconds' work
EFFORT_PER_TICK = 20_000  #: what deadlines may be worth before the rest has to wait: see `Unfinished.effort`
EVICTED_PER_CYCLE = 200  #: jobs, and queues looked at, per call of `make_room`
QUEUES_PER_TICK = 20  #: queues looked at per tick while memory is low


class Call(Protocol):
    """A command with its arguments, ready to run."""

    def run(self, node: "Node", client: Client) -> object:
        """Carry it out; the value that is returned is the reply."""


@mypyc_attr(acyclic=True)
class CompiledCall:
    """A call whose class is compiled with the node, which runs it without looking for its method."""

    __slots__ = ()

    # Not an abstract class: isinstance is asked for every command, and costs an abstract one five times as much.

    def run(self, node: "Node", client: Client) -> object:
        """Carry it out; each kind of call does so itself."""
        raise NotImplementedError


class Node:
    """The queue server without its sockets, files and clocks."""

    def __init__(  # noqa: PLR0915 - a line for each machine
        self, node_id: bytes, clock: Clock, rng: Random, *, maxmemory: int, evicts: bool = True,
        calendar: Calendar | None = None,
    ) -> None:  # fmt: skip
        """Make an empty node; without a calendar it fires no cron lines.

        `node_id` is 40 hex digits; `rng` gives the seed of the job ids, so it must never repeat itself from one
        start of the same node to the next.
        """
        seed = b"%040x" % rng.getrandbits(160)
        self.clock = clock
        self._clocks_stand = False
        own_rng = Random(rng.getrandbits(64))  # noqa: S311 - it draws nodes and shifts times, and hides nothing
        self.state = State(node_id, JobIds(node_id, seed), Memory(maxmemory, evicts=evicts), own_rng)
        self.outbox = self.state.outbox
        self.queueing = Queueing(self.state)
        self.sessions = Sessions(self.state)
        self.blocking = Blocking(self.state, self.sessions)
        self.group_starts = GroupStarts(self.state)
        self.pending_entries = PendingEntries(self.state, self.group_starts)
        self.streams = Streams(self.state, self.queueing, self.group_starts, self.pending_entries)
        self.entry_delivery = EntryDelivery(self.state, self.blocking, self.pending_entries)
        self.acksets = AckSets(self.state, self.streams, self.group_starts, self.pending_entries)
        self.offers = EntryOffers(self.state, self.entry_delivery)
        self.readers = Readers(self.state, self.blocking, self.entry_delivery)
        self.placement = Placement(self.state)
        #: Every machine, in the order in which each event reaches them.
        self.machines: list[Machine] = []
        self.fates = Fates(self.state, self.machines)
        self.replication = Replication(self.state, self.queueing, self.streams, self.placement)
        self.additions = Additions(self.state, self.queueing, self.placement, self.replication)
        self.acks = Acks(self.state, self.replication)
        self.replicas = Replicas(
            self.state, self.queueing, self.streams, self.placement, fates=self.fates, acks=self.acks
        )
        self.purges = Purges(self.state, self.acks)
        self.outcomes = Outcomes(self.state)
        self.progress = Progress(self.state, self.fates)
        self.letters = DeadLetters(self.state, self.queueing, self.fates)
        self.requeueing = Requeueing(self.state, self.queueing, self.acks, self.streams, self.letters)
        self.cancels = Cancels(self.state, self.queueing, self.acks, self.fates)
        self.sharing = Sharing(self.state, self.requeueing, self.replication)
        self.delivery = Delivery(self.state, self.queueing, self.blocking, self.entry_delivery)
        self.witnesses = Witnesses(self.state)
        self.federation = Federation(self.state, self.delivery, self.fates, self.purges, self.witnesses)
        self.policies = Policies(self.state, self.queueing, self.federation, self.machines)
        self.idleness = Idleness(self.state, self.policies)
        self.gates = Gates(self.state, self.policies, self.federation, self.delivery)
        self.admission = Admission(self.state, self.witnesses, self.delivery, self.gates)
        self.stewards = Stewards(self.state, self.witnesses, self.admission)
        self.hindrances = Hindrances(self.state, self.witnesses, self.admission, self.stewards)
        self.schedules = Schedules(
            self.state, self.policies, self.additions, self.placement, outcomes=self.outcomes,
            calendar=calendar or NoCalendar(),
        )  # fmt: skip
        self.consumers = Consumers()
        self.membership = Membership(self.state, self.machines)
        self.reconciliation = Reconciliation(
            self.state, self.streams.owners, self.pending_entries, self.entry_delivery, self.acksets
        )
        self.leaving = Leaving(self.state, self.delivery, self.replication, self.federation, self.membership)
        self.notifications = Notifications(self.state)
        leases = WorkerLeases(self.state, self.requeueing, self.notifications, self.entry_delivery.returned)
        self.workers = Workers(self.state, leases, self.sessions, self.blocking, self.notifications)
        self.homes = Homes(self.state, self.queueing, self.sharing, self.workers, self.notifications)
        self.worker_moves = WorkerMoves(self.state, self.queueing, self.sharing, self.workers, self.homes)
        self.lists = Lists(self.state, self.queueing, self.workers, self.homes, self.letters)
        self.tasks = Tasks(self.state, self.requeueing, self.acks, self.workers, self.notifications)
        self.inquiries = Inquiries(self.state, self.acks)
        self.keys = Keys(self.state, self.inquiries)
        self.redrives = Redrives(self.state, self.letters)
        self.questions = Questions(self.state)
        self.timeouts = Timeouts(
            self.state, self.blocking, self.readers, self.federation.local_demand, replication=self.replication,
            keys=self.keys, outcomes=self.outcomes,
        )  # fmt: skip
        self._of_client = self.sessions.by_client
        self.machines += [
            self.membership, self.membership.detector, self.blocking, self.queueing, self.requeueing, self.keys,
            self.placement, self.replication, self.replicas, self.sharing, self.acks, self.acks.rounds, self.fates,
            self.letters, self.cancels, self.progress, self.outcomes, self.lists, self.consumers,
            self.federation, self.federation.local_demand, self.policies, self.idleness, self.gates,
            self.witnesses, self.admission, self.stewards,
            self.schedules,
            self.leaving, self.workers,
            self.worker_moves, self.homes,
            self.notifications, self.group_starts, self.streams, self.acksets, self.offers, self.readers,
            self.reconciliation, self.inquiries, self.purges, self.redrives, self.questions, self.timeouts,
        ]  # fmt: skip
        #: Messages that concern several machines, then those that one machine takes.
        self._hears: dict[int, Hear] = {
            messages.PING: self._on_ping,
            messages.GOTJOB: self._on_gotjob,
            messages.SETACK: self._on_setack,
            messages.DELIVERED: self._on_delivered,
            **handlers(self.machines),
        }
        #: What is done when something is due, by its class; the classes that `_due` names are not in here.
        self._acts = join(machine.due_table() for machine in self.machines)
        self.state.waiting.abandons.update(join(machine.abandon_table() for machine in self.machines))
        self._queue_cursor = 0
        self.begin()
        self.witnesses.start()

    @property
    def id(self) -> bytes:
        """Its id; CLUSTER RESET HARD gives it another one."""
        return self.state.node_id

    # Inputs.

    def begin(self, actor: Client | None = None) -> None:
        """Begin a step, on behalf of a client or because something is due: read the clocks, unless they stand."""
        state = self.state
        if not self._clocks_stand:
            self._read_clocks()
        trace = state.trace
        trace.actor = actor
        if trace.full is not None:
            if not -SET_MS < state.wall - state.now - trace.ahead_ms < SET_MS:
                trace.note_clock(state.wall, state.now)
            trace.full.act(state.wall, state.now, actor)

    def stop_clocks(self) -> None:
        """Let what begins from now on, until `start_clocks`, happen at this moment."""
        self._read_clocks()
        self._clocks_stand = True

    def start_clocks(self) -> None:
        """Read the clocks for each step again."""
        self._clocks_stand = False

    def moment(self) -> int:
        """What time it is to who comes now: that at which the clocks stand, if they do."""
        return self.state.now if self._clocks_stand else self.clock.now()

    def _read_clocks(self) -> None:
        state = self.state
        state.now = self.clock.now()
        state.wall = self.clock.wall()
        lead_ms = state.wall - state.now
        if lead_ms > state.durability.watermark.lead_ms:
            state.durability.watermark.lead_ms = lead_ms

    def command(self, client: Client, call: Call) -> object:
        """Run a command; returns its reply, or what `run` returns for a client that is now blocked."""
        if self._of_client:
            self.sessions.heard(client)
        value: object
        if isinstance(call, CompiledCall):  # noqa: SIM108 - one of the two is compiled to a call of that very method
            value = call.run(self, client)
        else:
            value = call.run(self, client)
        state = self.state
        if state.ready or state.demand.giving:
            self.serve()
        return value

    def message(self, sender: bytes, message: Message) -> None:
        """Hear a message of another node; those of nodes that are not known are counted and change nothing."""
        state = self.state
        peer = state.peers.by_id.get(sender)
        if peer is None:
            state.peers.refused += 1
            return
        state.trace.actor = sender
        peer.heard_at = state.now
        hear = self._hears[message[0]]
        match message:
            # Frequent numbers of fields: compiled code would make a list of *fields, and a tuple of that.
            case (_, first):
                hear(sender, first)
            case (_, first, second):
                hear(sender, first, second)
            case (_, first, second, third, fourth):
                hear(sender, first, second, third, fourth)
            case _:
                hear(sender, *message[1:])
        if state.ready or state.demand.giving:
            self.serve()

    def link_opened(self, target: Target, greeting: Greeting, own_host: str) -> bool:
        """Our link to a target is proven: it leads to the node of this greeting, from this address of ours.

        Returns whether the link is wanted: not one to ourselves, and not a second one.
        """
        wanted = self.membership.link_proven(target, greeting, own_host)
        if wanted:
            for machine in self.machines:
                machine.link_opened(greeting.id)
            self.serve()
        return wanted

    def link_closed(self, node_id: bytes) -> None:
        """Our link to a node is gone; what had not left on it is lost."""
        for machine in self.machines:
            machine.link_closed(node_id)
        self.serve()

    def greeted(self, greeting: Greeting, host: str, own_host: str) -> None:
        """The link of another node to us is proven: it comes from `host` and leads to `own_host`."""
        self.membership.greeting_proven(greeting, host, own_host)
        for machine in self.machines:
            machine.greeted(greeting.id)

    def serve(self) -> None:
        """Hand out the jobs that consumers wait for: those of this node first, then those of others."""
        while self.state.ready or self.state.demand.giving or self.entry_delivery.offered:
            self.delivery.serve()
            self.federation.give()
            self.offers.offer()

    def in_parts(self, client: Client, parts: Parts) -> None:
        """Carry out a command that is too long for one step; the client is blocked and hears when it is done."""
        self.state.work(parts, client)

    def gone(self, client: Client, handed: list[bytes] | None = None) -> None:
        """A client's connection ended: it takes no job any more, and those handed to it that it never saw go back."""
        waiter = self.state.waiting.blocked.get(client)
        if waiter is not None:
            self.blocking.stop_waiting(client)
            self.federation.local_demand.deserted(waiter.queues)
        self.state.waiting.abandon(client)
        self.state.unfinished.forsake(client)
        if handed:
            # What was handed out as a process is named by its id, of which the job's is the first part.
            self._give_back(client, handed)
        self.state.custody.part_with(client)
        for machine in self.machines:
            machine.client_gone(client)
        self.serve()

    def _give_back(self, client: Client, handed: list[bytes]) -> None:
        """Let go back what was handed to a client that never saw it; an event's id has a scope behind.

        A job whose retry time is over may be with somebody else by now.
        """
        jobs: list[Unit] = []
        for name in handed:
            job_id, _, scope = name.partition(b":")
            job = self.state.jobs.get(job_id)
            if isinstance(job, Entry):
                if not self.entry_delivery.handed(job, scope):
                    self.reconciliation.unseen(job_id, scope)
            elif job is not None:
                if not job.options.retry_ms or self._has(client, job):
                    jobs.append(job)
            elif read_scope(scope) is not None:
                self.reconciliation.unseen(job_id, scope)
        self.delivery.give_back(jobs)
        self.serve()

    def _has(self, client: Client, job: Unit) -> bool:
        """Return whether a client has a job that is delivered more than once: it is that one's lease."""
        queue = self.state.queues.by_name.get(job.queue)
        lease = None if queue is None else queue.leased.get(job)
        return lease is not None and lease[1] is self.state.custody.consumers.get(client)

    def tick(self) -> None:
        """Do what is due, or the first part of it: ask `deadline` again afterwards."""
        state = self.state
        state.unfinished.effort = 0
        items = state.schedule.pop_due(state.now, DUE_PER_TICK)
        for at, item in enumerate(items, 1):
            self._due(item)
            if state.unfinished.effort > EFFORT_PER_TICK and at < len(items):
                self._put_off(items[at:])
                break
        if state.memory.is_low:
            self._collect_queues(QUEUES_PER_TICK)
        if state.ready or state.demand.giving:
            self.serve()
        if len(state.unfinished) and not state.unfinished.awake_at:
            self._go_on()

    def _put_off(self, items: list[Timed]) -> None:
        """Leave those of these for the next tick of which one alone may be much work; do what the others ask for."""
        state = self.state
        for item in items:
            if not isinstance(item, Job | PendingEntry | Worker):
                self._due(item)
            elif not item.awake_at:
                state.schedule.add(item, state.now)

    def _go_on(self) -> None:
        """Do a part of the work that was begun and not finished."""
        state = self.state
        try:
            state.unfinished.go_on(self.outbox)
        finally:
            state.keep_going()
            self.serve()

    def deadline(self) -> int | None:
        """When the next tick is due, at the latest; None = not until something else happens."""
        return self.state.schedule.next_at()

    def _due(self, item: Timed) -> None:
        if isinstance(item, Job):
            self._job_due(item)
        elif isinstance(item, PendingEntry):
            self.pending_entries.due(item)
        elif isinstance(item, Queue):
            self._queue_due(item)
        else:
            act = self._acts.get(type(item))
            if act is not None:
                act(item)

    def _queue_due(self, queue: Queue) -> None:
        if not self.collect_queue(queue):
            asks = queue.stream is not None and queue.stream.asks
            idle_ms = ASKED_MS if asks else QUEUE_IDLE_MS[self.state.memory.level]
            since = queue.accessed_at if queue.is_idle else self.state.now
            self.state.schedule.add(queue, max(since + idle_ms, self.state.now + 1_000))

    def collect_queue(self, queue: Queue) -> bool:
        """Forget what a queue does not need any more, and the queue if it is idle; say whether it was."""
        if queue.stream is not None:
            self.group_starts.forget_unneeded(queue.stream)
        return self.state.collect_queue(queue)

    def _job_due(self, job: Job) -> None:
        if self.state.jobs.get(job.id) is not job:
            return  # something else that was due at the same time has dropped it
        if job.state in (ACTIVE, QUEUED, DEAD):
            self.requeueing.due(job)
        elif job.state == ACKED:
            self.acks.due(job)
        else:
            self.replication.refuse(job)

    def _on_gotjob(self, sender: bytes, job_id: bytes) -> None:
        job = self.replication.on_gotjob(sender, job_id)
        self.leaving.on_gotjob(sender, job_id)
        if job is None:
            if not self.replication.has_given_up(job_id):
                self.acksets.on_gotjob(sender, job_id)
        elif isinstance(job, Entry):
            self.acksets.tell(sender, job)

    def _on_ping(self, sender: bytes, flags: int, rumours: tuple[Gossip, ...]) -> None:
        self.membership.detector.on_ping(sender, flags, rumours)
        self.inquiries.on_ping(sender)

    def _on_setack(self, sender: bytes, job_id: bytes, scope: bytes, last: bool, holders: frozenset[bytes]) -> None:
        if not scope or scope.startswith(MARK):
            self.acks.on_setack(sender, job_id, scope, last, holders)
            return
        event = self.state.jobs.get(job_id)
        # That a group is done with an event that is not here does not end the event.
        if isinstance(event, Entry):
            self.pending_entries.on_setack(sender, event, scope, holders)

    def _on_delivered(  # noqa: PLR0917 - the fields of the message
        self, sender: bytes, job_id: bytes, scope: bytes, left_ms: int, elapsed_ms: int, deliveries: int
    ) -> None:
        event = self.state.jobs.get(job_id)
        if isinstance(event, Entry):
            self.pending_entries.on_delivered(sender, event, EntryLease(scope, left_ms, elapsed_ms, deliveries))
        else:
            self.sharing.on_delivered(sender, job_id, scope, left_ms, elapsed_ms, deliveries)

    # The whole node.

    def flush(self) -> None:
        """Forget every job and queue; consumers that wait are answered: no jobs."""
        for machine in self.machines:
            machine.flushing()
        self.state.flush()
        for machine in self.machines:
            machine.flushed()

    def note_expired(self, job_ids: list[bytes]) -> None:
        """Journal that jobs which this node never took in are gone: their time was over."""
        if self.state.journaling:
            self.outbox.journal += [(JOB_GONE, job_id, GONE_EXPIRED) for job_id in job_ids]

    def has_room_for_names(self, size: int) -> bool:
        """Return whether a command that adds no data may keep names of so many bytes; makes room where it can."""
        memory = self.state.memory
        return memory.has_room(size) or (self.make_room() and memory.has_room(size))

    def check_names(self, size: int) -> None:
        """Check that a command that adds no data may keep names of so many bytes.  Raises OutOfMemory (OOM)."""
        if not self.has_room_for_names(size):
            raise OutOfMemory

    def make_room(self) -> bool:
        """Evict what the guarantees allow while memory is over 95 %; say whether a job may be added.

        Bounded: a call evicts `EVICTED_PER_CYCLE` jobs at most, then looks at as many queues.
        """
        state, memory = self.state, self.state.memory
        if memory.evicts:
            for job in list(_first(state.custody.evictable, EVICTED_PER_CYCLE)):
                if memory.level < 2:
                    break
                if job.state == ACKED:
                    state.counters.evicted_acked += 1
                else:
                    state.counters.evicted_once += 1
                state.forget(job, GONE_EVICTED)
            if memory.level >= 2:
                self._collect_queues(EVICTED_PER_CYCLE)
        return memory.level < 3

    def _collect_queues(self, count: int) -> None:
        """Look at the next few queues, some of which may be idle for long enough now that memory is low."""
        queues = self.state.queues.from_serial(self._queue_cursor, count)
        self._queue_cursor = queues[-1].serial + 1 if len(queues) == count else 0
        for queue in queues:
            self.collect_queue(queue)


def _first(jobs: dict[Job, None], count: int) -> list[Job]:
    return [job for job, _ in zip(jobs, range(count), strict=False)]
