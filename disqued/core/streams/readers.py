"""Readers: consumers of groups get entries from the nodes that hand them out, whatever node they are connected to.

    a consumer finds nothing here   --WANT(queue, group, yes)--> all
                                    <--HAVE(queue, group, yes or no)--     at once, and when one comes later
    there are some                  --TAKE(n, lease)--> one that has some
                                    <--GIVE(entries)--                      leased there, for n is this consumer's
                                                                           none: somebody else was faster
    the consumer is gone meanwhile  --SETTLE(UNSEEN)-->                    it never had them
    nobody waits any more           --WANT(queue, group, no)--> all

An entry is leased by the node that hands it out (`owners`), for a consumer that asked, so that no two nodes give one
group the same entry while they can hear each other, and nothing is fetched ahead.  A consumer waits for one answer at a
time.  Who had some is asked first by the next one.  Consumers of the node that hands out come before others.

With EX 0 the group is done with what is given when it leaves, so that it must not arrive in vain: a consumer that has
asked for it takes nothing else until the answer is there, and waits for it for `LOOK_MS` when its time is up, or is
ended.

Who does not wait (QGET without BLOCK) waits until all nodes that can be reached have answered, `LOOK_MS` at most: then
null means that none of them has anything.

A node that gives (`offers`) may forget what another one wants, which asks again, `AGAIN_MS` later.

Times are integer milliseconds.
"""

from typing import Final

from disqued.core.model.groups import EntryForm, GroupWaiter
from disqued.core.model.job import KIND_LOG, RETRY_NEVER_MS, WORK_SCOPE
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import GIVE, HAVE, JOBS_PER_MESSAGE, SETTLE, TAKE, UNSEEN, WANT
from disqued.core.model.outbox import Client
from disqued.core.model.queues import PAUSE_OUT, Queue
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.units import GivenUnit
from disqued.core.model.waiters import Form, Waiter
from disqued.core.streams.entrydelivery import EntryDelivery
from disqued.core.work.blocking import Blocking
from disqued.errors import CommandError

LOOK_MS: Final = 1_000  #: how long who does not wait is kept waiting for the answers of other nodes
AGAIN_MS: Final = 15_000  #: between two times that others are told of a want that goes on
LINGER_MS: Final = 5_000  #: how long others go on to tell what they have, when nobody waits any more


class GroupDemand(Timed):
    """Consumers of this node want entries for a group which this node does not hand out."""

    __slots__ = ("again_at", "awaited", "group", "lingers_until", "queue", "sources", "told")

    def __init__(self, queue: bytes, group: bytes) -> None:
        self.awake_at = 0
        self.queue: bytes = queue
        self.group: bytes = group
        self.sources: dict[bytes, None] = {}  #: nodes that said that they have some
        self.told: set[bytes] = set()  #: nodes that were told of the want
        self.awaited: set[bytes] = set()  #: nodes that have yet to say whether they have some
        self.again_at: int = 0  #: when all are told again
        self.lingers_until: int = 0


class PendingTake:
    """A TAKE whose answer has yet to come."""

    __slots__ = ("demand", "node_id", "waiter")

    def __init__(self, node_id: bytes, demand: GroupDemand, waiter: GroupWaiter) -> None:
        self.node_id: bytes = node_id
        self.demand: GroupDemand = demand
        self.waiter: GroupWaiter = waiter


