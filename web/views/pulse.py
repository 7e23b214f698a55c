"""One timer: once a second it lets the history take a sample, and sees how late it is, which is the lag of the loop.

    busy --a minute in which nothing happened and nobody looked--> resting, a beat every ten seconds
    resting --something happened since the last beat, or somebody looks--> busy

Seconds are those of the reactor's clock.
"""

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final

from twisted.internet.defer import CancelledError, Deferred, ensureDeferred
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger

BUSY_S: Final = 1.0
RESTING_S: Final = 10.0
RESTS_AFTER_S: Final = 60.0
LAGS_KEPT: Final = 60

log = Logger()


class Pulse:
    """The timer."""

    def __init__(self, reactor: Any, beat: Callable[[int], Awaitable[bool]]) -> None:
        """`beat` is given the seconds since the start, and says whether anything has happened since the one before."""
        self.lags: deque[float] = deque(maxlen=LAGS_KEPT)  #: how late the last beats were, seconds, newest last
        self.started_at = float(reactor.seconds())
        self._reactor = reactor
        self._beat = beat
        self._call: IDelayedCall | None = None
        self._due_at = self.started_at
        self._stirred_at = self.started_at  #: when something happened, or somebody looked, last
        self._under_way: Deferred[Any] | None = None

    @property
    def seconds(self) -> int:
        """Whole seconds since the start, as beats are numbered."""
        return int(self._reactor.seconds() - self.started_at + 0.5)

    @property
    def is_resting(self) -> bool:
        """True while nothing happens."""
        return bool(self._reactor.seconds() - self._stirred_at >= RESTS_AFTER_S)

    def start(self) -> None:
        if self._call is None:
            self._plan(self._reactor.seconds() + BUSY_S)

    def stop(self) -> None:
        if self._call is not None:
            self._call.cancel()
            self._call = None
        if self._under_way is not None:
            self._under_way.cancel()

    def look(self) -> None:
        """Somebody looks: beat each second for a while."""
        was_resting, self._stirred_at = self.is_resting, self._reactor.seconds()
        if was_resting and self._call is not None:
            self._call.cancel()
            self._plan(self._reactor.seconds() + BUSY_S)

    def _plan(self, at: float) -> None:
        self._due_at = at
        self._call = self._reactor.callLater(max(0.0, at - self._reactor.seconds()), self._strike)

    def _strike(self) -> None:
        now = self._reactor.seconds()
        self.lags.append(max(0.0, now - self._due_at))
        # Beats keep their distance from the start, so that each has a number of its own.
        period = RESTING_S if self.is_resting else BUSY_S
        missed = int((now - self._due_at) / period)
        self._plan(self._due_at + (missed + 1) * period)
        if self._under_way is None:
            self._under_way = ensureDeferred(self._carry_out())
            if self._under_way.called:
                self._under_way = None

    async def _carry_out(self) -> None:
        try:
            if await self._beat(self.seconds):
                self._stirred_at = self._reactor.seconds()
        except CancelledError:
            pass  # the daemon ends
        except Exception:  # a bug of ours: the next beat may do better
            log.failure("Internal error while taking a sample")
        finally:
            self._under_way = None
