"""What comes back after a crash, and what after a controlled restart."""

from random import Random

import pytest

from disqued.core.model.job import ACTIVE, QUEUED, STAMP_LAST, STAMP_MAX, Job
from disqued.core.model.outbox import GROUP, JOB_ADDED, JOB_GONE, POLICY, UNIT_DONE, WATERMARK
from disqued.core.model.policies import FORGOTTEN_MS, MAXLEN_FIELD, NO_DEFAULTS, NO_PAUSE, TTL_FIELD, PauseSetting
from disqued.core.model.queues import PAUSE_IN, PAUSE_OUT
from disqued.core.node import Node
from disqued.core.recovery import (
    AT_END,
    DRAWN_BYTES,
    PASSED_AT_ONCE,
    PROBED_AFTER_MS,
    Recovery,
    draw,
    snapshot,
    walk,
)
from disqued.core.work.copies import SPREAD_MS
from disqued.errors import QueuePaused
from disqued.testing.clock import Clock
from disqued.wire.jobdump import decode_copy, decode_record, encode_copy, encode_event, encode_job

NODE_ID = b"0123456789abcdef0123456789abcdef01234567"
TTL_MS, RETRY_MS, DELAY_MS = 600_000, 60_000, 30_000
QUEUE = b"q"


class Machine:
    """A node, its clock, and what of its journal is on the disk."""

    def __init__(self) -> None:
        self.clock = Clock(now=5_000)
        self.journal: list[bytes] = []
        self.seed = 0
        self.has_delays = False  #: the journal has a watermark, as those of nodes have
        self.node: Node
        self.recovery: Recovery
        self.start(restores_queues=False)

    def start(self, *, restores_queues: bool) -> None:
        """Start a node from the journal; its monotonic clock begins anew."""
        self.seed += 1
        self.clock = Clock(now=self.seed * 1_000, wall=self.clock.wall())
        self.node = Node(NODE_ID, self.clock, Random(self.seed), maxmemory=1 << 30)
        self.recovery = Recovery(self.node.state, restores_queues=restores_queues)
        assert self.recovery.apply_some(map(decode_record, self.journal), len(self.journal) + 1) is AT_END
        self.node.begin()
        self.node.state.journaling = True
        if self.has_delays:
            self.recovery.finish()
            self.begin_watermark()

    def begin_watermark(self) -> None:
        if not self.node.state.durability.watermark.until:
            self.node.outbox.journal.append(self.node.state.begin_watermark())

    def commit(self) -> None:
        """Write down what there is, durably, and let the jobs go that waited for that."""
        offset = self.clock.wall() - self.clock.now()
        records, self.node.outbox.journal = self.node.outbox.journal, []
        self.journal += [
            encode_job(record[1], offset) if record[0] == JOB_ADDED else encode_event(record, self.clock.wall())
            for record in records
        ]
        mark = self.node.state.durability.watermark
        if mark.held:
            self.node.requeueing.release(mark.last, mark.until)
            self.node.tick()

    def crash(self, *, down_ms: int = 0) -> None:
        self.commit()
        self.clock.advance(down_ms)
        self.start(restores_queues=False)

    def restart(self, *, down_ms: int = 0) -> None:
        """A controlled restart: a snapshot is all that is left."""
        wall = self.clock.wall()
        self.journal = [
            encode_job(record[1], wall - self.clock.now(), record[1].state)
            if record[0] == JOB_ADDED
            else encode_event(record, wall)
            for record in snapshot(self.node.state)
        ]
        self.clock.advance(down_ms)
        self.start(restores_queues=True)

    def add(self, body: bytes = b"body", *, retry_ms: int = RETRY_MS, delay_ms: int = 0, queue: bytes = QUEUE) -> bytes:
        self.node.begin()
        if delay_ms and not self.has_delays:
            self.has_delays = True
            self.begin_watermark()
        options = self.node.state.shared.options(TTL_MS, retry_ms, delay_ms, 1)
        job_id = self.node.additions.add("producer", queue, body, options, maxlen=0, timeout_ms=0, asynchronous=False)
        assert job_id is not None
        return job_id

    def get(self, count: int = 100, queue: bytes = QUEUE) -> list[bytes]:
        """Ids of the jobs that a consumer gets now."""
        self.node.begin()
        return [unit.id for unit in self.node.delivery.fetch([self.node.state.queue(queue)], count)]

    def wait(self, ms: int) -> None:
        self.clock.advance(ms)
        self.node.begin()
        while (at := self.node.deadline()) is not None and at <= self.clock.now():
            self.node.tick()
            if self.node.state.durability.watermark.held:
                self.commit()

    def job(self, job_id: bytes) -> Job:
        job = self.node.state.jobs.get(job_id)
        assert job is not None
        return job

    def known(self, job_id: bytes) -> bool:
        return self.node.state.jobs.get(job_id) is not None


