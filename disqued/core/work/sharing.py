"""Holders of a job keep out of each other's way: one of them has it in its queue, or with a consumer.

Each holder has a timer for each job that it holds, so that a job is delivered whatever becomes of the others.  When its
timer ends, a node asks before it queues the job again:

    us    --WILLQUEUE--> every other holder
    them  --HOLDERS--> us         I do not have it, and these may hold it, too    when all have said so, we queue it
          --QUEUED--> all         it waits in my queue                            the timers of the others start again
          --WORKING(left)--> all  a consumer of mine has it for so long           theirs end a little after mine
          --DELIVERED--> all      the same, of a job that nothing takes from a consumer   theirs wait for a call
          --SETACK--> us          it is done
          silence                 we ask all of them again every second: words age
    us    --QUEUED--> all         here it is

A node waits for a silent holder, link or no link, until most nodes find that it has failed.  One that does not hear
most nodes itself cannot know that, and waits for some time-outs (`peers.PATIENCE`).  So a restart or a stall of a
holder doubles no delivery, a crash delays one by the time-out, and a partition delays one on its smaller side by a few.
A node that stood still treats its own queue likewise: others may have found that it failed (`Requeueing.stalled`).

The question comes when the retry period is over and not before: the holder that took an acknowledgement in time knows
of it when it hears the question.

When two holders ask at the same time, the one that comes first for this job (`ids.comes_first`) does not answer.  The
other one answers, and needs the word of the first one again, even if it had it already.  So no two nodes ever have
each other's word.  An answer to a question that was given up meanwhile does not count for the next question:

    first  --WILLQUEUE--> second
    first  <--WILLQUEUE-- second    (not answered)
    first  <--HOLDERS---- second
    first  --QUEUED-----> second    the timer of the second starts again

A node that has given a job away does not answer before the other holders have dealt with the gift, for the taker may
not have it yet, and may have said so:

    giver  --YOURJOBS--> taker
    us     --WILLQUEUE--> giver --CATCH_UP--> every other holder
                          giver <--CAUGHT_UP-- them                 now a gift that was on its way has come
    us     --WILLQUEUE--> giver --HOLDERS--> us                     the next time that we ask

A node whose producer waits for the first copies of a job (WAIT_REPL) answers WORKING, and nothing else of this touches
such a job.

HOLDERS is also what the producer's node tells the holders of a job about each other.  Such a list names its receiver,
and an answer to WILLQUEUE does not.

Two nodes may have queued a job all the same: during a partition, or because clients said so.  When one hears QUEUED of
the other, the one keeps it that comes first; the loser takes it out of its queue.  A winner that hears QUEUED of a
loser answers, so that it is enough when one of the two messages arrives.  The loser asks soon, for the job may have
left the winner since, be it for this very node: words of different nodes overtake each other.  A job that a consumer
has is kept back in the same way, unless the consumer gave it up (NACK) or somebody asked for it (ENQUEUE).

Times are integer milliseconds; spans travel, never instants.  Source: Disque, src/job.c and src/cluster.c; the Disque
README, "Job re-queueing state machine".
"""

from typing import Final

from disqued.core.model import messages
from disqued.core.model.fate import NO_FATE
from disqued.core.model.ids import comes_first
from disqued.core.model.job import (
    ACKED,
    ACTIVE,
    DEAD,
    FLAG_ASKING,
    FLAG_DELIVERED,
    FLAG_ELSEWHERE,
    FLAG_GIVEN,
    FLAG_PUT_OFF,
    FLAG_QUEUED_BEFORE,
    FLAG_TAKEN_OUT,
    QUEUED,
    RETRY_NEVER_MS,
    WAIT_REPL,
    WORK_SCOPE,
    Job,
)
from disqued.core.model.machine import Hear, Machine
from disqued.core.model.messages import AFTER_NACK, AGAIN, AS_BEFORE, ASKED, Message
from disqued.core.model.outbox import JOB_ADDED
from disqued.core.model.phases import list_delayed
from disqued.core.model.state import State
from disqued.core.work.copies import SPREAD_MS
from disqued.core.work.replication import Replication
from disqued.core.work.requeueing import Requeueing

DOUBT_MS: Final = 1_000  #: when a node that left a job to another one asks whether that still has it


