"""Endpoint strings for clients: whatever they name, its connections send at once.

    endpoint tcp:7712:interface=127.0.0.1  unix:/run/disqued/queue.sock  ssl:7713:...  systemd:domain=INET:index=0
               |                             |                             |             |
               EagerPort                     UnixPort                      EagerTls      EagerPort, on what is open

Other kinds, which plugins of Twisted bring, are refused: how much of a reply is unsent, and whether a client is gone,
only transports of ours can tell.
"""

import os
from typing import TYPE_CHECKING, Any

import attrs
from twisted.internet.defer import maybeDeferred
from twisted.internet.endpoints import quoteStringArgument, serverFromString

from disqued.config.credentials import written_out
from disqued.config.endpoint_strings import ALLOWED, KINDS, kind
from disqued.net.loop.passed import Adopter
from disqued.net.loop.socketfile import UnixPort
from disqued.net.loop.transport import EagerPort

if TYPE_CHECKING:
    from disqued.net.loop.certificates import TlsListeners


class EndpointError(Exception):
    """An endpoint string cannot be listened at; `str()` names it, and says what is wrong with it."""

    def __init__(self, text: str, problem: str) -> None:
        super().__init__(f"endpoint {text}: {problem}; {ALLOWED}")


@attrs.define
class _EagerEndpoint(Adopter):
    """Stands where an endpoint expects the reactor, and makes ports of ours."""

    def listenTCP(self, port: int, factory: Any, backlog: int = 50, interface: str = "") -> Any:
        return _started(EagerPort(port, factory, backlog, interface, self.reactor))

    def listenUNIX(
        self, address: Any, factory: Any, backlog: int = 50, mode: int = 0o666, wantPID: int = 0  # noqa: N803
    ) -> Any:  # fmt: skip
        """Do what `IReactorUNIX.listenUNIX` does; whether somebody lives at the path is found out by itself."""
        return _started(UnixPort(os.fsencode(address), factory, backlog, mode, self.reactor))


def _started(port: Any) -> Any:
    port.startListening()
    return port


def listen_at(text: str, factory: Any, reactor: Any, secured: "TlsListeners") -> Any:
    """Let a factory listen at an endpoint string; returns the port.  Raises EndpointError."""
    written = written_out(text, quoteStringArgument)
    if kind(written) not in KINDS:
        raise EndpointError(text, f"no endpoint for clients is of the kind {kind(written)!r}")
    opened: list[Any] = []
    try:
        if kind(written) == "ssl":
            opening = maybeDeferred(_listen_with_tls, written, factory, reactor, secured)
        else:
            eager = _EagerEndpoint(reactor, EagerPort)
            endpoint: Any = serverFromString(eager, written)  # type: ignore[no-untyped-call]
            opening = endpoint.listen(factory)
        opening.addBoth(opened.append)
        if not hasattr(opened[0], "getHost"):
            opened[0].raiseException()
    except Exception as error:  # whatever the parser of this kind of endpoint raises
        raise EndpointError(text, str(error) or type(error).__name__) from None
    return opened[0]


def _listen_with_tls(text: str, factory: Any, reactor: Any, secured: "TlsListeners") -> Any:
    from disqued.tls.endpoint import RenewableTLS

    tls = RenewableTLS(reactor, text)
    above = secured.factory(f"endpoint {text}", tls, factory, label=f"endpoint {tls.interface or '*'}:{tls.port}")
    return _started(EagerPort(tls.port, above, tls.backlog, tls.interface, reactor))
