"""What two looks, one after the other, tell of nodes and queues: rows, sorted as people want them.

A rate is what a counter has grown by between the looks, and None when there was no look before.  A counter that is
lower than before is one of a node that has begun anew.  A queue is one row, whichever nodes have a part of it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from disqued.tools.top.node_views import NodeSnapshot, QueueSnapshot


@attrs.frozen
class NodeRow:
    """A node; nothing but the first four when it does not answer, or refuses to."""

    id: str
    address: str
    state: str  #: ok, leaving, left (it may be stopped), cut off, loading, full, refuses (to tell), away
    error: str
    memory: int | None = None  #: bytes
    memory_limit: int | None = None
    jobs: int | None = None
    queues: int | None = None
    clients: int | None = None
    blocked: int | None = None
    commands_s: float | None = None  #: commands a second
    sees: int | None = None  #: other nodes that it can give jobs to
    known: int | None = None  #: other nodes that it knows


@attrs.frozen
class QueueRow:
    """A queue, over all nodes."""

    name: str
    length: int
    oldest_s: float | None
    in_s: float | None  #: jobs that were queued, a second
    out_s: float | None  #: jobs that left it, a second
    blocked: int  #: consumers that wait for it
    pause: str  #: none, in, out, all; `in part` when nodes differ
    nodes: int
    #: Of the node that has most of them: each holder of a job counts it.
    dead: int = 0
    failing: int = 0


#: What queues are sorted by: key on the keyboard, name, and what is compared.
Order = Callable[[QueueRow], Any]
ORDERS: Final[Mapping[str, tuple[str, Order]]] = {
    "length": ("l", lambda row: -row.length),
    "age": ("a", lambda row: -(row.oldest_s or 0)),
    "in": ("i", lambda row: -(row.in_s or 0)),
    "out": ("o", lambda row: -(row.out_s or 0)),
    "blocked": ("b", lambda row: -row.blocked),
    "dead": ("d", lambda row: (-row.dead, -row.failing)),
    "name": ("n", lambda row: row.name),
}


def node_rows(looks: Sequence[NodeSnapshot], before: Sequence[NodeSnapshot]) -> list[NodeRow]:
    """The nodes, in the order of the looks."""
    earlier = {look.member.id: look for look in before}
    return [_node_row(look, earlier.get(look.member.id)) for look in looks]


def _node_row(look: NodeSnapshot, before: NodeSnapshot | None) -> NodeRow:
    member = look.member
    if look.error:
        return NodeRow(member.id, member.address, "refuses" if look.is_refused else "away", look.error)
    return NodeRow(member.id, member.address, _state(look), "", memory=look.number("used_memory"),
                   memory_limit=look.number("maxmemory"), jobs=look.number("registered_jobs"),
                   queues=look.number("registered_queues"), clients=look.number("connected_clients"),
                   blocked=look.number("blocked_clients"), commands_s=_commands(look, before),
                   sees=look.number("cluster_reachable_nodes"),
                   known=max(0, look.number("cluster_known_nodes") - 1))  # fmt: skip


def _state(look: NodeSnapshot) -> str:
    facts = look.facts
    if facts.get("loading") == "1":
        return "loading"
    if facts.get("cluster_leaving") == "yes":
        return "left" if facts.get("cluster_safe_to_stop") == "yes" else "leaving"
    if facts.get("memory_level") == "3":
        return "full"
    if look.number("cluster_reachable_nodes") < look.number("cluster_known_nodes") - 1:
        return "cut off"
    return "ok"


def _commands(look: NodeSnapshot, before: NodeSnapshot | None) -> float | None:
    if before is None or before.error:
        return None
    name = "total_commands_processed"
    return rate(before.number(name), look.number(name), look.at - before.at)


def rate(before: int, now: int, seconds: float) -> float:
    """What a counter has grown by, a second."""
    if seconds <= 0:
        return 0.0
    return (now - before if now >= before else now) / seconds


def queue_rows(
    looks: Sequence[NodeSnapshot], before: Sequence[NodeSnapshot], order: str, *, reverse: bool
) -> list[QueueRow]:
    """The queues of all nodes; those that are alike stand by their names."""
    earlier = {look.member.id: look for look in before if not look.error}
    parts: dict[bytes, list[tuple[QueueSnapshot, QueueSnapshot | None, float]]] = {}
    for look in looks:
        was = earlier.get(look.member.id)
        for name, queue in look.queues.items():
            seconds = look.at - was.at if was else 0.0
            parts.setdefault(name, []).append((queue, _part_before(was, name), seconds))
    rows = [_queue_row(name, each) for name, each in parts.items()]
    rows.sort(key=lambda row: row.name)
    rows.sort(key=ORDERS[order][1], reverse=reverse)
    return rows


def _part_before(was: NodeSnapshot | None, name: bytes) -> QueueSnapshot | None:
    """The queue at the look before; one that was not there has begun with nothing."""
    if was is None:
        return None
    return was.queues.get(name) or QueueSnapshot(name, 0, 0, 0, 0, "none")


def _queue_row(name: bytes, parts: Sequence[tuple[QueueSnapshot, QueueSnapshot | None, float]]) -> QueueRow:
    queues = [queue for queue, _, _ in parts]
    pauses = {queue.pause for queue in queues}
    return QueueRow(name.decode("utf-8", "backslashreplace"), sum(queue.length for queue in queues),
                    max((queue.oldest_s for queue in queues if queue.oldest_s is not None), default=None),
                    _sum(rate(was.jobs_in, queue.jobs_in, seconds) for queue, was, seconds in parts if was),
                    _sum(rate(was.jobs_out, queue.jobs_out, seconds) for queue, was, seconds in parts if was),
                    sum(queue.blocked for queue in queues), pauses.pop() if len(pauses) == 1 else "in part",
                    len(queues), max(queue.dead for queue in queues),
                    max(queue.failing for queue in queues))  # fmt: skip


def _sum(rates: Iterable[float]) -> float | None:
    found = list(rates)
    return sum(found) if found else None
