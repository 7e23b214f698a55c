"""What consumers have of limited queues outlives crashes and restarts: the limits count it."""

from collections.abc import Iterable

import pytest

from disqued.core.cluster.witnesses import ONCE_MS
from disqued.core.model.job import ACTIVE, FLAG_LEASED, RETRY_NEVER_MS, Job
from disqued.core.model.outbox import GONE_EVICTED, JOB_ADDED, POLICY, UNIT_DONE, UNIT_LEASED, WATERMARK, Record
from disqued.core.model.policies import INFLIGHT_FIELD
from disqued.core.recovery import Recovery, snapshot, walk
from disqued.testing.clock import Clock
from disqued.wire.jobdump import decode_record, encode_event, encode_job
from tests.core_fixtures import Server, check

RETRY_S = 60
HOWS = ["crash", "crash after a compaction", "restart"]


class Disk(Server):
    """A node alone, and what its store has."""

    def __init__(self, *, clock: Clock | None = None, texts: Iterable[bytes] = (), life: int = 1) -> None:
        """Make a node in one of its lives."""
        self.life = life
        self.texts: list[bytes] = list(texts)
        super().__init__(clock=clock, seed=life)

    def _take_outbox(self) -> None:
        known = len(self.journal)
        super()._take_outbox()
        self.texts += [encoded(record, self) for record in self.journal[known:]]


@pytest.fixture
def server() -> Disk:
    made = Disk()
    limit(made, 2)
    return made


def limit(server: Disk, most: int) -> None:
    server.node.begin()
    server.node.policies.set(b"q", {INFLIGHT_FIELD: (most,) if most else ()})
    server.settle()


def fill(server: Disk, count: int, *options: str | int) -> list[bytes]:
    return [server.add("q", f"{number}", *(options or ("RETRY", RETRY_S))) for number in range(count)]


def wait(server: Disk, count: int = 1) -> None:
    """Let so many more consumers wait, and the steward give what there is."""
    for _ in range(count):
        server.node.begin()
        server("GETJOB", "FROM", "q", client=f"consumer {len(server.answers)} {server.clock.now()}")
        server.advance(1)
    server.advance(10)


def taken(server: Disk) -> list[bytes]:
    """Take the bodies that consumers got since the last call."""
    rows = [row for client, [answer] in server.answers.items() if client != "client" for row in answer or ()]
    server.answers.clear()
    return [body for _, _, body in rows]


def started(server: Disk, how: str = "crash", *, down_ms: int = 0) -> Disk:
    """Return a node that starts with what the store of another one has."""
    controlled = how == "restart"
    if controlled:
        server.texts = [encoded(record, server, controlled=True) for record in snapshot(server.state)]
    elif how != "crash":
        server.texts = [encoded(record, server) for record in walk(server.state) if record is not None]
    server.clock.advance(down_ms)
    again = Disk(clock=server.clock, texts=server.texts, life=server.life + 1)
    again.node.begin()
    again.state.journaling = False
    recovery = Recovery(again.state, restores_queues=controlled)
    for text in server.texts:
        recovery.apply(decode_record(text))
    again.journal = [decode_record(text) for text in server.texts]
    again.state.journaling = True
    recovery.finish()
    again.node.workers.recover(recovery.held)
    again.node.policies.resume()
    again.node.gates.resume()
    again.node.admission.start()
    again.settle()
    again.advance(10)
    return again


def encoded(record: Record, server: Disk, *, controlled: bool = False) -> bytes:
    """Return a record as a store has it."""
    state = server.state
    if record[0] == JOB_ADDED:
        job: Job = record[1]
        offset = state.wall - state.now
        return encode_job(job, offset, job.state) if controlled else encode_job(job, offset)
    return encode_event(record, state.wall)


def leases(server: Disk) -> list[int]:
    """Return the numbers of deliveries in the records of leases."""
    return [record[3] for record in server.journal if record[0] == UNIT_LEASED]


@pytest.mark.parametrize("how", HOWS)
def test_what_consumers_had_counts_after_a_start_until_it_is_acknowledged(server: Disk, how: str) -> None:
    jobs = fill(server, 5)
    wait(server, 3)
    assert taken(server) == [b"0", b"1"]
    again = started(server, how)
    for job_id in jobs[2:]:
        again("ENQUEUE", job_id)
    wait(again, 3)
    assert taken(again) == []
    assert [again.job(job_id).flags & FLAG_LEASED != 0 for job_id in jobs[:3]] == [True, True, False]
    assert again("ACKJOB", jobs[0]) == 1
    again.advance(10)
    assert taken(again) == [b"2"]
    assert again("NACK", jobs[1]) == 1
    again.advance(10)
    assert len(taken(again)) == 1
    check(again)


