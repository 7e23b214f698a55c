"""Commands on the daemon: PING, TIME, INFO, CONFIG, SHUTDOWN, DEBUG, LOADJOB."""

import pytest

from disqued import __version__
from disqued.commands import table
from disqued.commands.runnable import Tally
from disqued.commands.server import INFO_FIELDS, human_size
from disqued.commands.shapes import NO_REPLY
from disqued.commands.table import BLOCKED
from disqued.errors import CommandError
from disqued.wire.replies import Status
from tests.fakes import Client, Daemon

OK = b"OK"


@pytest.fixture
def daemon():
    return Daemon()


@pytest.fixture
def client(daemon):
    return Client(daemon)


def sections(text):
    """INFO as {section: {field: value}}."""
    found = {}
    for part in text.decode().split("\r\n\r\n"):
        head, *lines = part.strip("\r\n").split("\r\n")
        found[head.removeprefix("# ")] = dict(line.split(":", 1) for line in lines)
    return found


def test_ping_answers_pong_or_the_message(client):
    assert client.says("PING") == Status(b"PONG")
    assert isinstance(client.says("PING"), Status)
    assert client.says("ping", b"\x00hi") == b"\x00hi"
    assert not isinstance(client.says("PING", "PONG"), Status)
    assert client.is_refused("PING", "a", "b") == b"ERR wrong number of arguments for 'ping' command: 2 words at most"


def test_time_is_seconds_and_microseconds_of_the_wall_clock(daemon, client):
    daemon.clock.jump_wall(7)
    assert client.says("TIME") == [b"1700000000", b"7042"]


def test_a_node_is_a_master_that_takes_writes_to_those_who_ask_for_its_role(client):
    assert client.says("ROLE") == [b"master", 0, []]


# INFO.


def test_info_has_disques_sections_and_fields_in_disques_order(client):
    found = sections(client.says("INFO"))
    ours = {"Schedules", "Events", "Replication", "Cluster"}
    disques = ["Server", "Clients", "Memory", "Jobs", "Queues", "Persistence", "Stats", "CPU"]
    assert [name for name in found if name not in ours] == disques
    assert ours <= set(found)
    server = list(found["Server"])
    assert server[0] == "disque_version"
    assert server.index("tcp_port") < server.index("uptime_in_seconds") < server.index("hz")
    assert list(found["Persistence"]) == list(INFO_FIELDS["Persistence"])


def test_info_names_the_version_that_is_served_and_our_own(client):
    server = sections(client.says("INFO", "server"))["Server"]
    assert (server["disque_version"], server["disqued_version"]) == ("1.0-rc1", __version__)


def test_info_names_the_role_that_redis_clients_look_for(client):
    replication = sections(client.says("INFO", "REPLICATION"))["Replication"]
    assert (replication["role"], replication["connected_slaves"]) == ("master", "0")
    assert replication["master_replid"] == client.host.node.state.node_id.decode()
    assert replication["master_repl_offset"] == "0"


def test_info_counts_what_the_node_holds(client):
    for queue in ("a", "b"):
        client.says("ADDJOB", queue, "x" * 100, "0")
    found = sections(client.says("INFO"))
    assert (found["Jobs"]["registered_jobs"], found["Queues"]["registered_queues"]) == ("2", "2")
    assert int(found["Memory"]["used_memory"]) == client.host.node.state.memory.used > 200
    assert found["Memory"]["maxmemory"] == str(1 << 30)
    assert found["Memory"]["memory_level"] == "0"


def test_the_peak_of_memory_is_never_below_what_is_used_now(client):
    client.says("ADDJOB", "q", "x" * 5_000, "0")
    before = sections(client.says("INFO"))["Memory"]
    assert before["used_memory_peak"] == before["used_memory"]
    client.says("DEBUG", "FLUSHALL")
    after = sections(client.says("INFO"))["Memory"]
    assert (after["used_memory"], after["used_memory_human"]) == ("0", "0B")
    assert after["used_memory_peak"] == before["used_memory"]


def test_info_counts_consumers_that_wait(daemon, client):
    Client(daemon).says("GETJOB", "FROM", "q")
    assert sections(client.says("INFO", "clients"))["Clients"]["blocked_clients"] == "1"


def test_what_the_host_tells_stands_in_its_place_and_more_of_it_at_the_end(daemon, client):
    daemon.more_facts = {
        "Stats": {"internal_errors": 3, "rejected_connections": 2, "instantaneous_input_kbps": 1.239},
        "Persistence": {"loading": True, "aof_enabled": 1, "aof_current_size": 77},
    }
    found = sections(client.says("INFO"))
    assert found["Stats"] == {
        "instantaneous_input_kbps": "1.24",
        "rejected_connections": "2",
        "internal_errors": "3",
        "background_additions": "0",
        "background_additions_failed": "0",
    }
    assert list(found["Persistence"]) == [*INFO_FIELDS["Persistence"], "aof_current_size"]
    assert (found["Persistence"]["loading"], found["Persistence"]["aof_enabled"]) == ("1", "1")


