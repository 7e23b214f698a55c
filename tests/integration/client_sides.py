"""The three clients behind one interface, so that every scenario runs with each; tests await every answer.

The blocking client is used from threads, as its users do; the one for Twisted runs in the reactor of the tests, and the
one for asyncio in an event loop with a thread of its own.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

import disqued.client
import disqued.client.aio
import disqued.client.blocking
from disqued.client import Job
from disqued.client.addresses import Named
from tests.integration.daemon import HOST, LIMIT, Daemon, wait_until

Queues = str | Iterable[str]


def until(condition: Callable[[], Any], what: str) -> "Deferred[Any]":
    """Wait for something while the reactor runs."""
    return deferToThread(wait_until, condition, what, LIMIT)


def address(daemon: Daemon) -> str:
    """Name a node for a client."""
    return f"{HOST}:{daemon.port}"


def said(daemon: Daemon, command: str) -> int:
    """Count how often a daemon was told something."""
    with daemon.redis() as other:
        return int(other.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0))


class Gate:
    """A handler that takes jobs in and lets them end when the test says so."""

    def __init__(self) -> None:
        self.entered: list[bytes] = []
        self._opened = threading.Event()
        self._deferreds: list[Deferred] = []
        self._events: list[Callable[[], object]] = []
        self.cancelled = 0

    def wait(self, job: Job) -> None:
        """The handler of a thread."""
        self.entered.append(job.body)
        assert self._opened.wait(LIMIT)

    def deferred(self, job: Job) -> "Deferred[None]":
        """The handler of a reactor."""
        self.entered.append(job.body)
        waiting: Deferred[None] = Deferred(self._cancel)
        if self._opened.is_set():
            waiting.callback(None)
        else:
            self._deferreds.append(waiting)
        return waiting

    async def awaited(self, job: Job) -> None:
        """The handler of an event loop."""
        self.entered.append(job.body)
        opened, loop = asyncio.Event(), asyncio.get_running_loop()
        self._events.append(lambda: loop.call_soon_threadsafe(opened.set))
        if self._opened.is_set():
            return
        try:
            await opened.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def _cancel(self, waiting: Deferred) -> None:
        self.cancelled += 1
        self._deferreds.remove(waiting)

    def open(self) -> None:
        """Let all end that are in, and all that will come."""
        self._opened.set()
        waiting, self._deferreds = self._deferreds, []
        for each in waiting:
            each.callback(None)
        for set_event in self._events:
            set_event()


@attrs.define
class Side(ABC):
    """One of the two clients, with all that a test makes of it."""

    clients: list[Any] = attrs.field(factory=list)

    async def close(self) -> None:
        """Close every client."""
        for client in self.clients:
            await self.closed(client)

    @abstractmethod
    async def closed(self, client: Any) -> None:
        """Close a client."""

    @abstractmethod
    def waits(self, gate: Gate, job: Job) -> object:
        """Be a handler that waits at a gate."""

    def cancels(self) -> bool:
        """Return whether handlers are cancelled when the grace of their worker is over."""
        return True

    @abstractmethod
    def idle_worker(self, client: Any, queues: Queues, handler: Callable[[Job], object], **options: Any) -> Any:
        """Make a worker."""

    @abstractmethod
    def ran(self, worker: Any) -> "Deferred[None]":
        """Start a worker; the Deferred fires when it has stopped."""

    def worker(self, client: Any, queues: Queues, handler: Callable[[Job], object], **options: Any) -> Any:
        """Make a worker and start it; `ended` fires when it has stopped."""
        worker = self.idle_worker(client, queues, handler, **options)
        worker.ended = self.ran(worker)
        return worker


class DeferredSide(Side):
    """The client for Twisted."""

    name = "deferred"

    def client(self, *nodes: Named, **options: Any) -> Any:
        """Make a client."""
        self.clients.append(disqued.client.Client(nodes, **options))
        return self.clients[-1]

    async def closed(self, client: Any) -> None:
        await client.close()

    async def walk(self, found: AsyncIterator[bytes]) -> list[bytes]:
        """Walk to the end."""
        return [each async for each in found]

    def idle_worker(self, client: Any, queues: Queues, handler: Callable[[Job], object], **options: Any) -> Any:
        """Make a worker."""
        return disqued.client.Worker(client, queues, handler, **options)

    def waits(self, gate: Gate, job: Job) -> object:
        return gate.deferred(job)

    def ran(self, worker: Any) -> "Deferred[None]":
        """Start a worker; the Deferred fires when it has stopped."""
        return worker.run()


class _Threaded:
    """A client that waits, each command in a thread."""

    def __init__(self, client: disqued.client.blocking.Client) -> None:
        self.inner = client

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name.startswith("scan_") or not callable(found):
            return found
        return lambda *args, **kwargs: deferToThread(found, *args, **kwargs)


class BlockingSide(Side):
    """The client that waits."""

    name = "blocking"

    def client(self, *nodes: Named, **options: Any) -> Any:
        """Make a client."""
        self.clients.append(_Threaded(disqued.client.blocking.Client(nodes, **options)))
        return self.clients[-1]

    async def closed(self, client: Any) -> None:
        client.inner.close()

    async def walk(self, found: Any) -> list[bytes]:
        """Walk to the end."""
        return await deferToThread(list, found)

    def idle_worker(self, client: Any, queues: Queues, handler: Callable[[Job], object], **options: Any) -> Any:
        """Make a worker."""
        return disqued.client.blocking.Worker(client.inner, queues, handler, **options)

    def waits(self, gate: Gate, job: Job) -> object:
        return gate.wait(job)

    def cancels(self) -> bool:
        return False

    def ran(self, worker: Any) -> "Deferred[None]":
        """Start a worker; the Deferred fires when it has stopped."""
        return deferToThread(worker.run)


class _Loop:
    """An event loop in a thread of its own, which ends with `stop`."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def begin(self, work: Coroutine[Any, Any, Any]) -> "Deferred[Any]":
        """Begin a coroutine at once, in the order of these calls."""
        from twisted.internet import reactor

        ended: Deferred[Any] = Deferred()

        def tell(done: Any) -> None:
            error = done.exception()
            ended.callback(done.result()) if error is None else ended.errback(error)

        running = asyncio.run_coroutine_threadsafe(work, self.loop)
        running.add_done_callback(lambda done: reactor.callFromThread(tell, done))  # type: ignore[attr-defined]
        return ended

    def stop(self) -> None:
        """End the loop."""
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


