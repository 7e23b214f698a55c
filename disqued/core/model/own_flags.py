"""What a node says of itself to others: whether it drains, and whether it takes no copies."""

from disqued.core.model.messages import NODE_FULL, NODE_LEAVING, PONG
from disqued.core.model.peers import FULL, LEAVING
from disqued.core.model.state import State

TOLD_AGAIN_MS = 100  #: between two answers to a node that goes on to send what this one does not take


def own_flags(state: State) -> int:
    """Return the NODE_... bits of this node."""
    flags = NODE_LEAVING if state.leaving else 0
    return flags | NODE_FULL if state.memory.is_low or state.durability.read_only else flags


def peer_flags(flags: int) -> int:
    """Return the flags of a peer that says these NODE_... bits of itself."""
    return (LEAVING if flags & NODE_LEAVING else 0) | (FULL if flags & NODE_FULL else 0)


def tell_flags(state: State, node_id: bytes) -> None:
    """Send a node the flags of this one, which it does not seem to know; at most once in `TOLD_AGAIN_MS`."""
    peer = state.peers.linked.get(node_id)
    if peer is not None and state.now - peer.told_at >= TOLD_AGAIN_MS:
        peer.told_at = state.now
        state.send(node_id, (PONG, own_flags(state), ()))
