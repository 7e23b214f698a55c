"""Schedules: one job for each instant, whichever node makes it, and none that comes back."""

import pytest

from disqued.core.cluster.policy_sync import SWEEP_MS
from disqued.core.cluster.schedules import HOLD_MS, OTHERS_MS
from disqued.core.model.calendar import LastFiring, ranked
from disqued.core.model.endings import Endings
from disqued.core.model.job import ACKED
from disqued.core.model.messages import DELJOB, POLICY, REPLJOB
from disqued.core.model.outbox import JOB_ADDED
from disqued.core.model.outbox import POLICY as POLICY_RECORD
from disqued.core.model.policies import FORGOTTEN_MS, SCHEDULE_FIELD, SCHEDULE_FIRED_FIELD, SCHEDULE_REFUSED_FIELD
from disqued.wire.jobdump import decode_record, encode_event
from tests.cluster_fixtures import Cluster, Member
from tests.core_fixtures import Server, check

NO_SCHEDULE = "ERR no such schedule; SCHEDULE LIST names those that there are"
DAY_MS = 86_400_000


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def cluster() -> Cluster:
    return agreeing(Cluster(3))


def agreeing(cluster: Cluster) -> Cluster:
    """Let the wall clocks agree."""
    first, *others = cluster
    for member in others:
        member.clock.jump_wall(first.clock.wall() - member.clock.wall())
        member.node.begin()
    return cluster


def every(server: Server, seconds: int = 10, *options: str | int | bytes, name: str = "beat") -> None:
    assert server("SCHEDULE", "SET", name, "EVERY", seconds, "QUEUE", "q", "BODY", "body", *options) == b"OK"


def told(server: Server, name: str = "beat") -> dict[str, object]:
    values = server("SCHEDULE", "GET", name)
    return {values[at].decode(): values[at + 1] for at in range(0, len(values), 2)}


def first_of(cluster: Cluster, name: str = "beat") -> tuple[Member, list[Member]]:
    """The node that fires a schedule, and the others in the order in which they would."""
    first, *others = [cluster.by_id[node_id] for node_id in ranked(name.encode(), tuple(cluster.by_id))]
    return first, others


def made(*members: Member) -> list[tuple[str, bytes]]:
    """Jobs of schedules that nodes have journaled as added, each once for each node, with the node."""
    return list(
        dict.fromkeys(
            (member.name, record[1].id)
            for member in members
            for record in member.journal
            if record[0] == JOB_ADDED and record[1].id.startswith(b"DI00000000") and record[1].state != ACKED
        )
    )


def ids(*members: Member) -> set[bytes]:
    return {job_id for _, job_id in made(*members)}


# What one node does.


def test_a_job_is_added_at_each_instant(server: Server) -> None:
    every(server, 10)
    server.advance(9_999)
    assert server.bodies() == []
    server.advance(1)
    assert server.bodies() == [b"body"]
    server.advance(30_000)
    assert server.bodies() == [b"body"] * 3
    assert told(server)["last"] == server.clock.wall() // 1_000
    check(server)


def test_a_cron_line_comes_in_its_zone(server: Server) -> None:
    # The clock begins at 22:13:20 UTC.
    line = ("SCHEDULE", "SET", "night", "15 23 * * *", "TZ", "Europe/Berlin", "QUEUE", "q", "BODY", "body")
    assert server(*line) == b"OK"
    server.advance(99_999)
    assert server.bodies() == []
    server.advance(1)
    assert server.bodies() == [b"body"]
    assert server("SCHEDULE", "NEXT", "night", 2) == [
        server.clock.wall() // 1_000 + 86_400, server.clock.wall() // 1_000 + 2 * 86_400,
    ]  # fmt: skip


@pytest.mark.parametrize("when", [("15 23 * * *", "TZ", "Europe/Berlin"), ("EVERY", 60)], ids=["line", "span"])
@pytest.mark.parametrize("state", ["none", "active", "paused"])
def test_a_dry_run_tells_the_next_instants_and_sets_nothing(
    server: Server, when: tuple[str | int, ...], state: str
) -> None:
    if state != "none":
        every(server, 7)
    if state == "paused":
        server("SCHEDULE", "PAUSE", "beat")
    server.advance(3_000)
    before = server("SCHEDULE", "GET", "beat")
    words = ("SCHEDULE", "SET", "beat", *when, "QUEUE", "q", "BODY", "body")
    tried = server(*words, "DRYRUN")
    assert server("SCHEDULE", "GET", "beat") == before
    assert server(*words) == b"OK"
    server("SCHEDULE", "RESUME", "beat")
    assert server("SCHEDULE", "NEXT", "beat", 5) == tried
    assert len(tried) == 5
    check(server)


def test_a_dry_run_is_refused_as_the_schedule_would_be(server: Server) -> None:
    start, end = ("SCHEDULE", "SET", "x"), ("QUEUE", "q", "BODY", "body")
    at = server.clock.wall() // 1_000 + 60
    assert server(*start, "AT", at, *end, "DRYRUN") == [at]
    for when in (("AT", at - 60), ("EVERY", 5, "TZ", "UTC"), ("61 * * * *",), ("EVERY", 5, "DELAY", 9, "TTL", 9)):
        assert server.refusal(*start, *when, *end, "DRYRUN") == server.refusal(*start, *when, *end)
    assert server("SCHEDULE", "LIST") == []


