"""Replication: the copies that are wanted before the producer is answered.

    a job of which more copies are wanted is registered as WAIT_REPL; its producer is blocked

    us    --REPLJOB--> as many nodes as there are copies wanted, drawn among those that can be reached
    them  --GOTJOB---> us                       durable there; job.confirmed
    50 ms later, and every 50 ms: REPLJOB to one node more; HOLDERS to the earlier ones, which may hold it, too
    who has not answered gets REPLJOB again, after 50 ms, 100 ms ... up to 1 s
    (and 1 ms more for each 5 kB of body: a copy that is still on its way comes no sooner for being sent twice)

    enough GOTJOB       the job is journalled and queued, its id is answered
    time is up          NOREPL; DELJOB to all who may hold it, again to one that says GOTJOB later
    the producer leaves the same, without an answer
    SETACK, ACKJOB      somebody has done the job: that is as good as enough copies

While this node takes no copy, all copies are external: one of the nodes that confirmed is told to queue the job
(ENQUEUE), and it is forgotten here.

With ASYNC nobody waits: the job is journalled and queued at once, with the nodes that it is sent to as its holders, so
that its ack reaches them whatever happens here.

A node takes a copy unless one of these speaks against it; the sender finds others, and if there are none:

    why not                        what the node says         what the producer hears, at once
    leaving                        PONG (NODE_LEAVING)        NOREPL, naming the node; by default: fewer copies
    memory low, journal failed     PONG (NODE_FULL)           NOREPL, naming the node; by default: fewer copies
    queue paused                   HOLDERS (nobody)           PAUSED
    the job has ended there        SETACK                     the id: somebody has done it
    link broken, being restarted   nothing                    the id when it is back, or NOREPL at the time-out;
                                                              by default: fewer copies
    link open and silent           nothing                    NOREPL at the time-out; once it is suspected,
                                                              NOREPL to the next one, and by default fewer copies

Times are integer milliseconds.  Source: Disque, src/job.c; the Disque README, "Jobs replication strategy".
"""

from collections.abc import Callable

from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    FLAG_GIVEN_UP,
    INTO_ACTIVE,
    INTO_WAIT_REPL,
    WAIT_REPL,
    WORK_SCOPE,
    Job,
    forbidden,
)
from disqued.core.model.machine import Acts, Machine, on
from disqued.core.model.memory import PENDING_COST
from disqued.core.model.messages import DELJOB, ENQUEUE, HOLDERS, REPLJOB
from disqued.core.model.outbox import JOB_ADDED, Client
from disqued.core.model.phases import list_delayed
from disqued.core.model.schedule import Timed
from disqued.core.model.state import State
from disqued.core.model.trace import ADD, ELSEWHERE, NOREPL, REFUSE
from disqued.core.work.background import BackgroundClient
from disqued.core.work.kinds import StreamMachine
from disqued.core.work.placement import Placement, Places, naming_policy, timed_out
from disqued.core.work.queueing import Queueing
from disqued.errors import CommandError, NotReplicated

MORE_NODES_MS = 50  #: pause before one more node is asked for a copy
TRANSFERRED_PER_MS = 5_000  #: bytes of a body for which a millisecond more is waited: sending it again makes it slower
RESEND_MAX_MS = 1_000  #: the longest pause between two requests to a node that does not answer, beside that
REFUSED_KEPT = 10_000  #: ids of jobs that were given up, which may still turn up elsewhere

REMOVED = "job removed (expired?) before the requested replication level was achieved"
_NOBODY: frozenset[bytes] = frozenset()


class Batch:
    """Jobs that are added together: all of them, or none."""

    __slots__ = ("client", "is_over", "missing", "pendings", "value", "when_over")

    def __init__(self, client: Client | None, when_over: Callable[[bool], None] | None = None) -> None:
        self.client: Client | None = client  #: None = nobody waits
        self.value: object = None  #: what it is answered when all is well
        self.when_over: Callable[[bool], None] | None = when_over  #: told whether it failed, where nobody waits
        self.pendings: list[PendingAddition] = []
        self.missing: dict[bytes, None] = {}  #: jobs of which there are not copies enough so far
        #: True when nothing is waited for any more; False at first only where there is something.
        self.is_over: bool = True


