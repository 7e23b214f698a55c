"""What watching costs: ADDJOB while pages and metrics are read, beside ADDJOB alone.

watching    metrics and scans of one node are fetched without a pause, under full load
pages       ten pages of a cluster are open, and move, at a fixed rate of jobs
"""

import http.client
import json
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import cycle
from threading import Event, Thread

import attrs

from benchmarks import load
from benchmarks.cluster import NODES, facts_of, joined
from benchmarks.figures import Goal, Row, percentile, spread
from benchmarks.load import whole
from benchmarks.measure import Bench, Measure
from benchmarks.raw import HOST, Connection, words
from benchmarks.servers import Disqued, free_port
from benchmarks.throughput import WrongResult

QUEUES = 10_000
MILLION = 1_000_000
AT_ONCE = 1_000  #: jobs in one write while the node is filled
BODY = b"x" * 100
FETCH_S = 60.0  #: how long an answer may take
COMMAND = ("ADDJOB", "other", "hello", "0")
TARGETS = (
    "/metrics",
    "/metrics/per-queue?limit=10000",
    "/api/scan/jobs?count=1000",
    "/api/scan/jobs?count=250&reply=all",
    "/api/scan/queues?count=1000",
    "/api/scan/queues?count=250&reply=all",
    "/queues?sort=length",
    "/api/history?range=1h&step=1s",
)


def fill(bench: Bench, server: Disqued, count: int) -> None:
    """Add jobs with bodies of 100 bytes, in turn to each of the queues.  Raises WrongResult."""
    with server.connect() as connection:
        for first in range(0, count, AT_ONCE):
            bench.left_s()
            names = (b"queue-%05d" % (number % QUEUES) for number in range(first, first + AT_ONCE))
            connection.send(b"".join(words(b"ADDJOB", name, BODY, b"0") for name in names))
            for _ in range(AT_ONCE):
                connection.receive()
    if server.jobs() != count:
        raise WrongResult(f"the node holds {server.jobs()} jobs, not {count}")


@attrs.define
class Watcher:
    """Fetches one answer after the other."""

    port: int
    fetched: int = 0
    slowest_s: float = 0.0
    problem: str = ""
    _ended: Event = attrs.field(factory=Event)
    _cursors: dict[str, int] = attrs.field(factory=dict)

    def run(self) -> None:
        """Fetch until it is enough; a scan goes on where it was."""
        for target in cycle(TARGETS):
            if self._ended.is_set() or self.problem:
                return
            started = time.perf_counter()
            try:
                self._fetch(target)
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.problem = f"GET {target}: {type(error).__name__} {error}"
                return
            self.slowest_s = max(self.slowest_s, time.perf_counter() - started)
            self.fetched += 1

    def _fetch(self, target: str) -> None:
        is_scan = "/scan/" in target
        path = f"{target}&cursor={self._cursors.get(target, 0)}" if is_scan else target
        connection = http.client.HTTPConnection(HOST, self.port, timeout=FETCH_S)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != http.client.OK:
            self.problem = f"GET {path} answered {answer.status}: {body[:200]!r}"
        elif is_scan:
            self._cursors[target] = int(json.loads(body)["cursor"])

    def end(self) -> None:
        """Let the answer that is under way be the last one."""
        self._ended.set()


@contextmanager
def watched(port: int) -> Iterator[Watcher]:
    """Let somebody watch.  Raises WrongResult when an answer was not what it should be."""
    watcher = Watcher(port)
    thread = Thread(target=watcher.run, name="watcher")
    thread.start()
    try:
        yield watcher
    finally:
        watcher.end()
        thread.join()
    if watcher.problem:
        raise WrongResult(watcher.problem)


