"""The connections to one node: one for what is answered at once, one for additions, and one for each fetch that waits.

    quick   ack, working, looks ...      many at a time, answered in order
    add     ADDJOB                       waits for copies, so that nothing else stands behind it
    fetch   GETJOB                       taken from those that are idle, given back when its reply is there

The protocol is txredisapi's; values stay bytes, and a reply that does not come in time ends the connection.

A fetch whose caller has gone away is still answered: the jobs that come are handed to `unclaimed`.  Spans are seconds.
"""

from collections.abc import Callable
from typing import Any, cast

import hiredis
import txredisapi  # type: ignore[import-untyped]
from twisted.internet.defer import CancelledError, Deferred, DeferredLock
from twisted.internet.endpoints import HostnameEndpoint
from twisted.internet.protocol import Factory
from twisted.python.failure import Failure

from disqued.client.calls import Patience
from disqued.client.commands import Lane
from disqued.client.errors import ServerError, server_error
from disqued.client.nodes import Address

#: Takes a reply that nobody waits for any more.
Unclaimed = Callable[[object], None]


class NotSent(Exception):
    """The node could not be reached: nothing was sent."""


class Broken(Exception):
    """The connection broke after the command was sent."""


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


class Links:
    """The connections to one node."""

    def __init__(self, address: Address, password: bytes | None, patience: Patience, reactor: Any) -> None:
        self._password = password
        self._patience = patience
        self._reactor = reactor
        self._endpoint = HostnameEndpoint(reactor, *address, timeout=patience.connect)
        self._factory = Factory.forProtocol(lambda: Link(reactor))
        self._factory.noisy = False
        self._shared: dict[Lane, Link] = {}
        self._opening: dict[Lane, DeferredLock] = {lane: DeferredLock() for lane in (Lane.QUICK, Lane.ADD)}
        self._idle: list[Link] = []
        self._open: set[Link] = set()
        self._is_closed = False

    async def ask(
        self, lane: Lane, words: tuple[bytes, ...], limit: float, unclaimed: Unclaimed | None = None
    ) -> object:
        """Send a command and wait for its reply.  Raises NotSent, Broken, ServerError."""
        if lane is Lane.FETCH:
            return await self._fetch(words, limit, unclaimed)
        link = self._shared.get(lane)
        if link is None or not link.is_up:
            link = await self._opening[lane].run(self._shared_link, lane)
        return await link.ask(words, limit)

    async def _shared_link(self, lane: Lane) -> Link:
        link = self._shared.get(lane)
        if link is None or not link.is_up:
            link = self._shared[lane] = await self._connect()
        return link

    async def _fetch(self, words: tuple[bytes, ...], limit: float, unclaimed: Unclaimed | None) -> object:
        idle = [link for link in self._idle if link.is_up]
        link = idle.pop() if idle else await self._connect()
        self._idle = idle

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

    def _give(self, link: Link) -> None:
        if self._is_closed:
            link.finish()
        elif link.is_up:
            self._idle.append(link)

    async def _connect(self) -> Link:
        if self._is_closed:
            raise NotSent("the client is closed")
        try:
            link = cast("Link", await self._endpoint.connect(self._factory))
        except Exception as error:
            raise NotSent(str(error) or type(error).__name__) from error
        self._open = {each for each in self._open if each.is_up} | {link}
        if self._password is not None:
            try:
                await link.ask((b"AUTH", self._password), self._patience.reply)
            except Broken as error:
                raise NotSent(str(error)) from error
            except ServerError:
                link.end("the node refused the password")
                raise
        return link

    async def close(self) -> None:
        """Close all connections, and return when they are."""
        self._is_closed = True
        for link in [link for link in self._open if link.is_up]:
            gone = link.whenDisconnected()
            link.finish()
            await gone

    def rest(self) -> None:
        """Close the connections that nothing is awaited on."""
        for link in [*self._idle, *self._shared.values()]:
            if link.is_up and not link.replyQueue.waiting:
                link.finish()
        self._idle.clear()
