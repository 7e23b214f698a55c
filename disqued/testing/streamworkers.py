"""Clients of streams that are live workers, and those who let a group begin anew, in virtual time.

    worker     START --> QGET WORKER --> work, and KEEPALIVE meanwhile --> QACK --> again
                 ^         |--> falls silent, and is somebody else after a while: what it had comes back by that alone
                 |         |--> its connection ends: with BIND that is its death, and what it had comes back at once,
                 +---------+    else it goes on with what it has on another connection to its node

    restarter  QGROUP START FIRST, NOW or at an event, or QGROUP FORGET, wait, think, and again

Where nothing fails a worker takes events for longer than anybody waits for them, so that nothing but its death brings
them back.  Times are integer milliseconds.
"""

from random import Random
from typing import TYPE_CHECKING, Any

from disqued.errors import CommandError
from disqued.testing.checker import Request
from disqued.testing.clients import RECONNECT_MS, Actor, Connection
from disqued.testing.groupstarts import AT, FIRST, FORGET, NOW, GroupStart
from disqued.testing.streamchecker import StreamChecker
from disqued.testing.streamrecords import Ack, Hold
from disqued.testing.streams import AGAIN, CREW, QUEUES, StreamLoad, seconds
from disqued.testing.workers import WorkerActor

if TYPE_CHECKING:
    from disqued.testing.server import SimServer


class StreamWorker(WorkerActor):
    """Takes events as a worker, who stays with one node all its life."""

    checker: StreamChecker
    load: StreamLoad

    def __init__(
        self, servers: "list[SimServer]", checker: StreamChecker, load: StreamLoad, name: str, rng: Random
    ) -> None:
        super().__init__(servers, checker, load, name, rng)
        self._queue = QUEUES[0]  #: that it took from last
        self._lease_ms = 0
        self._asked_at = 0
        self._acking: list[bytes] = []  #: what it has said that it is done with, and has no answer yet
        self._acks: list[Ack] = []

    def _begin_life(self) -> None:
        super()._begin_life()
        self.home = self.rng.choice(self.servers)

    def _lose(self, back_in_ms: int | None = None) -> None:
        now = self.events.now
        back_at = None if back_in_ms is None else now + back_in_ms
        self.checker.left([*self._held, *self._acking], CREW, self.id, now, back_at)
        self._held.clear()
        self._acking, self._acks = [], []

    def _fetch(self, connection: Connection) -> None:
        rng, load = self.rng, self.load
        self._queue = rng.choice(QUEUES)
        self._lease_ms = rng.choice(load.crew_leases_ms)
        self._asked_at = self.events.now
        words = [b"QGET", self._queue, CREW, b"EX", seconds(self._lease_ms), b"WORKER", self.id]
        block_ms, count = rng.choice(load.blocks_ms), rng.choice(load.counts)
        if block_ms:
            words += [b"BLOCK", seconds(block_ms)]
        if count:
            words += [b"COUNT", b"%d" % count]
        self._say(connection, "events", *words)

    def _finish(self, connection: Connection) -> None:
        count = len(self._held) if self.rng.random() < self.load.together else 1
        self._acking = list(self._held)[:count]
        for event_id in self._acking:
            del self._held[event_id]
        self._acks = self.checker.acking(self._acking, CREW, self.id, self.events.now)
        self._say(connection, "acks", b"QACK", self._queue, CREW, *self._acking)

    def _fail(self, asked: str, error: CommandError) -> None:
        self.checker.failed(f"{asked} of a worker".encode(), error, self.events.now)
        super()._fail(asked, error)

    def _begin(self, value: Any) -> None:
        super()._begin(value)
        if self._held and value[1] == 1:
            # It was dead.
            self.checker.failed(b"WORKER START", f"{value!r} for {self.id!r}, who was there", self.events.now)
            self._lose()

    def _hear(self, connection: Connection, asked: str, value: Any) -> None:
        now = self.events.now
        if asked == "events":
            self._take(connection, value)
        elif asked == "acks":
            acking, self._acking = self._acking, []
            acks, self._acks = self._acks, []
            orphans = {event_id for event_id, _ in connection.server.node.reconciliation.orphans}
            self.checker.acked(acking, CREW, acks, value, now, orphans=orphans)

    def _take(self, connection: Connection, value: Any) -> None:
        now = self.events.now
        if not value:
            self.checker.nothing(self._queue, CREW, self._asked_at, now, waited=now > self._asked_at + 100)
            return
        for event_id, body in [value] if isinstance(value[0], bytes) else value:
            self.events.note(event_id)
            hold = Hold(CREW, self.id, connection.server.number, now, self._lease_ms)
            self.checker.delivered(event_id, self._queue, body, hold)
            self._held[event_id] = event_id
        self._be_busy()


class GroupRestarter(Actor):
    """Lets a group begin anew, in one queue after the other, until it is told to end or all have had their turn."""

    checker: StreamChecker
    load: StreamLoad

    def __init__(
        self, servers: "list[SimServer]", checker: StreamChecker, load: StreamLoad, name: str, rng: Random, *,
        turns: int = 0,
    ) -> None:  # fmt: skip
        """`turns`: after so many beginnings it is over; 0 = it is told to end."""
        super().__init__(servers, checker, load, name, rng)
        self._turns = turns
        self._done = 0
        self._retires = False
        self._beginning: GroupStart | None = None

    def retire(self) -> None:
        """Begin nothing more, and end when it has been answered."""
        self._retires = True
        if self._beginning is None:
            self.end()

    def go_on(self) -> None:
        """Let the group begin anew."""
        connection = self.connect()
        if self._retires or (self._turns and self._done >= self._turns):
            self.end()
        elif connection is None:
            self.plan(RECONNECT_MS)
        else:
            queue = QUEUES[self._done % len(QUEUES)] if self._turns else self.rng.choice(QUEUES)
            self._done += 1
            self._start(connection, queue)

    def _start(self, connection: Connection, queue: bytes) -> None:
        kind = self.rng.choice((FIRST, NOW, AT, FORGET))
        word, event = kind, None
        if kind == AT:
            events = self._events_of(queue, connection.server.number)
            if events:
                word, event = self.rng.choice(events)
            else:
                word = kind = FIRST
        self._beginning = self.checker.begins(GroupStart(queue, AGAIN, kind, self.events.now, event))
        words = [b"QGROUP", FORGET, queue, AGAIN] if kind == FORGET else [b"QGROUP", b"START", queue, AGAIN, word]
        connection.server.command(connection, words)

    def _events_of(self, queue: bytes, node: int) -> list[tuple[bytes, Request]]:
        """The ids of the events of a queue that a node has made and is likely to have, and what was asked for."""
        return [
            (request.job_id, request)
            for request in self.checker.requests.values()
            if request.queue == queue and request.node == node and request.is_promised and request.job_id is not None
            and self.events.now < request.asked_at + request.ttl_ms
        ]  # fmt: skip

    def heard(self, connection: Connection, value: Any) -> None:
        """Note where the group begins, and think."""
        beginning, self._beginning = self._beginning, None
        assert beginning is not None
        if not isinstance(value, CommandError):
            self.checker.began(beginning, self.events.now)
        else:
            self.checker.begins_not(beginning)
            if value.code != "NOJOB":
                self.checker.failed(b"QGROUP", value, self.events.now)
        if self._retires:
            self.end()
        self.plan(self.rng.randint(1_000, self.load.rests_ms))

    def disconnected(self, connection: Connection) -> None:
        """Nobody knows where the group begins."""
        if connection is self._connection:
            self._beginning = None
            if self._retires:
                self.end()
        super().disconnected(connection)
