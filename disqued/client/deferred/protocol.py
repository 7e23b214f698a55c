"""One connection of the client for Twisted: txredisapi's protocol, whose values stay bytes.

txredisapi installs the default reactor when it is imported, so this module is only loaded once a client has one.
Spans are seconds.
"""

from collections.abc import Callable
from typing import Any, cast

import hiredis
import txredisapi  # type: ignore[import-untyped]
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from disqued.client.deferred.failures import Broken, NotSent
from disqued.client.errors import server_error

#: Takes a reply that nobody waits for any more.
Unclaimed = Callable[[object], None]


class Link(txredisapi.RedisProtocol):  # type: ignore[misc]
    """One connection."""

    def __init__(self, reactor: Any) -> None:
        super().__init__(charset=None, convertNumbers=False)
        self._reactor = reactor
        self._why = ""
        self._is_ending = False

    @property
    def is_up(self) -> bool:
        """Whether a command can be sent."""
        return bool(self.connected) and not self._is_ending

    def connectionMade(self) -> None:
        """Do nothing: whoever opened it logs in."""

    def tryConvertData(self, data: Any) -> Any:
        """Leave values as they are."""
        return data

    def dataReceived(self, data: bytes, unpause: bool = False) -> None:
        try:
            super().dataReceived(data, unpause)
        except txredisapi.InvalidData as error:
            self.end(f"what answers there speaks another protocol ({error})")

    def _build_command(self, *args: Any, **kwargs: Any) -> bytes:
        return cast("bytes", hiredis.pack_command(args))

    def finish(self) -> None:
        """Close the connection once all is written."""
        self._is_ending = True
        self.transport.loseConnection()

    def end(self, why: str) -> None:
        """Break the connection off."""
        self._is_ending = True
        self._why = self._why or why
        self.transport.abortConnection()

    def ask(self, words: tuple[bytes, ...], limit: float, unclaimed: Unclaimed | None = None) -> "Deferred[object]":
        """Send a command and wait for its reply.  Fails with NotSent, Broken, ServerError.

        When the Deferred is cancelled the reply is awaited all the same, and given to `unclaimed`.
        """
        answer: Deferred[object] = Deferred()
        try:
            reply = self.execute_command(*words)
        except txredisapi.ConnectionError as error:
            answer.errback(NotSent(str(error)))
            return answer
        too_long = self._reactor.callLater(limit, self.end, f"no answer within {limit:g} s")

        def came(result: object) -> None:
            if too_long.active():
                too_long.cancel()
            if not answer.called:
                answer.callback(self._read(result))
            elif unclaimed is not None and not isinstance(result, Failure):
                unclaimed(result)

        reply.addBoth(came)
        return answer

    def _read(self, result: object) -> object:
        if not isinstance(result, Failure):
            return result
        if result.check(txredisapi.ResponseError):
            return Failure(server_error(result.getErrorMessage()))
        return Failure(Broken(self._why or result.getErrorMessage()))
