"""What each node of a cluster says of itself and of its queues, again and again.

    every node --INFO, CLUSTER INFO, TIME, HELLO--> of itself, and where the others are
               --QSCAN REPLY known--> names that match --QSTAT FULL--> of each queue
               --QPEEK 1, SHOW of the longest--> since when its oldest job is there

A node is looked for where the others say that it is.  Nodes that no node tells of any more are forgotten, unless nobody
answers at all.  Ages go by the clock of their node.
"""

import fnmatch
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from disqued.client.errors import ServerError
from disqued.client.job import Topology
from disqued.client.replies import read_facts, read_hello, read_info, read_jobs, read_page
from disqued.tools.connecting import NodeConnection, Target
from disqued.tools.members import Member, members
from disqued.tools.polling import Poll

QUEUES_MAX: Final = 2_000  #: of one node, that are looked at again and again
AGES_MAX: Final = 200  #: of these, the longest, whose oldest job is looked at
PAGE: Final = 1_000
NS: Final = 1_000_000_000


@attrs.frozen
class QueueSnapshot:
    """A queue, as one node knows it; what a node of an older version does not tell is None."""

    name: bytes
    length: int  #: jobs that wait here; of a stream the events that this node hands out, and not its copies
    jobs_in: int  #: since the node began
    delivered: int  #: to consumers; a node of an older version counts those for other nodes, too
    blocked: int
    pause: str
    dead: int = 0  #: jobs of which this node has a copy
    failing: int = 0
    #: How long its oldest job has been there, in seconds; None = nothing waits, or it was not looked at.
    oldest_s: float | None = None
    age_s: int = 0  #: how long the queue has been there
    pause_reason: str = ""
    delayed: int | None = None
    in_flight: int | None = None
    elsewhere: int | None = None  #: jobs of which this node has a copy, and that wait or run on another one
    done: int | None = None


@attrs.frozen
class NodeSnapshot:
    """A node, at one moment."""

    member: Member
    at: float  #: on the monotonic clock
    facts: Mapping[str, str] = attrs.field(factory=dict)  #: INFO, and CLUSTER INFO
    queues: Mapping[bytes, QueueSnapshot] = attrs.field(factory=dict)
    told: Topology | None = None
    #: Why there is nothing of that; "" when there is.
    error: str = ""
    is_refused: bool = False  #: it is there, and has answered with that error

    def number(self, name: str) -> int:
        """A figure of INFO or CLUSTER INFO; 0 when it is not told."""
        return int(self.facts.get(name, 0))


@attrs.define
class QueueChoice:
    """Which queues of a node are looked at."""

    pattern: str = "*"
    most: int | None = None  #: so many of each node; None = all
    ages: int | None = None  #: and the oldest jobs of so many of these, the longest; None = of all

    def fits(self, name: bytes) -> bool:
        """Return whether a name matches the pattern."""
        return self.pattern == "*" or fnmatch.fnmatchcase(text_of(name), self.pattern)


def text_of(name: bytes) -> str:
    """Decode the name of a queue as it is shown, and as patterns see it."""
    return name.decode("utf-8", "backslashreplace")


class ClusterWatch:
    """The nodes of a cluster, looked at again and again."""

    def __init__(self, target: Target, choice: QueueChoice) -> None:
        """Ask for the nodes.  Raises the errors of `disqued.client.errors`."""
        self._target = target
        self._poll = Poll(members(target), lambda member, node: look_at(member, node, choice))

    def look(self, wait_s: float | None = None) -> list[NodeSnapshot]:
        """Look at every node; one that has not answered after the time is away."""
        now = time.monotonic()
        looks = [
            answer.value or NodeSnapshot(answer.member, now, error=answer.error, is_refused=answer.is_refused)
            for answer in self._poll.ask(wait_s)
        ]
        self._follow(looks)
        return looks

    def _follow(self, looks: Sequence[NodeSnapshot]) -> None:
        """Learn of nodes that have come, and forget those that nobody tells of."""
        told = [each for look in looks if look.told for each in look.told.nodes]
        if not told:
            return
        found = {look.member.id: look.member for look in looks if look.told}
        for node in told:
            id_ = node.id.decode()
            if id_ not in found and node.host:
                found[id_] = Member(id_, self._target.at((node.host, node.port)), node.priority)
        order = {id_: place for place, id_ in enumerate(self._poll.members)}
        self._poll.members = dict(sorted(found.items(), key=lambda item: order.get(item[0], len(order))))


