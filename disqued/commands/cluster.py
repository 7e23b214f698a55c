"""CLUSTER: the nodes that this one knows, how it comes to know them, and what commands answer on all of them.

    client --CLUSTER ASK * QSTAT mail--> us        `ClusterAsk` checks the command, and asks (`core.cluster.questions`)
    node that is asked: `check_asked` once more, since the other may be of another version; then as any command

Commands that are asked for only look, are over at once, and mean the same to every client.  Those of `CHANGING` change
something that only one node can, whichever node the operator is connected to: CLUSTER LEAVING drains a node, ENQUEUE
and NACK with DEAD are for jobs of which a node has a copy.  They are asked of one node at a time.  A node repeats no
question; who asks again after a silence changes nothing, but that ENQUEUE queues what a consumer has taken meanwhile.

Source: Disque 1.0-rc1, src/cluster.c, whose replies and error texts these are.
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final

import attrs

from disqued.commands.connection import DONE
from disqued.commands.host import Session
from disqued.commands.jobs import is_burial
from disqued.commands.shapes import OK, Shape, array, bulk, either, integer, status
from disqued.commands.table import (
    BLOCKED,
    Command,
    Flag,
    command,
    container,
    find_within,
    is_callable,
    name_of,
    optional,
    parse,
    positional,
    rest,
    subcommands,
)
from disqued.commands.values import BYTES, one_of, read_integer, readable
from disqued.core.cluster import questions
from disqued.core.model.ids import NODE_ID_LENGTH
from disqued.core.model.outbox import Client
from disqued.core.node import Node
from disqued.errors import CommandError, NoPermission, NotAnInteger
from disqued.wire.nodesconf import BUS_PORT_OFFSET, PORT_MAX, format_nodes
from disqued.wire.replies import Status

_FLAGS = Flag.ADMIN | Flag.READ
_MISUSE = "Wrong CLUSTER subcommand or number of arguments"
#: What clients of Redis Cluster and its tools ask a node; the first words of the answer are those that they know.
_OF_REDIS_CLUSTER = frozenset(
    "ADDSLOTS ADDSLOTSRANGE BUMPEPOCH COUNTKEYSINSLOT DELSLOTS DELSLOTSRANGE FAILOVER FLUSHSLOTS GETKEYSINSLOT KEYSLOT "
    "LINKS MYSHARDID REPLICAS REPLICATE SET-CONFIG-EPOCH SETSLOT SHARDS SLAVES SLOT-STATS SLOTS".split()
)
_NO_REDIS_CLUSTER = (
    "This instance has cluster support disabled - disqued is no Redis Cluster and has no slots: any node takes every "
    "command, and HELLO names them all"
)


def _cluster_misuse(word: str, known: bool) -> str:
    if known:
        return _MISUSE
    if word.upper() in _OF_REDIS_CLUSTER:
        return _NO_REDIS_CLUSTER
    return f"{_MISUSE} - allowed are {subcommands('CLUSTER')}"


container(
    "CLUSTER",
    group="cluster",
    flags=_FLAGS,
    summary="Look at the nodes of the cluster and change it.",
    misuse=_cluster_misuse,
)


@command("CLUSTER MYID", group="cluster", flags=_FLAGS, reply=bulk("40 hex digits"), cost="O(1)")
@attrs.define
class ClusterMyId:
    """Id of this node; it stays the same across restarts."""

    def run(self, node: Node, client: Client) -> bytes:
        return node.id


@command("CLUSTER NODES", group="cluster", flags=_FLAGS, reply=bulk("one line per node"), cost="O(N) in the nodes")
@attrs.define
class ClusterNodes:
    """Nodes that this one knows, itself included.

    A line is: id, address and port, flags, when the ping was sent that has no answer yet and when the last pong came
    in unix milliseconds, and whether this node has a link to it.  `@` and the bus port follow the port where it is not
    10000 above.  A node does not know its own address until another one tells.  Nodes that CLUSTER MEET tries to reach
    come last, under ids that mean nothing, with the flag `handshake`.
    """

    def run(self, node: Node, client: Client) -> bytes:
        return format_nodes([*node.membership.lines(), *node.membership.meetings.lines()])


@command("CLUSTER INFO", group="cluster", flags=_FLAGS, reply=bulk("field:value lines"), cost="O(1)")
@attrs.define
class ClusterInfo:
    """Facts of the cluster: its state, its nodes, the messages between them, and how far leaving has come."""

    def run(self, node: Node, client: Session) -> bytes:
        known = 1 + len(node.state.peers.by_id)
        bus = client.host.bus.facts()
        facts = {
            "cluster_state": "ok",
            "cluster_known_nodes": known,
            "cluster_reachable_nodes": len(node.state.peers.reachable),
            "cluster_size": known,
            "cluster_stats_messages_sent": bus.get("cluster_stats_messages_sent", 0),
            "cluster_stats_messages_received": bus.get("cluster_stats_messages_received", 0),
            **node.leaving.facts(),
        }
        twin = node.membership.own_address.twin
        if twin:
            facts["cluster_same_id_at"] = twin
        return "".join(f"{name}:{value}\r\n" for name, value in facts.items()).encode()


_PORTS = f"1 to {PORT_MAX - BUS_PORT_OFFSET}, or to {PORT_MAX} with a bus port"
_BAD_PORT = f"Invalid TCP port specified: <port> - allowed are {_PORTS}"
_BAD_BUS_PORT = f"Invalid bus port specified: <bus-port> - allowed are 1 to {PORT_MAX}"
_BAD_ADDRESS = "Invalid node address specified: <ip>:<port>"
_LOOPBACK_ALONE = (
    "<ip> is beyond this machine, and nodes without a secret speak to loopback addresses alone: set cluster-secret, "
    "the same on every node"
)
_NO_BUS = "other nodes cannot connect to this one: give it a cluster-port, and a cluster-bind or a bind that is allowed"


def _read_port(word: bytes, error: str) -> int:
    try:
        return read_integer(word)
    except NotAnInteger:
        raise CommandError(error) from None


@command(
    "CLUSTER MEET", group="cluster", flags=_FLAGS, reply=OK, cost="O(1)",
    errors=(_BAD_PORT, _BAD_BUS_PORT, _BAD_ADDRESS, _LOOPBACK_ALONE, _NO_BUS),
)  # fmt: skip
@attrs.define
class ClusterMeet:
    """Join the cluster of another node, or let it join ours; all nodes of both come to know each other.

    The reply says that the other node will be called, for cluster-node-timeout; CLUSTER NODES tells what came of it.
    """

    ip: bytes = positional("Address of the other node: digits, no name.", BYTES)
    port: bytes = positional("Port of the other node for clients; 55535 at most unless a bus port follows.", BYTES)
    bus_port: bytes | None = optional("Port of the other node for nodes; 10000 above the port unless given.", BYTES)

    def run(self, node: Node, client: Session) -> Status:
        ip, port, bus_port = self._address()
        if not (ip.is_loopback or client.host.bus.has_secret):
            raise CommandError(_LOOPBACK_ALONE.replace("<ip>", str(ip)))
        if not node.membership.own_address.bus_port:
            raise CommandError(_NO_BUS)
        node.membership.meet(str(ip), port, bus_port)
        return DONE

    def _address(self) -> tuple[IPv4Address | IPv6Address, int, int]:
        port = _read_port(self.port, _BAD_PORT.replace("<port>", readable(self.port)))
        bus_port = port + BUS_PORT_OFFSET
        if self.bus_port is not None:
            wrong = _BAD_BUS_PORT.replace("<bus-port>", readable(self.bus_port))
            bus_port = _read_port(self.bus_port, wrong)
            if not 1 <= bus_port <= PORT_MAX:
                raise CommandError(wrong)
        try:
            if 1 <= port <= PORT_MAX and bus_port <= PORT_MAX:
                return ip_address(readable(self.ip)), port, bus_port
        except ValueError:
            pass
        raise CommandError(_BAD_ADDRESS.replace("<ip>", readable(self.ip)).replace("<port>", readable(self.port)))


_BAD_ID = "Invalid node identifier"
_UNKNOWN_ID = "Unknown node <id>"


def _unknown(node_id: bytes) -> CommandError:
    return CommandError(_UNKNOWN_ID.replace("<id>", readable(node_id)))


@command(
    "CLUSTER FORGET", group="cluster", flags=_FLAGS, reply=OK, cost="O(1)",
    errors=(_BAD_ID, _UNKNOWN_ID, "I tried hard but I can't forget myself..."),
)  # fmt: skip
@attrs.define
class ClusterForget:
    """Remove a node from those that this one knows; for a minute no other node can bring it back.

    Jobs that it holds are not waited for any more.  Do so on every node within the minute, or it comes back by gossip.
    """

    id: bytes = positional("Id of the node, 40 hex digits.", BYTES)

    def run(self, node: Node, client: Client) -> Status:
        if len(self.id) != NODE_ID_LENGTH:
            raise CommandError(_BAD_ID)
        if self.id == node.id:
            raise CommandError("I tried hard but I can't forget myself...")
        if not node.membership.forget(self.id):
            raise _unknown(self.id)
        return DONE


@command(
    "CLUSTER COUNT-FAILURE-REPORTS", group="cluster", flags=_FLAGS, reply=integer("other nodes"),
    cost="O(N) in the nodes", errors=(_BAD_ID, _UNKNOWN_ID),
)  # fmt: skip
@attrs.define
class ClusterCountFailureReports:
    """How many other nodes have said of one, within twice cluster-node-timeout, that it does not answer."""

    id: bytes = positional("Id of the node that is spoken of, 40 hex digits.", BYTES)

    def run(self, node: Node, client: Client) -> int:
        if len(self.id) != NODE_ID_LENGTH:
            raise CommandError(_BAD_ID)
        reports = 0 if self.id == node.id else node.membership.detector.failure_reports(self.id)
        if reports is None:
            raise _unknown(self.id)
        return reports


@command(
    "CLUSTER RESET", group="cluster", flags=_FLAGS, reply=OK, cost="O(N) in the jobs",
    errors=("error saving the cluster node config: <reason>",),
)  # fmt: skip
@attrs.define
class ClusterReset:
    """Forget every job and queue of this node, and the other nodes of the cluster.

    Consumers that wait are answered: no jobs.  Whether the node is leaving stays as it is.  The others are not told;
    CLUSTER FORGET makes them forget this one.
    """

    hard: bool = optional(
        "SOFT, or HARD for a new node id, too; SOFT unless given.",
        one_of({b"SOFT": False, b"HARD": True}, "syntax error - CLUSTER RESET takes SOFT or HARD"),
        default=False,
    )

    def run(self, node: Node, client: Session) -> Status:
        node.flush()  # by the node that had the jobs: its event log says where they are
        node.membership.reset(hard=self.hard)
        client.host.identity.save()
        return DONE


@command("CLUSTER LEAVING", group="cluster", flags=_FLAGS, reply=either(OK, status("yes or no")), cost="O(1)")
@attrs.define
class ClusterLeaving:
    """Begin or stop to leave the cluster, or ask whether the node is leaving.

    A node that is leaving takes no copies of jobs, sends consumers that would have to wait to other nodes, and moves
    what it holds to them.  CLUSTER INFO says when it is safe to stop.
    """

    leaving: bool | None = optional(
        "yes or no; left out: ask.",
        one_of({b"YES": True, b"NO": False}, "Wrong argument for CLUSTER LEAVING. Use 'yes' or 'no'"),
    )

    def run(self, node: Node, client: Client) -> Status:
        if self.leaving is None:
            return Status(b"yes" if node.state.leaving else b"no")
        node.leaving.set(leaving=self.leaving)
        return DONE


@command(
    "CLUSTER SAVECONFIG", group="cluster", flags=_FLAGS, reply=OK, cost="O(N) in the nodes",
    errors=("error saving the cluster node config: <reason>",),
)  # fmt: skip
@attrs.define
class ClusterSaveConfig:
    """Write nodes.conf: the node's id, and the nodes that it knows."""

    def run(self, node: Node, client: Session) -> Any:
        client.host.identity.save()
        return DONE


