"""Producers and consumers in virtual time.

    producer    ADDJOB, wait, think, and again, until it has added what it was to add
    consumer    GETJOB, work, ACKJOB, and again, until it is told to end
                           |--> sometimes NACK, WORKING, FASTACK, an ack elsewhere, or death with jobs in its hands

A connection that breaks is made again, to another node as likely as to the same.  What clients see is told to the
checker, and nothing else of what they do.  Times are integer milliseconds.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import attrs

from disqued.core.model.spans import seconds_text
from disqued.errors import CommandError
from disqued.testing.checker import Checker, Ledger, Request, body_of

if TYPE_CHECKING:
    from disqued.testing.server import SimServer

T = TypeVar("T")

LONG_TTL_S = 10 * 86_400  #: longer than a story, with clocks that jump
RECONNECT_MS = 200
BY_DEFAULT = 0  #: in the place of a number of copies


class Operator:
    """A client that gives orders."""

    is_gone = False

    def __init__(self, heard: Callable[[Any], None] = lambda value: None) -> None:
        self._heard = heard

    def answered(self, value: Any) -> None:
        """Hear the answer."""
        self._heard(value)

    def lost(self) -> None:
        """The node is gone; so be it."""


@attrs.frozen
class Load:
    """What clients of a story do, in chances and choices."""

    queues: tuple[bytes, ...] = (b"a", b"b", b"c")
    #: Copies wanted; those that are more than there are nodes are as many as there are.
    replicate: tuple[int, ...] = (1, 1, 2, 2, 3)
    retries_s: tuple[float, ...] = (0, 2, 5, 10, 30)
    delays_s: tuple[float, ...] = (0, 0, 0, 0, 3, 20)
    ttls_s: tuple[int, ...] = (LONG_TTL_S,)
    once_ttl_s: int = 240  #: TTL of jobs with retry 0: what is left of them after a crash ends by itself
    asynchronous: float = 0.15
    by_default: float = 0.1  #: does not say how many copies; one is promised then, whatever is made
    timeouts_ms: tuple[int, ...] = (1_000, 5_000)
    sizes: tuple[int, ...] = (0, 10, 100, 100, 3_000)
    think_ms: int = 300  #: between two commands of a producer, at most
    work_ms: int = 800  #: between the delivery and the ack, at most
    dies: float = 0.03  #: a consumer dies with jobs in its hands
    nacks: float = 0.04
    works_on: float = 0.04  #: says WORKING, and takes longer
    works_on_elsewhere: float = 0.0  #: share of those who say so to another node
    fast_acks: float = 0.02
    acks_elsewhere: float = 0.2
    acks_again: float = 0.0  #: says so once more, to another node
    cancels: float = 0.01  #: a producer acknowledges its own job
    tries: tuple[int, ...] = ()  #: MAXTRIES of jobs with a retry period; consumers who give back say more of it then
    untried: float = 0.0  #: share of the NACKs by which a consumer says that it has not begun
    groups: tuple[bytes, ...] = ()  #: of the jobs; empty = none has one
    breaks: float = 0.0  #: a producer that uses keys loses its connection while it waits


class Connection:
    """A client's connection to one node."""

    __slots__ = ("_actor", "_boot", "is_gone", "server")

    def __init__(self, actor: "Actor", server: "SimServer") -> None:
        self._actor = actor
        self.server = server
        self._boot = server.boot
        self.is_gone: bool = False

    @property
    def is_open(self) -> bool:
        """Whether a command can be sent."""
        return not self.is_gone and self.server.is_up and self.server.boot == self._boot

    def answered(self, value: Any) -> None:
        """Hand the answer on, if there is somebody to hear it."""
        if not self.is_gone:
            self._actor.heard(self, value)

    def lost(self) -> None:
        """The node is gone."""
        if not self.is_gone:
            self.is_gone = True
            self._actor.disconnected(self)

    def close(self) -> None:
        """Break the connection."""
        if not self.is_gone:
            self.is_gone = True
            self.server.leave(self)


