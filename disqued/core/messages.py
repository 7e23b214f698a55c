"""What nodes say to each other.

A message is a plain tuple whose first element is its kind.  It is addressed to a node and leaves on the link to it;
a node that has no link to the other drops it.  Any message may be lost, come twice or come late: what the machines
send is sent again until it is answered, or is not needed to keep a promise.  Where a unit is meant it is named by
(job id, scope).

    membership    PING, PONG (PING | PONG, flags, rumours)       rumours: tuple of `Rumour`
                  FAIL       (FAIL, node id)
                  VITALS     (VITALS, `Vitals`)                  how much I hold and do; with each PONG
    copies        REPLJOB    (REPLJOB, job, quiet)               keep a copy; say GOTJOB unless quiet
                  GOTJOB     (GOTJOB, job id)                    a copy is kept
                  HOLDERS    (HOLDERS, job id, node ids)         these may hold it, too; without the receiver among
                                                                them: I do not have it, queue it; with nobody, to a
                                                                node whose producer waits: I keep no copy, as the
                                                                queue is paused here
                  ENQUEUE    (ENQUEUE, job id, scope, delay ms)  queue it for the first time
    delivery      WILLQUEUE  (WILLQUEUE, job id, scope)          I shall queue it: does anybody know better?
                  QUEUED     (QUEUED, job id, scope, how)        it waits in my queue; how: one of AS_BEFORE ...
                  WORKING    (WORKING, job id, scope, left ms)   a consumer has it for so long
                  DELIVERED  (DELIVERED, job id, scope, left ms, elapsed ms, deliveries)    a consumer has it, which no
                                                                timer takes it from: for so long, since so long, for
                                                                the so-manieth time
                  CLAIM      (CLAIM, queue, number, count, elapsed ms, worker)    give me what your consumers have had
                                                                for so long: so many jobs at most, and to a worker of
                                                                mine if it is not empty (HANDOVER)
                  CLAIMED    (CLAIMED, number, jobs)             the answer: these are with consumers of yours now
    acks          SETACK     (SETACK, job id, scope, last, node ids)    it is done; these may hold it, none = I do
                                                                not know; last: all of them know, but for you
                  GOTACK     (GOTACK, job id, scope, known, node ids)   I know that it is done; do I hold it, and who
                  DELJOB     (DELJOB, job id)                    forget it
    federation    NEEDJOBS   (NEEDJOBS, queue, count)            my consumers could take so many; 0 = not any more
                  YOURJOBS   (YOURJOBS, jobs, queued)            take these over: into the queue, or with their timers
                  POLLJOBS   (POLLJOBS, queue, count)            likewise, of consumers that come again and do not wait
    logs          FACTS      (FACTS, number, facts, last)         what I know of these events, a tuple of `Fact`; last:
                                                                and of all others that you may hold
                  MISSING    (MISSING, number, job ids)         the answer: of these I hold none
                  BEGIN      (BEGIN, queue, scope, floor, left ms, asks)    where a group began, to be known so long;
                                                                with the empty scope, up to where the log was
                                                                flushed; asks: and behind all that you made, too;
                                                                of a group for no time: that is forgotten, or asks:
                                                                do you need it?
                  WANT       (WANT, queue, group, whether)      say whether my consumers could have an event for this
                                                                group, and when they could; or do so no more
                  HAVE       (HAVE, queue, group, whether)      they could, or could not
                  TAKE       (TAKE, queue, group, number, count, lease ms, strict)    let them have some
                  GIVE       (GIVE, number, scope, events)      the answer: tuple of (job id, body)
                  SETTLE     (SETTLE, queue, group, number, verb, job ids)    a consumer is done with these, or ...
                  SETTLED    (SETTLED, number, outcomes)        the answer: tuple of (job id, OUTCOME_...)
    names         INQUIRE    (INQUIRE, queue, number, verb, aliases)    who has these names; and do this with them
                  FOUND      (FOUND, number, what)              the answer: (how, job id) of each, in their order
    queues        PAUSE      (PAUSE, queue, PAUSE_... bits)
                  FLUSH      (FLUSH, queue, 0)                   all that you have of this queue is done
    workers       LIVES      (LIVES, `Life`s)                    these workers of mine are alive, or not any more
                  LEASED     (LEASED, worker, epoch, ttl ms, `Held`s)       one of them has these units
                  HANDOVER   (HANDOVER, worker, epoch, name, queues, `Held`s, last)   one that is yours now had these
    events        LISTEN     (LISTEN, whether)                   my clients want to hear of events
                  EVENT      (EVENT, queue, type, content)       something happened; at most once

Who sends gives a `Job` and may go on changing it: it is written down when it leaves.  Who receives gets a `StoredJob`
in its place, in which the deadlines are what is left of them in milliseconds: no clock is compared with another.
Node ids are frozensets of 40 hex digits.

Source: Disque, src/cluster.h; the Disque README, "Cluster bus messages and related semantics".
"""

from typing import Any, Final, NamedTuple

Message = tuple[Any, ...]

