"""Live workers: a task belongs to somebody who is alive, and comes back at once when that is over.

    START --> alive --- no sign of life for `ttl_ms` --------------------> dead: what it had goes to the front
               |  ^ --- its connection ends, if it is bound to that ---->    again, and whoever waits is woken
               |  |  --- FAIL by anybody ---------------------------->
               |  +-- KEEPALIVE, or any command of its connections
               +----- STOP: the same end, in order

A worker is on one node, its home, which has the only clock for its life: one deadline, at its exact time.  Signs of
life do not move the deadline; when it comes, the last of them counts.  Who waits in a command that blocks is alive as
long as the connection is, and `ttl_ms` after that it has to show life again.

What a worker takes is a lease as any other (`queue.leased`), which ends in any of the ways in which leases end:
`state.end_lease` takes it off its worker.  But it does not end by its retry period while the worker lives: at most
every third of the shortest retry period among them all its leases are renewed at once, and other nodes that hold these
jobs hear so in as few messages as possible.  So a task may take as long as it likes, and one whose whole node
disappears comes again after a retry period at the latest.

    by_id             {id: worker}                  those that are alive here
    of_client         {client: {worker: epoch}}     whose command is a sign of life; the last one is who it works as;
                                                    noted once per client, whoever many workers it shows
    worker.leases     {unit: since}                 what comes back with it
    custody.bound     {job: worker}                 the same the other way round; an event of a group knows it itself

What comes back together keeps its order, and all of it is served before what waits: it is queued from the last to the
first, each in front of all.  A worker that has very much is dealt with bit by bit.

What was taken for a time of the fetch's own (QRPOP EX, QGET EX) comes back at the end of that, too, if it is the first.

Units that nobody gets a second time (retry 0) are not bound to anybody.

Times are integer milliseconds.  Source: the Worqr README, "Theory of Operation".
"""

from collections.abc import Callable, Iterable
from json import dumps
from operator import attrgetter

from disqued.core.cluster.notifications import Notifications
from disqued.core.model.groups import EntryUnit, PendingEntry
from disqued.core.model.job import ACTIVE, FLAG_LEASED, RETRY_NEVER_MS, WORK_SCOPE, Job, Unit, attempt_of
from disqued.core.model.machine import Acts, Machine, on
from disqued.core.model.memory import BOUND_COST
from disqued.core.model.outbox import DEAD, RETURNED, UNIT_LEASED, Client
from disqued.core.model.state import State
from disqued.core.model.unfinished import Parts, QuietParts
from disqued.core.model.waiters import Form
from disqued.core.model.worker import ConnectionWorkers, Worker
from disqued.core.work.blocking import Blocking
from disqued.core.work.requeueing import Requeueing
from disqued.core.workers.announcements import tell_leases, tell_life
from disqued.errors import CommandError, NotWorking, NoWorker, StaleWorker

TTL_MS = 3_000  #: life after the last sign of it, by default
HEARTBEATS = 3  #: a worker is advised to give so many signs of life in the time after which it is dead
BACK_AFTER_START_MS = 10_000  #: how long what workers had before a restart is kept for them
WORKERS_MAX = 100_000
EPOCH_BELIEVED = 2**32  #: no worker is taken over more often while it lives
LATE_MS = 100  #: a node that looks at its deadlines so late was busy, or stopped for a while
WORKERS_AT_ONCE = 200  #: that die in one step with the connection that they are bound to
LEASES_AT_ONCE = 500  #: units that come back, or are renewed, in one step: some milliseconds' work

_place = attrgetter("order_key", "id")


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
        self._workers.bind(self._taker, [unit])
        return self._rows.row(unit)


