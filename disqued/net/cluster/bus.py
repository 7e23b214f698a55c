"""The cluster bus: a link from this node to every other node, and their links to it.

    membership.targets() --follow--> OutgoingLink ... --dials--> the others
    driver: messages, after their commit --send--> LinkQueue of each link --frames--> the others

    the others --frames--> IncomingConnection ... --a slice of messages = one step--> node.message()

All that a node says to another leaves on its own link to it; where there is none, or the other one does not read, it
is dropped and counted: whoever needs an answer asks again.  A peer costs bounded memory, and clients have their turn
between two slices of what peers say.  A connection that has not proved the cluster secret is in its handshake; there
are few of them at a time, and the one that has been one for longest makes room for the next.

Source: Disque, src/cluster.c (links); the frames are our own (`disqued.wire.frames`).
"""

import ipaddress
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from twisted.internet import tcp
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued import __version__
from disqued.commands.host import Budget
from disqued.core.model.messages import EVENT, Greeting, Message, Target
from disqued.core.node import Node
from disqued.net.cluster.linkinbox import LinkInbox
from disqued.net.cluster.linkqueue import LinkQueue, SharedTexts, spread
from disqued.net.cluster.links import BusCounters, IncomingConnection, OutgoingConnection, OutgoingLink, plain_host
from disqued.net.loop.lograte import LogRate
from disqued.net.loop.passed import Adopt, adopt_nothing
from disqued.net.loop.transport import EagerPort
from disqued.wire.fields import BadMessage, Fields
from disqued.wire.frames import BadFrame, Dialect, OwnDialect, Reader

if TYPE_CHECKING:
    from disqued.tls.context import Certificates

HANDSHAKES_MAX: Final = 64  #: most connections with an unfinished handshake
INCOMING_MAX: Final = 1_000  #: links of other nodes to this one
MESSAGE_SLACK: Final = 8 << 20  #: bytes of a message beside one job of the largest size: more jobs, holders

#: Target of a link: address, bus port and id; the id is empty for a node to be met.
_Key = tuple[str, int, bytes]


