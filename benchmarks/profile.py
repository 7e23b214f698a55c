"""The hot path inside one process: microseconds a command, without sockets.

``python -m benchmarks.profile addjob|getjob|ackjob [--pipeline N] [--count N] [--listing]``

    chunk --parse--> words --dispatch--> command object --core--> value --encode--> reply --write
    \\___________________________________ whole: ClientConnection.dataReceived __________________/

Each stage is run alone over the same commands, on a node of its own; what is left of the whole is the connection's
and the driver's own part: clocks, statistics, deadlines, the write.  A loop as tight as this one finds everything in
the caches of the processor.  Between two system calls nothing is, and the same code takes two to three times as
long: use these figures to compare one version with another, and `python -m benchmarks` to know how fast it is.
"""

import cProfile
import pstats
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import attrs
from twisted.internet.address import IPv4Address
from twisted.internet.testing import MemoryReactorClock

from benchmarks.measure import SEED
from benchmarks.raw import words
from disqued.commands import catalogue
from disqued.commands.table import PLAIN
from disqued.config import Config
from disqued.core.node import Node
from disqued.net.clients.connection import ClientConnection
from disqued.net.cluster.identity import Identity
from disqued.net.loop.clock import SystemClock
from disqued.net.process.daemon import Daemon
from disqued.persistence.eventlog.log import EventLog
from disqued.persistence.plugins import find_store
from disqued.tap import tune_collector
from disqued.testing.arguments import ExactParser
from disqued.wire.requests import RequestParser

QUEUE, BODY = b"bench", b"hello"
JOB = (b"ADDJOB", QUEUE, BODY, b"0")
ADDITION = words(*JOB)
ROUNDS = 15
LISTED = 25

assert catalogue.MODULES  # importing it completes the table


class Transport:
    """What a connection needs of a transport: replies go nowhere."""

    refused = False
    unsent = 0

    def __init__(self) -> None:
        self.socket = self
        self.write: Callable[[bytes], Any] = self._discard

    def _discard(self, data: bytes) -> None:
        """Send."""

    def getHost(self) -> IPv4Address:
        """Our end."""
        return IPv4Address("TCP", "127.0.0.1", 7711)

    def getPeer(self) -> IPv4Address:
        """The other end."""
        return IPv4Address("TCP", "127.0.0.1", 50_000)

    def ignore(self, *values: object, **named: object) -> None:
        """What only a real socket has."""

    setTcpNoDelay = setTcpKeepAlive = setsockopt = registerProducer = pauseProducing = resumeProducing = ignore
    loseConnection = abortConnection = ignore


@attrs.frozen
class Bed:
    """A node with one client, ready to be measured."""

    node: Node
    client: ClientConnection
    daemon: Daemon
    reactor: MemoryReactorClock
    addition: bytes = ADDITION  #: the command by which jobs are added

    @classmethod
    def make(
        cls, folder: Path, store_name: str = "none", *, settings: str = "", seed: int = SEED,
        reactor: MemoryReactorClock | None = None, addition: bytes = ADDITION,
    ) -> "Bed":  # fmt: skip
        """Make an empty one; two of them that are made in the same folder do the same with the same input.

        The journal of a store lies in the folder; whoever asks for one closes it.  `settings`: lines of more of them;
        nodes that are to meet have a seed each, and one reactor.
        """
        clock = SystemClock()
        reactor = reactor or MemoryReactorClock()  # type: ignore[no-untyped-call]
        config = Config.from_text(f"dir {folder}\npersistence {store_name}\nappendfsync no\n{settings}")
        store = find_store(store_name).create(config, reactor, clock)
        store.open()
        identity = Identity.load(folder / "nodes.conf", 7711, Random(seed))
        identity.release()  # the next bed is made in the same folder
        node = Node(identity.node_id, clock, Random(seed), maxmemory=2**40)
        daemon = Daemon(
            config, node, identity, store, reactor, store_name=store_name, open_store=lambda _: store,
            event_log=EventLog(node, reactor, config),
        )  # fmt: skip
        daemon.start(lambda: None)
        client = daemon.clients.buildProtocol(None)
        client.makeConnection(Transport())
        return cls(node, client, daemon, reactor, addition)

    def add(self, count: int) -> None:
        """Fill the queue."""
        self._send([self.addition] * count)

    def add_elsewhere(self, count: int) -> None:
        """Add jobs that nobody takes, each to a queue of its own."""
        self._send([words(b"ADDJOB", b"other %d" % number, BODY, b"0") for number in range(count)])

    def _send(self, additions: list[bytes]) -> None:
        """Add jobs; what takes long is put off to later turns of the loop."""
        wanted = len(self.node.state.jobs) + len(additions)
        self.client.dataReceived(b"PING\r\n")  # so that the client is known to be quick
        self.client.dataReceived(b"".join(additions))
        while self.client.session.is_blocked or len(self.node.state.jobs) < wanted:
            self.reactor.advance(0)

    def take(self, count: int) -> list[bytes]:
        """Take jobs out; returns their ids."""
        queue = self.node.state.queues.by_name[QUEUE]
        taken: list[bytes] = []
        while len(taken) < count:
            taken += [unit.id for unit in self.node.delivery.fetch([queue], count - len(taken))]
        return taken


