"""The event loop: Twisted's epoll reactor on the monotonic clock, without a log context around each event.

Twisted enters a logging context for each event, so that text logs can name the connection.  That costs 5 to 6
microseconds, as much as an ADDJOB's way through the core; our logs name the connection where that helps.

This is the reactor of `disqued` and `twistd disqued` where the system has epoll, unless --reactor asks for another.
"""

import time
from contextlib import suppress

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.error import ReactorNotRunning


class EpollReactor(EPollReactor):
    """The epoll reactor of the daemon."""

    #: Delayed calls go by this clock.
    seconds = staticmethod(time.monotonic)

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
        selectables, carry_out = self._selectables, self._doReadOrWrite
        for descriptor, event in events:
            # An event before this one may have closed the descriptor.
            selectable = selectables.get(descriptor)
            if selectable is not None:
                carry_out(selectable, descriptor, event)

    doIteration = doPoll
