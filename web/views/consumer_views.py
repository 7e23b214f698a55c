"""Who consumes a queue: QCONSUMERS of all nodes, those first that have a job for the longest time, and what they have.

    QCONSUMERS JOBS on every node --> rows of consumers --> table of consumers
                                      `held` of each    --> the jobs that are held longest, of all nodes
    WQ.PROCS CLIENT on one node   --> what one client has, of all queues

Spans are milliseconds.
"""

from collections.abc import Iterable, Sequence
from heapq import nlargest, nsmallest
from itertools import islice
from typing import Any, Final

import attrs

from disqued.core.model.job import attempt_of
from disqued.core.view import NodeView
from disqued.web.http.exchange import Visitor
from disqued.web.views.cluster_answers import MissingNode, ask_all, missing_nodes
from disqued.web.views.everywhere import FRESH_S, Everywhere, NodeReply
from disqued.web.views.rendering import client_path, worker_path
from disqued.web.views.worker_views import task_rows

CONSUMERS_SHOWN: Final = 100  #: of all nodes together
HELD_SHOWN: Final = 20  #: jobs of a queue that consumers have, of all nodes together
ELSEWHERE_MAX: Final = 500  #: jobs with consumers of silent nodes among which the longest are looked for
TASKS_SHOWN: Final = 100  #: jobs of one client, oldest first


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

    @property
    def path(self) -> str:
        """Where its jobs are listed; empty where no page lists them: of a group, and of one that nobody knows."""
        if self.worker:
            return worker_path(self.worker)
        return client_path(self.node_id, self.client) if self.client and not self.group else ""


@attrs.frozen
class HeldJob:
    """A job that a consumer has."""

    id: str
    node_id: bytes  #: that handed it out
    consumer: ConsumerRow | None  #: None = that node has not answered
    since_ms: int
    attempt: int

    @property
    def node(self) -> str:
        """The node, as pages show it."""
        return self.node_id[:8].decode("ascii", "replace")


@attrs.frozen
class Consumers:
    """The consumers of a queue on the nodes that answer."""

    rows: Sequence[ConsumerRow]  #: CONSUMERS_SHOWN at most
    held: Sequence[HeldJob]  #: what they have, longest first, each job once; HELD_SHOWN at most
    jobs: int  #: that they have, told and not told
    missing: Sequence[MissingNode]

    def more_than_held(self, counted: int) -> int:
        """Return how many jobs in flight `held` leaves out; `counted` are those that the figures count."""
        return max(0, max(self.jobs, counted) - len(self.held))


async def consumers_of(everywhere: Everywhere, node: NodeView, queue: bytes, fresh_s: float = FRESH_S) -> Consumers:
    """Ask the nodes for the consumers of a queue."""
    words = (b"QCONSUMERS", queue, b"COUNT", b"%d" % CONSUMERS_SHOWN, b"JOBS", b"%d" % HELD_SHOWN)
    reply = await ask_all(everywhere, node, *words, fresh_s=fresh_s)
    rows: list[ConsumerRow] = []
    held: list[HeldJob] = []
    for each in reply.answered:
        for told in each.value:
            fields = dict(zip((name.decode() for name in told[::2]), told[1::2], strict=True))
            row = _row(node, each, fields)
            rows.append(row)
            held += (
                HeldJob(job_id.decode("ascii", "replace"), each.node_id, row, since_ms, attempt)
                for job_id, since_ms, attempt in fields.get("held", ())
            )
    held += _on_silent_nodes(node, queue, {each.node_id for each in reply.answered})
    shown = sorted(rows, key=lambda row: (-(row.oldest_ms or 0), -(row.waiting_ms or 0)))[:CONSUMERS_SHOWN]
    return Consumers(shown, _longest(held), sum(row.jobs for row in rows), missing_nodes(node, reply))


def _row(node: NodeView, reply: NodeReply, fields: dict[str, Any]) -> ConsumerRow:
    return ConsumerRow(
        reply.node_id, reply.node_id == node.id, fields["consumer"], fields["address"], fields["client"],
        bool(fields["connected"]), fields["worker"], fields["group"], fields["waiting-for"], fields["jobs"],
        fields["oldest-for"],
    )  # fmt: skip


def _longest(held: Iterable[HeldJob]) -> list[HeldJob]:
    """The jobs that are held longest, each once, though two nodes may have handed it out."""
    found: dict[str, HeldJob] = {}
    for job in sorted(held, key=lambda job: (-job.since_ms, job.id)):
        found.setdefault(job.id, job)
    return nlargest(HELD_SHOWN, found.values(), key=lambda job: job.since_ms)


def _on_silent_nodes(node: NodeView, name: bytes, answered: set[bytes]) -> list[HeldJob]:
    """What this node knows of jobs with consumers of nodes that have not answered.

    These are jobs that no timer queues again and that it has a copy of; ELSEWHERE_MAX of them are looked at.
    """
    queue, now = node.queue(name), node.now()
    if queue is None:
        return []
    away = [entry for entry in islice(queue.elsewhere.items(), ELSEWHERE_MAX) if entry[1][1] not in answered]
    return [
        HeldJob(unit.id.decode("ascii", "replace"), node_id, None, max(0, now - since), attempt_of(unit))
        for unit, (since, node_id) in nsmallest(HELD_SHOWN, away, key=lambda entry: entry[1][0])
    ]


@attrs.frozen
class ClientJobs:
    """The jobs that one client has, of all queues."""

    rows: list[dict[str, Any]]  #: longest first, TASKS_SHOWN at most
    count: int
    missing: Sequence[MissingNode]


async def jobs_of_client(
    everywhere: Everywhere, node: NodeView, node_id: bytes, client: int, visitor: Visitor
) -> ClientJobs:
    """Ask a node what one of its clients has."""
    words = (b"WQ.PROCS", b"CLIENT", b"%d" % client)
    reply = await ask_all(everywhere, node, *words, node_id=node_id, fresh_s=0)
    found = [process for each in reply.answered for process in each.value]
    found.sort(key=lambda process: -process[4])
    return ClientJobs(task_rows(found[:TASKS_SHOWN], visitor), len(found), missing_nodes(node, reply))
