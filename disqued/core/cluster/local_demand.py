"""Local demand: which jobs this node asks the others for, since its consumers found a queue empty.

All nodes are asked at once, and again after 2 s, 4 s, 8 s ... 30 s while a consumer waits.  Those that brought jobs
within the last 5 s are asked besides: when the queue is empty again, and 25 ms, 50 ms ... 2 s later while nothing
comes.  Each job that comes lets that begin again.  Nodes that have brought something since they were asked are always
among those.  The others remember what they were asked for: four at a time are asked, in turn, so that a consumer that a
hundred nodes feed does not ask a hundred nodes for each job.

They are asked for as many as wait, or for more: twice as many each time that the last ones were taken within a quarter
of a second, half as many when they lasted longer.  So a consumer that is fast does not wait for each job, and one that
is slow keeps no jobs from others.  A consumer that does not wait (NOHANG) asks as well, and what it asked for stands
for 2 s, until when it may have come again.

A node whose own jobs of a limited queue all have to wait for their groups asks for others, and says which groups these
are.  It tells all nodes when one of these can run again, at most every 25 ms.

Times are integer milliseconds.  Source: Disque, src/queue.c; the Disque README, "Client nodes: federation".
"""

from collections.abc import Iterable
from itertools import islice

from disqued.core.model.machine import Acts, Machine, on
from disqued.core.model.messages import GROUPS_PER_MESSAGE, JOBS_PER_MESSAGE, NEEDJOBS, NEEDOTHERS, POLLJOBS, Message
from disqued.core.model.queues import HOLDS_ALL, LIMITED, ImportRate, Queue
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.unfinished import QuietParts
from disqued.core.model.waiters import Awaited

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
ASKED_PER_PART = 500  #: queues that a node is asked for in one go when a link opens, some milliseconds' work


class QueueDemand(Timed):
    """A queue whose consumers found it empty, and how others were asked for its jobs."""

    __slots__ = (
        "ad_hoc_at", "ad_hocs", "ahead", "asked", "asked_at", "batch", "broadcast_at", "broadcasts", "came",
        "freed_at", "lingers_until", "queue", "told", "waits", "without",
    )  # fmt: skip

    def __init__(self, queue: Queue) -> None:
        self.awake_at = 0
        self.queue: Queue = queue
        self.asked: int = 0  #: jobs that all nodes were asked for last
        self.waits: bool = False  #: they were told that consumers wait
        self.without: dict[bytes, None] = {}  #: groups that were named in a request since then, as their jobs wait here
        #: Nodes that brought jobs, and were asked and have brought none since, longest ago first, and those that were
        #: given jobs: do they know that consumers wait?
        self.told: dict[bytes, bool] = {}
        self.freed_at: int = 0  #: when all may be told that one of these groups waits no more, at the earliest
        self.broadcasts: int = 0  #: how often all were asked since a node brought jobs that had not done so before
        self.broadcast_at: int = 0  #: when all are asked again, at the earliest
        self.ad_hocs: int = 0  #: how often those that brought jobs were asked since they did
        self.ad_hoc_at: int = 0  #: when they are asked again, at the earliest
        self.lingers_until: int = 0  #: until when somebody may come again who did not wait
        self.batch: int = 1  #: jobs that last about `AHEAD_MS`
        self.asked_at: int = 0  #: when those that brought jobs were asked last
        self.came: bool = False  #: jobs came since then
        self.ahead: int = 0  #: jobs that were asked for and have not come, for which nobody waits yet


