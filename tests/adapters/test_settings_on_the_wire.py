"""What CONFIG SET may change: nothing that decides which files are read and written, or who is reached."""

from collections.abc import Callable

import hiredis
import pytest
import pytest_twisted

from disqued.config_table import SETTINGS
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
    wq-retry wq-unique-scope slowlog-log-slower-than slowlog-max-len latency-monitor-threshold
    cluster-node-timeout cluster-leave-timeout cluster-link-buffer-limit
    events events-file-size events-file-seconds events-keep-days events-keep-size
    rq-ttl rq-replicate rq-orphans activerehashing hz watchdog-period
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
