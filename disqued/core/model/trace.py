"""The event trace: what happens to each job, for the event log that people and programs read.

    a step --> trail.act(when, who), trail.add(job), trail.deliver(job, waited) ... --> lines, or notes of them
    the end of a step --> is there any news? --> whoever takes it away

It is not the journal.  The journal says what a start is to bring back, and everybody waits for it; nobody waits for
the trail, and what of it is lost is seen by the numbers that the event log gives.

What happens is told to the trail in the moment in which it does, so that nothing has to be kept for it: the event log
makes the text of a line of it there and then.  Where no log is ready to take it, `Notes` keep it.

    kind      as below
    wall      when it happened, unix milliseconds; `now` is the same on the monotonic clock
    unit      the job, or what a group has of an event (`GroupNote`); a job id where no job is known; None for events of
              the node
    attempt   the delivery that this is about, from 1; 0 = none
    nacks     times that it was given back before
    span      milliseconds: that it waited, for DELIVER; that the consumer had it, for ACK; -1 = not known
    who       the client that made it happen, or the id of the node; None = time did
    word      why, as docs/reference/event-log.md has it; empty = as the kind says
    failure   why a try failed, as the consumer or the node says; empty = none was given

Each of the three that are told of every job has a method of its own, as do the moments that they share; `tell` is for
all else.

`State.trail` is None while nobody wants to hear, so that each place where something happens costs one comparison;
`State.endings` is the same trail, or one where only endings are wanted.
"""

from collections.abc import Callable
from typing import Final

from disqued.core.model.job import Job
from disqued.core.model.outbox import GONE_DELETED, GONE_EVICTED, GONE_EXPIRED, GONE_REFUSED, Client

ADD: Final = 0
REPLICATE: Final = 1
ENQUEUE: Final = 2
DELIVER: Final = 3
WORKING: Final = 4
NACK: Final = 5
REQUEUE: Final = 6
ACK: Final = 7
EXPIRE: Final = 8
DELETE: Final = 9
EVICT: Final = 10
LEAVE: Final = 11
REFUSE: Final = 12
FLUSH: Final = 13
START: Final = 14
STOP: Final = 15
CLOCK: Final = 16
DEAD: Final = 17
REDRIVEN: Final = 18
CANCELLED: Final = 19

#: Names of the kinds, as readers of the event log know them.
NAMES: Final = (
    b"add", b"replicate", b"enqueue", b"deliver", b"working", b"nack", b"requeue", b"ack", b"expire", b"delete",
    b"evict", b"leave", b"refuse", b"flush", b"start", b"stop", b"clock", b"dead", b"redriven", b"cancelled",
)  # fmt: skip

#: What a job is gone for, as a kind of its own.
OF_REASON: Final = {GONE_EXPIRED: EXPIRE, GONE_DELETED: DELETE, GONE_EVICTED: EVICT, GONE_REFUSED: REFUSE}

# Words.
FAST: Final = b"fast"  #: an ack by FASTACK
UNKNOWN: Final = b"unknown"  #: an ack of a job that this node does not know
FAST_UNKNOWN: Final = b"fast-unknown"  #: the same by FASTACK
PEER: Final = b"peer"  #: what another node says: an ack, a death, a redrive, a cancellation
ONCE: Final = b"once"  #: a delivery after which nobody gets it again, acknowledged or not
RECOVERED: Final = b"recovered"  #: a delivery of what another consumer had (RQ.RECOVER)
ASKED: Final = b"asked"  #: queued since a client said so
UNSEEN: Final = b"unseen"  #: queued again since its consumer was gone before it had it: a delivery that was none
ELSEWHERE: Final = b"elsewhere"  #: an addition of which other nodes alone have copies
NOREPL: Final = b"norepl"  #: refused for want of copies
RESET: Final = b"reset"  #: the end of a node's id, which has another one then
AHEAD: Final = b"ahead"  #: the wall clock was set forwards
BACK: Final = b"back"  #: the wall clock was set back
MISCONF: Final = b"misconf"  #: refused since it could not be journalled


#: Milliseconds by which the wall clock must have moved away from the monotonic one to have been set.
SET_MS: Final = 1_000


class GroupNote:
    """What a group has of an event, when it was told of: a group may have begun anew before it becomes a line."""

    __slots__ = ("deliveries", "job", "nacks", "scope")

    def __init__(self, job: Job, scope: bytes) -> None:
        self.job: Job = job
        self.scope: bytes = scope
        self.deliveries: int = 0
        self.nacks: int = 0


