"""Handover: another store takes the records of each step, and takes over when it has everything.

    store ----------------------------------> left
         records of each step to both           ^  one commit of both, then the word that the new one counts
    successor --- walk, in slices --- complete -+

`switching.py` fills the successor; `driver.py` commits to the store that counts.
"""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed

from disqued.core.turn import Turn
from disqued.net.process.store_errors import reason_of, report
from disqued.persistence.interface import IStore, StoreFailed

Done = Callable[[StoreFailed | None], "Deferred[None] | None"]


class Handover:
    """The store that will replace the one that counts."""

    def __init__(self, turn: Turn, changed: Callable[[], None]) -> None:
        """`changed` is called when there is a successor, or none any more."""
        self.successor: IStore | None = None  #: receives the same records as the store
        self.pending: Deferred[Any] | None = None  #: its commit, and what follows; nothing is acknowledged meanwhile
        self._turn = turn
        self._changed = changed
        self._done: Done | None = None

    @property
    def is_due(self) -> bool:
        """True when the successor is to take over between two commits."""
        return self._done is not None

    def follow(self, successor: IStore) -> None:
        """Give a store that is open and empty the records of each step from now on, beside the one that counts."""
        self._turn.append()
        self.successor = successor
        self._changed()
        begin_watermark(self._turn)

    def hand_over(self, done: Done) -> None:
        """Let the successor, which was given everything by now, take over.

        `done` gets the error, or None at a moment when the successor holds all that was ever acknowledged.  Nothing is
        acknowledged until its Deferred has fired, before which it calls `Driver.succeed`.
        """
        self._done = done
        self._turn.rest_soon()

    def commit(self) -> None:
        """Commit to the successor, and let it take over."""
        done, self._done = self._done, None
        assert done is not None
        assert self.successor is not None
        committing: Deferred[Any]
        try:
            committing = self.successor.commit() or succeed(None)
        except StoreFailed as error:
            committing = fail(error)
        self.pending = committing
        self._turn.occupy()
        committing.addCallbacks(lambda _: done(None), lambda failure: done(reason_of(failure)))
        committing.addErrback(report).addCallback(self._over)

    def _over(self, _: None) -> None:
        self.pending = None
        self._turn.vacate()
        self._turn.go_on()

    def drop(self) -> None:
        """Give records to the store alone."""
        self.successor = None
        self._done = None
        self._changed()


def begin_watermark(turn: Turn) -> None:
    """Let a journal that has no watermark have one, with whatever it is given next."""
    state = turn.node.state
    if state.journaling and not state.durability.watermark.until:
        turn.append()
        record = state.begin_watermark()
        for journal in turn.journals:
            journal.append([record])
