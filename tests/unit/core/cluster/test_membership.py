"""Who is in the cluster: nodes that dial each other in memory, and what each thinks of the others."""

from collections.abc import Callable, Iterable, Iterator
from random import Random

import pytest

from disqued.core.cluster.membership import FORGOTTEN_MS, MEETINGS_MAX
from disqued.core.model import messages as m
from disqued.core.model.messages import Gossip, Greeting, Message, Target
from disqued.core.model.peers import FAIL, LEAVING, PEERS_MAX, PFAIL, TIMEOUT_MS, KnownNode, Peer
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
        self.membership.announce("", 7711, BUS_PORT)

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
        other.node.greeted(member.membership.greeting(target.meets), member.host, other.host)
        member.node.begin()
        if member.node.link_opened(target, other.membership.greeting(False), member.host):
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


# Meeting.


def test_two_nodes_know_each_other_after_one_meets_the_other() -> None:
    a, b = mesh = Mesh(2, joined=False)
    mesh.meet(a, b)
    for one, other in ((a, b), (b, a)):
        assert one.known == {other.id}
        assert one.reachable == (other.id,)
        assert (one.peer(other).host, one.peer(other).port, one.peer(other).bus_port) == (other.host, 7711, BUS_PORT)
    assert all(target.id for target in a.membership.targets())


def test_nodes_that_meet_one_of_them_all_come_to_know_each_other() -> None:
    mesh = Mesh(7)
    for member in mesh:
        assert member.known == {other.id for other in mesh if other is not member}


def test_a_newcomer_and_the_others_hear_of_each_other_at_once() -> None:
    a, b, c, d = mesh = Mesh(4, joined=False)
    for member in (b, c, d):
        mesh.meet(member, a)
    # No time has passed.
    assert all(len(member.reachable) == 3 for member in mesh)


def test_a_node_is_asked_again_as_soon_as_it_has_a_link_to_answer_on() -> None:
    a = Member(1)
    a.node.greeted(greeting_of(2), "10.0.0.2", a.host)
    assert a.node.link_opened(a.membership.targets()[0], greeting_of(2), a.host)
    # It has no link to us yet, and cannot answer.
    a.node.outbox.messages.clear()
    for expected in ([m.PONG, m.VITALS, m.PING], [m.PONG, m.VITALS]):
        hear(a, 2, m.PING, 0, ())
        assert [message[0] for _, message in a.node.outbox.messages] == expected
        a.node.outbox.messages.clear()


def test_who_answers_for_the_first_time_hears_of_others_and_they_of_it() -> None:
    a = acquainted(2)
    a.node.greeted(greeting_of(3), "10.0.0.3", a.host)
    assert a.node.link_opened(a.membership.targets()[1], greeting_of(3), a.host)
    a.node.outbox.messages.clear()
    hear(a, 3, m.PONG, 0, ())
    assert a.node.outbox.messages == [
        (b"%040x" % 3, (m.PING, 0, (rumour_of(2),))),
        (b"%040x" % 2, (m.PING, 0, (rumour_of(3),))),
    ]
    a.node.outbox.messages.clear()
    hear(a, 3, m.PONG, 0, ())
    assert a.node.outbox.messages == []


def test_a_node_that_has_announced_nothing_has_no_address_and_no_ports() -> None:
    node = Node(b"%040x" % 1, Clock(), Random(1), maxmemory=1 << 30)
    assert node.membership.lines() == [KnownNode(node.id, "", 0, 0, connected=True, myself=True)]


def test_the_own_address_is_learnt_from_others() -> None:
    a, b = mesh = Mesh(2, joined=False)
    assert (a.membership.host, b.membership.host) == ("", "")
    mesh.meet(a, b)
    assert (a.membership.host, b.membership.host) == (a.host, b.host)


def test_an_announced_address_is_the_one_that_others_use() -> None:
    a, _ = mesh = Mesh(2, joined=False)
    a.node.outbox.members_changed = False
    a.membership.announce("192.0.2.1", 7000, 8000)
    assert a.node.outbox.members_changed
    mesh.members[1].node.greeted(a.membership.greeting(True), a.host, "10.0.0.2")
    peer = mesh.members[1].peer(a)
    assert (peer.host, peer.port, peer.bus_port) == ("192.0.2.1", 7000, 8000)
    a.node.greeted(greeting_of(2), "10.0.0.2", "10.9.9.9")
    assert a.membership.host == "192.0.2.1"


