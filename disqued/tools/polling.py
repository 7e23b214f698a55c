"""Asking every node of a cluster at the same time; one that does not answer holds up nobody.

    HELLO of any node --> all nodes --> a thread each: the question --> Answer of each, or why there is none

A node that has not answered in time is asked no second time until it has: its thread waits for it, and later rounds do
not.  Each node keeps its connection from round to round.

Times are seconds.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import attrs
import click

from disqued.client.errors import DisquedError, ServerError
from disqued.tools.connecting import Failed, NodeConnection, Target
from disqued.tools.members import Member, members

T = TypeVar("T")


@attrs.frozen
class Answer(Generic[T]):
    """What a node answered, or why it did not."""

    member: Member
    value: T | None = None
    error: str = ""  #: why there is no value; "" when there is
    is_refused: bool = False  #: it is there, and has answered with that error

    @property
    def why(self) -> str:
        """The error, with the address of the node."""
        return named_error(self.member.address, self.error)


def named_error(address: str, error: str) -> str:
    """Write an error of a node with the address of that, which it may have already."""
    return error if address in error else f"{address}: {error}"


class Poll(Generic[T]):
    """A question, the nodes that it is put to, and one thread at a time for each of them."""

    def __init__(self, known: Iterable[Member], question: Callable[[Member, NodeConnection], T]) -> None:
        """`question` is asked in threads; it may raise the errors of `disqued.client.errors`."""
        self._question = question
        self.members = {member.id: member for member in known}
        self._nodes: dict[str, NodeConnection] = {}
        self._asked: set[str] = set()  #: nodes that have not answered yet
        self._answers: dict[str, Answer[T]] = {}  #: of this round
        self._bug: BaseException | None = None  #: what a thread was ended by
        self._changed = threading.Condition()

    def ask(self, wait_s: float | None = None) -> list[Answer[T]]:
        """Ask every node, in the order of `members`; one that is silent after `wait_s` is away.

        None waits until each has answered or is away by its own timeout.
        """
        with self._changed:
            self._answers.clear()
            known = list(self.members.values())
            fresh = {member.id for member in known} - self._asked
            self._asked |= fresh
            for member in known:
                if member.id in fresh:
                    threading.Thread(target=self._ask, args=(member,), daemon=True).start()
            self._changed.wait_for(lambda: self._bug is not None or fresh <= self._answers.keys(), wait_s)
            if self._bug is not None:
                raise self._bug
            return [
                self._answers.get(member.id) or Answer(member, error=f"{member.address} does not answer")
                for member in known
            ]

    def close(self) -> None:
        """Close the connections; no node may be asked any more."""
        for node in self._nodes.values():
            node.close()

    def _ask(self, member: Member) -> None:
        node = self._nodes.setdefault(member.address, member.target.node())
        try:
            answer = Answer(member, self._question(member, node))
        except DisquedError as error:
            node.close()
            answer = Answer(member, error=str(error), is_refused=isinstance(error, ServerError))
        except BaseException as error:
            with self._changed:
                self._bug = error
                self._changed.notify()
            return
        with self._changed:
            self._asked.discard(member.id)
            self._answers[member.id] = answer
            self._changed.notify()


def ask_once(known: Iterable[Member], question: Callable[[Member, NodeConnection], T]) -> list[Answer[T]]:
    """Ask nodes once, and wait until each has answered or is away."""
    poll = Poll(known, question)
    try:
        return poll.ask()
    finally:
        poll.close()


def ask_all(target: Target, question: Callable[[NodeConnection], T]) -> list[tuple[Member, T]]:
    """Ask every node of a cluster once, and return what each answered; the others are named on standard error.

    The node of `target` comes first.  Raises Failed when none answers, and the errors of `disqued.client.errors` when
    that node cannot be asked for the others.
    """
    return answered(ask_once(members(target), lambda _, node: question(node)))


def answered(answers: Sequence[Answer[T]]) -> list[tuple[Member, T]]:
    """Return what was answered, and name the other nodes on standard error.  Raises Failed when none answered."""
    found = [(answer.member, answer.value) for answer in answers if answer.value is not None and not answer.error]
    silent = [answer for answer in answers if answer.error]
    if silent and not found:
        refusals = {answer.error for answer in silent if answer.is_refused}
        all_alike = len(refusals) == 1 and all(answer.is_refused for answer in silent)
        raise Failed(silent[0].error if all_alike else "; ".join(answer.why for answer in silent))
    for answer in silent:
        complain(f"{answer.why}; what it has is left out")
    return found


def complain(text: str) -> None:
    """Write a line about a part of what was asked for: `disqued VERB: text`, on standard error."""
    context = click.get_current_context(silent=True)
    click.echo(f"{context.command_path if context else 'disqued'}: {text}", err=True)
