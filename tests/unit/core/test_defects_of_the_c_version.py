"""The known defects of the C version, one test each: this daemon does not have them.

The numbers are those of the list that the project keeps of them; `test_every_row_has_a_test` counts them.  Rows that
are about the C version's bus alone say why the like cannot happen here.
"""

import re

import pytest

from disqued.commands import catalogue
from disqued.commands.table import BLOCKED
from disqued.config import Config, ConfigError
from disqued.core.model.ids import SHARERS
from disqued.core.model.job import ACTIVE, QUEUED, JobState
from disqued.core.model.messages import (
    ENQUEUE,
    FAIL,
    GOTJOB,
    JOBS_PER_MESSAGE,
    NEEDJOBS,
    REPLJOB,
    YOURJOBS,
)  # fmt: skip
from disqued.core.model.messages import QUEUED as SAYS_QUEUED
from disqued.core.model.outbox import JOB_ADDED, UNIT_DONE
from disqued.core.model.peers import FAIL as FAILED
from disqued.core.model.state import State
from disqued.core.recovery import Recovery, snapshot
from disqued.testing.clock import Clock
from disqued.wire.frames import BadFrame, FrameReader
from disqued.wire.jobdump import decode_record, encode_job
from disqued.wire.requests import RequestParser
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import MEGABYTE, UNKNOWN_ID, Server

ROWS = 31

assert catalogue.MODULES


def added(member: Member, *args: str | int) -> bytes:
    """Add a job that may have to wait for copies; returns its id."""
    value = member("ADDJOB", *args)
    return bytes(member.answers.pop("client")[-1] if value is BLOCKED else value)


def known(cluster: Cluster, job_id: bytes) -> str:
    """Names of the nodes that know a job."""
    return "".join(member.name for member in cluster if member.holds(job_id))


def start_again(state: State, clock: Clock, *, controlled: bool) -> Server:
    """A node that comes back with what a snapshot of the other one says."""
    wall, now = clock.wall(), clock.now()
    server = Server(clock=clock)
    server.state.journaling = False
    recovery = Recovery(server.state, restores_queues=controlled)
    for record in snapshot(state):
        assert record[0] == JOB_ADDED
        recovery.apply(decode_record(encode_job(record[1], wall - now, record[1].state if controlled else ACTIVE)))
    server.state.journaling = True
    return server


def test_every_row_has_a_test() -> None:
    rows = [int(match[1]) for name in globals() if (match := re.match(r"test_(\d+)_", name))]
    assert sorted(rows) == list(range(1, ROWS + 1))


def test_1_an_ack_on_the_node_that_imported_a_job_reaches_its_owner() -> None:
    cluster = Cluster(2)
    a, b = cluster
    b("GETJOB", "FROM", "q", client="consumer")
    job_id = added(a, "q", "x", 0, "REPLICATE", 1, "RETRY", 5)
    assert b.answers["consumer"][0][0][1] == job_id
    assert b("ACKJOB", job_id) == 1
    assert known(cluster, job_id) == ""
    cluster.advance(60_000)
    assert a.get() == b.get() == []


def test_2_an_at_most_once_job_that_a_full_node_passed_on_is_delivered() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a.state.memory.set_limit(MEGABYTE)
    a.state.memory.used = 8 * MEGABYTE // 10
    added(a, "q", "x", 1_000, "REPLICATE", 1, "RETRY", 0)
    assert cluster.sent(ENQUEUE, a, b)
    assert b.bodies() == [b"x"]


def test_3_at_most_once_jobs_survive_a_controlled_restart_queued_or_delayed() -> None:
    server = Server()
    server.add("q", "queued", "RETRY", 0, "REPLICATE", 1)
    server.add("q", "delayed", "RETRY", 0, "REPLICATE", 1, "DELAY", 10)
    again = start_again(server.state, server.clock, controlled=True)
    assert again.bodies() == [b"queued"]
    again.advance(10_000)
    assert again.bodies() == [b"delayed"]