def test_another_announced_address_is_written_into_the_file_of_members() -> None:
    a = Member(1)
    a.node.outbox.members_changed = False
    a.membership.announce("192.0.2.1", 7712, BUS_PORT + 1)
    assert a.node.outbox.members_changed
    assert a.membership.lines()[0] == KnownNode(a.id, "192.0.2.1", 7712, BUS_PORT + 1, 0, connected=True, myself=True)


def test_meeting_a_node_that_does_not_answer_is_given_up() -> None:
    a = Member(1)
    a.membership.meet("10.0.0.9", 7711, BUS_PORT)
    assert a.membership.targets() == [Target("10.0.0.9", BUS_PORT, b"", meets=True)]
    assert [line.host for line in a.membership.tried()] == ["10.0.0.9"]
    pass_time(a, TIMEOUT_MS - 1_000)
    assert a.membership.targets()
    a.node.outbox.members_changed = False
    pass_time(a, 2_000)
    assert a.membership.targets() == []
    assert a.node.outbox.members_changed
    assert a.node.deadline() is None


def test_an_address_is_tried_for_a_second_however_short_the_time_out() -> None:
    a = Member(1)
    a.membership.timeout_ms = 40
    a.membership.meet("10.0.0.9", 7711, BUS_PORT)
    pass_time(a, 900, step=10)
    assert a.membership.targets()
    pass_time(a, 150, step=10)
    assert not a.membership.targets()


def test_a_node_that_meets_itself_drops_the_address_and_finds_no_twin() -> None:
    (a,) = mesh = Mesh(1, joined=False)
    mesh.meet(a, a)
    assert a.membership.targets() == []
    assert a.known == set()
    assert a.membership.twin == ""


def test_two_nodes_with_one_id_are_reported_and_not_joined() -> None:
    a, b = mesh = Mesh(2, joined=False)
    b.node.state.node_id = a.id
    mesh.meet(a, b)
    assert (a.known, b.known) == (set(), set())
    assert a.membership.twin == f"{b.host}:{BUS_PORT}"
    assert b.membership.twin == f"{a.host}:{BUS_PORT}"


def test_a_stranger_that_does_not_ask_to_be_taken_in_is_not_and_its_messages_change_nothing() -> None:
    a = Member(1)
    a.node.greeted(greeting_of(2, meets=False), "10.0.0.2", a.host)
    hear(a, 2, m.PING, 0, (rumour_of(3),))
    assert a.known == set()
    assert a.membership.targets() == []
    assert a.node.outbox.messages == []
    assert a.node.state.peers.refused == 1


def test_a_second_link_to_a_node_is_not_wanted() -> None:
    a = acquainted(2)
    assert not a.node.link_opened(Target("10.0.0.2", BUS_PORT, b"", meets=True), greeting_of(2), a.host)
    assert a.peer(Member(2)).linked


@pytest.mark.parametrize(
    "greeting",
    [
        Greeting(b"x" * 40, "", 7711, BUS_PORT, 0, meets=True),
        Greeting(b"2" * 40, "", 7711, 0, 0, meets=True),
        Greeting(b"2" * 40, "", 70_000, BUS_PORT, 0, meets=True),
    ],
)
def test_a_node_that_cannot_be_what_it_says_is_not_taken_in(greeting: Greeting) -> None:
    a = Member(1)
    a.node.greeted(greeting, "10.0.0.2", a.host)
    assert a.known == set()


def test_an_announced_host_that_is_no_address_is_not_believed() -> None:
    a = Member(1)
    a.node.greeted(greeting_of(2, host="example"), "::ffff:10.0.0.2", a.host)
    assert a.peer(Member(2)).host == "10.0.0.2"


def test_everybody_hears_within_a_second_that_this_node_leaves() -> None:
    a = acquainted(*range(2, 12))
    a.node.state.leaving = True
    pass_time(a, 1_000)
    told = {node_id for node_id, message in a.node.outbox.messages if message[:2] == (m.PING, m.NODE_LEAVING)}
    assert told == a.known


