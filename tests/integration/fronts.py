"""TLS in front of daemons that have no port for it: what a user puts there as stunnel or a proxy, in the reactor.

client ==TLS==> a port of ours --> the port of the daemon, which has HELLO name ours (`--cluster-announce-port`)
"""

from pathlib import Path
from typing import Any

import attrs
from OpenSSL import SSL
from twisted.internet import reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.protocols.portforward import ProxyFactory, ProxyServer
from zope.interface import implementer

from tests.integration.daemon import HOST, Daemon


class _Pipe(ProxyServer):
    """A connection that is carried through."""

    def connectionMade(self) -> None:
        self.factory.pipes.add(self)
        super().connectionMade()

    def connectionLost(self, reason: Any) -> None:
        self.factory.pipes.discard(self)
        super().connectionLost(reason)


class _Pipes(ProxyFactory):
    protocol = _Pipe
    noisy = False

    def __init__(self) -> None:
        super().__init__(HOST, 0)
        self.pipes: set[_Pipe] = set()


@implementer(IOpenSSLServerConnectionCreator)
@attrs.define
class Front:
    """A port with TLS, which leads to a daemon once there is one."""

    #: Key and certificate.
    own: tuple[Path, Path]
    #: Whom a client has to be known to; None = anybody may come.
    authority: Path | None = None
    port: int = 0
    _pipes: _Pipes = attrs.field(factory=_Pipes)
    _listening: Any = None

    def listen(self) -> None:
        """Begin, on the port that it had before if it had one."""
        self._listening = reactor.listenSSL(self.port, self._pipes, self, interface=HOST)
        self.port = self._listening.getHost().port

    def serverConnectionForTLS(self, protocol: Any) -> SSL.Connection:
        """Begin a handshake."""
        key, certificate = self.own
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.use_privatekey_file(str(key))
        context.use_certificate_chain_file(str(certificate))
        if self.authority is not None:
            context.load_verify_locations(str(self.authority))
            context.set_verify(SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT, lambda *found: bool(found[-1]))
        return SSL.Connection(context, None)

    @property
    def options(self) -> tuple[str, str]:
        """What the daemon has to be told of it."""
        return "--cluster-announce-port", str(self.port)

    def leads_to(self, daemon: Daemon) -> None:
        """Carry what comes from now on to a daemon."""
        self._pipes.port = daemon.port

    def stop(self) -> "Deferred[None]":
        """Close the port, and what is open."""
        for pipe in list(self._pipes.pipes):
            pipe.transport.abortConnection()
        return maybeDeferred(self._listening.stopListening)
