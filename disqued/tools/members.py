"""The nodes of a cluster: each is asked where the node that was named says that it is.

Target --HELLO--> id, address and priority of every node --> Member: Target.at(address)
"""

from collections.abc import Sequence
from typing import Final

import attrs

from disqued.client.replies import read_hello, read_info
from disqued.tools.connecting import Failed, NodeConnection, Target

ID_SHOWN: Final = 8  #: hex digits of a node's id, of which people need no more


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


def info(node: NodeConnection, *sections: str) -> dict[str, str]:
    """Read INFO: sections of it, or the default ones.  Raises the errors of `disqued.client.errors`."""
    found: dict[str, str] = {}
    for section in sections or ("default",):
        found.update(read_info(node.call("INFO", section), b""))
    return found
