"""Copies that this node keeps of the jobs of other nodes: REPLJOB; `replication` has the theory."""

from disqued.core.model.job import ACKED, FLAG_QUEUED_BEFORE, WAIT_REPL, Job, StoredJob
from disqued.core.model.machine import Hear, Machine
from disqued.core.model.messages import GOTJOB, HOLDERS, REPLJOB
from disqued.core.model.outbox import JOB_ADDED
from disqued.core.model.own_flags import tell_flags
from disqued.core.model.state import State
from disqued.core.model.trace import REPLICATE
from disqued.core.work.acks import Acks
from disqued.core.work.fates import Fates
from disqued.core.work.kinds import StreamMachine
from disqued.core.work.placement import Placement
from disqued.core.work.queueing import Queueing

_NOBODY: frozenset[bytes] = frozenset()


class Replicas(Machine):
    """The machine that keeps copies for other nodes, and confirms them."""

    __slots__ = ("_acks", "_fates", "_placement", "_queueing", "_state", "_streams")

    def __init__(
        self,
        state: State,
        queueing: Queueing,
        streams: StreamMachine,
        placement: Placement,
        *,
        fates: Fates,
        acks: Acks,
    ) -> None:
        self._state = state
        self._acks = acks
        self._fates = fates
        self._queueing = queueing
        self._streams = streams
        self._placement = placement

    def hears(self) -> dict[int, Hear]:
        return {REPLJOB: self.on_repljob}

    def on_repljob(self, sender: bytes, stored: StoredJob, quiet: bool) -> None:
        """Keep a copy, if this node can."""
        state = self._state
        job_id, holders = stored.id, stored.holders or frozenset()
        job = state.jobs.get(job_id)
        if job is not None:
            self._refresh(job, sender, holders, quiet=quiet)
            self._fates.learn_of_copy(job, stored)
            return
        if self._placement.takes_no_copy or state.durability.read_only:
            tell_flags(state, sender)
            return
        if self._queueing.is_paused_in(stored.queue):
            if not quiet:
                state.send(sender, (HOLDERS, job_id, _NOBODY))
            return
        job = self._queueing.copies.make(stored)
        if job is None:
            state.say_ended(sender, job_id)
            return
        if job.options.retry_ms and not job.options.kind:
            # Its first queueing by this node is a redelivery: its origin has queued it before.
            job.flags |= FLAG_QUEUED_BEFORE
        # Nearly always its sender counts this node among the holders; a job that nobody else has, has none.
        if state.node_id not in holders:
            holders = self._placement.join(holders, state.node_id)
        if len(holders) > 1:
            job.holders = state.shared.holders(holders)
        if stored.fate.result is not None:
            self._take_outcome(sender, job, stored, quiet=quiet)
            return
        state.counters.copies += 1
        state.note(REPLICATE, job, who=sender)
        state.register(job)
        if job.options.kind:
            state.schedule.add(job, job.expires_at)
            self._streams.keep(job)
        self._queueing.reschedule(job)
        if not quiet:
            state.send(sender, (GOTJOB, job_id))

    def _take_outcome(self, sender: bytes, job: Job, stored: StoredJob, *, quiet: bool) -> None:
        """Keep the outcome of a job for another node."""
        state = self._state
        state.add_holders(job, frozenset((state.node_id, sender)))
        self._acks.take_outcome(job, stored.requeue, stored.flags)
        if not quiet:
            state.send(sender, (GOTJOB, job.id))

    def _refresh(self, job: Job, sender: bytes, holders: frozenset[bytes], *, quiet: bool) -> None:
        """Hear again of a job that is known here."""
        state = self._state
        if job.state == ACKED:
            if not job.holders:
                # Who holds the job is known now, so that its ack can be collected.
                job.holders = state.shared.holders(holders | {state.node_id})
                state.schedule.move(job, state.now + 1)
            state.say_done(sender, job)
            if job.requeue_at and not quiet:
                # Its result is here.
                state.send(sender, (GOTJOB, job.id))
            return
        if job.state != WAIT_REPL and state.unite_holders(job, holders) and state.journaling:
            state.outbox.journal.append((JOB_ADDED, job))
        if not quiet:
            state.send(sender, (GOTJOB, job.id))
