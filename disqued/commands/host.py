"""What commands see of the daemon and of the connection that they came on.

The core knows neither sockets nor files; commands such as CONFIG, CLIENT and INFO ask for both.  They ask for them
here, in terms that need no Twisted: `disqued.net` provides them, tests provide their own.

Each protocol is one part of the daemon; `Host` names the parts, and a command asks the one that it needs
(`client.host.settings.change(...)`).
"""

from collections.abc import Iterable, Mapping, Sized
from typing import Any, Protocol

from disqued.acl.denials import Denials
from disqued.acl.rules import CommandCatalogue
from disqued.acl.user import User
from disqued.acl.users import Users
from disqued.commands.latency import LatencyMonitor
from disqued.commands.slowlog import SlowLog
from disqued.core.node import Node


class Peer(Protocol):
    """The other end of a connection."""

    @property
    def descriptor(self) -> int:
        """The file descriptor."""

    @property
    def is_unix(self) -> bool:
        """True on a Unix socket."""

    @property
    def local_address(self) -> str:
        """The address of ours that it came to, written as `Session.address`; empty for what came to none."""

    @property
    def certificate_name(self) -> str:
        """The common name in the certificate that it has shown, and that was found good; empty for none."""


class Session(Protocol):
    """One client connection."""

    id: int  #: counts up over the life of the daemon
    name: bytes  #: CLIENT SETNAME; empty for none
    lib: dict[bytes, bytes]  #: CLIENT SETINFO: lib-name, lib-ver
    authenticated: bool
    user: User | None  #: whose it is; None for a stranger, and for what comes from within the process
    monitors: bool  #: sees every command
    reply_mode: str  #: on, off or skip (off for the next command alone): CLIENT REPLY
    #: What is handed out goes back if the connection ends before a later command is answered: CLIENT RECEIPTS.
    receipts: bool
    connected_at: int  #: monotonic milliseconds
    active_at: int  #: monotonic milliseconds of the last command

    @property
    def protocol(self) -> int:
        """RESP version, 2 or 3."""

    @property
    def host(self) -> "Host":
        """The daemon that it is connected to."""

    @property
    def last_command(self) -> str:
        """The last command as CLIENT LIST shows it, lower case."""

    @property
    def address(self) -> str:
        """``ip:port``, ``[ipv6]:port`` or ``path:0`` of a Unix socket, of the other end."""

    @property
    def peer(self) -> Peer:
        """The other end."""

    @property
    def is_blocked(self) -> bool:
        """True while it waits in a blocking command."""

    @property
    def subscriptions(self) -> Sized:
        """Channels and patterns that it listens to."""

    @property
    def is_closing(self) -> bool:
        """True when it ends as soon as its replies are sent."""

    @property
    def input_buffered(self) -> int:
        """Bytes received and not yet run."""

    @property
    def output_buffered(self) -> int:
        """Bytes of replies that the socket has not taken."""

    def close(self) -> None:
        """End the connection after the replies that are due."""

    def kill(self) -> None:
        """End the connection now; the reply to a command that kills its own connection is still sent."""

    def set_protocol(self, version: int) -> None:
        """Speak RESP 2 or 3 from the reply to the current command on."""


class AccessControl(Protocol):
    """The users, and what was refused to them."""

    @property
    def users(self) -> Users:
        """The users by name."""

    @property
    def denials(self) -> Denials:
        """What was refused."""

    @property
    def book(self) -> CommandCatalogue:
        """The commands, as rules call them."""

    @property
    def is_open(self) -> bool:
        """True when no client has to authenticate."""

    def log_in(self, session: Session, name: bytes, password: bytes) -> bool:
        """Let a client be a user, if the password is right; else it is nobody.  Raises TooManyPasswords (WRONGPASS)."""

    def set_user(self, name: bytes, rules: Iterable[bytes]) -> None:
        """Make a user, or change one, by rules.  Raises CommandError, and nothing is changed."""

    def delete_users(self, names: Iterable[bytes]) -> int:
        """Forget users, and end their connections; returns how many there were.  Raises CommandError."""

    def load(self) -> None:
        """Take the users of the file in place of those that there are.  Raises CommandError."""

    def save(self) -> None:
        """Write the users to the file.  Raises CommandError."""

    def random_digits(self, count: int) -> bytes:
        """Random hex digits."""


