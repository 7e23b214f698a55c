"""Curves: what throughput and latency become when something grows, on nodes of their own.

``python -m benchmarks.growth [--quick] [--only jobs|queues|connections|bodies|nodes] [--json FILE]``

    jobs          1 000 to 5 000 000 that lie in another queue
    queues        1 to 100 000, each with a job in it; the load goes to all of them
    connections   1 to 10 000, all of them busy, without pipelining
    bodies        1 byte to 4 MiB
    nodes         1 to 5, which share a processor; with one copy of each job, and with three

At each point, in turns: as many jobs as go, each added, fetched and acknowledged by a command of its own, over 50
connections with 16 commands in a chunk where nothing else is said (`walk`); and then, with the load gone, requests at a
fixed rate, 300 a second or a quarter of what goes, each timed from when it was due (`paced`).  A job's way is three
commands.  The client is Python, on another processor than the nodes where there are two: figures of this module are for
comparing its points with each other.

The processor time of the nodes a job disturbs least: what else the machine does changes throughput, and hardly this.
"""

import argparse
import json
import resource
import selectors
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import attrs

from benchmarks import load
from benchmarks.cluster import JOIN_S, wait
from benchmarks.figures import Spread, percentile, spread, told
from benchmarks.load import LoadFailed
from benchmarks.machine import Processors, facts, stamp
from benchmarks.measure import Bench, OutOfTime
from benchmarks.raw import Connection, ServerError, words
from benchmarks.servers import Disqued, ServerMissing, redis_version
from benchmarks.throughput import FILL_PIPELINE, PIPELINE, QUEUE, WrongResult
from disqued.testing.arguments import ExactParser

LIMIT_S, QUICK_LIMIT_S = 1_500.0, 180.0
ROUNDS, QUICK_ROUNDS = 3, 1
WALK_S, QUICK_WALK_S = 3.0, 0.7
PACED_S, QUICK_PACED_S = 4.0, 1.0
PACED_RATE = 300  #: requests a second
MODEST = 0.25  #: where that is more than this part of what the node can do, the rate is this part
CONNECTIONS = 50
FEW_CONNECTIONS = 8  #: for large bodies
CHUNK_BYTES = 256 * 1024  #: bodies in one chunk, unless one alone is larger
QUIET_S = 60.0  #: how long no connection may hear anything
BODY = b"hello"
RESIDENT_BODY = 100
MANY = ("--maxmemory", "12gb", "--maxclients", "12000", "--client-query-buffer-limit", "64mb")
FILES = 10_400  #: that this process may open for 10 000 connections


@attrs.frozen
class Point:
    """A curve at one place; figures are medians and extremes of the rounds."""

    at: int  #: how many there are of what grows
    jobs_a_second: Spread
    p99_ms: Spread  #: of a request at the fixed rate
    p50_ms: Spread
    cpu_us: Spread  #: processor time of all nodes, a job
    resident_mib: float  #: of one node, with what has grown and no load


@attrs.frozen
class Curve:
    """What becomes of a node when something grows."""

    name: str
    title: str
    unit: str  #: of what grows
    points: list[Point]


# ---- The load.


@attrs.define(eq=False)
class Lane:
    """A connection that leads jobs their way: a chunk of additions, then one of fetches, then one of acks."""

    connection: Connection
    names: Iterator[bytes]  #: of the queues, in turn, without end
    pipeline: int
    body: bytes
    options: tuple[bytes, ...]
    done: int = 0  #: jobs that were acknowledged
    _stage: int = 0
    _replies: list[Any] = attrs.field(factory=list)
    _queues: list[bytes] = attrs.field(factory=list)

    def begin(self) -> None:
        """Add some jobs."""
        self._queues = list(islice(self.names, self.pipeline))
        self._stage = 0
        self._send([words(b"ADDJOB", name, self.body, b"10000", *self.options) for name in self._queues])

    def _send(self, commands: list[bytes]) -> None:
        self._replies = []
        self.connection.send(b"".join(commands))

    def go_on(self) -> bool:
        """Hear replies, and say what comes next; True when jobs have come to the end of their way.

        Raises WrongResult, ServerError.
        """
        self._replies += self.connection.hear()
        if len(self._replies) < self.pipeline:
            return False
        replies = self._replies
        self._stage += 1
        if self._stage == 1:
            self._send([words(b"GETJOB", b"NOHANG", b"FROM", name) for name in self._queues])
        elif self._stage == 2:
            if None in replies:
                raise WrongResult("a queue was empty to which a job had been added")
            self._send([words(b"ACKJOB", rows[0][1]) for rows in replies])
        else:
            if replies.count(1) != self.pipeline:
                raise WrongResult(f"acknowledgements were answered {replies}")
            self.done += self.pipeline
        return self._stage == 3


