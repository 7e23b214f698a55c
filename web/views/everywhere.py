"""What every node of the cluster answers to a command that only looks: the figures that pages and the API show.

    views --Everywhere.ask("QSTAT", queue)--> CLUSTER ASK * QSTAT queue --> each node answers for itself
                                                                             or is silent, or away

Views with the same question share its answer for `FRESH_S`, so that what ten open pages cost is what one costs.  A
view shows which nodes have not answered (`missing`), and how old what it shows is (`asked_at`).
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from typing import Any, Final

import attrs
from twisted.internet.defer import Deferred, ensureDeferred

from disqued.core.cluster.questions import OK, REFUSED
from disqued.errors import CommandError
from disqued.web.gateway import Gateway

FRESH_S: Final = 1.0  #: how long an answer is shared
ADDRESS: Final = "admin side"  #: who asks, to MONITOR and the slow log
ALL: Final = b"*"


@attrs.frozen
class NodeReply:
    """What one node has answered."""

    node_id: bytes
    status: bytes  #: ok, error, silent or away (`core.cluster.questions`)
    value: Any  #: of the command; the line of an error; None if there is no answer

    @property
    def fields(self) -> dict[str, Any]:
        """A flat array of names and values, by name; empty unless the node has answered with one."""
        if self.status != OK or not isinstance(self.value, list):
            return {}
        return {bytes(self.value[at]).decode(): self.value[at + 1] for at in range(0, len(self.value), 2)}


@attrs.frozen
class ClusterReply:
    """What the nodes have answered, in the order of their ids."""

    asked_at: float  #: seconds of the reactor's clock
    replies: Sequence[NodeReply]

    @property
    def answered(self) -> list[NodeReply]:
        """Those of nodes that have answered, and not with an error."""
        return [reply for reply in self.replies if reply.status == OK]

    @property
    def missing(self) -> list[NodeReply]:
        """Those of nodes whose figures are not known."""
        return [reply for reply in self.replies if reply.status != OK]


class Everywhere:
    """Asks all nodes, each question once at a time."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._kept: dict[tuple[bytes, ...], ClusterReply] = {}
        self._asking: dict[tuple[bytes, ...], list[Deferred[ClusterReply]]] = {}  #: and who waits for the answer

    async def ask(self, *words: bytes, node_id: bytes = ALL, fresh_s: float = FRESH_S) -> ClusterReply:
        """Ask all nodes, or one; an answer that is not older than `fresh_s` is shared.  Raises CommandError."""
        question = (node_id, *words)
        now = self._gateway.reactor.seconds()
        self._kept = {each: reply for each, reply in self._kept.items() if now - reply.asked_at <= FRESH_S}
        kept = self._kept.get(question)
        if kept is not None and now - kept.asked_at <= fresh_s:
            return kept
        waiting: Deferred[ClusterReply] = Deferred()
        waiters = self._asking.setdefault(question, [])
        waiters.append(waiting)
        if len(waiters) == 1:
            # On nobody's behalf: who asked first may go before the answer comes.
            ensureDeferred(self._ask(question, now, keeps=fresh_s > 0))
        return await waiting

    def age_ms(self, reply: ClusterReply) -> int:
        """Return how long ago the nodes were asked for an answer."""
        now: float = self._gateway.reactor.seconds()
        return max(0, round((now - reply.asked_at) * 1_000))

    async def _ask(self, question: tuple[bytes, ...], now: float, *, keeps: bool) -> None:
        try:
            rows = await self._gateway.clients.call([b"CLUSTER", b"ASK", *question], address=ADDRESS)
        except Exception as error:  # each of those who wait hears it
            for waiting in self._asking.pop(question):
                waiting.errback(error)
            return
        reply = ClusterReply(now, [NodeReply(*row) for row in rows])
        if keeps:
            self._kept[question] = reply
        for waiting in self._asking.pop(question):
            if not waiting.called:
                waiting.callback(reply)

    async def pages(
        self, *words: bytes, count: int = 500, fresh_s: float = FRESH_S, most: int | None = None
    ) -> AsyncGenerator[NodeReply, None]:
        """Walk with a command that takes a cursor on every node to the end; yields each reply, of a node in order.

        `words` are the command, and the options behind the cursor.  A reply that is not ok ends the walk on its node,
        and so do `most` replies; the first one of each is at most `fresh_s` old.  Raises CommandError if the nodes
        cannot be asked.
        """
        options = (*words[1:], b"COUNT", b"%d" % count)
        for first in (await self.ask(words[0], b"0", *options, fresh_s=fresh_s)).replies:
            reply, calls = first, 1
            yield reply
            while reply.status == OK and reply.value[0] != b"0" and calls != most:
                calls += 1
                reply = await self._more(reply.node_id, words[0], reply.value[0], *options)
                yield reply

    async def _more(self, node_id: bytes, *words: bytes) -> NodeReply:
        try:
            (reply,) = (await self.ask(*words, node_id=node_id, fresh_s=0)).replies
        except CommandError as error:  # the node was forgotten meanwhile
            return NodeReply(node_id, REFUSED, error.line)
        return reply

    async def walk(self, *words: bytes, count: int = 500) -> tuple[ClusterReply, dict[bytes, list[Any]]]:
        """Walk on every node to the end; returns elements by node, and the first replies, or those that end a walk."""
        asked_at = self._gateway.reactor.seconds()
        replies: dict[bytes, NodeReply] = {}
        found: dict[bytes, list[Any]] = {}
        async for reply in self.pages(*words, count=count):
            if reply.status == OK:
                found.setdefault(reply.node_id, []).extend(reply.value[1])
            if reply.status != OK or reply.node_id not in replies:
                replies[reply.node_id] = reply
        return ClusterReply(asked_at, list(replies.values())), found


def total(rows: Iterable[dict[str, Any]], name: str) -> int:
    """Add up a figure of all nodes; one of an older version may not have it."""
    return sum(int(row.get(name, 0)) for row in rows)