def test_fragmentation_is_resident_memory_over_what_the_node_counts(daemon, client):
    daemon.more_facts = {"Memory": {"used_memory_rss": 50_000_000}}
    assert sections(client.says("INFO", "memory"))["Memory"]["mem_fragmentation_ratio"] == "0.00"
    client.says("ADDJOB", "q", "x" * 10_000, "0")
    used = daemon.node.state.memory.used
    daemon.more_facts = {"Memory": {"used_memory_rss": used * 3, "mem_allocator": "pymalloc"}}
    found = sections(client.says("INFO", "memory"))["Memory"]
    assert found["mem_fragmentation_ratio"] == "3.00"
    assert list(found).index("used_memory_rss") < list(found).index("used_memory_peak")


def test_a_section_is_asked_for_in_any_case_and_an_unknown_one_is_empty(client):
    assert list(sections(client.says("INFO", "jObS"))) == ["Jobs"]
    assert client.says("INFO", "nope") == b""
    assert client.is_refused("INFO", "a", "b") == b"ERR wrong number of arguments for 'info' command: 2 words at most"


def test_info_ends_sections_with_an_empty_line_between_them(client):
    assert client.says("INFO", "queues") == (
        b"# Queues\r\nregistered_queues:0\r\nlimited_queues:0\r\nslots:0\r\n"
        b"background_pushes:0\r\nbackground_pushes_failed:0\r\n"
    )
    assert b"failing_jobs:0\r\njobs_died:0\r\n\r\n# Queues\r\n" in client.says("INFO")


def test_info_tells_how_the_schedules_stand(client):
    client.says("SCHEDULE", "SET", "beat", "EVERY", "60", "QUEUE", "q", "BODY", "b")
    client.says("SCHEDULE", "SET", "other", "EVERY", "60", "QUEUE", "q", "BODY", "b")
    client.says("SCHEDULE", "PAUSE", "other")
    found = sections(client.says("INFO", "schedules"))["Schedules"]
    assert found == {
        "registered_schedules": "2", "paused_schedules": "1", "refused_schedules": "0", "schedules_behind_ms": "0",
        "schedule_instants_fired": "0", "schedule_instants_late": "0", "schedule_instants_skipped": "0",
        "schedule_instants_missed": "0", "schedule_firings_refused": "0",
    }  # fmt: skip


def test_the_facts_of_a_section_come_in_disques_order_whoever_knows_them(client):
    names = [
        "used_memory", "used_memory_human", "used_memory_rss", "used_memory_peak", "used_memory_peak_human",
        "mem_fragmentation_ratio", "mem_allocator", "maxmemory", "memory_level",
    ]  # fmt: skip
    client.host.more_facts["Memory"] = dict.fromkeys(["of_our_own", *reversed(names)], 1)
    lines = client.says("INFO", "memory").decode().splitlines()
    assert [line.partition(":")[0] for line in lines] == ["# Memory", *names, "of_our_own"]


def test_command_statistics_come_on_request_and_only_of_commands_that_were_called(client, monkeypatch):
    for entry in table.every_command():
        monkeypatch.setattr(entry, "tally", Tally())
    ping, config = table.find([b"PING"]), table.find([b"CONFIG", b"GET", b"x"])
    ping.tally.calls, ping.tally.usec = 4, 10.0
    config.tally.calls, config.tally.usec = 1, 2.25
    assert "Commandstats" not in sections(client.says("INFO"))
    assert "Commandstats" not in sections(client.says("INFO", "default"))
    expected = {
        "cmdstat_config|get": "calls=1,usec=2,usec_per_call=2.25",
        "cmdstat_ping": "calls=4,usec=10,usec_per_call=2.50",
    }
    for word in ("all", "everything", "commandstats"):
        shown = sections(client.says("INFO", word))["Commandstats"]
        del shown["cmdstat_info"]  # those of this test
        assert shown == expected


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (1_023, "1023B"),
        (1_024, "1.00K"),
        (1_536, "1.50K"),
        (1 << 20, "1.00M"),
        (1 << 30, "1.00G"),
        (5 << 40, "5.00T"),
        (3 << 50, "3.00P"),
        (2 << 60, "2048.00P"),
    ],
)
def test_sizes_for_people(size, text):
    assert human_size(size) == text


# CONFIG.


def test_config_get_answers_a_map_that_is_flat_in_resp2(client):
    assert client.says("CONFIG", "GET", "maxmem*") == {b"maxmemory": b"1073741824"}
    entry = table.find([b"CONFIG", b"GET", b"x"])
    assert entry.encoder(2)({b"a": b"1"}) == b"*2\r\n$1\r\na\r\n$1\r\n1\r\n"
    assert entry.encoder(3)({b"a": b"1"}) == b"%1\r\n$1\r\na\r\n$1\r\n1\r\n"


