"""The connections to one node in a reactor (`base_links`), and how they are opened.

A cancelled fetch is still answered: its jobs are passed to `unclaimed`.  Durations are seconds.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint, wrapClientTLS
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from ..addresses import Address, ConnectionOptions, Socket
from ..base_links import BaseLinks, Unclaimed
from ..calls import Patience
from ..commands import ConnectionUse
from ..errors import NotTrusted
from ..failures import NotSent
from ..tls import Tls
from ..tls_renewal import RenewedContext

if TYPE_CHECKING:
    from OpenSSL import SSL

    from .protocol import Link

AnyLink = TypeVar("AnyLink", bound="Link")


class Connector:
    """Opens connections, to any node."""

    def __init__(self, access: ConnectionOptions, patience: Patience, reactor: Any) -> None:
        """Read the TLS files.  Raises ValueError."""
        self.patience = patience
        self.greetings = access.greetings
        self._reactor = reactor
        self._tls = access.tls
        self._context: RenewedContext[SSL.Context] | None = None
        if access.tls is not None:
            from .secure import make_context

            self._context = RenewedContext(access.tls, make_context)

    async def connect(self, address: Address) -> "Link":
        """Open a connection to a node whose name is verified, before any command.  Raises NotSent, NotTrusted."""
        try:
            return await self._open(address)
        except (CancelledError, NotSent, NotTrusted):
            raise
        except Exception as error:
            raise NotSent(str(error) or type(error).__name__) from error

    async def _open(self, address: Address) -> "Link":
        from .protocol import Link

        if isinstance(address, Socket):
            endpoint: Any = UNIXClientEndpoint(self._reactor, address.path, timeout=self.patience.connect)
        else:
            endpoint = HostnameEndpoint(self._reactor, *address, timeout=self.patience.connect)
            if self._tls is not None and self._context is not None:
                return await self._connect_by_tls(endpoint, self._tls, self._context.get(), address[0])
        return await _connected(endpoint, lambda: Link(self._reactor))

    async def _connect_by_tls(self, endpoint: Any, tls: Tls, context: "SSL.Context", host: str) -> "Link":
        from .protocol import SecureLink
        from .secure import Secure

        secure = Secure(tls, context, host)
        wrapped = wrapClientTLS(secure, endpoint)
        link = await _connected(wrapped, lambda: SecureLink(self._reactor, secure))
        too_long = self._reactor.callLater(self.patience.connect, link.end, "no TLS handshake in time")
        try:
            await link.agreed
        except CancelledError:
            link.end("nobody waits for it any more")
            raise
        finally:
            if too_long.active():
                too_long.cancel()
        return link


def _connected(endpoint: Any, make: "Callable[[], AnyLink]") -> "Deferred[AnyLink]":
    """Connect; cancelling fails with CancelledError, where an endpoint may report that it found no host."""
    factory: Factory = Factory.forProtocol(make)
    factory.noisy = False
    connecting: Deferred[Any] = endpoint.connect(factory)

    def give_up(outcome: "Deferred[AnyLink]") -> None:
        outcome.errback(CancelledError())
        connecting.cancel()

    def came(result: "AnyLink | Failure") -> None:
        if not outcome.called:
            outcome.callback(result)
        elif not isinstance(result, Failure):
            result.finish()

    outcome: Deferred[AnyLink] = Deferred(give_up)
    connecting.addBoth(came)
    return outcome


class Links(BaseLinks["Link"]):
    """The connections to one node."""

    def __init__(self, address: Address, way: Connector, unclaimed: Unclaimed) -> None:
        super().__init__(address, way, unclaimed)
        #: Waiters for the connection that is being opened.
        self._opening: dict[ConnectionUse, list[Deferred[Link]]] = {}

    def _ask_seated(self, link: "Link", words: tuple[bytes, ...], limit: float) -> "Deferred[object]":
        return link.ask(words, limit, self._unclaimed)

    def _opened(self, lane: ConnectionUse) -> "Deferred[Link]":
        waiter: Deferred[Link] = Deferred()
        waiting = self._opening.setdefault(lane, [])
        waiting.append(waiter)
        if len(waiting) == 1:
            Deferred.fromCoroutine(self._connect()).addBoth(self._hand_out, lane)
        return waiter

    def _hand_out(self, opened: "Link | Failure", lane: ConnectionUse) -> None:
        if not isinstance(opened, Failure):
            self._shared[lane] = opened
        for waiter in self._opening.pop(lane):
            if not waiter.called:  # else the caller has cancelled it
                waiter.callback(opened)

    async def _fetch(self, words: tuple[bytes, ...], limit: float) -> object:
        link = await self._take_to_fetch()

        def late(reply: object) -> None:
            self._give(link)
            self._unclaimed(reply)

        try:
            reply = await link.ask(words, limit, late, confirms=bool(link.confirms))
        except CancelledError:
            raise  # `late` gives the connection back with its reply
        except BaseException:
            self._give(link)
            raise
        self._give(link)
        return reply
