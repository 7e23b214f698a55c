"""A blocking connection that speaks RESP: for what is asked once, and for single round trips."""

import socket
from typing import Any, Self

import hiredis

HOST = "127.0.0.1"
LIMIT_S = 30.0  #: how long a reply may take


def words(*args: bytes) -> bytes:
    """Spell one command."""
    return b"*%d\r\n" % len(args) + b"".join(b"$%d\r\n%b\r\n" % (len(arg), arg) for arg in args)


class ServerError(Exception):
    """A server answered an error; the text is its line."""


class Connection:
    """One connection."""

    def __init__(self, port: int, limit_s: float = LIMIT_S) -> None:
        self._socket = socket.create_connection((HOST, port), limit_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = hiredis.Reader()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self._socket.sendall(data)

    def receive(self) -> Any:
        """Wait for the next reply.  Raises ServerError."""
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(65_536)
            if not data:
                raise ConnectionError("the server closed the connection")
            self._reader.feed(data)
        if isinstance(reply, hiredis.ReplyError):
            raise ServerError(str(reply))
        return reply

    def fileno(self) -> int:
        """The socket, for a selector."""
        return self._socket.fileno()

    def hear(self) -> list[Any]:
        """Read what has come, and return the replies that are whole by now.  Raises ServerError."""
        data = self._socket.recv(262_144)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._reader.feed(data)
        replies = []
        while (reply := self._reader.gets()) is not False:
            if isinstance(reply, hiredis.ReplyError):
                raise ServerError(str(reply))
            replies.append(reply)
        return replies

    def call(self, *args: bytes) -> Any:
        """Send a command and wait for its reply."""
        self.send(words(*args))
        return self.receive()
