"""Commands on jobs: their grammar, their errors, and what they answer.  What jobs then do is in test_delivery."""

import re

import pytest

from disqued.commands import table
from disqued.commands.jobs import HEADER, JOBS_AT_ONCE, PLACE_MAX, SHOWN
from disqued.commands.table import BLOCKED, LONG
from disqued.errors import CommandError
from tests.core_fixtures import NODE_ID, OLD_ID, UNKNOWN_ID, Server, Word, words

SYNTAX = "ERR syntax error"
NOT_A_TIMEOUT = "ERR timeout is not an integer or out of range"
NEGATIVE_TIMEOUT = "ERR timeout is negative"
BAD_ID = "BADID Invalid Job ID format."
#: What is allowed among the ids of a command, behind what Disque says.
MISTYPED = {
    **dict.fromkeys(("FASTACK", "DELJOB", "ENQUEUE", "DEQUEUE", "CANCEL"), " - allowed are job ids alone"),
    "ACKJOB": " - allowed are job ids, and the option RESULT",
    "NACK": " - allowed are job ids, and the options DELAY, REASON, DEAD and UNTRIED",
    "REDRIVE": " - allowed are job ids, and the options COUNT, ID and RATE",
    "WAITJOB": " - allowed are job ids, and the options ANY and PROGRESS",
}
ONCE = "ERR With RETRY set to 0 please explicitly set  REPLICATE to 1 (at-most-once delivery)"
DELAY_TOO_LONG = "ERR The specified DELAY is greater than TTL. Job refused since would never be delivered"
TTL, RETRY, DELAY = (
    "ERR TTL must be a number > 0",
    "ERR RETRY time must be a non negative number",
    "ERR DELAY time must be a non negative number",
)
REPLICATE = "ERR REPLICATE must be between 1 and 65535"
MAXLEN = "ERR MAXLEN must be a positive number"
COUNT = "ERR COUNT must be a number greater than zero"


def arity(name: str) -> str:
    """The error of a command with too few or too many words."""
    return f"ERR wrong number of arguments for '{name}' command"


def limit(name: str) -> str:
    """The error of a span that no record could hold."""
    return f"ERR {name} must be below 2147483648 seconds"


@pytest.fixture
def server() -> Server:
    return Server()


# ADDJOB.


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ((), arity("addjob")),
        (("q",), arity("addjob")),
        (("q", "x"), arity("addjob")),
        (("q", "x", "y"), NOT_A_TIMEOUT),
        (("q", "x", "1.5.0"), NOT_A_TIMEOUT),
        (("q", "x", " 1"), NOT_A_TIMEOUT),
        (("q", "x", 2**63), NOT_A_TIMEOUT),
        (("q", "x", "-"), NOT_A_TIMEOUT),
        (("q", "x", -1), NEGATIVE_TIMEOUT),
        (("q", "x", 0, "WHAT"), SYNTAX),
        (("q", "x", 0, ""), SYNTAX),
        (("q", "x", 0, "ASYNC", "ASYNCX"), SYNTAX),
        (("q", "x", 0, b"TTL\x00", 5), SYNTAX),
        *((("q", "x", 0, word), SYNTAX) for word in ("TTL", "RETRY", "DELAY", "REPLICATE", "MAXLEN")),
        *((("q", "x", 0, "TTL", value), TTL) for value in (0, -1, "x", "1.0x", "-1e-9", "nan", "")),
        *((("q", "x", 0, "RETRY", value), RETRY) for value in (-1, "x", "0x1")),
        *((("q", "x", 0, "DELAY", value), DELAY) for value in (-1, "x")),
        *((("q", "x", 0, "REPLICATE", value), REPLICATE) for value in (0, -1, 65_536, "x", "")),
        *((("q", "x", 0, "MAXLEN", value), MAXLEN) for value in (0, -1, "x")),
        (("q", "x", 0, "TTL", 10, "DELAY", 10), DELAY_TOO_LONG),
        (("q", "x", 0, "DELAY", 86_400), DELAY_TOO_LONG),
        (("q", "x", 0, "RETRY", 0, "REPLICATE", 2), ONCE),
        (("q", "x", "y", "TTL", 0), TTL),  # options before the time-out
        (("q", "x", 0, "RETRY", -1, "TTL", 0), RETRY),  # options from left to right
        (("q", "x", 0, "TTL", 0, "NONSENSE"), TTL),
    ],
)
def test_addjob_refuses_what_it_cannot_read(server: Server, args: tuple[Word, ...], line: str) -> None:
    assert server.refusal("ADDJOB", *args).partition(" - ")[0] == line
    assert len(server.state.jobs) == 0


