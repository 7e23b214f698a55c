"""The state machine of one command: which node to ask, what to send next, and when to give up.

    next() --> Send(node, words) --> answered -----> done, or sent again (a fetch that keeps waiting)
         |                       +-> refused ------> raised, or another node
         |                       +-> unfit --------> another node; raised when there is none: waiting would not help
         |                       +-> not_sent -----> another node: nothing was done
         |                       +-> broken -------> another node if the command is repeatable, else Uncertain
         +--> Wait(seconds)                          no node is open
         +--> Unreachable                            patience is over

All commands are repeatable but `call` and ADDJOB without a key, unless the caller says so.  A fetch and a wait for jobs
are sent in slices, so that the client notices a stalled node, and that a consumer moves to another node with the
client.

Nothing here waits or sends: a client does what `next` says and reports the outcome.  Times are seconds.
"""

from typing import Final, Generic, TypeVar, cast

import attrs

from .commands import Command, ConnectionUse, WorkerIdentity, hello
from .errors import (
    BadReply,
    DisquedError,
    JournalFailed,
    NodeFull,
    NodeLeaving,
    NodeRefuses,
    NotTrusted,
    ServerError,
    Uncertain,
    Unreachable,
)
from .job import Job
from .nodes import Node, Nodes
from .values import Headers

T = TypeVar("T")

SLICE_S: Final = 5.0  #: the longest wait of one request of a fetch, or for jobs
MOST_PAUSE_S: Final = 1.0
_HELLO: Final = hello()


@attrs.frozen
class Send:
    """Send words to a node, and report the outcome."""

    node: Node
    words: tuple[bytes, ...]
    lane: ConnectionUse
    #: Seconds after which the connection counts as broken.
    limit: float
    #: The live worker whose connection to use.
    seat: WorkerIdentity | None = None


@attrs.frozen
class Wait:
    """Wait, then call `next` again."""

    seconds: float


@attrs.frozen
class Patience:
    """The time limits of a client, in seconds."""

    #: For a command that no node takes.
    total: float = 30.0
    #: For the reply of a node, beyond the command's own wait.
    reply: float = 5.0
    #: For a connection to open.
    connect: float = 5.0

    def of(self, total: float) -> "Patience":
        """Return the same limits with another total."""
        return attrs.evolve(self, total=total)


