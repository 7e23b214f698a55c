"""What the pages show of workers: who is alive, on which node, and what they have.

    WORKER LIST FULL on every node --> the first rows of each --> page of 100, node by node

Each node describes its own workers.  Spans are milliseconds.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

import attrs

from disqued.commands.workers import DESCRIBED_MAX
from disqued.core.model.glob import PATTERN_MAX
from disqued.core.model.job import Unit, attempt_of
from disqued.core.model.worker import Worker
from disqued.core.view import NodeView
from disqued.web.http.exchange import Visitor
from disqued.web.views import rendering
from disqued.web.views.cluster_answers import MissingNode, ask_all, missing_nodes
from disqued.web.views.everywhere import FRESH_S, Everywhere

PAGE_ROWS: Final = 100  #: workers on a page
TASKS_SHOWN: Final = 100  #: of one worker, oldest first
QUEUES_SHOWN: Final = 50  #: of one worker
BODY_BYTES: Final = 400  #: of each body
PAGES_MAX: Final = DESCRIBED_MAX // PAGE_ROWS  #: a node describes no more workers in one reply


@attrs.frozen
class WorkerRow:
    """A worker at one moment, as its node describes it."""

    id: bytes
    name: bytes
    home: bytes  #: id of the node that it lives on
    is_here: bool
    ttl_ms: int  #: 0 = it lives until it is stopped
    idle_ms: int  #: since the last sign of life
    is_bound: bool  #: the end of its connection is its death
    queues: Sequence[bytes]  #: the first of them
    queue_count: int
    has: int  #: tasks in its hands
    oldest_ms: int | None  #: how long it has the oldest of these; None = it has none, or its node does not say
    started: int
    done: int
    returned: int


@attrs.frozen
class WorkerQuery:
    """Which workers somebody looks at."""

    text: str = ""  #: part of id or name or a glob, in any case; empty = all
    page: int = 1

    @property
    def pattern(self) -> bytes:
        """The glob pattern that WORKER LIST takes."""
        text = self.text.encode("utf-8", "surrogateescape")
        return text[:PATTERN_MAX] if any(mark in text for mark in b"*?[") else b"*%b*" % text[: PATTERN_MAX - 2]

    async def cut(self, everywhere: Everywhere, node: NodeView, fresh_s: float = FRESH_S) -> "WorkerPage":
        """Find and cut: the workers of all nodes, node by node."""
        page = min(max(1, self.page), PAGES_MAX)
        wanted = min(page * PAGE_ROWS + 1, DESCRIBED_MAX)
        words = [b"WORKER", b"LIST", b"FULL", b"COUNT", b"%d" % wanted]
        words += [b"MATCH", self.pattern] if self.text else []
        reply = await ask_all(everywhere, node, *words, fresh_s=fresh_s)
        found = [worker for each in reply.answered for worker in each.value]
        first = (page - 1) * PAGE_ROWS
        rows = [_row_of(node, worker) for worker in found[first : first + PAGE_ROWS]]
        has_more = len(found) > first + PAGE_ROWS and page < PAGES_MAX
        return WorkerPage(rows, page, has_more, missing_nodes(node, reply))


@attrs.frozen
class WorkerPage:
    """A page of workers."""

    rows: list[WorkerRow]
    page: int
    has_more: bool  #: a page follows
    missing: list[MissingNode]


def _row_of(node: NodeView, described: list[Any]) -> WorkerRow:
    """Read what a node says of its worker."""
    fields = dict(zip((name.decode() for name in described[::2]), described[1::2], strict=True))
    queues = fields["queues"]
    return WorkerRow(
        fields["id"], fields["name"], fields["home"], fields["home"] == node.id, fields["ttl"], fields["idle-ms"],
        bool(fields["bound"]), queues[:QUEUES_SHOWN], len(queues), fields["processes"], fields.get("oldest-for"),
        fields["started"], fields["done"], fields["returned"],
    )  # fmt: skip


@attrs.frozen
class FoundWorker:
    """A worker, on whatever node it lives."""

    row: WorkerRow | None  #: None = no node that answers knows it
    missing: list[MissingNode]


async def worker_everywhere(
    everywhere: Everywhere, node: NodeView, worker_id: bytes, fresh_s: float = FRESH_S
) -> FoundWorker:
    """Ask all nodes for a worker; those that it does not live on answer NOWORKER."""
    reply = await ask_all(everywhere, node, b"WORKER", b"INFO", worker_id, fresh_s=fresh_s)
    row = next((_row_of(node, each.value) for each in reply.answered), None)
    missing = [one for one in missing_nodes(node, reply) if not one.error.startswith("NOWORKER")]
    return FoundWorker(row, missing)


async def tasks_of(everywhere: Everywhere, node: NodeView, row: WorkerRow, visitor: Visitor) -> list[dict[str, Any]]:
    """What a worker has, oldest first; TASKS_SHOWN at most."""
    worker = node.worker(row.id)
    if isinstance(worker, Worker):
        return _held(node, islice(worker.leases, TASKS_SHOWN), visitor)
    reply = await ask_all(everywhere, node, b"WQ.PROCS", b"WORKER", row.id, node_id=row.home)
    found = [task for each in reply.answered for task in each.value]
    return task_rows(found[:TASKS_SHOWN], visitor)


def task_rows(told: Iterable[Sequence[Any]], visitor: Visitor) -> list[dict[str, Any]]:
    """Rows of what WQ.PROCS answers."""
    return [
        {"id": process.partition(b":")[0].decode("ascii", "replace"), "queue": queue, "since_ms": age_ms,
         "attempt": attempt, "size": len(body),
         "body": rendering.body(body, BODY_BYTES) if visitor.sees_bodies else None}
        for process, queue, _, body, age_ms, attempt in told
    ]  # fmt: skip


def sums_of(node: NodeView) -> dict[str, int]:
    """How many workers are alive in the cluster, and what there is to say of all those of this node together."""
    counters = node.counters
    here = len(node.workers_here)
    return {"alive": here + len(node.workers_elsewhere), "here": here, "has": node.units_held,
            "died": counters.workers_died, "returned": counters.tasks_given_back,
            "refused": counters.unique_refused}  # fmt: skip


def _held(node: NodeView, units: Iterable[Unit], visitor: Visitor) -> list[dict[str, Any]]:
    """Rows of what consumers of this node have."""
    now, rows = node.now(), []
    for unit in units:
        since = node.held_since(unit)
        rows.append(_row(unit, 0 if since is None else max(0, now - since), visitor))
    return rows


def _row(unit: Unit, since_ms: int, visitor: Visitor) -> dict[str, Any]:
    return {"id": unit.id.decode("ascii", "replace"), "queue": unit.queue, "since_ms": since_ms,
            "attempt": attempt_of(unit), "size": len(unit.body),
            "body": rendering.body(unit.body, BODY_BYTES) if visitor.sees_bodies else None}  # fmt: skip
