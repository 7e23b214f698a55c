"""The settings of one daemon: read, checked, changed while it runs, written back.

                    SETTINGS   name, kind, default, unit, mutable, status, group, doc
                        |
         +--------------+-------------+------------------+----------------------+
      the file       options    CONFIG GET, SET    CONFIG REWRITE    disqued.conf, the reference page
    from_file  apply_arguments   matching, set        rewrite        python -m disqued.config conf | markdown

A line of the file is a directive and its value; what is given later wins, and the command line wins over the file.  A
directive that this version does not act on is accepted, so that Disque's files load, and never in silence: each one
that is given adds a text to `Config.warnings`.

Beside this module: config_table (every setting, with its unit), config_setting (what a setting is, errors),
config_values (kinds of values), config_words (quoting), config_reader (from text to what it gives), config_rewrite (the
new text of a file), config_texts (the generated pages).

Source: Disque 1.0-rc1, its CONFIG command; the table says where this daemon differs.
"""

import ipaddress
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Generic, Self, TypeVar, cast, overload

import attrs

from disqued import config_rewrite, config_texts, credentials, endpoint_words
from disqued.acl.passwords import digest_of, is_short
from disqued.config_reader import Given, Stated, read_file, read_text
from disqued.config_setting import SECRETS, BadValue, ConfigError, Setting, Status
from disqued.config_table import GROUPS, SETTINGS, UnknownDirective, setting_called
from disqued.config_values import FilePath, OutputLimit, RedisAddress, Renames
from disqued.config_words import as_bytes, as_text
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

MAX_SOCKET_PATH_BYTES: Final = 107  #: what the system's socket address has room for

#: Directives that only count together with others, which `Config.check` looks at.
_CHECKED_TOGETHER: Final = frozenset({"port", "bind", "unixsocket", "requirepass"})

BUS_PORT_OFFSET: Final = 10_000  #: from the port for clients to that of the cluster bus, unless there is a cluster-port

#: Two names of one thing: which store is used.
_STORE_NAMES: Final = ("persistence", "appendonly")


MAX_PORT: Final = 65_535


class NotMutable(ConfigError):
    """The directive takes effect at the start only."""

    def __init__(self, name: str) -> None:
        super().__init__(name, problem="can be changed only in the file or on the command line, before the start")