def test_4_an_ack_of_a_job_that_waits_for_copies_answers_its_producer() -> None:
    cluster = Cluster(2)
    a, b = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2, client="producer")
    (job_id,) = a("JSCAN", "BUSYLOOP")[1]
    cluster.lose = lambda flight: False
    assert a("ACKJOB", job_id) == 1
    assert a.answers["producer"] == [job_id]
    cluster.advance(5_000)
    assert known(cluster, job_id) == ""
    assert b.get() == []


@pytest.mark.parametrize("count", [101, 150, 10**6, 2**32 - 1])
def test_5_a_node_that_is_asked_for_very_many_jobs_gives_a_bounded_number(count: int) -> None:
    cluster = Cluster(2)
    a, b = cluster
    for number in range(500):
        a.add("q", number, "REPLICATE", 1)
    a.node.begin()
    a.node.message(b.id, (NEEDJOBS, b"q", count))
    a.settle()
    assert sum(len(flight.message[1]) for flight in cluster.sent(YOURJOBS)) <= JOBS_PER_MESSAGE


def test_6_a_default_replicate_is_as_many_copies_as_can_be_made() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.isolate(c)
    job_id = added(a, "q", "x", 1_000)
    assert known(cluster, job_id) == "ab"
    cluster.isolate(b)
    assert known(cluster, added(a, "q", "x", 1_000)) == "a"
    # As in the C version, a node counts that is not suspected yet, and the addition waits for it.
    assert a("ADDJOB", "q", "x", 1_000, "REPLICATE", 2) is BLOCKED
    cluster.advance(1_000)
    assert [error.code for error in a.answers["client"]] == ["NOREPL"]
    cluster.advance(20_000)
    assert a.refusal("ADDJOB", "q", "x", 1_000, "REPLICATE", 2).startswith("NOREPL")


def test_7_the_retry_timer_starts_again_when_a_job_is_delivered() -> None:
    cluster = Cluster(3)
    a, _, _ = cluster
    job_id = added(a, "q", "x", 0, "RETRY", 10)
    cluster.advance(9_900)
    assert [row[1] for row in a.get()] == [job_id]
    cluster.advance(9_999)
    assert sum(member("QLEN", "q") for member in cluster) == 0
    cluster.advance(1)
    assert sum(member("QLEN", "q") for member in cluster) == 1


def test_8_a_leaving_node_does_not_send_away_producers_that_wait_for_copies() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    a("CLUSTER", "LEAVING", "yes")
    for other in (b, c):
        cluster.hold(other, a)
    a("ADDJOB", "q", "x", 5_000, "REPLICATE", 2, client="producer")
    cluster.advance(2_000)
    assert a.answers["producer"] == []
    for other in (b, c):
        cluster.release(other, a)
    (job_id,) = a.answers["producer"]
    assert known(cluster, job_id) == "bc"


def test_9_a_job_that_needs_nothing_wakes_nobody() -> None:
    server = Server()
    server.add("q", "x", "TTL", 86_400, "RETRY", 3_600)
    before = server.ticks
    server.advance(600_000)
    # The C version would have looked 600 000 times.
    assert server.ticks - before <= 5


def test_10_a_consumer_that_waits_for_hours_asks_every_half_minute_and_no_more() -> None:
    cluster = Cluster(2)
    a, b = cluster
    b("GETJOB", "FROM", "q", client="consumer")
    cluster.advance(600_000)
    cluster.flights.clear()
    cluster.advance(3_600_000)
    assert 110 <= len(cluster.sent(NEEDJOBS, b, a)) <= 130


@pytest.mark.parametrize("waits_s", [0, 1, 100, 3_600])
def test_11_a_consumer_gets_a_job_from_another_node_however_long_it_has_waited(waits_s: int) -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    b("GETJOB", "FROM", "q", client="consumer")
    cluster.advance(waits_s * 1_000)
    job_id = added(a, "q", "x", 0, "REPLICATE", 1)
    # No time has passed: the messages of one step were enough.
    assert b.answers["consumer"][0][0][1] == job_id


def test_12_one_command_makes_room_for_itself_by_evicting_what_may_go() -> None:
    server = Server()
    for _ in range(200):
        server.add("q", "x" * 5_000, "RETRY", 0, "REPLICATE", 1)
        server.get()
    server.state.memory.set_limit(server.state.memory.used)
    assert server.state.memory.level == 2
    assert server.node.make_room()
    assert server.state.memory.level < 2


