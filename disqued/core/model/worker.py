"""Workers: clients that must stay alive to keep their tasks.  Data alone, changed by the machines of `core.workers`.

Times are integer milliseconds of the monotonic clock.
"""

from disqued.core.model.job import Job, Unit
from disqued.core.model.memory import WORK_COST, WORKER_COST
from disqued.core.model.outbox import Client
from disqued.core.model.schedule import Timed


class ConnectionWorkers:
    """The workers whose life a connection shows: its every command is a sign of life of all of them."""

    __slots__ = ("heard_at", "workers")

    def __init__(self, now: int) -> None:
        self.heard_at: int = now  #: the last command
        self.workers: dict[Worker, int] = {}  #: each with its epoch then; the last one is who the connection works as


class Worker(Timed):
    """A worker on its home node; on the schedule for the end of its life and for the next renewal of its leases."""

    __slots__ = (
        "_size", "alive_at", "bound_to", "clients", "counted", "done", "epoch", "epoch_is_known", "id", "is_alive",
        "leases", "name", "queues", "renew_at", "renew_ms", "returned", "started", "ttl_ms", "waiters",
    )  # fmt: skip

    def __init__(self, worker_id: bytes, epoch: int, ttl_ms: int, now: int, *, name: bytes = b"") -> None:
        self.awake_at = 0
        self.id: bytes = worker_id
        #: Grows each time that somebody else takes the worker over: who was it before is stale.
        self.epoch: int = epoch
        self.epoch_is_known: bool = True  #: False = it came back from the journal, and may have had a higher one
        self.ttl_ms: int = ttl_ms  #: span after the last sign of life; 0 = it lives until it is stopped
        self.name: bytes = name  #: shown to people; empty = none
        self.alive_at: int = now  #: the last sign of life, but for commands of `clients`: see `last_sign`
        self.is_alive: bool = True
        self.queues: dict[bytes, None] = {}  #: queues that it works on, in the order given; see `work_on`
        self._size: int = 0  #: bytes of these
        self.counted: int = 0  #: bytes of it that memory counts, while it lives here
        self.leases: dict[Unit, int] = {}  #: units that it has, by the start of the lease, oldest first
        self.clients: dict[Client, ConnectionWorkers] = {}  #: connections whose commands are signs of life
        self.waiters: dict[Client, None] = {}  #: blocked connections that take units for it
        self.bound_to: Client | None = None  #: the connection whose end is its death; None = none
        self.renew_at: int = 0  #: when its leases are renewed; 0 = nothing to renew
        self.renew_ms: int = 0  #: a third of the shortest retry period of its leases since then
        self.started: int = 0  #: tasks that it took
        self.done: int = 0  #: of these: that were done while it had them
        self.returned: int = 0  #: of these: that came back from it

    def work_on(self, queue: bytes) -> None:
        """Note that it works on a queue."""
        if queue not in self.queues:
            self.queues[queue] = None
            self._size += WORK_COST + len(queue)

    def leave(self, queue: bytes) -> None:
        """Note that it does not work on a queue any more."""
        if queue in self.queues:
            del self.queues[queue]
            self._size -= WORK_COST + len(queue)

    @property
    def cost(self) -> int:
        """Bytes that it takes without what it has, as memory is counted."""
        return WORKER_COST + len(self.id) + len(self.name) + self._size

    @property
    def last_sign(self) -> int:
        """When it showed its life last."""
        latest = self.alive_at
        for seats in self.clients.values():
            latest = max(latest, seats.heard_at)
        return latest


class RemoteWorker(Timed):
    """Where a worker lives that is not on this node, as far as it was told; on the schedule when that node has failed.

    Of two words the one with the higher epoch counts, and of two equal ones that of the higher node id.
    """

    __slots__ = ("epoch", "highest", "jobs", "node_id", "stage", "ttl_ms", "worker_id")

    def __init__(self, worker_id: bytes, epoch: int, node_id: bytes, ttl_ms: int) -> None:
        self.awake_at = 0
        self.worker_id: bytes = worker_id
        self.epoch: int = epoch
        self.highest: int = epoch  #: of all that were heard of; a node that was started again knows less
        self.node_id: bytes = node_id
        self.ttl_ms: int = ttl_ms  #: 0 = it never dies by itself
        self.jobs: dict[Job, None] = {}  #: its jobs of which this node holds copies
        #: How far this node is with taking these back, after that node has failed; below 0: it is to be named again.
        self.stage: int = 0
