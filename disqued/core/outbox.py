"""What a step asks the outside for.

A step appends; the driver takes the three lists in this order, and only then answers the step's own client:

    journal   records, made durable as the fsync policy promises
    messages  to other nodes (core.messages)
    replies   to clients that were blocked

Nobody hears of a job that is less durable than promised.  Plain tuples and lists: an append costs 0.1 microseconds.
"""

from typing import Any, Final

from disqued.core.job import Unit
from disqued.core.messages import Message
from disqued.core.queues import Client

# Kinds of journal record: the first element of the tuple.
JOB_ADDED: Final = 0  #: (JOB_ADDED, job)
UNIT_DONE: Final = 1  #: (UNIT_DONE, job id, scope): acknowledged, or delivered when once is all
JOB_GONE: Final = 2  #: (JOB_GONE, job id, reason)
FLUSHED: Final = 3  #: (FLUSHED,): every job and every queue of this node
QUEUE_PAUSED: Final = 4  #: (QUEUE_PAUSED, queue, PAUSE_... bits): 0 = not any more
#: (UNIT_LEASED, job id, scope, deliveries, worker): a consumer has it, for the so-manieth time; worker empty = none.
UNIT_LEASED: Final = 5

# Why a job is gone.
GONE_EXPIRED: Final = b"expired"
GONE_DELETED: Final = b"deleted"
GONE_EVICTED: Final = b"evicted"
GONE_REFUSED: Final = b"refused"  #: its producer was told that it could not be made durable

Record = tuple[Any, ...]


class Outbox:
    """The effects of the steps since the driver last emptied it."""

    __slots__ = ("journal", "members_changed", "messages", "replies")

    def __init__(self) -> None:
        self.journal: list[Record] = []
        #: (id of the node that it is for, message).
        self.messages: list[tuple[bytes, Message]] = []
        #: The nodes, their addresses or where links shall lead to are not what they were: links and file follow.
        self.members_changed: bool = False
        #: (client, value, jobs): the value that its blocked command returns, and the jobs that leave with it.
        self.replies: list[tuple[Client, Any, list[Unit]]] = []
