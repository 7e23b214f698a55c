"""What the pages show of logs: the groups of a queue, and what each of them made of one event.

Spans are milliseconds.
"""

from itertools import islice
from typing import Any, Final

import attrs

from disqued.core.groups import Group
from disqued.core.job import ACTIVE, Event, Job
from disqued.core.node import Node
from disqued.core.queues import Queue

GROUPS_SHOWN: Final = 50  #: groups of a queue on its page, by name
GROUPS_LOOKED_AT: Final = 500  #: groups of a queue, of which those are the first


@attrs.frozen
class GroupRow:
    """A group of consumers of a queue at one moment; QSTATUS tells the same."""

    name: bytes
    total: int  #: events that are kept
    inprogress: int
    redo: int
    done: int
    available: int  #: those that the group has yet to be given
    consumers: int


def groups_of(queue: Queue) -> list[Group]:
    """Groups of a queue that there is anything to say of, GROUPS_LOOKED_AT at most."""
    groups = () if queue.log is None else queue.log.groups.values()
    return [group for group in islice(groups, GROUPS_LOOKED_AT) if group.is_known]


def group_rows(node: Node, queue: Queue) -> list[GroupRow]:
    """The groups of a queue by name, GROUPS_SHOWN at most."""
    found = sorted(groups_of(queue), key=lambda group: group.name)
    return [row_of(node, queue, group) for group in found[:GROUPS_SHOWN]]


def row_of(node: Node, queue: Queue, group: Group) -> GroupRow:
    """Describe a group as it is now."""
    consumers = len(group.waiters) + node.logs.members.count(queue.name, group.name)
    return GroupRow(
        group.name, len(group.log), group.leased, group.redo, group.done, group.available, consumers
    )  # fmt: skip


def of_event(node: Node, job: Job) -> list[dict[str, Any]]:
    """What each group made of an event: group, state, and for how long somebody has it yet; none for other jobs."""
    if not isinstance(job, Event) or job.log is None:
        return []
    now = node.clock.now()
    known = (group for group in islice(job.log.groups.values(), GROUPS_LOOKED_AT) if group.is_known)
    return [_made_of(group, job, now) for group in sorted(known, key=lambda group: group.name)[:GROUPS_SHOWN]]


def _made_of(group: Group, event: Event, now: int) -> dict[str, Any]:
    unit = group.units.get(event)
    row = {"group": group.name, "state": "available", "left_ms": None, "deliveries": 0}
    if group.is_done(event):
        return row | {"state": "done"}
    if unit is None:
        return row
    if unit.state == ACTIVE:
        return row | {"state": "in progress", "left_ms": max(0, unit.requeue_at - now), "deliveries": unit.deliveries}
    return row | {"state": "redo", "deliveries": unit.deliveries}
