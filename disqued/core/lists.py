"""Reliable lists: what consumers have had for too long is handed to another one when somebody asks for it.

    delivered   own consumers      Queue.leased       handed out first is first
                those of others    Queue.elsewhere    of what this node has copies of

    RECOVER --> own ones that were handed out long enough ago, oldest first
                too few? the nodes that the others are with are asked, one after the other:
                    --CLAIM(queue, number, count, elapsed, worker)-->  theirs, which are then with our client
                    <--HANDOVER(worker, jobs)--                        and at home here, if that is a worker
                    <--CLAIMED(number, jobs)--
                one that cannot be reached: we hand out our copy ourselves, and say so (DELIVERED)

In a queue with limits an element keeps its slot, on the node that handed it out; so it stays with its consumer where
that node cannot be reached, or would hand it over to a worker of another node.

So two who recover at the same time never get the same job while the node that handed it out can be reached.  Each
recovery is a delivery: it counts, it begins now, and it makes the job the last in line.  A job is never twice in a
reply.

A node that was asked and does not name what it is known to have handed out may have lost its memory: such a job is
probed (WILLQUEUE), as one is that may be an orphan.

Times are integer milliseconds.
"""

from collections.abc import Callable
from typing import NamedTuple

from disqued.core.model.job import (
    ACTIVE,
    FLAG_ASKING,
    FLAG_QUEUED_BEFORE,
    FLAG_WITH_CONSUMER,
    Job,
    NamedJob,
    StoredJob,
    Unit,
)
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import CLAIM, CLAIMED, JOBS_PER_MESSAGE
from disqued.core.model.outbox import Client
from disqued.core.model.queues import LIMITED, Queue
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.worker import Worker
from disqued.core.work.deadletters import DeadLetters
from disqued.core.work.delivery import FETCHED_BYTES
from disqued.core.work.queueing import Queueing
from disqued.core.workers.homes import Homes
from disqued.core.workers.workers import Workers
from disqued.errors import NoWorker, SlotsElsewhere

CLAIM_MS = 500  #: how long one node is given to answer
CLAIMS_MS = 2_000  #: how long all of them are
RECOVERED_IN_VAIN = b"taken from its consumer after its last try"
DAY_MS = 86_400_000


class RecoveredJob(NamedTuple):
    """A job that was recovered, by this node or by another one."""

    id: bytes
    alias: bytes  #: empty = it has none
    body: bytes


def _found(job: Job | StoredJob) -> RecoveredJob:
    alias = job.alias if isinstance(job, NamedJob | StoredJob) else b""
    return RecoveredJob(job.id, alias, job.body)


class RecoveryRequest(NamedTuple):
    """What somebody wants to recover."""

    most: int  #: jobs
    elapsed_ms: int  #: since their last delivery, at least
    worker: Worker | None = None  #: who is to have them; None = nobody in particular


class PendingRecovery(Timed):
    """A client that waits for what other nodes' consumers have had for too long."""

    __slots__ = (
        "asked", "client", "deadline_at", "found", "missing", "name", "nodes", "number", "row", "wish",
    )  # fmt: skip

    def __init__(
        self, number: int, client: Client, name: bytes, wish: RecoveryRequest, row: Callable[[RecoveredJob], object]
    ) -> None:
        self.awake_at = 0
        self.number: int = number
        self.client: Client = client
        self.name: bytes = name  #: of the queue
        self.wish: RecoveryRequest = wish
        self.row: Callable[[RecoveredJob], object] = row  #: what the client is answered for one
        self.found: dict[bytes, RecoveredJob] = {}  #: by job id, in order
        self.missing: int = 0  #: so many more are wanted
        self.nodes: list[bytes] = []  #: who is still to be asked, the last one first
        self.asked: bytes = b""  #: who is asked now
        self.deadline_at: int = 0


