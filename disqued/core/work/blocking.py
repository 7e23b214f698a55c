"""Blocking: consumers that wait, of work queues and of streams.

A consumer that finds nothing is blocked until a queue of its has something (`delivery`, `streams.entrydelivery`), its
time is up or ended by somebody (CLIENT UNBLOCK), its connection ends, or the node refuses all that wait.  Very many are
answered bit by bit.
"""

from typing import Final

from disqued.core.model.machine import Machine
from disqued.core.model.outbox import Client
from disqued.core.model.state import State
from disqued.core.model.unfinished import QuietParts
from disqued.core.model.waiters import Waiter
from disqued.core.work.sessions import Sessions
from disqued.errors import CommandError

SERVED_AT_ONCE: Final = 500  #: consumers that wait and are answered in one go, some milliseconds' work


class Blocking(Machine):
    """The blocked consumers of one node."""

    __slots__ = ("_sessions", "_state")

    def __init__(self, state: State, sessions: Sessions) -> None:
        self._state = state
        self._sessions = sessions

    def block(self, waiter: Waiter, timeout_ms: int) -> None:
        """Let a consumer wait, for `timeout_ms` at most; 0 = for ever."""
        state = self._state
        state.waiting.blocked[waiter.client] = waiter
        waiter.since = state.now
        waiter.enter()
        worker = waiter.form.worker
        if worker is not None:
            worker.waiters[waiter.client] = None
        if timeout_ms:
            state.schedule.add(waiter, state.now + timeout_ms)

    def stop_waiting(self, client: Client) -> bool:
        """Unblock a consumer without an answer; say whether it was blocked."""
        waiter = self._state.waiting.blocked.pop(client, None)
        if waiter is None:
            return False
        waiter.leave()
        self._state.schedule.cancel(waiter)
        self._let_worker_go(waiter)
        return True

    def timed_out(self, waiter: Waiter, error: CommandError | None = None) -> None:
        """Answer a consumer whose time is up: no jobs, or an error where that is wanted."""
        if self.stop_waiting(waiter.client):
            value: object = waiter.nothing if error is None else error
            self._state.outbox.replies.append((waiter.client, value, []))

    def refuse_waiters(self, error: CommandError) -> None:
        """Answer every blocked consumer with an error; very many hear so bit by bit."""
        self._state.begin_work(self._refuse(list(self._state.waiting.blocked.values()), error))

    def flushing(self) -> None:
        """Everything is about to be forgotten, queues and the schedule too: answer every blocked consumer no jobs."""
        waiters = list(self._state.waiting.blocked.values())
        self._state.waiting.blocked = {}
        self._state.begin_work(self._answer_nothing(waiters))

    def _refuse(self, waiters: list[Waiter], error: CommandError) -> QuietParts:
        for count, waiter in enumerate(waiters, 1):
            if self._state.waiting.blocked.get(waiter.client) is waiter and self.stop_waiting(waiter.client):
                self._state.outbox.replies.append((waiter.client, error, []))
            if count % SERVED_AT_ONCE == 0:
                yield

    def _answer_nothing(self, waiters: list[Waiter]) -> QuietParts:
        for count, waiter in enumerate(waiters, 1):
            self._let_worker_go(waiter)
            self._state.outbox.replies.append((waiter.client, None, []))
            if count % SERVED_AT_ONCE == 0:
                yield

    def _let_worker_go(self, waiter: Waiter) -> None:
        """Note that nobody waits any more, for a worker if it was for one; a client that waited has shown life."""
        worker = waiter.form.worker
        if worker is not None:
            worker.waiters.pop(waiter.client, None)
        if self._sessions.by_client:
            self._sessions.heard(waiter.client)
