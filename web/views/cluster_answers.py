"""What pages make of the answers of all nodes: an error is an answer, too, and missing nodes are named in words."""

from typing import Final

import attrs

from disqued.core.cluster.questions import ANSWER_MS, OK, REFUSED, SILENT
from disqued.core.model.peers import FAIL, PFAIL
from disqued.core.view import NodeView
from disqued.errors import CommandError
from disqued.web.views import rendering
from disqued.web.views.everywhere import ALL, FRESH_S, ClusterReply, Everywhere, NodeReply

_SILENT: Final = f"has a link, and has not answered within {ANSWER_MS // 1_000} s"


async def ask_all(
    everywhere: Everywhere, node: NodeView, *words: bytes, node_id: bytes = ALL, fresh_s: float = FRESH_S
) -> ClusterReply:
    """Ask all nodes, or one; while this one cannot ask, its error is the only answer.

    `fresh_s` is 0 for a page that is opened: its reader may have changed something just before.
    """
    try:
        return await everywhere.ask(*words, node_id=node_id, fresh_s=fresh_s)
    except CommandError as error:
        return ClusterReply(0.0, [NodeReply(node.id, REFUSED, error.line)])


def fields_of(reply: NodeReply) -> dict[str, str]:
    """Read lines such as `field:value`; empty unless the node has answered."""
    if reply.status != OK:
        return {}
    lines = bytes(reply.value).decode("utf-8", "backslashreplace").splitlines()
    return {name: value for name, mark, value in (line.partition(":") for line in lines) if mark}


@attrs.frozen
class MissingNode:
    """A node that has not answered."""

    id: bytes
    address: str  #: empty = not known
    why: str  #: the end of a sentence that begins with the node
    word: str = "not answering"  #: the same in a word or two
    error: str = ""  #: the line of the error that it has answered

    @property
    def short(self) -> str:
        """The node, as pages show it."""
        return self.id[:8].decode("ascii", "replace")

    @property
    def sentence(self) -> str:
        where = f" ({self.address})" if self.address else ""
        return f"Node {self.short}{where} {self.why}."


def _away(flags: int) -> tuple[str, str]:
    """Say how a node is that cannot be asked: the end of a sentence, and a word or two."""
    if flags & FAIL:
        return "has failed", "failed"
    return ("does not answer", "not answering") if flags & PFAIL else ("has no link to this node", "no link")


def missing_nodes(node: NodeView, reply: ClusterReply) -> list[MissingNode]:
    """Return the nodes that have not answered, and what is known of why."""
    known = {each.id: each for each in node.known_nodes()} if reply.missing else {}
    found = []
    for each in reply.missing:
        peer = known.get(each.node_id)
        address = "" if peer is None or not peer.host else f"{peer.host}:{peer.port}"
        error = ""
        heard = "" if peer is None or not peer.pong_at else rendering.span(max(0, node.wall() - peer.pong_at))
        word = "not answering"
        if each.status == SILENT:
            why = f"{_SILENT}; it was heard {heard} ago" if heard else _SILENT
        elif each.status == REFUSED:
            error = rendering.name(bytes(each.value), 200)
            why = f"refuses to answer: {error}"
        else:
            why, word = _away(0 if peer is None else peer.flags)
            if heard:
                why += f", and was heard {heard} ago"
        found.append(MissingNode(each.node_id, address, why, word, error))
    return found
