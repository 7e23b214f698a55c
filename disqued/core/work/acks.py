"""Acknowledgement: forgetting a job everywhere, never too early.

A copy left behind a partition must not come back to life, so a job that is done is kept, without its body, until each
node that may hold it has said that it knows:

    client --ACKJOB--> us --SETACK(holders)--> every holder that has not said so yet
    them   --GOTACK(known, holders)--> us      noted in job.confirmed; holders that we did not know are asked, too
    all confirmed      --DELJOB--> them; then we drop the job

The last of several holders that is asked hears so.  It can forget the job at once, and says that it knows none.

Each holder that hears SETACK has the job as one that is done, and would collect it itself if we went away.  Who held
nothing but us?  Then there is nobody to ask, and the job is dropped at once.

An ack of a job that is not known here is kept as well, where there are other nodes: a dummy ack.  Who holds the job is
not known, so the whole cluster is asked.  A node that knows the job collects it, and the dummy can go; so it can when
every node has answered that it does not know it, or when the job's time, which its id tells, is over.  A dummy ack
never answers for another one: two of them would take each other for the job.  A node that is leaving, or whose memory
is low, keeps none, and asks the cluster once.

Who holds a job is not written down each time that it moves.  So the ack of a job that a node has from its store goes to
the whole cluster.  So does the ack of a job of a schedule, which a node that could not be heard may have made as well.

A node whose journal cannot be written neither confirms nor collects: it would come back from a crash without the ack,
to nodes that have forgotten it.

A copy that was under way when everybody forgot the job is not taken: the ids of jobs that ended are remembered for a
while (`endings`).

Sets are compared, not their sizes: a node that is not in the list of the others cannot pass for one that confirmed.

SETACK is sent again after 1 s, 2 s, 4 s ... up to 180 s; what a partition held back is asked in rounds (`ackrounds`).

A holder that was forgotten (CLUSTER FORGET), or that this node has never met by the time that it tried
`STRANGERS_GIVEN_UP` times, is not waited for.

A job that was cancelled, purged or deleted with its queue ends in the same way, and SETACK says so by its mark.  The
node that ends it counts it, and the others do not.  If somebody has had it, FATE goes before SETACK, as for results:

    SETACK(cancelled) --> every holder       FATE(cancelled, tries, ended), SETACK(cancelled) --> every holder

A job that was added with RESULT becomes an *outcome*: it is done, and stays with its holders, without its body, until
`requeue_at`, though everybody knows.  It is not evicted.  Its fate has the word of the acknowledgement, empty if the
consumer gave none; without a word it was cancelled.  FATE goes before each SETACK, which has the mark of the result,
and both or none count: a holder that does not know this result, since FATE was lost or it knows a better one, tells
the sender what it knows and confirms nothing.  A node that learns another result asks all holders again.

    FATE(result), SETACK(mark) --> every holder     all confirmed --SETACK(last)--> them: nobody asks any more
    SETACK(mark) alone         --> a holder --FATE(what it knows)--> us --FATE(result), SETACK(mark)--> it

An acknowledgement without RESULT that a node takes which does not hold the job has no word: the node makes an empty one
when a holder asks.  Of words that several nodes took the earliest counts (`fate.merge`).

Whether a consumer has had such a job since a try was last counted (`job.last_try`) only the node in whose hands it was
can say.  A holder that knows tells the others, unless the word of the acknowledgement said so; `fates` merges that.

Times are integer milliseconds.  Source: Disque, src/ack.c; the Disque README, "Acknowledgement and garbage collection".
"""

from typing import Final

