"""Nodes that dial each other in memory, for tests of who is in the cluster and who answers."""

from collections.abc import Callable, Iterable, Iterator
from random import Random

from disqued.core.model import messages as m
from disqued.core.model.messages import Gossip, Greeting, Message, Target
from disqued.core.model.peers import Peer
from disqued.core.node import Node
from disqued.testing.clock import Clock
from disqued.wire.messages import decode, encode

BUS_PORT = 17711


class Member:
    """A node, its place on the network, and its links."""

    def __init__(self, number: int, seed: int = 1) -> None:
        self.clock = Clock(now=1_000 + 333 * number)
        self.host = f"10.0.0.{number}"
        self.node = Node(b"%040x" % number, self.clock, Random(f"{seed} {number}"), maxmemory=1 << 30)
        self.is_up = True
        self.links: dict[bytes, Member] = {}
        self.sent: list[tuple[bytes, Message]] = []
        self.membership.own_address.announce("", 7711, BUS_PORT)

    @property
    def id(self) -> bytes:
        return self.node.id

    @property
    def membership(self):
        return self.node.membership

    def peer(self, other: "Member") -> Peer:
        return self.node.state.peers.by_id[other.id]

    @property
    def known(self) -> set[bytes]:
        return set(self.node.state.peers.by_id)

    @property
    def reachable(self) -> tuple[bytes, ...]:
        return self.node.state.peers.reachable


class Mesh:
    """Nodes that follow their targets, and the network between them."""

    def __init__(self, size: int, *, seed: int = 1, joined: bool = True) -> None:
        self.members = [Member(number, seed) for number in range(1, size + 1)]
        self.cut: set[frozenset[str]] = set()
        self.mute: Callable[[Member, Member], bool] = lambda sender, receiver: False
        self.dialed: list[tuple[Member, Target]] = []
        if joined:
            for member in self.members[1:]:
                self.meet(member, self.members[0])
            self.advance(10_000)
            assert all(len(member.reachable) == size - 1 for member in self.members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members)

    def meet(self, member: Member, other: Member) -> None:
        member.node.begin()
        member.membership.meet(other.host, 7711, BUS_PORT)
        self.settle()

    def separate(self, group: Iterable[Member], others: Iterable[Member]) -> None:
        self.cut |= {frozenset((one.host, other.host)) for one in group for other in others}
        self.settle()

    def heal(self) -> None:
        self.cut.clear()
        self.settle()

    def settle(self) -> None:
        """Let links follow and messages arrive until nothing happens any more."""
        for _ in range(1_000):
            changed = [self._follow(member) for member in self.members if member.is_up]
            if not any(changed) and not self._carry():
                return
        raise AssertionError("never quiet")

    def advance(self, ms: int, step: int = 250) -> None:
        for _ in range(ms // step):
            for member in self.members:
                member.clock.advance(step)
                member.node.begin()
                if member.is_up:
                    at = member.node.deadline()
                    if at is not None and at <= member.clock.now():
                        member.node.tick()
            self.settle()

    def _joins(self, one: Member, other: Member) -> bool:
        return one.is_up and other.is_up and frozenset((one.host, other.host)) not in self.cut

    def _follow(self, member: Member) -> bool:
        changed = False
        targets = member.membership.targets()
        wanted = {target.id: target for target in targets if target.id}
        for node_id, other in list(member.links.items()):
            target, peer = wanted.get(node_id), member.node.state.peers.by_id.get(node_id)
            if target is None or target.host != other.host or (peer and peer.stale) or not self._joins(member, other):
                del member.links[node_id]
                member.node.link_closed(node_id)
                changed = True
        for target in targets:
            if target.id not in member.links and target in member.membership.targets():
                changed |= self._dial(member, target)
        return changed

    def _dial(self, member: Member, target: Target) -> bool:
        at_address = [other for other in self.members if (other.host, BUS_PORT) == (target.host, target.bus_port)]
        if not at_address or not self._joins(member, at_address[0]):
            return False
        other = at_address[0]
        self.dialed.append((member, target))
        other.node.begin()
        other.node.greeted(member.membership.own_address.greeting(target.meets), member.host, other.host)
        member.node.begin()
        if member.node.link_opened(target, other.membership.own_address.greeting(False), member.host):
            member.links[other.id] = other
        return True

    def _carry(self) -> bool:
        busy = False
        for member in self.members:
            outbox = member.node.outbox
            outbox.members_changed = False
            under_way, outbox.messages = outbox.messages, []
            for node_id, message in under_way:
                busy = True
                member.sent.append((node_id, message))
                other = member.links.get(node_id)
                if other is not None and self._joins(member, other) and not self.mute(member, other):
                    other.node.begin()
                    other.node.message(member.id, decode(encode(message, member.clock.now())))
        return busy


def greeting_of(
    number: int, *, host: str = "", meets: bool = True, bus_port: int = BUS_PORT, flags: int = 0
) -> Greeting:
    return Greeting(b"%040x" % number, host, 7711, bus_port, flags, meets)


def acquainted(*numbers: int) -> Member:
    """A node that knows others which are not there: linked, and heard of."""
    member = Member(1)
    for number in numbers:
        greeting = greeting_of(number)
        member.node.greeted(greeting, f"10.0.0.{number}", member.host)
        [target] = [target for target in member.membership.targets() if target.id == greeting.id]
        assert member.node.link_opened(target, greeting, member.host)
        member.node.message(greeting.id, (m.PONG, 0, ()))
    member.node.outbox.messages.clear()
    return member


def pass_time(member: Member, ms: int, step: int = 250) -> None:
    for _ in range(0, ms, step):
        member.clock.advance(step)
        member.node.begin()
        member.node.tick()


def hear(member: Member, number: int, *message: object) -> None:
    member.node.begin()
    member.node.message(b"%040x" % number, message)


def rumour_of(number: int, flags: int = 0, host: str = "") -> Gossip:
    return Gossip(b"%040x" % number, host or f"10.0.0.{number}", 7711, BUS_PORT, flags)