@pytest.mark.parametrize("name", ["TTL", "RETRY", "DELAY"])
@pytest.mark.parametrize("value", [2**31, 2**32, 2**32 + 1, 2**63 - 1])
def test_spans_that_no_record_could_hold_are_refused_as_defect_15_of_the_c_version_did_not(
    server: Server, name: str, value: int
) -> None:
    assert server.refusal("ADDJOB", "q", "x", 0, name, value) == limit(name)


def test_the_longest_span_that_is_accepted_is_kept_exactly(server: Server) -> None:
    longest = 2**31 - 1
    shown = server.show(server.add("q", "x", "TTL", longest, "RETRY", longest, "DELAY", longest - 1))
    assert shown is not None
    assert (shown["ttl"], shown["retry"], shown["delay"]) == (longest, longest, longest - 1)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("TTL", 50), {"ttl": 50, "retry": 5}),
        (("ttl", "+50"), {"ttl": 50}),
        (("tTl", "050"), {"ttl": 50}),
        (("TTL", 50, "TTL", 60), {"ttl": 60}),
        (("RETRY", 7), {"retry": 7}),
        (("RETRY", ""), {"retry": 0}),
        (("RETRY", 0, "REPLICATE", 1), {"retry": 0, "next-requeue-within": None, "next-awake-within": 86_400_000}),
        (("DELAY", 7), {"delay": 7, "state": b"active", "next-requeue-within": 7_000}),
        (("DELAY", 7, "RETRY", 0), {"delay": 7, "retry": 0, "next-requeue-within": 7_000}),
        (("ASYNC",), {"state": b"queued"}),
        (("async", "REPLICATE", 1, "MAXLEN", 5, "TTL", 9, "RETRY", 3, "DELAY", 2), {"ttl": 9, "retry": 3, "delay": 2}),
    ],
)
def test_addjob_takes_its_options_in_any_order_and_case(
    server: Server, options: tuple[Word, ...], expected: dict[str, object]
) -> None:
    shown = server.show(server.add("q", "x", *options))
    assert shown is not None
    assert {name: shown[name] for name in expected} == expected


@pytest.mark.parametrize("timeout", ["0", "", "-0", "+5", 2**63 - 1])
def test_addjob_reads_its_time_out_as_disque_does(server: Server, timeout: Word) -> None:
    server("ADDJOB", "q", "x", timeout)


@pytest.mark.parametrize(
    ("queue", "body"), [(b"", b""), (b"\x00\r\n", bytes(range(256))), (b"q" * 5_000, b"x" * 100_000)]
)
def test_queue_names_and_bodies_are_any_bytes(server: Server, queue: bytes, body: bytes) -> None:
    job_id = server.add(queue, body)
    assert server("QPEEK", queue, 1) == server.get(queue) == [(queue, job_id, body)]


# GETJOB.


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ((), arity("getjob")),
        (("FROM",), SYNTAX),
        (("q",), SYNTAX),
        (("NOHANG",), SYNTAX),
        (("NOHANG", "WITHCOUNTERS"), SYNTAX),
        (("WHAT", "FROM", "q"), SYNTAX),
        (("TIMEOUT",), SYNTAX),
        (("NOHANG", "COUNT"), SYNTAX),
        (("COUNT", "FROM", "q"), COUNT),
        *((("COUNT", value, "FROM", "q"), COUNT) for value in (0, -1, "x", 2**63)),
        (("TIMEOUT", "x", "FROM", "q"), NOT_A_TIMEOUT),
        (("TIMEOUT", -1, "FROM", "q"), NEGATIVE_TIMEOUT),
        (("COUNT", 0, "TIMEOUT", -1, "FROM", "q"), COUNT),
    ],
)
def test_getjob_refuses_what_it_cannot_read(server: Server, args: tuple[Word, ...], line: str) -> None:
    assert server.refusal("GETJOB", *args).partition(" - ")[0] == line
    assert len(server.state.queues) == 0


