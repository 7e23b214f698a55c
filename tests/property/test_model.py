"""The commands of a lone node against a model of it that a page can hold.

The model keeps everything in plain lists and looks at all of it each time.  Where the node may choose (which of two
queues that became ready in the same millisecond serves a consumer of both), it says what it chose, and the model
checks that it was allowed to.
"""

from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, precondition, rule

from disqued.commands.table import BLOCKED
from disqued.errors import CommandError, QueuePaused, QueueTooLong, TooLate, UnknownJob
from tests.core_fixtures import OLD_ID, UNKNOWN_ID, Server, check

QUEUES = [b"a", b"b", b""]
CLIENTS = ["anna", "ben", "cleo", "dan"]
IN, OUT = 1, 2
PAUSES = {0: b"none", IN: b"in", OUT: b"out", IN | OUT: b"all"}

queue_names = st.sampled_from(QUEUES)
clients = st.sampled_from(CLIENTS)
spans = st.sampled_from([0, 1, 63, 64, 100, 499, 500, 999, 1_000, 1_001, 2_000, 5_000, 61_000, 310_000])


@attrs.define(eq=False)
class ModelJob:
    """What a job ought to be; its place among others is its number."""

    number: int
    id: bytes
    queue: bytes
    body: bytes
    retry_ms: int
    ttl_ms: int
    expires_at: int
    requeue_at: int | None  # of a queued job: meaningless
    state: str = "active"
    queued_before: bool = False
    taken_out: bool = False
    nacks: int = 0
    additional: int = 0
    served: int = 0

    def row(self, *, counters: bool) -> tuple[Any, ...]:
        """As GETJOB answers it."""
        more = (b"nacks", self.nacks, b"additional-deliveries", self.additional) if counters else ()
        return (self.queue, self.id, self.body, *more)


@attrs.define(eq=False)
class ModelWaiter:
    """A consumer that waits."""

    client: str
    queues: list[bytes]
    counters: bool
    until: int | None
    count: int = 1  #: most jobs that it is given, all of one queue