def test_13_the_ladder_of_memory_is_counted_and_begins_to_refuse_at_the_limit() -> None:
    server = Server(maxmemory=MEGABYTE)
    memory = server.state.memory
    for percent, level in ((75, 0), (76, 1), (95, 1), (96, 2), (100, 2), (101, 3)):
        memory.used = MEGABYTE * percent // 100
        assert memory.level == level
    memory.used = MEGABYTE
    assert server.node.make_room()
    memory.used += 1
    assert not server.node.make_room()


def test_14_a_memory_limit_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError):
        Config().set("maxmemory", "0")


@pytest.mark.parametrize("option", ["TTL", "RETRY", "DELAY"])
def test_15_spans_that_do_not_fit_are_refused_and_not_cut_off(option: str) -> None:
    server = Server()
    for value in (2**32, 2**63 - 1, 2**64):
        assert server.refusal("ADDJOB", "q", "x", 0, option, value).startswith("ERR")
    assert not len(server.state.jobs)


def test_16_a_delay_is_not_begun_again_by_a_restart_nor_by_a_copy() -> None:
    server = Server()
    server.add("q", "x", "DELAY", 100)
    server.advance(90_000)
    again = start_again(server.state, server.clock, controlled=False)
    again.advance(9_999)
    assert again.bodies() == []
    again.advance(1)
    assert again.bodies() == [b"x"]
    cluster = Cluster(2)
    a, b = cluster
    job_id = added(a, "q", "x", 0, "DELAY", 100, "RETRY", 10)
    a("DELJOB", job_id)
    cluster.advance(110_500)
    assert b("QLEN", "q") == 1


@pytest.mark.parametrize("retry", [0, 5])
def test_17_an_imported_job_is_in_the_journal_of_the_node_that_imported_it(retry: int) -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = added(a, "q", "x", 0, "REPLICATE", 1, "RETRY", retry)
    a.journal.clear()
    cluster.hold(a, b)
    b("GETJOB", "NOHANG", "FROM", "q")
    # What is delivered at most once is over here before it leaves.
    assert a.journal == ([] if retry else [(UNIT_DONE, job_id, b"")])
    cluster.release(a, b)
    assert (b.journal[0][0], b.journal[0][1].id) == (JOB_ADDED, job_id)


def test_18_consumers_hear_at_the_end_of_their_time_however_many_they_are() -> None:
    server = Server()
    for number in range(1_000):
        server("GETJOB", "TIMEOUT", 100, "FROM", "q", client=number)
    server.advance(100)
    assert len(server.answers) == 1_000


def test_19_two_dummy_acks_do_not_delete_each_other() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    cluster.isolate(c)
    a("ACKJOB", UNKNOWN_ID)
    b("ACKJOB", UNKNOWN_ID)
    cluster.advance(300_000)
    assert known(cluster, UNKNOWN_ID) == "ab"


def test_20_acks_do_not_wait_for_nodes_that_were_forgotten() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = added(a, "q", "x", 0)
    cluster.isolate(c)
    a("ACKJOB", job_id)
    for member in (a, b):
        member("CLUSTER", "FORGET", c.id)
    cluster.advance(10_000)
    assert known(cluster, job_id) == "c"


def test_21_no_message_queues_a_job_whose_producer_waits_for_copies() -> None:
    cluster = Cluster(2)
    a, b = cluster
    cluster.lose = lambda flight: flight.kind == GOTJOB
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2)
    (job,) = a.state.jobs
    for message in ((ENQUEUE, job.id, b"", 0), (SAYS_QUEUED, job.id, b"", 0)):
        a.node.begin()
        a.node.message(b.id, message)
        a.settle()
        assert job.state == JobState.WAIT_REPL
        assert a("QLEN", "q") == 0


