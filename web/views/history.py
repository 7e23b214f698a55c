"""What the queues and the node were like: a second for the last hour, a minute for the last week.

    Pulse, each second --> has any counter of the node changed? --no--> nothing is to be done
                                   | yes
                            a walk over the queues, LOOKED_AT a turn of the loop --> tracks of those that changed

A walk looks at `WALKED_MAX` queues in a second at most; where there are more, the next second goes on, and what
happened to a queue meanwhile is spread evenly over the seconds since the look before.  The same is done with what
happened while the pulse was resting.

`QUEUES_KEPT` queues are remembered.  A new one takes the place of that in which nothing happened for the longest time,
if that is a minute at least; `rings` says what each takes: 273 600
bytes at most, so that all take 55 MB at most, and that only when all were in use for a week.
"""

from collections import OrderedDict
from itertools import pairwise
from typing import Any, Final, Literal

import attrs

from disqued.core.model.queues import Queue
from disqued.core.view import NodeView
from disqued.web.gateway import Gateway
from disqued.web.turns import next_turn
from disqued.web.views.pulse import Pulse
from disqued.web.views.rings import MINUTES, SECONDS, Ring, Track

QUEUES_KEPT: Final = 200
MAKES_ROOM_S: Final = 60
LOOKED_AT: Final = 100  #: queues in a turn of the loop: each may take ten microseconds
WALKED_MAX: Final = 10_000

RANGE_MAX_S: Final = 60 * MINUTES  #: a week
POINTS_MAX: Final = 1_500  #: of an answer, unless it is asked for a finer step
STEPS_S: Final = (1, 5, 15, 60, 300, 600)  #: one of these is taken then

Span = Literal["hour", "week"]  #: a point each second, or each minute


