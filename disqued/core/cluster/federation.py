"""Federation: jobs go to where consumers wait.

A node whose consumers find a queue empty asks the others, and who has jobs of that queue brings some.  Who has none
remembers who asked, and brings them when they come: a job added here is with a consumer that waits there after one
message.

    asks                                            gives
    nothing found   --NEEDJOBS(queue, n)-->         has some: brings them at once
                    <--YOURJOBS(jobs)------         has none: remembers it (`demand`), and brings them when they come
    nobody waits    --NEEDJOBS(queue, 0)-->         forgets it

Consumers that wait come before those that only look (NOHANG) and may come again, wherever they are: the latter ask by
POLLJOBS, which is as NEEDJOBS in everything else.

Asking.  All nodes are asked at once, and again after 2 s, 4 s, 8 s ... 30 s while a consumer waits.  Those that brought
jobs within the last 5 s are asked besides: when the queue is empty again, and 25 ms, 50 ms ... 2 s later while nothing
comes.  Each job that comes lets that begin anew.  Who has brought something since it was asked is always among those;
of the others, who remember what they were asked for, four at a time, in turn: a consumer that a hundred nodes feed does
not ask a hundred nodes for each job.  They are asked for as many as wait, or for more: twice as many each
time that the last ones were taken within a quarter of a second, half as many when they lasted longer.  So a consumer
that is fast does not wait for each job, and one that is slow keeps no jobs from others.  A consumer that does not wait
(NOHANG) asks as well, and what it asked for stands for 2 s, until when it may have come again.

Giving.  A consumer of this node comes first.  Else another node gets as many as it asked for, or half of what is
there, but one at least, when that is less than twice as much; one message brings 100 jobs at most, or fewer of large
ones.  Nothing is taken out of a queue for a node that cannot be reached now.

Jobs do not wander.  What was asked for ahead, for consumers that are to come, stays for 2 s after the last of it came:
meanwhile a node gives no more jobs than came into the queue in other ways (`PrefetchedQueue`), but to nodes where
consumers wait.
Whatever else comes and finds that nobody waits any more, since another node was faster or the consumer left, goes at
once to where it is wanted.  Each move meets a want, which is used up, so that jobs move no more often than consumers
ask.

A queue that is paused out neither asks nor gives.  One that is paused in takes what other nodes bring: it was asked
for, or has nowhere else to be.  A node that is leaving gives and does not ask.  One that is over `maxmemory` takes only
what it asked for, and jobs that are delivered at most once: they are nowhere else any more.  One that is a tenth over
does not ask, and the others give it no more than it has room for, as it told last, or one job.

Times are integer milliseconds.  Source: Disque, src/queue.c; the Disque README, "Client nodes: federation".
"""

from collections.abc import Iterable
from itertools import islice

from disqued.core.cluster.transfer import Transfer
from disqued.core.model.demand import DemandTable, JobDemand
from disqued.core.model.job import StoredJob
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.memory import OVERDRAFT_PART, cost_of_job
from disqued.core.model.messages import GOTJOB, JOBS_PER_MESSAGE, NEEDJOBS, POLLJOBS, YOURJOBS, Message
from disqued.core.model.peers import LEAVING, Peer
from disqued.core.model.queues import PAUSE_OUT, ImportRate, Queue
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.unfinished import QuietParts
from disqued.core.model.waiters import Awaited
from disqued.core.work.delivery import Delivery

BROADCAST_MIN_MS = 2_000
BROADCAST_DOUBLINGS = 4
BROADCAST_MAX_MS = 30_000
AD_HOC_MIN_MS = 25
AD_HOC_DOUBLINGS = 7
AD_HOC_MAX_MS = 2_000
RECENT_MS = ImportRate.MEMORY_MS  #: who brought jobs since then is asked first
ASKED_AGAIN = 4  #: nodes that are asked once more at a time, of those that have brought nothing since they were asked
AHEAD_MS = 250  #: what is asked for ahead is to last about so long
LINGER_MS = 2_000  #: how long what was asked for a consumer stands after it has gone
KEPT_MS = LINGER_MS  #: how long what was asked for ahead stays
ASKED_PER_PART = 500  #: queues that a node is asked for in one go when a link opens, some milliseconds' work