@pytest.mark.parametrize("how", HOWS)
def test_it_counts_until_its_time_is_over_and_no_longer(server: Disk, how: str) -> None:
    jobs = fill(server, 5)
    wait(server, 2)
    taken(server)
    server.advance(20_000)
    again = started(server, how, down_ms=10_000)
    for job_id in jobs[2:]:
        again("ENQUEUE", job_id)
    wait(again, 3)
    again.advance(29_000)
    assert taken(again) == []
    again.advance(1_500)
    assert taken(again) == [b"0", b"1"], "they were queued again, at their age"
    check(again)


@pytest.mark.parametrize("how", HOWS)
def test_what_was_over_before_the_start_does_not_count(server: Disk, how: str) -> None:
    jobs = fill(server, 5)
    wait(server, 2)
    taken(server)
    again = started(server, how, down_ms=RETRY_S * 1_000)
    for job_id in jobs[2:]:
        again("ENQUEUE", job_id)
    wait(again, 2)
    # After a crash they come a retry period later, as any job; a restart knows when their time was over.
    assert taken(again) == ([b"0", b"1"] if how == "restart" else [b"2", b"3"])


def test_a_clock_that_was_set_back_keeps_no_lease_longer_than_its_retry_period(server: Disk) -> None:
    fill(server, 2)
    wait(server, 2)
    server.clock.jump_wall(-3_600_000)
    again = started(server)
    assert {unit.requeue_at for unit in again.state.queues.by_name[b"q"].leased} == {
        again.clock.now() - 10 + RETRY_S * 1_000
    }


@pytest.mark.parametrize("how", HOWS)
def test_working_lengthens_what_counts(server: Disk, how: str) -> None:
    jobs = fill(server, 3)
    wait(server, 2)
    server.advance(40_000)
    for job_id in jobs[:2]:
        assert server("WORKING", job_id) == RETRY_S
    again = started(server, how, down_ms=30_000)
    again("ENQUEUE", jobs[2])
    wait(again)
    again.advance(29_000)
    assert taken(again) == []
    again.advance(2_000)
    assert len(taken(again)) == 1


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("end", ["NACK", "ENQUEUE", "ACKJOB", "DELJOB", "DEQUEUE"])
def test_what_ended_before_a_crash_does_not_count(server: Disk, how: str, end: str) -> None:
    jobs = fill(server, 2)
    wait(server, 2)
    if end == "DEQUEUE":
        server("NACK", jobs[0])
    server(end, jobs[0])
    server.advance(10)
    again = started(server, how)
    leased = again.state.queues.by_name[b"q"].leased
    assert [unit.id for unit in leased] == [jobs[1]]


def test_a_job_that_is_written_down_again_stays_with_its_consumer(server: Disk) -> None:
    jobs = fill(server, 1)
    wait(server)
    server.texts.append(encoded((JOB_ADDED, server.job(jobs[0])), server))
    again = started(server)
    assert [unit.id for unit in again.state.queues.by_name[b"q"].leased] == jobs


def test_leases_outlive_two_crashes_and_deliveries_are_counted_on(server: Disk) -> None:
    jobs = fill(server, 1)
    wait(server)
    server("NACK", jobs[0])
    wait(server)
    server.advance(RETRY_S * 1_000 + 10)
    wait(server)
    assert leases(server) == [1, 0, 2, 0, 3]
    job = started(started(server)).job(jobs[0])
    assert (job.flags & FLAG_LEASED != 0, job.deliveries) == (True, 3)


def test_a_job_whose_time_nothing_ends_keeps_its_slot_with_working() -> None:
    server = Disk()
    limit(server, 1)
    options = server.state.shared.options(86_400_000, RETRY_NEVER_MS, 0, 1)
    jobs = []
    for body in (b"0", b"1"):
        server.node.begin()
        job_id = server.node.additions.add("a", b"q", body, options, maxlen=0, timeout_ms=0, asynchronous=False)
        assert job_id is not None
        jobs.append(job_id)
    wait(server, 2)
    assert taken(server) == [b"0"]
    assert server("WORKING", jobs[0]) == RETRY_NEVER_MS // 1_000
    server.advance(5_000)
    assert taken(server) == []
    again = started(server)
    server("ACKJOB", jobs[0])
    server.advance(10)
    assert taken(server) == [b"1"]
    wait(again)
    assert taken(again) == []
    again("ACKJOB", jobs[0])
    again.advance(10)
    assert taken(again) == [b"1"]


