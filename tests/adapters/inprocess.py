"""A whole daemon in the process of the test, on a free port of the loopback interface, and a raw client for it."""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import attrs
import hiredis
from twisted.internet import defer, reactor, task
from twisted.internet.defer import Deferred
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Protocol

from disqued.commands import catalogue
from disqued.config import Config
from disqued.core.model.messages import Message
from disqued.core.model.outbox import WATERMARK, Record
from disqued.core.node import Node
from disqued.cron import CronCalendar
from disqued.net.cluster.identity import Identity
from disqued.net.loop.clock import SystemClock
from disqued.net.loop.reactor import EpollReactor
from disqued.net.loop.transport import EagerPort
from disqued.net.process.daemon import Daemon
from disqued.persistence.eventlog.log import EventLog
from disqued.persistence.interface import StoreFailed
from disqued.persistence.null import NullFactory

assert catalogue.MODULES

FIRST_RECORD = (WATERMARK, 1)  #: what every journal begins with
GENEROUS_S = 30.0  #: longer than anything here takes on the slowest machine


class RawClient(Protocol):
    """Sends bytes and waits for bytes."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.lost = False
        self._reader = hiredis.Reader()
        self._replies: list[Any] = []
        self._watchers: list[tuple[Callable[[], bool], defer.Deferred[None]]] = []

    def dataReceived(self, data: bytes) -> None:
        """Keep what comes."""
        self.received += data
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._replies.append(reply)
        self._look()

    def connectionLost(self, reason: Any = None) -> None:
        """Note the end."""
        self.lost = True
        self._look()

    def until(self, condition: Callable[[], bool]) -> "defer.Deferred[None]":
        """Fire when a condition on this client holds; fail after a generous while."""
        done: defer.Deferred[None] = defer.Deferred()
        self._watchers.append((condition, done))
        done.addTimeout(GENEROUS_S, reactor)
        self._look()
        return done

    def _look(self) -> None:
        for watcher in list(self._watchers):
            condition, done = watcher
            if condition():
                self._watchers.remove(watcher)
                if not done.called:
                    done.callback(None)

    def send(self, *args: bytes | str | int) -> None:
        """Send one command."""
        self.transport.write(pack(*args))

    async def replies(self, count: int) -> list[Any]:
        """Wait for `count` replies and take them."""
        await self.until(lambda: len(self._replies) >= count)
        taken, self._replies = self._replies[:count], self._replies[count:]
        return taken

    async def call(self, *args: bytes | str | int) -> Any:
        """Send one command and wait for its reply."""
        self.send(*args)
        return (await self.replies(1))[0]

    async def closed(self) -> None:
        """Wait until the other end has closed."""
        await self.until(lambda: self.lost)

    @property
    def unread_replies(self) -> int:
        """Replies that came and were not taken."""
        return len(self._replies)


def pack(*args: bytes | str | int) -> bytes:
    """A command as clients send it."""
    words = [word if isinstance(word, bytes) else str(word).encode() for word in args]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


@attrs.define(slots=False)
class RecordingStore:
    """A store in memory that counts its commits and can be told to fail."""

    records: bool = True
    restores_queues: bool = False
    wants_compaction: bool = False
    bytes_total: int = 0
    bytes_loaded: int = 0
    compacted: list[Record] = attrs.field(factory=list)
    stored: list[Record] = attrs.field(factory=list)
    appended: list[Record] = attrs.field(factory=list)
    committed: list[Record] = attrs.field(factory=list)
    commits: int = 0
    looks: int = 0
    answering: list[Record] = attrs.field(factory=list)
    fails: bool = False
    later: bool = False  #: commits answer a Deferred, which `answer` fires
    under_way: "Deferred[None] | None" = None
    closed: bool = False
    discarded: bool = False
    before_commit: Callable[[], None] = lambda: None

    def open(self) -> None:
        """Nothing to open."""

    def load(self) -> Any:
        """Yield what was stored before."""
        return iter(self.stored)

    def append(self, records: list[Record]) -> None:
        """Keep records, but for the one that every journal begins with."""
        self.appended += [record for record in records if record != FIRST_RECORD]

    def look(self) -> None:
        """Everything is there."""
        self.looks += 1

    def secure(self) -> None:
        """What is committed is safe."""

    def commit(self) -> "Deferred[None] | None":
        """Count."""
        self.before_commit()
        if self.later:
            assert self.under_way is None
            self.under_way = Deferred()
            self.answering, self.appended = self.appended, []
            return self.under_way
        if self.fails:
            raise StoreFailed("No space left on device", final=False)
        self.commits += 1
        self.committed += self.appended
        self.appended = []
        return None

    def answer(self, error: StoreFailed | None = None) -> None:
        """End the commit that is under way."""
        under_way, self.under_way = self.under_way, None
        assert under_way is not None
        if error is None:
            self.commits += 1
            self.committed += self.answering
            under_way.callback(None)
        else:
            self.appended = self.answering + self.appended
            under_way.errback(error)

    def answer_at_once(self) -> None:
        """Let nothing wait any more."""
        self.later = False
        if self.under_way is not None:
            self.answer()

    def renew(self) -> None:
        """Forget what was stored."""
        self.committed = []

    def configure(self, config: Any) -> None:
        """Nothing to follow."""

    def compact(self, records: Any) -> None:
        """Draw everything at once."""
        self.wants_compaction = False
        self.compacted = [record for record in records if record != FIRST_RECORD]

    def rewrite(self, records: Any) -> None:
        """Take records as the new content."""
        self.committed = list(records)

    def status(self) -> dict[str, int | str]:
        """Nothing to tell."""
        return {}

    def discard(self) -> None:
        """Note it."""
        self.closed = self.discarded = True

    def close(self) -> None:
        """Note it."""
        self.closed = True


@attrs.define
class Running:
    """A daemon that listens, and what was connected to it."""

    daemon: Daemon
    port: Any
    clients: list[RawClient] = attrs.field(factory=list)
    stopped: bool = False
    ended: bool = False

    async def connect(self) -> RawClient:
        """Connect one more client."""
        endpoint = TCP4ClientEndpoint(reactor, "127.0.0.1", self.port.getHost().port)
        client = await connectProtocol(endpoint, RawClient())
        self.clients.append(client)
        return client

    @property
    def bus_port(self) -> int:
        """Where other nodes connect to."""
        return self.daemon.bus.port

    def take_no_time(self) -> None:
        """Let commands take no time: one that a busy machine interrupts makes its client wait for another turn."""
        self.daemon.traffic.dispatch.seconds = lambda: 0.0

    def meet(self, other: "Running") -> None:
        """Join the node that another daemon runs."""
        node = self.daemon.node
        node.begin()
        node.membership.meet("127.0.0.1", other.port.getHost().port, other.bus_port)
        self.daemon.turn.finish_step(None)

    def send(self, *messages: tuple[bytes, Message]) -> None:
        """Let the node say something to others, as a step of it would."""
        node = self.daemon.node
        node.begin()
        node.outbox.messages += messages
        self.daemon.turn.finish_step(None)

    async def stop(self) -> None:
        """End everything."""
        if self.ended:
            return
        self.ended = True
        for client in self.clients:
            if not client.lost:
                client.transport.abortConnection()
        await defer.maybeDeferred(self.port.stopListening)
        for store in (self.daemon.driver.store, self.daemon.driver.handover.successor):
            if isinstance(store, RecordingStore):
                store.answer_at_once()
        await self.daemon.stop()
        await wait_until(lambda: not self.daemon.clients.by_id)
        for call in reactor.getDelayedCalls():
            if getattr(call.func, "__self__", None) in (self.daemon, self.daemon.driver):
                call.cancel()


async def wait_until(condition: Callable[[], bool]) -> None:
    """Wait, turn by turn of the loop, for a condition; fail after a generous while."""
    end = reactor.seconds() + GENEROUS_S
    while not condition():
        assert reactor.seconds() < end, "the condition never came true"
        await task.deferLater(reactor, 0.001)


def start(
    folder: Path, settings: str = "", store: Any = None, stores: dict[str, Any] | None = None, store_name: str = "", *,
    seed: int = 7, bus: bool = False, bus_port: int = 0, secret: bytes = b"",
) -> Running:  # fmt: skip
    """Start a daemon whose data lie in `folder`; its id comes from the seed, and with `bus` other nodes can connect."""
    config = Config.from_text(f"dir {folder}\n{settings}")
    rng = Random(seed)
    identity = Identity.load(folder / "nodes.conf", 7711, rng)
    clock = SystemClock()
    if store is None:
        store = NullFactory().create(config, reactor, clock)
        store.open()
    node = Node(identity.node_id, clock, rng, maxmemory=config.maxmemory, calendar=CronCalendar())
    daemon = Daemon(
        config, node, identity, store, reactor, store_name=store_name or config.persistence,
        open_store=(stores or {}).__getitem__, event_log=EventLog(node, reactor, config), secret=secret,
    )  # fmt: skip
    port = EagerPort(0, daemon.clients, 50, "127.0.0.1", reactor)
    port.startListening()

    def stop() -> None:
        running.stopped = True

    running = Running(daemon, port)
    daemon.open_bus(("127.0.0.1",) if bus else (), bus_port)
    daemon.start(stop)
    if isinstance(reactor, EpollReactor):
        reactor.rounds.keep_back_with(daemon.turn)
    return running
