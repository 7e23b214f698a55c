"""Deliveries after an answered acknowledgement, and whether word of it could have come in time.

    an ACKJOB is answered at node a ......... a consumer gets the job from node b
                  |  word travels over every way that was open meanwhile, over other nodes too
                  v
    apart       it could not reach b: nodes were down, stood still, or no connection between them could be open
    unlinked    connections could be open, and were not yet: they are dialed again and again
    crossing    it could be at b, but for `CLOSE_MS` at most
    late        it could have been at b before

Only a simulation knows that.  A connection can be open while neither way between two nodes is blocked.  What is apart
has to happen where a job is to be had on both sides of a partition; what is late is a fault of the protocol.

Times are integer milliseconds of the story.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from disqued.testing.checker import NodeName, Request
    from disqued.testing.world import World

APART: Final = "apart"
UNLINKED: Final = "unlinked"
CROSSING: Final = "crossing"
LATE: Final = "late"
CLOSE_MS: Final = 100  #: that word may be under way, or not be looked at yet
LOOK_MS: Final = 10  #: between two looks at the ways
HOP_MS: Final = 3  #: from one node to the next one, where nothing is slow

Ways = frozenset[tuple[int, int]]


class Returns:
    """Watches the ways between the nodes of a story, and counts what comes again after its end."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._times: list[int] = []  #: when the ways changed
        self._ways: list[tuple[Ways, Ways]] = []  #: from then on: on which a connection could be, and is
        self._look()

    def _look(self, _: object = None) -> None:
        events = self._world.events
        ways = self._now()
        if not self._ways or self._ways[-1] != ways:
            self._times.append(events.now)
            self._ways.append(ways)
        events.after(LOOK_MS, self._look)

    def _now(self) -> tuple[Ways, Ways]:
        network = self._world.network
        possible, linked = set(), set()
        for path in network.paths:
            source, target = path.source, path.target
            awake = source.is_up and target.is_up and not source.is_paused and not target.is_paused
            if path.blocks or not awake:
                continue
            way = (source.number, target.number)
            is_linked = path.link is not None and path.link.is_open
            if is_linked:
                linked.add(way)
            if is_linked or not network.path(target, source).blocks:
                possible.add(way)
        return frozenset(possible), frozenset(linked)

    @property
    def counts(self) -> Counter[str]:
        """How many deliveries there were of each kind."""
        return Counter(self._kind(request, at, node) for request, at, node in self._world.returned)

    def _kind(self, request: "Request", at: int, node: "NodeName") -> str:
        assert request.acked_at is not None
        if self._arrival(request, at, node, linked=False) >= at:
            return APART
        arrival = self._arrival(request, at, node, linked=True)
        if arrival >= at:
            return UNLINKED
        return CROSSING if at - arrival <= CLOSE_MS else LATE

    def _arrival(self, request: "Request", until: int, node: "NodeName", *, linked: bool) -> int:
        """When word could be at a node, at the earliest; `until` = not before that."""
        assert request.acked_at is not None
        known = {request.acked_on: request.acked_at}
        for start, end, ways in self._spans(request.acked_at, until):
            news = True
            while news:
                news = False
                for source, target in ways[linked]:
                    at = max(known.get(source, until), start) + HOP_MS
                    if at <= end and at < known.get(target, until):
                        known[target] = at
                        news = True
        return known.get(node, until)

    def _spans(self, since: int, until: int) -> Iterator[tuple[int, int, tuple[Ways, Ways]]]:
        """The ways between two times: (from, until, what was open)."""
        times = self._times
        for number in range(max(0, bisect_right(times, since) - 1), len(times)):
            if times[number] >= until:
                return
            end = times[number + 1] if number + 1 < len(times) else until
            yield max(since, times[number]), min(end, until), self._ways[number]