class FollowUp(Timed):
    """Something that federation comes back to; `Federation.due` is told."""

    __slots__ = ("queue",)

    def __init__(self, queue: Queue) -> None:
        self.awake_at = 0
        self.queue: Queue = queue


class QueueDemand(FollowUp):
    """A queue whose consumers found it empty, and how others were asked for its jobs."""

    __slots__ = (
        "ad_hoc_at", "ad_hocs", "ahead", "asked", "asked_at", "batch", "broadcast_at", "broadcasts", "came",
        "lingers_until", "told", "waits",
    )  # fmt: skip

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue)
        self.asked: int = 0  #: jobs that all nodes were asked for last
        self.waits: bool = False  #: they were told that consumers wait
        #: Nodes that brought jobs, and were asked and have brought none since, longest ago first: do they know that
        #: consumers wait?
        self.told: dict[bytes, bool] = {}
        self.broadcasts: int = 0  #: how often all were asked since a node brought jobs that had not done so before
        self.broadcast_at: int = 0  #: when all are asked again, at the earliest
        self.ad_hocs: int = 0  #: how often those that brought jobs were asked since they did
        self.ad_hoc_at: int = 0  #: when they are asked again, at the earliest
        self.lingers_until: int = 0  #: until when somebody may come again who did not wait
        self.batch: int = 1  #: jobs that last about `AHEAD_MS`
        self.asked_at: int = 0  #: when those that brought jobs were asked last
        self.came: bool = False  #: jobs came since then
        self.ahead: int = 0  #: jobs that were asked for and have not come, for which nobody waits yet


class PrefetchedQueue(FollowUp):
    """A queue into which other nodes brought jobs in the last seconds that were asked for ahead."""

    __slots__ = ("at", "jobs_in", "own")

    def __init__(self, queue: Queue) -> None:
        super().__init__(queue)
        self.at: int = 0  #: when the last job came
        self.own: int = 0  #: jobs in the queue then that may be given, at most
        self.jobs_in: int = 0  #: count of the queue then


