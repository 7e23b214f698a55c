"""The trail: what happens to each job, for the event log that people and programs read.

    a step --> what happened, as plain tuples, in order --> the driver takes them at the end of the turn

It is not the journal.  The journal says what a start is to bring back, and everybody waits for it; nobody waits for
the trail, and what of it is lost is seen by the numbers that the event log gives.

An entry is one of

    (when, who)                                                     what follows happened then, on behalf of a client;
                                                                    None = time or another node made it happen
    a job                                                           ADD, then
    (kind, unit, span)                                              DELIVER and ACK of the first attempt, then
    (ACK, unit, span, when, who)                                    the same, where no moments are said
    (kind, when, unit, attempt, nacks, span, who, word)             everything else

    kind      as below
    when      unix milliseconds
    unit      the job, or what a group has of an event (`OfGroup`); a job id where no job is known; None for events of
              the node
    attempt   the delivery that this is about, from 1; 0 = none
    nacks     times that it was given back before
    span      milliseconds: that it waited, for DELIVER; that the consumer had it, for ACK; -1 = not known
    who       the client that made it happen, or the id of the node; None = time did
    word      why, as docs/reference/event-log.md has it; empty = as the kind says

The short forms are those of the hot path, where a long one would cost as much as the line that is made of it.  What may
change before the turn ends is in the entry; the rest is read from the job when the line is written.

`State.trail` is None while nobody wants entries, so that each place where something happens costs one comparison;
`State.endings` is the same list, or one of its own where only endings are wanted: no moments are said there.
"""

from typing import Any, Final

from disqued.core.job import Job
from disqued.core.outbox import GONE_DELETED, GONE_EVICTED, GONE_EXPIRED, GONE_REFUSED

Entry = Any

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

#: Names of the kinds, as readers of the event log know them.
NAMES: Final = (
    b"add", b"replicate", b"enqueue", b"deliver", b"working", b"nack", b"requeue", b"ack", b"expire", b"delete",
    b"evict", b"leave", b"refuse", b"flush", b"start", b"stop", b"clock",
)  # fmt: skip

#: What a job is gone for, as a kind of its own.
OF_REASON: Final = {GONE_EXPIRED: EXPIRE, GONE_DELETED: DELETE, GONE_EVICTED: EVICT, GONE_REFUSED: REFUSE}

# Words.
FAST: Final = b"fast"  #: an ack by FASTACK
UNKNOWN: Final = b"unknown"  #: an ack of a job that this node does not know
FAST_UNKNOWN: Final = b"fast-unknown"  #: the same by FASTACK
PEER: Final = b"peer"  #: an ack that another node tells of
ONCE: Final = b"once"  #: a delivery after which nobody gets it again, acknowledged or not
RECOVERED: Final = b"recovered"  #: a delivery of what another consumer had (RQ.RECOVER)
ASKED: Final = b"asked"  #: queued since a client said so
UNSEEN: Final = b"unseen"  #: queued again since its consumer was gone before it had it: a delivery that was none
NOREPL: Final = b"norepl"  #: refused for want of copies
RESET: Final = b"reset"  #: the end of a node's id, which has another one then
AHEAD: Final = b"ahead"  #: the wall clock was set forwards
BACK: Final = b"back"  #: the wall clock was set back
MISCONF: Final = b"misconf"  #: refused since it could not be journalled


#: Milliseconds by which the wall clock must have moved away from the monotonic one to have been set.
SET_MS: Final = 1_000


class OfGroup:
    """What a group has of an event, when it was told of: a group may have begun anew before the line is written."""

    __slots__ = ("deliveries", "job", "nacks", "scope")

    def __init__(self, job: Job, scope: bytes) -> None:
        self.job: Job = job
        self.scope: bytes = scope
        self.deliveries: int = 0
        self.nacks: int = 0


def is_moment(entry: Entry) -> bool:
    """Tell whether an entry only says when and by whom what follows happened."""
    return isinstance(entry, tuple) and len(entry) == 2


def is_reset(entry: Entry) -> bool:
    """Tell whether an entry is the last word of a node under its id."""
    return isinstance(entry, tuple) and entry[0] == STOP and entry[-1] == RESET
