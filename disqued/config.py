"""Every setting of the daemon, described once; the file, the command line and CONFIG all come from this table.

                    SETTINGS   name, kind, default, unit, mutable, status, group, doc
                        |
         +--------------+-------------+------------------+----------------------+
      the file       options    CONFIG GET, SET    CONFIG REWRITE    disqued.conf, the reference page
    from_file  apply_arguments   matching, set        rewrite        python -m disqued.config conf | markdown

A line of the file is a directive and its value; what is given later wins, and the command line wins over the file.  A
directive that this version does not act on is accepted, so that Disque's files load, and never in silence: each one
that is given adds a text to `Config.warnings`.

Beside this module: config_values (kinds of values, quoting, errors), config_rewrite (the new text of a file),
config_texts (the generated pages).  Units stand in the table.

Source: Disque 1.0-rc1, the directives of its file and its CONFIG command; the table says where this daemon differs.
"""

import difflib
import ipaddress
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar, cast, overload

import attrs

from disqued import config_rewrite, config_texts
from disqued.config_values import (
    Addresses,
    BadValue,
    Choice,
    ConfigError,
    FileName,
    FilePath,
    Folder,
    KeepAlive,
    Octal,
    OnlyNo,
    OutputLimit,
    OutputLimits,
    Prefix,
    RedisUrl,
    Renames,
    Setting,
    Size,
    Status,
    StoreName,
    Text,
    WholeNumber,
    YesNo,
    as_bytes,
    as_text,
    words_of,
)
from disqued.core import glob

__all__ = [
    "SETTINGS",
    "BadValue",
    "Config",
    "ConfigError",
    "NoConfigFile",
    "NotMutable",
    "OutputLimit",
    "Setting",
    "Status",
    "UnknownDirective",
    "as_bytes",
    "as_text",
    "conf_text",
    "markdown_text",
]

T = TypeVar("T")

MAX_PASSWORD_BYTES: Final = 512
MAX_SOCKET_PATH_BYTES: Final = 107  #: what the system's socket address has room for


# --- Errors ----------------------------------------------------------------------------------------------------------


class UnknownDirective(ConfigError):
    """No directive has this name."""

    def __init__(self, name: str) -> None:
        near = difflib.get_close_matches(name.lower()[:64], SETTINGS, n=1)
        self.suggestion: str | None = near[0] if near else None
        hint = f"; did you mean {self.suggestion}?" if self.suggestion else ""
        super().__init__(name, problem=f"unknown directive{hint}")


class NotMutable(ConfigError):
    """The directive takes effect at the start only."""

    def __init__(self, name: str) -> None:
        super().__init__(name, problem="can be changed only in the file or on the command line, before the start")


class NoConfigFile(ConfigError):
    """There is no file to rewrite."""

    def __init__(self) -> None:
        super().__init__(problem="the server is running without a config file")


# --- The table -------------------------------------------------------------------------------------------------------

_NO_CLUSTER = "nodes do not join into clusters yet"
_NO_HTTP = "there is no admin page and no HTTP API yet"
_NO_SYSLOG = "logs go to standard output or to logfile, from where systemd and syslog take them"
_MB: Final = 2**20
_GB: Final = 2**30

