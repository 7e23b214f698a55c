"""The daemon: one node with its settings, its clients, its links and its store, from start to stop.

It makes its parts, each after those that it knows:

    CrashReports, Buffers, PubSub
        Bus          knows PubSub (events of this node), Buffers
        Members      Bus, nodes.conf
        Driver       Bus, Members, event log, the store  ---> Turn: the commit rule
        StoreKeeper  Driver: another store, compaction
        Access       PubSub: users
        Dispatch     Access: runs commands
        Traffic      Dispatch, Turn, Buffers: what every request touches
        Clients      Traffic, Access, PubSub: a ClientConnection and its ClientSession for each client
        Loader       the store, until the jobs are loaded

Three calls go the other way, by closures: a message of another node ends a step of the turn, users look for their
connections, and a password among the words of a command is hidden in crash reports.  A `ClientConnection` knows the
daemon as `connection.ClientHome` alone, a command as `Host`, the admin side as `Gateway`: the parts are attributes, so
that each is asked for what it does itself.

Source: Disque, src/server.c, src/config.c.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.commands.dispatch import Dispatch
from disqued.commands.host import Session
from disqued.commands.latency import LatencyMonitor
from disqued.commands.slowlog import SlowLog
from disqued.commands.table import every_command
from disqued.config import Config
from disqued.core.node import Node
from disqued.core.recovery import Recovery
from disqued.core.view import NodeView
from disqued.errors import CommandError
from disqued.net.clients.access import Access
from disqued.net.clients.callers import Caller, Commander
from disqued.net.clients.client_registry import ClientRegistry
from disqued.net.clients.connection import ClientSession
from disqued.net.clients.pubsub import PubSub
from disqued.net.clients.traffic import Traffic
from disqued.net.clients.unauthenticated import UnauthenticatedClients
from disqued.net.cluster.asked import Answers
from disqued.net.cluster.bus import Bus
from disqued.net.cluster.identity import Identity
from disqued.net.cluster.topology import Topology
from disqued.net.loop.buffers import Buffers
from disqued.net.loop.certificates import TlsListeners
from disqued.net.loop.passed import Adopt, adopt_nothing
from disqued.net.loop.turns import BusyClients
from disqued.net.process.crashes import CrashReports
from disqued.net.process.driver import Commits, Driver
from disqued.net.process.handover import begin_watermark
from disqued.net.process.loading import Loader
from disqued.net.process.settings import LiveSettings, follow_bus, follow_events, follow_node, follow_slow
from disqued.net.process.statistics import Statistics
from disqued.net.process.storekeeper import StoreKeeper
from disqued.net.process.switching import OpenStore
from disqued.persistence.interface import IEventLog, IStore, StoreError


class Daemon:
    """A running disqued: the `Host` of commands, and the `Gateway` of the admin side."""

    log = Logger()
    clients: ClientRegistry

    def __init__(
        self, config: Config, node: Node, identity: Identity, store: IStore, reactor: Any, *,
        store_name: str, open_store: OpenStore, event_log: IEventLog, secret: bytes = b"",
    ) -> None:  # fmt: skip
        """Take an open store and its name, what opens another one, the event log, and the secret of the cluster.

        Raises AclFileError.
        """
        self.config = config
        self.node = node
        self.view = NodeView(node)  #: what the admin side reads
        self.identity = identity
        self.event_log = event_log
        self.reactor = reactor
        self.statistics = Statistics(node.clock.now())
        self.crashes = CrashReports(config.dir)
        self.buffers = Buffers(node.state.memory)
        self.tls = TlsListeners(reactor)
        self.pubsub = PubSub(node, reactor)
        self.bus = Bus(
            node, reactor, secret=secret, finish_step=lambda: self.turn.finish_step(None),
            on_crash=self.crashes.message, on_event=self.pubsub.publish, buffers=self.buffers,
        )  # fmt: skip
        self._answers_to = Answers(
            node,
            lambda: self.clients,
            soon=partial(reactor.callLater, 0),
            finish_step=lambda: self.turn.finish_step(None),
        )
        self._members = Topology(node, self.bus, identity, reactor)
        self.driver = Driver(
            node, store, reactor, send=self.bus.send, on_members=self._members.changed, on_trail=event_log.wake,
            on_crash=self.crashes.tick, on_asked=self._answers_to.take,
        )  # fmt: skip
        self.turn = self.driver.turn
        self.stores = StoreKeeper(config, self.driver, store_name, open_store, obstacle=self._obstacle)
        self.loader = Loader(node, store, reactor, done=self._loaded, failed=self._not_loaded)
        self.access = Access(
            config, node, self.pubsub, reactor.seconds, sessions=self._sessions,
            on_password=self._hide_inputs,
        )  # fmt: skip
        self.slowlog = SlowLog(config.slowlog_log_slower_than, config.slowlog_max_len)
        self.latency = LatencyMonitor(config.latency_monitor_threshold)
        self.dispatch = Dispatch(
            node, seconds=perf_counter, microseconds=self.microseconds, on_crash=self.crashes.command,
            failure=lambda: self.turn.failure, slowlog=self.slowlog, latency=self.latency, permissions=self.access,
            activity=self.statistics,
        )  # fmt: skip
        self.dispatch.set_loading(loading=True)
        self.traffic = Traffic(self.dispatch, self.turn, self.buffers, BusyClients(reactor))
        self.unauthenticated = UnauthenticatedClients(config, reactor)
        self.clients = ClientRegistry(
            config, reactor, self, self.traffic, access=self.access, pubsub=self.pubsub,
            unauthenticated=self.unauthenticated, recent=self.crashes.recent,
        )  # fmt: skip
        self.settings = LiveSettings(config)
        follow_node(config, node)
        follow_bus(config, self.bus)
        follow_slow(config, self.dispatch)
        follow_events(config, event_log, lambda: self.loading)
        self.exit_status = 0
        self._stop: Callable[[], None] = lambda: None
        self._ready: Callable[[], None] = lambda: None
        self._failed: Callable[[str], None] = lambda reason: None

    @property
    def loading(self) -> bool:
        return self.dispatch.loading

    @property
    def ending(self) -> bool:
        return self.traffic.ending

    @property
    def turns(self) -> BusyClients:
        return self.traffic.busy

    @property
    def paused(self) -> bool:
        return self.traffic.paused

    @property
    def store_failure(self) -> str | None:
        return self.turn.failure

    @property
    def commits(self) -> Commits:
        return self.driver.commits

    # Start and stop.

    def open_bus(self, addresses: Sequence[str], port: int, adopt: Adopt = adopt_nothing) -> None:
        """Let other nodes connect here, and the node know its addresses and the nodes that it knew.

        Raises CannotListenError.
        """
        config = self.config
        self.bus.listen(addresses, port, config.tcp_backlog, adopt)
        self.node.membership.own_address.announce(
            config.cluster_announce_ip,
            config.cluster_announce_port or config.client_port,
            config.cluster_announce_bus_port or self.bus.port,
        )
        self.identity.restore(self.node)

    def start(
        self, stop: Callable[[], None], ready: Callable[[], None] = lambda: None,
        failed: Callable[[str], None] = lambda reason: None,
    ) -> None:  # fmt: skip
        """Begin to load and to count; `stop` ends the process.

        `ready` is called when the node has loaded its jobs and serves, `failed` with the reason when it cannot.
        """
        self._stop, self._ready, self._failed = stop, ready, failed
        self.statistics.watch(self, self.dispatch.find_guards)
        self.clients.start()
        self.loader.start()

    def leave(self) -> None:
        """Begin to hand on what this node holds: CLUSTER LEAVING yes, said by nobody."""
        self.node.begin()
        self.node.leaving.set(leaving=True)
        self.turn.finish_step(None)

    async def stop(self) -> None:
        """Run nobody's commands any more, commit, and let go of everything."""
        self._pause_all()
        self.clients.stop()
        self.statistics.stop()
        self.stores.stop()
        try:
            await self.driver.stop()
        except StoreError as error:
            self.log.critical("The journal could not be closed: {reason}", reason=str(error))
            self.exit_status = 1
        self.node.begin()  # the last line is of now, and not of the last step
        published = self.event_log.stop()
        if published is not None:
            await published
        await self.clients.part()
        await self.bus.stop()
        self.tls.stop()
        self._members.stop()
        self.identity.release()

    def _pause_all(self) -> None:
        """Hear neither clients nor other nodes: the end begins."""
        self.traffic.paused = self.traffic.ending = True
        self.bus.pause()

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
        self.node.note_expired(recovery.expired)
        self.node.begin()
        recovery.finish()
        begin_watermark(self.turn)
        self.node.workers.recover(recovery.held)
        self.node.acksets.resume()
        # A flush in the journal took their deadlines along.
        self.node.membership.detector.plan()
        self.node.leaving.wake()
        self.node.policies.resume()
        self.node.idleness.resume()
        self.node.gates.resume()
        self.node.admission.start()
        self.node.schedules.start()
        self.driver.run_due()
        self.bus.start()
        self.stores.go_where_configured()
        self.stores.start()
        self._ready()

    def _not_loaded(self, reason: str) -> None:
        self.log.critical("The node does not start: {reason}", reason=reason)
        self.exit_status = 1
        self._failed(reason)
        self._stop()

    def _forget_once(self) -> None:
        """Turn aof-enqueue-jobs-once off: it was meant for this start alone."""
        self.config.set("aof-enqueue-jobs-once", "no")
        if self.config.file is not None:
            try:
                self.config.rewrite()
            except OSError as error:
                self.log.error("Cannot turn aof-enqueue-jobs-once off: {reason}", reason=error.strerror)

    # SHUTDOWN.

    def shutdown(self, client: Session, *, rewrite: bool) -> bool:
        """End the daemon after this step; say whether it is ending already, else the client waits for the outcome.

        With `rewrite` a fresh journal is written first.  Raises CommandError when that is not possible.
        """
        if rewrite and self.loading:
            raise CommandError("Errors trying to SHUTDOWN. Check logs.")
        # Whatever ran after the snapshot would be missing in it: nobody's commands and no deadline run any more.
        self._pause_all()
        self.driver.halt()
        if not rewrite:
            self.reactor.callLater(0, self._stop)
            return True
        self.stores.switch.abandon()
        assert isinstance(client, ClientSession | Caller)
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
        self.traffic.ending = False
        self.node.begin()
        if client.is_blocked:
            error = CommandError("Errors trying to SHUTDOWN. Check logs.")
            self.node.outbox.replies.append((client, error, []))
        self.driver.resume()
        self.bus.resume()
        self.clients.end_pause()

    # What commands ask for.

    def microseconds(self) -> int:
        return time.time_ns() // 1_000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        return self.statistics.facts(self)

    def reset_statistics(self) -> None:
        for part in (self.traffic, self.statistics, self.crashes, self.clients, self.buffers):
            part.reset()
        self.access.reset_counts()
        self.node.state.memory.peak = self.node.state.memory.used
        for entry in every_command():
            entry.tally.reset()

    # What its parts ask for.

    def _sessions(self) -> list[ClientSession]:
        return self.clients.sessions()

    def _hide_inputs(self) -> None:
        """Keep no password in what a crash report would show."""
        if self.traffic.running:
            self.crashes.hide(self.traffic.running)

    def _obstacle(self) -> str:
        """Return why the store cannot be changed now; empty when it can."""
        if self.loading:
            return "the jobs are being loaded; change the store when that is over"
        return "the node stops" if self.ending else ""
