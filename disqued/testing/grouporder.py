"""Order within a group of a limited queue in a story: GROUPINFLIGHT 1 runs the jobs of a group one after the other.

    nodes ask for slots   the steward accepts the oldest job of the group that waits for one
    a node hands out      what a steward has accepted; where nothing fails, what it accepted last
    a job comes back      in its place, so that it waits no longer than before

The watch reads which jobs wait at the steward before and after each of its steps, and leases.  `GroupOrder` holds that
against the promise, and knows nothing of nodes.

A place is the order key and the id of a job.
"""

from collections import Counter
from collections.abc import Callable, Collection
from typing import Final, NamedTuple, Protocol

from disqued.core.cluster.stewards import Gift
from disqued.core.model.applicants import Applicant
from disqued.core.model.queues import LIMITED
from disqued.core.model.state import State
from disqued.core.node import Node

Place = tuple[int, bytes]
Group = tuple[bytes, bytes]  #: a queue, and a group of it

TOLD_MAX: Final = 5


class GroupOrder:
    """What stewards have accepted of groups that run one job at a time, and what nodes have handed out of them."""

    def __init__(self, *, fails: bool) -> None:
        """`fails`: faults occur, so that a node may hear late, or of several stewards, what was accepted."""
        self.broken: list[str] = []
        self._fails = fails
        self._last: dict[Group, bytes] = {}  #: the job of each group that was accepted last
        self._accepted: Counter[bytes] = Counter()  #: how often jobs were accepted and not handed out since
        self._keys: dict[bytes, int] = {}  #: order key of each job when it was first accepted

    def accepted(self, group: Group, place: Place, waiting: Collection[Place]) -> None:
        """A steward has accepted a job; these jobs of its group waited before, and wait still."""
        key, job_id = place
        older = min(waiting, default=place)
        if older < place:
            self._tell(f"{job_id!r} of {group} was accepted before {older[1]!r}, which is older and waited")
        if key > self._keys.setdefault(job_id, key):
            self._tell(f"{job_id!r} of {group} came back behind its place")
        self._last[group] = job_id
        self._accepted[job_id] += 1

    def handed_out(self, group: Group, job_id: bytes) -> None:
        """A node has handed out a job."""
        last = self._last.get(group)
        if not self._accepted[job_id]:
            self._tell(f"{job_id!r} of {group} was handed out, and no steward had accepted it")
        elif not self._fails and job_id != last:
            self._tell(f"{job_id!r} of {group} was handed out after {last!r} was accepted")
        if self._accepted[job_id]:
            self._accepted[job_id] -= 1

    def _tell(self, what: str) -> None:
        if len(self.broken) < TOLD_MAX:
            self.broken.append(what)


class Site(Protocol):
    """A node of a story as the watch sees it."""

    state: State
    node: Node


class _Look(NamedTuple):
    """What the steward of a queue knows before a step."""

    is_active: bool  #: it gives slots
    waiting: dict[bytes, Applicant]
    gifts: list[Gift]
    slots: set[bytes]  #: jobs that have slots


NOTHING: Final = _Look(False, {}, [], set())


class GroupOrderWatch:
    """The groups of all nodes of a story."""

    def __init__(self, *, fails: bool) -> None:
        """`fails`: faults occur in the story."""
        self.order = GroupOrder(fails=fails)

    def over(self, server: Site, step: Callable[[], None]) -> None:
        """Carry out a step of a node, and look at what it accepts and hands out."""
        queues = server.state.queues
        names = [name for name in queues.policies.limited if queues.policies.limits_of(name).group_in_flight == 1]
        looks = {name: _look(server, name) for name in names}
        leased = [(queue, set(queue.leased)) for name in names if (queue := queues.by_name.get(name)) is not None]
        step()
        for name, before in looks.items():
            self._see_accepted(name, before, _look(server, name))
        for queue, had in leased:
            for unit in queue.leased.keys() - had if queue.holds & LIMITED else ():
                self.order.handed_out((queue.name, unit.options.terms.group), unit.id)

    def _see_accepted(self, name: bytes, before: _Look, after: _Look) -> None:
        """Note what was accepted.

        A job that has a slot needs no other, and a steward that has just begun has not heard of all that wait.
        """
        for gift in after.gifts:
            if gift in before.gifts:
                continue
            wish = gift.applicant.wish
            takes_turns = before.is_active and wish.job_id not in before.slots
            waiting = [
                (each.wish.order_key, job_id)
                for job_id, each in before.waiting.items()
                if takes_turns and job_id in after.waiting and each.wish.group == wish.group
            ]
            self.order.accepted((name, wish.group), (wish.order_key, wish.job_id), waiting)


def _look(server: Site, name: bytes) -> _Look:
    steward = server.node.stewards.of(name)
    if steward is None:
        return NOTHING
    return _Look(steward.is_active, dict(steward.applicants.by_id), list(steward.gifts), set(steward.table.by_id))
