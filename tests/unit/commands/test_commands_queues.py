"""Commands on queues: their grammar, their errors, what they answer, and that a walk misses nothing."""

from random import Random
from typing import Any

import pytest

from disqued.commands import scans
from disqued.commands.jobs import JOBS_AT_ONCE
from disqued.commands.scans import DESCRIBED_MAX, ELEMENTS_MAX, LOOKED_AT_MAX, STATISTICS_MAX
from disqued.commands.table import BLOCKED
from disqued.core.model.job import QUEUED, WAIT_REPL
from disqued.core.model.queues import BLOCK
from disqued.core.model.registry import TABLES
from disqued.core.work.delivery import FETCHED_BYTES
from tests.cluster_fixtures import Cluster
from tests.core_fixtures import NODE_ID, UNKNOWN_ID, Server, Word

SYNTAX = "ERR syntax error"
NOT_AN_INTEGER = "ERR value is not an integer or out of range"
NO_IDLE_TIME = "ERR MAXIDLE must be a number of seconds, whose milliseconds have 64 bits at most"
BAD_CURSOR = "ERR invalid cursor or option name"
BAD_STATE = (
    "ERR Invalid job state name - allowed are wait-repl, active, queued, acked, dead, ready, in-flight, delayed,"
    " elsewhere, done"
)
BAD_PAUSE = "ERR syntax error - allowed are in, out, all, none, state, bcast, node, and REASON with a text"
BAD_REPLY = "ERR Invalid REPLY type, try ID or ALL"


def arity(name: str) -> str:
    """The error of a command with too few or too many words."""
    return f"ERR wrong number of arguments for '{name}' command"


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("QLEN",), arity("qlen")),
        (("QLEN", "q", "r"), arity("qlen")),
        (("QPEEK", "q"), arity("qpeek")),
        (("QPEEK", "q", 1, 2), "ERR syntax error"),
        (("QPEEK", "q", "x"), NOT_AN_INTEGER),
        (("QPEEK", "q", 2**63), NOT_AN_INTEGER),
        (("QSTAT",), arity("qstat")),
        (("QSTAT", "q", "MORE"), SYNTAX),
        (("PAUSE",), arity("pause")),
        (("PAUSE", "q"), arity("pause")),
        (("PAUSE", "q", "what"), BAD_PAUSE),
        (("PAUSE", "q", "in", "what"), BAD_PAUSE),
        (
            ("PAUSE", "q", "REASON", "x"),
            f"{arity('pause')} - needed as well: in, out, all, none, state, node or bcast",
        ),
        (("QPURGE", "q", "STATES", "dead"), "ERR syntax error - unknown option 'STATES'; expected STATE or DRYRUN"),
        (("REDRIVE", "q", "RATE", 1_000_001), "ERR RATE must be a whole number from 1 to 1000000"),
        *(((scan, "x"), BAD_CURSOR) for scan in ("QSCAN", "JSCAN")),
        *(((scan, 0, 0), BAD_CURSOR) for scan in ("QSCAN", "JSCAN")),
        *(((scan, "COUNT"), BAD_CURSOR) for scan in ("QSCAN", "JSCAN")),
        *(((scan, 0, "COUNT"), BAD_CURSOR) for scan in ("QSCAN", "JSCAN")),
        *(((scan, "COUNT", "x"), NOT_AN_INTEGER) for scan in ("QSCAN", "JSCAN")),
        *(((scan, 2**64), BAD_CURSOR) for scan in ("QSCAN", "JSCAN")),
        *((("QSCAN", word, "x"), NOT_AN_INTEGER) for word in ("MINLEN", "MAXLEN", "IMPORTRATE")),
        *(((name, "MAXIDLE", word), NO_IDLE_TIME) for name in ("QSCAN", "JSCAN") for word in ("x", "nan", "1e400")),
        (("JSCAN", "STATE", "over"), BAD_STATE),
        (("JSCAN", "STATE", "wait_repl"), BAD_STATE),
        (("JSCAN", "REPLY", "some"), BAD_REPLY),
        (("QSCAN", "QUEUE", "q"), BAD_CURSOR),
        (("QSCAN", "REPLY", "id"), "ERR Invalid REPLY type, try NAME, KNOWN, FIGURES or ALL"),
        (("JSCAN", "MINLEN", 1), BAD_CURSOR),
        (("SCAN", "BOTH", 0), "ERR SCAN takes JOB or QUEUE, then a cursor and options"),
        (("SCAN", "JOB", 0, 0), BAD_CURSOR),
    ],
)
def test_what_cannot_be_read_is_refused(server: Server, args: tuple[Word, ...], line: str) -> None:
    refusal = server.refusal(*args)
    assert refusal == line or refusal.startswith(f"{line} - ")


