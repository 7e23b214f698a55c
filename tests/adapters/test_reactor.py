"""The daemon's event loop, run by itself in a process of its own."""

import subprocess
import sys

PROGRAM = """
import sys
from twisted.internet.main import installReactor
from twisted.logger import globalLogBeginner
from disqued.net.reactor import EpollReactor

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
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["2", "2", "EpollReactor"], done


SIGNALLED = """
import os, signal
from twisted.internet.main import installReactor
from twisted.logger import globalLogBeginner
from disqued.net.reactor import EpollReactor

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
    done = subprocess.run([sys.executable, "-c", SIGNALLED], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.split() == ["0", "True"], done
