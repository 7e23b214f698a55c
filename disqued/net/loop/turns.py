"""Turns of the loop: what is due, then a wait for what comes, then its rounds.

    +--> calls for the end of the turn --> timed calls that are due, calls of threads --> poll --> rounds --+
    |                                                                                                       |
    +-------------------------------------------------------------------------------------------------------+

Fifty clients that wait for each reply make rounds of two or three as a rule, so that what a turn costs is a good part
of what a command costs.  Twisted looks at its timed calls twice in each turn, for 2 microseconds; here two times are
compared, and Twisted is asked when one of its calls is due.  What is to be done when the turn is over (a commit,
messages that leave together) is not a timed call either: one of those takes 4 microseconds to be made, sorted in and
carried out.

Every request passes here, so this is compiled with the core.  It reads of the reactor what Twisted's own loop reads,
and asks in each turn where what tells of something that is due is called otherwise.  Times are seconds.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from time import perf_counter
from typing import Any, Final, Protocol

from twisted.python import log

from disqued.net.loop.rounds import Rounds

SLICE_S: Final = 0.01  #: one that has worked for so long lets others have their turn
LONG_S: Final = 0.001  #: what those whose work is long share in a turn, and the last one of them goes on to its own end
PAUSE_S: Final = 0.002  #: before each piece of long work
LONGEST_S: Final = 86_400.0  #: the loop turns at least so often
#: What tells that Twisted has something to do: calls of threads, timed calls, the end of the loop.
READ: Final = ("threadCallQueue", "_newTimedCalls", "_pendingTimedCalls", "_justStopped")

Soon = Callable[[Callable[[], object]], object]  #: has something called when this turn of the loop is over


def soon_of(reactor: Any) -> Soon:
    """What has something called when the turn of this loop is over: a timed call where it has no `turns`."""
    turns = getattr(reactor, "turns", None)
    if isinstance(turns, Turns):
        return turns.soon
    later: Soon = partial(reactor.callLater, 0)
    return later


class TurnTaker(Protocol):
    """Has more to do than fits into a slice."""

    def turn(self) -> None:
        """Go on with it, for a slice at most."""


class BusyClients:
    """Clients with more to do than fits into a slice: in each turn of the loop they share one, in the order they came.

    Half of a slice is for those whose input is short: they do not wait for long pipelines.  Of those with long work no
    more begin after `LONG_S`.  So a turn does not grow with how many clients there are, and a client that asks for
    little waits for one slice at most.

    What is done for pages and long answers comes in pieces of some tenths of a millisecond, with a pause before each:
    piece after piece without one, a page would take its half of the processor for a tenth of a second, and commands
    that come meanwhile would find a queue, on each node of that processor.
    """

    def __init__(self, reactor: Any) -> None:
        """`reactor` has `callLater`."""
        self._reactor = reactor
        self._short: deque[TurnTaker] = deque()
        self._long: deque[TurnTaker] = deque()
        self._is_due = False

    def __len__(self) -> int:
        return len(self._short) + len(self._long)

    def add(self, client: TurnTaker, *, is_short: bool) -> None:
        """Let a client have its turn, behind those that wait already."""
        (self._short if is_short else self._long).append(client)
        self._call()

    def add_piece(self, piece: TurnTaker) -> None:
        """Let a piece of work that no client's next command waits for have its turn, after a pause."""
        self._reactor.callLater(PAUSE_S, self._add_long, piece)

    def _add_long(self, piece: TurnTaker) -> None:
        self.add(piece, is_short=False)

    def _call(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._reactor.callLater(0, self._share)

    def _share(self) -> None:
        """Let clients go on, one after the other, until the slice is over."""
        self._is_due = False
        for waiting, share_s in ((self._short, SLICE_S / 2), (self._long, LONG_S)):
            ends = perf_counter() + share_s
            for _ in range(len(waiting)):
                client = waiting.popleft()
                try:
                    client.turn()
                except Exception:  # a bug of ours: the others have their turn
                    log.err()  # type: ignore[no-untyped-call]
                if perf_counter() > ends:
                    break
        if self._short or self._long:
            self._call()


class Turns:
    """The loop of a reactor of Twisted's that polls."""

    def __init__(
        self, reactor: Any, rounds: Rounds, *,
        poll: Callable[[float, int], list[tuple[int, int]]], seconds: Callable[[], float],
    ) -> None:  # fmt: skip
        """Take the reactor, what carries out events, what waits for those of so many descriptors, and the clock."""
        self._reactor = reactor
        self._poll = poll
        self._rounds = rounds
        self._seconds = seconds
        self._soon: list[Callable[[], object]] = []
        #: What is due is seen without asking.
        self.sees: bool = all(hasattr(reactor, name) for name in READ)

    def soon(self, call: Callable[[], object]) -> None:
        """Call when the turn is over; one that is asked for by such a call is made a turn later."""
        self._soon.append(call)

    def wait(self) -> float:
        """Carry out what is due; returns for how long nothing else is, 0 where something is already."""
        reactor = self._reactor
        if self._soon:
            self.make_calls()
        running: bool = reactor.running
        if running and self.sees and not (reactor.threadCallQueue or reactor._newTimedCalls or reactor._justStopped):
            pending: list[Any] = reactor._pendingTimedCalls
            if not pending:
                return 0.0 if self._soon else LONGEST_S
            rest: float = pending[0].time - self._seconds()
            if rest > 0.0:
                return 0.0 if self._soon else min(rest, LONGEST_S)
        reactor.runUntilCurrent()
        longest: float | None = reactor.timeout()
        if self._soon or not reactor.running:
            return 0.0
        return LONGEST_S if longest is None else longest

    def make_calls(self) -> None:
        """Make the calls for the end of the turn that is over."""
        calls, self._soon = self._soon, []
        for call in calls:
            try:
                call()
            except BaseException:  # as of Twisted's own timed calls, it is told, and the loop goes on
                log.err()  # type: ignore[no-untyped-call]

    def turn(self, longest: float) -> None:
        """Wait for so long at most, and carry out what comes; a signal ends the wait early."""
        try:
            events = self._poll(longest, len(self._rounds.selectables))
        except InterruptedError:
            return
        self._rounds.run(events)

    def run(self) -> None:
        """Turn until the loop has ended."""
        while self._reactor._started:
            self.turn(self.wait())
