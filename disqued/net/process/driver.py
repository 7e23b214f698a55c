"""The driver: carries out what a turn asks for, on the loop and with a store.

    a client's bytes --> step(s) of the node --> core/turn.py    what is committed when, who is answered when
                                                    |
                             append, commit, secure |  end of the turn, next deadline, another attempt
                                     store <--------+--------> the loop's timers

While a store is changed for another, both take the records (`handover.py`).

Times are integer milliseconds, those of the loop seconds.
"""

from collections.abc import Callable
from time import perf_counter
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from disqued.core.model.outbox import Asked
from disqued.core.node import Node
from disqued.core.recovery import walk
from disqued.core.turn import RETRY_MS, Messages, Turn
from disqued.net.loop.turns import soon_of
from disqued.net.process.handover import Handover
from disqued.net.process.store_errors import reason_of, report
from disqued.persistence.interface import IStore, StoreError, StoreFailed

log = Logger("disqued.net.process.driver.Driver")  # by its name: who asks cannot be seen where this is compiled


class Commits:
    """Counts of commits, whatever the store; there is one at a time."""

    __slots__ = ("began", "done", "failed", "seconds")

    def __init__(self) -> None:
        self.began: float = 0.0  #: clock reading at the last one's begin
        self.done: int = 0
        self.failed: int = 0
        self.seconds: float = 0.0  #: of those that are done: from the call to the store's answer

    def end(self) -> None:
        """The commit that began last is done."""
        self.done += 1
        self.seconds += perf_counter() - self.began