def walk(lanes: Sequence[Lane], seconds: float) -> float:
    """Lead as many jobs their way as go in this time; returns jobs a second.  Raises WrongResult, ServerError."""
    with selectors.DefaultSelector() as selector:
        for lane in lanes:
            selector.register(lane.connection, selectors.EVENT_READ, lane)
        before = sum(lane.done for lane in lanes)
        started = time.perf_counter()
        until = started + seconds
        under_way = len(lanes)
        for lane in lanes:
            lane.begin()
        while under_way:
            events = selector.select(QUIET_S)
            if not events:
                raise WrongResult(f"no reply for {QUIET_S:g} s")
            for key, _ in events:
                if key.data.go_on():
                    if time.perf_counter() < until:
                        key.data.begin()
                    else:
                        under_way -= 1
        return (sum(lane.done for lane in lanes) - before) / (time.perf_counter() - started)


def paced(lanes: Sequence[Lane], rate: float, seconds: float) -> list[float]:
    """Send single requests at a rate, over the connections in turn; returns milliseconds from when each was due.

    One that is late because the one before took too long has waited since it was due; what the client itself comes late
    from its sleep does not count.
    """
    found: list[float] = []
    due = time.perf_counter()
    for lane in islice(cycle(lanes), int(rate * seconds / 3)):
        name = next(lane.names)
        job_id = b""
        for command in (b"ADDJOB", b"GETJOB", b"ACKJOB"):
            now = time.perf_counter()
            if now < due:
                time.sleep(due - now)
                now = time.perf_counter()
            else:
                now = due
            if command == b"ADDJOB":
                lane.connection.call(command, name, lane.body, b"10000", *lane.options)
            elif command == b"GETJOB":
                rows = lane.connection.call(command, b"NOHANG", b"FROM", name)
                if rows is None:
                    raise WrongResult("a queue was empty to which a job had been added")
                job_id = rows[0][1]
            else:
                lane.connection.call(command, job_id)
            found.append((time.perf_counter() - now) * 1e3)
            due += 1 / rate
    return found


def lanes_to(
    stack: ExitStack, nodes: Sequence[Disqued], count: int, pipeline: int = PIPELINE, *,
    body: bytes = BODY, names: Sequence[bytes] = (QUEUE.encode(),), options: tuple[bytes, ...] = (),
) -> list[Lane]:  # fmt: skip
    """Open so many connections, in turn to each of the nodes."""
    found = []
    for number, node in zip(range(count), cycle(nodes), strict=False):
        turn = _in_turn(names, number * len(names) // count)  # each begins at another queue
        found.append(Lane(stack.enter_context(node.connect()), turn, pipeline, body, options))
    return found


def _in_turn(names: Sequence[bytes], first: int) -> Iterator[bytes]:
    while True:
        yield names[first % len(names)]
        first += 1


def measure(bench: Bench, at: int, nodes: Sequence[Disqued], lanes: Sequence[Lane]) -> Point:
    """Take the figures of a point."""
    seconds = (QUICK_WALK_S, QUICK_PACED_S) if bench.quick else (WALK_S, PACED_S)
    resident = nodes[0].resident_bytes() / 2**20
    walk(lanes, seconds[0] / 4)  # whatever is made at the first time is made
    rates, p99, p50, cpu = [], [], [], []
    for _ in range(bench.rounds):
        bench.left_s()
        before, done = sum(sum(node.cpu_seconds()) for node in nodes), sum(lane.done for lane in lanes)
        rates.append(walk(lanes, seconds[0]))
        used, done = sum(sum(node.cpu_seconds()) for node in nodes) - before, sum(lane.done for lane in lanes) - done
        cpu.append(used / done * 1e6)
        times = paced(lanes, min(PACED_RATE, MODEST * 3 * rates[-1]), seconds[1])
        p99.append(percentile(times, 99))
        p50.append(percentile(times, 50))
    point = Point(at, spread(rates), spread(p99), spread(p50), spread(cpu), round(resident, 1))
    print(
        f"  {at}: {told(point.jobs_a_second, 'jobs/s')}, p99 {told(point.p99_ms, 'ms')}, p50 {told(point.p50_ms)}, "
        f"processor {told(point.cpu_us, 'µs')} a job, {point.resident_mib:.0f} MiB resident",
        flush=True,
    )
    return point


# ---- What grows.


def jobs(bench: Bench) -> list[Curve]:
    """Jobs that lie in another queue."""
    sizes = (1_000, 10_000, 100_000) if bench.quick else (1_000, 10_000, 100_000, 1_000_000, 5_000_000)
    command = ("ADDJOB", "resident", "x" * RESIDENT_BODY, "0")
    points = []
    with Disqued(bench.processors, MANY) as node, ExitStack() as stack:
        lanes = lanes_to(stack, [node], CONNECTIONS)
        held = 0
        for size in sizes:
            # redis-benchmark sends whole pipelines: some jobs more.
            load.run(node.port, command, size - held, FILL_PIPELINE, bench.left_s())
            held = node.jobs()
            points.append(measure(bench, size, [node], lanes))
            if node.jobs() != held:
                raise WrongResult(f"the node holds {node.jobs()} jobs, not {held}")
    return [Curve("jobs", "Resident jobs of 100 bytes", "jobs", points)]


def queues(bench: Bench) -> list[Curve]:
    """Queues, each with a job in it; the load goes to all of them in turn."""
    sizes = (1, 100, 10_000) if bench.quick else (1, 10, 100, 1_000, 10_000, 100_000)
    points = []
    with Disqued(bench.processors, MANY) as node:
        held = 0
        for size in sizes:
            names = [b"queue-%06d" % number for number in range(size)]
            with node.connect() as connection:
                for first in range(held, size, 1_000):
                    some = names[first : first + 1_000]
                    connection.send(b"".join(words(b"ADDJOB", name, BODY, b"0") for name in some))
                    for _ in some:
                        connection.receive()
            held = size
            with ExitStack() as stack:
                points.append(measure(bench, size, [node], lanes_to(stack, [node], CONNECTIONS, names=names)))
    return [Curve("queues", "Queues with a job in each, all of them used", "queues", points)]


def connections(bench: Bench) -> list[Curve]:
    """Connections, all of them busy."""
    sizes = (1, 100, 1_000) if bench.quick else (1, 10, 100, 1_000, 10_000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, hard), hard))
    points = []
    with Disqued(bench.processors, MANY) as node, ExitStack() as stack:
        lanes: list[Lane] = []
        for size in sizes:
            lanes += lanes_to(stack, [node], size - len(lanes), 1)
            points.append(measure(bench, size, [node], lanes))
    return [Curve("connections", "Connections, without pipelining", "connections", points)]


