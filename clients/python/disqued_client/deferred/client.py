"""The client for Twisted: commands that return Deferreds, on the best node.

    async def main(reactor):
        client = Client(["disqued://10.0.0.1", "disqued://10.0.0.2"], reactor=reactor)
        job_id = await client.add("mail", "to: ann")
        [job] = await client.get("mail")
        await client.ack(job)
        await client.close()

A client connects with its first command, and reconnects when necessary.  A Deferred may be cancelled; the client gives
back the jobs of a cancelled `get`.  Durations are seconds.
"""

from collections.abc import Callable, Coroutine, Iterable
from functools import wraps
from typing import Any, Concatenate, NoReturn, ParamSpec, TypeVar, Unpack, cast

from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import deferLater
from twisted.logger import Logger

from .. import commands
from ..addresses import Address, ConnectionOptions, Named
from ..base_client import AwaitedClient, Options
from ..calls import Call, Send
from ..commands import Command
from ..nodes import Node
from .links import Connector, Links
from .stranded import NO_CONTEXT, check_running

T = TypeVar("T")
P = ParamSpec("P")

_log = Logger(namespace="disqued.client")


def _sends(build: Callable[P, Command[T]]) -> "Callable[Concatenate[Client, P], Deferred[T]]":
    """Turn a command into a method, which returns a Deferred of the result."""

    @wraps(build)
    def send(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> "Deferred[T]":
        return self.run(build(*args, **kwargs))

    return send


class Client(AwaitedClient[Links]):
    """A cluster, as one program uses it from a reactor.

    Its methods are the commands of `disqued_client.commands`, and raise ValueError at once for invalid values;
    their Deferreds fail with the errors of `disqued_client.errors`.
    """

    def __init__(
        self,
        nodes: Named | Iterable[Named] = "disqued://127.0.0.1:7711",
        *,
        reactor: Any = None,
        **options: Unpack[Options],
    ) -> None:
        """Take the nodes and options of `BaseClient`, and a reactor; None means the global one.  Raises ValueError."""
        if reactor is None:
            from twisted.internet import reactor
        self._reactor: Any = reactor
        super().__init__(nodes, **options)

    def _prepare(self, access: ConnectionOptions) -> None:
        self._way = Connector(access, self._patience, self._reactor)

    def _connections_of(self, address: Address) -> Links:
        return Links(address, self._way, self._unclaimed)

    async def _pause(self, seconds: float) -> None:
        await deferLater(self._reactor, seconds, lambda: None)

    async def _exchange(self, connections: Links, ask: Send) -> object:
        if ask.seat is None:
            return await connections.ask(ask.lane, ask.words, ask.limit)
        return await connections.ask_seated(ask.seat, ask.words, ask.limit)

    def _call(self, command: Command[T], pinned: Node | None = None, patience: float | None = None) -> Call[T]:
        check_running(self._reactor)
        return super()._call(command, pinned, patience)

    def __enter__(self) -> NoReturn:
        raise TypeError(NO_CONTEXT)

    def __exit__(self, *error: object) -> None:
        """Exist for `with`, which looks it up before it calls `__enter__`."""

    @property
    def reactor(self) -> Any:
        """The reactor of the client."""
        return self._reactor

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

    def run(
        self, command: Command[T], patience: float | None = None, wanted: Callable[[], bool] | None = None
    ) -> "Deferred[T]":
        if kept := self._take_kept(command):
            return succeed(cast("T", kept))
        return self._begin(self._carry_out(self._call(command, patience=patience), wanted))

    def _begin(self, work: Coroutine[Any, Any, T]) -> "Deferred[T]":
        return Deferred.fromCoroutine(work)

    def _unclaimed(self, reply: object) -> None:
        Deferred.fromCoroutine(self._return_unclaimed(reply)).addErrback(self._not_returned)

    @staticmethod
    def _not_returned(failure: Any) -> None:
        _log.failure("jobs of a cancelled get come back by their retry time only", failure)

    def close(self) -> "Deferred[None]":
        """Close all connections; commands under way fail with Closed or Uncertain."""
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        for links in self._connections.values():
            await links.settle()
        self._is_closed = True
        for links in self._connections.values():
            await links.close()