_GROUPS: Final[tuple[tuple[str, tuple[Setting, ...]], ...]] = (
    (
        "Files",
        (
            Setting(
                "include",
                FilePath(),
                "",
                "Read another file at this place. Its path is relative to the folder of the file that includes it, so "
                "that a set of files can be moved together; a file may not include itself, directly or through others. "
                "CONFIG REWRITE keeps the line and changes the main file only.",
                listed=False,
                example="common.conf",
            ),
            Setting(
                "dir",
                Folder(),
                Path("."),
                "Folder of the journal and of every other file whose path is relative. A relative path is taken from "
                "the folder that the daemon is started in and is absolute from then on. It cannot be changed while the "
                "daemon runs: files that are open would stay behind, and who may send CONFIG SET could have files "
                "written anywhere.",
            ),
            Setting(
                "pidfile",
                FilePath(),
                "",
                "File that holds the process id while the daemon serves. Empty for none: systemd needs none, and a "
                "stale file misleads.",
            ),
        ),
    ),
    (
        "Network",
        (
            Setting(
                "port",
                WholeNumber(0, 55535),
                7711,
                "TCP port for clients. It ends at 55535 because the cluster bus takes the port 10000 above it. 0 opens "
                "no TCP port; then a unixsocket is needed.",
            ),
            Setting(
                "bind",
                Addresses(),
                ("127.0.0.1",),
                "Addresses to accept clients on. Only this machine reaches the default; beyond the loopback addresses "
                "a requirepass is needed, or the daemon does not start, since whoever connects may read and delete "
                "every job. Disque without this directive listens on all interfaces.",
            ),
            Setting(
                "unixsocket",
                FilePath(),
                "",
                "Path of a Unix socket to accept clients on, beside or instead of TCP. Empty for none.",
            ),
            Setting(
                "unixsocketperm",
                Octal(0o777),
                0,
                "Permissions of the Unix socket. 0 leaves them to the umask of the process.",
                unit="octal",
            ),
            Setting(
                "tcp-backlog",
                WholeNumber(0, 65535),
                511,
                "Connections that may wait to be accepted. The system may cap it (net.core.somaxconn), which matters "
                "when thousands of clients reconnect at once.",
                unit="connections",
            ),
            Setting(
                "tcp-keepalive",
                KeepAlive(),
                0,
                "Idle time after which the system asks whether a client is still there. Consumers that block for hours "
                "behind a firewall need it, and so does noticing a machine that vanished. 0 asks never. CONFIG GET "
                "answers seconds, where Disque 1.0-rc1 answers yes or no.",
                unit="seconds",
                mutable=True,
            ),
            Setting(
                "timeout",
                WholeNumber(),
                0,
                "Idle time after which a client is disconnected. A client that waits in a blocking command is not "
                "idle. 0 disconnects nobody.",
                unit="seconds",
                mutable=True,
            ),
        ),
    ),
    (
        "Clients",
        (
            Setting(
                "maxclients",
                WholeNumber(1),
                10000,
                "Connections served at the same time. One more is told so and closed. The system's limit of open "
                "files has to be higher.",
                unit="connections",
                mutable=True,
            ),
            Setting(
                "client-output-buffer-limit",
                OutputLimits(),
                OutputLimit(_GB, 256 * _MB, 60),
                "How much a client may leave unread. More than the hard limit disconnects it at once, more than the "
                "soft limit when it lasts for that many seconds. Without limits a client that asks and never reads "
                "takes the whole memory, which is why the default is not Disque's `normal 0 0 0`. normal, meaning "
                "every client, is the only class.",
                unit="bytes, bytes, seconds",
                mutable=True,
            ),
            Setting(
                "client-query-buffer-limit",
                Size(_MB),
                _GB,
                "How much of a command that has not arrived whole is kept for a client. More disconnects it, since no "
                "sensible command is larger.",
                unit="bytes",
                mutable=True,
            ),
            Setting(
                "proto-max-bulk-len",
                Size(1024, 2 * _GB),
                512 * _MB,
                "Longest argument of a command, and with it the longest body of a job. A longer one is refused by its "
                "declared length, before anything is kept for it.",
                unit="bytes",
                mutable=True,
            ),
        ),
    ),
    (
        "Security",
        (
            Setting(
                "requirepass",
                Text(MAX_PASSWORD_BYTES),
                "",
                "Password that clients have to give with AUTH or HELLO. Empty for none, which is possible on loopback "
                "addresses only. A password set at run time also locks out the connections that exist.",
                mutable=True,
            ),
            Setting(
                "rename-command",
                Renames(),
                (),
                'Give a command another name, or none with "". It may be given many times; it keeps dangerous commands '
                "from applications that share a password. CONFIG does not show it, since the new name is a secret.",
                listed=False,
                example='DEBUG ""',
            ),
        ),
    ),
    (
        "Logs",
        (
            Setting(
                "loglevel",
                Choice(("debug", "verbose", "notice", "warning")),
                "notice",
                "Least important messages that are logged. notice is what an operator wants to read, warning what "
                "needs attention; debug and verbose add what the libraries tell, and no lines of our own so far.",
                mutable=True,
            ),
            Setting(
                "logfile",
                FilePath(),
                "",
                "File that the log is appended to. Empty writes to standard output, where systemd and containers "
                "expect it.",
            ),
            Setting(
                "log-format",
                Choice(("auto", "human", "json")),
                "auto",
                "Form of the log. human is a line to read, json one object a line to collect; auto takes human on a "
                "terminal and json otherwise.",
            ),
        ),
    ),
    (
        "Memory",
        (
            Setting(
                "maxmemory",
                Size(1),
                _GB,
                "Bytes that jobs and queues may take. Above 75 % new jobs get no copy on this node, above 95 % data "
                "that breaks no promise is evicted, at 100 % commands that add data are refused. It cannot be "
                "unlimited: a queue that nobody reads would take the machine down. The interpreter, connections and "
                "buffers come on top.",
                unit="bytes",
                mutable=True,
            ),
            Setting(
                "maxmemory-policy",
                Choice(("acks", "noeviction")),
                "acks",
                "What is evicted above 95 % of maxmemory. acks evicts acknowledged jobs, delivered at-most-once jobs "
                "and idle queues; noeviction evicts nothing and refuses additions earlier.",
                mutable=True,
            ),
        ),
    ),
    (
        "Persistence",
        (
            Setting(
                "persistence",
                StoreName(known=("none", "aof", "sqlite", "redis")),
                "none",
                "Where jobs are kept beside memory. none keeps them nowhere: a single node that stops loses them. aof "
                "writes each change to an append-only file and reads it at the start, sqlite keeps a database that "
                "people can query, redis a Redis server; a plugin may bring more. `aof` is the same as "
                "`appendonly yes`; a file whose two lines contradict each other is refused. When it is changed while "
                "the daemon runs, the new store is given all jobs before it takes the old one's place.",
                mutable=True,
            ),
            Setting(
                "appendonly",
                YesNo(),
                False,
                "Disque's name for `persistence aof`. yes selects it; no turns it into `persistence none`, and changes "
                "nothing where another store is in use.",
                mutable=True,
            ),
            Setting(
                "appendfilename",
                FileName(),
                "disque.aof",
                "Name of the append-only file in `dir`.",
            ),
            Setting(
                "appendfsync",
                Choice(("always", "everysec", "no")),
                "everysec",
                "When changes are forced to the disk. always does it before the client hears of them, so that a power "
                "cut loses nothing; everysec may lose about a second and costs little; no leaves it to the system. The "
                "end of the process alone loses nothing with any of them, unless under everysec a write hangs at that "
                "moment.",
                mutable=True,
            ),
            Setting(
                "aof-load-truncated",
                YesNo(),
                True,
                "Start although the append-only file ends within a record, as it does after a power cut. The torn "
                "record is cut off, with a warning; with no the daemon does not start, and someone has to look first.",
                mutable=True,
            ),
            Setting(
                "aof-enqueue-jobs-once",
                YesNo(),
                False,
                "Queue the jobs again that were queued when the file was written, at the next start only. This is for "
                "a controlled restart: CONFIG SET it, CONFIG REWRITE, SHUTDOWN REWRITE-AOF. After a crash it would "
                "deliver jobs twice, therefore it turns itself off after one use.",
                mutable=True,
            ),
            Setting(
                "no-appendfsync-on-rewrite",
                YesNo(),
                False,
                "Do not force changes to the disk while the journal is compacted. The compaction writes much, and on a "
                "slow disk each sync would wait for it; but a power cut meanwhile loses what appendfsync promises to "
                "keep.",
                mutable=True,
            ),
            Setting(
                "auto-aof-rewrite-percentage",
                WholeNumber(),
                100,
                "Growth of the journal since it was last compacted that starts the next compaction. 0 for never.",
                unit="per cent",
                mutable=True,
            ),
            Setting(
                "auto-aof-rewrite-min-size",
                Size(),
                64 * _MB,
                "Size below which the journal is not worth compacting.",
                unit="bytes",
                mutable=True,
            ),
            Setting(
                "aof-rewrite-incremental-fsync",
                YesNo(),
                True,
                "Force a compacted journal to the disk in pieces rather than all at its end, where one long sync would "
                "make others wait.",
                mutable=True,
            ),
            Setting(
                "sqlite-file",
                FileName(),
                "disque.sqlite",
                "Name of the database in `dir` for `persistence sqlite`.",
            ),
            Setting(
                "sqlite-history",
                WholeNumber(),
                7 * 86400,
                "How long the database keeps what is over: jobs that are done, and evictions. 0 keeps none of it.",
                unit="seconds",
                mutable=True,
            ),
            Setting(
                "redis-url",
                RedisUrl(),
                "redis://127.0.0.1:6379/0",
                "The Redis server for `persistence redis`. Whoever may send CONFIG GET sees its password, as they do "
                "requirepass.",
            ),
            Setting(
                "redis-prefix",
                Prefix(),
                "disqued",
                "What the keys in the Redis server begin with. Nodes that share a server need one each.",
            ),
            Setting(
                "redis-backlog",
                Size(1),
                64 * _MB,
                "Records that may wait for the Redis server at most, when it is slow or away. With more, commands that "
                "add data are refused until it has caught up.",
                unit="bytes",
                mutable=True,
            ),
        ),
    ),
    (
        "Observation",
        (
            Setting(
                "slowlog-log-slower-than",
                WholeNumber(-1),
                10000,
                "Time in execution from which a command enters the slow log. 0 logs every command, -1 none.",
                unit="microseconds",
                mutable=True,
            ),
            Setting(
                "slowlog-max-len",
                WholeNumber(),
                128,
                "Entries that the slow log keeps; the oldest go first.",
                unit="entries",
                mutable=True,
            ),
            Setting(
                "latency-monitor-threshold",
                WholeNumber(),
                0,
                "Duration from which an event is noted for LATENCY. 0 notes none.",
                unit="milliseconds",
                mutable=True,
            ),
        ),
    ),
    (
        "Cluster",
        (
            Setting(
                "cluster-config-file",
                FileName(),
                "nodes.conf",
                "Name of the file in `dir` that keeps what the node knows of the cluster.",
                status=Status.PLANNED,
                reason=_NO_CLUSTER,
            ),
            Setting(
                "cluster-node-timeout",
                WholeNumber(1),
                15000,
                "Silence after which another node is suspected to have failed.",
                unit="milliseconds",
                mutable=True,
                status=Status.PLANNED,
                reason=_NO_CLUSTER,
            ),
        ),
    ),
    (
        "Web",
        (
            Setting(
                "http-port",
                WholeNumber(0, 65535),
                7780,
                "TCP port of the admin page and the HTTP API. 0 for none.",
                status=Status.PLANNED,
                reason=_NO_HTTP,
            ),
            Setting(
                "http-bind",
                Addresses(),
                ("127.0.0.1",),
                "Addresses of the admin page and the HTTP API.",
                status=Status.PLANNED,
                reason=_NO_HTTP,
            ),
        ),
    ),
    (
        "Disque's own",
        (
            Setting(
                "daemonize",
                OnlyNo(("no",), "going into the background is up to twistd, which does it unless it is given -n"),
                "no",
                "Disque's way into the background.",
                status=Status.OBSOLETE,
                reason="twistd goes into the background unless it is given -n",
            ),
            Setting(
                "syslog-enabled",
                YesNo(),
                False,
                "Disque's switch for logs to syslog.",
                status=Status.OBSOLETE,
                reason=_NO_SYSLOG,
            ),
            Setting(
                "syslog-ident",
                Text(),
                "disque",
                "Disque's name in the logs of syslog.",
                status=Status.OBSOLETE,
                reason=_NO_SYSLOG,
            ),
            Setting(
                "syslog-facility",
                Choice(("user", *(f"local{number}" for number in range(8)))),
                "local0",
                "Disque's facility in syslog.",
                status=Status.OBSOLETE,
                reason=_NO_SYSLOG,
            ),
            Setting(
                "databases",
                WholeNumber(1),
                16,
                "Number of databases of Redis, of which Disque was made.",
                status=Status.OBSOLETE,
                reason="there is one set of queues; SELECT knows 0 alone",
            ),
            Setting(
                "maxmemory-samples",
                WholeNumber(1),
                5,
                "How many keys Redis looks at before it evicts one.",
                mutable=True,
                status=Status.OBSOLETE,
                reason="jobs that may be evicted are known, nothing is sampled",
            ),
            Setting(
                "activerehashing",
                YesNo(),
                True,
                "Whether Redis spends idle time on its hash tables.",
                mutable=True,
                status=Status.OBSOLETE,
                reason="Python keeps its own tables",
            ),
            Setting(
                "hz",
                WholeNumber(),
                10,
                "How often a second Disque looks after its clients and timers.",
                mutable=True,
                status=Status.OBSOLETE,
                reason="nothing is polled, every deadline has its exact time",
            ),
            Setting(
                "watchdog-period",
                WholeNumber(),
                0,
                "Stall after which Redis logs its stack.",
                unit="milliseconds",
                mutable=True,
                status=Status.OBSOLETE,
                reason="it examines a C stack",
            ),
        ),
    ),
)

