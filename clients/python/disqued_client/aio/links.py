"""The connections to one node in an event loop (`base_links`); no cancelled fetch loses a job.

    fetch cancelled --> orphan: its reply is still to come --> the next fetch of the same kind adopts it
                                          |
                                          +-- jobs come --> another fetch of the same kind, if one waits
                                                      \\---> else `unclaimed`

So a program that fetches repeatedly with short timeouts of its own has one connection and loses no job.  Durations are
seconds.
"""

import asyncio
import ssl
from collections import deque
from functools import partial
from typing import Any, Final, cast

import hiredis

from ..addresses import Address, ConnectionOptions, Socket
from ..base_links import BaseLinks, Unclaimed
from ..calls import Patience
from ..commands import RECEIPT, ConnectionUse
from ..errors import NotTrusted, server_error
from ..failures import ConnectionBroken, NotSent
from ..ssl_context import BROKE_OFF, make_context, refusal, why_not
from ..tls_renewal import RenewedContext

#: Words of a fetch before its queues and options: GETJOB TIMEOUT milliseconds.
_FETCH_HEAD: Final = 3


class _Waiting:
    """A command that was sent: the future of its reply, and its timeout."""

    def __init__(self, answer: "asyncio.Future[object]", too_long: asyncio.TimerHandle, *, confirms: bool) -> None:
        self.answer = answer
        self.too_long = too_long
        self.confirms = confirms  #: a receipt is to be sent for its reply
        self.confirmed: object = None  #: its reply, while the receipt has no answer


class Link(asyncio.Protocol):
    """One connection: replies arrive in the order of the commands."""

    def __init__(self) -> None:
        self.confirms: bool | None = None
        self.receipt: asyncio.Future[object] | None = None
        self._reader = hiredis.Reader(replyError=server_error)
        self._waiting: deque[_Waiting] = deque()
        self._transport: Any = None
        self._why = ""
        self._unclaimed: Unclaimed | None = None
        self._loop = asyncio.get_running_loop()
        self._gone: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_up(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_idle(self) -> bool:
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
        waiting = self._waiting[0]
        if waiting.confirms and reply and not isinstance(reply, Exception):
            waiting.confirms, waiting.confirmed = False, reply
            self.receipt = self._loop.create_future()
            self._write(RECEIPT)
            return
        self._waiting.popleft()
        waiting.too_long.cancel()
        reply = waiting.confirmed or reply
        self._note_receipt()
        if waiting.answer.cancelled():
            if self._unclaimed is not None:
                self._unclaimed(reply)
        elif isinstance(reply, Exception):
            waiting.answer.set_exception(reply)
        else:
            waiting.answer.set_result(reply)

    def _note_receipt(self) -> None:
        if self.receipt is not None and not self.receipt.done():
            self.receipt.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._note_receipt()
        error = (exc and refusal(exc)) or ConnectionBroken(
            self._why or (str(exc) if exc else "the node closed the connection")
        )
        while self._waiting:
            waiting = self._waiting.popleft()
            waiting.too_long.cancel()
            if not waiting.answer.done():
                waiting.answer.set_exception(error)
        if not self._gone.done():
            self._gone.set_result(None)

    # What `Links` calls.

    async def ask(self, words: tuple[bytes, ...], limit: float) -> object:
        return await self.send(words, limit)

    def send(self, words: tuple[bytes, ...], limit: float, *, confirms: bool = False) -> "asyncio.Future[object]":
        """Send a command; returns a future of the reply, which fails as `ask` does.  Raises NotSent.

        With `confirms` a reply with jobs counts once its receipt is answered.
        """
        if not self.is_up:
            raise NotSent("the connection is closed")
        self._write(words)
        too_long = self._loop.call_later(limit, self.end, f"no answer within {limit:g} s")
        answer: asyncio.Future[object] = self._loop.create_future()
        self._waiting.append(_Waiting(answer, too_long, confirms=confirms))
        return answer

    def _write(self, words: tuple[bytes, ...]) -> None:
        self._transport.write(hiredis.pack_command(cast("Any", words)))

    def orphan(self, unclaimed: Unclaimed) -> None:
        """Pass the reply to a cancelled command to `unclaimed`, unless a caller adopts it first."""
        self._unclaimed = unclaimed

    def adopt(self) -> "asyncio.Future[object]":
        """Take over a cancelled command whose reply is outstanding."""
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
        if self._transport is not None:
            self._transport.close()

    def end(self, why: str) -> None:
        """Abort the connection."""
        self._why = self._why or why
        if self._transport is not None:
            self._transport.abort()

    def gone(self) -> "asyncio.Future[None]":
        return self._gone


class Connector:
    """Opens connections, to any node."""

    def __init__(self, access: ConnectionOptions, patience: Patience) -> None:
        """Read the TLS files.  Raises ValueError."""
        self.patience = patience
        self.greetings = access.greetings
        self._tls = access.tls
        self._context = None if access.tls is None else RenewedContext(access.tls, make_context)

    async def connect(self, address: Address) -> Link:
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


class Links(BaseLinks[Link]):
    """The connections to one node."""

    def __init__(self, address: Address, way: Connector, unclaimed: Unclaimed) -> None:
        super().__init__(address, way, unclaimed)
        self._opening: dict[ConnectionUse, asyncio.Task[Link]] = {}
        self._orphans: dict[tuple[bytes, ...], Link] = {}  #: by the queues and options of the cancelled fetch
        self._fetching: dict[tuple[bytes, ...], set[Link]] = {}  #: fetches under way, by their queues and options

    async def _ask_seated(self, link: Link, words: tuple[bytes, ...], limit: float) -> object:
        answer = link.send(words, limit)
        try:
            return await answer
        except asyncio.CancelledError:
            if answer.cancelled():
                link.orphan(self._unclaimed)
            elif answer.exception() is None:  # the reply came in the same turn of the loop
                self._unclaimed(answer.result())
            raise

    async def _opened(self, lane: ConnectionUse) -> Link:
        opening = self._opening.get(lane)
        if opening is None:
            opening = self._opening[lane] = asyncio.get_running_loop().create_task(self._open_shared(lane))
            opening.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(opening)

    async def _open_shared(self, lane: ConnectionUse) -> Link:
        try:
            self._shared[lane] = link = await self._connect()
        finally:
            del self._opening[lane]
        return link

    async def _fetch(self, words: tuple[bytes, ...], limit: float) -> object:
        wanted = words[_FETCH_HEAD:] if words[1] == b"TIMEOUT" else words[1:]
        orphan = self._orphans.pop(wanted, None)
        if orphan is not None and orphan.is_up and not orphan.is_idle:
            link, answer = orphan, orphan.adopt()
        else:
            link = await self._take_to_fetch()
            answer = link.send(words, limit, confirms=bool(link.confirms))
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
        if link.is_idle:  # else another fetch's reply was handed over, and its own is outstanding
            self._give(link)
        return reply

    def _leave_orphan(self, link: Link, wanted: tuple[bytes, ...]) -> None:
        link.orphan(partial(self._orphan_answered, link, wanted))
        self._orphans.setdefault(wanted, link)

    def _orphan_answered(self, link: Link, wanted: tuple[bytes, ...], reply: object) -> None:
        """Pass the reply to a cancelled fetch to one that waits for the same, or to `unclaimed`."""
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
