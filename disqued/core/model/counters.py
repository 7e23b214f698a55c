"""What one node has done since it started: counts that only grow, and two histograms of times.

    added --> queued --> delivered --> acked            jobs of producers of this node, and what became of them
                ^  |         |
                |  +-> given +--> returned              to other nodes; by consumers that never saw them
                +-- nacked, requeued, imported

A count is one attribute that is incremented where the thing happens.  CONFIG RESETSTAT leaves them alone.

Histograms have a bucket for each power of two: a time of `ms` milliseconds is counted in ``buckets[ms.bit_length()]``,
so that bucket 0 is below 1 ms and bucket `b` from ``2**(b - 1)`` up to ``2**b`` ms.  They are worked out from what a
job knows anyway, and cost it no memory:

waiting    from the moment that a job came into the queue of this node to its delivery.  A job with retry > 0 knows it
           by `requeue_at`, which is a retry period later; each delivery counts, from when the job was queued last.
           One that went back unseen, since its consumer was gone, began to wait when it was handed to that consumer.
           One with retry 0 does not know it, so that its creation and its delay stand for it, on the wall clock: what
           it waited on other nodes is in it, and so are differences between clocks.
in flight  from delivery by this node to the moment that it hears of the ack.  It is known by `requeue_at`, too: WORKING
           begins it anew, so that what is counted is the time since the last WORKING.  An ack that comes after the
           retry period, when the job is queued again or elsewhere, is not in it, nor any of jobs with retry 0.
           When other nodes hold the job and the ack comes within half a second of the retry period's end, it may be
           half a second short.
"""

from typing import Final

from disqued.core.model.outbox import GONE_DELETED, GONE_EXPIRED, GONE_REFUSED

#: Enough for every span that a job can have, however wrong the clocks are.
BUCKETS: Final = 66


class Counters:
    """Counts of one node."""

    __slots__ = (
        "acked_untimed", "acks_heard", "added", "background_failed", "buried", "cancelled", "cancels_heard", "copies",
        "dequeued", "evicted_acked", "evicted_once", "exported", "fast_acked", "firings_refused", "flight_buckets",
        "flight_ms", "gone", "imported", "instants_fired", "instants_late", "instants_missed", "instants_skipped",
        "nacked", "outcomes", "queued", "recovered", "redelivered", "redriven", "refused", "repeated", "requeued",
        "returned", "tasks_given_back", "unique_refused", "waiting_buckets", "waiting_ms", "workers_died", "working",
    )  # fmt: skip

    def __init__(self) -> None:
        self.added: int = 0  #: jobs made for producers of this node; those that were `refused` later are in it
        self.refused: int = 0  #: jobs that were not added, or given up, for want of copies (NOREPL)
        self.repeated: int = 0  #: times that ADDJOB named the job of a key, which another one had added
        self.background_failed: int = 0  #: pushes that were to go on in the background (NOBLOCK), and added nothing
        self.queued: int = 0  #: times that a job came into a queue
        self.requeued: int = 0  #: of these: without a NACK, and not for the first time
        self.redelivered: int = 0  #: deliveries of jobs with RETRY > 0 that were queued before
        self.recovered: int = (
            0  #: elements of lists that consumers had and that were handed to another one (RQ.RECOVER)
        )
        self.returned: int = 0  #: deliveries that were undone, as the consumer was gone; queued again without a count
        self.acked_untimed: int = 0  #: jobs that were acknowledged and were not known to be in flight
        self.fast_acked: int = 0  #: acknowledged by FASTACK
        self.acks_heard: int = 0  #: acknowledged because another node said so
        self.nacked: int = 0  #: jobs that were given back by NACK
        self.buried: int = 0  #: jobs that died here: after the last of their tries, or by NACK DEAD
        self.redriven: int = 0  #: dead jobs that this node queued again (REDRIVE)
        self.cancelled: int = 0  #: jobs that ended as cancelled, by CANCEL, a purge or with their queue
        self.cancels_heard: int = 0  #: of these: because another node said so
        self.outcomes: int = 0  #: outcomes of jobs with RESULT that this node kept for their time
        self.instants_fired: int = 0  #: instants of schedules whose jobs this node made
        self.instants_late: int = 0  #: of these: more than 10 s after the instant
        self.instants_skipped: int = 0  #: instants that this node passed over, as the last job was not over
        self.instants_missed: int = 0  #: before these: instants that were missed, and beyond CATCHUP
        self.firings_refused: int = 0  #: times that the job of an instant was refused; it is tried again
        self.dequeued: int = 0  #: jobs that left their queue and were not delivered (DEQUEUE, WORKING, QUEUED)
        self.working: int = 0  #: times that WORKING put a delivery off
        self.workers_died: int = 0  #: without a sign of life, with their connection, or since somebody said so (FAIL)
        self.tasks_given_back: int = 0  #: that went back to their queue: by their worker, or since that ended
        self.unique_refused: int = 0  #: times that tasks were refused since one of them was there already (DUPLICATE)
        self.copies: int = 0  #: copies that were taken for other nodes
        self.imported: int = 0  #: jobs that another node brought and that came into a queue
        self.exported: int = 0  #: jobs that were taken out of a queue for another node
        self.evicted_acked: int = 0  #: acked jobs dropped for want of memory, before all nodes knew
        self.evicted_once: int = 0  #: at-most-once jobs, delivered, dropped for want of memory
        #: Jobs that are gone for a reason that is not an ack, by GONE_... reason; evicted ones are counted above.
        self.gone: dict[bytes, int] = {GONE_EXPIRED: 0, GONE_DELETED: 0, GONE_REFUSED: 0}
        self.waiting_buckets: list[int] = [0] * BUCKETS  #: deliveries by how long the job was queued
        self.waiting_ms: int = 0  #: the sum of these times
        self.flight_buckets: list[int] = [0] * BUCKETS  #: acks by how long the consumer had the job
        self.flight_ms: int = 0  #: the sum of these times

    @property
    def delivered(self) -> int:
        """Times that a job was handed to a consumer."""
        return sum(self.waiting_buckets)

    @property
    def given(self) -> int:
        """Times that a job left its queue for a consumer or another node."""
        return self.delivered + self.exported

    @property
    def acked(self) -> int:
        """Jobs known here that were acknowledged, whoever said so."""
        return sum(self.flight_buckets) + self.acked_untimed

    @property
    def expired(self) -> int:
        """Jobs whose time was over before they were acknowledged."""
        return self.gone[GONE_EXPIRED]

    @property
    def deleted(self) -> int:
        """Jobs that were dropped because a client or another node said so (DELJOB, FASTACK elsewhere)."""
        return self.gone[GONE_DELETED]

    @property
    def lost_additions(self) -> int:
        """Jobs that were taken back because the journal failed before their producers were answered (MISCONF)."""
        return self.gone[GONE_REFUSED]
