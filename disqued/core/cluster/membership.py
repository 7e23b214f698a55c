"""Who is in the cluster: meeting, forgetting, and the links between the nodes.

Every node has a link of its own to every other one.  It joins by the address of any member:

    CLUSTER MEET --> address to try          gossip about a node that we do not know --> address to look at
                          |                                                                     |
          link: "take me in", "I am b"                                     link: is it the one? then close it
                          |                                                                     |
                          +---> b is known; it takes us in, and dials us likewise <--- link: "take me in"
                                                    |
                     each tells the other of some more nodes with every PING and PONG

A link that says "take me in" goes where an operator sent it, or where the id is known to be right.  So an address that
is out of date, at which a node of another cluster answers now, does not make one cluster of two.  Somebody who was
forgotten is not taken in for a minute, unless an operator here says MEET.

A peer may be wrong or hostile.  What it says can add addresses to try, as far as there is room; it removes no node.

Times are integer milliseconds of the monotonic clock.  Source: Disque, src/cluster.c.
"""

from collections.abc import Iterable, Sequence

from disqued.core.cluster.failure_detector import FailureDetector
from disqued.core.cluster.meetings import Meetings
from disqued.core.cluster.own_address import OwnAddress, canonical
from disqued.core.model.ids import is_node_id
from disqued.core.model.machine import Machine
from disqued.core.model.messages import Greeting, Target
from disqued.core.model.own_flags import peer_flags
from disqued.core.model.peers import LEAVING, PEERS_MAX, KnownNode, Peer
from disqued.core.model.state import State

PORT_MAX = 65_535