class Bus(Factory):
    """The links of one node; makes an `IncomingConnection` for each that somebody opens to it."""

    log = Logger()
    noisy = False

    def __init__(
        self, node: Node, reactor: Any, *, secret: bytes, finish_step: Callable[[], None],
        on_crash: Callable[[bytes, tuple[object, ...]], None],
        on_event: Callable[[bytes, bytes, bytes, object], None] = lambda queue, kind, content, only: None,
        buffers: Budget | None = None, dialect: Dialect | None = None,
    ) -> None:  # fmt: skip
        """Take what ends a step, and what is called while an exception is handled that is a bug of ours.

        `on_event` takes events for the clients of this node: queue, type, content, the one client or None.  `buffers`
        counts what connections hold outside maxmemory, links among them.
        """
        self.node = node
        self.reactor = reactor
        self.secret = secret
        self.finish_step = finish_step
        self.dialect: Dialect = dialect or OwnDialect()
        self.counters = BusCounters()
        self.buffer_limit = 64 << 20  #: bytes that may wait for one peer; set by `set_buffer_limit`
        self.largest_message = MESSAGE_SLACK  #: bytes; set by `set_largest_body`
        self._tls: Certificates | None = None
        self._heard_of: Any = self  #: makes what takes connections: of TLS, or this
        self.port = 0  #: that it listens on; 0 = none
        self.busy = 0  #: incoming links with more input than one slice takes
        self.hearing = False  #: the node takes messages; False while it loads and when it ends
        self._started = False
        self._on_event = on_event
        self._on_crash = on_crash
        self._ports: list[tcp.Port] = []
        self._links: dict[_Key, OutgoingLink] = {}
        self._open: dict[bytes, OutgoingConnection] = {}
        self._queues: dict[bytes, LinkQueue] = {}  #: of these
        self.buffers = buffers
        self.texts = SharedTexts()  #: texts that several links are about to write
        self._handshakes: dict[IncomingConnection, None] = {}
        self._incoming: dict[bytes, IncomingConnection] = {}
        self._own_id = node.state.node_id
        self._follow_call: IDelayedCall | None = None
        self.news = LogRate(reactor.seconds)  #: log lines about unauthenticated connections

    # Start and stop.

    def secure(self, certificates: "Certificates", listens: Callable[[Any], Any]) -> None:
        """Speak TLS with the others, before `listen`; `listens` puts it below the factory that takes connections."""
        self._tls = certificates
        self._heard_of = listens(self)

    def dialing(self, link: OutgoingLink) -> Any:
        if self._tls is None:
            return link
        from disqued.net.loop.tlstransport import TlsFactory

        return TlsFactory(self._tls, link, self.reactor, link.not_secured, dials=True)

    def reason_of(self, failure: Failure) -> str:
        if self._tls is None:
            return str(failure.getErrorMessage())
        from disqued.net.loop.tlstransport import reason_of

        return reason_of(failure)

    def listen(self, addresses: Sequence[str], port: int, backlog: int = 50, adopt: Adopt = adopt_nothing) -> None:
        """Open the ports, or take those that are open already.  Raises CannotListenError.

        What comes in is read in the rounds of clients (`net/loop/rounds.py`).
        """
        for address in addresses:
            opened = adopt(self._heard_of, address, port, EagerPort)
            if opened is None:
                opened = EagerPort(port, self._heard_of, backlog, address, self.reactor)
                opened.startListening()
            self._ports.append(opened)
            port = opened.socket.getsockname()[1]
            self.log.info("The cluster bus listens on {address}, port {port}", address=address, port=port)
        self.port = port if addresses else 0

    def start(self) -> None:
        """Hear and dial from now on: the node has loaded its jobs."""
        self._started = self.hearing = True
        self.follow_soon()

    def pause(self) -> None:
        """Hear nothing, until `resume`."""
        self.hearing = False

    def resume(self) -> None:
        """Hear again."""
        if self._started:
            self.hearing = True
            for connection in list(self._incoming.values()):
                connection.resume()

    def stop(self) -> "Deferred[Any]":
        """Close every port and, once what is written has left, every link; the node hears nothing of it."""
        self._started = self.hearing = False
        if self._follow_call is not None:
            self._follow_call.cancel()
            self._follow_call = None
        self._open.clear()
        self._queues.clear()
        for link in list(self._links.values()):
            link.drop(flush=True)
        self._links.clear()
        for connection in [*self._handshakes, *self._incoming.values()]:
            connection.end()
        ports, self._ports = self._ports, []
        return gatherResults([maybeDeferred(port.stopListening) for port in ports])

    # Settings.

    def set_buffer_limit(self, limit: int) -> None:
        """Change how much may wait for one peer, in bytes."""
        self.buffer_limit = limit
        for queue in self._queues.values():
            queue.limit = limit

    def set_largest_body(self, size: int) -> None:
        """Change what a message of another node may bring: a job of which body and name of the queue have this size.

        Links that are open keep what they had.
        """
        self.largest_message = 2 * size + MESSAGE_SLACK

    @property
    def has_secret(self) -> bool:
        return bool(self.secret)

    def greeting(self, meets: bool) -> Greeting:
        return self.node.membership.own_address.greeting(meets)

    # Links of ours.

    def follow_soon(self) -> None:
        """Let the links follow what the node knows of the cluster, at the end of this turn."""
        if self._started and self._follow_call is None:
            self._follow_call = self.reactor.callLater(0, self._follow)

    def _follow(self) -> None:
        self._follow_call = None
        if self._own_id != self.node.state.node_id:
            self._begin_anew()
        wanted = filter(self._may_dial, self.node.membership.targets())
        targets = {_key(target): target for target in wanted}
        for key in [key for key in self._links if key not in targets]:
            self._drop(key)
        self._make_stale_ones_anew()
        for key, target in targets.items():
            if key in self._links:
                self._links[key].target = target
            else:
                link = self._links[key] = OutgoingLink(self, target)
                link.dial()

    def _may_dial(self, target: Target) -> bool:
        """Without a secret, or certificates, nobody but this machine is spoken to."""
        if self.secret or self._tls is not None or ipaddress.ip_address(target.host).is_loopback:
            return True
        if self.news.is_new(f"to {target.host}"):
            self.log.warn(
                "{host} is not this machine and is not dialed: set cluster-secret, or tls-cluster", host=target.host
            )
        return False

    def _begin_anew(self) -> None:
        """The node has another id now: every link was opened in the name of the old one."""
        self._own_id = self.node.state.node_id
        for key in list(self._links):
            self._drop(key)
        for connection in list(self._incoming.values()):
            connection.end()

    def _drop(self, key: _Key) -> None:
        self._links.pop(key).drop()

    def _make_stale_ones_anew(self) -> None:
        for peer in list(self.node.state.peers.by_id.values()):
            if peer.stale:
                # The end of the link tells the node, which sees no link then that could be stale.
                connection = self._open.get(peer.id)
                if connection is not None:
                    connection.end("no answer for too long")

    def link_opened(self, connection: OutgoingConnection, greeting: Greeting) -> None:
        """A link of ours is proven: ask the node whether it wants it."""
        own_host = plain_host(connection.transport.getHost().host)
        target = connection.link.target
        if not self._ask(lambda: self.node.link_opened(target, greeting, own_host)):
            connection.end(f"{greeting.id.decode('ascii')} is there, and this link to it is not wanted")
            self.finish_step()
            return
        self._give_key(connection.link, target._replace(id=greeting.id))
        connection.node_id = greeting.id
        assert connection.queue is not None
        self._open[greeting.id] = connection
        self._queues[greeting.id] = connection.queue
        connection.link.opened()
        self.log.info("The link to {id} is open", id=greeting.id.decode("ascii"))
        self.finish_step()

    def _give_key(self, link: OutgoingLink, target: Target) -> None:
        """Whom the link leads to is known by now; another one that tried to get there gives up."""
        self._links = {key: other for key, other in self._links.items() if other is not link}
        link.target = target
        if _key(target) in self._links:
            self._drop(_key(target))
        self._links[_key(target)] = link

    def link_closed(self, connection: OutgoingConnection) -> None:
        """A connection of ours has ended; if it was a link, the node hears of it."""
        if connection.node_id and self._open.get(connection.node_id) is connection:
            del self._open[connection.node_id]
            del self._queues[connection.node_id]
            self._ask(lambda: self.node.link_closed(connection.node_id))
            self._warn_of_brief_links(connection)
            self.finish_step()

    def _warn_of_brief_links(self, connection: OutgoingConnection) -> None:
        """Warn once an hour of a node that ends its links as soon as they open, as an older version does."""
        peer = self.node.state.peers.by_id.get(connection.node_id)
        if peer is None or not peer.ends_links(self.node.clock.now()):
            return
        name = peer.id.decode("ascii")
        if self.news.is_new(f"brief links to {name}"):
            self.log.warn(
                "Node {id} at {host} port {port}, version {version}, keeps ending the link to this node, version {own}:"
                " an older version does so when it does not know what it receives (see its log). Upgrade it.",
                id=name, host=peer.host, port=peer.port, version=peer.version, own=__version__,
            )  # fmt: skip

    def _ask(self, step: Callable[[], Any]) -> Any:
        """Begin a step and do this in it; a bug of ours is reported, and answered with None."""
        self.node.begin()
        try:
            return step()
        except Exception:  # the node goes on without it
            self._on_crash(b"", ())
            return None

    # Messages to others.

    def send(self, messages: list[tuple[bytes, Message]]) -> None:
        """Let messages leave: one write for each peer, as far as its transport takes them."""
        counters = self.counters
        touched, unlinked, dropped = spread(messages, self._queues)
        counters.dropped_buffer_full += dropped
        for node_id, message in unlinked:
            if node_id == self._own_id and message[0] == EVENT:
                event: Fields = message
                self._on_event(*event[1:])
            else:
                counters.dropped_without_link += 1
        for node_id in touched:
            connection = self._open.get(node_id)
            if connection is not None:
                connection.flush()
        self.texts.forget()

    def written(self, queue: LinkQueue, now: int) -> bytes | None:
        """The next frame of a queue; what cannot be written is a bug of ours, and is left out."""
        sent = queue.sent
        while True:
            try:
                frame = queue.frame(now)
            except Exception:
                self._on_crash(b"", ())
            else:
                self.counters.messages_sent += queue.sent - sent
                return frame

    # Links of others.

    def buildProtocol(self, addr: Any) -> IncomingConnection | None:
        """Accept a connection; not before the node has loaded, since it would have to wait for an answer."""
        return IncomingConnection(self) if self._started else None

    def handshake_began(self, connection: IncomingConnection) -> None:
        """Note a connection in its handshake; when there are too many, the oldest is refused."""
        self._handshakes[connection] = None
        if len(self._handshakes) > HANDSHAKES_MAX:
            self.counters.handshakes_pushed_out += 1
            next(iter(self._handshakes)).refuse("too many others want to open a link")

    def objection(self, connection: IncomingConnection, greeting: Greeting) -> str:
        """Return why a link whose handshake is done is refused; empty when it is accepted.

        A node that comes back has another connection.  One with the same id that is elsewhere while the first still
        speaks is another node: both would push each other out for ever.
        """
        before = self._incoming.get(greeting.id)
        if before is None:
            return f"there are {INCOMING_MAX} links already" if len(self._incoming) >= INCOMING_MAX else ""
        host, other = (plain_host(each.transport.getPeer().host) for each in (connection, before))
        is_elsewhere = (host, greeting.bus_port) != (other, before.bus_port)
        silent_ms = (self.reactor.seconds() - before.heard_at) * 1_000
        if is_elsewhere and silent_ms < self.node.state.peers.timeout_ms:
            return (
                f"the node at {other}:{before.bus_port} has the id {greeting.id.decode('ascii')}, too, and answers:"
                " was a folder copied? CLUSTER RESET HARD gives one of the two another id"
            )
        return ""

    def greeted(self, connection: IncomingConnection, greeting: Greeting) -> None:
        """Accept a link whose handshake is done, in place of the link that its node had before."""
        del self._handshakes[connection]
        before = self._incoming.pop(greeting.id, None)
        if before is not None:
            before.end()
        connection.node_id = greeting.id
        self._incoming[greeting.id] = connection
        host = plain_host(connection.transport.getPeer().host)
        own_host = plain_host(connection.transport.getHost().host)
        self._ask(lambda: self.node.greeted(greeting, host, own_host))
        self.finish_step()

    def incoming_ended(self, connection: IncomingConnection) -> None:
        self._handshakes.pop(connection, None)
        if self._incoming.get(connection.node_id) is connection:
            del self._incoming[connection.node_id]

    def inbox(self, sender: bytes, reader: Reader) -> LinkInbox:
        return LinkInbox(self.dialect.codec, reader, sender, self.node, self._on_crash)

    def bad_link(self, connection: IncomingConnection, error: BadFrame | BadMessage) -> None:
        counters = self.counters
        if isinstance(error, BadFrame):
            setattr(counters, error.fault, getattr(counters, error.fault) + 1)
        else:
            counters.bad_messages += 1
        self.log.warn("The link from {peer} is closed, it brought {error}", peer=connection.peer, error=str(error))
        connection.end()

    # Facts.

    def facts(self) -> dict[str, Any]:
        """What INFO says of it."""
        counters = self.counters
        return {
            "cluster_enabled": int(bool(self.port)),
            "cluster_bus_port": self.port,
            "cluster_links_out": len(self._open),
            "cluster_links_in": len(self._incoming),
            "cluster_links_in_handshake": len(self._handshakes),
            "cluster_stats_messages_sent": counters.messages_sent,
            "cluster_stats_messages_received": counters.messages_received,
            "cluster_dropped_without_link": counters.dropped_without_link,
            "cluster_dropped_buffer_full": counters.dropped_buffer_full,
            "cluster_buffered_bytes": sum(connection.buffered for connection in self._open.values()),
            "cluster_net_input_bytes": counters.bytes_in,
            "cluster_net_output_bytes": counters.bytes_out,
            "cluster_frames_forged": counters.forged,
            "cluster_frames_replayed": counters.replayed,
            "cluster_frames_oversized": counters.oversized,
            "cluster_frames_malformed": counters.malformed,
            "cluster_bad_messages": counters.bad_messages,
            "cluster_handshakes_refused": counters.handshakes_refused,
            "cluster_handshakes_refused_by_others": counters.refused_by_others,
            "cluster_handshakes_pushed_out": counters.handshakes_pushed_out,
        }


def _key(target: Target) -> _Key:
    return target.host, target.bus_port, target.id
