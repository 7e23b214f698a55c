"""Dispatch: find, parse, admit, run, encode and count a command, in one place for every session."""

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from disqued.acl.denials import COMMAND
from disqued.commands import table
from disqued.commands.dispatch import Dispatch, Issuer, Outcome
from disqued.commands.latency import LatencyMonitor
from disqued.commands.runnable import Tally
from disqued.commands.slowlog import SlowLog
from disqued.commands.table import BLOCKED, Command
from disqued.errors import (
    CommandError,
    InternalError,
    JournalFailed,
    Loading,
    NoPermission,
    OutOfMemory,
    UnknownCommand,
    WrongArity,
)
from tests.core_fixtures import UNKNOWN_ID, Server, Word, words


@attrs.define(eq=False)
class Client:
    """A session, with the commands that it was asked about."""

    name: bytes = b"me"
    address: str = "127.0.0.1:1"
    limited: bool = False
    refuses: frozenset[str] = frozenset()
    asked: list[str] = attrs.field(factory=list)
    lines: list[bytes] = attrs.field(factory=list)

    def check(self, entry: Command) -> None:
        self.asked.append(entry.name)
        if entry.name in self.refuses:
            raise CommandError("not now")

    def push(self, line: bytes) -> None:
        self.lines.append(line)


@attrs.define
class Rights:
    """Permissions: commands that are refused, and all that they were asked."""

    denied: str = ""
    asked: list[tuple[str, str]] = attrs.field(factory=list)

    def admit(self, client: Issuer, entry: Command) -> None:
        self.asked.append(("admit", entry.name))
        if entry.name == self.denied:
            raise NoPermission("no", COMMAND, b"")

    def check_names(self, client: Issuer, entry: Command, call: Any) -> Any:
        self.asked.append(("names", entry.name))
        assert hasattr(call, "queue") or hasattr(call, "queues"), "the names do not show"
        return call


@attrs.define
class Activity:
    """What rests until a command begins."""

    resting: bool = True
    woken: int = 0

    def wake(self) -> None:
        self.woken += 1


class Bed:
    """A node with a dispatch, whose clock takes a millisecond for each reading."""

    def __init__(self, *, maxmemory: int = 1 << 40, **more: Any) -> None:
        self.server = Server(maxmemory=maxmemory)
        self.node = self.server.node
        self.crashes: list[list[bytes]] = []
        self.failure: str | None = None
        self.read_at = 0.0
        self.step_s = 0.001
        self.dispatch = Dispatch(
            self.node, seconds=self.read, microseconds=lambda: 1_700_000_000_000_000,
            on_crash=lambda client, args: self.crashes.append(args), failure=lambda: self.failure,
            slowlog=SlowLog(-1, 128), latency=LatencyMonitor(0), **more,
        )  # fmt: skip
        self.client = Client()

    def read(self) -> float:
        self.read_at += self.step_s
        return self.read_at

    def run(self, *said: Word, client: Client | None = None, protocol: int = 0, checked: bool = False) -> Outcome:
        """Run a command as a step of its own."""
        self.node.begin()
        outcome = Outcome(protocol, checked=checked)
        outcome.at = self.dispatch.seconds()
        return self.dispatch.execute(client or self.client, words(said), outcome)

    def fail_journal(self, reason: str | None) -> None:
        """Let nothing be made durable, as the turn does."""
        self.failure, self.node.state.durability.read_only = reason, reason is not None


@pytest.fixture
def bed() -> Bed:
    return Bed()


@pytest.fixture(autouse=True)
def fresh_tallies(monkeypatch: pytest.MonkeyPatch) -> None:
    for entry in table.every_command():
        monkeypatch.setattr(entry, "tally", Tally())


def calls(name: bytes) -> int:
    return table.PLAIN[name].tally.calls


# The outcome.


@pytest.mark.parametrize(
    ("protocol", "reply"), [(0, b""), (2, b"*-1\r\n"), (3, b"_\r\n")], ids=["values", "RESP2", "RESP3"]
)
def test_a_value_is_encoded_for_the_protocol_of_the_session(bed: Bed, protocol: int, reply: bytes) -> None:
    outcome = bed.run("GETJOB", "NOHANG", "FROM", "q", protocol=protocol)
    assert (outcome.value, outcome.failed, outcome.reply) == (None, False, reply)


def test_a_refusal_is_an_outcome_with_its_error_line(bed: Bed) -> None:
    outcome = bed.run("NOPE", protocol=2)
    assert isinstance(outcome.value, UnknownCommand)
    assert (outcome.entry, outcome.failed, outcome.reply) == (None, True, b"-ERR unknown command 'NOPE'\r\n")