class PendingAddition(Timed):
    """A producer that waits for copies of its job."""

    __slots__ = (
        "batch", "by_default", "client", "deadline_at", "job", "more_at", "patience_ms", "refused_by", "resend_at",
        "resend_ms",
    )  # fmt: skip

    def __init__(
        self, job: Job, client: Client | None, deadline_at: int, now: int, *, by_default: bool,
        batch: Batch | None = None,
    ) -> None:  # fmt: skip
        self.awake_at = 0
        self.job: Job = job
        self.client: Client | None = client  #: None = nobody, of a batch that is added in the background
        self.batch: Batch | None = batch  #: of the jobs that are added together; None = it is the only one
        self.by_default: bool = by_default  #: as many copies as can be made are enough
        self.deadline_at: int = deadline_at  #: when the producer has waited for long enough; 0 = never
        self.refused_by: frozenset[bytes] = _NOBODY  #: nodes on which the queue of the job is paused
        #: Pause before one more node is asked, and before the first is asked again: the transfer takes its time.
        self.patience_ms: int = MORE_NODES_MS + len(job.body) // TRANSFERRED_PER_MS
        self.resend_ms: int = self.patience_ms
        self.more_at: int = now + self.patience_ms
        self.resend_at: int = self.more_at


class Replication(Machine):
    """The machine that gets copies of jobs made on other nodes, and answers the producers that wait for them."""

    __slots__ = ("_placement", "_queueing", "_reached", "_refused", "_state", "_streams", "pending")

    def __init__(self, state: State, queueing: Queueing, streams: StreamMachine, placement: Placement) -> None:
        self._state = state
        self._queueing = queueing
        self._streams = streams
        self._placement = placement
        self.pending: dict[bytes, PendingAddition] = {}  #: by the ids of jobs whose producers wait for copies
        #: Jobs that were given up, oldest first, and who may keep them all the same: a node id, or nobody.
        self._refused: dict[bytes, bytes] = {}
        self._reached: frozenset[bytes] = _NOBODY  #: nodes that could be reached when that changed last

    def due_table(self) -> Acts:
        return on(PendingAddition, self.due)

    def abandon_table(self) -> Acts:
        return on(PendingAddition, self.forsake)

    def reachable_changed(self) -> None:
        """The nodes that can be reached are others now: wishes come to something else, and some may be fulfilled."""
        state = self._state
        reachable = frozenset(state.peers.reachable)
        back, self._reached = reachable - self._reached, reachable
        waiting: list[PendingAddition] = list(self.pending.values())
        for pending in waiting:
            if self.pending.get(pending.job.id) is pending:
                self._look_again(pending, back)

    def _look_again(self, pending: PendingAddition, back: frozenset[bytes]) -> None:
        """See what other nodes that can be reached mean for a producer; `back`: those that could not be before."""
        job = pending.job
        if pending.by_default and self._has_enough(pending):
            self._achieve(pending)
        elif not self._is_possible(pending):
            too_few = self._placement.not_replicated()
            named = naming_policy(too_few, self._state, job.queue, job.options.replicate)
            self._fall_short(pending, self._paused(pending) if pending.refused_by else named)
        elif back:
            holders = job.holders or _NOBODY
            again = back & holders - (job.confirmed or _NOBODY) - pending.refused_by
            self._send_copies(job, sorted(again), quiet=False)
            if back - holders:
                pending.more_at = self._state.now
                self._wake(pending)

    def _is_possible(self, pending: PendingAddition) -> bool:
        """Tell whether there may be copies enough yet: nodes that do not answer may, those that refuse will not."""
        possible = self._placement.willing - pending.refused_by | (pending.job.confirmed or _NOBODY)
        return len(possible) >= pending.job.options.replicate

    # Making copies.

    def add_quietly(self, job: Job, places: Places) -> None:
        """Add a job whose copies nobody waits for."""
        self._state.note(ADD, job, who=self._state.trace.actor, word=b"" if places.own else ELSEWHERE)
        self._send_copies(job, places.chosen, quiet=True)
        if places.own:
            self._state.enter(job)
            self.begin(job)
        else:
            self._hand_over(job, places.chosen[0])

    def await_copies(self, pending: PendingAddition, places: Places) -> None:
        """Ask nodes for copies of a job, and wait for their answers."""
        state, job = self._state, pending.job
        assert INTO_WAIT_REPL[job.state], forbidden(job.state, WAIT_REPL)
        job.state = WAIT_REPL
        job.confirmed = places.confirmed
        state.enter(job)
        state.queues.counts[job.queue].waiting += 1
        self.pending[job.id] = pending
        state.memory.used += PENDING_COST
        if pending.client is not None:
            state.waiting.add(pending.client, pending)
        self._send_copies(job, places.chosen, quiet=False)
        self._wake(pending)

    def _send_copies(self, job: Job, node_ids: list[bytes], *, quiet: bool) -> None:
        message = (REPLJOB, job, quiet)
        for node_id in node_ids:
            self._state.send(node_id, message)

    def _hand_over(self, job: Job, node_id: bytes) -> None:
        """Let another node queue a job that this one does not keep."""
        delay_ms = max(1, job.requeue_at - self._state.now) if job.options.delay_ms else 0
        self._state.custody.ended.leave(job, self._state.now)
        self._state.send(node_id, (ENQUEUE, job.id, WORK_SCOPE, delay_ms))

    def begin(self, job: Job) -> None:
        """Let the journal have a job that is entered, and queue it or let its delay begin."""
        state, options = self._state, job.options
        if state.journaling:
            state.outbox.journal.append((JOB_ADDED, job))
        assert INTO_ACTIVE[job.state], forbidden(job.state, ACTIVE)
        job.state = ACTIVE
        if not options.delay_ms:
            if options.kind:
                self._streams.publish(job)
                return
            job.requeue_at = state.now + options.retry_ms if options.retry_ms else 0
            self._queueing.enqueue_new(job, state.queue(job.queue))
        elif options.kind:
            self._streams.expect(job)
        else:
            list_delayed(state.queues, job)
        self._queueing.reschedule(job)

    def copy_to(self, job: Job, node_ids: list[bytes]) -> None:
        """Give copies of a job that this node has to more nodes; `job.confirmed` tells which have them."""
        state = self._state
        state.unite_holders(job, frozenset((*node_ids, state.node_id)))
        if job.confirmed is None:
            job.confirmed = state.shared.holders(frozenset((state.node_id,)))
        if state.journaling:
            state.outbox.journal.append((JOB_ADDED, job))
        self._send_copies(job, node_ids, quiet=False)

    # While a producer waits.

    def _wake(self, pending: PendingAddition) -> None:
        """Look at a producer again when something is to be done for it."""
        state = self._state
        holders = pending.job.holders or frozenset()
        more = any(node_id not in holders for node_id in state.peers.reachable)
        at = min(pending.resend_at, pending.more_at) if more else pending.resend_at
        if pending.deadline_at:
            at = min(at, pending.deadline_at)
        # The job itself is not in the schedule while its producer waits: it would be moved when there are copies.
        state.schedule.move(pending, min(at, pending.job.expires_at))

    def due(self, pending: PendingAddition) -> None:
        """Find one more node, and ask again those that have not answered; or give up."""
        state, job = self._state, pending.job
        if self.pending.get(job.id) is not pending:
            return  # another job of its batch was given up at the same time
        if state.now >= job.expires_at:
            self.refuse(job)
            return
        if pending.deadline_at and state.now >= pending.deadline_at:
            self.timed_out(pending)
            return
        if self._has_enough(pending):
            self._achieve(pending)
            return
        before = state.shared.others(job.holders or frozenset())
        more = self._placement.draw(1, job.holders or frozenset()) if state.now >= pending.more_at else []
        if more:
            pending.more_at = state.now + pending.patience_ms
            state.add_holders(job, frozenset(more))
            self._send_copies(job, more, quiet=False)
            for node_id in before:
                state.send(node_id, (HOLDERS, job.id, job.holders))
        if state.now >= pending.resend_at:
            confirmed = job.confirmed or frozenset()
            answered = confirmed | pending.refused_by
            self._send_copies(job, [node_id for node_id in before if node_id not in answered], quiet=False)
            pending.resend_ms = min(2 * pending.resend_ms, RESEND_MAX_MS + pending.patience_ms)
            pending.resend_at = state.now + pending.resend_ms
        self._wake(pending)

    def timed_out(self, pending: PendingAddition, error: CommandError | None = None) -> None:
        """Give up a job, with its batch, whose producer waits no longer: NOREPL, or an error where that is wanted."""
        state, job = self._state, pending.job
        problem = naming_policy(timed_out(state), state, job.queue, job.options.replicate) if error is None else error
        self._fall_short(pending, problem)

    def on_gotjob(self, sender: bytes, job_id: bytes) -> Job | None:
        """Note that a copy is durable elsewhere; returns the job, None where it is not known here."""
        state = self._state
        # Its producer waits, nearly always, and of those there are few: that is the shorter way to the job.
        pending: PendingAddition | None = self.pending.get(job_id)
        job = state.jobs.get(job_id) if pending is None else pending.job
        if job is None:
            keeper = self._refused.get(job_id)
            if keeper is not None and keeper != sender:
                state.send(sender, (DELJOB, job_id))
        elif job.state != ACKED and job.confirmed is not None:
            job.confirmed = self._placement.join(job.confirmed, sender)
            if pending is not None and self._has_enough(pending):
                self._achieve(pending)
        return job

    def _has_enough(self, pending: PendingAddition) -> bool:
        """Tell whether there are enough copies: as many as were wanted, or as can be made when nobody said."""
        job = pending.job
        confirmed = job.confirmed or frozenset()
        if len(confirmed) >= job.options.replicate:
            return True
        fewer_will_do = pending.by_default and bool(confirmed) and not pending.refused_by
        return fewer_will_do and self._placement.is_exhausted(confirmed)

    def _achieve(self, pending: PendingAddition) -> None:
        """There are copies enough: the job is there, and its producer hears so; jobs of a batch wait for each other."""
        if pending.batch is None:
            self._answer(pending, pending.job.id)
            self._place(pending)
        else:
            self._achieve_together(pending.batch, pending.job)

    def _achieve_together(self, batch: Batch, job: Job) -> None:
        """Nothing is waited for of this job; let all of its batch be there when it is the last."""
        batch.missing.pop(job.id, None)
        if batch.missing or batch.is_over:
            return
        self._end_batch(batch, batch.value)
        for each in batch.pendings:
            if self.pending.get(each.job.id) is each:
                self._answer(each, None)
                self._place(each)

    def _end_batch(self, batch: Batch, value: object) -> None:
        batch.is_over = True
        if batch.client is not None:
            self._state.outbox.replies.append((batch.client, value, []))
        elif batch.when_over is not None:
            batch.when_over(isinstance(value, CommandError))

    def _place(self, pending: PendingAddition) -> None:
        """Let a job begin of which there are copies enough, here or on the node that is to have it."""
        state, job = self._state, pending.job
        own = state.node_id in (job.holders or ())
        state.note(ADD, job, who=pending.client, word=b"" if own else ELSEWHERE)
        confirmed = job.confirmed or frozenset()
        job.confirmed = None
        if own:
            self.begin(job)
        else:
            chosen = state.numbers.rng.choice(state.shared.others(confirmed))
            self._hand_over(job, chosen)
            if not job.options.retry_ms:
                self._leave_to_one(job, chosen)
            state.drop(job)

    def _leave_to_one(self, job: Job, chosen: bytes) -> None:
        """Let no other node keep an at-most-once job, neither those that have a copy nor those that will."""
        for node_id in self._state.shared.others(job.holders or frozenset()):
            if node_id != chosen:
                self._state.send(node_id, (DELJOB, job.id))
        self._note_refused(job.id, chosen)

    def settle(self, job: Job) -> None:
        """Somebody says that a job is done whose producer waits: that is as good as copies."""
        state = self._state
        pending = self.pending.get(job.id)
        assert pending is not None
        self._answer(pending, job.id)
        if pending.batch is not None:
            self._achieve_together(pending.batch, job)
        assert INTO_ACTIVE[job.state], forbidden(job.state, ACTIVE)
        job.state = ACTIVE
        job.holders = state.shared.holders((job.holders or frozenset()) | {state.node_id})
        state.note(ADD, job, who=pending.client)
        if state.journaling:
            state.outbox.journal.append((JOB_ADDED, job))

    def refuse(self, job: Job) -> None:
        """Give up a job whose producer waits, for it is removed."""
        self._give_up(self.pending[job.id], NotReplicated(REMOVED))

    def paused_elsewhere(self, sender: bytes, job: Job) -> None:
        """Hear that a node keeps no copy as the queue is paused there: ask another one, or say so if there is none."""
        pending: PendingAddition | None = self.pending.get(job.id)
        if pending is None or sender in (job.confirmed or _NOBODY):
            return
        pending.refused_by |= {sender}
        if self._is_possible(pending):
            pending.more_at = self._state.now
            self._wake(pending)
        else:
            self._fall_short(pending, self._paused(pending))

    def _paused(self, pending: PendingAddition) -> CommandError:
        return self._state.queues.refusal(pending.job.queue, pending.refused_by)

    def _fall_short(self, pending: PendingAddition, problem: CommandError) -> None:
        """There will not be copies enough: give the job up, unless fewer will do."""
        if isinstance(pending.client, BackgroundClient) and pending.client.takes_fewer:
            self._achieve(pending)
        else:
            self._give_up(pending, problem)

    def _give_up(self, pending: PendingAddition, problem: CommandError) -> None:
        """Answer with an error, and let nobody keep a copy, as far as nodes can be reached."""
        state = self._state
        if self.pending.get(pending.job.id) is not pending:
            return  # another job of its batch has been given up
        state.counters.refused += 1
        if pending.batch is not None:
            self._end_batch(pending.batch, problem)
        together: list[PendingAddition] = [pending] if pending.batch is None else pending.batch.pendings
        for each in together:
            if self.pending.get(each.job.id) is each:
                self._answer(each, problem)
                self._abandon(each.job)

    def _abandon(self, job: Job) -> None:
        state = self._state
        job.flags |= FLAG_GIVEN_UP
        state.note_end(REFUSE, job, word=NOREPL)
        state.tell(job, (DELJOB, job.id))
        state.drop(job)
        self._note_refused(job.id)

    def has_given_up(self, job_id: bytes) -> bool:
        """Return whether this node remembers that it gave up a job."""
        return job_id in self._refused

    def _note_refused(self, job_id: bytes, keeper: bytes = b"") -> None:
        """Remember a job that nobody but the keeper is to keep who says GOTJOB from now on."""
        refused = self._refused
        if len(refused) >= REFUSED_KEPT:
            del refused[next(iter(refused))]
        refused[job_id] = keeper

    def _answer(self, pending: PendingAddition, value: object) -> None:
        state = self._state
        self._wait_no_more(pending)
        if isinstance(pending.client, BackgroundClient):
            pending.client.ended(value)
        elif pending.batch is None:
            state.outbox.replies.append((pending.client, value, []))

    def _wait_no_more(self, pending: PendingAddition) -> None:
        state = self._state
        del self.pending[pending.job.id]
        state.queues.counts[pending.job.queue].waiting -= 1
        state.memory.used -= PENDING_COST
        state.schedule.cancel(pending)
        if pending.client is not None:
            state.waiting.remove(pending.client, pending)

    def forsake(self, pending: PendingAddition) -> None:
        """Its producer is gone: the job is not wanted any more, as nobody knows its id."""
        self._wait_no_more(pending)
        self._abandon(pending.job)

    def flushing(self) -> None:
        """Everything is flushed: producers that wait hear that their jobs are gone."""
        for pending in list(self.pending.values()):
            self._give_up(pending, NotReplicated(REMOVED))
