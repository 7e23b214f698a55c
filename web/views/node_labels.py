"""What nodes are called on pages, and which of them are missing from the figures of a page.

ids of nodes, their replies --label, shown_sources--> what the templates print
"""

from collections.abc import Iterable, Sequence
from typing import Final

import attrs

from disqued.core.cluster.questions import ANSWER_MS, AWAY, OK, SILENT
from disqued.core.model.peers import KnownNode
from disqued.core.view import NodeView
from disqued.web.views import rendering
from disqued.web.views.everywhere import NodeReply

_WHY: Final = {AWAY: "there is no link to it", SILENT: f"it has not answered within {ANSWER_MS // 1_000} s"}


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
    missing: list[tuple[NodeLabel, str]]  #: nodes whose figures are not known, and why
    age_ms: int
    failure: str  #: why no node can be asked now


def labels(node: NodeView, ids: Iterable[bytes]) -> list[NodeLabel]:
    """Label nodes by their ids, in the order of these."""
    known = {each.id: each for each in node.known_nodes()}
    return [_label(node, node_id, known.get(node_id)) for node_id in ids]


def _label(node: NodeView, node_id: bytes, known: KnownNode | None) -> NodeLabel:
    address = f"{known.host}:{known.port}" if known is not None and known.host else ""
    return NodeLabel(node_id.decode("ascii", "replace"), address, node_id == node.id)


def shown_sources(node: NodeView, replies: Sequence[NodeReply], age_s: float, failure: str = "") -> ShownSources:
    """Say how many nodes answered, how long ago, and which did not."""
    known = {each.id: each for each in node.known_nodes()}
    missing = [
        (_label(node, reply.node_id, known.get(reply.node_id)), _why(node, reply, known.get(reply.node_id)))
        for reply in replies
        if reply.status != OK
    ]
    return ShownSources(len(replies) - len(missing), missing, max(0, round(age_s * 1_000)), failure)


def _why(node: NodeView, reply: NodeReply, known: KnownNode | None) -> str:
    if reply.status not in _WHY:
        return rendering.name(bytes(reply.value or b"an error"), 200)
    heard = "" if known is None or not known.pong_at else rendering.span(max(0, node.wall() - known.pong_at))
    return f"{_WHY[reply.status]}, last heard {heard} ago" if heard else _WHY[reply.status]
