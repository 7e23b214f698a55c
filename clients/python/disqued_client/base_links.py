"""The connections to one node, for the sides whose commands are awaited.

    quick   ack, working, qlen ...   many at a time, answered in order
    add     ADDJOB                   waits for copies, so no other command queues behind it
    fetch   GETJOB                   an idle one, or a new one; idle again after its reply, which is confirmed
    wait    WAITJOB                  as fetch; closed when the caller gives up before the reply
    long    QPURGE, REDRIVE          as wait
    seat    a live worker's          one of its own (`seats`)

A side opens connections, shares a connection that is being opened, and decides about the reply to a cancelled fetch.
Durations are seconds.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from .addresses import Address
from .calls import Patience
from .commands import ASK_FOR_RECEIPTS, ConnectionUse, WorkerIdentity
from .errors import NoWorker, ServerError, StaleWorker
from .failures import ConnectionBroken, NotSent
from .seats import take_a_seat

#: Takes a reply whose caller has gone.
Unclaimed = Callable[[object], None]


class BaseLink(Protocol):
    """One connection."""

    #: Whether its node takes receipts: until it answers one, what it hands out goes back at once; None = not asked.
    confirms: bool | None

    @property
    def receipt(self) -> Awaitable[object] | None:
        """Fires when the receipt that was sent is answered, or can no longer be; None = none was sent."""

    @property
    def is_up(self) -> bool:
        """Whether a command can be sent."""

    @property
    def is_idle(self) -> bool:
        """Whether no reply is outstanding."""

    def ask(self, words: tuple[bytes, ...], limit: float) -> Awaitable[object]:
        """Send a command and wait for its reply.  Raises NotSent, ConnectionBroken, NotTrusted, ServerError."""

    def finish(self) -> None:
        """Close the connection after writing everything."""

    def gone(self) -> Awaitable[object]:
        """Wait until the connection is closed; call it while the connection is up."""


Link = TypeVar("Link", bound=BaseLink)
Link_co = TypeVar("Link_co", bound=BaseLink, covariant=True)


class BaseConnector(Protocol[Link_co]):
    """Opens connections, to any node."""

    patience: Patience
    greetings: tuple[tuple[bytes, ...], ...]

    async def connect(self, address: Address) -> Link_co:
        """Open a connection, before any command.  Raises NotSent, NotTrusted."""


class BaseLinks(ABC, Generic[Link]):
    """The connections to one node."""

    def __init__(self, address: Address, way: BaseConnector[Link], unclaimed: Unclaimed) -> None:
        """`unclaimed` takes the replies of cancelled fetches."""
        self._address = address
        self._way = way
        self._unclaimed = unclaimed
        self._shared: dict[ConnectionUse, Link] = {}
        self._idle: list[Link] = []
        self._seats: dict[bytes, Link] = {}  #: by the ids of live workers
        self._open: set[Link] = set()
        self._is_closed = False

    # What a side supplies.

    @abstractmethod
    def _opened(self, lane: ConnectionUse) -> Awaitable[Link]:
        """Wait for a new shared connection; concurrent callers get the same one."""

    @abstractmethod
    async def _fetch(self, words: tuple[bytes, ...], limit: float) -> object:
        """Fetch jobs on a connection that nothing else uses meanwhile."""

    @abstractmethod
    def _ask_seated(self, link: Link, words: tuple[bytes, ...], limit: float) -> Awaitable[object]:
        """Send a command that may be cancelled; its reply then goes to `unclaimed`."""

    # What all sides have.

    async def ask(self, lane: ConnectionUse, words: tuple[bytes, ...], limit: float) -> object:
        """Send a command and wait for its reply.  Raises NotSent, ConnectionBroken, NotTrusted, ServerError."""
        if lane is ConnectionUse.FETCH:
            return await self._fetch(words, limit)
        if lane in (ConnectionUse.WAIT, ConnectionUse.LONG):
            return await self._wait(words, limit)
        link = self._shared.get(lane)
        if link is None or not link.is_up:
            link = await self._opened(lane)
        return await link.ask(words, limit)

    async def _wait(self, words: tuple[bytes, ...], limit: float) -> object:
        """Send a command that waits, on a connection that nothing else uses meanwhile."""
        link = await self._take_idle()
        try:
            reply = await link.ask(words, limit)
        except ServerError:
            self._give(link)
            raise
        except BaseException:  # cancelled: the next reply on it would be that of this command
            link.finish()
            raise
        self._give(link)
        return reply

    async def ask_seated(self, seat: WorkerIdentity, words: tuple[bytes, ...], limit: float) -> object:
        """Send a command on the connection of a live worker, and wait for its reply.

        A worker that its node declared dead starts again.  Raises NotSent, ConnectionBroken, NotTrusted, ServerError.
        """
        link = self._seats.get(seat.id)
        if link is None or not link.is_up:
            link = await self._sit(seat)
        try:
            return await self._ask_seated(link, words, limit)
        except (NoWorker, StaleWorker):
            self.leave(seat)
            return await self._ask_seated(await self._sit(seat), words, limit)

    async def _sit(self, seat: WorkerIdentity) -> Link:
        """Open the connection of a live worker, which lives as long as it."""
        link = await self._connect()
        await self._greet(link, take_a_seat(seat))
        self._seats[seat.id] = link
        return link

    def leave(self, seat: WorkerIdentity) -> None:
        link = self._seats.pop(seat.id, None)
        if link is not None and link.is_up:
            link.finish()

    async def _take_idle(self) -> Link:
        """Take an idle connection, or open one."""
        self._idle = [each for each in self._idle if each.is_up]
        return self._idle.pop() if self._idle else await self._connect()

    async def _take_to_fetch(self) -> Link:
        """Take an idle connection for a fetch; before its first one the node is asked to take receipts."""
        link = await self._take_idle()
        if link.confirms is None:
            try:
                await link.ask(ASK_FOR_RECEIPTS, self._way.patience.reply)
                link.confirms = True
            except ServerError:
                link.confirms = False  # the user may not
            except ConnectionBroken as error:
                raise NotSent(str(error)) from error
            except BaseException:
                link.finish()
                raise
        return link

    def _give(self, link: Link) -> None:
        if self._is_closed:
            link.finish()
        elif link.is_up:
            self._idle.append(link)

    async def _connect(self) -> Link:
        self._check_open()
        link = await self._way.connect(self._address)
        await self._greet(link, *self._way.greetings)
        return link

    async def _greet(self, link: Link, *greetings: tuple[bytes, ...]) -> None:
        """Send the first commands of a new connection; close it when that fails or is cancelled."""
        try:
            self._check_open()
            self._open = {each for each in self._open if each.is_up} | {link}
            for greeting in greetings:
                await link.ask(greeting, self._way.patience.reply)
        except ConnectionBroken as error:
            raise NotSent(str(error)) from error
        except BaseException:
            link.finish()
            raise

    def _check_open(self) -> None:
        if self._is_closed:
            raise NotSent("the client is closed")

    async def settle(self) -> None:
        """Wait until the receipts that were sent are answered: their jobs would stay with a closed connection."""
        for link in list(self._open):
            if link.receipt is not None:
                await link.receipt

    async def close(self) -> None:
        """Close all connections, and wait until they are closed."""
        self._is_closed = True
        ending = [(link, link.gone()) for link in self._open if link.is_up]
        for link, _ in ending:
            link.finish()
        for _, gone in ending:
            await gone

    def rest(self) -> None:
        for link in [*self._idle, *self._shared.values()]:
            if link.is_idle:
                link.finish()
        self._idle.clear()
