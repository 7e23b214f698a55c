"""The two ends of a link and the bus between them, without sockets: on a clock and on transports of the test."""

import socket
from collections.abc import Callable, Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError, ConnectionDone
from twisted.internet.task import Clock as Reactor
from twisted.logger import LogEvent, formatEvent, globalLogPublisher
from twisted.python.failure import Failure

from disqued.core.model.job import Job, JobOptions
from disqued.core.model.messages import DELJOB, EVENT, NEEDJOBS, NODE_FULL, REPLJOB, Greeting, Message, Target
from disqued.core.node import Node
from disqued.net.cluster import bus as bus_module
from disqued.net.cluster import links
from disqued.net.cluster.bus import HANDSHAKES_MAX, INCOMING_MAX, MESSAGE_SLACK, Bus
from disqued.net.cluster.linkqueue import MESSAGE_COST
from disqued.net.cluster.links import HANDSHAKE_S, SLICE_S, IncomingConnection, OutgoingConnection, plain_host
from disqued.net.loop.buffers import STEP
from disqued.net.loop.rounds import READ_SIZE
from disqued.testing.clock import Clock
from disqued.wire.frames import FrameReader, FrameWriter, LinkAcceptor, LinkOpener
from disqued.wire.messages import decode, encode
from tests.core_fixtures import NODE_ID

SECRET = b"sesame"
OTHER = b"c3" * 20
THIRD = b"d4" * 20
JOB_ID = b"DI" + b"0" * 44 + b"SQ"
HELLO: Message = (DELJOB, JOB_ID)
JOB = Job(JOB_ID, b"q", b"x" * 2_000, 1, JobOptions(ttl_ms=60_000, retry_ms=10_000, delay_ms=0, replicate=2))


class Wire:
    """A transport that keeps what is written."""

    def __init__(self, host: str = "10.0.0.2") -> None:
        self.written = bytearray()
        self.unsent = 0
        self.ended = ""  #: "aborted", or "flushed" where what was written leaves first
        self.is_reading = True
        self.producer: Any = None
        self.options: dict[Any, Any] = {}
        self.after_write: Callable[[], None] = lambda: None
        self.socket = SimpleNamespace(setsockopt=lambda level, name, value: self.options.update({(level, name): value}))
        self.host = host

    def setTcpNoDelay(self, enabled: bool) -> None:
        """Note it."""
        self.options["no delay"] = enabled

    def setTcpKeepAlive(self, enabled: bool) -> None:
        """Note it."""
        self.options["keepalive"] = enabled

    def getPeer(self) -> Any:
        """Return the address of the other end."""
        return SimpleNamespace(host=self.host, port=40_000)

    def getHost(self) -> Any:
        """Return the address of this end."""
        return SimpleNamespace(host="10.0.0.1", port=17_711)

    def write(self, data: bytes) -> None:
        """Keep it."""
        assert not self.ended
        self.written += data
        self.after_write()

    def take(self) -> bytes:
        """Take out what was written."""
        data = bytes(self.written)
        self.written.clear()
        return data

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Note it."""
        assert streaming
        self.producer = producer

    def unregisterProducer(self) -> None:
        """Note it."""
        self.producer = None

    def pauseProducing(self) -> None:
        """Stop reading."""
        assert self.is_reading
        self.is_reading = False

    def resumeProducing(self) -> None:
        """Read again."""
        assert not self.is_reading
        self.is_reading = True

    def loseConnection(self) -> None:
        """End once everything is written; a producer would be waited for."""
        assert self.producer is None
        self.ended = self.ended or "flushed"

    def abortConnection(self) -> None:
        """End now."""
        self.ended = "aborted"


@attrs.define(eq=False)
class Dialed:
    """A connection that a link is trying to open."""

    host: str
    port: int
    factory: Any
    timeout: float
    cancelled: bool = False

    def connect(self) -> None:
        """Leave it to the test how this ends."""

    def disconnect(self) -> None:
        """Note it."""
        self.cancelled = True

    def fail(self) -> None:
        """Let nobody answer."""
        self.factory.clientConnectionFailed(self, Failure(ConnectError()))

    def come_about(self) -> "OutgoingConnection":
        """Let somebody answer."""
        connection: OutgoingConnection = self.factory.buildProtocol(None)
        connection.makeConnection(Wire(self.host))
        return connection


@attrs.define(eq=False)
class Budget:
    """Notes what connections say they hold."""

    said: list[tuple[object, int]] = attrs.field(factory=list)

    def hold(self, owner: object, size: int) -> None:
        """Note it."""
        self.said.append((owner, size))

    def sizes(self, owner: object) -> list[int]:
        """Take out what one owner has said."""
        said, self.said = self.said, []
        return [size for each, size in said if each is owner]


class Bench:
    """A bus, and the ends of links that the test holds in its hands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.reactor = Reactor()
        self.clock = Clock(now=1_000)
        self.node = Node(NODE_ID, self.clock, Random(1), maxmemory=1 << 30)
        self.node.membership.own_address.announce("", 7711, 17711)
        self.steps = 0
        self.crashes: list[Message] = []
        self.dialed: list[Dialed] = []
        self.now = 0.0  #: seconds of the clock that slices of time are measured with
        self.lines: list[str] = []
        monkeypatch.setattr(links, "EagerConnector", self._dial)
        monkeypatch.setattr(links, "perf_counter", lambda: self.now)
        self.bus = self.make_bus()
        self.bus.start()

    def make_bus(self, secret: bytes = SECRET) -> Bus:
        """Make another bus for the same node."""
        return Bus(self.node, self.reactor, secret=secret, finish_step=self._finish_step,
                   on_crash=lambda sender, message: self.crashes.append(message))  # fmt: skip

    def _dial(self, host: str, port: int, factory: Any, timeout: float, bind: None, reactor: Any) -> Dialed:
        self.dialed.append(Dialed(host, port, factory, timeout))
        return self.dialed[-1]

    def _finish_step(self) -> None:
        self.steps += 1
        outbox = self.node.outbox
        outbox.messages.clear()
        if outbox.members_changed:
            outbox.members_changed = False
            self.bus.follow_soon()

    def turn(self) -> None:
        """Run what is due now, and nothing that this asks for in its turn."""
        due = [call for call in self.reactor.getDelayedCalls() if call.getTime() <= self.reactor.seconds()]
        work = [(call.func, call.args, call.kw) for call in due]
        for call in due:
            call.cancel()
        for function, args, named in work:
            function(*args, **named)

    def hear_log(self, event: LogEvent) -> None:
        """Keep a line of the log."""
        self.lines.append(formatEvent(event))

    def told(self) -> list[str]:
        """Take out the lines of the log."""
        lines, self.lines = self.lines, []
        return lines

    # Links of this node.

    def meet(self, host: str = "10.0.0.2", port: int = 17_712) -> Dialed:
        """Have the node join another one; return the connection that it tries to open."""
        self.node.begin()
        self.node.membership.meet(host, 7_712, port)
        self._finish_step()
        self.reactor.advance(0)
        return self.dialed[-1]

    def open(self, connection: OutgoingConnection, node_id: bytes = OTHER, flags: int = 0) -> LinkAcceptor:
        """Finish the handshake as the other end."""
        transport: Any = connection.transport
        own = Greeting(node_id, "", 7_712, connection.link.target.bus_port, flags, False)
        acceptor = LinkAcceptor(SECRET, own, b"m" * 32)
        while acceptor.greeting is None:
            connection.dataReceived(acceptor.feed(transport.take()))
        return acceptor

    def linked(self, node_id: bytes = OTHER, host: str = "10.0.0.2") -> tuple[OutgoingConnection, FrameReader]:
        """Open a link to another node; return it and what reads its frames."""
        connection = self.meet(host).come_about()
        reader = self.open(connection, node_id).reader(1 << 30)
        assert connection.node_id == node_id
        return connection, reader

    # Links of others.

    def knock(self, host: str = "10.0.0.2") -> IncomingConnection:
        """Connect to the bus."""
        connection = self.bus.buildProtocol(None)
        assert connection is not None
        connection.makeConnection(Wire(host))
        return connection

    def greet(self, node_id: bytes = OTHER, host: str = "10.0.0.2", bus_port: int = 17_712) -> "Sender":
        """Connect to the bus and prove to be a node."""
        connection = self.knock(host)
        transport: Any = connection.transport
        opener = LinkOpener(SECRET, Greeting(node_id, "", 7_712, bus_port, 0, False), b"n" * 32)
        connection.dataReceived(opener.start())
        connection.dataReceived(opener.feed(transport.take()))
        refusal = bytes(transport.written)
        if not transport.ended:
            opener.feed(transport.take())
        return Sender(connection, opener.writer() if opener.greeting is not None else None, refusal)

    def hears(self, cost: float = 0.0) -> list[Message]:
        """Have what other nodes say noted from now on, on links that are opened later.

        A message takes `cost` seconds.
        """
        heard: list[Message] = []
        self.monkeypatch.setattr("disqued.net.cluster.linkinbox.perf_counter", lambda: self.now)

        def hear(sender: bytes, message: Message) -> None:
            heard.append(message)
            self.now += cost

        self.node.message = hear  # type: ignore[method-assign]
        return heard


