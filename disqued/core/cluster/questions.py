"""Questions: what a command that only reads answers on every node, for a client of one.

    client --CLUSTER ASK * QSTAT mail--> us --ASK(number, words)--> every node that is asked and has a link
                                         us --------------------->  ourselves, without a message
    asked node: `Outbox.asked` --> the outside runs the command in a step of its own --> `answer`
                                         us <--TOLD(number, failed, value)--
    client <--[[node id, status, value], ...]-- us      when all have answered, or `ANSWER_MS` are over

The core knows no commands, so that a question leaves it as a client's command came in: to the outside, which has them
(`commands/cluster.py`).  A value is what the command returns, or its CommandError.  So the figures of a cluster are the
sum of what each node says of itself, and nothing keeps a second account of them.

A question is not repeated: where it is lost the node counts as `silent`, and the client may ask again.

Times are integer milliseconds.
"""

from collections.abc import Iterable
from typing import Final

from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import ASK, TOLD
from disqued.core.model.outbox import Asked, Client
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.errors import CommandError

ANSWER_MS: Final = 2_000  #: how long the slowest node is waited for

# How a node has answered.
OK: Final = b"ok"
REFUSED: Final = b"error"  #: the value is the line of the error
SILENT: Final = b"silent"  #: it has a link, and has not answered in time
AWAY: Final = b"away"  #: there is no link to it


#: What one node has answered, or why it has not: its id; OK, REFUSED, SILENT or AWAY; the value, None if there is none.
NodeAnswer = tuple[bytes, bytes, object]


class Question(Timed):
    """A client that waits for what nodes answer."""

    __slots__ = ("answers", "client", "number")

    def __init__(self, client: Client, number: int, node_ids: Iterable[bytes]) -> None:
        self.awake_at = 0
        self.client: Client = client
        self.number: int = number
        #: By node, in the order of their ids; None = it is waited for.
        self.answers: dict[bytes, NodeAnswer | None] = dict.fromkeys(sorted(node_ids))

    @property
    def is_open(self) -> bool:
        """Return whether a node is waited for."""
        return any(answer is None for answer in self.answers.values())


class Questions(Machine):
    """The machine that asks other nodes, and lets them be answered."""

    __slots__ = ("_open", "_state")

    def __init__(self, state: State) -> None:
        self._state = state
        self._open: dict[int, Question] = {}

    def hears(self) -> dict[int, Hear]:
        return {ASK: self.on_ask, TOLD: self.on_told}

    def due_table(self) -> Acts:
        return on(Question, self.due)

    def abandon_table(self) -> Acts:
        return on(Question, self.forsake)

    # Asking.

    def ask(self, client: Client, node_ids: Iterable[bytes], words: tuple[bytes, ...]) -> None:
        """Ask these nodes, this one perhaps among them; the client is blocked, and hears a list of `NodeAnswer`."""
        state = self._state
        number = state.numbers.next_number()
        this = self._open[number] = Question(client, number, node_ids)
        state.waiting.add(client, this)
        for node_id in this.answers:
            if node_id == state.node_id:
                state.outbox.asked.append(Asked(node_id, number, words))
            elif not state.send(node_id, (ASK, number, words)):
                this.answers[node_id] = (node_id, AWAY, None)
        state.schedule.add(this, state.now + ANSWER_MS)
        self._end_if_known(this)

    def _end_if_known(self, this: Question) -> None:
        if not this.is_open:
            self._forget(this)
            self._state.outbox.replies.append((this.client, list(this.answers.values()), []))

    def _forget(self, this: Question) -> None:
        del self._open[this.number]
        self._state.schedule.cancel(this)
        self._state.waiting.remove(this.client, this)

    def due(self, this: Question) -> None:
        """Tell the client what is known: some nodes say nothing."""
        self._miss([node_id for node_id, answer in this.answers.items() if answer is None], this, SILENT)

    def link_closed(self, node_id: bytes) -> None:
        """Wait for this node no longer."""
        for this in list(self._open.values()):
            if node_id in this.answers and this.answers[node_id] is None:
                self._miss([node_id], this, AWAY)

    def _miss(self, node_ids: list[bytes], this: Question, status: bytes) -> None:
        for node_id in node_ids:
            this.answers[node_id] = (node_id, status, None)
        self._end_if_known(this)

    def forsake(self, this: Question) -> None:
        """Forget a question whose client has gone."""
        self._forget(this)

    def flushing(self) -> None:
        """The list of deadlines is dropped: tell the clients what is known."""
        for this in list(self._open.values()):
            self.due(this)

    def on_told(self, sender: bytes, number: int, failed: bool, value: object) -> None:
        """Hear what a node answers."""
        this = self._open.get(number)
        if this is not None and this.answers.get(sender, this) is None:
            this.answers[sender] = (sender, REFUSED if failed else OK, value)
            self._end_if_known(this)

    # Answering.

    def on_ask(self, sender: bytes, number: int, words: tuple[bytes, ...]) -> None:
        """Let the outside answer another node."""
        self._state.outbox.asked.append(Asked(sender, number, words))

    def answer(self, asked: Asked, value: object) -> None:
        """Tell a node, perhaps this one, the value of the command that it has asked for, or the CommandError."""
        failed = isinstance(value, CommandError)
        told = value.line if isinstance(value, CommandError) else value
        if asked.node_id == self._state.node_id:
            self.on_told(asked.node_id, asked.number, failed, told)
        else:
            self._state.send(asked.node_id, (TOLD, asked.number, failed, told))