def test_everything_after_from_is_the_name_of_a_queue(server: Server) -> None:
    server.add("COUNT", "1")
    server.add("from", "2")
    server.add("", "3")
    assert [row[2] for row in server("GETJOB", "COUNT", 3, "from", "COUNT", "from", "")] == [b"1", b"2", b"3"]


def test_getjob_takes_its_options_in_any_order_and_case(server: Server) -> None:
    job_id = server.add()
    assert server("getjob", "timeout", 5, "withcounters", "count", 3, "nohang", "from", "q") == [
        (b"q", job_id, b"body", b"nacks", 0, b"additional-deliveries", 0)
    ]


def test_getjob_waits_unless_told_not_to(server: Server) -> None:
    assert server("GETJOB", "NOHANG", "FROM", "q") is None
    assert server("GETJOB", "FROM", "q") is BLOCKED


def test_one_call_takes_a_bounded_number_of_jobs_whatever_it_asks_for(server: Server) -> None:
    server.node.begin()
    for number in range(JOBS_AT_ONCE + 5):
        server.run("ADDJOB", "q", number, 0)
    assert len(server("GETJOB", "COUNT", 2**63 - 1, "FROM", "q")) == JOBS_AT_ONCE
    assert [row[2] for row in server("GETJOB", "COUNT", 100_000, "FROM", "q")] == [
        b"%d" % number for number in range(JOBS_AT_ONCE, JOBS_AT_ONCE + 5)
    ]


# Commands on ids.

ON_IDS = ["ACKJOB", "FASTACK", "DELJOB", "ENQUEUE", "NACK", "DEQUEUE"]


@pytest.mark.parametrize("verb", ON_IDS)
def test_a_command_on_ids_may_be_given_none(server: Server, verb: str) -> None:
    assert server(verb) == 0


@pytest.mark.parametrize("verb", ON_IDS)
def test_one_bad_id_and_nothing_at_all_is_done(server: Server, verb: str) -> None:
    job_id = server.add()
    if verb in ("ENQUEUE", "NACK"):
        server.get()
    before = server.show(job_id)
    assert server.refusal(verb, job_id, "what") == BAD_ID + MISTYPED[verb]
    assert server.show(job_id) == before
    assert server(verb, job_id) == 1


@pytest.mark.parametrize("verb", ON_IDS)
def test_ids_of_both_forms_may_be_unknown(server: Server, verb: str) -> None:
    assert server(verb, UNKNOWN_ID, OLD_ID) == 0


@pytest.mark.parametrize(
    ("verb", "delayed", "queued", "delivered", "once_delivered"),
    [
        ("ACKJOB", 1, 1, 1, 1),
        ("FASTACK", 1, 1, 1, 1),
        ("DELJOB", 1, 1, 1, 1),
        ("ENQUEUE", 1, 0, 1, 0),
        ("NACK", 1, 0, 1, 0),
        ("DEQUEUE", 0, 1, 0, 0),
    ],
)
def test_what_applies_to_a_job_depends_on_where_it_stands(
    server: Server, verb: str, delayed: int, queued: int, delivered: int, once_delivered: int
) -> None:
    once = server.add("q", "once", "RETRY", 0)
    out = server.add("q", "delivered")
    server.get(count=2)
    late = server.add("q", "delayed", "DELAY", 9)
    waiting = server.add("q", "queued")
    counts = [server(verb, job_id) for job_id in (late, waiting, out, once)]
    assert counts == [delayed, queued, delivered, once_delivered]


@pytest.mark.parametrize(
    ("args", "line"),
    [
        ((), arity("working")),
        ((UNKNOWN_ID, UNKNOWN_ID), f"ERR syntax error - unknown option {UNKNOWN_ID.decode()!r}; expected PROGRESS"),
        (("what",), BAD_ID),
        ((UNKNOWN_ID,), "NOJOB Job not known in the context of this node."),
        ((OLD_ID,), "NOJOB Job not known in the context of this node."),
    ],
)
def test_working_refuses_what_it_does_not_know(server: Server, args: tuple[Word, ...], line: str) -> None:
    assert server.refusal("WORKING", *args) == line


# SHOW.


