"""The daemon's event loop, run by itself in a process of its own."""

import gc
import itertools
import select
import socket
import struct
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.error import ConnectionLost
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import Clock
from twisted.python import log
from twisted.python.failure import Failure

from disqued.net.loop.reactor import EpollReactor
from disqued.net.loop.rounds import BULK_SIZE, READ_SIZE, ROUND_CONNECTIONS
from disqued.net.loop.transport import EagerPort
from disqued.net.loop.turns import soon_of
from tests.limits import LIMIT

PROGRAM = """
import sys
from twisted.internet.main import installReactor
from twisted.logger import globalLogBeginner
from disqued.net.loop.reactor import EpollReactor

installReactor(EpollReactor())
from twisted.internet import reactor
from twisted.internet.endpoints import TCP4ClientEndpoint, connectProtocol
from twisted.internet.protocol import Factory, Protocol

failures = []
note = lambda event: failures.append(event) if event.get("isError") else None
globalLogBeginner.beginLoggingTo([note], redirectStandardIO=False)
ended = []


class Fails(Protocol):
    def dataReceived(self, data):
        raise ZeroDivisionError("planted")


class Client(Protocol):
    def connectionMade(self):
        self.transport.write(b"x")

    def connectionLost(self, reason=None):
        ended.append(self)
        if len(ended) == 2:
            reactor.callLater(0.01, reactor.stop)


port = reactor.listenTCP(0, Factory.forProtocol(Fails), interface="127.0.0.1")
for _ in range(2):
    connectProtocol(TCP4ClientEndpoint(reactor, "127.0.0.1", port.getHost().port), Client())
reactor.callLater(60, sys.exit, "too late")
reactor.run()
print(len(ended), len(failures), type(reactor).__name__)
"""


def test_a_connection_whose_protocol_fails_is_closed_and_the_loop_goes_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=2 * LIMIT, check=False
    )
    assert done.stdout.split() == ["2", "2", "EpollReactor"], done


SIGNALLED = """
import os, signal
from twisted.internet.main import installReactor
from twisted.logger import globalLogBeginner
from disqued.net.loop.reactor import EpollReactor

installReactor(EpollReactor())
from twisted.internet import reactor
from twisted.internet.defer import Deferred

failures = []
note = lambda event: failures.append(event) if "log_failure" in event else None
globalLogBeginner.beginLoggingTo([note], redirectStandardIO=False)
put_away = Deferred()


def shut_down():
    os.kill(os.getpid(), signal.SIGTERM)
    reactor.callLater(0, reactor.callLater, 0, put_away.callback, None)
    return put_away


reactor.addSystemEventTrigger("before", "shutdown", shut_down)
reactor.callWhenRunning(os.kill, os.getpid(), signal.SIGTERM)
reactor.run()
print(len(failures), put_away.called)
"""


def test_a_second_signal_while_everything_is_put_away_is_no_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED], capture_output=True, text=True, timeout=2 * LIMIT, check=False
    )
    assert done.stdout.split() == ["0", "True"], done


# Turns.


@pytest.fixture
def loop() -> Iterator[EpollReactor]:
    made = EpollReactor()
    yield made
    made._poller.close()


def test_a_loop_that_is_turned_by_hand_makes_what_was_put_off_to_the_end_of_a_turn(loop: EpollReactor) -> None:
    made: list[str] = []
    loop.turns.soon(lambda: made.append("call"))
    loop.doPoll(0)
    assert made == ["call"]


def run(loop: EpollReactor, *calls: Callable[[], object]) -> None:
    """Let the loop run, with these calls first, until it is stopped."""
    for call in calls:
        loop.callWhenRunning(call)
    loop.run(installSignalHandlers=False)


def test_twisted_need_not_be_asked_what_is_due(loop: EpollReactor) -> None:
    assert loop.turns.sees, "Twisted calls what its loop reads by other names: net/loop/turns.py"


