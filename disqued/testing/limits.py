"""Limits in a story: which jobs of limited queues consumers have, on all nodes, held against the limits at every step.

    a node hands out ---> what consumers of all nodes have now, and of each group   <= the limit
                          what was handed out lately                                <= what the bucket gives
    a node crashes   ---> what its consumers had counts until the retry period is over, or the job is done
    it starts again  ---> what it says that they have counts, if that is not less

With PARTITION available each side of a partition gives as many as the limit says: so many are on each node at most,
beside what consumers of a crashed one had, and on all of them where nothing fails.

What a consumer has counts after a crash once the commit is done that wrote it down: before that no consumer has heard
of it.  Under `always` nothing else is forgotten, however many nodes crash.

Under other policies a disk may lose the last second and more: leases that consumers have heard of, with the jobs.  The
other nodes know the slots still, but one that has crashed, and that no steward has told the slots since, knows none.
So there, where so many nodes crash that the others are no majority, what consumers of crashed nodes had may be
forgotten.

Times are integer milliseconds of the story.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from disqued.core.cluster.admission import GIVEN_MS
from disqued.core.cluster.witnesses import ONCE_MS
from disqued.core.model.gates import NO_LIMITS, Limits
from disqued.core.model.job import ACKED, DEAD, Unit
from disqued.core.model.policies import (
    AVAILABLE,
    GROUPINFLIGHT_FIELD,
    INFLIGHT_FIELD,
    PARTITION_FIELD,
    RATE_FIELD,
    Value,
)
from disqued.core.model.state import State
from disqued.core.node import Node
from disqued.testing.clock import NodeClock
from disqued.testing.events import EventQueue
from disqued.testing.journal import ALWAYS

#: Ids of jobs that consumers of a node have, since when by its clock, and until when.
Known = dict[bytes, tuple[int, int]]

#: What operators say of the queues of a story.
SETTINGS: Final[dict[bytes, dict[int, Value]]] = {
    b"a": {INFLIGHT_FIELD: (3,)},
    b"b": {GROUPINFLIGHT_FIELD: (1,), INFLIGHT_FIELD: (6,)},
    b"c": {RATE_FIELD: (1, 1_000, 2), GROUPINFLIGHT_FIELD: (2,)},
    b"d": {INFLIGHT_FIELD: (2,), PARTITION_FIELD: (AVAILABLE,)},
}
CALM_MS: Final = 500  #: how late what was given is handed out where nothing fails
WINDOWS_MS: Final = (1_000, 5_000, 20_000)


GONE: Final = -1  #: in the place of the number of a node that has crashed since


class Site(Protocol):
    """A node of a story as the watch sees it."""

    number: int
    policy: str
    is_up: bool
    clock: NodeClock
    state: State
    node: Node


class Taken(NamedTuple):
    """A job that a consumer has."""

    group: bytes
    until: int
    node: int  #: number of the node that handed it out, or GONE


class LimitWatch:
    """The limited queues of all nodes of a story."""

    def __init__(self, servers: Iterable[Site], events: EventQueue, *, fails: bool) -> None:
        """Watch these nodes; `fails`: faults occur in the story."""
        self.broken: list[str] = []
        self._servers = servers
        self._events = events
        self._fails = fails
        self._crashed: dict[bytes, dict[bytes, Taken]] = {}  #: by queue: what consumers of nodes had that crashed
        self._written: dict[int, Known] = {}  #: by node: what consumers had when its last commit began
        self._safe: dict[int, Known] = {}  #: by node: what they had then, if that commit is done
        self._lately: dict[bytes, deque[int]] = {}  #: by queue: when jobs were handed out

    def over(self, server: Site, step: Callable[[], None]) -> None:
        """Carry out a step of a node, and look at what it handed out."""
        names = _limited(server)
        before = [set(_leased(server, name)) for name in names]
        step()
        for name, leased in zip(names, before, strict=True):
            count = len(_leased(server, name).keys() - leased)
            if count:
                self._handed_out(server, name, count)

    def begin_commit(self, server: Site) -> None:
        """A commit begins: of all that has happened."""
        self._written[server.number] = self._known(server)

    def committed(self, server: Site) -> None:
        """That commit is done, and consumers hear of what they have."""
        self._safe[server.number] = self._written[server.number]

    def _handed_out(self, server: Site, name: bytes, count: int) -> None:
        limits = server.state.queues.policies.limits_of(name)
        if limits == NO_LIMITS:
            return
        taken = self.taken(name)
        if limits.in_flight:
            is_split = limits.is_available and self._fails
            counts = Counter(each.node for each in taken.values()) if is_split else Counter({0: len(taken)})
            del counts[GONE]
            for number in counts.values():
                if number > limits.in_flight:
                    self._tell(name, f"{number} jobs with consumers, and the limit is {limits.in_flight}", taken)
        for group, number in Counter(each.group for each in taken.values()).items():
            if 0 < limits.group_in_flight < number and not limits.is_available:
                self._tell(name, f"{number} jobs of {group!r}, and the limit is {limits.group_in_flight}", taken)
        self._check_rate(name, limits, count)

    def _check_rate(self, name: bytes, limits: Limits, count: int) -> None:
        if limits.rate is None:
            return
        now = self._events.now
        lately = self._lately.setdefault(name, deque())
        lately.extend([now] * count)
        while lately and lately[0] <= now - WINDOWS_MS[-1]:
            lately.popleft()
        for window_ms in WINDOWS_MS:
            number = sum(at > now - window_ms for at in lately)
            late_ms = GIVEN_MS if self._fails else CALM_MS
            most = limits.rate.burst + (window_ms + late_ms) * limits.rate.tokens // limits.rate.per_ms
            if number > most:
                self.broken.append(f"{number} jobs of {name!r} in {window_ms} ms, and {most} are allowed, at {now}")

    def _tell(self, name: bytes, what: str, taken: dict[bytes, Taken]) -> None:
        self.broken.append(f"queue {name!r} has {what}, at {self._events.now}: {sorted(taken)}")

    def taken(self, name: bytes) -> dict[bytes, Taken]:
        """Return what consumers have of a queue now."""
        now = self._events.now
        crashed = self._crashed.get(name, {})
        for job_id, taken in list(crashed.items()):
            if taken.until <= now or self._is_over(job_id):
                del crashed[job_id]
        found = dict(crashed)
        for server in self._servers:
            if server.is_up:
                for unit, left_ms in _leased(server, name).items():
                    found[unit.id] = Taken(unit.options.terms.group, now + left_ms, server.number)
        return {job_id: taken for job_id, taken in found.items() if not self._is_over(job_id)}

    def _is_over(self, job_id: bytes) -> bool:
        """Return whether a node knows that a job is done: its consumer has said so there."""
        return any(_knows_its_end(server, job_id) for server in self._servers)

    def ends(self, server: Site) -> None:
        """A process ends: its consumers lose their connections, and may go on working."""
        safe = self._safe.pop(server.number, {})
        for name in _limited(server):
            crashed = self._crashed.setdefault(name, {})
            for unit in _leased(server, name):
                since, until = safe.get(unit.id, (-1, 0))
                if since == _since(server, unit):
                    crashed[unit.id] = Taken(unit.options.terms.group, until, GONE)
        for name in self._crashed if server.policy != ALWAYS else ():
            others = [each for each in self._servers if each is not server and each.is_up]
            if sum(each.node.witnesses.of(name).is_complete for each in others) <= len(list(self._servers)) // 2:
                self._crashed[name].clear()

    def begins(self, server: Site) -> None:
        """A process has started: what it knows of what consumers have is what counts from now on."""
        known = self._known(server)
        for crashed in self._crashed.values():
            for job_id, (_, until) in known.items():
                if job_id in crashed and until >= crashed[job_id].until:
                    del crashed[job_id]
        self._safe[server.number] = known

    def _known(self, server: Site) -> Known:
        now = self._events.now
        return {
            unit.id: (_since(server, unit), now + left_ms)
            for name in _limited(server)
            for unit, left_ms in _leased(server, name).items()
        }


def _knows_its_end(server: Site, job_id: bytes) -> bool:
    if not server.is_up:
        return False
    job = server.state.jobs.get(job_id)
    return job_id in server.state.custody.ended if job is None else job.state in (ACKED, DEAD)


def _limited(server: Site) -> list[bytes]:
    return list(server.state.queues.policies.limited)


def _leased(server: Site, name: bytes) -> dict[Unit, int]:
    """Return what consumers of a node have of a queue, and how long they have it from now on."""
    queue = server.state.queues.by_name.get(name)
    now = server.clock.now()
    leased = {unit: unit.requeue_at - now for unit in (queue.leased if queue is not None else ())}
    once = {
        unit: holder.since + ONCE_MS - now
        for unit, holder in server.state.custody.limited.items()
        if unit.queue == name and not unit.options.retry_ms
    }
    return {unit: left_ms for unit, left_ms in (leased | once).items() if left_ms > 0}


def _since(server: Site, unit: Unit) -> int:
    """Return when a consumer of a node got a job that it has."""
    queue = server.state.queues.by_name.get(unit.queue)
    since = None if queue is None else queue.held_since(unit)
    return server.state.custody.limited[unit].since if since is None else since
