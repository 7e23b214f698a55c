"""The messages between nodes.

A message is a plain tuple whose first element is its kind.  It is addressed to a node and leaves on the link to that
node; without a link it is dropped.  Any message may be lost, duplicated or delayed: the machines send it again until it
is answered, unless no promise depends on it.  A unit is named by (job id, scope).

Each kind is declared once, below: its number, its name, its fields and what it says.  Names in error texts, counters
and the page docs/reference/bus.md are derived from that, and `wire.messages` has a form for each kind.

The sender passes a `Job` and may go on changing it: it is encoded when it leaves.  The receiver gets a `StoredJob`,
whose deadlines are the milliseconds that are left, so that no two clocks are compared.  Sets of node ids are frozensets
of 40 hex digits each.

Source: Disque, src/cluster.h; the Disque README, "Cluster bus messages and related semantics".
"""

from typing import Final, NamedTuple

from disqued.core.model.fate import Fate

#: Its kind, and the fields that the kind has.
Message = tuple[int, *tuple[object, ...]]


class MessageKind(NamedTuple):
    """The declaration of one kind of message."""

    number: int  #: first byte of the message
    name: str
    topic: str
    fields: str  #: elements of the tuple behind the number
    meaning: str
    durable: bool  #: promises that something is durable, or asks for that
    urgent: bool  #: says who is alive


_declared: Final[dict[int, MessageKind]] = {}


def _kind(
    topic: str, number: int, name: str, fields: str, meaning: str, *, durable: bool = False, urgent: bool = False
) -> int:
    """Declare a kind; returns its number."""
    assert number not in _declared
    _declared[number] = MessageKind(number, name, topic, fields, meaning, durable, urgent)
    return number


PING: Final[int] = _kind(
    "membership", 0, "PING", "flags, rumours",
    "I am alive, and what I say of other nodes: a tuple of `Gossip`.", urgent=True,
)  # fmt: skip
PONG: Final[int] = _kind("membership", 1, "PONG", "flags, rumours", "The answer to PING.", urgent=True)
FAIL: Final[int] = _kind(
    "membership", 2, "FAIL", "node id",
    "The majority agrees that this node has failed.", urgent=True,
)  # fmt: skip
VITALS: Final[int] = _kind("membership", 17, "VITALS", "`Vitals`", "How much I hold and do; with each PONG.")

REPLJOB: Final[int] = _kind(
    "copies", 3, "REPLJOB", "job, quiet",
    "Keep a copy, and answer GOTJOB unless quiet.", durable=True,
)  # fmt: skip
GOTJOB: Final[int] = _kind("copies", 4, "GOTJOB", "job id", "I keep a copy.", durable=True)
HOLDERS: Final[int] = _kind(
    "copies", 5, "HOLDERS", "job id, node ids",
    "These nodes may hold the job, too. Without the receiver among them: I do not have it, queue it. Empty, to "
    "a node whose producer waits: I keep no copy, as the queue is paused here.",
)  # fmt: skip
ENQUEUE: Final[int] = _kind("copies", 6, "ENQUEUE", "job id, scope, delay ms", "Queue it for the first time.")

WILLQUEUE: Final[int] = _kind(
    "delivery", 7, "WILLQUEUE", "job id, scope",
    "I am about to queue it, unless somebody knows better.",
)  # fmt: skip
QUEUED: Final[int] = _kind(
    "delivery", 8, "QUEUED", "job id, scope, how",
    "It waits in my queue; how is AS_BEFORE, AFTER_NACK, AGAIN, ASKED or RETURNED.",
)  # fmt: skip
CATCH_UP: Final[int] = _kind(
    "delivery", 54, "CATCH_UP", "number",
    "Answer as soon as you have dealt with what I said before.",
)  # fmt: skip
CAUGHT_UP: Final[int] = _kind("delivery", 55, "CAUGHT_UP", "number", "The answer to CATCH_UP.")
WORKING: Final[int] = _kind("delivery", 9, "WORKING", "job id, scope, left ms", "A consumer has it for so long.")
DELIVERED: Final[int] = _kind(
    "delivery", 23, "DELIVERED", "job id, scope, left ms, elapsed ms, deliveries",
    "A consumer has it and no timer takes it back: the time left, the time since its delivery, the delivery "
    "count.",
)  # fmt: skip
CLAIM: Final[int] = _kind(
    "delivery", 24, "CLAIM", "queue, number, count, elapsed ms, worker",
    "Give me up to count jobs that your consumers have had for so long; to this worker of mine, unless it is "
    "empty (HANDOVER).",
)  # fmt: skip
CLAIMED: Final[int] = _kind(
    "delivery", 25, "CLAIMED", "number, jobs",
    "The answer to CLAIM: these are with your consumers now.",
)  # fmt: skip