SETTINGS: Final[dict[str, Setting]] = {
    setting.name: attrs.evolve(setting, group=group) for group, members in _GROUPS for setting in members
}

#: Directives that only count together with others, which `Config.check` looks at.
_CHECKED_TOGETHER: Final = frozenset({"port", "bind", "unixsocket", "requirepass"})


def conf_text() -> str:
    """The text of disqued.conf."""
    return config_texts.conf_text(_GROUPS)


def markdown_text() -> str:
    """The text of docs/reference/configuration.md."""
    return config_texts.markdown_text(_GROUPS)


# --- The configuration -----------------------------------------------------------------------------------------------


@attrs.frozen
class _Place:
    """Where the value that counts was given."""

    path: str
    line: int


class Directive(Generic[T]):
    """Typed reading of one setting: `config.tcp_backlog` is `config["tcp-backlog"]`."""

    def __set_name__(self, owner: type["Config"], attribute: str) -> None:
        self.name = attribute.replace("_", "-")

    @overload
    def __get__(self, config: None, owner: type["Config"]) -> Self: ...
    @overload
    def __get__(self, config: "Config", owner: type["Config"]) -> T: ...
    def __get__(self, config: "Config | None", owner: type["Config"]) -> Self | T:
        return self if config is None else cast("T", config[self.name])


