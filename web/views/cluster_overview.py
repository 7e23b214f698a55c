"""The whole cluster at a glance: its figures, the queues that wait longest, and what needs attention.

    INFO and QSCAN REPLY figures on every node --> sums, QueueSurvey, findings --> the overview, GET /api/overview

All of it is what the nodes say of themselves.  Nodes that do not answer are named, and their figures are missing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
from twisted.internet.defer import ensureDeferred

from disqued.core.cluster.questions import OK
from disqued.core.model.peers import KnownNode
from disqued.core.view import NodeView
from disqued.web.gateway import SLICE_ROWS, Gateway
from disqued.web.turns import next_turn
from disqued.web.views import rendering
from disqued.web.views.cluster_answers import ask_all, fields_of
from disqued.web.views.everywhere import FRESH_S, ClusterReply, Everywhere, NodeReply
from disqued.web.views.health_findings import (
    Facts,
    FindingGroup,
    NodeFacts,
    QueueSurvey,
    in_order,
    node_groups,
    whole,
)
from disqued.web.views.node_labels import ShownSources, shown_sources
from disqued.web.views.node_states import Drains, rates_now
from disqued.web.views.queue_views import AllQueues, QueueRow, QueueTable, Rates, pauses_of

REASON_SHOWN: Final = 200  #: characters of the reason of a pause, and of who paused


@attrs.frozen
class DiskSpace:
    """Room where the data of a node are, in bytes."""

    node: str  #: id
    free: int
    size: int


@attrs.frozen
class ClusterFigures:
    """Sums over the nodes that answered."""

    queues: int
    ready: int
    in_flight: int
    delayed: int
    dead: int
    failing: int
    consumers: int  #: that wait for jobs
    clients: int
    in_rate: float | None  #: jobs queued a second; None = not known of every node
    out_rate: float | None  #: jobs handed to consumers a second
    memory: int  #: bytes of jobs and queues
    memory_limit: int
    disk: DiskSpace | None  #: of the node with the smallest part free; None = no node tells


@attrs.frozen
class ClusterOverview:
    """What the overview shows of the cluster."""

    sources: ShownSources
    figures: ClusterFigures | None  #: None = no node has answered
    oldest: Sequence[QueueRow]  #: queues whose oldest ready job is oldest
    groups: Sequence[FindingGroup]  #: what needs attention, worst first


class ClusterWatch:
    """Asks all nodes how they are; each walk over the queues is counted once, however many look."""

    def __init__(
        self, gateway: Gateway, everywhere: Everywhere, queues: QueueTable, rates: Rates, drains: Drains
    ) -> None:
        """`drains` knows how far nodes that leave have come."""
        self._drains = drains
        self._gateway = gateway
        self._everywhere = everywhere
        self._queues = queues
        self._rates = rates
        self._surveyed: tuple[AllQueues, QueueSurvey] | None = None

    async def overview(
        self, trouble: Sequence[str], fresh_s: float = FRESH_S, rest_s: float | None = None
    ) -> ClusterOverview:
        """Describe the cluster; `trouble` is what this node says of itself.

        INFO is at most `fresh_s` old, and queues are walked over again `rest_s` after the walk before.
        """
        node = self._gateway.view
        asking = ensureDeferred(ask_all(self._everywhere, node, b"INFO", fresh_s=fresh_s))  # both questions at once
        found = await self._queues.all_queues(rest_s)
        reply = _joined(await asking, found)
        await next_turn(self._gateway.turns)  # to read the answers takes long enough
        survey = await self._survey(found)
        age_s = self._gateway.reactor.seconds() - found.sources.asked_at
        sources = shown_sources(node, reply, age_s, found.sources.failure)
        facts = {one.node_id: fields_of(one) for one in reply.answered if one.value is not None}
        known = node.known_nodes()
        self._drains.refresh(known)
        drained = frozenset(each.id for each in known if self._drains.is_safe(each.id))
        nodes = NodeFacts(node.id, known, facts, sources.missing, sources.failure, trouble, drained)
        is_whole = not (sources.missing or sources.failure)
        groups = survey.groups(lambda row: _pauses(node, row), is_whole=is_whole, has_copies=sources.has_copies)
        figures = self._figures(survey, facts, known) if facts else None
        return ClusterOverview(sources, figures, survey.oldest, in_order([*node_groups(nodes), *groups]))

    async def _survey(self, found: AllQueues) -> QueueSurvey:
        """Look at all rows; those that were looked at before are not looked at again."""
        if self._surveyed is not None and self._surveyed[0].rows is found.rows:
            return self._surveyed[1]
        survey = QueueSurvey()
        for at in range(0, len(found.rows), SLICE_ROWS):
            if at:
                await next_turn(self._gateway.turns)
            survey.look(found.rows[at : at + SLICE_ROWS])
        self._surveyed = (found, survey)
        return survey

    def _figures(self, survey: QueueSurvey, facts: Mapping[bytes, Facts], known: Sequence[KnownNode]) -> ClusterFigures:
        here, told = self._rates.of_node(), facts.values()
        view = self._gateway.view
        rates = [(here["in"], here["out"]) if each.myself else rates_now(view, each, each.account)
                 for each in known if each.id in facts]  # fmt: skip
        return ClusterFigures(
            survey.queues, survey.ready, survey.in_flight, survey.delayed, survey.dead, survey.failing,
            _sum(told, "blocked_clients"), _sum(told, "connected_clients"), _total(rate for rate, _ in rates),
            _total(rate for _, rate in rates), _sum(told, "used_memory"), _sum(told, "maxmemory"), _tightest(facts),
        )  # fmt: skip


def _joined(infos: ClusterReply, found: AllQueues) -> ClusterReply:
    """Take the INFO of each node; one whose queues are not known has not answered."""
    if found.sources.failure:
        return ClusterReply(found.sources.asked_at, [one for one in infos.replies if one.status == OK])
    by_node: dict[bytes, NodeReply] = {one.node_id: one for one in infos.replies}
    for one in found.sources.replies:
        before = by_node.get(one.node_id)
        if before is not None and before.status == OK and one.status != OK:
            by_node[one.node_id] = one
    return ClusterReply(found.sources.asked_at, list(by_node.values()))


def _pauses(node: NodeView, row: QueueRow) -> str:
    """Say what of a queue is paused, where, by whom and why: a sentence for each pause."""
    said = []
    for one in pauses_of(node, row.name, row):
        owner = f" by {rendering.name(one.owner.encode(), REASON_SHOWN)}" if one.owner else ""
        reason = f": {rendering.name(one.reason.encode(), REASON_SHOWN)}" if one.reason else ""
        said.append(rendering.sentence(f"{one.what} {one.scope}{owner}{reason}") + " ")
    return "".join(said)


def _sum(told: Iterable[Facts], name: str) -> int:
    return sum(whole(facts, name) for facts in told)


def _total(rates: Iterable[float | None]) -> float | None:
    """Add up; the sum is not known while one rate is not."""
    total = 0.0
    for rate in rates:
        if rate is None:
            return None
        total += rate
    return total


def _tightest(facts: Mapping[bytes, Facts]) -> DiskSpace | None:
    spaces = [DiskSpace(node_id.decode("ascii"), whole(each, "dir_free_bytes"), whole(each, "dir_size_bytes"))
              for node_id, each in facts.items()]  # fmt: skip
    return min((one for one in spaces if one.size), key=lambda one: one.free / one.size, default=None)
