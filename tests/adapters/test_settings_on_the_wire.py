"""What CONFIG SET may change: nothing that decides which files are read and written, or who is reached."""

from collections.abc import Callable
from pathlib import Path

import hiredis
import pytest
import pytest_twisted
from twisted.logger import capturedLogs, formatEvent

from disqued.config import SETTINGS
from tests.adapters.inprocess import Running

Launch = Callable[..., Running]
async_test = pytest_twisted.ensureDeferred

#: All that may be changed while the node runs: amounts, spans, and how it behaves.  Whoever adds one looks at what a
#: client that may send CONFIG could do with it; Redis protects its own (enable-protected-configs), here they stay shut.
MUTABLE = """
    tcp-keepalive timeout maxclients client-output-buffer-limit client-query-buffer-limit proto-max-bulk-len
    requirepass acllog-max-len auth-timeout max-unauthenticated-clients
    loglevel maxmemory maxmemory-policy maxmemory-samples qadd-timeout bg-qadd-pool-size bg-push-pool-size
    persistence appendonly appendfsync aof-load-truncated aof-enqueue-jobs-once no-appendfsync-on-rewrite
    auto-aof-rewrite-percentage auto-aof-rewrite-min-size aof-rewrite-incremental-fsync sqlite-history redis-backlog
    result-max wq-retry wq-unique-scope slowlog-log-slower-than slowlog-max-len latency-monitor-threshold
    cluster-node-timeout cluster-leave-timeout cluster-link-buffer-limit
    events events-file-size events-file-seconds events-keep-days events-keep-size
    dead-ttl rq-ttl rq-replicate rq-orphans activerehashing hz watchdog-period
""".split()
#: Kinds of values that name files, folders, addresses, or a server.
NAMING = {
    "FilePath", "Folder", "FolderPath", "FileName", "Addresses", "AddressesOrNone", "AddressOrNone", "RedisUrl",
    "Renames", "Prefix",
}  # fmt: skip


def test_what_may_be_changed_at_run_time_is_all_listed_here() -> None:
    assert {name for name, setting in SETTINGS.items() if setting.mutable} == set(MUTABLE)


def test_nothing_that_names_a_file_or_a_place_may_be_changed_at_run_time() -> None:
    named = {name for name, setting in SETTINGS.items() if type(setting.kind).__name__ in NAMING}
    assert {"dir", "aclfile", "requirepass-file", "cluster-secret-file", "logfile", "pidfile", "unixsocket"} <= named
    assert {
        "appendfilename",
        "sqlite-file",
        "http-token-file",
        "http-audit-file",
        "reports-file",
        "events-dir",
    } <= named
    assert not named & set(MUTABLE)


@async_test
async def test_config_set_refuses_each_of_the_others_and_says_why(launch: Launch) -> None:
    running = launch()
    client = await running.connect()
    for name in sorted(SETTINGS.keys() - set(MUTABLE)):
        before = running.daemon.config[name]
        for spelled in (name, name.upper()):
            reply = await client.call("CONFIG", "SET", spelled, "/tmp/elsewhere")
            assert isinstance(reply, hiredis.ReplyError)
            assert str(reply) == (
                f"ERR Unsupported CONFIG parameter: {spelled}; it can be changed only in the file or on the command "
                "line, before the start"
            )
        assert running.daemon.config[name] == before


@pytest.mark.parametrize("name", ["nothing", "user", "protected-mode", "enable-protected-configs"])
@async_test
async def test_config_set_of_what_is_no_setting_is_refused(launch: Launch, name: str) -> None:
    client = await launch().connect()
    assert str(await client.call("CONFIG", "SET", name, "yes")) == f"ERR Unsupported CONFIG parameter: {name}"


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("maxmemory", "x", "allowed are sizes from 1 byte up, such as 100mb"),
        ("MAXMEMORY-policy", "all", "allowed are "),
        ("timeout", "-1", "allowed are whole numbers from 0 to 2147483647"),
        ("appendfsync", "a\r\nb", "allowed are always, everysec and no"),
        ("aof-load-truncated", "maybe", "allowed are yes and no"),
    ],
)
@async_test
async def test_config_set_of_a_wrong_value_says_what_is_allowed(
    launch: Launch, name: str, value: str, told: str
) -> None:
    client = await launch().connect()
    reply = await client.call("CONFIG", "SET", name, value)
    shown = value.replace("\r\n", "  ")
    assert str(reply).startswith(f"ERR Invalid argument '{shown}' for CONFIG SET '{name}' - {told}")


@async_test
async def test_what_stands_against_a_value_is_said_where_there_is_nothing_to_list(
    launch: Launch, tmp_path: Path
) -> None:
    running = launch(f"requirepass-file {tmp_path}/password")
    running.daemon.config.use_password("of the file")
    client = await running.connect()
    await client.call("AUTH", "of the file")
    reply = await client.call("CONFIG", "SET", "requirepass", "x")
    assert str(reply) == (
        "ERR Invalid argument '(redacted)' for CONFIG SET 'requirepass' - the password is that of "
        "requirepass-file; change it there"
    )


@pytest.mark.parametrize("name", ["requirepass", "RequirePass"])
@async_test
async def test_a_password_that_is_refused_stands_neither_in_the_error_nor_in_the_log(launch: Launch, name: str) -> None:
    client = await launch().connect()
    with capturedLogs() as events:
        reply = str(await client.call("CONFIG", "SET", name, "my-secret" * 100))
    assert reply.startswith(f"ERR Invalid argument '(redacted)' for CONFIG SET '{name}' - ")
    told = "".join(formatEvent(event) for event in events)
    assert "CONFIG SET refused: requirepass (redacted)" in told
    assert "my-secret" not in reply + told


@async_test
async def test_config_set_of_what_is_nearly_a_setting_names_it(launch: Launch) -> None:
    client = await launch().connect()
    reply = await client.call("CONFIG", "SET", "max-memory", "1gb")
    assert str(reply) == "ERR Unsupported CONFIG parameter: max-memory; did you mean maxmemory?"
