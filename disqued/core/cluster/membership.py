"""Who is in the cluster: meeting, gossip, and the opinion of each node about the others.

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

What a node thinks of another one:

    fine --- no answer for the time-out ---> PFAIL --- most nodes say so ---> FAIL, and everybody is told
      ^                                        |                               |
      +----------------------------------------+------- it answers ------------+

A node that does not answer in time, but says other things, has much to do: it has twice the time.

The opinion of others comes with their gossip, and counts for twice the time-out.  A FAIL that is told is one more
such opinion: it is believed by those who suspect the node themselves or have heard it from most nodes.  All that
comes of it is that such a node gets no copies of new jobs and that clients are sent elsewhere.

A node says of itself that it is leaving, or that it takes no copies now (`FULL`: memory is low, or the journal takes no
jobs).  It tells everybody when that changes, and at once who sends it a copy all the same.

While there are others, the machine wakes every second, or four times in a time-out if that is less: it pings the one
of five nodes that was silent for longest, and everybody who was silent for half a time-out.  A node alone sleeps.

A peer may be wrong or hostile.  What it says can add addresses to try, as far as there is room; it removes no node.

Times are integer milliseconds of the monotonic clock.  Source: Disque, src/cluster.c.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from random import Random
from typing import NamedTuple

from disqued.core.model import messages
from disqued.core.model.ids import is_node_id
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import (
    NODE_FAIL,
    NODE_FULL,
    NODE_LEAVING,
    NODE_PFAIL,
    Gossip,
    Greeting,
    Message,
    Target,
)
from disqued.core.model.own_flags import own_flags
from disqued.core.model.peers import FAIL, FULL, LEAVING, PEERS_MAX, PFAIL, KnownNode, Peer
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.vitals import account_of, own_vitals

PERIOD_MS = 1_000  #: between two looks at the others, at most
MEETING_MIN_MS = 1_000  #: an address is tried for the time-out, and for so long at least
FORGOTTEN_MS = 60_000  #: a node that was forgotten is not taken in for so long
MEETINGS_MAX = 100  #: addresses tried at once
ASKED_AT_ONCE = 5  #: nodes of which the most silent one is pinged
TOLD_OF_MAX = 20  #: nodes of which one message tells, and as many suspected ones
TOLD_AT_ONCE = 5  #: nodes that hear of a new one from each node that has just come to know it
PORT_MAX = 65_535
_FAILING = PFAIL | FAIL
_SAID_FAILING = NODE_PFAIL | NODE_FAIL


class _MeetAttempt(NamedTuple):
    """An address that is tried."""

    expected: bytes  #: id of the node that is looked for; empty = whoever answers
    shown_id: bytes  #: the same, or one that stands for it
    port: int  #: for clients
    ends_at: int


class Membership(Timed, Machine):
    """The machine behind CLUSTER, and what the bus asks where to go."""

    __slots__ = (
        "_announced", "_banned", "_due_at", "_gossip", "_machines", "_meetings", "_peers", "_schedule", "_spoken_of",
        "_standing", "_state", "_told_flags", "bus_port", "host", "port", "twin",
    )  # fmt: skip

    def __init__(self, state: State, machines: Sequence[Machine]) -> None:
        """Take the machines that hear when nodes come, go or fail."""
        self.awake_at = 0
        self._state = state
        self._peers = state.peers
        self._schedule = state.schedule  #: the one that this machine is on
        self._machines = machines
        self._standing: dict[bytes, int] = {}
        self._meetings: dict[Target, _MeetAttempt] = {}
        self._banned: dict[bytes, int] = {}  #: forgotten nodes, and until when they are not taken in
        #: Whom gossip is about: suspected ones, and others; None = to be found out again.
        self._spoken_of: tuple[list[Peer], list[Peer]] | None = None
        #: What each node is told of others, as long as nothing has to be drawn since all of them fit into a message.
        self._gossip: dict[bytes, tuple[Gossip, ...]] = {}
        self._due_at: int = 0  #: when it was to wake last
        self._told_flags: int = 0  #: what everybody was told of this node
        self._announced: str = ""
        self.host: str = ""  #: our own address; empty = nobody has told yet
        self.port: int = 0  #: our own, for clients
        self.bus_port: int = 0
        #: Address of another node that says that it has our id; empty = there is none.
        self.twin: str = ""

    def hears(self) -> dict[int, Hear]:
        return {messages.PONG: self.on_pong, messages.FAIL: self.on_fail, messages.VITALS: self.on_vitals}

    def due_table(self) -> Acts:
        return on(Membership, Membership.due)

    @property
    def timeout_ms(self) -> int:
        """Silence after which a node is suspected: cluster-node-timeout."""
        return self._peers.timeout_ms

    @timeout_ms.setter
    def timeout_ms(self, timeout_ms: int) -> None:
        self._peers.timeout_ms = timeout_ms

    # What is said of this node.

    def announce(self, host: str, port: int, bus_port: int) -> None:
        """Tell where others reach this node; an empty host is where our links come from."""
        self._announced = _address(host)
        self.host = self._announced or self.host
        self.port = port
        self.bus_port = bus_port
        self._state.outbox.members_changed = True

    def greeting(self, meets: bool) -> Greeting:
        """What this node says of itself when a link opens; `meets` is that of the target."""
        return Greeting(self._state.node_id, self._announced, self.port, self.bus_port, self._own_flags, meets)

    def set_leaving(self, *, leaving: bool) -> None:
        """Note that this node drains, or does not any more, and tell everybody."""
        self._state.leaving = leaving
        self._state.outbox.members_changed = True
        self._tell_standing()
        for peer in self._peers.linked.values():
            self._ping(peer)

    @property
    def _own_flags(self) -> int:
        return own_flags(self._state)

    def _learn_own(self, host: str, *, insist: bool) -> None:
        """Learn the own address, from how others came to reach us."""
        host = _address(host)
        if host and not self._announced and (insist or not self.host) and host != self.host:
            self.host = host
            self._state.outbox.members_changed = True

    # What operators want.

    def meet(self, host: str, port: int, bus_port: int) -> None:
        """Try to join the node at an address, for as long as the time-out."""
        target = Target(_address(host), bus_port, b"", meets=True)
        if not target.host:
            return
        if target not in self._meetings and len(self._meetings) >= MEETINGS_MAX:
            self._meetings.pop(next(iter(self._meetings)))
        self._try(target, b"", port)

    def forget(self, node_id: bytes) -> bool:
        """Remove a node; say whether it was known."""
        peer = self._peers.by_id.pop(node_id, None)
        if peer is None:
            return False
        self._peers.linked.pop(node_id, None)
        self._peers.forgotten.add(node_id)
        self._banned[node_id] = self._state.now + FORGOTTEN_MS
        for target in [target for target, meeting in self._meetings.items() if meeting.expected == node_id]:
            del self._meetings[target]
        self._changed()
        return True

    def reset(self, *, hard: bool) -> None:
        """Forget every other node; `hard`: become another node, with a new id.  The jobs are not looked at."""
        peers, state = self._peers, self._state
        peers.by_id.clear()
        peers.linked.clear()
        peers.forgotten.clear()
        self._meetings.clear()
        self._banned.clear()
        self.twin = ""
        if hard:
            state.become(b"%040x" % state.numbers.rng.getrandbits(160))
        self._changed()

    def failure_reports(self, node_id: bytes) -> int | None:
        """Count the other nodes that say that one fails; None for one that is not known."""
        peer = self._peers.by_id.get(node_id)
        return None if peer is None else self._accusers(peer)

    # What CLUSTER NODES and nodes.conf show, and what the latter brings back.

    def lines(self) -> list[KnownNode]:
        """Every node that is known: this one, then the others in the order in which they came."""
        flags = LEAVING if self._state.leaving else 0
        own = KnownNode(
            self._state.node_id, self.host, self.port, self.bus_port, flags=flags, connected=True, myself=True
        )
        return [own, *map(self._shown, self._peers.by_id.values())]

    def _shown(self, peer: Peer) -> KnownNode:
        state = self._state
        ping_sent_at = state.wall - (state.now - peer.ping_sent_at) if peer.ping_sent_at else 0
        return KnownNode(
            peer.id, peer.host, peer.port, peer.bus_port, peer.flags, ping_sent_at, peer.pong_wall, peer.linked,
            account=peer.account,
        )  # fmt: skip

    def tried(self) -> list[KnownNode]:
        """Addresses that we try to reach, in the order in which they came."""
        return [
            KnownNode(meeting.shown_id, target.host, meeting.port, target.bus_port, met=False)
            for target, meeting in self._meetings.items()
            if meeting.expected not in self._peers.by_id
        ]

    def restore(self, nodes: Iterable[KnownNode]) -> None:
        """Know again what was known before a restart."""
        state, peers = self._state, self._peers
        for node in nodes:
            if node.myself:
                self.host = self._announced or _address(node.host)
                state.leaving = bool(node.flags & LEAVING)
            elif node.id != state.node_id and len(peers.by_id) < PEERS_MAX:
                peer = self._add(Peer(node.id, _address(node.host), node.port, node.bus_port))
                peer.flags = node.flags
                peer.pong_wall = node.pong_at
                # How long ago that was, the clocks do not tell: a node that did answer has answered now.
                peer.pong_at = state.now if node.pong_at else 0
        self._changed()

    # Links.

    def targets(self) -> list[Target]:
        """Where links shall lead to, now."""
        # Somebody who has never answered us may not have taken us in.
        targets = [
            Target(peer.host, peer.bus_port, peer.id, meets=not peer.pong_at)
            for peer in self._peers.by_id.values()
            if peer.host
        ]
        return [*targets, *self._meetings]

    def link_proven(self, target: Target, greeting: Greeting, own_host: str) -> bool:
        """Our link to a target is proven; say whether it is wanted."""
        self._learn_own(own_host, insist=False)
        meeting = self._meetings.pop(target, None)
        if meeting is not None:
            self._changed()
        expected = meeting.expected if meeting is not None else target.id
        if greeting.id == self._state.node_id:
            self._found_own_id(target.host, greeting, own_host)
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
            self._banned.pop(greeting.id, None)
        return self._take_in(greeting, target.host)

    def _link(self, peer: Peer) -> None:
        peer.linked = True
        peer.linked_at = self._state.now
        peer.stale = peer.asked_again = False
        self._peers.linked[peer.id] = peer
        self._changed()
        self._ping(peer)

    def link_closed(self, node_id: bytes) -> None:
        """Our link to a node is gone."""
        peer = self._peers.linked.pop(node_id, None)
        if peer is None:
            return
        peer.linked = peer.stale = False
        if not peer.ping_sent_at:
            peer.ping_sent_at = self._state.now
        if peer.heard_host:
            self._look_at(peer.id, peer.heard_host, peer.port, peer.bus_port)
            peer.heard_host = ""
        self._changed()

    def greeting_proven(self, greeting: Greeting, host: str, own_host: str) -> None:
        """Somebody's link to us, from this address to that one of ours, is proven."""
        if greeting.id == self._state.node_id:
            self._found_own_id(host, greeting, own_host)
            return
        self._learn_own(own_host, insist=greeting.meets)
        peer = self._peers.by_id.get(greeting.id)
        if peer is None:
            if greeting.meets:
                self._take_in(greeting, host)
        elif peer.linked and not _address(greeting.host) and _ports(greeting) == (peer.port, peer.bus_port):
            # A host may have several addresses: one that works is not given up for another one.
            heard = _address(host)
            peer.heard_host = heard if heard != peer.host else ""
            self._hear_flags(peer, greeting.flags)
        else:
            self._follow(peer, greeting, host)

    def _take_in(self, greeting: Greeting, host: str) -> Peer | None:
        """Know a new node, which is reached at this host unless it says otherwise; None: it is not wanted."""
        host = _address(greeting.host) or _address(host)
        if not host or not _is_sound(greeting) or self._is_banned(greeting.id) or len(self._peers.by_id) >= PEERS_MAX:
            return None
        peer = self._add(Peer(greeting.id, host, *_ports(greeting)))
        self._peers.forgotten.discard(greeting.id)
        peer.flags = _said(greeting.flags)
        self._changed()
        return peer

    def _add(self, peer: Peer) -> Peer:
        peer.ping_sent_at = peer.heard_at = self._state.now
        self._peers.by_id[peer.id] = peer
        return peer

    def _follow(self, peer: Peer, greeting: Greeting, host: str) -> None:
        """Note where a known node is now."""
        self._hear_flags(peer, greeting.flags)
        host = _address(greeting.host) or _address(host)
        place = (host, *_ports(greeting))
        if host and _is_sound(greeting) and place != (peer.host, peer.port, peer.bus_port):
            peer.host, peer.port, peer.bus_port = place
            peer.heard_host = ""
            peer.stale = peer.linked
            self._changed()

    def _lose_address(self, target: Target) -> None:
        """Another node than the one that we looked for answers at an address."""
        peer = self._peers.by_id.get(target.id)
        if peer is not None and not peer.linked and (peer.host, peer.bus_port) == (target.host, target.bus_port):
            peer.host = ""
            self._changed()

    def _found_own_id(self, host: str, greeting: Greeting, own_host: str) -> None:
        """Somebody has our id: a link from us to ourselves, or a copy of our data that runs elsewhere."""
        ours = {address for address in (_address(own_host), self.host) if address}
        if greeting.bus_port != self.bus_port or ours.isdisjoint((_address(host), _address(greeting.host))):
            self.twin = f"{_address(greeting.host) or host}:{greeting.bus_port}"

    # Addresses to try.

    def _look_at(self, node_id: bytes, host: str, port: int, bus_port: int) -> None:
        """See whether a node is at an address, if there is room for that."""
        host = _address(host)
        target = Target(host, bus_port, b"", meets=False)
        peers = self._peers.by_id
        if not host or target in self._meetings or len(self._meetings) >= MEETINGS_MAX or self._is_banned(node_id):
            return
        if node_id in peers or len(peers) < PEERS_MAX:
            self._try(target, node_id, port)

    def _try(self, target: Target, expected: bytes, port: int) -> None:
        shown_id = expected or b"%040x" % self._state.numbers.rng.getrandbits(160)
        ends_at = self._state.now + max(self.timeout_ms, MEETING_MIN_MS)
        self._meetings[target] = _MeetAttempt(expected, shown_id, port, ends_at)
        self._changed()

    def _is_banned(self, node_id: bytes) -> bool:
        until = self._banned.get(node_id)
        if until is None:
            return False
        if until > self._state.now:
            return True
        del self._banned[node_id]
        return False

    # Messages.

    def on_ping(self, sender: bytes, message: Message) -> None:
        """Answer, and listen to the rumours."""
        peer = self._peers.by_id[sender]
        self._hear(peer, message)
        self._state.send(sender, (messages.PONG, self._own_flags, self._rumours(sender)))
        state = self._state
        vitals = own_vitals(state.memory, len(state.jobs), state.counters)
        state.send(sender, (messages.VITALS, vitals))
        if peer.linked and not peer.pong_at and not peer.asked_again:
            # It has a link to us by now: it had none when it heard our first question, and could not answer.
            peer.asked_again = True
            self._ping(peer)

    def on_pong(self, sender: bytes, message: Message) -> None:
        """Note that a node answers."""
        peer = self._peers.by_id[sender]
        is_new = not peer.pong_at
        news = is_new or peer.flags & _FAILING
        peer.ping_sent_at = 0
        peer.pong_at = self._state.now
        peer.pong_wall = self._state.wall
        peer.flags &= ~_FAILING
        if news:
            self._changed()
        self._hear(peer, message)
        if is_new:
            self._introduce(peer)

    def on_vitals(self, sender: bytes, message: Message) -> None:
        """Enter what a node tells of itself."""
        peer = self._peers.by_id[sender]
        peer.account = account_of(message[1], peer.account, self._state.now)
        # Jobs that left before the ping are in it.
        peer.given = peer.given_lately

    def _introduce(self, newcomer: Peer) -> None:
        """Tell somebody new of others, and some others of it: gossip alone would take its time."""
        if newcomer.linked:
            self._ping(newcomer)
        others = [peer for peer in self._peers.linked.values() if peer is not newcomer]
        for peer in _draw(others, TOLD_AT_ONCE, self._state.numbers.rng):
            self._ping(peer, newcomer)

    def on_fail(self, sender: bytes, message: Message) -> None:
        """Hear that most nodes find that one has failed."""
        peer = self._peers.by_id.get(message[1])
        if peer is None or peer.id == sender:
            return
        peer.reports[sender] = self._state.now
        if not peer.flags & FAIL and (peer.flags & PFAIL or self._accusers(peer) >= self._peers.majority):
            self._mark(peer, FAIL)

    def _hear(self, peer: Peer, message: Message) -> None:
        """Take in what a PING or PONG says, of its sender and of others."""
        _, flags, rumours = message
        self._hear_flags(peer, flags)
        for rumour in rumours:
            if rumour.id not in (self._state.node_id, peer.id):
                self._hear_of(peer.id, rumour)

    def _hear_flags(self, peer: Peer, flags: int) -> None:
        says = _said(flags)
        if says != peer.flags & (LEAVING | FULL):
            peer.flags = peer.flags & _FAILING | says
            self._changed()

    def _hear_of(self, sender: bytes, rumour: Gossip) -> None:
        """Listen to a rumour about another node than its sender and us."""
        peer = self._peers.by_id.get(rumour.id)
        failing = rumour.flags & _SAID_FAILING
        if peer is not None:
            if failing:
                peer.reports[sender] = self._state.now
                self._judge(peer)
                return
            peer.reports.pop(sender, None)
            if peer.linked or (rumour.host, rumour.bus_port) == (peer.host, peer.bus_port):
                return
        if not failing:
            self._look_at(rumour.id, rumour.host, rumour.port, rumour.bus_port)

    def _rumours(self, receiver: bytes) -> tuple[Gossip, ...]:
        """Draw what to tell of others: some who are suspected, and some who are not."""
        told = self._gossip.get(receiver)
        if told is not None:
            return told
        known = len(self._peers.by_id)
        count = min(max(3, (known + 1) // 10), known - 1, TOLD_OF_MAX)
        if count <= 0:
            return ()
        if self._spoken_of is None:
            self._spoken_of = self._sort_peers()
        failing, fine = self._spoken_of
        if max(len(failing), len(fine)) <= count + 1:
            others = [[peer for peer in peers if peer.id != receiver] for peers in (failing, fine)]
            if max(map(len, others)) <= count:
                told = self._gossip[receiver] = tuple(_rumour(peer) for peers in others for peer in peers)
                return told
        rng = self._state.numbers.rng
        drawn = [*_draw_others(failing, count, receiver, rng), *_draw_others(fine, count, receiver, rng)]
        return tuple(map(_rumour, drawn))

    def _sort_peers(self) -> tuple[list[Peer], list[Peer]]:
        """Those who are suspected, and those who are not and have answered."""
        failing, fine = [], []
        for peer in self._peers.by_id.values():
            if peer.host:
                if peer.flags & _FAILING:
                    failing.append(peer)
                elif peer.linked and peer.pong_at:
                    fine.append(peer)
        return failing, fine

    # Failures.

    def _accusers(self, peer: Peer) -> int:
        """Count those who say that a node fails; what is old, or comes from nodes not known any more, is dropped."""
        since = self._state.now - 2 * self.timeout_ms
        known = self._peers.by_id
        peer.reports = {sender: at for sender, at in peer.reports.items() if at >= since and sender in known}
        return len(peer.reports)

    def _judge(self, peer: Peer) -> None:
        """Find that a node has failed if we and others suspect it, who are the most, and tell everybody."""
        if peer.flags & _FAILING == PFAIL and self._accusers(peer) + 1 >= self._peers.majority:
            self._mark(peer, FAIL)
            for node_id in list(self._peers.linked):
                self._state.send(node_id, (messages.FAIL, peer.id))

    def _mark(self, peer: Peer, opinion: int) -> None:
        peer.flags = peer.flags & ~_FAILING | opinion
        self._changed()
        if opinion == FAIL:
            for machine in self._machines:
                machine.node_failed(peer.id)

    # Time.

    @property
    def _period_ms(self) -> int:
        return max(1, min(PERIOD_MS, self.timeout_ms // 4))

    def due(self) -> None:
        """Ping, suspect, give up: whatever the time asks for."""
        late_ms = self._state.now - self._due_at
        self._give_up_meetings()
        if self._own_flags != self._told_flags:
            self._told_flags = self._own_flags
            for peer in self._peers.linked.values():
                self._ping(peer)
        is_late = late_ms > self._period_ms
        # It was asked for a sign of life half a time-out after its last one, or before.
        if late_ms > self.timeout_ms // 2 and self._peers.by_id:
            for machine in self._machines:
                machine.stalled()
        for peer in self._peers.by_id.values():
            if is_late and peer.ping_sent_at:
                # This node was stopped for a while: nobody is suspected for what it did not hear.
                peer.ping_sent_at = min(self._state.now, peer.ping_sent_at + late_ms)
            self._watch(peer)
        self._ping_most_silent()
        self._plan()

    def _give_up_meetings(self) -> None:
        over = [target for target, meeting in self._meetings.items() if meeting.ends_at <= self._state.now]
        for target in over:
            del self._meetings[target]
        if over:
            self._changed()

    def _watch(self, peer: Peer) -> None:
        """See to it that a node is asked in time, and that one that does not answer is suspected."""
        now, timeout_ms = self._state.now, self.timeout_ms
        if not peer.ping_sent_at:
            if now - peer.pong_at > timeout_ms // 2:
                self._ping(peer)
            return
        silent_ms = self._silent_ms(peer)
        if peer.linked:
            self._urge(peer, silent_ms)
        if silent_ms > timeout_ms and not peer.flags & _FAILING:
            self._mark(peer, PFAIL)
            self._judge(peer)

    def _silent_ms(self, peer: Peer) -> int:
        """How long a node has not answered; it has twice the time while it says other things: it is busy."""
        now, asked_at = self._state.now, peer.ping_sent_at
        return max(now - max(asked_at, peer.heard_at), (now - asked_at) // 2)

    def _urge(self, peer: Peer, silent_ms: int) -> None:
        """Ask again, as the question may be lost; and in time on another link."""
        if silent_ms > self.timeout_ms // 2 and self._state.now - peer.linked_at > self.timeout_ms:
            peer.stale = True
            self._state.outbox.members_changed = True
        elif silent_ms > self.timeout_ms // 4:
            self._ping(peer)

    def _ping_most_silent(self) -> None:
        asked = [peer for peer in self._peers.linked.values() if not peer.ping_sent_at]
        if asked:
            self._ping(
                min(_draw(asked, ASKED_AT_ONCE, self._state.numbers.rng), key=lambda peer: (peer.pong_at, peer.id))
            )

    def _ping(self, peer: Peer, newcomer: Peer | None = None) -> None:
        """Ask a node whether it is there, and tell it of some others, of the newcomer in any case."""
        rumours = self._rumours(peer.id)
        if newcomer is not None and newcomer.host:
            rumours = (_rumour(newcomer), *(rumour for rumour in rumours if rumour.id != newcomer.id))
        self._state.send(peer.id, (messages.PING, self._own_flags, rumours))
        if not peer.ping_sent_at:
            peer.ping_sent_at = self._state.now
            peer.given_lately = 0

    def flushed(self) -> None:
        self.wake()

    def wake(self) -> None:
        """Be scheduled again, after all deadlines were dropped."""
        self._plan()

    def _plan(self) -> None:
        """Wake in a while if there is anybody to look after, and never if not."""
        schedule = self._state.schedule
        if schedule is not self._schedule:
            # All deadlines were dropped, ours with them.
            self._schedule = schedule
            self.awake_at = 0
        if not self._peers.by_id and not self._meetings:
            schedule.cancel(self)
        elif not self.awake_at:
            self._due_at = self._state.now + self._period_ms
            schedule.add(self, self._due_at)

    # What follows from a change.

    def _tell_standing(self) -> None:
        for machine in self._machines:
            machine.standing_changed()

    def _changed(self) -> None:
        """Let links, nodes.conf, copies and the schedule follow."""
        peers = self._peers
        peers.has_quorum = 1 + sum(not peer.flags & _FAILING for peer in peers.linked.values()) >= peers.majority
        self._state.outbox.members_changed = True
        self._spoken_of = None
        self._gossip.clear()
        reachable = tuple(sorted(peer.id for peer in peers.linked.values() if peer.pong_at and not peer.flags))
        if reachable != peers.reachable:
            peers.reachable = reachable
            for machine in self._machines:
                machine.reachable_changed()
        standing = {peer.id: peer.flags & ~FULL for peer in peers.by_id.values()}
        if standing != self._standing:
            self._standing = standing
            self._tell_standing()
        self._plan()


@lru_cache(PEERS_MAX)
def _address(text: str) -> str:
    """An address as it is compared; empty for what is none."""
    try:
        address = ip_address(text)
    except ValueError:
        return ""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def _ports(greeting: Greeting) -> tuple[int, int]:
    return greeting.port, greeting.bus_port


def _is_sound(greeting: Greeting) -> bool:
    """Tell whether a node can be what it says of itself."""
    return is_node_id(greeting.id) and 0 <= greeting.port <= PORT_MAX and 1 <= greeting.bus_port <= PORT_MAX


def _said(flags: int) -> int:
    """What a node says of itself, as its peer has it."""
    return (LEAVING if flags & NODE_LEAVING else 0) | (FULL if flags & NODE_FULL else 0)


def _rumour(peer: Peer) -> Gossip:
    flags = NODE_LEAVING if peer.flags & LEAVING else 0
    if peer.flags & _FAILING:
        flags |= NODE_FAIL if peer.flags & FAIL else NODE_PFAIL
    return Gossip(peer.id, peer.host, peer.port, peer.bus_port, flags)


def _draw(peers: list[Peer], count: int, rng: Random) -> list[Peer]:
    return rng.sample(peers, min(count, len(peers))) if peers else []


def _draw_others(peers: list[Peer], count: int, receiver: bytes, rng: Random) -> list[Peer]:
    """Draw some that a node can be told of, which does not need to hear of itself."""
    return [peer for peer in _draw(peers, count + 1, rng) if peer.id != receiver][:count]
