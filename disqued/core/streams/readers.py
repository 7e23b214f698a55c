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
asked for it takes nothing else until the answer is there, and waits for it for `LOOK_MS` when its time is up.

Who does not wait (QGET without BLOCK) waits until all nodes that can be reached have answered, `LOOK_MS` at most: then
null means that none of them has anything.

Other nodes decide how much is remembered of what they want, so that it is bounded per node.  Who is forgotten asks
again, `AGAIN_MS` later.

Times are integer milliseconds.
"""

from typing import Final

from disqued.core.model.demand import EntryDemand
from disqued.core.model.groups import Behind, EntryForm, Group, GroupWaiter
from disqued.core.model.job import KIND_LOG, RETRY_NEVER_MS, WORK_SCOPE, Unit
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import GIVE, HAVE, JOBS_PER_MESSAGE, SETTLE, TAKE, UNSEEN, WANT, Message
from disqued.core.model.outbox import Client
from disqued.core.model.queues import PAUSE_OUT, Queue
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.unfinished import QuietParts
from disqued.core.model.units import GivenUnit
from disqued.core.model.waiters import Form, Waiter
from disqued.core.streams.entrydelivery import EntryDelivery
from disqued.core.work.blocking import Blocking
from disqued.errors import JournalFailed

LOOK_MS: Final = 1_000  #: how long who does not wait is kept waiting for the answers of other nodes
AGAIN_MS: Final = 15_000  #: between two times that others are told of a want that goes on
LIVES_MS: Final = 2 * AGAIN_MS + 5_000  #: how long the want of another node is remembered that is not told again
LINGER_MS: Final = 5_000  #: how long others go on to tell what they have, when nobody waits any more
WANTS_OF_NODE: Final = 10_000  #: that are remembered


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

    __slots__ = ("node_id", "thirst", "waiter")

    def __init__(self, node_id: bytes, thirst: GroupDemand, waiter: GroupWaiter) -> None:
        self.node_id: bytes = node_id
        self.thirst: GroupDemand = thirst
        self.waiter: GroupWaiter = waiter


class Readers(Machine):
    """The machine between consumers of one node and the streams of another."""

    __slots__ = ("_blocking", "_delivery", "_given", "_of_node", "_questions", "_state", "_thirsts")

    def __init__(self, state: State, blocking: Blocking, delivery: EntryDelivery) -> None:
        self._state = state
        self._blocking = blocking
        self._delivery = delivery
        self._thirsts: dict[tuple[bytes, bytes], GroupDemand] = {}
        self._questions: dict[int, PendingTake] = {}
        #: What each node wants: {node: {(queue, group): None}}, renewed longest ago first.
        self._of_node: dict[bytes, dict[tuple[bytes, bytes], None]] = {}
        self._given = 0  #: entries that others have given to this node

    def hears(self) -> dict[int, Hear]:
        return {WANT: self.on_want, HAVE: self.on_have, TAKE: self.on_take, GIVE: self.on_give}

    def due_table(self) -> Acts:
        return on(GroupDemand, self.due) | on(GivenUnit, self._delivery.given.lapsed)

    # Consumers of this node.

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
                self._look(self._thirst(queue.name, group), waiter)

    def _thirst(self, queue: bytes, group: bytes) -> GroupDemand:
        thirst = self._thirsts.get((queue, group))
        if thirst is None:
            thirst = self._thirsts[queue, group] = GroupDemand(queue, group)
        return thirst

    def _look(self, thirst: GroupDemand, waiter: GroupWaiter) -> None:
        """Ask others for one who has just come."""
        state = self._state
        thirst.lingers_until = state.now + LINGER_MS
        if not isinstance(waiter.form, EntryForm):
            # Who takes nothing does not find out whether what was said is true.
            thirst.sources.clear()
        if waiter.nohang or state.now >= thirst.again_at or not isinstance(waiter.form, EntryForm):
            self._tell_all(thirst)
        self._come_back(thirst)
        self._ask(thirst)

    def _tell_all(self, thirst: GroupDemand) -> None:
        thirst.again_at = self._state.now + AGAIN_MS
        for node_id in list(self._state.peers.linked):
            if node_id not in thirst.sources:
                self._tell(thirst, node_id)

    def _tell(self, thirst: GroupDemand, node_id: bytes) -> None:
        if self._state.send(node_id, (WANT, thirst.queue, thirst.group, True)):
            thirst.told.add(node_id)
            thirst.awaited.add(node_id)

    def _come_back(self, thirst: GroupDemand) -> None:
        at = min(thirst.again_at, thirst.lingers_until)
        if not thirst.awake_at:
            self._state.schedule.add(thirst, max(at, self._state.now + 1))

    def queue_resumed(self, queue: Queue) -> None:
        """Let those who wait for a queue that is not paused any more have what other nodes have by now."""
        for group in queue.stream.waiting if queue.stream is not None and self.can_ask else ():
            thirst = self._thirst(queue.name, group.name)
            # What was said during the pause may be somebody else's by now.
            thirst.sources.clear()
            self._tell_all(thirst)
            self._come_back(thirst)

    def due(self, thirst: GroupDemand) -> None:
        """Tell others again what consumers wait for, or that none does any more."""
        state = self._state
        if self._thirsts.get((thirst.queue, thirst.group)) is not thirst:
            return
        if self._waiters(thirst) and self.can_ask:
            thirst.lingers_until = state.now + LINGER_MS
            if state.now >= thirst.again_at:
                self._tell_all(thirst)
            self._come_back(thirst)
        elif state.now < thirst.lingers_until:
            self._come_back(thirst)
        else:
            self._end(thirst)

    def _end(self, thirst: GroupDemand) -> None:
        del self._thirsts[thirst.queue, thirst.group]
        self._state.schedule.cancel(thirst)
        for node_id in sorted(thirst.told):
            self._state.send(node_id, (WANT, thirst.queue, thirst.group, False))

    def _group(self, thirst: GroupDemand) -> Group | None:
        queue = self._state.queues.by_name.get(thirst.queue)
        return None if queue is None or queue.stream is None else queue.stream.groups.get(thirst.group)

    def _waiters(self, thirst: GroupDemand) -> list[GroupWaiter]:
        """Those who wait, if they may have something."""
        group = self._group(thirst)
        if group is None or self._state.queues.by_name[thirst.queue].pause & PAUSE_OUT:
            return []
        return list(group.waiters)

    def _ask(self, thirst: GroupDemand) -> None:
        """Let those who wait ask those that have some; who does not wait leaves when nobody has."""
        for waiter in self._waiters(thirst):
            form = waiter.form
            if waiter.asked:
                continue
            if thirst.sources and isinstance(form, EntryForm):
                node_id = next(iter(thirst.sources))
                # The next one asks another node, if there is one.
                del thirst.sources[node_id]
                thirst.sources[node_id] = None
                self._take(thirst, waiter, form, node_id)
            elif waiter.nohang and self._is_in_vain(waiter):
                self._blocking.timed_out(waiter)

    def _is_in_vain(self, waiter: GroupWaiter) -> bool:
        """Return whether no node has something, or may yet say that it has, for one who does not wait."""
        for group in waiter.groups:
            thirst = self._thirsts.get((group.stream.queue, group.name))
            if thirst is not None and (thirst.sources or thirst.awaited):
                return False
        return True

    def _take(self, thirst: GroupDemand, waiter: GroupWaiter, form: EntryForm, node_id: bytes) -> None:
        number = self._state.numbers.next_number()
        count = min(form.count, JOBS_PER_MESSAGE)
        message = (TAKE, thirst.queue, thirst.group, number, count, form.lease_ms, form.strict)
        if self._state.send(node_id, message):
            waiter.asked = number
            self._questions[number] = PendingTake(node_id, thirst, waiter)
        else:
            thirst.sources.pop(node_id, None)

    def on_have(self, sender: bytes, message: Message) -> None:
        """Hear whether a node has something for a group."""
        _, name, group_name, whether = message
        thirst = self._thirsts.get((name, group_name))
        if thirst is None:
            if whether:
                self._state.send(sender, (WANT, name, group_name, False))
            return
        thirst.awaited.discard(sender)
        if whether:
            thirst.sources[sender] = None
            self._tell_watchers(thirst)
        else:
            thirst.sources.pop(sender, None)
        self._ask(thirst)

    def _tell_watchers(self, thirst: GroupDemand) -> None:
        """Let those hear of it who only want to know that there is something."""
        for waiter in self._waiters(thirst):
            if not isinstance(waiter.form, EntryForm):
                self._blocking.stop_waiting(waiter.client)
                self._state.outbox.replies.append((waiter.client, thirst.queue, []))

    def on_give(self, sender: bytes, message: Message) -> None:
        """Hand on what another node gave, or give it back if nobody waits for it any more."""
        _, number, scope, entries = message
        state = self._state
        question = self._questions.get(number)
        if question is None or question.node_id != sender:
            self._refuse(sender, WORK_SCOPE, scope, entries)
            return
        del self._questions[number]
        waiter, thirst = question.waiter, question.thirst
        if waiter.asked == number:
            waiter.asked = 0
        if not entries:
            thirst.sources.pop(sender, None)
            self._serve(thirst)
        elif state.waiting.blocked.get(waiter.client) is waiter:
            form = waiter.form
            assert isinstance(form, EntryForm)
            units = self._units(thirst.queue, sender, scope, entries)
            state.counters.imported += len(units)
            if form.worker is not None:
                self._delivery.given.bind(form.worker, units, form.lease_ms)
            self._delivery.hand(waiter, form, list(units))
        else:
            self._refuse(sender, thirst.queue, scope, entries)
        self._ask(thirst)

    def _serve(self, thirst: GroupDemand) -> None:
        """Let those who wait have what came here while one of them waited for an answer."""
        queue = self._state.queues.by_name.get(thirst.queue)
        if queue is not None:
            self._state.ready[queue] = None

    def puts_off(self, waiter: Waiter) -> bool:
        """Return whether a consumer whose time is up waits on for what may be on its way to it alone."""
        if not isinstance(waiter, GroupWaiter) or not waiter.is_owed or waiter.nohang:
            return False
        waiter.nohang = True
        self._state.schedule.add(waiter, self._state.now + LOOK_MS)
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

    # Consumers of other nodes.

    def on_want(self, sender: bytes, message: Message) -> None:
        """Say whether there is something for a group, and remember who wants to know."""
        _, name, group_name, whether = message
        state = self._state
        self._forget(sender, name, group_name)
        if not whether:
            return
        queue = state.queues.by_name.get(name)
        has_some = queue is not None and self._delivery.has_event(queue, group_name)
        want = self._note(sender, name, group_name)
        want.is_told = has_some
        state.send(sender, (HAVE, name, group_name, has_some))

    def _note(self, node_id: bytes, name: bytes, group_name: bytes) -> EntryDemand:
        wants = self._of_node.setdefault(node_id, {})
        if len(wants) >= WANTS_OF_NODE:
            self._forget(node_id, *next(iter(wants)))
            wants = self._of_node.setdefault(node_id, {})
        wants[name, group_name] = None
        want = EntryDemand(self._state.now + LIVES_MS)
        self._state.demand.entries.setdefault(name, {}).setdefault(group_name, {})[node_id] = want
        return want

    def _forget(self, node_id: bytes, name: bytes, group_name: bytes) -> None:
        wants = self._of_node.get(node_id)
        if wants is None or (name, group_name) not in wants:
            return
        del wants[name, group_name]
        if not wants:
            del self._of_node[node_id]
        groups = self._state.demand.entries[name]
        del groups[group_name][node_id]
        if not groups[group_name]:
            del groups[group_name]
        if not groups:
            del self._state.demand.entries[name]

    def offer(self) -> None:
        """Tell the nodes that want entries that there are some."""
        offered = self._delivery.offered
        while offered:
            queue = next(iter(offered))
            del offered[queue]
            if queue.name in self._state.demand.entries:
                self._offer(queue)

    def _offer(self, queue: Queue) -> None:
        state = self._state
        for group_name, wants in list(state.demand.entries[queue.name].items()):
            eager = [(node_id, want) for node_id, want in wants.items() if not want.is_told]
            if not eager or not self._delivery.has_event(queue, group_name):
                continue
            for node_id, want in eager:
                if want.until <= state.now:
                    self._forget(node_id, queue.name, group_name)
                elif state.send(node_id, (HAVE, queue.name, group_name, True)):
                    want.is_told = True

    def on_take(self, sender: bytes, message: Message) -> None:
        """Let a consumer of another node have entries."""
        _, name, group_name, number, _, _, _ = message
        want = self._state.demand.entries.get(name, {}).get(group_name, {}).get(sender)
        if want is None:
            want = self._note(sender, name, group_name)
        want.is_told = False
        try:
            units = self._fetch(message)
        except Behind:
            self._state.work(self._take_later(sender, message))
        else:
            self._give(sender, number, units)

    def _fetch(self, message: Message) -> list[Unit]:
        _, name, group_name, _, count, lease_ms, strict = message
        queue = self._state.queues.by_name.get(name)
        if queue is None or queue.stream is None:
            return []
        group = queue.stream.group(group_name)
        try:
            return self._delivery.fetch(queue, group, lease_ms, max(1, count), strict=strict)
        except JournalFailed:
            return []
        finally:
            queue.stream.let_go(group)

    def _take_later(self, sender: bytes, message: Message) -> QuietParts:
        """Look further, a part at a time."""
        while sender in self._state.peers.linked:
            yield
            try:
                units = self._fetch(message)
            except Behind:
                continue
            self._give(sender, message[3], units)
            return

    def _give(self, node_id: bytes, number: int, units: list[Unit]) -> None:
        scope = units[0].scope if units else WORK_SCOPE
        entries = tuple((unit.id, unit.body) for unit in units)
        if not self._state.send(node_id, (GIVE, number, scope, entries)):
            for unit in units:
                self._delivery.vanished(unit)

    # Links.

    def link_opened(self, node_id: bytes) -> None:
        """Tell a node that has just become reachable what consumers wait for."""
        if not self.can_ask:
            return
        for waiter in self._state.waiting.blocked.values():
            if isinstance(waiter, GroupWaiter):
                for group in waiter.groups:
                    self._come_back(self._thirst(group.stream.queue, group.name))
        for thirst in self._thirsts.values():
            self._tell(thirst, node_id)

    def link_closed(self, node_id: bytes) -> None:
        """Expect nothing of a node any more, and forget what it wants."""
        for name, group_name in list(self._of_node.get(node_id, ())):
            self._forget(node_id, name, group_name)
        for number, question in list(self._questions.items()):
            if question.node_id == node_id:
                del self._questions[number]
                question.waiter.asked = 0
                self._serve(question.thirst)
        for thirst in list(self._thirsts.values()):
            thirst.sources.pop(node_id, None)
            thirst.told.discard(node_id)
            thirst.awaited.discard(node_id)
            self._ask(thirst)

    def flushing(self) -> None:
        """Everything is gone, and the schedule with it."""
        self._thirsts.clear()
        self._questions.clear()
        self._delivery.given.clear()
        self._delivery.offered.clear()
