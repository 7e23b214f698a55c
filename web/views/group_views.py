"""What the pages show of logs: the groups of a queue, and what each of them made of one event.

Spans are milliseconds.
"""

from itertools import islice
from typing import Any, Final

import attrs

from disqued.commands.jobs import made_of
from disqued.core.model.groups import Entry, Group
from disqued.core.model.job import Job
from disqued.core.model.queues import Queue
from disqued.core.view import NodeView

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


def groups_of(queue: Queue | Entry) -> list[Group]:
    """Groups of a queue, or of an event's, that there is anything to say of, GROUPS_LOOKED_AT at most."""
    groups = () if queue.stream is None else queue.stream.groups.values()
    return [group for group in islice(groups, GROUPS_LOOKED_AT) if group.is_known]


def group_rows(node: NodeView, queue: Queue) -> list[GroupRow]:
    """The groups of a queue by name, GROUPS_SHOWN at most."""
    found = sorted(groups_of(queue), key=lambda group: group.name)
    return [row_of(node, group) for group in found[:GROUPS_SHOWN]]


def row_of(node: NodeView, group: Group) -> GroupRow:
    """Describe a group as it is now."""
    return GroupRow(group.name, len(group.stream), group.leased, group.redo, group.done, group.available,
                    node.consumers_of(group))  # fmt: skip


def of_event(node: NodeView, job: Job) -> list[dict[str, Any]]:
    """What each group made of an event: group, state, and for how long somebody has it yet; none for other jobs."""
    if not isinstance(job, Entry):
        return []
    now, known = node.now(), sorted(groups_of(job), key=lambda group: group.name)
    return [_made_of(group, job, now) for group in known[:GROUPS_SHOWN]]


def _made_of(group: Group, event: Entry, now: int) -> dict[str, Any]:
    _, state, deliveries, left_ms = made_of(event, group, now) or (group.name, b"available", 0, 0)
    return {"group": group.name, "state": state.decode(), "left_ms": left_ms if state == b"in progress" else None,
            "deliveries": deliveries}  # fmt: skip
