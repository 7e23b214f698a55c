"""The nodes of a cluster, and many commands at once on a connection to one of them.

    address --> HELLO of the first that answers --> every node that is not away, with its address

    us      piece 1, piece 2     replies 1  piece 3     replies 2  piece 4 ...
    node               replies 1          replies 2          replies 3

An executor makes connections of its own from the texts of the options: sockets do not travel.  At most `pipeline`
commands are under way, in two pieces: while the replies to one are read, the node works on the other.
"""

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Self, TypeAlias, TypeVar

import attrs
import redis

from disqued.client.addresses import Address, read_nodes, written
from disqued.client.blocking.connections import Connector
from disqued.client.calls import Patience
from disqued.client.errors import BadReply, NodeLoading, ServerError, Unreachable, server_error
from disqued.client.job import Topology

T = TypeVar("T")
Word: TypeAlias = bytes | str | int

#: From here on a node has failed, does not answer, or is leaving: it is not asked.
PRIORITY_AWAY: Final = 10
#: What CLIENT LIST of a node shows.
CLIENT_NAME: Final = "disqued-spark"
SCAN_COUNT: Final = 2_000  #: as many ids as one call answers
_AWAY: Final = (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError, OSError)


@attrs.frozen
class NodeAt:
    """A node and where it is reached; it may be pickled."""

    #: 40 hex digits.
    id: str
    address: Address

    @property
    def short_id(self) -> str:
        """The 8 hex digits that the ids of its jobs and the folders of its event log have."""
        return self.id[:8]

    def __str__(self) -> str:
        return f"{self.short_id} at {written(self.address)}"


def pieces(sequence: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Cut a sequence into pieces of at most so many."""
    return (sequence[at : at + size] for at in range(0, len(sequence), size))


@contextmanager
def uncollected() -> Iterator[None]:
    """Leave the collector of cycles off meanwhile: it would walk again and again over replies, which have none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class NodeLink:
    """One connection to a node, for one thread; it closes at the end of a `with`."""

    def __init__(self, address: Address, options: Mapping[str, Any]) -> None:
        """Connect and log in.  Raises Unreachable, NotTrusted, AccessDenied, ServerError."""
        self.address = address
        _, access = read_nodes(options["address"], options["user"], options["password"], client_name=CLIENT_NAME)
        patience = Patience(reply=options["replyTimeout"], connect=options["connectTimeout"])
        way = Connector(access, patience)
        self._pipeline: int = options["pipeline"]
        self._connection = way.connection_to(address)
        try:
            self._connection.connect()
        except _AWAY as error:
            self.close()
            raise self._unreachable(error) from error
        for words in way.greetings:
            self.ask(words)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._connection.disconnect()

    def ask(self, words: Sequence[Word]) -> Any:
        """Send one command and wait for its reply.  Raises Unreachable, ServerError."""
        [reply] = self.ask_all([words])
        if isinstance(reply, ServerError):
            raise reply
        return reply

    def tell(self, command: bytes, ids: Sequence[bytes]) -> None:
        """Send a command for ids, some at a time.  Raises Unreachable, ServerError."""
        for piece in pieces(ids, self._pipeline):
            self.ask([command, *piece])

    def ask_all(self, commands: Sequence[Sequence[Word]]) -> list[Any]:
        """Send commands in pieces; the replies are in their order, a refusal as a ServerError.  Raises Unreachable."""
        replies: list[Any] = []
        waiting = 0
        try:
            for piece in pieces(commands, max(1, self._pipeline // 2)):
                if waiting + len(piece) > self._pipeline:
                    replies.extend(self._read() for _ in range(waiting))
                    waiting = 0
                self._connection.send_packed_command(self._connection.pack_commands(piece), check_health=False)
                replies.extend(self._read() for _ in range(waiting))
                waiting = len(piece)
            replies.extend(self._read() for _ in range(waiting))
        except _AWAY as error:
            self.close()
            raise self._unreachable(error) from error
        except BaseException:  # an interrupt, too: what comes next on it would be the reply to something else
            self.close()
            raise
        return replies

    def _read(self) -> Any:
        try:
            return self._connection.read_response(disable_decoding=True)
        except redis.exceptions.ResponseError as error:
            refusal = server_error(str(error))
            if isinstance(refusal, NodeLoading):  # it is being started, and as good as away
                raise self._unreachable(error) from error
            return refusal

    def _unreachable(self, error: BaseException) -> Unreachable:
        return Unreachable(f"the node at {written(self.address)} does not answer: {error}")


def find_nodes(options: Mapping[str, Any], *, away: bool = False) -> list[NodeAt]:
    """Ask the first node that answers for all that are there, in the order of their ids; `away`: for the others, too.

    Raises Unreachable when none of those that were named answers, and ServerError when one refuses.
    """
    addresses, _ = read_nodes(options["address"], options["user"], options["password"])
    failed = []
    for address in addresses:
        try:
            with NodeLink(address, options) as link:
                return _read_hello(link.ask(["HELLO"]), address, away=away)
        except Unreachable as error:
            failed.append(str(error))
    raise Unreachable(f"no node that the option address names can be reached: {'; '.join(failed)}")


def _read_hello(reply: Any, address: Address, *, away: bool) -> list[NodeAt]:
    try:
        _, own, *rows = reply
        topology = Topology.of(own, rows)
    except (TypeError, ValueError) as error:
        raise BadReply(f"what answers at {written(address)} is no node of disqued: HELLO gave {reply!r}") from error
    found = []
    for node in topology.nodes:
        # A node without a cluster does not know its own address; we do.
        where = address if node.id == topology.id else (node.host, node.port)
        if away or node.id == topology.id or node.priority < PRIORITY_AWAY:
            found.append(NodeAt(node.id.decode(), where))
    return sorted(found, key=lambda node: node.id)


def ask_each(
    nodes: Sequence[NodeAt], options: Mapping[str, Any], ask: Callable[[NodeAt, NodeLink], object]
) -> list[Unreachable]:
    """Do something on a connection to each node, one after the other; those that do not answer are passed over.

    What came of these is returned.  Raises Unreachable when none answers, and what `ask` raises.
    """
    silent: list[Unreachable] = []
    for node in nodes:
        try:
            with NodeLink(node.address, options) as link:
                ask(node, link)
        except Unreachable as error:
            silent.append(error)
    if silent and len(silent) == len(nodes):
        raise silent[0]
    return silent


def scan(link: NodeLink, queue: str | None, states: Sequence[str]) -> dict[bytes, None]:
    """Walk over the jobs of a node: the ids of those in one queue, or in all.  Raises Unreachable, ServerError."""
    words: list[Word] = ["COUNT", SCAN_COUNT, "REPLY", "id"]
    for state in states:
        words += ["STATE", state]
    if queue is not None:
        words += ["QUEUE", queue]
    ids: dict[bytes, None] = {}
    cursor = b"0"
    while True:
        cursor, met = link.ask(["SCAN", "JOB", cursor, *words])
        ids.update(dict.fromkeys(met))
        if int(cursor) == 0:
            return ids
