"""Results, and waiting for jobs to be over, on one node and on several."""

import pytest

from disqued.commands.table import BLOCKED
from disqued.core.model.endings import UNDER_WAY_MS
from disqued.core.model.fate import MARK, PROGRESS_MAX
from disqued.core.model.job import ACKED
from disqued.core.model.messages import (
    DELJOB,
    ENDED_CANCELLED,
    EXPIRED,
    FATE,
    GOTACK,
    OUTCOME,
    SETACK,
    WATCH,
    YOURJOBS,
)
from disqued.core.model.outbox import GONE_EXPIRED, JOB_ADDED
from disqued.core.recovery import Recovery, walk
from disqued.core.work.acks import RESULT_BYTES
from disqued.core.work.outcomes import ASKED_EVERY_MS, LAST_TRY_MS, TRIES_ASKED_MS, WATCHED_MS
from disqued.wire.jobdump import decode_record, encode_job
from tests.cluster_fixtures import Cluster, Flight, Member
from tests.core_fixtures import UNKNOWN_ID, Server, check


@pytest.fixture(name="server")
def make_server() -> Server:
    return Server()


def held(cluster: Cluster, *options: str | int) -> bytes:
    """A job that the first three nodes hold, queued on a."""
    a = cluster.members[0]
    a("ADDJOB", "q", "body", 0, "REPLICATE", 3, "RETRY", 60, *options)
    (job_id,) = a.answers.pop("client")
    return bytes(job_id)


def stranger_to(cluster: Cluster, job_id: bytes) -> Member:
    """A node that does not hold a job."""
    return next(member for member in cluster if not member.holds(job_id))


def result_on(member: Member, job_id: bytes) -> object:
    """What SHOW says of the result of a job; None when the node does not know the job."""
    shown = member.show(job_id)
    return None if shown is None else (shown["state"], shown.get("result"), shown["body"])


def row(server: Server, job_id: bytes) -> list[object]:
    """What WAITJOB answers at once, without the id."""
    ((answered, *values),) = server("WAITJOB", 1, job_id, client="late")
    assert answered == job_id
    return list(values)


# One node.


def test_a_result_is_kept_for_its_time(server: Server) -> None:
    job_id = server.add("q", "body", "RESULT", 10)
    server.get("q")
    assert server("ACKJOB", job_id, "RESULT", "42") == 1
    shown = server.show(job_id)
    assert shown is not None
    assert (shown["state"], shown["result"], shown["body"]) == (b"acked", b"42", None)
    assert shown["next-requeue-within"] is None
    assert row(server, job_id) == [b"acked", b"42", 1, b"acknowledged"]
    check(server)
    server.advance(9_999)
    assert row(server, job_id)[0] == b"acked"
    server.advance(2)
    assert server.show(job_id) is None
    check(server)


def test_an_outcome_outlasts_the_time_to_live_of_its_job(server: Server) -> None:
    job_id = server.add("q", "body", "RESULT", 100, "TTL", 5, "RETRY", 1)
    server("ACKJOB", job_id, "RESULT", "42")
    server.advance(99_000)
    assert row(server, job_id)[:2] == [b"acked", b"42"]


def test_the_result_of_an_acknowledgement_without_one_is_empty(server: Server) -> None:
    job_id = server.add("q", "body", "RESULT", 10)
    server("ACKJOB", job_id)
    assert row(server, job_id)[:2] == [b"acked", b""]


def test_the_first_result_counts(server: Server) -> None:
    job_id = server.add("q", "body", "RESULT", 10)
    assert [server("ACKJOB", job_id, "RESULT", value) for value in ("1", "2")] == [1, 0]
    assert server("ACKJOB", job_id) == 0
    assert row(server, job_id)[1] == b"1"


def test_a_result_goes_with_one_job_and_has_a_limit(server: Server) -> None:
    one, other = server.add("q", "1", "RESULT", 10), server.add("q", "2", "RESULT", 10)
    assert server.refusal("ACKJOB", one, other, "RESULT", "x") == "ERR RESULT goes with one job id"
    assert server.refusal("ACKJOB", "RESULT", "x") == "ERR RESULT goes with one job id"
    assert server.refusal("NACK", one, "DELAY", "-1.5") == "ERR DELAY time must be a number of seconds, 0 or more"
    too_long = "x" * (RESULT_BYTES + 1)
    assert server.refusal("ACKJOB", one, "RESULT", too_long) == (
        f"ERR the result is too long; allowed are {RESULT_BYTES} bytes (result-max)"
    )
    assert server.show(one)["state"] == b"queued"  # type: ignore[index]
    server.node.acks.result_max = RESULT_BYTES + 1
    assert server("ACKJOB", one, "RESULT", too_long) == 1


def test_outcomes_are_counted_and_are_never_evicted(server: Server) -> None:
    kept = server.add("q", "body", "RESULT", 10)
    before = server.state.memory.used
    server("ACKJOB", kept, "RESULT", "x" * 10_000)
    assert server.state.memory.used > before + 9_000
    server.state.memory.set_limit(server.state.memory.used)
    server.node.make_room()
    assert server.show(kept) is not None
    assert not server.state.custody.evictable
    check(server)


def test_waiting_ends_with_the_acknowledgement_and_has_the_result(server: Server) -> None:
    job_id = server.add("q", "body")
    server.get("q")
    assert server("WAITJOB", 0, job_id, client="anna") is BLOCKED
    assert server("ACKJOB", job_id, "RESULT", "42") == 1
    server.advance(1)
    assert server.answers["anna"] == [[[job_id, b"acked", b"42", 1, b"acknowledged"]]]
    assert server("WAITJOB", 0, job_id) == [[job_id, b"unknown", None, 0, b"no node that answered knows it"]]
    assert not server.state.custody.watched
    assert not server.state.waiting.waits


def test_who_waits_hears_of_an_end_without_result(server: Server) -> None:
    job_id = server.add("q", "body")
    server.get()
    server("WAITJOB", 0, job_id, client="anna")
    server("ACKJOB", job_id)
    server.advance(1)
    assert server.answers["anna"] == [[[job_id, b"acked", None, 1, b"acknowledged"]]]


