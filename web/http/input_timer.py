"""The time that a client has to send its request, and to read a refusal.  Times are seconds, sizes bytes."""

from collections.abc import Callable
from typing import Any, Final

from disqued.web.http.problems import Problem

HEADER_S: Final = 20.0
PROGRESS_S: Final = 10.0
PROGRESS_BYTES: Final = 10 << 10  #: of a body, in each PROGRESS_S
LINGER_S: Final = 2.0  #: that what is still coming is thrown away after a refusal, so that the client gets to read it

Refuse = Callable[[Problem], None]


class InputTimer:
    """The one timer of what a connection still has to send."""

    def __init__(self, reactor: Any) -> None:
        """`reactor` has `callLater`."""
        self._reactor = reactor
        self._call: Any = None
        self._progress = 0  #: of the body, since the timer was set
        self.in_body = False

    def note(self, size: int) -> None:
        if self.in_body:
            self._progress += size

    def watch_head(self, refuse: Refuse) -> None:
        """Limit the time that the rest of a head has to come, if nothing is limited yet."""
        if self._call is None:
            self._call = self._reactor.callLater(HEADER_S, self._too_slow, refuse)

    def watch_body(self, refuse: Refuse) -> None:
        """Refuse a body that hardly grows."""
        self.in_body, self._progress = True, 0
        self._call = self._reactor.callLater(PROGRESS_S, self._look_at_body, refuse)

    def linger(self, cut: Callable[[], object]) -> None:
        self._call = self._reactor.callLater(LINGER_S, self._linger_ends, cut)

    def stop(self) -> None:
        self.in_body = False
        if self._call is not None:
            self._call.cancel()
            self._call = None

    def _too_slow(self, refuse: Refuse) -> None:
        self._call = None
        refuse(Problem(408, f"the headers did not come within {HEADER_S:.0f} s"))

    def _look_at_body(self, refuse: Refuse) -> None:
        self._call = None
        if self._progress < PROGRESS_BYTES:
            refuse(Problem(408, f"the body comes slower than {PROGRESS_BYTES} bytes in {PROGRESS_S:.0f} s"))
        else:
            self.watch_body(refuse)

    def _linger_ends(self, cut: Callable[[], object]) -> None:
        self._call = None
        cut()