def test_an_instant_comes_once_and_the_schedule_is_done(server: Server) -> None:
    at = server.clock.wall() // 1_000 + 60
    server("SCHEDULE", "SET", "once", "AT", at, "QUEUE", "q", "BODY", "body")
    assert told(server, "once")["state"] == b"active"
    server.advance(DAY_MS)
    assert [row[2] for row in server.get("q", count=9)] == [b"body"]
    shown = told(server, "once")
    assert (shown["state"], shown["next"], shown["last"], shown["when"]) == (b"done", 0, at, b"AT %d" % at)
    assert server("SCHEDULE", "NEXT", "once") == []
    server.advance(FORGOTTEN_MS + 2 * SWEEP_MS)
    assert server("SCHEDULE", "LIST") == []
    check(server)


def test_a_job_has_the_options_of_addjob_and_the_defaults_of_its_queue(server: Server) -> None:
    server("QPOLICY", "q", "SET", "TTL", 3_600, "RETRY", 9, "MAXLEN", 7)
    every(server, 10, "TTL", 600, "MAXTRIES", 3, "BACKOFF", 2, 60, "HEADER", "a", "b", "DELAY", 5)
    server("QPOLICY", "q", "SET", "RETRY", 11)
    server.advance(10_000)
    job_id = told(server)["last-job"]
    assert isinstance(job_id, bytes)
    options = server.job(job_id).options
    assert (options.ttl_ms, options.retry_ms, options.delay_ms) == (600_000, 9_000, 5_000)
    assert options.terms.max_tries == 3
    seconds = server.clock.wall() // 1_000
    assert options.terms.headers == (
        (b"a", b"b"), (b"schedule-name", b"beat"), (b"schedule-time", b"%d" % seconds),
    )  # fmt: skip
    # 600 s and 7 days for a dead job.
    assert job_id.endswith(b"%04xSQ" % (10 + 7 * 24 * 60))
    assert server.get("q") == []
    server.advance(5_000)
    assert server.bodies() == [b"body"]


def test_jitter_delays_jobs_by_what_follows_from_name_and_instant(server: Server) -> None:
    every(server, 60, "JITTER", 20)
    delays = set()
    for _ in range(8):
        server.advance(60_000)
        job_id = told(server)["last-job"]
        assert isinstance(job_id, bytes)
        delays.add(server.job(job_id).options.delay_ms)
    assert len(delays) == 8
    assert all(0 <= delay <= 20_000 for delay in delays)


def test_a_schedule_that_is_paused_adds_nothing_and_goes_on_from_where_it_is_resumed(server: Server) -> None:
    every(server, 10)
    server("SCHEDULE", "PAUSE", "beat")
    server("SCHEDULE", "PAUSE", "beat")
    assert told(server)["state"] == b"paused"
    assert server("SCHEDULE", "NEXT", "beat") == []
    server.advance(35_000)
    assert server("SCHEDULE", "RESUME", "beat") == b"OK"
    server.advance(4_999)
    assert server.bodies() == []
    server.advance(1)
    assert server.bodies() == [b"body"]
    check(server)


def test_a_schedule_stays_paused_when_it_is_set_again_and_not_when_it_was_deleted(server: Server) -> None:
    every(server)
    server("SCHEDULE", "PAUSE", "beat")
    every(server, 20)
    assert told(server)["state"] == b"paused"
    assert server("SCHEDULE", "DEL", "beat") == 1
    assert server("SCHEDULE", "DEL", "beat") == 0
    assert server("SCHEDULE", "GET", "beat") is None
    server.advance(60_000)
    assert server.bodies() == []
    every(server, 20)
    assert told(server)["state"] == b"active"
    for verb in ("PAUSE", "RESUME", "FIRE", "NEXT"):
        assert server.refusal("SCHEDULE", verb, "other") == NO_SCHEDULE


def test_fire_adds_one_job_now_paused_or_not(server: Server) -> None:
    every(server, 3_600)
    server("SCHEDULE", "PAUSE", "beat")
    one, other = server("SCHEDULE", "FIRE", "beat"), server("SCHEDULE", "FIRE", "beat")
    assert one != other
    assert server.bodies() == [b"body"] * 2
    assert told(server)["last"] == 0


def test_with_overlap_skip_nothing_is_added_while_the_last_job_is_not_over(server: Server) -> None:
    every(server, 10, "OVERLAP", "skip", "RETRY", 1_000)
    server.advance(10_000)
    ((_, job_id, _),) = server.get()
    server.advance(30_000)
    assert server.get() == []
    assert told(server)["last-job"] == job_id
    server("ACKJOB", job_id)
    server.advance(10_000)
    ((_, next_id, _),) = server.get()
    assert next_id != job_id
    # A dead one is over as well.
    server("NACK", next_id, "DEAD")
    server.advance(10_000)
    assert len(server.get(count=9)) == 1
    check(server)


def test_with_overlap_skip_a_node_that_is_away_holds_up_nothing() -> None:
    """The others may have forgotten the end of the last job; that one of them cannot be asked is no reason to wait."""
    cluster = agreeing(Cluster(3))
    first, (second, third) = first_of(cluster)
    every(first, 30, "OVERLAP", "skip", "RETRY", 1_000)
    cluster.advance(31_000)
    done = told(first)["last-job"]
    first("ACKJOB", done)
    cluster.advance(1_000)
    cluster.isolate(third)
    for member in (first, second):
        member.state.custody.ended = Endings()
    cluster.advance(35_000)
    assert told(first)["last-job"] != done


