"""The two clients behind one face, so that every scenario is run with each: what is asked for is always awaited.

The client that waits is used from threads, as its users do; the one for Twisted runs in the reactor of the tests.
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import attrs
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

import disqued.client
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

    def _cancel(self, waiting: Deferred) -> None:
        self.cancelled += 1
        self._deferreds.remove(waiting)

    def open(self) -> None:
        """Let all end that are in, and all that will come."""
        self._opened.set()
        waiting, self._deferreds = self._deferreds, []
        for each in waiting:
            each.callback(None)


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
        if isinstance(getattr(handler, "__self__", None), Gate):
            handler = handler.__self__.deferred
        return disqued.client.Worker(client, queues, handler, **options)

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

    def ran(self, worker: Any) -> "Deferred[None]":
        """Start a worker; the Deferred fires when it has stopped."""
        return deferToThread(worker.run)
