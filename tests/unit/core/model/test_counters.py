"""What a node counts agrees with what was done to it, and times end up in the bucket of their power of two."""

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from disqued.core.model.counters import BUCKETS, Counters
from disqued.core.model.job import QUEUED
from disqued.core.model.outbox import GONE_EVICTED
from disqued.errors import DuplicateTask
from tests.core_fixtures import Server


@pytest.fixture
def server() -> Server:
    return Server()


def _buckets(counts: list[int]) -> dict[int, int]:
    return {number: count for number, count in enumerate(counts) if count}


def test_a_wait_is_counted_in_the_bucket_of_its_power_of_two(server: Server) -> None:
    server.add("q", "body", "RETRY", 60)
    server.advance(1_000)
    server.get("q")
    assert _buckets(server.state.counters.waiting_buckets) == {(1_000).bit_length(): 1}
    assert server.state.counters.waiting_ms == 1_000


def test_the_wait_of_a_delayed_job_begins_when_its_delay_is_over(server: Server) -> None:
    server.add("q", "body", "RETRY", 60, "DELAY", 5)
    server.advance(5_300)
    server.get("q")
    assert server.state.counters.waiting_ms == 300


def test_the_wait_of_an_at_most_once_job_begins_when_its_delay_is_over(server: Server) -> None:
    server.add("q", "body", "RETRY", 0, "DELAY", 5)
    server.advance(5_300)
    server.get("q")
    assert server.state.counters.waiting_ms == 300


def test_the_wait_of_a_job_that_is_queued_again_begins_anew(server: Server) -> None:
    job_id = server.add("q", "body", "RETRY", 60)
    server.get("q")
    server("NACK", job_id)
    server.advance(70)
    server.get("q")
    assert _buckets(server.state.counters.waiting_buckets) == {0: 1, 7: 1}
    assert (server.state.counters.nacked, server.state.counters.redelivered) == (1, 1)


def test_a_clock_that_went_back_gives_no_wait_below_zero(server: Server) -> None:
    server.add("q", "body", "RETRY", 0)
    server.clock.jump_wall(-3_600_000)
    server.get("q")
    assert _buckets(server.state.counters.waiting_buckets) == {0: 1}


def test_the_time_in_flight_is_that_from_delivery_to_ack(server: Server) -> None:
    job_id = server.add("q", "body", "RETRY", 60)
    server.advance(900)
    server.get("q")
    server.advance(2_000)
    server("ACKJOB", job_id)
    assert _buckets(server.state.counters.flight_buckets) == {(2_000).bit_length(): 1}
    assert server.state.counters.flight_ms == 2_000


def test_a_lease_that_ends_later_than_its_retry_period_counts_as_no_time_in_flight(server: Server) -> None:
    job = server.job(server.add("q", "body", "RETRY", 60))
    server.get("q")
    job.requeue_at += 500  # another holder has put it off by more
    server("ACKJOB", job.id)
    assert _buckets(server.state.counters.flight_buckets) == {0: 1}
    assert server.state.counters.flight_ms == 0


def test_working_begins_the_time_in_flight_anew(server: Server) -> None:
    job_id = server.add("q", "body", "RETRY", 60)
    server.get("q")
    server.advance(2_000)
    server("WORKING", job_id)
    server.advance(100)
    server("FASTACK", job_id)
    counters = server.state.counters
    assert counters.flight_ms == 100
    assert (counters.working, counters.acked, counters.fast_acked) == (1, 1, 1)


def test_an_ack_of_a_job_that_is_queued_again_has_no_time_in_flight(server: Server) -> None:
    job_id = server.add("q", "body", "RETRY", 1)
    server.get("q")
    server.advance(1_500)
    server("ACKJOB", job_id)
    assert server.state.counters.requeued == 1
    assert server.state.counters.acked == 1
    assert _buckets(server.state.counters.flight_buckets) == {}


def test_an_ack_is_counted_once(server: Server) -> None:
    job_id = server.add()
    for _ in range(3):
        server("ACKJOB", job_id)
    assert server.state.counters.acked == 1


def test_a_job_whose_time_is_over_is_counted(server: Server) -> None:
    server.add("q", "body", "TTL", 1)
    server.advance(2_000)
    assert server.state.counters.expired == 1


def test_a_job_that_is_not_copied_is_counted_as_refused(server: Server) -> None:
    assert server.refusal("ADDJOB", "q", "body", 0, "REPLICATE", 2).startswith("NOREPL")
    assert (server.state.counters.refused, server.state.counters.added) == (1, 0)


def test_what_a_gone_consumer_gives_back_is_counted(server: Server) -> None:
    job_id = server.add()
    server.get()
    server.node.begin()
    server.node.gone("client", [job_id])
    counters = server.state.counters
    assert (counters.queued, counters.delivered, counters.returned) == (2, 1, 1)


def test_evicted_jobs_are_counted_by_what_they_were() -> None:
    server = Server()
    for number in range(15):
        server.add("q", "body", "RETRY", 0, "TTL", 1_000 + number)
    server.get("q", count=15)
    server.state.memory.set_limit(2_000)
    server.node.make_room()
    counters = server.state.counters
    assert counters.evicted_once > 0
    assert counters.evicted_acked == 0
    assert counters.evicted_once + len(server.state.jobs) == 15
    assert GONE_EVICTED not in counters.gone