@attrs.frozen
class Series:
    """Points over time, oldest first, no second or minute left out."""

    step_s: int  #: between two points: 1 or 60
    times: list[int]  #: unix seconds
    length: Any  #: jobs in the queue, and events of its log, as the other columns an `array` of numbers
    in_rate: Any  #: jobs queued a second
    out_rate: Any  #: jobs handed to consumers a second
    acked_rate: Any  #: jobs acknowledged a second
    oldest_s: Any  #: age of the job that waits first, or the oldest event, seconds; 0 = there is none

    @property
    def columns(self) -> list[Any]:
        """Times, length, in, out, acked, oldest."""
        return [self.times, self.length, self.in_rate, self.out_rate, self.acked_rate, self.oldest_s]

    def last(self, range_s: int) -> "Series":
        """Return the points of the last `range_s` seconds."""
        count = -(-range_s // self.step_s)
        return Series(self.step_s, *(column[-count:] for column in self.columns))

    def starts(self, step_s: int) -> list[int]:
        """Return where each step begins among the points, and behind them the end of the last one.

        Steps begin at multiples of their length in unix time, so that two answers have the same ones.
        """
        if step_s <= self.step_s or not self.times:
            return list(range(len(self.times) + 1))
        first = -(-(step_s - self.times[0] % step_s) // self.step_s)
        count = len(self.times)
        return [0, *range(min(first, count), count, step_s // self.step_s), count]


def last_of(column: Any, starts: list[int]) -> list[Any]:
    """Return the value at the end of each step."""
    return [column[end - 1] for end in starts[1:]]


def means_of(column: Any, starts: list[int]) -> list[float]:
    """Return the mean within each step."""
    return [sum(column[at:end]) / (end - at) for at, end in pairwise(starts)]


def default_step_s(range_s: int) -> int:
    """Return the finest usual step in which a range has few enough points."""
    least = 1 if range_s <= SECONDS else 60
    return next(step for step in STEPS_S if step >= least and range_s <= step * POINTS_MAX)


@attrs.define
class _QueueWalk:
    """A walk over all queues, and what it has met."""

    began: int  #: slot
    began_at: int  #: monotonic milliseconds
    serial: int = 0  #: of the next queue
    length: int = 0
    oldest: int | None = None  #: ctime of the oldest job in any queue


class History:
    """Everything that is remembered of one node; the site's pulse fills it."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.pulse = Pulse(gateway.reactor, self.sample)
        self._tracks: OrderedDict[bytes, Track] = OrderedDict()  #: those that changed last are last
        self._node = Track(0)
        self._seen = self._counters()
        self._has_walked = False
        self._walk: _QueueWalk | None = None
        self._walked = 0  #: the slot up to which all is known
        self._walked_at = gateway.view.now()

    # Filling.

    async def sample(self, slot: int) -> bool:
        """Take the sample of a second; say whether anything had happened."""
        if self._gateway.loading:
            return False
        seen = self._counters()
        if seen == self._seen and self._walk is None and self._has_walked:
            self._walked, self._walked_at = slot, self._gateway.view.now()
            return False
        before, self._seen = self._seen, seen
        span = max(1, slot - self._walked)
        await self._walk_on(slot, span)
        length, oldest_s = self._node.seen or (0, 0)
        self._node.note(slot, span, (seen[0] - before[0], seen[1] - before[1], seen[2] - before[2]), length, oldest_s)
        return True

    def _counters(self) -> tuple[int, ...]:
        """What has changed if anything has: in, out, acked, and whatever else makes queues longer or shorter."""
        node = self._gateway.view
        counters = node.counters
        return (counters.queued, counters.delivered, counters.acked, node.job_count, counters.expired, counters.deleted,
                counters.cancelled, counters.dequeued, node.queue_count)  # fmt: skip

    async def _walk_on(self, slot: int, span: int) -> None:
        """Look at the next queues, until all were met or it is enough for this second."""
        node = self._gateway.view
        walk = self._walk
        if walk is None:
            walk = self._walk = _QueueWalk(slot, node.now())
        for _ in range(WALKED_MAX // LOOKED_AT):
            queues, walk.serial = node.known_from(walk.serial, LOOKED_AT)
            for queue in queues:
                if queue.serial:  # of a name with jobs alone there is nothing to draw
                    self._look_at(queue, slot, span, walk, node)
            if not walk.serial:
                self._end_walk(walk, node)
                return
            await next_turn(self._gateway.turns)

    def _end_walk(self, walk: _QueueWalk, node: NodeView) -> None:
        self._walk, self._has_walked = None, True
        self._walked, self._walked_at = walk.began, walk.began_at
        oldest_s = 0 if walk.oldest is None else max(0, node.wall() - walk.oldest // 1_000_000) // 1_000
        self._node.seen = (walk.length, oldest_s)

    def _look_at(self, queue: Queue, slot: int, span: int, walk: _QueueWalk, node: NodeView) -> None:
        length, ctime = queue.length, queue.oldest
        oldest_s = 0.0
        if len(queue.units):
            # Events are kept, whoever has seen them: that they are old says nothing of the node.
            first = queue.units.first.job.ctime
            walk.length += len(queue.units)
            walk.oldest = first if walk.oldest is None else min(walk.oldest, first)
        seen = (queue.jobs_in, queue.delivered, queue.acked, length)
        track = self._tracks.get(queue.name)
        if track is None or track.identity != (queue.serial, queue.created_at):
            is_quiet = queue.accessed_at < self._walked_at
            if is_quiet and (not length or len(self._tracks) >= QUEUES_KEPT):
                return  # it has been like this for longer than anybody has looked
            known = (0, 0, 0) if queue.created_at >= self._walked_at else seen
            track = self._begin(queue, slot - span, track, known)
            if track is None:
                return
            track.known_from = slot if known is seen else slot - span
        elif track.seen == seen:
            return
        if ctime is not None:
            oldest_s = max(0, node.wall() - ctime // 1_000_000) / 1_000
        before = track.seen
        track.seen = seen
        counts = (max(0, seen[0] - before[0]), max(0, seen[1] - before[1]), max(0, seen[2] - before[2]))
        track.note(slot, span, counts, length, oldest_s)
        self._tracks.move_to_end(queue.name)

    def _begin(self, queue: Queue, slot: int, track: Track | None, seen: tuple[int, ...]) -> Track | None:
        """Begin to remember a queue; the one in which nothing happened for the longest time makes room, if need be.

        None when something happened in all of them just now: none of them is worth less.
        """
        if track is None:
            if len(self._tracks) >= QUEUES_KEPT:
                first = next(iter(self._tracks))
                if slot - self._tracks[first].changed_at < MAKES_ROOM_S:
                    return None
                del self._tracks[first]
            track = self._tracks[queue.name] = Track(slot)
        track.identity, track.seen = (queue.serial, queue.created_at), seen
        return track

    # Reading.

    def queue(self, name: bytes, span: Span) -> Series | None:
        """What a queue was like in the last hour or week; None when nothing is remembered of it."""
        self.pulse.look()
        track = self._tracks.get(name)
        if track is None:
            return None
        if self._gateway.view.queue(name) is None and track.last.length:
            track.note(self._walked, 1, (0, 0, 0), 0, 0.0)  # it is gone, and with it what was in it
        return self._series(track, span)

    def acked_in_minute(self, name: bytes) -> int | None:
        """Count the jobs of a queue that were acknowledged here in the last minute; None = it is not remembered."""
        series = self.queue(name, "hour")
        return None if series is None else round(sum(series.acked_rate[-60:]))

    def node(self, span: Span) -> Series:
        """What the node was like: its queues together."""
        self.pulse.look()
        return self._series(self._node, span)

    def last_rates(self, queue: Queue) -> tuple[float, float] | None:
        """Jobs queued and handed out a second, as the last sample of a queue has it; None before there are two."""
        self.pulse.look()
        track = self._tracks.get(queue.name)
        if track is None or track.identity != (queue.serial, queue.created_at):
            # One that is not remembered is known to be quiet, if it was so in the second before the last walk, too.
            is_quiet = self._has_walked and queue.accessed_at < self._walked_at - 1_000
            return (0.0, 0.0) if is_quiet else None
        track.rest(self._walked)
        return (track.last.in_rate, track.last.out_rate) if track.hour.newest > track.known_from else None

    def last_rates_of_node(self) -> tuple[float, float, float] | None:
        """Jobs queued, handed out and acknowledged a second, as the last sample has it; None while there is none."""
        self.pulse.look()
        if not len(self._node.hour):
            return None
        self._node.rest(self._walked)
        return self._node.last.in_rate, self._node.last.out_rate, self._node.last.acked_rate

    @property
    def backlog(self) -> int:
        """Jobs that wait in the queues of the node, as the last sample has it."""
        return self._node.last.length

    def acked_rate(self, name: bytes) -> float | None:
        """Jobs of a queue acknowledged a second, as the last sample has it; None when nothing is remembered of it."""
        track = self._tracks.get(name)
        if track is None:
            return None
        track.rest(self._walked)
        return track.last.acked_rate

    def _series(self, track: Track, span: Span) -> Series:
        track.rest(self._walked)
        ring, step_s = (track.hour, 1) if span == "hour" else (track.week, 60)
        return Series(step_s, self._times(ring, step_s), *ring.columns())

    def _times(self, ring: Ring, step_s: int) -> list[int]:
        """When the slots of a ring were, by the wall clock as it is now."""
        now_s = self._gateway.view.wall() // 1_000
        newest = now_s - (self.pulse.seconds - ring.newest * step_s)
        return list(range(newest - (len(ring) - 1) * step_s, newest + 1, step_s)) if len(ring) else []