def test_a_node_that_most_others_accuse_has_failed_as_soon_as_this_one_suspects_it_too() -> None:
    a = acquainted(2, 3)
    hear(a, 2, m.PING, 0, (rumour_of(3, m.NODE_PFAIL),))
    while not a.peer(Member(3)).flags:
        pass_time(a, 250)
        hear(a, 2, m.PONG, 0, ())
    assert a.peer(Member(3)).flags == FAIL
    assert (b"%040x" % 2, (m.FAIL, b"%040x" % 3)) in a.node.outbox.messages


def test_a_suspected_node_that_says_that_it_leaves_stays_suspected_until_it_answers() -> None:
    a = acquainted(2)
    pass_time(a, TIMEOUT_MS + 2_000)
    peer = a.peer(Member(2))
    suspected = peer.flags
    assert suspected & (PFAIL | FAIL)
    hear(a, 2, m.PING, m.NODE_LEAVING, ())
    assert peer.flags == suspected | LEAVING
    hear(a, 2, m.PONG, m.NODE_LEAVING, ())
    assert peer.flags == LEAVING


# Gossip.


def test_a_rumour_about_an_unknown_node_is_looked_at_before_anybody_is_asked_to_take_us_in() -> None:
    a, b, c = mesh = Mesh(3, joined=False)
    mesh.meet(a, b)
    a.membership.announce("", 7711, BUS_PORT)
    hear(a, 2, m.PONG, 0, (rumour_of(3),))
    [look] = [target for target in a.membership.targets() if target.host == c.host]
    assert look == Target(c.host, BUS_PORT, b"", meets=False)
    mesh.settle()
    dialed = [target for member, target in mesh.dialed if member is a and target.host == c.host]
    assert dialed == [look, Target(c.host, BUS_PORT, c.id, meets=True)]
    assert a.reachable == (b.id, c.id)


def test_an_address_where_another_node_answers_now_joins_nobody() -> None:
    a, b, stranger = mesh = Mesh(3, joined=False)
    mesh.meet(a, b)
    hear(a, 2, m.PONG, 0, (rumour_of(9, host=stranger.host),))
    mesh.advance(2 * TIMEOUT_MS)
    assert a.known == {b.id}
    assert stranger.known == set()


def test_gossip_tells_of_a_few_nodes_and_of_suspected_ones_among_them() -> None:
    a = acquainted(*range(2, 62))
    suspected = a.peer(Member(30))
    suspected.flags = PFAIL
    a.node.link_closed(suspected.id)
    hear(a, 2, m.PING, 0, ())
    [(kind, _, rumours), _] = [message for to, message in a.node.outbox.messages if to == b"%040x" % 2]
    assert kind == m.PONG
    # One in ten, and besides those who are suspected; never of the one who is told.
    assert len(rumours) == 7
    assert [rumour for rumour in rumours if rumour.flags] == [rumour_of(30, m.NODE_PFAIL)]
    assert b"%040x" % 2 not in {rumour.id for rumour in rumours}


def test_the_same_seed_tells_the_same() -> None:
    def run() -> list[list[tuple[bytes, Message]]]:
        mesh = Mesh(5, seed=7)
        mesh.separate(mesh.members[:1], mesh.members[1:])
        mesh.advance(30_000)
        return [member.sent for member in mesh]

    assert run() == run()


# Moving, leaving.


def test_a_node_that_comes_back_elsewhere_is_followed() -> None:
    a, b, c = mesh = Mesh(3)
    b.is_up = False
    mesh.settle()
    b.links.clear()
    for node_id in list(b.node.state.peers.linked):
        b.node.link_closed(node_id)
    b.host = "10.0.0.99"
    b.is_up = True
    mesh.advance(2_000)
    assert [peer.host for peer in (a.peer(b), c.peer(b))] == ["10.0.0.99", "10.0.0.99"]
    assert b.id in a.reachable
    assert b.id in c.reachable


