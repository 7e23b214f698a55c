"""A prototype: clients on sockets of uvloop, under the same protocol, beside the daemon's own loop.

    python -m benchmarks.uvsockets         both daemons, in turns, under the same loads (pip install uvloop)

          own:     epoll reactor --> rounds --> ClientConnection --> send         disqued/net/rounds.py
       uvloop:     libuv --> uvloop's transport --> ClientConnection --> uvloop's transport

It is here to be measured again when either changes: sockets of uvloop would be offered as an endpoint if they won by
more than a tenth, which they do not.  docs/decisions/0013-the-loop-works-in-rounds.md has the figures.  What it leaves
out (flow control, half-closed connections, what became of a write) would only cost more.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any
from unittest import mock

from twisted.internet.address import IPv4Address
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IProtocolFactory
from twisted.python.failure import Failure

from benchmarks.figures import ratios, spread, told
from benchmarks.machine import Processors, facts, stamp
from benchmarks.measure import DEFAULT_ROUNDS, Bench
from benchmarks.servers import Disqued, redis_version
from benchmarks.throughput import ADDJOB, GETJOB, PIPELINE, Load

CASES = (
    ("PING, no pipelining", ("PING",), 1),
    ("ADDJOB, no pipelining", ADDJOB, 1),
    (f"ADDJOB, pipeline {PIPELINE}", ADDJOB, PIPELINE),
    (f"GETJOB, pipeline {PIPELINE}", GETJOB, PIPELINE),
    ("PING that echoes 4 KiB", ("PING", "x" * 4_096), 1),
    ("PING that echoes 64 KiB", ("PING", "x" * 65_536), 1),
)
LIMIT_S = 600.0


class Transport:
    """A transport of uvloop's, as `ClientConnection` wants one."""

    refused = False
    unsent = 0

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self.socket = transport.get_extra_info("socket")
        self.write: Callable[[bytes], None] = transport.write
        self.loseConnection: Callable[[], None] = transport.close
        self.abortConnection: Callable[[], None] = transport.abort
        self.pauseProducing: Callable[[], None] = transport.pause_reading
        self.resumeProducing: Callable[[], None] = transport.resume_reading

    def getPeer(self) -> IPv4Address:
        """The other end."""
        return IPv4Address("TCP", *self._transport.get_extra_info("peername"))

    def getHost(self) -> IPv4Address:
        """Our end."""
        return IPv4Address("TCP", *self._transport.get_extra_info("sockname"))

    def fileno(self) -> int:
        """The descriptor."""
        return int(self.socket.fileno())

    def is_gone(self) -> bool:
        """Not known here before it is told."""
        return False

    def is_busy(self) -> bool:
        """Not asked of the system here."""
        return False

    def ignore(self, *values: object, **named: object) -> None:
        """What the prototype does without."""

    registerProducer = unregisterProducer = setTcpNoDelay = setTcpKeepAlive = ignore


class Adapter(asyncio.Protocol):
    """Gives uvloop's events to a protocol of Twisted's."""

    def __init__(self, factory: Any) -> None:
        self._factory = factory

    def connection_made(self, transport: Any) -> None:
        """Make the connection's protocol."""
        made = Transport(transport)
        self._protocol = self._factory.buildProtocol(made.getPeer())
        self._protocol.makeConnection(made)

    def data_received(self, data: bytes) -> None:
        """Give it what came."""
        self._protocol.dataReceived(data)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the protocol."""
        self._protocol.connectionLost(Failure(error or ConnectionDone()))  # type: ignore[no-untyped-call]


class Port:
    """Stands in for `EagerPort`."""

    def __init__(self, port: int, factory: IProtocolFactory, backlog: int, interface: str, reactor: Any) -> None:
        self._address = interface or "127.0.0.1", port
        self._factory = factory
        self._reactor = reactor

    def startListening(self) -> None:
        """Listen."""
        loop = self._reactor._asyncioEventloop
        loop.create_task(loop.create_server(lambda: Adapter(self._factory), *self._address))

    def stopListening(self) -> None:
        """The process ends."""

    def getHost(self) -> IPv4Address:
        """Where it listens."""
        return IPv4Address("TCP", *self._address)


def serve() -> None:
    """Be a daemon whose clients come on sockets of uvloop; the command line is the daemon's."""
    loop = import_module("uvloop").new_event_loop()
    asyncio.set_event_loop(loop)
    import_module("twisted.internet.asyncioreactor").install(loop)
    tap = import_module("disqued.tap")  # it wants the reactor
    with mock.patch.object(tap, "EagerPort", Port):
        tap.main()


class OnUvloop(Disqued):
    """The daemon of the prototype."""

    def arguments(self) -> list[str]:
        """Its command line."""
        plain = super().arguments()
        return [*plain[:2], "from benchmarks.uvsockets import serve; serve()", *plain[3:]]


def main() -> int:
    """Measure; returns 2 where uvloop is missing."""
    try:
        uvloop = import_module("uvloop")
    except ImportError:
        print("benchmarks: uvloop is not installed (pip install uvloop)", file=sys.stderr)
        return 2
    processors = Processors.find()
    line = stamp(facts(processors, redis_version()))
    processors.become_client()
    bench = Bench(processors, until=time.monotonic() + LIMIT_S)
    with OnUvloop(processors) as other, Disqued(processors) as own:
        for title, command, pipeline in CASES:
            loads = [Load(server, command, pipeline, command is GETJOB) for server in (other, own)]
            counts = [each.trial(bench) for each in loads]
            for _ in range(DEFAULT_ROUNDS):
                for each, count in zip(loads, counts, strict=True):
                    each.round(bench, count)
            theirs, ours = (each.rates for each in loads)
            print(f"{title}: uvloop {told(spread(theirs), '/s')}, own loop {told(spread(ours), '/s')}, ", end="")
            print(f"uvloop / own {told(ratios(theirs, ours))}", flush=True)
    print(f"[uvloop {uvloop.__version__}; {line}; {DEFAULT_ROUNDS} rounds]")
    return 0


if __name__ == "__main__":
    sys.exit(main())
