"""Keys: a producer that does not know whether its job was added says so again, and there is one job.

    ADDJOB KEY k --> a job of the queue has it that this node made ---------------> its id
                     somebody on this node is about to add it --------------------> what becomes of that
                     else --HAS_KEY--> every node that can be reached
                          a node has made it --> its id
                          a node is about to -> says what becomes of it; asked again in 100 ms ... 1 s
                          a node has a copy --KEEP--> all: it is kept, and its id answered; or it is over
                          nobody has it -----> added; all who have said this key meanwhile hear what becomes of it

An id is answered only of a job that nobody takes back.  While its first producer waits for copies, the others wait with
it; each for its own time, and the job is given up when nobody waits any more.  Who holds a copy that another node made
cannot tell whether that one has given it up, or is about to, and the word of it is under way: so the maker's word
counts as long as it can be asked.  When it cannot, whoever holds a copy promises to keep it, and from then on lets
nobody but consumers end it.

The key goes with its job: it is free again when the job is done, dropped, or its time is over, and on each node when
that hears of it.  Nodes that cannot hear each other may each add a job of one key; then both are there, and the older
one that a node finds is named.

Times are integer milliseconds.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from disqued.core.model.machine import Acts, Hear, Machine, on
from disqued.core.model.messages import A_COPY, FOUND, HAS_KEY, INQUIRE, KEEP, PENDING, SOON
from disqued.core.model.outbox import Client
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.work.background import BackgroundClient
from disqued.core.work.inquiries import UNKNOWN, AliasFindings, Inquiries, better
from disqued.core.work.placement import timed_out
from disqued.errors import CommandError, NotReplicated

#: Pause before a node is asked again that is about to add the job and does not say more; twice as long each time.
ASKED_AGAIN_MS: Final = 100
ASKED_AGAIN_MAX_MS: Final = 1_000
FLUSHED: Final = "job removed: everything was flushed"
#: Adds the job for a client; returns its id, or None when the client is to wait.  Raises CommandError.
Add = Callable[[Client], bytes | None]


class PendingProducer(Timed):
    """A client that waits for the job of a key."""

    __slots__ = ("addition", "client", "timeout_ms")

    def __init__(self, client: Client, addition: "PendingKey", timeout_ms: int) -> None:
        self.awake_at = 0
        self.client: Client = client
        self.addition: PendingKey = addition
        self.timeout_ms: int = timeout_ms  #: how long it waits once other nodes have been asked; 0 = for ever


class PendingKey(Timed, BackgroundClient):
    """The job of a key that somebody is about to add, and who waits for it."""

    __slots__ = (
        "add",
        "asks",
        "dismissed",
        "may_hurry",
        "number",
        "pause_ms",
        "place",
        "producers",
        "told",
        "when_over",
    )

    def __init__(self, place: tuple[bytes, bytes], add: Add, when_over: Callable[["PendingKey", object], None]) -> None:
        self.awake_at = 0
        self.place: tuple[bytes, bytes] = place  #: queue and alias
        self.add: Add = add
        self.when_over: Callable[[PendingKey, object], None] = when_over  #: called with itself, and an id or an error
        self.producers: dict[Client, PendingProducer] = {}
        self.asks: bool = True  #: other nodes are asked for the first time
        self.dismissed: set[bytes] = set()  #: ids of jobs that have the key and are over, though somebody has a copy
        self.number: int = 0  #: of the last question to other nodes
        self.may_hurry: bool = True  #: it has not been hurried in this pause
        self.pause_ms: int = ASKED_AGAIN_MS
        #: Nodes that heard that it is about to be added, and by the numbers of their questions hear what becomes of it.
        self.told: dict[bytes, int] = {}

    def ended(self, value: object) -> None:
        """Let those who wait hear of it."""
        self.when_over(self, value)

    @property
    def address(self) -> str:
        """Where the first of those who wait is, for the event log."""
        first = next(iter(self.producers), None)
        address: str = getattr(first, "address", "")
        return address


class Keys(Machine):
    """The machine behind ADDJOB with a KEY."""

    __slots__ = ("_inquiries", "_state", "adding")

    def __init__(self, state: State, inquiries: Inquiries) -> None:
        self._state = state
        self._inquiries = inquiries
        self.adding: dict[tuple[bytes, bytes], PendingKey] = {}  #: by queue and alias

    def hears(self) -> dict[int, Hear]:
        return {INQUIRE: self.on_inquire}

    def due_table(self) -> Acts:
        return on(PendingKey, self.due) | on(PendingProducer, self.timed_out)

    def abandon_table(self) -> Acts:
        return on(PendingProducer, self.forsake)

    def add(self, client: Client, queue: bytes, alias: bytes, timeout_ms: int, add: Add) -> bytes | None:
        """Return the id of the job of a key, which is added if nobody has it; None when the client is to wait.

        `timeout_ms`: for copies, or for the one who is about to add it; 0 = for ever.  Raises what `add` raises.
        """
        place = (queue, alias)
        addition = self.adding.get(place)
        if addition is not None:
            self._join(addition, client, timeout_ms)
            return None
        known = self._inquiries.standing(queue, alias)
        if known.how == PENDING:
            self._state.counters.repeated += 1
            return known.job_id
        addition = PendingKey(place, add, self._end)
        if not known.how and not self._inquiries.can_ask:
            job_id = add(addition)
            if job_id is not None:
                return job_id
            addition.asks = False
        self.adding[place] = addition
        self._join(addition, client, timeout_ms)
        if addition.asks:
            self._ask(addition)
        return None

    # Who waits.

    def _join(self, addition: PendingKey, client: Client, timeout_ms: int) -> None:
        producer = addition.producers[client] = PendingProducer(client, addition, timeout_ms)
        self._state.waiting.add(client, producer)
        if not addition.asks:
            self._begin_to_wait(producer)

    def _begin_to_wait(self, producer: PendingProducer) -> None:
        if producer.timeout_ms:
            self._state.schedule.add(producer, self._state.now + producer.timeout_ms)

    def timed_out(self, producer: PendingProducer, error: CommandError | None = None) -> None:
        """A producer has waited for long enough: the job is given up if it was the last.

        It hears NOREPL, or an error where that is wanted.
        """
        addition = producer.addition
        if addition.producers.get(producer.client) is producer:
            self._state.counters.refused += 1
            self._answer(producer, timed_out(self._state) if error is None else error)
            self.forsake(producer)

    def forsake(self, producer: PendingProducer) -> None:
        """Nobody waits for this any more: the job is not wanted if it was the last."""
        addition = producer.addition
        self._state.schedule.cancel(producer)
        self._state.waiting.remove(producer.client, producer)
        del addition.producers[producer.client]
        if not addition.producers:
            self._close(addition, UNKNOWN)
            self._state.waiting.abandon(addition)

    def _close(self, addition: PendingKey, outcome: AliasFindings) -> None:
        """Have done with an addition, and let other nodes know which wait for it."""
        state = self._state
        del self.adding[addition.place]
        state.schedule.cancel(addition)
        self._inquiries.expect_no_more(addition.number)
        for node_id, number in addition.told.items():
            state.send(node_id, (FOUND, number, (outcome,)))

    def _end(self, addition: PendingKey, value: object) -> None:
        """Answer all who wait: an id, or an error."""
        outcome = AliasFindings(PENDING, value) if isinstance(value, bytes) else UNKNOWN
        self._close(addition, outcome)
        for producer in addition.producers.values():
            self._state.schedule.cancel(producer)
            self._state.waiting.remove(producer.client, producer)
            self._answer(producer, value)
        self._state.counters.repeated += len(addition.producers) - 1 if outcome.how else 0

    def _answer(self, producer: PendingProducer, value: object) -> None:
        self._state.outbox.replies.append((producer.client, value, []))

    def flushing(self) -> None:
        """Everything is flushed: those who wait hear so."""
        for addition in list(self.adding.values()):
            self._state.waiting.abandon(addition)
            self._end(addition, NotReplicated(FLUSHED))

    # Who has it.

    def due(self, addition: PendingKey) -> None:
        """Ask again."""
        if self.adding.get(addition.place) is addition:
            addition.may_hurry = True
            self._ask(addition)

    def on_inquire(self, sender: bytes, queue: bytes, number: int, verb: int, aliases: tuple[bytes, ...]) -> None:
        """Answer a question of another node; it may be about the job that a client here waits for, too."""
        what = self._inquiries.answer(sender, queue, number, verb, aliases)
        if verb == HAS_KEY:
            for alias, known in zip(aliases, what, strict=True):
                addition = self.adding.get((queue, alias))
                if addition is None:
                    continue
                if known.how == SOON:
                    addition.told[sender] = number
                else:
                    self.hurry(addition)

    def hurry(self, addition: PendingKey) -> None:
        """Another node is about to add the job that this one waits for: ask at once, to hear what becomes of it.

        Once in a pause, so that two that wait do not hurry each other for ever.
        """
        if addition.awake_at and addition.may_hurry:
            addition.may_hurry = False
            self._state.schedule.cancel(addition)
            self._ask(addition)

    def _ask(self, addition: PendingKey) -> None:
        queue, alias = addition.place
        self._inquiries.expect_no_more(addition.number)
        if self._inquiries.can_ask:
            when_known = partial(self._heard, addition)
            addition.number = self._inquiries.ask(addition, HAS_KEY, queue, [alias], when_known)
        else:
            self._heard(addition, {})

    def _heard(self, addition: PendingKey, found: dict[bytes, AliasFindings]) -> object:
        """Go on with what other nodes have said of a key."""
        if addition.asks:
            addition.asks = False
            for producer in addition.producers.values():
                self._begin_to_wait(producer)
        queue, alias = addition.place
        known = better(found.get(alias, UNKNOWN), self._inquiries.standing(queue, alias))
        if known.how == PENDING:
            self._name(addition, known.job_id)
        elif known.how == SOON:
            self._ask_later(addition)
        elif known.how == A_COPY and known.job_id not in addition.dismissed:
            self._keep(addition, known.job_id)
        else:
            self._begin(addition)
        return self._inquiries.waits

    def _name(self, addition: PendingKey, job_id: bytes) -> None:
        """Answer the id of a job that was there."""
        self._state.counters.repeated += 1
        self._end(addition, job_id)

    def _ask_later(self, addition: PendingKey) -> None:
        """Wait for what becomes of the job that another node is about to add; should nothing come, ask again."""
        self._inquiries.expect(addition.number, partial(self._told, addition))
        self._state.schedule.add(addition, self._state.now + addition.pause_ms)
        addition.pause_ms = min(2 * addition.pause_ms, ASKED_AGAIN_MAX_MS)

    def _told(self, addition: PendingKey, known: AliasFindings) -> None:
        """Hear what became of the job that another node was about to add."""
        if known.how == PENDING:
            self._name(addition, known.job_id)
        else:
            self._state.schedule.cancel(addition)
            self._ask(addition)

    def _keep(self, addition: PendingKey, job_id: bytes) -> None:
        """See to it that a job is kept of which there are only copies, as far as can be heard."""
        if self._inquiries.can_ask:
            when_known = partial(self._kept, addition, job_id)
            self._inquiries.ask(addition, KEEP, addition.place[0], [job_id], when_known)
        else:
            self._kept(addition, job_id, {})

    def _kept(self, addition: PendingKey, job_id: bytes, found: dict[bytes, AliasFindings]) -> object:
        """Go on with what became of the copies of a job."""
        known = better(found.get(job_id, UNKNOWN), self._inquiries.keep(job_id))
        if known.how == PENDING:
            self._name(addition, job_id)
        elif known.how == SOON:
            self._ask_later(addition)
        else:
            addition.dismissed.add(job_id)
            self._ask(addition)
        return self._inquiries.waits

    def _begin(self, addition: PendingKey) -> None:
        """Add the job, as nobody has it; it is the first of those who wait that adds it."""
        state = self._state
        actor = state.trace.actor
        state.act_for(next(iter(addition.producers)))
        try:
            job_id = addition.add(addition)
        except CommandError as error:
            self._end(addition, error)
            return
        finally:
            state.act_for(actor)
        if job_id is not None:
            self._end(addition, job_id)
