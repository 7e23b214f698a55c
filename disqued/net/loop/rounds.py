"""Rounds of the loop: receive from all that sent something, run what they sent, send the replies.

    poll --> receive from all that sent something --> run what they sent, one after the other --> send the replies
             system calls                             no system calls                            system calls

A processor that returns from a system call has forgotten the code that runs next: its caches and what it knew of
branches are the kernel's.  Received, run and answered one by one, requests meet it so each time; in a round they share
it, and fifty clients that wait for each reply before they ask again are served half as often again.  A round has
bounds in connections, and so in bytes, and in time: none of its replies waits for longer than that and the commands of
one connection.  What is alone in its round is answered at once.

Every request passes here, so this is compiled with the core, and reads what it needs of a transport instead of calling
it.  Times are seconds.
"""

from collections import deque
from collections.abc import Callable
from select import EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLRDHUP
from typing import Any, Final, Protocol

from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.python import log

from disqued.net.loop.handles import Handle

ROUND_CONNECTIONS: Final = 64  #: connections that share a round at most
ROUND_S: Final = 0.002  #: replies are sent when a round has taken so long, though there is more to run
ENDS_AT_ONCE: Final = 64  #: connections that end in a turn; when there are more, they end in later turns
READ_SIZE: Final = 16 * 1024  #: bytes read at a time; Twisted's own 64 KiB cost 1 to 2 microseconds more per read
BULK_SIZE: Final = 64 * 1024  #: bytes read at a time where the last read was full: much is under way there


#: What comes with input, or in its place, when the other end has closed its side, or all of it.
CLOSED: Final = EPOLLRDHUP | EPOLLHUP | EPOLLERR


class ReplyGatherer(Protocol):
    """Who keeps replies back while a round runs, and sends them when it is over; to whom it is one moment."""

    def begin_round(self) -> None:
        """Keep replies back from now on, and take what is heard for heard now."""

    def end_round(self) -> None:
        """Send those that were kept back, and every other at once from now on."""


class Rounds:
    """Carries out what the poller tells of."""

    def __init__(
        self, selectables: dict[int, Any], carry_out: Callable[[Any, int, int], None],
        disconnect: Callable[[Any, Any, bool], None], seconds: Callable[[], float],
    ) -> None:  # fmt: skip
        """Take the loop's table of descriptors, what it does with an event, how it ends a connection, and its clock."""
        #: Is told of rounds of more than one connection; None = every reply is sent at once.
        self._gatherer: ReplyGatherer | None = None
        self.selectables = selectables
        self._carry_out = carry_out
        self._disconnect = disconnect
        self._seconds = seconds
        self._ends_left = ENDS_AT_ONCE  #: in this turn
        self._ending: deque[tuple[Any, Any]] = deque()  #: transports that end in later turns, and why
        self._delivered: list[tuple[Handle, bytes | None]] = []  #: the round that is being run

    def keep_back_with(self, gatherer: ReplyGatherer) -> None:
        """Let replies leave together at the end of a round: the daemon of this loop has been made."""
        self._gatherer = gatherer

    def holds(self, selectable: Any) -> bool:
        """Tell whether something of a transport is in the round that is being run: it may not have it yet."""
        return any(handle.transport is selectable for handle, _ in self._delivered)

    def run(self, events: list[tuple[int, int]]) -> None:
        """Carry out events; those of transports with a handle that have something to read, in rounds."""
        selectables = self.selectables
        self._ends_left = ENDS_AT_ONCE
        received: list[tuple[Handle, bytes | None]] = []
        for descriptor, event in events:
            # An event before this one may have closed the descriptor.
            selectable = selectables.get(descriptor)
            if selectable is None:
                continue
            handle: Handle | None = getattr(selectable, "handle", None)
            if event != EPOLLIN or handle is None:
                rest = event if handle is None else self._note_end(handle, event)
                if rest != EPOLLIN or handle is None:
                    if received:
                        self._deliver_all(received)
                        received = []
                    if rest:
                        self._carry_out(selectable, descriptor, rest)
                    continue
            data: bytes | None = None
            try:
                data = handle.recv(BULK_SIZE if handle.is_bulk else READ_SIZE)
                handle.is_bulk = len(data) >= READ_SIZE
            except BlockingIOError:
                continue
            except OSError:
                pass  # It is ended in its turn: what others sent is here already.
            received.append((handle, data))
            if len(received) == ROUND_CONNECTIONS:
                self._deliver_all(received)
                received = []
        if received:
            self._deliver_all(received)

    def _note_end(self, handle: Handle, event: int) -> int:
        """Note that the other end has closed its side; returns what is left of the event, 0 for nothing.

        With input it is found by reading.  Without it nothing is read for now, and the poller looks for the end alone.
        """
        if not event & CLOSED:
            return event
        if event & EPOLLERR:
            handle.note_error()
        if not event & EPOLLIN and event & EPOLLRDHUP:
            handle.unwatch()
        handle.note_closed()
        return event & ~CLOSED if event & EPOLLIN else event & ~EPOLLRDHUP

    def _deliver_all(self, received: list[tuple[Handle, bytes | None]]) -> None:
        """Give protocols what was received for them, and let the replies leave together."""
        gatherer = self._gatherer if len(received) > 1 else None
        ends = 0.0
        self._delivered = received
        if gatherer is not None:
            gatherer.begin_round()
            ends = self._seconds() + ROUND_S
        try:
            for handle, data in received:
                self._deliver(handle, data)
                if gatherer is not None and self._seconds() > ends:
                    gatherer.end_round()
                    gatherer.begin_round()
                    ends = self._seconds() + ROUND_S
        finally:
            self._delivered = []
            if gatherer is not None:
                gatherer.end_round()

    def _deliver(self, handle: Handle, data: bytes | None) -> None:
        """Give a protocol what was received, unless its connection has ended since; nothing is the end of it.

        Whatever goes wrong is told, and the others of the round have their turn.
        """
        if handle.ended:
            return
        why: Any = None
        try:
            if data:
                listener = handle.listener
                if listener is not None:
                    listener.dataReceived(data)
                else:
                    handle.transport.protocol.dataReceived(data)
            else:
                why = CONNECTION_LOST if data is None else CONNECTION_DONE
        except BaseException as error:  # a bug of the protocol: its connection ends, as Twisted has it
            log.err()  # type: ignore[no-untyped-call]
            why = error
        if why is None:
            return
        if self._ends_left:
            self._ends_left -= 1
            self._end(handle.transport, why)
        else:
            self._end_later(handle, why)

    def _end(self, transport: Any, why: Any) -> None:
        try:
            self._disconnect(transport, why, True)
        except Exception:
            log.err()  # type: ignore[no-untyped-call]

    def _end_later(self, handle: Handle, why: Any) -> None:
        """Read no more of a connection now, and end it when it is its turn: many that end hold up nobody."""
        handle.ended = True
        transport = handle.transport
        transport.stopReading()
        if not self._ending:
            transport.reactor.callLater(0, self._end_some)
        self._ending.append((transport, why))

    def _end_some(self) -> None:
        """End connections that were put off, as many as in any turn."""
        ending = self._ending
        reactor: Any = None
        for _ in range(min(len(ending), ENDS_AT_ONCE)):
            transport, why = ending.popleft()
            reactor = transport.reactor
            if not transport.disconnected:
                self._end(transport, why)
        if ending:
            reactor.callLater(0, self._end_some)