class NoConfigFile(ConfigError):
    """There is no file to rewrite."""

    def __init__(self) -> None:
        super().__init__(problem="the server is running without a config file")


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
        name = credentials.written_out(config[self.name])
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
    endpoint = Directive[tuple[str, ...]]()
    tls_port = Directive[int]()
    tls_cert_file = FileDirective()
    tls_key_file = FileDirective()
    tls_ca_cert_file = FileDirective()
    tls_auth_clients = Directive[str]()
    tls_cluster = Directive[bool]()
    tls_protocols = Directive[tuple[str, ...]]()
    tcp_backlog = Directive[int]()
    tcp_keepalive = Directive[int]()
    timeout = Directive[int]()
    maxclients = Directive[int]()
    client_output_buffer_limit = Directive[OutputLimit]()
    client_query_buffer_limit = Directive[int]()
    proto_max_bulk_len = Directive[int]()
    requirepass = Directive[str]()
    requirepass_file = FileDirective()
    aclfile = FileDirective()
    acllog_max_len = Directive[int]()
    auth_timeout = Directive[int]()
    max_unauthenticated_clients = Directive[int]()
    rename_command = Directive[tuple[tuple[str, str], ...]]()
    dir = Directive[Path]()
    pidfile = FileDirective()
    loglevel = Directive[str]()
    logfile = FileDirective()
    log_format = Directive[str]()
    maxmemory = Directive[int]()
    maxmemory_policy = Directive[str]()
    qadd_timeout = Directive[int]()
    bg_qadd_pool_size = Directive[int]()
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
    events = Directive[str]()
    events_dir = FileDirective()
    events_file_size = Directive[int]()
    events_file_seconds = Directive[int]()
    events_keep_days = Directive[int]()
    events_keep_size = Directive[int]()
    sqlite_file = FileDirective()
    sqlite_history = Directive[int]()
    redis_url = Directive[str]()
    redis_prefix = Directive[str]()
    redis_backlog = Directive[int]()
    wq_retry = Directive[int]()
    wq_unique_scope = Directive[str]()
    slowlog_log_slower_than = Directive[int]()
    slowlog_max_len = Directive[int]()
    latency_monitor_threshold = Directive[int]()
    cluster_port = Directive[int]()
    cluster_bind = Directive[tuple[str, ...]]()
    cluster_secret = Directive[str]()
    cluster_secret_file = FileDirective()
    cluster_announce_ip = Directive[str]()
    cluster_announce_port = Directive[int]()
    cluster_announce_bus_port = Directive[int]()
    cluster_config_file = FileDirective()
    cluster_node_timeout = Directive[int]()
    cluster_leave_timeout = Directive[int]()
    cluster_link_buffer_limit = Directive[int]()
    rq_ttl = Directive[int]()
    rq_replicate = Directive[int]()
    rq_orphans = Directive[str]()
    bg_push_pool_size = Directive[int]()
    http_port = Directive[int]()
    http_bind = Directive[tuple[str, ...]]()
    http_endpoint = Directive[str]()
    http_token_file = FileDirective()
    http_hosts = Directive[str]()
    http_audit_file = FileDirective()
    reports_file = FileDirective()

    def __init__(self) -> None:
        self.file: Path | None = None  #: absolute path of the file that `rewrite` writes
        self.warnings: list[str] = []  #: what the start should tell: no effect, given twice
        self._values: dict[str, Any] = {name: setting.default for name, setting in SETTINGS.items()}
        self._values["dir"] = SETTINGS["dir"].parse(".")
        self._places: dict[str, _Place] = {}
        self._included: dict[str, Any] = {}  # what files that the main file includes gave last
        self._subscribers: dict[str, list[Callable[[Any], None]]] = {}
        self._file_digest = b""  # of the password that requirepass-file holds, once it was read
        self._file_is_short = False  # that password

    @classmethod
    def from_text(cls, text: str, origin: str = "disqued.conf") -> Self:
        """Read the text of a file; `origin` names it in errors and is where relative includes start.

        Raises: ConfigError.
        """
        config = cls()
        config._take_all(read_text(text, origin))
        return config

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file, which `rewrite` will write. Raises: ConfigError."""
        config = cls()
        config._take_all(read_file(os.fspath(path)))
        config.file = Path(os.path.realpath(path))
        return config

    def apply_arguments(self, arguments: Iterable[tuple[str, str]]) -> None:
        """Take options of the command line, (name, text) in their order; they win over the file.

        Raises: ConfigError, which names the option.
        """
        stated = Stated()
        for name, text in arguments:
            try:
                self._apply_argument(name.lstrip("-"), text, stated)
            except ConfigError as error:
                if not error.path:
                    error.directive = f"--{error.directive}"
                raise error.at("command line") from None

    def _apply_argument(self, name: str, text: str, stated: Stated) -> None:
        setting = setting_called(name)
        value = setting.parse(text)
        if setting.name == "include":
            self._take_all(read_file(value), rewritten=False)
            return
        stated.add(setting, value)
        self._take(setting, value, _Place("command line", 0))

    def check(self) -> None:
        """Refuse what no single directive shows, once file and command line are read.

        Raises: BadValue.
        """
        self._check_credentials()
        self._check_clients()
        self._check_tls()
        self._check_cluster()
        self._check_http()

    def _check_credentials(self) -> None:
        for name, setting in SETTINGS.items():
            texts = self.endpoint if name == "endpoint" else (self[name],)
            names_files = isinstance(setting.kind, FilePath) or name in ("endpoint", "http-endpoint")
            if names_files and any(map(credentials.is_missing, texts)):
                problem = f"there is no {credentials.FOLDER} in the environment; systemd sets it where a unit loads any"
                raise self._fault(name, f"{problem} (LoadCredential)")

    def _check_http(self) -> None:
        others = ((self.bind, self.port), (self.bind, self.tls_port), (self.cluster_bind or self.bind, self.bus_port))
        if any(self.http_port and port == self.http_port and _meet(bind, self.http_bind) for bind, port in others):
            raise self._fault("http-port", "clients or the cluster bus have this port; the admin side needs its own")
        if self.http_token_file is not None:
            return
        problem = "a token is needed where not only this machine reaches the admin side; set http-token-file"
        if self.http_endpoint:
            raise self._fault("http-endpoint", problem)
        if self.http_port and _beyond_loopback(self.http_bind):
            raise self._fault("http-bind", f"{problem}, or bind 127.0.0.1")

    def holds_secret(self, name: str) -> bool:
        """Tell whether the value of a setting is a secret, or has one in it."""
        return bool(RedisAddress.of(self.redis_url).password) if name == "redis-url" else bool(self[name])

    def place_of(self, name: str) -> tuple[str, int]:
        """Where a setting was given last: the file and the line from 1 on, "command line" and 0; "" for nowhere."""
        place = self._places.get(name, _Place("", 0))
        return place.path, place.line

    def is_given(self, name: str) -> bool:
        """Tell whether a file or the command line gives a setting."""
        return name in self._places

    def _check_clients(self) -> None:
        if not self.port and not self.tls_port and self.unixsocket is None and not self.endpoint:
            raise self._fault("port", "without it a tls-port, a unixsocket or an endpoint is needed to connect to")
        if self.requirepass and self.requirepass_file is not None:
            raise self._fault("requirepass-file", "there is a requirepass, too; give one of the two")
        for text in self.endpoint:
            if (kind := endpoint_words.kind(text)) not in endpoint_words.KINDS:
                problem = f"no endpoint for clients is of the kind {kind!r}; {endpoint_words.ALLOWED}"
                raise self._fault("endpoint", problem, text)
        if not self.has_password and self.aclfile is None:
            self._check_strangers()
        if self.unixsocket is not None and len(os.fsencode(self.unixsocket)) > MAX_SOCKET_PATH_BYTES:
            problem = f"with its folder the path is longer than the {MAX_SOCKET_PATH_BYTES} bytes that systems allow"
            raise self._fault("unixsocket", problem)

    def _check_strangers(self) -> None:
        """Let nobody in from elsewhere who shows neither a password nor a certificate."""
        lets_in = self.port or (self.tls_port and self.tls_auth_clients != "yes")
        if lets_in and _beyond_loopback(self.bind):
            problem = (
                "beyond the loopback addresses a password is needed; set requirepass or aclfile, or bind 127.0.0.1, or"
                " let nobody in without a certificate: `port 0`, a tls-port and `tls-auth-clients yes`"
            )
            raise self._fault("bind", problem)
        for text in self.endpoint:
            if not endpoint_words.is_local(text) and not endpoint_words.wants_certificates(text):
                problem = (
                    "it is reached from beyond this machine, as far as it says: there a password is needed; set"
                    " requirepass or aclfile, or interface=127.0.0.1, or caCerts"
                )
                raise self._fault("endpoint", problem, text)

    def _check_tls(self) -> None:
        """See to it that TLS has what it needs; whether the files are any good is found out when they are read."""
        user = "tls-port" if self.tls_port else "tls-cluster"
        if self.tls_port or self.tls_cluster:
            for name in ("tls-cert-file", "tls-key-file"):
                if not self[name]:
                    raise self._fault(user, f"TLS needs a certificate and its key; set {name}")
        if self.tls_cluster and self.tls_ca_cert_file is None:
            raise self._fault(
                "tls-cluster", "nodes are known by who has signed their certificate; set tls-ca-cert-file"
            )
        if self.tls_port and self.tls_auth_clients != "no" and self.tls_ca_cert_file is None:
            problem = (
                "who may sign the certificates of clients is not said; set tls-ca-cert-file, or tls-auth-clients no"
            )
            raise self._fault("tls-port", problem)
        if self.tls_port and self.tls_port == self.port:
            raise self._fault(
                "tls-port", "this is the port for clients without TLS, too; one port speaks one of the two"
            )

    def _check_cluster(self) -> None:
        if self.bus_port > MAX_PORT:
            problem = f"the cluster bus has no port {BUS_PORT_OFFSET} above it; set cluster-port"
            raise self._fault("port" if self.port else "tls-port", problem)
        if self.bus_port and self.bus_port in (self.port, self.tls_port):
            raise self._fault("cluster-port", "this is the port for clients; the cluster bus needs one of its own")
        if self.cluster_secret and self.cluster_secret_file is not None:
            raise self._fault("cluster-secret-file", "there is a cluster-secret, too; give one of the two")
        if _beyond_loopback(self.cluster_bind) and not self.nodes_prove_themselves:
            problem = (
                "beyond the loopback addresses nodes have to prove who they are; set cluster-secret or"
                " cluster-secret-file, the same on every node, or tls-cluster, or bind 127.0.0.1"
            )
            raise self._fault("cluster-bind", problem)

    @property
    def password_digest(self) -> bytes:
        """SHA-256 of what clients have to give: of the setting, or of the file; b"" = nothing.

        What the file holds is kept in no other way; what the setting gives has to be shown and written back.
        """
        if self._file_digest or not self.requirepass:
            return self._file_digest
        return digest_of(as_bytes(self.requirepass))

    @property
    def has_password(self) -> bool:
        """True when clients have to give a password, whether it was read already or not."""
        return bool(self.requirepass) or self.requirepass_file is not None

    @property
    def has_short_password(self) -> bool:
        """True when what clients have to give is found by trying."""
        if self._file_digest or not self.requirepass:
            return self._file_is_short
        return is_short(as_bytes(self.requirepass))

    def use_password(self, password: str) -> None:
        """Let what requirepass-file holds count from now on; who subscribed to requirepass is told of another one."""
        digest = digest_of(as_bytes(password))
        if digest == self._file_digest:
            return
        self._file_digest, self._file_is_short = digest, is_short(as_bytes(password))
        for callback in self._subscribers.get("requirepass", ()):
            callback(password)

    @property
    def clients_come_from_elsewhere(self) -> bool:
        """True when not only this machine reaches what clients connect to, as far as the settings say."""
        by_port = (self.port or self.tls_port) and _beyond_loopback(self.bind)
        return bool(by_port) or not all(map(endpoint_words.is_local, self.endpoint))

    @property
    def admins_come_in_the_clear(self) -> str:
        """The setting by which tokens leave this machine without TLS; empty = they do not, as far as it says."""
        if self.http_endpoint:
            kind = endpoint_words.kind(self.http_endpoint)
            return (
                "http-endpoint" if kind in ("tcp", "tcp6") and not endpoint_words.is_local(self.http_endpoint) else ""
            )
        return "http-bind" if self.http_port and _beyond_loopback(self.http_bind) else ""

    @property
    def bus_port(self) -> int:
        """The TCP port of the cluster bus; 0 = there is none."""
        return self.cluster_port or (self.client_port and self.client_port + BUS_PORT_OFFSET)

    @property
    def client_port(self) -> int:
        """The TCP port that clients are told of: without TLS, or with it where there is no other; 0 = there is none."""
        return self.port or self.tls_port

    @property
    def bus_addresses(self) -> tuple[str, ...]:
        """The addresses that the cluster bus listens on; none where nobody could be let in safely."""
        if not self.bus_port:
            return ()
        if self.cluster_bind:
            return self.cluster_bind
        return tuple(
            address for address in self.bind if self.nodes_prove_themselves or not _beyond_loopback((address,))
        )

    @property
    def has_cluster_secret(self) -> bool:
        """True when nodes prove to each other that they know a secret."""
        return bool(self.cluster_secret) or self.cluster_secret_file is not None

    @property
    def nodes_prove_themselves(self) -> bool:
        """True when nobody but a node of this cluster is let in by the bus: by a secret, or by a certificate."""
        return self.has_cluster_secret or self.tls_cluster

    def _fault(self, name: str, problem: str, text: str | None = None) -> BadValue:
        """Say what is wrong with a setting, or with `text`, one of its words."""
        place = self._places.get(name, _Place("", 0))
        if text is None:
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
        self._subscribers.setdefault(setting_called(name).name, []).append(callback)

    def set(self, name: str, text: str) -> None:
        """Change a setting while the daemon runs, or leave everything as it was.

        Raises: UnknownDirective, NotMutable, BadValue, and what a subscriber refuses with.
        """
        setting = setting_called(name)
        if not setting.mutable:
            raise NotMutable(setting.name)
        if setting.name == "requirepass" and self.requirepass_file is not None:
            raise BadValue(setting.name, text, problem="the password is that of requirepass-file; change it there")
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

        Where a secret stands among the settings, other users of the machine may read it no more.

        Raises: NoConfigFile, OSError.
        """
        if self.file is None:
            raise NoConfigFile
        try:
            old = as_text(self.file.read_bytes())
        except FileNotFoundError:
            old = ""
        new = config_rewrite.rewritten(old, SETTINGS, self._values, self._included)
        config_rewrite.replace_file(self.file, as_bytes(new), is_private=any(map(self.holds_secret, SECRETS)))

    def _take_all(self, files: Iterable[Given], *, rewritten: bool = True) -> None:
        """Take what files give; `rewritten`: the first of them is the one that `rewrite` writes."""
        for given in files:
            setting = given.setting
            if given.earlier and setting.name != "rename-command":
                lines = f"lines {given.earlier} and {given.line}"
                self._warn(f"{given.path}: {setting.name} is given on {lines}; the last one counts")
            try:
                self._take(setting, given.value, _Place(given.path, given.line))
            except ConfigError as error:
                raise error.at(given.path, given.line) from None
            if rewritten and given.included:
                names = _STORE_NAMES if setting.name in _STORE_NAMES else (setting.name,)
                self._included.update((name, self[name]) for name in names)

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


def _meet(some: Iterable[str], others: Iterable[str]) -> bool:
    """Return whether two listeners with the same port would be in each other's way."""
    here, there = (frozenset(map(ipaddress.ip_address, addresses)) for addresses in (some, others))
    return bool(here & there) or any(address.is_unspecified for address in here | there)


def _beyond_loopback(addresses: Iterable[str]) -> bool:
    return not all(ipaddress.ip_address(address).is_loopback for address in addresses)


# --- Written texts ---------------------------------------------------------------------------------------------------


def conf_text() -> str:
    """The text of disqued.conf."""
    return config_texts.conf_text(GROUPS)


def markdown_text() -> str:
    """The text of docs/reference/configuration.md."""
    return config_texts.markdown_text(GROUPS)


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