class Sharing(Machine):
    """The machine that hears what other holders say of a job."""

    __slots__ = ("_queueing", "_replication", "_requeueing", "_state")

    def __init__(self, state: State, requeueing: Requeueing, replication: Replication) -> None:
        self._state = state
        self._queueing = requeueing.queueing
        self._requeueing = requeueing
        self._replication = replication

    def hears(self) -> dict[int, Hear]:
        return {
            messages.HOLDERS: self.on_holders,
            messages.ENQUEUE: self.on_enqueue,
            messages.WILLQUEUE: self.on_willqueue,
            messages.QUEUED: self.on_queued,
            messages.WORKING: self.on_working,
            messages.CATCH_UP: self.on_catch_up,
            messages.CAUGHT_UP: self.on_caught_up,
        }

    def on_willqueue(self, sender: bytes, job_id: bytes, scope: bytes) -> None:
        """Say so if this node knows better, or that it does not."""
        state = self._state
        job = state.jobs.get(job_id)
        if job is None:
            if not state.say_ended(sender, job_id):
                state.send(sender, (messages.HOLDERS, job_id, frozenset()))
            return
        if job.state == WAIT_REPL:
            # Its producer waits for copies: nobody can have it before that is over.
            state.send(sender, (messages.WORKING, job_id, WORK_SCOPE, job.options.probe_ms))
            return
        if job.state == ACKED:
            state.say_done(sender, job)
            return
        if state.unite_holders(job, frozenset((sender, state.node_id))) and state.journaling:
            state.outbox.journal.append((JOB_ADDED, job))
        options = job.options
        is_untried = job.flags & FLAG_TAKEN_OUT and options.is_rare
        if (options.fate is not NO_FATE or is_untried) and job.state != DEAD:
            state.send(sender, state.word_of_fate(job))
        if job.state == QUEUED:
            state.tell(job, (messages.QUEUED, job_id, WORK_SCOPE, AS_BEFORE))
        elif self._queueing.is_leased(job):
            self._queueing.leases.tell(job)
        elif (word := self._word_for_another(job, sender)) is not None:
            state.send(sender, word)
        else:
            self._give_way(job, sender)

    def _give_way(self, job: Job, sender: bytes) -> None:
        """Let a node go ahead, unless a gift is on its way, or this node asks for the same and goes first."""
        if job.flags & FLAG_GIVEN and self._is_on_its_way(job, sender):
            return
        if not job.flags & FLAG_ASKING:
            self._let_go_ahead(job, sender)
        elif comes_first(sender, self._state.node_id, job.id):
            # Both ask for the same; what the sender has answered counts no more.
            self._requeueing.ask_again(job, sender)
            self._let_go_ahead(job, sender)

    def _word_for_another(self, job: Job, sender: bytes) -> Message | None:
        """Say who has a job, that it is dead, or until when it waits, where nobody else can; None = somebody can."""
        state = self._state
        left_ms = job.requeue_at - state.now
        word: Message | None = None
        if job.state == DEAD or (job.flags & FLAG_PUT_OFF and left_ms > SPREAD_MS):
            word = state.word_of_fate(job)
        elif job.flags & FLAG_ELSEWHERE and job not in state.custody.elsewhere and left_ms > 0:
            _, node_id = state.queue(job.queue).elsewhere[job]
            if node_id != sender and node_id not in state.peers.linked:
                word = self._queueing.leases.hint(job)
        return word

    def _is_on_its_way(self, job: Job, asker: bytes) -> bool:
        """Return whether a job that this node gave away may not have come to its taker yet; the holders are asked.

        What was given to the asker comes to it before an answer does.
        """
        state = self._state
        given_at = job.requeue_at - job.options.probe_ms  # or a little later: `Transfer`
        others = state.shared.others(job.holders or frozenset())
        awaited = state.peers.awaited(others, given_at, state.now) - {asker}
        late = [node_id for node_id in sorted(awaited) if state.peers.by_id[node_id].caught_up < given_at]
        for node_id in late:
            state.send(node_id, (messages.CATCH_UP, state.now))
        if not late:
            job.flags &= ~FLAG_GIVEN
        return bool(late)

    def on_catch_up(self, sender: bytes, number: int) -> None:
        """Tell a node that all that it said before has been dealt with."""
        self._state.send(sender, (messages.CAUGHT_UP, number))

    def on_caught_up(self, sender: bytes, number: int) -> None:
        """Note until when a node has dealt with what this one said."""
        peer = self._state.peers.by_id[sender]
        if number <= self._state.now:  # else it is from another life of this node
            peer.caught_up = max(peer.caught_up, number)

    def _let_go_ahead(self, job: Job, node_id: bytes) -> None:
        """Tell a node that this one does not have a job, and who else may have it."""
        state = self._state
        others = (job.holders or frozenset()) - {state.node_id, node_id}
        state.send(node_id, (messages.HOLDERS, job.id, state.shared.holders(others)))
        if job.options.is_rare:
            # That nobody has had it was said in the word before; it may be handed out there now.
            self._queueing.note_taken(job)

    def on_holders(self, sender: bytes, job_id: bytes, holders: frozenset[bytes]) -> None:
        """Hear of more nodes that may hold a job, or that the sender has nothing against queueing it."""
        state = self._state
        job = state.jobs.get(job_id)
        if job is None or (job.state == ACKED and not job.holders):
            return
        if job.state == WAIT_REPL:
            if not holders:
                self._replication.paused_elsewhere(sender, job)
            return
        more = holders - (job.holders or frozenset())
        if state.unite_holders(job, holders) and state.journaling:
            state.outbox.journal.append((JOB_ADDED, job))
        # A list of those that are to hold a job names the node that hears it; an answer to its question does not.
        if job.flags & FLAG_ASKING and state.node_id not in holders:
            self._requeueing.go_ahead(job, sender, more)

    def on_enqueue(self, sender: bytes, job_id: bytes, scope: bytes, delay_ms: int) -> None:
        """Queue a job for the first time: the node that its producer asked does not keep it."""
        job = self._state.jobs.get(job_id)
        if job is None or job.state != ACTIVE or job.flags & FLAG_DELIVERED:
            return
        delay_ms, retry_ms = min(delay_ms, job.options.delay_ms), job.options.retry_ms
        if not retry_ms and job.flags & FLAG_QUEUED_BEFORE:
            return
        job.flags &= ~FLAG_QUEUED_BEFORE
        list_delayed(self._state.queues, job)
        if delay_ms:
            job.requeue_at = self._state.now + delay_ms
            self._queueing.reschedule(job)
            if self._state.journaling:
                # The copy that was written down waits for nothing, or for a retry period more.
                self._state.outbox.journal.append((JOB_ADDED, job))
        elif retry_ms and self._queueing.is_paused_in(job.queue):
            job.requeue_at = self._state.now + job.options.probe_ms
            self._queueing.reschedule(job)
        else:
            self._requeueing.enqueue(job)

    def on_queued(self, sender: bytes, job_id: bytes, scope: bytes, how: int) -> None:
        """Leave a job to a node that has it in its queue, unless this one has the better claim."""
        job = self.known(sender, job_id)
        if job is None:
            return
        state, queueing = self._state, self._queueing
        # The journal is not told: the ack of a job that comes back from it goes to the whole cluster.
        state.unite_holders(job, frozenset((sender, state.node_id)))
        if job.options.is_rare:
            pass  # FATE came first, with counters
        elif how == AFTER_NACK:
            job.nacks += 1
        elif how in (AGAIN, ASKED):
            job.additional_deliveries += 1
        if how in (AS_BEFORE, AGAIN) and queueing.is_leased(job):
            self._insist(sender, job)
            return
        span_ms = job.options.probe_ms
        if job.state == QUEUED:
            if comes_first(state.node_id, sender, job.id):
                state.send(sender, (messages.QUEUED, job.id, WORK_SCOPE, AS_BEFORE))
                return
            queueing.dequeue(job)
            span_ms = min(span_ms, DOUBT_MS)
        ends_delay = queueing.is_delayed(job) or job.flags & FLAG_PUT_OFF
        if job.options.retry_ms:
            job.flags |= FLAG_QUEUED_BEFORE
        self._put_off(job, span_ms)
        if ends_delay and state.journaling:
            # After a crash, too, it does not wait for the end of that; and the next try that ends is counted.
            state.outbox.journal.append((JOB_ADDED, job))

    def on_working(self, sender: bytes, job_id: bytes, scope: bytes, left_ms: int) -> None:
        """Leave a job to the consumer that has it, for the time that it has left."""
        job = self.known(sender, job_id)
        if job is None or not job.options.retry_ms:
            return
        left_ms = min(left_ms, job.options.retry_ms)
        if self._queueing.is_leased(job) and left_ms <= job.requeue_at - self._state.now:
            return  # what a consumer of this node has lasts longer, and puts off as much
        self._queueing.dequeue(job)
        self._put_off(job, left_ms)

    def on_delivered(  # noqa: PLR0917 - the fields of the message
        self, sender: bytes, job_id: bytes, scope: bytes, left_ms: int, elapsed_ms: int, deliveries: int
    ) -> None:
        """Hear that a consumer has a job that no timer queues again: it is kept as delivered, in case of need."""
        job = self.known(sender, job_id)
        if job is None or not job.options.retry_ms:
            return
        state, queueing = self._state, self._queueing
        if queueing.is_leased(job) and (job.deliveries, state.node_id) > (deliveries, sender):
            self._insist(sender, job)
            return
        state.unite_holders(job, frozenset((sender, state.node_id)))
        queueing.dequeue(job)
        self._put_off(job, min(left_ms, job.options.retry_ms))
        queueing.leases.note_elsewhere(job, sender, elapsed_ms, deliveries)

    def known(self, sender: bytes, job_id: bytes) -> Job | None:
        """The job, when it is active or queued here; a sender that does not know that it is done or dead hears so."""
        job = self._state.jobs.get(job_id)
        if job is None:
            self._state.say_ended(sender, job_id)
            return None
        if job.state == WAIT_REPL:
            return None
        if job.state == ACKED:
            self._state.say_done(sender, job)
            return None
        if job.state == DEAD:
            self._state.send(sender, self._state.word_of_fate(job))
            return None
        return job

    def _insist(self, node_id: bytes, job: Job) -> None:
        """Tell a node that a consumer of this one has a job."""
        for message in self._queueing.leases.hints(job):
            self._state.send(node_id, message)

    def _put_off(self, job: Job, span_ms: int) -> None:
        """Let the timer end after that of the node that has the job."""
        if job.state == ACTIVE and job.options.retry_ms:
            state = self._state
            self._queueing.put_off(job, state.now + min(span_ms + state.numbers.spread(SPREAD_MS), RETRY_NEVER_MS))
