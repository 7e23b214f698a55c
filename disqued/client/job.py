"""A job as a consumer receives it, and the nodes of a cluster."""

from collections.abc import Iterable, Sequence
from typing import Self

import attrs

ORIGIN_LENGTH = 8  #: hex digits of a node's id in the ids of its jobs


@attrs.frozen
class Job:
    """A job that a node has delivered or shown."""

    queue: bytes
    id: bytes
    body: bytes
    #: How often it was returned with NACK.
    nacks: int = 0
    #: How often it was queued again because no acknowledgement came.
    additional_deliveries: int = 0
    #: Id of the node that delivered it; commands about the job go there while that node can be reached.
    node: bytes = attrs.field(default=b"", repr=False, eq=False)

    @property
    def tries(self) -> int:
        """The number of this attempt, from 1; correct only if the job was fetched with its counters."""
        return 1 + self.nacks + self.additional_deliveries

    @property
    def origin(self) -> bytes:
        """The first 8 hex digits of the id of the node where it was added."""
        return origin_of(self.id)


def origin_of(job_id: bytes) -> bytes:
    """Return the first 8 hex digits of the id of the node where a job was added."""
    return job_id[2 : 2 + ORIGIN_LENGTH]


@attrs.frozen
class KnownNode:
    """A node as another node knows it."""

    id: bytes
    host: str  #: "" when the node does not know its own address yet
    port: int
    #: 1 is fine, 5 not linked or full, 10 does not answer, 100 failed or leaving.
    priority: int


@attrs.frozen
class Topology:
    """The nodes of a cluster, as one of them reports them."""

    id: bytes  #: of the node that reports
    nodes: tuple[KnownNode, ...]

    @classmethod
    def of(cls, own: bytes, rows: Iterable[Sequence[bytes]]) -> Self:
        """Parse the rows of HELLO: `[id, host, port, priority]`.  Raises ValueError."""
        nodes = tuple(KnownNode(id_, host.decode(), int(port), int(priority)) for id_, host, port, priority in rows)
        return cls(own, nodes)
