"""What the pages show of workers: who is alive, on which node, and what they have.

    100 000 workers --500 a turn of the loop--> those with the text in id or name --> page of 100

Of a worker that lives on another node no more is known than where, and for how long without a sign of life.
Spans are milliseconds.
"""

from collections.abc import Iterable, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Any, Final

import attrs

from disqued.core.model.job import Unit, attempt_of
from disqued.core.model.queues import Queue
from disqued.core.model.worker import RemoteWorker, Worker
from disqued.core.view import NodeView
from disqued.web.gateway import SLICE_ROWS, Gateway
from disqued.web.http.exchange import Visitor
from disqued.web.turns import next_turn
from disqued.web.views import rendering

PAGE_ROWS: Final = 100  #: workers on a page
TASKS_SHOWN: Final = 100  #: of one worker, oldest first
QUEUES_SHOWN: Final = 50  #: of one worker
HELD_SHOWN: Final = 20  #: jobs of a queue that consumers have, those first that they have longest
BODY_BYTES: Final = 400  #: of each body


@attrs.frozen
class WorkerRow:
    """A worker at one moment."""

    id: bytes
    name: bytes
    home: bytes  #: id of the node that it lives on
    is_here: bool
    ttl_ms: int  #: 0 = it lives until it is stopped
    idle_ms: int | None = None  #: since the last sign of life; None = that is known to its home alone
    is_bound: bool = False  #: the end of its connection is its death
    queues: Sequence[bytes] = ()  #: the first of them
    queue_count: int = 0
    has: int = 0  #: tasks in its hands
    oldest_ms: int | None = None  #: how long it has the oldest of these
    started: int = 0
    done: int = 0
    returned: int = 0


@attrs.frozen
class WorkerQuery:
    """Which workers somebody looks at."""

    text: str = ""  #: part of id or name or a glob, in any case; empty = all
    page: int = 1

    async def cut(self, gateway: Gateway) -> "WorkerPage":
        """Find and cut; SLICE_ROWS are looked at in a turn of the loop.  Those of this node come first."""
        node = gateway.view
        found: list[Worker | RemoteWorker] = [*node.workers_here, *node.workers_elsewhere]
        if self.text:
            everyone, found = found, []
            for at in range(0, len(everyone), SLICE_ROWS):
                if at:
                    await next_turn(gateway.turns)
                found += filter(self._lets_through, everyone[at : at + SLICE_ROWS])
        pages = max(1, -(-len(found) // PAGE_ROWS))
        page = min(max(1, self.page), pages)
        rows = [row_of(node, one) for one in found[(page - 1) * PAGE_ROWS : page * PAGE_ROWS] if _is_known(node, one)]
        return WorkerPage(rows, len(found), page, pages)

    def _lets_through(self, one: Worker | RemoteWorker) -> bool:
        texts = (one.id, one.name) if isinstance(one, Worker) else (one.worker_id,)
        return any(rendering.is_named(self.text, text) for text in texts)


@attrs.frozen
class WorkerPage:
    """A page of workers."""

    rows: list[WorkerRow]
    found: int  #: workers that the filter lets through
    page: int
    pages: int


def _is_known(node: NodeView, one: Worker | RemoteWorker) -> bool:
    """Tell whether a worker that was found in an earlier turn, perhaps, is one still."""
    return node.worker(one.id if isinstance(one, Worker) else one.worker_id) is one


def row_of(node: NodeView, one: Worker | RemoteWorker) -> WorkerRow:
    """Describe a worker as it is now."""
    if isinstance(one, RemoteWorker):
        return WorkerRow(one.worker_id, b"", one.node_id, False, one.ttl_ms)
    now = node.now()
    since = next(iter(one.leases.values()), None)
    return WorkerRow(one.id, one.name, node.id, True, one.ttl_ms, max(0, now - one.last_sign), one.bound_to is not None,
                     tuple(islice(one.queues, QUEUES_SHOWN)), len(one.queues), len(one.leases),
                     None if since is None else max(0, now - since), one.started, one.done, one.returned)  # fmt: skip


def sums_of(node: NodeView) -> dict[str, int]:
    """What there is to say of all workers of a node together."""
    counters = node.counters
    return {"here": len(node.workers_here), "elsewhere": len(node.workers_elsewhere), "has": node.units_held,
            "died": counters.workers_died, "returned": counters.tasks_given_back,
            "refused": counters.unique_refused}  # fmt: skip


def tasks_of(node: NodeView, worker: Worker, visitor: Visitor) -> list[dict[str, Any]]:
    """What a worker has, oldest first; TASKS_SHOWN at most."""
    return _held(node, islice(worker.leases, TASKS_SHOWN), visitor)


def held_of(node: NodeView, queue: Queue, visitor: Visitor) -> list[dict[str, Any]]:
    """Jobs of a queue that consumers have, longest first; HELD_SHOWN at most from this node, and as many from others.

    Of what consumers of other nodes have this node knows those that no timer queues again and that it has a copy of;
    SLICE_ROWS of them are looked at.
    """
    own = _held(node, islice(queue.leased, HELD_SHOWN), visitor)
    others = nsmallest(HELD_SHOWN, islice(queue.elsewhere.items(), SLICE_ROWS), key=lambda entry: entry[1][0])
    now = node.now()
    rows = own + [_row(unit, None, max(0, now - since), node_id, visitor) for unit, (since, node_id) in others]
    return sorted(rows, key=lambda row: -row["since_ms"])


def _held(node: NodeView, units: Iterable[Unit], visitor: Visitor) -> list[dict[str, Any]]:
    """Rows of what consumers of this node have."""
    now = node.now()
    rows = []
    for unit in units:
        worker, since = node.holder_of(unit), node.held_since(unit)
        since_ms = 0 if since is None else max(0, now - since)
        rows.append(_row(unit, None if worker is None else worker.id, since_ms, None, visitor))
    return rows


def _row(unit: Unit, worker: bytes | None, since_ms: int, node_id: bytes | None, visitor: Visitor) -> dict[str, Any]:
    """A row of what a consumer has: worker None where that is nobody in particular, node None where it is this one."""
    return {"id": unit.id.decode("ascii", "replace"), "queue": unit.queue, "scope": unit.scope, "worker": worker,
            "node": node_id, "since_ms": since_ms, "attempt": attempt_of(unit), "size": len(unit.body),
            "body": rendering.body(unit.body, BODY_BYTES) if visitor.sees_bodies else None}  # fmt: skip