class Actor(ABC):
    """What a producer and a consumer have in common: a connection, and one thing to do at a time."""

    def __init__(self, servers: "list[SimServer]", checker: Ledger, load: Load, name: str, rng: Random) -> None:
        self.servers = servers
        self.events = servers[0].events
        self.checker: Ledger = checker
        self.load: Load = load
        self.name = name
        self.rng = rng
        self.home: SimServer | None = None  #: the node that it connects to; None = any
        self.is_over: bool = False
        self._connection: Connection | None = None
        self._planned = 0  #: what is planned is out of date if it is not the last

    def connect(self) -> "Connection | None":
        """The connection, a new one if need be; None while no node that it may ask is there."""
        connection = self._connection
        if connection is None or not connection.is_open:
            up = [server for server in self.servers if server.is_up and self.home in (None, server)]
            if not up:
                return None
            connection = self._connection = Connection(self, self.rng.choice(up))
        return connection

    def plan(self, ms: int) -> None:
        """Go on in a while."""
        self._planned += 1
        self.events.after(ms, self._wake, self._planned)

    def _wake(self, number: int) -> None:
        if number == self._planned and not self.is_over:
            self.go_on()

    @abstractmethod
    def go_on(self) -> None:
        """Do the next thing."""

    @abstractmethod
    def heard(self, connection: Connection, value: Any) -> None:
        """Hear the answer."""

    def disconnected(self, connection: Connection) -> None:
        """The connection broke; what was asked may have been done or not."""
        if connection is self._connection:
            self.plan(RECONNECT_MS)

    def end(self) -> None:
        """Do nothing more."""
        self.is_over = True
        if self._connection is not None:
            self._connection.close()


class Adder(Actor):
    """Adds some jobs, one or a few at a time, and is over when it has."""

    def __init__(
        self, servers: "list[SimServer]", checker: Ledger, load: Load, name: str, rng: Random, *, count: int
    ) -> None:
        super().__init__(servers, checker, load, name, rng)
        self._left = count
        self._requests: list[Request] = []  #: those whose answer it waits for

    def go_on(self) -> None:
        """Add the next ones."""
        connection = self.connect()
        if connection is None:
            self.plan(RECONNECT_MS)
        elif self._left <= 0:
            self.end()
        else:
            self._add(connection)

    @abstractmethod
    def _add(self, connection: Connection) -> None:
        """Draw what is to be added, and send it."""

    def _send(self, connection: Connection, requests: list[Request], words: list[bytes]) -> None:
        self._left -= len(requests)
        self._requests = requests
        for request in requests:
            self.checker.asked(request)
        connection.server.command(connection, words)

    def disconnected(self, connection: Connection) -> None:
        """Nobody knows whether they are there."""
        self._requests = []
        super().disconnected(connection)


class Producer(Adder):
    """Adds some jobs, one after the other."""

    checker: Checker

    def _add(self, connection: Connection) -> None:
        request = self._draw(connection.server)
        self._send(connection, [request], self._words(request))

    def _draw(self, server: "SimServer") -> Request:
        rng, load = self.rng, self.load
        retry_s = rng.choice(load.retries_s)
        replicate = min(rng.choice(load.replicate), len(self.servers)) if retry_s else 1
        if retry_s and rng.random() < load.by_default:
            replicate = BY_DEFAULT
        number = self.checker.next_number()
        ttl_s = rng.choice(load.ttls_s) if retry_s else load.once_ttl_s
        delay_s = rng.choice(load.delays_s)
        return Request(
            number, rng.choice(load.queues), body_of(number, rng.choice(load.sizes)), replicate, round(retry_s * 1_000),
            ttl_s * 1_000, round(min(delay_s, ttl_s - 1) * 1_000), server.number, self.name, self.events.now,
            waits_for_copies=rng.random() >= load.asynchronous,
        )  # fmt: skip

    def _words(self, request: Request) -> list[bytes]:
        words = [b"ADDJOB", request.queue, request.body, b"%d" % self.rng.choice(self.load.timeouts_ms)]
        words += [b"RETRY", seconds_text(request.retry_ms), b"TTL", seconds_text(request.ttl_ms)]
        if request.replicate != BY_DEFAULT:
            words += [b"REPLICATE", b"%d" % request.replicate]
        if request.delay_ms:
            words += [b"DELAY", seconds_text(request.delay_ms)]
        if not request.waits_for_copies:
            words.append(b"ASYNC")
        if self.load.tries and request.retry_ms:
            words += [b"MAXTRIES", b"%d" % self.rng.choice(self.load.tries), b"KEEPDEAD", b"%d" % LONG_TTL_S]
            words += self.rng.choice(((), (b"BACKOFF", b"1", b"4")))
        group = self.rng.choice(self.load.groups) if self.load.groups else b""
        if group:
            words += [b"GROUP", group]
        return words

    def heard(self, connection: Connection, value: Any) -> None:
        """Note what became of it, and think."""
        requests, self._requests = self._requests, []
        for request in requests:
            if isinstance(value, CommandError):
                self.checker.refused(request.number)
                continue
            self.checker.answered(request.number, value, self.events.now, holders_of(connection.server, value))
            if self.rng.random() < self.load.cancels:
                self.checker.ack_sent(value)
                connection.server.command(connection, [b"ACKJOB", value])
                return
        self.plan(self.rng.randint(0, self.load.think_ms))


