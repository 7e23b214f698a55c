"""Seats: the connections of a live worker, which lives as long as the connection that it uses.

    open      --WORKER START id BIND-->       the first command: the worker dies with this connection
    fetch     --GETJOB ... WORKER id-->       its jobs return to the front of their queue when it dies
    busy      --WORKER KEEPALIVE-->           three times in `dead_after`
    NOWORKER  the node declared it dead: close the connection and open another one
    end       --WORKER STOP-->

A worker that moves to another node opens a seat there, which makes the node take over the worker and its jobs.  The old
seat stays open until the worker ends, as nodes might learn of its end before the move.

So no job stays with a worker that does not know of it: when a connection breaks, all jobs of the worker return, with
those delivered into that connection.  The jobs in its hands may then be done twice.

Times are seconds.
"""

from random import Random
from typing import Final

import attrs

from . import replies
from .commands import Command, WorkerIdentity
from .job import Job
from .values import Span, milliseconds, short_text, waiting_seconds

SIGNS: Final = 3  #: heartbeats in the time after which a worker counts as dead
ID_BITS: Final = 128
DEAD_AFTER_MAX: Final = 365 * 86_400  #: seconds
NAME_MAX: Final = 1_024  #: bytes of the name of a worker


def new_seat(rng: Random, dead_after: Span, name: bytes | str) -> WorkerIdentity:
    """Make the identity of a live worker.  Raises ValueError."""
    seconds = waiting_seconds(dead_after, "dead_after", DEAD_AFTER_MAX)
    return WorkerIdentity(b"%032x" % rng.getrandbits(ID_BITS), seconds, short_text(name, "name", NAME_MAX))


def take_a_seat(seat: WorkerIdentity) -> tuple[bytes, ...]:
    """Return the first command of each connection of a live worker."""
    named = (b"NAME", seat.name) if seat.name else ()
    return (b"WORKER", b"START", b"ID", seat.id, b"TTL", milliseconds(seat.dead_after), b"BIND", *named)


class Heartbeat:
    """The heartbeats of a live worker; each of its fetches counts as one."""

    def __init__(self, seat: WorkerIdentity) -> None:
        self.seat = seat
        self.interval = seat.dead_after / SIGNS  #: seconds between two heartbeats
        self._sent_at = 0.0

    def fetch(self, fetch: Command[list[Job]], now: float) -> Command[list[Job]]:
        """Turn a fetch into one of this worker, to be sent now."""
        self._sent_at = now
        words = (fetch.words[0], b"WORKER", self.seat.id, *fetch.words[1:])
        return attrs.evolve(fetch, words=words, seat=self.seat)

    def due(self, now: float) -> Command[int] | None:
        """Return the heartbeat to send now; None while none is due.

        The reply is the time after which the worker would be dead, in milliseconds.
        """
        if now < self._sent_at + self.interval:
            return None
        self._sent_at = now
        return Command((b"WORKER", b"KEEPALIVE"), replies.read_number, seat=self.seat)

    def stop(self) -> Command[int]:
        """Return the command that ends the worker; the reply is how many jobs it returned."""
        return Command((b"WORKER", b"STOP"), replies.read_number, seat=self.seat)
