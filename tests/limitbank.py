"""The bank of limited queues: producers and consumers on every node, and the books on who has which job when.

    producer n --ADDJOB--> node n        the limited queue of which it has the fewest open jobs
    consumer n --GETJOB--> node n        one for each queue; has up to `HAND` jobs, each for a moment; then ACKJOB
                                         on its node or another one, or NACK, or silence until it is delivered again

`holdings` says what must be so; besides it, the books of the bank hold.  Times are seconds unless the name says ms.
"""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random

import redis

from disqued.testing.checker import Request, body_of
from tests.bank import ACK_ELSEWHERE, BREATH, ELSEWHERE_LIMIT, LONG_S, Bank, now
from tests.holdings import Holding, Holdings, Limit
from tests.integration.daemon import Daemon, wait_until

GROUPS = 20
OPEN_EACH = 20  #: jobs of one producer in one queue that are not done
HAND = 4  #: jobs that one consumer has at once
GET_TIMEOUT_MS = 100
HELD_MAX = 0.2  #: how long a consumer works on a job, at most
NACK, SILENCE = 0.04, 0.04
BUSINESS = 10  #: deliveries of each queue that show that it goes on


def set_limits(daemons: Sequence[Daemon], limits: Mapping[bytes, Limit]) -> None:
    """Set the policies of queues, and wait until every node knows them."""
    for queue, limit in limits.items():
        daemons[0].call("QPOLICY", queue, "SET", *limit.words())
        for daemon in daemons:
            wait_until(
                lambda daemon=daemon, queue=queue: daemon.call("QPOLICY", queue, "GET"), "a policy that is known"
            )


