"""The driver of one simulated process: carries out what its turn asks for, in virtual time.

    step --> core/turn.py --asks--> timer, end of the turn, commit, sync, another attempt --> an event of its own

It does what `net/process/driver.py` does on a loop.  The end of a turn is an event of the same millisecond; with
`commit_ms` a commit takes its time, as one in a thread or on another server does.

The power may fail in the middle of a commit (`PowerFailure`).  The process is over from then on, and so is its driver.

Times are integer milliseconds.
"""

import contextlib
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Final, Protocol

from disqued.core.model.outbox import Asked
from disqued.core.node import Node
from disqued.core.recovery import walk
from disqued.core.turn import RETRY_MS, Messages, Turn
from disqued.persistence.interface import StoreFailed
from disqued.testing.clock import NodeClock
from disqued.testing.events import EventQueue
from disqued.testing.journal import ALWAYS, EVERYSEC, NO, SimJournal
from disqued.testing.recipients import SimClients, SimRecipient

SECURED_MS = 7  #: what a sync takes that held jobs wait for
SYNC_MS = {EVERYSEC: 1_000, NO: 30_000}  #: when what was written is synced, by the store or by the system

#: Where the end of a turn may be cut short.
STAGES: Final = ("before the write", "before the sync", "before the messages", "before the replies")


class PowerFailure:
    """A power failure planned for a stage of the next commit of a node."""

    def __init__(self) -> None:
        self._stage: str | None = None  #: one of STAGES; None = no failure is planned
        self._die: Callable[[], None] = lambda: None

    def plan(self, stage: str, die: Callable[[], None]) -> None:
        """Have `die` called at one of STAGES, in the next turn that commits."""
        self._stage, self._die = stage, die

    def cancel(self) -> None:
        """Take `plan` back."""
        self._stage = None

    def is_planned(self, stage: str) -> bool:
        """Return whether the power fails at this stage."""
        return self._stage == stage

    def strikes(self, stage: str) -> bool:
        """Let the power fail if that is planned for this stage; returns whether it has failed."""
        if self._stage != stage:
            return False
        self._die()
        return True


class Takes(Protocol):
    """Whether a process takes a call now; one that is paused makes the call when it goes on, timers first."""

    def __call__(self, call: Callable[..., None], *arguments: object, is_timer: bool = False) -> bool:
        """Return whether the caller may go on."""


