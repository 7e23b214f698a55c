"""CLIENT: the connections of all clients, seen, named, ended, and held up for a while.

Disque had LIST, KILL, GETNAME, SETNAME, PAUSE and REPLY; the others are what the Redis clients of today say first.

Source: Disque 1.0-rc1, whose replies and error texts these are; the Redis manual for what Disque did not have.
"""

from collections.abc import Callable
from typing import Any, cast
from urllib.parse import quote

import attrs

from disqued.acl.user import DEFAULT
from disqued.commands.connection import CLIENT_NAME, DONE, NAMING_MAX, is_word
from disqued.commands.host import Host, Session
from disqued.commands.parts import LOOKED_AT_PER_PART, Making, in_parts
from disqued.commands.shapes import OK, bulk, either, integer, null_or, or_silence
from disqued.commands.table import NO_REPLY, Flag, command, container, flag, option, optional, positional, subcommands
from disqued.commands.values import (
    BYTES,
    INT64_MAX,
    SECOND,
    TIMEOUT,
    Kind,
    one_of,
    read_timeout,
    readable,
    span,
    whole,
)
from disqued.core.model.outbox import Client
from disqued.core.model.unfinished import Parts
from disqued.core.model.waiters import Consumer
from disqued.core.node import Node
from disqued.errors import CommandError, Unblocked
from disqued.wire.replies import Status

_ADMIN = Flag.ADMIN | Flag.READ | Flag.LOADING


_MISUSE = "Syntax error, try CLIENT (LIST | KILL ip:port | GETNAME | SETNAME connection-name)"


def _client_misuse(word: str, known: bool) -> str:
    return _MISUSE if known else f"{_MISUSE} - allowed are {subcommands('CLIENT')}"


container(
    "CLIENT",
    group="connection",
    flags=_ADMIN,
    summary="Look at client connections and end them.",
    misuse=_client_misuse,
)

LISTED_PER_PART = 200  #: clients that CLIENT LIST describes at a time, some milliseconds' work


def _flags_of(client: Session) -> str:
    letters = {
        "O": client.monitors,
        "P": len(client.subscriptions) > 0,
        "b": client.is_blocked,
        "c": client.is_closing,
        "U": client.peer.is_unix,
    }
    return "".join(letter for letter, holds in letters.items() if holds) or "N"


def _events_of(client: Session) -> str:
    """What the loop waits for: r to read, w to write."""
    return "rw" if client.output_buffered else "r"


def _name_of_user(client: Session) -> bytes:
    """Whose connection it is; a stranger's is, as with Redis, that of the default user."""
    return DEFAULT if client.user is None else client.user.name


def _certified(client: Session) -> str:
    """The common name in the client's certificate as one word, with what a URL would escape escaped."""
    return quote(client.peer.certificate_name, safe="@:/+,", errors="surrogateescape")


def describe_client(client: Session, now: int) -> bytes:
    """The line of CLIENT LIST on one client, without its end."""
    head = (
        f"id={client.id} addr={client.address} fd={client.peer.descriptor} name={client.name.decode('ascii')} "
        f"age={(now - client.connected_at) // 1_000} idle={(now - client.active_at) // 1_000} "
        f"flags={_flags_of(client)} qbuf={client.input_buffered} qbuf-free=0 "
        f"obl=0 oll=0 omem={client.output_buffered} events={_events_of(client)} cmd={client.last_command} "
    )
    user = b"user=%b " % _name_of_user(client)
    library = b" ".join(b"%b=%b" % (key, client.lib.get(key, b"")) for key in (b"lib-name", b"lib-ver"))
    certified = _certified(client)
    tail = f" laddr={client.peer.local_address}" + (f" tls-cn={certified}" if certified else "")
    return b"%b%bresp=%d %b%b" % (_encoded(head), user, client.protocol, library, _encoded(tail))


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


@command(
    "CLIENT LIST", group="connection", flags=_ADMIN, reply=bulk("one line per client"),
    cost="O(N) in the clients, and with JOBS in the jobs that consumers have, bit by bit",
)  # fmt: skip
@attrs.define
class ClientList:
    """List the client connections, oldest first.

    Flags: O it monitors, P it listens to events, b it waits in a command, c it ends after its replies, U it came
    through a Unix socket, N none.  laddr is the address of this node that it came to.  Who has shown a certificate has
    tls-cn, the common name that it gives, with spaces and the like as in a URL (%20).

    With JOBS each line ends with jobs: how many jobs the client has, of all queues.  Jobs that are delivered once
    (RETRY 0) are not counted, and events are not.
    """

    jobs: bool = flag("JOBS", "Count the jobs that each client has.")

    def run(self, node: Node, client: Session) -> Any:
        """Describe every client; very many of them in parts."""
        sessions = list(client.host.clients.sessions())
        if self.jobs or len(sessions) > LISTED_PER_PART:
            return in_parts(node, cast(Client, client), self._parts(node, client.host, sessions))
        return _lines(sessions, node.state.now)

    def _parts(self, node: Node, host: Host, sessions: list[Session]) -> Parts:
        """Describe those who are still there when it is their turn."""
        jobs = (yield from _count_jobs(node)) if self.jobs else None
        text: list[bytes] = []
        for at in range(0, len(sessions), LISTED_PER_PART):
            if at:
                yield
            there = {session.id for session in host.clients.sessions()}
            some = [session for session in sessions[at : at + LISTED_PER_PART] if session.id in there]
            text.append(_lines(some, node.state.now, jobs))
        return b"".join(text)


