"""COMMAND, SLOWLOG and LATENCY."""

import pytest

from disqued.commands import table
from disqued.commands.table import TABLE, every_command
from disqued.core.model.phases import STATE_WORDS
from disqued.wire.replies import Status
from tests.fakes import Client, Daemon

OK = b"OK"


@pytest.fixture
def daemon():
    return Daemon()


@pytest.fixture
def client(daemon):
    return Client(daemon)


# COMMAND.


def test_command_describes_each_command_in_six_elements(client):
    rows = {row[0]: row for row in client.says("COMMAND")}
    assert len(rows) == len(TABLE)
    assert rows[b"addjob"] == [b"addjob", -4, [b"write", b"denyoom", b"fast"], 0, 0, 0]
    assert rows[b"latency"] == [b"latency", -2, [b"readonly", b"admin", b"loading"], 0, 0, 0]
    assert rows[b"command"] == [b"command", 0, [b"readonly", b"loading"], 0, 0, 0]
    assert all(isinstance(word, Status) for row in rows.values() for word in row[2])


def test_command_count_and_list_agree_with_command(client):
    assert client.says("COMMAND", "COUNT") == len(client.says("COMMAND"))
    names = client.says("COMMAND", "LIST")
    assert {b"getjob", b"config", b"config|get", b"command|docs", b"command"} <= set(names)
    assert len(names) == len(set(names))
    assert [name for name in names if b"|" not in name] == [row[0] for row in client.says("COMMAND")]


def test_command_info_is_null_for_a_name_that_is_none(client):
    reply = client.says("COMMAND", "INFO", "PING", "nope", "config|get", "config|nope", "ping|x")
    assert [row and row[:2] for row in reply] == [[b"ping", -1], None, [b"config|get", 3], None, None]
    entry = table.find([b"COMMAND", b"INFO"])
    assert entry.encoder(2)([None]) == b"*1\r\n$-1\r\n"


@pytest.mark.parametrize("words", [("INFO",), ("COUNT", "x"), ("LIST", "x")])
def test_errors_of_command(client, words):
    assert client.is_refused("COMMAND", *words) == b"ERR Unknown subcommand or wrong number of arguments."


@pytest.mark.parametrize(
    ("name", "misuse"),
    [
        ("COMMAND", b"ERR Unknown subcommand or wrong number of arguments"),
        ("QGROUP", b"ERR QGROUP takes a subcommand and a queue"),
    ],
)
def test_an_unknown_subcommand_is_told_which_there_are(client, name, misuse):
    allowed = b", ".join(sorted(table.TABLE[name.encode()].children))
    assert client.is_refused(name, "NOPE") == misuse + b" - allowed are " + allowed


def test_docs_of_a_command_name_its_arguments(client):
    docs = client.says("COMMAND", "DOCS", "getjob")[b"getjob"]
    assert list(docs) == [b"summary", b"since", b"group", b"complexity", b"arguments"]
    assert docs[b"group"] == b"jobs"
    assert docs[b"arguments"] == [
        {b"name": b"nohang", b"type": b"pure-token", b"token": b"NOHANG", b"flags": [b"optional"]},
        {b"name": b"with-counters", b"type": b"pure-token", b"token": b"WITHCOUNTERS", b"flags": [b"optional"]},
        {b"name": b"with-headers", b"type": b"pure-token", b"token": b"WITHHEADERS", b"flags": [b"optional"]},
        {b"name": b"timeout", b"type": b"double", b"display_text": b"timeout", b"token": b"TIMEOUT",
         b"flags": [b"optional"]},
        {b"name": b"count", b"type": b"integer", b"display_text": b"count", b"token": b"COUNT",
         b"flags": [b"optional"]},
        {b"name": b"ordered", b"type": b"pure-token", b"token": b"ORDERED", b"flags": [b"optional"]},
        {b"name": b"worker", b"type": b"string", b"display_text": b"worker", b"token": b"WORKER",
         b"flags": [b"optional"]},
        {b"name": b"queue", b"type": b"string", b"display_text": b"queue", b"token": b"FROM",
         b"flags": [b"multiple"]},
    ]  # fmt: skip


def test_docs_of_words_repeats_and_pairs(client):
    docs = client.says("COMMAND", "DOCS", "jscan", "hello")
    states = next(arg for arg in docs[b"jscan"][b"arguments"] if arg.get(b"token") == b"STATE")
    assert (states[b"type"], states[b"flags"]) == (b"oneof", [b"optional", b"multiple", b"multiple_token"])
    assert [one[b"token"] for one in states[b"arguments"]] == list(STATE_WORDS)
    auth = next(arg for arg in docs[b"hello"][b"arguments"] if arg.get(b"token") == b"AUTH")
    assert (auth[b"type"], [part[b"name"] for part in auth[b"arguments"]]) == (b"block", [b"user", b"password"])