def test_config_get_of_nothing_is_empty(client):
    assert client.says("CONFIG", "GET", "nope") == {}
    assert client.says("CONFIG", "GET", "*" * 256)
    with pytest.raises(CommandError, match="a pattern has up to 256 bytes"):
        client.says("CONFIG", "GET", "*" * 257)


def test_config_set_changes_a_setting(daemon, client):
    assert client.says("CONFIG", "SET", "maxmemory", "2gb") == OK
    assert daemon.values[b"maxmemory"] == b"2gb"
    assert client.is_refused("CONFIG", "SET", "nope", "1") == b"ERR Unsupported CONFIG parameter: nope"


def test_config_rewrite_and_resetstat_ask_the_daemon(daemon, client):
    assert client.says("CONFIG", "REWRITE") == OK
    assert client.says("CONFIG", "RESETSTAT") == OK
    assert daemon.done == [("rewrite", None), ("reset", None)]
    daemon.has_file = False
    assert client.is_refused("CONFIG", "REWRITE") == b"ERR The server is running without a config file"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("NOPE",), b"ERR CONFIG subcommand must be one of GET, SET, RESETSTAT, REWRITE"),
        (("GET",), b"ERR Wrong number of arguments for CONFIG GET"),
        (("get",), b"ERR Wrong number of arguments for CONFIG get"),
        (("GET", "a", "b"), b"ERR Wrong number of arguments for CONFIG GET"),
        (("SET", "a"), b"ERR Wrong number of arguments for CONFIG SET"),
        (("REWRITE", "x"), b"ERR Wrong number of arguments for CONFIG REWRITE"),
        ((), b"ERR wrong number of arguments for 'config' command"),
    ],
)
def test_errors_of_config(client, words, line):
    assert client.is_refused("CONFIG", *words) == line


# SHUTDOWN, DEBUG, LOADJOB.


def test_shutdown_has_no_reply(daemon, client):
    assert client.says("SHUTDOWN") is NO_REPLY
    assert client.says("shutdown", "rewrite-aof") is BLOCKED
    assert daemon.done == [("shutdown", False), ("shutdown", True)]


def test_bgrewriteaof_begins_to_rewrite_the_journal(daemon, client):
    assert client.says("BGREWRITEAOF") == b"Background append only file rewriting started"
    assert daemon.done == [("compact", None)]
    assert client.is_refused("BGREWRITEAOF", "NOW").startswith(b"ERR wrong number of arguments")


@pytest.mark.parametrize("word", ["NOSAVE", "SAVE", "NOW"])
def test_shutdown_refuses_words_of_redis_and_others(daemon, client, word):
    line = b"ERR syntax error - unknown option '%b'; expected REWRITE-AOF" % word.encode()
    assert client.is_refused("SHUTDOWN", word) == line
    assert daemon.done == []


def test_debug_flushall_forgets_everything_and_answers_those_who_wait(daemon, client):
    client.says("ADDJOB", "a", "1", "0")
    waiting = Client(daemon)
    waiting.says("GETJOB", "FROM", "b")
    assert client.says("DEBUG", "FLUSHALL") == OK
    assert len(daemon.node.state.jobs) == len(daemon.node.state.queues) == 0
    assert daemon.node.outbox.replies == [(waiting, None, [])]


def test_debug_sleep_stops_the_daemon(daemon, client):
    assert client.says("DEBUG", "SLEEP", "0.25") == OK
    assert daemon.done == [("sleep", 0.25)]


@pytest.mark.parametrize("span", ["-1", "nan", "inf", "1e9", "x", ""])
def test_debug_sleep_refuses_what_is_no_span(daemon, client, span):
    assert client.is_refused("DEBUG", "SLEEP", span).startswith(b"ERR SLEEP takes seconds from 0 to 3600")
    assert daemon.done == []


def test_debug_error_answers_the_text(client):
    assert client.is_refused("DEBUG", "ERROR", "WRONG thing") == b"WRONG thing"
    assert client.is_refused("DEBUG", "ERROR", b"\xff") == b"\xff"


def test_debug_structsize_is_what_counts_towards_maxmemory(daemon, client):
    text = client.says("DEBUG", "STRUCTSIZE").decode()
    sizes = dict(pair.split(":") for pair in text.split())
    client.says("ADDJOB", "queue", "body", "0")
    assert int(sizes["job"]) + int(sizes["queue"]) + len("queue") + len("body") == daemon.node.state.memory.used


@pytest.mark.parametrize("word", ["NOPE", "segfault", "OOM", "ASSERT", "RESTART", "CRASH-AND-RECOVER", "LOADAOF"])
def test_other_words_of_debug_are_refused(client, word):
    line = f"ERR Unknown DEBUG subcommand or wrong number of arguments for '{word}'".encode()
    assert client.is_refused("DEBUG", word) == line


def test_loadjob_is_not_for_clients(client):
    assert client.is_refused("LOADJOB", "x") == b"ERR LOADJOB is a special command only processed from AOF"
    assert client.is_refused("LOADJOB") == b"ERR wrong number of arguments for 'loadjob' command"
