"""Work a command, counted: function calls and bytecode instructions, where seconds would measure the machine.

``python -m benchmarks.work`` prints them for the interpreter that runs it, as the table of
tests/adapters/test_work_per_command.py has them.

    single, pipelined    chunk of 1, of 16 ---dataReceived--> commands --> node --> replies --> write
    journal              one command ---dataReceived--> ... --> records --> file --> reply      at the end of the turn
    sockets              16 sockets with a command each ---Rounds.run--> receive, commands, replies, send
    events               one command ---dataReceived--> ... --> replies --> write; trail --> lines of the event log
    copies               16 clients with a command each --> node --> frames --> two holders --> frames --> replies
                         \\__ sys.setprofile: each call, of Python and of C functions __________________/
                          \\_ sys.settrace: each instruction of the interpreter _______________________/

The node is the one of `benchmarks.profile`.  Time goes on by one millisecond each time that a clock is read, ids come
from a seed, no timer runs out but those of the same turn, and the first commands, which wake what rests and fill what
is cached, are not counted: so the same code gives the same counts on every machine, however busy, in every run.  Only
another minor version of CPython gives others, as it compiles the same source to other instructions.

With `events`, the thread's part is not counted: that lines are written to the file, and that the log hears so.

With `copies`, three nodes of one process hold each job (`benchmarks.together`), and all that the three do for a command
is counted together: what is added, sent, kept, confirmed and, of ACKJOB, collected.  Counted, too, is what stands for
the loop and the network between them: about one call of sixteen.  Time stands still until all is said of a round of
commands, as that takes less than a millisecond where nodes are near, and goes on by one then.

What C functions do inside is not seen, and a cache that is missed costs nothing here: a change that leaves these counts
alone may still be slower.  For that there is `python -m benchmarks`.

The counts are those of the reference build, in which everything of disqued is Python.
"""

import gc
import select
import socket
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count as ticks
from itertools import repeat
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any
from unittest import mock

import attrs
from twisted.internet.defer import Deferred

from benchmarks.profile import JOB, SUBJECTS, Bed, Subject
from benchmarks.raw import words
from benchmarks.together import Together
from disqued.net.cluster import linkinbox, links
from disqued.net.loop import clock
from disqued.net.loop.rounds import Rounds
from disqued.net.loop.transport import EagerServer
from disqued.net.process import daemon
from disqued.persistence.eventlog import log as eventlog
from disqued.testing.arguments import ExactParser
from disqued.testing.clock import WALL_MS


@attrs.frozen
class Way:
    """How commands come, and what becomes of them."""

    chunk: int  #: commands that come at once
    store: str = "none"
    connections: int = 0  #: sockets through which chunks come in rounds; 0 = they are given to the one client
    events: bool = False  #: the event log is on
    nodes: int = 1  #: of which the first is given the commands
    terms: tuple[bytes, ...] = ()  #: further words of each ADDJOB


WAYS = {
    "single": Way(1),
    "pipelined": Way(16),
    "journal": Way(1, store="aof"),
    "sockets": Way(1, connections=16),
    "events": Way(1, events=True),
    "copies": Way(1, connections=16, nodes=3),
}
WARMING = 512  #: commands before those that are counted
COUNTED = 512  #: a multiple of what blocks and tables grow by, so that their growth is spread evenly
STARTED_MS = 1_000  #: where the clocks of nodes that know each other begin
_MS = 1_000_000  #: nanoseconds


@attrs.frozen
class Work:
    """What one command takes, on average."""

    calls: float  #: of functions, those of C included
    instructions: float  #: of bytecode


def compiled_modules() -> list[str]:
    """Modules of disqued that are not Python here: what they do cannot be counted."""
    return sorted(
        name
        for name, module in sys.modules.items()
        if name.partition(".")[0] == "disqued" and not (getattr(module, "__file__", None) or ".py").endswith(".py")
    )


@contextmanager
def even_time() -> Iterator[SimpleNamespace]:
    """Within this, a clock that is read goes on by a millisecond, and nothing takes any time.

    What stands for the functions of `time` are C functions as well; others can be put in their place.
    """
    steady = SimpleNamespace(
        monotonic_ns=ticks(_MS, _MS).__next__,
        time_ns=ticks(WALL_MS * _MS, _MS).__next__,
    )
    with mock.patch.object(clock, "time", steady), ExitStack() as stack:
        for module in (daemon, linkinbox, links):
            stack.enter_context(mock.patch.object(module, "perf_counter", repeat(0.0).__next__))
        yield steady


