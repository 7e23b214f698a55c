"""The client for Twisted: commands that return Deferreds, on whichever node is best.

    async def main(reactor):
        client = Client(["disqued://10.0.0.1", "disqued://10.0.0.2"], reactor=reactor)
        job_id = await client.add("mail", "to: ann")
        [job] = await client.get("mail")
        await client.ack(job)
        await client.close()

A client connects when it is first asked for something, and again whenever it has to.  A Deferred may be cancelled; a
job that comes for a `get` that was cancelled is given back.  Spans are seconds.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterable
from functools import wraps
from random import Random, SystemRandom
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.logger import Logger

from disqued.client import commands, replies
from disqued.client.addresses import Address, Named, read_nodes, written
from disqued.client.calls import Ask, Call, Patience, Pause
from disqued.client.commands import Command, JobStateName, Page, Seat
from disqued.client.deferred.failures import Broken, NotSent
from disqued.client.deferred.links import Links, Way
from disqued.client.errors import Closed, DisquedError, NotTrusted, ServerError
from disqued.client.nodes import HELLO_EVERY_S, Node, Nodes
from disqued.client.tls import Tls
from disqued.client.values import Span, waiting_seconds

T = TypeVar("T")
P = ParamSpec("P")

_log = Logger(namespace="disqued.client")


def _sends(build: Callable[P, Command[T]]) -> "Callable[Concatenate[Client, P], Deferred[T]]":
    """Make a method of a command: it returns a Deferred of what the command returns."""

    @wraps(build)
    def send(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> "Deferred[T]":
        return self.run(build(*args, **kwargs))

    return send


class Client:
    """A cluster, as one program uses it from a reactor.

    Its methods are the commands of `disqued.client.commands`, and raise ValueError at once for what no node takes;
    their Deferreds fail with the errors of `disqued.client.errors`.
    """

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
        reactor: Any = None,
    ) -> None:
        """Name one node or more; the others are learnt from them.  Raises ValueError.

        A node is named by a URL, `disqued://[[user]:password@]host[:port]`, `disqueds://...` for TLS or
        `unix:///path`, or by `host:port` or `(host, port)`; `redis://` and `rediss://` mean the same.  What is said of
        passwords and TLS holds for all nodes.  When only sockets are named no others are learnt of.  `client_name` is
        what CLIENT LIST of a node calls its connections.

        `patience` is how long a command goes from node to node before it fails with Unreachable; `reply_timeout` when a
        node that says nothing counts as away, beyond what the command waits for.  `reactor` None = the global one.
        """
        if reactor is None:
            from twisted.internet import reactor
        self._reactor: Any = reactor
        addresses, access = read_nodes(nodes, username, password, tls, client_name)
        self._patience = Patience(
            waiting_seconds(patience, "patience"),
            waiting_seconds(reply_timeout, "reply_timeout"),
            waiting_seconds(connect_timeout, "connect_timeout"),
        )
        self._way = Way(access, self._patience, reactor)
        self._nodes = Nodes(addresses, SystemRandom(), waiting_seconds(hello_every, "hello_every"))
        self._links: dict[Address, Links] = {}
        self._last: Node | None = None
        self._is_closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    @property
    def reactor(self) -> Any:
        """The reactor that it runs in."""
        return self._reactor

    @property
    def random(self) -> Random:
        """Where a worker of this client draws from."""
        return SystemRandom()

    @property
    def node(self) -> str:
        """The node that is talked to, as host:port or unix:///path; "" before the first."""
        current = self._nodes.current
        return written(current.address) if current else ""

    @property
    def known_nodes(self) -> set[Address]:
        """The addresses of all nodes that it knows."""
        return self._nodes.addresses()

    @property
    def patience(self) -> float:
        """How long a command goes from node to node, in seconds."""
        return self._patience.total

    def now(self) -> float:
        """Tell the time that its machines go by, in seconds."""
        return time.monotonic()

    add = _sends(commands.add)
    get = _sends(commands.get)
    ack = _sends(commands.ack)
    fast_ack = _sends(commands.fast_ack)
    nack = _sends(commands.nack)
    working = _sends(commands.working)
    enqueue = _sends(commands.enqueue)
    dequeue = _sends(commands.dequeue)
    delete = _sends(commands.delete)
    show = _sends(commands.show)
    qlen = _sends(commands.qlen)
    qpeek = _sends(commands.qpeek)
    qstat = _sends(commands.qstat)
    pause = _sends(commands.pause)
    hello = _sends(commands.hello)
    info = _sends(commands.info)
    call = _sends(commands.call)

    def scan_queues(
        self, *, minlen: int | None = None, maxlen: int | None = None, count: int = commands.WALK_COUNT
    ) -> AsyncIterator[bytes]:
        """Walk over the names of the queues of one node: those with `minlen` jobs at least, and `maxlen` at most.

        A queue that is there throughout is met at least once.  Raises Unreachable when the node goes away meanwhile.
        """
        return self._walk(lambda cursor: commands.scan_queues(cursor, minlen=minlen, maxlen=maxlen, count=count))

    def scan_jobs(
        self,
        *,
        queue: bytes | str | None = None,
        states: Iterable[JobStateName] = (),
        count: int = commands.WALK_COUNT,
    ) -> AsyncIterator[bytes]:
        """Walk over the ids of the jobs of one node: those of a queue, and in some of the states.

        A job that is there throughout is met at least once.  Raises Unreachable when the node goes away meanwhile.
        """
        wanted = tuple(states)
        return self._walk(lambda cursor: commands.scan_jobs(cursor, queue=queue, states=wanted, count=count))

    async def _walk(self, page: Callable[[bytes], Command[Page]]) -> AsyncIterator[bytes]:
        cursor, node = b"0", None
        while node is None or cursor != b"0":
            call = self._call(page(cursor), node)
            cursor, found = await self._carry_out(call)
            node = call.node
            for each in found:
                yield each

    # How a command goes its way.

    def run(
        self, command: Command[T], patience: float | None = None, wanted: Callable[[], bool] | None = None
    ) -> "Deferred[T]":
        """Carry out a command that is made already, with another patience than usual if need be.

        While it goes from node to node `wanted` is asked now and then; when it says no, the Deferred fails with Closed.
        """
        return Deferred.fromCoroutine(self._carry_out(self._call(command, patience=patience), wanted))

    def _call(self, command: Command[T], pinned: Node | None = None, patience: float | None = None) -> Call[T]:
        usual = self._patience
        return Call(command, self._nodes, usual if patience is None else usual.of(patience), self.now(), pinned)

    async def _carry_out(self, call: Call[T], wanted: Callable[[], bool] | None = None) -> T:
        while True:
            if wanted is not None and not wanted():
                raise Closed("nobody wants it any more")
            if self._is_closed:
                raise Closed("the client is closed")
            match call.next(self.now()):
                case Pause(seconds):
                    await deferLater(self._reactor, seconds, lambda: None)
                case Ask() as ask:
                    if await self._ask(call, ask):
                        return call.answer()

    async def _ask(self, call: Call[T], ask: Ask) -> bool:
        """Ask a node; say whether the command is done."""
        try:
            links = self._links_to(ask.node)
            if ask.seat is None:
                reply = await links.ask(ask.lane, ask.words, ask.limit, self._unclaimed)
            else:
                reply = await links.ask_seated(ask.seat, ask.words, ask.limit, self._unclaimed)
        except NotSent as error:
            call.not_sent(error, self.now())
        except Broken as error:
            call.broken(error, self.now())
        except NotTrusted as error:
            call.unfit(error, self.now())
        except ServerError as error:
            call.refused(error, self.now())
        else:
            return call.answered(reply, self.now())
        return False

    def _links_to(self, node: Node) -> Links:
        links = self._links.get(node.address)
        if links is None:
            links = Links(node.address, self._way)
            self._links[node.address] = links
        current = self._nodes.current
        if self._last is not current:
            if self._last is not None and self._last.address in self._links:
                self._links[self._last.address].rest()
            self._last = current
        return links

    def _unclaimed(self, reply: object) -> None:
        """Give back the jobs of a fetch that was cancelled before they came."""
        jobs = replies.read_jobs(reply, b"")
        if jobs and not self._is_closed:
            self.nack(*jobs).addErrback(self._not_given_back)

    @staticmethod
    def _not_given_back(failure: Any) -> None:
        failure.trap(DisquedError)
        _log.warn("jobs of a cancelled get come back by their retry time only: {why}", why=failure.getErrorMessage())

    def leave(self, seat: Seat) -> None:
        """Close the connections of a live worker."""
        for links in self._links.values():
            links.leave(seat)

    def close(self) -> "Deferred[None]":
        """Close all connections; what is under way fails with Closed or Uncertain."""
        return Deferred.fromCoroutine(self._close())

    async def _close(self) -> None:
        self._is_closed = True
        for links in self._links.values():
            await links.close()