@attrs.define(eq=False)
class Model:
    """One node, as the README tells it."""

    now: int
    jobs: list[ModelJob] = attrs.field(factory=list)  # oldest first
    waiters: list[ModelWaiter] = attrs.field(factory=list)  # first come first
    pause_of_cluster: dict[bytes, int] = attrs.field(factory=dict)
    pause_here: dict[bytes, int] = attrs.field(factory=dict)

    def pause(self, queue: bytes) -> int:
        """The pause in effect."""
        return self.pause_of_cluster.get(queue, 0) | self.pause_here.get(queue, 0)

    def find(self, job_id: bytes) -> ModelJob | None:
        """A job that is known."""
        return next((job for job in self.jobs if job.id == job_id), None)

    def queued(self, queue: bytes) -> list[ModelJob]:
        """What waits in a queue, oldest first."""
        return [job for job in self.jobs if job.queue == queue and job.state == "queued"]

    def deliverable(self, queue: bytes) -> list[ModelJob]:
        """What a consumer may have."""
        return [] if self.pause(queue) & OUT else self.queued(queue)

    def enqueue(self, job: ModelJob | None, *, nack: bool = False) -> bool:
        """ENQUEUE, NACK, or the retry timer."""
        if job is None or job.state != "active" or (job.queued_before and not job.retry_ms):
            return False
        if job.queued_before and not job.taken_out:
            job.nacks += nack
            job.additional += not nack
        job.state, job.queued_before, job.taken_out = "queued", True, False
        job.requeue_at = self.now + job.retry_ms if job.retry_ms else None
        return True

    def deliver(self, job: ModelJob) -> None:
        """Hand a job out."""
        job.state = "active"
        job.served += 1
        assert job.retry_ms or job.served == 1, "an at-most-once job was handed out twice"
        job.requeue_at = self.now + job.retry_ms if job.retry_ms else None

    def fetch(self, queues: list[bytes], count: int) -> list[ModelJob]:
        """Take one job from each queue in turn, and round again."""
        taken: list[ModelJob] = []
        while True:
            before = len(taken)
            for queue in queues:
                if jobs := self.deliverable(queue):
                    self.deliver(jobs[0])
                    taken.append(jobs[0])
                    if len(taken) == count:
                        return taken
            if len(taken) == before:
                return taken

    def drain(self, queues: list[bytes], count: int) -> list[ModelJob]:
        """Take what each queue has before the next one is looked at."""
        taken = [job for queue in dict.fromkeys(queues) for job in self.deliverable(queue)][:count]
        for job in taken:
            self.deliver(job)
        return taken

    def dequeue(self, job: ModelJob | None) -> bool:
        """DEQUEUE: the timer goes on, and one that ended meanwhile has begun again each time."""
        if job is None or job.state != "queued":
            return False
        job.state, job.taken_out = "active", True
        while job.requeue_at is not None and job.requeue_at <= self.now:
            job.requeue_at += job.retry_ms
        return True

    def next_event(self) -> int | None:
        """When something happens by itself."""
        times = [job.expires_at for job in self.jobs]
        times += [job.requeue_at for job in self.jobs if job.state == "active" and job.requeue_at is not None]
        times += [waiter.until for waiter in self.waiters if waiter.until is not None]
        return min(times, default=None)

    def tick(self) -> dict[str, list[None]]:
        """Do what is due; returns who is answered with nothing."""
        timed_out = [waiter for waiter in self.waiters if waiter.until is not None and waiter.until <= self.now]
        self.waiters = [waiter for waiter in self.waiters if waiter not in timed_out]
        self.jobs = [job for job in self.jobs if job.expires_at > self.now]
        for job in self.jobs:
            if job.state == "active" and job.requeue_at is not None and job.requeue_at <= self.now:
                if job.retry_ms and self.pause(job.queue) & IN:
                    job.requeue_at = self.now + job.retry_ms
                else:
                    self.enqueue(job)
        return {waiter.client: [None] for waiter in timed_out}

    def serve(self, client: str, rows: list[tuple[Any, ...]]) -> None:
        """Check that a consumer was rightly given jobs, and note it."""
        queue = rows[0][0]
        waiter = next(waiter for waiter in self.waiters if queue in waiter.queues)
        assert waiter.client == client, "somebody was served before one who came first"
        jobs = self.deliverable(queue)[: waiter.count]
        assert rows == [job.row(counters=waiter.counters) for job in jobs]
        self.waiters.remove(waiter)
        for job in jobs:
            self.deliver(job)

    def all_are_served(self) -> bool:
        """No consumer waits for a job that is there."""
        return not any(self.deliverable(queue) for waiter in self.waiters for queue in waiter.queues)