@attrs.define
class Sender:
    """Another node's link to this one."""

    connection: IncomingConnection
    writer: FrameWriter | None
    refusal: bytes

    @property
    def wire(self) -> Wire:
        """The transport."""
        transport: Any = self.connection.transport
        return transport

    def say(self, *messages: Message) -> None:
        """Send messages, in one frame."""
        assert self.writer is not None
        self.connection.dataReceived(self.writer.batch([encode(message, 0) for message in messages]))


def wire_of(connection: OutgoingConnection | IncomingConnection) -> Wire:
    """The transport of a connection."""
    transport: Any = connection.transport
    return transport


def read(reader: FrameReader, wire: Wire) -> list[Message]:
    """Take out the messages that were written."""
    reader.feed(wire.take())
    found = []
    while (text := reader.next()) is not None:
        found.append(decode(text))
    return found


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A bus on a clock of the test."""
    bench = Bench(monkeypatch)
    globalLogPublisher.addObserver(bench.hear_log)
    yield bench
    globalLogPublisher.removeObserver(bench.hear_log)


# Dialing.


def test_a_link_is_dialed_at_its_target_and_has_limited_time_for_it(bench: Bench) -> None:
    dialed = bench.meet("10.0.0.2", 17_712)
    assert (dialed.host, dialed.port, dialed.timeout) == ("10.0.0.2", 17_712, HANDSHAKE_S)


def test_pauses_between_attempts_double_up_to_a_second(bench: Bench) -> None:
    bench.meet()
    pauses = []
    for _ in range(6):
        bench.dialed[-1].fail()
        count, began = len(bench.dialed), bench.reactor.seconds()
        (call,) = bench.reactor.getDelayedCalls()
        bench.reactor.advance(call.getTime() - began)
        assert len(bench.dialed) == count + 1
        pauses.append(round(bench.reactor.seconds() - began, 3))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_an_open_link_ends_the_long_pauses_and_its_end_is_logged_again(bench: Bench) -> None:
    bench.meet()
    for _ in range(4):
        bench.dialed[-1].fail()
        bench.reactor.advance(1)
    refused = [line for line in bench.told() if line.startswith("No link to 10.0.0.2 port 17712: ")]
    assert len(refused) == 1, "the same reason is logged once"
    connection = bench.dialed[-1].come_about()
    bench.open(connection)
    bench.told()
    connection.connectionLost(Failure(ConnectionDone()))
    assert len([line for line in bench.told() if line.startswith("No link to")]) == 1
    count = len(bench.dialed)
    bench.reactor.advance(0.1)
    assert len(bench.dialed) == count + 1
    bench.dialed[-1].fail()
    assert bench.told() == refused, "another reason is logged, too"
    bench.reactor.advance(0.2)
    bench.dialed[-1].fail()
    assert bench.told() == []
    bench.reactor.advance(0.4)
    connection = bench.dialed[-1].come_about()
    bench.open(connection)
    bench.told()
    connection.end(refused[0].partition("17712: ")[2])
    assert bench.told() == refused, "it was open since"


def test_a_connection_ends_once_and_is_dialed_again_once(bench: Bench) -> None:
    connection, _ = bench.linked()
    steps = bench.steps
    connection.end("first")
    connection.end("second")
    connection.connectionLost(Failure(ConnectionDone()))
    assert wire_of(connection).ended == "aborted"
    assert bench.steps == steps + 1
    assert len(bench.told()) == 2, "the link was opened, and it ended"
    count = len(bench.dialed)
    bench.reactor.advance(0.1)
    assert len(bench.dialed) == count + 1
    bench.reactor.advance(10)
    assert len(bench.dialed) == count + 1


def test_a_link_that_is_not_wanted_any_more_is_neither_kept_nor_dialed(bench: Bench) -> None:
    waiting, dialing = bench.meet("10.0.0.3"), bench.meet("10.0.0.4")
    open_one, _ = bench.linked()
    waiting.fail()
    bench.told()
    links_there = [dialed.factory for dialed in (waiting, dialing)] + [open_one.link]
    for link in links_there:
        link.drop()
    assert wire_of(open_one).ended == "aborted"
    assert (waiting.cancelled, dialing.cancelled) == (True, True)
    assert dialing.factory.buildProtocol(None) is None
    dialing.fail()
    count = len(bench.dialed)
    bench.reactor.advance(10)
    assert len(bench.dialed) == count
    assert [line for line in bench.told() if line.startswith("No link")] == []
    assert bench.reactor.getDelayedCalls() == []


def test_a_link_that_is_dropped_while_it_is_dialed_again_gives_that_up(bench: Bench) -> None:
    connection, _ = bench.linked()
    link = connection.link
    connection.connectionLost(Failure(ConnectionDone()))
    bench.reactor.advance(0.1)
    again = bench.dialed[-1]
    assert again.factory is link
    link.drop()
    assert again.cancelled


def test_a_link_whose_tls_has_not_come_about_is_dialed_again(bench: Bench) -> None:
    bench.meet().factory.not_secured(None, "the certificate is of another host")
    assert bench.bus.counters.refused_by_others == 1
    assert bench.told()[-1].endswith(": no TLS: the certificate is of another host")
    count = len(bench.dialed)
    bench.reactor.advance(0.1)
    assert len(bench.dialed) == count + 1


def test_the_log_hears_nothing_of_factories(bench: Bench) -> None:
    link = bench.meet().factory
    bench.told()
    for factory in (bench.bus, link):
        factory.doStart()
        factory.doStop()
    assert bench.told() == []


def test_a_handshake_takes_limited_time_at_both_ends(bench: Bench) -> None:
    outgoing, incoming = bench.meet().come_about(), bench.knock()
    bench.reactor.advance(HANDSHAKE_S - 0.01)
    assert not outgoing.closed
    assert not incoming.closed
    bench.reactor.advance(0.01)
    for connection in (outgoing, incoming):
        assert wire_of(connection).ended == "flushed"
        assert b"the handshake took longer than 5 s" in wire_of(connection).written
    assert bench.bus.facts()["cluster_links_in_handshake"] == 0


def test_a_link_that_is_open_has_all_the_time_it_wants(bench: Bench) -> None:
    outgoing, _ = bench.linked()
    incoming = bench.greet().connection
    bench.reactor.advance(0)
    assert bench.reactor.getDelayedCalls() == []
    assert not outgoing.closed
    assert not incoming.closed
    assert (bench.bus.counters.handshakes_refused, bench.bus.counters.refused_by_others) == (0, 0)


def test_both_ends_send_at_once_and_notice_a_machine_that_is_gone(bench: Bench) -> None:
    for connection in (bench.meet().come_about(), bench.knock()):
        assert wire_of(connection).options == {
            "no delay": True, "keepalive": True, (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 15,
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 5, (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 3,
        }  # fmt: skip


def test_a_refusal_by_the_other_end_is_counted_as_theirs_and_not_answered(bench: Bench) -> None:
    connection = bench.meet().come_about()
    wire_of(connection).take()
    stranger = LinkAcceptor(SECRET, Greeting(OTHER, "", 1, 2, 0, False), b"m" * 32)
    connection.dataReceived(stranger.refuse("no room"))
    assert (wire_of(connection).ended, wire_of(connection).written) == ("aborted", b"")
    assert bench.told()[-1] == "No link to 10.0.0.2 port 17712: refused there: no room"
    incoming = bench.knock()
    incoming.dataReceived(LinkOpener(SECRET, Greeting(OTHER, "", 1, 2, 0, False), b"n" * 32).refuse("not you"))
    assert (wire_of(incoming).ended, wire_of(incoming).written) == ("aborted", b"")
    assert bench.told()[-1] == "A link from 10.0.0.2 port 40000 is not taken: refused there: not you"
    assert (bench.bus.counters.handshakes_refused, bench.bus.counters.refused_by_others) == (0, 2)


def test_a_refusal_is_counted_as_ours_and_sent(bench: Bench) -> None:
    connection, incoming = bench.meet().come_about(), bench.knock()
    for each in (connection, incoming):
        wire_of(each).take()
        each.dataReceived(b"GET / HTTP/1.1\r\n\r\n")
        assert wire_of(each).ended == "flushed"
        assert b"this is not a node of disqued" in wire_of(each).written
        each.dataReceived(b"more")
        each.refuse("again")
    assert (bench.bus.counters.handshakes_refused, bench.bus.counters.refused_by_others) == (2, 0)


def test_a_link_to_this_node_itself_is_given_up(bench: Bench) -> None:
    connection = bench.meet().come_about()
    steps = bench.steps
    bench.open(connection, NODE_ID)
    assert connection.closed
    assert f"{NODE_ID.decode()} is there, and this link to it is not wanted" in bench.told()[-1]
    assert bench.bus.facts()["cluster_links_out"] == 0
    assert bench.steps == steps + 1
    bench.reactor.advance(0)
    assert bench.bus._links == {}


def test_a_second_link_to_a_node_is_given_up_and_the_first_stays(bench: Bench) -> None:
    first, reader = bench.linked()
    second = bench.meet("10.0.0.9").come_about()
    bench.open(second)
    assert second.closed
    assert not first.closed
    second.connectionLost(Failure(ConnectionDone()))
    assert OTHER in bench.node.state.peers.linked
    bench.bus.send([(OTHER, HELLO)])
    assert read(reader, wire_of(first)) == [HELLO]


def test_a_link_to_a_node_is_dialed_where_the_node_is_known_to_be(bench: Bench) -> None:
    connection, _ = bench.linked()
    assert connection.link.target.id == OTHER
    bench.reactor.advance(0)
    assert connection.link.target.id == OTHER
    connection.connectionLost(Failure(ConnectionDone()))
    bench.reactor.advance(0.1)
    again = bench.dialed[-1].come_about()
    assert again.link is connection.link
    # It has not answered the first PING yet, so that it may not know this node.
    assert again.link.target.meets
    bench.node.state.peers.by_id[OTHER].pong_at = 1
    bench.bus.follow_soon()
    bench.reactor.advance(0)
    assert not again.link.target.meets
    assert not again.closed
    assert len(bench.bus._links) == 1


def test_of_two_links_that_try_to_reach_a_node_the_one_that_opens_stays(bench: Bench) -> None:
    connection, _ = bench.linked()
    bench.reactor.advance(0)
    connection.connectionLost(Failure(ConnectionDone()))
    bench.reactor.advance(0.1)
    known = bench.dialed[-1]
    meeting = bench.meet()
    assert meeting is not known
    opened = meeting.come_about()
    bench.open(opened)
    bench.reactor.advance(0)
    assert not opened.closed
    assert known.cancelled
    count = len(bench.dialed)
    known.fail()
    bench.reactor.advance(10)
    assert len(bench.dialed) == count
    assert list(bench.bus._links.values()) == [opened.link]


def test_a_link_that_moved_is_closed_and_opened_at_the_new_place(bench: Bench) -> None:
    connection, _ = bench.linked()
    bench.reactor.advance(0)
    bench.node.state.peers.by_id[OTHER].host = "10.0.0.7"
    bench.bus.follow_soon()
    bench.bus.follow_soon()
    bench.reactor.advance(0)
    assert connection.closed
    assert bench.dialed[-1].host == "10.0.0.7"
    assert OTHER not in bench.node.state.peers.linked
    assert bench.bus.facts()["cluster_links_out"] == 0


def test_a_stale_link_is_made_again_once(bench: Bench) -> None:
    connection, _ = bench.linked()
    bench.reactor.advance(0)
    peer = bench.node.state.peers.by_id[OTHER]
    peer.stale = True
    bench.told()
    bench.bus.follow_soon()
    bench.reactor.advance(0)
    assert connection.closed
    assert bench.told() == ["No link to 10.0.0.2 port 17712: no answer for too long"]
    bench.reactor.advance(0.1)
    again = bench.dialed[-1].come_about()
    bench.open(again)
    for _ in range(3):
        bench.bus.follow_soon()
        bench.reactor.advance(0)
    assert not again.closed
    assert not peer.stale


# Writing.


def test_a_stalled_link_writes_on_when_its_transport_has_room(bench: Bench) -> None:
    connection, reader = bench.linked()
    wire = wire_of(connection)
    assert wire.producer is connection
    connection.pauseProducing()
    bench.bus.send([(OTHER, HELLO)])
    assert wire.written == b""
    assert bench.bus.facts()["cluster_buffered_bytes"] == MESSAGE_COST
    wire.unsent = 7
    assert bench.bus.facts()["cluster_buffered_bytes"] == MESSAGE_COST + 7
    wire.unsent = 0
    connection.resumeProducing()
    written = len(wire.written)
    assert read(reader, wire) == [HELLO]
    assert (bench.bus.counters.messages_sent, bench.bus.counters.bytes_out) == (1, written)
    assert bench.bus.facts()["cluster_buffered_bytes"] == 0


def test_a_link_stops_in_the_middle_when_its_transport_has_enough(bench: Bench) -> None:
    connection, reader = bench.linked()
    wire = wire_of(connection)
    wire.after_write = connection.pauseProducing
    bench.bus.send([(OTHER, HELLO)] * 2_500)
    assert len(read(reader, wire)) == 1_000
    connection.resumeProducing()
    assert len(read(reader, wire)) == 1_000
    assert bench.bus.counters.messages_sent == 2_000
    connection.resumeProducing()
    assert len(read(reader, wire)) == 500


def test_a_link_with_much_to_write_lets_others_have_their_turn(bench: Bench) -> None:
    connection, reader = bench.linked()
    wire = wire_of(connection)

    def take_long() -> None:
        bench.now += SLICE_S * 0.6

    wire.after_write = take_long
    bench.bus.send([(OTHER, HELLO)] * 5_000)
    assert len(read(reader, wire)) == 2_000
    bench.bus.send([(OTHER, (NEEDJOBS, b"q", 1))])
    assert wire.written == b"", "it has had its turn"
    bench.turn()
    assert len(read(reader, wire)) == 2_000
    bench.turn()
    assert read(reader, wire) == [HELLO] * 1_000 + [(NEEDJOBS, b"q", 1)]
    bench.turn()
    assert bench.reactor.getDelayedCalls() == []
    bench.bus.send([(OTHER, HELLO)])
    assert read(reader, wire) == [HELLO]


def test_a_link_that_ends_while_it_has_much_to_write_writes_no_more(bench: Bench) -> None:
    connection, _ = bench.linked()
    wire = wire_of(connection)

    def take_long() -> None:
        bench.now += 1

    wire.after_write = take_long
    bench.bus.send([(OTHER, HELLO)] * 5_000)
    wire.take()
    connection.end("enough")
    connection.flush()
    assert len(bench.reactor.getDelayedCalls()) == 2, "one dials again, and one follows what the node knows"
    bench.reactor.advance(0)
    connection.resumeProducing()
    assert wire.written == b""


def test_a_message_is_written_down_as_of_the_moment_in_which_it_leaves(bench: Bench) -> None:
    first, reader = bench.linked()
    second, other_reader = bench.linked(THIRD, "10.0.0.3")
    copy = Job(JOB_ID, b"q", b"x" * 2_000, 1, JobOptions(ttl_ms=60_000, retry_ms=10_000, delay_ms=0, replicate=2))
    second.pauseProducing()
    bench.bus.send([(OTHER, (message := (REPLJOB, copy, True))), (THIRD, message)])
    copy.body = b"y" * 2_000
    second.resumeProducing()
    assert read(reader, wire_of(first))[0][1].body == b"x" * 2_000
    assert read(other_reader, wire_of(second))[0][1].body == b"y" * 2_000


@pytest.mark.parametrize("leaves", ["send", "room again", "another turn"])
def test_no_text_outlives_the_turn_that_wrote_it(bench: Bench, leaves: str) -> None:
    first, _ = bench.linked()
    second, _ = bench.linked(THIRD, "10.0.0.3")
    for connection in (first, second):
        connection.pauseProducing()

    def kept() -> list[Any]:
        return list(bench.bus.texts._kept)

    if leaves == "another turn":
        wire_of(first).after_write = lambda: setattr(bench, "now", bench.now + 1)
    if leaves == "send":
        first._stalled = False
    messages = [(DELJOB, b"%048d" % number) for number in range(1_500)]
    bench.bus.send([(name, message) for message in messages for name in (OTHER, THIRD)])
    assert kept() == []
    if leaves != "send":
        first.resumeProducing()
        assert kept() == []
        bench.reactor.advance(0)
        assert kept() == []
    assert len(wire_of(first).written) > 1_500 * 40
    assert len(second.queue or ()) == 1_500


def test_what_waits_for_one_peer_is_limited_on_open_links_and_on_those_to_come(bench: Bench) -> None:
    first, _ = bench.linked()
    bench.bus.set_buffer_limit(3 * MESSAGE_COST)
    second, _ = bench.linked(THIRD, "10.0.0.3")
    for connection, node_id in ((first, OTHER), (second, THIRD)):
        connection.pauseProducing()
        bench.bus.send([(node_id, HELLO)] * 5)
        assert len(connection.queue or ()) == 3
    assert bench.bus.counters.dropped_buffer_full == 4
    assert bench.bus.counters.dropped_without_link == 0


def test_an_event_for_this_node_is_handed_to_its_clients_and_all_else_without_a_link_is_dropped(bench: Bench) -> None:
    events: list[tuple[object, ...]] = []
    bench.bus._on_event = lambda *event: events.append(event)
    bench.bus.send([(NODE_ID, (EVENT, b"q", b"kind", b"text", None)), (NODE_ID, HELLO),
                    (OTHER, (EVENT, b"q", b"kind", b"text", None))])  # fmt: skip
    assert events == [(b"q", b"kind", b"text", None)]
    assert bench.bus.counters.dropped_without_link == 2


def test_a_message_that_cannot_be_written_is_left_out_and_not_counted(bench: Bench) -> None:
    connection, reader = bench.linked()
    bad: Message = (NEEDJOBS, None, 1)
    bench.bus.send([(OTHER, bad), (OTHER, HELLO), (OTHER, bad), (OTHER, HELLO)])
    assert read(reader, wire_of(connection)) == [HELLO, HELLO]
    assert len(bench.crashes) == 2
    assert bench.bus.counters.messages_sent == 2


# What links hold.


def test_a_link_reports_what_it_holds_in_steps(bench: Bench) -> None:
    budget: Any = Budget()
    bench.bus.buffers = budget
    connection, _ = bench.linked()
    for size, said in [
        (STEP - 1, []), (STEP, [STEP]), (2 * STEP - 1, []), (2 * STEP, [2 * STEP]), (STEP + 1, []), (STEP, [STEP]),
        (STEP - 1, [0]), (STEP - 1, []), (9 * STEP, [9 * STEP]),
    ]:  # fmt: skip
        connection.report(size)
        assert budget.sizes(connection) == said, size
    connection.end("enough")
    assert budget.sizes(connection) == [0]
    connection.report(9 * STEP)
    assert budget.sizes(connection) == []


def test_what_waits_on_a_stalled_link_is_reported_and_its_end_too(bench: Bench) -> None:
    budget: Any = Budget()
    bench.bus.buffers = budget
    connection, _ = bench.linked()
    connection.pauseProducing()
    large: Message = (REPLJOB, JOB, True)
    bench.bus.send([(OTHER, large)] * 4)
    assert budget.sizes(connection) == [4 * (2_000 + MESSAGE_COST)]
    wire_of(connection).unsent = 5_000
    connection.resumeProducing()
    assert budget.sizes(connection) == [], "the transport holds nearly as much now"
    connection.pauseProducing()
    wire_of(connection).unsent = 0
    connection.resumeProducing()
    assert budget.sizes(connection) == [0]


def test_a_link_that_holds_most_is_cut_off(bench: Bench) -> None:
    budget: Any = Budget()
    bench.bus.buffers = budget
    connection, _ = bench.linked()
    connection.report(9 * STEP)
    bench.told()
    connection.end_for_buffers(9 * STEP)
    assert wire_of(connection).ended == "aborted"
    assert bench.told() == [
        f"The link with 10.0.0.2 port 40000 holds {9 * STEP} bytes, the most of all connections: closed"
    ]
    budget.sizes(connection)
    connection.end("gone")
    assert budget.sizes(connection) == [], "the budget has forgotten it already"


def test_what_has_come_of_a_message_is_reported(bench: Bench) -> None:
    budget: Any = Budget()
    bench.bus.buffers = budget
    sender = bench.greet()
    assert sender.writer is not None
    frame = sender.writer.piece(100_000, b"x" * 50_000) + sender.writer.piece(100_000, b"x" * 50_000)
    sender.connection.dataReceived(frame[: READ_SIZE - 1])
    assert budget.sizes(sender.connection) == [], "small reads are not looked at"
    sender.connection.dataReceived(frame[READ_SIZE - 1 : 2 * READ_SIZE - 1])
    assert budget.sizes(sender.connection) == [2 * READ_SIZE - 1]
    sender.connection.dataReceived(frame[2 * READ_SIZE - 1 : 2 * READ_SIZE + STEP])
    assert budget.sizes(sender.connection) == [2 * READ_SIZE + STEP], "what holds much is looked at each time"
    sender.connection.end()
    assert budget.sizes(sender.connection) == [0]


# Links of others.


def test_a_node_takes_links_from_its_start_to_its_end(bench: Bench) -> None:
    bus = bench.make_bus()
    assert bus.buildProtocol(None) is None
    assert not bus.hearing
    bus.resume()
    assert not bus.hearing
    bus.start()
    assert bus.hearing
    assert bus.buildProtocol(None) is not None
    bus.stop()
    assert not bus.hearing
    assert bus.buildProtocol(None) is None
    bus.follow_soon()
    assert bus._follow_call is None


def test_a_bus_dials_at_its_start_whom_the_node_knows(bench: Bench) -> None:
    bench.bus.stop()
    bench.node.begin()
    bench.node.membership.meet("10.0.0.2", 7_712, 17_712)
    bus = bench.make_bus()
    bench.reactor.advance(1)
    assert bench.dialed == []
    bus.start()
    bench.reactor.advance(0)
    assert [dialed.host for dialed in bench.dialed] == ["10.0.0.2"]


def test_one_more_unauthenticated_connection_than_allowed_pushes_out_the_first(bench: Bench) -> None:
    connections = [bench.knock() for _ in range(HANDSHAKES_MAX)]
    assert not any(connection.closed for connection in connections)
    assert bench.bus.facts()["cluster_links_in_handshake"] == HANDSHAKES_MAX
    bench.knock()
    assert [connection.closed for connection in connections] == [True] + [False] * (HANDSHAKES_MAX - 1)
    assert b"too many others want to open a link" in wire_of(connections[0]).written
    facts = bench.bus.facts()
    assert (facts["cluster_links_in_handshake"], facts["cluster_handshakes_pushed_out"]) == (HANDSHAKES_MAX, 1)


def test_nodes_beyond_the_limit_are_refused_and_those_that_are_known_may_come_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_module, "INCOMING_MAX", 3)
    nodes = [b"%040x" % number for number in range(4)]
    senders = [bench.greet(node_id) for node_id in nodes]
    assert [sender.connection.closed for sender in senders] == [False, False, False, True]
    assert b"there are 3 links already" in senders[3].refusal
    assert bench.bus.counters.handshakes_refused == 1
    again = bench.greet(nodes[0])
    assert senders[0].connection.closed
    assert not again.connection.closed
    again.connection.end()
    assert not bench.greet(nodes[3]).connection.closed
    assert INCOMING_MAX == 1_000


def test_a_node_that_comes_again_has_its_new_link_alone(bench: Bench) -> None:
    first = bench.greet()
    second = bench.greet()
    assert first.wire.ended == "aborted"
    assert bench.bus.facts()["cluster_links_in"] == 1
    first.connection.connectionLost(Failure(ConnectionDone()))
    assert bench.bus.facts()["cluster_links_in"] == 1, "the end of the old link is not that of the new one"
    second.connection.connectionLost(Failure(ConnectionDone()))
    facts = bench.bus.facts()
    assert (facts["cluster_links_in"], facts["cluster_links_in_handshake"]) == (0, 0)


@pytest.mark.parametrize(("host", "port"), [("10.0.0.9", 17_712), ("10.0.0.2", 17_713)])
def test_a_node_elsewhere_with_the_same_id_is_refused_while_the_first_one_speaks(
    bench: Bench, host: str, port: int
) -> None:
    first = bench.greet()
    timeout_s = bench.node.state.peers.timeout_ms / 1_000
    bench.reactor.advance(timeout_s)
    first.connection.dataReceived(b"")
    assert first.connection.heard_at == bench.reactor.seconds()
    bench.reactor.advance(timeout_s - 0.25)
    twin = bench.greet(host=host, bus_port=port)
    assert twin.wire.ended == "flushed"
    assert b"the node at 10.0.0.2:17712 has the id " + OTHER in twin.refusal
    assert bench.bus.counters.handshakes_refused == 1
    assert not first.connection.closed
    bench.reactor.advance(0.25)
    twin = bench.greet(host=host, bus_port=port)
    assert not twin.connection.closed
    assert first.connection.closed


def test_the_log_names_the_reason_of_a_refusal_once_for_each_machine(bench: Bench) -> None:
    for host in ("10.0.0.5", "10.0.0.5", "::ffff:10.0.0.5", "10.0.0.6"):
        bench.knock(host).dataReceived(b"GET / HTTP/1.1\r\n\r\n")
    told = [line for line in bench.told() if "is not taken: this is not a node" in line]
    assert [line.split()[3] for line in told] == ["10.0.0.5", "10.0.0.6"]


@pytest.mark.reference
def test_messages_that_take_long_wait_for_the_next_turn_and_nothing_is_read_meanwhile(bench: Bench) -> None:
    heard = bench.hears(cost=SLICE_S * 0.75)
    sender = bench.greet()
    bench.turn()
    steps = bench.steps
    sender.say(*[(NEEDJOBS, b"q", number) for number in range(5)])
    assert len(heard) == 2, "time is up after the second message"
    assert (sender.wire.is_reading, bench.bus.busy) == (False, 1)
    assert (bench.steps, bench.bus.counters.messages_received) == (steps + 1, 2)
    # What the transport had read before it was paused waits.
    sender.say((NEEDJOBS, b"q", 5))
    assert len(heard) == 2
    bench.turn()
    assert len(heard) == 4
    bench.turn()
    bench.turn()
    assert [message[2] for message in heard] == list(range(6))
    assert (sender.wire.is_reading, bench.bus.busy) == (True, 0)
    assert bench.bus.counters.messages_received == 6
    assert bench.reactor.getDelayedCalls() == []


@pytest.mark.reference
def test_busy_links_share_a_slice_of_time(bench: Bench) -> None:
    heard = bench.hears(cost=SLICE_S * 0.3)
    senders = [bench.greet(node_id, f"10.0.0.{number}") for number, node_id in enumerate((OTHER, THIRD), 2)]
    bench.turn()
    counts = []
    for sender in senders:
        before = len(heard)
        sender.say(*[HELLO] * 50)
        counts.append(len(heard) - before)
    assert counts == [4, 2]
    assert bench.bus.busy == 2
    before = len(heard)
    bench.turn()
    assert len(heard) - before == 4
    senders[0].connection.connectionLost(Failure(ConnectionDone()))
    assert bench.bus.busy == 1
    before = len(heard)
    bench.turn()
    assert len(heard) - before == 4, "a link that has ended has nothing to say"


@pytest.mark.reference
def test_a_node_that_hears_nothing_goes_on_where_it_was(bench: Bench) -> None:
    heard = bench.hears()
    sender, silent = bench.greet(), bench.greet(THIRD, "10.0.0.3")
    bench.bus.pause()
    sender.say(HELLO)
    sender.say((NEEDJOBS, b"q", 1))
    assert (heard, sender.wire.is_reading) == ([], False)
    bench.reactor.advance(1)
    assert heard == []
    bench.bus.resume()
    assert heard == [HELLO, (NEEDJOBS, b"q", 1)]
    assert (sender.wire.is_reading, silent.wire.is_reading, bench.bus.busy) == (True, True, 0)


@pytest.mark.reference
def test_a_link_that_brings_nonsense_is_closed_and_the_step_is_finished(bench: Bench) -> None:
    heard = bench.hears()
    sender = bench.greet()
    assert sender.writer is not None
    steps = bench.steps
    bench.told()
    sender.connection.dataReceived(sender.writer.batch([encode(HELLO, 0), b"\xff", encode(HELLO, 0)]))
    assert heard == [HELLO]
    assert sender.wire.ended == "aborted"
    assert (bench.steps, bench.bus.counters.messages_received, bench.bus.busy) == (steps + 1, 1, 0)
    assert bench.told()[0].startswith("The link from 10.0.0.2 port 40000 is closed, it brought ")
    sender.connection.dataReceived(b"more")
    assert bench.bus.facts()["cluster_links_in"] == 0


def test_bytes_of_links_are_counted(bench: Bench) -> None:
    sender = bench.greet()
    before = bench.bus.counters.bytes_in
    assert before > 100
    sender.connection.dataReceived(b"\0" * 7)
    assert bench.bus.counters.bytes_in == before + 7
    sender.connection.end()
    sender.connection.dataReceived(b"\0" * 7)
    assert bench.bus.counters.bytes_in == before + 7


def test_what_a_node_hears_of_links_and_on_them_is_of_the_moment_in_which_it_comes(bench: Bench) -> None:
    def is_now() -> bool:
        return bench.node.state.now == bench.clock.now()

    bench.clock.advance(100)
    sender = bench.greet()
    assert is_now()
    bench.clock.advance(100)
    assert not is_now()
    sender.say(HELLO)
    assert is_now()
    connection = bench.meet("10.0.0.3").come_about()
    bench.clock.advance(100)
    bench.open(connection, THIRD)
    assert is_now()
    bench.clock.advance(100)
    connection.end("enough")
    assert is_now()


def test_a_step_of_the_node_follows_each_link_that_opens_or_ends(bench: Bench) -> None:
    steps = bench.steps
    connection, _ = bench.linked()
    bench.steps, opened = 0, bench.steps - steps
    assert opened >= 2  # the meeting is a step, too
    bench.knock()
    assert bench.steps == 0
    sender = bench.greet(THIRD, "10.0.0.3")
    assert bench.steps == 2, "one for the link, and one that hears what came with it"
    sender.connection.end()
    assert bench.steps == 2
    connection.end("enough")
    assert bench.steps == 3
    assert OTHER not in bench.node.state.peers.linked


@pytest.mark.reference
def test_a_bug_of_the_node_is_reported_and_ends_no_more_than_the_link(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*given: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(bench.node, "link_opened", stumble)
    monkeypatch.setattr(bench.node, "greeted", stumble)
    connection = bench.meet().come_about()
    bench.open(connection)
    assert connection.closed
    assert not bench.greet(THIRD).connection.closed
    assert len(bench.crashes) == 2


# The bus as a whole.


def test_a_bus_that_stops_flushes_its_links_and_tells_the_node_nothing(bench: Bench) -> None:
    connection, _ = bench.linked()
    sender, stranger = bench.greet(THIRD, "10.0.0.3"), bench.knock()
    trying = bench.meet("10.0.0.8")
    bench.bus.follow_soon()
    steps = bench.steps
    closed: list[object] = []
    bench.bus.stop().addCallback(closed.append)
    assert closed == [[]], "no port is open"
    assert wire_of(connection).ended == "flushed"
    assert (sender.wire.ended, wire_of(stranger).ended) == ("aborted", "aborted")
    assert trying.cancelled
    assert bench.steps == steps
    assert OTHER in bench.node.state.peers.linked
    assert bench.reactor.getDelayedCalls() == []
    facts = bench.bus.facts()
    assert [facts[f"cluster_links_{which}"] for which in ("out", "in", "in_handshake")] == [0, 0, 0]


def test_a_stop_waits_until_every_port_is_closed(bench: Bench) -> None:
    waits: list[Deferred[None]] = [Deferred(), Deferred()]
    opened = []

    def adopt(factory: object, address: str, port: int, kind: object) -> Any:
        opened.append((factory, address, port))
        number = len(opened)
        return SimpleNamespace(
            socket=SimpleNamespace(getsockname=lambda: (address, 17_000 + number)),
            stopListening=lambda: waits[number - 1],
        )

    bench.bus.listen(["10.0.0.1", "::1"], 0, adopt=adopt)
    assert opened == [(bench.bus, "10.0.0.1", 0), (bench.bus, "::1", 17_001)]
    facts = bench.bus.facts()
    assert (facts["cluster_bus_port"], facts["cluster_enabled"]) == (17_002, 1)
    closed: list[object] = []
    bench.bus.stop().addCallback(closed.append)
    waits[0].callback(None)
    assert closed == []
    waits[1].callback(None)
    assert len(closed) == 1
    bench.bus.listen([], 17_000)
    facts = bench.bus.facts()
    assert (facts["cluster_bus_port"], facts["cluster_enabled"]) == (0, 0)


def test_a_new_id_of_this_node_ends_every_link_in_the_name_of_the_old_one(bench: Bench) -> None:
    connection, _ = bench.linked()
    bench.reactor.advance(0)
    sender, stranger = bench.greet(THIRD, "10.0.0.3"), bench.knock()
    bench.node.state.node_id = b"9" * 40
    bench.bus.follow_soon()
    bench.reactor.advance(0)
    assert (wire_of(connection).ended, sender.wire.ended) == ("aborted", "aborted")
    assert not stranger.closed
    again = bench.dialed[-1].come_about()
    bench.bus.follow_soon()
    bench.reactor.advance(0)
    assert not again.closed, "once is enough"
    bench.bus.send([(b"9" * 40, HELLO)])
    assert bench.bus.counters.dropped_without_link == 1


def test_without_a_secret_or_certificates_only_this_machine_is_dialed_and_the_log_tells_once(bench: Bench) -> None:
    bare = bench.make_bus(secret=b"")
    near = [Target(host, 1, b"", meets=True) for host in ("127.0.0.1", "127.0.0.9", "::1")]
    far = Target("192.0.2.1", 1, b"", meets=True)
    assert all(map(bare._may_dial, near))
    assert not bare._may_dial(far)
    assert bench.told() == ["192.0.2.1 is not this machine and is not dialed: set cluster-secret, or tls-cluster"]
    assert not bare._may_dial(far)
    assert bench.told() == []
    assert bench.bus._may_dial(far)
    certificates: Any = object()
    bare.secure(certificates, lambda factory: ("tls", factory))
    assert bare._may_dial(far)
    heard: list[object] = []

    def adopt(factory: object, *where: object) -> Any:
        heard.append(factory)
        return SimpleNamespace(socket=SimpleNamespace(getsockname=lambda: ("10.0.0.1", 1)))

    bare.listen(["10.0.0.1"], 1, adopt=adopt)
    assert heard == [("tls", bare)]


def test_a_job_of_the_largest_size_fits_in_a_message(bench: Bench) -> None:
    assert bench.bus.largest_message == MESSAGE_SLACK
    bench.bus.set_largest_body(1_000_000)
    sender = bench.greet()
    assert sender.writer is not None
    largest = 2_000_000 + MESSAGE_SLACK
    sender.connection.dataReceived(sender.writer.piece(largest, b"x"))
    assert not sender.connection.closed
    other = bench.greet(THIRD, "10.0.0.3")
    assert other.writer is not None
    other.connection.dataReceived(other.writer.piece(largest + 1, b"x"))
    assert other.connection.closed
    assert bench.bus.counters.oversized == 1


def test_the_facts_of_the_bus_are_its_counters(bench: Bench) -> None:
    names = {
        "messages_sent": "cluster_stats_messages_sent", "messages_received": "cluster_stats_messages_received",
        "dropped_without_link": "cluster_dropped_without_link", "dropped_buffer_full": "cluster_dropped_buffer_full",
        "bytes_in": "cluster_net_input_bytes", "bytes_out": "cluster_net_output_bytes",
        "handshakes_refused": "cluster_handshakes_refused",
        "refused_by_others": "cluster_handshakes_refused_by_others",
        "handshakes_pushed_out": "cluster_handshakes_pushed_out", "forged": "cluster_frames_forged",
        "replayed": "cluster_frames_replayed", "oversized": "cluster_frames_oversized",
        "malformed": "cluster_frames_malformed", "bad_messages": "cluster_bad_messages",
    }  # fmt: skip
    assert names.keys() == {field.name for field in attrs.fields(bus_module.BusCounters)}
    assert all(bench.bus.facts()[shown] == 0 for shown in names.values())
    for number, name in enumerate(names, 1):
        setattr(bench.bus.counters, name, number)
    facts = bench.bus.facts()
    assert [facts[shown] for shown in names.values()] == list(range(1, len(names) + 1))


def test_the_greeting_of_a_link_asks_to_be_taken_in_only_where_the_node_is_to_be_met(bench: Bench) -> None:
    connection = bench.meet().come_about()
    acceptor = bench.open(connection, flags=NODE_FULL)
    assert acceptor.greeting is not None
    assert (acceptor.greeting.id, acceptor.greeting.meets) == (NODE_ID, True)
    opener = LinkOpener(SECRET, Greeting(THIRD, "", 1, 2, 0, False), b"n" * 32)
    incoming = bench.knock()
    incoming.dataReceived(opener.start())
    incoming.dataReceived(opener.feed(wire_of(incoming).take()))
    opener.feed(wire_of(incoming).take())
    assert opener.greeting is not None
    assert (opener.greeting.id, opener.greeting.meets) == (NODE_ID, False)


@pytest.mark.parametrize(
    ("host", "plain"),
    [("10.0.0.2", "10.0.0.2"), ("::ffff:10.0.0.2", "10.0.0.2"), ("2001:db8::1", "2001:db8::1"), ("/a/path", "/a/path")],
)
def test_an_address_is_written_in_one_way(host: str, plain: str) -> None:
    assert plain_host(host) == plain
