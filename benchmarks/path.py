"""The path of a command through the product: Python calls, files and changes of file.

``python -m benchmarks.path`` prints them for ADDJOB, GETJOB and ACKJOB.

    client --bytes--> EpollReactor --> ClientConnection --> Node --> journal --> commit --> reply --bytes--> client
                      \\_____ sys.setprofile, from the poll that finds the bytes to the end of the turn _____/

A lone daemon runs in this process: the reactor of the product, a TCP connection, and the store `aof` with
``appendfsync always``.  The client sends one command, waits for its reply, and sends the next one.

Counted are calls of Python functions whose source is a file of the product, on the thread of the loop.  Calls of C
functions, of Twisted and of the standard library do not count, nor does the thread that calls fsync.  A change of file
is a call whose function is in another file than that of the counted call before.  Most commands take the same path; the
figures are those of the most frequent one, so a timer that fires in between changes nothing.
"""

import os
import select
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, TypeVar

import attrs

from benchmarks.profile import SUBJECTS, Bed, Subject
from disqued.net.loop.reactor import EpollReactor
from disqued.net.loop.transport import EagerServer
from disqued.testing.arguments import ExactParser

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = ("clients", "disqued", "persistence", "pipeline", "web", "twisted")  #: folders of product code
WARMING = 20  #: commands before the counted ones
COUNTED = 40
WAIT_S = 10.0  #: longest wait for the bytes that are on their way


T = TypeVar("T")


@attrs.frozen
class Trip:
    """What one command passes through."""

    calls: int
    files: int
    changes: int


class _Loop(EpollReactor):
    """The reactor of the daemon, turned by hand."""

    def advance(self, amount: float) -> None:
        """Turn once without waiting; the beds of `benchmarks.profile` ask for that."""
        self.turns.turn(min(self.turns.wait(), amount))


def measure(subject: Subject) -> Trip:
    """Count what most commands of a subject pass through."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="disqued-path-")))
        loop = _Loop()
        loop.startRunning(installSignalHandlers=False)
        bed: Bed = Bed.make(folder, "aof", reactor=loop, settings="appendfsync always")  # type: ignore[arg-type]
        stack.callback(bed.daemon.driver.store.close)
        peer = _connect(bed, loop, stack)
        commands = subject.prepare(bed, WARMING + COUNTED)
        loop.advance(0)
        paths = [_path(loop, peer, command) for command in commands]
    return Counter(paths[WARMING:]).most_common(1)[0][0]


def _connect(bed: Bed, loop: _Loop, stack: ExitStack) -> socket.socket:
    """Connect a client to the node; returns the client's end."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        peer = stack.enter_context(socket.create_connection(listening.getsockname()))
        ours, address = listening.accept()
    ours.setblocking(False)
    protocol: Any = bed.daemon.clients.buildProtocol(None)
    port: Any = SimpleNamespace(_realPortNumber=0)
    transport: Any = EagerServer(ours, protocol, address, port, 0, loop)
    protocol.makeConnection(transport)
    transport.startReading()
    stack.callback(ours.close)
    stack.callback(loop.removeAll)
    peer.setblocking(False)
    return peer


def _path(loop: _Loop, peer: socket.socket, command: bytes) -> Trip:
    """Send a command, and count until its turn is over."""
    peer.sendall(command)
    files: list[str] = []
    longest = loop.turns.wait()
    while not select.select([peer], [], [], 0)[0]:
        _count(partial(loop.turns.turn, min(longest, WAIT_S)), files)
        longest = _count(loop.turns.wait, files)
    assert peer.recv(1 << 16)
    changes = sum(one != other for one, other in pairwise(files))
    return Trip(len(files), len(set(files)), changes)


def _count(act: Callable[[], T], files: list[str]) -> T:
    """Act, and add the file of each product function that is called."""

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            file = _product_file(frame.f_code.co_filename)
            if file:
                files.append(file)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        return act()
    finally:
        sys.setprofile(before)


_known: dict[str, str] = {}


def _product_file(name: str) -> str:
    """The file's path in the checkout, links resolved; empty for files that are no product code."""
    if name not in _known:
        path = Path(os.path.realpath(name))
        inside = path.relative_to(ROOT) if path.is_relative_to(ROOT) else Path()
        _known[name] = str(inside) if inside.parts[:1] and inside.parts[0] in PRODUCT else ""
    return _known[name]


def main() -> None:
    """Print the figures."""
    ExactParser(prog="python -m benchmarks.path", description="The path of a command through the product.").parse_args()
    for name, subject in SUBJECTS.items():
        path = measure(subject)
        print(f"{name.upper()}: {path.calls} calls, {path.files} files, {path.changes} changes of file")


if __name__ == "__main__":
    main()