def test_what_is_refused_is_tried_again_and_missed_instants_count_up_to_catchup(server: Server) -> None:
    every(server, 10, "CATCHUP", 2)
    server("PAUSE", "q", "in")
    server.advance(10_500)
    assert told(server)["last"] == 0
    server("PAUSE", "q", "none")
    server.advance(4_000)
    assert server.bodies() == [b"body"], "it was tried again"
    server("PAUSE", "q", "in")
    server.advance(100_000)
    server("PAUSE", "q", "none")
    server.advance(64_000)
    times = [dict(server.job(job_id).options.terms.headers)[b"schedule-time"] for _, job_id, _ in server.get(count=99)]
    assert times == sorted(times)
    # All since the pause ended, the two that were missed last, and no other.
    assert len(times) == 2 + 6 + 1
    check(server)


@pytest.mark.parametrize(("catch_up", "expected"), [(0, 0), (1, 1), (3, 3)])
def test_after_a_time_without_a_node_the_last_missed_instants_are_fired(catch_up: int, expected: int) -> None:
    server = Server()
    every(server, 60, "CATCHUP", catch_up)
    # The node stands still, or is away: its clock goes on.
    server.clock.advance(60_000 * 10 + 30_000)
    server.node.begin()
    server.advance(10_000)
    assert len(server.get(count=99)) == expected


def test_maxlen_of_the_queue_is_kept(server: Server) -> None:
    every(server, 10, "MAXLEN", 2, "CATCHUP", 0)
    server.advance(100_000)
    assert server("QLEN", "q") == 2


def test_a_flush_keeps_schedules(server: Server) -> None:
    every(server, 10)
    server.advance(10_000)
    server("DEBUG", "FLUSHALL")
    assert server("QLEN", "q") == 0
    server.advance(10_000)
    assert server("QLEN", "q") == 1
    check(server)


def test_a_node_without_schedules_has_no_deadline_for_them(server: Server) -> None:
    assert not server.node.schedules._plans
    every(server, 10)
    server("SCHEDULE", "DEL", "beat")
    assert not server.node.schedules._plans
    server.advance(FORGOTTEN_MS + 2 * SWEEP_MS)
    assert not server.state.queues.policies.registers
    assert not server.state.memory.used


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["QUEUE", "q", "BODY", "b"], "SCHEDULE SET takes one of a cron line, EVERY seconds and AT unix-seconds"),
        (["* * * * *", "EVERY", 5, "QUEUE", "q", "BODY", "b"], "SCHEDULE SET takes one of a cron line"),
        (["EVERY", 5, "TZ", "UTC", "QUEUE", "q", "BODY", "b"], "TZ goes with a cron line"),
        (["EVERY", 5, "QUEUE", "q"], "SCHEDULE SET needs QUEUE and BODY"),
        (["EVERY", 5, "BODY", "b"], "SCHEDULE SET needs QUEUE and BODY"),
        (["EVERY", 0, "QUEUE", "q", "BODY", "b"], "EVERY must be a number of seconds from 1 to 2147483647"),
        (["AT", 5, "QUEUE", "q", "BODY", "b"], "AT is over; allowed are unix times to come"),
        (
            ["* * * *", "QUEUE", "q", "BODY", "b"],
            "cron line '* * * *': wrong number of fields; allowed are five fields",
        ),
        (["* * * * *", "TZ", "Mars/North", "QUEUE", "q", "BODY", "b"], "unknown time zone 'Mars/North'; allowed are"),
        (["EVERY", 5, "QUEUE", "q", "BODY", "b", "TTL", 60, "DELAY", 50, "JITTER", 10], "DELAY and JITTER together"),
        (["EVERY", 5, "QUEUE", "q", "BODY", "b", "TTL", 60, "DELAY", 60], "The specified DELAY is greater than TTL"),
        (["EVERY", 5, "QUEUE", "q", "BODY", "b", "CATCHUP", 1_001], "CATCHUP must be a whole number from 0 to 1000"),
        (["EVERY", 5, "QUEUE", "q", "BODY", "b", "OVERLAP", "maybe"], "OVERLAP must be allow or skip"),
        (["EVERY", 5, "QUEUE", "q", "BODY", "b" * 60_000], "the schedule is too large; allowed are 60000 bytes"),
        (["EVERY", 5, "QUEUE", "q", "BODY", "b", "KEY", "k"], "unknown option 'KEY'; expected line, EVERY, AT, QUEUE"),
        (["0", "2", "*", "*", "*", "QUEUE", "q", "BODY", "b"], "a cron line is one word, in quotes"),
        (["EVERY", 5, "QUEUE", "q", "BODY", "b", "FOO"], "unknown option 'FOO'; expected line, EVERY, AT, QUEUE"),
        (["EVERY", 5, "QUEUE", "q", "BODY", "b", "TTL"], "TTL without its value: allowed are above 0 to 2147483647"),
        (["EVERY", 5, "QUEUE", "q", "BODY", "b", "QUEUE", "c"], "QUEUE is given twice; allowed is once"),
        (["QUEUE", "q", "BODY", "b", "0 2 * * *"], "unknown option '0 2 * * *'; expected line, EVERY, AT, QUEUE"),
        (["EVERY", 5, "0 2 * * *", "QUEUE", "q", "BODY", "b"], "unknown option '0 2 * * *'; expected line, EVERY"),
        (["bad"], "unknown option 'bad'; expected line, EVERY, AT, QUEUE"),
        (["EVERI", 5, "QUEUE", "q", "BODY", "b"], "unknown option 'EVERI'; expected line, EVERY, AT, QUEUE"),
        (["", "QUEUE", "q", "BODY", "b"], "unknown option ''; expected line, EVERY, AT, QUEUE"),
        (
            ["EVERY", 5, "QUEUE", "q", "BODY", "b", "HEADER", "schedule-name", "x"],
            "header 'schedule-name' is given twice",
        ),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused_with_what_is_allowed(
    server: Server, words: list[str | int], problem: str
) -> None:
    assert problem in server.refusal("SCHEDULE", "SET", "beat", *words)
    assert server("SCHEDULE", "LIST") == []