def test_a_link_that_works_is_not_given_up_because_the_other_node_has_a_second_address() -> None:
    a = acquainted(2)
    a.node.greeted(greeting_of(2, meets=False), "10.0.0.222", a.host)
    assert a.membership.targets() == [Target("10.0.0.2", BUS_PORT, b"%040x" % 2, meets=False)]
    a.node.link_closed(b"%040x" % 2)
    second = Target("10.0.0.222", BUS_PORT, b"", meets=False)
    assert second in a.membership.targets()
    # It is tried once for each time that it was heard of.
    a.clock.advance(TIMEOUT_MS)
    a.node.begin()
    a.node.tick()
    assert second not in a.membership.targets()
    assert a.node.link_opened(a.membership.targets()[0], greeting_of(2, meets=False), a.host)
    a.node.link_closed(b"%040x" % 2)
    assert second not in a.membership.targets()


def test_a_node_that_announces_another_address_is_dialed_there() -> None:
    a = acquainted(2)
    a.node.outbox.members_changed = False
    a.node.greeted(greeting_of(2, host="192.0.2.2", meets=False), "10.0.0.2", a.host)
    assert a.membership.targets() == [Target("192.0.2.2", BUS_PORT, b"%040x" % 2, meets=False)]
    assert a.peer(Member(2)).stale
    assert a.node.outbox.members_changed


def test_the_address_of_a_node_is_forgotten_when_another_one_answers_there() -> None:
    a = acquainted(2)
    [target] = a.membership.targets()
    a.node.link_closed(target.id)
    assert not a.node.link_opened(target, greeting_of(3, meets=False), a.host)
    assert a.membership.targets() == []
    assert a.known == {target.id}
    a.node.greeted(greeting_of(2, meets=False), "10.0.0.7", a.host)
    assert [found.host for found in a.membership.targets()] == ["10.0.0.7"]


def test_leaving_is_known_everywhere_at_once_and_ends_as_fast() -> None:
    a, b, c = mesh = Mesh(3)
    a.membership.set_leaving(leaving=True)
    mesh.settle()
    assert (b.reachable, c.reachable) == ((c.id,), (b.id,))
    assert b.peer(a).flags == LEAVING
    a.membership.set_leaving(leaving=False)
    mesh.settle()
    assert b.reachable == (a.id, c.id)


def test_a_leaving_node_says_so_when_a_link_opens() -> None:
    a = acquainted(2)
    a.node.greeted(greeting_of(2, meets=False, flags=m.NODE_LEAVING), "10.0.0.2", a.host)
    assert a.reachable == ()


def test_whoever_counts_copies_hears_when_the_reachable_nodes_change() -> None:
    a = acquainted(2)
    before = a.node.placement.epoch
    a.node.link_closed(b"%040x" % 2)
    assert a.node.placement.epoch != before


# Silence.


def test_a_node_alone_is_never_woken() -> None:
    assert Member(1).node.deadline() is None


def test_the_timer_outlives_a_flush() -> None:
    a = acquainted(2)
    assert a.node.deadline() is not None
    a.node.flush()
    at = a.node.deadline()
    assert at is not None
    assert at <= a.clock.now() + 1_000


def test_everybody_is_asked_at_least_once_in_half_a_time_out() -> None:
    mesh = Mesh(12)
    for member in mesh:
        member.sent.clear()
    mesh.advance(60_000)
    for member in mesh:
        for other in mesh:
            if other is not member:
                asked = [entry for entry in member.sent if entry[0] == other.id and entry[1][0] == m.PING]
                assert len(asked) >= 60_000 // (TIMEOUT_MS // 2 + 1_250)
                assert member.clock.now() - member.peer(other).pong_at <= TIMEOUT_MS // 2 + 1_250
    for member in mesh:
        # One each second, and those who were silent.
        assert sum(entry[1][0] == m.PING for entry in member.sent) < 60 + 12 * 9


def test_a_node_that_does_not_answer_is_suspected_after_the_time_out_and_not_before() -> None:
    a = acquainted(2)
    pass_time(a, TIMEOUT_MS)
    assert a.reachable
    pass_time(a, 10_000)
    assert a.peer(Member(2)).flags == PFAIL
    assert a.reachable == ()


