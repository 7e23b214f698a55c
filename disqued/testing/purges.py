"""Operators who purge queues while nodes and links fail, and what must be so of the jobs.

    operator    QPURGE queue on any node, one after the other; now and then with STATE, or with DRYRUN

    purged       a job all of whose holders could be reached from the question to the answer, by each other and by the
                 node that was asked, is not delivered after the answer; with RETRY 0, where that is so of all nodes
    acks last    a job that the node that was asked holds does not come back after the heal, wherever its copies were
                 (RETRY above 0, as others move and leave no trace)
    undone       no node says of a job that a purge ended, and that no consumer acknowledged, that it is done
    jobs stay    what is added after the answer of a purge that reached all nodes is not ended by it; a dry run ends
                 nothing, which the first queue shows, where there are dry runs alone

A purge that does not reach all nodes may reach one later, and end what was added up to then.

Times are integer milliseconds.
"""

from collections.abc import Callable
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from disqued.core.model.job import ACKED, WAIT_REPL
from disqued.core.model.messages import WAS_ACKED
from disqued.core.work.standings import standing_of
from disqued.errors import CommandError
from disqued.testing.clients import RECONNECT_MS, Connection, WatchingActor

if TYPE_CHECKING:
    from disqued.testing.server import SimServer

PURGED_EVERY_MS: Final = 15_000  #: one operator waits so long at most
DRY_RUNS: Final = 0.2
OF_A_STATE: Final = 0.2
NEVER: Final = 1 << 62


class Purger(WatchingActor):
    """Purges one queue after the other, until it is told to end."""

    def __init__(self, *given: Any, count_faults: Callable[[], int]) -> None:
        """Take what a `WatchingActor` takes."""
        super().__init__(*given, count_faults=count_faults)
        self._words: list[bytes] = []  #: the purge that it has no answer to; empty = none
        self._number = 0  #: of this purge among those of the queue
        self._own: list[bytes] = []  #: jobs that the node had then
        self._holders: dict[bytes, set[int]] = {}  #: numbers of the nodes that may hold each job, of all nodes
        self._once: list[bytes] = []  #: jobs with RETRY 0, on whatever node

    def go_on(self) -> None:
        """Purge a queue."""
        connection = self.connect()
        if connection is None:
            self.plan(RECONNECT_MS)
            return
        draw = self.rng.random()
        queues = self.load.queues
        if draw < DRY_RUNS:
            self._words = [b"QPURGE", queues[0], b"DRYRUN"]
        else:
            self._words = [b"QPURGE", self.rng.choice(queues[1:])]
            if draw < DRY_RUNS + OF_A_STATE:
                self._words += [b"STATE", self.rng.choice((b"queued", b"active"))]
            purged_until = self.checker.purged_until.setdefault(self._words[1], [])
            self._number = len(purged_until)
            purged_until.append(NEVER)
        self._look(connection.server)
        connection.server.command(connection, self._words)

    def heard(self, connection: Connection, value: Any) -> None:
        """Note which jobs must have ended, and wait."""
        words, self._words = self._words, []
        if not isinstance(value, CommandError):
            self.events.note(b"%d" % value)
            if b"DRYRUN" not in words:
                self._answered(connection.server, words)
        connection.close()
        self.plan(self.rng.randint(1, PURGED_EVERY_MS))

    def disconnected(self, connection: Connection) -> None:
        """The nodes go on with the purge, or do not."""
        self._words = []
        super().disconnected(connection)

    def _look(self, asked: "SimServer") -> None:
        """Note the jobs of the queue, and who may hold them."""
        self.begin_watch()
        self._own, self._holders, self._once = [], {}, []
        for server in self.servers:
            for job in server.state.jobs if server.boot else ():
                if job.queue != self._words[1] or job.state in (ACKED, WAIT_REPL):
                    continue
                if not job.options.retry_ms:
                    self._once.append(job.id)
                    continue
                self._holders.setdefault(job.id, {server.number}).update(self._holders_on(server, job.id))
                if server is asked and not asked.is_paused:
                    self._own.append(job.id)

    def _holders_on(self, server: "SimServer", job_id: bytes) -> set[int]:
        """Return the nodes that may hold a job, as far as a node knows."""
        job = server.state.jobs.get(job_id)
        if job is None:
            return set()
        return {server.number, *(server.numbers[node_id] for node_id in job.holders or ())}

    def _answered(self, asked: "SimServer", words: list[bytes]) -> None:
        checker, now = self.checker, self.events.now
        self.end_watch()
        is_whole = self.is_quiet and self._is_mesh(set(range(len(self.servers))))
        if is_whole:
            checker.purged_until[words[1]][self._number] = now
        if b"STATE" in words:
            return
        self._check_undone()
        if is_whole:
            checker.purged.update(dict.fromkeys(self._once, now))
        for job_id in self._own:
            checker.ack_sent(job_id)
            checker.acked(job_id, now, known=True, node=asked.number)
        if not self.is_quiet:
            return
        for job_id, holders in self._holders.items():
            # It may have moved since.
            known = holders.union({asked.number}, *(self._holders_on(server, job_id) for server in self.servers))
            if self._is_mesh(known):
                checker.purged[job_id] = now

    def _check_undone(self) -> None:
        """See that no node takes a job that nobody acknowledged for done."""
        for job_id in (*self._holders, *self._once):
            request = self.checker.known(job_id)
            if request is None or request.ack_sent or request.fast_acked:
                continue
            for server in self.servers:
                if server.boot and standing_of(server.state, job_id).state == WAS_ACKED:
                    self.checker.blame(
                        f"undone: {job_id!r} was purged, and server {server.number} says that it is done"
                    )

    def _is_mesh(self, numbers: set[int]) -> bool:
        """Return whether these nodes served, and heard each other well, from the question to the answer."""
        return all(pair in self.well for pair in product(numbers, repeat=2))