def test_every_span_has_a_bucket() -> None:
    assert len(Counters().waiting_buckets) == BUCKETS > (2**64).bit_length()


class Model(RuleBasedStateMachine):
    """A lone node whose jobs are added, taken, given back, acknowledged and dropped in any order."""

    @initialize()
    def start(self) -> None:
        self.server = Server()
        self.ids: list[bytes] = []
        self.once: set[bytes] = set()  #: ids of those that are delivered at most once
        self.told: dict[str, int] = dict.fromkeys(
            ("added", "delivered", "acked", "nacked", "deleted", "dequeued", "redelivered"), 0
        )

    def _any(self, number: int) -> bytes | None:
        return self.ids[number % len(self.ids)] if self.ids else None

    @rule(queue=st.sampled_from(("a", "b")), retry=st.integers(0, 3), delay=st.sampled_from((0, 0, 2)))
    def add(self, queue: str, retry: int, delay: int) -> None:
        self.ids.append(self.server.add(queue, "body", "RETRY", retry, "DELAY", delay, "TTL", 30))
        self.told["added"] += 1
        if not retry:
            self.once.add(self.ids[-1])

    @rule(count=st.integers(1, 4))
    def take(self, count: int) -> None:
        rows: Any = self.server("GETJOB", "NOHANG", "WITHCOUNTERS", "COUNT", count, "FROM", "a", "b") or []
        self.told["delivered"] += len(rows)
        # What is delivered at most once may have been given back before its first delivery.
        self.told["redelivered"] += sum(bool(row[4] or row[6]) and row[1] not in self.once for row in rows)

    @rule(number=st.integers(0), command=st.sampled_from(("ACKJOB", "FASTACK")))
    def acknowledge(self, number: int, command: str) -> None:
        if job_id := self._any(number):
            self.told["acked"] += self.server(command, job_id)

    @rule(number=st.integers(0))
    def nack(self, number: int) -> None:
        if job_id := self._any(number):
            before = self._nacks(job_id)
            self.server("NACK", job_id)
            self.told["nacked"] += self._nacks(job_id) - before

    def _nacks(self, job_id: bytes) -> int:
        job = self.server.state.jobs.get(job_id)
        return 0 if job is None else job.nacks

    @rule(number=st.integers(0))
    def dequeue(self, number: int) -> None:
        if job_id := self._any(number):
            self.told["dequeued"] += self.server("DEQUEUE", job_id)

    @rule(number=st.integers(0))
    def delete(self, number: int) -> None:
        if job_id := self._any(number):
            self.told["deleted"] += self.server("DELJOB", job_id)

    @rule(ms=st.sampled_from((1, 400, 1_100, 8_000)))
    def wait(self, ms: int) -> None:
        self.server.advance(ms)

    @invariant()
    def what_was_told_is_counted(self) -> None:
        if not hasattr(self, "server"):
            return
        counters = self.server.state.counters
        for name in self.told:
            assert getattr(counters, name) == self.told[name], name

    @invariant()
    def every_job_is_accounted_for(self) -> None:
        if not hasattr(self, "server"):
            return
        counters, state = self.server.state.counters, self.server.state
        assert counters.added - counters.acked - counters.expired - counters.deleted == len(state.jobs)
        queued = sum(job.state == QUEUED for job in state.jobs)
        left = counters.delivered + self.told["dequeued"]
        # What else left a queue was acknowledged, expired or deleted there.
        assert 0 <= counters.queued - left - queued <= counters.acked + counters.expired + counters.deleted
        assert sum(counters.flight_buckets) <= counters.acked

    @invariant()
    def queues_agree(self) -> None:
        if not hasattr(self, "server"):
            return
        counters = self.server.state.counters
        queues = self.server.state.queues.by_name.values()
        assert sum(queue.jobs_in for queue in queues) == counters.queued
        assert sum(queue.delivered for queue in queues) == counters.delivered


Model.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_counts_agree_with_a_model = Model.TestCase


def test_workers_that_die_and_tasks_that_go_back_are_counted(server: Server) -> None:
    server("WORKER", "START", "ID", "ann", "TTL", 0)
    server("WQ.WORK", "q")
    server("WQ.ENQUEUE", "q", "RETRY", 60, "TASKS", "one", "two", "three")
    [[_, process, _], *_] = server("WQ.DEQUEUE", "q", "COUNT", 3)
    server("WQ.RETURN", process, "BACK")
    server("WORKER", "FAIL", "ann")
    counters = server.state.counters
    assert (counters.workers_died, counters.tasks_given_back) == (1, 3)
    server("WORKER", "START", "ID", "bob", "TTL", 0)
    server("WORKER", "STOP")
    assert counters.workers_died == 1


def test_a_unique_task_that_is_refused_is_counted(server: Server) -> None:
    server("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "one")
    with pytest.raises(DuplicateTask):
        server("WQ.ENQUEUE", "q", "UNIQUE", "TASKS", "two", "one")
    assert server.state.counters.unique_refused == 1


def test_elements_that_are_recovered_are_counted(server: Server) -> None:
    server("RQ.PUSH", "q", "one", "two")
    server("RQ.POP", "COUNT", 2, "q")
    server.advance(10)
    server("RQ.RECOVER", "q", 1, 5)
    assert server.state.counters.recovered == 1