class Readers(Machine):
    """The machine that gets entries of other nodes for consumers of this one."""

    __slots__ = ("_blocking", "_delivery", "_demands", "_given", "_state", "_takes")

    def __init__(self, state: State, blocking: Blocking, delivery: EntryDelivery) -> None:
        self._state = state
        self._blocking = blocking
        self._delivery = delivery
        self._demands: dict[tuple[bytes, bytes], GroupDemand] = {}
        self._takes: dict[int, PendingTake] = {}
        self._given = 0  #: entries that others have given to this node

    def hears(self) -> dict[int, Hear]:
        return {HAVE: self.on_have, GIVE: self.on_give}

    def due_table(self) -> Acts:
        return on(GroupDemand, self.due) | on(GivenUnit, self._delivery.given.lapsed)

    # Consumers.

    @property
    def can_ask(self) -> bool:
        """Return whether there are other nodes to be asked."""
        return bool(self._state.peers.linked) and not self._state.leaving

    def wait(self, client: Client, queues: list[Queue], group: bytes, timeout_ms: int, form: Form) -> None:
        """Block a consumer until a node has something for its group; timeout 0 = until all have said that they do not.

        Only to be called with a timeout where nobody `can_ask`.
        """
        waiter = self._delivery.wait(client, queues, group, timeout_ms or LOOK_MS, form, nohang=not timeout_ms)
        if self.can_ask:
            for queue in queues:
                self._look(self._demand_for(queue.name, group), waiter)

    def _demand_for(self, queue: bytes, group: bytes) -> GroupDemand:
        demand = self._demands.get((queue, group))
        if demand is None:
            demand = self._demands[queue, group] = GroupDemand(queue, group)
        return demand

    def _look(self, demand: GroupDemand, waiter: GroupWaiter) -> None:
        """Ask others for one who has just come."""
        state = self._state
        demand.lingers_until = state.now + LINGER_MS
        if not isinstance(waiter.form, EntryForm):
            # Who takes nothing does not find out whether what was said is true.
            demand.sources.clear()
        if waiter.nohang or state.now >= demand.again_at or not isinstance(waiter.form, EntryForm):
            self._tell_all(demand)
        self._come_back(demand)
        self._ask(demand)

    def _tell_all(self, demand: GroupDemand) -> None:
        demand.again_at = self._state.now + AGAIN_MS
        for node_id in list(self._state.peers.linked):
            if node_id not in demand.sources:
                self._tell(demand, node_id)

    def _tell(self, demand: GroupDemand, node_id: bytes) -> None:
        if self._state.send(node_id, (WANT, demand.queue, demand.group, True)):
            demand.told.add(node_id)
            demand.awaited.add(node_id)

    def _come_back(self, demand: GroupDemand) -> None:
        at = min(demand.again_at, demand.lingers_until)
        if not demand.awake_at:
            self._state.schedule.add(demand, max(at, self._state.now + 1))

    def queue_resumed(self, queue: Queue) -> None:
        """Let those who wait for a queue that is not paused any more have what other nodes have by now."""
        for group in queue.stream.waiting if queue.stream is not None and self.can_ask else ():
            demand = self._demand_for(queue.name, group.name)
            # What was said during the pause may be somebody else's by now.
            demand.sources.clear()
            self._tell_all(demand)
            self._come_back(demand)

    def due(self, demand: GroupDemand) -> None:
        """Tell others again what consumers wait for, or that none does any more."""
        state = self._state
        if self._demands.get((demand.queue, demand.group)) is not demand:
            return
        if self._waiters(demand) and self.can_ask:
            demand.lingers_until = state.now + LINGER_MS
            if state.now >= demand.again_at:
                self._tell_all(demand)
            self._come_back(demand)
        elif state.now < demand.lingers_until:
            self._come_back(demand)
        else:
            self._end(demand)

    def _end(self, demand: GroupDemand) -> None:
        del self._demands[demand.queue, demand.group]
        self._state.schedule.cancel(demand)
        for node_id in sorted(demand.told):
            self._state.send(node_id, (WANT, demand.queue, demand.group, False))

    def _waiters(self, demand: GroupDemand) -> list[GroupWaiter]:
        """Those who wait, if they may have something."""
        queue = self._state.queues.by_name.get(demand.queue)
        if queue is None or queue.stream is None or queue.pause & PAUSE_OUT:
            return []
        group = queue.stream.groups.get(demand.group)
        return [] if group is None else list(group.waiters)

    def _ask(self, demand: GroupDemand) -> None:
        """Let those who wait ask those that have some; who does not wait leaves when nobody has."""
        for waiter in self._waiters(demand):
            form = waiter.form
            if waiter.asked:
                continue
            if demand.sources and isinstance(form, EntryForm):
                node_id = next(iter(demand.sources))
                # The next one asks another node, if there is one.
                del demand.sources[node_id]
                demand.sources[node_id] = None
                self._take(demand, waiter, form, node_id)
            elif waiter.nohang and self._is_in_vain(waiter):
                self._blocking.timed_out(waiter)

    def _is_in_vain(self, waiter: GroupWaiter) -> bool:
        """Return whether no node has something, or may yet say that it has, for one who does not wait."""
        for group in waiter.groups:
            demand = self._demands.get((group.stream.queue, group.name))
            if demand is not None and (demand.sources or demand.awaited):
                return False
        return True

    def _take(self, demand: GroupDemand, waiter: GroupWaiter, form: EntryForm, node_id: bytes) -> None:
        number = self._state.numbers.next_number()
        count = min(form.count, JOBS_PER_MESSAGE)
        message = (TAKE, demand.queue, demand.group, number, count, form.lease_ms, form.strict)
        if self._state.send(node_id, message):
            waiter.asked = number
            self._takes[number] = PendingTake(node_id, demand, waiter)
        else:
            demand.sources.pop(node_id, None)

    def on_have(self, sender: bytes, name: bytes, group_name: bytes, whether: bool) -> None:
        """Hear whether a node has something for a group."""
        demand = self._demands.get((name, group_name))
        if demand is None:
            if whether:
                self._state.send(sender, (WANT, name, group_name, False))
            return
        demand.awaited.discard(sender)
        if whether:
            demand.sources[sender] = None
            self._tell_watchers(demand)
        else:
            demand.sources.pop(sender, None)
        self._ask(demand)

    def _tell_watchers(self, demand: GroupDemand) -> None:
        """Let those hear of it who only want to know that there is something."""
        for waiter in self._waiters(demand):
            if not isinstance(waiter.form, EntryForm):
                self._blocking.stop_waiting(waiter.client)
                self._state.outbox.replies.append((waiter.client, demand.queue, []))

    def on_give(self, sender: bytes, number: int, scope: bytes, entries: tuple[tuple[bytes, bytes], ...]) -> None:
        """Hand on what another node gave, or give it back if nobody waits for it any more."""
        state = self._state
        take = self._takes.get(number)
        if take is None or take.node_id != sender:
            self._refuse(sender, WORK_SCOPE, scope, entries)
            return
        del self._takes[number]
        waiter, demand = take.waiter, take.demand
        if waiter.asked == number:
            waiter.asked = 0
        if not entries:
            demand.sources.pop(sender, None)
            self._serve(demand)
        elif state.waiting.blocked.get(waiter.client) is waiter:
            form = waiter.form
            assert isinstance(form, EntryForm)
            units = self._units(demand.queue, sender, scope, entries)
            state.counters.imported += len(units)
            if form.worker is not None:
                self._delivery.given.bind(form.worker, units, form.lease_ms)
            self._delivery.hand(waiter, form, list(units))
        else:
            self._refuse(sender, demand.queue, scope, entries)
        self._ask(demand)

    def _serve(self, demand: GroupDemand) -> None:
        """Let those who wait have what came here while one of them waited for an answer."""
        queue = self._state.queues.by_name.get(demand.queue)
        if queue is not None:
            self._state.ready[queue] = None

    def ends_soon(self, waiter: Waiter) -> bool:
        """Return whether a consumer waits no longer than for what may be on its way to it alone."""
        return isinstance(waiter, GroupWaiter) and waiter.nohang and waiter.is_owed

    def puts_off(self, waiter: Waiter, error: CommandError | None) -> bool:
        """Return whether a consumer whose time is up waits on for what may be on its way to it alone.

        If it does not come the consumer is answered the error, where there is one.
        """
        if not isinstance(waiter, GroupWaiter) or not waiter.is_owed or waiter.nohang:
            return False
        waiter.nohang = True
        waiter.error = error
        self._state.schedule.move(waiter, self._state.now + LOOK_MS)
        return True

    def _units(
        self, queue: bytes, giver: bytes, scope: bytes, entries: tuple[tuple[bytes, bytes], ...]
    ) -> list[GivenUnit]:
        options = self._state.shared.options(1, RETRY_NEVER_MS, 0, 1, KIND_LOG)
        units = []
        for job_id, body in entries:
            self._given += 1
            units.append(GivenUnit(job_id, queue, scope, body, order_key=self._given, options=options, granter=giver))
        return units

    def _refuse(self, node_id: bytes, queue: bytes, scope: bytes, entries: tuple[tuple[bytes, bytes], ...]) -> None:
        """Let a node have back what nobody here has seen."""
        if entries:
            ids = tuple(job_id for job_id, _ in entries)
            self._state.send(node_id, (SETTLE, queue, scope, 0, UNSEEN, ids))

    # Links.

    def link_opened(self, node_id: bytes) -> None:
        """Tell a node that has just become reachable what consumers wait for."""
        if not self.can_ask:
            return
        for waiter in self._state.waiting.blocked.values():
            if isinstance(waiter, GroupWaiter):
                for group in waiter.groups:
                    self._come_back(self._demand_for(group.stream.queue, group.name))
        for demand in self._demands.values():
            self._tell(demand, node_id)

    def link_closed(self, node_id: bytes) -> None:
        """Expect nothing of a node any more."""
        for number, take in list(self._takes.items()):
            if take.node_id == node_id:
                del self._takes[number]
                take.waiter.asked = 0
                self._serve(take.demand)
        for demand in list(self._demands.values()):
            demand.sources.pop(node_id, None)
            demand.told.discard(node_id)
            demand.awaited.discard(node_id)
            self._ask(demand)

    def flushing(self) -> None:
        """Everything is gone, and the schedule with it."""
        self._demands.clear()
        self._takes.clear()
        self._delivery.given.clear()
