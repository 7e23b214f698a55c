"""Nodes of one process that know each other: all that they say to each other is said, through sockets in memory.

    commands --arrive--> Socket --+                      +--> clients --+
                                  +--one poll, Rounds--> +              +--> node --> links --send--> another's Socket
    frames ---arrive---> Socket --+                      +--> links ----+

Transports, rounds, connections, handshakes and frames are the daemon's own.  What lies below is not: a socket is a
piece of memory, which tells the node at the other end when something came, and a connection is there as soon as
somebody dials.  One reactor does the turns of all nodes: it is quiet again when nobody has anything more to say.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count, repeat
from pathlib import Path
from random import Random
from select import EPOLLIN
from types import SimpleNamespace
from typing import Any
from unittest import mock

from twisted.internet.defer import maybeDeferred
from twisted.internet.testing import MemoryReactorClock

from benchmarks.measure import SEED
from benchmarks.profile import JOB, Bed
from benchmarks.raw import words
from disqued.net.cluster import identity, links
from disqued.net.loop.rounds import Rounds
from disqued.net.loop.transport import EagerServer

HOST = "127.0.0.1"
FIRST_PORT = 7711
BUS_PORT = 10_000  #: beyond the port for clients
COPIED = (*JOB, b"REPLICATE", b"3")


class Socket:
    """One end of a connection: what is sent at the other one lies here until it is received."""

    def __init__(self, descriptor: int, wake: Callable[[int], None]) -> None:
        """`wake` is told the descriptor when there is something to receive."""
        #: Takes what is sent from here, and says how much of it; `len` = nobody has it.
        self.send: Callable[[bytes], int] = len
        self._descriptor = descriptor
        self._wake = wake
        self._lies = b""

    def arrive(self, data: bytes) -> int:
        """Let something come from the other end."""
        self._lies += data
        self._wake(self._descriptor)
        return len(data)

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive what came."""
        if not self._lies:
            raise BlockingIOError
        data, self._lies = self._lies[:size], self._lies[size:]
        if self._lies:
            self._wake(self._descriptor)
        return data

    def fileno(self) -> int:
        """The number by which it is told from others."""
        return self._descriptor

    def getsockname(self) -> tuple[str, int]:
        """Our end."""
        return HOST, FIRST_PORT

    def ignore(self, *values: object) -> None:
        """What only a real socket has."""

    setblocking = setsockopt = ignore


class Place:
    """A node, and what is connected to it."""

    def __init__(self, folder: Path, number: int, reactor: MemoryReactorClock, addition: bytes) -> None:
        self.port = FIRST_PORT + number
        folder.mkdir()
        said = (
            f"cluster-announce-ip {HOST}\ncluster-announce-port {self.port}\n"
            f"cluster-announce-bus-port {self.port + BUS_PORT}\n"
        )
        self.bed = Bed.make(folder, settings=said, seed=SEED + number, reactor=reactor, addition=addition)
        self.bed.daemon.open_bus([], 0)
        self._reactor = reactor
        self._selectables: dict[int, EagerServer] = {}
        self._rounds = Rounds(self._selectables, _unexpected, _unexpected, repeat(0.0).__next__)
        self._rounds.keep_back_with(self.bed.daemon.turn)
        self._readable: list[int] = []
        self._descriptors = count()

    def transport(self, protocol: Any) -> EagerServer:
        """Make a protocol's transport, which is not given to it yet."""
        descriptor = next(self._descriptors)
        below: Any = Socket(descriptor, self._wake)
        port: Any = SimpleNamespace(_realPortNumber=0)
        transport = self._selectables[descriptor] = EagerServer(
            below, protocol, (HOST, 0), port, descriptor, self._reactor
        )
        return transport

    def client(self) -> EagerServer:
        """Let a client come, of which nobody reads the replies."""
        protocol: Any = self.bed.daemon.clients.buildProtocol(None)
        transport = self.transport(protocol)
        protocol.makeConnection(transport)
        return transport

    def _wake(self, descriptor: int) -> None:
        """Note that something can be received, and do so in this place's next turn."""
        if not self._readable:
            self._reactor.callLater(0, self._poll)
        self._readable.append(descriptor)

    def _poll(self) -> None:
        events = [(descriptor, EPOLLIN) for descriptor in dict.fromkeys(self._readable)]
        self._readable.clear()
        self._rounds.run(events)


def _unexpected(*what: Any) -> None:
    raise AssertionError(f"a connection was to be read from, and not this: {what}")


class Together:
    """Nodes that have met."""

    def __init__(self, folder: Path, nodes: int, stack: ExitStack, terms: Sequence[bytes] = ()) -> None:
        """Let nodes meet; what they need of this process is given back when the stack is left.

        `terms`: further words of each ADDJOB.
        """
        self.reactor = MemoryReactorClock()  # type: ignore[no-untyped-call]
        stack.enter_context(mock.patch.object(links, "EagerConnector", self._connector))
        stack.enter_context(mock.patch.object(links, "token_bytes", Random(SEED).randbytes))
        stack.enter_context(mock.patch.object(identity, "deferToThread", maybeDeferred))
        addition = words(*COPIED, *terms)
        self.places = [Place(folder / str(number), number, self.reactor, addition) for number in range(nodes)]
        self._by_bus = {place.bed.daemon.bus: place for place in self.places}
        self._by_port = {place.port + BUS_PORT: place for place in self.places}
        for number, place in enumerate(self.places):
            for other in self.places[number + 1 :]:
                place.bed.client.dataReceived(words(b"CLUSTER", b"MEET", HOST.encode(), b"%d" % other.port))
        self.reactor.advance(0)
        for place in self.places:
            assert len(place.bed.node.state.peers.reachable) == nodes - 1

    def _connector(self, host: str, port: int, factory: Any, *others: object) -> SimpleNamespace:
        """Dial another place instead of a machine."""

        def connect() -> None:
            here, there = self._by_bus[factory.bus], self._by_port[port]
            heard = there.bed.daemon.bus.buildProtocol(None)
            ends = here.transport(factory.buildProtocol(None)), there.transport(heard)
            for end, other in (ends, ends[::-1]):
                end.socket.send = other.socket.arrive
                end.handle.open(end.socket)
            for end in ends:
                end.protocol.makeConnection(end)

        return SimpleNamespace(connect=connect)
