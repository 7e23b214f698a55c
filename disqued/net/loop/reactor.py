"""The event loop: Twisted's epoll reactor on the monotonic clock, in rounds, without a log context around each event.

Its turns are our own (`turns`), and what the poller tells of is carried out in rounds (`rounds`).

Twisted enters a logging context for each event, so that text logs can name the connection.  That costs 5 to 6
microseconds, as much as an ADDJOB's way through the core; our logs name the connection where that helps.

This is the reactor of `disqued` and `twistd disqued` where the system has epoll, unless --reactor asks for another.
Times are seconds.
"""

import time
from contextlib import suppress
from select import EPOLLIN, EPOLLOUT, EPOLLRDHUP
from typing import Any

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.error import ReactorNotRunning
from twisted.python import log

from disqued.net.loop.rounds import Rounds
from disqued.net.loop.turns import LONGEST_S, Turns


class EpollReactor(EPollReactor):
    """The epoll reactor of the daemon."""

    #: Delayed calls go by this clock.
    seconds = staticmethod(time.monotonic)

    def __init__(self) -> None:
        #: Descriptors that nothing is read from and that are polled all the same, for the end of the other side.
        self._watched: set[int] = set()
        super().__init__()
        #: What is polled for is carried out in these.
        self.rounds = Rounds(self._selectables, self._doReadOrWrite, self._disconnectSelectable, self.seconds)
        self.turns = Turns(self, self.rounds, poll=self._poller.poll, seconds=self.seconds)

    # That the other end has closed its side is reported with what it sent last.

    def _add(  # noqa: PLR0917 - Twisted's
        self, xer: Any, primary: Any, other: Any, selectables: Any, event: int, antievent: int
    ) -> None:  # fmt: skip
        descriptor = xer.fileno()
        if descriptor not in self._watched or descriptor in primary:
            super()._add(xer, primary, other, selectables, _with_end(event), _with_end(antievent))
            return
        if event == EPOLLIN:
            self._watched.discard(descriptor)
        self._poller.modify(descriptor, event | EPOLLRDHUP | (antievent if descriptor in other else 0))
        primary.add(descriptor)

    def _remove(  # noqa: PLR0917 - Twisted's
        self, xer: Any, primary: Any, other: Any, selectables: Any, event: int, antievent: int
    ) -> None:  # fmt: skip
        descriptor = xer.fileno()
        if descriptor in self._watched and descriptor in primary:
            self._poller.modify(descriptor, EPOLLRDHUP)
            primary.remove(descriptor)
        else:
            super()._remove(xer, primary, other, selectables, event, _with_end(antievent))

    def watch_end(self, transport: Any) -> None:
        """Poll a transport that is not read from for the end of the other side, until that is there or it is read."""
        descriptor = transport.fileno()
        if descriptor < 0 or descriptor in self._reads or descriptor in self._watched:
            return
        if descriptor in self._writes:
            self._poller.modify(descriptor, EPOLLOUT | EPOLLRDHUP)
        else:
            self._poller.register(descriptor, EPOLLRDHUP)
            self._selectables[descriptor] = transport
        self._watched.add(descriptor)

    def unwatch_end(self, transport: Any) -> None:
        """Do so no more."""
        descriptor = transport.fileno()
        if descriptor in self._watched:
            self._watched.discard(descriptor)
            if descriptor in self._writes:
                self._poller.modify(descriptor, EPOLLOUT)
            else:
                del self._selectables[descriptor]
                self._poller.unregister(descriptor)

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


def _with_end(event: int) -> int:
    """Add the end of the other side to an event, if that is one of reading."""
    return event | EPOLLRDHUP if event & EPOLLIN else event