from disqued.core.model.calendar import is_of_schedule
from disqued.core.model.fate import MARK, NO_FATE, Fate, Word, cancelled, is_undone, mark_of
from disqued.core.model.job import (
    ACKED,
    FLAG_CAME_BACK,
    FLAG_ENDED_ELSEWHERE,
    FLAG_LEASED,
    FLAG_PROMISED,
    FLAG_QUEUED_BEFORE,
    FLAG_TRY_TOLD,
    INTO_ACKED,
    KEYED,
    PERHAPS_TRIED,
    UNTRIED,
    WAIT_REPL,
    WAS_TRIED,
    WORK_SCOPE,
    Job,
    NamedJob,
    forbidden,
    last_try,
    process_of,
)
from disqued.core.model.machine import Hear, Machine
from disqued.core.model.messages import DELJOB, ENDED_CANCELLED, FATE, GOTACK, SETACK
from disqued.core.model.outbox import CANCEL, GONE_DELETED, HERE_ALONE, JOB_ADDED, Client, Notification
from disqued.core.model.state import State
from disqued.core.model.trace import ACK, CANCELLED, FAST, FAST_UNKNOWN, PEER, UNKNOWN
from disqued.core.work.ackrounds import RETRY_MIN_MS, AckRounds, missing_holders, put_off
from disqued.core.work.replication import Replication
from disqued.errors import WrongType

ATTEMPTS_COUNTED = 9  #: the period does not grow any more after so many
RESULT_BYTES: Final = 64 << 10
_UNKNOWN: frozenset[bytes] = frozenset()  #: the holders of a dummy ack


