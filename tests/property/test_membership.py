"""Whatever others say, a node knows a bounded number of them, goes to sound addresses, and says what can be written."""

from ipaddress import ip_address
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from disqued.core.cluster.meetings import MEETINGS_MAX
from disqued.core.model import messages as m
from disqued.core.model.ids import is_node_id
from disqued.core.model.messages import Gossip, Greeting
from disqued.core.model.peers import PEERS_MAX
from disqued.core.node import Node
from disqued.testing.clock import Clock
from disqued.wire.messages import decode, encode
from disqued.wire.nodesconf import format_nodes, parse_nodes

OWN_ID = b"%040x" % 1
#: Few of each, so that they meet again.
ids = st.sampled_from([b"%040x" % number for number in range(1, 7)])
hosts = st.sampled_from(["10.0.0.1", "10.0.0.2", "10.0.0.3", "2001:db8::1", "::ffff:10.0.0.2"])
ports = st.sampled_from([7711, 17711, 1, 65_535])
rumours = st.lists(st.builds(Gossip, ids, hosts, ports, ports, st.integers(0, 7)), max_size=4).map(tuple)
greetings = st.builds(
    Greeting, ids | st.just(b"nobody"), hosts | st.sampled_from(["", "nonsense"]), ports, ports | st.just(0),
    st.integers(0, 1), st.booleans(),
)  # fmt: skip
said = st.one_of(
    st.tuples(st.sampled_from([m.PING, m.PONG]), st.integers(0, 1), rumours), st.tuples(st.just(m.FAIL), ids)
)
inputs = st.one_of(
    st.tuples(st.just("greeted"), greetings, hosts, hosts),
    st.tuples(st.just("dialed"), st.integers(0, 20), greetings, hosts, st.booleans()),
    st.tuples(st.just("closed"), ids),
    st.tuples(st.just("said"), ids, said),
    st.tuples(st.just("meet"), hosts, ports, ports),
    st.tuples(st.just("forget"), ids),
    st.tuples(st.just("reset"), st.booleans()),
    st.tuples(st.just("leaving"), st.booleans()),
    st.tuples(st.just("flush")),
    st.tuples(st.just("wait"), st.sampled_from([1, 900, 4_000, 20_000, 70_000])),
)


class Harness:
    """A node and what others do to it."""

    def __init__(self) -> None:
        self.clock = Clock(now=1_000)
        self.node = Node(OWN_ID, self.clock, Random(1), maxmemory=1 << 30)
        self.membership = self.node.membership
        self.membership.own_address.announce("", 7711, 17711)

    def do(self, name: str, *args: Any) -> None:
        self.node.begin()
        getattr(self, name)(*args)

    def greeted(self, *args: Any) -> None:
        self.node.greeted(*args)

    def dialed(self, number: int, greeting: Greeting, own_host: str, is_expected: bool) -> None:
        targets = self.membership.targets()
        if targets:
            target = targets[number % len(targets)]
            if is_expected and target.id:
                greeting = greeting._replace(id=target.id)
            wanted = self.node.link_opened(target, greeting, own_host)
            assert wanted <= (greeting.id in self.node.state.peers.linked)

    def closed(self, node_id: bytes) -> None:
        self.node.link_closed(node_id)

    def said(self, sender: bytes, message: m.Message) -> None:
        self.node.message(sender, decode(encode(message, 0)))

    def meet(self, *args: Any) -> None:
        self.membership.meet(*args)

    def forget(self, node_id: bytes) -> None:
        assert self.membership.forget(node_id) is False or node_id not in self.node.state.peers.by_id

    def reset(self, hard: bool) -> None:
        self.membership.reset(hard=hard)

    def leaving(self, leaving: bool) -> None:
        self.membership.set_leaving(leaving=leaving)

    def flush(self) -> None:
        self.node.flush()

    def wait(self, ms: int) -> None:
        self.clock.advance(ms)
        self.node.begin()
        self.node.tick()

    def check(self) -> None:
        peers, state = self.node.state.peers, self.node.state
        assert state.node_id not in peers.by_id
        assert len(peers.by_id) <= PEERS_MAX
        assert peers.linked == {node_id: peer for node_id, peer in peers.by_id.items() if peer.linked}
        assert peers.reachable == tuple(
            sorted(peer.id for peer in peers.linked.values() if peer.pong_at and not peer.flags)
        )
        assert not peers.forgotten & peers.by_id.keys()
        targets = self.membership.targets()
        assert len(targets) <= len(peers.by_id) + MEETINGS_MAX
        for target in targets:
            assert str(ip_address(target.host)) == target.host
            assert 1 <= target.bus_port <= 65_535
            assert target.id == b"" or is_node_id(target.id)
        # Somebody is looked after, or nobody is there; and it is not a busy loop.
        deadline = self.node.deadline()
        if peers.by_id or targets:
            assert deadline is not None
            assert deadline <= self.clock.now() + 1_000
        for node_id, message in state.outbox.messages:
            assert node_id != state.node_id
            assert decode(encode(message, self.clock.now())) == message
        state.outbox.messages.clear()


@settings(max_examples=300, deadline=None)
@given(st.lists(inputs, max_size=40))
def test_nothing_that_others_say_or_do_upsets_a_node(steps: list[tuple[Any, ...]]) -> None:
    harness = Harness()
    for step in steps:
        harness.do(*step)
        harness.check()
    lines = harness.membership.lines()
    assert [line.id for line in parse_nodes(format_nodes(lines))] == [line.id for line in lines]
