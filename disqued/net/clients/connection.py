"""Client connections: requests in, commands run, replies out.

    ClientConnection                               ClientSession
    dataReceived --> parser --> commands --step--> run --> replies (`due`)
         |              |          ^                          |
         |              |          | the rest, after a slice  +--> flush: one write per chunk,
         |              |          +--- input queue                  or at the end of the turn's commit
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
could read them (`Handle.was_deaf`).  With CLIENT RECEIPTS the client tells it, by its next command.

The connection and its session are in one module, as every request passes both.

Source: Disque, src/networking.c.
"""

from collections import deque
from typing import Any, Final, Protocol

from twisted.internet.protocol import connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.acl.user import User
from disqued.commands import table
from disqued.commands.dispatch import Outcome
from disqued.commands.host import Host, Session
from disqued.commands.runnable import BLOCKED, NOTHING
from disqued.commands.table import Command, Flag
from disqued.config import Config
from disqued.errors import CommandError
from disqued.net.clients.input_queue import InputQueue
from disqued.net.clients.peer_addresses import Peer
from disqued.net.clients.pending_replies import NO_REPLIES, REPLY_COST, Replies, job_ids
from disqued.net.clients.subscription_set import SubscriptionSet
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

LARGE_REPLY: Final = 16 * 1024  #: a reply of at least this size is sent before the next command runs
BUSY_S = 0.001  #: a client whose commands took this long waits for its turn among the busy ones
FEW_WORDS: Final = 16  #: a blocking command of more words counts in memory while it blocks
MANY_REPLIES: Final = 64  #: replies below `LARGE_REPLY` that may wait for a commit uncounted
#: Bytes of replies that may wait for a commit before reading from the client stops.
REPLIES_MAX: Final = 1 << 20
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

    def disconnected(self, client: "ClientSession", handed: list[bytes]) -> None:
        """Forget a client, and return the jobs `handed` that it did not read."""


class FlowControl(Protocol):
    """What a session needs of the connection that brings its commands."""

    def resume(self) -> None:
        """Run what was put off, if the client may go on now."""

    def unblocked(self) -> None:
        """Go on: the command that blocked the client is answered."""

    def check_output(self) -> None:
        """Look at what is left to send, after some of it was."""


