"""The event loop: Twisted's epoll reactor on the monotonic clock, in rounds, without a log context around each event.

Its turns are our own (`net/turns.py`), and what the poller tells of is carried out in rounds (`net/rounds.py`).

Twisted enters a logging context for each event, so that text logs can name the connection.  That costs 5 to 6
microseconds, as much as an ADDJOB's way through the core; our logs name the connection where that helps.

This is the reactor of `disqued` and `twistd disqued` where the system has epoll, unless --reactor asks for another.
Times are seconds.
"""

import time
from contextlib import suppress

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.error import ReactorNotRunning
from twisted.python import log

from disqued.net.rounds import Rounds
from disqued.net.turns import LONGEST_S, Turns


class EpollReactor(EPollReactor):
    """The epoll reactor of the daemon."""

    #: Delayed calls go by this clock.
    seconds = staticmethod(time.monotonic)

    def __init__(self) -> None:
        super().__init__()
        #: What is polled for is carried out in these.
        self.rounds = Rounds(self._selectables, self._doReadOrWrite, self._disconnectSelectable, self.seconds)
        self.turns = Turns(self, self.rounds, poll=self._poller.poll, seconds=self.seconds)

    def stop(self) -> None:
        """End the loop; a second signal, while that is under way, changes nothing."""
        with suppress(ReactorNotRunning):
            super().stop()

    def mainLoop(self) -> None:
        """Turn until the loop has ended; whatever goes wrong is told, and the loop goes on."""
        while self._started:
            try:
                self.turns.run()
            except BaseException:  # as Twisted has it
                log.err()

    def doPoll(self, timeout: float | None) -> None:
        """Wait for events and carry them out, for who turns the loop by hand; first what the last turn has left."""
        self.turns.make_calls()
        self.turns.turn(LONGEST_S if timeout is None else timeout)

    doIteration = doPoll