def test_a_schedule_for_a_log_is_refused_and_so_is_a_word_that_there_is_not(server: Server) -> None:
    server("QADD", "log", 1_000, "x")
    assert server.refusal("SCHEDULE", "SET", "beat", "EVERY", 5, "QUEUE", "log", "BODY", "b").startswith("WRONGTYPE")
    unknown = server.refusal("SCHEDULE", "SET", "beat", "* * * * *", "QUEUE", "q", "BODY", "b", "FOO")
    assert "unknown option 'FOO'; expected line, EVERY, AT, QUEUE, BODY, TZ, OVERLAP, CATCHUP, JITTER, " in unknown
    assert "TZ" not in server.refusal("SCHEDULE", "FOO")


@pytest.mark.parametrize(
    ("line", "meant"), [("@daily", "0 0 * * *"), ("@Hourly", "0 * * * *"), ("@weekly", "0 0 * * 0")]
)
def test_lines_have_names(server: Server, line: str, meant: str) -> None:
    assert server("SCHEDULE", "SET", "beat", line, "QUEUE", "q", "BODY", "b") == b"OK"
    assert told(server)["when"] == meant.encode()
    assert "wrong number of fields" in server.refusal("SCHEDULE", "SET", "boot", "@reboot", "QUEUE", "q", "BODY", "b")


def test_names_are_listed_in_order_and_by_pattern(server: Server) -> None:
    for name in ("b", "a", "ab"):
        every(server, 60, name=name)
    next_at = server.clock.wall() // 1_000 + 60
    assert [row[0] for row in server("SCHEDULE", "LIST")] == [b"a", b"ab", b"b"]
    assert server("SCHEDULE", "LIST", "a?") == [[b"ab", b"EVERY 60", b"q", b"active", next_at, 0, b"", b""]]
    assert "a schedule name has 1 to 255 bytes" in server.refusal("SCHEDULE", "GET", "n" * 256)


# What is told of the last runs.


def runs(server: Server, name: str = "beat") -> list[tuple[int, bytes, bytes]]:
    rows = told(server, name)["runs"]
    assert isinstance(rows, list)
    return [tuple(row) for row in rows]


def states(server: Server) -> list[str]:
    return [state.decode() for _, _, state in runs(server)]


