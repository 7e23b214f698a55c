"""The file of a Unix socket: taken over from a daemon that died, left to one that lives, removed at the end.

nothing there            bind
nobody accepts there     what kill -9 leaves behind: remove it, bind
somebody accepts there   refuse to start
no socket at all         refuse to start, and leave the file alone
"""

import contextlib
import os
import socket
import stat
from typing import Any

from twisted.internet import tcp
from twisted.internet.error import CannotListenError

from disqued.net.loop.transport import EagerUnixPort


class SocketFileTaken(CannotListenError):
    """The path of a Unix socket cannot be used; the text says why."""

    def __init__(self, path: bytes, problem: str) -> None:
        super().__init__("unix", path, problem)  # type: ignore[no-untyped-call]

    def __str__(self) -> str:
        return f"unixsocket {os.fsdecode(self.port)}: {self.socketError}"


class UnixPort(EagerUnixPort):
    """A listening Unix socket that looks after its file."""

    def startListening(self) -> None:
        """Listen. Raises SocketFileTaken."""
        path: bytes = self._bindPath
        clear_stale(path)
        try:
            super().startListening()  # type: ignore[no-untyped-call]
        except CannotListenError as error:
            raise SocketFileTaken(path, _reason(error.socketError)) from None

    def connectionLost(self, reason: Any) -> None:
        """Remove the file, unless somebody else did, and stop."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._bindPath)
        # Not the next class's: for it a file that is missing is an error, and the port would never be closed.
        tcp.Port.connectionLost(self, reason)  # type: ignore[no-untyped-call]


def clear_stale(path: bytes) -> None:
    """Remove a socket that nobody accepts connections on. Raises SocketFileTaken for whatever else is there."""
    try:
        is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
    except FileNotFoundError:
        if not os.path.isdir(os.path.dirname(path) or b"."):
            raise SocketFileTaken(path, "there is no such folder") from None
        return
    except OSError as error:
        raise SocketFileTaken(path, _reason(error)) from None
    if not is_socket:
        raise SocketFileTaken(path, "there is a file of this name, and it is no socket; name another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except BlockingIOError:
            pass  # it is so busy that connections wait
        except OSError as error:
            raise SocketFileTaken(path, _reason(error)) from None
    raise SocketFileTaken(path, "another process listens on it; stop that one, or name another path")


def _reason(error: Any) -> str:
    return getattr(error, "strerror", None) or str(error)
