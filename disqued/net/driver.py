"""The loop around the node: commit, answers, one timer.

    a client's bytes --> step(s) of the node --> outbox
                                                    |  1  journal: appended, committed once per turn of the loop
                                                    |  2  messages to peers
                                                    |  3  replies
                                                    +  4  the one timer is set to the node's next deadline

While no store wants the journal there is nothing to wait for, and a client is answered as soon as its commands have
run.  Otherwise the replies of every step of one turn of the loop wait for the one commit at the end of that turn:
under `appendfsync always` hundreds of clients share one sync.

When a commit fails nothing of that turn may be acknowledged: the connections whose replies were waiting are closed
without them, and from then on the node refuses to add jobs (MISCONF) while it still serves and acknowledges those
it has.

Source: Disque, src/server.c (beforeSleep); times are integer milliseconds.
"""

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger

from disqued.core.node import Node
from disqued.net.clients import ClientConnection
from disqued.persistence.interface import IStore, StoreFailed


class Driver:
    """Carries out what the node's steps ask for."""

    log = Logger()

    def __init__(self, node: Node, store: IStore, reactor: IReactorTime, on_failure: Callable[[str], None]) -> None:
        """Take a node and the store of its journal; `on_failure` is told why the store failed."""
        self.node = node
        self.store = store
        self.reactor = reactor
        self.failure: str | None = None  #: why the store takes no records any more
        self._on_failure = on_failure
        self._outbox = node.outbox
        self._state = node.state
        self._timer: IDelayedCall | None = None
        self._timer_at = 0
        self._halted = False
        self._waiting: list[ClientConnection] = []
        self._appended = False  #: records wait for the commit
        self._commit_call: IDelayedCall | None = None
        node.state.journaling = bool(store.records)

    # Steps.

    def finish_step(self, client: ClientConnection | None) -> None:
        """Carry out the effects of the step that has just run, on behalf of a client or of the timer."""
        outbox = self._outbox
        if outbox.replies:
            self._hand_over()
        if self._state.journaling:
            self._hold(client)
        elif client is not None:
            client.flush()
        at = self._state.schedule.next_at()
        if at is not None and not self._halted and (self._timer is None or at < self._timer_at):
            self._set_timer(at)

    def _hand_over(self) -> None:
        """Put the replies of clients that were blocked where their other replies wait."""
        outbox, node = self._outbox, self.node
        while outbox.replies:
            replies, outbox.replies = outbox.replies, []
            for client, value, units in replies:
                assert isinstance(client, ClientConnection)
                if units and client.is_gone():
                    node.delivery.give_back(units)
                    continue
                client.unblock(value)
                if node.state.journaling:
                    self._waiting.append(client)
                else:
                    client.flush()
            if node.state.ready:
                node.delivery.serve()

    def _hold(self, client: ClientConnection | None) -> None:
        """Let the step's replies wait for the commit at the end of this turn."""
        outbox = self._outbox
        if outbox.journal:
            records, outbox.journal = outbox.journal, []
            if self.failure is None:
                self.store.append(records)
                self._appended = True
        if client is not None:
            self._waiting.append(client)
        if self._commit_call is None and (self._waiting or self._appended):
            self._commit_call = self.reactor.callLater(0, self._commit)

    def _commit(self) -> None:
        """End a turn: make its records durable, then answer."""
        self._commit_call = None
        self._appended = False
        clients, self._waiting = self._waiting, []
        if self.failure is None:
            try:
                self.store.commit()
            except StoreFailed as error:
                self._fail(str(error))
                for client in clients:
                    client.abort()
                return
        for client in clients:
            client.flush()

    def _fail(self, reason: str) -> None:
        self.failure = reason
        self.log.critical("Journal failed, no more jobs are taken: {reason}", reason=reason)
        self._on_failure(reason)

    def commit_now(self) -> None:
        """Commit what is pending, outside the turns: at shutdown."""
        if self._commit_call is not None:
            self._commit_call.cancel()
            self._commit()

    # The timer.

    def _set_timer(self, at: int) -> None:
        """Be called at a time, and not later."""
        self._timer_at = at
        delay = max(0, at - self.node.state.now) / 1_000
        if self._timer is not None:
            self._timer.reset(delay)
        else:
            self._timer = self.reactor.callLater(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.node.begin()
        self.node.tick()
        self.finish_step(None)

    def run_due(self) -> None:
        """Look at the deadlines now, whatever the timer says: after a load, and when memory or clocks changed."""
        if self._timer is not None:
            self._timer.cancel()
        self._tick()

    def halt(self) -> None:
        """Do nothing more by itself from now on: the node stays as it is."""
        self._halted = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def stop(self) -> None:
        """Commit, close the store and set no timer again."""
        self.halt()
        self.commit_now()
        self.store.close()
