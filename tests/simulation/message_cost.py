"""What a job costs in messages between nodes, in clusters of several sizes: the real nodes and codecs, in virtual time.

    python -m tests.simulation.message_cost 5 20 100        the tables of docs/performance.md

    nodes that know each other
    consumers come, every 3 s one                                                     counted, per job
    others wait, each load's on a queue of its own, for a minute; and half a minute   counted
        one load: jobs for 3 s, and 4 s more, in which its consumers go on asking     counted, per job
        the next one ...
    nobody does anything                                                              counted, per node and second

A job is added with REPLICATE 3 on one node, fetched and acknowledged on another.  Messages that tell who is there
(PING, PONG, FAIL, VITALS) go on whether there are jobs or not, and are counted apart.  A consumer that waits asks
every node at once and after 2, 6, 14, 30, 60, 90, 120 ... s, whether jobs come or not: the loads come between the last
two of these, so that what they cost is counted alone.
"""

import sys
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import attrs

from disqued.core.cluster.local_demand import BROADCAST_MAX_MS
from disqued.core.model.messages import FAIL, NAMES, PING, PONG, VITALS
from disqued.core.model.peers import TIMEOUT_MS
from disqued.errors import CommandError
from disqued.testing.server import SimServer
from disqued.testing.world import Profile, World

SEED = 8
GOSSIP = frozenset((PING, PONG, FAIL, VITALS))
#: While jobs are counted: what nodes say of themselves would take most of the simulator's time.
LONG_TIMEOUT_MS = 600_000
SETTLED_MS = 61_000  #: from when consumers began to wait
JOBS, EVERY_MS = 60, 50
REST_MS = 4_000  #: after that nobody asks any more because jobs have come
VISITS, VISIT_EVERY_MS = 5, 3_000  #: longer than what a consumer asked for stands after it has gone


@attrs.define(eq=False)
class Client:
    """Says one thing, and hears the answer."""

    then: Callable[[Any], None]
    is_gone: bool = False

    def answered(self, value: Any) -> None:
        """Go on."""
        assert not isinstance(value, CommandError), value
        self.then(value)

    def lost(self) -> None:
        """Nodes do not end here."""


def ask(server: SimServer, then: Callable[[Any], None], *words: bytes) -> None:
    """Run a command."""
    server.command(Client(then), list(words))


def ignore(value: Any) -> None:
    """Nobody goes on."""


@attrs.frozen
class Cost:
    """What was counted."""

    nodes: int
    per_job: dict[str, float]  #: messages of each kind, gossip left out
    gossip: float  #: messages a node and second

    @property
    def whole(self) -> float:
        """Messages a job."""
        return sum(self.per_job.values())


@attrs.frozen
class Steady:
    """What was counted while consumers waited."""

    waits: int  #: (node, queue) where somebody waits
    waiting: Cost  #: before the first job, in the time in which each of them asks everybody once
    loads: dict[str, Cost]


