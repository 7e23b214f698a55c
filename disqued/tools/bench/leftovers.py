"""The jobs that a load leaves in its queues: found on every node, and acknowledged.

    every node --JSCAN QUEUE q STATE ...--> ids --ACKJOB--> the node that told of them

A job that is done is told of no more, although nodes may need a moment to forget it.  Jobs move between nodes, so that
all are looked at again until none tells of any.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from disqued.client.errors import Unreachable
from disqued.client.replies import read_number, read_page
from disqued.tools.connecting import Failed, NodeConnection, Target
from disqued.tools.members import members
from disqued.tools.waiting import bar

STATES: Final = ("STATE", "wait-repl", "STATE", "active", "STATE", "queued")
PAGE: Final = 1_000
ROUNDS_MAX: Final = 10  #: of looks at all nodes


def leftovers(target: Target, queues: Sequence[bytes]) -> set[bytes]:
    """Ids of the jobs of some queues that are not done, on all nodes that answer.

    Raises the errors of `disqued.client.errors`.
    """
    found: set[bytes] = set()
    for node in _nodes(target):
        for ids in _walk(node, queues):
            found.update(ids)
    return found


def remove(target: Target, queues: Sequence[bytes]) -> int:
    """Acknowledge all jobs of some queues; returns how many there were.  Raises Failed when some stay."""
    removed: set[bytes] = set()
    if not queues:
        return 0
    with bar("removing jobs") as drawn:
        for _ in range(ROUNDS_MAX):
            left = 0
            for node in _nodes(target):
                for ids in _walk(node, queues):
                    left += read_number(node.call("ACKJOB", *ids), b"")
                    removed.update(ids)
                    drawn.show(len(removed), None, "")
            if not left:
                return len(removed)
    raise Failed(f"jobs of the load come back, after {len(removed)} were acknowledged: does somebody else add some?")


def _nodes(target: Target) -> Iterator[NodeConnection]:
    for member in members(target):
        with member.target.node() as node:
            try:
                node.call("PING")
            except Unreachable:
                continue
            yield node


def _walk(node: NodeConnection, queues: Sequence[bytes]) -> Iterator[list[bytes]]:
    """The ids of one node, some at a time."""
    for queue in queues:
        cursor = b"0"
        while True:
            cursor, ids = read_page(node.call("JSCAN", cursor, "COUNT", PAGE, "QUEUE", queue, *STATES), b"")
            if ids:
                yield ids
            if cursor == b"0":
                break
