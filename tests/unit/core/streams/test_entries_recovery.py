"""What of logs comes back after a crash, and after a controlled restart."""

import pytest

from disqued.core.model.outbox import GROUP, JOB_ADDED, JOB_GONE, Record
from disqued.core.recovery import Recovery, snapshot, walk
from disqued.wire.jobdump import decode_record, encode_event, encode_job
from tests.core_fixtures import Server, check
from tests.unit.commands.test_streams import Bench, counts


class Machine(Bench):
    """A node whose journal is on a disk."""

    def __init__(self) -> None:
        super().__init__()
        self.disk: list[bytes] = []
        self.starts = 1

    def written(self, records: list[Record], wall: int) -> list[bytes]:
        """Records as bytes, of this moment."""
        offset = wall - self.clock.now()
        return [
            encode_job(record[1], offset, record[1].state) if record[0] == JOB_ADDED else encode_event(record, wall)
            for record in records
        ]

    def settle(self) -> None:
        """Write down what a step has journaled, as it is at its end."""
        before = len(self.journal)
        super().settle()
        self.disk += self.written(self.journal[before:], self.clock.wall())

    def start(self, *, restores_queues: bool = False, down_ms: int = 0) -> None:
        """Start a process on what the disk has."""
        self.clock.advance(down_ms)
        self.starts += 1
        fresh = Server(clock=self.clock, seed=self.starts)
        fresh.state.journaling = False
        recovery = Recovery(fresh.state, restores_queues=restores_queues)
        for data in self.disk:
            recovery.apply(decode_record(data))
        fresh.state.journaling = True
        self.node, self.state = fresh.node, fresh.state
        self.journal = [record for record in walk(self.state) if record is not None]
        self.node.note_expired(recovery.expired)
        self.node.begin()
        self.node.tick()
        self.settle()
        check(self)

    def crash(self, *, down_ms: int = 0) -> None:
        """End the process and start another one."""
        self.start(down_ms=down_ms)

    def compact(self) -> None:
        """Let the disk have what a walk finds."""
        self.disk = self.written([record for record in walk(self.state) if record is not None], self.clock.wall())

    def restart(self, *, down_ms: int = 0) -> None:
        """Stop and start in order."""
        self.disk = self.written(list(snapshot(self.state)), self.clock.wall())
        self.start(restores_queues=True, down_ms=down_ms)


