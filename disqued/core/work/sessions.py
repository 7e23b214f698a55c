"""Sessions: which worker a connection works as.

    by_client    {client: {worker: epoch}}    the last one is who it works as

Every command of a connection is a sign of life of all of its workers.  It is noted once, however many these are.
"""

from disqued.core.model.outbox import Client
from disqued.core.model.state import State
from disqued.core.model.worker import ConnectionWorkers, Worker
from disqued.errors import NoWorker, StaleWorker


class Sessions:
    """The connections that work as workers."""

    __slots__ = ("_state", "by_client")

    def __init__(self, state: State) -> None:
        self._state = state
        self.by_client: dict[Client, ConnectionWorkers] = {}

    def adopt(self, worker: Worker, client: Client) -> None:
        """Let every command of a client be a sign of life; it works as this worker from now on."""
        session = self.by_client.get(client)
        if session is None:
            session = self.by_client[client] = ConnectionWorkers(self._state.now)
        session.workers.pop(worker, None)
        session.workers[worker] = worker.epoch
        worker.clients[client] = session
        worker.alive_at = self._state.now

    def heard(self, client: Client) -> None:
        """Take note of a sign of life, if this client is a worker."""
        session = self.by_client.get(client)
        if session is not None:
            session.heard_at = self._state.now

    def worker_of(self, client: Client) -> Worker:
        """The worker that a client works as.  Raises NoWorker (NOWORKER), StaleWorker (STALE)."""
        session = self.by_client.get(client)
        if session is None:
            raise NoWorker
        worker = next(reversed(session.workers))
        if worker.epoch != session.workers[worker] or not worker.is_alive:
            raise StaleWorker
        return worker

    def last_worker_of(self, client: Client) -> Worker | None:
        """The worker that a client works as, stale or not; None = it is none."""
        session = self.by_client.get(client)
        return None if session is None else next(reversed(session.workers))

    def is_current(self, worker: Worker, client: Client) -> bool:
        """Tell whether the commands of a client are signs of life of this worker."""
        session = self.by_client.get(client)
        return session is not None and session.workers.get(worker) == worker.epoch

    def forget(self, worker: Worker) -> None:
        """Let no client work as a worker that has ended."""
        for client, session in worker.clients.items():
            if self.by_client.get(client) is session:
                del session.workers[worker]
                if not session.workers:
                    del self.by_client[client]