@pytest.mark.parametrize(
    ("args", "line"), [((), arity("show")), ((UNKNOWN_ID, "x"), arity("show")), (("what",), BAD_ID), (("",), BAD_ID)]
)
def test_show_refuses_what_is_no_id(server: Server, args: tuple[Word, ...], line: str) -> None:
    assert server.refusal("SHOW", *args) == line


def test_show_of_an_unknown_job_is_null(server: Server) -> None:
    assert server("SHOW", UNKNOWN_ID) is None
    assert server("SHOW", OLD_ID) is None


def test_show_tells_fifteen_things_in_the_order_of_disque(server: Server) -> None:
    job_id = server.add("q", "x", "TTL", 100, "RETRY", 20, "DELAY", 5)
    server.advance(1_500)
    values = server("SHOW", job_id)
    assert [name.decode() for name in values[::2]] == [*SHOWN, "phase"]
    assert values[1:30:2] == [
        job_id, b"q", b"active", 1, 99, server.job(job_id).ctime, 5, 20, 0, 0, [NODE_ID], [], 3_500, 3_500, b"x"
    ]  # fmt: skip


def test_show_tells_the_place_of_a_job_in_its_queue_as_long_as_it_is_near(server: Server) -> None:
    ids = [server.add("q", f"{number}") for number in range(PLACE_MAX + 1)]
    shown = [server.show(job_id) for job_id in (ids[0], ids[1], ids[-2], ids[-1])]
    assert [one.get("place") for one in shown if one is not None] == [1, 2, PLACE_MAX, None]
    assert list(shown[0] or ())[-1] == "place", "behind all others"
    server.get("q")
    assert "place" not in (server.show(ids[0]) or {}), "a consumer has it"
    assert (server.show(ids[-1]) or {})["place"] == PLACE_MAX
    _, rows = server("JSCAN", 0, "QUEUE", "q", "REPLY", "all", "COUNT", 10)
    assert not any(b"place" in row for row in rows)


def test_show_tells_when_and_where_a_job_was_acknowledged_that_has_a_result(server: Server) -> None:
    job_id = server.add("q", "x", "RESULT", 60)
    server.get("q")
    server.advance(3_000)
    assert "result-from" not in (server.show(job_id) or {})
    server("ACKJOB", job_id, "RESULT", "sent")
    server.advance(3_000)
    shown = server.show(job_id) or {}
    assert shown["result-from"] == [server.clock.wall() - 3_000, server.node.id]
    assert list(shown)[-1] == "result-from", "behind all others"


def test_show_rounds_the_ttl_up_and_never_below_zero(server: Server) -> None:
    job_id = server.add("q", "x", "TTL", 2)
    ttls = []
    for _ in range(5):
        ttls.append(server.show(job_id)["ttl"])  # type: ignore[index]
        server.clock.advance(500)  # and no tick
    assert ttls == [2, 2, 1, 1, 0]


def test_show_does_not_change_what_it_shows(server: Server) -> None:
    job_id = server.add()
    assert server.show(job_id) == server.show(job_id)
    assert server.bodies() == [b"body"]


# What the table says of these commands.


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ADDJOB", -4), ("GETJOB", -2), ("ACKJOB", -1), ("FASTACK", -1), ("DELJOB", -1), ("SHOW", 2), ("ENQUEUE", -1),
        ("NACK", -1), ("DEQUEUE", -1), ("WORKING", -2), ("QLEN", 2), ("QPEEK", -3), ("PAUSE", -3), ("QSCAN", -1),
        ("JSCAN", -1),
    ],
)  # fmt: skip
def test_arities_are_those_of_disque(name: str, expected: int) -> None:
    # But for QPEEK, which may have a word more.
    assert table.find(words([name, "x", "y", "z"])).arity == expected


@pytest.mark.parametrize("name", ["ADDJOB", "addjob", "AddJob"])
def test_names_are_read_in_any_case(server: Server, name: str) -> None:
    server(name, "q", "x", 0)
    assert server("qLeN", "q") == 1


@pytest.mark.parametrize("name", ["ADDJOBS", "", "ADDJO"])
def test_an_unknown_name_is_answered_as_it_was_sent(server: Server, name: str) -> None:
    assert server.refusal(name, "q", "x", 0) == f"ERR unknown command '{name}'"