def test_the_last_runs_are_told_with_what_became_of_their_jobs(server: Server) -> None:
    every(server, 10, "RETRY", 600, "TTL", 3_600)
    assert runs(server) == []
    job_ids = []
    for at in range(7):
        server.advance(10_000)
        assert runs(server)[0] == (server.clock.wall() // 1_000, told(server)["last-job"], b"queued")
        job_ids.append(runs(server)[0][1])
        # The first ones stay in the queue.
        if at >= 2:
            assert [row[1] for row in server.get(count=9)][-1] == job_ids[-1]
    assert len(set(job_ids)) == 7
    server("ACKJOB", job_ids[-1])
    server("NACK", job_ids[-2], "DEAD")
    server("CANCEL", job_ids[-3])
    server("NACK", job_ids[-3])
    server("NACK", job_ids[-4], "DELAY", 60)
    assert [job_id for _, job_id, _ in runs(server)] == job_ids[:1:-1]
    assert states(server) == ["acked", "dead", "cancelled", "delayed", "running"]
    assert server("SCHEDULE", "LIST")[0][5:] == [server.clock.wall() // 1_000, b"acked", b""]
    check(server)


def test_a_run_that_expired_was_deleted_or_is_not_known_any_more_is_told_as_that(server: Server) -> None:
    every(server, 100, "TTL", 60, "RETRY", 30)
    server.advance(100_000)
    server("DELJOB", runs(server)[0][1])
    server.advance(100_000)
    assert states(server) == ["queued", "deleted"]
    server.advance(61_000)
    assert states(server) == ["expired", "deleted"]
    server.state.custody.ended = Endings()
    assert states(server) == ["unknown", "unknown"]


def test_a_result_lets_a_run_be_known_for_longer(server: Server) -> None:
    every(server, 100, "RESULT", 86_400)
    server.advance(100_000)
    server("ACKJOB", server.get()[0][1], "RESULT", "42 pages")
    server.state.custody.ended = Endings()
    assert states(server) == ["acked"]


def test_an_instant_that_was_passed_over_is_told_as_skipped(server: Server) -> None:
    every(server, 10, "OVERLAP", "skip", "RETRY", 1_000)
    server.advance(20_000)
    assert runs(server)[0] == (server.clock.wall() // 1_000, b"", b"skipped")
    assert states(server) == ["skipped", "queued"]
    assert server.state.counters.instants_skipped == 1


def test_each_instant_that_was_passed_over_is_told_as_skipped_by_every_node(cluster: Cluster) -> None:
    first, (second, third) = first_of(cluster)
    every(second, 10, "OVERLAP", "skip", "RETRY", 1_000)
    cluster.advance(10_500)
    ((_, job_id, _),) = first.get()
    cluster.advance(60_000)
    for member in (first, second, third):
        assert states(member) == ["skipped"] * 5
        assert {row[1] for row in runs(member)} == {b""}
        assert told(member)["last-job"] == job_id
    first("ACKJOB", job_id)
    cluster.advance(10_000)
    for member in (first, second, third):
        assert states(member)[1:] == ["skipped"] * 4
        assert runs(member)[0][1] == told(member)["last-job"] != job_id
        check(member)


def test_instants_that_were_missed_are_told_as_that_before_and_after_a_later_one_fires(server: Server) -> None:
    every(server, 60, "CATCHUP", 0)
    server.advance(60_000)
    # The node stands still, or is away: its clock goes on.
    server.clock.advance(60_000 * 3 + 30_000)
    server.node.begin()
    assert states(server) == ["missed"] * 3 + ["queued"]
    assert server("SCHEDULE", "LIST")[0][5:] == [told(server)["last"], b"missed", b""]
    server.advance(30_000)
    assert states(server) == ["queued"] + ["missed"] * 3 + ["queued"]
    assert [row[1] == b"" for row in runs(server)] == [False, True, True, True, False]


def test_what_is_still_to_be_fired_is_not_missed(server: Server) -> None:
    every(server, 60, "CATCHUP", 2)
    server.clock.advance(60_000 * 4 + 30_000)
    server.node.schedules._hold_until = 0
    assert states(server) == ["missed", "missed"]
    server.node.begin()
    server("PAUSE", "q", "in")
    server.advance(10)
    assert states(server)[-2:] == ["missed", "missed"]
    server("PAUSE", "q", "none")
    server.advance(4_000)
    assert states(server) == ["queued", "queued", "missed", "missed"]


def test_instants_of_a_pause_are_told_as_paused_while_it_lasts_and_afterwards(cluster: Cluster) -> None:
    first, (second, third) = first_of(cluster)
    every(first, 10, "CATCHUP", 0)
    cluster.advance(11_000)
    second("SCHEDULE", "PAUSE", "beat")
    cluster.advance(21_000)
    assert all(states(member)[:-1] == ["paused"] * 2 for member in cluster)
    third("SCHEDULE", "RESUME", "beat")
    cluster.advance(100)
    assert all(states(member)[:-1] == ["paused"] * 2 for member in cluster)
    cluster.advance(8_000)
    for member in cluster:
        assert states(member)[1:3] == ["paused"] * 2
        assert runs(member)[0][1] == told(member)["last-job"] == runs(first)[0][1] != b""
        check(member)


def test_what_was_missed_before_a_pause_is_not_told_as_paused(server: Server) -> None:
    every(server, 10, "CATCHUP", 0)
    server("PAUSE", "q", "in")
    server.advance(12_000)
    server("SCHEDULE", "PAUSE", "beat")
    server.advance(10_000)
    assert states(server) == ["paused", "missed"]
    server("SCHEDULE", "RESUME", "beat")
    assert states(server) == ["paused", "missed"]
    assert told(server)["error"] == b"PAUSED Queue paused in input, try later"


def test_what_one_side_of_a_partition_fired_is_not_told_as_missed_by_the_other(cluster: Cluster) -> None:
    first, (second, third) = first_of(cluster)
    every(first, 60, "CATCHUP", 0, "TTL", 60, "RETRY", 30)
    cluster.advance(1_000)
    cluster.isolate(third)
    # It stands still, so that it fires nothing for three minutes.
    third.node.schedules._hold_until = third.state.now + 200_000
    cluster.advance(250_000)
    assert states(third)[1:] == ["missed"] * 3
    for member in cluster:
        member.state.custody.ended = Endings()
    cluster.heal(first, third)
    cluster.heal(second, third)
    cluster.advance(10_000)
    assert runs(third)[1:] == runs(first)[1:] == runs(second)[1:]
    assert all(job_id for _, job_id, _ in runs(third))


def test_an_instant_without_a_job_is_told_when_the_schedule_was_set_again(server: Server) -> None:
    every(server, 10, "OVERLAP", "skip")
    server.advance(20_000)
    at = server.clock.wall() // 1_000
    every(server, 60)
    assert runs(server) == [(at, b"", b"skipped")]


# What is told of refusals.


def refusal(server: Server) -> tuple[object, ...]:
    values = told(server)
    return values["error"], values["error-instant"], values["error-node"]


@pytest.mark.parametrize(
    ("options", "words", "error"),
    [
        ((), ("PAUSE", "q", "in"), "PAUSED Queue paused in input, try later"),
        (("MAXLEN", 1), ("ADDJOB", "q", "x", 0), "MAXLEN Queue is already longer"),
        (("REPLICATE", 5), (), "NOREPL "),
    ],
)
def test_why_an_instant_is_refused_is_told_by_every_node_until_it_is_fired(
    cluster: Cluster, options: tuple[str | int, ...], words: tuple[str | int, ...], error: str
) -> None:
    first, (second, _) = first_of(cluster)
    if words:
        for member in cluster:
            member(*words)
    every(second, 600, *options)
    assert refusal(second) == (b"", 0, b"")
    cluster.advance(600_500)
    for member in cluster:
        text, instant, node_id = refusal(member)
        assert isinstance(text, bytes)
        assert text.decode().startswith(error)
        assert instant == told(first)["set-at"] + 600
        assert node_id == first.state.node_id
        assert member("SCHEDULE", "LIST")[0][-1] == text
        assert told(member)["runs"] == []
        check(member)


def test_a_refusal_is_over_once_its_instant_is_fired_or_a_schedule_is_set_again(server: Server) -> None:
    every(server, 60)
    server("PAUSE", "q", "in", "REASON", "deploy\u00fc")
    server.advance(60_000)
    error = "PAUSED Queue paused in input, try later (deploy\u00fc; by address client)"
    assert refusal(server)[:2] == (error.encode(), server.clock.wall() // 1_000)
    server("PAUSE", "q", "none")
    server.advance(5_000)
    assert states(server) == ["queued"]
    assert refusal(server) == (b"", 0, b"")
    server("PAUSE", "q", "in")
    server.advance(60_000)
    assert refusal(server)[0]
    every(server, 60)
    assert refusal(server) == (b"", 0, b"")


def test_a_refusal_says_later_why_an_instant_was_missed(server: Server) -> None:
    every(server, 60, "CATCHUP", 0)
    server("PAUSE", "q", "in")
    server.advance(75_000)
    assert states(server) == ["missed"]
    assert server("SCHEDULE", "LIST")[0][-1].startswith(b"PAUSED")
    server("PAUSE", "q", "none")
    server.advance(50_000)
    assert states(server) == ["queued", "missed"]
    assert refusal(server)[:2] == (b"PAUSED Queue paused in input, try later", runs(server)[1][0])
    assert server("SCHEDULE", "LIST")[0][-1] == b"", "that is over"
    server.advance(600_000)
    assert refusal(server) == (b"", 0, b""), "it is none of the last instants any more"


def test_a_refusal_is_noted_once_for_an_instant_and_seldom_for_a_fast_schedule(server: Server) -> None:
    every(server, 600)
    server("PAUSE", "q", "in")
    server.journal.clear()
    server.advance(1_100_000)
    assert len(server.journal) == 1
    every(server, 1)
    server.journal.clear()
    server.advance(100_000)
    assert 5 <= len(server.journal) <= 11


def test_the_same_refusal_is_noted_at_once_when_an_instant_was_fired_since(server: Server) -> None:
    every(server, 3, "CATCHUP", 0)
    server("PAUSE", "q", "in")
    server.advance(3_000)
    server("PAUSE", "q", "none")
    server.advance(2_500)
    assert (states(server), refusal(server)[0]) == (["queued"], b"")
    server("PAUSE", "q", "in")
    server.advance(1_000)
    assert refusal(server)[:2] == (b"PAUSED Queue paused in input, try later", told(server)["set-at"] + 6)


def test_a_node_without_memory_or_journal_says_so(server: Server) -> None:
    every(server, 60)
    server.state.durability.read_only = True
    server.advance(60_000)
    assert refusal(server)[0] == b"MISCONF Errors writing to the AOF file"
    server.state.durability.read_only = False
    server.state.memory.low_mark = -1
    server.advance(60_000)
    assert refusal(server)[0] == b"OOM the memory of this node is low: it takes no jobs now"


def test_a_node_that_leaves_notes_no_refusal_since_others_fire(server: Server) -> None:
    every(server, 60)
    server("CLUSTER", "LEAVING", "yes")
    server.advance(60_000)
    assert server.state.counters.firings_refused
    assert refusal(server) == (b"", 0, b"")


def test_a_schedule_that_is_forgotten_leaves_a_journal_that_can_be_read(server: Server) -> None:
    every(server, 60)
    server.advance(60_000)
    server("PAUSE", "q", "in")
    server.advance(60_000)
    server("SCHEDULE", "DEL", "beat")
    server.journal.clear()
    server.advance(FORGOTTEN_MS + 2 * SWEEP_MS)
    gone = [record for record in server.journal if record[0] == POLICY_RECORD]
    assert {record[2] for record in gone} >= {SCHEDULE_FIELD, SCHEDULE_FIRED_FIELD, SCHEDULE_REFUSED_FIELD}
    for record in gone:
        assert decode_record(encode_event(record, 0)) == record


def test_runs_begin_anew_when_a_schedule_is_set_and_its_last_job_is_known_until_then(server: Server) -> None:
    every(server, 10)
    server.advance(20_000)
    (_, last, _), _ = runs(server)
    at = server.clock.wall() // 1_000
    every(server, 60)
    assert runs(server) == [(at, last, b"queued")]
    server.advance(60_000)
    assert len(runs(server)) == 1
    assert runs(server)[0][1] != last


def test_each_holder_tells_the_runs_and_the_node_of_the_consumer_that_one_runs(cluster: Cluster) -> None:
    first, (second, third) = first_of(cluster)
    every(second, 60, "REPLICATE", 3, "RETRY", 600)
    cluster.advance(60_500)
    assert {runs(member)[0][:2] for member in cluster} == {runs(first)[0][:2]}
    assert states(first) == ["queued"]
    assert states(second) == states(third) == ["pending"]
    (row,) = first.get()
    assert states(first) == ["running"]
    cluster.advance(1_000)
    first("ACKJOB", row[1])
    cluster.advance(1_000)
    assert [states(member) for member in cluster] == [["acked"]] * 3


# What is counted.


def test_what_a_node_fires_misses_and_is_refused_is_counted(server: Server) -> None:
    counters = server.state.counters
    every(server, 10, "CATCHUP", 2)
    every(server, 3_600, name="other")
    server.advance(10_000)
    assert (counters.instants_fired, counters.instants_late, counters.firings_refused) == (1, 0, 0)
    assert server.node.schedules.figures == (2, 0, 0, 0)
    server("PAUSE", "q", "in")
    server.advance(60_000)
    assert counters.firings_refused > 1
    schedules, paused, refused, behind_ms = server.node.schedules.figures
    assert (schedules, paused, refused) == (2, 0, 1)
    assert behind_ms >= 10_000
    server("PAUSE", "q", "none")
    server.advance(60_000)
    # Six came in the pause: the last one, which is on time or is not, two of those before, and those since.
    assert counters.instants_fired + counters.instants_missed == 13
    assert counters.instants_late == 2
    assert counters.instants_missed in (3, 4)
    assert server.node.schedules.figures == (2, 0, 0, 0)
    server("SCHEDULE", "PAUSE", "beat")
    assert server.node.schedules.figures[:2] == (2, 1)
    server("SCHEDULE", "DEL", "beat")
    assert server.node.schedules.figures[:2] == (1, 0)


# Wall clocks that are wrong.


def test_a_clock_that_is_set_back_fires_no_instant_twice(server: Server) -> None:
    every(server, 10, "CATCHUP", 9)
    server.advance(60_000)
    server.clock.jump_wall(-45_000)
    server.node.begin()
    fired = server.state.counters.instants_fired
    assert fired == 6
    server.advance(54_000)
    assert server.state.counters.instants_fired == fired, "these instants are over"
    server.advance(7_000)
    assert server.state.counters.instants_fired == fired + 1
    assert len(server.get(count=99)) == fired + 1
    check(server)


def test_a_clock_that_is_set_forward_lets_what_it_left_out_be_fired_within_a_minute(server: Server) -> None:
    every(server, 100, "CATCHUP", 9)
    server.advance(10_000)
    server.clock.jump_wall(350_000)
    server.node.begin()
    server.advance(60_000)
    assert len(server.get(count=99)) == 4
    check(server)


def test_the_clock_that_is_ahead_fires_and_the_others_take_it_for_over(cluster: Cluster) -> None:
    first, (second, third) = first_of(cluster)
    every(first, 100)
    second.clock.jump_wall(30_000)
    second.node.begin()
    cluster.advance(70_000 + OTHERS_MS + 100)
    assert {name for name, _ in made(*cluster)} >= {second.name}
    assert len(ids(*cluster)) == 1
    assert told(first)["last"] == told(third)["last"] == told(second)["last"] != 0
    cluster.advance(60_000)
    assert len(ids(*cluster)) == 1


# Several nodes.


def test_one_node_fires_and_all_know(cluster: Cluster) -> None:
    first, (_, third) = first_of(cluster)
    every(third, 10)
    cluster.advance(35_000)
    assert len(ids(*cluster)) == 3
    assert {name for name, _ in made(first)} == {first.name}
    assert all(told(member)["last"] == told(first)["last"] for member in cluster)
    assert {row[1] for row in first.get(count=9)} == ids(first)
    for member in cluster:
        check(member)


def test_the_second_node_fires_what_the_first_one_does_not(cluster: Cluster) -> None:
    first, (second, _) = first_of(cluster)
    every(first, 10)
    # It can be heard, and does nothing.
    first.node.schedules._hold_until = first.state.now + DAY_MS
    cluster.advance(10_000 + OTHERS_MS - 10)
    assert not ids(*cluster)
    cluster.advance(200)
    assert ids(second)
    assert all(told(member)["last"] == told(second)["last"] != 0 for member in cluster)
    cluster.advance(5_000)
    assert len(ids(*cluster)) == 1


def test_both_sides_of_a_partition_make_the_same_job_and_it_is_done_once_in_effect(cluster: Cluster) -> None:
    first, (second, third) = first_of(cluster)
    every(first, 3_600, "RETRY", 600)
    cluster.isolate(third)
    cluster.advance(3_600_000 + 5_000)
    assert ids(first, second) == ids(third)
    (job_id,) = ids(third)
    # One side is done with it while the other one has yet to deliver it.
    assert first.get()[0][1] == job_id
    first("ACKJOB", job_id)
    cluster.advance(60_000)
    cluster.heal(first, third)
    cluster.heal(second, third)
    cluster.advance(200_000)
    assert all(member.get() == [] for member in cluster)
    cluster.advance(1_200_000)
    assert all(member.get() == [] for member in cluster)
    for member in cluster:
        check(member)


def test_a_job_that_both_sides_have_queued_is_in_one_queue_after_they_have_met(cluster: Cluster) -> None:
    first, (second, third) = first_of(cluster)
    every(first, 3_600, "RETRY", 60)
    cluster.isolate(third)
    cluster.advance(3_600_000 + 5_000)
    cluster.heal(first, third)
    cluster.heal(second, third)
    cluster.advance(300_000)
    rows = []
    for _ in range(5):
        rows += [row for member in cluster for row in member.get(count=9)]
        cluster.advance(1_000)
    assert len(rows) == 1
    third("ACKJOB", rows[0][1])
    cluster.advance(600_000)
    assert all(member.get() == [] for member in cluster)


def test_a_node_that_was_away_learns_what_is_over_before_it_fires(cluster: Cluster) -> None:
    first, (second, third) = first_of(cluster)
    every(first, 600, "CATCHUP", 5, "TTL", 120)
    cluster.advance(1_000)
    cluster.isolate(first)
    # It stands still, so that it fires nothing; jobs of the others are done and forgotten meanwhile.
    first.node.schedules._hold_until = first.state.now + 3_000_000
    cluster.advance(600_000)
    (row,) = second.get() or third.get()
    second("ACKJOB", row[1])
    cluster.advance(400_000)
    first.node.schedules._hold_until = 0
    first.node.schedules.start()
    cluster.heal(first, second)
    cluster.heal(first, third)
    cluster.advance(HOLD_MS + 1_000)
    assert told(first)["last"] == told(second)["last"] != 0
    assert not made(first)
    cluster.advance(100_000)
    assert all(member.get() == [] for member in cluster)


def test_a_node_that_starts_lets_others_tell_first(cluster: Cluster) -> None:
    first, _ = first_of(cluster)
    every(first, 2, "CATCHUP", 9)
    first.node.schedules.start()
    cluster.advance(HOLD_MS - 10)
    assert not cluster.sent(REPLJOB, first)
    assert cluster.sent(REPLJOB), "the second node has fired meanwhile"
    cluster.advance(5_000)
    assert cluster.sent(REPLJOB, first)
    assert len(ids(*cluster)) == (HOLD_MS - 10 + 5_000) // 2_000


def test_with_overlap_skip_other_nodes_are_asked_for_the_last_job() -> None:
    cluster = agreeing(Cluster(3))
    first, _ = first_of(cluster)
    every(first, 30, "OVERLAP", "skip", "REPLICATE", 1, "RETRY", 1_000)
    cluster.advance(30_000)
    (job_id,) = ids(*cluster)
    # The job moves to another node: the one that made it does not have it any more.
    first("DELJOB", job_id)
    assert not first.holds(job_id)
    cluster.advance(31_000)
    assert len(ids(*cluster)) == 2, "nobody knows it: it is over"


def test_a_job_that_is_delivered_at_most_once_is_made_by_the_first_node_alone(cluster: Cluster) -> None:
    first, (second, third) = first_of(cluster)
    every(second, 60, "RETRY", 0, "REPLICATE", 1)
    cluster.advance(61_000)
    assert len(made(first)) == 1
    assert not made(second, third)
    cluster.isolate(first)
    cluster.advance(300_000)
    assert not made(second, third), "it may be fired on the other side"


def test_a_schedule_that_is_deleted_elsewhere_fires_no_more(cluster: Cluster) -> None:
    first, (second, _) = first_of(cluster)
    every(first, 10)
    second("SCHEDULE", "DEL", "beat")
    cluster.advance(60_000)
    assert not ids(*cluster)
    assert all(not member.node.schedules._plans for member in cluster)


def test_a_schedule_may_be_deleted_while_its_job_waits_for_copies(cluster: Cluster) -> None:
    first, (second, third) = first_of(cluster)
    every(first, 10)
    for other in (second, third):
        cluster.hold(other, first)
    cluster.advance(10_500)
    assert first.node.replication.pending
    first("SCHEDULE", "DEL", "beat")
    for other in (second, third):
        cluster.release(other, first)
    cluster.advance(3_000)
    assert not first.node.replication.pending
    assert not first.node.schedules._plans
    assert len(first.get()) == 1, "the job stays"


def test_a_job_that_gets_no_copies_in_time_is_made_all_the_same_and_never_taken_back(cluster: Cluster) -> None:
    first, (second, third) = first_of(cluster)
    every(first, 60)
    for other in (second, third):
        cluster.hold(other, first)
    cluster.advance(60_000 + 2_500)
    assert told(first)["last-job"] in ids(first)
    assert not cluster.sent(DELJOB)
    assert len(first.get()) == 1


def test_an_instant_far_ahead_is_not_believed(cluster: Cluster) -> None:
    first, (second, _) = first_of(cluster)
    every(first, 10)
    register = first.state.queues.policies.registers[b"beat", SCHEDULE_FIELD]
    ahead = register._replace(counter=first.state.wall + 3 * DAY_MS, value=told_last(b""))
    second.say(first, (POLICY, 9, ((b"beat", SCHEDULE_FIRED_FIELD, ahead),)))
    cluster.advance(10_500)
    assert made(first)


def told_last(job_id: bytes) -> object:
    return LastFiring(job_id)


def test_what_is_journaled_is_first_the_job_and_then_that_its_instant_is_over(server: Server) -> None:
    every(server, 10)
    server.journal.clear()
    server.advance(10_000)
    assert [record[0] for record in server.journal] == [JOB_ADDED, POLICY_RECORD]
