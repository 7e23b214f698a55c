"""What a step asks the outside for.

A step appends; the driver takes the lists in this order, and only then answers the step's own client:

    journal   records, made durable as the fsync policy promises
    messages  to other nodes (core.model.messages)
    events    for those who listen, on whatever node (core.cluster.notifications makes messages of them)
    replies   to clients that were blocked
    asked     commands to run for other nodes, later

Nobody hears of a job that is less durable than promised.  Plain tuples and lists: an append costs 0.1 microseconds.
"""

from collections.abc import Hashable, Iterable
from typing import Final, NamedTuple

from disqued.core.model.job import WORK_SCOPE, Job, Unit
from disqued.core.model.messages import Message

#: A client: compared, passed back, and asked for its name.
Client = Hashable
CLIENT_NAME_MAX: Final = 255  #: bytes of a name or an address, as they are kept

# Kinds of journal record: the first element of the tuple.
JOB_ADDED: Final = 0  #: (JOB_ADDED, job)
UNIT_DONE: Final = 1  #: (UNIT_DONE, job id, scope): acknowledged, or an at-most-once job delivered
JOB_GONE: Final = 2  #: (JOB_GONE, job id, reason)
FLUSHED: Final = 3  #: (FLUSHED,): every job and every queue of this node
QUEUE_PAUSED: Final = 4  #: (QUEUE_PAUSED, queue, PAUSE_... bits of this node alone); 0 = resumed
#: (UNIT_LEASED, job id, scope, deliveries, worker): leased; 0 deliveries mean released,
#: an empty worker none.  The lease began now, or at the unix milliseconds in a sixth element; 0 = that is not kept, and
#: the record says no more than that the unit was handed out so often.
UNIT_LEASED: Final = 5
#: (GROUP, queue, scope, ((first 8 digits of the id of a node, stamp), ...)): a group began in this epoch, behind these
#: events; with the empty scope all groups do, for the queue was flushed up to these.  The later epoch counts, and of
#: one epoch the higher stamp of each node.  Without stamps, in epoch 0 or for the whole queue: what was said of it
#: before means nothing any more.  Now, or in the unix milliseconds that are a fifth element.
GROUP: Final = 6
#: (WATERMARK, unix milliseconds): no delayed job has been queued whose stored time is later; the last one counts.  With
#: False behind that a store says that it may have lost what followed: it holds of jobs that may be delivered twice.
WATERMARK: Final = 7
#: (POLICY, queue, field, register): what the cluster says of a queue (`model.policies`); the counter 0 means that the
#: register is forgotten.  A flush does not touch it.
POLICY: Final = 8
WITH_WHEN: Final = {UNIT_LEASED: 6, GROUP: 5, POLICY: 4}  #: elements of a record that says since when, by its kind

# Why a job is gone.
GONE_EXPIRED: Final = b"expired"
GONE_DELETED: Final = b"deleted"
GONE_EVICTED: Final = b"evicted"
GONE_REFUSED: Final = b"refused"  #: its producer received an error, as it could not be made durable


def given_name_of(client: Client) -> bytes:
    """Return what a client has called itself; empty = nothing."""
    name: bytes = getattr(client, "name", b"")
    return name[:CLIENT_NAME_MAX]


def address_of(client: Client) -> bytes:
    """Return the address of a client; empty = it has none, as another node."""
    return str(getattr(client, "address", "")).encode("utf-8", "surrogateescape")[:CLIENT_NAME_MAX]


def name_of(client: Client) -> bytes:
    """Return the name of a client, or its address if it has none; empty = it has neither, as another node."""
    return given_name_of(client) or address_of(client)


def number_of(client: Client) -> int:
    """Return the number of a client's connection; 0 = it has none."""
    number: int = getattr(client, "id", 0)
    return number


#: Its kind, and the fields that the kind has.
Record = tuple[int, *tuple[object, ...]]


def is_over(scope: bytes, floor: tuple[tuple[bytes, int], ...]) -> bool:
    """Tell whether a record of the kind GROUP says that what was said before means nothing any more."""
    return not floor and (scope == WORK_SCOPE or scope.startswith(b"0:"))


def promises(records: Iterable[Record]) -> set[bytes]:
    """What a client may be about to hear of: ids of jobs that were added, and ``id:scope`` of events that are done."""
    promised: set[bytes] = set()
    for kind, *fields in records:
        if kind == JOB_ADDED:
            (job,) = fields
            assert isinstance(job, Job)
            promised.add(job.id)
        elif kind == UNIT_DONE:
            job_id, scope = fields
            assert isinstance(job_id, bytes)
            assert isinstance(scope, bytes)
            if scope != WORK_SCOPE:
                promised.add(b"%b:%b" % (job_id, scope))
    return promised


# Types of notifications of a queue: the last part of the channel ``wq:<queue>:<type>``.
WORK: Final = b"work"  #: tasks came into the queue; how many
RETURNED: Final = b"returned"  #: of these: they came back; how many
DONE: Final = b"done"  #: a process was finished; JSON
CANCEL: Final = b"cancel"  #: tasks were cancelled: their body; or a process is not wanted any more: its id
DELETE: Final = b"delete"  #: the queue was deleted; nothing
DEAD: Final = b"dead"  #: a worker of the queue died; JSON

EVERYWHERE: Final = 0  #: for all subscribers
HERE_ALONE: Final = 1  #: for subscribers of this node


class Notification(NamedTuple):
    """Something that those who listen to a queue hear; at most once."""

    queue: bytes
    kind: bytes  #: WORK ...
    content: int | bytes  #: a count, which is added up with others of its turn, or a text
    audience: Hashable = EVERYWHERE  #: EVERYWHERE, HERE_ALONE, or the one client that it is for


class Asked(NamedTuple):
    """A command that a node is to run for another one, or for itself, and to answer (`core.cluster.questions`)."""

    node_id: bytes  #: of the node that asks
    number: int  #: of its question
    words: tuple[bytes, ...]


class Outbox:
    """The effects of the steps since the driver last emptied it."""

    __slots__ = ("asked", "events", "journal", "members_changed", "messages", "replies")

    def __init__(self) -> None:
        self.journal: list[Record] = []
        #: (id of the node that it is for, message).
        self.messages: list[tuple[bytes, Message]] = []
        #: Nodes, their addresses or the targets of links have changed: the driver updates links and file.
        self.members_changed: bool = False
        self.events: list[Notification] = []
        self.asked: list[Asked] = []  #: commands to be run in steps of their own
        #: (client, value, jobs): the value that its blocked command returns, and the jobs that leave with it.
        self.replies: list[tuple[Client, object, list[Unit]]] = []