@pytest.mark.parametrize(
    "words",
    [
        ("ACKJOB", "ids", "RESULT", "x"), ("ACKJOB", "RESULT", "x", "ids"), ("ACKJOB", "ids", "RESULT"),
        ("ACKJOB", "ids", "FOO"), ("NACK", "ids", "DELAY", "5", "REASON", "no"), ("NACK", "DEAD", "ids"),
        ("NACK", "REASON", "no", "ids", "DELAY", "5"), ("NACK", "ids", "DELAY"), ("NACK", "ids", "DELAY", "x"),
        ("NACK", "ids", "UNTRIED", "DEAD"), ("NACK", "ids", "REASON", "DEAD"), ("NACK", "ids", "FOO"),
        ("NACK", "FOO", "ids"), ("DELJOB", "ids", "FOO"), ("ENQUEUE", "ids", "DEAD"),
    ],
)  # fmt: skip
def test_options_are_read_alike_whether_ids_are_few_or_many(words: tuple[str, ...]) -> None:
    answers = []
    for count in (2, LONG):
        server = Server()
        ids = [server.add("q", "body", "RETRY", 60) for _ in range(count)]
        server.get("q", count=count)
        sent = [word for given in words for word in (ids if given == "ids" else [given])]
        try:
            answer = server(*sent, client="anna")
            if answer is BLOCKED:
                server.advance(1)
                (answer,) = server.answers["anna"]
        except CommandError as error:
            answer = error
        if isinstance(answer, CommandError):
            answers.append((str(answer.line, "ascii"), b"active", 0))
        else:
            shown = server.show(ids[-1])
            assert shown is not None
            answers.append((answer // count, shown["state"], len(shown.get("failures", ()))))  # type: ignore[operator]
    assert answers[0] == answers[1]


def test_options_alone_are_no_ids_however_many_they_are() -> None:
    words = ["DEAD"] * (LONG + 1)
    assert Server().refusal("NACK", *words) == "ERR DEAD is given twice; allowed is once"


@pytest.mark.parametrize("count", [1, LONG + 1])
@pytest.mark.parametrize("name", MISTYPED)
def test_a_mistyped_option_among_ids_is_answered_with_the_options(name: str, count: int) -> None:
    server = Server()
    before: dict[str, tuple[Word, ...]] = {"REDRIVE": ("q", "ID"), "WAITJOB": (100,)}
    server_words = (name, *before.get(name, ()), *[UNKNOWN_ID] * count, "REUSLT")
    if count > 1 and name in ("FASTACK", "DELJOB", "ENQUEUE", "DEQUEUE", "ACKJOB", "NACK"):
        server(*server_words, client="anna")
        server.advance(1)
        [error] = server.answers["anna"]
        assert isinstance(error, CommandError)
        line = error.line.decode()
    else:
        line = server.refusal(*server_words)
    assert line == BAD_ID + MISTYPED[name]


def test_a_wait_is_never_without_a_timeout() -> None:
    server = Server()
    assert server.refusal("WAITJOB", "", UNKNOWN_ID).startswith("ERR timeout is not an integer or out of range")
    assert server.refusal("WAITJOB", 5, "ANY") == (
        "ERR wrong number of arguments for 'waitjob' command - needed as well: Jobs to wait for, 1000 at most"
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["HEADER", "", "x"], "ERR header name ''; allowed are 1 to 255 bytes of printable ASCII"),
        (["HEADER", "n\r\n", "x"], r"ERR header name 'n\r\n'; allowed are 1 to 255 bytes of printable ASCII"),
        (["HEADER", "a", "1", "HEADER", "a", "2"], "ERR header 'a' is given twice; allowed is once"),
        ([word for n in range(17) for word in ("HEADER", f"h{n}", "")], "ERR 17 headers; allowed are 16"),
        (["HEADER", "a", "x" * 8_192], "ERR headers of 8193 bytes; allowed are 8192"),
    ],
)
def test_the_reference_knows_each_error_of_headers(words: list[str], line: str) -> None:
    server = Server()
    assert server.refusal("ADDJOB", "q", "body", 0, *words) == line
    known = [re.escape(each) for each in HEADER.errors]
    patterns = [each.replace("<n>", "[0-9]+").replace("<name>", ".*") for each in known]
    assert any(re.fullmatch(pattern, line) for pattern in patterns)
    assert server.add("q", "body", "HEADER", "a", "1", "HEADER", "A", "2")
