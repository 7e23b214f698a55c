"""TLS whose certificate is taken up anew while the daemon runs.

SIGHUP --> the files that the endpoint string names are read again
             good: they are for the connections that begin from now on; those that are open go on as they began
             one cannot be read, or the key is not the certificate's: what was in force stays in force
"""

from typing import Any

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.endpoints import serverFromString
from twisted.internet.interfaces import IOpenSSLServerConnectionCreator, IStreamServerEndpoint
from zope.interface import implementer

SCHEME = "ssl:"


class _Read:
    """Stands where an endpoint expects the reactor: what is to be listened with is kept, and nothing listens."""

    def listenSSL(
        self, port: int, factory: Any, *, contextFactory: Any, backlog: int, interface: str  # noqa: N803 - Twisted's
    ) -> None:  # fmt: skip
        """Take what `IReactorSSL.listenSSL` is given."""
        self.port = port
        self.contexts = contextFactory
        self.backlog = backlog
        self.interface = interface


@implementer(IStreamServerEndpoint, IOpenSSLServerConnectionCreator)
class RenewableTLS:
    """The endpoint of a string ``ssl:<port>:privateKey=...:certKey=...``."""

    def __init__(self, reactor: Any, description: str) -> None:
        """Read the files.  Raises what the parser of the string raises, what reading does, and OpenSSL's errors."""
        self._reactor = reactor
        self._description = description
        self._read = self._look()

    def _look(self) -> _Read:
        """Read the string and the files that it names, and see to it that they fit together."""
        read = _Read()
        outcome: list[Any] = []
        endpoint = serverFromString(read, self._description)
        endpoint.listen(None).addBoth(outcome.append)
        if outcome[0] is not None:
            outcome[0].raiseException()
        read.contexts.getContext()
        return read

    def renew(self) -> None:
        """Read the files again; raises what the constructor does, and then all stays as it was."""
        self._read = self._look()

    def listen(self, protocolFactory: Any) -> "Deferred[Any]":  # noqa: N803 - Twisted's
        """Listen; fires with the port."""
        read = self._read
        return maybeDeferred(
            self._reactor.listenSSL, read.port, protocolFactory, self, backlog=read.backlog, interface=read.interface
        )

    def serverConnectionForTLS(self, tlsProtocol: Any) -> Any:  # noqa: N803 - Twisted's
        """Begin a connection, with the certificate that is in force now."""
        contexts = self._read.contexts
        if hasattr(contexts, "serverConnectionForTLS"):
            return contexts.serverConnectionForTLS(tlsProtocol)
        from OpenSSL.SSL import Connection

        return Connection(contexts.getContext(), None)