class Call(Generic[T]):
    """One command of a caller, on its way from node to node."""

    def __init__(
        self, command: Command[T], nodes: Nodes, patience: Patience, now: float, pinned: Node | None = None
    ) -> None:
        """Take a command; `pinned` is the only node it may go to."""
        self._command = command
        self._nodes = nodes
        self._patience = patience
        self._pinned = pinned
        self._give_up_at = now + patience.total
        self._answer_by = None if command.waits is None else now + command.waits
        self._refusing: list[Node] = []  #: nodes that refused what another node might do
        self._asks_hello = False
        self._error: Exception | None = None  #: the last failure
        #: The node of the last request.
        self.node: Node | None = pinned
        self._result: list[T] = []

    def next(self, now: float) -> Send | Wait:
        """Return the next step.  Raises Unreachable, or the refusal of the last node."""
        node = self._pinned or self._nodes.choose(now, self._command.near, self._refusing)
        if node is None:
            return self._pause(now)
        self.node = node
        self._asks_hello = self._pinned is None and self._nodes.wants_hello(node, now)
        if self._asks_hello:
            return Send(node, _HELLO.words, ConnectionUse.QUICK, self._patience.reply)
        wait = self._slice(now)
        limit = wait + self._patience.reply
        return Send(node, self._command.asking(wait), self._command.lane, limit, self._command.seat)

    def _slice(self, now: float) -> float:
        """Return how long the node may wait before it answers."""
        if not self._command.is_sliced:
            return self._command.waits or 0.0
        return SLICE_S if self._answer_by is None else min(SLICE_S, max(0.0, self._answer_by - now))

    def _pause(self, now: float) -> Wait:
        opens_at = self._nodes.opens_at(self._refusing)
        if opens_at > self._give_up_at or now >= self._give_up_at:
            raise self._final_error()
        return Wait(min(max(opens_at - now, 0.0), MOST_PAUSE_S))

    def _final_error(self) -> Exception:
        if isinstance(self._error, ServerError | NotTrusted | BadReply):
            return self._error
        failed = Unreachable(f"no node took {self._name} ({self._nodes.tell()})")
        failed.__cause__ = self._error
        return failed

    def _failed(self, error: Exception, now: float) -> None:
        self._nodes.failed(cast("Node", self.node), now, error)
        self._error = error

    @property
    def command(self) -> Command[T]:
        """The command, as it is sent."""
        return self._command

    @property
    def adds(self) -> bool:
        """Whether the command adds a job."""
        return self._command.headers is not None

    def carry(self, headers: Headers) -> None:
        """Give more headers to the job that the command adds; only before it is sent."""
        self._command = self._command.with_headers(headers)

    @property
    def _name(self) -> str:
        return self._command.words[0].decode(errors="replace").upper()

    # Outcomes.

    def answered(self, reply: object, now: float) -> bool:
        """Take the reply; return whether the command is done.  Raises BadReply."""
        node = cast("Node", self.node)
        if self._asks_hello:
            self._heard(node, reply, now)
            return False
        self._nodes.worked(node)
        self._give_up_at = now + self._patience.total
        result = self._command.read(reply, node.id)
        if self._command.fetches:
            jobs = cast("list[Job]", result)
            self._nodes.took(job.origin for job in jobs)
        waits_on = self._command.waits_on
        if waits_on is not None and waits_on(result) and self._goes_on(now):
            return False
        self._result = [result]
        return True

    def _heard(self, node: Node, reply: object, now: float) -> None:
        try:
            topology = _HELLO.read(reply, b"")
        except BadReply as error:
            self.unfit(error, now)
        else:
            self._nodes.worked(node)
            self._nodes.heard(node, topology, now)

    def answer(self) -> T:
        """Return the result of the command, once it is done."""
        return self._result[0]

    def _goes_on(self, now: float) -> bool:
        """Return whether there is time left to wait."""
        return self._answer_by is None or now < self._answer_by

    def refused(self, error: ServerError, now: float) -> None:
        """Take an error reply: try another node, or raise the error."""
        node = cast("Node", self.node)
        if self._asks_hello and type(error) is ServerError:
            self.unfit(BadReply(f"HELLO answered {error}, which is none of disqued"), now)
            return
        if not isinstance(error, NodeRefuses) or self._pinned:
            self._nodes.worked(node)
            raise error
        self._error = error
        if isinstance(error, NodeFull | JournalFailed):
            self._refusing.append(node)  # it still works for other commands
            return
        if isinstance(error, NodeLeaving):
            self._nodes.leaves(node)
        self._failed(error, now)

    def unfit(self, error: DisquedError, now: float) -> None:
        """Give up on a server that is no node, is not trusted, or does not trust us.

        Raises the error when the command is pinned to it.
        """
        self._failed(error, now)
        if self._pinned:
            raise error
        self._refusing.append(cast("Node", self.node))

    def not_sent(self, error: Exception, now: float) -> None:
        """Note that the node could not be reached."""
        self._lost(error, now)

    def broken(self, error: Exception, now: float) -> None:
        """Note that the connection broke after the command was sent.  Raises Uncertain."""
        if not self._asks_hello and not self._command.repeatable:
            self._failed(error, now)
            text = f"the connection broke before {self._name} was answered: it may have been done ({error})"
            if self._command.lane is ConnectionUse.ADD and self._name == "ADDJOB":
                text += "; with a key it would have been added again, once, and with retry_add=True perhaps twice"
            raise Uncertain(text) from error
        self._lost(error, now)

    def _lost(self, error: Exception, now: float) -> None:
        self._failed(error, now)
        if self._pinned:
            raise Unreachable(f"the node that {self._name} has to ask went away: {error}") from error
        if now >= self._give_up_at:
            raise self._final_error()