class FileDirective(Directive[Path | None]):
    """A file: None when the setting is empty, else its absolute path; a relative one starts at `dir`."""

    @overload
    def __get__(self, config: None, owner: type["Config"]) -> Self: ...
    @overload
    def __get__(self, config: "Config", owner: type["Config"]) -> Path | None: ...
    def __get__(self, config: "Config | None", owner: type["Config"]) -> Self | Path | None:
        if config is None:
            return self
        name = config[self.name]
        return config.dir / name if name else None


class Config:
    """The settings of one daemon: read, checked, then changed through `set`.

    Reading: `config["tcp-backlog"]` for any directive, `config.tcp_backlog` with its type for those that are live.
    Reading costs a look-up; who needs a value often keeps it and subscribes.
    """

    port = Directive[int]()
    bind = Directive[tuple[str, ...]]()
    unixsocket = FileDirective()
    unixsocketperm = Directive[int]()
    tcp_backlog = Directive[int]()
    tcp_keepalive = Directive[int]()
    timeout = Directive[int]()
    maxclients = Directive[int]()
    client_output_buffer_limit = Directive[OutputLimit]()
    client_query_buffer_limit = Directive[int]()
    proto_max_bulk_len = Directive[int]()
    requirepass = Directive[str]()
    rename_command = Directive[tuple[tuple[str, str], ...]]()
    dir = Directive[Path]()
    pidfile = FileDirective()
    loglevel = Directive[str]()
    logfile = FileDirective()
    log_format = Directive[str]()
    maxmemory = Directive[int]()
    maxmemory_policy = Directive[str]()
    persistence = Directive[str]()
    appendonly = Directive[bool]()
    appendfilename = FileDirective()
    appendfsync = Directive[str]()
    aof_load_truncated = Directive[bool]()
    aof_enqueue_jobs_once = Directive[bool]()
    no_appendfsync_on_rewrite = Directive[bool]()
    auto_aof_rewrite_percentage = Directive[int]()
    auto_aof_rewrite_min_size = Directive[int]()
    aof_rewrite_incremental_fsync = Directive[bool]()
    sqlite_file = FileDirective()
    sqlite_history = Directive[int]()
    redis_url = Directive[str]()
    redis_prefix = Directive[str]()
    redis_backlog = Directive[int]()
    slowlog_log_slower_than = Directive[int]()
    slowlog_max_len = Directive[int]()
    latency_monitor_threshold = Directive[int]()

    def __init__(self) -> None:
        self.file: Path | None = None  #: absolute path of the file that `rewrite` writes
        self.warnings: list[str] = []  #: what the start should tell: no effect, given twice
        self._values: dict[str, Any] = {name: setting.default for name, setting in SETTINGS.items()}
        self._values["dir"] = SETTINGS["dir"].parse(".")
        self._places: dict[str, _Place] = {}
        self._included: dict[str, Any] = {}  # what files that the main file includes gave last
        self._subscribers: dict[str, list[Callable[[Any], None]]] = {}

    @classmethod
    def from_text(cls, text: str, origin: str = "disqued.conf") -> Self:
        """Read the text of a file; `origin` names it in errors and is where relative includes start.

        Raises: ConfigError.
        """
        config = cls()
        _Reader(config).read(text, origin)
        return config

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file, which `rewrite` will write. Raises: ConfigError."""
        config = cls()
        _Reader(config).read_file(os.fspath(path))
        config.file = Path(os.path.realpath(path))
        return config

    def apply_arguments(self, arguments: Iterable[tuple[str, str]]) -> None:
        """Take options of the command line, (name, text) in their order; they win over the file.

        Raises: ConfigError, which names the option.
        """
        stated = _Stated()
        for name, text in arguments:
            try:
                self._apply_argument(name.lstrip("-"), text, stated)
            except ConfigError as error:
                if not error.path:
                    error.directive = f"--{error.directive}"
                raise error.at("command line") from None

    def _apply_argument(self, name: str, text: str, stated: "_Stated") -> None:
        setting = _setting(name)
        value = setting.parse(text)
        if setting.name == "include":
            _Reader(self, main=False).read_file(value)
            return
        stated.add(setting, value, 0)
        self._take(setting, value, _Place("command line", 0))

    def check(self) -> None:
        """Refuse what no single directive shows, once file and command line are read.

        Raises: BadValue.
        """
        if self.port == 0 and self.unixsocket is None:
            raise self._fault("port", "without a TCP port a unixsocket is needed, or nobody could connect")
        open_to_others = [address for address in self.bind if not ipaddress.ip_address(address).is_loopback]
        if self.port and open_to_others and not self.requirepass:
            problem = "beyond the loopback addresses a password is needed; set requirepass, or bind 127.0.0.1"
            raise self._fault("bind", problem)
        if self.unixsocket is not None and len(os.fsencode(self.unixsocket)) > MAX_SOCKET_PATH_BYTES:
            problem = f"with its folder the path is longer than the {MAX_SOCKET_PATH_BYTES} bytes that systems allow"
            raise self._fault("unixsocket", problem)

    def _fault(self, name: str, problem: str) -> BadValue:
        place = self._places.get(name, _Place("", 0))
        text = SETTINGS[name].kind.format(self[name])
        return BadValue(name, text, problem=problem, path=place.path, line=place.line)

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def matching(self, pattern: bytes | str) -> list[tuple[str, str]]:
        """Names and values as CONFIG GET shows them, for names that a glob pattern covers, in any case."""
        wanted = pattern.encode("utf-8", "surrogatepass") if isinstance(pattern, str) else pattern
        return [
            (name, setting.kind.format(self[name]))
            for name, setting in SETTINGS.items()
            if setting.listed and glob.matches(wanted, name.encode(), ignore_case=True)
        ]

    def subscribe(self, name: str, callback: Callable[[Any], None]) -> None:
        """Have `callback` called with each new value of a setting; it may raise ConfigError to refuse it.

        A setting that changes along with another (persistence and appendonly) is told of, too.
        """
        self._subscribers.setdefault(_setting(name).name, []).append(callback)

    def set(self, name: str, text: str) -> None:
        """Change a setting while the daemon runs, or leave everything as it was.

        Raises: UnknownDirective, NotMutable, BadValue, and what a subscriber refuses with.
        """
        setting = _setting(name)
        if not setting.mutable:
            raise NotMutable(setting.name)
        new = self._with_linked(setting.name, setting.parse(text))
        old = {name: self[name] for name in new}
        self._values |= new
        try:
            if setting.name in _CHECKED_TOGETHER:
                self._check_change(setting, text)
            self._tell(new, old)
        except Exception:
            self._values |= old
            raise
        self._places |= dict.fromkeys(new, _Place("", 0))
        self._warn(setting.warning)

    def _with_linked(self, name: str, value: Any) -> dict[str, Any]:
        """A new value, and that of the other name of the same thing if it follows."""
        if name == "persistence" and self.appendonly != (value == "aof"):
            return {name: value, "appendonly": value == "aof"}
        if name == "appendonly" and value != (self.persistence == "aof"):
            return {name: value, "persistence": "aof" if value else "none"}
        return {name: value}

    def _tell(self, new: dict[str, Any], old: dict[str, Any]) -> None:
        """Tell the subscribers; when one refuses, those that were told before it hear of the old values again."""
        told: list[tuple[Callable[[Any], None], str]] = []
        try:
            for name, value in new.items():
                for callback in self._subscribers.get(name, ()):
                    callback(value)
                    told.append((callback, name))
        except Exception:
            self._values |= old
            for callback, name in reversed(told):
                callback(old[name])
            raise

    def _check_change(self, setting: Setting, text: str) -> None:
        try:
            self.check()
        except BadValue as error:
            raise BadValue(setting.name, text, problem=str(error)) from None

    def rewrite(self) -> None:
        """Bring the file up to date, in one step that a crash cannot leave half done; see config_rewrite.

        Raises: NoConfigFile, OSError.
        """
        if self.file is None:
            raise NoConfigFile
        try:
            old = as_text(self.file.read_bytes())
        except FileNotFoundError:
            old = ""
        new = config_rewrite.rewritten(old, SETTINGS, self._values, self._included)
        config_rewrite.replace_file(self.file, as_bytes(new))

    def _take(self, setting: Setting, value: Any, place: _Place) -> None:
        """Let a value count from here on."""
        name = setting.name
        if name == "rename-command":
            value = self._renames_with(value, place)
        self._values |= self._with_linked(name, value)
        self._places[name] = place
        self._warn(setting.warning)

    def _renames_with(self, added: tuple[tuple[str, str], ...], place: _Place) -> tuple[tuple[str, str], ...]:
        """Renames add up; those of the command line replace what the file says of the same command."""
        replaced = {old for old, _ in added} if not place.line else set()
        pairs = (*(pair for pair in self.rename_command if pair[0] not in replaced), *added)
        try:
            Renames().check(pairs)
        except ValueError as error:
            raise BadValue("rename-command", Renames().format(added), problem=str(error)) from None
        return pairs

    def _warn(self, warning: str) -> None:
        if warning and warning not in self.warnings:
            self.warnings.append(warning)


def _setting(name: str) -> Setting:
    setting = SETTINGS.get(name.lower())
    if setting is None:
        raise UnknownDirective(name)
    return setting


class _Stated:
    """What one file, or the command line, says itself: to find lines that contradict each other."""

    def __init__(self) -> None:
        self.lines: dict[str, int] = {}
        self.values: dict[str, Any] = {}

    def add(self, setting: Setting, value: Any, line: int) -> None:
        """Note one directive. Raises: BadValue when it contradicts an earlier one."""
        self.lines[setting.name], self.values[setting.name] = line, value
        store, appendonly = self.values.get("persistence"), self.values.get("appendonly")
        if store is None or appendonly is None or appendonly == (store == "aof"):
            return
        other = "appendonly" if setting.name == "persistence" else "persistence"
        earlier = f"{other} {SETTINGS[other].kind.format(self.values[other])}"
        where = f" of line {self.lines[other]}" if self.lines[other] else ""
        problem = f"contradicts {earlier}{where}; keep one of the two"
        raise BadValue(setting.name, setting.kind.format(value), problem=problem)


class _Reader:
    """Reads a file and those that it includes into a configuration."""

    def __init__(self, config: Config, *, main: bool = True) -> None:
        self._config = config
        self._main = main  # False: the files are not part of what `rewrite` writes
        self._chain: list[str] = []  # real paths of the files being read, outermost first

    def read_file(self, path: str) -> None:
        """Read the file at `path`. Raises: ConfigError."""
        real = os.path.realpath(path)
        if real in self._chain:
            route = " > ".join(map(os.path.basename, (*self._chain, real)))
            raise ConfigError("include", path, problem=f"the file includes itself ({route})")
        try:
            text = as_text(Path(path).read_bytes())
        except OSError as error:
            if not self._chain:
                raise ConfigError(path=path, problem=f"cannot be read: {error.strerror}") from None
            raise ConfigError("include", path, problem=f"cannot be read: {error.strerror}") from None
        self.read(text, path)

    def read(self, text: str, origin: str) -> None:
        """Read a text that came from `origin`. Raises: ConfigError."""
        self._chain.append(os.path.realpath(origin))
        stated = _Stated()
        for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
            try:
                self._read_line(line, origin, number, stated)
            except ConfigError as error:
                raise error.at(origin, number) from None
        self._chain.pop()

    def _read_line(self, line: str, origin: str, number: int, stated: _Stated) -> None:
        words = words_of(line)
        if not words:
            return
        setting = _setting(words[0])
        value = setting.parse_words(words[1:])
        if setting.name == "include":
            self.read_file(os.path.join(os.path.dirname(origin), value))
            return
        self._warn_of_repetition(setting, origin, number, stated)
        stated.add(setting, value, number)
        self._config._take(setting, value, _Place(origin, number))
        if self._main and len(self._chain) > 1:
            linked = ("persistence", "appendonly") if setting.name in ("persistence", "appendonly") else (setting.name,)
            self._config._included.update((name, self._config[name]) for name in linked)

    def _warn_of_repetition(self, setting: Setting, origin: str, number: int, stated: _Stated) -> None:
        earlier = stated.lines.get(setting.name)
        if earlier is not None and setting.name != "rename-command":
            lines = f"lines {earlier} and {number}"
            self._config._warn(f"{origin}: {setting.name} is given on {lines}; the last one counts")


# --- Written texts ---------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str]) -> int:
    """Write one of the generated texts to standard output; the exit code is 2 when none was named."""
    texts = {"conf": conf_text, "markdown": markdown_text}
    if len(arguments) != 1 or arguments[0] not in texts:
        sys.stderr.write(f"usage: python -m disqued.config {'|'.join(texts)}\n")
        return 2
    sys.stdout.write(texts[arguments[0]]())
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
