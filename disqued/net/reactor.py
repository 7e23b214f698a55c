"""The event loop: Twisted's epoll reactor on the monotonic clock, in rounds, without a log context around each event.

    poll --> receive from all that sent something --> run what they sent, one after the other --> send the replies
             system calls                             no system calls                            system calls

A processor that returns from a system call has forgotten the code that runs next: its caches and what it knew of
branches are the kernel's.  Received, run and answered one by one, requests meet it so each time; in a round they share
it, and fifty clients that wait for each reply before they ask again are served half as often again.  A round has
bounds in connections, and so in bytes, and in time: none of its replies waits for longer than that and the commands of
one connection.  What is alone in its round is answered at once.

Twisted enters a logging context for each event, so that text logs can name the connection.  That costs 5 to 6
microseconds, as much as an ADDJOB's way through the core; our logs name the connection where that helps.

This is the reactor of `disqued` and `twistd disqued` where the system has epoll, unless --reactor asks for another.
Times are seconds.
"""

import time
from contextlib import suppress
from select import EPOLLIN
from typing import Any, Protocol

from twisted.internet.epollreactor import EPollReactor
from twisted.internet.error import ReactorNotRunning
from twisted.internet.main import CONNECTION_LOST
from twisted.python import log

ROUND_CONNECTIONS = 64  #: connections that share a round at most
ROUND_S = 0.002  #: replies are sent when a round has taken so long, though there is more to run


class Gatherer(Protocol):
    """Who keeps replies back while a round runs, and sends them when it is over."""

    def begin_round(self) -> None:
        """Keep replies back from now on."""

    def end_round(self) -> None:
        """Send those that were kept back, and every other at once from now on."""


class EpollReactor(EPollReactor):
    """The epoll reactor of the daemon."""

    #: Delayed calls go by this clock.
    seconds = staticmethod(time.monotonic)
    #: Is told of rounds of more than one connection; None = every reply is sent at once.
    gatherer: Gatherer | None = None

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
        received: list[tuple[Any, bytes]] = []
        for descriptor, event in events:
            # An event before this one may have closed the descriptor.
            selectable = selectables.get(descriptor)
            if selectable is None:
                continue
            receive = getattr(selectable, "receive", None)
            if receive is None or event != EPOLLIN:
                if received:
                    self._run(received)
                    received = []
                carry_out(selectable, descriptor, event)
                continue
            try:
                data = receive()
            except OSError:
                self._disconnectSelectable(selectable, CONNECTION_LOST, isRead=True)
                continue
            if data is not None:
                received.append((selectable, data))
                if len(received) == ROUND_CONNECTIONS:
                    self._run(received)
                    received = []
        if received:
            self._run(received)

    doIteration = doPoll

    def _run(self, received: list[tuple[Any, bytes]]) -> None:
        """Give protocols what was received for them, and let the replies leave together."""
        gatherer = self.gatherer
        if gatherer is None or len(received) == 1:
            for selectable, data in received:
                self._deliver(selectable, data)
            return
        gatherer.begin_round()
        ends = self.seconds() + ROUND_S
        for selectable, data in received:
            self._deliver(selectable, data)
            if self.seconds() > ends:
                gatherer.end_round()
                gatherer.begin_round()
                ends = self.seconds() + ROUND_S
        gatherer.end_round()

    def _deliver(self, selectable: Any, data: bytes) -> None:
        try:
            why = selectable.deliver(data)
        except BaseException as error:  # a bug of the protocol: its connection ends, as Twisted has it
            why = error
            log.err()
        if why:
            self._disconnectSelectable(selectable, why, isRead=True)
