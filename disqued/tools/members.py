"""The nodes of a cluster, each asked for itself, and many commands sent to one of them before its replies are read.

    Target --HELLO--> id, address and priority of every node --> Target.at(address) --> Link

    Link  --commands, a window of them at a time--> the node
          <--replies, in their order--------------  an error in the place of a reply is one

A node is asked where the one that was named says that it is; that one itself where it was named.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import attrs

from disqued.client.errors import ServerError, Uncertain, server_error
from disqued.client.replies import read_hello, read_info
from disqued.tools.connecting import Failed, Node, Target

if TYPE_CHECKING:
    from redis.connection import AbstractConnection

#: So many commands, or bytes of them, are sent before their replies are read: what both sides can keep meanwhile.
WINDOW: Final = 256
WINDOW_BYTES: Final = 1 << 20
ID_SHOWN: Final = 8  #: hex digits of a node's id, of which people need no more

Word = bytes | str | int
Words = Sequence[Word]


@attrs.frozen
class Member:
    """A node, and how it is reached."""

    id: str
    target: Target
    #: 1 is fine, 5 not linked or full, 10 does not answer, 100 failed or leaving; as the node that was asked sees it.
    priority: int = 1

    @property
    def address(self) -> str:
        """Where it is, for people."""
        return str(self.target)


def members(target: Target) -> list[Member]:
    """Ask a node for all nodes of its cluster; it comes first itself.

    Raises the errors of `disqued.client.errors`.
    """
    with target.node() as node:
        told = read_hello(node.call("HELLO"), b"")
    found: list[Member] = []
    for each in told.nodes:
        if each.id == told.id:
            found.insert(0, Member(each.id.decode(), target, each.priority))
        elif each.host:
            found.append(Member(each.id.decode(), target.at((each.host, each.port)), each.priority))
    return found


def named(name: str, known: Sequence[Member]) -> Member:
    """Find the node that is called by its id, the beginning of it, or its host:port.  Raises Failed."""
    found = [member for member in known if name in (member.address, member.id)]
    found = found or [member for member in known if name and member.id.startswith(name.lower())]
    if len(found) == 1:
        return found[0]
    nodes = ", ".join(f"{member.id[:ID_SHOWN]} ({member.address})" for member in known)
    what = "names several nodes" if found else "names no node of this cluster"
    raise Failed(f"{name!r} {what}; they are {nodes}")


def info(node: Node, *sections: str) -> dict[str, str]:
    """Read INFO: sections of it, or the default ones.  Raises the errors of `disqued.client.errors`."""
    found: dict[str, str] = {}
    for section in sections or ("default",):
        found.update(read_info(node.call("INFO", section), b""))
    return found


class Link:
    """A connection on which many commands are under way at a time; it opens when it is first asked."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._connection: AbstractConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next command opens another one."""
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None

    def ask(self, *words: Word, waits: float = 0.0) -> Any:
        """Send one command and return its reply.  Raises as `ask_all`, and ServerError."""
        (reply,) = self.ask_all([words], waits)
        if isinstance(reply, ServerError):
            raise reply
        return reply

    def ask_all(self, commands: Sequence[Words], waits: float = 0.0) -> list[Any]:
        """Send commands and return their replies; one that is an error is a ServerError in its place.

        `waits` is how long the node may take over each reply beyond the timeout.  Raises Unreachable when nothing was
        sent, Uncertain when the connection broke before the last reply, NotTrusted.
        """
        replies: list[Any] = []
        for window in _windows(commands):
            if self._connection is None:
                self._connection = self.target.connection()
            try:
                replies += _exchange(self._connection, window, waits + self.target.timeout)
            except BaseException as error:
                self.close()
                broken = _broken(error)
                if broken:
                    raise Uncertain(self.target.broken(error)) from error
                raise
        return replies


def _exchange(connection: "AbstractConnection", commands: list[list[bytes]], limit: float) -> Iterator[Any]:
    import redis

    connection.send_packed_command(connection.pack_commands(commands), check_health=False)
    for _ in commands:
        try:
            yield connection.read_response(disable_decoding=True, timeout=limit)
        except redis.exceptions.ResponseError as error:
            yield server_error(str(error))


def _broken(error: BaseException) -> bool:
    """Tell whether an error is the end of a connection."""
    import redis

    return isinstance(error, (redis.exceptions.RedisError, OSError))


def _windows(commands: Sequence[Words]) -> Iterator[list[list[bytes]]]:
    """Cut commands into what may be under way at a time."""
    window: list[list[bytes]] = []
    size = 0
    for words in commands:
        encoded = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        length = sum(map(len, encoded))
        if window and (len(window) >= WINDOW or size + length > WINDOW_BYTES):
            yield window
            window, size = [], 0
        window.append(encoded)
        size += length
    if window:
        yield window
