"""What other nodes are told of the workers of this one: that they live, and what they have."""

from collections.abc import Iterable

from disqued.core.model import messages
from disqued.core.model.job import Job, attempt_of
from disqued.core.model.messages import JOBS_PER_MESSAGE, Held, WorkerStatus
from disqued.core.model.state import State
from disqued.core.model.worker import Worker


def life_of(worker: Worker) -> WorkerStatus:
    """Return what another node is told of a worker."""
    return WorkerStatus(worker.id, worker.epoch, worker.ttl_ms, worker.is_alive)


def held_by(state: State, worker: Worker, job: Job) -> Held:
    """Return what another node is told of a job that a worker has."""
    return Held(job.id, job.scope, attempt_of(job), state.now - worker.leases[job])


def tell_life(state: State, worker: Worker) -> None:
    """Tell all nodes that a worker has come to this one, or has ended."""
    linked = state.peers.linked
    if linked:
        message = (messages.LIVES, (life_of(worker),))
        for node_id in list(linked):
            state.send(node_id, message)


def tell_leases(state: State, worker: Worker, jobs: Iterable[Job]) -> None:
    """Tell the other holders of a worker's jobs to leave them alone."""
    told: dict[bytes, list[Held]] = {}
    for job in jobs:
        holders = job.holders
        if holders:
            held = held_by(state, worker, job)
            for node_id in state.shared.others(holders):
                if node_id in state.peers.linked:
                    told.setdefault(node_id, []).append(held)
    for node_id, held_units in told.items():
        for at in range(0, len(held_units), JOBS_PER_MESSAGE):
            some = tuple(held_units[at : at + JOBS_PER_MESSAGE])
            state.send(node_id, (messages.LEASED, worker.id, worker.epoch, worker.ttl_ms, some))
