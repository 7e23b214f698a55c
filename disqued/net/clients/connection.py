"""Client connections: requests in, commands run, replies out.

    dataReceived --> parser --> commands --run--> node step --> replies (collected in `_out`)
         |              |          ^                                 |
         |              |          | the rest, after a slice         +--> flush: one write per chunk,
         |              |          +--- backlog                           or at the end of the turn's commit
         |              +--> protocol error: the replies that are due, the error, end
         +--> chunks: while blocked, paused, not reading, or busy for long

One chunk of input is one step of the node: it has one moment, the commands in it run in order, and their replies leave
in one write.  A client whose commands have to wait is read from no further than `CHUNKS_MAX`; the rest stays with the
system, and with the client.  A client that does not read its replies is not read from either, so it holds no more than
the replies to the commands of one chunk; `client-output-buffer-limit` ends one that stays so.  What a connection holds
counts towards the budget of all of them (`net/loop/buffers.py`).

A command that is too long for one step is, to its connection, one that blocks: the next one waits for its reply.
Clients whose commands take long share a slice of each turn of the loop (`Traffic.busy`), and the others do not wait
for them.

A client that has closed its side of the connection gets no job.  The poller reports that along with the last bytes of
the client, and, when replies were sent before the report came, the system tells by an error of its own whether anybody
could read them (`take_unseen`).

Source: Disque, src/networking.c.
"""

from collections import deque
from typing import Any, Protocol

from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.acl.user import User
from disqued.commands import table
from disqued.commands.dispatch import Outcome
from disqued.commands.host import Host, Session
from disqued.commands.runnable import BLOCKED, Runnable
from disqued.commands.table import Command, Flag
from disqued.config import Config
from disqued.errors import CommandError
from disqued.net.clients import peer_addresses
from disqued.net.clients.traffic import Traffic
from disqued.net.clients.unauthenticated import UnauthenticatedClients
from disqued.net.loop.buffers import STEP
from disqued.net.loop.handles import Handle, Listener
from disqued.net.loop.turns import SLICE_S
from disqued.wire.brief import encode_error
from disqued.wire.pieces import LARGE, Pieces, Text, joined
from disqued.wire.replies import encode_push
from disqued.wire.requests import SINGLE_SIZE, RequestParser, parse_single, weight

log = Logger("disqued.net.clients.connection.ClientConnection")  # by its name, as it is compiled

