"""A daemon and its clients without a daemon: what commands see of them, for tests of the commands.

    client = Client(Daemon())
    client.says("ADDJOB", "q", "body", "0")      the value that the command returns, checked against its shape
    client.is_refused("NOPE")                    the error line that it answers instead

Each command is one step of the node, on a clock that the test moves.
"""

from collections.abc import Iterable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import attrs

from disqued.acl.user import DEFAULT, User
from disqued.acl.users import Users
from disqued.commands import catalogue
from disqued.commands.dispatch import Dispatch, Outcome
from disqued.commands.latency import LatencyMonitor
from disqued.commands.slowlog import SlowLog
from disqued.commands.table import BLOCKED, NO_REPLY, Command
from disqued.core.model import glob
from disqued.core.node import Node
from disqued.cron import CronCalendar
from disqued.errors import CommandError
from disqued.testing.clock import Clock
from tests.core_fixtures import make_dispatch

assert catalogue.MODULES  # every command is in the table

NODE_ID = b"0123456789abcdef0123456789abcdef01234567"


def check_reply(entry: Command, value: Any) -> None:
    """Hold a reply against the shape that its command declares, and see that both protocols can spell it."""
    if value is BLOCKED:
        return
    assert entry.reply.matches(value), f"{entry.name} answered {value!r}, which is not: {entry.reply.text}"
    if value is not NO_REPLY:
        assert entry.encoder(2)(value).endswith(b"\r\n")
        assert entry.encoder(3)(value).endswith(b"\r\n")


@attrs.define(eq=False)
class Daemon:
    """A host without sockets and files; it notes what it was asked to do."""

    clock: Clock = attrs.field(factory=Clock)
    maxmemory: int = 1 << 30
    password: bytes = b""
    values: dict[bytes, bytes] = attrs.field(factory=lambda: {b"maxmemory": b"1073741824", b"port": b"7711"})
    has_secret: bool = False  #: of the cluster
    has_file: bool = True  #: whether there is a configuration file to rewrite
    link_facts: dict[str, Any] = attrs.field(factory=dict)  #: what INFO says of links to other nodes
    more_facts: dict[str, dict[str, Any]] = attrs.field(factory=dict)
    done: list[tuple[str, Any]] = attrs.field(factory=list)  #: (what was asked for, with what), in turn
    connections: list["Client"] = attrs.field(factory=list)
    users: Users = attrs.field(factory=lambda: Users(User(DEFAULT)))
    slowlog: SlowLog = attrs.field(factory=lambda: SlowLog(0, 128))
    latency: LatencyMonitor = attrs.field(factory=lambda: LatencyMonitor(1))
    node: Node = attrs.field(init=False)
    dispatch: Dispatch = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.node = Node(NODE_ID, self.clock, Random(1), maxmemory=self.maxmemory, calendar=CronCalendar())
        self.node.membership.own_address.announce("", 7711, 17711)
        self.dispatch = make_dispatch(self.node)

    def sessions(self) -> Iterable["Client"]:
        return list(self.connections)

    # It is its own users, connections, subscriptions, settings and store.

    @property
    def access(self) -> "Daemon":
        return self

    clients = pubsub = settings = stores = access

    @property
    def bus(self) -> Any:
        return SimpleNamespace(has_secret=self.has_secret, facts=lambda: self.link_facts)

    @property
    def identity(self) -> Any:
        return SimpleNamespace(save=lambda: self.done.append(("save", None)))

    def facts(self) -> dict[str, dict[str, Any]]:
        return {"Server": {"tcp_port": 7711, "uptime_in_seconds": 5}, **self.more_facts}

    def microseconds(self) -> int:
        return self.clock.wall() * 1_000 + 42

    def sleep(self, seconds: float) -> None:
        self.done.append(("sleep", seconds))

    @property
    def is_open(self) -> bool:
        return not self.password

    def log_in(self, client: "Client", user: bytes, password: bytes) -> bool:
        client.authenticated = user == b"default" and password == self.password
        client.limits_lifted = client.authenticated
        return client.authenticated

    def matching(self, pattern: bytes) -> list[tuple[bytes, bytes]]:
        return [pair for pair in self.values.items() if glob.matches(pattern, pair[0], ignore_case=True)]

    def change(self, name: bytes, value: bytes) -> None:
        if name not in self.values:
            raise CommandError(f"Unsupported CONFIG parameter: {name.decode()}")
        self.values[name] = value

    def rewrite(self) -> None:
        if not self.has_file:
            raise CommandError("The server is running without a config file")
        self.done.append(("rewrite", None))

    def reset_statistics(self) -> None:
        self.done.append(("reset", None))

    def pause(self, span_ms: int) -> None:
        self.done.append(("pause", span_ms))

    def shutdown(self, client: "Client", *, rewrite: bool) -> bool:
        self.done.append(("shutdown", rewrite))
        return not rewrite

    def compact(self) -> None:
        self.done.append(("compact", None))

    def subscribe(self, client: "Client", names: Iterable[bytes], *, patterns: bool) -> list[tuple[bytes, bytes, int]]:
        self.done.append(("psubscribe" if patterns else "subscribe", list(names)))
        return [(b"psubscribe" if patterns else b"subscribe", name, 1) for name in names]

    def unsubscribe(
        self, client: "Client", names: Iterable[bytes], *, patterns: bool
    ) -> list[tuple[bytes, bytes | None, int]]:
        self.done.append(("punsubscribe" if patterns else "unsubscribe", list(names)))
        return [(b"punsubscribe" if patterns else b"unsubscribe", name, 0) for name in names]

    def reset_session(self, client: "Client") -> None:
        self.done.append(("reset_session", client.id))

    def monitor(self, client: "Client") -> None:
        client.monitors = True


