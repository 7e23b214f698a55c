"""Live workers: a task belongs to somebody who is alive, and comes back at once when that is over.

    START --> alive --- no sign of life for `ttl_ms` --------------------> dead: what it had goes to the front
               |  ^ --- its connection ends, if it is bound to that ---->    again, and whoever waits is woken
               |  |  --- FAIL by anybody ---------------------------->
               |  +-- KEEPALIVE, or any command of its connections
               +----- STOP: the same end, in order

A worker is on one node, its home, which has the only clock for its life: one deadline, at its exact time.  Signs of
life do not move the deadline; when it comes, the last of them counts.  Who waits in a command that blocks is alive as
long as the connection is, and `ttl_ms` after that it has to show life again.

What it has then comes back (`worker_leases`), and its connections work as nobody (`sessions`).

Times are integer milliseconds.  Source: the Worqr README, "Theory of Operation".
"""

from collections.abc import Callable, Iterable
from json import dumps

from disqued.core.cluster.notifications import Notifications
from disqued.core.model.groups import EntryUnit, PendingEntry
from disqued.core.model.job import ACTIVE, Job, Unit
from disqued.core.model.machine import Acts, Machine, on
from disqued.core.model.outbox import DEAD, Client
from disqued.core.model.state import State
from disqued.core.model.unfinished import Parts, QuietParts
from disqued.core.model.waiters import Form
from disqued.core.model.worker import ConnectionWorkers, Worker
from disqued.core.work.blocking import Blocking
from disqued.core.work.requeueing import WORKER_DIED, WORKER_STOPPED, end_of_worker
from disqued.core.work.sessions import Sessions
from disqued.core.workers.announcements import tell_life
from disqued.core.workers.worker_leases import LEASES_AT_ONCE, WorkerLeases, jobs_of, wake
from disqued.errors import CommandError, NotWorking, NoWorker, StaleWorker

TTL_MS = 3_000  #: life after the last sign of it, by default
HEARTBEATS = 3  #: a worker is advised to give so many signs of life in the time after which it is dead
BACK_AFTER_START_MS = 10_000  #: how long what workers had before a restart is kept for them
WORKERS_MAX = 100_000
EPOCH_BELIEVED = 2**32  #: no worker is taken over more often while it lives
LATE_MS = 100  #: a node that looks at its deadlines so late was busy, or stopped for a while
WORKERS_AT_ONCE = 200  #: that die in one step with the connection that they are bound to


class WorkerForm(Form):
    """How a worker takes units: what it takes is bound to it."""

    __slots__ = ("_rows", "_taker", "_workers")

    def __init__(self, workers: "Workers", worker: Worker, rows: Form) -> None:
        """`rows` says how many units it gets and what is answered for each."""
        super().__init__(rows.count, worker)
        self._workers = workers
        self._rows = rows
        self._taker = worker

    @property
    def nothing(self) -> object:
        """As the rows have it."""
        return self._rows.nothing

    def row(self, unit: Unit) -> object:
        """Bind a unit to the worker, which has waited for it; returns what is answered for it."""
        self._workers.named(self._taker.id)
        self._workers.leases.bind(self._taker, [unit])
        return self._rows.row(unit)


