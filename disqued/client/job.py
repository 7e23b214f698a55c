"""A job as a consumer has it, and other replies with a form of their own."""

from collections.abc import Iterable, Sequence
from typing import Self

import attrs

ORIGIN_LENGTH = 8  #: hex digits of a node's id that its jobs carry


@attrs.frozen
class Job:
    """A job that a node has handed out, or shown."""

    queue: bytes
    id: bytes
    body: bytes
    #: How often it was given back.
    nacks: int = 0
    #: How often it was queued again because no acknowledgement came.
    additional_deliveries: int = 0
    #: Id of the node that handed it out; what is said of the job is said there while that node can be reached.
    node: bytes = attrs.field(default=b"", repr=False, eq=False)

    @property
    def tries(self) -> int:
        """Which attempt at the job this is, from 1; right only when it was fetched with its counters."""
        return 1 + self.nacks + self.additional_deliveries

    @property
    def origin(self) -> bytes:
        """The first 8 hex digits of the id of the node that it was added on."""
        return origin_of(self.id)


def origin_of(job_id: bytes) -> bytes:
    """Read where a job was added: the first 8 hex digits of the id of that node."""
    return job_id[2 : 2 + ORIGIN_LENGTH]


@attrs.frozen
class KnownNode:
    """A node as another one knows it."""

    id: bytes
    host: str  #: "" when the node does not know its own address yet
    port: int
    #: 1 is fine, 5 not linked or full, 10 does not answer, 100 failed or leaving.
    priority: int


@attrs.frozen
class Topology:
    """The nodes of a cluster, as one of them tells."""

    id: bytes  #: of the node that tells
    nodes: tuple[KnownNode, ...]

    @classmethod
    def of(cls, own: bytes, rows: Iterable[Sequence[bytes]]) -> Self:
        """Read the rows of HELLO: `[id, host, port, priority]`.  Raises ValueError."""
        nodes = tuple(KnownNode(id_, host.decode(), int(port), int(priority)) for id_, host, port, priority in rows)
        return cls(own, nodes)
