"""The two ends of a link between nodes, on Twisted.

    OutgoingLink --- one per target, for as long as it is one; dials again, 100 ms to 1 s after each failure
        +-- OutgoingConnection     handshake, then LinkQueue --> frames, as fast as the transport takes them
    IncomingConnection             handshake, then frames --> LinkInbox --> the node, in slices of 10 ms at most

A connection belongs to the bus only once its handshake is done; until then it has `HANDSHAKE_S`.
Of a link that is open the dialing end only writes and the other one only reads.

Times are seconds, as the reactor counts them.
"""

import ipaddress
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable
from secrets import token_bytes
from time import perf_counter
from typing import Any, Protocol

import attrs
from twisted.internet import protocol
from twisted.internet.interfaces import IDelayedCall, IPushProducer
from twisted.internet.protocol import ClientFactory, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from disqued.commands.host import Budget
from disqued.core.model.messages import Greeting, Target
from disqued.core.node import Node
from disqued.net.cluster.linkinbox import LinkInbox
from disqued.net.cluster.linkqueue import LinkQueue, SharedTexts
from disqued.net.loop.buffers import STEP
from disqued.net.loop.lograte import LogRate
from disqued.net.loop.rounds import READ_SIZE
from disqued.net.loop.transport import EagerConnector
from disqued.wire.fields import BadMessage
from disqued.wire.frames import NONCE_BYTES, BadFrame, Dialect, Dialed, Dialing, LinkRefused, Reader, RefusedByPeer

HANDSHAKE_S = 5.0  #: limit for connecting, and again for the handshake
REDIAL_MIN_S = 0.1
REDIAL_MAX_S = 1.0
SLICE_S = 0.01  #: work on messages, or on frames, before others have their turn
#: Idle time after which the system asks whether the other end is there, how often and how many times, in seconds.
KEEPALIVE = ((socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3))

log = Logger()


@attrs.define
class BusCounters:
    """What the bus has done since the start."""

    messages_sent: int = 0
    messages_received: int = 0
    dropped_without_link: int = 0  #: messages
    dropped_buffer_full: int = 0  #: messages
    bytes_in: int = 0
    bytes_out: int = 0
    handshakes_refused: int = 0  #: by this node
    refused_by_others: int = 0
    handshakes_pushed_out: int = 0
    forged: int = 0  #: frames, as the three that follow
    replayed: int = 0
    oversized: int = 0
    malformed: int = 0
    bad_messages: int = 0


class Hub(Protocol):
    """What both kinds of links need of the bus that they belong to."""

    node: Node
    reactor: Any
    secret: bytes
    dialect: Dialect
    counters: BusCounters
    buffers: Budget | None  #: the budget of all connections outside maxmemory
    texts: SharedTexts  #: that several links are about to write
    news: LogRate  #: log lines about unauthenticated connections
    buffer_limit: int  #: bytes that may wait for one peer
    largest_message: int  #: bytes
    hearing: bool  #: the node takes messages
    busy: int  #: incoming links that have more to say than one slice takes

    @property
    def finish_step(self) -> Callable[[], None]:
        """What ends a step."""

    def greeting(self, meets: bool) -> Greeting:
        """Return what this node says of itself when a link opens."""

    # Links of ours.

    def dialing(self, link: "OutgoingLink") -> Any:
        """Make what takes a connection of a link that has come about."""

    def reason_of(self, failure: Failure) -> str:
        """Return why a connection has ended."""

    def link_opened(self, connection: "OutgoingConnection", greeting: Greeting) -> None:
        """A link of ours is proven."""

    def link_closed(self, connection: "OutgoingConnection") -> None:
        """A connection of ours has ended."""

    def written(self, queue: LinkQueue, now: int) -> bytes | None:
        """Return the next frame of a queue; None = there is none."""

    # Links of others.

    def handshake_began(self, connection: "IncomingConnection") -> None:
        """Note a connection whose handshake begins."""

    def objection(self, connection: "IncomingConnection", greeting: Greeting) -> str:
        """Return why a proven node is not taken; empty when it is."""

    def greeted(self, connection: "IncomingConnection", greeting: Greeting) -> None:
        """The handshake of a connection is done."""

    def inbox(self, sender: bytes, reader: Reader) -> LinkInbox:
        """Make what hears a link that is open now."""

    def bad_link(self, connection: "IncomingConnection", error: BadFrame | BadMessage) -> None:
        """End a link that brought what no sound node writes."""

    def incoming_ended(self, connection: "IncomingConnection") -> None:
        """Forget a connection of another node."""


