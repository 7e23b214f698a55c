"""What the page of connections shows: CLIENT LIST JOBS of all nodes, filtered, sorted and cut.

A line of CLIENT LIST is `name=value` pairs with blanks between.
"""

from collections.abc import Iterator
from typing import Any, Final

import attrs

from disqued.core.view import NodeView
from disqued.web.gateway import SLICE_ROWS
from disqued.web.turns import SharedTurns, next_turn
from disqued.web.views import rendering
from disqued.web.views.cluster_answers import MissingNode, ask_all, missing_nodes
from disqued.web.views.everywhere import Everywhere, NodeReply

PAGE_ROWS: Final = 100  #: connections on a page
#: Columns to sort by; times and numbers come largest first, the rest in order.
SORTS: Final = ("node", "address", "name", "user", "age", "idle", "command", "jobs")
LARGEST_FIRST: Final = ("age", "idle", "jobs")


@attrs.frozen
class Connection:
    """A client connection, as its node describes it."""

    node_id: bytes
    is_here: bool
    id: int
    address: str
    name: str
    user: str
    age: int  #: seconds
    idle: int  #: seconds
    command: str  #: that it sent last; empty = none yet
    is_waiting: bool  #: it waits in that command
    jobs: int  #: that it has, of all queues

    @property
    def node(self) -> str:
        """The node, as pages show it."""
        return self.node_id[:8].decode("ascii", "replace")

    @property
    def path(self) -> str:
        """Where its jobs are listed."""
        return rendering.client_path(self.node_id, self.id)


@attrs.frozen
class ConnectionQuery:
    """Which connections somebody looks at."""

    text: str = ""  #: part of node, address, name, user or command, in any case; empty = all
    sort: str = "node"
    page: int = 1
    by_name: bool = False  #: the text is part of the name

    async def cut(self, everywhere: Everywhere, node: NodeView, turns: SharedTurns) -> "ConnectionPage":
        """Ask all nodes, filter, sort and cut; SLICE_ROWS lines are read in a turn of the loop."""
        reply = await ask_all(everywhere, node, b"CLIENT", b"LIST", b"JOBS", fresh_s=0)
        wanted = self.text.casefold()
        found: list[Connection] = []
        for number, one in enumerate(_connections(node, reply.answered), 1):
            searched = one.name if self.by_name else f"{one.node} {one.address} {one.name} {one.user} {one.command}"
            if wanted in searched.casefold():
                found.append(one)
            if number % SLICE_ROWS == 0:
                await next_turn(turns)
        found.sort(key=self._key, reverse=self.sort in LARGEST_FIRST)
        pages = max(1, -(-len(found) // PAGE_ROWS))
        page = min(max(1, self.page), pages)
        rows = found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS]
        return ConnectionPage(rows, len(found), page, pages, missing_nodes(node, reply))

    def _key(self, one: Connection) -> Any:
        return one.node_id if self.sort == "node" else getattr(one, self.sort)


@attrs.frozen
class ConnectionPage:
    """A page of connections."""

    rows: list[Connection]
    found: int  #: that the filter lets through
    page: int
    pages: int
    missing: list[MissingNode]


async def connection_of(everywhere: Everywhere, node: NodeView, node_id: bytes, number: int) -> Connection | None:
    """Return a connection of a node by its number; None = it has ended, or the node does not answer."""
    reply = await ask_all(everywhere, node, b"CLIENT", b"LIST", node_id=node_id, fresh_s=0)
    return next((one for one in _connections(node, reply.answered) if one.id == number), None)


def _connections(node: NodeView, replies: list[NodeReply]) -> Iterator[Connection]:
    for reply in replies:
        for line in bytes(reply.value).decode("utf-8", "backslashreplace").splitlines():
            pairs = (word.partition("=") for word in line.split(" "))
            told = {name: value for name, _, value in pairs}
            command = told.get("cmd", "").replace("|", " ").upper()
            yield Connection(
                reply.node_id, reply.node_id == node.id, int(told["id"]), told["addr"], told.get("name", ""),
                told.get("user", ""), int(told.get("age", 0)), int(told.get("idle", 0)),
                "" if command == "NULL" else command, "b" in told.get("flags", ""), int(told.get("jobs", 0)),
            )  # fmt: skip
