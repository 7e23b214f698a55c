"""Seats: the connections of a live worker, which is alive as long as the one that it uses.

    open      --WORKER START id BIND-->       before anything else: its end is the worker's death
    fetch     --GETJOB ... WORKER id-->       what comes is the worker's, and back in front of its queue when it dies
    busy      --WORKER KEEPALIVE-->           three times in the time after which it counts as dead
    NOWORKER  it was declared dead: the connection is closed, and another one opened
    end       --WORKER STOP-->

A worker that goes to another node opens a seat there, by which the node learns of it and takes it over with what it
has.  The old one stays open until the worker ends, for its end might be heard before the move.

So nothing is left with a worker that does not know of it: what was handed out into a connection that broke has come
back with that, as all has that the worker had.  What is in its hands then may be done twice.

Times are seconds.
"""

from random import Random
from typing import Final

import attrs

from disqued.client import replies
from disqued.client.commands import Command, WorkerIdentity
from disqued.client.job import Job
from disqued.client.values import Span, encode_data, milliseconds, waiting_seconds

SIGNS: Final = 3  #: of life, in the time after which a worker counts as dead
ID_BITS: Final = 128


def new_seat(rng: Random, dead_after: Span, name: bytes | str) -> WorkerIdentity:
    """Make a live worker, which no node knows yet.  Raises ValueError."""
    seconds = waiting_seconds(dead_after, "dead_after")
    return WorkerIdentity(b"%032x" % rng.getrandbits(ID_BITS), seconds, encode_data(name, "name"))


def take_a_seat(seat: WorkerIdentity) -> tuple[bytes, ...]:
    """Make the words that each connection of a seat begins with."""
    named = (b"NAME", seat.name) if seat.name else ()
    return (b"WORKER", b"START", b"ID", seat.id, b"TTL", milliseconds(seat.dead_after), b"BIND", *named)


class Heartbeat:
    """The heartbeats of a live worker; each of its fetches counts as one."""

    def __init__(self, seat: WorkerIdentity) -> None:
        self.seat = seat
        self.interval = seat.dead_after / SIGNS  #: how long a worker may say nothing and be well within its time
        self._sent_at = 0.0

    def fetch(self, fetch: Command[list[Job]], now: float) -> Command[list[Job]]:
        """Make a fetch of this worker, to be sent now, of one of nobody in particular."""
        self._sent_at = now
        words = (fetch.words[0], b"WORKER", self.seat.id, *fetch.words[1:])
        return attrs.evolve(fetch, words=words, seat=self.seat)

    def due(self, now: float) -> Command[int] | None:
        """Return the heartbeat to send now; None while none is due.

        The node answers after how many milliseconds the worker would be dead.
        """
        if now < self._sent_at + self.interval:
            return None
        self._sent_at = now
        return Command((b"WORKER", b"KEEPALIVE"), replies.read_number, seat=self.seat)

    def stop(self) -> Command[int]:
        """End the worker in order; the node answers how many jobs came back from it."""
        return Command((b"WORKER", b"STOP"), replies.read_number, seat=self.seat)