PING: Final = 0
PONG: Final = 1
FAIL: Final = 2
REPLJOB: Final = 3
GOTJOB: Final = 4
HOLDERS: Final = 5
ENQUEUE: Final = 6
WILLQUEUE: Final = 7
QUEUED: Final = 8
WORKING: Final = 9
SETACK: Final = 10
GOTACK: Final = 11
DELJOB: Final = 12
NEEDJOBS: Final = 13
YOURJOBS: Final = 14
PAUSE: Final = 15
POLLJOBS: Final = 16
VITALS: Final = 17
LIVES: Final = 18
LEASED: Final = 19
HANDOVER: Final = 20
LISTEN: Final = 21
EVENT: Final = 22
DELIVERED: Final = 23
CLAIM: Final = 24
CLAIMED: Final = 25
FLUSH: Final = 26
FACTS: Final = 27
MISSING: Final = 28
BEGIN: Final = 29
WANT: Final = 30
HAVE: Final = 31
TAKE: Final = 32
GIVE: Final = 33
SETTLE: Final = 34
SETTLED: Final = 35
INQUIRE: Final = 36
FOUND: Final = 37

NAMES: Final = (
    "PING", "PONG", "FAIL", "REPLJOB", "GOTJOB", "HOLDERS", "ENQUEUE", "WILLQUEUE", "QUEUED", "WORKING", "SETACK",
    "GOTACK", "DELJOB", "NEEDJOBS", "YOURJOBS", "PAUSE", "POLLJOBS", "VITALS", "LIVES", "LEASED",
    "HANDOVER", "LISTEN", "EVENT", "DELIVERED", "CLAIM", "CLAIMED", "FLUSH", "FACTS", "MISSING", "BEGIN",
    "WANT", "HAVE", "TAKE", "GIVE", "SETTLE", "SETTLED", "INQUIRE", "FOUND",
)  # fmt: skip

#: Kinds that promise that something is durable, or ask for that: no other node hears them while it cannot be made so.
DURABLE_ALONE: Final = frozenset({REPLJOB, GOTJOB, GOTACK, GIVE, SETTLED, FOUND})
#: Kinds that tell who is there: they go ahead of everything else on a link.
URGENT: Final = frozenset({PING, PONG, FAIL})

# How a job came into the queue: QUEUED.
AS_BEFORE: Final = 0  #: it was there already, or it is there for the first time
AFTER_NACK: Final = 1
AGAIN: Final = 2  #: its consumer did not acknowledge it in time
ASKED: Final = 3  #: as AGAIN, but somebody asked for it: no consumer that has it keeps it back

# What is to become of events that consumers have: SETTLE.
ACK: Final = 0  #: they are done with them
RETURN: Final = 1  #: they give them back
UNSEEN: Final = 2  #: they never had them; nobody answers

# What became of one: SETTLED.
OUTCOME_REFUSED: Final = 0  #: nothing was changed
OUTCOME_DONE: Final = 1
OUTCOME_UNKNOWN: Final = 2  #: this node does not hold the event
OUTCOME_LATER: Final = 3  #: it does, and another one hands it out, or it is not known yet who does

# What is to be done with names: INQUIRE.
HAS: Final = 0  #: say whether a job of the queue has the name
HAS_ANYWHERE: Final = 1  #: the same, of a unique task of any queue
ACK_EVERY: Final = 2  #: acknowledge all jobs that have it
ACK_ONE: Final = 3  #: acknowledge one job that has it and that a consumer has
HAS_KEY: Final = 4  #: as HAS, of the key of a job; who holds a copy says that it is one
KEEP: Final = 5  #: the names are job ids that a producer hears: keep your copies, whoever gives them up

# What there is of a name: FOUND.
NOTHING: Final = 0
A_JOB: Final = 1  #: its id follows
SOON: Final = 2  #: this node is about to add one
A_COPY: Final = 3  #: its id follows; it came from another node, which knows whether it was given up
OVER: Final = 4  #: it is done, or was given up

#: Jobs that one NEEDJOBS or POLLJOBS may ask for, and one YOURJOBS bring; events that one TAKE may ask for.
JOBS_PER_MESSAGE: Final = 100
FACTS_PER_MESSAGE: Final = 200
#: Workers that one LIVES tells of, at most.
WORKERS_PER_MESSAGE: Final = 200
WORKER_NAME_MAX: Final = 1_024  #: bytes of the id of a worker, and of its name

# What a node says of itself in PING and PONG, and of others in rumours.
NODE_LEAVING: Final = 1
NODE_PFAIL: Final = 2  #: in rumours alone: suspected by the one who says so
NODE_FAIL: Final = 4  #: in rumours alone
NODE_FULL: Final = 8  #: takes no copies now: memory is low, or the journal takes no jobs; not in rumours
NODE_OWN: Final = NODE_LEAVING | NODE_FULL  #: what a node can say of itself


class Rumour(NamedTuple):
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
    given: int  #: times that a job left a queue for a consumer or another node, since its start


class Life(NamedTuple):
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


class Lease(NamedTuple):
    """That a consumer of a group has an event, or had it."""

    scope: bytes
    left_ms: int  #: of its time; 0 = it has it no more
    elapsed_ms: int
    deliveries: int  #: times that a consumer of the group got it


class Fact(NamedTuple):
    """What a node knows of an event."""

    job_id: bytes
    done: tuple[bytes, ...]  #: scopes of the groups that are done with it
    leases: tuple[Lease, ...]


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
