"""What happens to jobs, as the event log has it: each thing once, at its time, by whom, and in its order."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disqued.core.model.job import Job, JobOptions
from disqued.core.model.outbox import GONE_DELETED, GONE_EVICTED, GONE_EXPIRED, GONE_REFUSED
from disqued.core.model.terms import trace_id_of
from disqued.core.model.trace import ACK, ADD, NAMES, EventTrace, Notes
from disqued.wire.eventlines import COLUMNS, EventLines
from tests.cluster_fixtures import Cluster
from tests.core_fixtures import UNKNOWN_ID, Server

Line = dict[str, Any]
TYPES: dict[str, Callable[[Any], bool]] = {
    "INT": lambda value: type(value) is int and abs(value) < 1 << 31,
    "BIGINT": lambda value: type(value) is int and abs(value) < 1 << 63,
    "DOUBLE": lambda value: type(value) in (int, float),
    "STRING": lambda value: type(value) is str,
}


def taken(lines: EventLines) -> bytes:
    """The text of the lines that there are, which are said to be as many and as large as they are."""
    text = b""
    for part in lines.take():
        made = b"".join(part.pieces)
        assert (part.size, part.count) == (len(made), made.count(b"\n"))
        assert json.loads(made.splitlines()[0])["seq"] == part.first
        text += made
    assert lines.take() == []
    return text


def follow(
    server: Server, *, endings_alone: bool = False, address_of: Callable[[Any], str] = str
) -> Callable[[], list[Line]]:
    """Begin a trail; returns what reads its new lines."""
    lines = EventLines(server.state.node_id, 7, address_of)
    server.state.trace.endings = lines
    if not endings_alone:
        server.state.trace.full = lines

    def read() -> list[Line]:
        found = [json.loads(line) for line in taken(lines).splitlines()]
        columns = dict(COLUMNS)
        for line in found:
            assert [name for name in columns if name in line][:5] == ["v", "boot", "seq", "ts_us", "event"]
            assert all(TYPES[columns[name]](value) for name, value in line.items()), line
        return found

    return read


class Person(str):
    """A client that has an address."""

    __slots__ = ()

    @property
    def address(self) -> str:
        return f"the house of {self}"


@pytest.mark.parametrize("replicate", [1, 3])
def test_a_job_with_a_key_is_added_by_the_first_one_who_said_it(replicate: int) -> None:
    first, second, _ = Cluster(3)
    read = follow(first, address_of=lambda who: str(who.address))
    first("ADDJOB", "q", "x", 0, "KEY", "k", "REPLICATE", replicate, client=Person("anna"))
    second("ADDJOB", "q", "x", 0, "KEY", "k", "REPLICATE", replicate, client=Person("bob"))
    assert brief(read(), "client") == [("add", "the house of anna")]


def brief(lines: list[Line], *names: str) -> list[tuple[Any, ...]]:
    return [(line["event"], *(line.get(name) for name in names)) for line in lines]


def test_every_word_of_a_job_tells_its_age() -> None:
    server = Server()
    read = follow(server)
    job_id = server.add("q", "x", "RETRY", 60)
    server.get()
    server.advance(5_000)
    server("NACK", job_id)
    assert brief(read(), "age_us")[-1] == ("nack", 5_000_000)


def test_a_consumer_that_waits_is_served_where_only_endings_are_wanted() -> None:
    server = Server()
    read = follow(server, endings_alone=True)
    server("GETJOB", "FROM", "q", client="anna")
    job_id = server.add("q", "x")
    assert server.answers["anna"] == [[(b"q", job_id, b"x")]]
    server("ACKJOB", job_id, client="anna")
    assert brief(read(), "client") == [("ack", "anna")]


@pytest.fixture
def server() -> Server:
    return Server()


def test_the_life_of_a_job_is_told_in_order_and_with_its_times(server: Server) -> None:
    read = follow(server)
    job_id = server.add("mail", "hello", "RETRY", 60, "TTL", 3600)
    server.advance(2_000)
    server.get("mail", client="anna")
    server.advance(500)
    server("ACKJOB", job_id, client="anna")
    added, delivered, acked = read()
    wall_us = server.state.wall * 1_000
    name = {"v": 1, "boot": 7, "job_id": job_id.decode(), "queue": "mail"}
    assert added == name | {
        "seq": 1, "ts_us": wall_us - 2_500_000, "event": "add", "ttl_s": 3600, "retry_s": 60, "repl": 1, "size": 5,
        "client": "client",
    }  # fmt: skip
    assert delivered == name | {
        "seq": 2, "ts_us": wall_us - 500_000, "event": "deliver", "attempt": 1, "age_us": 2_000_000,
        "wait_us": 2_000_000, "client": "anna",
    }  # fmt: skip
    assert acked == name | {
        "seq": 3, "ts_us": wall_us, "event": "ack", "attempt": 1, "age_us": 2_500_000, "run_us": 500_000,
        "client": "anna",
    }  # fmt: skip


def test_a_delivery_that_fails_is_told_as_what_it_was(server: Server) -> None:
    read = follow(server)
    job_id = server.add("q", "x", "RETRY", 10)
    server.get("q")
    server.advance(10_500)
    server.get("q")
    server("WORKING", job_id)
    server("NACK", job_id)
    server.get("q")
    server("ACKJOB", job_id)
    assert brief(read(), "attempt", "nacks") == [
        ("add", None, None), ("deliver", 1, None), ("requeue", 1, None), ("deliver", 2, None), ("working", 2, None),
        ("nack", 2, None), ("deliver", 3, 1), ("ack", 3, 1),
    ]  # fmt: skip


def test_a_delay_that_is_over_and_an_enqueue_are_told_apart(server: Server) -> None:
    read = follow(server)
    server.add("q", "x", "DELAY", 5)
    asked = server.add("q", "y", "DELAY", 5)
    server("ENQUEUE", asked)
    server.advance(6_000)
    assert brief(read(), "delay_s", "reason") == [
        ("add", 5, None), ("add", 5, None), ("enqueue", None, "asked"), ("enqueue", None, None),
    ]  # fmt: skip


def test_a_consumer_that_waited_is_the_one_that_it_is_delivered_to(server: Server) -> None:
    read = follow(server)
    server("GETJOB", "FROM", "q", client="anna")
    first = server.add("q", "x")
    server("ACKJOB", first, client="anna")
    assert brief(read(), "client") == [("add", "client"), ("deliver", "anna"), ("ack", "anna")]


def test_after_a_waiting_consumer_the_step_goes_on_in_the_name_of_who_runs_it(server: Server) -> None:
    read = follow(server)
    server("GETJOB", "FROM", "q", client="anna")
    server.node.begin("producer")
    server.run("ADDJOB", "q", "x", 0, client="producer")
    server.run("ADDJOB", "q", "y", 0, client="producer")
    assert brief(read(), "client") == [("add", "producer"), ("deliver", "anna"), ("add", "producer")]


def test_an_at_most_once_job_says_that_its_delivery_is_the_last(server: Server) -> None:
    read = follow(server)
    server.add("q", "x", "RETRY", 0)
    server.get("q")
    assert brief(read(), "attempt", "reason") == [("add", None, None), ("deliver", 1, "once")]


def test_a_delivery_that_nobody_saw_is_taken_back(server: Server) -> None:
    read = follow(server)
    job_id = server.add("q", "x", "RETRY", 10)
    server.get("q", client="anna")
    server.node.begin()
    server.node.gone("anna", [job_id])
    assert brief(read(), "reason") == [("add", None), ("deliver", None), ("requeue", "unseen")]


def test_every_end_of_a_job_has_a_name_of_its_own(server: Server) -> None:
    ttls = (60, 60, 2, 60, 60, 60)
    fast, deleted, over, refused, evicted, flushed = (server.add("q", "x", "TTL", ttl) for ttl in ttls)
    read = follow(server, endings_alone=True)
    server("FASTACK", fast)
    server("DELJOB", deleted)
    server.advance(2_100)
    server.state.forget(server.job(refused), GONE_REFUSED)
    server.state.forget(server.job(evicted), GONE_EVICTED)
    server("ACKJOB", UNKNOWN_ID)
    server("FASTACK", UNKNOWN_ID)
    server.node.begin()
    server.node.flush()
    lines = read()
    assert brief(lines, "reason") == [
        ("ack", "fast"), ("delete", None), ("expire", None), ("refuse", "misconf"), ("evict", None),
        ("ack", "unknown"), ("ack", "fast-unknown"), ("flush", None),
    ]  # fmt: skip
    assert [line["event"] for line in lines if "client" in line] == ["ack", "delete", "ack", "ack"]
    ids = [line.get("job_id", "").encode() for line in lines]
    assert ids == [fast, deleted, over, refused, evicted, UNKNOWN_ID, UNKNOWN_ID, b""]
    assert flushed not in ids


@pytest.mark.parametrize(("reason", "client"), [(GONE_DELETED, "anna"), (GONE_EXPIRED, None), (GONE_EVICTED, None)])
def test_who_deletes_a_job_is_named_and_who_comes_upon_one_that_is_over_is_not(
    server: Server, reason: bytes, client: str | None
) -> None:
    job_id = server.add("q", "x")
    read = follow(server)
    server.state.act_for("anna")
    server.state.forget(server.job(job_id), reason)
    assert [line.get("client") for line in read()] == [client]


def test_endings_alone_are_endings_alone(server: Server) -> None:
    read = follow(server, endings_alone=True, address_of=lambda who: str(who.address))
    job_id = server.add("q", "x", "RETRY", 60)
    server.get("q")
    server.advance(1_000)
    server("ACKJOB", job_id, client=Person("anna"))
    assert brief(read(), "run_us", "age_us", "queue", "client", "attempt", "ts_us") == [
        ("ack", 1_000_000, 1_000_000, "q", "the house of anna", 1, server.state.wall * 1_000)
    ]


def test_an_ack_has_the_same_line_whether_all_is_wanted_or_endings_alone() -> None:
    told = []
    for endings_alone in (True, False):
        server = Server()
        read = follow(server, endings_alone=endings_alone)
        first, second = server.add("q", "x", "RETRY", 60), server.add("q", "y", "RETRY", 60)
        server.get("q")
        server.advance(1_234)
        server("ACKJOB", first)
        server("ACKJOB", second)
        told.append([{**line, "seq": 0} for line in read() if line["event"] == "ack"])
    assert told[0] == told[1]
    assert ["run_us" in line for line in told[0]] == [True, False]


def test_the_tries_of_a_job_are_told_with_their_reasons_its_death_and_its_redrive(server: Server) -> None:
    read = follow(server)
    job_id = server.add("q", "x", "RETRY", 10, "MAXTRIES", 2, "TTL", 3_600, "KEEPDEAD", 86_400)
    server.get("q")
    server("NACK", job_id, "REASON", b"no such \xff")
    server.get("q")
    server.advance(10_500)
    server("REDRIVE", "q", client="anna")
    server.advance(500)
    server.get("q")
    server.advance(1_000)
    server("ACKJOB", job_id)
    lines = read()
    assert brief(lines, "attempt", "nacks", "failure") == [
        ("add", None, None, None), ("deliver", 1, None, None), ("nack", 1, None, "no such \\xff"),
        ("deliver", 2, 1, None), ("dead", 2, 1, "neither acknowledged nor heard of within 10 s"),
        ("redriven", 2, None, None), ("deliver", 3, None, None), ("ack", 3, None, None),
    ]  # fmt: skip
    assert (lines[0]["max_tries"], lines[0]["keep_dead_s"]) == (2, 86_400)
    assert [line["age_us"] for line in lines[-4:]] == [10_000_000, 10_500_000, 11_000_000, 12_000_000]


def test_a_job_that_is_buried_dies_at_once_and_endings_alone_tell_of_it(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 60)
    read = follow(server, endings_alone=True)
    server.get("q")
    server("NACK", job_id, "DEAD", "REASON", "poison", client="anna")
    server("REDRIVE", "q")
    server.advance(500)
    assert brief(read(), "attempt", "failure", "client") == [
        ("dead", 1, "poison", "anna"), ("redriven", 1, None, None),
    ]  # fmt: skip


def test_an_ack_tells_the_size_of_its_result_and_never_the_result(server: Server) -> None:
    read = follow(server)
    for words in ((), ("RESULT", 60)):
        job_id = server.add("q", "x", "RETRY", 60, *words)
        server.get("q")
        server("ACKJOB", job_id, "RESULT", "twelve bytes")
    plain = server.add("q", "x", "RETRY", 60, "RESULT", 60)
    server("ACKJOB", plain)
    lines = [line for line in read() if line["event"] == "ack"]
    assert brief(lines, "result_size") == [("ack", 12), ("ack", 12), ("ack", None)]
    assert "twelve bytes" not in json.dumps(lines)


def test_a_cancelled_job_ends_as_cancelled_and_one_that_was_done_all_the_same_as_acknowledged(server: Server) -> None:
    read = follow(server)
    queued, late, done = (server.add(queue, "x", "RETRY", 10) for queue in ("q", "r", "s"))
    server.get("r")
    server.get("s")
    server("CANCEL", queued, late, done, client="anna")
    server("ACKJOB", done)
    server.advance(10_500)
    ends = [line for line in read() if line["event"] in ("ack", "cancelled")]
    assert [(line["event"], line["job_id"].encode(), line.get("client")) for line in ends] == [
        ("cancelled", queued, "anna"), ("ack", done, "client"), ("cancelled", late, None),
    ]  # fmt: skip


def test_the_other_holders_of_a_job_tell_that_it_is_dead_redriven_and_cancelled() -> None:
    cluster = Cluster(2)
    a, b = cluster
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2, "RETRY", 60, client="maker")
    (job_id,) = a.answers["maker"]
    read_a, read_b = follow(a), follow(b)
    a.get("q")
    a("NACK", job_id, "DEAD")
    cluster.settle()
    b("REDRIVE", "q")
    cluster.advance(3_000)
    b("CANCEL", job_id)
    cluster.settle()
    for lines in (read_a(), read_b()):
        ends = [line for line in lines if line["event"] in ("dead", "redriven", "cancelled")]
        assert [line["event"] for line in ends] == ["dead", "redriven", "cancelled"]
        assert [("peer" in line) for line in ends] == [line.get("reason") == "peer" for line in ends]


def test_what_a_group_does_with_an_event_names_the_group(server: Server) -> None:
    read = follow(server)
    event = bytes(server("QADD", "news", 60, "x"))
    server("QGET", "news", "mail", "EX", 5)
    server.advance(5_100)
    server("QGET", "news", "mail", "EX", 5)
    server("QACK", "news", "mail", event)
    server("QGET", "news", "count", "EX", 0)
    assert brief(read(), "scope", "attempt", "reason", "retry_s") == [
        ("add", None, None, None, None), ("deliver", "0:mail", 1, None, None), ("requeue", "0:mail", 1, None, None),
        ("deliver", "0:mail", 2, None, None), ("ack", "0:mail", 2, None, None), ("deliver", "0:count", 1, "once", None),
    ]  # fmt: skip


def test_what_a_group_did_is_told_of_the_epoch_in_which_it_did_it(server: Server) -> None:
    read = follow(server)
    event = bytes(server("QADD", "news", 60, "x"))
    server("QGET", "news", "mail", "EX", 5)
    server("QACK", "news", "mail", event)
    # What is noted becomes lines later, when the group may have begun anew.
    server("QGROUP", "START", "news", "mail", "FIRST")
    server("QGET", "news", "mail", "EX", 5)
    assert brief(read(), "scope")[1:] == [("deliver", "0:mail"), ("ack", "0:mail"), ("deliver", "1:mail")]


def test_a_node_that_hears_what_a_group_is_done_with_names_the_group() -> None:
    cluster = Cluster(2)
    a, b = cluster
    read = follow(b)
    a("QADD", "news", 60, "x", "REPLICATE", 2, client="maker")
    (event,) = a.answers["maker"]
    a("QGET", "news", "mail", "EX", 5)
    a("QACK", "news", "mail", event)
    cluster.settle()
    assert brief(read(), "scope", "reason", "peer") == [
        ("replicate", None, None, "aaaaaaaa"), ("ack", "0:mail", "peer", "aaaaaaaa"),
    ]  # fmt: skip


def test_a_job_that_is_delivered_at_most_once_leaves_though_its_delay_is_not_over() -> None:
    cluster = Cluster(2)
    a, _ = cluster
    read = follow(a)
    a.add("q", "x", "RETRY", 0, "DELAY", 60, "REPLICATE", 1)
    a("CLUSTER", "LEAVING", "yes")
    cluster.advance(3_000)
    assert brief(read(), "peer") == [("add", None), ("leave", "bbbbbbbb")]


def test_a_job_that_is_done_elsewhere_while_its_producer_waits_was_added_and_is_done() -> None:
    cluster = Cluster(2)
    a, b = cluster
    read = follow(a)
    cluster.hold(a, b)
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2, client="maker")
    (job,) = a.state.jobs
    assert read() == []
    b("ACKJOB", job.id)
    cluster.release(a, b)
    assert brief(read(), "client", "peer") == [("add", "maker", None), ("ack", None, "bbbbbbbb")]


@pytest.mark.parametrize(("by_ms", "word"), [(3_600_000, "ahead"), (-3_600_000, "back")])
def test_a_clock_that_is_set_is_told_of_and_changes_no_age(server: Server, by_ms: int, word: str) -> None:
    read = follow(server)
    server.add("q", "x")
    read()
    job_id = server.add("q", "x", "RETRY", 60)
    server.advance(1_000)
    server.get("q")
    server.clock.jump_wall(by_ms)
    server.advance(500)
    server("DELJOB", job_id)
    lines = read()
    assert brief(lines, "reason", "age_us") == [
        ("add", None, None), ("deliver", None, 1_000_000), ("clock", word, None), ("delete", None, 1_500_000),
    ]  # fmt: skip
    assert lines[3]["ts_us"] - lines[1]["ts_us"] == by_ms * 1_000 + 500_000
    server.advance(60_000)
    assert read() == []


def test_a_list_element_that_is_recovered_is_delivered_again(server: Server) -> None:
    read = follow(server)
    server("RQ.PUSH", "list", "x")
    server("RQ.POP", "list", client="anna")
    server.advance(5_000)
    server("RQ.RECOVER", "list", 1, 1, client="bert")
    assert brief(read(), "attempt", "client", "reason")[1:] == [
        ("deliver", 1, "anna", None), ("deliver", 2, "bert", "recovered"),
    ]  # fmt: skip


def test_each_node_of_a_cluster_tells_what_happened_on_it() -> None:
    cluster = Cluster(2)
    a, b = cluster
    read_a, read_b = follow(a), follow(b)
    a("ADDJOB", "q", "x", 0, "REPLICATE", 2, "RETRY", 60, client="maker")
    (job_id,) = a.answers["maker"]
    assert brief(read_a(), "repl", "client") == [("add", 2, "maker")]
    assert brief(read_b(), "peer", "size") == [("replicate", "aaaaaaaa", 1)]
    a.get("q")
    b("ACKJOB", job_id)
    cluster.settle()
    assert brief(read_a(), "reason", "peer") == [("deliver", None, None), ("ack", "peer", "bbbbbbbb")]
    assert brief(read_b(), "reason", "client") == [("ack", None, "client")]


@pytest.mark.parametrize("options", [(), ("ASYNC",), ("REPLICATE", 2)])
def test_an_addition_says_if_others_alone_have_the_job(options: tuple[Any, ...]) -> None:
    cluster = Cluster(3)
    a, *_ = cluster
    read = follow(a)
    a("ADDJOB", "q", "x", 0, *options)
    a.state.leaving = True
    a("ADDJOB", "q", "x", 0, *options)
    a("RQ.PUSH", "list", "x", "y")
    cluster.settle()
    assert brief(read(), "reason") == [("add", None), *[("add", "elsewhere")] * 3]


def test_a_job_that_is_acknowledged_while_its_producer_waits_is_added_before() -> None:
    cluster = Cluster(3)
    a, b, _ = cluster
    read = follow(a)
    cluster.hold(b, a)
    a("ADDJOB", "q", "x", 0, "REPLICATE", 3, client="maker")
    (job,) = a.state.jobs
    a("ACKJOB", job.id, client="anna")
    assert brief(read(), "client", "reason") == [("add", "maker", None), ("ack", "anna", None)]


def test_a_job_that_moves_leaves_here_and_comes_there() -> None:
    cluster = Cluster(2)
    a, b = cluster
    read_a, read_b = follow(a), follow(b)
    a.add("q", "x", "RETRY", 60, "REPLICATE", 1)
    b.wait("anna", "q")
    cluster.advance(2_000)
    assert b.answered("anna") == [b"x"]
    assert brief(read_a(), "peer") == [("add", None), ("leave", "bbbbbbbb")]
    assert brief(read_b(), "peer", "client") == [
        ("replicate", "aaaaaaaa", None), ("enqueue", "aaaaaaaa", None), ("deliver", None, "anna"),
    ]  # fmt: skip


def test_a_job_without_its_copies_is_refused_and_was_never_added() -> None:
    cluster = Cluster(2)
    a, b = cluster
    cluster.hold(a, b)
    read = follow(a)
    a("ADDJOB", "q", "x", 100, "REPLICATE", 2)
    cluster.advance(200)
    assert brief(read(), "reason") == [("refuse", "norepl")]


def test_without_a_log_nothing_is_kept(server: Server) -> None:
    job_id = server.add("q", "x")
    server.get("q")
    server("ACKJOB", job_id)
    assert (server.state.trace.full, server.state.trace.endings) == (None, None)


def test_names_are_written_for_people_and_break_no_line(server: Server) -> None:
    read = follow(server)
    for queue in (b'"\n\\', b"\xff\x00", "größe".encode()):
        server.add(queue, "x")
    assert brief(read(), "queue") == [("add", '"\n\\\\'), ("add", "\\xff\x00"), ("add", "größe")]


@given(
    st.lists(
        st.tuples(
            st.binary(max_size=12), st.integers(1, 1 << 40), st.integers(0, 1 << 40), st.integers(-1, 1 << 40),
            st.text(max_size=8),
        ),
        max_size=20,
    )
)  # fmt: skip
def test_every_line_is_an_object_of_the_columns_and_the_numbers_have_no_gap(
    entries: list[tuple[bytes, int, int, int, str]],
) -> None:
    lines = EventLines(b"f" * 40, 1, str)
    for queue, ttl_ms, wall, span_ms, client in entries:
        job = Job(b"DI" + b"0" * 46, queue, b"", 1, JobOptions(ttl_ms=ttl_ms, retry_ms=1, delay_ms=1, replicate=1))
        lines.act(wall, wall - 5, client)
        lines.add(job)
        lines.deliver(job, max(0, span_ms))
        for kind in range(len(NAMES)):
            lines.tell(kind, wall, wall - 5, job, attempt=1, nacks=2, span_ms=span_ms, who=b"f" * 40, word=b"why")
        lines.tell(ADD, wall, wall - 5)
    found = [json.loads(line) for line in taken(lines).splitlines()]
    assert [line["seq"] for line in found] == list(range(1, len(found) + 1))
    assert lines.seq == len(found) + 1
    columns = dict(COLUMNS)
    assert all(TYPES[columns[name]](value) for line in found for name, value in line.items())
    assert {line["event"] for line in found} <= {name.decode() for name in NAMES}


QUEUES = (b"mail", bytes(bytearray(b"mail")), b"news")  # the second is equal to the first, and another object
CLIENTS = ("anna", "bert", "", None, b"f" * 40)
WISHES = (
    (JobOptions(ttl_ms=60_000, retry_ms=1_500, delay_ms=0, replicate=1), '"ttl_s":60,"retry_s":1.5,"repl":1'),
    (JobOptions(ttl_ms=7_000, retry_ms=0, delay_ms=250, replicate=3), '"ttl_s":7,"retry_s":0,"delay_s":0.25,"repl":3'),
)
OFFSET = 5_000  #: what the wall clock is ahead


def _who(client: Any) -> str:
    if not client:
        return ""
    return f',"peer":"{"f" * 8}"' if isinstance(client, bytes) else f',"client":"{client}"'


class Writer:
    """The lines of what is told of every job, written one by one and without a memory of those before."""

    def __init__(self, first: int, trail: EventTrace) -> None:
        self.seq = first
        self.trail = trail
        self.lines: list[str] = []
        self.act(1, "anna")

    def act(self, now: int, client: Any) -> None:
        self.now, self.client = now, client
        self.trail.act(now + OFFSET, now, client)

    def tell(self, form: str, queue: bytes, wishes: int, size: int, age_ms: int, span_ms: int, client: Any) -> None:
        options, wished = WISHES[wishes]
        job = Job(b"DI%046d" % self.seq, queue, b"x" * size, 1, options)
        job.expires_at = self.now + options.ttl_ms - age_ms
        start = f'{{"v":1,"boot":7,"seq":{self.seq},"ts_us":{(self.now + OFFSET) * 1_000},"event":'
        named = f'"job_id":"{job.id.decode()}","queue":"{queue.decode()}"'
        aged = f'{named},"attempt":1,"age_us":{age_ms * 1_000}'
        run = f',"run_us":{span_ms * 1_000}' if span_ms >= 0 else ""
        if form == "add":
            self.trail.add(job)
            line = f'"add",{named},{wished},"size":{size}{_who(self.client)}'
        elif form == "deliver":
            self.trail.deliver(job, span_ms)
            line = f'"deliver",{aged},"wait_us":{span_ms * 1_000}{_who(self.client)}'
        elif form == "ack":
            self.trail.ack(job, span_ms)
            line = f'"ack",{aged}{run}{_who(self.client)}'
        else:
            # In the name of somebody else, and nothing that follows is.
            self.trail.tell(ACK, self.now + OFFSET, self.now, job, attempt=1, span_ms=span_ms, who=client, word=b"why")
            line = f'"ack",{aged}{run}{_who(client)},"reason":"why"'
        self.lines.append(f"{start}{line}}}\n")
        self.seq += 1


@given(
    st.sampled_from((1, 990, 998, 52_114, 999_995)),
    st.lists(
        st.tuples(
            st.sampled_from(("moment", "take", "step", "add", "deliver", "ack", "told")), st.sampled_from(QUEUES),
            st.sampled_from((0, 1)), st.sampled_from((0, 5, 1_000)), st.sampled_from((0, 3, 999, 1_000, 123_456)),
            st.sampled_from((-1, 0, 3, 999, 1_000, 123_456)), st.sampled_from(CLIENTS),
        ),
        max_size=40,
    ),
    st.booleans(),
)  # fmt: skip
def test_a_line_is_the_same_to_the_byte_whatever_those_before_it_were(
    first: int, told: list[tuple[Any, ...]], noted: bool
) -> None:
    lines, notes = EventLines(b"f" * 40, 7, str), Notes(b"f" * 40, 1, 100)
    lines.skip(first - 1)
    writer = Writer(first, notes if noted else lines)
    found = b""
    for form, queue, wishes, size, age_ms, span_ms, client in told:
        if form == "moment":
            writer.act(writer.now + size, client)
        elif form == "take":
            found += taken(lines)
        elif form == "step":
            lines.is_news()
        else:
            writer.tell(form, queue, wishes, size, age_ms, span_ms, client)
    if noted:
        notes.retell(lines)
    found += taken(lines)
    assert found.decode() == "".join(writer.lines)
    assert lines.seq == writer.seq


def test_what_time_makes_happen_after_a_client_is_not_that_client_s() -> None:
    lines, job = EventLines(b"f" * 40, 7, str), Job(b"DI" + b"0" * 46, b"q", b"", 1, WISHES[0][0])
    for who in ("anna", None, b"f" * 40, None):
        lines.act(1, 1, who)
        lines.add(job)
    found = [json.loads(line) for line in taken(lines).splitlines()]
    assert brief(found, "client", "peer") == [
        ("add", "anna", None), ("add", None, None), ("add", None, "f" * 8), ("add", None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("form", ["add", "deliver", "ack", "told"])
def test_a_line_that_differs_from_the_one_before_in_one_thing_says_so(form: str) -> None:
    lines = EventLines(b"f" * 40, 7, str)
    writer = Writer(1, lines)
    usual: tuple[Any, ...] = (b"mail", 0, 5, 3, 0, "anna")
    for at, other in enumerate((b"news", 1, 6, 4, -1, "bert")):
        for told in (usual, (*usual[:at], other, *usual[at + 1 :])):
            writer.tell(form, *told)
    assert taken(lines).decode() == "".join(writer.lines)


def test_texts_of_long_names_are_not_remembered() -> None:
    lines = EventLines(b"f" * 40, 7, str)
    lines.act(1, 1, None)
    for name in (b"q" * 500, b"q" * 2_000, b"\xff" * 300):
        lines.add(Job(b"DI" + b"0" * 46, name, b"", 1, WISHES[0][0]))
    assert [json.loads(line)["queue"] for line in taken(lines).splitlines()] == ["q" * 500, "q" * 2_000, "\\xff" * 300]
    assert list(lines._queues) == [b"q" * 500]


def test_a_number_is_whole_when_it_passes_a_thousand_though_lines_are_put_together_meanwhile() -> None:
    lines, job = EventLines(b"f" * 40, 7, str), Job(b"DI" + b"0" * 46, b"q", b"", 1, WISHES[0][0])
    lines.act(1, 1, None)
    for _ in range(2_106):
        lines.add(job)
        lines.is_news()
    assert [json.loads(line)["seq"] for line in taken(lines).splitlines()] == list(range(1, 2_107))


def test_lines_are_news_while_nobody_comes_and_else_when_they_are_enough() -> None:
    lines, job = EventLines(b"f" * 40, 7, str, enough=100_000), Job(b"DI" + b"0" * 46, b"q", b"", 1, WISHES[0][0])
    assert not lines.is_news()
    lines.add(job)
    assert lines.is_news()
    lines.awaited = True
    count = 1
    while not lines.is_news():
        lines.add(job)
        count += 1
    text = taken(lines)
    assert text.count(b"\n") == count
    assert len(text) >= 100_000
    assert not lines.is_news()


def test_another_id_ends_a_boot_and_begins_one_and_both_are_news_at_once() -> None:
    lines, job = EventLines(b"a" * 40, 7, str), Job(b"DI" + b"0" * 46, b"q", b"", 1, WISHES[0][0])
    lines.awaited = True
    lines.act(5, 1, "anna")
    lines.add(job)
    assert not lines.is_news()
    lines.become(6, 2, b"b" * 40)
    lines.add(job)
    assert lines.is_news()
    first, second = lines.take()
    assert [(part.node_id[:1], part.boot, part.first, part.count) for part in (first, second)] == [
        (b"a", 7, 1, 2), (b"b", 8, 1, 2),
    ]  # fmt: skip
    found = [json.loads(line) for part in (first, second) for line in b"".join(part.pieces).splitlines()]
    assert [(line["boot"], line["seq"], line["event"], line.get("reason")) for line in found] == [
        (7, 1, "add", None), (7, 2, "stop", "reset"), (8, 1, "start", "on"), (8, 2, "add", None),
    ]  # fmt: skip
    assert [line["ts_us"] for line in found] == [5_000, 6_000, 6_000, 5_000]
    assert "after_boot" not in found[2], "there is no line of this node before it"


def test_notes_that_are_too_many_are_lost_all_and_counted_but_for_the_id_that_the_node_has_now() -> None:
    notes, job = Notes(b"a" * 40, 1, 2), Job(b"DI" + b"0" * 46, b"q", b"", 1, WISHES[0][0])
    notes.become(1, 1, b"b" * 40)
    for wall in range(5):
        notes.act(wall, 1, None)  # moments at which nothing happens do not count, and are not kept
    notes.add(job)
    assert (notes.count, notes.lost, len(notes._kept)) == (2, 0, 3)
    notes.deliver(job, 1)
    assert (notes.count, notes.lost) == (1, 2)
    assert not notes.is_news()
    notes.add(job)
    lines = EventLines(b"a" * 40, 7, str)
    notes.retell(lines)
    assert [(part.node_id[:1], part.count) for part in lines.take()] == [(b"a", 1), (b"b", 2)]


TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("traceparent", "found"),
    [
        (TRACEPARENT, True),
        (f"cc-{TRACE_ID}-00f067aa0ba902b7-01-more", True),
        (f"00-{TRACE_ID}-00f067aa0ba902b7-01-more", False),
        (f"cc-{TRACE_ID}-00f067aa0ba902b7-01more", False),
        (f"ff-{TRACE_ID}-00f067aa0ba902b7-01", False),
        (f"00-{'0' * 32}-00f067aa0ba902b7-01", False),
        (f"00-{TRACE_ID}-{'0' * 16}-01", False),
        (TRACEPARENT.upper(), False),
        (TRACEPARENT[:-1], False),
        (f" {TRACEPARENT}", False),
        (f"{TRACEPARENT}\n", False),
        ('00-","job_id":"x', False),
        ("", False),
    ],
)
def test_a_trace_id_is_read_from_a_traceparent_as_w3c_has_it_and_from_no_other(traceparent: str, found: bool) -> None:
    headers = ((b"tracestate", b"a=b"), (b"traceparent", traceparent.encode()))
    assert trace_id_of(headers).decode() == (TRACE_ID if found else "")
    assert trace_id_of(headers[:1]) == b""


def traced(server: Server, *words: Any, traceparent: str = TRACEPARENT) -> Any:
    return server.add("q", "x", "RETRY", 10, "HEADER", "size", "32", "HEADER", "traceparent", traceparent, *words)


def test_every_line_of_a_job_with_a_traceparent_has_its_trace_id_behind_its_queue(server: Server) -> None:
    read = follow(server)
    job_id = traced(server, "MAXTRIES", 2, "DELAY", 1)
    server.advance(1_500)
    server.get("q")
    server("WORKING", job_id)
    server("NACK", job_id)
    server.get("q")
    server.advance(10_500)
    server("REDRIVE", "q")
    server.advance(500)
    server.get("q")
    server("ACKJOB", job_id)
    traced(server)
    server.get("q")
    server.advance(10_500)
    server("CANCEL", traced(server))
    server("DELJOB", traced(server))
    traced(server, "TTL", 1, "RETRY", 0)
    server.advance(1_500)
    lines = read()
    assert {line["event"] for line in lines} == {
        "add", "enqueue", "deliver", "working", "nack", "dead", "redriven", "ack", "requeue", "cancelled", "delete",
        "expire",
    }  # fmt: skip
    for line in lines:
        assert line["trace_id"] == TRACE_ID, line
        names = list(line)
        assert names.index("trace_id") == names.index("queue") + 1, line


def test_a_plain_delivery_and_acknowledgement_have_the_trace_id_also_of_endings_alone(server: Server) -> None:
    read = follow(server)
    for plain in (True, False, True):
        job_id = server.add("q", "x", "RETRY", 10) if plain else traced(server)
        server.get("q")
        server("ACKJOB", job_id)
    told = brief(read(), "trace_id")
    assert told == [(event, trace) for trace in (None, TRACE_ID, None) for event in ("add", "deliver", "ack")]
    read = follow(server, endings_alone=True)
    job_id = traced(server)
    server.get("q")
    server("ACKJOB", job_id)
    assert brief(read(), "trace_id", "attempt") == [("ack", TRACE_ID, 1)]


def test_other_headers_and_a_malformed_traceparent_give_no_trace_id_and_no_error(server: Server) -> None:
    read = follow(server)
    for words in (("HEADER", "traceparent", '"}\n'), ("HEADER", "Traceparent", TRACEPARENT), ("HEADER", "a", "b")):
        job_id = server.add("q", "x", "RETRY", 10, *words)
        server.get("q")
        server("ACKJOB", job_id)
    assert brief(read(), "trace_id") == [("add", None), ("deliver", None), ("ack", None)] * 3


def test_every_line_of_a_job_with_a_group_has_it_behind_its_queue(server: Server) -> None:
    read = follow(server)
    for words in (("GROUP", 'a"\\\n'), ("GROUP", b"\xff", "HEADER", "traceparent", TRACEPARENT), ()):
        job_id = server.add("q", "x", "RETRY", 10, *words)
        server.get("q")
        server("NACK", job_id)
        server.get("q")
        server("ACKJOB", job_id, "RESULT", "done")
        server.add("q", "x", "RETRY", 0, "TTL", 1, *words)
        server.advance(1_500)
    lines = read()
    events = ["add", "deliver", "nack", "deliver", "ack", "add", "expire"]
    assert [(line["event"], line.get("group")) for line in lines] == [
        (event, group) for group in ('a"\\\\\n', "\\xff", None) for event in events
    ]
    for line in lines[: 2 * len(events)]:
        names = list(line)
        assert names.index("group") == names.index("queue") + 1, line
        assert ("trace_id" in line) == (line["group"] == "\\xff")
    read = follow(server, endings_alone=True)
    job_id = server.add("q", "x", "RETRY", 10, "GROUP", "acme")
    server.get("q")
    server("ACKJOB", job_id)
    assert brief(read(), "group", "attempt") == [("ack", "acme", 1)]


def test_every_line_of_a_job_of_a_schedule_has_its_name_behind_the_queue_and_the_group(server: Server) -> None:
    read = follow(server)
    name = b'nightly"\xff'
    for words in (("GROUP", "acme"), ("HEADER", "traceparent", TRACEPARENT), ()):
        server("SCHEDULE", "SET", name, "EVERY", 3_600, "QUEUE", "q", "BODY", "x", "RETRY", 10, *words)
        job_id = server("SCHEDULE", "FIRE", name)
        server.get("q")
        server("NACK", job_id)
        server.get("q")
        server("ACKJOB", job_id)
    lines = read()
    events = ["add", "deliver", "nack", "deliver", "ack"]
    assert brief(lines, "schedule") == [(event, 'nightly"\\xff') for event in events * 3]
    for line in lines:
        names = list(line)
        assert names[names.index("schedule") - 1] == ("group" if "group" in line else "queue"), line
        if "trace_id" in line:
            assert names[names.index("schedule") + 1] == "trace_id"
    server.add("other", "x", "RETRY", 10)
    assert brief(read(), "schedule") == [("add", None)]
    read = follow(server, endings_alone=True)
    job_id = server("SCHEDULE", "FIRE", name)
    server.get("q")
    server("ACKJOB", job_id)
    assert brief(read(), "schedule", "attempt") == [("ack", 'nightly"\\xff', 1)]


def test_nodes_with_copies_tell_the_trace_id_too() -> None:
    first, second, _ = Cluster(3)
    reads = [follow(node) for node in (first, second)]
    first("ADDJOB", "q", "x", 0, "REPLICATE", 3, "RETRY", 10, "HEADER", "traceparent", TRACEPARENT)
    [job] = second.state.jobs
    second("ACKJOB", job.id)
    found = [brief(read(), "trace_id") for read in reads]
    assert ("add", TRACE_ID) in found[0]
    assert ("replicate", TRACE_ID) in found[1]
    assert {line[1] for lines in found for line in lines} == {TRACE_ID}


def test_a_trace_id_survives_a_fate_and_lines_kept_as_notes(server: Server) -> None:
    notes = Notes(server.state.node_id, 0, 100)
    server.state.trace.full = server.state.trace.endings = notes
    job_id = traced(server)
    server.get("q")
    server("ACKJOB", job_id, "RESULT", "done")
    lines = EventLines(server.state.node_id, 7, str)
    notes.retell(lines)
    told = [json.loads(line) for line in taken(lines).splitlines()]
    assert brief(told, "trace_id") == [("add", TRACE_ID), ("deliver", TRACE_ID), ("ack", TRACE_ID)]