def stop_time(steady: SimpleNamespace, at_ms: int) -> None:
    """Let clocks stand at a moment: what happens at the same time on several nodes does so."""
    steady.monotonic_ns = repeat(at_ms * _MS).__next__
    steady.time_ns = repeat((WALL_MS + at_ms) * _MS).__next__


def measure(subject: Subject, folder: Path, way: Way, others: int = 0) -> Work:
    """Count what a command takes that comes in one of `WAYS`.

    `others`: jobs that lie in the node meanwhile, each in a queue of its own.
    """
    calls, instructions = (_count(subject, folder, way, others, counter) for counter in (_calls, _instructions))
    return Work(calls, instructions)


Turns = Iterable[Callable[[], object]]  #: each is what it takes to receive some commands and to answer them


def _count(subject: Subject, folder: Path, way: Way, others: int, counter: Callable[[Turns], int]) -> float:
    with even_time() as steady, tempfile.TemporaryDirectory(dir=folder) as place, ExitStack() as stack:
        make = _make_several if way.nodes > 1 else _make_one
        bed, turns_of = make(way, Path(place), steady, stack)
        bed.add_elsewhere(others)
        commands = subject.prepare(bed, WARMING + COUNTED)
        bed.reactor.advance(0)
        turns = turns_of([b"".join(commands[at : at + way.chunk]) for at in range(0, len(commands), way.chunk)])
        for _, turn in zip(range(WARMING // way.chunk // (way.connections or 1)), turns, strict=False):
            turn()
        gc.collect()
        gc.disable()  # nobody's finalizer is counted
        try:
            return counter(turns) / COUNTED
        finally:
            gc.enable()


TurnsOf = Callable[[list[bytes]], Iterator[Callable[[], object]]]  #: makes turns of chunks of commands


def _make_one(way: Way, place: Path, steady: SimpleNamespace, stack: ExitStack) -> tuple[Bed, TurnsOf]:
    """Make a node, and what makes its turns."""
    if way.events:
        aside = Aside()
        stack.enter_context(mock.patch.object(eventlog, "WorkerThread", return_value=aside))
    bed = Bed.make(place, way.store, settings="events all" if way.events else "", addition=words(*JOB, *way.terms))
    stack.callback(bed.daemon.driver.store.close)
    if way.events:
        return bed, partial(_with_events, bed, aside, stack)
    return bed, partial(_through_sockets, bed, way.connections, stack) if way.connections else partial(_given, bed)


def _make_several(way: Way, place: Path, steady: SimpleNamespace, stack: ExitStack) -> tuple[Bed, TurnsOf]:
    """Make nodes that know each other, and what makes the turns in which the first is given commands."""
    stop_time(steady, STARTED_MS)
    together = Together(place, way.nodes, stack, way.terms)
    return together.places[0].bed, partial(_with_copies, together, way.connections, steady)


def _given(bed: Bed, chunks: list[bytes]) -> Iterator[Callable[[], object]]:
    """Chunks are given to the client's protocol; what waits for the journal is answered at the end of the turn."""

    def receive_and_commit(chunk: bytes) -> None:
        receive(chunk)
        reactor.advance(0)

    receive, reactor = bed.client.dataReceived, bed.reactor
    for chunk in chunks:
        yield partial(receive_and_commit if bed.node.state.journaling else receive, chunk)


class Aside:
    """Stands for the thread of the event log: it does its work when it is told to, between two turns."""

    def __init__(self) -> None:
        self._calls: list[tuple[Deferred[Any], Callable[[], Any]]] = []

    def call(self, function: Callable[[], Any]) -> "Deferred[Any]":
        """Put a call aside."""
        answer: Deferred[Any] = Deferred()
        self._calls.append((answer, function))
        return answer

    def work(self) -> None:
        """Do what was put aside, and answer."""
        calls, self._calls = self._calls, []
        for answer, function in calls:
            answer.callback(function())

    def end(self) -> None:
        """There is no thread to wait for."""


def _with_events(bed: Bed, aside: Aside, stack: ExitStack, chunks: list[bytes]) -> Iterator[Callable[[], object]]:
    """Chunks are given to the client's protocol; what of the log's lines is left is handed over at the end."""
    aside.work()  # the folder is ready, and so are the lines of what came before
    event_log: Any = bed.daemon.event_log
    stack.callback(aside.work)
    stack.callback(event_log.stop)
    for chunk in chunks:
        yield partial(bed.client.dataReceived, chunk)
        aside.work()
    yield event_log.take
    aside.work()
    facts = event_log.facts()
    assert facts["events_written"] >= len(chunks)
    assert not facts["events_lost"]


def _with_copies(
    together: Together, connections: int, steady: SimpleNamespace, chunks: list[bytes]
) -> Iterator[Callable[[], object]]:
    """Chunks come at the same time from several clients; a turn is over when no node has anything more to say."""
    first = together.places[0]
    clients: list[Any] = [first.client() for _ in range(connections)]
    for number, at in enumerate(range(0, len(chunks), connections)):
        stop_time(steady, STARTED_MS + number)
        for client, chunk in zip(clients, chunks[at : at + connections], strict=True):
            client.socket.arrive(chunk)
        yield partial(together.reactor.advance, 0)
        assert not any(client.protocol.session.is_blocked for client in clients)
        assert len({len(place.bed.node.state.jobs) for place in together.places}) == 1, "not every node has each job"


def _through_sockets(
    bed: Bed, connections: int, stack: ExitStack, chunks: list[bytes]
) -> Iterator[Callable[[], object]]:
    """Chunks come through sockets, from each of them one at a time, and are received in rounds."""
    peers, selectables = [], {}
    port: Any = SimpleNamespace(_realPortNumber=0)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        for number in range(connections):
            peers.append(stack.enter_context(socket.create_connection(listening.getsockname())))
            ours, address = listening.accept()
            stack.callback(ours.close)
            ours.setblocking(False)
            protocol: Any = bed.daemon.clients.buildProtocol(None)
            transport = EagerServer(ours, protocol, address, port, number, bed.reactor)
            protocol.makeConnection(transport)
            selectables[ours.fileno()] = transport
    rounds = Rounds(selectables, _unexpected, _unexpected, repeat(0.0).__next__)
    rounds.keep_back_with(bed.daemon.turn)
    events = [(descriptor, select.EPOLLIN) for descriptor in selectables]
    for at in range(0, len(chunks), connections):
        for peer, descriptor, chunk in zip(peers, selectables, chunks[at : at + connections], strict=True):
            peer.sendall(chunk)
            select.select([descriptor], [], [])
        yield partial(rounds.run, events)
        for peer in peers:
            assert peer.recv(1 << 16)


def _unexpected(*what: Any) -> None:
    raise AssertionError(f"a connection was to be read from, and not this: {what}")


def _calls(turns: Turns) -> int:
    """Count the functions that are called."""
    found = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal found
        if event in ("call", "c_call"):
            found += 1

    before = sys.getprofile()
    for turn in turns:
        sys.setprofile(note)
        try:
            turn()
        finally:
            sys.setprofile(before)
        found -= 1  # the call that ended it
    return found


def _instructions(turns: Turns) -> int:
    """Count the instructions of every function that is called."""
    found = 0

    def note(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal found
        if event == "opcode":
            found += 1
        elif event == "call":
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        return note

    before = sys.gettrace()
    # CPython 3.12 looks for instructions only if a frame has asked for them before the trace begins.
    sys._getframe().f_trace_opcodes = True
    for turn in turns:
        sys.settrace(note)
        try:
            turn()
        finally:
            sys.settrace(before)
    return found


def main() -> int:
    """Print the counts as rows of the table."""
    ExactParser(prog="python -m benchmarks.work", description="Work a command, counted.").parse_args()
    if compiled := compiled_modules():
        print(f"these modules are compiled, and cannot be counted: {', '.join(compiled)}", file=sys.stderr)
        return 2
    print(f"    {sys.version_info[:2]}: {{")
    with tempfile.TemporaryDirectory(prefix="disqued-work-") as folder:
        for name, subject in SUBJECTS.items():
            for word, way in WAYS.items():
                work = measure(subject, Path(folder), way)
                print(f'        ("{name}", "{word}"): Work({work.calls:.2f}, {work.instructions:.1f}),')
    print("    },")
    return 0


if __name__ == "__main__":
    sys.exit(main())
