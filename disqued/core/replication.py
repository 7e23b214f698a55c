"""Adding a job: admission, and the copies that are wanted before the producer is answered.

    ADDJOB --> refused, or
               registered, queued (or scheduled, when delayed) --> the id is returned

A copy on this node counts, unless the node takes none: because memory is low, or because it is leaving.

Source: Disque, src/job.c; the Disque README, "Jobs replication strategy".
"""

from disqued.core.delivery import Delivery
from disqued.core.job import Job, JobOptions
from disqued.core.queues import PAUSE_IN
from disqued.core.state import State
from disqued.errors import NotReplicated, QueuePaused, QueueTooLong

DEFAULT_COPIES = 3  #: copies wanted when the producer does not say, as far as there are nodes


class Replication:
    """The machine behind ADDJOB."""

    __slots__ = ("_delivery", "_state", "wishes")

    def __init__(self, state: State, delivery: Delivery) -> None:
        self._state = state
        self._delivery = delivery
        #: What ADDJOB made of the options that it was given: (ttl, retry, delay, replicate), seconds, None = not given.
        self.wishes: dict[tuple[int, int | None, int, int | None], JobOptions] = {}

    def forget_wishes(self) -> None:
        """The nodes that can be reached are others now, and what was made of wishes depends on them."""
        self.wishes.clear()

    @property
    def default_copies(self) -> int:
        """Copies when the producer does not say how many: this node's and those of reachable nodes, three at most."""
        return min(DEFAULT_COPIES, 1 + len(self._state.peers.reachable))

    def add(self, queue_name: bytes, body: bytes, options: JobOptions, maxlen: int) -> bytes:
        """Create a job and return its id; `maxlen` 0 = no limit.

        Raises NotReplicated (NOREPL), QueueTooLong (MAXLEN), QueuePaused (PAUSED).
        """
        state = self._state
        memory = state.memory
        if options.replicate > 1 or memory.used > memory.low_mark or state.leaving:
            self._check_copies(options.replicate)
        queue = state.queues.by_name.get(queue_name)
        if queue is not None:
            if maxlen and len(queue.units) >= maxlen:
                raise QueueTooLong
            if queue.pause & PAUSE_IN:
                raise QueuePaused
        elif not options.delay_ms:
            queue = state.queue(queue_name)
        if options.stamped_at != state.now:
            options.stamp(state.now)
        name = queue_name if queue is None else queue.name
        job_id = state.ids.next(options.ttl_suffix)
        job = Job(job_id, name, body, state.next_ctime(), options)
        state.register(job)
        state.schedule.add(job, options.first_at)
        if queue is not None and not options.delay_ms:
            self._delivery.enqueue_new(job, queue)
        return job_id

    def _check_copies(self, replicate: int) -> None:
        """Refuse a job for which there are too few nodes."""
        state = self._state
        external = state.memory.is_low or state.leaving
        missing = replicate - (0 if external else 1) - len(state.peers.reachable)
        if missing <= 0:
            return
        if external and missing == 1:
            reason = "I'm leaving the cluster" if state.leaving else "I'm out of memory"
            raise NotReplicated(
                f"{NotReplicated.__doc__}, "
                f"since I'm unable to hold a copy of the message for the following reason: {reason}"
            )
        raise NotReplicated
