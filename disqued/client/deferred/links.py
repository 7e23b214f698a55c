"""The connections to one node: one for what is answered at once, one for additions, and one for each fetch that waits.

    quick   ack, working, looks ...      many at a time, answered in order
    add     ADDJOB                       waits for copies, so that nothing else stands behind it
    fetch   GETJOB                       taken from those that are idle, given back when its reply is there
    seat    what a live worker says      its own (`seats`)

A fetch whose caller has gone away is still answered: the jobs that come are handed to `unclaimed`.  Spans are seconds.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.endpoints import HostnameEndpoint, UNIXClientEndpoint, wrapClientTLS
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from disqued.client.addresses import Access, Address, Socket
from disqued.client.calls import Patience
from disqued.client.commands import Lane, Seat
from disqued.client.errors import NotTrusted, NoWorker, StaleWorker
from disqued.client.failures import Broken, NotSent
from disqued.client.renewal import Renewed
from disqued.client.seats import take_a_seat
from disqued.client.tls import Tls

if TYPE_CHECKING:
    from OpenSSL import SSL

    from disqued.client.deferred.protocol import Link, Unclaimed

AnyLink = TypeVar("AnyLink", bound="Link")


class Way:
    """How connections are opened, to whatever node."""

    def __init__(self, access: Access, patience: Patience, reactor: Any) -> None:
        """Read the files of TLS.  Raises ValueError."""
        self.patience = patience
        self.greetings = access.greetings
        self._reactor = reactor
        self._tls = access.tls
        self._context: Renewed[SSL.Context] | None = None
        if access.tls is not None:
            from disqued.client.deferred.secure import make_context

            self._context = Renewed(access.tls, make_context)

    async def connect(self, address: Address) -> "Link":
        """Open a connection; the node is who it is to be, and nothing was said yet.  Raises NotSent, NotTrusted."""
        from disqued.client.deferred.protocol import Link

        if isinstance(address, Socket):
            endpoint: Any = UNIXClientEndpoint(self._reactor, address.path, timeout=self.patience.connect)
        else:
            endpoint = HostnameEndpoint(self._reactor, *address, timeout=self.patience.connect)
            if self._tls is not None and self._context is not None:
                return await self._connect_by_tls(endpoint, self._tls, self._context.get(), address[0])
        return await _connected(endpoint, lambda: Link(self._reactor))

    async def _connect_by_tls(self, endpoint: Any, tls: Tls, context: "SSL.Context", host: str) -> "Link":
        from disqued.client.deferred.protocol import SecureLink
        from disqued.client.deferred.secure import Secure

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
    """Connect; whoever cancels it gets CancelledError, of which an endpoint may make that it found no host."""
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


class Links:
    """The connections to one node."""

    def __init__(self, address: Address, way: Way) -> None:
        self._address = address
        self._way = way
        self._shared: dict[Lane, Link] = {}
        #: Who waits for the connection that is being made.
        self._opening: dict[Lane, list[Deferred[Link]]] = {}
        self._idle: list[Link] = []
        #: Of live workers, by their ids.
        self._seats: dict[bytes, Link] = {}
        self._open: set[Link] = set()
        self._is_closed = False

    async def ask(
        self, lane: Lane, words: tuple[bytes, ...], limit: float, unclaimed: "Unclaimed | None" = None
    ) -> object:
        """Send a command and wait for its reply.  Raises NotSent, Broken, NotTrusted, ServerError."""
        if lane is Lane.FETCH:
            return await self._fetch(words, limit, unclaimed)
        link = self._shared.get(lane)
        if link is None or not link.is_up:
            link = await self._opened(lane)
        return await link.ask(words, limit)

    async def ask_seated(
        self, seat: Seat, words: tuple[bytes, ...], limit: float, unclaimed: "Unclaimed | None" = None
    ) -> object:
        """Send a command on the connection of a live worker, and wait for its reply.

        A worker that was declared dead begins anew.  Raises NotSent, Broken, NotTrusted, ServerError.
        """
        link = self._seats.get(seat.id)
        if link is None or not link.is_up:
            link = await self._sit(seat)
        try:
            return await link.ask(words, limit, unclaimed)
        except (NoWorker, StaleWorker):
            self.leave(seat)
            link = await self._sit(seat)
            return await link.ask(words, limit, unclaimed)

    async def _sit(self, seat: Seat) -> "Link":
        """Open a connection whose end is the death of a worker."""
        link = await self._connect()
        try:
            await link.ask(take_a_seat(seat), self._way.patience.reply)
        except Broken as error:
            raise NotSent(str(error)) from error
        except BaseException:
            link.finish()
            raise
        self._seats[seat.id] = link
        return link

    def leave(self, seat: Seat) -> None:
        """Close the connection of a live worker, if there is one."""
        link = self._seats.pop(seat.id, None)
        if link is not None and link.is_up:
            link.finish()

    def _opened(self, lane: Lane) -> "Deferred[Link]":
        """Wait for a new connection that is shared; all who ask while it is made get the same one."""
        waiter: Deferred[Link] = Deferred()
        waiting = self._opening.setdefault(lane, [])
        waiting.append(waiter)
        if len(waiting) == 1:
            Deferred.fromCoroutine(self._connect()).addBoth(self._hand_out, lane)
        return waiter

    def _hand_out(self, opened: "Link | Failure", lane: Lane) -> None:
        if not isinstance(opened, Failure):
            self._shared[lane] = opened
        for waiter in self._opening.pop(lane):
            if not waiter.called:  # else whoever waited has gone away
                waiter.callback(opened)

    async def _fetch(self, words: tuple[bytes, ...], limit: float, unclaimed: "Unclaimed | None") -> object:
        self._idle = [link for link in self._idle if link.is_up]
        link = self._idle.pop() if self._idle else await self._connect()

        def late(reply: object) -> None:
            self._give(link)
            if unclaimed is not None:
                unclaimed(reply)

        try:
            reply = await link.ask(words, limit, late)
        except CancelledError:
            raise  # it is given back when its reply is there
        except BaseException:
            self._give(link)
            raise
        self._give(link)
        return reply

    def _give(self, link: "Link") -> None:
        if self._is_closed:
            link.finish()
        elif link.is_up:
            self._idle.append(link)

    async def _connect(self) -> "Link":
        self._check_open()
        try:
            link = await self._way.connect(self._address)
        except (CancelledError, NotSent, NotTrusted):
            raise
        except Exception as error:
            raise NotSent(str(error) or type(error).__name__) from error
        try:
            self._check_open()
            self._open = {each for each in self._open if each.is_up} | {link}
            for greeting in self._way.greetings:
                await link.ask(greeting, self._way.patience.reply)
        except Broken as error:
            raise NotSent(str(error)) from error
        except BaseException:  # cancelled, too
            link.finish()
            raise
        return link

    def _check_open(self) -> None:
        if self._is_closed:
            raise NotSent("the client is closed")

    async def close(self) -> None:
        """Close all connections, and return when they are."""
        self._is_closed = True
        ending = [(link, link.whenDisconnected()) for link in self._open if link.is_up]
        for link, _ in ending:
            link.finish()
        for _, gone in ending:  # each is asked for before any can be gone
            await gone

    def rest(self) -> None:
        """Close the connections that nothing is awaited on."""
        for link in [*self._idle, *self._shared.values()]:
            if link.is_up and not link.replyQueue.waiting:
                link.finish()
        self._idle.clear()
