"""A client that keeps many connections busy with chunks made beforehand.

For what redis-benchmark cannot send: a different job id in each command, or another protocol.  It costs more per
chunk than a client in C, so its figures are only compared with its own.  Each reply must be one line.
"""

import selectors
import socket
import time
from collections.abc import Sequence

from benchmarks.raw import HOST

_STEP_S = 10.0  #: how long no connection may hear anything


class Refused(Exception):
    """A reply did not begin as expected."""


def blast(port: int, chunks: Sequence[bytes], replies: int, expected: bytes, connections: int = 50) -> float:
    """Send every chunk, each over the next idle connection; returns the seconds until all is answered.

    Each chunk brings `replies` lines, of which the first begins with `expected`.  Raises Refused, TimeoutError.
    """
    sockets = [socket.create_connection((HOST, port)) for _ in range(min(connections, len(chunks)))]
    selector = selectors.DefaultSelector()
    try:
        for each in sockets:
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            selector.register(each, selectors.EVENT_READ)
        return _exchange(selector, sockets, chunks, replies, expected)
    finally:
        selector.close()
        for each in sockets:
            each.close()


def _exchange(
    selector: selectors.BaseSelector,
    sockets: list[socket.socket],
    chunks: Sequence[bytes],
    replies: int,
    expected: bytes,
) -> float:
    waiting = iter(chunks)
    lines = dict.fromkeys(sockets, 0)
    open_chunks = len(chunks)
    started = time.perf_counter()
    for each in sockets:
        each.sendall(next(waiting))
    while open_chunks:
        events = selector.select(_STEP_S)
        if not events:
            raise TimeoutError(f"no reply for {_STEP_S:g} s")
        for key, _ in events:
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            data = connection.recv(65_536)
            if not lines[connection] and not data.startswith(expected):
                raise Refused(f"expected {expected!r}, got {data[:80]!r}")
            lines[connection] += data.count(b"\n")
            if lines[connection] < replies:
                continue
            lines[connection] = 0
            open_chunks -= 1
            chunk = next(waiting, None)
            if chunk is not None:
                connection.sendall(chunk)
    return time.perf_counter() - started
