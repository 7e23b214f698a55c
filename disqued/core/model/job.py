"""Jobs, and the units of them that are delivered.

A *job* is immutable: a body, a queue, and how it wants to be treated (`JobOptions`).  What is queued, leased, retried
and acknowledged is a *unit*: (job id, scope).  A work job has the one scope ``b""`` and is its own only unit, so that
it costs no second object.  A job of a log has one unit per consumer group that touched it.

Its state changes as `TRANSITIONS` says, and in no other way.  A job is forgotten from any state: its time is over,
DELJOB or FASTACK drops it, everything is flushed, or every holder knows that it is done.

Times are integer milliseconds of the monotonic clock (`..._at`, `..._ms`), except `ctime`.
Source: Disque, src/job.c, and its README's state machine.
"""

from enum import IntEnum
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

from disqued.core.model.fate import NO_FATE, Fate, cost_of_fate, is_undone
from disqued.core.model.schedule import Timed
from disqued.core.model.terms import NO_TERMS, Terms, cost_of_terms, schedule_of, trace_id_of

WORK_SCOPE: Final = b""  #: the scope of a job that is gone once it is acknowledged

KIND_WORK: Final = 0  #: gone once it is acknowledged
KIND_LOG: Final = 1  #: kept until its time is over, and given to every consumer group
KIND_NAMES = {KIND_WORK: b"work", KIND_LOG: b"log"}

#: Retry period of a job that no timer queues again: longer than any job lives.  Consumers may still ask for it again,
#: so it is no at-most-once job and may have many copies.
RETRY_NEVER_MS: Final = (1 << 32) * 1_000
ORPHAN_MS: Final = 60_000  #: after which a holder of such a job asks whether anybody still has it in a queue
ALIAS_MAX: Final = 65_535  #: bytes of an alias
#: Highest `ctime`, and highest absolute order key, of a job that is read: the end of the year 2261.
STAMP_MAX: Final = (1 << 63) - (1 << 53)
#: Highest stamp that a node continues from, whatever it has read, so that its own next stamps can be read, too.
STAMP_LAST: Final = STAMP_MAX - (1 << 53)


class JobState(IntEnum):
    """Where a unit stands on this node.  The numbers are those of Disque's records."""

    WAIT_REPL = 0  #: created here, fewer copies than asked so far
    ACTIVE = 1  #: known here, not in the queue: delayed, delivered, or queued elsewhere
    QUEUED = 2  #: waiting in the queue of this node
    ACKED = 3  #: done; kept until every holder knows
    DEAD = 4  #: failed too often, or was buried; never delivered again before REDRIVE


STATE_NAMES: dict[int, bytes] = {
    JobState.WAIT_REPL: b"wait-repl",
    JobState.ACTIVE: b"active",
    JobState.QUEUED: b"queued",
    JobState.ACKED: b"acked",
    JobState.DEAD: b"dead",
}

# The states again as plain numbers: an attribute of an enumeration costs 20 times a global.
WAIT_REPL: Final = 0
ACTIVE: Final = 1
QUEUED: Final = 2
ACKED: Final = 3
DEAD: Final = 4

#: The states of jobs that are not done, as bits.
ALL_STATES: Final = 1 << WAIT_REPL | 1 << ACTIVE | 1 << QUEUED | 1 << DEAD

#: The allowed changes of state, and what causes each.  New units are active.  Forgetting a job is no transition.
TRANSITIONS: Final[dict[tuple[int, int], str]] = {
    (ACTIVE, WAIT_REPL): "ADDJOB: its producer waits for copies",
    (WAIT_REPL, ACTIVE): "enough copies, or another node says that it is done",
    (ACTIVE, ACTIVE): "ADDJOB with a delay; another consumer has it, on another node",
    (ACTIVE, QUEUED): "ADDJOB; the delay or the retry period is over; ENQUEUE, NACK",
    (QUEUED, ACTIVE): "GETJOB; DEQUEUE, WORKING; another node has it",
    (ACTIVE, ACKED): "ACKJOB, here or on another node",
    (QUEUED, ACKED): "ACKJOB, while it waits in a queue",
    (ACTIVE, DEAD): "its last try failed; NACK DEAD; another node says so",
    (QUEUED, DEAD): "another node says so",
    (DEAD, ACTIVE): "REDRIVE, here or on another node",
    (DEAD, ACKED): "ACKJOB, CANCEL, QPURGE",
}


