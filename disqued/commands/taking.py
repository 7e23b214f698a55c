"""Queues that commands take jobs from: finding and making them, and waiting for the first job.

    names --> existing, or with_new --> delivery.fetch --jobs--> note_taken --> rows
                                             \\__ none --> wait_for_jobs --> BLOCKED

GETJOB, RQ.POP, QRPOP and WQ.DEQUEUE share this.  Durations are integer milliseconds.
"""

from typing import Any

from disqued.commands.runnable import BLOCKED
from disqued.core.model.job import KIND_WORK, Unit
from disqued.core.model.outbox import Client
from disqued.core.model.queues import Queue
from disqued.core.model.waiters import Form
from disqued.core.model.worker import Worker
from disqued.core.node import Node
from disqued.errors import NodeLeaving, OutOfMemory


def work_queue(node: Node, name: bytes) -> Queue | None:
    """The queue of a name, if it is there.  Raises WrongType (WRONGTYPE) when it has events of a log."""
    queue = node.state.queues.by_name.get(name)
    if queue is not None:
        queue.check_kind(KIND_WORK)
    return queue


def existing(node: Node, names: list[bytes]) -> list[Queue]:
    """The queues of these names that are there.  Raises WrongType (WRONGTYPE) when one of them has events of a log."""
    by_name = node.state.queues.by_name
    queues = [by_name[name] for name in names if name in by_name]
    for queue in queues:
        queue.check_kind(KIND_WORK)
    return queues


def with_new(node: Node, names: list[bytes]) -> list[Queue]:
    """The queues of these names; those that are not there are made, unless memory is full."""
    state = node.state
    size = state.queues.cost_of_new(names)
    if not size or node.has_room_for_names(size):
        return [state.queues.by_name.get(name) or state.queue(name) for name in names]
    return existing(node, names)


def note_taken(node: Node, queues: list[Queue], units: list[Unit], worker: Worker | None) -> None:
    """Note that units of these queues were taken, for a worker if there is one: other nodes hear what is empty now."""
    if node.state.peers.linked:
        for queue in queues:
            if not len(queue.units):
                node.federation.local_demand.emptied(queue)
    if worker is not None:
        node.workers.leases.bind(worker, units)


def wait_for_jobs(
    node: Node, client: Client, queues: list[Queue], form: Form, *, named: int, timeout_ms: int, nohang: bool = False
) -> Any:
    """Block a client until a job comes into one of these queues; returns BLOCKED.

    `named`: how many queues it named; `timeout_ms` 0 = for ever; `nohang`: only until it is known whether there is one.
    Raises NodeLeaving (LEAVING), OutOfMemory (OOM), but not with `nohang`.
    """
    if not nohang:
        if node.state.leaving:
            raise NodeLeaving
        if len(queues) < named:
            raise OutOfMemory
    node.delivery.wait(client, queues, timeout_ms, form, nohang=nohang)
    if node.state.peers.linked:
        node.federation.local_demand.need(queues)
    return BLOCKED
