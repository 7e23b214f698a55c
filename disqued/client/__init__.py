"""The client library: jobs for programs in Python, on nodes that come and go.

    disqued.client             Client and Worker for Twisted, on txredisapi: everything is a Deferred, to be awaited
    disqued.client.blocking    Client and Worker that wait, on redis-py; a Worker has threads

    errors, job, values        what both say and raise
    addresses, tls, renewal    how nodes are named and reached
    commands, replies          what a command is, and how its reply reads
    nodes, calls, tasks        which node, what next, what to say of a job when: machines without a socket or a clock
    seats                      what a live worker says, on a connection of its own
    deferred, blocking         the two thin sides that send and wait

Neither side loads the library of the other: `Client` and `Worker` of this module are loaded when they are first asked
for.  Spans and instants are seconds.
"""

from typing import TYPE_CHECKING

from disqued.client.errors import (
    AccessDenied,
    BadJobId,
    BadReply,
    Closed,
    DisquedError,
    JournalFailed,
    NodeCrowded,
    NodeFull,
    NodeLeaving,
    NodeLoading,
    NodeRefuses,
    NotReplicated,
    NotTrusted,
    NoWorker,
    QueuePaused,
    QueueTooLong,
    ServerError,
    StaleWorker,
    TooLate,
    Uncertain,
    UnknownJob,
    Unreachable,
    WrongKind,
)
from disqued.client.job import Job, KnownNode, Topology
from disqued.client.tasks import Backoff, Drop, Figures, GoOn, MoveTo, Verdict, move_to
from disqued.client.tls import Tls

if TYPE_CHECKING:
    from disqued.client.deferred import Client as Client
    from disqued.client.deferred import Worker as Worker

__all__ = [  # noqa: RUF022 - what one begins with comes first
    "Client",
    "Worker",
    "Job",
    "Backoff",
    "Drop",
    "GoOn",
    "MoveTo",
    "move_to",
    "Verdict",
    "Figures",
    "Tls",
    "KnownNode",
    "Topology",
    "AccessDenied",
    "BadJobId",
    "BadReply",
    "Closed",
    "DisquedError",
    "JournalFailed",
    "NodeCrowded",
    "NodeFull",
    "NodeLeaving",
    "NodeLoading",
    "NodeRefuses",
    "NotReplicated",
    "NotTrusted",
    "NoWorker",
    "QueuePaused",
    "QueueTooLong",
    "ServerError",
    "StaleWorker",
    "TooLate",
    "Uncertain",
    "UnknownJob",
    "Unreachable",
    "WrongKind",
]


def __getattr__(name: str) -> object:
    """Load the Twisted side when it is asked for.  Raises ImportError when its library is missing."""
    if name not in ("Client", "Worker"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from disqued.client import deferred

    return getattr(deferred, name)