def plain_host(host: str) -> str:
    """An address as others may use it: what is IPv4 is written so, on a socket for both kinds as well."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _tune(transport: Any) -> None:
    """Send small things at once, and notice that the other machine is gone."""
    transport.setTcpNoDelay(True)
    transport.setTcpKeepAlive(True)
    for option, value in KEEPALIVE:
        transport.socket.setsockopt(socket.IPPROTO_TCP, option, value)


class _Connection(protocol.Protocol, ABC):
    """What both ends have in common: a time limit for the handshake, and an end that is told once."""

    transport: Any

    def __init__(self, bus: Hub) -> None:
        self.bus = bus
        self.closed = False
        self._reported = 0  #: bytes that the budget of all connections knows of
        self._deadline: IDelayedCall | None = None

    def connectionMade(self) -> None:
        """Begin the handshake."""
        _tune(self.transport)
        self._deadline = self.bus.reactor.callLater(HANDSHAKE_S, self._too_slow)

    def _too_slow(self) -> None:
        self._deadline = None
        self.refuse(f"the handshake took longer than {HANDSHAKE_S:.0f} s")

    @abstractmethod
    def refuse(self, reason: str) -> None:
        """End the connection before it is a link, and say why."""

    def _in_time(self) -> None:
        """The handshake is over, one way or the other."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def report(self, size: int) -> None:
        """Tell the budget of all connections how much this one holds, if that has changed by a step."""
        buffers = self.bus.buffers
        if size < STEP or self.closed:
            size = 0
        if buffers is not None and abs(size - self._reported) >= STEP:
            self._reported = size
            buffers.hold(self, size)

    def end_for_buffers(self, size: int) -> None:
        """End the connection: it holds most while all hold too much."""
        self._reported = 0
        log.warn(
            "The link with {peer} holds {size} bytes, the most of all connections: closed", peer=self.peer, size=size
        )
        self.transport.abortConnection()

    @property
    def peer(self) -> str:
        """``ip port`` of the other end, for the log."""
        address = self.transport.getPeer()
        return f"{plain_host(address.host)} port {address.port}"


# --- The end that dials ----------------------------------------------------------------------------------------------


class OutgoingLink(ClientFactory):
    """The way to one target: dialed again and again, until it is not one any more."""

    noisy = False

    def __init__(self, bus: Hub, target: Target) -> None:
        self.bus = bus
        self.target = target
        self.connection: OutgoingConnection | None = None
        self.dropped = False
        self._connector: EagerConnector | None = None
        self._call: IDelayedCall | None = None
        self._wait_s = REDIAL_MIN_S
        self._told = ""  #: the last reason logged for having no link

    def dial(self) -> None:
        """Connect."""
        self._call = None
        target = self.target
        factory, reactor = self.bus.dialing(self), self.bus.reactor
        self._connector = EagerConnector(target.host, target.bus_port, factory, HANDSHAKE_S, None, reactor)
        self._connector.connect()

    def buildProtocol(self, addr: Any) -> "OutgoingConnection | None":
        """Make the connection that has come about, with TLS if that is spoken."""
        if self.dropped:
            return None
        self.connection = OutgoingConnection(self)
        return self.connection

    def clientConnectionFailed(self, connector: Any, reason: Failure) -> None:
        self.failed(reason.getErrorMessage())

    def not_secured(self, address: Any, reason: str) -> None:
        """Try again later: TLS has not come about."""
        self.bus.counters.refused_by_others += 1
        self.failed(f"no TLS: {reason}")

    def failed(self, reason: str) -> None:
        """Note that there is no link now, and why; the log hears it once."""
        self.connection = None
        if self.dropped:
            return
        if reason != self._told:
            self._told = reason
            log.info(
                "No link to {host} port {port}: {reason}",
                host=self.target.host, port=self.target.bus_port, reason=reason,
            )  # fmt: skip
        self._call = self.bus.reactor.callLater(self._wait_s, self.dial)
        self._wait_s = min(2 * self._wait_s, REDIAL_MAX_S)

    def opened(self) -> None:
        """The link is open and wanted: the next failure is a new one."""
        self._wait_s = REDIAL_MIN_S
        self._told = ""

    def drop(self, *, flush: bool = False) -> None:
        """End it for good; with `flush` after what was handed to the transport has left."""
        self.dropped = True
        if self._call is not None:
            self._call.cancel()
            self._call = None
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.end("", flush=flush)
        elif self._connector is not None:
            self._connector.disconnect()  # it may be in the handshake of TLS