class Acks(Machine):
    """The machine behind ACKJOB, FASTACK and DELJOB."""

    __slots__ = ("_replication", "_state", "result_max", "rounds")

    def __init__(self, state: State, replication: Replication) -> None:
        self._state = state
        self._replication = replication
        self.rounds: AckRounds = AckRounds(state)
        self.result_max: int = RESULT_BYTES  #: `result-max`

    def hears(self) -> dict[int, Hear]:
        return {GOTACK: self.on_gotack, DELJOB: self.on_deljob}

    # Commands.

    def acknowledge(self, job_id: bytes) -> bool:
        """Note that a job is done; say whether it was known here and not done before.

        Raises WrongType (WRONGTYPE) for an event, which no one group can call done for all.
        """
        job = self._state.jobs.get(job_id)
        if job is None:
            self._note_unknown(job_id, UNKNOWN)
            self._keep_dummy(job_id)
            return False
        if job.state == ACKED:
            if job in self._state.custody.acked:
                self._ask(job)
            return False
        if job.options.is_rare:
            return self._acknowledge_rare(job, None)
        if job.state == WAIT_REPL:
            self._replication.settle(job)
        self._count(job, self._state.trace.actor)
        if job.flags & FLAG_CAME_BACK:
            self._mistrust(job)
        if job.holders is None:
            self._state.finish(job)
            return True
        self._ask(self._become_done(job))
        return True

    def acknowledge_with(self, job_id: bytes, result: bytes) -> bool:
        """Note that a job is done, and what came of it; say whether it was known here and not done before.

        Raises WrongType (WRONGTYPE) for an event.
        """
        state = self._state
        job = state.jobs.get(job_id)
        if job is None:
            self._note_unknown(job_id, UNKNOWN)
            self._keep_dummy(job_id, Fate(result=self._word(result)))
            return False
        if job.state == ACKED:
            if job.is_dummy and job.options.fate.result is None:
                state.set_fate(job, job.options.fate._replace(result=self._word(result)))
                self._ask(job)
            return False
        return self._acknowledge_rare(job, result)

    def _word(self, result: bytes) -> Word:
        return Word(self._state.wall, self._state.node_id, result)

    def _acknowledge_rare(self, job: Job, result: bytes | None) -> bool:
        """Acknowledge a job that has terms or a fate, or is to have a result; an event is refused."""
        options = job.options
        if options.kind:
            raise WrongType
        fate = options.fate
        # Without a word, a job that was cancelled would count as ended by that.
        if fate.result is None and (result is not None or options.terms.keep_result_ms or fate.is_cancelled):
            self._state.set_fate(job, fate._replace(result=self._word(result or b"")))
        return self.end(job)

    def end(self, job: Job) -> bool:
        """End a job that is not done: it is acknowledged, cancelled, or its queue was deleted.  Returns True."""
        state, fate = self._state, job.options.fate
        is_heard = False
        if job.state == WAIT_REPL:
            self._replication.settle(job)
        if fate.is_cancelled and fate.result is None:
            is_heard = job.flags & FLAG_ENDED_ELSEWHERE != 0
            _count_cancelled(state, job, state.trace.actor, PEER if is_heard else b"")
        else:
            self._count(job, state.trace.actor)
        if job.flags & FLAG_CAME_BACK or job.options.terms.headers:
            self._mistrust(job)
        if job.holders is None and not job.options.terms.keep_result_ms:
            state.finish(job)
        elif is_heard:
            put_off(state, self._become_done(job))  # it is the sender that asks
        else:
            self._ask(self._become_done(job))
        return True

    def end_undone(self, job: Job) -> bool:
        """End a job whose work nobody did, as a cancelled one.  Returns True.  Raises WrongType for an event."""
        if job.options.kind:
            raise WrongType
        fate = job.options.fate
        if fate.result is None and not fate.is_cancelled:
            self._state.set_fate(job, cancelled(fate))
        return self.end(job)

    def acknowledge_fast(self, job_id: bytes) -> bool:
        """Drop a job here, and tell those who may hold it once; say whether it was known.

        Raises WrongType (WRONGTYPE) for an event.
        """
        state = self._state
        job = state.jobs.get(job_id)
        if job is None:
            self._note_unknown(job_id, FAST_UNKNOWN)
            for node_id in state.peers.linked:
                state.send(node_id, (DELJOB, job_id))
            return False
        if job.options.kind:
            raise WrongType
        if job.state != ACKED:
            state.counters.fast_acked += 1
            self._count(job, state.trace.actor, FAST)
        if job.state == WAIT_REPL:
            self._replication.refuse(job)
            return True
        self._tell(job)
        state.finish(job)
        return True

    def delete(self, job_id: bytes) -> bool:
        """Drop a job from this node alone, whatever its state, and an event everywhere; say whether it was known."""
        job = self._state.jobs.get(job_id)
        if job is None:
            return False
        if job.state == WAIT_REPL:
            self._replication.refuse(job)
        else:
            if job.options.kind and job.holders:
                self._state.tell(job, (DELJOB, job_id))
                self._state.custody.ended.add(job_id)
            self._state.forget(job, GONE_DELETED)
        return True

    def _note_unknown(self, job_id: bytes, word: bytes) -> None:
        """Leave a word in the trail of the ack of a job that this node does not know."""
        state = self._state
        if state.trace.endings is not None:
            state.trace.endings.tell(ACK, state.wall, state.now, job_id, who=state.trace.actor, word=word)

    def _count(self, job: Job, who: Client | bytes | None, word: bytes = b"") -> None:
        """Count an ack, and how long the consumer had the job, if this node knows it to be with one."""
        state = self._state
        counters = state.counters
        requeue_at = job.requeue_at
        if requeue_at and job.flags & FLAG_LEASED:
            span_ms = job.options.retry_ms
            if state.custody.spans:
                span_ms = state.custody.spans.get(job, span_ms)
            flight_ms = state.now - requeue_at + span_ms
            if flight_ms < 0:
                flight_ms = 0
            counters.flight_buckets[flight_ms.bit_length()] += 1
            counters.flight_ms += flight_ms
        else:
            flight_ms = -1
            counters.acked_untimed += 1
        if state.trace.endings is not None:
            if word or job.nacks or job.additional_deliveries or not job.options.has_short_lines:
                state.note_end(ACK, job, span_ms=flight_ms, who=who, word=word)
            elif state.trace.full is not None:
                state.trace.full.ack(job, flight_ms)
            else:
                state.trace.endings.act(state.wall, state.now, who)
                state.trace.endings.ack(job, flight_ms)
        if state.custody.bound:
            worker = state.custody.bound.get(job)
            if worker is not None:
                worker.done += 1
        queue = state.queues.by_name.get(job.queue)
        if queue is not None:
            queue.acked += 1

    # Done here.

    def _mistrust(self, job: Job) -> None:
        """Count every node as a holder of a job that came back from a store, which may have missed a move.

        And of a job of a schedule, which any node may have made; such a job has headers.
        """
        peers = self._state.peers.by_id
        may_be_anywhere = job.flags & FLAG_CAME_BACK or (job.options.terms.headers and is_of_schedule(job.id))
        if may_be_anywhere and job.options.retry_ms and peers:
            self._state.unite_holders(job, frozenset((*peers, self._state.node_id)))

    def _become_done(self, job: Job, *, is_heard: bool = False) -> Job:
        """Keep of a job no more than that it is done, and who is to know; returns what is kept.

        `is_heard`: another node says so.  That is an object of its own: a message with the job itself may not have left
        yet.
        """
        state = self._state
        flags = last_try(job, job.flags, is_heard=is_heard) if job.options.is_rare else 0
        knows_more = is_heard and flags != PERHAPS_TRIED and not job.flags & FLAG_TRY_TOLD
        state.drop(job)
        done = Job(job.id, job.queue, b"", job.ctime, job.options)
        done.expires_at = job.expires_at
        done.order_key = job.order_key
        done.nacks = job.nacks
        done.additional_deliveries = job.additional_deliveries
        done.holders = job.holders
        done.state = job.state
        self._keep(done)
        if job.options.is_rare:
            done.flags = flags
            self._keep_outcome(done, job.options.terms.keep_result_ms)
            # Others take a cancelled job that they know of no consumer of for one that nobody had.
            if knows_more and (done.requeue_at or (flags == WAS_TRIED and is_undone(job.options.fate))):
                state.tell_fate(done)
        if state.journaling:
            state.outbox.journal.append((JOB_ADDED, done))
        return done

    def _keep(self, done: Job) -> None:
        """Enter what is kept of a job that is done."""
        state = self._state
        assert INTO_ACKED[done.state], forbidden(done.state, ACKED)
        done.state = ACKED
        done.requeue_at = 0
        done.confirmed = state.shared.holders(frozenset((state.node_id,)))
        state.enter(done)
        state.custody.acked[done] = 0
        state.custody.evictable[done] = None

    def _keep_outcome(self, done: Job, left_ms: int) -> None:
        """Keep the outcome of a job for so long; 0 = no longer than until everybody knows."""
        if left_ms:
            state = self._state
            state.counters.outcomes += 1
            done.requeue_at = state.now + left_ms
            done.expires_at = max(done.expires_at, done.requeue_at)
            state.add_holders(done, frozenset((state.node_id,)))
            state.custody.evictable.pop(done, None)

    def take_outcome(self, job: Job, left_ms: int, flags: int) -> None:
        """Keep a job, made of a copy and not entered, that is done, for so long; its holders are known."""
        done = Job(job.id, job.queue, b"", job.ctime, job.options)
        done.expires_at = job.expires_at
        done.order_key = job.order_key
        done.nacks = job.nacks
        done.additional_deliveries = job.additional_deliveries
        done.holders = job.holders
        done.flags = PERHAPS_TRIED if flags & FLAG_QUEUED_BEFORE else UNTRIED
        self._keep(done)
        self._keep_outcome(done, min(left_ms, job.options.terms.keep_result_ms))
        if self._state.journaling:
            self._state.outbox.journal.append((JOB_ADDED, done))
        put_off(self._state, done)

    def _is_kept(self, done: Job) -> bool:
        """Return whether an acknowledged job is an outcome whose time is not over."""
        return done.requeue_at > self._state.now

    def _keep_dummy(self, job_id: bytes, fate: Fate = NO_FATE) -> None:
        """Remember that a job is done that this node does not hold, as long as the job may live.

        The journal hears nothing of it: nobody was told that it counts.
        """
        state = self._state
        ttl_ms = ttl_of(job_id)
        if not ttl_ms or not state.peers.by_id:
            return
        if state.leaving or state.memory.is_low:
            # Nothing is kept here now; those who hold the job hear of it once.
            state.custody.ended.add(job_id)
            for node_id in sorted(state.peers.linked):
                if fate is not NO_FATE:
                    state.send(node_id, (FATE, job_id, 0, 0, 0, fate))
                state.send(node_id, (SETACK, job_id, WORK_SCOPE, False, _UNKNOWN))
            return
        options = state.shared.options(ttl_ms, RETRY_MIN_MS, 0, 1, fate=fate)
        done = Job(job_id, b"", b"", state.wall * 1_000_000, options)
        done.expires_at = state.now + ttl_ms
        done.holders = _UNKNOWN
        self._keep(done)
        self._ask(done)

    # Collection.

    def due(self, job: Job) -> None:
        """Try again, or give up: the deadline of a job that is done has come."""
        if job.expires_at <= self._state.now:
            self._state.finish(job)
        elif not self.rounds.open or not self.rounds.takes(job):
            self._ask(job)

    def _ask(self, job: Job) -> None:
        """Send SETACK to those who have not said that they know, and set the time of the next attempt."""
        state = self._state
        attempt = min(state.custody.acked[job] + 1, ATTEMPTS_COUNTED)
        state.custody.acked[job] = attempt
        missing = missing_holders(self._state, job)
        if not missing:
            self._collect(job)
            return
        put_off(self._state, job)
        for node_id in missing:
            state.say_done(node_id, job, last=len(missing) == 1)

    def _collect(self, job: Job, forgot: bytes = b"") -> None:
        """Everybody knows: let everybody forget, but for the one that did so already; an outcome stays.

        Not if this node would not know any more after a crash.
        """
        if self._state.durability.read_only:
            put_off(self._state, job)
            return
        if job.requeue_at and self._is_kept(job):
            self._settle(job)
            self._state.tell(job, (SETACK, job.id, mark_of(job.options.fate), True, job.holders))
            return
        self._tell(job, forgot)
        self._state.finish(job)

    def _settle(self, job: Job) -> None:
        """Keep an outcome until its time is over, and ask nobody any more: everybody knows."""
        self._state.custody.settle(job)
        if self._state.custody.watched:
            self._state.note_watched(job)  # nobody has more to say of its last try
        job.expires_at = job.requeue_at
        self._state.schedule.move(job, job.expires_at)

    def _tell(self, job: Job, forgot: bytes = b"") -> None:
        """Let those who may hold a job forget it."""
        state = self._state
        for node_id in state.shared.others(job.holders or _UNKNOWN):
            if node_id != forgot:
                state.send(node_id, (DELJOB, job.id))

    # Messages.

    def on_setack(self, sender: bytes, job_id: bytes, scope: bytes, last: bool, holders: frozenset[bytes]) -> None:
        """Hear that a job is done."""
        state = self._state
        job = state.jobs.get(job_id)
        # Nobody can say that an event is done for all groups: who does so does not know what it is.
        if job is None or job.options.kind:
            self._hear_of_unknown(sender, job_id, scope, holders)
            return
        if job.options.terms.keep_result_ms and not self._agrees(job, sender, scope, holders):
            return
        if job.state == ACKED and not job.holders:
            self._hear_of_dummy(sender, job, holders)
            return
        if job.state != ACKED:
            self._note_heard(job, sender, scope)
        state.add_holders(job, holders | {state.node_id})
        is_last = last and not state.durability.read_only and holders >= (job.holders or _UNKNOWN) - {state.node_id}
        if is_last and not job.options.terms.keep_result_ms:
            # Everybody knows now: this node has nothing to keep, and nobody to keep it for.
            self._leave(job, sender)
            state.send(sender, (GOTACK, job_id, scope, False, _UNKNOWN))
            return
        if job.state != ACKED:
            job = self._become_done(job, is_heard=True)
            # It is the sender that collects, if it can; this node does when nothing comes of that.
            if holders:
                put_off(self._state, job)
            else:
                self._ask(job)
        if holders:
            confirmed = holders if is_last else frozenset((sender,))
            job.confirmed = state.shared.holders((job.confirmed or _UNKNOWN) | confirmed)
        if not state.durability.read_only:
            state.send(sender, (GOTACK, job_id, scope, True, job.holders))
            if holders and not missing_holders(self._state, job):
                # Everybody knows, this node the last: nobody asks it any more.
                self._leave(job, sender)

    def _hear_of_dummy(self, sender: bytes, dummy: Job, holders: frozenset[bytes]) -> None:
        """Hear that a job is done of which nothing else is known here either.

        The sender may hold the job, and then collects it; a dummy of its own it keeps, as it asks us all.
        """
        self._state.send(sender, (GOTACK, dummy.id, WORK_SCOPE, False, _UNKNOWN))
        if holders:
            self._state.finish(dummy)

    def _agrees(self, job: Job, sender: bytes, mark: bytes, holders: frozenset[bytes]) -> bool:
        """Return whether a node that says that a job is done means the result that is known here; tell it if not.

        One that does not hold the job may know no result at all, which adds nothing to one that is known.
        """
        fate = job.options.fate
        if fate.result is None:
            agrees = mark == MARK or (fate.is_cancelled and not mark)
        else:
            agrees = mark == mark_of(fate) or (mark in (WORK_SCOPE, MARK) and not holders)
        if agrees:
            return True
        self._state.send(sender, self._state.word_of_fate(job))
        return False

    def fate_changed(self, job: Job, before: Fate) -> None:
        """Tell all holders of the result of a job that is done, when that is another one than they have confirmed."""
        if job.state == ACKED and self._is_kept(job) and mark_of(job.options.fate) != mark_of(before):
            job.confirmed = self._state.shared.holders(frozenset((self._state.node_id,)))
            self._state.custody.unsettle(job)
            self._ask(job)

    def _note_heard(self, job: Job, sender: bytes, mark: bytes) -> None:
        """Take note of an ack, or the end of a cancelled job, that another node tells of."""
        state = self._state
        if job.state == WAIT_REPL:
            self._replication.settle(job)
        if mark == MARK and not job.options.fate.is_cancelled:
            state.set_fate(job, cancelled(job.options.fate))
        if state.demand.listeners and job in state.custody.bound:
            # The worker that has it hears so.
            state.outbox.events.append(Notification(job.queue, CANCEL, process_of(job), HERE_ALONE))
        if job.options.is_rare and is_undone(job.options.fate):
            _count_cancelled(state, job, sender, PEER)
        else:
            state.counters.acks_heard += 1
            self._count(job, sender, PEER)
        self._mistrust(job)

    def _leave(self, job: Job, collector: bytes) -> None:
        """Forget a job that another node collects, and that everybody knows to be done; an outcome stays.

        Both may have told each other to be the last; who kept the ack tells the others, whom nobody else would tell.
        """
        if job.options.is_rare and job.state == ACKED and self._is_kept(job):
            self._settle(job)
            return
        if job.state == ACKED:
            self._tell(job, collector)
        self._state.finish(job)

    def _hear_of_unknown(self, sender: bytes, job_id: bytes, scope: bytes, holders: frozenset[bytes]) -> None:
        """Hear that a job is done that is not known here: it has ended, or our copy of it is still under way."""
        state = self._state
        if state.node_id in holders and state.jobs.get(job_id) is None:
            state.custody.ended.add(job_id)
            if scope == MARK:
                # A holder that asks whether it may queue the job hears the same.
                state.custody.ended.note(job_id, ENDED_CANCELLED, 0)
        state.send(sender, (GOTACK, job_id, scope, False, _UNKNOWN))

    def on_gotack(self, sender: bytes, job_id: bytes, scope: bytes, known: bool, holders: frozenset[bytes]) -> None:
        """Hear that a node knows that a job is done."""
        state = self._state
        if self.rounds.open:
            self.rounds.answered(sender, job_id)
        job = state.jobs.get(job_id)
        if job is None or job.state != ACKED:
            return
        is_rare = job.options.is_rare
        if known and (scope or is_rare) and scope != mark_of(job.options.fate) and (scope or self._is_kept(job)):
            return  # it has confirmed another result
        if not job.holders and known:
            state.finish(job)
            return
        if known:
            state.unite_holders(job, holders | {sender})
        elif is_rare and job.holders and self._is_kept(job):
            job.holders = state.shared.holders(job.holders - {sender})
        self._confirm(job, sender)
        missing = missing_holders(self._state, job)
        if job in state.custody.settled:
            # It has one more holder, or one that is to say again that it knows.
            if missing:
                state.custody.unsettle(job)
                self._ask(job)
        elif not missing:
            self._collect(job, b"" if known else sender)

    def _confirm(self, job: Job, node_id: bytes) -> None:
        confirmed = job.confirmed or _UNKNOWN
        if node_id not in confirmed:
            job.confirmed = self._state.shared.holders(confirmed | {node_id})

    def on_deljob(self, sender: bytes, job_id: bytes) -> None:
        """Forget a job because another node says so: it is done everywhere, or was refused."""
        job = self._state.jobs.get(job_id)
        if job is None:
            return
        if job.state == WAIT_REPL:
            self._replication.refuse(job)
        elif job.state == ACKED:
            if job.requeue_at and self._is_kept(job):
                self._settle(job)
            else:
                self._state.finish(job)
        elif not self._is_promised(job):
            self._state.forget(job, GONE_DELETED)
            # One with a key may have been promised by another node: then it has not ended.
            if job.options.retry_ms and not _is_keyed(job):
                self._state.custody.ended.add(job.id)

    def _is_promised(self, job: Job) -> bool:
        """Tell whether a producer may count on this copy, as another node told it the id that its key stands for.

        What a node promised it does not write down: one that came back from a store may be such a copy.
        """
        if job.flags & FLAG_PROMISED:
            return True
        is_own = job.id[2:10] == self._state.node_id[:8]
        return _is_keyed(job) and bool(job.flags & FLAG_CAME_BACK) and not is_own


