"""Where workers live in a cluster, who holds what they have, and what becomes of both when a node goes.

    home      --LIVES--> all              this worker is mine, with this epoch and this time to live; or: it has ended
              --LEASED--> other holders   it has these jobs: leave them alone for a retry period; again in each renewal
    new home  --LIVES, epoch + 1--> all   somebody has come to me as this worker: KEEPALIVE or START with its id
    old home  --YOURJOBS, HANDOVER-->     here is what it had, and what it works on

Of two homes the one with the higher epoch is it, and of two equal ones that with the higher node id: who hears of a
better one lets go, whoever hears of a worse one says so.

A holder that was told by LEASED whose a job is can do without its home:

    the home's node has FAILed --- one ttl of the worker ---> WILLQUEUE --- half a second ---> to the front
                        |--- the worker came to another node ---> that one has it now

Of several holders the one that comes first for a job queues it, the others half a second later if nobody has spoken.

When two nodes that could not hear each other gave out the same job, the higher attempt keeps it, and of two equal ones
the node that comes first for the job; the other worker hears that its process is cancelled.

All of this is a hint and none of it a proof: a message that is lost costs a retry period, and never a job.

Times are integer milliseconds; spans travel, never instants.
"""

from disqued.core.cluster.notifications import Notifications
from disqued.core.model import messages
from disqued.core.model.ids import comes_first
from disqued.core.model.job import ACTIVE, FLAG_HELD_ELSEWHERE, RETRY_NEVER_MS, WORK_SCOPE, Job, attempt_of, process_of
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.memory import HOME_COST
from disqued.core.model.messages import JOBS_PER_MESSAGE, WORKERS_PER_MESSAGE, Held, WorkerStatus
from disqued.core.model.outbox import CANCEL
from disqued.core.model.peers import FAIL
from disqued.core.model.state import State, goes_first
from disqued.core.model.unfinished import QuietParts
from disqued.core.model.worker import RemoteWorker, Worker
from disqued.core.work.copies import SPREAD_MS
from disqued.core.work.queueing import Queueing
from disqued.core.work.requeueing import WORKER_DIED, end_of_worker
from disqued.core.work.sharing import Sharing
from disqued.core.workers.announcements import held_by, life_of
from disqued.core.workers.worker_leases import LEASES_AT_ONCE, last_first
from disqued.core.workers.workers import TTL_MS, WORKERS_MAX, Workers

DOUBTED = -1  #: the stage of a home that has yet to be named again
DOUBTED_AND_FAILED = -2  #: of one whose node has failed since
NAMED_MS = 10_000  #: how long a node that comes back is given to name its workers