class SimDriver:
    """Carries out what the turn of one process asks for."""

    def __init__(
        self, node: Node, journal: SimJournal, events: EventQueue, clock: NodeClock, *,
        power_failure: PowerFailure, commit_ms: int, rng: Random, takes: Takes,
        watch: Callable[[Callable[[], None]], None], begin_commit: Callable[[], None], committed: Callable[[], None],
        send: Callable[[Messages], None], follow_members: Callable[[], None], follow_trail: Callable[[], None],
        run: Callable[[tuple[bytes, ...], Callable[[object], None]], None],
    ) -> None:  # fmt: skip
        """Take a node and its journal.

        A commit takes up to `commit_ms`, drawn from `rng`; 0 = it is done when it returns.  `takes` returns whether
        the process takes a late call now; `watch` carries out a tick; `begin_commit` hears that a commit begins,
        `committed` that it is done, `run` runs a command and calls back with its value.  The others are as in
        `Outside`.
        """
        self.turn = Turn(node, self)
        self.clients = SimClients(self._replies_leave)
        self.send = send
        self.follow_members = follow_members
        self.follow_trail = follow_trail
        self._run = run
        self._node = node
        self._journal = journal
        self._events = events
        self._clock = clock
        self._power_failure = power_failure
        self._commit_ms = commit_ms
        self._rng = rng
        self._takes = takes
        self._watch = watch
        self._begin_commit = begin_commit
        self._committed = committed
        self._steps = False  #: a step runs: nobody is answered within it
        self._timer_at = 0
        self._turn_open = False
        self._sync_planned = False
        self._is_over = False

    def end(self) -> None:
        """End with the process: do nothing more."""
        self._is_over = True
        self.clients.close()

    # Steps.

    def finish_step(self, recipient: SimRecipient | None = None) -> None:
        """Let the turn follow a step, on behalf of a client or of nobody."""
        self._steps = True
        self.turn.finish_step(recipient)
        self._steps = False

    def _replies_leave(self) -> None:
        if self._steps:
            self.end_turn_soon()

    def answer(self, asked: list[Asked]) -> None:
        for each in asked:
            self._later(0, partial(self._run, each.words, partial(self._tell, each)))

    def _tell(self, asked: Asked, value: object) -> None:
        self._node.begin()
        self._node.questions.answer(asked, value)
        self.finish_step()

    def wake_at(self, at: int) -> None:
        self._timer_at = at
        self._events.at(at - self._clock.offset_ms, self._tick, at)

    def _tick(self, at: int) -> None:
        if self._is_over or at != self._timer_at or not self._takes(self._tick, at, is_timer=True):
            return
        self._timer_at = 0
        self._steps = True
        self._watch(self.turn.tick)
        self._steps = False

    def _later(self, ms: int, call: Callable[[], None]) -> None:
        """Call it so much later, unless the process is over by then."""
        self._events.after(ms, self._call, call)

    def _call(self, call: Callable[[], None]) -> None:
        if not self._is_over and self._takes(self._call, call):
            call()

    # The end of a turn.

    def end_turn_soon(self) -> None:
        if not self._turn_open:
            self._turn_open = True
            self._events.after(0, self.end_turn)

    def end_turn(self, _: None = None) -> None:
        """Make the turn's records durable, then speak."""
        if not self._is_over:
            self._turn_open = False
            self.turn.end()
            self._speak()

    def _speak(self) -> None:
        """Answer the clients whose replies have left the turn."""
        if not self._is_over and not self._power_failure.strikes("before the replies"):
            self.clients.answer()

    # Commits.

    def commit(self) -> str | None:
        """Commit; returns the reason of a failure, "" when it is done, None when it takes its time, or never ends."""
        self._begin_commit()
        if self._commit_ms:
            self._later(self._rng.randrange(self._commit_ms) + 1, self._commit_late)
            return None
        return self._commit()

    def _commit(self) -> str | None:
        failure, journal = self._power_failure, self._journal
        if failure.is_planned("before the sync") and journal.records and not journal.disk.is_full:
            journal.write()  # the bytes are with the system; nobody has asked for the disk yet
        if failure.strikes("before the write") or failure.strikes("before the sync"):
            return None
        try:
            journal.commit()
        except StoreFailed as error:
            reason = str(error)
        else:
            reason = ""
            self._committed()
            if journal.policy in SYNC_MS and not self._sync_planned:
                self._sync_planned = True
                self._later(SYNC_MS[journal.policy], self._sync)
        return None if failure.strikes("before the messages") else reason

    def await_commit(self) -> None:
        """The end of a commit that takes its time is an event of its own."""

    def _commit_late(self) -> None:
        """Carry out a commit that takes its time."""
        reason = self._commit()
        if reason is not None:
            self.turn.committed(reason)
            self._speak()

    def failing(self, before: str | None) -> None:
        """Nobody is told but the clients."""

    def try_again_later(self) -> None:
        self._later(RETRY_MS, self._try_again)

    def _try_again(self) -> None:
        self._node.begin()
        self.turn.try_again()
        self._speak()

    def repair(self) -> None:
        if self._journal.is_bad:
            with contextlib.suppress(StoreFailed):
                self._journal.rewrite(walk(self._node.state))

    def rested(self) -> None:
        """Nothing waits for a commit to be over."""

    def crashed(self) -> None:
        """A bug of ours: the story fails.  Raises what is being handled."""
        raise  # noqa: PLE0704 - it is called while an exception is handled

    def compact(self) -> None:
        """Rewrite the journal from what is there.  Raises StoreFailed."""
        if self._journal.records and self.turn.failure is None and not self.turn.under_way:
            self._journal.commit()
            self._journal.rewrite(walk(self._node.state))

    # Syncs.

    def _sync(self) -> None:
        self._sync_planned = False
        journal = self._journal
        disk = journal.disk
        if self.turn.failure is None and disk.unsynced and not (journal.policy == NO and disk.fails_sync):
            self._sync_now()

    def _sync_now(self) -> str:
        """Sync; returns the reason of a failure, after which no jobs are taken: what was written may be lost."""
        try:
            self._journal.sync()
        except StoreFailed as error:
            self._node.begin()
            self.turn.fail(str(error))
            self.finish_step()
            return str(error)
        return ""

    def secure(self) -> None:
        self._later(0 if self._journal.policy == ALWAYS else SECURED_MS, self._secure)

    def _secure(self) -> None:
        reason = self.turn.failure or self._sync_now()
        self._steps = True
        self.turn.secured(reason)
        self._steps = False

    def secure_later(self, reason: str) -> None:
        self._later(RETRY_MS, self.turn.secure_again)