class Membership(Machine):
    """The machine behind CLUSTER, and what the bus asks where to go."""

    __slots__ = ("_peers", "_state", "detector", "meetings", "own_address")

    def __init__(self, state: State, machines: Sequence[Machine]) -> None:
        """Take the machines that hear when nodes come, go or fail."""
        self._state = state
        self._peers = state.peers
        self.own_address = OwnAddress(state)
        self.meetings = Meetings(state)
        self.detector = FailureDetector(state, machines, self.meetings)

    # What operators want.

    def set_leaving(self, *, leaving: bool) -> None:
        """Note that this node drains, or does not any more, and tell everybody."""
        self._state.leaving = leaving
        self._state.outbox.members_changed = True
        self.detector.tell_standing()
        self.detector.ping_all()

    def meet(self, host: str, port: int, bus_port: int) -> None:
        """Try to join the node at an address, for as long as the time-out."""
        if self.meetings.meet(host, port, bus_port):
            self.detector.changed()

    def forget(self, node_id: bytes) -> bool:
        """Remove a node; say whether it was known."""
        peer = self._peers.by_id.pop(node_id, None)
        if peer is None:
            return False
        self._peers.linked.pop(node_id, None)
        self._peers.forgotten.add(node_id)
        self.meetings.ban(node_id)
        self.detector.changed()
        return True

    def reset(self, *, hard: bool) -> None:
        """Forget every other node; `hard`: become another node, with a new id.  The jobs are not looked at."""
        peers, state = self._peers, self._state
        peers.by_id.clear()
        peers.linked.clear()
        peers.forgotten.clear()
        self.meetings.clear()
        self.own_address.twin = ""
        if hard:
            state.become(b"%040x" % state.numbers.rng.getrandbits(160))
        self.detector.changed()

    # What CLUSTER NODES and nodes.conf show, and what the latter brings back.

    def lines(self) -> list[KnownNode]:
        """Every node that is known: this one, then the others in the order in which they came."""
        flags = LEAVING if self._state.leaving else 0
        at = self.own_address
        own = KnownNode(self._state.node_id, at.host, at.port, at.bus_port, flags, connected=True, myself=True)
        return [own, *map(self._shown, self._peers.by_id.values())]

    def _shown(self, peer: Peer) -> KnownNode:
        state = self._state
        ping_sent_at = state.wall - (state.now - peer.ping_sent_at) if peer.ping_sent_at else 0
        return KnownNode(
            peer.id, peer.host, peer.port, peer.bus_port, peer.flags, ping_sent_at, peer.pong_wall, peer.linked,
            account=peer.account,
        )  # fmt: skip

    def restore(self, nodes: Iterable[KnownNode]) -> None:
        """Know again what was known before a restart."""
        state, peers = self._state, self._peers
        for node in nodes:
            if node.myself:
                self.own_address.restore(node.host)
                state.leaving = bool(node.flags & LEAVING)
            elif node.id != state.node_id and len(peers.by_id) < PEERS_MAX:
                peer = self._add(Peer(node.id, canonical(node.host), node.port, node.bus_port))
                peer.flags = node.flags
                peer.pong_wall = node.pong_at
                # How long ago that was, the clocks do not tell: a node that did answer has answered now.
                peer.pong_at = state.now if node.pong_at else 0
        self.detector.changed()

    # Links.

    def targets(self) -> list[Target]:
        """Where links shall lead to, now."""
        # Somebody who has never answered us may not have taken us in.
        targets = [
            Target(peer.host, peer.bus_port, peer.id, meets=not peer.pong_at)
            for peer in self._peers.by_id.values()
            if peer.host
        ]
        return [*targets, *self.meetings.attempts]

    def link_proven(self, target: Target, greeting: Greeting, own_host: str) -> bool:
        """Our link to a target is proven; say whether it is wanted."""
        self.own_address.learn(own_host, insist=False)
        meeting = self.meetings.attempts.pop(target, None)
        if meeting is not None:
            self.detector.changed()
        expected = meeting.expected if meeting is not None else target.id
        if greeting.id == self._state.node_id:
            self.own_address.found_own_id(target.host, greeting, own_host)
        if greeting.id == self._state.node_id or expected not in (b"", greeting.id):
            self._lose_address(target)
            return False
        peer = self._peer_at(target, greeting)
        if peer is None or peer.linked:
            return False
        self._follow(peer, greeting, target.host)
        if not (target.meets or peer.pong_at):
            # It is the right one: dial again, and ask to be taken in.
            return False
        self._link(peer)
        return True

    def _peer_at(self, target: Target, greeting: Greeting) -> Peer | None:
        """The node that a link of ours leads to, taken in if it is new; None: it is not wanted."""
        peer = self._peers.by_id.get(greeting.id)
        if peer is not None:
            return peer
        if target.meets and not target.id:
            # An operator sent us there.
            self.meetings.lift_ban(greeting.id)
        return self._take_in(greeting, target.host)

    def _link(self, peer: Peer) -> None:
        peer.linked = True
        peer.linked_at = self._state.now
        peer.stale = peer.asked_again = False
        self._peers.linked[peer.id] = peer
        self.detector.changed()
        self.detector.ping(peer)

    def link_closed(self, node_id: bytes) -> None:
        """Our link to a node is gone."""
        peer = self._peers.linked.pop(node_id, None)
        if peer is None:
            return
        peer.linked = peer.stale = False
        peer.note_end(self._state.now)
        if not peer.ping_sent_at:
            peer.ping_sent_at = self._state.now
        if peer.heard_host:
            self.meetings.look_at(peer.id, peer.heard_host, peer.port, peer.bus_port)
            peer.heard_host = ""
        self.detector.changed()

    def greeting_proven(self, greeting: Greeting, host: str, own_host: str) -> None:
        """Somebody's link to us, from this address to that one of ours, is proven."""
        if greeting.id == self._state.node_id:
            self.own_address.found_own_id(host, greeting, own_host)
            return
        self.own_address.learn(own_host, insist=greeting.meets)
        peer = self._peers.by_id.get(greeting.id)
        if peer is None:
            if greeting.meets:
                self._take_in(greeting, host)
        elif peer.linked and not canonical(greeting.host) and _ports(greeting) == (peer.port, peer.bus_port):
            # A host may have several addresses: one that works is not given up for another one.
            heard = canonical(host)
            peer.heard_host = heard if heard != peer.host else ""
            self.detector.hear_flags(peer, greeting.flags)
        else:
            self._follow(peer, greeting, host)

    def _take_in(self, greeting: Greeting, host: str) -> Peer | None:
        """Know a new node, which is reached at this host unless it says otherwise; None: it is not wanted."""
        host = canonical(greeting.host) or canonical(host)
        if not host or not _is_sound(greeting) or len(self._peers.by_id) >= PEERS_MAX:
            return None
        if self.meetings.is_banned(greeting.id):
            return None
        peer = self._add(Peer(greeting.id, host, *_ports(greeting)))
        self._peers.forgotten.discard(greeting.id)
        peer.flags = peer_flags(greeting.flags)
        self.detector.changed()
        return peer

    def _add(self, peer: Peer) -> Peer:
        peer.ping_sent_at = peer.heard_at = self._state.now
        self._peers.by_id[peer.id] = peer
        return peer

    def _follow(self, peer: Peer, greeting: Greeting, host: str) -> None:
        """Note where a known node is now."""
        self.detector.hear_flags(peer, greeting.flags)
        host = canonical(greeting.host) or canonical(host)
        if host and _is_sound(greeting) and (host, *_ports(greeting)) != (peer.host, peer.port, peer.bus_port):
            peer.move_to(host, *_ports(greeting))
            self.detector.changed()

    def _lose_address(self, target: Target) -> None:
        """Another node than the one that we looked for answers at an address."""
        peer = self._peers.by_id.get(target.id)
        if peer is not None and not peer.linked and (peer.host, peer.bus_port) == (target.host, target.bus_port):
            peer.host = ""
            self.detector.changed()


def _ports(greeting: Greeting) -> tuple[int, int]:
    return greeting.port, greeting.bus_port


def _is_sound(greeting: Greeting) -> bool:
    """Tell whether a node can be what it says of itself."""
    return is_node_id(greeting.id) and 0 <= greeting.port <= PORT_MAX and 1 <= greeting.bus_port <= PORT_MAX