@pytest.mark.parametrize("sees", [True, False])
def test_what_is_due_is_done_in_its_order(loop: EpollReactor, sees: bool) -> None:
    loop.turns.sees = sees
    told: list[str] = []

    def tell(what: str) -> None:
        told.append(what)
        if {"later", "sooner", "thread"} <= set(told):
            loop.stop()

    def begin() -> None:
        loop.callLater(0.02, tell, "later")
        sooner = loop.callLater(3_600, tell, "sooner")
        loop.callLater(60, loop.stop)
        loop.callLater(0, tell, "timed")
        loop.turns.soon(lambda: tell("soon"))
        loop.callLater(0, loop.callInThread, loop.callFromThread, tell, "thread")
        loop.callLater(0.001, sooner.reset, 0)
        loop.callLater(0.001, loop.callLater(0.01, tell, "never").cancel)

    run(loop, begin)
    assert told[:2] == ["soon", "timed"]
    assert sorted(told[2:]) == ["later", "sooner", "thread"]


def test_what_is_asked_for_at_the_end_of_a_turn_is_done_in_the_next_and_none_is_waited_for(loop: EpollReactor) -> None:
    told: list[int] = []
    polled: list[float] = []
    poll = loop.turns._poll

    def noted(longest: float, most: int) -> list[tuple[int, int]]:
        polled.append(longest)
        return poll(longest, most)

    def again() -> None:
        told.append(len(polled))
        if len(told) == 5:
            loop.stop()
        else:
            loop.turns.soon(again)

    def begin() -> None:
        loop.turns._poll = noted
        loop.turns.soon(again)

    run(loop, begin)
    assert told == [0, 1, 2, 3, 4]
    assert polled[:5] == [0.0] * 5


