"""Answers that a client leaves unread, and for how long it may.  Times are seconds, sizes bytes."""

import socket
from collections.abc import Callable
from typing import Any, Final

READ_S: Final = 30.0  #: that a client may read nothing, and more where much has been written that it can read:
READ_BYTES_S: Final = 20_000.0
QUIET: Final = 64 << 10  #: of answers that a transport takes before it says that the client does not read
LOOK_S: Final = 1.0  #: between two looks at a client that does not read


class UnreadAnswers:
    """What was written since the client had read all, and the timer of looks at a client that does not read."""

    def __init__(self, reactor: Any) -> None:
        """`reactor` has `seconds` and `callLater`."""
        self._reactor = reactor
        self._call: Any = None  #: the next look; None = the client reads
        self._read_by = 0.0  #: when it has to have read what is unread
        self._size = 0  #: bytes since the client had read all, as far as is known

    @property
    def is_watched(self) -> bool:
        """True while the client does not read."""
        return self._call is not None

    @property
    def held(self) -> int:
        """Bytes that wait for a client that does not read."""
        return 0 if self._call is None else self._size

    def count(self, size: int) -> None:
        if self._call is None:
            # What the client has not read of what was written before is less, or the transport would have said so.
            self._size = min(self._size, QUIET)
        self._size += size

    def watch(self, transport: Any, report: Callable[[], object], cut: Callable[[], object]) -> None:
        """Meet a client that does not read as fast as we write: `report` is called with each look, or `cut`."""
        if self._call is None:
            self._read_by = self._reactor.seconds() + READ_S + (self._size + _kernel_size(transport)) / READ_BYTES_S
            self._call = self._reactor.callLater(LOOK_S, self._look, report, cut)

    def stop(self) -> None:
        """The client has read all, or is gone."""
        self._size = 0
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _look(self, report: Callable[[], object], cut: Callable[[], object]) -> None:
        """Cut a client that has read too little for too long; see what its answer costs by now."""
        if self._reactor.seconds() < self._read_by:
            self._call = self._reactor.callLater(LOOK_S, self._look, report, cut)
            report()
        else:
            self._call = None
            cut()


def _kernel_size(transport: Any) -> int:
    """Bytes that the kernel may keep for the client, which shows no progress while it reads those."""
    sock = getattr(transport, "socket", None)
    return 0 if sock is None else int(sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF))
