"""Federation: jobs go to where consumers wait.

A node whose consumers find a queue empty asks the others, and who has jobs of that queue brings some.  Who has none
remembers who asked, and brings them when they come: a job added here is with a consumer that waits there after one
message.

    asks                                            gives
    nothing found   --NEEDJOBS(queue, n)-->         has some: brings them at once
                    <--YOURJOBS(jobs)------         has none: remembers it (`demand`), and brings them when they come
    nobody waits    --NEEDJOBS(queue, 0)-->         forgets it

Consumers that wait come before those that only look (NOHANG) and may come again, wherever they are: the latter ask by
POLLJOBS, which is as NEEDJOBS in everything else.  `local_demand` asks; this machine gives and takes.

Giving.  A consumer of this node comes first.  Else another node gets as many as it asked for, or half of what is
there, but one at least, when that is less than twice as much; one message brings 100 jobs at most, or fewer of large
ones.  Nothing is taken out of a queue for a node that cannot be reached now.

Jobs do not wander.  What was asked for ahead, for consumers that are to come, stays for 2 s after the last of it came:
meanwhile a node gives no more jobs than came into the queue in other ways (`PrefetchedQueue`), but to nodes where
consumers wait.
Who brings jobs of a queue has no consumers that wait for it: what it wanted before is one job at most, for a consumer
that looks, until it asks again.
Whatever else comes and finds that nobody waits any more, since another node was faster or the consumer left, goes at
once to where it is wanted.  Each move meets a want, which is used up, so that jobs move no more often than consumers
ask.

What moves has a chance to run.  Of a queue with GROUPINFLIGHT a node brings no job whose group has all its slots, as
far as it knows, and looks again when one is free.  A node whose own jobs all have to wait for a slot or a token of
their groups asks for others, and says which groups these are (NEEDOTHERS); it is brought no job of them.

A queue that is paused out or throttled neither asks nor gives, and jobs of a group that is throttled stay.  One that is
paused in takes what other nodes bring: it was asked for, or has nowhere else to be.  A node that is leaving gives and
does not ask.  One that is over `maxmemory` takes only what it asked for, and jobs that are delivered at most once: they
are nowhere else any more.  One that is a tenth over does not ask, and the others give it no more than it has room for,
as it told last, or one job.

Times are integer milliseconds.  Source: Disque, src/queue.c; the Disque README, "Client nodes: federation".
"""

from disqued.core.cluster.local_demand import LINGER_MS, LocalDemand
from disqued.core.cluster.transfer import Transfer
from disqued.core.cluster.witnesses import Witnesses
from disqued.core.model.demand import DemandTable, JobDemand
from disqued.core.model.grouped import PASSED_OVER
from disqued.core.model.job import Job, StoredJob
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.memory import OVERDRAFT_PART, cost_of_job
from disqued.core.model.messages import GOTJOB, JOBS_PER_MESSAGE, NEEDJOBS, NEEDOTHERS, POLLJOBS, YOURJOBS
from disqued.core.model.peers import LEAVING, Peer
from disqued.core.model.queues import HOLDS_ALL, Queue
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.work.delivery import FETCHED_BYTES, Delivery
from disqued.core.work.fates import Fates
from disqued.core.work.purges import Purges

KEPT_MS = LINGER_MS  #: how long what was asked for ahead stays
PASSED_MAX = 200  #: groups without a free slot that are passed over at a time, to find jobs that can run


class PrefetchedQueue(Timed):
    """A queue into which other nodes brought jobs in the last seconds that were asked for ahead."""

    __slots__ = ("at", "jobs_in", "own", "queue")

    def __init__(self, queue: Queue) -> None:
        self.awake_at = 0
        self.queue: Queue = queue
        self.at: int = 0  #: when the last job came
        self.own: int = 0  #: jobs in the queue then that may be given, at most
        self.jobs_in: int = 0  #: count of the queue then