class Homes(Machine):
    """The machine that knows of the workers of other nodes, and tells them of ours."""

    __slots__ = ("_events", "_queueing", "_sharing", "_state", "_workers", "known")

    def __init__(
        self, state: State, queueing: Queueing, sharing: Sharing, workers: Workers, events: Notifications
    ) -> None:
        self._state = state
        self._queueing = queueing
        self._sharing = sharing
        self._workers = workers
        self._events = events
        #: Workers of other nodes, by id.
        self.known: dict[bytes, RemoteWorker] = {}

    def hears(self) -> dict[int, Hear]:
        return {
            messages.LIVES: self.on_lives,
            messages.LEASED: self.on_leased,
        }

    def due_table(self) -> Acts:
        return on(RemoteWorker, self.due)

    # Telling others of ours.

    def link_opened(self, node_id: bytes) -> None:
        """Let a node hear of all workers of this one."""
        lives = list(map(life_of, self._workers.by_id.values()))
        for at in range(0, len(lives), WORKERS_PER_MESSAGE):
            self._state.send(node_id, (messages.LIVES, tuple(lives[at : at + WORKERS_PER_MESSAGE])))

    # Hearing of those of others.

    def greeted(self, node_id: bytes) -> None:
        """The link of a node to us is new: workers of it that it does not name on it have ended, which got lost."""
        state = self._state
        for home in self.known.values():
            if home.node_id == node_id:
                home.stage = DOUBTED
                state.schedule.move(home, state.now + NAMED_MS)

    def on_lives(self, sender: bytes, lives: tuple[WorkerStatus, ...]) -> None:
        """Hear of workers of another node."""
        for life in lives:
            if life.lives:
                self._hear_of_life(sender, life)
            else:
                self._hear_of_end(sender, life)

    def _hear_of_end(self, sender: bytes, life: WorkerStatus) -> None:
        home = self.known.get(life.worker_id)
        if home is not None and home.node_id == sender and home.epoch <= life.epoch:
            self._forget(home)

    def _hear_of_life(self, sender: bytes, life: WorkerStatus) -> None:
        worker = self._workers.by_id.get(life.worker_id)
        if worker is None:
            self._note(sender, life.worker_id, life.epoch, life.ttl_ms)
        elif (worker.epoch, self._state.node_id) < (life.epoch, sender):
            units = self._workers.let_go(worker)
            home = self._note(sender, life.worker_id, life.epoch, life.ttl_ms)
            if home is not None:
                self._state.begin_work(self._hand_over(worker, home, units))
        else:
            self._state.send(sender, (messages.LIVES, (life_of(worker),)))

    def _note(self, sender: bytes, worker_id: bytes, epoch: int, ttl_ms: int) -> RemoteWorker | None:
        """Note where a worker lives; None when a better word is known, there are too many, or memory is full."""
        home = self.known.get(worker_id)
        if home is None:
            memory = self._state.memory
            if len(self.known) >= WORKERS_MAX or not memory.has_room(HOME_COST + len(worker_id)):
                return None
            home = self.known[worker_id] = RemoteWorker(worker_id, epoch, sender, ttl_ms)
            memory.hold(HOME_COST + len(worker_id))
        elif home.node_id == sender:
            home.epoch, home.ttl_ms = epoch, ttl_ms
            home.highest = max(home.highest, epoch)
            self._stand_down(home)
        elif (home.epoch, home.node_id) > (epoch, sender):
            return None
        else:
            before = home.node_id
            home.epoch, home.ttl_ms, home.node_id = epoch, ttl_ms, sender
            home.highest = max(home.highest, epoch)
            self._stand_down(home)
            if home.jobs and before not in self._state.peers.linked:
                # Who had them cannot hand them over itself.
                self._tell_of_held(home)
        return home

    def _stand_down(self, home: RemoteWorker) -> None:
        """The worker is alive somewhere: what it has is not taken back."""
        home.stage = 0
        self._state.schedule.cancel(home)

    def remove(self, worker_id: bytes) -> RemoteWorker | None:
        """Know no more where a worker lives; returns what was known."""
        home = self.known.pop(worker_id, None)
        if home is not None:
            self._state.memory.hold(-HOME_COST - len(worker_id))
            self._stand_down(home)
        return home

    def _forget(self, home: RemoteWorker) -> None:
        """Forget a worker that has ended; what it had is another node's to say, or a matter of retry periods."""
        self.remove(home.worker_id)
        state = self._state
        for job in list(home.jobs):
            if job.options.retry_ms == RETRY_NEVER_MS:
                # Nothing else would ever ask after it.
                self._queueing.put_off(job, state.now + job.options.probe_ms + state.numbers.spread(SPREAD_MS))
            else:
                state.end_lease(job)

    def on_leased(self, sender: bytes, worker_id: bytes, epoch: int, ttl_ms: int, units: tuple[Held, ...]) -> None:
        """Leave jobs alone that a worker of another node has."""
        if worker_id in self._workers.by_id:
            self._hear_of_life(sender, WorkerStatus(worker_id, epoch, ttl_ms, lives=True))
            if worker_id in self._workers.by_id:
                return
        home = self._note(sender, worker_id, epoch, ttl_ms)
        for held in units if home is not None else ():
            job = self._sharing.known(sender, held.job_id)
            if job is not None and job.options.retry_ms and held.scope == WORK_SCOPE:
                assert home is not None
                self._leave_to(home, job, held)

    def _leave_to(self, home: RemoteWorker, job: Job, held: Held) -> None:
        """Note that a worker elsewhere has a job, unless the consumer that has it here has the better claim."""
        state = self._state
        if self._queueing.is_leased(job):
            ours, theirs = attempt_of(job), held.attempt
            if ours > theirs or (ours == theirs and comes_first(state.node_id, home.node_id, job.id)):
                self._insist(home.node_id, job)
                return
            self._events.tell(job.queue, CANCEL, process_of(job))
        self._queueing.dequeue(job)
        self._put_in_hands_of(home, job, held.age_ms)
        job.additional_deliveries += max(0, held.attempt - attempt_of(job))

    def _insist(self, node_id: bytes, job: Job) -> None:
        """Tell a node whose worker has a job that one of ours has it by right."""
        state = self._state
        worker = state.custody.bound.get(job)
        if worker is None:
            state.send(node_id, (messages.WORKING, job.id, WORK_SCOPE, job.requeue_at - state.now))
        else:
            held = held_by(state, worker, job)
            state.send(node_id, (messages.LEASED, worker.id, worker.epoch, worker.ttl_ms, (held,)))

    def _put_in_hands_of(self, home: RemoteWorker, job: Job, age_ms: int) -> None:
        """Let the timer of a job end after that of the worker's home, and note whose it is.

        One that nothing takes from its consumer is delivered as well, as whoever recovers sees it.
        """
        state = self._state
        if job.state != ACTIVE:
            return
        is_manual = job.options.retry_ms == RETRY_NEVER_MS
        if not is_manual or not self._was_delivered_by(home.node_id, job):
            waits_ms = min(job.options.retry_ms + state.numbers.spread(SPREAD_MS), RETRY_NEVER_MS)
            self._queueing.put_off(job, state.now + waits_ms)
            if is_manual:
                deliveries = attempt_of(job) - job.options.fate.spent
                self._queueing.leases.note_elsewhere(job, home.node_id, age_ms, deliveries)
        elif job in state.custody.elsewhere:
            del state.custody.elsewhere[job].jobs[job]
        job.flags |= FLAG_HELD_ELSEWHERE
        state.custody.elsewhere[job] = home
        home.jobs[job] = None

    def _was_delivered_by(self, node_id: bytes, job: Job) -> bool:
        """Tell whether it is known that a consumer of a node has a job: the word of its lease came before."""
        return self._state.queue(job.queue).elsewhere.get(job, (0, b""))[1] == node_id

    # Handing over.

    def _hand_over(self, worker: Worker, home: RemoteWorker, jobs: list[Job]) -> QuietParts:
        """Give the new home of a worker what it has: the jobs, and their leases."""
        state = self._state
        queues = tuple(worker.queues)
        for at in range(0, max(1, len(jobs)), JOBS_PER_MESSAGE):
            if at:
                yield
            mine = [job for job in jobs[at : at + JOBS_PER_MESSAGE] if state.custody.bound.get(job) is worker]
            last = at + JOBS_PER_MESSAGE >= len(jobs)
            held = tuple(held_by(state, worker, job) for job in mine)
            self._send_jobs(mine, home.node_id)
            message = (messages.HANDOVER, worker.id, home.epoch, worker.name, queues, held, last)
            state.send(home.node_id, message)
            for job, its in zip(mine, held, strict=True):
                self._put_in_hands_of(home, job, its.age_ms)

    def hand_over(self, worker_id: bytes, node_id: bytes, jobs: list[Job]) -> None:
        """Give jobs that were just recovered here to a worker of another node (`is_home`), with their leases."""
        home = self.known[worker_id]
        held = tuple(Held(job.id, job.scope, attempt_of(job), 0) for job in jobs)
        self._send_jobs(jobs, node_id)
        self._state.send(node_id, (messages.HANDOVER, worker_id, home.epoch, b"", (), held, False))
        for job in jobs:
            self._put_in_hands_of(home, job, 0)

    def is_home(self, worker_id: bytes, node_id: bytes) -> bool:
        """Tell whether a worker lives on another node, as far as this one was told."""
        home = self.known.get(worker_id)
        return home is not None and home.node_id == node_id

    def _tell_of_held(self, home: RemoteWorker) -> None:
        """Give the new home of a worker what is known here of what it has."""
        jobs = list(home.jobs)
        self._state.begin_work(self._tell_of_held_parts(home, jobs))

    def _tell_of_held_parts(self, home: RemoteWorker, jobs: list[Job]) -> QuietParts:
        for at in range(0, len(jobs), JOBS_PER_MESSAGE):
            if at:
                yield
            mine = [job for job in jobs[at : at + JOBS_PER_MESSAGE] if self._state.custody.elsewhere.get(job) is home]
            self._send_jobs(mine, home.node_id)
            held = tuple(Held(job.id, job.scope, attempt_of(job), 0) for job in mine)
            message = (messages.HANDOVER, home.worker_id, home.epoch, b"", (), held, False)
            self._state.send(home.node_id, message)

    def _send_jobs(self, jobs: list[Job], node_id: bytes) -> None:
        """Give a node jobs: it may hold copies of some, which is not known for sure of any."""
        state = self._state
        for job in jobs:
            state.unite_holders(job, frozenset((state.node_id, node_id)))
        if jobs:
            state.send(node_id, (messages.YOURJOBS, tuple(jobs), False))

    # A node that has failed.

    def node_failed(self, node_id: bytes) -> None:
        """A node has failed: what its workers had comes back, unless they turn up elsewhere within their time."""
        state = self._state
        for home in self.known.values():
            if home.node_id == node_id and (home.stage == DOUBTED or not home.awake_at):
                home.stage = DOUBTED_AND_FAILED if home.stage == DOUBTED else 0
                state.schedule.move(home, state.now + (home.ttl_ms or TTL_MS))

    def due(self, home: RemoteWorker) -> None:
        """Go on with taking back what a worker had whose home has failed."""
        state = self._state
        peer = state.peers.by_id.get(home.node_id)
        is_back = peer is not None and not peer.flags & FAIL
        if home.stage == DOUBTED or (home.stage == DOUBTED_AND_FAILED and is_back):
            self._forget(home)
            return
        if self.known.get(home.worker_id) is not home or is_back:
            home.stage = 0
            return
        home.stage = max(0, home.stage)
        if home.stage == 0:
            for job in home.jobs:
                state.tell(job, (messages.WILLQUEUE, job.id, WORK_SCOPE))
        elif home.stage == 1:
            jobs = [job for job in home.jobs if goes_first(state, job.holders, job.id)]
            self._state.begin_work(self._take_back(home, jobs))
        else:
            self._state.begin_work(self._take_back_all(home))
            return
        home.stage += 1
        state.schedule.add(home, state.now + SPREAD_MS)

    def _take_back(self, home: RemoteWorker, jobs: list[Job]) -> QuietParts:
        """Queue jobs in front of all, in their order, of which nobody has said anything else meanwhile."""
        jobs = last_first(jobs)
        for at in range(0, len(jobs), LEASES_AT_ONCE):
            if at:
                yield
            some = [job for job in jobs[at : at + LEASES_AT_ONCE] if self._state.custody.elsewhere.get(job) is home]
            self._workers.leases.give_back(some, end_of_worker(home.worker_id, WORKER_DIED))

    def _take_back_all(self, home: RemoteWorker) -> QuietParts:
        """Queue what is left, and forget the worker, unless it has turned up meanwhile."""
        yield from self._take_back(home, list(home.jobs))
        if home.stage and self.known.get(home.worker_id) is home:
            self._forget(home)

    # The whole node.

    def flushed(self) -> None:
        """Every job is gone, and the schedule with them."""
        for home in self.known.values():
            home.jobs.clear()
            home.awake_at = home.stage = 0
        failed = [node_id for node_id, peer in self._state.peers.by_id.items() if peer.flags & FAIL]
        for node_id in failed:
            self.node_failed(node_id)
