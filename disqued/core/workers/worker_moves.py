"""Workers that move to this node: what they have follows from their old homes; `homes` has the theory.

    KEEPALIVE, START  --> the worker is one of this node's, with what is known here of what it has
    old home  --YOURJOBS, HANDOVER-->  the rest; KEEPALIVE is answered after that, or when its time is up

Times are integer milliseconds.
"""

from disqued.core.model import messages
from disqued.core.model.job import ACTIVE, Job, attempt_of
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import Held
from disqued.core.model.outbox import Client
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.worker import Worker
from disqued.core.work.queueing import Queueing
from disqued.core.work.requeueing import WORKER_DIED, end_of_worker
from disqued.core.work.sharing import Sharing
from disqued.core.workers.announcements import tell_leases
from disqued.core.workers.homes import Homes
from disqued.core.workers.worker_leases import jobs_of, last_first, wake
from disqued.core.workers.workers import Workers

MOVE_MS = 1_000  #: how long who comes as a worker of another node waits for what that one had


class PendingMove(Timed):
    """Somebody waits for what a worker had on the node that it came from."""

    __slots__ = ("client", "worker")

    def __init__(self, worker: Worker, client: Client) -> None:
        self.awake_at = 0
        self.worker: Worker = worker
        self.client: Client = client


class WorkerMoves(Machine):
    """The machine that takes workers over from other nodes."""

    __slots__ = ("_homes", "_moves", "_queueing", "_sharing", "_state", "_workers")

    def __init__(self, state: State, queueing: Queueing, sharing: Sharing, workers: Workers, homes: Homes) -> None:
        self._state = state
        self._queueing = queueing
        self._sharing = sharing
        self._workers = workers
        self._homes = homes
        self._moves: dict[bytes, PendingMove] = {}  #: by the ids of workers

    def hears(self) -> dict[int, Hear]:
        return {messages.HANDOVER: self.on_handover}

    def due_table(self) -> Acts:
        return on(PendingMove, self.due)

    def abandon_table(self) -> Acts:
        return on(PendingMove, self.forsake)

    def come(self, worker_id: bytes) -> Worker | None:
        """Make a worker of another node one of this; None when no such worker is known.

        What it has and this node holds copies of is with it at once; the rest follows from its old home, if that can
        be reached (`await_rest`).  It is not begun yet.
        """
        home = self._homes.remove(worker_id)
        if home is None:
            return None
        worker = Worker(worker_id, home.highest + 1, home.ttl_ms, self._state.now)
        for job in list(home.jobs):
            self._state.end_lease(job)
            worker.work_on(job.queue)
            self._take(worker, job, 0)
        return worker

    def arrived(self, worker: Worker) -> None:
        """A worker that came has begun here: other holders of what it has hear so."""
        tell_leases(self._state, worker, jobs_of(worker.leases))

    def await_rest(self, worker: Worker, client: Client, node_id: bytes) -> bool:
        """Let a client wait until the old home of its worker has handed over; False when that cannot be reached."""
        if node_id not in self._state.peers.linked:
            return False
        move = PendingMove(worker, client)
        self._end(worker.id)
        self._moves[worker.id] = move
        self._state.waiting.add(client, move)
        self._state.schedule.add(move, self._state.now + MOVE_MS)
        return True

    def on_handover(  # noqa: PLR0917 - the fields of the message
        self, sender: bytes, worker_id: bytes, epoch: int, name: bytes,
        queues: tuple[bytes, ...], units: tuple[Held, ...], last: bool,
    ) -> None:  # fmt: skip
        """Take what a worker had that has come to this node."""
        worker = self._workers.by_id.get(worker_id)
        jobs = [(job, held) for held in units if (job := self._sharing.known(sender, held.job_id)) is not None]
        if worker is None or worker.epoch != epoch:
            if worker is None and worker_id not in self._homes.known:
                # It has ended meanwhile, and what it had with it.
                bound, why = self._state.custody.bound, end_of_worker(name or worker_id, WORKER_DIED)
                self._workers.leases.give_back(last_first(job for job, _ in jobs if job not in bound), why)
            return
        worker.name = worker.name or name
        self._workers.work_on(worker, queues)
        for job, held in jobs:
            job.additional_deliveries += max(0, held.attempt - attempt_of(job))
            self._take(worker, job, held.age_ms)
        wake(self._state, worker)
        tell_leases(self._state, worker, [job for job, _ in jobs if self._state.custody.bound.get(job) is worker])
        if last:
            self._end(worker_id)

    def _take(self, worker: Worker, job: Job, age_ms: int) -> None:
        """Lease a job to a worker that had it on another node."""
        state = self._state
        if job.state == ACTIVE and job not in state.custody.bound and job.options.retry_ms:
            state.end_lease(job)
            self._queueing.put_off(job, state.now + job.options.retry_ms)
            self._queueing.leases.bring_slot(job)
            self._queueing.leases.begin(job, state.now)
            self._workers.leases.hold(worker, job, state.now - age_ms)

    def due(self, move: PendingMove) -> None:
        """Nothing was handed over in time: go on without."""
        if self._moves.get(move.worker.id) is move:
            self._end(move.worker.id)

    def _end(self, worker_id: bytes) -> None:
        move = self._moves.get(worker_id)
        if move is not None:
            self.forsake(move)
            self._state.outbox.replies.append((move.client, move.worker.ttl_ms, []))

    def forsake(self, move: PendingMove) -> None:
        """Nobody waits for this any more."""
        del self._moves[move.worker.id]
        self._state.schedule.cancel(move)
        self._state.waiting.remove(move.client, move)

    def flushed(self) -> None:
        """Every job is gone, and the schedule with them: nothing is left to wait for."""
        for move in list(self._moves.values()):
            move.awake_at = 0
            self._end(move.worker.id)