def test_a_node_to_which_there_is_no_link_is_suspected_after_the_time_out() -> None:
    a = acquainted(2)
    a.node.link_closed(b"%040x" % 2)
    assert a.reachable == ()
    pass_time(a, TIMEOUT_MS)
    assert a.peer(Member(2)).flags == 0
    pass_time(a, 1_500)
    assert a.peer(Member(2)).flags == PFAIL


def test_a_link_on_which_nothing_comes_back_is_made_anew() -> None:
    a = acquainted(2)
    peer = a.peer(Member(2))
    pass_time(a, TIMEOUT_MS - 500)
    assert not peer.stale
    a.node.outbox.members_changed = False
    pass_time(a, 2_000)
    assert peer.stale
    assert a.node.outbox.members_changed
    [target] = a.membership.targets()
    a.node.link_closed(peer.id)
    assert a.node.link_opened(target, greeting_of(2), a.host)
    assert not peer.stale
    # The question that was not answered stays one.
    assert a.clock.now() - peer.ping_sent_at > TIMEOUT_MS // 2


def test_a_node_that_says_other_things_has_twice_the_time_to_answer() -> None:
    a = acquainted(2)
    peer = a.peer(Member(2))

    def pass_busy_time(ms: int) -> None:
        for _ in range(0, ms, 500):
            pass_time(a, 500)
            hear(a, 2, m.GOTJOB, b"D-" + b"0" * 40)

    pass_busy_time(TIMEOUT_MS)
    hear(a, 2, m.PONG, 0, ())
    pass_busy_time(TIMEOUT_MS - 500)
    assert not peer.stale
    pass_busy_time(2_500)
    assert peer.stale
    pass_busy_time(TIMEOUT_MS - 3_000)
    assert peer.flags == 0
    pass_busy_time(3_000)
    assert peer.flags == PFAIL


def test_a_question_that_got_lost_is_asked_again() -> None:
    a, b = mesh = Mesh(2)
    lost = [0]

    def lose_one(sender: Member, receiver: Member) -> bool:
        lost[0] += sender is a
        return sender is a and lost[0] == 1

    mesh.mute = lose_one
    mesh.dialed.clear()
    mesh.advance(30_000)
    assert lost[0] > 1
    assert not mesh.dialed
    assert a.reachable == (b.id,)
    assert a.peer(b).flags == 0


def test_a_node_that_was_stopped_for_a_while_suspects_nobody_for_it() -> None:
    a = acquainted(2)
    a.node.state.peers.by_id[b"%040x" % 2].ping_sent_at = a.clock.now()
    a.clock.advance(10 * TIMEOUT_MS)
    a.node.begin()
    a.node.tick()
    assert a.peer(Member(2)).flags == 0
    pass_time(a, TIMEOUT_MS + 2_000)
    assert a.peer(Member(2)).flags == PFAIL


# The opinion of most.


def test_a_node_that_is_gone_has_failed_for_everybody_and_is_fine_once_it_answers() -> None:
    a, b, c = mesh = Mesh(3)
    c.is_up = False
    mesh.advance(TIMEOUT_MS + 5_000)
    assert (a.peer(c).flags, b.peer(c).flags) == (FAIL, FAIL)
    assert a.reachable == (b.id,)
    c.is_up = True
    mesh.advance(1_000)
    assert (a.peer(c).flags, b.peer(c).flags) == (0, 0)
    assert a.reachable == (b.id, c.id)


def test_the_smaller_part_of_a_cluster_suspects_and_does_not_sentence() -> None:
    mesh = Mesh(5)
    few, many = mesh.members[:2], mesh.members[2:]
    mesh.separate(few, many)
    mesh.advance(TIMEOUT_MS + 10_000)
    assert {member.peer(other).flags for member in few for other in many} == {PFAIL}
    assert {member.peer(other).flags for member in many for other in few} == {FAIL}
    mesh.heal()
    mesh.advance(1_000)
    assert all(len(member.reachable) == 4 for member in mesh)