@pytest.mark.parametrize("result", [(), ("RESULT", 60)])
@pytest.mark.parametrize(
    ("steps", "tries"),
    [
        ((), 0), (("get",), 1), (("get", "NACK"), 1), (("get", "retry"), 1), (("get", "NACK", "get"), 2),
        (("DEQUEUE",), 0), (("get", "NACK DELAY 60"), 1), (("get", "NACK UNTRIED"), 0), (("get", "NACK DEAD"), 1),
        (("get", "NACK", "get", "NACK"), 2), (("get", "NACK", "get", "NACK", "redrive"), 2),
        (("get", "NACK", "get", "NACK", "redrive", "get"), 3),
    ],
)  # fmt: skip
def test_the_tries_of_an_outcome_are_the_deliveries_that_happened(
    server: Server, result: tuple[str | int, ...], steps: tuple[str, ...], tries: int
) -> None:
    job_id = server.add("q", "body", "RETRY", 5, "MAXTRIES", 2, *result)
    for step in steps:
        if step == "get":
            assert server.get()
        elif step == "retry":
            server.advance(5_000)
        elif step == "redrive":
            server("REDRIVE", "q", client="rosa")
            server.advance(10)
        else:
            word, *options = step.split()
            assert server(word, job_id, *options) == 1
    server("WAITJOB", 0, job_id, client="anna")
    server.answers.pop("anna", None)
    assert server("ACKJOB", job_id) == 1
    if result:
        assert row(server, job_id)[2] == tries


@pytest.mark.parametrize("waits", ["before", "after", "elsewhere"])
def test_a_job_of_which_somebody_waits_for_the_result_was_cancelled_when_it_is_purged(waits: str) -> None:
    cluster = Cluster(4)
    a = cluster.members[0]
    job_id = held(cluster, "RESULT", 60)
    asked = stranger_to(cluster, job_id) if waits == "elsewhere" else cluster.members[1]
    if waits == "before":
        asked("WAITJOB", 0, job_id, client="anna")
    a("QPURGE", "q", client="rosa")
    cluster.advance(100)
    assert a.answers["rosa"] == [1]
    if waits == "before":
        (rows,) = asked.answers["anna"]
    else:
        rows = asked("WAITJOB", 1_000, job_id, client="anna")
        if rows is BLOCKED:
            cluster.advance(10)
            (rows,) = asked.answers["anna"]
    assert rows == [[job_id, b"cancelled", None, 0, b"cancelled"]]


def test_who_waits_for_a_job_without_terms_hears_that_it_was_purged(server: Server) -> None:
    job_id, other = server.add("q", "body"), server.add("q", "body")
    server("WAITJOB", 0, job_id, client="anna")
    server("QPURGE", "q", client="rosa")
    server.advance(10)
    assert server.answers["anna"] == [[[job_id, b"cancelled", None, 0, b"cancelled"]]]
    assert row(server, other) == [b"cancelled", None, 0, b"cancelled"]


@pytest.mark.parametrize("how", ["NACK", "retry"])
def test_all_nodes_tell_the_tries_of_a_job_that_was_cancelled_with_a_consumer(how: str) -> None:
    cluster = Cluster(3)
    a, _, c = cluster
    job_id = held(cluster, "RESULT", 60)
    assert a.get()
    c("CANCEL", job_id, client="rosa")
    cluster.advance(100)
    if how == "NACK":
        a("NACK", job_id)
    cluster.advance(100_000 if how == "retry" else 100)
    for member in cluster:
        rows = member("WAITJOB", 1, job_id, client="anna")
        assert rows == [[job_id, b"cancelled", None, 1, b"cancelled"]], member.name


def test_all_nodes_tell_that_a_job_was_acknowledged_before_anybody_had_it() -> None:
    cluster = Cluster(3)
    a = cluster.members[0]
    job_id = held(cluster, "RESULT", 60)
    assert a("ACKJOB", job_id) == 1
    cluster.advance(100)
    for member in cluster:
        assert member("WAITJOB", 1, job_id, client="anna") == [[job_id, b"acked", b"", 0, b"acknowledged"]]


def test_who_waits_hears_of_the_end_of_the_time_to_live(server: Server) -> None:
    job_id = server.add("q", "body", "TTL", 5, "RETRY", 1)
    server("WAITJOB", 0, job_id, client="anna")
    server.advance(5_002)
    assert server.answers["anna"] == [[[job_id, b"expired", None, 0, b"its time to live is over"]]]


@pytest.mark.parametrize(
    ("options", "words", "state", "reason"),
    [
        (("TTL", 5, "RETRY", 1), (), b"unknown", b"it has ended: its time to live was over"),
        (
            ("TTL", 5, "RETRY", 1, "KEEPDEAD", 1), ("NACK", "DEAD"), b"unknown",
            b"it has ended: it was dead until its time was over",
        ),
        ((), ("CANCEL",), b"cancelled", b"cancelled"),
        ((), ("DELJOB",), b"unknown", b"no node that answered has it any more"),
    ],
)  # fmt: skip
def test_later_calls_learn_how_a_job_ended_while_that_is_remembered(
    server: Server, options: tuple[str | int, ...], words: tuple[str, ...], state: bytes, reason: bytes
) -> None:
    job_id = server.add("q", "body", *options)
    if "NACK" in words:
        server.get("q")
    if words:
        server(words[0], job_id, *words[1:])
    server.advance(7_000)
    assert server.show(job_id) is None
    assert row(server, job_id) == [state, None, int("NACK" in words), reason]
    server.node.flush()
    assert row(server, job_id) == [b"unknown", None, 0, b"no node that answered knows it"]