def holders_of(server: "SimServer", job_id: bytes) -> frozenset[int] | None:
    """Nodes that may hold a job, by their numbers; None where its node does not know it any more."""
    job = server.state.jobs.get(job_id)
    if job is None:
        return None
    if job.holders is None:
        return frozenset([server.number])
    return frozenset(server.numbers[holder] for holder in job.holders)


class Taker(Actor, Generic[T]):
    """Takes something and says what became of it, until it is told to end."""

    def __init__(self, servers: "list[SimServer]", checker: Ledger, load: Load, name: str, rng: Random) -> None:
        super().__init__(servers, checker, load, name, rng)
        self._held: list[T] = []  #: what it works on
        self._acking: list[T] = []  #: what it has said the end of, and has no answer yet
        self._retires = False

    @property
    def _is_busy(self) -> bool:
        return bool(self._held or self._acking)

    def go_on(self) -> None:
        """Finish what it has, or ask for more."""
        connection = self.connect()
        if connection is None:
            self.plan(RECONNECT_MS)
        elif self._held:
            self._finish(connection)
        elif self._retires:
            self.end()
        else:
            self._ask(connection)

    def _finish(self, connection: Connection) -> None:
        """Die with what it has, or say what became of it."""
        draw = self.rng.random()
        if draw < self.load.dies:
            self._held.clear()
            connection.close()
            self.plan(self.rng.randint(100, 5_000))
        else:
            self._settle(connection, draw)

    def _elsewhere(self, connection: Connection, chance: float) -> Connection | None:
        """Where it says what it has done: on its connection, or now and then on another one; None = it tries again."""
        if self.home is not None or self.rng.random() >= chance:
            return connection
        connection.close()
        other = self.connect()
        if other is None:
            self.plan(RECONNECT_MS)
        return other

    @abstractmethod
    def _settle(self, connection: Connection, draw: float) -> None:
        """Say what became of what it has; `draw`: a number from the chance of a death up to 1, which decides."""

    @abstractmethod
    def _ask(self, connection: Connection) -> None:
        """Ask for more."""