class EventTrace:
    """Takes what happens on a node, in its order."""

    __slots__ = ()

    # Not an abstract class: it is compiled with the core, which calls its methods without looking for them.

    def act(self, wall: int, now: int, who: object) -> None:
        """What is added, delivered and acknowledged from here on happens then, on behalf of a client.

        `who` is None where time or another node makes it happen.
        """
        raise NotImplementedError

    def add(self, job: Job) -> None:
        """A job was added, and has what copies were wished for."""
        raise NotImplementedError

    def deliver(self, job: Job, waited_ms: int) -> None:
        """A job was delivered for the first time."""
        raise NotImplementedError

    def ack(self, job: Job, held_ms: int) -> None:
        """A job was acknowledged after its first delivery; `held_ms`: how long the consumer had it, -1 = not known."""
        raise NotImplementedError

    def tell(
        self, kind: int, wall: int, now: int, unit: object = None, *,
        attempt: int = 0, nacks: int = 0, span_ms: int = -1, who: object = None, word: bytes = b"",
        failure: bytes = b"",
    ) -> None:  # fmt: skip
        """Anything happened; the module says what these are."""
        raise NotImplementedError

    def become(self, wall: int, now: int, node_id: bytes) -> None:
        """The node has another id: what follows is another node's."""
        raise NotImplementedError

    def is_news(self) -> bool:
        """Tell at the end of a step whether somebody should come for what is there."""
        raise NotImplementedError


class EventTraces:
    """Who takes what happens on a node, and who makes it happen."""

    __slots__ = ("actor", "ahead_ms", "endings", "full")

    def __init__(self) -> None:
        self.full: EventTrace | None = None  #: takes everything, for the event log; None = nobody wants it
        self.endings: EventTrace | None = None  #: the same, or one that takes how jobs end
        #: Who makes this step happen: a client, whom its connection names, or the id of a node; None = time does.
        self.actor: Client | None = None
        #: What the wall clock was ahead of the monotonic one when it was looked at last.
        self.ahead_ms: int = 0

    def note_clock(self, wall: int, now: int) -> None:
        """Note that the wall clock was set since the last look, if there was one: spans across it are not known."""
        before_ms, self.ahead_ms = self.ahead_ms, wall - now
        if self.full is not None and before_ms:
            self.full.tell(CLOCK, wall, now, word=AHEAD if self.ahead_ms > before_ms else BACK)


#: Something that happened: tells a trace of it.
Note = Callable[[EventTrace], None]


class Notes(EventTrace):
    """What happens while nothing is ready to take it: kept until it can be told again."""

    __slots__ = ("_became", "_kept", "_last_is_moment", "count", "limit", "lost", "node_id", "wall")

    def __init__(self, node_id: bytes, wall: int, limit: int) -> None:
        """Begin at this time; more than `limit` notes are lost, all that there are at a time: moments do not count."""
        self.node_id: bytes = node_id  #: of the node at the beginning
        self.wall: int = wall  #: of the beginning, unix milliseconds
        self.limit: int = limit
        self.lost: int = 0  #: of what would have become a line
        self.count: int = 0  #: notes that are kept, moments aside
        self._kept: list[Note] = []
        self._last_is_moment = False
        self._became: list[Note] = []  #: those of them that give the node another id

    def _keep(self, note: Note) -> None:
        self._kept.append(note)
        self._last_is_moment = False
        self.count += 1
        if self.count > self.limit:
            self.lose()

    def act(self, wall: int, now: int, who: object) -> None:
        if self._last_is_moment:
            self._kept.pop()  # nothing happened then
        self._kept.append(lambda trace: trace.act(wall, now, who))
        self._last_is_moment = True

    def add(self, job: Job) -> None:
        self._keep(lambda trace: trace.add(job))

    def deliver(self, job: Job, waited_ms: int) -> None:
        self._keep(lambda trace: trace.deliver(job, waited_ms))

    def ack(self, job: Job, held_ms: int) -> None:
        self._keep(lambda trace: trace.ack(job, held_ms))

    def tell(
        self, kind: int, wall: int, now: int, unit: object = None, *,
        attempt: int = 0, nacks: int = 0, span_ms: int = -1, who: object = None, word: bytes = b"",
        failure: bytes = b"",
    ) -> None:  # fmt: skip
        self._keep(
            lambda trace: trace.tell(
                kind,
                wall,
                now,
                unit,
                attempt=attempt,
                nacks=nacks,
                span_ms=span_ms,
                who=who,
                word=word,
                failure=failure,
            )
        )

    def become(self, wall: int, now: int, node_id: bytes) -> None:
        note: Note = lambda trace: trace.become(wall, now, node_id)  # noqa: E731 - it has to be kept twice
        self._became.append(note)
        self._keep(note)

    def is_news(self) -> bool:
        """Nobody can come for it yet."""
        return False

    def lose(self) -> None:
        """Let go of what is kept, and count it; but not of the id that the node has."""
        self.lost += self.count - len(self._became)
        self._became = self._became[-1:]
        self._kept = list(self._became)
        self._last_is_moment = False
        self.count = len(self._kept)

    def retell(self, trace: EventTrace) -> None:
        """Tell another trace what is kept, in its order."""
        for note in self._kept:
            note(trace)
