"""SIGTERM and SIGINT: the first ends a node as Twisted ends a process, and the next ones hurry that.

    running  --SIGTERM--> the stop begins --SIGTERM--> hurry: what may take long in it is left out
             --SHUTDOWN-> the stop begins --SIGTERM--> hurry

So it is with the verbs that have a loop (`tools.running`), whose hurry is to leave their work where it is.

A signal that is ignored, as SIGINT is in what a shell has put into the background, stays so.
Source: signal(7); Twisted, which takes the second one for a bug of the program.
"""

import signal
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any, Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

Handler = Callable[[int, FrameType | None], Any]


class StopSignals:
    """What becomes of the signals that end a process."""

    def __init__(self, reactor: Any, hurry: Callable[[], None]) -> None:
        """`hurry` is called in the loop, for each signal that comes while it stops."""
        self._reactor = reactor
        self._hurry = hurry
        self._is_stopping = False

    def follow(self) -> None:
        """Begin once the loop runs, which sets its own handlers first."""
        self._reactor.callWhenRunning(self._install)

    def stopping(self) -> None:
        """Note that the stop has begun, whoever asked for it."""
        self._is_stopping = True

    def _install(self) -> None:
        for number in SIGNALS:
            usual = signal.getsignal(number)
            if callable(usual):
                signal.signal(number, partial(self._heard, usual))

    def _heard(self, usual: Handler, number: int, frame: FrameType | None) -> None:
        if self._is_stopping:
            self._reactor.callFromThread(self._hurry)
        else:
            self._is_stopping = True
            usual(number, frame)