def _count_cancelled(state: State, job: Job, who: Client | bytes | None, word: bytes) -> None:
    """Count a job that ends as a cancelled one; `word`: PEER, if another node has ended it."""
    state.counters.cancelled += 1
    state.counters.cancels_heard += word == PEER
    if state.trace.endings is not None:
        held_ms = -1
        if job.requeue_at and job.flags & FLAG_LEASED:
            span_ms = state.custody.spans.get(job, job.options.retry_ms)
            held_ms = max(0, state.now - job.requeue_at + span_ms)
        state.note_end(CANCELLED, job, span_ms=held_ms, who=who, word=word)


def _is_keyed(job: Job) -> bool:
    return isinstance(job, NamedJob) and job.alias[:1] == KEYED


def ttl_of(job_id: bytes) -> int:
    """How long a job may live at most, as its id tells, in milliseconds; 0 for one that is delivered at most once.

    An id has whole minutes, rounded down, so that the job may live for almost one more.  Only ids of Disque 1.0 tell
    that it is delivered at most once: the number of minutes is even.
    """
    field = job_id[42:46] if job_id.startswith(b"DI") else job_id[36:40]
    try:
        minutes = int(field, 16)
    except ValueError:
        return 0
    if not job_id.startswith(b"DI") and minutes % 2 == 0:
        return 0
    return (minutes + 1) * 60_000
