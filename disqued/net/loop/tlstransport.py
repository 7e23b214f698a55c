"""TLS above the transports that send at once.

    socket --> EagerServer, EagerClient --> EagerTls --> ClientConnection, a link of the bus
               (net/loop/transport.py)           encrypts what is written and sends it in the same call

Nobody is told of a connection before its handshake is done: who cannot show the certificate that is asked for is no
client, takes no place among them, and is heard of in the log alone.  A handshake has `HANDSHAKE_S`; when too many are
under way at a time, the one that began first has had its chance.

To its protocol it is a transport like the others: `unsent`, `refused` and `is_gone` mean the same, flow control is
Twisted's, and `loseConnection` does not wait for the farewell of the other end, of which nothing depends.

Times are seconds.
"""

import socket
from collections.abc import Callable
from typing import Any, Final

from OpenSSL import SSL
from twisted.internet.interfaces import IDelayedCall
from twisted.internet.protocol import Protocol, connectionDone
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure

from disqued.net.loop.rounds import READ_SIZE
from disqued.tls.context import Certificates, name_in, openssl_reason

HANDSHAKE_S: Final = 10.0
SHAKING_MAX: Final = 256  #: handshakes of others that are under way at a time
RECORD: Final = 1 << 14  #: bytes that are encrypted together at most
NO_TLS: Final = "it speaks no TLS"
#: What such an end is answered, where OpenSSL says nothing: fatal, "protocol version".  A node knows it for TLS.
ALERT: Final = b"\x15\x03\x01\x00\x02\x02\x46"
#: What OpenSSL says of it.
_SIGNS: Final = ("wrong version number", "http request", "packet length too long", "unexpected message")

#: Takes the address of the other end, and why there is no connection.
Failed = Callable[[Any, str], None]


def reason_of(failure: Failure) -> str:
    """Say why a connection with TLS has ended."""
    error = failure.value
    if not isinstance(error, SSL.Error):
        return str(failure.getErrorMessage())
    words = openssl_reason(error)
    if "did not return a certificate" in words:
        return "it shows no certificate"
    if any(sign in words for sign in _SIGNS):
        return NO_TLS
    if "alert" in words:
        return f"it refuses us: {words}"
    return words or "TLS has failed"


