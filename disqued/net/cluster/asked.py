"""What this node answers other nodes, and itself, that ask what a command answers (CLUSTER ASK).

    Outbox.asked --next turn of the loop--> the command, as one of a caller within the process --> Questions.answer

The loop has its other turns between two commands.  `commands/cluster.py` says which commands these are.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.commands.cluster import check_asked
from disqued.core.model.outbox import Asked
from disqued.core.node import Node
from disqued.errors import CommandError, InternalError

log = Logger("disqued.net.cluster.asked.Answers")  # by its name: who asks cannot be seen where this is compiled


class Calls(Protocol):
    """What runs commands for parts of the process."""

    def call(self, words: Sequence[bytes], *, address: str) -> "Deferred[Any]":
        """Run a command; fires with its value, or a CommandError."""


class Answers:
    """Runs the commands that nodes ask for."""

    def __init__(
        self, node: Node, calls: Callable[[], Calls], *, soon: Callable[[Callable[[], object]], object],
        finish_step: Callable[[], None],
    ) -> None:  # fmt: skip
        """`soon` calls in the next turn of the loop; `finish_step` is called after each step of the node."""
        self._node = node
        self._calls = calls
        self._soon = soon
        self._finish_step = finish_step

    def take(self, asked: list[Asked]) -> None:
        """Answer these, one after the other."""
        for each in asked:
            self._soon(partial(self._answer, each))

    def _answer(self, asked: Asked) -> None:
        try:
            check_asked(asked.words)
        except CommandError as error:
            self._tell(asked, error)
            return
        address = f"node {asked.node_id.decode()}"
        self._calls().call(asked.words, address=address).addErrback(_error_of).addCallback(partial(self._tell, asked))

    def _tell(self, asked: Asked, value: object) -> None:
        self._node.begin()
        self._node.questions.answer(asked, value)
        self._finish_step()


def _error_of(failure: Failure) -> CommandError:
    if isinstance(failure.value, CommandError):
        return failure.value
    log.failure("Internal error in what another node asked for", failure)
    return InternalError()