SETACK: Final[int] = _kind(
    "acknowledgements", 10, "SETACK", "job id, scope, last, node ids",
    "It is acknowledged, and these nodes may hold it; empty: I do not know which. last: all of them know, "
    "except for you. The scope tells which result I know, or that it was cancelled (`fate.mark_of`).",
)  # fmt: skip
GOTACK: Final[int] = _kind(
    "acknowledgements", 11, "GOTACK", "job id, scope, known, node ids",
    "I know that it is acknowledged; whether I hold it, and who may.", durable=True,
)  # fmt: skip
DELJOB: Final[int] = _kind("acknowledgements", 12, "DELJOB", "job id", "Every holder knows: forget it.")

FATE: Final[int] = _kind(
    "acknowledgements", 39, "FATE", "job id, left ms, nacks, additional deliveries, fate",
    "What became of it, as far as I know: a `Fate`, and its counters. With time left, I queue it then, and not "
    "before. 1: nobody has had it since a try was last counted; 2: somebody has; 4 more, or alone: I have ended it.",
    durable=True,
)  # fmt: skip

REDRIVE: Final[int] = _kind(
    "dead letters", 40, "REDRIVE", "queue, number, first, count, last, job ids",
    "Queue up to count dead jobs of the queue again, of these ids if there are any, of which you are the first holder; "
    "last: whoever is. first is the same for all questions of a round.",
)  # fmt: skip
REDRIVEN: Final[int] = _kind(
    "dead letters", 43, "REDRIVEN", "number, count, rest",
    "The answer to REDRIVE: so many were queued; there are no more, or more, or those that I left to other holders.",
    durable=True,
)  # fmt: skip

WATCH: Final[int] = _kind(
    "results", 44, "WATCH", "number, job ids",
    "Tell me how these stand, and when they are over: a client of mine waits for them. Said again as long as it does.",
)  # fmt: skip
OUTCOME: Final[int] = _kind(
    "results", 45, "OUTCOME", "number, outcomes",
    "How these jobs stand here, a tuple of `Outcome`: the answer to WATCH, and with the number 0 what has changed "
    "since.", durable=True,
)  # fmt: skip
CANCEL: Final[int] = _kind("results", 46, "CANCEL", "number, job ids", "Cancel these, and say what became of that.")
CANCELLED: Final[int] = _kind(
    "results", 47, "CANCELLED", "number, states",
    "The answer to CANCEL: (job id, how it stands now) for each, in order.", durable=True,
)  # fmt: skip

NEEDJOBS: Final[int] = _kind(
    "federation", 13, "NEEDJOBS", "queue, count",
    "My waiting consumers can take so many jobs; 0 takes that back.",
)  # fmt: skip
POLLJOBS: Final[int] = _kind(
    "federation", 16, "POLLJOBS", "queue, count",
    "The same for consumers that poll and do not wait.",
)  # fmt: skip
NEEDOTHERS: Final[int] = _kind(
    "federation", 56, "NEEDOTHERS", "queue, count, waits, groups",
    "The same, with waits as NEEDJOBS, without as POLLJOBS; but jobs of these groups have to wait here already.",
)  # fmt: skip
YOURJOBS: Final[int] = _kind(
    "federation", 14, "YOURJOBS", "jobs, queued",
    "Take these over: into the queue, or with their timers.",
)  # fmt: skip

