"""The client core: every command's way from node to node, written once as coroutines for three runners.

    Client of a side      blocking (threads)      deferred (Twisted)      aio (asyncio)
          |
    BaseClient._carry_out -- Call says: ask this node | pause | raise
          |        |
          |        +--> _pause(seconds)     a primitive of the side
          +----------> _exchange(ask)       a primitive of the side: send, wait for the reply

A side supplies the primitives and runs the coroutine: Twisted as a Deferred, asyncio directly, threads by stepping it
(`blocking.stepping`), where primitives block and the coroutine never suspends.  On every side the core runs alone
between two primitives, so it needs no locks of its own.  Times are seconds.
"""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from math import inf
from random import Random, SystemRandom
from time import monotonic
from typing import Any, Generic, Protocol, Self, TypedDict, TypeVar, cast

from . import commands, tracing
from .addresses import Address, ConnectionOptions, Named, read_nodes, written
from .calls import Call, Patience, Send, Wait
from .commands import WALK_COUNT, AnyJob, Command, JobStateName, Page, WorkerIdentity
from .errors import Closed, DisquedError, NotTrusted, ServerError
from .failures import ConnectionBroken, NotSent
from .job import Job
from .nodes import HELLO_EVERY_S, Node, Nodes
from .outcomes import AddedJob, OnProgress, Outcome
from .replies import read_jobs
from .tasks import AT_MOST_ONCE
from .tls import Tls
from .values import Span, waiting_seconds

T = TypeVar("T")


class Options(TypedDict, total=False):
    """The options of `BaseClient`, for sides that add their own."""

    username: bytes | str | None
    password: bytes | str | None
    tls: Tls | None
    client_name: bytes | str
    patience: Span
    reply_timeout: Span
    connect_timeout: Span
    hello_every: Span


class NodeConnections(Protocol):
    """The connections to one node, as the core uses them."""

    def leave(self, seat: WorkerIdentity) -> None:
        """Close the connection of a live worker, if there is one."""

    def rest(self) -> None:
        """Close the connections that are idle."""


Connections = TypeVar("Connections", bound=NodeConnections)
Walk = TypeVar("Walk")  #: an iterator, or an asynchronous one


