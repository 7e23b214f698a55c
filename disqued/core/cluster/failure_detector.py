"""Failure detection: which of the other nodes answer, and the opinion of each node about the others.

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

Times are integer milliseconds of the monotonic clock.  Source: Disque, src/cluster.c.
"""

from collections.abc import Sequence

from disqued.core.cluster.gossip import GossipSelector, draw, rumour_of
from disqued.core.cluster.meetings import Meetings
from disqued.core.model import messages
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import NODE_FAIL, NODE_PFAIL, Gossip, Vitals
from disqued.core.model.own_flags import own_flags, peer_flags
from disqued.core.model.peers import FAIL, FAILING, FULL, LEAVING, PFAIL, Peer
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.vitals import account_of, own_vitals

PERIOD_MS = 1_000  #: between two looks at the others, at most
ASKED_AT_ONCE = 5  #: nodes of which the most silent one is pinged
TOLD_AT_ONCE = 5  #: nodes that hear of a new one from each node that has just come to know it


class FailureDetector(Timed, Machine):
    """The machine that pings the other nodes, and finds which of them can be reached."""

    __slots__ = (
        "_due_at", "_gossip", "_machines", "_meetings", "_peers", "_schedule", "_standing", "_state", "_told_flags",
    )  # fmt: skip

    def __init__(self, state: State, machines: Sequence[Machine], meetings: Meetings) -> None:
        """Take the machines that hear when nodes come, go or fail."""
        self.awake_at = 0
        self._state = state
        self._peers = state.peers
        self._schedule = state.schedule  #: the one that this machine is on
        self._machines = machines
        self._meetings = meetings
        self._gossip = GossipSelector(state)
        self._standing: dict[bytes, int] = {}
        self._due_at: int = 0  #: when it was to wake last
        self._told_flags: int = 0  #: what everybody was told of this node

    def hears(self) -> dict[int, Hear]:
        return {messages.PONG: self.on_pong, messages.FAIL: self.on_fail, messages.VITALS: self.on_vitals}

    def due_table(self) -> Acts:
        return on(FailureDetector, FailureDetector.due)

    # Messages.

    def on_ping(self, sender: bytes, flags: int, rumours: tuple[Gossip, ...]) -> None:
        """Answer, and listen to the rumours."""
        peer = self._peers.by_id[sender]
        self._hear(peer, flags, rumours)
        self._state.send(sender, (messages.PONG, own_flags(self._state), self._gossip.rumours_for(sender)))
        state = self._state
        vitals = own_vitals(state.memory, len(state.jobs), state.counters)
        state.send(sender, (messages.VITALS, vitals))
        if peer.linked and not peer.pong_at and not peer.asked_again:
            # It has a link to us by now: it had none when it heard our first question, and could not answer.
            peer.asked_again = True
            self.ping(peer)

    def on_pong(self, sender: bytes, flags: int, rumours: tuple[Gossip, ...]) -> None:
        """Note that a node answers."""
        peer = self._peers.by_id[sender]
        is_new = not peer.pong_at
        news = is_new or peer.flags & FAILING
        peer.ping_sent_at = 0
        peer.pong_at = self._state.now
        peer.pong_wall = self._state.wall
        peer.flags &= ~FAILING
        if news:
            self.changed()
        self._hear(peer, flags, rumours)
        if is_new:
            self._introduce(peer)

    def on_vitals(self, sender: bytes, vitals: Vitals) -> None:
        """Enter what a node tells of itself."""
        peer = self._peers.by_id[sender]
        peer.account = account_of(vitals, peer.account, self._state.now)
        # Jobs that left before the ping are in it.
        peer.given = peer.given_lately

    def _introduce(self, newcomer: Peer) -> None:
        """Tell somebody new of others, and some others of it: gossip alone would take its time."""
        if newcomer.linked:
            self.ping(newcomer)
        others = [peer for peer in self._peers.linked.values() if peer is not newcomer]
        for peer in draw(others, TOLD_AT_ONCE, self._state.numbers.rng):
            self.ping(peer, newcomer)

    def on_fail(self, sender: bytes, node_id: bytes) -> None:
        """Hear that most nodes find that one has failed."""
        peer = self._peers.by_id.get(node_id)
        if peer is None or peer.id == sender:
            return
        peer.reports[sender] = self._state.now
        if not peer.flags & FAIL and (peer.flags & PFAIL or self._accusers(peer) >= self._peers.majority):
            self._mark(peer, FAIL)

    def _hear(self, peer: Peer, flags: int, rumours: tuple[Gossip, ...]) -> None:
        """Take in what a PING or PONG says, of its sender and of others."""
        self.hear_flags(peer, flags)
        for rumour in rumours:
            if rumour.id not in (self._state.node_id, peer.id):
                self._hear_of(peer.id, rumour)

    def hear_flags(self, peer: Peer, flags: int) -> None:
        """Take in the NODE_... bits that a node sends of itself."""
        says = peer_flags(flags)
        if says != peer.flags & (LEAVING | FULL):
            peer.flags = peer.flags & FAILING | says
            self.changed()

    def _hear_of(self, sender: bytes, rumour: Gossip) -> None:
        """Listen to a rumour about another node than its sender and us."""
        peer = self._peers.by_id.get(rumour.id)
        failing = rumour.flags & (NODE_PFAIL | NODE_FAIL)
        if peer is not None:
            if failing:
                peer.reports[sender] = self._state.now
                self._judge(peer)
                return
            peer.reports.pop(sender, None)
            if peer.linked or (rumour.host, rumour.bus_port) == (peer.host, peer.bus_port):
                return
        if not failing and self._meetings.look_at(rumour.id, rumour.host, rumour.port, rumour.bus_port):
            self.changed()

    # Failures.

    def failure_reports(self, node_id: bytes) -> int | None:
        """Count the other nodes that say that one fails; None for one that is not known."""
        peer = self._peers.by_id.get(node_id)
        return None if peer is None else self._accusers(peer)

    def _accusers(self, peer: Peer) -> int:
        """Count those who say that a node fails; what is old, or comes from nodes not known any more, is dropped."""
        since = self._state.now - 2 * self._peers.timeout_ms
        known = self._peers.by_id
        peer.reports = {sender: at for sender, at in peer.reports.items() if at >= since and sender in known}
        return len(peer.reports)

    def _judge(self, peer: Peer) -> None:
        """Find that a node has failed if we and others suspect it, who are the most, and tell everybody."""
        if peer.flags & FAILING == PFAIL and self._accusers(peer) + 1 >= self._peers.majority:
            self._mark(peer, FAIL)
            for node_id in list(self._peers.linked):
                self._state.send(node_id, (messages.FAIL, peer.id))

    def _mark(self, peer: Peer, opinion: int) -> None:
        peer.flags = peer.flags & ~FAILING | opinion
        self.changed()
        if opinion == FAIL:
            for machine in self._machines:
                machine.node_failed(peer.id)

    # Time.

    @property
    def _period_ms(self) -> int:
        return max(1, min(PERIOD_MS, self._peers.timeout_ms // 4))

    def due(self) -> None:
        """Ping, suspect, give up: whatever the time asks for."""
        late_ms = self._state.now - self._due_at
        if self._meetings.give_up():
            self.changed()
        flags = own_flags(self._state)
        if flags != self._told_flags:
            self._told_flags = flags
            self.ping_all()
        is_late = late_ms > self._period_ms
        # It was asked for a sign of life half a time-out after its last one, or before.
        if late_ms > self._peers.timeout_ms // 2 and self._peers.by_id:
            for machine in self._machines:
                machine.stalled()
        for peer in self._peers.by_id.values():
            if is_late and peer.ping_sent_at:
                # This node was stopped for a while: nobody is suspected for what it did not hear.
                peer.ping_sent_at = min(self._state.now, peer.ping_sent_at + late_ms)
            self._watch(peer)
        self._ping_most_silent()
        self.plan()

    def _watch(self, peer: Peer) -> None:
        """See to it that a node is asked in time, and that one that does not answer is suspected."""
        now, timeout_ms = self._state.now, self._peers.timeout_ms
        if not peer.ping_sent_at:
            if now - peer.pong_at > timeout_ms // 2:
                self.ping(peer)
            return
        silent_ms = self._silent_ms(peer)
        if peer.linked:
            self._urge(peer, silent_ms)
        if silent_ms > timeout_ms and not peer.flags & FAILING:
            self._mark(peer, PFAIL)
            self._judge(peer)

    def _silent_ms(self, peer: Peer) -> int:
        """How long a node has not answered; it has twice the time while it says other things: it is busy."""
        now, asked_at = self._state.now, peer.ping_sent_at
        return max(now - max(asked_at, peer.heard_at), (now - asked_at) // 2)

    def _urge(self, peer: Peer, silent_ms: int) -> None:
        """Ask again, as the question may be lost; and in time on another link."""
        if silent_ms > self._peers.timeout_ms // 2 and self._state.now - peer.linked_at > self._peers.timeout_ms:
            peer.stale = True
            self._state.outbox.members_changed = True
        elif silent_ms > self._peers.timeout_ms // 4:
            self.ping(peer)

    def _ping_most_silent(self) -> None:
        asked = [peer for peer in self._peers.linked.values() if not peer.ping_sent_at]
        if asked:
            self.ping(
                min(draw(asked, ASKED_AT_ONCE, self._state.numbers.rng), key=lambda peer: (peer.pong_at, peer.id))
            )

    def ping(self, peer: Peer, newcomer: Peer | None = None) -> None:
        """Ask a node whether it is there, and tell it of some others, of the newcomer in any case."""
        rumours = self._gossip.rumours_for(peer.id)
        if newcomer is not None and newcomer.host:
            rumours = (rumour_of(newcomer), *(rumour for rumour in rumours if rumour.id != newcomer.id))
        self._state.send(peer.id, (messages.PING, own_flags(self._state), rumours))
        if not peer.ping_sent_at:
            peer.ping_sent_at = self._state.now
            peer.given_lately = 0

    def ping_all(self) -> None:
        """Let everybody know the flags of this node."""
        for peer in self._peers.linked.values():
            self.ping(peer)

    def flushed(self) -> None:
        self.plan()

    def plan(self) -> None:
        """Wake in a while if there is anybody to look after, and never if not."""
        schedule = self._state.schedule
        if schedule is not self._schedule:
            # All deadlines were dropped, ours with them.
            self._schedule = schedule
            self.awake_at = 0
        if not self._peers.by_id and not self._meetings.attempts:
            schedule.cancel(self)
        elif not self.awake_at:
            self._due_at = self._state.now + self._period_ms
            schedule.add(self, self._due_at)

    # What follows from a change.

    def tell_standing(self) -> None:
        """Let the machines see who fails, recovers or drains now."""
        for machine in self._machines:
            machine.standing_changed()

    def changed(self) -> None:
        """Let links, nodes.conf, copies and the schedule follow."""
        peers = self._peers
        peers.has_quorum = 1 + sum(not peer.flags & FAILING for peer in peers.linked.values()) >= peers.majority
        self._state.outbox.members_changed = True
        self._gossip.clear()
        reachable = tuple(sorted(peer.id for peer in peers.linked.values() if peer.pong_at and not peer.flags))
        if reachable != peers.reachable:
            peers.reachable = reachable
            for machine in self._machines:
                machine.reachable_changed()
        standing = {peer.id: peer.flags & ~FULL for peer in peers.by_id.values()}
        if standing != self._standing:
            self._standing = standing
            self.tell_standing()
        self.plan()
