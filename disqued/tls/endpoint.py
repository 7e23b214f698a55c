"""Endpoint strings with TLS: Twisted's, and who may come.

ssl:7713:interface=127.0.0.1:privateKey=node.key:certKey=node.pem        as Twisted has it
        :caCerts=ca.pem                 who connects has to show a certificate of one of these authorities
        :caCerts=ca.pem:clientAuth=optional          may show one, and one that is shown has to be of these
"""

from pathlib import Path
from typing import Any, Final

from OpenSSL import SSL
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IStreamServerEndpoint
from zope.interface import implementer

from disqued.config.endpoint_strings import parameter, without
from disqued.tls.context import Certificates, ClientCertificates, TlsError, trust

CA: Final = "caCerts"
AUTH: Final = "clientAuth"


class _EndpointRecorder:
    """Stands where an endpoint expects the reactor: what is to be listened with is kept, and nothing listens."""

    def listenSSL(
        self, port: int, factory: Any, *, contextFactory: Any, backlog: int, interface: str  # noqa: N803 - Twisted's
    ) -> None:  # fmt: skip
        """Take what `IReactorSSL.listenSSL` is given."""
        self.port = port
        self.contexts = contextFactory
        self.backlog = backlog
        self.interface = interface


@implementer(IStreamServerEndpoint)
class RenewableTLS(Certificates):
    """The endpoint of a string ``ssl:<port>:privateKey=...:certKey=...``."""

    port: int
    backlog: int
    interface: str  #: empty: all

    def __init__(self, reactor: Any, description: str) -> None:
        """Read the files.  Raises TlsError, what the parser of the string raises and reading does, OpenSSL's errors."""
        self._reactor = reactor
        self._description = description
        super().__init__(self._look_at_files)

    def _look_at_files(self) -> SSL.Context:
        """Read the string and the files that it names, and see to it that they fit together."""
        read = _EndpointRecorder()
        outcome: list[Any] = []
        endpoint: Any = serverFromString(  # type: ignore[no-untyped-call]
            read, without(self._description, CA, AUTH)
        )
        endpoint.listen(None).addBoth(outcome.append)
        if outcome[0] is not None:
            outcome[0].raiseException()
        context: SSL.Context = read.contexts.getContext()
        context.set_min_proto_version(SSL.TLS1_2_VERSION)
        ca, asked = parameter(self._description, CA), parameter(self._description, AUTH)
        if asked not in (None, "yes", "optional"):
            raise TlsError(f"{AUTH}={asked}: allowed are yes and optional")
        if ca:
            trust(context, Path(ca), ClientCertificates(asked or "yes"), CA)
        elif asked:
            raise TlsError(f"{AUTH}={asked}: without {CA} there is no authority to ask for certificates of")
        self.port, self.backlog, self.interface = read.port, read.backlog, read.interface
        return context

    def listen(self, protocolFactory: Any) -> "Deferred[Any]":  # noqa: N803 - Twisted's
        """Listen with Twisted's own transport; fires with the port."""
        return maybeDeferred(
            self._reactor.listenSSL, self.port, protocolFactory, self, backlog=self.backlog, interface=self.interface
        )
