"""The client for asyncio: commands are coroutines, on the best node.

    async with Client(["disqued://10.0.0.1", "disqued://10.0.0.2"]) as client:
        job_id = await client.add("mail", "to: ann")
        [job] = await client.get("mail")
        await client.ack(job)

A client connects with its first command, and reconnects when necessary.  It belongs to the event loop that runs its
first command.  Any command may be cancelled, as by `asyncio.timeout`.  A job that arrives for a cancelled `get` goes to
the next `get` of the same queues if that is waiting by then, else back to its queue; the client keeps an at-most-once
job for the next `get`.  Durations are seconds.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from .. import commands
from ..addresses import Address, ConnectionOptions
from ..base_client import AwaitedClient
from ..calls import Send
from ..commands import Command
from .links import Connector, Links

T = TypeVar("T")
P = ParamSpec("P")


def _sends(build: Callable[P, Command[T]]) -> "Callable[Concatenate[Client, P], Coroutine[Any, Any, T]]":
    """Turn a command into a method, which raises ValueError at once and returns a coroutine."""

    @wraps(build)
    def send(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, T]:
        return self.run(build(*args, **kwargs))

    return send


class Client(AwaitedClient[Links]):
    """A cluster, as one program uses it from an event loop.

    Its methods are the commands of `disqued_client.commands`; they raise ValueError for invalid values, and the
    errors of `disqued_client.errors`.
    """

    def _prepare(self, access: ConnectionOptions) -> None:
        self._way = Connector(access, self._patience)
        self._returning: set[asyncio.Task[None]] = set()  #: jobs of cancelled fetches, on their way back

    def _connections_of(self, address: Address) -> Links:
        return Links(address, self._way, self._unclaimed)

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def _exchange(self, connections: Links, ask: Send) -> object:
        if ask.seat is None:
            return await connections.ask(ask.lane, ask.words, ask.limit)
        return await connections.ask_seated(ask.seat, ask.words, ask.limit)

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

    async def run(
        self, command: Command[T], patience: float | None = None, wanted: Callable[[], bool] | None = None
    ) -> T:
        if command.fetches and self._returning:
            await asyncio.wait(self._returning)
        if kept := self._take_kept(command):
            return cast("T", kept)
        return await self._carry_out(self._call(command, patience=patience), wanted)

    def _begin(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        return work

    def _unclaimed(self, reply: object) -> None:
        task = asyncio.get_running_loop().create_task(self._return_unclaimed(reply))
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def close(self) -> None:
        """Close all connections, once jobs of cancelled fetches are back; commands under way fail with Closed."""
        for links in self._connections.values():
            await links.settle()
        if self._returning:
            await asyncio.wait(self._returning, timeout=self._patience.reply)
        self._is_closed = True
        for links in self._connections.values():
            await links.close()