def test_a_sentence_is_believed_by_who_suspects_the_node_and_by_nobody_else_without_a_majority() -> None:
    a = acquainted(2, 3, 4, 5)
    fine, suspected = a.peer(Member(3)), a.peer(Member(4))
    suspected.flags = PFAIL
    hear(a, 2, m.FAIL, fine.id)
    assert fine.flags == 0
    hear(a, 2, m.FAIL, suspected.id)
    assert suspected.flags == FAIL
    for number in (4, 5):
        hear(a, number, m.FAIL, fine.id)
    assert fine.flags == FAIL
    hear(a, 3, m.PONG, 0, ())
    assert fine.flags == 0


def test_who_finds_that_a_node_has_failed_tells_everybody() -> None:
    a = acquainted(2, 3, 4)
    a.peer(Member(4)).flags = PFAIL
    hear(a, 2, m.PING, 0, (rumour_of(4, m.NODE_PFAIL),))
    assert a.peer(Member(4)).flags == PFAIL
    a.node.outbox.messages.clear()
    hear(a, 3, m.PING, 0, (rumour_of(4, m.NODE_PFAIL),))
    told = [node_id for node_id, message in a.node.outbox.messages if message == (m.FAIL, b"%040x" % 4)]
    assert told == [b"%040x" % 2, b"%040x" % 3, b"%040x" % 4]


def test_a_sentence_on_ourselves_on_its_sender_or_on_nobody_changes_nothing() -> None:
    a = acquainted(2, 3)
    for node_id in (a.id, b"%040x" % 2, b"%040x" % 77):
        hear(a, 2, m.FAIL, node_id)
    assert a.reachable == (b"%040x" % 2, b"%040x" % 3)


def test_reports_are_counted_and_taken_back_and_grow_old() -> None:
    a = acquainted(2, 3, 4)
    subject = b"%040x" % 4
    reports = a.membership.failure_reports
    assert reports(subject) == 0
    hear(a, 2, m.PING, 0, (rumour_of(4, m.NODE_PFAIL),))
    hear(a, 3, m.PING, 0, (rumour_of(4, m.NODE_FAIL),))
    assert reports(subject) == 2
    hear(a, 3, m.PING, 0, (rumour_of(4),))
    assert reports(subject) == 1
    pass_time(a, 2 * TIMEOUT_MS)
    assert reports(subject) == 1
    pass_time(a, 250)
    assert reports(subject) == 0
    assert reports(b"f" * 40) is None


def test_reports_of_nodes_that_are_not_known_any_more_do_not_count() -> None:
    a = acquainted(2, 3)
    hear(a, 2, m.PING, 0, (rumour_of(3, m.NODE_PFAIL),))
    assert a.membership.forget(b"%040x" % 2)
    assert a.membership.failure_reports(b"%040x" % 3) == 0


# Forgetting.


def test_a_forgotten_node_is_not_taken_in_for_a_minute_whoever_speaks_of_it() -> None:
    a, b, c = mesh = Mesh(3)
    assert a.membership.forget(c.id)
    assert not a.membership.forget(c.id)
    assert c.id in a.node.state.peers.forgotten
    mesh.advance(FORGOTTEN_MS - 1_000)
    assert a.known == {b.id}
    mesh.advance(10_000)
    assert a.known == {b.id, c.id}
    assert c.id not in a.node.state.peers.forgotten


def test_a_forgotten_node_is_neither_looked_for_nor_taken_in_before_the_minute_is_over() -> None:
    a = acquainted(2, 3)
    a.membership.forget(b"%040x" % 3)
    hear(a, 2, m.PONG, 0, (rumour_of(3),))
    a.node.greeted(greeting_of(3), "10.0.0.3", a.host)
    assert [target.id for target in a.membership.targets()] == [b"%040x" % 2]
    pass_time(a, FORGOTTEN_MS)
    a.node.greeted(greeting_of(3), "10.0.0.3", a.host)
    assert b"%040x" % 3 in a.known


def test_a_node_that_everybody_forgets_stays_out() -> None:
    a, b, c = mesh = Mesh(3)
    c.is_up = False
    a.membership.forget(c.id)
    b.membership.forget(c.id)
    mesh.advance(2 * FORGOTTEN_MS)
    c.is_up = True
    mesh.advance(10_000)
    assert (a.known, b.known) == ({b.id}, {a.id})