class Federation(Machine):
    """The machine that moves jobs between the queues of one name."""

    __slots__ = ("_arrivals", "_hungers", "_state", "imports", "moves", "wants")

    def __init__(self, state: State, delivery: Delivery) -> None:
        self._state = state
        self.moves = Transfer(state, delivery)
        self._hungers: dict[bytes, QueueDemand] = {}
        self._arrivals: dict[bytes, PrefetchedQueue] = {}
        self.wants = DemandTable(state.demand.jobs)
        self.imports: int = 0  #: jobs that other nodes brought, some of them perhaps in vain

    def hears(self) -> dict[int, Hear]:
        return {
            NEEDJOBS: self.on_needjobs,
            POLLJOBS: self.on_needjobs,
            YOURJOBS: self.on_yourjobs,
        }

    def due_table(self) -> Acts:
        return on(QueueDemand, self.due) | on(PrefetchedQueue, self.due)

    # Asking.

    def need(self, queues: list[Queue]) -> None:
        """A consumer found these queues empty, and waits or will come again: ask others."""
        state = self._state
        if state.leaving or not state.peers.linked:
            return
        for queue in queues:
            if not queue.pause & PAUSE_OUT:
                hunger = self._hunger_of(queue)
                hunger.lingers_until = state.now + LINGER_MS
                self._ask(hunger)
                self._come_back_at(hunger, min(self._asks_at(hunger), hunger.lingers_until))

    def emptied(self, queue: Queue) -> None:
        """A consumer took the last job of a queue: ask those that gave before."""
        state = self._state
        if not queue.sources or state.leaving or not self._recent_sources(queue):
            return
        hunger = self._hunger_of(queue)
        hunger.lingers_until = state.now + LINGER_MS
        self._ask_sources(hunger)
        self._come_back_at(hunger, hunger.lingers_until)

    def deserted(self, queues: Iterable[Awaited]) -> None:
        """Consumers do not wait for these queues any more: say so, unless others do."""
        for queue in queues:
            hunger = self._hungers.get(queue.name)
            if hunger is not None and not queue.is_awaited:
                self._come_back_at(hunger, hunger.lingers_until)

    def stop_asking(self) -> None:
        """Bring me nothing any more, tell all nodes."""
        for hunger in list(self._hungers.values()):
            self._end(hunger)

    def link_opened(self, node_id: bytes) -> None:
        """Ask a node that has just become reachable, and bring it what it wants."""
        state = self._state
        for name in self.wants.of_node(node_id):
            self._look_at(name)
        if self._hungers:
            state.work(self._ask_in_parts(node_id))

    def _ask_in_parts(self, node_id: bytes) -> QuietParts:
        hungers = list(self._hungers.values())
        for at in range(0, len(hungers), ASKED_PER_PART):
            for hunger in hungers[at : at + ASKED_PER_PART]:
                if self._hungers.get(hunger.queue.name) is hunger:
                    self._tell([node_id], hunger.queue, _waiting(hunger.queue))
            yield

    def _hunger_of(self, queue: Queue) -> QueueDemand:
        hunger = self._hungers.get(queue.name)
        if hunger is None:
            hunger = self._hungers[queue.name] = QueueDemand(queue)
        elif hunger.queue is not queue:
            # The queue was forgotten meanwhile, and came into being again.
            hunger.queue = queue
        return hunger

    def _ask(self, hunger: QueueDemand) -> None:
        """Ask whoever is to be asked by now; nobody while there is no room for jobs."""
        state = self._state
        if state.memory.is_overdrawn:
            hunger.broadcast_at = max(hunger.broadcast_at, state.now + BROADCAST_MIN_MS)
            return
        waiting = _waiting(hunger.queue)
        is_due = state.now >= hunger.broadcast_at
        if is_due:
            pause_ms = min(BROADCAST_MIN_MS << min(hunger.broadcasts, BROADCAST_DOUBLINGS), BROADCAST_MAX_MS)
            hunger.broadcast_at = state.now + pause_ms
            hunger.broadcasts += 1
        # So many more wait than was said that the next time is too far away; or the first one does.
        if is_due or waiting >= 2 * hunger.asked or (hunger.queue.waiters and not hunger.waits):
            hunger.asked = waiting
            hunger.waits = bool(hunger.queue.waiters)
            if not hunger.queue.waiters:
                hunger.ahead = max(1, hunger.ahead)
            self._tell(list(state.peers.linked), hunger.queue, waiting)
        if state.now >= hunger.ad_hoc_at:
            self._ask_sources(hunger)
        elif hunger.queue.waiters:
            unaware = [node_id for node_id in self._recent_sources(hunger.queue) if hunger.told.get(node_id) is False]
            hunger.told.update(dict.fromkeys(unaware, True))
            self._tell(unaware, hunger.queue, max(waiting, hunger.ahead))

    def _asks_at(self, hunger: QueueDemand) -> int:
        """When somebody is to be asked again, should a consumer wait."""
        if self._recent_sources(hunger.queue):
            return min(hunger.broadcast_at, hunger.ad_hoc_at)
        return hunger.broadcast_at

    def _ask_sources(self, hunger: QueueDemand) -> None:
        """Ask those that brought jobs within the last seconds for as many as a second takes.

        Those that were asked and have brought nothing since remember it; some of them are asked all the same, in turn.
        """
        state, queue = self._state, hunger.queue
        sources = dict.fromkeys(self._recent_sources(queue))
        if not sources or state.memory.is_overdrawn:
            return
        if hunger.came:
            is_fast = state.now - hunger.asked_at <= AHEAD_MS
            hunger.batch = min(2 * hunger.batch, JOBS_PER_MESSAGE) if is_fast else max(1, hunger.batch // 2)
            hunger.came = False
        hunger.asked_at = state.now
        pause_ms = min(AD_HOC_MIN_MS << min(hunger.ad_hocs, AD_HOC_DOUBLINGS), AD_HOC_MAX_MS)
        hunger.ad_hoc_at = state.now + pause_ms
        hunger.ad_hocs += 1
        wanted = max(hunger.batch, len(queue.waiters))
        hunger.ahead = wanted - len(queue.waiters)
        told = hunger.told
        asked = [node_id for node_id in sources if node_id not in told]
        asked += islice((node_id for node_id in told if node_id in sources), ASKED_AGAIN)
        for node_id in asked:
            told.pop(node_id, None)
            told[node_id] = bool(queue.waiters)
        self._tell(asked, queue, min(-(-wanted // len(sources)), JOBS_PER_MESSAGE))

    def _recent_sources(self, queue: Queue) -> list[bytes]:
        """Nodes that brought jobs within the last seconds and can be asked."""
        linked = self._state.peers.linked
        return [node_id for node_id in queue.recent_sources(self._state.now) if node_id in linked]

    def _tell(self, node_ids: list[bytes], queue: Queue, count: int) -> None:
        message = (NEEDJOBS if queue.waiters or not count else POLLJOBS, queue.name, count)
        for node_id in node_ids:
            self._state.send(node_id, message)

    def _come_back_at(self, errand: FollowUp, at: int) -> None:
        """Come back at that time, or before."""
        at = max(at, self._state.now + 1)
        if not 0 < errand.awake_at <= at:
            self._state.schedule.move(errand, at)

    def _end(self, hunger: QueueDemand) -> None:
        """Nobody waits any more: tell all."""
        del self._hungers[hunger.queue.name]
        self._state.schedule.cancel(hunger)
        self._tell(list(self._state.peers.linked), hunger.queue, 0)

    # Time.

    def due(self, errand: FollowUp) -> None:
        """Come back to what was begun."""
        if isinstance(errand, QueueDemand):
            self._hunger_due(errand)
        elif isinstance(errand, PrefetchedQueue):
            self._arrival_due(errand)

    def _hunger_due(self, hunger: QueueDemand) -> None:
        state = self._state
        if self._hungers.get(hunger.queue.name) is not hunger:
            # What was due before it has ended it.
            return
        if hunger.queue.is_awaited and not hunger.queue.pause & PAUSE_OUT and not state.leaving:
            self._ask(hunger)
            self._come_back_at(hunger, self._asks_at(hunger))
        elif state.now < hunger.lingers_until:
            self._come_back_at(hunger, hunger.lingers_until)
        else:
            self._end(hunger)

    def _arrival_due(self, arrival: PrefetchedQueue) -> None:
        if self._is_recent(arrival):
            self._state.schedule.add(arrival, arrival.at + KEPT_MS)
            return
        del self._arrivals[arrival.queue.name]
        self._look_at(arrival.queue.name)

    def flushing(self) -> None:
        """Every queue is gone, and the schedule with them."""
        self._hungers.clear()
        self._arrivals.clear()

    # Giving.

    def on_needjobs(self, sender: bytes, message: Message) -> None:
        """Give jobs, or remember who wants some."""
        kind, name, count = message
        if not count:
            self.wants.forget(name, sender)
            return
        waits = kind == NEEDJOBS
        want = self.wants.note(name, sender, min(count, JOBS_PER_MESSAGE), self._state.now, waits=waits)
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

    def _look_at(self, name: bytes) -> None:
        """See at the end of the step what of a queue other nodes can have."""
        state = self._state
        queue = state.queues.by_name.get(name)
        if queue is not None and name in state.demand.jobs:
            state.demand.giving[queue] = None

    def _bring(self, queue: Queue, node_id: bytes, want: JobDemand) -> bool:
        """Bring a node jobs that it wants, if it can be reached; say whether others may get some, too."""
        state = self._state
        stock = self._stock(queue, everything=want.waits)
        if stock <= 0:
            return False
        peer = state.peers.linked.get(node_id)
        if peer is None or peer.flags & LEAVING:
            return True
        count = want.count if stock >= 2 * want.count else max(1, stock // 2)
        jobs = self.moves.give_away(queue, count, node_id, self._room_of(peer))
        if jobs:
            size = sum(map(cost_of_job, jobs))
            peer.given += size
            peer.given_lately += size
            arrival = self._arrivals.get(queue.name)
            if arrival is not None:
                arrival.own -= len(jobs)
            self.wants.met(queue.name, node_id, len(jobs))
            state.send(node_id, (YOURJOBS, tuple(jobs), True))
        return True

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
        if queue.pause & PAUSE_OUT or queue.waiters:
            return 0
        arrival = self._arrivals.get(queue.name)
        if everything or arrival is None or arrival.queue is not queue or not self._is_recent(arrival):
            return len(queue.units)
        return min(len(queue.units), arrival.own + queue.jobs_in - arrival.jobs_in)

    def _is_recent(self, arrival: PrefetchedQueue) -> bool:
        return self._state.now - arrival.at < KEPT_MS

    # Taking over.

    def on_yourjobs(self, sender: bytes, message: Message) -> None:
        """Take jobs over."""
        _, jobs, queued = message
        state = self._state
        # A node that is leaving goes when it knows that what it had is elsewhere.
        is_last_word = state.peers.by_id[sender].flags & LEAVING
        wanted = {name: self._is_wanted(name) for name in dict.fromkeys(stored.queue for stored in jobs)}
        for stored in jobs:
            if stored.retry_ms and not self._has_room_for(stored, is_wanted=wanted[stored.queue]):
                continue  # the sender has a copy
            self.imports += 1
            if self.moves.take_over(stored, sender, queued=queued):
                state.counters.imported += 1
                self._note_import(state.queues.by_name[stored.queue], sender)
            if is_last_word and state.jobs.get(stored.id) is not None:
                state.send(sender, (GOTJOB, stored.id))
        if queued:
            for name, is_wanted in wanted.items():
                if not is_wanted:
                    state.send(sender, (NEEDJOBS, name, 0))

    def _has_room_for(self, stored: StoredJob, *, is_wanted: bool) -> bool:
        """Return whether there is room for a job: a tenth over the limit at most, if consumers wait for it."""
        memory = self._state.memory
        return memory.can_take(cost_of_job(stored)) if is_wanted else memory.level < 3

    def _is_wanted(self, name: bytes) -> bool:
        """Tell whether consumers of this node wait for jobs of a queue, or may come again soon."""
        hunger = self._hungers.get(name)
        return hunger is not None and (hunger.queue.is_awaited or self._state.now < hunger.lingers_until)

    def _note_import(self, queue: Queue, sender: bytes) -> None:
        """Take note of a job that has just come into a queue from another node."""
        now = self._state.now
        hunger = self._hungers.get(queue.name)
        if hunger is not None:
            if hunger.ahead and len(queue.units) > len(queue.waiters):
                hunger.ahead -= 1
                self._note_arrival(queue)
            if now - queue.sources.get(sender, -RECENT_MS) >= RECENT_MS:
                hunger.broadcasts = 0
            hunger.came = True
            hunger.told.pop(sender, None)
            hunger.ad_hocs = hunger.ad_hoc_at = 0
            # Whom it is for will be back when it is done with it.
            hunger.lingers_until = now + LINGER_MS
            self._come_back_at(hunger, hunger.lingers_until)
        queue.import_rate.note(now)
        queue.sources[sender] = now

    def _note_arrival(self, queue: Queue) -> None:
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

    # Pausing.

    def pause_changed(self, queue: Queue) -> None:
        """Withdraw what this node asks for a queue that is paused now, or ask and give again."""
        if queue.pause & PAUSE_OUT:
            hunger = self._hungers.get(queue.name)
            if hunger is not None:
                self._end(hunger)
        else:
            self._look_at(queue.name)
            if queue.is_awaited and not len(queue.units):
                self.need([queue])


def _waiting(queue: Queue) -> int:
    """How many jobs the consumers of a queue could take now; one that will come again counts as one that waits."""
    return min(max(1, len(queue.waiters)), JOBS_PER_MESSAGE)
