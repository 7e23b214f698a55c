"""TCP and Unix transports that send at once.

Twisted's transport only notes what is written and sends it on the next turn of the loop, which costs two system
calls and a turn per reply.  Here a write goes straight to the socket while nothing is buffered; what the socket does
not take is buffered as ever, with the usual flow control.  For single small replies this doubles the throughput.

A reactor that works in rounds (`net/reactor.py`) receives and delivers in two steps; with any other both are one.
"""

from typing import Any

from twisted.internet import tcp, unix
from twisted.internet.main import CONNECTION_DONE, CONNECTION_LOST

READ_SIZE = 16 * 1024  #: bytes read at a time; Twisted's own 64 KiB cost 1 to 2 microseconds more per read


class _EagerWrite:
    """Mixed into a server transport, in front of it."""

    dataBuffer: bytes
    offset: int
    _tempDataBuffer: list[bytes]
    connected: int
    disconnecting: int
    disconnected: int
    socket: Any
    #: The socket refused a write of which nothing had gone out: the other end has not seen those bytes.
    refused: bool = False

    def write(self, data: bytes) -> None:
        """Send, and buffer what the socket does not take."""
        if (
            self._tempDataBuffer
            or self.offset != len(self.dataBuffer)
            or not self.connected
            or self.disconnecting
            or self.disconnected
        ):
            super().write(data)  # type: ignore[misc]
            return
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            # Twisted's own attempt meets the error again, and ends the connection.
            self.refused = True
            sent = 0
        if sent < len(data):
            super().write(data[sent:] if sent else data)  # type: ignore[misc]


class EagerServer(_EagerWrite, tcp.Server):
    """The server's end of a TCP connection."""

    def receive(self) -> bytes | None:
        """Take what has come, empty at its end; None = nothing has.  Raises OSError when the connection is broken.

        Most of what clients send is small, and room for it is made anew each time.
        """
        try:
            data: bytes = self.socket.recv(READ_SIZE)
        except BlockingIOError:
            return None
        return data

    def deliver(self, data: bytes) -> Any:
        """Give the protocol what was received, unless the connection has ended since; returns why it ends now."""
        if self.disconnected or self._aborting:
            return None
        if not data:
            return CONNECTION_DONE
        self.protocol.dataReceived(data)
        return None

    def doRead(self) -> Any:
        """Read once."""
        try:
            data = self.receive()
        except OSError:
            return CONNECTION_LOST
        return None if data is None else self._dataReceived(data)


class EagerPort(tcp.Port):
    """A TCP port whose connections send at once."""

    transport = EagerServer


class EagerClient(_EagerWrite, tcp.Client):
    """The end of a TCP connection that connects."""


class EagerConnector(tcp.Connector):
    """Connects by TCP; the connection sends at once."""

    def _makeTransport(self) -> EagerClient:
        client: Any = EagerClient
        made: EagerClient = client(self.host, self.port, self.bindAddress, self, self.reactor)
        return made


class EagerUnixServer(_EagerWrite, unix.Server):
    """The server's end of a connection through a Unix socket."""


class EagerUnixPort(unix.Port):
    """A Unix socket whose connections send at once."""

    transport = EagerUnixServer