@implementer(IPushProducer)
class OutgoingConnection(_Connection):
    """A connection to a target: it is only written on, once it is open."""

    def __init__(self, link: OutgoingLink) -> None:
        super().__init__(link.bus)
        self.link = link
        self.node_id = b""  #: of the other end, once the link is open
        self.queue: LinkQueue | None = None  #: once the link is open
        self._stalled = False  #: the transport has more than it wants
        self._flush_call: IDelayedCall | None = None
        self._opening: Dialing

    def connectionMade(self) -> None:
        super().connectionMade()
        bus = self.bus
        self._opening = bus.dialect.dial(bus.secret, bus.greeting(self.link.target.meets), token_bytes(NONCE_BYTES))
        self.transport.write(self._opening.start())

    def dataReceived(self, data: bytes) -> None:
        """Go on with the handshake; after it, nothing is to come."""
        if self.closed:
            return
        if self.queue is not None:
            self.end("the other end writes on a link that is ours to write on")
            return
        try:
            answer = self._opening.feed(data)
        except RefusedByPeer as error:
            self.bus.counters.refused_by_others += 1
            self.end(f"refused there: {error}")
            return
        except LinkRefused as error:
            self.bus.counters.handshakes_refused += 1
            self.refuse(str(error))
            return
        if answer:
            self.transport.write(answer)
        if self._opening.greeting is not None:
            self._open(self._opening.greeting)

    def refuse(self, reason: str) -> None:
        if not self.closed:
            self.transport.write(self._opening.refuse(reason))
            self.end(reason, flush=True)

    def _open(self, greeting: Greeting) -> None:
        self._in_time()
        bus = self.bus
        self.queue = LinkQueue(bus.dialect.codec, self._opening.writer(), bus.buffer_limit, bus.texts)
        self.transport.registerProducer(self, streaming=True)
        bus.link_opened(self, greeting)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.end(self.bus.reason_of(reason))

    def end(self, reason: str, *, flush: bool = False) -> None:
        """End the connection; the link dials again, if it is to stay."""
        if self.closed:
            return
        self.closed = True
        self.report(0)
        self._in_time()
        if self._flush_call is not None:
            self._flush_call.cancel()
        if flush:
            self.transport.unregisterProducer()
            self.transport.loseConnection()
        else:
            self.transport.abortConnection()
        self.bus.link_closed(self)
        self.link.failed(reason)

    # Writing.

    @property
    def buffered(self) -> int:
        """Bytes that wait here and in the transport."""
        unsent: int = self.transport.unsent
        return unsent + (self.queue.weight if self.queue is not None else 0)

    def flush(self) -> None:
        """Write what waits, until the transport has enough or others want their turn."""
        if self._stalled or self.closed or self._flush_call is not None:
            if self._stalled:
                self.report(self.buffered)
            return
        assert self.queue is not None
        bus, queue, write = self.bus, self.queue, self.transport.write
        now = bus.node.clock.now()
        ends = perf_counter() + SLICE_S
        while not self._stalled:
            frame = bus.written(queue, now)
            if frame is None:
                return
            write(frame)
            bus.counters.bytes_out += len(frame)
            if perf_counter() > ends:
                self._flush_call = bus.reactor.callLater(0, self._go_on)
                return

    def _go_on(self) -> None:
        self._flush_call = None
        self._flush_alone()

    def pauseProducing(self) -> None:
        self._stalled = True

    def resumeProducing(self) -> None:
        self._stalled = False
        self._flush_alone()
        self.report(self.buffered)

    def _flush_alone(self) -> None:
        """Write what waits, while no other link does."""
        self.flush()
        self.bus.texts.forget()

    def stopProducing(self) -> None:
        """The transport is gone; `connectionLost` does the rest."""


# --- The end that is dialed ------------------------------------------------------------------------------------------


