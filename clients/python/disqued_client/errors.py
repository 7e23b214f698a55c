"""The errors of a client, one class per condition that a caller can act on.

    DisquedError
      ServerError          a node refused; `word` is the first word of its reply
        NotReplicated ...  error words with a meaning of their own
      JobFailed            a job that a caller waits for has ended without a result
        JobDead ...        how it ended
      WaitTimeout          a job that a caller waits for has not ended in time
      Unreachable          no node answered in time; a command that is not repeatable was not done
      Uncertain            the connection broke before the reply: the command was done, or it was not
      Closed               the client was closed
      BadReply             a reply that no node sends
      NotTrusted           no TLS connection, because of certificates

Source: the error words in the command reference.
"""

from typing import ClassVar


class DisquedError(Exception):
    """Something went wrong between a client and its nodes."""


class Unreachable(DisquedError):
    """No node answered within the client's patience; a command that is not repeatable was not done."""


class Uncertain(DisquedError):
    """The connection broke before the reply: the command may have been done, and must not be done twice."""


class Closed(DisquedError):
    """The client is closed."""


class BadReply(DisquedError):
    """A malformed reply: the server may not be a disqued node."""


class NotTrusted(DisquedError):
    """No TLS connection: the node's certificate is invalid, it refuses ours, or it does not speak TLS."""


class ServerError(DisquedError):
    """A node refused; the text is its reply, including the error word."""

    #: The error word of this class; "" = any other.
    code: ClassVar[str] = ""

    @property
    def word(self) -> str:
        """The first word of the reply: ERR, NOREPL, PAUSED ..."""
        return str(self).partition(" ")[0]


class NotReplicated(ServerError):
    """Too few nodes could hold the job: it was not added."""

    code = "NOREPL"


class QueuePaused(ServerError):
    """The queue is paused: the job was not added."""

    code = "PAUSED"


class QueueTooLong(ServerError):
    """The queue already held `maxlen` jobs: the job was not added."""

    code = "MAXLEN"


class UnknownJob(ServerError):
    """The node does not know the job: it is done, has expired, or is on other nodes."""

    code = "NOJOB"


class TooLate(ServerError):
    """The next delivery can no longer be postponed: half of the life of the job is over, it is dead, or has no slot."""

    code = "TOOLATE"


class JobFailed(DisquedError):
    """The job has ended without a result that can be returned."""

    id: bytes = b""
    tries: int = 0
    #: Why its last try failed, or how it ended.
    reason: str = ""


class JobDead(JobFailed):
    """The job failed too often, or was buried; REDRIVE gives it new tries."""


class JobCancelled(JobFailed, ServerError):
    """Somebody cancelled the job; `progress` raises it in the handler of the job."""

    code = "CANCELLED"

    @property
    def word(self) -> str:
        """CANCELLED."""
        return self.code


class JobExpired(JobFailed):
    """The time to live of the job ended before the job did."""


class ResultUnknown(JobFailed):
    """No node of the cluster knows the job: it never existed, or its result is no longer kept."""


class WaitTimeout(DisquedError, TimeoutError):
    """The job has not ended in time; it goes on."""


class BadJobId(ServerError):
    """The job id is invalid."""

    code = "BADID"


class WrongKind(ServerError):
    """The queue is of a kind that the command does not support."""

    code = "WRONGTYPE"


class NoWorker(ServerError):
    """The node has no live worker of this id."""

    code = "NOWORKER"


class StaleWorker(ServerError):
    """Another client has taken over the worker, or the worker is no longer alive."""

    code = "STALE"


class AccessDenied(ServerError):
    """The password is missing or wrong."""

    code = "NOAUTH"


class NodeRefuses(ServerError):
    """The node cannot do it but another may: the client tries the others before it raises this."""


class NodeLeaving(NodeRefuses):
    """The node is leaving the cluster."""

    code = "LEAVING"


class NodeLoading(NodeRefuses):
    """The node is loading its journal."""

    code = "LOADING"


class NodeFull(NodeRefuses):
    """The node is out of memory."""

    code = "OOM"


class JournalFailed(NodeRefuses):
    """The node cannot write its journal."""

    code = "MISCONF"


class NodeCrowded(NodeRefuses):
    """The node has reached its limit of clients."""


_CLASSES: tuple[type[ServerError], ...] = (
    NotReplicated, QueuePaused, QueueTooLong, UnknownJob, TooLate, BadJobId, WrongKind, NoWorker, StaleWorker,
    AccessDenied, JobCancelled,
    NodeLeaving, NodeLoading, NodeFull, JournalFailed,
)  # fmt: skip
_BY_WORD = {each.code: each for each in _CLASSES} | {"WRONGPASS": AccessDenied}
#: Replies that begin with ERR and have a meaning of their own.
_BY_TEXT: dict[str, type[ServerError]] = {
    "ERR invalid password": AccessDenied,
    "ERR Client sent AUTH": AccessDenied,
    "ERR max number of clients": NodeCrowded,
}


def server_error(text: str) -> ServerError:
    """Return the exception for an error reply, given without its leading `-`."""
    word = text.partition(" ")[0]
    if not word.isupper():
        text, word = f"ERR {text}", "ERR"  # a library has removed the word
    for beginning, meant in _BY_TEXT.items():
        if text.startswith(beginning):
            return meant(text)
    return _BY_WORD.get(word, ServerError)(text)