PAUSE: Final[int] = _kind(
    "queues", 15, "PAUSE", "queue, bits",
    "Pause the queue on your node alone as the PAUSE_... bits say. Sent by older versions; see POLICY.",
)  # fmt: skip
POLICY: Final[int] = _kind(
    "queues", 38, "POLICY", "number, `Policy`s",
    "What the cluster says of these queues, as far as I know. The answer has the same number and no policies.",
)  # fmt: skip
SLOTS_WANTED: Final[int] = _kind(
    "limits", 48, "SLOTS_WANTED", "queue, epoch, boot, number, whole, wanted, running, ended, returned",
    "To the steward of the queue: my consumers wait for these jobs (`SlotWish`), have these (`SlotSpan`), are done "
    "with the ones of these ids, and were not given those after all. epoch: of the steward that I follow; whole: that "
    "is all that I know of.",
)  # fmt: skip
SLOTS_GIVEN: Final[int] = _kind(
    "limits", 49, "SLOTS_GIVEN", "queue, epoch, boot, number, given, waiting, held",
    "Of the steward: hand out the jobs of these ids; those have to wait; these have to as well, but only for a slot or "
    "a token of their group. number: of your last word that I know.",
)  # fmt: skip
SLOTS_KEEP: Final[int] = _kind(
    "limits", 50, "SLOTS_KEEP", "queue, epoch, after, number, taken, ended",
    "Of the steward: remember these `SlotSpan`s, and forget those of these ids; after: the number of the change "
    "before, 0 = these are all.",
)  # fmt: skip
SLOTS_KEPT: Final[int] = _kind(
    "limits", 51, "SLOTS_KEPT", "queue, epoch, steward, number",
    "The answer to SLOTS_KEEP: I follow this steward, and have its changes up to the number.",
)  # fmt: skip
SLOTS_CLAIM: Final[int] = _kind(
    "limits", 52, "SLOTS_CLAIM", "queue, epoch",
    "I am the steward of the queue from now on: tell me what you know, and follow nobody before me.",
)  # fmt: skip
SLOTS_CLAIMED: Final[int] = _kind(
    "limits", 53, "SLOTS_CLAIMED", "queue, epoch, steward, `SlotsKnown`, running",
    "The answer to SLOTS_CLAIM: I follow this steward; what I remember, and what consumers of mine have (`SlotSpan`).",
)  # fmt: skip

ASK: Final[int] = _kind(
    "questions", 57, "ASK", "number, words",
    "What does this command, which only reads, answer on your node?",
)  # fmt: skip
TOLD: Final[int] = _kind(
    "questions", 58, "TOLD", "number, failed, value",
    "The answer to ASK: the value that the command returns; failed: the line of its error.",
)  # fmt: skip
FLUSH: Final[int] = _kind("queues", 26, "FLUSH", "queue, 0", "Everything that you have of this queue is done.")
PURGE: Final[int] = _kind(
    "queues", 41, "PURGE", "queue, number, states, first",
    "End your jobs of this queue in these states, a bit for each, or count them. first: 0, or the number of the first "
    "round: end what was left to other nodes then.",
)  # fmt: skip
PURGED: Final[int] = _kind(
    "queues", 42, "PURGED", "number, count, over",
    "The answer to PURGE: so many jobs have ended, and whether that is all.",
)  # fmt: skip

FACTS: Final[int] = _kind(
    "streams", 27, "FACTS", "number, facts, last",
    "My acknowledgement sets of these events, a tuple of `EntryStatus`. last: and of all others that you may hold.",
)  # fmt: skip
MISSING: Final[int] = _kind("streams", 28, "MISSING", "number, job ids", "The answer to FACTS: I hold none of these.")
BEGIN: Final[int] = _kind(
    "streams", 29, "BEGIN", "queue, scope, floor, left ms, asks",
    "Where a group starts, to be remembered for so long; with the empty scope, up to where the stream was "
    "flushed. asks: and after everything that you made, too. With no time left the group is forgotten, or, with "
    "asks, do you need it?",
)  # fmt: skip
WANT: Final[int] = _kind(
    "streams", 30, "WANT", "queue, group, whether",
    "Tell me whether, and when, my consumers could have an event for this group; or stop that.",
)  # fmt: skip
HAVE: Final[int] = _kind(
    "streams", 31, "HAVE", "queue, group, whether",
    "The answer to WANT: they could, or could not.",
)  # fmt: skip
TAKE: Final[int] = _kind(
    "streams", 32, "TAKE", "queue, group, number, count, lease ms, strict",
    "Give my consumers some events.",
)  # fmt: skip
GIVE: Final[int] = _kind(
    "streams", 33, "GIVE", "number, scope, events",
    "The answer to TAKE: a tuple of (job id, body).", durable=True,
)  # fmt: skip
SETTLE: Final[int] = _kind(
    "streams", 34, "SETTLE", "queue, group, number, verb, job ids",
    "A consumer is done with these (ACK), gives them back (RETURN) or never saw them (UNSEEN).",
)  # fmt: skip
SETTLED: Final[int] = _kind(
    "streams", 35, "SETTLED", "number, outcomes",
    "The answer to SETTLE: a tuple of (job id, OUTCOME_...).", durable=True,
)  # fmt: skip

