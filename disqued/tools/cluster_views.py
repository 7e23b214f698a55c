"""What each node of a cluster says of itself and of the others, and what is wrong in that.

    every node --CLUSTER NODES, CLUSTER INFO, INFO--> NodeView --together--> problems, pairs that do not see each other

A pair is sound when both nodes have the other one in CLUSTER NODES, met, with a link and without a flag that says that
it fails.  Problems are sentences for people, in the order of the nodes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from disqued.client.replies import read_info
from disqued.tools.connecting import NodeConnection
from disqued.tools.members import ID_SHOWN, Member, info
from disqued.tools.polling import ask_once

#: Flags of CLUSTER NODES with which no jobs can be given to a node.
UNSOUND: Final = frozenset({"fail", "fail?", "handshake"})
#: Of INFO: what a view is made of.
SECTIONS: Final = ("server", "memory", "jobs", "persistence", "cluster", "clients")


@attrs.frozen
class NodeLine:
    """A line of CLUSTER NODES: a node, as another one sees it."""

    id: str
    address: str  #: host:port, as far as it is known
    flags: frozenset[str]
    is_linked: bool

    @property
    def is_sound(self) -> bool:
        """Tell whether jobs can be given to that node."""
        return self.is_linked and not self.flags & UNSOUND


@attrs.frozen
class NodeReport:
    """A node, and what it says; nothing when it does not answer."""

    member: Member
    lines: tuple[NodeLine, ...] = ()
    cluster: Mapping[str, str] = attrs.field(factory=dict)  #: CLUSTER INFO
    facts: Mapping[str, str] = attrs.field(factory=dict)  #: INFO
    #: Why there is nothing; "" when there is.
    error: str = ""
    is_refused: bool = False  #: it is there, and has answered with that error

    @property
    def id(self) -> str:
        return self.member.id

    @property
    def name(self) -> str:
        """The node, for people: where it is, and which one."""
        return f"{self.member.address} ({self.id[:ID_SHOWN]})"

    @property
    def others(self) -> list[NodeLine]:
        """The other nodes, as this one sees them."""
        return [line for line in self.lines if "myself" not in line.flags]

    @property
    def jobs(self) -> int:
        """Jobs that it holds, copies and those that are done and not yet forgotten included."""
        return int(self.facts.get("registered_jobs", 0))

    @property
    def is_leaving(self) -> bool:
        """Tell whether it is being drained."""
        return self.cluster.get("cluster_leaving") == "yes"

    @property
    def is_loading(self) -> bool:
        """Tell whether it serves nobody yet."""
        return self.facts.get("loading") == "1"

    @property
    def is_safe(self) -> bool:
        """Tell whether it may be stopped and nothing is lost."""
        return self.cluster.get("cluster_safe_to_stop") == "yes"

    @property
    def state(self) -> str:
        """One word for people."""
        if self.error:
            return "refuses" if self.is_refused else "away"
        if self.is_leaving:
            return "left" if self.is_safe else "leaving"
        return "ok" if all(line.is_sound for line in self.others) else "cut off"


def read_lines(text: str) -> tuple[NodeLine, ...]:
    """Read CLUSTER NODES."""
    rows = (line.split() for line in text.splitlines())
    return tuple(
        NodeLine(id_, address.partition("@")[0], frozenset(flags.split(",")), link == "connected")
        for id_, address, flags, _, _, link in rows
    )


def look_at(member: Member, node: NodeConnection) -> NodeReport:
    """Ask a node.  Raises the errors of `disqued.client.errors`."""
    return NodeReport(member, read_lines(node.call("CLUSTER", "NODES").decode()),
                      read_info(node.call("CLUSTER", "INFO"), b""), info(node, *SECTIONS))  # fmt: skip


def look_at_all(known: Iterable[Member]) -> list[NodeReport]:
    """Ask each node on a connection of its own, all at the same time."""
    return [
        answer.value or NodeReport(answer.member, error=answer.error, is_refused=answer.is_refused)
        for answer in ask_once(known, look_at)
    ]


# What is wrong.


def unseen(views: Sequence[NodeReport]) -> list[str]:
    """Name the pairs of which one node does not see the other: `a does not see b`."""
    missing = []
    for view in views:
        sound = {line.id for line in view.lines if line.is_sound}
        missing += [f"{view.name} does not see {other.name}" for other in views if other.id not in {view.id, *sound}]
    return missing


def problems(views: Sequence[NodeReport]) -> list[str]:
    """Say what is not in order, a sentence each; nothing when all is."""
    found: list[str] = []
    answering = [view for view in views if not view.error]
    for view in views:
        found += [f"{view.name}: {view.error}"] if view.error else _own_problems(view)
    found += unseen(answering)
    ids = {view.id for view in views}
    strangers = {line.id: line for view in answering for line in view.others if line.id not in ids}
    for line in strangers.values():
        what = (
            "is being called and has not answered yet" if "handshake" in line.flags else "is known to some nodes only"
        )
        found.append(f"{line.address}: {what}")
    return found


def _own_problems(view: NodeReport) -> Iterator[str]:
    if twin := view.cluster.get("cluster_same_id_at"):
        yield f"{view.name}: another node with the same id is at {twin}; CLUSTER RESET HARD on one of them"
    if view.is_loading:
        yield f"{view.name}: is loading its jobs"
    if view.facts.get("aof_last_write_status", "ok") != "ok":
        yield f"{view.name}: its journal cannot be written; nothing is added there"
    if view.facts.get("memory_level", "0") == "3":
        yield f"{view.name}: its memory is full; nothing is added there"