# QLEN, QPEEK.


def test_a_queue_that_does_not_exist_is_empty(server: Server) -> None:
    assert server("QLEN", "q") == 0
    assert server("QPEEK", "q", 5) == []
    assert server("QSTAT", "q") is None


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, []),
        (1, [0]),
        (3, [0, 1, 2]),
        (9, [0, 1, 2, 3, 4]),
        (-1, [4]),
        (-3, [4, 3, 2]),
        (-9, [4, 3, 2, 1, 0]),
        (2**63 - 1, [0, 1, 2, 3, 4]),
        (-(2**63), [4, 3, 2, 1, 0]),
    ],
)
def test_qpeek_looks_from_either_end_and_takes_nothing(server: Server, count: int, expected: list[int]) -> None:
    for number in range(5):
        server.add("q", number)
    assert [body for _, _, body in server("QPEEK", "q", count)] == [b"%d" % number for number in expected]
    assert server("QLEN", "q") == 5


def test_qpeek_describes_jobs_in_brief(server: Server) -> None:
    first, second = server.add("q", "to: ann"), server.add("q", "x")
    server.advance(1_500)
    assert [list(row) for row in server("QPEEK", "q", 5, "BRIEF", 4)] == [
        [b"q", first, b"to: ", b"size", 7, b"age", 1_500], [b"q", second, b"x", b"size", 1, b"age", 1_500],
    ]  # fmt: skip
    assert [row[2] for row in server("QPEEK", "q", 5, "BRIEF", 0)] == [b"", b""]
    assert server.refusal("QPEEK", "q", 5, "BRIEF", -1) == (
        "ERR BRIEF is out of range - allowed are whole numbers of bytes from 0 to 65536"
    )


def test_qpeek_sees_a_queue_that_is_paused(server: Server) -> None:
    server.add()
    server("PAUSE", "q", "all")
    assert len(server("QPEEK", "q", 1)) == 1


@pytest.mark.parametrize("sign", [1, -1])
def test_one_qpeek_shows_a_bounded_number_of_jobs(server: Server, sign: int) -> None:
    server.node.begin()
    for number in range(JOBS_AT_ONCE + 5):
        server.run("ADDJOB", "q", number, 0)
    bodies = [int(body) for _, _, body in server("QPEEK", "q", sign * 100_000)]
    everything = list(range(JOBS_AT_ONCE + 5))
    assert bodies == everything[::sign][:JOBS_AT_ONCE]


