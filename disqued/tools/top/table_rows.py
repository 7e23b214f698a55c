"""What two looks, one after the other, tell of nodes and queues: rows, sorted as people want them.

A rate is what a counter has grown by between the looks, and None when there was no look before.  A counter that is
lower than before is one of a node that has begun anew.  A queue is one row, whichever nodes have a part of it, or one
row for each of these.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from disqued.tools.console_text import count, short, span
from disqued.tools.top.node_views import NodeSnapshot, QueueSnapshot, text_of


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
    """A queue, over all nodes or on one; None is what a node does not tell."""

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
    delayed: int | None = None
    in_flight: int | None = None  #: jobs that consumers have
    done: int | None = None  #: of the node that has most of them
    pause_reason: str = ""
    node: str = ""  #: address of the one node; "" = all nodes


@attrs.frozen
class Column:
    """What a table of queues shows."""

    title: str
    cell: Callable[[QueueRow], str]
    order: Callable[[QueueRow], Any] | None = None  #: what rows are sorted by, the largest first
    key: str = ""  #: on the keyboard of `top`
    #: Columns are left out where there is no room for them, those of the highest rank first; 0 = never.
    rank: int = 0


def _figure(number: int | None) -> str:
    return "-" if number is None else count(number)


def rate_text(per_second: float | None) -> str:
    """Write a rate: 0.3, 12, 4.5k; a dash when there was no look before."""
    if per_second is None:
        return "-"
    return f"{per_second:.1f}".removesuffix(".0") if per_second < 10 else count(per_second)


def _largest(value: Callable[[QueueRow], float | None]) -> Callable[[QueueRow], float]:
    return lambda row: -(value(row) or 0)


NAME: Final = Column("queue", lambda row: short(row.name), lambda row: row.name, "n")
NODE: Final = Column("node", lambda row: row.node)
#: The reason takes the room that is left.
PAUSED: Final = Column(
    "paused",
    lambda row: "" if row.pause == "none" else f"{row.pause}: {row.pause_reason}" if row.pause_reason else row.pause,
    lambda row: row.pause == "none", "p",
)  # fmt: skip
RATES: Final = (
    Column("in/s", lambda row: rate_text(row.in_s), _largest(lambda row: row.in_s), "i", 2),
    Column("out/s", lambda row: rate_text(row.out_s), _largest(lambda row: row.out_s), "o", 2),
)
NODES: Final = Column("nodes", lambda row: str(row.nodes), rank=4)
#: In the order in which they stand; keys and titles are what `top` sorts by.
COLUMNS: Final = (
    NAME,
    NODE,
    Column("ready", lambda row: count(row.length), _largest(lambda row: row.length), "l"),
    Column("in-flight", lambda row: _figure(row.in_flight), _largest(lambda row: row.in_flight), "f"),
    Column("delayed", lambda row: _figure(row.delayed), _largest(lambda row: row.delayed), "y", 1),
    Column("failing", lambda row: count(row.failing), _largest(lambda row: row.failing), "g", 3),
    Column("dead", lambda row: count(row.dead), lambda row: (-row.dead, -row.failing), "d"),
    Column("oldest", lambda row: "" if row.oldest_s is None else span(row.oldest_s),
           _largest(lambda row: row.oldest_s), "a"),
    *RATES,
    Column("waiting", lambda row: count(row.blocked), _largest(lambda row: row.blocked), "b", 1),
    NODES,
    PAUSED,
)  # fmt: skip
ORDERS: Final[Mapping[str, Column]] = {column.title: column for column in COLUMNS if column.order is not None}
#: What `--sort` called columns before, too.
FORMER_NAMES: Final = {"name": "queue", "length": "ready", "age": "oldest", "in": "in/s", "out": "out/s",
                       "blocked": "waiting"}  # fmt: skip


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


#: A queue on one node, what it was at the look before, and the seconds between the two.
_Part = tuple[QueueSnapshot, QueueSnapshot | None, float]


def queue_rows(
    looks: Sequence[NodeSnapshot], before: Sequence[NodeSnapshot], order: str, *, reverse: bool, by_node: bool = False,
    fits: Callable[[bytes], bool] | None = None,
) -> list[QueueRow]:  # fmt: skip
    """The queues of all nodes, or with `by_node` of each; those that are alike stand by their names."""
    earlier = {look.member.id: look for look in before if not look.error}
    parts: dict[tuple[bytes, str], list[_Part]] = {}
    for look in looks:
        was = earlier.get(look.member.id)
        address = look.member.address if by_node else ""
        for name, queue in look.queues.items():
            if fits is not None and not fits(name):
                continue
            seconds = look.at - was.at if was else 0.0
            parts.setdefault((name, address), []).append((queue, _part_before(was, queue, seconds), seconds))
    rows = [_queue_row(name, address, each) for (name, address), each in parts.items()]
    rows.sort(key=lambda row: row.name)
    compared = ORDERS[order].order
    assert compared is not None
    rows.sort(key=compared, reverse=reverse)
    return rows


def _part_before(was: NodeSnapshot | None, queue: QueueSnapshot, seconds: float) -> QueueSnapshot | None:
    """The queue at the look before; one that is new has begun with nothing, and one that was left out is unknown."""
    if was is None:
        return None
    if queue.name in was.queues or queue.age_s > seconds + 1:
        return was.queues.get(queue.name)
    return QueueSnapshot(queue.name, 0, 0, 0, 0, "none")


def _queue_row(name: bytes, address: str, parts: Sequence[_Part]) -> QueueRow:
    queues = [queue for queue, _, _ in parts]
    pauses = {queue.pause for queue in queues}
    done = [queue.done for queue in queues]
    return QueueRow(
        text_of(name),
        sum(queue.length for queue in queues),
        max((queue.oldest_s for queue in queues if queue.oldest_s is not None), default=None),
        _sum(rate(was.jobs_in, queue.jobs_in, seconds) for queue, was, seconds in parts if was),
        _sum(rate(was.delivered, queue.delivered, seconds) for queue, was, seconds in parts if was),
        sum(queue.blocked for queue in queues),
        pauses.pop() if len(pauses) == 1 else "in part",
        len(queues),
        max(queue.dead for queue in queues),
        max(queue.failing for queue in queues),
        _total(queue.delayed for queue in queues),
        _total(queue.in_flight for queue in queues),
        None if None in done else max(filter(None, done), default=0),
        next((queue.pause_reason for queue in queues if queue.pause != "none" and queue.pause_reason), ""),
        address,
    )


def _sum(rates: Iterable[float]) -> float | None:
    found = list(rates)
    return sum(found) if found else None


def _total(figures: Iterable[int | None]) -> int | None:
    """Add what nodes tell; None if one does not, as a part of it would mislead."""
    found = list(figures)
    return None if None in found else sum(filter(None, found))


def as_object(nodes: Sequence[NodeRow], queues: Sequence[QueueRow]) -> dict[str, Any]:
    """Make an object for programs of nodes and queues."""
    return {"at": time.time(), "nodes": list(map(attrs.asdict, nodes)), "queues": list(map(attrs.asdict, queues))}
