"""Live queues as a table.

    driver     HELLO --> SCAN JOB on every node --> each id once, of a node that has it --> slices
    executor   slice of ids --> SHOW, many at once --> Arrow batches

A job may be on several nodes.  It is read from the one that it was added on, if that has it, and else from the first:
so no row is there twice, and nothing is compared afterwards.  The table is no snapshot: a job that ended after it was
met is left out, and one that was added after its node was walked over is not seen.
"""

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from disqued.client.errors import ServerError
from disqued.pipeline.connector.nodes import NodeAt, NodeLink, find_nodes, pieces, scan, uncollected
from disqued.pipeline.connector.options import PATTERN
from disqued.pipeline.connector.rows import QUEUE, STATE, Told, batch_of, needed, text

ID_LENGTH: Final = 48


class Slice(InputPartition):
    """Jobs that one task reads from one node."""

    def __init__(self, node: NodeAt, ids: bytes) -> None:
        """Take the ids one behind the other, 48 bytes each: as objects they would be twice as long."""
        self.node = node
        self.ids = ids


class QueuesReader(DataSourceReader):
    """Reads the jobs that are there."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Take options as `read_options` makes them."""
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """Walk over all nodes.  Raises Unreachable, ServerError."""
        nodes = find_nodes(self._options)
        held = {node: self._scan(node) for node in nodes}
        chosen = share_out(held)
        total = sum(map(len, chosen.values()))
        size = max(1, -(-total // self._options["minPartitions"]))
        return [Slice(node, b"".join(piece)) for node, ids in chosen.items() for piece in pieces(ids, size)]

    def _scan(self, node: NodeAt) -> list[bytes]:
        """List the ids of the jobs of a node that are asked for, as far as SCAN can tell."""
        queues = self._options["queues"]
        alone = queues[0] if len(queues) == 1 and not PATTERN & set(queues[0]) else None
        with NodeLink(node.address, self._options) as link:
            return list(scan(link, alone, self._options["states"]))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the jobs of a slice.  Raises Unreachable, ServerError."""
        if not isinstance(partition, Slice):  # Spark makes one with None where there is no slice
            return
        with NodeLink(partition.node.address, self._options) as link:
            for ids in pieces(partition.ids, ID_LENGTH * self._options["pipeline"]):
                with uncollected():
                    jobs = self._show(link, [bytes(each) for each in pieces(ids, ID_LENGTH)])
                if jobs:
                    yield batch_of(jobs, partition.node.short_id)

    def _show(self, link: NodeLink, ids: Sequence[bytes]) -> list[Told]:
        jobs = []
        states = {each.encode() for each in self._options["states"]}
        for reply in link.ask_all([(b"SHOW", each) for each in ids]):
            if isinstance(reply, ServerError):
                raise reply
            if reply is None:
                continue  # it ended meanwhile
            job = needed(reply)
            if job[STATE] in states and self._is_wanted(text(job[QUEUE])):
                jobs.append(job)
        return jobs

    def _is_wanted(self, queue: str) -> bool:
        return any(fnmatchcase(queue, pattern) for pattern in self._options["queues"])


def share_out(held: Mapping[NodeAt, Sequence[bytes]]) -> dict[NodeAt, list[bytes]]:
    """Give each id to one of the nodes that hold it: to that it was added on if it can be, else to the first."""
    origins = {node.short_id.encode(): node for node in held}
    owners: dict[bytes, NodeAt] = {}
    for node, ids in held.items():
        for each in ids:
            if each not in owners or origins.get(each[2:10]) == node:
                owners[each] = node
    chosen: dict[NodeAt, list[bytes]] = {node: [] for node in held}
    for each, node in owners.items():
        chosen[node].append(each)
    return chosen
