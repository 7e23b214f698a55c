"""What can go wrong for a client, one class per thing that a caller can act on.

    DisquedError
      ServerError          a node refused; `word` is the first word of its answer
        NotReplicated ...  the words that mean something of their own
      Unreachable          no node answered in time; what is not sent twice was not done
      Uncertain            the connection broke while it was asked for: it was done, or it was not
      Closed               the client was closed
      BadReply             an answer that no node gives
      NotTrusted           no connection by TLS, because of certificates

Source: the error words of the reference of commands.
"""

from typing import ClassVar


class DisquedError(Exception):
    """Something went wrong between a client and its nodes."""


class Unreachable(DisquedError):
    """No node answered within the client's patience: a command that is not sent twice was not done."""


class Uncertain(DisquedError):
    """The connection broke before the answer came: nobody knows if it was done, and doing it twice would matter."""


class Closed(DisquedError):
    """The client is closed."""


class BadReply(DisquedError):
    """An answer of a form that no node gives: what answers there may be another server."""


class NotTrusted(DisquedError):
    """No connection by TLS: the node's certificate is not in order, or it refuses ours, or it speaks no TLS."""


class ServerError(DisquedError):
    """A node refused; the text is its own, word and all."""

    #: The word that answers of this class begin with; "" = any other.
    code: ClassVar[str] = ""

    @property
    def word(self) -> str:
        """The first word of the answer: ERR, NOREPL, PAUSED ..."""
        return str(self).partition(" ")[0]


class NotReplicated(ServerError):
    """Not as many nodes could hold the job as were asked for: it was not added."""

    code = "NOREPL"


class QueuePaused(ServerError):
    """The queue takes no jobs: this one was not added."""

    code = "PAUSED"


class QueueTooLong(ServerError):
    """The queue held `maxlen` jobs already: this one was not added."""

    code = "MAXLEN"


class UnknownJob(ServerError):
    """The node does not know the job: it is done, or over, or held by other nodes."""

    code = "NOJOB"


class TooLate(ServerError):
    """Half of the job's life is over: its next delivery cannot be put off any more."""

    code = "TOOLATE"


class BadJobId(ServerError):
    """What was sent is no job id."""

    code = "BADID"


class WrongKind(ServerError):
    """The queue is of another kind than the command is for."""

    code = "WRONGTYPE"


class NoWorker(ServerError):
    """No worker of this id is alive on the node."""

    code = "NOWORKER"


class StaleWorker(ServerError):
    """Somebody else is the worker now, or it is not alive any more."""

    code = "STALE"


class AccessDenied(ServerError):
    """The password is missing or wrong."""

    code = "NOAUTH"


class NodeRefuses(ServerError):
    """The node cannot do it, and another one may: the client asks the others before it raises this."""


class NodeLeaving(NodeRefuses):
    """The node is leaving the cluster."""

    code = "LEAVING"


class NodeLoading(NodeRefuses):
    """The node reads its journal."""

    code = "LOADING"


class NodeFull(NodeRefuses):
    """The node is out of memory."""

    code = "OOM"


class JournalFailed(NodeRefuses):
    """The node cannot write its journal."""

    code = "MISCONF"


class NodeCrowded(NodeRefuses):
    """The node has as many clients as it takes."""


_CLASSES: tuple[type[ServerError], ...] = (
    NotReplicated, QueuePaused, QueueTooLong, UnknownJob, TooLate, BadJobId, WrongKind, NoWorker, StaleWorker,
    AccessDenied,
    NodeLeaving, NodeLoading, NodeFull, JournalFailed,
)  # fmt: skip
_BY_WORD = {each.code: each for each in _CLASSES} | {"WRONGPASS": AccessDenied}
#: Answers that begin with ERR and mean something of their own.
_BY_TEXT: dict[str, type[ServerError]] = {
    "ERR invalid password": AccessDenied,
    "ERR Client sent AUTH": AccessDenied,
    "ERR max number of clients": NodeCrowded,
}


def server_error(text: str) -> ServerError:
    """Make the error of an answer, given as it came without its leading `-`."""
    word = text.partition(" ")[0]
    if not word.isupper():
        text, word = f"ERR {text}", "ERR"  # a library has taken the word away
    for beginning, meant in _BY_TEXT.items():
        if text.startswith(beginning):
            return meant(text)
    return _BY_WORD.get(word, ServerError)(text)
