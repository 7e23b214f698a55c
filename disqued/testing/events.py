"""Virtual time: what is to happen, in the order in which it happens.

    at(when, call, argument) --> a heap of (when, arrival, call, argument) --run--> call(argument)

Events of one millisecond happen in the order in which they were planned, so that one seed gives one story.  Nothing
is ever cancelled: who planned something that is out of date finds that out when it is called, which costs less than
keeping the heap free of it.  `twisted.internet.task.Clock` sorts all its calls whenever one is added; a heap does not.

Times are integer milliseconds since the beginning of the story.
"""

from collections.abc import Callable
from hashlib import blake2b
from heapq import heappop, heappush
from random import Random
from typing import Any

AT_ONCE_MAX = 100_000  #: events in one millisecond; more are nodes that never come to rest


class TimeStandsStill(Exception):
    """Something happens again and again, and no time passes."""


Call = Callable[[Any], None]


def generator(name: str) -> Random:
    """A generator of its own for each thing that is drawn: what is drawn for one does not change the others."""
    return Random(name)  # noqa: S311 - it makes stories, and hides nothing


class EventQueue:
    """A heap of events, and the time that it is."""

    __slots__ = ("_arrivals", "_heap", "_trace", "now")

    def __init__(self) -> None:
        self.now: int = 0
        self._heap: list[tuple[int, int, Call, Any]] = []
        self._arrivals = 0
        self._trace = blake2b(digest_size=16)

    def at(self, when: int, call: Call, argument: Any = None) -> None:
        """Call it with the argument at a time; one that is over is now."""
        self._arrivals += 1
        heappush(self._heap, (when if when > self.now else self.now, self._arrivals, call, argument))

    def after(self, ms: int, call: Call, argument: Any = None) -> None:
        """Call it with the argument so much later."""
        self._arrivals += 1
        heappush(self._heap, (self.now + ms, self._arrivals, call, argument))

    def run(self, until: int) -> None:
        """Let time pass up to a moment, with all that happens until then, that moment included."""
        heap, now, at_once = self._heap, self.now, 0
        while heap and heap[0][0] <= until:
            at, _, call, argument = heappop(heap)
            if at != now:
                self.now = now = at
                at_once = 0
            at_once += 1
            if at_once > AT_ONCE_MAX:
                raise TimeStandsStill(
                    f"{AT_ONCE_MAX} events in the millisecond {at}, the last {call!r} of {argument!r}"
                )
            call(argument)
        self.now = max(self.now, until)

    # What happened.

    def note(self, fact: bytes) -> None:
        """Enter a fact into the trace of this story."""
        self._trace.update(b"%d %b" % (self.now, fact))

    @property
    def trace(self) -> str:
        """What tells one story from another: a hash of all that was noted, in its order."""
        return self._trace.hexdigest()