def test_22_what_a_pause_stops_is_new_jobs_and_copies_and_nothing_else() -> None:
    cluster = Cluster(2)
    a, b = cluster
    job_id = a.add("q", "x", "REPLICATE", 1)
    a.get()
    a("PAUSE", "q", "in", "node")
    assert a.refusal("ADDJOB", "q", "y", 0, "REPLICATE", 1).startswith("PAUSED")
    assert a("NACK", job_id) == 1
    b("PAUSE", "q", "in", "node")
    b("GETJOB", "FROM", "q", client="consumer")
    assert b.answers["consumer"][0][0][1] == job_id
    b.refusal("ADDJOB", "q", "y", 0)


def test_23_without_a_link_nothing_is_taken_out_of_a_queue_for_another_node() -> None:
    cluster = Cluster(2)
    a, b = cluster
    b("GETJOB", "FROM", "q", client="consumer")
    cluster.cut(a, b)
    job_id = a.add("q", "x", "REPLICATE", 1, "RETRY", 0)
    cluster.advance(1_000)
    assert a.job(job_id).state == QUEUED
    cluster.heal(a, b)
    cluster.advance(1)
    assert b.answers["consumer"][0][0][1] == job_id


@pytest.mark.parametrize("retry", [0, 5])
def test_24_a_job_in_a_reply_that_nobody_received_goes_back(retry: int) -> None:
    server = Server()
    server("GETJOB", "FROM", "q", client="gone")
    server.vanished.add("gone")
    server.add("q", "x", "RETRY", retry, "REPLICATE", 1)
    assert server.bodies() == [b"x"]


def test_25_a_line_that_ends_in_a_bare_line_feed_is_read_as_one_line() -> None:
    assert RequestParser(max_bulk=100, max_buffer=1_000).feed(b"PING\nPING\r\n") == [[b"PING"], [b"PING"]]


def test_26_every_digit_of_an_id_is_drawn_by_itself() -> None:
    server = Server()
    every = [server.add()[10:42] for _ in range(4096)]
    assert len({job_id[4:] for job_id in every}) == 4096
    for place in range(32):
        # The first four digits are drawn for sixteen ids at a time.
        ids = every[::SHARERS] if place < 4 else every[:256]
        assert len({job_id[place] for job_id in ids}) == 16
        # In the C version every fourth character tells the one that follows it.
        assert len({job_id[place] ^ job_id[(place + 1) % 32] for job_id in ids}) > 4


def test_27_a_message_that_is_longer_than_allowed_is_refused_before_it_is_taken_in() -> None:
    reader = FrameReader(b"k" * 32, b"a" * 20, 1_000)
    reader.feed(b"\xff" * 64)
    with pytest.raises(BadFrame, match="at most"):
        reader.next()


def test_28_a_leaving_node_gives_its_jobs_away_by_itself() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    for number in range(50):
        a.add("q", number, "REPLICATE", 1, "RETRY", number % 2)
    a("CLUSTER", "LEAVING", "yes")
    cluster.advance(2_000)
    assert a("QLEN", "q") == 0
    # Jobs go to and fro between the two while both ask for them.
    bodies = [body for _ in range(5) for member in (b, c) for body in member.bodies("q")]
    assert sorted(map(int, bodies)) == list(range(50))


def test_29_a_controlled_start_without_a_journal_is_an_empty_one() -> None:
    again = start_again(Server().state, Clock(), controlled=True)
    assert not len(again.state.jobs)


def test_30_one_node_alone_cannot_make_another_one_fail() -> None:
    cluster = Cluster(5)
    a, b, c = cluster.members[:3]
    a.node.begin()
    a.node.message(b.id, (FAIL, c.id))
    a.settle()
    assert not a.state.peers.by_id[c.id].flags & FAILED
    assert c.id in a.state.peers.reachable


def test_31_the_journal_knows_who_was_given_a_copy_of_an_asynchronous_job() -> None:
    cluster = Cluster(3)
    a = cluster.members[0]
    job_id = a.add("q", "x", "REPLICATE", 3, "ASYNC")
    assert [flight.receiver.id for flight in cluster.sent(REPLJOB)] != []
    (record,) = a.journal
    stored = decode_record(encode_job(record[1], 0))[1]
    assert stored.holders == {member.id for member in cluster if member.holds(job_id)}
    assert len(stored.holders) == 3