class LocalDemand(Machine):
    """The machine that asks other nodes for jobs."""

    __slots__ = ("_demands", "_state")

    def __init__(self, state: State) -> None:
        self._state = state
        self._demands: dict[bytes, QueueDemand] = {}

    def due_table(self) -> Acts:
        return on(QueueDemand, self.due)

    def flushing(self) -> None:
        """Every queue is gone, and the schedule with them."""
        self._demands.clear()

    # Consumers.

    def need(self, queues: list[Queue]) -> None:
        """A consumer found these queues empty, and waits or will come again: ask others."""
        state = self._state
        if state.leaving or not state.peers.linked:
            return
        for queue in queues:
            if _lacks_jobs(queue):
                demand = self._demand_for(queue)
                demand.lingers_until = state.now + LINGER_MS
                self._ask(demand)
                self._come_back_at(demand, min(self._asks_at(demand), demand.lingers_until))

    def emptied(self, queue: Queue) -> None:
        """A consumer took the last job of a queue: ask those that gave before."""
        state = self._state
        if not queue.sources or state.leaving or not self._recent_sources(queue):
            return
        demand = self._demand_for(queue)
        demand.lingers_until = state.now + LINGER_MS
        self._ask_sources(demand)
        self._come_back_at(demand, demand.lingers_until)

    def deserted(self, queues: Iterable[Awaited]) -> None:
        """Consumers do not wait for these queues any more: say so, unless others do."""
        for queue in queues:
            demand = self._demands.get(queue.name)
            if demand is not None and not queue.is_awaited:
                self._come_back_at(demand, demand.lingers_until)

    def end(self, name: bytes) -> None:
        """Tell all nodes to bring no more jobs of a queue, if they were asked."""
        demand = self._demands.pop(name, None)
        if demand is not None:
            self._state.schedule.cancel(demand)
            self._tell(list(self._state.peers.linked), demand, 0)

    def stop_asking(self) -> None:
        """Bring me nothing any more, tell all nodes."""
        for name in list(self._demands):
            self.end(name)

    def link_opened(self, node_id: bytes) -> None:
        """Ask a node that has just become reachable."""
        if self._demands:
            self._state.work(self._ask_in_parts(node_id))

    def _ask_in_parts(self, node_id: bytes) -> QuietParts:
        demands = list(self._demands.values())
        for at in range(0, len(demands), ASKED_PER_PART):
            for demand in demands[at : at + ASKED_PER_PART]:
                if self._demands.get(demand.queue.name) is demand:
                    self._tell([node_id], demand, _waiting(demand.queue))
            yield

    def _demand_for(self, queue: Queue) -> QueueDemand:
        demand = self._demands.get(queue.name)
        if demand is None:
            demand = self._demands[queue.name] = QueueDemand(queue)
        elif demand.queue is not queue:
            # The queue was forgotten meanwhile, and came into being again.
            demand.queue = queue
        return demand

    def _ask(self, demand: QueueDemand) -> None:
        """Ask whoever is to be asked by now; nobody while there is no room for jobs."""
        state = self._state
        if state.memory.is_overdrawn:
            demand.broadcast_at = max(demand.broadcast_at, state.now + BROADCAST_MIN_MS)
            return
        waiting = _waiting(demand.queue)
        is_due = state.now >= demand.broadcast_at
        if is_due:
            pause_ms = min(BROADCAST_MIN_MS << min(demand.broadcasts, BROADCAST_DOUBLINGS), BROADCAST_MAX_MS)
            demand.broadcast_at = state.now + pause_ms
            demand.broadcasts += 1
        is_freed = _is_freed(demand) and state.now >= demand.freed_at
        # So many more wait than was said that the next time is too far away; or the first one does; or of other groups.
        if is_due or is_freed or waiting >= 2 * demand.asked or (demand.queue.waiters and not demand.waits):
            demand.without.clear()
            demand.freed_at = state.now + AD_HOC_MIN_MS
            demand.asked = waiting
            demand.waits = bool(demand.queue.waiters)
            if not demand.queue.waiters:
                demand.ahead = max(1, demand.ahead)
            self._tell(list(state.peers.linked), demand, waiting)
        if state.now >= demand.ad_hoc_at:
            self._ask_sources(demand)
        if demand.queue.waiters:
            unaware = [node_id for node_id, knows in demand.told.items() if not knows and node_id in state.peers.linked]
            demand.told.update(dict.fromkeys(unaware, True))
            self._tell(unaware, demand, max(waiting, demand.ahead))

    def _asks_at(self, demand: QueueDemand) -> int:
        """When somebody is to be asked again, should a consumer wait."""
        at = min(demand.broadcast_at, demand.freed_at) if _is_freed(demand) else demand.broadcast_at
        return min(at, demand.ad_hoc_at) if self._recent_sources(demand.queue) else at

    def _ask_sources(self, demand: QueueDemand) -> None:
        """Ask those that brought jobs within the last seconds for as many as a second takes.

        Those that were asked and have brought nothing since remember it; some of them are asked all the same, in turn.
        """
        state, queue = self._state, demand.queue
        sources = dict.fromkeys(self._recent_sources(queue))
        if not sources or state.memory.is_overdrawn:
            return
        if demand.came:
            is_fast = state.now - demand.asked_at <= AHEAD_MS
            demand.batch = min(2 * demand.batch, JOBS_PER_MESSAGE) if is_fast else max(1, demand.batch // 2)
            demand.came = False
        demand.asked_at = state.now
        pause_ms = min(AD_HOC_MIN_MS << min(demand.ad_hocs, AD_HOC_DOUBLINGS), AD_HOC_MAX_MS)
        demand.ad_hoc_at = state.now + pause_ms
        demand.ad_hocs += 1
        wanted = max(demand.batch, len(queue.waiters))
        demand.ahead = wanted - len(queue.waiters)
        told = demand.told
        asked = [node_id for node_id in sources if node_id not in told]
        asked += islice((node_id for node_id in told if node_id in sources), ASKED_AGAIN)
        for node_id in asked:
            told.pop(node_id, None)
            told[node_id] = bool(queue.waiters)
        self._tell(asked, demand, min(-(-wanted // len(sources)), JOBS_PER_MESSAGE))

    def _recent_sources(self, queue: Queue) -> list[bytes]:
        """Nodes that brought jobs within the last seconds and can be asked."""
        linked = self._state.peers.linked
        return [node_id for node_id in queue.recent_sources(self._state.now) if node_id in linked]

    def _tell(self, node_ids: list[bytes], demand: QueueDemand, count: int) -> None:
        queue = demand.queue
        message: Message = (NEEDJOBS if queue.waiters or not count else POLLJOBS, queue.name, count)
        if count and queue.grouped is not None and queue.grouped.held_groups:
            groups = tuple(islice(queue.grouped.held_groups, GROUPS_PER_MESSAGE))
            message = (NEEDOTHERS, queue.name, count, bool(queue.waiters), groups)
            demand.without.update(dict.fromkeys(groups))
        for node_id in node_ids:
            self._state.send(node_id, message)

    def _come_back_at(self, demand: QueueDemand, at: int) -> None:
        """Come back at that time, or before."""
        at = max(at, self._state.now + 1)
        if not 0 < demand.awake_at <= at:
            self._state.schedule.move(demand, at)

    def due(self, demand: QueueDemand) -> None:
        """Ask again, or say that nobody waits any more."""
        state = self._state
        if self._demands.get(demand.queue.name) is not demand:
            # What was due before it has ended it.
            return
        if demand.queue.is_awaited and _lacks_jobs(demand.queue) and not state.leaving:
            self._ask(demand)
            self._come_back_at(demand, self._asks_at(demand))
        elif state.now < demand.lingers_until:
            self._come_back_at(demand, demand.lingers_until)
        else:
            self.end(demand.queue.name)

    # Jobs that come.

    def is_wanted(self, name: bytes) -> bool:
        """Tell whether consumers of this node wait for jobs of a queue, or may come again soon."""
        demand = self._demands.get(name)
        return demand is not None and (demand.queue.is_awaited or self._state.now < demand.lingers_until)

    def note_export(self, queue: Queue, node_id: bytes) -> None:
        """Note that a node was given jobs, and so does not know any more that some are wanted here."""
        demand = self._demands.get(queue.name)
        if demand is not None:
            demand.told[node_id] = False

    def note_import(self, queue: Queue, sender: bytes) -> bool:
        """Note a job that has just come into a queue from another node; return whether it was asked for ahead."""
        now = self._state.now
        was_ahead = False
        demand = self._demands.get(queue.name)
        if demand is not None:
            if demand.ahead and len(queue.units) > len(queue.waiters):
                demand.ahead -= 1
                was_ahead = True
            if now - queue.sources.get(sender, -RECENT_MS) >= RECENT_MS:
                demand.broadcasts = 0
            demand.came = True
            demand.told.pop(sender, None)
            demand.ad_hocs = demand.ad_hoc_at = 0
            # Whom it is for will be back when it is done with it.
            demand.lingers_until = now + LINGER_MS
            self._come_back_at(demand, demand.lingers_until)
        queue.import_rate.note(now)
        queue.sources[sender] = now
        return was_ahead


def _lacks_jobs(queue: Queue) -> bool:
    """Return whether consumers of a queue wait for jobs, and not because it is held or its jobs wait for slots.

    Jobs that wait for slots of their groups keep nobody from running others.
    """
    if queue.holds & HOLDS_ALL:
        return False
    units = queue.grouped
    return not queue.holds & LIMITED or units is None or units.has_to_wait


def _is_freed(demand: QueueDemand) -> bool:
    """Return whether a group that was named in a request can run again."""
    units = demand.queue.grouped
    return any(units is None or group not in units.held_groups for group in demand.without)


def _waiting(queue: Queue) -> int:
    """How many jobs the consumers of a queue could take now; one that will come again counts as one that waits."""
    return min(max(1, len(queue.waiters)), JOBS_PER_MESSAGE)