class Consumer(Taker[bytes]):
    """Takes jobs and acknowledges them, until it is told to end."""

    checker: Checker

    def __init__(self, servers: "list[SimServer]", checker: Checker, load: Load, name: str, rng: Random) -> None:
        super().__init__(servers, checker, load, name, rng)
        self._asks_for_jobs = False
        self._returning: list[bytes] = []  #: what it has given back untried, and has no answer yet
        self.queues = [load.queues[0]]

    def retire(self) -> None:
        """Take no more jobs, and end when those in its hands are done."""
        self._retires = True
        if self._asks_for_jobs or not self._is_busy:
            self.end()

    def _ask(self, connection: Connection) -> None:
        rng = self.rng
        self._asks_for_jobs = True
        words = [b"GETJOB", b"COUNT", b"%d" % rng.choice((1, 1, 1, 3, 10))]
        if rng.random() < 0.2:
            words.append(b"NOHANG")
        else:
            words += [b"TIMEOUT", b"%d" % rng.choice((500, 3_000, 20_000))]
        if rng.random() < 0.1:
            words.append(b"WITHCOUNTERS")
        connection.server.command(connection, [*words, b"FROM", *self.queues])

    def heard(self, connection: Connection, value: Any) -> None:
        """Work on the jobs, or note that they are done."""
        rng, load = self.rng, self.load
        if self._asks_for_jobs:
            self._asks_for_jobs = False
            self._take(connection, value)
            self.plan(rng.randint(0, load.work_ms) if self._held else rng.randint(50, 500))
            return
        returning, self._returning = self._returning, []
        if returning and value == len(returning):
            self.checker.returned_untried(returning)
        if not isinstance(value, CommandError):
            known = value == len(self._acking)
            for job_id in self._acking:
                self.checker.acked(job_id, self.events.now, known=known, node=connection.server.number)
        again, self._acking = self._acking, []
        if again and rng.random() < load.acks_again and not self._retires:
            self._ack_again(connection, again)
        self.plan(rng.randint(0, 50))

    def _ack_again(self, connection: Connection, job_ids: list[bytes]) -> None:
        """Acknowledge jobs at another node, too."""
        connection.close()
        other = self.connect()
        if other is not None:
            other.server.command(other, [b"ACKJOB", *job_ids])

    def _take(self, connection: Connection, value: Any) -> None:
        if isinstance(value, CommandError) or not value:
            # Leaving, or nothing there: try elsewhere now and then.
            if self.home is None and self.rng.random() < 0.3:
                connection.close()
            return
        for row in value:
            self.events.note(row[1])
            self.checker.delivered(row[1], row[0], row[2], self.events.now, connection.server.number)
            self._held.append(row[1])
            job = connection.server.state.jobs.get(row[1])
            if job is not None and job.options.terms.max_tries:
                generation, max_tries = job.options.fate.generation, job.options.terms.max_tries
                self.checker.tried(row[1], connection.server.number, generation, max_tries, self.events.now)

    def _said(self) -> tuple[bytes, ...]:
        """What a consumer says of jobs that it gives back."""
        if not self.load.tries:
            return ()
        choices = ((), (), (b"REASON", b"why"), (b"DELAY", b"3"), (b"DELAY", b"20", b"REASON", b"later"), (b"DEAD",))
        return self.rng.choice(choices)

    def _settle(self, connection: Connection, draw: float) -> None:
        load = self.load
        held, self._held = self._held, []
        draw -= load.dies
        if draw < load.nacks:
            self.checker.given_back(held)
            if load.untried and self.rng.random() < load.untried:
                self.checker.not_tried(held)
                self._returning = held
                connection.server.command(connection, [b"NACK", *held, b"UNTRIED"])
                return
            connection.server.command(connection, [b"NACK", *held, *self._said()])
            return
        draw -= load.nacks
        if draw < load.works_on:
            self._held = held
            self._acking = []
            where = self._elsewhere(connection, load.works_on_elsewhere) if load.works_on_elsewhere else connection
            if where is not None:
                where.server.command(where, [b"WORKING", held[0]])
            return
        word = b"FASTACK" if draw - load.works_on < load.fast_acks else b"ACKJOB"
        where = self._elsewhere(connection, self.load.acks_elsewhere)
        if where is None:
            return
        self._acking = held if word == b"ACKJOB" else []
        for job_id in held:
            self.checker.ack_sent(job_id, fast=word == b"FASTACK")
        where.server.command(where, [word, *held])

    def disconnected(self, connection: Connection) -> None:
        """What it had in its hands comes again, to whoever asks."""
        self._held, self._acking, self._returning = [], [], []
        self._asks_for_jobs = False
        super().disconnected(connection)


class WatchingActor(Actor):
    """An operator who notes which nodes hear each other from its question to the answer."""

    checker: Checker

    def __init__(
        self, servers: "list[SimServer]", checker: Checker, load: Load, name: str, rng: Random,
        *, count_faults: Callable[[], int],
    ) -> None:  # fmt: skip
        """Make an operator; `count_faults` returns how many faults have begun."""
        super().__init__(servers, checker, load, name, rng)
        self._count_faults = count_faults
        self._faults = 0  #: that had begun when it asked
        self.is_quiet = True  #: no fault has begun since
        self.well: set[tuple[int, int]] = set()  #: nodes of which the first has heard the second well, by their numbers

    def begin_watch(self) -> None:
        """Note what holds when it asks."""
        self._faults = self._count_faults()
        self.well = self._hearing_pairs()

    def end_watch(self) -> None:
        """Leave what has held since."""
        self.is_quiet = self._count_faults() == self._faults
        self.well &= self._hearing_pairs()

    def _hearing_pairs(self) -> set[tuple[int, int]]:
        serving = [server for server in self.servers if server.is_up and not server.is_paused]
        return {
            (server.number, other.number)
            for server, other in product(serving, repeat=2)
            if server is other or _hears(server, other)
        }


def _hears(server: "SimServer", other: "SimServer") -> bool:
    path = server.network.path(server, other)
    return other.id in server.state.peers.linked and path.reaches and path.is_well
