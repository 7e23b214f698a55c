"""TLS above the transports that send at once.

    socket --> EagerServer, EagerClient --> EagerTls --> ClientConnection, a link of the bus
               (net/loop/transport.py)           encrypts what is written and sends it in the same call

Nobody is told of a connection before its handshake is done: who cannot show the certificate that is asked for is no
client, takes no place among them, and is heard of in the log alone.  A handshake has `HANDSHAKE_S`; when too many are
under way at a time, the one that began first has had its chance.

Long texts (`disqued.wire.pieces`) are encrypted part by part, each when the transport below has sent the one before.
Until all of a text is encrypted, the registered producer is paused.

To its protocol it is a transport like the others: `unsent`, `refused` and `is_gone` mean the same, flow control is
Twisted's, and `loseConnection` does not wait for the farewell of the other end, of which nothing depends.

Times are seconds.
"""

import socket
from collections.abc import Callable, Iterable
from typing import Any, Final

from OpenSSL import SSL
from twisted.internet.interfaces import IDelayedCall, IPushProducer
from twisted.internet.protocol import Protocol, connectionDone
from twisted.protocols.tls import TLSMemoryBIOFactory, TLSMemoryBIOProtocol
from twisted.python.failure import Failure
from zope.interface import implementer

from disqued.net.loop.rounds import READ_SIZE
from disqued.tls.context import Certificates, name_in, openssl_reason
from disqued.wire.pieces import grouped

HANDSHAKE_S: Final = 10.0
SHAKING_MAX: Final = 256  #: handshakes of others that are under way at a time
RECORD: Final = 1 << 14  #: bytes that are encrypted together at most
ENCRYPTED_AT_ONCE: Final = 256 * 1024  #: bytes that are encrypted in a turn of the loop: less than a millisecond
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
        self._paced: _Paced | None = None  #: who writes much
        self._go_on_call: IDelayedCall | None = None  #: for the rest of what was written
        self._waits = False  #: for that, until the transport has sent what it has

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
        self._cancel_calls()
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
        self._producer = self._paced = None
        self._appSendBuffer = []
        self._cancel_calls()

    def _cancel_calls(self) -> None:
        for call in (self._look_call, self._end_call, self._go_on_call):
            if call is not None:
                call.cancel()
        self._look_call = self._end_call = self._go_on_call = None

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
        self.unregisterProducer()
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
        if len(data) > RECORD or self._appSendBuffer:
            self.writeSequence([data])
        elif self._lostTLSConnection or self._aborted:
            self.refused = True
        else:
            super().write(data)  # type: ignore[no-untyped-call]
            self.refused = self.transport.refused

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Encrypt and send some of it; the rest waits as it is for later turns, and so does who produces more."""
        if self._lostTLSConnection or self._aborted:
            self.refused = True
            return
        if self.disconnecting and self._producer is None:
            return
        pieces = [memoryview(piece) for piece in grouped(list(iovec))]
        if pieces and not self._appSendBuffer:
            super().write(pieces[0][:RECORD])  # type: ignore[no-untyped-call]
            self.refused = self.transport.refused
            pieces[0] = pieces[0][RECORD:]
        self._appSendBuffer += [piece for piece in pieces if piece]
        if self._go_on_call is None and not self._waits:
            self._encrypt_some()

    def _encrypt_some(self) -> None:
        """Encrypt and send a part of what waits, and see to it that the rest has its turn."""
        self._go_on_call, self._waits = None, False
        waiting = self._appSendBuffer
        left = ENCRYPTED_AT_ONCE
        while waiting and left > 0 and not self._lostTLSConnection:
            try:
                sent = self._tlsConnection.send(waiting[0][:RECORD])
            except SSL.WantReadError:  # it goes on with what comes
                if self._paced is not None:
                    self._paced.pauseProducing()
                return
            except SSL.Error:
                self._tlsShutdownFinished(Failure())  # type: ignore[no-untyped-call]
                return
            self._flushSendBIO()  # type: ignore[no-untyped-call]
            left -= sent
            waiting[0] = waiting[0][sent:]
            if not waiting[0]:
                del waiting[0]
        if self._lostTLSConnection:
            return
        if waiting:
            self._wait_for_turn()
        else:
            self._all_encrypted()

    def _wait_for_turn(self) -> None:
        """Go on when what was encrypted has left."""
        if self._paced is not None:
            self._paced.pauseProducing()
        handle = getattr(self.transport, "handle", None)
        if handle is None or handle.at_once:
            self._go_on_call = self.factory.reactor.callLater(0, self._encrypt_some)
        else:
            self._waits = True
            handle.once_sent(self._encrypt_some)

    def _all_encrypted(self) -> None:
        """Let who produces more go on as soon as that has left, or end the connection if that is wanted."""
        handle = getattr(self.transport, "handle", None)
        if self._paced is None:
            if self.disconnecting:
                self._shutdownTLS()
        elif handle is None or handle.at_once:
            self._paced.resumeProducing()
        else:
            handle.once_sent(self._all_encrypted)

    def _unbufferPendingWrites(self) -> None:
        """Go on with what waits: something has come, which it may have waited for."""
        if self._go_on_call is None and not self._waits:
            self._encrypt_some()

    def registerProducer(self, producer: Any, streaming: bool) -> None:
        """Take who writes much, and who is paused as long as some of it waits here."""
        self._paced = _Paced(self, producer)
        super().registerProducer(self._paced, streaming)  # type: ignore[no-untyped-call]

    def unregisterProducer(self) -> None:
        """Let it write no more."""
        self._paced = None
        super().unregisterProducer()  # type: ignore[no-untyped-call]

    @property
    def holds(self) -> bool:
        """True while something that was written is not encrypted."""
        return bool(self._appSendBuffer)

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


@implementer(IPushProducer)
class _Paced:
    """Who writes to a connection: paused while the transport has too much, or something waits to be encrypted."""

    def __init__(self, connection: EagerTls, producer: Any) -> None:
        self._connection = connection
        self._producer = producer
        self._is_paused = False

    def pauseProducing(self) -> None:
        """Pause it, if it is not."""
        if not self._is_paused:
            self._is_paused = True
            self._producer.pauseProducing()

    def resumeProducing(self) -> None:
        """Let it go on, if it is paused and nothing waits."""
        if self._is_paused and not self._connection.holds:
            self._is_paused = False
            self._producer.resumeProducing()

    def stopProducing(self) -> None:
        """The transport is gone."""
        self._producer.stopProducing()


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