@attrs.frozen
class Subject:
    """A command whose path is measured."""

    name: bytes
    prepare: Callable[[Bed, int], list[bytes]]  #: make the node ready; returns the commands as bytes


def _additions(bed: Bed, count: int) -> list[bytes]:
    return [bed.addition] * count


def _fetches(bed: Bed, count: int) -> list[bytes]:
    bed.add(count)
    return [words(b"GETJOB", b"NOHANG", b"FROM", QUEUE)] * count


def _acknowledgements(bed: Bed, count: int) -> list[bytes]:
    bed.add(count)
    return [words(b"ACKJOB", job_id) for job_id in bed.take(count)]


SUBJECTS = {
    "addjob": Subject(b"ADDJOB", _additions),
    "getjob": Subject(b"GETJOB", _fetches),
    "ackjob": Subject(b"ACKJOB", _acknowledgements),
}


def _timed(work: Callable[[Any], Any], items: Sequence[Any]) -> float:
    """Seconds that the work on all of the items takes."""
    started = perf_counter()
    for item in items:
        work(item)
    return perf_counter() - started


def stages(subject: Subject, folder: Path, count: int, pipeline: int) -> dict[str, float]:
    """Microseconds a command for each stage, once."""
    bed = Bed.make(folder)
    commands = subject.prepare(bed, count)
    chunks = [b"".join(commands[at : at + pipeline]) for at in range(0, count, pipeline)]
    found = {"whole": _timed(bed.client.dataReceived, chunks)}

    found["parse"] = _timed(RequestParser().feed, chunks)
    entry = PLAIN[subject.name]
    bed = Bed.make(folder)
    bed.node.begin()
    # The commands again: these name the jobs of this node.
    lists = [args for chunk in subject.prepare(bed, count) for args in RequestParser().feed(chunk)]
    found["dispatch"] = _timed(lambda args: PLAIN[args[0]].parse_cached(args), lists)
    calls = [entry.parse_cached(args) for args in lists]
    values: list[Any] = []
    keep = values.append
    command, client = bed.node.command, bed.client.session
    found["core"] = _timed(lambda call: keep(command(client, call)), calls)
    found["encode"] = _timed(entry.reply.encode2, values)
    return {name: seconds / count * 1e6 for name, seconds in found.items()}


def _measure(subject: Subject, folder: Path, count: int, pipeline: int) -> dict[str, float]:
    """The quietest round of each stage: what else the machine does only ever adds."""
    rounds = [stages(subject, folder, count, pipeline) for _ in range(ROUNDS)]
    best = {name: min(each[name] for each in rounds) for name in rounds[0]}
    best["rest"] = best["whole"] - sum(usec for name, usec in best.items() if name != "whole")
    return best


def _list(subject: Subject, folder: Path, count: int, pipeline: int) -> None:
    """Print the functions that take the most time of their own."""
    bed = Bed.make(folder)
    commands = subject.prepare(bed, count)
    chunks = [b"".join(commands[at : at + pipeline]) for at in range(0, count, pipeline)]
    profiler = cProfile.Profile()
    profiler.enable()
    for chunk in chunks:
        bed.client.dataReceived(chunk)
    profiler.disable()
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(LISTED)


def main() -> int:
    """Print the table, and the listing when it is asked for."""
    parser = ExactParser(prog="python -m benchmarks.profile")
    parser.add_argument("command", choices=SUBJECTS)
    parser.add_argument("--pipeline", type=int, action="append", help="commands in a chunk (1 and 16)")
    parser.add_argument("--count", type=int, default=8_000, help="commands in a round (8 000)")
    parser.add_argument("--listing", action="store_true", help="also what the time is spent in, by cProfile")
    options = parser.parse_args()
    subject = SUBJECTS[options.command]
    tune_collector()
    with tempfile.TemporaryDirectory(prefix="disqued-profile-") as folder:
        print(f"{options.command}: µs a command, the best of {ROUNDS} rounds of {options.count}; seed {SEED}")
        for pipeline in options.pipeline or [1, 16]:
            found = _measure(subject, Path(folder), options.count, pipeline)
            parts = ", ".join(f"{name} {usec:.2f}" for name, usec in found.items() if name != "whole")
            print(f"  {pipeline:2} in a chunk: {found['whole']:.2f} = {parts}")
            if options.listing:
                _list(subject, Path(folder), options.count, pipeline)
    return 0


if __name__ == "__main__":
    sys.exit(main())
