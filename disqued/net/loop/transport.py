"""TCP and Unix transports that send at once.

Twisted's transport only notes what is written and sends it on the next turn of the loop, which costs two system
calls and a turn per reply.  Here a write goes straight to the socket while nothing is buffered; what the socket does
not take is buffered as ever, with the usual flow control.  For single small replies this doubles the throughput.

What is buffered stays in the pieces that were written (`disqued.wire.pieces`): short ones are put together when it is
their turn, long ones are sent part by part, `SEND_MAX` bytes in a turn of the loop, and never copied.

A loop that works in rounds (`net/loop/rounds.py`) reads from their sockets itself; with any other they do that.

To the protocols above, `unsent`, `refused` and `is_gone` say what became of a write; `tlstransport` offers the same.
"""

import fcntl
import select
import socket
import sys
import termios
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from errno import ENOBUFS
from typing import Any

from twisted.internet import tcp, unix
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST
from twisted.python.failure import Failure

from disqued.net.loop.handles import SEND_MAX, Handle
from disqued.net.loop.rounds import READ_SIZE
from disqued.wire.pieces import TOGETHER, grouped


class _Eager:
    """Mixed into a transport, in front of it."""

    dataBuffer: bytes
    offset: int
    _tempDataBuffer: Any  #: what waits behind `dataBuffer`: a deque, or an empty list, which takes a tenth of it
    _tempDataLen: int
    socket: Any
    connected: int
    disconnecting: int
    disconnected: int
    reactor: Any
    stopReading: Callable[[], None]
    _maybePauseProducer: Callable[[], None]
    _aborting: bool
    _writeDisconnected: bool
    #: The socket refused a write of which nothing had gone out: the other end has not seen those bytes.
    refused: bool = False
    #: With less than this left to send, Twisted would put all together that waits; here `doWrite` finds what is next.
    SEND_LIMIT = 0

    def __init__(self, *given: Any, **named: Any) -> None:
        #: What sends, which protocols may use without the step in between, and what the loop reads by.
        self.handle = Handle(self)
        super().__init__(*given, **named)
        if hasattr(self, "socket"):  # none could be had, else, and the connector is told so
            self.handle.open(self.socket)

    def startWriting(self) -> None:
        """Let the loop tell when the socket takes more: something waits for it, if only the end."""
        self.handle.at_once = False
        super().startWriting()  # type: ignore[misc]

    def stopWriting(self) -> None:
        """Nothing waits any more, or nothing is sent any more: each end of a connection comes here, too."""
        handle = self.handle
        handle.ended = bool(self.disconnected or self._aborting)
        handle.at_once = not handle.ended
        super().stopWriting()  # type: ignore[misc]

    def doWrite(self) -> Any:
        """Send some of what is buffered, as far as the socket takes it."""
        handle = self.handle
        if self._tempDataBuffer and self.offset == len(self.dataBuffer):
            self._take_next()
        result = super().doWrite()  # type: ignore[misc]
        handle.note_sent()
        return result

    def _take_next(self) -> None:
        """Let what waits longest be sent next: one piece, or several that are short, put together."""
        waiting = self._tempDataBuffer
        pieces = [waiting.popleft()]
        size = len(pieces[0])
        while waiting and size + len(waiting[0]) <= TOGETHER:
            pieces.append(waiting.popleft())
            size += len(pieces[-1])
        self.dataBuffer = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self.offset = 0
        self._tempDataLen -= size
        if not waiting:
            self._tempDataBuffer = []

    def writeSomeData(self, data: bytes | memoryview) -> Any:
        """Offer the socket a part of this; returns how much of it was taken, or why the connection has ended."""
        try:
            return self.socket.send(memoryview(data)[:SEND_MAX])
        except BlockingIOError:
            return 0
        except OSError as error:
            return 0 if error.errno == ENOBUFS else CONNECTION_LOST

    def connectionLost(self, reason: Any) -> None:
        """End, and tell the protocol."""
        self.handle.unwatch()
        super().connectionLost(reason)  # type: ignore[misc]
        self.handle.close()
        self._drop_unsent()

    def abortConnection(self) -> None:
        """End now; what was not sent is dropped within this call."""
        super().abortConnection()  # type: ignore[misc]
        self._drop_unsent()

    def _drop_unsent(self) -> None:
        """Let go of the memory now, and not when the collector comes."""
        self.dataBuffer, self.offset = b"", 0
        self._tempDataBuffer, self._tempDataLen = [], 0

    def loseConnection(self) -> None:
        """End when what was written has left; never within this call, as Twisted has it of what was half closed."""
        if self.connected and self._writeDisconnected and not self.disconnecting:
            self.disconnecting = 1
            self.stopReading()
            self.stopWriting()
            self.reactor.callLater(0, self.connectionLost, Failure(CONNECTION_DONE))  # type: ignore[no-untyped-call]
        else:
            super().loseConnection()  # type: ignore[misc]

    def write(self, data: bytes) -> None:
        """Send, and buffer what the socket does not take."""
        self.handle.send(data)

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Send pieces one after the other, and buffer what the socket does not take; no long one is copied."""
        self.handle.send_all(grouped(list(iovec)))

    def buffer_all(self, pieces: Sequence[bytes]) -> None:
        """Keep what is sent in later turns, as any transport of Twisted's keeps all that is written."""
        self._begin_to_wait()
        super().writeSequence(pieces)  # type: ignore[misc]

    def buffer(self, data: bytes) -> None:
        """Keep what cannot be sent now, as any transport of Twisted's keeps all that is written."""
        self._begin_to_wait()
        super().write(data)  # type: ignore[misc]

    def _begin_to_wait(self) -> None:
        if not self._tempDataBuffer:
            self._tempDataBuffer = deque()

    def buffer_rest(self, data: bytes, sent: int) -> None:
        """Keep what the socket did not take while nothing else is buffered; it is not copied."""
        if self.connected and not self._writeDisconnected:
            self.dataBuffer, self.offset = data, sent
            self._maybePauseProducer()
            self.startWriting()

    @property
    def unsent(self) -> int:
        """Bytes that the socket has not taken."""
        return len(self.dataBuffer) - self.offset + self._tempDataLen

    def is_busy(self) -> bool:
        """Tell whether something is under way: bytes that were not read here, or that the other end has yet to get."""
        return bool(self.unsent or self._next() or self._in_system())

    def _in_system(self) -> int:
        """Bytes that were sent, and that the other end's system has not acknowledged."""
        try:
            told = fcntl.ioctl(self.socket, termios.TIOCOUTQ, b"\0\0\0\0")
        except OSError:
            return 0
        return int.from_bytes(told, sys.byteorder)

    def is_gone(self) -> bool:
        """Tell whether the other end has closed, even if that has not been noticed yet."""
        coming = self._next()
        return coming == b"" or (coming is not None and self.is_closed())

    def is_closed(self) -> bool:
        """The same where something of it has yet to be read."""
        if not self.handle.is_closed:
            poller = select.poll()
            poller.register(self.socket, select.POLLRDHUP)
            if poller.poll(0):
                self.handle.note_closed()
        return self.handle.is_closed

    def last_error(self) -> int:
        """What went wrong last, as an `errno`; 0 for nothing."""
        try:
            error: int = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        except OSError:
            return 0
        return error

    def _next(self) -> bytes | None:
        """The next byte that will be read; empty where the connection has ended, None where nothing has come."""
        try:
            seen: bytes = self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return b""
        return seen


class _Reading(_Eager):
    """The same of a server, which reads once where the loop has no rounds."""

    def doRead(self) -> Any:
        try:
            data = self.socket.recv(READ_SIZE)
        except BlockingIOError:
            return None
        except OSError:
            return CONNECTION_LOST
        if data:
            self.is_closed()
        return self._dataReceived(data)  # type: ignore[attr-defined]


class EagerServer(_Reading, tcp.Server):
    """The server's end of a TCP connection."""


class EagerPort(tcp.Port):
    """A TCP port whose connections send at once."""

    transport = EagerServer


class EagerClient(_Eager, tcp.Client):
    """The end of a TCP connection that connects."""


class EagerConnector(tcp.Connector):
    """Connects by TCP; the connection sends at once."""

    def _makeTransport(self) -> EagerClient:
        client: Any = EagerClient
        made: EagerClient = client(self.host, self.port, self.bindAddress, self, self.reactor)
        return made


class EagerUnixServer(_Reading, unix.Server):
    """The server's end of a connection through a Unix socket."""


class EagerUnixPort(unix.Port):
    """A Unix socket whose connections send at once."""

    transport = EagerUnixServer