def test_a_call_at_the_end_of_a_turn_that_fails_keeps_no_other_from_being_made(loop: EpollReactor) -> None:
    errors: list[Any] = []
    log.addObserver(errors.append)
    try:
        run(loop, lambda: [loop.turns.soon(call) for call in (lambda: 1 // 0, loop.stop)])
    finally:
        log.removeObserver(errors.append)
    assert [event["failure"].type for event in errors if event["isError"]] == [ZeroDivisionError]


def test_a_loop_without_turns_makes_a_timed_call() -> None:
    clock, told = Clock(), []
    soon_of(clock)(lambda: told.append("soon"))
    assert told == []
    clock.advance(0)
    assert told == ["soon"]


# Rounds.


class Records(Protocol):
    """Notes what it is given, and answers when it is told to."""

    def __init__(self, told: list[tuple[str, bytes]], act: Callable[["Records", bytes], None]) -> None:
        self.told = told
        self.act = act

    def dataReceived(self, data: bytes) -> None:
        self.told.append(("run", data))
        self.act(self, data)

    def connectionLost(self, reason: object = None) -> None:
        self.told.append(("lost", b""))


class Bed:
    """A reactor whose turns are made by hand, with a port and blocking clients."""

    def __init__(self, act: Callable[[Records, bytes], None]) -> None:
        self.told: list[tuple[str, bytes]] = []
        self.made: list[Records] = []
        self.reactor = EpollReactor()
        self.reactor.rounds.keep_back_with(self)
        self._factory = Factory()
        self._factory.protocol = lambda: self._make(act)
        self._port = EagerPort(0, self._factory, 200, "127.0.0.1", self.reactor)
        self._port.startListening()
        self.clients: list[socket.socket] = []

    def _make(self, act: Callable[[Records, bytes], None]) -> Records:
        self.made.append(Records(self.told, act))
        return self.made[-1]

    def begin_round(self) -> None:
        self.told.append(("begin", b""))

    def end_round(self) -> None:
        self.told.append(("end", b""))

    def connect(self, count: int) -> None:
        """Let clients connect."""
        address = ("127.0.0.1", self._port.getHost().port)
        for _ in range(count):
            self.clients.append(socket.create_connection(address))
            self.clients[-1].settimeout(LIMIT)
        while len(self.made) < count:
            self.reactor.doPoll(1)

    def say(self, *texts: bytes) -> None:
        """Let the first clients send something each, and one turn pass once all of it is there."""
        for client, text in zip(self.clients, texts, strict=False):
            client.sendall(text)
        self.turn(len(texts))

    def turn(self, count: int) -> None:
        """Let one turn pass once so many connections have something to read."""
        sockets = [records.transport.socket for records in self.made]
        while len(select.select(sockets, [], [], 60)[0]) < count:
            pass
        self.reactor.doPoll(1)

    def end(self) -> None:
        """Close everything that was opened."""
        for client in self.clients:
            client.close()
        self.reactor.runUntilCurrent()  # those that were aborted end later than in their turn
        for selectable in [*self.reactor.getReaders(), *self.reactor.getWriters()]:
            selectable.connectionLost(Failure(ConnectionLost()))
        self.reactor._poller.close()


@pytest.fixture
def bed() -> Iterator[Callable[[Callable[[Records, bytes], None]], Bed]]:
    made: list[Bed] = []

    def make(act: Callable[[Records, bytes], None] = lambda records, data: None) -> Bed:
        made.append(Bed(act))
        return made[-1]

    yield make
    for each in made:
        each.end()


Make = Callable[..., Bed]


def is_of(records: Records, client: socket.socket) -> bool:
    """Tell whether these are the two ends of one connection."""
    assert records.transport is not None
    return bool(records.transport.getPeer().port == client.getsockname()[1])


Recv = Callable[[int], bytes]


def test_all_that_is_there_is_received_before_any_of_it_is_run_and_answered_when_all_has_run(bed: Make) -> None:
    here = bed()
    here.connect(5)
    received: list[int] = []

    def noting(recv: Recv) -> Recv:
        return lambda size: (received.append(len(here.told)), recv(size))[1]

    for records in here.made:
        records.transport.handle.recv = noting(records.transport.handle.recv)
    here.say(b"0", b"1", b"2", b"3", b"4")
    assert received == [0] * 5
    assert here.told[0] == ("begin", b"")
    assert here.told[-1] == ("end", b"")
    assert sorted(here.told[1:-1]) == [("run", b"%d" % number) for number in range(5)]


def test_who_sends_much_is_read_in_larger_pieces_until_one_is_small(bed: Make) -> None:
    here = bed()
    here.connect(2)
    asked: list[int] = []
    pieces = [READ_SIZE, READ_SIZE + 1, READ_SIZE - 1, 5]

    def recv(size: int) -> bytes:
        asked.append(size)
        return b"x" * pieces[len(asked) - 1]  # the socket is not read, so that there is something in each turn

    here.made[0].transport.handle.recv = recv
    here.clients[0 if is_of(here.made[0], here.clients[0]) else 1].sendall(b"x")
    for _ in pieces:
        here.turn(1)
    assert asked == [READ_SIZE, BULK_SIZE, BULK_SIZE, READ_SIZE]
    assert [len(data) for _, data in here.told] == pieces


def test_who_is_alone_waits_for_no_round(bed: Make) -> None:
    here = bed()
    here.connect(2)
    here.say(b"x")
    assert here.told == [("run", b"x")]


def test_a_round_has_bounds_in_connections_and_in_time(bed: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    count = ROUND_CONNECTIONS + 10
    here = bed()
    here.connect(count)
    monkeypatch.setattr(here.reactor.rounds, "_seconds", lambda: 0.0)  # however long it takes on this machine
    here.say(*[b"x"] * count)
    assert here.told.index(("end", b"")) == ROUND_CONNECTIONS + 1
    assert here.told[ROUND_CONNECTIONS + 2] == ("begin", b"")
    here.told.clear()
    now = itertools.count()
    monkeypatch.setattr(here.reactor.rounds, "_seconds", lambda: next(now) * 0.0005)
    here.say(*[b"y"] * 22)
    rounds = "".join(what[0] for what, _ in here.told).strip("e").split("eb")
    assert [part.strip("b") for part in rounds] == ["rrrrr"] * 4 + ["rr"]


def test_who_is_ended_by_another_in_the_same_round_runs_nothing_more(bed: Make) -> None:
    def end_the_others(records: Records, data: bytes) -> None:
        for other in here.made:
            if other is not records:
                other.transport.abortConnection()

    here = bed(end_the_others)
    here.connect(3)
    here.say(b"x", b"x", b"x")
    assert here.told == [("begin", b""), ("run", b"x"), ("end", b"")]


def test_a_client_that_leaves_in_a_round_is_gone_and_the_others_are_run(bed: Make) -> None:
    here = bed()
    here.connect(3)
    here.clients[2].close()
    here.say(b"0", b"1")
    if ("lost", b"") not in here.told:
        here.turn(1)
    assert ("lost", b"") in here.told
    assert {data for what, data in here.told if what == "run"} == {b"0", b"1"}


def test_a_connection_that_is_lost_waits_for_no_collector(bed: Make) -> None:
    here = bed()
    here.connect(1)
    transport = weakref.ref(here.made[0].transport)
    gc.disable()
    try:
        here.clients[0].close()
        here.turn(1)
        assert ("lost", b"") in here.told
        here.made.clear()
        assert transport() is None
    finally:
        gc.enable()


def test_a_connection_that_is_broken_is_lost_and_the_others_are_run(bed: Make) -> None:
    here = bed()
    here.connect(3)
    # Closed so, the other end is reset instead of closed.
    here.clients[2].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    here.clients[2].close()
    here.say(b"0", b"1")
    assert ("lost", b"") in here.told
    assert {data for what, data in here.told if what == "run"} == {b"0", b"1"}


def test_a_connection_that_cannot_be_read_is_lost_and_the_others_are_run(bed: Make) -> None:
    here = bed()
    here.connect(3)

    def refuse(size: int) -> bytes:
        raise TimeoutError

    here.made[1].transport.handle.recv = refuse
    here.say(b"0", b"1", b"2")
    assert [what for what, _ in here.told].count("lost") == 1
    assert [what for what, _ in here.told].count("run") == 2


def test_a_protocol_that_fails_in_a_round_loses_its_connection_alone(bed: Make) -> None:
    def fail(records: Records, data: bytes) -> None:
        if data == b"1":
            raise ZeroDivisionError("planted")

    here = bed(fail)
    here.connect(3)
    errors: list[Any] = []
    log.addObserver(errors.append)
    try:
        here.say(b"0", b"1", b"2")
    finally:
        log.removeObserver(errors.append)
    assert [event["failure"].type for event in errors if event["isError"]] == [ZeroDivisionError]
    assert [what for what, _ in here.told].count("lost") == 1
    assert [what for what, _ in here.told].count("run") == 3
    assert here.told[-1] == ("end", b"")


def test_a_protocol_that_fails_when_it_is_told_of_the_end_keeps_nobody_from_their_turn(bed: Make) -> None:
    here = bed()
    here.connect(3)

    def fail(reason: object = None) -> None:
        raise ZeroDivisionError("planted")

    for records in here.made:
        if records.transport.getPeer().port == here.clients[0].getsockname()[1]:
            records.connectionLost = fail  # type: ignore[method-assign]
    here.clients[0].shutdown(socket.SHUT_WR)
    here.clients[1].sendall(b"1")
    here.clients[2].sendall(b"2")
    errors: list[Any] = []
    log.addObserver(errors.append)
    try:
        here.turn(3)
    finally:
        log.removeObserver(errors.append)
    assert [event["failure"].type for event in errors if event["isError"]] == [ZeroDivisionError]
    # What is logged of it takes its time, and so the round may be over, and another one begun.
    assert sorted(entry for entry in here.told if entry[0] == "run") == [("run", b"1"), ("run", b"2")]
    assert (here.told[0], here.told[-1]) == (("begin", b""), ("end", b""))


STARTED = """
import sys
from disqued.tap import Options, makeService

options = Options()
options.parseOptions(["--dir", sys.argv[1], "--port", "0", "--unixsocket", sys.argv[1] + "/s", "--http-port", "0"])
makeService(options)
from twisted.internet import reactor

print(type(reactor).__name__, type(reactor.rounds._gatherer).__name__)
"""


def test_the_replies_of_a_daemon_are_kept_back_by_its_turn(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", STARTED, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=2 * LIMIT, check=False)
    assert done.stdout.split() == ["EpollReactor", "Turn"], done


def test_tests_in_this_process_have_the_loop_of_the_daemon() -> None:
    from twisted.internet import reactor

    assert isinstance(reactor, EpollReactor)