def bodies(bench: Bench) -> list[Curve]:
    """Bytes of a body."""
    sizes = (1, 4_096, 1 << 20) if bench.quick else (1, 64, 1_024, 16_384, 262_144, 1 << 20, 4 << 20)
    points = []
    with Disqued(bench.processors, MANY) as node:
        for size in sizes:
            pipeline = max(1, min(PIPELINE, CHUNK_BYTES // size))
            count = CONNECTIONS if pipeline == PIPELINE else FEW_CONNECTIONS
            with ExitStack() as stack:
                points.append(measure(bench, size, [node], lanes_to(stack, [node], count, pipeline, body=b"x" * size)))
    return [Curve("bodies", "Size of the body", "bytes", points)]


def nodes(bench: Bench) -> list[Curve]:
    """Nodes that share a processor, with one copy of each job, and with three."""
    sizes = (1, 3) if bench.quick else (1, 2, 3, 4, 5)
    curves = {1: Curve("nodes", "One copy of each job", "nodes", []), 3: Curve("nodes-3", "Three copies", "nodes", [])}
    for size in sizes:
        with ExitStack() as stack:
            daemons = [stack.enter_context(Disqued(bench.processors, MANY)) for _ in range(size)]
            for other in daemons[1:]:
                daemons[0].call(b"CLUSTER", b"MEET", b"127.0.0.1", b"%d" % other.port)
            if size > 1:
                wait(bench, daemons, b"cluster_reachable_nodes", b"%d" % (size - 1), JOIN_S)
            for copies, curve in curves.items():
                if copies > size:
                    continue
                with ExitStack() as lanes:
                    options = (b"REPLICATE", b"%d" % copies)
                    some = lanes_to(lanes, daemons, CONNECTIONS, names=[b"copies-%d" % copies], options=options)
                    curve.points.append(measure(bench, size, daemons, some))
    return list(curves.values())


CURVES: dict[str, Callable[[Bench], list[Curve]]] = {
    "jobs": jobs, "queues": queues, "connections": connections, "bodies": bodies, "nodes": nodes,
}  # fmt: skip


# ---- The program.


def read_options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = ExactParser(prog="python -m benchmarks.growth", description="Measure how disqued grows.")
    parser.add_argument("--quick", action="store_true", help="within three minutes: fewer points, one short round")
    parser.add_argument("--only", action="append", choices=CURVES, metavar="NAME", help=", ".join(CURVES))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, for benchmarks.plots")
    return parser.parse_args(arguments)


def as_json(curves: Sequence[Curve], known: dict[str, Any]) -> str:
    """The figures for programs."""
    return json.dumps([{**attrs.asdict(curve), "machine": known} for curve in curves], indent=2) + "\n"


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; returns 1 when something could not be measured."""
    options = read_options(arguments)
    signal.signal(signal.SIGTERM, _end)  # so that the nodes are ended
    processors = Processors.find()
    try:
        known = facts(processors, redis_version())
    except ServerMissing as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    processors.become_client()
    until = time.monotonic() + (QUICK_LIMIT_S if options.quick else LIMIT_S)
    bench = Bench(processors, options.quick, QUICK_ROUNDS if options.quick else ROUNDS, until=until)
    print(f"[{stamp(known)}]", flush=True)
    curves: list[Curve] = []
    missed = []
    for name in options.only or CURVES:
        print(f"{name}:", flush=True)
        try:
            curves += CURVES[name](bench)
        except (LoadFailed, OutOfTime, ServerError, ServerMissing, WrongResult, OSError) as error:
            missed.append(name)
            print(f"  not measured: {error}", flush=True)
    if options.json is not None:
        options.json.write_text(as_json(curves, known), encoding="utf-8")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
