"""Offers: entries that this node hands out go to consumers of groups on other nodes, which ask for them.

    them  --WANT(queue, group, yes)--> us       remembered for `LIVES_MS`, or until they say no
          <--HAVE(queue, group, yes or no)--    at once, and when an entry comes later
          --TAKE(n, lease)--> us
          <--GIVE(entries)--                    leased here; none: another consumer was faster

What the other side does is in `readers`.  Consumers of this node come before others.  Other nodes decide how much they
want, so that it is bounded per node.

Times are integer milliseconds.
"""

from typing import Final

from disqued.core.model.demand import EntryDemand
from disqued.core.model.groups import Behind
from disqued.core.model.job import WORK_SCOPE, Unit
from disqued.core.model.machine import Hear, Machine
from disqued.core.model.messages import GIVE, HAVE, TAKE, WANT
from disqued.core.model.queues import Queue
from disqued.core.model.state import State
from disqued.core.model.unfinished import QuietParts
from disqued.core.streams.entrydelivery import EntryDelivery
from disqued.core.streams.readers import AGAIN_MS
from disqued.errors import JournalFailed

LIVES_MS: Final = 2 * AGAIN_MS + 5_000  #: how long the want of another node is remembered that is not told again
WANTS_OF_NODE: Final = 10_000  #: that are remembered


class EntryOffers(Machine):
    """The machine that gives entries to consumers of other nodes."""

    __slots__ = ("_delivery", "_of_node", "_state")

    def __init__(self, state: State, delivery: EntryDelivery) -> None:
        self._state = state
        self._delivery = delivery
        #: What each node wants: {node: {(queue, group): None}}, renewed longest ago first.
        self._of_node: dict[bytes, dict[tuple[bytes, bytes], None]] = {}

    def hears(self) -> dict[int, Hear]:
        return {WANT: self.on_want, TAKE: self.on_take}

    def on_want(self, sender: bytes, name: bytes, group_name: bytes, whether: bool) -> None:
        """Say whether there is something for a group, and remember who wants to know."""
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

    def on_take(  # noqa: PLR0917 - the fields of the message
        self, sender: bytes, name: bytes, group_name: bytes, number: int, count: int, lease_ms: int, strict: bool
    ) -> None:
        """Let a consumer of another node have entries."""
        want = self._state.demand.entries.get(name, {}).get(group_name, {}).get(sender)
        if want is None:
            want = self._note(sender, name, group_name)
        want.is_told = False
        try:
            units = self._fetch(name, group_name, count, lease_ms, strict=strict)
        except Behind:
            self._state.work(self._take_later(sender, name, group_name, number, count, lease_ms, strict=strict))
        else:
            self._give(sender, number, units)

    def _fetch(self, name: bytes, group_name: bytes, count: int, lease_ms: int, *, strict: bool) -> list[Unit]:
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

    def _take_later(  # noqa: PLR0917 - the fields of the message
        self, sender: bytes, name: bytes, group_name: bytes, number: int, count: int, lease_ms: int, *, strict: bool
    ) -> QuietParts:
        """Look further, a part at a time."""
        while sender in self._state.peers.linked:
            yield
            try:
                units = self._fetch(name, group_name, count, lease_ms, strict=strict)
            except Behind:
                continue
            self._give(sender, number, units)
            return

    def _give(self, node_id: bytes, number: int, units: list[Unit]) -> None:
        scope = units[0].scope if units else WORK_SCOPE
        entries = tuple((unit.id, unit.body) for unit in units)
        if not self._state.send(node_id, (GIVE, number, scope, entries)):
            for unit in units:
                self._delivery.vanished(unit)

    def link_closed(self, node_id: bytes) -> None:
        """Forget what a node wants."""
        for name, group_name in list(self._of_node.get(node_id, ())):
            self._forget(node_id, name, group_name)

    def flushing(self) -> None:
        """Everything is gone."""
        self._delivery.offered.clear()
