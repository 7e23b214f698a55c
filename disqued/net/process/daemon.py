"""The daemon: one node with its settings, its clients and its store; what INFO, CONFIG and CLIENT talk to.

    Daemon --- Driver --- Node          the queue
       |         +------- IStore        its journal; Loader reads it, StoreKeeper sees to the rest
       +--- ClientConnection ...        one per client
       +--- Bus                         links to the other nodes
       +--- Config, SlowLog, LatencyMonitor, counters

Source: Disque, src/server.c, src/config.c.
"""

import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Factory
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.acl.attempts import Attempts
from disqued.commands.dispatch import Dispatch
from disqued.commands.host import Session
from disqued.commands.latency import LatencyMonitor
from disqued.commands.slowlog import SlowLog
from disqued.commands.table import every_command
from disqued.config import Config
from disqued.core.model.messages import Message
from disqued.core.node import Node
from disqued.core.recovery import Recovery
from disqued.core.view import NodeView
from disqued.errors import CommandError
from disqued.net.clients import ends
from disqued.net.clients.access import Access
from disqued.net.clients.callers import Caller, Commander
from disqued.net.clients.connection import ClientConnection
from disqued.net.clients.pubsub import PubSub
from disqued.net.clients.shutdown import part
from disqued.net.clients.traffic import Traffic
from disqued.net.clients.unauthenticated import Strangers
from disqued.net.cluster.bus import Bus
from disqued.net.cluster.identity import Identity, IdentityError
from disqued.net.cluster.topology import Members
from disqued.net.loop.buffers import Buffers
from disqued.net.loop.certificates import Secured
from disqued.net.loop.passed import Adopt, adopt_nothing
from disqued.net.loop.turns import Busy
from disqued.net.process import settings
from disqued.net.process.crashes import CrashReports
from disqued.net.process.driver import Commits, Driver
from disqued.net.process.loading import Loader
from disqued.net.process.statistics import Statistics
from disqued.net.process.storekeeper import StoreKeeper
from disqued.net.process.switching import OpenStore
from disqued.persistence.interface import IEventLog, IStore, StoreError
from disqued.wire.requests import RequestParser

IDLE_CHECK_S = 1.0  #: how often connections are looked at while `timeout` is set

#: Settings of the event log's files.
_OF_EVENTS = ("events-file-size", "events-file-seconds", "events-keep-days", "events-keep-size")