def _ways_into(after: int) -> tuple[bool, ...]:
    return tuple((before, after) in TRANSITIONS for before in sorted(STATE_NAMES))


# By the state before, whether `TRANSITIONS` has the change: `assert INTO_...[unit.state]` stands before each change of
# state.  Look-ups, not a function: the path of a job has no call to spare.
INTO_WAIT_REPL: Final = _ways_into(WAIT_REPL)
INTO_ACTIVE: Final = _ways_into(ACTIVE)
INTO_QUEUED: Final = _ways_into(QUEUED)
INTO_ACKED: Final = _ways_into(ACKED)
INTO_DEAD: Final = _ways_into(DEAD)


def forbidden(before: int, after: int) -> str:
    """Text of the error for a change of state that `TRANSITIONS` does not have."""
    names = [STATE_NAMES[state].decode("ascii") for state in (before, after)]
    return f"a unit that is {names[0]} cannot become {names[1]}"


FLAG_QUEUED_BEFORE: Final = 1  #: queued at least once: the next queueing is a redelivery, and is announced
FLAG_DELIVERED: Final = 2  #: handed to a consumer by this node at least once
FLAG_PUT_OFF: Final = 4  #: a NACK put it off until `requeue_at`; that it is queued then was counted already
#: No consumer has had it since a try was last counted: that it is queued counts nothing.  In memory, of a job that is
#: out of its queue: DEQUEUE took it out, or it waited there when the node crashed.  In a record: `flags_to_keep`.
FLAG_TAKEN_OUT: Final = 8
#: Stored flags; the others hold for this process alone.
KEPT_FLAGS: Final = FLAG_QUEUED_BEFORE | FLAG_DELIVERED | FLAG_PUT_OFF
KNOWN_FLAGS: Final = KEPT_FLAGS | FLAG_TAKEN_OUT  #: the last one of jobs with terms or a fate alone
COPIED_FLAGS: Final = FLAG_QUEUED_BEFORE | FLAG_PUT_OFF  #: flags in a copy for another node
FLAG_LEASED: Final = 8192  #: a consumer has it from this node, until `requeue_at`, as far as this node knows
FLAG_CAME_BACK: Final = 32  #: loaded from a store, which does not know of moves: more nodes may hold it than it says
FLAG_ELSEWHERE: Final = 64  #: a consumer has it from another node, as far as this node knows; see `Queue.elsewhere`
FLAG_GIVEN_UP: Final = 16  #: its producer received NOREPL: a copy that has not been sent yet need not be sent
FLAG_ASKING: Final = 16384  #: others are asked whether it may be queued, since `requeue_at`: `Custody.asking`
FLAG_HELD_ELSEWHERE: Final = 256  #: a worker of another node has it, as far as this node knows: `Custody.elsewhere`
FLAG_PROMISED: Final = 512  #: a producer received its id for a key: kept even if its first producer gave it up
FLAG_DROPPED: Final = 128  #: its queue was deleted, or it was cancelled: it ends instead of being queued again
FLAG_GIVEN: Final = 2048  #: on its way to another node, which may not have it yet
FLAG_COPY: Final = 1024  #: received from another node, whose message may come twice: its end is remembered
#: Its end was heard with a word about its last try: untried with FLAG_TAKEN_OUT, else a consumer has had it.
FLAG_TRY_TOLD: Final = 32768
#: Another node has ended it as cancelled, and counts it; this one has yet to hear SETACK, or to end it itself.
FLAG_ENDED_ELSEWHERE: Final = 65536
FLAG_DOUBTED: Final = 4096  #: taken out of its queue until the other holders confirm that they have not queued it
FLAG_WITH_CONSUMER: Final = FLAG_LEASED | FLAG_ELSEWHERE | FLAG_HELD_ELSEWHERE