def watching(bench: Bench, name: str, title: str) -> Row:
    """p99 of ADDJOB while somebody watches, and while nobody does; in turns, under full load of 50 connections."""
    count = whole(bench.size(MILLION, 100_000), AT_ONCE, 1)
    adds = whole(bench.size(60_000, 5_000), 1)
    without: list[float] = []
    during: list[float] = []
    fetched = 0
    slowest_s = 0.0
    port = free_port()
    with Disqued(bench.processors, ("--http-port", str(port), "--maxmemory", "4gb")) as daemon:
        fill(bench, daemon, count)
        for _ in range(bench.rounds):
            without.append(load.run(daemon.port, COMMAND, adds, 1, bench.left_s()).p99_ms)
            with watched(port) as watcher:
                during.append(load.run(daemon.port, COMMAND, adds, 1, bench.left_s()).p99_ms)
            fetched += watcher.fetched
            slowest_s = max(slowest_s, watcher.slowest_s)
    more = [mine - other for mine, other in zip(during, without, strict=True)]
    return Row(
        name, title, "ms more", spread(more), goal=Goal(5.0, unit="ms more"), rounds=bench.rounds,
        note=f"{count} jobs, {QUEUES} queues; p99 {percentile(without, 50):.1f} ms without, "
        f"{percentile(during, 50):.1f} ms during; {fetched} answers, the slowest took {slowest_s:.1f} s",
    )  # fmt: skip


# Pages of a cluster.

RATE = 1_000  #: jobs a second
LANES = 50  #: connections that take turns
SHOWN_QUEUES = 1_000
HELD_QUEUE = b"queue-00000"  #: which has a worker
#: Ten pages, in turn on the three nodes.
PAGES = (
    "page=overview", "page=queues", "page=queues&sort=length", "page=queue&queue=queue-00000",
    "page=queue&queue=queue-00001", "page=queue&queue=queue-00000", "page=workers", "page=job&job={job}",
    "page=worker&worker=press", "page=queue&queue=other",
)  # fmt: skip
STREAM_S = 10.0  #: how long the first event of a page may take