# RETRY 0.


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("delay_s", [0, 5])
def test_a_job_that_is_delivered_once_has_its_slot_over_a_start_and_never_comes_again(
    server: Disk, how: str, delay_s: int
) -> None:
    limit(server, 1)
    jobs = fill(server, 1, "RETRY", 0, "DELAY", delay_s)
    server.advance(delay_s * 1_000 + 100)
    wait(server)
    assert taken(server) == [b"0"]
    assert leases(server) == [1]
    assert (UNIT_DONE, jobs[0], b"") not in server.journal
    server.advance(100_000)
    again = started(server, how, down_ms=100_000)
    assert again.job(jobs[0]).state == ACTIVE
    again.add("q", "second", "RETRY", 0)
    wait(again, 2)
    again.advance(ONCE_MS - 201_000)
    assert taken(again) == []
    again.advance(3_000)
    assert taken(again) == [b"second"]
    assert (UNIT_DONE, jobs[0], b"") in again.journal
    assert started(again).state.jobs.get(jobs[0]) is None
    check(again)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("delay_s", [0, 5])
def test_one_whose_slot_ended_while_the_node_was_down_is_done(server: Disk, how: str, delay_s: int) -> None:
    jobs = fill(server, 1, "RETRY", 0, "DELAY", delay_s)
    server.advance(delay_s * 1_000 + 100)
    wait(server)
    assert taken(server) == [b"0"]
    again = started(server, how, down_ms=ONCE_MS)
    assert (UNIT_DONE, jobs[0], b"") in again.journal
    wait(again)
    again.advance(ONCE_MS)
    assert taken(again) == []


def test_the_record_of_the_slot_alone_keeps_one_from_being_queued_again(server: Disk) -> None:
    fill(server, 1, "RETRY", 0, "DELAY", 5)
    server.advance(5_100)
    wait(server)
    assert taken(server) == [b"0"]
    first, *others = [text for text in server.texts if decode_record(text)[0] == WATERMARK]
    server.texts = [text for text in server.texts if text not in others]
    again = started(server)
    wait(again)
    again.advance(ONCE_MS)
    assert first not in others
    assert taken(again) == []


def test_an_acknowledgement_frees_the_slot_of_a_job_that_is_delivered_once(server: Disk) -> None:
    limit(server, 1)
    jobs = fill(server, 2, "RETRY", 0)
    wait(server)
    again = started(server)
    assert again("ACKJOB", jobs[0]) == 1
    assert (UNIT_DONE, jobs[0], b"") in again.journal
    assert started(again).state.custody.limited == {}


def test_a_job_that_nobody_heard_of_is_queued_again_and_has_no_slot(server: Disk) -> None:
    job_id = server.add("q", "body", "RETRY", 0)
    server.vanished = {"gone"}
    server("GETJOB", "FROM", "q", client="gone")
    server.advance(10)
    assert leases(server) == [1, 0]
    assert started(server).state.custody.limited == {}
    wait(server)
    assert taken(server) == [b"body"]
    assert server.job(job_id) in server.state.custody.limited


@pytest.mark.parametrize("when", ["while it runs", "before it starts"])
def test_without_limits_a_job_that_was_delivered_once_is_done(server: Disk, when: str) -> None:
    jobs = fill(server, 1, "RETRY", 0)
    wait(server)
    if when == "while it runs":
        limit(server, 0)
        server.advance(10)
        assert server.journal[-1] == (UNIT_DONE, jobs[0], b"")
        assert server.state.custody.limited == {}
        return
    register = server.state.queues.policies.registers[b"q", INFLIGHT_FIELD]
    unset = register._replace(counter=register.counter + 1, value=())
    server.texts.append(encode_event((POLICY, b"q", INFLIGHT_FIELD, unset), server.state.wall))
    again = started(server)
    assert again.journal[-1] == (UNIT_DONE, jobs[0], b"")
    assert again.state.custody.limited == {}


def test_an_eviction_frees_the_slot(server: Disk) -> None:
    limit(server, 1)
    jobs = fill(server, 2, "RETRY", 0)
    wait(server, 2)
    assert taken(server) == [b"0"]
    server.state.forget(server.job(jobs[0]), GONE_EVICTED)
    server.advance(10)
    assert taken(server) == [b"1"]


# What it costs.


def test_a_queue_without_limits_writes_no_leases() -> None:
    server = Disk()
    jobs = [server.add("q", "body", "RETRY", retry) for retry in (10, 10, 10, 0)]
    assert len(server.get(count=4)) == 4
    server("WORKING", jobs[0])
    server("NACK", jobs[1])
    server("ACKJOB", jobs[2])
    assert leases(server) == []
    assert (UNIT_DONE, jobs[3], b"") in server.journal
    assert not server.state.custody.limited


def test_what_was_handed_out_before_a_limit_has_no_slot_and_is_not_written_down() -> None:
    server = Disk()
    fill(server, 4)
    server.get(count=2)
    limit(server, 1)
    wait(server, 3)
    assert len(taken(server)) == 1
    assert leases(server) == [1]
