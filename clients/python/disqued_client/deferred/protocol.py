"""One connection of the client for Twisted: txredisapi's protocol, with values kept as bytes.

Importing txredisapi installs the default reactor, so this module is loaded only once a client has a reactor.
Durations are seconds.
"""

from typing import Any, cast

import hiredis
import txredisapi  # type: ignore[import-untyped]
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IHandshakeListener
from twisted.internet.protocol import connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from ..base_links import Unclaimed
from ..commands import RECEIPT
from ..errors import NotTrusted, server_error
from ..failures import ConnectionBroken, NotSent
from .secure import Secure, why_not


class Link(txredisapi.RedisProtocol):  # type: ignore[misc]
    """One connection."""

    def __init__(self, reactor: Any) -> None:
        super().__init__(charset=None, convertNumbers=False)
        self.confirms: bool | None = None
        self.receipt: Deferred[object] | None = None
        self._reactor = reactor
        self._why = ""
        self._not_trusted: NotTrusted | None = None
        self._is_ending = False

    @property
    def is_up(self) -> bool:
        return bool(self.connected) and not self._is_ending

    @property
    def is_idle(self) -> bool:
        return self.is_up and not self.replyQueue.waiting

    def gone(self) -> "Deferred[object]":
        return cast("Deferred[object]", self.whenDisconnected())

    def connectionMade(self) -> None:
        """Do nothing: the opener logs in."""

    def tryConvertData(self, data: Any) -> Any:
        """Return values unchanged."""
        return data

    def dataReceived(self, data: bytes, unpause: bool = False) -> None:
        try:
            super().dataReceived(data, unpause)
        except txredisapi.InvalidData as error:
            self.end(f"what answers there speaks another protocol ({error})")

    def _build_command(self, *args: Any, **kwargs: Any) -> bytes:
        return cast("bytes", hiredis.pack_command(args))

    def finish(self) -> None:
        self._is_ending = True
        self.transport.loseConnection()

    def end(self, why: str) -> None:
        """Abort the connection."""
        self._is_ending = True
        self._why = self._why or why
        # Not while data is being received: TLS would go on reading from a closed connection.
        self._reactor.callLater(0, self._abort)

    def _abort(self) -> None:
        if self.connected:
            self.transport.abortConnection()

    def ask(
        self, words: tuple[bytes, ...], limit: float, unclaimed: Unclaimed | None = None, *, confirms: bool = False
    ) -> "Deferred[object]":
        """Send a command and wait for its reply.  Fails with NotSent, ConnectionBroken, NotTrusted, ServerError.

        When the Deferred is cancelled, `unclaimed` receives the reply.  With `confirms` a reply with jobs counts once
        its receipt is answered.
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
            if self.receipt is not None:
                receipt, self.receipt = self.receipt, None
                receipt.callback(None)

        if confirms:
            reply.addCallback(self._confirm)
        reply.addBoth(came)
        return answer

    def _confirm(self, reply: object) -> object:
        """Send the receipt of a reply with jobs; returns the reply, once the receipt is answered."""
        if not reply:
            return reply
        self.receipt = Deferred()
        answered: Deferred[object] = self.execute_command(*RECEIPT)
        answered.addErrback(lambda failure: failure.trap(txredisapi.ResponseError))  # an answer, too
        return answered.addCallback(lambda _: reply)

    def _read(self, result: object) -> object:
        if not isinstance(result, Failure):
            return result
        if result.check(txredisapi.ResponseError):
            return Failure(server_error(result.getErrorMessage()))
        return Failure(self._not_trusted or ConnectionBroken(self._why or result.getErrorMessage()))


@implementer(IHandshakeListener)
class SecureLink(Link):
    """One TLS connection; `agreed` fires when the certificate of the node is verified."""

    def __init__(self, reactor: Any, secure: Secure) -> None:
        super().__init__(reactor)
        self._secure = secure
        self.agreed: Deferred[None] = Deferred()

    def handshakeCompleted(self) -> None:
        try:
            self._secure.check_name(self.transport.getHandle())
        except NotTrusted as error:
            self._not_trusted = error
            self.end(str(error))
        else:
            self.agreed.callback(None)

    def connectionLost(self, why: Failure = connectionDone) -> None:
        handle = self.transport.getHandle()
        self._not_trusted = self._not_trusted or why_not(why.value, handle, is_agreed=bool(self.agreed.called))
        super().connectionLost(why)
        if not self.agreed.called:
            self.agreed.errback(self._not_trusted or NotSent(self._why or why.getErrorMessage()))