@attrs.define(eq=False)
class Client:
    """One connection, and a mouth: `says` and `is_refused`."""

    host: Daemon
    address: str = "127.0.0.1:50000"
    local_address: str = "127.0.0.1:7711"
    certificate_name: str = ""
    name: bytes = b""
    lib: dict[bytes, bytes] = attrs.field(factory=dict)
    protocol: int = 2
    limited: bool = True  #: no command comes from a parse cache
    authenticated: bool = True
    user: User | None = None
    monitors: bool = False
    subscriptions: Sequence[bytes] = ()
    reply_mode: str = "on"
    receipts: bool = False
    last_command: str = "NULL"
    descriptor: int = 9
    is_unix: bool = False
    is_closing: bool = False
    is_killed: bool = False
    limits_lifted: bool = False
    input_buffered: int = 0
    output_buffered: int = 0
    id: int = attrs.field(init=False)
    connected_at: int = attrs.field(init=False)
    active_at: int = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.connected_at = self.active_at = self.host.clock.now()
        self.host.connections.append(self)
        self.id = len(self.host.connections)

    @property
    def peer(self) -> "Client":
        return self

    @property
    def is_blocked(self) -> bool:
        return self in self.host.node.state.waiting.blocked

    def close(self) -> None:
        self.is_closing = True

    def kill(self) -> None:
        self.is_killed = True
        self.host.connections.remove(self)

    def set_protocol(self, version: int) -> None:
        self.protocol = version

    def says(self, *words: bytes | str) -> Any:
        """Run a command as one step; returns its value, or raises its CommandError."""
        args = [word.encode() if isinstance(word, str) else word for word in words]
        self.host.node.begin(self)
        outcome = self.host.dispatch.execute(self, args, Outcome(checked=True))
        if outcome.failed:
            raise outcome.value
        assert outcome.entry is not None
        check_reply(outcome.entry, outcome.value)
        return outcome.value

    def check(self, entry: Command) -> None:
        """It may run every command."""

    def is_refused(self, *words: bytes | str) -> bytes:
        """Run a command that must fail; returns the error line without its dash."""
        try:
            value = self.says(*words)
        except CommandError as error:
            return error.line
        raise AssertionError(f"{words} answered {value!r}, not an error")
