"""What nodes are called on pages, and which of them are missing from the figures of a page.

ids of nodes, their replies --label, shown_sources--> what the templates print

Figures are sums of what each node says of itself.  Most of them count a job once: one node has it in its queue, or
handed it to its consumer.  Those in `COPIED` count a job once for each node that holds it, so that pages call their
sums copies (`ShownSources.label`); only lists of jobs (`failed_jobs`) know which copies are those of one job.
"""

from collections.abc import Iterable
from typing import Final

import attrs

from disqued.core.model.peers import KnownNode
from disqued.core.view import NodeView
from disqued.web.views.cluster_answers import MissingNode, missing_nodes
from disqued.web.views.everywhere import ClusterReply

#: Labels of figures that every holder of a job counts.
COPIED: Final = frozenset({"Acknowledged", "Delayed", "Done", "Dead", "Failing"})


@attrs.frozen
class NodeLabel:
    """A node on a page."""

    id: str
    address: str  #: of its clients; empty = not known
    myself: bool

    @property
    def short(self) -> str:
        return self.id[:8]


@attrs.frozen
class ShownSources:
    """Where the figures of a page come from."""

    nodes: int  #: that answered
    missing: list[MissingNode]  #: nodes whose figures are not known
    age_ms: int
    failure: str  #: why no node can be asked now

    @property
    def has_copies(self) -> bool:
        """Return whether a job may be in the figures of several nodes."""
        return self.nodes > 1

    def label(self, name: str) -> str:
        """Return the label of a figure, which says so if the figure counts copies."""
        return f"{name} copies" if self.has_copies and name in COPIED else name


def labels(node: NodeView, ids: Iterable[bytes]) -> list[NodeLabel]:
    """Label nodes by their ids, in the order of these."""
    known = {each.id: each for each in node.known_nodes()}
    return [_label(node, node_id, known.get(node_id)) for node_id in ids]


def _label(node: NodeView, node_id: bytes, known: KnownNode | None) -> NodeLabel:
    address = f"{known.host}:{known.port}" if known is not None and known.host else ""
    return NodeLabel(node_id.decode("ascii", "replace"), address, node_id == node.id)


def shown_sources(node: NodeView, reply: ClusterReply, age_s: float, failure: str = "") -> ShownSources:
    """Say how many nodes answered, how long ago, and which did not."""
    return ShownSources(len(reply.answered), missing_nodes(node, reply), max(0, round(age_s * 1_000)), failure)