class Counting:
    """A cluster whose messages are counted."""

    def __init__(self, nodes: int) -> None:
        self.world = World(SEED, Profile("message cost", nodes=nodes, timeout_ms=LONG_TIMEOUT_MS))
        self.world.join(known=True)
        self.nodes = self.world.servers
        self.done = 0  #: jobs that were acknowledged
        self._rng = Random(SEED)
        self._counts: Counter[int] = Counter()
        self._began_at = 0
        self.world.network.watch = lambda receiver, sender, message: self._counts.update((message[0],))

    def let_pass(self, ms: int) -> None:
        """Let time pass."""
        self.world.events.run(self.world.events.now + ms)

    def begin(self) -> None:
        """Count from now on."""
        self._counts.clear()
        self._began_at = self.world.events.now
        self.done = 0

    def found(self, jobs: int = 1) -> Cost:
        """What was counted, as so many jobs have caused it."""
        assert self.done in (0, jobs), f"{self.done} jobs of {jobs} were acknowledged"
        seconds = (self.world.events.now - self._began_at) / 1_000
        gossip = sum(self._counts[kind] for kind in GOSSIP) / len(self.nodes) / seconds
        kinds = sorted(self._counts.keys() - GOSSIP)
        return Cost(len(self.nodes), {NAMES[kind]: self._counts[kind] / jobs for kind in kinds}, gossip)

    # What clients do.

    def add(self, node: SimServer, queue: bytes, then: Callable[[Any], None] = ignore) -> None:
        """Add a job with two copies on other nodes."""
        ask(node, then, b"ADDJOB", queue, b"body", b"0", b"REPLICATE", b"3")

    def consume(self, node: SimServer, queue: bytes, *, again: bool) -> None:
        """Wait for a job on a node and acknowledge it there; `again`: and so on."""

        def fetched(rows: Any) -> None:
            ask(node, acknowledged, b"ACKJOB", rows[0][1])

        def acknowledged(count: int) -> None:
            self.done += count
            if again:
                self.consume(node, queue, again=True)

        ask(node, fetched, b"GETJOB", b"FROM", queue)

    def visit(self, queue: bytes) -> None:
        """Add a job on any node, and let a consumer come to another one for it."""
        here, there = self._rng.sample(self.nodes, 2)
        self.add(here, queue, lambda _: self.consume(there, queue, again=False))

    # What is counted.

    def steady(self) -> Steady:
        """Consumers that wait and come back, by who adds and who takes."""
        nodes = self.nodes
        loads = {
            "one node to another": (nodes[:1], nodes[-1:]),
            "all nodes to one": (nodes[:-1], nodes[-1:]),
            "one node to all": (nodes[:1], nodes[1:]),
            "all nodes to all": (nodes, nodes),
        }
        for name, (_, takers) in loads.items():
            for node in takers:
                self.consume(node, name.encode(), again=True)
        self.let_pass(SETTLED_MS)
        self.begin()
        self.let_pass(BROADCAST_MAX_MS)
        waiting = self.found()
        costs = {name: self._load(name.encode(), givers) for name, (givers, _) in loads.items()}
        return Steady(sum(len(takers) for _, takers in loads.values()), waiting, costs)

    def _load(self, queue: bytes, givers: list[SimServer]) -> Cost:
        self.begin()
        for _ in range(JOBS):
            self.add(self._rng.choice(givers), queue)
            self.let_pass(EVERY_MS)
        self.let_pass(REST_MS)
        return self.found(JOBS)

    def visits(self, every_ms: int = VISIT_EVERY_MS, count: int = VISITS) -> Cost:
        """Consumers that come to any node, take one job and go."""
        queue = b"visited every %d ms" % every_ms
        self.begin()
        for _ in range(count):
            self.visit(queue)
            self.let_pass(every_ms)
        self.let_pass(REST_MS)
        return self.found(count)

    def resting(self, timeout_ms: int, ms: int) -> Cost:
        """Nobody does anything, with a time-out that is set now."""
        for node in self.nodes:
            node.node.state.peers.timeout_ms = timeout_ms
        self.let_pass(timeout_ms // 2 + 1_000)  # until all have asked all
        self.begin()
        self.let_pass(ms)
        return self.found()


def told(name: str, cost: Cost) -> str:
    """A line of what was counted."""
    kinds = ", ".join(f"{kind} {count:.2f}" for kind, count in cost.per_job.items())
    return f"{cost.nodes:3} nodes, {name}: {cost.whole:.1f} a job ({kinds})\n"


def main() -> None:
    """Print what the loads cost."""
    for size in map(int, sys.argv[1:]):
        counting = Counting(size)
        visits = counting.visits()
        for name, cost in counting.steady().loads.items():
            sys.stdout.write(told(name, cost))
        sys.stdout.write(told(f"a consumer that comes for one job, every {VISIT_EVERY_MS} ms", visits))
        sys.stdout.write(told("the same every 50 ms", Counting(size).visits(50, 240)))
        resting = Counting(size).resting(TIMEOUT_MS, TIMEOUT_MS // 2)
        sys.stdout.write(f"{size:3} nodes: gossip, {resting.gossip:.2f} a node and second\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
