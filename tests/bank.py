"""The bank: producers and consumers on every node of a cluster of real daemons, and the books on what they saw.

    producer n --ADDJOB--> node n        queue `shared`: any consumer may have it
                                         queue `to-M`: only the consumer of node M asks for it, so it has to travel
    consumer n --GETJOB--> node n        works, and then ACKJOB, on its node or on another one;
                                         or NACK; or it dies with the job in its hands

Whatever fails meanwhile is the business of the test.  The books are those of disqued.testing.checker: no job whose
ADDJOB was answered is lost, none with retry 0 is heard of twice, bodies and ids are intact, and what was acknowledged
before the end of the faults does not come back long after.

Each client is a thread with a connection, which it makes anew when it breaks.  A producer waits when too many of its
jobs are not done, so that what a daemon misses while it is down can be caught up with.  Times are seconds unless the
name says ms.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from random import Random
from typing import Self

import attrs
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from disqued.testing.checker import Checker, Request, body_of
from tests.integration.daemon import Daemon, wait_until
from tests.limits import LIMIT, seconds

#: What a node may answer to ADDJOB while others fail, instead of a job id.
REFUSALS = ("NOREPL", "LEAVING")
AWAY = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError)
SHARED = b"shared"
LONG_S = 86_400  #: TTL of jobs that must arrive
ONCE_TTL_S = 5  #: of jobs with retry 0: after a crash nobody hands them out, and they end by themselves
ADD_TIMEOUT_MS = 2_000
GET_TIMEOUT_MS = 200
COUNT = 5  #: jobs that a consumer takes at once
OPEN_MAX = 200  #: jobs of one producer that are not done
BREATH = 0.02  #: between two attempts at what does not work yet
SIZES = (0, 20, 20, 300, 300, 3_000, 300_000)  #: the last is larger than a piece that travels between nodes
ACK_ELSEWHERE = 0.1
NACK = 0.03
DIE = 0.03

ANSWER_LIMIT = seconds(5)  #: longer than any command here waits; then the node is as good as away
ELSEWHERE_LIMIT = 0.5


@attrs.define
class Tally:
    """What clients did, and how often they had to begin anew."""

    added: Counter[int] = attrs.field(factory=Counter)  #: by node
    acked: Counter[int] = attrs.field(factory=Counter)
    delivered: int = 0
    again: int = 0  #: of these: a job that was delivered before
    after_ack: int = 0  #: of these: after an acknowledgement was answered
    refused: Counter[str] = attrs.field(factory=Counter)  #: by the first word of the refusal
    broken: int = 0  #: connections that ended, or could not be made

    def line(self) -> str:
        """The figures."""
        refused = ", ".join(f"{count} {word}" for word, count in sorted(self.refused.items())) or "none"
        return (
            f"{self.added.total()} additions and {self.acked.total()} acknowledgements answered, {self.delivered}"
            f" deliveries, {self.again} of them again and {self.after_ack} after an acknowledgement,"
            f" refused: {refused}, connections broken: {self.broken}"
        )


class Bank:
    """Clients of daemons, and what they saw."""

    def __init__(self, daemons: Sequence[Daemon], seed: int) -> None:
        self.checker = Checker()
        self.tally = Tally()
        self._daemons = (
            daemons  #: the list of the cluster, in which a daemon that was started again replaces the old one
        )
        self._nodes = nodes = len(daemons)
        self._random = Random(seed)
        self._guard = threading.Lock()
        self._no_more = threading.Event()  #: producers shall end
        self._over = threading.Event()  #: consumers, too
        self._open: set[int] = set()  #: numbers of jobs that must still be delivered
        self._by_id: dict[bytes, Request] = {}
        self._open_of: Counter[Hashable] = Counter()  #: how many of them are of this account
        self._failures: list[BaseException] = []
        self._producers = [self._thread(self._produce, number) for number in range(nodes)]
        self._consumers = [self._thread(work, number) for work in self._tasks() for number in range(nodes)]

    # What a test asks for.

    def __enter__(self) -> Self:
        for thread in (*self._producers, *self._consumers):
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._no_more.set()
        self._over.set()
        for thread in (*self._producers, *self._consumers):
            thread.join(LIMIT)

    def wait_business(self, nodes: Iterable[int] | None = None, jobs: int = 30) -> None:
        """Wait until jobs have been added and acknowledged on each of these nodes, from now on."""
        for counter, what in ((self.tally.added, "additions"), (self.tally.acked, "acknowledgements")):
            before = counter.copy()
            for node in range(self._nodes) if nodes is None else nodes:
                wait_until(
                    lambda node=node, counter=counter, before=before: (
                        self._failures or counter[node] >= before[node] + jobs
                    ),
                    f"{jobs} {what} on node {node}; so far: {self.tally.line()}",
                )
            self._raise()

    def lost(self, node: int) -> None:
        """Everything that a node knew is gone: a job is excused when no more copies of it were wanted than are lost."""
        with self._guard:
            self.checker.lost_memory(node, now())

    def close(self) -> None:
        """Faults are over: no more is added, and what is left is waited for, down to the last job."""
        with self._guard:
            self.checker.healed(now())
        self._no_more.set()
        try:
            wait_until(lambda: self._failures or not self._missing(), "every job delivered and acknowledged")
        except AssertionError as late:
            raise AssertionError("\n".join((str(late), self.tally.line(), *self.checker.verdict()))) from None
        self._raise()

    def _missing(self) -> bool:
        with self._guard:
            return bool(self.checker.missing())

    def verdict(self) -> list[str]:
        """Say what is wrong, once no node holds anything any more; empty = nothing."""
        self._over.set()
        for thread in (*self._producers, *self._consumers):
            thread.join(LIMIT)
        self._raise()
        return self.checker.verdict()

    # Threads.

    def _tasks(self) -> list[Callable[[int, Random, redis.Redis], None]]:
        """Name what is done on each node until the books are closed."""
        return [self._consume]

    def _thread(self, work: Callable[[int, Random, redis.Redis], None], node: int) -> threading.Thread:
        random = Random(self._random.random())
        ending = self._no_more if work == self._produce else self._over
        return threading.Thread(target=self._run, args=(work, node, random, ending))

    def _run(
        self,
        work: Callable[[int, Random, redis.Redis], None],
        node: int,
        random: Random,
        ending: threading.Event,
    ) -> None:
        try:
            while not ending.is_set():
                try:
                    with self._connect(node) as client:
                        while not ending.is_set():
                            work(node, random, client)
                except AWAY:
                    self._note_broken()
                    ending.wait(BREATH)
        except BaseException as error:
            self._failures.append(error)

    def _connect(self, node: int, limit: float = ANSWER_LIMIT) -> redis.Redis:
        # A command that is sent twice by the library would be two commands that nobody knows of.
        return self._daemons[node].redis(decode_responses=False, socket_timeout=limit, retry=Retry(NoBackoff(), 0))

    def _raise(self) -> None:
        if self._failures:
            raise self._failures[0]

    def _note_broken(self) -> None:
        with self._guard:
            self.tally.broken += 1

    # Producers.

    def _produce(self, node: int, random: Random, client: redis.Redis) -> None:
        if self._open_of[node] >= OPEN_MAX:
            self._no_more.wait(BREATH)
            return
        request = self._new_request(node, random)
        try:
            job_id = client.execute_command(*self.addition_of(request))
        except redis.exceptions.ResponseError as error:
            self._note_refusal(request, str(error))
        else:
            self._note_answer(request, job_id)

    def _new_request(self, node: int, random: Random) -> Request:
        """Draw the next job of a producer, and note that it is about to be added."""
        is_once = random.random() < 0.1
        with self._guard:
            number = self.checker.next_number()
            request = Request(
                number=number,
                queue=SHARED if random.random() < 0.7 else queue_to((node + 1) % self._nodes),
                body=body_of(number, random.choice(SIZES)),
                replicate=1 if is_once else random.choice((1, 2, 2, min(3, self._nodes))),
                retry_ms=0 if is_once else random.choice((1_000, 3_000)),
                ttl_ms=1_000 * (ONCE_TTL_S if is_once else LONG_S),
                delay_ms=1_000 if random.random() < 0.05 else 0,
                node=node,
                producer=node,
                asked_at=now(),
                waits_for_copies=is_once or random.random() > 0.1,
            )
            self.checker.asked(request)
        return request

    def addition_of(self, request: Request) -> tuple[object, ...]:
        """Make the words of ADDJOB."""
        return (
            "ADDJOB", request.queue, request.body, ADD_TIMEOUT_MS,
            "REPLICATE", request.replicate,
            "RETRY", request.retry_ms // 1_000,
            "DELAY", request.delay_ms // 1_000,
            "TTL", request.ttl_ms // 1_000,
            *(() if request.waits_for_copies else ("ASYNC",)),
        )  # fmt: skip

    def _note_answer(self, request: Request, job_id: bytes) -> None:
        with self._guard:
            self.checker.answered(request.number, job_id, now(), None)
            self.tally.added[request.producer] += 1
            # Its consumer may have been first; and what is not firmly promised is not waited for.
            if request.retry_ms and request.waits_for_copies and not request.ack_sent:
                self._open.add(request.number)
                self._open_of[self._account(request)] += 1

    def _account(self, request: Request) -> Hashable:
        """Return what has a bound of open jobs: the producer of a node."""
        return request.producer

    def _note_refusal(self, request: Request, text: str) -> None:
        """Note an answer that is heard while nodes fail; any other is a failure of the test."""
        word = text.partition(" ")[0]
        if word not in REFUSALS:
            raise AssertionError(f"ADDJOB was answered {text!r}")
        with self._guard:
            self.checker.refused(request.number)
            self.tally.refused[word] += 1
        self._no_more.wait(BREATH)

    # Consumers.

    def _consume(self, node: int, random: Random, client: redis.Redis) -> None:
        asked = ("GETJOB", "TIMEOUT", GET_TIMEOUT_MS, "COUNT", COUNT, "FROM", SHARED, queue_to(node))
        try:
            jobs = client.execute_command(*asked) or ()
        except redis.exceptions.ResponseError as error:
            if not str(error).startswith("LEAVING"):
                raise
            # It would have to wait, and is to do so elsewhere.
            self._over.wait(BREATH)
            return
        with self._guard:
            self.tally.delivered += len(jobs)
            for queue, job_id, body in jobs:
                request = self.checker.delivered(job_id, queue, body, now(), node)
                if request is not None:
                    self._note_delivery(request, job_id, node)
        for _, job_id, _ in jobs:
            self._treat(node, random, client, job_id)

    def _note_delivery(self, request: Request, job_id: bytes, node: int) -> None:
        """Note that the consumer of a node has a job."""
        self.tally.again += request.deliveries > 1
        self.tally.after_ack += request.acked_at is not None
        self._by_id[job_id] = request

    def _treat(self, node: int, random: Random, client: redis.Redis, job_id: bytes) -> None:
        """Do with a job what consumers do."""
        luck = random.random()
        if luck < NACK:
            client.execute_command("NACK", job_id)
        elif luck < NACK + DIE:
            raise redis.exceptions.ConnectionError("this consumer has died")
        elif luck < NACK + DIE + ACK_ELSEWHERE:
            other = random.randrange(self._nodes)
            with self._connect(other, ELSEWHERE_LIMIT) as there:
                self._acknowledge(other, there, job_id)
        else:
            self._acknowledge(node, client, job_id)

    def _acknowledge(self, node: int, client: redis.Redis, job_id: bytes) -> None:
        with self._guard:
            self.checker.ack_sent(job_id)
            self._settle(job_id)
        known = client.execute_command("ACKJOB", job_id, *self.result_of(job_id))
        with self._guard:
            self.checker.acked(job_id, now(), known=bool(known))
            self.tally.acked[node] += 1

    def result_of(self, job_id: bytes) -> tuple[object, ...]:
        """Make what ACKJOB says besides the id."""
        return ()

    def _settle(self, job_id: bytes) -> None:
        """Strike a job off the list; when its acknowledgement is not heard, nodes still have it, and give it out."""
        request = self._by_id.get(job_id)
        if request is not None and request.number in self._open:
            self._open.discard(request.number)
            self._open_of[self._account(request)] -= 1


def queue_to(node: int) -> bytes:
    """Name the queue that only the consumer of this node reads."""
    return b"to-%d" % node


def now() -> int:
    """Return the time in milliseconds, as all books have it."""
    return int(time.monotonic() * 1_000)