@pytest.fixture
def machine() -> Machine:
    return Machine()


# After a crash.


def test_records_are_applied_some_at_a_time_up_to_the_first_thing_that_is_none() -> None:
    machine = Machine()
    ids = [machine.add() for _ in range(3)]
    machine.node.queueing.set_pause(QUEUE, PAUSE_IN)
    machine.commit()
    node = Node(NODE_ID, machine.clock, Random(2), maxmemory=1 << 30)
    recovery = Recovery(node.state, restores_queues=False)
    stop = object()
    records = iter([*map(decode_record, machine.journal), stop])
    assert recovery.apply_some(records, 2) is None
    assert {job.id for job in node.state.jobs} == set(ids[:2])
    assert recovery.apply_some(records, 9) is stop
    assert len(node.state.jobs) == 3
    assert node.state.queue(QUEUE).pause == PAUSE_IN
    assert recovery.apply_some(records, 9) is AT_END


@pytest.mark.reference
def test_what_comes_back_shares_what_is_equal() -> None:
    """A million jobs that want the same, and were added in turn, have one time of the next try, and one stamp each."""
    machine = Machine()
    first, second = machine.add(), machine.add()
    machine.crash()
    jobs = [machine.node.state.jobs.get(job_id) for job_id in (first, second)]
    assert all(job is not None and job.order_key is job.ctime for job in jobs)
    assert jobs[0] is not None
    assert jobs[1] is not None
    assert jobs[0].requeue_at is jobs[1].requeue_at


def test_a_job_comes_back_active_and_is_queued_after_one_retry_period(machine: Machine) -> None:
    job_id = machine.add()
    machine.crash()
    assert machine.job(job_id).state == ACTIVE
    machine.wait(RETRY_MS - 1)
    assert machine.get() == []
    machine.wait(1)
    assert machine.get() == [job_id]
    assert machine.job(job_id).additional_deliveries == 1


def test_body_queue_holders_and_counters_come_back(machine: Machine) -> None:
    job_id = machine.add(b"\0\r\n")
    job = machine.job(job_id)
    job.holders = frozenset({NODE_ID, b"f" * 40})
    job.nacks, job.additional_deliveries = 3, 4
    machine.crash()
    back = machine.job(job_id)
    assert (back.body, back.queue, back.holders) == (b"\0\r\n", QUEUE, frozenset({NODE_ID, b"f" * 40}))
    assert (back.nacks, back.additional_deliveries, back.ctime) == (3, 4, job.ctime)
    assert back.options.ttl_ms == TTL_MS


@pytest.mark.parametrize("end", ["acked", "deleted", "flushed", "expired", "evicted"])
def test_what_was_over_stays_over(machine: Machine, end: str) -> None:
    job_id = machine.add()
    machine.commit()
    if end == "acked":
        machine.node.acks.acknowledge(job_id)
    elif end == "deleted":
        machine.node.acks.delete(job_id)
    elif end == "flushed":
        machine.node.flush()
    elif end == "expired":
        machine.wait(TTL_MS)
    else:
        machine.node.state.forget(machine.job(job_id), b"evicted")
    machine.crash()
    assert len(machine.node.state.jobs) == 0
    assert machine.node.state.memory.used == 0


def test_a_unit_of_another_scope_that_is_done_leaves_the_job(machine: Machine) -> None:
    job_id = machine.add()
    machine.node.outbox.journal.append((UNIT_DONE, job_id, b"group"))
    machine.crash()
    assert machine.known(job_id)


def test_an_end_of_a_job_that_is_not_known_is_no_matter(machine: Machine) -> None:
    job_id = machine.add()
    machine.node.outbox.journal[:] = [(UNIT_DONE, job_id, b""), (JOB_GONE, job_id, b"deleted")]
    machine.crash()
    assert not machine.known(job_id)