def _lines(sessions: list[Session], now: int, jobs: dict[int, int] | None = None) -> bytes:
    """The lines of some clients; `jobs` are numbers of jobs by the number of the client, for those who have some."""
    lines = []
    for session in sessions:
        line = describe_client(session, now)
        lines.append(line if jobs is None else b"%b jobs=%d" % (line, jobs.get(session.id, 0)))
    return b"".join(line + b"\n" for line in lines)


def _count_jobs(node: Node) -> Making[dict[int, int]]:
    """Count the jobs that consumers of this node have, by the number of the client; so many a part."""
    counts: dict[Consumer, int] = {}
    serial = seen = 0
    while queues := node.state.queues.from_serial(serial, LOOKED_AT_PER_PART):
        for queue in queues:
            for _, consumer in list(queue.leased.values()):
                if consumer is not None:
                    counts[consumer] = counts.get(consumer, 0) + 1
                seen += 1
                if seen % LOOKED_AT_PER_PART == 0:
                    yield
        serial = queues[-1].serial + 1
        if len(queues) == LOOKED_AT_PER_PART:
            yield
    return {consumer.id: count for consumer, count in counts.items()}


@command("CLIENT INFO", group="connection", flags=_ADMIN, reply=bulk("one line"), cost="O(1)", is_of_connection=True)
@attrs.define
class ClientInfo:
    """Describe this connection as CLIENT LIST does."""

    def run(self, node: Node, client: Session) -> bytes:
        return describe_client(client, node.state.now) + b"\n"


@command("CLIENT ID", group="connection", flags=_ADMIN, reply=integer("the id"), cost="O(1)", is_of_connection=True)
@attrs.define
class ClientId:
    """Number of this connection; no other one has it while the daemon runs."""

    def run(self, node: Node, client: Session) -> int:
        return client.id


@command(
    "CLIENT GETNAME", group="connection", flags=_ADMIN, reply=null_or(bulk("the name")), cost="O(1)",
    is_of_connection=True,
)  # fmt: skip
@attrs.define
class ClientGetName:
    """Name of this connection."""

    def run(self, node: Node, client: Session) -> bytes | None:
        return client.name or None


@command("CLIENT SETNAME", group="connection", flags=_ADMIN, reply=OK, cost="O(1)", is_of_connection=True)
@attrs.define
class ClientSetName:
    """Name this connection, for CLIENT LIST and the logs."""

    name: bytes = positional("The name; empty for none.", CLIENT_NAME)

    def run(self, node: Node, client: Session) -> Status:
        client.name = self.name
        return DONE


_BAD_LIBRARY = "lib-name and lib-ver cannot contain spaces, newlines or special characters."
_LONG_LIBRARY = f"lib-name and lib-ver cannot be longer than {NAMING_MAX} bytes."


def _read_library(text: bytes) -> bytes:
    if len(text) > NAMING_MAX:
        raise CommandError(_LONG_LIBRARY)
    if not is_word(text):
        raise CommandError(_BAD_LIBRARY)
    return text


_LIBRARY = Kind(
    "string", _read_library, f"up to {NAMING_MAX} bytes from ! to ~",
    errors=(f"ERR {_BAD_LIBRARY}", f"ERR {_LONG_LIBRARY}"),
)  # fmt: skip
_ATTRIBUTE = one_of(
    {b"LIB-NAME": b"lib-name", b"LIB-VER": b"lib-ver"}, "Unrecognized option: CLIENT SETINFO takes LIB-NAME or LIB-VER"
)


@command("CLIENT SETINFO", group="connection", flags=_ADMIN, reply=OK, cost="O(1)", is_of_connection=True)
@attrs.define
class ClientSetInfo:
    """Tell which library speaks on this connection; CLIENT LIST shows it."""

    attribute: bytes = positional("What is told.", _ATTRIBUTE)
    text: bytes = positional("Name or version of the library.", _LIBRARY)

    def run(self, node: Node, client: Session) -> Status:
        client.lib[self.attribute] = self.text
        return DONE


_BAD_TYPE = "Unknown client type '<type>' - allowed is normal"


