"""What watching costs: ADDJOB while metrics and scans are fetched without a pause, beside ADDJOB alone."""

import http.client
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from threading import Event, Thread

import attrs

from benchmarks import load
from benchmarks.figures import Goal, Row, percentile, spread
from benchmarks.load import whole
from benchmarks.measure import Bench, Measure
from benchmarks.raw import HOST, words
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


MEASURES = (
    Measure(
        "watching", "p99 of ADDJOB while metrics and scans are fetched without a pause, above that without", watching
    ),
)