class Federation(Machine):
    """The machine that moves jobs between the queues of one name."""

    __slots__ = ("_arrivals", "_state", "_witnesses", "imports", "local_demand", "moves", "wants")

    def __init__(self, state: State, delivery: Delivery, fates: Fates, purges: Purges, witnesses: Witnesses) -> None:
        self._state = state
        self._witnesses = witnesses
        self.local_demand = LocalDemand(state)
        self.moves = Transfer(state, delivery, fates, purges)
        self._arrivals: dict[bytes, PrefetchedQueue] = {}
        self.wants = DemandTable(state.demand.jobs)
        self.imports: int = 0  #: jobs that other nodes brought, some of them perhaps in vain

    def hears(self) -> dict[int, Hear]:
        return {
            NEEDJOBS: self.on_needjobs,
            POLLJOBS: self.on_polljobs,
            NEEDOTHERS: self.on_needothers,
            YOURJOBS: self.on_yourjobs,
        }

    def due_table(self) -> Acts:
        return on(PrefetchedQueue, self.due)

    def flushing(self) -> None:
        """Every queue is gone, and the schedule with them."""
        self._arrivals.clear()

    # Giving.

    def link_opened(self, node_id: bytes) -> None:
        """Bring a node that has just become reachable what it wants."""
        for name in self.wants.of_node(node_id):
            self.look_at(name)

    def on_needjobs(self, sender: bytes, name: bytes, count: int) -> None:
        """Give jobs to consumers that wait on another node, or remember that they do."""
        self._note_want(sender, name, count, waits=True)

    def on_polljobs(self, sender: bytes, name: bytes, count: int) -> None:
        """The same for consumers that poll."""
        self._note_want(sender, name, count, waits=False)

    def on_needothers(self, sender: bytes, name: bytes, count: int, waits: bool, groups: tuple[bytes, ...]) -> None:
        """The same for consumers of a node where the jobs of some groups have to wait."""
        self._note_want(sender, name, count, waits=waits, without=groups)

    def _note_want(
        self, sender: bytes, name: bytes, count: int, *, waits: bool, without: tuple[bytes, ...] = ()
    ) -> None:
        if not count:
            self.wants.forget(name, sender)
            return
        now = self._state.now
        want = self.wants.note(name, sender, min(count, JOBS_PER_MESSAGE), now, waits=waits, without=without)
        queue = self._state.queues.by_name.get(name)
        if queue is not None:
            self._bring(queue, sender, want)

    def give(self) -> None:
        """Bring jobs of the queues in `state.demand.giving` to the nodes that want them."""
        giving = self._state.demand.giving
        while giving:
            queue = next(iter(giving))
            del giving[queue]
            for node_id, want in self.wants.of_queue(queue.name, self._state.now):
                if not self._bring(queue, node_id, want):
                    break

    def look_at(self, name: bytes) -> None:
        """See at the end of the step what of a queue other nodes can have."""
        state = self._state
        queue = state.queues.by_name.get(name)
        if queue is not None and name in state.demand.jobs:
            state.demand.giving[queue] = None

    def _bring(self, queue: Queue, node_id: bytes, want: JobDemand) -> bool:
        """Bring a node jobs that it wants, if it can be reached; say whether others may get some, too."""
        units = queue.grouped
        if units is None or not want.without:
            return self._bring_ready(queue, node_id, want)
        for group in want.without:
            units.block(group, PASSED_OVER)
        self._bring_ready(queue, node_id, want)
        for group in want.without:
            units.unblock(group, PASSED_OVER)
        return True

    def _bring_ready(self, queue: Queue, node_id: bytes, want: JobDemand) -> bool:
        """The same, of all groups that are ready."""
        state = self._state
        stock = self._stock(queue, everything=want.waits)
        if stock <= 0:
            return False
        peer = state.peers.linked.get(node_id)
        if peer is None or peer.flags & LEAVING:
            return True
        count = want.count if stock >= 2 * want.count else max(1, stock // 2)
        jobs = self._give_away(queue, count, node_id, self._room_of(peer))
        if jobs:
            size = sum(map(cost_of_job, jobs))
            peer.given += size
            peer.given_lately += size
            arrival = self._arrivals.get(queue.name)
            if arrival is not None:
                arrival.own -= len(jobs)
            self.wants.met(queue.name, node_id, len(jobs))
            self.local_demand.note_export(queue, node_id)
            state.send(node_id, (YOURJOBS, tuple(jobs), True))
        return True

    def _give_away(self, queue: Queue, count: int, node_id: bytes, room: int | None) -> list[Job]:
        """Take up to `count` jobs out of a queue for another node; of groups with a limit no more than may run."""
        units = queue.grouped
        most = self._state.queues.policies.limits_of(queue.name).group_in_flight
        if units is None or not most:
            return self.moves.give_away(queue, count, node_id, room)
        jobs: list[Job] = []
        size = 0
        given: dict[bytes, int] = {}
        passed: list[bytes] = []
        while len(jobs) < count and size < FETCHED_BYTES and units.ready_count and len(passed) < PASSED_MAX:
            group = units.head.options.terms.group
            if given.get(group, 0) + self._witnesses.running_of(queue.name, group) >= most:
                units.block(group, PASSED_OVER)
                passed.append(group)
                continue
            job = next(iter(self.moves.give_away(queue, 1, node_id, room)), None)
            if job is None:
                break
            given[group] = given.get(group, 0) + 1
            jobs.append(job)
            size += len(job.body)
            room = None if room is None else room - cost_of_job(job)
        for group in passed:
            units.unblock(group, PASSED_OVER)
        return jobs

    def _room_of(self, peer: Peer) -> int | None:
        """Bytes that this node may give another one until that tells again how much it has; None = it told nothing yet.

        Every node that has jobs for it may give some: so each gives its share of the room.
        """
        if peer.account is None:
            return None
        vitals = peer.account.vitals
        room = vitals.limit + vitals.limit // OVERDRAFT_PART - vitals.memory
        return room // max(1, len(self._state.peers.linked)) - peer.given

    def _stock(self, queue: Queue, *, everything: bool) -> int:
        """How many jobs of a queue other nodes can have now, at most; without `everything` not what is kept."""
        if queue.holds & HOLDS_ALL or queue.waiters:
            return 0
        arrival = self._arrivals.get(queue.name)
        if everything or arrival is None or arrival.queue is not queue or not self._is_recent(arrival):
            return queue.units.ready_count
        return min(queue.units.ready_count, arrival.own + queue.jobs_in - arrival.jobs_in)

    def _is_recent(self, arrival: PrefetchedQueue) -> bool:
        return self._state.now - arrival.at < KEPT_MS

    def due(self, arrival: PrefetchedQueue) -> None:
        """Give what was kept for consumers that have not come."""
        if self._is_recent(arrival):
            self._state.schedule.add(arrival, arrival.at + KEPT_MS)
            return
        del self._arrivals[arrival.queue.name]
        self.look_at(arrival.queue.name)

    # Taking over.

    def on_yourjobs(self, sender: bytes, jobs: tuple[StoredJob, ...], queued: bool) -> None:
        """Take jobs over."""
        state = self._state
        # A node that is leaving goes when it knows that what it had is elsewhere.
        is_last_word = state.peers.by_id[sender].flags & LEAVING
        wanted = {name: self.local_demand.is_wanted(name) for name in dict.fromkeys(stored.queue for stored in jobs)}
        for stored in jobs:
            if stored.retry_ms and not self._has_room_for(stored, is_wanted=wanted[stored.queue]):
                continue  # the sender has a copy
            self.imports += 1
            if self.moves.take_over(stored, sender, queued=queued):
                state.counters.imported += 1
                queue = state.queues.by_name[stored.queue]
                if self.local_demand.note_import(queue, sender):
                    self._note_arrival(queue)
            if is_last_word and state.jobs.get(stored.id) is not None:
                state.send(sender, (GOTJOB, stored.id))
        if queued:
            for name, is_wanted in wanted.items():
                self.wants.brought(name, sender)
                if not is_wanted:
                    state.send(sender, (NEEDJOBS, name, 0))

    def _has_room_for(self, stored: StoredJob, *, is_wanted: bool) -> bool:
        """Return whether there is room for a job: a tenth over the limit at most, if consumers wait for it."""
        memory = self._state.memory
        return memory.can_take(cost_of_job(stored)) if is_wanted else memory.level < 3

    def _note_arrival(self, queue: Queue) -> None:
        """Keep a job that was asked for ahead for the consumers that are to come."""
        now = self._state.now
        arrival = self._arrivals.get(queue.name)
        if arrival is None:
            arrival = self._arrivals[queue.name] = PrefetchedQueue(queue)
            self._state.schedule.add(arrival, now + KEPT_MS)
        # The job itself is in the queue and is counted by now.
        own = len(queue.units) - 1
        if arrival.at and arrival.queue is queue and self._is_recent(arrival):
            own = min(own, arrival.own + queue.jobs_in - 1 - arrival.jobs_in)
        arrival.queue = queue
        arrival.own = own
        arrival.jobs_in = queue.jobs_in
        arrival.at = now

    # Pauses and other holds.

    def holds_changed(self, queue: Queue) -> None:
        """Withdraw what this node asks for a queue that hands nothing out now, or ask and give again."""
        if queue.holds & HOLDS_ALL:
            self.local_demand.end(queue.name)
        else:
            self.look_at(queue.name)
            if queue.is_awaited and not queue.units.ready_count:
                self.local_demand.need([queue])