def _read_client_type(text: bytes) -> bytes:
    if text[:32].lower() != b"normal":
        raise CommandError(_BAD_TYPE.replace("<type>", readable(text)))
    return b"normal"


_CLIENT_TYPE = Kind(
    "oneof", _read_client_type, "normal", {"type": "string", "enum": ["normal"]}, (f"ERR {_BAD_TYPE}",), ("normal",)
)


_YOUNG = "maxage should be greater than 0 - allowed are seconds, with fractions"
_SKIPME = attrs.evolve(
    one_of({b"YES": True, b"NO": False}, "syntax error - SKIPME takes yes or no"), schema={"type": "boolean"}
)
_AGE = span(SECOND, 1, INT64_MAX, _YOUNG, "seconds above 0, with fractions")


@command(
    "CLIENT KILL", group="connection", flags=_ADMIN,
    reply=either(OK, integer("connections ended, in the form with words")), cost="O(N) in the clients", arity=-3,
    errors=("No such client", "No such user '<user>'"),
)  # fmt: skip
@attrs.define
class ClientKill:
    """End connections: one by its address alone, or all those that every one of the words fits.

    With an address alone the own connection may be meant, too; in the other form it is spared unless SKIPME no is
    given.
    """

    address: bytes | None = optional("Address of the one to end, as CLIENT LIST shows it.", BYTES)
    id: int | None = option("ID", "Only the connection of this number.", whole("ID"))
    type: bytes | None = option("TYPE", "Only connections of this type; all clients are normal.", _CLIENT_TYPE)
    user: bytes | None = option("USER", "Only connections of this user.", BYTES)
    addr: bytes | None = option("ADDR", "Only the connection from this address.", BYTES)
    laddr: bytes | None = option("LADDR", "Only connections to this address of the node.", BYTES)
    maxage: int | None = option("MAXAGE", "Only connections that are that many seconds old, or older.", _AGE)
    skipme: bool | None = option("SKIPME", "Whether the own connection is spared.", _SKIPME)

    def run(self, node: Node, client: Session) -> Any:
        """End what is meant; returns OK for an address alone, otherwise how many were ended."""
        if self.address is not None:
            return self._kill_one(self.address, client)
        if self.user is not None and client.host.access.users.get(self.user) is None:
            raise CommandError(f"No such user '{_text(self.user[:128])}'")
        return _kill(client, self._is_meant(client, node.state.now))

    def _kill_one(self, address: bytes, client: Session) -> Status:
        filters = (self.id, self.type, self.user, self.addr, self.laddr, self.maxage, self.skipme)
        if any(value is not None for value in filters):
            raise CommandError(_MISUSE)
        wanted = _text(address)
        if not _kill(client, lambda session: session.address == wanted):
            raise CommandError("No such client")
        return DONE

    def _is_meant(self, client: Session, now: int) -> Callable[[Session], bool]:
        spares_me = self.skipme is not False
        addr, laddr = (None if given is None else _text(given) for given in (self.addr, self.laddr))
        youngest = None if self.maxage is None else now - self.maxage  #: when it connected

        def meant(session: Session) -> bool:
            return (
                (self.id is None or session.id == self.id)
                and (self.user is None or _name_of_user(session) == self.user)
                and (addr is None or session.address == addr)
                and (laddr is None or session.peer.local_address == laddr)
                and (youngest is None or session.connected_at <= youngest)
                and not (spares_me and session is client)
            )

        return meant