class Driver:
    """Carries out what the node's turns ask for."""

    def __init__(
        self, node: Node, store: IStore, reactor: IReactorTime, *, send: Callable[[Messages], None],
        on_members: Callable[[], None], on_trail: Callable[[], None], on_crash: Callable[[], None],
        on_asked: Callable[[list[Asked]], None],
    ) -> None:  # fmt: skip
        """Take a node and the store of its journal.

        `send` takes messages to other nodes that may leave now, `on_asked` commands to run for them.  `on_members` is
        called when what is known of the
        other nodes has changed, `on_trail` when the trail has news, `on_crash` while the exception of a bug is handled.
        """
        self.node = node
        self.turn = Turn(node, self)
        self.store = store
        self.reactor = reactor
        self.commits = Commits()
        self.send = send
        self.on_members = on_members
        self.on_trail = on_trail
        self.answer = on_asked
        self.handover = Handover(self.turn, self._find_journals)
        self._on_crash = on_crash
        self._state = node.state
        self._timer: IDelayedCall | None = None
        self._halted = False
        self._soon = soon_of(reactor)
        self._pending: Deferred[None] | None = None  #: the commit under way
        self._is_look_due = False
        self._retry_call: IDelayedCall | None = None
        self._secure_call: IDelayedCall | None = None
        node.state.journaling = False

    def start(self) -> None:
        """Give the store records from now on: it is loaded."""
        self._find_journals()

    def _find_journals(self) -> None:
        """Let records go to the stores that there are."""
        journals = [store for store in (self.store, self.handover.successor) if store is not None]
        self.turn.give_to(*journals)
        self._state.journaling = bool(self.store.records) or self.handover.successor is not None

    # What a turn needs done.

    def wake_at(self, at: int) -> None:
        delay = max(0, at - self._state.now) / 1_000
        if self._timer is not None:
            self._timer.reset(delay)
        else:
            self._timer = self.reactor.callLater(delay, self._tick)

    def follow_members(self) -> None:
        self.on_members()

    def follow_trail(self) -> None:
        self.on_trail()

    def end_turn_soon(self) -> None:
        self._soon(self.turn.end)

    def commit(self) -> str | None:
        """Commit; returns the reason of a failure, "" when it is done, None when the store takes its time."""
        self.commits.began = perf_counter()
        try:
            self._pending = self.store.commit()
        except StoreFailed as error:
            self.commits.failed += 1
            return str(error)
        if self._pending is not None:
            return None
        self.commits.end()
        return ""

    def await_commit(self) -> None:
        assert self._pending is not None
        self._pending.addCallbacks(self._committed, self._failed).addErrback(report)

    def _committed(self, _: None) -> None:
        self._pending = None
        self.commits.end()
        self.turn.committed("")

    def _failed(self, failure: Failure) -> None:
        self._pending = None
        self.commits.failed += 1
        self.turn.committed(str(reason_of(failure)))

    def secure(self) -> None:
        try:
            result = self.store.secure()
        except StoreFailed as error:
            reason = str(error)
            self._soon(lambda: self.turn.secured(reason))
            return
        if result is None:
            self._soon(lambda: self.turn.secured(""))
        else:
            result.addCallbacks(
                lambda _: self.turn.secured(""), lambda failure: self.turn.secured(str(reason_of(failure)))
            ).addErrback(report)

    def secure_later(self, reason: str) -> None:
        log.warn("Jobs that are delivered at most once wait for the store: {reason}", reason=reason)
        if not self._halted:
            self._secure_call = self.reactor.callLater(RETRY_MS / 1_000, self._secure_again)

    def _secure_again(self) -> None:
        self._secure_call = None
        self.turn.secure_again()

    def failing(self, before: str | None) -> None:
        """Log that the store takes no jobs, or takes them again."""
        if self.turn.failure is None:
            log.info("The journal takes jobs again")
        else:
            still = "" if before is None else "still "
            log.error("The journal {still}takes no jobs now: {reason}", still=still, reason=self.turn.failure)

    def try_again_later(self) -> None:
        if self._retry_call is None and not self._halted:
            self._retry_call = self.reactor.callLater(RETRY_MS / 1_000, self._try_again)

    def _try_again(self) -> None:
        self._retry_call = None
        self.turn.try_again()

    def repair(self) -> None:
        if self.store.wants_compaction:
            self._compact_by_itself()

    def rested(self) -> None:
        """Look at the store, and let another one take over, if either is wanted."""
        if self._is_look_due:
            self._is_look_due = False
            self._look()
        if self.handover.is_due:
            self.handover.commit()

    def crashed(self) -> None:
        self._on_crash()

    # The store.

    def look_soon(self) -> None:
        """Between two commits, let the store check whether its files are there, and whether it is to be rewritten."""
        self._is_look_due = True
        self.turn.rest_soon()

    def _look(self) -> None:
        if self.turn.failure is not None or self._halted:
            return
        try:
            self.store.look()
        except StoreFailed as error:
            self.commits.failed += 1
            self.turn.fail(str(error))
            return
        if self.store.wants_compaction and not self.handover.is_due:
            self._compact_by_itself()

    def compact(self) -> None:
        """Begin to make what is stored smaller, in the background.  Raises StoreError."""
        self.store.compact(walk(self._state))

    def _compact_by_itself(self) -> None:
        try:
            self.compact()
        except StoreError as error:
            log.warn("The journal is not rewritten: {reason}", reason=str(error))

    def succeed(self) -> IStore:
        """Make the successor the store; returns the one that is left, which is to be closed."""
        assert self.handover.successor is not None
        left, self.store = self.store, self.handover.successor
        self.handover.drop()
        self._cancel_retry()
        self.turn.recover()
        return left

    # The timer.

    def _tick(self) -> None:
        self._timer = None
        self.turn.tick()

    def run_due(self) -> None:
        """Look at the deadlines now, whatever the timer says: after a load, and when memory or clocks changed."""
        if self._timer is not None:
            self._timer.cancel()
        self._tick()

    # The end.

    def halt(self) -> None:
        """Do nothing more by itself from now on: the node stays as it is."""
        self._halted = True
        self.turn.halt()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._cancel_retry()
        if self._secure_call is not None:
            self._secure_call.cancel()

    def _cancel_retry(self) -> None:
        if self._retry_call is not None:
            self._retry_call.cancel()
            self._retry_call = None

    def resume(self) -> None:
        """Go on after all."""
        self._halted = False
        self.turn.resume()
        if self._secure_call is not None:
            self._secure_again()
        self.run_due()

    async def settle(self) -> None:
        """Commit what is pending and answer, outside the turns."""
        while (pending := self._pending or self.handover.pending) is not None or self.turn.is_planned:
            if pending is not None:
                waiter: Deferred[Any] = Deferred()
                pending.addBoth(waiter.callback)
                await waiter
            else:
                self.turn.end()

    async def stop(self) -> None:
        """Commit, close the store and do nothing again, whoever takes a step.  Raises StoreFailed."""
        self.halt()
        await self.settle()
        self.turn.is_closed = True
        result = self.store.close()
        if result is not None:
            await result
