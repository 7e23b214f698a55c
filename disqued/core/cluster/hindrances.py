"""Hindrances: why a job that waits may not be handed out now, as far as this node knows.

This node knows pauses and throttles.  Of the limits of the whole cluster it knows the slots that the steward has told
it, which may be some moments old; a node that no steward has told anything since its start knows of none.  It knows
of a rate only that a job which it asked for has to wait although there is a slot.
"""

from disqued.core.cluster.admission import Admission
from disqued.core.cluster.witnesses import Witnesses
from disqued.core.model.gates import Limits
from disqued.core.model.job import Unit
from disqued.core.model.queues import LIMITED, PAUSE_OUT, THROTTLED, Queue
from disqued.core.model.state import State


def hindrance(state: State, witnesses: Witnesses, admission: Admission, queue: Queue, unit: Unit) -> bytes:
    """Say why a job that waits in a queue may not be handed out; empty = nothing is known that hinders it."""
    group = unit.options.terms.group
    if queue.holds & PAUSE_OUT:
        return b"paused"
    if queue.holds & THROTTLED:
        return b"throttled"
    units = queue.grouped
    if units is not None and units.is_throttled(group):
        return b"%b throttled" % _named(group)
    if not queue.holds & LIMITED:
        return b""
    limits = state.queues.policies.limits_of(queue.name)
    if not limits.is_available and not state.peers.has_quorum:
        return b"no majority of the nodes can be reached"
    reason = _without_slot(witnesses, queue.name, unit, limits)
    asked = admission.of(queue.name)
    wish = None if asked is None else asked.wishes.get(unit.id)
    if reason or wish is None or not wish.waits:
        return reason
    return _without_token(limits, group)


def _without_slot(witnesses: Witnesses, name: bytes, unit: Unit, limits: Limits) -> bytes:
    """Say which slots are in use that a job would need."""
    witness = witnesses.known(name)
    if witness is None or unit.id in witness.table.by_id:
        return b""
    table = witness.table
    group = unit.options.terms.group
    running = table.by_group.get(group, 0)
    if 0 < limits.group_in_flight <= running:
        return b"%b has its %b" % (_named(group), _jobs(running))
    if 0 < limits.in_flight <= len(table):
        return b"the queue has its %b" % _jobs(len(table))
    return b""


def _without_token(limits: Limits, group: bytes) -> bytes:
    """Say which rate holds back a job that has to wait though there is a slot."""
    if limits.rate is None:
        return b"the rate of %b is used up" % _named(group) if limits.group_rate is not None and group else b""
    if limits.group_rate is None or not group:
        return b"the rate of the queue is used up"
    return b"the rate of the queue or that of %b is used up" % _named(group)


def _named(group: bytes) -> bytes:
    return b"group %b" % group if group else b"the group of jobs without GROUP"


def _jobs(count: int) -> bytes:
    return b"%d running job%b" % (count, b"" if count == 1 else b"s")
