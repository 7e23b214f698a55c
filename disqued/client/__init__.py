"""The client library: Python programs and their jobs, on nodes that come and go.

    disqued.client             Client and Worker for Twisted, on txredisapi: methods return Deferreds
    disqued.client.aio         Client and Worker for asyncio, on hiredis: methods are coroutines
    disqued.client.blocking    Client and Worker that block, on redis-py; a Worker has threads

    errors, job, values        what all of them take, return and raise
    outcomes                   what became of a job, to a caller who waits for it
    policies                   what is set for a queue in the whole cluster
    schedules                  jobs that the cluster adds by itself
    addresses, tls             how nodes are named and reached
    tls_renewal, ssl_context   certificates that change, TLS of the standard library
    commands, replies          commands, and parsing of their replies
    nodes, calls, tasks        which node, the next step of a call, the state of a job: no socket, no clock
    seats, reporting           heartbeats of a live worker, reports about its jobs
    tracing                    spans of OpenTelemetry, where that is installed
    base_client, base_links    the client core and its connections, written once as coroutines
    base_worker                the worker core
    deferred, aio, blocking    the three thin sides that send and wait

No side loads the library of another one: `Client` and `Worker` of this module are loaded on first use.  Durations and
instants are seconds.
"""

from typing import TYPE_CHECKING

from disqued.client.errors import (
    AccessDenied,
    BadJobId,
    BadReply,
    Closed,
    DisquedError,
    JobCancelled,
    JobDead,
    JobExpired,
    JobFailed,
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
    ResultUnknown,
    ServerError,
    StaleWorker,
    TooLate,
    Uncertain,
    UnknownJob,
    Unreachable,
    WaitTimeout,
    WrongKind,
)
from disqued.client.job import Job, KnownNode, RunningJob, Topology
from disqued.client.outcomes import AddedJob, Outcome
from disqued.client.policies import Setting, Slot
from disqued.client.schedules import Schedule
from disqued.client.tasks import Backoff, Bury, Drop, Figures, GoOn, MoveTo, RetryLater, Verdict, move_to
from disqued.client.tls import Tls

if TYPE_CHECKING:
    from disqued.client.deferred import Client as Client
    from disqued.client.deferred import Worker as Worker

__all__ = [  # noqa: RUF022 - what one begins with comes first
    "Client", "Worker", "Job", "RunningJob", "Backoff", "RetryLater", "Bury", "Drop", "GoOn", "MoveTo", "move_to",
    "Verdict", "Figures", "AddedJob", "Outcome", "Setting", "Slot", "Schedule", "Tls", "KnownNode", "Topology",
    "AccessDenied", "BadJobId", "BadReply", "Closed", "DisquedError", "JobCancelled", "JobDead", "JobExpired",
    "JobFailed", "JournalFailed",
    "NodeCrowded", "NodeFull", "NodeLeaving", "NodeLoading", "NodeRefuses", "NotReplicated", "NotTrusted", "NoWorker",
    "QueuePaused", "QueueTooLong", "ResultUnknown", "ServerError", "StaleWorker", "TooLate", "Uncertain", "UnknownJob",
    "Unreachable", "WaitTimeout", "WrongKind",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Load the Twisted side on first use.  Raises ImportError when its library is missing."""
    if name not in ("Client", "Worker"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from disqued.client import deferred

    return getattr(deferred, name)
