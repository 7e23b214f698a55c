"""A lone node, its clients and its disk in virtual time: crashes at any moment, restarts, clocks that jump.

Records go to the disk at the end of a turn, and only then do clients hear anything.  A crash keeps a part of what the
turn wrote and loses what it said.  Whatever happens:

    no job is lost whose producer heard of it, until somebody acknowledges it, deletes it or its time ends
    no job comes back whose consumer heard that the node knew it and took the acknowledgement
    no at-most-once job is heard of by two consumers

A failure names the seed; `World(seed).run(...)` leads the same life again.
"""

from random import Random
from typing import Any

import attrs
import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.job import ACTIVE
from disqued.core.model.outbox import JOB_ADDED
from disqued.core.recovery import Recovery, snapshot, walk
from disqued.errors import CommandError
from disqued.testing.clock import Clock
from disqued.wire.jobdump import decode_record, encode_event, encode_job
from tests.core_fixtures import Server, check

QUEUES = [b"a", b"b", b"c"]
HOUR_MS = 3_600_000
LONG_TTL_S = 10 * 86_400  #: longer than a life, clocks that jump included
SHORT_TTL_S = 20
RETRIES = [0, 1, 5, 30]
DELAYS = [0, 0, 0, 3, 60]
DRAIN_S = 200  #: longer than every retry and delay


@attrs.define
class Fact:
    """What a producer knows of a job, and what became of it."""

    retry: int
    lasts: bool  #: its TTL is a long one
    fetched: bool = False  #: the node gave it to somebody, who may never have heard of it
    heard: int = 0  #: times that a consumer did hear of it
    dropped: bool = False  #: somebody asked to acknowledge or delete it
    acked: bool = False  #: and a consumer heard that it is acknowledged