@attrs.define
class Page:
    """A page that is open: its stream of events."""

    query: str
    line: socket.socket
    events: int = 0

    @classmethod
    def open(cls, port: int, query: str) -> "Page":
        """Open it, and wait until it moves.  Raises WrongResult."""
        page = cls(query, socket.create_connection((HOST, port), STREAM_S))
        page.line.sendall(f"GET /api/events?{query} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode())
        while not page.events:
            page.read()
        return page

    def fileno(self) -> int:
        """The socket, for a selector."""
        return self.line.fileno()

    def read(self) -> None:
        """Read what has come.  Raises WrongResult when the stream has ended."""
        data = self.line.recv(262_144)
        if not data or (data.startswith(b"HTTP/1.1 ") and not data.startswith(b"HTTP/1.1 200 ")):
            raise WrongResult(f"no page {self.query}, but {data[:200]!r}")
        self.events += data.count(b"data: {") + data.count(b": nothing new")


@contextmanager
def opened(ports: Sequence[int], job_id: bytes) -> Iterator[list[Page]]:
    """Ten open pages.  Raises WrongResult when one did not move to the end."""
    with ExitStack() as stack:
        pages = [Page.open(port, query.format(job=job_id.decode())) for port, query in zip(cycle(ports), PAGES)]
        for page in pages:
            stack.enter_context(page.line)
        yield pages
    still = [page.query for page in pages if page.events < 2]
    if still:
        raise WrongResult(f"pages that did not move: {still}")


def add_at(rate: int, seconds: float, lanes: Sequence[Connection], pages: Sequence[Page]) -> list[float]:
    """Add jobs at a fixed rate, and read what pages send; returns ms from when each was due to its reply.

    A job that no connection is free for waits, and its time runs.  Raises ServerError, WrongResult.
    """
    count = round(rate * seconds)
    free, due, times = list(lanes), dict[Connection, float](), list[float]()
    sent = 0
    with selectors.DefaultSelector() as selector:
        watched: list[Connection | Page] = [*lanes, *pages]
        for each in watched:
            selector.register(each, selectors.EVENT_READ)
        started = time.perf_counter()
        while (now := time.perf_counter()) < started + seconds or len(times) < count:
            while free and sent < count and started + sent / rate <= now:
                lane = free.pop()
                due[lane] = started + sent / rate
                lane.send(words(b"ADDJOB", b"other", BODY, b"10000", b"REPLICATE", b"%d" % NODES))
                sent += 1
            # What is next: a job that is due, an answer, or the end.
            next_at = started + (sent / rate if free and sent < count else seconds)
            for key, _ in selector.select(max(0.0, next_at - time.perf_counter())):
                if isinstance(key.fileobj, Page):
                    key.fileobj.read()
                    continue
                assert isinstance(key.fileobj, Connection)
                key.fileobj.receive()
                times.append((time.perf_counter() - due.pop(key.fileobj)) * 1e3)
                free.append(key.fileobj)
    return times


def cost(daemons: Sequence[Disqued], seconds: float, pages: Sequence[Page]) -> tuple[float, float]:
    """Messages between the nodes, and ms of their processor time, a second while no job moves."""

    def spent() -> tuple[int, float]:
        messages = sum(int(facts_of(daemon)[b"cluster_stats_messages_sent"]) for daemon in daemons)
        return messages, sum(sum(daemon.cpu_seconds()) for daemon in daemons)

    messages, processor_s = spent()
    started = time.perf_counter()
    add_at(0, seconds, (), pages)
    more_messages, more_s = spent()
    took = time.perf_counter() - started
    return (more_messages - messages) / took, (more_s - processor_s) / took * 1e3


def prepare(daemons: Sequence[Disqued], queues: int) -> bytes:
    """Give each node a job in each queue, and one node a worker that has one; returns the id of a job."""
    for daemon in daemons:
        with daemon.connect() as connection:
            names = [b"queue-%05d" % number for number in range(queues)]
            connection.send(b"".join(words(b"ADDJOB", name, BODY, b"0", b"REPLICATE", b"1") for name in names))
            for _ in names:
                connection.receive()
    with daemons[-1].connect() as worker:
        worker.call(b"WORKER", b"START", b"ID", b"press", b"TTL", b"0")
        worker.call(b"GETJOB", b"FROM", HELD_QUEUE)
    job_id = daemons[1].call(b"ADDJOB", HELD_QUEUE, BODY, b"10000", b"REPLICATE", b"%d" % NODES, b"DELAY", b"3600")
    assert isinstance(job_id, bytes)
    return job_id


def pages(bench: Bench, name: str, title: str) -> Row:
    """p99 of ADDJOB on one of three nodes with ten pages open on them, and with none; in turns."""
    seconds = bench.size(5, 2)
    queues = bench.size(SHOWN_QUEUES, SHOWN_QUEUES // 5)
    without: list[float] = []
    during: list[float] = []
    ports = [free_port() for _ in range(NODES)]
    with joined(bench, http_ports=ports) as daemons, ExitStack() as stack:
        job_id = prepare(daemons, queues)
        lanes = [stack.enter_context(daemons[0].connect()) for _ in range(LANES)]
        idle = cost(daemons, seconds, ())
        with opened(ports, job_id) as shown:
            looked_at = cost(daemons, seconds, shown)
        for _ in range(bench.rounds):
            bench.left_s()
            without.append(percentile(add_at(RATE, seconds, lanes, ()), 99))
            with opened(ports, job_id) as shown:
                during.append(percentile(add_at(RATE, seconds, lanes, shown), 99))
    more = [mine - other for mine, other in zip(during, without, strict=True)]
    return Row(
        name, title, "ms more", spread(more), goal=Goal(5.0, unit="ms more"), rounds=bench.rounds,
        note=f"{RATE} jobs/s with REPLICATE {NODES}, {queues} queues; p99 {percentile(without, 50):.1f} ms without, "
        f"{percentile(during, 50):.1f} ms with pages; while no job moves the nodes send "
        f"{looked_at[0]:.0f} messages/s and use {looked_at[1]:.0f} ms/s of a processor with these pages, "
        f"{idle[0]:.0f} and {idle[1]:.0f} without",
    )  # fmt: skip


MEASURES = (
    Measure(
        "watching", "p99 of ADDJOB while metrics and scans are fetched without a pause, above that without", watching
    ),
    Measure("pages", "p99 of ADDJOB on one of three nodes with ten open pages, above that without", pages),
)
