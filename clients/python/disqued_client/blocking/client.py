"""The client for threads: commands as plain calls, on the best node.

    with Client(["disqued://10.0.0.1", "disqued://10.0.0.2"]) as client:
        job_id = client.add("mail", "to: ann")
        [job] = client.get("mail")
        client.ack(job)

A client connects with its first command, and reconnects when necessary.  Threads may share one, and so may forked
processes: each opens its own connections (`forks`).  Durations are seconds.
"""

import threading
from collections.abc import Callable, Coroutine, Iterator
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from .. import commands
from ..addresses import Address, ConnectionOptions
from ..base_client import BaseClient
from ..calls import Send
from ..commands import Command, ConnectionUse, Page, WorkerIdentity
from ..nodes import Node
from ..outcomes import OnProgress
from .connections import Connections, Connector
from .forks import watch
from .stepping import finish, released

T = TypeVar("T")
P = ParamSpec("P")


def _sends(build: Callable[P, Command[T]]) -> "Callable[Concatenate[Client, P], T]":
    """Turn a command into a method, which returns the result of the command."""

    @wraps(build)
    def send(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(build(*args, **kwargs))

    return send


class Client(BaseClient[Connections, Iterator[bytes]]):
    """A cluster, as one program uses it.

    Its methods are the commands of `disqued_client.commands`; they raise ValueError for invalid values, and the
    errors of `disqued_client.errors`.
    """

    def _prepare(self, access: ConnectionOptions) -> None:
        self._way = Connector(access, self._patience)
        #: Held while the core runs, released while it waits (`stepping`).
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._forking = _Forking(self)
        watch(self._forking)

    def _connections_of(self, address: Address) -> Connections:
        return Connections(address, self._way)

    async def _pause(self, seconds: float) -> None:
        with released(self._lock):
            self._closing.wait(seconds)

    async def _exchange(self, connections: Connections, ask: Send) -> object:
        with released(self._lock):
            if ask.seat is None:
                return connections.ask(ask.words, ask.limit, fetches=ask.lane is ConnectionUse.FETCH)
            return connections.ask_seated(ask.seat, ask.words, ask.limit)

    async def _tell(self, progress: OnProgress, value: bytes) -> None:
        with released(self._lock):
            progress(value)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def known_nodes(self) -> set[Address]:
        with self._lock:
            return super().known_nodes

    add = _sends(commands.add)
    get = _sends(commands.get)
    ack = _sends(commands.ack)
    fast_ack = _sends(commands.fast_ack)
    nack = _sends(commands.nack)
    working = _sends(commands.working)
    enqueue = _sends(commands.enqueue)
    dequeue = _sends(commands.dequeue)
    delete = _sends(commands.delete)
    cancel = _sends(commands.cancel)
    redrive = _sends(commands.redrive)
    purge = _sends(commands.purge)
    policy = _sends(commands.policy)
    set_policy = _sends(commands.set_policy)
    unset_policy = _sends(commands.unset_policy)
    wait_jobs = _sends(commands.wait_jobs)
    outcome = _sends(commands.outcome)
    show = _sends(commands.show)
    qlen = _sends(commands.qlen)
    qpeek = _sends(commands.qpeek)
    qstat = _sends(commands.qstat)
    slots = _sends(commands.slots)
    pause = _sends(commands.pause)
    throttle = _sends(commands.throttle)
    set_schedule = _sends(commands.set_schedule)
    schedule = _sends(commands.schedule)
    schedules = _sends(commands.schedules)
    delete_schedule = _sends(commands.delete_schedule)
    pause_schedule = _sends(commands.pause_schedule)
    resume_schedule = _sends(commands.resume_schedule)
    fire_schedule = _sends(commands.fire_schedule)
    next_of_schedule = _sends(commands.next_of_schedule)
    hello = _sends(commands.hello)
    info = _sends(commands.info)
    call = _sends(commands.call)

    def _walk(self, page: Callable[[bytes], Command[Page]]) -> Iterator[bytes]:
        cursor: bytes = b"0"
        node: Node | None = None
        while node is None or cursor != b"0":
            with self._lock:
                cursor, found, node = finish(self._page(page, cursor, node))
            yield from found

    def run(self, command: Command[T], patience: float | None = None, wanted: Callable[[], bool] | None = None) -> T:
        return self._begin(self._run(command, patience, wanted))

    async def _run(self, command: Command[T], patience: float | None, wanted: Callable[[], bool] | None) -> T:
        return await self._carry_out(self._call(command, patience=patience), wanted)

    def _begin(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            return finish(work)

    def leave(self, seat: WorkerIdentity) -> None:
        with self._lock:
            super().leave(seat)

    def _begin_anew(self) -> None:
        """Leave the connections to the parent process."""
        inherited, self._connections = self._connections, {}
        for connections in inherited.values():
            connections.abandon()
        self._closing = threading.Event()
        if self._is_closed:
            self._closing.set()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close all connections; commands under way in other threads end with their reply, or raise Closed."""
        self._is_closed = True
        self._closing.set()
        with self._lock:
            for connections in self._connections.values():
                connections.close()


class _Forking:
    """A client at forks (`forks.Forked`)."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def hold(self) -> None:
        self._client._lock.acquire()

    def release(self) -> None:
        self._client._lock.release()

    def begin_anew(self) -> None:
        self._client._begin_anew()
