"""Read-only view of a node: everything that people and programs may look at without a command.

    pages, API, metrics, INFO --> NodeView --> Node

The view copies nothing large.  It returns the node's own objects: read them, never change them, and look them up
again in the next turn of the loop.  A look-up costs as much as its answer.

The clocks are read at each call.  Times are integer milliseconds.
"""

from collections.abc import Collection, Mapping

from disqued.core.cluster.schedules import Schedules
from disqued.core.model.counters import Counters
from disqued.core.model.gates import Limits
from disqued.core.model.groups import Group
from disqued.core.model.job import Job, Unit
from disqued.core.model.memory import Memory
from disqued.core.model.messages import Vitals
from disqued.core.model.peers import KnownNode, Peer
from disqued.core.model.phases import PhaseCounts, count_phases, phase_of
from disqued.core.model.policies import QUEUE_FIELD_NAMES, PauseSetting, PolicyTable, Register, is_empty
from disqued.core.model.queues import HOLDS, Queue
from disqued.core.model.slots import Slot
from disqued.core.model.vitals import own_vitals
from disqued.core.model.waiters import Lease
from disqued.core.model.worker import RemoteWorker, Worker
from disqued.core.node import Node
from disqued.core.work.background import Background


class LimitsView:
    """Limits of queues, and what a node knows of their slots."""

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        self._node = node

    def of(self, name: bytes) -> Limits:
        """Return the limits that the steward of a queue holds it to."""
        return self._node.state.queues.policies.limits_of(name)

    @property
    def queue_count(self) -> int:
        """Number of queues that have limits, whether they are there or not."""
        return len(self._node.state.queues.policies.limited)

    @property
    def slots(self) -> int:
        """Number of slots in use in the whole cluster, as far as this node knows: O(queues with limits)."""
        return sum(len(self.slots_of(name)) for name in self._node.state.queues.policies.limited)

    def slots_of(self, name: bytes) -> Mapping[bytes, Slot]:
        """Return the slots of a queue in the whole cluster, by job, as far as this node knows."""
        witness = self._node.witnesses.known(name)
        return {} if witness is None else witness.table.by_id

    def client_of(self, name: bytes, slot: Slot) -> bytes:
        """Return who has the job of a slot: a worker's id, a client's name or address; empty = that is not known."""
        return self._node.witnesses.client_of(name, slot)

    def steward_of(self, name: bytes) -> bytes:
        """Return the node that gives the slots of a queue, as far as this node can tell."""
        return self._node.witnesses.steward_of(name)

    def awaited(self, queue: Queue) -> tuple[int, int]:
        """Count the jobs for which this node awaits a slot, and those of them that have to wait: O(the former)."""
        units, asked = queue.grouped, self._node.admission.of(queue.name)
        if units is None or asked is None:
            return 0, 0
        awaited = units.lent.keys() - units.given.keys()
        return len(awaited), sum(wish.waits and wish.unit in awaited for wish in asked.wishes.values())

    def hindrance(self, queue: Queue, unit: Unit) -> bytes:
        """Say why a job that waits in a queue may not be handed out; empty = nothing is known that hinders it."""
        if not queue.holds & HOLDS:
            return b""
        return self._node.hindrances.of_job(queue, unit)

    def standstill(self, name: bytes) -> bytes:
        """Say why no slot of a queue is given, whatever the job; empty = nothing is known, or it has no limits."""
        return self._node.hindrances.of_slots(name)


class PhasesView:
    """Where jobs are, as a node knows it (`model.phases`)."""

    __slots__ = ("_node",)

    def __init__(self, node: Node) -> None:
        self._node = node

    def of(self, job: Job) -> int:
        """Return the phase of a job."""
        return phase_of(self._node.state.queues, job)

    def count(self, name: bytes) -> PhaseCounts:
        """Count the jobs of a queue by phase, whether the queue is there or not: O(1)."""
        return count_phases(self._node.state.queues, name)

    def lease_of(self, job: Job) -> Lease | None:
        """Return since when a consumer of this node has a job, and which; None where that is not known."""
        queue = self._node.state.queues.by_name.get(job.queue)
        return None if queue is None else queue.leased.get(job)