class Holder(Protocol):
    """A connection that holds memory outside maxmemory."""

    def end_for_buffers(self, size: int) -> None:
        """End the connection: it holds the most, `size` bytes, while all connections together hold too much."""


class Budget(Protocol):
    """What connections may hold outside maxmemory, all together."""

    used: int  #: bytes held by all

    @property
    def limit(self) -> int:
        """Bytes that they may hold."""

    def hold(self, owner: Holder, size: int) -> None:
        """Set the owner's total, and end the largest holders while all hold too much; the owner may be among them."""

    def drop(self, owner: Holder) -> None:
        """Forget an owner."""


class Connections(Protocol):
    """The client connections."""

    def sessions(self) -> Iterable[Session]:
        """Return every client connection, oldest first."""

    def pause(self, span_ms: int) -> None:
        """Run no client's commands for a while."""

    def monitor(self, session: Session) -> None:
        """Show a client every command from now on.  Raises CommandError."""

    def reset_session(self, session: Session) -> None:
        """Put a connection into the state of a new one.  Raises CommandError."""


class Subscriptions(Protocol):
    """Who listens to which channels."""

    def subscribe(self, session: Session, names: Iterable[bytes], *, patterns: bool) -> list[tuple[bytes, bytes, int]]:
        """Let a client listen to channels, or patterns; returns the reply for each.  Raises CommandError."""

    def unsubscribe(
        self, session: Session, names: Iterable[bytes], *, patterns: bool
    ) -> list[tuple[bytes, bytes | None, int]]:
        """Let it listen no more; no names: to nothing.  Returns the reply for each.  Raises CommandError."""


class Settings(Protocol):
    """The settings in force."""

    def matching(self, pattern: bytes) -> list[tuple[bytes, bytes]]:
        """Return the settings whose name matches a glob pattern, with their values as text."""

    def change(self, name: bytes, value: bytes) -> None:
        """Change a setting now.  Raises CommandError with Disque's text."""

    def rewrite(self) -> None:
        """Write the settings in force to the configuration file.  Raises CommandError."""


class Stores(Protocol):
    """The store of the journal."""

    def compact(self) -> None:
        """Begin to rewrite the journal in the background.  Raises CommandError."""


class Links(Protocol):
    """The links to other nodes."""

    @property
    def has_secret(self) -> bool:
        """True when nodes prove to each other that they know a secret."""

    def facts(self) -> Mapping[str, Any]:
        """Return what INFO says of the links: {field: value}."""


class NodesFile(Protocol):
    """The file that holds the node's id and the nodes that it knows."""

    def save(self) -> None:
        """Write it.  Raises CommandError."""


class Host(Protocol):
    """The daemon around the node: a command asks the part that it needs."""

    @property
    def node(self) -> Node:
        """The node that it serves."""

    @property
    def access(self) -> AccessControl:
        """Its users."""

    @property
    def clients(self) -> Connections:
        """Its client connections."""

    @property
    def pubsub(self) -> Subscriptions:
        """Their subscriptions."""

    @property
    def settings(self) -> Settings:
        """Its settings."""

    @property
    def stores(self) -> Stores:
        """Its store."""

    @property
    def bus(self) -> Links:
        """Its links to other nodes."""

    @property
    def identity(self) -> NodesFile:
        """Its file of nodes."""

    @property
    def slowlog(self) -> SlowLog:
        """Commands that took long."""

    @property
    def latency(self) -> LatencyMonitor:
        """Events that took long."""

    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        """Return what INFO says that the node does not know: {section: {field: value}}."""

    def reset_statistics(self) -> None:
        """Zero the counters that CONFIG RESETSTAT zeroes."""

    def microseconds(self) -> int:
        """Return the wall clock, unix microseconds."""

    def sleep(self, seconds: float) -> None:
        """Stop the whole daemon for a while, on purpose (DEBUG SLEEP)."""

    def shutdown(self, client: Session, *, rewrite: bool) -> bool:
        """End the daemon after this step; with `rewrite` a fresh journal is written first.

        Returns False when that takes its time: the client is blocked meanwhile, and hears of a failure, after which
        the daemon goes on.  Raises CommandError when it is not possible.
        """
