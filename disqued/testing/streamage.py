"""Streams during one age of a story: who uses them, and what is to be so in the end.

    while things fail   producers, consumers of all groups, workers, and one who lets a group begin anew
    after the heal      each group has a consumer on every node, until every node counts nothing but events that are
                        done; a group begins anew in each queue, and is done with all of it once more

Times are integer milliseconds.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import attrs

from disqued.testing.checker import GRACE_MS
from disqued.testing.clients import Actor, Operator
from disqued.testing.events import generator
from disqued.testing.streamchecker import StreamChecker
from disqued.testing.streamrecords import StreamRules
from disqued.testing.streams import (
    ACKING,
    AGAIN,
    CREW,
    DILIGENT,
    GROUPS,
    LATE,
    ONCE,
    QUEUES,
    STRICT,
    WORKING,
    StreamConsumer,
    StreamLoad,
    StreamProducer,
)
from disqued.testing.streamworkers import GroupRestarter, StreamWorker

if TYPE_CHECKING:
    from disqued.testing.server import SimServer


class StreamAge:
    """Those who use streams during one age of a story, and what they saw."""

    def __init__(
        self, servers: "list[SimServer]", load: StreamLoad, rules: StreamRules, seed: int, name: Callable[[str], str]
    ) -> None:
        """Take the nodes, what clients do, what must be so, the seed, and what gives names to clients."""
        self.checker = StreamChecker(rules, acking=(*ACKING, AGAIN, CREW, LATE), once=(ONCE, STRICT), strict=STRICT)
        self._servers = servers
        self._load = load
        self._seed = seed
        self._name = name
        self._producers: list[StreamProducer] = []
        self._consumers: list[StreamConsumer] = []
        self._workers: list[StreamWorker] = []
        self._restarters: list[GroupRestarter] = []
        #: What each node counts that is not done: {node: {queue and group: events}}.
        self._undone: dict[int, dict[str, int]] = {}
        self._answers: dict[int, dict[str, int]] = {}  #: the same, as it comes in

    @property
    def answered(self) -> int:
        """Events that were promised."""
        return sum(request.is_promised for request in self.checker.requests.values())

    # Phases.

    def engage(self, count: int) -> None:
        """Let consumers begin who do all that consumers do, a third as many workers, and one who restarts a group."""
        for _ in range(count):
            self._engage(self._load, (), None)
        for _ in range(count // 3):
            name = self._name("log worker")
            worker = StreamWorker(self._servers, self.checker, self._load, name, generator(f"{self._seed} {name}"))
            self._workers.append(worker)
            worker.plan(worker.rng.randint(1, 2_000))
        if count:
            self._restart(self._load.rests_ms)

    def _restart(self, in_ms: int, *, turns: int = 0) -> None:
        """Let a group begin anew from a time on."""
        name = self._name("log restarter")
        rng = generator(f"{self._seed} {name}")
        restarter = GroupRestarter(self._servers, self.checker, self._load, name, rng, turns=turns)
        self._restarters.append(restarter)
        restarter.plan(in_ms)

    def _engage(self, load: StreamLoad, groups: tuple[bytes, ...], home: "SimServer | None") -> None:
        name = self._name("log consumer")
        rng = generator(f"{self._seed} {name}")
        consumer = StreamConsumer(self._servers, self.checker, load, name, rng)
        consumer.groups = groups or tuple(rng.sample(WORKING, rng.randint(1, 3)))
        consumer.home = home
        self._consumers.append(consumer)
        consumer.plan(rng.randint(1, 2_000))

    def add(self, producers: int, jobs: int) -> None:
        """Let some producers begin, each of which adds so many events on average."""
        for _ in range(producers):
            name = self._name("log producer")
            rng = generator(f"{self._seed} {name}")
            count = rng.randint(1, 2 * jobs)
            producer = StreamProducer(self._servers, self.checker, self._load, name, rng, count=count)
            self._producers.append(producer)
            producer.plan(rng.randint(1, 3_000))

    def drain(self, at: int) -> None:
        """After the heal: let those who are there go home, and each group have a consumer on every node.

        A group begins anew in each queue, now that this is to be so on all nodes.
        """
        self.checker.healed(at)
        retiring: Iterable[StreamConsumer | StreamWorker | GroupRestarter] = (
            *self._consumers, *self._workers, *self._restarters,
        )  # fmt: skip
        for actor in retiring:
            actor.retire()
        self._restart(2 * GRACE_MS, turns=len(QUEUES))
        diligent = attrs.evolve(self._load, **DILIGENT)
        for server in self._servers:
            for group in GROUPS:
                self._engage(diligent, (group,), server)

    def is_drained(self) -> bool:
        """Tell whether every group is done with every event; nodes are asked, and answer by the next time.

        What its producer was refused, or never heard of, may be on some node all the same, and is not waited for.
        """
        undone, self._undone, self._answers = self._answers, self._answers, {}
        for server in self._servers:
            asker = Operator(lambda rows, node=server.number: self._note_figures(node, rows))  # type: ignore[misc]
            server.command(asker, [b"QSTATUS", *QUEUES, b"GROUPS", *GROUPS])
        return (
            all(actor.is_over for actor in (*self._producers, *self._restarters))
            and len(undone) == len(self._servers)
            and not any(undone.values())
            and not self.checker.missing()
        )

    def _note_figures(self, node: int, rows: list[Any]) -> None:
        undone: dict[str, int] = {}
        for queue, groups in rows:
            for group, figures in zip(groups[::2], groups[1::2], strict=True):
                values = dict(zip(figures[::2], figures[1::2], strict=True))
                count = values[b"total"] - values[b"done"]
                if count and count > self.checker.unpromised(queue):
                    undone[f"{queue.decode()} {group.decode()}"] = count
        self._answers[node] = undone

    def end(self) -> None:
        """Let everybody go home."""
        actors: Iterable[Actor] = (*self._producers, *self._consumers, *self._workers, *self._restarters)
        for actor in actors:
            actor.end()

    def wrong(self) -> list[str]:
        """What is wrong so far."""
        late = [f"{actor.name} never ended" for actor in (*self._producers, *self._restarters) if not actor.is_over]
        undone = [f"node {node} counts as not done: {counts}" for node, counts in self._undone.items() if counts]
        return [*self.checker.verdict(), *late, *undone]
