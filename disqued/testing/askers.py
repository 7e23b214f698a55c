"""Operators who ask all nodes what a command answers, while nodes and links fail.

    operator    CLUSTER ASK * QLEN queue on any node

    in time      the answer comes when the slowest node has been waited for, at the latest
    every node   each node of the cluster is in it once
    its word     what a node is said to have answered it did answer, to this question, since it was asked
    no gap       a node that the asked one could hear all the time, and the other way round, has answered

Times are integer milliseconds.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from disqued.core.cluster.questions import ANSWER_MS, OK
from disqued.errors import CommandError
from disqued.testing.clients import RECONNECT_MS, Connection, WatchingActor

if TYPE_CHECKING:
    from disqued.testing.server import SimServer

ASKED_EVERY_MS: Final = 3_000  #: one operator waits so long at most
SLACK_MS: Final = 10  #: for what is done in the same turn


class Asker(WatchingActor):
    """Asks questions, one at a time, until it is stopped."""

    def __init__(self, *given: Any, count_faults: Callable[[], int]) -> None:
        """Take what a `WatchingActor` takes."""
        super().__init__(*given, count_faults=count_faults)
        self._words: tuple[bytes, ...] = ()  #: what it has asked for
        self._asked_at = 0

    def go_on(self) -> None:
        """Ask."""
        connection = self.connect()
        if connection is None:
            self.plan(RECONNECT_MS)
            return
        self._words = (b"QLEN", self.rng.choice(self.load.queues))
        self._asked_at = self.events.now
        self.begin_watch()
        connection.server.command(connection, [b"CLUSTER", b"ASK", b"*", *self._words])

    def heard(self, connection: Connection, value: Any) -> None:
        """Hold the answers against what the nodes did answer, and go to another node."""
        if not isinstance(value, CommandError):
            self._check(connection.server, value)
        connection.close()
        self.plan(self.rng.randint(1, ASKED_EVERY_MS))

    def _check(self, asked: "SimServer", answers: list[tuple[bytes, bytes, Any]]) -> None:
        took_ms = self.events.now - self._asked_at
        if took_ms > ANSWER_MS + SLACK_MS:
            self.checker.blame(f"in time: server {asked.number} answered after {took_ms} ms")
        ids = [node_id for node_id, _, _ in answers]
        if ids != sorted(server.id for server in self.servers):
            self.checker.blame(f"every node: server {asked.number} told of {ids}")
        self.end_watch()
        well = self.well if self.is_quiet else set()
        for node_id, status, value in answers:
            server = next(server for server in self.servers if server.id == node_id)
            if status == OK and (self._words, value) not in server.told_since(self._asked_at):
                self.checker.blame(f"its word: server {server.number} did not answer {value!r} to {self._words}")
            pair = (asked.number, server.number)
            if status != OK and {pair, pair[::-1]} <= well:
                self.checker.blame(f"no gap: server {server.number} is {status!r} to server {asked.number}")