class ClientSession:
    """One client: who it is, its commands and their replies; a `Session` to the commands, a `Recipient` to the turn."""

    def __init__(self, home: ClientHome, session_id: int, queue: InputQueue, flow: FlowControl) -> None:
        """`queue` is the client's input."""
        self.id = session_id
        self.host = home.host  #: the daemon that it is connected to
        self.peer = Peer(None)
        self.address = ""  #: ``ip:port`` of the other end; kept after the connection is lost
        self.name = b""
        self.lib: dict[bytes, bytes] = {}
        self.authenticated = False
        self.user: User | None = None  #: None while it is unauthenticated
        self.limited = True  #: it is unauthenticated, or its user may not do everything
        self.unlocks_limits = False  #: it has authenticated in the step that runs
        self.monitors = False
        self.subscriptions = SubscriptionSet()
        self.reply_mode = "on"
        self.receipts = False  #: what it was sent goes back until a later command is answered
        self.connected_at = self.active_at = home.traffic.node.moment()
        self.is_blocked = False  #: the last command waits for its answer
        self.is_closing = False  #: it ends as soon as its replies are sent
        self.is_lost = False
        self.is_stalled = False  #: the transport is full
        self.is_half_closed = False  #: the other end has closed its side of the connection
        self.outcome = Outcome(2, checked=True)  #: of the last command; knows protocol and permissions
        self.due = Replies()  #: replies that wait for the next commit, if for any
        self.held = NO_REPLIES  #: replies that wait for the commit under way
        self.reported = 0  #: bytes reported to the budget of all connections
        #: Jobs sent with the last reply: they go back if the client could not read them, or with `receipts`.
        self._unseen: list[tuple[Any, Any]] = []
        self._blocked_size = 0  #: bytes of the command that blocked it
        self._home = home
        self._traffic: Traffic = home.traffic
        self._input = queue
        self._flow: FlowControl | None = flow  #: None once the connection is lost
        self._transport: Any = None
        self._handle: Handle | None = None  #: of the transport, where it has one
        self._wire: Handle | None = None  #: the same, or that of the transport below TLS

    # What commands see.

    @property
    def last_command(self) -> str:
        entry = self.outcome.entry
        return "NULL" if entry is None else entry.name.lower().replace(" ", "|")

    @property
    def input_buffered(self) -> int:
        """Bytes received and not yet run, with what they take in memory."""
        return self._input.waiting + self._input.parser.held

    @property
    def output_buffered(self) -> int:
        unsent: int = self._transport.unsent
        return sum(map(len, self.due.texts)) + sum(map(len, self.held.texts)) + unsent

    def set_protocol(self, version: int) -> None:
        self.outcome.protocol = version

    @property
    def protocol(self) -> int:
        return self.outcome.protocol

    def watch_commands(self, *, watches: bool) -> None:
        """Show this client every command from now on (MONITOR), or none."""
        self.monitors = watches
        if watches:
            self._traffic.dispatch.watch(self)
        else:
            self._traffic.dispatch.unwatch(self)

    # Its begin and its end.

    def begin(self, transport: Any, handle: Handle | None, wire: Handle | None) -> None:
        """Take the transport, and what the loop knows of it."""
        self._transport, self._handle, self._wire = transport, handle, wire
        self.peer = Peer(transport)
        self.address = self.peer.address

    def close(self) -> None:
        self.is_closing = True
        self._input.drop()

    def kill(self) -> None:
        if self._traffic.running == self.id:
            self.close()
        else:
            self._abort()

    def _abort(self) -> None:
        """End the connection without a word: from now on nothing is run or sent, and no job is given to it."""
        self.is_lost = True
        self.close()
        self._transport.abortConnection()

    def end(self) -> list[bytes]:
        """Let go of everything, as the connection is lost; returns the jobs that the client did not read."""
        self.is_lost = True
        self.is_blocked = False
        self.close()
        self.due.drop()
        self.held.drop()
        handed = job_ids(self.held.take_deliveries() + self.due.take_deliveries())
        if self.receipts or (self._wire is not None and self._wire.was_deaf):
            handed += job_ids(self._unseen)
        self._unseen = []
        self._input.parser = self._home.make_parser()  # what was begun is let go of, though it may still be known
        self._blocked_size = 0
        self._flow = None
        if self.reported:
            self.reported = 0
            self._traffic.buffers.drop(self)
        return handed

    def is_gone(self) -> bool:
        """Tell whether the other end has closed, even if that has not been noticed yet."""
        return self.is_lost or self.is_closing or self._transport.is_gone()

    # Permissions.

    def restrict(self) -> None:
        """Limit the size of requests, and the time, until the client has authenticated."""
        self.authenticated, self.user, self.limited = False, None, True
        self.note_checks()
        self._input.parser.restrict()
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
            self.unlocks_limits = True
        else:
            self.lift_limits()

    def lift_limits(self) -> None:
        """Run the input that only the limits for unauthenticated clients had held back."""
        self.unlocks_limits = False
        self._input.lift_limits()
        if self._flow is not None:
            self._flow.resume()

    def refuse(self, error: bytes) -> None:
        """Answer an error and end the connection."""
        self.due.texts.append(encode_error(error))
        self.close()
        self.flush()

    def check(self, entry: Command) -> None:
        if self.subscriptions and self.protocol == 2 and entry.name not in _FOR_LISTENERS:
            raise CommandError(_LISTENS.format(name=entry.name.lower()))
        if self.is_half_closed and entry.hands_out:
            raise CommandError(CLOSED)

    def note_checks(self) -> None:
        """Decide whether `check` has something to say; to be called when one of its reasons comes or goes."""
        self.outcome.checked = self.limited or self.is_half_closed or len(self.subscriptions) > 0

    # Memory.

    def report(self) -> None:
        """Tell the budget of all connections how much this one holds, if that has changed by a step."""
        if self.is_lost:
            return
        due, held, queue = self.due.texts, self.held.texts, self._input
        unsent: int = self._transport.unsent
        size = (
            queue.parser.held + queue.waiting + self._blocked_size + self.subscriptions.size
            + sum(map(len, due)) + sum(map(len, held)) + unsent + REPLY_COST * (len(due) + len(held))
        )  # fmt: skip
        if size < STEP:
            size = 0
        change = size - self.reported
        if change >= STEP or change <= -STEP:
            self.reported = size
            self._traffic.buffers.hold(self, size)

    def end_for_buffers(self, size: int) -> None:
        self.reported = 0
        if self._home.unauthenticated.news.is_new(f"{self.peer.host}: holds most"):
            log.warn(
                "Client {client} holds {size} bytes of requests and replies, the most while all connections hold too"
                " much: closed",
                client=self.address, size=size,
            )  # fmt: skip
        self._abort()
        self._input.parser = self._home.make_parser()
        self.due.drop()
        self.held.drop()

    def end_unread(self, buffered: int) -> None:
        """End the connection of a client that leaves so many bytes unread; it hears no more from now on."""
        log.warn("Client {client} does not read {size} bytes of replies: closed", client=self.address, size=buffered)
        self._abort()

    # Commands.

    def run(self, commands: list[list[bytes]], started: float) -> int:
        """Run commands one after the other until one blocks or the slice is over; returns how many were begun."""
        traffic, outcome = self._traffic, self.outcome
        dispatch = traffic.dispatch
        turn_ends = started + SLICE_S
        outcome.at = started
        begun = 0
        for args in commands:
            begun += 1
            mode = self.reply_mode
            dispatch.execute(self, args, outcome)
            if outcome.value is BLOCKED:
                self.is_blocked = True
                if args[FEW_WORDS:]:
                    self._blocked_size = weight(args)
                    self.report()
                return begun
            reply = self._keep(outcome, args, mode)
            if (
                outcome.at > turn_ends
                or self.is_closing
                or traffic.paused
                or (len(reply) > LARGE_REPLY and self._must_wait())
            ):
                break
        outcome.value, outcome.reply = None, b""  # they may be large
        return begun

    def _keep(self, outcome: Outcome, args: list[bytes], mode: str) -> Text:
        """Keep a reply until it may leave, with what it hands out and promises; returns it.

        `mode` is that of CLIENT REPLY before the command.
        """
        runs, reply, due = outcome.runs, outcome.reply, self.due
        if runs is not NOTHING and not outcome.failed:
            if runs.hands_out and outcome.value:
                due.deliveries.append((runs.handed, outcome.value))
            if runs.promised is not None and self.reply_mode == "on" and self._traffic.node.state.journaling:
                due.promises.append((len(due.texts), runs.promised, outcome.value))
            if outcome.checked and outcome.protocol == 2 and self.subscriptions and self.last_command == "ping":
                reply = encode_push((b"pong", args[1] if len(args) > 1 else b""), 2)
        if self.reply_mode == "on":
            due.texts.append(reply)
        elif mode == "skip" and self.reply_mode == "skip":
            self.reply_mode = "on"
        return reply

    def unblock(self, value: Any) -> None:
        outcome = self.outcome
        assert self.is_blocked
        self.is_blocked = False
        self._blocked_size = 0
        outcome.answer(value)
        self._keep(outcome, [b""], self.reply_mode)
        outcome.value, outcome.reply = None, b""  # they may be large
        if self._flow is not None:
            self._flow.unblocked()

    # Output.

    def push(self, line: Text) -> None:
        """Send something that no command of this client asked for: a line of MONITOR, an event.

        Replies that wait for a commit do not leave with it: it leaves with them.
        """
        waits = bool(self.due.texts) or self._traffic.running == self.id
        self.due.texts.append(line)
        if not waits:
            self.flush()
        if self.is_stalled and not self.is_lost:
            buffered = self.output_buffered
            if buffered > UNREAD_MAX:
                self.end_unread(buffered)

    def flush(self) -> None:
        due = self.due
        out = due.texts
        if out and not self.is_lost:
            if len(out) == 1:
                data = out[0]
            elif len(out[-1]) > LARGE_REPLY:
                data = out.pop()
                self._send(joined(out))
            else:
                data = joined(out)
            out.clear()
            if due.promises:
                del due.promises[:]
            size = len(data)
            self._traffic.bytes_out += size
            handle = self._handle
            if size > LARGE and isinstance(data, Pieces):
                self._transport.writeSequence(data.parts)
                handle = self._wire
            elif handle is not None:
                handle.send(data)  # type: ignore[arg-type]  # pieces are large
            else:
                self._transport.write(data)
                handle = self._wire
            if due.deliveries:
                if not self._transport.refused:
                    self._unseen = due.deliveries[:]
                    del due.deliveries[:]
            elif self._unseen:
                self._unseen = []
            if (self.reported or (handle is not None and not handle.at_once)) and self._flow is not None:
                self._flow.check_output()
        if self.is_closing and not self.is_lost:
            self._transport.unregisterProducer()
            self._transport.loseConnection()

    def _send(self, data: Text) -> None:
        self._traffic.bytes_out += len(data)
        handle = self._handle
        if isinstance(data, Pieces):
            self._transport.writeSequence(data.parts)
        elif handle is not None:
            handle.send(data)
        else:
            self._transport.write(data)

    @property
    def is_held(self) -> bool:
        return bool(self.held.texts)

    def hold(self) -> None:
        due, held = self.due, self.held
        if held.texts or held.deliveries:
            held.extend(due)
        else:
            self.due, self.held = Replies() if held is NO_REPLIES else held, due

    def release(self) -> None:
        texts, handed = self.held.take()
        if self.is_lost:
            self.due.deliveries[:0] = handed  # they go back when the connection is told of its end
            return
        if not texts:
            return
        self._send(texts[0] if len(texts) == 1 else joined(texts))
        if self._transport.refused:
            self.due.deliveries[:0] = handed
        else:
            self._unseen += handed
        if self._flow is not None:
            self._flow.check_output()

    def take_back(self, unkept: set[bytes], error: CommandError) -> list[bytes]:
        return self.held.take_back(unkept, error) + self.due.take_back(unkept, error)

    def _must_wait(self) -> bool:
        """Send a large reply before the next command runs; say whether the client has to read it first."""
        if not self._traffic.node.state.journaling:
            self.flush()
        buffered = self.output_buffered
        if buffered > LARGE_REPLY:
            self.report()
        return self.is_stalled or buffered > LARGE_REPLY


