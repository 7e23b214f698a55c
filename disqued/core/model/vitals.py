"""How much a node holds and does: what it tells with each PONG, for people to look at.

`federation` gives a node no more jobs than it has room for by its account; nothing else is decided by it.

    PING --> the other node
         <-- PONG, VITALS        peer.account: the last one, and what it comes to since the one before

Counts grow from the node's start, so that the difference of two accounts is a rate whoever missed some in between.
"""

from typing import NamedTuple

from disqued import __version__
from disqued.core.model.counters import Counters
from disqued.core.model.memory import Memory
from disqued.core.model.messages import Vitals

RATE_MS = 1_000  #: time between two accounts from which rates are worked out, at least
_VERSION = __version__.encode("ascii")


class LastVitals(NamedTuple):
    """What a node told last, and when."""

    vitals: Vitals
    at: int  #: monotonic milliseconds
    queued_rate: float | None  #: jobs that came into its queues, per second; None = not known yet
    given_rate: float | None  #: jobs that consumers were handed, per second; None = not known yet
    since: tuple[int, Vitals]  #: when, and what, the next rates are worked out from


def own_vitals(memory: Memory, jobs: int, counters: Counters) -> Vitals:
    """Return what a node with so many jobs tells of itself."""
    return Vitals(_VERSION, memory.used, memory.limit, jobs, counters.queued, counters.delivered)


def account_of(vitals: Vitals, before: LastVitals | None, now: int) -> LastVitals:
    """Enter what a node tells, after what it told before."""
    if before is None:
        return LastVitals(vitals, now, None, None, (now, vitals))
    at, old = before.since
    if vitals.queued < old.queued or vitals.given < old.given:
        # The node was started again.
        return LastVitals(vitals, now, None, None, (now, vitals))
    if now - at < RATE_MS:
        return before._replace(vitals=vitals, at=now)
    seconds = (now - at) / 1_000
    rates = ((vitals.queued - old.queued) / seconds, (vitals.given - old.given) / seconds)
    return LastVitals(vitals, now, *rates, (now, vitals))
