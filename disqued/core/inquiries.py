"""Inquiries: what other nodes know of a name, and what they are asked to do with it.

    who has it?        QLPUSH, QRPUSH, WQ.ENQUEUE UNIQUE: a name that is taken on another node is taken here
    it is done         QACK and RQ.ACK of names that nothing here has

    us  --INQUIRE(number, verb, queue, aliases)--> every node that can be reached
        <--FOUND(number, what)--                   for each alias: nothing; the id of its job; somebody is adding it

The client waits until all have answered, or for `INQUIRY_MS`: a node that is silent, or on the other side of a
partition, does not keep it, so that both sides may take one name.

Two nodes may ask for the same name at the same time.  One that is asked after it has heard that the asker has nothing
says that it is about to add it; when neither has heard of the other yet, the one with the higher node id says so.

Times are integer milliseconds.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from disqued.core.acks import Acks
from disqued.core.job import FLAG_WITH_CONSUMER, NamedJob
from disqued.core.messages import A_JOB, ACK_EVERY, ACK_ONE, FOUND, HAS, HAS_ANYWHERE, INQUIRE, NOTHING, SOON, Message
from disqued.core.queues import Client
from disqued.core.schedule import Timed
from disqued.core.state import State
from disqued.errors import CommandError

INQUIRY_MS: Final = 2_000


class Known(NamedTuple):
    """What a node has found of an alias."""

    how: int  #: NOTHING, A_JOB or SOON
    job_id: bytes


_NOTHING = Known(NOTHING, b"")
_SOON = Known(SOON, b"")


class Inquiry(Timed):
    """A client that waits for what other nodes know."""

    __slots__ = ("aliases", "client", "found", "number", "queue", "verb", "waits_for", "when_known")

    def __init__(
        self, client: Client | None, number: int, verb: int, *, queue: bytes, aliases: list[bytes],
        when_known: Callable[[dict[bytes, Known]], Any],
    ) -> None:  # fmt: skip
        self.awake_at = 0
        self.client: Client | None = client  #: None = nobody waits
        self.number: int = number
        self.verb: int = verb
        self.queue: bytes = queue
        self.aliases: list[bytes] = aliases
        #: Called with what there is of each alias that was found; returns the reply, or `waits` when it is yet to come.
        self.when_known: Callable[[dict[bytes, Known]], Any] = when_known
        self.waits_for: set[bytes] = set()  #: nodes that have yet to answer
        self.found: dict[bytes, Known] = {}


class Inquiries:
    """The machine that asks other nodes about names."""

    __slots__ = ("_acks", "_open", "_state", "waits")

    def __init__(self, state: State, acks: Acks) -> None:
        self._state = state
        self._acks = acks
        self._open: dict[int, Inquiry] = {}
        self.waits: Any = object()  #: returned by `when_known` when the client is to wait for something else

    @property
    def can_ask(self) -> bool:
        """Tell whether there are other nodes to be asked."""
        return bool(self._state.peers.linked)

    def ask(
        self, client: Client | None, verb: int, queue: bytes, aliases: list[bytes],
        when_known: Callable[[dict[bytes, Known]], Any],
    ) -> None:  # fmt: skip
        """Ask all nodes that can be reached, of which there is one at least; the client is blocked meanwhile."""
        state = self._state
        number = state.next_number()
        this = self._open[number] = Inquiry(client, number, verb, queue=queue, aliases=aliases, when_known=when_known)
        message = (INQUIRE, queue, number, verb, tuple(aliases))
        this.waits_for = {node_id for node_id in list(state.peers.linked) if state.send(node_id, message)}
        state.schedule.add(this, state.now + INQUIRY_MS)

    def is_claimed(self, queue: bytes, alias: bytes, *, anywhere: bool = False) -> bool:
        """Tell whether somebody on this node is about to add a job of this name."""
        return self._claim(queue, alias, anywhere=anywhere) is not None

    def _claim(self, queue: bytes, alias: bytes, *, anywhere: bool) -> Inquiry | None:
        """The inquiry of one who is about to add a job of this name."""
        verb = HAS_ANYWHERE if anywhere else HAS
        for this in self._open.values():
            if this.verb == verb and alias in this.aliases and (anywhere or this.queue == queue):
                return this
        return None

    def due(self, this: Inquiry) -> None:
        """Go on without those who have not answered."""
        if self._open.get(this.number) is this:
            self._finish(this)

    def _finish(self, this: Inquiry) -> None:
        del self._open[this.number]
        self._state.schedule.cancel(this)
        try:
            value = this.when_known(this.found)
        except CommandError as error:
            value = error
        if this.client is not None and value is not self.waits:
            self._state.outbox.replies.append((this.client, value, []))

    def on_found(self, sender: bytes, message: Message) -> None:
        """Hear what a node has found."""
        _, number, what = message
        this = self._open.get(number)
        if this is None or sender not in this.waits_for:
            return
        this.waits_for.discard(sender)
        for alias, (how, job_id) in zip(this.aliases, what, strict=False):
            if how:
                this.found.setdefault(alias, Known(how, job_id))
        if not this.waits_for:
            self._finish(this)

    def on_inquire(self, sender: bytes, message: Message) -> None:
        """Look for names, and do with them what is asked."""
        _, queue, number, verb, aliases = message
        what = tuple(self._found(sender, verb, queue, alias) for alias in aliases)
        self._state.send(sender, (FOUND, number, what))

    def _found(self, sender: bytes, verb: int, queue: bytes, alias: bytes) -> Known:
        state = self._state
        anywhere = verb == HAS_ANYWHERE
        jobs: tuple[NamedJob, ...] = state.unique.get(alias, ()) if anywhere else state.by_name(queue, alias)
        if verb == ACK_ONE:
            jobs = tuple(job for job in jobs if job.flags & FLAG_WITH_CONSUMER)[:1]
        if verb in (ACK_EVERY, ACK_ONE):
            jobs = tuple(job for job in jobs if self._acks.acknowledge(job.id))
        elif not jobs:
            claim = self._claim(queue, alias, anywhere=anywhere)
            if claim is not None and (sender not in claim.waits_for or state.node_id > sender):
                return _SOON
        return Known(A_JOB, jobs[0].id) if jobs else _NOTHING

    def link_closed(self, node_id: bytes) -> None:
        """Expect no answer of a node."""
        for this in list(self._open.values()):
            if node_id in this.waits_for:
                this.waits_for.discard(node_id)
                if not this.waits_for:
                    self._finish(this)

    def gone(self, client: Client) -> None:
        """A client that waits is gone: what it wanted is not done, but for what other nodes did."""
        for this in [this for this in self._open.values() if this.client == client]:
            del self._open[this.number]
            self._state.schedule.cancel(this)

    def flushed(self) -> None:
        """Everything is gone, and the schedule with it: those who wait go on with what is known."""
        for this in list(self._open.values()):
            self._finish(this)
