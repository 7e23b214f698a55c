"""Gates: what limits what a queue hands out, as the registers of the whole cluster say.

    QPOLICY queue SET FAIR          is_fair    `GroupedUnits` with a ring
    THROTTLE queue seconds          until      the bit THROTTLED of `Queue.holds`: the queue hands nothing out
    THROTTLE queue seconds GROUP g  groups[g]  the group is blocked in `GroupedUnits`

A queue has a gate while a register limits it; all other queues cost nothing: `Delivery.take` tests the bits of
`Queue.holds` once, as it did for PAUSE, and only a bit leads to the gate.  What is in the gate is in effect: a throttle
leaves it when its time is over (`core/cluster/gates.py`), so nobody but that compares times.

Whatever limits a queue further does it by the same two means.  It sets a bit of `HOLDS_ALL`, and the queue asks no
other node for jobs, gives none away, wakes nobody; or it blocks groups, and no job of them is handed out, given away or
looked at.  When the hold ends, `Gates.opened` serves those who wait.

Limits of the whole cluster (INFLIGHT, RATE and others) are the third means: the bit LIMITED.  Then only those jobs are
handed out that the steward of the queue has given a slot (`core/cluster/stewards.py`, `core/cluster/admission.py`).

Ends are unix milliseconds.
"""

from typing import Final, NamedTuple

from disqued.core.model.slots import Rate

THROTTLE_MAX_S: Final = 86_400  #: seconds of a throttle; what is to last longer is a pause


class Limits(NamedTuple):
    """What the steward of a queue holds it to; 0 and None = there is no such limit."""

    in_flight: int  #: jobs that are with consumers at the same time
    group_in_flight: int  #: the same of each group
    rate: Rate | None
    group_rate: Rate | None  #: of each group
    is_available: bool  #: False = nothing is given without a majority of the nodes


NO_LIMITS: Final = Limits(0, 0, None, None, False)


class Gate:
    """What limits what one queue hands out."""

    __slots__ = ("groups", "is_fair", "limits", "until")

    def __init__(self) -> None:
        self.is_fair: bool = False
        self.limits: Limits = NO_LIMITS
        self.until: int = 0  #: end of the throttle of the queue; 0 = there is none
        self.groups: dict[bytes, int] = {}  #: ends of the throttles of groups

    @property
    def is_open(self) -> bool:
        """True when it limits nothing."""
        return not (self.is_fair or self.until or self.groups or self.is_limited)

    @property
    def is_limited(self) -> bool:
        """True when the steward of the queue is to be asked."""
        return self.limits != NO_LIMITS

    @property
    def needs_groups(self) -> bool:
        """True when the units of the queue are to be sorted into groups."""
        return self.is_fair or bool(self.groups) or self.is_limited


def throttle_name(queue: bytes, group: bytes) -> bytes:
    """Return the name in the place of the throttle of a group: length of the group, group, queue."""
    return bytes((len(group),)) + group + queue


def split_throttle_name(name: bytes) -> tuple[bytes, bytes] | None:
    """Return the queue and the group that such a name has; None = it is no such name."""
    if not name or not name[0] or len(name) <= name[0]:
        return None
    end = 1 + name[0]
    return name[end:], name[1:end]
