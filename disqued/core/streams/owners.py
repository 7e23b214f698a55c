"""Group owners: which of the holders of an entry hands it out, its owner.

All holders come to the same answer without asking each other, from who holds the entry and who can be reached:

    the node that made it, if it can be reached and holds it
    else, of the holders that can be reached, the one that comes first for this entry (`ids.comes_first`)
    one that is leaving only if all of them are

On the two sides of a partition the answers differ, and each side goes on with what it holds; a group may get an entry
once on each.  When the sides meet again the node that made it hands it out, as before, and hears what the others know.

A node may be among the holders and hold nothing: it took no copy, or it lost its memory.  It says so when it is told
something of the entry (`acksets`), and counts no more until it tells something of the entry itself (`Entry.absent`).

What a node finds in its store when it starts may be old, for others went on without it.  Entries that others may hold
too are handed out by nobody here until these have told what they know, or for `HEARD_MS`.

Times are integer milliseconds.
"""

from typing import Final

from disqued.core.model.groups import Entry
from disqued.core.model.ids import comes_first
from disqued.core.model.peers import FAILING, LEAVING
from disqued.core.model.state import State

HEARD_MS: Final = 10_000  #: how long after a start others are given to tell what they know
SETS_KEPT: Final = 4_096

NOBODY: Final = b""
_NO_NODES: frozenset[bytes] = frozenset()


class EntryOwners:
    """Decides who hands out an entry."""

    __slots__ = ("_candidates", "_state", "unheard")

    def __init__(self, state: State) -> None:
        self._state = state
        #: Nodes that have yet to tell what they know, since this one has started.
        self.unheard: frozenset[bytes] = _NO_NODES
        #: Of sets of holders those that can be reached, and are not leaving unless all are.
        self._candidates: dict[tuple[frozenset[bytes], frozenset[bytes]], tuple[bytes, ...]] = {}

    def forget_candidates(self) -> None:
        """How nodes are is not what it was."""
        self._candidates.clear()

    def of(self, entry: Entry) -> bytes:
        """The node that hands out an entry which this one holds; NOBODY = that is not known yet."""
        own = self._state.node_id
        holders = entry.holders
        if not holders:
            return own
        if self.unheard and not self.unheard.isdisjoint(holders):
            return NOBODY
        candidates = self._candidates.get((holders, entry.absent))
        if candidates is None:
            candidates = self._those_there(holders, entry.absent)
        origin = entry.origin
        arbiter = candidates[0]
        for node_id in candidates:
            if node_id[:8] == origin:
                return node_id
            if comes_first(node_id, arbiter, entry.id):
                arbiter = node_id
        return arbiter

    def is_elsewhere(self, entry: Entry) -> bool:
        """Return whether this node does not hand out an entry that it holds."""
        return entry.holders is not None and self.of(entry) != self._state.node_id

    def _those_there(self, holders: frozenset[bytes], absent: frozenset[bytes]) -> tuple[bytes, ...]:
        """Of these holders, and this node, those that count."""
        state = self._state
        others = [node_id for node_id in state.shared.others(holders) if node_id not in absent]
        there = [*filter(self._can_be_reached, others), state.node_id]
        staying = [node_id for node_id in there if not self._is_leaving(node_id)]
        if len(self._candidates) >= SETS_KEPT:
            self._candidates.clear()
        candidates = self._candidates[holders, absent] = tuple(staying or there)
        return candidates

    def _can_be_reached(self, node_id: bytes) -> bool:
        peer = self._state.peers.by_id.get(node_id)
        return peer is not None and not peer.flags & FAILING

    def _is_leaving(self, node_id: bytes) -> bool:
        state = self._state
        if node_id == state.node_id:
            return state.leaving
        return bool(state.peers.by_id[node_id].flags & LEAVING)