class BaseClient(ABC, Generic[Connections, Walk]):
    """A cluster, as one program uses it; each side turns the commands into methods."""

    outcome: Callable[..., Any]  #: one of them

    def __init__(
        self,
        nodes: Named | Iterable[Named] = "disqued://127.0.0.1:7711",
        *,
        username: bytes | str | None = None,
        password: bytes | str | None = None,
        tls: Tls | None = None,
        client_name: bytes | str = b"",
        patience: Span = 30,
        reply_timeout: Span = 5,
        connect_timeout: Span = 5,
        hello_every: Span = HELLO_EVERY_S,
    ) -> None:
        """Take one or more nodes; the client learns the others from them.  Raises ValueError.

        A URL names a node: `disqued://[[user]:password@]host[:port]`, `disqueds://...` for TLS or `unix:///path`; so
        do `host:port` and `(host, port)`.  `redis://` and `rediss://` mean the same.  Passwords and TLS apply to all
        nodes.  With Unix sockets alone the client learns of no other node.  `client_name` is the name of the
        connections in CLIENT LIST.

        `patience` limits how long a command goes from node to node before it fails with Unreachable.  A node that does
        not answer within `reply_timeout`, beyond the command's own wait, counts as unreachable.
        """
        addresses, access = read_nodes(nodes, username, password, tls, client_name)
        self._patience = Patience(
            waiting_seconds(patience, "patience"),
            waiting_seconds(reply_timeout, "reply_timeout"),
            waiting_seconds(connect_timeout, "connect_timeout"),
        )
        self._nodes = Nodes(addresses, SystemRandom(), waiting_seconds(hello_every, "hello_every"))
        self._connections: dict[Address, Connections] = {}
        self._last: Node | None = None
        self._is_closed = False
        self._kept: list[Job] = []  #: at-most-once jobs of cancelled fetches
        self._prepare(access)

    # What a side supplies.

    @abstractmethod
    def _prepare(self, access: ConnectionOptions) -> None:
        """Keep the options of connections.  Raises ValueError for TLS files that cannot be read."""

    @abstractmethod
    def _connections_of(self, address: Address) -> Connections:
        """Make the connections to a node, without opening any."""

    @abstractmethod
    async def _pause(self, seconds: float) -> None:
        """Wait, at most until the client closes."""

    @abstractmethod
    async def _exchange(self, connections: Connections, ask: Send) -> object:
        """Send and wait for the reply.  Raises NotSent, ConnectionBroken, NotTrusted, ServerError."""

    @abstractmethod
    async def _tell(self, progress: OnProgress, value: bytes) -> None:
        """Call a function of the program with the progress of a job, and wait until it has returned."""

    @abstractmethod
    def _walk(self, page: Callable[[bytes], Command[Page]]) -> Walk:
        """Yield the items of a scan, page by page; each page returns the cursor of the next one."""

    @abstractmethod
    def _begin(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine of the core; returns its result, or a promise of it as the side has them."""

    @abstractmethod
    def run(
        self, command: Command[Any], patience: float | None = None, wanted: Callable[[], bool] | None = None
    ) -> Any:
        """Carry out a command, within `patience` seconds if given.

        Before each attempt it calls `wanted`; when that returns False the command fails with Closed.
        """

    # What all sides have.

    def wait(self, job: AnyJob, timeout: Span | None = None, progress: OnProgress | None = None) -> Any:
        """Wait until a job is over; returns its result, None if it has none.

        `progress` is called with the progress of the job, and again when that changes, with the latest value; in
        asyncio and in Twisted it may be a coroutine function.  What it raises ends the wait.

        Raises JobDead, JobCancelled, JobExpired, ResultUnknown, and WaitTimeout after `timeout` (None = no limit).
        """
        return self._begin(self._result_of(commands.outcome(job, timeout), progress))

    async def _result_of(self, command: Command[Outcome], progress: OnProgress | None) -> bytes | None:
        if progress is None:
            return (await self._carry_out(self._call(command))).result()
        ends_at = inf if command.waits is None else self.now() + command.waits
        seen: bytes | None = None
        waits: float | None = 0.0
        while True:
            outcome = await self._carry_out(self._call(commands.progress_or_outcome(command, seen, waits)))
            left = ends_at - self.now()
            if outcome.is_over or (left <= 0 and outcome.value in (None, seen)):
                return outcome.result()
            waits = None if left == inf else max(left, 0.0)
            if outcome.value not in (None, seen):
                seen = outcome.value
                await self._tell(progress, seen)
                waits = 0.0  # it may have changed meanwhile

    def scan_queues(self, *, minlen: int | None = None, maxlen: int | None = None, count: int = WALK_COUNT) -> Walk:
        """Iterate over the names of one node's queues that have at least `minlen` and at most `maxlen` jobs.

        A queue that exists throughout is returned at least once.  Raises Unreachable when the node goes away meanwhile.
        """
        return self._walk(lambda cursor: commands.scan_queues(cursor, minlen=minlen, maxlen=maxlen, count=count))

    def scan_jobs(
        self,
        *,
        queue: bytes | str | None = None,
        states: JobStateName | Iterable[JobStateName] = (),
        count: int = WALK_COUNT,
    ) -> Walk:
        """Iterate over the ids of one node's jobs, of one queue and in some states if given.

        A job that exists throughout is returned at least once.  Raises Unreachable when the node goes away meanwhile.
        """
        wanted = commands.one_or_more(states)
        return self._walk(lambda cursor: commands.scan_jobs(cursor, queue=queue, states=wanted, count=count))

    @property
    def random(self) -> Random:
        """The random generator of this client's workers."""
        return SystemRandom()

    @property
    def node(self) -> str:
        """The current node, as host:port or unix:///path; "" before the first answer."""
        current = self._nodes.current
        return written(current.address) if current else ""

    @property
    def known_nodes(self) -> set[Address]:
        """The addresses of all known nodes."""
        return self._nodes.addresses()

    @property
    def patience(self) -> float:
        """How long a command may go from node to node, in seconds."""
        return self._patience.total

    def now(self) -> float:
        """Return the monotonic time in seconds."""
        return monotonic()

    def leave(self, seat: WorkerIdentity) -> None:
        """Close the connections of a live worker."""
        for connections in self._connections.values():
            connections.leave(seat)

    def _call(self, command: Command[T], pinned: Node | None = None, patience: float | None = None) -> Call[T]:
        usual = self._patience
        return Call(command, self._nodes, usual if patience is None else usual.of(patience), self.now(), pinned)

    def _carry_out(self, call: Call[T], wanted: Callable[[], bool] | None = None) -> Coroutine[Any, Any, T]:
        """Ask node after node until the command is done.  Raises what `Call` raises, and Closed.

        With OpenTelemetry a job is added in a span.
        """
        asking = self._ask_on(call, wanted)
        return asking if tracing.tracer is None or not call.adds else tracing.sent(call, asking)

    async def _ask_on(self, call: Call[T], wanted: Callable[[], bool] | None) -> T:
        while True:
            if wanted is not None and not wanted():
                raise Closed("the caller no longer wants the result")
            if self._is_closed:
                raise Closed("the client is closed")
            match call.next(self.now()):
                case Wait(seconds):
                    await self._pause(seconds)
                case Send() as ask:
                    if await self._ask(call, ask):
                        return self._answer(call)

    def _answer(self, call: Call[T]) -> T:
        """Return the result of a command that is done; an id of an added job can be waited for."""
        result = call.answer()
        return cast("T", AddedJob(cast("bytes", result), self)) if call.adds else result

    async def _ask(self, call: Call[T], ask: Send) -> bool:
        """Ask one node; return whether the command is done."""
        try:
            reply = await self._exchange(self._connections_to(ask.node), ask)
        except NotSent as error:
            call.not_sent(error, self.now())
        except ConnectionBroken as error:
            call.broken(error, self.now())
        except NotTrusted as error:
            call.unfit(error, self.now())
        except ServerError as error:
            call.refused(error, self.now())
        else:
            return call.answered(reply, self.now())
        return False

    def _connections_to(self, node: Node) -> Connections:
        found = self._connections.get(node.address)
        if found is None:
            found = self._connections[node.address] = self._connections_of(node.address)
        current = self._nodes.current
        if self._last is not current:
            if self._last is not None and self._last.address in self._connections:
                self._connections[self._last.address].rest()
            self._last = current
        return found

    async def _page(
        self, page: Callable[[bytes], Command[Page]], cursor: bytes, node: Node | None
    ) -> tuple[bytes, list[bytes], Node | None]:
        """Read one page of a scan, which stays with one node; returns the next cursor, the page and the node."""
        call = self._call(page(cursor), node)
        following, found = await self._carry_out(call)
        return following, found, call.node

    # Cancelled fetches, on the sides that have cancellation.

    async def _return_unclaimed(self, reply: object) -> None:
        """Give back the jobs of a cancelled fetch, untried; keep at-most-once jobs for the next `get`."""
        jobs = read_jobs(reply, b"")
        if not jobs or self._is_closed:
            return
        with contextlib.suppress(DisquedError):  # else their retry time brings them back
            back = commands.nack(*jobs, untried=True)
            if await self._carry_out(self._call(back)) == len(jobs):
                return
            for job in jobs:
                if await self._carry_out(self._call(commands.working(job))) == AT_MOST_ONCE:
                    self._kept.append(job)

    def _take_kept(self, command: Command[T]) -> list[Job]:
        """Take the kept jobs that match a fetch."""
        if not self._kept or not command.fetches:
            return []
        words = command.words
        queues = words[words.index(b"FROM") + 1 :]
        most = int(words[words.index(b"COUNT") + 1])
        taken = [job for job in self._kept if job.queue in queues][:most]
        self._kept = [job for job in self._kept if job not in taken]
        return taken


class AwaitedClient(BaseClient[Connections, AsyncIterator[bytes]]):
    """A client whose methods are awaited, on an event loop or in a reactor."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @abstractmethod
    def close(self) -> Awaitable[None]:
        """Close all connections."""

    async def _tell(self, progress: OnProgress, value: bytes) -> None:
        told = progress(value)
        if isinstance(told, Awaitable):
            await told

    async def _walk(self, page: Callable[[bytes], Command[Page]]) -> AsyncIterator[bytes]:
        cursor: bytes = b"0"
        node: Node | None = None
        while node is None or cursor != b"0":
            cursor, found, node = await self._page(page, cursor, node)
            for each in found:
                yield each
