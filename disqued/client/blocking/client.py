"""The client that waits: commands as plain calls, on whichever node is best.

    with Client(["disqued://10.0.0.1", "disqued://10.0.0.2"]) as client:
        job_id = client.add("mail", "to: ann")
        [job] = client.get("mail")
        client.ack(job)

A client connects when it is first asked for something, and again whenever it has to.  Many threads may use one, and so
may the processes that are forked: each has connections of its own (`forks`).  Spans are seconds.
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from random import Random, SystemRandom
from typing import Concatenate, ParamSpec, Self, TypeVar

from disqued.client import commands
from disqued.client.addresses import Address, Named, read_nodes, written
from disqued.client.blocking.connections import Broken, Connections, NotSent, Way
from disqued.client.blocking.forks import watch
from disqued.client.calls import Ask, Call, Patience, Pause
from disqued.client.commands import Command, JobStateName, Page, Seat
from disqued.client.errors import Closed, NotTrusted, ServerError
from disqued.client.nodes import HELLO_EVERY_S, Node, Nodes
from disqued.client.tls import Tls
from disqued.client.values import Span, waiting_seconds

T = TypeVar("T")
P = ParamSpec("P")


def _sends(build: Callable[P, Command[T]]) -> "Callable[Concatenate[Client, P], T]":
    """Make a method of a command: it waits for what the command returns."""

    @wraps(build)
    def send(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(build(*args, **kwargs))

    return send


class Client:
    """A cluster, as one program uses it.

    Its methods are the commands of `disqued.client.commands`; they raise ValueError for what no node takes, and the
    errors of `disqued.client.errors`.
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
    ) -> None:
        """Name one node or more; the others are learnt from them.  Raises ValueError.

        A node is named by a URL, `disqued://[[user]:password@]host[:port]`, `disqueds://...` for TLS or
        `unix:///path`, or by `host:port` or `(host, port)`; `redis://` and `rediss://` mean the same.  What is said of
        passwords and TLS holds for all nodes.  When only sockets are named no others are learnt of.  `client_name` is
        what CLIENT LIST of a node calls its connections.

        `patience` is how long a command goes from node to node before it raises Unreachable; `reply_timeout` when a
        node that says nothing counts as away, beyond what the command waits for.
        """
        addresses, access = read_nodes(nodes, username, password, tls, client_name)
        self._patience = Patience(
            waiting_seconds(patience, "patience"),
            waiting_seconds(reply_timeout, "reply_timeout"),
            waiting_seconds(connect_timeout, "connect_timeout"),
        )
        self._way = Way(access, self._patience)
        self._nodes = Nodes(addresses, SystemRandom(), waiting_seconds(hello_every, "hello_every"))
        #: Held while a machine is asked or told something, never while waiting.
        self._lock = threading.Lock()
        self._connections: dict[Address, Connections] = {}
        self._last: Node | None = None
        self._closing = threading.Event()
        self._forking = _Forking(self)
        watch(self._forking)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

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
        with self._lock:
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
    ) -> Iterator[bytes]:
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
    ) -> Iterator[bytes]:
        """Walk over the ids of the jobs of one node: those of a queue, and in some of the states.

        A job that is there throughout is met at least once.  Raises Unreachable when the node goes away meanwhile.
        """
        wanted = tuple(states)
        return self._walk(lambda cursor: commands.scan_jobs(cursor, queue=queue, states=wanted, count=count))

    def _walk(self, page: Callable[[bytes], Command[Page]]) -> Iterator[bytes]:
        cursor, node = b"0", None
        while node is None or cursor != b"0":
            call = self._call(page(cursor), node)
            cursor, found = self._carry_out(call)
            node = call.node
            yield from found

    # How a command goes its way.

    def run(self, command: Command[T], patience: float | None = None, wanted: Callable[[], bool] | None = None) -> T:
        """Carry out a command that is made already, with another patience than usual if need be.

        While it goes from node to node `wanted` is asked now and then; when it says no, Closed is raised.
        """
        return self._carry_out(self._call(command, patience=patience), wanted)

    def _call(self, command: Command[T], pinned: Node | None = None, patience: float | None = None) -> Call[T]:
        usual = self._patience
        return Call(command, self._nodes, usual if patience is None else usual.of(patience), self.now(), pinned)

    def _carry_out(self, call: Call[T], wanted: Callable[[], bool] | None = None) -> T:
        while True:
            if wanted is not None and not wanted():
                raise Closed("nobody wants it any more")
            with self._lock:
                step = call.next(self.now())
            if self._closing.is_set():
                raise Closed("the client is closed")
            match step:
                case Pause(seconds):
                    self._closing.wait(seconds)
                case Ask() as ask:
                    if self._ask(call, ask):
                        return call.answer()

    def _ask(self, call: Call[T], ask: Ask) -> bool:
        """Ask a node; say whether the command is done."""
        try:
            connections = self._connections_to(ask.node)
            if ask.seat is None:
                reply = connections.ask(ask.words, ask.limit)
            else:
                reply = connections.ask_seated(ask.seat, ask.words, ask.limit)
        except NotSent as error:
            with self._lock:
                call.not_sent(error, self.now())
        except Broken as error:
            with self._lock:
                call.broken(error, self.now())
        except NotTrusted as error:
            with self._lock:
                call.unfit(error, self.now())
        except ServerError as error:
            with self._lock:
                call.refused(error, self.now())
        else:
            with self._lock:
                return call.answered(reply, self.now())
        return False

    def _connections_to(self, node: Node) -> Connections:
        with self._lock:
            if node.address not in self._connections:
                self._connections[node.address] = Connections(node.address, self._way)
            last, self._last = self._last, self._nodes.current
            if last is not None and last is not self._last and last.address in self._connections:
                self._connections[last.address].rest()
            return self._connections[node.address]

    def leave(self, seat: Seat) -> None:
        """Close the connections of a live worker."""
        with self._lock:
            known = list(self._connections.values())
        for connections in known:
            connections.leave(seat)

    def _begin_anew(self) -> None:
        """Leave the connections to the process that this one was forked from."""
        inherited, self._connections = self._connections, {}
        for connections in inherited.values():
            connections.abandon()
        is_closed, self._closing = self._closing.is_set(), threading.Event()
        if is_closed:
            self._closing.set()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close all connections; what other threads wait for goes on until its reply, and then raises Closed."""
        self._closing.set()
        with self._lock:
            for connections in self._connections.values():
                connections.close()


class _Forking:
    """A client, as it is seen to at forks (`forks.Forked`)."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def hold(self) -> None:
        self._client._lock.acquire()

    def release(self) -> None:
        self._client._lock.release()

    def begin_anew(self) -> None:
        self._client._begin_anew()