def test_docs_of_a_container_hold_its_subcommands(client):
    docs = client.says("COMMAND", "DOCS", "CONFIG")[b"config"]
    assert list(docs[b"subcommands"]) == [b"config|get", b"config|resetstat", b"config|rewrite", b"config|set"]
    assert docs[b"subcommands"][b"config|get"] == client.says("COMMAND", "DOCS", "config|get")[b"config|get"]
    assert {name: value for name, value in docs.items() if name != b"subcommands"} == {
        b"summary": b"Look at the settings and change them.", b"since": b"0.1.0", b"group": b"server",
        b"complexity": b"Depends on subcommand.",
    }  # fmt: skip


def test_docs_of_all_commands_leave_none_out_and_unknown_names_are_left_out(client):
    assert list(client.says("COMMAND", "DOCS")) == [row[0] for row in client.says("COMMAND")]
    assert client.says("COMMAND", "DOCS", "nope") == {}


def test_docs_have_only_types_that_redis_cli_knows(client):
    known = {b"string", b"integer", b"double", b"pure-token", b"oneof", b"block"}

    def types(arguments):
        for argument in arguments:
            yield argument[b"type"]
            yield from types(argument.get(b"arguments", ()))

    for docs in client.says("COMMAND", "DOCS", *(entry.name.replace(" ", "|") for entry in every_command())).values():
        assert set(types(docs.get(b"arguments", ()))) <= known


# SLOWLOG.


def test_slow_commands_are_listed_newest_first(daemon, client):
    for number in range(12):
        daemon.slowlog.note(1_700_000_000 + number, 20_000 + number, [b"GETJOB", b"%d" % number], b"127.0.0.1:1", b"me")
    rows = client.says("SLOWLOG", "GET")
    assert len(rows) == 10
    assert rows[0] == [11, 1_700_000_011, 20_011, [b"GETJOB", b"11"]]
    assert len(client.says("SLOWLOG", "GET", "3")) == 3
    assert client.says("SLOWLOG", "GET", "0") == []
    assert len(client.says("SLOWLOG", "GET", "-1")) == client.says("SLOWLOG", "LEN") == 12


def test_address_and_name_come_only_when_asked_for(daemon, client):
    daemon.slowlog.note(1, 2, [b"PING"], b"127.0.0.1:1", b"me")
    assert client.says("SLOWLOG", "GET", "10", "FULL") == [[0, 1, 2, [b"PING"], b"127.0.0.1:1", b"me"]]


def test_the_slow_log_is_emptied(daemon, client):
    daemon.slowlog.note(1, 2, [b"PING"], b"a", b"")
    assert client.says("SLOWLOG", "RESET") == OK
    assert client.says("SLOWLOG", "LEN") == 0


def test_errors_of_slowlog(client):
    for words in (("NOPE",), ("LEN", "x")):
        line = client.is_refused("SLOWLOG", *words)
        assert line == b"ERR Unknown SLOWLOG subcommand or wrong # of args. Try GET, RESET, LEN."
    line = b"ERR value is not an integer or out of range - count takes whole numbers of 64 bits"
    assert client.is_refused("SLOWLOG", "GET", "x") == line
    line = b"ERR syntax error - unknown option '2'; expected count or FULL"
    assert client.is_refused("SLOWLOG", "GET", "1", "2") == line


# LATENCY.


def test_latency_latest_and_history(daemon, client):
    for second, span in enumerate((120, 300, 50)):
        daemon.latency.note("command", span, 1_700_000_000 + second)
    daemon.latency.note("aof-write", 7, 1_700_000_009)
    assert client.says("LATENCY", "LATEST") == [
        [b"command", 1_700_000_002, 50, 300],
        [b"aof-write", 1_700_000_009, 7, 7],
    ]
    assert client.says("LATENCY", "HISTORY", "command") == [
        [1_700_000_000, 120],
        [1_700_000_001, 300],
        [1_700_000_002, 50],
    ]
    assert client.says("LATENCY", "HISTORY", "nope") == []


def test_latency_graph_needs_samples(daemon, client):
    assert client.is_refused("LATENCY", "GRAPH", "fork") == b"ERR No samples available for event 'fork'"
    daemon.latency.note("fork", 7, 1_700_000_000)
    assert client.says("LATENCY", "GRAPH", "fork").startswith(b"fork - high 7 ms, low 7 ms")


def test_latency_doctor_reports(daemon, client):
    daemon.latency.note("fork", 7, 1_700_000_000)
    assert b"- fork: 1 samples" in client.says("LATENCY", "DOCTOR")


def test_latency_reset_forgets_some_events_or_all(daemon, client):
    for event in ("a", "b", "c"):
        daemon.latency.note(event, 5, 1)
    assert client.says("LATENCY", "RESET", "a", "nope") == 1
    assert client.says("LATENCY", "RESET") == 2
    assert client.says("LATENCY", "LATEST") == []


def test_errors_of_latency(client):
    for words in (("NOPE",), ("LATEST", "x"), ("HISTORY",), ("DOCTOR", "x")):
        line = client.is_refused("LATENCY", *words)
        assert (
            line == b"ERR syntax error - LATENCY takes LATEST, HISTORY event, GRAPH event, RESET [event ...] or DOCTOR"
        )
    assert client.is_refused("LATENCY") == b"ERR wrong number of arguments for 'latency' command"
