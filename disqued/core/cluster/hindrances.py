"""Hindrances: why a job that waits may not be handed out now, as far as this node knows.

This node knows pauses and throttles.  Of the limits of the whole cluster it knows the slots that the steward has told
it, which may be some moments old; a node that no steward has told anything since its start knows of none.  It knows
of a rate only that a job which it asked for has to wait although there is a slot.

A steward that begins gives nothing before enough nodes have said which slots they know.  It knows which nodes have not
answered; other nodes only know that it has asked them and has given nothing since.
"""

from typing import Final

from disqued.core.cluster.admission import Admission
from disqued.core.cluster.stewards import Stewards
from disqued.core.cluster.witnesses import Witnesses
from disqued.core.model.gates import NO_LIMITS, Limits
from disqued.core.model.job import KIND_LOG, Unit
from disqued.core.model.queues import LIMITED, PAUSE_OUT, THROTTLED, Queue
from disqued.core.model.state import State

NAMED_MAX: Final = 5  #: nodes that a reason names


class Hindrances:
    """What keeps jobs that wait from being handed out; it changes nothing."""

    __slots__ = ("_admission", "_state", "_stewards", "_witnesses")

    def __init__(self, state: State, witnesses: Witnesses, admission: Admission, stewards: Stewards) -> None:
        self._state = state
        self._witnesses = witnesses
        self._admission = admission
        self._stewards = stewards

    def of_job(self, queue: Queue, unit: Unit) -> bytes:
        """Say why a job that waits in a queue may not be handed out; empty = nothing is known that hinders it."""
        group = unit.options.terms.group
        if queue.holds & PAUSE_OUT:
            return b"paused"
        gate, wall = queue.gate, self._state.wall
        if queue.holds & THROTTLED:
            return b"throttled" + _for(0 if gate is None else gate.until, wall)
        units = queue.grouped
        if units is not None and units.is_throttled(group):
            return b"%b throttled" % _named(group) + _for(0 if gate is None else gate.groups.get(group, 0), wall)
        if not queue.holds & LIMITED:
            return b""
        limits = self._state.queues.policies.limits_of(queue.name)
        reason = self.of_slots(queue.name) or _without_slot(self._witnesses, queue.name, unit, limits)
        asked = self._admission.of(queue.name)
        wish = None if asked is None else asked.wishes.get(unit.id)
        if reason or wish is None or not wish.waits:
            return reason
        return _without_token(limits, group)

    def of_slots(self, name: bytes) -> bytes:
        """Say why no slot of a queue is given, whatever the job; empty = nothing is known, or it has no limits."""
        limits = self._state.queues.policies.limits_of(name)
        queue = self._state.queues.by_name.get(name)
        if limits == NO_LIMITS or (queue is not None and queue.kind == KIND_LOG):
            return b""
        if not limits.is_available and not self._state.peers.has_quorum:
            return b"no majority of the nodes can be reached"
        this = self._stewards.of(name)
        if this is not None:
            peers = self._state.peers
            asked = peers.reachable if limits.is_available else tuple(peers.by_id)
            return b"" if this.is_active else _not_begun([node_id for node_id in asked if node_id not in this.answers])
        witness = self._witnesses.known(name)
        if witness is None or witness.promised == witness.epoch:
            return b""
        steward = witness.promised[1]
        if steward == self._state.node_id or steward != self._witnesses.steward_of(name):
            return b""
        return b"the steward, node %b, does not know all slots yet; ask it which nodes it waits for" % steward[:8]


def _not_begun(silent: list[bytes]) -> bytes:
    """Say for which nodes a steward waits before it gives anything."""
    if not silent:
        return b""
    nodes = b", ".join([node_id[:8] for node_id in silent[:NAMED_MAX]])
    more = b" and %d more" % (len(silent) - NAMED_MAX) if len(silent) > NAMED_MAX else b""
    waits = b"the steward waits for node%b %b%b to say which slots are known there"
    return waits % (b"" if len(silent) == 1 else b"s", nodes, more) + b"; CLUSTER FORGET of a lost node ends that"


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


def _for(until: int, wall: int) -> bytes:
    """Say for how long something holds that ends at a moment of the wall clock; 0 = not known."""
    return b" for %d s" % (max(0, until - wall + 999) // 1_000) if until else b""


def _named(group: bytes) -> bytes:
    return b"group %b" % group if group else b"the group of jobs without GROUP"


def _jobs(count: int) -> bytes:
    return b"%d running job%b" % (count, b"" if count == 1 else b"s")