@pytest.mark.parametrize("on_time", [False, True])
@pytest.mark.parametrize("delay", [(), ("DELAY", 50)])
def test_an_end_in_the_tick_of_the_next_question_is_heard(
    server: Server, delay: tuple[str | int, ...], on_time: bool
) -> None:
    job_id = server.add("q", "body", "TTL", ASKED_EVERY_MS // 1_000)
    server.get("q")
    if delay:
        server("NACK", job_id, *delay)
    server("WAITJOB", ASKED_EVERY_MS + 3 if on_time else 0, job_id, client="anna")
    server.clock.advance(ASKED_EVERY_MS + 3)
    server.tick()
    server.advance(1)
    assert server.answers["anna"] == [[[job_id, b"expired", None, 1, b"its time to live is over"]]]


def test_a_question_in_the_step_of_an_end_is_answered_with_the_end() -> None:
    cluster = Cluster(4)
    job_id = held(cluster, "TTL", 70)
    a, d = cluster.members[0], stranger_to(cluster, job_id)
    d("WAITJOB", 0, job_id, client="anna")
    cluster.advance(1)
    a.node.begin()
    a.state.forget(a.job(job_id), GONE_EXPIRED)
    a.hear(Flight(d, a, (WATCH, 7, (job_id,)), (WATCH, 7, (job_id,))))
    assert next(outcome.state for flight in cluster.sent(OUTCOME, a, d)[-2:] for outcome in flight.data[2]) == EXPIRED


@pytest.mark.parametrize("terms", [(), ("MAXTRIES", 9)])
def test_only_deliveries_are_tries(server: Server, terms: tuple[str | int, ...]) -> None:
    job_id = server.add("q", "body", "RETRY", 5, *terms)
    for deliveries, give_back in enumerate([("NACK",), ("NACK", "DELAY", 3), ("NACK", "REASON", "x"), ()]):
        assert pending(server, job_id) == deliveries
        assert server.get("q")
        assert pending(server, job_id) == deliveries + 1
        if give_back:
            word, *options = give_back
            server(word, job_id, *options)
            assert pending(server, job_id) == deliveries + 1
        server.advance(5_000)
        assert pending(server, job_id) == deliveries + 1
    assert server.get("q")
    assert server("NACK", job_id, "DEAD") == 1
    assert row(server, job_id) == [b"dead", None, 5, b"it failed too often, or was buried, without a reason"]
    server("REDRIVE", "q", client="rosa")
    server.advance(10)
    assert pending(server, job_id) == 5
    assert server.get("q")
    assert pending(server, job_id) == 6


def pending(server: Server, job_id: bytes) -> object:
    """The tries that WAITJOB tells of a job that is not over."""
    (found,) = waited(server, job_id, 1)
    assert found[1] == b"pending"
    return found[3]


def waited(server: Server, job_id: bytes, timeout: int) -> list[list[object]]:
    assert server("WAITJOB", timeout, job_id, client="late") is BLOCKED
    server.advance(timeout)
    (rows,) = server.answers.pop("late")
    return list(rows)


@pytest.mark.parametrize("kept", [(), ("RESULT", 60)])
@pytest.mark.parametrize(
    ("end", "given_back"),
    [("CANCEL", False), ("CANCEL", True), ("ACKJOB", False), ("TTL", False), ("TTL", True)],
)
def test_one_delivery_is_one_try_however_it_ends(
    server: Server, end: str, kept: tuple[str | int, ...], given_back: bool
) -> None:
    job_id = server.add("q", "body", "TTL", 20, "RETRY", 15, *kept)
    server.get("q")
    if given_back:
        server("NACK", job_id)
    server("WAITJOB", 0, job_id, client="anna")
    if end != "TTL":
        server(end, job_id)
    server.advance(20_000)
    ((found,),) = server.answers["anna"]
    assert found[3] == 1
    if kept and end != "TTL":
        assert row(server, job_id)[:1] + row(server, job_id)[2:3] == [found[1], 1]


def test_waiting_ends_in_time_and_says_what_is_pending(server: Server) -> None:
    one, other = server.add("q", "1", "RESULT", 10), server.add("q", "2")
    server("ACKJOB", one, "RESULT", "done")
    server("WAITJOB", 100, other, one, client="anna")
    server.advance(99)
    assert server.answers["anna"] == []
    server.advance(2)
    (rows,) = server.answers["anna"]
    assert [found[:3] for found in rows] == [[other, b"pending", None], [one, b"acked", b"done"]]


def test_a_job_that_is_cancelled_while_a_consumer_has_it_is_pending_and_says_so(server: Server) -> None:
    job_id = server.add("q", "body", "RETRY", 100)
    server.get("q")
    server("WAITJOB", 10, job_id, client="anna")
    server.advance(10)
    server("CANCEL", job_id)
    server("WAITJOB", 10, job_id, client="anna")
    server.advance(10)
    assert [rows[0][1:] for rows in server.answers["anna"]] == [
        [b"pending", None, 1, b""], [b"pending", None, 1, b"cancelling"],
    ]  # fmt: skip


def test_any_waits_for_the_first(server: Server) -> None:
    one, other = server.add("q", "1"), server.add("q", "2")
    server("WAITJOB", 0, "ANY", one, other, client="anna")
    server("ACKJOB", other, "RESULT", "x")
    server.advance(1)
    assert server.answers["anna"] == [[[other, b"acked", b"x", 0, b"acknowledged"]]]
    assert server("WAITJOB", 0, "ANY", one, UNKNOWN_ID)[0][0] == UNKNOWN_ID


def test_a_job_that_is_hidden_from_a_client_stays_unknown_to_it_whoever_else_waits(server: Server) -> None:
    own, secret = server.add("q", "1"), server.add("q", "2")
    server.node.begin("anna")
    waited = server.node.outcomes.wait(
        "anna", 0, [own, secret], answers_any=False, with_progress=False, hidden=frozenset([secret])
    )  # fmt: skip
    assert waited is None
    server("WAITJOB", 0, secret, client="bob")
    server("ACKJOB", secret, "RESULT", "password")
    server("ACKJOB", own, "RESULT", "x")
    server.advance(1)
    assert server.answers["bob"][0][0][1:3] == [b"acked", b"password"]
    assert server.answers["anna"] == [
        [[own, b"acked", b"x", 0, b"acknowledged"], [secret, b"unknown", None, 0, b"no node that answered knows it"]]
    ]


def test_each_id_has_a_row_though_it_is_named_twice(server: Server) -> None:
    job_id = server.add("q", "1", "RESULT", 5)
    server("WAITJOB", 0, job_id, job_id, client="anna")
    server("ACKJOB", job_id)
    server.advance(1)
    assert [found[0] for found in server.answers["anna"][0]] == [job_id, job_id]


def test_no_more_than_a_thousand_jobs_are_waited_for(server: Server) -> None:
    assert len(server("WAITJOB", 0, *[UNKNOWN_ID] * 1_000)) == 1_000
    assert server.refusal("WAITJOB", 0, *[UNKNOWN_ID] * 1_001) == "ERR too many jobs to wait for; allowed are 1000"
    event = server("QADD", "log", 100, "event")
    assert server.refusal("WAITJOB", 0, event).startswith("WRONGTYPE")


def test_nothing_is_left_of_a_client_that_goes(server: Server) -> None:
    job_id = server.add()
    server("WAITJOB", 0, job_id, client="anna")
    server.gone("anna")
    assert not server.state.custody.watched
    server("ACKJOB", job_id)
    server.advance(1)
    assert server.answers["anna"] == []


def test_a_flush_answers_those_who_wait(server: Server) -> None:
    job_id = server.add()
    server("WAITJOB", 0, job_id, client="anna")
    server("DEBUG", "FLUSHALL")
    assert server.answers["anna"] == [[[job_id, b"pending", None, 0, b""]]]
    assert not server.state.custody.watched


def restarted(server: Server, *, crashed: bool) -> Server:
    """Another node that reads what a journal would have of this one."""
    other = Server()
    other.clock.advance(1)
    other.node.begin()
    offset = server.state.wall - server.state.now
    recovery = Recovery(other.state, restores_queues=not crashed)
    for record in walk(server.state):
        if record is not None and record[0] == JOB_ADDED:
            recovery.apply(decode_record(encode_job(record[1], offset)))  # type: ignore[arg-type]
    recovery.finish()
    return other


@pytest.mark.parametrize("crashed", [True, False])
def test_an_outcome_survives_a_restart_for_the_rest_of_its_time(server: Server, crashed: bool) -> None:
    job_id = server.add("q", "body", "RESULT", 10, "TTL", 1_000)
    server("ACKJOB", job_id, "RESULT", "42")
    other = restarted(server, crashed=crashed)
    other.advance(8_000)
    assert row(other, job_id)[:2] == [b"acked", b"42"]
    assert not other.state.custody.evictable
    other.advance(3_000)
    assert other.show(job_id) is None


# Progress.


def test_waiting_for_progress_ends_when_it_changes(server: Server) -> None:
    job_id = server.add()
    server.get("q")
    assert server("WORKING", job_id, "PROGRESS", "10 %") == 300
    shown = server.show(job_id)
    assert shown is not None
    assert shown["progress"] == b"10 %"
    server("WAITJOB", 0, "PROGRESS", job_id, client="anna")
    server("WAITJOB", 0, job_id, client="bob")
    server("WORKING", job_id, "PROGRESS", "20 %")
    server.advance(1)
    assert server.answers["anna"] == [[[job_id, b"pending", b"20 %", 1, b""]]]
    assert server.answers["bob"] == []
    too_long = "x" * (PROGRESS_MAX + 1)
    assert server.refusal("WORKING", job_id, "PROGRESS", too_long) == "ERR PROGRESS must be at most 1024 bytes"


def test_the_later_of_two_values_of_a_millisecond_counts(server: Server) -> None:
    job_id = server.add()
    for value in ("9", "10", "1"):
        server("WORKING", job_id, "PROGRESS", value)
    shown = server.show(job_id)
    assert shown is not None
    assert shown["progress"] == b"1"


def test_a_progress_is_told_once_a_second_and_journaled_with_the_next_record() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    job_id = held(cluster)
    a.get("q")
    journaled = len(a.journal), len(b.journal)
    cluster.flights.clear()
    for at in range(20):
        a("WORKING", job_id, "PROGRESS", str(at))
        cluster.advance(100)
    assert len(cluster.sent(FATE, a, b)) in (2, 3)
    cluster.advance(1_000)
    assert b.show(job_id)["progress"] == b"19"  # type: ignore[index]
    assert (len(a.journal), len(b.journal)) == journaled
    cluster.advance(3_000)
    assert a.node.progress._told == {}


# Several nodes.


def tries_told(member: Member, job_id: bytes) -> int:
    """The tries in the one row that the client of a node was answered."""
    ((answered, state, _, tries, _),) = member.answers["client"].pop()  # type: ignore[misc]
    assert (answered, state) == (job_id, b"pending")
    return int(tries)


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("timeout_ms", [TRIES_ASKED_MS // 2, 2_000, 2 * ASKED_EVERY_MS + 1])
def test_a_wait_whose_time_is_over_tells_the_tries_of_the_holder_that_has_the_consumer(
    place: int, timeout_ms: int
) -> None:
    cluster = Cluster(4)
    a = cluster.members[0]
    job_id = held(cluster)
    asked = [member for member in cluster if member.holds(job_id)] + [stranger_to(cluster, job_id)]
    if timeout_ms > TRIES_ASKED_MS:
        a.get("q")
        a("NACK", job_id)
        cluster.settle()
    asked[place]("WAITJOB", timeout_ms, job_id)
    a.get("q")
    cluster.advance(timeout_ms)
    if timeout_ms > TRIES_ASKED_MS:
        assert tries_told(asked[place], job_id) == 2
    else:
        # They were asked as the wait began, and had not handed it out.
        assert tries_told(asked[place], job_id) == (asked[place] is a)
        asked[place]("WAITJOB", timeout_ms, job_id)
        cluster.advance(timeout_ms)
        assert tries_told(asked[place], job_id) == 1


def test_a_holder_asks_nobody_while_a_wait_has_time_left() -> None:
    cluster = Cluster(3)
    job_id = held(cluster)
    b = cluster.members[1]
    b("WAITJOB", 4_000, job_id)
    cluster.advance(4_000 - TRIES_ASKED_MS - 1)
    assert not cluster.sent(WATCH)
    cluster.advance(1)
    assert len(cluster.sent(WATCH)) == 2
    cluster.advance(TRIES_ASKED_MS)
    assert tries_told(b, job_id) == 0
    assert len(cluster.sent(WATCH)) == 2


def test_a_holder_tells_what_it_knows_when_the_others_do_not_answer() -> None:
    cluster = Cluster(3)
    job_id = held(cluster)
    a, b, _ = cluster
    a.get("q")
    cluster.isolate(b)
    b("WAITJOB", 1_000, job_id)
    cluster.advance(1_000)
    assert tries_told(b, job_id) == 0


@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_every_holder_keeps_the_result_wherever_the_job_is_acknowledged(place: int) -> None:
    cluster = Cluster(4)
    job_id = held(cluster, "RESULT", 100)
    cluster.members[place]("ACKJOB", job_id, "RESULT", "42")
    holders = [member for member in cluster if member.holds(job_id)]
    assert len(holders) >= 3
    cluster.advance(30_000)
    assert cluster.sent(DELJOB) == []
    held_by = [member for member in cluster if member.holds(job_id)]
    assert len(held_by) == 3
    assert [result_on(member, job_id) for member in held_by] == [(b"acked", b"42", None)] * 3
    assert all(not member.state.custody.acked for member in cluster)
    asked = len(cluster.sent(SETACK))
    cluster.advance(60_000)
    assert len(cluster.sent(SETACK)) == asked
    for member in held_by:
        assert row(member, job_id)[:2] == [b"acked", b"42"]
    cluster.advance(20_000)
    assert not any(member.holds(job_id) for member in cluster)


@pytest.mark.parametrize("place", [0, 3])
def test_a_plain_acknowledgement_of_a_job_that_keeps_results_has_an_empty_one(place: int) -> None:
    cluster = Cluster(4)
    job_id = held(cluster, "RESULT", 100)
    cluster.members[place]("ACKJOB", job_id)
    cluster.advance(10_000)
    assert [result_on(member, job_id) for member in cluster].count((b"acked", b"", None)) == 3


@pytest.mark.parametrize("place", [0, 3])
@pytest.mark.parametrize("kind", [FATE, SETACK, GOTACK])
def test_a_lost_message_costs_no_result(place: int, kind: int) -> None:
    cluster = Cluster(4)
    job_id = held(cluster, "RESULT", 100)
    lost = {member.id for member in cluster}

    def lose(flight: object) -> bool:
        if flight.kind == kind and flight.receiver.id in lost:  # type: ignore[attr-defined]
            lost.discard(flight.receiver.id)  # type: ignore[attr-defined]
            return True
        return False

    cluster.lose = lose  # type: ignore[assignment]
    cluster.members[place]("ACKJOB", job_id, "RESULT", "42")
    cluster.advance(30_000)
    assert cluster.lost
    assert [result_on(member, job_id) for member in cluster].count((b"acked", b"42", None)) == 3
    assert all(not member.state.custody.acked for member in cluster)


def test_of_two_results_of_two_sides_all_keep_the_first() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = held(cluster, "RESULT", 1_000)
    cluster.isolate(c)
    c("ACKJOB", job_id, "RESULT", "of c")
    a("ACKJOB", job_id, "RESULT", "of a")
    cluster.heal(a, c)
    cluster.heal(b, c)
    cluster.advance(10_000)
    # By the wall clock c is behind.
    assert [result_on(member, job_id) for member in cluster] == [(b"acked", b"of c", None)] * 3
    for member in cluster:
        assert member.show(job_id)["rival-results"] == 1  # type: ignore[index]
        assert row(member, job_id)[3] == b"acknowledged more than once, with different results; the first one counts"


def test_an_unheard_acknowledgement_outlasts_a_short_result() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = held(cluster, "RESULT", 1)
    cluster.isolate(c)
    a("ACKJOB", job_id, "RESULT", "x")
    cluster.advance(50_000)
    assert a.holds(job_id)
    cluster.heal(a, c)
    cluster.heal(b, c)
    cluster.advance(30_000)
    assert not any(member.holds(job_id) for member in cluster)
    assert c.get("q") == []


def test_waiting_on_a_node_that_does_not_hold_the_job() -> None:
    cluster = Cluster(5)
    job_id = held(cluster)
    stranger = stranger_to(cluster, job_id)
    *_, c = [member for member in cluster if member.holds(job_id)]
    assert stranger("WAITJOB", 0, job_id, client="anna") is BLOCKED
    cluster.advance(1_000)
    c("ACKJOB", job_id, "RESULT", "42")
    cluster.advance(10)
    assert stranger.answers["anna"] == [[[job_id, b"acked", b"42", 1, b"acknowledged"]]]
    assert not stranger.state.custody.watched
    cluster.advance(60_000)
    stranger("WAITJOB", 0, job_id, client="late")
    cluster.advance(10)
    assert stranger.answers["late"] == [[[job_id, b"unknown", None, 0, b"it has ended, and its result was not kept"]]]
    assert all(not member.state.custody.watched for member in cluster)


def test_a_wait_outlives_lost_words_and_lost_links() -> None:
    cluster = Cluster(4)
    job_id = held(cluster, "RESULT", 1_000)
    d = stranger_to(cluster, job_id)
    holders = [member for member in cluster if member is not d]
    d("WAITJOB", 0, job_id, client="anna")
    cluster.isolate(d)
    holders[0]("ACKJOB", job_id, "RESULT", "42")
    cluster.advance(10_000)
    assert d.answers["anna"] == []
    cluster.heal(holders[1], d)
    cluster.advance(10)
    assert d.answers["anna"] == [[[job_id, b"acked", b"42", 0, b"acknowledged"]]]

    cluster = Cluster(4)
    other = held(cluster, "RESULT", 1_000)
    d = stranger_to(cluster, other)
    d("WAITJOB", 0, other, client="bob")
    cluster.lose = lambda flight: flight.kind == OUTCOME
    cluster.members[0]("ACKJOB", other, "RESULT", "43")
    cluster.advance(1_000)
    assert d.answers["bob"] == []
    cluster.lose = lambda flight: False
    cluster.advance(ASKED_EVERY_MS + 2_000)
    assert d.answers["bob"] == [[[other, b"acked", b"43", 0, b"acknowledged"]]]


def test_an_end_that_a_node_remembers_does_not_end_a_wait_while_another_node_has_the_job() -> None:
    cluster = Cluster(4)
    a = cluster.members[0]
    job_id = held(cluster, "RESULT", 1_000)
    d = stranger_to(cluster, job_id)
    d.state.custody.ended.add(job_id)
    d("WAITJOB", 100, job_id, client="anna")
    d("WAITJOB", 0, job_id, client="bob")
    cluster.advance(3_000)
    assert d.answers["anna"] == [[[job_id, b"pending", None, 0, b""]]]
    assert d.answers["bob"] == []
    a("ACKJOB", job_id, "RESULT", "42")
    cluster.advance(10)
    assert d.answers["bob"] == [[[job_id, b"acked", b"42", 0, b"acknowledged"]]]


def test_a_job_that_is_under_way_to_another_node_is_not_unknown() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    b.wait("consumer")
    cluster.hold(a, b)
    job_id = a.add("q", "x", "RETRY", 0, "REPLICATE", 1)
    assert not any(member.holds(job_id) for member in cluster)
    c("WAITJOB", 0, job_id, client="anna")
    cluster.advance(UNDER_WAY_MS // 2)
    assert c.answers["anna"] == []
    cluster.release(a, b)
    assert b.holds(job_id)
    cluster.advance(ASKED_EVERY_MS)
    assert c.answers["anna"] == []
    b("ACKJOB", job_id, "RESULT", "42")
    cluster.advance(10)
    assert c.answers["anna"] == [[[job_id, b"acked", b"42", 1, b"acknowledged"]]]


def test_a_job_that_was_lost_under_way_is_unknown_in_the_end() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    b.wait("consumer")
    cluster.lose = lambda flight: flight.kind == YOURJOBS
    job_id = a.add("q", "x", "RETRY", 0, "REPLICATE", 1)
    c("WAITJOB", 0, job_id, client="anna")
    cluster.advance(ASKED_EVERY_MS + 100)
    assert [found[:2] for found in c.answers["anna"][0]] == [[job_id, b"unknown"]]


def test_silent_nodes_do_not_make_a_job_unknown_that_another_one_holds() -> None:
    cluster = Cluster(4)
    a = cluster.members[0]
    job_id = held(cluster, "RESULT", 1_000)
    d = stranger_to(cluster, job_id)
    b, c = [member for member in cluster if member not in (a, d)]
    cluster.hold(b, d)
    cluster.hold(c, d)
    d("WAITJOB", 30_000, job_id, UNKNOWN_ID, client="anna")
    cluster.advance(3_000)
    a("ACKJOB", job_id, "RESULT", "42")
    cluster.advance(10)
    assert d.answers["anna"] == []
    cluster.release(b, d)
    assert d.answers["anna"] == []
    cluster.release(c, d)
    cluster.advance(ASKED_EVERY_MS + 10)
    assert [found[1] for found in d.answers["anna"][0]] == [b"acked", b"unknown"]


def test_a_job_is_waited_for_while_the_node_is_away_that_alone_has_it() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = a.add("q", "x", "RETRY", 10, "REPLICATE", 1, "RESULT", 1_000)
    cluster.isolate(a)
    b("WAITJOB", 0, job_id, UNKNOWN_ID, client="anna")
    b("WAITJOB", 20_000, job_id, client="bob")
    cluster.advance(20_001)
    reason = b"no node that answered knows it, and another one did not answer"
    assert b.answers["bob"] == [[[job_id, b"pending", None, 0, reason]]]
    assert b.answers["anna"] == []
    a("ACKJOB", job_id, "RESULT", "42")
    cluster.heal(a, b)
    cluster.advance(10)
    assert [found[1:3] for found in b.answers["anna"][0]] == [[b"acked", b"42"], [b"unknown", None]]
    c("WAITJOB", 0, UNKNOWN_ID, client="carl")
    cluster.advance(10)
    assert c.answers["carl"] == [], "it has not heard from a"
    c("CLUSTER", "FORGET", a.id)
    cluster.advance(ASKED_EVERY_MS + 10)
    assert [found[1] for found in c.answers["carl"][0]] == [b"unknown"]


def test_a_complete_cluster_knows_at_once_that_a_job_is_unknown() -> None:
    cluster = Cluster(3)
    a = cluster.members[0]
    a("WAITJOB", 0, UNKNOWN_ID, client="anna")
    cluster.advance(10)
    assert [found[1] for found in a.answers["anna"][0]] == [b"unknown"]


def test_a_node_that_has_left_is_not_waited_for() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    a("CLUSTER", "LEAVING", "yes")
    cluster.advance(2_000)
    cluster.isolate(a)
    cluster.advance(60_000)
    b("WAITJOB", 0, UNKNOWN_ID, client="anna")
    cluster.advance(10)
    assert [found[1] for found in b.answers["anna"][0]] == [b"unknown"]


def test_holders_forget_who_does_not_ask_again() -> None:
    cluster = Cluster(4)
    a = cluster.members[0]
    job_id = held(cluster)
    d = stranger_to(cluster, job_id)
    d("WAITJOB", 0, job_id, client="anna")
    assert a.state.custody.watched
    cluster.advance(3 * WATCHED_MS)
    assert a.state.custody.watched
    assert len(cluster.sent(WATCH, d, a)) > 5
    d.gone("anna")
    cluster.advance(2 * WATCHED_MS + 1)
    assert not a.state.custody.watched


def test_a_node_that_leaves_hands_its_outcomes_over() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id = a.add("q", "body", "RESULT", 1_000, "REPLICATE", 1, "TTL", 2_000)
    a("ACKJOB", job_id, "RESULT", "42")
    a("CLUSTER", "LEAVING", "yes")
    cluster.advance(5_000)
    assert a.node.leaving.is_safe
    cluster.isolate(a)
    kept = [result_on(member, job_id) for member in (b, c)]
    assert kept.count((b"acked", b"42", None)) >= 1
    for member in (b, c):
        member("WAITJOB", 0, job_id, client="late")
        cluster.advance(10)
        if not member.answers["late"]:
            cluster.advance(3_000)
    assert {state.job(job_id).state for state in (b, c) if state.holds(job_id)} == {ACKED}
    cluster.advance(1_000_000)
    assert not any(member.holds(job_id) for member in (b, c))


def test_a_node_that_was_away_hears_the_progress_of_the_jobs_that_it_holds() -> None:
    cluster = Cluster(3)
    a, b, c = cluster
    job_id, other_id = held(cluster), held(cluster)
    a("GETJOB", "COUNT", 2, "FROM", "q")
    cluster.isolate(c)
    a("WORKING", other_id)
    a("WORKING", job_id, "PROGRESS", "10 %")
    cluster.advance(2_000)
    shown = [member.show(job_id) for member in (a, b, c)]
    assert [each and each.get("progress") for each in shown] == [b"10 %", b"10 %", None]
    cluster.flights.clear()
    cluster.heal(a, c)
    cluster.settle()
    assert c.show(job_id)["progress"] == b"10 %"  # type: ignore[index]
    assert {(flight.sender, flight.message[1]) for flight in cluster.sent(FATE)} == {(a, job_id)}


def progress_told(member: Member, timeout: int, job_id: bytes) -> object:
    """The progress that one call is answered, once its time is over."""
    assert member("WAITJOB", timeout, "PROGRESS", job_id, client="short") is BLOCKED
    member.cluster.advance(timeout + 5)
    ((found,),) = member.answers.pop("short")
    return found[2]


@pytest.mark.parametrize("where", ["holder", "stranger"])
def test_no_call_is_answered_an_older_progress_than_the_one_before(where: str) -> None:
    cluster = Cluster(4)
    job_id = held(cluster)
    a, b, d = cluster.members[0], cluster.members[1], stranger_to(cluster, job_id)
    asked = b if where == "holder" else d
    assert a.get()
    a("WORKING", job_id, "PROGRESS", "0")
    cluster.advance(50)
    a("WORKING", job_id, "PROGRESS", "1")  # told to the holders when the second is over
    assert progress_told(asked, 200, job_id) == b"1"
    cluster.lose = lambda flight: flight.kind == OUTCOME and flight.sender is a
    assert progress_told(asked, 1, job_id) == b"1"
    cluster.lose = lambda _: False
    assert progress_told(asked, 100, job_id) == b"1"
    a("ACKJOB", job_id, "RESULT", "done")
    cluster.advance(2_000)
    assert progress_told(asked, 100, job_id) is None
    assert not asked.node.outcomes._progress


# How often a job that is over was tried.


def rows_of_all(cluster: Cluster, job_id: bytes) -> dict[str, list[object]]:
    """What every node answers to a late WAITJOB: state and tries."""
    said = {}
    for member in cluster:
        rows = member("WAITJOB", 1_000, job_id, client="late")
        if rows is BLOCKED:
            cluster.advance(1_000)
            (rows,) = member.answers.pop("late")
        ((_, state, _, tries, _),) = rows
        said[member.name] = [state, tries]
    return said


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize(
    ("options", "steps", "tries"),
    [
        ((), (), 0), (("DELAY", 50), (), 0), ((), ("get",), 1), ((), ("get", "NACK"), 1), ((), ("get", "retry"), 1),
        ((), ("get", "NACK", "get"), 2), ((), ("DEQUEUE",), 0), ((), ("get", "NACK DELAY 50"), 1),
    ],
)  # fmt: skip
def test_all_who_wait_are_told_the_same_tries_wherever_a_job_is_acknowledged(
    options: tuple[str | int, ...], steps: tuple[str, ...], tries: int, copies: int, place: int
) -> None:
    cluster = Cluster(4)
    a = cluster.members[0]
    answered = a("ADDJOB", "q", "body", 0, "REPLICATE", copies, "RETRY", 5, "RESULT", 600, *options)
    job_id = bytes(answered if copies == 1 else a.answers.pop("client")[0])
    for step in steps:
        if step == "get":
            assert a.get()
        elif step == "retry":
            cluster.advance(6_000)
        else:
            word, *words = step.split()
            assert a(word, job_id, *words) == 1
    for member in cluster:
        member("WAITJOB", 0, job_id, client="anna")
    cluster.members[place]("ACKJOB", job_id, "RESULT", "42")
    cluster.advance(5_000)
    answers = {member.name: [row[1:4] for (row,) in member.answers["anna"]] for member in cluster}
    assert answers == {member.name: [[b"acked", b"42", tries]] for member in cluster}
    assert rows_of_all(cluster, job_id) == {member.name: [b"acked", tries] for member in cluster}


@pytest.mark.parametrize("options", [(), ("MAXTRIES", 3), ("RESULT", 60)])
@pytest.mark.parametrize("word", ["CANCEL", "QPURGE"])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("steps", "tries"), [((), 0), (("get",), 1), (("get", "NACK"), 1), (("get", "NACK", "get", "NACK"), 2)]
)
def test_all_nodes_remember_the_tries_of_a_job_that_was_cancelled(
    options: tuple[str | int, ...], word: str, place: int, steps: tuple[str, ...], tries: int
) -> None:
    cluster = Cluster(4)
    a = cluster.members[0]
    job_id = held(cluster, *options)
    for step in steps:
        assert a.get() if step == "get" else a("NACK", job_id)
    cluster.members[place](word, job_id if word == "CANCEL" else "q", client="rosa")
    cluster.advance(6_000)
    if word == "CANCEL" and steps == ("get",):
        a("NACK", job_id)
        cluster.advance(1_000)
    assert rows_of_all(cluster, job_id) == {member.name: [b"cancelled", tries] for member in cluster}


@pytest.mark.parametrize("options", [(), ("MAXTRIES", 3), ("RESULT", 60)])
def test_a_lone_node_remembers_the_tries_of_a_job_that_was_cancelled(
    server: Server, options: tuple[str | int, ...]
) -> None:
    job_id = server.add("q", "body", *options)
    for _ in range(2):
        assert server.get()
        server("NACK", job_id)
    assert server.get()
    assert server("CANCEL", job_id) == [b"cancelling"]
    server("NACK", job_id)
    assert row(server, job_id) == [b"cancelled", None, 3, b"cancelled"]


def test_a_holder_that_nobody_tells_of_the_last_try_answers_all_the_same() -> None:
    cluster = Cluster(3)
    job_id = held(cluster, "RESULT", 60)
    a, b, _ = cluster
    assert a.get()
    cluster.isolate(b)
    b("WAITJOB", 0, job_id, client="anna")
    b("ACKJOB", job_id, "RESULT", "42")
    cluster.advance(LAST_TRY_MS + 1)
    assert b.answers["anna"] == [[[job_id, b"acked", b"42", 1, b"acknowledged"]]]


@pytest.mark.parametrize("has_consumer", [False, True])
@pytest.mark.parametrize("result", [(), ("RESULT", 60)])
def test_who_waits_for_a_job_hears_that_its_queue_was_deleted(
    server: Server, result: tuple[str | int, ...], has_consumer: bool
) -> None:
    job_id = server.add("q", "body", "RETRY", 5, *result)
    if has_consumer:
        assert server.get()
    server("WAITJOB", 0, job_id, client="anna")
    server("WQ.DELETE", "q", client="rosa")
    server.advance(6_000)
    assert server.answers["anna"] == [[[job_id, b"cancelled", None, int(has_consumer), b"cancelled"]]]


@pytest.mark.parametrize("is_tried", [True, False])
@pytest.mark.parametrize("asked", [1, 2, 3])
@pytest.mark.parametrize("place", [1, 3])
def test_a_call_right_after_an_acknowledgement_waits_for_the_word_of_the_last_try(
    place: int, asked: int, *, is_tried: bool
) -> None:
    cluster = Cluster(4)
    job_id = held(cluster, "RESULT", 60)
    a, acking, asking = cluster.members[0], cluster.members[place], cluster.members[asked]
    if is_tried:
        assert a.get()
    for member in cluster:
        if member is not a:
            cluster.hold(member, a)
    acking("ACKJOB", job_id, "RESULT", "42")
    assert asking("WAITJOB", 0, job_id, client="anna") is BLOCKED
    for member in cluster:
        if member is not a:
            cluster.release(member, a)
    cluster.advance(LAST_TRY_MS - 1)
    assert asking.answers["anna"] == [[[job_id, b"acked", b"42", int(is_tried), b"acknowledged"]]]


@pytest.mark.parametrize("asked", [1, 2])
def test_an_acknowledgement_alone_counts_as_the_end_of_a_try_while_no_holder_answers(asked: int) -> None:
    cluster = Cluster(3)
    a = cluster.members[0]
    job_id = a("ADDJOB", "q", "body", 0, "REPLICATE", 1, "RETRY", 60, "RESULT", 60)
    assert a.get()
    cluster.isolate(a)
    cluster.members[1]("ACKJOB", job_id, "RESULT", "42")
    for _ in range(2):
        assert cluster.members[asked]("WAITJOB", 0, job_id, client="anna") is BLOCKED
        cluster.advance(LAST_TRY_MS + 1)
    answered = [[job_id, b"acked", b"42", 1, b"acknowledged"]]
    assert cluster.members[asked].answers["anna"] == [answered, answered]


@pytest.mark.parametrize("options", [("REPLICATE", 1), ("REPLICATE", 3)])
@pytest.mark.parametrize("words", [(), ("RESULT", "42")])
def test_a_job_that_is_acknowledged_on_its_way_to_another_node_was_tried_by_nobody(
    options: tuple[str | int, ...], words: tuple[str, ...]
) -> None:
    cluster = Cluster(4)
    a, *_, d = cluster
    answered = a("ADDJOB", "q", "body", 0, "RETRY", 60, "RESULT", 60, *options)
    job_id = bytes(answered if options[1] == 1 else a.answers.pop("client")[0])
    cluster.hold(a, d)
    assert d("GETJOB", "FROM", "q", client="worker") is BLOCKED
    assert a.show(job_id)["state"] == b"active"
    d("ACKJOB", job_id, *words)
    cluster.release(a, d)
    cluster.advance(2_000)
    assert "worker" not in d.answers
    assert rows_of_all(cluster, job_id) == {member.name: [b"acked", 0] for member in cluster}


def test_a_node_that_remembers_a_cancelled_job_and_one_that_has_its_result_do_not_answer_each_other_for_ever() -> None:
    cluster = Cluster(4)
    a = cluster.members[0]
    job_id = held(cluster, "RESULT", 600)
    b = stranger_to(cluster, job_id)
    assert a("ACKJOB", job_id, "RESULT", "done") == 1
    cluster.advance(1_000)
    b.state.custody.ended.add(job_id)
    b.state.custody.ended.note(job_id, ENDED_CANCELLED, 0)
    said: list[int] = []

    def listen(flight: Flight) -> bool:
        said.append(flight.kind)
        return len(said) > 100

    cluster.lose = listen
    b.say(a, (SETACK, job_id, MARK, False, frozenset()))
    cluster.advance(100)
    assert len([kind for kind in said if kind in {SETACK, FATE}]) <= 2
    assert row(a, job_id) == [b"acked", b"done", 0, b"acknowledged"]
