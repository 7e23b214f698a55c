"""Short ways for the commands that a node hears most, of which much or all was read before.

    ADDJOB queue body | timeout options     what is behind the bar is said again and again: read once, kept as `Terms`
    GETJOB | options FROM queues            all of it is: one call serves for whoever says the same
    ACKJOB | id ...                         nothing is, and there is nothing to read but the form of the ids

    words --known?--> call that is compiled --run--> the core
      \\__ no: the parser that the grammar has made --> the command's own class (`commands/jobs.py`)

A short way does what the long one does, which is taken wherever anything is unusual: where something is wrong with the
words, where there are very many, where a job has a key, where nothing is there to be had.  Only clients that may do
everything are served so (`net/clients/connection.py`): for all others it is looked at what a call names.

How much is kept is bounded, for each command: `REMEMBERED` times at most `REMEMBERED_WORDS` words of together at most
`REMEMBERED_BYTES`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from disqued.commands.table import BLOCKED
from disqued.core.model.ids import is_job_id
from disqued.core.model.queues import Client, Queue
from disqued.core.node import CompiledCall, Node
from disqued.core.work.replication import AliasOf
from disqued.core.work.terms import Terms

if TYPE_CHECKING:
    from disqued.commands.jobs import AddJob, GetJob

REMEMBERED: Final = 1_000  #: calls, or terms, of a command that are remembered
REMEMBERED_WORDS: Final = 16  #: of each, at most
REMEMBERED_BYTES: Final = 512  #: of these words together
FEW: Final = 16  #: words of an ACKJOB that is carried out at once
BARE: Final = 4  #: words of an ADDJOB without options

Parser = Callable[[list[bytes]], Any]


class Addition(CompiledCall):
    """ADDJOB: of a job without a key it is all."""

    __slots__ = ("body", "queue", "terms")

    def __init__(self, queue: bytes, body: bytes, terms: Terms) -> None:
        self.queue: bytes = queue
        self.body: bytes = body
        self.terms: Terms = terms

    def run(self, node: Node, client: Client) -> Any:
        """Add the job; returns its id, or BLOCKED.  Raises what `Terms.options` and `Replication.add` raise."""
        job_id = self.add(node, client, self.terms.timeout_ms, None)
        return BLOCKED if job_id is None else job_id

    def add(self, node: Node, client: Client, timeout_ms: int, alias_of: AliasOf | None) -> bytes | None:
        """Add it under an alias, if one is made, and with another time-out."""
        terms, replication = self.terms, node.replication
        return replication.add(
            client, self.queue, self.body, terms.options(replication, node.state),
            maxlen=terms.maxlen, timeout_ms=timeout_ms, asynchronous=terms.asynchronous, by_default=terms.by_default,
            alias_of=alias_of,
        )  # fmt: skip


class Fetch(CompiledCall):
    """GETJOB without counters, for no worker."""

    __slots__ = ("_call", "_count", "_names")

    def __init__(self, call: "GetJob") -> None:
        self._names: list[bytes] = call.queues
        self._count: int = call.count
        self._call: GetJob = call  #: what is done where a queue is not there, or no job, or other nodes are

    def run(self, node: Node, client: Client) -> Any:
        """Take jobs, as `GetJob.run` does."""
        if node.state.peers.linked:
            return self._call.run(node, client)
        by_name, delivery = node.state.queues.by_name, node.delivery
        queues: list[Queue] = []
        for name in self._names:
            queue = by_name.get(name)
            if queue is None:
                return self._call.run(node, client)
            queues.append(queue)
        if len(queues) == 1 and self._count == 1:  # mostly
            unit = delivery.take(queues[0])
            if unit is not None:
                return [(unit.queue, unit.id, unit.body)]
        else:
            units = delivery.fetch(queues, self._count)
            if units:
                return [(unit.queue, unit.id, unit.body) for unit in units]
        return self._call.wait(node, client, queues, None)


class Acknowledgement(CompiledCall):
    """ACKJOB of ids whose form is right."""

    __slots__ = ("_words",)

    def __init__(self, words: list[bytes]) -> None:
        self._words: list[bytes] = words  #: with the name of the command

    def run(self, node: Node, client: Client) -> Any:
        """Acknowledge one after the other; returns how many were known and not done."""
        words, acks = self._words, node.acks
        done = 0
        for at in range(1, len(words)):
            done += acks.acknowledge(words[at])
        return done


def _is_kept(words: list[bytes]) -> bool:
    """Tell whether words are few and short enough to be remembered."""
    return len(words) <= REMEMBERED_WORDS and sum([len(word) for word in words]) <= REMEMBERED_BYTES


def additions(parse: Parser) -> Parser:
    """The short way of ADDJOB."""
    known: dict[bytes | tuple[bytes, ...], Terms] = {}

    def recall(args: list[bytes]) -> Any:
        # A time-out alone, as a rule: a tuple less to make.
        words = args[3] if len(args) == BARE else tuple(args[3:])
        terms = known.get(words)
        if terms is not None:
            return Addition(args[1], args[2], terms)
        call: AddJob = parse(args)
        if call.key is None and _is_kept(args[3:]):
            if len(known) >= REMEMBERED:
                known.clear()
            known[words] = call.terms()
        return call

    return recall


def fetches(parse: Parser) -> Parser:
    """The short way of GETJOB."""
    known: dict[tuple[bytes, ...], Any] = {}
    last_words: list[bytes] = []
    last_call: Any = None

    def recall(args: list[bytes]) -> Any:
        nonlocal last_words, last_call
        # Who asks says the same many times in a row: to compare is cheaper than to look up.
        if args == last_words:
            return last_call
        words = tuple(args)
        call = known.get(words)
        if call is not None:
            last_words, last_call = args, call
            return call
        read: GetJob = parse(args)
        call = read if read.with_counters or read.worker is not None else Fetch(read)
        if _is_kept(args):
            if len(known) >= REMEMBERED:
                known.clear()
            known[words] = last_call = call
            last_words = args
        return call

    return recall


def acknowledgements(parse: Parser) -> Parser:
    """The short way of ACKJOB."""

    def recall(args: list[bytes]) -> Any:
        if len(args) > FEW:
            return parse(args)
        for at in range(1, len(args)):
            if not is_job_id(args[at]):
                return parse(args)
        return Acknowledgement(args)

    return recall