def test_an_added_record_brings_back_a_job_that_was_done(machine: Machine) -> None:
    job_id = machine.add(retry_ms=0)
    units = machine.node.delivery.fetch([machine.node.state.queue(QUEUE)], 1)
    machine.node.delivery.give_back(units)
    machine.crash()
    assert machine.known(job_id)


def test_of_two_added_records_the_later_one_holds(machine: Machine) -> None:
    job_id = machine.add()
    machine.commit()
    machine.job(job_id).nacks = 7
    machine.node.outbox.journal.append((JOB_ADDED, machine.job(job_id)))
    machine.crash()
    assert machine.job(job_id).nacks == 7
    assert len(machine.node.state.jobs) == 1


def test_a_job_expires_when_it_would_have_without_the_crash(machine: Machine) -> None:
    job_id = machine.add()
    machine.wait(RETRY_MS)
    machine.crash(down_ms=RETRY_MS)
    machine.wait(TTL_MS - 2 * RETRY_MS - 1)
    assert machine.known(job_id)
    machine.wait(1)
    assert not machine.known(job_id)


def test_a_job_whose_time_ended_while_the_node_was_down_is_dropped(machine: Machine) -> None:
    job_id = machine.add()
    machine.crash(down_ms=TTL_MS)
    assert not machine.known(job_id)
    assert (len(machine.node.state.jobs), len(machine.recovery.expired)) == (0, 1)
    assert machine.node.deadline() is None


@pytest.mark.parametrize("jump_ms", [-3_600_000, 3_600_000])
def test_a_wall_clock_that_jumped_before_the_crash_moves_no_deadline(machine: Machine, jump_ms: int) -> None:
    machine.clock.jump_wall(jump_ms)
    job_id = machine.add()
    machine.commit()
    later_id = machine.add(delay_ms=DELAY_MS)
    machine.wait(10_000)
    machine.crash()
    assert machine.job(job_id).expires_at == machine.clock.now() + TTL_MS - 10_000
    assert machine.job(later_id).requeue_at == machine.clock.now() + DELAY_MS - 10_000


def test_a_wall_clock_set_back_while_the_node_was_down_keeps_no_job_longer_than_its_span(machine: Machine) -> None:
    job_id, delayed_id = machine.add(), machine.add(delay_ms=DELAY_MS)
    machine.commit()
    machine.clock.jump_wall(-86_400_000)
    machine.crash()
    assert machine.job(job_id).expires_at == machine.clock.now() + TTL_MS
    assert machine.job(delayed_id).requeue_at == machine.clock.now() + DELAY_MS


def test_stamps_go_on_behind_those_that_came_back_though_the_clock_is_behind(machine: Machine) -> None:
    old = machine.job(machine.add())
    machine.commit()
    machine.clock.jump_wall(-86_400_000)
    machine.crash()
    assert machine.job(machine.add()).ctime > old.ctime


def test_a_delayed_job_waits_for_the_rest_of_its_delay_and_not_for_all_of_it_again(machine: Machine) -> None:
    job_id = machine.add(delay_ms=DELAY_MS)
    machine.wait(10_000)
    machine.crash(down_ms=5_000)
    machine.wait(DELAY_MS - 15_001)
    assert machine.get() == []
    machine.wait(1)
    assert machine.get() == [job_id]
    assert machine.job(job_id).additional_deliveries == 0


def test_a_job_that_was_queued_before_its_delay_was_over_does_not_wait_for_it_again(machine: Machine) -> None:
    job_id = machine.add(retry_ms=5_000, delay_ms=DELAY_MS)
    machine.commit()
    machine.node.begin()
    assert machine.node.requeueing.enqueue(machine.job(job_id), asked=True)
    machine.crash()
    machine.wait(5_000)
    assert machine.get() == [job_id]


def test_an_at_most_once_job_that_was_queued_before_its_time_is_never_queued_again(machine: Machine) -> None:
    job_id = machine.add(retry_ms=0, delay_ms=DELAY_MS)
    machine.commit()
    machine.node.begin()
    assert machine.node.requeueing.enqueue(machine.job(job_id), asked=True)
    # Nobody gets it before the disk knows that it may have been delivered.
    assert machine.get() == []
    machine.commit()
    assert machine.job(job_id).state == QUEUED
    machine.crash()
    machine.wait(TTL_MS - 1)
    assert machine.get() == []