class _Looped:
    """A client for asyncio, each command in the loop."""

    def __init__(self, inner: disqued.client.aio.Client, loop: _Loop) -> None:
        self.inner = inner
        self.loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name.startswith("scan_") or not callable(found):
            return found
        return lambda *args, **kwargs: self.loop.begin(found(*args, **kwargs))


class _LoopedWorker:
    """A worker for asyncio, which the tests stop from the reactor's thread."""

    def __init__(self, inner: disqued.client.aio.Worker, loop: _Loop) -> None:
        self.inner = inner
        self.loop = loop
        self.ended: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def stop(self) -> None:
        """Stop the worker, in its loop."""
        if threading.current_thread() is self.loop.thread:
            self.inner.stop()
        else:
            self.loop.loop.call_soon_threadsafe(self.inner.stop)


@attrs.define
class AioSide(Side):
    """The client for asyncio."""

    name = "aio"
    loop: _Loop = attrs.field(factory=_Loop)

    async def close(self) -> None:
        """Close every client, and end the loop."""
        await super().close()
        await deferToThread(self.loop.stop)

    def client(self, *nodes: Named, **options: Any) -> Any:
        """Make a client."""
        self.clients.append(_Looped(disqued.client.aio.Client(nodes, **options), self.loop))
        return self.clients[-1]

    async def closed(self, client: Any) -> None:
        await client.close()

    async def walk(self, found: AsyncIterator[bytes]) -> list[bytes]:
        """Walk to the end."""

        async def walked() -> list[bytes]:
            return [each async for each in found]

        return await self.loop.begin(walked())

    def idle_worker(self, client: Any, queues: Queues, handler: Callable[[Job], object], **options: Any) -> Any:
        """Make a worker."""
        return _LoopedWorker(disqued.client.aio.Worker(client.inner, queues, handler, **options), self.loop)

    def waits(self, gate: Gate, job: Job) -> object:
        return gate.awaited(job)

    def ran(self, worker: Any) -> "Deferred[None]":
        """Start a worker; the Deferred fires when it has stopped."""
        return self.loop.begin(worker.inner.run())
