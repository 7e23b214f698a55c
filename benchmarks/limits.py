"""What limits of the whole cluster cost: consumers on three nodes, with slots of a steward and without.

Each node has as many consumers and a third of the jobs, with the copies that a cluster makes by default.  A consumer
acknowledges a job and asks for the next one in one write.  The queue with limits and the plain one are taken from in
turns.
"""

import selectors
import time
from collections.abc import Callable, Sequence
from itertools import cycle

from benchmarks.cluster import joined
from benchmarks.figures import Goal, Row, ratios, spread
from benchmarks.measure import Bench, Measure
from benchmarks.raw import Connection, words
from benchmarks.servers import Disqued
from benchmarks.throughput import WrongResult

CONSUMERS = 16  #: on each node
ADDED_AT_ONCE = 200
IN_FLIGHT = 500  #: more than there are consumers: the limit is never what holds a job back
GROUPS = 10_000
RATE = 1_000  #: jobs a second
RATE_BURST = 10
AGREED_S = 10.0  #: how long a policy may take to reach all nodes


def set_policy(bench: Bench, daemons: Sequence[Disqued], queue: bytes, *fields: bytes) -> None:
    """Set the policy of a queue, and wait until every node knows it."""
    daemons[0].call(b"QPOLICY", queue, b"SET", *fields)
    until = time.monotonic() + AGREED_S
    while not all(daemon.call(b"QPOLICY", queue, b"GET") for daemon in daemons):
        bench.left_s()
        if time.monotonic() > until:
            raise WrongResult(f"after {AGREED_S:g} s not every node knows the policy of {queue.decode()}")
        time.sleep(0.01)


def fill(daemons: Sequence[Disqued], queue: bytes, count: int, groups: int = 0) -> None:
    """Add jobs, a third on each node; of so many groups, where there are some."""
    links = [daemon.connect() for daemon in daemons]
    for first, link in zip(range(0, count, ADDED_AT_ONCE), cycle(links)):
        numbers = range(first, min(count, first + ADDED_AT_ONCE))
        link.send(b"".join([words(*_adding(queue, number, groups)) for number in numbers]))
        for _ in numbers:
            link.receive()
    for link in links:
        link.close()


def _adding(queue: bytes, number: int, groups: int) -> tuple[bytes, ...]:
    group = (b"GROUP", b"g%d" % (number % groups)) if groups else ()
    return (b"ADDJOB", queue, b"job %d" % number, b"10000", b"RETRY", b"300", *group)


class Crowd:
    """Consumers on all nodes, which take jobs of one queue and acknowledge them."""

    def __init__(self, bench: Bench, daemons: Sequence[Disqued], queue: bytes) -> None:
        self.taken = 0
        self.first_at = 0.0
        self._bench = bench
        self._asks = words(b"GETJOB", b"FROM", queue)
        self._selector = selectors.DefaultSelector()
        self._links = [daemon.connect() for daemon in daemons for _ in range(CONSUMERS)]
        for link in self._links:
            self._selector.register(link, selectors.EVENT_READ, link)
            link.send(self._asks)

    def work(self, count: int, until: float = float("inf")) -> float:
        """Take so many jobs, or until a moment; returns the seconds."""
        started = time.perf_counter()
        while self.taken < count and time.perf_counter() < until:
            self._bench.left_s()
            for key, _ in self._selector.select(0.1):
                link: Connection = key.data
                for reply in link.hear():
                    if isinstance(reply, list):
                        self._took(link, reply)
        return time.perf_counter() - started

    def _took(self, link: Connection, rows: list[list[bytes]]) -> None:
        if not self.taken:
            self.first_at = time.perf_counter()
        self.taken += len(rows)
        link.send(b"".join([words(b"ACKJOB", job_id) for _, job_id, _ in rows]) + self._asks)

    def close(self) -> None:
        """Go."""
        self._selector.close()
        for link in self._links:
            link.close()


def _rate_of(bench: Bench, daemons: Sequence[Disqued], queue: bytes, count: int, groups: int = 0) -> float:
    fill(daemons, queue, count, groups)
    crowd = Crowd(bench, daemons, queue)
    seconds = crowd.work(count)
    crowd.close()
    for daemon in daemons:
        if daemon.call(b"QLEN", queue):
            raise WrongResult(f"jobs of {queue.decode()} are left")
    return count / seconds


def beside_plain(*fields: bytes, groups: int = 0, size: int, quick: int) -> Callable[[Bench, str, str], Row]:
    """Jobs of a queue with limits, taken and acknowledged, beside those of a plain queue."""

    def take(bench: Bench, name: str, title: str) -> Row:
        count = bench.size(size, quick)
        ours: list[float] = []
        theirs: list[float] = []
        with joined(bench) as daemons:
            set_policy(bench, daemons, b"limited", *fields)
            for _ in range(bench.rounds):
                ours.append(_rate_of(bench, daemons, b"limited", count, groups))
                theirs.append(_rate_of(bench, daemons, b"plain", count))
        return Row(
            name, title, "/s", spread(ours), "plain", spread(theirs), ratios(ours, theirs), Goal(0.5, at_least=True),
            bench.rounds, note=f"{count} jobs a round, {CONSUMERS} consumers on each of three nodes",
        )  # fmt: skip

    return take


def rate(bench: Bench, name: str, title: str) -> Row:
    """By how much the jobs that are handed out in a time differ from what RATE says."""
    seconds = bench.size(30, 5)
    with joined(bench) as daemons:
        fill(daemons, b"rated", RATE * (seconds + 5))
        set_policy(bench, daemons, b"rated", b"RATE", b"%d" % RATE, b"PER", b"1", b"BURST", b"%d" % RATE_BURST)
        crowd = Crowd(bench, daemons, b"rated")
        crowd.work(1, time.perf_counter() + AGREED_S)
        crowd.work(RATE * (seconds + 5), crowd.first_at + seconds)
        crowd.close()
    expected = RATE * seconds
    return Row(
        name, title, "%", spread([100 * abs(crowd.taken - expected) / expected]), goal=Goal(2.0, unit="%"),
        note=f"{crowd.taken} jobs in {seconds} s, {CONSUMERS} consumers on each of three nodes",
    )  # fmt: skip


MEASURES = (
    Measure(
        "limited",
        "GETJOB and ACKJOB on three nodes: a queue with INFLIGHT 500 against one without limits",
        beside_plain(b"INFLIGHT", b"%d" % IN_FLIGHT, size=20_000, quick=1_500),
    ),
    Measure("rate", "what RATE 1000 PER 1 hands out on three nodes, against that", rate),
    Measure(
        "one-per-group",
        "the same with GROUPINFLIGHT 1 and 10 000 groups",
        beside_plain(b"GROUPINFLIGHT", b"1", groups=GROUPS, size=2 * GROUPS, quick=3_000),
    ),
)