class Workers(Machine):
    """The machine behind WORKER."""

    __slots__ = ("_blocking", "_events", "_queueing", "_requeueing", "_return_entry", "_state", "by_id", "of_client")

    def __init__(
        self,
        state: State,
        requeueing: Requeueing,
        blocking: Blocking,
        events: Notifications,
        return_entry: Callable[[EntryUnit], bool],
    ) -> None:
        """`return_entry` returns what a worker has of a stream to its group, and says whether that was possible."""
        self._state = state
        self._queueing = requeueing.queueing
        self._requeueing = requeueing
        self._blocking = blocking
        self._events = events
        self.by_id: dict[bytes, Worker] = {}
        self.of_client: dict[Client, ConnectionWorkers] = blocking.seats
        self._return_entry = return_entry

    def due_table(self) -> Acts:
        return on(Worker, self.due)

    # Life.

    @property
    def units_held(self) -> int:
        """Jobs and events that workers of this node have."""
        return sum(len(worker.leases) for worker in self.by_id.values())

    def holder_of(self, unit: Unit) -> Worker | None:
        """Return the worker of this node that holds a unit; None when none does."""
        return unit.worker if isinstance(unit, EntryUnit) else self._state.custody.bound.get(unit)

    def begin(self, worker: Worker, client: Client | None = None, *, bind: bool = False) -> None:
        """Take a worker in that lives here from now on.  Raises CommandError when there are too many."""
        if len(self.by_id) >= WORKERS_MAX and worker.id not in self.by_id:
            raise CommandError(f"there are {WORKERS_MAX} workers on this node, which is as many as it takes")
        self.by_id[worker.id] = worker
        self.recount(worker)
        if client is not None:
            self.adopt(worker, client)
            worker.bound_to = client if bind else None
        self.wake(worker)
        tell_life(self._state, worker)

    def adopt(self, worker: Worker, client: Client) -> None:
        """Let every command of a client be a sign of life; it works as this worker from now on."""
        seats = self.of_client.get(client)
        if seats is None:
            seats = self.of_client[client] = ConnectionWorkers(self._state.now)
        seats.workers.pop(worker, None)
        seats.workers[worker] = worker.epoch
        worker.clients[client] = seats
        worker.alive_at = self._state.now

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

    def heard(self, client: Client) -> None:
        """Take note of a sign of life, if this client is a worker."""
        seats = self.of_client.get(client)
        if seats is not None:
            seats.heard_at = self._state.now

    def of(self, client: Client) -> Worker:
        """The worker that a client works as.  Raises NoWorker (NOWORKER), StaleWorker (STALE)."""
        seats = self.of_client.get(client)
        if seats is None:
            raise NoWorker
        worker = next(reversed(seats.workers))
        if worker.epoch != seats.workers[worker] or not worker.is_alive:
            raise StaleWorker
        return worker

    def seat_of(self, client: Client) -> Worker | None:
        """The worker that a client works as, stale or not; None = it is none."""
        seats = self.of_client.get(client)
        return None if seats is None else next(reversed(seats.workers))

    def named(self, worker_id: bytes) -> Worker:
        """The worker of an id that somebody takes units for, which is a sign of life.  Raises NoWorker (NOWORKER)."""
        worker = self.by_id.get(worker_id)
        if worker is None:
            raise NoWorker
        worker.alive_at = self._state.now
        return worker

    def is_seated(self, worker: Worker, client: Client) -> bool:
        """Tell whether the commands of a client are signs of life of this worker."""
        seats = self.of_client.get(client)
        return seats is not None and seats.workers.get(worker) == worker.epoch

    def client_gone(self, client: Client) -> None:
        """A client's connection has ended: workers that are bound to it die, very many bit by bit."""
        seats = self.of_client.pop(client, None)
        if seats is not None:
            self.do(self._unseat(client, seats))

    def _unseat(self, client: Client, seats: ConnectionWorkers) -> QuietParts:
        for count, (worker, epoch) in enumerate(seats.workers.items(), 1):
            if worker.epoch == epoch and worker.clients.get(client) is seats:
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
            self._renew(worker)
        self.wake(worker)

    def _waits(self, client: Client) -> bool:
        """Tell whether a client waits for the reply to a command."""
        state = self._state
        return client in state.waiting.blocked or client in state.waiting.waits or state.unfinished.has(client)

    def wake(self, worker: Worker) -> None:
        """Look at a worker when its life may be over, or its leases are to be renewed."""
        at = worker.alive_at + worker.ttl_ms if worker.ttl_ms else 0
        if worker.renew_at and (not at or worker.renew_at < at):
            at = worker.renew_at
        if at and not 0 < worker.awake_at <= at:
            self._state.schedule.move(worker, max(at, self._state.now + 1))

    # Death.

    def die(self, worker: Worker) -> None:
        """End a worker that shows no life: what it had goes back, and those who listen to its queues hear of it."""
        self.do(self._end_dead(worker))

    def _end_dead(self, worker: Worker) -> Parts:
        self._state.counters.workers_died += 1
        self._state.unfinished.effort += 200 + 20 * min(len(worker.leases), LEASES_AT_ONCE)
        queues = dict.fromkeys([*worker.queues, *(unit.queue for unit in worker.leases)])
        returned = yield from self._end(worker)
        content = dumps({"workerId": readable(worker.id), "returned": returned}).encode("ascii")
        for queue in queues:
            self._events.tell(queue, DEAD, content)
        return returned

    def fail(self, worker: Worker) -> Parts:
        """End a worker as if it were dead; the parts of what is to be done return how many units came back."""
        return self._end_dead(worker)

    def stop(self, worker: Worker) -> Parts:
        """End a worker in order; the parts of what is to be done return how many units came back."""
        return self._end(worker)

    def let_go(self, worker: Worker) -> list[Job]:
        """End a worker here that lives on another node from now on; returns the jobs that it has, which it keeps.

        Events of logs stay with whom they are until their deadline, and are bound to nobody.
        """
        self._forget(worker, StaleWorker())
        for unit in list(worker.leases):
            if isinstance(unit, EntryUnit):
                unit.unbind()
        return _jobs(worker.leases)

    def _end(self, worker: Worker) -> Parts:
        self._forget(worker, NoWorker())
        return self.return_all(worker, list(worker.leases))

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
            for client, seats in worker.clients.items():
                if self.of_client.get(client) is seats:
                    del seats.workers[worker]
                    if not seats.workers:
                        del self.of_client[client]
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

    def do(self, parts: Parts) -> None:
        """Begin a piece of work that nobody waits for; the first part of it now."""
        try:
            next(parts)
        except StopIteration:
            return
        self._state.work(parts)

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
        return self.return_all(worker, [unit for unit in worker.leases if unit.queue in left])

    @staticmethod
    def check_work(worker: Worker, queues: Iterable[bytes]) -> None:
        """See that a worker works on queues.  Raises NotWorking (NOTWORKING)."""
        for queue in queues:
            if queue not in worker.queues:
                raise NotWorking(queue)

    def bind(self, worker: Worker, units: Iterable[Unit]) -> None:
        """Let jobs come back when a worker dies that has just taken them; `entrydelivery` binds entries."""
        taken: list[Job] = []
        for unit in units:
            worker.started += 1
            if isinstance(unit, Job) and unit.options.retry_ms:
                self.hold(worker, unit, self._state.now)
                taken.append(unit)
        if taken:
            self.wake(worker)
            tell_leases(self._state, worker, taken)

    def hold(self, worker: Worker, job: Job, since: int) -> None:
        """Enter a job that a worker has, and that is leased, and write it down."""
        state = self._state
        self.keep(worker, job, since)
        # What was taken for a time of the fetch's own is queued at once after a crash.
        if state.journaling and job not in state.custody.spans:
            state.outbox.journal.append((UNIT_LEASED, job.id, WORK_SCOPE, attempt_of(job), worker.id))

    def keep(self, worker: Worker, job: Job, since: int) -> None:
        """Enter a job that a worker has, and that is leased."""
        if job not in self._state.custody.bound:
            self._state.memory.used += BOUND_COST
        self._state.custody.bound[job] = worker
        worker.leases[job] = since
        retry_ms = job.options.retry_ms
        if retry_ms < RETRY_NEVER_MS and job not in self._state.custody.spans:
            renew_ms = max(1, retry_ms // 3)
            if not worker.renew_at or renew_ms < worker.renew_ms:
                worker.renew_ms = renew_ms
                worker.renew_at = self._state.now + renew_ms

    def _renew(self, worker: Worker) -> None:
        """Put off the retry timers of all that a worker has."""
        if not worker.leases:
            worker.renew_at = worker.renew_ms = 0
            return
        worker.renew_at = self._state.now + worker.renew_ms
        self.do(self._renew_parts(worker, _jobs(worker.leases)))

    def _renew_parts(self, worker: Worker, jobs: list[Job]) -> QuietParts:
        state = self._state
        for at in range(0, len(jobs), LEASES_AT_ONCE):
            if at:
                yield
            kept = [job for job in jobs[at : at + LEASES_AT_ONCE] if state.custody.bound.get(job) is worker]
            for job in kept:
                retry_ms = job.options.retry_ms
                if retry_ms < RETRY_NEVER_MS and job not in state.custody.spans:
                    job.requeue_at = state.now + retry_ms
            tell_leases(self._state, worker, kept)

    # The way back.

    def return_all(self, worker: Worker, units: list[Unit]) -> Parts:
        """Queue units again that a worker has, in front of all and in their order; returns how many."""
        units.sort(key=_place, reverse=True)
        returned = 0
        for at in range(0, len(units), LEASES_AT_ONCE):
            if at:
                yield
            returned += self.give_back(unit for unit in units[at : at + LEASES_AT_ONCE] if unit in worker.leases)
        return returned

    def give_back(self, units: Iterable[Unit], *, asked: bool = False) -> int:
        """Queue units again that consumers have, each in front of the one before; returns how many were queued.

        `asked`: somebody gives them back, so that another node whose worker has them does not keep them.
        """
        state = self._state
        counts: dict[bytes, int] = {}
        for unit in units:
            worker = self.holder_of(unit)
            if self._put_in_front(unit, asked=asked and not unit.flags & FLAG_LEASED):
                counts[unit.queue] = counts.get(unit.queue, 0) + 1
                if worker is not None:
                    worker.returned += 1
        for queue, count in counts.items():
            self._events.tell(queue, RETURNED, count)
        returned = sum(counts.values())
        state.counters.tasks_given_back += returned
        return returned

    def _put_in_front(self, unit: Unit, *, asked: bool) -> bool:
        if isinstance(unit, EntryUnit):
            return self._return_entry(unit)
        if not isinstance(unit, Job) or unit.state != ACTIVE:
            return False
        return self._requeueing.enqueue(unit, asked=asked, front=True)

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
        worker = self._back(worker_id, job.queue)
        if not job.flags & FLAG_LEASED:
            self._queueing.leases.begin(job, state.now)
        self.keep(worker, job, state.now)
        self.wake(worker)

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
            self.wake(worker)


def _jobs(units: Iterable[Unit]) -> list[Job]:
    """The jobs among units."""
    return [unit for unit in units if isinstance(unit, Job)]


def readable(text: bytes) -> str:
    """Bytes as they stand in JSON: UTF-8, and what is none of it so that it can be turned back."""
    return text.decode("utf-8", "surrogateescape")