INQUIRE: Final[int] = _kind(
    "names", 36, "INQUIRE", "queue, number, verb, aliases",
    "Which of these names do you have? The verb says what to do with their jobs.",
)  # fmt: skip
FOUND: Final[int] = _kind(
    "names", 37, "FOUND", "number, what",
    "The answer to INQUIRE: (how its job stands, job id) for each name, in order.", durable=True,
)  # fmt: skip

LIVES: Final[int] = _kind(
    "workers", 18, "LIVES", "`WorkerStatus`s",
    "Which workers of mine are alive, and which no longer are.",
)  # fmt: skip
LEASED: Final[int] = _kind(
    "workers", 19, "LEASED", "worker, epoch, ttl ms, `Held`s",
    "A worker of mine has these units.",
)  # fmt: skip
HANDOVER: Final[int] = _kind(
    "workers", 20, "HANDOVER", "worker, epoch, name, queues, `Held`s, last",
    "A worker that is yours now had these units.",
)  # fmt: skip

LISTEN: Final[int] = _kind("events", 21, "LISTEN", "whether", "My clients want to hear of events, or no longer do.")
EVENT: Final[int] = _kind("events", 22, "EVENT", "queue, type, content", "Something happened; sent at most once.")

#: Every kind, by its number.
KINDS: Final[tuple[MessageKind, ...]] = tuple(_declared[number] for number in sorted(_declared))
NAMES: Final[dict[int, str]] = {kind.number: kind.name for kind in KINDS}
#: Kinds that promise that something is durable, or ask for that: they wait while nothing can be made durable.
DURABLE_ALONE: Final[frozenset[int]] = frozenset(kind.number for kind in KINDS if kind.durable)
#: Kinds that say who is alive: they go ahead of everything else on a link.
URGENT: Final[frozenset[int]] = frozenset(kind.number for kind in KINDS if kind.urgent)

# How a job came into the queue: QUEUED.
AS_BEFORE: Final = 0  #: it was there already, or it is there for the first time
AFTER_NACK: Final = 1
AGAIN: Final = 2  #: its consumer did not acknowledge it in time
ASKED: Final = 3  #: as AGAIN, but somebody asked for it: no consumer that has it keeps it back
RETURNED: Final = 4  #: its consumer has not begun it, and gave it back: it counts nothing

# What is to become of events that consumers have: SETTLE.
ACK: Final = 0  #: they are done with them
RETURN: Final = 1  #: they give them back
UNSEEN: Final = 2  #: they never had them; nobody answers

# What became of one: SETTLED.
OUTCOME_REFUSED: Final = 0  #: nothing was changed
OUTCOME_DONE: Final = 1
OUTCOME_UNKNOWN: Final = 2  #: this node does not hold the event
OUTCOME_LATER: Final = 3  #: it does, and another one hands it out, or it is not known yet who does

DRY: Final = 1 << 7  #: along with the states of PURGE: count the jobs, and end none

# What is left of the dead jobs: REDRIVEN.
REDRIVE_ENDED: Final = 0
REDRIVE_GOES_ON: Final = 1
OWNED_ELSEWHERE: Final = 2

# What is to be done with names: INQUIRE.
HAS: Final = 0  #: say whether a job of the queue has the name
HAS_ANYWHERE: Final = 1  #: the same, of a unique task of any queue
ACK_EVERY: Final = 2  #: acknowledge all jobs that have it
ACK_ONE: Final = 3  #: acknowledge one job that has it and that a consumer has
HAS_KEY: Final = 4  #: as HAS, of the key of a job; who holds a copy says that it is one
KEEP: Final = 5  #: the names are job ids that a producer hears: keep your copies, whoever gives them up

# How a job stands, as far as a node knows: OUTCOME, CANCELLED, and FOUND of the job of a name. Where nodes say
# different things, the higher number counts.
NOT_KNOWN: Final = 0
GONE: Final = 1  #: it was here: deleted from this node alone, or refused; another node may have it
UNDER_WAY: Final = 2  #: it has just left for another node
A_COPY: Final = 3  #: it is here, and came from another node, which knows whether it was given up
SOON: Final = 4  #: this node is about to add it
PENDING: Final = 5  #: it is here, and not over
IS_DEAD: Final = 6
# It has ended, and more is not remembered:
ENDED_DEAD: Final = 7  #: it was dead until its time was over
ENDED_EXPIRED: Final = 8
ENDED: Final = 9  #: it was acknowledged, or was given up
ENDED_CANCELLED: Final = 10
# It has ended, as this node saw or as it keeps:
EXPIRED: Final = 11
WAS_CANCELLED: Final = 12
WAS_ACKED: Final = 13

