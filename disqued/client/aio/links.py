"""The connections to one node: one for quick commands, one for additions, and one for each fetch that waits.

    quick   ack, working, qlen ...   many at a time, answered in order
    add     ADDJOB                   waits for copies, so that nothing else stands behind it
    fetch   GETJOB                   an idle one, or a new one; idle again after its reply
    seat    a live worker's          its own (`seats`)

    fetch cancelled --> orphan: its reply is still to come --> the next fetch of the same kind adopts it
                                          |
                                          +-- jobs come --> another fetch of the same kind, if one waits
                                                      \\---> else `unclaimed`

So a program that asks with short time-outs of its own, again and again, has one connection and loses no job.  Durations
are seconds.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

import hiredis

from disqued.client.addresses import Access, Address, Socket
from disqued.client.calls import Patience
from disqued.client.commands import Lane, Seat
from disqued.client.errors import NotTrusted, NoWorker, StaleWorker, server_error
from disqued.client.failures import Broken, NotSent
from disqued.client.renewal import Renewed
from disqued.client.seats import take_a_seat
from disqued.client.ssl_context import BROKE_OFF, make_context, refusal, why_not

#: Takes a reply that no caller waits for any more.
Unclaimed = Callable[[object], None]
#: Words of a fetch before those that say what it asks for: GETJOB TIMEOUT milliseconds.
_FETCH_HEAD: Final = 3


class _Waiting:
    """A command that was sent: who waits for its reply, and until when."""

    def __init__(self, answer: "asyncio.Future[object]", too_long: asyncio.TimerHandle) -> None:
        self.answer = answer
        self.too_long = too_long


class Link(asyncio.Protocol):
    """One connection: replies come in the order of the commands."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader(replyError=server_error)
        self._waiting: deque[_Waiting] = deque()
        self._transport: Any = None
        self._why = ""
        self._unclaimed: Unclaimed | None = None
        self._loop = asyncio.get_running_loop()
        self._gone: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_up(self) -> bool:
        """Whether a command can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_idle(self) -> bool:
        """Whether no reply is awaited."""
        return not self._waiting

    @property
    def is_awaited(self) -> bool:
        """Whether a caller waits for the reply to the last command."""
        return self.is_up and bool(self._waiting) and not self._waiting[-1].answer.done()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                self._answered(reply)
        except hiredis.ProtocolError as error:
            self.end(f"the server speaks another protocol ({error})")

    def _answered(self, reply: object) -> None:
        if not self._waiting:
            self.end("a reply came that no command has")
            return
        waiting = self._waiting.popleft()
        waiting.too_long.cancel()
        if waiting.answer.cancelled():
            if self._unclaimed is not None:
                self._unclaimed(reply)
        elif isinstance(reply, Exception):
            waiting.answer.set_exception(reply)
        else:
            waiting.answer.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        error = (exc and refusal(exc)) or Broken(self._why or (str(exc) if exc else "the node closed the connection"))
        while self._waiting:
            waiting = self._waiting.popleft()
            waiting.too_long.cancel()
            if not waiting.answer.done():
                waiting.answer.set_exception(error)
        if not self._gone.done():
            self._gone.set_result(None)

    # What links do.

    async def ask(self, words: tuple[bytes, ...], limit: float) -> object:
        """Send a command and wait for its reply.  Raises NotSent, Broken, NotTrusted, ServerError."""
        return await self.send(words, limit)

    def send(self, words: tuple[bytes, ...], limit: float) -> "asyncio.Future[object]":
        """Send a command; the reply comes by the future, which fails as `ask` does.  Raises NotSent."""
        if not self.is_up:
            raise NotSent("the connection is closed")
        self._transport.write(hiredis.pack_command(cast("Any", words)))
        too_long = self._loop.call_later(limit, self.end, f"no answer within {limit:g} s")
        answer: asyncio.Future[object] = self._loop.create_future()
        self._waiting.append(_Waiting(answer, too_long))
        return answer

    def orphan(self, unclaimed: Unclaimed) -> None:
        """Give the reply of a cancelled command to `unclaimed`, unless a caller adopts it first."""
        self._unclaimed = unclaimed

    def adopt(self) -> "asyncio.Future[object]":
        """Take over a cancelled command whose reply is still to come."""
        answer: asyncio.Future[object] = self._loop.create_future()
        self._waiting[-1].answer = answer
        return answer

    def hand_over(self, reply: object, unclaimed: Unclaimed) -> None:
        """Answer the last command with a reply to another one; its own reply goes to `unclaimed`."""
        waiting = self._waiting[-1]
        waiting.answer.set_result(reply)
        waiting.answer = self._loop.create_future()
        waiting.answer.cancel()
        self._unclaimed = unclaimed

    def finish(self) -> None:
        """Close the connection once everything is written."""
        if self._transport is not None:
            self._transport.close()

    def end(self, why: str) -> None:
        """Break the connection off."""
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()

    async def gone(self) -> None:
        """Wait until the connection is closed."""
        await self._gone


class Way:
    """How connections are opened, to any node."""

    def __init__(self, access: Access, patience: Patience) -> None:
        """Read the files of TLS.  Raises ValueError."""
        self.patience = patience
        self.greetings = access.greetings
        self._tls = access.tls
        self._context: Renewed[ssl.SSLContext] | None = (
            None if access.tls is None else Renewed(access.tls, make_context)
        )

    async def connect(self, address: Address) -> Link:
        """Open a connection, on which nothing was said yet.  Raises NotSent, NotTrusted."""
        try:
            async with asyncio.timeout(self.patience.connect):
                return await self._open(address)
        except BROKE_OFF as error:
            raise NotSent(str(error)) from error
        except ssl.SSLError as error:
            raise NotTrusted(why_not(error)) from error
        except OSError as error:  # TimeoutError is one
            raise NotSent(str(error) or type(error).__name__) from error

    async def _open(self, address: Address) -> Link:
        loop = asyncio.get_running_loop()
        if isinstance(address, Socket):
            _, link = await loop.create_unix_connection(Link, address.path)
            return link
        host, port = address
        if self._tls is None or self._context is None:
            _, link = await loop.create_connection(Link, host, port)
        else:
            name = self._tls.name_of(host)
            _, link = await loop.create_connection(Link, host, port, ssl=self._context.get(), server_hostname=name)
        return link


class Links:
    """The connections to one node."""

    def __init__(self, address: Address, way: Way, unclaimed: Unclaimed) -> None:
        """`unclaimed` takes the replies of cancelled fetches."""
        self._address = address
        self._way = way
        self._unclaimed = unclaimed
        self._shared: dict[Lane, Link] = {}
        self._opening: dict[Lane, asyncio.Task[Link]] = {}
        self._idle: list[Link] = []
        self._orphans: dict[tuple[bytes, ...], Link] = {}  #: by what the cancelled fetch asks for
        self._fetching: dict[tuple[bytes, ...], set[Link]] = {}  #: fetches under way, by what they ask for
        self._seats: dict[bytes, Link] = {}  #: by the ids of live workers
        self._open: set[Link] = set()
        self._is_closed = False

    async def ask(self, lane: Lane, words: tuple[bytes, ...], limit: float) -> object:
        """Send a command and wait for its reply.  Raises NotSent, Broken, NotTrusted, ServerError."""
        if lane is Lane.FETCH:
            return await self._fetch(words, limit)
        link = self._shared.get(lane)
        if link is None or not link.is_up:
            link = await self._opened(lane)
        return await link.ask(words, limit)

    async def ask_seated(self, seat: Seat, words: tuple[bytes, ...], limit: float) -> object:
        """Send a command on the connection of a live worker, and wait for its reply.

        A worker that its node declared dead starts again.  Raises NotSent, Broken, NotTrusted, ServerError.
        """
        link = self._seats.get(seat.id)
        if link is None or not link.is_up:
            link = await self._sit(seat)
        try:
            return await self._cancellable(link, words, limit)
        except (NoWorker, StaleWorker):
            self.leave(seat)
            return await self._cancellable(await self._sit(seat), words, limit)

    async def _cancellable(self, link: Link, words: tuple[bytes, ...], limit: float) -> object:
        answer = link.send(words, limit)
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.cancelled():
                link.orphan(self._unclaimed)
            elif answer.exception() is None:  # it came in the same turn of the loop
                self._unclaimed(answer.result())
            raise

    async def _sit(self, seat: Seat) -> Link:
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
        if link is not None:
            link.finish()

    async def _opened(self, lane: Lane) -> Link:
        """Wait for a new shared connection; all who ask meanwhile get the same one."""
        opening = self._opening.get(lane)
        if opening is None:
            opening = self._opening[lane] = asyncio.get_running_loop().create_task(self._open_shared(lane))
            opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(opening)

    async def _open_shared(self, lane: Lane) -> Link:
        try:
            self._shared[lane] = link = await self._connect()
        finally:
            del self._opening[lane]
        return link

    async def _fetch(self, words: tuple[bytes, ...], limit: float) -> object:
        wanted = words[_FETCH_HEAD:]
        orphan = self._orphans.pop(wanted, None)
        if orphan is not None and orphan.is_up and not orphan.is_idle:
            link, answer = orphan, orphan.adopt()
        else:
            self._idle = [each for each in self._idle if each.is_up]
            link = self._idle.pop() if self._idle else await self._connect()
            answer = link.send(words, limit)
        peers = self._fetching.setdefault(wanted, set())
        peers.add(link)
        try:
            reply = await answer
        except asyncio.CancelledError:
            if answer.cancelled():
                self._leave_orphan(link, wanted)
            else:  # the reply came in the same turn of the loop
                self._orphan_answered(link, wanted, answer.exception() or answer.result())
            raise
        except BaseException:
            self._give(link)
            raise
        finally:
            peers.discard(link)
            if not peers:
                self._fetching.pop(wanted, None)
        if link.is_idle:  # else another fetch's reply was handed over, and its own is still to come
            self._give(link)
        return reply

    def _leave_orphan(self, link: Link, wanted: tuple[bytes, ...]) -> None:
        link.orphan(partial(self._orphan_answered, link, wanted))
        self._orphans.setdefault(wanted, link)

    def _orphan_answered(self, link: Link, wanted: tuple[bytes, ...], reply: object) -> None:
        """Take the reply to a cancelled fetch: to one that waits for the same, or back to the queue."""
        if self._orphans.get(wanted) is link:
            del self._orphans[wanted]
        self._give(link)
        if isinstance(reply, Exception) or not reply:
            return
        other = next((each for each in self._fetching.get(wanted, ()) if each.is_awaited), None)
        if other is None:
            self._unclaimed(reply)
            return
        other.hand_over(reply, partial(self._orphan_answered, other, wanted))
        self._orphans.setdefault(wanted, other)

    def _give(self, link: Link) -> None:
        if self._is_closed:
            link.finish()
        elif link.is_up:
            self._idle.append(link)

    async def _connect(self) -> Link:
        self._check_open()
        link = await self._way.connect(self._address)
        try:
            self._check_open()
            self._open = {each for each in self._open if each.is_up} | {link}
            for greeting in self._way.greetings:
                await link.ask(greeting, self._way.patience.reply)
        except Broken as error:
            raise NotSent(str(error)) from error
        except BaseException:
            link.finish()
            raise
        return link

    def _check_open(self) -> None:
        if self._is_closed:
            raise NotSent("the client is closed")

    async def close(self) -> None:
        """Close all connections, and return when they are closed."""
        self._is_closed = True
        ending = [link for link in self._open if link.is_up]
        for link in ending:
            link.finish()
        for link in ending:
            await link.gone()

    def rest(self) -> None:
        """Close the connections on which no reply is awaited."""
        for link in [*self._idle, *self._shared.values()]:
            if link.is_idle:
                link.finish()
        self._idle.clear()
