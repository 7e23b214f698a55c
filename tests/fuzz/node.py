"""A daemon on a clock of its own, without sockets and files but those in a folder that is thrown away."""

import gc
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any
from unittest import mock

import attrs
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock as Reactor

from disqued.commands import catalogue  # noqa: F401 - completes the table of commands
from disqued.config import Config
from disqued.core.node import Node
from disqued.net.clients.connection import ClientConnection
from disqued.net.cluster.identity import Identity
from disqued.net.process.daemon import Daemon
from disqued.persistence.eventlog.log import EventLog
from disqued.persistence.null import NullFactory
from disqued.testing.clock import Clock

#: Settings that would write files, or start what a clock alone cannot end.
_LEFT_ALONE = ("persistence", "appendonly", "events")
TURNS = 200  #: of the loop, at most, for what is put off


class Wire:
    """A transport that keeps what is written."""

    refused = False
    unsent = 0

    def __init__(self) -> None:
        self.written = bytearray()
        self.ended = False
        self.socket = self

    def write(self, data: bytes) -> None:
        """Keep it, unless the connection has ended."""
        if not self.ended:
            self.written += data

    def is_gone(self) -> bool:
        """Tell whether it has ended."""
        return self.ended

    def is_busy(self) -> bool:
        """Tell whether something is under way: nothing ever is here."""
        return False

    def loseConnection(self) -> None:
        """End."""
        self.ended = True

    abortConnection = loseConnection

    def getPeer(self) -> IPv4Address:
        """The other end."""
        return IPv4Address("TCP", "127.0.0.1", 1)

    getHost = getPeer

    def fileno(self) -> int:
        """A number that is none."""
        return 99

    def ignore(self, *_: object, **more: object) -> None:
        """Do nothing."""

    registerProducer = unregisterProducer = pauseProducing = resumeProducing = setTcpNoDelay = setTcpKeepAlive = ignore
    setsockopt = ignore


@attrs.define
class Fuzzed:
    """The daemon, and what it runs on."""

    daemon: Daemon
    reactor: Reactor

    def client(self) -> tuple[ClientConnection, Wire]:
        """Connect a client."""
        wire = Wire()
        connection: Any = self.daemon.clients.buildProtocol(None)
        connection.makeConnection(wire)
        return connection, wire

    def turn(self) -> None:
        """Let what is put off happen, until nothing is."""
        for _ in range(TURNS):
            if not any(call.getTime() <= self.reactor.seconds() for call in self.reactor.getDelayedCalls()):
                return
            self.reactor.advance(0)

    def check(self) -> None:
        """Raise AssertionError when the daemon has met a bug of its own."""
        reports = "".join(path.read_text() for path in self.daemon.config.dir.glob("crash-*.txt"))
        assert not self.daemon.crashes.count, reports


@contextmanager
def fuzzed(settings: str = "", files: Mapping[str, str] = MappingProxyType({})) -> Iterator[Fuzzed]:
    """A daemon that serves, with these settings and these files, for its owner alone, in its folder."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            file = Path(folder) / name
            file.touch(mode=0o600)
            file.write_text(text)
        config = Config.from_text(f'dir {folder}\nhttp-audit-file ""\n{settings}')
        reactor, clock, rng = Reactor(), Clock(), Random(7)
        identity = Identity.load(Path(folder) / "nodes.conf", 7711, rng)
        store: Any = NullFactory().create(config, reactor, clock)
        store.open()
        node = Node(identity.node_id, clock, rng, maxmemory=64 << 20)
        daemon = Daemon(
            config, node, identity, store, reactor, store_name="none", open_store=lambda name: store,
            event_log=EventLog(node, reactor, config),
        )  # fmt: skip
        stand_in: Any = daemon
        set_one = daemon.settings.change
        stand_in.settings.change = lambda name, value: (
            None if name.decode("latin-1").lower() in _LEFT_ALONE else set_one(name, value)
        )
        stand_in.sleep = lambda seconds: None
        stand_in.shutdown = lambda client, *, rewrite: True
        found = Fuzzed(daemon, reactor)
        daemon.start(lambda: None)
        # A load hides what it made from the collector, for the life of a process: that of thousands of daemons here.
        with mock.patch.object(gc, "freeze"):
            while daemon.loading:
                reactor.advance(0.01)
        yield found
        identity.release()
        # What is large of a daemon goes at once: the collector finds its cycles too late for thousands of them.
        node.state.jobs._tables.clear()
