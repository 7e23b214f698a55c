"""Gossip: which nodes a PING or PONG tells of.

A message tells of some nodes that are suspected and of some that are fine, drawn at random.  Where all fit into one
message nothing has to be drawn, and what each node receives is kept until something changes.
"""

from random import Random

from disqued.core.model.messages import NODE_FAIL, NODE_LEAVING, NODE_PFAIL, Gossip
from disqued.core.model.peers import FAIL, FAILING, LEAVING, Peer
from disqued.core.model.state import State

TOLD_OF_MAX = 20  #: nodes of which one message tells, and as many suspected ones


class GossipSelector:
    """Selects what a node is told of others."""

    __slots__ = ("_complete", "_sorted", "_state")

    def __init__(self, state: State) -> None:
        self._state = state
        #: Whom gossip is about: suspected ones, and others; None = to be found out again.
        self._sorted: tuple[list[Peer], list[Peer]] | None = None
        #: What each node is told, as long as all of it fits into a message.
        self._complete: dict[bytes, tuple[Gossip, ...]] = {}

    def clear(self) -> None:
        """Forget what was kept, as some peer has changed."""
        self._sorted = None
        self._complete.clear()

    def rumours_for(self, receiver: bytes) -> tuple[Gossip, ...]:
        """Draw what to tell of others: some who are suspected, and some who are not."""
        told = self._complete.get(receiver)
        if told is not None:
            return told
        known = len(self._state.peers.by_id)
        count = min(max(3, (known + 1) // 10), known - 1, TOLD_OF_MAX)
        if count <= 0:
            return ()
        if self._sorted is None:
            self._sorted = self._sort_peers()
        failing, fine = self._sorted
        if max(len(failing), len(fine)) <= count + 1:
            others = [[peer for peer in peers if peer.id != receiver] for peers in (failing, fine)]
            if max(map(len, others)) <= count:
                told = self._complete[receiver] = tuple(rumour_of(peer) for peers in others for peer in peers)
                return told
        rng = self._state.numbers.rng
        drawn = [*_draw_others(failing, count, receiver, rng), *_draw_others(fine, count, receiver, rng)]
        return tuple(map(rumour_of, drawn))

    def _sort_peers(self) -> tuple[list[Peer], list[Peer]]:
        """Those who are suspected, and those who are not and have answered."""
        failing, fine = [], []
        for peer in self._state.peers.by_id.values():
            if peer.host:
                if peer.flags & FAILING:
                    failing.append(peer)
                elif peer.linked and peer.pong_at:
                    fine.append(peer)
        return failing, fine


def rumour_of(peer: Peer) -> Gossip:
    """What others are told of a node."""
    flags = NODE_LEAVING if peer.flags & LEAVING else 0
    if peer.flags & FAILING:
        flags |= NODE_FAIL if peer.flags & FAIL else NODE_PFAIL
    return Gossip(peer.id, peer.host, peer.port, peer.bus_port, flags)


def draw(peers: list[Peer], count: int, rng: Random) -> list[Peer]:
    """Draw some nodes, or all if there are fewer."""
    return rng.sample(peers, min(count, len(peers))) if peers else []


def _draw_others(peers: list[Peer], count: int, receiver: bytes, rng: Random) -> list[Peer]:
    """Draw some that a node can be told of, which does not need to hear of itself."""
    return [peer for peer in draw(peers, count + 1, rng) if peer.id != receiver][:count]