class ClientConnection(Listener):
    """The connection of one client: what is read, and when it is run; a protocol and a producer to its transport."""

    def __init__(self, home: ClientHome, session_id: int) -> None:
        self.transport: Any = None
        self._home = home
        self._traffic: Traffic = home.traffic
        self._input = InputQueue(home.make_parser())
        self.session = ClientSession(home, session_id, self._input, self)
        self._remember = home.recent.append
        self._wire: Handle | None = None  #: of the transport, or of the one below TLS
        self._read_on = True  #: False: reading has stopped, as enough input waits
        self._is_queued = False  #: it waits for its turn among the busy clients
        self._is_new = True  #: nothing has come yet
        #: Its last commands took long, or it is not known yet how long they take.
        self._is_busy = True
        #: Input is run at once: the client is not busy or blocked, reads its replies, and has nothing postponed.
        self._is_ready = False
        self._owes = False  #: too many replies wait for a commit: its next commands have to wait
        self._overfull_since = 0

    # The connection.

    def makeConnection(self, transport: Any) -> None:
        """Take the client in, or turn it away when there are too many."""
        self.transport = transport
        # Of the transport itself: what wraps another one (TLS) passes on what is asked of it.
        handle: Handle | None = vars(transport).get("handle")
        if handle is not None:
            handle.listener = self
        self._wire = handle if handle is not None else getattr(getattr(transport, "transport", None), "handle", None)
        if self._wire is not None:
            self._wire.watcher = self
        self.session.begin(transport, handle, self._wire)
        self._home.connected(self)
        transport.registerProducer(self, streaming=True)

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Forget the client: it takes no job any more."""
        self._home.disconnected(self.session, self.session.end())

    def other_end_closed(self) -> None:
        """The other end has closed its side; a client that waits and is not read from ends, as when that is read."""
        session = self.session
        session.is_half_closed = True
        session.note_checks()
        if not self._read_on and (session.is_blocked or self._traffic.paused) and not session.is_stalled:
            self.transport.loseConnection()

    @property
    def is_busy(self) -> bool:
        """True while something is under way to it, or from it and not read."""
        return not self.session.is_lost and bool(self.transport.is_busy())

    def part(self) -> bool:
        """End as `close` does; say whether the other end is read from meanwhile, as something is under way.

        What has come and was not read would let the system drop the replies that it has yet to bring there.
        """
        lingers = not self.session.is_lost and (self._input.waiting > 0 or self.is_busy)
        self.session.close()
        if lingers:
            self.transport.unregisterProducer()
            self.transport.resumeProducing()
            self.transport.loseWriteConnection()
        else:
            self.transport.loseConnection()
        return lingers

    # Input.

    def dataReceived(self, data: bytes) -> None:
        """Run the commands that these bytes complete."""
        traffic, session = self._traffic, self.session
        traffic.bytes_in += len(data)
        if (not self._is_ready or traffic.paused or session.is_closing) and self._has_to_wait(data):
            return
        parser = self._input.parser
        commands = parser.feed(data)
        if commands:
            self._remember((session.id, data))
            self._run(commands)
            last = session.outcome.runs
            if last is not NOTHING and last.hands_out and not session.is_lost:
                parser.expect_again(data, commands)
        if not parser.idle or session.reported:
            if parser.error is not None and not self._input.commands and not session.is_blocked:
                self._protocol_error()
            if parser.is_long:
                self._is_busy, self._is_ready = True, False
            session.report()

    def _run(self, commands: list[list[bytes]]) -> None:
        """Run commands as one step, until one blocks."""
        traffic, session, queue = self._traffic, self.session, self._input
        node = traffic.node
        node.begin(session)
        session.active_at = node.state.now
        traffic.running = session.id
        started = traffic.dispatch.seconds()
        try:
            done = session.run(commands, started)
        finally:
            traffic.running = 0
        if traffic.dispatch.seconds() - started > BUSY_S:
            self._is_busy, self._is_ready = True, False
        elif session.is_blocked:
            self._is_ready = False
        if done < len(commands) and not session.is_closing:
            queue.postpone(commands[done:])
        traffic.turn.finish_step(session)
        if done > MANY_REPLIES or session.held.texts:
            self._count_replies()
        if session.unlocks_limits:
            session.lift_limits()
        elif queue.commands:
            self._is_ready = False
            if not session.is_blocked:
                self._read_no_more()
                self.queue()
            session.report()

    def _protocol_error(self) -> None:
        parser, session, unauthenticated = self._input.parser, self.session, self._home.unauthenticated
        if parser.http_attempt and unauthenticated.news.is_new(f"{session.peer.host}: HTTP"):
            log.warn("HTTP on the RESP port from {client}: closed", client=session.address)
        if parser.error:
            session.due.texts.append(encode_error(parser.error))
        session.close()
        self._traffic.turn.finish_step(session)

    # Input that has to wait.

    def _has_to_wait(self, data: bytes) -> bool:
        """Put off what comes, if it has to wait; returns whether it had."""
        session, queue = self.session, self._input
        if session.is_closing:
            return True
        is_first, self._is_new = self._is_new, False
        if is_first and not self._traffic.paused and not session.is_stalled and _is_quick(data):
            self._is_busy, self._is_ready = False, True
            return False
        queue.put_off(data)
        if queue.is_full or not (session.is_blocked or self._traffic.paused):
            self._read_no_more()
        if self._is_busy:
            self.queue()
        session.report()
        return True

    def _read_no_more(self) -> None:
        """Leave what comes with the system for now; that the other end closes is still noticed.

        So the end of a client is not read before the commands that it sent are run.
        """
        if self._read_on:
            self._read_on = False
            if not self.session.is_stalled:
                self.transport.pauseProducing()
            if self._wire is not None:
                self._wire.watch()

    def queue(self) -> None:
        """Go on in a turn that is shared with others that take long, if there is something to go on with."""
        if not self._is_queued and not self.session.is_lost:
            self._is_queued = True
            self._traffic.busy.add(self, is_short=self._input.is_short)

    def turn(self) -> None:
        """Go on with what was put off: it is its turn among those that take long."""
        self._is_queued = False
        self.resume()

    def resume(self) -> None:
        session, queue = self.session, self._input
        if session.is_lost or session.is_blocked or session.is_stalled or self._owes or self._traffic.paused:
            return
        if queue.waiting:
            self._is_busy = False
        if queue.commands:
            self._run(queue.take_commands())
        elif queue.chunks:
            data = queue.take_chunk()
            self._traffic.bytes_in -= len(data)  # counted when it came
            self._is_ready = True
            self.dataReceived(data)
        self._go_on()
        if session.reported:
            session.report()

    def _go_on(self) -> None:
        """Behind the commands that were put off: take the next chunk up, or read on."""
        session, queue = self.session, self._input
        if session.is_lost or session.is_blocked or queue.commands:
            return
        if queue.parser.error is not None:
            if not session.is_closing:
                self._protocol_error()
        elif queue.chunks:
            self._is_ready = False
            self.queue()
        else:
            self._is_ready = not (self._is_busy or session.is_stalled or self._owes or session.is_closing)
            if not self._read_on:
                self._read_on = True
                if not session.is_stalled:
                    self.transport.resumeProducing()

    def unblocked(self) -> None:
        session, queue = self.session, self._input
        self._is_ready = not (self._is_busy or queue.waiting or session.is_stalled or session.is_closing)
        if not self._is_ready or queue.parser.error is not None or session.reported or not self._read_on:
            self.queue()

    # Output that has to wait.

    def _count_replies(self) -> None:
        """Count replies that wait for a commit; when they are many, the next commands wait, too."""
        due, held = self.session.due.texts, self.session.held.texts
        size = sum(map(len, due)) + sum(map(len, held))
        self._owes = size + REPLY_COST * (len(due) + len(held)) > REPLIES_MAX
        if self._owes:
            self._is_ready = False
        self.session.report()

    def check_output(self) -> None:
        """End a client that has too much unread, now or for too long, and report what is left."""
        session = self.session
        if session.is_lost:
            return
        if self._owes and len(session.due.texts) <= MANY_REPLIES:
            self._owes = False
            self.queue()
        if session.is_stalled:
            limit = self._home.config.client_output_buffer_limit
            buffered = session.output_buffered
            now = self._traffic.node.state.now
            if limit.soft and buffered > limit.soft:
                self._overfull_since = self._overfull_since or now
            else:
                self._overfull_since = 0
            too_long = self._overfull_since and now - self._overfull_since > limit.soft_seconds * 1_000
            if (limit.hard and buffered > limit.hard) or too_long:
                session.end_unread(buffered)
        session.report()

    def sent(self) -> None:
        if self.session.reported:
            self.session.report()

    def pauseProducing(self) -> None:
        """The transport has more than it wants: run and read nothing until it has sent that."""
        self.session.is_stalled, self._is_ready = True, False
        self.transport.pauseProducing()
        self.check_output()

    def resumeProducing(self) -> None:
        """The transport has sent what it had."""
        self.session.is_stalled = False
        self._overfull_since = 0
        if self._read_on:
            self.transport.resumeProducing()
        self.session.report()
        self.queue()

    def stopProducing(self) -> None:
        """The transport is gone; `connectionLost` does the rest."""


def session_of(
    client: Session, refusal: str = "events need a connection of their own: redis-cli SUBSCRIBE"
) -> ClientSession:
    """Return a client that is connected; a caller is not.  Raises CommandError."""
    if not isinstance(client, ClientSession):
        raise CommandError(refusal)
    return client
