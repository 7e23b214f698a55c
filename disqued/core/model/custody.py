"""Custody: who has a job that is not simply queued here, and what is kept of jobs that are done.

    with a consumer of this node     Queue.leased; `consumers`: those that are connected
                                     `spans`: for a lease time of its own; `bound`: as a worker's
    with a consumer of another node  Queue.elsewhere; `elsewhere`: as a worker's
    its timer has ended              `asking`: holders that have yet to answer; `owed`: answers to an older question
    done, and other nodes may not    `acked`; `evictable`: acknowledgements may be dropped, results may not
        know
    done, and everybody knows        `settled`: its result is kept
    not here any more                `ended`: how it ended, and whether a copy of it is refused; or it has just left
    somebody waits for its end       `watched`; `changed`

These stay separate tables: nearly all jobs are in none of them, so that each costs nothing where it is not used.
"""

from typing import NamedTuple

from disqued.core.model.endings import Endings
from disqued.core.model.job import Job, Unit
from disqued.core.model.memory import BOUND_COST, Memory
from disqued.core.model.outbox import Client
from disqued.core.model.schedule import Timed
from disqued.core.model.waiters import Consumer
from disqued.core.model.watched import ChangedJobs, Watchers
from disqued.core.model.worker import RemoteWorker, Worker


class SlotHolder(NamedTuple):
    """The consumer of this node that has a unit of a limited queue."""

    since: int
    client: bytes  #: its name or address; empty = not known


class EndedLeases(Timed):
    """Units of limited queues whose leases have ended, have come from another node, or are with another client.

    Due at once.
    """

    __slots__ = ("units",)

    def __init__(self) -> None:
        self.awake_at = 0
        self.units: list[Unit] = []


class Custody:
    """The tables of one node, from one flush to the next."""

    __slots__ = (
        "_memory",
        "acked",
        "asking",
        "bound",
        "changed",
        "consumers",
        "elsewhere",
        "ended",
        "evictable",
        "limited",
        "over",
        "owed",
        "settled",
        "spans",
        "watched",
    )  # fmt: skip

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        #: Clients of this node that have taken something, until their connections end.
        self.consumers: dict[Client | None, Consumer] = {}
        #: Lease time, in milliseconds, of units whose consumer chose it; then they go to the front of the queue.
        self.spans: dict[Unit, int] = {}
        #: Units of limited queues that consumers of this node have, each with a slot; and those that nobody has any
        #: more.
        self.limited: dict[Unit, SlotHolder] = {}
        self.over: EndedLeases = EndedLeases()
        #: Units that a worker of this node has; they return when it dies.
        self.bound: dict[Unit, Worker] = {}
        #: Jobs that a worker of another node has, as far as this node knows; kept by `homes`.
        self.elsewhere: dict[Job, RemoteWorker] = {}
        #: Jobs whose timers have ended, and the nodes that have yet to say whether they know better.
        self.asking: dict[Job, frozenset[bytes]] = {}
        #: Nodes whose answer to an abandoned question may be on its way: it does not count for a later one.
        self.owed: dict[Job, frozenset[bytes]] = {}
        #: Acknowledged jobs that other nodes may hold, with the attempts that were made to collect them.
        self.acked: dict[Job, int] = {}
        #: Acknowledged jobs that all holders know to be done, and that stay for their results: nobody is asked.
        self.settled: dict[Job, None] = {}
        #: Jobs that may be dropped when memory is short, oldest claim first: acked, or delivered at most once.
        self.evictable: dict[Job, None] = {}
        #: How jobs ended that are not here any more; a late message must not bring back those that others held.
        self.ended: Endings = Endings()
        #: Who is told when a job is over, by job id.
        self.watched: dict[bytes, Watchers] = {}
        self.changed: ChangedJobs = ChangedJobs()

    @property
    def acked_count(self) -> int:
        """Number of jobs that are acknowledged and kept, as an acknowledgement or for their result."""
        return len(self.acked) + len(self.settled)

    def meet(self, client: Client | None) -> Consumer:
        """Note that a client takes something for the first time."""
        consumer = self.consumers[client] = Consumer(client)
        return consumer

    def consumer_of(self, client: Client | None) -> Consumer | None:
        """Return a client as a consumer; None = nobody, or another node."""
        if client is None or isinstance(client, bytes):
            return None
        return self.consumers[client] if client in self.consumers else self.meet(client)

    def part_with(self, client: Client) -> None:
        """Note that the connection of a client has ended; what it has it keeps until the lease ends."""
        consumer = self.consumers.pop(client, None)
        if consumer is not None:
            consumer.leave()

    def settle(self, job: Job) -> None:
        """Note that all holders know that a job is done, which stays for its result."""
        self.acked.pop(job, None)
        self.settled[job] = None

    def unsettle(self, job: Job) -> None:
        """Note that holders are to be asked about a job that is done, from the first attempt on."""
        self.settled.pop(job, None)
        self.acked[job] = 0

    def end_lease(self, unit: Unit) -> None:
        """Undo what few leases have: a time of their own, or a worker."""
        self.spans.pop(unit, None)
        worker = self.bound.pop(unit, None)
        if worker is not None:
            self._memory.used -= BOUND_COST
            del worker.leases[unit]
        home = self.elsewhere.pop(unit.job, None)
        if home is not None:
            del home.jobs[unit.job]
