"""The registry of client connections: accepting them, and what concerns all of them.

    port --buildProtocol--> ClientConnection --connected--> too many? --no--> Access.greet
                                  |               sessions: CLIENT LIST, CLIENT KILL, INFO
                                  |               pause: nobody's commands run for a while
                                  |               timeout: idle connections end
                                  +--disconnected--> the node takes back what the client did not read

Commands that come from elsewhere in the process have callers instead (`call`), with ids from the same counter.

Instants of clients are monotonic milliseconds; delays are seconds.  Source: Disque, src/networking.c.
"""

import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall

from disqued.commands.host import Host, Session
from disqued.config import Config
from disqued.net.clients.access import Access
from disqued.net.clients.callers import Caller
from disqued.net.clients.connection import ClientConnection, ClientSession, session_of
from disqued.net.clients.pubsub import PubSub
from disqued.net.clients.shutdown import part
from disqued.net.clients.traffic import Traffic
from disqued.net.clients.unauthenticated import UnauthenticatedClients
from disqued.wire.requests import RequestParser

IDLE_CHECK_S: Final = 1.0  #: how often connections are looked at while `timeout` is set
_NO_MONITOR: Final = "MONITOR needs a connection of its own: redis-cli MONITOR"


class ClientRegistry(Factory):
    """The clients of one daemon; makes a `ClientConnection` for each."""

    noisy = False

    def __init__(
        self, config: Config, reactor: Any, host: Host, traffic: Traffic, *,
        access: Access, pubsub: PubSub, unauthenticated: UnauthenticatedClients, recent: deque[tuple[int, bytes]],
    ) -> None:  # fmt: skip
        """`host` is what commands ask; `recent` takes the last inputs, for crash reports."""
        self.config = config
        self.host = host
        self.traffic = traffic
        self.unauthenticated = unauthenticated
        self.recent = recent
        self.by_id: dict[int, ClientConnection] = {}  #: oldest first
        self.accepted = 0  #: connections, refused ones included
        self.refused = 0  #: connections refused because there were too many
        self._reactor = reactor
        self._access = access
        self._pubsub = pubsub
        self._last_id = 0
        self._pause_end: IDelayedCall | None = None
        self._idle_check = LoopingCall(self._close_idle)
        self._idle_check.clock = reactor
        config.subscribe("timeout", self._set_timeout)

    def start(self) -> None:
        """Look for idle connections, if `timeout` is set."""
        self._set_timeout(self.config.timeout)

    def stop(self) -> None:
        """Look for them no more."""
        if self._idle_check.running:
            self._idle_check.stop()
        self.unauthenticated.stop()

    async def part(self) -> None:
        """End all connections, each once its client has read its replies, or after a while."""
        await part(self._reactor, self.by_id.values())

    def reset(self) -> None:
        """Zero the counters."""
        self.accepted = self.refused = 0
        self.unauthenticated.reset()

    # Connections.

    def buildProtocol(self, addr: Any) -> ClientConnection:  # type: ignore[override]  # all that a transport calls
        """Make the connection object of a client that has just connected."""
        self._last_id += 1
        return ClientConnection(self, self._last_id)

    def call(
        self, words: Sequence[bytes], *, address: str, name: bytes = b"", is_gone: Callable[[], bool] = lambda: False
    ) -> Deferred[Any]:
        """Run a command for a part of this process, named by `address`; fires with its value or a CommandError.

        `name` is the name of the client, as CLIENT SETNAME would give it.
        Cancelling it gives up what is blocked, and returns jobs that were handed out and not heard of yet.  No job is
        handed out when `is_gone` says that there is nobody any more.
        """
        self._last_id += 1
        return Caller(self.host, self.traffic, self._last_id, address, is_gone, name=name).run(words)

    def make_parser(self) -> RequestParser:
        largest = self.config.proto_max_bulk_len
        return RequestParser(max_bulk=largest, max_buffer=max(self.config.client_query_buffer_limit, largest))

    def connected(self, client: ClientConnection) -> None:
        """Accept a client, or refuse it when there are too many."""
        self.accepted += 1
        transport = client.transport
        session = client.session
        if not session.peer.is_unix:
            transport.setTcpNoDelay(True)
            if self.config.tcp_keepalive:
                transport.setTcpKeepAlive(True)
                transport.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, self.config.tcp_keepalive)
        self.by_id[session.id] = client
        if len(self.by_id) > self.config.maxclients and not self.unauthenticated.make_room():
            self.refused += 1
            session.refuse(b"ERR max number of clients reached")
        else:
            self._access.greet(session)

    def disconnected(self, client: ClientSession, handed: list[bytes]) -> None:
        self.by_id.pop(client.id, None)
        self.unauthenticated.remove(client)
        traffic = self.traffic
        if client.monitors:
            traffic.dispatch.unwatch(client)
        if client.subscriptions:
            self._pubsub.forget(client)
        if traffic.ending:
            return  # what was written of the jobs for the next start holds
        traffic.node.begin()
        traffic.node.gone(client, handed)
        traffic.turn.finish_step(None)

    # All of them.

    def sessions(self) -> list[ClientSession]:
        return [client.session for client in self.by_id.values()]

    def pause(self, span_ms: int) -> None:
        self.traffic.paused = True
        ends = self._reactor.seconds() + span_ms / 1_000
        if self._pause_end is not None and self._pause_end.active():
            if self._pause_end.getTime() >= ends:
                return
            self._pause_end.cancel()
        self._pause_end = self._reactor.callLater(span_ms / 1_000, self.end_pause)

    def end_pause(self) -> None:
        """Run commands again, unless the daemon stops."""
        self.traffic.paused = self.traffic.ending
        for client in list(self.by_id.values()):
            client.queue()

    def _set_timeout(self, seconds: int) -> None:
        if self._idle_check.running:
            self._idle_check.stop()
        if seconds:
            self._idle_check.start(IDLE_CHECK_S, now=False)

    def _close_idle(self) -> None:
        oldest = self.traffic.node.clock.now() - self.config.timeout * 1_000
        for client in list(self.by_id.values()):
            session = client.session
            waits = session.is_blocked or session.monitors or session.subscriptions
            if session.active_at < oldest and not waits:
                client.transport.loseConnection()

    # One of them.

    def monitor(self, session: Session) -> None:
        session_of(session, _NO_MONITOR).watch_commands(watches=True)

    def reset_session(self, session: Session) -> None:
        client = session_of(session)
        self._pubsub.forget(client)
        client.set_protocol(2)
        client.name = b""
        client.reply_mode = "on"
        client.receipts = False
        if client.monitors:
            client.watch_commands(watches=False)
        self._access.reset(client)

    # What INFO says.

    def facts(self) -> dict[str, Any]:
        """Return the fields of INFO's section Clients."""
        clients = self.sessions()
        return {
            "connected_clients": len(clients),
            "client_longest_output_list": max((client.output_buffered for client in clients), default=0),
            "client_biggest_input_buf": max((client.input_buffered for client in clients), default=0),
            "blocked_clients": sum(client.is_blocked for client in clients),
            "unauthenticated_clients": len(self.unauthenticated),
        }