class Workers(Machine):
    """The machine behind WORKER."""

    __slots__ = ("_blocking", "_events", "_sessions", "_state", "by_id", "leases")

    def __init__(
        self, state: State, leases: WorkerLeases, sessions: Sessions, blocking: Blocking, events: Notifications
    ) -> None:
        self._state = state
        self._sessions = sessions
        self._blocking = blocking
        self._events = events
        self.leases: WorkerLeases = leases
        self.by_id: dict[bytes, Worker] = {}

    def due_table(self) -> Acts:
        return on(Worker, self.due)

    # Life.

    def begin(self, worker: Worker, client: Client | None = None, *, bind: bool = False) -> None:
        """Take a worker in that lives here from now on.  Raises CommandError when there are too many."""
        if len(self.by_id) >= WORKERS_MAX and worker.id not in self.by_id:
            raise CommandError(f"there are {WORKERS_MAX} workers on this node, which is as many as it takes")
        self.by_id[worker.id] = worker
        self.recount(worker)
        if client is not None:
            self._sessions.adopt(worker, client)
            worker.bound_to = client if bind else None
        wake(self._state, worker)
        tell_life(self._state, worker)

    def supersede(self, worker: Worker, epoch: int) -> None:
        """Somebody else is the worker now: who was it before is stale and keeps nothing alive."""
        self._refuse_waiting(worker, lambda form: True, StaleWorker())
        worker.epoch = epoch
        worker.clients.clear()
        worker.bound_to = None
        worker.alive_at = self._state.now

    def is_plausible(self, worker: Worker, epoch: int) -> bool:
        """Tell whether somebody may have been this worker with an epoch that is not known here."""
        return not worker.epoch_is_known and epoch <= EPOCH_BELIEVED

    def named(self, worker_id: bytes) -> Worker:
        """The worker of an id that somebody takes units for, which is a sign of life.  Raises NoWorker (NOWORKER)."""
        worker = self.by_id.get(worker_id)
        if worker is None:
            raise NoWorker
        worker.alive_at = self._state.now
        return worker

    def client_gone(self, client: Client) -> None:
        """A client's connection has ended: workers that are bound to it die, very many bit by bit."""
        session = self._sessions.by_client.pop(client, None)
        if session is not None:
            self._state.begin_work(self._end_session(client, session))

    def _end_session(self, client: Client, session: ConnectionWorkers) -> QuietParts:
        for count, (worker, epoch) in enumerate(session.workers.items(), 1):
            if worker.epoch == epoch and worker.clients.get(client) is session:
                worker.alive_at = worker.last_sign
                del worker.clients[client]
                if worker.bound_to == client and self.by_id.get(worker.id) is worker:
                    self.die(worker)
            if count % WORKERS_AT_ONCE == 0:
                yield

    def due(self, worker: Worker) -> None:
        """Do what the deadline of a worker asks for."""
        now = self._state.now
        if self.by_id.get(worker.id) is not worker:
            return
        if worker.ttl_ms and now >= worker.alive_at + worker.ttl_ms:
            worker.alive_at = worker.last_sign
        if worker.ttl_ms and now >= worker.alive_at + worker.ttl_ms:
            late_ms = now - worker.alive_at - worker.ttl_ms
            if any(map(self._waits, worker.clients)):
                worker.alive_at = now
            elif late_ms >= LATE_MS:
                # This node did not listen: what the worker said meanwhile may not have been read yet.
                worker.alive_at = now - worker.ttl_ms + min(late_ms, worker.ttl_ms)
            else:
                self.die(worker)
                return
        if 0 < worker.renew_at <= now:
            self.leases.renew(worker)
        wake(self._state, worker)

    def _waits(self, client: Client) -> bool:
        """Tell whether a client waits for the reply to a command."""
        state = self._state
        return client in state.waiting.blocked or client in state.waiting.waits or state.unfinished.has(client)

    # Death.

    def die(self, worker: Worker) -> None:
        """End a worker that shows no life: what it had goes back, and those who listen to its queues hear of it."""
        self._state.begin_work(self.fail(worker))

    def fail(self, worker: Worker) -> Parts:
        """End a worker as if it were dead; the parts of what is to be done return how many units came back."""
        self._state.counters.workers_died += 1
        self._state.unfinished.effort += 200 + 20 * min(len(worker.leases), LEASES_AT_ONCE)
        queues = dict.fromkeys([*worker.queues, *(unit.queue for unit in worker.leases)])
        returned = yield from self.stop(worker, WORKER_DIED)
        content = dumps({"workerId": readable(worker.id), "returned": returned}).encode("ascii")
        for queue in queues:
            self._events.tell(queue, DEAD, content)
        return returned

    def stop(self, worker: Worker, how: bytes = WORKER_STOPPED) -> Parts:
        """End a worker in order; the parts of what is to be done return how many units came back."""
        self._forget(worker, NoWorker())
        return self.leases.return_all(worker, list(worker.leases), end_of_worker(worker.name or worker.id, how))

    def let_go(self, worker: Worker) -> list[Job]:
        """End a worker here that lives on another node from now on; returns the jobs that it has, which it keeps.

        Events of logs stay with whom they are until their deadline, and are bound to nobody.
        """
        self._forget(worker, StaleWorker())
        for unit in list(worker.leases):
            if isinstance(unit, EntryUnit):
                unit.unbind()
        return jobs_of(worker.leases)

    def _forget(self, worker: Worker, reason: CommandError) -> None:
        del self.by_id[worker.id]
        worker.is_alive = False
        self._state.memory.hold(-worker.counted)
        worker.counted = 0
        worker.bound_to = None
        worker.renew_at = 0
        self._state.schedule.cancel(worker)
        self._refuse_waiting(worker, lambda form: True, reason)
        if not isinstance(reason, StaleWorker):
            self._sessions.forget(worker)
        worker.clients.clear()
        tell_life(self._state, worker)

    def _refuse_waiting(self, worker: Worker, meant: Callable[[Iterable[bytes]], bool], reason: CommandError) -> None:
        """Answer those an error who wait for units for a worker, on queues that are meant."""
        state = self._state
        for client in list(worker.waiters):
            waiter = state.waiting.blocked.get(client)
            if waiter is not None and meant(queue.name for queue in waiter.queues):
                self._blocking.stop_waiting(client)
                state.outbox.replies.append((client, reason, []))

    # Work.

    def work_on(self, worker: Worker, queues: Iterable[bytes]) -> None:
        """Note that a worker works on queues."""
        for queue in queues:
            worker.work_on(queue)
        self.recount(worker)

    def recount(self, worker: Worker) -> None:
        """Count what a worker takes that lives here, and whose name or queues have changed."""
        if self.by_id.get(worker.id) is worker:
            self._state.memory.hold(worker.cost - worker.counted)
            worker.counted = worker.cost

    def stop_work(self, worker: Worker, queues: list[bytes]) -> Parts:
        """End a worker's work on queues; the parts of what is to be done return how many of its units came back."""
        left = frozenset(queues)
        for queue in left:
            worker.leave(queue)
        self.recount(worker)
        self._refuse_waiting(worker, lambda names: not left.isdisjoint(names), NotWorking(queues[0]))
        units = [unit for unit in worker.leases if unit.queue in left]
        return self.leases.return_all(worker, units, end_of_worker(worker.name or worker.id, WORKER_STOPPED))

    @staticmethod
    def check_work(worker: Worker, queues: Iterable[bytes]) -> None:
        """See that a worker works on queues.  Raises NotWorking (NOTWORKING)."""
        for queue in queues:
            if queue not in worker.queues:
                raise NotWorking(queue)

    # The whole node.

    def recover(self, held: dict[Unit, bytes]) -> None:
        """Keep for workers what they had before this node was started again: they have a while to say so.

        `held`: {unit: worker id}.  Each is a worker of this node until then, whom nobody has heard of so far.
        """
        for unit, worker_id in held.items():
            if isinstance(unit, PendingEntry):
                if unit.state == ACTIVE and unit.group.units.get(unit.entry) is unit:
                    unit.bind(self._back(worker_id, unit.queue), self._state.now)
            elif isinstance(unit, Job):
                self._recover_job(unit, worker_id)

    def _recover_job(self, job: Job, worker_id: bytes) -> None:
        state = self._state
        if state.jobs.get(job.id) is not job or job.state != ACTIVE or not job.options.retry_ms:
            return
        self.leases.restore(self._back(worker_id, job.queue), job)

    def _back(self, worker_id: bytes, queue: bytes) -> Worker:
        """The worker that had something of a queue before the node was started again."""
        worker = self.by_id.get(worker_id)
        if worker is None:
            worker = Worker(worker_id, 1, BACK_AFTER_START_MS, self._state.now)
            worker.epoch_is_known = False
            self.begin(worker)
        self.work_on(worker, (queue,))
        return worker

    def flushed(self) -> None:
        """Every job is gone, and the schedule with them; workers live on, with nothing in their hands."""
        for worker in self.by_id.values():
            worker.leases.clear()
            worker.renew_at = worker.awake_at = 0
            wake(self._state, worker)


def readable(text: bytes) -> str:
    """Bytes as they stand in JSON: UTF-8, and what is none of it so that it can be turned back."""
    return text.decode("utf-8", "surrogateescape")