class World:
    """One life of one node."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.disk: list[bytes] = []
        self.disk_has_queues = False
        self.server = Server(seed=seed)
        self.facts: dict[bytes, Fact] = {}
        self.promised: set[bytes] = set()  # jobs whose producers heard of them
        self.held: list[bytes] = []  # jobs that consumers have
        self.turn: list[tuple[str, Any]] = []  # what clients will hear when the turn is committed
        self.records: list[bytes] = []  # what the turn has written
        self.drift_ms = 0  # how far the wall clock has jumped by now
        self.clients = self.crashes = self.restarts = 0

    def run(self, turns: int) -> None:
        """Lead a life, then let consumers finish what is there."""
        for number in range(turns):
            self.pass_time(self.rng.choice([0, 1, 50, 400, 2_000]))
            for _ in range(self.rng.randrange(4)):
                self.rng.choice(self.actions)(self)
            self.end_turn()
            if number % 50 == 0:
                check(self.server)
        self.drain()

    # What clients do.

    def add(self) -> None:
        retry, lasts = self.rng.choice(RETRIES), self.rng.random() < 0.8
        ttl = LONG_TTL_S if lasts else SHORT_TTL_S
        delay = self.rng.choice(DELAYS) if lasts else 0
        body = b"%d %d" % (retry, lasts)
        job_id = self.ask("ADDJOB", self.rng.choice(QUEUES), body, 0, "RETRY", retry, "DELAY", delay, "TTL", ttl)
        if job_id is not None:
            self.learn(job_id, body)
            self.turn.append(("added", job_id))

    def learn(self, job_id: bytes, body: bytes) -> Fact:
        """What is known of a job; its body says what it is, since a consumer may have it before its producer knows."""
        if job_id not in self.facts:
            retry, lasts = map(int, body.split())
            self.facts[job_id] = Fact(retry, bool(lasts))
        return self.facts[job_id]

    def get(self) -> None:
        queues = self.rng.sample(QUEUES, self.rng.randint(1, 3))
        self.fetched(self.ask("GETJOB", "NOHANG", "COUNT", self.rng.randint(1, 3), "FROM", *queues))

    def wait(self) -> None:
        queues = self.rng.sample(QUEUES, self.rng.randint(1, 2))
        value = self.ask("GETJOB", "TIMEOUT", self.rng.choice([0, 100, 5_000]), "FROM", *queues)
        if value is not BLOCKED:
            self.fetched(value)

    def leave(self) -> None:
        if self.clients:
            self.server.gone(f"client {self.rng.randint(max(1, self.clients - 10), self.clients)}")

    def ack(self) -> None:
        self.drop("acked", [self.held.pop(self.rng.randrange(len(self.held)))] if self.held else [])

    def drop(self, what: str, ids: list[bytes]) -> None:
        """Acknowledge or delete; what the node says it does not know is not done."""
        for job_id in ids:
            self.facts[job_id].dropped = True
            if self.ask("ACKJOB" if what == "acked" else "DELJOB", job_id) == 1:
                self.turn.append((what, job_id))

    def delete(self) -> None:
        if self.promised and self.rng.random() < 0.2:
            self.drop("deleted", [self.any_job()])

    def meddle(self) -> None:
        if self.promised:
            self.ask(self.rng.choice(["NACK", "WORKING", "ENQUEUE", "DEQUEUE"]), self.any_job())

    def pause(self) -> None:
        self.ask("PAUSE", self.rng.choice(QUEUES), self.rng.choice(["in", "out", "all", *["none"] * 9]))

    actions = (add, add, add, add, get, get, wait, leave, ack, ack, ack, delete, meddle, pause)

    def any_job(self) -> bytes:
        return self.rng.choice(sorted(self.promised)[-40:])

    def ask(self, *words: Any) -> Any:
        """Run a command for a new client; None for an error."""
        self.clients += 1
        try:
            value = self.server(*words, client=f"client {self.clients}")
        except CommandError:
            value = None
        self.take_effects()
        return value

    def fetched(self, rows: Any) -> None:
        """Note what a consumer will have, once it hears of it."""
        for _, job_id, body in rows or []:
            self.learn(job_id, body).fetched = True
            self.turn.append(("heard", job_id))

    # What the driver and the machine do.

    def pass_time(self, ms: int) -> None:
        self.server.advance(ms)
        self.take_effects()

    def take_effects(self) -> None:
        """Write down what the last steps asked for, as it is now."""
        offset = self.server.clock.wall() - self.server.clock.now()
        self.records += [
            encode_job(record[1], offset) if record[0] == JOB_ADDED else encode_event(record, self.server.clock.wall())
            for record in self.server.journal[self.written :]
        ]
        self.written = len(self.server.journal)
        for values in self.server.answers.values():
            for value in values:
                self.fetched(value)
        self.server.answers.clear()

    written = 0

    def end_turn(self) -> None:
        chance = self.rng.random()
        if chance < 0.02:
            self.crash()
            return
        self.commit()
        if chance < 0.03:
            self.rewrite()
        elif chance < 0.04:
            self.restart()
        elif chance < 0.05:
            self.jump()

    def commit(self) -> None:
        """Make the records durable, then speak."""
        self.disk += self.records
        for what, job_id in self.turn:
            self.hear(what, job_id)
        self.records, self.turn = [], []

    def hear(self, what: str, job_id: bytes) -> None:
        fact = self.facts[job_id]
        if what == "added":
            self.promised.add(job_id)
        elif what == "acked":
            fact.acked = True
        elif what == "heard":
            assert not fact.acked, "a job came back that was acknowledged"
            fact.heard += 1
            assert fact.retry or fact.heard == 1, "an at-most-once job came twice"
            self.held.append(job_id)

    def crash(self) -> None:
        """Stop at once: some of the turn's records are on the disk, nobody heard of any."""
        self.crashes += 1
        self.disk += self.records[: self.rng.randint(0, len(self.records))]
        self.start(restores_queues=False)

    def restart(self) -> None:
        """Stop in order, and come back with queues and deliveries as they were."""
        self.restarts += 1
        queues = {name: self.server("QPEEK", name, 10**6) for name in QUEUES}
        shown = {job.id: self.comparable(job.id) for job in self.server.state.jobs}
        self.rewrite(with_queues=True)
        self.start(restores_queues=True)
        assert {name: self.server("QPEEK", name, 10**6) for name in QUEUES} == queues
        assert {job.id: self.comparable(job.id) for job in self.server.state.jobs} == shown

    def comparable(self, job_id: bytes) -> dict[str, Any]:
        """What of a job does not depend on the moment."""
        shown = self.server.show(job_id)
        assert shown is not None
        moving = ("ttl", "next-requeue-within", "next-awake-within", "phase", "consumer", "in-flight-for", "place")
        return {name: shown[name] for name in shown if name not in moving}

    def rewrite(self, *, with_queues: bool = False) -> None:
        """Write the journal anew."""
        state, clock = self.server.state, self.server.clock
        wall = clock.wall()
        self.disk = [
            encode_job(record[1], wall - clock.now(), record[1].state if with_queues else ACTIVE)
            if record[0] == JOB_ADDED
            else encode_event(record, wall)
            for record in (snapshot(state) if with_queues else walk(state))
        ]

    def start(self, *, restores_queues: bool) -> None:
        """Come up from the disk, on a machine whose monotonic clock may have begun anew."""
        down_ms = 0 if restores_queues else self.rng.choice([0, 10, 3_000, 100_000])
        clock = Clock(now=self.rng.choice([0, 77, 10**9]), wall=self.server.clock.wall() + down_ms)
        self.server = server = Server(seed=self.rng.randrange(2**32), clock=clock)
        server.state.journaling = False
        recovery = Recovery(server.state, restores_queues=restores_queues)
        for record in self.disk:
            recovery.apply(decode_record(record))
        server.state.journaling = True
        server.journal = [(JOB_ADDED, job) for job in server.state.jobs if job not in server.state.custody.evictable]
        self.written = len(server.journal)
        self.records, self.turn = [], []
        check(server)
        self.nothing_is_lost()

    def jump(self) -> None:
        """Set the wall clock, within a few hours of the truth."""
        drift_ms = self.rng.randint(-3 * HOUR_MS, 3 * HOUR_MS)
        self.server.clock.jump_wall(drift_ms - self.drift_ms)
        self.drift_ms = drift_ms

    # What must be so.

    def nothing_is_lost(self) -> None:
        """Every job that was promised is here, unless it had its chance."""
        for job_id in sorted(self.promised):
            fact = self.facts[job_id]
            if fact.lasts and not fact.dropped and not (fact.fetched and not fact.retry):
                assert self.server.state.jobs.get(job_id) is not None, "a job is lost that was promised"

    def drain(self) -> None:
        """Let consumers take and acknowledge everything that is left."""
        self.nothing_is_lost()
        for queue in QUEUES:
            self.ask("PAUSE", queue, "none")
        for _ in range(DRAIN_S):
            self.pass_time(1_000)
            for _ in range(3):
                self.fetched(self.ask("GETJOB", "NOHANG", "COUNT", 10_000, "FROM", *QUEUES))
            self.commit()
            done, self.held = self.held, []
            self.drop("acked", done)
            self.commit()
        for job_id in sorted(self.promised):
            fact = self.facts[job_id]
            if fact.lasts and fact.retry and not fact.dropped:
                assert fact.heard, "a job was never delivered"
        assert not [job for job in self.server.state.jobs if job.options.retry_ms], "something is left"
        check(self.server)


@pytest.mark.parametrize("seed", range(8))
def test_a_node_that_crashes_keeps_its_promises(seed: int) -> None:
    world = World(seed)
    world.run(3_000)
    assert world.crashes > 20
    assert world.restarts > 10
    assert sum(fact.heard for fact in world.facts.values()) > 1_000