def _text(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def _kill(client: Session, meant: Callable[[Session], bool]) -> int:
    """End the connections that are meant; returns how many."""
    found = [session for session in client.host.clients.sessions() if meant(session)]
    for session in found:
        session.kill()
    return len(found)


PAUSE_MAX_MS = 7 * 86_400_000
_LONG_PAUSE = f"timeout must be at most {PAUSE_MAX_MS} milliseconds (a week)"


def _read_pause(text: bytes) -> int:
    """Read the span of a pause in milliseconds."""
    span_ms = read_timeout(text)
    if span_ms > PAUSE_MAX_MS:
        raise CommandError(_LONG_PAUSE)
    return span_ms


_PAUSE = attrs.evolve(
    TIMEOUT,
    read=_read_pause,
    allowed=f"milliseconds, 0 to {PAUSE_MAX_MS}",
    schema={"type": "number", "minimum": 0, "maximum": PAUSE_MAX_MS},
    errors=(*TIMEOUT.errors, f"ERR {_LONG_PAUSE}"),
)


@command("CLIENT PAUSE", group="connection", flags=_ADMIN, reply=OK, cost="O(1)")
@attrs.define
class ClientPause:
    """Run no client's commands for a while; what clients send meanwhile is run afterwards."""

    timeout: int = positional("For how many milliseconds.", _PAUSE)

    def run(self, node: Node, client: Session) -> Status:
        client.host.clients.pause(self.timeout)
        return DONE


@command(
    "CLIENT UNBLOCK", group="connection", flags=_ADMIN, reply=integer("1, or 0 for a client that is not unblocked"),
    cost="O(N) in the clients",
)  # fmt: skip
@attrs.define
class ClientUnblock:
    """End the wait of a client: it is answered as if its time-out had passed, or an error.

    With TIMEOUT, which is the default, it is answered what its command answers after its time-out; with ERROR it is
    answered `UNBLOCKED client unblocked via CLIENT UNBLOCK`.  Every wait with a time-out can be ended, also one that is
    for ever: of GETJOB and the others that take jobs or events, or only hear of them; of WAITJOB; of ADDJOB and the
    others that wait for copies.  A job without its copies is given up as after a time-out, with all that were added
    together with it: no id is answered, and ERROR says no more than NOREPL.

    0 is answered when there is no such client on this node, when it does not wait, or has its answer already, and when
    it waits for the end of something that has begun, such as QPURGE, CANCEL or a long command that is run bit by bit.
    A consumer of a group with EX 0, to which an event may be on its way from another node, gets that event, or hears
    within a second that there is none.
    """

    id: int = positional("Number of the connection, as CLIENT ID and CLIENT LIST have it.", whole("client-id"))
    error: bool = optional(
        "What it is answered; TIMEOUT unless given.",
        one_of({b"TIMEOUT": False, b"ERROR": True}, "syntax error - CLIENT UNBLOCK takes TIMEOUT or ERROR"),
        default=False,
    )

    def run(self, node: Node, client: Session) -> int:
        """Unblock it; returns 1 or 0."""
        for session in client.host.clients.sessions():
            if session.id == self.id:
                return int(node.timeouts.unblock(cast(Client, session), Unblocked() if self.error else None))
        return 0


@command("CLIENT REPLY", group="connection", flags=_ADMIN, reply=or_silence(OK), cost="O(1)", is_of_connection=True)
@attrs.define
class ClientReply:
    """Whether this connection gets replies: ON all, OFF none, SKIP none to this command and to the next one."""

    mode: str = positional(
        "ON, OFF or SKIP; only ON is answered.",
        one_of({b"ON": "on", b"OFF": "off", b"SKIP": "skip"}, "syntax error - CLIENT REPLY takes ON, OFF or SKIP"),
    )

    def run(self, node: Node, client: Session) -> Any:
        """Change the mode; a SKIP changes nothing while replies are off."""
        if not (self.mode == "skip" and client.reply_mode == "off"):
            client.reply_mode = self.mode
        return DONE if self.mode == "on" else NO_REPLY


@command(
    "CLIENT RECEIPTS", group="connection", flags=Flag.READ | Flag.LOADING, reply=OK, cost="O(1)", is_of_connection=True
)
@attrs.define
class ClientReceipts:
    """Whether what a reply hands out goes back at once if this connection ends before a later command is answered.

    With ON a client sends any command when it has read a reply with jobs, such as PING, and waits for the answer before
    it begins to work on them.  If the connection breaks before, the jobs are queued again, untried, also those that are
    delivered at most once.  With OFF, as at first, they are queued again after their retry time, and those delivered
    at most once are lost.  A job that is with another consumer by then stays there.

    The command has to be sent after the reply was read, as the node cannot see what was read.  Events that were taken
    with EX 0, and what RQ.RECOVER hands out, do not go back; nor does anything when the node stops.
    """

    receipts: bool = positional(
        "ON or OFF.", one_of({b"ON": True, b"OFF": False}, "syntax error - CLIENT RECEIPTS takes ON or OFF")
    )

    def run(self, node: Node, client: Session) -> Status:
        client.receipts = self.receipts
        return DONE


_NO_MAINTENANCE = "this server announces no maintenance: only CLIENT MAINT_NOTIFICATIONS OFF is possible"


@command(
    "CLIENT MAINT_NOTIFICATIONS", group="connection", flags=_ADMIN, reply=OK, cost="O(1)", errors=(_NO_MAINTENANCE,),
    is_of_connection=True,
)  # fmt: skip
@attrs.define
class ClientMaintNotifications:
    """Ask to be told before maintenance; there is nothing that this server would tell, and it says so.

    Redis clients ask for it when they connect and go on without it when it is refused.
    """

    on: bool = positional(
        "ON or OFF.", one_of({b"ON": True, b"OFF": False}, "syntax error - CLIENT MAINT_NOTIFICATIONS takes ON or OFF")
    )
    endpoint: bytes | None = option("MOVING-ENDPOINT-TYPE", "Kind of address that would be told.", BYTES)

    def run(self, node: Node, client: Session) -> Status:
        if self.on:
            raise CommandError(_NO_MAINTENANCE)
        return DONE