class IncomingConnection(_Connection):
    """A connection from another node, whose messages are read once its handshake is done."""

    def __init__(self, bus: Hub) -> None:
        super().__init__(bus)
        self.node_id = b""  #: of the other end, once the link is open
        self.bus_port = 0  #: of the other end, once the link is open
        self.heard_at = bus.reactor.seconds()  #: when something last came from it
        self._opening: Dialed = bus.dialect.answer(bus.secret, bus.greeting(False), token_bytes(NONCE_BYTES))
        self._inbox: LinkInbox | None = None  #: once the link is open
        self._working = False  #: messages are being handled, now or in a later turn
        self._paused = False  #: in a later turn: nothing is read meanwhile

    def connectionMade(self) -> None:
        """Wait for the other end to begin."""
        super().connectionMade()
        self.bus.handshake_began(self)

    def dataReceived(self, data: bytes) -> None:
        """Go on with the handshake, or take messages."""
        if self.closed:
            return
        size = len(data)
        self.bus.counters.bytes_in += size
        self.heard_at = self.bus.reactor.seconds()
        if self._inbox is None:
            self._shake_hands(data)
        else:
            self._inbox.feed(data)
        if self._inbox is not None and not self._working:
            self._work()
        if self._inbox is not None and (size >= READ_SIZE or self._reported):
            self.report(self._inbox.buffered)

    def _shake_hands(self, data: bytes) -> None:
        bus = self.bus
        try:
            answer = self._opening.feed(data)
        except RefusedByPeer as error:
            self._tell(f"refused there: {error}")
            bus.counters.refused_by_others += 1
            self.end()
            return
        except LinkRefused as error:
            bus.counters.handshakes_refused += 1
            self.refuse(str(error))
            return
        greeting = self._opening.greeting
        objection = bus.objection(self, greeting) if greeting is not None else ""
        if objection:
            bus.counters.handshakes_refused += 1
            self.refuse(objection)
            return
        if answer:
            self.transport.write(answer)
        if greeting is not None:
            self._in_time()
            self.bus_port = greeting.bus_port
            self._inbox = bus.inbox(greeting.id, self._opening.reader(bus.largest_message))
            bus.greeted(self, greeting)

    def refuse(self, reason: str) -> None:
        if not self.closed:
            self._tell(reason)
            self.transport.write(self._opening.refuse(reason))
            self.end(flush=True)

    def _tell(self, reason: str) -> None:
        """Log why there is no link; once, as unauthenticated connections come again and again."""
        host = plain_host(self.transport.getPeer().host)
        if self.bus.news.is_new(f"from {host}: {reason}"):
            log.info("A link from {peer} is not taken: {reason}", peer=self.peer, reason=reason)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        self.end()

    def end(self, *, flush: bool = False) -> None:
        """End the connection."""
        if self.closed:
            return
        self.closed = True
        self.report(0)
        self._in_time()
        self._rest()
        if flush:
            self.transport.loseConnection()
        else:
            self.transport.abortConnection()
        self.bus.incoming_ended(self)

    # Reading.

    def _work(self) -> None:
        """Hear messages for a slice of time; the rest has to wait, and so has whoever sends more."""
        if self.closed:
            return
        bus = self.bus
        if not self._working:
            self._working = True
            bus.busy += 1
        if not bus.hearing:
            self._pause()
        elif self._hear():
            self._rest()
        else:
            self._pause()
            bus.reactor.callLater(0, self._work)

    def _rest(self) -> None:
        """There is nothing to do until more comes: read again."""
        if self._working:
            self._working = False
            self.bus.busy -= 1
            if self._paused:
                self._paused = False
                self.transport.resumeProducing()

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            self.transport.pauseProducing()

    def resume(self) -> None:
        """The bus listens again."""
        if self._working:
            self._work()

    def _hear(self) -> bool:
        """Carry out messages as one step; say whether all that came are done with."""
        bus, inbox = self.bus, self._inbox
        assert inbox is not None
        before = inbox.heard
        bus.node.begin()
        try:
            return inbox.hear(perf_counter() + SLICE_S / bus.busy)
        except (BadFrame, BadMessage) as error:
            bus.bad_link(self, error)
            return True
        finally:
            bus.counters.messages_received += inbox.heard - before
            bus.finish_step()
