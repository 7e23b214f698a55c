"""Limits in a story: which jobs of limited queues consumers have, on all nodes, held against the limits at every step.

    a node hands out ---> what consumers of all nodes have now, and of each group   <= the limit
                          what was handed out lately                                <= what the bucket gives
    a node crashes   ---> what its consumers had counts until the retry period is over, or the job is done

With PARTITION available each side of a partition gives as many as the limit says: so many are on each node at most,
beside what consumers of a crashed one had, and on all of them where nothing fails.

A node that has crashed, and one that has not been told the slots since, remembers nothing.  Where so many do that the
others are no majority, what consumers of crashed nodes had is forgotten, as the documentation says.

Times are integer milliseconds of the story.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from disqued.core.cluster.admission import GIVEN_MS
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
from disqued.core.model.queues import LIMITED
from disqued.core.model.state import State
from disqued.core.node import Node
from disqued.testing.clock import NodeClock
from disqued.testing.events import EventQueue

#: What operators say of the queues of a story.
SETTINGS: Final[dict[bytes, dict[int, Value]]] = {
    b"a": {INFLIGHT_FIELD: (3,)},
    b"b": {GROUPINFLIGHT_FIELD: (1,), INFLIGHT_FIELD: (6,)},
    b"c": {RATE_FIELD: (1, 1, 2), GROUPINFLIGHT_FIELD: (2,)},
    b"d": {INFLIGHT_FIELD: (2,), PARTITION_FIELD: (AVAILABLE,)},
}
CALM_MS: Final = 500  #: how late what was given is handed out where nothing fails
WINDOWS_MS: Final = (1_000, 5_000, 20_000)


GONE: Final = -1  #: in the place of the number of a node that has crashed since


class Site(Protocol):
    """A node of a story as the watch sees it."""

    number: int
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
        self._lately: dict[bytes, deque[int]] = {}  #: by queue: when jobs were handed out

    def over(self, server: Site, step: Callable[[], None]) -> None:
        """Carry out a step of a node, and look at what it handed out."""
        queues = [queue for queue in server.state.queues.by_name.values() if queue.holds & LIMITED]
        before = [set(queue.leased) for queue in queues]
        step()
        for queue, leased in zip(queues, before, strict=True):
            count = len(queue.leased.keys() - leased)
            if count:
                self._handed_out(server, queue.name, count)

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
                for unit, left_ms in _leased(server, name):
                    found[unit.id] = Taken(unit.options.terms.group, now + left_ms, server.number)
        return {job_id: taken for job_id, taken in found.items() if not self._is_over(job_id)}

    def _is_over(self, job_id: bytes) -> bool:
        """Return whether a node knows that a job is done: its consumer has said so there."""
        return any(_knows_its_end(server, job_id) for server in self._servers)

    def ends(self, server: Site) -> None:
        """A process ends: its consumers lose their connections, and may go on working."""
        for name, queue in server.state.queues.by_name.items():
            if not queue.holds & LIMITED:
                continue
            crashed = self._crashed.setdefault(name, {})
            for unit, left_ms in _leased(server, name):
                crashed[unit.id] = Taken(unit.options.terms.group, self._events.now + left_ms, GONE)
        for name in self._crashed:
            others = [each for each in self._servers if each is not server and each.is_up]
            if sum(each.node.witnesses.of(name).is_complete for each in others) <= len(list(self._servers)) // 2:
                self._crashed[name].clear()


def _knows_its_end(server: Site, job_id: bytes) -> bool:
    if not server.is_up:
        return False
    job = server.state.jobs.get(job_id)
    return job_id in server.state.custody.ended if job is None else job.state in (ACKED, DEAD)


def _leased(server: Site, name: bytes) -> Iterator[tuple[Unit, int]]:
    """Go through what consumers of a node have of a queue, and how long they have it from now on."""
    queue = server.state.queues.by_name.get(name)
    now = server.clock.now()
    for unit in queue.leased if queue is not None else ():
        if unit.requeue_at > now:
            yield unit, unit.requeue_at - now