class Daemon(Factory):
    """A running disqued; makes a `ClientConnection` for each client and is the `Host` of its commands."""

    log = Logger()
    noisy = False

    def __init__(
        self, config: Config, node: Node, identity: Identity, store: IStore, reactor: Any, *,
        store_name: str, open_store: OpenStore, event_log: IEventLog, secret: bytes = b"",
    ) -> None:  # fmt: skip
        """Take an open store and its name, what opens another one, the event log, and the secret of the cluster.

        Raises AclFileError.
        """
        self.config = config
        self.identity = identity
        self.reactor = reactor
        self.statistics = Statistics(node.clock.now())
        self.crashes = CrashReports(config.dir)
        self.driver = Driver(node, store, reactor, on_crash=self._tick_crashed)
        self.turn = self.driver.turn
        self.buffers = Buffers(node.state.memory)
        self._access = Access(config, node, reactor.seconds, self.sessions)
        self._access.on_password = self._hide_inputs
        self.slowlog = SlowLog(config.slowlog_log_slower_than, config.slowlog_max_len)
        self.latency = LatencyMonitor(config.latency_monitor_threshold)
        self.dispatch = Dispatch(
            node, seconds=perf_counter, microseconds=self.microseconds, on_crash=self.crashed,
            failure=lambda: self.turn.failure, slowlog=self.slowlog, latency=self.latency, permissions=self._access,
            activity=self.statistics,
        )  # fmt: skip
        self.dispatch.set_loading(loading=True)
        self.traffic = Traffic(self.dispatch, self.turn, self.buffers, Busy(reactor))
        self.event_log = event_log
        self.driver.on_trail = event_log.wake
        self.bus = Bus(
            node, reactor, secret=secret, finish_step=lambda: self.turn.finish_step(None),
            on_crash=self._message_crashed,
        )  # fmt: skip
        self.tls = Secured(reactor)
        self.bus.buffers = self.buffers
        self.driver.send = self.bus.send
        self.pubsub = PubSub(node, reactor)
        self.bus.on_event = self.pubsub.publish
        self._members = Members(node, self.bus, identity, reactor)
        self.driver.on_members = self._members.changed
        self.stores = StoreKeeper(config, self.driver, store_name, open_store)
        self.loader = Loader(node, store, reactor, done=self._loaded, failed=self._not_loaded)
        self.clients: dict[int, ClientConnection] = {}
        self.strangers = Strangers(config, reactor)
        self._pause_end: IDelayedCall | None = None
        self.ending = False
        self._node = node
        self.view = NodeView(node)  #: what the admin side reads
        self.exit_status = 0
        self._last_id = 0
        self._stop: Callable[[], None] = lambda: None
        #: Called when the node has loaded its jobs and serves, or when it cannot, with the reason.
        self.on_ready: Callable[[], None] = lambda: None
        self.on_failed_start: Callable[[str], None] = lambda reason: None
        self._idle_check = LoopingCall(self._close_idle)
        self._idle_check.clock = reactor
        self._follow_settings()

    @property
    def node(self) -> Node:
        """The node that it serves."""
        return self._node

    @property
    def loading(self) -> bool:
        """True while the jobs are being loaded."""
        return self.dispatch.loading

    @property
    def paused(self) -> bool:
        """True while nobody's commands run."""
        return self.traffic.paused

    @property
    def access(self) -> Access:
        """Its users, and who is let in."""
        return self._access

    @property
    def store_failure(self) -> str | None:
        """Why nothing can be added now: the store's reason; None = all is well."""
        return self.turn.failure

    @property
    def commits(self) -> Commits:
        """Counts of its commits."""
        return self.driver.commits

    # Start and stop.

    def start(self, stop: Callable[[], None]) -> None:
        """Begin to load and to count; `stop` ends the process."""
        self._stop = stop
        self.statistics.watch(self, self.dispatch.find_guards)
        self._set_timeout(self.config.timeout)
        self.loader.start()

    async def stop(self) -> None:
        """Run nobody's commands any more, commit, and let go of everything."""
        self.traffic.paused = self.ending = True
        self.bus.pause()
        if self._idle_check.running:
            self._idle_check.stop()
        self.statistics.stop()
        self.strangers.stop()
        self.stores.stop()
        try:
            await self.driver.stop()
        except StoreError as error:
            self.log.critical("The journal could not be closed: {reason}", reason=str(error))
            self.exit_status = 1
        self._node.begin()  # the last line is of now, and not of the last step
        published = self.event_log.stop()
        if published is not None:
            await published
        await part(self.reactor, self.clients.values())
        await self.bus.stop()
        self.tls.stop()
        self._members.stop()
        self.identity.release()

    def _loaded(self, recovery: Recovery) -> None:
        try:
            self.stores.switch.note_loaded()
        except StoreError as error:
            self._not_loaded(str(error))
            return
        self.dispatch.set_loading(loading=False)
        self.event_log.follow(self.config.events, "start")
        self.driver.start()
        if self.config.aof_enqueue_jobs_once:
            self._forget_once()
        # Else the journal would bring them back, should the clock turn out to have been ahead now.
        self._node.note_expired(recovery.expired)
        self._node.begin()
        recovery.finish()
        self.driver.begin_watermark()
        self._node.workers.recover(recovery.held)
        self._node.facts.resume()
        # A flush in the journal took their deadlines along.
        self._node.membership.wake()
        self._node.leaving.wake()
        self.driver.run_due()
        self.bus.start()
        self.stores.go_where_configured()
        self.stores.start()
        self.on_ready()

    def _not_loaded(self, reason: str) -> None:
        self.log.critical("The node does not start: {reason}", reason=reason)
        self.exit_status = 1
        self.on_failed_start(reason)
        self._stop()

    def _forget_once(self) -> None:
        """Turn aof-enqueue-jobs-once off: it was meant for this start alone."""
        self.config.set("aof-enqueue-jobs-once", "no")
        if self.config.file is not None:
            try:
                self.config.rewrite()
            except OSError as error:
                self.log.error("Cannot turn aof-enqueue-jobs-once off: {reason}", reason=error.strerror)

    # The store.

    def _change_store(self, name: str) -> None:
        """Follow the setting `persistence`.  Raises BadValue."""
        obstacle = "the node stops" if self.ending else ""
        if self.loading:
            obstacle = "the jobs are being loaded; change the store when that is over"
        self.stores.change(name, obstacle)

    def compact(self) -> None:
        """Begin to rewrite the journal in the background.  Raises CommandError."""
        self.stores.compact()

    # Settings.

    def _follow_settings(self) -> None:
        """Keep what the hot path reads, and act on changes."""
        settings.follow(self.config, self._node)
        follow: dict[str, Callable[[Any], None]] = {
            "requirepass": self.access.set_default_password,
            "acllog-max-len": self.access.denials.set_length,
            "timeout": self._set_timeout,
            "slowlog-log-slower-than": self._set_slow,
            "slowlog-max-len": self.slowlog.set_length,
            "latency-monitor-threshold": self._set_latency,
            "persistence": self._change_store,
            "cluster-link-buffer-limit": self.bus.set_buffer_limit,
            "proto-max-bulk-len": self.bus.set_largest_body,
            "events": self._set_events,
            **dict.fromkeys(_OF_EVENTS, self._set_event_limits),
        }
        for name, action in follow.items():
            self.config.subscribe(name, action)
        self.bus.set_buffer_limit(self.config.cluster_link_buffer_limit)
        self.bus.set_largest_body(self.config.proto_max_bulk_len)

    def _set_events(self, wanted: str) -> None:
        if not self.loading:
            self.event_log.follow(wanted)

    def _set_event_limits(self, _: object) -> None:
        self.event_log.configure(self.config)

    def _set_slow(self, usec: int) -> None:
        self.slowlog.threshold_us = usec
        self.dispatch.find_slow()

    def _set_latency(self, threshold_ms: int) -> None:
        self.latency.threshold_ms = threshold_ms
        self.dispatch.find_slow()

    def config_get(self, pattern: bytes) -> list[tuple[bytes, bytes]]:
        """Settings whose name matches a glob pattern, with their values as text."""
        return [
            (name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in self.config.matching(pattern)
        ]

    def config_set(self, name: bytes, value: bytes) -> None:
        """Change a setting now.  Raises CommandError with Disque's text, and what is allowed behind it."""
        settings.change(self.config, name, value)

    def config_rewrite(self) -> None:
        """Write the settings in force to the configuration file.  Raises CommandError."""
        settings.rewrite(self.config)

    def reset_statistics(self) -> None:
        """Zero the counters that CONFIG RESETSTAT zeroes."""
        self.traffic.reset()
        self.statistics.reset()
        self.strangers.reset()
        self.buffers.reset()
        self._access.reset_counts()
        self._node.state.memory.peak = self._node.state.memory.used
        for entry in every_command():
            entry.tally.reset()

    # Clients.

    def buildProtocol(self, addr: Any) -> ClientConnection:  # type: ignore[override]  # all that a transport calls
        """Make the connection object of a client that has just connected."""
        self._last_id += 1
        return ClientConnection(self, self._last_id)

    def call(
        self, words: Sequence[bytes], *, address: str, is_gone: Callable[[], bool] = lambda: False
    ) -> "Deferred[Any]":
        """Run a command for somebody in this process, whom `address` names; fires with its value or a CommandError.

        Cancelling it gives up what is blocked, and returns jobs that were handed out and not heard of yet.  No job is
        handed out when `is_gone` says that there is nobody any more.
        """
        self._last_id += 1
        return Caller(self, self._last_id, address, is_gone).run(words)

    def make_parser(self) -> RequestParser:
        """A parser with the limits in force."""
        largest = self.config.proto_max_bulk_len
        return RequestParser(max_bulk=largest, max_buffer=max(self.config.client_query_buffer_limit, largest))

    def connected(self, client: ClientConnection) -> None:
        """Take a client in, or turn it away when there are too many."""
        self.statistics.connections += 1
        transport = client.transport
        if not client.is_unix:
            transport.setTcpNoDelay(True)
            if self.config.tcp_keepalive:
                transport.setTcpKeepAlive(True)
                transport.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, self.config.tcp_keepalive)
        self.clients[client.id] = client
        if len(self.clients) > self.config.maxclients and not self.strangers.make_room():
            self.statistics.rejected += 1
            client.refuse(b"ERR max number of clients reached")
        else:
            self.access.greet(client)

    def disconnected(self, client: ClientConnection, handed: list[bytes]) -> None:
        """Forget a client: it takes no job any more, and those that it was to get and did not see go back."""
        self.clients.pop(client.id, None)
        self.strangers.remove(client)
        if client.monitors:
            self.dispatch.unwatch(client)
        if client.subscriptions:
            self.pubsub.forget(client)
        if self.ending:
            return  # what was written of the jobs for the next start holds
        self._node.begin()
        self._node.gone(client, handed)
        self.turn.finish_step(None)

    def sessions(self) -> list[ClientConnection]:
        """Every client connection, oldest first."""
        return list(self.clients.values())

    def name_peer(self, transport: Any) -> str:
        """``ip:port`` of a transport's other end, or the path of the Unix socket of ours and 0."""
        return ends.other_end(transport)

    def is_unix_peer(self, transport: Any) -> bool:
        """True for a connection through a Unix socket."""
        return ends.is_unix(transport)

    def local_address(self, client: Session) -> str:
        """The address of ours that a client came to; empty for a command from within this process."""
        return ends.own_end(client.transport) if isinstance(client, ClientConnection) else ""

    def certificate_name(self, client: Session) -> str:
        """The common name in the certificate that a client has shown; empty for none."""
        return ends.common_name(client.transport) if isinstance(client, ClientConnection) else ""

    def pause_clients(self, span_ms: int) -> None:
        """Run no client's commands for a while."""
        self.traffic.paused = True
        ends = self.reactor.seconds() + span_ms / 1_000
        if self._pause_end is not None and self._pause_end.active():
            if self._pause_end.getTime() >= ends:
                return
            self._pause_end.cancel()
        self._pause_end = self.reactor.callLater(span_ms / 1_000, self._end_pause)

    def _end_pause(self) -> None:
        self.traffic.paused = self.ending
        for client in self.sessions():
            client.queue()

    def _set_timeout(self, seconds: int) -> None:
        if self._idle_check.running:
            self._idle_check.stop()
        if seconds:
            self._idle_check.start(IDLE_CHECK_S, now=False)

    def _close_idle(self) -> None:
        oldest = self._node.clock.now() - self.config.timeout * 1_000
        for client in self.sessions():
            waits = client.is_blocked or client.monitors or client.subscriptions
            if client.active_at < oldest and not waits:
                client.transport.loseConnection()

    # Who may do what.

    @property
    def attempts(self) -> Attempts:
        """What each address has tried: one count for passwords of clients and tokens of admins."""
        return self._access.attempts

    def password_is_set(self) -> bool:
        """True when clients must authenticate."""
        return not self.access.is_open

    def strangers_are_limited(self) -> bool:
        """True when a client that says nothing of who it is may not do everything."""
        default = self._access.users.default
        return not (default.is_open and default.may_do_everything)

    def admin_digest(self) -> bytes:
        """SHA-256 of the password of the settings, if whoever gives it to this node may do everything; b"" = it is not.

        It is that of the user `default`, unless the file of users or ACL SETUSER say otherwise.
        """
        digest, default = self.config.password_digest, self._access.users.default
        counts = default.enabled and default.may_do_everything and digest in default.digests
        return digest if counts else b""

    def log_in(self, client: Session, user: bytes, password: bytes) -> bool:
        """Let a client be a user, if the password is right.  Raises TooManyPasswords (WRONGPASS)."""
        return self.access.log_in(self._listener(client), user, password)

    # While and after a command runs.

    def crashed(self, client: Commander, args: list[bytes]) -> None:
        """Report a bug: to the log, the counters and a file; the node goes on."""
        self.statistics.crashes += 1
        path = self.crashes.write(client.id, args)
        self.log.failure(
            "Internal error in a command of client {client}; its inputs are in {path}", client=client.address, path=path
        )

    def _tick_crashed(self) -> None:
        """Report a bug in what only time did; the node goes on with what is due next."""
        self.statistics.crashes += 1
        path = self.crashes.write(0, [])
        self.log.failure("Internal error in what was due; the last inputs are in {path}", path=path)

    def _message_crashed(self, sender: bytes, message: Message) -> None:
        """Report a bug in what another node made this one do; the node goes on."""
        self.statistics.crashes += 1
        path = self.crashes.write(0, [b"from", sender, repr(message)[:4096].encode()])
        self.log.failure("Internal error in what another node said; it is in {path}", path=path)

    def _hide_inputs(self) -> None:
        """Keep no password in what a crash report would show."""
        if self.traffic.running is not None:
            self.crashes.hide(self.traffic.running.id)

    def monitor(self, client: Session) -> None:
        """Show a client every command from now on."""
        if not isinstance(client, ClientConnection):
            raise CommandError("MONITOR needs a connection of its own: redis-cli MONITOR")
        client.monitors = True
        self.dispatch.watch(client)

    def stop_monitor(self, connection: ClientConnection) -> None:
        """Show a client commands no more."""
        connection.monitors = False
        self.dispatch.unwatch(connection)

    def subscribe(self, client: Session, names: Iterable[bytes], *, patterns: bool) -> list[tuple[bytes, bytes, int]]:
        """Let a client listen to channels, or patterns; returns what it is told for each.  Raises CommandError."""
        return self.pubsub.subscribe(self._listener(client), names, patterns=patterns)

    def unsubscribe(
        self, client: Session, names: Iterable[bytes], *, patterns: bool
    ) -> list[tuple[bytes, bytes | None, int]]:
        """Let it listen no more, to none at all when none is named; returns what it is told for each."""
        return self.pubsub.unsubscribe(self._listener(client), names, patterns=patterns)

    @staticmethod
    def _listener(client: Session) -> ClientConnection:
        if not isinstance(client, ClientConnection):
            raise CommandError("events need a connection of their own: redis-cli SUBSCRIBE")
        return client

    def reset_session(self, client: Session) -> None:
        """Make a connection as new."""
        connection = self._listener(client)
        self.pubsub.forget(connection)
        connection.set_protocol(2)
        connection.name = b""
        connection.reply_mode = "on"
        if connection.monitors:
            self.stop_monitor(connection)
        self.access.reset(connection)

    # What commands ask for.

    def microseconds(self) -> int:
        """Wall clock, unix microseconds."""
        return time.time_ns() // 1_000

    def sleep(self, seconds: float) -> None:
        """Stop the whole daemon for a while, on purpose."""
        time.sleep(seconds)

    def shutdown(self, client: Session, *, rewrite: bool) -> bool:
        """End the daemon after this step; say whether it is ending already, else the client waits for the outcome.

        With `rewrite` a fresh journal is written first.  Raises CommandError when that is not possible.
        """
        if rewrite and self.loading:
            raise CommandError("Errors trying to SHUTDOWN. Check logs.")
        # Whatever ran after the snapshot would be missing in it: nobody's commands and no deadline run any more.
        self.traffic.paused = self.ending = True
        self.driver.halt()
        self.bus.pause()
        if not rewrite:
            self.reactor.callLater(0, self._stop)
            return True
        self.stores.switch.abandon()
        assert isinstance(client, ClientConnection | Caller)
        self.reactor.callLater(0, self._shut_down, client)
        return False

    def _shut_down(self, client: Commander) -> None:
        Deferred.fromCoroutine(self.stores.write_snapshot()).addCallbacks(
            lambda _: self._stop(), self._shutdown_failed, errbackArgs=(client,)
        )

    def _shutdown_failed(self, failure: Failure, client: Commander) -> None:
        """Go on, and say so."""
        if not isinstance(failure.value, StoreError):
            self.log.failure("Internal error while writing the journal", failure=failure)
        self.log.error("Writing the journal failed: {reason}", reason=str(failure.value))
        self.ending = False
        self._node.begin()
        if client.is_blocked:
            error = CommandError("Errors trying to SHUTDOWN. Check logs.")
            self._node.outbox.replies.append((client, error, []))
        self.driver.resume()
        self.bus.resume()
        self._end_pause()

    # The cluster.

    def open_bus(self, addresses: Sequence[str], port: int, adopt: Adopt = adopt_nothing) -> None:
        """Let other nodes connect here, and the node know its addresses and the nodes that it knew.

        Raises CannotListenError.
        """
        config = self.config
        self.bus.listen(addresses, port, config.tcp_backlog, adopt)
        self._node.membership.announce(
            config.cluster_announce_ip,
            config.cluster_announce_port or config.client_port,
            config.cluster_announce_bus_port or self.bus.port,
        )
        self.identity.restore(self._node)

    def leave(self) -> None:
        """Begin to hand on what this node holds: CLUSTER LEAVING yes, said by nobody."""
        self._node.begin()
        self._node.leaving.set(leaving=True)
        self.turn.finish_step(None)

    def bus_facts(self) -> dict[str, Any]:
        """What INFO says of the links to other nodes."""
        return self.bus.facts()

    def secret_is_set(self) -> bool:
        """True when nodes prove to each other that they know a secret."""
        return bool(self.bus.secret)

    def save_identity(self) -> None:
        """Write the file that holds the node's id.  Raises CommandError."""
        try:
            self.identity.save()
        except IdentityError as error:
            raise CommandError(str(error)) from None

    def certificate_ends(self) -> Mapping[str, int]:
        """When each certificate that it shows ends, unix seconds, by where it is shown."""
        return self.tls.ends

    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """What INFO says that the node does not know."""
        return self.statistics.facts(self)

    def persistence_facts(self) -> dict[str, Any]:
        """The section Persistence of INFO."""
        facts = {"loading": int(self.loading), **self.stores.facts()}
        return facts | self.loader.facts() if self.loading else facts