def test_one_qpeek_shows_a_bounded_size_of_jobs_but_one_at_least(server: Server) -> None:
    for size in (FETCHED_BYTES // 2, FETCHED_BYTES // 2, 2 * FETCHED_BYTES):
        server.add("q", b"x" * size)
    assert len(server("QPEEK", "q", 10)) == 2
    assert len(server("QPEEK", "q", -10)) == 1


# QSTAT.


def test_qstat_counts_what_comes_and_goes(server: Server) -> None:
    job_id = server.add("q", "x", "RETRY", 1)
    server.get()
    server.advance(1_000)
    server.get()
    server("NACK", job_id)
    server("DEQUEUE", job_id)
    server("ENQUEUE", job_id)
    server("WORKING", job_id)
    server("ACKJOB", job_id)
    server.add("q", "y")
    server.advance(2_500)
    assert server.stat() == {
        "name": b"q", "len": 1, "age": 3, "idle": 2, "blocked": 0, "import-from": [], "import-rate": 0,
        "jobs-in": 5, "jobs-out": 2, "pause": b"none",
        "produced": 2, "consumed": 1, "sources": [], "ctime": server.clock.wall() // 1_000 - 3,
        "pause-reason": b"", "pause-by": b"", "pause-at": 0, "pause-node": b"none", "dead": 0, "failing": 0,
        "delayed": 0, "groups": 0, "throttled-for": 0, "inflight": 0, "group-inflight": 0, "rate": b"",
        "group-rate": b"", "partition": b"", "slots": 0, "slots-awaited": 0, "steward": b"",
        "slots-blocked": b"", "in-flight": 0, "elsewhere": 0, "done": 0, "oldest": 2, "delivered": 2, "slots-lost": 0,
    }  # fmt: skip


def test_qstat_full_tells_of_a_queue_that_has_delayed_jobs_alone(server: Server) -> None:
    job_id = server.add("q", "x", "DELAY", 60)
    assert server("QSTAT", "q") is None
    found = server.stat()
    assert (found["len"], found["delayed"], found["in-flight"], found["done"], found["oldest"]) == (0, 1, 0, 0, -1)
    assert not server.state.queues.by_name, "to look makes no queue"
    server("DELJOB", job_id)
    assert server("QSTAT", "q", "FULL") is None


def test_qstat_without_full_has_the_ten_pairs_of_disque(server: Server) -> None:
    server.add()
    assert [name.decode() for name in server("QSTAT", "q")[::2]] == [
        "name", "len", "age", "idle", "blocked", "import-from", "import-rate", "jobs-in", "jobs-out", "pause"
    ]  # fmt: skip


def test_blocking_is_no_use_of_a_queue_but_fetching_is(server: Server) -> None:
    server.add()
    server.advance(5_000)
    server("GETJOB", "FROM", "q", "other", client="anna")
    assert server.stat()["idle"] == 0  # type: ignore[index]
    server("GETJOB", "FROM", "q", client="anna")
    server.advance(7_000)
    stat = server.stat()
    assert stat is not None
    assert (stat["idle"], stat["blocked"]) == (7, 1)


def test_import_from_names_those_who_sent_jobs_of_late_and_sources_all(server: Server) -> None:
    server.add()
    queue = server.state.queues.by_name[b"q"]
    other = b"f" * 40
    queue.sources[NODE_ID] = server.clock.now()
    server.advance(3_000)
    queue.sources[other] = server.clock.now()
    queue.import_rate.note(server.clock.now())
    server.advance(2_001)
    stat = server.stat()
    assert stat is not None
    assert (stat["import-from"], stat["sources"], stat["import-rate"]) == ([other], [NODE_ID, other], 1)
    server.advance(3_000)
    assert server.stat()["import-from"] == []  # type: ignore[index]


# PAUSE.


@pytest.mark.parametrize(
    ("options", "after"),
    [
        ("in", b"in"),
        ("out", b"out"),
        ("IN Out", b"all"),
        ("all", b"all"),
        ("none", b"none"),
        ("none in", b"in"),
        ("in none", b"none"),
        ("in none out", b"out"),
        ("in in", b"in"),
        ("in state", b"in"),
        ("bcast in", b"in"),
        ("state", b"out"),
        ("state bcast", b"out"),
        ("state node", b"out"),
        ("node in", b"all"),
        ("in node none", b"out"),
        ("none REASON x out", b"out"),
    ],
)
def test_pause_reads_its_words_from_left_to_right_and_replaces_the_state(
    server: Server, options: str, after: bytes
) -> None:
    server("PAUSE", "q", "out")
    assert server("PAUSE", "q", *options.split()) == after
    assert server("PAUSE", "q", "state") == after
    assert server.stat()["pause"] == after  # type: ignore[index]


def test_qstat_full_has_what_the_last_word_for_the_cluster_said(server: Server) -> None:
    server("PAUSE", "q", "in", "REASON", "deploy")
    server("PAUSE", "q", "out", "node")
    at = server.clock.wall() // 1_000
    server.advance(5_000)
    stat = server.stat()
    assert stat is not None
    facts = [stat[name] for name in ("pause", "pause-reason", "pause-by", "pause-at", "pause-node")]
    assert facts == [b"all", b"deploy", b"address client", at, b"out"]


@pytest.mark.parametrize(
    "words", [("none",), ("state",), ("in", "none"), ("in", "node"), ("node", "none"), ("state", "bcast")]
)
def test_a_reason_is_for_a_pause_of_the_cluster(server: Server, words: tuple[str, ...]) -> None:
    server("PAUSE", "q", "out")
    assert server.refusal("PAUSE", "q", *words, "REASON", "deploy") == (
        "ERR REASON goes with in, out or all for the whole cluster, and not with none, state or node"
    )
    assert server("PAUSE", "q", "state") == b"out"


@pytest.mark.parametrize("reason", ["", "two\nlines", b"\xff", "x" * 1_025])
def test_a_reason_is_one_printable_line_of_a_kilobyte(server: Server, reason: Word) -> None:
    line = "ERR REASON must be 1 to 1024 bytes of printable UTF-8 in one line"
    assert server.refusal("PAUSE", "q", "in", "REASON", reason) == line
    assert server("PAUSE", "q", "state") == b"none"


def test_a_pause_needs_a_word_beside_the_reason(server: Server) -> None:
    assert server.refusal("PAUSE", "q", "REASON", "deploy").startswith("ERR ")
    assert server.stat() is None


def test_an_owner_is_shown_in_one_printable_line(server: Server) -> None:
    server("PAUSE", "q", "in", client=Nameless(b"a\nb\xff"))
    assert server.refusal("ADDJOB", "q", "x", 0) == "PAUSED Queue paused in input, try later (by a\ufffdb\ufffd)"


class Nameless:
    """A client that has a name and no user."""

    def __init__(self, name: bytes) -> None:
        self.name = name


def test_a_bad_word_changes_nothing(server: Server) -> None:
    server("PAUSE", "q", "out")
    server.refusal("PAUSE", "q", "none", "what")
    assert server("PAUSE", "q", "state") == b"out"


# Walks.


def walk(server: Server, *command: Word) -> list[bytes]:
    """Everything that a scan yields until its cursor is 0 again."""
    found: list[bytes] = []
    cursor = b"0"
    for _ in range(10_000):
        cursor, page = server(*command, cursor)
        found += page
        if cursor == b"0":
            return found
    raise AssertionError("the walk does not end")


@pytest.mark.parametrize("count", [1, 7, 100, 10_000])
def test_what_is_there_throughout_a_walk_is_met_whatever_comes_and_goes(server: Server, count: int) -> None:
    rng = Random(5)
    stay = {server.add(f"stay {number}", number) for number in range(300)}
    go = [server.add(f"go {number}", number) for number in range(300)]
    found: dict[str, list[bytes]] = {}
    for scan in "JSCAN", "QSCAN":
        found[scan], cursor = [], b"0"
        for step in range(10_000):
            cursor, page = server(scan, cursor, "COUNT", count)
            found[scan] += page
            if cursor == b"0":
                break
            # A walk need not end while queues are added as fast as it goes.
            if step % 2:
                server.add(f"new {rng.random()}", "x")
            if go:
                server("ACKJOB", go.pop(rng.randrange(len(go))))
        assert cursor == b"0"
    assert stay <= set(found["JSCAN"])
    assert {b"stay %d" % number for number in range(300)} <= set(found["QSCAN"])
    assert len(set(found["JSCAN"])) == len(found["JSCAN"])


def test_a_walk_over_queues_answers_the_statistics_of_each(server: Server) -> None:
    for number in range(STATISTICS_MAX + 3):
        server.add(number)
    cursor, first = server("QSCAN", "COUNT", 2 * STATISTICS_MAX, "REPLY", "all")
    assert len(first) == STATISTICS_MAX
    cursor, rest = server("QSCAN", cursor, "REPLY", "all")
    assert cursor == b"0"
    assert [row[1] for row in (*first, *rest)] == [b"%d" % number for number in range(STATISTICS_MAX + 3)]
    assert rest[-1] == server("QSTAT", STATISTICS_MAX + 2, "FULL")
    assert server("QSCAN", "REPLY", "name", "COUNT", 2)[1] == [b"0", b"1"]


def expected_figures(statistics: list[Any]) -> list[Any]:
    """What REPLY figures answers of a queue of which this is what QSTAT FULL answers."""
    told = dict(zip(statistics[::2], statistics[1::2], strict=True))
    return [
        told[b"name"], told.get(b"owned", told[b"len"]), told[b"in-flight"], told[b"delayed"], told[b"dead"],
        told[b"failing"], told[b"oldest"], told[b"blocked"], told[b"jobs-in"], told[b"delivered"],
        told[b"jobs-in"] - told[b"produced"], told[b"consumed"], told[b"idle"] if told[b"ctime"] else -1,
        told[b"pause"], told[b"pause-node"], int(b"owned" in told), told[b"elsewhere"], told[b"done"],
        told[b"slots-lost"],
    ]  # fmt: skip


def test_the_figures_of_a_queue_are_those_of_its_statistics(server: Server) -> None:
    for number in range(5):
        server.add("q", number, "RETRY", 60)
    taken = [bytes(row[1]) for row in server.get("q", count=4)]
    server("ACKJOB", taken[0])
    server("NACK", taken[1], "DEAD")
    server("NACK", taken[2], "DELAY", 60)
    server("PAUSE", "q", "out")
    server("PAUSE", "q", "in", "NODE")
    server("QADD", "log", 600, "x")
    server("GETJOB", "FROM", "waited", client="anna")
    server.advance(3_000)
    names = {bytes(row[0]): list(row) for row in server("QSCAN", "REPLY", "figures")[1]}
    assert names.keys() == {b"q", b"log", b"waited"}
    for name, row in names.items():
        assert row == expected_figures(server("QSTAT", name, "FULL"))
    assert names[b"q"] == [b"q", 1, 1, 1, 1, 1, 3, 0, 5, 4, 0, 1, 3, b"all", b"in", 0, 0, 0, 0]


def test_names_with_jobs_that_are_in_no_queue_here_are_met_by_two_of_the_forms() -> None:
    cluster = Cluster(2)
    a, b = cluster
    assert a("ADDJOB", "here", "x", 0, "REPLICATE", 2, "TTL", 10_000) is BLOCKED
    a.add("later", "x", "DELAY", 9_000, "REPLICATE", 1)
    once = a.add("once", "x", "RETRY", 0, "REPLICATE", 1)
    a.get("once")
    a("ACKJOB", UNKNOWN_ID)  # kept, and nothing is known of its queue
    a.advance(400_000)
    assert a("QSCAN")[1] == [b"here"]
    assert b("QSCAN")[1] == []
    assert a("QSCAN", "REPLY", "known") == [b"0", [b"here", b"later", b"once"]]
    assert b("QSCAN", "REPLY", "known") == [b"0", [b"here"]]
    for member in cluster:
        cursor, rows = member("QSCAN", "REPLY", "all")
        assert (cursor, rows) == (b"0", [member("QSTAT", row[1], "FULL") for row in rows])
        short = [list(row) for row in member("QSCAN", "REPLY", "figures")[1]]
        assert short == [expected_figures(row) for row in rows]
    rows = {row[1]: dict(zip(row[::2], row[1::2], strict=True)) for row in a("QSCAN", "REPLY", "all")[1]}
    assert [(row[b"len"], row[b"delayed"], row[b"in-flight"]) for row in rows.values()] == [
        (1, 0, 0), (0, 1, 0), (0, 0, 1),
    ]  # fmt: skip
    assert [row[b"ctime"] > 0 for row in rows.values()] == [True, False, False]
    assert a("QSTAT", "", "FULL") is None
    assert a("QSCAN", "REPLY", "known", "MINLEN", 1)[1] == [b"here"]
    assert a("QSCAN", "REPLY", "known", "MAXIDLE", 1_000)[1] == [b"here"]
    a("DELJOB", once)
    assert a("QSCAN", "REPLY", "known")[1] == [b"here", b"later"]


@pytest.mark.parametrize("count", [1, 7, 100, 1_000])
def test_a_name_with_delayed_jobs_alone_is_met_whatever_comes_and_goes(server: Server, count: int) -> None:
    rng = Random(7)
    go = {}
    for number in range(BLOCK + 50):
        server.add(f"stay {number}", "x", "DELAY", 9_000)
        go[f"go {number}"] = server.add(f"go {number}", "x", "DELAY", 9_000)
    found: list[bytes] = []
    cursor, page, step = b"0", [], 0
    while cursor != b"0" or not step:
        cursor, page = server("QSCAN", cursor, "COUNT", count, "REPLY", "known")
        found += page
        step += 1
        for name in rng.sample(sorted(go), min(len(go), 2)):
            server("DELJOB", go.pop(name))
        if step % 2:
            server.add(f"new {step}", "x", "DELAY", 9_000)
        if not step % 3:  # the queue comes, and its name was there before
            server("GETJOB", "NOHANG", "FROM", f"stay {rng.randrange(BLOCK)}")
    assert {b"stay %d" % number for number in range(BLOCK + 50)} <= set(found)
    assert len(set(found)) == len(found)


def test_a_walk_over_known_names_answers_no_more_than_it_may(server: Server) -> None:
    for number in range(STATISTICS_MAX + 3):
        server.add(number, "x", "DELAY", 60)
    cursor, first = server("QSCAN", "BUSYLOOP", "REPLY", "all")
    assert (int(cursor), len(first)) == (STATISTICS_MAX + 1, STATISTICS_MAX)
    assert len(server("QSCAN", cursor, "BUSYLOOP", "REPLY", "all")[1]) == 3
    assert server("QSCAN", "COUNT", 2, "REPLY", "known") == [b"3", [b"0", b"1"]]
    assert server("QSCAN", "COUNT", 2, "MINLEN", 1, "REPLY", "known") == [b"21", []]


def test_a_queue_forgotten_in_the_middle_of_a_walk_hides_no_other(server: Server) -> None:
    for number in range(30):
        server.add(number)
    cursor, page = server("QSCAN", "COUNT", 10)
    assert page == [b"%d" % number for number in range(10)]
    for name in (b"3", b"10", b"12"):
        server("ACKJOB", *[row[1] for row in server("QPEEK", name, 1)])
        queue = server.state.queues.by_name[name]
        queue.accessed_at -= 300_000
        assert server.node.collect_queue(queue)
    cursor, page = server("QSCAN", cursor, "COUNT", 100)
    assert cursor == b"0"
    assert page == [b"%d" % number for number in range(10, 30) if number not in (10, 12)]


def test_a_page_is_about_as_long_as_was_asked_and_looks_at_ten_times_as_many(server: Server) -> None:
    for number in range(500):
        server.add(number, "x")
    assert len(server("QSCAN", "COUNT", 20)[1]) == 20
    assert len(server("QSCAN")[1]) == 100
    assert 20 <= len(server("JSCAN", "COUNT", 20)[1]) <= 60
    cursor, page = server("QSCAN", "COUNT", 5, "MINLEN", 2)
    assert (int(cursor), page) == (51, [])


@pytest.mark.parametrize("options", [("BUSYLOOP",), ("COUNT", -1), ("COUNT", 1, "BUSYLOOP"), ("COUNT", 1_000)])
def test_everything_can_be_had_in_one_call(server: Server, options: tuple[Word, ...]) -> None:
    ids = {server.add(number, "x") for number in range(300)}
    for scan, expected in (("JSCAN", ids), ("QSCAN", {b"%d" % number for number in range(300)})):
        cursor, page = server(scan, *options)
        assert cursor == b"0"
        assert set(page) == expected


def test_a_page_that_ends_within_a_table_is_as_full_as_it_may_be(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scans, "ELEMENTS_MAX", 3)
    table = [job for job in (server.add() for _ in range(2 * TABLES)) if job]
    found, cursor, pages = [], b"0", []
    while True:
        cursor, page = server("JSCAN", cursor, "BUSYLOOP")
        found += page
        pages.append(len(page))
        if cursor == b"0":
            break
    assert sorted(found) == sorted(table)
    assert set(pages[:-1]) == {3}


def test_count_0_takes_the_smallest_step(server: Server) -> None:
    for number in range(3):
        server.add(number)
    assert server("QSCAN", "COUNT", 0) == [b"2", [b"0"]]


@pytest.mark.parametrize("cursor", [-1, 2**63 - 1, 5_000, -(2**63)])
def test_a_cursor_beyond_the_end_ends_the_walk(server: Server, cursor: int) -> None:
    server.add()
    assert server("QSCAN", cursor) == [b"0", []]
    assert server("JSCAN", cursor) == [b"0", []]


@pytest.mark.parametrize("args", [(0, "COUNT", 5), ("COUNT", 5, 0), ("COUNT", 5), ()])
def test_the_cursor_may_stand_anywhere_or_be_left_out(server: Server, args: tuple[Word, ...]) -> None:
    job_id = server.add()
    assert server("QSCAN", *args) == [b"0", [b"q"]]
    assert job_id in server("JSCAN", *args)[1] or server("JSCAN", *args)[0] != b"0"


def test_qscan_filters_by_length_use_and_import_rate(server: Server) -> None:
    for length in range(4):
        server("GETJOB", "NOHANG", "FROM", f"len {length}")
        for _ in range(length):
            server.add(f"len {length}")
    assert server("QSCAN")[1] == [b"len 0", b"len 1", b"len 2", b"len 3"]
    assert server("QSCAN", "MINLEN", 2)[1] == [b"len 2", b"len 3"]
    assert server("QSCAN", "MAXLEN", 1)[1] == [b"len 0", b"len 1"]
    assert server("QSCAN", "MINLEN", 1, "MAXLEN", 2)[1] == [b"len 1", b"len 2"]
    server.advance(10_000)
    server.get("len 2")
    assert server("QSCAN", "MAXIDLE", 9)[1] == [b"len 2"]
    assert len(server("QSCAN", "MAXIDLE", "9.999")[1]) == 1
    assert len(server("QSCAN", "MAXIDLE", 10)[1]) == 4
    server.state.queues.by_name[b"len 3"].import_rate.note(server.clock.now())
    assert server("QSCAN", "IMPORTRATE", 1)[1] == [b"len 3"]
    assert len(server("QSCAN", "IMPORTRATE", 0)[1]) == 4


def test_jscan_filters_by_queue_and_state(server: Server) -> None:
    delayed, delivered = server.add("a", "1", "DELAY", 5), server.add("b", "2")
    server.get("b")
    queued = server.add("b", "3")
    waiting = server.add("c", "4", "DELAY", 5)
    server.job(waiting).state = WAIT_REPL
    for words, expected in (
        ((), {delayed, delivered, queued, waiting}),
        (("QUEUE", "b"), {delivered, queued}),
        (("QUEUE", "nowhere"), set()),
        (("STATE", "active"), {delayed, delivered}),
        (("STATE", "QUEUED"), {queued}),
        (("STATE", "queued", "STATE", "wait-repl"), {queued, waiting}),
        (("STATE", "acked"), set()),
        (("STATE", "active", "QUEUE", "a"), {delayed}),
    ):
        assert set(server("JSCAN", "BUSYLOOP", *words)[1]) == expected
    assert server.job(queued).state == QUEUED


def test_jscan_filters_by_when_a_job_was_last_added_queued_or_handed_out(server: Server) -> None:
    added = server.add("q", "added", "DELAY", 500)
    retried = server.add("q", "retried", "RETRY", 50)
    once = server.add("q", "once", "RETRY", 0)
    server.advance(10_000)
    assert server.get()[0][1] == retried

    def seen(seconds: int) -> set[bytes]:
        return set(server("JSCAN", "BUSYLOOP", "MAXIDLE", seconds)[1])

    assert seen(0) == {retried}
    assert seen(9) == {retried}
    assert seen(10) == {added, retried, once}
    server.advance(50_000)
    assert seen(0) == {retried}  # it is queued again
    server.advance(60_000)
    assert seen(59) == set()
    assert seen(60) == {retried}


def test_jscan_can_answer_descriptions(server: Server) -> None:
    ids = [server.add("q", number) for number in range(3)]
    cursor, page = server("JSCAN", "REPLY", "all", "BUSYLOOP")
    assert cursor == b"0"
    assert sorted(page) == sorted(server("SHOW", job_id)[:-2] for job_id in ids)  # without the place of each
    assert set(server("JSCAN", "REPLY", "ID", "BUSYLOOP")[1]) == set(ids)


def test_the_names_that_the_readme_announced_do_the_same(server: Server) -> None:
    job_id = server.add()
    assert server("SCAN", "QUEUE", 0, "COUNT", 5) == server("QSCAN", 0, "COUNT", 5) == [b"0", [b"q"]]
    assert walk(server, "SCAN", "JOB") == walk(server, "JSCAN") == [job_id]
    assert walk(server, "scan", "job", "STATE", "active") == []


# What one call of a walk does at most.


def pages(server: Server, *command: Word, cursor: bytes = b"0") -> list[list[bytes]]:
    """The pages of a walk, from a cursor to the end."""
    found: list[list[bytes]] = []
    while not found or cursor != b"0":
        cursor, page = server(*command, cursor)
        found.append(page)
        assert len(found) < 20_000, "the walk does not end"
    return found


@pytest.mark.parametrize("words", [("BUSYLOOP",), ("COUNT", -1), ("COUNT", 10**9)])
def test_a_call_answers_a_bounded_number_of_elements_whatever_it_is_asked_for(
    server: Server, words: tuple[Word, ...]
) -> None:
    server.node.begin()
    ids = [server.run("ADDJOB", number, "x", 0) for number in range(ELEMENTS_MAX + 100)]
    for scan, expected in (("QSCAN", [b"%d" % number for number in range(len(ids))]), ("JSCAN", sorted(ids))):
        found = pages(server, scan, *words)
        assert max(map(len, found)) <= ELEMENTS_MAX
        assert len(found) == 2
        elements = [element for page in found for element in page]
        assert (sorted(elements) if scan == "JSCAN" else elements) == expected


@pytest.mark.parametrize("words", [("BUSYLOOP",), ("COUNT", -1), ("COUNT", 10**9)])
def test_a_call_looks_at_a_bounded_number_even_if_nothing_fits(server: Server, words: tuple[Word, ...]) -> None:
    server.node.begin()
    for number in range(2 * LOOKED_AT_MAX):
        server.run("ADDJOB", number, "x", 0)
    assert pages(server, "QSCAN", *words, "MINLEN", 2) == [[], []]
    assert len(pages(server, "JSCAN", *words, "QUEUE", "nowhere")) == 2


def test_descriptions_are_fewer_to_a_call(server: Server) -> None:
    ids = {server.add("q", number) for number in range(DESCRIBED_MAX + 100)}
    found = pages(server, "JSCAN", "REPLY", "all", "BUSYLOOP")
    assert max(map(len, found)) <= DESCRIBED_MAX
    assert {shown[1] for page in found for shown in page} == ids


def test_large_names_and_bodies_end_a_call(server: Server) -> None:
    part = FETCHED_BYTES // 20
    for number in range(50):
        server.add(b"%02d" % number + b"n" * part, b"x")
        server.add(number, b"x" * part)
    sizes = [sum(map(len, page)) for page in pages(server, "QSCAN", "BUSYLOOP")]
    assert max(sizes) <= FETCHED_BYTES + part
    assert len(sizes) == 3
    described = pages(server, "JSCAN", "REPLY", "all", "BUSYLOOP")
    assert max(len(page) for page in described) <= 20
    assert sum(len(page) for page in described) == 100


@pytest.mark.parametrize("most", [1, 2, 7])
def test_a_call_may_end_within_a_table_and_the_walk_misses_nothing(
    server: Server, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few a call may answer, each job is met exactly once, if nothing comes or goes."""
    ids = [server.add("q", number) for number in range(600)]
    monkeypatch.setattr(scans, "ELEMENTS_MAX", most)
    found = pages(server, "JSCAN", "BUSYLOOP")
    assert max(map(len, found)) == most
    assert sorted(job_id for page in found for job_id in page) == sorted(ids)


@pytest.mark.reference
def test_what_goes_and_comes_hides_nothing_from_a_walk_within_tables(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = Random(3)
    monkeypatch.setattr(scans, "ELEMENTS_MAX", 1)
    monkeypatch.setattr("disqued.core.model.registry._MASK", 3)  # four tables, full as those of millions of jobs
    stay = {server.add("stay", number) for number in range(100)}
    go = [server.add("go", number) for number in range(100)]
    found: list[bytes] = []
    cursor, within = b"0", 0
    for step in range(1_000):
        cursor, page = server("JSCAN", "BUSYLOOP", cursor)
        found += page
        if cursor == b"0":
            break
        within += int(cursor) >= TABLES
        if go and step % 2:
            server("ACKJOB", go.pop(rng.randrange(len(go))))
        if step < 50:
            server.add("new", step)
    assert cursor == b"0"
    assert stay <= set(found)
    assert len(set(found)) == len(found)
    assert within > 100


@pytest.mark.parametrize("cursor", [2**48 + 2**44, 2**48 + TABLES * 2**32 + 7, 2**63, 2**64 - 1])
def test_a_cursor_that_no_call_returned_ends_the_walk(server: Server, cursor: int) -> None:
    for number in range(100):
        server.add("q", number)
    assert server("JSCAN", cursor if cursor < 2**63 else cursor - 2**64) == [b"0", []]


@pytest.mark.parametrize("words", [("ID",), (UNKNOWN_ID,)])
def test_redrive_by_id_says_which_words_and_fields_go_together(server: Server, words: tuple[str | bytes, ...]) -> None:
    assert server.refusal("REDRIVE", "q", *words) == (
        "ERR ID goes with the ids of jobs, and they with it: REDRIVE queue ID id [id ...]"
    )