#: Jobs that one SLOTS_WANTED waits for; slots that the steward of a queue counts at most.
WISHES_PER_MESSAGE: Final = 1_000
SLOTS_MAX: Final = 50_000
#: Job ids that one WATCH or CANCEL names; outcomes that one OUTCOME tells of.
IDS_PER_MESSAGE: Final = 200
#: Jobs that one NEEDJOBS or POLLJOBS may ask for, and one YOURJOBS bring; events that one TAKE may ask for.
JOBS_PER_MESSAGE: Final = 100
GROUPS_PER_MESSAGE: Final = 100  #: groups that one NEEDOTHERS names
FACTS_PER_MESSAGE: Final = 200
POLICIES_PER_MESSAGE: Final = 100
#: Workers that one LIVES tells of, at most.
WORKERS_PER_MESSAGE: Final = 200
WORKER_NAME_MAX: Final = 1_024  #: bytes of the id of a worker, and of its name

# What a node says of itself in PING and PONG, and of others in rumours.
NODE_LEAVING: Final = 1
NODE_PFAIL: Final = 2  #: in rumours alone: suspected by the one who says so
NODE_FAIL: Final = 4  #: in rumours alone
NODE_FULL: Final = 8  #: takes no copies now: memory is low, or the journal takes no jobs; not in rumours
NODE_OWN: Final = NODE_LEAVING | NODE_FULL  #: what a node can say of itself


class Gossip(NamedTuple):
    """What a node says of another one."""

    id: bytes
    host: str  #: IPv4 or IPv6 address
    port: int  #: for clients
    bus_port: int
    flags: int  #: NODE_... bits


class Vitals(NamedTuple):
    """What a node says of how it is; sizes in bytes."""

    version: bytes  #: of the program, printable ASCII
    memory: int  #: that jobs and queues take
    limit: int  #: maxmemory
    jobs: int  #: that it holds
    queued: int  #: times that a job came into a queue of it, since its start
    given: int  #: times that it handed a job to a consumer, since its start


class WorkerStatus(NamedTuple):
    """What a node says of a worker that is, or was, its own."""

    worker_id: bytes
    epoch: int
    ttl_ms: int  #: 0 = it never dies by itself
    lives: bool


class Held(NamedTuple):
    """A unit that a worker has."""

    job_id: bytes
    scope: bytes
    attempt: int  #: number of the delivery; 1 is the first
    age_ms: int  #: for how long the worker has had it


class EntryLease(NamedTuple):
    """That a consumer of a group has an event, or had it."""

    scope: bytes
    left_ms: int  #: of its time; 0 = it has it no more
    elapsed_ms: int
    deliveries: int  #: times that a consumer of the group got it


class EntryStatus(NamedTuple):
    """What a node knows of an event."""

    job_id: bytes
    done: tuple[bytes, ...]  #: scopes of the groups that are done with it
    leases: tuple[EntryLease, ...]


class Outcome(NamedTuple):
    """How a job stands on a node."""

    job_id: bytes
    state: int  #: NOT_KNOWN ... WAS_ACKED
    tries: int
    fate: Fate


class SlotWish(NamedTuple):
    """A job for which a consumer waits."""

    job_id: bytes
    order_key: int  #: its place in the queue
    group: bytes
    span_ms: int  #: how long a consumer has it


class SlotSpan(NamedTuple):
    """A slot, and for how long it lasts."""

    job_id: bytes
    group: bytes
    node_id: bytes  #: of the node that hands the job out
    boot: int  #: which life of that node
    left_ms: int
    client: bytes  #: who has the job: a worker's id, a client's name or address; empty = not known


class SlotsKnown(NamedTuple):
    """What a witness remembers of the slots of a queue."""

    is_complete: bool  #: False = it started anew, and no steward has told it all since
    epoch: int  #: of the steward that told it
    steward: bytes
    number: int  #: of its last change
    slots: tuple[SlotSpan, ...]


class Greeting(NamedTuple):
    """What a node says of itself when a link opens."""

    id: bytes
    host: str  #: the address that others shall use; empty = the one that the connection comes from
    port: int  #: for clients
    bus_port: int
    flags: int  #: NODE_OWN bits
    meets: bool  #: True: take me in, if you do not know me


class Target(NamedTuple):
    """Where a link shall lead to."""

    host: str
    bus_port: int
    id: bytes  #: empty = whoever answers there
    meets: bool  #: what our greeting is to say
