"""What pages show of the nodes of the cluster: rows of a table, and one node with what it says of itself.

    known nodes, their vitals --node_rows--> the table, which waits for nobody
    INFO, CLUSTER INFO of one node --node_details--> its page
    CLUSTER INFO of nodes that leave --Drains--> how far each has come, for both

Times are integer milliseconds.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from twisted.internet.defer import ensureDeferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.core.model.messages import Vitals
from disqued.core.model.peers import FAIL, FAILING, FULL, LEAVING, PFAIL, KnownNode
from disqued.core.model.vitals import LastVitals
from disqued.core.view import NodeView
from disqued.reports.value_formats import count
from disqued.web.views import rendering
from disqued.web.views.cluster_answers import MissingNode, ask_all, fields_of, missing_nodes
from disqued.web.views.everywhere import FRESH_S, Everywhere

log = Logger()

Values = dict[str, Any]
NodeRates = tuple[float | None, float | None]  #: jobs queued and handed to consumers a second; None = not known


# Draining.


@attrs.frozen
class Drain:
    """How far a node that leaves has come, as it says."""

    left: int  #: jobs that are not safe elsewhere yet
    most: int  #: the most that were left whenever a page looked
    acks: int  #: acknowledgements that other nodes have yet to hear of
    waits_for: str  #: why it is not safe to stop
    is_safe: bool  #: nothing is lost when the node is stopped

    @property
    def gone(self) -> int:
        """Jobs of those seen that are safe elsewhere."""
        return self.most - self.left

    @property
    def short(self) -> str:
        """In a table."""
        return "leaving: may be stopped" if self.is_safe else f"leaving: {self.amount}"

    @property
    def amount(self) -> str:
        """What is left."""
        if self.left or not self.acks:
            return f"{count(self.left)} of {count(self.most)} jobs are left"
        return f"no jobs are left, {count(self.acks)} acknowledgements are"

    @property
    def sentence(self) -> str:
        """On the page of the node."""
        if self.is_safe:
            return "Drained: the node may be stopped, and nothing is lost. What its consumers have comes again."
        why = f" It is not safe to stop yet: {self.waits_for}." if self.waits_for else ""
        return f"Leaving: {self.amount}.{why}"


class Drains:
    """Remembers how far nodes that leave have come."""

    def __init__(self, everywhere: Everywhere) -> None:
        self.everywhere = everywhere
        self._by_id: dict[bytes, Drain] = {}
        self._is_asking = False

    def of(self, node_id: bytes) -> Drain | None:
        """Return what a node said last; None = nothing yet, or it is not leaving."""
        return self._by_id.get(node_id)

    def take(self, node_id: bytes, facts: Mapping[str, str]) -> Drain | None:
        """Enter what a node says with CLUSTER INFO."""
        if facts.get("cluster_leaving") != "yes":
            self._by_id.pop(node_id, None)
            return None
        left = int(facts.get("cluster_leaving_jobs_left", 0))
        known = self._by_id.get(node_id)
        most = left if known is None else max(left, known.most)
        acks = int(facts.get("cluster_leaving_acks_left", 0))
        is_safe = facts.get("cluster_safe_to_stop") == "yes"
        found = self._by_id[node_id] = Drain(left, most, acks, facts.get("cluster_leaving_waits_for", ""), is_safe)
        return found

    def is_safe(self, node_id: bytes) -> bool:
        """Return whether a node has said that it may be stopped."""
        drain = self._by_id.get(node_id)
        return drain is not None and drain.is_safe

    def refresh(self, known_nodes: Iterable[KnownNode]) -> None:
        """Ask how far those have come that leave; the answers are there when this is asked for again."""
        ids = {known.id for known in known_nodes if known.flags & LEAVING and not known.flags & FAILING}
        self._by_id = {node_id: drain for node_id, drain in self._by_id.items() if node_id in ids}
        if ids and not self._is_asking:
            self._is_asking = True
            ensureDeferred(self._ask()).addErrback(self._failed)

    async def _ask(self) -> None:
        try:
            for reply in (await self.everywhere.ask(b"CLUSTER", b"INFO")).answered:
                self.take(reply.node_id, fields_of(reply))
        finally:
            self._is_asking = False

    @staticmethod
    def _failed(failure: Failure) -> None:
        """Pass over a node that cannot ask now, which the page says elsewhere."""
        log.debug("The nodes cannot be asked how far they have left: {why}", why=failure.getErrorMessage())


# The table.


def node_rows(node: NodeView, rates: Mapping[str, float | None], drains: Drains) -> list[Values]:
    """Rows of this node, then of the others with what they told of themselves, then the addresses that are tried."""
    known_nodes = node.known_nodes()
    drains.refresh(known_nodes)
    own, *others = (_row(node, known, drains) for known in known_nodes)
    return [own | _vital_values(node.vitals, rates["in"], rates["out"]), *others]


def _vital_values(vitals: Vitals, queued_rate: float | None, given_rate: float | None) -> Values:
    return {"version": vitals.version.decode("ascii"), "memory": vitals.memory, "limit": vitals.limit,
            "jobs": vitals.jobs, "in_rate": queued_rate, "out_rate": given_rate}  # fmt: skip


def rates_now(node: NodeView, known: KnownNode, told: LastVitals | None) -> NodeRates:
    """The rates that another node told of, while it goes on telling."""
    if told is None or not known.connected or known.flags & FAILING or node.now() - told.at > node.peer_timeout_ms:
        return None, None
    return told.queued_rate, told.given_rate


def _row(node: NodeView, known: KnownNode, drains: Drains) -> Values:
    host = known.host or ("this host" if known.myself else "?")
    told = known.account
    said = {} if told is None else _vital_values(told.vitals, *rates_now(node, known, told))
    return said | {"id": known.id.decode("ascii", "replace"), "address": f"{host}:{known.port}",
                   "states": _states(node, known, drains.of(known.id)), "myself": known.myself, "met": known.met,
                   "linked": known.connected, "bad": bool(known.flags & FAILING),
                   "pong_ms": _silent_ms(node, known)}  # fmt: skip


def _silent_ms(node: NodeView, known: KnownNode) -> int | None:
    """How long ago a node answered last; None = never."""
    return max(0, node.wall() - known.pong_at) if known.pong_at else None


def _states(node: NodeView, known: KnownNode, drain: Drain | None) -> list[str]:
    """How a node is, in words; empty = well."""
    found = []
    silent_ms = _silent_ms(node, known)
    since = "" if silent_ms is None else f" for {rendering.span(silent_ms)}"
    if known.flags & FAIL:
        found.append(f"failed, not heard{since}")
    elif known.flags & PFAIL:
        found.append(f"not answering{since}")
    if known.flags & LEAVING:
        found.append("leaving" if drain is None or known.flags & FAILING else drain.short)
    if known.flags & FULL:
        found.append("memory full")
    if not known.met:
        found.append("connecting")
    return found


# One node.


@attrs.frozen
class NodeDetails:
    """A node, and what it says of itself."""

    row: Values
    facts: Mapping[str, str]  #: INFO; empty = it has not answered
    drain: Drain | None  #: None = it is not leaving, or has not answered
    missing: MissingNode | None  #: why there are no facts
    seen: str  #: when it was heard, for one that has not answered; empty = never, or it answers

    @property
    def is_leaving(self) -> bool:
        """Whether the node drains, as it says or, where it does not answer, as this node heard last."""
        if self.missing is None:
            return self.drain is not None
        return any(state.startswith("leaving") for state in self.row["states"])

    @property
    def state(self) -> str:
        """How the node is, in a sentence."""
        if self.missing is not None:
            return f"{self.missing.sentence}{self.seen} Its figures are missing here."
        if self.drain is not None:
            copies = int(self.number("registered_jobs"))
            kept = f" It keeps {count(copies)} copies of jobs, and other nodes have all of these." if copies else ""
            return self.drain.sentence + (kept if self.drain.is_safe else "")
        return "The node answers and takes jobs."

    @property
    def badge(self) -> tuple[str, str]:
        """How serious that is (good, warn or bad), and the state in a word or two."""
        if self.missing is not None:
            return "bad", self.missing.word
        if self.drain is None:
            return "good", "healthy"
        return ("good", "drained") if self.drain.is_safe else ("warn", "leaving")

    def number(self, name: str) -> float:
        """A figure of INFO; 0 where the node, perhaps of another version, does not say."""
        try:
            return float(self.facts.get(name, 0))
        except ValueError:
            return 0.0

    @property
    def troubles(self) -> list[str]:
        """What is wrong with its store."""
        found = []
        if self.number("loading"):
            found.append("The node is loading its data and answers commands with LOADING.")
        for name, what in (("aof_last_write_status", "write"), ("aof_last_bgrewrite_status", "rewrite of the file")):
            if self.facts.get(name, "ok") != "ok":
                found.append(f"The last {what} of its store failed: {self.facts[name]}.")
        if self.number("memory_level") >= 2:
            found.append("Memory is nearly full. The node evicts what it may drop.")
        return found


async def node_details(
    drains: Drains, node: NodeView, rates: Mapping[str, float | None], node_id: bytes, fresh_s: float = FRESH_S
) -> NodeDetails | None:
    """Ask a node for what it says of itself; None = no node of this id is known, or no longer."""
    if not _known(node, node_id):
        return None
    info = await ask_all(drains.everywhere, node, b"INFO", node_id=node_id, fresh_s=fresh_s)
    missing = next(iter(missing_nodes(node, info)), None)
    drain = None
    if missing is None:
        cluster = await ask_all(drains.everywhere, node, b"CLUSTER", b"INFO", node_id=node_id, fresh_s=fresh_s)
        missing = next(iter(missing_nodes(node, cluster)), None)
        drain = None if missing is not None else drains.take(node_id, fields_of(cluster.replies[0]))
    known = _known(node, node_id)
    if known is None:
        return None
    row = _row(node, known, drains)
    if known.myself:
        row |= _vital_values(node.vitals, rates["in"], rates["out"])
    facts = {} if missing is not None else fields_of(info.replies[0])
    seen = ""
    if missing is not None and known.pong_at:
        seen = f" It was heard last at {rendering.moment(known.pong_at)}."
    return NodeDetails(row, facts, drain, missing, seen)


def _known(node: NodeView, node_id: bytes) -> KnownNode | None:
    return next((known for known in node.known_nodes() if known.id == node_id and known.met), None)
