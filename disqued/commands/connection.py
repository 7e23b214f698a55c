"""Commands on the connection that they come on, but for those of CLIENT (`commands/clients.py`).

Disque had AUTH, MONITOR and a HELLO of its own; `HELLO 2` and `HELLO 3` and SELECT are what the Redis clients of today
say first.

Source: Disque 1.0-rc1, whose replies and error texts these are; the Redis manual for what Disque did not have.
"""

from typing import Any

import attrs

from disqued import __version__
from disqued.acl.user import DEFAULT
from disqued.commands.host import Session
from disqued.commands.shapes import OK, array, bulk, either, mapping, or_silence, tuple_of
from disqued.commands.table import NO_REPLY, Flag, command, option, optional, positional, rest
from disqued.commands.values import BYTES, Kind, read_integer, whole
from disqued.core.model.peers import FAIL, FULL, LEAVING, PFAIL, Peer
from disqued.core.node import Node
from disqued.errors import (
    CommandError,
    NotAnInteger,
    NotAuthenticated,
    ProtocolVersion,
    TooManyPasswords,
    WrongPassword,
)
from disqued.wire.replies import Status

DONE = Status(b"OK")

_NO_PASSWORD = "Client sent AUTH, but no password is set"  # noqa: S105 - an error text
_BAD_PASSWORD = "invalid password"  # noqa: S105 - an error text
_BAD_NAME = "Client names cannot contain spaces, newlines or special characters."
NAMING_MAX = 256  #: bytes that a client may call itself, and its library; each entry of ACL LOG keeps them
_LONG_NAME = f"Client names cannot be longer than {NAMING_MAX} bytes."
_SETUP = Flag.READ | Flag.LOADING | Flag.FAST


def is_word(text: bytes) -> bool:
    """Tell whether all bytes are visible ASCII."""
    return not text.translate(None, _VISIBLE)


_VISIBLE = bytes(range(0x21, 0x7F))


# Who is there.


def _log_in(client: Session, user: bytes, password: bytes, wrong: CommandError) -> None:
    """Check a password and let the client in.

    Raises `wrong`, TooManyPasswords (WRONGPASS), or CommandError when the default user has no password to check.
    """
    if user == DEFAULT and client.host.access.is_open:
        raise CommandError(_NO_PASSWORD)
    if not client.host.access.log_in(client, user, password):
        raise wrong


@command(
    "AUTH", group="connection", flags=_SETUP, reply=OK, cost="O(1)",
    errors=(_BAD_PASSWORD, _NO_PASSWORD, WrongPassword, TooManyPasswords), is_of_connection=True,
)  # fmt: skip
@attrs.define
class Auth:
    """Authenticate: AUTH password, or AUTH user password.

    The password alone is that of the user `default`.  A wrong one that comes with a user is refused with WRONGPASS, and
    so is a user that there is not or that is off.  From an address where ten have come in a row, the next one is looked
    at six seconds later: until then WRONGPASS says how long to wait.
    """

    password_or_user: bytes = positional("The password, or the user when a password follows.", BYTES)
    password: bytes | None = optional("The password, after a user.", BYTES)

    def run(self, node: Node, client: Session) -> Status:
        if self.password is None:
            _log_in(client, DEFAULT, self.password_or_user, CommandError(_BAD_PASSWORD))
        else:
            _log_in(client, self.password_or_user, self.password, WrongPassword())
        return DONE


def _read_protocol(text: bytes) -> int:
    try:
        version = read_integer(text)
    except NotAnInteger:
        raise ProtocolVersion from None
    if version not in (2, 3):
        raise ProtocolVersion
    return version


PROTOCOL = Kind(
    "integer", _read_protocol, "2 or 3", {"type": "integer", "enum": [2, 3]},
    (f"{ProtocolVersion.code} {ProtocolVersion.__doc__}",),
)  # fmt: skip


def _read_name(text: bytes) -> bytes:
    if len(text) > NAMING_MAX:
        raise CommandError(_LONG_NAME)
    if not is_word(text):
        raise CommandError(_BAD_NAME)
    return text


CLIENT_NAME = Kind(
    "string", _read_name, f"up to {NAMING_MAX} bytes from ! to ~; none for no name",
    errors=(f"ERR {_BAD_NAME}", f"ERR {_LONG_NAME}"),
)  # fmt: skip

HELLO_FORMAT = 1
# Where clients should go first: the lowest number.
PRIORITY_NORMAL = b"1"
PRIORITY_NOT_LINKED = b"5"  #: or it takes no copies now
PRIORITY_SUSPECTED = b"10"
PRIORITY_LEAVING = b"100"  #: or failed

_VERSION_FIRST = "AUTH and SETNAME need a protocol version: HELLO 2|3 [AUTH user password] [SETNAME name]"
_HOW_TO_LOG_IN = "Authentication required: HELLO 2|3 AUTH default <password>, or AUTH <password> first."


