"""The event loop: Twisted's epoll reactor on the monotonic clock, in rounds, without a log context around each event.

What the poller tells of is carried out in rounds (`net/rounds.py`).

Twisted enters a logging context for each event, so that text logs can name the connection.  That costs 5 to 6
microseconds, as much as an ADDJOB's way through the core; our logs name the connection where that helps.

This is the reactor of `disqued` and `twistd disqued` where the system has epoll, unless --reactor asks for another.
Times are seconds.
"""

import time
from contextlib import suppress

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.error import ReactorNotRunning

from disqued.net.rounds import Rounds


class EpollReactor(EPollReactor):
    """The epoll reactor of the daemon."""

    #: Delayed calls go by this clock.
    seconds = staticmethod(time.monotonic)

    def __init__(self) -> None:
        super().__init__()
        #: What is polled for is carried out in these.
        self.rounds = Rounds(self._selectables, self._doReadOrWrite, self._disconnectSelectable, self.seconds)

    def stop(self) -> None:
        """End the loop; a second signal, while that is under way, changes nothing."""
        with suppress(ReactorNotRunning):
            super().stop()

    def doPoll(self, timeout: float | None) -> None:
        """Wait for events and carry them out; a signal ends the wait early."""
        try:
            events = self._poller.poll(-1 if timeout is None else timeout, len(self._selectables))
        except InterruptedError:
            return
        self.rounds.run(events)

    doIteration = doPoll