class EagerTls(TLSMemoryBIOProtocol):
    """One connection: a protocol to the transport below, and a transport to the protocol above."""

    factory: "TlsFactory"
    transport: Any
    #: As that of the transport below, of the last write.
    refused: bool = False
    #: Why the certificate of the other end is not taken; set by what looks at it.
    refusal: str = ""

    def __init__(self, factory: "TlsFactory", address: Any) -> None:
        super().__init__(factory, Protocol(), _connectWrapped=False)  # type: ignore[no-untyped-call]
        self._address = address
        self._common_name: str | None = None  #: once somebody has asked for it: it takes a while to be read
        self._begun = False  #: the handshake is done, and the protocol above has been told
        self._deadline: IDelayedCall | None = None
        self._look_call: IDelayedCall | None = None
        self._end_call: IDelayedCall | None = None
        self._lingers = False  #: it is read from after our farewell

    def makeConnection(self, transport: Any) -> None:
        """Begin the handshake."""
        self._deadline = self.factory.reactor.callLater(HANDSHAKE_S, self._too_slow)
        self.factory.began(self)
        super().makeConnection(transport)  # type: ignore[no-untyped-call]

    def _too_slow(self) -> None:
        self._deadline = None
        self.give_up(f"the handshake took longer than {HANDSHAKE_S:.0f} s")

    def give_up(self, reason: str) -> None:
        """End a handshake that is not done, and let it be told why."""
        self.refusal = reason
        self.abortConnection()

    def _checkHandshakeStatus(self) -> None:
        super()._checkHandshakeStatus()  # type: ignore[no-untyped-call]
        if self._handshakeDone and not self._begun:
            self._begin()

    def _begin(self) -> None:
        """Make the protocol above, and tell it of the connection."""
        self._begun = True
        self._in_time()
        above = self.factory.wrappedFactory.buildProtocol(self._address)
        if above is None:
            self.abortConnection()
            return
        self.wrappedProtocol = above
        above.makeConnection(self)

    def _in_time(self) -> None:
        self.factory.ended(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Tell the protocol above, or who wants to know of failed handshakes."""
        for call in (self._look_call, self._end_call):
            if call is not None:
                call.cancel()
        self._look_call = self._end_call = None
        if self._begun:
            super().connectionLost(reason)  # type: ignore[no-untyped-call]
            self._let_go()
            return
        self._in_time()
        self._lostTLSConnection = True
        self.connected = False
        self.factory.unregisterProtocol(self)  # type: ignore[no-untyped-call]
        self._tlsConnection = None  # type: ignore[assignment]
        told = self._reason or reason
        self._reason = None
        self._let_go()
        self.factory.failed(self._address, self.refusal or reason_of(told))

    def _let_go(self) -> None:
        """Forget the protocol above, which knows us, so that neither waits for the collector."""
        self._producer = None
        for call in (self._look_call, self._end_call):
            if call is not None:
                call.cancel()
        self._look_call = self._end_call = None

    def _flushReceiveBIO(self) -> None:
        """Give the protocol above what has come.

        That the other end says its farewell is taken up in the next turn, and not at once as Twisted does: replies
        that are kept back until the end of a round, or of the turn, leave before.
        """
        connection: Any = self._tlsConnection
        while not self._lostTLSConnection and self._end_call is None:
            try:
                data = connection.recv(2 * RECORD)
            except SSL.WantReadError:
                break
            except SSL.ZeroReturnError:
                self._end_call = self.factory.reactor.callLater(0, self._heard_farewell)
            except SSL.Error:
                self._tlsShutdownFinished(Failure())  # type: ignore[no-untyped-call]
            else:
                if not self._aborted and self.wrappedProtocol is not None:
                    self.wrappedProtocol.dataReceived(data)
        self._flushSendBIO()  # type: ignore[no-untyped-call]

    def _heard_farewell(self) -> None:
        self._end_call = None
        if not self._lostTLSConnection:
            self._shutdownTLS()
            self._tlsShutdownFinished(None)

    def _tlsShutdownFinished(self, reason: Failure | None) -> None:
        if reason is not None and not self._begun and reason_of(reason) == NO_TLS:
            self.transport.write(ALERT)
        super()._tlsShutdownFinished(reason)  # type: ignore[no-untyped-call]

    def _shutdownTLS(self) -> None:
        super()._shutdownTLS()  # type: ignore[no-untyped-call]
        if self._lingers:
            self.transport.loseWriteConnection()
        else:
            self.transport.loseConnection()

    # What the protocol above sees.

    def abortConnection(self) -> None:
        """End now; what was not sent is dropped within this call."""
        super().abortConnection()  # type: ignore[no-untyped-call]
        self._appSendBuffer = []

    def loseConnection(self) -> None:
        """End when what was written has left, whoever would produce more: Twisted's TLS would wait for that."""
        self.unregisterProducer()  # type: ignore[no-untyped-call]
        if self._lingers and self.disconnecting:  # our farewell is said, and nobody waits for theirs any more
            self.transport.loseConnection()
        super().loseConnection()  # type: ignore[no-untyped-call]

    def loseWriteConnection(self) -> None:
        """Say farewell when what was written has left, and go on reading until the other end has closed."""
        self._lingers = not self.disconnecting
        self.loseConnection()

    def is_busy(self) -> bool:
        """Tell whether something is under way, as the transport below has it."""
        return bool(self.unsent or self.transport.is_busy())

    @property
    def common_name(self) -> str:
        """The common name in the certificate that the other end has shown; empty without one.

        OpenSSL has no certificate that was not asked for, and there is no connection with one that was not taken.
        """
        if self._common_name is None:
            connection: SSL.Connection | None = self._tlsConnection
            shown = None if connection is None else connection.get_peer_certificate()
            self._common_name = "" if shown is None else name_in(shown)
        return self._common_name

    @property
    def unsent(self) -> int:
        """Bytes that the socket has not taken."""
        return int(self.transport.unsent) + sum(map(len, self._appSendBuffer))

    def write(self, data: bytes) -> None:
        """Encrypt and send.

        Of much, what is told by `refused` is its beginning: the rest may not have gone, but that has.
        """
        if self._lostTLSConnection or self._aborted:
            self.refused = True
            return
        super().write(data[:RECORD])  # type: ignore[no-untyped-call]
        self.refused = self.transport.refused
        if len(data) > RECORD:
            super().write(data[RECORD:])  # type: ignore[no-untyped-call]

    def is_gone(self) -> bool:
        """Tell whether the other end has closed, even if that has not been noticed yet.

        That it did is encrypted like everything else: what has come is taken in to look at it, and given to the
        protocol in the next turn.
        """
        connection: SSL.Connection | None = self._tlsConnection
        if connection is None or self._lostTLSConnection or self._aborted or self._end_call is not None:
            return True
        rounds = getattr(self.factory.reactor, "rounds", None)
        if rounds is not None and rounds.holds(self.transport):
            return False  # What was read before has to be taken in before, and is in its turn.
        if self._look_call is None:
            try:
                data = self.transport.socket.recv(READ_SIZE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return False
            except OSError:
                return True
            if not data:
                return True
            connection.bio_write(data)
            self._look_call = self.factory.reactor.callLater(0, self._take_in)
        try:
            connection.recv(1, socket.MSG_PEEK)
        except SSL.WantReadError:
            return False
        except SSL.Error:
            return True
        return bool(self.transport.is_closed())

    def _take_in(self) -> None:
        self._look_call = None
        if not self._lostTLSConnection:
            self._flushReceiveBIO()


class TlsFactory(TLSMemoryBIOFactory):
    """Stands between a port, or a connector, and the factory of the protocols above TLS."""

    noisy = False

    def __init__(
        self, certificates: Certificates, above: Any, reactor: Any, failed: Failed, *, dials: bool = False
    ) -> None:
        """`dials`: the connections are opened by us; `failed` hears of handshakes that come to nothing."""
        super().__init__(certificates, dials, above, reactor)
        self.reactor = reactor
        self.failed = failed
        self._shaking: dict[EagerTls, None] = {}

    def buildProtocol(self, address: Any) -> EagerTls:
        """Take a connection in."""
        return EagerTls(self, address)

    def began(self, connection: EagerTls) -> None:
        """Note a handshake; when there are too many, the first of them has had its chance."""
        self._shaking[connection] = None
        if len(self._shaking) > SHAKING_MAX:
            first = next(iter(self._shaking))
            del self._shaking[first]
            first.give_up("too many others are in their handshakes")

    def ended(self, connection: EagerTls) -> None:
        """Forget one."""
        self._shaking.pop(connection, None)

    def stopFactory(self) -> None:
        """End all handshakes: nobody listens any more."""
        for connection in list(self._shaking):
            connection.give_up("the node stops")
