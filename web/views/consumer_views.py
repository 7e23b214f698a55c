"""Who consumes a queue: QCONSUMERS of all nodes, those first that have a job for the longest time."""

from typing import Any, Final

import attrs

from disqued.core.view import NodeView
from disqued.web.views.cluster_answers import ask_all
from disqued.web.views.everywhere import FRESH_S, Everywhere, NodeReply

CONSUMERS_SHOWN: Final = 100  #: of all nodes together


@attrs.frozen
class ConsumerRow:
    """A consumer of a queue, as the node describes it that it is connected to.  Spans are milliseconds."""

    node_id: bytes
    is_here: bool
    consumer: bytes | None  #: name or address of the client; None = the node does not know who it is
    address: bytes
    client: int  #: its number in CLIENT LIST of the node
    is_connected: bool
    worker: bytes  #: empty = it is none
    group: bytes  #: of a log; empty = none
    waiting_ms: int | None  #: None = it does not wait
    jobs: int  #: that it has
    oldest_ms: int | None  #: for how long it has the oldest of these

    @property
    def node(self) -> str:
        """The node, as pages show it."""
        return self.node_id[:8].decode("ascii", "replace")


async def consumers_of(
    everywhere: Everywhere, node: NodeView, queue: bytes, fresh_s: float = FRESH_S
) -> list[ConsumerRow]:
    """Return the consumers of a queue on the nodes that answer, CONSUMERS_SHOWN at most."""
    words = (b"QCONSUMERS", queue, b"COUNT", b"%d" % CONSUMERS_SHOWN)
    reply = await ask_all(everywhere, node, *words, fresh_s=fresh_s)
    rows = [_row(node, each, told) for each in reply.answered for told in each.value]
    return sorted(rows, key=lambda row: (-(row.oldest_ms or 0), -(row.waiting_ms or 0)))[:CONSUMERS_SHOWN]


def _row(node: NodeView, reply: NodeReply, told: list[Any]) -> ConsumerRow:
    fields = dict(zip((name.decode() for name in told[::2]), told[1::2], strict=True))
    return ConsumerRow(
        reply.node_id, reply.node_id == node.id, fields["consumer"], fields["address"], fields["client"],
        bool(fields["connected"]), fields["worker"], fields["group"], fields["waiting-for"], fields["jobs"],
        fields["oldest-for"],
    )  # fmt: skip