def _priority_of(peer: Peer) -> bytes:
    """How good another node is for a client, as far as this one can tell."""
    if peer.flags & (FAIL | LEAVING):
        return PRIORITY_LEAVING
    if peer.flags & PFAIL:
        return PRIORITY_SUSPECTED
    return PRIORITY_NORMAL if peer.linked and not peer.flags & FULL else PRIORITY_NOT_LINKED


def _is_topology(value: Any) -> bool:
    return (
        isinstance(value, list)
        and value[:1] == [HELLO_FORMAT]
        and bulk("").matches(value[1])
        and all(tuple_of("", *[bulk("")] * 4).matches(row) for row in value[2:])
    )


_TOPOLOGY = attrs.evolve(
    array(bulk("part"), "[1, own node id, [id, ip, port, priority] of each node]; the lowest priority is the best"),
    matches=_is_topology,
)


@command(
    "HELLO", group="connection", flags=_SETUP,
    reply=either(_TOPOLOGY, mapping("server, version, proto, id, mode, role, modules")), cost="O(N) in the nodes",
    errors=(NotAuthenticated, _VERSION_FIRST, _NO_PASSWORD, WrongPassword, TooManyPasswords),
)  # fmt: skip
@attrs.define
class Hello:
    """Ask for the nodes of the cluster, or choose the protocol of this connection.

    Alone it answers this node's id and the address and priority of every node; clients connect to the best one:
    1 is fine, 5 a node to which this one has no link or that takes no copies now, 10 one that does not answer, 100 one
    that failed or is leaving.
    With a protocol version it is the handshake of Redis: the connection speaks RESP2 or RESP3 from its reply on.
    """

    version: int | None = optional("Protocol to speak.", PROTOCOL)
    auth: tuple[bytes, bytes] | None = option("AUTH", "Authenticate first.", BYTES, parts=("user", "password"))
    name: bytes | None = option("SETNAME", "Name this connection.", CLIENT_NAME)

    def run(self, node: Node, client: Session) -> Any:
        """Answer the nodes as a list, or do the handshake and answer a dict."""
        if self.version is None:
            if self.auth is not None or self.name is not None:
                raise CommandError(_VERSION_FIRST)
            if not client.authenticated:
                raise NotAuthenticated
            return self._topology(node)
        return self._handshake(self.version, client)

    @staticmethod
    def _topology(node: Node) -> list[Any]:
        priority = PRIORITY_LEAVING if node.state.leaving else PRIORITY_NORMAL
        own = node.membership.own_address
        # The own address is empty until another node tells: a client already has one that works.
        rows = [[node.id, own.host.encode(), b"%d" % own.port, priority]]
        # Of a node whose address is lost there is nothing to tell a client.
        peers = [peer for peer in node.state.peers.by_id.values() if peer.host]
        rows += [[peer.id, peer.host.encode(), b"%d" % peer.port, _priority_of(peer)] for peer in peers]
        return [HELLO_FORMAT, node.id, *rows]

    def _handshake(self, version: int, client: Session) -> dict[bytes, Any]:
        if self.auth is not None:
            _log_in(client, *self.auth, WrongPassword())
        elif not client.authenticated:
            raise NotAuthenticated(_HOW_TO_LOG_IN)
        if self.name is not None:
            client.name = self.name
        client.set_protocol(version)
        return {
            b"server": b"disqued",
            b"version": __version__.encode(),
            b"proto": version,
            b"id": client.id,
            b"mode": b"standalone",
            b"role": b"master",
            b"modules": [],
        }


@command(
    "SELECT", group="connection", flags=_SETUP, reply=OK, cost="O(1)",
    errors=("DB index is out of range - allowed is 0",), is_of_connection=True,
)  # fmt: skip
@attrs.define
class Select:
    """Choose database 0, the only one there is."""

    index: int = positional("Always 0.", whole("index"))

    def run(self, node: Node, client: Session) -> Status:
        if self.index != 0:
            raise CommandError("DB index is out of range - allowed is 0")
        return DONE


@command("QUIT", group="connection", flags=_SETUP, reply=OK, cost="O(1)", is_of_connection=True)
@attrs.define
class Quit:
    """End this connection once the replies that are due are sent."""

    ignored: list[bytes] = rest("Not looked at.", BYTES, minimum=0)

    def run(self, node: Node, client: Session) -> Status:
        client.close()
        return DONE


@command(
    "MONITOR", group="server", flags=Flag.ADMIN | Flag.READ, reply=or_silence(OK), cost="O(1) per command",
    shows_bodies=True, is_of_connection=True,
)  # fmt: skip
@attrs.define
class Monitor:
    """Show every command that any client sends, on this connection, as it is run.

    Each is a status line: unix seconds with microseconds, the client's address, the words in quotes.  Passwords are
    hidden.  A second MONITOR on the same connection gets no reply.
    """

    def run(self, node: Node, client: Session) -> Any:
        if client.monitors:
            return NO_REPLY
        client.host.clients.monitor(client)
        return DONE
