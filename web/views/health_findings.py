"""What needs attention in the cluster, in plain words and worst first: a pure function of what the nodes answer.

    INFO of each node ---------> node_groups  ---+
    rows of all queues --> QueueSurvey.groups ---+--> in_order --> the list on the overview, and in the API

Each finding stands in the group of what is wrong: a queue that is paused and whose jobs fail is in two of them.  A
group shows `SHOWN` findings, counts the others, and says where all of them are.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from itertools import chain
from typing import Any, Final

import attrs

from disqued.core.model.peers import LEAVING, KnownNode
from disqued.core.model.queues import PAUSE_OUT
from disqued.reports.value_formats import count
from disqued.web.views import rendering
from disqued.web.views.cluster_answers import MissingNode
from disqued.web.views.queue_views import QueueRow

SHOWN: Final = 10  #: findings of a group
UNCONSUMED_MS: Final = 2_000  #: a job that is younger may be between two calls of a consumer
NEW_S: Final = 600  #: for how long a start without a store is told
APART_S: Final = 60  #: nodes that start together do so within that
OLD_MS: Final = 15 * 60_000  #: age of a ready job that is worth a look, whoever consumes its queue
FULL_LEVEL: Final = 2  #: of memory: the node evicts what it may drop
DISK_PART: Final = 20  #: disk space is low when less than one part in so many is free

_DRAINS: Final = "leaves the cluster: it hands its jobs to other nodes and accepts no new ones"
_DRAINED: Final = "is drained, and may be stopped"
_NODES: Final = ("/#h-nodes", "Cluster nodes")  #: where the figures of nodes are
#: Kinds whose jobs have a page, which also takes the name of a queue.
_LISTS: Final = {"dead": ("/dead", "Dead jobs"), "failing": ("/failing", "Failing jobs")}

Facts = Mapping[str, str]  #: fields of INFO


@attrs.frozen
class Finding:
    """One node or queue that needs attention."""

    text: str  #: a sentence; of a queue what follows its name
    queue: bytes | None = None
    node_id: bytes | None = None


@attrs.frozen
class FindingGroup:
    """Findings of one kind."""

    kind: str  #: a word of `KINDS`
    title: str
    findings: Sequence[Finding]  #: SHOWN at most
    path: str  #: where the figures are, and what can be done
    label: str  #: what is there
    count: int  #: findings, those that are not shown included

    @property
    def is_error(self) -> bool:
        """True when data or service is at stake; False when somebody should have a look."""
        return KINDS[self.kind]

    @property
    def lists_jobs(self) -> bool:
        """Return whether `path` lists the jobs themselves, of one queue with `?queue=`."""
        return self.kind in _LISTS

    @property
    def severity(self) -> str:
        return "error" if self.is_error else "warning"

    @property
    def more(self) -> int:
        """Number of findings that are not shown."""
        return self.count - len(self.findings)


#: Kinds of findings, worst first, and whether each is an error.
KINDS: Final = {
    "cannot-ask": True, "node-missing": True, "store": True, "this-node": True, "disk": True, "memory": True,
    "dead": True, "node-loading": False, "node-new": False, "slots-lost": False, "stranded": False,
    "unconsumed": False, "failing": False, "paused": False, "old": False, "node-leaving": False,
}  # fmt: skip
_PLACES: Final = {kind: place for place, kind in enumerate(KINDS)}


def in_order(groups: Iterable[FindingGroup]) -> list[FindingGroup]:
    """Leave out empty groups, and put the worst first."""
    return sorted((group for group in groups if group.count), key=lambda group: _PLACES[group.kind])


def counted(number: int, one: str, many: str = "") -> str:
    """A number and its noun: ``1 queue``, ``2 queues``."""
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


# Nodes.


def whole(facts: Facts, name: str) -> int:
    """A field of INFO that counts; 0 where a node of another version does not have it."""
    text = facts.get(name, "0")
    return int(text) if text.isdecimal() else 0


@attrs.frozen
class NodeFacts:
    """What is known of the nodes, gathered by whoever asked them."""

    own_id: bytes
    known: Sequence[KnownNode]  #: as this node sees them, itself included
    facts: Mapping[bytes, Facts]  #: INFO of those that answered, by node
    missing: Sequence[MissingNode] = ()
    failure: str = ""  #: why no node can be asked now
    trouble: Sequence[str] = ()  #: sentences of this node about itself
    drained: Collection[bytes] = ()  #: ids of those that leave and may be stopped

    def name(self, node_id: bytes) -> str:
        """A node as the subject of a sentence."""
        if node_id == self.own_id:
            return "This node"
        known = next((each for each in self.known if each.id == node_id), None)
        where = "" if known is None or not known.host else f" ({known.host}:{known.port})"
        return f"Node {node_id[:8].decode('ascii', 'replace')}{where}"


def node_groups(nodes: NodeFacts) -> list[FindingGroup]:
    """Return what is wrong with nodes; what this node says in `trouble` is not said again."""
    missing = [Finding(one.sentence, node_id=one.id) for one in nodes.missing]
    leaving = [
        Finding(f"{nodes.name(each.id)} {_DRAINED if each.id in nodes.drained else _DRAINS}.", node_id=each.id)
        for each in nodes.known if each.flags & LEAVING
    ]  # fmt: skip
    new = _new(nodes)
    failure = [Finding(rendering.sentence(nodes.failure), node_id=nodes.own_id)] if nodes.failure else []
    return [
        _of_nodes("cannot-ask", "The nodes cannot be asked now", failure),
        _of_nodes("node-missing", _said(missing, "node does not answer", "nodes do not answer"), missing),
        FindingGroup("this-node", "This node needs attention",
                     [Finding(text, node_id=nodes.own_id) for text in nodes.trouble], "/#h-node", "This node",
                     len(nodes.trouble)),
        _by_node(nodes, "store", "Writes fail on", _store),
        _by_node(nodes, "disk", "Disk space is low on", _disk),
        _by_node(nodes, "memory", "Memory is nearly full on", _memory),
        _by_node(nodes, "node-loading", "Data are being loaded on", _loading),
        _of_nodes("node-new", f"{counted(len(new), 'node')} started a short time ago without a store", new),
        _of_nodes("node-leaving", _said(leaving, "node leaves the cluster", "nodes leave the cluster"), leaving),
    ]  # fmt: skip


def _said(findings: Sequence[Finding], one: str, many: str) -> str:
    return counted(len(findings), one, many)


def _of_nodes(kind: str, title: str, findings: Sequence[Finding]) -> FindingGroup:
    return FindingGroup(kind, title, findings[:SHOWN], *_NODES, len(findings))


def _by_node(nodes: NodeFacts, kind: str, title: str, say: Callable[[Facts, bool], str]) -> FindingGroup:
    """Group what is said of the INFO of each node; `say` gets whether it is this one, and returns "" if all is well."""
    found = []
    for node_id, facts in nodes.facts.items():
        text = say(facts, node_id == nodes.own_id)
        if text:
            found.append(Finding(f"{nodes.name(node_id)} {rendering.sentence(text)}", node_id=node_id))
    return _of_nodes(kind, f"{title} {counted(len(found), 'node')}", found)


def _store(facts: Facts, is_here: bool) -> str:
    if facts.get("aof_last_write_status") == "err" and not (is_here and "persistence_failure" in facts):
        reason = facts.get("persistence_failure") or facts.get("redis_last_error", "none")
        return "could not write to its store" + ("" if reason == "none" else f": {reason}")
    if facts.get("aof_last_bgrewrite_status") == "err":
        return "could not compact its journal; its log says why"
    return ""


def _disk(facts: Facts, is_here: bool) -> str:
    free, size = whole(facts, "dir_free_bytes"), whole(facts, "dir_size_bytes")
    if not size or free * DISK_PART >= size:
        return ""
    return f"has {rendering.size(free)} of {rendering.size(size)} free where its data are"


def _memory(facts: Facts, is_here: bool) -> str:
    if is_here or whole(facts, "memory_level") < FULL_LEVEL:
        return ""
    used, limit = whole(facts, "used_memory"), whole(facts, "maxmemory")
    return f"uses {rendering.size(used)} of {rendering.size(limit)}, and evicts what it may drop"


def _loading(facts: Facts, is_here: bool) -> str:
    return "loads its data and answers commands with LOADING" if facts.get("loading") == "1" and not is_here else ""


def _new(nodes: NodeFacts) -> list[Finding]:
    """Say which nodes began with nothing while others went on."""
    up_s = {node_id: whole(facts, "uptime_in_seconds") for node_id, facts in nodes.facts.items()}
    longest_s = max(up_s.values(), default=0)
    return [
        Finding(f"{nodes.name(node_id)} started {rendering.span(up_s[node_id] * 1_000)} ago: jobs that it alone had "
                "before are lost.", node_id=node_id)
        for node_id, facts in nodes.facts.items()
        if facts.get("persistence") == "none" and up_s[node_id] < NEW_S and longest_s - up_s[node_id] >= APART_S
    ]  # fmt: skip


# Queues.


@attrs.frozen
class QueueKind:
    """What may be wrong with a queue."""

    is_true: Callable[[QueueRow], Any]
    badness: Callable[[QueueRow], int]  #: the worst are shown
    sort: str  #: of the table of queues: those with the largest figure first
    one: str  #: title, behind the number of queues
    many: str
    say: Callable[[QueueRow], str]
    counts_copies: bool = False  #: each node that holds such a job counts it


def _is_unconsumed(row: QueueRow) -> bool:
    """A consumer that polls is not there between two calls, so that a delivery of the last minutes counts."""
    has_consumer = row.blocked or row.in_flight or row.out_rate or row.delivered_ms is not None
    is_new = row.oldest_ms is not None and row.oldest_ms < UNCONSUMED_MS
    return bool(row.length) and not (row.is_log or has_consumer or is_new or row.pause & PAUSE_OUT)


def _is_old(row: QueueRow) -> bool:
    """Events are kept, whoever has seen them; what is paused or has no consumer is told as such."""
    is_explained = row.is_log or row.pause & PAUSE_OUT or _is_unconsumed(row)
    return (row.oldest_ms or 0) >= OLD_MS and not is_explained


def _waiting(row: QueueRow) -> str:
    ready = counted(row.length, "ready job")
    return ready if row.oldest_ms is None else f"{ready}, the oldest added {rendering.span(row.oldest_ms)} ago"


def _lost_slots(row: QueueRow) -> str:
    slots = counted(row.slots_lost, "slot")
    return f"{slots} of a node that is gone or began anew; it is free when its job is acknowledged or comes again"


def _stranded(row: QueueRow) -> str:
    copies = counted(row.stranded, "copy", "copies")
    return f"at least {copies} of jobs that wait for the end of their retry time, as the node that had them is gone"


_QUEUE_KINDS: Final = {
    "dead": QueueKind(
        lambda row: row.dead, lambda row: row.dead, "dead", "queue has dead jobs", "queues have dead jobs",
        lambda row: counted(row.dead, "dead job"), counts_copies=True,
    ),
    "slots-lost": QueueKind(
        lambda row: row.slots_lost, lambda row: row.slots_lost, "in-flight", "queue has slots of nodes that are gone",
        "queues have slots of nodes that are gone", _lost_slots,
    ),
    "stranded": QueueKind(
        lambda row: row.stranded, lambda row: row.stranded, "elsewhere",
        "queue or more has jobs that no node hands out",
        "queues or more have jobs that no node hands out", _stranded,
    ),
    "unconsumed": QueueKind(
        _is_unconsumed, lambda row: row.length, "length", "queue has ready jobs and no consumer on any node",
        "queues have ready jobs and no consumer on any node", _waiting,
    ),
    "failing": QueueKind(
        lambda row: row.failing, lambda row: row.failing, "failing", "queue has failing jobs",
        "queues have failing jobs", lambda row: counted(row.failing, "failing job"), counts_copies=True,
    ),
    "paused": QueueKind(
        lambda row: row.pause, lambda row: row.length, "paused", "queue is paused", "queues are paused", _waiting,
    ),
    "old": QueueKind(
        _is_old, lambda row: row.oldest_ms or 0, "oldest", "queue has a backlog of old jobs",
        "queues have a backlog of old jobs", _waiting,
    ),
}  # fmt: skip


class QueueSurvey:
    """Counts of all queues, and the worst of each kind; rows are looked at slice by slice."""

    def __init__(self) -> None:
        self.queues = self.ready = self.in_flight = self.delayed = self.dead = self.failing = 0
        self.oldest: list[QueueRow] = []  #: queues whose oldest ready job is oldest
        self._counts = dict.fromkeys(_QUEUE_KINDS, 0)
        self._worst: dict[str, list[QueueRow]] = {kind: [] for kind in _QUEUE_KINDS}

    def look(self, rows: Sequence[QueueRow]) -> None:
        """Count these rows, too."""
        self.queues += len(rows)
        for row in rows:
            self.ready += 0 if row.is_log else row.length
            self.in_flight += row.in_flight
            self.delayed += row.delayed
            self.dead += row.dead
            self.failing += row.failing
        self.oldest = _largest(self.oldest, (row for row in rows if row.oldest_ms is not None and not row.is_log),
                               lambda row: row.oldest_ms or 0)  # fmt: skip
        for word, kind in _QUEUE_KINDS.items():
            found = [row for row in rows if kind.is_true(row)]
            self._counts[word] += len(found)
            self._worst[word] = _largest(self._worst[word], found, kind.badness)

    def groups(self, say_pause: Callable[[QueueRow], str], *, is_whole: bool, has_copies: bool) -> list[FindingGroup]:
        """Return what is wrong with queues.

        `say_pause` says what is paused, where, by whom and why, in a sentence with a blank behind it; `is_whole`: every
        node has answered; `has_copies`: other nodes count their copies of dead and failing jobs, too.
        """
        made = []
        for word, kind in _QUEUE_KINDS.items():
            said = say_pause if word == "paused" else _nothing
            behind = ", each copy counted." if has_copies and kind.counts_copies else "."
            findings = [Finding(f"{said(row)}{kind.say(row)}{behind}", row.name) for row in self._worst[word]]
            title = counted(self._counts[word], kind.one, kind.many)
            if word == "unconsumed" and not is_whole:
                title += " that answers"
            place = _LISTS.get(word, (f"/queues?sort={kind.sort}", "Table of queues"))
            made.append(FindingGroup(word, title, findings, *place, self._counts[word]))
        return made


def _nothing(_: QueueRow) -> str:
    return ""


def _largest(before: Iterable[QueueRow], rows: Iterable[QueueRow], size: Callable[[QueueRow], int]) -> list[QueueRow]:
    return nlargest(SHOWN, chain(before, rows), key=lambda row: (size(row), row.name))