@pytest.fixture(params=["crash", "compaction and crash", "restart"])
def comes_back(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def back(machine: Machine, how: str, down_ms: int = 0) -> None:
    """Let the node come back."""
    if how == "restart":
        machine.restart(down_ms=down_ms)
        return
    if how != "crash":
        machine.compact()
    machine.crash(down_ms=down_ms)


def test_events_and_what_is_done_are_there_again(comes_back: str) -> None:
    machine = Machine()
    ids = [machine.event(body) for body in "abc"]
    for group in ("g", "h"):
        machine.take(group)
        machine.ack(ids[0], group)
    machine.take("g", "EX", 0)
    back(machine, comes_back)
    assert counts(machine, "g") == (0, 0, 2, 1)
    assert counts(machine, "h") == (0, 0, 1, 2)
    assert [machine.body("g"), machine.body("g")] == [b"c", None]
    assert [machine.body("h"), machine.body("h")] == [b"b", b"c"]


def test_a_lease_whose_end_is_ahead_goes_on(comes_back: str) -> None:
    machine = Machine()
    event_id = machine.event()
    machine.take("g", "EX", 10)
    back(machine, comes_back, down_ms=4_000)
    assert counts(machine) == (1, 0, 0, 0)
    machine.advance(6_000)
    assert machine.ack(event_id) == 1
    back(machine, comes_back)
    assert counts(machine) == (0, 0, 1, 0)


def test_a_lease_whose_end_came_meanwhile_is_over(comes_back: str) -> None:
    machine = Machine()
    event_id = machine.event()
    machine.take("g", "EX", 10)
    back(machine, comes_back, down_ms=10_001)
    assert counts(machine) == (0, 1, 0, 0)
    assert machine.ack(event_id) == 0
    assert machine.take() == [event_id, b"x"]


def test_a_wall_clock_that_went_back_lets_no_lease_last_longer_than_it_was() -> None:
    machine = Machine()
    machine.event()
    machine.take("g", "EX", 10)
    machine.clock.jump_wall(-86_400_000)
    machine.crash()
    machine.advance(10_001)
    assert counts(machine) == (0, 1, 0, 0)


def test_what_was_given_back_is_to_be_had_at_once(comes_back: str) -> None:
    machine = Machine()
    event_id = machine.event()
    machine.take("g", "EX", 100)
    machine("QGROUP", "RETURN", "q", "g", event_id)
    back(machine, comes_back)
    assert counts(machine) == (0, 1, 0, 0)


def test_what_was_given_back_is_on_no_schedule_and_what_was_never_seen_was_never_had(comes_back: str) -> None:
    machine = Machine()
    back_again, unseen = machine.event("a"), machine.event("b")
    machine.take("g", "EX", 50)
    machine.take("g", "EX", 50)
    machine("QGROUP", "RETURN", "q", "g", back_again)
    machine.node.begin()
    machine.node.gone("client", [unseen + b":0:g"])
    machine.settle()
    back(machine, comes_back)
    assert counts(machine) == (0, 1, 0, 1)
    log = machine.state.queues.by_name[b"q"].stream
    assert log is not None
    (unit,) = log.groups[b"g"].units.values()
    assert (unit.requeue_at, unit.awake_at, unit.deliveries) == (0, 0, 1)


def test_where_a_group_began_is_known(comes_back: str) -> None:
    machine = Machine()
    for body in "ab":
        machine.event(body)
    machine.take("old", "EX", 0)
    machine("QGROUP", "START", "q", "now", "NOW")
    machine("QGROUP", "FORGET", "q", "old")
    machine.event("c")
    back(machine, comes_back)
    assert counts(machine, "now") == (0, 0, 2, 1)
    assert machine.body("now") == b"c"
    assert machine.body("old") == b"a"


def test_what_was_flushed_stays_away(comes_back: str) -> None:
    machine = Machine()
    for body in "ab":
        machine.event(body)
    machine("QFLUSH", "q")
    machine.event("c")
    back(machine, comes_back)
    assert [machine.body(), machine.body()] == [b"c", None]


def test_a_crash_in_the_middle_of_a_flush_brings_nothing_back() -> None:
    machine = Machine()
    for number in range(2_000):
        machine.event(number)
    # The first record of a flush says all; those of the events follow bit by bit.
    machine("QFLUSH", "q")
    machine.crash()
    assert machine.take() is None
    assert not len(machine.state.jobs)


def test_a_delay_goes_on(comes_back: str) -> None:
    machine = Machine()
    machine.event("x", "q", 60, "DELAY", 10)
    back(machine, comes_back, down_ms=4_000)
    machine.advance(5_999)
    assert machine.take() is None
    machine.advance(1)
    assert machine.body() == b"x"


def test_events_that_ended_meanwhile_are_gone(comes_back: str) -> None:
    machine = Machine()
    machine.event("short", "q", 5)
    machine.event("long", "q", 50)
    machine.take("g", "EX", 100)
    back(machine, comes_back, down_ms=5_000)
    assert machine.figures()["total"] == 1
    assert [machine.body(), machine.body()] == [b"long", None]


def test_an_event_done_for_good_before_the_reply_was_read_is_not_delivered_again(comes_back: str) -> None:
    machine = Machine()
    machine.event()
    machine.take("g", "EX", 0)
    back(machine, comes_back)
    assert machine.take() is None


def test_records_that_are_read_twice_change_nothing() -> None:
    machine = Machine()
    ids = [machine.event(body) for body in "abc"]
    machine.take("g", "EX", 100)
    machine.take("g", "EX", 0)
    machine.disk += machine.disk
    machine.crash()
    assert counts(machine) == (1, 0, 1, 1)
    assert machine.ack(ids[0]) == 1


def test_a_kill_between_the_delivery_and_the_acknowledgement_without_a_journal_loses_what_was_here_alone() -> None:
    machine = Machine()
    event_id = machine.event()
    machine.take()
    machine.disk.clear()
    machine.crash()
    assert machine.ack(event_id) == 0
    assert machine("QSTATUS") == []


def test_new_ids_are_never_behind_those_that_came_back() -> None:
    machine = Machine()
    machine.event("a")
    machine.clock.jump_wall(-3_600_000)
    machine.crash()
    machine.event("b")
    assert [machine.body(), machine.body()] == [b"a", b"b"]


@pytest.mark.parametrize("words", [("QGROUP", "START", "q", "g", "NOW"), ("QFLUSH", "q")])
def test_new_events_are_behind_a_beginning_when_those_until_then_are_gone_and_the_clock_went_back(
    words: tuple[str, ...],
) -> None:
    machine = Machine()
    event_id = machine.event("a")
    machine("DELJOB", event_id)
    machine(*words)
    machine.compact()
    machine.clock.jump_wall(-3_600_000)
    machine.crash()
    machine.event("b")
    assert machine.body() == b"b"


# For how long it is known where groups begin.


def test_where_a_group_began_is_known_for_as_long_as_events_of_that_time_live(comes_back: str) -> None:
    machine = Machine()
    machine.event("a", "q", 7_200)
    machine.take("old", "EX", 0)
    machine("QGROUP", "FORGET", "q", "old")
    machine("QGROUP", "START", "q", "new", "NOW")
    back(machine, comes_back)
    machine.advance(7_000_000)
    assert counts(machine, "new") == (0, 0, 1, 0)
    assert machine.body("old") == b"a"
    back(machine, comes_back)
    assert counts(machine, "old") == (1, 0, 0, 0)


def test_after_a_start_where_a_group_began_is_known_for_a_day_as_others_may_have_events_of_that_time(
    comes_back: str,
) -> None:
    machine = Machine()
    machine.event("a", "q", 60)
    machine("QGROUP", "START", "q", "g", "NOW")
    back(machine, comes_back, down_ms=120_000)
    machine.advance(86_000_000)
    assert machine.state.stream(b"q").groups[b"g"].epoch == 1
    machine.advance(1_300_000)
    assert (GROUP, b"q", b"0:g", ()) in machine.journal


def test_what_is_over_is_forgotten_by_the_node_and_by_the_journal(comes_back: str) -> None:
    machine = Machine()
    machine.event("a", "q", 3_600)
    machine.take("old", "EX", 0)
    machine("QGROUP", "FORGET", "q", "old")
    machine("QGROUP", "START", "q", "new", "NOW")
    machine("QFLUSH", "q")
    if comes_back == "restart":
        machine.restart()
    # The wait goes on where it was, although the node was down for the most of it.
    back(machine, comes_back, down_ms=86_000_000)
    assert {record[2] for record in machine.journal if record[0] == GROUP} == {b"", b"1:old", b"1:new"}
    machine.advance(1_100_000)
    assert set(machine.journal[-3:]) == {(GROUP, b"q", scope, ()) for scope in (b"", b"0:old", b"0:new")}
    machine.advance(600_000)
    assert not len(machine.state.queues)
    machine.crash()
    assert all(record[0] != GROUP for record in machine.journal)


def test_that_is_over_what_the_journal_does_not_know_any_more_changes_nothing() -> None:
    machine = Machine()
    event_id = machine.event()
    machine.disk += machine.written([(GROUP, b"q", scope, ()) for scope in (b"", b"3:g")], machine.clock.wall())
    machine.disk += machine.written([(GROUP, b"nowhere", scope, ()) for scope in (b"", b"3:g")], machine.clock.wall())
    machine.crash()
    assert machine.take() == [event_id, b"x"]


def test_a_group_that_comes_again_long_after_it_was_forgotten_begins_where_it_is_told_to(comes_back: str) -> None:
    machine = Machine()
    for _ in range(3):
        machine("QGROUP", "START", "q", "g", "NOW")
    machine.advance(86_400_000)
    assert machine.journal[-1] == (GROUP, b"q", b"0:g", ())
    machine.event("a", "q", 3_600)
    machine("QGROUP", "START", "q", "g", "NOW")
    machine.event("b", "q", 3_600)
    back(machine, comes_back)
    assert counts(machine) == (0, 0, 1, 1)
    assert machine.body() == b"b"


def test_events_that_were_flushed_just_before_a_crash_are_told_to_be_gone() -> None:
    machine = Machine()
    ids = [machine.event(number, "q", 60, "DELAY", number // 3 * 10) for number in range(5)]
    machine("QFLUSH", "q")
    # A store that is no journal says first where groups begin.
    machine.disk = [*machine.disk[5:6], *machine.disk[:5]]
    machine.start()
    assert {record[1] for record in machine.journal if record[0] == JOB_GONE} == set(ids)
    assert not len(machine.state.jobs)