class NodeView:
    """The readable part of one node."""

    __slots__ = ("_node", "_state", "limits", "phases", "policies", "schedules")

    def __init__(self, node: Node) -> None:
        self._node = node
        self._state = node.state
        self.policies: PolicyTable = node.state.queues.policies  #: what the cluster says of queues, and schedules
        self.limits: LimitsView = LimitsView(node)
        self.phases: PhasesView = PhasesView(node)
        self.schedules: Schedules = node.schedules  #: call only what asks and changes nothing

    # The node.

    @property
    def id(self) -> bytes:
        """Its id; CLUSTER RESET HARD changes it."""
        return self._state.node_id

    def now(self) -> int:
        """Return monotonic milliseconds."""
        return self._node.clock.now()

    def wall(self) -> int:
        """Return unix milliseconds."""
        return self._node.clock.wall()

    @property
    def counters(self) -> Counters:
        """Counts since its start."""
        return self._state.counters

    @property
    def memory(self) -> Memory:
        """Its memory, by its own count: use, limit and level."""
        return self._state.memory

    @property
    def is_leaving(self) -> bool:
        """True while it leaves its cluster and takes no new jobs."""
        return self._state.leaving

    @property
    def is_read_only(self) -> bool:
        """True while the journal fails and no jobs are added."""
        return self._state.durability.read_only

    @property
    def vitals(self) -> Vitals:
        """Figures that it sends to other nodes with each PONG."""
        state = self._state
        return own_vitals(state.memory, len(state.jobs), state.counters)

    # Jobs.

    def job(self, job_id: bytes) -> Job | None:
        """Return the job with this id; None when the node does not know it."""
        return self._state.jobs.get(job_id)

    def jobs_of_table(self, number: int, place: int = 0, count: int | None = None) -> list[Job]:
        """Return jobs of one of the TABLES of the registry, oldest entry first: `count` from a place on, or the rest.

        The cost is that of `place + count` entries.
        """
        return self._state.jobs.table(number, place, None if count is None else place + count)

    @property
    def job_count(self) -> int:
        """Number of jobs that it knows, in any state."""
        return len(self._state.jobs)

    def dead_failing_delayed(self, name: bytes | None = None) -> tuple[int, int, int]:
        """Count dead jobs, other jobs of which a failure is known, and delayed jobs: of a queue, or of all.

        Jobs of a queue that is not there may be delayed.
        """
        queues = self._state.queues
        if name is None:
            return queues.dead, queues.failing, len(queues.delayed)
        queue = queues.by_name.get(name)
        dead, failing = (0, 0) if queue is None else (len(queue.dead), len(queue.failing))
        return dead, failing, queues.delayed_in(name)

    @property
    def acked_count(self) -> int:
        """Number of acknowledged jobs, kept until every holder knows, and for as long as their results are."""
        return self._state.custody.acked_count

    @property
    def pending_count(self) -> int:
        """Number of jobs that wait for their copies."""
        return len(self._node.replication.pending)

    @property
    def blocked_count(self) -> int:
        """Number of consumers that wait in a command that fetches."""
        return len(self._state.waiting.blocked)

    # Queues.

    def queue(self, name: bytes) -> Queue | None:
        """Return the queue of this name; None when there is none."""
        return self._state.queues.by_name.get(name)

    def pause_of(self, name: bytes) -> PauseSetting:
        """Return what the whole cluster was told of the pause of a queue last."""
        return self._state.queues.policies.pause_of(name)

    def policy_of(self, name: bytes) -> dict[bytes, Register]:
        """Return the fields of the policy of a queue that are set, by name."""
        registers = self._state.queues.policies.registers
        found = {field: registers.get((name, number)) for number, field in QUEUE_FIELD_NAMES.items()}
        return {
            field: register
            for field, register in found.items()
            if register is not None and not is_empty(register.value)
        }

    def known_from(self, serial: int, count: int) -> tuple[list[Queue], int]:
        """Look at `count` names from this serial on, in the order in which they came.

        Returns queues, and the serial to go on with (0 = done).  A name that has jobs but no queue here is returned as
        an empty queue with serial 0.
        """
        queues, now = self._state.queues, self._state.now
        names = queues.names_from(serial, count)
        found = []
        for name, _ in names:
            queue = queues.by_name.get(name)
            if queue is not None or queues.has_jobs(name):
                found.append(queue or Queue(name, 0, now, 0))
        return found, names[-1][1] + 1 if names else 0

    @property
    def queue_count(self) -> int:
        """Number of queues."""
        return len(self._state.queues)

    def consumers_of(self, group: Group) -> int:
        """Count the consumers of a group: waiting ones and registered ones."""
        return self._node.streams.consumers_of(group)

    # Workers.

    def worker(self, worker_id: bytes) -> Worker | RemoteWorker | None:
        """Return the worker with this id, or its home when it lives on another node; None for an unknown one."""
        return self._node.workers.by_id.get(worker_id) or self._node.homes.known.get(worker_id)

    @property
    def workers_here(self) -> Collection[Worker]:
        """Live workers of this node; iterate within one turn of the loop."""
        return self._node.workers.by_id.values()

    @property
    def workers_elsewhere(self) -> Collection[RemoteWorker]:
        """Live workers of other nodes; iterate within one turn of the loop."""
        return self._node.homes.known.values()

    @property
    def units_held(self) -> int:
        """Number of jobs and events held by workers of this node: O(workers)."""
        return sum(len(worker.leases) for worker in self._node.workers.by_id.values())

    def holder_of(self, unit: Unit) -> Worker | None:
        """Return the worker of this node that holds a unit; None when none does."""
        return self._node.workers.leases.holder_of(unit)

    def held_since(self, unit: Unit) -> int | None:
        """Return when a consumer of this node took a unit that it still holds; None when none holds it."""
        worker = self.holder_of(unit)
        if worker is not None:
            return worker.leases[unit]
        queue = self.queue(unit.queue)
        return None if queue is None else queue.held_since(unit)

    def home_of(self, job: Job) -> RemoteWorker | None:
        """Return the home of the worker on another node that holds a job; None when none is known."""
        return self._state.custody.elsewhere.get(job)

    # Background work.

    @property
    def background_pushes(self) -> int:
        """Number of NOBLOCK pushes that still wait for copies."""
        return self._node.lists.background

    @property
    def background_additions(self) -> Background:
        """NOBLOCK additions of events: how many still wait for copies, and how many failed."""
        return self._node.streams.background

    # The cluster.

    @property
    def peers(self) -> Collection[Peer]:
        """The other nodes; iterate within one turn of the loop."""
        return self._state.peers.by_id.values()

    @property
    def linked_count(self) -> int:
        """Number of other nodes to which our link is open."""
        return len(self._state.peers.linked)

    @property
    def peer_timeout_ms(self) -> int:
        """cluster-node-timeout: silence after which a node is suspected."""
        return self._state.peers.timeout_ms

    def known_nodes(self) -> list[KnownNode]:
        """Return this node, then the others, then the addresses that it tries to reach."""
        return [*self._node.membership.lines(), *self._node.membership.meetings.lines()]