#: Flags of a job that is done, about the try that no counter has: `last_try`.  A copy takes WAS_TRIED as PERHAPS_TRIED.
UNTRIED: Final = 0  #: nobody has had it since a try was last counted
PERHAPS_TRIED: Final = FLAG_QUEUED_BEFORE  #: no node that was heard knows
WAS_TRIED: Final = FLAG_QUEUED_BEFORE | FLAG_DELIVERED

UNIQUE: Final = b"u"  #: first byte of the alias of a unique task
KEYED: Final = b"k"  #: first byte of the alias of a job with a key


class JobOptions:
    """The options of a job; jobs with equal options share one object, except for those with headers or a fate.

    The deadlines of a job depend on its options and on the millisecond in which it is added, so they are kept here
    for that millisecond (`stamp`): jobs added within it share the integers too.
    """

    __slots__ = (
        "cost", "delay_ms", "expires_at", "fate", "first_at", "has_short_lines", "is_listed", "is_rare", "kind",
        "notes_deliveries", "probe_ms", "replicate", "requeue_at", "retry_ms", "stamped_at", "terms", "ttl_ms",
        "ttl_suffix",
    )  # fmt: skip

    def __init__(
        self, *, ttl_ms: int, retry_ms: int, delay_ms: int, replicate: int, kind: int = KIND_WORK,
        terms: Terms = NO_TERMS, fate: Fate = NO_FATE,
    ) -> None:  # fmt: skip
        self.ttl_ms: int = ttl_ms  #: span from creation to the end of the job's life
        #: Span from delivery to requeue; 0 = deliver at most once, RETRY_NEVER_MS = only on request.
        self.retry_ms: int = retry_ms
        #: Span after which a holder asks about a job that another node has in its queue.
        self.probe_ms: int = ORPHAN_MS if retry_ms == RETRY_NEVER_MS else retry_ms
        self.delay_ms: int = delay_ms  #: span from creation to the first queueing
        self.replicate: int = replicate  #: copies required before the producer is answered
        self.kind: int = kind  #: KIND_...
        self.terms: Terms = terms
        self.fate: Fate = fate
        #: Whether records and copies of such a job say more than those of most jobs.
        self.is_rare: bool = kind != KIND_WORK or terms is not NO_TERMS or fate is not NO_FATE
        #: Whether the journal hears of each delivery: a restart counts the others for nothing, or no timer ends it.
        self.notes_deliveries: bool = self.is_rare or retry_ms == RETRY_NEVER_MS
        self.is_listed: bool = self.is_rare or delay_ms > 0  #: whether such a job may be in more tables than most
        #: Whether its lines in the event log say no more than those of most jobs.
        self.has_short_lines: bool = fate is NO_FATE and not (
            terms.group or (terms.headers and (schedule_of(terms.headers) or trace_id_of(terms.headers)))
        )
        self.cost: int = cost_of_terms(terms) + cost_of_fate(fate)  #: bytes that other jobs do not share
        #: End of the id of such a job: in minutes how long anything is known of it, four hex digits, and "SQ".
        self.ttl_suffix: bytes = b"%04xSQ" % min((ttl_ms + terms.stay_ms) // 60_000, 0xFFFF)
        self.stamped_at: int = -1
        self.expires_at: int = 0
        self.requeue_at: int = 0
        self.first_at: int = 0

    def stamp(self, now: int) -> None:
        """Work out the deadlines of a job that is added now."""
        self.stamped_at = now
        self.expires_at = now + self.ttl_ms
        if self.delay_ms:
            self.requeue_at = now + self.delay_ms
        elif self.retry_ms:
            self.requeue_at = now + self.retry_ms
        else:
            self.requeue_at = 0
        self.first_at = self.expires_at
        if 0 < self.requeue_at < self.expires_at:
            self.first_at = self.requeue_at


@mypyc_attr(acyclic=True)
class Unit(Timed):
    """What is queued, delivered, retried and acknowledged: (job id, scope)."""

    __slots__ = ("additional_deliveries", "flags", "nacks", "order_key", "requeue_at", "state")

    # Of the job, and so of each of its units.
    id: bytes  #: 48 bytes, or the 40 of a job that came from Disque 1.0
    queue: bytes  #: name; one object for all the jobs of a queue where possible
    body: bytes
    options: JobOptions

    state: int  #: a `JobState`
    #: Place in the queue: `ctime`; a negative stamp puts a unit in front of every other.
    order_key: int
    #: When this node queues the unit (again); 0 = never; may be over while it is queued.
    requeue_at: int
    flags: int  #: FLAG_... bits
    nacks: int  #: NACKs; best effort
    #: Times that it was queued again without a NACK; best effort.  One that is delivered at most once never is: of that
    #: it is how often it moved from node to node, by which a message that brings it again is told from a new move.
    additional_deliveries: int

    @property
    def redeliveries(self) -> int:
        """`additional_deliveries`, as consumers are told."""
        return self.additional_deliveries if self.options.retry_ms else 0

    @property
    def deliveries(self) -> int:
        """Times that it was handed to a consumer, the first one included; best effort."""
        return self.redeliveries + self.nacks + (self.flags & FLAG_WITH_CONSUMER != 0)

    # Not an abstract class: isinstance is asked for every deadline, and costs an abstract one five times as much.

    @property
    def job(self) -> "Job":
        """The job that this is a unit of; each kind of unit says so itself."""
        raise NotImplementedError

    @property
    def scope(self) -> bytes:
        """The consumer group that it is delivered to, empty for a work job; each kind of unit says so itself."""
        raise NotImplementedError


@mypyc_attr(acyclic=True)
class Job(Unit):
    """A job as one node holds it; a work job is its own unit, with the empty scope."""

    __slots__ = ("body", "confirmed", "ctime", "expires_at", "holders", "id", "options", "queue")

    def __init__(self, job_id: bytes, queue: bytes, body: bytes, ctime: int, options: JobOptions) -> None:
        self.id = job_id
        self.queue = queue
        self.body = body
        #: Creation: unix milliseconds times 1 000 000 plus a counter; strictly increasing per creating node.
        self.ctime: int = ctime
        self.options = options
        self.expires_at: int = options.expires_at
        #: Nodes that may hold a copy; None = this node alone.
        self.holders: frozenset[bytes] | None = None
        #: Nodes that confirmed: a copy while WAIT_REPL, the ack while ACKED; None = none.
        self.confirmed: frozenset[bytes] | None = None
        self.awake_at = 0
        self.state = ACTIVE
        self.order_key = ctime
        self.requeue_at = options.requeue_at
        self.flags = 0
        self.nacks = 0
        self.additional_deliveries = 0

    @property
    def is_dummy(self) -> bool:
        """True for a dummy ack: the node knows that the job is done, and nothing else of it."""
        return self.holders is not None and not self.holders

    @property
    def job(self) -> "Job":
        """The job itself."""
        return self

    @property
    def scope(self) -> bytes:
        """The one scope of a work job."""
        return WORK_SCOPE


@mypyc_attr(acyclic=True)
class NamedJob(Job):
    """A job with a name within its queue besides its id, such as an id chosen by its producer.

    The first byte of the alias says whose names these are, so that the names of one family of commands do not meet
    those of another.
    """

    __slots__ = ("alias",)

    def __init__(
        self, job_id: bytes, queue: bytes, body: bytes, ctime: int, options: JobOptions, *, alias: bytes
    ) -> None:
        super().__init__(job_id, queue, body, ctime, options)
        self.alias: bytes = alias


def attempt_of(unit: Unit) -> int:
    """The number of the delivery that a unit is in, or was in last: 1 is the first, whatever its generation."""
    return 1 + unit.nacks + unit.additional_deliveries + unit.options.fate.spent


def tries_of(unit: Unit) -> int:
    """Times that a unit was handed to a consumer, over all generations; best effort."""
    return max(unit.deliveries + unit.options.fate.spent, int(unit.flags & FLAG_DELIVERED != 0))


def last_try(job: Job, flags: int, *, is_heard: bool = False) -> int:
    """Return whether a consumer has had a job that ends now since a try was last counted, as far as this node knows.

    UNTRIED, PERHAPS_TRIED or WAS_TRIED.  `flags`: those of the job, before its lease ended.  `is_heard`: another node
    ends it.  Unless the job has RESULT that node says nothing of the last try, and may have had it in its queue, too.
    """
    if flags & FLAG_WITH_CONSUMER or flags & (FLAG_TRY_TOLD | FLAG_TAKEN_OUT) == FLAG_TRY_TOLD:
        return WAS_TRIED
    if job.state == QUEUED:
        return PERHAPS_TRIED if is_heard and not job.options.terms.keep_result_ms else UNTRIED
    if job.state in (WAIT_REPL, DEAD) or flags & (FLAG_TAKEN_OUT | FLAG_PUT_OFF):
        return UNTRIED
    return PERHAPS_TRIED if flags & FLAG_QUEUED_BEFORE or not job.options.delay_ms else UNTRIED


def tries_at_end(job: Job, flags: int) -> int:
    """Return `tries_of` a job that is done, or that this node drops as done.

    A try that nobody is known to have had counts if somebody acknowledged the job: nearly always it was its consumer.
    `flags`: those of the job, before its lease ended.
    """
    if job.state != ACKED:
        last = last_try(job, flags)
    elif job.is_dummy:
        last = UNTRIED  # the holders know more
    else:
        last = flags & WAS_TRIED if job.options.is_rare else PERHAPS_TRIED
    fate = job.options.fate
    if last == PERHAPS_TRIED and is_undone(fate):
        last = UNTRIED
    return job.redeliveries + job.nacks + fate.spent + (last != UNTRIED)


def flags_to_keep(job: Job) -> int:
    """Return the stored flags of a job that has terms or a fate: whether it waits for a consumer is one of them.

    The node that has such a job in its queue knows that nobody has had it, and knows so after a crash.
    """
    flags = job.flags & KNOWN_FLAGS
    return flags | FLAG_TAKEN_OUT if job.state in (QUEUED, WAIT_REPL) else flags


def process_of(unit: Unit) -> bytes:
    """The id of a process: a unit in the hands of its current consumer."""
    return b"%b:%d" % (unit.id, attempt_of(unit))


def misfit(ctime: int, order_key: int, ttl_ms: int, retry_ms: int, delay_ms: int) -> str:
    """Say which numbers of a job no node has written and none could go on with; empty = they are sound."""
    if not 0 <= ctime <= STAMP_MAX >= order_key >= -STAMP_MAX:
        return f"a job of time {ctime} and order {order_key}; allowed is up to {STAMP_MAX}"
    longest_ms = max(ttl_ms, retry_ms, delay_ms)
    if longest_ms > RETRY_NEVER_MS:
        return f"a job with a span of {longest_ms} ms; allowed is up to {RETRY_NEVER_MS}"
    return ""


class StoredJob(NamedTuple):
    """A job as it was written down, or as another node sent it: then deadlines are what is left of them."""

    id: bytes
    queue: bytes
    body: bytes
    state: int  #: a `JobState`; ACTIVE where the writer did not say
    flags: int  #: FLAG_... bits
    replicate: int
    holders: frozenset[bytes] | None  #: as in `Job.holders`
    ctime: int
    expires: int  #: `Job.expires_at`, on the wall clock
    requeue: int  #: `Unit.requeue_at`, on the wall clock; 0 = never
    ttl_ms: int
    retry_ms: int
    delay_ms: int
    nacks: int
    additional_deliveries: int
    order_key: int
    kind: int = KIND_WORK
    alias: bytes = b""  #: as in `NamedJob.alias`; empty = it has none
    terms: Terms = NO_TERMS
    fate: Fate = NO_FATE
