"""Inquiries: what other nodes know of a name, and what they are asked to do with it.

    who has it?        QLPUSH, QRPUSH, WQ.ENQUEUE UNIQUE: a name that is taken on another node is taken here
                       ADDJOB KEY: the job that has it is the one that is wanted (`keys`)
    it is done         QACK and RQ.ACK of names that nothing here has

    us  --INQUIRE(number, verb, queue, aliases)--> every node that can be reached
        <--FOUND(number, what)--                   for each alias: nothing; the id of its job; somebody is adding it

The client waits until all have answered, or for `INQUIRY_MS`: a node that is silent, or on the other side of a
partition, does not keep it, so that both sides may take one name.

A node answers on a link of its own, which may not be open yet: after a start ours are there first.  What it had to say
until then is lost, so that it is asked once more when it has a link.  Its greeting is too early for that, since it
comes before the other end knows; the first PING behind it is the sign.

    us  --INQUIRE(number, ...)-->  it                         it has no link to us: nobody hears FOUND
        <--------greeting, PING--  it                         its link to us is open, and it knows
        --INQUIRE(number, ...)-->  it  --FOUND(number, what)-->  us

So a question may come twice, and so may its answer; a name that is asked for twice is as it is, but of two jobs of a
name a second one would be acknowledged: `ACK_ONE` is asked once.

Two nodes may ask for the same name at the same time.  One that is asked after it has heard that the asker has nothing
says that it is about to add it; when neither has heard of the other yet, the one with the higher node id says so.  One
that has heard that the asker is about to add it never says so.

Of a key (`keys`) a node that is about to add its job says so, too, and says once more what became of that:

        <--FOUND(number, SOON)--      ...      <--FOUND(number, the id, or nothing)--

Times are integer milliseconds.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    FLAG_DELIVERED,
    FLAG_PROMISED,
    FLAG_QUEUED_BEFORE,
    FLAG_WITH_CONSUMER,
    KEYED,
    WAIT_REPL,
    Job,
    NamedJob,
)
from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import (
    ACK_EVERY,
    ACK_ONE,
    ENDED,
    FOUND,
    HAS,
    HAS_ANYWHERE,
    HAS_KEY,
    INQUIRE,
    KEEP,
    NOT_KNOWN,
    PENDING,
    SOON,
    Message,
)
from disqued.core.model.outbox import Client
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.work.acks import Acks
from disqued.core.work.standings import has_ended, promise_of, standing_of
from disqued.errors import CommandError

INQUIRY_MS: Final = 2_000


class AliasFindings(NamedTuple):
    """What a node has found of an alias."""

    how: int  #: the standing of a job: NOT_KNOWN, A_COPY, SOON, PENDING or ENDED
    job_id: bytes  #: empty unless how is A_COPY or PENDING


UNKNOWN: Final = AliasFindings(NOT_KNOWN, b"")
_SOON: Final = AliasFindings(SOON, b"")
_OVER: Final = AliasFindings(ENDED, b"")


def better(one: AliasFindings, other: AliasFindings) -> AliasFindings:
    """What counts of what two nodes say; the first where they say the same."""
    return other if other.how > one.how else one


class Inquiry(Timed):
    """A client that waits for what other nodes know."""

    __slots__ = ("aliases", "client", "number", "queue", "said", "verb", "waits_for", "when_known")

    def __init__(
        self, client: Client | None, number: int, verb: int, *, queue: bytes, aliases: list[bytes],
        when_known: Callable[[dict[bytes, AliasFindings]], object],
    ) -> None:  # fmt: skip
        self.awake_at = 0
        self.client: Client | None = client  #: None = nobody waits
        self.number: int = number
        self.verb: int = verb
        self.queue: bytes = queue
        self.aliases: list[bytes] = aliases
        #: Called with what there is of each alias that was found; returns the reply, or `waits` when it is yet to come.
        self.when_known: Callable[[dict[bytes, AliasFindings]], object] = when_known
        self.waits_for: set[bytes] = set()  #: nodes that have yet to answer
        #: By nodes what they have said of each alias; of what one says twice the last counts.
        self.said: dict[bytes, tuple[tuple[int, bytes], ...]] = {}

    @property
    def message(self) -> Message:
        """The question."""
        return (INQUIRE, self.queue, self.number, self.verb, tuple(self.aliases))

    def has_heard(self, node_id: bytes, alias: bytes) -> bool:
        """Tell whether a node has said that it is about to add a job of this name."""
        said = self.said.get(node_id, ())
        return any(name == alias and how == SOON for name, (how, _) in zip(self.aliases, said, strict=False))

    def found(self) -> dict[bytes, AliasFindings]:
        """What there is of the aliases that somebody knows something of."""
        found: dict[bytes, AliasFindings] = {}
        for what in self.said.values():
            for alias, (how, job_id) in zip(self.aliases, what, strict=False):
                if how:
                    found[alias] = better(found.get(alias, UNKNOWN), AliasFindings(how, job_id))
        return found


class Inquiries(Machine):
    """The machine that asks other nodes about names."""

    __slots__ = ("_acks", "_asked", "_later", "_open", "_state", "waits")

    def __init__(self, state: State, acks: Acks) -> None:
        self._state = state
        self._acks = acks
        self._open: dict[int, Inquiry] = {}
        self._asked: dict[bytes, dict[Inquiry, None]] = {}  #: the same, by each name that they are about
        #: Called with what becomes of an addition that another node is about, by the number of the question.
        self._later: dict[int, Callable[[AliasFindings], None]] = {}
        self.waits: object = object()  #: returned by `when_known` when the client is to wait for something else

    def hears(self) -> dict[int, Hear]:
        return {FOUND: self.on_found}

    def due_table(self) -> Acts:
        return on(Inquiry, self.due)

    def abandon_table(self) -> Acts:
        return on(Inquiry, self.forsake)

    @property
    def can_ask(self) -> bool:
        """Tell whether there are other nodes to be asked."""
        return bool(self._state.peers.linked)

    def ask(
        self, client: Client | None, verb: int, queue: bytes, aliases: list[bytes],
        when_known: Callable[[dict[bytes, AliasFindings]], object],
    ) -> int:  # fmt: skip
        """Ask all nodes that can be reached, of which there is one at least; the client is blocked meanwhile.

        Returns the number of the question.
        """
        state = self._state
        number = state.numbers.next_number()
        this = self._open[number] = Inquiry(client, number, verb, queue=queue, aliases=aliases, when_known=when_known)
        for alias in aliases:
            self._asked.setdefault(alias, {})[this] = None
        if client is not None:
            state.waiting.add(client, this)
        this.waits_for = {node_id for node_id in list(state.peers.linked) if state.send(node_id, this.message)}
        state.schedule.add(this, state.now + INQUIRY_MS)
        return number

    def expect(self, number: int, when_over: Callable[[AliasFindings], None]) -> None:
        """Be told what becomes of an addition that another node is about, as it answered to this question."""
        self._later[number] = when_over

    def expect_no_more(self, number: int) -> None:
        """Be told nothing more of this question."""
        self._later.pop(number, None)

    def is_claimed(self, queue: bytes, alias: bytes, *, anywhere: bool = False) -> bool:
        """Tell whether somebody on this node is about to add a job of this name."""
        return self._claim(queue, alias, anywhere=anywhere) is not None

    def _claim(self, queue: bytes, alias: bytes, *, anywhere: bool) -> Inquiry | None:
        """The inquiry of one who is about to add a job of this name."""
        verb = HAS_ANYWHERE if anywhere else HAS_KEY if alias[:1] == KEYED else HAS
        for this in self._asked.get(alias, ()):
            if this.verb == verb and (anywhere or this.queue == queue):
                return this
        return None

    def due(self, this: Inquiry) -> None:
        """Go on without those who have not answered."""
        if self._open.get(this.number) is this:
            self._finish(this)

    def _finish(self, this: Inquiry) -> None:
        self.forsake(this)
        try:
            value = this.when_known(this.found())
        except CommandError as error:
            value = error
        if this.client is not None and value is not self.waits:
            self._state.outbox.replies.append((this.client, value, []))

    def on_found(self, sender: bytes, number: int, what: tuple[tuple[int, bytes], ...]) -> None:
        """Hear what a node has found."""
        this = self._open.get(number)
        if this is None:
            # Who says again that it is about to add a job has nothing new to say.
            if number in self._later and what and what[0][0] != SOON:
                self._later.pop(number)(AliasFindings(*what[0]))
            return
        if sender not in this.waits_for and this.verb != HAS_KEY:
            return
        this.waits_for.discard(sender)
        this.said[sender] = what
        if not this.waits_for:
            self._finish(this)

    def answer(
        self, sender: bytes, queue: bytes, number: int, verb: int, aliases: tuple[bytes, ...]
    ) -> tuple[AliasFindings, ...]:
        """Look for names for another node, and do with them what it asks; returns what it hears of each."""
        what = tuple(self._found(sender, verb, queue, alias) for alias in aliases)
        self._state.send(sender, (FOUND, number, what))
        return what

    def _found(self, sender: bytes, verb: int, queue: bytes, alias: bytes) -> AliasFindings:
        if verb == KEEP:
            return self.keep(alias)
        state = self._state
        anywhere = verb == HAS_ANYWHERE
        jobs: tuple[NamedJob, ...] = (
            state.aliases.unique.get(alias, ()) if anywhere else state.aliases.by_name(queue, alias)
        )
        if verb == ACK_ONE:
            jobs = tuple(job for job in jobs if job.flags & FLAG_WITH_CONSUMER)[:1]
        if verb in (ACK_EVERY, ACK_ONE):
            jobs = tuple(job for job in jobs if self._acks.acknowledge(job.id))
        elif not jobs:
            claim = self._claim(queue, alias, anywhere=anywhere)
            if claim is not None and self._goes_first(claim, sender, alias):
                return _SOON
        if verb == HAS_KEY:
            return self._standing(queue, alias, jobs)
        return AliasFindings(PENDING, jobs[0].id) if jobs else UNKNOWN

    def _goes_first(self, claim: Inquiry, sender: bytes, alias: bytes) -> bool:
        """Tell whether who asks here for a name, to add a job, goes first, and not the node that asks for the same."""
        if sender in claim.waits_for:
            return self._state.node_id > sender
        return not claim.has_heard(sender, alias)

    def standing(self, queue: bytes, alias: bytes) -> AliasFindings:
        """Tell what this node knows of the job of a key: SOON while its producer waits for copies."""
        return self._standing(queue, alias, self._state.aliases.by_name(queue, alias))

    def _standing(self, queue: bytes, alias: bytes, jobs: tuple[NamedJob, ...]) -> AliasFindings:
        state = self._state
        departed = state.custody.ended.under_way(queue, alias, state.now)
        known = AliasFindings(PENDING, departed) if departed else UNKNOWN
        for job in jobs:
            if job.expires_at > state.now:
                how = promise_of(state, job)
                known = better(known, _SOON if how == SOON else AliasFindings(how, job.id))
        return known

    def keep(self, job_id: bytes) -> AliasFindings:
        """Keep a copy though its maker may give it up, for a producer is about to hear its id; say whether it is here.

        One that is delivered at most once, and that nobody was told to queue, would never be delivered.
        """
        state = self._state
        job = state.jobs.get(job_id)
        if job is None or job.state == ACKED:
            return _OVER if has_ended(standing_of(state, job_id).state) else UNKNOWN
        if job.state == WAIT_REPL:
            return _SOON
        if _lies_idle(job):
            return UNKNOWN
        job.flags |= FLAG_PROMISED
        return AliasFindings(PENDING, job_id)

    def greeted(self, node_id: bytes) -> None:
        """The link of a node to us is new."""
        peer = self._state.peers.by_id.get(node_id)
        if peer is not None:
            peer.silent = True

    def on_ping(self, sender: bytes) -> None:
        """A node can be heard: ask again what it could not answer, if this is the first word on its link."""
        peer = self._state.peers.by_id[sender]
        if peer.silent:
            peer.silent = False
            for this in self._open.values():
                if sender in this.waits_for and this.verb != ACK_ONE:
                    self._state.send(sender, this.message)

    def link_closed(self, node_id: bytes) -> None:
        """Expect no answer of a node."""
        for this in list(self._open.values()):
            if node_id in this.waits_for:
                this.waits_for.discard(node_id)
                if not this.waits_for:
                    self._finish(this)

    def forsake(self, this: Inquiry) -> None:
        """Nobody waits for this any more: it is not done, but for what other nodes did."""
        del self._open[this.number]
        self._state.schedule.cancel(this)
        for alias in this.aliases:
            asked = self._asked.get(alias)
            if asked is not None:
                asked.pop(this, None)
                if not asked:
                    del self._asked[alias]
        if this.client is not None:
            self._state.waiting.remove(this.client, this)

    def flushing(self) -> None:
        """Everything is gone, and the schedule with it: those who wait go on with what is known."""
        for this in list(self._open.values()):
            self._finish(this)


def _lies_idle(job: Job) -> bool:
    """Tell whether a job is a copy that neither a timer nor anybody who knows of it will queue."""
    was_queued = job.flags & (FLAG_QUEUED_BEFORE | FLAG_DELIVERED)
    return not job.options.retry_ms and job.state == ACTIVE and not job.requeue_at and not was_queued
