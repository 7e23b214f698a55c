"""CLUSTER: the nodes that this one knows.

This version runs as a single node.  What can be answered of one node is answered as Disque does; what needs others
is checked like there, then refused with the reason.

Source: Disque 1.0-rc1, src/cluster.c, whose replies and error texts these are.
"""

from ipaddress import ip_address
from typing import Any

import attrs

from disqued.commands.connection import DONE, port_of
from disqued.commands.host import Session
from disqued.commands.shapes import OK, bulk, either, status
from disqued.commands.table import Flag, command, container, optional, positional
from disqued.commands.values import BYTES, one_of, read_integer
from disqued.core.ids import NODE_ID_LENGTH
from disqued.core.node import Node
from disqued.core.queues import Client
from disqued.errors import CommandError, NotAnInteger
from disqued.wire.replies import Status

PORT_MAX = 55_535  #: clients' port; the bus port, 10 000 above, must be a port, too

_FLAGS = Flag.ADMIN | Flag.READ
_MISUSE = "Wrong CLUSTER subcommand or number of arguments"


def _misuse(word: str, known: bool) -> str:
    return _MISUSE


container(
    "CLUSTER", group="cluster", flags=_FLAGS, summary="Look at the nodes of the cluster and change it.", misuse=_misuse
)


@command("CLUSTER MYID", group="cluster", flags=_FLAGS, reply=bulk("40 hex digits"), cost="O(1)")
@attrs.define
class ClusterMyId:
    """Id of this node; it stays the same across restarts."""

    def run(self, node: Node, client: Client) -> bytes:
        """Return the id."""
        return node.id


@command("CLUSTER NODES", group="cluster", flags=_FLAGS, reply=bulk("one line per node"), cost="O(N) in the nodes")
@attrs.define
class ClusterNodes:
    """Nodes that this one knows, itself included.

    A line is: id, address and port, flags, when a ping was sent and a pong came in unix milliseconds, and whether it
    is connected.  A node does not know its own address until another one tells.
    """

    def run(self, node: Node, client: Session) -> bytes:
        """Describe this node."""
        flags = b"myself,leaving" if node.state.leaving else b"myself"
        return b"%b :%b %b 0 0 connected\n" % (node.id, port_of(client.host), flags)


@command("CLUSTER INFO", group="cluster", flags=_FLAGS, reply=bulk("field:value lines"), cost="O(1)")
@attrs.define
class ClusterInfo:
    """Facts of the cluster: its state, its nodes, and the messages between them."""

    def run(self, node: Node, client: Client) -> bytes:
        """Describe a cluster of one."""
        facts = {
            b"cluster_state": b"ok",
            b"cluster_known_nodes": b"1",
            b"cluster_reachable_nodes": b"0",
            b"cluster_size": b"1",
            b"cluster_stats_messages_sent": b"0",
            b"cluster_stats_messages_received": b"0",
        }
        return b"".join(b"%b:%b\r\n" % fact for fact in facts.items())


_ALONE = "this version runs as a single node: it cannot meet <ip>:<port>"


@command(
    "CLUSTER MEET",
    group="cluster",
    flags=_FLAGS,
    reply=OK,
    cost="O(1)",
    errors=("Invalid TCP port specified: <port>", "Invalid node address specified: <ip>:<port>", _ALONE),
)
@attrs.define
class ClusterMeet:
    """Join another node's cluster: not possible yet, and answered so."""

    ip: bytes = positional("Address of the other node: digits, no name.", BYTES)
    port: bytes = positional(f"Port of the other node for clients, 1 to {PORT_MAX}.", BYTES)

    def run(self, node: Node, client: Client) -> Status:
        """Check the address, then refuse."""
        ip, port = (word[:128].decode("utf-8", "surrogateescape") for word in (self.ip, self.port))
        try:
            number = read_integer(self.port)
        except NotAnInteger:
            raise CommandError(f"Invalid TCP port specified: {port}") from None
        if not _is_address(ip) or not 1 <= number <= PORT_MAX:
            raise CommandError(f"Invalid node address specified: {ip}:{port}")
        raise CommandError(_ALONE.replace("<ip>", ip).replace("<port>", str(number)))


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


@command(
    "CLUSTER FORGET",
    group="cluster",
    flags=_FLAGS,
    reply=OK,
    cost="O(1)",
    errors=("Invalid node identifier", "Unknown node <id>", "I tried hard but I can't forget myself..."),
)
@attrs.define
class ClusterForget:
    """Remove a node from those that this one knows."""

    id: bytes = positional("Id of the node, 40 hex digits.", BYTES)

    def run(self, node: Node, client: Client) -> Status:
        """Refuse: the only node known is this one."""
        if len(self.id) != NODE_ID_LENGTH:
            raise CommandError("Invalid node identifier")
        if self.id == node.id:
            raise CommandError("I tried hard but I can't forget myself...")
        raise CommandError(f"Unknown node {self.id.decode('utf-8', 'surrogateescape')}")


_NO_HARD = (
    "RESET HARD draws a new node id, which this version does only at a start without nodes.conf; RESET SOFT works"
)


@command("CLUSTER RESET", group="cluster", flags=_FLAGS, reply=OK, cost="O(N) in the jobs", errors=(_NO_HARD,))
@attrs.define
class ClusterReset:
    """Forget every job and queue of this node, and the other nodes of the cluster.

    Consumers that wait are answered: no jobs.  Whether the node is leaving stays as it is.
    """

    hard: bool = optional(
        "SOFT, or HARD for a new node id, too; SOFT unless given.",
        one_of({b"SOFT": False, b"HARD": True}, "syntax error"),
        default=False,
    )

    def run(self, node: Node, client: Client) -> Status:
        """Forget everything."""
        if self.hard:
            raise CommandError(_NO_HARD)
        node.flush()
        return DONE


@command("CLUSTER LEAVING", group="cluster", flags=_FLAGS, reply=either(OK, status("yes or no")), cost="O(1)")
@attrs.define
class ClusterLeaving:
    """Begin or stop to leave the cluster, or ask whether the node is leaving.

    A node that is leaving takes no copies of jobs, and sends consumers that would have to wait to other nodes.
    """

    leaving: bool | None = optional(
        "yes or no; left out: ask.",
        one_of({b"YES": True, b"NO": False}, "Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"),
    )

    def run(self, node: Node, client: Client) -> Status:
        """Change or tell the state."""
        if self.leaving is None:
            return Status(b"yes" if node.state.leaving else b"no")
        node.delivery.set_leaving(leaving=self.leaving)
        return DONE


@command(
    "CLUSTER SAVECONFIG",
    group="cluster",
    flags=_FLAGS,
    reply=OK,
    cost="O(N) in the nodes",
    errors=("error saving the cluster node config: <reason>",),
)
@attrs.define
class ClusterSaveConfig:
    """Write nodes.conf: the node's id, and the nodes that it knows."""

    def run(self, node: Node, client: Session) -> Any:
        """Write the file."""
        client.host.save_identity()
        return DONE