@pytest.mark.parametrize("down_ms", [0, DELAY_MS // 2])
def test_a_copy_waits_for_the_delay_and_then_for_those_who_queue_it_first(machine: Machine, down_ms: int) -> None:
    retry_ms = 5_000
    there = Machine()
    job_id = there.add(retry_ms=retry_ms, delay_ms=DELAY_MS)
    stored = decode_copy(encode_copy(there.job(job_id), there.clock.now()))
    machine.node.begin()
    machine.node.replicas.on_repljob(b"f" * 40, stored, True)
    machine.crash(down_ms=down_ms)
    machine.wait(DELAY_MS + retry_ms - down_ms - 1)
    assert machine.get() == []
    machine.wait(3 * SPREAD_MS)
    machine.wait(1)  # it was held up, and hears others first
    assert machine.get() == [job_id]
    # It was queued, and is not delayed any more.
    machine.crash()
    machine.wait(retry_ms + SPREAD_MS)
    machine.wait(1)
    assert machine.get() == [job_id]


@pytest.mark.parametrize("retry_ms", [RETRY_MS, 0])
def test_a_job_whose_time_came_while_the_node_was_down_is_queued_at_once(machine: Machine, retry_ms: int) -> None:
    job_id = machine.add(retry_ms=retry_ms, delay_ms=3_000)
    machine.crash(down_ms=3_500)
    machine.wait(0)
    assert machine.get() == [job_id]
    assert machine.job(job_id).additional_deliveries == 0
    # It was delivered now, so that another start does not queue it at once.
    machine.crash()
    machine.wait(RETRY_MS - 1)
    assert machine.get() == []
    machine.wait(1)
    assert machine.get() == ([job_id] if retry_ms else [])


def test_a_job_that_is_held_has_a_record_to_wait_for_though_the_watermark_is_ahead(machine: Machine) -> None:
    machine.add(delay_ms=3_000)
    held = machine.add(retry_ms=0, delay_ms=3_050)
    machine.wait(3_000)
    machine.commit()
    assert machine.node.state.durability.watermark.until > machine.clock.wall() + 50
    machine.clock.advance(50)
    machine.node.begin()
    machine.node.tick()
    assert machine.node.state.durability.watermark.held
    # A step without records would be followed by no commit.
    assert [record[0] for record in machine.node.outbox.journal] == [WATERMARK]
    machine.commit()
    assert held in machine.get()


def test_of_delayed_jobs_those_are_queued_at_once_that_were_not_queued_before_the_crash(machine: Machine) -> None:
    ids = [machine.add(delay_ms=1_000 * number) for number in range(1, 7)]
    machine.wait(3_500)
    assert machine.get(2) == ids[:2]
    machine.crash(down_ms=1_700)
    machine.wait(0)
    assert machine.get() == ids[3:5]
    machine.wait(800)
    assert machine.get() == ids[5:]
    # One of them may have been delivered.
    machine.wait(RETRY_MS - 800)
    assert machine.get()[:3] == ids[:3]


def test_a_journal_of_an_older_version_says_nothing_of_delayed_jobs(machine: Machine) -> None:
    job_id, once = machine.add(delay_ms=DELAY_MS), machine.add(retry_ms=0, delay_ms=DELAY_MS)
    machine.commit()
    machine.journal = [data for data in machine.journal if decode_record(data)[0] != WATERMARK]
    for _ in range(2):
        # Nor does it after a start of this one.
        machine.crash(down_ms=DELAY_MS)
        machine.wait(RETRY_MS - 1)
        assert machine.get() == []
    machine.wait(1)
    assert machine.get() == [job_id]
    assert machine.known(once)


@pytest.mark.parametrize("back_ms", [1_000, DELAY_MS, 3_600_000])
def test_a_clock_that_is_set_back_makes_no_job_a_new_one(machine: Machine, back_ms: int) -> None:
    late, once = machine.add(delay_ms=DELAY_MS), machine.add(retry_ms=0, delay_ms=DELAY_MS)
    machine.commit()
    machine.clock.jump_wall(-back_ms)
    machine.wait(DELAY_MS)
    assert machine.get() == [late, once]
    # The power is cut: that it is done is lost.
    done = machine.node.outbox.journal.pop()
    assert done[0] == UNIT_DONE
    machine.crash(down_ms=1)
    machine.wait(RETRY_MS - 1)
    assert machine.get() == []
    machine.wait(1)
    assert machine.get() == [late]


@pytest.mark.parametrize("jump_ms", [-300_000, 300_000])
def test_a_clock_that_is_set_while_the_node_is_down_loses_no_delayed_job(machine: Machine, jump_ms: int) -> None:
    for retry_ms in (RETRY_MS, 0):
        job_id = machine.add(retry_ms=retry_ms, delay_ms=DELAY_MS)
        machine.commit()
        machine.clock.jump_wall(jump_ms)
        machine.crash(down_ms=1_000)
        # Its deadline may have been moved: it is written again, so that what is delivered now is known later.
        machine.wait(DELAY_MS)
        assert machine.get() == [job_id]
        records = machine.node.outbox.journal
        records[:] = [record for record in records if record[0] != UNIT_DONE]
        machine.crash()
        machine.wait(RETRY_MS - 1)
        assert machine.get() == []
        machine.wait(1)
        assert machine.get() == ([job_id] if retry_ms else [])
        machine.node.acks.acknowledge(job_id)


def test_a_watermark_of_a_clock_that_was_ahead_does_not_stay(machine: Machine) -> None:
    machine.clock.jump_wall(86_400_000)
    gone = machine.add(delay_ms=1_000)
    machine.wait(1_000)
    assert machine.get() == [gone]
    machine.node.begin()
    machine.node.acks.acknowledge(gone)
    machine.commit()
    machine.clock.jump_wall(-86_400_000)
    machine.crash()
    job_id = machine.add(retry_ms=0, delay_ms=DELAY_MS)
    machine.crash(down_ms=DELAY_MS)
    machine.wait(0)
    assert machine.get() == [job_id]


@pytest.mark.parametrize("down_ms", [DELAY_MS + RETRY_MS - 1, DELAY_MS + RETRY_MS])
def test_where_others_may_have_queued_a_job_meanwhile_they_are_asked(machine: Machine, down_ms: int) -> None:
    job_id = machine.add(delay_ms=DELAY_MS)
    machine.job(job_id).holders = frozenset((NODE_ID, b"f" * 40))
    machine.crash(down_ms=down_ms)
    machine.wait(0)
    if down_ms < DELAY_MS + RETRY_MS:
        assert machine.get() == [job_id]
        return
    assert machine.get() == []
    machine.wait(PROBED_AFTER_MS - 1)
    assert machine.get() == []
    machine.wait(1)  # the other holder is not in reach, so that nobody is to answer
    assert machine.get() == [job_id]


def test_what_a_store_may_have_lost_is_not_delivered_twice(machine: Machine) -> None:
    twice, once = machine.add(delay_ms=1_000), machine.add(retry_ms=0, delay_ms=1_000)
    machine.commit()
    machine.clock.advance(2_000)
    machine.node = Node(NODE_ID, machine.clock, Random(9), maxmemory=1 << 30)
    records = [(*record, False) if record[0] == WATERMARK else record for record in map(decode_record, machine.journal)]
    recovery = Recovery(machine.node.state, restores_queues=False)
    assert recovery.apply_some(iter(records), 100) is AT_END
    recovery.finish()
    machine.wait(TTL_MS // 2)
    assert twice in machine.get()
    assert once not in machine.get()


def test_many_delayed_jobs_cost_few_records(machine: Machine) -> None:
    for _ in range(100):
        machine.add(delay_ms=1_000)
        machine.wait(10)
    machine.commit()
    before = len(machine.journal)
    for _ in range(100):
        machine.wait(10)
    machine.commit()
    assert 5 < len(machine.journal) - before <= 11
    machine.wait(TTL_MS // 2)
    machine.node.acks.acknowledge(machine.add())
    machine.commit()
    # Nothing is written while nothing is near.
    assert sum(decode_record(data)[0] == WATERMARK for data in machine.journal) <= 12


def test_an_at_most_once_job_is_never_queued_again(machine: Machine) -> None:
    waiting, delivered = machine.add(retry_ms=0), machine.add(retry_ms=0)
    assert machine.get(1) == [waiting]
    machine.crash()
    assert not machine.known(waiting)
    machine.wait(TTL_MS - 1)
    assert machine.known(delivered)
    assert machine.get() == []
    assert not machine.node.requeueing.enqueue(machine.job(delivered))


def test_an_at_most_once_job_that_cannot_be_delivered_may_be_evicted(machine: Machine) -> None:
    job_id = machine.add(retry_ms=0)
    machine.crash()
    assert list(machine.node.state.custody.evictable) == [machine.job(job_id)]


def test_an_at_most_once_job_before_the_end_of_its_delay_is_delivered_then_and_once(machine: Machine) -> None:
    job_id = machine.add(retry_ms=0, delay_ms=DELAY_MS)
    machine.crash(down_ms=10_000)
    machine.wait(DELAY_MS - 10_000)
    assert machine.get() == [job_id]
    machine.crash()
    assert not machine.known(job_id)


def test_memory_is_counted_as_before(machine: Machine) -> None:
    for number in range(10):
        machine.add(b"x" * number, delay_ms=DELAY_MS)
    used = machine.node.state.memory.used
    machine.crash()
    assert machine.node.state.memory.used == used


def test_the_jobs_of_a_queue_share_its_name(machine: Machine) -> None:
    ids = [machine.add() for _ in range(3)]
    machine.crash()
    assert len({id(machine.job(job_id).queue) for job_id in ids}) == 1


# After a controlled restart.


def test_queues_come_back_in_their_order(machine: Machine) -> None:
    ids = [machine.add(retry_ms=retry_ms) for retry_ms in (RETRY_MS, 0, RETRY_MS, 0)]
    assert machine.get(1) == ids[:1]
    machine.node.requeueing.enqueue(machine.job(ids[0]), nack=True)
    machine.add(queue=b"other")
    machine.restart(down_ms=1_000)
    assert [queue.name for queue in machine.node.state.queues.from_serial(0, 9)] == [QUEUE, b"other"]
    assert machine.job(ids[0]).state == QUEUED
    assert (machine.job(ids[0]).nacks, machine.job(ids[0]).additional_deliveries) == (1, 0)
    assert machine.get() == ids


def test_a_unit_that_was_put_in_front_is_in_front_again(machine: Machine) -> None:
    first, last = machine.add(), machine.add()
    assert machine.get() == [first, last]
    machine.job(last).order_key = -1
    for job_id in (first, last):
        machine.node.requeueing.enqueue(machine.job(job_id))
    machine.restart()
    assert machine.get() == [last, first]


def test_a_delivered_job_keeps_the_rest_of_its_retry_period(machine: Machine) -> None:
    job_id = machine.add()
    assert machine.get() == [job_id]
    machine.wait(20_000)
    machine.restart(down_ms=10_000)
    assert machine.job(job_id).state == ACTIVE
    machine.wait(RETRY_MS - 30_001)
    assert machine.get() == []
    machine.wait(1)
    assert machine.get() == [job_id]


def test_a_retry_that_was_due_while_the_node_was_down_happens_at_once(machine: Machine) -> None:
    job_id = machine.add()
    assert machine.get() == [job_id]
    machine.restart(down_ms=RETRY_MS + 1)
    machine.wait(1)
    assert machine.get() == [job_id]


@pytest.mark.parametrize("retry_ms", [0, RETRY_MS])
@pytest.mark.parametrize("down_ms", [10_000, DELAY_MS + 5])
def test_a_delayed_job_is_queued_at_its_time(machine: Machine, retry_ms: int, down_ms: int) -> None:
    job_id = machine.add(retry_ms=retry_ms, delay_ms=DELAY_MS)
    machine.restart(down_ms=down_ms)
    assert machine.get() == []
    machine.wait(max(DELAY_MS - down_ms, 1))
    assert machine.get() == [job_id]


def test_a_delivered_at_most_once_job_is_still_known_and_never_queued(machine: Machine) -> None:
    job_id = machine.add(retry_ms=0)
    assert machine.get() == [job_id]
    machine.restart()
    assert machine.job(job_id) in machine.node.state.custody.evictable
    machine.wait(TTL_MS - 1)
    assert machine.get() == []
    assert machine.node.acks.acknowledge(job_id)


def test_an_at_most_once_job_is_delivered_once_through_any_number_of_restarts(machine: Machine) -> None:
    job_id = machine.add(retry_ms=0)
    machine.restart()
    machine.restart()
    assert machine.get() == [job_id]
    machine.restart()
    assert machine.get() == []


def test_a_clock_that_jumped_while_the_node_was_down_puts_off_nothing_beyond_its_span(machine: Machine) -> None:
    job_id, delayed_id = machine.add(), machine.add(delay_ms=DELAY_MS)
    assert machine.get() == [job_id]
    machine.clock.jump_wall(-86_400_000)
    machine.restart()
    machine.wait(DELAY_MS)
    assert machine.get() == [delayed_id]
    machine.wait(RETRY_MS - DELAY_MS)
    assert machine.get() == [job_id]


def test_a_snapshot_that_is_read_as_a_journal_restores_no_queue(machine: Machine) -> None:
    ids = [machine.add(), machine.add(retry_ms=0)]
    machine.restart()
    machine.node.outbox.journal.clear()
    machine.crash()
    assert machine.get() == []
    machine.wait(RETRY_MS)
    assert machine.get() == ids[:1]


def test_a_snapshot_for_a_journal_that_goes_on_leaves_out_what_is_done(machine: Machine) -> None:
    delivered, queued, active = machine.add(retry_ms=0), machine.add(), machine.add(delay_ms=DELAY_MS)
    assert machine.get(1) == [delivered]
    assert {record[1].id for record in walk(machine.node.state) if record[0] == JOB_ADDED} == {queued, active}
    ids = [record[1].id for record in snapshot(machine.node.state) if record[0] == JOB_ADDED]
    assert ids[0] == queued
    assert set(ids) == {delivered, queued, active}


def test_what_a_walk_has_not_met_yet_is_left_out_when_it_is_gone(machine: Machine) -> None:
    ids = [machine.add() for _ in range(50)]
    records = walk(machine.node.state)
    met = [next(records)[1].id for _ in range(20)]
    rest = [job_id for job_id in ids if job_id not in met]
    for job_id in rest[::2]:
        machine.node.acks.acknowledge(job_id)
    assert sorted(record[1].id for record in records) == sorted(rest[1::2])


def test_a_walk_meets_nothing_that_a_flush_forgot(machine: Machine) -> None:
    for _ in range(50):
        machine.add()
    records = walk(machine.node.state)
    next(records)
    machine.node.flush()
    added = machine.add()
    assert {record[1].id for record in records} <= {added}


@pytest.mark.parametrize("end", ["crash", "restart"])
def test_what_the_cluster_says_of_a_queue_outlives_the_node_and_a_flush(machine: Machine, end: str) -> None:
    deploy = PauseSetting(PAUSE_IN, b"deploy", b"ops")
    machine.node.policies.set_pause(b"other", deploy)
    machine.node.policies.set_pause(b"other", NO_PAUSE)
    machine.node.policies.set_pause(QUEUE, deploy)
    machine.node.policies.pause_here(QUEUE, PAUSE_OUT)
    machine.commit()
    before = dict(machine.node.state.queues.policies.registers)
    getattr(machine, end)()
    state = machine.node.state
    assert state.queues.policies.registers == before
    assert (state.queue(QUEUE).pause, state.queue(QUEUE).pause_here) == (PAUSE_IN | PAUSE_OUT, PAUSE_OUT)
    assert state.queue(b"other").pause == 0
    with pytest.raises(QueuePaused, match=r"try later \(deploy; by ops\)"):
        machine.add()
    assert [record[1] for record in walk(state) if record is not None and record[0] == POLICY] == [b"other", QUEUE]
    machine.node.flush()
    getattr(machine, end)()
    assert machine.node.state.queues.policies.registers == before
    assert machine.node.state.queue(QUEUE).pause == PAUSE_IN


@pytest.mark.parametrize("end", ["crash", "restart"])
def test_defaults_of_a_queue_outlive_the_node_and_a_flush(machine: Machine, end: str) -> None:
    machine.node.policies.set(QUEUE, {TTL_FIELD: (60_000,), MAXLEN_FIELD: (7,)})
    machine.node.policies.set(QUEUE, {TTL_FIELD: ()})
    machine.commit()
    before = dict(machine.node.state.queues.policies.registers)
    for _ in range(2):
        getattr(machine, end)()
        policies = machine.node.state.queues.policies
        assert policies.registers == before
        assert policies.defaults == {QUEUE: NO_DEFAULTS._replace(maxlen=7)}
        assert not machine.node.state.queues.by_name
        machine.node.flush()
        machine.commit()


def test_a_register_that_is_forgotten_stays_so(machine: Machine) -> None:
    machine.node.policies.set_pause(QUEUE, NO_PAUSE)
    machine.clock.advance(FORGOTTEN_MS + 1)
    machine.node.begin()
    for _ in range(3):
        machine.node.tick()
    machine.commit()
    machine.crash()
    assert not machine.node.state.queues.policies.registers
    assert machine.node.state.memory.used == 0


@pytest.mark.parametrize("end", ["crash", "restart"])
def test_a_pause_of_the_node_outlives_it(machine: Machine, end: str) -> None:
    machine.node.queueing.set_pause(QUEUE, PAUSE_IN)
    machine.node.queueing.set_pause(b"other", PAUSE_OUT)
    machine.node.queueing.set_pause(b"other", 0)
    getattr(machine, end)()
    with pytest.raises(QueuePaused):
        machine.add()
    assert {record[1:] for record in walk(machine.node.state)} == {(QUEUE, PAUSE_IN)}
    machine.node.flush()
    machine.crash()
    machine.add()


def test_a_walk_past_very_many_jobs_that_are_done_comes_back_now_and_then(machine: Machine) -> None:
    for _ in range(2 * PASSED_AT_ONCE + 1):
        machine.add(retry_ms=0)
    kept = machine.add(queue=b"other")
    assert len(machine.get(count=2 * PASSED_AT_ONCE + 1)) == 2 * PASSED_AT_ONCE + 1
    records = walk(machine.node.state)
    drawn: list[bytes] = []
    draws = 0
    while (some := draw(records, 10)) is not None:
        draws += 1
        drawn += [record[1].id for record in some]
    assert drawn == [kept]
    assert draws >= 2


def test_a_draw_of_large_bodies_ends_early(machine: Machine) -> None:
    for _ in range(10):
        machine.add(bytes(DRAWN_BYTES // 2))
    records = walk(machine.node.state)
    draws = []
    while (some := draw(records, 100)) is not None:
        draws.append(len(some))
    assert draws == [2] * 5


# Stamps that no clock shows.


@pytest.mark.parametrize("stamp", [STAMP_LAST - 1, STAMP_LAST, STAMP_MAX - 1, STAMP_MAX])
def test_what_is_made_after_a_stamp_that_is_nearly_too_high_can_be_read_again(machine: Machine, stamp: int) -> None:
    first = machine.add()
    machine.job(first).ctime = stamp
    machine.crash()
    assert machine.job(first).ctime == stamp
    second = machine.add()
    machine.crash()
    assert {job.id for job in machine.node.state.jobs} == {first, second}
    assert STAMP_LAST <= machine.job(second).ctime <= STAMP_MAX
    copy = decode_copy(encode_copy(machine.job(second), machine.clock.now()))
    assert copy.ctime == machine.job(second).ctime
    machine.node.begin()
    assert -STAMP_MAX < machine.node.state.numbers.next_front(machine.node.state.wall) < -STAMP_LAST


def test_no_stamp_that_a_store_hands_out_lets_those_that_follow_leave_their_bounds(machine: Machine) -> None:
    machine.add()
    machine.commit()
    record = decode_record(machine.journal[0])
    for stamp in (2**63 - 2, 2**63 - 1):
        machine.recovery.apply((JOB_ADDED, record[1]._replace(ctime=stamp, order_key=stamp)))
        assert STAMP_LAST < machine.node.state.numbers.next_ctime(machine.node.state.wall) <= STAMP_MAX
        machine.recovery.apply((GROUP, b"log", b"1:group", ((NODE_ID[:8], stamp),), machine.clock.wall()))
        assert STAMP_LAST < machine.node.state.numbers.next_ctime(machine.node.state.wall) <= STAMP_MAX