class AgainstAModel(RuleBasedStateMachine):
    ids = Bundle("ids")

    @initialize(target=ids, seed=st.integers(0, 100), now=st.sampled_from([1, 1_000, 10**9]))
    def begin(self, seed: int, now: int) -> Any:
        self.server = Server(seed=seed, now=now)
        self.model = Model(now=now)
        self.numbers = 0
        return multiple(UNKNOWN_ID, OLD_ID)

    # What the commands share.

    def settle(self, expected: dict[str, list[None]] | None = None) -> None:
        """Hold what blocked clients were answered in this step against the model."""
        answers = {client: list(values) for client, values in self.server.answers.items()}
        self.server.answers.clear()
        for client in expected or {}:
            assert answers.pop(client) == [None]
        for client, values in answers.items():
            assert len(values) == 1
            self.model.serve(client, values[0])
        assert self.model.all_are_served()

    def apply(self, verb: str, ids: list[bytes], expected: list[bool]) -> None:
        """Run a command on ids whose reply counts those that it applied to."""
        assert self.server(verb, *ids) == sum(expected)
        self.settle()

    def free(self, client: str) -> bool:
        """A client that is blocked sends nothing."""
        return all(waiter.client != client for waiter in self.model.waiters)

    # Commands.

    @rule(
        target=ids,
        queue=queue_names,
        body=st.binary(max_size=8),
        ttl=st.sampled_from([None, 1, 2, 3, 7, 60, 100_000]),
        retry=st.sampled_from([None, 0, 1, 2, 5, 400]),
        delay=st.sampled_from([None, 0, 1, 2, 10]),
        maxlen=st.sampled_from([None, None, 1, 3]),
        spare=st.sampled_from([(), ("ASYNC",), ("REPLICATE", 1)]),
        order=st.randoms(use_true_random=False),
    )
    def addjob(
        self,
        queue: bytes,
        body: bytes,
        ttl: int | None,
        retry: int | None,
        delay: int | None,
        maxlen: int | None,
        spare: tuple[Any, ...],
        order: Any,
    ) -> Any:
        named = {"TTL": ttl, "RETRY": retry, "DELAY": delay, "MAXLEN": maxlen}
        options = [(word, value) for word, value in named.items() if value is not None] + [spare]
        order.shuffle(options)
        command = ("ADDJOB", queue, body, 0, *(word for pair in options for word in pair))
        model = self.model
        life = 86_400 if ttl is None else ttl
        period = (min(300, life // 10) or 1) if retry is None else retry
        refusal: type[CommandError] | None = None
        if (delay or 0) >= life:
            refusal = CommandError
        elif maxlen is not None and len(model.queued(queue)) >= maxlen:
            refusal = QueueTooLong
        elif model.pause(queue) & IN:
            refusal = QueuePaused
        if refusal is not None:
            line = self.server.refusal(*command)
            assert line.startswith(refusal.code)
            return multiple()
        job_id = bytes(self.server(*command))
        assert model.find(job_id) is None
        self.numbers += 1
        job = ModelJob(
            self.numbers, job_id, queue, body, period * 1_000, life * 1_000, model.now + life * 1_000, requeue_at=None
        )
        model.jobs.append(job)
        if delay:
            job.requeue_at = model.now + delay * 1_000
        else:
            model.enqueue(job)
        self.settle()
        return job_id

    @rule(
        client=clients,
        queues=st.lists(queue_names, min_size=1, max_size=4),
        count=st.sampled_from([None, 1, 2, 100]),
        timeout=st.sampled_from([None, 0, 1, 70, 1_000, 400_000]),
        nohang=st.booleans(),
        counters=st.booleans(),
        ordered=st.booleans(),
    )
    def getjob(
        self,
        client: str,
        queues: list[bytes],
        count: int | None,
        timeout: int | None,
        nohang: bool,
        counters: bool,
        ordered: bool,
    ) -> None:
        if not self.free(client):
            return
        words: list[Any] = ["GETJOB"]
        words += ["NOHANG"] * nohang + ["WITHCOUNTERS"] * counters + ["ORDERED"] * ordered
        words += [] if count is None else ["COUNT", count]
        words += [] if timeout is None else ["TIMEOUT", timeout]
        value = self.server(*words, "FROM", *queues, client=client)
        take = self.model.drain if ordered else self.model.fetch
        expected = [job.row(counters=counters) for job in take(queues, count or 1)]
        if expected:
            assert value == expected
        elif nohang:
            assert value is None
        else:
            assert value is BLOCKED
            until = self.model.now + timeout if timeout else None
            self.model.waiters.append(ModelWaiter(client, queues, counters, until, count or 1 if ordered else 1))
        self.settle()

    @rule(ids=st.lists(ids, max_size=3), verb=st.sampled_from(["ACKJOB", "FASTACK", "DELJOB"]))
    def drop(self, ids: list[bytes], verb: str) -> None:
        done = []
        for job_id in ids:
            job = self.model.find(job_id)
            done.append(job is not None)
            if job is not None:
                self.model.jobs.remove(job)
        self.apply(verb, ids, done)

    @rule(ids=st.lists(ids, max_size=3), verb=st.sampled_from(["NACK", "ENQUEUE"]))
    def put_back(self, ids: list[bytes], verb: str) -> None:
        self.apply(verb, ids, [self.model.enqueue(self.model.find(job_id), nack=verb == "NACK") for job_id in ids])

    @rule(ids=st.lists(ids, max_size=3))
    def dequeue(self, ids: list[bytes]) -> None:
        self.apply("DEQUEUE", ids, [self.model.dequeue(self.model.find(job_id)) for job_id in ids])

    @rule(job_id=ids)
    def working(self, job_id: bytes) -> None:
        job = self.model.find(job_id)
        if job is None:
            assert self.server.refusal("WORKING", job_id).startswith(UnknownJob.code)
        elif (job.expires_at - self.model.now) * 2 < job.ttl_ms:
            assert self.server.refusal("WORKING", job_id).startswith(TooLate.code)
        else:
            if job.state != "active" or job.queued_before:  # else its delay is not over, and stays
                self.model.dequeue(job)
                job.taken_out = False
                if job.retry_ms:
                    job.requeue_at = self.model.now + job.retry_ms
            assert self.server("WORKING", job_id) == job.retry_ms // 1_000
        self.settle()

    @rule(
        queue=queue_names,
        words=st.lists(st.sampled_from("in out all none state bcast node".split()), min_size=1, max_size=3),
    )
    def set_pause(self, queue: bytes, words: list[str]) -> None:
        pause = None
        for word in words:
            if word == "none":
                pause = 0
            elif word not in ("state", "bcast", "node"):
                pause = (pause or 0) | {"in": IN, "out": OUT, "all": IN | OUT}[word]
        if pause is not None:
            self.model.pause_here[queue] = pause if "node" in words else 0
            if "node" not in words:
                self.model.pause_of_cluster[queue] = pause
        assert self.server("PAUSE", queue, *words) == PAUSES[self.model.pause(queue)]
        self.settle()

    @rule(
        queue=st.none() | queue_names,
        states=st.lists(st.sampled_from(["active", "queued", "acked", "wait-repl"]), unique=True),
        count=st.sampled_from([None, 0, 1, 2, 1_000, -1]),
    )
    def scan(self, queue: bytes | None, states: list[str], count: int | None) -> None:
        words: list[Any] = [] if queue is None else ["QUEUE", queue]
        words += [word for state in states for word in ("STATE", state)]
        words += [] if count is None else ["COUNT", count]
        expected = [
            job.id
            for job in self.model.jobs
            if (queue is None or job.queue == queue) and (not states or job.state in states)
        ]
        found, cursor = [], b"0"
        while True:
            cursor, page = self.server("JSCAN", cursor, *words)
            found += page
            if cursor == b"0":
                break
        assert sorted(found) == sorted(expected)
        assert self.server("JSCAN", *words, "BUSYLOOP") == [b"0", found]

    # What is not a command.

    @rule(client=clients)
    def client_goes(self, client: str) -> None:
        self.server.gone(client)
        self.model.waiters = [waiter for waiter in self.model.waiters if waiter.client != client]
        self.settle()

    @precondition(lambda self: self.model.waiters)
    @rule(data=st.data(), body=st.binary(max_size=3), retry=st.sampled_from([0, 2]))
    def served_client_turns_out_to_be_gone(self, data: st.DataObject, body: bytes, retry: int) -> None:
        """A job that comes for consumers of whom some are gone goes to the first who is not."""
        gone = set(data.draw(st.lists(clients)))
        queue = data.draw(st.sampled_from(self.model.waiters[0].queues))
        if self.model.pause(queue):
            return
        self.server.vanished = gone
        served = next((w.client for w in self.model.waiters if queue in w.queues and w.client not in gone), None)
        passed = [w for w in self.model.waiters if queue in w.queues]
        if served is not None:
            passed = passed[: [w.client for w in passed].index(served)]
        self.model.waiters = [waiter for waiter in self.model.waiters if waiter not in passed]
        job_id = bytes(self.server("ADDJOB", queue, body, 0, "RETRY", retry, "TTL", 50))
        self.server.vanished = set()
        self.numbers += 1
        ends = self.model.now + 50_000
        job = ModelJob(self.numbers, job_id, queue, body, retry * 1_000, 50_000, ends, requeue_at=None)
        self.model.jobs.append(job)
        self.model.enqueue(job)
        self.settle()

    @rule(span=spans)
    def let_time_pass(self, span: int) -> None:
        end = self.model.now + span
        while (at := self.model.next_event()) is not None and at <= end:
            self.server.advance(at - self.model.now - 1)
            assert not self.server.answers, "something happened by itself, before its time"
            self.server.advance(1)
            self.model.now = at
            self.settle(self.model.tick())
        self.server.advance(end - self.model.now)
        self.model.now = end
        self.settle()

    @rule(span=st.integers(-10_000_000, 10_000_000))
    def wall_clock_jumps(self, span: int) -> None:
        self.server.clock.jump_wall(span)

    @rule()
    def flush(self) -> None:
        """What DEBUG FLUSHALL does."""
        self.server.node.begin()
        self.server.node.flush()
        self.server.settle()
        waiters, self.model.waiters = self.model.waiters, []
        self.model.jobs, self.model.pause_here = [], {}
        self.settle({waiter.client: [None] for waiter in waiters})

    # What must be so all the time.

    @invariant()
    def nothing_is_inconsistent(self) -> None:
        check(self.server)

    @invariant()
    def queues_are_as_expected(self) -> None:
        for name in QUEUES:
            rows = [job.row(counters=False) for job in self.model.queued(name)]
            assert self.server("QLEN", name) == len(rows)
            assert self.server("QPEEK", name, 100) == rows
            assert self.server("QPEEK", name, -2) == rows[::-1][:2]
            self.check_statistics(name)

    def check_statistics(self, name: bytes) -> None:
        stat = self.server.stat(name)
        blocked = sum(name in waiter.queues for waiter in self.model.waiters)
        pause = self.model.pause(name)
        if stat is None:
            assert not blocked
            assert not pause
            assert not self.model.queued(name)
        else:
            assert stat["blocked"] == blocked
            assert stat["pause"] == PAUSES[pause]
            assert stat["len"] == len(self.model.queued(name))
            assert stat["jobs-in"] >= stat["len"]
            assert stat["jobs-in"] >= stat["jobs-out"] >= 0

    @invariant()
    def jobs_are_as_expected(self) -> None:
        assert sorted(job.id for job in self.server.state.jobs) == sorted(job.id for job in self.model.jobs)
        for job in self.model.jobs:
            shown = self.server.show(job.id)
            assert shown is not None
            assert shown["state"] == job.state.encode()
            assert shown["nacks"] == job.nacks
            assert shown["additional-deliveries"] == job.additional
            assert shown["ttl"] == -((self.model.now - job.expires_at) // 1_000)
            assert shown["next-requeue-within"] == self.requeue_within(job)

    def requeue_within(self, job: ModelJob) -> int | None:
        """As SHOW says it."""
        if job.requeue_at is None:
            return None
        left_ms = job.requeue_at - self.model.now
        while left_ms <= 0:
            left_ms += job.retry_ms
        return left_ms

    def teardown(self) -> None:
        """With time enough, nothing is left."""
        if hasattr(self, "server"):
            for client in CLIENTS:
                self.server.gone(client)
            self.server.advance(100_000_000)
            assert len(self.server.state.jobs) == 0
            check(self.server)


TestAgainstAModel = AgainstAModel.TestCase