#: What nodes answer each other.
ASKED: Final = frozenset({
    "CLIENT LIST", "CLUSTER INFO", "CLUSTER NODES", "INFO", "JSCAN", "QCONSUMERS", "QGROUP LIST", "QINFO", "QLEN",
    "QPEEK", "QSCAN", "QSTAT", "QSTATUS", "RQ.INFO", "SCHEDULE GET", "SCHEDULE LIST", "SHOW", "SLOTS", "WORKER INFO",
    "WORKER LIST", "WQ.LEN", "WQ.PEEK", "WQ.PROCS", "WQ.QUEUES", "WQ.TASKS",
})  # fmt: skip
#: What one node does for another; a client whose question had no answer may ask each of them again.
CHANGING: Final = frozenset({"CLUSTER LEAVING", "ENQUEUE", "NACK"})
_CHANGING_TEXT: Final = ", ".join(sorted(CHANGING))
_DEAD_ALONE: Final = "NACK without DEAD is not asked of another node: asked twice it counts two tries; allowed is DEAD"
_NOT_ASKED: Final = (
    f"nodes do not answer <command> to each other; allowed are {', '.join(sorted(ASKED))}, and of one node "
    f"{_CHANGING_TEXT}"
)
_NO_NODE: Final = "Unknown node <id> - allowed is *, or the id of a node as CLUSTER NODES shows it, 40 hex digits"
_ONE_NODE: Final = "<command> is asked of one node at a time: * is not allowed, the id of a node is"
_RENAMED: Final = "this node has no command <command>: rename-command removed or renamed it"
_NOT_ALL: Final = "CLUSTER ASK is for users who may read all queues"


