"""What the loop knows of a connection: its socket, who listens, and whether a write may go straight to the socket.

                     +-- recv <-- Rounds (net/loop/rounds.py) --> listener
    transport <--> Handle
                     +-- send <-- replies --nothing buffered--> socket --what it does not take--> the transport's buffer
                                     \\__ otherwise __________________________________________________^

Every request and every reply passes here, so this is compiled with the core.  Of a transport (`net/loop/transport.py`),
which is Twisted's, nothing is looked up for a request: it tells its handle what becomes of it.
"""

import socket
from collections.abc import Callable, Sequence
from errno import EPIPE
from typing import Any, Final

SEND_MAX: Final = 256 * 1024  #: bytes that the socket is offered at a time


class Listener:
    """A protocol whose class is compiled, and which is given what came without looking for its method."""

    # Not an abstract class, as no base of what is compiled is (core/model/job.py says why); nobody makes one of these.

    def dataReceived(self, data: bytes) -> None:
        """Take what came; each kind of protocol does so itself."""
        raise NotImplementedError

    def sent(self) -> None:
        """The system has taken some of what the transport had buffered."""

    def other_end_closed(self) -> None:
        """The other end has closed its side; what it sent before may have yet to come."""


class Handle:
    """The connection of a transport that sends at once."""

    def __init__(self, transport: Any) -> None:
        self.transport: Any = transport
        self.recv: Callable[[int], bytes] = _closed
        self._send: Callable[[bytes | memoryview], int] = _closed
        self.listener: Listener | None = None  #: who is given what comes, where it is one; else the protocol is
        #: The listener, or the one above TLS: hears of what becomes of the connection besides what comes.
        self.watcher: Listener | None = None
        self.is_closed = False  #: the other end has closed its side, or all of it; what it sent before may still come
        #: The other end had closed all of it before something that was sent reached it: nobody read that.
        self.was_deaf = False
        self.is_bulk = False  #: the last read was full
        self.ended = False  #: nothing that comes is of interest any more
        #: Nothing is buffered, and the connection does not end: a write may go straight to the socket.  That is so
        #: while the loop is not to tell when the socket takes more.
        self.at_once = True
        self._when_sent: Callable[[], None] | None = None

    def open(self, connected: socket.socket) -> None:
        """Take the socket."""
        self.recv, self._send = connected.recv, connected.send

    def close(self) -> None:
        """Know of nothing any more: the connection is lost, and nobody is kept in memory by the others."""
        self.ended, self.at_once = True, False
        self.recv = self._send = _closed
        self.listener = self.watcher = self.transport = self._when_sent = None

    def once_sent(self, function: Callable[[], None]) -> None:
        """Call a function once, when the transport has nothing buffered any more; it replaces the one before."""
        self._when_sent = function

    def note_sent(self) -> None:
        """Note that the socket has taken some or all of what was buffered."""
        if self.watcher is not None:
            self.watcher.sent()
        if self.at_once and self._when_sent is not None:
            function, self._when_sent = self._when_sent, None
            function()

    def note_closed(self) -> None:
        """Note that the other end has closed its side."""
        if not self.is_closed:
            self.is_closed = True
            if self.watcher is not None:
                self.watcher.other_end_closed()

    def note_error(self) -> None:
        """Note what the system says went wrong with the connection."""
        # After the end of the other side a reset means that there is nobody any more; before that it is another error.
        transport = self.transport
        if transport is not None and transport.last_error() == EPIPE:
            self.was_deaf = True

    def watch(self) -> None:
        """Notice that the other end closes though nothing is read, where the loop can."""
        transport = self.transport
        if transport is not None and not self.is_closed and not self.ended:
            watch = getattr(transport.reactor, "watch_end", None)
            if watch is not None:
                watch(transport)

    def send(self, data: bytes) -> None:
        """Send, and let the transport buffer what the socket does not take."""
        if not self.at_once:
            if self.transport is not None:
                self.transport.buffer(data)
            return
        sent = 0
        size = len(data)
        try:
            # The other end may take as much as it is given, for as long as it is given more.
            sent = self._send(data if size <= SEND_MAX else memoryview(data)[:SEND_MAX])
        except BlockingIOError:
            pass
        except OSError:
            # Twisted's own attempt meets the error again, and ends the connection.
            self.transport.refused = True
        if sent < size:
            self.transport.buffer_rest(data, sent)

    def send_all(self, pieces: Sequence[bytes]) -> None:
        """Send the first piece, and let the transport buffer the others; none is copied."""
        if pieces:
            self.send(pieces[0])
        if pieces[1:] and self.transport is not None:
            self.transport.buffer_all(pieces[1:])

    def unwatch(self) -> None:
        """Look for that no more."""
        transport = self.transport
        unwatch = None if transport is None else getattr(transport.reactor, "unwatch_end", None)
        if unwatch is not None:
            unwatch(transport)


def _closed(*_: object) -> Any:
    raise OSError("the transport has no socket")