class Lists(Machine):
    """The machine behind RQ.RECOVER, and what new elements are given where their producer says nothing."""

    __slots__ = (
        "_claims",
        "_homes",
        "_letters",
        "_queueing",
        "_state",
        "_workers",
        "background",
        "pool_size",
        "replicate",
        "ttl_ms",
    )  # fmt: skip

    def __init__(self, state: State, queueing: Queueing, workers: Workers, homes: Homes, letters: DeadLetters) -> None:
        self._state = state
        self._queueing = queueing
        self._workers = workers
        self._homes = homes
        self._letters = letters
        self._claims: dict[int, PendingRecovery] = {}
        self.ttl_ms: int = 30 * DAY_MS  #: life of an element (`rq-ttl`)
        self.replicate: int = 0  #: copies of an element (`rq-replicate`); 0 = as ADDJOB decides
        self.background: int = 0  #: pushes that go on though their clients were answered
        self.pool_size: int = 128  #: of these, at most (`bg-push-pool-size`)

    def hears(self) -> dict[int, Hear]:
        return {CLAIM: self.on_claim, CLAIMED: self.on_claimed}

    def due_table(self) -> Acts:
        return on(PendingRecovery, self.due)

    def abandon_table(self) -> Acts:
        return on(PendingRecovery, self.forsake)

    def over_in_background(self, failed: bool) -> None:
        """Note the end of a push that nobody waited for."""
        self.background -= 1
        self._state.counters.background_failed += failed

    # Recovery.

    def recover(
        self, client: Client, queue: Queue, wish: RecoveryRequest, row: Callable[[RecoveredJob], object]
    ) -> list[object] | None:
        """Hand out again what consumers have had for so long, oldest first; fewer of large ones.

        Returns rows; None when the client is blocked, until other nodes have answered.  A worker keeps what it gets as
        long as it lives.  Raises SlotsElsewhere when all that there is has slots that would not move along.
        """
        found = self._recover_own(queue, wish.most, wish.elapsed_ms)
        size = sum(len(job.body) for job in found)
        nodes: list[bytes] = []
        if len(found) < wish.most and queue.elsewhere and size < FETCHED_BYTES:
            nodes = self._nodes_with_more(queue, wish.elapsed_ms)
            lost = self._lost(queue, wish.most - len(found), wish.elapsed_ms)
            if not queue.holds & LIMITED:
                found += [job for job in lost if self._hand_out(job)]
            elif not found and (lost or nodes) and (not nodes or wish.worker is not None):
                raise SlotsElsewhere
            elif wish.worker is not None:
                nodes = []
        if wish.worker is not None:
            self._workers.leases.bind(wish.worker, found)
        if nodes and len(found) < wish.most:
            self._begin_claim(self._claim(client, queue, wish, row), found, nodes)
            return None
        return [row(_found(job)) for job in found]

    def _recover_own(self, queue: Queue, count: int, elapsed_ms: int) -> list[Job]:
        """Recover what consumers of this node have."""
        latest = self._state.now - elapsed_ms
        taken: list[Job] = []
        size = 0
        for unit, (since, _) in queue.longest_held().items():
            if since > latest or len(taken) >= count or size >= FETCHED_BYTES:
                break
            if unit.job.expires_at > self._state.now:
                taken.append(unit.job)
                size += len(unit.body)
        return [job for job in taken if self._hand_out(job)]

    def _lost(self, queue: Queue, count: int, elapsed_ms: int) -> list[Job]:
        """Return what consumers of nodes have that cannot be reached, so many at most, oldest first."""
        state = self._state
        latest = state.now - elapsed_ms
        lost = [
            (since, unit.order_key, unit.id, unit.job)
            for unit, (since, node_id) in queue.elsewhere.items()
            if since <= latest and node_id not in state.peers.linked and unit.job.expires_at > state.now
        ]
        return [job for *_, job in sorted(lost)[:count]]

    def _hand_out(self, job: Job) -> bool:
        """Hand a job to another consumer, if it has a try left."""
        if self._letters.ends_last_try(job, RECOVERED_IN_VAIN):
            return False
        self._state.counters.recovered += 1
        self._queueing.leases.recover(job)
        self._queueing.reschedule(job)
        if job.options.is_rare:
            self._letters.fates.say(job)
        return True

    def _nodes_with_more(self, queue: Queue, elapsed_ms: int) -> list[bytes]:
        """Nodes that can be asked and whose consumers have had something for so long; the longest is the first."""
        latest = self._state.now - elapsed_ms
        linked = self._state.peers.linked
        oldest: dict[bytes, int] = {}
        for since, node_id in queue.elsewhere.values():
            if since <= latest and node_id in linked:
                oldest[node_id] = min(since, oldest.get(node_id, since))
        return sorted(oldest, key=lambda node_id: (oldest[node_id], node_id))

    # Asking other nodes.

    def _claim(
        self, client: Client, queue: Queue, wish: RecoveryRequest, row: Callable[[RecoveredJob], object]
    ) -> PendingRecovery:
        number = self._state.numbers.next_number()
        claim = self._claims[number] = PendingRecovery(number, client, queue.name, wish, row)
        self._state.waiting.add(client, claim)
        return claim

    def _begin_claim(self, claim: PendingRecovery, found: list[Job], nodes: list[bytes]) -> None:
        claim.found = {job.id: _found(job) for job in found}
        claim.missing = claim.wish.most - len(found)
        claim.nodes = nodes[::-1]
        claim.deadline_at = self._state.now + CLAIMS_MS
        self._ask_next(claim)

    def _ask_next(self, claim: PendingRecovery) -> None:
        """Ask the next node, or answer the client what there is."""
        state = self._state
        claim.asked = b""
        while claim.nodes and claim.missing > 0 and state.now < claim.deadline_at:
            node_id = claim.nodes.pop()
            wanted = min(claim.missing, JOBS_PER_MESSAGE)
            worker = claim.wish.worker
            worker_id = b"" if worker is None else worker.id
            if state.send(node_id, (CLAIM, claim.name, claim.number, wanted, claim.wish.elapsed_ms, worker_id)):
                claim.asked = node_id
                state.schedule.move(claim, min(state.now + CLAIM_MS, claim.deadline_at))
                return
        self._answer(claim)

    def _answer(self, claim: PendingRecovery) -> None:
        self.forsake(claim)
        reply: object = [claim.row(found) for found in claim.found.values()]
        worker = claim.wish.worker
        if worker is not None and not worker.is_alive:
            # What it got so far went back with it.
            reply = NoWorker()
        self._state.outbox.replies.append((claim.client, reply, []))

    def due(self, claim: PendingRecovery) -> None:
        """Go on without a node that does not answer."""
        if self._claims.get(claim.number) is claim:
            self._ask_next(claim)

    def forsake(self, claim: PendingRecovery) -> None:
        """Nobody waits for this any more."""
        del self._claims[claim.number]
        self._state.schedule.cancel(claim)
        self._state.waiting.remove(claim.client, claim)

    def flushing(self) -> None:
        """Everything is flushed: those who wait hear of what has been found so far."""
        for claim in list(self._claims.values()):
            self._answer(claim)

    def on_claim(  # noqa: PLR0917 - the fields of the message
        self, sender: bytes, name: bytes, number: int, count: int, elapsed_ms: int, worker_id: bytes
    ) -> None:
        """Give another node what consumers of this one have had for too long."""
        queue = self._state.queues.by_name.get(name)
        jobs: list[Job] = []
        # A worker that has ended meanwhile gets nothing.
        if queue is not None and (not worker_id or self._homes.is_home(worker_id, sender)):
            jobs = self._recover_own(queue, count, elapsed_ms)
        if worker_id and jobs:
            self._homes.hand_over(worker_id, sender, jobs)
        self._state.send(sender, (CLAIMED, number, tuple(jobs)))

    def on_claimed(self, sender: bytes, number: int, jobs: tuple[StoredJob, ...]) -> None:
        """Take what another node's consumers have had for too long."""
        claim = self._claims.get(number)
        if claim is None or claim.asked != sender:
            return
        wanted = min(claim.missing, JOBS_PER_MESSAGE)
        for stored in jobs:
            if stored.id not in claim.found:
                claim.found[stored.id] = _found(stored)
                claim.missing -= 1
        if len(jobs) >= wanted and claim.missing > 0:
            claim.nodes.append(sender)  # it may have more than a message brings
        elif len(jobs) < wanted:
            self._doubt(claim, sender)
        self._ask_next(claim)

    def _doubt(self, claim: PendingRecovery, node_id: bytes) -> None:
        """Ask after what a node is known to have handed out and does not name."""
        state = self._state
        queue = state.queues.by_name.get(claim.name)
        if queue is None:
            return
        latest = state.now - claim.wish.elapsed_ms - CLAIMS_MS
        for unit, (since, granter) in list(queue.elsewhere.items()):
            if granter == node_id and since <= latest and unit.id not in claim.found:
                job = unit.job
                job.flags &= ~FLAG_ASKING
                job.requeue_at = state.now
                self._queueing.reschedule(job)

    # What is there.

    @staticmethod
    def delivered(queue: Queue) -> list[tuple[Unit, int]]:
        """Everything that consumers have, as far as this node knows, and since when; in no order."""
        held = [(unit, since) for unit, (since, _) in queue.leased.items()]
        return held + [(unit, since) for unit, (since, _) in queue.elsewhere.items()]

    @staticmethod
    def is_in_order(queue: Queue) -> bool:
        """Tell whether what consumers have stands by when it was handed out already."""
        return not (queue.elsewhere or queue.tangled)

    @staticmethod
    def may_be_acked(job: Job) -> bool:
        """Tell whether a consumer may have a job: not one that waits here, for its delay or to be taken."""
        if job.state != ACTIVE:
            return False
        # Of a copy this node may not have heard that it was handed out.
        return bool(job.flags & FLAG_WITH_CONSUMER or (job.holders and job.flags & FLAG_QUEUED_BEFORE))
