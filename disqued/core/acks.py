"""Acknowledgement: forgetting a job, never too early.

    client --ACKJOB--> known here, and held by nobody else: dropped at once
                       unknown: ignored

Source: Disque, src/ack.c.
"""

from disqued.core.job import ACKED
from disqued.core.outbox import GONE_DELETED
from disqued.core.state import State


class Acks:
    """The machine behind ACKJOB, FASTACK and DELJOB."""

    __slots__ = ("_state",)

    def __init__(self, state: State) -> None:
        self._state = state

    def acknowledge(self, job_id: bytes) -> bool:
        """Note that a job is done; say whether it was known here and not done before."""
        state = self._state
        job = state.jobs.get(job_id)
        if job is None or job.state == ACKED:
            return False
        queue = state.queues.by_name.get(job.queue)
        if queue is not None:
            queue.acked += 1
        state.finish(job)
        return True

    def delete(self, job_id: bytes) -> bool:
        """Drop a job from this node alone, whatever its state; say whether it was known."""
        job = self._state.jobs.get(job_id)
        if job is None:
            return False
        self._state.forget(job, GONE_DELETED)
        return True