def test_an_outcome_that_serves_again_keeps_nothing_of_the_command_before(bed: Bed) -> None:
    outcome = bed.run("QLEN", protocol=2)
    assert outcome.failed
    bed.dispatch.execute(bed.client, words(("QLEN", "q")), outcome)
    assert (outcome.value, outcome.failed, outcome.reply) == (0, False, b":0\r\n")


def test_a_word_that_is_said_again_is_looked_up_once_and_an_unknown_one_is_not_kept(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, unknown = b"QLEN", b"x" * 100_000
    outcome = bed.run("PING")
    for args in ([known, b"q"], [unknown], [known, b"q"]):
        bed.dispatch.execute(bed.client, args, outcome)
        assert outcome.failed is (args[0] is unknown)
        assert outcome.word is (b"" if args[0] is unknown else known)
    monkeypatch.setattr(bed.dispatch, "_plain", {})
    bed.dispatch.execute(bed.client, [known, b"q"], outcome)
    assert outcome.value == 0
    assert not bed.client.asked


def test_a_blocked_command_is_answered_later(bed: Bed) -> None:
    outcome = bed.run("GETJOB", "FROM", "q", protocol=2)
    assert outcome.value is BLOCKED
    assert outcome.reply == b""
    assert outcome.handed() == list(outcome.promised()) == []
    outcome.answer([(b"q", UNKNOWN_ID, b"x")])
    assert outcome.handed() == [UNKNOWN_ID]
    assert outcome.reply.startswith(b"*1\r\n*3\r\n$1\r\nq\r\n")
    outcome.answer(CommandError("gone"))
    assert (outcome.failed, outcome.reply, outcome.handed()) == (True, b"-ERR gone\r\n", [])


def test_an_outcome_names_the_jobs_that_it_promises_until_it_fails(bed: Bed) -> None:
    outcome = bed.run("ADDJOB", "q", "x", 0)
    assert list(outcome.promised()) == [outcome.value]
    assert outcome.handed() == []
    outcome.fail(JournalFailed())
    assert list(outcome.promised()) == []


def test_a_bug_is_reported_and_the_node_goes_on(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("disqued.commands.queues.QLen.run", lambda *_: 1 / 0)
    outcome = bed.run("QLEN", "q", protocol=2)
    assert isinstance(outcome.value, InternalError)
    assert (outcome.reply, bed.crashes) == (b"-ERR internal error\r\n", [[b"QLEN", b"q"]])
    assert not bed.run("ADDJOB", "q", "x", 0).failed


# Admission.


def test_plain_commands_of_a_session_without_limits_are_not_asked_about(bed: Bed) -> None:
    for said in (("ADDJOB", "q", "x", 0), ("GETJOB", "FROM", "q"), ("ACKJOB", UNKNOWN_ID), ("qlen", "q")):
        assert not bed.run(*said).failed
    assert bed.client.asked == []
    bed.run("PAUSE", "q", "state", checked=True)
    bed.run("Qlen", "q")
    bed.run("COMMAND", "COUNT")
    assert bed.client.asked == ["PAUSE", "QLEN", "COMMAND COUNT"]


def test_what_the_session_refuses_does_not_run(bed: Bed) -> None:
    client = Client(refuses=frozenset({"ADDJOB"}))
    assert bed.run("ADDJOB", "q", "x", 0, client=client, checked=True).failed
    assert bed.run("QLEN", "q").value == 0


def full(bed: Bed) -> None:
    """Fill the memory with what cannot be evicted."""
    bed.node.state.memory.used = bed.node.state.memory.limit + 1


REASONS: list[tuple[Callable[[Bed], None], type[CommandError]]] = [
    (full, OutOfMemory),
    (lambda bed: bed.fail_journal("No space left"), JournalFailed),
    (lambda bed: bed.dispatch.set_loading(loading=True), Loading),
]


@pytest.mark.parametrize(("make", "error"), REASONS, ids=["memory", "journal", "loading"])
@pytest.mark.parametrize("checked", [False, True], ids=["plain", "checked"])
def test_that_a_command_may_not_run_comes_before_every_error_but_its_number_of_words(
    bed: Bed, make: Callable[[Bed], None], error: type[CommandError], *, checked: bool
) -> None:
    make(bed)
    for said in (("ADDJOB", "q", "x", 0), ("ADDJOB", "q", "x", 0, "TTL", "none")):
        assert isinstance(bed.run(*said, checked=checked).value, error)
    assert isinstance(bed.run("ADDJOB", "q", checked=checked).value, WrongArity)


def test_a_failing_journal_refuses_additions_and_ping_with_its_reason(bed: Bed) -> None:
    job_id = bed.run("ADDJOB", "q", "x", 0).value
    bed.fail_journal("No space left")
    assert bed.run("PING", protocol=2).reply == b"-MISCONF Errors writing to the AOF file: No space left\r\n"
    assert not bed.run("GETJOB", "FROM", "q").failed
    assert bed.run("ACKJOB", job_id).value == 1
    bed.fail_journal(None)
    assert bed.run("PING").value == b"PONG"


def test_while_the_jobs_are_loaded_a_few_commands_run(bed: Bed) -> None:
    bed.dispatch.set_loading(loading=True)
    assert isinstance(bed.run("QLEN", "q").value, Loading)
    assert not bed.run("COMMAND", "COUNT").failed
    bed.dispatch.set_loading(loading=False)
    assert bed.run("QLEN", "q").value == 0


def test_permissions_are_asked_about_limited_sessions_alone_and_see_what_a_call_names() -> None:
    rights = Rights(denied="PAUSE")
    bed = Bed(permissions=rights)
    ann = Client(limited=True)
    for _ in range(2):  # the second time the words could come from the parse cache
        bed.run("ADDJOB", "q", "x", 0)
        assert not bed.run("ADDJOB", "q", "x", 0, client=ann, checked=True).failed
        assert not bed.run("GETJOB", "FROM", "q", client=ann, checked=True).failed
    assert rights.asked == [("admit", "ADDJOB"), ("names", "ADDJOB"), ("admit", "GETJOB"), ("names", "GETJOB")] * 2
    assert isinstance(bed.run("PAUSE", "q", "in", client=ann, checked=True).value, NoPermission)
    assert isinstance(bed.run("PAUSE", "q", "what", client=ann, checked=True).value, NoPermission)
    assert bed.run("PAUSE", "q", "state").value == b"none"


def test_monitors_see_every_command_that_runs_and_no_password(bed: Bed) -> None:
    watcher = Client()
    bed.dispatch.watch(watcher)
    bed.run("QLEN", "q")
    bed.run("QLEN")
    bed.run("CONFIG", "SET", "requirepass", "secret")
    assert watcher.lines[0] == b'+1700000000.000000 [127.0.0.1:1] "QLEN" "q"\r\n'
    assert [line.partition(b"] ")[2] for line in watcher.lines[1:]] == [
        b'"CONFIG" "SET" "requirepass" "(redacted)"\r\n'
    ]
    bed.dispatch.unwatch(watcher)
    asked = list(bed.client.asked)
    bed.run("QLEN", "q")
    assert len(watcher.lines) == 2
    assert bed.client.asked == asked  # plain commands are looked at no more


def test_the_first_command_after_a_rest_wakes_the_counting_of_rates() -> None:
    activity = Activity()
    bed = Bed(activity=activity)
    bed.run("QLEN", "q")
    assert activity.woken == 1
    activity.resting = False
    bed.dispatch.find_guards()
    bed.run("QLEN", "q")
    assert activity.woken == 1
    assert bed.client.asked == ["QLEN"]


# What is counted.


def test_each_command_that_is_known_is_counted_with_the_time_since_the_one_before(bed: Bed) -> None:
    outcome = bed.run("QLEN", "q")
    for said in (("QLEN", "q"), ("QLEN",), ("NOPE",)):
        bed.dispatch.execute(bed.client, words(said), outcome)
    tally = table.PLAIN[b"QLEN"].tally
    assert (tally.calls, round(tally.usec), bed.dispatch.commands_run) == (3, 3_000, 4)
    bed.run("GETJOB", "FROM", "q")
    assert calls(b"GETJOB") == 1


def test_slow_commands_come_into_the_slow_log_and_the_latency_monitor(bed: Bed) -> None:
    bed.dispatch.slowlog.threshold_us, bed.dispatch.latency.threshold_ms = 2_000, 3
    bed.dispatch.find_slow()
    for milliseconds in (1, 2, 4):
        bed.step_s = milliseconds / 1_000 + 1e-9
        bed.run("QLEN", "q")
    bed.run("PAUSE", "q", "state")
    [*_, first] = bed.dispatch.slowlog
    assert len(bed.dispatch.slowlog) == 3
    assert (first.args, first.usec, first.address, first.name, first.noted_at) == (
        [b"QLEN", b"q"], 2_000, b"127.0.0.1:1", b"me", 1_700_000_000,
    )  # fmt: skip
    events = bed.dispatch.latency.events
    assert {name: [sample.ms for sample in event.samples] for name, event in events.items()}["fast-command"] == [4]


def test_without_thresholds_nothing_is_slow(bed: Bed) -> None:
    bed.step_s = 1e6
    bed.run("QLEN", "q")
    assert len(bed.dispatch.slowlog) == 0
    assert not bed.dispatch.latency.events