LARGE_REPLY = 16 * 1024  #: a reply of at least this size is sent before the next command runs
RESUMED = 1_000  #: postponed commands that are resumed at a time
BUSY_S = 0.001  #: a client whose commands took this long waits for its turn among the busy ones
CHUNKS_MAX = 64 * 1024  #: bytes read ahead from a client whose commands have to wait
CHUNK_COST = 64  #: bytes of memory that a chunk takes besides its text
REPLY_COST = 48  #: bytes of memory that a reply takes besides its text
FEW_WORDS = 16  #: a blocking command of more words counts in memory while it blocks
MANY_REPLIES = 64  #: replies below `LARGE_REPLY` that may wait for a commit uncounted
#: Bytes of replies that may wait for a commit before reading from the client stops.
REPLIES_MAX = 1 << 20
UNREAD_MAX = 32 << 20  #: bytes of messages and replies that a subscriber may leave unread
CLOSED = "the client has closed its side of the connection, so no job is handed out to it"
#: Commands of a subscriber under RESP2, which cannot distinguish replies from messages.
_FOR_LISTENERS = frozenset({"SUBSCRIBE", "PSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "PING", "QUIT", "RESET"})
_LISTENS = (
    "Can't execute '{name}': only (P)SUBSCRIBE / (P)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context"
)


def _is_quick(data: bytes) -> bool:
    """Return whether the first chunk of a client is one command that takes little time."""
    words = (parse_single(data) if data[:1] == b"*" else data.split()) if len(data) <= SINGLE_SIZE else None
    entry = table.TABLE.get(words[0].upper()) if words else None
    return entry is not None and bool(entry.flags & Flag.FAST)


class ClientHome(Protocol):
    """What connections need of the registry that they belong to (`client_registry.ClientRegistry`)."""

    config: Config
    host: Host  #: what their commands ask
    traffic: Traffic
    unauthenticated: UnauthenticatedClients
    recent: deque[tuple[int, bytes]]  #: the last inputs, for crash reports: ids and bytes

    def make_parser(self) -> RequestParser:
        """Make a parser with the limits in force."""

    def connected(self, client: "ClientConnection") -> None:
        """Accept a client, or refuse it."""

    def disconnected(self, client: "ClientConnection", handed: list[bytes]) -> None:
        """Forget a client, and return the jobs `handed` that it did not read."""


class ClientConnection(Listener):
    """One client; a `Session` to the commands, a protocol and a push producer to its transport."""

    def __init__(self, home: ClientHome, session_id: int) -> None:
        self.transport: Any = None
        self.id = session_id
        self.address = ""  #: ``ip:port`` of the other end; kept after the connection is lost
        self.name = b""
        self.lib: dict[bytes, bytes] = {}
        self.authenticated = False
        self.user: User | None = None  #: None while it is unauthenticated
        self.limited = True  #: it is unauthenticated, or its user may not do everything
        self.monitors = False
        self.channels: dict[bytes, None] = {}  #: that it listens to
        self.patterns: dict[bytes, None] = {}
        self.reply_mode = "on"
        self.connected_at = self.active_at = home.traffic.node.moment()
        self._home = home
        self._traffic: Traffic = home.traffic
        self._parser = home.make_parser()
        self._remember = home.recent.append
        self._out: list[Text] = []
        #: Unsent replies with jobs, each behind a function that returns the job ids: these jobs go back if the
        #: connection is lost first.
        self._handed: list[tuple[Any, Any]] = []
        #: Replies that wait for the commit under way; those in `_out` wait for the next one.
        self._held: list[Text] = []
        self._held_handed: list[tuple[Any, Any]] = []
        #: For each reply that waits for a commit: its index in `_out` or `_held`, a function that returns the job ids
        #: that it promises, and its value.
        self._promised: list[tuple[int, Any, Any]] = []
        self._held_promised: list[tuple[int, Any, Any]] = []
        #: Jobs sent since the last command: they go back if the client could not read them.
        self._unseen: list[tuple[Any, Any]] = []
        self._backlog: deque[list[bytes]] = deque()
        self._backlog_size = 0
        self._chunks: deque[bytes] = deque()  #: input behind the backlog
        self._chunks_size = 0
        self._read_on = True  #: False: reading has stopped, as enough input waits
        self._is_queued = False  #: it waits for its turn among the busy clients
        self._is_new = True  #: nothing has come yet
        #: Its last commands took long, or it is not known yet how long they take.
        self._is_busy = True
        #: Input is run at once: the client is not busy or blocked, reads its replies, and has nothing postponed.
        self._is_ready = False
        self._is_closed = False  #: it has closed its side of the connection
        self._outcome = Outcome(2, checked=True)  #: of the last command; knows protocol and permissions
        self.is_blocked = False  #: the last command waits for its answer
        self._blocked_size = 0  #: bytes of the command that blocked it
        self._owes = False  #: too many replies wait for a commit: its next commands have to wait
        self._stalled = False  #: the transport is full
        self._closing = False
        self._lost = False
        self._handle: Handle | None = None  #: of the transport, where it has one
        self._wire: Handle | None = None  #: the same, or that of the transport below TLS
        self._overfull_since = 0
        self._reported = 0  #: bytes reported to the budget of all connections
        self.listening_size = 0  #: bytes that its subscriptions take
        self._unlock_limits = False

    # What commands see.

    @property
    def host(self) -> Host:
        """The daemon that it is connected to."""
        return self._home.host

    @property
    def descriptor(self) -> int:
        """The file descriptor."""
        return int(self.transport.fileno())

    @property
    def last_command(self) -> str:
        """The last command, as CLIENT LIST shows it."""
        entry = self._outcome.entry
        return "NULL" if entry is None else entry.name.lower().replace(" ", "|")

    @property
    def host_address(self) -> str:
        """The address of the other end without its port; empty on a Unix socket."""
        return "" if self.is_unix else str(self.transport.getPeer().host)

    @property
    def is_unix(self) -> bool:
        """True on a Unix socket."""
        return peer_addresses.is_unix(self.transport)

    @property
    def local_address(self) -> str:
        """The address that the client has connected to."""
        return peer_addresses.own_end(self.transport)

    @property
    def certificate_name(self) -> str:
        """The common name in the client's certificate; empty for none."""
        return peer_addresses.common_name(self.transport)

    @property
    def subscriptions(self) -> int:
        """Channels and patterns that it listens to."""
        return len(self.channels) + len(self.patterns)

    @property
    def is_closing(self) -> bool:
        """True when it ends as soon as its replies are sent."""
        return self._closing

    @property
    def is_busy(self) -> bool:
        """True while something is under way to it, or from it and not read."""
        return not self._lost and bool(self.transport.is_busy())

    @property
    def input_buffered(self) -> int:
        """Bytes received and not yet run, with what they take in memory."""
        return self._backlog_size + self._chunks_size + self._parser.held

    @property
    def output_buffered(self) -> int:
        """Bytes of replies that the socket has not taken."""
        unsent: int = self.transport.unsent
        return sum(map(len, self._out)) + sum(map(len, self._held)) + unsent

    def close(self) -> None:
        """End the connection after the replies that are due."""
        self._closing, self._is_ready = True, False
        self._drop_input()

    def _drop_input(self) -> None:
        self._backlog.clear()
        self._chunks.clear()
        self._backlog_size = self._chunks_size = 0

    def _drop_output(self) -> None:
        for replies in (self._out, self._held, self._promised, self._held_promised):
            replies.clear()

    def part(self) -> bool:
        """End as `close` does; say whether the other end is read from meanwhile, as something is under way.

        What has come and was not read would let the system drop the replies that it has yet to bring there.
        """
        lingers = not self._lost and (bool(self._backlog or self._chunks) or self.is_busy)
        self.close()
        if lingers:
            self.transport.unregisterProducer()
            self.transport.resumeProducing()
            self.transport.loseWriteConnection()
        else:
            self.transport.loseConnection()
        return lingers

    def kill(self) -> None:
        """End the connection now; a reply that is being made is still sent."""
        if self._traffic.running == self.id:
            self.close()
        else:
            self._abort()

    def _abort(self) -> None:
        """End the connection without a word: from now on nothing is run or sent, and no job is given to it."""
        self._lost = self._closing = True
        self._is_ready = False
        self._drop_input()
        self.transport.abortConnection()

    def set_protocol(self, version: int) -> None:
        """Speak RESP 2 or 3 from the reply to the current command on."""
        self._outcome.protocol = version

    @property
    def protocol(self) -> int:
        """RESP 2 or 3."""
        return self._outcome.protocol

    def watch_commands(self, *, watches: bool) -> None:
        """Show this client every command from now on (MONITOR), or none."""
        self.monitors = watches
        if watches:
            self._traffic.dispatch.watch(self)
        else:
            self._traffic.dispatch.unwatch(self)

    # The connection.

    def makeConnection(self, transport: Any) -> None:
        """Take the client in, or turn it away when there are too many."""
        self.transport = transport
        # Of the transport itself: what wraps another one (TLS) passes on what is asked of it.
        handle: Handle | None = vars(transport).get("handle")
        if handle is not None:
            handle.listener = self
        self._handle = handle
        self._wire = handle if handle is not None else getattr(getattr(transport, "transport", None), "handle", None)
        if self._wire is not None:
            self._wire.watcher = self
        self.address = peer_addresses.other_end(self.transport)
        self._home.connected(self)
        self.transport.registerProducer(self, streaming=True)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Forget the client: it takes no job any more."""
        self._lost = self._closing = True
        self._is_ready = False
        self.is_blocked = False
        self._drop_input()
        self._drop_output()
        handed = [job_id for names, value in self._held_handed + self._handed for job_id in names(value)]
        wire = self._wire
        if wire is not None and wire.was_deaf:
            handed += [job_id for names, value in self._unseen for job_id in names(value)]
        self._handed, self._held_handed, self._unseen = [], [], []
        self._parser = self._home.make_parser()  # what was begun is let go of, though a transport may know us still
        self._blocked_size = self.listening_size = 0
        if self._reported:
            self._reported = 0
            self._traffic.buffers.drop(self)
        self._home.disconnected(self, handed)

    def restrict(self) -> None:
        """Limit the size of requests, and the time, until the client has authenticated."""
        self.authenticated, self.user, self.limited = False, None, True
        self.note_checks()
        self._parser.restrict()
        self._home.unauthenticated.add(self)

    def become(self, user: User) -> None:
        """Be a user's connection from now on, with what that one may do."""
        was_unauthenticated = not self.authenticated
        self.authenticated, self.user, self.limited = True, user, not user.may_do_everything
        self.note_checks()
        if not was_unauthenticated:
            return
        self._home.unauthenticated.remove(self)
        if self._traffic.running == self.id:
            self._unlock_limits = True
        else:
            self._lift_limits()

    def refuse(self, error: bytes) -> None:
        """Answer an error and end the connection."""
        self._out.append(encode_error(error))
        self.close()
        self.flush()

    def is_gone(self) -> bool:
        """Tell whether the other end has closed, even if that has not been noticed yet."""
        return self._lost or self._closing or self.transport.is_gone()

    # Input.

    def dataReceived(self, data: bytes) -> None:
        """Run the commands that these bytes complete."""
        traffic = self._traffic
        traffic.bytes_in += len(data)
        if (not self._is_ready or traffic.paused) and self._has_to_wait(data):
            return
        parser = self._parser
        commands = parser.feed(data)
        if commands:
            self._remember((self.id, data))
            self._run(commands)
            last: Runnable | None = self._outcome.entry
            if last is not None and last.hands_out and not self._lost:
                parser.expect_again(data, commands)
        if not parser.idle or self._reported:
            if parser.error is not None and not self._backlog and not self.is_blocked:
                self._protocol_error()
            if parser.is_long:
                self._is_busy, self._is_ready = True, False
            self.report()

    def _has_to_wait(self, data: bytes) -> bool:
        """Put off what comes, if it has to wait; returns whether it had."""
        if self._closing:
            return True
        is_first, self._is_new = self._is_new, False
        if is_first and not self._traffic.paused and not self._stalled and _is_quick(data):
            self._is_busy, self._is_ready = False, True
            return False
        self._put_off(data)
        return True

    def _put_off(self, data: bytes) -> None:
        """Keep a chunk until the client may go on, and read no more when that is enough."""
        self._chunks.append(data)
        self._chunks_size += len(data) + CHUNK_COST
        if self._chunks_size > CHUNKS_MAX or not (self.is_blocked or self._traffic.paused):
            self._read_no_more()
        if self._is_busy:
            self.queue()
        self.report()

    def _read_no_more(self) -> None:
        """Leave what comes with the system for now; that the other end closes is still noticed.

        So the end of a client is not read before the commands that it sent are run.
        """
        if self._read_on:
            self._read_on = False
            if not self._stalled:
                self.transport.pauseProducing()
            if self._wire is not None:
                self._wire.watch()

    def queue(self) -> None:
        """Go on in a turn that is shared with others that take long, if there is something to go on with."""
        if not self._is_queued and not self._lost:
            self._is_queued = True
            is_short = not self._backlog and self._chunks_size <= SINGLE_SIZE + CHUNK_COST
            self._traffic.busy.add(self, is_short=is_short)

    def turn(self) -> None:
        """Go on with what was put off: it is its turn among those that take long."""
        self._is_queued = False
        self.resume()

    def resume(self) -> None:
        """Run what was put off, if the client may go on now."""
        if self._lost or self.is_blocked or self._stalled or self._owes or self._traffic.paused:
            return
        backlog = self._backlog
        if backlog or self._chunks:
            self._is_busy = False
        if backlog:
            commands = [backlog.popleft() for _ in range(min(len(backlog), RESUMED))]
            self._backlog_size -= sum(map(weight, commands))
            self._run(commands)
        elif self._chunks:
            data = self._chunks.popleft()
            self._chunks_size -= len(data) + CHUNK_COST
            self._traffic.bytes_in -= len(data)  # counted when it came
            self._is_ready = True
            self.dataReceived(data)
        self._go_on()
        if self._reported:
            self.report()

    def _go_on(self) -> None:
        """Behind the commands that were put off: take the next chunk up, or read on."""
        if self._lost or self.is_blocked or self._backlog:
            return
        if self._parser.error is not None:
            if not self._closing:
                self._protocol_error()
        elif self._chunks:
            self._is_ready = False
            self.queue()
        else:
            self._is_ready = not (self._is_busy or self._stalled or self._owes or self._closing)
            if not self._read_on:
                self._read_on = True
                if not self._stalled:
                    self.transport.resumeProducing()

    def other_end_closed(self) -> None:
        """The other end has closed its side; a client that waits and is not read from ends, as when that is read."""
        self._is_closed = True
        self.note_checks()
        if not self._read_on and (self.is_blocked or self._traffic.paused) and not self._stalled:
            self.transport.loseConnection()

    # What it holds.

    def report(self) -> None:
        """Tell the budget of all connections how much this one holds, if that has changed by a step."""
        if self._lost:
            return
        size = (
            self._parser.held + self._backlog_size + self._chunks_size + self._blocked_size + self.listening_size
            + self.output_buffered + REPLY_COST * (len(self._out) + len(self._held))
        )  # fmt: skip
        if size < STEP:
            size = 0
        change = size - self._reported
        if change >= STEP or change <= -STEP:
            self._reported = size
            self._traffic.buffers.hold(self, size)

    def end_for_buffers(self, size: int) -> None:
        """End the connection: it holds most while all hold too much."""
        self._reported = 0
        if self._home.unauthenticated.news.is_new(f"{self.host_address}: holds most"):
            log.warn(
                "Client {client} holds {size} bytes of requests and replies, the most while all connections hold too"
                " much: closed",
                client=self.address, size=size,
            )  # fmt: skip
        self._abort()
        self._parser = self._home.make_parser()
        self._drop_output()

    def _protocol_error(self) -> None:
        error = self._parser.error
        if self._parser.http_attempt and self._home.unauthenticated.news.is_new(f"{self.host_address}: HTTP"):
            log.warn("HTTP on the RESP port from {client}: closed", client=self.address)
        if error:
            self._out.append(encode_error(error))
        self.close()
        self._traffic.turn.finish_step(self)

    # Commands.

    def _run(self, commands: list[list[bytes]]) -> None:
        """Run commands as one step, until one blocks."""
        traffic = self._traffic
        node = traffic.node
        node.begin(self)
        self.active_at = node.state.now
        traffic.running = self.id
        started = traffic.dispatch.seconds()
        try:
            done = self._run_all(commands, started)
        finally:
            traffic.running = 0
        if traffic.dispatch.seconds() - started > BUSY_S:
            self._is_busy, self._is_ready = True, False
        if done < len(commands) and not self._closing:
            rest = commands[done:]
            self._backlog.extendleft(reversed(rest))
            self._backlog_size += sum(map(weight, rest))
        traffic.turn.finish_step(self)
        if done > MANY_REPLIES or self._held:
            self._count_replies()
        if self._unlock_limits:
            self._unlock_limits = False
            self._lift_limits()
        elif self._backlog:
            self._is_ready = False
            if not self.is_blocked:
                self._read_no_more()
                self.queue()
            self.report()

    def _count_replies(self) -> None:
        """Count replies that wait for a commit; when they are many, the next commands wait, too."""
        size = sum(map(len, self._out)) + sum(map(len, self._held))
        self._owes = size + REPLY_COST * (len(self._out) + len(self._held)) > REPLIES_MAX
        if self._owes:
            self._is_ready = False
        self.report()

    def _run_all(self, commands: list[list[bytes]], started: float) -> int:
        """Run commands one after the other; returns how many were begun."""
        traffic, outcome = self._traffic, self._outcome
        dispatch = traffic.dispatch
        turn_ends = started + SLICE_S
        outcome.at = started
        begun = 0
        for args in commands:
            begun += 1
            mode = self.reply_mode
            dispatch.execute(self, args, outcome)
            if outcome.value is BLOCKED:
                self._block(args)
                return begun
            reply = self._keep(outcome, args, mode)
            if (
                outcome.at > turn_ends
                or self._closing
                or traffic.paused
                or (len(reply) > LARGE_REPLY and self._must_wait())
            ):
                break
        outcome.value, outcome.reply = None, b""  # they may be large
        return begun

    def check(self, entry: Command) -> None:
        """Refuse a command that this connection cannot take now.  Raises CommandError."""
        if self.listening_size and self.protocol == 2 and entry.name not in _FOR_LISTENERS:
            raise CommandError(_LISTENS.format(name=entry.name.lower()))
        if self._is_closed and entry.hands_out:
            raise CommandError(CLOSED)

    def note_checks(self) -> None:
        """Decide whether `check` has something to say; to be called when one of its reasons comes or goes."""
        self._outcome.checked = self.limited or self.listening_size > 0 or self._is_closed

    def _keep(self, outcome: Outcome, args: list[bytes], mode: str) -> Text:
        """Keep a reply until it may leave, with what it hands out and promises; returns it.

        `mode` is that of CLIENT REPLY before the command.
        """
        entry, reply = outcome.entry, outcome.reply
        runs: Runnable | None = entry
        if runs is not None and not outcome.failed:
            if runs.hands_out and outcome.value:
                self._handed.append((runs.handed, outcome.value))
            if runs.promised is not None and self.reply_mode == "on" and self._traffic.node.state.journaling:
                self._promised.append((len(self._out), runs.promised, outcome.value))
            if self.listening_size and outcome.protocol == 2 and entry is not None and entry.name == "PING":
                reply = encode_push((b"pong", args[1] if len(args) > 1 else b""), 2)
        if self.reply_mode == "on":
            self._out.append(reply)
        elif mode == "skip" and self.reply_mode == "skip":
            self.reply_mode = "on"
        return reply

    def _block(self, args: list[bytes]) -> None:
        self.is_blocked = True
        self._is_ready = False
        if args[FEW_WORDS:]:
            self._blocked_size = weight(args)
            self.report()

    def _lift_limits(self) -> None:
        """Run the input that only the limits for unauthenticated clients had held back."""
        commands = self._parser.lift()
        self._backlog.extend(commands)
        self._backlog_size += sum(map(weight, commands))
        self.resume()

    # Output.

    def unblock(self, value: Any) -> None:
        """Answer the command that blocked the client."""
        outcome = self._outcome
        assert self.is_blocked
        self.is_blocked = False
        self._blocked_size = 0
        outcome.answer(value)
        self._keep(outcome, [b""], self.reply_mode)
        outcome.value, outcome.reply = None, b""  # they may be large
        self._is_ready = not (self._is_busy or self._backlog or self._chunks or self._stalled or self._closing)
        if not self._is_ready or self._parser.error is not None or self._reported or not self._read_on:
            self.queue()

    def push(self, line: Text) -> None:
        """Send something that no command of this client asked for: a line of MONITOR, an event.

        Replies that wait for a commit do not leave with it: it leaves with them.
        """
        waits = bool(self._out) or self._traffic.running == self.id
        self._out.append(line)
        if not waits:
            self.flush()
        if self._stalled and not self._lost:
            buffered = self.output_buffered
            if buffered > UNREAD_MAX:
                self._end_unread(buffered)

    def flush(self) -> None:
        """Send the replies that are due."""
        out = self._out
        if out and not self._lost:
            if len(out) == 1:
                data = out[0]
            elif len(out[-1]) > LARGE_REPLY:
                data = out.pop()
                self._send(joined(out))
            else:
                data = joined(out)
            out.clear()
            if self._promised:
                self._promised = []
            size = len(data)
            self._traffic.bytes_out += size
            handle = self._handle
            if size > LARGE and isinstance(data, Pieces):
                self.transport.writeSequence(data.parts)
                handle = self._wire
            elif handle is not None:
                handle.send(data)  # type: ignore[arg-type]  # pieces are large
            else:
                self.transport.write(data)
                handle = self._wire
            if self._handed:
                if not self.transport.refused:
                    self._unseen, self._handed = self._handed, []
            elif self._unseen:
                self._unseen = []
            if self._reported or (handle is not None and not handle.at_once):
                self._check_output()
        if self._closing and not self._lost:
            self.transport.unregisterProducer()
            self.transport.loseConnection()

    def _send(self, data: Text) -> None:
        self._traffic.bytes_out += len(data)
        handle = self._handle
        if isinstance(data, Pieces):
            self.transport.writeSequence(data.parts)
        elif handle is not None:
            handle.send(data)
        else:
            self.transport.write(data)

    @property
    def is_held(self) -> bool:
        """True while replies wait for a commit that is under way."""
        return bool(self._held)

    def hold(self) -> None:
        """Put the replies that are due apart: they wait for a commit that is under way."""
        before = len(self._held)
        self._held += self._out
        self._held_handed += self._handed
        self._held_promised += [(before + at, names, value) for at, names, value in self._promised]
        self._out, self._handed, self._promised = [], [], []

    def release(self) -> None:
        """Send what was put apart; what came after it waits for the next commit."""
        held, self._held = self._held, []
        handed, self._held_handed = self._held_handed, []
        self._held_promised = []
        if self._lost:
            self._handed = handed + self._handed  # they go back when the connection is told of its end
            return
        if not held:
            return
        self._send(held[0] if len(held) == 1 else joined(held))
        if self.transport.refused:
            self._handed = handed + self._handed
        else:
            self._unseen += handed
        self._check_output()

    def take_back(self, unkept: set[bytes], error: CommandError) -> list[bytes]:
        """Replace each reply that tells of one of these jobs or units by an error; returns their ids."""
        taken: list[bytes] = []
        for replies, promised in ((self._held, self._held_promised), (self._out, self._promised)):
            for at, names, value in promised:
                told = [job_id for job_id in names(value) if job_id in unkept]
                if told:
                    taken += told
                    replies[at] = encode_error(error.line)
        return taken

    def _must_wait(self) -> bool:
        """Send a large reply before the next command runs; say whether the client has to read it first."""
        if not self._traffic.node.state.journaling:
            self.flush()
        buffered = self.output_buffered
        if buffered > LARGE_REPLY:
            self.report()
        return self._stalled or buffered > LARGE_REPLY

    def _check_output(self) -> None:
        """End a client that has too much unread, now or for too long, and report what is left."""
        if self._lost:
            return
        if self._owes and len(self._out) <= MANY_REPLIES:
            self._owes = False
            self.queue()
        if self._stalled:
            limit = self._home.config.client_output_buffer_limit
            buffered = self.output_buffered
            now = self._traffic.node.state.now
            if limit.soft and buffered > limit.soft:
                self._overfull_since = self._overfull_since or now
            else:
                self._overfull_since = 0
            too_long = self._overfull_since and now - self._overfull_since > limit.soft_seconds * 1_000
            if (limit.hard and buffered > limit.hard) or too_long:
                self._end_unread(buffered)
        self.report()

    def sent(self) -> None:
        """The system has taken some of what the transport had buffered."""
        if self._reported:
            self.report()

    def _end_unread(self, buffered: int) -> None:
        """End the connection of a client that leaves so many bytes unread; it hears no more from now on."""
        log.warn("Client {client} does not read {size} bytes of replies: closed", client=self.address, size=buffered)
        self._abort()

    def pauseProducing(self) -> None:
        """The transport has more than it wants: run and read nothing until it has sent that."""
        self._stalled, self._is_ready = True, False
        self.transport.pauseProducing()
        self._check_output()

    def resumeProducing(self) -> None:
        """The transport has sent what it had."""
        self._stalled = False
        self._overfull_since = 0
        if self._read_on:
            self.transport.resumeProducing()
        self.report()
        self.queue()

    def stopProducing(self) -> None:
        """The transport is gone; `connectionLost` does the rest."""


def connection_of(
    client: Session, refusal: str = "events need a connection of their own: redis-cli SUBSCRIBE"
) -> ClientConnection:
    """Return a session that is a connection; a caller has none.  Raises CommandError."""
    if not isinstance(client, ClientConnection):
        raise CommandError(refusal)
    return client
