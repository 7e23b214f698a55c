"""A job as a consumer receives it, what a handler receives, and the nodes of a cluster."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Self

import attrs

ORIGIN_LENGTH = 8  #: hex digits of a node's id in the ids of its jobs
NO_HEADERS: Final[Mapping[str, bytes]] = MappingProxyType({})


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
    #: The headers that its producer gave it, if it was fetched with them.
    headers: Mapping[str, bytes] = attrs.field(default=NO_HEADERS, repr=False, eq=False)
    #: The number of this delivery, from 1 and never twice; 0 unless the job was fetched with its headers.
    attempt: int = attrs.field(default=0, repr=False, eq=False)

    @property
    def tries(self) -> int:
        """The number of this try, from 1, also after REDRIVE; correct only if the job was fetched with its counters."""
        return 1 + self.nacks + self.additional_deliveries

    @property
    def fencing_token(self) -> bytes:
        """`<id>:<attempt>`, by which a store can refuse the writes of an earlier attempt.

        Compare attempts as numbers.
        """
        return b"%s:%d" % (self.id, self.attempt)

    @property
    def origin(self) -> bytes:
        """The first 8 hex digits of the id of the node where it was added."""
        return origin_of(self.id)


def origin_of(job_id: bytes) -> bytes:
    """Return the first 8 hex digits of the id of the node where a job was added."""
    return job_id[2 : 2 + ORIGIN_LENGTH]


class Signal:
    """Whether the cancellation of a job was noticed."""

    is_set = False


@attrs.frozen
class RunningJob(Job):
    """A job that a worker hands to its handler."""

    _cancelled: Signal = attrs.field(kw_only=True, repr=False, eq=False)
    _report: Callable[[bytes | str], Any] = attrs.field(kw_only=True, repr=False, eq=False)

    @property
    def is_cancelled(self) -> bool:
        """True once the worker knows that somebody cancelled the job: from `progress`, WORKING or WAITJOB.

        A handler that then raises ends the job as cancelled; one that returns acknowledges it.
        """
        return self._cancelled.is_set

    def progress(self, value: bytes | str) -> Any:
        """Tell how far the job is, in at most 1 KiB; in asyncio a coroutine, in Twisted a Deferred.

        Raises JobCancelled when the job was cancelled, and ValueError.  When no node takes the value, the worker logs
        that and the handler goes on.
        """
        return self._report(value)


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