def check_asked(words: Sequence[bytes]) -> Command:
    """Return the command that is asked for.  Raises CommandError: it is none that nodes answer each other, or wrong."""
    entry = find_within(list(words))
    if entry.name not in ASKED and entry.name not in CHANGING:
        raise CommandError(_NOT_ASKED.replace("<command>", entry.name))
    if entry.name in CHANGING and not is_callable(entry.name):
        raise CommandError(_RENAMED.replace("<command>", entry.name))
    call = parse(entry, list(words))
    if entry.name == "NACK" and not is_burial(call):
        raise CommandError(_DEAD_ALONE)
    return entry


def _is_answer(value: Any) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 3:
        return False
    node_id, status, told = value
    is_told = status in {questions.OK, questions.REFUSED}
    is_missing = status in {questions.SILENT, questions.AWAY} and told is None
    return isinstance(node_id, bytes) and len(node_id) == NODE_ID_LENGTH and (is_told or is_missing)


@command(
    "CLUSTER ASK", group="cluster", flags=Flag.ADMIN | Flag.READ, cost="O(1) for each node, and the command on each",
    reply=array(Shape("[node, status, value]", _is_answer), "[node, status, value] of each node, by their ids"),
    errors=(_NO_NODE, _NOT_ASKED, _ONE_NODE, _RENAMED, _DEAD_ALONE, f"NOPERM {_NOT_ALL}"), shows_bodies=True,
)  # fmt: skip
@attrs.define
class ClusterAsk:
    """What a command answers on each node of the cluster, or on one.

    The status is ok, and the value is what the command returns there; or error, and the value is its line; or silent:
    the node has a link and has not answered within 2 seconds; or away: there is no link to it.  Then the value is null.
    Each node answers for itself, at a moment of its own.

    Commands that may be asked for: CLIENT LIST, CLUSTER INFO, CLUSTER NODES, INFO, JSCAN, QCONSUMERS, QGROUP LIST,
    QINFO, QLEN, QPEEK, QSCAN, QSTAT, QSTATUS, RQ.INFO, SCHEDULE GET, SCHEDULE LIST, SHOW, SLOTS, WORKER INFO, WORKER
    LIST, WQ.LEN, WQ.PEEK, WQ.PROCS, WQ.QUEUES and WQ.TASKS.  They only look.

    CLUSTER LEAVING, ENQUEUE and NACK with DEAD may be asked of one node, by users who may run them themselves: the node
    drains or stays; it queues the jobs of which it has a copy, or makes them dead letters.  The last two answer how
    many jobs changed, and NACK notes the asking node as the one that failed.  A node that is silent may still have done
    it.  Asking again changes nothing with CLUSTER LEAVING and NACK.  ENQUEUE also queues jobs that consumers have: look
    where the jobs are before you ask it again.
    """

    node: bytes = positional("Who is asked: * for every node, or the id of one.", BYTES)
    command: bytes = positional("The command.", BYTES)
    arguments: list[bytes] = rest("What follows it.", BYTES, minimum=0)

    def run(self, node: Node, client: Client) -> Any:
        """Ask; the reply comes when all have answered.  Raises CommandError, NoPermission (NOPERM)."""
        user = getattr(client, "user", None)
        if user is not None and not user.all_queues:
            raise NoPermission(text=_NOT_ALL)
        words = (self.command, *self.arguments)
        entry = check_asked(words)
        if entry.name in CHANGING and self.node == b"*":
            raise CommandError(_ONE_NODE.replace("<command>", entry.name))
        node.questions.ask(client, self._nodes(node), words)
        return BLOCKED

    def commands_named(self) -> list[str]:
        """The command that is asked for, if it changes something: the user needs the right to run it."""
        name = name_of([word[:32].upper() for word in (self.command, *self.arguments[:1])])
        return [name] if name in CHANGING else []

    def _nodes(self, node: Node) -> Iterable[bytes]:
        known = {node.id, *node.state.peers.by_id}
        if self.node == b"*":
            return known
        if self.node not in known:
            raise CommandError(_NO_NODE.replace("<id>", readable(self.node)))
        return (self.node,)
