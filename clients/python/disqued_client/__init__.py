"""The client library: Python programs and their jobs, on nodes that come and go.

    disqued_client             Client and Worker for Twisted, on txredisapi: methods return Deferreds
    disqued_client.aio         Client and Worker for asyncio, on hiredis: methods are coroutines
    disqued_client.blocking    Client and Worker that block, on redis-py; a Worker has threads

It is the distribution disqued-client.  The server brings the same modules as `disqued.client`: imports in here are
relative, so that each of the two names has its own modules, and a program stays with one of them.

    errors, job, values        what all of them take, return and raise
    outcomes                   what became of a job, to a caller who waits for it
    policies                   what is set for a queue in the whole cluster
    schedules                  jobs that the cluster adds by itself
    addresses, tls             how nodes are named and reached
    tls_renewal, ssl_context   certificates that change, TLS of the standard library
    commands, replies          commands, and parsing of their replies
    nodes, calls, tasks        which node, the next step of a call, the state of a job: no socket, no clock
    seats, reporting           heartbeats of a live worker, reports about its jobs
    naming                     which of its two names the library has here
    tracing                    spans of OpenTelemetry, where that is installed
    base_client, base_links    the client core and its connections, written once as coroutines
    base_worker                the worker core
    deferred, aio, blocking    the three thin sides that send and wait

No side loads the library of another one: `Client` and `Worker` of this module are loaded on first use.  Durations and
instants are seconds.
"""

from typing import TYPE_CHECKING

from .errors import (
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
from .job import Job, KnownNode, RunningJob, Topology
from .outcomes import AddedJob, Outcome
from .policies import Setting, Slot
from .schedules import Schedule
from .tasks import Backoff, Bury, Drop, Figures, GoOn, MoveTo, RetryLater, Verdict, move_to
from .tls import Tls

if TYPE_CHECKING:
    from .deferred import Client as Client
    from .deferred import Worker as Worker

__all__ = [  # noqa: RUF022 - what one begins with comes first
    "Client", "Worker", "Job", "RunningJob", "Backoff", "RetryLater", "Bury", "Drop", "GoOn", "MoveTo", "move_to",
    "Verdict", "Figures", "AddedJob", "Outcome", "Setting", "Slot", "Schedule", "Tls", "KnownNode", "Topology",
    "AccessDenied", "BadJobId", "BadReply", "Closed", "DisquedError", "JobCancelled", "JobDead", "JobExpired",
    "JobFailed", "JournalFailed",
    "NodeCrowded", "NodeFull", "NodeLeaving", "NodeLoading", "NodeRefuses", "NotReplicated", "NotTrusted", "NoWorker",
    "QueuePaused", "QueueTooLong", "ResultUnknown", "ServerError", "StaleWorker", "TooLate", "Uncertain", "UnknownJob",
    "Unreachable", "WaitTimeout", "WrongKind",
]  # fmt: skip
__version__ = "0.1.0"  #: of the server's release with the same source


def __getattr__(name: str) -> object:
    """Load the Twisted side on first use.  Raises ImportError when its library is missing."""
    if name not in ("Client", "Worker"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import deferred

    return getattr(deferred, name)