def test_an_operator_can_take_a_forgotten_node_back_at_once() -> None:
    a, b = mesh = Mesh(2)
    a.membership.forget(b.id)
    mesh.settle()
    assert b.known == {a.id}
    assert a.known == set()
    mesh.meet(a, b)
    mesh.advance(1_000)
    assert a.reachable == (b.id,)


def test_nodes_that_forgot_each_other_find_together_when_one_of_them_meets_the_other() -> None:
    a, b = mesh = Mesh(2)
    a.membership.forget(b.id)
    b.membership.forget(a.id)
    mesh.settle()
    mesh.meet(a, b)
    # The other one does not want to hear of it for a minute.
    mesh.advance(FORGOTTEN_MS + 2 * TIMEOUT_MS)
    assert (a.reachable, b.reachable) == ((b.id,), (a.id,))


# Reset.


def test_a_soft_reset_leaves_a_node_alone_under_its_id() -> None:
    a, b = mesh = Mesh(2)
    before = a.id
    a.node.state.peers.forgotten.add(b"%040x" % 9)
    a.membership.reset(hard=False)
    assert not a.node.state.peers.forgotten
    mesh.settle()
    mesh.advance(5_000)
    assert (a.id, a.known, a.reachable) == (before, set(), ())
    assert a.node.deadline() is None
    assert b.known == {before}


def test_a_hard_reset_makes_another_node() -> None:
    a, b = mesh = Mesh(2)
    before = a.id
    a.membership.reset(hard=True)
    mesh.settle()
    assert a.id != before
    assert a.node.state.numbers.ids.next(b"05a0SQ").startswith(b"DI" + a.id[:8])
    assert a.membership.greeting(False).id == a.id
    mesh.advance(2 * TIMEOUT_MS)
    assert b.known == {before}
    # The address of the one that was is that of another one.
    assert b.membership.targets() == []
    mesh.meet(a, b)
    mesh.advance(1_000)
    assert a.reachable == (b.id,)
    assert b.known == {before, a.id}


def test_a_reset_knows_nothing_of_nodes_that_were_forgotten_before_it() -> None:
    a = acquainted(2, 3)
    forgotten = b"%040x" % 3
    a.membership.forget(forgotten)
    a.membership.reset(hard=False)
    assert not a.node.state.peers.forgotten
    a.node.greeted(greeting_of(3), "10.0.0.3", a.host)
    assert a.known == {forgotten}


# Restarts.


def test_a_restarted_node_knows_whom_it_knew() -> None:
    a, b, c = mesh = Mesh(3)
    a.membership.set_leaving(leaving=True)
    mesh.settle()
    lines = a.membership.lines()
    assert lines[0] == KnownNode(a.id, a.host, 7711, BUS_PORT, LEAVING, connected=True, myself=True)
    again = Member(1)
    mesh.members[0] = again
    again.membership.restore(lines)
    assert again.node.state.leaving
    assert again.membership.host == a.host
    assert again.known == {b.id, c.id}
    # They know us already.
    assert not any(target.meets for target in again.membership.targets())
    for other in (b, c):
        del other.links[a.id]
        other.node.link_closed(a.id)
    mesh.advance(1_000)
    assert again.reachable == (b.id, c.id)


# Numbers.


def test_what_a_hostile_peer_says_takes_bounded_room() -> None:
    a = acquainted(2)
    for start in range(3, 30_000, 100):
        rumours = tuple(rumour_of(n, host=f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}") for n in range(start, start + 100))
        hear(a, 2, m.PING, 0, rumours)
        a.node.outbox.messages.clear()
    assert len(a.membership.targets()) == 1 + MEETINGS_MAX
    # An operator is heard all the same.
    a.membership.meet("192.0.2.1", 7711, BUS_PORT)
    assert a.membership.targets()[-1].host == "192.0.2.1"
    assert len(a.membership.targets()) == 1 + MEETINGS_MAX


def test_there_are_only_so_many_nodes() -> None:
    a = Member(1)
    for number in range(2, PEERS_MAX + 10):
        a.node.greeted(greeting_of(number), "10.0.0.2", a.host)
    assert len(a.known) == PEERS_MAX


def test_a_meeting_needs_an_address() -> None:
    a = Member(1)
    a.membership.meet("localhost", 7711, BUS_PORT)
    assert a.membership.targets() == []