class LimitBank(Bank):
    """Clients of daemons on limited queues."""

    def __init__(self, daemons: Sequence[Daemon], seed: int, limits: Mapping[bytes, Limit]) -> None:
        self.books = {queue: Holdings(limit) for queue, limit in limits.items()}
        self._hands: dict[tuple[bytes, int], list[tuple[float, Holding]]] = {}  #: with the end of the work
        self._groups: dict[int, bytes] = {}  #: by number of the job
        self._faults: list[tuple[str, float, float]] = []
        self._strangers: set[int] = set()  #: nodes that are not in the cluster, and know of no limits
        super().__init__(daemons, seed)

    # What a test asks for.

    def wait_business(self, nodes: Iterable[int] | None = None, jobs: int = BUSINESS) -> None:
        """Wait until so many jobs of each queue have been delivered from now on, on whatever nodes."""
        for queue, books in self.books.items():
            wanted = len(books.all) + jobs
            wait_until(
                lambda books=books, wanted=wanted: self._failures or len(books.all) >= wanted,
                f"{jobs} deliveries of {queue!r}; {self.line()}",
            )
        self._raise()

    @contextmanager
    def fault(self, what: str) -> Iterator[None]:
        """Let something fail, until deliveries go on."""
        begin = time.monotonic()
        yield
        self._faults.append((what, begin, time.monotonic()))

    @contextmanager
    def crash(self, count: int) -> Iterator[None]:
        """Let so many nodes crash at once: if the others are no majority, nodes forget what consumers had."""
        begin = time.monotonic()
        yield
        if 2 * (self._nodes - count) <= self._nodes:
            with self._guard:
                for books in self.books.values():
                    books.crashed(begin, time.monotonic())

    def lost(self, node: int) -> None:
        """Note that a node has lost everything; it has no clients before it is in the cluster again."""
        super().lost(node)
        self._strangers.add(node)

    def joined(self) -> None:
        """Note that all nodes are in the cluster."""
        self._strangers.clear()

    def close(self) -> None:
        """Wait until the last job is delivered and acknowledged."""
        for books in self.books.values():
            books.healed(time.monotonic())
        super().close()

    def verdict(self) -> list[str]:
        """Say what is wrong; empty = nothing."""
        wrong = super().verdict()
        wrong += [f"{queue!r} {each}" for queue, books in self.books.items() for each in books.verdict()]
        faults = [f"{what}: {begin:.3f} to {end:.3f}" for what, begin, end in self._faults]
        return [*wrong, *faults] if wrong else []

    def pauses(self, queue: bytes) -> dict[str, list[float]]:
        """Return for each kind of fault for how long a queue handed nothing out, at most."""
        found: dict[str, list[float]] = {}
        for what, begin, end in self._faults:
            found.setdefault(what, []).append(self.books[queue].pause(begin, end))
        return found

    def line(self) -> str:
        """Return the figures, a line for each queue."""
        lines = []
        for queue, books in self.books.items():
            pauses = [f"{what} {max(spans):.1f} s" for what, spans in sorted(self.pauses(queue).items())]
            lines.append(f"{queue.decode()}: {shown(books)}, longest pauses: {', '.join(pauses) or 'none'}")
        return "\n    ".join((*lines, f"in all: {self.tally.line()}"))

    # Producers.

    def _produce(self, node: int, random: Random, client: redis.Redis) -> None:
        if node in self._strangers or self._open_of[self._emptiest(node)] >= OPEN_EACH:
            self._no_more.wait(BREATH)
            return
        super()._produce(node, random, client)

    def _emptiest(self, node: int) -> tuple[bytes, int]:
        return min(((queue, node) for queue in self.books), key=self._open_of.__getitem__)

    def _new_request(self, node: int, random: Random) -> Request:
        queue, _ = self._emptiest(node)
        with self._guard:
            number = self.checker.next_number()
            if self.books[queue].limit.group_in_flight:
                self._groups[number] = b"g%d" % random.randrange(GROUPS)
            request = Request(
                number=number,
                queue=queue,
                body=body_of(number, 20),
                replicate=random.choice((1, 2, 2, min(3, self._nodes))),
                retry_ms=random.choice((1_000, 3_000)),
                ttl_ms=1_000 * LONG_S,
                delay_ms=0,
                node=node,
                producer=node,
                asked_at=now(),
            )
            self.checker.asked(request)
        return request

    def addition_of(self, request: Request) -> tuple[object, ...]:
        """Make the words of ADDJOB, with the group."""
        group = self._groups.get(request.number)
        return (*super().addition_of(request), *(() if group is None else ("GROUP", group)))

    def _note_answer(self, request: Request, job_id: bytes) -> None:
        super()._note_answer(request, job_id)
        with self._guard:
            self.books[request.queue].added(job_id, time.monotonic())

    def _account(self, request: Request) -> Hashable:
        return request.queue, request.producer

    # Consumers.

    def _tasks(self) -> list[Callable[[int, Random, redis.Redis], None]]:
        return [partial(self._take, queue) for queue in self.books]

    def _take(self, queue: bytes, node: int, random: Random, client: redis.Redis) -> None:
        """Take jobs, as many as a hand has room for, and let those go whose work is done."""
        hand = self._hands.setdefault((queue, node), [])
        hand.sort(key=lambda each: each[0])
        while hand and (len(hand) >= HAND or hand[0][0] <= time.monotonic()):
            done_at, holding = hand.pop(0)
            self._over.wait(max(0.0, done_at - time.monotonic()))
            self._let_go(queue, node, random, client, holding)
        if node in self._strangers:
            self._over.wait(BREATH)
            return
        asked_at = time.monotonic()
        try:
            jobs = client.execute_command("GETJOB", "TIMEOUT", GET_TIMEOUT_MS, "COUNT", HAND - len(hand), "FROM", queue)
        except redis.exceptions.ResponseError as error:
            if not str(error).startswith("LEAVING"):
                raise
            self._over.wait(BREATH)
            return
        at = time.monotonic()
        with self._guard:
            self.tally.delivered += len(jobs or ())
            for came_from, job_id, body in jobs or ():
                request = self.checker.delivered(job_id, came_from, body, now(), node)
                if request is not None:
                    self._note_delivery(request, job_id, node)
                    group = self._groups.get(request.number, b"")
                    holding = self.books[queue].taken(job_id, group, node, asked_at, at, request.retry_ms / 1_000)
                    hand.append((at + random.uniform(0, HELD_MAX), holding))

    def _let_go(self, queue: bytes, node: int, random: Random, client: redis.Redis, holding: Holding) -> None:
        """Do with a job what consumers do."""
        luck = random.random()
        if luck < SILENCE:
            return
        with self._guard:
            self.books[queue].sent(holding, time.monotonic(), acknowledges=luck >= SILENCE + NACK)
        if luck < SILENCE + NACK:
            client.execute_command("NACK", holding.job_id)
        elif luck < SILENCE + NACK + ACK_ELSEWHERE:
            other = random.randrange(self._nodes)
            with self._connect(other, ELSEWHERE_LIMIT) as there:
                self._acknowledge(other, there, holding.job_id)
        else:
            self._acknowledge(node, client, holding.job_id)


def shown(books: Holdings) -> str:
    """Return the figures of a queue."""
    peak, all_in_all, limit = books.peak(forgets=True), books.peak(forgets=False), books.limit
    words = [f"{len(books.all)} deliveries"]
    if limit.in_flight:
        words.append(f"{peak.in_flight} of {limit.in_flight} in flight at most")
    if limit.group_in_flight:
        words.append(f"{peak.of_group} of {limit.group_in_flight} of a group, {peak.in_flight} in all")
    if limit.rate:
        words.append(f"{books.excess():.0f} beyond the rate in a window, {limit.burst} allowed")
    words += [
        f"{len(all_in_all.over)} above the limit after crashes and second deliveries (up to {all_in_all.in_flight})",
        f"{books.again()} again",
        f"{books.still():.1f} s with nobody at the end",
    ]
    return ", ".join(words)