def look_at(member: Member, node: NodeConnection, choice: QueueChoice) -> NodeSnapshot:
    """Ask a node for everything.  Raises the errors of `disqued.client.errors`."""
    at = time.monotonic()
    info, hello, clock = node.call_all([("INFO", "default"), ("HELLO",), ("TIME",)])
    told = read_hello(_sound(hello), b"")
    facts = read_info(_sound(info), b"")
    if facts.get("loading") == "1":
        return NodeSnapshot(member, at, facts, told=told)
    (cluster,) = node.call_all([("CLUSTER", "INFO")])
    facts |= read_info(_sound(cluster), b"")
    seconds, _ = _sound(clock)
    return NodeSnapshot(member, at, facts, _queues(node, int(seconds), choice), told)


def _sound(reply: Any) -> Any:
    if isinstance(reply, ServerError):
        raise reply
    return reply


def _queues(node: NodeConnection, now_s: int, choice: QueueChoice) -> dict[bytes, QueueSnapshot]:
    names: dict[bytes, None] = {}
    cursor = b"0"
    scope: tuple[str, ...] = ("REPLY", "known")
    while choice.most is None or len(names) < choice.most:
        (page,) = node.call_all([("QSCAN", cursor, "COUNT", PAGE, *scope)])
        if scope and isinstance(page, ServerError):  # a node of an older version
            scope = ()
            continue
        cursor, found = read_page(_sound(page), b"")
        names.update(dict.fromkeys(filter(choice.fits, found)))
        if cursor == b"0":
            break
    replies = node.call_all([("QSTAT", name, "FULL") for name in list(names)[: choice.most]])
    looks = {look.name: look for look in map(_queue, replies) if look}
    longest = sorted((look for look in looks.values() if look.length), key=lambda look: -look.length)[: choice.ages]
    for name, created_ns in _oldest(node, [look.name for look in longest]).items():
        looks[name] = attrs.evolve(looks[name], oldest_s=max(0.0, now_s - created_ns / NS))
    return looks


def _queue(reply: Any) -> QueueSnapshot | None:
    """Read QSTAT; None for a queue that is gone by now, or is none of jobs."""
    if reply is None or isinstance(reply, ServerError):
        return None
    facts: Any = read_facts(reply, b"")
    return QueueSnapshot(
        facts["name"], facts.get("owned", facts["len"]), facts["jobs-in"],
        facts.get("delivered", facts["jobs-out"]), facts["blocked"], facts["pause"].decode(), facts.get("dead", 0),
        facts.get("failing", 0), None, facts["age"], text_of(facts.get("pause-reason", b"")), facts.get("delayed"),
        facts.get("in-flight"), facts.get("elsewhere"), facts.get("done"),
    )  # fmt: skip


def _oldest(node: NodeConnection, names: Sequence[bytes]) -> dict[bytes, int]:
    """Since when the oldest jobs of some queues are there, in unix nanoseconds."""
    peeked = [
        job
        for reply in node.call_all([("QPEEK", name, 1) for name in names])
        if not isinstance(reply, ServerError)
        for job in read_jobs(reply, b"")
    ]
    shown = node.call_all([("SHOW", job.id) for job in peeked])
    found: dict[bytes, int] = {}
    for job, reply in zip(peeked, shown, strict=True):
        facts: Any = None if isinstance(reply, ServerError) else read_facts(reply, b"")
        if facts is not None:
            found[job.queue] = facts["ctime"]
    return found


def queues_in_all(looks: Iterable[NodeSnapshot]) -> int:
    """How many queues the nodes have that were looked at in part; the same queue on two nodes is two."""
    return sum(max(look.number("registered_queues"), len(look.queues)) for look in looks)
