"""Timeouts: waits that end before there is anything, because their time is up or somebody ends it (CLIENT UNBLOCK).

    consumers    no jobs (`work.blocking`), once nothing can be on its way to one of them alone (`streams.readers`)
    producers    NOREPL: the job is given up, as it does not have its copies (`work.replication`, `work.keys`)
    WAITJOB      how the jobs stand (`work.outcomes`)

Everything else that clients wait for has begun, and ends by itself.
"""

from disqued.core.cluster.local_demand import LocalDemand
from disqued.core.model.groups import GroupWaiter
from disqued.core.model.machine import Acts, Machine, on
from disqued.core.model.outbox import Client
from disqued.core.model.state import State
from disqued.core.model.waiters import Waiter, Watcher
from disqued.core.streams.readers import Readers
from disqued.core.work.blocking import Blocking
from disqued.core.work.keys import Keys, PendingProducer
from disqued.core.work.outcomes import Outcomes, Wait
from disqued.core.work.replication import PendingAddition, Replication
from disqued.errors import CommandError


class Timeouts(Machine):
    """The machine that ends waits."""

    __slots__ = ("_blocking", "_demand", "_keys", "_outcomes", "_readers", "_replication", "_state")

    def __init__(
        self, state: State, blocking: Blocking, readers: Readers, demand: LocalDemand, *, replication: Replication,
        keys: Keys, outcomes: Outcomes,
    ) -> None:  # fmt: skip
        self._state = state
        self._blocking = blocking
        self._readers = readers
        self._demand = demand
        self._replication = replication
        self._keys = keys
        self._outcomes = outcomes

    def due_table(self) -> Acts:
        return on(Waiter, self.due) | on(Watcher, self.due) | on(GroupWaiter, self.due)

    def due(self, waiter: Waiter) -> None:
        """The time of a consumer is up."""
        self._end(waiter, None)

    def _end(self, waiter: Waiter, error: CommandError | None) -> None:
        if not self._readers.puts_off(waiter, error):
            self._blocking.timed_out(waiter, error)
            self._demand.deserted(waiter.queues)

    def unblock(self, client: Client, error: CommandError | None) -> bool:
        """End the time for which a client waits: it is answered as if that were over, or an error.

        Returns False for a client that does not wait, or does not say how long: what other nodes do for it, or this one
        bit by bit, goes on.
        """
        waiter = self._state.waiting.blocked.get(client)
        if waiter is not None:
            if self._readers.ends_soon(waiter):
                return False
            self._end(waiter, error)
            return True
        for item in self._state.waiting.waits.get(client, ()):
            # All that a client waits for is of one command, which ends with the first.
            if isinstance(item, PendingAddition):
                self._replication.timed_out(item, error)
            elif isinstance(item, PendingProducer):
                self._keys.timed_out(item, error)
            elif isinstance(item, Wait):
                self._outcomes.timed_out(item, error)
            else:
                return False
            return True
        return False
